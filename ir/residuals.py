"""What a loop's forward pass stores for its backward pass: ``split(pull, ...)``.

``pull`` computes a body's results and, from seeds, its cotangents.  It is cut in two:
``forward`` gives the results and *residuals*, ``backward`` gives the cotangents from the
residuals, from parameters that are there again anyway, and from the seeds.

The residuals are a minimum cut: storing a value costs its bytes, computing it again from
other residuals is free if the operations are cheap, and not done if they are dear
(transcendental functions, products of matrices, loops).  Of equally small cuts the one
that recomputes least is taken.  What depends on loop-invariant values alone is never
stored: it is computed again, and moved out of the loop by simplification.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from tapec.ir.builder import Builder
from tapec.ir.core import Block, Function, Op, Value, walk
from tapec.ir.dce import live_ops, rebuilt
from tapec.ir.opdef import OPS

__all__ = ["Split", "split", "without_guards"]

#: Elementwise operations from this cost on are not computed twice.
DEAR = 10
#: In larger graphs everything that the pullback reads is stored.
MAX_NODES = 4000

_CHEAP = frozenset(
    (
        "broadcast", "constant", "convert", "gather", "iota", "place", "reshape", "select",
        "slice", "strong_mul", "transpose",
    )
)  # fmt: skip


class Split(NamedTuple):
    """``forward``: params → results, residuals.  ``backward``: residuals, params (those that
    are free), seeds → cotangents."""

    forward: Function
    backward: Function
    residuals: list[Value]


def split(
    pull: Function, n_results: int, weights: Sequence[int | None], remat: bool = False
) -> Split:
    """``weights``: per parameter that is no seed, the bytes to keep it; 0: it is there
    anyway; None: it is loop-invariant.  Seeds are the parameters after those.
    ``remat``: nothing is too dear to be computed again."""
    n = len(weights)
    params, seeds = pull.params[:n], pull.params[n:]
    wanted = pull.results[n_results:]
    late = _depend_on(pull, seeds)
    invariant = _depend_only_on(pull, [p for p, w in zip(params, weights) if w is None])
    needed: dict[Value, None] = {}
    for op in live_ops(pull.ops, wanted):
        if any(r in late for r in op.results):
            needed.update(dict.fromkeys([v for v in op.operands if v not in late]))
    needed.update(dict.fromkeys([v for v in wanted if v not in late]))
    free = {p for p, w in zip(params, weights) if not w}
    weight = {p: w for p, w in zip(params, weights) if w}
    chosen = _minimum_cut(
        [v for v in needed if v not in free and v not in invariant], free | invariant, weight, remat
    )
    results = [*pull.results[:n_results], *chosen]
    early = [op for op in pull.ops if late.isdisjoint(op.operands)]
    forward = Function(pull.name, params, live_ops(early, results), results)
    kept = [p for p, w in zip(params, weights) if not w]
    backward = _extract(pull, [*chosen, *kept, *seeds], wanted)
    return Split(forward, backward, chosen)


def _depend_on(fn: Function, seeds: Sequence[Value]) -> set[Value]:
    late = set(seeds)
    for op in fn.ops:
        if not late.isdisjoint(op.operands):
            late.update(op.results)
    return late


def _depend_only_on(fn: Function, sources: Sequence[Value]) -> set[Value]:
    known = set(sources)
    for op in fn.ops:
        if op.results and known.issuperset(op.operands):
            known.update(op.results)
    return known


def _extract(fn: Function, inputs: Sequence[Value], results: Sequence[Value]) -> Function:
    """The function from ``inputs`` (values of ``fn``) to ``results``, without effects."""
    needed, given = set(results), set(inputs)
    ops: list[Op] = []
    for op in reversed(fn.ops):
        if any(r in needed and r not in given for r in op.results):
            ops.append(op)
            needed.update(op.operands)
    b = Builder()
    env: dict[Value, Value] = {}
    for v in inputs:
        p = b.param(v.type, v.hint)
        env.setdefault(v, p)
    for op in reversed(ops):
        b.loc, mine = op.loc, op.results
        if op.regions:
            op = rebuilt(op, op.operands, tuple(map(without_guards, op.regions)))
        new = b.append(op, tuple([env[v] for v in op.operands]))
        for old, made in zip(mine, new.results):
            env.setdefault(old, made)
    return b.function(fn.name, [env[v] for v in results])


def without_guards(block: Block) -> Block:
    """``block`` without guards at any depth: for a computation that is made once more."""
    if not has_guard(block):
        return block
    env: dict[Value, Value] = {}
    ops: list[Op] = []
    for op in block.ops:
        if op.name == "guard":
            continue
        operands = tuple([env.get(v, v) for v in op.operands])
        if op.regions or operands != op.operands:
            new = rebuilt(op, operands, tuple(map(without_guards, op.regions)))
            env.update(zip(op.results, new.results))
            op = new
        ops.append(op)
    return Block(block.params, ops, [env.get(v, v) for v in block.results])


def has_guard(block: Block) -> bool:
    return any(op.name == "guard" for op in walk(block))


def _dear(op: Op) -> bool:
    if op.name in _CHEAP:
        return False
    entry = OPS[op.name]
    if entry.elementwise:
        return entry.cost >= DEAR
    if op.name == "dot":
        return max(v.type.size for v in op.operands) > 16
    # small reductions are cheap
    return bool(op.regions) or max(v.type.size for v in op.operands) > 16


def _minimum_cut(
    needed: Sequence[Value], free: set[Value], weight: dict[Value, int], remat: bool
) -> list[Value]:
    """The values to store so that all ``needed`` follow from them and from ``free``."""
    nodes: dict[Value, int] = {}
    order: list[Value] = []
    stack = list(needed)
    while stack:
        v = stack.pop()
        if v in nodes or v in free:
            continue
        nodes[v] = len(order)
        order.append(v)
        if v.op is not None and (remat or not _dear(v.op)):
            stack.extend(v.op.operands)
    if len(order) > MAX_NODES and not remat:
        return [v for v in needed if not _recomputed_from(v, free)]
    # node k: 2k is its entrance, 2k + 1 its exit; then source and sink
    graph = _Flow(2 * len(order) + 2)
    source, sink = 2 * len(order), 2 * len(order) + 1
    for v, k in nodes.items():
        graph.edge(2 * k, 2 * k + 1, weight.get(v, max(v.type.nbytes, 1)))
        op = v.op
        if op is None or (not remat and _dear(op)):
            graph.edge(source, 2 * k, _Flow.INFINITE)
        else:
            for x in op.operands:
                if x in nodes:
                    graph.edge(2 * nodes[x] + 1, 2 * k, _Flow.INFINITE)
    for v in needed:
        graph.edge(2 * nodes[v] + 1, sink, _Flow.INFINITE)
    after = graph.sink_side(source, sink)
    return [v for v, k in nodes.items() if 2 * k + 1 in after and 2 * k not in after]


def _recomputed_from(v: Value, free: set[Value]) -> bool:
    return v.op is not None and v.op.name in ("constant", "iota")


class _Flow:
    """Maximum flow by shortest augmenting paths in level graphs (Dinic)."""

    INFINITE = 1 << 60

    def __init__(self, n: int) -> None:
        self.out: list[list[int]] = [[] for _ in range(n)]
        self.to: list[int] = []
        self.left: list[int] = []

    def edge(self, a: int, b: int, capacity: int) -> None:
        for x, y, c in ((a, b, capacity), (b, a, 0)):
            self.out[x].append(len(self.to))
            self.to.append(y)
            self.left.append(c)

    def sink_side(self, source: int, sink: int) -> set[int]:
        """The nodes from which the sink can still be reached at maximum flow."""
        while True:
            level = self._levels(source)
            if level[sink] < 0:
                break
            at = [0] * len(self.out)
            while self._augment(source, sink, level, at):
                pass
        side, queue = {sink}, deque([sink])
        while queue:
            for e in self.out[queue.popleft()]:
                x = self.to[e]
                if self.left[e ^ 1] and x not in side:
                    side.add(x)
                    queue.append(x)
        return side

    def _levels(self, source: int) -> list[int]:
        level = [-1] * len(self.out)
        level[source] = 0
        queue = deque([source])
        while queue:
            x = queue.popleft()
            for e in self.out[x]:
                if self.left[e] and level[self.to[e]] < 0:
                    level[self.to[e]] = level[x] + 1
                    queue.append(self.to[e])
        return level

    def _augment(self, source: int, sink: int, level: list[int], at: list[int]) -> bool:
        path: list[int] = []
        x = source
        while x != sink:
            edges = self.out[x]
            while at[x] < len(edges):
                e = edges[at[x]]
                if self.left[e] and level[self.to[e]] == level[x] + 1:
                    break
                at[x] += 1
            else:
                if not path:
                    return False
                x = self.to[path.pop() ^ 1]
                at[x] += 1
                continue
            path.append(e)
            x = self.to[e]
        pushed = min(self.left[e] for e in path)
        for e in path:
            self.left[e] -= pushed
            self.left[e ^ 1] += pushed
        return True
