"""Op entry ``host_call``: a Python function on arrays, called from inside the compiled program.

``host_call(*args) {token, types} → results``: ``token`` is the function's name in ``FUNCTIONS``
and ``types`` are the result types as text.  The function gets arrays of the operands' types,
which it must not write to nor keep, and returns one array, or a tuple of them.  It is taken
to be pure: a call whose result nobody uses is dropped, two equal calls may become one.

It has no derivative; what calls it wraps it in a ``custom`` operation with a rule.

>>> import numpy as np
>>> from tapec.ir import F64, Builder, Type, interpret
>>> b = Builder()
>>> x = b.param(Type(F64, (3,)))
>>> attrs = {"token": register(np.sort, "sort"), "types": ("f64[3]",)}
>>> interpret(b.function("f", [b.emit("host_call", (x,), attrs)]), [[3.0, 1.0, 2.0]])
[array([1., 2., 3.])]
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tapec.ir.adjoint import AdjointBuilder
from tapec.ir.core import Attrs, Op, Type, Value
from tapec.ir.custom import RuleError
from tapec.ir.matrix import Cts, Types, matrices
from tapec.ir.opdef import define

if TYPE_CHECKING:
    from tapec.ir.batch import BatchBuilder

__all__ = ["FUNCTIONS", "call_host", "register", "result_types"]

#: token → function.  Tokens are never reused for another function.
FUNCTIONS: dict[str, Callable[..., Any]] = {}
_tokens: dict[Any, str] = {}
_numbers = itertools.count(1)


def register(function: Callable[..., Any], name: str = "") -> str:
    """The token of ``function``; one that is named keeps its name, also in other processes."""
    known = _tokens.get(function)
    if known is not None and (not name or known == name):
        return known
    label = name or f"{getattr(function, '__name__', 'function')}#{next(_numbers)}"
    if FUNCTIONS.setdefault(label, function) is not function:
        raise ValueError(f"there is another host function named {label!r}")
    _tokens[function] = label
    return label


def result_types(attrs: Attrs) -> tuple[Type, ...]:
    from tapec.ir.parser import parse_type

    return tuple([parse_type(text) for text in attrs["types"]])


def call_host(token: str, arrays: Sequence[Any], types: Sequence[Type]) -> list[Any]:
    """The results of the function as arrays of exactly ``types``."""
    found = FUNCTIONS[token](*arrays)
    results = found if isinstance(found, tuple) else (found,)
    if len(results) != len(types):
        raise ValueError(f"host function {token!r} gave {len(results)} results, not {len(types)}")
    out = []
    for value, t in zip(results, types):
        array = np.asarray(value)
        if array.shape != t.shape:
            raise ValueError(f"host function {token!r} gave shape {array.shape} for {t}")
        if array.dtype.kind == "c" and t.dtype.kind != "c":
            raise TypeError(f"host function {token!r} gave complex values for {t}")
        out.append(np.ascontiguousarray(array, t.dtype.np).reshape(t.shape))
    return out


def _infer(types: Types, attrs: Attrs) -> Types:
    if type(attrs.get("token")) is not str:
        raise TypeError(f"host_call: attribute 'token' must be a str, got {attrs.get('token')!r}")
    if type(attrs.get("types")) is not tuple:
        raise TypeError("host_call: attribute 'types' must be a tuple of types as text")
    return result_types(attrs)


def _numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    return tuple(call_host(attrs["token"], arrays, result_types(attrs)))


def _no_rule(b: AdjointBuilder, op: Op, given: Cts) -> Cts:
    where = f"{op.loc.file}:{op.loc.line}: " if op.loc is not None else ""
    raise RuleError(
        f"{where}'{op.attrs['token']}' is called on the host and has no derivative rule; wrap it "
        "with custom_vjp or custom_jvp"
    )


class _Mapped:
    """A function on each entry of the leading axis of some arguments."""

    def __init__(self, function: Callable[..., Any], flags: tuple[bool, ...], n: int) -> None:
        self.function, self.flags, self.n = function, flags, n

    def __call__(self, *arrays: Any) -> Any:
        rows = []
        for k in range(self.n):
            found = self.function(*[a[k] if f else a for a, f in zip(arrays, self.flags)])
            rows.append(found if isinstance(found, tuple) else (found,))
        return tuple([np.stack(column) for column in zip(*rows)])


def _batch(b: BatchBuilder, op: Op, xs: Sequence[Value]) -> Sequence[Value]:
    token, flags = op.attrs["token"], tuple([x in b.batched for x in xs])
    if b.n == 0:
        return [b.zeros(b.lift(r.type)) for r in op.results]
    mapped = f"{token}/{''.join('01'[f] for f in flags)}*{b.n}"
    if mapped not in FUNCTIONS:
        FUNCTIONS[mapped] = _Mapped(FUNCTIONS[token], flags, b.n)
    types = tuple([str(b.lift(r.type)) for r in op.results])
    return b.emit_op("host_call", tuple(xs), {"token": mapped, "types": types}).results


define(
    "host_call",
    infer=_infer,
    numpy=_numpy,
    vjp=_no_rule,
    jvp=_no_rule,
    batch=_batch,
    samples=matrices(token="tapec.nothing", types=("f64[2]",)),
    doc="The results of a Python function, called while the program runs.",
)
