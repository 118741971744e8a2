"""``fn.report``, ``fn.stats`` and ``clear_caches``."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tapec
from tapec.report import Machine, machine


def loss(w: Any, x: Any) -> Any:
    return np.sum(np.tanh(x @ w) ** 2)


W, X = np.full(5, 0.1), np.full((30, 5), 0.2)


def test_report_of_a_gradient() -> None:
    f = tapec.value_and_grad(loss)
    report = f.report(W, X)
    assert report.name == "loss"
    assert report.counters.nests
    assert report.counters.bytes_needed == 8 * (5 + 150 + 1 + 5)
    assert report.ratio is not None and 1 < report.ratio < 6
    assert 0 < report.efficiency <= 1
    assert report.call_seconds > 0
    assert list(report.compile_seconds) == ["trace", "transform", "loops and text", "machine code"]
    text = str(report)
    for word in ("operations a byte", "loop nests", "workspace", "the function alone", "compiled"):
        assert word in text
    assert "test_report.py:" in text


def test_report_of_a_function_without_derivative() -> None:
    report = tapec.jit(lambda x: x + 1.0).report(1.0)
    assert report.ratio is None and "the function alone" not in str(report)
    assert report.intensity == float("inf")


def test_report_of_a_bad_call_is_the_error_of_the_call() -> None:
    with pytest.raises(TypeError):
        tapec.grad(loss).report("text", X)


def test_roofline() -> None:
    here = Machine(flops=1e9, cache=1e9, memory=1e8)
    assert here.seconds(2e9, 0, 0) == 2.0
    assert here.seconds(0, 1e9, 1e4) == 1.0
    assert here.seconds(0, 1e9, 1e9) == 10.0


def test_the_machine_is_measured_once() -> None:
    assert machine() is machine()
    assert machine().flops > 1e8 and machine().cache > 1e8 and machine().memory > 1e8


def test_stats() -> None:
    f = tapec.grad(lambda x: x * x if x > 0 else -x)
    assert f.stats().variants == []
    f(1.0), f(-1.0), f(2.0), f(-2.0)
    stats = f.stats()
    assert len(stats.variants) == 2
    assert [v.signature for v in stats.variants] == ["f64[]", "f64[]"]
    assert all(v.guards == 1 and v.native and v.compile_seconds > 0 for v in stats.variants)
    assert stats.guard_failures >= 1
    assert stats.compile_seconds == sum(v.compile_seconds for v in stats.variants)
    assert "2 variants" in str(stats)


def test_stats_of_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPEC_BACKEND", "interpret")
    f = tapec.grad(loss)
    f(W, X)
    (variant,) = f.stats().variants
    assert (variant.nests, variant.native) == (0, False)


def test_clear_caches_during_calls() -> None:
    n = 100_000

    def f(x: Any) -> Any:
        y = np.cumsum(x)
        return np.sum(np.cumsum(y) * y)

    x = np.linspace(0, 1, n)
    g = tapec.grad(f)
    want = g(x)
    assert g.stats().workspace_bytes > 16 << 10
    wrong = []

    def work() -> None:
        for _ in range(30):
            if not np.array_equal(g(x), want):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for _ in range(50):
        tapec.clear_caches()
    for t in threads:
        t.join()
    assert not wrong


def test_clear_caches_lets_go_of_what_no_callable_holds() -> None:
    def f(x: Any) -> Any:
        return x * x

    tapec.grad(f)(1.0)
    tapec.clear_caches()
    g = tapec.grad(f)
    assert g.stats().variants == []
    assert g(3.0) == 6.0
