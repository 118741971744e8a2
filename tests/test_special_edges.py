"""Derivatives of special functions at and near points where textbook formulas are 0/0, and what
may be infinite there: by mpmath, to third order."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import scipy.special as sp

import tapec
import tapec.scipy.special
from tapec.ir import F64, OPS, Builder, Type, Value, interpret
from tapec.ir.loop_vjp import may_be_singular

Case = tuple[Callable[[Any], Any], Callable[[Any], Any], tuple[float, ...]]
ZERO = (0.0, 1e-9, 1e-3, 0.19, 0.21, 0.95)


def by_integral(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: mp.quad(f, [0, x])


CASES: dict[str, Case] = {
    "ber": (lambda x: sp.ber(x), lambda x: mp.ber(0, x), (*ZERO, 1.05)),
    "bei": (lambda x: sp.bei(x), lambda x: mp.bei(0, x), (*ZERO, 1.05)),
    "ellipkinc": (lambda m: sp.ellipkinc(0.7, m), lambda m: mp.ellipf(mp.mpf(0.7), m), ZERO),
    "ellipeinc": (lambda m: sp.ellipeinc(0.7, m), lambda m: mp.ellipe(mp.mpf(0.7), m), ZERO),
    "ellipkinc-turns": (lambda m: sp.ellipkinc(-4.0, m), lambda m: mp.ellipf(-4, m), ZERO),
    "ellipeinc-turns": (lambda m: sp.ellipeinc(8.0, m), lambda m: mp.ellipe(8, m), ZERO),
    "ellipeinc-negative": (lambda m: sp.ellipeinc(1.2, -m), lambda m: mp.ellipe(mp.mpf(1.2), -m), ZERO),
    "it2j0y0": (lambda x: sp.it2j0y0(x)[0], by_integral(lambda t: (1 - mp.besselj(0, t)) / t), (1e-9, 1e-3, 1.05)),
    "it2i0k0": (lambda x: sp.it2i0k0(x)[0], by_integral(lambda t: (mp.besseli(0, t) - 1) / t), (1e-9, 1e-3, 1.05)),
}  # fmt: skip
_LEGENDRE: list[Callable[[Any], Any]] = [
    lambda x: (5 * x**3 - 3 * x) / 2,
    lambda x: -(3 * (5 * x**2 - 1) / 2) * mp.sqrt(1 - x**2),
    lambda x: 15 * x * (1 - x**2),
    lambda x: -15 * (1 - x**2) ** mp.mpf(1.5),
]
for _m, _formula in enumerate(_LEGENDRE):
    _points = (0.0, 0.5, -0.9999999) if _m % 2 else (-1.0, 1.0, 0.5, -0.9999999)
    CASES[f"lpmv-{_m}"] = (lambda x, m=_m: sp.lpmv(m, 3.0, x), _formula, _points)


@pytest.mark.parametrize("name", CASES)
def test_near_removable_singularities(name: str) -> None:
    fn, exact, points = CASES[name]
    orders = 2 if name.startswith(("it2", "lpmv")) else 3
    gradient = fn
    with mp.workdps(40):
        for order in range(1, orders + 1):
            gradient = tapec.grad(gradient)
            for x in points:
                want = float(mp.re(mp.diff(exact, mp.mpf(x), order, h=mp.mpf(10) ** -13)))
                assert float(gradient(x)) == pytest.approx(want, rel=1e-10, abs=1e-12), (x, order)


def test_struve_integral_at_zero() -> None:
    slope = tapec.grad(lambda x: sp.it2struve0(x))
    assert slope(0.0) == pytest.approx(-2 / np.pi, rel=1e-15)
    assert slope(0.3) == pytest.approx(float(-mp.struveh(0, 0.3) / mp.mpf(0.3)), rel=1e-14)


# -- where partial derivatives are infinite ----------------------------------------------------

POINTS = (-3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0)


def _operands(name: str) -> int:
    low = OPS[name].samples.low
    counts = (len(low),) if isinstance(low, tuple) else (1, 2, 3, 4)
    for n in counts:
        try:
            OPS[name].infer((Type(F64, (1,)),) * n, {"n": 1})
        except (TypeError, ValueError):
            continue
        return n
    raise AssertionError(name)


SMOOTH = [
    name for name, entry in OPS.items() if entry.elementwise and entry.partials and not may_be_singular(name)
]  # fmt: skip


@pytest.mark.parametrize("name", SMOOTH)
def test_only_listed_operations_have_infinite_partials(name: str) -> None:
    """Finite values with infinite or NaN partial derivatives: loops must know of them."""
    n = _operands(name)
    grid = np.array(list(itertools.product(POINTS, repeat=n))).T
    b = Builder()
    xs = [b.param(Type(F64, (grid.shape[1],))) for _ in range(n)]
    try:
        z = b.emit(name, tuple(xs), {"n": -1} if name == "integer_pow" else {})
    except (TypeError, ValueError):
        pytest.skip("not for real operands")
    rule = OPS[name].partials
    assert rule is not None
    partials = [p for p in rule(b, z, *xs) if isinstance(p, Value)]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        value, *found = interpret(b.function("f", [z, *partials]), list(grid))
    for p in found:
        assert not np.any(np.isfinite(value) & ~np.isfinite(p))


@pytest.mark.parametrize("name", ["xlogy", "entr", "ellipe", "jv", "spence", "gammaincinv"])
def test_infinite_slope_of_a_carry_that_is_not_used(name: str) -> None:
    """The last iteration evaluates the function where its slope is infinite; its result is not
    part of the value."""
    f: Callable[[Any], Any] = {
        "xlogy": lambda a: sp.xlogy(a, a), "entr": sp.entr, "ellipe": lambda a: sp.ellipe(1 - a),
        "jv": lambda a: sp.jv(0.5, a), "spence": sp.spence,
        "gammaincinv": lambda a: sp.gammaincinv(2.0, a),
    }[name]  # fmt: skip

    def scanned(x: Any, z: Any) -> Any:
        return tapec.scan(lambda c, _: ((c[1], f(c[0])), c[0]), (x, z), np.arange(2.0))[0][0]

    def counted(x: Any, z: Any) -> Any:
        step = lambda c: (c[1], f(c[0]), c[2] + 1)  # noqa: E731
        return tapec.while_loop(lambda c: c[2] < 2, step, (x, z, 0))[0]

    want = tapec.grad(f)(0.7)
    for program in (scanned, counted):
        assert tapec.grad(program, argnums=(0, 1))(0.7, 0.0) == pytest.approx((want, 0.0))
