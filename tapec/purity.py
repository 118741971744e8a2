"""Functions of libraries that compute their result and do nothing else.

What is not known to be one is taken to have effects: a list's ``append``, random numbers, output.

>>> import numpy as np
>>> computes(np.sin), computes([].append), computes(np.random.normal)
(True, False, False)
"""

from __future__ import annotations

import functools
import inspect
import math
import types
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import Any

import numpy as np

from tapec.depends import is_library
from tapec.errors import TapecError

__all__ = ["WRITING", "computes", "is_internal", "reading"]

_BUILTINS = frozenset(
    map(id, (abs, all, any, bool, complex, divmod, enumerate, float, int, isinstance, len, list,
             max, min, pow, range, reversed, round, sorted, sum, tuple, zip))
)  # fmt: skip
#: Methods of arrays, and functions of NumPy, that write.
WRITING = frozenset(
    ("byteswap", "copyto", "fill", "fill_diagonal", "itemset", "overwrite", "partition", "place",
     "put", "put_along_axis", "putmask", "resize", "setfield", "setflags", "sort", "save", "savez",
     "savetxt", "tofile", "seterr", "seterrcall", "set_printoptions", "shuffle", "setbufsize",
     "apply_along_axis", "apply_over_axes", "fromfunction", "frompyfunc", "vectorize", "piecewise")
)  # fmt: skip
_FUNCTIONS = ("_ArrayFunctionDispatcher", "builtin_function_or_method", "function")
_READING = frozenset(("copy", "count", "get", "index", "items", "keys", "values"))


def is_internal(f: Any) -> bool:
    """Whether a function is none of the user's."""
    if f.__globals__.get("TAPEC_USER_CODE"):
        return False
    return is_library(f.__code__.co_filename)


def computes(f: Any) -> bool:
    """Whether a function of a library computes its result and does nothing else."""
    if id(f) in _BUILTINS or isinstance(f, np.ufunc):
        return True
    name = getattr(f, "__name__", "")
    if isinstance(f, type):
        return issubclass(f, np.generic)
    owner = getattr(f, "__self__", None)
    if isinstance(f, BuiltinFunctionType) and owner is not None:
        if owner is math:
            return True
        if isinstance(owner, (np.ndarray, np.generic)):
            return name not in WRITING
        if isinstance(owner, np.ufunc):
            return name != "at"
        if isinstance(owner, (list, dict, tuple)):
            return name in _READING
        return isinstance(owner, (str, int, float, complex))
    if type(f).__name__ not in _FUNCTIONS:  # an object like those of np.vectorize
        return False
    module = getattr(f, "__module__", None) or ""
    if module.startswith(("numpy.random", "numpy.testing")) or name in WRITING:
        return False
    return module in ("numpy", "math") or module.startswith(("numpy.", "tapec.numpy"))


def reading(f: Callable[..., Any]) -> Callable[..., Any]:
    """``f``, which computes, refusing arguments that a call would change: iterators that others
    may hold, arrays for the result, functions of the user's."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if any(map(_used_up, args)) or "key" in kwargs:
            raise TapecError(f"{f!r} may use up an iterator or call a function")
        if len(args) > _inputs(f):
            raise TapecError(f"{f!r} may write into its last argument")
        return f(*args, **kwargs)

    return call


def _used_up(x: Any) -> bool:
    if not hasattr(type(x), "__next__"):
        return False
    if isinstance(x, types.GeneratorType):
        fresh = inspect.getgeneratorstate(x) == inspect.GEN_CREATED
        return not (fresh and x.gi_code.co_name == "<genexpr>")
    return not isinstance(x, (enumerate, reversed, zip))


@functools.lru_cache(256)
def _inputs(f: Callable[..., Any]) -> int:
    """How many arguments come before one that would be written to."""
    if isinstance(f, np.ufunc):
        return f.nin
    try:
        names = list(inspect.signature(f).parameters)
    except (TypeError, ValueError):
        return 99
    return names.index("out") if "out" in names else 99
