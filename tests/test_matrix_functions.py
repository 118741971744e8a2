"""Functions of matrices by their spectrum, where values coincide and where they do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import tapec

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(4)
Q = np.linalg.qr(RNG.normal(size=(4, 4)))[0]


def spectrum(*w: float) -> Array:
    a = Q[:, : len(w)][: len(w)] if len(w) < 4 else Q
    a = np.linalg.qr(a)[0]
    m = a * np.array(w) @ a.T
    return np.asarray(0.5 * (m + m.T))


def direction(n: int, seed: int = 2) -> Array:
    e = np.random.default_rng(seed).normal(size=(n, n))
    return np.asarray(e + e.T)


FORMS: dict[str, Callable[[Any, Any], Any]] = {
    "scaled": lambda v, y: (v * y) @ v.T,
    "diag": lambda v, y: v @ np.diag(y) @ v.T,
    "rows": lambda v, y: v @ (y[:, None] * v.T),
    "einsum": lambda v, y: np.einsum("ij,j,kj->ik", v, y, v),
    "both": lambda v, y: (v * np.sqrt(y)) @ (v * np.sqrt(y)).T,
    "divided": lambda v, y: (v / (1 / y)) @ v.T,
}
POINTS = {
    "distinct": spectrum(0.5, 1.0, 1.7, 2.2), "identity": np.eye(3),
    "pair": spectrum(1.0, 1.0, 2.0, 3.0), "diagonal": np.diag([1.0, 2.0, 2.0]),
    "near": spectrum(1.0, 1.0 + 1e-9, 2.0, 3.0),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("point", POINTS)
def test_exponential(form: str, point: str) -> None:
    """exp(A) = V exp(w) Vᵀ: SciPy's Fréchet derivative, in both modes."""
    a = POINTS[point]
    n = len(a)
    weights = RNG.normal(size=(n, n))

    def f(a: Any) -> Any:
        w, v = np.linalg.eigh(a)
        return np.sum(weights * FORMS[form](v, np.exp(w)))

    e = direction(n)
    want = np.sum(weights * scipy.linalg.expm_frechet(a, e, compute_expm=False))
    assert np.sum(tapec.grad(f)(a) * e) == pytest.approx(want, rel=1e-9)
    assert tapec.jvp(f, (a,), (e,))[1] == pytest.approx(want, rel=1e-9)


#: symmetric functions of the eigenvalues and the same without them
SYMMETRIC: dict[str, tuple[Callable[[Any], Any], Callable[[Array, Array], float]]] = {
    "cubes": (
        lambda a: np.sum(np.linalg.eigvalsh(a) ** 3),
        lambda a, e: 6 * np.trace(a @ e @ e),
    ),
    "logarithms": (
        lambda a: np.sum(np.log(np.linalg.eigvalsh(a))),
        lambda a, e: -np.trace(np.linalg.solve(a, e) @ np.linalg.solve(a, e)),
    ),
    "exponentials": (
        lambda a: np.sum(np.exp(np.linalg.eigh(a)[0])),
        lambda a, e: np.trace(e @ scipy.linalg.expm_frechet(a, e, compute_expm=False)),
    ),
    "logsumexp": (
        lambda a: np.log(np.sum(np.exp(np.linalg.eigvalsh(a)))),
        lambda a, e: (
            np.trace(e @ scipy.linalg.expm_frechet(a, e, compute_expm=False))
            / np.trace(scipy.linalg.expm(a))
            - (np.trace(scipy.linalg.expm(a) @ e) / np.trace(scipy.linalg.expm(a))) ** 2
        ),
    ),
    "fourth powers of singular values": (
        lambda a: np.sum(np.linalg.svd(a, compute_uv=False) ** 4),
        lambda a, e: 8 * np.trace(a @ a @ e @ e) + 4 * np.trace(a @ e @ a @ e),
    ),
    "square root of the trace": (
        lambda a: np.sum(np.sqrt(np.linalg.eigvalsh(a @ a.T))),
        lambda a, e: 0.0,  # the trace, for positive definite matrices
    ),
}  # fmt: skip


@pytest.mark.parametrize("point", [p for p in POINTS if p != "near"])
@pytest.mark.parametrize("name", SYMMETRIC)
def test_second_order_of_symmetric_functions(name: str, point: str) -> None:
    f, second = SYMMETRIC[name]
    a = POINTS[point]
    e = direction(len(a))
    gradient = tapec.grad(f)
    size = np.sum(np.abs(e)) ** 2
    forward = np.sum(tapec.jvp(gradient, (a,), (e,))[1] * e)
    reverse = np.sum(tapec.grad(lambda a: np.sum(gradient(a) * e))(a) * e)
    assert forward == pytest.approx(second(a, e), rel=1e-9, abs=1e-12 * size)
    assert reverse == pytest.approx(second(a, e), rel=1e-9, abs=1e-12 * size)


def test_second_order_of_a_matrix_function() -> None:
    def f(a: Any) -> Any:
        w, v = np.linalg.eigh(a + a.T)
        return np.sum(np.sin((v * np.tanh(w)) @ v.T))

    tapec.check_grads(f, (POINTS["distinct"],), order=2)


def test_products_of_eigenvalues_where_they_are_distinct() -> None:
    """Their slope is not known: right where they are distinct, NaN where it would be needed."""
    f = lambda a: np.prod(np.linalg.eigvalsh(a + a.T))  # noqa: E731
    tapec.check_grads(f, (POINTS["distinct"],), order=2)
    e = direction(3)
    second = tapec.jvp(tapec.grad(f), (np.eye(3),), (e,))[1]
    assert np.isnan(second).any()


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
@pytest.mark.parametrize("full", [False, True])
def test_singular_values_that_coincide(shape: tuple[int, int], full: bool) -> None:
    """U (s + s³) Vᵀ = A + A AᵀA, also at a matrix of lower rank."""
    m, n = shape
    k = min(shape)
    weights, e = RNG.normal(size=shape), RNG.normal(size=shape)

    def f(a: Any) -> Any:
        u, s, vh = np.linalg.svd(a, full_matrices=full)
        return np.sum(weights * ((u[:, :k] * (s + s**3)) @ vh[:k]))

    for values in ([2.0, 1.0, 1.0, 0.5][:k], [1.0, 1.0, 0.0, 0.0][:k]):
        left = np.linalg.qr(RNG.normal(size=(m, k)))[0]
        right = np.linalg.qr(RNG.normal(size=(n, k)))[0]
        a = left * np.array(values) @ right.T
        moved = e + e @ a.T @ a + a @ e.T @ a + a @ a.T @ e
        want = np.sum(weights * moved)
        assert f(a) == pytest.approx(np.sum(weights * (a + a @ a.T @ a)))
        assert np.sum(tapec.grad(f)(a) * e) == pytest.approx(want, rel=1e-9)
        assert tapec.jvp(f, (a,), (e,))[1] == pytest.approx(want, rel=1e-9)


def test_polar_factor_and_nuclear_norm() -> None:
    """U Vᵀ where singular values coincide: by the polar decomposition of near matrices."""
    weights, e = RNG.normal(size=(4, 4)), RNG.normal(size=(4, 4))
    rotation = np.linalg.qr(RNG.normal(size=(4, 4)))[0]
    a = rotation @ POINTS["pair"]

    def f(a: Any) -> Any:
        u, _, vh = np.linalg.svd(a)
        return np.sum(weights * (u @ vh))

    def plain(t: float) -> Any:
        return np.sum(weights * scipy.linalg.polar(a + t * e)[0])

    h = 1e-3
    want = (8 * (plain(h) - plain(-h)) - plain(2 * h) + plain(-2 * h)) / (12 * h)
    assert np.sum(tapec.grad(f)(a) * e) == pytest.approx(want, rel=1e-8)
    assert tapec.jvp(f, (a,), (e,))[1] == pytest.approx(want, rel=1e-8)
    nuclear = tapec.grad(lambda a: np.linalg.norm(a, "nuc"))
    np.testing.assert_allclose(nuclear(a), rotation, atol=1e-12)
    skew = e - e.T
    moved = tapec.jvp(nuclear, (np.eye(4),), (skew,))[1]  # the polar factor of 1 + skew
    np.testing.assert_allclose(moved, skew, atol=1e-12)


def test_what_depends_on_the_choice_is_nan() -> None:
    """Weights that differ where the eigenvalues do not: no derivative."""

    def f(a: Any) -> Any:
        w, v = np.linalg.eigh(a)
        return np.sum(np.arange(9.0).reshape(3, 3) * ((v * (np.array([1.0, 2.0, 3.0]) * w)) @ v.T))

    assert np.isnan(tapec.grad(f)(np.eye(3))).any()
    assert np.isfinite(tapec.grad(f)(POINTS["distinct"][:3, :3])).all()


@pytest.mark.parametrize("rate", [3e6, 2e6 * np.pi])
def test_steep_functions_of_near_values(rate: float) -> None:
    """A gap that is small beside the values but not for the function, of which slopes may differ
    or be equal, a period apart: no mean of slopes."""
    a = np.diag([1.0, 1.0 + 1e-6, 2.0])

    def f(a: Any) -> Any:
        w, v = np.linalg.eigh(a)
        return ((v * np.sin(rate * w)) @ v.T)[0, 1]

    quotient = (np.sin(rate * a[1, 1]) - np.sin(rate)) / (a[1, 1] - 1.0)
    e = np.zeros((3, 3))
    e[0, 1] = e[1, 0] = 1
    assert tapec.jvp(f, (a,), (e,))[1] == pytest.approx(quotient, rel=1e-6, abs=1e-2)


def test_masked_spectra_and_batches() -> None:
    """The pseudo-inverse at a degenerate zero; a batch of matrices; float32."""

    def f(a: Any) -> Any:
        w, v = np.linalg.eigh(a)
        y = np.where(w > 1e-8, 1 / np.where(w > 1e-8, w, 1.0), 0.0)
        return np.swapaxes(v * y[..., None, :] @ np.swapaxes(v, -1, -2), -1, -2)

    a = np.diag([2.0, 2.0, 0.5])
    e = direction(3)
    inverse = np.linalg.inv(a)
    for dtype, tol in ((np.float64, 1e-12), (np.float32, 1e-5)):
        x, t = a.astype(dtype), e.astype(dtype)
        np.testing.assert_allclose(
            tapec.jvp(f, (x,), (t,))[1], -inverse @ e @ inverse, rtol=tol, atol=tol
        )
    both = np.stack([a, np.eye(3)])
    got = tapec.jvp(f, (both,), (np.stack([e, e]),))[1]
    np.testing.assert_allclose(got[0], -inverse @ e @ inverse, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(got[1], -e, rtol=1e-12, atol=1e-12)


def test_no_slope_in_the_code_of_the_value() -> None:
    f = lambda a: (lambda w, v: (v * np.exp(np.sin(w))) @ v.T)(*np.linalg.eigh(a))  # noqa: E731
    text = tapec.jit(f).dump("loops", np.eye(5))
    assert "cos" not in text and text.count("nest ") <= 4
