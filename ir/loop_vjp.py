"""Reverse mode of ``cond``, ``scan`` and ``while``.

The pullback of a body is the ordinary ``vjp`` of that body as a function.  It is split
(``residuals``) into what the forward loop gives in addition, and the body of a loop the
other way round, whose carries are the cotangents of the carries and the sums of those of
the consts.  The forward loop with its residuals takes the place of the primal operation
(``AdjointBuilder.replaced``), so it runs once.

A ``while`` cannot hand an unknown number of residuals on to another operation.  Its
pullback is therefore a ``while`` of its own, with the loop and a phase in the other
direction; codegen sees that both run the same loop and lets it run once.
"""

from __future__ import annotations

from collections.abc import Sequence

from tapec.ir.adjoint import AdjointBuilder
from tapec.ir.builder import Builder
from tapec.ir.core import Block, Function, Op, Type, Value, walk
from tapec.ir.loops import (
    Phase,
    body_function,
    emit_cond,
    emit_scan,
    emit_while,
    phases,
    scan_parts,
)
from tapec.ir.opdef import OPS
from tapec.ir.residuals import Split, split, without_guards
from tapec.ir.vjp import active_values, pull_back

__all__ = [
    "carried_active", "cond_vjp", "may_be_singular", "scan_vjp", "simplified", "while_vjp",
]  # fmt: skip

#: Operations whose partial derivatives may be infinite where their value is not; so may those of
#: all special functions.
_SINGULAR = frozenset(
    (
        "arccos", "arccosh", "arcsin", "arctanh", "atan2", "cbrt", "cond", "div", "entr", "fmod",
        "hypot", "integer_pow", "log", "log10", "log1p", "log2", "mod", "polygamma", "pow",
        "reduce_prod", "scan", "sqrt", "tan", "while", "xlog1py", "xlogy",
    )
)  # fmt: skip

MaybeValue = Value | None


def simplified(fn: Function) -> Function:
    from tapec.ir.passes import simplify

    return simplify(fn)


# -- which carries take part ----------------------------------------------------------


def carried_active(body: Function, active: set[int], n_carry: int) -> tuple[set[int], set[int]]:
    """The parameters and results of a body that depend on the ``active`` parameters, over
    any number of iterations."""
    active = set(active)
    while True:
        values = active_values(body, sorted(active))
        out = {k for k, r in enumerate(body.results) if r in values}
        more = {k for k in out if k < n_carry} - active
        if not more:
            return active, out
        active |= more


def _reaching(body: Function, outputs: set[int], active: set[int]) -> set[int]:
    """The ``active`` parameters that the ``outputs`` depend on."""
    values = active_values(body, sorted(active))
    needed = {body.results[k] for k in outputs} & values
    for op in reversed(body.ops):
        if not OPS[op.name].nondifferentiable and not needed.isdisjoint(op.results):
            needed.update(values.intersection(op.operands))
    return {k for k in active if body.params[k] in needed}


def _carried_reaching(
    body: Function, outputs: set[int], active: set[int], n_carry: int
) -> tuple[set[int], set[int]]:
    """Outputs that get a cotangent, and parameters that then do, over any iterations."""
    outputs = set(outputs)
    while True:
        found = _reaching(body, outputs, active)
        more = {k for k in found if k < n_carry} - outputs
        if not more:
            return outputs, found
        outputs |= more


def may_be_singular(name: str) -> bool:
    """Whether a partial derivative of the operation may be infinite where its value is finite."""
    return name in _SINGULAR or (OPS[name].llvm or "").startswith("special:")


def _singular(body: Function) -> bool:
    return any(may_be_singular(op.name) for op in walk(body.block))


class _Pull:
    """The pullback of a loop's body: ``wrt`` and ``outputs`` are positions in increasing
    order; ``split`` as in ``residuals``."""

    __slots__ = ("masked", "outputs", "split", "wrt")

    def __init__(
        self,
        body: Function,
        wrt: set[int],
        outputs: set[int],
        masked: set[int],
        n_carry: int,
        weights: Sequence[int | None],
        remat: bool = False,
    ) -> None:
        self.wrt, self.outputs = sorted(wrt), sorted(outputs)
        while True:
            pulled = pull_back(body, self.wrt, self.outputs, [k in masked for k in self.outputs])
            found = {k for k, m in zip(self.wrt, pulled.masked) if m}
            more = {k for k in found if k < n_carry and k in outputs} - masked
            if not more:
                break
            masked = masked | more
        self.masked = found
        self.split: Split = split(simplified(pulled.fn), len(body.results), weights, remat)

    def cotangents(
        self, b: Builder, residuals: list[Value], free: list[Value], cts: list[Value]
    ) -> dict[int, Value]:
        """By parameter position; ``cts`` are those of ``outputs``."""
        found = b.inline(self.split.backward, [*residuals, *free, *cts])
        return dict(zip(self.wrt, found, strict=True))


def _slices(b: Builder, types: Sequence[Type], like: Sequence[Value] = ()) -> list[Value]:
    hints = [v.hint for v in like] or [None] * len(types)
    return [b.param(t, h) for t, h in zip(types, hints)]


# -- scan -------------------------------------------------------------------------------


def scan_vjp(b: AdjointBuilder, op: Op, cts: Sequence[MaybeValue]) -> Sequence[MaybeValue]:
    body = body_function(op.regions[0])
    carry, xs, consts = scan_parts(op, op.operands)
    c, x = len(carry), len(xs)
    length, reverse = op.attrs["length"], op.attrs["reverse"]
    active, out = carried_active(body, {k for k, v in enumerate(op.operands) if v in b.active}, c)
    given = {k for k, ct in enumerate(cts) if ct is not None and k in out}
    outputs, wrt = _carried_reaching(body, given, active, c)
    if not wrt:
        return [None] * len(op.operands)
    singular = _singular(body)
    masked = {k for k in outputs if (ct := cts[k]) is not None and ct in b.masked}
    if singular:  # a carry that begins without a cotangent: its zero is no number yet
        masked |= {k for k in outputs if cts[k] is None}
    weights: list[int | None] = [v.type.nbytes for v in carry]
    weights += [0] * x + [None] * len(consts)
    remat = op.attrs.get("remat", False)
    pull = _Pull(body, wrt, outputs, masked, c, weights, remat)

    forward = pull.split.forward
    attrs = {**op.attrs}
    made = Op(
        "scan",
        op.operands,
        (*[r.type for r in op.results], *[_stacked(v.type, length) for v in pull.split.residuals]),
        attrs,
        (forward.block,),
        op.loc,
    )
    for old, new in zip(op.results, made.results):
        new.hint = old.hint
    residuals = list(made.results[len(op.results) :])
    b.replaced[op] = made

    # the loop in the other direction
    carried = [k for k in pull.outputs if k < c]
    sums = [k for k in pull.wrt if k >= c + x]
    y_cts = [k for k in pull.outputs if k >= c]
    back = Builder(op.loc)
    d_carry = [back.param(body.results[k].type) for k in carried]
    d_sums = [back.param(body.params[k].type) for k in sums]
    kept = _slices(back, [v.type for v in pull.split.residuals])
    free_x = _slices(back, [p.type for p in body.params[c : c + x]], body.params[c : c + x])
    d_ys = [back.param(body.results[k].type) for k in y_cts]
    free_k = _slices(back, [p.type for p in body.params[c + x :]], body.params[c + x :])
    grads = pull.cotangents(back, kept, [*free_x, *free_k], [*d_carry, *d_ys])
    d_xs = [k for k in pull.wrt if c <= k < c + x]
    results = [grads[k] if k in grads else back.zeros(body.results[k].type) for k in carried]
    results += [back.add(s, grads[k]) for s, k in zip(d_sums, sums)]
    results += [grads[k] for k in d_xs]

    def seed(k: int) -> Value:
        ct = cts[k]
        return b.zeros(op.results[k].type) if ct is None else ct

    init = [seed(k) for k in carried] + [b.zeros(op.operands[k].type) for k in sums]
    backward = emit_scan(
        b,
        init,
        [*residuals, *xs, *[seed(k) for k in y_cts]],
        consts,
        back.block(results),
        length,
        not reverse,
        remat,
    )
    found = dict(zip([*carried, *sums, *d_xs], backward.results, strict=True))
    return _finish(b, op, pull, found)


def _stacked(t: Type, length: int) -> Type:
    return t.with_shape((length, *t.shape))


def _finish(b: AdjointBuilder, op: Op, pull: _Pull, found: dict[int, Value]) -> list[MaybeValue]:
    out: list[MaybeValue] = [None] * len(op.operands)
    for k in pull.wrt:
        if k in found:
            out[k] = found[k]
            if k in pull.masked:
                b.mask(found[k])
    return out


# -- cond -------------------------------------------------------------------------------


def cond_vjp(b: AdjointBuilder, op: Op, cts: Sequence[MaybeValue]) -> Sequence[MaybeValue]:
    index, args = op.operands[0], op.operands[1:]
    bodies = [body_function(r) for r in op.regions]
    active = {k for k, v in enumerate(args) if v in b.active}
    given = {k for k, ct in enumerate(cts) if ct is not None}
    masked = {k for k in given if (ct := cts[k]) is not None and ct in b.masked}
    pulls: list[_Pull] = []
    for body in bodies:
        _, out = carried_active(body, active, 0)
        wrt = _reaching(body, given & out, active)
        pulls.append(_Pull(body, wrt, given & out, masked, 0, [0] * len(args)))
    wanted = sorted({k for p in pulls for k in p.wrt})
    if not wanted:
        return [None] * len(op.operands)

    # residuals of different branches share slots of one type
    slots: list[Type] = []
    places: list[list[int]] = []
    for p in pulls:
        taken: set[int] = set()
        mine = []
        for v in p.split.residuals:
            at = next(
                (k for k, t in enumerate(slots) if t is v.type and k not in taken), len(slots)
            )
            if at == len(slots):
                slots.append(v.type)
            taken.add(at)
            mine.append(at)
        places.append(mine)
    forward = [
        _with_slots(p.split.forward, len(op.results), slots, mine) for p, mine in zip(pulls, places)
    ]
    types = (*[r.type for r in op.results], *slots)
    made = Op("cond", op.operands, types, op.attrs, tuple(forward), op.loc)
    for old, new in zip(op.results, made.results):
        new.hint = old.hint
    b.replaced[op] = made
    seeds = sorted(given)
    backward = []
    for body, p, mine in zip(bodies, pulls, places):
        one = Builder(op.loc)
        kept = [one.param(t) for t in slots]
        free = _slices(one, [q.type for q in body.params], body.params)
        d_out = dict(zip(seeds, [one.param(body.results[k].type) for k in seeds]))
        grads = p.cotangents(one, [kept[k] for k in mine], free, [d_out[k] for k in p.outputs])
        results = [grads[k] if k in grads else one.zeros(body.params[k].type) for k in wanted]
        backward.append(one.block(results))
    given_cts = [ct for ct in cts if ct is not None]
    reversed_cond = emit_cond(
        b, index, [*made.results[len(op.results) :], *args, *given_cts], backward
    )
    found: list[MaybeValue] = [None] * len(op.operands)
    for k, z in zip(wanted, reversed_cond.results, strict=True):
        found[k + 1] = z
    return found


def _with_slots(fn: Function, n: int, slots: list[Type], mine: list[int]) -> Block:
    b = Builder()
    b.params.extend(fn.params)
    b.ops.extend(fn.ops)
    kept = dict(zip(mine, fn.results[n:], strict=True))
    results = [kept[k] if k in kept else b.zeros(t) for k, t in enumerate(slots)]
    return b.block([*fn.results[:n], *results])


# -- while ------------------------------------------------------------------------------


def while_vjp(b: AdjointBuilder, op: Op, cts: Sequence[MaybeValue]) -> Sequence[MaybeValue]:
    loops = phases(op)
    n_operands = sum(op.attrs["n_carry"])
    consts = op.operands[n_operands:]
    bodies = [body_function(p.body) for p in loops]
    active = [_phase_params(op, p, len(consts), b.active) for p in loops]
    y_active: list[set[int]] = []  # per phase, of its ys
    for p, phase in enumerate(loops):
        n = phase.n_carry
        reads = {n + i for i, (q, k) in enumerate(phase.reads) if k in y_active[q]}
        active[p], out = carried_active(bodies[p], active[p] | reads, n)
        y_active.append({k - n for k in out if k >= n})

    # which carries and ys get cotangents, from the last phase to the first
    pulls: dict[int, _Pull] = {}
    y_given: list[set[int]] = [set() for _ in loops]
    y_masked: list[set[int]] = [set() for _ in loops]
    for p in reversed(range(len(loops))):
        phase, body = loops[p], bodies[p]
        n, r = phase.n_carry, len(phase.reads)
        given, masked = set(), set()
        for k in range(n):
            ct = cts[phase.first + k]
            if ct is not None and k in active[p]:
                given.add(k)
                if ct in b.masked:
                    masked.add(k)
        given |= {n + k for k in y_given[p]}
        masked |= {n + k for k in y_masked[p]}
        outputs, wrt = _carried_reaching(body, given, active[p], n)
        if not wrt:
            continue
        if _singular(body):
            masked |= {k for k in outputs if k < n and cts[phase.first + k] is None}
        weights: list[int | None] = [v.type.nbytes for v in body.params[:n]]
        weights += [0] * r + [None] * len(consts)
        pull = pulls[p] = _Pull(body, wrt, outputs, masked, n, weights)
        for k in pull.wrt:
            if n <= k < n + r:
                q, y = phase.reads[k - n]
                y_given[q].add(y)
                if k in pull.masked:
                    y_masked[q].add(y)
    if not pulls:
        return [None] * len(op.operands)
    return _emit_while_vjp(b, op, loops, bodies, pulls, cts)


def _phase_params(op: Op, phase: Phase, n_consts: int, active: set[Value]) -> set[int]:
    """Positions of the active parameters of a phase's body: carries and consts."""
    n, r = phase.n_carry, len(phase.reads)
    out = {k for k in range(n) if op.operands[phase.first + k] in active}
    base = len(op.operands) - n_consts
    return out | {n + r + k for k in range(n_consts) if op.operands[base + k] in active}


def _emit_while_vjp(
    b: AdjointBuilder,
    op: Op,
    loops: list[Phase],
    bodies: list[Function],
    pulls: dict[int, _Pull],
    cts: Sequence[MaybeValue],
) -> list[MaybeValue]:
    n_operands = sum(op.attrs["n_carry"])
    consts = op.operands[n_operands:]
    blocks: list[Block] = []
    carries: list[list[Value]] = []
    reads: list[list[tuple[int, int]]] = []
    directions: list[bool] = []
    for p, phase in enumerate(loops):  # the phases that there are, with residuals
        block = pulls[p].split.forward.block if p in pulls else phase.body
        blocks.append(without_guards(block))  # the loop itself has checked them
        carries.append(list(op.operands[phase.first : phase.first + phase.n_carry]))
        reads.append(list(phase.reads))
        directions.append(phase.reverse)
    #: where the cotangents of (phase, y) are yielded
    sources: dict[tuple[int, int], list[tuple[int, int]]] = {}
    found: list[MaybeValue] = [None] * len(op.operands)
    places: list[tuple[int, int]] = []  # (position of the operand, index of the new carry)
    total = n_operands
    sums_of: dict[int, list[int]] = {}
    for p in reversed(range(len(loops))):
        pull = pulls.get(p)
        if pull is None:
            continue
        phase, body = loops[p], bodies[p]
        n, r = phase.n_carry, len(phase.reads)
        carried = [k for k in pull.outputs if k < n]
        sums = [k for k in pull.wrt if k >= n + r]
        y_cts = [k for k in pull.outputs if k >= n]
        back = Builder(op.loc)
        d_carry = [back.param(body.results[k].type) for k in carried]
        d_sums = [back.param(body.params[k].type) for k in sums]
        mine: list[tuple[int, int]] = []
        kept = []
        n_ys = len(phase.ys)
        for i, v in enumerate(pull.split.residuals):
            mine.append((p, n_ys + i))
            kept.append(back.param(v.type))
        free = _slices(back, [q.type for q in body.params[n : n + r]])
        mine += phase.reads
        d_ys: list[list[Value]] = []
        for k in y_cts:
            parts = sources[p, k - n]
            mine += parts
            d_ys.append([back.param(body.results[k].type) for _ in parts])
        free += _slices(back, [q.type for q in body.params[n + r :]], body.params[n + r :])
        d_out = []
        for parts_of in d_ys:
            total_ct = parts_of[0]
            for other in parts_of[1:]:
                total_ct = back.add(total_ct, other)
            d_out.append(total_ct)
        grads = pull.cotangents(back, kept, free, [*d_carry, *d_out])
        results = [grads[k] if k in grads else back.zeros(body.results[k].type) for k in carried]
        results += [back.add(s, grads[k]) for s, k in zip(d_sums, sums)]
        at = len(blocks)
        for y, k in enumerate([k for k in pull.wrt if n <= k < n + r]):
            sources.setdefault(phase.reads[k - n], []).append((at, y))
            results.append(grads[k])
        init: list[Value] = []
        for i, k in enumerate(carried):
            ct = cts[phase.first + k]
            init.append(b.zeros(body.results[k].type) if ct is None else ct)
            if k in pull.wrt:
                places.append((phase.first + k, total + i))
        for i, k in enumerate(sums):
            init.append(b.zeros(body.params[k].type))
            sums_of.setdefault(n_operands + k - n - r, []).append(total + len(carried) + i)
        blocks.append(back.block(results))
        carries.append(init)
        reads.append(mine)
        directions.append(not phase.reverse)
        total += len(init)
    made = emit_while(b, without_guards(op.regions[0]), blocks, carries, consts, reads, directions)
    any_masked = any(pull.masked for pull in pulls.values())
    for position, at in places:
        found[position] = made.results[at]
    for position, parts_at in sums_of.items():
        value = made.results[parts_at[0]]
        for at in parts_at[1:]:
            value = b.add(value, made.results[at])
        found[position] = value
    if any_masked:
        for ct in found:
            if ct is not None:
                b.mask(ct)
    return found
