"""Registering implementations, and the argument conventions that NumPy functions share."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from tapec.errors import TapecAxisError, TapecValueError, fail
from tapec.rules import FUNCTIONS, METHODS

__all__ = ["axes_of", "axis_of", "implements", "int_argument", "method_of", "shape_argument"]


_Rule = TypeVar("_Rule", bound=Callable[..., Any])


def implements(*functions: Any) -> Callable[[_Rule], _Rule]:
    """Register the implementation of NumPy functions; names that NumPy lacks are skipped."""

    def register(rule: _Rule) -> _Rule:
        for function in functions:
            if isinstance(function, str):
                function = getattr(np, function, None) if function else None
            if function is not None:
                FUNCTIONS[function] = rule
        return rule

    return register


def method_of(ufunc: Any, method: str) -> Callable[[_Rule], _Rule]:
    """Register the implementation of a ufunc's method (``reduce``, ``outer``, …)."""

    def register(rule: _Rule) -> _Rule:
        METHODS[(ufunc, method)] = rule
        return rule

    return register


def int_argument(value: Any, what: str) -> int:
    """A plain integer given by the user (a traced one is decided by a guard)."""
    try:
        return operator.index(value)
    except TypeError:
        raise fail(
            TapecValueError, f"{what} must be an integer, not {type(value).__name__}"
        ) from None


def axis_of(axis: Any, ndim: int) -> int:
    """One axis, negative ones counted from the end."""
    k = int_argument(axis, "axis")
    if not -ndim <= k < ndim:
        raise fail(TapecAxisError, f"axis {k} is out of bounds for array of dimension {ndim}")
    return k + ndim if k < 0 else k


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """Axes given as None (all), an integer, or a sequence of integers."""
    if axis is None:
        return tuple(range(ndim))
    if not isinstance(axis, (tuple, list)):
        return (axis_of(axis, ndim),)
    axes = tuple(axis_of(k, ndim) for k in axis)
    if len(set(axes)) != len(axes):
        raise fail(TapecValueError, "duplicate value in 'axis'")
    return axes


def shape_argument(shape: Any) -> tuple[int, ...]:
    """A shape given as an integer or a sequence of integers."""
    if isinstance(shape, (Sequence, np.ndarray)):
        return tuple(int_argument(n, "a dimension") for n in shape)
    return (int_argument(shape, "a dimension"),)
