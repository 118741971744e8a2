"""Entries of the special functions: elementwise, with SciPy's names and SciPy's numbers.

Native code calls the C functions that SciPy exports (``special:psi.dd``, see
``tapec.codegen.specialmath``); SciPy itself is imported when the interpreter needs it.  A partial
derivative that is ``UNKNOWN`` has no rule: differentiating by that operand is an error.

Removable singularities: the partials are written so that they are right where the textbook
formula is 0/0 or loses all digits (Bessel functions by their neighbours in order rather than by
``f/x``, ``x log x`` at 0, tails of the error function by their asymptotic series).

>>> from tapec.ir.opdef import OPS
>>> float(OPS["erf"].numpy([0.0], {}))
0.0
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapec.ir.builder import Builder
from tapec.ir.checks import attr
from tapec.ir.core import Attrs, Type, Value
from tapec.ir.elementwise import _over, _same
from tapec.ir.opdef import UNKNOWN, OpDef, Partial, Samples, define

__all__ = ["declare"]

Partials = Callable[..., tuple[Partial, ...]]
ROOT_PI = math.sqrt(math.pi)


def _scipy(name: str) -> Callable[[Sequence[Any], Attrs], Any]:
    """SciPy's function, in double precision whatever the dtype (as native code computes)."""

    def numpy(xs: Sequence[Any], attrs: Attrs) -> Any:
        from scipy import special

        dtype = np.asarray(xs[0]).dtype
        with warnings.catch_warnings():  # whole orders given as floats
            warnings.simplefilter("ignore")
            z = getattr(special, name)(*[np.asarray(x, float) for x in xs])
        return np.asarray(z).astype(dtype)[()]

    return numpy


def declare(
    name: str,
    operands: int,
    partials: Partials,
    llvm: str | None = None,
    sympy: Callable[..., Any] | None = None,
    low: float | tuple[float, ...] = 0.2,
    high: float | tuple[float, ...] = 4.0,
    numpy: Callable[[Sequence[Any], Attrs], Any] | None = None,
    ulp: float = 64.0,
    cost: int = 300,
    unknown: tuple[int, ...] = (),
) -> OpDef:
    """A special function of ``operands`` real operands."""
    return define(
        name,
        infer=_same(name, operands, "f"),
        numpy=numpy or _scipy(name),
        elementwise=True,
        llvm=llvm or f"special:{name}.{'d' * (operands + 1)}",
        cost=cost,
        partials=partials,
        sympy=sympy,
        unknown=unknown,
        samples=Samples(low=low, high=high, ulp=ulp),
    )


def _times(b: Builder, c: float, x: Value) -> Value:
    return b.mul(b.like(c, x), x)


def _plus(b: Builder, c: float, x: Value) -> Value:
    return b.add(x, b.like(c, x))


def _gauss(b: Builder, c: float, x: Value) -> Value:
    """c exp(-x²)"""
    return _times(b, c, b.exp(b.neg(b.mul(x, x))))


def _f(name: str, b: Builder, *xs: Value) -> Value:
    return b.emit(name, xs)


# -- gamma and its relatives -------------------------------------------------------------


def _polygamma_infer(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    n = attr("polygamma", attrs, "n")
    if type(n) is not int or n < 1:
        raise TypeError(f"polygamma: the order must be a positive int, got {n!r}")
    return _one_float(types, attrs)


_one_float = _same("polygamma", 1, "f")


def _polygamma_numpy(xs: Sequence[Any], attrs: Attrs) -> Any:
    from scipy import special

    x, n = np.asarray(xs[0]), attrs["n"]
    z = (-1.0) ** (n + 1) * math.factorial(n) * special.zeta(n + 1, np.asarray(x, float))
    return np.asarray(z).astype(x.dtype)[()]


def _psi(b: Builder, x: Value) -> Value:
    return b.emit("digamma", (x,))


declare("gammaln", 1, lambda b, z, x: (_psi(b, x),), sympy=lambda sp, x: sp.loggamma(x))
declare("digamma", 1, lambda b, z, x: (b.emit("polygamma", (x,), {"n": 1}),),
        "special:psi.dd", lambda sp, x: sp.digamma(x), low=1.6, numpy=_scipy("psi"))  # fmt: skip
define(
    "polygamma",
    infer=_polygamma_infer,
    numpy=_polygamma_numpy,
    elementwise=True,
    llvm="own:polygamma",
    cost=400,
    partials=lambda b, z, x: (b.emit("polygamma", (x,), {"n": z.op.attrs["n"] + 1}),),
    sympy=lambda sp, x, n: sp.polygamma(n, x),
    samples=Samples(
        low=0.4, high=4.0, ulp=64.0, cases=tuple((("f64[5]",), {"n": n}) for n in (1, 2, 3))
    ),
)
declare("gamma", 1, lambda b, z, x: (b.mul(z, _psi(b, x)),), sympy=lambda sp, x: sp.gamma(x))
declare("betaln", 2, lambda b, z, x, y: _beta_partials(b, None, x, y),
        sympy=lambda sp, x, y: sp.loggamma(x) + sp.loggamma(y) - sp.loggamma(x + y))  # fmt: skip
declare("beta", 2, lambda b, z, x, y: _beta_partials(b, z, x, y),
        sympy=lambda sp, x, y: sp.gamma(x) * sp.gamma(y) / sp.gamma(x + y))  # fmt: skip


def _beta_partials(b: Builder, z: Value | None, x: Value, y: Value) -> tuple[Partial, ...]:
    whole = _psi(b, b.add(x, y))
    px, py = b.sub(_psi(b, x), whole), b.sub(_psi(b, y), whole)
    return (px, py) if z is None else (b.mul(z, px), b.mul(z, py))


def _binom_partials(b: Builder, z: Value, n: Value, k: Value) -> tuple[Partial, ...]:
    rest = _psi(b, _plus(b, 1, b.sub(n, k)))
    return (
        b.mul(z, b.sub(_psi(b, _plus(b, 1, n)), rest)),
        b.mul(z, b.sub(rest, _psi(b, _plus(b, 1, k)))),
    )


def _poch_partials(b: Builder, z: Value, a: Value, m: Value) -> tuple[Partial, ...]:
    whole = _psi(b, b.add(a, m))
    return b.mul(z, b.sub(whole, _psi(b, a))), b.mul(z, whole)


declare("binom", 2, _binom_partials, low=(3.2, 0.3), high=(6.0, 2.8), sympy=lambda sp, n, k: (
    sp.gamma(n + 1) / (sp.gamma(k + 1) * sp.gamma(n - k + 1))))  # fmt: skip
declare("poch", 2, _poch_partials, sympy=lambda sp, a, m: sp.gamma(a + m) / sp.gamma(a))
declare("zeta", 2, lambda b, z, s, q: (
            UNKNOWN, b.mul(b.neg(s), _f("zeta", b, _plus(b, 1, s), q))),
        "special:zeta", low=(1.3, 0.4), high=(5.0, 4.0), unknown=(0,))  # fmt: skip


def _log_density_gamma(b: Builder, a: Value, x: Value) -> Value:
    """log of x^(a-1) e^-x / Γ(a)"""
    power = _f("xlogy", b, _plus(b, -1, a), x)
    return b.sub(b.sub(power, x), _f("gammaln", b, a))


def _gammainc_partials(sign: int) -> Partials:
    def partials(b: Builder, z: Value, a: Value, x: Value) -> tuple[Partial, ...]:
        da, dx = _f("gammainc_a", b, a, x), b.exp(_log_density_gamma(b, a, x))
        return (da, dx) if sign > 0 else (b.neg(da), b.neg(dx))

    return partials


def _gammaincinv_partials(sign: int) -> Partials:
    def partials(b: Builder, z: Value, a: Value, p: Value) -> tuple[Partial, ...]:
        inverse = b.exp(b.neg(_log_density_gamma(b, a, z)))
        da = b.neg(b.mul(_f("gammainc_a", b, a, z), inverse))
        return da, inverse if sign > 0 else b.neg(inverse)

    return partials


def _gammainc_a_numpy(xs: Sequence[Any], attrs: Attrs) -> Any:
    """The derivative of gammainc by a: of the part that is small, so that it keeps its digits.

    x <= a + 1: P is x^a e^-x / Γ(a+1) times Σ wₙ, wₙ = x^n / (a+1)…(a+n); the derivative of the
    n-th term adds the factor log x - ψ(a+n+1).  Beyond: Q is x^a e^-x / Γ(a) times Legendre's
    continued fraction (DLMF 8.9.2), evaluated by Lentz' method together with its derivative.
    """
    dtype = np.asarray(xs[0]).dtype
    a, x = np.broadcast_arrays(*[np.asarray(v, float) for v in xs])
    good, zero = (a > 0) & (x > 0) & (x < np.inf), (a > 0) & ((x == 0) | (x == np.inf))
    a, x = np.where(good, a, 1.0), np.where(good, x, 1.0)
    right = x > a + 1
    with np.errstate(all="ignore"):
        upper = _upper_gamma_a(np.where(right, a, 1.0), np.where(right, x, 3.0))
        lower = _lower_gamma_a(np.where(right, 1.0, a), np.where(right, 0.5, x))
        z = np.where(right, -upper, lower)
    return np.where(good, z, np.where(zero, 0.0, np.nan)).astype(dtype)[()]


#: More terms than this are needed from shapes of about 2e7 on: the derivative is NaN there.
_MOST_TERMS = 30_000


def _lower_gamma_a(a: Any, x: Any) -> Any:
    from scipy import special

    d = np.log(x) - special.psi(a + 1)
    w, total, n = np.ones_like(x), np.array(d), a + 1
    more = np.ones(x.shape, bool)
    for _ in range(_MOST_TERMS):
        w = np.where(more, w * (x / n), w)
        d = np.where(more, d - 1 / n, d)
        total = np.where(more, total + w * d, total)
        more &= (np.abs(w * d) > 1e-18 * np.abs(total)) | (d > 0)
        if not more.any():
            break
        n = n + 1
    z = np.exp(a * np.log(x) - x - special.gammaln(a + 1)) * total
    return np.where(more, np.nan, z)


def _upper_gamma_a(a: Any, x: Any) -> Any:
    from scipy import special

    b = x - a + 1
    f = h = 1 / b
    f_a = h_a = h * h
    c, c_a = np.full(x.shape, 1e300), np.zeros(x.shape)
    more = np.ones(x.shape, bool)
    for k in range(_MOST_TERMS):
        i = k + 1.0
        n, b = i * (a - i), b + 2
        r, r_a = n * f + b, i * f + n * f_a - 1
        q = n / c
        c, c_a = b + q, i / c - q * c_a / c - 1
        f = 1 / r
        f_a = -r_a * f * f
        e, e_a = f * c, f_a * c + f * c_a
        h, h_a = np.where(more, h * e, h), np.where(more, h_a * e + h * e_a, h_a)
        # at a whole a the value is complete before its derivative is
        more &= (np.abs(e - 1) > 2.3e-16) | (np.abs(h * e_a) > 1e-16 * np.abs(h_a))
        if not more.any():
            break
    size = np.exp(a * np.log(x) - x - special.gammaln(a))
    return np.where(more, np.nan, size * (h * (np.log(x) - special.psi(a)) + h_a))


declare("gammainc_a", 2, lambda b, z, a, x: (UNKNOWN, UNKNOWN), "special:gammainc_a",
        numpy=_gammainc_a_numpy, unknown=(0, 1), ulp=256.0)  # fmt: skip
declare("gammainc", 2, _gammainc_partials(1))
declare("gammaincc", 2, _gammainc_partials(-1))
declare("gammaincinv", 2, _gammaincinv_partials(1), low=(0.3, 0.05), high=(4.0, 0.95))
declare("gammainccinv", 2, _gammaincinv_partials(-1), low=(0.3, 0.05), high=(4.0, 0.95))


def _log_density_beta(b: Builder, p: Value, q: Value, x: Value) -> Value:
    """log of x^(p-1) (1-x)^(q-1) / B(p, q)"""
    power = _f("xlogy", b, _plus(b, -1, p), x)
    other = _f("xlog1py", b, _plus(b, -1, q), b.neg(x))
    return b.sub(b.add(power, other), _f("betaln", b, p, q))


def _betainc_derivative(first: bool) -> Callable[[Sequence[Any], Attrs], Any]:
    """∂I_x(p, q)/∂p (``first``) or ∂q, by the series of positive terms (DLMF 8.17.8)

        I = Σ tₙ,  tₙ = x^(p+n) (1-x)^q Γ(p+q+n) / (Γ(q) Γ(p+n+1)),

    whose terms the derivative multiplies with log x + ψ(p+q+n) - ψ(p+n+1), or with
    log(1-x) + ψ(p+q+n) - ψ(q).  Right of the mean it is that of 1 - I_{1-x}(q, p).  NaN for
    parameters of 1e9 and more, of whose first term rounding leaves too few digits."""

    def numpy(xs: Sequence[Any], attrs: Attrs) -> Any:
        dtype = np.asarray(xs[0]).dtype
        p, q, x = np.broadcast_arrays(*[np.asarray(v, float) for v in xs])
        known = (p > 0) & (q > 0) & (p + q < 1e9)
        good = known & (x > 0) & (x < 1)
        zero = known & ((x == 0) | (x == 1))
        p, q, x = np.where(good, p, 1.0), np.where(good, q, 1.0), np.where(good, x, 0.5)
        left = x <= (p + 1) / (p + q + 2)
        z = _betainc_series(p, q, x, left, left == first)
        return np.where(good, z, np.where(zero, 0.0, np.nan)).astype(dtype)[()]

    return numpy


def _betainc_series(p: Any, q: Any, x: Any, left: Any, by_first: Any) -> Any:
    from scipy import special

    log_x, log_y = np.log(x), np.log1p(-x)
    p, q = np.where(left, p, q), np.where(left, q, p)
    log_x, log_y = np.where(left, log_x, log_y), np.where(left, log_y, log_x)
    x = np.where(left, x, 1 - x)
    d = np.where(by_first, log_x - special.psi(p + 1), log_y - special.psi(q))
    d = d + special.psi(p + q)
    w, total, n = np.ones_like(d), d, 0.0
    more = np.ones(d.shape, bool)
    while more.any() and n < 1e7:
        ratio = x * ((p + q + n) / (p + 1 + n))
        w = np.where(more, w * ratio, w)
        d = np.where(more, d + (1 / (p + q + n) - np.where(by_first, 1 / (p + 1 + n), 0.0)), d)
        total = np.where(more, total + w * d, total)
        more &= (np.abs(w * d) > 1e-17 * np.abs(total) * (1 - ratio)) | ((d > 0) == by_first)
        n += 1
    start = np.exp(p * log_x + q * log_y - special.betaln(p, q) - np.log(p))
    return np.where(left, 1.0, -1.0) * start * total


_UNIT3: dict[str, Any] = {"low": (0.4, 0.4, 0.05), "high": (4.0, 4.0, 0.95)}
for _name, _first in (("betainc_a", True), ("betainc_b", False)):
    declare(_name, 3, lambda b, z, p, q, x: (UNKNOWN, UNKNOWN, UNKNOWN), f"special:{_name}",
            numpy=_betainc_derivative(_first), unknown=(0, 1, 2), ulp=1e3, **_UNIT3)  # fmt: skip


def _betainc(sign: int) -> Partials:
    def partials(b: Builder, z: Value, *xs: Value) -> tuple[Partial, ...]:
        found = (_f("betainc_a", b, *xs), _f("betainc_b", b, *xs), b.exp(_log_density_beta(b, *xs)))
        return found if sign > 0 else tuple([b.neg(v) for v in found])

    return partials


def _betaincinv(sign: int) -> Partials:
    """The inverse moves against the function, over its slope."""

    def partials(b: Builder, z: Value, p: Value, q: Value, y: Value) -> tuple[Partial, ...]:
        over = b.exp(b.neg(_log_density_beta(b, p, q, z)))
        dp, dq = (b.neg(b.mul(_f(f, b, p, q, z), over)) for f in ("betainc_a", "betainc_b"))
        return dp, dq, over if sign > 0 else b.neg(over)

    return partials


declare("betainc", 3, _betainc(1), **_UNIT3)
declare("betaincc", 3, _betainc(-1), **_UNIT3)
declare("betaincinv", 3, _betaincinv(1), **_UNIT3)


# -- the error function and the normal distribution --------------------------------------


def _tail(b: Builder, x: Value, sign: int) -> Value:
    """Σ (±1)ⁿ (2n+1)!! / (2x²)ⁿ: derivatives of erfcx (-) and Dawson's integral (+) far out."""
    t = _over(b, 0.5 * sign, b.mul(x, x))
    total = b.like(math.prod(range(1, 32, 2)), x)
    for n in range(14, -1, -1):
        total = _plus(b, math.prod(range(1, 2 * n + 2, 2)), b.mul(t, total))
    return total


def _far(b: Builder, x: Value, limit: float, two_sided: bool) -> tuple[Value, Value]:
    """Whether x is far out, and x moved there where it is not."""
    far = b.gt(b.abs(x) if two_sided else x, b.like(limit, x))
    return far, b.select(far, x, b.like(2 * limit, x))


def _erfcx_partials(b: Builder, z: Value, x: Value) -> tuple[Partial, ...]:
    """2 x z - 2/√π, whose terms cancel for large x."""
    far, y = _far(b, x, 10.0, False)
    series = b.mul(_tail(b, y, -1), _over(b, -1 / ROOT_PI, b.mul(y, y)))
    return (b.select(far, series, _plus(b, -2 / ROOT_PI, _times(b, 2, b.mul(x, z)))),)


def _dawsn_partials(b: Builder, z: Value, x: Value) -> tuple[Partial, ...]:
    far, y = _far(b, x, 10.0, True)
    series = b.mul(_tail(b, y, 1), _over(b, -0.5, b.mul(y, y)))
    return (b.select(far, series, _plus(b, 1, _times(b, -2, b.mul(x, z)))),)


def _log_ndtr_partials(b: Builder, z: Value, x: Value) -> tuple[Partial, ...]:
    """The normal density over its integral: √(2/π) / erfcx(-x/√2), which overflows far right."""
    right = b.gt(x, b.like(3.0, x))
    half = _times(b, -0.5, b.mul(x, x))
    density = _times(b, 1 / math.sqrt(2 * math.pi), b.exp(half))
    scaled = _f("erfcx", b, _times(b, -math.sqrt(0.5), b.min(x, b.like(3.5, x))))
    return (
        b.select(right, b.div(density, _f("ndtr", b, x)), _over(b, math.sqrt(2 / math.pi), scaled)),
    )


declare("erf", 1, lambda b, z, x: (_gauss(b, 2 / ROOT_PI, x),), "math:erf",
        lambda sp, x: sp.erf(x), low=-3.0, high=3.0, cost=20)  # fmt: skip
declare("erfc", 1, lambda b, z, x: (_gauss(b, -2 / ROOT_PI, x),), "math:erfc",
        lambda sp, x: sp.erfc(x), low=-3.0, high=3.0, cost=25)  # fmt: skip
declare("erfcx", 1, _erfcx_partials, sympy=lambda sp, x: sp.exp(x * x) * sp.erfc(x),
        low=-2.0, high=3.0)  # fmt: skip
declare("erfi", 1, lambda b, z, x: (_times(b, 2 / ROOT_PI, b.exp(b.mul(x, x))),),
        sympy=lambda sp, x: sp.erfi(x), low=-2.0, high=2.0)  # fmt: skip
declare("dawsn", 1, _dawsn_partials, low=-3.0, high=3.0,
        sympy=lambda sp, x: sp.exp(-x * x) * sp.erfi(x) * sp.sqrt(sp.pi) / 2)  # fmt: skip
declare("erfinv", 1, lambda b, z, x: (_times(b, ROOT_PI / 2, b.exp(b.mul(z, z))),),
        sympy=lambda sp, x: sp.erfinv(x), low=-0.9, high=0.9)  # fmt: skip
declare("erfcinv", 1, lambda b, z, x: (_times(b, -ROOT_PI / 2, b.exp(b.mul(z, z))),),
        low=0.1, high=1.9)  # fmt: skip
declare("ndtr", 1, lambda b, z, x: (
            _times(b, 1 / math.sqrt(2 * math.pi), b.exp(_times(b, -0.5, b.mul(x, x)))),),
        sympy=lambda sp, x: sp.erfc(-x / sp.sqrt(2)) / 2, low=-3.0, high=3.0,
        cost=40)  # fmt: skip
declare("log_ndtr", 1, _log_ndtr_partials,
        sympy=lambda sp, x: sp.log(sp.erfc(-x / sp.sqrt(2)) / 2), low=-4.0, high=4.0)  # fmt: skip
declare("ndtri", 1, lambda b, z, x: (
            _times(b, math.sqrt(2 * math.pi), b.exp(_times(b, 0.5, b.mul(z, z)))),),
        low=0.05, high=0.95)  # fmt: skip
declare("ndtri_exp", 1, lambda b, z, x: (
            _times(b, math.sqrt(2 * math.pi), b.exp(b.add(x, _times(b, 0.5, b.mul(z, z))))),),
        low=-4.0, high=-0.2)  # fmt: skip
declare("owens_t", 2, lambda b, z, h, a: _owens_partials(b, h, a), low=(-2.0, -2.0),
        high=(2.0, 2.0))  # fmt: skip


def _owens_partials(b: Builder, h: Value, a: Value) -> tuple[Partial, ...]:
    hh, more = b.mul(h, h), _plus(b, 1, b.mul(a, a))
    dh = b.mul(
        _times(b, -0.5 / math.sqrt(2 * math.pi), b.exp(_times(b, -0.5, hh))),
        _f("erf", b, _times(b, math.sqrt(0.5), b.mul(a, h))),
    )
    da = b.div(b.exp(_times(b, -0.5, b.mul(hh, more))), _times(b, 2 * math.pi, more))
    return dh, da


# -- logarithms of products --------------------------------------------------------------


def _entr_partials(b: Builder, z: Value, x: Value) -> tuple[Partial, ...]:
    return (_plus(b, -1, b.neg(b.log(x))),)


def _ratio(b: Builder, x: Value, y: Value) -> Value:
    """x / y, and 0 for 0/0."""
    zero = b.like(0, x)
    both = b.logical_and(b.eq(x, zero), b.eq(y, zero))
    return b.div(x, b.select(both, b.like(1, y), y))


declare("xlogy", 2, lambda b, z, x, y: (b.log(y), _ratio(b, x, y)), "own:xlogy",
        lambda sp, x, y: x * sp.log(y), ulp=4.0, cost=14)  # fmt: skip
declare("xlog1py", 2, lambda b, z, x, y: (
            b.unary("log1p", y), _ratio(b, x, _plus(b, 1, y))),
        "own:xlog1py", lambda sp, x, y: x * sp.log(1 + y), ulp=4.0, cost=17)  # fmt: skip
declare("entr", 1, _entr_partials, "own:entr", lambda sp, x: -x * sp.log(x), ulp=4.0,
        cost=14)  # fmt: skip
declare("rel_entr", 2, lambda b, z, x, y: (
            _plus(b, 1, b.log(b.div(x, y))), b.neg(_ratio(b, x, y))),
        sympy=lambda sp, x, y: x * sp.log(x / y), cost=30)  # fmt: skip
declare("kl_div", 2, lambda b, z, x, y: (
            b.log(b.div(x, y)), _plus(b, 1, b.neg(_ratio(b, x, y)))),
        sympy=lambda sp, x, y: x * sp.log(x / y) - x + y, cost=30)  # fmt: skip
declare("logit", 1, lambda b, z, x: (_over(b, 1, b.mul(x, b.sub(b.like(1, x), x))),),
        sympy=lambda sp, x: sp.log(x / (1 - x)), low=0.05, high=0.95, cost=20)  # fmt: skip
declare("log_expit", 1, lambda b, z, x: (b.unary("logistic", b.neg(x)),),
        sympy=lambda sp, x: -sp.log(1 + sp.exp(-x)), low=-4.0, high=4.0, cost=30)  # fmt: skip
declare("cosm1", 1, lambda b, z, x: (b.neg(b.sin(x)),), sympy=lambda sp, x: sp.cos(x) - 1,
        low=-3.0, high=3.0, cost=20)  # fmt: skip
