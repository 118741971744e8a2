"""Choosing and looking up: where, select, clip, take, interp, searching, comparing, rounding."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapec import primitives as p
from tapec.errors import TapecValueError, UnsupportedError, fail
from tapec.indexing import getitem
from tapec.ir.core import I64
from tapec.kinds import numpy_kind
from tapec.numpy.reductions import reduced
from tapec.numpy.registry import axis_of, implements, int_argument
from tapec.numpy.ufuncs import real_floats, truth
from tapec.primitives import as_array, binary, cast, operands, reshape, select, unary
from tapec.tracer import FUNCTIONS, UFUNCS, Tracer

__all__ = ["where"]


@implements(np.where)
def where(condition: Any, x: Any = None, y: Any = None, /) -> Any:
    if x is None and y is None:
        return nonzero(condition)
    return select(condition, x, y)


@implements(np.nonzero)
def nonzero(a: Any) -> Any:
    """Decided by the values now, under a guard: the number of hits is part of the program."""
    x = truth(a)
    now = np.array(x.concrete(), bool)
    same = binary("eq", x, x.tape.fixed(now) if now.ndim else bool(now))
    x.tape.guard(p.reduce("all", same, range(now.ndim)), True, "the same elements are nonzero")
    return now.nonzero()


@implements(np.flatnonzero)
def flatnonzero(a: Any) -> Any:
    x = as_array(a)
    return nonzero(reshape(x, (x.type.size,)))[0]


@implements(np.argwhere)
def argwhere(a: Any) -> Any:
    return np.transpose(nonzero(a))


@implements(np.select)
def select_(condlist: Any, choicelist: Any, default: Any = 0) -> Tracer:
    if len(condlist) != len(choicelist):
        raise fail(TapecValueError, "list of cases must be same length as list of conditions")
    result = default
    for condition, choice in zip(reversed(list(condlist)), reversed(list(choicelist))):
        result = select(condition, choice, result)
    return result  # type: ignore[no-any-return]


@implements(np.piecewise)
def piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Tracer:
    """Every function is applied to the whole array and the results are selected: the same
    for the elementwise functions that piecewise is meant for."""
    x = as_array(x)
    conditions = list(condlist) if isinstance(condlist, (list, tuple)) else [condlist]
    functions = list(funclist)
    result: Any = 0
    if len(functions) == len(conditions) + 1:
        last = functions.pop()
        result = last(x, *args, **kw) if callable(last) else last
    if len(functions) != len(conditions):
        raise fail(TapecValueError, "piecewise: the numbers of functions and conditions differ")
    for condition, f in zip(conditions, functions):  # later conditions win, as in NumPy
        result = select(condition, f(x, *args, **kw) if callable(f) else f, result)
    return cast(p.broadcast_to(as_array(result), x.type.shape), x.type.dtype)


@implements(np.clip)
def clip(a: Any, a_min: Any = np._NoValue, a_max: Any = np._NoValue, *, min: Any = np._NoValue,
         max: Any = np._NoValue) -> Tracer:  # fmt: skip
    low = a_min if a_min is not np._NoValue else min
    high = a_max if a_max is not np._NoValue else max
    result: Any = a if isinstance(a, (int, float)) else as_array(a)
    if low is not None and low is not np._NoValue:
        result = binary("max", result, low)
    if high is not None and high is not np._NoValue:
        result = binary("min", result, high)
    return result.copy() if result is a else result  # type: ignore[no-any-return]


_umath: Any = getattr(np, "_core", None) or np.core  # np.clip of an array and tracers calls it
UFUNCS[_umath.umath.clip] = clip


@implements(np.nan_to_num)
def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None,
               neginf: Any = None) -> Tracer:  # fmt: skip
    a = as_array(x)
    if a.type.dtype.kind != "f":
        return a.copy()
    info = np.finfo(a.type.dtype.np)
    high = float(info.max) if posinf is None else posinf
    low = float(info.min) if neginf is None else neginf
    result = select(unary("isnan", a), nan, a)
    infinite = unary("isinf", a)
    result = select(binary("and", infinite, binary("gt", a, 0)), high, result)
    return select(binary("and", infinite, binary("lt", a, 0)), low, result)


# -- looking up -----------------------------------------------------------------------------------


@implements(np.take)
def take(a: Any, indices: Any, axis: Any = None, mode: str = "raise") -> Any:
    x = p.operands(a, indices)[0] if not isinstance(a, Tracer) else a
    if axis is None:
        x, axis = reshape(x, (x.type.size,)), 0
    k = axis_of(axis, x.type.ndim)
    n = x.type.shape[k]
    if mode != "raise":
        index = cast(p.operands(x, indices)[1], I64)
        if mode == "wrap":
            indices = binary("mod", index, n)
        else:
            indices = binary("min", binary("max", index, 0), n - 1)
    if isinstance(indices, (list, tuple)):
        indices = list(indices)
    return getitem(x, (*[slice(None)] * k, indices))


@implements(np.take_along_axis)
def take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Any:
    x, index = operands(arr, indices)
    if axis is None:
        return getitem(reshape(x, (x.type.size,)), index)
    k = axis_of(axis, x.type.ndim)
    grid: list[Any] = []
    shape = index.type.shape
    for d, n in enumerate(x.type.shape):
        here = [n if e == d else 1 for e in range(x.type.ndim)]
        if d != k and n != shape[d] and shape[d] != 1:
            raise fail(TapecValueError, "take_along_axis: the shapes do not fit")
        grid.append(index if d == k else np.arange(n).reshape(here).tolist())
    return getitem(x, tuple(grid))


@implements(np.compress)
def compress(condition: Any, a: Any, axis: Any = None) -> Any:
    x = p.operands(a, condition)[0]
    hits = nonzero(condition)[0] if not isinstance(condition, (list, np.ndarray)) else (
        np.flatnonzero(condition)
    )  # fmt: skip
    return take(x, list(hits), axis)


# -- comparing ------------------------------------------------------------------------------------


@implements(np.isclose)
def isclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Tracer:
    x, y = operands(a, b)
    if x.type.dtype.kind != "c" and y.type.dtype.kind != "c":
        x, y = real_floats(x, y)
    near = binary("le", abs(x - y), binary("add", atol, binary("mul", rtol, abs(y))))
    finite = UFUNCS[np.isfinite](y)
    result = binary("or", binary("and", near, finite), binary("eq", x, y))
    if equal_nan:
        both = binary("and", unary("isnan", x), unary("isnan", y))
        result = binary("or", result, both)
    return result


@implements(np.allclose)
def allclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Tracer:
    return reduced("all", isclose(a, b, rtol, atol, equal_nan), None, False)


@implements(np.array_equal)
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    x, y = operands(a1, a2)
    if x.type.shape != y.type.shape:
        return False
    same = binary("eq", x, y)
    if equal_nan:
        same = binary("or", same, binary("and", unary("isnan", x), unary("isnan", y)))
    return reduced("all", same, None, False)


@implements(np.array_equiv)
def array_equiv(a1: Any, a2: Any) -> Any:
    x, y = operands(a1, a2)
    try:
        np.broadcast_shapes(x.type.shape, y.type.shape)
    except ValueError:
        return False
    return reduced("all", binary("eq", x, y), None, False)


# -- rounding, parts ------------------------------------------------------------------------------


@implements(np.round, np.around)
def round_(a: Any, decimals: Any = 0) -> Tracer:
    x = as_array(a)
    digits = int_argument(decimals, "decimals")
    if x.type.dtype.kind != "f":
        if digits >= 0:
            return x.copy()
        raise fail(UnsupportedError, "rounding integers to tens is not supported on traced values")
    if digits == 0:
        return unary("rint", x)
    factor = 10.0 ** abs(digits)
    if digits > 0:
        return binary("div", unary("rint", binary("mul", x, factor)), factor)
    return binary("mul", unary("rint", binary("div", x, factor)), factor)


FUNCTIONS[np.fix] = lambda x: UFUNCS[np.trunc](x)
FUNCTIONS[np.real] = lambda val: as_array(val).real
FUNCTIONS[np.imag] = lambda val: as_array(val).imag
FUNCTIONS[np.shape] = lambda a: as_array(a).type.shape
FUNCTIONS[np.ndim] = lambda a: as_array(a).type.ndim
FUNCTIONS[np.size] = lambda a, axis=None: (
    as_array(a).type.size if axis is None else as_array(a).type.shape[axis]
)
FUNCTIONS[np.iscomplexobj] = lambda x: as_array(x).type.dtype.kind == "c"
FUNCTIONS[np.isrealobj] = lambda x: as_array(x).type.dtype.kind != "c"
FUNCTIONS[np.isreal] = lambda x: binary("eq", as_array(x).imag, 0)
FUNCTIONS[np.iscomplex] = lambda x: binary("ne", as_array(x).imag, 0)
FUNCTIONS[np.isposinf] = lambda x: binary("eq", x, np.inf)
FUNCTIONS[np.isneginf] = lambda x: binary("eq", x, -np.inf)
FUNCTIONS[np.result_type] = lambda *args: np.result_type(
    *[numpy_kind(a.kind)(1) if isinstance(a, Tracer) and a.weak else
      a.dtype if isinstance(a, Tracer) else a for a in args]
)  # fmt: skip
FUNCTIONS[np.may_share_memory] = FUNCTIONS[np.shares_memory] = lambda a, b, max_work=None: a is b


@implements(np.copy)
def copy(a: Any, order: str = "K", subok: bool = False) -> Tracer:
    return as_array(a).copy()


@implements(np.meshgrid)
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    xs = [reshape(x, (x.type.size,)) for x in operands(*xi)]
    n = len(xs)
    order = list(range(n))
    if indexing == "xy" and n > 1:
        order[0], order[1] = 1, 0
    shape = [0] * n
    for x, k in zip(xs, order):
        shape[k] = x.type.size
    grids = [
        reshape(x, [x.type.size if d == k else 1 for d in range(n)]) for x, k in zip(xs, order)
    ]
    return tuple(grids if sparse else [p.broadcast_to(g, shape) for g in grids])
