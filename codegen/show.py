"""A planned program as text: what ``dump("loops")`` prints.

One ``nest`` line per loop nest, with its iteration space; below it what one iteration loads,
computes, stores and reduces.  A nest that is cut into parts shows each part's range and the
body of the largest.  Straight-line code stands between the steps.
"""

from __future__ import annotations

from collections.abc import Iterator

from tapec.codegen.body import IndexMap, Node
from tapec.codegen.memory import Layout
from tapec.codegen.program import Nest, Opaque, Program
from tapec.ir.core import Op, Value

__all__ = ["format_program"]

_INDEX = "ijklmnopqrstuvw"


class _Names:
    def __init__(self, program: Program) -> None:
        self._names: dict[Value, str] = {}
        used: set[str] = set()
        for p in program.fn.params:
            self._add(p, used)
        for op in program.fn.ops:
            for r in op.results:
                self._add(r, used)

    def _add(self, v: Value, used: set[str]) -> None:
        name = v.hint or str(len(self._names))
        while name in used:
            name += "_"
        used.add(name)
        self._names[v] = "%" + name

    def __getitem__(self, v: Value) -> str:
        return self._names[v]


def format_program(program: Program, layout: Layout) -> str:
    names = _Names(program)
    params = ", ".join(f"{names[p]}: {p.type}" for p in program.fn.params)
    lines = [f"program @{program.fn.name}({params})  workspace {layout.workspace} bytes"]
    for k, slot in enumerate(program.slots):
        lines.extend(_slot(slot, names))
        if k < len(program.steps):
            step = program.steps[k]
            if isinstance(step, Nest):
                lines.extend(_nest(step, names, layout, program))
            else:
                lines.extend(_opaque(step, names, layout, program))
    results = ", ".join(names[r] for r in program.fn.results)
    lines.append(f"return {results}")
    return "\n".join(lines) + "\n"


def _where(v: Value, layout: Layout, program: Program) -> str:
    place, k = layout.place.get(program.root(v), ("reg", 0))
    return f"{place}[{k}]"


def _comment(op: Op | None) -> str:
    return f"    # {op.loc}" if op is not None and op.loc is not None else ""


def _slot(slot: list[Op], names: _Names) -> Iterator[str]:
    shown = [op for op in slot if op.name != "constant"]
    if not shown:
        return
    yield f"scalars {len(shown)} operations"
    for op in shown:
        args = ", ".join(names[v] for v in op.operands)
        result = f"{names[op.results[0]]} = " if op.results else ""
        yield f"  {result}{op.name} {args}{_comment(op)}"


def _element(v: Value, m: IndexMap, names: _Names) -> str:
    parts = []
    for axis, coef, off in m:
        if axis < 0:
            parts.append(str(off))
            continue
        text = _INDEX[axis] if coef == 1 else f"{coef}*{_INDEX[axis]}"
        if off:
            text += f"{off:+d}"
        parts.append(text)
    return f"{names[v]}[{', '.join(parts)}]"


def _nest(nest: Nest, names: _Names, layout: Layout, program: Program) -> Iterator[str]:
    space = ",".join(map(str, nest.space))
    yield f"nest [{space}]" + (f" in {len(nest.parts)} parts" if len(nest.parts) > 1 else "")
    if not nest.parts:
        return

    def size(segment: tuple[tuple[int, int], ...]) -> int:
        n = 1
        for lo, hi in segment:
            n *= hi - lo
        return n

    largest = max(nest.parts, key=lambda part: size(part[0]))
    for segment, _, _ in nest.parts:
        if len(nest.parts) > 1:
            ranges = ", ".join(f"{_INDEX[a]} in {lo}:{hi}" for a, (lo, hi) in enumerate(segment))
            yield f"  part {ranges}" + ("  (shown)" if segment is largest[0] else "")
    _, nodes, roots = largest
    text: dict[Node, str] = {}
    for n, node in enumerate(nodes):
        args = ", ".join(text[a] for a in node.args)
        if node.kind == "const":
            text[node] = repr(node.text)
            continue
        if node.kind == "reg":
            text[node] = f"{names[node.value]}.{node.text}"
            continue
        text[node] = f"${n}"
        if node.kind == "load":
            where = _where(node.value, layout, program)
            yield f"  ${n} = load {_element(node.value, node.map, names)}    {where}"
        elif node.kind == "iota":
            yield f"  ${n} = index {_element(node.value, node.map, names)}"
        else:
            op = node.op.name if node.op is not None else node.kind
            if node.kind == "gather" and node.op is not None:
                args = f"{names[node.op.operands[0]]} at {args}"
            yield f"  ${n} = {op} {args}{_comment(node.op)}"
    for s, root in zip(nest.stores, roots):
        if root is not None:
            verb = "add to" if s.accumulate else "store"
            where = _where(s.target, layout, program)
            yield f"  {verb} {names[s.target]} <- {text[root]}    {where}"
    for r, root in zip(nest.reduces, roots[len(nest.stores) :]):
        if root is not None:
            axes = ",".join(_INDEX[a] for a in r.attrs["axes"])
            yield f"  {r.name} over {axes}: {names[r.results[0]]} <- {text[root]}{_comment(r)}"


def _opaque(step: Opaque, names: _Names, layout: Layout, program: Program) -> Iterator[str]:
    op = step.op
    args = ", ".join(names[v] for v in op.operands[:8]) + (", …" if len(op.operands) > 8 else "")
    kind = {"dot": "call", "host_call": "host"}.get(op.name, "array")
    if "lapack" in op.attrs or op.name in ("fft", "rfft", "irfft"):
        kind = "call"
    where = _where(op.results[0], layout, program)
    if op.name == "host_call":
        args = f"{op.attrs['token']}({args})"
    yield f"{kind} {names[op.results[0]]} = {op.name} {args}    {where}{_comment(op)}"
    for nest in step.nests:
        for line in _nest(nest, names, layout, program):
            yield "  " + line
