"""Functions that move elements: reshaping, joining, splitting, repeating, padding, diagonals.

Results that NumPy returns as views are views here, too: writing to one is seen by the other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapec import primitives as p
from tapec.errors import TapecValueError, fail
from tapec.ir.core import I64
from tapec.kinds import Weak, broadcast_shapes, common_dtype
from tapec.numpy.registry import axes_of, axis_of, implements, int_argument, shape_argument
from tapec.primitives import as_array, binary, cast, operands, select
from tapec.tape import is_traced
from tapec.tracer import Tracer, view
from tapec.writing import fixed_integers

__all__ = ["diagonal", "moved_last", "reshape", "transpose"]


def _reshaped(x: Tracer, shape: Sequence[int]) -> Tracer:
    """A reshape as a view."""
    old = x.type.shape
    return view(
        p.reshape(x, shape),
        x,
        lambda base: p.reshape(base, shape),
        lambda base, part: p.reshape(part, old),
    )


@implements(np.reshape)
def reshape(a: Any, shape: Any, order: str = "C", *, copy: Any = None) -> Tracer:
    x = as_array(a)
    new = list(shape_argument(shape))
    holes = [k for k, n in enumerate(new) if n == -1]
    if len(holes) > 1:
        raise fail(TapecValueError, "can only specify one unknown dimension")
    if holes:
        known = math.prod(n for n in new if n != -1)
        if known:
            new[holes[0]] = x.type.size // known
        elif x.type.size == 0:
            new[holes[0]] = 0
    if math.prod(new) != x.type.size or min(new, default=0) < 0:
        raise fail(
            TapecValueError,
            f"cannot reshape array of size {x.type.size} into shape {shape_argument(shape)}",
        )
    if order == "F":
        reversed_axes = p.transpose(x, range(x.type.ndim - 1, -1, -1))
        return p.transpose(p.reshape(reversed_axes, new[::-1]), range(len(new) - 1, -1, -1))
    return _reshaped(x, tuple(new))


@implements(np.ravel)
def ravel(a: Any, order: str = "C") -> Tracer:
    x = as_array(a)
    return reshape(x, (x.type.size,), order=order)


@implements(np.transpose, "permute_dims")
def transpose(a: Any, axes: Any = None) -> Tracer:
    x = as_array(a)
    n = x.type.ndim
    perm = tuple(range(n - 1, -1, -1)) if axes is None else axes_of(tuple(axes), n)
    if len(perm) != n:
        raise fail(TapecValueError, "axes don't match array")
    back = tuple(perm.index(k) for k in range(n))
    return view(
        p.transpose(x, perm),
        x,
        lambda base: p.transpose(base, perm),
        lambda base, part: p.transpose(part, back),
    )


@implements("matrix_transpose", getattr(np.linalg, "matrix_transpose", ""))
def matrix_transpose(x: Any) -> Tracer:
    return swapaxes(x, -1, -2)


@implements(np.swapaxes)
def swapaxes(a: Any, axis1: Any, axis2: Any) -> Tracer:
    x = as_array(a)
    i, j = axis_of(axis1, x.type.ndim), axis_of(axis2, x.type.ndim)
    perm = list(range(x.type.ndim))
    perm[i], perm[j] = j, i
    return transpose(x, perm)


@implements(np.moveaxis)
def moveaxis(a: Any, source: Any, destination: Any) -> Tracer:
    x = as_array(a)
    src, dst = axes_of(source, x.type.ndim), axes_of(destination, x.type.ndim)
    if len(src) != len(dst):
        raise fail(TapecValueError, "source and destination must have the same number of elements")
    order = [k for k in range(x.type.ndim) if k not in src]
    for to, frm in sorted(zip(dst, src)):
        order.insert(to, frm)
    return transpose(x, order)


@implements(np.rollaxis)
def rollaxis(a: Any, axis: Any, start: Any = 0) -> Tracer:
    x = as_array(a)
    n = x.type.ndim
    k = axis_of(axis, n)
    to = start + n if start < 0 else start
    return moveaxis(x, k, to - 1 if k < to else to)


def moved_last(x: Tracer, axes: Sequence[int]) -> Tracer:
    """``x`` with these axes at the end, in the order given (not a view)."""
    return p.transpose(x, [k for k in range(x.type.ndim) if k not in axes] + list(axes))


@implements(np.expand_dims)
def expand_dims(a: Any, axis: Any) -> Tracer:
    x = as_array(a)
    axis = axis if isinstance(axis, (tuple, list)) else (axis,)
    n = x.type.ndim + len(axis)
    axes = axes_of(tuple(axis), n)
    rest = iter(x.type.shape)
    return _reshaped(x, [1 if k in axes else next(rest) for k in range(n)])


@implements(np.squeeze)
def squeeze(a: Any, axis: Any = None) -> Tracer:
    x = as_array(a)
    shape = x.type.shape
    if axis is None:
        return _reshaped(x, [n for n in shape if n != 1])
    axes = axes_of(axis, len(shape))
    if any(shape[k] != 1 for k in axes):
        raise fail(
            TapecValueError,
            "cannot select an axis to squeeze out which has size not equal to one",
        )
    return _reshaped(x, [n for k, n in enumerate(shape) if k not in axes])


@implements(np.broadcast_to)
def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Tracer:
    return p.broadcast_to(as_array(array), shape_argument(shape)).copy()


@implements(np.broadcast_arrays)
def broadcast_arrays(*arrays: Any, subok: bool = False) -> tuple[Tracer, ...]:
    xs = operands(*arrays)
    shape = broadcast_shapes(*[x.type.shape for x in xs])
    return tuple(p.broadcast_to(x, shape) for x in xs)


def _at_least(n: int, arrays: tuple[Any, ...]) -> Any:
    def one(a: Any) -> Any:
        x = as_array(a) if is_traced(a) else a
        if not isinstance(x, Tracer):
            return (np.atleast_1d, np.atleast_2d, np.atleast_3d)[n - 1](x)
        d = x.type.ndim
        if d >= n:
            return x
        shape = x.type.shape
        if n == 3:
            return _reshaped(x, ((1, 1, 1), (1, *shape, 1), (*shape, 1))[d])
        return _reshaped(x, (1,) * (n - d) + shape)

    results = tuple(one(a) for a in arrays)
    return results[0] if len(results) == 1 else results


@implements(np.atleast_1d)
def atleast_1d(*arys: Any) -> Any:
    return _at_least(1, arys)


@implements(np.atleast_2d)
def atleast_2d(*arys: Any) -> Any:
    return _at_least(2, arys)


@implements(np.atleast_3d)
def atleast_3d(*arys: Any) -> Any:
    return _at_least(3, arys)


# -- joining ----------------------------------------------------------------------------------


def _joinable(arrays: Any, dtype: Any = None) -> list[Tracer]:
    """The arrays as tracers of one tape and dtype."""
    if isinstance(arrays, Tracer):
        arrays = list(arrays)
    xs = operands(*arrays)
    if not xs:
        raise fail(TapecValueError, "need at least one array to concatenate")
    if dtype is None:
        kinds = [x.kind.type if x.kind.__class__ is Weak else x.kind for x in xs]
        common = common_dtype(kinds)
    else:
        common = p.to_dtype(dtype)
    return [cast(x, common) for x in xs]


@implements(np.concatenate, "concat")
def concatenate(arrays: Any, /, axis: Any = 0, *, dtype: Any = None, casting: str = "") -> Tracer:
    xs = _joinable(arrays, dtype)
    if axis is None:
        return p.concat([p.reshape(x, (x.type.size,)) for x in xs], 0)
    if not xs[0].type.ndim:
        raise fail(TapecValueError, "zero-dimensional arrays cannot be concatenated")
    k = axis_of(axis, xs[0].type.ndim)
    for x in xs:
        if [n for d, n in enumerate(x.type.shape) if d != k] != [
            n for d, n in enumerate(xs[0].type.shape) if d != k
        ]:
            shapes = ", ".join(str(x.type.shape) for x in xs)
            raise fail(
                TapecValueError,
                f"all the input array dimensions except for axis {k} must match exactly: {shapes}",
            )
    return p.concat(xs, k)


@implements(np.stack)
def stack(arrays: Any, axis: Any = 0, *, dtype: Any = None, casting: str = "") -> Tracer:
    xs = _joinable(arrays, dtype)
    shape = xs[0].type.shape
    if any(x.type.shape != shape for x in xs):
        raise fail(TapecValueError, "all input arrays must have the same shape")
    k = axis_of(axis, len(shape) + 1)
    new = (*shape[:k], 1, *shape[k:])
    return p.concat([p.reshape(x, new) for x in xs], k)


@implements(np.hstack)
def hstack(tup: Any, *, dtype: Any = None, casting: str = "") -> Tracer:
    xs = [atleast_1d(x) for x in _joinable(tup, dtype)]
    return concatenate(xs, 0 if xs[0].type.ndim == 1 else 1)


@implements(np.vstack, "row_stack")
def vstack(tup: Any, *, dtype: Any = None, casting: str = "") -> Tracer:
    return concatenate([atleast_2d(x) for x in _joinable(tup, dtype)], 0)


@implements(np.dstack)
def dstack(tup: Any) -> Tracer:
    return concatenate([atleast_3d(x) for x in _joinable(tup)], 2)


@implements(np.column_stack)
def column_stack(tup: Any) -> Tracer:
    xs = _joinable(tup)
    columns = [p.reshape(x, (x.type.size, 1)) if x.type.ndim < 2 else x for x in xs]
    return concatenate(columns, 1)


@implements(np.append)
def append(arr: Any, values: Any, axis: Any = None) -> Tracer:
    x, v = operands(arr, values)
    return concatenate([x, v], axis)


@implements(np.block)
def block(arrays: Any) -> Any:
    def depth_of(nested: Any) -> int:
        return 1 + depth_of(nested[0]) if isinstance(nested, list) and nested else 0

    depth = depth_of(arrays)
    tape = p.tape_among((arrays,))
    leaves: list[Tracer] = []

    def collect(nested: Any) -> None:
        if isinstance(nested, list):
            for e in nested:
                collect(e)
        else:
            leaves.append(p.as_tracer(tape, nested))

    collect(arrays)
    ndim = max(depth, *[x.type.ndim for x in leaves])

    def build(nested: Any, level: int) -> Tracer:
        if not isinstance(nested, list):
            x = p.as_tracer(tape, nested)
            return p.reshape(x, (1,) * (ndim - x.type.ndim) + x.type.shape)
        return concatenate([build(e, level + 1) for e in nested], ndim - depth + level)

    return build(arrays, 0)


# -- splitting --------------------------------------------------------------------------------


def _split(x: Tracer, points: list[int], axis: int) -> list[Tracer]:
    n = x.type.shape[axis]
    bounds = [0, *points, n]
    parts = []
    for a, b in itertools.pairwise(bounds):
        key = [slice(None)] * axis + [slice(a, b)]
        parts.append(x[tuple(key)])
    return parts


@implements(np.array_split)
def array_split(ary: Any, indices_or_sections: Any, axis: Any = 0) -> list[Tracer]:
    x = as_array(ary)
    k = axis_of(axis, x.type.ndim)
    if isinstance(indices_or_sections, (list, tuple, np.ndarray)):
        return _split(x, [int(i) for i in indices_or_sections], k)
    sections = int_argument(indices_or_sections, "the number of sections")
    if sections <= 0:
        raise fail(TapecValueError, "number sections must be larger than 0.")
    each, extra = divmod(x.type.shape[k], sections)
    sizes = [each + 1] * extra + [each] * (sections - extra)
    return _split(x, list(np.cumsum(sizes)[:-1]), k)


@implements(np.split)
def split(ary: Any, indices_or_sections: Any, axis: Any = 0) -> list[Tracer]:
    x = as_array(ary)
    if not isinstance(indices_or_sections, (list, tuple, np.ndarray)):
        n = x.type.shape[axis_of(axis, x.type.ndim)]
        if n % int_argument(indices_or_sections, "the number of sections"):
            raise fail(TapecValueError, "array split does not result in an equal division")
    return array_split(x, indices_or_sections, axis)


@implements(np.hsplit)
def hsplit(ary: Any, indices_or_sections: Any) -> list[Tracer]:
    x = as_array(ary)
    return split(x, indices_or_sections, 1 if x.type.ndim > 1 else 0)


@implements(np.vsplit)
def vsplit(ary: Any, indices_or_sections: Any) -> list[Tracer]:
    return split(ary, indices_or_sections, 0)


@implements(np.dsplit)
def dsplit(ary: Any, indices_or_sections: Any) -> list[Tracer]:
    return split(ary, indices_or_sections, 2)


@implements("unstack")
def unstack(x: Any, /, *, axis: Any = 0) -> tuple[Tracer, ...]:
    return tuple(moveaxis(x, axis, 0))


# -- repeating, shifting ------------------------------------------------------------------------


@implements(np.tile)
def tile(a: Any, reps: Any) -> Tracer:
    x = as_array(a)
    counts = shape_argument(reps)
    n = max(x.type.ndim, len(counts))
    counts = (1,) * (n - len(counts)) + counts
    shape = (1,) * (n - x.type.ndim) + x.type.shape
    apart = [m for pair in zip((1,) * n, shape) for m in pair]
    wide = [m for pair in zip(counts, shape) for m in pair]
    spread = p.broadcast_to(p.reshape(x, apart), wide)
    return p.reshape(spread, [c * m for c, m in zip(counts, shape)])


@implements(np.repeat)
def repeat(a: Any, repeats: Any, axis: Any = None) -> Tracer:
    x = as_array(a)
    if axis is None:
        x, axis = p.reshape(x, (x.type.size,)), 0
    k = axis_of(axis, x.type.ndim)
    shape = x.type.shape
    if isinstance(repeats, (list, tuple, np.ndarray, Tracer)) and np.size(repeats) != 1:
        counts = fixed_integers(repeats, "the same repeats") if isinstance(
            repeats, (np.ndarray, Tracer)
        ) else np.asarray(repeats)  # fmt: skip
        where = np.repeat(np.arange(shape[k]), counts)
        return gather_axis(x, where, k)
    if isinstance(repeats, (list, tuple, np.ndarray)):
        repeats = int(np.asarray(repeats).reshape(()))
    count = int_argument(repeats, "repeats")
    apart = (*shape[: k + 1], 1, *shape[k + 1 :])
    wide = (*shape[: k + 1], count, *shape[k + 1 :])
    spread = p.broadcast_to(p.reshape(x, apart), wide)
    return p.reshape(spread, (*shape[:k], shape[k] * count, *shape[k + 1 :]))


def gather_axis(x: Tracer, where: np.ndarray[Any, Any], axis: int) -> Tracer:
    """``x.take(where, axis)`` for fixed, valid positions."""
    where = where.astype(np.int64)
    picked = p.gather(x, [x.tape.fixed(where)], [axis])  # the index axis comes first
    order = [*range(1, axis + 1), 0, *range(axis + 1, x.type.ndim)]
    return p.transpose(picked, order)


@implements(np.roll)
def roll(a: Any, shift: Any, axis: Any = None) -> Tracer:
    x = as_array(a)
    if axis is None:
        return p.reshape(roll(p.reshape(x, (x.type.size,)), shift, 0), x.type.shape)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    shifts = shift if isinstance(shift, (tuple, list, np.ndarray)) else (shift,)
    if len(shifts) == 1:
        shifts = tuple(shifts) * len(axes)
    elif len(axes) == 1:
        axes = tuple(axes) * len(shifts)
    for s, k in zip(shifts, axes):
        k = axis_of(k, x.type.ndim)
        n = x.type.shape[k]
        if n:
            cut = int_argument(s, "shift") % n
            if cut:
                head, tail = _split(x, [n - cut], k)
                x = p.concat([tail, head], k)
    return x.copy() if x is a else x


@implements(np.flip)
def flip(m: Any, axis: Any = None) -> Tracer:
    x = as_array(m)
    axes = axes_of(axis, x.type.ndim)
    key = tuple(slice(None, None, -1) if k in axes else slice(None) for k in range(x.type.ndim))
    return x[key]  # type: ignore[no-any-return]


@implements(np.fliplr)
def fliplr(m: Any) -> Tracer:
    return flip(m, 1)


@implements(np.flipud)
def flipud(m: Any) -> Tracer:
    return flip(m, 0)


@implements(np.rot90)
def rot90(m: Any, k: Any = 1, axes: Any = (0, 1)) -> Tracer:
    x = as_array(m)
    i, j = axes_of(tuple(axes), x.type.ndim)
    k = int_argument(k, "k") % 4
    if k == 0:
        return x.copy()
    if k == 2:
        return flip(x, (i, j))
    perm = list(range(x.type.ndim))
    perm[i], perm[j] = j, i
    return transpose(flip(x, j), perm) if k == 1 else flip(transpose(x, perm), j)


@implements(np.delete)
def delete(arr: Any, obj: Any, axis: Any = None) -> Tracer:
    x = as_array(arr)
    if axis is None:
        x, axis = p.reshape(x, (x.type.size,)), 0
    k = axis_of(axis, x.type.ndim)
    return gather_axis(x, np.delete(np.arange(x.type.shape[k]), obj), k)


# -- triangles, diagonals -------------------------------------------------------------------------


def _triangle(m: Any, k: Any, op: str) -> Tracer:
    x = as_array(m)
    if x.type.ndim == 1:
        x = p.broadcast_to(x, (x.type.size, x.type.size))
    shape = x.type.shape[-2:]
    rows, columns = p.iota(x.tape, shape, 0), p.iota(x.tape, shape, 1)
    inside = binary(op, columns, binary("add", rows, int_argument(k, "k")))
    return select(inside, x, p.full(x.tape, (), 0, x.type.dtype))


@implements(np.triu)
def triu(m: Any, k: Any = 0) -> Tracer:
    return _triangle(m, k, "ge")


@implements(np.tril)
def tril(m: Any, k: Any = 0) -> Tracer:
    return _triangle(m, k, "le")


@implements(np.diagonal)
def diagonal(a: Any, offset: Any = 0, axis1: Any = 0, axis2: Any = 1) -> Tracer:
    x = as_array(a)
    if x.type.ndim < 2:
        raise fail(TapecValueError, "diag requires an array of at least two dimensions")
    i, j = axes_of((axis1, axis2), x.type.ndim)
    x = moved_last(x, (i, j))
    *lead, rows, columns = x.type.shape
    offset = int_argument(offset, "offset")
    top, left = max(-offset, 0), max(offset, 0)
    n = max(min(rows - top, columns - left), 0)
    zeros, ones = [0] * len(lead), [1] * len(lead)
    if n == 0:
        return p.full(x.tape, (*lead, 0), 0, x.type.dtype)
    square = p.slice_(x, [*zeros, top, left], [*lead, n, n])
    line = p.reshape(square, (*lead, n * n))
    return p.slice_(line, [*zeros, 0], [*lead, n], [*ones, n + 1])


@implements(np.diag)
def diag(v: Any, k: Any = 0) -> Tracer:
    x = as_array(v)
    k = int_argument(k, "k")
    if x.type.ndim == 2:
        return diagonal(x, k)
    if x.type.ndim != 1:
        raise fail(TapecValueError, "Input must be 1- or 2-d.")
    n = x.type.size
    m = n + abs(k)
    if n == 0:
        return p.full(x.tape, (m, m), 0, x.type.dtype)
    start = k if k > 0 else -k * m
    return p.reshape(p.place([x], (m * m,), [((start,), (m + 1,))]), (m, m))


@implements(np.diagflat)
def diagflat(v: Any, k: Any = 0) -> Tracer:
    return diag(ravel(v), k)


@implements(np.trace)
def trace(a: Any, offset: Any = 0, axis1: Any = 0, axis2: Any = 1, dtype: Any = None) -> Tracer:
    line = diagonal(a, offset, axis1, axis2)
    if dtype is not None or line.type.dtype.kind == "b":
        line = cast(line, I64 if dtype is None else p.to_dtype(dtype))
    return p.reduce("sum", line, (line.type.ndim - 1,))


@implements(getattr(np.linalg, "diagonal", ""))
def matrix_diagonal(x: Any, /, *, offset: Any = 0) -> Tracer:
    return diagonal(x, offset, -2, -1)


@implements(getattr(np.linalg, "trace", ""))
def matrix_trace(x: Any, /, *, offset: Any = 0, dtype: Any = None) -> Tracer:
    return trace(x, offset, -2, -1, dtype)


@implements(np.lib.stride_tricks.sliding_window_view)
def sliding_window_view(
    x: Any, window_shape: Any, axis: Any = None, *, subok: Any = False, writeable: Any = False
) -> Tracer:
    """All windows of a size; the windows' own axes come last."""
    out = as_array(x)
    sizes = shape_argument(window_shape)
    given = range(out.type.ndim) if axis is None else np.atleast_1d(axis).tolist()
    axes = [axis_of(k, out.type.ndim) for k in given]
    if len(sizes) != len(axes):
        raise fail(
            TapecValueError,
            f"sliding_window_view: {len(sizes)} window sizes for {len(axes)} axes",
        )
    for size, k in zip(sizes, axes):
        count = out.type.shape[k] - size + 1
        if size < 0 or count < 1:
            raise fail(TapecValueError, "window shape cannot be larger than input array shape")
        index = np.arange(count)[:, None] + np.arange(size)
        taken = p.gather(out, [out.tape.fixed(index)], (k,))  # windows and their elements in front
        order = [2 + j if j < k else 1 + j for j in range(out.type.ndim)]
        order[k] = 0
        out = p.transpose(taken, [*order, 1])
    return out
