"""The exceptions of tapec: one tree, each also a built-in that NumPy users would catch.

A message says what was wrong, where in the user's source, and what to write instead:

    fit.py:12: float() of the traced value 'x' (f64[]); instead: use np.sin in place of math.sin

``fail`` builds such a message from the user's frame that is active now.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from tapec.source import describe_site, user_site

__all__ = [
    "ConversionError",
    "InternalError",
    "LeakedTracerError",
    "TapecAxisError",
    "TapecError",
    "TapecIndexError",
    "TapecLinAlgError",
    "TapecTypeError",
    "TapecValueError",
    "TapecWarning",
    "TapeLimitError",
    "UnsupportedError",
    "VariantLimitError",
    "fail",
    "tape_full",
    "warn",
    "writing_into_plain_array",
]


class TapecError(Exception):
    """Base of everything that tapec raises on purpose."""


class TapecTypeError(TapecError, TypeError):
    """A value of a wrong kind or dtype."""


class TapecValueError(TapecError, ValueError):
    """A wrong shape, or a value that cannot be meant."""


class TapecIndexError(TapecError, IndexError):
    """An index out of range, or too many of them."""


class TapecLinAlgError(TapecError, np.linalg.LinAlgError):
    """A singular matrix, one that is not positive definite, an iteration that did not converge."""


class UnsupportedError(TapecError, NotImplementedError):
    """A function or a use of it that tapec cannot differentiate (yet)."""


class ConversionError(TapecTypeError):
    """A traced value was about to become a plain number, which would drop its derivative."""

    #: it may come from writing into an array that NumPy made: see ``retry``
    into_plain_array = False


class LeakedTracerError(TapecError, RuntimeError):
    """A traced value is used after its trace has ended, or in another thread."""


class VariantLimitError(TapecError, RuntimeError):
    """Too many different paths through one function."""


class TapeLimitError(TapecError, RuntimeError):
    """One trace has recorded too many operations: a loop that should not be unrolled."""


class TapecWarning(UserWarning):
    """What was asked for is computed, but may not be what was meant."""


class InternalError(TapecError, RuntimeError):
    """A mistake of the compiler's own.  Never the user's fault; never a wrong number."""


def fail(cls: type[TapecError], what: str, instead: str = "") -> TapecError:
    """An exception whose message starts with the user's ``file:line``."""
    site = user_site(2)
    place = f"{describe_site(site)}: " if site.loc is not None else ""
    return cls(f"{place}{what}; instead: {instead}" if instead else f"{place}{what}")


def tape_full(name: str, limit: int) -> TapecError:
    """The trace of the function ``name`` is as long as it may be."""
    return fail(
        TapeLimitError,
        f"the trace of '{name}' has recorded {limit:,} operations, which is the limit "
        "(TAPEC_TAPE_LIMIT); a loop of Python is unrolled while it is traced",
        "write this loop with tapec.fori_loop, tapec.scan or tapec.while_loop, which trace "
        "their bodies once",
    )


class TapecAxisError(TapecIndexError, ValueError):
    """An axis that an array does not have (NumPy's AxisError is both kinds, too)."""


def writing_into_plain_array(error: TapecError) -> TapecError:
    """Mark an error that making the array with ``tapec.numpy`` would avoid."""
    if isinstance(error, ConversionError):
        error.into_plain_array = True
    return error


def warn(what: str, instead: str, file: str = "", line: int = 0) -> None:
    """A ``TapecWarning``, at the user's line that is active now unless another is given."""
    if not file:
        loc = user_site(2).loc
        file, line = (loc.file, loc.line) if loc is not None else ("<unknown>", 1)
    text = f"{file}:{line}: {what}; instead: {instead}"
    warnings.warn_explicit(text, TapecWarning, file, line, registry=_shown)


_shown: dict[Any, Any] = {}
