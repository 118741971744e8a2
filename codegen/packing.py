"""Small arrays in vector registers: which values of straight-line code are held packed.

A value of 5 to 16 elements that elementwise code computes from others of its shape needs one
vector instruction, or one call of a vector function, where its elements would need as many as
there are.  It is *packed*: one SSA vector of 8 or 16 lanes, of which the last ones mean nothing.
Everything else is one SSA scalar per element; what mixes both costs an insertion or an extraction
per element, so an operation is packed if its operands are (or are scalars, or in memory), or if it
costs so much that packing them pays.
"""

from __future__ import annotations

from collections.abc import Callable

from tapec.codegen.body import strides_of
from tapec.ir.core import Block, Op, Value
from tapec.ir.opdef import OPS

__all__ = ["lanes_for", "packed_params", "packs", "run_stride"]

#: A packed operation of this cost is worth packing its operands for.
COSTLY = 8
FEWEST, MOST = 5, 16


def lanes_for(v: Value) -> int:
    """The lanes of a packed value, 0 if values of this type are not packed."""
    if not FEWEST <= v.type.size <= MOST or v.type.dtype.kind not in "fib":
        return 0
    return 8 if v.type.size <= 8 else 16


def packs(op: Op, packed: Callable[[Value], bool]) -> bool:
    """Whether the result of an operation is packed, given which operands are or may be."""
    r = op.results[0]
    if not lanes_for(r):
        return False
    if op.name == "reshape":
        return packed(op.operands[0])
    if not OPS[op.name].elementwise or not op.operands:
        return False
    if OPS[op.name].cost >= COSTLY:
        return True
    ready = [packed(v) for v in op.operands]
    return any(ready) and all(p or uniform(v) for p, v in zip(ready, op.operands))


def uniform(v: Value) -> bool:
    """Whether all elements are one scalar."""
    op = v.op
    if op is None:
        return False
    if op.name == "broadcast":
        return op.operands[0].type.size == 1
    return op.name == "constant"


def packed_params(body: Block, n_carry: int) -> tuple[list[bool], set[Value]]:
    """Which carries of a loop are packed: those that its body gives packed, if all parameters that
    may be are.  And which other parameters it wants packed."""
    carried = [bool(lanes_for(p)) for p in body.params[:n_carry]]
    others = [p for p in body.params[n_carry:] if lanes_for(p)]
    while True:
        packed = {p for p, yes in zip(body.params, carried) if yes}.union(others)
        wanted: set[Value] = set()
        for op in body.ops:
            if len(op.results) == 1:
                if packs(op, packed.__contains__):
                    wanted.update(op.operands)
                elif not _view(op):
                    continue
                packed.add(op.results[0])
        kept = [yes and r in packed for yes, r in zip(carried, body.results)]
        if kept == carried:
            return carried, wanted.intersection(others)
        carried = kept


def _view(op: Op) -> bool:
    """Whether an operation reads evenly spaced elements of an array in memory, or another shape
    of such."""
    if not lanes_for(op.results[0]) or op.name not in ("slice", "reshape"):
        return False
    x = op.operands[0]
    if op.name == "reshape":
        return x.op is not None and _view(x.op)
    return x.type.size > MOST and run_stride(op) is not None


def run_stride(op: Op) -> int | None:
    """The distance between the elements of a slice in memory, if it is the same for all."""
    shape, attrs = op.operands[0].type.shape, op.attrs
    size, step = attrs["size"], attrs["step"]
    partial = [j for j, n in enumerate(size) if n != 1]
    if len(partial) < 2:
        return step[partial[0]] * strides_of(shape)[partial[0]] if partial else 1
    first = partial[0]
    if all(step[j] == 1 for j in partial) and size[first + 1 :] == shape[first + 1 :]:
        return 1
    return None
