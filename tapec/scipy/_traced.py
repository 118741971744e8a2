"""What the modules of ``tapec.scipy`` that replace functions of SciPy share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import scipy.linalg as _scipy

from tapec import primitives as p
from tapec.complexes import ComplexTracer
from tapec.errors import TapecValueError, UnsupportedError, fail
from tapec.numpy.ufuncs import real_float
from tapec.tape import is_traced

__all__ = ["array", "numbers", "replaces", "replacing", "square"]

_Rule = TypeVar("_Rule", bound=Callable[..., Any])


def replacing(module: Any) -> Callable[[_Rule], _Rule]:
    """A decorator for functions of the same names as those of a module of SciPy: the function
    where an argument is traced, SciPy's elsewhere."""

    def replaces(rule: _Rule) -> _Rule:
        plain = getattr(module, rule.__name__, None)

        @functools.wraps(rule)
        def function(*args: Any, **kwargs: Any) -> Any:
            if is_traced(args) or is_traced(list(kwargs.values())):
                return rule(*args, **kwargs)
            if plain is None:
                raise fail(UnsupportedError, f"this SciPy has no {module.__name__}.{rule.__name__}")
            return plain(*args, **kwargs)

        return function  # type: ignore[return-value]

    return replaces


replaces = replacing(_scipy)


def array(x: Any) -> Any:
    """An argument as an array: traced real numbers, or a plain array as it is."""
    if not is_traced(x):
        return np.asarray(x)
    a = p.as_array(x)
    if isinstance(a, ComplexTracer):
        raise fail(
            UnsupportedError,
            "tapec.scipy.linalg takes real matrices, not complex ones",
            "use numpy.linalg, whose functions take complex matrices",
        )
    return real_float(a)


def numbers(x: Any) -> Any:
    """An argument as an array of real or complex numbers, traced or plain."""
    if is_traced(x):
        return p.as_array(x)
    a = np.asarray(x)
    return a if a.dtype.kind in "fc" else a.astype(float)


def square(x: Any) -> Any:
    a = array(x)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise fail(TapecValueError, f"Expected a square matrix, but the shape is {a.shape}")
    return a
