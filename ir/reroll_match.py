"""Do the iterations of a periodic stretch compute the same thing?  ``match`` → ``Match``.

The operands of a stretch of T iterations form a matrix: a row an iteration, a column one
operand of one operation of the body.  A column is

``LOCAL``    a value computed earlier in the same iteration;
``CARRY``    one computed ``d`` iterations before (in the first d: one from before the loop);
``CONST``    always the same value;
``OUTER``    different values that were all there before the loop.

Iterations that do not fit at the ends are left out (a first iteration that starts from plain
numbers, say); a column that is none of these stops the matching, with a reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tapec.ir.reroll_records import Record

__all__ = ["CARRY", "CONST", "LOCAL", "OUTER", "Level", "Match", "Mismatch", "match"]

Ints = np.ndarray[Any, np.dtype[np.int64]]

LOCAL, CARRY, CONST, OUTER = range(4)

#: Operations whose varying attributes can be turned into data.
_VARYING = {"item": ("index",), "slice": ("start",)}


class Level(NamedTuple):
    """A sequence of records and what is known of its values.

    ``names``, ``attrs``, ``types``: the fields of the records, one after the other.
    ``first[p]``: id of the record at position p; ``flat``: ids of all operands, those of
    position p from ``begin[p]`` to ``begin[p + 1]``; ``where``, ``result``: of an id, the
    position that computes it (-1: none) and which of its results it is; ``last_use``: of an
    id, the last position that reads it.
    """

    recs: list[Record]
    names: tuple[str, ...]
    attrs: tuple[Any, ...]
    types: tuple[Any, ...]
    first: Ints
    flat: Ints
    begin: Ints
    where: Ints
    result: Ints
    last_use: Ints


class Mismatch(NamedTuple):
    """Why a stretch is no loop: the record to blame, and what about it."""

    record: Record
    why: str


class Match(NamedTuple):
    """``trips`` iterations of ``period`` records from position ``start`` on.

    ``ids``: the matrix of operands; per column its ``kind``, and for LOCAL and CARRY the
    place in the body (``place``), result number and distance.  ``columns[j]`` is the first
    column of the body's record j.  ``varying``: record of the body → its attrs, by iteration.
    """

    start: int
    period: int
    trips: int
    ids: Ints
    kind: Ints
    place: Ints
    result: Ints
    distance: Ints
    columns: list[int]
    varying: dict[int, list[Any]]


def longest(good: Sequence[bool] | Any) -> tuple[int, int]:
    """The longest run of true values, as ``(start, end)``."""
    flags = np.concatenate(([False], np.asarray(good, bool), [False])).astype(np.int8)
    edges = np.flatnonzero(np.diff(flags))
    if not len(edges):
        return 0, 0
    starts, ends = edges[::2], edges[1::2]
    k = int(np.argmax(ends - starts))
    return int(starts[k]), int(ends[k])


def match(
    level: Level, alias: Ints, start: int, end: int, period: int, min_trips: int
) -> Match | Mismatch | None:
    """The longest part of the stretch that is a loop; None if it is just too short."""
    trips = (end - start) // period
    reason: Mismatch | None = None
    while trips >= min_trips:
        same = _same_operations(level, start, period, trips)
        if isinstance(same, Mismatch):
            return same
        a, b, varying = same
        if b - a < trips:
            start, trips = start + a * period, b - a
            continue
        found = _operands(level, alias, start, period, trips, varying)
        if isinstance(found, Match):
            return found
        a, b, reason = found
        if b - a >= trips:
            return reason
        start, trips = start + a * period, b - a
    return reason


def _same_operations(
    level: Level, start: int, period: int, trips: int
) -> tuple[int, int, dict[int, list[Any]]] | Mismatch:
    """The iterations that do the same operations as the middle one."""
    end = start + trips * period
    middle = trips // 2
    ref = level.recs[start + middle * period : start + (middle + 1) * period]
    counts = np.diff(level.begin[start : end + 1]).reshape(trips, period)
    good = (counts == counts[middle]).all(1)
    for fields in (level.names, level.types):
        column_of = fields[start:end]
        marks = np.fromiter(map(id, column_of), np.int64, end - start).reshape(trips, period)
        for j in np.flatnonzero((marks != marks[middle]).any(0)):
            wanted = column_of[middle * period + j]
            good &= np.fromiter([x == wanted for x in column_of[j::period]], bool, trips)
    a, b = longest(good)
    if b - a < trips:
        return a, b, {}
    attrs = level.attrs[start:end]
    marks = np.fromiter(map(id, attrs), np.int64, len(attrs)).reshape(trips, period)
    varying: dict[int, list[Any]] = {}
    for j in np.flatnonzero((marks != marks[middle]).any(0)):
        ref_attrs = ref[j][2]
        column = attrs[j::period]
        if type(ref_attrs) is not dict:  # NO_ATTRS or the like: told apart by identity
            good &= marks[:, j] == marks[middle, j]
            continue
        equal = [type(x) is dict and x == ref_attrs for x in column]
        if all(equal):
            continue
        may = _VARYING.get(ref[j][0], ())
        fixed = {k: v for k, v in ref_attrs.items() if k not in may}
        if may and all([{k: v for k, v in x.items() if k not in may} == fixed for x in column]):
            varying[int(j)] = list(column)
            continue
        a, b = longest(equal)
        if b - a < max(trips // 2, 1):
            changed = next(
                (k for k in ref_attrs if any(x.get(k) != ref_attrs[k] for x in column)), ""
            )
            return Mismatch(ref[j], f"{ref[j][0]}: '{changed}' changes from iteration to iteration")
        good &= np.array(equal)
    a, b = longest(good)
    return a, b, varying


def _operands(
    level: Level,
    alias: Ints,
    start: int,
    period: int,
    trips: int,
    varying: dict[int, list[Any]],
) -> Match | tuple[int, int, Mismatch]:
    """The matrix of operands, or the iterations that fit and what the others lack."""
    a, b = int(level.begin[start]), int(level.begin[start + trips * period])
    width = (b - a) // trips
    ids = alias[level.flat[a:b]].reshape(trips, width)
    known = np.minimum(ids, len(level.where) - 1)
    at = level.where[known]
    result = level.result[known]
    inside = at >= start
    place = (at - start) % period
    distance = np.arange(trips)[:, None] - (at - start) // period
    m = trips // 2
    if m + 1 == trips:
        m -= 1
    same_id = ids[m] == ids[m + 1]
    related = inside[m] & inside[m + 1]
    for x in (place, distance, result):
        related &= x[m] == x[m + 1]
    related &= ~same_id
    outside = ~inside[m] & ~inside[m + 1]
    kind = np.full(width, OUTER)
    kind[same_id] = CONST
    kind[related] = np.where(distance[m][related] == 0, LOCAL, CARRY)
    good = np.ones(trips, bool)
    # the same value all the time: it must be older than the loop
    constant = ids == ids[m]
    varies = same_id & ~constant.all(0) & ~inside.any(0)
    kind[varies] = OUTER
    const = kind == CONST
    fits = constant & ~inside
    bad = np.full(width, -1)
    _note(bad, const & ~fits.all(0), fits)
    good &= fits[:, const].all(1)
    chained = (kind == LOCAL) | (kind == CARRY)
    fits = inside & (place == place[m]) & (distance == distance[m]) & (result == result[m])
    fits |= ~inside & (np.arange(trips)[:, None] < distance[m])
    _note(bad, chained & ~fits.all(0), fits)
    good &= fits[:, chained].all(1)
    outer = kind == OUTER
    _note(bad, outer & ~(~inside).all(0), ~inside)
    good &= (~inside)[:, outer].all(1)
    offsets = (level.begin[start : start + period + 1] - a).tolist()
    if good.all():
        return Match(
            start, period, trips, ids, kind, place[m], result[m], distance[m], offsets, varying
        )
    worst = int(np.argmax(bad))
    if (outer & ~outside).any():
        worst = int(np.flatnonzero(outer & ~outside)[0])
        lo, hi = 0, 0
    else:
        lo, hi = longest(good)
        # a value from an early iteration that is used for ever is older than what follows
        if hi - lo < trips // 2 and (const & inside.any(0)).any():
            born = int(((at - start) // period)[m][const & inside[m]].max(initial=-1)) + 1
            lo, hi = (born, trips) if 0 < born < trips else (lo, hi)
    j = int(np.searchsorted(offsets, worst, side="right")) - 1
    why = Mismatch(
        level.recs[start + m * period + j],
        "an operand does not come from the same place in each iteration",
    )
    return lo, hi, why


def _note(bad: Ints, columns: Any, fits: Any) -> None:
    """Count the rows in which some columns do not fit."""
    if columns.any():
        bad[columns] = (~fits[:, columns]).sum(0)
