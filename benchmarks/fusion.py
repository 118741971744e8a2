"""One fused function: value and gradient against hand-written NumPy and the value alone.

    python benchmarks/fusion.py

Prints, for sum(sin(exp(x))) and Rosenbrock at n = 1e6: the times, both ratios, and the number
of loop nests in the compiled function.
"""

from __future__ import annotations

import numpy as np

import tapec
from tapec.bench import best_time, seconds
from tapec.bench_problems import Problem, problems


def report(problem: Problem) -> None:
    fn, args = problem.make(np), problem.args
    both, value = tapec.value_and_grad(fn), tapec.jit(fn)
    ours = best_time(lambda: both(*args), 1.0)
    alone = best_time(lambda: value(*args), 1.0)
    hand = best_time(lambda: problem.by_hand(*args), 2.0)
    lines = both.dump("loops", *args).splitlines()
    nests = sum(line.lstrip().startswith("nest") for line in lines)
    print(
        f"{problem.name}: {seconds(ours)}; by hand in NumPy {seconds(hand)} ({hand / ours:.1f} "
        f"times as long); value alone {seconds(alone)} (gradient / value {ours / alone:.2f}); "
        f"{nests} loop nests"
    )


def main() -> None:
    for problem in problems():
        if problem.name in ("sum(sin(exp(x))), n = 1000000", "rosenbrock, n = 1000000"):
            report(problem)


if __name__ == "__main__":
    main()
