"""Steps that are one operation on stored arrays: BLAS products and sequential scans."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tapec.codegen.body import strides_of
from tapec.codegen.control import emit_region
from tapec.codegen.fourier import emit_fourier
from tapec.codegen.gemm import emit_gemm
from tapec.codegen.host import emit_host_call
from tapec.codegen.lapack import EMIT_LAPACK
from tapec.codegen.nest import emit_nest
from tapec.codegen.scalars import constant, convert, llvm_type, reduce_step
from tapec.codegen.sorting import emit_search, emit_sort
from tapec.codegen.straight import better
from tapec.codegen.vectors import load_vector, store_vector
from tapec.ir.core import I64, Op, Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from tapec.codegen.kernel import KernelEmitter
    from tapec.codegen.program import Opaque

__all__ = ["emit_opaque"]


def emit_opaque(k: KernelEmitter, step: Opaque) -> None:
    if step.op.regions:
        emit_region(k, step.op)
    elif step.op.name == "place":
        _place(k, step)
    elif "lapack" in step.op.attrs:
        EMIT_LAPACK[step.op.name](k, step.op)
    else:
        _EMIT[step.op.name](k, step.op)


def _zero(k: KernelEmitter, pointer: str, nbytes: int) -> None:
    k.em.declares.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    k.em.line(f"call void @llvm.memset.p0.i64(ptr {pointer}, i8 0, i64 {nbytes}, i1 false)")


def _place(k: KernelEmitter, step: Opaque) -> None:
    """Zeros where no piece is, then each piece: loops for stored ones, single stores for the
    others.  Pieces that may overlap are added."""
    op = step.op
    result = op.results[0]
    dtype, strides = result.type.dtype, strides_of(result.type.shape)
    pointer = k.pointer(result)
    if step.adds or sum(v.type.size for v in op.operands) < result.type.size:
        _zero(k, pointer, result.type.nbytes)
    for nest in step.nests:
        emit_nest(k, nest)
    parts: dict[int, list[tuple[Value, int]]] = {}
    for piece, (start, steps) in zip(op.operands, op.attrs["at"]):
        if k.program.kind[piece] != "reg":
            continue
        for i, index in enumerate(np.ndindex(*piece.type.shape)):
            at = sum((a + j * s) * t for a, j, s, t in zip(start, index, steps, strides))
            parts.setdefault(at, []).append((piece, i))
    for at, elements in parts.items():
        k.cut_if_long()  # names do not outlive a cut: elements are asked for after it
        pointer = k.pointer(result)
        x, *more = [k.element(piece, i) for piece, i in elements]
        for y in more:
            x = reduce_step(k.em, "sum", dtype, 1, x, y)
        if step.adds and step.nests:
            old = load_vector(k, dtype, pointer, str(at), 1, 1, 1)
            x = reduce_step(k.em, "sum", dtype, 1, old, x)
        store_vector(k, dtype, x, pointer, str(at), 1, 1, 1)


def _open_others(k: KernelEmitter, shape: tuple[int, ...], axis: int) -> tuple[str, int]:
    """Loops over all axes but one; the element offset and the number of open loops."""
    em, at, n = k.em, "0", 0
    for j, (extent, stride) in enumerate(zip(shape, strides_of(shape))):
        if j == axis or extent == 1:
            continue
        i = k.open_loop(extent)
        n += 1
        term = em.let(f"mul i64 {i}, {stride}")
        at = term if at == "0" else em.let(f"add i64 {at}, {term}")
    return at, n


def _cumsum(k: KernelEmitter, op: Op) -> None:
    x, result, em = op.operands[0], op.results[0], k.em
    shape, axis, dtype = x.type.shape, op.attrs["axis"], x.type.dtype
    source, target = k.pointer(x), k.pointer(result)
    if not x.type.size:
        return
    base, depth = _open_others(k, shape, axis)
    stride, n = strides_of(shape)[axis], shape[axis]
    i = k.open_loop(n)
    total = k.phi(llvm_type(dtype), constant(0, dtype))
    if op.attrs["reverse"]:
        i = em.let(f"sub i64 {n - 1}, {i}")
    at = em.let(f"add i64 {base}, {em.let(f'mul i64 {i}, {stride}')}")
    value = load_vector(k, dtype, source, at, 1, 1, 1)
    new = reduce_step(em, "sum", dtype, 1, total, value)
    store_vector(k, dtype, new, target, at, 1, 1, 1)
    k.set_phi(total, new)
    for _ in range(depth + 1):
        k.close_loop()


def _arg_extremum(k: KernelEmitter, op: Op) -> None:
    x, result, em = op.operands[0], op.results[0], k.em
    shape, axis, dtype = x.type.shape, op.attrs["axis"], x.type.dtype
    t = llvm_type(dtype)
    source, target = k.pointer(x), k.pointer(result)
    base, depth = _open_others(k, shape, axis)
    stride, n = strides_of(shape)[axis], shape[axis]
    first = load_vector(k, dtype, source, base, 1, 1, 1)
    i = k.open_loop(n)
    best, where = k.phi(t, first), k.phi("i64", "0")
    at = em.let(f"add i64 {base}, {em.let(f'mul i64 {i}, {stride}')}")
    value = load_vector(k, dtype, source, at, 1, 1, 1)
    take = better(k, op.name, dtype, value, best)
    new = em.let(f"select i1 {take}, {t} {value}, {t} {best}")
    new_where = em.let(f"select i1 {take}, i64 {i}, i64 {where}")
    k.set_phi(best, new)
    k.set_phi(where, new_where)
    k.close_loop()
    # the position in the result: the axes after ``axis`` keep their strides
    inner = stride
    outer = em.let(f"udiv i64 {base}, {n * inner}")
    within = em.let(f"urem i64 {base}, {inner}")
    at = em.let(f"add i64 {em.let(f'mul i64 {outer}, {inner}')}, {within}")
    if k.program.kind[result] == "reg":
        k.set_regs(result, [new_where])
    else:
        store_vector(k, I64, new_where, target, at, 1, 1, 1)
    for _ in range(depth):
        k.close_loop()


def _scatter_add(k: KernelEmitter, op: Op) -> None:
    """Copy the base, then add the updates one by one, in order."""
    base, updates, indices = op.operands[0], op.operands[1], op.operands[2:]
    result, em = op.results[0], k.em
    dtype, axes = result.type.dtype, op.attrs["axes"]
    target = k.pointer(result)
    k.copy(target, k.pointer(base), result.type.nbytes)
    if not updates.type.size:
        return
    strides = strides_of(result.type.shape)
    rest = [j for j in range(result.type.ndim) if j not in axes]
    head = indices[0].type.size
    tail = [result.type.shape[j] for j in rest]
    n_tail = int(np.prod(tail)) if tail else 1
    i = k.open_loop(head)
    where = "0"
    for v, j in zip(indices, axes):
        x = load_vector(k, v.type.dtype, k.pointer(v), i, 1, 1, 1)
        x = convert(em, x, v.type.dtype, I64, 1)
        term = em.let(f"mul i64 {x}, {strides[j]}")
        where = term if where == "0" else em.let(f"add i64 {where}, {term}")
    source = em.let(f"mul i64 {i}, {n_tail}")
    opened = 0
    for stride, n, inner in zip([strides[j] for j in rest], tail, strides_of(tail)):
        if n == 1:
            continue
        j_index = k.open_loop(n)
        opened += 1
        where = em.let(f"add i64 {where}, {em.let(f'mul i64 {j_index}, {stride}')}")
        source = em.let(f"add i64 {source}, {em.let(f'mul i64 {j_index}, {inner}')}")
    value = load_vector(k, dtype, k.pointer(updates), source, 1, 1, 1)
    old = load_vector(k, dtype, target, where, 1, 1, 1)
    store_vector(k, dtype, reduce_step(em, "sum", dtype, 1, old, value), target, where, 1, 1, 1)
    for _ in range(opened + 1):
        k.close_loop()


_EMIT: dict[str, Callable[[KernelEmitter, Op], None]] = {
    "host_call": emit_host_call,
    "fft": emit_fourier,
    "irfft": emit_fourier,
    "rfft": emit_fourier,
    "argmax": _arg_extremum,
    "argmin": _arg_extremum,
    "cumsum": _cumsum,
    "dot": emit_gemm,
    "scatter_add": _scatter_add,
    "searchsorted": emit_search,
    "sort": emit_sort,
}
