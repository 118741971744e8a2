"""Index arrays that are out of range are an error, never a read of foreign memory.

Each index is so far out that reading there would end the process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapec

FAR = 10**15


def columns(x: Any, at: Any) -> Any:
    return np.sum(np.exp(x[:, at]))


def rows(x: Any, at: Any) -> Any:
    return np.sum(x[at] ** 2)


def points(x: Any, at: Any) -> Any:
    return np.sum(x[at, at] ** 2)


def product(x: Any, at: Any) -> Any:
    return np.sum((x @ x.T)[:, at])


def loop(x: Any, at: Any) -> Any:
    def step(total: Any, row: Any) -> Any:
        return total + np.sum(row[at]), np.sum(row)

    return tapec.scan(step, 0.0, x)[0]


@pytest.mark.parametrize("count", [3, 500])
@pytest.mark.parametrize("fn", [columns, rows, points, product, loop])
def test_an_index_far_out_of_range(fn: Callable[..., Any], count: int) -> None:
    x = np.random.default_rng(0).normal(size=(40, 40))
    at = np.arange(count) % 40
    for transformed in (tapec.value_and_grad(fn), tapec.jit(fn)):
        transformed(x, at)
        for wrong in (FAR, -FAR, 40, -41):
            bad = at.copy()
            bad[count // 2] = wrong
            with pytest.raises(IndexError):
                transformed(x, bad)
        transformed(x, at)
