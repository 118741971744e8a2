"""From a matched stretch to the records of a loop: parameters, body, results.

``LoopMaker(roller, match, used)`` appends records to the roller's list:

* what must stand before the loop (``pre``): arrays of what varies from outside;
* the body, with fresh ids, and the ``scan`` record itself;

and tells which values of the stretch are what after it: final carries (``alias``) or elements
of what the loop stacks (*virtual* records, see ``Roller``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tapec.ir.core import I64, NO_ATTRS, Attrs, Dense, Type
from tapec.ir.reroll_match import CARRY, CONST, LOCAL, Match, Mismatch
from tapec.ir.reroll_records import Loop, Record, loop_signature

if TYPE_CHECKING:
    from tapec.ir.reroll import Roller

__all__ = ["CannotRoll", "LoopMaker"]

Ints = np.ndarray[Any, np.dtype[np.int64]]

#: Constants that differ between iterations are gathered into arrays of at most this many bytes.
MAX_CONSTANT = 1 << 24
#: A loop stacks at most this many different values.
MAX_STACKED = 64
#: Smaller constants are repeated in the body; larger ones are passed to it.
SMALL_CONSTANT = 256


class CannotRoll(Exception):
    """The stretch stays as it is."""

    def __init__(self, record: Record, why: str) -> None:
        super().__init__(why)
        self.mismatch = Mismatch(record, why)


class _Chain:
    """A carried value and its history: ``slots[k]`` holds it from k + 1 iterations ago, as
    (parameter, id before the loop)."""

    __slots__ = ("slots", "source")

    def __init__(self, source: tuple[int, int]) -> None:
        self.source = source
        self.slots: list[tuple[int, int]] = []


class LoopMaker:
    def __init__(self, roller: Roller, match: Match, firsts: Ints, used: Sequence[Any]) -> None:
        """``firsts[t, j]``: id of record j of iteration t; ``used``: values that something
        after the stretch reads, as (record of the body, result, iterations)."""
        self.roller = roller
        self.records = roller.records
        self.match = match
        self.firsts = firsts
        self.pre: list[int] = []
        self.chains: dict[tuple[int, int], list[_Chain]] = {}
        self.xs: dict[Any, tuple[int, int]] = {}  # what it is → parameter, array
        self.consts: dict[int, int] = {}  # outer id → parameter
        self.local: dict[tuple[int, int], int] = {}
        self.ids = match.ids
        self.rep = [self._record(int(at)) for at in firsts[0]]
        self.body: list[int] = []
        for j in range(match.period):
            self._body_record(j)
        self._finish(used)

    # -- records ------------------------------------------------------------------------

    def _record(self, at: int) -> Record:
        record = self.records[at]
        assert record is not None
        return record

    def _new(self, op: str, operands: tuple[int, ...], attrs: Attrs, types: Any, site: Any) -> int:
        return self.roller.new(op, operands, attrs, types, site)

    def _param(self, type: Type, site: Any = None) -> int:
        return self._new("param", (), NO_ATTRS, (type,), site)

    def _type(self, at: int) -> Type:
        return self.roller.type_of(at)

    def _before(self, op: str, operands: tuple[int, ...], attrs: Attrs, type: Type) -> int:
        """A record that stands before the loop."""
        at = self._new(op, operands, attrs, (type,), self.rep[0][4])
        self.pre.append(at)
        return at

    def _constant(self, array: Any, dtype: Any) -> int:
        if array.nbytes > MAX_CONSTANT:
            raise CannotRoll(self.rep[0], "constants that vary are too large to be gathered")
        type = Type(dtype, array.shape)
        attrs = {"value": Dense(array), "type": type}
        return self._new("constant", (), attrs, (type,), None)

    # -- the body -----------------------------------------------------------------------

    def _body_record(self, j: int) -> None:
        m, record = self.match, self.rep[j]
        op, _, attrs, types, site = record
        a, b = m.columns[j], m.columns[j + 1]
        if j in m.varying:
            made = self._varying(j, a)
        else:
            operands = tuple([self._operand(c, j) for c in range(a, b)])
            made = self._new(op, operands, attrs, types, site)
            self.body.append(made)
        for k in range(len(types)):
            self.local[j, k] = made + k

    def _operand(self, c: int, j: int) -> int:
        m = self.match
        kind = m.kind[c]
        if kind == LOCAL:
            return self._local(int(m.place[c]), int(m.result[c]))
        if kind == CARRY:
            d = int(m.distance[c])
            return self._carried(
                (int(m.place[c]), int(m.result[c])), self.ids[:d, c].tolist(), self.rep[j]
            )
        if kind == CONST:
            return self._const(int(self.ids[0, c]))
        return self._scanned(self.ids[:, c], self.rep[j])

    def _local(self, place: int, result: int) -> int:
        known = self.local.get((place, result))
        if known is None:  # an element of what an inner loop stacks
            types = self.rep[place][3]
            inner = self.rep[place][2]["loop"]
            k, t = divmod(result - len(types), inner.length)
            base = self.local[place, k]
            stacked = types[k]
            known = self._new(
                "item", (base,), {"index": (t,)}, (stacked.with_shape(stacked.shape[1:]),), None
            )
            self.local[place, result] = known
        return known

    def _carried(self, source: tuple[int, int], inits: list[int], record: Record) -> int:
        """The value of ``source`` from ``len(inits)`` iterations ago; ``inits``: what it is in
        the first iterations."""
        d = len(inits)
        type = self._source_type(source)
        for at in inits:
            if self._type(at) is not type:
                raise CannotRoll(
                    record, f"a value of type {self._type(at)} becomes one of type {type}"
                )
        inits = inits[::-1]  # by how many iterations ago
        chains = self.chains.setdefault(source, [])
        for chain in chains:
            if all(slot[1] == at for slot, at in zip(chain.slots, inits)):
                break
        else:
            chain = _Chain(source)
            chains.append(chain)
        while len(chain.slots) < d:
            chain.slots.append(
                (self._param(type, self._hint_site(source)), inits[len(chain.slots)])
            )
        return chain.slots[d - 1][0]

    def _source_type(self, source: tuple[int, int]) -> Type:
        place, result = source
        types = self.rep[place][3]
        if result < len(types):
            return types[result]
        stacked: Type = types[(result - len(types)) // self.rep[place][2]["loop"].length]
        return stacked.with_shape(stacked.shape[1:])

    def _hint_site(self, source: tuple[int, int]) -> Any:
        return self.rep[source[0]][4] if source[1] == 0 else None

    def _const(self, at: int) -> int:
        record = self.records[at]
        if record is not None and record[0] in ("constant", "iota"):
            value = record[2].get("value")
            if not isinstance(value, Dense) or value.array.nbytes <= SMALL_CONSTANT:
                return at
        known = self.consts.get(at)
        if known is None:
            known = self.consts[at] = self._param(self._type(at), self.roller.site_of(at))
        return known

    # -- what varies from outside ---------------------------------------------------------

    def _scan_over(self, key: Any, make: Any, type: Type) -> int:
        """The parameter for slices (of ``type``) of the array that ``make`` gives."""
        known = self.xs.get(key)
        if known is None:
            array = make()
            known = self.xs[key] = self._param(type), array
        return known[0]

    def _scanned(self, column: Ints, record: Record) -> int:
        ids = column.tolist()
        type = self._type(ids[0])
        others = {at for at in ids if self._type(at) is not type}
        if others:
            raise CannotRoll(record, f"an operand is {type}, then {self._type(others.pop())}")
        return self._scan_over(tuple(ids), lambda: self._gathered(ids, type), type)

    def _gathered(self, ids: list[int], type: Type) -> int:
        """The array of the values ``ids``."""
        found = [self._record_of(at) for at in ids]
        n = len(ids)
        if all([r[0] == "constant" for r in found]):
            values = [r[2]["value"] for r in found]
            if n * type.nbytes > MAX_CONSTANT:
                raise CannotRoll(self.rep[0], "constants that vary are too large to be gathered")
            parts = [
                v.array if isinstance(v, Dense) else np.full(type.shape, v, type.dtype.np)
                for v in values
            ]
            return self._constant(np.array(parts, type.dtype.np), type.dtype)
        if all([r[0] == "item" for r in found]) and len({r[1][0] for r in found}) == 1:
            return self._items(found[0][1][0], [r[2]["index"] for r in found], type)
        stacked = type.with_shape((n, *type.shape))
        return self._before("stack", tuple(ids), {"shape": stacked.shape}, stacked)

    def _record_of(self, at: int) -> Record:
        first = at
        while self.records[first] is None:
            first -= 1
        return self._record(first)

    def _items(self, base: int, index: list[tuple[int, ...]], type: Type) -> int:
        """``base[i]`` for all ``index``, stacked."""
        n, full = len(index), self._type(base)
        table = np.array(index, np.int64).reshape(n, -1)
        k = table.shape[1]
        shape = (n, *type.shape)
        step = np.diff(table, axis=0)
        moving = np.flatnonzero((step != 0).any(0))
        if len(moving) == 1 and (step[:, moving[0]] == step[0, moving[0]]).all():
            v = int(moving[0])
            start = [*table[0].tolist(), *[0] * len(type.shape)]
            size = [*[1] * k, *type.shape]
            stride = [1] * len(start)
            size[v], stride[v] = n, int(step[0, v])
            return self._reshaped(self._sliced(base, start, size, stride), shape)
        arrays = [self._constant(table[:, a].copy(), I64) for a in range(k)]
        attrs = {"axes": tuple(range(k))}
        return self._before("gather", (base, *arrays), attrs, full.with_shape(shape))

    def _sliced(
        self, base: int, start: Sequence[int], size: Sequence[int], step: Sequence[int]
    ) -> int:
        type = self._type(base)
        if tuple(size) == type.shape and all(s == 1 for s in step):
            return base
        attrs = {"start": tuple(start), "size": tuple(size), "step": tuple(step)}
        return self._before("slice", (base,), attrs, type.with_shape(size))

    def _reshaped(self, at: int, shape: tuple[int, ...]) -> int:
        type = self._type(at)
        if type.shape == shape:
            return at
        return self._before("reshape", (at,), {"shape": shape}, type.with_shape(shape))

    def _transposed(self, at: int, perm: tuple[int, ...]) -> int:
        if perm == tuple(range(len(perm))):
            return at
        type = self._type(at)
        shape = tuple([type.shape[p] for p in perm])
        return self._before("transpose", (at,), {"perm": perm}, type.with_shape(shape))

    def _varying(self, j: int, c: int) -> int:
        """Record j of the body, whose attributes vary."""
        m, record = self.match, self.rep[j]
        (type,) = record[3]
        columns = m.varying[j]
        if m.kind[c] == CONST:
            base = int(self.ids[0, c])
            if record[0] == "item":
                index = [x["index"] for x in columns]
                return self._scan_over((base, *index), lambda: self._items(base, index, type), type)
            starts = [x["start"] for x in columns]
            key = (base, record[2]["size"], record[2]["step"], *starts)
            return self._scan_over(key, lambda: self._windows(base, starts, record), type)
        if record[0] != "item":
            raise CannotRoll(record, "a slice moves over an array that changes")
        table = np.array([x["index"] for x in columns], np.int64)
        arrays = []
        for a in range(table.shape[1]):
            axis = table[:, a].copy()
            scalar = Type(I64)
            if (axis == axis[0]).all():
                attrs = {"value": int(axis[0]), "type": scalar}
                arrays.append(self._new("constant", (), attrs, (scalar,), None))
            else:
                key = ("index", *axis.tolist())
                arrays.append(
                    self._scan_over(key, lambda axis=axis: self._constant(axis, I64), scalar)
                )
        made = self._new(
            "gather",
            (self._operand(c, j), *arrays),
            {"axes": tuple(range(len(arrays)))},
            (type,),
            record[4],
        )
        self.body.append(made)
        return made

    def _windows(self, base: int, starts: list[tuple[int, ...]], record: Record) -> int:
        """Slices of one size at different places, stacked."""
        size, step = record[2]["size"], record[2]["step"]
        full = self._type(base)
        n, table = len(starts), np.array(starts, np.int64)
        moves = np.diff(table, axis=0)
        moving = np.flatnonzero((moves != 0).any(0))
        if len(moving) != 1:
            raise CannotRoll(record, "a slice moves along several axes")
        v = int(moving[0])
        rank = len(size)
        if size[v] == 1 and (moves[:, v] == moves[0, v]).all():
            sizes, steps = list(size), list(step)
            sizes[v], steps[v] = n, int(moves[0, v])
            part = self._sliced(base, starts[0], sizes, steps)
            perm = (v, *[a for a in range(rank) if a != v])
            return self._reshaped(self._transposed(part, perm), (n, *size))
        sizes, steps, start = list(size), list(step), list(starts[0])
        sizes[v], steps[v], start[v] = full.shape[v], 1, 0
        part = self._sliced(base, start, sizes, steps)
        index = table[:, v][:, None] + np.arange(size[v]) * step[v]
        shape = (n, size[v], *[s for a, s in enumerate(size) if a != v])
        found = self._before(
            "gather", (part, self._constant(index, I64)), {"axes": (v,)}, full.with_shape(shape)
        )
        perm = (0, *[1 if a == v else 2 + a - (a > v) for a in range(rank)])
        return self._transposed(found, perm)

    # -- after the loop -------------------------------------------------------------------

    def _finish(self, used: Sequence[tuple[int, int, list[int]]]) -> None:
        trips = self.match.trips
        stacked: list[tuple[int, int, list[int]]] = []
        finals: list[tuple[int, _Chain, int]] = []  # id → chain, and how long ago
        for place, result, when in used:
            source = (place, result)
            back = trips - min(when)  # 1: only the last value is used
            chains = self.chains.get(source)
            if chains is None and back == 1:
                type = self._source_type(source)
                chain = _Chain(source)
                chain.slots.append((self._param(type, self._hint_site(source)), self._zero(type)))
                chains = self.chains[source] = [chain]
            longest = max(chains, key=lambda c: len(c.slots)) if chains else None
            if longest is not None and back <= len(longest.slots):
                finals += [(self._id(t, place, result), longest, trips - 1 - t) for t in when]
            else:
                stacked.append((place, result, when))
        if len(stacked) > MAX_STACKED:
            raise CannotRoll(self.rep[0], "too many different values are used after the loop")
        slots: list[tuple[int, int, int]] = []  # parameter, id before, id after an iteration
        number: dict[int, int] = {}  # id(chain) → index of its first carry
        for chains in self.chains.values():
            for chain in chains:
                number[id(chain)] = len(slots)
                now = self._local(*chain.source)
                for param, init in chain.slots:
                    slots.append((param, init, now))
                    now = param
        params = [p for p, _, _ in slots] + [p for p, _ in self.xs.values()]
        params += list(self.consts.values())
        results = [now for _, _, now in slots] + [self._local(p, r) for p, r, _ in stacked]
        operands = [init for _, init, _ in slots] + [a for _, a in self.xs.values()]
        operands += list(self.consts)
        types = [self._type(p) for p, _, _ in slots]
        for place, result, _ in stacked:
            t = self._source_type((place, result))
            types.append(t.with_shape((trips, *t.shape)))
        header = (trips, len(slots), len(self.xs))
        signature = loop_signature(self.records, header, params, self.body, results)
        loop = Loop(*header, params, self.body, results, signature)
        site = self.roller.place_only(self.rep[0][4])
        self.scan = scan = self._new("scan", tuple(operands), {"loop": loop}, tuple(types), site)
        roller = self.roller
        for at, chain, ago in finals:
            roller.rename(at, scan + number[id(chain)] + ago)
        for k, (place, result, when) in enumerate(stacked):
            y = len(slots) + k
            for trip in when:
                at = self._id(trip, place, result)
                roller.element(at, scan, y, trip, self._source_type((place, result)))

    def _zero(self, type: Type) -> int:
        value: Any = {"b": False, "i": 0, "f": 0.0}.get(type.dtype.kind, 0j)
        return self._new("constant", (), {"value": value, "type": type}, (type,), None)

    def _id(self, t: int, place: int, result: int) -> int:
        first = int(self.firsts[t, place])
        types = self.rep[place][3]
        if result < len(types):
            return first + result
        return self.roller.virtual_id(first, result)
