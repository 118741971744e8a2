"""Op entries with regions that branch or repeat: ``cond``, ``scan``, ``while``.

Regions see only their own parameters: what they use from outside is an operand.

``cond(index, *args)`` has one region per branch, ``args → results``.  ``index`` is a bool
(regions: false, true) or an integer, which is clamped to the branches there are.

``scan(*carry, *xs, *consts) {length, n_carry, n_xs, reverse}``: the body maps
``(carry, x[t], consts)`` to ``(carry, y[t])`` for t = 0 … length−1 (downwards if
``reverse``); results are the last carry and the stacked ys.  With ``remat`` (optional)
only the carries are kept for the derivatives, and the rest is computed again.

``while(*carry, *consts) {n_carry, reads, reverse}``: regions ``test: (carry, consts) →
bool`` and ``body: (carry, consts) → (carry, ys)``; repeats the body while the test holds;
the result is the last carry.  For its derivatives an operation may have more *phases*:
loops of as many iterations as the first took, upwards or downwards (``reverse[p]``), each
with carries of its own (``n_carry[p]``) and a body ``(carry, slices, consts) → (carry,
ys)``, where ``reads[p]`` names the slices as (earlier phase, index among its ys).  What a
phase yields (its ys) is kept for later phases on a stack that grows while the loop runs,
and is no result.  Operands: the carries of all phases, then the consts.

    %s = while %x {n_carry=(1), reads=(()), reverse=(false)} (%c: f64[]) {
      ...
      return %more
    } (%c: f64[]) {
      %0 = mul %c, %c : f64[]
      return %0
    } : f64[]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tapec.ir.checks import attr
from tapec.ir.core import BOOL, Attrs, Block, Function, Op, Type, Value
from tapec.ir.opdef import define

if TYPE_CHECKING:
    from tapec.ir.adjoint import AdjointBuilder
    from tapec.ir.batch import BatchBuilder
    from tapec.ir.builder import Builder

__all__ = [
    "REGION_OPS", "Phase", "body_function", "emit_cond", "emit_scan", "emit_while", "evaluate",
    "phases", "scan_parts",
]  # fmt: skip

Types = tuple[Type, ...]
Array = np.ndarray[Any, Any]
#: Runs a block on arrays.
Run = Callable[[Block, Sequence[Array]], list[Array]]

REGION_OPS = frozenset(("cond", "scan", "while"))


def _no_regions(name: str) -> Callable[[Types, Attrs], Types]:
    def infer(types: Types, attrs: Attrs) -> Types:
        raise TypeError(f"{name}: has no regions")

    return infer


def _no_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    raise TypeError("the meaning is the regions', which the interpreter evaluates")


def _param_types(block: Block) -> Types:
    return tuple([p.type for p in block.params])


def _result_types(block: Block) -> Types:
    return tuple([r.type for r in block.results])


def _expect(name: str, what: str, found: Types, wanted: Types) -> None:
    if found != wanted:
        raise TypeError(f"{name}: {what} {list(found)}, expected {list(wanted)}")


# -- cond -------------------------------------------------------------------------------


def _cond_infer(types: Types, attrs: Attrs, regions: tuple[Block, ...]) -> Types:
    if not types or types[0].shape or types[0].dtype.kind not in "bi":
        raise TypeError(f"cond: the index must be a bool or an integer, got {types[:1]}")
    if types[0].dtype is BOOL and len(regions) != 2:
        raise TypeError(f"cond: a bool chooses between 2 regions, got {len(regions)}")
    for k, r in enumerate(regions):
        _expect("cond", f"region {k} takes", _param_types(r), types[1:])
        _expect("cond", f"region {k} gives", _result_types(r), _result_types(regions[0]))
    return _result_types(regions[0])


def _cond_vjp(b: AdjointBuilder, op: Op, cts: Sequence[Value | None]) -> Sequence[Value | None]:
    from tapec.ir.loop_vjp import cond_vjp

    return cond_vjp(b, op, cts)


def _cond_jvp(
    b: AdjointBuilder, op: Op, tangents: Sequence[Value | None]
) -> Sequence[Value | None]:
    from tapec.ir.loop_jvp import cond_jvp

    return cond_jvp(b, op, tangents)


def _cond_batch(b: BatchBuilder, op: Op, xs: Sequence[Value]) -> Sequence[Value]:
    from tapec.ir.batch_loops import cond_batch

    return cond_batch(b, op, xs)


define(
    "cond",
    infer=_no_regions("cond"),
    infer_regions=_cond_infer,
    numpy=_no_numpy,
    vjp=_cond_vjp,
    jvp=_cond_jvp,
    batch=_cond_batch,
    masks=True,
    masks_tangent=True,
    doc="The results of the region that the first operand selects, for the others.",
)


def emit_cond(b: Builder, index: Value, args: Sequence[Value], regions: Sequence[Block]) -> Op:
    return b.emit_op("cond", (index, *args), {}, tuple(regions))


# -- scan -------------------------------------------------------------------------------


def _scan_infer(types: Types, attrs: Attrs, regions: tuple[Block, ...]) -> Types:
    if len(regions) != 1:
        raise TypeError(f"scan: takes one region, got {len(regions)}")
    (body,) = regions
    length, c, x = (attr("scan", attrs, k) for k in ("length", "n_carry", "n_xs"))
    if type(attr("scan", attrs, "reverse")) is not bool:
        raise TypeError(f"scan: attribute 'reverse' must be a bool, got {attrs['reverse']!r}")
    if any(type(n) is not int or n < 0 for n in (length, c, x)) or c + x > len(types):
        raise TypeError(f"scan: wrong numbers {length, c, x} for {len(types)} operands")
    slices = []
    for k, t in enumerate(types[c : c + x]):
        if not t.shape or t.shape[0] != length:
            raise ValueError(f"scan: operand {c + k} of type {t} is not of length {length}")
        slices.append(t.with_shape(t.shape[1:]))
    _expect("scan", "the body takes", _param_types(body), (*types[:c], *slices, *types[c + x :]))
    out = _result_types(body)
    _expect("scan", "the body carries on", out[:c], types[:c])
    return (*out[:c], *[t.with_shape((length, *t.shape)) for t in out[c:]])


def _scan_vjp(b: AdjointBuilder, op: Op, cts: Sequence[Value | None]) -> Sequence[Value | None]:
    from tapec.ir.loop_vjp import scan_vjp

    return scan_vjp(b, op, cts)


def _scan_jvp(
    b: AdjointBuilder, op: Op, tangents: Sequence[Value | None]
) -> Sequence[Value | None]:
    from tapec.ir.loop_jvp import scan_jvp

    return scan_jvp(b, op, tangents)


def _scan_batch(b: BatchBuilder, op: Op, xs: Sequence[Value]) -> Sequence[Value]:
    from tapec.ir.batch_loops import scan_batch

    return scan_batch(b, op, xs)


define(
    "scan",
    infer=_no_regions("scan"),
    infer_regions=_scan_infer,
    numpy=_no_numpy,
    vjp=_scan_vjp,
    jvp=_scan_jvp,
    batch=_scan_batch,
    doc="Repeat the region `length` times with carries, slices of the xs, stacked ys.",
)


def emit_scan(
    b: Builder,
    carry: Sequence[Value],
    xs: Sequence[Value],
    consts: Sequence[Value],
    body: Block,
    length: int,
    reverse: bool = False,
    remat: bool = False,
) -> Op:
    attrs = {"length": length, "n_carry": len(carry), "n_xs": len(xs), "reverse": reverse}
    if remat:
        attrs["remat"] = True
    return b.emit_op("scan", (*carry, *xs, *consts), attrs, (body,))


def scan_parts(op: Op, values: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Operands (or body parameters) of a scan: carries, xs, consts."""
    c, x = op.attrs["n_carry"], op.attrs["n_xs"]
    return list(values[:c]), list(values[c : c + x]), list(values[c + x :])


# -- while ------------------------------------------------------------------------------


class Phase:
    """One phase of a ``while``: ``body`` and the parts of its parameters and results."""

    __slots__ = ("body", "first", "n_carry", "reads", "reverse")

    def __init__(
        self,
        body: Block,
        n_carry: int,
        reads: tuple[tuple[int, int], ...],
        reverse: bool,
        first: int,
    ) -> None:
        self.body = body
        self.n_carry = n_carry
        self.reads = reads
        self.reverse = reverse
        self.first = first  # position of its first carry among the operands (and results)

    @property
    def ys(self) -> tuple[Value, ...]:
        """What one iteration yields."""
        return self.body.results[self.n_carry :]


def phases(op: Op) -> list[Phase]:
    """The phases of a ``while``, the loop itself first."""
    out, first = [], 0
    attrs = op.attrs
    for body, n, reads, reverse in zip(
        op.regions[1:], attrs["n_carry"], attrs["reads"], attrs["reverse"], strict=True
    ):
        out.append(Phase(body, n, reads, reverse, first))
        first += n
    return out


def _while_infer(types: Types, attrs: Attrs, regions: tuple[Block, ...]) -> Types:
    counts, reads, reverse = (attr("while", attrs, k) for k in ("n_carry", "reads", "reverse"))
    n = len(regions) - 1
    if n < 1 or not len(counts) == len(reads) == len(reverse) == n:
        raise TypeError(f"while: {n} bodies for {len(counts)} phases")
    if reads[0] or reverse[0] or sum(counts) > len(types):
        raise TypeError("while: the first phase runs upwards and reads nothing")
    consts = types[sum(counts) :]
    test = regions[0]
    _expect("while", "the test takes", _param_types(test), (*types[: counts[0]], *consts))
    if len(test.results) != 1 or test.results[0].type is not Type(BOOL):
        raise TypeError(f"while: the test gives {list(_result_types(test))}, expected one bool")
    yields: list[Types] = []
    first = 0
    for p, body in enumerate(regions[1:]):
        carry = types[first : first + counts[p]]
        first += counts[p]
        if any(not 0 <= q < p or not 0 <= k < len(yields[q]) for q, k in reads[p]):
            raise TypeError(f"while: phase {p} reads {reads[p]}, which are not there")
        slices = tuple([yields[q][k] for q, k in reads[p]])
        _expect("while", f"body {p} takes", _param_types(body), (*carry, *slices, *consts))
        out = _result_types(body)
        _expect("while", f"body {p} carries on", out[: counts[p]], carry)
        yields.append(out[counts[p] :])
    return types[:first]


def _while_vjp(b: AdjointBuilder, op: Op, cts: Sequence[Value | None]) -> Sequence[Value | None]:
    from tapec.ir.loop_vjp import while_vjp

    return while_vjp(b, op, cts)


def _while_jvp(
    b: AdjointBuilder, op: Op, tangents: Sequence[Value | None]
) -> Sequence[Value | None]:
    from tapec.ir.loop_jvp import while_jvp

    return while_jvp(b, op, tangents)


def _while_batch(b: BatchBuilder, op: Op, xs: Sequence[Value]) -> Sequence[Value]:
    from tapec.ir.batch_loops import while_batch

    return while_batch(b, op, xs)


define(
    "while",
    infer=_no_regions("while"),
    infer_regions=_while_infer,
    numpy=_no_numpy,
    vjp=_while_vjp,
    jvp=_while_jvp,
    batch=_while_batch,
    masks=True,  # what only the body needs is not computed if there is no iteration
    doc="Repeat the second region while the first gives True; further phases follow it.",
)


def emit_while(
    b: Builder,
    test: Block,
    bodies: Sequence[Block],
    carry: Sequence[Sequence[Value]],
    consts: Sequence[Value],
    reads: Sequence[Sequence[tuple[int, int]]] = ((),),
    reverse: Sequence[bool] = (False,),
) -> Op:
    attrs = {
        "n_carry": tuple([len(c) for c in carry]),
        "reads": tuple([tuple(r) for r in reads]),
        "reverse": tuple(reverse),
    }
    operands = (*[v for c in carry for v in c], *consts)
    return b.emit_op("while", operands, attrs, (test, *bodies))


# -- both -------------------------------------------------------------------------------


def body_function(block: Block, name: str = "body") -> Function:
    return Function(name, block.params, block.ops, block.results)


def evaluate(op: Op, operands: Sequence[Array], run: Run) -> list[Array]:
    """The reference semantics: the results of a region operation on arrays."""
    if op.name == "cond":
        k = int(operands[0])
        region = op.regions[min(max(k, 0), len(op.regions) - 1)]
        return run(region, list(operands[1:]))
    return (_run_scan if op.name == "scan" else _run_while)(op, operands, run)


def _run_scan(op: Op, operands: Sequence[Array], run: Run) -> list[Array]:
    (body,) = op.regions
    carry, xs, consts = scan_parts(op, operands)
    c, n = len(carry), op.attrs["length"]
    ys = [np.empty(r.type.shape, r.type.dtype.np) for r in op.results[c:]]
    for t in reversed(range(n)) if op.attrs["reverse"] else range(n):
        out = run(body, [*carry, *[x[t] for x in xs], *consts])
        carry = out[:c]
        for stack, y in zip(ys, out[c:]):
            stack[t] = y
    return [*carry, *ys]


def _run_while(op: Op, operands: Sequence[Array], run: Run) -> list[Array]:
    all_phases = phases(op)
    consts = list(operands[sum(op.attrs["n_carry"]) :])
    stacks: list[list[list[Array]]] = []  # phase, iteration, y
    results: list[Array] = []
    steps = 0
    for p, phase in enumerate(all_phases):
        n = phase.n_carry
        carry = list(operands[phase.first : phase.first + n])
        kept: list[list[Array]] = []
        if p == 0:
            while run(op.regions[0], [*carry, *consts])[0]:
                out = run(phase.body, [*carry, *consts])
                carry = out[:n]
                kept.append(out[n:])
            steps = len(kept)
        else:
            for t in reversed(range(steps)) if phase.reverse else range(steps):
                slices = [stacks[q][t][k] for q, k in phase.reads]
                out = run(phase.body, [*carry, *slices, *consts])
                carry = out[:n]
                kept.append(out[n:])
            if phase.reverse:
                kept.reverse()
        stacks.append(kept)
        results += carry
    return results
