"""Reductions over rows whose results are short: summed in registers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tapec
from tapec.codegen import compile_kernel
from tapec.ir import parse

SHAPES = [
    (9, 3),
    (40, 10),
    (3, 40, 8),
    (40, 50),
    (30, 64),
    (30, 65),
    (2, 3, 20, 17),
    (1, 12),
    (20, 1),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_values(shape: tuple[int, ...], dtype: Any) -> None:
    x = (np.random.default_rng(0).normal(size=shape) * 3).astype(dtype)

    def fn(x: Any) -> Any:
        y = x * x + x
        return (
            y, np.sum(y, -2), np.max(x, -2), np.min(y, -2), np.prod(x * 0 + 1 + (x > 3), -2),
            np.any(x > 2, -2), np.all(y > -1, -2), np.sum(x, -1), np.sum(x),
        )  # fmt: skip

    for found, want in zip(tapec.jit(fn)(x), fn(x), strict=True):
        assert np.asarray(found).dtype == np.asarray(want).dtype
        assert np.allclose(found, want, rtol=1e-12 if dtype == np.float64 else 1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [5, 64, 300])
@pytest.mark.parametrize("columns", [2, 10, 50, 64, 70])
def test_vector_times_matrix(rows: int, columns: int) -> None:
    rng = np.random.default_rng(0)
    x, d, w = rng.normal(size=(rows, columns)), rng.normal(size=rows), rng.normal(size=columns)
    found = tapec.jit(lambda x, d, w: (d @ x, x.T @ d, x @ w, w @ x.T))(x, d, w)
    for a, b in zip(found, (d @ x, x.T @ d, x @ w, w @ x.T), strict=True):
        assert np.allclose(a, b, rtol=1e-12, atol=1e-12)


def test_nan_is_seen_in_every_column() -> None:
    x = np.zeros((30, 11))
    x[7, 3] = np.nan
    assert np.array_equal(np.isnan(tapec.jit(lambda x: np.max(x, 0))(x)), np.arange(11) == 3)


def test_the_loop_over_rows_stores_nothing() -> None:
    fn = parse(
        """func @f(%x: f64[400,20]) -> (f64[20]) {
          %y = mul %x, %x : f64[400,20]
          %s = reduce_sum %y {axes=(0)} : f64[20]
          return %s
        }"""
    )
    lines = compile_kernel(fn).text.splitlines()
    phi = next(k for k, line in enumerate(lines) if "phi <8 x double>" in line)
    end = next(k for k in range(phi, len(lines)) if "br i1" in lines[k])
    assert sum("phi <8 x double>" in line for line in lines) == 3
    assert not any("store" in line for line in lines[phi:end])
