"""Programs of the kind practitioners write, in plain NumPy and SciPy.

Each is a function of one array of parameters with a number as its value, registered with a point and,
where there is one, a second method for the value.  ``tests/test_practitioner_programs.py`` runs them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Function = Callable[[Any], Any]


class Program(NamedTuple):
    fn: Function
    point: Any
    #: the value by a second method
    other: Function | None
    #: how exact the second method is
    rtol: float


PROGRAMS: dict[str, Program] = {}


def program(
    point: Any, other: Function | None = None, rtol: float = 1e-10
) -> Callable[[Function], Function]:
    def register(fn: Function) -> Function:
        PROGRAMS[fn.__name__] = Program(fn, np.array(point, dtype=float), other, rtol)
        return fn

    return register
