"""Nested sequences and object arrays with traced leaves → one traced array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tapec.errors import TapecError, TapecValueError, fail
from tapec.ir.core import Type
from tapec.kinds import Kind, Weak, common_dtype
from tapec.tape import Tape, as_tracer

if TYPE_CHECKING:
    from tapec.tracer import Tracer

__all__ = ["stack_nested"]


def stack_nested(tape: Tape, value: Any) -> Tracer:
    """Nested sequences with traced leaves → one traced array."""
    if not isinstance(value, (list, tuple)):
        return as_tracer(tape, value)
    leaves: list[Tracer] = []
    shape = _collect(tape, value, leaves)
    if not leaves:
        return tape.array(np.zeros(shape))
    whole = _same_array(tape, leaves, shape)
    if whole is not None:
        return whole
    # a list of Python floats is an array of float64: not weak
    dtype = common_dtype([_strong(t.kind) for t in leaves])
    if dtype.kind == "c":
        from tapec.complexes import stacked

        return stacked(tape, leaves, lambda parts: _stack_real(tape, parts, shape))
    return _stack_real(tape, leaves, shape)


def _stack_real(tape: Tape, leaves: Sequence[Tracer], shape: tuple[int, ...]) -> Tracer:
    """Real values of one shape as the elements of an array."""
    inner = leaves[0].type.shape
    dtype = common_dtype([_strong(t.kind) for t in leaves])
    ids = tuple([(t if t.type.dtype is dtype else t.astype(dtype.np)).id for t in leaves])
    type = Type(dtype, shape + inner)
    return tape.record("stack", ids, {"shape": type.shape}, type)


def _strong(kind: Kind) -> Type:
    return kind.type if kind.__class__ is Weak else kind


def _collect(tape: Tape, value: Any, leaves: list[Tracer]) -> tuple[int, ...]:
    """Append the leaves of nested lists in order; the shape of the nesting."""
    inner: tuple[int, ...] | None = None
    for element in value:
        if isinstance(element, np.ndarray) and element.dtype == object:
            element = element.tolist()
        if isinstance(element, (list, tuple)):
            here = _collect(tape, element, leaves)
        else:
            tracer = as_tracer(tape, element)
            if leaves and leaves[0].type.shape != tracer.type.shape:
                raise _ragged(leaves[0].type.shape, tracer.type.shape)
            leaves.append(tracer)
            here = ()
        if inner is None:
            inner = here
        elif inner != here:
            raise _ragged(inner, here)
    return (len(value), *(inner or ()))


def _ragged(first: tuple[int, ...], other: tuple[int, ...]) -> TapecError:
    return fail(
        TapecValueError,
        f"an array cannot be made of elements of different shapes ({first} and {other})",
    )


def _same_array(tape: Tape, leaves: list[Tracer], shape: tuple[int, ...]) -> Tracer | None:
    """The array whose elements, all and in order, ``leaves`` are; None if there is none."""
    records = tape.records
    source = None
    if any(leaf.type.dtype.kind == "c" for leaf in leaves):
        return None
    for position, leaf in enumerate(leaves):
        record = records[leaf.id]
        if record is None or record[0] != "item":
            return None
        if source is None:
            source = record[1][0]
            type = tape.type_of(source)
            if type.size != len(leaves):
                return None
        index = record[2]["index"]
        flat = 0
        if record[1][0] != source or len(index) != type.ndim:
            return None
        for k, n in zip(index, type.shape):
            flat = flat * n + k
        if flat != position:
            return None
    assert source is not None
    whole = tape.handle(source)
    return whole if type.shape == shape else whole.reshape(shape)
