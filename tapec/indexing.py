"""``x[key]`` and ``x[key] = v`` on traced arrays.

A key is normalised axis by axis.  Integers and slices become ``item`` or ``slice`` records;
integer arrays a ``gather`` with their range guarded; boolean masks are decided by their
value now, with a guard that they stay the same.  Assignment yields the new array: the
tracer that is written to moves on to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tapec import primitives as p
from tapec import rules
from tapec.errors import (
    ConversionError,
    TapecIndexError,
    TapecTypeError,
    UnsupportedError,
    fail,
)
from tapec.ir.core import I64, Dense, Type
from tapec.loop_index import concrete_or_none, known_range
from tapec.primitives import binary, cast, reshape, select
from tapec.tape import Tape, as_tracer, is_traced
from tapec.tracer import Tracer, view

__all__ = ["add_at", "basic_region", "fixed_integers", "getitem", "setitem"]


class Region(NamedTuple):
    """A basic subscript: per axis start, size and step; the shape of what is selected, in
    which integer axes are gone and new axes have length 1."""

    start: tuple[int, ...]
    size: tuple[int, ...]
    step: tuple[int, ...]
    shape: tuple[int, ...]


_BASIC = (int, slice, type(None), type(Ellipsis))


# -- reading ----------------------------------------------------------------------------


def getitem(x: Tracer, key: Any) -> Any:
    """``x[key]``."""
    shape = x.type.shape
    if key.__class__ is int and shape:
        return _item(x, (key,))
    if key.__class__ is tuple and len(key) <= len(shape) and key:
        for k in key:
            if k.__class__ is not int:
                break
        else:
            return _item(x, key)
    parts = _parts(x, key)
    if all(isinstance(k, _BASIC) for k in parts):
        region = basic_region(x.type, parts)
        return view(
            _read(x, region),
            x,
            lambda base: _read(base, region),
            lambda base, part: _write(base, region, part),
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
        lambda base: _read(base, region),
        lambda base, part: _write(base, region, part),
    )


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


def _parts(x: Tracer, key: Any) -> list[Any]:
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
        elif not isinstance(k, _BASIC):
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
    return _Fixed(array)


class _Fixed:
    """An index array that is part of the program (it came from a list)."""

    def __init__(self, array: Any) -> None:
        self.array = np.asarray(array)


def _consumed(part: Any) -> int:
    """How many axes of the array one part of the subscript uses."""
    if part is None:
        return 0
    if isinstance(part, _Fixed):
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


def _read(x: Tracer, region: Region) -> Tracer:
    return reshape(p.slice_(x, region.start, region.size, region.step), region.shape)


# -- integer arrays and masks -------------------------------------------------------------


def _index_tracer(tape: Tape, part: Any, n: int, axis: int) -> Tracer:
    """One index as non-negative i64, its range guarded (or checked, if it cannot change)."""
    if isinstance(part, int):
        if not -n <= part < n:
            raise _out_of_bounds(part, axis, n)
        return tape.constant(np.int64(part + n if part < 0 else part))
    if isinstance(part, _Fixed):
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
    if isinstance(mask, _Fixed):
        return [_Fixed(i) for i in mask.array.nonzero()]
    traced = as_tracer(tape, mask)
    now = np.array(traced.concrete(), bool)
    if now.ndim == 0:
        tape.guard(traced, bool(now), "mask")
    else:
        same = binary("eq", traced, tape.fixed(now))
        tape.guard(p.reduce("all", same, range(now.ndim)), True, "the same mask")
    return [_Fixed(i) for i in now.nonzero()]


def _plan(x: Tracer, parts: list[Any]) -> tuple[list[Any], list[Any], bool]:
    """Masks replaced by index arrays; then (the parts, those of integer kind, adjacent?)."""
    plain: list[Any] = []
    axis = 0
    for k in _expand(x.type.ndim, parts):
        held = k.array if isinstance(k, _Fixed) else k
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
    plain, where, adjacent = _plan(x, parts)
    tape = x.tape
    basic: list[Any] = []
    axes: list[int] = []  # of the sliced array (with new axes) that index arrays consume
    indices: list[Any] = []
    axis = 0
    for n, k in enumerate(plain):
        if n in where:
            indices.append(_index_tracer(tape, k, x.type.shape[axis], axis))
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
    picked = p.gather(_read(x, region), indices, axes)
    return p.transpose(picked, order)


# -- writing ------------------------------------------------------------------------------


def setitem(x: Tracer, key: Any, value: Any) -> Tracer:
    """What ``x`` is after ``x[key] = value``."""
    tape = p.tape_among((x, value))
    x, new = as_tracer(tape, x), as_tracer(tape, value)
    if _kind_rank(new) > _kind_rank(x):
        raise fail(
            TapecTypeError,
            f"values of type {new.type} do not fit an array of {x.type.dtype.np}",
            "make the array of the wider dtype",
        )
    new = cast(new, x.type.dtype)
    parts = _parts(x, key)
    if all(isinstance(k, _BASIC) for k in parts):
        region = basic_region(x.type, parts)
        pieced = _write_pieces(x, parts, new, region)
        if pieced is not None:
            return pieced
        return _write(x, region, _fit(new, region.shape))
    if len(parts) == 1 and not isinstance(parts[0], (int, _Fixed)) and parts[0].dtype == bool:
        mask = as_tracer(tape, parts[0])
        if new.type.ndim == 0 and mask.type.ndim <= x.type.ndim:
            lead = mask.type.shape + (1,) * (x.type.ndim - mask.type.ndim)
            return select(reshape(mask, lead), new, x)
    return _scatter(x, parts, new)


#: arrays up to this size are assembled from scalars when they are written to one by one
_PIECES = 32


def _pieces(x: Tracer) -> list[int] | None:
    """The ids of the elements of a small array that is known element by element."""
    record = x.tape.records[x.id]
    if record is None or x.type.size > _PIECES:
        return None
    op, args, attrs, _, _ = record
    if op == "stack" and len(args) == x.type.size:
        return list(args)
    if op == "constant":
        value = attrs["value"]
        flat = value.array.ravel().tolist() if isinstance(value, Dense) else [value] * x.type.size
        return [x.tape.constant_id(v, x.type.dtype) for v in flat]
    return None


def _write_pieces(x: Tracer, parts: list[Any], new: Tracer, region: Region) -> Tracer | None:
    """An assignment of scalars into such an array: ``T[0, 1] = c`` sixteen times is one
    ``stack`` in the end, and reading ``T[0, 1]`` in between costs nothing."""
    old = _pieces(x)
    if old is None or not x.type.shape or new.tape is not x.tape:
        return None
    if not new.type.shape:
        fresh: list[int] | None = [new.id]
    elif new.type.shape == region.shape:
        fresh = _pieces(new)
    else:
        fresh = None
    if fresh is None:
        return None
    where = np.arange(x.type.size).reshape(x.type.shape)[tuple(parts)].reshape(-1).tolist()
    for k, at in enumerate(where):
        old[at] = fresh[k if len(fresh) > 1 else 0]
    return x.tape.record("stack", tuple(old), {"shape": x.type.shape}, x.type)


def _kind_rank(x: Tracer) -> int:
    return "bifc".index(x.type.dtype.kind)


def _fit(new: Tracer, shape: tuple[int, ...]) -> Tracer:
    """``new`` broadcast to the region that it is written to (leading 1s may be dropped)."""
    extra = new.type.ndim - len(shape)
    if extra > 0 and all(n == 1 for n in new.type.shape[:extra]):
        new = reshape(new, new.type.shape[extra:])
    return p.broadcast_to(new, shape)


def _write(x: Tracer, region: Region, new: Tracer) -> Tracer:
    """``x`` with the region replaced: concatenation along one axis, else a selection."""
    shape, size = x.type.shape, region.size
    if new.tape is not x.tape:
        x, new = p.operands(x, new)
    new = reshape(new, size)
    cut = [k for k in range(len(shape)) if size[k] != shape[k] or region.step[k] != 1]
    if not new.type.size:
        return x
    if not cut:
        return new
    if len(cut) == 1 and abs(region.step[cut[0]]) == 1:
        (axis,) = cut
        low = region.start[axis]
        if region.step[axis] < 0:
            low -= size[axis] - 1
            new = _reverse(new, axis)
        return p.concat([_band(x, axis, 0, low), new, _band(x, axis, low + size[axis], None)], axis)
    inside: Any = None
    for k in cut:
        at = p.iota(x.tape, shape, k)
        a, s, n = region.start[k], region.step[k], size[k]
        low, high = min(a, a + s * (n - 1)), max(a, a + s * (n - 1))
        here = binary("and", binary("ge", at, low), binary("le", at, high))
        if abs(s) != 1:
            aligned = binary("eq", binary("mod", binary("sub", at, low), abs(s)), 0)
            here = binary("and", here, aligned)
        inside = here if inside is None else binary("and", inside, here)
    return select(inside, p.place([new], shape, [(region.start, region.step)]), x)


def _band(x: Tracer, axis: int, low: int, high: int | None) -> Tracer:
    shape = x.type.shape
    high = shape[axis] if high is None else high
    start = [low if k == axis else 0 for k in range(len(shape))]
    return p.slice_(x, start, [high - low if k == axis else n for k, n in enumerate(shape)])


def _reverse(x: Tracer, axis: int) -> Tracer:
    shape = x.type.shape
    start = [n - 1 if k == axis else 0 for k, n in enumerate(shape)]
    return p.slice_(x, start, shape, [-1 if k == axis else 1 for k in range(len(shape))])


def fixed_integers(x: Any, what: str) -> Any:
    """The value of a traced or captured integer array, guarded to stay the same."""
    if isinstance(x, _Fixed):
        return x.array
    tape = p.tape_among((x,))
    traced = as_tracer(tape, x)
    now = np.array(traced.concrete())
    if traced.tape.records[traced.id][0] != "constant":  # type: ignore[index]
        same = binary("eq", traced, now.item() if now.ndim == 0 else tape.fixed(now))
        same = p.reduce("all", same, range(now.ndim))
        tape.guard(same, True, what)
    return now


def _scatter(x: Tracer, parts: Sequence[Any], new: Tracer) -> Tracer:
    """Assignment through index arrays: their values are fixed (guarded), so that the position
    of each element is known; of several writes to one element the last counts, as in NumPy."""
    fixed: list[Any] = []
    plan = _plan(x, list(parts))[0]
    moving = _moving_index(plan)
    if moving is not None:
        return _select_at(x, plan, moving, new)
    for k in plan:
        if isinstance(k, (np.ndarray, Tracer)):
            k = fixed_integers(k, "the same indices")
        fixed.append(k.array if isinstance(k, _Fixed) else k)
    positions = np.arange(x.type.size).reshape(x.type.shape)
    try:
        picked = positions[tuple(fixed)]
    except IndexError as error:
        raise fail(TapecIndexError, str(error)) from None
    flat = picked.reshape(-1)
    values = reshape(_fit(new, picked.shape), (flat.size,))
    if not flat.size:
        return x
    target, last = np.unique(flat[::-1], return_index=True)
    tape = x.tape
    if target.size < flat.size:
        values = p.gather(values, [tape.fixed(flat.size - 1 - last)], [0])
    else:
        target = flat
    hit = np.zeros(x.type.size, bool)
    hit[target] = True
    kept = select(tape.fixed(hit), 0, reshape(x, (x.type.size,)))
    kept = cast(kept, x.type.dtype)
    where = tape.fixed(target.astype(np.int64))
    return reshape(p.scatter_add(kept, values, [where], [0]), x.type.shape)


def _moving_index(plan: list[Any]) -> int | None:
    """The place of the one scalar index that is only known when the program runs, the others
    being whole axes."""
    found = None
    for k, part in enumerate(plan):
        if isinstance(part, Tracer) and not part.type.shape and found is None:
            found = k
        elif part != slice(None):
            return None
    if found is None:
        return None
    try:
        plan[found].concrete()
    except ConversionError:
        return found
    return None


def _select_at(x: Tracer, plan: list[Any], axis: int, new: Tracer) -> Tracer:
    """``x[:, i] = new`` for an ``i`` that changes from step to step of a loop."""
    tape = p.tape_among((x, plan[axis], new))
    x = as_tracer(tape, x)
    shape = x.type.shape
    index = _index_tracer(tape, plan[axis], shape[axis], axis)
    here = binary("eq", p.iota(tape, shape, axis), index)
    rest = shape[:axis] + shape[axis + 1 :]
    value = reshape(_fit(as_tracer(tape, new), rest), (*rest[:axis], 1, *rest[axis:]))
    return cast(select(here, value, x), x.type.dtype)


def add_at(x: Tracer, key: Any, value: Any) -> Tracer:
    """What ``x`` is after ``np.add.at(x, key, value)``: repeated indices add up."""
    tape = p.tape_among((x, value))
    x, new = as_tracer(tape, x), cast(as_tracer(tape, value), x.type.dtype)
    parts = _parts(x, key)
    if all(isinstance(k, _BASIC) for k in parts):
        return setitem(x, key, binary("add", getitem(x, key), new))
    flat = reshape(x, (x.type.size,))
    positions = p.iota(tape, (x.type.size,), 0)
    where = getitem(reshape(positions, x.type.shape), key)
    new = _fit(new, where.type.shape)
    n = where.type.size
    added = p.scatter_add(flat, reshape(new, (n,)), [reshape(where, (n,))], [0])
    return reshape(added, x.type.shape)


rules.getitem, rules.setitem = getitem, setitem
