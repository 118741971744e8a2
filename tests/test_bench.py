"""The benchmark's kernels: gradients by hand are right, and the command runs."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from tapec import bench
from tapec.bench_problems import Problem, define, problems, straight_line_source

QUICK = {problem.name: problem for problem in problems(quick=True)}


@pytest.mark.parametrize("name", QUICK)
def test_gradient_by_hand(name: str) -> None:
    """Along a random direction, against central differences of the kernel itself."""
    problem = QUICK[name]
    fn = problem.make(np)
    rng = np.random.default_rng(3)
    direction = [rng.normal(size=np.shape(a)) for a in problem.args[: problem.wrt]]

    def along(t: float) -> float:
        moved = [a + t * d for a, d in zip(problem.args, direction, strict=False)]
        return float(fn(*moved, *problem.args[problem.wrt :]))

    h = 1e-4
    difference = (along(-2 * h) - 8 * along(-h) + 8 * along(h) - along(2 * h)) / (12 * h)
    value, gradient = problem.by_hand(*problem.args)
    slope = sum(float(np.sum(g * d)) for g, d in zip(gradient, direction, strict=True))
    assert value == pytest.approx(float(fn(*problem.args)), rel=1e-12)
    assert slope == pytest.approx(difference, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", ["rosenbrock, n = 100", "sum(sin(exp(x))), n = 10000"])
def test_loops_for_numba(name: str) -> None:
    problem = QUICK[name]
    assert problem.loops is not None
    value, gradient = problem.loops(*problem.args)
    want_value, (want,) = problem.by_hand(*problem.args)
    assert value == pytest.approx(want_value, rel=1e-12)
    np.testing.assert_allclose(gradient, want, rtol=1e-12, atol=1e-12)


def test_straight_line_has_as_many_operations_as_it_says() -> None:
    program, _ = straight_line_source(100)
    assert sum(line.startswith("    v") for line in program.splitlines()) == 100
    values = define(program, "fn", math)(*(0.1 * i for i in range(1, 11)))
    assert math.isfinite(values)


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--quick", "--json", "--tools", "by hand,tapec", "--only", "n = 100"]
    todo: list[Problem] = [QUICK["rosenbrock, n = 100"]]
    assert bench.main(argv, todo) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["tool"] for row in found["rows"]] == ["by hand", "tapec"]
    assert all(row["error"] < 1e-12 and row["gradient"] > 0 for row in found["rows"])
    assert "tapec" in found["machine"]


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["--quick", "--tools", "by hand,tapec", "--only", "robot"]) == 0
    out = capsys.readouterr().out
    assert "robot" in out and "tapec" in out and "WRONG" not in out


def test_unknown_tool(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.main(["--tools", "abacus"])
    assert "abacus" in capsys.readouterr().err
