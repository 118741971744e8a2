"""Op entries: reductions, argmax/argmin and cumulative sums.

Reductions remove their axes.  Over an axis without elements the sum is 0, the product 1,
any False and all True; the maximum and the minimum have no value there and are refused by
the type rule with NumPy's words.

Kinks: elements that tie for the maximum (or minimum) share its cotangent evenly.  The
gradient of a product is exact where factors are 0, at every order: see Note [Products].

>>> from tapec.ir import F64, Builder, Type
>>> b = Builder()
>>> b.reduce("max", b.param(Type(F64, (2, 3))), [1]).type
f64[2]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tapec.ir.adjoint import AdjointBuilder
from tapec.ir.checks import attr, axis_of, axis_tuple, count, int_tuple, kind_one_of
from tapec.ir.core import I64, Attrs, Op, Type, Value
from tapec.ir.opdef import Samples, define

if TYPE_CHECKING:
    from tapec.ir.batch import BatchBuilder
    from tapec.ir.builder import Builder

__all__: list[str] = []

Types = tuple[Type, ...]
Cts = Sequence[Value | None]


def _reduce_infer(
    name: str, kinds: str, no_identity: str | None = None
) -> Callable[[Types, Attrs], Types]:
    """The type rule of a reduction; ``no_identity`` is NumPy's name of one that needs elements."""

    def infer(types: Types, attrs: Attrs) -> Types:
        count(name, types, 1)
        t = types[0]
        kind_one_of(name, t, kinds)
        axes = int_tuple(name, attrs, "axes")
        if not axes:
            raise ValueError(f"{name}: attribute 'axes' is empty")
        axis_tuple(name, axes, t.ndim)
        shape = t.shape
        result = t.with_shape(tuple([n for k, n in enumerate(shape) if k not in axes]))
        if no_identity and any(shape[k] == 0 for k in axes):
            raise ValueError(
                f"zero-size array to reduction operation {no_identity} which has no identity"
            )
        return (result,)

    return infer


def _kept(op: Op) -> list[int]:
    """The operand axes that a reduction leaves."""
    axes = op.attrs["axes"]
    return [k for k in range(op.operands[0].type.ndim) if k not in axes]


def _restore(b: Builder, op: Op, z: Value) -> Value:
    """A value of a reduction's result type repeated over its operand's shape."""
    return b.broadcast(z, op.operands[0].type.shape, _kept(op))


def _reduce_batch(b: BatchBuilder, op: Op, xs: Sequence[Value]) -> Sequence[Value]:
    axes = tuple([k + 1 for k in op.attrs["axes"]])
    return (b.emit(op.name, (xs[0],), {"axes": axes}),)


def _axis_batch(b: BatchBuilder, op: Op, xs: Sequence[Value]) -> Sequence[Value]:
    """Ops along one ``axis``."""
    return (b.emit(op.name, (xs[0],), {**op.attrs, "axis": op.attrs["axis"] + 1}),)


_SAMPLES = Samples(
    cases=(
        (("f64[5]",), {"axes": (0,)}),
        (("f64[3,4]",), {"axes": (0,)}),
        (("f64[3,4]",), {"axes": (1,)}),
        (("f32[3,4]",), {"axes": (0, 1)}),
        (("f64[2,3,4]",), {"axes": (0, 2)}),
        (("f64[2,3,4]",), {"axes": (1,)}),
        (("f64[1]",), {"axes": (0,)}),
        (("f64[2,1]",), {"axes": (1,)}),
        (("f64[0,3]",), {"axes": (1,)}),
        (("i64[2,3]",), {"axes": (1,)}),
        (("i32[4]",), {"axes": (0,)}),
    )
)
#: for reductions that have a value over no elements
_SAMPLES_EMPTY = Samples(
    cases=(
        *_SAMPLES.cases,
        (("f64[0]",), {"axes": (0,)}),
        (("f64[0,3]",), {"axes": (0,)}),
        (("f64[2,0]",), {"axes": (0, 1)}),
    )
)


# -- sum ----------------------------------------------------------------------------


def _sum_vjp(b: Builder, op: Op, cts: Cts) -> Cts:
    (ct,) = cts
    return (None if ct is None else _restore(b, op, ct),)


define(
    "reduce_sum",
    infer=_reduce_infer("reduce_sum", "ifc"),
    numpy=lambda arrays, attrs: np.sum(arrays[0], axis=attrs["axes"], dtype=arrays[0].dtype),
    vjp=_sum_vjp,
    batch=_reduce_batch,
    linear=(0,),
    samples=_SAMPLES_EMPTY,
    doc="Sum over `axes`, in the operand's dtype.",
)


# -- prod ---------------------------------------------------------------------------
#
# Note [Products].  ct * z / x is wrong where a factor is 0, and no guard repairs its higher
# derivatives.  Instead both modes differentiate the product as a tree: the row of n
# factors is halved log2(n) times, each time multiplying the first half by the second.
# The rules below emit that tree and its exact derivative, from slices and products only,
# so that what they emit can be differentiated again.  O(n) work, O(log n) ops.


def _as_rows(b: Builder, op: Op, x: Value) -> Value:
    """``x`` with the kept axes first and the reduced ones merged into one last axis."""
    t, axes, kept = op.operands[0].type, op.attrs["axes"], _kept(op)
    rows = [t.shape[k] for k in kept]
    n = 1
    for k in axes:
        n *= t.shape[k]
    return b.reshape(b.transpose(x, [*kept, *axes]), [*rows, n])


def _from_rows(b: Builder, op: Op, rows: Value) -> Value:
    """The inverse of ``_as_rows``."""
    shape, axes, kept = op.operands[0].type.shape, op.attrs["axes"], _kept(op)
    order = [*kept, *axes]
    inverse = [0] * len(order)
    for k, axis in enumerate(order):
        inverse[axis] = k
    return b.transpose(b.reshape(rows, [shape[k] for k in order]), inverse)


def _part(b: Builder, x: Value, start: int, size: int) -> Value:
    """``x[..., start : start + size]``."""
    lead = x.type.shape[:-1]
    return b.slice(x, [0] * len(lead) + [start], [*lead, size])


def _halves(b: Builder, x: Value) -> tuple[Value, Value, Value | None]:
    """First half, second half and, for an odd length, the last element of the last axis."""
    n = x.type.shape[-1]
    h = n // 2
    return _part(b, x, 0, h), _part(b, x, h, h), _part(b, x, n - 1, 1) if n % 2 else None


def _join(b: Builder, parts: Sequence[Value | None]) -> Value:
    present = [p for p in parts if p is not None]
    return b.concat(present, present[0].type.ndim - 1)


def _prod_vjp(b: Builder, op: Op, cts: Cts) -> Cts:
    (ct,) = cts
    x = op.operands[0]
    if ct is None or x.type.size == 0:
        return (None,)
    levels = []
    row = _as_rows(b, op, x)
    while row.type.shape[-1] > 1:
        first, second, last = _halves(b, row)
        levels.append((first, second))
        if row.type.shape[-1] > 2:
            row = _join(b, [b.mul(first, second), last])
        else:
            break
    # Below a select, a zero cotangent must win over an infinite factor.
    masked = isinstance(b, AdjointBuilder) and b.is_masked(ct)
    times = b.strong_mul if masked else b.mul
    ct = b.reshape(ct, [*ct.type.shape, 1])
    for first, second in reversed(levels):
        h = first.type.shape[-1]
        odd = ct.type.shape[-1] > h
        ct_pair = _part(b, ct, 0, h)
        ct_last = _part(b, ct, h, 1) if odd else None
        ct = _join(b, [times(ct_pair, second), times(ct_pair, first), ct_last])
    return (_from_rows(b, op, ct),)


def _prod_jvp(b: Builder, op: Op, tangents: Cts) -> Cts:
    (t,) = tangents
    if t is None or op.operands[0].type.size == 0:
        return (None,)
    row, t = _as_rows(b, op, op.operands[0]), _as_rows(b, op, t)
    while (n := row.type.shape[-1]) > 1:
        first, second, last = _halves(b, row)
        t_first, t_second, t_last = _halves(b, t)
        t = _join(b, [b.add(b.mul(t_first, second), b.mul(first, t_second)), t_last])
        if n > 2:
            row = _join(b, [b.mul(first, second), last])
        else:
            break
    return (b.reshape(t, op.results[0].type.shape),)


define(
    "reduce_prod",
    infer=_reduce_infer("reduce_prod", "ifc"),
    numpy=lambda arrays, attrs: np.prod(arrays[0], axis=attrs["axes"], dtype=arrays[0].dtype),
    vjp=_prod_vjp,
    jvp=_prod_jvp,
    batch=_reduce_batch,
    samples=Samples(
        cases=(
            *_SAMPLES_EMPTY.cases,
            (("f64[2]",), {"axes": (0,)}),
            (("f64[7]",), {"axes": (0,)}),
            (("f64[13]",), {"axes": (0,)}),
        )
    ),
    doc="Product over `axes`, in the operand's dtype.",
)


# -- max, min -----------------------------------------------------------------------


def _winners(b: Builder, op: Op) -> tuple[Value, Value]:
    """Where the extremum is taken, and how often (in the result's type)."""
    x, z = op.operands[0], op.results[0]
    mask = b.eq(x, _restore(b, op, z))
    return mask, b.reduce_sum(b.convert(mask, x.type.dtype), op.attrs["axes"])


def _extremum_vjp(b: Builder, op: Op, cts: Cts) -> Cts:
    (ct,) = cts
    x = op.operands[0]
    if ct is None or x.type.size == 0:
        return (None,)
    mask, ties = _winners(b, op)
    share = _restore(b, op, b.div(ct, ties))
    return (b.select(mask, share, b.zeros(x.type)),)


def _extremum_jvp(b: Builder, op: Op, tangents: Cts) -> Cts:
    (t,) = tangents
    if t is None or t.type.size == 0:
        return (None,)
    mask, ties = _winners(b, op)
    total = b.reduce_sum(b.select(mask, t, b.zeros(t.type)), op.attrs["axes"])
    return (b.div(total, ties),)


for _name, _ufunc in (("max", np.maximum), ("min", np.minimum)):
    define(
        "reduce_" + _name,
        infer=_reduce_infer("reduce_" + _name, "bif", _ufunc.__name__),
        numpy=lambda arrays, attrs, _f=_ufunc: _f.reduce(arrays[0], axis=attrs["axes"]),
        vjp=_extremum_vjp,
        jvp=_extremum_jvp,
        batch=_reduce_batch,
        masks=True,
        samples=Samples(cases=(*_SAMPLES.cases, (("bool[2,3]",), {"axes": (1,)}))),
        doc=f"NumPy's {_name}: NaN where an element is NaN. Ties share the cotangent evenly.",
    )


# -- any, all -----------------------------------------------------------------------

for _name, _every in (("any", np.any), ("all", np.all)):
    define(
        "reduce_" + _name,
        infer=_reduce_infer("reduce_" + _name, "b"),
        numpy=lambda arrays, attrs, _f=_every: _f(arrays[0], axis=attrs["axes"]),
        batch=_reduce_batch,
        nondifferentiable=True,
        samples=Samples(
            cases=(
                (("bool[5]",), {"axes": (0,)}),
                (("bool[3,4]",), {"axes": (1,)}),
                (("bool[2,2,2]",), {"axes": (0, 2)}),
                (("bool[0]",), {"axes": (0,)}),
                (("bool[1]",), {"axes": (0,)}),
            )
        ),
        doc=f"Whether {_name} of the elements are True.",
    )


# -- argmax, argmin -----------------------------------------------------------------


def _arg_infer(name: str) -> Callable[[Types, Attrs], Types]:
    def infer(types: Types, attrs: Attrs) -> Types:
        count(name, types, 1)
        t = types[0]
        kind_one_of(name, t, "bif")
        axis = axis_of(name, attrs, t.ndim)
        if t.shape[axis] == 0:
            raise ValueError(f"attempt to get {name} of an empty sequence")
        return (Type(I64, t.shape[:axis] + t.shape[axis + 1 :]),)

    return infer


for _name, _function in (("argmax", np.argmax), ("argmin", np.argmin)):
    define(
        _name,
        infer=_arg_infer(_name),
        numpy=lambda arrays, attrs, _f=_function: _f(arrays[0], axis=attrs["axis"]),
        batch=_axis_batch,
        nondifferentiable=True,
        samples=Samples(
            cases=(
                (("f64[5]",), {"axis": 0}),
                (("f64[3,4]",), {"axis": 0}),
                (("f32[3,4]",), {"axis": 1}),
                (("f64[0,3]",), {"axis": 1}),
                (("f64[1]",), {"axis": 0}),
                (("i64[2,3]",), {"axis": 1}),
                (("bool[6]",), {"axis": 0}),
            )
        ),
        doc="Index of the first extremum along `axis`, which is removed; a NaN counts as one.",
    )


# -- cumsum -------------------------------------------------------------------------


def _cumsum_infer(types: Types, attrs: Attrs) -> Types:
    count("cumsum", types, 1)
    kind_one_of("cumsum", types[0], "ifc")
    axis_of("cumsum", attrs, types[0].ndim)
    if type(attr("cumsum", attrs, "reverse")) is not bool:
        raise TypeError(f"cumsum: attribute 'reverse' must be a bool, got {attrs['reverse']!r}")
    return types


def _cumsum_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    (x,) = arrays
    axis = attrs["axis"]
    if not attrs["reverse"]:
        return np.cumsum(x, axis=axis, dtype=x.dtype)
    return np.flip(np.cumsum(np.flip(x, axis), axis=axis, dtype=x.dtype), axis)


def _cumsum_vjp(b: Builder, op: Op, cts: Cts) -> Cts:
    (ct,) = cts
    if ct is None:
        return (None,)
    return (b.cumsum(ct, op.attrs["axis"], not op.attrs["reverse"]),)


define(
    "cumsum",
    infer=_cumsum_infer,
    numpy=_cumsum_numpy,
    vjp=_cumsum_vjp,
    batch=_axis_batch,
    linear=(0,),
    samples=Samples(
        cases=(
            (("f64[5]",), {"axis": 0, "reverse": False}),
            (("f64[5]",), {"axis": 0, "reverse": True}),
            (("f64[3,4]",), {"axis": 0, "reverse": False}),
            (("f32[3,4]",), {"axis": 1, "reverse": True}),
            (("f64[0,2]",), {"axis": 0, "reverse": False}),
            (("f64[1]",), {"axis": 0, "reverse": True}),
            (("i64[4]",), {"axis": 0, "reverse": False}),
        )
    ),
    doc="Running sums along `axis`, from its end if `reverse`.",
)
