"""``compile_kernel``: an array-level function to the LLVM text of one native function.

    define i32 @kernel(ptr %in, ptr %out, ptr %ws)

``%in`` and ``%out`` are arrays of data pointers, one per parameter and result; ``%ws`` is the
workspace.  The return value is 0, or the number of the guard that failed.

Long straight-line code is split into several LLVM functions, because instruction selection
is superlinear in the length of a block; values that cross a split go through a frame at the
end of the workspace.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tapec.codegen import plan as planning
from tapec.codegen.body import Node
from tapec.codegen.control import STACKS
from tapec.codegen.early_gather import gather_early
from tapec.codegen.fourier import nanoseconds
from tapec.codegen.lanes import lanes_last
from tapec.codegen.lapack import work_of
from tapec.codegen.lower import lower
from tapec.codegen.mathlib import MathLibrary
from tapec.codegen.memory import Layout, lay_out
from tapec.codegen.merge import Merged, merged_loops
from tapec.codegen.multiply_add import contractions
from tapec.codegen.nest import emit_nest
from tapec.codegen.opaque import emit_opaque
from tapec.codegen.program import Nest, Opaque, Program
from tapec.codegen.registers import Chunk, Registers
from tapec.codegen.row_blocks import in_row_blocks
from tapec.codegen.scalars import Emitter, constant, llvm_type
from tapec.codegen.straight import emit_slot
from tapec.codegen.target import host
from tapec.codegen.vectors import memory_type
from tapec.ir.core import BOOL, Block, DType, Function, Op, Value, walk
from tapec.ir.opdef import OPS

__all__ = ["KernelEmitter", "KernelSource", "compile_kernel", "make_program"]

#: Lines per LLVM function before straight-line code is split.
CHUNK = 1500
#: Lines per basic block of packed code.
BLOCK = 400
#: Longer kernels are compiled without LLVM's code generation optimisations: they cost about
#: 25 µs an instruction and gain 6-25%.
TIER_LIMIT = 2000
#: Stands in the text for the offset of the scratch space, known when all is emitted.
SCRATCH = "SCRATCH"
#: Rough nanoseconds per multiplication of one element, and per byte moved.
NS_PER_COST, NS_PER_BYTE = 0.12, 0.05


@dataclass(slots=True)
class KernelSource:
    """LLVM text of a kernel and what is needed to call it."""

    text: str
    workspace_bytes: int
    #: external functions, to be resolved at link time
    symbols: set[str]
    #: estimated run time
    work_ns: float
    #: lines of LLVM text
    instructions: int
    #: the code generation level that suits its length
    opt: int
    program: Program
    #: guards in order: number − 1 → op
    guards: list[Op] = field(default_factory=list)


class _Loop:
    __slots__ = ("end", "entry", "index", "label", "phis", "place", "start", "step")

    def __init__(self, label: str, index: str, start: int, end: int, step: int, entry: str):
        self.label, self.index = label, index
        self.start, self.end, self.step = start, end, step
        self.entry = entry
        self.place = 0
        self.phis: list[list[str]] = []  # name, type, initial, next


class Body:
    """A region as a function: what its callers must know, and its text."""

    __slots__ = ("instructions", "may_fail", "name", "parts", "work_ns", "workspace")

    def __init__(self, name: str) -> None:
        self.name = name
        self.parts: list[str] = []
        self.workspace = self.instructions = 0
        self.may_fail = False
        self.work_ns = 0.0


class KernelEmitter(Registers):
    """State while the text of one kernel is written."""

    def __init__(
        self,
        program: Program,
        layout: Layout,
        math: MathLibrary,
        name: str = "kernel",
        parent: KernelEmitter | None = None,
    ) -> None:
        super().__init__()
        self.program, self.layout, self.math, self.name = program, layout, math, name
        root: KernelEmitter = self if parent is None else parent.root
        self.root: KernelEmitter = root
        #: shared by a kernel and the bodies of its loops
        self.declares: set[str] = set() if root is self else root.declares
        self.globals: dict[str, str] = {} if root is self else root.globals
        self.symbols: set[str] = set() if root is self else root.symbols
        self.bodies: dict[Block, Body] = {} if root is self else root.bodies
        #: bytes after the frame for one called body at a time
        self.scratch_bytes: int = 0
        #: stacks of loops of unknown length, see ``control``
        self.stacks: int = 0
        #: loops that yield for another one as well, and the loops that another one ran
        self.merged: dict[Op, Merged] = {}
        self.kept: dict[Op, tuple[Op, Any]] = {}
        #: whether there are return values other than 0
        self.may_fail = False
        self.contract = contractions(program.fn)
        self.em: Emitter = Emitter(math, self.declares, self.contract)
        self.chunks: list[Chunk] = []
        self.n_labels = 0
        self.chunk_lines = CHUNK
        self.guard_numbers: dict[Op, int] = {} if root is self else root.guard_numbers
        #: operands of which both the sine and the cosine are taken
        self.joint: set[Value] = set()
        self.sincos: dict[Value, tuple[list[str], list[str]]] = {}
        self._loops: list[Any] = []
        self._block: str = "entry"
        self._new_chunk()

    # -- functions ------------------------------------------------------------------

    def _new_chunk(self) -> None:
        em = Emitter(self.math, self.declares, self.contract)
        em.n = self.em.n
        self.em = em
        self.chunks.append(Chunk(em))
        self.forget_function()
        self.sincos = {}
        self._block = "entry"
        self._block_at = 0

    def cut_if_long(self) -> None:
        """Go on in a new LLVM function if this one is long.  Only outside of loops."""
        if len(self.em.lines) > self.chunk_lines and not self._loops:
            self._new_chunk()

    def label(self) -> str:
        self.n_labels += 1
        return f"L{self.n_labels}"

    def start_block(self, label: str) -> None:
        self.em.label(label)
        self._block = label
        self._block_at = len(self.em.lines)

    def break_block(self) -> None:
        """Begin a new basic block if this one is long: instruction selection of vectors takes
        quadratic time in its length."""
        if len(self.em.lines) - self._block_at > BLOCK:
            label = self.label()
            self.em.line(f"br label %{label}")
            self.start_block(label)

    def alloca(self, ty: str) -> str:
        name = self.em.name()
        self.chunks[-1].prologue.append(f"  {name} = alloca {ty}")
        return name

    # -- loops ----------------------------------------------------------------------

    def open_loop(self, extent: int, start: int = 0) -> str:
        """Begin ``for i in range(start, start + extent)`` (``extent`` > 0); the index."""
        return self.open_vector_loop(start, start + extent, 1)

    def open_vector_loop(self, start: int, end: int, step: int) -> str:
        em = self.em
        label, index = self.label(), em.name()
        loop = _Loop(label, index, start, end, step, self._block)
        em.line(f"br label %{label}")
        em.label(label)
        loop.place = len(em.lines)
        self._loops.append(loop)
        self._block = label
        return index

    def phi(self, ty: str, initial: str) -> str:
        """A loop-carried value of the innermost open loop."""
        name = self.em.name()
        self._loops[-1].phis.append([name, ty, initial, ""])
        return name

    def set_phi(self, name: str, value: str) -> None:
        for phi in self._loops[-1].phis:
            if phi[0] == name:
                phi[3] = value

    def close_loop(self) -> None:
        em, loop = self.em, self._loops.pop()
        following = em.let(f"add i64 {loop.index}, {loop.step}")
        more = em.let(f"icmp ult i64 {following}, {loop.end}")
        done = self.label()
        em.line(f"br i1 {more}, label %{loop.label}, label %{done}")
        back = self._block
        head = [
            f"  {loop.index} = phi i64 [ {loop.start}, %{loop.entry} ], [ {following}, %{back} ]"
        ]
        for name, ty, initial, new in loop.phis:
            head.append(f"  {name} = phi {ty} [ {initial}, %{loop.entry} ], [ {new}, %{back} ]")
        em.lines[loop.place : loop.place] = head
        for outer in self._loops:
            assert outer.place <= loop.place
        self.start_block(done)

    # -- vectors --------------------------------------------------------------------

    def mask(self, w: int, lanes: int) -> str:
        bits = ", ".join("i1 true" if j < lanes else "i1 false" for j in range(w))
        return f"<{bits}>"

    def masked_load(self, mt: str, w: int, pointer: str, lanes: int, align: int) -> str:
        vt = f"<{w} x {mt}>"
        name = f"@llvm.masked.load.v{w}{_short(mt)}.p0"
        self.declares.add(f"declare {vt} {name}(ptr, i32 immarg, <{w} x i1>, {vt})")
        return self.em.let(
            f"call {vt} {name}(ptr {pointer}, i32 {align}, <{w} x i1> {self.mask(w, lanes)}, "
            f"{vt} zeroinitializer)"
        )

    def masked_store(
        self, mt: str, w: int, value: str, pointer: str, lanes: int, align: int
    ) -> None:
        vt = f"<{w} x {mt}>"
        name = f"@llvm.masked.store.v{w}{_short(mt)}.p0"
        self.declares.add(f"declare void {name}({vt}, ptr, i32 immarg, <{w} x i1>)")
        self.em.line(
            f"call void {name}({vt} {value}, ptr {pointer}, i32 {align}, "
            f"<{w} x i1> {self.mask(w, lanes)})"
        )

    def copy(self, target: str, source: str, nbytes: int) -> None:
        self.declares.add("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        self.em.line(
            f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {nbytes}, i1 false)"
        )

    # -- BLAS: Fortran passes everything by reference ---------------------------------

    def constant_global(self, name: str, text: str) -> str:
        self.globals[name] = text
        return f"@{name}"

    def blas_int(self, n: int) -> str:
        return self.constant_global(f"int.{n}", f"private unnamed_addr constant i32 {n}")

    def blas_char(self, c: str) -> str:
        return self.constant_global(f"char.{c}", f"private unnamed_addr constant i8 {ord(c)}")

    def blas_real(self, x: float, dtype: DType) -> str:
        return self.constant_global(
            f"real.{dtype.name}.{x:g}",
            f"private unnamed_addr constant {llvm_type(dtype)} {constant(x, dtype)}",
        )

    def call_blas(self, routine: str, args: list[str]) -> None:
        symbol = f"tapec.blas.{routine}"
        self.symbols.add(symbol)
        self.declares.add(f"declare void @{symbol}({', '.join(['ptr'] * len(args))})")
        self.em.line(f"call void @{symbol}({', '.join('ptr ' + a for a in args)})")

    # -- the whole ------------------------------------------------------------------

    def run(self) -> None:
        program = self.program
        taken: dict[Value, set[str]] = {}
        for op in walk(program.fn.block):
            if op.name == "guard":
                self.guard_numbers.setdefault(op, len(self.guard_numbers) + 1)
                self.may_fail = True
            elif op.name == "host_call":
                self.may_fail = True
            elif op.name in ("sin", "cos"):
                taken.setdefault(op.operands[0], set()).add(op.name)
        self.joint = {v for v, names in taken.items() if len(names) == 2}
        self.merged = {m.first: m for m in merged_loops(program.fn.ops, program.scalar)}
        for k in range(len(program.slots)):
            emit_slot(self, program.slots[k])
            if k < len(program.steps):
                step = program.steps[k]
                if isinstance(step, Nest):
                    emit_nest(self, step)
                else:
                    emit_opaque(self, step)
                self.cut_if_long()
        for k, v in self.layout.copies:
            target = f"%out.{k}"
            prologue = self.chunks[-1].prologue
            if f"out.{k}" not in self._pointers:
                prologue.append(f"  {target}.at = getelementptr ptr, ptr %out, i64 {k}")
                prologue.append(f"  {target} = load ptr, ptr {target}.at")
                self._pointers[f"out.{k}"] = target
            if v.type.nbytes:
                self.copy(target, self.pointer(v), v.type.nbytes)

    # -- bodies of loops and branches ---------------------------------------------------

    def body(self, block: Block) -> Body:
        """The function of a region, compiled at its first use."""
        found = self.bodies.get(block)
        if found is None:
            name = f"body{len(self.bodies)}"
            program = _body_program(Function(name, block.params, block.ops, block.results))
            self.bodies[block] = found = Body(name)
            inner = KernelEmitter(program, lay_out(program), self.math, name, self)
            inner.run()
            found.workspace = inner.workspace_bytes
            found.may_fail = inner.may_fail
            found.parts = inner.parts()
            found.instructions = inner.instructions
            found.work_ns = _work(program, self.bodies)
        return found

    @property
    def workspace_bytes(self) -> int:
        return self.scratch_base + self.scratch_bytes

    @property
    def scratch_base(self) -> int:
        return -(-(self.stack_base + 24 * self.stacks) // 64) * 64

    @property
    def stack_base(self) -> int:
        return -(-(self.layout.workspace + self.frame_bytes) // 8) * 8

    @property
    def instructions(self) -> int:
        return sum(len(c.em.lines) for c in self.chunks)

    def parts(self) -> list[str]:
        """The text of this function and its constants."""
        parts = [_constant_global(self.name, k, v) for k, v in enumerate(self.layout.constants)]
        signature = "(ptr noalias %in, ptr noalias %out, ptr noalias %ws)"
        several = len(self.chunks) > 1
        scratch, stacks = str(self.scratch_base), str(self.stack_base)
        whole = f"{self.name}.inner" if self.stacks else self.name
        for k, chunk in enumerate(self.chunks):
            name = f"@{self.name}.{k}" if several else f"@{whole}"
            parts.append(f"define internal i32 {name}{signature} {{\nentry:")
            parts.extend(chunk.prologue)
            if self.scratch_bytes or self.stacks:
                parts.extend(
                    line.replace(SCRATCH, scratch).replace(STACKS, stacks)
                    for line in chunk.em.lines
                )
            else:
                parts.extend(chunk.em.lines)
            parts.extend(chunk.frame_stores)
            parts.append("  ret i32 0\n}")
        if several:
            parts.append(f"define internal i32 @{whole}{signature} {{\nentry:")
            for k in range(len(self.chunks)):
                call = f"call i32 @{self.name}.{k}(ptr %in, ptr %out, ptr %ws)"
                parts.append(f"  %r{k} = {call}")
                if self.may_fail:
                    parts.append(f"  %ok{k} = icmp eq i32 %r{k}, 0")
                    parts.append(f"  br i1 %ok{k}, label %next{k}, label %fail{k}")
                    parts.append(f"fail{k}:\n  ret i32 %r{k}\nnext{k}:")
            parts.append("  ret i32 0\n}")
        if self.stacks:
            parts += self._freeing(whole, signature)
        return parts

    def _freeing(self, inner: str, signature: str) -> list[str]:
        """The function around ``inner`` that frees its stacks, however it ended."""
        self.symbols.add("free")
        self.declares.add("declare void @free(ptr)")
        before, after = [], []
        for k in range(self.stacks):
            at = self.stack_base + 24 * k
            before.append(f"  %s{k} = getelementptr i8, ptr %ws, i64 {at}")
            before.append(f"  %c{k} = getelementptr i8, ptr %s{k}, i64 8")
            before.append(f"  store ptr null, ptr %s{k}\n  store i64 0, ptr %c{k}")
            after.append(f"  %p{k} = load ptr, ptr %s{k}\n  call void @free(ptr %p{k})")
        return [
            f"define internal i32 @{self.name}{signature} {{\nentry:",
            *before,
            f"  %code = call i32 @{inner}(ptr %in, ptr %out, ptr %ws)",
            *after,
            "  ret i32 %code\n}",
        ]

    def text(self) -> str:
        own = self.parts()
        parts = [f"@{name} = {text}" for name, text in self.globals.items()]
        for body in self.bodies.values():
            parts += body.parts
        parts += own
        definitions = self.math.definitions()
        known = {line for line in definitions.splitlines() if line.startswith("declare")}
        parts.append(definitions)
        parts.extend(d for d in sorted(self.declares) if d not in known)
        return "\n".join(parts) + "\n"


def _short(mt: str) -> str:
    return {"double": "f64", "float": "f32"}.get(mt, mt)


def _constant_global(name: str, k: int, v: Value) -> str:
    array = v.op.attrs["value"].array  # type: ignore[union-attr]
    dtype = v.type.dtype
    mt = memory_type(dtype)
    if dtype is BOOL:
        items = ", ".join(f"i8 {int(x)}" for x in array.ravel())
    else:
        items = ", ".join(f"{mt} {constant(x, dtype)}" for x in array.ravel().tolist())
    body = f"[{items}]" if array.size else "zeroinitializer"
    head = f"@{name}.const.{k} = private unnamed_addr constant"
    return f"{head} [{array.size} x {mt}] {body}, align 64"


def make_program(fn: Function) -> Program:
    """The loop-level program of a function (what ``dump("loops")`` shows)."""
    return planning.plan(lanes_last(lower(in_row_blocks(gather_early(fn)))))


def _body_program(fn: Function) -> Program:
    """The same for a region: if it is a block of rows, it is not cut again."""
    return planning.plan(lower(fn))


def compile_kernel(fn: Function) -> KernelSource:
    """LLVM text for ``fn``; see the module docstring for its calling convention."""
    program = make_program(fn)
    layout = lay_out(program)
    math = MathLibrary(host())
    k = KernelEmitter(program, layout, math)
    k.run()
    text = k.text()
    instructions = k.instructions + sum(b.instructions for b in k.bodies.values())
    work = _work(program, k.bodies)
    return KernelSource(
        text=text,
        workspace_bytes=k.workspace_bytes,
        symbols=k.symbols | math.symbols,
        work_ns=work,
        instructions=instructions,
        opt=2 if instructions <= TIER_LIMIT else 0,
        program=program,
        guards=list(k.guard_numbers),
    )


def _work(program: Program, bodies: dict[Block, Body]) -> float:
    """A rough estimate of the kernel's run time in nanoseconds."""
    total = 0.5 * sum(len(s) for s in program.slots)
    for nest in planning.all_nests(program):
        for segment, nodes, _ in nest.parts:
            n = 1
            for lo, hi in segment:
                n *= hi - lo
            total += n * sum(map(_node_ns, nodes))
    for step in program.steps:
        if isinstance(step, Opaque) and step.op.regions:
            # an unknown number of iterations is taken to be many
            once = [bodies[r].work_ns if r in bodies else 0.5 * len(r.ops) for r in step.op.regions]
            trips: int = {"cond": 1, "while": 1000}.get(step.op.name, 0)
            total += sum(once) * (trips or step.op.attrs["length"])
        elif not isinstance(step, Nest):
            sizes = [v.type.size for v in (*step.op.operands, *step.op.results)]
            total += 0.5 * sum(sizes)
            if step.op.name == "dot":
                g = step.op.attrs["gemm"]
                total += 0.05 * g.k * step.op.results[0].type.size
            elif "lapack" in step.op.attrs:
                total += 0.05 * work_of(step.op)
            elif step.op.name == "host_call":
                total += 5000.0
            elif step.op.name in ("fft", "rfft", "irfft"):
                total += nanoseconds(step.op)
    return total


def _node_ns(node: Node) -> float:
    if node.kind == "op" and node.op is not None:
        return NS_PER_COST * OPS[node.op.name].cost
    return NS_PER_BYTE * node.dtype.itemsize if node.kind in ("load", "gather") else 0.0
