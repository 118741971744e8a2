"""Op entries: ``eigh``, ``svd`` and ``qr``, on the last two axes.

``eigh(a) -> w, vt, ok``   the lower triangle of a symmetric matrix; row i of ``vt`` is the
                           eigenvector of w[i]; ``ok``: it converged.
``svd(a; full) -> u, s, vt, ok``   ``full``: u and vt square.
``qr(a) -> q, r``          at least as many rows as columns; r square.

Where two eigenvalues or singular values coincide, a derivative exists only for functions
that do not depend on the choice of vectors.  For them the antisymmetric part of the
cotangent of that pair vanishes, and the pair's contribution is a limit 0/0.  It is 0 if the
symmetric part vanishes too, or if the function does not depend on the values themselves.
Otherwise these cotangents do not determine it, and it is NaN, not a wrong number.  (The
matrix put together again, V f(w) Vᵀ, is recognised before differentiation and has its right
derivative; see ``spectral_rules``.)

>>> from tapec.ir import F64, Builder, Type
>>> b = Builder()
>>> [r.type for r in b.emit_op("eigh", (b.param(Type(F64, (3, 3))),)).results]
[f64[3], f64[3,3], bool[]]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tapec.ir.adjoint import AdjointBuilder
from tapec.ir.checks import count
from tapec.ir.core import BOOL, Attrs, Op, Type, Value
from tapec.ir.matrix import (
    Cts,
    Types,
    batch_all,
    batched,
    columns,
    diagonal,
    flag,
    matrices,
    over_rows,
    product,
    real_matrix,
    rows,
    scale,
    square,
    symmetrized,
    transposed,
    triangle,
    vector_over,
)
from tapec.ir.opdef import define
from tapec.ir.triangular import triangular_solve

if TYPE_CHECKING:
    from tapec.ir.builder import Builder

__all__ = ["coincide"]


def _epsilon(t: Type) -> float:
    return float(np.finfo(t.dtype.np).eps)


def _largest(b: Builder, x: Value, axes: int, shape: Sequence[int]) -> Value:
    """The largest modulus over the last ``axes`` axes, repeated over ``shape``."""
    n = x.type.ndim
    top = b.reduce("max", b.abs(x), tuple(range(n - axes, n)))
    return b.broadcast(top, shape, tuple(range(n - axes)))


def coincide(b: Builder, w: Value, shape: Sequence[int]) -> Value:
    """Where the values of a row and of a column are equal but for rounding."""
    gap = b.abs(b.sub(vector_over(b, w, shape), over_rows(b, w, shape)))
    scale = _largest(b, w, 1, shape)
    return b.le(gap, b.mul(scale, b.like(64 * _epsilon(w.type), scale)))


def _negligible(b: Builder, x: Value, scale: Value) -> Value:
    """Where ``x`` is rounding beside the largest element of ``scale``."""
    bound = _largest(b, scale, 2, x.type.shape)
    return b.le(b.abs(x), b.mul(bound, b.like(1e5 * _epsilon(x.type), x)))


def _over_gap(
    b: Builder, numerator: Value, gap: Value, equal: Value, known: Value | None, scale: Value
) -> Value:
    """``numerator / gap`` off the diagonal, 0 on it; at coinciding values 0 if the numerator is
    negligible and ``known`` (None: everywhere), else NaN."""
    zero = b.zeros(numerator.type)
    same = _negligible(b, numerator, scale)
    if known is not None:
        same = b.logical_and(same, known)
    at_equal = b.select(same, zero, b.like(np.nan, zero))
    safe = b.div(numerator, b.select(equal, b.like(1, gap), gap))
    diagonal_here = b.eq(rows(b, numerator), columns(b, numerator))
    return b.select(diagonal_here, zero, b.select(equal, at_equal, safe))


def _diag(b: Builder, v: Value, t: Type) -> Value:
    """A vector on the diagonal of a matrix of type ``t``."""
    full = vector_over(b, v, t.shape)
    return b.select(b.eq(rows(b, full), columns(b, full)), full, b.zeros(full.type))


# -- eigh ---------------------------------------------------------------------------------


def _eigh_infer(types: Types, attrs: Attrs) -> Types:
    t = square("eigh", types)
    return (t.with_shape(t.shape[:-1]), t, Type(BOOL, t.shape[:-2]))


def _eigh_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    (a,) = arrays
    w, vt, ok = np.empty(a.shape[:-1], a.dtype), np.empty_like(a), np.ones(a.shape[:-2], np.bool_)
    for index, m in batched(a):
        try:
            w[index], v = np.linalg.eigh(m)
            vt[index] = v.T
        except np.linalg.LinAlgError:
            w[index], vt[index], ok[index] = np.nan, np.nan, False
    return w, vt, ok


def _eigh_vjp(b: AdjointBuilder, op: Op, cts: Cts) -> Cts:
    ct_w, ct_vt, _ = cts
    w, vt, _ = op.results
    inner = None
    if ct_vt is not None:
        m = product(b, vt, ct_vt, ty=True)
        mt = transposed(b, m)
        half = b.like(0.5, m)
        known = None if ct_w is None else _negligible(b, b.add(m, mt), m)
        gap = b.sub(vector_over(b, w, m.type.shape), over_rows(b, w, m.type.shape))
        equal = coincide(b, w, m.type.shape)
        inner = _over_gap(b, b.mul(b.sub(m, mt), half), gap, equal, known, m)
    if inner is None:
        if ct_w is None:
            return (None,)
        return (product(b, scale(b, transposed(b, vt), ct_w), vt),)
    if ct_w is not None:
        inner = b.add(inner, _diag(b, ct_w, vt.type))
    return (product(b, product(b, vt, inner, tx=True), vt),)


def _eigh_jvp(b: AdjointBuilder, op: Op, tangents: Cts) -> Cts:
    (t,) = tangents
    if t is None:
        return (None, None, None)
    w, vt, _ = op.results
    inner = product(b, product(b, vt, symmetrized(b, t)), vt, ty=True)
    shape = inner.type.shape
    gap = b.sub(over_rows(b, w, shape), vector_over(b, w, shape))
    turn = _over_gap(b, inner, gap, coincide(b, w, shape), None, inner)
    return (diagonal(b, inner), product(b, turn, vt), None)


define(
    "eigh",
    infer=_eigh_infer,
    numpy=_eigh_numpy,
    vjp=_eigh_vjp,
    jvp=_eigh_jvp,
    batch=batch_all,
    samples=matrices("f64[3,3]"),
    doc="Eigenvalues, ascending, and eigenvectors (rows) of a symmetric matrix.",
)


# -- svd ----------------------------------------------------------------------------------


def _svd_infer(types: Types, attrs: Attrs) -> Types:
    count("svd", types, 1)
    t = real_matrix("svd", types[0])
    *lead, m, n = t.shape
    k = min(m, n)
    i, j = (m, n) if flag("svd", attrs, "full") else (k, k)
    return (
        t.with_shape((*lead, m, i)),
        t.with_shape((*lead, k)),
        t.with_shape((*lead, j, n)),
        Type(BOOL, lead),
    )


def _svd_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    (a,) = arrays
    *lead, m, n = a.shape
    k = min(m, n)
    i, j = (m, n) if attrs["full"] else (k, k)
    u, s, vt = (np.empty((*lead, *shape), a.dtype) for shape in ((m, i), (k,), (j, n)))
    ok = np.ones(tuple(lead), np.bool_)
    for index, matrix in batched(a):
        try:
            u[index], s[index], vt[index] = np.linalg.svd(matrix, attrs["full"])
        except np.linalg.LinAlgError:
            u[index], s[index], vt[index], ok[index] = np.nan, np.nan, np.nan, False
    return u, s, vt, ok


def _first(b: Builder, x: Value, k: int, axis: int, rest: bool = False) -> Value:
    """The first ``k`` of the last axes (``axis`` -1 or -2), or what follows them."""
    shape, start = list(x.type.shape), [0] * x.type.ndim
    if rest:
        start[axis], shape[axis] = k, shape[axis] - k
    else:
        shape[axis] = k
    return b.slice(x, start, shape)


def _over_values(b: Builder, x: Value, s: Value) -> Value:
    """``x @ diag(1 / s)``, 0 where the element of ``x`` is 0."""
    full = vector_over(b, s, x.type.shape)
    none = b.eq(x, b.zeros(x.type))
    return b.select(none, b.zeros(x.type), b.div(x, b.select(none, b.like(1, full), full)))


def _svd_vjp(b: AdjointBuilder, op: Op, cts: Cts) -> Cts:
    ct_u, ct_s, ct_vt, _ = cts
    u_all, s, vt_all, _ = op.results
    k = s.type.shape[-1]
    u, vt = _first(b, u_all, k, -1), _first(b, vt_all, k, -2)
    m, n = u.type.shape[-2], vt.type.shape[-1]
    type = s.type.with_shape((*s.type.shape, k))
    inner: Value | None = None
    outer: list[Value] = []
    if ct_u is not None or ct_vt is not None:
        zero = b.zeros(type)
        u_ct = None if ct_u is None else _first(b, ct_u, k, -1)
        v_ct = None if ct_vt is None else _first(b, ct_vt, k, -2)
        mu = zero if u_ct is None else product(b, u, u_ct, tx=True)
        mv = zero if v_ct is None else product(b, vt, v_ct, ty=True)
        inner = _svd_inner(b, s, mu, mv, ct_s is not None)
        if u_ct is not None and m > k:
            off = b.sub(u_ct, product(b, u, mu))
            outer.append(product(b, _over_values(b, off, s), vt))
        if v_ct is not None and n > k:
            off = b.sub(transposed(b, v_ct), product(b, vt, mv, tx=True))
            outer.append(product(b, u, _over_values(b, off, s), ty=True))
        if ct_u is not None and u_all.type.shape[-1] > k:
            outer.append(_complement(b, u_all, ct_u, u, s, vt, k))
        if ct_vt is not None and vt_all.type.shape[-2] > k:
            left = transposed(b, vt_all)
            back = _complement(
                b, left, transposed(b, ct_vt), transposed(b, vt), s, transposed(b, u), k
            )
            outer.append(transposed(b, back))
    if inner is None:
        return (None if ct_s is None else product(b, scale(b, u, ct_s), vt),)
    if ct_s is not None:
        inner = b.add(inner, _diag(b, ct_s, type))
    total = product(b, product(b, u, inner), vt)
    for term in outer:
        total = b.add(total, term)
    return (total,)


def _complement(b: Builder, full: Value, ct: Value, u: Value, s: Value, vt: Value, k: int) -> Value:
    """The part of the further columns U₂ of a full factor: -U₂ ct₂ᵀ U₁ S⁻¹ V₁ᵀ."""
    u2, ct2 = _first(b, full, k, -1, True), _first(b, ct, k, -1, True)
    inner = _over_values(b, product(b, ct2, u, tx=True), s)
    return b.neg(product(b, product(b, u2, inner), vt))


def _svd_inner(b: Builder, s: Value, mu: Value, mv: Value, values: bool) -> Value:
    """(Ku_ij s_j + s_i Kv_ij) / (s_j² - s_i²) for K = M - Mᵀ, as
    (Ku + Kv) / 2 / (s_j - s_i) + (Ku - Kv) / 2 / (s_j + s_i)."""
    shape = mu.type.shape
    ku, kv = b.sub(mu, transposed(b, mu)), b.sub(mv, transposed(b, mv))
    half = b.like(0.5, mu)
    at_j, at_i = vector_over(b, s, shape), over_rows(b, s, shape)
    scale = b.max(b.abs(mu), b.abs(mv))
    known = None
    if values:
        both = b.add(mu, mv)
        known = _negligible(b, b.add(both, transposed(b, both)), scale)
    equal = coincide(b, s, shape)
    first = _over_gap(b, b.mul(b.add(ku, kv), half), b.sub(at_j, at_i), equal, known, scale)
    total = b.add(at_j, at_i)
    top = _largest(b, s, 1, shape)
    nothing = b.le(total, b.mul(top, b.like(_epsilon(s.type), top)))
    second = _over_gap(b, b.mul(b.sub(ku, kv), half), total, nothing, None, scale)
    return b.add(first, second)


def _svd_jvp(b: AdjointBuilder, op: Op, tangents: Cts) -> Cts:
    (t,) = tangents
    if t is None:
        return (None,) * 4
    u_all, s, vt_all, _ = op.results
    k = s.type.shape[-1]
    u, vt = _first(b, u_all, k, -1), _first(b, vt_all, k, -2)
    m, n = u.type.shape[-2], vt.type.shape[-1]
    inner = product(b, product(b, u, t, tx=True), vt, ty=True)
    shape = inner.type.shape
    other = transposed(b, inner)
    at_j, at_i = vector_over(b, s, shape), over_rows(b, s, shape)
    half = b.like(0.5, inner)
    top = _largest(b, s, 1, shape)
    nothing = b.le(b.add(at_j, at_i), b.mul(top, b.like(_epsilon(s.type), top)))
    # Rotations of u and v: half the sum and half the difference of these two.
    near = _over_gap(
        b, b.mul(b.add(inner, other), half), b.sub(at_j, at_i), coincide(b, s, shape), None, inner
    )
    far = _over_gap(b, b.mul(b.sub(inner, other), half), b.add(at_j, at_i), nothing, None, inner)
    du, dv = product(b, u, b.add(near, far)), product(b, b.sub(near, far), vt, tx=True)
    if m > k:
        off = product(b, t, vt, ty=True)
        off = b.sub(off, product(b, u, inner))
        du = b.add(du, _over_values(b, off, s))
    if n > k:
        off = product(b, u, t, tx=True)
        off = b.sub(off, product(b, inner, vt))
        dv = b.add(dv, transposed(b, _over_values(b, transposed(b, off), s)))
    if u_all.type.shape[-1] > k:
        du = _joined(b, du, _moved_complement(b, u_all, t, u, s, vt, k), -1)
    if vt_all.type.shape[-2] > k:
        more = _moved_complement(
            b, transposed(b, vt_all), transposed(b, t), transposed(b, vt), s, transposed(b, u), k
        )
        dv = _joined(b, dv, transposed(b, more), -2)
    return (du, diagonal(b, inner), dv, None)


def _moved_complement(
    b: Builder, full: Value, t: Value, u: Value, s: Value, vt: Value, k: int
) -> Value:
    """dU₂ = -U₁ S⁻¹ V₁ᵀ dAᵀ U₂"""
    u2 = _first(b, full, k, -1, True)
    inner = product(b, product(b, u2, t, tx=True), vt, ty=True)
    return b.neg(product(b, u, _over_values(b, inner, s), ty=True))


def _joined(b: Builder, x: Value, y: Value, axis: int) -> Value:
    return b.concat([x, y], x.type.ndim + axis)


define(
    "svd",
    infer=_svd_infer,
    numpy=_svd_numpy,
    vjp=_svd_vjp,
    jvp=_svd_jvp,
    batch=batch_all,
    samples=matrices("f64[4,3]", full=False),
    doc="Singular value decomposition a = u diag(s) vt, s descending.",
)


# -- qr -----------------------------------------------------------------------------------


def _qr_infer(types: Types, attrs: Attrs) -> Types:
    count("qr", types, 1)
    t = real_matrix("qr", types[0])
    *lead, m, n = t.shape
    if m < n:
        raise ValueError(f"qr: needs at least as many rows as columns, got {t}")
    return (t, t.with_shape((*lead, n, n)))


def _qr_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    (a,) = arrays
    q, r = np.empty_like(a), np.empty((*a.shape[:-2], a.shape[-1], a.shape[-1]), a.dtype)
    for index, m in batched(a):
        q[index], r[index] = np.linalg.qr(m)
    return q, r


def _times_inverse(b: Builder, x: Value, r: Value, trans: bool) -> Value:
    """x r⁻¹, or x r⁻ᵀ"""
    return transposed(b, triangular_solve(b, r, transposed(b, x), False, not trans))


def _qr_vjp(b: AdjointBuilder, op: Op, cts: Cts) -> Cts:
    ct_q, ct_r = cts
    q, r = op.results
    m: Value | None = None
    if ct_r is not None:
        m = product(b, r, triangle(b, ct_r, False), ty=True)
    if ct_q is not None:
        w = product(b, ct_q, q, tx=True)
        m = b.neg(w) if m is None else b.sub(m, w)
    if m is None:
        return (None,)
    # the lower triangle, mirrored
    sym = b.select(b.ge(rows(b, m), columns(b, m)), m, transposed(b, m))
    inner = product(b, q, sym)
    return (_times_inverse(b, inner if ct_q is None else b.add(ct_q, inner), r, True),)


def _qr_jvp(b: AdjointBuilder, op: Op, tangents: Cts) -> Cts:
    (t,) = tangents
    if t is None:
        return (None, None)
    q, r = op.results
    c = _times_inverse(b, t, r, False)
    w = product(b, q, c, tx=True)
    low = triangle(b, w, True, True)
    turn = b.sub(low, transposed(b, low))
    dq = b.add(c, product(b, q, b.sub(turn, w)))
    return (dq, product(b, b.sub(w, turn), r))


define(
    "qr",
    infer=_qr_infer,
    numpy=_qr_numpy,
    vjp=_qr_vjp,
    jvp=_qr_jvp,
    batch=batch_all,
    samples=matrices("f64[4,3]"),
    doc="a = q r with orthonormal columns q and an upper triangular r.",
)
