"""Stacks and concatenations that are results: each piece is stored where it is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapec
from tapec.codegen import compile_kernel, plan
from tapec.codegen.program import Nest
from tapec.ir import parse


def rows(x: Any, y: Any) -> Any:
    return np.stack([x * y, np.exp(x), y])


def matrices(x: Any, y: Any) -> Any:
    top = np.stack([x * y, np.exp(x), y], -1)
    return np.stack([top, np.stack([x + y, x - y, np.sin(y)], -1)], -2)


def mixed(x: Any, y: Any) -> Any:
    return np.concatenate([np.stack([x * y, x], 1), np.stack([y, y * 2.0], 1)], 0)


def reversed_pieces(x: Any, y: Any) -> Any:
    return np.stack([np.concatenate([x[::-1], y]), np.concatenate([y, x])], 1)


def used_again(x: Any, y: Any) -> Any:
    s = np.stack([x * y, np.exp(x)], 1)
    return s, np.sum(s**2), s * 2


def of_matrices(x: Any, y: Any) -> Any:
    return np.stack([np.outer(x[:30], y[:40]), np.outer(y[:30], x[:40])], 2)


def turned(x: Any, y: Any) -> Any:
    return np.stack([np.stack([x, y])[::-1], np.stack([y, x])], 1)


def padded(x: Any, y: Any) -> Any:
    return np.stack([np.pad(x, (1, 2)), np.pad(y, (3, 0))], 1)


FUNCTIONS = [rows, matrices, mixed, reversed_pieces, used_again, of_matrices, turned, padded]


@pytest.mark.parametrize("fn", FUNCTIONS)
@pytest.mark.parametrize("n", [41, 200])
def test_values(fn: Callable[..., Any], n: int) -> None:
    x, y = np.random.default_rng(n).normal(size=(2, n))
    found, want = tapec.jit(fn)(x, y), fn(x, y)
    for a, b in zip(*[r if isinstance(r, tuple) else (r,) for r in (found, want)]):
        assert np.shape(a) == np.shape(b)
        assert np.allclose(a, b, rtol=1e-14)


def test_a_stack_of_stacks_is_stored_by_one_nest() -> None:
    fn = parse(
        """func @f(%x: f64[100]) -> (f64[100,2,2]) {
          %a = exp %x : f64[100]
          %b = sin %a : f64[100]
          %c = reshape %a {shape=(100,1)} : f64[100,1]
          %d = reshape %b {shape=(100,1)} : f64[100,1]
          %p = place %c, %d {at=(((0,0),(1,1)),((0,1),(1,1))), shape=(100,2)} : f64[100,2]
          %q = place %d, %c {at=(((0,0),(1,1)),((0,1),(1,1))), shape=(100,2)} : f64[100,2]
          %r = reshape %p {shape=(100,1,2)} : f64[100,1,2]
          %s = reshape %q {shape=(100,1,2)} : f64[100,1,2]
          %z = place %r, %s {at=(((0,0,0),(1,1,1)),((0,1,0),(1,1,1))), shape=(100,2,2)} : f64[100,2,2]
          return %z
        }"""
    )
    source = compile_kernel(fn)
    (nest,) = source.program.steps
    assert isinstance(nest, Nest)
    assert [(s.offset, s.strides) for s in nest.stores] == [(k, (4,)) for k in range(4)]
    assert source.workspace_bytes == 0


def test_planning_a_product_of_many_takes_few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its gradient is a tree of concatenations, which are not all computed in one loop."""
    rounds = []
    schedule = plan._schedule

    def counted(program: Any) -> None:
        rounds.append(program)
        schedule(program)

    monkeypatch.setattr(plan, "_schedule", counted)
    x = np.linspace(0.999, 1.001, 100_000)
    value, g = tapec.value_and_grad(np.prod)(x)
    assert len(rounds) <= 4
    assert np.isclose(value, np.prod(x), rtol=1e-10)
    assert np.allclose(g, value / x, rtol=1e-10)
