"""Hot programs are compiled again in the background, and nobody notices but by the speed."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import tapec
from tapec import promotion
from tapec.codegen import kernel, objects
from tapec.codegen.callable_type import slow_of
from tapec.ir import parse


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel starts at level 0 and is hot after 20 calls."""
    monkeypatch.setattr(kernel, "TIER_LIMIT", 0)
    monkeypatch.setattr("tapec.backend.calls_until_hot", lambda facts: 20)


def loss(x: Any, y: Any) -> Any:
    return np.sum(np.tanh(x * y) * np.exp(-x)) + y


X = np.linspace(-1, 1, 37)


def level(f: Any) -> list[int]:
    return [v.opt for v in f.stats().variants]


def test_a_hot_program_is_promoted_and_its_results_stay() -> None:
    f = tapec.value_and_grad(loss, argnums=(0, 1))
    value, (gx, gy) = f(X, 0.5)
    for _ in range(15):
        f(X, 0.5)
    assert level(f) == [0] and promotion._worker is None
    for _ in range(10):
        f(X, 0.5)
    promotion.wait()
    assert level(f) == [2] and promotion._worker is None
    before = f.stats().variants[0].python_calls
    for _ in range(50):
        again, (hx, hy) = f(X, 0.5)
        assert (again, hy) == (value, gy)  # to the last bit
        np.testing.assert_array_equal(hx, gx)
    assert f.stats().variants[0].python_calls == before  # all in native code
    assert f.stats().guard_failures == 0


def test_guards_still_choose_the_path() -> None:
    f = tapec.grad(lambda x: x * x if x > 0 else -3.0 * x)
    for _ in range(60):
        assert (f(2.0), f(-2.0)) == (4.0, -3.0)
    promotion.wait()
    assert level(f) == [2, 2]
    assert (f(2.0), f(-2.0)) == (4.0, -3.0)


def test_programs_that_are_not_linked_are_promoted() -> None:
    f = tapec.jit(lambda d: {"sum": d["a"] + d["b"]})
    for k in range(30):
        assert f({"a": float(k), "b": 1.0}) == {"sum": k + 1.0}
    promotion.wait()
    assert level(f) == [2]
    assert f({"a": 1.0, "b": 1.0}) == {"sum": 2.0}


def test_captured_arrays_are_seen_after_promotion() -> None:
    data = np.ones(5)
    f = tapec.jit(lambda x: np.sum(x * data))
    for _ in range(30):
        assert f(2.0) == 10.0
    promotion.wait()
    data[:] = 2.0
    assert level(f)[0] == 2
    assert f(2.0) == 20.0


def test_a_swept_jacobian_is_promoted() -> None:
    f = tapec.hessian(lambda x: np.sum(np.tanh(x) ** 2 * np.roll(x, 1)))
    x = np.linspace(0, 1, 40)
    want = f(x)
    f(x)
    promotion.wait()
    np.testing.assert_array_equal(f(x), want)


def test_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPEC_PROMOTE", "0")
    f = tapec.grad(lambda x: x * x)
    for _ in range(50):
        f(1.0)
    promotion.wait()
    assert level(f) == [0]


def test_a_forced_level_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPEC_OPT", "1")
    f = tapec.grad(lambda x: x * x)
    for _ in range(50):
        f(1.0)
    promotion.wait()
    assert level(f) == [1]


def test_a_program_that_cannot_be_promoted_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    f = tapec.grad(lambda x: x * x)
    f(1.0)
    monkeypatch.setattr("tapec.backend.promoted", lambda made, fn: 1 / 0)
    for _ in range(2000):
        assert f(3.0) == 6.0
    promotion.wait()
    assert level(f) == [0]


def test_a_dropped_program_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    f = tapec.grad(lambda x: x * x)
    f(1.0)
    compiled = next(iter(slow_of(f).dispatcher.signatures.values()))[0].compiled  # type: ignore[attr-defined]
    ref = weakref.ref(compiled)
    asked: list[Any] = []
    monkeypatch.setattr(threading.Thread, "start", lambda self: asked.append(self))
    promotion.request(compiled)
    assert len(asked) == 1
    del f, compiled
    gc.collect()
    assert ref() is None
    promotion._work()
    assert not promotion._queue and promotion._worker is None


def test_many_threads_call_while_it_is_exchanged() -> None:
    f = tapec.value_and_grad(loss)
    want = f(X, 0.5)
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(2000):
            got = f(X, 0.5)
            if got[0] != want[0] or not np.array_equal(got[1], want[1]):
                wrong.append(got)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    promotion.wait()
    assert not wrong and level(f) == [2]


def test_the_better_object_replaces_the_first_on_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("TAPEC_CACHE", "1")
    monkeypatch.setenv("TAPEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(objects, "_STARTED", float("inf"))
    objects._environment.cache_clear()
    fn = parse("func @f(%x: f64[]) -> (f64[]) {\n  %y = exp %x : f64[]\n  return %y\n}")
    first = objects.kernel_object(fn)
    assert (first.facts.opt, first.cached) == (0, False)
    found = objects.kernel_object(fn)
    assert (found.facts.opt, found.cached, found.text) == (0, True, None)
    assert objects.COUNTDOWN in found.facts.symbols
    better = objects.promoted(found, fn)
    assert better.facts.opt == 2 and objects.COUNTDOWN not in better.facts.symbols
    assert objects.promoted(first, fn).facts == better.facts
    last = objects.kernel_object(fn)
    assert (last.facts, last.cached, last.code) == (better.facts, True, better.code)


def test_when_it_pays() -> None:
    def calls(instructions: int, work_ns: float) -> int:
        return objects.calls_until_hot(objects.Facts(0, [], work_ns, instructions, 0, 0, 0))

    assert calls(10_000, 6_000) == 10_000
    assert calls(3_000, 1e9) == 20
    assert calls(30_000, 0.0) == 20_000  # straight-line code


SCRIPT = """
import os, sys, threading
import numpy as np, tapec
from tapec import backend, promotion
from tapec.codegen import kernel
kernel.TIER_LIMIT = 0
backend.calls_until_hot = lambda facts: 20
def f(x):
    for k in range(100):
        x = np.sin(x) + x * k / 900
    return x
g = tapec.grad(f)
want = g(0.5)
for _ in range(30):
    assert g(0.5) == want
"""


@pytest.mark.parametrize(
    "ending",
    ["", "sys.exit(0)", "del g, f", "promotion.wait()", "threading.Thread(target=g, args=(1.,)).start()"],
)  # fmt: skip
def test_the_process_ends_cleanly(ending: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + ending], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


FORK = """
pids = []
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        for _ in range(3000):
            assert g(0.5) == want
        promotion.wait()
        levels = [v.opt for v in g.stats().variants]
        os._exit(0 if levels[0] > 0 else 1)
    pids.append(pid)
assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 3
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_child_promotes_for_itself() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT + FORK],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
