"""Small inputs that trip differentiation tools: masks, ties, powers, cancellation.

The expected values come from mathematics.  Every derivative goes through the public API and
is evaluated twice with one function object.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

import tapec


def derivatives(f, order):
    """f', f'', ... of a scalar function."""
    out = []
    for _ in range(order):
        f = tapec.grad(f)
        out.append(f)
    return out


def check(f, points, orders):
    """``orders[k]``: the (k+1)-th derivative at each of ``points``."""
    for g, wanted in zip(derivatives(f, len(orders)), orders, strict=True):
        for _ in range(2):
            for x, want in zip(points, wanted, strict=True):
                assert_allclose(g(x), want, rtol=1e-9, atol=1e-12)


# -- masked branches -----------------------------------------------------------------------


def test_root_right_of_one():
    check(
        lambda t: np.where(t < 1, t, np.sqrt(t)),
        [0.0, -3.0, 4.0],
        [[1, 1, 0.25], [0, 0, -1 / 32]],
    )


def test_cos_guarded_inf():
    g = tapec.grad(lambda z: np.sum(np.where(z < 2, np.cos(z), 0)))
    assert_allclose(g(np.array([0, 1, np.inf])), [0, -np.sin(1), 0])


def test_reciprocal_unless_zero():
    def f(w):
        return np.sum(np.where(w == 0, 0, 1 / w))

    w = np.array([0.0, 2.0, -4.0])
    assert_allclose(tapec.grad(f)(w), [0, -1 / 4, -1 / 16])
    assert_allclose(tapec.hessian(f)(w), np.diag([0, 1 / 4, -1 / 32]))
    assert_allclose(tapec.jacobian(tapec.grad(f))(w), np.diag([0, 1 / 4, -1 / 32]))


def test_nan_data_in_fit():
    x, y = np.array([1.0, 2, 3]), np.array([1.0, np.nan, 3])

    def f(a):
        return np.sum(np.where(np.isnan(y), 0, (a * x - y) ** 2))

    assert tapec.value_and_grad(f)(2.0) == (10.0, 20.0)
    assert tapec.hessian(f)(2.0) == 20.0


def test_three_piece_root():
    f = lambda v: np.where(v > 0, np.sqrt(v), 0.0)  # noqa: E731
    check(f, [-1.0, 0.0, 1.0], [[0, 0, 0.5]])
    check(tapec.grad(f), [-3.0, 1.0], [[0, -0.25]])


def test_elu_far_right():
    g = tapec.grad(lambda y: np.where(y > 0, y, np.exp(y) - 1))
    out = g(np.float32(95))
    assert out == 1 and np.asarray(out).dtype == np.float32


def test_exp_not_taken():
    assert tapec.grad(lambda a: np.where(a <= 0, np.exp(a), 1 + a))(100.0) == 1.0
    g = tapec.grad(lambda x: np.sum(np.where(x > 2, np.log2(x), 2 * x)))
    assert_allclose(g(np.array([0.0, 2.0, 3.0])), [2, 2, 1 / (3 * np.log(2))])


def test_tail_of_softmax_weights():
    keep = np.array([True, False])
    f = tapec.value_and_grad(lambda h: np.log(np.sum(np.where(keep, np.exp(h), 0))))
    value, grad = f(np.array([0.0, 1000.0]))
    assert value == 0 and grad.tolist() == [1, 0]


def test_deflection_at_the_origin():
    def f(s, c):
        r2 = s**2 + c**2
        return np.where(r2 > 0, s / r2, 0)

    g = tapec.grad(f, argnums=(0, 1))
    assert g(0.0, 0.0) == (0, 0)
    assert_allclose(g(1.0, 1.0), (0, -0.5), atol=1e-15)


# -- ties, corners, selections --------------------------------------------------------------


def test_norm_at_rest():
    g = tapec.grad(np.linalg.norm)
    assert g(np.zeros(2)).tolist() == [0, 0]
    assert_allclose(g(np.array([3.0, 4.0])), [0.6, 0.8])


@pytest.mark.parametrize("point", [[0.0, 0.0], [1.0, 2.0]])
def test_half_norm_squared_by_sqrt(point):
    def f(d):
        return np.sqrt(np.sum(d**2)) ** 2 / 2

    d = np.array(point)
    assert_allclose(tapec.grad(f)(d), d, atol=1e-15)
    assert_allclose(tapec.hessian(f)(d), np.eye(2), atol=1e-12)


def test_spread_of_constant():
    g = tapec.grad(np.std)
    assert g(np.ones(3)).tolist() == [0, 0, 0]
    x = np.array([1.0, 2.0, 3.0])
    assert_allclose(g(x), (x - 2) / (3 * np.sqrt(2 / 3)), atol=1e-15)


def test_max_of_copies():
    assert tapec.grad(lambda x: np.max(np.stack([x, x])))(3.0) == 1
    check(lambda x: np.max(np.stack([x, x])) ** 2, [3.0], [[6], [2]])


def test_hinge_at_corner():
    assert tapec.grad(np.maximum, argnums=(0, 1))(1.0, 1.0) == (0.5, 0.5)
    assert tapec.grad(lambda x: np.maximum(x, 0))(0.0) == 0.5


def test_argmax_selects_like_max():
    c = np.array([0.2, 0.9, 0.4])
    assert tapec.grad(lambda c: c[np.argmax(c)])(c).tolist() == [0, 1, 0]
    assert tapec.grad(lambda c: c[np.argmax(c)] - np.max(c))(c).tolist() == [0, 0, 0]


def test_abs_times_itself():
    check(lambda x: np.abs(x) * x, [0.0, 2.0, -2.0], [[0, 4, 4]])
    check(tapec.grad(lambda x: np.abs(x) * x), [0.0, 2.0, -2.0], [[0, 2, -2]])
    assert tapec.grad(np.abs)(0.0) == 0


def test_residual_is_zero():
    target = np.array([1.0, 2.0])
    g = tapec.grad(lambda a: np.linalg.norm(a - target) ** 2 / 2)
    assert g(target).tolist() == [0, 0]
    assert_allclose(g(np.array([2.0, 2.0])), [1, 0])


def test_column_norms_one_zero():
    g = tapec.grad(lambda a: np.sum(np.linalg.norm(a, axis=0)))
    assert_allclose(g(np.array([[0.0, 3.0], [0.0, 4.0]])), [[0, 0.6], [0, 0.8]])


# -- powers and products through zero -------------------------------------------------------


def test_cube_to_fourth_order():
    check(lambda x: x**3.0, [0.0], [[0], [0], [6], [0]])
    check(lambda x: x**3, [0.0], [[0], [0], [6], [0]])


def test_first_power_orders():
    check(lambda x: x**1.0, [1.0, 0.0], [[1, 1], [0, 0], [0, 0]])


def test_zero_base_exponent_derivative():
    g = tapec.grad(lambda x, y: x**y, argnums=(0, 1))
    assert g(0.0, 2.0) == (0, 0)
    assert g(0.0, 1.0) == (1, 0)


def test_array_exponents():
    e = np.array([0, 1, 2, 3])
    for exponents in (e, e.astype(float)):
        f = lambda x: np.sum(x**exponents)  # noqa: B023, E731
        check(f, [0.0], [[1], [2], [6]])
        assert_allclose(tapec.grad(f)(-1.0), 0 + 1 - 2 + 3)


def test_quarter_power_chain():
    check(lambda x: (x**2) ** 1.5, [0.0, 2.0, -2.0], [[0, 12, -12]])
    check(tapec.grad(lambda x: (x**2) ** 1.5), [2.0, -2.0], [[12, 12]])


def test_product_one_zero():
    x = np.array([0.0, 2.0, 3.0])
    assert tapec.grad(np.prod)(x).tolist() == [6, 0, 0]
    H = tapec.hessian(np.prod)(x)
    assert_allclose(H, [[0, 3, 2], [3, 0, 0], [2, 0, 0]], atol=1e-15)


def test_product_along_axes():
    a = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert tapec.grad(lambda a: np.sum(np.prod(a, axis=1)))(a).tolist() == [[2, 1], [4, 3]]
    assert tapec.grad(lambda a: np.prod(a, axis=(0, 1)))(a).tolist() == [[24, 12], [8, 6]]


def test_quotient_of_same():
    check(lambda x: (x + 1) / x, [1.0], [[-1], [2]])
    check(lambda x: x / x, [3.0], [[0], [0]])


def test_wrap_angle_mod():
    m = np.array([[2.0], [2.0]])
    g = tapec.grad(lambda s: np.sum(np.fmod(s, m)) + np.sum(s % m))
    assert g(np.array([5.0])).tolist() == [4]


# -- overflow, underflow, cancellation ------------------------------------------------------


@pytest.mark.parametrize("x", [1e10, 1e50, -1e300, 0.0])
def test_two_huge_logs_add(x):
    assert tapec.grad(lambda x: np.logaddexp(x, x))(x) == 1


def test_logistic_overflow():
    assert tapec.grad(lambda z: 1 / (1 + np.exp(-z)))(-800.0) == 0


def test_logistic_far_left():
    z = np.array([-800.0, -200.0, 0.0, 50.0])
    e = np.exp(-50.0)
    want = [0.0, np.exp(-200.0), 0.25, e / (1 + e) ** 2]
    got = tapec.grad(lambda z: np.sum(1 / (1 + np.exp(-z))))(z)
    assert_allclose(got, want, rtol=1e-9)


def test_exp2_just_below_overflow():
    assert_allclose(tapec.grad(np.exp2)(1023.5), np.log(2) * 2.0**1023.5, rtol=1e-12)


def test_expm1_small_second():
    f = lambda x: np.where(x == 0, 1, np.expm1(x) / x)  # noqa: E731
    x = 1e-5
    assert_allclose(tapec.grad(f)(x), 0.5 + x / 3 + x**2 / 8, rtol=1e-4)


def test_hypot_huge():
    g = tapec.grad(np.hypot, argnums=(0, 1))
    for scale in (1e200, 1e-200, 1.0):
        assert_allclose(g(3 * scale, 4 * scale), (0.6, 0.8))
    assert g(0.0, 0.0) == (0, 0)


def test_variance_large_offset():
    a = np.array([1.0, 5.0, 7.0, -3.0])
    assert_allclose(tapec.grad(lambda x: np.sum(x - np.mean(x)))(a), 0, atol=1e-15)
    x = 1e8 + np.array([0.0, 1.0, 2.0])
    assert_allclose(tapec.grad(np.var)(x), [-2 / 3, 0, 2 / 3], rtol=1e-9, atol=1e-9)


def test_softmax_entropy_extreme():
    def f(s):
        shifted = s - np.max(s)
        return np.log(np.sum(np.exp(shifted))) - shifted[0]

    value, grad = tapec.value_and_grad(f)(np.array([-1000.0, 0.0, 500.0]))
    assert value == 1500
    assert_allclose(grad, [-1, 0, 1], atol=1e-200)


def test_inverse_trig_ends():
    assert tapec.grad(np.arcsin)(1.0) == np.inf
    assert tapec.grad(np.arccos)(-1.0) == -np.inf
    assert tapec.grad(np.arctan)(1e200) == 0
    assert_allclose(tapec.grad(np.arcsin)(0.6), 1.25)
    assert tapec.grad(np.sqrt)(0.0) == np.inf
