"""Signatures, guards, captured arrays, staleness, threads, processes, lifetime."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import textwrap
import threading
import weakref

import numpy as np
import pytest

import tapec
from tapec.codegen.callable_type import slow_of

SCALE = 1.0


def helper(x):
    return 2 * x


def bowl(v):
    return (v[0] - 1) ** 2 + 10 * (v[1] - v[0] ** 2) ** 2


gradient_of_bowl = tapec.grad(bowl)


# -- signatures ----------------------------------------------------------------------------


def test_shape_changes_between_calls():
    g = tapec.grad(lambda x: np.sum(x**2) / len(x))
    for n in (3, 5, 1, 3):
        x = np.arange(1.0, n + 1)
        np.testing.assert_allclose(g(x), 2 * x / n)


def test_static_values_are_told_apart():
    def f(x, n):
        return x * 10 if n is True else x * n

    g = tapec.jit(f)
    assert [g(1.0, n) for n in (1, True, 2, 1, True)] == [1, 10, 2, 1, 10]


def test_dtypes_are_told_apart():
    g = tapec.grad(lambda x: np.sum(x**2))
    for dtype in (np.float64, np.float32, np.float64):
        assert g(np.ones(2, dtype)).dtype == dtype


def test_traces_once_per_signature():
    runs = []

    def f(x, flag):
        runs.append(flag)
        return x**2

    g = tapec.grad(f)
    for _ in range(3):
        g(1.0, "a"), g(2.0, "b"), g(np.ones(()), "a")
    assert runs == ["a", "b", "a"]


@pytest.mark.parametrize(
    "make",
    [
        lambda x: np.asfortranarray(x),
        lambda x: x[::-1][::-1],
        lambda x: np.ascontiguousarray(x[::-1])[::-1],
        lambda x: x.astype(">f8"),
        lambda x: np.repeat(x, 2, axis=1)[:, ::2],
        lambda x: np.frombuffer(b"0" + x.tobytes(), np.float64, offset=1).reshape(x.shape),
        lambda x: np.lib.stride_tricks.as_strided(x, x.shape, x.strides),
    ],
)
def test_other_layouts(make):
    x = np.arange(6.0).reshape(2, 3)
    w = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    y = make(x)
    g = tapec.grad(lambda x: np.sum(w * x**2))
    for _ in range(2):
        np.testing.assert_array_equal(g(y), 2 * w * x)
        np.testing.assert_array_equal(g(x), 2 * w * x)


def test_read_only_subclass_and_memmap(tmp_path):
    class Sub(np.ndarray):
        pass

    g = tapec.grad(lambda x: np.sum(x**2))
    x = np.arange(3.0)
    x.flags.writeable = False
    assert g(x).tolist() == [0, 2, 4]
    out = g(x.view(Sub))
    assert type(out) is np.ndarray and out.tolist() == [0, 2, 4]
    m = np.memmap(tmp_path / "m", np.float64, "w+", shape=(3,))
    m[:] = [1, 2, 3]
    assert g(m).tolist() == [2, 4, 6]


# -- guards --------------------------------------------------------------------------------


def test_branches_make_variants():
    runs = []

    def f(x):
        runs.append(1)
        return x * x if x > 1 else 3 * x

    g = tapec.grad(f)
    assert [g(x) for x in (2.0, 0.5, 3.0, 0.1, 2.0)] == [4, 3, 6, 3, 4]
    assert len(runs) == 2


def test_loop_until():
    def f(x):
        s = x
        while s < 10:
            s = s * x
        return s

    g = tapec.grad(f)
    for _ in range(2):
        for x, want in ((2.0, 32.0), (3.0, 27.0), (9.99, 2 * 9.99), (12.0, 1.0)):
            assert g(x) == pytest.approx(want, rel=1e-12)


def test_too_many_variants(monkeypatch):
    monkeypatch.setenv("TAPEC_MAX_VARIANTS", "4")

    def f(x):
        return x * int(x)

    g = tapec.grad(f)
    for k in range(4):
        assert g(k + 0.5) == k
    with pytest.raises(tapec.VariantLimitError, match=r"test_dispatch.py:\d+.*4 different paths"):
        g(100.5)
    assert g(2.5) == 2


def test_exception_then_good_call():
    def f(x):
        if x < 0:
            raise ValueError("no negative numbers here")
        return x**2

    g = tapec.grad(f)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"^no negative numbers here$"):
            g(-1.0)
        assert g(2.0) == 4.0


# -- what else a function reads --------------------------------------------------------------


def test_captured_array_is_read_at_every_call():
    w = np.array([1.0, 2.0])
    g = tapec.grad(lambda x: w @ x)
    assert g(np.ones(2)).tolist() == [1, 2]
    w[0] = 9
    assert g(np.ones(2)).tolist() == [9, 2]


@pytest.mark.parametrize("kind", ["strided", "big-endian", "fortran", "unaligned"])
def test_captured_array_of_another_layout(kind):
    base = np.arange(12.0).reshape(3, 4)
    w = {
        "strided": base[:, ::2],
        "big-endian": base[:, :2].astype(">f8"),
        "fortran": np.asfortranarray(base[:, :2]),
        "unaligned": np.frombuffer(bytearray(49), np.float64, offset=1).reshape(3, 2),
    }[kind]
    g = tapec.grad(lambda x: np.sum(w * x))
    np.testing.assert_array_equal(g(np.ones((3, 2))), w)
    w[0, 0] = 77
    np.testing.assert_array_equal(g(np.ones((3, 2))), w)


def test_global_scalar_changes():
    global SCALE
    g = tapec.grad(lambda x: SCALE * x**2)
    try:
        for SCALE, want in ((1.0, 6.0), (5.0, 30.0), (-2.0, -12.0), (1.0, 6.0), (3, 18.0)):
            assert g(3.0) == want
    finally:
        SCALE = 1.0


def test_many_values_of_a_global_are_no_error(monkeypatch):
    global SCALE
    monkeypatch.setenv("TAPEC_MAX_VARIANTS", "3")
    g = tapec.grad(lambda x: SCALE * x)
    try:
        for k in range(10):
            SCALE = float(k)
            assert g(1.0) == k
    finally:
        SCALE = 1.0


def test_closure_and_helper_changes():
    global helper
    k = 2.0

    def f(x):
        return k * helper(x)

    g = tapec.grad(f)
    assert g(1.0) == 4.0
    k = 3.0
    assert g(1.0) == 6.0
    old = helper
    try:
        helper = lambda x: 10 * x  # noqa: E731
        assert g(1.0) == 30.0
    finally:
        helper = old
    assert g(1.0) == 6.0


def test_attributes_and_containers_change():
    class Config:
        scale = 2.0

    config, table = Config(), {"a": 1.0, "list": [1.0, 2.0]}

    def f(x):
        return config.scale * x * table["a"] * table["list"][1]

    g = tapec.grad(f)
    assert g(1.0) == 4.0
    config.scale = 5.0
    assert g(1.0) == 10.0
    table["a"] = 3.0
    assert g(1.0) == 30.0
    table["list"][1] = 1.0
    assert g(1.0) == 15.0


def test_rebound_array():
    w = np.ones(2)
    g = tapec.grad(lambda x: w @ x)
    assert g(np.ones(2)).tolist() == [1, 1]
    w = np.array([3.0, 4.0])
    assert g(np.ones(2)).tolist() == [3, 4]


def test_array_that_numpy_computes_with():
    w, table = np.array([1.0, 2.0]), [np.ones(2)]

    def f(x, k=np.array([1.0, 1.0])):  # noqa: B008
        return np.sum((2 * w) * x * np.exp(table[0]) * (k + 1)) if w[1] > 0 else np.sum(x)

    g = tapec.grad(f)
    for _ in range(2):
        np.testing.assert_allclose(g(np.ones(2)), 4 * w * np.exp(1))
    w[0] = 9.0
    np.testing.assert_allclose(g(np.ones(2)), 4 * w * np.exp(1))
    table[0][:] = 0.0
    np.testing.assert_allclose(g(np.ones(2)), 4 * w)
    f.__defaults__[0][:] = 0.0
    np.testing.assert_allclose(g(np.ones(2)), 2 * w)
    w[1] = -1.0
    assert g(np.ones(2)).tolist() == [1, 1]


def test_native_code_notices_contents():
    w = np.array([1.0, 2.0])
    g = tapec.grad(lambda x: np.sum((2 * w) * x))
    x = np.ones(2)
    for k in range(3):
        w[0] = k
        assert g(x).tolist() == [2 * k, 4] == g(x).tolist()


def test_added_key():
    terms = {"a": 1.0}
    g = tapec.grad(lambda x: sum(v * x for v in terms.values()))
    assert g(1.0) == 1.0
    terms["b"] = 2.0
    assert g(1.0) == 3.0


def test_input_array_untouched():
    x = np.array([1.0, 2.0])

    def f(x):
        x[0] = 0.0
        return np.sum(x**2)

    g = tapec.grad(f)
    for _ in range(2):
        assert g(x).tolist() == [0, 4]
        assert x.tolist() == [1, 2]


# -- threads and processes -------------------------------------------------------------------


def test_eight_threads_at_first_use():
    g = tapec.value_and_grad(lambda x: np.sum(np.sin(x) * x) if x[0] > 0 else np.sum(x**3))
    start = threading.Barrier(8)
    wrong: list[object] = []

    def work(k):
        rng = np.random.default_rng(k)
        start.wait()
        try:
            for _ in range(100):
                x = rng.normal(size=4)
                value, grad = g(x)
                if x[0] > 0:
                    good = np.allclose(grad, np.cos(x) * x + np.sin(x))
                else:
                    good = np.allclose(grad, 3 * x**2) and np.isclose(value, np.sum(x**3))
                if not good:
                    wrong.append((x, grad))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_after_compiling():
    g = tapec.grad(lambda x: np.sum(x**2))
    assert g(np.ones(2)).tolist() == [2, 2]
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            same = g(np.ones(2)).tolist() == [2, 2]  # compiled before
            new = g(np.ones(3)).tolist() == [2, 2, 2]  # compiled here
            code = 0 if same and new else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_spawned_pool(tmp_path, monkeypatch):
    (tmp_path / "pool_subject.py").write_text(
        textwrap.dedent(
            """
            import tapec

            def bowl(v):
                return (v[0] - 1) ** 2 + 10 * (v[1] - v[0] ** 2) ** 2

            gradient = tapec.grad(bowl)
            """
        )
    )
    monkeypatch.syspath_prepend(tmp_path)
    import pool_subject

    points = [np.array([0.5, 2.0 + k]) for k in range(4)]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.map(pool_subject.gradient, points)
    for p, g in zip(points, found, strict=True):
        np.testing.assert_allclose(g, gradient_of_bowl(p))
    del sys.modules["pool_subject"]


# -- lifetime --------------------------------------------------------------------------------


def test_dropped_function_frees_what_it_captured():
    class Weak(np.ndarray):
        pass

    def make():
        w = np.ones(1000)
        ref = weakref.ref(w)
        g = tapec.grad(lambda x: np.sum(w * x))
        g(np.ones(1000))
        return g, ref

    g, ref = make()
    assert ref() is not None
    gc.collect()
    gc.disable()
    try:
        del g
        assert ref() is None
    finally:
        gc.enable()


def test_transform_in_a_loop_compiles_once():
    runs = []

    def f(x):
        runs.append(1)
        return np.sum(x**2)

    for k in range(5):
        assert tapec.grad(f)(np.full(2, k + 1.0)).tolist() == [2 * k + 2] * 2
    assert len(runs) == 1
    g, h = tapec.grad(f), tapec.grad(f)
    assert g(np.ones(2)).tolist() == h(np.ones(2)).tolist() == g(np.ones(2)).tolist()
    tapec.value_and_grad(f)(np.ones(2))
    ref = weakref.ref(f)
    del f, g, h
    gc.collect()
    assert ref() is None


def test_recursive_local_function_is_freed():
    def make():
        def power(x, n):
            return x if n == 1 else x * power(x, n - 1)

        assert tapec.grad(power)(2.0, 3) == 12.0
        return weakref.ref(power)

    ref = make()
    gc.collect()
    assert ref() is None


def test_arguments_are_not_kept():
    g = tapec.value_and_grad(lambda x: np.sum(x**2))
    x = np.ones(1000)
    ref = weakref.ref(x)
    g(x)
    del x
    gc.collect()
    assert ref() is None


def test_no_cyclic_garbage_from_calls():
    g = tapec.grad(lambda x: np.sum(tapec.grad(lambda y: np.sum(y**3))(x)))
    x = np.ones(3)
    g(x)
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        for _ in range(2000):
            g(x)
        assert len(gc.get_objects()) - before < 100
    finally:
        gc.enable()


def test_calls_leak_nothing():
    import tracemalloc

    f = tapec.value_and_grad(lambda x, v: np.sum(v**2) * x)
    v = np.arange(3.0)
    f(2.0, v), f(2, v[::-1])
    tracemalloc.start()
    try:
        for k in range(2):
            for _ in range(2000):
                f(2.0, v), f(2, v[::-1])
            if k == 0:
                before = tracemalloc.get_traced_memory()[0]
        assert tracemalloc.get_traced_memory()[0] - before < 20_000
    finally:
        tracemalloc.stop()


def test_interpreter_backend(monkeypatch):
    monkeypatch.setenv("TAPEC_BACKEND", "interpret")
    g = tapec.value_and_grad(lambda x: np.sum(x**2) if x[0] > 0 else np.sum(x))
    assert g(np.array([1.0, 2.0]))[1].tolist() == [2, 4]
    assert g(np.array([-1.0, 2.0]))[1].tolist() == [1, 1]
    monkeypatch.setenv("TAPEC_BACKEND", "quantum")
    with pytest.raises(ValueError, match="TAPEC_BACKEND"):
        tapec.grad(lambda x: x)(1.0)


def test_native_calls_notice_changes(monkeypatch):
    """A function that reads globals and closures is still called natively."""
    global SCALE
    monkeypatch.setenv("TAPEC_BACKEND", "native")
    k = 2.0
    g = tapec.grad(lambda x: SCALE * k * helper(x))
    calls = []
    dispatcher = slow_of(g).dispatcher
    inner = dispatcher.call
    try:
        assert g(1.0) == 4.0
        dispatcher.call = lambda *args: calls.append(1) or inner(*args)
        assert [g(1.0) for _ in range(3)] == [4.0] * 3
        assert not calls
        SCALE = 5.0
        assert g(1.0) == 20.0 and len(calls) == 1
        assert g(1.0) == 20.0 and len(calls) == 1
        SCALE = 1.0
        k = 3.0
        assert g(1.0) == 6.0 and len(calls) == 2
    finally:
        SCALE = 1.0
