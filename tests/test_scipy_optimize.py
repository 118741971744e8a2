"""SciPy's solvers through tapec: published optima with exact derivatives."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapec
from tapec.scipy import optimize

_path = Path(__file__).parents[1] / "examples" / "hock_schittkowski.py"
_spec = importlib.util.spec_from_file_location("hock_schittkowski", _path)
assert _spec and _spec.loader
problems: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(problems)
PROBLEMS: dict[str, Any] = problems.PROBLEMS


def rosenbrock(x: Any) -> Any:
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


@pytest.mark.parametrize(
    "method",
    ["BFGS", "Newton-CG", "trust-exact", "trust-ncg", "SLSQP", "L-BFGS-B", "Nelder-Mead", None],
)
def test_methods(method: str | None) -> None:
    r = optimize.minimize(rosenbrock, np.array([-1.2, 1.0]), method=method)
    np.testing.assert_allclose(r.x, [1, 1], atol=2e-4)


@pytest.mark.parametrize("name", list(PROBLEMS))
def test_hock_schittkowski(name: str) -> None:
    r = problems.solve(PROBLEMS[name])
    assert r.fun == pytest.approx(PROBLEMS[name].optimum, rel=1e-6, abs=1e-6)


def test_rosenbrock_with_a_thousand_unknowns_and_a_constraint() -> None:
    r = problems.valley(1000)
    assert r.fun < 1e-8 and r.nit < 400
    np.testing.assert_allclose(r.x, 1, atol=1e-3)


def test_trust_constr_with_hessians() -> None:
    fn, positive, equal, start, optimum = PROBLEMS["HS71"]
    constraints = [
        optimize.NonlinearConstraint(positive[0], 0, np.inf),
        optimize.NonlinearConstraint(equal[0], 0, 0, sparse=False),
    ]
    import scipy.optimize as so

    r = optimize.minimize(
        fn, np.array(start, float), method="trust-constr", constraints=constraints,
        bounds=so.Bounds(1, 5), options={"gtol": 1e-9, "xtol": 1e-12, "maxiter": 400},
    )  # fmt: skip
    assert r.fun == pytest.approx(optimum, rel=1e-5)


def test_large_rosenbrock() -> None:
    r = optimize.minimize(rosenbrock, np.full(200, 1.2), method="Newton-CG", options={"xtol": 1e-9})
    np.testing.assert_allclose(r.x, 1, atol=1e-6)


def test_containers() -> None:
    def fn(p: Any, t: Any) -> Any:
        return np.sum((p["w"] - t) ** 2) + (p["b"] - 3) ** 2

    r = optimize.minimize(fn, {"w": np.zeros((2, 2)), "b": 0.0}, args=(5.0,))
    np.testing.assert_allclose(r.x["w"], np.full((2, 2), 5), atol=1e-6)
    assert r.x["b"] == pytest.approx(3, abs=1e-6)
    assert r.x_flat.shape == (5,)


def test_least_squares_root_curve_fit() -> None:
    t = np.linspace(0, 2, 20)
    y = 2.5 * np.exp(-1.3 * t)
    for sparse in (False, True):
        r = optimize.least_squares(lambda p: p[0] * np.exp(p[1] * t) - y, np.ones(2), sparse=sparse)
        np.testing.assert_allclose(r.x, [2.5, -1.3], rtol=1e-6)
    r = optimize.root(lambda x: np.array([x[0] ** 2 - 2, x[0] * x[1] - 1]), np.ones(2))
    np.testing.assert_allclose(r.x, [np.sqrt(2), np.sqrt(0.5)])
    p, cov = optimize.curve_fit(lambda t, a, b: a * np.exp(b * t), t, y, [1.0, -1.0])
    np.testing.assert_allclose(p, [2.5, -1.3], rtol=1e-8)
    assert cov.shape == (2, 2)


def test_mistakes() -> None:
    with pytest.raises(tapec.TapecError, match="jac= is not given"):
        optimize.minimize(rosenbrock, np.ones(2), jac=True)
    with pytest.raises(tapec.TapecError, match="expects a function"):
        optimize.NonlinearConstraint(3, 0, 1)  # type: ignore[arg-type]
