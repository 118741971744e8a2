"""Time to the first value and gradient against program size; and what the import costs.

    python benchmarks/compile_time.py            # straight lines of 100 .. 50,000 operations
    python benchmarks/compile_time.py --max 10000

Each measurement is a fresh function in this process, after one warm-up of the compiler.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import time

import numpy as np

import tapec
from tapec.bench import seconds
from tapec.bench_problems import define, robot_arm, straight_line_source


def first_gradient(fn, args, wrt) -> float:
    start = time.perf_counter()
    tapec.value_and_grad(fn, argnums=wrt)(*args)
    return time.perf_counter() - start


def import_seconds(*statements: str) -> list[float]:
    """The best of nine fresh interpreters for each, taken in turns."""
    best = [float("inf")] * len(statements)
    for _ in range(9):
        for k, statement in enumerate(statements):
            code = (
                f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
            )
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
            best[k] = min(best[k], float(done.stdout))
    return best


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--max", type=int, default=50_000, help="largest program")
    options = parser.parse_args()
    tapec.value_and_grad(lambda x: np.sin(x) * x)(1.0)

    arm = first_gradient(robot_arm(np), (np.linspace(0.1, 0.7, 7),), 0)
    print(f"robot arm, 7 joints: first gradient {seconds(arm)}")
    args = tuple(0.1 * (i + 1) for i in range(10))
    for count in (100, 1000, 10_000, 50_000):
        if count > options.max:
            break
        program, by_hand = straight_line_source(count)
        fn = define(program, "fn", np)
        taken = first_gradient(fn, args, tuple(range(10)))
        got = tapec.value_and_grad(fn, argnums=tuple(range(10)))(*args)
        value, gradient = define(by_hand, "by_hand", math)(*args)
        np.testing.assert_allclose(got[0], value, rtol=1e-9)
        np.testing.assert_allclose(
            got[1], gradient, rtol=1e-7, atol=1e-9 * np.max(np.abs(gradient))
        )
        print(f"straight line, {count:6d} ops: {seconds(taken)}, {seconds(taken / count)} an op")

    base, whole = import_seconds(
        "import numpy, llvmlite.binding", "import numpy, llvmlite.binding, tapec"
    )
    print(
        f"import numpy, llvmlite.binding: {seconds(base)}; tapec adds {1e3 * (whole - base):.1f} ms"
    )


if __name__ == "__main__":
    main()
