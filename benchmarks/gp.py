"""Gaussian-process marginal likelihood: value and gradient against the value alone.

    python benchmarks/gp.py [n]

Prints milliseconds of tapec's value, its value and gradient, and NumPy's value; JAX's too
where it is installed.  Best of several runs, one thread.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import numpy as np

import tapec


def by_cholesky(np: Any) -> Callable[..., Any]:
    """Negative log likelihood of a squared-exponential kernel with noise."""

    def likelihood(theta: Any, X: Any, y: Any) -> Any:
        scale, length, noise = np.exp(theta)
        squares = np.sum(X * X, axis=1)
        distance = squares[:, None] + squares[None, :] - 2 * X @ X.T
        K = scale * np.exp(-0.5 * distance / length**2) + noise * np.eye(len(y))
        L = np.linalg.cholesky(K)
        half = np.linalg.solve(L, y)
        return 0.5 * half @ half + np.sum(np.log(np.diag(L))) + 0.5 * len(y) * np.log(2 * np.pi)

    return likelihood


def by_lu(np: Any) -> Callable[..., Any]:
    """The same by solve and slogdet."""

    def likelihood(theta: Any, X: Any, y: Any) -> Any:
        scale, length, noise = np.exp(theta)
        squares = np.sum(X * X, axis=1)
        distance = squares[:, None] + squares[None, :] - 2 * X @ X.T
        K = scale * np.exp(-0.5 * distance / length**2) + noise * np.eye(len(y))
        fit = y @ np.linalg.solve(K, y)
        return 0.5 * fit + 0.5 * np.linalg.slogdet(K)[1] + 0.5 * len(y) * np.log(2 * np.pi)

    return likelihood


def best(*runs: Callable[[], Any], repeat: int = 25) -> list[float]:
    """Milliseconds of each, measured in turn."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(repeat):
        for run, found in zip(runs, times):
            start = time.perf_counter()
            run()
            found.append(time.perf_counter() - start)
    return [1e3 * min(found[1:]) for found in times]


def main(n: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    y = np.sin(X.sum(axis=1))
    theta = np.array([0.1, 0.2, -2.0])
    for name, make in (("cholesky", by_cholesky), ("solve, slogdet", by_lu)):
        likelihood = make(np)
        value, both = tapec.jit(likelihood), tapec.value_and_grad(likelihood)
        assert abs(value(theta, X, y) - likelihood(theta, X, y)) < 1e-8 * n
        alone, pair, plain = best(
            lambda: value(theta, X, y), lambda: both(theta, X, y), lambda: likelihood(theta, X, y)
        )
        print(
            f"n={n} {name}: value {alone:.2f} ms, value and gradient {pair:.2f} ms "
            f"(ratio {pair / alone:.2f}), NumPy's value {plain:.2f} ms"
        )
        try:
            import jax
        except ImportError:
            continue
        jax.config.update("jax_enable_x64", True)
        compiled = jax.jit(jax.value_and_grad(make(jax.numpy)))
        args = [jax.numpy.asarray(a) for a in (theta, X, y)]
        (theirs,) = best(lambda: jax.block_until_ready(compiled(*args)))
        difference = np.abs(np.asarray(compiled(*args)[1]) - both(theta, X, y)[1]).max()
        print(f"    JAX's value and gradient {theirs:.2f} ms; gradients differ by {difference:.1e}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
