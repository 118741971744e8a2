"""Straight-line code: operations on values small enough to live in registers.

Each element of a register value is one SSA name (or a constant).  Reshapes, transposes,
slices and the like only rearrange names and cost no instruction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tapec.codegen.body import strides_of
from tapec.codegen.packing import lanes_for, packs, run_stride
from tapec.codegen.scalars import (
    constant,
    contracted,
    convert,
    emit_op,
    identity,
    instruction,
    llvm_type,
    reduce_step,
)
from tapec.codegen.sorting import straight_search, straight_sort
from tapec.codegen.vectors import fold_lanes, load_vector, memory_type
from tapec.ir.core import BOOL, I64, Dense, DType, Op, Value
from tapec.ir.opdef import OPS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tapec.codegen.kernel import KernelEmitter

__all__ = ["emit_slot", "emit_straight", "load_element"]

Names = list[str]
_ELEMENTWISE = frozenset(name for name, d in OPS.items() if d.elementwise)
_INSTRUCTIONS = frozenset(
    name for name, d in OPS.items() if (d.llvm or "").startswith(("inst:", "cmp:"))
)


def emit_slot(k: KernelEmitter, ops: Sequence[Op]) -> None:
    """Emit straight-line code, split into functions where it gets long.

    Scalar operations that are one instruction, which is most of a long program, are written
    here and now: this loop decides how fast such programs compile.
    """
    spilled, names, home = k.program.spilled, k.names, k.home
    contract = k.contract
    while True:
        em, regs, here = k.em, k.regs, len(k.chunks) - 1
        lines = em.lines
        for at, op in enumerate(ops):
            results = op.results
            if len(results) == 1 and op.operands:
                result = results[0]
                if result.type.size == 1 and op.name in _INSTRUCTIONS:
                    dtype = op.operands[0].type.dtype
                    text = instruction(op.name, dtype, 1)
                    if text is not None and result not in spilled:
                        args = []
                        for v in op.operands:
                            known = regs.get(v)
                            args.append(known[0] if known is not None else k.element(v, 0))
                        if op in contract:
                            text = contracted(text)
                        em.n += 1
                        name = f"%t{em.n}"
                        lines.append(f"  {name} = {text} {', '.join(args)}")
                        regs[result] = names[result] = [name]
                        home[result] = here
                        if len(lines) > k.chunk_lines:
                            break
                        continue
            emit_straight(k, op)
            if len(lines) > k.chunk_lines:
                break
        else:
            return
        ops = ops[at + 1 :]
        k.cut_if_long()
        if not ops:
            return


def emit_straight(k: KernelEmitter, op: Op) -> None:
    """Emit one register operation."""
    name, result = op.name, op.results[0] if op.results else None
    if result is not None and result.type.size > 1 and packs(op, k.is_packed):
        _packed(k, op)
        k.break_block()
        return
    if result is not None and name in _ELEMENTWISE:
        if name in ("sin", "cos") and op.operands[0] in k.joint:
            _joint(k, op)
            return
        if result.type.size == 1:
            k.set_regs(result, [emit_op(k.em, op, 1, [k.element(v, 0) for v in op.operands])])
            return
        k.set_regs(
            result,
            [
                emit_op(k.em, op, 1, [k.element(v, i) for v in op.operands])
                for i in range(result.type.size)
            ],
        )
        return
    if name.startswith("reduce_"):
        k.set_regs(op.results[0], _reduce(k, op))
        return
    _EMIT[name](k, op)


def _packed(k: KernelEmitter, op: Op) -> None:
    """An elementwise operation on packed values."""
    result, w = op.results[0], lanes_for(op.results[0])
    if op.name == "reshape":
        k.set_vector(result, k.vector(op.operands[0]))
        return
    args = [k.vector(v) for v in op.operands]
    if op.name not in ("sin", "cos") or op.operands[0] not in k.joint:
        k.set_vector(result, emit_op(k.em, op, w, args))
        return
    both = k.sincos.get(op.operands[0])
    if both is None:
        dtype = result.type.dtype
        t = llvm_type(dtype, w)
        symbol = k.em.math.call("sincos", dtype, w)
        pair = k.em.let(f"call {{{t}, {t}}} {symbol}({t} {args[0]})")
        sine, cosine = (k.em.let(f"extractvalue {{{t}, {t}}} {pair}, {i}") for i in (0, 1))
        both = k.sincos[op.operands[0]] = [sine], [cosine]
    k.set_vector(result, both[0 if op.name == "sin" else 1][0])


def _joint(k: KernelEmitter, op: Op) -> None:
    """Sine and cosine of one operand by one call; the second of the pair finds its names."""
    x, result = op.operands[0], op.results[0]
    both = k.sincos.get(x)
    if both is None:
        dtype = x.type.dtype
        t = llvm_type(dtype)
        symbol = k.em.math.call("sincos", dtype, 1)
        both = ([], [])
        for i in range(x.type.size):
            pair = k.em.let(f"call {{{t}, {t}}} {symbol}({t} {k.element(x, i)})")
            both[0].append(k.em.let(f"extractvalue {{{t}, {t}}} {pair}, 0"))
            both[1].append(k.em.let(f"extractvalue {{{t}, {t}}} {pair}, 1"))
        k.sincos[x] = both
    k.set_regs(result, list(both[0 if op.name == "sin" else 1]))


def _flat(shape: Sequence[int], index: Sequence[int]) -> int:
    return sum(i * s for i, s in zip(index, strides_of(shape)))


def _all(k: KernelEmitter, v: Value) -> Names:
    return [k.element(v, i) for i in range(v.type.size)]


def _constant(k: KernelEmitter, op: Op) -> None:
    value, t = op.attrs["value"], op.results[0].type
    if isinstance(value, Dense):
        k.set_regs(op.results[0], [constant(v, t.dtype) for v in value.array.ravel().tolist()])
    else:
        k.set_regs(op.results[0], [constant(value, t.dtype)] * t.size)


def _iota(k: KernelEmitter, op: Op) -> None:
    t = op.results[0].type
    values = np.indices(t.shape)[op.attrs["axis"]].ravel()
    k.set_regs(op.results[0], [constant(int(v), t.dtype) for v in values])


def _reshape(k: KernelEmitter, op: Op) -> None:
    k.set_regs(op.results[0], _all(k, op.operands[0]))


def _pick(k: KernelEmitter, op: Op, source: Callable[[tuple[int, ...]], int]) -> None:
    """A result whose elements are elements of the operand."""
    result = op.results[0]
    k.set_regs(
        result,
        [k.element(op.operands[0], source(index)) for index in np.ndindex(*result.type.shape)],
    )


def _transpose(k: KernelEmitter, op: Op) -> None:
    shape, perm = op.operands[0].type.shape, op.attrs["perm"]
    strides = strides_of(shape)
    moved = [strides[p] for p in perm]
    _pick(k, op, lambda index: sum(i * s for i, s in zip(index, moved)))


def _broadcast(k: KernelEmitter, op: Op) -> None:
    shape, dims = op.operands[0].type.shape, op.attrs["dims"]
    _pick(k, op, lambda index: _flat(shape, [index[d] for d in dims]))


def _slice(k: KernelEmitter, op: Op) -> None:
    x, result = op.operands[0], op.results[0]
    start, step = op.attrs["start"], op.attrs["step"]
    w = lanes_for(result)
    stride = run_stride(op) if w and k.program.kind.get(x) == "mem" else None
    if stride is not None:
        t, mt = result.type, memory_type(x.type.dtype)
        at = _flat(x.type.shape, start)
        pointer = k.em.let(f"getelementptr {mt}, ptr {k.pointer(x)}, i64 {at}")
        k.set_vector(result, load_vector(k, t.dtype, pointer, "0", stride, w, t.size))
        return
    if result.type.size == 1:
        k.set_regs(result, [k.element(x, _flat(x.type.shape, start))])
        return
    shape = x.type.shape
    _pick(k, op, lambda index: _flat(shape, [a + i * s for a, i, s in zip(start, index, step)]))


def _place(k: KernelEmitter, op: Op) -> None:
    t = op.results[0].type
    zero = constant(0, t.dtype)
    names = [zero] * t.size
    for piece, (start, step) in zip(op.operands, op.attrs["at"]):
        for i, index in enumerate(np.ndindex(*piece.type.shape)):
            at = _flat(t.shape, [a + j * s for a, j, s in zip(start, index, step)])
            x = k.element(piece, i)
            names[at] = (
                x if names[at] is zero else reduce_step(k.em, "sum", t.dtype, 1, names[at], x)
            )
    k.set_regs(op.results[0], names)


def _gather(k: KernelEmitter, op: Op) -> None:
    x, indices = op.operands[0], op.operands[1:]
    result, em = op.results[0], k.em
    axes = op.attrs["axes"]
    strides = strides_of(x.type.shape)
    rest = [j for j in range(x.type.ndim) if j not in axes]
    n = indices[0].type.ndim
    names = []
    for index in np.ndindex(*result.type.shape):
        fixed = sum(i * strides[j] for i, j in zip(index[n:], rest))
        at = _flat(indices[0].type.shape, index[:n])
        dynamic = ""
        for v, j in zip(indices, axes):
            i = k.element(v, at)
            if i[0] != "%":
                fixed += int(i) * strides[j]
                continue
            i = convert(em, i, v.type.dtype, I64, 1)
            term = i if strides[j] == 1 else em.let(f"mul i64 {i}, {strides[j]}")
            dynamic = em.let(f"add i64 {dynamic}, {term}") if dynamic else term
        if dynamic:
            where = em.let(f"add i64 {dynamic}, {fixed}") if fixed else dynamic
            names.append(load_element(k, x.type.dtype, k.pointer(x), where))
        else:
            names.append(k.element(x, fixed))
    k.set_regs(result, names)


def load_element(k: KernelEmitter, dtype: DType, pointer: str, index: str) -> str:
    em, mt = k.em, memory_type(dtype)
    q = pointer if index == "0" else em.let(f"getelementptr {mt}, ptr {pointer}, i64 {index}")
    x = em.let(f"load {mt}, ptr {q}")
    return em.let(f"icmp ne i8 {x}, 0") if dtype is BOOL else x


def _groups(op: Op) -> list[list[int]]:
    """For each result element of a reduction, the operand elements in order."""
    shape, axes = op.operands[0].type.shape, op.attrs["axes"]
    kept = [j for j in range(len(shape)) if j not in axes]
    kept_shape = [shape[j] for j in kept]
    groups: list[list[int]] = [[] for _ in np.ndindex(*kept_shape)]
    for i, index in enumerate(np.ndindex(*shape)):
        groups[_flat(kept_shape, [index[j] for j in kept])].append(i)
    return groups


def _reduce(k: KernelEmitter, op: Op) -> Names:
    x, kind = op.operands[0], op.name[len("reduce_") :]
    dtype = op.results[0].type.dtype
    if x in k.vectors and op.results[0].type.size == 1:
        w, value = lanes_for(x), k.vector(x)
        if x.type.size < w:
            vt, neutral = llvm_type(dtype, w), constant(identity(kind, dtype), dtype, w)
            mask = f"{llvm_type(BOOL, w)} {k.mask(w, x.type.size)}"
            value = k.em.let(f"select {mask}, {vt} {value}, {vt} {neutral}")
        return [fold_lanes(k, kind, dtype, [value], w)]
    out = []
    for group in _groups(op):
        names = [k.element(x, i) for i in group]
        while len(names) > 1:
            pairs = [
                reduce_step(k.em, kind, dtype, 1, a, b) for a, b in zip(names[::2], names[1::2])
            ]
            names = pairs + ([names[-1]] if len(names) % 2 else [])
        out.append(names[0] if names else constant(identity(kind, dtype), dtype))
    return out


def lines_along(op: Op) -> list[list[int]]:
    """Operand elements along ``axis``, one list per position of the other axes, in order."""
    shape, axis = op.operands[0].type.shape, op.attrs["axis"]
    others = [n for j, n in enumerate(shape) if j != axis]
    out = []
    for index in np.ndindex(*others):
        full = list(index)
        full.insert(axis, 0)
        base, stride = _flat(shape, full), strides_of(shape)[axis]
        out.append([base + i * stride for i in range(shape[axis])])
    return out


def _cumsum(k: KernelEmitter, op: Op) -> None:
    x, dtype = op.operands[0], op.results[0].type.dtype
    names = [""] * x.type.size
    for line in lines_along(op):
        total = ""
        for i in reversed(line) if op.attrs["reverse"] else line:
            e = k.element(x, i)
            total = reduce_step(k.em, "sum", dtype, 1, total, e) if total else e
            names[i] = total
    k.set_regs(op.results[0], names)


def better(k: KernelEmitter, name: str, dtype: DType, x: str, best: str) -> str:
    """Whether ``x`` replaces ``best`` in an argmax/argmin: strictly better, or the first NaN."""
    em, t = k.em, llvm_type(dtype)
    predicate = "gt" if name == "argmax" else "lt"
    if dtype.kind != "f":
        sign = "u" if dtype is BOOL else "s"
        return em.let(f"icmp {sign}{predicate} {t} {x}, {best}")
    # unordered: true when either is NaN; a NaN that is already the best stays
    worse = em.let(f"fcmp u{predicate} {t} {x}, {best}")
    ordered = em.let(f"fcmp ord {t} {best}, {best}")
    return em.let(f"and i1 {worse}, {ordered}")


def _arg_extremum(k: KernelEmitter, op: Op) -> None:
    x, em = op.operands[0], k.em
    dtype = x.type.dtype
    t = llvm_type(dtype)
    out = []
    for line in lines_along(op):
        best, at = k.element(x, line[0]), "0"
        for i, e in enumerate(line[1:], 1):
            value = k.element(x, e)
            take = better(k, op.name, dtype, value, best)
            best = em.let(f"select i1 {take}, {t} {value}, {t} {best}")
            at = em.let(f"select i1 {take}, i64 {i}, i64 {at}")
        out.append(at)
    k.set_regs(op.results[0], out)


def _dot(k: KernelEmitter, op: Op) -> None:
    """A small product, unrolled."""
    x, y = op.operands
    (xc, yc), (xb, yb) = op.attrs["contract"], op.attrs["batch"]
    xs, ys = strides_of(x.type.shape), strides_of(y.type.shape)
    xf = [j for j in range(x.type.ndim) if j not in xc and j not in xb]
    yf = [j for j in range(y.type.ndim) if j not in yc and j not in yb]
    dtype = op.results[0].type.dtype
    t, f = llvm_type(dtype), "f" if dtype.kind == "f" else ""
    mul = "and" if dtype is BOOL else f"{f}mul"
    inner = list(np.ndindex(*[x.type.shape[j] for j in xc]))
    out = []
    for index in np.ndindex(*op.results[0].type.shape):
        nb, nf = len(xb), len(xf)
        x0 = sum(i * xs[j] for i, j in zip(index, [*xb, *xf]))
        y0 = sum(i * ys[j] for i, j in zip(index[:nb] + index[nb + nf :], [*yb, *yf]))
        total = ""
        for c in inner:
            a = k.element(x, x0 + sum(i * xs[j] for i, j in zip(c, xc)))
            b = k.element(y, y0 + sum(i * ys[j] for i, j in zip(c, yc)))
            product = k.em.let(f"{mul} {t} {a}, {b}")
            total = reduce_step(k.em, "sum", dtype, 1, total, product) if total else product
        out.append(total or constant(0, dtype))
    k.set_regs(op.results[0], out)


def _guard(k: KernelEmitter, op: Op) -> None:
    """Leave with the number of the guard unless the condition is as expected."""
    v, em = op.operands[0], k.em
    expected = op.attrs["expected"]
    ok = em.let(
        f"icmp eq {llvm_type(v.type.dtype)} {k.element(v, 0)}, {constant(expected, v.type.dtype)}"
    )
    number = k.guard_numbers[op]
    go_on, fail = k.label(), k.label()
    em.line(f"br i1 {ok}, label %{go_on}, label %{fail}")
    em.label(fail)
    em.line(f"ret i32 {number}")
    k.start_block(go_on)


_EMIT: dict[str, Callable[[KernelEmitter, Op], None]] = {
    "argmax": _arg_extremum,
    "argmin": _arg_extremum,
    "broadcast": _broadcast,
    "constant": _constant,
    "cumsum": _cumsum,
    "dot": _dot,
    "gather": _gather,
    "guard": _guard,
    "iota": _iota,
    "place": _place,
    "reshape": _reshape,
    "searchsorted": straight_search,
    "slice": _slice,
    "sort": straight_sort,
    "transpose": _transpose,
}
