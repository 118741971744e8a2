"""Rules about shapes: reshape, transpose, broadcast, slice, place, reductions, dot.

They move shape operations towards the operands where that makes them smaller or makes
two of them meet, and elementwise work below a broadcast to the smaller side.  See
``rules`` for the conventions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tapec.ir.core import Op, Value
from tapec.ir.rewrite import Rewriter, rule, splat

__all__: list[str] = []

REDUCTIONS = (
    "reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_any", "reduce_all",
)  # fmt: skip
#: reductions that do not care about the order of their terms, to the last bit
_ORDERLESS = {"reduce_max", "reduce_min", "reduce_any", "reduce_all"}


def _inner(op: Op) -> Op:
    """The operation that defines the first operand (rules with ``given`` know there is one)."""
    made = op.operands[0].op
    assert made is not None
    return made


def _non_unit(shape: Sequence[int]) -> list[int]:
    """The axes whose length is not 1."""
    return [k for k, n in enumerate(shape) if n != 1]


def _unit_map(a: Sequence[int], z: Sequence[int]) -> dict[int, int] | None:
    """If shapes ``a`` and ``z`` differ only in axes of length 1: axis of a → axis of z."""
    ka, kz = _non_unit(a), _non_unit(z)
    if [a[k] for k in ka] != [z[k] for k in kz]:
        return None
    return dict(zip(ka, kz))


# -- reshape and transpose ------------------------------------------------------------


@rule("reshape", "broadcast", group="shape")
def same_shape(b: Rewriter, op: Op) -> Value | None:
    """reshape(x, shape of x) -> x, broadcast(x, shape of x) -> x"""
    x = op.operands[0]
    return x if x.type is op.results[0].type else None


@rule("reshape", given="reshape", group="shape")
def reshape_reshape(b: Rewriter, op: Op) -> Value | None:
    """reshape(reshape x) -> reshape x"""
    return b.reshape(_inner(op).operands[0], op.attrs["shape"])


@rule("transpose", given="transpose", group="shape")
def transpose_transpose(b: Rewriter, op: Op) -> Value | None:
    """transpose(transpose x) -> transpose x"""
    inner = _inner(op)
    p = inner.attrs["perm"]
    return b.transpose(inner.operands[0], [p[k] for k in op.attrs["perm"]])


@rule("transpose", group="shape")
def transpose_unit_axes(b: Rewriter, op: Op) -> Value | None:
    """transpose(x, p) -> reshape x if p keeps the order of the axes longer than 1"""
    x, perm = op.operands[0], op.attrs["perm"]
    shape = x.type.shape
    order = [k for k in perm if shape[k] != 1]
    if order != sorted(order):
        return None
    return b.reshape(x, [shape[k] for k in perm])


@rule(
    "reshape",
    "transpose",
    "broadcast",
    "slice",
    "gather",
    given="constant",
    at="first",
    group="fold",
)
def move_splat(b: Rewriter, op: Op) -> Value | None:
    """reshape(splat c) -> splat c, also for transpose, broadcast, slice, gather"""
    c = splat(op.operands[0])
    return None if c is None else b.constant(c, op.results[0].type)


# -- broadcast ------------------------------------------------------------------------


@rule("broadcast", given="broadcast", group="shape")
def broadcast_broadcast(b: Rewriter, op: Op) -> Value | None:
    """broadcast(broadcast x) -> broadcast x"""
    inner = _inner(op)
    dims = op.attrs["dims"]
    return b.broadcast(inner.operands[0], op.attrs["shape"], [dims[k] for k in inner.attrs["dims"]])


@rule("broadcast", group="shape")
def broadcast_unit_axes(b: Rewriter, op: Op) -> Value | None:
    """broadcast(x) -> reshape x if it only adds axes of length 1"""
    x = op.operands[0]
    return b.reshape(x, op.attrs["shape"]) if x.type.size == op.results[0].type.size != 0 else None


@rule("broadcast", given="reshape", group="shape")
def broadcast_reshape(b: Rewriter, op: Op) -> Value | None:
    """broadcast(reshape x) -> broadcast x if the reshape only adds axes of length 1"""
    x = _inner(op).operands[0]
    axes = _unit_map(x.type.shape, op.operands[0].type.shape)
    if axes is None or len(axes) != x.type.ndim:
        return None
    dims = op.attrs["dims"]
    return b.broadcast(x, op.attrs["shape"], [dims[axes[k]] for k in range(x.type.ndim)])


@rule("reshape", given="broadcast", group="shape")
def reshape_broadcast(b: Rewriter, op: Op) -> Value | None:
    """reshape(broadcast x) -> broadcast x if the reshape only moves axes of length 1, or x has
    one element"""
    inner = _inner(op)
    x, dims = inner.operands[0], inner.attrs["dims"]
    new = op.attrs["shape"]
    if x.type.size == 1:
        return b.broadcast(b.reshape(x, ()), new, ())
    axes = _unit_map(inner.attrs["shape"], new)
    if axes is None:
        return None
    keep = _non_unit(x.type.shape)
    squeezed = b.reshape(x, [x.type.shape[k] for k in keep])
    return b.broadcast(squeezed, new, [axes[dims[k]] for k in keep])


@rule("transpose", given="broadcast", group="shape")
def transpose_broadcast(b: Rewriter, op: Op) -> Value | None:
    """transpose(broadcast x) -> broadcast(transpose x)"""
    inner = _inner(op)
    x, dims, perm = inner.operands[0], inner.attrs["dims"], op.attrs["perm"]
    place = {axis: k for k, axis in enumerate(perm)}
    moved = [place[d] for d in dims]
    order = sorted(range(len(moved)), key=moved.__getitem__)
    return b.broadcast(b.transpose(x, order), op.results[0].type.shape, [moved[k] for k in order])


@rule("elementwise", given="broadcast", group="shape")
def sink_broadcast(b: Rewriter, op: Op) -> Value | None:
    """f(broadcast x, broadcast y, splat c) -> broadcast(f(x, y, c)) where one of the operands
    has all the axes"""
    widest: Op | None = None
    for v in op.operands:
        made = v.op
        if made is None:
            return None
        if made.name == "broadcast":
            if widest is None or len(made.attrs["dims"]) > len(widest.attrs["dims"]):
                widest = made
        elif splat(v) is None:
            return None
    assert widest is not None
    dims: tuple[int, ...] = widest.attrs["dims"]
    shape = widest.operands[0].type.shape
    operands: list[Value] = []
    for v in op.operands:
        made = v.op
        assert made is not None
        if made.name == "constant":
            operands.append(b.constant(made.attrs["value"], v.type.with_shape(shape)))
            continue
        x, own = made.operands[0], made.attrs["dims"]
        if own != dims and not set(own) <= set(dims):
            return None
        operands.append(b.broadcast(x, shape, [dims.index(k) for k in own]))
    small = b.emit(op.name, tuple(operands), op.attrs)
    return b.broadcast(small, op.results[0].type.shape, dims)


# -- slice ----------------------------------------------------------------------------


@rule("slice", group="shape")
def slice_everything(b: Rewriter, op: Op) -> Value | None:
    """slice(x, all of it) -> x; a step over a single element is 1"""
    x, a = op.operands[0], op.attrs
    step = tuple([1 if n <= 1 else s for n, s in zip(a["size"], a["step"])])
    if step != a["step"]:
        return b.slice(x, a["start"], a["size"], step)
    return x if a["size"] == x.type.shape and step == (1,) * len(step) else None


@rule("slice", given="slice", group="shape")
def slice_slice(b: Rewriter, op: Op) -> Value | None:
    """slice(slice x) -> slice x"""
    inner = _inner(op)
    p, q = inner.attrs, op.attrs
    start = [s + a * t for s, t, a in zip(p["start"], p["step"], q["start"])]
    step = [t * u for t, u in zip(p["step"], q["step"])]
    return b.slice(inner.operands[0], start, q["size"], step)


@rule("slice", given="broadcast", group="shape")
def slice_broadcast(b: Rewriter, op: Op) -> Value | None:
    """slice(broadcast x) -> broadcast(slice x)"""
    inner = _inner(op)
    dims = inner.attrs["dims"]
    start, size, step = ([op.attrs[key][d] for d in dims] for key in ("start", "size", "step"))
    return b.broadcast(b.slice(inner.operands[0], start, size, step), op.attrs["size"], dims)


@rule("slice", given="transpose", group="shape")
def slice_transpose(b: Rewriter, op: Op) -> Value | None:
    """slice(transpose x) -> transpose(slice x): the slice comes nearer to other slices"""
    inner = _inner(op)
    perm = inner.attrs["perm"]
    where = [perm.index(k) for k in range(len(perm))]
    start, size, step = ([op.attrs[key][k] for k in where] for key in ("start", "size", "step"))
    return b.transpose(b.slice(inner.operands[0], start, size, step), perm)


@rule("slice", given="reshape", group="shape")
def slice_reshape(b: Rewriter, op: Op) -> Value | None:
    """slice(reshape x) -> reshape(slice x) if the reshape only moves axes of length 1"""
    x = _inner(op).operands[0]
    axes = _unit_map(x.type.shape, op.operands[0].type.shape)
    if axes is None or op.results[0].type.size == 0:
        return None
    start, size, step = [0] * x.type.ndim, [1] * x.type.ndim, [1] * x.type.ndim
    for k, j in axes.items():
        start[k], size[k], step[k] = (op.attrs[key][j] for key in ("start", "size", "step"))
    return b.reshape(b.slice(x, start, size, step), op.attrs["size"])


# -- reductions -----------------------------------------------------------------------


def _without(shape: Sequence[int], axes: Sequence[int]) -> list[int]:
    return [n for k, n in enumerate(shape) if k not in axes]


@rule(*REDUCTIONS, up_to="sign of zero", group="shape")
def reduce_unit_axes(b: Rewriter, op: Op) -> Value | None:
    """reduce over an axis of length 1 -> reshape"""
    x, axes = op.operands[0], op.attrs["axes"]
    shape = x.type.shape
    if not axes:
        return x
    unit = [k for k in axes if shape[k] == 1]
    if not unit:
        return None
    squeezed = b.reshape(x, _without(shape, unit))
    rest = [k - sum(u < k for u in unit) for k in axes if shape[k] != 1]
    return b.reduce(op.name[7:], squeezed, rest)


@rule(*REDUCTIONS, given=REDUCTIONS, up_to="rounding", group="shape")
def reduce_reduce(b: Rewriter, op: Op) -> Value | None:
    """sum(sum x) -> sum x over both sets of axes, also for prod, max, min, any, all"""
    inner = _inner(op)
    if inner.name != op.name:
        return None
    x, first = inner.operands[0], inner.attrs["axes"]
    left = [k for k in range(x.type.ndim) if k not in first]
    return b.reduce(op.name[7:], x, [*first, *(left[k] for k in op.attrs["axes"])])


@rule(*(_ORDERLESS | {"reduce_sum"}), given="broadcast", up_to="rounding", group="shape")
def reduce_broadcast(b: Rewriter, op: Op) -> Value | None:
    """sum(broadcast x) over n repetitions -> x*n, max(broadcast x) -> x"""
    inner = _inner(op)
    x, dims, shape = inner.operands[0], inner.attrs["dims"], inner.attrs["shape"]
    axes = op.attrs["axes"]
    count = math.prod(shape[k] for k in axes if k not in dims)
    if count == 0 or count >= 2**31 or all(k in dims for k in axes):
        return None
    y = b.reduce(op.name[7:], x, [k for k, d in enumerate(dims) if d in axes])
    if op.name == "reduce_sum":
        y = b.mul(y, b.like(count, y))
    left = [k for k in range(len(shape)) if k not in axes]
    return b.broadcast(y, op.results[0].type.shape, [left.index(d) for d in dims if d not in axes])


@rule(*REDUCTIONS, given="transpose", up_to="rounding", group="shape")
def reduce_transpose(b: Rewriter, op: Op) -> Value | None:
    """sum(transpose x) -> transpose(sum x), also for the other reductions"""
    inner = _inner(op)
    perm, axes = inner.attrs["perm"], op.attrs["axes"]
    y = b.reduce(op.name[7:], inner.operands[0], [perm[k] for k in axes])
    left = [p for k, p in enumerate(perm) if k not in axes]
    return b.transpose(y, [sorted(left).index(p) for p in left])


@rule(*REDUCTIONS, given="reshape", up_to="rounding", group="shape")
def reduce_reshape(b: Rewriter, op: Op) -> Value | None:
    """sum(reshape x) -> sum x over everything, or if the reshape only moves axes of length 1"""
    x = _inner(op).operands[0]
    axes = op.attrs["axes"]
    if len(axes) == op.operands[0].type.ndim:
        y = b.reduce(op.name[7:], x, _non_unit(x.type.shape))
        return b.reshape(y, ())
    moved = _unit_map(op.operands[0].type.shape, x.type.shape)
    if moved is None or any(k not in moved for k in axes):
        return None
    return b.reshape(b.reduce(op.name[7:], x, [moved[k] for k in axes]), op.results[0].type.shape)


@rule("reduce_sum", given="dot", up_to="rounding and non-finite results", group="shape")
def sum_of_product(b: Rewriter, op: Op) -> Value | None:
    """sum of x·y over free axes of x -> (sum of x)·y, and the same for y"""
    dot, axes = _inner(op), op.attrs["axes"]
    operands, contract, batch = list(dot.operands), dot.attrs["contract"], dot.attrs["batch"]
    at = len(batch[0])
    for side in (0, 1):
        x = operands[side]
        used = {*contract[side], *batch[side]}
        free = [k for k in range(x.type.ndim) if k not in used]
        summed = [k for i, k in enumerate(free, at) if i in axes]
        at += len(free)
        if not summed:
            continue
        if len(summed) != len(axes):  # axes of the other operand, or of the batch, as well
            return None
        operands[side] = b.reduce_sum(x, summed)
        moved = {k: k - sum(s < k for s in summed) for k in used}
        contract, batch = (
            tuple(tuple(moved[k] for k in p[s]) if s == side else p[s] for s in (0, 1))
            for p in (contract, batch)
        )
        return b.emit("dot", tuple(operands), {"contract": contract, "batch": batch})
    return None


@rule("reduce_sum", given="neg", group="shape")
def sum_neg(b: Rewriter, op: Op) -> Value | None:
    """sum(-x) -> -sum(x)"""
    return b.neg(b.reduce_sum(_inner(op).operands[0], op.attrs["axes"]))


@rule(*(_ORDERLESS | {"reduce_sum"}), given="constant", up_to="rounding", group="fold")
def reduce_splat(b: Rewriter, op: Op) -> Value | None:
    """sum(splat c) -> c*n, max(splat c) -> c"""
    x = op.operands[0]
    c = splat(x)
    out = op.results[0].type
    count = math.prod(x.type.shape[k] for k in op.attrs["axes"])
    if c is None or count == 0 or count >= 2**31:
        return None
    y = b.constant(c, out)
    return b.mul(y, b.like(count, y)) if op.name == "reduce_sum" else y


#: a sum of more pieces than this stays one reduction, unless each is a single number
SUMMED_PIECES = 16


@rule("reduce_sum", given="place", up_to="rounding", group="shape")
def sum_place(b: Rewriter, op: Op) -> Value | None:
    """sum(place(x, y, …)) -> sum(x) + sum(y) + …"""
    place = _inner(op)
    if len(op.attrs["axes"]) != len(place.attrs["shape"]):
        return None
    if len(place.operands) > SUMMED_PIECES and any(x.type.size != 1 for x in place.operands):
        return None
    total: Value | None = None
    for x in place.operands:
        term = b.reduce_sum(x, range(x.type.ndim))
        total = term if total is None else b.add(total, term)
    return total


# -- dot ------------------------------------------------------------------------------


@rule("dot", given="transpose", up_to="rounding", group="shape")
def dot_transpose(b: Rewriter, op: Op) -> Value | None:
    """dot(transpose x, y) -> dot(x, y) over other axes, if that keeps the order of the result"""
    operands = list(op.operands)
    contract, batch = list(op.attrs["contract"]), list(op.attrs["batch"])
    changed = False
    for side in (0, 1):
        made = operands[side].op
        if made is None or made.name != "transpose":
            continue
        perm = made.attrs["perm"]
        taken = (*contract[side], *batch[side])
        free = [p for k, p in enumerate(perm) if k not in taken]
        if free != sorted(free):
            continue
        operands[side] = made.operands[0]
        contract[side] = [perm[k] for k in contract[side]]
        batch[side] = [perm[k] for k in batch[side]]
        changed = True
    if not changed:
        return None
    x, y = operands
    return b.dot(x, y, (contract[0], contract[1]), (batch[0], batch[1]))


@rule("dot", up_to="sign of zero", group="shape")
def dot_without_sum(b: Rewriter, op: Op) -> Value | None:
    """dot(x, y) that sums over nothing -> broadcast x * broadcast y, which can be fused"""
    contract, batch = op.attrs["contract"], op.attrs["batch"]
    shape = op.operands[0].type.shape
    if any(shape[k] != 1 for k in contract[0]):
        return None
    out = op.results[0].type.shape
    n_batch = len(batch[0])
    n_free_x = len(shape) - n_batch - len(contract[0])
    factors = []
    for side, x in enumerate(op.operands):
        free = [k for k in range(x.type.ndim) if k not in contract[side] and k not in batch[side]]
        order = [*batch[side], *free]
        moved = b.transpose(x, [*order, *contract[side]])
        moved = b.reshape(moved, moved.type.shape[: len(order)])
        first = n_batch if side == 0 else n_batch + n_free_x
        dims = [*range(n_batch), *range(first, first + len(free))]
        factors.append(b.broadcast(moved, out, dims))
    return b.mul(factors[0], factors[1])
