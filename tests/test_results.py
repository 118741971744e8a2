"""Results that a variant keeps are reused only when nobody can tell."""

from __future__ import annotations

import gc
import sys
import threading
import warnings
import weakref
from typing import Any

import numpy as np
import pytest

import tapec
from tapec.codegen import results


@pytest.fixture(scope="module")
def cubes() -> Any:
    fn: Any = tapec.value_and_grad(lambda x: np.sum(x**3))
    fn(np.zeros(3))
    return fn


@pytest.fixture(scope="module")
def floats() -> Any:
    fn: Any = tapec.jit(lambda x: (x * x, x + 1.0))
    fn(0.5)
    return fn


def x(k: float) -> np.ndarray[Any, Any]:
    return np.array([1.0, 2.0, 3.0]) * k


def test_dropped_arrays_are_reused(cubes: Any) -> None:
    seen = {id(cubes(x(k))[1]) for k in range(1, 20)}
    assert len(seen) <= 2


def test_a_loop_that_holds_one_gradient_uses_two(cubes: Any) -> None:
    seen = set()
    gradient = None
    for k in range(1, 20):
        _, gradient = cubes(x(k))
        seen.add(gradient.ctypes.data)
    assert len(seen) == 2
    np.testing.assert_array_equal(gradient, 3 * x(19) ** 2)


def test_held_results_keep_their_values(cubes: Any, floats: Any) -> None:
    arrays = [cubes(x(k)) for k in range(50)]
    pairs = [floats(float(k)) for k in range(50)]
    for k in range(50):
        assert arrays[k][0] == np.sum(x(k) ** 3)
        np.testing.assert_array_equal(arrays[k][1], 3 * x(k) ** 2)
        assert pairs[k] == (k * k, k + 1.0)


def test_held_floats_of_dropped_tuples(floats: Any) -> None:
    squares = [floats(float(k))[0] for k in range(50)]
    sums = []
    for k in range(50):
        _, s = floats(float(k))
        sums.append(s)
    assert squares == [k * k for k in range(50)]
    assert sums == [k + 1.0 for k in range(50)]


def test_hash_and_set_membership(floats: Any) -> None:
    one = {floats(1.0)}
    hash(floats(2.0))
    assert floats(1.0) in one and floats(3.0) not in one
    assert hash(floats(1.0)) == hash((1.0, 2.0))


def test_a_view_holds_its_array(cubes: Any) -> None:
    views = [cubes(x(k))[1][1:] for k in range(10)]
    buffers = [memoryview(cubes(x(k))[1]) for k in range(10)]
    for k in range(10):
        np.testing.assert_array_equal(views[k], 3 * x(k)[1:] ** 2)
        assert buffers[k].tolist() == (3 * x(k) ** 2).tolist()


def test_results_may_be_arguments(cubes: Any) -> None:
    value = x(0.1)
    want = value.copy()
    for _ in range(4):
        value = cubes(value)[1]
        want = 3 * want**2
        np.testing.assert_allclose(value, want, rtol=1e-15)


def test_changed_arrays_are_not_reused(cubes: Any) -> None:
    def read_only(g: Any) -> None:
        g.flags.writeable = False

    def reshaped(g: Any) -> None:
        g.shape = (3, 1)

    def integers(g: Any) -> None:
        g.dtype = np.int64

    def shortened(g: Any) -> None:
        g.resize(2, refcheck=False)

    for change in (read_only, reshaped, integers, shortened):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            change(cubes(x(1))[1])
        for _ in range(3):
            gradient = cubes(x(2))[1]
            assert gradient.shape == (3,) and gradient.dtype == np.float64
            assert gradient.flags.writeable and gradient.flags.c_contiguous
            np.testing.assert_array_equal(gradient, 3 * x(2) ** 2)


def test_weakly_referred_arrays_are_not_reused(cubes: Any) -> None:
    gradient = cubes(x(1))[1]
    address = id(gradient)
    reference = weakref.ref(gradient)
    del gradient
    for k in range(2, 6):
        other = cubes(x(k))[1]
        assert id(other) != address or reference() is None


def test_errors_leave_kept_results_alone() -> None:
    fn: Any = tapec.value_and_grad(lambda x: np.sum(np.sqrt(x)) if x[0] > 0 else np.sum(x))
    held = fn(x(1))[1]
    for k in (-1, 2, -3, 4):
        gradient = fn(x(k))[1]
        np.testing.assert_allclose(gradient, 0.5 / np.sqrt(x(k)) if k > 0 else np.ones(3))
    np.testing.assert_allclose(held, 0.5 / np.sqrt(x(1)))


def test_empty_and_zero_dimensional_arrays() -> None:
    empty: Any = tapec.jit(lambda x: x * 2.0)
    for _ in range(4):
        assert empty(np.zeros((0, 3))).shape == (0, 3)
        scalar = empty(np.array(2.0))
        assert scalar == 4.0


def test_memory_is_let_go_with_the_function_and_on_request() -> None:
    tapec.clear_caches()
    before = results.kept_bytes()
    fn: Any = tapec.jit(lambda x: x + 1.0)
    big = np.zeros(1 << 17)
    for _ in range(3):
        held = fn(big)
    assert results.kept_bytes() - before == 2 << 20
    tapec.clear_caches()
    assert results.kept_bytes() <= before
    np.testing.assert_array_equal(held, big + 1.0)
    fn = tapec.jit(lambda x: x + 2.0)
    fn(big)
    assert results.kept_bytes() - before == 1 << 20
    del fn
    tapec.clear_caches()
    gc.collect()
    assert results.kept_bytes() <= before


def test_the_whole_memory_kept_is_bounded() -> None:
    fn: Any = tapec.jit(lambda x: x + 1.0)
    big = np.zeros(results.LIMIT // 8 + 1)
    for _ in range(2):
        assert fn(big).sum() == len(big)
    assert results.kept_bytes() <= results.LIMIT


def test_references_are_counted(cubes: Any, floats: Any) -> None:
    pair, result = floats(1.0), cubes(x(1))
    base = sys.getrefcount(pair), sys.getrefcount(pair[0]), sys.getrefcount(result[1])
    for _ in range(10_000):
        floats(2.0)
        cubes(x(2))
    now = sys.getrefcount(pair), sys.getrefcount(pair[0]), sys.getrefcount(result[1])
    assert all(n <= b for n, b in zip(now, base))
    assert pair == (1.0, 2.0)


def test_threads(cubes: Any, floats: Any) -> None:
    wrong = []

    def work(seed: int) -> None:
        for k in range(seed, seed + 3000):
            gradient = cubes(x(k))[1]
            pair = floats(float(k))
            if pair != (k * k, k + 1.0) or not (gradient == 3 * x(k) ** 2).all():
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(10_000 * s,)) for s in range(8)]
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch)
    assert not wrong
