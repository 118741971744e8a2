"""``python -m tapec demo``: a maximum-likelihood fit to real data, checked from every side.

A two-component bivariate Gaussian mixture is fitted to the 272 eruptions of Old Faithful
(duration and waiting time in minutes; Azzalini and Bowman 1990) with SciPy's L-BFGS-B on
``tapec.value_and_grad`` of the plain NumPy function ``negative_log_likelihood`` below.
The demo returns 0 only if the known maximum is reached and the gradient passes its checks.

Parameters, all unconstrained: 2 logits (softmax gives the weights), 2 means, and for each
component the lower Cholesky factor ``[[exp(a), 0], [b, exp(c)]]`` of its covariance.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table

__all__ = [
    "KNOWN",
    "START",
    "hand_written",
    "log_density",
    "main",
    "negative_log_likelihood",
    "old_faithful",
    "unpack",
]

Array = NDArray[np.float64]

#: The maximum, as expectation-maximisation run to convergence finds it (tests/test_demo.py).
KNOWN = {
    "log-likelihood": -1130.263960,
    "weight 1": 0.355872857,
    "weight 2": 0.644127143,
    "mean 1, eruption": 2.03638845,
    "mean 1, waiting": 54.4785164,
    "mean 2, eruption": 4.28966197,
    "mean 2, waiting": 79.9681152,
}
#: logits; means; (a, b, c) of each Cholesky factor.
START = np.array([0.0, 0.0, 2.0, 50.0, 4.0, 85.0, 0.0, 0.0, 2.0, 0.0, 0.0, 2.0])


def old_faithful() -> Array:
    """The data, one row per eruption: duration and waiting time to the next, in minutes."""
    text = resources.files("tapec").joinpath("data/old_faithful.csv").read_text("utf-8")
    return np.array([[float(word) for word in row.split(",")] for row in text.split()[1:]])


# The objective: plain NumPy, nothing of tapec in it.


def log_density(point: Any, mean: Any, factor: Any) -> Any:
    """Log-density of a bivariate normal at ``point`` (.., 2); ``factor`` is (a, b, c)."""
    a, b, c = factor[0], factor[1], factor[2]
    z0 = (point[..., 0] - mean[0]) * np.exp(-a)
    z1 = (point[..., 1] - mean[1] - b * z0) * np.exp(-c)
    return -0.5 * (z0**2 + z1**2) - a - c - np.log(2 * np.pi)


def negative_log_likelihood(theta: Any, data: Any) -> Any:
    logits, means, factors = theta[:2], theta[2:6].reshape(2, 2), theta[6:].reshape(2, 3)
    log_weights = logits - np.log(np.sum(np.exp(logits)))
    first = log_weights[0] + log_density(data, means[0], factors[0])
    second = log_weights[1] + log_density(data, means[1], factors[1])
    return -np.sum(np.logaddexp(first, second))


def hand_written(theta: Array, data: Array) -> tuple[float, Array]:
    """The same value with a gradient derived on paper: the yardstick for speed."""
    x, y = data[:, 0], data[:, 1]
    n = len(x)
    e = np.exp(theta[:2])
    weights = e / e.sum()
    parts = []
    for k in range(2):
        a, b, c = theta[6 + 3 * k : 9 + 3 * k]
        p, q = np.exp(-a), np.exp(-c)
        z0 = (x - theta[2 + 2 * k]) * p
        z1 = (y - theta[3 + 2 * k] - b * z0) * q
        constant = np.log(weights[k]) - a - c - np.log(2 * np.pi)
        parts.append((constant - 0.5 * (z0 * z0 + z1 * z1), z0, z1, p, q, b))
    log_sum = np.logaddexp(parts[0][0], parts[1][0])
    gradient = np.empty(12)
    for k, (log_part, z0, z1, p, q, b) in enumerate(parts):
        share = np.exp(log_part - log_sum)
        total = share.sum()
        s0, s1 = share * z0, share * z1
        m0, m1, m00, m01, m11 = s0.sum(), s1.sum(), s0 @ z0, s0 @ z1, s1 @ z1
        gradient[k] = n * weights[k] - total
        gradient[2 + 2 * k] = -p * (m0 - b * q * m1)
        gradient[3 + 2 * k] = -q * m1
        gradient[6 + 3 * k] = total - m00 + b * q * m01
        gradient[7 + 3 * k] = -q * m01
        gradient[8 + 3 * k] = total - m11
    return -float(log_sum.sum()), gradient


# Looking at the result.


def unpack(theta: Array) -> tuple[Array, Array, Array]:
    """Weights (2,), means (2, 2) and covariances (2, 2, 2) of a parameter vector."""
    weights = np.exp(theta[:2]) / np.exp(theta[:2]).sum()
    factors = np.array(
        [[[np.exp(a), 0.0], [b, np.exp(c)]] for a, b, c in theta[6:].reshape(2, 3).tolist()]
    )
    return weights, theta[2:6].reshape(2, 2), factors @ factors.transpose(0, 2, 1)


def fitted_numbers(theta: Array, log_likelihood: float) -> dict[str, float]:
    """What KNOWN lists, for a fit; the component with the shorter eruptions comes first."""
    weights, means, _ = unpack(theta)
    order = np.argsort(means[:, 0])
    numbers = [log_likelihood, *weights[order], *means[order].ravel()]
    return dict(zip(KNOWN, map(float, numbers), strict=True))


def central_differences(fn: Callable[[Array], Any], theta: Array) -> Array:
    """Fourth-order central differences; good to about ten digits here."""
    gradient = np.empty_like(theta)
    for i in range(theta.size):
        h = 1e-3 * max(1.0, abs(theta[i]) / 10)
        at = []
        for step in (-2, -1, 1, 2):
            moved = theta.copy()
            moved[i] += step * h
            at.append(float(fn(moved)))
        gradient[i] = (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * h)
    return gradient


def sympy_gradient(point: Array, mean: Array, factor: Array) -> Array:
    """SymPy's derivative of the log-density in (mean, factor), from the matrix formula
    ``-log 2π - log|LLᵀ|/2 - dᵀ(LLᵀ)⁻¹d/2`` rather than from the code above."""
    import sympy as sp

    m0, m1, a, b, c = symbols = sp.symbols("m0 m1 a b c", real=True)
    lower = sp.Matrix([[sp.exp(a), 0], [b, sp.exp(c)]])
    covariance = lower * lower.T
    d = sp.Matrix([sp.Float(point[0], 30) - m0, sp.Float(point[1], 30) - m1])
    density = (
        -sp.log(2 * sp.pi) - sp.log(covariance.det()) / 2 - (d.T * covariance.inv() * d)[0] / 2
    )
    values = [sp.Float(float(v), 30) for v in (*mean, *factor)]
    at = dict(zip(symbols, values, strict=True))
    return np.array([float(sp.diff(density, s).subs(at).evalf(20)) for s in symbols])


def seconds_per_call(fn: Callable[[], Any], budget: float = 0.3) -> float:
    """The best of several timed batches."""
    fn()
    start = time.perf_counter()
    fn()
    once = max(time.perf_counter() - start, 1e-7)
    batch = max(1, int(budget / 10 / once))
    best = float("inf")
    for _ in range(10):
        start = time.perf_counter()
        for _ in range(batch):
            fn()
        best = min(best, (time.perf_counter() - start) / batch)
    return best


def relative_error(got: Any, want: Any) -> float:
    """Largest difference, relative to the largest entry of ``want``."""
    return float(np.max(np.abs(np.asarray(got) - want)) / np.max(np.abs(want)))


def fit(fn: Callable[..., Any], data: Array, console: Console) -> Any:
    """Minimise with L-BFGS-B, showing progress: live on a terminal, else every tenth step."""
    from scipy.optimize import minimize

    columns = (
        SpinnerColumn(),
        TextColumn("L-BFGS-B"),
        BarColumn(),
        TextColumn("{task.fields[at]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("fit", total=None, at="")
        count = 0

        def report(intermediate_result: Any) -> None:
            nonlocal count
            count += 1
            at = f"iteration {count:3d}   log-likelihood {-intermediate_result.fun:.6f}"
            progress.update(task, at=at)
            if not console.is_terminal and count % 10 == 0:
                console.print(at)

        result = minimize(
            fn,
            START,
            args=(data,),
            jac=True,
            method="L-BFGS-B",
            callback=report,
            options={"ftol": 1e-16, "gtol": 1e-7, "maxiter": 1000, "maxcor": 20},
        )
        progress.update(task, total=1, completed=1)
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; 0 if the fit and every check are right."""
    parser = argparse.ArgumentParser(
        prog="python -m tapec demo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args(argv)
    import tapec

    console = Console(highlight=False)
    data = old_faithful()
    fn = tapec.value_and_grad(negative_log_likelihood)

    start = time.perf_counter()
    fn(START, data)
    first = time.perf_counter() - start
    result = fit(fn, data, console)
    theta: Array = result.x
    value = fn(theta, data)[0]

    found = fitted_numbers(theta, -float(value))
    table = Table(title=f"Gaussian mixture, {len(data)} eruptions, {result.nit} iterations")
    for heading in ("", "fitted", "known", "relative error"):
        table.add_column(heading, justify="right" if heading else "left")
    worst = 0.0
    for name, known in KNOWN.items():
        error = abs(found[name] - known) / abs(known)
        worst = max(worst, error)
        table.add_row(name, f"{found[name]:.6f}", f"{known:.6f}", f"{error:.1e}")
    console.print(table)
    _, _, covariances = unpack(theta)
    for k, matrix in enumerate(covariances[np.argsort(theta[[2, 4]])], 1):
        console.print(
            f"covariance {k}: {np.array2string(matrix, precision=6).replace(chr(10), '')}"
        )

    # The gradient at the fit vanishes; away from it there is something to compare.
    probe = theta + 0.05
    _, at_probe = fn(probe, data)
    differences = central_differences(lambda t: negative_log_likelihood(t, data), probe)
    means, factors = theta[2:4], theta[6:9]
    term = tapec.grad(log_density, argnums=(1, 2))(data[0], means, factors)
    checks = {
        "fit agrees with the known maximum": (worst, 1e-6),
        "gradient against central differences": (relative_error(at_probe, differences), 1e-8),
        "gradient against the one written by hand": (
            relative_error(at_probe, hand_written(probe, data)[1]),
            1e-12,
        ),
        "one term's gradient against SymPy": (
            relative_error(np.concatenate(term), sympy_gradient(data[0], means, factors)),
            1e-12,
        ),
    }
    good = True
    for name, (error, bound) in checks.items():
        passed = error <= bound
        good = good and passed
        mark = "[green]ok[/]  " if passed else "[red]BAD[/] "
        console.print(f"{mark} {name}: {error:.1e} (bound {bound:.0e})")

    ours = seconds_per_call(lambda: fn(theta, data))
    hand = seconds_per_call(lambda: hand_written(theta, data))
    loops = fn.dump("loops", theta, data).splitlines()
    nests = sum(line.lstrip().startswith("nest") for line in loops)
    console.print(f"native loop nests in value and gradient: {nests}")
    console.print(f"trace, differentiate, compile, first call: {first * 1e3:.1f} ms")
    console.print(f"value and gradient, one call: {ours * 1e6:.2f} µs")
    console.print(
        f"hand-written NumPy gradient: {hand * 1e6:.2f} µs, {hand / ours:.1f} times as long"
    )
    return 0 if good else 1
