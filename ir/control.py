"""Op entries: ``guard``, ``stop`` and ``call``.

``guard(cond; expected)`` has no result: the kernel fails unless the condition has the
expected value, before any result is visible.  ``stop`` is its operand, but a constant to
derivatives.  ``call(args; name)`` has one region, the body
of the callee, which sees only its own parameters.  Transforms need no rule for ``call``:
they inline it first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tapec.ir.checks import attr, count, kind_one_of
from tapec.ir.core import BOOL, Attrs, Block, Op, Type, Value
from tapec.ir.opdef import Samples, define

if TYPE_CHECKING:
    from tapec.ir.batch import BatchBuilder

__all__ = ["ISOLATED"]

#: ops whose regions see their own parameters only, not the values around them
ISOLATED = frozenset(("call", "cond", "custom", "scan", "while"))

Types = tuple[Type, ...]


def _guard_infer(types: Types, attrs: Attrs) -> Types:
    count("guard", types, 1)
    t = types[0]
    kind_one_of("guard", t, "bi")
    if t.shape:
        raise ValueError(f"guard: the condition must be 0-d, got {t}")
    expected = attr("guard", attrs, "expected")
    if type(expected) is not (bool if t.dtype is BOOL else int):
        raise TypeError(f"guard: expected value {expected!r} does not fit {t}")
    if type(attr("guard", attrs, "message")) is not str:
        raise TypeError(f"guard: attribute 'message' must be a str, got {attrs['message']!r}")
    return ()


def _guard_batch(b: BatchBuilder, op: Op, xs: Sequence[Value]) -> Sequence[Value]:
    """All lanes take the recorded path."""
    condition = b.spread(xs[0])
    holds = b.eq(condition, b.like(op.attrs["expected"], condition))
    if b.active is not None:
        holds = b.logical_or(holds, b.logical_not(b.active))
    b.guard(b.reduce("all", holds, (0,)), True, op.attrs["message"])
    return ()


define(
    "guard",
    infer=_guard_infer,
    # That the guard holds is checked by whoever evaluates it: only that one can stop.
    numpy=lambda arrays, attrs: (),
    batch=_guard_batch,
    effect=True,
    nondifferentiable=True,
    samples=Samples(
        cases=(
            (("bool[]",), {"expected": True, "message": "x > 0"}),
            (("i64[]",), {"expected": 3, "message": ""}),
        )
    ),
    doc="The kernel fails with `message`'s place unless the operand equals `expected`.",
)


def _stop_infer(types: Types, attrs: Attrs) -> Types:
    count("stop", types, 1)
    return types


define(
    "stop",
    infer=_stop_infer,
    numpy=lambda arrays, attrs: arrays[0],
    llvm="own:stop",
    elementwise=True,
    nondifferentiable=True,
    cost=0,
    samples=Samples(ulp=0.0),
    doc="The operand, a constant to derivatives.",
)


def _call_infer(types: Types, attrs: Attrs) -> Types:
    raise TypeError("call: takes one region, got none")


def _call_infer_regions(types: Types, attrs: Attrs, regions: tuple[Block, ...]) -> Types:
    if len(regions) != 1:
        raise TypeError(f"call: takes one region, got {len(regions)}")
    if type(attr("call", attrs, "name")) is not str:
        raise TypeError(f"call: attribute 'name' must be a str, got {attrs['name']!r}")
    declared = tuple([p.type for p in regions[0].params])
    if declared != types:
        raise TypeError(f"call: {attrs['name']} takes {declared}, got {types}")
    return tuple([r.type for r in regions[0].results])


def _call_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    raise TypeError("call: the meaning is the region's, which the interpreter evaluates")


define(
    "call",
    infer=_call_infer,
    infer_regions=_call_infer_regions,
    numpy=_call_numpy,
    doc="The results of the region (a function's body) for the operands as its parameters.",
)
