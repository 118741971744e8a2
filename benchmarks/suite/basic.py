"""Objectives: dense optimisation, networks, kinematics, finance, elementwise chains, an ODE.

Each is one function ``name(np)`` that returns the objective.  The data are drawn here from seeds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy

from tapec.bench_problems import define, robot_arm, straight_line_source

__all__ = [
    "black_scholes", "black_scholes_data", "chain_poly", "chain_trans", "logistic", "logistic_data",
    "lorenz", "lorenz_loop", "network", "network_data", "robot_arm", "rosenbrock", "speelpenning",
    "straight", "uniform",
]  # fmt: skip


def uniform(seed: int, low: float, high: float, *shape: int) -> Any:
    return numpy.random.default_rng(seed).uniform(low, high, shape)


def rosenbrock(np: Any) -> Callable[..., Any]:
    def fn(x: Any) -> Any:
        return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)

    return fn


def speelpenning(np: Any) -> Callable[..., Any]:
    def fn(x: Any) -> Any:
        return np.prod(x)

    return fn


def logistic(np: Any) -> Callable[..., Any]:
    """Logistic regression, labels 0 and 1."""

    def fn(w: Any, x: Any, y: Any) -> Any:
        z = x @ w
        return np.mean(np.log1p(np.exp(-np.abs(z))) + 0.5 * (np.abs(z) + z) - y * z)

    return fn


def logistic_data(rows: int, columns: int) -> tuple[Any, ...]:
    rng = numpy.random.default_rng(3)
    x = rng.normal(size=(rows, columns))
    w = 0.3 * rng.normal(size=columns)
    y = (rng.random(rows) < 1.0 / (1.0 + numpy.exp(-x @ w))).astype(float)
    return 0.3 * rng.normal(size=columns), x, y


def network(np: Any) -> Callable[..., Any]:
    """Two hidden layers of tanh, cross entropy."""

    def fn(w1: Any, b1: Any, w2: Any, b2: Any, w3: Any, b3: Any, x: Any, y: Any) -> Any:
        h1 = np.tanh(x @ w1 + b1)
        h2 = np.tanh(h1 @ w2 + b2)
        logits = h2 @ w3 + b3
        return np.mean(np.log(np.sum(np.exp(logits), axis=1)) - np.sum(y * logits, axis=1))

    return fn


def network_data(batch: int, widths: tuple[int, ...]) -> tuple[Any, ...]:
    rng = numpy.random.default_rng(4)
    layers: list[Any] = []
    for a, b in itertools.pairwise(widths):
        layers += [rng.normal(size=(a, b)) / math.sqrt(a), 0.1 * rng.normal(size=b)]
    y = numpy.eye(widths[-1])[rng.integers(widths[-1], size=batch)]
    return (*layers, rng.normal(size=(batch, widths[0])), y)


def black_scholes(np: Any) -> Callable[..., Any]:
    """The sum of the prices of European calls."""

    def cdf(z: Any) -> Any:
        return 0.5 * (1.0 + np.erf(z * math.sqrt(0.5)))

    def fn(s: Any, k: Any, t: Any, r: Any, sigma: Any) -> Any:
        width = sigma * np.sqrt(t)
        d1 = (np.log(s / k) + (r + 0.5 * sigma**2) * t) / width
        return np.sum(s * cdf(d1) - k * np.exp(-r * t) * cdf(d1 - width))

    return fn


def black_scholes_data(n: int) -> tuple[Any, ...]:
    rng = numpy.random.default_rng(5)
    s, k = rng.uniform(50, 150, n), rng.uniform(50, 150, n)
    return s, k, rng.uniform(0.1, 2, n), rng.uniform(0.0, 0.1, n), rng.uniform(0.1, 0.5, n)


def chain_poly(np: Any) -> Callable[..., Any]:
    """Ten polynomial steps; 30 operations an element, no transcendental."""

    def fn(x: Any) -> Any:
        y = x
        for _ in range(10):
            y = y * (1.0 - 0.1 * y * y) + 0.05 * x
        return np.sum(y * y)

    return fn


def chain_trans(np: Any) -> Callable[..., Any]:
    """Four transcendental steps: sin, exp, tanh, log1p."""

    def fn(x: Any) -> Any:
        y = np.sin(x)
        y = np.exp(-y * y) * x
        y = np.tanh(y + 0.5 * x)
        y = np.log1p(y * y)
        return np.sum(y * y)

    return fn


STEP = 0.005


def lorenz_step(state: Any, parameters: Any) -> Any:
    """One step of the Runge-Kutta method of order 4, in scalars."""
    sigma, rho, beta = parameters
    x, y, z = state

    def slope(x: Any, y: Any, z: Any) -> tuple[Any, Any, Any]:
        return sigma * (y - x), x * (rho - z) - y, x * y - beta * z

    h = STEP
    a, b, c = slope(x, y, z)
    a2, b2, c2 = slope(x + 0.5 * h * a, y + 0.5 * h * b, z + 0.5 * h * c)
    a3, b3, c3 = slope(x + 0.5 * h * a2, y + 0.5 * h * b2, z + 0.5 * h * c2)
    a4, b4, c4 = slope(x + h * a3, y + h * b3, z + h * c3)
    return (
        x + h / 6.0 * (a + 2.0 * a2 + 2.0 * a3 + a4),
        y + h / 6.0 * (b + 2.0 * b2 + 2.0 * b3 + b4),
        z + h / 6.0 * (c + 2.0 * c2 + 2.0 * c3 + c4),
    )


def lorenz(steps: int) -> Callable[[Any], Callable[..., Any]]:
    """|state|² after ``steps`` steps, in the initial state and the three parameters."""

    def make(np: Any) -> Callable[..., Any]:
        def fn(p: Any) -> Any:
            parameters = (p[3], p[4], p[5])
            x, y, z = np.scan(
                lambda state, _: lorenz_step(state, parameters),
                (p[0], p[1], p[2]),
                numpy.zeros(steps),
            )
            return x * x + y * y + z * z

        return fn

    return make


def lorenz_loop(steps: int) -> Callable[[Any], Callable[..., Any]]:
    """The same with a Python loop."""

    def make(np: Any) -> Callable[..., Any]:
        def fn(p: Any) -> Any:
            state, parameters = (p[0], p[1], p[2]), (p[3], p[4], p[5])
            for _ in range(steps):
                state = lorenz_step(state, parameters)
            x, y, z = state
            return x * x + y * y + z * z

        return fn

    return make


def lorenz_data() -> tuple[Any, ...]:
    return (numpy.array([1.0, 1.0, 1.0, 10.0, 28.0, 8.0 / 3.0]),)


def straight(count: int) -> Callable[[Any], Callable[..., Any]]:
    """A straight-line program of ``count`` scalar operations in ten arguments."""
    return lambda np: define(straight_line_source(count)[0], "fn", np)


def straight_data() -> tuple[Any, ...]:
    return tuple(0.1 * (i + 1) for i in range(10))
