"""Records → IR, loops included; and the pass ``reroll`` on functions, which goes both ways.

``Emitter`` walks a sequence of records and appends operations to its builder.  Records that
are not in the sequence (constants, elements) are emitted where they are used first; each body
of a loop is a scope of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapec.ir.builder import Builder
from tapec.ir.core import NO_ATTRS, Attrs, Dense, Function, Loc, Op, Type, Value
from tapec.ir.loops import emit_scan
from tapec.ir.reroll import Roller
from tapec.ir.reroll_records import Loop, Record, Records

__all__ = ["Emitter", "reroll_function", "to_records"]


class Emitter:
    """The state of one lowering: ``env`` maps value ids to IR values, ``constants`` the ids
    of constants to what they hold."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.b = Builder()
        self.env: list[Value | None] = [None] * len(records)
        self.constants: dict[int, tuple[Any, Type]] = {}
        #: ids whose values belong to the present scope only
        self.scoped: list[int] = []

    # -- sites: what records say about their place ------------------------------------------

    def loc_of(self, site: Any) -> Loc | None:
        return site  # type: ignore[no-any-return]

    def hint_of(self, site: Any) -> str | None:
        return None

    # -- values -----------------------------------------------------------------------------

    def value(self, at: int) -> Value:
        """The IR value of ``at``; constants and elements are emitted on demand."""
        found = self.env[at]
        if found is not None:
            return found
        self.scoped.append(at)
        held = self.constants.get(at)
        if held is None:
            record = self.records[at]
            assert record is not None
            op, _, attrs, types, _ = record
            if op == "constant":
                held = self.constants[at] = attrs["value"], types[0]
            elif op == "iota":
                found = self.env[at] = self.b.emit("iota", (), attrs)
                return found
            else:
                assert op == "item", op
                found = self.env[at] = self.item(record, None)
                return found
        found = self.env[at] = self.constant(at, *held)
        return found

    def constant(self, at: int, value: Any, type: Type) -> Value:
        return self.b.constant(value, type)

    # -- records that are no operations of the IR ---------------------------------------------

    def item(self, record: Record, hint: str | None) -> Value:
        """``x[i, j]``: a slice of one element along the leading axes, and a reshape."""
        _, operands, attrs, types, site = record
        x = self.value(operands[0])
        index, shape = attrs["index"], x.type.shape
        rest = shape[len(index) :]
        ones = (1,) * len(index)
        piece, loc = x, self.loc_of(site)
        if ones + rest != shape:
            start = index + (0,) * len(rest)
            at = {"start": start, "size": ones + rest, "step": (1,) * len(shape)}
            new = Op("slice", (x,), (x.type.with_shape(ones + rest),), at, (), loc)
            self.b.ops.append(new)
            piece = new.results[0]
        new = Op("reshape", (piece,), types, {"shape": types[0].shape}, (), loc, hint)
        self.b.ops.append(new)
        return new.results[0]

    def stack(self, record: Record, hint: str | None) -> Value:
        """Pieces of one shape, in order, as one array."""
        _, operands, _, types, site = record
        b, type = self.b, types[0]
        b.loc = self.loc_of(site)
        if all(k in self.constants for k in operands):
            parts = [
                v.array if isinstance(v, Dense) else np.full(t.shape, v, t.dtype.np)
                for v, t in (self.constants[k] for k in operands)
            ]
            return b.constant(np.array(parts, type.dtype.np).reshape(type.shape), type)
        inner = self.type_of(operands[0]).shape
        pieces, at, k = [], [], 0
        ones = (1,) * (1 + len(inner))
        while k < len(operands):
            operand = operands[k]
            n = self._run(operands, k)
            if n > 1:
                part = self._elements(operand, operands[k + 1], n)
                pieces.append(b.reshape(part, (n, *inner)))
                at.append(((k,) + (0,) * len(inner), ones))
                k += n
                continue
            held = self.constants.get(operand)
            # place starts from zeros
            if held is None or isinstance(held[0], Dense) or repr(held[0]) != "0.0":
                pieces.append(b.reshape(self.value(operand), (1, *inner)))
                at.append(((k,) + (0,) * len(inner), ones))
            k += 1
        placed = b.place(pieces, (len(operands), *inner), at)
        result = b.reshape(placed, type.shape)
        if result.op is not None and hint is not None:
            result.hint = hint
        return result

    def _run(self, operands: Sequence[int], k: int) -> int:
        """How many operands from k on are elements of one array in arithmetic sequence."""
        if len(operands) - k < 4 or self.env[operands[k]] is not None:
            return 1
        found: list[Record] = []
        for operand in operands[k:]:
            record = self.records[operand]
            if record is None or record[0] != "item" or len(record[2]["index"]) != 1:
                break
            if found and record[1] != found[0][1]:
                break
            if len(found) > 1:
                last, before = found[-1][2]["index"][0], found[-2][2]["index"][0]
                if record[2]["index"][0] - last != last - before:
                    break
            found.append(record)
        return len(found) if len(found) > 3 else 1

    def _elements(self, first: int, second: int, n: int) -> Value:
        a, b = self.records[first], self.records[second]
        assert a is not None and b is not None
        x = self.value(a[1][0])
        (start,), (following,) = a[2]["index"], b[2]["index"]
        rest = x.type.shape[1:]
        zeros, ones = (0,) * len(rest), (1,) * len(rest)
        if start == 0 and following == 1 and n == x.type.shape[0]:
            return x
        return self.b.slice(x, (start, *zeros), (n, *rest), (following - start, *ones))

    def type_of(self, at: int) -> Type:
        first = at
        while self.records[first] is None:
            first -= 1
        record = self.records[first]
        assert record is not None
        return record[3][at - first]

    # -- loops ------------------------------------------------------------------------------

    def loop(self, record: Record) -> Sequence[Value]:
        """A ``scan``: its body in a scope of its own."""
        _, operands, attrs, _, site = record
        loop: Loop = attrs["loop"]
        given = [self.value(k) for k in operands]
        env, outer = self.env, self.b
        saved = [(at, env[at]) for at in self.scoped]
        for at, _ in saved:
            env[at] = None
        kept = self.enter()
        self.b = b = Builder(self.loc_of(site))
        for p in loop.params:
            param = self.records[p]
            assert param is not None
            env[p] = b.param(param[3][0], self.hint_of(param[4]))
        self.sequence(loop.body)
        block = b.block([self.value(r) for r in loop.results])
        for at in self.scoped:
            env[at] = None
        self.leave(kept)
        for at, before in saved:
            env[at] = before
        self.b = outer
        outer.loc = self.loc_of(site)
        c, x = loop.n_carry, loop.n_carry + loop.n_xs
        made = emit_scan(outer, given[:c], given[c:x], given[x:], block, loop.length)
        for carry, result in zip(block.params, made.results[:c]):
            result.hint = carry.hint
        return made.results

    def enter(self) -> Any:
        """Begin a scope; what ``leave`` needs."""
        kept, self.scoped = self.scoped, []
        return kept

    def leave(self, kept: Any) -> None:
        self.scoped = kept

    def sequence(self, ids: Sequence[int]) -> None:
        """Emit the records ``ids``, in order."""
        env = self.env
        for at in ids:
            record = self.records[at]
            assert record is not None
            for k, result in enumerate(self.one(record)):
                env[at + k] = result

    def one(self, record: Record) -> Sequence[Value]:
        """Emit one record; its results."""
        op, operands, attrs, types, site = record
        if op == "scan" and "loop" in attrs:
            return self.loop(record)
        if op == "item":
            return (self.item(record, self.hint_of(site)),)
        if op == "stack":
            return (self.stack(record, self.hint_of(site)),)
        values = tuple([self.value(k) for k in operands])
        regions: Any = ()
        if "regions" in attrs:
            regions = attrs["regions"]
            attrs = {k: v for k, v in attrs.items() if k != "regions"}
        new = Op(op, values, types, attrs, regions, self.loc_of(site), self.hint_of(site))
        self.b.ops.append(new)
        return new.results


# -- functions ------------------------------------------------------------------------------


class _Site:
    """Where an operation of a function is, and what its result is called."""

    __slots__ = ("hint", "loc")

    def __init__(self, loc: Loc | None, hint: str | None) -> None:
        self.loc = loc
        self.hint = hint


class _FunctionEmitter(Emitter):
    def loc_of(self, site: Any) -> Loc | None:
        return site.loc if site is not None else None

    def hint_of(self, site: Any) -> str | None:
        return site.hint if site is not None else None


def to_records(fn: Function) -> tuple[Records, list[int], dict[Value, int]]:
    """A function's operations as records, their ids in order, and the ids of its values."""
    records: Records = []
    ids: dict[Value, int] = {}
    sequence: list[int] = []
    for p in fn.params:
        ids[p] = len(records)
        records.append(("input", (), NO_ATTRS, (p.type,), _Site(None, p.hint)))
    for op in fn.ops:
        at = len(records)
        attrs: Attrs = op.attrs
        if op.regions:
            attrs = {**attrs, "regions": op.regions}
        elif attrs and type(attrs) is not dict:
            attrs = dict(attrs)
        types = tuple([r.type for r in op.results])
        site = _Site(op.loc, op.results[0].hint if op.results else None)
        operands = tuple([ids[v] for v in op.operands])
        records.append((op.name, operands, attrs, types, site))
        for k, r in enumerate(op.results):
            ids[r] = at + k
            if k:
                records.append(None)
        if op.name not in ("constant", "iota"):
            sequence.append(at)
    return records, sequence, ids


def _keys(records: Sequence[Any], names: Sequence[str]) -> Any:
    return np.array(
        [
            hash(r[2]["loop"])
            if r[0] == "scan" and "loop" in r[2]
            else hash((r[0], r[4].loc, r[3]))
            for r in records
        ],
        np.int64,
    )


def reroll_function(fn: Function, min_trips: int, min_ops: int) -> Function:
    records, sequence, ids = to_records(fn)
    results = [ids[r] for r in fn.results]
    roller = Roller(
        records,
        sequence,
        results,
        _keys,
        lambda site: _Site(site.loc, None),
        min_trips=min_trips,
        min_ops=min_ops,
    )
    rolled = roller.roll()
    if not roller.loops:
        return fn
    emitter = _FunctionEmitter(records)
    for p in fn.params:
        emitter.env[ids[p]] = emitter.b.param(p.type, p.hint)
    emitter.sequence(rolled.sequence)
    return emitter.b.function(fn.name, [emitter.value(r) for r in rolled.results])
