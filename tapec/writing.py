"""``x[key] = v`` on traced arrays: what ``x`` is afterwards.

A basic region is replaced by concatenation or selection; through index arrays, whose values are
fixed under guards, elements are scattered.  ``add_at`` is ``np.add.at``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapec import complexes, rules
from tapec import primitives as p
from tapec.errors import ConversionError, TapecIndexError, TapecTypeError, fail
from tapec.indexing import (
    BASIC,
    Fixed,
    Region,
    basic_region,
    getitem,
    index_tracer,
    parts_of,
    plan_of,
)
from tapec.ir.core import I64, Dense
from tapec.primitives import binary, cast, reshape, select
from tapec.tape import as_tracer
from tapec.tracer import Tracer
from tapec.updates import record_update

__all__ = ["add_at", "fixed_integers", "positions", "scatter_flat", "setitem"]


def setitem(x: Tracer, key: Any, value: Any) -> Tracer:
    """What ``x`` is after ``x[key] = value``."""
    tape = p.tape_among((x, value))
    x, new = as_tracer(tape, x), as_tracer(tape, value)
    if x.type.dtype.kind == "c" or new.type.dtype.kind == "c":
        return complexes.setitem(x, key, new, setitem)
    if _kind_rank(new) > _kind_rank(x):
        raise fail(
            TapecTypeError,
            f"values of type {new.type} do not fit an array of {x.type.dtype.np}",
            "make the array of the wider dtype",
        )
    new = cast(new, x.type.dtype)
    parts = parts_of(x, key)
    if all(isinstance(k, BASIC) for k in parts):
        region = basic_region(x.type, parts)
        pieced = _write_pieces(x, parts, new, region)
        if pieced is not None:
            return pieced
        return _write(x, region, _fit(new, region.shape))
    if len(parts) == 1 and not isinstance(parts[0], (int, Fixed)) and parts[0].dtype == bool:
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
    if not new.type.size:
        return x
    if size != shape and x.type.size > _PIECES and x.type.dtype.kind in "if":
        return record_update(x, region, new)
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
    if isinstance(x, Fixed):
        return x.array
    tape = p.tape_among((x,))
    traced = as_tracer(tape, x)
    now = np.array(traced.concrete())
    record = traced.tape.records[traced.id]
    if record is None or record[0] != "constant":
        same = binary("eq", traced, now.item() if now.ndim == 0 else tape.fixed(now))
        same = p.reduce("all", same, range(now.ndim))
        tape.guard(same, True, what)
    return now


def positions(x: Tracer, key: Any) -> Any:
    """The places that ``x[key]`` reads, in the flattened array, as a NumPy array: index arrays
    are fixed (guarded), so that the position of each element is known."""
    return _positions(x, parts_of(x, key))


def _positions(x: Tracer, parts: list[Any]) -> Any:
    fixed: list[Any] = []
    if all(isinstance(k, BASIC) for k in parts):
        return np.arange(x.type.size).reshape(x.type.shape)[tuple(parts)]
    for k in plan_of(x, list(parts))[0]:
        if isinstance(k, (np.ndarray, Tracer)):
            k = fixed_integers(k, "the same indices")
        fixed.append(k.array if isinstance(k, Fixed) else k)
    try:
        return np.arange(x.type.size).reshape(x.type.shape)[tuple(fixed)]
    except IndexError as error:
        raise fail(TapecIndexError, str(error)) from None


def scatter_flat(x: Tracer, target: Any, values: Tracer) -> Tracer:
    """A 1-d array with ``values`` at the places ``target``, each of which occurs once."""
    if x.type.dtype.kind == "c":
        return complexes.setitem(x, target, values, scatter_flat)
    tape = x.tape
    hit = np.zeros(x.type.size, bool)
    hit[target] = True
    kept = cast(select(tape.fixed(hit), 0, x), x.type.dtype)
    where = tape.fixed(target.astype(np.int64))
    if x.type.dtype.kind == "b":
        added = p.scatter_add(cast(kept, I64), cast(values, I64), [where], [0])
        return cast(added, x.type.dtype)
    return p.scatter_add(kept, values, [where], [0])


def _scatter(x: Tracer, parts: Sequence[Any], new: Tracer) -> Tracer:
    """Assignment through index arrays; of several writes to one element the last counts, as in
    NumPy."""
    plan = plan_of(x, list(parts))[0]
    moving = _moving_index(plan)
    if moving is not None:
        return _select_at(x, plan, moving, new)
    picked = _positions(x, list(parts))
    flat = picked.reshape(-1)
    values = reshape(_fit(new, picked.shape), (flat.size,))
    if not flat.size:
        return x
    target, last = np.unique(flat[::-1], return_index=True)
    if target.size < flat.size:
        values = p.gather(values, [x.tape.fixed(flat.size - 1 - last)], [0])
    else:
        target = flat
    return reshape(scatter_flat(reshape(x, (x.type.size,)), target, values), x.type.shape)


def _moving_index(plan: list[Any]) -> int | None:
    """The place of the one scalar index that is only known when the program runs, the others
    being whole axes."""
    found = None
    for k, part in enumerate(plan):
        if isinstance(part, Tracer) and not part.type.shape and found is None:
            found = k
        elif not isinstance(part, slice) or part != slice(None):
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
    index = index_tracer(tape, plan[axis], shape[axis], axis)
    here = binary("eq", p.iota(tape, shape, axis), index)
    rest = shape[:axis] + shape[axis + 1 :]
    value = reshape(_fit(as_tracer(tape, new), rest), (*rest[:axis], 1, *rest[axis:]))
    return cast(select(here, value, x), x.type.dtype)


def add_at(x: Tracer, key: Any, value: Any) -> Tracer:
    """What ``x`` is after ``np.add.at(x, key, value)``: repeated indices add up."""
    tape = p.tape_among((x, value))
    x, new = as_tracer(tape, x), as_tracer(tape, value)
    if x.type.dtype.kind == "c" or new.type.dtype.kind == "c":
        return complexes.setitem(x, key, new, add_at)
    new = cast(new, x.type.dtype)
    parts = parts_of(x, key)
    if all(isinstance(k, BASIC) for k in parts):
        return setitem(x, key, binary("add", getitem(x, key), new))
    flat = reshape(x, (x.type.size,))
    positions = p.iota(tape, (x.type.size,), 0)
    where = getitem(reshape(positions, x.type.shape), key)
    new = _fit(new, where.type.shape)
    n = where.type.size
    added = p.scatter_add(flat, reshape(new, (n,)), [reshape(where, (n,))], [0])
    return reshape(added, x.type.shape)


rules.setitem, rules.write_region = setitem, _write
