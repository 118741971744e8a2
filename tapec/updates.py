"""Writes to larger arrays, kept apart until the array is read as a whole.

``x[i] = v`` on an array of n elements records an ``update`` and costs O(size of the region): the
new value of ``x`` is the old one with a *piece* on top.  The last version of such a chain knows
for each element the piece that holds it, so that ``x[i]`` yields what was written there and
needs no array.  ``lift`` turns a version that is really used as an array into one ``place`` of
all pieces that are still visible.

Invariant: ``tape.chains[id]`` describes exactly the value ``id``; a chain moves on to the new
version with each write, and versions left behind are ordinary values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tapec.indexing import Region
    from tapec.tracer import Tracer

__all__ = ["Chain", "affine_parts", "element", "flat_places", "record_update", "region_of_chain"]

#: regions up to this size are put together from their elements when they are read
_FEW = 32


class Chain:
    """What the elements of one version of an array are made of."""

    __slots__ = ("base", "inner", "owner", "pieces")

    def __init__(self, base: int, size: int) -> None:
        self.base = base
        self.pieces: list[int] = []
        self.owner = np.full(size, -1, np.int32)  # number of the piece, -1: the base
        self.inner = np.zeros(size, np.int64)  # place in the piece


def flat_places(shape: tuple[int, ...], region: Region) -> Any:
    """The places of a region in the flattened array, in the region's shape with all axes."""
    out: Any = 0
    stride = 1
    for k in range(len(shape) - 1, -1, -1):
        line = (region.start[k] + region.step[k] * np.arange(region.size[k])) * stride
        out = line.reshape([-1 if d == k else 1 for d in range(len(shape))]) + out
        stride *= shape[k]
    return out


def record_update(x: Tracer, region: Region, new: Tracer) -> Tracer:
    """``x`` with ``new`` (of the region's number of elements) on a region."""
    tape = x.tape
    chain = tape.chains.pop(x.id, None)
    if chain is None:
        chain = Chain(x.id, x.type.size)
    at = flat_places(x.type.shape, region).reshape(-1)
    chain.owner[at] = len(chain.pieces)
    chain.inner[at] = np.arange(at.size)
    chain.pieces.append(new.id)
    result = tape.record("update", (x.id, new.id), {"region": region}, x.type)
    tape.chains[result.id] = chain
    return result


def element(x: Tracer, flat: int) -> tuple[int, int] | None:
    """The value, and the place in it, that holds an element of ``x``; None if that is ``x``."""
    chain = x.tape.chains.get(x.id)
    if chain is None:
        return None
    k = chain.owner[flat]
    if k < 0:
        return chain.base, flat
    return chain.pieces[k], int(chain.inner[flat])


def region_of_chain(x: Tracer, region: Region) -> Tracer | None:
    """A region of ``x`` without ``x`` itself: of its base, a piece, or from a few elements."""
    from tapec.indexing import item_at, read_region
    from tapec.primitives import reshape

    tape = x.tape
    chain = tape.chains.get(x.id)
    if chain is None:
        return None
    places = flat_places(x.type.shape, region).reshape(-1)
    if not places.size:
        return None
    owners = chain.owner[places]
    first = int(owners[0])
    if (owners == first).all():
        if first < 0:
            return read_region(tape.handle(chain.base), region)
        piece = tape.handle(chain.pieces[first])
        if piece.type.size == places.size and (chain.inner[places] == np.arange(places.size)).all():
            return reshape(piece, region.shape)
    if places.size > _FEW:
        return None
    ids = tuple([item_at(x, int(flat)).id for flat in places])
    type = x.type.with_shape(region.shape)
    if not region.shape:
        return tape.handle(ids[0])
    return tape.record("stack", ids, {"shape": region.shape}, type)


def affine_parts(places: Any) -> list[tuple[int, int, int, int]]:
    """Places in the order of the elements of a piece, as runs ``(first element, number, start,
    step)`` with a constant step."""
    flat = places.reshape(-1)
    n = flat.size
    if n == 1:
        return [(0, 1, int(flat[0]), 1)]
    steps = np.diff(flat)
    cuts = np.flatnonzero(steps[1:] != steps[:-1]) + 1
    parts, first = [], 0
    for cut in [*cuts.tolist(), n - 1]:
        if cut < first:  # the step into this run belongs to none
            continue
        count = cut - first + 1
        step = int(steps[first]) if count > 1 else 1
        parts.append((first, count, int(flat[first]), step))
        first = cut + 1
    if first < n:
        parts.append((first, n - first, int(flat[first]), 1))
    return parts
