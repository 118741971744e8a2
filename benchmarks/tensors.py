"""Tensors against PyTorch eager on one thread: small graphs, long graphs, a training step.

    python benchmarks/tensors.py

Prints times and ratios; the columns of PyTorch stay empty where it is not installed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import tapec

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))


def best(functions: list[Callable[[], Any]], number: int, rounds: int = 7) -> list[float]:
    """Seconds per call of each: the best of several rounds, taken in turns."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(rounds):
        for function, found in zip(functions, times):
            start = time.perf_counter()
            for _ in range(number):
                function()
            found.append((time.perf_counter() - start) / number)
    return [min(found) for found in times]


def small(lib: Any) -> Callable[[], Any]:
    """Record x² + 3x + 1 from scratch and differentiate it."""

    def run() -> None:
        x = lib.tensor(2.0, requires_grad=True)
        y = x**2 + 3 * x + 1
        y.backward()

    return run


def record(lib: Any, n: int = 10_000) -> Callable[[], Any]:
    """Record ``n`` scalar operations."""
    x = lib.tensor(1.0, requires_grad=True)

    def run() -> None:
        y = x
        for _ in range(n // 2):
            y = y * x
            y = y + x

    return run


def second_order(lib: Any) -> Callable[[], Any]:
    """A Hessian-vector product by ``create_graph``."""
    x = lib.linspace(0.1, 1.0, 100).requires_grad_()
    v = lib.ones(100)

    def run() -> None:
        (g,) = lib.autograd.grad((x.sin() * x).sum(), x, create_graph=True)
        lib.autograd.grad((g * v).sum(), x)[0].sum().item()

    return run


def main() -> None:
    try:
        import torch

        torch.set_num_threads(1)
        torch.set_default_dtype(torch.float64)
    except ImportError:
        torch = None
    rows = [
        ("x**2 + 3*x + 1, recorded and backward", small, 20_000, 1),
        ("recording, per operation of 10,000", record, 3, 10_000),
        ("Hessian-vector product, 100 elements", second_order, 500, 1),
    ]
    print(f"{'':42}{'tapec':>10}{'torch':>10}{'ratio':>8}")
    libraries = [tapec] if torch is None else [tapec, torch]
    for name, make, number, operations in rows:
        programs = [make(library) for library in libraries]
        start = time.perf_counter()
        programs[0]()
        cold = (time.perf_counter() - start) / operations
        show(name, [t / operations for t in best(programs, number)])
        if operations > 1:
            print(f"{'  the first time':42}{1e6 * cold:8.2f}µs")
    try:
        import digits

        digits.data()
    except ImportError:
        print("digits: scikit-learn is not installed")
        return
    steps = [[digits.train(library, epochs=2)[2] for library in libraries] for _ in range(7)]
    show("a step on the digits, batch 64, Adam", [min(times) for times in zip(*steps)])


def show(name: str, times: list[float]) -> None:
    other = f"{1e6 * times[1]:8.2f}µs{times[0] / times[1]:8.2f}" if len(times) > 1 else ""
    print(f"{name:42}{1e6 * times[0]:8.2f}µs{other}")


if __name__ == "__main__":
    main()
