"""The interface that cyipopt calls, on Hock and Schittkowski's problem 71."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
import sympy

from tapec.ipopt import Problem

X = np.array([1.2, 4.5, 3.9, 1.4])
START = np.array([1.0, 5.0, 5.0, 1.0])


def objective(x: Any) -> Any:
    return x[0] * x[3] * (x[0] + x[1] + x[2]) + x[2]


def constraints(x: Any) -> Any:
    return np.stack([x[0] * x[1] * x[2] * x[3], np.sum(x**2)])


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Problem(objective, START, constraints)


def dense(structure: Any, values: Any, shape: tuple[int, int]) -> Any:
    out = np.zeros(shape)
    out[structure] = values
    return out


def test_every_method_against_sympy(problem: Problem) -> None:
    x = sympy.symbols("x:4")
    f = x[0] * x[3] * (x[0] + x[1] + x[2]) + x[2]
    g = sympy.Matrix([x[0] * x[1] * x[2] * x[3], sum(v**2 for v in x)])
    at = dict(zip(x, X))

    def number(matrix: Any) -> Any:
        return np.array(matrix.subs(at)).astype(float)

    np.testing.assert_allclose(problem.objective(X), float(f.subs(at)), rtol=1e-14)
    want = number(sympy.Matrix([f]).jacobian(x))[0]
    np.testing.assert_allclose(problem.gradient(X), want, rtol=1e-13)
    np.testing.assert_allclose(problem.constraints(X), number(g)[:, 0], rtol=1e-14)
    jacobian = dense(problem.jacobianstructure(), problem.jacobian(X), (2, 4))
    np.testing.assert_allclose(jacobian, number(g.jacobian(x)), rtol=1e-13)
    multipliers, factor = np.array([0.3, -1.7]), 0.9
    lagrangian = factor * f + multipliers[0] * g[0] + multipliers[1] * g[1]
    rows, cols = problem.hessianstructure()
    assert (rows >= cols).all()
    hessian = dense((rows, cols), problem.hessian(X, multipliers, factor), (4, 4))
    want = np.tril(number(sympy.hessian(lagrangian, x)))
    np.testing.assert_allclose(hessian, want, rtol=1e-12, atol=1e-14)


def test_without_constraints() -> None:
    free = Problem(lambda x: np.sum((x[1:] - x[:-1] ** 2) ** 2), np.zeros(5) + 0.5)
    assert free.m == 0 and free.constraints(np.ones(5)).shape == (0,)
    assert free.jacobianstructure()[0].size == free.jacobian(np.ones(5)).size == 0
    rows, cols = free.hessianstructure()
    assert sorted(set(rows - cols)) == [0, 1]
    assert free.hessian(np.ones(5), np.zeros(0), 2.0).shape == rows.shape


def test_a_structure_that_changes_is_refused() -> None:
    def branchy(x: Any) -> Any:
        return x[0] * x[1] if x[0] > 0 else x[0] ** 2

    problem = Problem(branchy, np.array([1.0, 1.0]))
    with pytest.raises(ValueError, match="structure of the derivatives has changed"):
        problem.hessian(np.array([-1.0, 1.0]), np.zeros(0), 1.0)
    with pytest.raises(TypeError, match="vector"):
        Problem(branchy, 1.0)


@pytest.mark.skipif(
    importlib.util.find_spec("cyipopt") is None, reason="cyipopt has no wheel without Ipopt itself"
)
def test_the_solver(problem: Problem) -> None:
    import cyipopt

    solver = cyipopt.Problem(
        n=4, m=2, problem_obj=problem, lb=np.ones(4), ub=np.full(4, 5.0), cl=[25, 40], cu=[2e19, 40]
    )
    _, info = solver.solve(START)
    assert abs(info["obj_val"] - 17.0140173) < 1e-6
