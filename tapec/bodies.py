"""What ``control`` is made of: bodies traced on tapes of their own, carries, recorded operations,
and jitted calls outside of a trace.

A body's block takes its inputs and then what it captured; captured arrays and tracers of
outer tapes become operands of the operation, so regions need nothing from around them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tapec import trees
from tapec.errors import TapecTypeError, fail
from tapec.ir.core import Block, Type, dtype_of
from tapec.tape import Handle, Tape, as_tracer, current_tape
from tapec.trace import where_defined

__all__ = [
    "JOBS", "Body", "Carry", "casting", "leaf_text", "leaf_types", "outside", "record",
    "trace_body", "type_text", "wider",
]  # fmt: skip

#: Control functions by name, each with its static arguments first.
JOBS: dict[str, Callable[..., Any]] = {}


class Body(NamedTuple):
    """A traced body: its block (parameters: given ones, then captures), what it captured,
    the structure it returned, and its result leaves' types."""

    block: Block
    captures: list[Any]
    treedef: Any
    types: list[Type]


def trace_body(name: str, fn: Callable[..., Any], args: Any, types: Sequence[Type]) -> Body:
    """Trace ``fn`` on inputs of the given types in the structure of ``args`` (a treedef)."""
    from tapec.lift import lift

    with Tape(name) as tape:
        inputs = [tape.input(t, None, None) for t in types]
        returned = fn(*trees.unflatten(args, inputs))
        leaves, treedef = trees.flatten(returned)
        values = []
        for leaf in leaves:
            try:
                values.append(as_tracer(tape, leaf))
            except TapecTypeError:
                raise TapecTypeError(
                    f"{name}: the function at {where_defined(fn)} returned a "
                    f"{type(leaf).__qualname__}; return arrays and numbers, or containers of them"
                ) from None
        function = lift(tape, values, name)
    captures = [c.obj for c in tape.captures]
    return Body(function.block, captures, treedef, [v.type for v in values])


def leaf_types(tape: Tape, leaves: Sequence[Any]) -> tuple[list[Any], list[Type]]:
    values = [as_tracer(tape, leaf) for leaf in leaves]
    return values, [v.type for v in values]


def record(
    tape: Tape, name: str, operands: Sequence[Any], attrs: dict[str, Any], regions: Sequence[Block]
) -> list[Any]:
    """Record an operation with regions; tracers of its results."""
    from tapec.ir.opdef import OPS

    rule = OPS[name].infer_regions
    assert rule is not None
    types = rule(tuple([v.type for v in operands]), attrs, tuple(regions))
    if not types:
        return []
    ids = tuple([v.id for v in operands])
    at = tape.push(name, ids, {**attrs, "regions": tuple(regions)}, types)
    return [tape.handle(at + k) for k in range(len(types))]


# -- outside of a trace -----------------------------------------------------------------


class _Job(NamedTuple):
    """A control function with its static arguments, to be jitted once."""

    kind: str
    statics: tuple[Any, ...]

    def __call__(self, *args: Any) -> Any:
        return JOBS[self.kind](*self.statics, *args)


@functools.lru_cache(maxsize=256)
def _cached(job: Hashable) -> Any:
    from tapec.api import jit

    assert isinstance(job, _Job)
    return jit(functools.partial(job.__call__))


def outside(kind: str, statics: tuple[Any, ...], args: tuple[Any, ...]) -> Any:
    job = _Job(kind, statics)
    try:
        call = _cached(job)
    except TypeError:  # a body that is not hashable
        from tapec.api import jit

        call = jit(functools.partial(job.__call__))
    return call(*args)


def wider(a: Type, b: Type) -> Type:
    return Type(dtype_of(np.result_type(a.dtype.np, b.dtype.np)), a.shape)


def casting(fn: Callable[..., Any], types: Sequence[Type]) -> Callable[..., Any]:
    """``fn`` with result leaves of the given dtypes."""

    @functools.wraps(fn)
    def cast(*args: Any) -> Any:
        tape = current_tape()
        assert tape is not None
        leaves, treedef = trees.flatten(fn(*args))
        values = [as_tracer(tape, leaf) for leaf in leaves]
        return trees.unflatten(
            treedef,
            [v if v.type is t else v.astype(t.dtype.np) for v, t in zip(values, types)],
        )

    return cast


def type_text(t: Type) -> str:
    return f"{t.dtype.np}[{','.join(map(str, t.shape))}]"


def leaf_text(treedef: Any, k: int) -> str:
    path = trees.leaf_paths(treedef)[k]
    return "".join(f"[{p!r}]" for p in path) or "(the only one)"


# -- carries ----------------------------------------------------------------------------


class Carry:
    """Leaves that go round a loop, as values of ``tape``."""

    def __init__(self, tape: Tape, init: Any) -> None:
        self.leaves, self.treedef = trees.flatten(init)
        self.values = [as_tracer(tape, leaf) for leaf in self.leaves]

    @property
    def types(self) -> list[Type]:
        return [v.type for v in self.values]

    def widen(self, name: str, fn: Callable[..., Any], treedef: Any, types: Sequence[Type]) -> bool:
        """Check what the body hands on.  A number of Python that the loop starts from takes
        the dtype of what replaces it: then True, and the body must be traced again."""
        if treedef != self.treedef:
            raise fail(
                TapecTypeError,
                f"{name}: the carry starts as {self.treedef}, but the function at "
                f"{where_defined(fn)} returns {treedef}",
            )
        again = False
        for k, (value, t) in enumerate(zip(self.values, types)):
            if value.type is t:
                continue
            same_shape = value.type.shape == t.shape
            if same_shape and _python_number(self.leaves[k]):
                wide = wider(value.type, t)
                if wide is not value.type:
                    self.values[k] = value.astype(wide.dtype.np)
                    again = True
                    continue
            raise fail(
                TapecTypeError,
                f"{name}: carry {leaf_text(self.treedef, k)} starts as "
                f"{type_text(value.type)}, but the function at "
                f"{where_defined(fn)} returns {type_text(t)} for it",
                "start from an array of that shape and dtype",
            )
        return again


def _python_number(leaf: Any) -> bool:
    return isinstance(leaf, (int, float, complex)) or (isinstance(leaf, Handle) and leaf.weak)
