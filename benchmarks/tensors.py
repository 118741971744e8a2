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


def best(function: Callable[[], Any], number: int, repeat: int = 7) -> float:
    """Seconds per call: the best of several rounds."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        for _ in range(number):
            function()
        times.append((time.perf_counter() - start) / number)
    return min(times)


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
    for name, make, number, operations in rows:
        first = make(tapec)
        start = time.perf_counter()
        first()
        cold = (time.perf_counter() - start) / operations
        ours = best(first, number) / operations
        theirs = best(make(torch), number) / operations if torch is not None else None
        show(name, ours, theirs)
        if operations > 1:
            print(f"{'  the first time':42}{1e6 * cold:8.2f}µs")
    try:
        import digits

        _, _, ours = digits.train(tapec, epochs=10)
    except ImportError:
        print("digits: scikit-learn is not installed")
        return
    theirs = digits.train(torch, epochs=10)[2] if torch is not None else None
    show("a step on the digits, batch 64, Adam", ours, theirs)


def show(name: str, ours: float, theirs: float | None) -> None:
    other = "" if theirs is None else f"{1e6 * theirs:8.2f}µs{ours / theirs:8.2f}"
    print(f"{name:42}{1e6 * ours:8.2f}µs{other}")


if __name__ == "__main__":
    main()
