"""Elements that are picked at the end are picked at the start: ``f(x)[i]`` becomes ``f(x[i])``.

``gather_early`` finds values of which all uses, through operations that are parallel along an axis,
end in gathers with the same index array along that axis, and computes only the elements that are
picked.  It does so where there are fewer of them than elements.

    %y = exp %x          : f64[3,544]              %g = gather %x, %i (axis 1) : f64[100,3]
    %p = gather %y, %i   : f64[100,3]      ->      %p = exp %g                 : f64[100,3]

All that moves moves down, to where the first of the gathers stood: behind the guards that keep
its indices in range.
"""

from __future__ import annotations

from collections.abc import Iterator

from tapec.codegen.row_blocks import operand_axes, with_axis
from tapec.ir.builder import Builder
from tapec.ir.core import Function, Op, Value
from tapec.ir.dce import dce, has_effect

__all__ = ["gather_early"]

#: An index array and the axis of a value along which it picks.
Pick = tuple[Value, int]
#: Picking this part of the elements pays: a gather costs as much as several vector loads.
FEWER = 0.25


def gather_early(fn: Function) -> Function:
    """See the module docstring."""
    if not any(_pick(op) for op in fn.ops):
        return fn
    picks = _picks(fn)
    moved = {op for op in fn.ops if _moves(op, picks)}
    if not moved:
        return fn
    return dce(_rewritten(fn, picks, moved))


def _pick(op: Op) -> Pick | None:
    """What a gather along one axis by a vector picks."""
    if op.name != "gather" or len(op.operands) != 2:
        return None
    x, i = op.operands
    (axis,) = op.attrs["axes"]
    if i.type.ndim != 1 or i.type.size >= FEWER * x.type.shape[axis]:
        return None
    return i, axis


def _picks(fn: Function) -> dict[Value, Pick]:
    """The values of which only some elements are needed, and which."""
    whole: set[Value] = set(fn.results)
    picks: dict[Value, Pick] = {}
    for op in reversed(fn.ops):
        for v, wanted in _demands(op, picks, whole):
            if v in whole:
                continue
            if wanted is None or picks.setdefault(v, wanted) != wanted:
                whole.add(v)
                picks.pop(v, None)
    return picks


def _demands(
    op: Op, picks: dict[Value, Pick], whole: set[Value]
) -> Iterator[tuple[Value, Pick | None]]:
    """The operands of an operation, and what it needs of each."""
    found = _pick(op)
    if found is not None:
        yield op.operands[0], found
        yield op.operands[1], None
        return
    axes = _axes(op, picks)
    if axes is None:
        whole.update(op.results)
        for r in op.results:
            picks.pop(r, None)
        yield from ((v, None) for v in op.operands)
        return
    index, _ = picks[op.results[0]]
    for v, axis in zip(op.operands, axes):
        yield v, None if axis is None else (index, axis)


def _axes(op: Op, picks: dict[Value, Pick]) -> list[int | None] | None:
    """The axis along which each operand is picked if the result is, and if that can be."""
    if len(op.results) != 1 or op.regions or has_effect(op) or op.results[0] not in picks:
        return None
    return operand_axes(op, picks[op.results[0]][1])


def _moves(op: Op, picks: dict[Value, Pick]) -> bool:
    return bool(op.operands) and _axes(op, picks) is not None


def _rewritten(fn: Function, picks: dict[Value, Pick], moved: set[Op]) -> Function:
    b = Builder()
    b.params.extend(fn.params)
    env: dict[Value, Value] = {p: p for p in fn.params}
    waiting: dict[Value, list[Op]] = {}  # by index array
    small: dict[Value, Value] = {}  # what is left of a value of which elements are picked
    gathered: dict[tuple[Value, Pick], Value] = {}

    def picked(v: Value, index: Value, axis: int) -> Value:
        """The picked elements of ``v``, along ``axis`` as before."""
        if v in small:
            return small[v]
        found = gathered.get((v, (index, axis)))
        if found is None:
            found = b.gather(env[v], [env[index]], [axis])
            order = [j + (j < axis) if j != axis else 0 for j in range(v.type.ndim)]
            found = gathered[v, (index, axis)] = b.transpose(found, order)
        return found

    def compute(op: Op) -> None:
        r = op.results[0]
        index, axis = picks[r]
        n = index.type.size
        axes = operand_axes(op, axis) or []
        b.loc = op.loc
        operands = tuple(
            env[v] if a is None else picked(v, index, a) for v, a in zip(op.operands, axes)
        )
        small[r] = b.emit(op.name, operands, with_axis(op, axis, n), r.hint)

    for op in fn.ops:
        if op in moved:
            waiting.setdefault(picks[op.results[0]][0], []).append(op)
            continue
        found = _pick(op)
        if found is not None and op.operands[0].op in moved:
            index, axis = found
            for late in waiting.pop(index, ()):
                compute(late)
            b.loc = op.loc
            x = picked(op.operands[0], index, axis)
            rest = [j for j in range(x.type.ndim) if j != axis]
            env[op.results[0]] = b.transpose(x, (axis, *rest))
            continue
        new = b.append(op, tuple([env[v] for v in op.operands]))
        env.update(zip(op.results, new.results))
    return b.function(fn.name, [env[r] for r in fn.results])
