"""Warnings: what traces can see of a program that may not compute what its author means.

``warn_of_equality``: a branch that is taken where a differentiated value *equals* something;
its derivative is that of a single point's formula.  ``Draws``: numbers of a random generator
that a trace has drawn, which every later call uses again.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from tapec.errors import warn
from tapec.ir.opdef import OPS

if TYPE_CHECKING:
    from tapec.tape import Handle

__all__ = ["Draws", "warn_of_equality"]


def warn_of_equality(condition: Handle) -> None:
    """Warn if a condition that holds says that a differentiated value equals another."""
    tape = condition.tape
    record = tape.records[condition.id]
    if record is None or record[0] != "eq":
        return
    if not tape.type_of(record[1][0]).dtype.is_inexact:
        return
    todo, seen = list(record[1]), set()
    while todo:
        at = todo.pop()
        if at in seen:
            continue
        seen.add(at)
        if at in tape.differentiated:
            warn(
                "this branch is taken where a differentiated value is equal to something, and its "
                "derivative is that of the branch, not of the function around the point",
                "use np.where or a formula that holds near the point (abs(x - a) < eps)",
            )
            return
        while tape.records[at] is None:
            at -= 1
        made = tape.records[at]
        assert made is not None
        entry = OPS.get(made[0])
        if entry is None or not entry.nondifferentiable:
            todo += made[1]


#: 624 words and a position
_MT19937_BYTES = 625 * 4


class Draws:
    """The random generators that a traced function may use, as they are before the trace."""

    def __init__(self, objects: Iterable[Any]) -> None:
        kinds = (np.random.Generator, np.random.RandomState, random.Random)
        self.generators = [x for x in objects if isinstance(x, kinds)]
        self.before = self._now()

    def _now(self) -> list[Any]:
        states: list[Any] = [_state(np.random), random.getstate()]
        return states + [_state(g) for g in self.generators]

    def check(self, file: str, line: int, name: str) -> None:
        """Warn if numbers were drawn since."""
        names = ["np.random", "random"] + ["a random generator"] * len(self.generators)
        for which, before, now in zip(names, self.before, self._now()):
            if before != now:
                warn(
                    f"'{name}' draws numbers from {which} while it is traced, so they are the same "
                    "in all calls of the compiled function",
                    "draw them outside and pass them as an argument",
                    file,
                    line,
                )


def _state(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.Generator):
        bits = generator.bit_generator
    elif generator is np.random:
        bits = np.random.get_bit_generator()
    else:
        bits = generator._bit_generator
    if type(bits) is np.random.MT19937:  # ``state`` takes 60 µs to put together
        return ctypes.string_at(bits.ctypes.state_address, _MT19937_BYTES)
    return repr(bits.state)
