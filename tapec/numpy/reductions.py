"""Sums, products, extrema, statistics, and cumulative forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapec import primitives as p
from tapec.errors import TapecValueError, UnsupportedError, fail
from tapec.ir.core import BOOL, F64, I32, I64
from tapec.numpy.registry import axes_of, axis_of, implements, int_argument, method_of
from tapec.numpy.ufuncs import guarded_sqrt, real_float, truth
from tapec.primitives import as_array, binary, cast, operands, reshape, select, unary
from tapec.tracer import FUNCTIONS, UFUNCS, Tracer

__all__ = ["keep", "reduced"]


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


@implements(np.sum)
def sum_(a: Any, axis: Any = None, dtype: Any = None, keepdims: Any = False,
         initial: Any = np._NoValue) -> Tracer:  # fmt: skip
    x = _accumulator(as_array(a), dtype)
    return _initial(reduced("sum", x, axis, keepdims), initial, "add")


@implements(np.prod)
def prod(a: Any, axis: Any = None, dtype: Any = None, keepdims: Any = False,
         initial: Any = np._NoValue) -> Tracer:  # fmt: skip
    x = _accumulator(as_array(a), dtype)
    return _initial(reduced("prod", x, axis, keepdims), initial, "mul")


def _extremum(kind: str, on_bool: str) -> Callable[..., Tracer]:
    def rule(a: Any, axis: Any = None, keepdims: Any = False, initial: Any = np._NoValue) -> Tracer:
        x = as_array(a)
        if initial is not np._NoValue and any(
            x.type.shape[k] == 0 for k in axes_of(axis, x.type.ndim)
        ):
            axes = axes_of(axis, x.type.ndim)
            shape = [n for k, n in enumerate(x.type.shape) if k not in axes]
            return keep(x, p.full(x.tape, shape, initial, x.type.dtype), axes, keepdims)
        result = reduced(on_bool if x.type.dtype is BOOL else kind, x, axis, keepdims)
        return _initial(result, initial, kind)

    return rule


FUNCTIONS[np.max] = FUNCTIONS[np.amax] = _extremum("max", "any")
FUNCTIONS[np.min] = FUNCTIONS[np.amin] = _extremum("min", "all")


@implements(np.any)
def any_(a: Any, axis: Any = None, keepdims: Any = False) -> Tracer:
    return reduced("any", truth(a), axis, keepdims)


@implements(np.all)
def all_(a: Any, axis: Any = None, keepdims: Any = False) -> Tracer:
    return reduced("all", truth(a), axis, keepdims)


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
    return x if x.type.dtype.kind == "f" else cast(x, F64)


@implements(np.mean)
def mean(a: Any, axis: Any = None, dtype: Any = None, keepdims: Any = False) -> Tracer:
    x = _averaged(a, dtype)
    return binary("div", reduced("sum", x, axis, keepdims), _count(x, axis))


@implements(np.var)
def var(a: Any, axis: Any = None, dtype: Any = None, ddof: Any = 0, keepdims: Any = False,
        *, mean: Any = np._NoValue, correction: Any = np._NoValue) -> Tracer:  # fmt: skip
    x = _averaged(a, dtype)
    if correction is not np._NoValue:
        ddof = correction
    center = FUNCTIONS[np.mean](x, axis, keepdims=True) if mean is np._NoValue else mean
    deviation = binary("sub", x, center)
    total = reduced("sum", binary("mul", deviation, deviation), axis, keepdims)
    return binary("div", total, max(_count(x, axis) - ddof, 0))


@implements(np.std)
def std(a: Any, axis: Any = None, dtype: Any = None, ddof: Any = 0, keepdims: Any = False,
        *, mean: Any = np._NoValue, correction: Any = np._NoValue) -> Tracer:  # fmt: skip
    """The root of ``var``, with derivative 0 for constant data."""
    return guarded_sqrt(var(a, axis, dtype, ddof, keepdims, mean=mean, correction=correction))


@implements(np.average)
def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False,
            *, keepdims: Any = False) -> Any:  # fmt: skip
    if weights is None:
        x = real_float(a)
        result = mean(x, axis, keepdims=keepdims)
        total: Any = p.full(x.tape, result.type.shape, float(_count(x, axis)), result.type.dtype)
    else:
        x, w = operands(a, weights)
        x = real_float(x)
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


def _without_nan(kind: str, fill: float) -> Callable[..., Tracer]:
    def rule(a: Any, axis: Any = None, dtype: Any = None, keepdims: Any = False) -> Tracer:
        x = real_float(a)
        return reduced(kind, select(unary("isnan", x), fill, x), axis, keepdims)

    return rule


FUNCTIONS[np.nansum] = _without_nan("sum", 0.0)
FUNCTIONS[np.nanprod] = _without_nan("prod", 1.0)


@implements(np.nanmean)
def nanmean(a: Any, axis: Any = None, dtype: Any = None, keepdims: Any = False) -> Tracer:
    x = real_float(a)
    there = unary("not", unary("isnan", x))
    count = reduced("sum", cast(there, x.type.dtype), axis, keepdims)
    return binary("div", reduced("sum", select(there, x, 0.0), axis, keepdims), count)


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


def _scan(op: str, x: Tracer, axis: int) -> Tracer:
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
    return _scan("mul", _accumulator(x, dtype), k)


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


# -- methods of ufuncs ------------------------------------------------------------------------


def _reduce_method(function: Any) -> Callable[..., Any]:
    def rule(array: Any, axis: Any = 0, dtype: Any = None, keepdims: Any = False,
             initial: Any = np._NoValue) -> Any:  # fmt: skip
        extra = {} if dtype is None else {"dtype": dtype}
        if initial is not np._NoValue:
            extra["initial"] = initial
        return FUNCTIONS[function](array, axis=axis, keepdims=keepdims, **extra)

    return rule


for _ufunc, _function in (
    (np.add, np.sum), (np.multiply, np.prod), (np.maximum, np.max), (np.minimum, np.min),
    (np.logical_and, np.all), (np.logical_or, np.any),
):  # fmt: skip
    method_of(_ufunc, "reduce")(_reduce_method(_function))


@method_of(np.add, "accumulate")
def _add_accumulate(array: Any, axis: Any = 0, dtype: Any = None) -> Tracer:
    return cumsum(array, axis, dtype)


@method_of(np.multiply, "accumulate")
def _multiply_accumulate(array: Any, axis: Any = 0, dtype: Any = None) -> Tracer:
    return cumprod(array, axis, dtype)


@method_of(np.logaddexp, "reduce")
def _logaddexp_reduce(
    array: Any, axis: Any = 0, dtype: Any = None, keepdims: Any = False
) -> Tracer:
    """log(sum(exp(x))), shifted by the maximum (whose choice does not matter)."""
    x = real_float(array)
    top = reduced("max", x, axis, True)
    top = select(UFUNCS[np.isfinite](top), top, 0.0)
    total = reduced("sum", unary("exp", binary("sub", x, top)), axis, True)
    result = binary("add", unary("log", total), top)
    axes = axes_of(axis, x.type.ndim)
    if keepdims:
        return result
    return reshape(result, [n for k, n in enumerate(x.type.shape) if k not in axes])


def _accumulate_method(op: str) -> Callable[..., Tracer]:
    def rule(array: Any, axis: Any = 0, dtype: Any = None) -> Tracer:
        x = as_array(array)
        return _scan(op, x, axis_of(axis, x.type.ndim))

    return rule


method_of(np.maximum, "accumulate")(_accumulate_method("max"))
method_of(np.minimum, "accumulate")(_accumulate_method("min"))


def _outer_method(ufunc: Any) -> Callable[..., Any]:
    def rule(a: Any, b: Any) -> Any:
        x, y = operands(a, b)
        return UFUNCS[ufunc](reshape(x, x.type.shape + (1,) * y.type.ndim), y)

    return rule


for _name in [
    "add",
    "subtract",
    "multiply",
    "divide",
    "power",
    "maximum",
    "minimum",
    "arctan2",
    "hypot",
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "remainder",
    "floor_divide",
    "fmod",
    "logaddexp",
]:
    method_of(getattr(np, _name), "outer")(_outer_method(getattr(np, _name)))


@method_of(np.add, "at")
def _add_at(a: Any, indices: Any, b: Any) -> None:
    if not isinstance(a, Tracer):
        raise fail(
            UnsupportedError,
            "np.add.at of a traced value into a plain NumPy array",
            "make the array with tapec.numpy.zeros",
        )
    from tapec.indexing import add_at

    a.overwrite(add_at(a, indices, b))
