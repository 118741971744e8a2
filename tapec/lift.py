"""Tape → IR: what NumPy left implicit becomes operations.

Constants are emitted where they are used, in the shape that they are used in; operands of
elementwise records are broadcast to the result's shape; ``item`` and ``stack`` become
slices, reshapes and ``place``.  Names of values come from the user's assignments.

    with Tape("square") as tape:
        x = tape.input(Type(F64, ()), 3.0, "x")
        fn = lift(tape, [x * x], "square")
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapec import options
from tapec.assemble import Versions, Written, assemble, elements_of
from tapec.ir.core import NO_ATTRS, Dense, Function, Loc, Op, Type, Value
from tapec.ir.reroll import MIN_OPS, MIN_TRIPS, Roller
from tapec.ir.reroll_emit import Emitter
from tapec.kinds import BROADCAST
from tapec.source import NOWHERE, Site
from tapec.tape import Tape, as_tracer

__all__ = ["BAKE_BYTES", "ROLL_OPS", "format_tape", "lift"]

#: Arrays made inside the traced function become constants up to this size.
BAKE_BYTES = 2048
#: Shorter tapes are not searched for loops.
ROLL_OPS = 2000
#: What becomes a loop: that many iterations, and that many operations in all.
ROLL_TRIPS, ROLL_LENGTH = MIN_TRIPS, MIN_OPS

_IMPLICIT = ("input", "capture", "constant")


def lift(tape: Tape, outputs: Sequence[Any], name: str) -> Function:
    """The function that computes ``outputs``: parameters are the tape's inputs in order,
    then its captures (``tape.captures`` is final afterwards)."""
    closed, tape.closed = tape.closed, False
    collecting = gc.isenabled()
    gc.disable()  # nothing here becomes garbage, and scanning what is made is half the time
    try:
        results = [as_tracer(tape, value).id for value in outputs]
        return _Lift(tape).function(results, name)
    finally:
        tape.closed = closed
        if collecting:
            gc.enable()


class _Lift(Emitter):
    """The state of one lowering: ``env`` maps value ids to IR values, ``constants`` the ids
    of constants to what they hold."""

    def __init__(self, tape: Tape) -> None:
        super().__init__(list(tape.records))  # re-rolling adds to it
        self.tape = tape
        self._shaped: dict[tuple[int, tuple[int, ...]], Value] = {}

    def function(self, results: Sequence[int], name: str) -> Function:
        self.parameters()
        live = self.live(results)
        records = self.records
        order = [
            at
            for at, record in enumerate(records)
            if live[at] and record is not None and record[0] not in _IMPLICIT
        ]
        if len(order) >= ROLL_OPS and options.reroll():
            order, results = self.roll(order, results)
        self.sequence(order)
        return self.b.function(name, [self.value(at) for at in results])

    def roll(self, order: list[int], results: Sequence[int]) -> tuple[list[int], Sequence[int]]:
        """Find the loops again; see ``ir.reroll``."""
        records, leaf = self.records, ("input", "capture")
        sequence = []
        for at in order:
            record = records[at]
            assert record is not None
            if record[0] == "item":
                base = records[record[1][0]]
                if base is not None and base[0] in leaf:
                    continue  # emitted where it is used
            sequence.append(at)
        roller = Roller(
            records,
            sequence,
            results,
            _keys,
            _place_only,
            min_trips=ROLL_TRIPS,
            min_ops=ROLL_LENGTH,
        )
        rolled = roller.roll()
        for record, why in rolled.notes:
            self.tape.notes.append((record[4], why))
        if not roller.loops:
            return order, results
        self.env.extend([None] * (len(records) - len(self.env)))
        return rolled.sequence, rolled.results

    def parameters(self) -> None:
        tape, env, b = self.tape, self.env, self.b
        baked = tape.settle_captures(BAKE_BYTES)
        for at, hint in tape.inputs:
            env[at] = b.param(tape.type_of(at), hint)
        for at in [at for at, r in enumerate(tape.records) if r is not None and not r[1]]:
            record = self.records[at]
            assert record is not None
            if record[0] == "constant":
                self.constants[at] = (record[2]["value"], record[3][0])
            elif at in baked:
                self.constants[at] = (Dense(baked[at]), record[3][0])
            elif record[0] == "capture":
                env[at] = b.param(record[3][0], record[4].hint)

    def loc_of(self, site: Any) -> Loc | None:
        return site.loc if site is not None else None

    def hint_of(self, site: Any) -> str | None:
        return site.hint if site is not None else None

    def constant(self, at: int, value: Any, type: Type) -> Value:
        key = (at, type.shape)
        found = self._shaped.get(key)
        if found is None:
            found = self._shaped[key] = self.b.constant(value, type)
        return found

    def shaped(self, at: int, shape: tuple[int, ...], loc: Loc | None) -> Value:
        """The value of ``at`` broadcast to ``shape``."""
        value = self.env[at]
        if value is not None and value.type.shape == shape:
            return value
        if at in self.constants:
            held, type = self.constants[at]
            if not isinstance(held, Dense):
                return self.constant(at, held, type.with_shape(shape))
        if value is None:
            value = self.value(at)
            if value.type.shape == shape:
                return value
        key = (at, shape)
        found = self._shaped.get(key)
        if found is None:
            self.b.loc = loc
            found = self._shaped[key] = self.b.broadcast_to(value, shape)
        return found

    def enter(self) -> Any:
        kept = super().enter(), self._shaped
        self._shaped = {}
        return kept

    def leave(self, kept: Any) -> None:
        scoped, self._shaped = kept
        super().leave(scoped)

    def live(self, results: Sequence[int]) -> bytearray:
        """Which records matter: what results and guards depend on.  In-place assignment and
        views leave many that nothing reads."""
        records = self.records
        live = bytearray(len(records))
        written = bool(self.tape.chains)
        tape = self.tape
        versions = Versions(lambda at: tape.type_of(at).size, lambda at: tape.type_of(at).shape)
        for at in results:
            live[at] = 1
        for at in range(len(records) - 1, -1, -1):
            record = records[at]
            if record is None:
                if live[at] or (written and versions.reach(at)):
                    live[at] = live[at - 1] = 1
                continue
            if record[0] == "update":
                for k in versions.update(at, record[1], record[2]["region"], bool(live[at])):
                    live[k] = 1
                continue
            if written and versions.reach(at):
                live[at] = 1
            if live[at] or record[0] == "guard" or (record[2] and "regions" in record[2]):
                live[at] = 1
                for k in record[1]:
                    live[k] = 1
        for at, version in versions.found.items():
            self.records[at] = self.assembled(at, version)
        live.extend(bytes(len(records) - len(live)))
        return live

    def assembled(self, at: int, version: Written) -> Any:
        """The record of an array that was written to piece by piece: a ``stack`` if it is known
        element by element, else ``assemble``."""
        record = self.records[at]
        assert record is not None
        type = record[3][0]
        tape, (base, writes) = self.tape, version
        elements = elements_of(type, writes, [tape.type_of(piece) for piece, _ in writes])
        if elements is not None:
            held = self.records[base]
            missing = -1
            if held is not None and held[0] == "constant" and not isinstance(
                held[2]["value"], Dense
            ):  # fmt: skip
                missing = tape.constant_id(held[2]["value"], type.dtype)
                if missing >= len(self.records):
                    self.records.append(tape.records[missing])
                    self.env.append(None)
                self.constants[missing] = (held[2]["value"], Type(type.dtype))
            if missing >= 0 or -1 not in elements:
                ids = tuple([missing if k < 0 else k for k in elements])
                return ("stack", ids, {"shape": type.shape}, record[3], record[4])
        attrs = {"places": tuple([region for _, region in writes])}
        return ("assemble", (base, *[piece for piece, _ in writes]), attrs, record[3], record[4])

    def one(self, record: Any) -> Sequence[Value]:
        if record[0] != "assemble":
            return super().one(record)
        _, (base, *pieces), attrs, _, site = record
        self.b.loc = self.loc_of(site)
        pairs = [(self.value(k), region) for k, region in zip(pieces, attrs["places"])]
        result = assemble(self.b, self.value(base), pairs)
        if self.hint_of(site) is not None and result.op is not None:
            result.hint = self.hint_of(site)
        return (result,)

    def sequence(self, ids: Sequence[int]) -> None:
        """Emit records, in order.  Of those that come from one place the last has the name."""
        records, env, ops = self.records, self.env, self.b.ops
        last = len(ids) - 1
        for position, at in enumerate(ids):
            record = records[at]
            assert record is not None
            op, operands, attrs, types, site = record
            if attrs is NO_ATTRS:
                values = tuple([env[k] for k in operands])
                if None in values:
                    values = tuple([self.value(k) for k in operands])
            elif attrs is BROADCAST:
                shape, loc = types[0].shape, site[0]
                values = tuple([self.shaped(k, shape, loc) for k in operands])
                attrs = NO_ATTRS
            else:
                for k, result in enumerate(self.one(record)):
                    env[at + k] = result
                continue
            loc, hint = site
            if hint is not None and position < last:
                following = records[ids[position + 1]]
                if following is not None and following[4] is site:
                    hint = None
            new = Op(op, values, types, attrs, (), loc, hint)  # type: ignore[arg-type]
            ops.append(new)
            for k, result in enumerate(new.results):
                env[at + k] = result


def _keys(records: Sequence[Any], names: Sequence[str]) -> Any:
    n = len(records)
    places = np.fromiter(map(id, [r[4] for r in records]), np.int64, n)
    keys = np.fromiter(map(hash, names), np.int64, n) ^ places
    for k, name in enumerate(names):
        if name == "scan" and "loop" in records[k][2]:
            keys[k] = hash(records[k][2]["loop"])
    return keys


def _place_only(site: Site | None) -> Site:
    return NOWHERE if site is None else Site(site.loc)


def format_tape(tape: Tape, color: bool = False) -> str:
    """The records, one a line: id, op, operands, attributes, type, the user's line."""
    lines = [f"tape {tape.name}: {len(tape.records)} records"]
    dim, plain = ("\x1b[2m", "\x1b[0m") if color else ("", "")
    for at, record in enumerate(tape.records):
        if record is None:
            continue
        op, operands, attrs, types, (loc, hint) = record
        args = " ".join(f"#{k}" for k in operands)
        shown = {k: v for k, v in attrs.items() if k not in ("type", "regions")}
        extra = (
            " {" + ", ".join(f"{k}={v}" for k, v in sorted(shown.items())) + "}" if shown else ""
        )
        result = ", ".join(map(str, types))
        text = f"{at:5}  {op} {args}".rstrip() + extra + (f" : {result}" if result else "")
        if hint:
            text += f"  '{hint}'"
        lines.append(f"{text:<64}  {dim}# {loc}{plain}" if loc else text)
    return "\n".join(lines)
