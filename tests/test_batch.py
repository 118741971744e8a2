"""Batching: a sweep over the op table, axes, what stays unbatched, guards, nesting.

Every case of every operation, with every choice of batched operands, equals the operation
applied to one lane after the other; so do its vjp and its jvp.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tapec.ir import (
    F64,
    OPS,
    Builder,
    Function,
    GuardFailed,
    Type,
    interpret,
    jvp,
    parse,
    parse_type,
    verify,
    vjp,
)
from tapec.ir.batch import batch, batch_keeping
from tapec.ir.passes import simplify

N = 3
_DEFAULT = {"integer_pow": {"n": 3}, "convert": {"dtype": "f32"}}


def _cases() -> list[Any]:
    out = []
    for e in OPS.values():
        cases = [] if e.samples.swept_by else list(e.samples.cases)
        if e.elementwise and not cases:
            for kind in ("f64[2]", "bool[2]", "i64[2]"):
                for arity in (1, 2):
                    try:
                        e.infer((parse_type(kind),) * arity, {})
                    except (TypeError, ValueError):
                        continue
                    cases.append(((kind,) * arity, {}))
            if e.name == "select":
                cases.append((("bool[2]", "f64[2]", "f64[2]"), {}))
        cases = [c for c in cases if c[0]]
        out += [pytest.param(e.name, *c, id=f"{e.name}-{k}") for k, c in enumerate(cases)]
    return out


CASES = _cases()


def build(name: str, types: tuple[str, ...], attrs: dict[str, Any]) -> Function:
    b = Builder()
    xs = [b.param(parse_type(t), "xyzuvw"[k]) for k, t in enumerate(types)]
    return verify(b.function(name, b.emit_op(name, tuple(xs), attrs).results))


def draw(fn: Function, rng: np.random.Generator, name: str = "") -> list[Any]:
    """One lane of values, from the interval that the op's samples give."""
    samples = OPS[name or fn.ops[0].name].samples
    out: list[Any] = []
    for k, p in enumerate(fn.params):
        low, high = (
            v[min(k, len(v) - 1)] if isinstance(v, tuple) else v
            for v in (samples.low, samples.high)
        )
        shape, dtype = p.type.shape, p.type.dtype
        if dtype.kind == "b":
            out.append(rng.random(shape) < 0.5)
        elif dtype.kind == "i":
            out.append(rng.integers(int(low), int(high), shape).astype(dtype.np))
        else:
            out.append(rng.uniform(low, high, shape).astype(dtype.np))
    return out


def check(
    fn: Function, lanes: Sequence[Sequence[Any]], axes: Sequence[int | None], tol: float = 1e-12
) -> None:
    """``fn`` batched equals ``fn`` lane by lane; unbatched parameters are those of lane 0."""
    n = len(lanes)
    fb = verify(batch(fn, axes, n))
    args = [
        lanes[0][k] if a is None else np.stack([lane[k] for lane in lanes], a)
        for k, a in enumerate(axes)
    ]
    points = [[lanes[0][k] if a is None else lane[k] for k, a in enumerate(axes)] for lane in lanes]
    want = [interpret(fn, point) for point in points]
    for f in (fb, verify(simplify(fb))):
        for r, got in enumerate(interpret(f, args)):
            expected = np.stack([w[r] for w in want])
            assert got.shape == expected.shape and got.dtype == expected.dtype
            np.testing.assert_allclose(got, expected, rtol=tol, atol=tol)


def subsets(fn: Function) -> list[list[int | None]]:
    out: list[list[int | None]] = []
    for mask in itertools.product((True, False), repeat=len(fn.params)):
        axes = [k % (p.type.ndim + 1) for k, p in enumerate(fn.params)]
        out.append([a if m else None for a, m in zip(axes, mask)])
    return out


@pytest.mark.parametrize(("name", "types", "attrs"), CASES)
def test_operation(name: str, types: tuple[str, ...], attrs: dict[str, Any]) -> None:
    fn = build(name, types, attrs)
    rng = np.random.default_rng(7)
    lanes = [draw(fn, rng) for _ in range(N)]
    if name == "guard":
        lanes = [[np.asarray(attrs["expected"])] for _ in range(N)]
    for axes in subsets(fn):
        check(fn, lanes, axes)


@pytest.mark.parametrize(("name", "types", "attrs"), CASES)
def test_derivatives(name: str, types: tuple[str, ...], attrs: dict[str, Any]) -> None:
    fn = build(name, types, attrs)
    if OPS[name].nondifferentiable or not any(p.type.dtype.is_inexact for p in fn.params):
        pytest.skip("no derivative")
    if not all(r.type.dtype.is_inexact for r in fn.results):
        pytest.skip("no derivative")
    rng = np.random.default_rng(8)
    lanes = [draw(fn, rng) for _ in range(N)]
    unknown = OPS[name].unknown
    seeded = [k for k, p in enumerate(fn.params) if p.type.dtype.is_inexact and k not in unknown]
    if not seeded:
        pytest.skip("no derivative rule")
    for derived, seeds in (
        (vjp(fn, seeded), [fn.results[0]]),
        (jvp(fn, seeded), [fn.params[k] for k in seeded]),
    ):
        full = [
            [*lane, *[rng.normal(size=s.type.shape).astype(s.type.dtype.np) for s in seeds]]
            for lane in lanes
        ]
        masks = [[0] * len(fn.params), [None] * len(fn.params)]
        if len(fn.params) > 1:
            masks += [[0] + [None] * (len(fn.params) - 1), [None] + [0] * (len(fn.params) - 1)]
        for mask in masks:
            check(derived, full, [*mask, *[0] * len(seeds)], 1e-6 if "f32" in str(types) else 1e-12)


def test_every_operation_has_a_rule() -> None:
    """``call`` is inlined; operations without operands are never batched."""
    without = [
        e.name for e in OPS.values() if not e.elementwise and e.batch is None and e.name != "call"
    ]
    assert without == ["constant", "iota"]


def test_unbatched_operations_stay() -> None:
    fn = parse(
        """func @f(%x: f64[], %w: f64[4]) -> (f64[4], f64[4]) {
          %e = exp %w : f64[4]
          %b = broadcast %x {dims=(), shape=(4)} : f64[4]
          %z = mul %b, %e : f64[4]
          return %z, %e
        }"""
    )
    fb, flags = batch_keeping(fn, [0, None], 5)
    assert flags == [True, False]
    assert [str(r.type) for r in fb.results] == ["f64[5,4]", "f64[4]"]
    (exp,) = [op for op in fb.ops if op.name == "exp"]
    assert exp.result.type is Type(F64, (4,))


def test_axis_out_of_range() -> None:
    fn = build("exp", ("f64[2]",), {})
    with pytest.raises(ValueError, match="no axis 2"):
        batch(fn, [2], 3)


def test_guard_holds_for_all_lanes() -> None:
    fn = parse(
        """func @f(%x: f64[]) -> (f64[]) {
          %0 = constant {value=0.0} : f64[]
          %c = gt %x, %0 : bool[]
          guard %c {expected=true, message="x > 0"}
          return %x
        }"""
    )
    fb = batch(fn, [0], 3)
    interpret(fb, [np.array([1.0, 2.0, 3.0])])
    with pytest.raises(GuardFailed, match="x > 0"):
        interpret(fb, [np.array([1.0, -2.0, 3.0])])


def test_twice() -> None:
    fn = build("dot", ("f64[2,3]", "f64[3]"), {"contract": ((1,), (0,)), "batch": ((), ())})
    both = verify(batch(batch(fn, [0, None], 4), [None, 0], 5))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(4, 2, 3)), rng.normal(size=(5, 3))
    (got,) = interpret(both, [x, y])
    np.testing.assert_allclose(got, np.einsum("aij,bj->bai", x, y), rtol=1e-13)


def test_no_lanes() -> None:
    fn = build("reduce_max", ("f64[4]",), {"axes": (0,)})
    (got,) = interpret(batch(fn, [0], 0), [np.zeros((0, 4))])
    assert got.shape == (0,)


# -- branches and loops -----------------------------------------------------------------

COND = """func @f(%i: i64[], %x: f64[2], %y: f64[2]) -> (f64[2]) {
  %r = cond %i, %x, %y (%a: f64[2], %b: f64[2]) {
    %0 = mul %a, %b : f64[2]
    return %0
  } (%a: f64[2], %b: f64[2]) {
    %0 = constant {value=0.0} : f64[2]
    %1 = gt %a, %0 : bool[2]
    %2 = reduce_all %1 {axes=(0)} : bool[]
    guard %2 {expected=true, message="positive"}
    %3 = sqrt %a : f64[2]
    return %3
  } (%a: f64[2], %b: f64[2]) {
    return %b
  } : f64[2]
  return %r
}"""
SCAN = """func @f(%c: f64[], %u: f64[], %x: f64[4,2], %k: f64[2]) -> (f64[], f64[], f64[4,2]) {
  %a, %b, %ys = scan %c, %u, %x, %k {length=4, n_carry=2, n_xs=1, reverse=true} (%c: f64[],
      %u: f64[], %x: f64[2], %k: f64[2]) {
    %0 = mul %x, %k : f64[2]
    %1 = reduce_sum %0 {axes=(0)} : f64[]
    %2 = mul %c, %1 : f64[]
    %3 = sin %u : f64[]
    %4 = broadcast %c {dims=(), shape=(2)} : f64[2]
    return %2, %3, %4
  } : f64[], f64[], f64[4,2]
  return %a, %b, %ys
}"""
WHILE = """func @f(%x: f64[], %m: f64[], %n: i64[]) -> (f64[], i64[]) {
  %z = constant {value=0} : i64[]
  %s, %i, %k = while %x, %z, %m, %n {n_carry=(3), reads=(()), reverse=(false)} (%s: f64[],
      %i: i64[], %m: f64[], %n: i64[]) {
    %0 = lt %i, %n : bool[]
    return %0
  } (%s: f64[], %i: i64[], %m: f64[], %n: i64[]) {
    %one = constant {value=1} : i64[]
    %0 = mul %s, %m : f64[]
    %1 = add %i, %one : i64[]
    return %0, %1, %m
  } : f64[], i64[], f64[]
  return %s, %i
}"""


def _fixed(text: str) -> Function:
    return verify(parse(text.replace(",\n      ", ", ")))


def test_cond() -> None:
    fn = _fixed(COND)
    rng = np.random.default_rng(3)
    lanes = [
        [
            np.array(i),
            rng.uniform(-2, -1, 2) if i != 1 else rng.uniform(1, 2, 2),
            rng.normal(size=2),
        ]
        for i in (0, 1, 2, 1, -4, 9)
    ]
    for axes in ([0, 0, 0], [0, None, 0], [None, 0, 1], [None, None, 0], [0, 1, None]):
        if axes[1] is None:
            lanes[0][1] = np.abs(lanes[0][1])
        check(fn, lanes, axes)
    with pytest.raises(GuardFailed, match="positive"):
        interpret(batch(fn, [0, None, None], 2), [np.array([0, 1]), -np.ones(2), np.ones(2)])


@pytest.mark.parametrize("derived", [lambda f: f, vjp, jvp, lambda f: jvp(vjp(f))])
def test_scan(derived: Any) -> None:
    fn = verify(derived(_fixed(SCAN)))
    rng = np.random.default_rng(4)
    lanes = [[rng.normal(size=p.type.shape) for p in fn.params] for _ in range(3)]
    rest = len(fn.params) - 4
    for head in ([0, 0, 0, 0], [None, None, 1, None], [None, 0, None, None], [0, None, 2, 1]):
        check(fn, lanes, [*head, *[0] * rest], 1e-11)
        check(fn, lanes, [*head, *[None] * rest], 1e-11)


@pytest.mark.parametrize("derived", [lambda f: f, vjp, jvp, lambda f: jvp(vjp(f))])
def test_while(derived: Any) -> None:
    fn = verify(derived(_fixed(WHILE)))
    rng = np.random.default_rng(5)
    lanes = [
        [np.array(steps) if p.type.dtype.kind == "i" else rng.normal() for p in fn.params]
        for steps in (0, 3, 1, 5)
    ]
    rest = len(fn.params) - 3
    for head in ([0, 0, 0], [0, None, None], [None, 0, None], [None, None, 0], [0, None, 0]):
        check(fn, lanes, [*head, *[0] * rest], 1e-11)
        check(fn, lanes, [*head, *[None] * rest], 1e-11)


def test_indices_of_other_lanes_are_harmless() -> None:
    fn = _fixed(
        """func @f(%c: bool[], %x: f64[3], %i: i64[]) -> (f64[]) {
          %r = cond %c, %x, %i (%x: f64[3], %i: i64[]) {
            %0 = constant {value=-1.0} : f64[]
            return %0
          } (%x: f64[3], %i: i64[]) {
            %0 = gather %x, %i {axes=(0)} : f64[]
            return %0
          } : f64[]
          return %r
        }"""
    )
    args = [np.array([True, False]), np.array([1.0, 2.0, 3.0]), np.array([2, 999])]
    (got,) = interpret(batch(fn, [0, None, 0], 2), args)
    np.testing.assert_array_equal(got, [3.0, -1.0])
