"""Limits with a way out, and warnings: variants, the length of a tape, equality, random numbers."""

from __future__ import annotations

import inspect
import random
import threading
import warnings

import numpy as np
import pytest

import tapec


def line_of(f, text):
    lines, first = inspect.getsourcelines(f)
    return first + next(k for k, line in enumerate(lines) if text in line)


# -- variants -------------------------------------------------------------------------------


def test_variant_limit_names_the_line_that_diverges(monkeypatch):
    monkeypatch.setenv("TAPEC_MAX_VARIANTS", "5")

    def f(x, y):
        if y > 0:
            x = x * 2
        return x * int(x)

    for backend in ("native", "interpret"):
        monkeypatch.setenv("TAPEC_BACKEND", backend)
        g = tapec.grad(lambda x, y: f(x, y))
        for k in range(7):  # the first two are replaced by one that joins the other branch
            g(k + 0.25, 1.0)
        with pytest.raises(tapec.VariantLimitError) as caught:
            g(50.0, 1.0)
        text = str(caught.value)
        line = line_of(f, "int(x)")
        assert text.startswith(f"{__file__}:{line}: ") and "5 different paths" in text
        assert "tapec.cond" in text and "TAPEC_MAX_VARIANTS" in text and "5 of them" in text
        assert g(2.25, 1.0) == 2 * 4


def test_stats_tell_what_was_compiled(monkeypatch):
    monkeypatch.setenv("TAPEC_JOIN", "0")
    monkeypatch.setenv("TAPEC_BACKEND", "native")
    g = tapec.value_and_grad(lambda x: x * x if x > 0 else -x)
    for x in (1.0, -1.0, 2.0, -2.0):
        g(x)
    stats = g.stats()
    assert (stats.compiles, stats.misses, len(stats.variants)) == (2, 1, 2)
    assert stats.guard_failures >= 1 and stats.compile_seconds > 0
    assert all(v.guards == 1 and not v.joins for v in stats.variants)
    assert "2 variants after 2 compilations" in str(stats)


# -- tapes ----------------------------------------------------------------------------------


def long_loop(x):
    s = x
    for _ in range(1_000_000):
        s = 0.5 * s + x
    return s


@pytest.mark.parametrize("join", ["0", "1"])
def test_a_long_loop_ends_at_the_tape_limit(monkeypatch, join):
    monkeypatch.setenv("TAPEC_TAPE_LIMIT", "20_000")
    monkeypatch.setenv("TAPEC_JOIN", join)
    with pytest.raises(tapec.TapeLimitError) as caught:
        tapec.grad(long_loop)(1.0)
    text = str(caught.value)
    assert text.startswith(f"{__file__}:{line_of(long_loop, '0.5 * s')}: ")
    assert "20,000" in text and "tapec.fori_loop" in text and "tapec.scan" in text
    built = tapec.grad(lambda x: tapec.fori_loop(0, 1_000_000, lambda _, s: 0.5 * s + x, x))
    assert built(1.0) == pytest.approx(2.0)


# -- equality -------------------------------------------------------------------------------


def at_one(x):
    if x == 1:
        return 0.0 * x
    return np.log(x) / (x - 1)


def test_equality_on_a_differentiated_value_warns():
    g = tapec.grad(at_one)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        g(2.0)
    with pytest.warns(tapec.TapecWarning, match=r"equal to something") as caught:
        assert g(1.0) == 0.0
    assert (caught[0].filename, caught[0].lineno) == (__file__, line_of(at_one, "x == 1"))


def test_equality_that_does_not_matter_is_quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tapec.jit(at_one)(1.0)
        assert tapec.grad(lambda x, n: x * x if n == 1 else x)(2.0, 1.0) == 4.0
        assert tapec.grad(lambda x: x * x if np.floor(x) == 2 else x)(2.5) == 5.0
        assert tapec.grad(lambda x: x * x if np.argmax(x) == 1 else x)(2.5) == 1.0


# -- random numbers ---------------------------------------------------------------------------


def test_numbers_drawn_while_tracing_warn():
    rng = np.random.default_rng(0)

    def from_global(x):
        return np.sum(x * np.random.normal(size=3))

    def from_python(x):
        return np.sum(x) * random.random()

    def from_generator(x):
        return np.sum(x * rng.normal(size=3))

    x = np.ones(3)
    for f in (from_global, from_python, from_generator):
        with pytest.warns(tapec.TapecWarning, match="same in all calls") as caught:
            tapec.grad(f)(x)
        assert caught[0].lineno == f.__code__.co_firstlineno
    with pytest.warns(tapec.TapecWarning, match="pass them as an argument"):
        tapec.grad(lambda x, r: np.sum(x * r.normal(size=3)))(x, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tapec.grad(lambda x, noise: np.sum(x * noise))(x, rng.normal(size=3))


# -- threads ----------------------------------------------------------------------------------


@pytest.mark.parametrize("join", ["0", "3"])
def test_two_threads_take_different_branches(monkeypatch, join):
    """Each thread drives one function through other paths than the other one, from the first
    compilation on; the results are those of a function of one thread."""
    monkeypatch.setenv("TAPEC_JOIN", join)
    monkeypatch.setenv("TAPEC_BACKEND", "native")

    def f(x):
        s = x[0] * x[1]
        if x[0] > 0:
            s = s + np.sin(x[1])
        else:
            s = s * x[0]
        k = 0
        while k < 3 and s < 1:
            s = s + np.exp(-x[0] * x[0]) + 0.3
            k += 1
        if x[1] > 0.5:
            return s * s
        return np.cos(s) - x[1]

    shared = tapec.value_and_grad(f)
    points = np.random.default_rng(3).normal(size=(2, 300, 2))
    points[0, :, 0], points[1, :, 0] = abs(points[0, :, 0]), -abs(points[1, :, 0])
    alone = tapec.value_and_grad(lambda x: f(x))
    right = [[alone(x) for x in rows] for rows in points]
    start, found = threading.Barrier(2), [[], []]

    def work(k):
        start.wait()
        for x in points[k]:
            found[k].append(shared(x))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k in range(2):
        assert len(found[k]) == len(right[k])
        for (value, slope), (want, want_slope) in zip(found[k], right[k]):
            np.testing.assert_allclose(value, want, rtol=1e-13)
            np.testing.assert_allclose(slope, want_slope, rtol=1e-12, atol=1e-13)
