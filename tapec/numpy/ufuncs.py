"""NumPy's ufuncs on traced values, as compositions of elementwise ops.

Most ufuncs are one op.  The others are written so that value and every derivative are
right where the textbook formula is not: at ties, at zero, where an intermediate overflows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from tapec import complex_math
from tapec import primitives as p
from tapec.complexes import real_only
from tapec.errors import TapecValueError, UnsupportedError, fail
from tapec.ir.core import BOOL, F64, NO_ATTRS, Type
from tapec.kinds import UFUNC_OF_OP, WEAK_FLOAT, common_dtype, entry
from tapec.primitives import as_array, binary, cast, operands, select, unary
from tapec.tracer import FUNCTIONS, UFUNCS, Tracer

__all__ = [
    "absolute_square", "guarded_sqrt", "inexact", "logical_not", "power", "real_float", "square",
    "truth", "ufunc",
]  # fmt: skip

#: |n| up to which a constant integer exponent is a chain of products
_MAX_INTEGER_POWER = 32


def _unary_rule(op: str) -> Callable[[Any], Tracer]:
    return lambda x: unary(op, as_array(x))


def _binary_rule(op: str) -> Callable[[Any, Any], Tracer]:
    return lambda x, y: binary(op, x, y)


for _op, _ufunc in UFUNC_OF_OP.items():
    UFUNCS[_ufunc] = _unary_rule(_op) if _ufunc.nin == 1 else _binary_rule(_op)


_Rule = TypeVar("_Rule", bound=Callable[..., Any])


def ufunc(*names: str) -> Callable[[_Rule], _Rule]:
    """Register an implementation of the ufuncs with these names."""

    def register(rule: _Rule) -> _Rule:
        for name in names:
            UFUNCS[getattr(np, name)] = rule
        return rule

    return register


def real_float(x: Any) -> Tracer:
    """``x`` as NumPy's float functions take it: integers become float64."""
    x = as_array(x)
    real_only(x)
    return x if x.type.dtype.kind == "f" else cast(x, entry("sqrt", (x.kind,)).types[0].dtype)


def inexact(x: Any) -> Tracer:
    """The same for functions that also take complex values."""
    x = as_array(x)
    return x if x.type.dtype.kind == "c" else real_float(x)


def real_floats(x: Any, y: Any) -> tuple[Tracer, Tracer]:
    """Two operands in the dtype that NumPy's binary float functions give them."""
    x, y = operands(x, y)
    real_only(x)
    real_only(y)
    dtype = entry("hypot", (_shapeless(x), _shapeless(y))).types[0].dtype
    return cast(x, dtype), cast(y, dtype)


def _shapeless(x: Tracer) -> Any:
    return x.kind if x.weak else x.type.with_shape(())


# -- roots, squares, powers ---------------------------------------------------------------


def _never_negative(x: Tracer, depth: int = 6) -> bool:
    """Whether the record that makes ``x`` cannot yield a negative number."""
    record = x.tape.records[x.id]
    if record is None:
        return False
    op, args, attrs, _, _ = record
    if op == "mul":
        return args[0] == args[1]
    if op in ("abs", "exp", "sqrt"):
        return True
    if op == "integer_pow":
        return bool(attrs["n"] % 2 == 0)
    if op == "dot":
        return args[0] == args[1] and attrs["contract"][0] == attrs["contract"][1]
    if depth and op in ("reduce_sum", "add", "reshape", "item", "max", "reduce_max", "transpose"):
        return all(_never_negative(x.tape.handle(k), depth - 1) for k in args)
    return False


@ufunc("sqrt")
def sqrt(x: Any) -> Tracer:
    """sqrt(a*a) is |a|, which has a derivative at 0; sqrt(s) remembers s for its square."""
    x = as_array(x)
    record = x.tape.records[x.id]
    if record is not None and record[0] == "mul" and record[1][0] == record[1][1]:
        return unary("abs", x.tape.handle(record[1][0]))
    root = unary("sqrt", x)
    if root.type is x.type and _never_negative(x):
        root.tape.squares[root.id] = x.id
    return root


def guarded_sqrt(s: Tracer) -> Tracer:
    """The root of a sum of squares, with derivative 0 at 0 (norms and deviations)."""
    at_zero = binary("eq", s, 0.0)
    root = select(at_zero, 0.0, unary("sqrt", select(at_zero, 1.0, s)))
    root.tape.squares[root.id] = s.id
    return root


@ufunc("square")
def square(x: Any) -> Tracer:
    x = as_array(x)
    known = x.tape.squares.get(x.id)
    return binary("mul", x, x) if known is None else x.tape.handle(known)


def absolute_square(x: Tracer) -> Tracer:
    """|x|², which is x² of real values."""
    if x.__class__ is not Tracer:
        return complex_math.absolute_square(x)  # type: ignore[arg-type]
    return binary("mul", x, x)


def _constant_exponent(y: Any) -> float | int | None:
    """The value of an exponent that is a number known now."""
    if isinstance(y, (bool, np.bool_)):
        return None
    if isinstance(y, (int, float, np.integer, np.floating)):
        return y.item() if isinstance(y, np.generic) else y
    if isinstance(y, np.ndarray) and y.ndim == 0 and y.dtype.kind in "if":
        return None  # by reference: it may change
    return None


@ufunc("power")
def power(x: Any, y: Any) -> Tracer:
    """Constant exponents become products, roots or ``integer_pow``, which are exact at 0."""
    if x.__class__ is Tracer and y.__class__ in (int, float) and y == 2 and x.type.dtype.is_inexact:
        return square(x)
    n = _constant_exponent(y)
    if n is None:
        if as_array(x if p.kind_of(x) is not int else y).type.dtype.kind in "ib" or (
            p.kind_of(x) is int
        ):
            _refuse_integer_power(x, y)
        return binary("pow", x, y)
    x = as_array(x)
    e = entry("pow", (x.kind, p.kind_of(y) if not isinstance(y, np.generic) else as_kind(y)))
    dtype = e.types[0].dtype
    if dtype.kind == "i":
        return _integer_power(cast(x, dtype), int(n))
    weak = x.weak and not isinstance(y, np.generic)
    x = cast(x, dtype)
    if n == 2:
        result = square(x)
    elif n == 1:
        result = x.copy()
    elif n == 0:
        result = p.full(x.tape, x.type.shape, 1.0, dtype)
    elif n == 0.5:
        result = sqrt(x)
    elif n == int(n) if math.isfinite(n) and abs(n) <= _MAX_INTEGER_POWER else False:
        result = x.tape.record("integer_pow", (x.id,), {"n": int(n)}, x.type)
    else:
        result = binary("pow", x, y if dtype is F64 or not isinstance(y, np.generic) else n)
    result.kind = WEAK_FLOAT if weak and not result.type.shape and dtype is F64 else result.type
    return result


def as_kind(scalar: np.generic) -> Type:
    return Type(p.to_dtype(scalar.dtype))


def _refuse_integer_power(x: Any, y: Any) -> None:
    x, y = operands(x, y)
    if common_dtype([x.kind, y.kind]).kind in "ib":
        raise fail(
            UnsupportedError,
            "an integer to a traced integer power is not supported",
            "make one of them a float",
        )


def _integer_power(x: Tracer, n: int) -> Tracer:
    if n < 0:
        raise fail(TapecValueError, "integers to negative integer powers are not allowed")
    result: Tracer | None = None
    base = x
    while n:
        if n & 1:
            result = base if result is None else binary("mul", result, base)
        n >>= 1
        if n:
            base = binary("mul", base, base)
    return p.full(x.tape, x.type.shape, 1, x.type.dtype) if result is None else result


@ufunc("float_power")
def float_power(x: Any, y: Any) -> Tracer:
    x, y = as_array(x) if isinstance(x, Tracer) else x, y
    if isinstance(x, Tracer):
        x = cast(x, F64)
        return power(x, float(y) if isinstance(y, (int, np.integer)) else y)
    return power(
        np.asarray(x, float) if not isinstance(x, (int, float)) else float(x), cast(y, F64)
    )


@ufunc("reciprocal")
def reciprocal(x: Any) -> Tracer:
    x = as_array(x)
    if x.type.dtype.kind == "i":
        return binary("floor_div", 1, x)
    return binary("div", 1.0, x)


# -- signs, rounding ------------------------------------------------------------------------


@ufunc("absolute", "fabs")
def absolute(x: Any) -> Tracer:
    x = as_array(x)
    return x if x.type.dtype is BOOL else unary("abs", x)


UFUNCS[np.fabs] = lambda x: unary("abs", real_float(x))


@ufunc("positive")
def positive(x: Any) -> Tracer:
    return as_array(x).copy()


@ufunc("conjugate")
def conjugate(x: Any) -> Tracer:
    return as_array(x).copy()


def _rounding(op: str) -> Callable[[Any], Tracer]:
    def rule(x: Any) -> Tracer:
        x = as_array(x)
        # NumPy 2 leaves integers as they are in floor, ceil and trunc; rint makes floats
        if op != "rint" and x.type.dtype.kind in "ib":
            same: Tracer = x.copy()
            return same
        return unary(op, x)

    return rule


for _op in ("floor", "ceil", "trunc", "rint"):
    UFUNCS[getattr(np, _op)] = _rounding(_op)


@ufunc("modf")
def modf(x: Any) -> tuple[Tracer, Tracer]:
    x = real_float(x)
    whole = unary("trunc", x)
    fraction = select(binary("eq", unary("abs", x), math.inf), 0.0, binary("sub", x, whole))
    return binary("copysign", fraction, x), whole


@ufunc("divmod")
def divmod_(x: Any, y: Any) -> tuple[Tracer, Tracer]:
    return binary("floor_div", x, y), binary("mod", x, y)


@ufunc("heaviside")
def heaviside(x: Any, h: Any) -> Tracer:
    x, h = real_floats(x, h)
    step = select(binary("lt", x, 0), 0.0, select(binary("eq", x, 0), h, 1.0))
    return select(unary("isnan", x), x, step)


@ufunc("signbit")
def signbit(x: Any) -> Tracer:
    x = real_float(x)
    one = p.full(x.tape, (), 1.0, x.type.dtype)
    return binary("lt", binary("copysign", one, x), 0)


# -- exponentials, angles ---------------------------------------------------------------------


def _log_add(x: Any, y: Any, exp: str, log_one_plus: Callable[[Tracer], Tracer]) -> Tracer:
    """log(e^x + e^y) from the larger operand: each branch is the function itself, so that
    ties (where the branches meet) have all their derivatives."""
    x, y = real_floats(x, y)
    larger = binary("ge", x, y)
    high, low = select(larger, x, y), select(larger, y, x)
    infinite = binary("and", binary("eq", x, y), unary("isinf", x))
    gap = select(infinite, 0.0, binary("sub", low, high))
    return binary("add", high, log_one_plus(unary(exp, gap)))


@ufunc("logaddexp")
def logaddexp(x: Any, y: Any) -> Tracer:
    return _log_add(x, y, "exp", lambda e: unary("log1p", e))


@ufunc("logaddexp2")
def logaddexp2(x: Any, y: Any) -> Tracer:
    return _log_add(x, y, "exp2", lambda e: binary("mul", unary("log1p", e), 1 / math.log(2)))


@ufunc("deg2rad", "radians")
def deg2rad(x: Any) -> Tracer:
    return binary("mul", real_float(x), math.pi / 180)


@ufunc("rad2deg", "degrees")
def rad2deg(x: Any) -> Tracer:
    return binary("mul", real_float(x), 180 / math.pi)


def sinc(x: Any) -> Tracer:
    """A Taylor series near 0, where sin(y)/y loses its higher derivatives."""
    y = binary("mul", inexact(x), math.pi)
    square_y = binary("mul", y, y)
    near = binary("lt", UFUNCS[np.absolute](square_y), 1.0)
    t = select(near, square_y, 0.0)
    series: Any = None
    for k in range(13, -1, -1):
        term = (-1.0) ** k / math.factorial(2 * k + 1)
        series = term if series is None else binary("add", binary("mul", t, series), term)
    safe = select(near, 1.0, y)
    return select(near, series, binary("div", unary("sin", safe), safe))


FUNCTIONS[np.sinc] = sinc


def i0(x: Any) -> Tracer:
    """The modified Bessel function of order 0; NumPy computes it in double precision."""
    x = cast(real_float(x), F64)
    result: Tracer = x.tape.record("i0", (x.id,), NO_ATTRS, x.type)
    return result


FUNCTIONS[np.i0] = i0


# -- larger, smaller --------------------------------------------------------------------------


def _ignoring_nan(op: str) -> Callable[[Any, Any], Tracer]:
    def rule(x: Any, y: Any) -> Tracer:
        x, y = operands(x, y)
        if x.type.dtype.kind != "f" and y.type.dtype.kind != "f":
            return binary(op, x, y)
        x, y = real_floats(x, y)
        x_nan, y_nan = unary("isnan", x), unary("isnan", y)
        x, y = select(x_nan, y, x), select(y_nan, x, y)
        return binary(op, x, y)

    return rule


UFUNCS[np.fmax] = _ignoring_nan("max")
UFUNCS[np.fmin] = _ignoring_nan("min")


# -- truth ------------------------------------------------------------------------------------


def truth(x: Any) -> Tracer:
    """``x != 0`` as bool."""
    x = as_array(x)
    return x if x.type.dtype is BOOL else binary("ne", x, 0)


@ufunc("logical_not")
def logical_not(x: Any) -> Tracer:
    return unary("not", truth(x))


def _logical(op: str) -> Callable[[Any, Any], Tracer]:
    def rule(x: Any, y: Any) -> Tracer:
        x, y = operands(x, y)
        return binary(op, truth(x), truth(y))

    return rule


for _name, _op in (("logical_and", "and"), ("logical_or", "or"), ("logical_xor", "xor")):
    UFUNCS[getattr(np, _name)] = _logical(_op)


@ufunc("isfinite")
def isfinite(x: Any) -> Tracer:
    x = as_array(x)
    if x.type.dtype.kind != "f":
        return p.full(x.tape, x.type.shape, True, BOOL)
    return unary("not", binary("or", unary("isnan", x), unary("isinf", x)))


def _float_test(op: str) -> Callable[[Any], Tracer]:
    def rule(x: Any) -> Tracer:
        x = as_array(x)
        if x.type.dtype.kind != "f":
            return p.full(x.tape, x.type.shape, False, BOOL)
        return unary(op, x)

    return rule


UFUNCS[np.isnan] = _float_test("isnan")
UFUNCS[np.isinf] = _float_test("isinf")


# -- neighbours among floating-point numbers --------------------------------------------------


def _on_host(function: Any, *xs: Tracer) -> Any:
    from tapec.host import host_call

    shape = np.broadcast_shapes(*[x.type.shape for x in xs])
    like = np.broadcast_to(np.zeros((), xs[0].type.dtype.np), shape)
    return host_call(function, like, *xs, name=f"numpy.{function.__name__}")


@ufunc("spacing")
def spacing(x: Any) -> Any:
    from tapec.custom import stop_gradient

    return stop_gradient(_on_host(np.spacing, real_float(x)))


@ufunc("nextafter")
def nextafter(x: Any, y: Any) -> Any:
    """Its value only: differentiating it is an error."""
    return _on_host(np.nextafter, *real_floats(x, y))
