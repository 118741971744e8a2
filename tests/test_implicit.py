"""Implicit functions: against closed forms to order 3, both modes, under vmap; mistakes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from scipy.special import ndtr

import tapec


def quadratic(a: Any, b: Any, c: Any) -> Any:
    return tapec.root(lambda x, a, b, c: a * x * x + b * x + c, 3.0, (a, b, c))


POINT = (1.0, -3.0, 2.0)


def closed() -> tuple[Any, Any, Any]:
    sp = pytest.importorskip("sympy")
    a, b, c = sp.symbols("a b c")
    x = (-b + sp.sqrt(b * b - 4 * a * c)) / (2 * a)
    return x, (a, b, c), dict(zip((a, b, c), POINT))


def test_newton_root_to_third_order() -> None:
    x, symbols, at = closed()
    assert quadratic(*POINT) == pytest.approx(2.0, rel=1e-14)
    gradient = tapec.grad(quadratic, argnums=(0, 1, 2))(*POINT)
    np.testing.assert_allclose(gradient, [float(x.diff(s).subs(at)) for s in symbols])
    hessian = tapec.hessian(quadratic, argnums=(0, 1, 2))(*POINT)
    want = [[float(x.diff(s, t).subs(at)) for t in symbols] for s in symbols]
    np.testing.assert_allclose(hessian, want, rtol=1e-11, atol=1e-11)
    for k, s in enumerate(symbols):
        g: Any = quadratic
        for _ in range(3):
            g = tapec.grad(g, argnums=k)
        assert g(*POINT) == pytest.approx(float(x.diff(s, 3).subs(at)), rel=1e-10)
        third = tapec.hessian(tapec.grad(quadratic, argnums=k), argnums=(0, 1, 2))(*POINT)
        want = [[float(x.diff(s, t, u).subs(at)) for u in symbols] for t in symbols]
        np.testing.assert_allclose(third, want, rtol=1e-10, atol=1e-10)
    _, dot = tapec.jvp(quadratic, POINT, (1.0, 0.5, 0.0))
    assert dot == pytest.approx(gradient[0] + 0.5 * gradient[1])


def test_vmap() -> None:
    a = np.array([1.0, 0.9, 0.8])
    mapped = tapec.vmap(tapec.grad(quadratic), (0, None, None))(a, -3.0, 2.0)
    want = [tapec.grad(quadratic)(v, -3.0, 2.0) for v in a]
    np.testing.assert_allclose(mapped, want, rtol=1e-12)
    total = tapec.grad(lambda b: np.sum(tapec.vmap(quadratic, (0, None, None))(a, b, 2.0)))
    each = [tapec.grad(quadratic, argnums=1)(v, -3.0, 2.0) for v in a]
    assert total(-3.0) == pytest.approx(sum(each))


def test_system() -> None:
    def equations(x: Any, p: Any) -> Any:
        return np.array([x[0] ** 2 + x[1] - p[0], x[0] - x[1] ** 2 + p[1]])

    def solution(p: Any) -> Any:
        return tapec.root(equations, np.array([1.0, 1.0]), (p,))

    p = np.array([2.0, 0.5])
    x = solution(p)
    np.testing.assert_allclose(np.asarray(equations(x, p), float), 0, atol=1e-12)
    fx = np.array([[2 * x[0], 1], [1, -2 * x[1]]])
    want = -np.linalg.solve(fx, np.array([[-1.0, 0], [0, 1]]))
    np.testing.assert_allclose(tapec.jacobian(solution)(p), want, rtol=1e-12)
    h, e = tapec.hessian(lambda p: np.sum(solution(p) ** 2))(p), 1e-5
    g = tapec.grad(lambda p: np.sum(solution(p) ** 2))
    for k, d in enumerate(np.eye(2) * e):
        np.testing.assert_allclose(h[k], (g(p + d) - g(p - d)) / (2 * e), rtol=1e-7)


def test_fixed_point() -> None:
    def fn(a: Any) -> Any:
        return tapec.fixed_point(lambda x, a: np.cos(a * x), 0.5, (a,))

    x = fn(1.0)
    slope = -np.sin(x) * x / (1 + np.sin(x))
    assert tapec.grad(fn)(1.0) == pytest.approx(slope, rel=1e-10)


def test_argmin() -> None:
    def best(p: Any) -> Any:
        return tapec.argmin(lambda x, p: np.sum((x - p) ** 2) + x[0] * x[1], np.zeros(2), (p,))

    want = 2 * np.linalg.inv(np.array([[2.0, 1.0], [1.0, 2.0]]))
    np.testing.assert_allclose(tapec.jacobian(best)(np.array([0.5, 0.7])), want, rtol=1e-12)


def test_linear_solve_without_a_matrix() -> None:
    m, b = np.array([[4.0, 1.0], [1.0, 3.0]]), np.array([1.0, 2.0])

    def free(t: Any, b: Any) -> Any:
        return np.sum(tapec.linear_solve(lambda v, t: m @ v + t * v, b, (t,)) ** 2)

    def direct(t: Any, b: Any) -> Any:
        return np.sum(np.linalg.solve(m + t * np.eye(2), b) ** 2)

    for argnum in (0, 1):
        for transform in (tapec.grad, tapec.hessian):
            got = transform(free, argnums=argnum)(0.3, b)
            np.testing.assert_allclose(got, transform(direct, argnums=argnum)(0.3, b), rtol=1e-10)
    _, dot = tapec.jvp(free, (0.3, b), (1.0, b))
    assert dot == pytest.approx(tapec.jvp(direct, (0.3, b), (1.0, b))[1], rel=1e-10)


def test_symmetric_solve_hessian() -> None:
    def fn(a: Any) -> Any:
        s = np.array([[2 + a[0], a[1]], [a[1], 3 + a[2]]])
        return np.sum(np.linalg.solve(s, np.array([1.0, 2.0])) ** 2)

    a, e = np.array([0.1, 0.4, 0.2]), 1e-5
    g = tapec.grad(fn)
    want = [(g(a + d) - g(a - d)) / (2 * e) for d in np.eye(3) * e]
    np.testing.assert_allclose(tapec.hessian(fn)(a), want, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: tapec.root(lambda x, a: x * x + a, 1.0, (1.0,)), "no solution.*singular"),
        (lambda: tapec.root(lambda x: x * 0.0 + 1, 1.0), "no solution"),
        (lambda: tapec.root(lambda x: np.stack([x, x]), 1.0), r"shape \(2,\) for unknowns"),
        (lambda: tapec.root(np.sin, [1.0]), "x0 is a number or an array"),
        (lambda: tapec.root(np.sin, 1.0, tol=0.0), "positive"),
        (lambda: tapec.fixed_point(lambda x: 2 * x + 1, 1.0, max_iter=50), "does not converge"),
        (lambda: tapec.linear_solve(lambda v: -v * 0, np.ones(2)), "not positive definite"),
    ],
)
def test_mistakes(call: Any, message: str) -> None:
    with pytest.raises(tapec.TapecError, match=message):
        call()


def test_values_of_an_enclosing_function() -> None:
    """What the equation takes from around it counts as an argument."""

    def cube_root(a: Any) -> Any:
        return tapec.root(lambda x: x**3 - a, 1.0)

    a, fn = 2.0, cube_root
    for k in range(4):
        want = math.prod(1 / 3 - j for j in range(k)) * a ** (1 / 3 - k)
        assert fn(a) == pytest.approx(want, rel=1e-12)
        fn = tapec.grad(fn)
    np.testing.assert_allclose(
        tapec.vmap(tapec.grad(cube_root))(np.array([1.0, 8.0])), [1 / 3, 1 / 12], rtol=1e-12
    )
    m = np.array([[3.0, 1], [0.5, 2]])
    b = np.array([1.0, -2])

    def system(m: Any, b: Any) -> Any:  # one by closure, one as an argument
        return np.sum(tapec.root(lambda x, b: m @ x - b, np.zeros(2), (b,)) ** 2)

    x = np.linalg.solve(m, b)
    lam = np.linalg.solve(m.T, 2 * x)
    by_m, by_b = tapec.grad(system, argnums=(0, 1))(m, b)
    np.testing.assert_allclose(by_m, -np.outer(lam, x), rtol=1e-12)
    np.testing.assert_allclose(by_b, lam, rtol=1e-12)
    kepler = lambda e: tapec.fixed_point(lambda x: 0.7 + e * np.sin(x), 1.0)  # noqa: E731
    e = 0.3
    x0 = kepler(e)
    assert tapec.grad(kepler)(e) == pytest.approx(np.sin(x0) / (1 - e * np.cos(x0)), rel=1e-10)
    lowest = lambda a: tapec.argmin(lambda x: (x - a**2) ** 4 + (x - a**2) ** 2, 0.0)  # noqa: E731
    assert tapec.grad(lowest)(1.5) == pytest.approx(3.0, rel=1e-10)
    solve = lambda d: np.sum(tapec.linear_solve(lambda v: d * v, b))  # noqa: E731
    np.testing.assert_allclose(tapec.grad(solve)(np.array([2.0, 4.0])), [-0.25, 0.125], rtol=1e-11)


def test_a_branch_in_an_equation_is_not_frozen() -> None:
    def fn(a: Any) -> Any:
        def equation(x: Any) -> Any:
            if x > 1.2:
                return x**3 - a
            return x - a

        return tapec.root(equation, 0.5)

    with pytest.raises(TypeError, match="Python cannot branch on it"):
        tapec.grad(fn)(2.0)


@pytest.mark.parametrize("name", ["brentq", "brenth", "bisect", "ridder", "toms748"])
def test_scipys_root_finders_in_traced_functions(name: str) -> None:
    find = getattr(scipy.optimize, name)

    def fn(a: Any) -> Any:
        return find(lambda x: x**3 - a, 0.0, 3.0)

    assert fn(2.0) == pytest.approx(tapec.jit(fn)(2.0), rel=1e-10)
    assert tapec.grad(fn)(2.0) == pytest.approx(2 ** (-2 / 3) / 3, rel=1e-12)
    assert tapec.grad(tapec.grad(fn))(2.0) == pytest.approx(-2 * 2 ** (-5 / 3) / 9, rel=1e-11)
    steep = lambda a: find(lambda x: np.tanh(50 * (x - a)), -1.0, 2.0)  # noqa: E731
    assert tapec.value_and_grad(steep)(0.31) == pytest.approx((0.31, 1.0), rel=1e-9)
    at_end = lambda a: find(lambda x: x - a, 0.0, 2.0)  # noqa: E731
    assert tapec.value_and_grad(at_end)(2.0) == pytest.approx((2.0, 1.0))
    with pytest.raises(ValueError, match="different signs"):
        tapec.grad(fn)(-2.0)


def test_roots_that_newtons_method_finds_slowly() -> None:
    for f in (
        lambda x, a: (x - a) ** 9, lambda x, a: np.arctan(1e6 * (x - a)), lambda x, a: np.cbrt(x - a),
        lambda x, a: np.exp(-x) - np.exp(-a), lambda x, a: np.where(x > a, 1.0, -1.0) + (x - a),
    ):  # fmt: skip
        for a in (-0.9, 0.31, 39.0):
            find = lambda a, f=f: scipy.optimize.brentq(lambda x: f(x, a), -1.0, 40.0)  # noqa: E731
            assert tapec.jit(find)(a) == pytest.approx(a, abs=1e-9)


def test_implied_volatility() -> None:
    """By ``root_scalar``, ``newton`` and ``fsolve``: the derivative by the price is 1 / vega."""
    strike, rate, years, spot = 105.0, 0.02, 0.75, 100.0

    def call(v: Any) -> Any:
        d1 = (np.log(spot / strike) + (rate + v * v / 2) * years) / (v * np.sqrt(years))
        d2 = d1 - v * np.sqrt(years)
        return spot * ndtr(d1) - strike * np.exp(-rate * years) * ndtr(d2)

    vol, price = 0.24, float(call(0.24))
    vega = tapec.grad(call)(vol)
    finders: list[Any] = [
        lambda p: scipy.optimize.root_scalar(lambda v: call(v) - p, bracket=(0.01, 2.0)).root,
        lambda p: scipy.optimize.root_scalar(lambda v: call(v) - p, x0=0.3, x1=0.4).root,
        lambda p: scipy.optimize.newton(lambda v: call(v) - p, 0.3),
        lambda p: scipy.optimize.fsolve(lambda v: call(v) - p, 0.3)[0],
    ]
    for implied in finders:
        assert tapec.value_and_grad(implied)(price) == pytest.approx((vol, 1 / vega), rel=1e-9)
