"""Derivatives by parameters of distributions, by mpmath."""

from __future__ import annotations

from typing import Any

import mpmath as mp
import numpy as np
import pytest
import scipy.special as sp

import tapec

STEP = mp.mpf(10) ** -18


def incomplete(p: Any, q: Any, x: Any) -> Any:
    return mp.betainc(p, q, 0, x, regularized=True)


@pytest.mark.parametrize(
    ("p", "q", "x"),
    [
        (2.0, 3.0, 0.3), (0.3, 0.2, 0.5), (10.0, 0.5, 0.9), (0.5, 20.0, 0.01), (5.0, 5.0, 0.5),
        (100.0, 120.0, 0.45), (0.01, 3.0, 1e-5), (3.0, 0.02, 0.99999), (2.0, 1.0, 1e-12),
        (50.0, 2.0, 0.9999999),
    ],
)  # fmt: skip
def test_incomplete_beta(p: float, q: float, x: float) -> None:
    with mp.workdps(40):
        P, Q, X = mp.mpf(p), mp.mpf(q), mp.mpf(x)
        by_p = float(mp.diff(lambda v: incomplete(v, Q, X), P, h=STEP))
        by_q = float(mp.diff(lambda v: incomplete(P, v, X), Q, h=STEP))
        density = float(X ** (P - 1) * (1 - X) ** (Q - 1) / mp.beta(P, Q))
    whole = tapec.grad(lambda p, q, x: sp.betainc(p, q, x), argnums=(0, 1, 2))
    assert whole(p, q, x) == pytest.approx((by_p, by_q, density), rel=1e-11)
    rest = tapec.grad(lambda p, q, x: sp.betaincc(p, q, x), argnums=(0, 1, 2))
    assert rest(p, q, x) == pytest.approx((-by_p, -by_q, -density), rel=1e-11)


def test_parameters_out_of_reach_are_nan() -> None:
    whole = tapec.grad(lambda p, q: sp.betainc(p, q, 0.5), argnums=(0, 1))
    for p, q in ((1e15, 1e15), (float("inf"), 1.0), (2.0, 1e300), (-1.0, 1.0)):
        assert all(v != v for v in whole(p, q))


def test_quantiles_of_beta() -> None:
    """I_z(p, q) = y along the solution."""
    p, q, y = 2.5, 1.7, 0.4
    with mp.workdps(40):
        z = mp.findroot(lambda x: incomplete(p, q, x) - mp.mpf(y), 0.5)
        slope = z ** mp.mpf(p - 1) * (1 - z) ** mp.mpf(q - 1) / mp.beta(p, q)
        by_p = -mp.diff(lambda v: incomplete(v, q, z), p, h=STEP) / slope
        by_q = -mp.diff(lambda v: incomplete(p, v, z), q, h=STEP) / slope
    want = float(by_p), float(by_q), float(1 / slope)
    one = tapec.grad(lambda p, q, y: sp.betaincinv(p, q, y), argnums=(0, 1, 2))(p, q, y)
    other = tapec.grad(lambda p, q, y: sp.betainccinv(p, q, y), argnums=(0, 1, 2))(p, q, 1 - y)
    assert one == pytest.approx(want, rel=1e-11)
    assert other == pytest.approx((want[0], want[1], -want[2]), rel=1e-11)


@pytest.mark.parametrize(
    ("v", "t"),
    [(3.0, 0.5), (3.0, -2.0), (1.0, 1e-4), (5.0, 30.0), (0.7, -0.3), (2.0, 1e3), (4.0, 0.0)],
)
def test_degrees_of_freedom_of_t(v: float, t: float) -> None:
    def exact(v: Any) -> Any:
        half = incomplete(v / 2, mp.mpf(1) / 2, v / (v + mp.mpf(t) ** 2)) / 2
        return 1 - half if t > 0 else half

    with mp.workdps(40):
        want = float(mp.diff(exact, mp.mpf(v), h=STEP)) if t else 0.0
    found = tapec.grad(lambda v, t: sp.stdtr(v, t))(v, t)
    assert found == pytest.approx(want, rel=1e-12)
    if t and abs(t) < 10:
        level = float(sp.stdtr(v, t))
        density = tapec.grad(lambda t: sp.stdtr(v, t))(t)
        assert tapec.grad(lambda v: sp.stdtrit(v, level))(v) == pytest.approx(-want / density)


def test_f_and_binomial() -> None:
    """Compositions of incomplete beta functions: by differences in high precision."""
    with mp.workdps(40):
        f = lambda a: incomplete(a / 2, mp.mpf(2), 2 * a / (4 + 2 * a))  # noqa: E731
        want = float(mp.diff(f, mp.mpf(3), h=STEP))
    assert tapec.grad(lambda a: sp.fdtr(a, 4.0, 2.0))(3.0) == pytest.approx(want, rel=1e-11)


@pytest.mark.parametrize("a", [1e-3, 0.5, 1.3, 3.0, 10.0, 40.0])
@pytest.mark.parametrize("x", [1e-3, 0.5, 2.0, 4.1, 30.0, 110.0, 600.0])
def test_tails_of_the_gamma_distribution_by_its_shape(a: float, x: float) -> None:
    """Both tails keep their digits, at whole shapes too: ∂Q/∂a is ∫ of the density's derivative."""
    with mp.workdps(40):
        A, X = mp.mpf(a) + mp.mpf(10) ** -22, mp.mpf(x)  # mpmath's own differs at whole numbers
        upper = mp.diff(lambda v: mp.gammainc(v, X, mp.inf, regularized=True), A, h=STEP)
        whole = mp.gammainc(A, X, mp.inf, regularized=True)
        slope, log_slope = float(upper), float(upper / whole)
    assert tapec.grad(lambda a: sp.gammaincc(a, x))(a) == pytest.approx(slope, rel=1e-9)
    assert tapec.grad(lambda a: sp.gammainc(a, x))(a) == pytest.approx(-slope, rel=1e-9)
    found = tapec.grad(lambda a: np.log(sp.gammaincc(a, x)))(a)
    assert found == pytest.approx(log_slope, rel=1e-9)


def test_far_out_there_is_no_slope_left() -> None:
    assert tapec.grad(lambda a: sp.gammainc(a, 800.0))(1.3) == 0
    assert tapec.grad(lambda a: sp.chdtr(a, 1e5))(3.0) == 0
