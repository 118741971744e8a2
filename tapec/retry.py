"""Traces that failed in code which takes no traced values, run once more on counterparts of it.

Two kinds of failure are meant.  NumPy asks a traced value for a ``float`` where it is written into
an array of plain ``np.zeros(n)``; and functions of SciPy that are no ufuncs convert their arguments
before they compute.  The trace is run again with copies of the user's functions that see
``tapec.numpy`` where they name ``numpy`` (arrays made there are traced, and can be written to), and
``tapec.scipy`` where they name ``scipy``, a module of it or a function of such a module.  Only
the copies are affected: the user's modules, other callers, NumPy and SciPy stay as they are.

``copies`` says what is copied.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from tapec.copies import Copier
from tapec.errors import ConversionError, TapecError, UnsupportedError
from tapec.source import describe_site, site_of
from tapec.tape import is_traced

__all__ = ["failed_in", "unsupported", "with_counterparts"]

#: SciPy's modules some of whose functions have counterparts.
_SCIPY = (
    "fft", "integrate", "interpolate", "linalg", "optimize", "signal", "spatial.distance",
    "special", "stats",
)  # fmt: skip
#: What stands in for the rest.
_WAYS = {
    "integrate": "use fixed_quad, or np.trapezoid over points",
    "optimize": "use tapec.root, tapec.fixed_point or tapec.argmin",
    "sparse": "use A @ x, tapec.linear_solve",
}


def failed_in(error: BaseException) -> str | None:
    """The library that an error comes from: "numpy" if a traced value was to be written into a
    plain array, "scipy" if a function of SciPy was given traced values."""
    if _called(error) is not None:
        return "scipy"
    return "numpy" if isinstance(error, ConversionError) and error.into_plain_array else None


def _called(error: BaseException) -> tuple[Any, str] | None:
    """The user's frame and the function of SciPy that was called with traced values."""
    user, trace = None, error.__traceback__
    name = ""
    sure = isinstance(error, ConversionError) or isinstance(error.__cause__, TapecError)
    while trace is not None:
        frame = trace.tb_frame
        module = frame.f_globals.get("__name__", "")
        if module.startswith("scipy."):
            name = name or _named(frame)
            sure = sure or any(_holds_traced(v) for v in frame.f_locals.values())
        elif not name and not module.startswith(("numpy", "tapec")):
            user = trace
        trace = trace.tb_next
    return (user, name) if name and sure else None


def _named(frame: types.FrameType) -> str:
    """``scipy.stats.norm.logpdf`` for a frame of ``scipy.stats._distn_infrastructure``."""
    module, name = frame.f_globals["__name__"], frame.f_code.co_qualname
    if module.startswith("scipy._lib.") or "<locals>" in name:  # a wrapper of a function
        found = [frame.f_locals.get(k) for k in ("f", "hypotest_fun_in")]
        function = next((f for f in found if isinstance(f, types.FunctionType)), None)
        if function is None:
            return ""
        module, name = function.__module__, function.__qualname__
    owner, _, method = name.rpartition(".")
    known = getattr(frame.f_locals.get("self"), "name", None)  # of a distribution
    owner = known if isinstance(known, str) else owner.removesuffix("_gen")
    parts = ["scipy", module.split(".")[1], owner, "" if method == "__init__" else method]
    return ".".join(filter(None, parts))


def _holds_traced(value: Any, depth: int = 4) -> bool:
    """Also in the closure of a function, and of one that wraps it: compiled callers may replace the
    error of a traced value that was returned to them."""
    if isinstance(value, types.MethodType):
        value = value.__func__
    if isinstance(value, (tuple, list)):
        return any(is_traced(v) for v in value)
    if isinstance(value, dict):
        return any(is_traced(v) for v in value.values())
    if isinstance(value, types.FunctionType):
        cells = [c.cell_contents for c in value.__closure__ or () if _set(c)]
        return depth > 0 and any(_holds_traced(v, depth - 1) for v in cells)
    return is_traced(value)


def _set(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def unsupported(error: BaseException) -> BaseException:
    """What to raise when a function of SciPy has no counterpart, or cannot be reached."""
    found = _called(error)
    if found is None or (isinstance(error, TapecError) and "tapec.scipy" in str(error)):
        return error
    user, name = found
    place = "" if user is None else f"{describe_site(site_of(user.tb_frame, user.tb_lasti))}: "
    return UnsupportedError(f"{place}{name} does not take traced values; instead: {_way(name)}")


def _way(name: str) -> str:
    """What to write instead of a function of SciPy."""
    _, module, *rest = name.split(".")
    for ours in _SCIPY:
        if ours.partition(".")[0] == module and rest and rest[0] in _names(_ours(ours)):
            return f"use tapec.scipy.{ours}.{rest[0]}"
    plain = "call it on plain arrays, write it with NumPy, or wrap it in tapec.host_call"
    return f"{_WAYS[module]}, or {plain}" if module in _WAYS else plain


def _ours(module: str) -> Any:
    return importlib.import_module(f"tapec.scipy.{module}")


def _names(module: Any) -> list[str]:
    """The counterparts in a module of ours: all, if it does not say which."""
    return list(getattr(module, "TRACED", module.__all__))


def with_counterparts(
    subject: Callable[..., Any], libraries: frozenset[str]
) -> Callable[..., Any] | None:
    """A copy of ``subject`` that sees counterparts of the libraries ("numpy", "scipy"); None if it
    is not a function that names them."""
    convert = _object if "scipy" in libraries else None
    copier = Copier(_counterparts(libraries), convert)
    made = copier.function(subject)
    return made if copier.named else None


def _counterparts(libraries: frozenset[str]) -> dict[int, tuple[Any, Any]]:
    """By identity: what is replaced, and by what."""
    import tapec.numpy

    found: list[tuple[Any, Any]] = []
    if "numpy" in libraries:
        found.append((np, tapec.numpy))
        found += [
            (getattr(np, name), ours)
            for name, ours in vars(tapec.numpy).items()
            if isinstance(ours, types.FunctionType) and hasattr(np, name)
        ]
    if "scipy" in libraries:
        for name in _SCIPY:
            theirs = sys.modules.get(f"scipy.{name}")
            if theirs is not None:
                ours = _ours(name)
                if not hasattr(ours, "TRACED"):
                    found.append((theirs, ours))
                found += [(getattr(theirs, k, None), getattr(ours, k)) for k in _names(ours)]
    return {id(x): (x, y) for x, y in found if x is not None and x is not y}


def _object(x: Any) -> Any:
    """The counterpart of an object of SciPy's that was made outside of the trace, or itself."""
    for module in _SCIPY:
        if f"scipy.{module}" in sys.modules:
            made = getattr(_ours(module), "counterpart", lambda x: None)(x)
            if made is not None:
                return made
    return x
