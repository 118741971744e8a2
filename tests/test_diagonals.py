"""Derivatives along diagonals against dense ones; stores of several values that interleave."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tapec
from tapec.ir import F64, Builder, Function, Type
from tapec.ir.diagonals import diagonals
from tapec.ir.interp import interpret
from tapec.ir.jvp import jvp

RNG = np.random.default_rng(3)


def stencil(b: Builder, x: Any) -> Any:
    """Five points on a grid, from the last to the first."""
    wide = b.pad(x, (1, 1), (1, 1))
    n, m = x.type.shape
    near = [b.slice(wide, at, (n, m)) for at in ((0, 1), (2, 1), (1, 0), (1, 2), (1, 1))]
    total = b.mul(near[0], near[1])
    for v in near[2:]:
        total = b.add(total, b.mul(v, b.exp(v)))
    return b.reshape(b.reverse(total, (0, 1)), (m * n,))


PROGRAMS = {
    "stencil": ((4, 3), stencil),
    "strided": ((9,), lambda b, x: b.mul(b.slice(x, (1,), (4,), (2,)), b.slice(x, (0,), (4,), (2,)))),
    "rows": ((4, 3), lambda b, x: b.reduce_sum(b.mul(x, x), (1,))),
    "planes": ((2, 3, 2), lambda b, x: b.reduce_sum(b.sin(b.reshape(x, (6, 2))), (0,))),
    "repeated": ((3,), lambda b, x: b.broadcast(b.exp(x), (2, 3), (1,))),
    "joined": ((4,), lambda b, x: b.concat([b.sin(x), b.mul(x, x)], 0)),
    "masked": ((5,), lambda b, x: b.select(b.gt(x, b.zeros(x.type)), b.exp(x), b.neg(x))),
    "turned": ((4, 3), lambda b, x: b.transpose(b.reverse(b.exp(x), (1,)), (1, 0))),
    "one": ((1, 4), lambda b, x: b.div(b.slice(x, (0, 1), (1, 2)), b.slice(x, (0, 2), (1, 2)))),
    "constant first": ((4,), lambda b, x: b.div(b.slice(x, (1,), (3,)), b.slice(x, (0,), (3,)))),
}  # fmt: skip


def function(name: str) -> Function:
    shape, write = PROGRAMS[name]
    b = Builder()
    x = b.param(Type(F64, shape), "x")
    return b.function("f", [write(b, x)])


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_coefficients(name: str) -> None:
    fn = function(name)
    x = RNG.uniform(0.5, 1.5, PROGRAMS[name][0]) * RNG.choice([-1, 1], PROGRAMS[name][0])
    found = diagonals(fn, 0, 0)
    assert found is not None
    made, keys = found
    assert len(set(keys)) == len(keys)
    shape = fn.results[0].type.shape
    got = np.zeros((*shape, x.size))
    for (offset, strides), c in zip(keys, interpret(made, [x]), strict=True):
        for at in np.ndindex(shape):
            column = offset + sum(s * i for s, i in zip(strides, at))
            if 0 <= column < x.size:
                got[(*at, column)] += c[at]
            else:
                assert c[at] == 0
    push = jvp(fn, [0])
    want = [interpret(push, [x, e.reshape(x.shape)])[1] for e in np.eye(x.size)]
    np.testing.assert_allclose(got, np.stack(want, -1), rtol=1e-14)


@pytest.mark.parametrize(
    "write",
    [
        lambda b, x: b.cumsum(x, 0),
        lambda b, x: b.gather(x, [b.array(np.array([2, 0, 1]))], (0,)),
        lambda b, x: b.broadcast(b.reduce_sum(x, (0,)), (3,), ()),
    ],
)
def test_what_has_no_diagonals(write: Any) -> None:
    b = Builder()
    x = b.param(Type(F64, (200,)), "x")
    assert diagonals(b.function("f", [write(b, x)]), 0, 0) is None


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("count", [2, 3, 5, 8, 9])
def test_interleaved_stores(count: int, dtype: Any) -> None:
    """Whole vectors, tails and pieces that are padded."""
    for n in (1, 7, 8, 37):
        x = RNG.uniform(1, 2, n + 1).astype(dtype)

        def columns(x: Any) -> Any:
            pieces = [x[1:] * k + x[:-1] for k in range(1, count)]
            return np.stack([*pieces, np.pad(x[1:-1] ** 2, (0, 1))], axis=1)

        got = tapec.jit(columns)(x)
        assert got.dtype == dtype
        np.testing.assert_allclose(got, columns(x), rtol=1e-6 if dtype is np.float32 else 1e-14)


def test_paths_with_other_diagonals() -> None:
    """A path that does not keep to the diagonals known so far is computed by colours."""

    def f(x: Any) -> Any:
        if x[0] > 0:
            return x[1:] * x[:-1]
        return x[1:] * x[:-1] + np.sum(x[:2]) * np.cumsum(x[1:])

    x = RNG.uniform(1, 2, 9)
    j = tapec.sparse_jacobian(f)
    for point in (x, -x, 2 * x, -2 * x):
        np.testing.assert_allclose(j(point).toarray(), tapec.jacobian(f)(point), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_paths_with_fewer_diagonals(dtype: Any) -> None:
    def f(x: Any) -> Any:
        if x[0] > 0:
            return x[1:-1] * x[:-2] + np.sin(x[2:])
        return x[1:-1] * x[:-2]

    x = RNG.uniform(1, 2, 9).astype(dtype)
    j = tapec.sparse_jacobian(f)
    for point in (x, -x, 2 * x):
        got = j(point)
        assert got.dtype == dtype
        np.testing.assert_allclose(got.toarray(), tapec.jacobian(f)(point), rtol=1e-6)


def test_results_stay_when_the_function_is_called_again() -> None:
    h = tapec.sparse_hessian(lambda x: np.sum(x[1:] ** 2 * x[:-1]))
    x = np.arange(6.0)
    first = h(x)
    kept = first.toarray()
    for k in range(5):
        h(x + k)
    np.testing.assert_array_equal(first.toarray(), kept)
