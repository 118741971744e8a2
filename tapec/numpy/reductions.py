"""Sums, products, extrema, statistics, and cumulative forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapec import primitives as p
from tapec.errors import TapecValueError, fail
from tapec.ir.core import BOOL, F64, I32, I64
from tapec.numpy.registry import axes_of, axis_of, implements, int_argument
from tapec.numpy.ufuncs import absolute_square, guarded_sqrt, inexact, truth
from tapec.primitives import as_array, binary, cast, operands, reshape, select, unary
from tapec.tracer import FUNCTIONS, Tracer

__all__ = ["keep", "prefixes", "reduced"]


def keep(x: Tracer, result: Tracer, axes: tuple[int, ...], keepdims: Any) -> Tracer:
    """``result`` of a reduction, with the reduced axes as 1 if they are to be kept."""
    if not keepdims or keepdims is np._NoValue:
        return result
    return reshape(result, [1 if k in axes else n for k, n in enumerate(x.type.shape)])


def reduced(kind: str, x: Tracer, axis: Any, keepdims: Any) -> Tracer:
    axes = axes_of(axis, x.type.ndim)
    return keep(x, p.reduce(kind, x, axes), axes, keepdims)


def _accumulator(x: Tracer, dtype: Any) -> Tracer:
    """Sums and products of small integers and booleans are int64."""
    if dtype is not None:
        return cast(x, p.to_dtype(dtype))
    return cast(x, I64) if x.type.dtype in (BOOL, I32) else x


def _initial(result: Tracer, initial: Any, op: str) -> Tracer:
    return result if initial is np._NoValue or initial is None else binary(op, result, initial)


def _chosen(x: Tracer, where: Any, neutral: Any) -> Tracer:
    """``x`` with the neutral element where the mask is False."""
    return x if where is True or where is np._NoValue else select(where, x, neutral)


def _added(kind: str, op: str, neutral: int) -> Callable[..., Tracer]:
    def rule(a: Any, axis: Any = None, dtype: Any = None, keepdims: Any = False,
             initial: Any = np._NoValue, where: Any = True) -> Tracer:  # fmt: skip
        x = _chosen(_accumulator(as_array(a), dtype), where, neutral)
        return _initial(reduced(kind, x, axis, keepdims), initial, op)

    return rule


FUNCTIONS[np.sum] = _added("sum", "add", 0)
FUNCTIONS[np.prod] = _added("prod", "mul", 1)
sum_ = FUNCTIONS[np.sum]


def _extremum(kind: str, on_bool: str) -> Callable[..., Tracer]:
    def rule(a: Any, axis: Any = None, keepdims: Any = False, initial: Any = np._NoValue,
             where: Any = True) -> Tracer:  # fmt: skip
        x = as_array(a)
        given = initial is not np._NoValue and initial is not None
        if where is not True and where is not np._NoValue:
            if not given:
                raise fail(
                    TapecValueError,
                    f"reduction operation {kind}imum has no identity, so to use a where mask one "
                    "has to specify 'initial'",
                )
            x = select(where, x, initial)
        axes = axes_of(axis, x.type.ndim)
        if given and any(x.type.shape[k] == 0 for k in axes):
            shape = [n for k, n in enumerate(x.type.shape) if k not in axes]
            return keep(x, p.full(x.tape, shape, initial, x.type.dtype), axes, keepdims)
        result = reduced(on_bool if x.type.dtype is BOOL else kind, x, axis, keepdims)
        return _initial(result, initial, kind)

    return rule


FUNCTIONS[np.max] = FUNCTIONS[np.amax] = _extremum("max", "any")
FUNCTIONS[np.min] = FUNCTIONS[np.amin] = _extremum("min", "all")


@implements(np.any)
def any_(a: Any, axis: Any = None, keepdims: Any = False, *, where: Any = True) -> Tracer:
    return reduced("any", _chosen(truth(a), where, False), axis, keepdims)


@implements(np.all)
def all_(a: Any, axis: Any = None, keepdims: Any = False, *, where: Any = True) -> Tracer:
    return reduced("all", _chosen(truth(a), where, True), axis, keepdims)


def _arg(op: str) -> Callable[..., Tracer]:
    def rule(a: Any, axis: Any = None, keepdims: Any = False) -> Tracer:
        x = as_array(a)
        if x.type.dtype is BOOL:
            x = cast(x, I64)
        if axis is None:
            result = p.emit(op, (reshape(x, (x.type.size,)),), {"axis": 0})
            return keep(x, result, tuple(range(x.type.ndim)), keepdims)
        k = axis_of(axis, x.type.ndim)
        return keep(x, p.emit(op, (x,), {"axis": k}), (k,), keepdims)

    return rule


FUNCTIONS[np.argmax] = _arg("argmax")
FUNCTIONS[np.argmin] = _arg("argmin")


@implements(np.count_nonzero)
def count_nonzero(a: Any, axis: Any = None, *, keepdims: Any = False) -> Tracer:
    return reduced("sum", cast(truth(a), I64), axis, keepdims)


# -- statistics -----------------------------------------------------------------------------


def _count(x: Tracer, axis: Any) -> int:
    n = 1
    for k in axes_of(axis, x.type.ndim):
        n *= x.type.shape[k]
    return n


def _averaged(a: Any, dtype: Any) -> Tracer:
    """Means of integers and booleans are float64."""
    x = as_array(a)
    if dtype is not None:
        return cast(x, p.to_dtype(dtype))
    return x if x.type.dtype.is_inexact else cast(x, F64)


def _total(x: Tracer, axis: Any, keepdims: Any, where: Any) -> Any:
    """How many elements are averaged: a number, or an array under a mask."""
    if where is True or where is np._NoValue:
        return _count(x, axis)
    mask = p.broadcast_to(truth(operands(x, where)[1]), x.type.shape)
    return reduced("sum", cast(mask, x.type.dtype), axis, keepdims)


@implements(np.mean)
def mean(a: Any, axis: Any = None, dtype: Any = None, keepdims: Any = False,
         *, where: Any = True) -> Tracer:  # fmt: skip
    x = _averaged(a, dtype)
    total = reduced("sum", _chosen(x, where, 0), axis, keepdims)
    return binary("div", total, _total(x, axis, keepdims, where))


@implements(np.var)
def var(a: Any, axis: Any = None, dtype: Any = None, ddof: Any = 0, keepdims: Any = False,
        *, where: Any = True, mean: Any = np._NoValue,
        correction: Any = np._NoValue) -> Tracer:  # fmt: skip
    x = _averaged(a, dtype)
    if correction is not np._NoValue:
        ddof = correction
    center = mean
    if mean is np._NoValue:
        center = FUNCTIONS[np.mean](x, axis, keepdims=True, where=where)
    deviation = _chosen(binary("sub", x, center), where, 0)
    total = reduced("sum", absolute_square(deviation), axis, keepdims)
    count = _total(x, axis, keepdims, where)
    if not isinstance(count, Tracer):
        return binary("div", total, max(count - ddof, 0))
    return binary("div", total, binary("max", binary("sub", count, ddof), 0))


@implements(np.std)
def std(a: Any, axis: Any = None, dtype: Any = None, ddof: Any = 0, keepdims: Any = False,
        *, where: Any = True, mean: Any = np._NoValue,
        correction: Any = np._NoValue) -> Tracer:  # fmt: skip
    """The root of ``var``, with derivative 0 for constant data."""
    return guarded_sqrt(
        var(a, axis, dtype, ddof, keepdims, where=where, mean=mean, correction=correction)
    )


@implements(np.average)
def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False,
            *, keepdims: Any = False) -> Any:  # fmt: skip
    if weights is None:
        x = inexact(a)
        result = mean(x, axis, keepdims=keepdims)
        total: Any = p.full(x.tape, result.type.shape, float(_count(x, axis)), result.type.dtype)
    else:
        x, w = operands(a, weights)
        x = inexact(x)
        if w.type.shape != x.type.shape:
            if axis is None:
                raise fail(
                    TapecValueError, "axis must be given when a and weights have different shapes"
                )
            axes = axes_of(axis, x.type.ndim)
            if w.type.shape != tuple(x.type.shape[k] for k in axes):
                raise fail(TapecValueError, "weights do not fit the averaged axes")
            w = reshape(w, [n if k in axes else 1 for k, n in enumerate(x.type.shape)])
            w = p.broadcast_to(w, x.type.shape)
        total = reduced("sum", w, axis, keepdims)
        result = binary("div", reduced("sum", binary("mul", x, w), axis, keepdims), total)
    return (result, total) if returned else result


@implements(np.ptp)
def ptp(a: Any, axis: Any = None, keepdims: Any = False) -> Tracer:
    x = as_array(a)
    return binary("sub", reduced("max", x, axis, keepdims), reduced("min", x, axis, keepdims))


# -- ignoring NaN -----------------------------------------------------------------------------


def _there(x: Tracer, where: Any) -> Tracer:
    """Which elements count."""
    there = unary("not", unary("isnan", x))
    if where is True or where is np._NoValue:
        return there
    return binary("and", there, p.broadcast_to(truth(operands(x, where)[1]), x.type.shape))


def _without_nan(kind: str, op: str, fill: float) -> Callable[..., Tracer]:
    def rule(a: Any, axis: Any = None, dtype: Any = None, keepdims: Any = False,
             initial: Any = np._NoValue, where: Any = True) -> Tracer:  # fmt: skip
        x = as_array(a)
        if x.type.dtype.is_inexact:
            x = select(unary("isnan", x), fill, x)
        x = _chosen(_accumulator(x, dtype), where, fill)
        return _initial(reduced(kind, x, axis, keepdims), initial, op)

    return rule


FUNCTIONS[np.nansum] = _without_nan("sum", "add", 0)
FUNCTIONS[np.nanprod] = _without_nan("prod", "mul", 1)


def _nan_extremum(kind: str, fill: float) -> Callable[..., Tracer]:
    def rule(a: Any, axis: Any = None, keepdims: Any = False, initial: Any = np._NoValue,
             where: Any = True) -> Tracer:  # fmt: skip
        x = as_array(a)
        plain = FUNCTIONS[np.max if kind == "max" else np.min]
        if not x.type.dtype.is_inexact:
            return plain(x, axis, keepdims, initial, where)  # type: ignore[no-any-return]
        there = _there(x, where)
        result = plain(select(there, x, fill), axis, keepdims, initial)
        if initial is not np._NoValue and initial is not None:
            return result  # type: ignore[no-any-return]
        return select(reduced("any", there, axis, keepdims), result, np.nan)

    return rule


FUNCTIONS[np.nanmax] = _nan_extremum("max", -np.inf)
FUNCTIONS[np.nanmin] = _nan_extremum("min", np.inf)


def _nan_arg(function: Any, fill: float) -> Callable[..., Tracer]:
    def rule(a: Any, axis: Any = None, *, keepdims: Any = False) -> Tracer:
        x = as_array(a)
        if x.type.dtype.is_inexact:
            x = select(unary("isnan", x), fill, x)
        return FUNCTIONS[function](x, axis, keepdims=keepdims)  # type: ignore[no-any-return]

    return rule


FUNCTIONS[np.nanargmax] = _nan_arg(np.argmax, -np.inf)
FUNCTIONS[np.nanargmin] = _nan_arg(np.argmin, np.inf)


@implements(np.nanmean)
def nanmean(a: Any, axis: Any = None, dtype: Any = None, keepdims: Any = False,
            *, where: Any = True) -> Tracer:  # fmt: skip
    x = _averaged(a, dtype)
    return FUNCTIONS[np.mean](x, axis, None, keepdims, where=_there(x, where))  # type: ignore[no-any-return]


@implements(np.nanvar)
def nanvar(a: Any, axis: Any = None, dtype: Any = None, ddof: Any = 0, keepdims: Any = False,
           *, where: Any = True, mean: Any = np._NoValue,
        correction: Any = np._NoValue) -> Tracer:  # fmt: skip
    x = _averaged(a, dtype)
    there = _there(x, where)
    ddof = ddof if correction is np._NoValue else correction
    result = var(x, axis, None, ddof, keepdims, where=there, mean=mean)
    enough = binary("gt", reduced("sum", cast(there, F64), axis, keepdims), ddof)
    return select(enough, result, np.nan)


@implements(np.nanstd)
def nanstd(a: Any, axis: Any = None, dtype: Any = None, ddof: Any = 0, keepdims: Any = False,
           *, where: Any = True, mean: Any = np._NoValue,
        correction: Any = np._NoValue) -> Tracer:  # fmt: skip
    return guarded_sqrt(
        nanvar(a, axis, dtype, ddof, keepdims, where=where, mean=mean, correction=correction)
    )


# -- cumulative -------------------------------------------------------------------------------


def _line(a: Any, axis: Any) -> tuple[Tracer, int]:
    x = as_array(a)
    if axis is None:
        return reshape(x, (x.type.size,)), 0
    return x, axis_of(axis, x.type.ndim)


@implements(np.cumsum)
def cumsum(a: Any, axis: Any = None, dtype: Any = None) -> Tracer:
    x, k = _line(a, axis)
    return p.emit("cumsum", (_accumulator(x, dtype),), {"axis": k, "reverse": False})


def prefixes(op: str, x: Tracer, axis: int) -> Tracer:
    """All prefixes under an associative op, in log2(n) steps of whole-array operations."""
    shape = x.type.shape
    n, reach = shape[axis], 1
    while reach < n:
        head = [reach if k == axis else m for k, m in enumerate(shape)]
        rest = [n - reach if k == axis else m for k, m in enumerate(shape)]
        zero = [0] * len(shape)
        late = [reach if k == axis else 0 for k in range(len(shape))]
        joined = binary(op, p.slice_(x, zero, rest), p.slice_(x, late, rest))
        x = p.concat([p.slice_(x, zero, head), joined], axis)
        reach *= 2
    return x


@implements(np.cumprod)
def cumprod(a: Any, axis: Any = None, dtype: Any = None) -> Tracer:
    x, k = _line(a, axis)
    return prefixes("mul", _accumulator(x, dtype), k)


def _nan_cumulative(function: Any, fill: float) -> Callable[..., Tracer]:
    def rule(a: Any, axis: Any = None, dtype: Any = None) -> Tracer:
        x = as_array(a)
        if x.type.dtype.is_inexact:
            x = select(unary("isnan", x), fill, x)
        return FUNCTIONS[function](x, axis, dtype)  # type: ignore[no-any-return]

    return rule


FUNCTIONS[np.nancumsum] = _nan_cumulative(np.cumsum, 0.0)
FUNCTIONS[np.nancumprod] = _nan_cumulative(np.cumprod, 1.0)


def _cumulative(function: Any, first: int) -> Callable[..., Tracer]:
    """The array API's form: the axis is needed for more than one dimension."""

    def rule(x: Any, /, *, axis: Any = None, dtype: Any = None,
             include_initial: bool = False) -> Tracer:  # fmt: skip
        a = as_array(x)
        if axis is None:
            if a.type.ndim != 1:
                raise fail(TapecValueError, "for an array of several dimensions, axis is needed")
            axis = 0
        k = axis_of(axis, a.type.ndim)
        result: Tracer = FUNCTIONS[function](a, k, dtype)
        if not include_initial:
            return result
        shape = [1 if d == k else n for d, n in enumerate(a.type.shape)]
        start = p.full(a.tape, shape, first, result.type.dtype)
        return p.concat([start, result], k)

    return rule


if hasattr(np, "cumulative_sum"):
    FUNCTIONS[np.cumulative_sum] = _cumulative(np.cumsum, 0)
    FUNCTIONS[np.cumulative_prod] = _cumulative(np.cumprod, 1)


@implements(np.diff)
def diff(a: Any, n: Any = 1, axis: Any = -1, prepend: Any = np._NoValue,
         append: Any = np._NoValue) -> Tracer:  # fmt: skip
    x = as_array(a)
    if not x.type.ndim:
        raise fail(TapecValueError, "diff requires input that is at least one dimensional")
    k = axis_of(axis, x.type.ndim)
    pieces = [x]
    for extra, first in ((prepend, True), (append, False)):
        if extra is not np._NoValue:
            e = operands(x, extra)[1]
            if not e.type.ndim:
                one = [1 if m == k else size for m, size in enumerate(x.type.shape)]
                e = p.broadcast_to(cast(e, x.type.dtype), one)
            pieces.insert(0 if first else len(pieces), e)
    if len(pieces) > 1:
        x = FUNCTIONS[np.concatenate](pieces, axis=k)
    op = "ne" if x.type.dtype is BOOL else "sub"
    for _ in range(int_argument(n, "n")):
        shape = x.type.shape
        size = [max(m - 1, 0) if d == k else m for d, m in enumerate(shape)]
        if shape[k] == 0:
            return x
        one = [1 if d == k else 0 for d in range(len(shape))]
        x = binary(op, p.slice_(x, one, size), p.slice_(x, [0] * len(shape), size))
    return x


@implements(np.ediff1d)
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Tracer:
    pieces: list[Any] = [diff(reshape(as_array(ary), (as_array(ary).type.size,)))]
    if to_begin is not None:
        pieces.insert(0, np.ravel(to_begin))
    if to_end is not None:
        pieces.append(np.ravel(to_end))
    return FUNCTIONS[np.concatenate](pieces)  # type: ignore[no-any-return]
