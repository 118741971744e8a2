"""The rules for NumPy's functions on traced values: three tables, and how they are used.

The modules of ``tapec.numpy`` fill the tables; ``Tracer`` looks functions up in them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapec import primitives
from tapec.errors import TapecError, UnsupportedError, fail

__all__ = [
    "FUNCTIONS",
    "METHODS",
    "UFUNCS",
    "call",
    "strong",
    "unsupported",
    "unsupported_argument",
]

#: ufunc → implementation of its call
UFUNCS: dict[Any, Callable[..., Any]] = {}
#: (ufunc, "reduce" | "accumulate" | "outer" | "at") → implementation
METHODS: dict[tuple[Any, str], Callable[..., Any]] = {}
#: NumPy function → implementation
FUNCTIONS: dict[Any, Callable[..., Any]] = {}
#: ``x[key]``, and what ``x`` is after ``x[key] = value``; set by ``tapec.indexing``
getitem: Callable[[Any, Any], Any]
setitem: Callable[[Any, Any, Any], Any]


def strong(x: Any) -> Any:
    """The same value, no longer standing for a Python number: NumPy's functions return
    NumPy scalars."""
    make = primitives._make
    return make(x.tape, x.id, x.type, x.type) if x.__class__ is make and x.weak else x


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
    if kwargs:
        if kwargs.get("out") is not None:
            raise unsupported_argument(function.__name__, "out", "assign the result")
        kwargs.pop("out", None)
        where = kwargs.get("where")
        if where is True or where is np._NoValue:
            del kwargs["where"]
        elif where is not None:
            raise unsupported_argument(
                function.__name__, "where", "use np.where on the operand, or index with the mask"
            )
    try:
        result = rule(*args, **kwargs)
    except TapecError:
        raise
    except TypeError as error:
        if "argument" in str(error) and error.__traceback__ and not error.__traceback__.tb_next:
            raise fail(UnsupportedError, f"{function.__name__} of traced values: {error}") from None
        raise
    return strong(result)


def unsupported(ufunc: Any, kwargs: Any, suffix: str = "") -> TapecError:
    extra = f" with {', '.join(kwargs)}" if kwargs else ""
    return fail(
        UnsupportedError, f"{ufunc.__name__}{suffix}{extra} is not supported on traced values"
    )


def unsupported_argument(function: str, argument: str, instead: str) -> TapecError:
    return fail(
        UnsupportedError, f"{function}: {argument}= is not supported on traced values", instead
    )
