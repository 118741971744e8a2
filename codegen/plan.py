"""From an array-level function to a *program*: an ordered list of steps.

Every value gets a place:

``reg``     small (at most ``SMALL`` elements): one SSA register per element, computed by
            straight-line code in the slot between two steps;
``mem``     parameters, and what is stored: results, operands of library calls, what would
            cost too much to compute again;
``inline``  everything else: computed in registers inside the nests that use it.

Steps are loop nests, library calls and other array code, in order.  Slot ``k`` is the
straight-line code that stands before step ``k``.  A nest is joined by every stored value
and reduction with the same iteration space whose operands are there in time, so a primal
chain, its reductions and its adjoint make one pass over memory.  A gather is never computed
before the guards that stand before it: they may be what keeps its indices in range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tapec.codegen.body import (
    IndexMap,
    NotSegmentable,
    build,
    identity_map,
    operand_maps,
    piece_ranges,
    segments,
    strides_of,
    unit_reshape,
)
from tapec.codegen.places import disjoint, piece_nests, stacked, stored_by_nests
from tapec.codegen.program import Nest, Opaque, Program, Store
from tapec.codegen.recompute import INDEX_OPS, REDUCTIONS, SOURCES, cost, heavy, repeated
from tapec.codegen.regions import classify, operands_in_memory
from tapec.codegen.sorting import SHORT
from tapec.ir.core import Dense, Function, Op, Type, Value
from tapec.ir.opdef import OPS

__all__ = ["SMALL", "all_nests", "plan", "reg_op", "small"]

#: Values of at most this many elements live in registers.
SMALL = 16
#: A ``place`` of more pieces than this is stored, and so is one that would cut the loops into
#: more parts than ``MAX_SEGMENTS``.
MAX_PIECES = 8
MAX_SEGMENTS = 27
#: Nor is a value computed from more different elements than this through such places.
MAX_LEAVES = 1000


#: Ops that are always a call on stored arrays.
_CALLS = frozenset(("scatter_add", "host_call", "fft", "rfft", "irfft"))


def small(t: Type) -> bool:
    return t.size <= SMALL


def reg_op(op: Op) -> bool:
    """Whether an op is straight-line code on register elements."""
    name = op.name
    if "lapack" in op.attrs or "gemm" in op.attrs or name in _CALLS:
        return False
    if any([r.type.size > SMALL for r in op.results]):
        return False
    if name in ("slice", "constant", "iota"):
        return not (name == "constant" and isinstance(op.attrs["value"], Dense))
    if name in ("gather", "searchsorted"):
        return all(small(v.type) for v in op.operands[1:])
    if name == "sort" and op.operands[0].type.shape[op.attrs["axis"]] > SHORT:
        return False
    return all([v.type.size <= SMALL for v in op.operands])


def plan(fn: Function) -> Program:
    """Decide places and steps; restart with more stored values while that pays."""
    force: set[Value] | None = None
    stored_places: set[Value] = set()
    while True:
        program = Program(fn)
        try:
            _classify(program, force or set(), stored_places)
            if force is None:
                force = repeated(fn, program.kind)
                if force:
                    continue
            _schedule(program)
            again = _build_bodies(program, force, stored_places)
        except NotSegmentable as e:
            stored_places.add(e.value)
            continue
        if not again:
            return program


# -- places -----------------------------------------------------------------------------


def _classify(program: Program, force: set[Value], stored_places: set[Value]) -> None:
    fn, kind = program.fn, program.kind
    stacks = _returned_stacks(fn)
    for op in fn.ops:
        name = op.name
        if op.regions:
            classify(program, op)
            continue
        if reg_op(op):
            for r in op.results:
                kind[r] = "reg"
            continue
        if name in REDUCTIONS:
            kind[op.results[0]] = "reg" if op.results[0].type.size == 1 else "mem"
            continue
        r = op.results[0]
        if name == "reshape" and unit_reshape(op.operands[0].type.shape, r.type.shape) is None:
            kind[r] = "mem"
            program.alias[r] = op.operands[0]
        elif name == "place" and (
            r in stored_places or len(op.operands) > MAX_PIECES or r in stacks
        ):
            kind[r] = "mem"
            program.stored_places.add(r)
        elif name == "constant" and isinstance(op.attrs["value"], Dense):
            kind[r] = "mem"
        elif name in INDEX_OPS or name in SOURCES or OPS[name].elementwise:
            kind[r] = "inline"
        else:
            for r in op.results:
                kind[r] = "mem"
    results = frozenset(fn.results)
    needed: set[Value] = set(results)
    for op in fn.ops:
        name = op.name
        if op.regions:
            needed.update(operands_in_memory(program, op))
        elif op.results and kind[op.results[0]] == "reg" and name not in ("slice", "gather"):
            if name == "searchsorted":
                needed.add(op.operands[0])
        elif name in ("slice", "gather") and kind[op.results[0]] == "reg":
            if kind[op.operands[0]] != "reg" or name == "gather":
                needed.add(op.operands[0])
        elif name == "gather":
            needed.add(op.operands[0])
        elif name == "broadcast" and kind[op.results[0]] == "inline":
            x = op.operands[0]
            if kind[x] == "inline" and x.type.size > 1 and not _free(x, kind):
                needed.add(x)
        elif name == "place" or name in REDUCTIONS:
            pass
        elif kind[op.results[0]] == "mem" if op.results else False:
            needed.update(op.operands)
    needed |= force
    for v in needed:
        before = _contiguous(v)
        if before is not None and kind[v] == "inline" and v not in results:
            x = v.op.operands[0]  # type: ignore[union-attr]
            if kind[x] == "mem":
                kind[v] = "mem"
                program.alias[v], program.offset[v] = x, before
    for v in needed:
        if v in program.params or kind[v] == "mem":
            continue
        if kind[v] == "inline":
            kind[v] = "mem"
        elif v.type.size and v not in results:
            program.spilled.add(v)
    for v in fn.results:
        root = program.root(v)
        if kind[root] == "reg":
            program.spilled.add(root)
    for v in [program.root(a) for a in program.alias]:
        if kind[v] == "inline":
            kind[v] = "mem"
        elif kind[v] == "reg":
            program.spilled.add(v)


def _contiguous(v: Value) -> int | None:
    """The bytes before a slice that is a run of its operand's memory; None if it is not one."""
    op = v.op
    if op is None or op.name != "slice" or not v.type.size:
        return None
    shape = op.operands[0].type.shape
    start, size, step = op.attrs["start"], op.attrs["size"], op.attrs["step"]
    cut = [k for k in range(len(shape)) if size[k] != shape[k]]
    if not cut or any(step[k] != 1 for k in range(len(shape)) if size[k] != 1):
        return None
    if any(size[k] != 1 for k in range(cut[-1])):
        return None
    places = sum(a * s for a, s in zip(start, strides_of(shape)))
    return int(places) * v.type.dtype.itemsize


def _returned_stacks(fn: Function) -> set[Value]:
    """Stacks that are results and nothing else."""
    found = {v for v in fn.results if v.op is not None and v.op.name == "place" and stacked(v.op)}
    if found:
        for op in fn.ops:
            found.difference_update(op.operands)
            for region in op.regions:
                found.difference_update(region.results)
    return found


def _free(v: Value, kind: dict[Value, str]) -> bool:
    """Whether an inline value costs nothing to compute (a view, or a constant)."""
    while True:
        op = v.op
        if op is None or kind[v] != "inline":
            return True
        if op.name in SOURCES:
            return True
        if op.name not in INDEX_OPS or op.name in ("place", "gather"):
            return False
        v = op.operands[0]


# -- order ------------------------------------------------------------------------------


def _leaves(
    program: Program, v: Value, m: IndexMap, computed: Value | None = None
) -> Iterator[tuple[Value, IndexMap | None]]:
    """The stored and register values, with their maps, that an element of ``v`` is made of, and
    its gathers without a map; ``computed`` is the stored value that is being computed itself."""
    kind = program.kind
    seen: set[tuple[Value, IndexMap]] = set()
    places: dict[Value, None] = {}
    stack = [(v, m)]
    while stack:
        key = stack.pop()
        if key in seen:
            continue
        seen.add(key)
        if len(seen) > MAX_LEAVES and places:
            raise NotSegmentable(max(places, key=lambda v: len(v.op.operands)))  # type: ignore[union-attr]
        v, m = key
        op = v.op
        if op is None or (kind[v] != "inline" and v is not computed):
            yield key
            continue
        if op.name in SOURCES:
            continue
        if op.name == "place":
            if v is not computed:
                places[v] = None
            for k, piece in enumerate(op.operands):
                found = piece_ranges(op, k, m)
                if found is not None:
                    stack.append((piece, found[0]))
        elif op.name == "gather":
            yield v, None
            stack.append((op.operands[0], ((-2, 0, 0),)))
            n = op.operands[1].type.ndim
            stack.extend((i, m[:n]) for i in op.operands[1:])
        else:
            stack.extend(operand_maps(op, m))


def _computed_in_nest(program: Program, v: Value) -> bool:
    """Whether a value is elementwise code that a nest can compute (and store)."""
    op = v.op
    if op is None or v in program.alias or program.kind[v] == "reg":
        return False
    name = op.name
    if name == "place":
        return v not in program.stored_places
    if name == "constant" and isinstance(op.attrs["value"], Dense):
        return False
    return name in INDEX_OPS or name in SOURCES or OPS[name].elementwise


def _schedule(program: Program) -> None:
    fn, kind, avail = program.fn, program.kind, program.avail
    produced: dict[Value, int] = {}  # value stored by a nest → step
    slots, steps = program.slots, program.steps
    guarded = 0  # the slot of the last guard so far
    allowed: dict[Value, int] = {}  # gather → first step in which its indices are known good

    def ready(v: Value, space: tuple[int, ...], m: IndexMap, identity: IndexMap) -> int:
        """The first step that may read ``v``."""
        at = produced.get(v)
        if at is not None:
            step = steps[at]
            same = isinstance(step, Nest) and step.accepts(space) and m == identity
            return at if same else at + 1
        return avail[program.root(v)]

    def nest_for(space: tuple[int, ...], first: int) -> int:
        for k in range(first, len(steps)):
            step = steps[k]
            if isinstance(step, Nest) and step.accepts(space):
                step.grow(space)
                return k
        steps.append(Nest(space))
        slots.append([])
        return len(steps) - 1

    def start(root: Value, computed: Value | None) -> int:
        """The first step that may compute ``root``."""
        space = root.type.shape
        identity = identity_map(space)
        first = 0
        for v, m in _leaves(program, root, identity, computed):
            known = allowed.get(v) if m is None else ready(v, space, m, identity)
            first = max(first, known or 0)
        return first

    def join(root: Value, computed: Value | None) -> int:
        return nest_for(root.type.shape, start(root, computed))

    for op in fn.ops:
        if op.name == "guard":
            at = avail[op.operands[0]]
            slots[at].append(op)
            guarded = max(guarded, at)
            continue
        if op.regions:
            steps.append(Opaque(op))
            slots.append([])
            for r in op.results:
                avail[r] = len(steps)
            continue
        r = op.results[0]
        k = kind[r]
        if op.name == "gather":
            allowed[r] = guarded
        if k == "inline":
            continue
        if op.name in REDUCTIONS and not (k == "reg" and small(op.operands[0].type)):
            at = join(op.operands[0], None)
            nest = steps[at]
            assert isinstance(nest, Nest)
            nest.reduces.append(op)
            avail[r] = at + 1
            continue
        if k == "reg":
            at = allowed.get(r, 0)
            for v in op.operands:
                t = avail.get(program.root(v))
                if t is None:
                    raise AssertionError(f"operand of {op} is not available")
                if t > at:
                    at = t
            slots[at].append(op)
            for r in op.results:
                avail[r] = at
            continue
        if r in program.alias:
            avail[r] = avail[program.root(r)]
            root = program.root(r)
            if root in produced:
                produced[r] = produced[root]
            continue
        if _computed_in_nest(program, r):
            at = join(r, r)
            nest = steps[at]
            assert isinstance(nest, Nest)
            nest.stores.append(Store(r, r, 0, strides_of(r.type.shape)))
            nest.produces.add(r)
            avail[r] = at + 1
            produced[r] = at
            continue
        if op.name == "constant":
            avail[r] = 0
            continue
        stores = stored_by_nests(program, op) if op.name == "place" else None
        if stores is not None:
            first = max(start(store.value, None) for store in stores)  # one nest for all
            avail[r] = 0
            for store in stores:
                at = nest_for(store.value.type.shape, first)
                nest = steps[at]
                assert isinstance(nest, Nest)
                nest.stores.append(store)
                avail[r] = max(avail[r], at + 1)
            continue
        opaque = Opaque(op)
        if op.name == "place":
            opaque.adds = not disjoint(op)
            opaque.nests = piece_nests(program, op, opaque.adds)
        steps.append(opaque)
        slots.append([])
        for r in op.results:
            avail[r] = len(steps)


# -- bodies -----------------------------------------------------------------------------


def _build_bodies(program: Program, force: set[Value], stored_places: set[Value]) -> bool:
    """Build all bodies; True if something more should be stored and planning repeated."""
    count: dict[Value, int] = {}  # value → elements computed, over all nests
    cut = [(nest, segments(program, nest)) for nest in all_nests(program)]
    many = {_some_place(program, nest) for nest, parts in cut if len(parts) > MAX_SEGMENTS}
    if many - {None}:
        stored_places.update(place for place in many if place is not None)
        return True
    for nest, parts in cut:
        for part in parts:
            if any(lo == hi for lo, hi in part):
                continue
            nodes, roots = build(program, nest, part)
            nest.parts.append((part, nodes, roots))
            times: dict[int, int] = {}
            for node in nodes:
                if node.op is not None and (
                    node.op is node.value.op or node.op.name == "div"  # the end of a logistic
                ):
                    n = times.get(node.axes)
                    if n is None:
                        n = times[node.axes] = _iterations(part, node.axes)
                    count[node.value] = count.get(node.value, 0) + n
    again = [v for v, n in count.items() if n > 1.25 * v.type.size and program.kind[v] == "inline"]
    dear = {v for v in again if heavy(v, cost(v, program.kind))}
    # Keep the last of a chain only: storing it frees the others, those that are computed just
    # as often.  One that is computed more often has another use, and would be found next time:
    # finding them one after the other takes cubic time.
    for op in program.fn.ops:
        if op.results and op.results[0] in dear:
            n = count[op.results[0]]
            dear.difference_update([x for x in op.operands if count.get(x) == n])
    force |= dear
    return bool(dear)


def _iterations(part: Sequence[tuple[int, int]], axes: int) -> int:
    """How often a node that depends on these axes is computed: uniform inner loops do not
    repeat it."""
    n, inner = 1, True
    for axis in range(len(part) - 1, -1, -1):
        lo, hi = part[axis]
        if axes >> axis & 1:
            inner = False
        if not inner:
            n *= hi - lo
    return n


def _some_place(program: Program, nest: Nest) -> Value | None:
    """A ``place`` inlined in the nest, the one with most pieces."""
    found: Value | None = None
    seen: set[Value] = set()
    stack = nest.wanted()
    while stack:
        v = stack.pop()
        if v in seen or v.op is None:
            continue
        seen.add(v)
        if program.kind[v] != "inline" and v not in nest.produces:
            continue
        if v.op.name == "place" and (
            found is None or len(v.op.operands) > len(found.op.operands)  # type: ignore[union-attr]
        ):
            found = v
        stack.extend(v.op.operands)
    return found


def all_nests(program: Program) -> Iterator[Nest]:
    for step in program.steps:
        if isinstance(step, Nest):
            yield step
        else:
            yield from step.nests
