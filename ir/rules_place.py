"""Simplification rules of ``place`` (padding, concatenation, stacking) and of slices of it.

>>> from tapec.ir.parser import parse
>>> from tapec.ir.passes import run_passes
>>> fn = parse('''func @f(%x: f64[2], %y: f64[3], %z: f64[2]) -> (f64[5]) {
...   %a = place %x, %y, %z {at=(((0),(1)),((2),(1)),((5),(1))), shape=(7)} : f64[7]
...   %b = slice %a {size=(5), start=(2), step=(1)} : f64[5]
...   return %b
... }''')
>>> [len(op.operands) for op in run_passes(fn, ["simplify"]).ops]
[2]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapec.ir.core import Op, Value
from tapec.ir.rewrite import Rewriter, rule, splat
from tapec.ir.rules_shape import _inner

__all__: list[str] = []


@rule("place", group="shape")
def place_everything(b: Rewriter, op: Op) -> Value | None:
    """place(x, over all of the result) -> x"""
    if len(op.operands) != 1:
        return None
    x = op.operands[0]
    if x.type.shape != op.attrs["shape"]:
        return None
    _, step = op.attrs["at"][0]
    backwards = any(t != 1 and n > 1 for t, n in zip(step, x.type.shape))
    return None if backwards else x


@rule("place", given="constant", up_to="sign of zero", group="shape")
def place_zeros(b: Rewriter, op: Op) -> Value | None:
    """place(0, x, …) -> place(x, …); place(0) -> 0"""
    keep = [k for k, x in enumerate(op.operands) if splat(x) != 0]
    if len(keep) == len(op.operands):
        return None
    if not keep:
        return b.zeros(op.results[0].type)
    at = op.attrs["at"]
    return b.place([op.operands[k] for k in keep], op.attrs["shape"], [at[k] for k in keep])


@rule("place", given="place", group="shape")
def place_place(b: Rewriter, op: Op) -> Value | None:
    """place(place(x, p), q) -> place(x, q after p)"""
    inner = _inner(op)
    if len(op.operands) != 1 or len(inner.operands) != 1:
        return None
    (s, t), (u, v) = op.attrs["at"][0], inner.attrs["at"][0]
    at = (
        [a + c * e for a, c, e in zip(s, t, u)],
        [c * f for c, f in zip(t, v)],
    )
    return b.place(inner.operands, op.attrs["shape"], [at])


@rule("place", given="slice", group="shape")
def place_slices(b: Rewriter, op: Op) -> Value | None:
    """place(slices of x, each where it was cut out) -> x, if they are bands that make up x"""
    x: Value | None = None
    shape, axis = op.attrs["shape"], -1
    bands: list[tuple[int, int]] = []
    for piece, (start, step) in zip(op.operands, op.attrs["at"]):
        inner = piece.op
        if inner is None or inner.name != "slice":
            return None
        x = x or inner.operands[0]
        if inner.operands[0] is not x or x.type.shape != shape:
            return None
        size, cut = piece.type.shape, -1
        for k, (a, s, t) in enumerate(zip(inner.attrs["start"], inner.attrs["step"], step)):
            if a != start[k] or (size[k] > 1 and (s != 1 or t != 1)):
                return None
            if size[k] != shape[k]:
                if cut >= 0 or axis not in (-1, k):
                    return None
                cut = axis = k
        if cut < 0:
            return None
        bands.append((start[cut], size[cut]))
    end = 0
    for first, n in sorted(bands):
        if first != end:
            return None
        end += n
    return x if end == shape[axis] else None


#: sums of two places are merged up to this many pieces (a chain of merges is quadratic)
MERGED_PIECES = 16


@rule("add", given="place", up_to="rounding", group="shape")
def add_places(b: Rewriter, op: Op) -> Value | None:
    """place(x…) + place(y…) -> place(x…, y…), if they are few"""
    p, q = op.operands[0].op, op.operands[1].op
    if p is None or q is None or p.name != "place" or q.name != "place":
        return None
    pieces = p.operands + q.operands
    if len(pieces) > MERGED_PIECES:
        return None
    return b.place(pieces, p.attrs["shape"], p.attrs["at"] + q.attrs["at"])


@rule("slice", given="place", up_to="sign of zero", group="shape")
def slice_place(b: Rewriter, op: Op) -> Value | None:
    """slice(place(x…)) -> slice x_k if only x_k is seen, 0 if nothing is, a place of the pieces
    that are seen if those are seen as a whole

    Which piece is seen is looked up in an index that is made once for each ``place``, so that
    unpacking a stack of n pieces costs O(n).
    """
    place = _inner(op)
    if op.results[0].type.size == 0:
        return None
    index = b.memo.get(place)
    if index is None:
        index = b.memo[place] = _piece_index(place)
    a = op.attrs
    k = index(a["start"], a["size"], a["step"])
    if k is None:
        return _window(b, place, a["start"], a["size"], a["step"])
    if k < 0:
        return b.zeros(op.results[0].type)
    start, step = [], []
    for s, t, n, p, q in zip(a["start"], a["step"], a["size"], *place.attrs["at"][k]):
        if (s - p) % q or (n > 1 and t % q):
            return None
        start.append((s - p) // q)
        step.append(t // q if n > 1 else 1)
    return b.slice(place.operands[k], start, a["size"], step)


#: Slices of a place of more pieces are not looked at piece by piece: that takes quadratic time.
_WINDOW_PIECES = 64


def _window(
    b: Rewriter, place: Op, start: Sequence[int], size: Sequence[int], step: Sequence[int]
) -> Value | None:
    """A slice without steps of ``place``, if it sees each piece as a whole or not at all."""
    if len(place.operands) > _WINDOW_PIECES or any([t != 1 for t in step]):
        return None
    pieces, at = [], []
    for x, (first, every) in zip(place.operands, place.attrs["at"]):
        ends = [a + t * (n - 1) for a, t, n in zip(first, every, x.type.shape)]
        low = [min(a, e) - s for a, e, s in zip(first, ends, start)]
        high = [max(a, e) - s for a, e, s in zip(first, ends, start)]
        if any([h < 0 or l >= n for l, h, n in zip(low, high, size)]):
            continue
        if any([l < 0 or h >= n for l, h, n in zip(low, high, size)]):
            return None
        pieces.append(x)
        at.append((tuple([a - s for a, s in zip(first, start)]), every))
    if len(pieces) == len(place.operands):
        return None  # nothing is gained
    return b.place(pieces, tuple(size), at)


def _piece_index(place: Op) -> Any:
    """(start, size, step) → the only piece that is seen there, -1 for none, None for unknown."""
    shape, at = place.attrs["shape"], place.attrs["at"]
    sizes = [x.type.shape for x in place.operands]
    if len(at) <= 8:

        def scan(start: Any, size: Any, step: Any) -> int | None:
            seen = -1
            for k, (p, q) in enumerate(at):
                if all(map(_overlap, start, step, size, p, q, sizes[k])):
                    if seen >= 0:
                        return None
                    seen = k
            if seen < 0:
                return -1
            p, q = at[seen]
            return seen if all(map(_inside, start, step, size, p, q, sizes[seen])) else None

        return scan
    if math.prod(shape) > 64 * len(at) + 4096:
        return lambda start, size, step: None
    # owner of each element: a piece, -1: none, -2: several
    owner = np.full(shape, -1, np.int64)
    for k, (p, q) in enumerate(at):
        view = owner[_range_index(p, sizes[k], q)]
        view[...] = np.where(view == -1, k, -2) if view.size > 1 else k if view.max() == -1 else -2

    def look(start: Any, size: Any, step: Any) -> int | None:
        first = int(owner[start])
        if first == -2:
            return None
        if max(size) > 1 and (owner[_range_index(start, size, step)] != first).any():
            return None
        return first

    return look


def _range_index(start: Any, size: Any, step: Any) -> tuple[slice, ...]:
    out = []
    for s, n, t in zip(start, size, step):
        end = s + n * t
        out.append(slice(s, end if end >= 0 else None, t))
    return tuple(out)


def _overlap(s: int, t: int, n: int, p: int, q: int, m: int) -> bool:
    """Whether s + i*t (i < n) and p + j*q (j < m) may meet."""
    if n == 0 or m == 0:
        return False
    lo, hi = sorted((s, s + (n - 1) * t))
    low, high = sorted((p, p + (m - 1) * q))
    if hi < low or high < lo:
        return False
    return (s - p) % math.gcd(t if n > 1 else 0, q if m > 1 else 0) == 0 if n > 1 or m > 1 else True


def _inside(s: int, t: int, n: int, p: int, q: int, m: int) -> bool:
    """Whether each s + i*t (i < n) is one of p + j*q (j < m)."""
    last = s + (n - 1) * t
    return all((a - p) % q == 0 and 0 <= (a - p) // q < m for a in (s, last)) and (
        n == 1 or t % q == 0
    )
