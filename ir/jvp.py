"""Forward mode as a transform: ``jvp(fn)`` is an ordinary ``Function``.

Each operation is followed by the operations of its tangent.  An absent tangent is zero
and costs nothing; integers and bools have none.  The rule of an operation is its
``jvp``, or its ``partials``, or itself where it is ``linear``; an operation that only
declares a ``vjp`` is pushed forward by transposing that rule (which is linear in the
cotangent) once more.
"""

from __future__ import annotations

from collections.abc import Sequence

from tapec.ir.adjoint import AdjointBuilder, inline_calls, is_zero
from tapec.ir.builder import Builder
from tapec.ir.core import Function, Op, Value
from tapec.ir.opdef import OPS, OpDef
from tapec.ir.rewrite import paused_gc
from tapec.ir.vjp import differentiable_params, vjp

__all__ = ["jvp"]


@paused_gc()
def jvp(fn: Function, wrt: Sequence[int] | None = None, *, masked: bool = False) -> Function:
    """Values of ``fn`` and their derivatives in a direction.

    Parameters of the result: those of ``fn``, then one tangent per parameter in ``wrt``
    (by default all that carry a derivative).  Results: those of ``fn``, then one tangent
    per result of ``fn`` that carries a derivative, zeros where it is independent; results
    of integer or bool dtype have no tangent.

    ``masked``: a zero in a tangent may mean "not selected".
    """
    fn = inline_calls(fn)
    wrt = differentiable_params(fn, wrt)
    b = AdjointBuilder()
    b.params.extend(fn.params)
    tangents: dict[Value, Value] = {}
    for k in wrt:
        p = fn.params[k]
        tangents[p] = seed = b.param(p.type, f"d{p.hint}" if p.hint else None)
        if masked:
            b.masked.add(seed)
    table, ops = OPS, b.ops
    known = tangents.keys()
    for op in fn.ops:
        ops.append(op)
        if known.isdisjoint(op.operands):
            continue
        entry = table[op.name]
        if entry.nondifferentiable or entry.effect:
            continue
        b.loc = op.loc
        if entry.jvp is None and entry.partials is not None:
            t = _from_partials(b, entry, op, tangents)
            if t is not None:
                tangents[op.results[0]] = t
            continue
        given = [tangents.get(x) for x in op.operands]
        strong = entry.masks_tangent or not b.masked.isdisjoint(given)
        found = _rule(b, entry, op, given)
        for z, dz in zip(op.results, found, strict=True):
            if dz is not None and z.type.dtype.is_inexact:
                if dz.type is not z.type:
                    raise AssertionError(f"the jvp of {op.name!r} gives {dz.type} for {z.type}")
                if strong:
                    b.masked.add(dz)
                tangents[z] = dz
    b.loc = None
    results = [*fn.results]
    for z in fn.results:
        if z.type.dtype.is_inexact:
            dz = tangents.get(z)
            results.append(b.zeros(z.type) if dz is None else dz)
    return b.function(f"{fn.name}.jvp", results)


def _from_partials(
    b: AdjointBuilder, entry: OpDef, op: Op, tangents: dict[Value, Value]
) -> Value | None:
    """The sum of tangent times partial derivative over the operands."""
    z = op.results[0]
    if not z.type.dtype.is_inexact:
        return None
    assert entry.partials is not None
    total: Value | None = None
    masked = False
    for x, p in zip(op.operands, entry.partials(b, z, *op.operands)):
        t = tangents.get(x)
        if t is None or p is None or is_zero(p):
            continue
        masked = masked or t in b.masked
        if total is None:
            total = b.ct_mul(t, p)
        elif not isinstance(p, Value) and p == -1:
            total = b.pair("sub", total, t)
        else:
            total = b.pair("add", total, b.ct_mul(t, p))
    if masked and total is not None:
        b.masked.add(total)
    return total


def _rule(
    b: AdjointBuilder, entry: OpDef, op: Op, tangents: list[Value | None]
) -> Sequence[Value | None]:
    if entry.jvp is not None:
        return entry.jvp(b, op, tangents)
    if entry.linear and all(t is None or k in entry.linear for k, t in enumerate(tangents)):
        # Linear in these operands together: absent tangents among them are zeros.
        operands = list(op.operands)
        for k in entry.linear:
            t = tangents[k]
            operands[k] = b.zeros(operands[k].type) if t is None else t
        return (b.emit(op.name, tuple(operands), op.attrs),)
    if entry.vjp is None:
        raise NotImplementedError(f"operation {op.name!r} has no forward-mode rule")
    return _transposed(b, op, tangents)


def _transposed(b: AdjointBuilder, op: Op, tangents: list[Value | None]) -> Sequence[Value | None]:
    """J t as the transpose of u → Jᵀ u, which the vjp of the operation alone computes."""
    one = Builder()
    operands = [one.param(x.type) for x in op.operands]
    z = one.append(op, tuple(operands)).results
    alone = one.function(op.name, z)
    wrt = [k for k, t in enumerate(tangents) if t is not None]
    outputs = [k for k, r in enumerate(z) if r.type.dtype.is_inexact]
    pullback = vjp(alone, wrt, outputs)
    seeds = range(len(operands), len(operands) + len(outputs))
    grads = range(len(z), len(z) + len(wrt))
    masked = not b.masked.isdisjoint(tangents)
    pushforward = vjp(pullback, list(seeds), list(grads), masked_seeds=masked)
    # u enters linearly, so its value does not matter.
    args = [*op.operands, *[b.zeros(z[k].type) for k in outputs]]
    args += [t for t in tangents if t is not None]
    found = b.inline(pushforward, args)[len(pullback.results) :]
    out: list[Value | None] = [None] * len(z)
    for k, t in zip(outputs, found, strict=True):
        out[k] = t
    return out
