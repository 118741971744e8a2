"""Distributions of ``tapec.scipy.stats``: every method against SciPy, as a table.

Values at quantiles from 1e-9 to 1 - 1e-7 and outside of the support; derivatives by ``x``, shape,
location and scale against differences of order 10 of SciPy's own functions; forward against
reverse mode; second derivatives by two compositions.  All of it interpreted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import scipy.stats
from surface import loss_of, traced

from tapec.ir import Builder, Function, interpret, jvp, vjp
from tapec.ir.passes import simplify
from tapec.scipy import stats

#: name → shape parameters
CONTINUOUS: dict[str, tuple[float, ...]] = {
    "arcsine": (), "bradford": (1.4,), "burr": (1.7, 1.4), "burr12": (1.7, 2.4), "dgamma": (1.4,), "dweibull": (1.7,),
    "foldnorm": (1.3,), "genlogistic": (1.4,), "gibrat": (), "loglaplace": (2.3,), "rice": (1.3,), "truncexpon": (2.3,),
 "beta": (2.5, 1.7), "betaprime": (2.5, 3.7), "cauchy": (), "chi": (2.7,),
    "chi2": (3.3,), "expon": (), "exponnorm": (1.3,), "exponweib": (1.4, 1.7),
    "f": (3.5, 5.5), "fisk": (2.3,), "gamma": (2.3,), "genextreme": (0.2,), "gennorm": (1.6,),
    "genpareto": (0.3,), "gompertz": (0.8,), "gumbel_l": (), "gumbel_r": (), "halfcauchy": (),
    "halflogistic": (), "halfnorm": (), "hypsecant": (), "invgamma": (2.3,), "invgauss": (0.8,),
    "invweibull": (2.3,), "johnsonsu": (0.4, 1.5), "laplace": (), "laplace_asymmetric": (1.3,),
    "levy": (), "loggamma": (1.7,), "logistic": (), "lognorm": (0.8,), "loguniform": (0.5, 3.0),
    "lomax": (2.6,), "maxwell": (), "moyal": (), "nakagami": (1.4,), "norm": (), "pareto": (2.6,),
    "powerlaw": (1.7,), "rayleigh": (), "reciprocal": (0.5, 3.0), "skewnorm": (1.5,), "t": (3.5,),
    "triang": (0.35,), "truncnorm": (-1.0, 3.0), "uniform": (), "vonmises": (1.3,),
    "weibull_max": (1.7,), "weibull_min": (1.7,), "wrapcauchy": (0.4,),
}  # fmt: skip
#: other regions of the shape
MORE: list[tuple[str, tuple[float, ...]]] = [
    ("genpareto", (-0.4,)), ("genpareto", (0.0,)), ("genextreme", (-0.3,)), ("genextreme", (0.0,)),
    ("truncnorm", (2.0, 5.0)), ("truncnorm", (-6.0, -3.5)), ("skewnorm", (-2.0,)), ("gamma", (0.6,)),
]  # fmt: skip
METHODS = ("logpdf", "pdf", "cdf", "sf", "logcdf", "logsf", "ppf", "isf")
TABLE = [*CONTINUOUS.items(), *MORE]
Q = np.array([1e-7, 0.02, 0.3, 0.61, 0.95, 1 - 1e-7])
LOC, SCALE = 0.25, 1.5
#: the 10-th order central difference
WEIGHTS = {1: 5 / 6, 2: -5 / 21, 3: 5 / 84, 4: -5 / 504, 5: 1 / 1260}
CLOSED: dict[str, Callable[..., Any]] = {
    "arcsine": lambda y: 2 / mp.pi * mp.asin(mp.sqrt(y)),
    "bradford": lambda y, c: mp.log1p(c * y) / mp.log1p(c),
    "burr12": lambda y, c, d: 1 - (1 + y**c) ** -d,
    "fisk": lambda y, c: 1 / (1 + y**-c),
    "halflogistic": lambda y: mp.tanh(y / 2),
    "halfnorm": lambda y: mp.erf(y / mp.sqrt(2)),
    "loguniform": lambda y, a, b: mp.log(y / a) / mp.log(b / a),
    "pareto": lambda y, b: 1 - y**-b,
    "reciprocal": lambda y, a, b: mp.log(y / a) / mp.log(b / a),
    "triang": lambda y, c: y * y / c if y < c else 1 - (1 - y) ** 2 / (1 - c),
    "truncexpon": lambda y, b: mp.expm1(-y) / mp.expm1(-b),
    "truncnorm": lambda y, a, b: (mp.ncdf(y) - mp.ncdf(a)) / (mp.ncdf(b) - mp.ncdf(a)),
    "wrapcauchy": lambda y, c: (
        mp.acot(mp.cot(y / 2) * (1 - c) / (1 + c)) / mp.pi + (1 if y > mp.pi else 0)
    ),
}
SUBTRACTED = {*CLOSED, "skewnorm", "foldnorm"}
IDS = [f"{name}-{shape}" for name, shape in TABLE]


def call(where: Any, name: str, method: str) -> Any:
    return lambda x, *p: getattr(getattr(where, name), method)(x, *p)


def points(name: str, shape: tuple[float, ...], method: str) -> np.ndarray[Any, Any]:
    if method in ("ppf", "isf"):
        return np.array([1e-7, 0.02, 0.31, 0.62, 0.95, 1 - 1e-6])
    q = Q
    d = getattr(scipy.stats, name)
    if name == "arcsine":
        q = np.clip(q, 1e-3, 1 - 1e-3)
    x: np.ndarray[Any, Any] = np.concatenate([d.ppf(q[:3], *shape), d.isf(1 - q[3:], *shape)])
    return x * SCALE + LOC


def difference(f: Any, args: list[Any], k: int, h: Any) -> np.ndarray[Any, Any]:
    total: Any = 0.0
    for n, w in WEIGHTS.items():
        for s in (1, -1):
            moved = list(args)
            moved[k] = args[k] + s * n * h
            total = total + s * w * f(*moved) / h
    return np.asarray(total)


def steps(name: str, shape: Any, method: str, x: Any, k: int, values: list[Any]) -> Any:
    """Ten of them stay inside of the support."""
    low, high = getattr(scipy.stats, name).support(*shape, LOC, SCALE)
    if method in ("ppf", "isf"):
        low, high = 0.0, 1.0
        return 0.01 * np.minimum(x, 1 - x) if k == 0 else 0.01 + 0 * x
    room = np.minimum(np.minimum(x - low, high - x), 1.0)
    return np.minimum(0.012, 0.03 * room) if k else 0.03 * room


@pytest.mark.parametrize(("name", "shape"), TABLE, ids=IDS)
def test_continuous(name: str, shape: tuple[float, ...]) -> None:
    mine = getattr(stats, name)
    for method in METHODS:
        if method != "logpdf" and method != "pdf" and mine._formulas.get(method) is None:
            if method not in ("ppf", "isf") or mine._formulas["quantile"] is None:
                continue
        x = points(name, shape, method)
        args = [x, *shape, LOC, SCALE]
        made, values = traced(call(stats, name, method), *args)
        with np.errstate(all="ignore"):
            want = call(scipy.stats, name, method)(*args)
        got = interpret(made, values)[0]
        rtol = 1e-12 if method in ("logpdf", "pdf") else 1e-11
        if method in ("ppf", "isf") or name in SUBTRACTED:
            rtol = 3e-7 if name != "arcsine" else 1e-2  # SciPy's tails, by subtraction from 1
        atol = 1e-13 if method == "logpdf" else 0.0
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol, err_msg=method)
        by = list(range(len(args)))
        directions = [np.ones_like(x) if k == 0 else np.float64(1.0) for k in by]
        weights = np.random.default_rng(5).normal(size=len(x))
        back = interpret(vjp(loss_of(made, [weights]), by, seeds=False), values)[1:]
        for n, (k, reverse) in enumerate(zip(by, back)):
            tangents = [d * (m == n) for m, d in enumerate(directions)]
            forward = interpret(jvp(made, by), [*values, *tangents])[1]
            np.testing.assert_allclose(
                np.sum(reverse), np.sum(weights * forward), rtol=1e-11,
                atol=1e-15 + 1e-12 * np.sum(np.abs(forward)), err_msg=f"{method} by {k}: modes",
            )  # fmt: skip
            f = call(scipy.stats, name, method)
            h = steps(name, shape, method, x, k, args)
            with np.errstate(all="ignore"):
                one, two = difference(f, args, k, h), difference(f, args, k, h / 2)
            doubt = np.abs(one - two)
            size = np.maximum(np.abs(forward), np.abs(want))
            grain = 1e-16 * (np.abs(want) + np.abs(x * forward)) / h
            if name in SUBTRACTED and method not in ("logpdf", "pdf", "ppf", "isf"):
                grain = grain + 1e-16 / h / (np.exp(want) if method[:3] == "log" else 1.0)
            near = 1e-9 * size + 2e-15 + 4 * doubt + 50 * grain
            bad = np.abs(two - forward) > near
            sure = near <= 1e-6 * size
            assert not np.any(bad), (method, k, x[bad], forward[bad], two[bad], doubt[bad])
            assert np.sum(sure) >= 3, (method, k, doubt / size)


@pytest.mark.parametrize(("name", "shape"), TABLE, ids=IDS)
def test_second_order(name: str, shape: tuple[float, ...]) -> None:
    """Reverse over reverse against forward over reverse."""
    args = [points(name, shape, "logpdf")[1:5], *shape, LOC, SCALE]
    made, values = traced(call(stats, name, "logpdf"), *args)
    by = list(range(len(args)))
    rng = np.random.default_rng(7)
    tangents = [rng.normal(size=np.shape(a)) for a in args]
    gradient = simplify(vjp(loss_of(made, [rng.normal(size=4)]), by, seeds=False))
    once = simplify(Function("g", gradient.params, gradient.ops, gradient.results[1:]))
    one = interpret(jvp(once, by), [*values, *tangents])[len(by) :]
    b = Builder()
    found = b.inline(once, [b.param(p.type) for p in once.params])
    total = None
    for g, t in zip(found, tangents):
        term = b.reduce_sum(b.mul(g, b.constant(t, g.type)), range(g.type.ndim))
        total = term if total is None else b.add(total, term)
    assert total is not None
    two = interpret(vjp(b.function("gt", [total]), by, seeds=False), values)[1:]
    for u, v in zip(one, two):
        assert np.all(np.isfinite(u))
        np.testing.assert_allclose(u, v, rtol=1e-10, atol=1e-11 * (1 + np.max(np.abs(u))))


@pytest.mark.parametrize(("name", "shape"), TABLE, ids=IDS)
def test_moments(name: str, shape: tuple[float, ...]) -> None:
    mine, theirs = getattr(stats, name), getattr(scipy.stats, name)
    args = [*shape, LOC, SCALE]
    for method in ("mean", "var", "std", "median", "entropy"):
        key = {"std": "var", "median": "quantile"}.get(method, method)
        if mine._formulas[key] is None and (method != "median" or mine._formulas["ppf"] is None):
            continue
        made, values = traced(lambda *p, m=method: getattr(mine, m)(*p), *args)
        got, want = float(interpret(made, values)[0]), float(getattr(theirs, method)(*args))
        rtol = 1e-9 if name == "levy" else 1e-12  # SciPy's constant has fewer digits
        np.testing.assert_allclose(got, want, rtol=rtol, err_msg=method)
        by = list(range(len(args)))
        if not np.isfinite(got):
            continue
        back = interpret(vjp(loss_of(made, [np.float64(1.0)]), by, seeds=False), values)[1:]
        for k, slope in zip(by, back):
            f = getattr(theirs, method)
            one, two = (difference(f, args, k, h) for h in (0.01, 0.005))
            assert abs(two - slope) <= 1e-8 * (1 + abs(slope)) + 2 * abs(one - two), (
                method,
                k,
                slope,
                two,
            )


@pytest.mark.parametrize("name", CLOSED)
def test_tails_where_scipy_subtracts_from_one(name: str) -> None:
    """Against closed forms in 40 digits."""
    mp.mp.dps = 40
    shape = CONTINUOUS[name]
    x = (points(name, shape, "cdf") - LOC) / SCALE
    x = x[1:-1] if name == "truncnorm" else x
    exact = [CLOSED[name](mp.mpf(v), *map(mp.mpf, shape)) for v in x.tolist()]
    want = {"cdf": exact, "sf": [1 - v for v in exact]}
    want |= {"logcdf": [mp.log(v) for v in exact], "logsf": [mp.log(1 - v) for v in exact]}
    for method, numbers in want.items():
        made, values = traced(call(stats, name, method), x, *shape)
        got = interpret(made, values)[0]
        np.testing.assert_allclose(got, np.array(numbers, float), rtol=2e-13, err_msg=method)


@pytest.mark.parametrize(("name", "shape"), TABLE, ids=IDS)
def test_quantiles_invert(name: str, shape: tuple[float, ...]) -> None:
    q = np.array([1e-12, 1e-5, 0.2, 0.5, 0.7])
    mine = getattr(stats, name)
    for forward, back in (("cdf", "ppf"), ("sf", "isf")):
        if mine._formulas[forward] is None or (
            mine._formulas[back] is None and mine._formulas["quantile"] is None
        ):
            continue
        made, values = traced(
            lambda q, *p, f=forward, b=back: getattr(mine, f)(getattr(mine, b)(q, *p), *p),
            q,
            *shape,
        )
        got = interpret(made, values)[0]
        np.testing.assert_allclose(
            got, q, rtol=1e-8, atol=2e-12 if name == "arcsine" else 2e-15, err_msg=back
        )
