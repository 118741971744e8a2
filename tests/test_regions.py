"""Operations with regions: reference, derivatives and native code against unrolled functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from structured import LARGE, SCALAR, SMALL, Generator, native, unrolled

from tapec.codegen import dump
from tapec.ir import (
    BOOL,
    F64,
    I64,
    Block,
    Builder,
    Function,
    Type,
    Value,
    VerifyError,
    format_function,
    interpret,
    jvp,
    parse,
    verify,
    vjp,
)
from tapec.ir.interp import GuardFailed
from tapec.ir.loops import emit_cond, emit_scan, emit_while
from tapec.ir.passes import simplify

#: random programs in the suite, each to second order
PROGRAMS = 600
GROUP = 20


def close(got: Any, want: Any) -> None:
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


def block(types: list[Type], make: Callable[..., Any]) -> Block:
    b = Builder()
    params = [b.param(t) for t in types]
    return b.block(make(b, *params))


def gradient(fn: Function) -> Function:
    """The cotangents of all parameters alone."""
    g = vjp(fn, seeds=False)
    return Function("g", g.params, g.ops, g.results[len(fn.results) :])


# -- random programs ----------------------------------------------------------------------


@pytest.mark.parametrize("group", range(PROGRAMS // GROUP))
def test_random_programs(group: int) -> None:
    for seed in range(group * GROUP, (group + 1) * GROUP):
        large = seed % 4 == 0
        make = Generator(seed, large)
        fn = make.function(2 if seed % 2 else 1)
        args = make.arguments()
        flat = unrolled(verify(fn), args)
        close(interpret(fn, args), interpret(flat, args))
        fn, flat = vjp(fn, seeds=False), vjp(flat, seeds=False)
        check(fn, flat, args, compiled=seed % 4 == 1 or large)
        more = [make.rng.normal(size=t.shape) for t in (SCALAR, SMALL, LARGE)]
        if seed % 2:
            fn, flat = jvp(simplify(fn)), jvp(simplify(flat))
        else:
            fn, flat = (
                vjp(Function("g", f.params, f.ops, f.results[1:]))
                for f in (simplify(fn), simplify(flat))
            )
        check(fn, flat, args + more, compiled=seed % 10 == 0)


def check(fn: Function, flat: Function, args: list[Any], compiled: bool) -> None:
    want = interpret(flat, args)
    fn = verify(simplify(verify(fn)))
    close(interpret(fn, args), want)
    if compiled:
        close(native(fn, args), want)


@pytest.mark.parametrize("seed", range(3))
def test_text_round_trip(seed: int) -> None:
    fn = simplify(vjp(Generator(seed).function(), seeds=False))
    text = format_function(fn)
    assert format_function(parse(text)) == text
    assert dump(fn, "loops")


# -- third order ------------------------------------------------------------------------


def squares(t: Type, n: int) -> Function:
    b = Builder()
    x = b.param(t, "x")
    body = block([t], lambda b, c: [b.mul(c, c)])
    return b.function("squares", emit_scan(b, [x], [], [], body, n).results)


@pytest.mark.parametrize("modes", ["rrr", "frf", "fff", "rrf", "frr", "rfr", "ffr", "rff"])
def test_third_derivative_of_scan(modes: str) -> None:
    fn = squares(Type(F64), 4)
    for mode in modes:
        if mode == "r":
            fn = gradient(fn)
        else:
            b = Builder()
            x = b.param(Type(F64), "x")
            pushed = jvp(fn)
            (_, out) = b.inline(pushed, [x, b.constant(1.0, x.type)])
            fn = b.function("d", [out])
        fn = verify(simplify(fn))
    want = 16 * 15 * 14 * 0.95**13
    close(interpret(fn, [0.95]), [want])
    close(native(fn, [0.95]), [want])


def doubling(t: Type) -> Function:
    """x → sum of x doubled (with a sine) until its first element passes 20."""
    b = Builder()
    x = b.param(t, "x")

    def test(b: Builder, c: Value) -> list[Value]:
        return [b.lt(b.reduce("max", b.abs(c), [0]), b.constant(20.0, Type(F64)))]

    def step(b: Builder, c: Value) -> list[Value]:
        return [b.add(b.mul(c, b.constant(2.0, t)), b.mul(b.unary("sin", c), c))]

    op = emit_while(b, block([t], test), [block([t], step)], [[x]], [])
    return b.function("doubling", [b.reduce_sum(op.results[0], [0])])


@pytest.mark.parametrize("n", [2, 40])
@pytest.mark.parametrize("start", [0.3, 5.0, 30.0])
def test_while_to_third_order(n: int, start: float) -> None:
    rng = np.random.default_rng(0)
    fn = doubling(Type(F64, (n,)))
    args: list[Any] = [start + rng.uniform(0, 0.5, n)]
    flat = unrolled(fn, args)
    for _ in range(3):
        fn, flat = (simplify(vjp(f, [0], [0])) for f in (fn, flat))
        fn, flat = (Function("g", f.params, f.ops, f.results[-1:]) for f in (fn, flat))
        args.append(rng.normal(size=fn.params[-1].type.shape))
        want = interpret(flat, args)
        close(interpret(verify(fn), args), want)
        close(native(fn, args), want)


# -- single facts -----------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 2, 5])
@pytest.mark.parametrize("size", [3, 30])
@pytest.mark.parametrize("reverse", [False, True])
def test_lengths(n: int, size: int, reverse: bool) -> None:
    t = Type(F64, (size,))
    b = Builder()
    x, k = b.param(t), b.param(Type(F64, (n, size)))
    body = block([t, t], lambda b, c, v: [b.add(b.unary("sin", c), v), b.mul(c, v)])
    op = emit_scan(b, [x], [k], [], body, n, reverse)
    total = b.reduce_sum(op.results[0], [0])
    if n:
        total = b.add(total, b.reduce_sum(op.results[1], [0, 1]))
    fn = vjp(b.function("f", [total, *op.results]), None, [0], seeds=False)
    rng = np.random.default_rng(0)
    args = [rng.normal(size=size), rng.normal(size=(n, size))]
    want = interpret(fn, args)
    close(native(fn, args), want)
    close(native(simplify(fn), args), want)


def test_index_operand_and_dtypes() -> None:
    b = Builder()
    x = b.param(Type(F64))
    flag, count = b.constant(True, Type(BOOL)), b.constant(3, Type(I64))

    def step(b: Builder, f: Value, n: Value, s: Value, i: Value) -> list[Value]:
        return [
            b.logical_not(f),
            b.add(n, i),
            b.add(s, b.select(f, b.convert(i, F64), s)),
            f,
        ]

    types = [Type(BOOL), Type(I64), Type(F64), Type(I64)]
    op = emit_scan(b, [flag, count, x], [b.iota((5,), 0)], [], block(types, step), 5)
    fn = b.function("f", op.results)
    want = interpret(fn, [0.5])
    assert want[1] == 13 and not want[0]
    for f in (fn, simplify(fn)):
        for got, expected in zip(native(f, [0.5]), want):
            assert np.array_equal(got, expected) and got.dtype == expected.dtype


def test_guard_in_a_body() -> None:
    for size in (2, 40):
        t = Type(F64, (size,))
        b = Builder()
        x = b.param(t)

        def step(b: Builder, c: Value) -> list[Value]:
            b.guard(b.lt(b.reduce("max", c, [0]), b.constant(100.0, Type(F64))), True, "small")
            return [b.mul(c, c)]

        op = emit_scan(b, [x], [], [], block([t], step), 3)
        fn = simplify(vjp(b.function("f", [b.reduce_sum(op.results[0], [0])]), seeds=False))
        close(native(fn, [np.full(size, 1.5)]), interpret(fn, [np.full(size, 1.5)]))
        with pytest.raises(GuardFailed):
            interpret(fn, [np.full(size, 50.0)])
        with pytest.raises(AssertionError, match="returned"):
            native(fn, [np.full(size, 50.0)])


def scans(fn: Function) -> list[Any]:
    return [op for op in fn.ops if op.name in ("scan", "while", "cond")]


def test_loop_invariants_are_not_stored() -> None:
    """y ← sin(y · exp(z)) with z fixed: exp(z) is computed once, and only y is kept."""
    t = Type(F64)
    b = Builder()
    y, z = b.param(t, "y"), b.param(t, "z")
    body = block([t, t], lambda b, c, k: [b.unary("sin", b.mul(c, b.exp(k)))])
    fn = b.function("f", emit_scan(b, [y], [], [z], body, 100).results)
    g = simplify(vjp(simplify(fn), seeds=False))
    assert [op.name for op in g.ops].count("exp") == 1
    forward, backward = scans(g)
    stacked = [r for r in forward.results if r.type.shape == (100,)]
    assert len(stacked) <= 2
    assert not any(op.name == "exp" for s in (forward, backward) for op in s.regions[0].ops)
    close(native(g, [0.3, 0.2]), interpret(unrolled(g, [0.3, 0.2]), [0.3, 0.2]))


def test_unused_parts_are_dropped() -> None:
    t = Type(F64)
    b = Builder()
    x, w = b.param(t), b.param(Type(F64, (50,)))
    types = [t, Type(F64, (50,)), t]
    body = block(types, lambda b, c, u, k: [b.mul(c, c), b.unary("sin", u), b.mul(c, k), u])
    op = emit_scan(b, [x, w], [], [x], body, 7)
    fn = simplify(b.function("f", [op.results[0]]))
    (scan,) = scans(fn)
    assert len(scan.operands) == 1 and len(scan.results) == 1
    g = vjp(fn, seeds=False)
    assert not any(r.type.shape[-1:] == (50,) for op in g.ops for r in op.results if op.regions)


def test_unchanged_carry_becomes_an_operand() -> None:
    t = Type(F64)
    b = Builder()
    x, k = b.param(t), b.param(t)
    body = block([t, t], lambda b, c, u: [b.mul(c, u), u])
    op = emit_scan(b, [x, k], [], [], body, 3)
    fn = simplify(b.function("f", op.results))
    (scan,) = scans(fn)
    assert scan.attrs["n_carry"] == 1 and fn.results[1] is fn.params[1]


def test_branch_not_taken_does_not_poison() -> None:
    t = Type(F64)
    b = Builder()
    x = b.param(t)
    regions = [
        block([t], lambda b, v: [b.constant(0.0, t)]),
        block([t], lambda b, v: [b.unary("sqrt", v)]),
    ]
    op = emit_cond(b, b.gt(x, b.constant(0.0, t)), [x], regions)
    fn = simplify(vjp(b.function("f", op.results), seeds=False))
    for v, d in ((0.0, 0.0), (4.0, 0.25), (-1.0, 0.0)):
        close(native(fn, [v])[1:], [d])


def test_unused_last_step_does_not_poison() -> None:
    """The carry of the last step is not used, and its derivative there is infinite."""
    t = Type(F64)
    b = Builder()
    x = b.param(t)
    xs = b.constant(np.array([1.0, 2.0, 0.0]), Type(F64, (3,)))
    body = block([t, t], lambda b, c, v: [b.unary("sqrt", b.mul(c, v)), c])
    op = emit_scan(b, [x], [xs], [], body, 3)
    fn = b.function("f", [b.reduce_sum(op.results[1], [0])])
    g = simplify(vjp(fn, seeds=False))
    want = interpret(vjp(unrolled(fn, [3.0]), seeds=False), [3.0])
    assert np.isfinite(want[1])
    close(native(g, [3.0]), want)


@pytest.mark.parametrize("text", ["carries", "bool", "index"])
def test_errors(text: str) -> None:
    t = Type(F64)
    b = Builder()
    x = b.param(t)
    with pytest.raises((TypeError, ValueError), match=text):
        if text == "carries":
            emit_scan(b, [x], [], [], block([t], lambda b, c: [b.lt(c, c)]), 3)
        elif text == "bool":
            same = block([t], lambda b, c: [c])
            emit_while(b, same, [same], [[x]], [])
        else:
            same = block([], lambda b: [])
            emit_cond(b, x, [], [same, same])


def test_regions_are_isolated() -> None:
    t = Type(F64)
    b = Builder()
    x = b.param(t)
    body = block([t], lambda inner, c: [inner.mul(c, x)])
    op = emit_scan(b, [x], [], [], body, 3)
    with pytest.raises(VerifyError, match="not defined"):
        verify(b.function("f", op.results))


@pytest.mark.parametrize("n", [2, 40])
def test_value_and_gradient_run_a_while_once(n: int) -> None:
    from tapec.codegen import make_program
    from tapec.codegen.merge import merged_loops

    fn = simplify(vjp(simplify(doubling(Type(F64, (n,)))), seeds=False))
    program = make_program(fn)
    assert len(merged_loops(program.fn.ops, program.scalar)) == 1
    x = np.linspace(0.3, 0.6, n)
    close(native(fn, [x]), interpret(fn, [x]))
    close(native(fn, [x + 50]), interpret(fn, [x + 50]))


@pytest.mark.parametrize("n", [2, 40])
def test_guard_in_a_while_that_records(n: int) -> None:
    t = Type(F64, (n,))
    b = Builder()
    x = b.param(t)

    def largest(b: Builder, c: Value) -> Value:
        return b.reduce("max", c, [0])

    def step(b: Builder, c: Value) -> list[Value]:
        b.guard(b.gt(largest(b, c), b.constant(1.0, Type(F64))), True, "above")
        return [b.mul(c, c)]

    test = block([t], lambda b, c: [b.lt(largest(b, c), b.constant(1e3, Type(F64)))])
    op = emit_while(b, test, [block([t], step)], [[x]], [])
    fn = simplify(vjp(b.function("f", [b.reduce_sum(op.results[0], [0])]), seeds=False))
    good = np.linspace(1.2, 1.6, n)
    close(native(fn, [good]), interpret(fn, [good]))
    with pytest.raises(AssertionError, match="returned 1"):
        native(fn, [good * 0.5])
