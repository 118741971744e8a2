"""Matrix products: which become loops, which become BLAS calls, and on what layouts.

``lower_dot`` rewrites an array-level ``dot``:

- no contraction, a plain inner product, integers, or too little work for a library call: a
  product and a sum, which fuse with their neighbours (a contraction over very few terms
  becomes explicit terms);
- everything else: a ``dot`` whose attribute ``gemm`` holds a ``Gemm``: offsets and strides of
  the operands *where they are stored*.  Transposes and slices before the product, and a
  transpose after it, are only strides there, so nothing is copied for them; an operand
  whose strides BLAS cannot take is copied once.

Small products (registers only) stay as they are and are unrolled.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tapec.codegen.body import strides_of
from tapec.codegen.plan import SMALL
from tapec.codegen.vectors import memory_type
from tapec.ir.builder import Builder
from tapec.ir.core import Op, Type, Value

if TYPE_CHECKING:
    from tapec.codegen.kernel import KernelEmitter

__all__ = ["Gemm", "emit_gemm", "lower_dot"]

#: Multiply-adds below which loops beat a library call.
LIBRARY_LIMIT = 4096
#: Products with at most this many terms are written out.
FEW_TERMS = 4


#: Weighted sums of rows this short are loops, which keep the sum in registers.
SHORT_ROWS = 64


class Gemm(NamedTuple):
    """``z[b, i, j] = Σ_k x[b, i, k] · y[b, k, j]`` with element strides.

    ``batch``: (length, stride in x, in y, in z) of each batch axis; ``x``: (offset, i, k);
    ``y``: (offset, k, j); ``z``: (i, j).
    """

    batch: tuple[tuple[int, int, int, int], ...]
    m: int
    n: int
    k: int
    x: tuple[int, int, int]
    y: tuple[int, int, int]
    z: tuple[int, int]


class _View(NamedTuple):
    """A strided window on a stored value."""

    base: Value
    offset: int
    strides: tuple[int, ...]


def _view(x: Value) -> _View:
    """Look through transposes and unit-step slices."""
    offset = 0
    chain: list[Op] = []
    while x.op is not None and x.op.name in ("transpose", "slice"):
        if x.op.name == "slice" and any(s != 1 for s in x.op.attrs["step"]):
            break
        chain.append(x.op)
        x = x.op.operands[0]
    strides = list(strides_of(x.type.shape))
    for op in reversed(chain):
        if op.name == "transpose":
            strides = [strides[p] for p in op.attrs["perm"]]
        else:
            offset += sum(a * s for a, s in zip(op.attrs["start"], strides))
    return _View(x, offset, tuple(strides))


def _merged(axes: Sequence[int], sizes: Sequence[int], strides: Sequence[int]) -> int | None:
    """The stride of several axes walked as one (the first outermost); None if they cannot be."""
    run = [(sizes[a], strides[a]) for a in axes if sizes[a] != 1]
    for (_, outer), (n, inner) in pairwise(run):
        if outer != n * inner:
            return None
    return run[-1][1] if run else 0


def _product(numbers: Sequence[int]) -> int:
    total = 1
    for n in numbers:
        total *= n
    return total


def lower_dot(
    b: Builder, op: Op, x: Value, y: Value, follow: Op | None, streamed: bool = False
) -> Value:
    """Emit ``op`` on ``x`` and ``y``, and ``follow`` too: the transpose that is its only use.

    ``streamed``: the result is used once, by elementwise code.  A product of few terms is written
    out there then: a library call would take longer to store it than to compute it.
    """
    xs, ys = x.type.shape, y.type.shape
    (xc, yc), (xb, yb) = op.attrs["contract"], op.attrs["batch"]
    xm = [j for j in range(len(xs)) if j not in xc and j not in xb]
    yn = [j for j in range(len(ys)) if j not in yc and j not in yb]
    batch, m = _product([xs[j] for j in xb]), _product([xs[j] for j in xm])
    k, n = _product([xs[j] for j in xc]), _product([ys[j] for j in yn])
    result = op.results[0].type
    perm = follow.attrs["perm"] if follow is not None else tuple(range(result.ndim))
    if streamed and 1 <= k <= FEW_TERMS and x.type.dtype.kind == "f" and result.size > SMALL:
        return b.transpose(_written_out(b, op, x, y, (xm, yn)), perm)
    if x.type.size <= SMALL and y.type.size <= SMALL and result.size <= SMALL:
        return b.transpose(b.append(op, (x, y)).results[0], perm)
    if (
        not xc
        or m == n == 1
        or x.type.dtype.kind != "f"
        or batch * m * n * k <= LIBRARY_LIMIT
        or (batch > 1 and m * n * k <= 512)
        or (k <= FEW_TERMS and min(m, n) <= FEW_TERMS)
        or (min(m, n) == 1 and 1 < max(m, n) <= min(SHORT_ROWS, k) and _rows_add_up(x, y, xm, yn))
        or 0 in (batch, m, n, k)
    ):
        shape = [xs[j] for j in (*xb, *xm)] + [ys[j] for j in yn] + [xs[j] for j in xc]
        nb, nm, nn = len(xb), len(xm), len(yn)
        contracted = list(range(nb + nm + nn, len(shape)))
        dims = [*range(nb), *range(nb + nm, nb + nm + nn), *contracted]
        wide_x = _spread(b, x, [*xb, *xm, *xc], shape, [*range(nb + nm), *contracted])
        wide_y = _spread(b, y, [*yb, *yn, *yc], shape, dims)
        product = b.mul(wide_x, wide_y)
        return b.transpose(b.reduce_sum(product, contracted) if xc else product, perm)
    return _library(b, op, x, y, (xm, yn), perm)


def _written_out(
    b: Builder, op: Op, x: Value, y: Value, free: tuple[list[int], list[int]]
) -> Value:
    """The sum over the contracted indices as elementwise code."""
    (xc, yc), (xb, yb) = op.attrs["contract"], op.attrs["batch"]
    xm, yn = free
    shape = op.results[0].type.shape
    batch, m = range(len(xb)), range(len(xb), len(xb) + len(xm))
    n = range(len(xb) + len(xm), len(shape))
    total: Value | None = None
    for index in np.ndindex(*[x.type.shape[a] for a in xc]):
        left = b.broadcast(_at(b, x, xc, index, [*xb, *xm]), shape, [*batch, *m])
        right = b.broadcast(_at(b, y, yc, index, [*yb, *yn]), shape, [*batch, *n])
        term = b.mul(left, right)
        total = term if total is None else b.add(total, term)
    assert total is not None
    return total


def _at(b: Builder, v: Value, axes: Sequence[int], index: Sequence[int], rest: list[int]) -> Value:
    """``v`` at ``index`` along ``axes``; the other axes in the order of ``rest``."""
    start, size = [0] * v.type.ndim, list(v.type.shape)
    for a, i in zip(axes, index):
        start[a], size[a] = int(i), 1
    kept = sorted(rest)
    flat = b.reshape(b.slice(v, start, size), [v.type.shape[a] for a in kept])
    return b.transpose(flat, [kept.index(a) for a in rest])


def _rows_add_up(x: Value, y: Value, xm: list[int], yn: list[int]) -> bool:
    """Whether a product of a matrix and a vector is a sum of the matrix's rows in memory."""
    matrix, kept = (x, xm) if x.type.size >= y.type.size else (y, yn)
    strides = _view(matrix).strides
    return any(strides[j] == 1 for j in kept if matrix.type.shape[j] > 1)


def _spread(b: Builder, x: Value, axes: list[int], shape: list[int], dims: list[int]) -> Value:
    return b.broadcast(b.transpose(x, axes), shape, dims)


def _library(
    b: Builder,
    op: Op,
    x: Value,
    y: Value,
    free: tuple[list[int], list[int]],
    perm: Sequence[int],
) -> Value:
    (xc, yc), (xb, yb) = op.attrs["contract"], op.attrs["batch"]
    xm, yn = free
    t = op.results[0].type
    out = Type(t.dtype, [t.shape[p] for p in perm])
    z_strides = [0] * t.ndim
    for stride, p in zip(strides_of(out.shape), perm):
        z_strides[p] = stride
    nb, nm = len(xb), len(xm)
    z_m = _merged(range(nb, nb + nm), t.shape, z_strides)
    z_n = _merged(range(nb + nm, t.ndim), t.shape, z_strides)
    if z_m is None or z_n is None or (z_m != 1 and z_n != 1 and 1 not in (t.size, 0)):
        natural = _library(b, op, x, y, free, range(t.ndim))
        return b.transpose(natural, perm)
    # contracted axes in the order in which x stores them
    xv = _view(x)
    order = sorted(range(len(xc)), key=lambda i: -xv.strides[xc[i]])
    xc, yc = tuple(xc[i] for i in order), tuple(yc[i] for i in order)
    xv, x_m, x_k = _operand(b, x, xb, xm, xc)
    yv, y_n, y_k = _operand(b, y, yb, yn, yc)
    xs, ys = x.type.shape, y.type.shape
    plan = Gemm(
        batch=tuple(
            (xs[i], xv.strides[i], yv.strides[j], z_strides[a])
            for a, (i, j) in enumerate(zip(xb, yb))
            if xs[i] != 1
        ),
        m=_product([xs[j] for j in xm]),
        n=_product([ys[j] for j in yn]),
        k=_product([xs[j] for j in xc]),
        x=(xv.offset, x_m, x_k),
        y=(yv.offset, y_k, y_n),
        z=(z_m, z_n),
    )
    attrs = {**op.attrs, "gemm": plan}
    new = Op("dot", (xv.base, yv.base), (out,), attrs, (), op.loc, op.results[0].hint)
    b.ops.append(new)
    return new.results[0]


def _operand(
    b: Builder, x: Value, batch: Sequence[int], free: Sequence[int], contract: Sequence[int]
) -> tuple[_View, int, int]:
    """A window that BLAS can read, and its strides along the free and the contracted axes.

    The strides of the window are per axis of ``x``.
    """
    shape = x.type.shape
    view = _view(x)
    along, across = _merged(free, shape, view.strides), _merged(contract, shape, view.strides)
    if along is not None and across is not None and (1 in (along, across) or 0 in (along, across)):
        return view, along, across
    perm = (*batch, *free, *contract)
    copy = b.transpose(x, perm)
    if copy is x:  # already in this order, but behind a slice: store it as it is
        own = strides_of(shape)
        return _View(x, 0, own), _merged(free, shape, own) or 0, _merged(contract, shape, own) or 0
    strides = [0] * len(shape)
    for s, p in zip(strides_of(copy.type.shape), perm):
        strides[p] = s
    view = _View(copy, 0, tuple(strides))
    return view, _merged(free, shape, strides) or 0, _merged(contract, shape, strides) or 0


# -- emission ---------------------------------------------------------------------------


def emit_gemm(k: KernelEmitter, op: Op) -> None:
    """One BLAS call per batch entry.

    Row-major ``Z = X·Y`` is column-major ``Zᵀ = Yᵀ·Xᵀ``, so the operands change places.
    """
    g: Gemm = op.attrs["gemm"]
    x, y = op.operands
    em, result = k.em, op.results[0]
    mt = memory_type(result.type.dtype)
    px, py, pz = k.pointer(x), k.pointer(y), k.pointer(result)
    for p, offset in ((0, g.x[0]), (1, g.y[0])):
        if offset:
            moved = em.let(f"getelementptr {mt}, ptr {(px, py)[p]}, i64 {offset}")
            px, py = (moved, py) if p == 0 else (px, moved)
    for length, sx, sy, sz in g.batch:
        i = k.open_loop(length)
        px, py, pz = (
            em.let(f"getelementptr {mt}, ptr {p}, i64 {em.let(f'mul i64 {i}, {s}')}")
            for p, s in ((px, sx), (py, sy), (pz, sz))
        )
    m, n, x_m, x_k, y_k, y_n, (z_m, z_n) = g.m, g.n, *g.x[1:], *g.y[1:], g.z
    if n != 1 and z_n != 1:  # the result is stored by columns: compute its transpose
        m, n, px, py = n, m, py, px
        x_m, x_k, y_k, y_n = y_n, y_k, x_k, x_m
        z_m, z_n = z_n, z_m
    if n == 1:
        _gemv(k, op, m, g.k, (px, x_m, x_k), (py, y_k), (pz, z_m))
    elif m == 1:
        _gemv(k, op, n, g.k, (py, y_n, y_k), (px, x_k), (pz, z_n))
    else:
        dtype = result.type.dtype
        one, zero = k.blas_real(1.0, dtype), k.blas_real(0.0, dtype)
        by_rows = x_k == 1 or (g.k == 1 and x_m != 1)
        char_x, ld_x = ("N", max(x_m, g.k)) if by_rows else ("T", max(x_k, m))
        char_y, ld_y = ("N", max(y_k, n)) if y_n == 1 else ("T", max(y_n, g.k))
        k.call_blas(
            f"{'d' if dtype.bits == 64 else 's'}gemm",
            [
                k.blas_char(char_y), k.blas_char(char_x), k.blas_int(n), k.blas_int(m),
                k.blas_int(g.k), one, py, k.blas_int(ld_y), px, k.blas_int(ld_x),
                zero, pz, k.blas_int(z_m),
            ],
        )  # fmt: skip
    for _ in g.batch:
        k.close_loop()


def _gemv(
    k: KernelEmitter,
    op: Op,
    rows: int,
    depth: int,
    matrix: tuple[str, int, int],
    vector: tuple[str, int],
    out: tuple[str, int],
) -> None:
    """``out[i] = Σ_k matrix[i, k] · vector[k]``."""
    dtype = op.results[0].type.dtype
    pointer, s_row, s_k = matrix
    # as a column-major matrix: (depth × rows) if k has unit stride, else (rows × depth)
    by_rows = s_k == 1 or (depth == 1 and s_row != 1)
    ld = s_row if by_rows else s_k
    shape = (depth, rows) if by_rows else (rows, depth)
    k.call_blas(
        f"{'d' if dtype.bits == 64 else 's'}gemv",
        [
            k.blas_char("T" if by_rows else "N"), k.blas_int(shape[0]), k.blas_int(shape[1]),
            k.blas_real(1.0, dtype), pointer, k.blas_int(max(ld, shape[0], 1)), vector[0],
            k.blas_int(vector[1] or 1), k.blas_real(0.0, dtype), out[0], k.blas_int(out[1] or 1),
        ],
    )  # fmt: skip
