"""Reading by the index of a loop: ``x[i + c]`` in a body becomes a scanned operand.

A ``gather`` from a const at ``i + c``, where ``i`` is the scanned 0, 1, 2, … is the slice
``x[c : c + length]``, one element per step.  Its derivative then is one stacked result in
place of an array of zeros with one element set, at every step.
"""

from __future__ import annotations

from tapec.ir.builder import Builder
from tapec.ir.core import Block, Op, Value
from tapec.ir.loops import emit_scan, scan_parts

__all__ = ["read_by_index", "renamed"]


def _is_index(x: Value) -> bool:
    return x.op is not None and x.op.name == "iota" and x.type.ndim == 1


def read_by_index(op: Op, b: Builder) -> Op:
    """``op``, a ``scan``, with such reads as scanned operands (made with ``b``)."""
    (body,) = op.regions
    carry, xs, consts = scan_parts(op, op.operands)
    c_params, x_params, k_params = scan_parts(op, body.params)
    n = op.attrs["length"]
    #: values that are the index plus a number
    shifts = {p: 0 for p, x in zip(x_params, xs) if _is_index(x)}
    if not shifts or not n:
        return op
    outside = dict(zip(k_params, consts))
    numbers: dict[Value, int] = {}
    found: dict[Value, tuple[Value, int, int]] = {}  # result → operand, axis, shift
    for inner in body.ops:
        if inner.name == "constant" and not inner.results[0].type.shape:
            if type(inner.attrs["value"]) is int:
                numbers[inner.results[0]] = inner.attrs["value"]
        elif inner.name in ("add", "sub") and not inner.results[0].type.shape:
            x, y = inner.operands
            if x in shifts and y in numbers:
                by = numbers[y]
                shifts[inner.results[0]] = shifts[x] + (by if inner.name == "add" else -by)
            elif inner.name == "add" and y in shifts and x in numbers:
                shifts[inner.results[0]] = shifts[y] + numbers[x]
        elif inner.name == "convert" and inner.operands[0] in shifts:
            if inner.results[0].type.dtype.kind == "i":
                shifts[inner.results[0]] = shifts[inner.operands[0]]
        elif inner.name == "gather" and len(inner.operands) == 2:
            source, index = inner.operands
            shift = shifts.get(index)
            axis = inner.attrs["axes"][0]
            if source not in outside or shift is None:
                continue
            if shift >= 0 and shift + n <= source.type.shape[axis]:
                found[inner.results[0]] = (outside[source], axis, shift)
    if not found:
        return op
    env: dict[Value, Value] = {}
    new_params: list[Value] = []
    new_xs: list[Value] = []
    known: dict[tuple[Value, int, int], Value] = {}
    for result, place in found.items():
        param = known.get(place)
        if param is None:
            param = known[place] = Value(result.type, None, result.hint)
            new_params.append(param)
            new_xs.append(_part(b, *place, n))
        env[result] = param
    ops = [o for o in body.ops if not (o.results and o.results[0] in found)]
    block = renamed(Block([*c_params, *x_params, *new_params, *k_params], ops, body.results), env)
    inner_b = Builder(op.loc)
    reverse, remat = op.attrs["reverse"], op.attrs.get("remat", False)
    return emit_scan(inner_b, carry, [*xs, *new_xs], consts, block, n, reverse, remat)


def _part(b: Builder, x: Value, axis: int, shift: int, n: int) -> Value:
    """``x[shift : shift + n]`` along ``axis``, which becomes the first."""
    shape = x.type.shape
    perm = [axis, *[k for k in range(len(shape)) if k != axis]]
    moved = b.transpose(x, perm)
    rest = moved.type.shape[1:]
    return b.slice(moved, (shift, *[0] * len(rest)), (n, *rest))


def renamed(block: Block, env: dict[Value, Value]) -> Block:
    """``block`` with other values for some of those that it uses."""
    env = dict(env)
    ops: list[Op] = []
    for op in block.ops:
        if env.keys().isdisjoint(op.operands):
            ops.append(op)
            continue
        new = Op(
            op.name,
            tuple([env.get(v, v) for v in op.operands]),
            tuple([r.type for r in op.results]),
            op.attrs,
            op.regions,
            op.loc,
            op.results[0].hint if op.results else None,
        )
        env.update(zip(op.results, new.results))
        ops.append(new)
    return Block(block.params, ops, [env.get(v, v) for v in block.results])
