"""``tapec.scipy.linalg`` on traced values: values against SciPy, derivatives, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg as sl
from surface import check

import tapec
from tapec.scipy import linalg as tl

rng = np.random.default_rng(11)
A = rng.normal(size=(3, 3)) + 3 * np.eye(3)
B = rng.normal(size=(3, 3)) - 2 * np.eye(3)
S = A @ A.T + np.diag([1.0, 2.0, 4.0])
Q = B @ B.T + np.eye(3)
C = rng.normal(size=(3, 2))
V = np.array([3.0, 0.4, -0.7])
W = np.array([0.5, 1.1])
TALL = rng.normal(size=(4, 2))
TALL2 = rng.normal(size=(4, 2))
BANDS = np.array([[0.0, 1.0, -0.5, 0.3], [4.0, 5.0, 4.5, 6.0], [0.7, -1.0, 0.2, 0.0]])
HALF = np.array([[0.0, 1.0, -0.5, 0.3], [4.0, 5.0, 4.5, 6.0]])
LOW = np.array([[4.0, 5.0, 4.5, 6.0], [1.0, -0.5, 0.3, 0.0]])
X4 = np.array([1.0, -2.0, 0.5, 0.3])
Case = tuple[Callable[..., Any], tuple[Any, ...]]

CASES: list[Case] = [
    (lambda a, b: tl.block_diag(a, b, [2.0]), (A, C)), (lambda c: tl.toeplitz(c), (V,)), (lambda c, r: tl.toeplitz(c, r), (V, X4)),
    (lambda c: tl.hankel(c), (V,)), (lambda c, r: tl.hankel(c, r), (V, X4)), (lambda c: tl.circulant(c), (V,)), (lambda a: tl.companion(a), (X4,)),
    (lambda f, s: tl.leslie(f, s), (V, W)), (lambda a: tl.fiedler(a), (V,)), *[(lambda a: tl.fiedler_companion(a), (rng.normal(size=n) + 2,)) for n in (2, 3, 4, 5, 6, 7)],
    *[(lambda a, m=m: tl.convolution_matrix(a, 4, m), (V,)) for m in ("full", "same", "valid")], (lambda a: tl.convolution_matrix(a, 3, "same"), (X4,)),
    (lambda a, b: tl.khatri_rao(a, b), (C, TALL)), (lambda s: tl.diagsvd(s, 2, 3), (W,)), (lambda c, r, x: tl.matmul_toeplitz((c, r), x), (V, X4, TALL)),
    (lambda a: tl.cho_factor(a + a.T)[0], (S,)), (lambda a: tl.cho_factor(a + a.T, lower=True)[0], (S,)), (lambda a, b: tl.cho_solve(tl.cho_factor(a + a.T), b), (S, V)),
    (lambda a, b: tl.cho_solve(tl.cho_factor(a + a.T, lower=True), b), (S, C)), (lambda a: tl.cholesky(a + a.T), (S,)), (lambda a: tl.cholesky(a + a.T, lower=True), (S,)),
    (lambda a: tl.det(a), (A,)), (lambda a: tl.inv(a), (A,)), (lambda a, b: tl.solve(a, b), (A, V)), (lambda a, b: tl.solve(a, b, transposed=True), (A, C)),
    *[(lambda a, b, s=s: tl.solve(a + a.T, b, assume_a=s), (S, C)) for s in ("sym", "pos", "her", "gen")], (lambda a, b: tl.solve(a + a.T, b, assume_a="pos", lower=True), (S, C)),
    *[(lambda a, b, s=s: tl.solve(a, b, assume_a=s), (A, C)) for s in ("diagonal", "upper triangular", "lower triangular")],
    *[(lambda a, b, t=t, lo=lo, u=u: tl.solve_triangular(a, b, trans=t, lower=lo, unit_diagonal=u), (A, C)) for t in (0, 1) for lo in (False, True) for u in (False, True)],
    (lambda a: tl.lu(a), (A,)), (lambda a: tl.lu(a, permute_l=True), (A[::-1].copy(),)), (lambda a: tl.lu_factor(a), (A[[1, 2, 0]],)),
    (lambda a: tl.lu(a, p_indices=True)[1:], (A[[1, 2, 0]],)),
    *[(lambda a, b, t=t: tl.lu_solve(tl.lu_factor(a), b, trans=t), (A[[2, 0, 1]], C)) for t in (0, 1)],
    (lambda a, b: tl.lstsq(a, b)[0], (TALL, X4)), (lambda a, b: tl.lstsq(a, b)[1], (TALL, X4)), (lambda a: tl.qr(a), (A,)), (lambda a: tl.qr(a, mode="economic"), (TALL,)), (lambda a: tl.qr(a, mode="r"), (TALL,)),
    (lambda a: tl.rq(a), (A,)), (lambda a: tl.rq(a, mode="economic"), (TALL.T.copy(),)), (lambda a, c: tl.qr_multiply(a, c), (A, A)), (lambda a, c: tl.qr_multiply(a, c, mode="left"), (A, C)),
    (lambda a: tl.svdvals(a), (TALL,)), (lambda a: tl.svd(a, full_matrices=False)[0] ** 2, (TALL,)), (lambda a: tl.svd(a, compute_uv=False), (A,)),
    (lambda a: tl.eigh(a + a.T)[1] ** 2, (S,)), (lambda a: tl.eigh(a + a.T, lower=False, eigvals_only=True, subset_by_index=[0, 1]), (S,)), (lambda a, b: tl.eigh(a + a.T, b + b.T)[1] ** 2, (S, Q)), (lambda a, b: tl.eigvalsh(a + a.T, b + b.T), (S, Q)),
    (lambda d, e: tl.eigvalsh_tridiagonal(d, e), (V, W)), (lambda d, e: tl.eigh_tridiagonal(d, e)[1] ** 2, (V, W)), (lambda d, e: tl.eigvalsh_tridiagonal(d, e, "i", (1, 2)), (V, W)),
    (lambda a: tl.eigvals_banded(a), (HALF,)), (lambda a: tl.eig_banded(a, lower=True)[0], (LOW,)),
    (lambda a: tl.expm(a), (A,)), (lambda a: tl.expm(5 * a), (B,)), (lambda a: tl.expm(0.001 * a), (A,)), (lambda a: tl.expm(a), (np.stack([A, 0.1 * B]),)), (lambda a, e: tl.expm_frechet(a, e), (A, B)), (lambda a: tl.expm_cond(a), (0.3 * B,)),
    *[(lambda a, n=n: getattr(tl, n)(a), (0.4 * A,)) for n in ("sinm", "cosm", "tanm", "sinhm", "coshm", "tanhm")],
    (lambda a: tl.logm(a), (S,)), (lambda a: tl.sqrtm(a), (S,)), (lambda a: tl.logm(a), (np.array([[1.0, 1.0], [0.0, 1.0]]),)), (lambda a: tl.sqrtm(a), (np.eye(2),)),
    (lambda a: tl.fractional_matrix_power(a, 0.3), (S,)), (lambda a: tl.fractional_matrix_power(a, -2), (A,)), (lambda a: tl.signm(a), (A @ np.diag([1.0, -2.0, 1.5]) @ np.linalg.inv(A),)),
    (lambda a: tl.polar(a), (A,)), (lambda a: tl.polar(a, "left"), (A,)), (lambda a: tl.polar(a), (TALL,)), (lambda a: tl.polar(a), (np.eye(3),)), (lambda a: tl.polar(a, "left"), (TALL.T.copy(),)),
    (lambda a, b: tl.orthogonal_procrustes(a, b), (TALL, TALL2)), (lambda a, b, q: tl.solve_sylvester(a, b, q), (A, W[:, None] * np.eye(2) + 1, C)),
    (lambda a, q: tl.solve_continuous_lyapunov(a, q), (A, Q)), (lambda a, q: tl.solve_discrete_lyapunov(a, q), (0.2 * A, Q)),
    (lambda a, b, q, r: tl.solve_continuous_are(a, b, q + q.T, r + r.T), (A, C, Q, np.eye(2))), (lambda a, b, q, r: tl.solve_discrete_are(a, b, q + q.T, r + r.T), (A, C, Q, np.eye(2))),
    (lambda ab, b: tl.solve_banded((1, 1), ab, b), (BANDS, X4)), (lambda ab, b: tl.solveh_banded(ab, b), (HALF, X4)), (lambda ab, b: tl.solveh_banded(ab, b, lower=True), (LOW, X4)),
    (lambda ab: tl.cholesky_banded(ab)[:, 1:], (HALF,)), (lambda ab: tl.cholesky_banded(ab, lower=True)[:, :3], (LOW,)), (lambda cb, b: tl.cho_solve_banded((cb, False), b), (HALF, X4)),
    (lambda c, b: tl.solve_toeplitz(c, b), (V, C)), (lambda c, r, b: tl.solve_toeplitz((c, r), b), (V, V + 0.1 * np.array([0.0, 1.0, 2.0]), V)), (lambda c, b: tl.solve_circulant(c, b), (V, C)),
    *[(lambda a, o=o: tl.norm(a, o), (A,)) for o in (None, 1, 2, np.inf)], (lambda a: tl.norm(a, axis=1), (A,)), (lambda a: tl.pinv(a), (TALL,)), (lambda a: tl.pinvh(a), (S,)),
    (lambda a: tl.orth(a) @ tl.orth(a).T, (TALL,)), (lambda a, b: tl.subspace_angles(a, b), (TALL, TALL2)), (lambda a, b: tl.subspace_angles(a, b), (TALL, TALL + 0.1 * TALL2)),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.filterwarnings("ignore:.*")
def test_value_and_derivatives(case: int) -> None:
    fn, args = CASES[case]
    check(fn, *args, rtol=1e-11, tol=1e-6)


def test_compiled_and_plain() -> None:
    """Natively, through logm and the Riccati equation too; plain arrays are SciPy's."""
    assert type(tl.expm(A)) is np.ndarray
    np.testing.assert_array_equal(tl.lu(A)[1], sl.lu(A)[1])

    def loss(a: Any) -> Any:
        return np.sum(tl.expm(tl.logm(a @ a.T)) ** 2) + np.trace(
            tl.cho_solve(tl.cho_factor(a @ a.T), a)
        )

    def plain(a: Any) -> Any:
        return np.sum((a @ a.T) ** 2) + np.trace(np.linalg.solve(a @ a.T, a))

    np.testing.assert_allclose(tapec.grad(loss)(A), tapec.grad(plain)(A), rtol=1e-10, atol=1e-10)


def test_large_exponents_and_stiff_scaling() -> None:
    """The number of squarings follows the matrix: one compiled function for all."""
    f = tapec.grad(lambda t: tl.expm(t * np.array([[0.0, 1.0], [-1.0, 0.0]]))[0, 1])
    for t in (0.0, 1e-8, 3.0, 47.0, 200.0):
        np.testing.assert_allclose(f(t), np.cos(t), rtol=1e-11, atol=1e-11)


def test_null_space() -> None:
    """The projector does not depend on the basis: I - A⁺ A."""
    a, w = C.T.copy(), B

    def loss(x: Any) -> Any:
        basis = tl.null_space(x)
        return np.sum(w * (basis @ basis.T))

    def other(x: Any) -> Any:
        return np.sum(w * (np.eye(3) - np.linalg.pinv(x) @ x))

    np.testing.assert_allclose(tapec.grad(loss)(a), tapec.grad(other)(a), atol=1e-12)


def test_errors() -> None:
    with pytest.raises(
        NotImplementedError, match=r"linalg.py:\d+: scipy.linalg.schur .*plain arrays"
    ):
        tapec.grad(lambda a: np.sum(tl.schur(a)[0]))(A)
    with pytest.raises(NotImplementedError, match="complex"):
        tapec.grad(lambda a: np.sum(tl.logm(a)))(np.diag([-1.0, 2.0]))
    with pytest.raises(np.linalg.LinAlgError):
        tapec.grad(lambda a: np.sum(tl.cho_factor(a)[0]))(-np.eye(2))
    with pytest.raises(np.linalg.LinAlgError):
        tapec.grad(lambda a: np.sum(tl.solve_triangular(a, np.ones(2))))(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="square"):
        tapec.grad(lambda a: np.sum(tl.expm(a)))(np.ones((2, 3)))
    with pytest.raises(NotImplementedError, match="complex matrices"):
        tapec.grad(lambda x: np.sum(np.abs(tl.expm(1j * x))))(np.eye(2))
