"""Checks shared by the ``test_surface_*`` files: a function of arrays, traced, against NumPy.

Value, dtype and shape; forward against reverse mode; forward mode against central differences
of the plain function; the gradient of a batch against those of its points; second order:
forward-over-reverse against reverse-over-reverse.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapec.ir import Builder, Function, interpret, jvp, verify, vjp
from tapec.ir.batch import batch
from tapec.ir.core import Type, dtype_of, walk
from tapec.ir.passes import simplify
from tapec.lift import lift
from tapec.tape import Tape, is_traced

Array = np.ndarray[Any, Any]


def as_list(out: Any) -> list[Any]:
    return list(out) if isinstance(out, (tuple, list)) else [out]


def traced(fn: Callable[..., Any], *args: Any) -> tuple[Function, list[Any]]:
    """``fn`` as IR and the values of its parameters."""
    with Tape("case") as tape:
        tracers = []
        for k, a in enumerate(args):
            array = np.asarray(a)
            weak = isinstance(a, (float, int))
            kind = Type(dtype_of(array.dtype), array.shape)
            tracers.append(tape.input(kind, a, f"x{k}", weak=weak))
        outs = as_list(fn(*tracers))
        assert any(is_traced(o) for o in outs), "nothing was traced"
        made = lift(tape, outs, "case")
    return verify(made), [*map(np.asarray, args), *[c.obj for c in tape.captures]]


def copies(args: Any) -> list[Any]:
    return [a.copy() if isinstance(a, np.ndarray) else a for a in args]


def check_value(fn: Callable[..., Any], *args: Any, rtol: float = 1e-12, dtype: bool = True) -> Any:
    wanted = as_list(fn(*copies(args)))
    made, values = traced(fn, *args)
    got = interpret(made, values)
    assert len(got) == len(wanted)
    for g, w in zip(got, wanted):
        w = np.asarray(w)
        if w.dtype == object:
            w = w.astype(float)
        assert g.shape == w.shape, (g.shape, w.shape)
        if dtype:
            assert g.dtype == w.dtype, (g.dtype, w.dtype)
        tol = rtol if w.dtype != np.float32 else 3e-6
        np.testing.assert_allclose(g, w, rtol=tol, atol=tol)
    return made, values


def loss_of(made: Function, weights: list[Array]) -> Function:
    """Σ weights · results, over the floating-point results."""
    b = Builder()
    results = b.inline(made, [b.param(p.type) for p in made.params])
    total = None
    floats = [r for r in results if r.type.dtype.kind == "f"]
    for r, w in zip(floats, weights):
        term = b.reduce_sum(b.mul(r, b.constant(w, r.type)), range(r.type.ndim))
        total = term if total is None else b.add(total, term)
    assert total is not None
    return b.function("loss", [total])


def check_batch(gradient: Function, values: list[Any], wrt: list[int]) -> None:
    """``vmap(value_and_grad(f))`` of three near points is a loop."""
    if any(op.name == "guard" for op in walk(gradient.block)):
        return  # the points could take different ways
    points = [
        [np.asarray(v) * (1 + k * 1e-3) if j in wrt else v for j, v in enumerate(values)]
        for k in (-1, 0, 1)
    ]
    axes = [0 if j in wrt else None for j in range(len(values))]
    stacked = [
        np.stack([p[j] for p in points]) if axis == 0 else values[j] for j, axis in enumerate(axes)
    ]
    lanes = interpret(verify(batch(gradient, axes, 3)), stacked)
    alone = [interpret(gradient, p) for p in points]
    for k, lane in enumerate(lanes):
        want = np.stack([one[k] for one in alone])
        assert lane.shape == want.shape and lane.dtype == want.dtype
        size = 1 + float(np.max(np.abs(want), initial=0.0))
        np.testing.assert_allclose(lane, want, rtol=1e-11, atol=1e-12 * size)


def check(
    fn: Callable[..., Any], *args: Any, rtol: float = 1e-12, tol: float = 2e-7, second: bool = True
) -> None:
    """All of the above, by every float64 argument."""
    made, values = check_value(fn, *args, rtol=rtol)
    wrt = [k for k, a in enumerate(args) if np.asarray(a).dtype == np.float64]
    rng = np.random.default_rng(5)
    weights = [rng.normal(size=r.type.shape) for r in made.results if r.type.dtype.kind == "f"]
    if not weights or not wrt:
        return
    loss = loss_of(made, weights)
    gradient = simplify(vjp(loss, wrt, seeds=False))
    tangents = [rng.normal(size=np.shape(args[k])) for k in wrt]
    back = interpret(gradient, values)[1:]
    forward = float(interpret(jvp(loss, wrt), [*values, *tangents])[1])
    reverse = sum(float(np.sum(g * t)) for g, t in zip(back, tangents))
    scale = 1 + sum(float(np.sum(np.abs(g * t))) for g, t in zip(back, tangents))
    assert abs(forward - reverse) <= 1e-12 * scale, (forward, reverse)

    def plain(h: float) -> float:
        moved = copies(args)
        for k, t in zip(wrt, tangents):
            moved[k] = np.asarray(args[k]) + h * t
            if np.ndim(args[k]) == 0:
                moved[k] = float(moved[k])
        outs = [np.asarray(o) for o in as_list(fn(*moved))]
        outs = [o.astype(float) if o.dtype == object else o for o in outs]
        floats = [o for o in outs if o.dtype.kind == "f"]
        return sum(float(np.sum(o * w)) for o, w in zip(floats, weights))

    h = 1e-4
    rough = (plain(h) - plain(-h)) / (2 * h)
    finer = (plain(h / 2) - plain(-h / 2)) / h
    difference = (4 * finer - rough) / 3
    assert abs(difference - forward) <= tol * scale, (difference, forward)
    check_batch(gradient, values, wrt)
    if not second:
        return
    once = Function("g", gradient.params, gradient.ops, gradient.results[1:])
    once = simplify(once)  # what the value alone needs is not differentiated again
    one = interpret(jvp(once, wrt), [*values, *tangents])[len(wrt) :]
    b = Builder()
    found = b.inline(once, [b.param(p.type) for p in once.params])
    total = None
    for g, t in zip(found, tangents):
        term = b.reduce_sum(b.mul(g, b.constant(t, g.type)), range(g.type.ndim))
        total = term if total is None else b.add(total, term)
    assert total is not None
    two = interpret(vjp(b.function("gt", [total]), wrt, seeds=False), values)[1:]
    for u, v in zip(one, two):
        size = 1 + float(np.max(np.abs(u), initial=0.0))
        np.testing.assert_allclose(u, v, rtol=1e-9, atol=1e-10 * size)
