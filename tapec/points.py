"""Derivatives at a point: ``jvp``, ``vjp``, ``linearize``.

They run at once, and compile like the other transforms, at the first call with a new signature.

>>> import tapec
>>> tapec.jvp(lambda x: x ** 3, (2.0,), (1.0,))
(8.0, 12.0)
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapec import trees
from tapec.api import name_of
from tapec.codegen.callable_type import callable_type
from tapec.dispatch import Call, Dispatcher, inline
from tapec.errors import TapecTypeError, TapecValueError
from tapec.signature import Flat
from tapec.tape import current_tape, is_traced
from tapec.trace import Output, Traced
from tapec.transforms import Transform, pullback

__all__ = ["forget", "jvp", "linearize", "vjp"]

_shared: weakref.WeakKeyDictionary[Any, dict[Transform, Dispatcher]] = weakref.WeakKeyDictionary()


def forget() -> None:
    """Drop the variants of all functions."""
    _shared.clear()


def _dispatcher_for(fn: Callable[..., Any], transform: Transform) -> Dispatcher:
    """The dispatcher of a function, kept as long as the function lives."""
    if not callable(fn):
        raise TapecTypeError(f"{transform.kind} expects a function, not a {type(fn).__qualname__}")
    if type(fn) is not types.FunctionType and type(fn) is not callable_type():
        return Dispatcher(transform, name_of(fn))
    table = _shared.setdefault(fn, {})
    found = table.get(transform)
    if found is None:
        found = table[transform] = Dispatcher(transform, name_of(fn))
    return found


def jvp(fn: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The value of ``fn(*primals)`` and its derivative in the direction ``tangents``.

    ``primals`` and ``tangents`` are sequences of the same structure and shapes; all primals
    are differentiated.  Returns ``(out, tangent_out)``, ``tangent_out`` with the structure of
    ``out`` (``None`` where ``out`` is an integer, a bool or a constant).

    >>> import numpy as np, tapec
    >>> tapec.jvp(lambda x, y: x * y, (2.0, 3.0), (1.0, 0.5))
    (6.0, 4.0)
    """
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise TapecTypeError("jvp expects its primals and tangents as tuples, one entry each")
    args = tuple(primals)
    seeds, seeds_def = trees.flatten(tuple(tangents))
    _, primals_def = trees.flatten(args)
    fitted = trees.fit(seeds, seeds_def, primals_def)
    if fitted is None:
        raise TapecTypeError(
            f"jvp: the tangents have the structure {seeds_def}, the primals {primals_def}"
        )
    return _dispatcher_for(fn, Transform("jvp", None, False)).call(fn, args, {}, fitted)


def vjp(fn: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """The value of ``fn(*primals)`` and its pullback.

    ``pullback(ct)`` takes cotangents with the structure and shapes of the value and returns
    a tuple of cotangents, one per primal.  It may be called many times.  It recomputes what
    it needs of ``fn`` from the primals (copied now) and from captured arrays (read when it
    is called).

    >>> import numpy as np, tapec
    >>> out, pullback = tapec.vjp(lambda x, y: x * y, 2.0, 3.0)
    >>> out, pullback(1.0)
    (6.0, (3.0, 2.0))
    """
    dispatcher = _dispatcher_for(fn, Transform("vjp", None, False))
    tape = current_tape()
    call = dispatcher.flatten(fn, primals, {})
    if tape is not None:
        traced = dispatcher.trace(fn, call.flat)
        if not traced.concrete or any(is_traced(x) for x in call.flat.leaves):
            out = dispatcher.record(tape, traced, call)
            return out, lambda ct: _pull_traced(traced, call.flat, ct)
    leaves = [np.array(x) if isinstance(x, np.ndarray) else x for x in call.flat.leaves]
    flat = Flat(leaves, call.flat.keys, call.flat.layout)
    out, variant, _ = dispatcher.compute(fn, Call(flat, None))

    def pull(ct: Any) -> tuple[Any, ...]:
        seeds = _cotangents(variant.traced, ct)
        if any(is_traced(s) for s in seeds):
            return _pull_traced(variant.traced, flat, ct)
        result: tuple[Any, ...] = variant.pullback()[1].run(flat, seeds)
        return result

    return out, pull


def _cotangents(traced: Traced, ct: Any) -> list[Any]:
    """The cotangents of the results that have one."""
    leaves, treedef = trees.flatten(ct)
    fitted = trees.fit(leaves, treedef, traced.treedef)
    if fitted is None:
        if trees.has_pairs(treedef) and not trees.has_pairs(traced.treedef):
            raise TapecTypeError("the cotangent is complex, but the value is real")
        raise TapecTypeError(
            f"the cotangent has the structure {treedef}, but the value has {traced.treedef}"
        )
    return [
        c
        for c, x in zip(fitted, traced.leaves, strict=True)
        if isinstance(x, Output) and x.type.dtype.is_inexact
    ]


def _pull_traced(traced: Traced, flat: Flat, ct: Any) -> tuple[Any, ...]:
    """The pullback recorded on the tape that is active now."""
    tape = current_tape()
    if tape is None:
        raise TapecValueError("a pullback of traced values is used after their trace has ended")
    traced = traced._replace(flat=flat)
    seeds = _cotangents(traced, ct)
    result: tuple[Any, ...] = inline(tape, pullback(traced), traced, seeds)
    return result


def linearize(fn: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """The value of ``fn(*primals)`` and its derivative there as a function of a direction.

    ``linear(*tangents)`` takes one tangent per primal, of its structure and shapes, and returns the
    derivative in that direction, with the structure of the value (``None`` where the value is an
    integer, a bool or a constant).  Nothing that depends on the primals alone is computed again:
    cheaper than ``jvp`` for several directions at one point.  Later writes to arrays that ``fn``
    captured are not seen.

    Raises ``TypeError`` for tangents of another structure.

    >>> import numpy as np, tapec
    >>> value, linear = tapec.linearize(lambda x: np.exp(x) * x, 0.0)
    >>> value, linear(1.0), linear(2.0)
    (0.0, 1.0, 2.0)
    """
    dispatcher = _dispatcher_for(fn, Transform("linearize", None, False))
    call = dispatcher.flatten(fn, primals, {})
    _, structure = trees.flatten(primals)

    def checked(tangents: tuple[Any, ...]) -> list[Any]:
        seeds, given = trees.flatten(tangents)
        fitted = trees.fit(seeds, given, structure)
        if fitted is None:
            raise TapecTypeError(
                f"linearize: the tangents have the structure {given}, the primals {structure}"
            )
        return fitted

    def forward(*tangents: Any) -> Any:
        checked(tangents)
        return jvp(fn, primals, tangents)[1]

    if current_tape() is not None and (
        any(is_traced(x) for x in call.flat.leaves) or not dispatcher.trace(fn, call.flat).concrete
    ):
        return fn(*primals), forward
    (out, residuals), variant, _ = dispatcher.compute(fn, call)
    differentiated = call.flat.layout.differentiated

    def linear(*tangents: Any) -> Any:
        seeds = checked(tangents)
        if any(is_traced(s) for s in seeds):
            return forward(*tangents)
        return variant.linear_map()(residuals, [s for s, d in zip(seeds, differentiated) if d])

    return out, linear
