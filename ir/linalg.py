"""Op entries: ``dot``, the batched contraction behind every matrix product.

``dot(x, y; contract=(cx, cy), batch=(bx, by))`` sums over pairs of axes, runs over pairs of
batch axes, and returns batch axes, free axes of x, free axes of y, in this order.

>>> from tapec.ir import F64, Builder, Type
>>> b = Builder()
>>> x, y = b.param(Type(F64, (2, 3))), b.param(Type(F64, (3, 4)))
>>> b.dot(x, y, contract=([1], [0])).type
f64[2,4]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tapec.ir.adjoint import AdjointBuilder
from tapec.ir.checks import attr, count, int_tuple, kind_one_of
from tapec.ir.core import Attrs, Op, Type, Value
from tapec.ir.opdef import Samples, define

if TYPE_CHECKING:
    from tapec.ir.batch import BatchBuilder
    from tapec.ir.builder import Builder

__all__ = ["free_axes"]

Types = tuple[Type, ...]
Cts = Sequence[Value | None]
Axes = tuple[int, ...]


def _axis_pairs(attrs: Attrs, key: str) -> tuple[Axes, Axes]:
    value = attr("dot", attrs, key)
    if type(value) is not tuple or len(value) != 2:
        raise TypeError(f"dot: attribute {key!r} must be a pair of axis tuples, got {value!r}")
    both = {f"{key}[0]": value[0], f"{key}[1]": value[1]}
    xs, ys = (int_tuple("dot", both, k) for k in both)
    if len(xs) != len(ys):
        raise ValueError(f"dot: {key} pairs {len(xs)} axes with {len(ys)}")
    return xs, ys


def free_axes(ndim: int, contract: Axes, batch: Axes) -> Axes:
    """The axes of an operand that are neither contracted nor batch axes."""
    return tuple([k for k in range(ndim) if k not in contract and k not in batch])


def _dot_infer(types: Types, attrs: Attrs) -> Types:
    count("dot", types, 2)
    x, y = types
    kind_one_of("dot", x, "ifc")
    if x.dtype is not y.dtype:
        raise TypeError(f"dot: operands must have one dtype, got {x} and {y}")
    (cx, cy), (bx, by) = _axis_pairs(attrs, "contract"), _axis_pairs(attrs, "batch")
    for t, axes in ((x, cx + bx), (y, cy + by)):
        if len(set(axes)) != len(axes) or any(not 0 <= k < t.ndim for k in axes):
            raise ValueError(f"dot: axes {axes} are not distinct axes of {t}")
    for k, m in zip(cx + bx, cy + by):
        if x.shape[k] != y.shape[m]:
            raise ValueError(
                f"dot: axis {k} of {x} does not match axis {m} of {y}: "
                f"size {x.shape[k]} is different from {y.shape[m]}"
            )
    shape = [x.shape[k] for k in bx]
    shape += [x.shape[k] for k in free_axes(x.ndim, cx, bx)]
    shape += [y.shape[k] for k in free_axes(y.ndim, cy, by)]
    return (x.with_shape(tuple(shape)),)


def _size(shape: Sequence[int], axes: Axes) -> int:
    n = 1
    for k in axes:
        n *= shape[k]
    return n


def _dot_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    x, y = arrays
    (cx, cy), (bx, by) = attrs["contract"], attrs["batch"]
    fx, fy = free_axes(x.ndim, cx, bx), free_axes(y.ndim, cy, by)
    lead, inner = _size(x.shape, bx), _size(x.shape, cx)
    rows, columns = _size(x.shape, fx), _size(y.shape, fy)
    left = np.transpose(x, bx + fx + cx).reshape(lead, rows, inner)
    right = np.transpose(y, by + cy + fy).reshape(lead, inner, columns)
    shape = [x.shape[k] for k in bx + fx] + [y.shape[k] for k in fy]
    return np.matmul(left, right).reshape(shape)


def _sorted_back(b: Builder, value: Value, order: Sequence[int]) -> Value:
    """``value``, whose axis k is to be axis order[k], transposed to that."""
    perm = [0] * len(order)
    for k, axis in enumerate(order):
        perm[axis] = k
    return b.transpose(value, perm)


def _wanted(b: Builder, x: Value) -> bool:
    """Whether a derivative with respect to ``x`` is of use: each costs as much as the dot."""
    return not isinstance(b, AdjointBuilder) or x in b.active


def _dot_vjp(b: Builder, op: Op, cts: Cts) -> Cts:
    (ct,) = cts
    if ct is None:
        return (None, None)
    x, y = op.operands
    (cx, cy), (bx, by) = op.attrs["contract"], op.attrs["batch"]
    fx, fy = free_axes(x.type.ndim, cx, bx), free_axes(y.type.ndim, cy, by)
    # Where the axes of the result stand: batch axes, free axes of x, free axes of y.
    lead = tuple(range(len(bx)))
    at_x = tuple(range(len(bx), len(bx) + len(fx)))
    at_y = tuple(range(len(bx) + len(fx), ct.type.ndim))
    # The contracted axes come out in the order of the other operand's axes.
    by_y = [cx[k] for k in sorted(range(len(cy)), key=cy.__getitem__)]
    by_x = [cy[k] for k in sorted(range(len(cx)), key=cx.__getitem__)]
    ct_x = ct_y = None
    if _wanted(b, x):
        ct_x = b.dot(ct, y, (at_y, fy), (lead, by))
        ct_x = _sorted_back(b, ct_x, [*bx, *fx, *by_y])
    if _wanted(b, y):
        ct_y = b.dot(x, ct, (fx, at_x), (bx, lead))
        ct_y = _sorted_back(b, ct_y, [*by, *by_x, *fy])
    return (ct_x, ct_y)


def _dot_jvp(b: Builder, op: Op, tangents: Cts) -> Cts:
    x, y = op.operands
    tx, ty = tangents
    contract, batch = op.attrs["contract"], op.attrs["batch"]
    from_x = None if tx is None else b.dot(tx, y, contract, batch)
    from_y = None if ty is None else b.dot(x, ty, contract, batch)
    if from_x is None or from_y is None:
        return (from_x or from_y,)
    return (b.add(from_x, from_y),)


def _dot_batch(b: BatchBuilder, op: Op, xs: Sequence[Value]) -> Sequence[Value]:
    x, y = xs
    (cx, cy), (bx, by) = op.attrs["contract"], op.attrs["batch"]
    in_x, in_y = x in b.batched, y in b.batched
    if in_x:
        cx, bx = tuple([k + 1 for k in cx]), tuple([k + 1 for k in bx])
    if in_y:
        cy, by = tuple([k + 1 for k in cy]), tuple([k + 1 for k in by])
    if in_x and in_y:
        return (b.dot(x, y, (cx, cy), ((0, *bx), (0, *by))),)
    out = b.dot(x, y, (cx, cy), (bx, by))
    # The batch axis is the first free axis of its operand.
    at = len(bx) if in_x else len(bx) + len(free_axes(x.type.ndim, cx, bx))
    return (b.front(out, at),)


def _case(x: str, y: str, contract: Any, batch: Any = ((), ())) -> Any:
    return (x, y), {"contract": contract, "batch": batch}


define(
    "dot",
    infer=_dot_infer,
    numpy=_dot_numpy,
    vjp=_dot_vjp,
    jvp=_dot_jvp,
    batch=_dot_batch,
    samples=Samples(
        cases=(
            _case("f64[3]", "f64[3]", ((0,), (0,))),
            _case("f64[2,3]", "f64[3]", ((1,), (0,))),
            _case("f64[2,3]", "f64[3,4]", ((1,), (0,))),
            _case("f32[3,2]", "f32[4,3]", ((0,), (1,))),
            _case("f64[5,2,3]", "f64[5,3,4]", ((2,), (1,)), ((0,), (0,))),
            _case("f64[2,3,5]", "f64[4,5,3]", ((1,), (2,)), ((2,), (1,))),
            _case("f64[2,3,4]", "f64[4,5,3]", ((1, 2), (2, 0))),
            _case("f64[2,3,4]", "f64[3,4,5]", ((2, 1), (1, 0))),
            _case("f64[2,3,4]", "f64[4,3,2]", ((1,), (1,)), ((2, 0), (0, 2))),
            _case("f64[2]", "f64[3]", ((), ())),
            _case("f64[2]", "f64[2]", ((), ()), ((0,), (0,))),
            _case("f64[]", "f64[]", ((), ())),
            _case("f64[2,0]", "f64[0,3]", ((1,), (0,))),
            _case("f64[0,2]", "f64[2,3]", ((1,), (0,))),
            _case("f64[1,1]", "f64[1,1]", ((1,), (0,))),
            _case("i64[2,3]", "i64[3]", ((1,), (0,))),
        )
    ),
    doc="Sum over `contract` axis pairs for each index of the `batch` axis pairs.",
)
