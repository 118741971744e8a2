"""``host_call``: a Python function of arrays inside traced code, called when the program runs.

>>> import numpy as np, tapec
>>> def smooth(x):
...     return tapec.host_call(np.sort, x, x) * 2
>>> tapec.jit(smooth)(np.array([3.0, 1.0, 2.0]))
array([2., 4., 6.])

For everything that has no native implementation.  The function gets NumPy arrays, which it
must not change or keep; it should be pure.  What it raises, the caller gets.  It has no
derivative of its own: give one with ``custom_vjp`` or ``custom_jvp``, whose rules may call the
host too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapec import api as _api  # noqa: F401  (imports the front end in order)
from tapec import primitives as p
from tapec import trees
from tapec.complexes import ComplexTracer, part_dtype
from tapec.errors import TapecTypeError, fail
from tapec.ir.core import F64, Type
from tapec.ir.host import register
from tapec.kinds import supported_dtype
from tapec.tape import is_traced

__all__ = ["host_call"]


def _type(like: Any) -> Type:
    """A result's type: that of an array, or float64 of a given shape."""
    if isinstance(like, int):
        return Type(F64, (like,))
    if isinstance(like, (tuple, list)):
        return Type(F64, tuple(int(n) for n in like))
    if hasattr(like, "shape") and hasattr(like, "dtype"):
        return Type(supported_dtype(np.dtype(like.dtype)), tuple(like.shape))
    raise fail(
        TapecTypeError,
        f"host_call: the result is described by a {type(like).__name__}",
        "give an array (of the result's shape and dtype) or a shape",
    )


def host_call(
    function: Callable[..., Any], result: Any, /, *args: Any, several: bool = False, name: str = ""
) -> Any:
    """``function(*args)`` when the compiled program runs.

    ``result``: an array (or anything with ``shape`` and ``dtype``) like the result, or its shape
    for float64; with ``several=True`` a sequence of those, and the function returns a tuple.
    ``name``: a name that means the same function in every process.
    """
    if not any(is_traced(a) for a in args):
        return function(*args)
    types = [_type(one) for one in result] if several else [_type(result)]
    xs = p.strong_operands(*args)
    if any(isinstance(x, ComplexTracer) for x in xs) or any(t.dtype.kind == "c" for t in types):
        return _by_parts(function, types, xs, several, name)
    attrs = {"token": register(function, name), "types": tuple(map(str, types))}
    found = p.emit_many("host_call", xs, attrs)
    return tuple(found) if several else found[0]


class _OfParts:
    """A function on arrays of which some are complex, as one on their parts."""

    def __init__(
        self, function: Callable[..., Any], given: tuple[bool, ...], made: tuple[bool, ...]
    ) -> None:
        self.key = function, given, made

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _OfParts) and self.key == other.key

    def __call__(self, *parts: Any) -> Any:
        function, given, made = self.key
        rest = iter(parts)
        args = [trees.join(next(rest), next(rest)) if c else next(rest) for c in given]
        found = function(*args)
        out: list[Any] = []
        for value, c in zip(found if isinstance(found, tuple) else (found,), made, strict=True):
            out += [np.real(value), np.imag(value)] if c else [value]
        return tuple(out)


def _by_parts(
    function: Callable[..., Any], types: list[Type], xs: list[Any], several: bool, name: str
) -> Any:
    given = tuple([isinstance(x, ComplexTracer) for x in xs])
    made = tuple([t.dtype.kind == "c" for t in types])
    operands: list[Any] = []
    for x in xs:
        operands += [x.re, x.im] if isinstance(x, ComplexTracer) else [x]
    kinds: list[str] = []
    for t, c in zip(types, made):
        kinds += [str(t.with_dtype(part_dtype(t.dtype)))] * 2 if c else [str(t)]
    flags = "".join("rc"[c] for c in (*given, *made))
    token = register(_OfParts(function, given, made), f"{name}:{flags}" if name else "")
    found = iter(p.emit_many("host_call", operands, {"token": token, "types": tuple(kinds)}))
    out = [ComplexTracer(next(found), next(found)) if c else next(found) for c in made]
    return tuple(out) if several else out[0]
