"""``numpy.linalg`` of complex matrices, and eigenvalues of matrices that are not symmetric."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapec
from tapec.errors import UnsupportedError

LA: Any = np.linalg
rng = np.random.default_rng(3)


def draw(*shape: int) -> Any:
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


A, B, W, T = draw(3, 3), draw(2, 3, 3), draw(5, 5), draw(4, 3)
b, c = draw(3), draw(2, 3, 2)
H = A + A.conj().T
P = A @ A.conj().T + np.eye(3)
REAL = rng.normal(size=(4, 4))  # two real eigenvalues and a pair


def moduli(*parts: Any) -> Any:
    return tuple(np.abs(x) for x in parts)


def rebuilt(a: Any) -> Any:
    u, s, vh = LA.svd(a, full_matrices=False)
    return u @ (s[:, None] ** 2 * vh)


CASES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (lambda a, b: LA.solve(a, b), (A, b)),
    (lambda a, b: LA.solve(a, b), (B, c)),
    (lambda a, b: LA.solve(a, b), (A.real.copy(), b)),
    (lambda a, b: LA.solve(a, b), (A, b.real.copy())),
    (lambda a: LA.inv(a), (B,)),
    (lambda a: LA.pinv(a), (T,)),
    (lambda a: LA.det(a), (A,)),
    (lambda a: LA.det(a), (W,)),
    (lambda a: tuple(LA.slogdet(a)), (W,)),
    (lambda a: LA.eigvalsh(a), (H,)),
    (lambda a: LA.eigvalsh(a, UPLO="U"), (H,)),
    (lambda a: moduli(*LA.eigh(a)), (H,)),
    (lambda a: LA.cholesky(a), (P,)),
    (lambda a: tuple(LA.qr(a)), (T,)),
    (lambda a: LA.qr(a, mode="r"), (A,)),
    (lambda a: moduli(*LA.svd(a, full_matrices=False)), (T,)),
    (lambda a: moduli(*LA.svd(a, full_matrices=False)), (T.T.copy(),)),
    (rebuilt, (T,)),
    (lambda a: LA.svd(a, compute_uv=False), (A,)),
    (lambda a: tuple(LA.eig(a)), (A,)),
    (lambda a: tuple(LA.eig(a)), (REAL,)),
    (lambda a: LA.eigvals(a), (REAL + REAL.T,)),
    (lambda a: LA.norm(a, 2), (A,)),
    (lambda a: LA.norm(a, "nuc"), (T,)),
    (lambda a: LA.cond(a), (A,)),
    (lambda a: LA.cond(a, 1), (A,)),
    (lambda a: LA.matrix_power(a, -2), (A,)),
    (lambda a: LA.multi_dot([a, a, T]), (W[:4, :4].copy(),)),
    (lambda a, b: LA.lstsq(a, b, rcond=None)[:2], (T, draw(4))),
    (lambda a, b: LA.lstsq(a, b)[0], (T.T.copy(), draw(3, 2))),
    (lambda a, b: LA.tensorsolve(a, b), (draw(2, 3, 6), draw(2, 3))),
    (lambda a: LA.tensorinv(a, 1), (draw(6, 2, 3),)),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_values_and_derivatives(case: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy's values and types; both modes and second order against differences."""
    monkeypatch.setenv("TAPEC_BACKEND", "interpret")
    f, args = CASES[case]
    want, got = f(*args), tapec.jit(lambda *a: f(*a))(*args)
    pairs = zip(want, got, strict=True) if isinstance(want, tuple) else [(want, got)]
    for w, g in pairs:
        assert np.asarray(g).dtype == np.asarray(w).dtype and np.shape(g) == np.shape(w)
        np.testing.assert_allclose(g, w, rtol=1e-11, atol=1e-12)
    tapec.check_grads(lambda *a: f(*a), args, order=2, rtol=1e-5, atol=1e-5)


def test_native() -> None:
    for f, args in [CASES[k] for k in (1, 4, 7, 9, 14, 21)]:
        want, got = f(*args), tapec.jit(lambda *a, f=f: f(*a))(*args)
        for w, g in zip(np.atleast_1d(want), np.atleast_1d(got), strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-11, atol=1e-12)
    g = tapec.grad(lambda a: np.sum(np.abs(LA.eigvals(a)) ** 2))(REAL)
    assert g.dtype == float
    assert "host" in tapec.jit(LA.eigvals).dump("loops", REAL)


def test_derivatives_of_a_determinant_and_of_eigenvalues_in_closed_form() -> None:
    got = tapec.grad(lambda a: LA.det(a), holomorphic=True)(W)
    np.testing.assert_allclose(got, LA.det(W) * LA.inv(W).T, rtol=1e-11)
    # the sum of the eigenvalues is the trace, that of their squares the trace of the square
    got = tapec.grad(lambda a: np.sum(LA.eigvals(a)), holomorphic=True)(A)
    np.testing.assert_allclose(got, np.eye(3), atol=1e-13)
    got = tapec.grad(lambda a: np.sum(LA.eigvals(a) ** 2), holomorphic=True)(A)
    np.testing.assert_allclose(got, 2 * A.T, rtol=1e-12)
    # of a spectral abscissa: outer product of the left and right vector
    w, v = LA.eig(REAL)
    k = int(np.argmax(w.real))
    left = LA.inv(v)[k]
    got = tapec.grad(lambda a: np.max(LA.eigvals(a).real))(REAL)
    share = 1.0 if np.isreal(w[k]) else 2.0  # a pair shares the maximum evenly
    want = np.outer(left, v[:, k]).real
    np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-13 * share)


def test_eigenvalues_of_a_real_matrix_are_real_if_numpys_are() -> None:
    f = tapec.jit(lambda a: LA.eigvals(a))
    assert f(REAL + REAL.T).dtype == float
    assert f(REAL).dtype == complex
    assert f(REAL + REAL.T).dtype == float


def test_coinciding_singular_values() -> None:
    """|A| by singular values at a matrix that has one twice: the gradient is A / |A|."""
    d = np.diag([1.0, 1.0, 2.0]) * (1 + 1j)
    got = tapec.grad(lambda a: np.sqrt(np.sum(LA.svd(a, compute_uv=False) ** 2)))(d)
    np.testing.assert_allclose(got, d / np.linalg.norm(d), atol=1e-14)
    got = tapec.grad(lambda a: np.sum(LA.eigvalsh(a)))(np.eye(2, dtype=complex))
    np.testing.assert_allclose(got, np.eye(2), atol=1e-14)


def test_batches_and_single_precision() -> None:
    np.testing.assert_allclose(tapec.vmap(LA.eigvals)(B), LA.eigvals(B), rtol=1e-12)
    np.testing.assert_allclose(tapec.vmap(LA.inv)(B), LA.inv(B), rtol=1e-12)
    single = A.astype(np.complex64)
    for f in (LA.inv, LA.det, LA.eigvals, LA.svdvals):
        got = tapec.jit(lambda a, f=f: f(a))(single)
        assert got.dtype == f(single).dtype
        np.testing.assert_allclose(got, f(single), rtol=2e-4)


def test_host_call_of_complex_functions() -> None:
    @tapec.custom_jvp
    def exponential(z: Any) -> Any:
        return tapec.host_call(np.exp, z, z)

    @exponential.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        y = exponential(primals[0])
        return y, y * tangents[0]

    np.testing.assert_array_equal(tapec.jit(exponential)(A), np.exp(A))
    g = tapec.grad(exponential, holomorphic=True)(0.3 + 0.4j)
    assert abs(g - np.exp(0.3 + 0.4j)) < 1e-15


@pytest.mark.parametrize(
    ("f", "error", "text"),
    [
        (lambda: tapec.jit(LA.inv)(T), np.linalg.LinAlgError, "square"),
        (lambda: tapec.jit(LA.inv)(np.zeros((2, 2), complex)), np.linalg.LinAlgError, "Singular"),
        (lambda: tapec.jit(LA.cholesky)(-P), np.linalg.LinAlgError, "positive definite"),
        (lambda: tapec.jit(LA.solve)(A, draw(2)), ValueError, "do not fit"),
        (lambda: tapec.jit(LA.eigh)(H, "X"), ValueError, "UPLO"),
        (lambda: tapec.jit(LA.svd)(T), UnsupportedError, "full_matrices"),
        (lambda: tapec.jit(LA.lstsq)(T, A), np.linalg.LinAlgError, "dimensions"),
    ],
)
def test_mistakes(f: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        f()
