"""From a recorded graph to native programs.

``lower`` replays the states of a graph on a ``Tape`` and lifts them to an IR function;
``forward_plan`` compiles that, ``backward_plan`` differentiates it first.  A value that takes
part in differentiation and also feeds something that must not (``detach``, ``no_grad``) is
lowered twice, once from inactive copies of the inputs; the copies are identified again after
differentiation, so nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tapec import options
from tapec.ir.core import Function, Op, Type, Value
from tapec.tensors.graph import Graph, State, TensorIndexError, count
from tapec.tensors.parts import OfPairs, complex_value, parameter, program_value

if TYPE_CHECKING:
    from tapec.tensors.rules import Rule

__all__ = [
    "Backward", "Forward", "backward_plan", "derivative_records", "forward_plan", "lower", "native",
]  # fmt: skip

Array = np.ndarray[Any, Any]


class _Lowered:
    """An IR function with what its parameters and some of its values stand for."""

    __slots__ = ("active", "fn", "inputs", "known", "shadow")

    def __init__(
        self,
        fn: Function,
        inputs: list[int],
        known: list[int],
        active: list[int],
        shadow: list[tuple[int, int]],
    ) -> None:
        self.fn = fn
        self.inputs = inputs  # value indices of input parameters, in order
        self.known = known  # then those of values that are given
        self.active = active  # parameter positions that carry derivatives
        self.shadow = shadow  # (parameter, the one it copies)


def lower(
    states: Sequence[State],
    outs: Sequence[int],
    given: Sequence[int] = (),
    differentiate: bool = False,
    name: str = "tensors",
) -> _Lowered:
    """The values ``outs`` as a function of the inputs and of the values ``given``.

    With ``differentiate``, derivatives flow only through values that require grad."""
    from tapec.lift import lift
    from tapec.tape import Tape
    from tapec.tensors.rules import RULES

    cut = set(given)
    # (index, active): what is needed
    need: set[tuple[int, bool]] = set()
    todo = [(k, differentiate and states[k].requires) for k in outs]
    while todo:
        item = todo.pop()
        if item in need:
            continue
        need.add(item)
        k, active = item
        if k in cut:
            continue
        for j in states[k].operands:
            if j.__class__ is int:
                todo.append((j, active and states[j].requires))
    order = sorted(need)
    env: dict[tuple[int, bool], Any] = {}
    inputs: list[int] = []
    known: list[int] = []
    params: dict[tuple[int, bool], int] = {}
    with Tape(name) as tape:

        def param(k: int, active: bool, where: list[int]) -> None:
            type = states[k].type
            held = states[k].attrs
            weak = states[k].op == "input" and held.weak
            params[k, active] = len(params)
            env[k, active] = parameter(tape, type, weak)
            where.append(k)

        for k, active in order:
            if k not in cut and states[k].op == "input":
                param(k, active, inputs)
        for k, active in order:
            if k in cut:
                param(k, active, known)
        blocks: dict[Any, list[Any]] = {}
        for k, active in order:
            if (k, active) in env:
                continue
            state = states[k]
            args = [
                env[j, active and states[j].requires] if j.__class__ is int else j.value
                for j in state.operands
            ]
            if state.op == "ir":
                key = (id(state.attrs), tuple([id(a) for a in args]))
                found = blocks.get(key)
                if found is None:
                    found = blocks[key] = inlined(tape, state.attrs, args)
                env[k, active] = found
            else:
                rule: Rule = RULES[state.op]
                env[k, active] = rule.lower(tape, args, state.attrs)
        results = [env[k, differentiate and states[k].requires] for k in outs]
        fn = lift(tape, [program_value(v) for v in results], name)
    actives = [at for (k, active), at in params.items() if active]
    shadow = [
        (at, params[k, True])
        for (k, active), at in params.items()
        if not active and (k, True) in params
    ]
    return _Lowered(fn, inputs, known, actives, shadow)


def inline(tape: Any, fn: Function, args: Sequence[Any]) -> list[Any]:
    """Put the operations of ``fn`` on a tape; tracers of its results."""
    from tapec.source import NOWHERE

    env: dict[Value, int] = {p: a.id for p, a in zip(fn.params, args, strict=True)}
    records = tape.records
    for op in fn.ops:
        at = len(records)
        types = tuple([r.type for r in op.results])
        records.append((op.name, tuple([env[v] for v in op.operands]), op.attrs, types, NOWHERE))
        records.extend([None] * (len(types) - 1))
        for k, r in enumerate(op.results):
            env[r] = at + k
    return [tape.handle(env[r]) for r in fn.results]


def inlined(tape: Any, fn: Function, args: Sequence[Any]) -> Any:
    """The result of a recorded pullback on values as the rules have them."""
    (found,) = inline(tape, fn, [program_value(a) for a in args])
    return complex_value(found) if isinstance(fn, OfPairs) else found


# -- programs ---------------------------------------------------------------------------


def native(fn: Function, params: Sequence[Type], results: Sequence[Type]) -> Any:
    """A callable over arrays, one per parameter, that returns a tuple of new arrays.

    ``params``, ``results``: their types for the caller (complex arrays are pairs in ``fn``)."""
    count(compiled=1)
    if options.backend() == "interpret":
        from tapec.ir.interp import GuardFailed, interpret

        def interpreted(*arrays: Array) -> tuple[Array, ...]:
            given = [_view(a, p.type) for a, p in zip(arrays, fn.params)]
            try:
                found = interpret(fn, given)
                return tuple([_view(np.array(r), t) for r, t in zip(found, results)])
            except GuardFailed:
                raise TensorIndexError("index out of range in a recorded operation") from None

        return interpreted
    from tapec.backend import RELEASE_GIL_NS
    from tapec.codegen.abi import MISS, Arg, EntrySpec, Result, build_variant
    from tapec.codegen.kernel import compile_kernel

    source = compile_kernel(fn)
    n = len(fn.results)
    spec = EntrySpec(
        tuple([Arg("array", t) for t in params]),
        tuple([Result("array", t) for t in results]),
        tuple(range(n)),
        0,
        source.workspace_bytes,
        source.work_ns > RELEASE_GIL_NS,
    )
    opt = options.opt_level()
    level = source.opt if opt is None else opt
    variant = build_variant(source.text, spec, source.symbols, level)
    call = variant.call

    def run(*arrays: Array) -> tuple[Array, ...]:
        result = call(*arrays)
        if result is MISS:
            _explain(fn, params, arrays)
        return result  # type: ignore[no-any-return]

    if not any(op.name == "guard" for op in fn.ops):
        call(*[np.zeros(t.shape, t.dtype.np) for t in params])
        direct = variant._caller
        direct_run = _checked(direct, MISS, fn, params)
        direct_run.variant = variant
        return direct_run
    return run


def _view(array: Array, type: Type) -> Array:
    """The memory of a complex array as pairs, or the reverse."""
    if array.shape == type.shape:
        return array
    return np.ascontiguousarray(array).view(type.dtype.np).reshape(type.shape)


def _checked(direct: Any, miss: Any, fn: Function, params: Sequence[Type]) -> Any:
    def run(*arrays: Array) -> tuple[Array, ...]:
        result = direct(*arrays)
        if result is miss:
            _explain(fn, params, arrays)
        return result  # type: ignore[no-any-return]

    return run


def _explain(fn: Function, params: Sequence[Type], arrays: Sequence[Any]) -> None:
    from tapec.errors import InternalError

    for t, a in zip(params, arrays):
        if type(a) is not np.ndarray or a.dtype != t.dtype.np or a.shape != t.shape:
            raise InternalError(f"a tensor program got {type(a)} for {t}")
    for op in fn.ops:
        if op.name == "guard":
            raise TensorIndexError(f"{op.attrs['message'] or 'index out of range'}")
    raise InternalError("a tensor program declined its own arguments")


def _used(fn: Function) -> tuple[Function, list[int]]:
    """``fn`` with only the parameters that it uses, and their positions."""
    used = set(fn.results)
    for op in fn.ops:
        used.update(op.operands)
    keep = [k for k, p in enumerate(fn.params) if p in used]
    return Function(fn.name, [fn.params[k] for k in keep], fn.ops, fn.results), keep


class Forward:
    """A program for values; ``run`` gives arrays in the order of the outputs."""

    __slots__ = ("call", "inputs", "known", "order")

    def __init__(self, states: Sequence[State], outs: Sequence[int], given: Sequence[int]) -> None:
        from tapec.ir.passes import run_passes

        low = lower(states, outs, given)
        fn, keep = _used(run_passes(low.fn, ["simplify"]))
        self.inputs, self.known, self.order = _sources(states, low, keep)
        types = [states[k].type for k in (*low.inputs, *low.known)]
        self.call = native(fn, [types[k] for k in keep], [states[k].type for k in outs])

    def run(self, g: Graph, extra: Sequence[Array]) -> tuple[Array, ...]:
        count(runs=1)
        return self.call(*arguments(g, self.inputs, self.known, self.order))  # type: ignore[no-any-return]


def _numbers(states: Sequence[State]) -> dict[int, int]:
    """Value index → number of the input."""
    inputs = [s.index for s in states if s.op == "input"]
    return {k: n for n, k in enumerate(inputs)}


def _sources(
    states: Sequence[State], low: _Lowered, keep: Sequence[int]
) -> tuple[list[int], list[int], Any]:
    """Input numbers, indices of given values, of the kept parameters."""
    at = [*low.inputs, *low.known]
    numbers = _numbers(states)
    n = len(low.inputs)
    inputs = [numbers[at[k]] for k in keep if k < n]
    known = [at[k] for k in keep if n <= k < len(at)]
    return inputs, known, [k for k in keep if k >= len(at)]


def arguments(
    g: Graph, inputs: Sequence[int], known: Sequence[int], order: Any = None
) -> list[Array]:
    """The arrays of inputs and of given values of a graph."""
    held = g.inputs
    args = [held[k] for k in inputs]
    for a in args:
        if a.__class__ is tuple:
            g.resolve(inputs)
            args = [held[k] for k in inputs]
            break
    if known:
        g.evaluate(known)
        args += [g.values[k] for k in known]
    return args


def forward_plan(states: Sequence[State], outs: Sequence[int], given: Sequence[int]) -> Forward:
    return Forward(states, outs, given)


class Backward:
    """A program for values at ``roots`` and gradients at ``inputs`` and ``cuts``.

    ``grads`` lists where each gradient belongs: ``(True, input number)`` or
    ``(False, index of a cut)``.  Arguments of ``call``: inputs, given values, seeds.
    """

    __slots__ = ("call", "fn", "grads", "inputs", "known", "leaves_only", "roots", "seeds")

    def __init__(
        self,
        states: Sequence[State],
        roots: tuple[int, ...],
        seeded: bool,
        cuts: tuple[int, ...],
        targets: frozenset[int] | None,
    ) -> None:
        fn, low, where = _derivative(states, roots, seeded, cuts, targets)
        self.roots = roots
        kept, keep = _used(fn)
        self.inputs, self.known, seeds = _sources(states, low, keep)
        total = len(low.inputs) + len(low.known)
        self.seeds = [k - total for k in seeds]
        self.grads = where
        self.leaves_only = not cuts
        types = [states[k].type for k in (*low.inputs, *low.known, *(roots if seeded else ()))]
        at = [s.index for s in states if s.op == "input"]
        grads = [states[at[k] if is_input else k].type for is_input, k in where]
        results = [*[states[k].type for k in roots], *grads]
        self.call = native(kept, [types[k] for k in keep], results)

    def run(self, g: Graph, seeds: Sequence[Array]) -> tuple[Array, ...]:
        args = arguments(g, self.inputs, self.known)
        count(runs=1)
        if self.seeds:
            args += [seeds[k] for k in self.seeds]
        return self.call(*args)  # type: ignore[no-any-return]


def reachable(
    states: Sequence[State], roots: Sequence[int], cuts: frozenset[int]
) -> tuple[list[int], list[int]]:
    """Inputs and cuts that gradients from ``roots`` arrive at, as value indices."""
    seen: set[int] = set()
    inputs: list[int] = []
    stops: list[int] = []
    todo = []
    for r in roots:
        if not states[r].requires:
            continue
        if states[r].op == "input":
            todo.append(r)
        else:
            todo.extend(_differentiable_operands(states, r))
    while todo:
        k = todo.pop()
        if k in seen:
            continue
        seen.add(k)
        if k in cuts:
            stops.append(k)
        elif states[k].op == "input":
            inputs.append(k)
        else:
            todo.extend(_differentiable_operands(states, k))
    return sorted(inputs), sorted(stops)


def _differentiable_operands(states: Sequence[State], k: int) -> list[int]:
    from tapec.tensors.rules import RULES

    state = states[k]
    stop = RULES[state.op].fixed if state.op != "ir" else ()
    return [
        j
        for n, j in enumerate(state.operands)
        if j.__class__ is int and states[j].requires and n not in stop
    ]


def _derivative(
    states: Sequence[State],
    roots: tuple[int, ...],
    seeded: bool,
    cuts: tuple[int, ...],
    targets: frozenset[int] | None,
    simplified: bool = True,
) -> tuple[Function, _Lowered, list[tuple[bool, int]]]:
    """Values of ``roots`` and gradients, as a function of inputs, given values and seeds."""
    from tapec.ir.passes import run_passes
    from tapec.ir.vjp import vjp

    found, stops = reachable(states, roots, frozenset(cuts))
    stops = [k for k in stops if targets is None or k in targets]
    found = [k for k in found if targets is None or k in targets]
    given = [k for k in cuts if k not in roots]
    low = lower(states, roots, given, differentiate=True)
    n = len(roots)
    fn = run_passes(low.fn, ["simplify"]) if simplified else low.fn
    params = [*low.inputs, *low.known]
    position = {params[at]: at for at in low.active}
    wanted = [*found, *stops]
    wrt = [position[k] for k in wanted]
    grad = vjp(fn, wrt, list(range(n)), seeds=seeded)
    if low.shadow:
        grad = _merged(grad, low.shadow)
    if simplified:
        grad = run_passes(grad, ["simplify"])
    numbers = _numbers(states)
    where = [(True, numbers[k]) for k in found] + [(False, k) for k in stops]
    return grad, low, where


def _merged(fn: Function, shadow: Sequence[tuple[int, int]]) -> Function:
    """``fn`` with the parameters that are copies replaced by the originals."""
    env: dict[Value, Value] = {fn.params[a]: fn.params[b] for a, b in shadow}
    ops = []
    for op in fn.ops:
        for v in op.operands:
            if v in env:
                break
        else:
            ops.append(op)
            continue
        types = tuple([r.type for r in op.results])
        hint = op.results[0].hint if op.results else None
        operands = tuple([env.get(v, v) for v in op.operands])
        new = Op(op.name, operands, types, op.attrs, op.regions, op.loc, hint)
        ops.append(new)
        env.update(zip(op.results, new.results))
    return Function(fn.name, fn.params, ops, [env.get(v, v) for v in fn.results])


def backward_plan(
    states: Sequence[State],
    roots: tuple[int, ...],
    seeded: bool,
    cuts: tuple[int, ...] = (),
    targets: frozenset[int] | None = None,
) -> Backward:
    return Backward(states, roots, seeded, cuts, targets)


# -- derivatives as records ---------------------------------------------------------------


class Derivative:
    """Gradients as functions of values of a graph: what ``create_graph`` records.

    ``pieces``: per gradient ``(input?, where, function, operands)``; an operand is
    ``(value index, detached)`` or ``(-1 - seed number, False)``."""

    __slots__ = ("pieces",)

    def __init__(self, pieces: list[tuple[bool, int, Function, list[tuple[int, bool]]]]) -> None:
        self.pieces = pieces


def derivative_records(
    states: Sequence[State],
    roots: tuple[int, ...],
    cuts: tuple[int, ...],
    targets: frozenset[int] | None,
) -> Derivative:
    """The pullback of ``roots`` in terms of recorded values."""
    from tapec.ir.passes import run_passes
    from tapec.ir.vjp import vjp

    found, stops = reachable(states, roots, frozenset(cuts))
    wanted = [k for k in (*found, *stops) if targets is None or k in targets]
    given = [k for k in cuts if k not in roots]
    upto = max(roots) + 1
    needed = _closure(states, roots, given)
    outs = [k for k in range(upto) if k in needed]
    low = lower(states, outs, given, differentiate=True)
    fn = low.fn
    params = [*low.inputs, *low.known]
    position = {params[at]: at for at in low.active}
    where = [outs.index(r) for r in roots]
    selected = [fn.results[k] for k in where]
    inner = Function(fn.name, fn.params, fn.ops, selected)
    grad = vjp(inner, [position[k] for k in wanted], list(range(len(roots))), seeds=True)
    known: dict[Value, tuple[int, bool]] = {}
    actives = set(low.active)
    for at, k in enumerate(params):
        known[fn.params[at]] = (k, at not in actives and states[k].requires)
    for k, v in zip(outs, fn.results):
        known.setdefault(v, (k, False))
    seeds = grad.params[len(fn.params) :]
    for n, s in enumerate(seeds):
        known[s] = (-1 - n, False)
    numbers = _numbers(states)
    pieces = []
    for k, v in zip(wanted, grad.results[len(roots) :]):
        ops: list[Op] = []
        frontier: dict[Value, None] = {}
        if v in known:
            frontier[v] = None
        else:
            live = live_ops_until(grad.ops, v, known)
            ops = live
            for op in live:
                for o in op.operands:
                    if o in known:
                        frontier.setdefault(o)
        operands = [known[o] for o in frontier]
        piece = _renamed(ops, list(frontier), v)
        piece = run_passes(piece, ["simplify"])
        kept, keep = _used(piece)
        operands = [operands[n] for n in keep]
        if states[k].type.dtype.kind == "c":
            kept = OfPairs(kept.name, kept.params, kept.ops, kept.results)
        is_input = states[k].op == "input" and k not in cuts
        pieces.append((is_input, numbers[k] if is_input else k, kept, operands))
    return Derivative(pieces)


def _closure(states: Sequence[State], roots: Sequence[int], given: Sequence[int]) -> set[int]:
    seen: set[int] = set()
    todo = list(roots)
    stop = set(given)
    while todo:
        k = todo.pop()
        if k in seen:
            continue
        seen.add(k)
        if k not in stop:
            todo.extend(j for j in states[k].operands if j.__class__ is int)
    return seen


def live_ops_until(ops: Sequence[Op], v: Value, known: dict[Value, Any]) -> list[Op]:
    """The operations that ``v`` needs, back to the values that are known."""
    live = {v}
    kept = []
    for op in reversed(ops):
        if not live.isdisjoint(op.results):
            if all(r in known for r in op.results):
                continue
            kept.append(op)
            live.update(o for o in op.operands if o not in known)
    kept.reverse()
    return kept


def _renamed(ops: Sequence[Op], frontier: Sequence[Value], v: Value) -> Function:
    """A function of its own from operations that are shared with another."""
    env: dict[Value, Value] = {o: Value(o.type, None, o.hint) for o in frontier}
    params = list(env.values())
    out = []
    for op in ops:
        types = tuple([r.type for r in op.results])
        hint = op.results[0].hint if op.results else None
        new = Op(
            op.name, tuple([env[o] for o in op.operands]), types, op.attrs, op.regions, op.loc, hint
        )
        out.append(new)
        env.update(zip(op.results, new.results))
    return Function("pullback", params, out, [env[v]])
