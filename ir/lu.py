"""Op entries: ``lu`` and what is made of it, for square matrices with leading batch axes.

``lu(a) -> lut, pivots, ok``: Gaussian elimination with row exchanges.  ``lut`` is the packed
pair, transposed as LAPACK keeps it: its upper triangle is Lᵀ without the unit diagonal,
its lower triangle is Uᵀ.  ``pivots`` (i32) counts from 1: row i was exchanged with row
``pivots[i] - 1``, in order.  ``ok`` is False where a pivot is exactly 0.

``lu_solve``, ``lu_inverse``, ``det`` and ``slogdet`` take the matrix ``a`` beside its factors.
They compute with the factors and are differentiated with respect to ``a``, which is
cheaper by an order of n than through the factors, and needs no second factorisation:
the factors carry no derivative there.

``det`` is differentiated by ``cofactor(a)`` (adj(a)ᵀ), which is right at singular matrices.
It and its own derivative come from a singular value decomposition:
cofactor(U S Vᵀ) = det(U V) U diag(∏_{k≠i} s_k) Vᵀ.

>>> from tapec.ir import F64, Builder, Type
>>> b = Builder()
>>> [r.type for r in b.emit_op("lu", (b.param(Type(F64, (3, 3))),)).results]
[f64[3,3], i32[3], bool[]]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tapec.ir.adjoint import AdjointBuilder
from tapec.ir.checks import count
from tapec.ir.core import BOOL, I32, I64, Attrs, Op, Type, Value
from tapec.ir.matrix import (
    Cts,
    Types,
    batch_all,
    batched,
    columns,
    diagonal,
    eye,
    flag,
    matrices,
    over_rows,
    product,
    rows,
    scale,
    square,
    through,
    transposed,
    triangle,
    vector_over,
)
from tapec.ir.opdef import define
from tapec.ir.triangular import right_hand_side, substituted, triangular_solve

if TYPE_CHECKING:
    from tapec.ir.builder import Builder

__all__ = ["lu_parts", "others_product"]


# -- lu -----------------------------------------------------------------------------------


def _lu_infer(types: Types, attrs: Attrs) -> Types:
    t = square("lu", types)
    return (t, Type(I32, t.shape[:-1]), Type(BOOL, t.shape[:-2]))


def _lu_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    (a,) = arrays
    lut, ok = np.empty_like(a), np.ones(a.shape[:-2], np.bool_)
    pivots = np.empty(a.shape[:-1], np.int32)
    for index, m in batched(a):
        m = m.copy()
        ok[index] = _eliminate(m, pivots[index])
        lut[index] = m.T
    return lut, pivots, ok


def _eliminate(m: Any, pivots: Any, block: int = 32) -> bool:
    """LU factors in place of ``m``, by blocks of columns; whether no pivot is 0."""
    n, ok = len(m), True
    for start in range(0, n, block):
        stop = min(start + block, n)
        for k in range(start, stop):
            p = k + int(np.argmax(np.abs(m[k:, k])))
            pivots[k] = p + 1
            m[[k, p]] = m[[p, k]]
            if m[k, k] == 0:
                ok = False
                continue
            m[k + 1 :, k] /= m[k, k]
            m[k + 1 :, k + 1 : stop] -= np.outer(m[k + 1 :, k], m[k, k + 1 : stop])
        for k in range(start, stop):
            m[k + 1 : stop, stop:] -= np.outer(m[k + 1 : stop, k], m[k, stop:])
        m[stop:, stop:] -= m[stop:, start:stop] @ m[start:stop, stop:]
    return ok


def _take_rows(b: Builder, x: Value, perm: Value) -> Value:
    """Row ``perm[i]`` of each matrix at row i."""
    lead = perm.type.shape[:-1]
    indices = [b.iota(perm.type.shape, k) for k in range(len(lead))]
    return b.gather(x, [*indices, perm], tuple(range(len(lead) + 1)))


def _permutation(b: Builder, pivots: Value, inverse: bool) -> Value:
    return b.emit("pivots_to_perm", (pivots,), {"inverse": inverse})


def lu_parts(b: Builder, lut: Value) -> tuple[Value, Value]:
    """L with its unit diagonal, and U."""
    packed = transposed(b, lut)
    low = b.add(triangle(b, packed, True, True), eye(b, packed.type))
    return low, triangle(b, packed, False)


def _lu_vjp(b: AdjointBuilder, op: Op, cts: Cts) -> Cts:
    """With P A = L U: dL = L tril(M, -1) and dU = triu(M) U, where M = L⁻¹ P dA U⁻¹."""
    if cts[0] is None:
        return (None,)
    ct = transposed(b, cts[0])
    lut, pivots, _ = op.results
    low, up = lu_parts(b, lut)
    inner = b.add(
        triangle(b, product(b, low, triangle(b, ct, True, True), tx=True), True, True),
        triangle(b, product(b, triangle(b, ct, False), up, ty=True), False),
    )
    # L⁻ᵀ inner U⁻ᵀ
    left = triangular_solve(b, lut, inner, False, False, True)
    both = transposed(b, triangular_solve(b, up, transposed(b, left), False))
    return (_take_rows(b, both, _permutation(b, pivots, True)),)


def _lu_jvp(b: AdjointBuilder, op: Op, tangents: Cts) -> Cts:
    (t,) = tangents
    if t is None:
        return (None, None, None)
    lut, pivots, _ = op.results
    low, up = lu_parts(b, lut)
    moved = _take_rows(b, t, _permutation(b, pivots, False))
    left = triangular_solve(b, lut, moved, False, True, True)
    inner = transposed(b, triangular_solve(b, up, transposed(b, left), False, True))
    change = b.add(
        product(b, low, triangle(b, inner, True, True)),
        product(b, triangle(b, inner, False), up),
    )
    return (transposed(b, change), None, None)


define(
    "lu",
    infer=_lu_infer,
    numpy=_lu_numpy,
    vjp=_lu_vjp,
    jvp=_lu_jvp,
    batch=batch_all,
    samples=matrices("f64[3,3]"),
    doc="Packed triangular factors (transposed) and row exchanges of a square matrix.",
)


def _perm_infer(types: Types, attrs: Attrs) -> Types:
    count("pivots_to_perm", types, 1)
    flag("pivots_to_perm", attrs, "inverse")
    if types[0].dtype is not I32 or not types[0].ndim:
        raise TypeError(f"pivots_to_perm: needs pivots, got {types[0]}")
    return (types[0].with_dtype(I64),)


def _perm_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    (pivots,) = arrays
    out = np.empty(pivots.shape, np.int64)
    for index in np.ndindex(pivots.shape[:-1]):
        perm = np.arange(pivots.shape[-1])
        for i, p in enumerate(pivots[index]):
            perm[[i, p - 1]] = perm[[p - 1, i]]
        out[index] = np.argsort(perm) if attrs["inverse"] else perm
    return out


define(
    "pivots_to_perm",
    infer=_perm_infer,
    numpy=_perm_numpy,
    batch=batch_all,
    nondifferentiable=True,
    samples=matrices("i32[3]", inverse=False),
    doc="The permutation with P A = A[perm], or its `inverse`, of a sequence of exchanges.",
)


# -- what is computed from the factors ------------------------------------------------------


def _with_factors(name: str, types: Types, n: int) -> Type:
    t = square(name, types, n)
    if types[1] is not t or types[2] is not Type(I32, t.shape[:-1]):
        raise TypeError(f"{name}: {types[1]} and {types[2]} are not factors of {t}")
    return t


def _factors(op: Op) -> tuple[Value, Value, Value]:
    a, lut, pivots = op.operands[:3]
    return a, lut, pivots


def _lu_solve_infer(types: Types, attrs: Attrs) -> Types:
    t = _with_factors("lu_solve", types, 4)
    flag("lu_solve", attrs, "trans")
    return (right_hand_side("lu_solve", t, types[3]),)


def _lu_solve_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    _, lut, pivots, y = arrays
    out = np.empty_like(y)
    for index, m, rhs in batched(lut, y):
        perm = _perm_numpy([pivots[index]], {"inverse": attrs["trans"]})
        if attrs["trans"]:
            half = substituted(np.tril(m), rhs, True, False)
            out[index] = substituted(np.triu(m), half, False, True)[perm]
        else:
            half = substituted(np.triu(m).T, rhs[perm], True, True)
            out[index] = substituted(np.tril(m).T, half, False, False)
    return out


def _lu_solve(b: Builder, op: Op, y: Value, trans: bool) -> Value:
    return b.emit("lu_solve", (*_factors(op), y), {"trans": trans})


def _lu_solve_vjp(b: AdjointBuilder, op: Op, cts: Cts) -> Cts:
    (ct,) = cts
    if ct is None:
        return (None,) * 4
    trans = op.attrs["trans"]
    ct_y = _lu_solve(b, op, ct, not trans)
    ct_a = None
    if op.operands[0] in b.active:
        x = op.results[0]
        left, right = (x, ct_y) if trans else (ct_y, x)
        ct_a = b.neg(product(b, left, right, ty=True))
    return (ct_a, None, None, ct_y)


def _lu_solve_jvp(b: AdjointBuilder, op: Op, tangents: Cts) -> Cts:
    ta, _, _, ty = tangents
    trans = op.attrs["trans"]
    rhs = ty
    if ta is not None:
        change = product(b, ta, op.results[0], tx=trans)
        rhs = b.neg(change) if rhs is None else b.sub(rhs, change)
    return (None if rhs is None else _lu_solve(b, op, rhs, trans),)


define(
    "lu_solve",
    infer=_lu_solve_infer,
    numpy=_lu_solve_numpy,
    vjp=_lu_solve_vjp,
    jvp=_lu_solve_jvp,
    batch=batch_all,
    samples=matrices("f64[3,3]", "f64[3,3]", "i32[3]", "f64[3,2]", trans=False),
    doc="x with a x = b (or aᵀ x = b, `trans`), by the factors of a.",
)


def _inverse_infer(types: Types, attrs: Attrs) -> Types:
    return (_with_factors("lu_inverse", types, 3),)


def _inverse_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    a = arrays[0]
    identity = np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape)
    return _lu_solve_numpy([*arrays, identity], {"trans": True})


def _inverse_vjp(b: AdjointBuilder, op: Op, cts: Cts) -> Cts:
    """Z = a⁻ᵀ: dZ = -Z daᵀ Z."""
    (ct,) = cts
    z = op.results[0]
    if ct is None or op.operands[0] not in b.active:
        return (None,) * 3
    inner = product(b, z, transposed(b, ct))
    return (b.neg(product(b, inner, z)), None, None)


def _inverse_jvp(b: AdjointBuilder, op: Op, tangents: Cts) -> Cts:
    ta, z = tangents[0], op.results[0]
    if ta is None:
        return (None,)
    return (b.neg(product(b, product(b, z, ta, ty=True), z)),)


define(
    "lu_inverse",
    infer=_inverse_infer,
    numpy=_inverse_numpy,
    vjp=_inverse_vjp,
    jvp=_inverse_jvp,
    batch=batch_all,
    samples=matrices("f64[3,3]", "f64[3,3]", "i32[3]"),
    doc="The transpose of a⁻¹, by the factors of a.",
)


# -- determinants ---------------------------------------------------------------------------


def _det_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    _, lut, pivots = arrays
    exchanged = np.sum(pivots != np.arange(1, pivots.shape[-1] + 1), axis=-1)
    diag = np.diagonal(lut, axis1=-2, axis2=-1)
    return np.prod(diag, axis=-1) * np.where(exchanged % 2, -1, 1).astype(lut.dtype)


def _det_infer(types: Types, attrs: Attrs) -> Types:
    t = _with_factors("det", types, 3)
    return (t.with_shape(t.shape[:-2]),)


def _spread(b: Builder, x: Value, t: Type) -> Value:
    """One number per matrix, at every element of it."""
    return b.broadcast(x, t.shape, tuple(range(x.type.ndim)))


def _det_vjp(b: AdjointBuilder, op: Op, cts: Cts) -> Cts:
    (ct,) = cts
    a = op.operands[0]
    if ct is None or a not in b.active:
        return (None,) * 3
    return (
        b.ct_mul(_masked_like(b, _spread(b, ct, a.type), ct), b.unary("cofactor", a)),
        None,
        None,
    )


def _masked_like(b: AdjointBuilder, x: Value, ct: Value) -> Value:
    return b.mask(x) if b.is_masked(ct) else x


def _trace_of(b: Builder, x: Value, y: Value) -> Value:
    """tr(xᵀ y)"""
    n = x.type.ndim
    lead = tuple(range(n - 2))
    return b.dot(x, y, ((n - 2, n - 1), (n - 2, n - 1)), (lead, lead))


def _det_jvp(b: AdjointBuilder, op: Op, tangents: Cts) -> Cts:
    a, ta = op.operands[0], tangents[0]
    return (None if ta is None else _trace_of(b, b.unary("cofactor", a), ta),)


define(
    "det",
    infer=_det_infer,
    numpy=_det_numpy,
    vjp=_det_vjp,
    jvp=_det_jvp,
    batch=batch_all,
    samples=matrices("f64[3,3]", "f64[3,3]", "i32[3]"),
    doc="The determinant of a, by the factors of a; the derivative holds for singular a too.",
)


def _slogdet_infer(types: Types, attrs: Attrs) -> Types:
    t = _with_factors("slogdet", types, 3)
    return (t.with_shape(t.shape[:-2]),) * 2


def _slogdet_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    a, lut, pivots = arrays
    diag = np.diagonal(lut, axis1=-2, axis2=-1)
    signs = np.zeros_like(lut)
    index = np.arange(lut.shape[-1])
    signs[..., index, index] = np.sign(diag)
    return _det_numpy([a, signs, pivots], {}), np.sum(np.log(np.abs(diag)), axis=-1)


def _slogdet_vjp(b: AdjointBuilder, op: Op, cts: Cts) -> Cts:
    ct = cts[1]
    a = op.operands[0]
    if ct is None or a not in b.active:
        return (None,) * 3
    inverse = b.emit("lu_inverse", _factors(op))
    return (b.ct_mul(_masked_like(b, _spread(b, ct, a.type), ct), inverse), None, None)


def _slogdet_jvp(b: AdjointBuilder, op: Op, tangents: Cts) -> Cts:
    ta = tangents[0]
    if ta is None:
        return (None, None)
    return (None, _trace_of(b, b.emit("lu_inverse", _factors(op)), ta))


define(
    "slogdet",
    infer=_slogdet_infer,
    numpy=_slogdet_numpy,
    vjp=_slogdet_vjp,
    jvp=_slogdet_jvp,
    batch=batch_all,
    samples=matrices("f64[3,3]", "f64[3,3]", "i32[3]"),
    doc="Sign and logarithm of |det a|, by the factors of a.",
)


def others_product(b: Builder, s: Value, pairs: bool) -> Value:
    """∏ s_k over k ≠ i, or at (i, j) over k ≠ i, j: without divisions, so also at zeros."""
    *lead, n = s.type.shape
    d = 2 if pairs else 1
    shape = (*lead, *[n] * d, n)
    full = b.broadcast(s, shape, (*range(len(lead)), len(shape) - 1))
    k = b.iota(shape, len(shape) - 1)
    skip = b.eq(k, b.iota(shape, len(lead)))
    if pairs:
        skip = b.logical_or(skip, b.eq(k, b.iota(shape, len(lead) + 1)))
    return b.reduce("prod", b.select(skip, b.like(1, full), full), (len(shape) - 1,))


def _handedness(b: Builder, u: Value, vt: Value) -> Value:
    """det(U) det(V), which is ±1."""
    sign = None
    for x in (u, vt):
        lut, pivots, _ = b.emit_op("lu", (x,)).results
        s = b.emit_op("slogdet", (x, lut, pivots)).results[0]
        sign = s if sign is None else b.mul(sign, s)
    assert sign is not None
    return sign


def _decomposed(b: Builder, a: Value) -> tuple[Value, Value, Value, Value]:
    u, s, vt, _ = b.emit_op("svd", (a,), {"full": False}).results
    return u, s, vt, _handedness(b, u, vt)


def closed_cofactor(b: Builder, op: Op, a: Value) -> Sequence[Value]:
    u, s, vt, sign = _decomposed(b, a)
    inner = product(b, scale(b, u, others_product(b, s, False)), vt)
    return (b.mul(inner, _spread(b, sign, a.type)),)


def closed_cofactor_jvp(b: Builder, op: Op, a: Value, t: Value) -> Sequence[Value]:
    """The derivative at diag(s) in the direction E: at (i, i) Σ_j g_ij E_jj over j ≠ i, at (i, j)
    -g_ij E_ji, with g_ij = ∏ s_k over k ≠ i, j."""
    u, s, vt, sign = _decomposed(b, a)
    e = product(b, product(b, u, t, tx=True), vt, ty=True)
    zero = b.zeros(e.type)
    off = b.ne(rows(b, e), columns(b, e))
    g = b.select(off, others_product(b, s, True), zero)
    n = e.type.ndim
    sums = b.reduce_sum(b.mul(g, vector_over(b, diagonal(b, e), e.type.shape)), (n - 1,))
    inner = b.select(off, b.neg(b.mul(g, transposed(b, e))), over_rows(b, sums, e.type.shape))
    full = product(b, product(b, u, inner), vt)
    return (b.mul(full, _spread(b, sign, a.type)),)


def _cofactor_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    u, s, vt = np.linalg.svd(arrays[0])
    n = s.shape[-1]
    others = np.empty_like(s)
    for i in range(n):
        others[..., i] = np.prod(np.delete(s, i, axis=-1), axis=-1)
    sign = np.round(np.linalg.det(u) * np.linalg.det(vt))
    return (u * others[..., None, :]) @ vt * sign[..., None, None].astype(s.dtype)


def _cofactor_vjp(b: AdjointBuilder, op: Op, cts: Cts) -> Cts:
    (ct,) = cts
    # The derivative of the cofactor matrix, the second one of det, is symmetric.
    return (None if ct is None else b.emit("cofactor_jvp", (op.operands[0], ct)),)


def _cofactor_jvp(b: AdjointBuilder, op: Op, tangents: Cts) -> Cts:
    (t,) = tangents
    return (None if t is None else b.emit("cofactor_jvp", (op.operands[0], t)),)


define(
    "cofactor",
    infer=lambda types, attrs: (square("cofactor", types),),
    numpy=_cofactor_numpy,
    vjp=_cofactor_vjp,
    jvp=_cofactor_jvp,
    batch=batch_all,
    samples=matrices("f64[3,3]"),
    doc="The derivative of det: det(a) a⁻ᵀ where a is invertible.",
)


def _cofactor_jvp_infer(types: Types, attrs: Attrs) -> Types:
    t = square("cofactor_jvp", types, 2)
    if types[1] is not t:
        raise TypeError(f"cofactor_jvp: operands must have one type, got {t} and {types[1]}")
    return (t,)


def _cofactor_jvp_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    a, t = arrays
    u, s, vt = np.linalg.svd(a)
    sign = np.round(np.linalg.det(u) * np.linalg.det(vt))
    out = np.empty_like(a)
    for index, u_, vt_, t_ in batched(u, vt, t):
        e = u_.T @ t_ @ vt_.T
        n = len(e)
        inner = np.zeros_like(e)
        for i in range(n):
            for j in range(n):
                if i != j:
                    g = np.prod(np.delete(s[index], [i, j]))
                    inner[i, i] += g * e[j, j]
                    inner[i, j] -= g * e[j, i]
        out[index] = u_ @ inner @ vt_ * sign[index]
    return out


_second_vjp, _second_jvp = through(closed_cofactor_jvp)

define(
    "cofactor_jvp",
    infer=_cofactor_jvp_infer,
    numpy=_cofactor_jvp_numpy,
    vjp=_second_vjp,
    jvp=_second_jvp,
    batch=batch_all,
    samples=matrices("f64[3,3]", "f64[3,3]"),
    doc="The derivative of the cofactor matrix in a direction.",
)
