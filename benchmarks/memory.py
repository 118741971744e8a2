"""Memory over time: 5,000 different functions compiled and dropped; a million calls of one.

    python benchmarks/memory.py
    python benchmarks/memory.py --functions 500 --calls 100000

Prints the resident memory along the way.  Linux only (it reads /proc).
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import time

import numpy as np

import tapec
from tapec.bench_problems import define, straight_line_source


def resident() -> float:
    """Megabytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def array_function(k: int) -> None:
    """Every function has constants, a shape and operations of its own."""
    rng = random.Random(k)
    steps = [rng.choice((np.exp, np.tanh, np.sin)) for _ in range(rng.randrange(1, 4))]
    factor = rng.random()

    def fn(x):
        y = x
        for step in steps:
            y = step(y * factor)
        return np.sum(y)

    tapec.grad(fn)(np.ones(1 + k % 50))


def scalar_function(k: int) -> None:
    program, _ = straight_line_source(12, 3, k)
    tapec.value_and_grad(define(program, "fn", np))(1.0, 0.5, 0.25)


def functions(count: int) -> None:
    print(f"{'functions':>10} {'MB':>8} {'s':>8}")
    start = time.perf_counter()
    for k in range(count + 1):
        (array_function, scalar_function)[k % 2](k)
        if k % max(1, count // 20) == 0:
            gc.collect()
            print(f"{k:10} {resident():8.1f} {time.perf_counter() - start:8.1f}", flush=True)


def calls(count: int) -> None:
    x = np.linspace(0, 1, 10)
    fn = tapec.value_and_grad(lambda x, c: np.sum(np.sin(x) * c), argnums=(0, 1))
    fn(x, 1.0)
    print(f"{'calls':>10} {'MB':>8}")
    for k in range(11):
        print(f"{k * count // 10:10} {resident():8.2f}", flush=True)
        for _ in range(count // 10):
            fn(x, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--functions", type=int, default=5000)
    parser.add_argument("--calls", type=int, default=1_000_000)
    options = parser.parse_args()
    os.environ["TAPEC_CACHE"] = "0"
    functions(options.functions)
    calls(options.calls)


if __name__ == "__main__":
    main()
