"""Batching of ``cond``, ``scan`` and ``while``.

A condition or a loop test that is the same for all lanes stays one.  Where it differs:

* ``cond``: every branch is computed for all lanes and each lane selects its own.  While a
  branch is computed, ``BatchBuilder.active`` holds the lanes that take it: guards of the
  others do not count, their loops do not run, their indices read element 0.
* ``while``: the loop runs until no lane is alive.  A further carry, bool[n], says which are;
  the carries of the others keep their values.  It is yielded too, so that the later
  phases (derivatives) leave alone the lanes that had not been alive in an iteration.
"""

from __future__ import annotations

from collections.abc import Sequence

from tapec.ir.batch import BatchBuilder, batch_block
from tapec.ir.core import BOOL, Block, Op, Type, Value
from tapec.ir.loops import emit_cond, emit_scan, emit_while, phases, scan_parts

__all__ = ["cond_batch", "scan_batch", "while_batch"]

Flags = list[bool]


def _depends(block: Block, flags: Sequence[bool]) -> Flags:
    """Which results depend on the parameters with a flag."""
    known = {p for p, f in zip(block.params, flags, strict=True) if f}
    for op in block.ops:
        if not known.isdisjoint(op.operands):
            known.update(op.results)
    return [r in known for r in block.results]


def _flags(b: BatchBuilder, xs: Sequence[Value]) -> Flags:
    return [x in b.batched for x in xs]


def _spread(b: BatchBuilder, xs: Sequence[Value], flags: Sequence[bool]) -> list[Value]:
    return [b.spread(x) if f else x for x, f in zip(xs, flags, strict=True)]


def _results(b: BatchBuilder, values: Sequence[Value], flags: Sequence[bool]) -> list[Value]:
    return [v if f else b.plain(v) for v, f in zip(values, flags, strict=True)]


def _choose(b: BatchBuilder, lanes: Value, x: Value, y: Value) -> Value:
    """x in the lanes that are set, else y; all batched."""
    shape = x.type.shape
    out = b.select(b.broadcast(lanes, shape, (0,)), x, y)
    b.batched.add(out)
    return out


def _both(b: BatchBuilder, x: Value | None, y: Value) -> Value:
    return y if x is None else b.logical_and(x, y)


# -- cond -------------------------------------------------------------------------------


def cond_batch(b: BatchBuilder, op: Op, xs: Sequence[Value]) -> Sequence[Value]:
    index, *args = xs
    if index in b.batched:
        return _select_branches(b, op, index, args)
    flags = _flags(b, args)
    out = [any(fs) for fs in zip(*[_depends(r, flags) for r in op.regions])]
    extra = b.active is not None
    regions = [batch_block(r, flags, b.n, out, extra)[0] for r in op.regions]
    if b.active is not None:
        args.append(b.active)
    return _results(b, emit_cond(b, index, args, regions).results, out)


def _select_branches(
    b: BatchBuilder, op: Op, index: Value, args: Sequence[Value]
) -> Sequence[Value]:
    outer = b.active
    last = len(op.regions) - 1
    if index.type.dtype is not BOOL:
        low, high = b.like(0, index), b.like(last, index)
        index = b.min(b.max(index, low), high)
    total: list[Value] = []
    for k, region in enumerate(op.regions):
        if index.type.dtype is BOOL:
            taken = index if k else b.logical_not(index)
        else:
            taken = b.eq(index, b.like(k, index))
        b.active = _both(b, outer, taken)
        found = [b.spread(v) for v in b.run(region, args)]
        if k:
            found = [_choose(b, taken, v, t) for v, t in zip(found, total, strict=True)]
        total = found
    b.active = outer
    return total


# -- scan -------------------------------------------------------------------------------


def scan_batch(b: BatchBuilder, op: Op, xs: Sequence[Value]) -> Sequence[Value]:
    (body,) = op.regions
    flags = _flags(b, xs)
    c = op.attrs["n_carry"]
    while True:
        out = _depends(body, flags)
        if all(f or not o for f, o in zip(flags[:c], out)):
            break
        flags[:c] = [f or o for f, o in zip(flags[:c], out)]
    out[:c] = flags[:c]
    carry, stacks, consts = scan_parts(op, _spread(b, xs, flags))
    stacks = [b.front(s, 1) if f else s for s, f in zip(stacks, flags[c:])]
    block, _ = batch_block(body, flags, b.n, out, b.active is not None)
    if b.active is not None:
        consts.append(b.active)
    attrs = op.attrs
    new = emit_scan(b, carry, stacks, consts, block, attrs["length"], attrs["reverse"])
    values = [
        b.front(v, 1) if f and k >= c else v for k, (v, f) in enumerate(zip(new.results, out))
    ]
    return _results(b, values, out)


# -- while ------------------------------------------------------------------------------


def while_batch(b: BatchBuilder, op: Op, xs: Sequence[Value]) -> Sequence[Value]:
    parts = phases(op)
    total = sum(op.attrs["n_carry"])
    flags = _flags(b, xs)
    consts = flags[total:]
    while True:
        before = list(flags)
        yields: list[Flags] = []
        for p in parts:
            stop = p.first + p.n_carry
            out = _depends(
                p.body, [*flags[p.first : stop], *[yields[q][k] for q, k in p.reads], *consts]
            )
            flags[p.first : stop] = [f or o for f, o in zip(flags[p.first : stop], out)]
            yields.append(out[p.n_carry :])
        if flags == before:
            break
    n0 = parts[0].n_carry
    (differs,) = _depends(op.regions[0], [*flags[:n0], *consts])
    if differs or b.active is not None:
        return _masked_while(b, op, xs)
    operands = _spread(b, xs, flags)
    test, _ = batch_block(op.regions[0], [*flags[:n0], *consts], b.n)
    bodies = []
    for p, y in zip(parts, yields):
        carried = flags[p.first : p.first + p.n_carry]
        given = [*carried, *[yields[q][k] for q, k in p.reads], *consts]
        bodies.append(batch_block(p.body, given, b.n, [*carried, *y])[0])
    new = emit_while(
        b,
        test,
        bodies,
        [operands[p.first : p.first + p.n_carry] for p in parts],
        operands[total:],
        op.attrs["reads"],
        op.attrs["reverse"],
    )
    return _results(b, new.results, flags[:total])


def _masked_while(b: BatchBuilder, op: Op, xs: Sequence[Value]) -> Sequence[Value]:
    """Each lane runs until its own test fails."""
    parts = phases(op)
    total = sum(op.attrs["n_carry"])
    carries = [b.spread(x) for x in xs[:total]]
    consts = list(xs[total:])
    shared = _flags(b, consts)
    (go,) = b.run(op.regions[0], [*carries[: parts[0].n_carry], *consts])
    alive = _both(b, b.active, b.spread(go))
    alive_type = Type(BOOL, (b.n,))

    def builder(
        like: Sequence[Value], slices: Sequence[Type]
    ) -> tuple[BatchBuilder, list[Value], list[Value], list[Value], Value]:
        """A region's builder, its carries, slices, consts and which lanes are alive; the latter
        is the last carry of the loop itself, the last slice of other phases."""
        inner = BatchBuilder(b.n)
        mine = [inner.param(v.type, v.hint) for v in like]
        if not slices:
            lanes = inner.param(alive_type, "alive")
        given = [inner.param(t) for t in slices]
        if slices:
            lanes = given.pop()
        rest = [inner.param(v.type, v.hint) for v in consts]
        inner.batched.update([*mine, *given, lanes, *[v for v, f in zip(rest, shared) if f]])
        inner.active = lanes
        return inner, mine, given, rest, lanes

    first = parts[0]
    inner, mine, _, rest, lanes = builder(carries[: first.n_carry], ())
    test = inner.block([inner.reduce("any", lanes, (0,))])
    inner, mine, _, rest, lanes = builder(carries[: first.n_carry], ())
    out = [inner.spread(v) for v in inner.run(first.body, [*mine, *rest])]
    kept = [_choose(inner, lanes, v, m) for v, m in zip(out, mine)]
    (go,) = inner.run(op.regions[0], [*kept, *rest])
    still = inner.logical_and(lanes, inner.spread(go))
    yields = [out[first.n_carry :]]
    bodies = [inner.block([*kept, still, *yields[0], lanes])]
    reads: list[tuple[tuple[int, int], ...]] = [()]
    at = (0, len(yields[0]))
    for p in parts[1:]:
        slices = [yields[q][k].type for q, k in p.reads]
        inner, mine, given, rest, lanes = builder(
            carries[p.first : p.first + p.n_carry], [*slices, alive_type]
        )
        out = [inner.spread(v) for v in inner.run(p.body, [*mine, *given, *rest])]
        kept = [_choose(inner, lanes, v, m) for v, m in zip(out, mine)]
        yields.append(out[p.n_carry :])
        bodies.append(inner.block([*kept, *yields[-1]]))
        reads.append((*p.reads, at))
    starts = [carries[p.first : p.first + p.n_carry] for p in parts]
    starts[0] = [*starts[0], alive]
    new = emit_while(b, test, bodies, starts, consts, reads, op.attrs["reverse"])
    n0 = first.n_carry
    return [*new.results[:n0], *new.results[n0 + 1 :]]
