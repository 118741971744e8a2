"""``np.linalg.norm`` and its relatives; the derivative at the zero vector is 0."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapec import primitives as p
from tapec.errors import TapecValueError, UnsupportedError, fail
from tapec.numpy.reductions import keep, reduced
from tapec.numpy.registry import axes_of, implements
from tapec.numpy.ufuncs import guarded_sqrt, real_float
from tapec.primitives import binary, cast, select, unary
from tapec.tracer import FUNCTIONS, Tracer

__all__ = ["norm"]


@implements(np.linalg.norm)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: Any = False) -> Tracer:
    a = real_float(x)
    n = a.type.ndim
    if axis is None:
        if ord is None or (ord in ("f", "fro") and n == 2) or (ord == 2 and n == 1):
            return _root_of_squares(a, tuple(range(n)), keepdims)
        axes = tuple(range(n))
    else:
        axes = axes_of(axis, n)
    if len(axes) == 1:
        return _vector_norm(a, ord, axes, keepdims)
    if len(axes) == 2:
        return _matrix_norm(a, ord, axes, keepdims)
    raise fail(TapecValueError, "Improper number of dimensions to norm.")


def _root_of_squares(a: Tracer, axes: tuple[int, ...], keepdims: Any) -> Tracer:
    return guarded_sqrt(reduced("sum", binary("mul", a, a), axes, keepdims))


def _vector_norm(a: Tracer, ord: Any, axes: tuple[int, ...], keepdims: Any) -> Tracer:
    if ord is None or ord == 2:
        return _root_of_squares(a, axes, keepdims)
    if isinstance(ord, str):
        raise fail(TapecValueError, f"Invalid norm order '{ord}' for vectors")
    if ord == math.inf:
        return reduced("max", unary("abs", a), axes, keepdims)
    if ord == -math.inf:
        return reduced("min", unary("abs", a), axes, keepdims)
    if ord == 0:
        return reduced("sum", cast(binary("ne", a, 0), a.type.dtype), axes, keepdims)
    size = unary("abs", a)
    if ord == 1:
        return reduced("sum", size, axes, keepdims)
    total = reduced("sum", size ** float(ord), axes, keepdims)
    at_zero = binary("eq", total, 0.0)
    root = select(at_zero, 1.0, total) ** (1.0 / float(ord))
    return select(at_zero, 0.0, root)


def _matrix_norm(a: Tracer, ord: Any, axes: tuple[int, ...], keepdims: Any) -> Tracer:
    if ord in (None, "fro", "f"):
        return _root_of_squares(a, axes, keepdims)
    rows, columns = axes
    inner = {1: rows, -1: rows, math.inf: columns, -math.inf: columns}.get(ord)
    if inner is None:
        from tapec.numpy.spectra import spectral_norm

        order = [k for k in range(a.type.ndim) if k not in axes]
        return keep(a, spectral_norm(p.transpose(a, [*order, *axes]), ord), axes, keepdims)
    outer = columns if inner == rows else rows
    sums = reduced("sum", unary("abs", a), (inner,), True)
    result = reduced("max" if ord > 0 else "min", sums, (outer,), True)
    shape = [n for k, n in enumerate(a.type.shape) if k not in axes]
    return keep(a, p.reshape(result, shape), axes, keepdims)


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: Any = False, ord: Any = 2) -> Tracer:
    a = real_float(x)
    if axis is None:
        flat = _vector_norm(p.reshape(a, (a.type.size,)), ord, (0,), False)
        return keep(a, flat, tuple(range(a.type.ndim)), keepdims)
    axes = axes_of(axis, a.type.ndim)
    if len(axes) > 1:
        raise fail(UnsupportedError, "vector_norm over several axes is not supported")
    return _vector_norm(a, ord, axes, keepdims)


def matrix_norm(x: Any, /, *, keepdims: Any = False, ord: Any = "fro") -> Tracer:
    a = real_float(x)
    return _matrix_norm(a, ord, (a.type.ndim - 2, a.type.ndim - 1), keepdims)


if hasattr(np.linalg, "vector_norm"):
    FUNCTIONS[np.linalg.vector_norm] = vector_norm
    FUNCTIONS[np.linalg.matrix_norm] = matrix_norm
