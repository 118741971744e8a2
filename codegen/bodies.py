"""Bodies of loops and branches as LLVM text.

A *runner* is one body: ``Inline`` emits it in place with its carries as phis, one per
element; ``Called`` calls it as a function, its carries being pointers to two buffers that
change places.  A loop asks its runner for the phis, for one step, and for the end.

Invariant: what is loaded inside of a body is not known outside (``scope``), where control
may not have come through it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tapec.codegen.packing import lanes_for, packed_params
from tapec.codegen.scalars import convert, llvm_type
from tapec.codegen.straight import emit_straight, load_element
from tapec.codegen.vectors import load_vector, memory_type, store_vector
from tapec.ir.core import BOOL, I64, Block, Value

if TYPE_CHECKING:
    from tapec.codegen.kernel import KernelEmitter

__all__ = [
    "Called", "Inline", "Runner", "Slice", "bind", "call_body", "elements", "emit_block",
    "names_of", "offset", "scope",
]  # fmt: skip

Names = list[str]


def emit_block(k: KernelEmitter, block: Block) -> None:
    for op in block.ops:
        if op.regions:
            from tapec.codegen.control import emit_region  # which needs this module

            emit_region(k, op, nested=True)
        else:
            emit_straight(k, op)


@contextmanager
def scope(k: KernelEmitter) -> Iterator[None]:
    """What is loaded inside is not known outside, where it may not have been."""
    loaded, packed, sincos = k._loaded, k._packed, k.sincos
    k._loaded, k._packed, k.sincos = {}, {}, {}
    yield
    k._loaded, k._packed, k.sincos = loaded, packed, sincos


def elements(k: KernelEmitter, v: Value) -> Names:
    return [k.element(v, i) for i in range(v.type.size)]


def bind(k: KernelEmitter, param: Value, operand: Value, names: Names | None) -> None:
    """Let ``param`` stand for an operand: its elements, or its memory."""
    if names is not None:
        k.set_regs(param, names)
    else:
        k.program.kind[param] = "mem"
        k.program.alias[param] = operand


def names_of(k: KernelEmitter, v: Value) -> Names | None:
    from tapec.codegen.plan import small

    return elements(k, v) if small(v.type) else None


def offset(k: KernelEmitter, pointer: str, index: str, nbytes: int) -> str:
    if nbytes == 0:
        return pointer
    at = k.em.let(f"mul i64 {index}, {nbytes}")
    return k.em.let(f"getelementptr i8, ptr {pointer}, i64 {at}")


class Inline:
    """A scalar body in place.  A packed carry is one phi, another one a phi per element."""

    def __init__(
        self, k: KernelEmitter, body: Block, carry: Sequence[Value], consts: Sequence[Value]
    ) -> None:
        self.k, self.body, self.consts = k, body, consts
        self.carry = carry
        self.packed, self.wanted = packed_params(body, len(carry))
        self.init = [self._parts(v, packed) for v, packed in zip(carry, self.packed)]
        params = body.params[len(body.params) - len(consts) :]
        self.const_names = [
            [k.vector(v)] if p in self.wanted else names_of(k, v) for p, v in zip(params, consts)
        ]

    def _parts(self, v: Value, packed: bool) -> Names:
        return [self.k.vector(v)] if packed else elements(self.k, v)

    def phis(self) -> list[tuple[str, str]]:
        """LLVM type and initial value of each."""
        return [
            (llvm_type(v.type.dtype, lanes_for(v) if packed else 1), name)
            for v, names, packed in zip(self.carry, self.init, self.packed)
            for name in names
        ]

    def _define(self, values: Sequence[Value], state: Names) -> None:
        at = 0
        for v, packed in zip(values, self.packed):
            if packed:
                self.k.set_vector(v, state[at])
            else:
                self.k.set_regs(v, state[at : at + v.type.size])
            at += 1 if packed else v.type.size

    def bind(self, block: Block, state: Names) -> None:
        """Carries and consts as the parameters of ``block``."""
        k = self.k
        self._define(block.params[: len(self.carry)], state)
        n = len(self.consts)
        params = block.params[len(block.params) - n :] if n else ()
        for p, v, names in zip(params, self.consts, self.const_names):
            if names is not None and len(names) == 1 < v.type.size:
                k.set_vector(p, names[0])
            else:
                bind(k, p, v, names)

    def step(
        self, state: Names, slices: Sequence[Slice], index: str, targets: Sequence[str]
    ) -> Names:
        k, body, n = self.k, self.body, len(self.carry)
        self.bind(body, state)
        for p, s in zip(body.params[n:], slices):
            s.define(k, p, index, p in self.wanted)
        emit_block(k, body)
        new = [
            name
            for r, packed in zip(body.results[:n], self.packed)
            for name in self._parts(r, packed)
        ]
        for y, target in zip(body.results[n:], targets, strict=True):
            dtype = y.type.dtype
            if y in k.vectors:
                store_vector(k, dtype, k.vector(y), target, "0", 1, lanes_for(y), y.type.size)
                continue
            for i, name in enumerate(elements(k, y)):
                store_vector(k, dtype, name, target, str(i), 1, 1, 1)
        return new

    def finish(self, state: Names, results: Sequence[Value]) -> None:
        self._define(results, state)

    def test(self, block: Block, state: Names) -> str:
        self.bind(block, state)
        emit_block(self.k, block)
        return self.k.element(block.results[0], 0)


class Called:
    """A body as a function.  Its state: for each carry the pointer to read, the one to write
    and the one to write after that."""

    def __init__(
        self,
        k: KernelEmitter,
        body: Block,
        carry: Sequence[Value],
        consts: Sequence[Value],
        results: Sequence[Value],
        steps: int | None,
        others: Sequence[Block] = (),
    ) -> None:
        """``steps``: how many there will be, if known; ``others``: called in between."""
        self.k, self.block, self.consts = k, body, consts
        self.body = k.body(body)
        self.n = len(carry)
        self.carry = carry
        self.steps = steps
        workspace = max(b.workspace for b in (self.body, *map(k.body, others)))
        spare, size = [], -(-workspace // 64) * 64
        for v in carry:
            spare.append(size)
            size += -(-max(v.type.nbytes, 1) // 64) * 64
        k.scratch_bytes = max(k.scratch_bytes, size)
        self.scratch = "null"
        if size:
            self.scratch = k.em.let("getelementptr i8, ptr %ws, i64 SCRATCH")
        self.own = [k.pointer(r) for r in results]
        self.spare = [k.em.let(f"getelementptr i8, ptr {self.scratch}, i64 {at}") for at in spare]
        self.results = results
        self.ins = k.alloca(f"[{max(len(body.params), 1)} x ptr]")
        self.outs = k.alloca(f"[{max(len(body.results), 1)} x ptr]")
        self.const_pointers = [k.pointer(v) for v in consts]
        self._fill_consts(body, self.ins)
        self.test_ins = ""
        self.test_out = ""

    def _fill_consts(self, block: Block, ins: str) -> None:
        first = len(block.params) - len(self.consts)
        for i, pointer in enumerate(self.const_pointers):
            self._put(ins, first + i, pointer)

    def _put(self, array: str, at: int, pointer: str) -> None:
        em = self.k.em
        q = em.let(f"getelementptr ptr, ptr {array}, i64 {at}") if at else array
        em.line(f"store ptr {pointer}, ptr {q}")

    def phis(self) -> list[tuple[str, str]]:
        out = []
        for v, own, spare in zip(self.carry, self.own, self.spare):
            # with a known number of steps the last one writes where the result belongs
            first, second = (own, spare) if self.steps is None or self.steps % 2 else (spare, own)
            out += [("ptr", self.k.pointer(v)), ("ptr", first), ("ptr", second)]
        return out

    def step(
        self, state: Names, slices: Sequence[Slice], index: str, targets: Sequence[str]
    ) -> Names:
        k = self.k
        for j in range(self.n):
            self._put(self.ins, j, state[3 * j])
            self._put(self.outs, j, state[3 * j + 1])
        for j, s in enumerate(slices):
            param = self.block.params[self.n + j]
            self._put(self.ins, self.n + j, s.pointer(k, param, index))
        for j, target in enumerate(targets):
            self._put(self.outs, self.n + j, target)
        call_body(k, self.block, self.ins, self.outs, self.scratch)
        new = []
        for j in range(self.n):
            _, to, after = state[3 * j : 3 * j + 3]
            new += [to, after, to]
        return new

    def finish(self, state: Names, results: Sequence[Value]) -> None:
        k, em = self.k, self.k.em
        for j, (v, own) in enumerate(zip(self.carry, self.own)):
            if not v.type.nbytes:
                continue
            at = state[3 * j]
            if self.steps is None:
                there = em.let(f"icmp eq ptr {at}, {own}")
                copy, done = k.label(), k.label()
                em.line(f"br i1 {there}, label %{done}, label %{copy}")
                k.start_block(copy)
                k.copy(own, at, v.type.nbytes)
                em.line(f"br label %{done}")
                k.start_block(done)
            elif self.steps == 0:
                k.copy(own, at, v.type.nbytes)

    def test(self, block: Block, state: Names) -> str:
        k, em = self.k, self.k.em
        for j in range(self.n):
            self._put(self.test_ins, j, state[3 * j])
        call_body(k, block, self.test_ins, self.test_out, self.scratch)
        slot = em.let(f"load ptr, ptr {self.test_out}")
        return load_element(k, BOOL, slot, "0")

    def prepare_test(self, block: Block) -> None:
        k = self.k
        self.test_ins = k.alloca(f"[{max(len(block.params), 1)} x ptr]")
        self.test_out = k.alloca("ptr")
        self._put(self.test_out, 0, k.alloca("i64"))
        self._fill_consts(block, self.test_ins)


Runner = Inline | Called


def call_body(k: KernelEmitter, block: Block, ins: str, outs: str, scratch: str) -> None:
    """Call a body; leave with its return value if that is not 0."""
    body, em = k.body(block), k.em
    code = em.let(f"call i32 @{body.name}(ptr {ins}, ptr {outs}, ptr {scratch})")
    if not body.may_fail:
        return
    k.may_fail = True
    good, bad = k.label(), k.label()
    ok = em.let(f"icmp eq i32 {code}, 0")
    em.line(f"br i1 {ok}, label %{good}, label %{bad}")
    k.start_block(bad)
    em.line(f"ret i32 {code}")
    k.start_block(good)


class Slice:
    """Element ``t`` of a scanned operand: in memory at ``base + t * step``, or t itself."""

    __slots__ = ("base", "slot", "step")

    def __init__(self, k: KernelEmitter, base: str | None, step: int) -> None:
        self.base = base
        self.step = step
        self.slot = k.alloca("i64") if base is None else ""

    def define(self, k: KernelEmitter, param: Value, index: str, packed: bool) -> None:
        """Let ``param`` be the element, in registers."""
        t = param.type
        if self.base is None:
            k.set_regs(param, [convert(k.em, index, I64, t.dtype, 1)])
            return
        pointer = offset(k, self.base, index, self.step)
        if packed:
            w = lanes_for(param)
            k.set_vector(param, load_vector(k, t.dtype, pointer, "0", 1, w, t.size))
        else:
            names = [load_element(k, t.dtype, pointer, str(i)) for i in range(t.size)]
            k.set_regs(param, names)

    def pointer(self, k: KernelEmitter, param: Value, index: str) -> str:
        if self.base is not None:
            return offset(k, self.base, index, self.step)
        dtype = param.type.dtype
        value = convert(k.em, index, I64, dtype, 1)
        k.em.line(f"store {memory_type(dtype)} {value}, ptr {self.slot}")
        return self.slot
