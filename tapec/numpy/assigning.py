"""Functions that write into arrays, insert, choose by index, or apply Python functions.

Functions that NumPy defines as in-place (``put``, ``place``, ``copyto``, …) overwrite the traced
array that they are given; a plain NumPy array cannot take traced values.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapec import primitives as p
from tapec.errors import (
    ConversionError,
    TapecIndexError,
    TapecValueError,
    UnsupportedError,
    fail,
    writing_into_plain_array,
)
from tapec.ir.core import I64
from tapec.kinds import broadcast_shapes, common_dtype
from tapec.numpy.choosing import nonzero, take
from tapec.numpy.registry import axis_of, implements, int_argument, shape_argument
from tapec.numpy.shapes import concatenate, gather_axis, moveaxis
from tapec.numpy.ufuncs import truth
from tapec.primitives import as_array, binary, cast, operands, reshape, select
from tapec.tape import as_tracer, is_traced
from tapec.tracer import FUNCTIONS, Tracer
from tapec.writing import fixed_integers, scatter_flat, setitem

__all__: list[str] = []


def _target(a: Any, name: str) -> Tracer:
    if not isinstance(a, Tracer):
        raise writing_into_plain_array(
            fail(
                ConversionError,
                f"np.{name} writes a traced value into a plain NumPy array",
                "make the array with tapec.numpy.zeros",
            )
        )
    return a


def _plain(x: Any, what: str) -> Any:
    """Index values as a NumPy array: traced ones are guarded to stay the same."""
    return fixed_integers(x, what) if is_traced(x) else np.asarray(x)


# -- in place -----------------------------------------------------------------------------------


@implements(np.put)
def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    x = _target(a, "put")
    where = _plain(ind, "the same indices").astype(np.int64).reshape(-1)
    n = x.type.size
    if mode == "wrap":
        where = where % n
    elif mode == "clip":
        where = np.clip(where, 0, n - 1)
    elif ((where < -n) | (where >= n)).any():
        raise fail(TapecIndexError, f"index out of bounds for axis 0 with size {n}")
    where = where % n if n else where
    values = as_tracer(x.tape, v)
    values = reshape(values, (values.type.size,))
    repeats = np.arange(where.size) % max(values.type.size, 1)
    if values.type.size and where.size:
        flat = setitem(reshape(x, (n,)), where, p.gather(values, [x.tape.fixed(repeats)], [0]))
        x.overwrite(reshape(flat, x.type.shape))


@implements(np.put_along_axis)
def put_along_axis(arr: Any, indices: Any, values: Any, axis: Any) -> None:
    x = _target(arr, "put_along_axis")
    index = _plain(indices, "the same indices")
    if axis is None:
        flat = setitem(reshape(x, (x.type.size,)), index.reshape(-1), values)
        x.overwrite(reshape(flat, x.type.shape))
        return
    k = axis_of(axis, x.type.ndim)
    grid = np.ogrid[tuple(slice(n) for n in index.shape)]
    x[tuple(index if d == k else grid[d] for d in range(x.type.ndim))] = values


@implements(np.place)
def place(arr: Any, mask: Any, vals: Any) -> None:
    x = _target(arr, "place")
    hits = np.flatnonzero(_mask_now(x, mask))
    values = as_tracer(x.tape, vals)
    values = reshape(values, (values.type.size,))
    if not hits.size:
        return
    if not values.type.size:
        raise fail(TapecValueError, "Cannot insert from an empty array!")
    chosen = p.gather(values, [x.tape.fixed(np.arange(hits.size) % values.type.size)], [0])
    flat = scatter_flat(reshape(x, (x.type.size,)), hits, cast(chosen, x.type.dtype))
    x.overwrite(reshape(flat, x.type.shape))


@implements(np.putmask)
def putmask(a: Any, mask: Any, values: Any) -> None:
    """Repeats the values by the position in the array (unlike ``place``)."""
    x = _target(a, "putmask")
    new = as_tracer(x.tape, values)
    new = reshape(new, (new.type.size,))
    places = x.tape.fixed(np.arange(x.type.size) % max(new.type.size, 1))
    spread = reshape(p.gather(new, [places], [0]), x.type.shape)
    x.overwrite(cast(select(mask, spread, x), x.type.dtype))


@implements(np.copyto)
def copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    x = _target(dst, "copyto")
    new = p.broadcast_to(as_tracer(x.tape, src), x.type.shape)
    x.overwrite(new if where is True else cast(select(where, new, x), x.type.dtype))


@implements(np.fill_diagonal)
def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    x = _target(a, "fill_diagonal")
    shape = x.type.shape
    if len(shape) < 2:
        raise fail(TapecValueError, "array must be at least 2-d")
    if len(shape) == 2:
        step, end = shape[1] + 1, None if wrap else shape[1] * shape[1]
    else:
        if len(set(shape)) != 1:
            raise fail(TapecValueError, "All dimensions of input must be of equal length")
        step, end = 1 + int(np.cumprod(shape[:-1]).sum()), None
    hits = np.arange(x.type.size)[:end:step]
    values = as_tracer(x.tape, val)
    values = reshape(values, (values.type.size,))
    chosen = p.gather(values, [x.tape.fixed(np.arange(hits.size) % values.type.size)], [0])
    flat = scatter_flat(reshape(x, (x.type.size,)), hits, cast(chosen, x.type.dtype))
    x.overwrite(reshape(flat, shape))


# -- choosing -----------------------------------------------------------------------------------


@implements(np.choose)
def choose(a: Any, choices: Any, out: None = None, mode: str = "raise") -> Tracer:
    parts = list(choices)
    index, *xs = operands(a, *parts)
    n = len(xs)
    index = cast(index, I64)
    if mode == "wrap":
        index = binary("mod", index, n)
    elif mode == "clip":
        index = binary("min", binary("max", index, 0), n - 1)
    else:
        now = np.asarray(index.concrete())
        if ((now < 0) | (now >= n)).any():
            raise fail(TapecValueError, "invalid entry in choice array")
        inside = binary("and", binary("ge", index, 0), binary("lt", index, n))
        if inside.type.shape:
            inside = p.reduce("all", inside, range(inside.type.ndim))
        index.tape.guard(inside, True, "entries in the range of choices")
    dtype = common_dtype([x.kind for x in xs])
    shape = broadcast_shapes(index.type.shape, *[x.type.shape for x in xs])
    result: Any = cast(p.broadcast_to(xs[-1], shape), dtype)
    for k in range(n - 2, -1, -1):
        result = select(binary("eq", index, k), cast(xs[k], dtype), result)
    return result  # type: ignore[no-any-return]


def _mask_now(x: Tracer, mask: Any) -> Any:
    """The mask's value now, guarded."""
    if not is_traced(mask):
        return np.asarray(mask, bool)
    traced = truth(as_tracer(x.tape, mask))
    now = np.array(traced.concrete(), bool)
    same = binary("eq", traced, x.tape.fixed(now) if now.ndim else bool(now))
    if now.ndim:
        same = p.reduce("all", same, range(now.ndim))
    x.tape.guard(same, True, "the same mask")
    return now


@implements(np.extract)
def extract(condition: Any, arr: Any) -> Any:
    x = operands(arr, *([condition] if is_traced(condition) else []))[0]
    hits = np.flatnonzero(_mask_now(x, condition))
    return take(reshape(x, (x.type.size,)), hits.tolist())


@implements(np.ix_)
def ix_(*args: Any) -> Any:
    out: list[Any] = []
    for k, a in enumerate(args):
        if is_traced(a) and as_array(a).type.dtype.kind == "b":
            a = nonzero(a)[0]
        shape = [1] * len(args)
        if is_traced(a):
            x = as_array(a)
            shape[k] = x.type.size
            out.append(reshape(x, shape))
        else:
            plain = np.asarray(a)
            plain = np.flatnonzero(plain) if plain.dtype == bool else plain
            shape[k] = plain.size
            out.append(plain.reshape(shape).astype(np.intp))
    return tuple(out)


# -- inserting, resizing --------------------------------------------------------------------------


@implements(np.insert)
def insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> Tracer:
    x, new = operands(arr, values)
    if axis is None:
        x, axis = reshape(x, (x.type.size,)), 0
    k = axis_of(axis, x.type.ndim)
    n = x.type.shape[k]
    new = cast(new, x.type.dtype)
    scalar = not isinstance(obj, slice) and np.ndim(_plain(obj, "the same index")) == 0
    where = np.arange(n)[obj] if isinstance(obj, slice) else _plain(obj, "the same indices")
    if where.dtype == bool:
        where = np.flatnonzero(where)
    where = np.atleast_1d(where).astype(np.int64)
    if ((where < -n) | (where > n)).any():
        raise fail(TapecIndexError, f"index {where} is out of bounds for axis {k} with size {n}")
    where = np.where(where < 0, where + n, where)
    if scalar:
        if new.type.ndim == 0:
            count = 1
        else:
            new = p.reshape(new, (1,) * (x.type.ndim - new.type.ndim) + new.type.shape)
            new = moveaxis(new, 0, k)
            count = new.type.shape[k]
        where = np.repeat(where, count)
    count = where.size
    shape = [count if d == k else m for d, m in enumerate(x.type.shape)]
    new = p.broadcast_to(new, shape)
    both = concatenate([x, new], axis=k)
    order = np.argsort(where, kind="stable")
    slots = np.empty(n + count, np.int64)
    at = where[order] + np.arange(count)
    taken = np.zeros(n + count, bool)
    taken[at] = True
    slots[at] = n + order
    slots[~taken] = np.arange(n)
    return gather_axis(both, slots, k)


@implements(np.resize)
def resize(a: Any, new_shape: Any) -> Tracer:
    x = as_array(a)
    shape = shape_argument(new_shape)
    size = math.prod(shape)
    flat = reshape(x, (x.type.size,))
    if not x.type.size or not size:
        return p.full(x.tape, shape, 0, x.type.dtype)
    return reshape(gather_axis(flat, np.arange(size) % x.type.size, 0), shape)


@implements(np.trim_zeros)
def trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Any:
    """Decided by which elements are 0 now."""
    x = as_array(filt)
    hits = nonzero(x)[0]
    first = int(hits[0]) if hits.size and "f" in trim.lower() else 0
    last = int(hits[-1]) + 1 if hits.size and "b" in trim.lower() else x.type.size
    if not hits.size:
        return x[:0]
    return x[first:last]


# -- triangles ------------------------------------------------------------------------------------


@implements(np.tril_indices_from)
def tril_indices_from(arr: Any, k: Any = 0) -> Any:
    shape = as_array(arr).type.shape
    return np.tril_indices(shape[-2], k, shape[-1])


@implements(np.triu_indices_from)
def triu_indices_from(arr: Any, k: Any = 0) -> Any:
    shape = as_array(arr).type.shape
    return np.triu_indices(shape[-2], k, shape[-1])


@implements(np.diag_indices_from)
def diag_indices_from(arr: Any) -> Any:
    shape = as_array(arr).type.shape
    if len(set(shape)) != 1 or len(shape) < 2:
        raise fail(TapecValueError, "All dimensions of input must be of equal length")
    return np.diag_indices(shape[0], len(shape))


# -- indices as numbers ---------------------------------------------------------------------------


@implements(np.ravel_multi_index)
def ravel_multi_index(multi_index: Any, dims: Any, mode: Any = "raise", order: str = "C") -> Any:
    xs = operands(*list(multi_index))
    dims = shape_argument(dims)
    stride, total = 1, None
    pairs = list(zip(xs, dims))
    for x, n in reversed(pairs) if order == "C" else pairs:
        if mode == "wrap":
            x = binary("mod", x, n)
        elif mode == "clip":
            x = binary("min", binary("max", x, 0), n - 1)
        term = binary("mul", x, stride)
        total = term if total is None else binary("add", total, term)
        stride *= n
    return total


@implements(np.unravel_index)
def unravel_index(indices: Any, shape: Any, order: str = "C") -> Any:
    rest: Any = as_array(indices)
    dims = shape_argument(shape)
    out: list[Any] = []
    for n in reversed(dims) if order == "C" else dims:
        out.append(binary("mod", rest, n))
        rest = binary("floor_div", rest, n)
    return tuple(reversed(out)) if order == "C" else tuple(out)


# -- Python functions ---------------------------------------------------------------------------


@implements(np.apply_along_axis)
def apply_along_axis(func1d: Any, axis: Any, arr: Any, *args: Any, **kwargs: Any) -> Any:
    x = as_array(arr)
    k = axis_of(axis, x.type.ndim)
    lead = moveaxis(x, k, -1)
    shape = lead.type.shape[:-1]
    if math.prod(shape) > 4096:
        raise fail(
            UnsupportedError,
            f"apply_along_axis would call the function {math.prod(shape)} times",
            "write it with whole-array operations, or tapec.vmap",
        )
    results = [func1d(lead[index], *args, **kwargs) for index in np.ndindex(*shape)]
    tracers = [as_tracer(x.tape, r) for r in results]
    inner = tracers[0].type.shape
    stacked = FUNCTIONS[np.stack](tracers, axis=0)
    whole = reshape(stacked, (*shape, *inner))
    order = list(range(k)) + list(range(len(shape), len(shape) + len(inner)))
    order += list(range(k, len(shape)))
    return p.transpose(whole, order)


@implements(np.apply_over_axes)
def apply_over_axes(func: Any, a: Any, axes: Any) -> Any:
    x = as_array(a)
    for axis in axes if isinstance(axes, (tuple, list)) else (axes,):
        k = axis_of(axis, x.type.ndim)
        result = func(x, k)
        if result.ndim != x.ndim:
            result = FUNCTIONS[np.expand_dims](result, k)
        x = result
    return x


# -- kinds ----------------------------------------------------------------------------------------


@implements(np.real_if_close)
def real_if_close(a: Any, tol: Any = 100) -> Tracer:
    return as_array(a)


@implements(np.angle)
def angle(z: Any, deg: bool = False) -> Tracer:
    """Of real numbers: 0, or π where negative."""
    x = as_array(z)
    return select(binary("lt", x, 0), 180.0 if deg else math.pi, 0.0)


@implements("astype")
def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tracer:
    return as_array(x).astype(dtype)


@implements(np.require)
def require(a: Any, dtype: Any = None, requirements: Any = None, *, like: Any = None) -> Tracer:
    x = as_array(a)
    return x if dtype is None else x.astype(dtype)


FUNCTIONS[np.common_type] = lambda *arrays: np.common_type(
    *[np.zeros(0, a.dtype) if isinstance(a, Tracer) else a for a in arrays]
)
FUNCTIONS[np.can_cast] = lambda frm, to, casting="safe": np.can_cast(frm.dtype, to, casting)
FUNCTIONS[np.iterable] = lambda y: bool(as_array(y).type.ndim)
FUNCTIONS[np.isfortran] = lambda a: False
FUNCTIONS[np.min_scalar_type] = lambda a: as_array(a).dtype
FUNCTIONS[np.array_repr] = lambda a, *args, **kw: repr(a)
FUNCTIONS[np.array_str] = lambda a, *args, **kw: repr(a)
FUNCTIONS[np.array2string] = lambda a, *args, **kw: repr(a)


@implements(np.einsum_path)
def einsum_path(*operands_: Any, **kwargs: Any) -> Any:
    plain: list[Any] = [np.zeros(x.type.shape) if isinstance(x, Tracer) else x for x in operands_]
    return np.einsum_path(*plain, **kwargs)


@implements(np.geomspace)
def geomspace(start: Any, stop: Any, num: Any = 50, endpoint: bool = True, dtype: Any = None,
              axis: Any = 0) -> Any:  # fmt: skip
    """Powers of the ratio of real limits of one sign."""
    a, b = operands(start, stop)
    n = int_argument(num, "num")
    pieces = max(n - 1 if endpoint else n, 1)
    common = common_dtype([a.kind, b.kind, float])
    a, b = cast(a, common), cast(b, common)
    tail = binary("add", a, b).type.shape
    line = np.arange(n).reshape((n,) + (1,) * len(tail)) / pieces
    ratio = binary("div", b, a)
    result = a * np.power(ratio, line)
    result = result if dtype is None else result.astype(dtype)
    return moveaxis(result, 0, axis) if axis else result


@implements(np.logspace)
def logspace(start: Any, stop: Any, num: Any = 50, endpoint: bool = True, base: Any = 10.0,
             dtype: Any = None, axis: Any = 0) -> Any:  # fmt: skip
    y = FUNCTIONS[np.linspace](start, stop, num, endpoint, axis=axis)
    result = np.power(base, y)
    return result if dtype is None else result.astype(dtype)
