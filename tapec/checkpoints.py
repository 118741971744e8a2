"""Loops that keep few of their states for the gradient: scans of scans.

A loop of n steps keeps what its pullback needs of each step.  Cut into chunks, it keeps the
carries between chunks, and runs each chunk again when the pullback comes to it; chunks may be
cut in turn.  With L levels the loop runs L times forward, and memory is that of n^(1/L) steps
per level: for a number of evaluations that is within a factor of (L!)^(1/L) of the best
schedule there is (Griewank and Walther, "Revolve", 2000), with code of the size of one step.

    chunk_sizes("sqrt", block, c, 10_000)    # [100]
    chunk_sizes("64 kB", block, c, 10_000)   # for example [464, 21]
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise

from tapec.errors import TapecValueError, fail
from tapec.ir.builder import Builder
from tapec.ir.core import Block, Function, Loc, Type, Value, walk
from tapec.ir.loops import emit_scan

__all__ = ["chunk_sizes", "chunked"]

_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}
_BUDGET = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(B|kB|MB|GB)\s*")
_MAX_LEVELS = 24


def chunk_sizes(checkpoint: int | str | None, block: Block, n_carry: int, n: int) -> list[int]:
    """Lengths of chunks, and of chunks of chunks, for ``checkpoint=`` and a loop of ``n`` steps of
    ``block``; none for a loop that keeps everything."""
    if checkpoint is None or checkpoint is False:
        return []
    if checkpoint == "sqrt":
        return [max(1, math.isqrt(max(n, 1)))]
    if isinstance(checkpoint, int) and checkpoint > 0:
        return [checkpoint]
    match = _BUDGET.fullmatch(checkpoint) if isinstance(checkpoint, str) else None
    if match is None:
        raise TapecValueError(
            f"checkpoint must be a positive int, 'sqrt' or an amount of memory like '64 kB', "
            f"not {checkpoint!r}"
        )
    return _within(int(float(match[1]) * _UNITS[match[2]]), block, n_carry, n)


def _within(budget: int, block: Block, n_carry: int, n: int) -> list[int]:
    """The fewest levels whose states fit the budget."""
    row = max(sum(r.type.nbytes for r in block.results[:n_carry]), 1)
    # The pullback of a step needs these at most; a min-cut picks fewer.
    inside = sum(r.type.nbytes for op in walk(block) for r in op.results if r.type.dtype.is_inexact)
    step = max(inside + row, 1)
    least = 0
    for levels in range(1, _MAX_LEVELS):
        # all levels alike: (m / step) (m / row)^(levels - 1) = n
        each = (n * step * row ** (levels - 1)) ** (1 / levels)
        sizes = [max(1, int(each / step))]
        while len(sizes) < levels - 1:
            sizes.append(sizes[-1] * max(2, math.ceil(each / row)))
        outer = math.ceil(n / sizes[-1]) if levels > 1 else 0
        counts = [b // a for a, b in pairwise(sizes)] + ([outer] if levels > 1 else [])
        memory = (sizes[0] if levels > 1 else n) * step + sum(counts) * row
        if memory <= budget:
            return sizes[::-1] if levels > 1 else []
        least = min(least or memory, memory)
    raise fail(
        TapecValueError,
        f"checkpoint: {n} steps with a state of {row} bytes need some {least} bytes at least, "
        f"more than {budget}",
        "allow more memory",
    )


def chunked(
    block: Block,
    types: Sequence[Type],
    n_carry: int,
    n_xs: int,
    n: int,
    reverse: bool,
    sizes: Sequence[int],
    loc: Loc | None = None,
) -> Function:
    """The loop as a function of its carries, xs and consts, in chunks of these sizes (the largest
    first)."""
    b = Builder(loc)
    values = [b.param(t) for t in types]
    carry, xs = values[:n_carry], values[n_carry : n_carry + n_xs]
    rest = values[n_carry + n_xs :]
    return b.function("loop", _loop(b, block, carry, xs, rest, n, reverse, list(sizes)))


def _loop(
    b: Builder,
    block: Block,
    carry: list[Value],
    xs: list[Value],
    consts: list[Value],
    n: int,
    reverse: bool,
    sizes: list[int],
) -> list[Value]:
    while sizes and sizes[0] >= n:
        sizes = sizes[1:]
    if not sizes:
        return list(emit_scan(b, carry, xs, consts, block, n, reverse).results)
    size, c = sizes[0], len(carry)
    whole = n // size * size
    # the steps that fill no chunk come last
    first, left = (n - whole, 0) if reverse else (0, whole)
    main = []
    for v in xs:
        part = _rows(b, v, first, whole)
        main.append(b.reshape(part, (whole // size, size, *v.type.shape[1:])))
    inner = Builder(b.loc)
    state = [inner.param(v.type) for v in carry]
    given = [inner.param(v.type.with_shape(v.type.shape[1:])) for v in main]
    fixed = [inner.param(v.type) for v in consts]
    body = inner.block(_loop(inner, block, state, given, fixed, size, reverse, sizes[1:]))
    out = emit_scan(b, carry, main, consts, body, whole // size, reverse, remat=True).results
    ys = [b.reshape(y, (whole, *y.type.shape[2:])) for y in out[c:]]
    if whole == n:
        return [*out[:c], *ys]
    more = [_rows(b, v, left, n - whole) for v in xs]
    end = _loop(b, block, list(out[:c]), more, consts, n - whole, reverse, sizes[1:])
    joined = [b.concat([z, y] if reverse else [y, z], 0) for y, z in zip(ys, end[c:])]
    return [*end[:c], *joined]


def _rows(b: Builder, v: Value, start: int, count: int) -> Value:
    others = v.type.shape[1:]
    return b.slice(v, (start, *[0] * len(others)), (count, *others))
