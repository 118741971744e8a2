"""``numpy.linalg``: eigenvalues, singular values, QR, and what is made of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapec import primitives as p
from tapec.errors import TapecLinAlgError, TapecValueError, UnsupportedError, fail
from tapec.ir.core import I64
from tapec.kinds import common_dtype
from tapec.numpy.linalg import check, inv, matrix, named, square_matrix, swap
from tapec.numpy.products import matmul
from tapec.numpy.registry import implements
from tapec.numpy.ufuncs import real_float
from tapec.primitives import binary, cast, emit, emit_many, reshape
from tapec.tracer import Tracer

__all__ = ["pseudo_inverse", "singular_values"]


# -- symmetric matrices -----------------------------------------------


def _eigen(a: Any, uplo: Any) -> list[Tracer]:
    x = square_matrix(a)
    side = str(uplo).upper()
    if side not in ("L", "U"):
        raise fail(TapecValueError, "UPLO argument must be 'L' or 'U'")
    w, vt, ok = emit_many("eigh", (x if side == "L" else swap(x),))
    check(ok, "Eigenvalues did not converge")
    return [w, vt]


@implements(np.linalg.eigh)
def eigh(a: Any, UPLO: Any = "L") -> Any:
    w, vt = _eigen(a, UPLO)
    return named("eigh", (w, swap(vt)))


@implements(np.linalg.eigvalsh)
def eigvalsh(a: Any, UPLO: Any = "L") -> Tracer:
    return _eigen(a, UPLO)[0]


# -- singular values -----------------------------------------------


def _decomposed(x: Tracer, full: bool) -> list[Tracer]:
    u, s, vt, ok = emit_many("svd", (x,), {"full": full})
    check(ok, "SVD did not converge")
    return [u, s, vt]


def singular_values(x: Tracer) -> Tracer:
    if 0 in x.type.shape[-2:]:
        return p.full(x.tape, (*x.type.shape[:-2], 0), 0.0, x.type.dtype)
    return _decomposed(x, False)[1]


@implements(np.linalg.svd)
def svd(a: Any, full_matrices: Any = True, compute_uv: Any = True, hermitian: Any = False) -> Any:
    x = matrix(a)
    if not compute_uv:
        return singular_values(x)
    return named("svd", _decomposed(x, bool(full_matrices) and x.shape[-1] != x.shape[-2]))


@implements(getattr(np.linalg, "svdvals", ""))
def svdvals(x: Any, /) -> Tracer:
    return singular_values(matrix(x))


def _largest(s: Tracer) -> Tracer:
    """The largest of each row of singular values, kept as an axis of length 1."""
    lead = s.type.shape[:-1]
    return reshape(p.reduce("max", s, (len(lead),)), (*lead, 1))


@implements(np.linalg.matrix_rank)
def matrix_rank(A: Any, tol: Any = None, hermitian: Any = False, *, rtol: Any = None) -> Tracer:
    a = real_float(A)
    if a.type.ndim < 2:
        zero = binary("eq", a, 0.0)
        nothing = p.reduce("all", zero, range(zero.type.ndim))
        return binary("sub", 1, cast(nothing, I64))
    s = singular_values(a)
    if tol is None:
        if rtol is None:
            rtol = max(a.type.shape[-2:]) * float(np.finfo(a.type.dtype.np).eps)
        tol = binary("mul", _largest(s), _column(rtol))
    else:
        tol = _column(tol)
    return p.reduce("sum", cast(binary("gt", s, tol), I64), (s.type.ndim - 1,))


def _column(x: Any) -> Any:
    """A tolerance per matrix beside its singular values."""
    return x if np.ndim(x) == 0 else np.asarray(x)[..., None]


@implements(np.linalg.cond)
def cond(x: Any, p: Any = None) -> Tracer:
    a = matrix(x)
    if p is None or p in (2, -2):
        s = singular_values(a)
        first, last = s[..., 0], s[..., -1]
        return binary("div", last, first) if p == -2 else binary("div", first, last)
    norm: Any = np.linalg.norm
    other = inv(square_matrix(a))
    return binary("mul", norm(a, p, axis=(-2, -1)), norm(other, p, axis=(-2, -1)))


# -- QR -----------------------------------------------


@implements(np.linalg.qr)
def qr(a: Any, mode: Any = "reduced") -> Any:
    x = matrix(a)
    m, n = x.type.shape[-2:]
    if mode not in ("reduced", "complete", "r"):
        if mode == "raw":
            raise fail(UnsupportedError, "qr: mode='raw' is not supported on traced values")
        raise fail(TapecValueError, f"Unrecognized mode '{mode}'")
    if mode == "complete" and m > n:
        raise fail(
            UnsupportedError,
            f"qr: mode='complete' of a matrix of shape {(m, n)} is not supported on traced values",
            "use mode='reduced'",
        )
    if m >= n:
        q, r = emit_many("qr", (x,))
    else:  # the factors of the leading square, and the other columns in its basis
        q, r = emit_many("qr", (x[..., :m],))
        r = p.concat([r, matmul(swap(q), x[..., m:])], r.type.ndim - 1)
    return r if mode == "r" else named("qr", (q, r))


# -- least squares -----------------------------------------------


def pseudo_inverse(x: Tracer, rcond: Any) -> Tracer:
    if 0 in x.type.shape[-2:]:
        shape = (*x.type.shape[:-2], x.type.shape[-1], x.type.shape[-2])
        return p.full(x.tape, shape, 0.0, x.type.dtype)
    try:
        cut = float(rcond)
    except TypeError:
        raise fail(UnsupportedError, "pinv: rcond must be one number") from None
    return emit("pinv", (x,), {"rcond": cut})


@implements(np.linalg.pinv)
def pinv(a: Any, rcond: Any = None, hermitian: Any = False, *, rtol: Any = np._NoValue) -> Tracer:
    x = matrix(a)
    if rcond is None:
        rcond = 1e-15 if rtol is np._NoValue else rtol
        if rcond is None:
            rcond = max(x.type.shape[-2:]) * float(np.finfo(x.type.dtype.np).eps)
    return pseudo_inverse(x, rcond)


@implements(np.linalg.lstsq)
def lstsq(a: Any, b: Any, rcond: Any = None) -> tuple[Any, Any, Any, Any]:
    x, y = p.strong_operands(a, b)
    x, y = matrix(x), real_float(y)
    dtype = common_dtype([x.kind, y.kind])
    x, y = cast(x, dtype), cast(y, dtype)
    if x.type.ndim != 2 or y.type.ndim not in (1, 2):
        raise fail(
            TapecLinAlgError,
            f"{x.type.ndim}-dimensional array given. Array must be two-dimensional",
        )
    m, n = x.type.shape
    if y.type.shape[0] != m:
        raise fail(TapecLinAlgError, "Incompatible dimensions")
    eps = float(np.finfo(dtype.np).eps)
    if rcond is None:
        cut = eps * max(m, n)
    else:
        cut = eps if rcond < 0 else float(rcond)
    s = singular_values(x)
    rank = int(matrix_rank(x, rtol=cut))  # decided now, with a guard
    solution = matmul(pseudo_inverse(x, cut), y)
    if rank == n < m:
        rest = binary("sub", y, matmul(x, solution))
        residuals = p.reduce("sum", binary("mul", rest, rest), (0,))
        if not residuals.type.shape:
            residuals = reshape(residuals, (1,))
    else:
        residuals = p.full(x.tape, (0,), 0.0, dtype)
    return solution, residuals, rank, s


# -- matrix norms -----------------------------------------------


def spectral_norm(a: Tracer, ord: Any) -> Tracer:
    """The norms that are made of singular values, over the last two axes."""
    s = singular_values(a)
    axis = (s.type.ndim - 1,)
    if ord == "nuc":
        return p.reduce("sum", s, axis)
    if ord in (2, -2):
        return p.reduce("max" if ord == 2 else "min", s, axis)
    raise fail(TapecValueError, "Invalid norm order for matrices.")
