"""Branches whose two sides are recorded in one trace: what is joined, what must not be."""

from __future__ import annotations

import gc
import math
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import tapec

SCALE = 2.0
POINTS = [-2.5, -1.5, -0.7, -0.2, 0.0, 0.3, 0.9, 1.7, 2.2, 5.0]


@pytest.fixture(autouse=True)
def backend(monkeypatch):
    monkeypatch.setenv("TAPEC_BACKEND", "interpret")


def agree(monkeypatch, f, points=POINTS, variants=None, transform=tapec.value_and_grad):
    """With joined branches as without; ``variants``: so many are needed."""
    monkeypatch.setenv("TAPEC_JOIN", "0")
    plain = transform(lambda *args: f(*args))
    monkeypatch.setenv("TAPEC_JOIN", "1")
    joined = transform(f)
    for x in points:
        args = x if isinstance(x, tuple) else (x,)
        monkeypatch.setenv("TAPEC_JOIN", "0")
        want = plain(*args)
        monkeypatch.setenv("TAPEC_JOIN", "1")
        got = joined(*args)
        if transform is tapec.value_and_grad:
            np.testing.assert_allclose(got[0], f(*args), rtol=1e-12, atol=1e-12)
        for a, b in zip(got, want) if isinstance(want, tuple) else [(got, want)]:
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    if variants is not None:
        assert len(joined.stats().variants) == variants
    return joined


# -- what is joined -------------------------------------------------------------------------


def two_sides(x):
    if x > 0:
        y = x * x
    else:
        y = np.exp(x)
    return y * np.sin(x)


def one_side(x):
    y = 3 * x
    if x > 1:
        y = y * x
    return y + x


def chain(x):
    if x < -1:
        y, z = np.exp(x), 1.0
    elif x < 0:
        y, z = x * x, 2.0
    elif x < 1:
        y, z = np.sin(x), x
    else:
        y, z = np.log(x), 3.0
    return y * z


def nested(x):
    s = x
    if x > 0:
        if x > 1:
            s = s * np.exp(-x)
        else:
            t = x * x
            s = s + t
    elif x < -1:
        s = np.cos(x)
    return s * x


def early_return(x):
    if x < -1:
        return 2 * x
    y = x * x
    if x < 1:
        return y * np.exp(x)
    y = y + 1
    return np.log(y) * x


def no_else_return(x):
    if x > 0:
        return x * x
    elif x > -1:
        return np.sin(x)
    return 3.0 * x


def expression(x):
    return (x * x if x > 0 else np.exp(x)) * (2 if x > 1 else 3)


def logic(x):
    if x > -1 and x < 1:
        y = x * x
    elif x > 2 or x < -2:
        y = np.sin(x)
    elif not x > 0:
        y = np.exp(x)
    else:
        y = x
    return y


def comparison_chain(x):
    return x * x if -1 < x <= 1 else np.sin(x)


def sign_is_remembered(x):
    """A Python number that differs between the sides, and is used later."""
    sign = 1
    if x < 0:
        x, sign = -x, -1
    y = np.sqrt(1 + x) if x > 1 else x * x
    return sign * y if sign > 0 else sign * y * 2


def flag_is_remembered(x):
    big = False
    if x > 1:
        big = True
    y = x * x
    if big and y > 3:
        y = np.sqrt(y)
    return y


def count_is_used_as_index(x):
    k = 0
    if x > 0:
        k = 1
    if x > 1:
        k = k + 1
    table = [np.sin, np.cos, np.exp]
    return table[k](x)


def name_of_a_side(x):
    kind = "low"
    if x > 0:
        kind = "high"
    return x * x if kind == "high" else np.sin(x)


def temporary_in_a_loop(x):
    s = 0.0
    for k in range(4):
        if x > k - 2:
            t = x * k
            s = s + t * t
        else:
            s = s - x
    return s


def temporary_from_the_iteration_before(x):
    s, t = 0.0, 1.0
    for k in range(4):
        if x > k - 2:
            s = s + t * x
            t = s
        else:
            u = s + x
            s = s - u
    return s


def in_place_numbers(x):
    s = x
    for k in range(3):
        if x > k:
            s += x * k
            s *= 2
        else:
            s -= 1
    return s


def python_max_and_min(x):
    return max(x, 0.5, x * x) * min(x, 1) + max(0, x)


def helper(x, k=2.0):
    if x > SCALE:
        return k * x
    return x * x


class Model:
    def __init__(self, k):
        self.k = k

    def step(self, x):
        return x * self.k if x > 0 else np.exp(x)


model = Model(3.0)


def through_functions(x):
    y = helper(x) + model.step(x)
    if x > 0:
        y = y + helper(x * x, 5.0)
    return y


def closure():
    scale, shift = 2.0, lambda v: v + 1 if v > 1 else v

    def f(x):
        if x > 0:
            y = scale * shift(x)
        else:
            y = shift(x * x)
        return y

    return f


def a_loop_in_a_side(x):
    s = x
    if x > 0:
        for k in range(3):
            if k == 2:
                break
            s = s * x + k
    else:
        for k in (1.0, 2.0):
            s = s - k * x
    return s


def comprehension(x):
    return sum([v * v if v > 0 else -v for v in (x, x - 1, 2 * x)])


@pytest.mark.parametrize(
    "f",
    [
        two_sides, one_side, chain, nested, early_return, no_else_return, expression, logic,
        comparison_chain, sign_is_remembered, flag_is_remembered, temporary_in_a_loop,
        temporary_from_the_iteration_before, in_place_numbers, python_max_and_min,
        through_functions, closure(), a_loop_in_a_side, comprehension,
        lambda x: x * x if x > 0 else (np.sin(x) if x > -1 else -x),
    ],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_one_trace_has_both_sides(monkeypatch, f):
    agree(monkeypatch, f, variants=1)
    agree(monkeypatch, lambda x: tapec.grad(f)(x), transform=tapec.grad)
    agree(monkeypatch, f, transform=tapec.hessian)


def test_natively(monkeypatch):
    monkeypatch.setenv("TAPEC_BACKEND", "native")
    for f in (nested, early_return, sign_is_remembered, chain):
        agree(monkeypatch, f, variants=1)


def test_arrays(monkeypatch):
    def f(x, w):
        if np.sum(x) > 0:
            y = x * w
        else:
            y = np.exp(x) @ np.outer(w, w)
        if y[0] > 1:
            y = y / 2
        return np.sum(y * y)

    rng = np.random.default_rng(0)
    points = [(rng.normal(size=3), rng.normal(size=3)) for _ in range(12)]
    agree(monkeypatch, f, points, variants=1)


def test_single_precision_keeps_its_dtype(monkeypatch):
    def f(x):
        y = 0.0
        if x[0] > 0:
            y = x[0] * 2
        return np.sum(x) * y

    points = [np.array(v, np.float32) for v in ([1, 2], [-1, 2], [3, 4])]
    agree(monkeypatch, f, points)
    monkeypatch.setenv("TAPEC_JOIN", "1")
    g = tapec.grad(f)
    assert all(g(p).dtype == np.float32 for p in points)


# -- loops ------------------------------------------------------------------------------------


def multiply_until(x):
    s = x
    while s < 10:
        s = s * x
    return s


def newton(x):
    y, n = x, 0
    while abs(y * y - x) > 1e-12 and n < 50:
        y = 0.5 * (y + x / y)
        n += 1
    return y


def bisection(x):
    """The root of t**3 + t = x, with one Newton step at the end for the derivative."""
    low, high = -10.0, 10.0
    while high - low > 1e-9:
        middle = 0.5 * (low + high)
        if middle**3 + middle > x:
            high = middle
        else:
            low = middle
    return middle - (middle**3 + middle - x) / (3 * middle * middle + 1)


def halving(x):
    n, s = 0, x
    while s > 1:
        t = s / 2
        s = t if t > 0.7 else t + 0.1
        n = n + 2
    return s * n


def no_iteration(x):
    s, n = x, 0
    while n < x:
        s = s + np.sqrt(x)
        n += 1
    return s


@pytest.mark.parametrize(
    ("f", "points"),
    [
        (multiply_until, [2.0, 1.5, 3.0, 9.99, 10.0, 1.1]),
        (newton, [4.0, 2.0, 1e4, 1e-3, 1.0]),
        (bisection, [3.0, -1.0, 0.5, 7.0]),
        (halving, [0.5, 3.0, 17.0, 1.5]),
        (no_iteration, [-1.0, 0.0, 0.5, 2.5, 6.0]),
    ],
    ids=lambda f: getattr(f, "__name__", ""),
)
def test_while(monkeypatch, f, points):
    agree(monkeypatch, f, points, variants=1)
    agree(monkeypatch, lambda x: tapec.grad(f)(x), points, transform=tapec.grad)
    monkeypatch.setenv("TAPEC_BACKEND", "native")
    agree(monkeypatch, f, points, variants=1)


def collatz(x, n):
    k = 0
    while n[0] != 1:
        if n[0] % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        k += 1
        x = x * 1.01
    return x * k


def python_integer_that_grows(x):
    """2**80 does not fit 64 bits."""
    n, s = 1, x
    while s < 80:
        n = n * 2
        s = s + 1
    return x * n


def single_precision(x):
    s, y = 1.0, x[0]
    while y < 10:
        s = s * 1.5 + y
        y = y * 2
    return s * x[1]


def list_in_the_body(x):
    parts, s = [], x
    while s < 10:
        parts.append(s)
        s = s * 2
    return sum(parts) + len(parts)


def test_loops_that_stay_as_they_are(monkeypatch):
    agree(monkeypatch, python_integer_that_grows, [0.0, 3.5, 79.0])
    agree(monkeypatch, list_in_the_body, [0.1, 1.0, 3.0])
    agree(monkeypatch, collatz, [(1.5, np.array([n])) for n in (1, 2, 3, 7, 6)])
    points = [np.array(p, np.float32) for p in ([1, 2], [3, 1], [20, 1])]
    agree(monkeypatch, lambda x: np.sum(single_precision(x)), points)


def test_a_long_loop_needs_no_variant_per_length(monkeypatch):
    monkeypatch.setenv("TAPEC_MAX_VARIANTS", "4")

    def f(x):
        s, n = 0.0, 0
        while s < x:
            s = s + 0.5 + 0.01 * x
            n += 1
        return s * x + n

    g = tapec.value_and_grad(f)
    for x in np.linspace(0.1, 60, 40).tolist():
        n = math.ceil(x / (0.5 + 0.01 * x))
        value, slope = g(x)
        assert math.isclose(value, f(x)) and math.isclose(slope, n * (0.5 + 0.02 * x))
    assert g.stats().compiles <= 3


# -- what must not be joined ------------------------------------------------------------------


def test_effects_of_a_side_happen_on_its_path_only(monkeypatch):
    monkeypatch.setenv("TAPEC_JOIN", "1")
    log = []
    record = SimpleNamespace(last=None, table={})

    def note(what):
        log.append(what)
        return 1.0

    def method(x):
        if x > 0:
            log.append("positive")
            y = x
        else:
            y = x * x
        return y

    def call(x):
        if x > 0:
            y = x * note("positive")
        else:
            y = x * x
        return y

    def attribute(x):
        if x > 0:
            record.last = "positive"
            y = x
        else:
            y = x * x
        return y

    def item(x):
        y = x
        if x > 0:
            record.table["positive"] = 1
            y = x * x
        return y

    for f in (method, call, attribute, item):
        g = tapec.grad(f)
        g(-1.0)
        assert not log and record.last is None and not record.table
        assert g(3.0) == (6.0 if f is item else 1.0)
        assert log or record.last or record.table
        log.clear()
        record.last = None
        record.table.clear()


def list_is_built(x):
    parts = []
    if x > 0:
        parts.append(x)
    parts.append(2 * x)
    if x > 1:
        parts.append(x * x)
    return sum(parts) * len(parts)


def raises(x):
    if x > 100:
        raise ValueError("too large")
    return x * x if x > 0 else -x


def division_by_a_known_zero(x):
    n = 0
    y = x
    if x > 100:
        y = x / n
    return y * x


def different_shapes(x):
    v = np.array([x, 1.0])
    if x > 0:
        v = v[:1]
    return np.sum(v * v)


def recursion(x):
    if x < 1:
        return x * x
    return recursion(x / 2) + x


def recursion_without_end(x):
    """On the path that is not taken."""
    return x if x > -100 else recursion_without_end(x * 1.0)


def with_try(x):
    n = "none"
    if x > 0:
        n = 2
    try:
        return x * n
    except TypeError:
        return -x


def generator(x):
    def parts():
        if x > 0:
            yield x
        yield x * x

    return sum(parts())


def break_out(x):
    s = x
    for k in range(5):
        if s > 3:
            break
        s = s * 2 + k * x
    else:
        s = s * s
    return s


def skip(x):
    s = x
    for k in range(4):
        if s < k:
            continue
        s = s * 1.5 + x
    return s


def until(x):
    s, n = x, 0
    while abs(s) < 10 and n < 20:
        s = 1.7 * s + 1 if s > 0 else 2 * s - 1
        n += 1
    return s


def local_variables(x):
    y = 1.0
    if x > 0:
        y = 2.0
    return x * locals()["y"]


@pytest.mark.parametrize(
    "f",
    [
        count_is_used_as_index, name_of_a_side, list_is_built, raises, division_by_a_known_zero,
        different_shapes, recursion, recursion_without_end, with_try, generator, break_out, skip,
        until, local_variables,
    ],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_right_all_the_same(monkeypatch, f):
    agree(monkeypatch, f)


def test_arrays_that_names_share_are_not_joined(monkeypatch):
    """After ``y = x`` on one side, writing to ``y`` writes to ``x`` on that path only."""

    def f(v):
        x = v * 1.0
        y = v * 2.0
        if v[0] > 0:
            y = x
        y[0] = 5.0
        return np.sum(x * x) + np.sum(y)

    def g(v):
        x = v * 1.0
        if v[0] > 0:
            x = x * 2
        y = x
        y[1] = v[0]
        return np.sum(x * x)

    def h(v):
        x = v * 1.0
        y = x
        if v[0] > 0:
            y += 1.0
        else:
            y = y + 1.0
        return np.sum(x * x) + np.sum(y)

    points = [np.array(p) for p in ([1.0, 2.0], [-1.0, 2.0], [3.0, 4.0], [-2.0, -1.0])]
    for k in (f, g, h):
        agree(monkeypatch, k, points)


def test_singular_side_does_not_poison(monkeypatch):
    def f(x):
        if x > 0:
            y = np.sqrt(x)
        else:
            y = 0.0 * x
        return y

    monkeypatch.setenv("TAPEC_JOIN", "1")
    g = tapec.value_and_grad(f)
    assert g(0.0) == (0.0, 0.0) and g(-4.0) == (0.0, 0.0) and g(4.0) == (2.0, 0.25)


def test_math_functions_of_known_numbers(monkeypatch):
    def f(x):
        k = 2.0
        if x > 0:
            y = x * math.sqrt(k)
        else:
            y = x * math.exp(k)
        return y * y

    agree(monkeypatch, f, variants=1)


# -- the dispatcher -----------------------------------------------------------------------------


def test_twelve_branches_cost_two_compiles(monkeypatch):
    monkeypatch.setenv("TAPEC_BACKEND", "native")

    def f(x):
        s = 0.0
        for k in range(12):
            if x[k] > 0:
                s = s + x[k] ** 2
            else:
                s = s - 3 * np.sin(x[k])
        return s

    g = tapec.value_and_grad(f)
    for p in np.random.default_rng(1).normal(size=(10_000, 12)):
        value, gradient = g(p)
        right = np.where(p > 0, 2 * p, -3 * np.cos(p))
        assert abs(value - np.sum(np.where(p > 0, p * p, -3 * np.sin(p)))) < 1e-12
        assert np.abs(gradient - right).max() < 1e-12
    stats = g.stats()
    assert len(stats.variants) == 1 and stats.compiles == 2


# -- more that must not be joined --------------------------------------------------------------


def closure_reads_what_a_side_assigns(x):
    k = 1.0

    def times_k(v):
        return v * k

    y = x
    if x > 0:
        k = 2.0
        y = times_k(x)
    return y + times_k(x * x)


def iterator_is_used_up(x):
    it = iter([1.0, 2.0, 3.0])
    s = x
    if x > 0:
        for v in it:
            s = s + v * x
            break
    for v in it:
        s = s * v
    return s


def sum_of_an_iterator(x):
    parts = (k * x for k in (1.0, 2.0))
    y = x
    if x > 0:
        y = sum(parts)
    return y + sum(parts) * x


def next_of_an_iterator(x):
    it = iter([1.0, 2.0, 3.0])
    k = next(it) if x > 0 else 5.0
    return x * k * next(it)


def unbound_name(x):
    if x > 1:
        t = x
    try_me = x * x
    if x > 1:
        try_me = try_me + t
    return try_me


def carried_by_the_body_alone(x):
    s, t = x, 1.0
    while s < 10:
        s = s + t * t
        t = t * 1.5
    return s * x


def list_on_both_sides(x):
    first, second = [x, 1.0], [x * x, 2.0]
    if x > 0:
        chosen = first
    else:
        chosen = second
    chosen[0] = 3.0 * x
    return first[0] * second[0]


def python_power_of_a_joined_number(x):
    k = 3
    if x > 0:
        k = 25
    return x * 10.0 ** (-k) * 10**k


def integer_products(x):
    k = 3
    if x > 0:
        k = 2**40
    return x * (k * k)


def asked_for_its_class(x):
    k = 1
    if x > 0:
        k = 2
    return x * k if isinstance(k, int) else x * 100


def asked_for_identity(x):
    flag = False
    if x > 0:
        flag = True
    return x * x if flag is True else x * 3


@pytest.mark.parametrize(
    "f",
    [
        closure_reads_what_a_side_assigns, iterator_is_used_up, sum_of_an_iterator,
        next_of_an_iterator, unbound_name, list_on_both_sides, python_power_of_a_joined_number,
        integer_products, asked_for_its_class, asked_for_identity,
    ],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_right_although_objects_are_shared(monkeypatch, f):
    agree(monkeypatch, f)


def test_carried_by_the_body_alone(monkeypatch):
    agree(monkeypatch, carried_by_the_body_alone, variants=1)


def test_results_written_into_arrays(monkeypatch):
    """``out`` by position, objects of np.vectorize, methods that write."""
    log = []

    def note(v):
        log.append(1)
        return 2.0

    vectorised = np.vectorize(note)

    def f(x):
        buffer = np.array([1.0, 2.0])
        if x > 0:
            np.multiply(np.ones(2), 5.0, buffer)
            y = x
        else:
            y = 2 * x
        return y * np.sum(buffer)

    def g(x):
        buffer = np.array([2.0, 1.0])
        y = x
        if x > 0:
            buffer.sort()
            y = x * x
        return y * buffer[0]

    def h(x):
        return x * vectorised(1.0) if x > 0 else x

    for k in (f, g):
        agree(monkeypatch, k)
    monkeypatch.setenv("TAPEC_JOIN", "1")
    dh = tapec.grad(h)
    assert dh(-1.0) == 1.0 and not log
    assert dh(1.0) == 2.0 and log


def test_joining_keeps_nothing_alive(monkeypatch):
    monkeypatch.setenv("TAPEC_JOIN", "1")

    def make():
        w = np.ones(1000)
        ref = weakref.ref(w)

        def part(v):
            return np.sum(w * v) if v[0] > 0 else np.sum(v)

        def f(x):
            return part(x) if x[1] > 0 else 2 * part(x)

        g = tapec.grad(f)
        for sign in (1.0, -1.0):
            g(np.full(1000, sign))
        return g, ref

    tapec.grad(lambda x: x * x if x > 0 else x)(1.0)
    gc.collect()
    gc.disable()
    try:
        g, ref = make()
        del g
        assert ref() is None
    finally:
        gc.enable()
