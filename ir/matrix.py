"""Matrix algebra for derivative rules: the last two axes are a matrix, those before it a batch.

Invariant: every function takes and gives values whose leading axes are the same batch.

>>> from tapec.ir import F64, Builder, Type
>>> b = Builder()
>>> x, y = b.param(Type(F64, (5, 2, 3))), b.param(Type(F64, (5, 4, 3)))
>>> product(b, x, y, ty=True).type
f64[5,2,4]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tapec.ir.checks import count
from tapec.ir.core import Attrs, Function, Op, Type, Value
from tapec.ir.opdef import Samples

if TYPE_CHECKING:
    from tapec.ir.adjoint import AdjointBuilder
    from tapec.ir.batch import BatchBuilder
    from tapec.ir.builder import Builder

__all__ = [
    "batch_all", "batched", "columns", "diagonal", "eye", "flag", "matrices", "over_rows", "phi",
    "product", "real_matrix", "rows", "scale", "square", "symmetrized", "through", "transposed",
    "triangle", "vector_over",
]  # fmt: skip

Types = tuple[Type, ...]
Cts = Sequence["Value | None"]
Array = Any


# -- types ------------------------------------------------------------------------------


def real_matrix(name: str, t: Type) -> Type:
    """``t`` itself, if it is a matrix (with a batch) of real numbers."""
    if t.dtype.kind != "f":
        raise TypeError(f"{name}: needs an operand of kind real, got {t}")
    if t.ndim < 2:
        raise ValueError(f"{name}: needs an operand of at least 2 dimensions, got {t}")
    return t


def square(name: str, types: Types, n: int = 1) -> Type:
    """The first of ``n`` operand types, a square matrix."""
    count(name, types, n)
    t = real_matrix(name, types[0])
    if t.shape[-1] != t.shape[-2]:
        raise ValueError(f"{name}: last 2 dimensions of the array must be square, got {t}")
    return t


def flag(name: str, attrs: Attrs, key: str) -> bool:
    """A bool attribute."""
    value = attrs.get(key)
    if type(value) is not bool:
        raise TypeError(f"{name}: attribute {key!r} must be a bool, got {value!r}")
    return value


def matrices(*operands: str, **attrs: Any) -> Samples:
    """Samples of an operation whose operands are special matrices, which only
    ``test_linalg_ops`` can draw."""
    return Samples(cases=((operands, attrs),), swept_by="test_linalg_ops")


# -- values -----------------------------------------------------------------------------


def transposed(b: Builder, x: Value) -> Value:
    n = x.type.ndim
    return b.transpose(x, (*range(n - 2), n - 1, n - 2))


def product(b: Builder, x: Value, y: Value, tx: bool = False, ty: bool = False) -> Value:
    """Matrix product of ``x`` (or its transpose) and ``y``."""
    n = x.type.ndim
    lead = tuple(range(n - 2))
    return b.dot(x, y, ((n - 2 if tx else n - 1,), (n - 1 if ty else n - 2,)), (lead, lead))


def rows(b: Builder, x: Value) -> Value:
    """The row number at every element."""
    return b.iota(x.type.shape, x.type.ndim - 2)


def columns(b: Builder, x: Value) -> Value:
    """The column number at every element."""
    return b.iota(x.type.shape, x.type.ndim - 1)


def triangle(b: Builder, x: Value, lower: bool, strict: bool = False) -> Value:
    """``x`` with zeros outside of a triangle."""
    i, j = rows(b, x), columns(b, x)
    name = ("gt" if strict else "ge") if lower else ("lt" if strict else "le")
    return b.select(b.emit(name, (i, j)), x, b.zeros(x.type))


def eye(b: Builder, t: Type) -> Value:
    zero = b.zeros(t)
    return b.select(b.eq(rows(b, zero), columns(b, zero)), b.constant(1, t), zero)


def phi(b: Builder, x: Value) -> Value:
    """The lower triangle of ``x`` with half of its diagonal."""
    i, j = rows(b, x), columns(b, x)
    zero = b.zeros(x.type)
    half = b.select(b.eq(i, j), b.mul(x, b.like(0.5, x)), zero)
    return b.select(b.gt(i, j), x, half)


def symmetrized(b: Builder, x: Value) -> Value:
    """(x + xᵀ) / 2"""
    return b.mul(b.add(x, transposed(b, x)), b.like(0.5, x))


def vector_over(b: Builder, v: Value, shape: Sequence[int]) -> Value:
    """A vector repeated down the rows: element j at (i, j)."""
    n = len(shape)
    return b.broadcast(v, shape, (*range(n - 2), n - 1))


def over_rows(b: Builder, v: Value, shape: Sequence[int]) -> Value:
    """A vector repeated along the columns: element i at (i, j)."""
    return b.broadcast(v, shape, tuple(range(len(shape) - 1)))


def scale(b: Builder, x: Value, v: Value) -> Value:
    """``x @ diag(v)``."""
    return b.mul(x, vector_over(b, v, x.type.shape))


def diagonal(b: Builder, x: Value) -> Value:
    """The diagonal, as a strided slice of the flattened matrix."""
    *lead, m, n = x.type.shape
    k = min(m, n)
    flat = b.reshape(x, (*lead, m * n))
    zeros, ones = (0,) * len(lead), (1,) * len(lead)
    return b.slice(flat, (*zeros, 0), (*lead, k), (*ones, n + 1))


# -- rules that many matrix operations share ----------------------------------------------


def batch_all(b: BatchBuilder, op: Op, xs: Sequence[Value]) -> Sequence[Value]:
    """Batching of an operation whose operands all have the batch axes in front."""
    return b.emit_op(op.name, tuple([b.spread(x) for x in xs]), op.attrs).results


def batched(*arrays: Array) -> Iterator[tuple[Any, ...]]:
    """``(index, *matrices)`` for each place of the batch of some arrays of matrices."""
    for index in np.ndindex(arrays[0].shape[:-2]):
        yield (index, *[a[index] for a in arrays])


def through(
    closed: Callable[..., Sequence[Value]],
) -> tuple[
    Callable[[AdjointBuilder, Op, Cts], Cts],
    Callable[[AdjointBuilder, Op, Cts], Cts],
]:
    """Reverse and forward rule of an operation that ``closed(b, op, *operands)`` writes with
    other operations, which are differentiated in its place."""
    cache: dict[Any, Function] = {}

    def alone(op: Op) -> Function:
        from tapec.ir.builder import Builder

        key = (op.name, *[x.type for x in op.operands], *sorted(op.attrs.items()))
        found = cache.get(key)
        if found is None:
            b = Builder()
            xs = [b.param(x.type) for x in op.operands]
            found = cache[key] = b.function(op.name, closed(b, op, *xs))
        return found

    def vjp(b: AdjointBuilder, op: Op, cts: Cts) -> Cts:
        from tapec.ir.vjp import pull_back

        fn = alone(op)
        wrt = [k for k, x in enumerate(op.operands) if x in b.active]
        outputs = [k for k, ct in enumerate(cts) if ct is not None]
        given = [ct for ct in cts if ct is not None]
        if not outputs or not wrt:
            return (None,) * len(op.operands)
        pulled = pull_back(fn, wrt, outputs, [b.is_masked(ct) for ct in given])
        found = b.inline(pulled.fn, [*op.operands, *given])[len(fn.results) :]
        out: list[Value | None] = [None] * len(op.operands)
        for k, ct, absent in zip(wrt, found, pulled.absent, strict=True):
            out[k] = None if absent else ct
        return out

    def jvp(b: AdjointBuilder, op: Op, tangents: Cts) -> Cts:
        from tapec.ir.jvp import jvp as pushed

        fn = alone(op)
        wrt = [k for k, t in enumerate(tangents) if t is not None]
        masked = any(t is not None and b.is_masked(t) for t in tangents)
        forward = pushed(fn, wrt, masked=masked)
        given = [t for t in tangents if t is not None]
        found = iter(b.inline(forward, [*op.operands, *given])[len(fn.results) :])
        return [next(found) if z.type.dtype.is_inexact else None for z in op.results]

    return vjp, jvp
