"""Loops and branches as LLVM text: ``cond``, ``scan``, ``while``.

A *runner* is one body: ``_Inline`` emits it in place with its carries as phis, one per
element; ``_Called`` calls it as a function, its carries being pointers to two buffers that
change places.  A loop asks its runner for the phis, for one step, and for the end.

What a phase of a ``while`` yields lies on a stack of records that grows by doubling.  All
stacks are freed on every way out; if memory runs out the kernel returns −1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tapec.codegen.regions import is_index
from tapec.codegen.scalars import convert, llvm_type
from tapec.codegen.straight import emit_straight, load_element
from tapec.codegen.vectors import memory_type, store_vector
from tapec.ir.core import BOOL, I64, Block, Op, Value
from tapec.ir.loops import Phase, phases, scan_parts

if TYPE_CHECKING:
    from tapec.codegen.kernel import KernelEmitter

__all__ = ["NO_MEMORY", "emit_region"]

#: What a kernel returns when memory runs out.
NO_MEMORY = -1
#: Records in a new stack.
FIRST_RECORDS = 64

Names = list[str]


def emit_region(k: KernelEmitter, op: Op, nested: bool = False) -> None:
    """Emit an operation with regions at the current place."""
    inline = nested or op in k.program.scalar
    {"cond": _cond, "scan": _scan, "while": _while}[op.name](k, op, inline)


def _emit_block(k: KernelEmitter, block: Block) -> None:
    for op in block.ops:
        if op.regions:
            emit_region(k, op, nested=True)
        else:
            emit_straight(k, op)


@contextmanager
def _scope(k: KernelEmitter) -> Iterator[None]:
    """What is loaded inside is not known outside, where it may not have been."""
    loaded, sincos = k._loaded, k.sincos
    k._loaded, k.sincos = {}, {}
    yield
    k._loaded, k.sincos = loaded, sincos


def _elements(k: KernelEmitter, v: Value) -> Names:
    return [k.element(v, i) for i in range(v.type.size)]


def _bind(k: KernelEmitter, param: Value, operand: Value, names: Names | None) -> None:
    """Let ``param`` stand for an operand: its elements, or its memory."""
    if names is not None:
        k.set_regs(param, names)
    else:
        k.program.kind[param] = "mem"
        k.program.alias[param] = operand


def _names_of(k: KernelEmitter, v: Value) -> Names | None:
    from tapec.codegen.plan import small

    return _elements(k, v) if small(v.type) else None


def _offset(k: KernelEmitter, pointer: str, index: str, nbytes: int) -> str:
    if nbytes == 0:
        return pointer
    at = k.em.let(f"mul i64 {index}, {nbytes}")
    return k.em.let(f"getelementptr i8, ptr {pointer}, i64 {at}")


# -- runners ------------------------------------------------------------------------------


class _Inline:
    """A scalar body in place."""

    def __init__(
        self, k: KernelEmitter, body: Block, carry: Sequence[Value], consts: Sequence[Value]
    ) -> None:
        self.k, self.body, self.consts = k, body, consts
        self.carry = carry
        self.init = [_elements(k, v) for v in carry]
        self.const_names = [_names_of(k, v) for v in consts]

    def phis(self) -> list[tuple[str, str]]:
        """LLVM type and initial value of each."""
        return [
            (llvm_type(v.type.dtype), name)
            for v, names in zip(self.carry, self.init)
            for name in names
        ]

    def bind(self, block: Block, state: Names) -> None:
        """Carries and consts as the parameters of ``block``."""
        k, at = self.k, 0
        for p in block.params[: len(self.carry)]:
            k.set_regs(p, state[at : at + p.type.size])
            at += p.type.size
        n = len(self.consts)
        params = block.params[len(block.params) - n :] if n else ()
        for p, v, names in zip(params, self.consts, self.const_names):
            _bind(k, p, v, names)

    def step(
        self, state: Names, slices: Sequence[_Slice], index: str, targets: Sequence[str]
    ) -> Names:
        k, body, n = self.k, self.body, len(self.carry)
        self.bind(body, state)
        for p, s in zip(body.params[n:], slices):
            k.set_regs(p, s.elements(k, p, index))
        _emit_block(k, body)
        new = [name for r in body.results[:n] for name in _elements(k, r)]
        for y, target in zip(body.results[n:], targets, strict=True):
            for i, name in enumerate(_elements(k, y)):
                store_vector(k, y.type.dtype, name, target, str(i), 1, 1, 1)
        return new

    def finish(self, state: Names, results: Sequence[Value]) -> None:
        at = 0
        for r in results:
            self.k.set_regs(r, state[at : at + r.type.size])
            at += r.type.size

    def test(self, block: Block, state: Names) -> str:
        self.bind(block, state)
        _emit_block(self.k, block)
        return self.k.element(block.results[0], 0)


class _Called:
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
        fail: str | None = None,
        others: Sequence[Block] = (),
    ) -> None:
        """``steps``: how many there will be, if known; ``others``: called in between."""
        self.k, self.block, self.consts = k, body, consts
        self.body = k.body(body)
        self.fail = fail
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
        self, state: Names, slices: Sequence[_Slice], index: str, targets: Sequence[str]
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
        _call(k, self.block, self.ins, self.outs, self.scratch, self.fail)
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
        _call(k, block, self.test_ins, self.test_out, self.scratch, self.fail)
        slot = em.let(f"load ptr, ptr {self.test_out}")
        return load_element(k, BOOL, slot, "0")

    def prepare_test(self, block: Block) -> None:
        k = self.k
        self.test_ins = k.alloca(f"[{max(len(block.params), 1)} x ptr]")
        self.test_out = k.alloca("ptr")
        self._put(self.test_out, 0, k.alloca("i64"))
        self._fill_consts(block, self.test_ins)


_Runner = _Inline | _Called


def _call(
    k: KernelEmitter, block: Block, ins: str, outs: str, scratch: str, fail: str | None
) -> None:
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
    if fail is None:
        em.line(f"ret i32 {code}")
    else:
        em.line(f"store i32 {code}, ptr {fail}.code")
        em.line(f"br label %{fail[1:]}")
    k.start_block(good)


class _Slice:
    """Element ``t`` of a scanned operand: in memory at ``base + t * step``, or t itself."""

    __slots__ = ("base", "slot", "step")

    def __init__(self, k: KernelEmitter, base: str | None, step: int) -> None:
        self.base = base
        self.step = step
        self.slot = k.alloca("i64") if base is None else ""

    def elements(self, k: KernelEmitter, param: Value, index: str) -> Names:
        dtype = param.type.dtype
        if self.base is None:
            return [convert(k.em, index, I64, dtype, 1)]
        pointer = _offset(k, self.base, index, self.step)
        return [load_element(k, dtype, pointer, str(i)) for i in range(param.type.size)]

    def pointer(self, k: KernelEmitter, param: Value, index: str) -> str:
        if self.base is not None:
            return _offset(k, self.base, index, self.step)
        dtype = param.type.dtype
        value = convert(k.em, index, I64, dtype, 1)
        k.em.line(f"store {memory_type(dtype)} {value}, ptr {self.slot}")
        return self.slot


# -- scan ---------------------------------------------------------------------------------


def _scan(k: KernelEmitter, op: Op, inline: bool) -> None:
    (body,) = op.regions
    carry, xs, consts = scan_parts(op, op.operands)
    n, c = op.attrs["length"], len(carry)
    runner: _Runner
    if inline:
        runner = _Inline(k, body, carry, consts)
    else:
        runner = _Called(k, body, carry, consts, op.results[:c], n)
    if n == 0:
        runner.finish([name for _, name in runner.phis()], op.results[:c])
        return
    slices = [_slice_of(k, x) for x in xs]
    stacks = [(k.pointer(y), r.type.nbytes) for y, r in zip(op.results[c:], body.results[c:])]
    with _scope(k):
        at = k.open_loop(n)
        state = [k.phi(ty, initial) for ty, initial in runner.phis()]
        if op.attrs["reverse"]:
            at = k.em.let(f"sub i64 {n - 1}, {at}")
        targets = [_offset(k, pointer, at, size) for pointer, size in stacks]
        new = runner.step(state, slices, at, targets)
        for phi, name in zip(state, new, strict=True):
            k.set_phi(phi, name)
        k.close_loop()
    runner.finish(new, op.results[:c])


def _slice_of(k: KernelEmitter, x: Value) -> _Slice:
    if is_index(x):
        return _Slice(k, None, 0)
    return _Slice(k, k.pointer(x), x.type.nbytes // max(x.type.shape[0], 1))


# -- cond ---------------------------------------------------------------------------------


def _cond(k: KernelEmitter, op: Op, inline: bool) -> None:
    em = k.em
    index, args = op.operands[0], op.operands[1:]
    chosen = k.element(index, 0)
    names = [_names_of(k, v) for v in args] if inline else []
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
            with _scope(k):
                for p, v, known in zip(region.params, args, names):
                    _bind(k, p, v, known)
                _emit_block(k, region)
                found = [name for r in region.results for name in _elements(k, r)]
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
            _call(k, region, ins, outs, scratch, None)
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
    """Records of one phase: what its iterations yield."""

    def __init__(self, k: KernelEmitter, phase: Phase) -> None:
        self.offsets: list[int] = []
        size = 0
        for y in phase.ys:
            self.offsets.append(size)
            size += -(-y.type.nbytes // 8) * 8
        self.record = size
        self.base = self.capacity = ""
        if size:
            self.base, self.capacity = k.alloca("ptr"), k.alloca("i64")
            k.em.line(f"store ptr null, ptr {self.base}")
            k.em.line(f"store i64 0, ptr {self.capacity}")

    def reserve(self, k: KernelEmitter, needed: str, fail: str) -> None:
        """Make sure that there is room for ``needed`` records."""
        em = k.em
        capacity = em.let(f"load i64, ptr {self.capacity}")
        enough = em.let(f"icmp ule i64 {needed}, {capacity}")
        grow, bad, store, go_on = (k.label() for _ in range(4))
        em.line(f"br i1 {enough}, label %{go_on}, label %{grow}")
        k.start_block(grow)
        double = em.let(f"shl i64 {needed}, 1")
        few = em.let(f"icmp ult i64 {double}, {FIRST_RECORDS}")
        records = em.let(f"select i1 {few}, i64 {FIRST_RECORDS}, i64 {double}")
        nbytes = em.let(f"mul i64 {records}, {self.record}")
        old = em.let(f"load ptr, ptr {self.base}")
        k.symbols.add("realloc")
        em.declares.add("declare ptr @realloc(ptr, i64)")
        new = em.let(f"call ptr @realloc(ptr {old}, i64 {nbytes})")
        none = em.let(f"icmp eq ptr {new}, null")
        em.line(f"br i1 {none}, label %{bad}, label %{store}")
        k.start_block(bad)
        em.line(f"store i32 {NO_MEMORY}, ptr {fail}.code")
        em.line(f"br label %{fail[1:]}")
        k.start_block(store)
        em.line(f"store ptr {new}, ptr {self.base}")
        em.line(f"store i64 {records}, ptr {self.capacity}")
        em.line(f"br label %{go_on}")
        k.start_block(go_on)

    def targets(self, k: KernelEmitter, at: str) -> Names:
        """Where iteration ``at`` writes what it yields."""
        if not self.offsets:
            return []
        base = k.em.let(f"load ptr, ptr {self.base}") if self.record else "null"
        row = _offset(k, base, at, self.record)
        return [k.em.let(f"getelementptr i8, ptr {row}, i64 {o}") for o in self.offsets]

    def slice(self, k: KernelEmitter, y: int) -> _Slice:
        base = k.em.let(f"load ptr, ptr {self.base}") if self.record else "null"
        at = k.em.let(f"getelementptr i8, ptr {base}, i64 {self.offsets[y]}")
        return _Slice(k, at, self.record)


def _while(k: KernelEmitter, op: Op, inline: bool) -> None:
    em, loops = k.em, phases(op)
    consts = op.operands[sum(op.attrs["n_carry"]) :]
    stacks = [_Stack(k, p) for p in loops]
    owns = any(s.record for s in stacks)
    fail = ""
    if owns:
        fail = f"%{k.label()}"
        k.chunks[-1].prologue.append(f"  {fail}.code = alloca i32")
        k.may_fail = True
    marker = _enter(k)
    count = ""
    for p, phase in enumerate(loops):
        carry = op.operands[phase.first : phase.first + phase.n_carry]
        results = op.results[phase.first : phase.first + phase.n_carry]
        runner: _Runner
        if inline:
            runner = _Inline(k, phase.body, carry, consts)
        else:
            runner = _Called(
                k, phase.body, carry, consts, results, None, fail or None,
                op.regions[:1] if p == 0 else (),
            )  # fmt: skip
        if p == 0:
            if isinstance(runner, _Called):
                runner.prepare_test(op.regions[0])
            count = _repeat(k, op, phase, runner, stacks[0], results, fail)
        else:
            if stacks[p].record:
                stacks[p].reserve(k, count, fail)
            _replay(k, phase, runner, stacks, p, count, results)
    if owns:
        done = k.label()
        _free(k, stacks)
        em.line(f"br label %{done}")
        k.start_block(fail[1:])
        _free(k, stacks)
        em.line(f"ret i32 {em.let(f'load i32, ptr {fail}.code')}")
        k.start_block(done)
    k._loops.remove(marker)


def _free(k: KernelEmitter, stacks: Sequence[_Stack]) -> None:
    k.symbols.add("free")
    k.em.declares.add("declare void @free(ptr)")
    for s in stacks:
        if s.record:
            base = k.em.let(f"load ptr, ptr {s.base}")
            k.em.line(f"call void @free(ptr {base})")


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
    phase: Phase,
    runner: _Runner,
    stack: _Stack,
    results: Sequence[Value],
    fail: str,
) -> str:
    """The loop itself; how many iterations it took."""
    em = k.em
    with _scope(k):
        header = _Header(k, [("i64", "0"), *runner.phis()])
        at, *state = header.names
        more = runner.test(op.regions[0], state)
        body, done = k.label(), k.label()
        em.line(f"br i1 {more}, label %{body}, label %{done}")
        k.start_block(body)
        following = em.let(f"add i64 {at}, 1")
        if stack.record:
            stack.reserve(k, following, fail)
        new = runner.step(state, [], at, stack.targets(k, at))
        header.close([following, *new])
        k.start_block(done)
    runner.finish(state, results)
    return str(at)


def _replay(
    k: KernelEmitter,
    phase: Phase,
    runner: _Runner,
    stacks: Sequence[_Stack],
    p: int,
    count: str,
    results: Sequence[Value],
) -> None:
    """``count`` iterations over what earlier phases yielded."""
    em = k.em
    slices = [stacks[q].slice(k, y) for q, y in phase.reads]
    with _scope(k):
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
