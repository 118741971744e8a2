"""``vjp`` and ``jvp`` as transforms: what they return, any order, masked branches, growth."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy as sp

from tapec.ir import (
    BOOL,
    F32,
    F64,
    I64,
    OPS,
    Builder,
    Function,
    GuardFailed,
    Loc,
    Type,
    Value,
    interpret,
    jvp,
    vjp,
)
from tapec.ir.collect import collect
from tapec.ir.opdef import OpDef
from tapec.ir.passes import simplify
from tapec.ir.verify import verify

Build = Callable[..., Any]


def function(build: Build, *types: Type) -> Function:
    b = Builder()
    out = build(b, *[b.param(t, "xyzw"[k]) for k, t in enumerate(types)])
    return b.function("f", list(out) if isinstance(out, (tuple, list)) else [out])


def scalar(build: Build, n: int = 1) -> Function:
    return function(build, *[Type(F64)] * n)


def grad(fn: Function, k: int = 0) -> Function:
    """Parameters → the derivative of the only, scalar result by parameter ``k``."""
    g = vjp(fn, [k], seeds=False)
    verify(g)
    return Function(f"{fn.name}'", g.params, g.ops, g.results[len(fn.results) :])


def forward(fn: Function, k: int = 0) -> Function:
    """The same by forward mode, for a scalar parameter."""
    g = jvp(fn, [k])
    b = Builder()
    xs = [b.param(p.type, p.hint) for p in fn.params]
    out = b.inline(g, [*xs, b.like(1, xs[k])])
    return b.function(f"{fn.name}'", out[len(fn.results) :])


def run(fn: Function, *args: Any) -> list[Any]:
    return [a.tolist() for a in interpret(fn, args)]


def derivatives(fn: Function, x: float, orders: int, *rest: float) -> list[float]:
    """f', f'', … by repeated reverse mode, checked against every mix of the modes."""
    out = []
    layer = [fn]
    for order in range(orders):
        layer = [step(g) for g in layer for step in (grad, forward)][: 8 if order < 2 else 4]
        found = [run(simplify(g), x, *rest)[0] for g in layer]
        found += [run(layer[0], x, *rest)[0]]
        for other in found[1:]:
            np.testing.assert_allclose(other, found[0], rtol=1e-12, atol=1e-300)
        out.append(found[0])
    return out


# -- what the transforms return ----------------------------------------------------------


def test_vjp_signature() -> None:
    def build(b: Builder, x: Value, n: Value, y: Value) -> Any:
        return b.mul(x, y), b.add(n, n), b.sin(x)

    v, s, i = Type(F64, (3,)), Type(F32, (3,)), Type(I64, (3,))
    fn = function(build, v, i, v)
    g = vjp(fn)
    assert [p.type for p in g.params] == [v, i, v, v, v]
    assert [r.type for r in g.results] == [v, i, v, v, v]
    x, n, y = np.arange(3.0), np.arange(3), np.arange(3.0) + 1
    c, d = np.array([1.0, 2, 3]), np.array([0.5, 0, 1])
    out = interpret(g, [x, n, y, c, d])
    np.testing.assert_allclose(out[3], c * y + d * np.cos(x))
    np.testing.assert_allclose(out[4], c * x)

    only = vjp(fn, wrt=[2], outputs=[0])
    assert [p.type for p in only.params] == [v, i, v, v] and len(only.results) == 4
    forward = jvp(fn)
    assert [p.type for p in forward.params] == [v, i, v, v, v]
    assert [r.type for r in forward.results] == [v, i, v, v, v]
    assert s is not v


def test_absent_cotangents_become_zeros() -> None:
    fn = scalar(lambda b, x, y: (b.sin(x), b.like(2, y)), 2)
    assert run(vjp(fn), 0.0, 1.0, 1.0, 5.0) == [0.0, 2.0, 1.0, 0.0]
    assert run(jvp(fn), 0.0, 1.0, 1.0, 5.0) == [0.0, 2.0, 1.0, 0.0]


def test_a_result_twice_and_a_parameter_as_result() -> None:
    fn = scalar(lambda b, x: (x, (z := b.sin(x)), z))
    assert run(vjp(fn), 0.0, 1.0, 10.0, 100.0)[-1] == 111.0


def test_no_seeds() -> None:
    fn = scalar(lambda b, x, y: (b.mul(x, y), b.add(x, y)), 2)
    assert run(vjp(fn, outputs=[0], seeds=False), 3.0, 4.0)[2:] == [4.0, 3.0]
    # Two selected results: the gradient of their sum.
    assert run(vjp(fn, seeds=False), 3.0, 4.0)[2:] == [5.0, 4.0]


def test_integer_positions_are_refused() -> None:
    fn = function(lambda b, x, n: (x, n), Type(F64), Type(I64))
    with pytest.raises(TypeError, match=r"parameter 1 of type i64\[\] has no derivative"):
        vjp(fn, [1])
    with pytest.raises(TypeError, match=r"result 1 of type i64\[\] has no derivative"):
        vjp(fn, [0], [1])
    with pytest.raises(TypeError, match="parameter 1"):
        jvp(fn, [1])
    with pytest.raises(ValueError, match="seeds=False takes scalars"):
        vjp(function(lambda b, x: x, Type(F64, (2,))), seeds=False)


def test_inactive_values_get_no_operations() -> None:
    """Only what lies between the parameters asked for and the results is differentiated."""

    def build(b: Builder, x: Value, y: Value) -> Any:
        dead = b.exp(b.exp(x))
        assert dead is not None
        return b.mul(b.sin(x), b.exp(b.exp(b.exp(y))))

    fn = scalar(build, 2)
    g = simplify(vjp(fn, [0], seeds=False))
    assert sum(op.name == "exp" for op in g.ops) == 3
    assert sum(op.name == "mul" for op in g.ops) == 2


def test_dtypes_stay() -> None:
    """f32 in, f32 all the way; a conversion converts the cotangent back."""
    fn = function(
        lambda b, x: b.reduce_sum(b.exp(b.convert(b.mul(x, x), F64)), [0]), Type(F32, (2,))
    )
    g = vjp(fn, seeds=False)
    assert g.results[1].type is Type(F32, (2,))
    out = interpret(g, [np.array([0.5, -1], np.float32)])
    np.testing.assert_allclose(out[1], [math.exp(0.25), -2 * math.e], rtol=1e-6)
    whole = function(lambda b, x: b.convert(b.convert(x, I64), F64), Type(F64))
    assert run(vjp(whole), 2.5, 1.0) == [2.0, 0.0]


def test_locations_of_the_adjoint() -> None:
    b = Builder()
    x = b.param(Type(F64))
    locs = [Loc("a.py", 1), Loc("a.py", 2)]
    b.loc = locs[0]
    y = b.exp(x)
    b.loc = locs[1]
    z = b.sin(y)
    fn = b.function("f", [z])
    g = vjp(fn)
    assert [op.loc for op in g.ops[2:]] == [locs[1], locs[1], locs[0]]


def test_guards_are_kept_once() -> None:
    def build(b: Builder, x: Value) -> Value:
        b.guard(b.gt(x, b.like(0, x)), True, "positive")
        return b.log(x)

    fn = scalar(build)
    for g in (fn, vjp(fn, seeds=False), grad(grad(fn)), forward(fn)):
        assert sum(op.name == "guard" for op in g.ops) == 1
        interpret(g, [2.0])
        with pytest.raises(GuardFailed, match="positive") as failure:
            interpret(g, [-2.0])
        assert failure.value.index == 0


def test_calls_are_inlined() -> None:
    inner = scalar(lambda b, x: b.mul(x, b.sin(x)))

    def twice(b: Builder, x: Value) -> Value:
        (y,) = b.call(inner, [x])
        return b.call(inner, [y])[0]

    outer = scalar(twice)
    fn = scalar(lambda b, x: b.call(outer, [x])[0])
    flat = scalar(lambda b, x: b.mul(y := b.mul(x, b.sin(x)), b.sin(y)))
    assert run(fn, 0.7) == run(flat, 0.7)
    for step in (grad, forward):
        assert run(step(step(fn)), 0.7) == run(step(step(flat)), 0.7)


def test_shared_subexpression_is_added_once() -> None:
    def build(b: Builder, x: Value) -> Value:
        for _ in range(40):
            x = b.add(x, x)
        return x

    fn = scalar(build)
    g = vjp(fn, seeds=False)
    assert len(g.ops) < 100
    assert run(g, 1.0)[1] == 2.0**40


def test_missing_rules_name_the_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = OpDef(name="mystery", infer=lambda types, attrs: types, numpy=lambda xs, attrs: xs[0])
    monkeypatch.setitem(OPS, "mystery", entry)
    fn = scalar(lambda b, x: b.emit("mystery", (x,)))
    with pytest.raises(NotImplementedError, match="'mystery'"):
        vjp(fn)
    with pytest.raises(NotImplementedError, match="'mystery'"):
        jvp(fn)


def test_forward_mode_from_a_reverse_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operation that declares only its ``vjp``: x³ by element."""

    def rule(b: Builder, op: Any, cts: Any) -> Any:
        (x,) = op.operands
        return (b.mul(cts[0], b.mul(b.like(3, x), b.mul(x, x))),)

    entry = OpDef(
        name="cube", infer=lambda types, attrs: types, numpy=lambda xs, a: xs[0] ** 3, vjp=rule
    )
    monkeypatch.setitem(OPS, "cube", entry)
    fn = function(lambda b, x: b.emit("cube", (b.sin(x),)), Type(F64, (3,)))
    x, t = np.array([0.1, 0.2, 0.3]), np.array([1.0, -1, 2])
    out = interpret(jvp(fn), [x, t])
    np.testing.assert_allclose(out[1], 3 * np.sin(x) ** 2 * np.cos(x) * t)


# -- unpacking ---------------------------------------------------------------------------


def unpacked(n: int) -> Function:
    def build(b: Builder, x: Value) -> Value:
        y, s = b.sin(x), b.zeros(Type(F64))
        for i in range(n):
            s = b.add(s, b.integer_pow(b.reshape(b.slice(y, (i,), (1,)), ()), 2))
        return s

    return function(build, Type(F64, (n,)))


def test_unpacking_is_linear() -> None:
    counts = [len(vjp(unpacked(n), seeds=False).ops) for n in (50, 100, 150)]
    assert counts[2] - counts[1] == counts[1] - counts[0]
    n = 100
    g = vjp(unpacked(n), seeds=False)
    assert sum(op.name == "place" for op in g.ops) == 1
    # The pieces cover the vector, so nothing is masked.
    assert not any(op.name == "strong_mul" for op in g.ops)
    x = np.linspace(0, 1, n)
    np.testing.assert_allclose(interpret(g, [x])[1], np.sin(2 * x))
    second = [len(vjp(grad_sum(unpacked(n))).ops) for n in (50, 100, 150)]
    assert second[2] - second[1] == second[1] - second[0]


def grad_sum(fn: Function) -> Function:
    """Sum of squares of the gradient."""
    g = vjp(fn, seeds=False)
    b = Builder()
    xs = [b.param(p.type) for p in fn.params]
    d = b.inline(g, xs)[1]
    return b.function("s", [b.reduce_sum(b.mul(d, d), range(d.type.ndim))])


def test_overlapping_repeated_and_reversed_slices() -> None:
    def build(b: Builder, x: Value) -> Value:
        parts = [
            b.slice(x, (1,), (3,)),
            b.slice(x, (3,), (3,), (-1,)),
            b.slice(x, (1,), (3,)),
            b.slice(x, (0,), (3,), (2,)),
            b.slice(b.sin(x), (2,), (3,)),
        ]
        total = parts[0]
        for p in parts[1:]:
            total = b.mul(total, p)
        return b.reduce_sum(b.add(total, b.slice(x, (0,), (3,))), [0])

    fn = function(build, Type(F64, (5,)))
    x = np.array([0.3, 1.1, -0.7, 0.9, 1.4])
    g = interpret(vjp(fn, seeds=False), [x])[1]
    for i in range(5):
        e = np.zeros(5)
        e[i] = 1e-6
        d = (interpret(fn, [x + e])[0] - interpret(fn, [x - e])[0]) / 2e-6
        assert g[i] == pytest.approx(d, rel=1e-8)
        unit = np.zeros(5)
        unit[i] = 1
        assert interpret(jvp(fn), [x, unit])[1] == pytest.approx(g[i], rel=1e-14)


def test_elements_that_are_not_read_do_not_poison() -> None:
    """sqrt(x)[1:] at x[0] = 0: its zero cotangent meets an infinite derivative."""
    fn = function(lambda b, x: b.reduce_sum(b.slice(b.sqrt(x), (1,), (2,)), [0]), Type(F64, (3,)))
    assert run(vjp(fn, seeds=False), [0.0, 1.0, 4.0])[1] == [0.0, 0.5, 0.25]


# -- conventions at special points -------------------------------------------------------


def at(name: str, **attrs: Any) -> Build:
    return lambda b, *xs: b.emit(name, xs, attrs)


INF = math.inf
CONVENTIONS: list[tuple[str, Build, tuple[float, ...], int, list[float]]] = [
    # name, function, point, parameter, derivatives of order 1, 2, …
    ("abs at 0", at("abs"), (0.0,), 0, [0.0, 0.0]),
    ("abs(x) x at 0", lambda b, x: b.mul(b.abs(x), x), (0.0,), 0, [0.0, 0.0]),
    ("abs(x) x at -2", lambda b, x: b.mul(b.abs(x), x), (-2.0,), 0, [4.0, -2.0]),
    ("sqrt at 0", at("sqrt"), (0.0,), 0, [INF]),
    ("cbrt at 0", at("cbrt"), (0.0,), 0, [INF]),
    ("max tie, left", at("max"), (1.0, 1.0), 0, [0.5, 0.0]),
    ("max tie, right", at("max"), (1.0, 1.0), 1, [0.5, 0.0]),
    ("min tie", at("min"), (1.0, 1.0), 0, [0.5, 0.0]),
    ("max of one value", lambda b, x: b.max(x, x), (3.0,), 0, [1.0, 0.0]),
    ("relu at 0", lambda b, x: b.max(x, b.like(0, x)), (0.0,), 0, [0.5]),
    ("hypot at 0", at("hypot"), (0.0, 0.0), 0, [0.0, 0.0]),
    ("hypot, huge", at("hypot"), (3e200, 4e200), 0, [0.6]),
    ("hypot, tiny", at("hypot"), (3e-200, 4e-200), 1, [0.8]),
    ("atan2, huge", at("atan2"), (3e200, 4e200), 0, [0.16e-200]),
    ("atan2 at 0", at("atan2"), (0.0, 0.0), 1, [0.0, 0.0]),
    ("arcsin at 1", at("arcsin"), (1.0,), 0, [INF]),
    ("arcsin at -1", at("arcsin"), (-1.0,), 0, [INF]),
    ("arccos at -1", at("arccos"), (-1.0,), 0, [-INF]),
    ("arcsin at 0.6", at("arcsin"), (0.6,), 0, [1.25]),
    ("arctan, huge", at("arctan"), (1e200,), 0, [0.0, 0.0]),
    ("arcsinh, huge", at("arcsinh"), (1e200,), 0, [1e-200]),
    ("exp2 below overflow", at("exp2"), (1023.5,), 0, [math.log(2) * math.sqrt(2) * 2.0**1023]),
    ("exp2 above overflow", at("exp2"), (1024.0,), 0, [2 * math.log(2) * 2.0**1023]),
    ("x^3 at 0", lambda b, x: b.pow(x, b.like(3, x)), (0.0,), 0, [0.0, 0.0, 6.0, 0.0]),
    ("x^1 at 0", lambda b, x: b.pow(x, b.like(1, x)), (0.0,), 0, [1.0, 0.0, 0.0]),
    ("x^1 at 1", lambda b, x: b.pow(x, b.like(1, x)), (1.0,), 0, [1.0, 0.0, 0.0]),
    ("x^0 at 0", lambda b, x: b.pow(x, b.like(0, x)), (0.0,), 0, [0.0, 0.0]),
    ("x^y at (0, 0) by x", at("pow"), (0.0, 0.0), 0, [0.0, 0.0, 0.0]),
    ("x^y at (0, 1) by x", at("pow"), (0.0, 1.0), 0, [1.0, 0.0, 0.0]),
    ("x^y at (0, 2) by x", at("pow"), (0.0, 2.0), 0, [0.0, 2.0, 0.0]),
    ("x^y at (0, 3) by x", at("pow"), (0.0, 3.0), 0, [0.0, 0.0, 6.0, 0.0]),
    ("x^y at (-1, 3) by x", at("pow"), (-1.0, 3.0), 0, [3.0, -6.0, 6.0, 0.0]),
    ("x^y at (0, 2) by y", at("pow"), (0.0, 2.0), 1, [0.0, 0.0, 0.0]),
    ("x^y at (0, 1) by y", at("pow"), (0.0, 1.0), 1, [0.0, 0.0]),
    ("integer power 3 at 0", at("integer_pow", n=3), (0.0,), 0, [0.0, 0.0, 6.0, 0.0]),
    ("integer power 0 at 0", at("integer_pow", n=0), (0.0,), 0, [0.0, 0.0]),
    ("integer power 1 at 0", at("integer_pow", n=1), (0.0,), 0, [1.0, 0.0]),
    ("mod by y", at("mod"), (5.0, 2.0), 1, [-2.0, 0.0]),
    ("mod by y, negative", at("mod"), (-5.0, 2.0), 1, [3.0]),
    ("fmod by y", at("fmod"), (5.0, 2.0), 1, [-2.0]),
    ("fmod by y, negative", at("fmod"), (-5.0, 2.0), 1, [2.0]),
    ("fmod just below", at("fmod"), (np.nextafter(0.3, 0.0), 0.1), 1, [-2.0]),
    ("copysign", at("copysign"), (-3.0, -1.0), 0, [1.0, 0.0]),
    ("copysign at 0", at("copysign"), (0.0, -1.0), 0, [0.0]),
    ("floor", at("floor"), (1.5,), 0, [0.0]),
    ("(x + 1)/x at 1", lambda b, x: b.div(b.add(x, b.like(1, x)), x), (1.0,), 0, [-1.0, 2.0]),
    ("x/x", lambda b, x: b.div(x, x), (3.0,), 0, [0.0, 0.0]),
    ("expm1, far left", at("expm1"), (-800.0,), 0, [0.0, 0.0]),
    ("tanh, far right", at("tanh"), (800.0,), 0, [0.0, 0.0]),
    ("log1p at 0", at("log1p"), (0.0,), 0, [1.0, -1.0, 2.0]),
]


@pytest.mark.parametrize(
    "build, point, k, wanted", [c[1:] for c in CONVENTIONS], ids=[c[0] for c in CONVENTIONS]
)
def test_conventions(build: Build, point: tuple[float, ...], k: int, wanted: list[float]) -> None:
    for steps in ([grad] * 4, [forward] * 4, [grad, forward] * 2, [forward, grad] * 2):
        fn = scalar(build, len(point))
        for step, value in zip(steps, wanted):
            fn = step(fn, k)
            assert run(fn, *point)[0] == pytest.approx(value, rel=1e-12)


# -- masked branches ---------------------------------------------------------------------


def where(condition: str, limit: float, yes: Build, no: Build) -> Build:
    def build(b: Builder, x: Value) -> Value:
        c = b.emit(condition, (x, b.like(limit, x)))
        return b.select(c, yes(b, x), no(b, x))

    return build


def zero(b: Builder, x: Value) -> Value:
    return b.like(0, x)


def same(b: Builder, x: Value) -> Value:
    return x


def sqrt(b: Builder, x: Value) -> Value:
    return b.sqrt(x)


def root4(b: Builder, x: Value) -> Value:
    return b.sqrt(b.sqrt(x))


def clipped(b: Builder, x: Value) -> Value:
    """The fourth root of x clipped below at 0, itself under a condition that holds."""
    inner = b.sqrt(b.sqrt(b.max(x, zero(b, x))))
    return b.select(b.gt(x, b.like(-5, x)), inner, zero(b, x))


def over_radius(b: Builder, x: Value) -> Value:
    r = b.mul(x, x)
    return b.unary("arctan", b.select(b.gt(r, zero(b, r)), b.div(x, r), zero(b, x)))


MASKED: list[tuple[str, Build, list[tuple[float, list[float]]]]] = [
    (
        "root right of one",
        where("lt", 1.0, same, sqrt),
        [(0.0, [1, 0, 0]), (-3.0, [1, 0, 0]), (4.0, [0.25, -1 / 32, 3 / 256])],
    ),
    (
        "root of positives",
        where("gt", 0.0, sqrt, zero),
        [(-1.0, [0, 0, 0]), (0.0, [0, 0, 0]), (1.0, [0.5, -0.25, 0.375])],
    ),
    (
        "root of a root",
        where("gt", 0.0, root4, zero),
        [(-1.0, [0, 0, 0]), (0.0, [0, 0, 0]), (1.0, [0.25, -0.1875, 0.328125])],
    ),
    (
        "exp left of zero",
        where("le", 0.0, lambda b, a: b.exp(a), lambda b, a: b.add(b.like(1, a), a)),
        [(100.0, [1, 0, 0]), (800.0, [1, 0, 0]), (0.0, [1, 1, 1])],
    ),
    (
        "log2 right of two",
        where("gt", 2.0, lambda b, x: b.unary("log2", x), lambda b, x: b.mul(b.like(2, x), x)),
        [(0.0, [2, 0, 0]), (2.0, [2, 0, 0]), (3.0, [0.48089834696298783])],
    ),
    (
        "reciprocal unless zero",
        where("eq", 0.0, zero, lambda b, x: b.div(b.like(1, x), x)),
        [(0.0, [0, 0, 0]), (2.0, [-0.25, 0.25, -0.375])],
    ),
    (
        "negative power unless zero",
        where("eq", 0.0, zero, lambda b, x: b.integer_pow(x, -2)),
        [(0.0, [0, 0, 0]), (2.0, [-0.25, 0.375])],
    ),
    (
        "power with an exponent below one",
        where("gt", 0.0, lambda b, x: b.pow(x, b.like(0.3, x)), zero),
        [(0.0, [0, 0, 0]), (-1.0, [0, 0, 0]), (1.0, [0.3, -0.21, 0.357])],
    ),
    ("cos guarded", where("lt", 2.0, lambda b, x: b.cos(x), zero), [(INF, [0, 0, 0])]),
    ("root of a clipped value", clipped, [(-1.0, [0, 0, 0]), (1.0, [0.25, -0.1875])]),
    ("direction at the origin", over_radius, [(0.0, [0, 0, 0]), (1.0, [-0.5, 0.5])]),
    (
        "nested masks",
        where("gt", 0.0, where("lt", 1.0, root4, lambda b, x: b.log(b.sub(x, b.like(1, x)))), zero),
        [(-1.0, [0, 0, 0]), (0.0, [0, 0, 0]), (2.0, [1, -1, 2])],
    ),
    (
        "mask outside of a clip",
        where("gt", 0.0, zero, lambda b, x: b.sqrt(b.max(b.sub(x, b.like(1, x)), zero(b, x)))),
        [(0.5, [0, 0, 0])],
    ),
    (
        "hypot under a mask",
        where("ne", 0.0, lambda b, x: b.emit("hypot", (x, x)), zero),
        [(0.0, [0, 0, 0])],
    ),
]


@pytest.mark.parametrize("build, points", [c[1:] for c in MASKED], ids=[c[0] for c in MASKED])
def test_masked_branches(build: Build, points: list[tuple[float, list[float]]]) -> None:
    for x, wanted in points:
        found = derivatives(scalar(build), x, len(wanted))
        assert found == pytest.approx(wanted, rel=1e-12), f"at {x}"


def test_missing_data_in_a_fit() -> None:
    """Squared residuals with NaN data left out, twice differentiated by the slope."""

    def build(b: Builder, a: Value) -> Value:
        x, y = b.array([1.0, 2.0, 3.0]), b.array([1.0, np.nan, 3.0])
        r = b.sub(b.mul(b.broadcast(a, (3,), ()), x), y)
        return b.reduce_sum(b.select(b.unary("isnan", y), b.like(0, r), b.mul(r, r)), [0])

    fn = scalar(build)
    assert run(fn, 2.0) == [10.0]
    assert derivatives(fn, 2.0, 2) == [20.0, 20.0]


def test_log_sum_exp_of_chosen_entries() -> None:
    def build(b: Builder, h: Value) -> Value:
        keep = b.array([True, False])
        return b.log(b.reduce_sum(b.select(keep, b.exp(h), b.like(0, h)), [0]))

    fn = function(build, Type(F64, (2,)))
    assert run(vjp(fn, seeds=False), [0.0, 1000.0]) == [0.0, [1.0, 0.0]]


def test_mask_of_a_vector_twice() -> None:
    """where(x > 0, sqrt x, 0) and where(w == 0, 0, 1/w): Hessians times ones."""

    def hessian_row_sums(build: Build, x: list[float]) -> list[float]:
        fn = function(lambda b, v: b.reduce_sum(build(b, v), [0]), Type(F64, (len(x),)))
        g = vjp(fn, seeds=False)
        g = Function("g", g.params, g.ops, g.results[1:])
        ones = [1.0] * len(x)
        backward = run(vjp(g), x, ones)[1]
        assert backward == pytest.approx(run(jvp(g), x, ones)[1])
        return list(backward)

    assert hessian_row_sums(where("gt", 0.0, sqrt, zero), [-1.0, 0.0, 4.0]) == [0, 0, -1 / 32]
    reciprocal = where("eq", 0.0, zero, lambda b, x: b.div(b.like(1, x), x))
    assert hessian_row_sums(reciprocal, [0.0, 2.0, -4.0]) == [0, 0.25, -1 / 32]


def test_f32_elu_does_not_overflow() -> None:
    def build(b: Builder, y: Value) -> Value:
        return b.select(b.gt(y, zero(b, y)), y, b.sub(b.exp(y), b.like(1, y)))

    g = vjp(function(build, Type(F32)), seeds=False)
    out = interpret(g, [np.float32(95)])
    assert out[1] == 1 and out[1].dtype == np.float32


def test_rows_of_a_jacobian() -> None:
    """[sqrt x, x] at 0: the zero in a seed does not meet the infinite derivative."""
    fn = scalar(lambda b, x: (b.sqrt(x), b.sin(x)))
    g = vjp(fn, masked_seeds=True)
    assert run(g, 0.0, 1.0, 0.0)[2] == INF
    assert run(g, 0.0, 0.0, 1.0)[2] == 1.0
    assert math.isnan(run(vjp(fn), 0.0, 0.0, 1.0)[2])


def test_products_stay_plain_without_masks() -> None:
    fn = scalar(lambda b, x: b.exp(b.sin(b.div(x, b.sqrt(x)))))
    for _ in range(3):
        fn = grad(fn)
        assert not any(op.name in ("strong_mul", "null_mul") for op in fn.ops)


# -- higher orders -----------------------------------------------------------------------


def subject(b: Builder, t: Value) -> Value:
    return b.mul(b.mul(b.like(0.3, t), b.sin(t)), b.integer_pow(t, 10))


def test_tenth_derivative(capsys: pytest.CaptureFixture[str]) -> None:
    t = sp.Symbol("t")
    form = sp.Rational(3, 10) * sp.sin(t) * t**10
    fn, counts = scalar(subject), []
    for order in range(1, 11):
        fn = simplify(collect(simplify(grad(fn))))
        counts.append(len(fn.ops))
        wanted = float(form.diff(t, order).evalf(30, subs={t: sp.Float(1.3)}))
        assert run(fn, 1.3)[0] == pytest.approx(wanted, rel=1e-10), f"order {order}"
    with capsys.disabled():
        print(f"\noperations by order 1..10: {counts}")
    # Without ``collect`` it is 844 operations, 1.57 times more at every order.
    assert counts[9] < 100
    assert counts[9] / counts[4] < 2.5  # linear would be 2, quadratic 4


def test_like_terms_are_collected() -> None:
    def build(b: Builder, s: Value, p: Value) -> Value:
        ten = b.like(10, s)
        return b.add(b.mul(b.mul(s, ten), p), b.neg(b.mul(b.mul(b.neg(p), ten), s)))

    fn = collect(scalar(build, 2))
    assert [op.name for op in fn.ops] == ["mul", "constant", "mul"]
    assert run(fn, 2.0, 3.0) == [120.0]


def test_collecting_keeps_what_must_not_move() -> None:
    huge = scalar(lambda b, x, y: b.add(b.mul(b.mul(x, b.like(1e-200, x)), y), b.mul(y, x)), 2)
    assert collect(huge) is huge  # x y alone could overflow
    cancelled = collect(scalar(lambda b, x: b.add(b.sub(b.mul(x, x), b.mul(x, x)), b.add(x, x))))
    assert run(cancelled, 3.0) == [6.0]
    assert math.isnan(run(cancelled, INF)[0])  # inf - inf

    def chain(b: Builder, x: Value) -> Value:
        for k in range(1000):
            x = b.sub(b.sin(x), x) if k % 2 else b.mul(x, b.cos(x))
        return x

    fn = scalar(chain)
    assert run(collect(fn), 0.7)[0] == pytest.approx(run(fn, 0.7)[0], rel=1e-12)


def test_fourth_power_twice() -> None:
    def build(b: Builder, x: Value) -> Value:
        return b.reduce_sum(b.pow(x, b.like(4, x)), [0])

    fn = function(build, Type(F64, (4,)))
    g = vjp(fn, seeds=False)
    g = Function("g", g.params, g.ops, g.results[1:])
    assert run(vjp(g), [0.5, 1.5, 2.5, 3.5], [1.0] * 4)[1] == [3, 27, 75, 147]


def test_nested_without_confusion() -> None:
    """x d/dy (x y) at y = 1, differentiated by x: 2x."""
    inner = grad(scalar(lambda b, x, y: b.mul(x, y), 2), 1)

    def build(b: Builder, x: Value) -> Value:
        return b.mul(x, b.inline(inner, [x, b.like(1, x)])[0])

    assert run(grad(scalar(build)), 4.0) == [8.0]
    assert run(forward(scalar(build)), 4.0) == [8.0]


def test_four_compositions() -> None:
    def build(b: Builder, x: Value) -> Value:
        return b.mul(b.integer_pow(x, 3), b.sin(x))

    x = 0.7
    wanted = 6 * x * math.sin(x) + 6 * x**2 * math.cos(x) - x**3 * math.sin(x)
    for one, two in itertools.product((grad, forward), repeat=2):
        assert run(two(one(scalar(build))), x)[0] == pytest.approx(wanted, rel=1e-13)


# -- random programs ---------------------------------------------------------------------


def random_program(seed: int) -> Function:
    """A smooth function of a vector and a scalar through most kinds of operation."""
    rng = np.random.default_rng(seed)
    b = Builder()
    n = int(rng.integers(2, 5))
    vector = Type(F64, (n,))
    values = [b.param(vector, "x"), b.broadcast(b.param(Type(F64), "s"), (n,), ())]

    def pick() -> Value:
        return values[int(rng.integers(len(values)))]

    def bounded(x: Value) -> Value:
        return b.unary(["sin", "cos", "tanh", "arctan"][int(rng.integers(4))], x)

    def positive(x: Value) -> Value:
        return b.add(b.mul(x, x), b.like(0.5, x))

    def matrix(x: Value) -> Value:
        return b.mul(b.broadcast(x, (n, n), (0,)), b.broadcast(pick(), (n, n), (1,)))

    def rolled(x: Value) -> Value:
        return b.concat([b.slice(x, (1,), (n - 1,)), b.slice(x, (0,), (1,))], 0)

    def compared(x: Value) -> Value:
        return b.select(b.lt(x, pick()), bounded(x), b.mul(x, b.like(0.5, x)))

    def gathered(x: Value) -> Value:
        return b.gather(x, [b.array(rng.integers(0, n, n))], [0])

    makers: list[Callable[[Value], Value]] = [
        lambda x: b.add(x, pick()),
        lambda x: b.sub(x, pick()),
        lambda x: b.mul(x, bounded(pick())),
        lambda x: b.div(x, positive(pick())),
        lambda x: b.exp(bounded(x)),
        lambda x: b.log(positive(x)),
        lambda x: b.sqrt(positive(x)),
        lambda x: b.pow(positive(bounded(x)), bounded(pick())),
        lambda x: (
            b.integer_pow(bounded(x), int(rng.integers(-1, 4)) or 2)
            if rng.random() < 0.5
            else b.integer_pow(positive(x), -1)
        ),
        lambda x: b.emit("hypot", (x, positive(pick()))),
        lambda x: b.emit("atan2", (x, positive(pick()))),
        lambda x: b.max(x, pick()),
        lambda x: b.min(bounded(x), pick()),
        lambda x: b.reduce_sum(matrix(x), [int(rng.integers(2))]),
        lambda x: b.dot(matrix(bounded(x)), pick(), ((1,), (0,))),
        lambda x: (
            b.transpose(b.reshape(x, (n, 1)), (1, 0)) and b.reshape(b.reshape(x, (n, 1)), (n,))
        ),
        lambda x: b.reverse(x, [0]),
        rolled,
        compared,
        gathered,
        lambda x: b.cumsum(bounded(x), 0, bool(rng.random() < 0.5)),
    ]
    for _ in range(int(rng.integers(3, 9))):
        values.append(bounded(makers[int(rng.integers(len(makers)))](pick())))
    total = values[-1]
    for v in values[2:-1]:
        total = b.add(total, v)
    return b.function("random", [b.reduce_sum(total, [0])])


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed: int) -> None:
    """Gradient against differences; three routes to Hessian times vector."""
    fn = random_program(seed)
    rng = np.random.default_rng(seed + 1000)
    n = fn.params[0].type.shape[0]
    x = [rng.standard_normal(n), rng.standard_normal()]
    v = [rng.standard_normal(n), rng.standard_normal()]
    with_value = vjp(fn, seeds=False)
    verify(with_value)
    small = simplify(with_value)
    value, *g = interpret(with_value, x)
    for a, c in zip(interpret(small, x), [value, *g]):
        np.testing.assert_allclose(a, c, rtol=1e-10, atol=1e-12)
    h = 1e-6
    ends = [interpret(fn, [a + s * d for a, d in zip(x, v)])[0] for s in (h, -h)]
    slope = float(np.dot(g[0], v[0]) + g[1] * v[1])
    assert slope == pytest.approx(float(ends[0] - ends[1]) / (2 * h), rel=1e-5, abs=1e-6)

    for f in (with_value, jvp(Function("g", small.params, small.ops, small.results[1:]))):
        collected = collect(f)
        verify(collected)
        args = [*x, *v][: len(f.params)]
        for a, c in zip(interpret(collected, args), interpret(f, args)):
            np.testing.assert_allclose(a, c, rtol=1e-10, atol=1e-12)

    forward_of = jvp(fn)
    assert float(interpret(forward_of, [*x, *v])[1]) == pytest.approx(slope, rel=1e-11, abs=1e-12)

    gradient = Function("g", small.params, small.ops, small.results[1:])
    reverse_reverse = interpret(vjp(gradient), [*x, *v])[2:]
    forward_reverse = interpret(jvp(gradient), [*x, *v])[2:]
    t = Function("t", forward_of.params, forward_of.ops, forward_of.results[1:])
    reverse_forward = interpret(vjp(t, [0, 1], seeds=False), [*x, *v])[1:]
    for p, q, r in zip(reverse_reverse, forward_reverse, reverse_forward):
        np.testing.assert_allclose(q, p, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(r, p, rtol=1e-9, atol=1e-10)


def test_gradient_is_cheap() -> None:
    """Baur and Strassen: value and gradient take at most about five times the operations."""
    for seed in range(60):
        fn = simplify(random_program(seed))
        g = simplify(vjp(fn, seeds=False))
        assert len(g.ops) <= 5 * len(fn.ops) + 10


def test_interpreter_refuses_wrong_arguments() -> None:
    fn = function(lambda b, x: x, Type(F64, (2,)))
    with pytest.raises(TypeError, match="takes 1 arrays, got 0"):
        interpret(fn, [])
    with pytest.raises(ValueError, match=r"argument 0 has shape \(3,\), wanted f64\[2\]"):
        interpret(fn, [np.zeros(3)])
    assert interpret(function(lambda b, x: b.logical_not(x), Type(BOOL)), [True])[0] == np.False_
