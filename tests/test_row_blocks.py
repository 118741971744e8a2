"""Products over many rows in blocks of rows: the same values, and temporaries of a block's size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tapec
from tapec.codegen import compile_kernel, row_blocks
from tapec.codegen.callable_type import slow_of
from tapec.codegen.row_blocks import in_row_blocks
from tapec.ir.core import Function
from tapec.ir.interp import interpret
from tapec.transforms import build


def traced(fn: Callable[..., Any], args: Any, wrt: tuple[int, ...]) -> Function:
    slow: Any = slow_of(tapec.value_and_grad(fn, argnums=wrt) if wrt else tapec.jit(fn))
    call = slow.dispatcher.flatten(slow.subject, args, {})
    return build(slow.dispatcher.trace(slow.subject, call.flat), slow.dispatcher.transform).fn


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Everything counts as large, and blocks are short."""
    monkeypatch.setattr(row_blocks, "LARGE", 1)
    monkeypatch.setattr(row_blocks, "MOST_BYTES", 1)
    monkeypatch.setattr(row_blocks, "FEW_ROWS", 8)
    yield


def logistic(w: Any, x: Any, y: Any) -> Any:
    p = 1 / (1 + np.exp(-(x @ w)))
    return -np.mean(y * np.log(p) + (1 - y) * np.log(1 - p))


def network(a: Any, b: Any, x: Any) -> Any:
    return np.sum((np.tanh(x @ a) @ b) ** 2)


def softmax(a: Any, x: Any, y: Any) -> Any:
    z = x @ a
    top = np.max(z, axis=1)
    return np.sum(np.log(np.sum(np.exp(z - top[:, None]), axis=1)) + top - np.sum(z * y, 1))


def mixture(m: Any, s: Any, x: Any) -> Any:
    centred = x[None] - m[:, None]
    scaled = np.matmul(centred, np.swapaxes(s, 1, 2))
    terms = -0.5 * np.sum(scaled * scaled, axis=2)
    top = np.max(terms, axis=0)
    return np.sum(np.log(np.sum(np.exp(terms - top), axis=0)) + top)


def with_predictions(a: Any, b: Any, x: Any) -> Any:
    z = np.tanh(x @ a) @ b
    return z, np.sum(z**2), np.max(z)


def two_phases(a: Any, b: Any, x: Any) -> Any:
    z = np.tanh(x @ a) @ b
    return np.sum((z / np.sqrt(np.sum(z * z) + 1)) ** 3)


def stacked(a: Any, b: Any, x: Any) -> Any:
    both = np.concatenate([x @ a, np.sin(x[:, :2])], axis=1)
    return np.sum(both @ b)


def arguments(rows: int, name: str) -> tuple[Any, ...]:
    rng = np.random.default_rng(rows)
    x = rng.normal(size=(rows, 5))
    if name == "logistic":
        return rng.normal(size=5), x, (rng.random(rows) < 0.5) * 1.0
    if name == "softmax":
        return rng.normal(size=(5, 3)), x, rng.random((rows, 3))
    if name == "mixture":
        return rng.normal(size=(3, 5)), rng.normal(size=(3, 5, 5)), x
    if name == "stacked":
        return rng.normal(size=(5, 4)), rng.normal(size=(6, 2)), x
    return rng.normal(size=(5, 4)), rng.normal(size=(4, 2)), x


CASES: list[tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = [
    (logistic, (0,), (48, 50)),
    (logistic, (0, 1), (48,)),
    (network, (0, 1), (48, 50)),
    (softmax, (0,), (48, 50)),
    (mixture, (0, 1), (48, 50)),
    (with_predictions, (), (48,)),
    (stacked, (0, 1), (48, 50)),
]


@pytest.mark.parametrize(
    ("fn", "wrt", "rows"), [(fn, wrt, n) for fn, wrt, sizes in CASES for n in sizes]
)
def test_values(small: None, fn: Callable[..., Any], wrt: tuple[int, ...], rows: int) -> None:
    args = arguments(rows, fn.__name__)
    whole = traced(fn, args, wrt)
    cut = in_row_blocks(whole)
    assert any(op.name == "scan" for op in cut.ops)
    for found, want in zip(interpret(cut, args), interpret(whole, args), strict=True):
        assert np.allclose(found, want, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("rows", [7, 20])
def test_few_rows_stay_together(small: None, rows: int) -> None:
    whole = traced(network, arguments(rows, "network"), (0, 1))
    assert in_row_blocks(whole) is whole


def test_what_depends_on_all_rows_comes_after_them(small: None) -> None:
    args = arguments(48, "two_phases")
    whole = traced(two_phases, args, (0, 1))
    for found, want in zip(interpret(in_row_blocks(whole), args), interpret(whole, args)):
        assert np.allclose(found, want, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    "fn",
    [
        lambda a, b, x: np.sum(np.exp(x @ x.T) @ (x @ a)),  # rows twice in one value
        lambda a, b, x: np.sum(np.cumsum(x @ a, axis=0) @ b),
        lambda a, b, x: np.sum((x @ a)[::-1] @ b),
        lambda a, b, x: np.sum(np.sort(x @ a, axis=0) @ b),
    ],
)
def test_what_is_not_parallel_over_rows(small: None, fn: Callable[..., Any]) -> None:
    args = arguments(48, "network")
    whole = traced(fn, args, ())
    for found, want in zip(interpret(in_row_blocks(whole), args), interpret(whole, args)):
        assert np.allclose(found, want, rtol=1e-12)


def test_native_values_and_workspace() -> None:
    rng = np.random.default_rng(0)
    rows, wide = 20_000, 16
    args = rng.normal(size=(8, wide)), rng.normal(size=(wide, 2)), rng.normal(size=(rows, 8))
    value, (ga, gb) = tapec.value_and_grad(network, argnums=(0, 1))(*args)
    h = np.tanh(args[2] @ args[0])
    z = h @ args[1]
    assert np.isclose(value, np.sum(z**2), rtol=1e-12)
    assert np.allclose(gb, h.T @ (2 * z), rtol=1e-10)
    assert np.allclose(ga, args[2].T @ ((2 * z @ args[1].T) * (1 - h * h)), rtol=1e-10)
    source = compile_kernel(traced(network, args, (0, 1)))
    assert source.workspace_bytes < 1 << 20 < rows * wide * 8
