"""Python loops as the tape records them, rolled and unrolled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tapec import lift
from tapec.dispatch import Dispatcher
from tapec.ir import Function, interpret, verify, vjp, walk
from tapec.ir.passes import simplify
from tapec.trace import Traced
from tapec.transforms import Transform

Array = np.ndarray[Any, Any]


def traced(
    patch: pytest.MonkeyPatch, fn: Callable[..., Any], args: tuple[Any, ...], roll: bool
) -> Traced:
    """``fn`` on ``args``; short loops are rolled too."""
    patch.setattr(lift, "ROLL_OPS", 0 if roll else 10**9)
    patch.setattr(lift, "ROLL_TRIPS", 3)
    patch.setattr(lift, "ROLL_LENGTH", 4)
    dispatcher = Dispatcher(Transform("grad", tuple(range(len(args))), False), "t")
    return dispatcher.trace(fn, dispatcher.flatten(fn, args, {}).flat)


def scans(fn: Function) -> list[Any]:
    return [op for op in walk(fn.block) if op.name == "scan"]


def pullback(fn: Function, n: int) -> Function:
    """Results, then cotangents of the first ``n`` parameters."""
    return simplify(vjp(simplify(fn), list(range(n))))


def evaluate(fn: Function, t: Traced, args: tuple[Any, ...]) -> list[Array]:
    """Run with the arguments, the captures, and fixed numbers for further parameters."""
    given = [*args, *t.captures]
    rng = np.random.default_rng(5)
    given += [rng.normal(size=p.type.shape) for p in fn.params[len(given) :]]
    return interpret(fn, given)


def assert_rolls(
    patch: pytest.MonkeyPatch, fn: Callable[..., Any], args: tuple[Any, ...], order: int = 1
) -> Function:
    """The rolled function computes bit for bit the same, and its derivatives are the same to
    rounding; the rolled function."""
    flat, rolled = (traced(patch, fn, args, roll) for roll in (False, True))
    patch.undo()
    verify(rolled.fn)
    for a, b in zip(evaluate(flat.fn, flat, args), evaluate(rolled.fn, rolled, args), strict=True):
        np.testing.assert_array_equal(a, b)
    f, g = flat.fn, rolled.fn
    for _ in range(order):
        f, g = pullback(f, len(args)), pullback(g, len(args))
        verify(g)
        for a, b in zip(evaluate(f, flat, args), evaluate(g, rolled, args), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    return rolled.fn
