"""Sweep over every elementwise operation of the table.

Values: the interpreter against the NumPy rule.  Derivatives: orders 1 to 3 against SymPy's
derivative of the operation's own SymPy form, reverse against forward mode, and reverse
mode against central differences.  This file names no operation.
"""

from __future__ import annotations

import itertools
import zlib
from typing import Any

import numpy as np
import pytest
import sympy as sp

from tapec.ir import (
    BOOL,
    F32,
    F64,
    I32,
    I64,
    OPS,
    Builder,
    Function,
    OpDef,
    Type,
    dtype_of,
    interpret,
    jvp,
    vjp,
)

ENTRIES = sorted((e for e in OPS.values() if e.elementwise), key=lambda e: e.name)
SHAPES = [(), (1,), (0,), (4,), (2, 3)]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-300, 1e300, -1e300, np.inf, -np.inf, np.nan]


def attr_sets(entry: OpDef) -> list[dict[str, Any]]:
    sets: list[dict[str, Any]] = []
    for _, attrs in entry.samples.cases:
        if attrs not in sets:
            sets.append(attrs)
    return sets or [{}]


def signatures(entry: OpDef) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Every combination of operand dtypes and sampled attributes that the type rule takes."""
    out = []
    for d in (BOOL, I32, I64, F32, F64):
        for dtypes in ((d,), (d, d), (BOOL, d, d), (d, d, d), (d, d, d, d)):
            for attrs in attr_sets(entry):
                try:
                    entry.infer(tuple(Type(t, (2,)) for t in dtypes), attrs)
                except (TypeError, ValueError):
                    continue
                out.append((dtypes, attrs))
    return out


def build(entry: OpDef, dtypes: tuple[Any, ...], attrs: dict[str, Any], shape: Any) -> Function:
    b = Builder()
    xs = tuple(b.param(Type(d, shape), "xyzw"[k]) for k, d in enumerate(dtypes))
    return b.function(entry.name, [b.emit(entry.name, xs, attrs)])


def interval(entry: OpDef, k: int) -> tuple[float, float]:
    low, high = entry.samples.low, entry.samples.high
    return (
        low[k] if isinstance(low, tuple) else low,
        high[k] if isinstance(high, tuple) else high,
    )


def draw(entry: OpDef, dtypes: tuple[Any, ...], shape: Any, rng: Any) -> list[np.ndarray]:
    arrays = []
    for k, d in enumerate(dtypes):
        low, high = interval(entry, k)
        if d.kind == "b":
            a = rng.random(shape) < 0.5
        elif d.kind == "i":
            a = rng.integers(int(low), int(high) + 1, shape)
        else:
            a = rng.uniform(low, high, shape)
        arrays.append(np.asarray(a, d.np))
    return arrays


def rng_of(name: str) -> Any:
    return np.random.default_rng(zlib.crc32(name.encode()))


def differentiable(entry: OpDef) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The f64 signatures through which a derivative may pass."""
    found = []
    for dtypes, attrs in signatures(entry):
        if entry.name == "stop":  # its derivative is not that of its value, on purpose
            continue
        (out,) = entry.infer(tuple(Type(t) for t in dtypes), attrs)
        if F64 in dtypes and out.dtype is F64:
            found.append((dtypes, attrs))
    return found


def known(entry: OpDef, dtypes: tuple[Any, ...]) -> list[int]:
    """The operands by which the entry has a derivative rule."""
    return [k for k, d in enumerate(dtypes) if d.kind == "f" and k not in entry.unknown]


DERIVABLE = [e for e in ENTRIES if differentiable(e)]
by_name = {"ids": lambda e: e.name}


@pytest.mark.parametrize("entry", ENTRIES, **by_name)
def test_entry_is_complete(entry: OpDef) -> None:
    assert entry.llvm is not None
    assert signatures(entry), "no operand types are accepted"
    ways = [entry.nondifferentiable, entry.partials is not None, entry.vjp is not None]
    assert any(ways) and not (ways[0] and any(ways[1:])), "one kind of derivative rule"
    if entry.vjp is not None:
        assert entry.jvp is not None or entry.partials is not None
    if entry.commutative:
        assert entry.partials is None or len(differentiable(entry)[0][0]) == 2


@pytest.mark.parametrize("entry", ENTRIES, **by_name)
def test_wrong_operands_are_refused(entry: OpDef) -> None:
    for dtypes, attrs in signatures(entry)[:2]:
        types = tuple(Type(d, (2,)) for d in dtypes)
        with pytest.raises(TypeError, match=entry.name):
            entry.infer((), attrs)
        with pytest.raises(TypeError, match=entry.name):
            entry.infer((*types, *types), attrs)
        if len(types) > 1:
            with pytest.raises(ValueError, match="shape"):
                entry.infer((*types[:-1], types[-1].with_shape((3,))), attrs)
            other = types[-1].with_dtype(F32 if types[-1].dtype is F64 else F64)
            with pytest.raises(TypeError, match="dtype"):
                entry.infer((*types[:-1], other), attrs)


@pytest.mark.parametrize("entry", ENTRIES, **by_name)
def test_value(entry: OpDef) -> None:
    """The interpreter gives NumPy's numbers, in the type that is inferred."""
    rng = rng_of(entry.name)
    for dtypes, attrs in signatures(entry):
        for shape in SHAPES:
            fn = build(entry, dtypes, attrs, shape)
            arrays = draw(entry, dtypes, shape, rng)
            (out,) = interpret(fn, arrays)
            with np.errstate(all="ignore"):
                wanted = np.asarray(entry.numpy(arrays, attrs))
            assert dtype_of(wanted.dtype) is fn.results[0].type.dtype, (dtypes, attrs)
            assert out.shape == shape and out.dtype == wanted.dtype
            np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e.commutative], **by_name)
def test_commutative(entry: OpDef) -> None:
    grid = np.array(list(itertools.product(SPECIAL, SPECIAL))).T
    for dtypes, attrs in signatures(entry):
        with np.errstate(all="ignore"):
            x, y = (a.astype(d.np) for a, d in zip(grid, dtypes))
        one = interpret(build(entry, dtypes, attrs, x.shape), [x, y])
        two = interpret(build(entry, dtypes, attrs, x.shape), [y, x])
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("entry", DERIVABLE, **by_name)
def test_special_values_do_not_break_derivatives(entry: OpDef) -> None:
    """Any number may come out, but rules must build and run, and keep the dtype."""
    for dtypes, attrs in signatures(entry):
        if dtypes[-1].kind != "f" or (entry.unknown and entry.samples.ulp > 500):
            continue  # some of SciPy's functions take minutes at huge orders
        values = SPECIAL if len(dtypes) < 4 else SPECIAL[::3]
        grid = np.array(list(itertools.product(values, repeat=len(dtypes)))).T
        with np.errstate(all="ignore"):
            arrays = [a.astype(d.np) for a, d in zip(grid, dtypes)]
        fn = build(entry, dtypes, attrs, arrays[0].shape)
        if not fn.results[0].type.dtype.is_inexact:
            continue
        seed = np.ones(arrays[0].shape)
        wrt = known(entry, dtypes)
        if wrt:
            for a in interpret(vjp(fn, wrt), [*arrays, seed])[1:]:
                assert a.dtype == dtypes[-1].np


def grad_of(fn: Function, k: int) -> Function:
    """The derivative of a scalar function by parameter ``k``, nothing else."""
    g = vjp(fn, [k], seeds=False)
    return Function(f"d{k}{fn.name}", g.params, g.ops, g.results[1:])


def tangent_of(fn: Function, k: int) -> Function:
    """The same by forward mode."""
    g = jvp(fn, [k])
    b = Builder()
    xs = [b.param(p.type) for p in fn.params]
    out = b.inline(g, [*xs, b.like(1, xs[k])])
    return b.function(f"t{k}{fn.name}", out[1:])


def flatten_steps(expr: Any) -> Any:
    """Steps are flat away from their jumps: derivatives of floor and the like are 0."""
    steps = (sp.Derivative, sp.Subs, sp.DiracDelta)
    return expr.replace(lambda e: isinstance(e, steps), lambda e: sp.Integer(0))


def sympy_form(entry: OpDef, symbols: list[Any], attrs: dict[str, Any]) -> Any:
    assert entry.sympy is not None
    return entry.sympy(sp, *symbols, **attrs)


@pytest.mark.parametrize("entry", [e for e in DERIVABLE if e.sympy is not None], **by_name)
def test_derivatives_against_sympy(entry: OpDef) -> None:
    rng = rng_of(entry.name)
    for dtypes, attrs in differentiable(entry):
        inexact = [k for k, d in enumerate(dtypes) if d.kind == "f"]
        for point in range(2):
            arrays = draw(entry, dtypes, (), rng)
            symbols = [
                sp.Symbol(f"x{k}", real=True) if d.kind == "f" else sp.sympify(bool(point))
                for k, d in enumerate(dtypes)
            ]
            args = [a if d.kind == "f" else np.bool_(point) for a, d in zip(arrays, dtypes)]
            subs = {symbols[k]: sp.Float(float(args[k]), 40) for k in inexact}
            expr = sympy_form(entry, symbols, attrs)
            layer = {(): (build(entry, dtypes, attrs, ()), expr)}
            for order in (1, 2, 3):
                following = {}
                for path, (fn, expr) in layer.items():
                    for k in known(entry, dtypes):
                        if path and k < path[-1]:
                            continue  # partial derivatives commute
                        # The last step alternates between the modes.
                        step = tangent_of if (order + k + point) % 2 else grad_of
                        dfn = step(fn, k)
                        dexpr = flatten_steps(expr.diff(symbols[k]))
                        following[(*path, k)] = (dfn, dexpr)
                        wanted = float(dexpr.evalf(30, subs=subs))
                        (got,) = interpret(dfn, args)
                        assert got == pytest.approx(wanted, rel=2e-12, abs=1e-13), (
                            f"{entry.name}{attrs} at {args}: derivative {(*path, k)}"
                        )
                layer = following


@pytest.mark.parametrize("dtype", [F32, F64], ids=repr)
@pytest.mark.parametrize("entry", DERIVABLE, **by_name)
def test_modes_and_differences_agree(entry: OpDef, dtype: Any) -> None:
    """<ct, J t> = <Jᵀ ct, t> = the central difference along t."""
    rng = rng_of(entry.name)
    if entry.samples.ulp > 1e5:
        pytest.skip("SciPy's values are too coarse for differences")
    for dtypes, attrs in signatures(entry):
        if dtypes[-1] is not dtype:
            continue
        fn = build(entry, dtypes, attrs, (5,))
        out = fn.results[0].type.dtype
        if not out.is_inexact:
            continue
        x = draw(entry, dtypes, (5,), rng)
        wrt = known(entry, dtypes)
        if not wrt:
            continue
        t = [
            rng.standard_normal(5).astype(d.np) if k in wrt else None for k, d in enumerate(dtypes)
        ]
        ct = rng.standard_normal(5).astype(out.np)
        tangents = [a for a in t if a is not None]
        value, *grads = interpret(vjp(fn, wrt), [*x, ct])
        value2, dz = interpret(jvp(fn, wrt), [*x, *tangents])
        np.testing.assert_array_equal(value, value2)
        assert all(g.dtype == a.dtype for g, a in zip(grads, tangents))
        lowest = min(dtype.bits, out.bits)
        tol = 1e-12 if lowest == 64 else 1e-5
        scale = sum(float(np.abs(g * a).sum()) for g, a in zip(grads, tangents)) + 1.0
        forward = float(np.dot(ct, dz))
        backward = sum(float(np.dot(g, a)) for g, a in zip(grads, tangents))
        assert forward == pytest.approx(backward, abs=tol * scale)
        if lowest == 64:
            h = 1e-6
            moved = [
                interpret(fn, [a if b is None else a + s * b for a, b in zip(x, t)])[0]
                for s in (h, -h)
            ]
            difference = float(np.dot(ct, (moved[0] - moved[1]) / (2 * h)))
            assert difference == pytest.approx(backward, abs=1e-7 * scale)
