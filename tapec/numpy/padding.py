"""``np.pad``: every mode that has a meaning on traced values."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapec import primitives as p
from tapec.errors import UnsupportedError, fail
from tapec.numpy.registry import implements
from tapec.numpy.shapes import gather_axis
from tapec.primitives import as_array, binary, cast
from tapec.tape import is_traced
from tapec.tracer import FUNCTIONS, Tracer

__all__: list[str] = []

_numpy_pad: Any = np.pad


@implements(np.pad)
def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Tracer:
    """Constant padding; edge, reflect, symmetric and wrap repeat elements by position."""
    x = as_array(array)
    if isinstance(pad_width, dict):
        pad_width = [pad_width.get(k, (0, 0)) for k in range(x.type.ndim)]
    widths = np.broadcast_to(np.asarray(pad_width), (x.type.ndim, 2)).tolist()
    if mode == "constant":
        values = np.empty((x.type.ndim, 2), object)
        given = kwargs.pop("constant_values", 0)
        given = np.array(given, object) if not isinstance(given, Tracer) else np.array(given)
        values[...] = np.broadcast_to(given, values.shape)
        if not kwargs:
            if not is_traced(given) and not np.any(given):
                return _zero_pad(x, widths)
            for k, (low, high) in enumerate(widths):
                x = p.concat(
                    [_block(x, k, low, values[k, 0]), x, _block(x, k, high, values[k, 1])], k
                )
            return x
    if mode in ("edge", "reflect", "symmetric", "wrap"):
        odd = kwargs.get("reflect_type") == "odd"
        for k, (low, high) in enumerate(widths):
            if low or high:
                x = _repeated(x, k, low, high, mode, odd, kwargs)
        return x
    if mode in ("linear_ramp", "maximum", "minimum", "mean", "median"):
        for k, (low, high) in enumerate(widths):
            if low or high:
                ends = [_end(x, k, side, n, mode, kwargs) for side, n in enumerate((low, high))]
                x = p.concat([ends[0], x, ends[1]], k)
        return x
    raise fail(UnsupportedError, f"pad with mode={mode!r} is not supported on traced values")


def _repeated(x: Tracer, k: int, low: int, high: int, mode: str, odd: bool, kwargs: Any) -> Tracer:
    """Padding with elements of the array; ``odd`` reflects them about the edge values."""
    line = np.arange(x.type.shape[k])
    where = _numpy_pad(line, (low, high), mode, **kwargs) if not odd else _numpy_pad(
        line, (low, high), mode, reflect_type="even"
    )  # fmt: skip
    result = gather_axis(x, where, k)
    if not odd:
        return result
    # 2 edge - mirrored, as often as the array was mirrored: from NumPy's own linear result
    weights = _numpy_pad(np.eye(line.size), ((low, high), (0, 0)), mode, reflect_type="odd")
    table = x.tape.fixed(weights.astype(x.type.dtype.np))
    moved = p.dot(table, x, ([1], [k]))
    order = [*range(1, k + 1), 0, *range(k + 1, x.type.ndim)]
    return p.transpose(moved, order)


def _pair_of(given: Any, axis: int, side: int, ndim: int) -> Any:
    """One entry of an argument given per axis and side, or once for all."""
    if given is None:
        return None
    table = np.empty((ndim, 2), object)
    table[...] = np.broadcast_to(np.array(given, object), (ndim, 2))
    return table[axis, side]


def _end(x: Tracer, axis: int, side: int, n: int, mode: str, kwargs: Any) -> Tracer:
    """The padding at one end of an axis."""
    shape = list(x.type.shape)
    shape[axis] = n
    if mode == "linear_ramp":
        edge = x[(slice(None),) * axis + (slice(0, 1) if side == 0 else slice(-1, None),)]
        value = _pair_of(kwargs.get("end_values", 0), axis, side, x.type.ndim)
        steps = np.arange(n) / n if n else np.zeros(0)
        line = (steps if side == 0 else steps[::-1]).reshape(
            [-1 if d == axis else 1 for d in range(x.type.ndim)]
        )
        ramp = binary("add", value, binary("mul", binary("sub", edge, value), line))
        return cast(p.broadcast_to(ramp, shape), x.type.dtype)
    length = _pair_of(kwargs.get("stat_length"), axis, side, x.type.ndim)
    part = x
    if length is not None:
        cut = slice(0, int(length)) if side == 0 else slice(-int(length), None)
        part = x[(slice(None),) * axis + (cut,)]
    function = {"maximum": np.max, "minimum": np.min, "mean": np.mean, "median": np.median}[mode]
    value = FUNCTIONS[function](part, axis=axis, keepdims=True)
    return cast(p.broadcast_to(value, shape), x.type.dtype)


def _zero_pad(x: Tracer, widths: list[list[int]]) -> Tracer:
    shape = [n + low + high for n, (low, high) in zip(x.type.shape, widths)]
    return p.place([x], shape, [([low for low, _ in widths], [1] * len(shape))])


def _block(x: Tracer, axis: int, n: int, value: Any) -> Tracer:
    shape = [n if k == axis else m for k, m in enumerate(x.type.shape)]
    return p.broadcast_to(cast(p.as_tracer(x.tape, value), x.type.dtype), shape)
