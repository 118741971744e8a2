"""The rules for NumPy's functions on traced values: three tables, and how they are used.

The modules of ``tapec.numpy`` fill the tables; ``Tracer`` looks functions up in them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tapec.errors import TapecError, UnsupportedError, fail
from tapec.primitives import strong

__all__ = [
    "FUNCTIONS",
    "METHODS",
    "UFUNCS",
    "call",
    "strong",
    "ufunc_rule",
    "unsupported",
    "unsupported_argument",
]

#: ufunc → implementation of its call
UFUNCS: dict[Any, Callable[..., Any]] = {}
#: (ufunc, "reduce" | "accumulate" | "outer" | "at") → implementation
METHODS: dict[tuple[Any, str], Callable[..., Any]] = {}
#: NumPy function → implementation
FUNCTIONS: dict[Any, Callable[..., Any]] = {}
#: ``x[key]``, and what ``x`` is after ``x[key] = value``; set by ``indexing`` and ``writing``
getitem: Callable[[Any, Any], Any]
setitem: Callable[[Any, Any, Any], Any]
#: what ``x`` is after a region of it is replaced
write_region: Callable[[Any, Any, Any], Any]
#: a ufunc with keywords, or a method of one: set by ``tapec.numpy.methods``
apply_ufunc: Callable[[Any, str, tuple[Any, ...], dict[str, Any]], Any]


def call(function: Any, *args: Any, **kwargs: Any) -> Any:
    """A NumPy function on traced values: its implementation here, or an error that names it."""
    rule = FUNCTIONS.get(function)
    if rule is None:
        name = f"{getattr(function, '__module__', '')}.{function.__name__}".lstrip(".")
        raise fail(
            UnsupportedError,
            f"{name} is not supported on traced values",
            "write it with supported functions (see tapec.numpy.supported())",
        )
    out = None
    if kwargs:
        out = kwargs.pop("out", None)
        if kwargs.get("where", True) is True or kwargs.get("where") is np._NoValue:
            kwargs.pop("where", None)
    try:
        result = rule(*args, **kwargs)
    except TapecError:
        raise
    except TypeError as error:
        if "argument" in str(error) and error.__traceback__ and not error.__traceback__.tb_next:
            raise fail(UnsupportedError, f"{function.__name__} of traced values: {error}") from None
        raise
    if out is not None:
        from tapec.numpy.methods import into

        return into(out if isinstance(out, tuple) else (out,), result, function.__name__)
    return strong(result)


def ufunc_rule(ufunc: Any) -> Callable[..., Any] | None:
    """The rule of a ufunc's call.  The rules of SciPy's are loaded when one is met."""
    rule = UFUNCS.get(ufunc)
    if rule is None and "scipy.special" in sys.modules:
        import tapec.scipy.special  # noqa: F401  (registers its rules)

        rule = UFUNCS.get(ufunc)
    return rule


def unsupported(ufunc: Any, kwargs: Any, suffix: str = "") -> TapecError:
    extra = f" with {', '.join(kwargs)}" if kwargs else ""
    return fail(
        UnsupportedError, f"{ufunc.__name__}{suffix}{extra} is not supported on traced values"
    )


def unsupported_argument(function: str, argument: str, instead: str) -> TapecError:
    return fail(
        UnsupportedError, f"{function}: {argument}= is not supported on traced values", instead
    )
