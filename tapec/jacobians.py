"""The blocks of a Jacobian as one IR function: ``blocks_of``.

Three ways, by size: straight-line code in which the zeros of each unit seed are known; the seeds as
a batch axis; or one product that is called once per seed (a *sweep*).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tapec.ir.builder import Builder
from tapec.ir.core import Function, Type, Value
from tapec.ir.deferred import simplify
from tapec.seeding import all_seeds, fits, small

__all__ = ["Blocks", "Sweep", "blocks_of", "select_results"]

#: Jacobians of at most this many columns (or rows) of functions of small arrays are one
#: straight-line function, in which zeros of the seeds are known; others have the columns as a
#: batch axis, or, if that takes too much memory, are swept by calling a compiled product once
#: per column.
UNROLL = 32
#: ... and only while the function stays below this many operations.
UNROLL_OPS = 20_000
#: As many directions as fit into vector registers: scalar code is compiled once for all of them.
VECTOR = range(5, 17)


class Sweep(NamedTuple):
    """How a Jacobian is put together from many calls of one compiled product.

    The program's function gives, for one-hot seeds, column ``j`` (``forward``) or row ``j``
    of every block.  ``seeds`` are the types that are seeded one element at a time;
    ``shapes[r]`` are the shapes of kernel result r's blocks, one per seed.
    """

    forward: bool
    seeds: tuple[Type, ...]


def select_results(fn: Function, indices: Sequence[int], name: str | None = None) -> Function:
    """``fn`` with only these results."""
    return Function(name or fn.name, fn.params, fn.ops, [fn.results[i] for i in indices])


class Blocks(NamedTuple):
    """A function whose results are all blocks (output-major), or a swept product."""

    fn: Function
    sweep: Sweep | None
    seeds: tuple[Type, ...]
    out_types: list[Type]
    in_types: list[Type]


def _one_hot(type: Type, k: int) -> np.ndarray[Any, Any]:
    seed = np.zeros(type.size, type.dtype.np)
    seed[k] = 1
    return seed.reshape(type.shape)


def blocks_of(
    fn: Function,
    wrt: Sequence[int],
    outputs: Sequence[int],
    forward: bool,
    inline: bool,
    symmetric: bool = False,
) -> Blocks:
    """Jacobian blocks d outputs[o] / d params[wrt[a]], result index ``o * len(wrt) + a``.

    ``symmetric``: the whole is (a Hessian): unrolled, only one triangle of it is computed.
    """
    from tapec.ir.jvp import jvp
    from tapec.ir.vjp import vjp

    out_types = [fn.results[i].type for i in outputs]
    in_types = [fn.params[p].type for p in wrt]
    seeded = in_types if forward else out_types
    count = sum(t.size for t in seeded)
    vector = count in VECTOR and _scalar(fn) and not inline
    unroll = count <= UNROLL and count * len(fn.ops) <= UNROLL_OPS and small(fn) and not vector
    lanes = not unroll and (inline or fits(fn, count))
    fn = select_results(fn, outputs)
    n = len(outputs)
    if not unroll and not lanes:
        both = jvp(fn, wrt) if forward else vjp(fn, wrt)
        product = simplify(select_results(both, range(n, len(both.results))))
        sweep = Sweep(forward, tuple(seeded))
        return Blocks(product, sweep, tuple(seeded), out_types, in_types)
    b = Builder()
    params = [b.param(p.type, p.hint) for p in fn.params]
    results: list[Value] = []
    grid: dict[tuple[int, int], Value] = {}
    for s, t in enumerate(seeded):
        if forward:
            product = simplify(select_results(j := jvp(fn, [wrt[s]]), range(n, len(j.results))))
        else:
            j = vjp(fn, wrt, [s])
            product = simplify(select_results(j, range(n, len(j.results))))
        if lanes:
            shapes = [
                (out_types[o].shape + in_types[a].shape)
                for o, a in ((k, s) if forward else (s, k) for k in range(len(product.results)))
            ]
            for other, v in enumerate(b.inline(all_seeds(product, shapes, forward), params)):
                if symmetric and vector and other <= s:
                    below = grid.get((s, other), v)
                    v = b.transpose(below, _swapped(t, below)) if other < s else _even(b, v)
                grid[(other, s) if forward else (s, other)] = v
            continue
        pieces: list[list[Value]] = [[] for _ in product.results]
        for k in range(t.size):
            seed = b.constant(_one_hot(t, k), t)
            for piece, v in zip(pieces, b.inline(product, [*params, seed]), strict=True):
                piece.append(v)
        for other, piece in enumerate(pieces):
            place = (other, s) if forward else (s, other)
            shape = out_types[place[0]].shape + in_types[place[1]].shape
            block = Type(product.results[other].type.dtype, shape)
            if not symmetric or other > s:
                grid[place] = _stack(b, piece, forward, block)
            elif other == s:
                grid[place] = _mirrored(b, piece, block, _backwards(fn, fn.params[wrt[s]]))
            else:
                v = grid[s, other]
                grid[place] = b.transpose(v, _swapped(t, v))
    results = [grid[o, a] for o in range(len(out_types)) for a in range(len(in_types))]
    return Blocks(b.function(fn.name, results), None, (), out_types, in_types)


def _scalar(fn: Function) -> bool:
    """Whether a function computes with scalars, but for a few operations."""
    arrays = sum(op.results[0].type.size > 1 for op in fn.ops if op.results)
    return 8 * arrays <= len(fn.ops)


def _swapped(row: Type, v: Value) -> tuple[int, ...]:
    """The axes of a block whose first ones are those of ``row``, the other way round."""
    return (*range(row.ndim, v.type.ndim), *range(row.ndim))


def _even(b: Builder, v: Value) -> Value:
    """A block of a symmetric matrix, its upper triangle made that of the lower one."""
    n = math.isqrt(v.type.size)
    square = b.reshape(v, (n, n))
    lower = b.ge(b.iota((n, n), 0), b.iota((n, n), 1))
    return b.reshape(b.select(lower, square, b.transpose(square, (1, 0))), v.type.shape)


def _mirrored(b: Builder, columns: list[Value], type: Type, upper: bool) -> Value:
    """A symmetric block from the lower (or upper) triangle of its columns."""
    n = len(columns)
    pieces, at = [], []
    for k, column in enumerate(columns):
        flat = b.reshape(column, (n,))
        first, size = (0, k + 1) if upper else (k, n - k)
        pieces.append(b.reshape(b.slice(flat, (first,), (size,)), (size, 1)))
        at.append(((first, k), (1, 1)))
        if size > 1:  # the same, without the diagonal, as part of a row
            first = 0 if upper else k + 1
            pieces.append(b.reshape(b.slice(flat, (first,), (size - 1,)), (1, size - 1)))
            at.append(((k, first), (1, 1)))
    return b.reshape(b.place(pieces, (n, n), at), type.shape)


def _backwards(fn: Function, p: Value) -> bool:
    """Whether the elements of a parameter are used from the last to the first: the triangle to
    compute is the one in which the derivatives by what is used late are short programs."""
    starts = [op.attrs["start"] for op in fn.ops if op.name == "slice" and op.operands[0] is p]
    return len(starts) > 1 and starts[0] > starts[-1]


def _stack(b: Builder, pieces: list[Value], last: bool, type: Type) -> Value:
    """Columns (``last``) or rows joined to a block of ``type``."""
    if not pieces:
        return b.zeros(type)
    shape = pieces[0].type.shape
    wide = [b.reshape(p, (*shape, 1) if last else (1, *shape)) for p in pieces]
    return b.reshape(b.concat(wide, len(shape) if last else 0), type.shape)
