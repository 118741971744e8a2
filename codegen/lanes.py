"""Small matrices, many of them: the axis that fills vector lanes goes last in memory.

    %p = mul %a, %b : f64[4,26,4,4]          %p = mul %a', %b' : f64[4,4,4,26]
    %s = reduce_sum %p {axes=(3)}       ->   %s' = reduce_sum %p' {axes=(2)}
      : f64[4,26,4]                            : f64[4,4,26]

The tangents of 4 by 4 matrices in 26 directions come as ``[26,4,4]``.  The only axis that is long
enough for vectors has stride 16 then, and each access is a gather or a scatter.  ``lanes_last``
turns values that are made here and read here, by sums over a last short axis, so that this axis has
stride 1.  What else reads or makes such a value sees it through a transpose, which is index
arithmetic; parameters and results keep their layout.  Values are the same, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence

from tapec.codegen.plan import SMALL
from tapec.ir.builder import Builder
from tapec.ir.control import ISOLATED
from tapec.ir.core import Function, Op, Value
from tapec.ir.dce import dce, rebuilt
from tapec.ir.opdef import OPS
from tapec.ir.rewrite import splat

__all__ = ["lanes_last"]

#: An axis of so many fills lanes.
LANES = 8
#: Longer axes would set the elements of one matrix far apart, for the cache as for the page table.
MOST = 512

_REDUCTIONS = frozenset(("reduce_sum", "reduce_prod", "reduce_max", "reduce_min"))


def lanes_last(fn: Function) -> Function:
    """See the module docstring."""
    turned = _turned(fn)
    return dce(_Turning(fn, turned).run()) if turned else fn


def _lane(v: Value) -> int | None:
    """The axis for vector lanes, if the last one is too short for that: the longest.

    The same one for all transposes of a value.
    """
    shape = v.type.shape
    if len(shape) < 2 or shape[-1] >= LANES or v.type.size <= SMALL:
        return None
    axis = max(range(len(shape)), key=lambda a: (shape[a], a))
    return axis if LANES <= shape[axis] <= MOST else None


def _turned(fn: Function) -> set[Value]:
    """Values that sums over a last axis read, directly or through elementwise code and views."""
    if not any(op.name in _REDUCTIONS and _lane(op.operands[0]) is not None for op in fn.ops):
        return set()
    if any(op.regions and op.name not in ISOLATED for op in fn.ops):
        return set()
    found: set[Value] = set()
    refused = set(fn.results)
    read: set[Value] = set()
    for op in reversed(fn.ops):
        r = op.results[0] if len(op.results) == 1 else None
        if r is not None and r in read and r not in refused and _lane(r) is not None:
            if _sources(op) is not None:
                found.add(r)
        for k, v in enumerate(op.operands):
            lane = _lane(v)
            if lane is None:
                continue
            good = False
            if op.name in _REDUCTIONS:
                axes = op.attrs["axes"]
                good = v.type.ndim - 1 in axes and lane not in axes
            elif r in found:
                sources = _sources(op)
                good = sources is not None and sources[k] == lane
            (read if good else refused).add(v)
    # a chain of views and elementwise code that no sum feeds gains nothing
    useful: set[Value] = set()
    for op in fn.ops:
        if len(op.results) == 1 and op.results[0] in found:
            if op.name in _REDUCTIONS or op.name == "place" or useful.intersection(op.operands):
                useful.add(op.results[0])
    return found if useful else set()


def _sources(op: Op) -> list[int | None] | None:
    """For each operand its axis that becomes the lane axis of the result (None: it has none);
    None if the operation cannot be turned."""
    r = op.results[0]
    lane = _lane(r)
    assert lane is not None
    name, attrs = op.name, op.attrs
    if OPS[name].elementwise:
        return [lane] * len(op.operands)
    x = op.operands[0] if op.operands else r
    if name in _REDUCTIONS:
        kept = [a for a in range(x.type.ndim) if a not in attrs["axes"]]
        return [kept[lane]] if x.type.ndim - 1 in attrs["axes"] else None
    if name == "transpose":
        return [attrs["perm"][lane]]
    if name == "broadcast":
        return [attrs["dims"].index(lane) if lane in attrs["dims"] else None]
    if name == "reshape":
        longer = [a for a, n in enumerate(x.type.shape) if n != 1]
        shape = r.type.shape
        if [x.type.shape[a] for a in longer] != [n for n in shape if n != 1]:
            return None
        return [longer[sum(n != 1 for n in shape[:lane])]]
    n = r.type.shape[lane]
    if name == "slice":
        whole = x.type.shape[lane] == n and attrs["step"][lane] == 1
        return [lane] if whole else None
    if name == "place":
        whole = all(
            v.type.shape[lane] == n and step[lane] == 1
            for v, (_, step) in zip(op.operands, attrs["at"])
        )
        return [lane] * len(op.operands) if whole else None
    return None


def _last(items: Sequence[int], axis: int) -> tuple[int, ...]:
    """``items`` with the one at ``axis`` at the end."""
    return (*items[:axis], *items[axis + 1 :], items[axis])


class _Turning:
    def __init__(self, fn: Function, turned: set[Value]) -> None:
        self.fn, self.turned = fn, turned
        self.b = Builder()
        self.b.params.extend(fn.params)
        #: values as they were, and turned
        self.plain: dict[Value, Value] = {p: p for p in fn.params}
        self.last: dict[tuple[Value, int], Value] = {}

    def run(self) -> Function:
        for op in self.fn.ops:
            self.b.loc = op.loc
            if len(op.results) == 1 and op.results[0] in self.turned:
                r = op.results[0]
                lane = _lane(r)
                assert lane is not None
                self.last[r, lane] = new = self._turn(op, lane)
                if new.hint is None:
                    new.hint = r.hint
                continue
            operands = tuple([self._plain(v) for v in op.operands])
            if operands == op.operands:
                self.b.ops.append(op)
                self.plain.update((r, r) for r in op.results)
            else:
                new_op = rebuilt(op, operands, op.regions)
                self.b.ops.append(new_op)
                self.plain.update(zip(op.results, new_op.results))
        return self.b.function(self.fn.name, [self._plain(r) for r in self.fn.results])

    def _plain(self, v: Value) -> Value:
        found = self.plain.get(v)
        if found is None:
            lane = _lane(v)
            assert lane is not None
            n = v.type.ndim
            back = (*range(lane), n - 1, *range(lane, n - 1))
            found = self.plain[v] = self.b.transpose(self.last[v, lane], back)
        return found

    def _with_last(self, v: Value, axis: int | None) -> Value:
        """``v`` with ``axis`` as the last one."""
        n = v.type.ndim
        if axis is None or axis == n - 1:
            return self._plain(v)
        found = self.last.get((v, axis))
        if found is None:
            content = splat(v)
            if content is not None:
                shape = _last(v.type.shape, axis)
                found = self.b.constant(content, v.type.with_shape(shape))
            else:
                found = self.b.transpose(self._plain(v), _last(range(n), axis))
            self.last[v, axis] = found
        return found

    def _turn(self, op: Op, lane: int) -> Value:
        b, attrs, name = self.b, op.attrs, op.name
        sources = _sources(op)
        assert sources is not None
        operands = tuple([self._with_last(v, a) for v, a in zip(op.operands, sources)])
        shape = _last(op.results[0].type.shape, lane)
        if OPS[name].elementwise:
            return b.emit(name, operands, attrs)
        (x, *_), axis = operands, sources[0]
        if name == "broadcast":
            dims = [d - (d > lane) for d in attrs["dims"] if d != lane]
            return b.broadcast(x, shape, dims if axis is None else [*dims, len(shape) - 1])
        assert axis is not None
        if name in _REDUCTIONS:
            return b.emit(name, (x,), {"axes": tuple([a - (a > axis) for a in attrs["axes"]])})
        if name == "transpose":
            rest = [p - (p > axis) for p in attrs["perm"] if p != axis]
            return b.transpose(x, [*rest, len(shape) - 1])
        if name == "reshape":
            return b.reshape(x, shape)
        if name == "slice":
            start, step = _last(attrs["start"], lane), _last(attrs["step"], lane)
            return b.slice(x, start, shape, step)
        assert name == "place"
        at = [(_last(start, lane), _last(step, lane)) for start, step in attrs["at"]]
        return b.place(operands, shape, at)
