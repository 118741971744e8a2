"""Functions whose rule for complex operands is not the one for real operands.

Most need none: what is composed of elementwise ops, sums and movements of elements works on
complex values as it is (see ``tapec.complexes``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapec import complex_math, trees
from tapec import primitives as p
from tapec.complexes import promoted
from tapec.kinds import common_dtype
from tapec.numpy import assigning, choosing, norms  # noqa: F401  (rules that are replaced here)
from tapec.numpy.reductions import reduced
from tapec.numpy.ufuncs import absolute_square, guarded_sqrt
from tapec.primitives import as_array, binary, operands, unary
from tapec.tracer import FUNCTIONS, UFUNCS, Tracer

__all__ = ["on_complex"]


def on_complex(table: dict[Any, Any], *keys: Any) -> Callable[[Callable[..., Any]], Any]:
    """Register a rule that is used if one of the positional arguments is complex."""

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        for key in keys:
            table[key] = _choice(table[key], rule)
        return rule

    return register


def _choice(plain: Callable[..., Any], rule: Callable[..., Any]) -> Callable[..., Any]:
    def chosen(*args: Any, **kwargs: Any) -> Any:
        for a in args:
            if a.__class__ is not Tracer and trees.is_complex(a):
                return rule(*args, **kwargs)
        return plain(*args, **kwargs)

    return chosen


# -- ufuncs -----------------------------------------------------------------------------------


@on_complex(UFUNCS, np.sqrt)
def sqrt(x: Any) -> Tracer:
    return unary("sqrt", as_array(x))


@on_complex(UFUNCS, np.square)
def square(x: Any) -> Tracer:
    return complex_math.square(promoted(as_array(x)))


@on_complex(UFUNCS, np.conjugate)
def conjugate(x: Any) -> Tracer:
    return promoted(as_array(x)).conj()


@on_complex(UFUNCS, np.isfinite)
def isfinite(x: Any) -> Tracer:
    x = as_array(x)
    return unary("not", binary("or", unary("isnan", x), unary("isinf", x)))


for _ufunc, _op in ((np.isnan, "isnan"), (np.isinf, "isinf")):
    on_complex(UFUNCS, _ufunc)(lambda x, op=_op: unary(op, as_array(x)))

#: |n| up to which a constant integer exponent is a chain of products
_MAX_INTEGER_POWER = 100


@on_complex(UFUNCS, np.power)
def power(x: Any, y: Any) -> Any:
    n = y.item() if isinstance(y, (np.floating, np.integer)) else y
    if n.__class__ in (int, float) and n == int(n) and abs(n) <= _MAX_INTEGER_POWER:
        base = as_array(x)
        dtype = common_dtype([base.kind, type(n) if n is y else p.kind_of(as_array(y))])
        return complex_math.integer_power(promoted(p.cast(base, dtype)), int(n))
    if n.__class__ in (int, float) and n == 0.5:
        return sqrt(x)
    return binary("pow", *operands(x, y))


@on_complex(UFUNCS, np.float_power)
def float_power(x: Any, y: Any) -> Any:
    wide = p.to_dtype(np.complex128)
    return power(p.cast(as_array(x), wide), y)


# -- functions --------------------------------------------------------------------------------


@on_complex(FUNCTIONS, np.angle)
def angle(z: Any, deg: bool = False) -> Tracer:
    x = promoted(as_array(z))
    result = binary("atan2", x.im, x.re)
    return binary("mul", result, 180 / np.pi) if deg else result


@on_complex(FUNCTIONS, np.nan_to_num)
def nan_to_num(x: Any, *args: Any, **kwargs: Any) -> Tracer:
    rule = FUNCTIONS[np.nan_to_num]
    return promoted(as_array(x)).each(lambda part: rule(part, *args, **kwargs))


@on_complex(FUNCTIONS, np.round, np.around)
def round_(a: Any, *args: Any, **kwargs: Any) -> Tracer:
    rule = FUNCTIONS[np.round]
    return promoted(as_array(a)).each(lambda part: rule(part, *args, **kwargs))


@on_complex(FUNCTIONS, np.real_if_close)
def real_if_close(a: Any, tol: Any = 100) -> Tracer:
    """Decided by the values now, under a guard."""
    x = promoted(as_array(a))
    if tol > 1:
        tol = tol * float(np.finfo(x.re.type.dtype.np).eps)
    small = binary("lt", abs(x.im), tol)
    close = bool(p.reduce("all", small, range(small.type.ndim)))
    return x.re if close else x


_NORM = np.linalg.norm  # the attribute is another one while a function is traced


@on_complex(FUNCTIONS, _NORM)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: Any = False) -> Tracer:
    """Norms of the moduli; the spectral ones from singular values."""
    z = promoted(as_array(x))
    n = z.type.ndim
    rule = FUNCTIONS[_NORM]
    matrix = (axis is None and n == 2) or (isinstance(axis, (tuple, list)) and len(axis) == 2)
    spectral = matrix and ord in (2, -2, "nuc")
    if spectral:
        from tapec.numpy.complex_linalg import spectral_norm

        return spectral_norm(z, ord, axis, keepdims)
    if ord is None or ord in ("fro", "f") or (ord == 2 and not matrix):
        return guarded_sqrt(reduced("sum", absolute_square(z), axis, keepdims))
    return rule(unary("abs", z), ord, axis, keepdims)  # type: ignore[no-any-return]
