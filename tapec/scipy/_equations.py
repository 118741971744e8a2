"""Linear equations and factors of matrices with SciPy's names: part of ``tapec.scipy.linalg``.

Where SciPy reads one triangle of a matrix, so does this.  The derivative of Cholesky factors and
of ``eigh`` is that of a function of symmetric matrices, as in ``numpy.linalg``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapec import primitives as p
from tapec.errors import TapecValueError, UnsupportedError, fail
from tapec.kinds import common_dtype
from tapec.numpy.linalg import cholesky_factor, factors, solve_triangle, swap, with_batch
from tapec.primitives import cast
from tapec.scipy._special_matrices import circulant, from_bands, matrix_of, to_bands
from tapec.scipy._traced import array, replaces, square

__all__ = [
    "cho_factor", "cho_solve", "cho_solve_banded", "cholesky", "cholesky_banded", "from_half",
    "lstsq", "lu", "lu_factor", "lu_solve", "qr", "qr_multiply", "rq", "solve", "solve_banded",
    "solve_circulant", "solve_toeplitz", "solve_triangular", "solveh_banded", "svd", "svdvals",
    "symmetric",
]  # fmt: skip


def symmetric(a: Any, lower: Any) -> Any:
    """The symmetric matrix of which one triangle is read."""
    half = np.tril(a) if lower else np.triu(a)
    off = np.tril(a, -1) if lower else np.triu(a, 1)
    return half + np.swapaxes(off, -1, -2)


def _pair(a: Any, b: Any) -> tuple[Any, Any]:
    """Matrix and right-hand side, traced, of one dtype."""
    x, y = p.strong_operands(array(a), array(b))
    dtype = common_dtype([x.kind, y.kind])
    return cast(x, dtype), cast(y, dtype)


def _triangular(a: Any, b: Any, lower: bool, trans: bool = False, unit: bool = False) -> Any:
    x, y = _pair(a, b)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise fail(TapecValueError, "expected square matrix")
    vector = y.ndim == 1
    if vector:
        y = y[:, None]
    if y.shape[-2] != x.shape[-1]:
        raise fail(TapecValueError, f"shapes of a {x.shape} and b {y.shape} are incompatible")
    lead = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    x, y = with_batch(x, lead), with_batch(y, lead)
    out = solve_triangle(x, y, lower, trans, unit)
    return out[..., 0] if vector else out


# -- equations --------------------------------------------------------------------------------

_STRUCTURES = {
    "general": "gen", "symmetric": "sym", "hermitian": "sym", "her": "sym",
    "positive definite": "pos", "upper triangular": "upper", "lower triangular": "lower",
}  # fmt: skip


@replaces
def solve(
    a: Any, b: Any, lower: Any = False, overwrite_a: Any = False, overwrite_b: Any = False,
    check_finite: Any = True, assume_a: Any = None, transposed: Any = False,
) -> Any:  # fmt: skip
    """x with a x = b.

    >>> import numpy as np, tapec
    >>> from tapec.scipy import linalg
    >>> a = np.array([[4.0, 0.0], [2.0, 3.0]])
    >>> tapec.grad(lambda b: linalg.solve(a, b, assume_a="pos", lower=True).sum())(np.ones(2))
    array([0.125, 0.25 ])
    """
    x = square(a)
    kind = _STRUCTURES.get(assume_a, assume_a) or "gen"
    if kind in ("upper", "lower"):
        return _triangular(x, b, kind == "lower", bool(transposed))
    if kind == "pos":
        return cho_solve(cho_factor(x, lower), b)
    if kind == "sym":
        x = symmetric(x, lower)
    elif kind == "diagonal":
        x = x * np.eye(x.shape[-1])
    elif kind not in ("gen", "banded", "tridiagonal"):
        raise fail(TapecValueError, f"solve: assume_a={assume_a!r} is not a known structure")
    return np.linalg.solve(np.swapaxes(x, -1, -2) if transposed else x, array(b))


@replaces
def solve_triangular(
    a: Any, b: Any, trans: Any = 0, lower: Any = False, unit_diagonal: Any = False,
    overwrite_b: Any = False, check_finite: Any = True,
) -> Any:  # fmt: skip
    """x with a x = b (``trans``: aᵀ x = b), reading one triangle of ``a``."""
    if trans not in (0, 1, 2, "N", "T", "C"):
        raise fail(TapecValueError, f"solve_triangular: trans={trans!r}")
    return _triangular(a, b, bool(lower), trans not in (0, "N"), bool(unit_diagonal))


@replaces
def solve_banded(
    l_and_u: Any, ab: Any, b: Any, overwrite_ab: Any = False, overwrite_b: Any = False,
    check_finite: Any = True,
) -> Any:  # fmt: skip
    """Through the full matrix."""
    lower, upper = l_and_u
    ab = array(ab)
    if lower + upper + 1 != ab.shape[0]:
        raise fail(
            TapecValueError,
            f"invalid values for the number of lower and upper diagonals: l+u+1 "
            f"({lower + upper + 1}) does not equal ab.shape[0] ({ab.shape[0]})",
        )
    return np.linalg.solve(from_bands(ab, lower, upper), array(b))


def from_half(ab: Any, lower: Any) -> Any:
    """The symmetric matrix of its upper (or lower) bands."""
    ab = array(ab)
    k = ab.shape[0] - 1
    full = from_bands(ab, k, 0) if lower else from_bands(ab, 0, k)
    return symmetric(full, lower)


@replaces
def solveh_banded(
    ab: Any, b: Any, overwrite_ab: Any = False, overwrite_b: Any = False, lower: Any = False,
    check_finite: Any = True,
) -> Any:  # fmt: skip
    """Through the full matrix, which must be positive definite."""
    return cho_solve(cho_factor(from_half(ab, lower), lower=True), b)


@replaces
def cholesky_banded(
    ab: Any, overwrite_ab: Any = False, lower: Any = False, check_finite: Any = True
) -> Any:
    factor = cholesky(from_half(ab, lower), lower)
    k = array(ab).shape[0] - 1
    return to_bands(factor, k, 0) if lower else to_bands(factor, 0, k)


@replaces
def cho_solve_banded(
    cb_and_lower: Any, b: Any, overwrite_b: Any = False, check_finite: Any = True
) -> Any:
    cb, lower = cb_and_lower
    cb = array(cb)
    k = cb.shape[0] - 1
    full = from_bands(cb, k, 0) if lower else from_bands(cb, 0, k)
    return cho_solve((full, lower), b)


@replaces
def solve_toeplitz(c_or_cr: Any, b: Any, check_finite: Any = True) -> Any:
    b = array(b)
    out = np.linalg.solve(matrix_of(c_or_cr), np.reshape(b, (b.shape[0], -1)))
    return np.reshape(out, b.shape)


@replaces
def solve_circulant(
    c: Any, b: Any, singular: Any = "raise", tol: Any = None, caxis: Any = -1, baxis: Any = 0,
    outaxis: Any = 0,
) -> Any:  # fmt: skip
    c, b = array(c), array(b)
    if c.ndim != 1 or (caxis, baxis, outaxis) not in ((-1, 0, 0), (0, 0, 0)):
        raise fail(UnsupportedError, "solve_circulant: one vector c, and the default axes")
    return np.linalg.solve(circulant(c), b)


@replaces
def lstsq(
    a: Any, b: Any, cond: Any = None, overwrite_a: Any = False, overwrite_b: Any = False,
    check_finite: Any = True, lapack_driver: Any = None,
) -> Any:  # fmt: skip
    eps = float(np.finfo(array(a).dtype).eps)
    x, residuals, rank, s = np.linalg.lstsq(array(a), array(b), eps if cond is None else cond)
    if array(b).ndim == 1 and residuals.shape == (1,):
        residuals = residuals[0]
    return x, residuals, rank, s


# -- factors ----------------------------------------------------------------------------------


@replaces
def cholesky(a: Any, lower: Any = False, overwrite_a: Any = False, check_finite: Any = True) -> Any:
    a = square(a)
    return cholesky_factor(a) if lower else swap(cholesky_factor(swap(a)))


@replaces
def cho_factor(
    a: Any, lower: Any = False, overwrite_a: Any = False, check_finite: Any = True
) -> Any:
    """The factor in one triangle; the other is that of ``a``, as in SciPy."""
    a = square(a)
    factor = cholesky(a, lower)
    rest = np.triu(a, 1) if lower else np.tril(a, -1)
    return factor + rest, bool(lower)


@replaces
def cho_solve(c_and_lower: Any, b: Any, overwrite_b: Any = False, check_finite: Any = True) -> Any:
    c, lower = c_and_lower
    half = _triangular(c, b, bool(lower), trans=not lower)
    return _triangular(c, half, bool(lower), trans=bool(lower))


def _lu_parts(a: Any) -> tuple[Any, Any]:
    x = square(a)
    if x.ndim != 2:
        raise fail(UnsupportedError, "the LU factors of a stack of matrices")
    lut, pivots, _ = factors(x)
    return swap(lut), pivots


def _order(pivots: Any, n: int) -> Any:
    """The rows in the order to which the exchanges bring them."""
    rows = np.arange(n)
    order: Any = rows
    for k in range(n - 1):
        other = pivots[k]
        here, there = order[k], np.sum(np.where(rows == other, order, 0))
        order = np.where(rows == k, there, np.where(rows == other, here, order))
    return order


@replaces
def lu_factor(a: Any, overwrite_a: Any = False, check_finite: Any = True) -> Any:
    factored, pivots = _lu_parts(a)
    return factored, pivots - 1


@replaces
def lu_solve(
    lu_and_piv: Any, b: Any, trans: Any = 0, overwrite_b: Any = False, check_finite: Any = True
) -> Any:
    factored, pivots = lu_and_piv
    b = array(b)
    order = _order(pivots, factored.shape[-1])
    if trans:
        half = _triangular(factored, b, lower=False, trans=True)
        out = _triangular(factored, half, lower=True, trans=True, unit=True)
        return np.take(out, np.argsort(order), axis=0)
    half = _triangular(factored, np.take(b, order, axis=0), lower=True, unit=True)
    return _triangular(factored, half, lower=False)


@replaces
def lu(
    a: Any, permute_l: Any = False, overwrite_a: Any = False, check_finite: Any = True,
    p_indices: Any = False,
) -> Any:  # fmt: skip
    """a = p l u, for square matrices."""
    factored, pivots = _lu_parts(a)
    n = factored.shape[-1]
    low = np.tril(factored, -1) + np.eye(n)
    up = np.triu(factored)
    order = _order(pivots - 1, n)
    back = np.argsort(order)
    if permute_l:
        return np.take(low, back, axis=0), up
    if p_indices:
        return back, low, up
    return (np.arange(n) == back[:, None]).astype(factored.dtype), low, up


_QR = {"full": "complete", "economic": "reduced"}


@replaces
def qr(
    a: Any, overwrite_a: Any = False, lwork: Any = None, mode: Any = "full", pivoting: Any = False,
    check_finite: Any = True,
) -> Any:  # fmt: skip
    x = array(a)
    if pivoting or mode == "raw":
        raise fail(UnsupportedError, "qr: pivoting and mode='raw' are not supported")
    m, n = x.shape[-2:]
    if mode == "r":
        if m > n:
            r = np.linalg.qr(x, "r")
            return (np.pad(r, ((0, m - n), (0, 0))),)
        return (np.linalg.qr(x, "r"),)
    if mode not in _QR:
        raise fail(TapecValueError, f"qr: mode={mode!r} is none of 'full', 'r', 'economic'")
    if mode == "full" and m > n:
        raise fail(
            UnsupportedError,
            f"qr: the full factor Q of a matrix of shape {(m, n)} is not unique",
            "use mode='economic'",
        )
    kind: Any = _QR[mode]
    return tuple(np.linalg.qr(x, kind))


@replaces
def rq(
    a: Any, overwrite_a: Any = False, lwork: Any = None, mode: Any = "full",
    check_finite: Any = True,
) -> Any:  # fmt: skip
    """a = r q, by the QR factors of the matrix with its rows turned round."""
    x = array(a)
    m, n = x.shape
    if m > n or (mode == "full" and m != n):
        raise fail(UnsupportedError, f"rq: mode={mode!r} of a matrix of shape {(m, n)}")
    q, r = np.linalg.qr(x[::-1, ::-1].T)
    upper = r.T[::-1, ::-1]
    return upper if mode == "r" else (upper, q.T[::-1, ::-1])


@replaces
def qr_multiply(
    a: Any, c: Any, mode: Any = "right", pivoting: Any = False, conjugate: Any = False,
    overwrite_a: Any = False, overwrite_c: Any = False,
) -> Any:  # fmt: skip
    """c q (or q c) and r, of the economic factors."""
    q, r = qr(a, mode="economic", pivoting=pivoting)
    c = array(c)
    return (q @ c if mode == "left" else c @ q), r


@replaces
def svd(
    a: Any, full_matrices: Any = True, compute_uv: Any = True, overwrite_a: Any = False,
    check_finite: Any = True, lapack_driver: Any = None,
) -> Any:  # fmt: skip
    x = array(a)
    if not compute_uv:
        return np.linalg.svd(x, compute_uv=False)
    return tuple(np.linalg.svd(x, full_matrices=bool(full_matrices)))


@replaces
def svdvals(a: Any, overwrite_a: Any = False, check_finite: Any = True) -> Any:
    return np.linalg.svd(array(a), compute_uv=False)
