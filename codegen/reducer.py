"""Where and how the reductions of a nest accumulate, by where their axes stand in the loop order:

``lanes``   the vector axis is reduced: vector accumulators, folded by a fixed tree when the
            innermost kept loop ends its iteration (or the nest ends);
``memory``  the vector axis is kept: accumulate into the result array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tapec.codegen.order import result_strides
from tapec.codegen.program import Nest
from tapec.codegen.scalars import constant, identity, llvm_type, reduce_step
from tapec.codegen.vectors import fold_lanes, load_vector, store_vector
from tapec.ir.core import Op

if TYPE_CHECKING:
    from tapec.codegen.kernel import KernelEmitter

__all__ = ["Reducer", "fill_identity"]


#: Elements that are filled at once.
LANES = 8


def fill_identity(k: KernelEmitter, op: Op) -> None:
    """Fill a reduction's result with its neutral element."""
    result = op.results[0]
    dtype = result.type.dtype
    neutral = identity(op.name[7:], dtype)
    if k.program.kind[result] == "reg":
        k.set_regs(result, [constant(neutral, dtype)])
        return
    pointer, size = k.pointer(result), result.type.size
    whole = size - size % LANES
    if whole:
        index = k.open_vector_loop(0, whole, LANES)
        store_vector(k, dtype, constant(neutral, dtype, LANES), pointer, index, 1, LANES, LANES)
        k.close_loop()
    if whole < size:
        index = k.open_loop(size - whole, whole)
        store_vector(k, dtype, constant(neutral, dtype), pointer, index, 1, 1, 1)
        k.close_loop()


class Reducer:
    """Where and how one reduction of a nest accumulates."""

    def __init__(self, k: KernelEmitter, nest: Nest, op: Op, groups: list[list[int]], w: int):
        self.k, self.op, self.w = k, op, w
        self.kind = op.name[len("reduce_") :]
        self.result = op.results[0]
        self.dtype = self.result.type.dtype
        self.strides = result_strides(op)
        axes = set(op.attrs["axes"])
        reduced = [g[0] in axes for g in groups]
        self.lanes = not groups or reduced[-1]
        kept = [p for p, r in enumerate(reduced) if not r]
        #: loop position whose body resets and folds the accumulators; −1: the whole nest
        self.level = max(kept, default=-1)
        self.accumulate = len(nest.parts) > 1 or any(reduced[: max(self.level, 0)])
        self.in_memory = self.level >= 0
        #: the accumulators are values of the innermost loop, which nothing else interrupts;
        #: else they lie in slots
        self.in_registers = (
            self.lanes and bool(groups) and len(nest.parts) == 1 and self.level == len(groups) - 2
        )
        self.slots: list[str] = []
        self.values: list[str] = []

    def start(self) -> None:
        k = self.k
        if not self.lanes or (self.in_memory and self.accumulate):
            fill_identity(k, self.op)
        if self.lanes:
            if not self.in_registers:
                vt = llvm_type(self.dtype, self.w)
                self.slots = [k.alloca(vt) for _ in range(4)]
            if not self.in_memory:
                self.reset()

    def reset(self) -> None:
        vt = llvm_type(self.dtype, self.w)
        value = constant(identity(self.kind, self.dtype), self.dtype, self.w)
        self.values = [value] * 4
        for s in self.slots:
            self.k.em.line(f"store {vt} {value}, ptr {s}")

    def folded(self) -> str:
        if self.in_registers:  # those that were used
            vectors = [v for v in self.values if v[0] == "%"] or self.values[:1]
        else:
            vt = llvm_type(self.dtype, self.w)
            vectors = [self.k.em.let(f"load {vt}, ptr {s}") for s in self.slots]
        return fold_lanes(self.k, self.kind, self.dtype, vectors, self.w)

    def begin(self) -> list[str]:
        """The accumulators before the innermost loop."""
        if not self.lanes:
            return []
        if self.in_registers:
            return list(self.values)
        vt = llvm_type(self.dtype, self.w)
        return [self.k.em.let(f"load {vt}, ptr {s}") for s in self.slots]

    def end(self, accumulators: list[str]) -> None:
        """What they are after it."""
        self.values = accumulators
        for s, a in zip(self.slots, accumulators):
            self.k.em.line(f"store {llvm_type(self.dtype, self.w)} {a}, ptr {s}")

    def flush(self, index: str) -> None:
        """Fold into the result element at ``index`` (elements)."""
        k, value = self.k, self.folded()
        pointer = k.pointer(self.result)
        if self.accumulate:
            old = load_vector(k, self.dtype, pointer, index, 1, 1, 1)
            value = reduce_step(k.em, self.kind, self.dtype, 1, old, value)
        store_vector(k, self.dtype, value, pointer, index, 1, 1, 1)

    def finish(self) -> None:
        if self.lanes and not self.in_memory:
            value = self.folded()
            if self.k.program.kind[self.result] == "reg":
                self.k.set_regs(self.result, [value])
            else:
                store_vector(self.k, self.dtype, value, self.k.pointer(self.result), "0", 1, 1, 1)
