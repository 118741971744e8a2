"""IR for the versions of arrays that were written to piece by piece (see ``updates``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tapec.ir.builder import Builder
from tapec.ir.core import Type, Value
from tapec.ir.rewrite import splat
from tapec.updates import affine_parts, flat_places

if TYPE_CHECKING:
    from tapec.indexing import Region

__all__ = ["Versions", "Written", "assemble", "elements_of"]

#: up to here, pieces on a base are laid on it one after the other
_FEW = 3


class Written(NamedTuple):
    """A version as its base and the visible writes, in order."""

    base: int
    writes: list[tuple[int, Region]]


def assemble(b: Builder, base: Value, written: list[tuple[Value, Region]]) -> Value:
    """The array: ``base`` with the pieces on it, the last on top."""
    shape, size = base.type.shape, base.type.size
    zero = splat(base) == 0 and repr(splat(base)) != "-0.0"
    if not zero and len(written) <= _FEW:
        for new, region in written:
            base = _replaced(b, base, region, new)
        return base
    owner = np.full(size, -1, np.int32)
    places = [flat_places(shape, region) for _, region in written]
    for k, at in enumerate(places):
        owner[at.reshape(-1)] = k
    whole = all((owner[at.reshape(-1)] == k).all() for k, at in enumerate(places))
    if whole and zero:
        return b.place(
            [b.reshape(new, region.size) for new, region in written],
            shape,
            [(region.start, region.step) for _, region in written],
        )
    pieces: list[Value] = []
    where: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    if not zero:
        free = np.flatnonzero(owner < 0)
        if free.size:
            flat = b.reshape(base, (size,))
            for _, count, start, step in affine_parts(free):
                pieces.append(b.slice(flat, (start,), (count,), (step,)))
                where.append(((start,), (step,)))
    for k, (new, _) in enumerate(written):
        here = places[k].reshape(-1)
        seen = np.flatnonzero(owner[here] == k)
        line = b.reshape(new, (new.type.size,))
        for first, count, start, step in _runs(seen, here):
            pieces.append(b.slice(line, (first[0],), (count,), (first[1],)))
            where.append(((start,), (step,)))
    if len(pieces) > 4 * len(written) + 64 and len(written) <= 64:
        for new, region in written:
            base = _replaced(b, base, region, new)
        return base
    return b.reshape(b.place(pieces, (size,), where), shape)


def elements_of(
    type: Type, writes: list[tuple[int, Region]], types: list[Type]
) -> list[int] | None:
    """The piece at each element (-1: none), if every piece is one number."""
    if any(t.shape for t in types):
        return None
    elements = [-1] * type.size
    for piece, region in writes:
        elements[int(flat_places(type.shape, region).reshape(-1)[0])] = piece
    return elements


def _runs(seen: Any, here: Any) -> list[tuple[tuple[int, int], int, int, int]]:
    """The visible elements of a piece as runs that are regular in the piece and in the array."""
    out = []
    for begin, count, first, step in affine_parts(seen):
        chosen = here[first : first + step * count : step] if step > 0 else here[seen]
        for offset, n, start, stride in affine_parts(chosen):
            out.append(((first + step * offset, step), n, start, stride))
        assert begin >= 0
    return out


def _replaced(b: Builder, x: Value, region: Region, new: Value) -> Value:
    """One region replaced: concatenation along one axis, else a selection."""
    shape, size, step = x.type.shape, region.size, region.step
    new = b.reshape(new, size)
    cut = [k for k in range(len(shape)) if size[k] != shape[k] or step[k] != 1]
    if not cut:
        return new
    if len(cut) == 1 and abs(step[cut[0]]) == 1:
        (axis,) = cut
        low = region.start[axis]
        if step[axis] < 0:
            low -= size[axis] - 1
            new = b.reverse(new, [axis])
        parts = [_band(b, x, axis, 0, low), new, _band(b, x, axis, low + size[axis], shape[axis])]
        return b.concat([v for v in parts if v.type.size], axis)
    inside: Value | None = None
    for k in cut:
        i = b.iota(shape, k)
        a, s, n = region.start[k], step[k], size[k]
        low, high = min(a, a + s * (n - 1)), max(a, a + s * (n - 1))
        here = b.logical_and(b.ge(i, b.like(low, i)), b.le(i, b.like(high, i)))
        if abs(s) != 1:
            rest = b.emit("mod", (b.sub(i, b.like(low, i)), b.like(abs(s), i)))
            here = b.logical_and(here, b.eq(rest, b.like(0, i)))
        inside = here if inside is None else b.logical_and(inside, here)
    assert inside is not None
    return b.select(inside, b.place([new], shape, [(region.start, step)]), x)


def _band(b: Builder, x: Value, axis: int, low: int, high: int) -> Value:
    shape = x.type.shape
    start = [low if k == axis else 0 for k in range(len(shape))]
    return b.slice(x, start, [high - low if k == axis else n for k, n in enumerate(shape)])


class Versions:
    """While records are walked backwards: which writes each version that is used is made of."""

    def __init__(self, size_of: Callable[[int], int], shape_of: Callable[[int], Any]) -> None:
        self._size_of, self._shape_of = size_of, shape_of
        #: update record → versions (made later) that are put together from it on
        self._open: dict[int, list[tuple[int, Any, list[tuple[int, Region]]]]] = {}
        self.found: dict[int, Written] = {}

    def update(self, at: int, operands: tuple[int, ...], region: Region, used: bool) -> list[int]:
        """Meet an update record; the pieces that are needed."""
        going = self._open.pop(at, [])
        if used:
            for head, _, writes in going:
                self.found[head] = Written(at, writes[::-1])
            going = [(at, np.zeros(self._size_of(at), bool), [])]
        if not going:
            return []
        base, piece = operands
        places = flat_places(self._shape_of(at), region).reshape(-1)
        needed = []
        for _, covered, writes in going:
            if not covered[places].all():
                covered[places] = True
                writes.append((piece, region))
                needed.append(piece)
        self._open.setdefault(base, []).extend(going)
        return needed

    def reach(self, at: int) -> bool:
        """Meet a record that is no update; whether it is the base of a version."""
        going = self._open.pop(at, None)
        if going is None:
            return False
        for head, _, writes in going:
            self.found[head] = Written(at, writes[::-1])
        return True
