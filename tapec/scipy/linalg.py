"""``scipy.linalg`` for traced values: ``from tapec.scipy import linalg``.

SciPy's names and arguments, for real matrices; on plain arrays every function is SciPy's own.
(``overwrite_a``, ``check_finite`` and drivers are accepted and mean nothing here.)  Where
SciPy reads one triangle of a matrix, so does this.

    from tapec.scipy.linalg import cho_factor, cho_solve, expm, solve_triangular

The functions are in ``_equations``, ``_eigenvalues``, ``_matrix_functions``, ``_special_matrices``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg as _scipy

from tapec.errors import TapecValueError, UnsupportedError, fail
from tapec.scipy._eigenvalues import (
    eig,
    eig_banded,
    eigh,
    eigh_tridiagonal,
    eigvals,
    eigvals_banded,
    eigvalsh,
    eigvalsh_tridiagonal,
)
from tapec.scipy._equations import (
    cho_factor,
    cho_solve,
    cho_solve_banded,
    cholesky,
    cholesky_banded,
    lstsq,
    lu,
    lu_factor,
    lu_solve,
    qr,
    qr_multiply,
    rq,
    solve,
    solve_banded,
    solve_circulant,
    solve_toeplitz,
    solve_triangular,
    solveh_banded,
    svd,
    svdvals,
    symmetric,
)
from tapec.scipy._matrix_functions import (
    coshm,
    cosm,
    expm,
    expm_cond,
    expm_frechet,
    fractional_matrix_power,
    logm,
    polar,
    signm,
    sinhm,
    sinm,
    solve_continuous_are,
    solve_continuous_lyapunov,
    solve_discrete_are,
    solve_discrete_lyapunov,
    solve_lyapunov,
    solve_sylvester,
    sqrtm,
    tanhm,
    tanm,
)
from tapec.scipy._special_matrices import (
    block_diag,
    circulant,
    companion,
    convolution_matrix,
    diagsvd,
    fiedler,
    fiedler_companion,
    hankel,
    khatri_rao,
    leslie,
    matmul_toeplitz,
    toeplitz,
)
from tapec.scipy._traced import array, replaces, square

__all__ = [
    "block_diag", "cho_factor", "cho_solve", "cho_solve_banded", "cholesky", "cholesky_banded",
    "circulant", "companion", "convolution_matrix", "coshm", "cosm", "det", "diagsvd", "eig",
    "eig_banded", "eigh", "eigh_tridiagonal", "eigvals", "eigvals_banded", "eigvalsh",
    "eigvalsh_tridiagonal", "expm", "expm_cond", "expm_frechet", "fiedler", "fiedler_companion",
    "fractional_matrix_power", "hankel", "inv", "khatri_rao", "leslie", "logm", "lstsq", "lu",
    "lu_factor", "lu_solve", "matmul_toeplitz", "norm", "null_space", "orth",
    "orthogonal_procrustes", "pinv", "pinvh", "polar", "qr", "qr_multiply", "rq", "signm", "sinhm",
    "sinm", "solve", "solve_banded", "solve_circulant", "solve_continuous_are",
    "solve_continuous_lyapunov", "solve_discrete_are", "solve_discrete_lyapunov", "solve_lyapunov",
    "solve_sylvester", "solve_toeplitz", "solve_triangular", "solveh_banded", "sqrtm",
    "subspace_angles", "svd", "svdvals", "tanhm", "tanm", "toeplitz",
]  # fmt: skip


@replaces
def det(a: Any, overwrite_a: Any = False, check_finite: Any = True) -> Any:
    return np.linalg.det(square(a))


@replaces
def inv(a: Any, overwrite_a: Any = False, check_finite: Any = True, **kwargs: Any) -> Any:
    return np.linalg.inv(square(a))


@replaces
def norm(
    a: Any, ord: Any = None, axis: Any = None, keepdims: Any = False, check_finite: Any = True
) -> Any:
    return np.linalg.norm(array(a), ord, axis, keepdims)


@replaces
def pinv(
    a: Any, *, atol: Any = None, rtol: Any = None, return_rank: Any = False,
    check_finite: Any = True,
) -> Any:  # fmt: skip
    x = array(a)
    if atol is not None:
        raise fail(UnsupportedError, "pinv: atol; give rtol")
    if rtol is None:
        rtol = max(x.shape[-2:]) * float(np.finfo(x.dtype).eps)
    out = np.linalg.pinv(x, rtol)
    return (out, int(np.linalg.matrix_rank(x, rtol=rtol))) if return_rank else out


@replaces
def pinvh(
    a: Any, atol: Any = None, rtol: Any = None, lower: Any = True, return_rank: Any = False,
    check_finite: Any = True,
) -> Any:  # fmt: skip
    return pinv(symmetric(square(a), lower), atol=atol, rtol=rtol, return_rank=return_rank)


@replaces
def orth(A: Any, rcond: Any = None) -> Any:
    """An orthonormal basis of the range; the rank is that of the values at hand."""
    u, rank = _basis(A, rcond)
    return u[:, :rank]


def _basis(A: Any, rcond: Any) -> tuple[Any, int]:
    x = array(A)
    u, s, _ = np.linalg.svd(x, full_matrices=False)
    if rcond is None:
        rcond = float(np.finfo(x.dtype).eps) * max(x.shape)
    return u, int(np.sum(s > np.max(s) * rcond))


@replaces
def null_space(A: Any, rcond: Any = None, **kwargs: Any) -> Any:
    """An orthonormal basis of the null space of a matrix of full column rank or less."""
    x = array(A)
    rank = _basis(x, rcond)[1]
    vh = np.linalg.svd(x, full_matrices=True)[2]
    return vh[rank:].T


@replaces
def orthogonal_procrustes(A: Any, B: Any, check_finite: Any = True) -> Any:
    """The orthogonal r with ‖A r - B‖ least, and the sum of the singular values of Aᵀ B."""
    a, b = array(A), array(B)
    if a.ndim != 2 or a.shape != b.shape:
        raise fail(TapecValueError, f"the shapes of A and B differ ({a.shape} vs {b.shape})")
    product = a.T @ b
    r, _ = polar(product)
    return r, np.sum(r * product)


@replaces
def subspace_angles(A: Any, B: Any) -> Any:
    """The principal angles, largest first, by sines where cosines are near 1."""
    qa, qb = orth(array(A)), orth(array(B))
    if qa.shape[0] != qb.shape[0]:
        raise fail(
            TapecValueError,
            f"A and B must have the same number of rows, got {qa.shape[0]} and {qb.shape[0]}",
        )
    inner = qa.T @ qb
    cosines = np.linalg.svd(inner, compute_uv=False)
    rest = qb - qa @ inner if qa.shape[1] >= qb.shape[1] else qa - qb @ inner.T
    sines = np.linalg.svd(rest, compute_uv=False)
    # a cosine near 1 belongs to a small sine: the orders are opposite
    near = cosines[::-1] ** 2 >= 0.5
    return np.where(
        near,
        np.arcsin(np.clip(np.where(near, sines, 0.0), -1.0, 1.0)),
        np.arccos(np.clip(np.where(near, 0.0, cosines[::-1]), -1.0, 1.0)),
    )


def __getattr__(name: str) -> Any:
    return getattr(_scipy, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(_scipy)})
