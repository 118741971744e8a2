"""Making arrays.

``zeros_like(x)`` and its kin of a traced ``x`` are traced, and so may be written to.  The
functions named in ``__all__`` are those of the ``tapec.numpy`` namespace: inside a trace
they yield traced arrays (``a = np.zeros(3); a[i] = v`` works), outside they are NumPy's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapec import primitives as p
from tapec.errors import TapecValueError, fail
from tapec.ir.core import DType, dtype_of
from tapec.kinds import common_dtype
from tapec.numpy.registry import implements, int_argument, shape_argument
from tapec.primitives import as_array, binary, cast, operands, reshape
from tapec.tape import as_tracer, current_tape, is_traced
from tapec.tracer import FUNCTIONS, Tracer

__all__ = [
    "arange", "array", "asanyarray", "asarray", "ascontiguousarray", "asfortranarray", "empty",
    "copy", "empty_like", "eye", "full", "full_like_", "identity", "isscalar", "linspace", "ones",
    "ones_like", "tri", "zeros", "zeros_like",
]  # fmt: skip


def _like(value: Any) -> Any:
    def rule(a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None,
             *, device: Any = None) -> Tracer:  # fmt: skip
        x = as_array(a)
        new = x.type.shape if shape is None else shape_argument(shape)
        return p.full(x.tape, new, value, x.type.dtype if dtype is None else p.to_dtype(dtype))

    return rule


FUNCTIONS[np.zeros_like] = FUNCTIONS[np.empty_like] = _like(0)
FUNCTIONS[np.ones_like] = _like(1)


@implements(np.full_like)
def full_like(a: Any, fill_value: Any, dtype: Any = None, order: str = "K", subok: bool = True,
              shape: Any = None, *, device: Any = None) -> Tracer:  # fmt: skip
    x, value = operands(a, fill_value)
    new = x.type.shape if shape is None else shape_argument(shape)
    wanted = x.type.dtype if dtype is None else p.to_dtype(dtype)
    return p.broadcast_to(cast(value, wanted), new).copy()


@implements(np.linspace)
def linspace_traced(start: Any, stop: Any, num: Any = 50, endpoint: bool = True,
                    retstep: bool = False, dtype: Any = None, axis: Any = 0,
                    *, device: Any = None) -> Any:  # fmt: skip
    a, b = operands(start, stop)
    n = int_argument(num, "num")
    if n < 0:
        raise fail(TapecValueError, f"Number of samples, {n}, must be non-negative.")
    common = common_dtype([a.kind, b.kind, float])
    a, b = cast(a, common), cast(b, common)
    pieces = n - 1 if endpoint else n
    step = binary("div", binary("sub", b, a), pieces) if pieces > 0 else (
        p.full(a.tape, (), float("nan"), common)
    )  # fmt: skip
    tail = p.broadcast_to(step, step.type.shape).type.shape
    if n == 0:
        result = p.full(a.tape, (0, *tail), 0, common)
    else:
        line = cast(a.tape.array(np.arange(n, dtype=float)), common)
        steps = binary("mul", reshape(line, (n,) + (1,) * len(tail)), step if pieces > 0 else 0.0)
        result = p.broadcast_to(binary("add", steps, a), (n, *tail))
        if endpoint and n > 1:
            body = p.slice_(result, [0] * (1 + len(tail)), (n - 1, *tail))
            last = reshape(p.broadcast_to(b, tail), (1, *tail))
            result = p.concat([body, last], 0)
    if dtype is not None:
        result = cast(result, p.to_dtype(dtype))
    result = FUNCTIONS[np.moveaxis](result, 0, axis) if axis else result
    return (result, step) if retstep else result


# -- the namespace tapec.numpy -------------------------------------------------------------------


def _dtype(dtype: Any) -> DType | None:
    """The IR's dtype, or None for what stays a plain NumPy array."""
    try:
        return dtype_of(dtype)
    except TypeError:
        return None


def _filled(value: Any, shape: Any, dtype: Any, plain: Any) -> Any:
    tape = current_tape()
    kind = _dtype(dtype)
    if tape is None or kind is None:
        return plain()
    return p.full(tape, shape_argument(shape), value, kind)


def zeros(shape: Any, dtype: Any = float, order: Any = "C", **kwargs: Any) -> Any:
    """``np.zeros``; traced (and so writable with traced values) inside a trace."""
    return _filled(0, shape, dtype, lambda: np.zeros(shape, dtype, order, **kwargs))


def empty(shape: Any, dtype: Any = float, order: Any = "C", **kwargs: Any) -> Any:
    """``np.empty``; inside a trace, traced zeros."""
    return _filled(0, shape, dtype, lambda: np.empty(shape, dtype, order, **kwargs))


def ones(shape: Any, dtype: Any = float, order: Any = "C", **kwargs: Any) -> Any:
    """``np.ones``; traced inside a trace."""
    return _filled(1, shape, dtype, lambda: np.ones(shape, dtype, order, **kwargs))


def full(shape: Any, fill_value: Any, dtype: Any = None, order: Any = "C", **kwargs: Any) -> Any:
    """``np.full``; traced inside a trace, and then ``fill_value`` may be traced."""
    tape = current_tape()
    if tape is None and not is_traced(fill_value):
        return np.full(shape, fill_value, dtype, order, **kwargs)
    tape = p.tape_among((fill_value,))
    value = as_tracer(tape, fill_value)
    value = value if dtype is None else cast(value, p.to_dtype(dtype))
    return p.broadcast_to(p.strong(value), shape_argument(shape))


def _like_plain(function: Any) -> Any:
    """``np.zeros_like`` and its kin, also writable for plain arrays inside a trace."""

    def rule(a: Any, *args: Any, **kwargs: Any) -> Any:
        made = function(a, *args, **kwargs)
        return _writable(made) if isinstance(made, np.ndarray) else made

    rule.__name__ = function.__name__
    rule.__doc__ = f"``np.{function.__name__}``; traced inside a trace."
    return rule


zeros_like, ones_like = _like_plain(np.zeros_like), _like_plain(np.ones_like)
empty_like, full_like_ = _like_plain(np.empty_like), _like_plain(np.full_like)
copy = _like_plain(np.copy)


def _writable(array: Any) -> Any:
    """A NumPy array made just now, as a traced array if there is a trace."""
    tape = current_tape()
    if tape is None or _dtype(array.dtype) is None:
        return array
    return tape.fixed(array)


def eye(N: Any, M: Any = None, k: Any = 0, dtype: Any = float, **kwargs: Any) -> Any:
    return _writable(np.eye(N, M, k, dtype, **kwargs))


def identity(n: Any, dtype: Any = None) -> Any:
    return _writable(np.identity(n, dtype))


def tri(N: Any, M: Any = None, k: Any = 0, dtype: Any = float) -> Any:
    return _writable(np.tri(N, M, k, dtype))


def arange(*args: Any, **kwargs: Any) -> Any:
    """``np.arange``; traced floats inside a trace, plain integers (they count and index)."""
    array = np.arange(*args, **kwargs)
    return array if array.dtype.kind in "iu" else _writable(array)


def linspace(start: Any, stop: Any, *args: Any, **kwargs: Any) -> Any:
    result = np.linspace(start, stop, *args, **kwargs)
    return _writable(result) if isinstance(result, np.ndarray) else result


def array(object: Any, dtype: Any = None, **kwargs: Any) -> Any:
    """``np.array``, also of traced values and nested lists of them."""
    if not is_traced(object):
        plain = np.array(object, dtype, **kwargs)
        return _writable(plain) if plain.ndim and plain.dtype.kind in "fc" else plain
    x = as_tracer(p.tape_among((object,)), object)
    x = p.strong(x)
    x = x.copy() if x is object else x
    return x if dtype is None else x.astype(dtype)


def asarray(a: Any, dtype: Any = None, **kwargs: Any) -> Any:
    """``np.asarray``; a traced array is returned as it is."""
    if not is_traced(a):
        return np.asarray(a, dtype, **kwargs)
    x = a if isinstance(a, Tracer) else as_tracer(p.tape_among((a,)), a)
    return x if dtype is None or np.dtype(dtype) == x.dtype else x.astype(dtype)


asanyarray = ascontiguousarray = asfortranarray = asarray


def isscalar(element: Any) -> bool:
    return (isinstance(element, Tracer) and element.weak) or bool(np.isscalar(element))
