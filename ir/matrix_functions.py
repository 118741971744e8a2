"""Op entries: functions of a matrix by its spectrum, ``eigh_function`` and ``svd_function``.

``eigh_function(a, w, vt, y, slope) -> x``      V diag(y) Vᵀ of a symmetric ``a``;
``svd_function(a, u, s, vt, y, slope) -> x``    U diag(y) Vᵀ, ``u`` and ``vt`` of the thin form.

``w, vt`` (``u, s, vt``) are what the decomposition of ``a`` gives, ``y`` is a function of the
values, and ``slope`` its derivative by its own value (NaN: not known).  ``slope`` is a residual of
the derivative, no operand of the value.  ``spectral_rules`` makes these operations.

The derivative is that of Daleckii and Krein: in the basis of the vectors, the tangent of ``a``
times the divided differences (y_i - y_j)/(w_i - w_j).  Nothing is left of the vectors' own
derivative, so values that coincide are no exception: the quotient becomes the slope.  Where even
that does not exist (y differs where w does not: the function depends on the choice of vectors)
the derivative is NaN.

>>> from tapec.ir import F64, OPS, Type
>>> m, v = Type(F64, (3, 3)), Type(F64, (3,))
>>> OPS["eigh_function"].infer((m, v, m, v, v), {})
(f64[3,3],)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tapec.ir.adjoint import AdjointBuilder
from tapec.ir.checks import count
from tapec.ir.core import Attrs, Op, Value
from tapec.ir.matrix import (
    Cts,
    Types,
    batch_all,
    columns,
    diagonal,
    matrices,
    over_rows,
    product,
    real_matrix,
    rows,
    scale,
    symmetrized,
    transposed,
    vector_over,
)
from tapec.ir.opdef import define
from tapec.ir.spectral import _diag, _epsilon, _largest, _negligible, coincide

if TYPE_CHECKING:
    from tapec.ir.builder import Builder

__all__ = ["closed_eigh_function", "closed_svd_function"]

#: Values and slopes nearer than this (relatively) are one: the error of the mean slope is of the
#: order of its square, that of the quotient of rounding divided by it.
_NEAR = 1e-5


def _same_vectors(
    name: str, types: Types, positions: Sequence[int], shape: tuple[int, ...]
) -> None:
    for k in positions:
        if types[k].shape != shape:
            raise ValueError(f"{name}: operand {k} must have shape {shape}, got {types[k]}")


def _eigh_function_infer(types: Types, attrs: Attrs) -> Types:
    count("eigh_function", types, 5)
    t = real_matrix("eigh_function", types[2])
    _same_vectors("eigh_function", types, (0,), t.shape)
    _same_vectors("eigh_function", types, (1, 3, 4), t.shape[:-1])
    return (t,)


def _svd_function_infer(types: Types, attrs: Attrs) -> Types:
    count("svd_function", types, 6)
    t = real_matrix("svd_function", types[0])
    *lead, m, n = t.shape
    k = min(m, n)
    _same_vectors("svd_function", types, (1,), (*lead, m, k))
    _same_vectors("svd_function", types, (3,), (*lead, k, n))
    _same_vectors("svd_function", types, (2, 4, 5), (*lead, k))
    return (t,)


def _eigh_function_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    _, _, vt, y, _ = arrays
    return np.swapaxes(vt, -1, -2) * y[..., None, :] @ vt


def _svd_function_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    _, u, _, vt, y, _ = arrays
    return u * y[..., None, :] @ vt


def closed_eigh_function(b: Builder, op: Op, xs: Sequence[Value]) -> Sequence[Value]:
    """The value in other operations."""
    _, _, vt, y, _ = xs
    return (product(b, scale(b, transposed(b, vt), y), vt),)


def closed_svd_function(b: Builder, op: Op, xs: Sequence[Value]) -> Sequence[Value]:
    _, u, _, vt, y, _ = xs
    return (product(b, scale(b, u, y), vt),)


# -- divided differences --------------------------------------------------------------------


def _quotient(b: Builder, x: Value, gap: Value, equal: Value, ends: tuple[Value, ...]) -> Value:
    """``x / gap``, or the mean of the slopes where values and slopes are near and the mean is the
    quotient but for rounding; where ``equal``, the slope if ``x`` vanishes and the slopes agree,
    else NaN.  ``ends``: the values, their functions and slopes at both ends, as matrices."""
    w_i, w_j, y_i, y_j, s_i, s_j = ends
    half, tiny = b.like(0.5, x), b.like(64 * _epsilon(x.type), x)
    mean = b.mul(b.add(s_i, s_j), half)
    size = b.add(b.abs(s_i), b.abs(s_j))
    agree = b.le(b.abs(b.sub(s_i, s_j)), b.mul(size, b.like(_NEAR, x)))
    top = b.max(b.abs(w_i), b.abs(w_j))
    near = b.logical_and(agree, b.le(b.abs(gap), b.mul(top, b.like(_NEAR, x))))
    room = b.add(
        b.mul(_largest(b, b.max(b.abs(y_i), b.abs(y_j)), 2, x.type.shape), b.like(1e3, x)),
        b.mul(b.abs(mean), _largest(b, top, 2, x.type.shape)),
    )
    room, along = b.mul(room, tiny), b.mul(mean, gap)
    # slopes a whole period apart agree, too
    error = b.add(room, b.mul(b.abs(along), b.like(_NEAR, x)))
    near = b.logical_and(near, b.le(b.abs(b.sub(x, along)), error))
    none = b.le(b.abs(x), room)
    at_equal = b.select(b.logical_and(agree, none), mean, b.like(np.nan, x))
    apart = b.div(x, b.select(equal, b.like(1, gap), gap))
    return b.select(equal, at_equal, b.select(near, mean, apart))


def _ends(b: Builder, w: Value, y: Value, slope: Value) -> tuple[Value, ...]:
    shape = (*w.type.shape, w.type.shape[-1])
    return tuple([f(b, v, shape) for v in (w, y, slope) for f in (over_rows, vector_over)])


def _times(b: Builder, inner: Value, factor: Value, known: Value) -> Value:
    """The product off the diagonal.  A factor that is not known, but finite (``known``), counts
    only where what it multiplies is not zero but for rounding."""
    zero = b.zeros(inner.type)
    unknown = b.logical_and(b.ne(factor, factor), known)
    none = b.logical_and(_negligible(b, inner, inner), unknown)
    made = b.mul(inner, b.select(none, zero, factor))
    return b.select(b.eq(rows(b, made), columns(b, made)), zero, made)


def _agree(b: Builder, x: Value, y: Value) -> Value:
    """Where the function's values are equal but for rounding."""
    bound = _largest(b, b.max(b.abs(x), b.abs(y)), 2, x.type.shape)
    return b.le(b.abs(b.sub(x, y)), b.mul(bound, b.like(1e5 * _epsilon(x.type), x)))


# -- eigh_function --------------------------------------------------------------------------


def _eigh_inner(b: Builder, op: Op, t: Value) -> tuple[Value, Value]:
    """In the basis of the vectors: all of ``t``, and ``t`` times the divided differences."""
    _, w, vt, y, slope = op.operands
    inner = product(b, product(b, vt, symmetrized(b, t)), vt, ty=True)
    ends = _ends(b, w, y, slope)
    w_i, w_j, y_i, y_j, _, _ = ends
    equal = coincide(b, w, inner.type.shape)
    factor = _quotient(b, b.sub(y_i, y_j), b.sub(w_i, w_j), equal, ends)
    return inner, _times(b, inner, factor, _agree(b, y_i, y_j))


def _back(b: Builder, vt: Value, inner: Value) -> Value:
    return product(b, product(b, vt, inner, tx=True), vt)


def _eigh_function_vjp(b: AdjointBuilder, op: Op, cts: Cts) -> Cts:
    (ct,) = cts
    if ct is None:
        return (None,) * 5
    inner, moved = _eigh_inner(b, op, ct)
    by_a = _back(b, op.operands[2], moved) if op.operands[0] in b.active else None
    return (by_a, None, None, diagonal(b, inner), None)


def _eigh_function_jvp(b: AdjointBuilder, op: Op, tangents: Cts) -> Cts:
    t, _, _, ty, _ = tangents
    total: Value | None = None
    if t is not None:
        total = _eigh_inner(b, op, t)[1]
    if ty is not None:
        along = _diag(b, ty, op.operands[2].type)
        total = along if total is None else b.add(total, along)
    return (None if total is None else _back(b, op.operands[2], total),)


define(
    "eigh_function",
    infer=_eigh_function_infer,
    numpy=_eigh_function_numpy,
    vjp=_eigh_function_vjp,
    jvp=_eigh_function_jvp,
    batch=batch_all,
    samples=matrices("f64[3,3]", "f64[3]", "f64[3,3]", "f64[3]", "f64[3]"),
    doc="V diag(y) Vᵀ as a function of the symmetric matrix and of y.",
)


# -- svd_function ---------------------------------------------------------------------------


def _svd_inner(b: Builder, op: Op, t: Value) -> tuple[Value, Value]:
    """As ``_eigh_inner``: the symmetric part by the differences, the antisymmetric part by
    (y_i + y_j)/(s_i + s_j), the differences of y as an odd function on negative values too."""
    _, u, s, vt, y, slope = op.operands
    inner = product(b, product(b, u, t, tx=True), vt, ty=True)
    shape = inner.type.shape
    ends = _ends(b, s, y, slope)
    s_i, s_j, y_i, y_j, d_i, d_j = ends
    known = _agree(b, y_i, y_j)
    minus = _quotient(b, b.sub(y_i, y_j), b.sub(s_i, s_j), coincide(b, s, shape), ends)
    odd = (s_i, b.neg(s_j), y_i, b.neg(y_j), d_i, d_j)
    total = b.add(s_i, s_j)
    plus = _quotient(b, b.add(y_i, y_j), total, _nothing(b, total, s), odd)
    half, other = b.like(0.5, inner), transposed(b, inner)
    even = _times(b, b.mul(b.add(inner, other), half), minus, known)
    turn = _times(b, b.mul(b.sub(inner, other), half), plus, known)
    return inner, b.add(even, turn)


def _nothing(b: Builder, x: Value, s: Value) -> Value:
    """Where ``x`` is rounding beside the largest singular value."""
    top = _largest(b, s, 1, x.type.shape)
    return b.le(x, b.mul(top, b.like(_epsilon(s.type), top)))


def _ratio(b: Builder, op: Op) -> Value:
    """y / s, the slope where both are 0."""
    _, _, s, _, y, slope = op.operands
    zero = _nothing(b, s, s)
    none = b.le(b.abs(y), b.mul(_largest(b, b.abs(y), 1, y.type.shape), b.like(1e-10, y)))
    at_zero = b.select(none, slope, b.like(np.nan, y))
    return b.select(zero, at_zero, b.div(y, b.select(zero, b.like(1, s), s)))


def _svd_move(b: Builder, op: Op, t: Value) -> tuple[Value, Value]:
    """The derivative by ``a``, a symmetric linear map, applied to ``t``; and the inner part."""
    a, u, _, vt, _, _ = op.operands
    m, n = a.type.shape[-2:]
    k = vt.type.shape[-2]
    inner, moved = _svd_inner(b, op, t)
    total = product(b, product(b, u, moved), vt)
    if m > k:
        right = product(b, t, vt, ty=True)
        right = b.sub(right, product(b, u, inner))
        total = b.add(total, product(b, scale(b, right, _ratio(b, op)), vt))
    if n > k:
        left = b.sub(product(b, u, t, tx=True), product(b, inner, vt))
        total = b.add(total, product(b, scale(b, u, _ratio(b, op)), left))
    return total, inner


def _svd_function_vjp(b: AdjointBuilder, op: Op, cts: Cts) -> Cts:
    (ct,) = cts
    if ct is None:
        return (None,) * 6
    moved, inner = _svd_move(b, op, ct)
    by_a = moved if op.operands[0] in b.active else None
    return (by_a, None, None, None, diagonal(b, inner), None)


def _svd_function_jvp(b: AdjointBuilder, op: Op, tangents: Cts) -> Cts:
    t, _, _, _, ty, _ = tangents
    _, u, _, vt, _, _ = op.operands
    total: Value | None = None
    if t is not None:
        total = _svd_move(b, op, t)[0]
    if ty is not None:
        along = product(b, scale(b, u, ty), vt)
        total = along if total is None else b.add(total, along)
    return (total,)


define(
    "svd_function",
    infer=_svd_function_infer,
    numpy=_svd_function_numpy,
    vjp=_svd_function_vjp,
    jvp=_svd_function_jvp,
    batch=batch_all,
    samples=matrices("f64[4,3]", "f64[4,3]", "f64[3]", "f64[3,3]", "f64[3]", "f64[3]"),
    doc="U diag(y) Vᵀ as a function of the matrix and of y.",
)
