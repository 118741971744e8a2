"""More kernels through the harness of ``python -m tapec bench``; same options.

python benchmarks/wider.py --quick
python benchmarks/wider.py --only chain --tools "by hand,tapec,numba"
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy

from tapec.bench import main
from tapec.bench_problems import Problem


def chain_polynomial(np: Any) -> Callable[..., Any]:
    """A long elementwise chain without transcendentals: memory traffic decides."""

    def fn(x: Any) -> Any:
        y = x * x - 0.5 * x
        y = y * (1.0 - y) + x
        y = 0.25 * y * y * x - y
        return np.sum(y * y)

    return fn


def chain_polynomial_by_hand(x: Any) -> Any:
    y1 = x * x - 0.5 * x
    y2 = y1 * (1.0 - y1) + x
    y3 = 0.25 * y2 * y2 * x - y2
    d3 = 2.0 * y3
    d2 = d3 * (0.5 * y2 * x - 1.0)
    d1 = d2 * (1.0 - 2.0 * y1)
    return y3 @ y3, (d3 * 0.25 * y2 * y2 + d2 + d1 * (2.0 * x - 0.5),)


def chain_transcendental(np: Any) -> Callable[..., Any]:
    def fn(x: Any) -> Any:
        return np.sum(np.tanh(np.sin(x) * np.exp(-x * x)) * np.log1p(x * x))

    return fn


def chain_transcendental_by_hand(x: Any) -> Any:
    square = x * x
    sine, bell = numpy.sin(x), numpy.exp(-square)
    t, log = numpy.tanh(sine * bell), numpy.log1p(square)
    inner = (1.0 - t * t) * log * bell * (numpy.cos(x) - 2.0 * x * sine)
    return t @ log, (inner + t * 2.0 * x / (1.0 + square),)


def speelpenning(np: Any) -> Callable[..., Any]:
    """The product of all inputs, read one by one."""

    def fn(x: Any) -> Any:
        product = x[0]
        for i in range(1, x.shape[0]):
            product = product * x[i]
        return product

    return fn


def speelpenning_by_hand(x: Any) -> Any:
    before = numpy.concatenate(([1.0], numpy.cumprod(x[:-1])))
    after = numpy.concatenate((numpy.cumprod(x[:0:-1])[::-1], [1.0]))
    return before[-1] * x[-1], (before * after,)


def least_squares(np: Any) -> Callable[..., Any]:
    def fn(beta: Any, x: Any, y: Any) -> Any:
        return np.sum((x @ beta - y) ** 2)

    return fn


def least_squares_by_hand(beta: Any, x: Any, y: Any) -> Any:
    miss = x @ beta - y
    return miss @ miss, (2.0 * (miss @ x),)


def wider(quick: bool) -> list[Problem]:
    rng = numpy.random.default_rng(1)
    n = 10_000 if quick else 10_000_000
    x = rng.uniform(0.1, 1.0, n)
    arrays_only = frozenset({"casadi", "casadi-c"})
    unrolled = frozenset({"numba", "casadi-c", "jax"})
    rows = 1000 if quick else 100_000
    chains: list[tuple[str, Any, Any]] = [
        ("chain, polynomial", chain_polynomial, chain_polynomial_by_hand),
        ("chain, transcendental", chain_transcendental, chain_transcendental_by_hand),
    ]
    found = [
        Problem(f"{name}, n = {n}", make, (x,), by_hand, skip=arrays_only)
        for name, make, by_hand in chains
    ]
    for length in (10, 1000):
        found.append(
            Problem(
                f"product of x[i], n = {length}",
                speelpenning,
                (rng.uniform(0.9, 1.1, length),),
                speelpenning_by_hand,
                skip=unrolled if length > 10 else frozenset(),
            )
        )
    found.append(
        Problem(
            f"least squares, {rows} x 20",
            least_squares,
            (rng.normal(size=20), rng.normal(size=(rows, 20)), rng.normal(size=rows)),
            least_squares_by_hand,
            skip=arrays_only,
        )
    )
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], wider("--quick" in sys.argv)))
