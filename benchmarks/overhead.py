"""What one call costs when there is almost nothing to compute.

    python benchmarks/overhead.py

Times the callables that the decorators return, against Numba's dispatcher where installed.
"""

from __future__ import annotations

import importlib.util
import math
import timeit

import numpy as np

import tapec
from tapec.bench import seconds


def best(fn, *args) -> float:
    timer = timeit.Timer(
        "fn(*args)" if len(args) != 1 else "fn(a)",
        globals={"fn": fn, "args": args, "a": args[0] if args else None},
    )
    count, _ = timer.autorange()
    return min(timer.repeat(7, count)) / count


def main() -> None:
    x, v = 0.7, np.array([0.1, 0.2, 0.3])

    def scalar(t):
        return np.sin(t) * t

    def three(a):
        return np.sum(a * a)

    print(f"float → float:             {seconds(best(tapec.jit(scalar), x))}")
    print(f"float → (float, float):    {seconds(best(tapec.value_and_grad(scalar), x))}")
    print(f"array[3] → (float, array): {seconds(best(tapec.value_and_grad(three), v))}")
    print(f"an empty Python function:  {seconds(best(lambda t: t, x))}")
    if importlib.util.find_spec("numba"):
        import numba

        @numba.njit
        def by_numba(t):
            return math.sin(t) * t, math.cos(t) * t + math.sin(t)

        @numba.njit
        def three_by_numba(a):
            return (a * a).sum(), 2 * a

        print(f"numba float → (float, float):    {seconds(best(by_numba, x))}")
        print(f"numba array[3] → (float, array): {seconds(best(three_by_numba, v))}")


if __name__ == "__main__":
    main()
