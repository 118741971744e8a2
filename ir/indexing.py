"""Op entries: ``gather`` and its transpose ``scatter_add``.

Index operands are integer arrays of one shape.  Their values are in range and not negative:
the front end normalises and guards them.

>>> from tapec.ir import F64, I64, Builder, Type
>>> b = Builder()
>>> x, i = b.param(Type(F64, (4, 5))), b.param(Type(I64, (2, 3)))
>>> b.gather(x, [i], [1]).type           # x[:, i] with the index axes first
f64[2,3,4]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tapec.ir.checks import axis_tuple, int_tuple, kind_one_of
from tapec.ir.core import Attrs, Op, Type, Value
from tapec.ir.opdef import Samples, define

if TYPE_CHECKING:
    from tapec.ir.batch import BatchBuilder
    from tapec.ir.builder import Builder

__all__: list[str] = []

Types = tuple[Type, ...]
Cts = Sequence[Value | None]


def _picked(name: str, x: Type, indices: Types, attrs: Attrs) -> Type:
    """The type of ``x[indices]``."""
    axes = int_tuple(name, attrs, "axes")
    axis_tuple(name, axes, x.ndim)
    if not axes or len(axes) != len(indices):
        raise TypeError(f"{name}: {len(indices)} index operands for axes {axes}")
    for i in indices:
        kind_one_of(f"{name}: index", i, "i")
        if i.shape != indices[0].shape:
            raise ValueError(f"{name}: index operands must have one shape, got {indices}")
    rest = tuple([n for k, n in enumerate(x.shape) if k not in axes])
    return x.with_shape(indices[0].shape + rest)


def _in_range(x: Any, indices: Sequence[Any], axes: Sequence[int]) -> tuple[Any, ...]:
    """The indices, checked: NumPy would take negative ones from the end."""
    for i, axis in zip(indices, axes, strict=True):
        if np.size(i) and (np.min(i) < 0 or np.max(i) >= x.shape[axis]):
            raise IndexError(f"index out of range for axis {axis} with size {x.shape[axis]}")
    return tuple(indices)


def _gather_infer(types: Types, attrs: Attrs) -> Types:
    if len(types) < 2:
        raise TypeError(f"gather: takes an array and index operands, got {types}")
    return (_picked("gather", types[0], types[1:], attrs),)


def _gather_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    x, *indices = arrays
    axes = attrs["axes"]
    return np.moveaxis(x, axes, range(len(axes)))[_in_range(x, indices, axes)]


def _gather_vjp(b: Builder, op: Op, cts: Cts) -> Cts:
    (ct,) = cts
    x, *indices = op.operands
    none = (None,) * len(indices)
    if ct is None:
        return (None, *none)
    return (b.scatter_add(b.zeros(x.type), ct, indices, op.attrs["axes"]), *none)


def _with_lane(b: BatchBuilder, indices: Sequence[Value]) -> list[Value]:
    """The indices with the batch axis, after the number of the lane."""
    batched = [b.spread(i) for i in indices]
    t = batched[0].type
    return [b.iota(t.shape, 0, t.dtype), *batched]


def _gather_batch(b: BatchBuilder, op: Op, xs: Sequence[Value]) -> Sequence[Value]:
    x, *indices = xs
    axes = op.attrs["axes"]
    if x not in b.batched:  # the index axes come first: the batch axis is where it should be
        return (b.gather(x, [b.spread(i) for i in indices], axes),)
    axes = tuple([k + 1 for k in axes])
    if b.batched.isdisjoint(indices):
        return (b.front(b.gather(x, indices, axes), indices[0].type.ndim),)
    return (b.gather(x, _with_lane(b, indices), (0, *axes)),)


define(
    "gather",
    infer=_gather_infer,
    numpy=_gather_numpy,
    vjp=_gather_vjp,
    batch=_gather_batch,
    linear=(0,),
    masks=True,
    samples=Samples(
        low=(-3.0, 0.0),
        high=(3.0, 3.0),
        cases=(
            (("f64[4]", "i64[3]"), {"axes": (0,)}),
            (("f64[3]", "i64[]"), {"axes": (0,)}),
            (("f64[3,4]", "i64[2,5]"), {"axes": (1,)}),
            (("f64[3,4]", "i64[5]", "i64[5]"), {"axes": (0, 1)}),
            (("f32[3,2,4]", "i32[6]", "i32[6]"), {"axes": (0, 2)}),
            (("f64[3]", "i64[0]"), {"axes": (0,)}),
            (("f64[3,0]", "i64[2]"), {"axes": (0,)}),
            (("f64[3,1]", "i64[1]"), {"axes": (0,)}),
            (("bool[3]", "i64[4]"), {"axes": (0,)}),
            (("i64[3]", "i32[2]"), {"axes": (0,)}),
        ),
    ),
    doc="x[i0, i1, …] on `axes`: the shape of the indices, then the other axes of x.",
)


def _scatter_infer(types: Types, attrs: Attrs) -> Types:
    if len(types) < 3:
        raise TypeError(f"scatter_add: takes base, updates and index operands, got {types}")
    base, updates = types[:2]
    kind_one_of("scatter_add", base, "ifc")
    wanted = _picked("scatter_add", base, types[2:], attrs)
    if updates is not wanted:
        raise TypeError(f"scatter_add: updates have type {updates}, expected {wanted}")
    return (base,)


def _scatter_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    base, updates, *indices = arrays
    axes = attrs["axes"]
    out = np.array(base)
    view = np.moveaxis(out, axes, range(len(axes)))
    np.add.at(view, _in_range(out, indices, axes), updates)
    return out


def _scatter_vjp(b: Builder, op: Op, cts: Cts) -> Cts:
    (ct,) = cts
    indices = op.operands[2:]
    none = (None,) * len(indices)
    if ct is None:
        return (None, None, *none)
    return (ct, b.gather(ct, indices, op.attrs["axes"]), *none)


def _scatter_jvp(b: Builder, op: Op, tangents: Cts) -> Cts:
    base, updates = tangents[0], tangents[1]
    if updates is None:
        return (base,)
    if base is None:
        base = b.zeros(op.results[0].type)
    return (b.scatter_add(base, updates, op.operands[2:], op.attrs["axes"]),)


def _scatter_batch(b: BatchBuilder, op: Op, xs: Sequence[Value]) -> Sequence[Value]:
    base, updates = b.spread(xs[0]), b.spread(xs[1])
    indices = xs[2:]
    axes = tuple([k + 1 for k in op.attrs["axes"]])
    if b.batched.isdisjoint(indices):
        # updates: the index axes, then the batch axis, which is the first other axis of base
        n = indices[0].type.ndim
        order = (*range(1, n + 1), 0, *range(n + 1, updates.type.ndim))
        return (b.scatter_add(base, b.transpose(updates, order), indices, axes),)
    return (b.scatter_add(base, updates, _with_lane(b, indices), (0, *axes)),)


define(
    "scatter_add",
    infer=_scatter_infer,
    numpy=_scatter_numpy,
    vjp=_scatter_vjp,
    jvp=_scatter_jvp,
    batch=_scatter_batch,
    masks_tangent=True,
    samples=Samples(
        low=(-3.0, -3.0, 0.0),
        high=(3.0, 3.0, 3.0),
        cases=(
            (("f64[4]", "f64[6]", "i64[6]"), {"axes": (0,)}),
            (("f64[3]", "f64[]", "i64[]"), {"axes": (0,)}),
            (("f64[2,3]", "f64[4,2]", "i64[4]"), {"axes": (1,)}),
            (("f64[3,4]", "f64[2,2]", "i64[2,2]", "i64[2,2]"), {"axes": (0, 1)}),
            (("f32[3,2,4]", "f32[5,2]", "i32[5]", "i32[5]"), {"axes": (0, 2)}),
            (("f64[3]", "f64[0]", "i64[0]"), {"axes": (0,)}),
            (("f64[3,1]", "f64[1,1]", "i64[1]"), {"axes": (0,)}),
            (("i64[3]", "i64[4]", "i64[4]"), {"axes": (0,)}),
        ),
    ),
    doc="`base` with `updates` added where gather would read; repeated places accumulate.",
)
