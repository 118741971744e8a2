"""``odeint`` and ``solve_ivp``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.integrate

import tapec
from tapec.scipy.integrate import solve_ivp

TIMES = np.linspace(0.0, 3.0, 4)


def decay(y: Any, t: Any, k: Any) -> Any:
    return -k * y


def oscillator(y: Any, t: Any, mu: Any) -> Any:
    return np.stack([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]])


def at_end(k: Any, y0: Any, t0: Any, t1: Any, adjoint: bool) -> Any:
    return tapec.odeint(decay, y0, np.stack([t0, t1]), k, adjoint=adjoint)[-1]


@pytest.mark.parametrize("adjoint", [False, True])
def test_derivatives_of_exponential_decay(adjoint: bool) -> None:
    """y = y0 exp(-k (t1 - t0))."""
    k, y0, t0, t1 = 0.5, 1.5, 0.25, 2.0
    y = y0 * np.exp(-k * (t1 - t0))
    args = (k, y0, t0, t1, adjoint)
    gradient = tapec.grad(at_end, argnums=(0, 1, 2, 3))(*args)
    np.testing.assert_allclose(gradient, [-(t1 - t0) * y, y / y0, k * y, -k * y], rtol=2e-7)
    second = tapec.grad(tapec.grad(at_end))(*args)
    np.testing.assert_allclose(second, (t1 - t0) ** 2 * y, rtol=5e-7)


def test_forward_mode_agrees() -> None:
    args = (0.5, 1.5, 0.0, 2.0)
    _, tangent = tapec.jvp(lambda *a: at_end(*a, False), args, (1.0, 0.5, 0.0, 0.25))
    want = np.dot(
        tapec.grad(lambda *a: at_end(*a, False), argnums=(0, 1, 2, 3))(*args), [1.0, 0.5, 0.0, 0.25]
    )
    np.testing.assert_allclose(tangent, want, rtol=1e-12)


def test_the_adjoint_is_the_direct_derivative() -> None:
    def loss(y0: Any, mu: Any, times: Any, adjoint: bool) -> Any:
        return np.sum(tapec.odeint(oscillator, y0, times, mu, adjoint=adjoint) ** 2)

    args = (np.array([2.0, 0.0]), 1.5, TIMES)
    direct = tapec.grad(loss, argnums=(0, 1, 2))(*args, False)
    adjoint = tapec.grad(loss, argnums=(0, 1, 2))(*args, True)
    for a, b in zip(direct, adjoint):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-6)
    h = 1e-5
    numeric = (loss(args[0], 1.5 + h, TIMES, False) - loss(args[0], 1.5 - h, TIMES, False)) / (
        2 * h
    )
    np.testing.assert_allclose(direct[1], numeric, rtol=1e-6)


def test_solutions_equal_scipys() -> None:
    y0 = np.array([2.0, 0.0])
    want = scipy.integrate.solve_ivp(
        lambda t, y: oscillator(y, t, 1.5), (0, 3), y0, t_eval=TIMES, rtol=1e-11, atol=1e-11
    ).y.T
    got = tapec.odeint(oscillator, y0, TIMES, 1.5)
    np.testing.assert_allclose(got, want, atol=1e-7)
    back = tapec.odeint(oscillator, got[-1], TIMES[::-1].copy(), 1.5)
    np.testing.assert_allclose(back[-1], y0, atol=1e-5)


@pytest.mark.parametrize("adjoint", [False, True])
def test_containers(adjoint: bool) -> None:
    def chain(y: Any, t: Any, p: Any) -> Any:
        flow = p["k"] * y["a"]
        return {"a": -flow, "b": flow * np.ones(2)}

    def loss(k: Any) -> Any:
        y = tapec.odeint(chain, {"a": 1.0, "b": np.zeros(2)}, [0.0, 1.0], {"k": k}, adjoint=adjoint)
        return np.sum(y["b"][-1])

    np.testing.assert_allclose(loss(0.7), 2 * (1 - np.exp(-0.7)), rtol=1e-7)
    np.testing.assert_allclose(tapec.grad(loss)(0.7), 2 * np.exp(-0.7), rtol=1e-6)


def test_batches() -> None:
    k = np.array([0.5, 1.0, 5.0])
    got = tapec.vmap(lambda k: at_end(k, 1.0, 0.0, 2.0, False))(k)
    np.testing.assert_allclose(got, np.exp(-2 * k), atol=3e-8)


def test_solutions_that_do_not_exist_are_nan() -> None:
    y = tapec.odeint(lambda y, t: y * y, 1.0, [0.0, 0.5, 2.0], max_steps=300)
    np.testing.assert_allclose(y[:2], [1.0, 2.0], rtol=1e-6)
    assert np.isnan(y[2])


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="vector of times"):
        tapec.odeint(decay, 1.0, 2.0, 0.5)
    with pytest.raises(TypeError, match="structure"):
        tapec.odeint(lambda y, t: (y, y), 1.0, [0.0, 1.0])
    with pytest.raises(ValueError, match="shapes"):
        tapec.odeint(lambda y, t: y[0], np.ones(2), [0.0, 1.0])


# SciPy's BDF subtracts memory that it has not set in its first step, and never uses the result;
# what happens to lie there may make NumPy warn.
bdf_warns = pytest.mark.filterwarnings("ignore:(invalid|overflow).*subtract:RuntimeWarning")


@bdf_warns
@pytest.mark.parametrize("method", ["RK45", "BDF", "Radau", "LSODA"])
def test_solve_ivp(method: str) -> None:
    def robertson(t: Any, y: Any, k: Any) -> Any:
        a, b, c = y
        return [-k * a + 1e4 * b * c, k * a - 1e4 * b * c - 3e7 * b * b, 3e7 * b * b]

    y0 = [1.0, 0.0, 0.0]
    span = (0.0, 0.01 if method == "RK45" else 10.0)
    options = {"rtol": 1e-8, "atol": 1e-10, "method": method}
    got = solve_ivp(robertson, span, y0, args=(0.04,), **options)
    want = scipy.integrate.solve_ivp(robertson, span, y0, args=(0.04,), **options)
    np.testing.assert_allclose(got.y[:, -1], want.y[:, -1], rtol=1e-5, atol=1e-9)
    assert got.nfev <= want.nfev
    with pytest.raises(TypeError, match="jac= is not given"):
        solve_ivp(robertson, span, y0, jac=None)


@bdf_warns
def test_solve_ivp_with_a_sparse_jacobian() -> None:
    n = 40

    def heat(t: Any, y: Any) -> Any:
        edge = np.zeros(1)
        wide = np.concatenate([edge, y, edge])
        return (wide[2:] - 2 * y + wide[:-2]) * (n + 1) ** 2

    y0 = np.sin(np.pi * np.arange(1, n + 1) / (n + 1))
    got = solve_ivp(heat, (0.0, 0.1), y0, "BDF", sparse=True, rtol=1e-8, atol=1e-10)
    rate = 4 * (n + 1) ** 2 * np.sin(np.pi / (2 * (n + 1))) ** 2
    np.testing.assert_allclose(got.y[:, -1], y0 * np.exp(-0.1 * rate), rtol=1e-5)
