"""Op entries: ``sort``, stable, with NaN last, and ``searchsorted``.

``sort(x; axis) -> (values, permutation)``: ``values[i] = x[permutation[i]]`` along the axis.
The derivative moves with the permutation, which itself has none; elements that tie keep their
order.

>>> from tapec.ir import F64, Builder, Type
>>> b = Builder()
>>> [r.type for r in b.emit_op("sort", (b.param(Type(F64, (3, 4))),), {"axis": 1}).results]
[f64[3,4], i64[3,4]]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tapec.ir.checks import attr, axis_of, count, kind_one_of
from tapec.ir.core import I64, Attrs, Op, Type, Value
from tapec.ir.opdef import Samples, define

if TYPE_CHECKING:
    from tapec.ir.batch import BatchBuilder
    from tapec.ir.builder import Builder

__all__: list[str] = []

Types = tuple[Type, ...]
Cts = Sequence[Value | None]


def _sort_infer(types: Types, attrs: Attrs) -> Types:
    count("sort", types, 1)
    kind_one_of("sort", types[0], "bif")
    axis_of("sort", attrs, types[0].ndim)
    return (types[0], types[0].with_dtype(I64))


def _sort_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    (x,) = arrays
    order = np.argsort(x, axis=attrs["axis"], kind="stable")
    return np.take_along_axis(x, order, attrs["axis"]), order


def _places(b: Builder, op: Op) -> tuple[list[Value], tuple[int, ...]]:
    """Index operands that read the operand in sorted order, and their axes."""
    permutation, axis = op.results[1], op.attrs["axis"]
    shape = permutation.type.shape
    indices = [permutation if k == axis else b.iota(shape, k) for k in range(len(shape))]
    return indices, tuple(range(len(shape)))


def _sort_vjp(b: Builder, op: Op, cts: Cts) -> Cts:
    ct = cts[0]
    if ct is None:
        return (None,)
    indices, axes = _places(b, op)
    return (b.scatter_add(b.zeros(ct.type), ct, indices, axes),)


def _sort_jvp(b: Builder, op: Op, tangents: Cts) -> Cts:
    (t,) = tangents
    if t is None:
        return (None, None)
    indices, axes = _places(b, op)
    return (b.gather(t, indices, axes), None)


def _sort_batch(b: BatchBuilder, op: Op, xs: Sequence[Value]) -> Sequence[Value]:
    return b.emit_op("sort", (xs[0],), {"axis": op.attrs["axis"] + 1}).results


define(
    "sort",
    infer=_sort_infer,
    numpy=_sort_numpy,
    vjp=_sort_vjp,
    jvp=_sort_jvp,
    batch=_sort_batch,
    samples=Samples(
        cases=(
            (("f64[5]",), {"axis": 0}),
            (("f64[3,4]",), {"axis": 0}),
            (("f32[3,4]",), {"axis": 1}),
            (("f64[2,3,40]",), {"axis": 2}),
            (("f64[33,2]",), {"axis": 0}),
            (("f64[0,3]",), {"axis": 1}),
            (("f64[1]",), {"axis": 0}),
            (("i64[100]",), {"axis": 0}),
            (("bool[6]",), {"axis": 0}),
        )
    ),
    doc="Sorted along `axis`, stable, NaN last; and the permutation that sorts.",
)


def _search_infer(types: Types, attrs: Attrs) -> Types:
    count("searchsorted", types, 2)
    a, v = types
    kind_one_of("searchsorted", a, "if")
    if a.ndim != 1:
        raise ValueError(f"searchsorted: the sorted array must be 1-d, got {a}")
    if a.dtype is not v.dtype:
        raise TypeError(f"searchsorted: operands must have one dtype, got {a} and {v}")
    if type(attr("searchsorted", attrs, "right")) is not bool:
        raise TypeError(f"searchsorted: attribute 'right' must be a bool, got {attrs['right']!r}")
    return (Type(I64, v.shape),)


def _search_batch(b: BatchBuilder, op: Op, xs: Sequence[Value]) -> Sequence[Value]:
    """A shared table takes any shape of values; tables of their own are counted through."""
    a, v = xs
    if a not in b.batched:
        return (b.emit("searchsorted", (a, v), op.attrs),)
    v = b.spread(v)
    shape = (*v.type.shape, a.type.shape[1])
    lead = len(v.type.shape)
    table = b.broadcast(a, shape, (0, lead))
    value = b.broadcast(v, shape, tuple(range(lead)))
    before = b.le(table, value) if op.attrs["right"] else b.lt(table, value)
    return (b.reduce_sum(b.convert(before, I64), (lead,)),)


define(
    "searchsorted",
    infer=_search_infer,
    numpy=lambda xs, attrs: np.searchsorted(xs[0], xs[1], "right" if attrs["right"] else "left"),
    batch=_search_batch,
    nondifferentiable=True,
    samples=Samples(
        cases=(
            (("f64[1]", "f64[5]"), {"right": False}),
            (("f64[1]", "f64[2,3]"), {"right": True}),
            (("f32[0]", "f32[4]"), {"right": False}),
            (("f64[1]", "f64[]"), {"right": True}),
            (("i64[1]", "i64[20]"), {"right": False}),
        )
    ),
    doc="Where each value would be inserted into the sorted 1-d array.",
)
