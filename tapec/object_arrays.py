"""Object arrays of traced values in functions that NumPy does not dispatch.

``np.array([[a, b], [b, c]])`` of traced scalars is an object array of NumPy's own, and
``np.linalg`` refuses object arrays before anything of ours is asked.  So while a trace runs,
the attributes of ``np.linalg`` (and of other modules whose functions are implemented here) forward:
a call with such an array goes to our implementation, every other call, from any thread, to
NumPy's function.  When the last trace has ended the attributes are NumPy's own again.

Names that were imported from the modules before are NumPy's functions and not reached.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tapec.rules import FUNCTIONS, call
from tapec.tape import is_traced

__all__ = ["forwarding"]

_MODULES = {"numpy.linalg": np.linalg, "numpy.fft": np.fft}
_lock = threading.Lock()
_depth = 0
_table: list[tuple[Any, str, Any, Any]] = []


def _holds_traced(value: Any) -> bool:
    if value.__class__ is np.ndarray:
        return value.dtype == object and is_traced(value)
    return value.__class__ in (list, tuple) and any(_holds_traced(v) for v in value)


def _forwarded(function: Any) -> Callable[..., Any]:
    @functools.wraps(function)
    def either(*args: Any, **kwargs: Any) -> Any:
        if _holds_traced(args) or (kwargs and _holds_traced(tuple(kwargs.values()))):
            return call(function, *args, **kwargs)
        return function(*args, **kwargs)

    return either


def _entries() -> list[tuple[Any, str, Any, Any]]:
    """(module, name, NumPy's function, the forwarding one)"""
    if not _table:
        for function in FUNCTIONS:
            module: Any = _MODULES.get(getattr(function, "__module__", ""))
            name = getattr(function, "__name__", "")
            if module is not None and getattr(module, name, None) is function:
                _table.append((module, name, function, _forwarded(function)))
    return _table


@contextmanager
def forwarding() -> Iterator[None]:
    """See the module docstring.  May be nested, in one thread and several."""
    global _depth
    with _lock:
        _depth += 1
        if _depth == 1:
            for module, name, _, either in _entries():
                setattr(module, name, either)
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                for module, name, function, _ in _entries():
                    setattr(module, name, function)
