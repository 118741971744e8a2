"""Where stored values live: parameters, results, constants, and one workspace by liveness.

Time runs in half steps: slot ``k`` at ``2k``, step ``k`` at ``2k + 1``.  A workspace value
occupies its bytes from the time it is first written to its last read; disjoint lifetimes
share bytes (first fit, 64-byte aligned).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tapec.codegen.program import Nest, Opaque, Program
from tapec.ir.core import Value

__all__ = ["Layout", "lay_out"]

ALIGN = 64


@dataclass(slots=True)
class Layout:
    """``place[v]``: ('in', k), ('out', k), ('ws', byte offset) or ('const', k)."""

    place: dict[Value, tuple[str, int]] = field(default_factory=dict)
    constants: list[Value] = field(default_factory=list)
    #: (result index, value) to copy at the end, for results that do not own their memory
    copies: list[tuple[int, Value]] = field(default_factory=list)
    workspace: int = 0


def _nest_reads(nest: Nest) -> set[Value]:
    out: set[Value] = set()
    for _, nodes, _ in nest.parts:
        for node in nodes:
            if node.kind == "load":
                out.add(node.value)
            elif node.kind == "gather" and node.op is not None:
                out.add(node.op.operands[0])
    return out


def lay_out(program: Program) -> Layout:
    """Assign memory to every stored value of a planned program."""
    layout = Layout()
    place, root = layout.place, program.root
    for p, k in program.params.items():
        place[p] = ("in", k)
    for op in program.fn.ops:
        if op.name == "constant" and program.kind[op.results[0]] == "mem":
            value = op.attrs["value"]
            if hasattr(value, "array"):
                place[op.results[0]] = ("const", len(layout.constants))
                layout.constants.append(op.results[0])
    for k, r in enumerate(program.fn.results):
        owner = root(r)
        if owner in place:
            layout.copies.append((k, owner))
        else:
            place[owner] = ("out", k)

    first: dict[Value, int] = {}
    last: dict[Value, int] = {}

    def write(v: Value, time: int) -> None:
        v = root(v)
        if v not in place:
            first.setdefault(v, time)
            last[v] = max(last.get(v, time), time)

    def read(v: Value, time: int) -> None:
        v = root(v)
        if v in first:
            last[v] = max(last[v], time)

    stored = program.spilled
    for k, slot in enumerate(program.slots):
        for op in slot:
            for r in op.results:
                if r in stored:
                    write(r, 2 * k)
            for v in op.operands:
                read(v, 2 * k)
        if k == len(program.steps):
            break
        step, time = program.steps[k], 2 * k + 1
        nests = [step] if isinstance(step, Nest) else step.nests
        for nest in nests:
            for s in nest.stores:
                write(s.target, time)
            for red in nest.reduces:
                r = red.results[0]
                if program.kind[r] == "mem" or r in stored:
                    write(r, time)
            for v in _nest_reads(nest):
                read(v, time)
        if isinstance(step, Opaque):
            for r in step.op.results:
                write(r, time)
            for v in step.op.operands:
                read(v, time)
    end = 2 * len(program.steps) + 2
    for _, v in layout.copies:
        read(v, end)
    _first_fit(layout, first, last)
    return layout


def _first_fit(layout: Layout, first: dict[Value, int], last: dict[Value, int]) -> None:
    taken: list[tuple[int, int, int]] = []  # (offset, end, last time)
    for v in sorted(first, key=lambda v: (first[v], -v.type.nbytes)):
        size = -(-max(v.type.nbytes, 1) // ALIGN) * ALIGN
        taken = [t for t in taken if t[2] >= first[v]]
        taken.sort()
        offset = 0
        for start, stop, _ in taken:
            if start - offset >= size:
                break
            offset = max(offset, stop)
        taken.append((offset, offset + size, last[v]))
        layout.place[v] = ("ws", offset)
        layout.workspace = max(layout.workspace, offset + size)
