"""Sorting, order statistics, searching, sets.

Sorted values move with the permutation, which has no derivative.  Results whose shape depends
on values (``unique``) are decided by the values now, under a guard.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tapec import primitives as p
from tapec.errors import TapecValueError, UnsupportedError, fail
from tapec.indexing import getitem
from tapec.ir.core import BOOL, I64
from tapec.kinds import common_dtype
from tapec.numpy.reductions import keep, reduced
from tapec.numpy.registry import axes_of, axis_of, implements
from tapec.numpy.shapes import moved_last
from tapec.numpy.ufuncs import real_float
from tapec.primitives import as_array, binary, cast, operands, reshape, select, unary
from tapec.tracer import FUNCTIONS, Tracer
from tapec.writing import fixed_integers

__all__ = ["sorted_with_order"]


def sorted_with_order(x: Tracer, axis: int) -> tuple[Tracer, Tracer]:
    """The sorted values along an axis and the permutation, stable."""
    at = x.tape.push(
        "sort", (x.id,), {"axis": axis}, (x.type, x.type.with_dtype(I64))
    )  # fmt: skip
    return x.tape.handle(at), x.tape.handle(at + 1)


def _line(a: Any, axis: Any) -> tuple[Tracer, int]:
    x = as_array(a)
    if axis is None:
        return reshape(x, (x.type.size,)), 0
    return x, axis_of(axis, x.type.ndim)


@implements(np.sort)
def sort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None,
         descending: bool = False) -> Tracer:  # fmt: skip
    x, k = _line(a, axis)
    return sorted_with_order(x, k)[0]


@implements(np.argsort)
def argsort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None,
            descending: bool = False) -> Tracer:  # fmt: skip
    x, k = _line(a, axis)
    return sorted_with_order(x, k)[1]


@implements(np.partition)
def partition(a: Any, kth: Any, axis: Any = -1, kind: str = "introselect",
              order: Any = None) -> Tracer:  # fmt: skip
    """Wholly sorted, which is one of the results that NumPy may give."""
    return sort(a, axis)


@implements(np.argpartition)
def argpartition(a: Any, kth: Any, axis: Any = -1, kind: str = "introselect",
                 order: Any = None) -> Tracer:  # fmt: skip
    return argsort(a, axis)


@implements(np.lexsort)
def lexsort(keys: Any, axis: Any = -1) -> Tracer:
    """By the last key first: stable sorts from the first key on."""
    rows = operands(*list(keys))
    k = axis_of(axis, rows[0].type.ndim)
    order: Tracer | None = None
    for row in rows:
        here = row if order is None else FUNCTIONS[np.take_along_axis](row, order, k)
        step = sorted_with_order(here, k)[1]
        order = step if order is None else FUNCTIONS[np.take_along_axis](order, step, k)
    assert order is not None
    return order


@implements(np.sort_complex)
def sort_complex(a: Any) -> Any:
    """By real part, then by imaginary part; the result is complex."""
    z = as_array(a)
    if z.type.dtype.kind != "c":
        return sort(z) + 0j
    order = lexsort([z.imag, z.real])
    return FUNCTIONS[np.take_along_axis](z, order, -1)


# -- order statistics -------------------------------------------------------------------------


def _lines(a: Any, axis: Any) -> tuple[Tracer, tuple[int, ...]]:
    """The reduced axes as one last axis."""
    x = as_array(a)
    axes = axes_of(axis, x.type.ndim)
    moved = moved_last(x, axes)
    n = math.prod(x.type.shape[k] for k in axes)
    return reshape(moved, (*moved.type.shape[: x.type.ndim - len(axes)], n)), axes


def _at(x: Tracer, k: int) -> Tracer:
    return getitem(x, (Ellipsis, k))  # type: ignore[no-any-return]


@implements(np.median)
def median(a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
           keepdims: Any = False) -> Tracer:  # fmt: skip
    whole = as_array(a)
    x, axes = _lines(real_float(whole), axis)
    n = x.type.shape[-1]
    if n == 0:
        return keep(whole, p.full(x.tape, x.type.shape[:-1], np.nan, x.type.dtype), axes, keepdims)
    line = sorted_with_order(x, x.type.ndim - 1)[0]
    middle = _at(line, n // 2)
    if n % 2 == 0:
        middle = binary("mul", binary("add", _at(line, n // 2 - 1), middle), 0.5)
    last = _at(line, n - 1)  # NaN stands last
    result = select(unary("isnan", last), np.nan, middle)
    return keep(whole, result, axes, keepdims)


_VIRTUAL: dict[str, tuple[float, float]] = {
    "linear": (1.0, 1.0), "weibull": (0.0, 0.0), "hazen": (0.5, 0.5),
    "interpolated_inverted_cdf": (0.0, 1.0), "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
}  # fmt: skip


def _places(q: float, n: int, method: str) -> tuple[int, int, float]:
    """The two elements between which a quantile lies, and the weight of the second."""
    if method in _VIRTUAL:
        alpha, beta = _VIRTUAL[method]
        place = n * q + (alpha + q * (1 - alpha - beta)) - 1
    elif method in ("lower", "higher", "nearest", "midpoint"):
        place = (n - 1) * q
    else:
        if method not in ("inverted_cdf", "averaged_inverted_cdf", "closest_observation"):
            raise fail(TapecValueError, f"{method!r} is not a valid method for quantiles")
        scaled = n * q - (0.5 if method == "closest_observation" else 0.0)
        whole = math.floor(scaled)
        exact = scaled == whole
        if method == "inverted_cdf":
            k = whole - 1 if exact else whole
            k = min(max(k, 0), n - 1)
            return k, k, 0.0
        if method == "averaged_inverted_cdf":
            low = min(max(whole - 1 if exact else whole, 0), n - 1)
            high = min(max(whole, 0), n - 1)
            return low, high, 0.5 if exact else 1.0
        k = whole if exact and whole % 2 == 0 else whole + 1
        k = min(max(k - 1, 0), n - 1)
        return k, k, 0.0
    if method == "lower":
        place = math.floor(place)
    elif method == "higher":
        place = math.ceil(place)
    elif method == "nearest":
        place = round(place)
    elif method == "midpoint":
        place = 0.5 * (math.floor(place) + math.ceil(place))
    place = min(max(place, 0.0), n - 1.0)
    low = math.floor(place)
    return low, min(low + 1, n - 1), place - low


def _lerp(a: Tracer, b: Tracer, t: Any) -> Tracer:
    """a + t (b - a), from the nearer end, as NumPy."""
    gap = binary("sub", b, a)
    near = binary("add", a, binary("mul", gap, t))
    far = binary(
        "sub", b, binary("mul", gap, binary("sub", 1, t) if isinstance(t, Tracer) else 1 - t)
    )
    if isinstance(t, Tracer):
        return select(binary("ge", t, 0.5), far, near)
    return far if t >= 0.5 else near


def _quantile(a: Any, q: Any, axis: Any, method: str, keepdims: Any, scale: float,
              skip_nan: bool = False, weights: Any = None) -> Tracer:  # fmt: skip
    if weights is not None:
        raise fail(UnsupportedError, "quantiles with weights= are not supported on traced values")
    whole = as_array(a) if not isinstance(q, Tracer) else operands(a, q)[0]
    x, axes = _lines(real_float(whole), axis)
    n = x.type.shape[-1]
    line = sorted_with_order(x, x.type.ndim - 1)[0]
    if isinstance(q, Tracer) or skip_nan:
        return _traced_quantile(whole, line, q, axes, method, keepdims, scale, skip_nan)
    levels = np.asarray(q, float) / scale
    if ((levels < 0) | (levels > 1)).any():
        what = "Percentiles must be in the range [0, 100]" if scale == 100 else (
            "Quantiles must be in the range [0, 1]"
        )  # fmt: skip
        raise fail(TapecValueError, what)
    if n == 0:
        raise fail(TapecValueError, "quantile of an empty axis")
    missing = unary("isnan", _at(line, n - 1))
    results = []
    for level in levels.reshape(-1).tolist():
        low, high, t = _places(level, n, method)
        value = (
            _at(line, low) if low == high or t == 0 else _lerp(_at(line, low), _at(line, high), t)
        )
        results.append(keep(whole, select(missing, np.nan, value), axes, keepdims))
    if levels.ndim == 0:
        return results[0]
    stacked = FUNCTIONS[np.stack](results, axis=0)
    return reshape(stacked, (*levels.shape, *stacked.type.shape[1:]))


def _traced_quantile(whole: Tracer, line: Tracer, q: Any, axes: tuple[int, ...], method: str,
                     keepdims: Any, scale: float, skip_nan: bool) -> Tracer:  # fmt: skip
    """Traced levels, or a number of elements that depends on values: linear interpolation at
    computed places, with a derivative by the level."""
    if method not in _VIRTUAL:
        raise fail(UnsupportedError, f"this quantile with method={method!r} is not supported")
    alpha, beta = _VIRTUAL[method]
    level = binary("div", real_float(operands(line, q)[1]), scale)
    n: Any = float(line.type.shape[-1])
    lead = line.type.shape[:-1]
    shape = (*level.type.shape, *lead)
    if skip_nan:
        there = unary("not", unary("isnan", line))
        n = reduced("sum", cast(there, line.type.dtype), -1, False)
    level = reshape(level, (*level.type.shape, *([1] * len(lead))))
    place = binary("add", binary("mul", n, level), binary(
        "sub", binary("add", alpha, binary("mul", level, 1 - alpha - beta)), 1.0
    ))  # fmt: skip
    top: Any = n - 1.0
    place = binary("max", binary("min", place, top), 0.0)
    low = unary("floor", place)
    t = p.broadcast_to(binary("sub", place, low), shape)
    first = cast(p.broadcast_to(low, shape), I64)
    limit = cast(p.broadcast_to(as_array(top) if isinstance(top, Tracer) else (
        p.full(line.tape, (), top, line.type.dtype)), shape), I64)  # fmt: skip
    first = binary("max", binary("min", first, limit), 0)
    second = binary("max", binary("min", binary("add", first, 1), limit), 0)
    indices = [p.broadcast_to(
        reshape(p.iota(line.tape, (m,), 0), [m if d == k else 1 for d in range(len(lead))]), shape
    ) for k, m in enumerate(lead)]  # fmt: skip
    every = tuple(range(line.type.ndim))
    values = [p.gather(line, [*indices, at], every) for at in (first, second)]
    if skip_nan:
        result = _lerp(values[0], select(unary("isnan", values[1]), values[0], values[1]), t)
    else:
        result = select(unary("isnan", _at(line, -1)), np.nan, _lerp(values[0], values[1], t))
    if not keepdims or keepdims is np._NoValue:
        return result
    kept = [1 if k in axes else m for k, m in enumerate(whole.type.shape)]
    return reshape(result, (*result.type.shape[: result.type.ndim - len(lead)], *kept))


def _register(function: Any, scale: float, skip_nan: bool) -> None:
    def rule(a: Any, q: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
             method: str = "linear", keepdims: Any = False, *,
             weights: Any = None) -> Tracer:  # fmt: skip
        return _quantile(a, q, axis, method, keepdims, scale, skip_nan, weights)

    FUNCTIONS[function] = rule


_register(np.quantile, 1.0, False)
_register(np.percentile, 100.0, False)
_register(np.nanquantile, 1.0, True)
_register(np.nanpercentile, 100.0, True)


@implements(np.nanmedian)
def nanmedian(a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False,
              keepdims: Any = False) -> Tracer:  # fmt: skip
    return _quantile(a, 0.5, axis, "linear", keepdims, 1.0, True)


# -- searching --------------------------------------------------------------------------------


@implements(np.searchsorted)
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Tracer:
    """How many elements of the sorted ``a`` are smaller (left) or not larger (right)."""
    x, y = operands(a, v)
    if sorter is not None:
        x = FUNCTIONS[np.take](x, sorter)
    common = common_dtype([x.kind, y.kind])
    if common is BOOL:
        common = I64
    if side not in ("left", "right"):
        raise fail(TapecValueError, f"search side must be 'left' or 'right' (got {side!r})")
    return p.emit("searchsorted", (cast(x, common), cast(y, common)), {"right": side == "right"})


@implements(np.digitize)
def digitize(x: Any, bins: Any, right: bool = False) -> Tracer:
    """Increasing or decreasing bins (decided by their values now, if these are known)."""
    table = bins
    increasing = True
    if not isinstance(bins, Tracer):
        plain = np.asarray(bins)
        increasing = plain.size < 2 or bool(plain[-1] >= plain[0])
    if increasing:
        return searchsorted(table, x, "left" if right else "right")
    count = searchsorted(np.asarray(bins)[::-1].copy(), x, "right" if right else "left")
    return binary("sub", np.size(bins), count)


# -- sets -------------------------------------------------------------------------------------


def _groups(x: Tracer) -> tuple[Any, Any, Any, Any]:
    """First index, inverse and counts of the distinct values now, guarded by the order of the
    elements and by which neighbours are equal; with the distinct values."""
    flat = reshape(x, (x.type.size,))
    line, order = sorted_with_order(flat, 0)
    first = fixed_integers(order, "the same order")
    same = np.zeros(0, bool)
    if flat.type.size > 1:
        equal = binary("eq", getitem(line, slice(1, None)), getitem(line, slice(None, -1)))
        same = np.array(equal.concrete(), bool)
        agreed = binary("eq", equal, x.tape.fixed(same))
        x.tape.guard(p.reduce("all", agreed, [0]), True, "the same elements are equal")
    starts = np.concatenate([[True], ~same]) if flat.type.size else np.zeros(0, bool)
    number = np.cumsum(starts) - 1
    inverse = np.empty(flat.type.size, np.int64)
    inverse[first] = number
    heads = first[starts]
    counts = np.bincount(number, minlength=heads.size) if heads.size else np.zeros(0, np.int64)
    values = p.gather(flat, [x.tape.fixed(heads.astype(np.int64))], [0])
    return values, heads, inverse, counts


@implements(np.unique)
def unique(ar: Any, return_index: bool = False, return_inverse: bool = False,
           return_counts: bool = False, axis: Any = None, *, equal_nan: bool = True,
           sorted: bool = True) -> Any:  # fmt: skip
    """The distinct values, sorted; which they are is decided by the values now."""
    x = as_array(ar)
    if axis is not None and x.type.ndim > 1:
        raise fail(UnsupportedError, "unique: axis= is not supported on traced values")
    values, heads, inverse, counts = _groups(x)
    wanted = [(True, values), (return_index, heads),
              (return_inverse, inverse.reshape(x.type.shape)), (return_counts, counts)]  # fmt: skip
    results = [v for yes, v in wanted if yes]
    return results[0] if len(results) == 1 else tuple(results)


if hasattr(np, "unique_values"):
    FUNCTIONS[np.unique_values] = lambda x: unique(x)
    FUNCTIONS[np.unique_counts] = lambda x: _named("UniqueCountsResult", unique(
        x, return_counts=True))  # fmt: skip
    FUNCTIONS[np.unique_inverse] = lambda x: _named("UniqueInverseResult", unique(
        x, return_inverse=True))  # fmt: skip
    FUNCTIONS[np.unique_all] = lambda x: _named("UniqueAllResult", unique(
        x, return_index=True, return_inverse=True, return_counts=True))  # fmt: skip


def _named(name: str, parts: Any) -> Any:
    module: Any = __import__("numpy.lib._arraysetops_impl", fromlist=[name])
    kind: Callable[..., Any] = getattr(module, name, lambda *xs: xs)
    return kind(*parts)


@implements(np.isin, "in1d")
def isin(element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False,
         *, kind: Any = None) -> Tracer:  # fmt: skip
    x, y = operands(element, test_elements)
    equal = binary("eq", reshape(x, (*x.type.shape, 1)), reshape(y, (y.type.size,)))
    found = p.reduce("any", equal, [x.type.ndim])
    return unary("not", found) if invert else found


def _set_of(name: str) -> Callable[..., Any]:
    def rule(ar1: Any, ar2: Any, assume_unique: bool = False, **kwargs: Any) -> Any:
        x, y = (reshape(v, (v.type.size,)) for v in operands(ar1, ar2))
        both = FUNCTIONS[np.concatenate]([x, y])
        if name == "union1d":
            return _groups(both)[0]
        values, _, inverse, _ = _groups(both)
        in_x = np.zeros(values.type.size, bool)
        in_y = np.zeros(values.type.size, bool)
        in_x[inverse[: x.type.size]] = True
        in_y[inverse[x.type.size :]] = True
        chosen = {"intersect1d": in_x & in_y, "setdiff1d": in_x & ~in_y, "setxor1d": in_x ^ in_y}
        where = np.flatnonzero(chosen[name]).astype(np.int64)
        return p.gather(values, [values.tape.fixed(where)], [0])

    return rule


for _name in ("union1d", "intersect1d", "setdiff1d", "setxor1d"):
    FUNCTIONS[getattr(np, _name)] = _set_of(_name)
