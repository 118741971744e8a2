"""Memory over time: functions that come and go, and many calls of one.

``benchmarks/memory.py`` shows the same with 5,000 functions and a million calls.
"""

from __future__ import annotations

import gc
import os
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import tapec
from tapec.codegen import engine


def resident() -> int:
    """Bytes of memory that the process occupies."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="no /proc")


@contextmanager
def grows_by_at_most(limit: int) -> Iterator[None]:
    gc.collect()
    before = resident()
    yield
    gc.collect()
    grown = resident() - before
    assert grown <= limit, f"{grown} bytes"


def compile_and_drop(k: int) -> None:
    factor = float(k) + 0.5

    def f(x: Any) -> Any:
        return np.sum(np.exp(x) * factor)

    gradient = tapec.grad(f)(np.zeros(3))
    assert gradient[0] == factor


@needs_proc
def test_functions_that_are_dropped_leave_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "LIBRARIES", 20)
    monkeypatch.setattr(engine._get_host(), "room", 0)
    for k in range(60):
        compile_and_drop(k)
    with grows_by_at_most(1_000_000):  # 10 kB each, or 2 MB, if JITs were not replaced
        for k in range(200):
            compile_and_drop(k)


@needs_proc
def test_calls_leave_no_memory() -> None:
    """Native calls of every kind of result; each leaks less than one byte per call."""
    x = np.linspace(0, 1, 50)
    both: Callable[..., Any] = tapec.value_and_grad(lambda x, c: np.sum(x * x) * c, argnums=(0, 1))
    branch = tapec.jit(lambda x: {"a": x, "b": [x * 2]} if x > 0 else {"a": -x, "b": [x]})
    for _ in range(100):
        both(x, 2.0), branch(1.0), branch(-1.0)
    with grows_by_at_most(300_000):
        for _ in range(100_000):
            both(x, 2.0)
        for _ in range(2_000):
            branch(1.0), branch(-1.0)


def test_calls_leave_no_references() -> None:
    x = np.linspace(0, 1, 5)
    f = tapec.value_and_grad(lambda x, c: np.sum(x * x) * c)
    g = tapec.hessian(lambda x: np.sum(x**3))
    f(x, 1.5), g(x)
    watched = [x, np.dtype(float), np.ndarray, float, tuple, None]
    counts = [sys.getrefcount(w) for w in watched]
    tracemalloc.start()
    first = tracemalloc.get_traced_memory()[0]
    for _ in range(10_000):
        f(x, 1.5), g(x)
    last = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert [abs(sys.getrefcount(w) - n) < 50 for w, n in zip(watched, counts)] == [True] * 6
    assert last - first < 10_000


def test_errors_leave_no_references() -> None:
    f = tapec.grad(lambda x: np.sum(x * x))
    x = np.ones(3)
    f(x)
    count = sys.getrefcount(x)
    for _ in range(200):
        with pytest.raises(TypeError):
            f(x, x)
        with pytest.raises(TypeError):
            f(x, bad=x)
    gc.collect()
    assert sys.getrefcount(x) == count
