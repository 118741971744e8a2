"""Elements that are picked at the end of a computation are picked at its start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapec
from tapec.codegen.early_gather import gather_early
from tapec.ir import parse
from tapec.ir.core import Function

AT = np.array([3, 59, 0, 3, 17])


def elementwise(x: Any, y: Any, at: Any) -> Any:
    return (np.exp(x) * y)[at]


def columns(x: Any, y: Any, at: Any) -> Any:
    return (np.sin(np.outer(y[:4], x)) + x)[:, at]


def product(x: Any, y: Any, at: Any) -> Any:
    z = np.outer(x, y[:3]) @ np.outer(y[:3], y)
    return z[at] * 2.0, z[:, at]


def reduced(x: Any, y: Any, at: Any) -> Any:
    z = np.exp(np.outer(x, y[:5]))
    return np.sum(z, axis=1)[at] / np.max(z, axis=1)[at]


def used_twice(x: Any, y: Any, at: Any) -> Any:
    z = np.exp(x) * y
    return z[at], np.sum(z)


def two_arrays(x: Any, y: Any, at: Any) -> Any:
    z = np.exp(x) * y
    return z[at] + z[at[::-1]]


def of_a_gather(x: Any, y: Any, at: Any) -> Any:
    return np.sin(np.cos(x)[at])[at[:1] % 5]


def not_parallel(x: Any, y: Any, at: Any) -> Any:
    return np.cumsum(x)[at], np.sort(y)[at], x[::-1][at]


FUNCTIONS = [
    elementwise, columns, product, reduced, used_twice, two_arrays, of_a_gather, not_parallel,
]  # fmt: skip


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_values_and_derivatives(fn: Callable[..., Any]) -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 60))
    found, want = tapec.jit(fn)(x, y, AT), fn(x, y, AT)
    for a, b in zip(*[r if isinstance(r, tuple) else (r,) for r in (found, want)], strict=True):
        assert np.allclose(a, b, rtol=1e-13)
    first = (lambda *args: fn(*args)[0]) if isinstance(want, tuple) else fn
    jacobian, e = tapec.jacobian(first)(x, y, AT), np.zeros(60)
    e[3] = 1e-6
    difference = (first(x + e, y, AT) - first(x - e, y, AT)) / 2e-6
    assert np.allclose(jacobian[..., 3], difference, rtol=1e-6, atol=1e-8)


def shapes(fn: Function, name: str) -> list[tuple[int, ...]]:
    return [op.results[0].type.shape for op in fn.ops if op.name == name]


def test_what_is_computed() -> None:
    fn = parse(
        """func @f(%x: f64[3,544], %i: i64[100]) -> (f64[100,3]) {
          %y = exp %x : f64[3,544]
          %c = constant {value=544} : i64[100]
          %k = lt %i, %c : bool[100]
          %a = reduce_all %k {axes=(0)} : bool[]
          guard %a {expected=true, message="index in range"}
          %p = gather %y, %i {axes=(1)} : f64[100,3]
          return %p
        }"""
    )
    new = gather_early(fn)
    assert shapes(new, "exp") == [(3, 100)]
    names = [op.name for op in new.ops]
    assert names.index("guard") < names.index("gather")


@pytest.mark.parametrize("count", [100, 544, 1000])
def test_only_where_few_are_picked(count: int) -> None:
    fn = parse(
        f"""func @f(%x: f64[544], %i: i64[{count}]) -> (f64[{count}]) {{
          %y = exp %x : f64[544]
          %p = gather %y, %i {{axes=(0)}} : f64[{count}]
          return %p
        }}"""
    )
    assert shapes(gather_early(fn), "exp") == [(100 if count == 100 else 544,)]
