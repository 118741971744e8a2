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

from tapec.ir.builder import Builder
from tapec.ir.core import NO_ATTRS, Dense, Function, Loc, Op, Type, Value
from tapec.kinds import BROADCAST
from tapec.tape import Record, Tape, as_tracer

__all__ = ["BAKE_BYTES", "format_tape", "lift"]

#: Arrays made inside the traced function become constants up to this size.
BAKE_BYTES = 2048

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


class _Lift:
    """The state of one lowering: ``env`` maps value ids to IR values, ``constants`` the ids
    of constants to what they hold."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.b = Builder()
        self.env: list[Value | None] = [None] * len(tape.records)
        self.constants: dict[int, tuple[Any, Type]] = {}
        self._shaped: dict[tuple[int, tuple[int, ...]], Value] = {}

    def function(self, results: Sequence[int], name: str) -> Function:
        self.parameters()
        self.body(self.live(results))
        return self.b.function(name, [self.value(at) for at in results])

    def parameters(self) -> None:
        tape, env, b = self.tape, self.env, self.b
        baked = tape.settle_captures(BAKE_BYTES)
        for at, hint in tape.inputs:
            env[at] = b.param(tape.type_of(at), hint)
        for at, record in enumerate(tape.records):
            if record is None:
                continue
            if record[0] == "constant":
                self.constants[at] = (record[2]["value"], record[3][0])
            elif at in baked:
                self.constants[at] = (Dense(baked[at]), record[3][0])
            elif record[0] == "capture":
                env[at] = b.param(record[3][0], record[4].hint)

    def value(self, at: int) -> Value:
        """The IR value of ``at``; constants are emitted on demand."""
        found = self.env[at]
        if found is not None:
            return found
        value, type = self.constants[at]
        found = self.env[at] = self.constant(at, value, type)
        return found

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
            value = self.value(at)
        assert value is not None
        key = (at, shape)
        found = self._shaped.get(key)
        if found is None:
            self.b.loc = loc
            found = self._shaped[key] = self.b.broadcast_to(value, shape)
        return found

    def live(self, results: Sequence[int]) -> bytearray:
        """Which records matter: what results and guards depend on.  In-place assignment and
        views leave many that nothing reads."""
        records = self.tape.records
        live = bytearray(len(records))
        for at in results:
            live[at] = 1
        for at in range(len(records) - 1, -1, -1):
            record = records[at]
            if record is None:
                if live[at]:
                    live[at - 1] = 1
                continue
            if live[at] or record[0] == "guard" or (record[2] and "regions" in record[2]):
                live[at] = 1
                for k in record[1]:
                    live[k] = 1
        return live

    def body(self, live: bytearray) -> None:
        records, env, ops = self.tape.records, self.env, self.b.ops
        following: list[Any] = [r[4] if r is not None else None for r in records[1:]]
        following.append(None)
        for at, record in enumerate(records):
            if record is None or not live[at]:
                continue
            op, operands, attrs, types, site = record
            loc, hint = site
            if following[at] is site:
                hint = None
            if attrs is NO_ATTRS:
                values = tuple([env[k] for k in operands])
                if None in values:
                    values = tuple([self.value(k) for k in operands])
            elif attrs is BROADCAST:
                shape = types[0].shape
                values = tuple([self.shaped(k, shape, loc) for k in operands])
                attrs = NO_ATTRS
            elif op in _IMPLICIT:
                continue
            elif op == "item":
                env[at] = self.item(record, hint)
                continue
            elif op == "stack":
                self.b.loc = loc
                env[at] = self.stack(record, hint)
                continue
            else:
                values = tuple([self.value(k) for k in operands])
            regions: Any = ()
            if "regions" in attrs:
                regions = attrs["regions"]
                attrs = {k: v for k, v in attrs.items() if k != "regions"}
            new = Op(op, values, types, attrs, regions, loc, hint)  # type: ignore[arg-type]
            ops.append(new)
            for k, result in enumerate(new.results):
                env[at + k] = result

    def item(self, record: Record, hint: str | None) -> Value:
        """``x[i, j]``: a slice of one element along the leading axes, and a reshape."""
        _, operands, attrs, types, (loc, _) = record
        x = self.value(operands[0])
        index, shape = attrs["index"], x.type.shape
        rest = shape[len(index) :]
        ones = (1,) * len(index)
        piece = x
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
        _, operands, _, types, _ = record
        b, type = self.b, types[0]
        if all(k in self.constants for k in operands):
            parts = [
                v.array if isinstance(v, Dense) else np.full(t.shape, v, t.dtype.np)
                for v, t in (self.constants[k] for k in operands)
            ]
            return b.constant(np.array(parts, type.dtype.np).reshape(type.shape), type)
        inner = self.tape.type_of(operands[0]).shape
        pieces, at = [], []
        ones = (1,) * (1 + len(inner))
        for k, operand in enumerate(operands):
            held = self.constants.get(operand)
            if held is not None and not isinstance(held[0], Dense) and repr(held[0]) == "0.0":
                continue  # place starts from zeros
            pieces.append(b.reshape(self.value(operand), (1, *inner)))
            at.append(((k,) + (0,) * len(inner), ones))
        placed = b.place(pieces, (len(operands), *inner), at)
        result = b.reshape(placed, type.shape)
        if result.op is not None and hint is not None:
            result.hint = hint
        return result


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
