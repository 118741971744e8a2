"""Ufuncs with their keywords and methods: ``where=``, ``out=``, ``dtype=``; ``reduce``,
``accumulate``, ``reduceat``, ``outer``, ``at``.

``Tracer.__array_ufunc__`` ends here.  Ufuncs that are reductions of the IR use those; the others
are folded element by element along a short axis.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tapec import primitives as p
from tapec import rules
from tapec.errors import (
    ConversionError,
    TapecTypeError,
    TapecValueError,
    UnsupportedError,
    fail,
    writing_into_plain_array,
)
from tapec.ir.core import BOOL, I64
from tapec.numpy.reductions import keep, prefixes, reduced
from tapec.numpy.registry import axes_of, axis_of
from tapec.numpy.ufuncs import real_float
from tapec.primitives import as_array, binary, cast, operands, reshape, select, unary
from tapec.rules import FUNCTIONS, METHODS, UFUNCS, strong, ufunc_rule, unsupported
from tapec.tape import as_tracer, is_traced
from tapec.tracer import Tracer

__all__ = ["apply"]

#: Along axes up to this length any ufunc is reduced, one element after the other.
FOLD_LIMIT = 256


def apply(ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What ``Tracer.__array_ufunc__`` is asked."""
    out = kwargs.pop("out", None)
    for ignored in ("casting", "order", "subok"):
        kwargs.pop(ignored, None)
    if method == "at":
        _at(ufunc, *inputs)
        return None
    if out is not None:
        out = out if isinstance(out, tuple) else (out,)
        if all(o is None for o in out):
            out = None
    if method == "__call__":
        result = _call(ufunc, inputs, out, **kwargs)
    elif method == "reduce":
        result = _reduce(ufunc, *inputs, **kwargs)
    elif method == "accumulate":
        result = _accumulate(ufunc, *inputs, **kwargs)
    elif method == "reduceat":
        result = _reduceat(ufunc, *inputs, **kwargs)
    elif method == "outer":
        result = _outer(ufunc, *inputs, **kwargs)
    else:
        raise unsupported(ufunc, kwargs, f".{method}")
    if out is None:
        return tuple(map(strong, result)) if isinstance(result, tuple) else strong(result)
    return into(out, result, ufunc.__name__)


def _by_elements(ufunc: Any, *xs: Any) -> Any:
    """A Python function that ``np.frompyfunc`` made a ufunc of."""
    tape = next(x for x in xs if is_traced(x)).tape
    results = ufunc(*[x.__array__() if isinstance(x, Tracer) else x for x in xs])
    if isinstance(results, tuple):
        return tuple([as_tracer(tape, r) for r in results])
    return as_tracer(tape, results)


def into(out: tuple[Any, ...], result: Any, name: str) -> Any:
    """Write results to ``out=`` arguments; what the call returns."""
    results = result if isinstance(result, tuple) else (result,)
    returned = []
    for target, value in zip(out, results):
        if target is None:
            returned.append(strong(value))
            continue
        if not isinstance(target, Tracer):
            raise writing_into_plain_array(
                fail(
                    ConversionError,
                    f"{name} writes a traced value into a plain NumPy array",
                    "make the array with tapec.numpy.zeros, or write a = a + x for a += x",
                )
            )
        target.overwrite(value)
        returned.append(target)
    return returned[0] if len(returned) == 1 else tuple(returned)


def _rule(ufunc: Any) -> Callable[..., Any]:
    rule = ufunc_rule(ufunc)
    if rule is None and all(set(kinds) <= {"O", "-", ">"} for kinds in ufunc.types):
        return functools.partial(_by_elements, ufunc)
    if rule is None:
        raise unsupported(ufunc, {})
    return rule


def _call(ufunc: Any, inputs: tuple[Any, ...], out: Any, where: Any = True, dtype: Any = None,
          signature: Any = None, **kwargs: Any) -> Any:  # fmt: skip
    rule = _rule(ufunc)
    if signature is not None:
        raise unsupported(ufunc, {"signature": signature})
    if dtype is not None:
        wanted = p.to_dtype(dtype)
        inputs = tuple([cast(x, wanted) for x in operands(*inputs)])
    result = rule(*inputs, **kwargs)
    if where is True:
        return result
    return _masked(where, result, out)


def _masked(where: Any, result: Any, out: Any) -> Any:
    """``result`` where the mask is True, else what ``out`` holds (zeros if there is none)."""
    if isinstance(result, tuple):
        given = out or (None,) * len(result)
        return tuple(_masked(where, r, (o,)) for r, o in zip(result, given))
    old = out[0] if out is not None and out[0] is not None else None
    if old is None:
        old = p.full(as_array(result).tape, (), 0, as_array(result).type.dtype)
    return select(where, result, old)


# -- reduce -----------------------------------------------------------------------------------

#: ufunc → NumPy function of the same meaning
_AS_FUNCTION = {
    np.add: np.sum, np.multiply: np.prod, np.maximum: np.max, np.minimum: np.min,
    np.logical_and: np.all, np.logical_or: np.any,
}  # fmt: skip
_IDENTITY: dict[Any, Any] = {
    np.logaddexp: -np.inf, np.logaddexp2: -np.inf, np.logical_xor: False, np.bitwise_or: 0,
    np.bitwise_and: -1, np.bitwise_xor: 0, np.hypot: 0.0,
}  # fmt: skip


def _reduce(ufunc: Any, array: Any, axis: Any = 0, dtype: Any = None, keepdims: Any = False,
            initial: Any = np._NoValue, where: Any = True) -> Any:  # fmt: skip
    function = _AS_FUNCTION.get(ufunc)
    if function is not None:
        extra: dict[str, Any] = {} if dtype is None else {"dtype": dtype}
        if initial is not np._NoValue and initial is not None:
            extra["initial"] = initial
        if where is not True:
            extra["where"] = where
        return FUNCTIONS[function](array, axis=axis, keepdims=keepdims, **extra)
    if (ufunc, "reduce") in METHODS and where is True and initial is np._NoValue:
        return METHODS[(ufunc, "reduce")](array, axis=axis, dtype=dtype, keepdims=keepdims)
    x = as_array(array) if dtype is None else cast(as_array(array), p.to_dtype(dtype))
    axes = axes_of(axis, x.type.ndim)
    if where is not True:
        if ufunc not in _IDENTITY:
            raise fail(
                TapecValueError,
                f"reduction operation {ufunc.__name__} has no identity, so to use a where mask "
                "one has to specify 'initial'",
            )
        neutral = _IDENTITY[ufunc]
        x = select(where, x, bool(neutral) if x.type.dtype is BOOL else neutral)
    result = x
    for k in sorted(axes, reverse=True):
        result = _folded(ufunc, result, k)
    if initial is not np._NoValue and initial is not None:
        result = _rule(ufunc)(initial, result)
    return keep(x, result, axes, keepdims)


def _elements(x: Tracer, axis: int, name: str) -> list[Tracer]:
    n = x.type.shape[axis]
    if n > FOLD_LIMIT:
        raise fail(
            UnsupportedError,
            f"{name} of a traced axis of {n} elements is not supported",
            f"up to {FOLD_LIMIT} elements are; use add, multiply, maximum or minimum",
        )
    return [x[(slice(None),) * axis + (i,)] for i in range(n)]


def _folded(ufunc: Any, x: Tracer, axis: int) -> Tracer:
    parts = _elements(x, axis, f"{ufunc.__name__}.reduce")
    if not parts:
        if ufunc not in _IDENTITY:
            raise fail(
                TapecValueError,
                f"zero-size array to reduction operation {ufunc.__name__} which has no identity",
            )
        shape = [n for k, n in enumerate(x.type.shape) if k != axis]
        return p.full(x.tape, shape, _IDENTITY[ufunc], x.type.dtype)
    result, rule = parts[0], _rule(ufunc)
    for part in parts[1:]:
        result = rule(result, part)
    return result


def _logaddexp_reduce(
    array: Any, axis: Any = 0, dtype: Any = None, keepdims: Any = False
) -> Tracer:
    """log Σ exp(x), shifted by the maximum (whose choice does not matter)."""
    from tapec.scipy.special import logsumexp

    result: Tracer = logsumexp(real_float(array), axis, keepdims=bool(keepdims))
    return result


METHODS[(np.logaddexp, "reduce")] = _logaddexp_reduce


def _bitwise_reduce(kind: str) -> Callable[..., Tracer]:
    def rule(array: Any, axis: Any = 0, dtype: Any = None, keepdims: Any = False) -> Tracer:
        x = as_array(array)
        if x.type.dtype is BOOL:
            return reduced(kind, x, axis, keepdims)
        axes = axes_of(axis, x.type.ndim)
        result = x
        for k in sorted(axes, reverse=True):
            result = _folded(np.bitwise_and if kind == "all" else np.bitwise_or, result, k)
        return keep(x, result, axes, keepdims)

    return rule


METHODS[(np.bitwise_and, "reduce")] = _bitwise_reduce("all")
METHODS[(np.bitwise_or, "reduce")] = _bitwise_reduce("any")


# -- accumulate, reduceat, outer ----------------------------------------------------------------

_SCANNED = {np.maximum: "max", np.minimum: "min", np.logical_and: "and", np.logical_or: "or"}


def _accumulate(ufunc: Any, array: Any, axis: Any = 0, dtype: Any = None) -> Any:
    if ufunc is np.add:
        return FUNCTIONS[np.cumsum](array, axis, dtype)
    if ufunc is np.multiply:
        return FUNCTIONS[np.cumprod](array, axis, dtype)
    x = as_array(array) if dtype is None else cast(as_array(array), p.to_dtype(dtype))
    k = axis_of(axis, x.type.ndim)
    if ufunc in _SCANNED:
        if ufunc in (np.logical_and, np.logical_or):
            x = x if x.type.dtype is BOOL else binary("ne", x, 0)
        return prefixes(_SCANNED[ufunc], x, k)
    parts = _elements(x, k, f"{ufunc.__name__}.accumulate")
    if not parts:
        return x.copy()
    rule = _rule(ufunc)
    rows: list[Any] = [parts[0]]
    for part in parts[1:]:
        rows.append(rule(rows[-1], part))
    return FUNCTIONS[np.stack](rows, axis=k)


def _reduceat(ufunc: Any, array: Any, indices: Any, axis: Any = 0, dtype: Any = None) -> Any:
    """Reductions of slices; the indices are part of the program."""
    from tapec.writing import fixed_integers

    x = as_array(array)
    k = axis_of(axis, x.type.ndim)
    at = fixed_integers(indices, "the same indices") if is_traced(indices) else np.asarray(indices)
    n, rows = x.type.shape[k], []
    bounds = [int(i) for i in at]
    for i in bounds:
        if not 0 <= i < n:
            raise fail(TapecValueError, f"index {i} out-of-bounds in {ufunc.__name__}.reduceat")
    for i, j in zip(bounds, [*bounds[1:], n]):
        part = x[(slice(None),) * k + (slice(i, max(j, i + 1)),)]
        rows.append(_reduce(ufunc, part, k, dtype))
    return FUNCTIONS[np.stack](rows, axis=k)


def _outer(ufunc: Any, a: Any, b: Any, **kwargs: Any) -> Any:
    x, y = operands(a, b)
    return _call(ufunc, (reshape(x, x.type.shape + (1,) * y.type.ndim), y), None, **kwargs)


# -- at -----------------------------------------------------------------------------------------


def _at(ufunc: Any, a: Any, indices: Any, b: Any = None) -> None:
    """Unbuffered application: where an index is repeated, one application after the other."""
    if not isinstance(a, Tracer):
        raise writing_into_plain_array(
            fail(
                ConversionError,
                f"np.{ufunc.__name__}.at of a traced value into a plain NumPy array",
                "make the array with tapec.numpy.zeros",
            )
        )
    from tapec.writing import add_at, positions, scatter_flat

    if ufunc in (np.add, np.subtract) and a.type.dtype.kind in "ifc":
        value = b if ufunc is np.add else unary("neg", as_tracer(a.tape, b))
        a.overwrite(add_at(a, indices, value))
        return
    rule = _rule(ufunc)
    where = positions(a, indices)
    flat = where.reshape(-1)
    new = None
    if b is not None:
        new = reshape(p.broadcast_to(as_tracer(a.tape, b), where.shape), (flat.size,))
    elif ufunc.nin != 1:
        raise fail(TapecTypeError, f"{ufunc.__name__}.at needs a second operand")
    x = reshape(p.operands(a)[0], (a.type.size,))
    occurrence = np.zeros(flat.size, np.int64)
    seen: dict[int, int] = {}
    for k, at in enumerate(flat.tolist()):
        occurrence[k] = seen[at] = seen.get(at, -1) + 1
    for turn in range(int(occurrence.max(initial=-1)) + 1):
        chosen = np.flatnonzero(occurrence == turn)
        old = p.gather(x, [x.tape.fixed(flat[chosen].astype(np.int64))], [0])
        if new is None:
            fresh = rule(old)
        else:
            fresh = rule(old, p.gather(new, [x.tape.fixed(chosen.astype(np.int64))], [0]))
        x = scatter_flat(x, flat[chosen], cast(fresh, x.type.dtype))
    a.overwrite(reshape(x, a.type.shape))


def frexp(x: Any) -> tuple[Tracer, Tracer]:
    """Mantissa in [1/2, 1) and exponent: x = m 2^e."""
    x = real_float(x)
    regular = binary("and", UFUNCS[np.isfinite](x), binary("ne", x, 0.0))
    size = select(regular, unary("abs", x), 1.0)
    guess = unary("floor", unary("log2", size))
    mantissa = binary("mul", size, unary("exp2", unary("neg", guess)))
    high = binary("ge", mantissa, 1.0)  # log2 may round across a power of two
    very_high = binary("ge", mantissa, 2.0)
    exponent = binary("add", guess, select(very_high, 2.0, select(high, 1.0, 0.0)))
    factor = unary("exp2", unary("neg", exponent))
    result = select(regular, binary("mul", x, factor), x)
    from tapec.ir.core import I32

    return result, cast(select(regular, exponent, 0.0), I32)


UFUNCS[np.frexp] = frexp
UFUNCS[np.ldexp] = lambda x, e: binary(
    "mul", real_float(x), unary("exp2", cast(operands(x, e)[1], real_float(x).type.dtype))
)


def _integer_rule(name: str) -> Callable[..., Any]:
    """Euclid's algorithm on whole arrays: 93 rounds are enough for 64 bits."""

    def rule(x: Any, y: Any) -> Any:
        x, y = operands(x, y)
        if x.type.dtype.kind != "i" or y.type.dtype.kind != "i":
            raise fail(TapecTypeError, f"{name} takes integers")
        x, y = cast(x, I64), cast(y, I64)
        a, b = unary("abs", x), unary("abs", y)
        for _ in range(93):
            done = binary("eq", b, 0)
            a, b = select(done, a, b), select(done, 0, binary("mod", a, b))
        if name == "gcd":
            return a
        safe = select(binary("eq", a, 0), 1, a)
        return unary("abs", binary("mul", binary("floor_div", x, safe), y))

    return rule


UFUNCS[np.gcd], UFUNCS[np.lcm] = _integer_rule("gcd"), _integer_rule("lcm")


rules.apply_ufunc = apply
