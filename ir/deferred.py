"""Functions that are computed when their operations are asked for.

A transform of a large program takes longer than loading the machine code of the result, which
may lie on disk.  ``simplify``, ``vjp``, ``jvp``, ``select`` and ``reorder`` here are those of the
other modules, but return a ``Deferred``: a ``Function`` that knows its types, and its *recipe*,
at once, and its block at the first use of ``block``, ``params``, ``ops`` or ``results``.

Invariant: equal recipes and equal base functions give equal functions.

>>> from tapec.ir.parser import parse
>>> f = parse("func @f(%x: f64[]) -> (f64[]) {\\n %y = sin %x : f64[]\\n return %y }")
>>> g = select(vjp(simplify(f), [0], [0], seeds=False), [1])
>>> result_types(g), g.recipe[0], g.ready
((f64[],), 'select', False)
>>> [op.name for op in simplify(g).ops]
['cos']
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tapec.ir.core import Block, Function, Type, Value

__all__ = [
    "Deferred", "factored", "interleave", "jvp", "origin", "param_types", "reorder",
    "result_types", "select", "simplify", "vjp",
]  # fmt: skip

Types = tuple[Type, ...]


class Deferred(Function):
    """See the module docstring.  ``base``: the function that the recipe starts from."""

    __slots__ = ("_made", "base", "make", "param_types", "recipe", "result_types")

    def __init__(
        self,
        source: Function,
        step: tuple[Any, ...],
        make: Callable[[Function], Function],
        params: Types,
        results: Types,
    ) -> None:
        self.name = source.name
        self.base, inner = origin(source)
        self.recipe = (*step, inner)
        self.make: Callable[[], Function] | None = lambda: make(source)
        self.param_types = params
        self.result_types = results
        self._made: dict[str, Block] = {}

    @property
    def ready(self) -> bool:
        """Whether the block has been computed."""
        return bool(self._made)

    @property
    def block(self) -> Block:  # type: ignore[override]
        make = self.make
        if make is not None:
            # Of two threads that compute it, both get the first one's.
            self._made.setdefault("block", make().block)
            self.make = None  # with the functions on the way
        return self._made["block"]

    def __repr__(self) -> str:
        if self.ready:
            return super().__repr__()
        return f"<Deferred @{self.name}{self.param_types} -> {self.result_types}>"


def origin(fn: Function) -> tuple[Function, tuple[Any, ...]]:
    """The function that ``fn`` is made from, and how."""
    return (fn.base, fn.recipe) if isinstance(fn, Deferred) else (fn, ())


def param_types(fn: Function) -> Types:
    """The types of the parameters, without computing a deferred function."""
    return fn.param_types if isinstance(fn, Deferred) else tuple([p.type for p in fn.params])


def result_types(fn: Function) -> Types:
    """The types of the results, without computing a deferred function."""
    return fn.result_types if isinstance(fn, Deferred) else tuple([r.type for r in fn.results])


# -- transforms -------------------------------------------------------------------------


def simplify(fn: Function) -> Function:
    """``run_passes(fn, ("simplify",))``."""

    def make(fn: Function) -> Function:
        from tapec.ir.passes import run_passes

        return run_passes(fn, ("simplify",))

    return Deferred(fn, ("simplify",), make, param_types(fn), result_types(fn))


def factored(fn: Function, primal: Function) -> Function:
    """``tapec.ir.factor.factored``, all that ``primal`` computes being primal values."""

    def make(fn: Function) -> Function:
        from tapec.ir.factor import factored

        return factored(fn, [r for op in primal.ops for r in op.results])

    return Deferred(fn, ("factored",), make, param_types(fn), result_types(fn))


def vjp(
    fn: Function, wrt: Sequence[int], outputs: Sequence[int], *, seeds: bool = True
) -> Function:
    """``tapec.ir.vjp.vjp``."""
    params, results = param_types(fn), result_types(fn)
    wrt, outputs = tuple(wrt), tuple(outputs)

    def make(fn: Function) -> Function:
        from tapec.ir.vjp import vjp

        return vjp(fn, wrt, outputs, seeds=seeds)

    seeded = tuple([results[i] for i in outputs]) if seeds else ()
    gradients = tuple([params[i] for i in wrt])
    return Deferred(fn, ("vjp", wrt, outputs, seeds), make, params + seeded, results + gradients)


def jvp(fn: Function, wrt: Sequence[int]) -> Function:
    """``tapec.ir.jvp.jvp``."""
    params, results = param_types(fn), result_types(fn)
    wrt = tuple(wrt)

    def make(fn: Function) -> Function:
        from tapec.ir.jvp import jvp

        return jvp(fn, wrt)

    tangents = tuple([params[i] for i in wrt])
    moved = tuple([t for t in results if t.dtype.is_inexact])
    return Deferred(fn, ("jvp", wrt), make, params + tangents, results + moved)


def select(fn: Function, indices: Sequence[int]) -> Function:
    """``fn`` with only these results."""
    indices = tuple(indices)
    results = result_types(fn)

    def make(fn: Function) -> Function:
        return Function(fn.name, fn.params, fn.ops, [fn.results[i] for i in indices])

    wanted = tuple([results[i] for i in indices])
    return Deferred(fn, ("select", indices), make, param_types(fn), wanted)


def reorder(fn: Function, order: Sequence[int]) -> Function:
    """``fn`` with parameter ``order[k]`` at place k."""
    order = tuple(order)
    params = param_types(fn)

    def make(fn: Function) -> Function:
        return Function(fn.name, [fn.params[i] for i in order], fn.ops, fn.results)

    wanted = tuple([params[i] for i in order])
    return Deferred(fn, ("reorder", order), make, wanted, result_types(fn))


def interleave(
    fn: Function,
    params: Sequence[tuple[int, int]],
    results: Sequence[tuple[int, int, bool]],
) -> Function:
    """``fn`` with one parameter of pairs, by a last axis of length 2, in place of two parameters
    each, and one such result for two: ``(i, j)`` become one at place i.  The second result of
    ``(i, j, True)`` is negated."""
    params, results = tuple(params), tuple(results)

    def make(fn: Function) -> Function:
        from tapec.ir.builder import Builder

        b = Builder()
        partner = dict(params)
        given: list[Value] = list(fn.params)
        second = set(partner.values())
        for k, p in enumerate(fn.params):
            if k in second:
                continue
            if k not in partner:
                given[k] = b.param(p.type, p.hint)
                continue
            shape = p.type.shape
            both = b.param(p.type.with_shape((*shape, 2)), p.hint)
            for half, place in enumerate((k, partner[k])):
                start = (*[0] * len(shape), half)
                part = b.slice(both, start, (*shape, 1), [1] * (len(shape) + 1))
                given[place] = b.reshape(part, shape)
        found = b.inline(fn, given)
        out = {i: (j, negated) for i, j, negated in results}
        gone = {j for j, _ in out.values()}
        made = []
        for k, z in enumerate(found):
            if k in gone:
                continue
            if k in out:
                j, negated = out[k]
                shape = (*z.type.shape, 1)
                im = b.neg(found[j]) if negated else found[j]
                z = b.concat([b.reshape(z, shape), b.reshape(im, shape)], len(shape) - 1)
            made.append(z)
        return b.function(fn.name, made)

    def merged(types: Types, first: set[int], second: set[int]) -> Types:
        wide = [t.with_shape((*t.shape, 2)) if k in first else t for k, t in enumerate(types)]
        return tuple([t for k, t in enumerate(wide) if k not in second])

    taken = merged(param_types(fn), {i for i, _ in params}, {j for _, j in params})
    given = merged(result_types(fn), {i for i, _, _ in results}, {j for _, j, _ in results})
    return Deferred(fn, ("interleave", params, results), make, taken, given)
