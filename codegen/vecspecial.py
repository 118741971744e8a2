"""Vector versions of special functions, written like those of ``vecmath``.

``function(name, width, fused)`` defines ``@tapec.NAME.vWIDTHf64``.  SciPy's C functions, which
take one number at a time, serve scalars and everything that is not here.

>>> function("ndtr", 8, True).split(" alwaysinline")[0]
'define internal <8 x double> @tapec.ndtr.v8f64(<8 x double> %x)'
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from tapec.codegen.vecmath import Body, exp, text_of

__all__ = ["OWN", "function"]

# (1 + 2a) exp(a**2) erfc(a) in t = (a - 3.5)/(a + 3.5), which maps a >= 0 to [-1, 1).
ERFCX_MIDDLE = 3.5
ERFCX = (
    1.2423492448711544, -0.1400091801376197, -0.010555596332218233, 0.09751909515328808,
    -0.11508959816019439, 0.08798315382401047, -0.048823325827832165, 0.019099330953585687,
    -0.004215019909180324, -0.0003022679555229403, 0.0005643844340484745, -0.0001215121124349477,
    -4.278234246656388e-05, 2.4260278852593863e-05, 2.328760355939687e-06, -3.8139747327270427e-06,
    -4.5354576975731976e-08, 6.014401691944027e-07, -6.24681879973081e-09, -9.637085633008308e-08,
    -9.024492276085887e-10, 1.3612635455636908e-08, 6.574048756257716e-10, -1.1636185396717653e-09,
    -9.947070263818309e-11,
)  # fmt: skip

HIGH_BITS = -(1 << 27)


def _ndtr(e: Body, x: str) -> str:
    """The standard normal distribution: erfc(a) / 2, a = |x| / sqrt(2), or 1 minus that."""
    # Beyond 38.6 the tail is zero.  Comparisons keep nan.
    z = e.abs(x)
    z = e.select(e.cmp("ogt", z, e.f(40.0)), e.f(40.0), z)
    # exp(-z**2/2) with what the square loses, which far out is many ulp of the result.
    if e.fused:
        # Of x itself: the same instructions as those of a density beside it, so computed once.
        square = e.mul(x, x)
        correction = e.mul(e.fma(z, z, e.neg(e.mul(z, z))), e.f(-0.5))
    else:
        high = e.double(e.int("and", e.bits(z), e.i(HIGH_BITS)))
        square = e.mul(high, high)
        rest = e.mul(e.mul(e.sub(z, high), e.add(z, high)), e.f(-0.5))
        # Up to 1e-5: exp(rest) - 1 to third order.
        third = e.fma(rest, e.f(1 / 6), e.f(0.5))
        correction = e.fma(e.mul(rest, rest), third, rest)
    tail = exp(e, e.mul(square, e.f(-0.5)))
    tail = e.fma(tail, correction, tail)
    a = e.mul(z, e.f(math.sqrt(0.5)))
    # One division for t and 1/(1 + 2a).
    above = e.add(a, e.f(ERFCX_MIDDLE))
    slope = e.fma(a, e.f(2.0), e.f(1.0))
    inverse = e.div(e.f(1.0), e.mul(above, slope))
    t = e.mul(e.mul(e.sub(a, e.f(ERFCX_MIDDLE)), slope), inverse)
    scaled = e.mul(e.poly(t, e.mul(t, t), ERFCX), e.mul(above, inverse))
    tail = e.mul(e.mul(scaled, e.f(0.5)), tail)
    y = e.select(e.cmp("olt", x, e.f(0.0)), tail, e.sub(e.f(1.0), tail))
    return e.select(e.cmp("oeq", x, e.f(0.0)), e.f(0.5), y)


OWN: dict[str, Callable[[Body, str], str]] = {"ndtr": _ndtr}


@cache
def function(name: str, width: int, fused: bool) -> str:
    """The definition of ``@tapec.NAME.vWIDTHf64``."""
    e = Body(width, fused)
    return text_of(e, name, OWN[name](e, "%x"))
