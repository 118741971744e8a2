"""Entries of the elementwise operations: one scalar result per element.

Every operand has the shape of the result (broadcasting is an operation of its own) and,
unless said otherwise, its dtype.  A derivative is given as ``partials``; both modes
follow from it.  Operations whose zero cotangent can mean "not selected" declare
``masks`` and a ``vjp`` that selects instead of multiplying, so that an infinite
cotangent does not leak into the other arm either.

>>> from tapec.ir.opdef import OPS
>>> float(OPS["sin"].numpy([0.0], {}))
0.0
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapec.ir.adjoint import AdjointBuilder
from tapec.ir.builder import Builder
from tapec.ir.checks import attr, count, kind_one_of
from tapec.ir.core import BOOL, DTYPES, Attrs, DType, Op, Type, Value
from tapec.ir.opdef import Infer, OpDef, Partial, Samples, define
from tapec.ir.rewrite import splat

__all__: list[str] = []

LN2 = math.log(2.0)
LN10 = math.log(10.0)
Cts = Sequence[Value | None]

# -- type rules --------------------------------------------------------------------------


def _same(name: str, n: int, kinds: str, result: DType | None = None) -> Infer:
    """``n`` operands of one type whose dtype kind is among ``kinds`` → that type, or
    ``result`` of that shape."""

    def infer(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
        count(name, types, n)
        first = types[0]
        for t in types:
            if t is not first:
                if t.shape != first.shape:
                    raise ValueError(f"{name}: operands of different shapes, {first} and {t}")
                raise TypeError(f"{name}: operands of different dtypes, {first} and {t}")
        kind_one_of(name, first, kinds)
        return (first,) if result is None else (first.with_dtype(result),)

    return infer


def _infer_select(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    count("select", types, 3)
    c, x, y = types
    kind_one_of("select", c, "b")
    if x.dtype is not y.dtype:
        raise TypeError(f"select: arms of different dtypes, {x} and {y}")
    if not c.shape == x.shape == y.shape:
        raise ValueError(f"select: operands of different shapes, {c}, {x} and {y}")
    return (x,)


def _infer_convert(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    count("convert", types, 1)
    (x,) = types
    name = attr("convert", attrs, "dtype")
    dtype = DTYPES.get(name) if isinstance(name, str) else None
    if dtype is None:
        raise TypeError(f"convert: unknown dtype {name!r}; there are {', '.join(DTYPES)}")
    if x.dtype.kind == "c" and dtype.kind != "c":
        raise TypeError(f"convert: {x} does not convert to {name}; take its real part")
    return (x.with_dtype(dtype),)


_infer_float_or_int = _same("integer_pow", 1, "if")


def _infer_integer_pow(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    n = attr("integer_pow", attrs, "n")
    if type(n) is not int:
        raise TypeError(f"integer_pow: the exponent must be an int, got {n!r}")
    out = _infer_float_or_int(types, attrs)
    if n < 0 and out[0].dtype.kind == "i":
        raise ValueError(f"integer_pow: {out[0]} has no power {n}; convert it to floating point")
    return out


# -- helpers of the derivative rules -----------------------------------------------------


def _over(b: Builder, c: float, x: Value) -> Value:
    """``c / x``."""
    return b.div(b.like(c, x), x)


def _plus(b: Builder, c: float, x: Value) -> Value:
    """``c + x``."""
    return b.add(b.like(c, x), x)


def _one_minus_square(b: Builder, x: Value) -> Value:
    """``(1 - x)(1 + x)``: no cancellation near ±1."""
    one = b.like(1, x)
    return b.mul(b.sub(one, x), b.add(one, x))


def _safe_norm(b: Builder, r: Value) -> Value:
    """``r``, but inf where it is 0: a division by it then gives 0, at every order."""
    return b.select(b.eq(r, b.like(0, r)), b.like(math.inf, r), r)


# -- declaring ---------------------------------------------------------------------------

Numpy = Callable[..., Any]
_POSITIVE = Samples(low=0.05, high=4.0)
_UNIT = Samples(low=-0.97, high=0.97)


def _unary(
    name: str, f: Numpy, llvm: str, kinds: str = "f", result: DType | None = None, **fields: Any
) -> OpDef:
    return define(
        name,
        infer=_same(name, 1, kinds, result),
        numpy=lambda xs, attrs: f(xs[0]),
        elementwise=True,
        llvm=llvm,
        **fields,
    )


def _binary(
    name: str, f: Numpy, llvm: str, kinds: str = "if", result: DType | None = None, **fields: Any
) -> OpDef:
    return define(
        name,
        infer=_same(name, 2, kinds, result),
        numpy=lambda xs, attrs: f(xs[0], xs[1]),
        elementwise=True,
        llvm=llvm,
        **fields,
    )


# -- arithmetic --------------------------------------------------------------------------

_EXACT = Samples(ulp=0.0)

_binary(
    "add", np.add, "inst:fadd:add", commutative=True, linear=(0, 1),
    partials=lambda b, z, x, y: (1, 1), sympy=lambda sp, x, y: x + y, samples=_EXACT,
)  # fmt: skip
_binary(
    "sub", np.subtract, "inst:fsub:sub", linear=(0, 1),
    partials=lambda b, z, x, y: (1, -1), sympy=lambda sp, x, y: x - y, samples=_EXACT,
)  # fmt: skip
_binary(
    "mul", np.multiply, "inst:fmul:mul", commutative=True,
    partials=lambda b, z, x, y: (y, x), sympy=lambda sp, x, y: x * y, samples=_EXACT,
)  # fmt: skip


def _div_vjp(b: AdjointBuilder, op: Op, cts: Cts) -> Cts:
    """ct / y, and -(ct / y) z: one division for both."""
    (ct,) = cts
    assert ct is not None
    y = op.operands[1]
    if b.is_masked(ct):
        ct_x = b.ct_mul(ct, _over(b, 1, y))
    else:
        ct_x = b.div(ct, y)
    if y not in b.active:
        return ct_x, None
    return ct_x, b.ct_mul(b.ct_mul(ct_x, op.results[0]), -1)


def _div_jvp(b: AdjointBuilder, op: Op, tangents: Cts) -> Cts:
    """(dx - z dy) / y."""
    dx, dy = tangents
    y = op.operands[1]
    t = None if dy is None else b.ct_mul(dy, op.results[0])
    if dx is None:
        assert t is not None
        total = b.neg(t)
    else:
        total = dx if t is None else b.sub(dx, t)
    if b.masked.isdisjoint((dx, dy)):
        return (b.div(total, y),)
    return (b.ct_mul(b.mask(total), _over(b, 1, y)),)


_binary(
    "div", np.divide, "inst:fdiv:", "f", cost=5,
    partials=lambda b, z, x, y: (_over(b, 1, y), b.neg(b.div(z, y))),
    vjp=_div_vjp, jvp=_div_jvp, sympy=lambda sp, x, y: x / y,
    samples=Samples(low=(-3.0, 0.3), high=(3.0, 3.0), ulp=0.0),
)  # fmt: skip


def _mod_form(sp: Any, x: Any, y: Any) -> Any:
    return x - y * sp.floor(x / y)


def _fmod_partials(b: Builder, z: Value, x: Value, y: Value) -> tuple[Partial, ...]:
    # The quotient from the exact remainder: x / y alone may round up to the next integer.
    return 1, b.neg(b.emit("rint", (b.div(b.sub(x, z), y),)))


_binary(
    "mod", np.remainder, "own:mod", cost=20,
    partials=lambda b, z, x, y: (1, b.neg(b.emit("floor_div", (x, y)))), sympy=_mod_form,
    samples=Samples(low=(-3.0, 0.3), high=(3.0, 3.0), ulp=0.0),
)  # fmt: skip
_binary(
    "fmod", np.fmod, "own:fmod", cost=20, partials=_fmod_partials,
    sympy=lambda sp, x, y: sp.sign(x) * _mod_form(sp, sp.Abs(x), sp.Abs(y)),
    samples=Samples(low=(-3.0, 0.3), high=(3.0, 3.0), ulp=0.0),
)  # fmt: skip
_binary(
    "floor_div", np.floor_divide, "own:floor_div", cost=20, nondifferentiable=True,
    sympy=lambda sp, x, y: sp.floor(x / y),
    samples=Samples(low=(-3.0, 0.3), high=(3.0, 3.0), ulp=0.0),
)  # fmt: skip
_unary(
    "neg", np.negative, "own:neg", "if", linear=(0,), partials=lambda b, z, x: (-1,),
    sympy=lambda sp, x: -x, samples=_EXACT,
)  # fmt: skip
_unary(
    "abs", np.abs, "own:abs", "if", partials=lambda b, z, x: (b.sign(x),),
    sympy=lambda sp, x: sp.Abs(x), samples=_EXACT,
)  # fmt: skip
_unary(
    "sign", np.sign, "own:sign", "if", nondifferentiable=True,
    sympy=lambda sp, x: sp.sign(x), samples=_EXACT,
)  # fmt: skip
_binary(
    "copysign", np.copysign, "intr:copysign", "f",
    partials=lambda b, z, x, y: (b.mul(b.sign(x), b.emit("copysign", (b.like(1, y), y))), None),
    sympy=lambda sp, x, y: sp.Abs(x) * sp.sign(y), samples=_EXACT,
)  # fmt: skip

_ROUNDING: tuple[tuple[str, Numpy, Numpy | None], ...] = (
    ("floor", np.floor, lambda sp, x: sp.floor(x)),
    ("ceil", np.ceil, lambda sp, x: sp.ceiling(x)),
    ("rint", np.rint, None),  # SymPy does not round half to even
    ("trunc", np.trunc, lambda sp, x: sp.sign(x) * sp.floor(sp.Abs(x))),
)
for _name, _round, _form in _ROUNDING:
    _unary(
        _name, _round, f"intr:{_name}", nondifferentiable=True, sympy=_form, samples=_EXACT
    )  # fmt: skip

# -- roots, exponentials, logarithms -----------------------------------------------------

_unary(
    "sqrt", np.sqrt, "intr:sqrt", cost=6, partials=lambda b, z, x: (_over(b, 0.5, z),),
    sympy=lambda sp, x: sp.sqrt(x), samples=Samples(low=0.05, high=4.0, ulp=0.0),
)  # fmt: skip
_unary(
    "cbrt", np.cbrt, "math:cbrt", cost=20, partials=lambda b, z, x: (_over(b, 1 / 3, b.mul(z, z)),),
    sympy=lambda sp, x: sp.Piecewise((sp.cbrt(x), x >= 0), (-sp.cbrt(-x), True)),
)  # fmt: skip
_unary("exp", np.exp, "math:exp", cost=10, partials=lambda b, z, x: (z,),
       sympy=lambda sp, x: sp.exp(x))  # fmt: skip
# 2 ln2 exp2(x - 1): z itself overflows where the derivative is still finite.
_unary(
    "exp2", np.exp2, "math:exp2", cost=10,
    partials=lambda b, z, x: (
        b.mul(b.like(2 * LN2, x), b.emit("exp2", (b.sub(x, b.like(1, x)),))),
    ),
    sympy=lambda sp, x: 2**x,
)  # fmt: skip
_unary("expm1", np.expm1, "math:expm1", cost=15, partials=lambda b, z, x: (_plus(b, 1, z),),
       sympy=lambda sp, x: sp.exp(x) - 1)  # fmt: skip
# 1/(1 + exp(-x)); its partial stays finite where exp overflows and exact where it rounds to 1
_unary("logistic", lambda x: 1 / (1 + np.exp(-x)), "own:logistic", cost=20,
       partials=lambda b, z, x: (b.mul(z, b.unary("logistic", b.neg(x))),),
       sympy=lambda sp, x: 1 / (1 + sp.exp(-x)))  # fmt: skip
_unary("log", np.log, "math:log", cost=12, partials=lambda b, z, x: (_over(b, 1, x),),
       sympy=lambda sp, x: sp.log(x), samples=_POSITIVE)  # fmt: skip
_unary("log2", np.log2, "math:log2", cost=12, partials=lambda b, z, x: (_over(b, 1 / LN2, x),),
       sympy=lambda sp, x: sp.log(x) / sp.log(2), samples=_POSITIVE)  # fmt: skip
_unary("log10", np.log10, "math:log10", cost=12, partials=lambda b, z, x: (_over(b, 1 / LN10, x),),
       sympy=lambda sp, x: sp.log(x) / sp.log(10), samples=_POSITIVE)  # fmt: skip
_unary("log1p", np.log1p, "math:log1p", cost=15,
       partials=lambda b, z, x: (_over(b, 1, _plus(b, 1, x)),),
       sympy=lambda sp, x: sp.log(1 + x), samples=Samples(low=-0.9, high=4.0))  # fmt: skip

# -- trigonometric and hyperbolic --------------------------------------------------------

_unary("sin", np.sin, "math:sin", cost=12, partials=lambda b, z, x: (b.cos(x),),
       sympy=lambda sp, x: sp.sin(x))  # fmt: skip
_unary("cos", np.cos, "math:cos", cost=12, partials=lambda b, z, x: (b.neg(b.sin(x)),),
       sympy=lambda sp, x: sp.cos(x))  # fmt: skip
_unary("tan", np.tan, "math:tan", cost=20, partials=lambda b, z, x: (_plus(b, 1, b.mul(z, z)),),
       sympy=lambda sp, x: sp.tan(x), samples=Samples(low=-1.3, high=1.3))  # fmt: skip
_unary("arcsin", np.arcsin, "math:asin", cost=20,
       partials=lambda b, z, x: (_over(b, 1, b.sqrt(_one_minus_square(b, x))),),
       sympy=lambda sp, x: sp.asin(x), samples=_UNIT)  # fmt: skip
_unary("arccos", np.arccos, "math:acos", cost=20,
       partials=lambda b, z, x: (_over(b, -1, b.sqrt(_one_minus_square(b, x))),),
       sympy=lambda sp, x: sp.acos(x), samples=_UNIT)  # fmt: skip
_unary("arctan", np.arctan, "math:atan", cost=20,
       partials=lambda b, z, x: (_over(b, 1, _plus(b, 1, b.mul(x, x))),),
       sympy=lambda sp, x: sp.atan(x))  # fmt: skip
_unary("sinh", np.sinh, "math:sinh", cost=15, partials=lambda b, z, x: (b.unary("cosh", x),),
       sympy=lambda sp, x: sp.sinh(x))  # fmt: skip
_unary("cosh", np.cosh, "math:cosh", cost=15, partials=lambda b, z, x: (b.unary("sinh", x),),
       sympy=lambda sp, x: sp.cosh(x))  # fmt: skip
_unary("tanh", np.tanh, "math:tanh", cost=15,
       partials=lambda b, z, x: (b.sub(b.like(1, z), b.mul(z, z)),),
       sympy=lambda sp, x: sp.tanh(x))  # fmt: skip
# 1 / sqrt(1 + x²) without overflow of x².
_unary("arcsinh", np.arcsinh, "math:asinh", cost=20,
       partials=lambda b, z, x: (_over(b, 1, b.emit("hypot", (b.like(1, x), x))),),
       sympy=lambda sp, x: sp.asinh(x))  # fmt: skip


def _arccosh_partials(b: Builder, z: Value, x: Value) -> tuple[Partial, ...]:
    one = b.like(1, x)
    return (_over(b, 1, b.mul(b.sqrt(b.sub(x, one)), b.sqrt(b.add(x, one)))),)


_unary("arccosh", np.arccosh, "math:acosh", cost=20, partials=_arccosh_partials,
       sympy=lambda sp, x: sp.acosh(x), samples=Samples(low=1.05, high=5.0))  # fmt: skip
_unary("arctanh", np.arctanh, "math:atanh", cost=20,
       partials=lambda b, z, x: (_over(b, 1, _one_minus_square(b, x)),),
       sympy=lambda sp, x: sp.atanh(x), samples=_UNIT)  # fmt: skip

# -- powers and angles -------------------------------------------------------------------


def _pow_x(b: Builder, x: Value, y: Value) -> Partial:
    """y x^(y-1), and 0 where y is 0: so x^n at 0 is exact at every order."""
    n = splat(y)
    if n is not None:
        return None if n == 0 else b.mul(y, b.pow(x, b.like(n - 1, y)))
    p = b.mul(y, b.pow(x, b.sub(y, b.like(1, y))))
    zero = b.like(0, y)
    return b.select(b.eq(y, zero), zero, p)


def _pow_y(b: Builder, z: Value, x: Value, y: Value) -> Partial:
    """z log x, and 0 at x = 0 < y, where 0^y stays 0."""
    if splat(y) is not None:
        return None
    zero = b.like(0, x)
    flat = b.logical_and(b.eq(x, zero), b.gt(y, zero))
    return b.select(flat, zero, b.mul(b.log(x), z))


_binary(
    "pow", np.power, "math:pow", "f", cost=30,
    partials=lambda b, z, x, y: (_pow_x(b, x, y), _pow_y(b, z, x, y)),
    sympy=lambda sp, x, y: x**y, samples=Samples(low=(0.05, -3.0), high=(4.0, 3.0)),
)  # fmt: skip


def _integer_pow_partials(b: Builder, z: Value, x: Value) -> tuple[Partial, ...]:
    assert z.op is not None
    n = z.op.attrs["n"]
    if n == 0:
        return (None,)
    return (1 if n == 1 else b.mul(b.like(n, x), x if n == 2 else b.integer_pow(x, n - 1)),)


define(
    "integer_pow",
    infer=_infer_integer_pow,
    numpy=lambda xs, attrs: np.power(xs[0], attrs["n"]),
    elementwise=True,
    llvm="own:integer_pow",
    cost=3,
    partials=_integer_pow_partials,
    sympy=lambda sp, x, n: x**n,
    samples=Samples(
        low=-3.0,
        high=3.0,
        ulp=8.0,
        cases=tuple((("f64[5]",), {"n": n}) for n in (-2, -1, 0, 1, 2, 3, 7)),
    ),
)


def _hypot_partials(b: Builder, z: Value, x: Value, y: Value) -> tuple[Partial, ...]:
    r = _safe_norm(b, z)
    return b.div(x, r), b.div(y, r)


def _atan2_partials(b: Builder, z: Value, y: Value, x: Value) -> tuple[Partial, ...]:
    """x / r² and -y / r², in steps that do not overflow; 0 at the origin."""
    r = _safe_norm(b, b.emit("hypot", (x, y)))
    return b.div(b.div(x, r), r), b.neg(b.div(b.div(y, r), r))


_binary("hypot", np.hypot, "math:hypot", "f", cost=15, commutative=True, partials=_hypot_partials,
        sympy=lambda sp, x, y: sp.sqrt(x**2 + y**2))  # fmt: skip
_binary("atan2", np.arctan2, "math:atan2", "f", cost=25, partials=_atan2_partials,
        sympy=lambda sp, y, x: sp.atan2(y, x))  # fmt: skip

# -- selection ---------------------------------------------------------------------------


def _extremum_vjp(closer: str, further: str) -> Callable[[AdjointBuilder, Op, Cts], Cts]:
    """The selected operand takes the cotangent, a tie shares it evenly."""

    def vjp(b: AdjointBuilder, op: Op, cts: Cts) -> Cts:
        (ct,) = cts
        assert ct is not None
        x, y = op.operands
        zero = b.like(0, ct)
        shared = b.select(b.eq(x, y), b.mul(ct, b.like(0.5, ct)), zero)
        ct_x = b.select(b.emit(closer, (x, y)), ct, shared) if x in b.active else None
        ct_y = b.select(b.emit(further, (x, y)), ct, shared) if y in b.active else None
        return ct_x, ct_y

    return vjp


def _extremum_jvp(closer: str, further: str) -> Callable[[Builder, Op, Cts], Cts]:
    def jvp(b: Builder, op: Op, tangents: Cts) -> Cts:
        x, y = op.operands
        zero = b.like(0, op.results[0])
        dx, dy = (zero if t is None else t for t in tangents)
        tie = b.mul(b.add(dx, dy), b.like(0.5, zero))
        rest = b.select(b.emit(further, (x, y)), dy, b.select(b.eq(x, y), tie, zero))
        return (b.select(b.emit(closer, (x, y)), dx, rest),)

    return jvp


_binary(
    "max", np.maximum, "own:max", "bif", commutative=True, masks=True, masks_tangent=True,
    vjp=_extremum_vjp("gt", "lt"), jvp=_extremum_jvp("gt", "lt"),
    sympy=lambda sp, x, y: sp.Max(x, y), samples=_EXACT,
)  # fmt: skip
_binary(
    "min", np.minimum, "own:min", "bif", commutative=True, masks=True, masks_tangent=True,
    vjp=_extremum_vjp("lt", "gt"), jvp=_extremum_jvp("lt", "gt"),
    sympy=lambda sp, x, y: sp.Min(x, y), samples=_EXACT,
)  # fmt: skip


def _select_vjp(b: AdjointBuilder, op: Op, cts: Cts) -> Cts:
    (ct,) = cts
    assert ct is not None
    c, x, y = op.operands
    zero = b.like(0, ct)
    return (
        None,
        b.select(c, ct, zero) if x in b.active else None,
        b.select(c, zero, ct) if y in b.active else None,
    )


def _select_jvp(b: Builder, op: Op, tangents: Cts) -> Cts:
    _, dx, dy = tangents
    zero = b.like(0, op.results[0])
    return (b.select(op.operands[0], zero if dx is None else dx, zero if dy is None else dy),)


define(
    "select",
    infer=_infer_select,
    numpy=lambda xs, attrs: np.where(xs[0], xs[1], xs[2]),
    elementwise=True,
    masks=True,
    masks_tangent=True,
    llvm="own:select",
    vjp=_select_vjp,
    jvp=_select_jvp,
    sympy=lambda sp, c, x, y: sp.Piecewise((x, c), (y, True)),
    samples=_EXACT,
)


def _strong_mul_vjp(b: AdjointBuilder, op: Op, cts: Cts) -> Cts:
    """z = ct p with "ct = 0 gives 0".  The derivative by p is ct, so it is 0 where ct is,
    also against an infinite cotangent; where the incoming cotangent is masked as well,
    a zero of either must win."""
    (c,) = cts
    assert c is not None
    ct, p = op.operands
    c_ct = b.ct_mul(c, p) if ct in b.active else None
    if p not in b.active:
        return c_ct, None
    return c_ct, b.mask(b.emit("null_mul" if b.is_masked(c) else "strong_mul", (ct, c)))


def _null_mul_vjp(b: AdjointBuilder, op: Op, cts: Cts) -> Cts:
    (c,) = cts
    assert c is not None
    x, y = op.operands
    name = "null_mul" if b.is_masked(c) else "strong_mul"
    return (
        b.mask(b.emit(name, (y, c))) if x in b.active else None,
        b.mask(b.emit(name, (x, c))) if y in b.active else None,
    )


def _product_jvp(b: AdjointBuilder, op: Op, tangents: Cts) -> Cts:
    """d(ct p) = dct p + ct dp.  The tangent of a masked zero is zero too, so the products
    are of the kind of the op itself, but that a masked tangent of p is strong as well."""
    (x, y), (dx, dy) = op.operands, tangents
    parts = []
    if dx is not None:
        parts.append(b.emit(op.name, (dx, y)))
    if dy is not None:
        parts.append(b.emit("null_mul" if b.is_masked(dy) else op.name, (x, dy)))
    if len(parts) == 2:
        parts = [b.add(*parts)]
    return (b.mask(parts[0]),)


_binary(
    "strong_mul", lambda ct, p: np.where(ct == 0, ct.dtype.type(0), ct * p), "own:strong_mul", "f",
    vjp=_strong_mul_vjp, jvp=_product_jvp, sympy=lambda sp, ct, p: ct * p, samples=_EXACT,
    doc="ct * p, but 0 where ct is 0, whatever p is",
)  # fmt: skip
_binary(
    "null_mul",
    lambda x, y: np.where((x == 0) | (y == 0), x.dtype.type(0), x * y),
    "own:null_mul", "f", commutative=True, vjp=_null_mul_vjp, jvp=_product_jvp,
    sympy=lambda sp, x, y: x * y, samples=_EXACT,
    doc="x * y, but 0 where either is 0, whatever the other is",
)  # fmt: skip

# -- comparisons, logic, bits ------------------------------------------------------------


def _relation(kind: str) -> Callable[..., Any]:
    return lambda sp, x, y: getattr(sp, kind)(x, y)


_COMPARISONS: tuple[tuple[str, Numpy, str], ...] = (
    ("eq", np.equal, "cmp:oeq:eq"),
    ("ne", np.not_equal, "cmp:une:ne"),
    ("lt", np.less, "cmp:olt:slt"),
    ("le", np.less_equal, "cmp:ole:sle"),
    ("gt", np.greater, "cmp:ogt:sgt"),
    ("ge", np.greater_equal, "cmp:oge:sge"),
)
for _name, _compare, _llvm in _COMPARISONS:
    _binary(
        _name, _compare, _llvm, "bif", BOOL, commutative=_name in ("eq", "ne"),
        nondifferentiable=True, sympy=_relation(_name.capitalize()), samples=_EXACT,
    )  # fmt: skip

_binary("and", np.bitwise_and, "inst::and", "bi", commutative=True, nondifferentiable=True,
        samples=_EXACT)  # fmt: skip
_binary("or", np.bitwise_or, "inst::or", "bi", commutative=True, nondifferentiable=True,
        samples=_EXACT)  # fmt: skip
_binary("xor", np.bitwise_xor, "inst::xor", "bi", commutative=True, nondifferentiable=True,
        samples=_EXACT)  # fmt: skip
_unary("not", np.invert, "own:not", "bi", nondifferentiable=True, samples=_EXACT)
_unary("isnan", np.isnan, "own:isnan", "bif", BOOL, nondifferentiable=True, samples=_EXACT)
_unary("isinf", np.isinf, "own:isinf", "bif", BOOL, nondifferentiable=True, samples=_EXACT)
_binary("shift_left", np.left_shift, "own:shift_left", "i", nondifferentiable=True,
        samples=Samples(low=(-8, 0), high=(8, 5), ulp=0.0))  # fmt: skip
_binary("shift_right", np.right_shift, "own:shift_right", "i", nondifferentiable=True,
        samples=Samples(low=(-8, 0), high=(8, 5), ulp=0.0))  # fmt: skip

# -- conversion --------------------------------------------------------------------------


def _convert_vjp(b: AdjointBuilder, op: Op, cts: Cts) -> Cts:
    (ct,) = cts
    assert ct is not None
    return (b.convert(ct, op.operands[0].type.dtype),)


def _convert_jvp(b: Builder, op: Op, tangents: Cts) -> Cts:
    (t,) = tangents
    dtype = op.results[0].type.dtype
    return (None if t is None or not dtype.is_inexact else b.convert(t, dtype),)


define(
    "convert",
    infer=_infer_convert,
    numpy=lambda xs, attrs: np.asarray(xs[0]).astype(DTYPES[attrs["dtype"]].np),
    elementwise=True,
    llvm="own:convert",
    vjp=_convert_vjp,
    jvp=_convert_jvp,
    samples=Samples(
        ulp=0.0,
        cases=tuple(
            ((f"{a}[5]",), {"dtype": c})
            for a in ("bool", "i32", "i64", "f32", "f64")
            for c in ("bool", "i32", "i64", "f32", "f64")
        ),
    ),
)
