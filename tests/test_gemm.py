"""Matrix products on all layouts: native against NumPy."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tapec.codegen import dump
from tapec.codegen.direct import native
from tapec.ir import F32, F64, Builder, Type, interpret


@pytest.mark.parametrize("seed", range(60))
def test_random_products(seed: int) -> None:
    """Any number of batch, free and contracted axes in any order, behind transposes and slices,
    before a transpose."""
    r = random.Random(seed)
    dtype = F32 if seed % 4 == 3 else F64
    sizes = {c: r.choice([1, 2, 3, 8, 17, 40]) for c in "abcdefg"}
    batch, contract = r.sample("ab", r.randint(0, 2)), r.sample("cd", r.randint(1, 2))
    x_free, y_free = r.sample("ef", r.randint(0, 2)), ["g"][: r.randint(0, 1)]

    def operand(b: Builder, axes: list[str]) -> tuple[Any, list[str]]:
        axes = r.sample(axes, len(axes))
        stored = r.sample(axes, len(axes))
        extra = [r.choice([0, 0, 3]) for _ in stored]
        shape = [sizes[c] + e for c, e in zip(stored, extra)]
        x = b.param(Type(dtype, shape))
        x = b.slice(x, [e // 2 for e in extra], [sizes[c] for c in stored])
        return b.transpose(x, [stored.index(c) for c in axes]), axes

    b = Builder()
    x, xa = operand(b, batch + contract + x_free)
    y, ya = operand(b, batch + contract + y_free)
    z = b.dot(
        x,
        y,
        ([xa.index(c) for c in contract], [ya.index(c) for c in contract]),
        ([xa.index(c) for c in batch], [ya.index(c) for c in batch]),
    )
    results = [b.transpose(z, r.sample(range(z.type.ndim), z.type.ndim))]
    if r.random() < 0.3:
        results.append(z)
    fn = b.function("f", results)
    rng = np.random.default_rng(seed)
    args = [rng.normal(size=p.type.shape).astype(dtype.np) for p in fn.params]
    tolerance = 1e-12 if dtype is F64 else 2e-4
    for got, want in zip(native(fn)(args), interpret(fn, args)):
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def test_transposes_around_a_product_are_free() -> None:
    """Neither the transposed operands nor the transposed result are copied."""
    b = Builder()
    x = b.param(Type(F64, (40, 30)))
    y = b.param(Type(F64, (50, 40)))
    z = b.dot(b.transpose(x, (1, 0)), b.transpose(y, (1, 0)), ((1,), (0,)))
    text = dump(b.function("f", [b.transpose(z, (1, 0))]), "loops")
    assert "nest" not in text and text.count("call") == 1
