"""Op entries: ``cholesky``, its pullback, and ``triangular_solve``.

All work on the last two axes; the axes before them are a batch.

``cholesky(a) -> l, ok`` reads the lower triangle of ``a``.  Where ``a`` is not positive
definite, ``ok`` is False and ``l`` undefined (NaN in the reference).  The derivative takes
``a`` to be symmetric: the cotangent is.

``triangular_solve(a, b; lower, trans, unit) -> x`` with op(a) x = b, where op(a) is the
triangle of ``a``, or its transpose (``trans``); ``unit``: the diagonal is taken to be 1.

``cholesky_vjp(l, ct)`` is the cotangent of ``a`` for that of ``l``.  It is an operation, since
blocked code computes it at twice the cost of the factorisation (Murray, arXiv:1602.07527);
the closed form ``closed_cholesky_vjp`` needs six times as much.

>>> from tapec.ir import F64, Builder, Type
>>> b = Builder()
>>> [r.type for r in b.emit_op("cholesky", (b.param(Type(F64, (7, 3, 3))),)).results]
[f64[7,3,3], bool[7]]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tapec.ir.adjoint import AdjointBuilder
from tapec.ir.core import BOOL, Attrs, Op, Type, Value
from tapec.ir.matrix import (
    Cts,
    Types,
    batch_all,
    batched,
    flag,
    matrices,
    phi,
    product,
    real_matrix,
    square,
    symmetrized,
    through,
    transposed,
    triangle,
)
from tapec.ir.opdef import define

if TYPE_CHECKING:
    from tapec.ir.builder import Builder

__all__ = ["right_hand_side", "substituted", "triangular_solve"]


# -- triangular_solve ---------------------------------------------------------------------


def triangular_solve(
    b: Builder, a: Value, y: Value, lower: bool = True, trans: bool = False, unit: bool = False
) -> Value:
    return b.emit("triangular_solve", (a, y), {"lower": lower, "trans": trans, "unit": unit})


def _solve_infer(types: Types, attrs: Attrs) -> Types:
    a = square("triangular_solve", types, 2)
    for key in ("lower", "trans", "unit"):
        flag("triangular_solve", attrs, key)
    return (right_hand_side("triangular_solve", a, types[1]),)


def right_hand_side(name: str, a: Type, y: Type) -> Type:
    """The type of the right-hand side of equations with the square matrix ``a``."""
    real_matrix(name, y)
    if a.dtype is not y.dtype:
        raise TypeError(f"{name}: operands must have one dtype, got {a} and {y}")
    if a.shape[:-1] != y.shape[:-1]:
        raise ValueError(f"{name}: shapes of {a} and {y} do not fit")
    return y


def _solve_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    a, y = arrays
    out = np.empty_like(y)
    for index, m, rhs in batched(a, y):
        t = (np.tril if attrs["lower"] else np.triu)(m)
        if attrs["trans"]:
            t = t.T
        out[index] = substituted(t, rhs, attrs["lower"] != attrs["trans"], attrs["unit"])
    return out


def substituted(t: Any, rhs: Any, lower: bool, unit: bool) -> Any:
    """Substitution, forward if ``lower``."""
    n = len(t)
    x = np.array(rhs)
    for i in range(n) if lower else range(n - 1, -1, -1):
        done = slice(0, i) if lower else slice(i + 1, n)
        if done.stop > done.start:
            x[i] -= t[i, done] @ x[done]
        if not unit:
            x[i] /= t[i, i]
    return x


def _solve_vjp(b: AdjointBuilder, op: Op, cts: Cts) -> Cts:
    (ct,) = cts
    if ct is None:
        return (None, None)
    a, _ = op.operands
    x = op.results[0]
    lower, trans, unit = op.attrs["lower"], op.attrs["trans"], op.attrs["unit"]
    ct_y = triangular_solve(b, a, ct, lower, not trans, unit)
    ct_a = None
    if a in b.active:
        left, right = (x, ct_y) if trans else (ct_y, x)
        ct_a = triangle(b, b.neg(product(b, left, right, ty=True)), lower, unit)
    return (ct_a, ct_y)


def _solve_jvp(b: AdjointBuilder, op: Op, tangents: Cts) -> Cts:
    ta, ty = tangents
    a, _ = op.operands
    x = op.results[0]
    lower, trans, unit = op.attrs["lower"], op.attrs["trans"], op.attrs["unit"]
    rhs = ty
    if ta is not None:
        change = product(b, triangle(b, ta, lower, unit), x, tx=trans)
        rhs = b.neg(change) if rhs is None else b.sub(rhs, change)
    return (None if rhs is None else triangular_solve(b, a, rhs, lower, trans, unit),)


define(
    "triangular_solve",
    infer=_solve_infer,
    numpy=_solve_numpy,
    vjp=_solve_vjp,
    jvp=_solve_jvp,
    batch=batch_all,
    samples=matrices("f64[2,3,3]", "f64[2,3,4]", lower=True, trans=False, unit=False),
    doc="x with op(a) x = b for a triangle of a matrix.",
)


# -- cholesky -----------------------------------------------------------------------------


def _cholesky_infer(types: Types, attrs: Attrs) -> Types:
    t = square("cholesky", types)
    return (t, Type(BOOL, t.shape[:-2]))


def _cholesky_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    (a,) = arrays
    out, ok = np.empty_like(a), np.ones(a.shape[:-2], np.bool_)
    for index, m in batched(a):
        try:
            out[index] = np.linalg.cholesky(m)
        except np.linalg.LinAlgError:
            out[index], ok[index] = np.nan, False
    return out, ok


def _cholesky_vjp(b: AdjointBuilder, op: Op, cts: Cts) -> Cts:
    ct = cts[0]
    return (None if ct is None else b.emit("cholesky_vjp", (op.results[0], ct)),)


def _cholesky_jvp(b: AdjointBuilder, op: Op, tangents: Cts) -> Cts:
    (t,) = tangents
    if t is None:
        return (None, None)
    low = op.results[0]
    half = triangular_solve(b, low, symmetrized(b, t))
    # half and its transpose's solution are L⁻¹ T and L⁻¹ T L⁻ᵀ, for a symmetric T
    inner = triangular_solve(b, low, transposed(b, half))
    return (product(b, low, phi(b, inner)), None)


define(
    "cholesky",
    infer=_cholesky_infer,
    numpy=_cholesky_numpy,
    vjp=_cholesky_vjp,
    jvp=_cholesky_jvp,
    batch=batch_all,
    samples=matrices("f64[3,3]"),
    doc="The lower triangular l with l lᵀ = a, and whether there is one.",
)


def closed_cholesky_vjp(b: Builder, op: Op, low: Value, ct: Value) -> Sequence[Value]:
    """L⁻ᵀ Φ(Lᵀ ct) L⁻¹, symmetrised; Φ takes the lower triangle and half of the diagonal."""
    inner = phi(b, product(b, low, triangle(b, ct, True), tx=True))
    left = triangular_solve(b, low, inner, trans=True)
    both = triangular_solve(b, low, transposed(b, left), trans=True)
    return (symmetrized(b, both),)


def _pullback_infer(types: Types, attrs: Attrs) -> Types:
    t = square("cholesky_vjp", types, 2)
    if types[1] is not t:
        raise TypeError(f"cholesky_vjp: operands must have one type, got {t} and {types[1]}")
    return (t,)


def _pullback_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    low, ct = arrays
    out = np.empty_like(low)
    for index, m, g in batched(low, ct):
        inner = np.tril(m.T @ np.tril(g))
        inner[np.diag_indices_from(inner)] *= 0.5
        left = substituted(m.T, inner, False, False)
        both = substituted(m.T, left.T, False, False)
        out[index] = (both + both.T) / 2
    return out


_pullback_vjp, _pullback_jvp = through(closed_cholesky_vjp)

define(
    "cholesky_vjp",
    infer=_pullback_infer,
    numpy=_pullback_numpy,
    vjp=_pullback_vjp,
    jvp=_pullback_jvp,
    batch=batch_all,
    samples=matrices("f64[3,3]", "f64[3,3]"),
    doc="The cotangent of a matrix for that of its Cholesky factor.",
)
