"""Constrained optimisation with exact derivatives: Hock and Schittkowski's problems, and a long
Rosenbrock valley.

    python examples/hock_schittkowski.py

Prints, for each problem, iterations and function evaluations with tapec's derivatives and with
SciPy's finite differences, and the optimum beside the published one (Hock, Schittkowski, Test
Examples for Nonlinear Programming Codes, Springer 1981).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize

from tapec.scipy import optimize


class Problem(NamedTuple):
    """Minimise ``fun`` with ``positive`` constraints >= 0 and ``equal`` ones = 0."""

    fun: Callable[[Any], Any]
    positive: list[Callable[[Any], Any]]
    equal: list[Callable[[Any], Any]]
    start: list[float]
    optimum: float


def rosenbrock(x: Any) -> Any:
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def hs100(x: Any) -> Any:
    return (
        (x[0] - 10) ** 2 + 5 * (x[1] - 12) ** 2 + x[2] ** 4 + 3 * (x[3] - 11) ** 2
        + 10 * x[4] ** 6 + 7 * x[5] ** 2 + x[6] ** 4 - 4 * x[5] * x[6] - 10 * x[5] - 8 * x[6]
    )  # fmt: skip


ROOT2 = np.sqrt(2)
PROBLEMS: dict[str, Problem] = {
    "HS1": Problem(rosenbrock, [lambda x: x[1:] + 1.5], [], [-2, 1], 0.0),
    "HS6": Problem(
        lambda x: (1 - x[0]) ** 2, [], [lambda x: 10 * (x[1] - x[0] ** 2)], [-1.2, 1], 0.0,
    ),
    "HS7": Problem(
        lambda x: np.log(1 + x[0] ** 2) - x[1], [],
        [lambda x: (1 + x[0] ** 2) ** 2 + x[1] ** 2 - 4], [2, 2], -np.sqrt(3),
    ),
    "HS12": Problem(
        lambda x: 0.5 * x[0] ** 2 + x[1] ** 2 - x[0] * x[1] - 7 * x[0] - 7 * x[1],
        [lambda x: 25 - 4 * x[0] ** 2 - x[1] ** 2], [], [0, 0], -30.0,
    ),
    "HS26": Problem(
        lambda x: (x[0] - x[1]) ** 2 + (x[1] - x[2]) ** 4, [],
        [lambda x: (1 + x[1] ** 2) * x[0] + x[2] ** 4 - 3], [-2.6, 2, 2], 0.0,
    ),
    "HS27": Problem(
        lambda x: 0.01 * (x[0] - 1) ** 2 + (x[1] - x[0] ** 2) ** 2, [],
        [lambda x: x[0] + x[2] ** 2 + 1], [2, 2, 2], 0.04,
    ),
    "HS28": Problem(
        lambda x: (x[0] + x[1]) ** 2 + (x[1] + x[2]) ** 2, [],
        [lambda x: x[0] + 2 * x[1] + 3 * x[2] - 1], [-4, 1, 1], 0.0,
    ),
    "HS29": Problem(
        lambda x: -np.prod(x), [lambda x: 48 - x[0] ** 2 - 2 * x[1] ** 2 - 4 * x[2] ** 2], [],
        [1, 1, 1], -16 * ROOT2,
    ),
    "HS35": Problem(
        lambda x: 9 - 8 * x[0] - 6 * x[1] - 4 * x[2] + 2 * x[0] ** 2 + 2 * x[1] ** 2 + x[2] ** 2
        + 2 * x[0] * x[1] + 2 * x[0] * x[2],
        [lambda x: 3 - x[0] - x[1] - 2 * x[2], lambda x: x], [], [0.5, 0.5, 0.5], 1 / 9,
    ),
    "HS39": Problem(
        lambda x: -x[0], [],
        [lambda x: x[1] - x[0] ** 3 - x[2] ** 2, lambda x: x[0] ** 2 - x[1] - x[3] ** 2],
        [2, 2, 2, 2], -1.0,
    ),
    "HS40": Problem(
        lambda x: -np.prod(x), [],
        [
            lambda x: x[0] ** 3 + x[1] ** 2 - 1,
            lambda x: x[0] ** 2 * x[3] - x[2],
            lambda x: x[3] ** 2 - x[1],
        ],
        [0.8, 0.8, 0.8, 0.8], -0.25,
    ),
    "HS42": Problem(
        lambda x: np.sum((x - np.arange(1.0, 5.0)) ** 2), [],
        [lambda x: x[0] - 2, lambda x: x[2] ** 2 + x[3] ** 2 - 2], [1, 1, 1, 1], 28 - 10 * ROOT2,
    ),
    "HS43": Problem(
        lambda x: x[0] ** 2 + x[1] ** 2 + 2 * x[2] ** 2 + x[3] ** 2 - 5 * x[0] - 5 * x[1]
        - 21 * x[2] + 7 * x[3],
        [
            lambda x: 8 - np.sum(x**2) - x[0] + x[1] - x[2] + x[3],
            lambda x: 10 - x[0] ** 2 - 2 * x[1] ** 2 - x[2] ** 2 - 2 * x[3] ** 2 + x[0] + x[3],
            lambda x: 5 - 2 * x[0] ** 2 - x[1] ** 2 - x[2] ** 2 - 2 * x[0] + x[1] + x[3],
        ],
        [], [0, 0, 0, 0], -44.0,
    ),
    "HS48": Problem(
        lambda x: (x[0] - 1) ** 2 + (x[1] - x[2]) ** 2 + (x[3] - x[4]) ** 2, [],
        [lambda x: np.sum(x) - 5, lambda x: x[2] - 2 * (x[3] + x[4]) + 3], [3, 5, -3, 2, -2], 0.0,
    ),
    "HS50": Problem(
        lambda x: (x[0] - x[1]) ** 2 + (x[1] - x[2]) ** 2 + (x[2] - x[3]) ** 4 + (x[3] - x[4]) ** 2,
        [], [lambda x: x[:3] + 2 * x[1:4] + 3 * x[2:] - 6], [35, -31, 11, 5, -5], 0.0,
    ),
    "HS51": Problem(
        lambda x: (x[0] - x[1]) ** 2 + (x[1] + x[2] - 2) ** 2 + (x[3] - 1) ** 2 + (x[4] - 1) ** 2,
        [],
        [
            lambda x: x[0] + 3 * x[1] - 4,
            lambda x: x[2] + x[3] - 2 * x[4],
            lambda x: x[1] - x[4],
        ],
        [2.5, 0.5, 2, -1, 0.5], 0.0,
    ),
    "HS71": Problem(
        lambda x: x[0] * x[3] * (x[0] + x[1] + x[2]) + x[2],
        [lambda x: np.prod(x) - 25, lambda x: x - 1, lambda x: 5 - x],
        [lambda x: np.sum(x**2) - 40], [1, 5, 5, 1], 17.0140173,
    ),
    "HS77": Problem(
        lambda x: (x[0] - 1) ** 2 + (x[0] - x[1]) ** 2 + (x[2] - 1) ** 2 + (x[3] - 1) ** 4
        + (x[4] - 1) ** 6, [],
        [
            lambda x: x[0] ** 2 * x[3] + np.sin(x[3] - x[4]) - 2 * ROOT2,
            lambda x: x[1] + x[2] ** 4 * x[3] ** 2 - 8 - ROOT2,
        ],
        [2, 2, 2, 2, 2], 0.24150513,
    ),
    "HS78": Problem(
        lambda x: np.prod(x), [],
        [
            lambda x: np.sum(x**2) - 10,
            lambda x: x[1] * x[2] - 5 * x[3] * x[4],
            lambda x: x[0] ** 3 + x[1] ** 3 + 1,
        ],
        [-2, 1.5, 2, -1, -1], -2.91970041,
    ),
    "HS79": Problem(
        lambda x: (x[0] - 1) ** 2 + (x[0] - x[1]) ** 2 + (x[1] - x[2]) ** 2 + (x[2] - x[3]) ** 4
        + (x[3] - x[4]) ** 4, [],
        [
            lambda x: x[0] + x[1] ** 2 + x[2] ** 3 - 2 - 3 * ROOT2,
            lambda x: x[1] - x[2] ** 2 + x[3] + 2 - 2 * ROOT2,
            lambda x: x[0] * x[4] - 2,
        ],
        [2, 2, 2, 2, 2], 0.0787768209,
    ),
    "HS100": Problem(
        hs100,
        [
            lambda x: 127 - 2 * x[0] ** 2 - 3 * x[1] ** 4 - x[2] - 4 * x[3] ** 2 - 5 * x[4],
            lambda x: 282 - 7 * x[0] - 3 * x[1] - 10 * x[2] ** 2 - x[3] + x[4],
            lambda x: 196 - 23 * x[0] - x[1] ** 2 - 6 * x[5] ** 2 + 8 * x[6],
            lambda x: -4 * x[0] ** 2 - x[1] ** 2 + 3 * x[0] * x[1] - 2 * x[2] ** 2 - 5 * x[5]
            + 11 * x[6],
        ],
        [], [1, 2, 0, 4, 0, 1, 1], 680.6300573,
    ),
}  # fmt: skip

SLSQP = {"ftol": 1e-9, "maxiter": 300}


def constraints_of(problem: Problem) -> list[dict[str, Any]]:
    """Constraints as SciPy takes them."""
    return [{"type": "ineq", "fun": g} for g in problem.positive] + [
        {"type": "eq", "fun": g} for g in problem.equal
    ]


def solve(problem: Problem, module: Any = optimize) -> Any:
    """By SLSQP; ``module``: tapec's or SciPy's ``optimize``."""
    start = np.array(problem.start, float)
    return module.minimize(
        problem.fun, start, method="SLSQP", constraints=constraints_of(problem), options=SLSQP
    )


def valley(n: int, module: Any = optimize) -> Any:
    """Rosenbrock's function of n variables in the unit ball around the minimum, by trust-constr."""
    start = np.tile([0.8, 1.2], n // 2)
    if module is optimize:
        ball: Any = optimize.NonlinearConstraint(lambda x: np.sum((x - 1) ** 2), 0, n, sparse=True)
        return optimize.minimize(rosenbrock, start, method="trust-constr", constraints=ball,
                                 options={"gtol": 1e-9, "maxiter": 2000})  # fmt: skip
    ball = module.NonlinearConstraint(lambda x: np.sum((x - 1) ** 2), 0, n)
    return module.minimize(rosenbrock, start, method="trust-constr", constraints=ball,
                           options={"gtol": 1e-9, "maxiter": 300})  # fmt: skip


def main() -> None:
    print(f"{'':8}{'published':>14}{'found':>14}   exact: it, calls   differences: it, calls")
    for name, problem in PROBLEMS.items():
        ours, theirs = solve(problem), solve(problem, scipy.optimize)
        print(
            f"{name:8}{problem.optimum:14.7f}{ours.fun:14.7f}{ours.nit:12}{ours.nfev:7}"
            f"{theirs.nit:17}{theirs.nfev:7}"
        )
    for n in (10, 1000):
        start = time.perf_counter()
        r = valley(n)
        print(f"Rosenbrock, n = {n}, trust-constr: {r.fun:.2e} after {r.nit} iterations, "
              f"{r.nfev} calls, {time.perf_counter() - start:.2f} s")  # fmt: skip
    r = valley(10, scipy.optimize)
    print(f"  with differences, n = 10: {r.fun:.2e} after {r.nit} iterations, {r.nfev} calls")


if __name__ == "__main__":
    main()
