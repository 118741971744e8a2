"""Python's control flow on traced values: one function object at many points, in native code.

The right values are the mathematics of the path that is taken.
"""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import tapec


@pytest.fixture(autouse=True, params=["0", "1"], ids=["paths", "joined"])
def join(request, monkeypatch):
    """One path per trace, and both sides of branches from the first trace on."""
    monkeypatch.setenv("TAPEC_JOIN", request.param)


def close(found, right):
    np.testing.assert_allclose(found, right, rtol=1e-11, atol=1e-12)


# -- the branch of the arguments at hand --------------------------------------------------------


def ramp(x):
    if x < 0:
        return 0
    return x


def test_ramp_at_all_orders():
    f, g = tapec.value_and_grad(ramp), tapec.grad(tapec.grad(lambda x: ramp(x) * x * x))
    j, h = (
        tapec.jacobian(lambda x: np.array([ramp(x), 2 * x])),
        tapec.hessian(lambda x: ramp(x) ** 3),
    )
    for _ in range(2):
        for x in (-1.3, 1.34, -0.2, 7.0):
            on = float(x > 0)
            close(f(x), (on * x, on))
            close(g(x), on * 6 * x)
            close(j(x), [on, 2])
            close(h(x), on * 6 * x)


def test_repeat_until_ten():
    def f(x):
        s = x
        while s < 10:
            s = s * x
        return s

    g = tapec.grad(f)
    assert g(2.0) == 32.0
    for x, power in ((1.5, 6), (3.0, 3), (9.99, 2), (10.0, 1), (2.0, 4)):
        close(g(x), power * x ** (power - 1))
    close(tapec.grad(g)(2.0), 48.0)


def test_newton_iteration():
    def root(x):
        y = 0.5 * (1 + x)
        while abs(y * y - x) > 1e-14 * x:
            y = 0.5 * (y + x / y)
        return y

    g = tapec.value_and_grad(root)
    for x in (2.0, 9.0, 1e-2, 1e4, 2.5):
        close(g(x), (math.sqrt(x), 0.5 / math.sqrt(x)))


def test_bisection_with_an_implicit_result():
    """cos(t) = a t: the bisection has no derivative, a Newton step at its end has the right one."""

    def solve(a):
        low, high = 0.0, 2.0
        for _ in range(45):
            middle = 0.5 * (low + high)
            if np.cos(middle) > a * middle:
                low = middle
            else:
                high = middle
        return middle - (np.cos(middle) - a * middle) / (-np.sin(middle) - a)

    g = tapec.value_and_grad(solve)
    for a in (1.0, 0.7, 2.0):
        t = 1.0
        for _ in range(50):
            t -= (math.cos(t) - a * t) / (-math.sin(t) - a)
        np.testing.assert_allclose(g(a), (t, -t / (math.sin(t) + a)), rtol=1e-8)


def test_collatz():
    def f(x, n):
        while n != 1:
            if n % 2 == 0:
                n = n // 2
            else:
                n = 3 * n + 1
            x = x * 2
        return x

    def steps(n):
        return 0 if n == 1 else 1 + steps(n // 2 if n % 2 == 0 else 3 * n + 1)

    g = tapec.grad(f)
    for n in (6, 1, 7, 3):
        assert g(1.5, np.int64(n)) == 2.0 ** steps(n)
        assert g(1.5, n) == 2.0 ** steps(n)


def test_triangular_loops():
    def f(x):
        s, n = 0.0, len(x)
        for i in range(n):
            for j in range(i + 1):
                if x[i] > x[j]:
                    s = s + x[i] * x[j]
        return s

    g = tapec.grad(f)
    for x in ([1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [2.0, 3.0, 1.0]):
        x = np.array(x)
        want = [
            sum(x[j] for j in range(3) if j != i and x[max(i, j)] > x[min(i, j)]) for i in range(3)
        ]
        close(g(x), want)


def test_break_continue_else():
    def f(x):
        s = x
        for k in range(1, 6):
            if s > 20:
                break
            if s < 1:
                s = s + 1
                continue
            s = s * k
        else:
            s = -s
        return s

    def right(x):
        s, d = x, 1.0
        for k in range(1, 6):
            if s > 20:
                return s, d
            if s < 1:
                s += 1
            else:
                s, d = s * k, d * k
        return -s, -d

    g = tapec.value_and_grad(f)
    for x in (0.5, 3.0, -7.0, 11.0, 25.0, -1.5):
        close(g(x), right(x))


def test_recursion():
    def power(x, n):
        if n == 0:
            return 1.0
        half = power(x, n // 2)
        return half * half * (x if n % 2 else 1)

    def halve(x):
        return x * x if x < 1 else 2 * halve(x / 2)

    close([tapec.grad(power)(1.5, n) for n in (0, 1, 7, 7)], [0, 1, 7 * 1.5**6, 7 * 1.5**6])
    g = tapec.grad(halve)
    for x in (0.7, 1.5, 13.0, 0.1):
        k = 0
        while x / 2**k >= 1:
            k += 1
        close(g(x), 2 * x / 2**k)


def test_generator_and_early_return():
    def terms(x):
        t, k = x, 1
        while abs(t) > 1e-17:
            yield t
            t = -t * x * x / ((k + 1) * (k + 2))
            k += 2

    def f(x):
        if x > 3:
            return x * 0 + 1
        return sum(terms(x))

    g = tapec.value_and_grad(f)
    for x in (0.5, 2.0, 4.0, 1.0):
        close(g(x), (math.sin(x), math.cos(x)) if x < 3 else (1, 0))


def test_max_and_sorted_of_python():
    g = tapec.grad(lambda x, y: max(x, y) ** 2 + min(x, y), argnums=(0, 1))
    for x, y in ((1.0, 2.0), (3.0, 2.0), (-1.0, 0.5)):
        close(g(x, y), (2 * x, 1) if x > y else (1, 2 * y))
    weights = [1.0, 10.0, 100.0]
    h = tapec.grad(lambda v: sum(w * t for w, t in zip(weights, sorted(v))))
    for v in ([3.0, 1.0, 2.0], [1.0, 2.0, 3.0], [2.0, 3.0, 1.0]):
        close(h(np.array(v)), np.array(weights)[np.argsort(np.argsort(v))])


def test_conditions_of_all_kinds():
    def f(x, y):
        s = x * y
        if 0 < x <= 1 or not y > 0:
            s = s + x
        if x and y > 1:
            s = s * 2
        z = y if any([x > 2, y > 2]) else x
        if all(v > 0 for v in (x, y)):
            s = s + z
        return s

    def right(x, y):
        a, b, c = 1.0, 0.0, 0.0  # of x y, x, y
        if 0 < x <= 1 or not y > 0:
            b += 1
        if x and y > 1:
            a, b = 2 * a, 2 * b
        if x > 0 and y > 0:
            b, c = (b, c + 1) if x > 2 or y > 2 else (b + 1, c)
        return a * y + b, a * x + c

    g = tapec.grad(f, argnums=(0, 1))
    for x in (-1.0, 0.0, 0.5, 1.5, 2.5):
        for y in (-0.5, 0.5, 1.5, 2.5):
            close(g(x, y), right(x, y))


def test_integers_of_traced_values():
    def f(x):
        n = int(x)
        table = [2.0, 3.0, 5.0, 7.0]
        s = x * table[np.argmax(np.array([x, 2 - x]))]
        for k in range(n):
            s = s + k * x
        return s + table[np.searchsorted(np.array([1.0, 2.0]), x)] * x

    g = tapec.grad(f)
    for x in (0.5, 1.5, 2.5, 3.5, 0.5):
        first = 2.0 if x > 2 - x else 3.0
        second = [2.0, 3.0, 5.0][int(np.searchsorted([1.0, 2.0], x))]
        close(g(x), first + sum(range(int(x))) + second)


def test_boolean_masks_change_shape():
    g = tapec.grad(lambda x: np.sum(x[x > 0] ** 2) / len(x[x > 0]))
    for v in ([1.0, -1.0, 2.0], [1.0, 2.0, 3.0], [-1.0, -2.0, 5.0]):
        x = np.array(v)
        close(g(x), np.where(x > 0, 2 * x, 0) / np.sum(x > 0))


# -- around and inside of loops -----------------------------------------------------------------


def test_value_used_before_in_and_after_a_loop():
    """w = sin(x) is defined before a loop of unknown length, used in it and after it."""

    def python(x):
        w = np.sin(x)
        s, k = w, 0
        while s < 4:
            s = s + w * w
            k += 1
        return s * w

    def built(x):
        w = np.sin(x)
        s = tapec.while_loop(lambda s: s < 4, lambda s: s + w * w, w)
        return s * w

    for f in (python, built):
        g = tapec.grad(f)
        for x in (1.0, 0.6, 1.5):
            w = math.sin(x)
            k = math.ceil((4 - w) / (w * w))
            close(g(x), math.cos(x) * (2 * w + 3 * k * w * w))


def test_unused_carry_has_no_cotangent():
    def f(x, y):
        def step(state, _):
            a, b = state
            return (a * x, b + a * y), None

        (a, _), _ = tapec.scan(step, (1.0, 0.0), length=5)
        return a

    g = tapec.grad(f, argnums=(0, 1))
    close(g(1.5, 2.0), (5 * 1.5**4, 0.0))
    text = g.dump("opt", 1.5, 2.0)
    operands = re.findall(r"= scan (.*?) \{", text)
    assert len(operands) == 2 and not any("%y" in names for names in operands)


def test_captured_invariants_accumulate():
    w = np.array([2.0, 3.0])

    def f(w, n):
        s, k = np.sum(w) * 0 + 1.0, 0
        while k < n:
            s = s * w[0] + w[1]
            k += 1
        return s

    g = tapec.grad(f)
    for n in (3.0, 0.0, 5.0):
        k = int(n)
        geometric = sum(w[0] ** i for i in range(k))
        slope = sum(i * w[0] ** (i - 1) for i in range(1, k))
        close(g(w, n), [k * w[0] ** (k - 1) * (k > 0) + w[1] * slope, geometric])


# -- memory --------------------------------------------------------------------------------------


def test_reverse_stores_nothing_that_depends_on_the_invariant_alone(monkeypatch):
    """y = sin(y) exp(z) + cos(z) z y: y, sin(y) and cos(y) are kept at most, and z's part is
    computed once."""
    monkeypatch.setenv("TAPEC_BACKEND", "native")
    n = 20_000

    def f(y, z):
        def step(_, y):
            return np.sin(y) * np.exp(-z * z) + 0.1 * np.cos(z) * z * y

        return tapec.fori_loop(0, n, step, y)

    g = tapec.value_and_grad(f, argnums=(0, 1))
    g(0.5, 0.3)
    assert g.stats().workspace_bytes <= 3 * 8 * n + 1024

    def vectors(y, z):
        def step(_, y):
            return np.sin(y) * np.exp(-z * z) + 0.1 * np.cos(z) * z * y

        return np.sum(tapec.fori_loop(0, 200, step, y))

    h = tapec.value_and_grad(vectors, argnums=(0, 1))
    h(np.full(100, 0.5), np.full(100, 0.3))
    assert h.stats().workspace_bytes <= 3 * 8 * 100 * 200 + 16_384


def test_checkpoints_bound_the_workspace(monkeypatch):
    monkeypatch.setenv("TAPEC_BACKEND", "native")
    n = 10_000

    def f(x, **options):
        step = lambda c, _: (np.sin(c) + 0.1 * c * x, None)  # noqa: E731
        return np.sum(tapec.scan(step, np.full(4, 0.3), length=n, **options)[0])

    sizes, slopes = [], []
    for options in ({}, {"checkpoint": 50}, {"checkpoint": "sqrt"}):
        g = tapec.value_and_grad(lambda x, options=options: f(x, **options))
        slopes.append(g(0.2)[1])
        sizes.append(g.stats().workspace_bytes)
    close(slopes, slopes[0])
    row = 4 * 8
    assert sizes[0] >= n * row
    assert sizes[1] <= 3 * (n // 50 + 50) * row + 8192
    assert sizes[2] <= 3 * 200 * row + 8192


def test_a_budget_of_bytes_bounds_the_workspace(monkeypatch):
    monkeypatch.setenv("TAPEC_BACKEND", "native")
    n = 5_003

    def f(x, **options):
        def step(c, v):
            c = np.sin(c) + 0.1 * c * x + v
            return c, c[0] * x

        rows = np.linspace(0, 1, n)
        c, ys = tapec.scan(step, np.full(4, 0.3), rows, **options)
        return np.sum(c) + np.sum(ys)

    right = tapec.value_and_grad(f)(0.2)
    ys = 8 * n  # of what the function keeps for itself
    for budget, size in (("300 kB", 300_000), ("30kB", 30_000), ("8 kB", 8_000)):
        for reverse in (False, True):
            options = {"checkpoint": budget, "reverse": reverse}
            g = tapec.value_and_grad(lambda x, options=options: f(x, **options))
            found = g(0.2)
            if not reverse:
                close(found, right)
            else:
                close(found, tapec.value_and_grad(lambda x: f(x, reverse=True))(0.2))
            assert g.stats().workspace_bytes <= size + 3 * ys + 8192
    with pytest.raises(tapec.TapecValueError, match="bytes at least"):
        tapec.grad(lambda x: f(x, checkpoint="300 B"))(0.2)
    with pytest.raises(tapec.TapecValueError, match="64 kB"):
        tapec.grad(lambda x: f(x, checkpoint="much"))(0.2)
    close(tapec.hessian(lambda x: f(x, checkpoint="8 kB"))(0.2), tapec.hessian(f)(0.2))
