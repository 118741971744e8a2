"""The axis that fills vector lanes goes last; values stay what they are, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapec
from tapec.codegen.counters import count
from tapec.codegen.direct import native
from tapec.codegen.lanes import lanes_last
from tapec.codegen.lower import lower
from tapec.ir import F64, Builder, Type, parse
from tapec.ir.core import Function
from tapec.ir.interp import interpret
from tapec.ir.verify import verify

PRODUCTS = """func @f(%a: f64[4,4], %b: f64[26,4,4], %c: f64[4,4]) -> (f64[26,4,4]) {
  %t = mul %b, %b : f64[26,4,4]
  %p = dot %a, %t {batch=((),()), contract=((1),(2))} : f64[4,26,4]
  %q = transpose %p {perm=(1,0,2)} : f64[26,4,4]
  %e = exp %q : f64[26,4,4]
  %r = dot %e, %c {batch=((),()), contract=((2),(0))} : f64[26,4,4]
  return %r
}"""

STACKED = """func @f(%a: f64[26,3,3], %b: f64[3,3], %w: f64[26]) -> (f64[26,3], f64[26,3,3]) {
  %n = neg %a : f64[26,3,3]
  %u = slice %n {size=(26,1,3), start=(0,2,0), step=(1,-1,1)} : f64[26,1,3]
  %v = slice %n {size=(26,2,3), start=(0,0,0), step=(1,1,1)} : f64[26,2,3]
  %s = place %u, %v {at=(((0,0,0),(1,1,1)),((0,1,0),(1,1,1))), shape=(26,3,3)} : f64[26,3,3]
  %k = broadcast %w {dims=(0), shape=(26,3,3)} : f64[26,3,3]
  %m = mul %s, %k : f64[26,3,3]
  %g = reshape %m {shape=(1,26,3,3)} : f64[1,26,3,3]
  %h = reshape %g {shape=(26,3,3)} : f64[26,3,3]
  %d = dot %h, %b {batch=((),()), contract=((2),(1))} : f64[26,3,3]
  %x = reduce_max %d {axes=(2)} : f64[26,3]
  return %x, %a
}"""

OWN_AXES = """func @f(%a: f64[3,9,2], %b: f64[3,2,2]) -> (f64[3,9]) {
  %n = exp %a : f64[3,9,2]
  %d = dot %n, %b {batch=((0),(0)), contract=((2),(1))} : f64[3,9,2]
  %q = tanh %d : f64[3,9,2]
  %e = dot %q, %b {batch=((0),(0)), contract=((2),(1))} : f64[3,9,2]
  %s = reduce_sum %e {axes=(2)} : f64[3,9]
  return %s
}"""


def arguments(fn: Function) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.uniform(-1, 1, p.type.shape) for p in fn.params]


@pytest.mark.parametrize("text", [PRODUCTS, STACKED, OWN_AXES])
def test_the_same_values(text: str) -> None:
    fn = lower(parse(text))
    new = lanes_last(fn)
    assert new is not fn
    verify(new)
    args = arguments(fn)
    for a, b in zip(interpret(fn, args), interpret(new, args), strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("text", [PRODUCTS, STACKED, OWN_AXES])
def test_the_same_values_compiled(text: str) -> None:
    fn = parse(text)
    args = arguments(fn)
    for a, b in zip(interpret(fn, args), native(fn)(args), strict=True):
        assert np.allclose(a, b, rtol=1e-13, atol=1e-15)


def test_products_have_unit_stride() -> None:
    new = lanes_last(lower(parse(PRODUCTS)))
    stored = [op.results[0].type.shape for op in new.ops if op.name == "reduce_sum"]
    assert stored[0] == (4, 4, 26)
    assert stored[1] == (26, 4, 4)  # a result keeps its layout


@pytest.mark.parametrize(
    "text",
    [
        # long rows need nothing
        """func @f(%a: f64[26,4,40]) -> (f64[26,4]) {
          %e = exp %a : f64[26,4,40]
          %s = reduce_sum %e {axes=(2)} : f64[26,4]
          return %s
        }""",
        # elementwise code of parameters is contiguous as it is
        """func @f(%a: f64[26,4,4], %b: f64[26,4,4]) -> (f64[26,4,4]) {
          %e = mul %a, %b : f64[26,4,4]
          %s = exp %e : f64[26,4,4]
          return %s
        }""",
        # an axis far longer than the cache's ways
        """func @f(%a: f64[4000,4,4], %b: f64[4,4]) -> (f64[4000,4]) {
          %d = dot %a, %b {batch=((),()), contract=((2),(1))} : f64[4000,4,4]
          %s = reduce_max %d {axes=(2)} : f64[4000,4]
          return %s
        }""",
    ],
)
def test_what_is_left_alone(text: str) -> None:
    fn = lower(parse(text))
    assert lanes_last(fn) is fn


def arm(angles: Any) -> Any:
    """The end of a chain of rotations."""
    frame = np.eye(3)
    for k in range(angles.shape[0]):
        c, s = np.cos(angles[k]), np.sin(angles[k])
        one, zero = c * 0.0 + 1.0, c * 0.0
        rows = ((c, -s, zero), (s, c, zero), (zero, zero, one))
        frame = frame @ np.stack([np.stack(row) for row in rows])
        frame = frame + 0.1 * np.ones((3, 3))
    return frame


def test_a_jacobian_of_small_matrices() -> None:
    x = np.random.default_rng(2).uniform(-1, 1, 9)
    found = tapec.jacobian(arm)(x)
    h = 1e-30
    for k in range(9):
        z = x.astype(complex)
        z[k] += 1j * h
        assert np.allclose(found[..., k], arm(z).imag / h, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("use", [lambda d: d * 2.0 - 1.0, lambda d: np.sum(d * d, axis=0), np.tanh])
@pytest.mark.parametrize("terms", [1, 3, 4])
def test_products_of_few_terms(use: Callable[[Any], Any], terms: int) -> None:
    """Written out where cheap code uses them once."""
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(70, terms)), rng.normal(size=(40, terms))

    def fn(a: Any, b: Any) -> Any:
        return use(a @ b.T)

    assert np.allclose(tapec.jit(fn)(a, b), fn(a, b), rtol=1e-13, atol=1e-14)
    slow: Any = tapec.value_and_grad(lambda a, b: np.sum(np.sin(fn(a, b))), argnums=(0, 1))
    _, (ga, gb) = slow(a, b)
    da, db = rng.normal(size=a.shape), rng.normal(size=b.shape)
    h = 1e-6
    total = [float(np.sum(np.sin(fn(a + s * h * da, b + s * h * db)))) for s in (1, -1)]
    assert np.isclose(np.sum(ga * da) + np.sum(gb * db), (total[0] - total[1]) / (2 * h), rtol=1e-6)


def test_a_product_of_few_terms_is_not_stored() -> None:
    text = """func @f(%a: f64[70,3], %b: f64[3,40], %c: f64[70,40]) -> (f64[40]) {
      %d = dot %a, %b {batch=((),()), contract=((1),(0))} : f64[70,40]
      %e = sub %d, %c : f64[70,40]
      %s = reduce_sum %e {axes=(0)} : f64[40]
      return %s
    }"""
    found = count(parse(text))
    assert (len(found.nests), found.library, found.workspace_bytes) == (1, [], 0)


def random_function(seed: int) -> Function:
    """Elementwise code, views, stacks, reductions and products of values with one long axis."""
    rng = np.random.default_rng(seed)
    b = Builder()
    pool = [b.param(Type(F64, s)) for s in ((9, 3, 2), (3, 3), (2, 9, 3), (9,), (12, 2, 9, 3))]
    for _ in range(int(rng.integers(6, 14))):
        v = pool[int(rng.integers(len(pool)))]
        n, shape = v.type.ndim, v.type.shape
        match int(rng.integers(9)):
            case 0:
                made = b.emit(str(rng.choice(["exp", "neg", "abs", "sin"])), (b.unary("tanh", v),))
            case 1:
                same = [w for w in pool if w.type == v.type]
                made = b.emit(
                    str(rng.choice(["add", "mul", "max"])), (v, same[int(rng.integers(len(same)))])
                )
            case 2:
                made = b.transpose(v, [int(p) for p in rng.permutation(n)])
            case 3 if n < 4:
                k = int(rng.integers(n + 1))
                wide = (*shape[:k], int(rng.choice([2, 4])), *shape[k:])
                made = b.broadcast(v, wide, [j for j in range(n + 1) if j != k])
            case 4 if n > 1:
                kind = str(rng.choice(["sum", "max", "min"]))
                made = b.reduce(kind, v, [int(rng.choice([n - 1, rng.integers(n)]))])
            case 5:
                k = int(rng.integers(n))
                made = b.reshape(v, (*shape[:k], 1, *shape[k:])) if n < 4 else b.reverse(v, [k])
            case 6:
                k = int(rng.integers(n))
                made = b.concat([v, b.emit("neg", (v,))], k) if shape[k] < 8 else b.reverse(v, [k])
            case 7:
                k = int(rng.integers(n))
                start, size = [0] * n, list(shape)
                start[k], size[k] = shape[k] // 2, shape[k] - shape[k] // 2
                made = b.slice(v, start, size)
            case _:
                w = pool[int(rng.integers(len(pool)))]
                pairs = [(i, j) for i in range(n) for j in range(w.type.ndim)
                         if shape[i] == w.type.shape[j] < 5]  # fmt: skip
                if not pairs or n + w.type.ndim > 6:
                    continue
                i, j = pairs[int(rng.integers(len(pairs)))]
                made = b.dot(v, w, ((i,), (j,)))
        if made.type.size <= 20_000 and made.type.ndim <= 5:
            pool.append(made)
    short = [v for v in pool[5:] if v.type.ndim > 1 and v.type.shape[-1] < 5]
    sums = []
    for v in short[-4:]:
        n = v.type.ndim
        square = b.dot(v, v, ((n - 1,), (n - 1,))) if n == 2 else v
        if v.type.shape[-1] == 3:
            square = b.unary("tanh", b.dot(v, pool[1], ((n - 1,), (int(rng.integers(2)),))))
        sums.append(b.reduce("max", square, [square.type.ndim - 1]))
    return b.function("f", [pool[-1], *sums, *[v for v in pool[5:-1] if rng.random() < 0.1]])


def test_random_functions() -> None:
    turned = 0
    for seed in range(150):
        fn = lower(random_function(seed))
        if any("gemm" in op.attrs for op in fn.ops):
            continue  # strides of what is in memory: the interpreter knows no such thing
        new = lanes_last(fn)
        turned += new is not fn
        verify(new)
        args = arguments(fn)
        for a, b in zip(interpret(fn, args), interpret(new, args), strict=True):
            assert np.array_equal(a, b), seed
    assert turned > 15


@pytest.mark.parametrize("seed", range(8))
def test_random_functions_compiled(seed: int) -> None:
    fn = random_function(1000 + seed)
    args = arguments(fn)
    for a, b in zip(interpret(fn, args), native(fn)(args), strict=True):
        assert np.allclose(a, b, rtol=1e-12, atol=1e-13)
