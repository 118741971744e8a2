"""Values and gradients by hand in NumPy, and loops for Numba.

Each returns ``(value, (gradient, ...))``, the Hessian-vector products only their result.  The
loops for Numba write into an array that is given and return the value: boxing a new array in its
dispatcher costs more than the small gradients.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy

from tapec.bench_problems import (
    define,
    robot_arm_by_hand,
    rosenbrock_by_hand,
    straight_line_source,
)

__all__ = ["LOOPS", "NUMPY"]


def rosenbrock_hvp(x: Any, v: Any) -> Any:
    h = numpy.zeros_like(x)
    a, b = x[:-1], x[1:]
    h[:-1] = (1200.0 * a * a - 400.0 * b + 2.0) * v[:-1] - 400.0 * a * v[1:]
    h[1:] += 200.0 * v[1:] - 400.0 * a * v[:-1]
    return h


def rosenbrock_loops(x: Any, g: Any) -> Any:
    n = len(x)
    a, b = x[1] - x[0] * x[0], 1.0 - x[0]
    value = 100.0 * a * a + b * b
    g[0] = -400.0 * a * x[0] - 2.0 * b
    for i in range(1, n - 1):
        before = x[i] - x[i - 1] * x[i - 1]
        a, b = x[i + 1] - x[i] * x[i], 1.0 - x[i]
        value += 100.0 * a * a + b * b
        g[i] = 200.0 * before - 400.0 * a * x[i] - 2.0 * b
    g[n - 1] = 200.0 * (x[n - 1] - x[n - 2] * x[n - 2])
    return value


def rosenbrock_hvp_loops(x: Any, v: Any, h: Any) -> Any:
    n = len(x)
    h[0] = (1200.0 * x[0] * x[0] - 400.0 * x[1] + 2.0) * v[0] - 400.0 * x[0] * v[1]
    for i in range(1, n - 1):
        h[i] = (1200.0 * x[i] * x[i] - 400.0 * x[i + 1] + 202.0) * v[i] - 400.0 * (
            x[i] * v[i + 1] + x[i - 1] * v[i - 1]
        )
    h[n - 1] = 200.0 * v[n - 1] - 400.0 * x[n - 2] * v[n - 2]


def rosenbrock_value(x: Any) -> Any:
    value = 0.0
    for i in range(len(x) - 1):
        a = x[i + 1] - x[i] * x[i]
        b = 1.0 - x[i]
        value += 100.0 * a * a + b * b
    return value


def speelpenning(x: Any) -> Any:
    before = numpy.concatenate(([1.0], numpy.cumprod(x[:-1])))
    after = numpy.concatenate((numpy.cumprod(x[:0:-1])[::-1], [1.0]))
    return before[-1] * x[-1], (before * after,)


def speelpenning_loops(x: Any, g: Any) -> Any:
    n = len(x)
    p = 1.0
    for i in range(n):
        g[i] = p
        p *= x[i]
    value = p
    p = 1.0
    for i in range(n - 1, -1, -1):
        g[i] *= p
        p *= x[i]
    return value


def speelpenning_value(x: Any) -> Any:
    p = 1.0
    for i in range(len(x)):
        p *= x[i]
    return p


def logistic(w: Any, x: Any, y: Any) -> Any:
    z = x @ w
    e = numpy.exp(-numpy.abs(z))
    value = numpy.mean(numpy.log1p(e) + 0.5 * (numpy.abs(z) + z) - y * z)
    p = 1.0 / (1.0 + e)
    return value, ((numpy.where(z > 0, p, 1.0 - p) - y) @ x / len(y),)


def network(w1: Any, b1: Any, w2: Any, b2: Any, w3: Any, b3: Any, x: Any, y: Any) -> Any:
    h1 = x @ w1
    h1 += b1
    numpy.tanh(h1, out=h1)
    h2 = h1 @ w2
    h2 += b2
    numpy.tanh(h2, out=h2)
    logits = h2 @ w3
    logits += b3
    e = numpy.exp(logits)
    sums = e.sum(1)
    value = (numpy.log(sums) - (y * logits).sum(1)).mean()
    e /= sums[:, None]
    e -= y
    e /= len(y)
    d2 = e @ w3.T
    d2 *= 1.0 - h2 * h2
    d1 = d2 @ w2.T
    d1 *= 1.0 - h1 * h1
    return value, (x.T @ d1, d1.sum(0), h1.T @ d2, d2.sum(0), h2.T @ e, e.sum(0))


def network_value(w1: Any, b1: Any, w2: Any, b2: Any, w3: Any, b3: Any, x: Any, y: Any) -> Any:
    logits = numpy.tanh(numpy.tanh(x @ w1 + b1) @ w2 + b2) @ w3 + b3
    return (numpy.log(numpy.exp(logits).sum(1)) - (y * logits).sum(1)).mean()


def black_scholes(s: Any, k: Any, t: Any, r: Any, sigma: Any) -> Any:
    erf = importlib.import_module("scipy.special").erf
    root = numpy.sqrt(t)
    width = sigma * root
    d1 = (numpy.log(s / k) + (r + 0.5 * sigma * sigma) * t) / width
    n1 = 0.5 + 0.5 * erf(d1 * math.sqrt(0.5))
    n2 = 0.5 + 0.5 * erf((d1 - width) * math.sqrt(0.5))
    density = s * numpy.exp(-0.5 * d1 * d1) / math.sqrt(2 * math.pi)
    discount = numpy.exp(-r * t)
    strike = k * discount * n2
    gradients = (
        n1, -discount * n2, 0.5 * density * sigma / root + r * strike, t * strike, density * root,
    )  # fmt: skip
    return numpy.sum(s * n1 - strike), gradients


def chain_poly(x: Any) -> Any:
    y, d = x, numpy.ones_like(x)
    for _ in range(10):
        s = 0.1 * y * y
        d = d * (1.0 - 3.0 * s) + 0.05
        y = y * (1.0 - s) + 0.05 * x
    return y @ y, (2.0 * y * d,)


def chain_poly_loops(x: Any, g: Any) -> Any:
    value = 0.0
    for i in range(len(x)):
        y, d = x[i], 1.0
        for _ in range(10):
            s = 0.1 * y * y
            d = d * (1.0 - 3.0 * s) + 0.05
            y = y * (1.0 - s) + 0.05 * x[i]
        value += y * y
        g[i] = 2.0 * y * d
    return value


def chain_poly_value(x: Any) -> Any:
    value = 0.0
    for i in range(len(x)):
        y = x[i]
        for _ in range(10):
            y = y * (1.0 - 0.1 * y * y) + 0.05 * x[i]
        value += y * y
    return value


def chain_trans(x: Any) -> Any:
    s = numpy.sin(x)
    e = numpy.exp(-s * s)
    t = numpy.tanh(e * x + 0.5 * x)
    square = t * t
    log = numpy.log1p(square)
    d = 4.0 * log * t / (1.0 + square) * (1.0 - square)
    return log @ log, (d * (e - 2.0 * s * numpy.cos(x) * e * x + 0.5),)


def robot_arm(q: Any) -> Any:
    return robot_arm_by_hand(q)


def straight(count: int) -> Callable[..., Any]:
    return define(straight_line_source(count)[1], "by_hand", math)


#: name → value and gradient, or the Hessian-vector product.
NUMPY: dict[str, Callable[..., Any]] = {
    "rosenbrock": rosenbrock_by_hand,
    "rosenbrock_hvp": rosenbrock_hvp,
    "speelpenning": speelpenning,
    "logistic": logistic,
    "network": network,
    "black_scholes": black_scholes,
    "chain_poly": chain_poly,
    "chain_trans": chain_trans,
    "robot_arm": robot_arm,
}
#: name → (value and gradient, value)
LOOPS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "rosenbrock": (rosenbrock_loops, rosenbrock_value),
    "rosenbrock_hvp": (rosenbrock_hvp_loops, rosenbrock_value),
    "speelpenning": (speelpenning_loops, speelpenning_value),
    "chain_poly": (chain_poly_loops, chain_poly_value),
}
