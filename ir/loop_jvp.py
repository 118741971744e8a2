"""Forward mode of ``cond``, ``scan`` and ``while``: the same operation on pairs.

The carries of the new operation are those of the old one and the tangents of those that
have one.  It takes the place of the old operation, whose results are among its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from tapec.ir.adjoint import AdjointBuilder
from tapec.ir.builder import Builder
from tapec.ir.core import Block, Function, Op, Value, walk
from tapec.ir.jvp import jvp
from tapec.ir.loop_vjp import carried_active
from tapec.ir.loops import (
    body_function,
    emit_cond,
    emit_scan,
    emit_while,
    phases,
    scan_parts,
)
from tapec.ir.opdef import OPS

__all__ = ["cond_jvp", "scan_jvp", "while_jvp"]

MaybeValue = Value | None


class _Push:
    """A body and its tangents: ``wrt``/``out``, the active parameters and results."""

    __slots__ = ("body", "fn", "out", "slots", "wrt")

    def __init__(self, body: Function, wrt: set[int], out: set[int], masked: bool) -> None:
        self.body = body
        self.wrt = sorted(k for k in wrt if body.params[k].type.dtype.is_inexact)
        self.out = sorted(out)
        self.fn = jvp(body, self.wrt, masked=masked)
        inexact = [k for k, r in enumerate(body.results) if r.type.dtype.is_inexact]
        #: result position → position of its tangent among the results of ``fn``
        self.slots = {k: len(body.results) + i for i, k in enumerate(inexact)}

    def tangents(
        self, b: Builder, params: list[Value], tangents: dict[int, Value]
    ) -> tuple[list[Value], dict[int, Value]]:
        """The results, and the tangents of those that are active."""
        found = b.inline(self.fn, [*params, *[tangents[k] for k in self.wrt]])
        return found[: len(self.body.results)], {k: found[self.slots[k]] for k in self.out}


def _masked(b: AdjointBuilder, bodies: Sequence[Function], tangents: Sequence[MaybeValue]) -> bool:
    if any(t is not None and t in b.masked for t in tangents):
        return True
    return any(OPS[op.name].masks_tangent for body in bodies for op in walk(body.block))


def _replace(b: AdjointBuilder, op: Op) -> None:
    """Take the primal operation, which stands last, back."""
    if b.ops[-1] is not op:
        raise AssertionError("forward mode emits the tangents of an operation right after it")
    b.ops.pop()


def scan_jvp(b: AdjointBuilder, op: Op, tangents: Sequence[MaybeValue]) -> Sequence[MaybeValue]:
    body = body_function(op.regions[0])
    carry, xs, consts = scan_parts(op, op.operands)
    c, x = len(carry), len(xs)
    active, out = carried_active(body, {k for k, t in enumerate(tangents) if t is not None}, c)
    # a carry may start with a tangent and lose it
    out |= {k for k in active if k < c}
    masked = _masked(b, [body], tangents)
    push = _Push(body, active, out, masked)
    _replace(b, op)
    first = [k for k in push.wrt if k < c]
    second = [k for k in push.wrt if c <= k < c + x]
    third = [k for k in push.wrt if k >= c + x]

    one = Builder(op.loc)

    def params(group: list[int], lo: int, hi: int) -> tuple[list[Value], dict[int, Value]]:
        plain = [one.param(p.type, p.hint) for p in body.params[lo:hi]]
        return plain, {k: one.param(body.params[k].type) for k in group}

    p1, t1 = params(first, 0, c)
    p2, t2 = params(second, c, c + x)
    p3, t3 = params(third, c + x, len(body.params))
    results, dz = push.tangents(one, [*p1, *p2, *p3], {**t1, **t2, **t3})
    ys = [k for k in push.out if k >= c]
    block = one.block([*results[:c], *[dz[k] for k in first], *results[c:], *[dz[k] for k in ys]])

    def tangent(k: int) -> Value:
        t = tangents[k]
        return b.zeros(op.operands[k].type) if t is None else t

    made = emit_scan(
        b,
        [*carry, *map(tangent, first)],
        [*xs, *map(tangent, second)],
        [*consts, *map(tangent, third)],
        block,
        op.attrs["length"],
        op.attrs["reverse"],
        op.attrs.get("remat", False),
    )
    n_y = len(op.results) - c
    middle = c + len(first)
    primal = [*made.results[:c], *made.results[middle : middle + n_y]]
    _stand_for(b, op, primal)
    found: list[MaybeValue] = [None] * len(op.results)
    for k, t in zip([*first, *ys], [*made.results[c:middle], *made.results[middle + n_y :]]):
        found[k] = t
        if masked:
            b.mask(t)
    return found


def _stand_for(b: AdjointBuilder, op: Op, values: Sequence[Value]) -> None:
    """From now on ``values`` are the results of ``op``."""
    stand_in = Op("stand_in", (), (), {}, (), None)
    stand_in.results = tuple(values)
    b.replaced[op] = stand_in
    for old, new in zip(op.results, values):
        new.hint = old.hint


def cond_jvp(b: AdjointBuilder, op: Op, tangents: Sequence[MaybeValue]) -> Sequence[MaybeValue]:
    index, args = op.operands[0], op.operands[1:]
    bodies = [body_function(r) for r in op.regions]
    active = {k - 1 for k, t in enumerate(tangents) if t is not None and k}
    masked = _masked(b, bodies, tangents)
    outs = [carried_active(body, active, 0)[1] for body in bodies]
    wanted = sorted(set().union(*outs))
    order = sorted(active)
    _replace(b, op)
    blocks: list[Block] = []
    for body, out in zip(bodies, outs):
        push = _Push(body, active, out, masked)
        one = Builder(op.loc)
        params = [one.param(p.type, p.hint) for p in body.params]
        given = {k: one.param(body.params[k].type) for k in order}
        results, dz = push.tangents(one, params, given)
        more = [dz[k] if k in dz else one.zeros(body.results[k].type) for k in wanted]
        blocks.append(one.block([*results, *more]))
    extra = [t for k in order if (t := tangents[k + 1]) is not None]
    made = emit_cond(b, index, [*args, *extra], blocks)
    n = len(op.results)
    _stand_for(b, op, made.results[:n])
    found: list[MaybeValue] = [None] * n
    for k, t in zip(wanted, made.results[n:]):
        found[k] = t
    return found


def while_jvp(b: AdjointBuilder, op: Op, tangents: Sequence[MaybeValue]) -> Sequence[MaybeValue]:
    loops = phases(op)
    n_operands = sum(op.attrs["n_carry"])
    consts = op.operands[n_operands:]
    bodies = [body_function(p.body) for p in loops]
    masked = _masked(b, bodies, tangents)
    _replace(b, op)
    const_active = [k for k in range(len(consts)) if tangents[n_operands + k] is not None]

    def tangent(k: int) -> Value:
        t = tangents[k]
        return b.zeros(op.operands[k].type) if t is None else t

    blocks: list[Block] = []
    carries: list[list[Value]] = []
    reads: list[list[tuple[int, int]]] = []
    y_places: list[dict[int, int]] = []  # per phase: y → index of its tangent among the ys
    carry_active: list[list[int]] = []
    for p, phase in enumerate(loops):
        body, n, r = bodies[p], phase.n_carry, len(phase.reads)
        active = {k for k in range(n) if tangents[phase.first + k] is not None}
        active |= {n + i for i, (q, k) in enumerate(phase.reads) if k in y_places[q]}
        active |= {n + r + k for k in const_active}
        active, out = carried_active(body, active, n)
        out |= {k for k in active if k < n}
        push = _Push(body, active, out, masked)
        first = [k for k in push.wrt if k < n]
        second = [k for k in push.wrt if n <= k < n + r]
        ys = [k for k in push.out if k >= n]
        one = Builder(op.loc)
        p1 = [one.param(q.type, q.hint) for q in body.params[:n]]
        t1 = {k: one.param(body.params[k].type) for k in first}
        p2 = [one.param(q.type, q.hint) for q in body.params[n : n + r]]
        t2 = {k: one.param(body.params[k].type) for k in second}
        p3 = [one.param(q.type, q.hint) for q in body.params[n + r :]]
        t3 = {n + r + k: one.param(consts[k].type) for k in const_active}
        results, dz = push.tangents(one, [*p1, *p2, *p3], {**t1, **t2, **t3})
        blocks.append(
            one.block([*results[:n], *[dz[k] for k in first], *results[n:], *[dz[k] for k in ys]])
        )
        n_y = len(body.results) - n
        y_places.append({k - n: n_y + i for i, k in enumerate(ys)})
        mine = list(phase.reads)
        for k in second:
            q, y = phase.reads[k - n]
            mine.append((q, y_places[q][y]))
        reads.append(mine)
        carry_active.append(first)
        carries.append(
            [
                *op.operands[phase.first : phase.first + n],
                *[tangent(phase.first + k) for k in first],
            ]
        )
    # the test sees the tangents of the carry as well, and does not use them
    test = body_function(op.regions[0])
    one = Builder(op.loc)
    n0 = loops[0].n_carry
    plain = [one.param(q.type, q.hint) for q in test.params[:n0]]
    for k in carry_active[0]:
        one.param(test.params[k].type)
    plain += [one.param(q.type, q.hint) for q in test.params[n0:]]
    for k in const_active:
        one.param(consts[k].type)
    block = one.block(one.inline(test, plain))
    made = emit_while(
        b,
        block,
        blocks,
        carries,
        [*consts, *[tangent(n_operands + k) for k in const_active]],
        reads,
        op.attrs["reverse"],
    )
    primal: list[Value] = []
    found: list[MaybeValue] = [None] * len(op.results)
    at = 0
    for phase, first in zip(loops, carry_active):
        primal += made.results[at : at + phase.n_carry]
        at += phase.n_carry
        for k in first:
            found[phase.first + k] = made.results[at]
            if masked:
                b.mask(made.results[at])
            at += 1
    _stand_for(b, op, primal)
    return found
