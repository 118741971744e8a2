"""How a ``place`` (padding, concatenation, stacking) that is kept in memory gets its pieces.

``stored_by_nests``: each piece is stored where it is computed, with the strides it has in the
result, so that a stack of values of one nest costs no pass of its own.  ``piece_nests``: a loop
for each piece.  ``flattened``: a stack of stacks is one stack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from typing import TypeVar

from tapec.codegen.body import strides_of, unit_reshape
from tapec.codegen.program import Nest, Program, Store
from tapec.ir.builder import Builder
from tapec.ir.core import Op, Value

__all__ = [
    "Pieces",
    "disjoint",
    "flattened",
    "interleaved",
    "piece_nests",
    "stacked",
    "stored_by_nests",
]

#: The start and the step of a piece along each axis.
At = tuple[tuple[int, ...], tuple[int, ...]]
Pieces = tuple[list[Value], list[At]]
#: With more pieces than this, code for all of them in one loop takes long to compile.
MAX_STORES = 64
#: With more values than this, shuffling lanes costs more than storing element by element.
MAX_INTERLEAVED = 8

T = TypeVar("T")


def disjoint(op: Op) -> bool:
    """Whether no two pieces of a ``place`` can touch the same element: along some axis all
    their ranges are disjoint, or they are few and pairwise apart."""
    boxes = []
    for piece, (start, step) in zip(op.operands, op.attrs["at"]):
        if piece.type.size:
            ends = [a + s * (n - 1) for a, s, n in zip(start, step, piece.type.shape)]
            boxes.append([(min(a, e), max(a, e)) for a, e in zip(start, ends)])
    for axis in range(op.results[0].type.ndim):
        ranges = sorted(box[axis] for box in boxes)
        if all(a[1] < b[0] for a, b in pairwise(ranges)):
            return True
    return len(boxes) <= MAX_STORES and all(
        any(p[1] < q[0] or q[1] < p[0] for p, q in zip(a, b)) for a, b in combinations(boxes, 2)
    )


def complete(op: Op) -> bool:
    """Whether the pieces of a ``place`` fill it, each element once."""
    return sum([v.type.size for v in op.operands]) == op.results[0].type.size and disjoint(op)


def stacked(op: Op) -> bool:
    """Whether a ``place`` is a stack: pieces of one shape, of length 1 along the axis in which
    they differ."""
    shape = op.operands[0].type.shape
    longer = [n > 1 and m == 1 for n, m in zip(op.results[0].type.shape, shape)]
    return (
        1 < len(op.operands) <= MAX_STORES
        and any(longer)
        and all([v.type.shape == shape for v in op.operands])
        and complete(op)
    )


def piece_nests(program: Program, op: Op, adds: bool) -> list[Nest]:
    """Loops that write the pieces of a stored ``place`` (register pieces are stored singly)."""
    target = op.results[0]
    nests = []
    for piece, at in zip(op.operands, op.attrs["at"]):
        if program.kind[piece] == "reg" or piece.type.size == 0:
            continue
        nest = Nest(piece.type.shape)
        nest.stores.append(_store(piece, target, at, adds))
        nests.append(nest)
    return nests


def _store(piece: Value, target: Value, at: At, adds: bool) -> Store:
    start, step = at
    strides = strides_of(target.type.shape)
    offset = sum(a * s for a, s in zip(start, strides))
    return Store(piece, target, offset, [a * s for a, s in zip(step, strides)], adds)


def stored_by_nests(program: Program, op: Op) -> list[Store] | None:
    """The stores of all pieces, each of the value that is computed, without axes of length 1;
    None if that cannot be done or does not pay."""
    kind = program.kind
    if (
        len(op.operands) > MAX_STORES
        or any([kind[v] == "reg" for v in op.operands])
        or not complete(op)
    ):
        return None
    stores = []
    for piece, at in zip(op.operands, op.attrs["at"]):
        store = _store(piece, op.results[0], at, False)
        while kind[store.value] == "inline" and (made := store.value.op) is not None:
            if made.name != "reshape":
                break
            x = made.operands[0]
            to = unit_reshape(x.type.shape, store.value.type.shape)
            if to is None or kind[x] == "reg":
                break
            strides = [0 if k < 0 else store.strides[k] for k in to]
            store = Store(x, store.target, store.offset, strides)
        stores.append(store)
    return stores


def interleaved(stores: Sequence[tuple[Store, T]], axis: int) -> list[list[tuple[Store, T]]]:
    """Stores that fill memory together along an axis of a nest: n of them, n elements apart, at
    consecutive offsets."""
    runs: dict[tuple[Value, tuple[int, ...]], list[tuple[Store, T]]] = {}
    for pair in stores:
        s = pair[0]
        if 2 <= s.strides[axis] <= MAX_INTERLEAVED and not s.accumulate:
            if s.target.type.dtype.kind == "f":
                runs.setdefault((s.target, tuple(s.strides)), []).append(pair)
    out = []
    for (_, strides), found in runs.items():
        found.sort(key=lambda pair: pair[0].offset)
        n, k = strides[axis], 0
        while k + n <= len(found):
            group = found[k : k + n]
            first = group[0][0].offset
            if [s.offset for s, _ in group] == list(range(first, first + n)):
                out.append(group)
                k += n
            else:
                k += 1
    return out


def flattened(
    b: Builder, op: Op, operands: Sequence[Value], known: Mapping[Value, Pieces]
) -> Pieces:
    """The pieces of a ``place`` of ``operands``, those that are a ``place`` themselves (or one
    with other axes of length 1) replaced by what is in it, if ``known``.  A padded piece of a
    complete ``place`` stays, so that this one can still be stored piece by piece."""
    pieces: list[Value] = []
    places: list[At] = []
    whole = complete(op)
    for piece, (start, step) in zip(operands, op.attrs["at"]):
        inner = piece
        shape = piece.type.shape
        if inner not in known and inner.op is not None and inner.op.name == "reshape":
            inner = inner.op.operands[0]
        to = unit_reshape(inner.type.shape, shape) if inner in known else None
        if to is None or (whole and inner.op is not None and not complete(inner.op)):
            pieces.append(piece)
            places.append((start, step))
            continue
        for x, (s, t) in zip(*known[inner]):
            size, first, stride = [1] * len(shape), [0] * len(shape), [1] * len(shape)
            for k, j in enumerate(to):
                if j >= 0:
                    size[j], first[j], stride[j] = x.type.shape[k], s[k], t[k]
            pieces.append(b.reshape(x, size))
            places.append(
                (
                    tuple([a + e * f for a, e, f in zip(start, step, first)]),
                    tuple([e * g for e, g in zip(step, stride)]),
                )
            )
    return pieces, places
