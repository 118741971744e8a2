"""What a kernel does, counted without running it: ``count(fn)``.

Operations, memory traffic, loop nests, library calls, calls left in inner loops, workspace, and
what is stored or computed again.  ``fn.report`` shows these numbers, and tests pin them down per
class of kernel, so that a regression fails without timing anything.

Counting rules: an operation per element of an arithmetic result (a fused multiply-add is two);
its *cost* is in multiplications, as ``OpDef.cost``; every array that a nest or a library call
touches counts once per nest or call, with the elements that are touched.

>>> from tapec.ir.parser import parse
>>> text = "func @f(%x: f64[100]) -> (f64[]) {\\n %y = mul %x, %x : f64[100]\\n"
>>> text += " %s = reduce_sum %y {axes=(0)} : f64[]\\n return %s }"
>>> found = count(parse(text))
>>> len(found.nests), found.operations, found.bytes_read
(1, 200, 800)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tapec.codegen.body import Node
from tapec.codegen.memory import lay_out
from tapec.codegen.plan import all_nests
from tapec.codegen.program import Nest, Opaque, Program
from tapec.ir.core import Block, Function, Loc, Op, Value
from tapec.ir.opdef import OPS

__all__ = ["Counters", "NestCount", "count", "count_program", "loop_calls"]


@dataclass(slots=True)
class NestCount:
    """One loop nest."""

    space: tuple[int, ...]
    parts: int
    operations: int = 0
    cost: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    #: arrays that are read, written; reductions
    loads: int = 0
    stores: int = 0
    reductions: int = 0
    #: lines of the user's source that it comes from
    lines: list[Loc] = field(default_factory=list)


@dataclass(slots=True)
class Counters:
    """The whole kernel."""

    nests: list[NestCount] = field(default_factory=list)
    #: names of operations that are one call of a library, or other code on whole arrays
    library: list[str] = field(default_factory=list)
    #: operations outside of nests, on values in registers
    scalars: int = 0
    operations: int = 0
    cost: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    #: parameters and results: what any implementation must read and write once
    bytes_needed: int = 0
    workspace_bytes: int = 0
    #: values in the workspace: name, bytes
    stored: list[tuple[str, int]] = field(default_factory=list)
    #: operations that more than one nest computes, and how many elements that are too many
    recomputed: list[str] = field(default_factory=list)
    recomputed_elements: int = 0
    guards: int = 0
    #: parameter name → nests and library calls that read it
    sweeps: dict[str, int] = field(default_factory=dict)

    @property
    def bytes_moved(self) -> int:
        return self.bytes_read + self.bytes_written

    @property
    def passes(self) -> float:
        """Bytes moved, in units of what must be moved."""
        return self.bytes_moved / self.bytes_needed if self.bytes_needed else 0.0


def count(fn: Function) -> Counters:
    """Plan ``fn`` and count."""
    from tapec.codegen.kernel import make_program

    return count_program(make_program(fn))


def count_program(program: Program) -> Counters:
    fn = program.fn
    total = Counters()
    layout = lay_out(program)
    total.workspace_bytes = layout.workspace
    total.guards = sum(op.name == "guard" for op in fn.ops)
    total.bytes_needed = sum(v.type.nbytes for v in (*fn.params, *fn.results))
    names = {p: p.hint or f"argument {k}" for p, k in program.params.items()}
    total.sweeps = dict.fromkeys(names.values(), 0)
    for v, (place, _) in layout.place.items():
        if place == "ws":
            total.stored.append((v.hint or "?", v.type.nbytes))
    for slot in program.slots:
        for op in slot:
            operations, cost = _op_work(op)
            total.scalars += sum(r.type.size for r in op.results) if operations else 0
            total.operations += operations
            total.cost += cost
    computed: dict[Value, int] = {}
    for nest in all_nests(program):
        found, read, values = _nest(program, nest)
        total.nests.append(found)
        _add(total, found)
        for v in read & names.keys():
            total.sweeps[names[v]] += 1
        for v, elements in values.items():
            if v in computed:
                total.recomputed.append(v.op.name if v.op is not None else "?")
                total.recomputed_elements += elements
            computed[v] = elements
    for step in program.steps:
        if isinstance(step, Opaque):
            op = step.op
            if op.name != "place":
                total.library.append(op.name)
                operations, cost = _op_work(op)
                total.operations += operations
                total.cost += cost
                total.bytes_read += sum(v.type.nbytes for v in op.operands)
                total.bytes_written += sum(v.type.nbytes for v in op.results)
            for v in {program.root(v) for v in op.operands} & names.keys():
                total.sweeps[names[v]] += 1
    return total


def _add(total: Counters, nest: NestCount) -> None:
    total.operations += nest.operations
    total.cost += nest.cost
    total.bytes_read += nest.bytes_read
    total.bytes_written += nest.bytes_written


def _nest(program: Program, nest: Nest) -> tuple[NestCount, set[Value], dict[Value, int]]:
    """The count of a nest, the values it reads, and how often it computes which."""
    found = NestCount(nest.space, len(nest.parts), reductions=len(nest.reduces))
    touched: dict[Value, int] = {}
    written: dict[Value, int] = {}
    computed: dict[Value, int] = {}
    lines: dict[Loc, None] = {}
    for segment, nodes, roots in nest.parts:
        extents = [hi - lo for lo, hi in segment]
        for node in nodes:
            n = _elements(extents, node)
            if node.kind == "op" and node.op is not None:
                computed[node.value] = computed.get(node.value, 0) + n
                if node.op.loc is not None:
                    lines[node.op.loc] = None
                if _counts(node.op):
                    found.operations += n
                    found.cost += n * OPS[node.op.name].cost
            elif node.kind == "load":
                root = program.root(node.value)
                touched[root] = touched.get(root, 0) + n
            elif node.kind == "gather" and node.op is not None:
                root = program.root(node.op.operands[0])
                touched[root] = touched.get(root, 0) + n
        iterations = 1
        for n in extents:
            iterations *= n
        for s, root_node in zip(nest.stores, roots):
            if root_node is not None:
                written[s.target] = written.get(s.target, 0) + iterations
        for r, root_node in zip(nest.reduces, roots[len(nest.stores) :]):
            if root_node is not None:
                found.operations += iterations
                found.cost += iterations
                if r.loc is not None:
                    lines[r.loc] = None
    for r in nest.reduces:
        if program.kind[r.results[0]] == "mem":
            written[r.results[0]] = r.results[0].type.size
    found.loads, found.stores = len(touched), len(written)
    found.bytes_read = _bytes(touched)
    found.bytes_written = _bytes(written)
    found.lines = list(lines)
    return found, set(touched), computed


def _elements(extents: Sequence[int], node: Node) -> int:
    """How many times a node is computed: it is hoisted out of axes it does not depend on."""
    n = 1
    for axis, extent in enumerate(extents):
        if node.axes >> axis & 1:
            n *= extent
    return n


def _bytes(touched: dict[Value, int]) -> int:
    return sum(min(n, v.type.size) * v.type.dtype.itemsize for v, n in touched.items())


#: Elementwise, but no arithmetic.
_FREE = frozenset({"select", "convert", "copysign"})


def _counts(op: Op) -> bool:
    return OPS[op.name].elementwise and op.name not in _FREE


def _op_work(op: Op) -> tuple[int, int]:
    """Operations and cost of an operation on whole values."""
    name = op.name
    if op.regions:
        trips = op.attrs.get("length", 1)
        regions = [_block_work(r) for r in op.regions]
        pick = max if name == "cond" else sum
        return trips * pick([a for a, _ in regions]), trips * pick([c for _, c in regions])
    if not op.results:
        return 0, 0
    size = op.results[0].type.size
    if name == "dot":
        x = op.operands[0].type
        inner = 1
        for axis in op.attrs["contract"][0]:
            inner *= x.shape[axis]
        return 2 * size * inner, 2 * size * inner
    if OPS[name].elementwise:
        return (size, size * OPS[name].cost) if _counts(op) else (0, 0)
    if name.startswith(("reduce_", "cum", "arg")):
        n = op.operands[0].type.size
        return n, n
    if name == "scatter_add":
        n = op.operands[1].type.size
        return n, n
    return 0, 0


def _block_work(block: Block) -> tuple[int, int]:
    operations = cost = 0
    for op in block.ops:
        o, c = _op_work(op)
        operations += o
        cost += c
    return operations, cost


# -- calls in loops ---------------------------------------------------------------------

_LABEL = re.compile(r"^([\w.$-]+):")
_TARGET = re.compile(r"label %([\w.$-]+)")
_CALLEE = re.compile(r"\bcall\b[^@%]*@([\w.$-]+)\(")


def loop_calls(text: str) -> list[str]:
    """The functions called inside loops, in LLVM text after inlining; LLVM's own intrinsics,
    which are instructions, are not counted.

    >>> loop_calls("define void @f() {\\nL:\\n call void @g()\\n br i1 %c, label %L, label %E\\n}")
    ['g']
    """
    out: list[str] = []
    for body in _functions(text):
        place = {m[1]: k for k, line in enumerate(body) if (m := _LABEL.match(line))}
        inside: set[int] = set()
        for k, line in enumerate(body):
            if line.lstrip().startswith("br "):
                for target in _TARGET.findall(line):
                    if place.get(target, k + 1) <= k:
                        inside.update(range(place[target], k))
        for k in sorted(inside):
            found = _CALLEE.search(body[k])
            if found and not found[1].startswith("llvm."):
                out.append(found[1])
    return out


def _functions(text: str) -> Iterator[list[str]]:
    body: list[str] = []
    for line in text.splitlines():
        if line.startswith("define "):
            body = []
        elif line.startswith("}"):
            yield body
        else:
            body.append(line)
