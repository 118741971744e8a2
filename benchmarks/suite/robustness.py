"""No special cases: three problems keep their speed under other sizes, names and operand orders.

    python benchmarks/suite/robustness.py

Each problem is written a second time with other names, other orders of operands and other
spellings of the same steps, and runs at another size too.  Printed: time per element of value and
gradient (the least of interleaved rounds) relative to the first spelling.  The script fails if a
variant is more than 1.3 times as slow.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
sys.path.append(str(Path(__file__).resolve().parents[2]))

import numpy as np

import tapec
from suite import basic
from suite.adbench import gmm, gmm_constant, gmm_data
from suite.namespaces import namespace

ALLOWED = 1.3


def rosenbrock_again(v: Any) -> Any:
    """The terms swapped, squares as products, slices named by their ends."""
    last = v.shape[0]
    head, tail = v[0 : last - 1], v[1:last]
    one = head - 1.0
    bend = head * head - tail
    return (one * one + bend * bend * 100.0).sum()


def chain_poly_again(points: Any) -> Any:
    """Steps as expanded polynomials, additions first."""
    at = points
    for _ in range(10):
        at = 0.05 * points + (1.0 - at**2 * 0.1) * at
    return (at**2).sum()


def gmm_again(x: Any, icf: Any, means: Any, alphas: Any) -> Any:
    """The arguments in another order, axes (points, components), the triangle by rows."""
    d, k = x.shape[1], means.shape[0]
    place = np.zeros((d, d), int)
    rows, columns = np.tril_indices(d, -1)
    order = np.lexsort((rows, columns))
    place[rows[order], columns[order]] = d + np.arange(len(order))
    scales = np.exp(icf[:, :d])
    factor = np.eye(d) * scales[:, None, :] + np.tri(d, k=-1) * icf[:, place]
    moved = factor @ (x.T[None] - means[:, :, None])  # components, d, points
    terms = (icf[:, :d].sum(1) + alphas) - ((moved * moved).sum(1) * 0.5).T
    top = terms.max(1)
    likelihood = (top + np.log(np.exp(terms - top[:, None]).sum(1))).sum()
    highest = alphas.max()
    weights = highest + np.log(np.exp(alphas - highest).sum())
    prior = 0.5 * ((icf[:, d:] ** 2).sum() + (scales**2).sum())
    return gmm_constant(x.shape[0], d, k, 1.0, 0) + prior + likelihood - weights * x.shape[0]


class Variant(NamedTuple):
    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    argnums: tuple[int, ...]
    #: The work: time is divided by it.
    elements: float


def variants() -> dict[str, list[Variant]]:
    """Problem → the first spelling and the others."""
    n, m = 100_000, 87_654
    x, y = basic.uniform(1, -1.5, 1.5, n), basic.uniform(1, -1.5, 1.5, m)
    rosenbrock, poly = basic.rosenbrock(np), basic.chain_poly(np)
    mixture, (a, means, icf, points) = gmm(namespace("tapec")), gmm_data(1000, 20, 30)
    other = gmm_data(1111, 19, 33)
    return {
        "rosenbrock": [
            Variant(f"n={n}", rosenbrock, (x,), (0,), n),
            Variant(f"n={m}", rosenbrock, (y,), (0,), m),
            Variant("spelled anew", rosenbrock_again, (x,), (0,), n),
        ],
        "chain poly": [
            Variant(f"n={n}", poly, (x,), (0,), n),
            Variant(f"n={m}", poly, (y,), (0,), m),
            Variant("spelled anew", chain_poly_again, (x,), (0,), n),
        ],
        "gmm": [
            Variant("n=1000 d=20 K=30", mixture, (a, means, icf, points), (0, 1, 2), 600_000),
            Variant("n=1111 d=19 K=33", mixture, other, (0, 1, 2), 1111 * 19 * 33),
            Variant("spelled anew", gmm_again, (points, icf, means, a), (3, 2, 1), 600_000),
        ],
    }  # fmt: skip


def measure(group: list[Variant], rounds: int) -> list[float]:
    """Seconds per element of each variant."""
    calls = [(tapec.value_and_grad(v.fn, argnums=v.argnums), v.args) for v in group]
    for call, args in calls:
        call(*args)
    best = [float("inf")] * len(group)
    for _ in range(rounds):
        for i, (call, args) in enumerate(calls):
            start = time.perf_counter()
            call(*args)
            best[i] = min(best[i], (time.perf_counter() - start) / group[i].elements)
    return best


def agree(group: list[Variant]) -> bool:
    """The new spelling gives the first one's value and gradients."""
    first, again = (
        tapec.value_and_grad(v.fn, argnums=v.argnums)(*v.args) for v in (group[0], group[-1])
    )
    pairs = [(first[0], again[0]), *zip(first[1], again[1], strict=True)]
    return all(float(np.max(np.abs(a - b))) <= 1e-11 * float(np.max(np.abs(a))) for a, b in pairs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    good = True
    for problem, group in variants().items():
        if not agree(group):
            print(f"{problem}: the spellings disagree")
            good = False
        times = measure(group, options.rounds)
        for variant, taken in zip(group, times):
            ratio = taken / times[0]
            slow = "" if ratio <= ALLOWED else "  TOO SLOW"
            good = good and not slow
            print(f"{problem:12} {variant.name:20} {taken * 1e9:8.3f} ns a unit  {ratio:.2f}{slow}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
