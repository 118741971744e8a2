"""Indices that are only known when the program runs: those of loops, in the bodies of loops."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapec.errors import ConversionError
from tapec.ir.core import I64
from tapec.tape import Tape
from tapec.tracer import Tracer

__all__ = ["concrete_or_none", "known_range"]


def concrete_or_none(index: Tracer) -> Any:
    """The values of indices; none if they are not known, in the body of a loop."""
    try:
        return index.concrete()
    except ConversionError:
        return np.zeros(0, np.int64)


def known_range(tape: Tape, at: int) -> tuple[int, int]:
    """Bounds (low, high) with low ≤ value < high of an index of a loop, plus or minus numbers."""
    shift = 0
    while at not in tape.ranges:
        record = tape.records[at]
        if record is None or record[0] not in ("add", "sub"):
            return -1, -1
        op, (x, y), _, types, _ = record
        held = [tape.records[k] for k in (x, y)]
        if types[0].shape or types[0].dtype is not I64:
            return -1, -1
        if held[1] is not None and held[1][0] == "constant":
            at, by, sign = x, held[1][2]["value"], 1 if op == "add" else -1
        elif held[0] is not None and held[0][0] == "constant" and op == "add":
            at, by, sign = y, held[0][2]["value"], 1
        else:
            return -1, -1
        if type(by) is not int:
            return -1, -1
        shift += sign * by
    low, high = tape.ranges[at]
    return low + shift, high + shift
