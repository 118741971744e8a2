"""``x[key]`` on traced arrays; writing is ``writing``.

A key is normalised axis by axis.  Integers and slices become ``item`` or ``slice`` records;
integer arrays a ``gather`` with their range guarded; boolean masks are decided by their
value now, with a guard that they stay the same.  Assignment yields the new array: the
tracer that is written to moves on to it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tapec import primitives as p
from tapec import rules
from tapec.errors import (
    TapecIndexError,
    UnsupportedError,
    fail,
)
from tapec.ir.core import I64, Type
from tapec.loop_index import concrete_or_none, known_range
from tapec.primitives import binary, cast, reshape, select
from tapec.tape import Tape, as_tracer, is_traced
from tapec.tracer import Tracer, view
from tapec.updates import element, region_of_chain

__all__ = [
    "BASIC", "Fixed", "Region", "basic_region", "getitem", "index_tracer", "item_at", "parts_of",
    "plan_of", "read_region",
]  # fmt: skip


class Region(NamedTuple):
    """A basic subscript: per axis start, size and step; the shape of what is selected, in
    which integer axes are gone and new axes have length 1."""

    start: tuple[int, ...]
    size: tuple[int, ...]
    step: tuple[int, ...]
    shape: tuple[int, ...]


BASIC = (int, slice, type(None), type(Ellipsis))


# -- reading ----------------------------------------------------------------------------


def getitem(x: Tracer, key: Any) -> Any:
    """``x[key]``."""
    if x.__class__ is not Tracer:
        return x.each(lambda part: getitem(part, key))  # type: ignore[attr-defined]
    shape = x.type.shape
    if key.__class__ is int and shape:
        return _item(x, (key,))
    if key.__class__ is tuple and len(key) <= len(shape) and key:
        for k in key:
            if k.__class__ is not int:
                break
        else:
            return _item(x, key)
    parts = parts_of(x, key)
    if all(isinstance(k, BASIC) for k in parts):
        region = basic_region(x.type, parts)
        return view(
            read_region(x, region),
            x,
            lambda base: read_region(base, region),
            lambda base, part: rules.write_region(base, region, part),
        )
    tape = p.tape_among((x, *parts))  # in the body of a loop, x may come from outside
    return _advanced(x if tape is x.tape else as_tracer(tape, x), parts)


def _item(x: Tracer, key: tuple[int, ...]) -> Tracer:
    """``x[i, j]`` with integers for the leading axes; remembered."""
    tape, shape = x.tape, x.type.shape
    known = tape._items.get((x.id, key))
    if known is None:
        index = key
        for axis, k in enumerate(key):
            n = shape[axis]
            if not -n <= k < n:
                raise _out_of_bounds(k, axis, n)
            if k < 0:
                index = tuple([k + n if k < 0 else k for k, n in zip(key, shape)])
        if tape.closed:
            tape.check(x.id)
        type = _inner_type(x.type, len(key))
        record = tape.records[x.id]
        if x.id in tape.chains:
            return _item_of_chain(x, index)
        if (x.id, index) in tape._items:
            known = tape._items[(x.id, index)]
        elif record is not None and record[0] == "stack" and not type.shape:
            flat = 0
            for k, n in zip(index, shape):
                flat = flat * n + k
            known = record[1][flat]
        else:
            known = tape.push("item", (x.id,), {"index": index}, (type,))
        tape._items[(x.id, key)] = known
    if len(key) == len(shape):
        inner = _inner_type(x.type, len(key))
        return Tracer(tape, known, inner, inner)
    result = tape.handle(known)
    region = basic_region(x.type, list(key))
    return view(
        result,
        x,
        lambda base: read_region(base, region),
        lambda base, part: rules.write_region(base, region, part),
    )


def _item_of_chain(x: Tracer, index: tuple[int, ...]) -> Tracer:
    """An element or a row of an array that is written to piece by piece."""
    shape = x.type.shape
    if len(index) == len(shape):
        return item_at(x, int(np.ravel_multi_index(index, shape)))
    region = basic_region(x.type, list(index))
    return view(
        read_region(x, region),
        x,
        lambda base: read_region(base, region),
        lambda base, part: rules.write_region(base, region, part),
    )


def item_at(x: Tracer, flat: int) -> Tracer:
    """The element at a place of the flattened array."""
    tape = x.tape
    while True:
        held = element(x, flat)
        if held is None:
            break
        x, flat = tape.handle(held[0]), held[1]
    if not x.type.shape:
        return Tracer(tape, x.id, x.type, x.type)
    index = np.unravel_index(flat, x.type.shape)
    return _item(x, tuple([int(i) for i in index]))


_inner_types: dict[tuple[Type, int], Type] = {}


def _inner_type(type: Type, n: int) -> Type:
    """The type without its first ``n`` axes."""
    found = _inner_types.get((type, n))
    if found is None:
        found = _inner_types[(type, n)] = Type(type.dtype, type.shape[n:])
    return found


def _out_of_bounds(index: int, axis: int, n: int) -> TapecIndexError:
    error = fail(TapecIndexError, f"index {index} is out of bounds for axis {axis} with size {n}")
    assert isinstance(error, TapecIndexError)
    return error


def parts_of(x: Tracer, key: Any) -> list[Any]:
    """The subscript as a list with one entry per axis that it names."""
    parts = []
    for k in key if isinstance(key, tuple) else (key,):
        if isinstance(k, Tracer):
            if k.type.shape == () and k.type.dtype.kind == "i":
                parts.append(k)
                continue
            if k.type.dtype.kind not in "ib":
                raise fail(
                    TapecIndexError,
                    f"arrays used as indices must be of integer (or boolean) type, not {k.type}",
                )
        elif isinstance(k, (bool, np.bool_)):
            k = np.asarray(k)
        elif isinstance(k, np.integer):
            k = int(k)
        elif isinstance(k, (list, tuple)):
            k = _list_index(x.tape, k)
        elif isinstance(k, np.ndarray):
            if k.dtype == object:
                k = as_tracer(x.tape, k)
            elif k.dtype.kind not in "biu":
                raise fail(
                    TapecIndexError, "arrays used as indices must be of integer (or boolean) type"
                )
            elif k.ndim == 0 and k.dtype.kind in "iu":
                k = int(k)
        elif not isinstance(k, BASIC):
            try:
                k = k.__index__()
            except AttributeError:
                raise fail(
                    TapecIndexError,
                    "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and "
                    f"integer or boolean arrays are valid indices, not {type(k).__name__}",
                ) from None
        parts.append(k)
    return parts


def _list_index(tape: Tape, key: Any) -> Any:
    if is_traced(key):
        return as_tracer(tape, key)
    array = np.asarray(key)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind not in "bi":
        raise fail(TapecIndexError, "lists used as indices must hold integers or booleans")
    return Fixed(array)


class Fixed:
    """An index array that is part of the program (it came from a list)."""

    def __init__(self, array: Any) -> None:
        self.array = np.asarray(array)


def _consumed(part: Any) -> int:
    """How many axes of the array one part of the subscript uses."""
    if part is None:
        return 0
    if isinstance(part, Fixed):
        part = part.array
    if isinstance(part, (np.ndarray, Tracer)) and part.dtype == bool:
        return part.ndim
    return 1


def _expand(ndim: int, parts: list[Any]) -> list[Any]:
    """Replace the ellipsis and append what is missing."""
    used = sum(_consumed(k) for k in parts if k is not Ellipsis)
    dots = [n for n, k in enumerate(parts) if k is Ellipsis]
    if len(dots) > 1:
        raise fail(TapecIndexError, "an index can only have a single ellipsis ('...')")
    if used > ndim:
        raise fail(
            TapecIndexError,
            f"too many indices for array: array is {ndim}-dimensional, but {used} were indexed",
        )
    fill = [slice(None)] * (ndim - used)
    at = dots[0] if dots else len(parts)
    return parts[:at] + fill + parts[at + len(dots) :]


def basic_region(type: Type, parts: list[Any]) -> Region:
    """The region that integers, slices, ellipsis and new axes select."""
    start, size, step, shape = [], [], [], []
    axis = 0
    for k in _expand(type.ndim, parts):
        if k is None:
            shape.append(1)
            continue
        n = type.shape[axis]
        if isinstance(k, slice):
            try:
                a, b, s = slice(*[_static(v) for v in (k.start, k.stop, k.step)]).indices(n)
            except ValueError as error:
                raise fail(TapecIndexError, str(error)) from None
            count = len(range(a, b, s))
            start.append(a if count else 0)
            size.append(count)
            step.append(s)
            shape.append(count)
        else:
            if not -n <= k < n:
                raise _out_of_bounds(k, axis, n)
            start.append(k + n if k < 0 else k)
            size.append(1)
            step.append(1)
        axis += 1
    return Region(tuple(start), tuple(size), tuple(step), tuple(shape))


def _static(bound: Any) -> Any:
    return int(bound) if isinstance(bound, (Tracer, np.integer)) else bound


def read_region(x: Tracer, region: Region) -> Tracer:
    part = region_of_chain(x, region) if x.tape.chains else None
    if part is not None:
        return part
    return reshape(p.slice_(x, region.start, region.size, region.step), region.shape)


# -- integer arrays and masks -------------------------------------------------------------


def index_tracer(tape: Tape, part: Any, n: int, axis: int) -> Tracer:
    """One index as non-negative i64, its range guarded (or checked, if it cannot change)."""
    if isinstance(part, int):
        if not -n <= part < n:
            raise _out_of_bounds(part, axis, n)
        return tape.constant(np.int64(part + n if part < 0 else part))
    if isinstance(part, Fixed):
        array = part.array.astype(np.int64)
        bad = array[(array < -n) | (array >= n)]
        if bad.size:
            raise _out_of_bounds(int(bad.flat[0]), axis, n)
        return tape.fixed(np.where(array < 0, array + n, array))
    index = cast(as_tracer(tape, part), I64)
    low, high = known_range(tape, index.id)
    if low >= 0 and high <= n:
        return index
    values = concrete_or_none(index)
    bad = values[(values < -n) | (values >= n)]
    if bad.size:
        raise _out_of_bounds(int(bad.flat[0]), axis, n)
    inside = binary("and", binary("ge", index, -n), binary("lt", index, n))
    if inside.type.shape:
        inside = p.reduce("all", inside, range(inside.type.ndim))
    tape.guard(inside, True, f"index in range for axis {axis} with size {n}")
    return select(binary("lt", index, 0), binary("add", index, n), index)


def _mask_indices(tape: Tape, mask: Any) -> list[Any]:
    """``mask.nonzero()`` as fixed indices; a mask that may change is guarded."""
    if isinstance(mask, Fixed):
        return [Fixed(i) for i in mask.array.nonzero()]
    traced = as_tracer(tape, mask)
    now = np.array(traced.concrete(), bool)
    if now.ndim == 0:
        tape.guard(traced, bool(now), "mask")
    else:
        same = binary("eq", traced, tape.fixed(now))
        tape.guard(p.reduce("all", same, range(now.ndim)), True, "the same mask")
    return [Fixed(i) for i in now.nonzero()]


def plan_of(x: Tracer, parts: list[Any]) -> tuple[list[Any], list[Any], bool]:
    """Masks replaced by index arrays; then (the parts, those of integer kind, adjacent?)."""
    plain: list[Any] = []
    axis = 0
    for k in _expand(x.type.ndim, parts):
        held = k.array if isinstance(k, Fixed) else k
        if isinstance(held, (np.ndarray, Tracer)) and held.dtype == bool:
            shape = x.type.shape[axis : axis + held.ndim]
            if tuple(held.shape) != shape:
                raise fail(
                    TapecIndexError,
                    f"boolean index of shape {held.shape} did not match indexed array of shape "
                    f"{shape} along axis {axis}",
                )
            if held.ndim == 0:
                raise fail(UnsupportedError, "a 0-d boolean as an index is not supported")
            plain.extend(_mask_indices(x.tape, k))
            axis += held.ndim
        else:
            plain.append(k)
            axis += _consumed(k)
    where = [n for n, k in enumerate(plain) if not isinstance(k, (slice, type(None)))]
    adjacent = where[-1] - where[0] == len(where) - 1
    return plain, where, adjacent


def _split(x: Tracer, parts: list[Any]) -> tuple[Region, list[Tracer], list[int], list[int]]:
    """An advanced subscript as: slices first (``Region`` with integer axes kept whole), then
    index arrays on some axes of the result, and the order of axes that NumPy yields."""
    plain, where, adjacent = plan_of(x, parts)
    tape = x.tape
    basic: list[Any] = []
    axes: list[int] = []  # of the sliced array (with new axes) that index arrays consume
    indices: list[Any] = []
    axis = 0
    for n, k in enumerate(plain):
        if n in where:
            indices.append(index_tracer(tape, k, x.type.shape[axis], axis))
            axes.append(n)
            basic.append(slice(None))
        else:
            basic.append(k)
        axis += 0 if k is None else 1
    region = basic_region(x.type, basic)
    try:
        common = np.broadcast_shapes(*[i.type.shape for i in indices])
    except ValueError:
        shapes = " ".join(str(i.type.shape) for i in indices)
        raise fail(
            TapecIndexError,
            f"shape mismatch: indexing arrays could not be broadcast together with shapes {shapes}",
        ) from None
    indices = [p.broadcast_to(i, common) for i in indices]
    rest = len(region.shape) - len(axes)
    order = list(range(len(common) + rest))
    if adjacent:
        before = axes[0]
        order = (
            list(range(len(common), len(common) + before))
            + list(range(len(common)))
            + list(range(len(common) + before, len(common) + rest))
        )
    return region, indices, axes, order


def _advanced(x: Tracer, parts: list[Any]) -> Tracer:
    region, indices, axes, order = _split(x, parts)
    picked = p.gather(read_region(x, region), indices, axes)
    return p.transpose(picked, order)


rules.getitem = getitem
