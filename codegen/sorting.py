"""Emission of ``sort`` and ``searchsorted``.

A line is copied to scratch space with the numbers 0, 1, …; there both are sorted by merging
runs bottom-up, stable, and copied back.  The merge is one LLVM function per dtype.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tapec.codegen.body import strides_of
from tapec.codegen.scalars import llvm_type
from tapec.codegen.vectors import load_vector, memory_type, store_vector
from tapec.ir.core import I64, DType, Op

if TYPE_CHECKING:
    from tapec.codegen.kernel import KernelEmitter
    from tapec.codegen.scalars import Emitter

__all__ = ["SHORT", "emit_search", "emit_sort", "straight_search", "straight_sort"]

#: Lines up to this length are sorted in registers.
SHORT = 8


def _before(em: Emitter, dtype: DType, x: str, y: str) -> str:
    """Whether x must stand before y although it comes later: smaller, or y is a NaN alone."""
    t = llvm_type(dtype)
    if dtype.kind != "f":
        return em.let(f"icmp {'u' if dtype.kind == 'b' else 's'}lt {t} {x}, {y}")
    less = em.let(f"fcmp olt {t} {x}, {y}")
    nan = em.let(f"fcmp uno {t} {y}, {y}")
    number = em.let(f"fcmp ord {t} {x}, {x}")
    return em.let(f"or i1 {less}, {em.let(f'and i1 {nan}, {number}')}")


def _merge_sort(dtype: DType) -> str:
    """``v``, ``p``: values and numbers; ``tv``, ``tp``: as much space again.  Runs of length w are
    merged from one pair to the other; an odd number of rounds ends with a copy."""
    mt, size = memory_type(dtype), dtype.itemsize
    if dtype.kind == "f":
        compare = f"""  %less = fcmp olt {mt} %y, %x
  %nan = fcmp uno {mt} %x, %x
  %number = fcmp ord {mt} %y, %y
  %both = and i1 %nan, %number
  %second = or i1 %less, %both"""
    else:
        compare = f"  %second = icmp {'u' if dtype.kind == 'b' else 's'}lt {mt} %y, %x"
    return f"""define internal void @tapec.sort.{dtype.name}(ptr %v, ptr %p, ptr %tv, ptr %tp, i64 %n) noinline nounwind {{
entry:
  br label %round
round:
  %w = phi i64 [ 1, %entry ], [ %w2, %rounded ]
  %sv = phi ptr [ %v, %entry ], [ %dv, %rounded ]
  %sp = phi ptr [ %p, %entry ], [ %dp, %rounded ]
  %dv = phi ptr [ %tv, %entry ], [ %sv, %rounded ]
  %dp = phi ptr [ %tp, %entry ], [ %sp, %rounded ]
  %w2 = shl i64 %w, 1
  %finished = icmp uge i64 %w, %n
  br i1 %finished, label %end, label %pair
pair:
  %low = phi i64 [ 0, %round ], [ %high, %merged ]
  %m0 = add i64 %low, %w
  %m1 = icmp ult i64 %m0, %n
  %middle = select i1 %m1, i64 %m0, i64 %n
  %h0 = add i64 %low, %w2
  %h1 = icmp ult i64 %h0, %n
  %high = select i1 %h1, i64 %h0, i64 %n
  br label %step
step:
  %i = phi i64 [ %low, %pair ], [ %i.next, %moved ]
  %j = phi i64 [ %middle, %pair ], [ %j.next, %moved ]
  %k = phi i64 [ %low, %pair ], [ %k.next, %moved ]
  %some.i = icmp ult i64 %i, %middle
  %some.j = icmp ult i64 %j, %high
  br i1 %some.i, label %left, label %move
left:
  br i1 %some.j, label %compare, label %move
compare:
  %xq = getelementptr {mt}, ptr %sv, i64 %i
  %yq = getelementptr {mt}, ptr %sv, i64 %j
  %x = load {mt}, ptr %xq
  %y = load {mt}, ptr %yq
{compare}
  br label %move
move:
  %take.j = phi i1 [ true, %step ], [ false, %left ], [ %second, %compare ]
  %from = select i1 %take.j, i64 %j, i64 %i
  %fv = getelementptr {mt}, ptr %sv, i64 %from
  %fp = getelementptr i64, ptr %sp, i64 %from
  %value = load {mt}, ptr %fv
  %number.k = load i64, ptr %fp
  %kv = getelementptr {mt}, ptr %dv, i64 %k
  %kp = getelementptr i64, ptr %dp, i64 %k
  store {mt} %value, ptr %kv
  store i64 %number.k, ptr %kp
  %step.j = zext i1 %take.j to i64
  %step.i = sub i64 1, %step.j
  %i.next = add i64 %i, %step.i
  %j.next = add i64 %j, %step.j
  %k.next = add i64 %k, 1
  br label %moved
moved:
  %more = icmp ult i64 %k.next, %high
  br i1 %more, label %step, label %merged
merged:
  %again = icmp ult i64 %high, %n
  br i1 %again, label %pair, label %rounded
rounded:
  br label %round
end:
  %same = icmp eq ptr %sv, %v
  br i1 %same, label %done, label %copy
copy:
  %bytes.v = mul i64 %n, {size}
  %bytes.p = mul i64 %n, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %v, ptr %sv, i64 %bytes.v, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr %p, ptr %sp, i64 %bytes.p, i1 false)
  br label %done
done:
  ret void
}}
"""  # noqa: E501  (the head of the function)


def emit_sort(k: KernelEmitter, op: Op) -> None:
    x, em = op.operands[0], k.em
    if not x.type.size:
        return
    shape, axis, dtype = x.type.shape, op.attrs["axis"], x.type.dtype
    mt, n = memory_type(dtype), shape[axis]
    source, values, order = k.pointer(x), k.pointer(op.results[0]), k.pointer(op.results[1])
    part = -(-n * 8 // 64) * 64
    k.scratch_bytes = max(k.scratch_bytes, 4 * part)
    scratch = em.let("getelementptr i8, ptr %ws, i64 SCRATCH")
    v, p, tv, tp = (
        em.let(f"getelementptr i8, ptr {scratch}, i64 {j * part}") if j else scratch
        for j in range(4)
    )
    k.declares.add("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    k.math.define(f"@tapec.sort.{dtype.name}", _merge_sort(dtype))
    base, opened = "0", 0
    for j, (extent, stride) in enumerate(zip(shape, strides_of(shape))):
        if j == axis or extent == 1:
            continue
        i = k.open_loop(extent)
        opened += 1
        term = em.let(f"mul i64 {i}, {stride}")
        base = term if base == "0" else em.let(f"add i64 {base}, {term}")
    stride = strides_of(shape)[axis]

    def places() -> tuple[str, str]:
        i = k.open_loop(n)
        return i, em.let(f"add i64 {base}, {em.let(f'mul i64 {i}, {stride}')}")

    def moved(ty: str, frm: str, at: str, to: str, where: str) -> None:
        a = em.let(f"getelementptr {ty}, ptr {frm}, i64 {at}")
        q = em.let(f"getelementptr {ty}, ptr {to}, i64 {where}")
        em.line(f"store {ty} {em.let(f'load {ty}, ptr {a}')}, ptr {q}")

    i, at = places()
    moved(mt, source, at, v, i)
    em.line(f"store i64 {i}, ptr {em.let(f'getelementptr i64, ptr {p}, i64 {i}')}")
    k.close_loop()
    em.line(f"call void @tapec.sort.{dtype.name}(ptr {v}, ptr {p}, ptr {tv}, ptr {tp}, i64 {n})")
    i, at = places()
    moved(mt, v, i, values, at)
    moved("i64", p, i, order, at)
    k.close_loop()
    for _ in range(opened):
        k.close_loop()


def straight_sort(k: KernelEmitter, op: Op) -> None:
    """Insertion of each element into those before it, by exchanges of neighbours."""
    from tapec.codegen.straight import lines_along

    x, em = op.operands[0], k.em
    dtype = x.type.dtype
    t = llvm_type(dtype)
    values, order = [""] * x.type.size, [""] * x.type.size
    for line in lines_along(op):
        row = [k.element(x, e) for e in line]
        numbers = [str(j) for j in range(len(line))]
        for last in range(1, len(line)):
            for j in range(last, 0, -1):
                swap = _before(em, dtype, row[j], row[j - 1])
                for names, ty in ((row, t), (numbers, "i64")):
                    a, b = names[j - 1], names[j]
                    names[j - 1] = em.let(f"select i1 {swap}, {ty} {b}, {ty} {a}")
                    names[j] = em.let(f"select i1 {swap}, {ty} {a}, {ty} {b}")
        for e, value, number in zip(line, row, numbers):
            values[e], order[e] = value, number
    k.set_regs(op.results[0], values)
    k.set_regs(op.results[1], order)


def _search(dtype: DType, right: bool) -> str:
    """The number of elements before the value, by halving; NaN stands last, as in ``sort``."""
    mt = memory_type(dtype)
    if dtype.kind == "f":
        order = "ole" if right else "olt"
        test = f"""  %less = fcmp {order} {mt} %x, %value
  %nan = fcmp uno {mt} %value, %value
  %number = fcmp {"uno" if right else "ord"} {mt} {"%value" if right else "%x"}, {"%value" if right else "%x"}
  %both = and i1 %nan, %number
  %go = or i1 %less, %both"""  # noqa: E501
    else:
        test = f"  %go = icmp {'sle' if right else 'slt'} {mt} %x, %value"
    return f"""define internal i64 {_search_name(dtype, right)}(ptr %table, {mt} %value, i64 %n) noinline nounwind {{
entry:
  br label %loop
loop:
  %low = phi i64 [ 0, %entry ], [ %low.next, %step ]
  %high = phi i64 [ %n, %entry ], [ %high.next, %step ]
  %more = icmp ult i64 %low, %high
  br i1 %more, label %step, label %done
step:
  %sum = add i64 %low, %high
  %middle = lshr i64 %sum, 1
  %q = getelementptr {mt}, ptr %table, i64 %middle
  %x = load {mt}, ptr %q
{test}
  %above = add i64 %middle, 1
  %low.next = select i1 %go, i64 %above, i64 %low
  %high.next = select i1 %go, i64 %high, i64 %middle
  br label %loop
done:
  ret i64 %low
}}
"""  # noqa: E501  (the head of the function)


def _search_name(dtype: DType, right: bool) -> str:
    return f"@tapec.search.{'right' if right else 'left'}.{dtype.name}"


def _found(k: KernelEmitter, op: Op, value: str) -> str:
    table = op.operands[0]
    dtype, right = table.type.dtype, op.attrs["right"]
    name = _search_name(dtype, right)
    k.math.define(name, _search(dtype, right))
    n = table.type.size
    return k.em.let(
        f"call i64 {name}(ptr {k.pointer(table)}, {memory_type(dtype)} {value}, i64 {n})"
    )


def emit_search(k: KernelEmitter, op: Op) -> None:
    value, result = op.operands[1], op.results[0]
    if not result.type.size:
        return
    i = k.open_loop(result.type.size)
    x = load_vector(k, value.type.dtype, k.pointer(value), i, 1, 1, 1)
    store_vector(k, I64, _found(k, op, x), k.pointer(result), i, 1, 1, 1)
    k.close_loop()


def straight_search(k: KernelEmitter, op: Op) -> None:
    """Values in registers, looked up in a stored table."""
    value = op.operands[1]
    k.set_regs(op.results[0], [_found(k, op, k.element(value, j)) for j in range(value.type.size)])
