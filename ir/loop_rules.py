"""Simplification of operations with regions: ``specialise``, ``hoist`` (both used by the
rewriter while it walks) and the pass ``prune``.

``specialise``  moves constant operands into the regions, merges equal operands, and makes
                consts of carries that are handed on unchanged and of xs that are the same
                at every step.
``hoist``       takes computations on consts alone out of a loop, and ys that do not change.
``prune``       drops results that nobody uses, with the carries, operands and phases that
                only they need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tapec.ir.builder import Builder
from tapec.ir.core import Block, Dense, Function, Op, Value
from tapec.ir.dce import has_effect, live_ops
from tapec.ir.loop_index import renamed
from tapec.ir.loops import REGION_OPS, phases, scan_parts
from tapec.ir.opdef import OPS

__all__ = ["hoist", "prune", "specialise"]

_VIEWS = frozenset(("broadcast", "reshape", "slice", "transpose"))
_SMALL = 16


def _constant_op(v: Value) -> Op | None:
    op = v.op
    if op is None or op.name != "constant":
        return None
    if isinstance(op.attrs["value"], Dense) and v.type.size > _SMALL:
        return None
    return op


def _same_each_step(x: Value) -> tuple[Value, dict[str, Any] | None] | None:
    """The value of every step of a scanned operand, as (operand, attrs of a broadcast)."""
    op = x.op
    if op is None or op.name != "broadcast" or 0 in op.attrs["dims"]:
        return None
    source = op.operands[0]
    shape = x.type.shape[1:]
    if shape == source.type.shape:
        return source, None
    dims = tuple([d - 1 for d in op.attrs["dims"]])
    return source, {"shape": shape, "dims": dims}


def specialise(op: Op, operands: tuple[Value, ...]) -> tuple[Op, dict[int, Value]]:
    """An equivalent operation, and which old results are simply other values; the remaining
    results of the new operation are the remaining old ones, in order."""
    if op.name == "cond":
        return _specialise_cond(op, operands), {}
    if op.name == "scan":
        return _specialise_scan(op, operands)
    return _specialise_while(op, operands)


def _merge(
    operands: Sequence[Value], params: Sequence[Sequence[Value]]
) -> tuple[list[Value], list[int], list[dict[Value, Value]], list[list[Op]]]:
    """Consts without duplicates and constants: operands and positions that stay, and per
    region what replaces the others and the constants it needs."""
    kept: list[Value] = []
    stay: list[int] = []
    first: dict[Value, int] = {}
    envs: list[dict[Value, Value]] = [{} for _ in params]
    consts: list[list[Op]] = [[] for _ in params]
    for k, v in enumerate(operands):
        made = _constant_op(v)
        if made is not None:
            for env, new, ps in zip(envs, consts, params):
                inner = Op("constant", (), (v.type,), made.attrs)
                new.append(inner)
                env[ps[k]] = inner.results[0]
        elif v in first:
            for env, ps in zip(envs, params):
                env[ps[k]] = ps[first[v]]
        else:
            first[v] = k
            kept.append(v)
            stay.append(k)
    return kept, stay, envs, consts


def _apply(block: Block, params: list[Value], env: dict[Value, Value], consts: list[Op]) -> Block:
    if not env:
        return Block(params, block.ops, block.results)
    done = renamed(block, env)
    return Block(params, [*consts, *done.ops], done.results)


def _specialise_cond(op: Op, operands: tuple[Value, ...]) -> Op:
    kept, stay, envs, consts = _merge(operands[1:], [r.params for r in op.regions])
    if len(kept) == len(operands) - 1:
        return op
    regions = [
        _apply(r, [r.params[k] for k in stay], env, new)
        for r, env, new in zip(op.regions, envs, consts)
    ]
    return _made(op, (operands[0], *kept), op.attrs, regions)


def _specialise_scan(op: Op, operands: tuple[Value, ...]) -> tuple[Op, dict[int, Value]]:
    (body,) = op.regions
    carry, xs, given = scan_parts(op, operands)
    c_params, x_params, k_params = scan_parts(op, body.params)
    known: dict[int, Value] = {}
    env: dict[Value, Value] = {}
    first: list[Op] = []
    results = list(body.results)
    keep_c = []
    for j, p in enumerate(c_params):
        if results[j] is p:
            given.append(carry[j])
            k_params.append(p)
            known[j] = carry[j]
        else:
            keep_c.append(j)
    keep_x = []
    seen: dict[Value, Value] = {}
    for j, (p, x) in enumerate(zip(x_params, xs)):
        same = _same_each_step(x)
        made = x.op if x.op is not None and x.op.name == "constant" else None
        if x in seen:
            env[p] = seen[x]
        elif same is not None:
            source, attrs = same
            inner = Value(source.type, None, p.hint)
            given.append(source)
            k_params.append(inner)
            if attrs is None:
                env[p] = inner
            else:
                wide = Op("broadcast", (inner,), (p.type,), attrs)
                first.append(wide)
                env[p] = wide.results[0]
        elif made is not None and not isinstance(made.attrs["value"], Dense):
            attrs = {"value": made.attrs["value"], "type": p.type}
            one = Op("constant", (), (p.type,), attrs)
            first.append(one)
            env[p] = one.results[0]
        else:
            keep_x.append(j)
            seen[x] = p
    kept, stay, envs, consts = _merge(given, [k_params])
    if len(kept) == len(given) and len(keep_c) == len(carry) and len(keep_x) == len(xs):
        return op, {}
    merged = envs[0]
    params = [c_params[j] for j in keep_c] + [x_params[j] for j in keep_x]
    params += [k_params[k] for k in stay]
    c = len(carry)
    inner_block = Block(body.params, body.ops, [results[j] for j in keep_c] + results[c:])
    # what a broadcast at the top reads may itself have been merged
    for k, o in enumerate(first):
        if not merged.keys().isdisjoint(o.operands):
            xs_now = tuple([merged[v] for v in o.operands])
            first[k] = Op(o.name, xs_now, (o.results[0].type,), o.attrs)
            env = {p: first[k].results[0] if v is o.results[0] else v for p, v in env.items()}
    env = {p: merged.get(v, v) for p, v in env.items()}
    block = _apply(inner_block, params, {**env, **merged}, [*consts[0], *first])
    attrs = {**op.attrs, "n_carry": len(keep_c), "n_xs": len(keep_x)}
    new = _made(op, (*[carry[j] for j in keep_c], *[xs[j] for j in keep_x], *kept), attrs, [block])
    return new, known


def _specialise_while(op: Op, operands: tuple[Value, ...]) -> tuple[Op, dict[int, Value]]:
    n = sum(op.attrs["n_carry"])
    regions = op.regions
    k_params = [list(r.params[len(r.params) - (len(operands) - n) :]) for r in regions]
    if len(operands) == n:
        k_params = [[] for _ in regions]
    kept, stay, envs, consts = _merge(operands[n:], k_params)
    if len(kept) == len(operands) - n:
        return op, {}
    blocks = []
    for r, ks, env, new in zip(regions, k_params, envs, consts):
        head = list(r.params[: len(r.params) - len(ks)])
        blocks.append(_apply(r, [*head, *[ks[k] for k in stay]], env, new))
    return _made(op, (*operands[:n], *kept), op.attrs, blocks), {}


def _made(op: Op, operands: tuple[Value, ...], attrs: Any, regions: Sequence[Block]) -> Op:
    rule = OPS[op.name].infer_regions
    assert rule is not None
    types = rule(tuple([v.type for v in operands]), attrs, tuple(regions))
    return Op(op.name, operands, types, attrs, tuple(regions), op.loc)


# -- loop-invariant code ----------------------------------------------------------------


def hoist(
    op: Op, emit: Callable[[Op, tuple[Value, ...]], Value], b: Builder
) -> tuple[Op, dict[int, Value]]:
    """``op`` without loop-invariant code, which ``emit`` puts before it."""
    if op.name == "cond" or op.attrs.get("remat"):
        return op, {}
    first = sum(op.attrs["n_carry"]) if op.name == "while" else 0
    if op.name == "scan":
        first = op.attrs["n_carry"] + op.attrs["n_xs"]
    consts = list(op.operands[first:])
    n = len(consts)
    added: list[Value] = []
    blocks: list[Block] = []
    new_params: list[list[Value]] = []
    moved = False
    for region in op.regions:
        params = region.params[len(region.params) - n :] if n else ()
        outside: dict[Value, Value] = dict(zip(params, consts))
        worth = _worth_moving(region, set(params))
        env: dict[Value, Value] = {}
        mine: list[Value] = []
        ops: list[Op] = []
        for inner in region.ops:
            if inner in worth:
                operands = tuple([_outside(v, outside, emit) for v in inner.operands])
                outside[inner.results[0]] = emit(inner, operands)
                moved = True
            else:
                ops.append(inner)
        used = {v for o in ops for v in o.operands} | set(region.results)
        for o in region.ops:
            if o in worth and o.results[0] in used:
                r = o.results[0]
                env[r] = Value(r.type, None, r.hint)
                mine.append(env[r])
                added.append(outside[r])
        new_params.append(mine)
        blocks.append(
            renamed(Block(region.params, ops, region.results), env)
            if env
            else Block(region.params, ops, region.results)
        )
    known: dict[int, Value] = {}
    if moved:
        finished = []
        for k, block in enumerate(blocks):
            more: list[Value] = []
            for j, mine in enumerate(new_params):
                more += mine if j == k else [Value(v.type, None, v.hint) for v in mine]
            finished.append(Block([*block.params, *more], block.ops, block.results))
        op = _made(op, (*op.operands, *added), op.attrs, finished)
    if op.name == "scan":
        op, known = _fixed_ys(op, b)
    return op, known


def _outside(
    v: Value, outside: dict[Value, Value], emit: Callable[[Op, tuple[Value, ...]], Value]
) -> Value:
    found = outside.get(v)
    if found is None:  # a constant of the region
        assert v.op is not None
        found = outside[v] = emit(v.op, ())
    return found


def _worth_moving(region: Block, consts: set[Value]) -> set[Op]:
    """Operations on consts alone, as far as they compute something."""
    known = set(consts)
    fixed: list[Op] = []
    constants: set[Value] = set()
    for op in region.ops:
        if op.name in ("constant", "iota"):
            constants.add(op.results[0])
            continue
        if (
            not op.regions
            and len(op.results) == 1
            and not OPS[op.name].effect
            and all(v in known or v in constants for v in op.operands)
            and any(v in known for v in op.operands)
        ):
            known.add(op.results[0])
            fixed.append(op)
    worth: set[Op] = set()
    needed: set[Value] = set()
    for op in reversed(fixed):
        r = op.results[0]
        if op.name not in _VIEWS or r in needed or r.type.size <= _SMALL:
            worth.add(op)
            needed.update(op.operands)
    return worth


def _fixed_ys(op: Op, b: Builder) -> tuple[Op, dict[int, Value]]:
    """Stacked results that are one const at every step become broadcasts."""
    (body,) = op.regions
    c, x = op.attrs["n_carry"], op.attrs["n_xs"]
    consts = dict(zip(body.params[c + x :], op.operands[c + x :]))
    known: dict[int, Value] = {}
    keep = []
    for k, r in enumerate(body.results[c:]):
        v = consts.get(r)
        if v is None:
            keep.append(k)
        else:
            shape = op.results[c + k].type.shape
            known[c + k] = b.broadcast(v, shape, range(1, len(shape)))
    if not known:
        return op, known
    results = [*body.results[:c], *[body.results[c + k] for k in keep]]
    return _made(op, op.operands, op.attrs, [Block(body.params, body.ops, results)]), known


# -- unused results ---------------------------------------------------------------------


def prune(fn: Function) -> Function:
    """``fn`` without what its regions compute for nobody; ``fn`` itself if it has no regions."""
    if not any(op.name in REGION_OPS for op in fn.ops):
        return fn
    block = _pruned(fn.block)
    return Function(fn.name, fn.params, block.ops, block.results)


def _pruned(block: Block) -> Block:
    live = set(block.results)
    kept: list[tuple[Op, Op, list[int]]] = []  # old, new, positions of the kept results
    for op in reversed(block.ops):
        used = [r in live for r in op.results]
        if not any(used) and not has_effect(op):
            continue
        new, positions = op, list(range(len(op.results)))
        if op.name in REGION_OPS:
            shrink = {"cond": _shrink_cond, "scan": _shrink_scan, "while": _shrink_while}
            new, positions = shrink[op.name](op, used)
        live.update(new.operands)
        kept.append((op, new, positions))
    env: dict[Value, Value] = {}
    ops: list[Op] = []
    for old, new, positions in reversed(kept):
        if new is not old or not env.keys().isdisjoint(new.operands):
            operands = tuple([env.get(v, v) for v in new.operands])
            if operands != new.operands or new is old:
                types = tuple([r.type for r in new.results])
                new = Op(new.name, operands, types, new.attrs, new.regions, new.loc)
            for at, r in zip(positions, new.results, strict=True):
                r.hint = old.results[at].hint
                env[old.results[at]] = r
        ops.append(new)
    return Block(block.params, ops, [env.get(v, v) for v in block.results])


def _uses(block: Block) -> set[Value]:
    return {v for op in block.ops for v in op.operands} | set(block.results)


def _shrink_cond(op: Op, used: list[bool]) -> tuple[Op, list[int]]:
    keep = [k for k, u in enumerate(used) if u]
    blocks = [_pruned(Block(r.params, r.ops, [r.results[k] for k in keep])) for r in op.regions]
    uses = [_uses(block) for block in blocks]
    args = [
        j
        for j in range(len(op.operands) - 1)
        if any(block.params[j] in u for block, u in zip(blocks, uses))
    ]
    blocks = [Block([r.params[j] for j in args], r.ops, r.results) for r in blocks]
    operands = (op.operands[0], *[op.operands[j + 1] for j in args])
    return _made(op, operands, op.attrs, blocks), keep


def _shrink_scan(op: Op, used: list[bool]) -> tuple[Op, list[int]]:
    (body,) = op.regions
    c, x = op.attrs["n_carry"], op.attrs["n_xs"]
    wanted = {k for k, u in enumerate(used) if u}
    while True:
        keep = sorted(wanted)
        block = _pruned(Block(body.params, body.ops, [body.results[k] for k in keep]))
        uses = _uses(block)
        more = {j for j in range(c) if body.params[j] in uses} - wanted
        if not more:
            break
        wanted |= more
    # a carry that only its own start needs (it is overwritten) stays: its result is used
    params = [j for j, p in enumerate(body.params) if (j in wanted if j < c else p in uses)]
    attrs = {
        **op.attrs,
        "n_carry": sum(1 for j in params if j < c),
        "n_xs": sum(1 for j in params if c <= j < c + x),
    }
    block = Block([body.params[j] for j in params], block.ops, block.results)
    operands = tuple([op.operands[j] for j in params])
    return _made(op, operands, attrs, [block]), keep


def _shrink_while(op: Op, used: list[bool]) -> tuple[Op, list[int]]:
    loops = phases(op)
    n = sum(op.attrs["n_carry"])
    test = op.regions[0]
    wanted: list[set[int]] = [{k for k in range(p.n_carry) if used[p.first + k]} for p in loops]
    read: list[set[int]] = [set() for _ in loops]
    test_uses = _uses(Block(test.params, live_ops(test.ops, test.results), test.results))
    wanted[0] |= {k for k in range(loops[0].n_carry) if test.params[k] in test_uses}
    blocks: dict[int, Block] = {}
    slices: dict[int, list[int]] = {}
    for p in reversed(range(len(loops))):
        phase = loops[p]
        c, r = phase.n_carry, len(phase.reads)
        body = phase.body
        if p and not wanted[p] and not read[p]:
            continue
        while True:
            results = [body.results[k] for k in sorted(wanted[p])]
            results += [body.results[c + y] for y in sorted(read[p])]
            block = _pruned(Block(body.params, body.ops, results))
            uses = _uses(block)
            more = {k for k in range(c) if body.params[k] in uses} - wanted[p]
            if not more:
                break
            wanted[p] |= more
        blocks[p] = block
        slices[p] = [i for i in range(r) if body.params[c + i] in uses]
        for i in slices[p]:
            q, y = phase.reads[i]
            read[q].add(y)
    alive = sorted(blocks)
    number = {p: i for i, p in enumerate(alive)}
    used_consts: set[int] = set()
    all_blocks = [(test, loops[0].n_carry)]
    all_blocks += [(blocks[p], loops[p].n_carry + len(loops[p].reads)) for p in alive]
    for block, first in all_blocks:
        uses = _uses(block) if block is not test else test_uses
        used_consts |= {k for k, v in enumerate(block.params[first:]) if v in uses}
    consts = sorted(used_consts)

    def params(block: Block, head: list[int], first: int) -> list[Value]:
        return [block.params[k] for k in head] + [block.params[first + k] for k in consts]

    c0 = loops[0].n_carry
    regions = [Block(params(test, sorted(wanted[0]), c0), test.ops, test.results)]
    reads, operands, keep = [], [], []
    for p in alive:
        phase, block = loops[p], blocks[p]
        c, r = phase.n_carry, len(phase.reads)
        head = sorted(wanted[p]) + [c + i for i in slices[p]]
        regions.append(Block(params(block, head, c + r), block.ops, block.results))
        places = [phase.reads[i] for i in slices[p]]
        reads.append(tuple([(number[q], sorted(read[q]).index(y)) for q, y in places]))
        keep += [phase.first + k for k in sorted(wanted[p])]
    operands = [op.operands[k] for k in keep] + [op.operands[n + k] for k in consts]
    attrs = {
        "n_carry": tuple([len(wanted[p]) for p in alive]),
        "reads": tuple(reads),
        "reverse": tuple([loops[p].reverse for p in alive]),
    }
    return _made(op, tuple(operands), attrs, regions), keep
