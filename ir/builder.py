"""``Builder``: the only way to create operations.

A builder appends typed operations to a list.  It infers result types from the op
table, so a wrong operand fails at once, where it is made.

>>> from tapec.ir import F64, Builder, Type
>>> b = Builder()
>>> x = b.param(Type(F64, (3,)), "x")
>>> fn = b.function("square", [b.mul(x, x)])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapec.ir.core import (
    I64,
    NO_ATTRS,
    Attrs,
    Block,
    Dense,
    DType,
    Function,
    Loc,
    Op,
    Type,
    Value,
    dtype_of,
)
from tapec.ir.opdef import OPS

__all__ = ["Builder"]

_infer_cache: dict[Any, tuple[Type, ...]] = {}


class Builder:
    """Collects operations; ``loc`` is the location given to operations that are emitted next."""

    __slots__ = ("_constants", "loc", "ops", "params")

    def __init__(self, loc: Loc | None = None) -> None:
        self.ops: list[Op] = []
        self.params: list[Value] = []
        self.loc = loc
        self._constants: dict[Any, Value] = {}

    # -- construction ---------------------------------------------------------------

    def param(self, type: Type, hint: str | None = None) -> Value:
        value = Value(type, None, hint)
        self.params.append(value)
        return value

    def emit(
        self,
        name: str,
        operands: tuple[Value, ...],
        attrs: Attrs = NO_ATTRS,
        hint: str | None = None,
    ) -> Value:
        """Append an operation with one result and return the result."""
        return self.emit_op(name, operands, attrs, hint=hint).results[0]

    def emit_op(
        self,
        name: str,
        operands: tuple[Value, ...],
        attrs: Attrs = NO_ATTRS,
        regions: tuple[Block, ...] = (),
        hint: str | None = None,
    ) -> Op:
        infer_regions = OPS[name].infer_regions if regions else None
        if infer_regions is not None:
            types = infer_regions(tuple([v.type for v in operands]), attrs, regions)
        elif attrs or regions:
            types = OPS[name].infer(tuple([v.type for v in operands]), attrs)
        else:
            signature = tuple([v.type for v in operands])
            cached = _infer_cache.get((name, signature))
            if cached is None:
                cached = _infer_cache[name, signature] = OPS[name].infer(signature, attrs)
            types = cached
        op = Op(name, operands, types, attrs, regions, self.loc, hint)
        self.ops.append(op)
        return op

    def append(self, op: Op, operands: tuple[Value, ...]) -> Op:
        """Append a copy of ``op`` with other operands (of the same types)."""
        new = Op(
            op.name,
            operands,
            tuple([r.type for r in op.results]),
            op.attrs,
            op.regions,
            op.loc,
            op.results[0].hint if op.results else None,
        )
        self.ops.append(new)
        return new

    def inline(self, fn: Function, args: Sequence[Value]) -> list[Value]:
        """Append a copy of ``fn``'s body with ``args`` for its parameters; its results."""
        env: dict[Value, Value] = dict(zip(fn.params, args, strict=True))
        for op in fn.ops:
            new = self.append(op, tuple([env[v] for v in op.operands]))
            env.update(zip(op.results, new.results, strict=True))
        return [env[v] for v in fn.results]

    def block(self, results: Sequence[Value]) -> Block:
        return Block(self.params, self.ops, results)

    def function(self, name: str, results: Sequence[Value]) -> Function:
        return Function(name, self.params, self.ops, results)

    # -- constants ------------------------------------------------------------------

    def constant(self, value: Any, type: Type) -> Value:
        """A constant: a Python scalar (repeated over the whole shape) or an array.

        Scalars are shared within one builder.
        """
        if isinstance(value, (np.ndarray, Dense)):
            dense = value if isinstance(value, Dense) else Dense(np.asarray(value, type.dtype.np))
            if dense.array.shape != type.shape:
                raise TypeError(f"constant of shape {dense.array.shape} for type {type}")
            flat = dense.array.reshape(-1)
            if type.size == 0 or flat.tobytes() != flat[:1].tobytes() * type.size:
                return self.emit("constant", (), {"value": dense, "type": type})
            value = flat[0].item()
        kind = type.dtype.kind
        if kind == "f":
            value = float(value)
            if type.dtype.bits == 32:
                value = float(np.float32(value))
            key: Any = (value.hex(), type)
        elif kind == "i":
            value = int(value)
            key = (value, type)
        elif kind == "b":
            value = bool(value)
            key = (value, type)
        else:
            value = complex(type.dtype.np.type(value))
            key = (value.real.hex(), value.imag.hex(), type)
        found = self._constants.get(key)
        if found is None:
            op = Op("constant", (), (type,), {"value": value, "type": type}, (), None, None)
            self.ops.append(op)
            found = self._constants[key] = op.results[0]
        return found

    def like(self, value: Any, x: Value) -> Value:
        """The constant ``value`` repeated over the type of ``x``."""
        return self.constant(value, x.type)

    def array(self, array: Any) -> Value:
        """An array constant with the array's own dtype."""
        a = np.asarray(array)
        return self.constant(a, Type(dtype_of(a.dtype), a.shape))

    def zeros(self, type: Type) -> Value:
        return self.constant(0, type)

    # -- elementwise ----------------------------------------------------------------

    def add(self, x: Value, y: Value) -> Value:
        return self.emit("add", (x, y))

    def sub(self, x: Value, y: Value) -> Value:
        return self.emit("sub", (x, y))

    def mul(self, x: Value, y: Value) -> Value:
        return self.emit("mul", (x, y))

    def div(self, x: Value, y: Value) -> Value:
        return self.emit("div", (x, y))

    def neg(self, x: Value) -> Value:
        return self.emit("neg", (x,))

    def pow(self, x: Value, y: Value) -> Value:
        return self.emit("pow", (x, y))

    def integer_pow(self, x: Value, n: int) -> Value:
        """x to a constant integer power (negative too)."""
        return self.emit("integer_pow", (x,), {"n": n})

    def unary(self, name: str, x: Value) -> Value:
        """An elementwise op of one operand, by name: ``b.unary("exp", x)``."""
        return self.emit(name, (x,))

    def exp(self, x: Value) -> Value:
        return self.emit("exp", (x,))

    def log(self, x: Value) -> Value:
        return self.emit("log", (x,))

    def sqrt(self, x: Value) -> Value:
        return self.emit("sqrt", (x,))

    def sin(self, x: Value) -> Value:
        return self.emit("sin", (x,))

    def cos(self, x: Value) -> Value:
        return self.emit("cos", (x,))

    def abs(self, x: Value) -> Value:
        return self.emit("abs", (x,))

    def sign(self, x: Value) -> Value:
        return self.emit("sign", (x,))

    def max(self, x: Value, y: Value) -> Value:
        return self.emit("max", (x, y))

    def min(self, x: Value, y: Value) -> Value:
        return self.emit("min", (x, y))

    def strong_mul(self, ct: Value, p: Value) -> Value:
        """``ct * p``, but 0 where ``ct`` is 0 whatever ``p`` is (also inf and nan)."""
        return self.emit("strong_mul", (ct, p))

    def eq(self, x: Value, y: Value) -> Value:
        return self.emit("eq", (x, y))

    def ne(self, x: Value, y: Value) -> Value:
        return self.emit("ne", (x, y))

    def lt(self, x: Value, y: Value) -> Value:
        return self.emit("lt", (x, y))

    def le(self, x: Value, y: Value) -> Value:
        return self.emit("le", (x, y))

    def gt(self, x: Value, y: Value) -> Value:
        return self.emit("gt", (x, y))

    def ge(self, x: Value, y: Value) -> Value:
        return self.emit("ge", (x, y))

    def logical_and(self, x: Value, y: Value) -> Value:
        return self.emit("and", (x, y))

    def logical_or(self, x: Value, y: Value) -> Value:
        return self.emit("or", (x, y))

    def logical_not(self, x: Value) -> Value:
        return self.emit("not", (x,))

    def select(self, c: Value, x: Value, y: Value) -> Value:
        """x where c else y; all of one shape."""
        return self.emit("select", (c, x, y))

    def convert(self, x: Value, dtype: DType) -> Value:
        """``x`` in another dtype, as NumPy's ``astype``; x itself if it has it already."""
        if x.type.dtype is dtype:
            return x
        return self.emit("convert", (x,), {"dtype": dtype.name})

    # -- shape ----------------------------------------------------------------------

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """C order, same number of elements."""
        shape = tuple(shape)
        return x if shape == x.type.shape else self.emit("reshape", (x,), {"shape": shape})

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        """Result axis k is operand axis perm[k]."""
        perm = tuple(perm)
        if perm == tuple(range(len(perm))):
            return x
        return self.emit("transpose", (x,), {"perm": perm})

    def broadcast(self, x: Value, shape: Sequence[int], dims: Sequence[int]) -> Value:
        """Operand axis k becomes result axis dims[k] (increasing, same length); the other
        result axes repeat the operand."""
        shape, dims = tuple(shape), tuple(dims)
        if shape == x.type.shape:
            return x
        return self.emit("broadcast", (x,), {"shape": shape, "dims": dims})

    def broadcast_to(self, x: Value, shape: Sequence[int]) -> Value:
        """NumPy's ``broadcast_to``: align on the right, repeat axes of length 1."""
        shape = tuple(shape)
        xs = x.type.shape
        if xs == shape:
            return x
        offset = len(shape) - len(xs)
        keep = [k for k, n in enumerate(xs) if n == shape[offset + k]]
        if offset < 0 or any(n != 1 for k, n in enumerate(xs) if k not in keep):
            raise ValueError(f"cannot broadcast shape {xs} to {shape}")
        squeezed = self.reshape(x, [xs[k] for k in keep])
        return self.broadcast(squeezed, shape, [offset + k for k in keep])

    def slice(
        self, x: Value, start: Sequence[int], size: Sequence[int], step: Sequence[int] | None = None
    ) -> Value:
        """Element i of the result along an axis is element ``start + i*step`` of the operand."""
        start, size = tuple(start), tuple(size)
        step = (1,) * len(start) if step is None else tuple(step)
        if size == x.type.shape and all(s == 1 for s in step):
            return x
        return self.emit("slice", (x,), {"start": start, "size": size, "step": step})

    def place(
        self,
        pieces: Sequence[Value],
        shape: Sequence[int],
        at: Sequence[tuple[Sequence[int], Sequence[int]]],
    ) -> Value:
        """Zeros of ``shape`` with each piece *added* at ``(start, step)``: the transpose of
        ``slice``.  ``pad`` and ``concat`` are special cases."""
        return self.emit(
            "place",
            tuple(pieces),
            {"shape": tuple(shape), "at": tuple((tuple(a), tuple(s)) for a, s in at)},
        )

    def pad(self, x: Value, low: Sequence[int], high: Sequence[int]) -> Value:
        """Zeros around ``x``."""
        shape = tuple(a + n + c for a, n, c in zip(low, x.type.shape, high, strict=True))
        return x if shape == x.type.shape else self.place([x], shape, [(low, (1,) * len(shape))])

    def concat(self, xs: Sequence[Value], axis: int) -> Value:
        """Join along ``axis``."""
        if len(xs) == 1:
            return xs[0]
        shape = list(xs[0].type.shape)
        shape[axis] = sum(x.type.shape[axis] for x in xs)
        at, offset = [], 0
        for x in xs:
            start = [0] * len(shape)
            start[axis] = offset
            offset += x.type.shape[axis]
            at.append((start, (1,) * len(shape)))
        return self.place(xs, shape, at)

    def reverse(self, x: Value, axes: Sequence[int]) -> Value:
        shape = x.type.shape
        return self.slice(
            x,
            [n - 1 if k in axes else 0 for k, n in enumerate(shape)],
            shape,
            [-1 if k in axes else 1 for k in range(len(shape))],
        )

    # -- reductions -----------------------------------------------------------------

    def reduce(self, kind: str, x: Value, axes: Sequence[int]) -> Value:
        """``kind``: sum, prod, max, min, any, all.  The axes are removed."""
        axes = tuple(sorted(axes))
        if not axes:
            return x
        return self.emit("reduce_" + kind, (x,), {"axes": axes})

    def reduce_sum(self, x: Value, axes: Sequence[int]) -> Value:
        return self.reduce("sum", x, axes)

    def argmax(self, x: Value, axis: int) -> Value:
        """i64 index of the first maximum along ``axis``, which is removed."""
        return self.emit("argmax", (x,), {"axis": axis})

    def argmin(self, x: Value, axis: int) -> Value:
        return self.emit("argmin", (x,), {"axis": axis})

    def cumsum(self, x: Value, axis: int, reverse: bool = False) -> Value:
        return self.emit("cumsum", (x,), {"axis": axis, "reverse": reverse})

    def iota(self, shape: Sequence[int], axis: int, dtype: DType = I64) -> Value:
        """Each element is its index along ``axis``."""
        return self.emit("iota", (), {"type": Type(dtype, shape), "axis": axis})

    # -- indexing and contraction ----------------------------------------------------

    def gather(self, x: Value, indices: Sequence[Value], axes: Sequence[int]) -> Value:
        """``x[i0, i1, …]`` with integer arrays of one shape on ``axes``: the result has the
        shape of the indices followed by the other axes of ``x``."""
        return self.emit("gather", (x, *indices), {"axes": tuple(axes)})

    def scatter_add(
        self, base: Value, updates: Value, indices: Sequence[Value], axes: Sequence[int]
    ) -> Value:
        """``base`` with ``updates`` added at the places that ``gather`` would read."""
        return self.emit("scatter_add", (base, updates, *indices), {"axes": tuple(axes)})

    def dot(
        self,
        x: Value,
        y: Value,
        contract: tuple[Sequence[int], Sequence[int]],
        batch: tuple[Sequence[int], Sequence[int]] = ((), ()),
    ) -> Value:
        """Contract axes ``contract[0]`` of x with ``contract[1]`` of y; batch axes stand first
        in the result, then the free axes of x, then those of y."""
        return self.emit(
            "dot",
            (x, y),
            {
                "contract": (tuple(contract[0]), tuple(contract[1])),
                "batch": (tuple(batch[0]), tuple(batch[1])),
            },
        )

    # -- control --------------------------------------------------------------------

    def guard(self, condition: Value, expected: bool | int, message: str = "") -> None:
        """The kernel fails, before any result is visible, unless ``condition == expected``."""
        self.emit_op("guard", (condition,), {"expected": expected, "message": message})

    def call(self, fn: Function, args: Sequence[Value]) -> tuple[Value, ...]:
        return self.emit_op("call", tuple(args), {"name": fn.name}, (fn.block,)).results
