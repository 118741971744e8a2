"""Small arrays in vector registers: the same values, whatever scalars they meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapec
from tapec.codegen import compile_kernel, kernel
from tapec.ir import parse

SIZES = [4, 5, 7, 8, 9, 14, 16, 17]


def chain(x: Any, y: Any) -> Any:
    z = np.exp(x) * y + 1.0
    return np.where(z > y, np.tanh(z), z / 3.0)


def with_elements(x: Any, y: Any) -> Any:
    z = np.sin(x) + np.cos(x)
    return z * y[0] + z[1] * y, z[::-1] * 2.0, z[1:] - z[:-1], z[-1]


def reductions(x: Any, y: Any) -> Any:
    z = x * y
    return np.sum(z), np.max(z), np.min(z), np.prod(z), np.any(z > 1.0), np.all(z > -9.0)


def shapes(x: Any, y: Any) -> Any:
    z = np.exp(x).reshape(1, -1) * y
    return z + z.T[0], z.ravel() ** 2, np.stack([z[0], y]), np.outer(x[:3], y[:3]) * z[0, 0]


def mixed_types(x: Any, y: Any) -> Any:
    k = np.floor(x * 10.0).astype(np.int64)
    return k % 3, (k > 2) & (y > 0), np.where(k > 1, x, y), x.astype(np.float32) * 2


def constants(x: Any, y: Any) -> Any:
    return x * np.arange(float(len(x))) + np.linspace(0.0, 1.0, len(x)) * y


def matrices(x: Any, y: Any) -> Any:
    a = np.outer(x[:3], y[:3]) + np.eye(3)
    b = np.exp(a) @ np.sin(a)
    return b, b * a - a.T, np.sum(b, axis=0), np.max(a * b, axis=1)


FUNCTIONS = [chain, with_elements, reductions, shapes, mixed_types, constants, matrices]


def leaves(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_values(fn: Callable[..., Any]) -> None:
    for n in SIZES:
        x, y = np.random.default_rng(n).normal(size=(2, n))
        for found, want in zip(leaves(tapec.jit(fn)(x, y)), leaves(fn(x, y)), strict=True):
            assert np.shape(found) == np.shape(want)
            assert np.allclose(found, want, rtol=1e-13, atol=1e-14), (n, found, want)


@pytest.mark.parametrize("n", [7, 14])
def test_values_across_functions(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel cut into many functions, with values that are used in all of them."""
    monkeypatch.setattr(kernel, "CHUNK", 12)

    def fn(x: Any, y: Any) -> Any:
        z, first = x, np.tanh(x)
        low = x > 0
        for k in range(12):
            z = np.sin(z) * first + y[k % n] - z[k % n]
            z = np.where(low, z, y)
        return np.sum(z * first), z

    x, y = np.random.default_rng(n).normal(size=(2, n))
    for found, want in zip(tapec.jit(fn)(x, y), fn(x, y), strict=True):
        assert np.allclose(found, want, rtol=1e-12)


def in_a_scan(x: Any, y: Any, rows: Any) -> Any:
    def step(carry: Any, row: Any) -> Any:
        h, total = carry
        h = np.tanh(h * y + row) * 0.9
        return (h, total + np.sum(h * row)), h[0] + h

    (h, total), ys = tapec.scan(step, (x, 0.0), rows)
    return total + np.sum(h**2) + np.sum(ys * rows)


def unpacked_in_a_scan(x: Any, y: Any, rows: Any) -> Any:
    def step(carry: Any, row: Any) -> Any:
        parts = [carry[k] * y[k] + row[0] for k in range(len(y))]
        return np.stack(parts), carry[0]

    last, ys = tapec.scan(step, x, rows)
    return np.sum(last**2) + np.sum(ys)


def in_a_while(x: Any, y: Any, rows: Any) -> Any:
    def step(carry: Any) -> Any:
        k, h = carry
        return k + 1, np.sin(h) * y + rows[0]

    return np.sum(tapec.while_loop(lambda c: c[0] < 6, step, (0, x))[1])


def in_a_branch(x: Any, y: Any, rows: Any) -> Any:
    z = np.exp(x * 0.3)
    w = tapec.cond(np.sum(x) > 0, lambda z: z * y, lambda z: np.sin(z) - y, z)
    return np.sum(w * z) + w[0]


@pytest.mark.parametrize("fn", [in_a_scan, unpacked_in_a_scan, in_a_while, in_a_branch])
@pytest.mark.parametrize("n", [6, 14])
def test_loops_and_branches(fn: Callable[..., Any], n: int) -> None:
    rng = np.random.default_rng(n)
    x, y, rows = rng.normal(size=n), rng.normal(size=n), rng.normal(size=(5, n))
    value, (gx, gy) = tapec.value_and_grad(fn, argnums=(0, 1))(x, y, rows)
    h = 1e-6
    for k in (0, n // 2, n - 1):
        e = np.zeros(n)
        e[k] = h
        f = tapec.jit(fn)
        assert np.isclose(f(x, y, rows), value, rtol=1e-13)
        assert np.isclose(
            gx[k], (f(x + e, y, rows) - f(x - e, y, rows)) / (2 * h), rtol=1e-5, atol=1e-5
        )
        assert np.isclose(
            gy[k], (f(x, y + e, rows) - f(x, y - e, rows)) / (2 * h), rtol=1e-5, atol=1e-5
        )


def test_one_vector_function_instead_of_many_calls() -> None:
    fn = parse(
        """func @f(%x: f64[14], %y: f64[14]) -> (f64[14], f64[]) {
          %a = exp %x : f64[14]
          %b = mul %a, %y : f64[14]
          %c = tanh %b : f64[14]
          %s = reduce_sum %c {axes=(0)} : f64[]
          return %c, %s
        }"""
    )
    source = compile_kernel(fn)
    body = source.text[source.text.index("@kernel(") :]
    assert body.count("call <16 x double> @tapec") == 2
    assert "call double" not in body
    assert source.instructions < 40
