"""Small inputs that trip differentiation tools: kinks, special functions, in-place code, einsum, use."""

from __future__ import annotations

import gc
import math
import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
import scipy.optimize
import scipy.special
from numpy.testing import assert_allclose, assert_array_equal

import tapec


def orders(fn, x, count):
    """Derivatives of order 1 to count at x."""
    found = []
    for _ in range(count):
        fn = tapec.grad(fn)
        found.append(fn(x))
    return found


# -- masked branches, corners ---------------------------------------------------------------


def test_atan_of_unselected_asin():
    def f(s, c):
        r2 = s**2 + c**2
        return np.where(r2 > 0, s / r2, 0.0)

    g = tapec.grad(f, argnums=(0, 1))
    assert g(0.0, 0.0) == (0, 0)
    assert_allclose(g(1.0, 1.0), (0, -0.5), atol=1e-15)


def test_half_norm_squared_sqrt():
    def f(d):
        return np.sqrt(np.sum(d**2)) ** 2 / 2

    for at in ([0.0, 0.0], [1.0, 2.0]):
        assert_allclose(tapec.grad(f)(np.array(at)), at)
        assert_allclose(tapec.hessian(f)(np.array(at)), np.eye(2), atol=1e-14)


def test_sort_then_weigh():
    f = lambda a: np.sort(a) @ np.array([1.0, 10.0, 100.0])  # noqa: E731
    assert_array_equal(tapec.grad(f)(np.array([3.0, 1.0, 2.0])), [100, 1, 10])


def test_abs_times_itself():
    for at, want in ((0.0, [0, 0]), (2.0, [4, 2]), (-2.0, [4, -2])):
        assert_allclose(orders(lambda x: abs(x) * x, at, 2), want)
    assert tapec.grad(lambda x: np.abs(np.sqrt(x**2)))(0.0) == 0


# -- powers and products through zero -------------------------------------------------------


def test_cube_fourth_order():
    assert orders(lambda x: x**3.0, 0.0, 4) == [0, 0, 6, 0]


def test_product_along_axis():
    a = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert_allclose(tapec.grad(lambda a: np.sum(np.prod(a, axis=1)))(a), [[2, 1], [4, 3]])
    assert_allclose(tapec.grad(lambda a: np.prod(a, axis=(0, 1)))(a), [[24, 12], [8, 6]])


def test_running_product_zero_first():
    g = tapec.grad(lambda a: np.sum(np.cumprod(a)))
    for at, want in (([0.0, 5, 2], [16, 0, 0]), ([3.0], [1]), ([0.0], [1])):
        assert_allclose(g(np.array(at)), want)


# -- special functions ----------------------------------------------------------------------


def test_exp2_just_over():
    g = tapec.grad(np.exp2)
    assert_allclose(g(1023.5), math.log(2) * 2**511.75 * 2**511.75)


def test_sinc_orders():
    want = [0, -(math.pi**2) / 3, 0, math.pi**4 / 5]
    assert_allclose(orders(np.sinc, 0.0, 4), want, atol=1e-12)


def test_bessel_i0_curvature():
    assert_allclose(orders(np.i0, 0.0, 2), [0, 0.5])
    assert_allclose(orders(lambda t: np.i0(2 * t - 1), 0.5, 2)[1], 2)
    assert_allclose(tapec.grad(np.i0)(1.0), 0.5651591039924851)


def test_digamma():
    g = tapec.grad(scipy.special.digamma)
    assert_allclose(g(-0.5), math.pi**2 / 2 + 4)
    assert_allclose(g(2.5), math.pi**2 / 2 - 40 / 9)
    # trigamma(-n + 1/2) = pi^2/2 + 4 sum of 1/(2k-1)^2 up to n.
    want = math.pi**2 / 2 + 4 * sum(1 / (2 * k - 1) ** 2 for k in range(1, 18))
    assert_allclose(g(-16.5), want)


def test_digamma_near_a_pole():
    def f(a):
        return np.sum(scipy.special.gammaln(a)) - scipy.special.gammaln(np.sum(a))

    psi = scipy.special.digamma
    want = [psi(1e-8) - psi(2 + 1e-8), psi(2) - psi(2 + 1e-8)]
    assert_allclose(tapec.grad(f)(np.array([1e-8, 2.0])), want, rtol=1e-9, atol=1e-15)


def test_entropy_term():
    entr = scipy.special.entr
    assert_array_equal([tapec.grad(entr)(0.0), tapec.grad(entr)(1.0)], [np.inf, -1])
    assert tapec.value_and_grad(entr)(0.0)[0] == 0


# -- nesting --------------------------------------------------------------------------------


def test_branch_not_compiled_before():
    f = lambda x: x * x if x > 1 else 3 * x  # noqa: E731
    assert [tapec.grad(f)(x) for x in (2.0, 0.5, 3.0)] == [4, 3, 6]


def test_hvp_against_hessian():
    f = lambda x: np.sum(np.exp(x) * np.roll(x, 1))  # noqa: E731
    x, v = np.array([0.1, 0.2, 0.3]), np.array([1.0, -2.0, 0.5])
    assert_allclose(tapec.hvp(f)(x, v), tapec.hessian(f)(x) @ v)


# -- in-place code --------------------------------------------------------------------------


def test_block_assignment():
    def f(a):
        b = tapec.numpy.zeros((3, 3))
        b[:2, :2] = a
        return np.sum(b**2) + np.sum(b)

    a = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert_allclose(tapec.grad(f)(a), 2 * a + 1)


def test_column_fill_in_loop():
    def f(a):
        x = tapec.numpy.zeros((2, 3))
        for z in range(3):
            x[:, z] = a * z + a**2
        return np.sum(x**2)

    assert_allclose(tapec.value_and_grad(f)(2.0), (232, 376))


def test_accumulate_through_a_view():
    def f(x):
        y = tapec.numpy.zeros(4)
        v = y[1:3]
        v += x
        y[2] *= 3
        return np.sum(y**2)

    assert_allclose(tapec.grad(f)(np.array([1.0, 2.0])), [2, 36])


def test_recurrence_in_place():
    def f(x):
        s = tapec.numpy.zeros(4)
        s[0] = x[0]
        for i in range(1, 4):
            s[i] = s[i - 1] + s[i - 1] * x[1] * 2
        return s[3]

    assert_allclose(tapec.grad(f)(np.array([2.0, 0.5])), [8, 48])


def test_columns_of_a_copy():
    c = np.array([[2.0, 1.0], [0.0, 3.0]])

    def f(u):
        t = tapec.numpy.array(c)
        for j in range(2):
            t[:, j] *= u[j]
        return np.linalg.det(t)

    assert_allclose(tapec.grad(f)(np.array([1.0, 2.0])), [12, 6])
    assert_array_equal(c, [[2, 1], [0, 3]])


# -- rearranging, shapes, einsum ------------------------------------------------------------


def test_difference_of_one_element():
    g = tapec.grad(lambda a: np.sum(np.diff(a)))
    assert_array_equal(g(np.array([1.0, 5.0, 2.0])), [-1, 0, 1])
    assert_array_equal(g(np.array([4.0])), [0])


def test_roll_and_pad():
    a = np.array([1.0, 2.0, 3.0])
    f = lambda a: np.roll(a, 1) @ a + np.sum(np.pad(a, (1, 2)) ** 2)  # noqa: E731
    assert_allclose(tapec.grad(f)(a), np.array([5, 4, 3]) + 2 * a)


def test_fortran_reshape():
    f = lambda a: a.reshape(4, order="F") @ np.array([1.0, 10, 100, 1000])  # noqa: E731
    assert_allclose(tapec.grad(f)(np.array([[1.0, 2], [3, 4]])), [[1, 100], [10, 1000]])


def test_constant_result_keeps_shape():
    v = np.array([1.0, 2.0, 3.0])
    f = lambda v: np.array([4.0, 5.0])  # noqa: E731
    assert_array_equal(tapec.jacobian(f)(v), np.zeros((2, 3)))
    assert_array_equal(tapec.jacobian(tapec.jacobian(f))(v), np.zeros((2, 3, 3)))
    assert tapec.jacobian(lambda v: np.array([4.0]))(v).shape == (1, 3)


def test_einsum():
    m = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert_array_equal(tapec.grad(lambda m: np.einsum("ii->", m))(m), np.eye(2))
    f = lambda m: np.einsum("ii->i", m) @ np.array([1.0, 10.0])  # noqa: E731
    assert_array_equal(tapec.grad(f)(m), np.diag([1, 10]))
    f = lambda x, y: np.einsum("i,i", x, y)  # noqa: E731
    dx, dy = tapec.grad(f, argnums=(0, 1))(np.array([2.0, 3.0]), np.array([7.0]))
    assert_array_equal(dx, [7, 7])
    assert_array_equal(dy, [5])
    f = lambda p, q: np.sum(np.einsum("...ij,...jk->...ik", p, q))  # noqa: E731
    dp, dq = tapec.grad(f, argnums=(0, 1))(np.ones((2, 2, 2)), m)
    assert_array_equal(dq, np.full((2, 2), 4))
    assert_array_equal(dp, np.broadcast_to([3, 7], (2, 2, 2)))
    b = np.array([[0.0, 1.0], [1.0, 1.0]])
    f = lambda v: np.sum(np.einsum("ij,jk,k", m, b, v))  # noqa: E731
    assert_array_equal(tapec.grad(f)(np.ones(2)), [6, 10])


# -- complex --------------------------------------------------------------------------------


def test_phase_orders():
    f = lambda x: np.real(np.exp(1j * x))  # noqa: E731
    assert_allclose(orders(f, 0.0, 4), [0, -1, 0, 1], atol=1e-15)


def test_modulus_at_origin():
    g = tapec.grad(lambda z: np.sum(np.abs(z)))(np.array([0, 3 + 4j]))
    assert_allclose(g, [0, 0.6 + 0.8j])


# -- captured values, escape, errors --------------------------------------------------------


def test_captured_array_edited():
    w = np.array([1.0, 2.0])
    g = tapec.grad(lambda x: w @ x)
    assert_array_equal(g(np.ones(2)), [1, 2])
    w[0] = 9
    assert_array_equal(g(np.ones(2)), [9, 2])


def test_escaped_value():
    kept = []

    def f(x):
        kept.append(x * 2)
        return np.sum(x**2)

    tapec.grad(f)(np.ones(2))
    with pytest.raises(tapec.TapecError):
        kept[0] + 1


def test_vector_result_is_refused():
    with pytest.raises((TypeError, ValueError), match=r"(?s)\(3,\).*jacobian"):
        tapec.grad(lambda x: x * 2)(np.ones(3))


def test_name_is_kept():
    def bowl(x):
        """A bowl."""
        return x * x

    g = tapec.grad(bowl)
    assert "bowl" in g.__name__ + repr(g)


def test_results_are_numbers_and_arrays():
    assert float(tapec.grad(lambda x: x**2)(np.float64(3))) == 6
    g = tapec.grad(lambda x: np.sum(x * 0))(np.ones(3))
    assert np.asarray(g).dtype == np.float64
    assert_array_equal(g, np.zeros(3))
    g = np.asarray(tapec.grad(lambda x: 1.0)(np.ones((2, 3))))
    assert (g.shape, g.dtype) == ((2, 3), np.float64)


def test_math_sin_is_right_or_refused():
    try:
        assert_allclose(tapec.grad(lambda x: math.sin(x) + 0 * x)(0.3), math.cos(0.3))
    except tapec.TapecError as problem:
        assert "np.sin" in str(problem)


# -- cost, memory, processes ----------------------------------------------------------------


def test_no_garbage_from_second_derivatives():
    h = tapec.grad(tapec.grad(lambda x: x**3 * np.sin(x)))
    h(0.5)
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        for _ in range(2000):
            h(0.5)
        assert len(gc.get_objects()) - before < 2000
    finally:
        gc.enable()


def test_pickled_gradient_function():
    copy = pickle.loads(pickle.dumps(tapec.grad(scipy.optimize.rosen)))
    assert_allclose(copy(np.array([0.5, 2.0])), [-400 * 0.5 * 1.75 - 1, 350])


def test_threads_share_a_function():
    g = tapec.grad(lambda x: np.sum(np.sin(x) * x))
    wrong = []

    def work(k):
        for i in range(200):
            x = np.full(3, k + i * 0.01)
            if not np.allclose(g(x), np.sin(x) + x * np.cos(x), rtol=1e-12):
                wrong.append((k, i))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="needs /proc")
def test_import_starts_no_threads():
    program = (
        "import os, threading, numpy as np\n"
        "n = len(os.listdir('/proc/self/task'))\n"
        "import tapec\n"
        "assert tapec.grad(lambda x: x ** 2)(3.0) == 6\n"
        "assert threading.active_count() == 1\n"
        "assert len(os.listdir('/proc/self/task')) <= n + 2\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# -- tensors --------------------------------------------------------------------------------


def test_second_backward_says_how():
    x = tapec.tensor([1.0, 2.0], requires_grad=True)
    y = (x * x).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="retain_graph"):
        y.backward()
    x.grad = None
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward(retain_graph=True)
    assert_array_equal(x.grad.numpy(), [4, 8])


def test_centred_vector_with_seeds():
    for seed, want in (([1.0] * 4, [0] * 4), ([1.0, 0, 0, 0], [0.75, -0.25, -0.25, -0.25])):
        x = tapec.tensor([1.0, 2.0, 3.0, 7.0], requires_grad=True)
        (x - x.mean()).backward(tapec.tensor(seed))
        assert_allclose(x.grad.numpy(), want, atol=1e-15)


def test_no_grad_ends_with_an_error():
    @tapec.no_grad()
    def decorated():
        raise KeyError

    for attempt in (decorated, lambda: decorated()):
        with pytest.raises(KeyError), tapec.no_grad():
            attempt()
    x = tapec.tensor(1.0, requires_grad=True)
    assert (x * 2).requires_grad


def test_edit_of_a_detached_value():
    x = tapec.tensor(2.0, requires_grad=True)
    v = x * 1
    out = v * v
    v.detach().add_(1.0)
    try:
        out.backward()
    except RuntimeError:
        return
    assert x.grad.item() == 4


def test_integers_require_no_grad():
    with pytest.raises(RuntimeError, match="float"):
        tapec.tensor([1, 2], requires_grad=True)
