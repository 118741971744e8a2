"""Native code against the reference interpreter: every op of the table, and random functions."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from tapec.codegen import compile_kernel
from tapec.codegen.direct import native
from tapec.ir import (
    F32,
    F64,
    OPS,
    Builder,
    Function,
    GuardFailed,
    Type,
    Value,
    interpret,
    parse_type,
    vjp,
)
from tapec.ir.passes import simplify

Array = np.ndarray[Any, Any]


def assert_ulp(got: Array, want: Array, ulp: float) -> None:
    """Equal to ``ulp`` units in the last place; NaN and infinities where the other has them."""
    assert got.shape == want.shape and got.dtype == want.dtype
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, want)
        return
    with np.errstate(all="ignore"):
        tiny = np.finfo(got.dtype).tiny
        bound = ulp * np.spacing(np.maximum(np.abs(want), tiny))
        same = (got == want) | (np.isnan(got) & np.isnan(want)) | (np.abs(got - want) <= bound)
    assert same.all(), (got[~same][:5], want[~same][:5])


ELEMENTWISE = [name for name, d in OPS.items() if d.elementwise]
SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5, -2.5, 1e-310, 1e300, 3.0]


def signatures(name: str, dtype: Any) -> list[tuple[list[Any], dict[str, Any]]]:
    """Operand dtypes and attributes to try for an elementwise op (those it accepts)."""
    attrs: list[dict[str, Any]] = [{}]
    if name == "integer_pow":
        attrs = [{"n": n} for n in (-3, -1, 0, 1, 2, 3, 7)]
    if name == "polygamma":
        attrs = [{"n": n} for n in (1, 2)]
    if name == "convert":
        attrs = [{"dtype": d} for d in ("bool", "i32", "i64", "f32", "f64")]
    out = []
    from tapec.ir import BOOL, I32, I64

    for a in attrs:
        for n in (1, 2, 3, -3, 4):
            for head in (dtype, I64, I32, BOOL):
                dtypes = [head] * abs(n)
                if n == -3:
                    dtypes = [BOOL, head, head]
                try:
                    OPS[name].infer(tuple(Type(d) for d in dtypes), a)
                except (TypeError, ValueError):
                    continue
                out.append((dtypes, a))
    assert out, name
    return out


@pytest.mark.parametrize("dtype", [F64, F32], ids=str)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_native(name: str, dtype: Any) -> None:
    """Scalars, register arrays, vectors with tails; special values among them."""
    rng = np.random.default_rng(1)
    low, high = OPS[name].samples.low, OPS[name].samples.high
    for dtypes, attrs in signatures(name, dtype):
        b = Builder()
        results, columns = [], []
        for n in ((), (5,), (37,), (3, 40)):
            params = [b.param(Type(d, n)) for d in dtypes]
            results.append(b.emit(name, tuple(params), attrs))
            for k, d in enumerate(dtypes):
                size = int(np.prod(n, dtype=int))
                lo = low if isinstance(low, (int, float)) else low[min(k, len(low) - 1)]
                hi = high if isinstance(high, (int, float)) else high[min(k, len(high) - 1)]
                if d.kind == "f":
                    x = rng.uniform(lo, hi, size)
                    if size > 30 and not OPS[name].unknown:  # some loop for ever at huge orders
                        x[: 2 * len(SPECIAL)] = SPECIAL + SPECIAL[::-1]
                        x = rng.permutation(x)
                elif d.kind == "b":
                    x = rng.integers(0, 2, size)
                else:
                    x = rng.integers(-5, 6, size)
                with np.errstate(all="ignore"):
                    columns.append(x.astype(d.np).reshape(n))
        fn = b.function(name, results)
        for got, want in zip(native(fn)(columns), interpret(fn, columns)):
            assert_ulp(got, np.asarray(want), OPS[name].samples.ulp)


CASES = [
    pytest.param(d.name, types, attrs, id=f"{d.name}-{k}")
    for d in OPS.values()
    for k, (types, attrs) in enumerate(d.samples.cases)
    if not d.elementwise and d.name not in ("guard", "call") and not d.samples.swept_by
]


@pytest.mark.parametrize(("name", "types", "attrs"), CASES)
def test_array_op_native(name: str, types: tuple[str, ...], attrs: dict[str, Any]) -> None:
    if any(v.regions for v in ()) or OPS[name].infer_regions is not None:
        pytest.skip("operations with regions have their own tests")
    rng = np.random.default_rng(2)
    low = OPS[name].samples.low
    for dtype in (F64, F32):
        b = Builder()
        params, arrays = [], []
        for k, text in enumerate(types):
            t = parse_type(text)
            if t.dtype is F64:
                t = t.with_dtype(dtype)
            params.append(b.param(t))
            lo = low if isinstance(low, (int, float)) else low[min(k, len(low) - 1)]
            highs = OPS[name].samples.high
            hi = highs if isinstance(highs, (int, float)) else highs[min(k, len(highs) - 1)]
            if t.dtype.kind == "f":
                arrays.append(rng.uniform(lo, hi, t.shape).astype(t.dtype.np))
            else:
                arrays.append(rng.integers(int(lo), max(int(hi), int(lo) + 1), t.shape))
        results = b.emit_op(name, tuple(params), attrs).results
        fn = b.function(name, results)
        for got, want in zip(native(fn)(arrays), interpret(fn, arrays)):
            if got.dtype.kind == "f":
                tolerance = 1e-13 if got.dtype == np.float64 else 1e-5
                np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
            else:
                np.testing.assert_array_equal(got, want)


UNARY = ["neg", "abs", "sin", "cos", "exp", "tanh", "sqrt", "sign", "log1p", "arctan", "floor"]
BINARY = ["add", "sub", "mul", "max", "min", "hypot", "atan2", "div"]
LENGTHS = [1, 2, 3, 5, 7, 8, 9, 16, 17, 20, 33, 40, 66]


def random_function(seed: int, dtype: Any) -> Function:
    """Elementwise, broadcast, reduction, slicing, padding, gathering and product steps."""
    r = random.Random(seed)
    b = Builder()
    n, m, p = (r.choice(LENGTHS) for _ in range(3))
    shapes = [(), (n,), (m,), (n, m), (m, p), (n, m, p)]
    values = [b.param(Type(dtype, r.choice(shapes))) for _ in range(r.randint(1, 4))]
    for _ in range(r.randint(2, 16)):
        x = r.choice(values[-6:])
        value = _random_step(b, r, values, x)
        if value is not None and value.type.size <= 20000:
            values.append(value)
    return b.function("f", [values[-1]] + [r.choice(values) for _ in range(r.randint(0, 2))])


def _random_step(b: Builder, r: random.Random, values: list[Value], x: Value) -> Value | None:
    s, c = x.type.shape, r.random()
    if c < 0.3:
        name = r.choice(UNARY)
        if name in ("sqrt", "log1p"):
            x = b.abs(x)
        if name == "exp":
            x = b.unary("tanh", x)
        return b.unary(name, x)
    if c < 0.5:
        y = r.choice([y for y in values if y.type is x.type])
        name = r.choice(BINARY)
        if name == "div":
            y = b.add(b.abs(y), b.like(0.5, y))
        return b.emit(name, (x, y))
    if c < 0.58:
        wider = [y for y in values if y.type.ndim > len(s) and y.type.shape[-len(s) or 9 :] == s]
        return b.mul(b.broadcast_to(x, wider[0].type.shape), wider[0]) if wider else None
    if not s:
        return None
    if c < 0.65:
        axes = [a for a in range(len(s)) if r.random() < 0.5] or [len(s) - 1]
        return b.reduce(r.choice(["sum", "sum", "max", "min", "prod"]), x, axes)
    if c < 0.70:
        return b.transpose(x, r.sample(range(len(s)), len(s)))
    if c < 0.80:
        start, size, step = [], [], []
        for n in s:
            d = r.choice([1, 1, 1, 2, -1, -2])
            k = r.randint(1, max(1, (n + abs(d) - 1) // abs(d)))
            low = r.randint(0, n - 1 - (k - 1) * abs(d))
            start.append(low if d > 0 else low + (k - 1) * abs(d))
            size.append(k)
            step.append(d)
        return b.slice(x, start, size, step)
    if c < 0.86:
        return b.pad(x, [r.choice([0, 0, 1, 2]) for _ in s], [r.choice([0, 0, 1, 3]) for _ in s])
    if c < 0.89:
        return b.concat([x, b.neg(x), x][: r.randint(2, 3)], r.randrange(len(s)))
    if c < 0.92:
        return b.reshape(x, (x.type.size,) if r.random() < 0.6 else (1, *s))
    if c < 0.94:
        return b.cumsum(x, r.randrange(len(s)), r.random() < 0.5)
    if c < 0.97:
        axis = r.randrange(len(s))
        index = np.array([r.randrange(s[axis]) for _ in range(r.choice([1, 3, 20]))])
        return b.gather(x, [b.array(index)], [axis])
    other = [y for y in values if y.type.ndim and y.type.shape[0] == s[-1]]
    return b.dot(x, r.choice(other), ((len(s) - 1,), (0,))) if other else None


def scalar_loss(fn: Function) -> Function:
    """The sum of the sines of all results."""
    b = Builder()
    results = b.inline(fn, [b.param(p.type) for p in fn.params])
    parts = [b.reduce_sum(b.sin(x), range(x.type.ndim)) for x in results]
    total = parts[0]
    for part in parts[1:]:
        total = b.add(total, part)
    return b.function("loss", [total])


@pytest.mark.parametrize("block", range(30))
def test_random_functions(block: int) -> None:
    """Value, gradient and simplified gradient of 10 random functions."""
    for seed in range(10 * block, 10 * block + 10):
        dtype = F32 if seed % 5 == 4 else F64
        tolerance = 1e-8 if dtype is F64 else 3e-2
        fn = random_function(seed, dtype)
        rng = np.random.default_rng(seed)
        args = [rng.normal(size=p.type.shape).astype(dtype.np) for p in fn.params]
        candidates = [fn]
        if dtype is F64:
            candidates.append(simplify(vjp(scalar_loss(fn), seeds=False)))
        for candidate in candidates:
            for got, want in zip(native(candidate)(args), interpret(candidate, args)):
                scale = 1 + float(np.nanmax(np.abs(want), initial=0.0)) if want.size else 1.0
                if not math.isfinite(scale):
                    continue
                np.testing.assert_allclose(
                    got, want, rtol=tolerance, atol=1e-12 * scale, err_msg=f"seed {seed}"
                )


@pytest.mark.parametrize("opt", [0, 1, 2])
def test_long_scalar_program_is_split(opt: int) -> None:
    r = random.Random(3)
    b = Builder()
    values = [b.param(Type(F64), f"x{k}") for k in range(4)]
    for _ in range(4000):
        x, y = r.choice(values[-30:]), r.choice(values)
        values.append(b.sin(x) if r.random() < 0.1 else b.emit(r.choice(["add", "mul"]), (x, y)))
        if r.random() < 0.3:
            values.append(b.unary("tanh", values[-1]))
    fn = b.function("long", [values[-1], values[2000]])
    assert "@kernel.1" in compile_kernel(fn).text
    args = [0.3, -0.2, 0.1, 0.4]
    for got, want in zip(native(fn, opt)(args), interpret(fn, args)):
        np.testing.assert_allclose(got, want, rtol=1e-9)


def test_guard_reports_its_number() -> None:
    b = Builder()
    x = b.param(Type(F64))
    b.guard(b.gt(x, b.like(0.0, x)), True)
    b.guard(b.lt(x, b.like(9.0, x)), True)
    call = native(b.function("f", [b.mul(x, x)]))
    assert call([3.0])[0] == 9.0
    for x, number in ((-1.0, 0), (10.0, 1)):
        with pytest.raises(GuardFailed) as error:
            call([x])
        assert error.value.index == number
