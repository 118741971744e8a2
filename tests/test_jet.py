"""Taylor mode: against SymPy's series, against nested derivatives, cost, mistakes."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest

import tapec
from tapec.ir import OPS, Builder, Type, interpret, verify
from tapec.ir.core import F64
from tapec.ir.taylor import _RULES, taylor


def coefficients(name: str, order: int) -> tuple[Any, list[float]]:
    """The function and its coefficients at 0, by SymPy's exact arithmetic of series."""
    sp = pytest.importorskip("sympy")
    rs = pytest.importorskip("sympy.polys.ring_series")
    _, x = sp.ring("x", sp.QQ)
    n = order + 1
    np_fn, series = {
        "exp sin": (lambda x: np.exp(np.sin(x)), lambda: rs.rs_exp(rs.rs_sin(x, x, n), x, n)),
        "lorentz": (lambda x: 1 / (1 + x**2), lambda: rs.rs_series_inversion(1 + x**2, x, n)),
        "tan": (np.tan, lambda: rs.rs_tan(x, x, n)),
        "tanh log1p": (
            lambda x: np.tanh(np.log1p(x)),
            lambda: rs.rs_tanh(rs.rs_log(1 + x, x, n), x, n),
        ),
    }[name]
    found = series()
    return np_fn, [float(found.coeff(x**k if k else 1)) for k in range(n)]


@pytest.mark.parametrize("name", ["exp sin", "lorentz", "tan", "tanh log1p"])
def test_series_of_order_20(name: str) -> None:
    fn, want = coefficients(name, 20)
    got = tapec.taylor(fn, 0.0, len(want) - 1)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-17)


SMOOTH = [
    n
    for n, e in OPS.items()
    if n in _RULES
    and e.elementwise
    and not e.nondifferentiable
    and n not in ("select", "convert", "integer_pow", "abs", "copysign", "mod", "fmod")
]


@pytest.mark.parametrize("name", SMOOTH)
def test_rule_against_nested_derivatives(name: str) -> None:
    entry = OPS[name]
    rng = np.random.default_rng(1)
    for arity in (1, 2):
        try:
            entry.infer((Type(F64),) * arity, {})
        except TypeError:
            continue
        b = Builder()
        xs = [b.param(Type(F64), n) for n in "xy"[:arity]]
        fn = verify(b.function(name, [b.emit(name, tuple(xs))]))
        lows, highs = entry.samples.low, entry.samples.high
        lows = lows if isinstance(lows, tuple) else (lows,) * arity
        highs = highs if isinstance(highs, tuple) else (highs,) * arity
        point = [float(rng.uniform(lo, hi)) for lo, hi in zip(lows, highs)]
        direction = [float(v) for v in rng.normal(size=arity)]
        (got,) = interpret(verify(taylor(fn, 4)), [*point, *direction])
        f: Any = fn
        want = []
        from tapec.ir import jvp

        args = [*point]
        for k in range(5):
            values = interpret(f, args)
            want.append(float(values[-1]) / math.factorial(k))
            f = jvp(f, list(range(arity)))
            args = [*args, *direction]
            f = type(f)(f.name, f.params, f.ops, [f.results[-1]])
        # the direction is constant: later tangent parameters are those of x and y again
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11, err_msg=name)


def test_arrays_containers_and_linear_algebra() -> None:
    w = np.random.default_rng(0).normal(size=(3, 3))

    def fn(p: Any) -> Any:
        y = np.tanh(w @ p["x"]) * p["s"]
        z = np.concatenate([y[::-1], y[:1]])
        return {"v": np.cumsum(z), "m": np.max(z), "p": np.prod(z), "d": z @ z}

    p = {"x": np.array([0.1, -0.2, 0.3]), "s": 1.5}
    v = {"x": np.array([1.0, 0.5, -1.0]), "s": 0.25}
    got = tapec.jet(fn, p, 4, v)

    def line(t: Any) -> Any:
        return fn({"x": p["x"] + t * v["x"], "s": p["s"] + t * v["s"]})

    def slope(g: Any) -> Any:
        return lambda t: tapec.jvp(g, (t,), (1.0,))[1]

    g: Any = line
    for k in range(5):
        want = g(0.0)
        for key, value in want.items():
            np.testing.assert_allclose(got[key][k], value, rtol=1e-10, err_msg=f"{key} {k}")
        g = slope(g)


def test_powers() -> None:
    for fn, x in (
        (lambda x: x**3, 0.0),
        (lambda x: x**3.0, 0.0),
        (lambda x: x**-2, 1.5),
        (lambda x: x**2.5, 1.5),
        (lambda x: 2.0**x, 1.5),
        (lambda x: x**x, 1.5),
        (np.cbrt, 1.5),
    ):
        g: Any = fn
        got = tapec.jet(fn, x, 4)
        for k in range(5):
            assert got[k] == pytest.approx(float(g(x)), rel=1e-11, abs=1e-13)
            g = tapec.grad(g)


def test_derivative() -> None:
    assert tapec.derivative(np.sin, 3)(0.0) == -1.0
    x = np.array([0.1, 0.2])
    np.testing.assert_allclose(tapec.derivative(np.exp, 7)(x), np.exp(x), rtol=1e-14)
    assert tapec.derivative(lambda x, a: a * x**3, 2)(2.0, 5.0) == pytest.approx(60.0)
    assert tapec.derivative(lambda x: np.where(x > 0, x**2, 0.0), 2)(-1.0) == 0.0
    assert tapec.derivative(lambda x: 3.0 + 0 * x, 2)(1.0) == 0.0
    assert tapec.derivative(np.exp, 0)(0.0) == 1.0
    mixed = tapec.grad(lambda a: tapec.derivative(lambda x: np.exp(a * x), 3)(0.5))
    assert mixed(2.0) == pytest.approx((3 * 4 + 8 * 0.5) * math.exp(1.0))
    np.testing.assert_allclose(
        tapec.vmap(tapec.derivative(lambda x: np.sin(x) * x, 2))(x),
        2 * np.cos(x) - x * np.sin(x),
    )


def best(fn: Any, *args: Any) -> float:
    fn(*args)
    times = []
    for _ in range(7):
        start = time.perf_counter()
        for _ in range(50):
            fn(*args)
        times.append(time.perf_counter() - start)
    return min(times) / 50


def test_cost_of_order_20() -> None:
    """O(order²): the 20th derivative takes less than 50 times as long as the first."""

    def fn(x: Any) -> Any:
        return np.exp(np.sin(x)) / (1 + x * x)

    x = np.linspace(-1, 1, 4000)
    ratio = best(tapec.derivative(fn, 20), x) / best(tapec.derivative(fn, 1), x)
    print(f"20th over first derivative: {ratio:.1f}")
    assert ratio < 50


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: tapec.taylor(3, 1.0, 2), TypeError, "expects a function"),
        (lambda: tapec.taylor(np.sin, 1.0, -1), ValueError, "between 0 and 170"),
        (lambda: tapec.jet(np.sin, 1.0, 1.5), TypeError, "the order is an int"),
        (lambda: tapec.jet(np.sin, np.ones(2), 2, np.ones(3)), ValueError, "direction has shape"),
        (lambda: tapec.jet(np.sin, np.ones(2), 2, (1.0,)), TypeError, "has the structure"),
        (lambda: tapec.jet(np.sin, np.ones(2, int), 2), TypeError, "dtype int64"),
        (lambda: tapec.jet(lambda x: x > 0, 1.0, 2), TypeError, "dtype bool"),
        (
            lambda: tapec.jet(lambda x: tapec.while_loop(lambda c: c < 9, lambda c: c * x, x), 2.0, 2),
            NotImplementedError,
            "'while' has no Taylor rule",
        ),
    ],
)  # fmt: skip
def test_mistakes(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call()
