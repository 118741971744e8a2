"""The verifier: whether a ``Function`` is well formed.

Invariants, by theme:

* Operations: the name is in the op table; attributes are Python numbers, strings, tuples of
  those, ``Type``, ``Dense`` or None; every operand and result is a ``Value``.
* Types: the declared result types are those that the op's type rule infers from operands,
  attributes and regions.
* Single definition: a value is a parameter or a result of exactly one operation of the
  scopes that can see it, and the result's ``op`` is that operation.
* Dominance: operands and results of a block are defined before, in it or in a block around
  it; a region of ``call`` sees only its own parameters.
* Effects: an operation without results and regions has an effect.

Not checked: that indices are in range (values), and what an op's documentation asks of its
attributes beyond what its type rule looks at.

>>> from tapec.ir import F64, Function, Op, Type, Value
>>> x = Value(Type(F64, (3,)), None, "x")
>>> verify(Function("f", [x], [], [Value(x.type, None, "y")]))
Traceback (most recent call last):
tapec.ir.verify.VerifyError: @f returns a value that is not defined (result 0)
    func @f(%x: f64[3]) -> (f64[3]) {
      return %<undefined>
    }
"""

from __future__ import annotations

from typing import Any

from tapec.ir.control import ISOLATED
from tapec.ir.core import Block, Dense, Function, Op, Type, Value
from tapec.ir.opdef import OPS
from tapec.ir.printer import Line, format_lines

__all__ = ["VerifyError", "verify"]

#: lines shown before and after the one in question
_AROUND = 5

_PLAIN = frozenset((int, bool, float, complex, str, type(None), Dense))
_inferred: dict[Any, tuple[Type, ...]] = {}


class VerifyError(ValueError):
    """A function is malformed: ``message``, and the operation it is about (None: the function)."""

    def __init__(self, message: str, fn: Function, op: Op | None) -> None:
        where = "" if op is None else f"{op.name} in @{fn.name}: "
        super().__init__(f"{where}{message}\n{_excerpt(fn, op, message)}")
        self.message = message
        self.op = op


def verify(fn: Function) -> Function:
    """``fn`` itself, if it is well formed; otherwise a VerifyError that shows where not."""
    _Verifier(fn).block(fn.block, set(), None)
    return fn


class _Verifier:
    def __init__(self, fn: Function) -> None:
        self.fn = fn

    def fail(self, message: str, op: Op | None) -> None:
        raise VerifyError(message, self.fn, op)

    def block(self, block: Block, known: set[Value], owner: Op | None) -> None:
        """Checks a block that may use ``known``; adds what it defines to ``known``."""
        for k, param in enumerate(block.params):
            if not isinstance(param, Value):
                self.fail(f"parameter {k} is not a Value but {param!r}", owner)
            if param in known:
                self.fail(f"parameter {k} ({param!r}) is defined twice", owner)
            if param.op is not None:
                self.fail(f"parameter {k} ({param!r}) is a result of {param.op.name}", owner)
            known.add(param)
        for op in block.ops:
            operands = op.operands
            if not known.issuperset(operands):
                self.undefined(op, known)
            if op.attrs or op.regions:
                self.with_attrs(op, known)
            else:
                key = (op.name, *[v.type for v in operands])
                types = _inferred.get(key)
                if types is None:
                    types = _inferred[key] = self.infer(op)
                self.results(op, types)
            for r in op.results:
                if r in known:
                    self.fail(f"result {r!r} is defined twice", op)
                if r.op is not op:
                    self.fail(f"result {r!r} names another operation as its definition", op)
                known.add(r)
        for k, value in enumerate(block.results):
            if value not in known:
                what = f"@{self.fn.name}" if owner is None else "the region"
                self.fail(f"{what} returns a value that is not defined (result {k})", owner)

    def undefined(self, op: Op, known: set[Value]) -> None:
        for k, v in enumerate(op.operands):
            if not isinstance(v, Value):
                self.fail(f"operand {k} is not a Value but {v!r}", op)
            if v not in known:
                self.fail(f"operand {k} ({v!r}) is not defined before", op)

    def with_attrs(self, op: Op, known: set[Value]) -> None:
        for key, value in op.attrs.items():
            if type(key) is not str:
                self.fail(f"attribute name {key!r} is not a str", op)
            self.attr(op, key, value)
        for region in op.regions:
            self.block(region, set() if op.name in ISOLATED else set(known), op)
        self.results(op, self.infer(op))

    def attr(self, op: Op, key: str, value: Any) -> None:
        kind = type(value)
        if kind is tuple:
            for item in value:
                if type(item) is not int:
                    self.attr(op, key, item)
        elif kind not in _PLAIN and kind is not Type:
            self.fail(
                f"attribute {key!r} holds {value!r} of {kind.__module__}.{kind.__qualname__}", op
            )

    def infer(self, op: Op) -> tuple[Type, ...]:
        entry = OPS.get(op.name)
        if entry is None:
            raise VerifyError("unknown operation", self.fn, op)
        types = tuple([v.type for v in op.operands])
        try:
            if op.regions and entry.infer_regions is not None:
                return entry.infer_regions(types, op.attrs, op.regions)
            if op.regions:
                self.fail("takes no regions", op)
            return entry.infer(types, op.attrs)
        except KeyError as error:
            raise VerifyError(f"attribute {error} is missing", self.fn, op) from error
        except VerifyError:
            raise
        except (TypeError, ValueError) as error:
            text = str(error).removeprefix(f"{op.name}: ")
            raise VerifyError(text, self.fn, op) from error

    def results(self, op: Op, inferred: tuple[Type, ...]) -> None:
        results = op.results
        if len(results) != len(inferred):
            self.fail(f"has {len(results)} results, its type rule gives {len(inferred)}", op)
        if not results and not op.regions and not OPS[op.name].effect:
            self.fail("has neither a result nor an effect", op)
        for k, r in enumerate(results):
            if r.type is not inferred[k]:
                self.fail(f"result {k} is declared {r.type}, its type rule gives {inferred[k]}", op)


# -- the excerpt ----------------------------------------------------------------------


def _excerpt(fn: Function, op: Op | None, message: str) -> str:
    """The lines around an operation, with a marker under its own."""
    try:
        lines = format_lines(fn)
    except Exception as error:  # a function too malformed to print must not hide the message
        return f"    (the function cannot be printed: {error!r})"
    at = next((k for k, line in enumerate(lines) if op is not None and line.op is op), None)
    if at is None:
        shown = (
            _indented(lines[:1]) + (["    ..."] if len(lines) > 3 else []) + _indented(lines[-2:])
        )
        return "\n".join(shown)
    first, last = max(at - _AROUND, 0), min(at + _AROUND + 1, len(lines))
    out = ["    ..."] if first else []
    out += _indented(lines[first : at + 1])
    text = lines[at].text
    indent = len(text) - len(text.lstrip())
    loc = f", from {op.loc}" if op is not None and op.loc else ""
    out.append(f"    {' ' * indent}{'^' * (len(text) - indent)} {message}{loc}")
    out += _indented(lines[at + 1 : last])
    if last < len(lines):
        out.append("    ...")
    return "\n".join(out)


def _indented(lines: list[Line]) -> list[str]:
    return [f"    {line.text}" for line in lines]
