"""Vector versions of special functions against mpmath (errors in ulp), and at their edges."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest
from test_vecmath import HOST, SPECIAL, kernel, old_kernel, same

from tapec.codegen import vecspecial
from tapec.ir.core import F32

NAMES = {"ndtr": "ndtr.dd"}
EXACT = {"ndtr": mpmath.ncdf}
# Largest error allowed with fused multiply-add, and without.
ULP = {"ndtr": (5.0, 8.0)}


def samples(name: str) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(11)
    sized = 2.0 ** rng.uniform(-60, 5.2, 200) * rng.choice([-1.0, 1.0], 200)
    return np.concatenate([rng.uniform(-38.4, 9, 300), rng.uniform(-3, 3, 300), sized])


def error(name: str, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> float:
    worst = 0.0
    with mpmath.workdps(40):
        for point, value in zip(x, y):
            exact = EXACT[name](mpmath.mpf(float(point)))
            if exact < 1e-300:  # subnormal results are rounded twice
                continue
            ulp = np.spacing(float(exact))
            worst = max(
                worst, float(abs(mpmath.mpf(float(value)) - exact) / mpmath.mpf(float(ulp)))
            )
    return worst


def test_all_are_tested() -> None:
    assert set(NAMES) == set(vecspecial.OWN)


@pytest.mark.parametrize("name", NAMES)
def test_error(name: str) -> None:
    x = samples(name)
    assert error(name, x, kernel(NAMES[name])(x)) <= ULP[name][0 if HOST.has_fma else 1]


@pytest.mark.parametrize("name", NAMES)
def test_error_without_fused_multiply_add(name: str) -> None:
    x = samples(name)
    assert error(name, x, old_kernel(NAMES[name])(x)) <= ULP[name][1]


@pytest.mark.parametrize("name", NAMES)
def test_results_depend_on_neither_width_nor_neighbours(name: str) -> None:
    x = np.concatenate([SPECIAL, samples(name)])
    expected = kernel(NAMES[name])(x)
    order = np.random.default_rng(5).permutation(len(x))
    same(kernel(NAMES[name])(x[order]), expected[order])
    for width in (2, 4, 16):
        same(kernel(NAMES[name], width=width)(x), expected)


def test_edges_of_ndtr() -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 40.0, -40.0, 1e30, -1e30, 9.0])
    want = np.array([0.5, 0.5, 1.0, 0.0, np.nan, 1.0, 0.0, 1.0, 0.0, 1.0])
    for run in (kernel("ndtr.dd"), old_kernel("ndtr.dd"), kernel("ndtr.dd", F32, 16)):
        same(run(x.astype(run.dtype.np)), want.astype(run.dtype.np))
    tiny = kernel("ndtr.dd")(np.array([-38.4]))[0]
    assert abs(tiny - float(mpmath.ncdf(-38.4))) <= 2 * np.spacing(0.0)
