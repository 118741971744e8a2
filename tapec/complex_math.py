"""Arithmetic and elementary functions of complex values, composed from real operations.

Value, branch cuts and signed zeros are NumPy's.  The formulas are chosen so that every branch of
a ``select`` is the whole function there, not a piece of it (as ``max(|x|, |y|)`` would be), and so
has all its derivatives, also where the branches meet:

- division scales by the larger part of the divisor (R. L. Smith, CACM 5 (1962) 435);
- ``log`` and ``log1p`` do not cancel where |z|, or |1 + z|, is near 1;
- ``sqrt`` and the inverse functions are W. Kahan's ("Branch cuts for complex elementary
  functions", 1987); on a cut the derivative is that of the side that the sign of zero names;
- ``tanh`` does not overflow.

``unary`` and ``binary`` are what ``primitives`` calls for operands of a complex dtype.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

from tapec import primitives as p
from tapec.complexes import ComplexTracer, part_dtype, promoted
from tapec.errors import UnsupportedError, fail
from tapec.ir.core import NO_ATTRS
from tapec.kinds import broadcast_shapes, common_dtype
from tapec.primitives import binary as real2
from tapec.primitives import select
from tapec.primitives import unary as real1
from tapec.tracer import Tracer

__all__ = ["absolute_square", "binary", "integer_power", "square", "unary"]


def unary(op: str, x: Tracer) -> Tracer:
    """An elementwise op of a complex operand."""
    rule = _UNARY.get(op)
    if rule is None:
        raise fail(UnsupportedError, f"{op} of complex values is not supported")
    return rule(promoted(x))


def binary(op: str, x: Tracer, y: Tracer) -> Tracer:
    """An elementwise op of two operands of which one is complex."""
    rule = _BINARY.get(op)
    if rule is None:
        raise fail(UnsupportedError, f"{op} of complex values is not supported")
    dtype = part_dtype(common_dtype([x.kind, y.kind]))
    shape = broadcast_shapes(x.type.shape, y.type.shape)
    a, b = _parts(x, dtype, shape), _parts(y, dtype, shape)
    if a[1] is None and b[1] is None:
        a = (a[0], p.full(a[0].tape, shape, 0.0, dtype))
    return rule(a, b)


def _parts(x: Tracer, dtype: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """The parts in a dtype and shape; an imaginary part that is known to be 0 is None."""

    def fitted(part: Tracer) -> Tracer:
        return p.broadcast_to(p.cast(part, dtype), shape)

    if isinstance(x, ComplexTracer):
        return fitted(x.re), None if _number(x.im) == 0.0 else fitted(x.im)
    return fitted(x), None


def _number(x: Tracer) -> float | None:
    """The number that ``x`` is everywhere, if that is known; None for -0.0."""
    record = x.tape.records[x.id]
    if record is None or record[0] != "constant" or record[2]["value"].__class__ is not float:
        return None
    value: float = record[2]["value"]
    return None if value == 0.0 and math.copysign(1.0, value) < 0 else value


Parts = tuple[Any, Any]


# -- arithmetic -----------------------------------------------------------------------------
# NumPy makes real operands complex, with an imaginary part +0.  What that does to the sign of
# a zero is kept where the result is on the negative real axis, the usual branch cut.


def _plus_zero(x: Any) -> Tracer:
    """x + 0.0, which has no negative zero."""
    made: Tracer = x.tape.record("unsigned_zero", (x.id,), NO_ATTRS, x.type, x.kind)
    return made


def _add(x: Parts, y: Parts) -> Tracer:
    (a, b), (c, d) = x, y
    return ComplexTracer(
        a + c, _plus_zero(d) if b is None else _plus_zero(b) if d is None else b + d
    )


def _sub(x: Parts, y: Parts) -> Tracer:
    (a, b), (c, d) = x, y
    if d is None:
        return ComplexTracer(a - c, b.copy())
    return ComplexTracer(a - c, _plus_zero(-d) if b is None else b - d)


def _scaled(factor: Any, part: Any) -> Tracer:
    """The imaginary part of a real factor times a value with this one."""
    product = factor * part
    known = _number(factor)
    if known is not None and known > 0:
        return product  # type: ignore[no-any-return]
    if known is not None:
        return _plus_zero(product)
    return select(real2("lt", factor, 0.0), _plus_zero(product), product)


def _mul(x: Parts, y: Parts) -> Tracer:
    (a, b), (c, d) = x, y
    if b is None:
        return ComplexTracer(a * c, _scaled(a, d))
    if d is None:
        return ComplexTracer(a * c, _scaled(c, b))
    return ComplexTracer(a * c - b * d, a * d + b * c)


def _div(x: Parts, y: Parts) -> Tracer:
    (a, b), (c, d) = x, y
    if d is None:
        return ComplexTracer(a / c, b / c)
    first = real2("ge", abs(c), abs(d))
    large, small = select(first, c, d), select(first, d, c)
    ratio = small / large
    scale = large + small * ratio
    if b is None:
        share = a * ratio
        im = _plus_zero(-select(first, share, a)) / scale
        return ComplexTracer(select(first, a, share) / scale, im)
    re = select(first, a + b * ratio, a * ratio + b)
    im = select(first, b - a * ratio, b * ratio - a)
    return ComplexTracer(re / scale, im / scale)


def _whole(x: Parts) -> ComplexTracer:
    return promoted(x[0]) if x[1] is None else ComplexTracer(*x)


def _pow(x: Parts, y: Parts) -> Tracer:
    """exp(y log x); 0 to a power with a positive real part is 0."""
    base, exponent = _whole(x), _whole(y)
    zero = p.binary("eq", base, 0)
    one = p.binary("eq", exponent, 0)
    safe = p.select(zero, 1.0, base)
    found = unary("exp", p.binary("mul", exponent, unary("log", safe)))
    at_zero = p.select(one, 1.0, 0.0)
    at_zero = p.select(real2("or", one, real2("gt", exponent.re, 0)), at_zero, math.nan)
    return p.select(zero, p.cast(at_zero, exponent.re.type.dtype), found)


def square(x: ComplexTracer) -> ComplexTracer:
    a, b = x.re, x.im
    return ComplexTracer((a - b) * (a + b), 2 * (a * b))


def integer_power(x: ComplexTracer, n: int) -> Tracer:
    """By repeated squaring."""
    if n < 0:
        return p.binary("div", 1.0, integer_power(x, -n))
    result: Any = None
    while n:
        if n & 1:
            result = x.copy() if result is None else result * x
        n >>= 1
        if n:
            x = square(x)
    return p.full(x.tape, x.type.shape, 1, x.type.dtype) if result is None else result


def absolute_square(x: ComplexTracer) -> Tracer:
    """|x|², a polynomial of the parts."""
    return x.re * x.re + x.im * x.im  # type: ignore[no-any-return]


def _abs(x: ComplexTracer) -> Tracer:
    """The modulus, with gradient 0 at 0; its square is known."""
    squared = absolute_square(x)
    size = real2("hypot", x.re, x.im)
    size.tape.squares[size.id] = squared.id
    return size


def _sign(x: ComplexTracer) -> Tracer:
    zero = p.binary("eq", x, 0)
    safe: Any = p.select(zero, 1.0, x)
    return p.select(zero, 0.0, safe / _abs(safe))


# -- comparison -----------------------------------------------------------------------------


def _imag(x: Parts) -> Any:
    return 0.0 if x[1] is None else x[1]


def _eq(x: Parts, y: Parts) -> Tracer:
    return real2("and", real2("eq", x[0], y[0]), real2("eq", _imag(x), _imag(y)))


def _ne(x: Parts, y: Parts) -> Tracer:
    return real2("or", real2("ne", x[0], y[0]), real2("ne", _imag(x), _imag(y)))


def _ordered(strict: str, op: str) -> Callable[[Parts, Parts], Tracer]:
    """NumPy's order: by the real part, and where that is equal by the imaginary part."""

    def rule(x: Parts, y: Parts) -> Tracer:
        later = real2("and", real2("eq", x[0], y[0]), real2(op, _imag(x), _imag(y)))
        return real2("or", real2(strict, x[0], y[0]), later)

    return rule


def _extremum(op: str) -> Callable[[Parts, Parts], Tracer]:
    compare = _ordered(op[0] + "t", op)

    def rule(x: Parts, y: Parts) -> Tracer:
        a, b = _whole(x), _whole(y)
        return p.select(real2("or", compare(x, y), unary("isnan", a)), a, b)

    return rule


# -- exponentials and logarithms ------------------------------------------------------------


def _exp(x: ComplexTracer) -> Tracer:
    size = real1("exp", x.re)
    return ComplexTracer(size * real1("cos", x.im), size * real1("sin", x.im))


def _expm1(x: ComplexTracer) -> Tracer:
    half = real1("sin", 0.5 * x.im)
    return ComplexTracer(
        real1("expm1", x.re) * real1("cos", x.im) - 2 * (half * half),
        real1("exp", x.re) * real1("sin", x.im),
    )


def _log_modulus(x: ComplexTracer) -> Tracer:
    a, b = x.re, x.im
    first = real2("ge", abs(a), abs(b))
    excess = select(first, (a - 1) * (a + 1) + b * b, (b - 1) * (b + 1) + a * a)
    near = real2("lt", abs(excess), 0.75)
    small = 0.5 * real1("log1p", select(near, excess, 0.0))
    size = real2("hypot", select(near, 1.0, a), select(near, 0.0, b))
    return select(near, small, real1("log", size))


def _log(x: ComplexTracer) -> Tracer:
    return ComplexTracer(_log_modulus(x), real2("atan2", x.im, x.re))


def _log1p(x: ComplexTracer) -> Tracer:
    a, b = x.re, x.im
    excess = a * (2 + a) + b * b
    near = real2("lt", abs(excess), 0.5)
    small = 0.5 * real1("log1p", select(near, excess, 0.0))
    shifted = ComplexTracer(1 + select(near, 0.0, a), select(near, 0.0, b))
    return ComplexTracer(select(near, small, _log_modulus(shifted)), real2("atan2", b, 1 + a))


def _scaled_log(factor: float) -> Callable[[ComplexTracer], Tracer]:
    return lambda x: p.binary("mul", _log(x), factor)


# -- roots ----------------------------------------------------------------------------------


def _sqrt(x: ComplexTracer) -> ComplexTracer:
    a, b = x.re, x.im
    right = real2("ge", a, 0.0)
    zero = real2("and", real2("eq", a, 0.0), real2("eq", b, 0.0))
    side = real2("copysign", p.full(b.tape, b.type.shape, 1.0, b.type.dtype), b)
    whole = 0.5 * select(right, a, -a) + 0.5 * real2("hypot", a, b)
    large = real1("sqrt", whole)
    small = b / select(zero, 1.0, 2 * large)
    return ComplexTracer(select(right, large, side * small), select(right, small, side * large))


# -- trigonometric and hyperbolic functions --------------------------------------------------


def _sin(x: ComplexTracer) -> Tracer:
    a, b = x.re, x.im
    return ComplexTracer(real1("sin", a) * real1("cosh", b), real1("cos", a) * real1("sinh", b))


def _cos(x: ComplexTracer) -> Tracer:
    a, b = x.re, x.im
    return ComplexTracer(real1("cos", a) * real1("cosh", b), -(real1("sin", a) * real1("sinh", b)))


def _sinh(x: ComplexTracer) -> Tracer:
    a, b = x.re, x.im
    return ComplexTracer(real1("sinh", a) * real1("cos", b), real1("cosh", a) * real1("sin", b))


def _cosh(x: ComplexTracer) -> Tracer:
    a, b = x.re, x.im
    return ComplexTracer(real1("cosh", a) * real1("cos", b), real1("sinh", a) * real1("sin", b))


def _tanh(x: ComplexTracer) -> ComplexTracer:
    """(th + i t) / (1 + i th t) with th = tanh a, t = tan b, and 1 - th² without cancelling."""
    a, b = x.re, x.im
    slope, t = real1("tanh", a), real1("tan", b)
    decay = real1("exp", -2 * select(real2("ge", a, 0.0), a, -a))
    secant = 4 * decay / ((1 + decay) * (1 + decay))
    product = slope * t
    scale = 1 + product * product
    return ComplexTracer(slope * ((1 + t * t) / scale), t * (secant / scale))


def _times_i(x: ComplexTracer) -> ComplexTracer:
    return ComplexTracer(-x.im, x.re.copy())


def _over_i(x: Any) -> ComplexTracer:
    return ComplexTracer(x.im.copy(), -x.re)


def _roots_beside(x: ComplexTracer) -> tuple[ComplexTracer, ComplexTracer]:
    """The roots of 1 - x and 1 + x, with the signs of zero that the cuts need."""
    minus = ComplexTracer(1 - x.re, -x.im)
    return _sqrt(minus), _sqrt(ComplexTracer(1 + x.re, x.im.copy()))


def _arccos(x: ComplexTracer) -> Tracer:
    s, r = _roots_beside(x)
    return ComplexTracer(
        2 * real2("atan2", s.re, r.re), real1("arcsinh", r.re * s.im - r.im * s.re)
    )


def _arcsin(x: ComplexTracer) -> ComplexTracer:
    s, r = _roots_beside(x)
    return ComplexTracer(
        real2("atan2", x.re, s.re * r.re - s.im * r.im),
        real1("arcsinh", s.re * r.im - s.im * r.re),
    )


def _arccosh(x: ComplexTracer) -> Tracer:
    s = _sqrt(ComplexTracer(x.re - 1, x.im.copy()))
    r = _sqrt(ComplexTracer(x.re + 1, x.im.copy()))
    return ComplexTracer(
        real1("arcsinh", s.re * r.re + s.im * r.im), 2 * real2("atan2", s.im, r.re)
    )


def _arctanh(x: ComplexTracer) -> ComplexTracer:
    a, b = x.re, x.im
    right = real2("ge", a, 0.0)
    size = select(right, a, -a)
    squared = b * b
    part = 0.25 * real1("log1p", 4 * size / ((1 - size) * (1 - size) + squared))
    angle = real2("atan2", 2 * b, (1 - a) * (1 + a) - squared)
    return ComplexTracer(select(right, part, -part), 0.5 * angle)


# -- tables ---------------------------------------------------------------------------------


def _both(op: str) -> Callable[[ComplexTracer], Tracer]:
    return lambda x: x.each(lambda part: real1(op, part))


def _either(op: str) -> Callable[[ComplexTracer], Tracer]:
    return lambda x: real2("or", real1(op, x.re), real1(op, x.im))


_UNARY: dict[str, Callable[[ComplexTracer], Tracer]] = {
    "neg": _both("neg"),
    "rint": _both("rint"),
    "abs": _abs,
    "sign": _sign,
    "exp": _exp,
    "exp2": lambda x: _exp(x.each(lambda part: part * math.log(2))),
    "expm1": _expm1,
    "log": _log,
    "log2": _scaled_log(1 / math.log(2)),
    "log10": _scaled_log(1 / math.log(10)),
    "log1p": _log1p,
    "sqrt": _sqrt,
    "sin": _sin,
    "cos": _cos,
    "tan": lambda x: _over_i(_tanh(_times_i(x))),
    "sinh": _sinh,
    "cosh": _cosh,
    "tanh": _tanh,
    "arcsin": _arcsin,
    "arccos": _arccos,
    "arctan": lambda x: _over_i(_arctanh(_times_i(x))),
    "arcsinh": lambda x: _over_i(_arcsin(_times_i(x))),
    "arccosh": _arccosh,
    "arctanh": _arctanh,
    "isnan": _either("isnan"),
    "isinf": _either("isinf"),
}

_BINARY: dict[str, Callable[[Parts, Parts], Tracer]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "pow": _pow,
    "eq": _eq,
    "ne": _ne,
    "lt": _ordered("lt", "lt"),
    "le": _ordered("lt", "le"),
    "gt": _ordered("gt", "gt"),
    "ge": _ordered("gt", "ge"),
    "max": _extremum("ge"),
    "min": _extremum("le"),
}

p.complex_math = sys.modules[__name__]
