"""Re-rolling: repeated stretches of a straight program become loops (``scan``).

A Python ``for`` loop unrolls onto the tape.  Here its iterations are found again: periods of
the sequence of operations (``reroll_find``), checked operand by operand (``reroll_match``) and
replaced by a ``scan`` (``reroll_build``).  Short periods go first, so nested loops come out
from the inside.  What varies from iteration to iteration may be constants, elements and
slices of arrays, or any values from before the loop: they become scanned arrays.  What is
used after the loop is a final carry, or an element of what the loop stacks.

    %a = sin %x      # f.py:3
    %b = sin %a      # f.py:3      ->      %c = scan %x {length=2, ...} (%p: f64[]) {
    return %b                                %q = sin %p    # f.py:3
                                             return %q
                                           } : f64[]

Invariant: the value of every result is computed by the same operations in the same order.
Time is linear in the number of operations, and mostly spent in C.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from tapec.ir.core import Attrs, Function, Type
from tapec.ir.reroll_build import CannotRoll, LoopMaker
from tapec.ir.reroll_find import periods, stretches
from tapec.ir.reroll_match import Level, Match, Mismatch, match
from tapec.ir.reroll_records import Records

__all__ = ["MIN_OPS", "MIN_TRIPS", "Roller", "Rolled", "reroll"]

Ints = np.ndarray[Any, np.dtype[np.int64]]

#: Loops of fewer iterations, and stretches of fewer operations, stay straight code.
MIN_TRIPS = 16
MIN_OPS = 512
#: Programs of fewer operations are left alone.
MIN_TOTAL = 2000
#: How deep loops may nest.
MAX_LEVELS = 8

_END = np.iinfo(np.int64).max


class Rolled(NamedTuple):
    """``sequence``: ids of records in order; ``results``: where the program's results are now;
    ``notes``: what kept long stretches from becoming loops."""

    sequence: list[int]
    results: list[int]
    notes: list[Mismatch]


class Roller:
    """Rolls the program that consists of the records ``sequence``; appends to ``records``.

    ``keys(records, their ops)``: integers, equal for operations of one kind from one source
    place.  ``place_only(site)`` is the site without the name of a value.
    """

    def __init__(
        self,
        records: Records,
        sequence: Sequence[int],
        results: Sequence[int],
        keys: Callable[[list[Any], Sequence[str]], Ints],
        place_only: Callable[[Any], Any] = lambda site: site,
        *,
        min_trips: int = MIN_TRIPS,
        min_ops: int = MIN_OPS,
    ) -> None:
        self.records = records
        self.sequence = list(sequence)
        self.results = list(results)
        self.keys = keys
        self.place_only = place_only
        self.min_trips, self.min_ops = min_trips, min_ops
        self.notes: list[Mismatch] = []
        self.alias = np.arange(len(records))
        #: id of an element of what a loop stacks → (scan, number as if it were a result)
        self.virtual: dict[int, tuple[int, int]] = {}
        self.renamed: list[tuple[int, int]] = []
        self.loops = 0
        self._failed: set[tuple[int, int]] = set()

    # -- what the loop maker uses ---------------------------------------------------------

    def new(self, op: str, operands: tuple[int, ...], attrs: Attrs, types: Any, site: Any) -> int:
        at = len(self.records)
        self.records.append((op, operands, attrs, types, site))
        if len(types) > 1:
            self.records.extend([None] * (len(types) - 1))
        return at

    def type_of(self, at: int) -> Type:
        first = at
        while self.records[first] is None:
            first -= 1
        record = self.records[first]
        assert record is not None
        return record[3][at - first]

    def site_of(self, at: int) -> Any:
        record = self.records[at]
        return record[4] if record is not None else None

    def rename(self, old: int, new: int) -> None:
        """What was ``old`` is ``new`` from now on."""
        self.renamed.append((old, new))
        self.virtual.pop(old, None)

    def element(self, at: int, scan: int, y: int, t: int, type: Type) -> None:
        """``at`` is element t of result y of ``scan`` from now on."""
        self.records[at] = ("item", (scan + y,), {"index": (t,)}, (type,), self.site_of(at))
        loop = self.records[scan][2]["loop"]  # type: ignore[index]
        types = self.records[scan][3]  # type: ignore[index]
        self.virtual[at] = scan, len(types) + y * loop.length + t

    def virtual_id(self, scan: int, number: int) -> int:
        return self._virtual_ids[scan, number]

    # -- levels ---------------------------------------------------------------------------

    def roll(self) -> Rolled:
        for _ in range(MAX_LEVELS):
            if len(self.sequence) < self.min_ops or not self._level():
                break
        self._settle()
        results = self.alias[np.array(self.results, np.int64)].tolist() if self.results else []
        for k, at in enumerate(self.sequence):
            record = self.records[at]
            assert record is not None
            if record[1]:
                found = tuple(self.alias[list(record[1])].tolist())
                if found != record[1]:
                    self.records[at] = (record[0], found, *record[2:])
            self.sequence[k] = at
        return Rolled(self.sequence, results, self.notes)

    def _settle(self) -> None:
        """Bring ``alias`` up to date."""
        n = len(self.records)
        self.alias = np.concatenate((self.alias, np.arange(len(self.alias), n)))
        for old, new in self.renamed:
            self.alias[old] = new
        while self.renamed:
            again = self.alias[self.alias]
            if (again == self.alias).all():
                break
            self.alias = again
        self.renamed = []
        # elements may be of arrays that have moved
        for at in self.virtual:
            record = self.records[at]
            assert record is not None
            base = int(self.alias[record[1][0]])
            if base != record[1][0]:
                self.records[at] = (record[0], (base,), *record[2:])

    def _describe(self) -> Level:
        self._settle()
        records, n = self.records, len(self.records)
        recs: list[Any] = [records[at] for at in self.sequence]
        names, operands, attrs, types, _ = zip(*recs)
        first = np.array(self.sequence, np.int64)
        lengths = np.fromiter(map(len, operands), np.int64, len(recs))
        begin = np.concatenate(([0], np.cumsum(lengths)))
        flat = np.fromiter(chain.from_iterable(operands), np.int64, int(begin[-1]))
        where = np.full(n + 1, -1)
        result = np.zeros(n + 1, np.int64)
        where[first] = np.arange(len(recs))
        several = np.fromiter(map(len, types), np.int64, len(recs))
        for p in np.flatnonzero(several > 1).tolist():
            for k in range(1, several[p]):
                where[first[p] + k] = p
                result[first[p] + k] = k
        self._virtual_ids = {}
        for at, (scan, number) in self.virtual.items():
            where[at] = where[scan]
            result[at] = number
            self._virtual_ids[scan, number] = at
        last = np.full(n + 1, -1)
        last[self.alias[flat]] = np.repeat(np.arange(len(recs)), lengths)
        if self.results:
            last[self.alias[np.array(self.results, np.int64)]] = _END
        return Level(recs, names, attrs, types, first, flat, begin, where, result, last)

    def _level(self) -> bool:
        """Roll the shortest period that can be rolled; whether there was one."""
        level = self._describe()
        keys = self.keys(level.recs, level.names)
        for period in periods(keys, self.min_trips, self.min_ops):
            new: list[int] = []
            done = 0
            for a, b in stretches(keys, period, self.min_trips):
                a = max(a, done)
                if (period, self.sequence[a]) in self._failed:
                    continue
                made = self._stretch(level, a, b, period)
                if made is None:
                    self._failed.add((period, self.sequence[a]))
                    continue
                start, end, maker = made
                new += self.sequence[done:start]
                self.loops += 1
                new += maker.pre
                new.append(maker.scan)
                done = end
            if done:
                self.sequence = new + self.sequence[done:]
                return True
        return False

    def _stretch(
        self, level: Level, a: int, b: int, period: int
    ) -> tuple[int, int, LoopMaker] | None:
        """Make a loop of (most of) the stretch; its start and end, and the records."""
        if b - a < self.min_ops or (b - a) // period < self.min_trips:
            return None
        a = self._turn(level, a, b, period)
        found = match(level, self.alias, a, b, period, self.min_trips)
        if isinstance(found, Match) and found.trips * period < self.min_ops:
            found = None
        if isinstance(found, Match):
            if not self._worthwhile(level, found):
                return None
            start, end = found.start, found.start + found.trips * period
            firsts = level.first[start:end].reshape(found.trips, period)
            mark = len(self.records), len(self.renamed), dict(self.virtual)
            try:
                maker = LoopMaker(self, found, firsts, self._used(level, found, firsts))
            except CannotRoll as error:
                del self.records[mark[0] :], self.renamed[mark[1] :]
                self.virtual = mark[2]
                found = error.mismatch
            else:
                return start, end, maker
        if isinstance(found, Mismatch) and b - a >= 4 * self.min_ops:
            self.notes.append(found)
        return None

    def _worthwhile(self, level: Level, m: Match) -> bool:
        """Whether a loop of it saves anything: taking arrays apart is no work."""
        recs = level.recs[m.start : m.start + m.period]
        return any(r[0] not in _MOVES for r in recs)

    def _turn(self, level: Level, a: int, b: int, period: int) -> int:
        """Where in the period the loop should begin: few values cross that place."""
        trips = (b - a) // period
        if trips < 4 or period == 1:
            return a
        base = a + (trips // 2 - 1) * period
        cross = [0] * (period + 1)
        for p in range(base, base + period):
            record = level.recs[p]
            for k, t in enumerate(record[3]):
                at = int(level.last_use[level.first[p] + k])
                if at <= p or at >= base + 3 * period:
                    continue
                size = t.nbytes
                if at - p >= period:
                    cross[0] += size
                    cross[period] -= size
                    continue
                # boundaries p+1 … at, as offsets from the base
                lo, hi = p + 1 - base, at - base
                if lo < period:
                    cross[lo] += size
                    cross[min(hi + 1, period)] -= size
                if hi >= period:
                    cross[0] += size
                    cross[hi - period + 1] -= size
        total, best, turn = 0, None, 0
        for o in range(period):
            total += cross[o]
            if best is None or total < best:
                best, turn = total, o
        return a + turn

    def _used(self, level: Level, m: Match, firsts: Ints) -> list[tuple[int, int, list[int]]]:
        """What is read after the stretch: record of the body, result, iterations."""
        end = m.start + m.trips * m.period
        out: list[tuple[int, int, list[int]]] = []
        read = level.last_use[firsts] >= end
        for j in np.flatnonzero(read.any(0)).tolist():
            if level.recs[m.start + j][3]:
                out.append((j, 0, np.flatnonzero(read[:, j]).tolist()))
        for j in range(m.period):
            for k in range(1, len(level.recs[m.start + j][3])):
                when = np.flatnonzero(level.last_use[firsts[:, j] + k] >= end)
                if len(when):
                    out.append((j, k, when.tolist()))
        if self.virtual:
            inside: dict[tuple[int, int], list[int]] = {}
            for at, (scan, number) in self.virtual.items():
                p = int(level.where[scan]) if scan < len(level.where) else -1
                if m.start <= p < end and level.last_use[at] >= end:
                    t, j = divmod(p - m.start, m.period)
                    inside.setdefault((j, number), []).append(t)
            out += [(j, number, sorted(ts)) for (j, number), ts in inside.items()]
        return out


_MOVES = frozenset(("item", "slice", "reshape", "stack", "transpose", "broadcast", "place"))


def reroll(fn: Function, min_trips: int = MIN_TRIPS, min_ops: int = MIN_OPS) -> Function:
    """``fn`` with its repeated stretches as loops."""
    from tapec.ir.reroll_emit import reroll_function

    return reroll_function(fn, min_trips, min_ops)
