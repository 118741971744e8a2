"""Array-level rewriting that prepares a function for planning.

``call`` is inlined, and every ``dot`` becomes one of

- a product and a sum (no contraction, a plain inner product, or too small for a library call),
  which then fuses with its neighbours;
- a library call on strided operands (see ``gemm``), with a transpose of the result built in;
- itself, if it is small: it is then unrolled in registers.

A stack of stacks is one stack.  A reduction over very few elements is written out as elementwise
operations.
Decompositions of matrices are prepared by ``matrices``.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from tapec.codegen.gemm import FEW_TERMS, lower_dot
from tapec.codegen.matrices import expand_matrices
from tapec.codegen.places import Pieces, flattened
from tapec.codegen.plan import SMALL
from tapec.codegen.regions import is_scalar, products_of
from tapec.ir.builder import Builder
from tapec.ir.core import Block, Function, Op, Value
from tapec.ir.dce import dce, rebuilt
from tapec.ir.loops import body_function
from tapec.ir.opdef import OPS

__all__ = ["lower"]

_LOWERED = frozenset(("call", "dot", "place"))


def lower(fn: Function, unrolled: bool = False) -> Function:
    """See the module docstring.  ``unrolled``: the function is a region in registers, which leaves
    products with small matrices as they are."""
    fn = expand_matrices(fn)
    if not any(op.name in _LOWERED or op.regions or _few(op) for op in fn.ops):
        return fn
    uses = _uses(fn)
    alone, inner_places = _followed(fn, uses), _inner_places(fn, uses)
    streamed = _streamed(fn, uses)
    stacks: dict[Value, Pieces] = {}
    b = Builder()
    env: dict[Value, Value] = {}
    for p in fn.params:
        env[p] = b.param(p.type, p.hint)
    for op in fn.ops:
        operands = tuple([env.get(v, v) for v in op.operands])
        b.loc = op.loc
        if op.name == "call":
            block = op.regions[0]
            inner = Function("call", block.params, block.ops, block.results)
            results = b.inline(lower(inner, unrolled), operands)
            env.update(zip(op.results, results))
        elif op.name == "dot" and unrolled and products_of(op) is not None:
            env[op.results[0]] = b.append(op, operands).results[0]
        elif op.name == "dot":
            follow = alone.get(op.results[0])
            last = op.results[0] if follow is None else follow.results[0]
            value = lower_dot(b, op, operands[0], operands[1], follow, last in streamed)
            env[last] = value
        elif op.results and op.results[0] in env:
            continue  # the transpose after a product, the reshape of a diagonal
        elif op.name == "place" and op.results[0] in alone:
            matrix = alone[op.results[0]].results[0]
            env[matrix] = _diagonal_matrix(b, operands[0], matrix.type.shape)
        elif op.name == "place":
            pieces, at = flattened(b, op, operands, stacks)
            result = b.place(pieces, op.attrs["shape"], at)
            env[op.results[0]] = result
            if op.results[0] in inner_places:
                stacks[result] = pieces, at
        elif _few(op):
            env[op.results[0]] = _terms(b, op, operands[0])
        elif op.regions:
            scalar = is_scalar(op)
            new = rebuilt(op, operands, _lowered(op, scalar))
            if scalar and not is_scalar(new):
                new = rebuilt(op, operands, _lowered(op, False))
            b.ops.append(new)
            env.update(zip(op.results, new.results))
        else:
            env.update(zip(op.results, b.append(op, operands).results))
    lowered = b.function(fn.name, [env[r] for r in fn.results])
    return dce(lowered) if stacks else lowered


def _lowered(op: Op, unrolled: bool) -> tuple[Block, ...]:
    return tuple([lower(body_function(r), unrolled).block for r in op.regions])


_COMBINE = {
    "reduce_sum": "add",
    "reduce_prod": "mul",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_any": "or",
    "reduce_all": "and",
}


def _few(op: Op) -> bool:
    """Whether a reduction has so few terms that it is written out: as elementwise code it needs
    no loop of its own."""
    if op.name not in _COMBINE or op.operands[0].type.size <= SMALL:
        return False
    count = op.operands[0].type.size // max(op.results[0].type.size, 1)
    return 1 <= count <= FEW_TERMS


def _terms(b: Builder, op: Op, x: Value) -> Value:
    shape, axes = x.type.shape, op.attrs["axes"]
    size = [1 if j in axes else n for j, n in enumerate(shape)]
    kept = op.results[0].type.shape
    terms = []
    for index in np.ndindex(*[shape[j] for j in axes]):
        start = [0] * len(shape)
        for j, i in zip(axes, index):
            start[j] = int(i)
        terms.append(b.reshape(b.slice(x, start, size), kept))
    while len(terms) > 1:
        pairs = [b.emit(_COMBINE[op.name], pair) for pair in zip(terms[::2], terms[1::2])]
        terms = pairs + terms[2 * len(pairs) :]
    return terms[0]


def _on_diagonal(place: Op, shape: tuple[int, ...]) -> bool:
    """Whether a ``place`` that is reshaped to matrices of ``shape`` fills their diagonals: what
    the derivative of taking a diagonal does."""
    if len(place.operands) != 1 or len(shape) < 2 or place.results[0].type.size <= SMALL:
        return False
    *lead, m, n = shape
    ((start, step),) = place.attrs["at"]
    return (
        place.attrs["shape"] == (*lead, m * n)
        and place.operands[0].type.shape == (*lead, min(m, n))
        and not any(start)
        and step == (*[1] * len(lead), n + 1)
    )


def _diagonal_matrix(b: Builder, x: Value, shape: tuple[int, ...]) -> Value:
    """Elementwise code, which needs no memory, for a matrix with the diagonal ``x``."""
    last = len(shape) - 1
    full = b.broadcast(x, shape, (*range(last - 1), last - (shape[-2] <= shape[-1])))
    here = b.eq(b.iota(shape, last - 1), b.iota(shape, last))
    return b.select(here, full, b.zeros(full.type))


def _uses(fn: Function) -> Counter[Value]:
    uses = Counter(fn.results)
    for op in fn.ops:
        uses.update(op.operands)
        for region in op.regions:
            uses.update(region.results)
    return uses


#: Elementwise code of this cost needs the registers for itself.
DEAR = 10


def _streamed(fn: Function, uses: Counter[Value]) -> set[Value]:
    """Values whose only use is in cheap elementwise code."""
    found: set[Value] = set()
    dear: set[Value] = set()
    for op in reversed(fn.ops):
        definition = OPS[op.name]
        if not definition.elementwise:
            continue
        if definition.cost >= DEAR or op.results[0] in dear:
            dear.update(op.operands)
        else:
            found.update(v for v in op.operands if uses[v] == 1)
    return found


def _inner_places(fn: Function, uses: Counter[Value]) -> set[Value]:
    """Results of ``place`` whose only use is in another one, as they are or reshaped."""
    found = set()
    for op in fn.ops:
        if op.name == "place" and op.results[0].type.size > SMALL:
            for v in op.operands:
                if uses[v] == 1 and v.op is not None and v.op.name == "reshape":
                    v = v.op.operands[0]
                if uses[v] == 1 and v.op is not None and v.op.name == "place":
                    found.add(v)
    return found


def _followed(fn: Function, uses: Counter[Value]) -> dict[Value, Op]:
    """Results of ``dot`` whose only use is a transpose → that transpose; of a ``place`` of a
    diagonal → the reshape to a matrix."""
    found = {}
    for op in fn.ops:
        if op.name not in ("transpose", "reshape") or uses[op.operands[0]] != 1:
            continue
        before = op.operands[0].op
        if before is None:
            continue
        if op.name == "transpose":
            if before.name == "dot":
                found[op.operands[0]] = op
        elif before.name == "place" and _on_diagonal(before, op.results[0].type.shape):
            found[op.operands[0]] = op
    return found
