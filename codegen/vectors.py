"""Vectors in LLVM text: loads and stores of some lanes, splats, folds.

Booleans are ``i8`` in memory and ``i1`` in registers.  A partial vector has its first
``lanes`` lanes in use; the others load as zero and are not stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tapec.codegen.scalars import Emitter, llvm_type, reduce_step
from tapec.ir.core import BOOL, DType

if TYPE_CHECKING:
    from tapec.codegen.kernel import KernelEmitter

__all__ = [
    "fold_lanes", "load_vector", "memory_type", "plus", "splat", "store_interleaved",
    "store_vector", "times",
]  # fmt: skip


def memory_type(dtype: DType) -> str:
    return "i8" if dtype is BOOL else llvm_type(dtype)


def load_vector(
    k: KernelEmitter, dtype: DType, pointer: str, index: str, stride: int, w: int, lanes: int
) -> str:
    """``lanes`` of ``w`` elements at ``pointer + stride*(index + lane)``; the others are zero."""
    em, mt = k.em, memory_type(dtype)
    vt = f"<{w} x {mt}>"
    if w == 1:
        at = index if stride == 1 else em.let(f"mul i64 {index}, {stride}")
        q = pointer if at == "0" else em.let(f"getelementptr {mt}, ptr {pointer}, i64 {at}")
        x = em.let(f"load {mt}, ptr {q}")
        return em.let(f"icmp ne i8 {x}, 0") if dtype is BOOL else x
    if stride == 1:
        q = em.let(f"getelementptr {mt}, ptr {pointer}, i64 {index}")
        if lanes == w:
            x = em.let(f"load {vt}, ptr {q}, align {dtype.itemsize}")
        else:
            x = k.masked_load(mt, w, q, lanes, dtype.itemsize)
    else:
        x = "zeroinitializer"
        first = em.let(f"mul i64 {index}, {stride}")
        base = em.let(f"getelementptr {mt}, ptr {pointer}, i64 {first}")
        for lane in range(lanes):
            q = em.let(f"getelementptr {mt}, ptr {base}, i64 {lane * stride}")
            e = em.let(f"load {mt}, ptr {q}")
            x = em.let(f"insertelement {vt} {x}, {mt} {e}, i64 {lane}")
    return em.let(f"icmp ne {vt} {x}, zeroinitializer") if dtype is BOOL else x


def store_vector(
    k: KernelEmitter,
    dtype: DType,
    value: str,
    pointer: str,
    index: str,
    stride: int,
    w: int,
    lanes: int,
) -> None:
    em, mt = k.em, memory_type(dtype)
    vt = f"<{w} x {mt}>" if w > 1 else mt
    if dtype is BOOL:
        value = em.let(f"zext {llvm_type(BOOL, w)} {value} to {vt}")
    if w == 1:
        at = index if stride == 1 else em.let(f"mul i64 {index}, {stride}")
        q = pointer if at == "0" else em.let(f"getelementptr {mt}, ptr {pointer}, i64 {at}")
        em.line(f"store {mt} {value}, ptr {q}")
    elif stride == 1:
        q = em.let(f"getelementptr {mt}, ptr {pointer}, i64 {index}")
        if lanes == w:
            em.line(f"store {vt} {value}, ptr {q}, align {dtype.itemsize}")
        else:
            k.masked_store(mt, w, value, q, lanes, dtype.itemsize)
    else:
        first = em.let(f"mul i64 {index}, {stride}")
        base = em.let(f"getelementptr {mt}, ptr {pointer}, i64 {first}")
        for lane in range(lanes):
            e = em.let(f"extractelement {vt} {value}, i64 {lane}")
            q = em.let(f"getelementptr {mt}, ptr {base}, i64 {lane * stride}")
            em.line(f"store {mt} {e}, ptr {q}")


def store_interleaved(
    k: KernelEmitter, dtype: DType, values: list[str], pointer: str, index: str, w: int
) -> None:
    """``values[j]`` at ``pointer + n*(index + lane) + j``, for all n of them: whole vectors."""
    em, n, vt = k.em, len(values), llvm_type(dtype, w)
    base = em.let(f"mul i64 {index}, {n}")
    for part in range(n):
        places = [divmod(part * w + lane, n) for lane in range(w)]  # lane of which value
        x = values[0]
        for j in range(1, n):
            mask = ", ".join(
                f"i32 {w + at if of == j else at if of == 0 and j == 1 else lane}"
                for lane, (at, of) in enumerate(places)
            )
            x = em.let(f"shufflevector {vt} {x}, {vt} {values[j]}, <{w} x i32> <{mask}>")
        at = em.let(f"add i64 {base}, {part * w}")
        q = em.let(f"getelementptr {llvm_type(dtype)}, ptr {pointer}, i64 {at}")
        em.line(f"store {vt} {x}, ptr {q}, align {dtype.itemsize}")


def splat(k: KernelEmitter, dtype: DType, x: str, w: int) -> str:
    """A scalar repeated over ``w`` lanes."""
    if w == 1:
        return x
    t, vt = llvm_type(dtype), llvm_type(dtype, w)
    one = k.em.let(f"insertelement {vt} poison, {t} {x}, i64 0")
    return k.em.let(f"shufflevector {vt} {one}, {vt} poison, <{w} x i32> zeroinitializer")


def fold_lanes(k: KernelEmitter, kind: str, dtype: DType, vectors: list[str], w: int) -> str:
    """Accumulators to one scalar: pairwise over the accumulators, then halving the lanes."""
    em = k.em
    while len(vectors) > 1:
        vectors = [
            reduce_step(em, kind, dtype, w, a, b) for a, b in zip(vectors[::2], vectors[1::2])
        ] + ([vectors[-1]] if len(vectors) % 2 else [])
    x = vectors[0]
    while w > 1:
        half, vt = w // 2, llvm_type(dtype, w)
        parts = []
        for start in (0, half):
            lanes = ", ".join(f"i32 {start + j}" for j in range(half))
            parts.append(
                em.let(f"shufflevector {vt} {x}, {vt} poison, <{half} x i32> <{lanes}>")
                if half > 1
                else em.let(f"extractelement {vt} {x}, i64 {start}")
            )
        w = half
        x = reduce_step(em, kind, dtype, w, parts[0], parts[1])
    return x


def plus(em: Emitter, a: str, b: str) -> str:
    """The sum of two indices, names or numbers."""
    if a == "0":
        return b
    if b == "0":
        return a
    if a[0] != "%" and b[0] != "%":
        return str(int(a) + int(b))
    return em.let(f"add i64 {a}, {b}")


def times(em: Emitter, a: str, s: int) -> str:
    """A multiple of an index."""
    if s == 1 or a == "0":
        return a
    if a[0] != "%":
        return str(int(a) * s)
    return em.let(f"mul i64 {a}, {s}")
