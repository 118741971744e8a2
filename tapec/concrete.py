"""Concrete values beside a trace: one record evaluated on arrays, and marks of arrays.

Guards (``if x > 0:``) are decided by evaluating the tape on the caller's arguments with the
reference semantics of the op table.  ``fingerprint`` remembers what a captured array held,
so that a write to it during the trace does not go unnoticed.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from tapec.ir.core import Dense, Type, dtype_of
from tapec.ir.opdef import OPS
from tapec.kinds import BROADCAST

if TYPE_CHECKING:
    from tapec.tape import Record

__all__ = ["evaluate", "fingerprint", "same_contents"]

_KEEP = 1 << 16  # bytes: up to here a fingerprint is a copy


def evaluate(record: Record, args: list[Any]) -> list[Any]:
    """The results of one record."""
    op, _, attrs, types, _ = record
    if op == "constant":
        value = attrs["value"]
        if isinstance(value, Dense):
            return [value.array]
        return [np.full(types[0].shape, value, types[0].dtype.np)]
    if op == "item":
        return [np.asarray(args[0][attrs["index"]])]
    if op == "stack":
        return [np.array(args, types[0].dtype.np).reshape(types[0].shape)]
    if op == "update":
        from tapec.updates import flat_places

        whole = np.array(args[0])
        at = flat_places(types[0].shape, attrs["region"]).reshape(-1)
        whole.reshape(-1)[at] = np.asarray(args[1]).reshape(-1)
        return [whole]
    if op == "guard":
        return []
    if "regions" in attrs:
        from tapec.ir.core import Function, Op, Value
        from tapec.ir.interp import interpret

        regions = attrs["regions"]
        plain = {k: v for k, v in attrs.items() if k != "regions"}
        arrays = [np.asarray(a) for a in args]
        params = [Value(Type(dtype_of(a.dtype), a.shape)) for a in arrays]
        made = Op(op, tuple(params), types, plain, regions)
        return interpret(Function(op, params, [made], made.results), arrays)
    if attrs is BROADCAST:
        shape = types[0].shape
        args = [np.broadcast_to(a, shape) for a in args]
    with np.errstate(all="ignore"):
        out = OPS[op].numpy(args, attrs)
    outs = out if isinstance(out, (tuple, list)) else (out,)
    return [np.asarray(v, t.dtype.np) for v, t in zip(outs, types)]


def fingerprint(array: np.ndarray[Any, Any]) -> Any:
    """A copy of a small array; of a larger one a checksum."""
    if array.nbytes <= _KEEP:
        return array.copy()
    return zlib.crc32(np.ascontiguousarray(array).data.cast("B"))


def same_contents(array: np.ndarray[Any, Any], mark: Any) -> bool:
    """Whether ``array`` still holds what it held when ``mark`` was taken."""
    if isinstance(mark, np.ndarray):
        return array.shape == mark.shape and array.tobytes() == mark.tobytes()
    return bool(fingerprint(array) == mark)
