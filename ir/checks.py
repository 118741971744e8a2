"""Checks that the type rules of the op table share.

Each raises ``TypeError`` (kinds of thing) or ``ValueError`` (numbers that do not fit)
with a message that starts with the name of the op and says what was expected and found.

>>> int_tuple("transpose", {"perm": (1, 0)}, "perm")
(1, 0)
"""

from __future__ import annotations

from typing import Any

from tapec.ir.core import Attrs, Type

__all__ = ["attr", "axis_of", "axis_tuple", "count", "int_tuple", "kind_one_of"]

_KINDS = {"b": "bool", "i": "integer", "f": "real", "c": "complex"}


def attr(name: str, attrs: Attrs, key: str) -> Any:
    """The attribute ``key``, which must be present."""
    try:
        return attrs[key]
    except KeyError:
        raise TypeError(f"{name}: attribute {key!r} is missing") from None


def count(name: str, types: tuple[Type, ...], n: int) -> None:
    if len(types) != n:
        raise TypeError(f"{name}: takes {n} operand{'' if n == 1 else 's'}, got {len(types)}")


def int_tuple(name: str, attrs: Attrs, key: str) -> tuple[int, ...]:
    value = attr(name, attrs, key)
    if type(value) is tuple:
        for n in value:
            if type(n) is not int:
                break
        else:
            return value
    raise TypeError(f"{name}: attribute {key!r} must be a tuple of ints, got {value!r}")


def axis_tuple(name: str, axes: tuple[int, ...], ndim: int, what: str = "axes") -> None:
    """``axes`` are increasing axes of an array of ``ndim`` dimensions."""
    last = -1
    for k in axes:
        if k <= last or k >= ndim:
            raise ValueError(
                f"{name}: {what} must be increasing and between 0 and {ndim - 1}, got {axes}"
                if ndim
                else f"{name}: {what} {axes} of a 0-d operand"
            )
        last = k


def axis_of(name: str, attrs: Attrs, ndim: int) -> int:
    axis = attr(name, attrs, "axis")
    if type(axis) is not int:
        raise TypeError(f"{name}: attribute 'axis' must be an int, got {axis!r}")
    if not 0 <= axis < ndim:
        raise ValueError(f"{name}: axis {axis} is out of bounds for array of dimension {ndim}")
    return axis


def kind_one_of(name: str, type: Type, kinds: str) -> None:
    """The dtype is of one of the kinds (letters of ``DType.kind``)."""
    if type.dtype.kind not in kinds:
        wanted = " or ".join(_KINDS[k] for k in kinds)
        raise TypeError(f"{name}: needs an operand of kind {wanted}, got {type}")
