"""Op entries: constants, and ops that only move elements.

``reshape``, ``transpose``, ``broadcast``, ``slice`` and ``place`` are linear, and each is
the transpose of another one: ``slice``/``place``, ``broadcast``/``reduce_sum``.  Code
generation turns all of them into index arithmetic.

>>> from tapec.ir import F64, Builder, Type
>>> b = Builder()
>>> x = b.param(Type(F64, (4,)))
>>> b.slice(x, [3], [2], [-2]).type      # x[3], x[1]
f64[2]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tapec.ir.checks import attr, axis_of, axis_tuple, count, int_tuple
from tapec.ir.core import BOOL, F32, F64, I32, I64, Attrs, Dense, Op, Type, Value
from tapec.ir.opdef import Samples, define

if TYPE_CHECKING:
    from tapec.ir.batch import BatchBuilder
    from tapec.ir.builder import Builder

__all__ = ["index_of", "scalar_matches"]

Types = tuple[Type, ...]
Cts = Sequence[Value | None]

_PYTHON = {"b": bool, "i": int, "f": float, "c": complex}


def _dims(name: str, attrs: Attrs, key: str) -> tuple[int, ...]:
    """A tuple of axis lengths."""
    shape = int_tuple(name, attrs, key)
    if shape and min(shape) < 0:
        raise ValueError(f"{name}: negative dimensions are not allowed, got {key} {shape}")
    return shape


# -- constant, iota -----------------------------------------------------------------


def scalar_matches(value: Any, type_: Type) -> bool:
    """Whether a scalar constant has the Python type that its dtype asks for."""
    return type(value) is _PYTHON[type_.dtype.kind]


def _typed(name: str, attrs: Attrs) -> Type:
    t = attr(name, attrs, "type")
    if not isinstance(t, Type):
        raise TypeError(f"{name}: attribute 'type' must be a Type, got {t!r}")
    return t


def _constant_infer(types: Types, attrs: Attrs) -> Types:
    count("constant", types, 0)
    t = _typed("constant", attrs)
    value = attr("constant", attrs, "value")
    if isinstance(value, Dense):
        a = value.array
        if a.shape != t.shape or a.dtype != t.dtype.np:
            raise TypeError(f"constant: {a.dtype} array of shape {a.shape} for type {t}")
    elif not scalar_matches(value, t):
        raise TypeError(
            f"constant: value of {t} must be a {_PYTHON[t.dtype.kind].__name__} or Dense, "
            f"got {value!r} ({type(value).__name__})"
        )
    elif t.dtype.kind == "i" and not np.iinfo(t.dtype.np).min <= value <= np.iinfo(t.dtype.np).max:
        raise ValueError(f"constant: {value} does not fit {t}")
    return (t,)


def _constant_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    value, t = attrs["value"], attrs["type"]
    if isinstance(value, Dense):
        return value.array
    # A float32 constant may be given as a double that overflows: infinity, as a cast is.
    with np.errstate(over="ignore"):
        return np.full(t.shape, value, t.dtype.np)


define(
    "constant",
    infer=_constant_infer,
    numpy=_constant_numpy,
    nondifferentiable=True,
    samples=Samples(
        cases=(
            ((), {"value": 1.5, "type": Type(F64, ())}),
            ((), {"value": -0.0, "type": Type(F32, (2, 3))}),
            ((), {"value": True, "type": Type(BOOL, (3,))}),
            ((), {"value": -7, "type": Type(I64, (0,))}),
            ((), {"value": Dense(np.array([1.0, -0.0, 2.5])), "type": Type(F64, (3,))}),
            ((), {"value": Dense(np.array([[1], [2]], np.int32)), "type": Type(I32, (2, 1))}),
        )
    ),
    doc="`value` repeated over the result type, or an array constant (Dense) of that type.",
)


def _iota_infer(types: Types, attrs: Attrs) -> Types:
    count("iota", types, 0)
    t = _typed("iota", attrs)
    if t.dtype.kind == "b":
        raise TypeError(f"iota: needs a number dtype, got {t}")
    axis_of("iota", attrs, t.ndim)
    return (t,)


def _iota_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    t, axis = attrs["type"], attrs["axis"]
    line = np.arange(t.shape[axis]).astype(t.dtype.np)
    return np.broadcast_to(line.reshape([-1 if k == axis else 1 for k in range(t.ndim)]), t.shape)


define(
    "iota",
    infer=_iota_infer,
    numpy=_iota_numpy,
    nondifferentiable=True,
    samples=Samples(
        cases=(
            ((), {"type": Type(I64, (5,)), "axis": 0}),
            ((), {"type": Type(F64, (2, 3)), "axis": 1}),
            ((), {"type": Type(F32, (2, 3)), "axis": 0}),
            ((), {"type": Type(I32, (0,)), "axis": 0}),
            ((), {"type": Type(I64, (1, 1)), "axis": 1}),
        )
    ),
    doc="Each element is its own index along `axis`.",
)


# -- reshape, transpose, broadcast ---------------------------------------------------


def _reshape_infer(types: Types, attrs: Attrs) -> Types:
    count("reshape", types, 1)
    t = types[0].with_shape(_dims("reshape", attrs, "shape"))
    if t.size != types[0].size:
        raise ValueError(
            f"reshape: cannot reshape array of size {types[0].size} into shape {t.shape}"
        )
    return (t,)


def _reshape_vjp(b: Builder, op: Op, cts: Cts) -> Cts:
    (ct,) = cts
    return (None if ct is None else b.reshape(ct, op.operands[0].type.shape),)


def _reshape_batch(b: BatchBuilder, op: Op, xs: Sequence[Value]) -> Sequence[Value]:
    return (b.reshape(xs[0], (b.n, *op.attrs["shape"])),)


define(
    "reshape",
    infer=_reshape_infer,
    numpy=lambda arrays, attrs: np.reshape(arrays[0], attrs["shape"]),
    vjp=_reshape_vjp,
    batch=_reshape_batch,
    linear=(0,),
    samples=Samples(
        cases=(
            (("f64[2,3]",), {"shape": (3, 2)}),
            (("f64[6]",), {"shape": (1, 2, 3)}),
            (("f64[]",), {"shape": (1, 1)}),
            (("f32[1]",), {"shape": ()}),
            (("f64[0,3]",), {"shape": (0,)}),
            (("bool[4]",), {"shape": (2, 2)}),
        )
    ),
    doc="The same elements in C order under another shape.",
)


def _transpose_infer(types: Types, attrs: Attrs) -> Types:
    count("transpose", types, 1)
    t = types[0]
    perm = int_tuple("transpose", attrs, "perm")
    if len(perm) != t.ndim or set(perm) != set(range(t.ndim)):
        raise ValueError(f"transpose: perm {perm} is not a permutation of the axes of {t}")
    shape = t.shape
    return (t.with_shape(tuple([shape[k] for k in perm])),)


def _transpose_vjp(b: Builder, op: Op, cts: Cts) -> Cts:
    (ct,) = cts
    if ct is None:
        return (None,)
    inverse = [0] * ct.type.ndim
    for k, axis in enumerate(op.attrs["perm"]):
        inverse[axis] = k
    return (b.transpose(ct, inverse),)


def _transpose_batch(b: BatchBuilder, op: Op, xs: Sequence[Value]) -> Sequence[Value]:
    return (b.transpose(xs[0], (0, *[k + 1 for k in op.attrs["perm"]])),)


define(
    "transpose",
    infer=_transpose_infer,
    numpy=lambda arrays, attrs: np.transpose(arrays[0], attrs["perm"]),
    vjp=_transpose_vjp,
    batch=_transpose_batch,
    linear=(0,),
    samples=Samples(
        cases=(
            (("f64[2,3]",), {"perm": (1, 0)}),
            (("f64[2,3,4]",), {"perm": (2, 0, 1)}),
            (("f32[2,1,4]",), {"perm": (1, 2, 0)}),
            (("f64[0,3]",), {"perm": (1, 0)}),
            (("i64[2,3]",), {"perm": (1, 0)}),
        )
    ),
    doc="Result axis k is operand axis perm[k].",
)


def _broadcast_infer(types: Types, attrs: Attrs) -> Types:
    count("broadcast", types, 1)
    t = types[0]
    shape = _dims("broadcast", attrs, "shape")
    dims = int_tuple("broadcast", attrs, "dims")
    axis_tuple("broadcast", dims, len(shape), "dims")
    if len(dims) != t.ndim or any(shape[d] != n for d, n in zip(dims, t.shape)):
        raise ValueError(f"broadcast: {t} does not fit axes {dims} of shape {shape}")
    return (t.with_shape(shape),)


def _broadcast_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    (x,) = arrays
    shape, dims = attrs["shape"], attrs["dims"]
    aligned = [shape[k] if k in dims else 1 for k in range(len(shape))]
    return np.broadcast_to(np.reshape(x, aligned), shape)


def _broadcast_vjp(b: Builder, op: Op, cts: Cts) -> Cts:
    (ct,) = cts
    if ct is None:
        return (None,)
    dims = op.attrs["dims"]
    return (b.reduce_sum(ct, [k for k in range(ct.type.ndim) if k not in dims]),)


def _broadcast_batch(b: BatchBuilder, op: Op, xs: Sequence[Value]) -> Sequence[Value]:
    dims = (0, *[k + 1 for k in op.attrs["dims"]])
    return (b.broadcast(xs[0], (b.n, *op.attrs["shape"]), dims),)


define(
    "broadcast",
    infer=_broadcast_infer,
    numpy=_broadcast_numpy,
    vjp=_broadcast_vjp,
    batch=_broadcast_batch,
    linear=(0,),
    samples=Samples(
        cases=(
            (("f64[]",), {"shape": (3, 2), "dims": ()}),
            (("f64[3]",), {"shape": (3, 2), "dims": (0,)}),
            (("f64[3]",), {"shape": (2, 3), "dims": (1,)}),
            (("f32[2,4]",), {"shape": (2, 3, 4), "dims": (0, 2)}),
            (("f64[3]",), {"shape": (0, 3), "dims": (1,)}),
            (("f64[1]",), {"shape": (1, 1), "dims": (1,)}),
            (("bool[2]",), {"shape": (2, 2), "dims": (1,)}),
        )
    ),
    doc="Operand axis k becomes result axis dims[k]; the other result axes repeat the operand.",
)


# -- slice, place -------------------------------------------------------------------


def _check_window(
    name: str,
    shape: tuple[int, ...],
    start: tuple[int, ...],
    size: tuple[int, ...],
    step: tuple[int, ...],
) -> None:
    """Elements ``start + i*step`` (0 <= i < size) exist on each axis.  An axis of size 0
    reads nothing, so its start is free (a reversed empty axis starts at -1)."""
    ndim = len(shape)
    if not len(start) == len(size) == len(step) == ndim:
        raise ValueError(
            f"{name}: start {start}, size {size} and step {step} must have {ndim} entries"
        )
    for axis in range(ndim):
        n, first, many, by = shape[axis], start[axis], size[axis], step[axis]
        if by == 0:
            raise ValueError(f"{name}: step of axis {axis} is zero")
        if many and not (0 <= first < n and 0 <= first + (many - 1) * by < n):
            raise ValueError(
                f"{name}: elements {first}, …, {first + (many - 1) * by} are out of bounds "
                f"for axis {axis} with size {n}"
            )


def index_of(start: Sequence[int], size: Sequence[int], step: Sequence[int]) -> tuple[slice, ...]:
    """The NumPy index of a window."""
    index = []
    for first, many, by in zip(start, size, step, strict=True):
        stop = first + many * by
        index.append(slice(first, stop if stop >= 0 else None, by) if many else slice(0, 0))
    return tuple(index)


def _slice_infer(types: Types, attrs: Attrs) -> Types:
    count("slice", types, 1)
    size = _dims("slice", attrs, "size")
    _check_window(
        "slice",
        types[0].shape,
        int_tuple("slice", attrs, "start"),
        size,
        int_tuple("slice", attrs, "step"),
    )
    return (types[0].with_shape(size),)


def _slice_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    return arrays[0][index_of(attrs["start"], attrs["size"], attrs["step"])]


def _slice_vjp(b: Builder, op: Op, cts: Cts) -> Cts:
    # The vjp transform collects the slices of one value into a single place; this is the
    # rule for one slice by itself.
    (ct,) = cts
    if ct is None or ct.type.size == 0:
        return (None,)
    at = ((op.attrs["start"], op.attrs["step"]),)
    return (b.place((ct,), op.operands[0].type.shape, at),)


def _slice_batch(b: BatchBuilder, op: Op, xs: Sequence[Value]) -> Sequence[Value]:
    start, size, step = op.attrs["start"], op.attrs["size"], op.attrs["step"]
    return (b.slice(xs[0], (0, *start), (b.n, *size), (1, *step)),)


define(
    "slice",
    infer=_slice_infer,
    numpy=_slice_numpy,
    vjp=_slice_vjp,
    batch=_slice_batch,
    linear=(0,),
    masks=True,
    samples=Samples(
        cases=(
            (("f64[5]",), {"start": (1,), "size": (3,), "step": (1,)}),
            (("f64[5]",), {"start": (4,), "size": (5,), "step": (-1,)}),
            (("f64[7]",), {"start": (5,), "size": (3,), "step": (-2,)}),
            (("f64[4,6]",), {"start": (0, 1), "size": (2, 3), "step": (3, 2)}),
            (("f32[4,3]",), {"start": (3, 0), "size": (1, 3), "step": (1, 1)}),
            (("f64[3]",), {"start": (0,), "size": (0,), "step": (1,)}),
            (("f64[0]",), {"start": (-1,), "size": (0,), "step": (-1,)}),
            (("f64[]",), {"start": (), "size": (), "step": ()}),
            (("i64[4]",), {"start": (1,), "size": (2,), "step": (2,)}),
        )
    ),
    doc="Element i along an axis is operand element start + i*step; steps may be negative.",
)


def _place_infer(types: Types, attrs: Attrs) -> Types:
    shape = _dims("place", attrs, "shape")
    at = attr("place", attrs, "at")
    if not types:
        raise TypeError("place: takes at least one operand")
    if type(at) is not tuple or len(at) != len(types):
        raise TypeError(f"place: attribute 'at' must hold one (start, step) for each of {types}")
    t = types[0].with_shape(shape)
    for piece, where in zip(types, at):
        if piece.dtype is not t.dtype:
            raise TypeError(f"place: operands must have one dtype, got {types}")
        if type(where) is not tuple or len(where) != 2:
            raise TypeError(f"place: attribute 'at' must hold pairs (start, step), got {where!r}")
        pair = {"start": where[0], "step": where[1]}
        start, step = int_tuple("place", pair, "start"), int_tuple("place", pair, "step")
        if piece.ndim != t.ndim:
            raise ValueError(f"place: piece {piece} has not the rank of shape {shape}")
        _check_window("place", shape, start, piece.shape, step)
    return (t,)


def _place_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    # The first piece at an element is stored and only further ones are added, so that a
    # concatenation keeps -0.
    out = np.zeros(attrs["shape"], arrays[0].dtype)
    taken = np.zeros(out.shape, bool)
    for piece, (start, step) in zip(arrays, attrs["at"], strict=True):
        index = index_of(start, np.shape(piece), step)
        with np.errstate(all="ignore"):
            out[index] = np.where(taken[index], out[index] + piece, piece)
        taken[index] = True
    return out


def _place_vjp(b: Builder, op: Op, cts: Cts) -> Cts:
    (ct,) = cts
    if ct is None:
        return (None,) * len(op.operands)
    return [
        b.slice(ct, start, piece.type.shape, step) if piece.type.size else None
        for piece, (start, step) in zip(op.operands, op.attrs["at"])
    ]


def _place_jvp(b: Builder, op: Op, tangents: Cts) -> Cts:
    kept = [(t, where) for t, where in zip(tangents, op.attrs["at"]) if t is not None]
    if not kept:
        return (None,)
    return (b.place([t for t, _ in kept], op.attrs["shape"], [where for _, where in kept]),)


def _place_batch(b: BatchBuilder, op: Op, xs: Sequence[Value]) -> Sequence[Value]:
    at = [((0, *start), (1, *step)) for start, step in op.attrs["at"]]
    return (b.place([b.spread(x) for x in xs], (b.n, *op.attrs["shape"]), at),)


define(
    "place",
    infer=_place_infer,
    numpy=_place_numpy,
    vjp=_place_vjp,
    jvp=_place_jvp,
    batch=_place_batch,
    masks_tangent=True,
    samples=Samples(
        cases=(
            (("f64[2]",), {"shape": (5,), "at": (((1,), (2,)),)}),
            (("f64[2]", "f64[3]"), {"shape": (5,), "at": (((0,), (1,)), ((2,), (1,)))}),
            (("f64[3]", "f64[2]"), {"shape": (4,), "at": (((3,), (-1,)), ((1,), (1,)))}),
            (("f32[2,2]",), {"shape": (4, 3), "at": (((1, 0), (2, 1)),)}),
            (
                ("f64[2,1]", "f64[2,2]"),
                {"shape": (2, 3), "at": (((0, 0), (1, 1)), ((0, 1), (1, 1)))},
            ),
            (("f64[0]",), {"shape": (3,), "at": (((0,), (1,)),)}),
            (("f64[0]",), {"shape": (0,), "at": (((0,), (1,)),)}),
            (("f64[]", "f64[]"), {"shape": (), "at": (((), ()), ((), ()))}),
            (("i64[2]",), {"shape": (4,), "at": (((0,), (3,)),)}),
            (("bool[2]",), {"shape": (3,), "at": (((1,), (1,)),)}),
        )
    ),
    doc="Zeros of `shape` with each piece added at its (start, step); the transpose of slice. "
    "An element under one piece is that element unchanged (-0 stays -0).",
)
