"""Small inputs that trip differentiation tools: control flow, nesting, indexing, dtypes, cost."""

from __future__ import annotations

import math
import resource
import time

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import tapec

# -- Python control flow on values ----------------------------------------------------------


def test_ramp_recorded_left():
    g = tapec.grad(lambda x: 0 * x if x < 0 else x)
    assert [g(x) for x in (-1.3, 1.34, -0.2, 7.0)] == [0, 1, 0, 1]


def test_repeat_until_ten():
    def f(x):
        s = x
        while s < 10:
            s = s * x
        return s

    g = tapec.grad(f)
    for x, want in [(2.0, 32), (3.0, 27), (9.99, 19.98), (12.0, 1), (2.0, 32)]:
        assert_allclose(g(x), want)


def test_chained_comparison():
    g = tapec.grad(lambda x: x**2 if -1 < x < 1 else 2 * abs(x) - 1)
    assert [g(x) for x in (0.5, -3.0, 3.0, 0.5)] == [1, -2, 2, 1]


def test_builtin_min_max_abs():
    g = tapec.grad(lambda x: max(x, 1) * min(x, 5) + abs(x))
    assert [g(x) for x in (3.0, 0.5, 9.0, -2.0)] == [7, 2, 6, 0]


def test_piecewise_diffusivity():
    def f(c):
        if c < 0.2:
            return 1 + c
        if c < 0.6:
            return 2 * c if c**2 > 0.1 else c
        return c**3

    g = tapec.grad(f)
    for _ in range(2):
        assert_allclose([g(c) for c in (0.1, 0.25, 0.5, 0.8)], [1, 1, 2, 1.92])


def test_equality_branch():
    g = tapec.grad(lambda x: 1.0 if x == 1 else x**2)
    assert_allclose([g(3.0), g(0.9), g(3.0)], [6, 1.8, 6])


def test_table_look_up():
    knots, values = np.array([0.0, 1.0, 3.0]), np.array([0.0, 2.0, 3.0])

    def f(x):
        k = int(np.searchsorted(knots, x, side="right")) - 1
        w = (x - knots[k]) / (knots[k + 1] - knots[k])
        return values[k] * (1 - w) + values[k + 1] * w

    g = tapec.grad(f)
    assert_allclose([g(x) for x in (0.5, 2.0, 0.25)], [2, 0.5, 2])


def test_boolean_mask_selection():
    g = tapec.grad(lambda a: np.sum(a[a > 0] ** 2))
    for a in ([1.0, -2.0, 3.0], [-1.0, -2.0, -3.0], [4.0, 5.0, -6.0], [1.0, -2.0, 3.0]):
        a = np.array(a)
        assert_array_equal(g(a), np.where(a > 0, 2 * a, 0))


def test_nearest_distance_loop():
    def f(p):
        best = p[0] ** 2
        for k in range(1, 3):
            d = p[k] ** 2
            if d < best:
                best = d
        return best

    g = tapec.grad(f)
    assert g(np.array([4.0, 1.0, 6.0])).tolist() == [0, 2, 0]
    assert g(np.array([0.5, 1.0, 6.0])).tolist() == [1, 0, 0]


# -- loops ----------------------------------------------------------------------------------


def test_value_before_loop_used_after():
    def f(x):
        u = np.sin(x)
        s = 0.0
        while s < 3:
            s = s + x
        return s * u

    x = 1.25
    assert_allclose(tapec.grad(f)(x), 3 * np.sin(x) + 3 * x * np.cos(x))


def test_carried_rotation_vector():
    def f(t):
        u, v = 1.0, 0.0
        for _ in range(6):
            u, v = u * np.cos(t) - v * np.sin(t), u * np.sin(t) + v * np.cos(t)
        return u + 2 * v

    assert_allclose(tapec.grad(f)(0.3), -6 * np.sin(1.8) + 12 * np.cos(1.8))
    assert_allclose(tapec.hessian(f)(0.3), -36 * np.cos(1.8) - 72 * np.sin(1.8))


def test_nested_dynamic_ranges():
    starts, counts = [0, 2, 3], [1, 2, 1]

    def f(x):
        total = 1.0
        for b in range(2):
            for i in range(starts[b], starts[b + 1]):
                for _ in range(counts[i]):
                    total = total * (1 + x[i])
        return total

    assert tapec.grad(f)(np.zeros(3)).tolist() == [1, 2, 1]


# -- higher orders and nesting ----------------------------------------------------------------


def test_fourth_power_twice_compiled():
    x = np.array([0.5, 1.5, 2.5, 3.5])
    g = tapec.grad(lambda x: np.sum(x**4))
    assert_allclose(tapec.grad(lambda x: np.sum(g(x)))(x), [3, 27, 75, 147])


def test_confusion_sum():
    assert tapec.grad(lambda x: x * tapec.grad(lambda y: x + y)(1.0))(1.0) == 1


def test_confusion_through_closure():
    def g(s):
        return tapec.grad(lambda t: np.exp(s * t))(0.0)

    assert_allclose(tapec.grad(lambda s: s * g(s))(3.0), 6)
    assert_allclose(tapec.grad(lambda a: (a**2) * g(a**2))(2.0), 32)


def test_mixed_parameter_derivative():
    def e(u, p):
        return u[0] ** 2 * u[1] ** 2 * p**2

    inner = tapec.grad(e)
    mixed = tapec.jacobian(lambda u, p: inner(u, p), argnums=1)
    assert_allclose(mixed(np.array([2.0, 3.0]), 4.0), [288, 192])


def test_quadratic_form_unsymmetric():
    M = np.array([[1.0, 2.0], [5.0, 4.0]])
    for x in (np.zeros(2), np.array([1.0, -2.0])):
        assert_allclose(tapec.hessian(lambda x: x @ (M @ x))(x), [[2, 7], [7, 8]])


def test_four_mode_compositions():
    f = lambda x: x**3 * np.sin(x)  # noqa: E731
    x = 0.7
    want = 6 * x * np.sin(x) + 6 * x**2 * np.cos(x) - x**3 * np.sin(x)

    def fwd(f):
        return lambda x: tapec.jvp(f, (x,), (1.0,))[1]

    rev = tapec.grad
    for outer in (fwd, rev):
        for inner in (fwd, rev):
            assert_allclose(outer(inner(f))(x), want, rtol=1e-12)


def test_nested_rational():
    def mixed(f):
        return lambda x, y: tapec.grad(lambda x: tapec.grad(lambda y: f(x, y))(y))(x)

    assert mixed(lambda x, y: 1 + x**2 + y**2)(2.0, 3.0) == 0
    assert_allclose(mixed(lambda x, y: x**2 * y**3)(2.0, 3.0), 108)


# -- in-place code ------------------------------------------------------------------------------


def test_overwritten_operand():
    def f(x):
        y = x * x
        x2 = x.copy()
        x2 *= 0
        return np.sum(y * x)

    x = np.array([1.0, 2.0])
    assert_allclose(tapec.grad(f)(x), 3 * x**2)


def test_input_array_untouched():
    def f(x):
        x[0] = 0
        return np.sum(x**2)

    x = np.array([1.0, 2.0])
    assert tapec.grad(f)(x).tolist() == [0, 4]
    assert x.tolist() == [1, 2]


# -- indexing and rearranging -----------------------------------------------------------------


def test_gather_with_repeats():
    w = np.array([1.0, 10.0, 100.0])
    g = tapec.grad(lambda a: np.sum(a[[0, 0, 2]] * w))
    assert g(np.ones(3)).tolist() == [11, 0, 100]
    g = tapec.grad(lambda a: np.sum(a[[0, 1, 0], [1, 1, 1]]))
    assert g(np.ones((2, 2))).tolist() == [[0, 2], [0, 1]]


def test_reversed_strided_slice():
    w = np.array([1.0, 2, 3, 4])
    g = tapec.grad(lambda a: np.sum(a[::-1] * w) + np.sum(a[3:0:-2] * 10))
    assert g(np.ones(4)).tolist() == [4, 13, 2, 11]


def test_ellipsis_and_newaxis():
    w = np.array([[1.0], [10.0]])
    g = tapec.grad(lambda a: np.sum(a[..., None, 1] * w))
    assert g(np.ones((2, 3))).tolist() == [[0, 1, 0], [0, 10, 0]]


def test_tile_and_repeat():
    w = np.arange(6.0)
    g = tapec.grad(lambda a: np.tile(a, 3) @ w + np.repeat(a, 3) @ w)
    assert g(np.ones(2)).tolist() == [9, 21]


def test_roll():
    g = tapec.grad(lambda a: np.roll(a, 1) @ a)
    assert g(np.array([1.0, 2, 3])).tolist() == [5, 4, 3]


def test_iterate_over_rows():
    def f(A):
        p, q = A
        total = p @ q + p[0] * q[1]
        for v in p:
            total = total + 0 * v
        return total

    assert tapec.grad(f)(np.array([[1.0, 2], [3, 4]])).tolist() == [[7, 4], [1, 3]]


# -- broadcasting, reductions, dtypes -------------------------------------------------------------


def test_scalar_meets_long_vector():
    f = lambda z: np.sum(np.exp(z) - 0) + np.sum(np.exp(z) - np.zeros(1000))  # noqa: E731
    assert_allclose(tapec.grad(f)(1.0), 1001 * math.e)


def test_mask_one_column():
    h, m = np.arange(1.0, 7).reshape(2, 3), np.array([[2.0], [3.0]])
    dh, dm = tapec.grad(lambda h, m: np.sum(h * m), argnums=(0, 1))(h, m)
    assert dm.tolist() == [[6], [15]] and dh.tolist() == [[2, 2, 2], [3, 3, 3]]


def test_empty_input():
    X = np.zeros((2, 0))
    assert tapec.grad(lambda w: np.sum(w @ X))(np.ones((2, 2))).tolist() == [[0, 0], [0, 0]]
    assert tapec.grad(lambda a: np.sum(a**2))(np.zeros(0)).shape == (0,)


def test_zero_d_arrays():
    g = tapec.grad(lambda t: t**2)(np.array(3.0))
    assert g.shape == () and g == 6
    assert tapec.grad(lambda t: np.sum(t * np.ones((1, 1))))(np.ones(1)).shape == (1,)


def test_double_by_default():
    assert abs(tapec.grad(lambda x: x**3)(1 + 1e-9) - (3 + 6e-9)) < 1e-15


def test_mean_with_keepdims():
    g = tapec.grad(lambda x: np.sum((x - np.mean(x, axis=1, keepdims=True)) ** 2))
    assert_allclose(g(np.array([[1.0, 3], [2, 8]])), [[-2, 2], [-6, 6]])


def test_adjoint_row_times_column():
    assert tapec.grad(lambda x: np.sum(x.T * x))(np.array([[1.0], [2.0]])).tolist() == [[6], [6]]


def test_einsum():
    M = np.ones((2, 2))
    assert tapec.grad(lambda M: np.einsum("ii->", M))(M).tolist() == [[1, 0], [0, 1]]
    w = np.array([1.0, 10.0])
    assert tapec.grad(lambda M: np.einsum("ii->i", M) @ w)(M).tolist() == [[1, 0], [0, 10]]
    dx, dy = tapec.grad(lambda x, y: np.einsum("i,i", x, y), argnums=(0, 1))(
        np.array([1.0, 2.0]), np.array([5.0])
    )
    assert dx.tolist() == [5, 5] and dy.tolist() == [3]
    A, B = np.array([[1.0, 2], [3, 4]]), np.array([[0.0, 1], [1, 1]])
    g = tapec.grad(lambda v: np.sum(np.einsum("ij,jk,k", A, B, v)))
    assert_allclose(g(np.ones(2)), [6, 10])
    P, Q = np.ones((2, 2, 2)), np.array([[1.0, 2], [3, 4]])
    dP, dQ = tapec.grad(lambda P, Q: np.sum(np.einsum("...ij,...jk->...ik", P, Q)), (0, 1))(P, Q)
    assert (dQ == 4).all() and (dP == [3, 7]).all()


# -- arguments, errors ----------------------------------------------------------------------------


def test_value_and_gradient_pair_for_scipy():
    from scipy.optimize import minimize

    def bowl(v):
        return (v[0] - 1) ** 2 + 10 * (v[1] - v[0] ** 2) ** 2

    found = minimize(tapec.value_and_grad(bowl), [-1.0, 2.0], jac=True, method="BFGS")
    assert_allclose(found.x, 1, atol=1e-5)


def test_unsupported_call_is_never_a_silent_zero():
    with pytest.raises(TypeError, match=r"math\.sin|float"):
        tapec.grad(lambda x: math.sin(x) + 0 * x)(0.3)


# -- cost -----------------------------------------------------------------------------------------


def test_same_read_many_times():
    def f(a):
        s = 0.0
        for _ in range(64):
            for _ in range(64):
                s = a[0]
        return s

    start = time.perf_counter()
    assert tapec.grad(f)(np.ones(2)).tolist() == [1, 0]
    assert time.perf_counter() - start < 5


def test_repeated_squaring_shared():
    def f(x):
        for _ in range(40):
            x = x + x
        return x

    assert tapec.grad(f)(1.0) == 2.0**40


def test_memory_of_a_captured_large_constant():
    def resident():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def once():
        w = np.ones(1_000_000)
        return tapec.grad(lambda x: np.sum(w * x))(w)[0]

    for _ in range(3):
        once()
    before = resident()
    for _ in range(20):
        assert once() == 1
    assert resident() - before < 60_000  # kilobytes


def test_memory_of_many_calls():
    g = tapec.grad(lambda x: np.sum(np.sin(x) * x))
    x = np.ones(1000)
    for _ in range(500):
        g(x)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(1500):
        g(x)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000
