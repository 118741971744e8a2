"""Entries of Bessel functions, integrals, hypergeometric functions and orthogonal polynomials.

As ``special``: elementwise, with SciPy's names.  The first operand is the order where there is
one; the derivative by the order is not known.  Derivatives are neighbours in order, which have
no removable singularity: I1' is (I0 + I2)/2, not I0 - I1/x.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapec.ir.builder import Builder
from tapec.ir.core import Value
from tapec.ir.elementwise import _over
from tapec.ir.opdef import UNKNOWN, Partial
from tapec.ir.special import Partials, _f, _plus, _scipy, _times, declare

__all__: list[str] = []


def _order(b: Builder, name: str, v: float, x: Value) -> Value:
    return _f(name, b, b.like(v, x), x)


def _mean(b: Builder, x: Value, y: Value, sign: float = 1.0) -> Value:
    """(x + sign y) / 2"""
    return _times(b, 0.5, b.add(x, y) if sign > 0 else b.sub(x, y))


# -- Bessel functions --------------------------------------------------------------------


def _neighbours(name: str, low: float, high: float) -> Partials:
    """low f_{v-1} + high f_{v+1}, halved."""

    def partials(b: Builder, z: Value, v: Value, x: Value) -> tuple[Partial, ...]:
        below, above = _f(name, b, _plus(b, -1, v), x), _f(name, b, _plus(b, 1, v), x)
        if low < 0:
            below = b.neg(below)
        return UNKNOWN, _mean(b, below, above, high)

    return partials


def _scaled(name: str, sign: float) -> Partials:
    """e^-|x| I_v (sign +) and e^x K_v (sign -): the neighbours and the factor's derivative."""

    def partials(b: Builder, z: Value, v: Value, x: Value) -> tuple[Partial, ...]:
        below, above = _f(name, b, _plus(b, -1, v), x), _f(name, b, _plus(b, 1, v), x)
        mean = _mean(b, below, above)
        if sign > 0:
            return UNKNOWN, b.sub(mean, b.mul(b.sign(x), z))
        return UNKNOWN, b.sub(z, mean)

    return partials


_BY_ORDER: tuple[tuple[str, Partials, Any], ...] = (
    ("iv", _neighbours("iv", 1, 1), lambda sp, v, x: sp.besseli(v, x)),
    ("jv", _neighbours("jv", 1, -1), lambda sp, v, x: sp.besselj(v, x)),
    ("yv", _neighbours("yv", 1, -1), lambda sp, v, x: sp.bessely(v, x)),
    ("kv", _neighbours("kv", -1, -1), lambda sp, v, x: sp.besselk(v, x)),
    ("ive", _scaled("ive", 1), None),
    ("kve", _scaled("kve", -1), None),
)
for _name, _partials, _ in _BY_ORDER:
    declare(_name, 2, _partials, low=(0.1, 0.3), high=(3.0, 5.0), ulp=256.0, unknown=(0,))

declare("j0", 1, lambda b, z, x: (b.neg(b.unary("j1", x)),),
        sympy=lambda sp, x: sp.besselj(0, x), low=-5.0, high=5.0)  # fmt: skip
declare("j1", 1, lambda b, z, x: (_mean(b, b.unary("j0", x), _order(b, "jv", 2, x), -1),),
        sympy=lambda sp, x: sp.besselj(1, x), low=-5.0, high=5.0)  # fmt: skip
declare("y0", 1, lambda b, z, x: (b.neg(b.unary("y1", x)),),
        sympy=lambda sp, x: sp.bessely(0, x))  # fmt: skip
declare("y1", 1, lambda b, z, x: (_mean(b, b.unary("y0", x), _order(b, "yv", 2, x), -1),),
        sympy=lambda sp, x: sp.bessely(1, x))  # fmt: skip
declare("i0", 1, lambda b, z, x: (b.unary("i1", x),),
        sympy=lambda sp, x: sp.besseli(0, x), low=-4.0, high=4.0)  # fmt: skip
declare("i1", 1, lambda b, z, x: (_mean(b, b.unary("i0", x), _order(b, "iv", 2, x)),),
        sympy=lambda sp, x: sp.besseli(1, x), low=-4.0, high=4.0)  # fmt: skip
declare("i0e", 1, lambda b, z, x: (b.sub(b.unary("i1e", x), b.mul(b.sign(x), z)),),
        low=-4.0, high=4.0)  # fmt: skip
declare("i1e", 1, lambda b, z, x: (
            b.sub(_mean(b, b.unary("i0e", x), _order(b, "ive", 2, x)), b.mul(b.sign(x), z)),),
        low=-4.0, high=4.0)  # fmt: skip
declare("k0", 1, lambda b, z, x: (b.neg(b.unary("k1", x)),),
        sympy=lambda sp, x: sp.besselk(0, x))  # fmt: skip
declare("k1", 1, lambda b, z, x: (b.neg(_mean(b, b.unary("k0", x), _order(b, "kv", 2, x))),),
        sympy=lambda sp, x: sp.besselk(1, x))  # fmt: skip
declare("k0e", 1, lambda b, z, x: (b.sub(z, b.unary("k1e", x)),))
declare("k1e", 1, lambda b, z, x: (
    b.sub(z, _mean(b, b.unary("k0e", x), _order(b, "kve", 2, x))),))  # fmt: skip


def _struve(sign: float) -> Partials:
    """(H_{v-1} - H_{v+1} + (x/2)^v / (√π Γ(v + 3/2))) / 2, + for the modified one."""
    name = "struve" if sign < 0 else "modstruve"

    def partials(b: Builder, z: Value, v: Value, x: Value) -> tuple[Partial, ...]:
        near = _mean(b, _f(name, b, _plus(b, -1, v), x), _f(name, b, _plus(b, 1, v), x), sign)
        power = b.pow(_times(b, 0.5, x), v)
        extra = b.div(power, _times(b, 2 * math.sqrt(math.pi), _f("gamma", b, _plus(b, 1.5, v))))
        return UNKNOWN, b.add(near, extra)

    return partials


declare("struve", 2, _struve(-1), low=(0.1, 0.3), high=(3.0, 5.0), ulp=1e4, unknown=(0,))
declare("modstruve", 2, _struve(1), low=(0.1, 0.3), high=(3.0, 4.0), ulp=1e4, unknown=(0,))

# -- Airy functions and integrals: several results of one C function ------------------------


def _part(name: str, spec: str, k: int, partials: Partials, sympy: Any = None,
          low: float = -3.0, high: float = 3.0, ulp: float = 256.0) -> None:  # fmt: skip
    """The k-th result of SciPy's function in ``spec``, as an operation of its own."""

    def numpy(xs: Any, attrs: Any) -> Any:
        from scipy import special

        dtype = np.asarray(xs[0]).dtype
        z = getattr(special, spec.partition(".")[0])(np.asarray(xs[0], float))[k]
        return np.asarray(z).astype(dtype)[()]

    declare(name, 1, partials, f"special:{spec}:{k}", sympy, low, high, numpy, ulp)


def _sinc(b: Builder, x: Value, hyperbolic: bool) -> Value:
    """sin x / x or sinh x / x: a series in x² near 0."""
    square = b.mul(x, x)
    near = b.lt(square, b.like(1.0, x))
    zero, one = b.like(0, x), b.like(1, x)
    t = b.select(near, square, zero)
    total = zero
    for n in range(11, -1, -1):
        c = (1 if hyperbolic else (-1) ** n) / math.factorial(2 * n + 1)
        total = _plus(b, c, b.mul(t, total))
    safe = b.select(near, one, x)
    return b.select(near, total, b.div(b.unary("sinh" if hyperbolic else "sin", safe), safe))


_AIRY = "airy.vdDDDD"
_part("airy_ai", _AIRY, 0, lambda b, z, x: (b.unary("airy_aip", x),),
      lambda sp, x: sp.airyai(x))  # fmt: skip
_part("airy_aip", _AIRY, 1, lambda b, z, x: (b.mul(x, b.unary("airy_ai", x)),),
      lambda sp, x: sp.airyaiprime(x))  # fmt: skip
_part("airy_bi", _AIRY, 2, lambda b, z, x: (b.unary("airy_bip", x),),
      lambda sp, x: sp.airybi(x))  # fmt: skip
_part("airy_bip", _AIRY, 3, lambda b, z, x: (b.mul(x, b.unary("airy_bi", x)),),
      lambda sp, x: sp.airybiprime(x))  # fmt: skip
_part("fresnel_s", "fresnel.vdDD", 0, lambda b, z, x: (
          b.sin(_times(b, math.pi / 2, b.mul(x, x))),), lambda sp, x: sp.fresnels(x))  # fmt: skip
_part("fresnel_c", "fresnel.vdDD", 1, lambda b, z, x: (
          b.cos(_times(b, math.pi / 2, b.mul(x, x))),), lambda sp, x: sp.fresnelc(x))  # fmt: skip
_part("sici_si", "sici.vdDD", 0, lambda b, z, x: (_sinc(b, x, False),),
      lambda sp, x: sp.Si(x), 0.2, 5.0)  # fmt: skip
_part("sici_ci", "sici.vdDD", 1, lambda b, z, x: (b.div(b.cos(x), x),),
      lambda sp, x: sp.Ci(x), 0.2, 5.0)  # fmt: skip
_part("shichi_shi", "shichi.vdDD", 0, lambda b, z, x: (_sinc(b, x, True),),
      lambda sp, x: sp.Shi(x), 0.2, 4.0)  # fmt: skip
_part("shichi_chi", "shichi.vdDD", 1, lambda b, z, x: (b.div(b.unary("cosh", x), x),),
      lambda sp, x: sp.Chi(x), 0.2, 4.0)  # fmt: skip

declare("expi", 1, lambda b, z, x: (b.div(b.exp(x), x),), sympy=lambda sp, x: sp.Ei(x))
declare("exp1", 1, lambda b, z, x: (b.neg(b.div(b.exp(b.neg(x)), x)),),
        sympy=lambda sp, x: sp.expint(1, x))  # fmt: skip
declare("expn", 2, lambda b, z, n, x: (UNKNOWN, b.neg(_f("expn", b, _plus(b, -1, n), x))),
        low=(4.0, 0.3), high=(4.0, 4.0), unknown=(0,), ulp=256.0)  # fmt: skip


# -- Kelvin functions: u'' follows from the equation of order 0 --------------------------------


def _over_x(b: Builder, x: Value, f: Value, power: int, coefficients: list[float]) -> Value:
    """``f / x``, near 0 by its power series: Σ cₙ x^(power + 4n)."""
    near = b.lt(b.abs(x), b.like(1, x))
    zero, one = b.like(0, x), b.like(1, x)
    t = b.select(near, x, zero)
    step = b.integer_pow(t, 4)
    total = zero
    for c in reversed(coefficients):
        total = _plus(b, c, b.mul(step, total))
    if power:
        total = b.mul(total, b.integer_pow(t, power))
    return b.select(near, total, b.div(f, b.select(near, one, x)))


#: of ber'/x and bei'/x (DLMF 10.65.1)
_BERP = [(-1) ** k * k / 4 ** (2 * k - 1) / math.factorial(2 * k) ** 2 for k in range(1, 6)]
_BEIP = [(-1) ** k * (k + 0.5) / 16**k / math.factorial(2 * k + 1) ** 2 for k in range(5)]


def _kelvin(other: str, sign: int, power: int, series: list[float]) -> Partials:
    def partials(b: Builder, z: Value, x: Value) -> tuple[Partial, ...]:
        value = b.unary(other, x)
        slope = _over_x(b, x, z, power, series) if series else b.div(z, x)
        return (b.sub(value if sign > 0 else b.neg(value), slope),)

    return partials


for _u, _v in (("ber", "bei"), ("ker", "kei")):
    declare(_u, 1, lambda b, z, x, _d=_u + "p": (b.unary(_d, x),), low=0.3, high=5.0)
    declare(_v, 1, lambda b, z, x, _d=_v + "p": (b.unary(_d, x),), low=0.3, high=5.0)
    _regular = _u == "ber"
    declare(_u + "p", 1, _kelvin(_v, -1, 2, _BERP if _regular else []), low=0.3, high=5.0,
            ulp=256.0)  # fmt: skip
    declare(_v + "p", 1, _kelvin(_u, 1, 0, _BEIP if _regular else []), low=0.3, high=5.0,
            ulp=256.0)  # fmt: skip

# -- integrals of Bessel, Struve and Airy functions ---------------------------------------------

_part("itj0y0_j", "itj0y0.vdDD", 0, lambda b, z, x: (b.unary("j0", x),), None, 0.3, 5.0, 1e6)
_part("itj0y0_y", "itj0y0.vdDD", 1, lambda b, z, x: (b.unary("y0", x),), None, 0.3, 5.0, 1e6)
_part("iti0k0_i", "iti0k0.vdDD", 0, lambda b, z, x: (b.unary("i0", x),), None, 0.3, 5.0, 1e6)
_part("iti0k0_k", "iti0k0.vdDD", 1, lambda b, z, x: (b.unary("k0", x),), None, 0.3, 5.0, 1e6)
_part("itairy_a", "itairy.vdDDDD", 0, lambda b, z, x: (b.unary("airy_ai", x),), None, 0.3, 3.0, 1e6)
_part("itairy_b", "itairy.vdDDDD", 1, lambda b, z, x: (b.unary("airy_bi", x),), None, 0.3, 3.0, 1e6)
_part("itairy_c", "itairy.vdDDDD", 2, lambda b, z, x: (b.unary("airy_ai", b.neg(x)),), None, 0.3,
      3.0, 1e6)  # fmt: skip
_part("itairy_d", "itairy.vdDDDD", 3, lambda b, z, x: (b.unary("airy_bi", b.neg(x)),), None, 0.3,
      3.0, 1e6)  # fmt: skip
declare("itstruve0", 1, lambda b, z, x: (_order(b, "struve", 0, x),), low=0.3, high=5.0, ulp=1e6)
declare("itmodstruve0", 1, lambda b, z, x: (_order(b, "modstruve", 0, x),), low=0.3, high=4.0,
        ulp=1e6)  # fmt: skip


def _wrightomega(b: Builder, z: Value, x: Value) -> tuple[Partial, ...]:
    """ω / (1 + ω)"""
    return (b.div(z, _plus(b, 1, z)),)


def _spence(b: Builder, z: Value, x: Value) -> tuple[Partial, ...]:
    """log x / (1 - x), through log x = 2 artanh s, s = (x-1)/(x+1), near 1."""
    one = b.like(1, x)
    above = b.add(x, one)
    s = b.div(b.sub(x, one), above)
    square = b.mul(s, s)
    near = b.lt(square, b.like(0.1, x))
    t = b.select(near, square, b.like(0, x))
    total = b.like(1 / 37, x)
    for n in range(17, -1, -1):
        total = _plus(b, 1 / (2 * n + 1), b.mul(t, total))
    far = b.select(near, b.like(3, x), x)
    direct = b.div(b.log(far), b.sub(one, far))
    return (b.select(near, b.div(_times(b, -2, total), above), direct),)


declare("wrightomega", 1, _wrightomega, low=-3.0, high=3.0)
declare("spence", 1, _spence, low=0.3, high=4.0)

# -- elliptic integrals ---------------------------------------------------------------------


def _ellipk_partials(b: Builder, z: Value, m: Value) -> tuple[Partial, ...]:
    """(K - D) / (2 (1 - m)) with D = (K - E)/m = R_D(0, 1-m, 1)/3, regular at m = 0."""
    rest = b.sub(b.like(1, m), m)
    return (b.div(b.sub(z, _f("elliprd_m", b, m)), _times(b, 2, rest)),)


def _elliprd_numpy(xs: Any, attrs: Any) -> Any:
    import numpy as np
    from scipy import special

    m = np.asarray(xs[0], float)
    z = special.elliprd(0.0, 1 - m, 1.0) / 3
    return np.asarray(z).astype(np.asarray(xs[0]).dtype)[()]


def _elliprd_partials(b: Builder, z: Value, m: Value) -> tuple[Partial, ...]:
    """D' = (B/(1-m) - D) / (2m), B = K - D: a limit of 0/0 at m = 0, by the series there
    (coefficients of Π ((2j-1)/(2j))² n/(2n-1), differentiated)."""
    k = _f("ellipk", b, m)
    rest = b.sub(b.like(1, m), m)
    near = b.lt(b.abs(m), b.like(0.15, m))
    zero, one = b.like(0, m), b.like(1, m)
    t, far = b.select(near, m, zero), b.select(near, b.like(0.5, m), m)
    total = zero
    c, coefficients = 1.0, []
    for n in range(1, 24):
        c *= ((2 * n - 1) / (2 * n)) ** 2
        coefficients.append(math.pi / 2 * c * 2 * n / (2 * n - 1))  # of m^(n-1) in D
    for n in range(len(coefficients) - 1, 0, -1):
        total = _plus(b, n * coefficients[n], b.mul(t, total))
    far_rest = b.select(near, one, rest)
    direct = b.div(b.sub(b.div(b.sub(k, z), far_rest), z), _times(b, 2, far))
    return (b.select(near, total, direct),)


declare("elliprd_m", 1, _elliprd_partials, "special:elliprd_m", low=0.3, high=0.9,
        numpy=_elliprd_numpy, sympy=lambda sp, m: (sp.elliptic_k(m) - sp.elliptic_e(m)) / m,
        ulp=256.0)  # fmt: skip


#: Below this parameter the derivatives by it are integrals, summed up: the closed forms are 0/0
#: at m = 0 and lose digits near it.
_SMALL_PARAMETER = 0.2
_NODES, _WEIGHTS = (x / 2 for x in np.polynomial.legendre.leggauss(20))


def _integral(b: Builder, phi: Value, m: Value, power: int) -> Value:
    """∫ sin²/Δ^power from 0 to φ for small m, on [-π/2, π/2] by Gauss' rule."""
    half_turns = b.unary("rint", _times(b, 1 / math.pi, phi))
    rest = b.sub(phi, _times(b, math.pi, half_turns))
    quarter = b.like(math.pi / 2, phi)

    def summed(end: Value) -> Value:
        total: Value | None = None
        for x, weight in zip(_NODES, _WEIGHTS):
            square = b.integer_pow(b.sin(_times(b, float(0.5 + x), end)), 2)
            delta = b.sqrt(b.sub(b.like(1, m), b.mul(m, square)))
            term = _times(b, float(weight), b.div(square, b.integer_pow(delta, power)))
            total = term if total is None else b.add(total, term)
        assert total is not None
        return b.mul(total, end)

    return b.add(summed(rest), _times(b, 2, b.mul(half_turns, summed(quarter))))


def _by_parameter(b: Builder, phi: Value, m: Value, first: bool) -> Value:
    """∂F/∂m (``first``) or ∂E/∂m"""
    near = b.lt(b.abs(m), b.like(_SMALL_PARAMETER, m))
    small = b.select(near, m, b.like(0, m))
    m = b.select(near, b.like(0.5, m), m)
    f, e = _f("ellipkinc", b, phi, m), _f("ellipeinc", b, phi, m)
    if first:
        rest = b.sub(b.like(1, m), m)
        whole = b.div(b.sub(e, b.mul(rest, f)), _times(b, 2, b.mul(m, rest)))
        last = b.div(b.sin(_times(b, 2, phi)), _times(b, 4, b.mul(rest, _delta(b, phi, m))))
        far = b.sub(whole, last)
        return b.select(near, _times(b, 0.5, _integral(b, phi, small, 3)), far)
    far = b.div(b.sub(e, f), _times(b, 2, m))
    return b.select(near, _times(b, -0.5, _integral(b, phi, small, 1)), far)


def _delta(b: Builder, phi: Value, m: Value) -> Value:
    """Δ = √(1 - m sin² φ)"""
    sine = b.sin(phi)
    return b.sqrt(b.sub(b.like(1, m), b.mul(m, b.mul(sine, sine))))


def _ellipkinc(b: Builder, z: Value, phi: Value, m: Value) -> tuple[Partial, ...]:
    return _over(b, 1, _delta(b, phi, m)), _by_parameter(b, phi, m, True)


def _ellipeinc(b: Builder, z: Value, phi: Value, m: Value) -> tuple[Partial, ...]:
    return _delta(b, phi, m), _by_parameter(b, phi, m, False)


declare("ellipkinc", 2, _ellipkinc, low=(0.2, 0.2), high=(1.5, 0.9), ulp=256.0)
declare("ellipeinc", 2, _ellipeinc, low=(0.2, 0.2), high=(1.5, 0.9), ulp=256.0)


def _elliprf(b: Builder, z: Value, x: Value, y: Value, w: Value) -> tuple[Partial, ...]:
    return tuple(
        _times(b, -1 / 6, _f("elliprd", b, p, q, r))
        for p, q, r in ((y, w, x), (w, x, y), (x, y, w))
    )


declare("elliprd", 3, lambda b, z, x, y, w: (UNKNOWN,) * 3, unknown=(0, 1, 2), ulp=256.0)
declare("elliprf", 3, _elliprf, ulp=256.0)
declare("ellipk", 1, _ellipk_partials, sympy=lambda sp, m: sp.elliptic_k(m), low=0.3, high=0.9)
declare("ellipe", 1, lambda b, z, m: (_times(b, -0.5, _f("elliprd_m", b, m)),),
        sympy=lambda sp, m: sp.elliptic_e(m), low=0.3, high=0.9)  # fmt: skip

# -- hypergeometric functions -----------------------------------------------------------------


def _hyp(name: str, upper: int) -> Partials:
    """Π upper / lower times the function of all parameters one higher."""

    def partials(b: Builder, z: Value, *xs: Value) -> tuple[Partial, ...]:
        *parameters, x = xs
        inner = _f(name, b, *[_plus(b, 1, v) for v in parameters], x)
        for v in parameters[:upper]:
            inner = b.mul(inner, v)
        return (*(UNKNOWN for _ in parameters), b.div(inner, parameters[-1]))

    return partials


declare("hyp0f1", 2, _hyp("hyp0f1", 0), low=(0.5, -2.0), high=(3.0, 2.0), unknown=(0,), ulp=1e3)
declare("hyp1f1", 3, _hyp("hyp1f1", 1), low=(0.3, 0.5, -2.0), high=(3.0, 4.0, 2.0),
        unknown=(0, 1), ulp=1e3)  # fmt: skip
declare("hyp2f1", 4, _hyp("hyp2f1", 2), low=(0.3, 0.3, 1.0, -0.7), high=(2.0, 2.0, 4.0, 0.7),
        unknown=(0, 1, 2), ulp=1e4)  # fmt: skip
declare("hyperu", 3, lambda b, z, p, q, x: (UNKNOWN, UNKNOWN, b.neg(
            b.mul(p, _f("hyperu", b, _plus(b, 1, p), _plus(b, 1, q), x)))),
        low=(0.4, 0.3, 0.5), high=(3.0, 1.8, 4.0), unknown=(0, 1), ulp=1e5)  # fmt: skip

# -- orthogonal polynomials -------------------------------------------------------------------


def _below(b: Builder, n: Value, value: Value) -> Value:
    """0 for degree 0."""
    zero = b.like(0, n)
    return b.select(b.eq(n, zero), zero, value)


def _legendre(b: Builder, z: Value, n: Value, x: Value) -> tuple[Partial, ...]:
    one = b.like(1, x)
    inner = _f("eval_jacobi", b, _plus(b, -1, n), one, one, x)
    return UNKNOWN, _below(b, n, b.mul(_times(b, 0.5, _plus(b, 1, n)), inner))


def _jacobi(b: Builder, z: Value, n: Value, p: Value, q: Value, x: Value) -> tuple[Partial, ...]:
    inner = _f("eval_jacobi", b, _plus(b, -1, n), _plus(b, 1, p), _plus(b, 1, q), x)
    factor = _times(b, 0.5, _plus(b, 1, b.add(n, b.add(p, q))))
    return UNKNOWN, UNKNOWN, UNKNOWN, _below(b, n, b.mul(factor, inner))


def _chebyt(b: Builder, z: Value, n: Value, x: Value) -> tuple[Partial, ...]:
    return UNKNOWN, _below(b, n, b.mul(n, _f("eval_chebyu", b, _plus(b, -1, n), x)))


def _chebyu(b: Builder, z: Value, n: Value, x: Value) -> tuple[Partial, ...]:
    inner = _f("eval_gegenbauer", b, _plus(b, -1, n), b.like(2, x), x)
    return UNKNOWN, _below(b, n, _times(b, 2, inner))


def _gegenbauer(b: Builder, z: Value, n: Value, a: Value, x: Value) -> tuple[Partial, ...]:
    inner = _f("eval_gegenbauer", b, _plus(b, -1, n), _plus(b, 1, a), x)
    return UNKNOWN, UNKNOWN, _below(b, n, b.mul(_times(b, 2, a), inner))


def _laguerre(b: Builder, z: Value, n: Value, x: Value) -> tuple[Partial, ...]:
    inner = _f("eval_genlaguerre", b, _plus(b, -1, n), b.like(1, x), x)
    return UNKNOWN, _below(b, n, b.neg(inner))


def _genlaguerre(b: Builder, z: Value, n: Value, a: Value, x: Value) -> tuple[Partial, ...]:
    inner = _f("eval_genlaguerre", b, _plus(b, -1, n), _plus(b, 1, a), x)
    return UNKNOWN, UNKNOWN, _below(b, n, b.neg(inner))


def _hermite(name: str, factor: float) -> Partials:
    def partials(b: Builder, z: Value, n: Value, x: Value) -> tuple[Partial, ...]:
        less = b.max(_plus(b, -1, n), b.like(0, n))
        return UNKNOWN, _below(b, n, b.mul(_times(b, factor, n), _f(name, b, less, x)))

    return partials


_POLYNOMIALS: tuple[tuple[str, int, Partials, str], ...] = (
    ("eval_jacobi", 4, _jacobi, "ddddd"),
    ("eval_legendre", 2, _legendre, "ddd"),
    ("eval_chebyt", 2, _chebyt, "ddd"),
    ("eval_chebyu", 2, _chebyu, "ddd"),
    ("eval_gegenbauer", 3, _gegenbauer, "dddd"),
    ("eval_laguerre", 2, _laguerre, "ddd"),
    ("eval_genlaguerre", 3, _genlaguerre, "dddd"),
    ("eval_hermite", 2, _hermite("eval_hermite", 2.0), "dnd"),
    ("eval_hermitenorm", 2, _hermite("eval_hermitenorm", 1.0), "dnd"),
)


def _whole_order(name: str) -> Any:
    """SciPy's Hermite polynomials take whole orders only."""
    plain = _scipy(name)

    def numpy(xs: Any, attrs: Any) -> Any:
        from scipy import special

        if "hermite" not in name:
            return plain(xs, attrs)
        n = np.nan_to_num(np.trunc(np.asarray(xs[0], float)), nan=-1, posinf=-1, neginf=-1)
        n = np.clip(n, -1, 1e5).astype(np.int64)
        z = getattr(special, name)(n, np.asarray(xs[1], float))
        return np.asarray(z).astype(np.asarray(xs[0]).dtype)[()]

    return numpy


for _name, _n, _rule, _signature in _POLYNOMIALS:
    declare(
        _name, _n, _rule, f"special:{_name}.{_signature}",
        low=(3.0, *[0.4] * (_n - 2), -0.9), high=(3.0, *[2.0] * (_n - 2), 0.9),
        numpy=_whole_order(_name), unknown=tuple(range(_n - 1)), ulp=1e5,
    )  # fmt: skip

# -- quantiles and other densities --------------------------------------------------------------


def _t_density(b: Builder, v: Value, t: Value) -> Value:
    half = _times(b, 0.5, v)
    more = _times(b, 0.5, _plus(b, 1, v))
    norm = b.sub(_f("gammaln", b, more), _f("gammaln", b, half))
    norm = b.sub(norm, _times(b, 0.5, b.log(_times(b, math.pi, v))))
    return b.exp(b.sub(norm, b.mul(more, b.unary("log1p", b.div(b.mul(t, t), v)))))


def _t_by_freedom(b: Builder, v: Value, t: Value) -> Value:
    """∂/∂v of 1/2 + sign(t)/2 I_y(1/2, v/2) = 1 - sign(t)/2 I_x(v/2, 1/2), y = t²/(v + t²),
    x = 1 - y: the smaller of the two arguments keeps its digits."""
    square = b.mul(t, t)
    whole, half, half_v = b.add(v, square), b.like(0.5, v), _times(b, 0.5, v)
    x, y = b.div(v, whole), b.div(square, whole)
    far = b.lt(x, y)
    moved = b.div(y, whole)  # ∂x/∂v
    # the densities of x and y are one
    log = b.sub(_f("xlogy", b, _plus(b, -1, half_v), x), _f("betaln", b, half_v, half))
    density = b.mul(moved, b.div(b.exp(log), b.sqrt(b.select(b.eq(y, b.like(0, y)), half, y))))
    by_x = b.add(_times(b, 0.5, _f("betainc_a", b, half_v, half, x)), density)
    by_y = b.sub(_times(b, 0.5, _f("betainc_b", b, half, half_v, y)), density)
    return b.mul(_times(b, 0.5, b.sign(t)), b.select(far, b.neg(by_x), by_y))


def _stdtrit(b: Builder, z: Value, v: Value, p: Value) -> tuple[Partial, ...]:
    over = _over(b, 1, _t_density(b, v, z))
    return b.neg(b.mul(_t_by_freedom(b, v, z), over)), over


declare("stdtr", 2, lambda b, z, v, t: (_t_by_freedom(b, v, t), _t_density(b, v, t)),
        low=(1.0, -3.0), high=(9.0, 3.0), ulp=1e3)  # fmt: skip
declare("stdtrit", 2, _stdtrit, low=(1.0, 0.05), high=(9.0, 0.95), ulp=1e4)
