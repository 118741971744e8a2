"""The two sides of a branch: run on tapes of their own, compared, and recorded as one choice.

``Side`` runs one side; ``common_value`` is what both say, if they say the same; ``matched`` and
``common_type`` tell how different results are joined; ``recorded`` records a ``cond``, or a
``select`` where computing both sides takes less time than a branch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tapec import trees
from tapec.bodies import Body
from tapec.control import record_cond
from tapec.errors import TapecError
from tapec.ir.core import BOOL, Block, Function, Op, Type
from tapec.kinds import PYTHON_SCALARS, Weak, common_dtype
from tapec.primitives import binary, kind_of, reshape, select
from tapec.tape import Tape, as_tracer, current_tape
from tapec.tracer import Tracer

__all__ = [
    "AMBIGUOUS", "DIFFERENT", "UNBOUND", "NotJoined", "Sentinel", "Side", "common_type",
    "common_value", "condition", "matched", "recorded", "tracers", "within",
]  # fmt: skip


class Sentinel:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


#: The value of a name that is not bound.
UNBOUND = Sentinel("<unbound>")
#: The value of a name that differs between two paths in a way that cannot be joined.
AMBIGUOUS = Sentinel("<ambiguous>")


class NotJoined(TapecError):
    """This branch stays a guard."""


class Side:
    """One side of a branch: what it was given, what came out, and its tape."""

    def __init__(self, fn: Callable[..., Sequence[Any]], values: tuple[Any, ...]) -> None:
        with Tape("if") as tape:
            self.given = [within(tape, v) for v in values]
            self.out = list(fn(*self.given))
        self.tape = tape
        self.leaves: list[Any] = []

    def body(self, types: Sequence[Type]) -> Body:
        """The side as a region that yields ``leaves`` in the given types."""
        from tapec.lift import lift

        fn = lift(self.tape, self.leaves, "if")
        ops, results = list(fn.ops), []
        for value, type in zip(fn.results, types):
            if value.type is not type:
                ops.append(Op("convert", (value,), (type,), {"dtype": type.dtype.name}))
                value = ops[-1].results[0]
            results.append(value)
        block = Block(fn.params, ops, results)
        return Body(block, [c.obj for c in self.tape.captures], None, list(types))


def within(tape: Tape, value: Any) -> Any:
    """``value`` with its traced parts as values of ``tape``, so that what a side does with them
    is recorded there."""
    if isinstance(value, Tracer):
        return tape.own(value)
    if type(value) in (tuple, list):
        return type(value)([within(tape, v) for v in value])
    if hasattr(type(value), "__next__"):
        raise NotJoined("an iterator is used up")
    return value


def tracers(value: Any) -> Iterator[Tracer]:
    if isinstance(value, Tracer):
        yield value
    elif type(value) in (tuple, list):
        for v in value:
            yield from tracers(v)


def condition(x: Tracer) -> Tracer:
    x = reshape(x, ())
    return x if x.type.dtype is BOOL else binary("ne", x, 0)


# -- what two sides say -------------------------------------------------------------------

DIFFERENT = Sentinel("<different>")
_IMMUTABLE = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))


def common_value(sides: Sequence[Side], pair: Sequence[Any], values: Sequence[Any]) -> Any:
    """What both sides say, if they say the same."""
    a, b = pair
    for k, value in enumerate(values):
        if a is sides[0].given[k] and b is sides[1].given[k]:
            return value
    if isinstance(a, Tracer) or isinstance(b, Tracer):
        return a if a is b else DIFFERENT
    return a if a is b or _equal(a, b) else DIFFERENT


def _equal(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, _IMMUTABLE):
        return a is b or repr(a) == repr(b)
    return type(a) is tuple and len(a) == len(b) and all(map(_equal, a, b))


def matched(
    sides: Sequence[Side], pair: Sequence[Any], fresh: bool
) -> tuple[list[Any], list[Any], Any]:
    """The leaves of two results of one structure."""
    for side, value in zip(sides, pair):
        if isinstance(value, Sentinel):
            raise NotJoined("a name is assigned on one side only")
        if isinstance(value, (list, dict)) and not fresh:
            raise NotJoined("two names for one object")
        if isinstance(value, (list, dict, np.ndarray)) and any(value is v for v in side.given):
            raise NotJoined("two names for one object")
    (a, first), (b, second) = trees.flatten(pair[0]), trees.flatten(pair[1])
    if first != second:
        raise NotJoined("results of different structures")
    return a, b, first


def common_type(x: Any, y: Any) -> tuple[Type, bool]:
    """The type of a value that is ``x`` or ``y``, and whether it stands for a Python number."""
    x, y = _typed(x), _typed(y)
    kinds = [kind_of(x), kind_of(y)]
    types = [_type_of(x), _type_of(y)]
    weak = [k.__class__ is Weak or k in PYTHON_SCALARS for k in kinds]
    if types[0].shape != types[1].shape:
        raise NotJoined("results of different shapes")
    booleans = [t.dtype is BOOL for t in types]
    if types[0].dtype is not types[1].dtype and (not any(weak) or any(booleans)):
        raise NotJoined("results of different dtypes")
    if all(booleans):
        return types[0], False
    if types[0].dtype is types[1].dtype:
        return types[0], all(weak)
    return types[0].with_dtype(common_dtype(kinds)), all(weak)


def _typed(x: Any) -> Any:
    """A leaf with the type that it will have on a tape."""
    if isinstance(x, Tracer) or type(x) in PYTHON_SCALARS:
        return x
    if isinstance(x, (np.ndarray, np.generic)):
        tape = current_tape()
        assert tape is not None
        return as_tracer(tape, x)
    raise NotJoined(f"a {type(x).__qualname__} on one side")


def _type_of(x: Any) -> Type:
    return x.type if isinstance(x, Tracer) else Type(PYTHON_SCALARS[type(x)])


# -- cond or select -----------------------------------------------------------------------

#: Operations that take less time than a branch that is not foreseen.
_CHEAP = frozenset(
    (
        "abs", "add", "and", "broadcast", "constant", "convert", "eq", "ge", "gt", "le", "lt",
        "max", "min", "mul", "ne", "neg", "not", "or", "reshape", "select", "slice", "sub",
    )
)  # fmt: skip
_CHEAP_OPS, _CHEAP_SIZE = 12, 16


def _cheap(block: Block) -> bool:
    return len(block.ops) <= _CHEAP_OPS and all(
        op.name in _CHEAP and all(r.type.size <= _CHEAP_SIZE for r in op.results)
        for op in block.ops
    )


def recorded(tape: Tape, test: Tracer, bodies: Sequence[Body]) -> list[Tracer]:
    """Record ``test`` choosing between bodies: one of them runs, or both if that is cheaper."""
    sizes = [t.size for t in bodies[0].types]
    if max(sizes) > _CHEAP_SIZE or not all(_cheap(b.block) for b in bodies):
        return record_cond(tape, test, [], bodies)
    false, true = [
        tape.inline(
            Function("if", b.block.params, b.block.ops, b.block.results),
            [as_tracer(tape, c) for c in b.captures],
        )
        for b in bodies
    ]
    return [select(test, x, y) for x, y in zip(true, false)]
