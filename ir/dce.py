"""Dead code elimination: drop operations whose results nobody uses.

Input: any function.  Output: the same function without operations that neither reach
a result nor have an effect (a guard, or a region with a guard inside).  One backward
walk; regions are cleaned too.  The function itself is returned when nothing is dead.

    %0 = sin %x : f64[]
    %1 = cos %x : f64[]        # dropped
    return %0
"""

from __future__ import annotations

from collections.abc import Iterable

from tapec.ir.core import Block, Function, Op, Value, walk
from tapec.ir.opdef import OPS

__all__ = ["dce", "has_effect", "live_ops", "rebuilt"]

_effects: tuple[int, frozenset[str]] = (0, frozenset())


def _effect_names() -> frozenset[str]:
    """Names of the operations that must stay; recomputed only when the table has grown."""
    global _effects
    if _effects[0] != len(OPS):
        _effects = (len(OPS), frozenset(n for n, d in OPS.items() if d.effect))
    return _effects[1]


def has_effect(op: Op) -> bool:
    """Whether ``op``, or an operation inside it, must not be removed, merged or reordered."""
    effects = _effect_names()
    return op.name in effects or any(inner.name in effects for r in op.regions for inner in walk(r))


def dce(fn: Function) -> Function:
    """``fn`` without dead operations; ``fn`` itself if there are none."""
    block = _clean(fn.block)
    return fn if block is fn.block else Function(fn.name, fn.params, block.ops, block.results)


def live_ops(ops: tuple[Op, ...] | list[Op], results: Iterable[Value]) -> list[Op]:
    """The operations of ``ops`` that ``results`` need, in order.  Regions are kept whole."""
    effects = _effect_names()
    live = set(results)
    mark = live.update
    kept: list[Op] = []
    keep = kept.append
    for op in reversed(ops):
        rs = op.results
        if len(rs) == 1 and rs[0] in live:
            pass
        elif live.isdisjoint(rs) and op.name not in effects and not (op.regions and has_effect(op)):
            continue
        mark(op.operands)
        if op.regions:
            for region in op.regions:
                mark(region.results)
                for inner in walk(region):
                    mark(inner.operands)
                    for nested in inner.regions:
                        mark(nested.results)
        keep(op)
    kept.reverse()
    return kept


def rebuilt(op: Op, operands: tuple[Value, ...], regions: tuple[Block, ...]) -> Op:
    """A copy of ``op`` with other operands and regions: same types, location and names."""
    new = Op(op.name, operands, tuple([r.type for r in op.results]), op.attrs, regions, op.loc)
    for old, result in zip(op.results, new.results, strict=True):
        result.hint = old.hint
    return new


def _clean(block: Block) -> Block:
    """``block`` without dead operations at any depth; ``block`` itself if there are none."""
    ops = live_ops(block.ops, block.results)
    if not any(op.regions for op in ops):
        return block if len(ops) == len(block.ops) else Block(block.params, ops, block.results)
    # A region that shrinks makes a new operation, so what follows it is renamed.
    renamed: dict[Value, Value] = {}
    out: list[Op] = []
    for op in ops:
        operands = tuple([renamed.get(v, v) for v in op.operands])
        regions = tuple([_clean(r) for r in op.regions])
        if operands != op.operands or any(a is not b for a, b in zip(regions, op.regions)):
            new = rebuilt(op, operands, regions)
            renamed.update(zip(op.results, new.results, strict=True))
            op = new
        out.append(op)
    if not renamed and len(out) == len(block.ops):
        return block
    # Uses of outer values that only the dropped inner operations had are dead now.
    results = tuple([renamed.get(v, v) for v in block.results])
    return Block(block.params, live_ops(out, results), results)
