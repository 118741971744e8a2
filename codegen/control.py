"""Loops and branches as LLVM text: ``cond``, ``scan``, ``while``.

What a phase of a ``while`` yields lies on a stack of records that grows by doubling.  All
stacks are freed on every way out; if memory runs out the kernel returns −1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tapec.codegen.bodies import (
    Called,
    Inline,
    Runner,
    Slice,
    bind,
    call_body,
    elements,
    emit_block,
    names_of,
    offset,
    scope,
)
from tapec.codegen.regions import is_index
from tapec.codegen.scalars import llvm_type
from tapec.ir.core import BOOL, Op, Value
from tapec.ir.loops import Phase, phases, scan_parts

if TYPE_CHECKING:
    from tapec.codegen.kernel import KernelEmitter

__all__ = ["NO_MEMORY", "STACKS", "emit_region"]

#: What a kernel returns when memory runs out.
NO_MEMORY = -1
#: Stands in the text for the offset of the words of all stacks.
STACKS = "STACKS"
#: Records in a new stack.
FIRST_RECORDS = 64

Names = list[str]


def emit_region(k: KernelEmitter, op: Op, nested: bool = False) -> None:
    """Emit an operation with regions at the current place."""
    inline = nested or op in k.program.scalar
    {"cond": _cond, "scan": _scan, "while": _while}[op.name](k, op, inline)


# -- scan ---------------------------------------------------------------------------------


def _scan(k: KernelEmitter, op: Op, inline: bool) -> None:
    (body,) = op.regions
    carry, xs, consts = scan_parts(op, op.operands)
    n, c = op.attrs["length"], len(carry)
    runner: Runner
    if inline:
        runner = Inline(k, body, carry, consts)
    else:
        runner = Called(k, body, carry, consts, op.results[:c], n)
    if n == 0:
        runner.finish([name for _, name in runner.phis()], op.results[:c])
        return
    slices = [_slice_of(k, x) for x in xs]
    stacks = [(k.pointer(y), r.type.nbytes) for y, r in zip(op.results[c:], body.results[c:])]
    with scope(k):
        at = k.open_loop(n)
        state = [k.phi(ty, initial) for ty, initial in runner.phis()]
        if op.attrs["reverse"]:
            at = k.em.let(f"sub i64 {n - 1}, {at}")
        targets = [offset(k, pointer, at, size) for pointer, size in stacks]
        new = runner.step(state, slices, at, targets)
        for phi, name in zip(state, new, strict=True):
            k.set_phi(phi, name)
        k.close_loop()
    runner.finish(new, op.results[:c])


def _slice_of(k: KernelEmitter, x: Value) -> Slice:
    if is_index(x):
        return Slice(k, None, 0)
    return Slice(k, k.pointer(x), x.type.nbytes // max(x.type.shape[0], 1))


# -- cond ---------------------------------------------------------------------------------


def _cond(k: KernelEmitter, op: Op, inline: bool) -> None:
    em = k.em
    index, args = op.operands[0], op.operands[1:]
    chosen = k.element(index, 0)
    names = [names_of(k, v) for v in args] if inline else []
    pointers = [] if inline else [k.pointer(v) for v in args]
    results = [] if inline else [k.pointer(r) for r in op.results]
    labels = [k.label() for _ in op.regions]
    join = k.label()
    if index.type.dtype is BOOL:
        em.line(f"br i1 {chosen}, label %{labels[1]}, label %{labels[0]}")
    else:
        t, last = llvm_type(index.type.dtype), len(labels) - 1
        high = em.let(f"icmp sge {t} {chosen}, {last}")
        clamped = em.let(f"select i1 {high}, {t} {last}, {t} {chosen}")
        cases = " ".join(f"{t} {i}, label %{x}" for i, x in enumerate(labels) if i)
        em.line(f"switch {t} {clamped}, label %{labels[0]} [{cases}]")
    ends: list[tuple[str, Names]] = []
    marker = _enter(k)
    for label, region in zip(labels, op.regions):
        k.start_block(label)
        found: Names = []
        if inline:
            with scope(k):
                for p, v, known in zip(region.params, args, names):
                    bind(k, p, v, known)
                emit_block(k, region)
                found = [name for r in region.results for name in elements(k, r)]
        else:
            body = k.body(region)
            k.scratch_bytes = max(k.scratch_bytes, body.workspace)
            ins = k.alloca(f"[{max(len(pointers), 1)} x ptr]")
            outs = k.alloca(f"[{max(len(results), 1)} x ptr]")
            for array, values in ((ins, pointers), (outs, results)):
                for j, pointer in enumerate(values):
                    q = em.let(f"getelementptr ptr, ptr {array}, i64 {j}")
                    em.line(f"store ptr {pointer}, ptr {q}")
            scratch = "null"
            if body.workspace:
                scratch = em.let("getelementptr i8, ptr %ws, i64 SCRATCH")
            call_body(k, region, ins, outs, scratch)
        em.line(f"br label %{join}")
        ends.append((k._block, found))
    k._loops.remove(marker)
    k.start_block(join)
    if inline:
        every = []
        for at, dtype in enumerate([r.type.dtype for r in op.results for _ in range(r.type.size)]):
            arms = ", ".join(f"[ {found[at]}, %{block} ]" for block, found in ends)
            every.append(em.let(f"phi {llvm_type(dtype)} {arms}"))
        at = 0
        for r in op.results:
            k.set_regs(r, every[at : at + r.type.size])
            at += r.type.size


def _enter(k: KernelEmitter) -> _Mark:
    """Until it is removed, code is not cut into several functions."""
    mark = _Mark(len(k.em.lines))
    k._loops.append(mark)
    return mark


class _Mark:
    __slots__ = ("place",)

    def __init__(self, place: int) -> None:
        self.place = place


# -- while --------------------------------------------------------------------------------


class _Stack:
    """Records of one phase: what its iterations yield.

    Address, capacity and count lie in the workspace, where the function's wrapper finds
    what is to be freed on whichever way the function ends.
    """

    def __init__(self, k: KernelEmitter, ys: Sequence[Value]) -> None:
        self.offsets: list[int] = []
        size = 0
        for y in ys:
            self.offsets.append(size)
            size += -(-y.type.nbytes // 8) * 8
        self.record = size
        self.number = -1
        if size:
            self.number, k.stacks = k.stacks, k.stacks + 1
            k.may_fail = True

    def word(self, k: KernelEmitter, i: int) -> str:
        """The address of the stack's address (0), capacity (1) or count (2)."""
        base = k.em.let(f"getelementptr i8, ptr %ws, i64 {STACKS}")
        return k.em.let(f"getelementptr i64, ptr {base}, i64 {3 * self.number + i}")

    def reserve(self, k: KernelEmitter, needed: str) -> None:
        """Make sure that there is room for ``needed`` records."""
        em = k.em
        capacity = em.let(f"load i64, ptr {self.word(k, 1)}")
        enough = em.let(f"icmp ule i64 {needed}, {capacity}")
        grow, bad, store, go_on = (k.label() for _ in range(4))
        em.line(f"br i1 {enough}, label %{go_on}, label %{grow}")
        k.start_block(grow)
        double = em.let(f"shl i64 {needed}, 1")
        few = em.let(f"icmp ult i64 {double}, {FIRST_RECORDS}")
        records = em.let(f"select i1 {few}, i64 {FIRST_RECORDS}, i64 {double}")
        nbytes = em.let(f"mul i64 {records}, {self.record}")
        old = em.let(f"load ptr, ptr {self.word(k, 0)}")
        k.symbols.add("realloc")
        em.declares.add("declare ptr @realloc(ptr, i64)")
        new = em.let(f"call ptr @realloc(ptr {old}, i64 {nbytes})")
        none = em.let(f"icmp eq ptr {new}, null")
        em.line(f"br i1 {none}, label %{bad}, label %{store}")
        k.start_block(bad)
        em.line(f"ret i32 {NO_MEMORY}")
        k.start_block(store)
        em.line(f"store ptr {new}, ptr {self.word(k, 0)}")
        em.line(f"store i64 {records}, ptr {self.word(k, 1)}")
        em.line(f"br label %{go_on}")
        k.start_block(go_on)

    def base(self, k: KernelEmitter) -> str:
        return k.em.let(f"load ptr, ptr {self.word(k, 0)}") if self.record else "null"

    def targets(self, k: KernelEmitter, at: str) -> Names:
        """Where iteration ``at`` writes what it yields."""
        if not self.offsets:
            return []
        row = offset(k, self.base(k), at, self.record)
        return [k.em.let(f"getelementptr i8, ptr {row}, i64 {o}") for o in self.offsets]

    def slice(self, k: KernelEmitter, y: int) -> Slice:
        at = k.em.let(f"getelementptr i8, ptr {self.base(k)}, i64 {self.offsets[y]}")
        return Slice(k, at, self.record)


def _while(k: KernelEmitter, op: Op, inline: bool) -> None:
    loops = phases(op)
    consts = op.operands[sum(op.attrs["n_carry"]) :]
    marker = _enter(k)
    kept = k.kept.get(op)  # this operation's loop, run by an earlier one
    count, stacks = "", []
    for p, phase in enumerate(loops):
        carry = op.operands[phase.first : phase.first + phase.n_carry]
        results = op.results[phase.first : phase.first + phase.n_carry]
        if p == 0 and kept is not None:
            first, stack = kept
            stacks.append(stack)
            count = k.em.let(f"load i64, ptr {stack.word(k, 2)}")
            for r, v in zip(results, first.results):
                _same_value(k, r, v)
            continue
        body = phase.body
        merged = k.merged.get(op)
        if merged is not None:
            body = merged.body
        stacks.append(_Stack(k, body.results[phase.n_carry :]))
        runner: Runner
        if inline:
            runner = Inline(k, body, carry, consts)
        else:
            others = op.regions[:1] if p == 0 else ()
            runner = Called(k, body, carry, consts, results, None, others)
        if p == 0:
            if isinstance(runner, Called):
                runner.prepare_test(op.regions[0])
            count = _repeat(k, op, runner, stacks[0], results)
            if merged is not None and stacks[0].record:
                k.em.line(f"store i64 {count}, ptr {stacks[0].word(k, 2)}")
                k.kept[merged.second] = op, stacks[0]
        else:
            if stacks[p].record:
                stacks[p].reserve(k, count)
            _replay(k, phase, runner, stacks, p, count, results)
    k._loops.remove(marker)


def _same_value(k: KernelEmitter, r: Value, v: Value) -> None:
    """Let ``r`` have the value of ``v``."""
    if k.program.kind[r] == "reg":
        k.set_regs(r, elements(k, v))
    elif r.type.nbytes:
        k.copy(k.pointer(r), k.pointer(v), r.type.nbytes)


class _Header:
    """The top of a loop of unknown length: its phis are written when the loop is closed."""

    def __init__(self, k: KernelEmitter, phis: Sequence[tuple[str, str]]) -> None:
        self.k = k
        self.label = k.label()
        self.entry = k._block
        k.em.line(f"br label %{self.label}")
        k.start_block(self.label)
        self.place = len(k.em.lines)
        self.types = phis
        self.names = [k.em.name() for _ in phis]

    def close(self, new: Sequence[str]) -> None:
        k, back = self.k, self.k._block
        k.em.line(f"br label %{self.label}")
        k.em.lines[self.place : self.place] = [
            f"  {name} = phi {ty} [ {initial}, %{self.entry} ], [ {value}, %{back} ]"
            for name, (ty, initial), value in zip(self.names, self.types, new, strict=True)
        ]


def _repeat(
    k: KernelEmitter,
    op: Op,
    runner: Runner,
    stack: _Stack,
    results: Sequence[Value],
) -> str:
    """The loop itself; how many iterations it took."""
    em = k.em
    with scope(k):
        header = _Header(k, [("i64", "0"), *runner.phis()])
        at, *state = header.names
        more = runner.test(op.regions[0], state)
        body, done = k.label(), k.label()
        em.line(f"br i1 {more}, label %{body}, label %{done}")
        k.start_block(body)
        following = em.let(f"add i64 {at}, 1")
        if stack.record:
            stack.reserve(k, following)
        new = runner.step(state, [], at, stack.targets(k, at))
        header.close([following, *new])
        k.start_block(done)
    runner.finish(state, results)
    return str(at)


def _replay(
    k: KernelEmitter,
    phase: Phase,
    runner: Runner,
    stacks: Sequence[_Stack],
    p: int,
    count: str,
    results: Sequence[Value],
) -> None:
    """``count`` iterations over what earlier phases yielded."""
    em = k.em
    slices = [stacks[q].slice(k, y) for q, y in phase.reads]
    with scope(k):
        header = _Header(k, [("i64", "0"), *runner.phis()])
        i, *state = header.names
        more = em.let(f"icmp ult i64 {i}, {count}")
        body, done = k.label(), k.label()
        em.line(f"br i1 {more}, label %{body}, label %{done}")
        k.start_block(body)
        at = i
        if phase.reverse:
            at = em.let(f"sub i64 {count}, {em.let(f'add i64 {i}, 1')}")
        new = runner.step(state, slices, at, stacks[p].targets(k, at))
        header.close([em.let(f"add i64 {i}, 1"), *new])
        k.start_block(done)
    runner.finish(state, results)
