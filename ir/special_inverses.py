"""Op entries: distribution functions of SciPy inverted for a parameter, by implicit functions.

For ``F(args, z) = p`` a partial derivative is -F_arg / F_z, that by ``p`` is 1 / F_z.

>>> from tapec.ir import OPS
>>> OPS["btdtria"].llvm
'special:btdtria.dddd'
"""

from __future__ import annotations

from tapec.ir.bessel import _t_by_freedom, _t_density
from tapec.ir.builder import Builder
from tapec.ir.core import Value
from tapec.ir.elementwise import _over
from tapec.ir.opdef import UNKNOWN, Partial
from tapec.ir.special import (
    _f,
    _log_density_beta,
    _log_density_gamma,
    _plus,
    _times,
    declare,
)

__all__: list[str] = []


def _beta(b: Builder, p: Value, q: Value, x: Value) -> tuple[Value, Value, Value]:
    """The partial derivatives of I_x(p, q)."""
    density = b.exp(_log_density_beta(b, p, q, x))
    return _f("betainc_a", b, p, q, x), _f("betainc_b", b, p, q, x), density


def _implicit(b: Builder, by_z: Value, others: list[Value | None]) -> tuple[Partial, ...]:
    """``others``: partial derivatives by the arguments, None in the place of the level."""
    over = _over(b, 1, by_z)
    return tuple([over if v is None else b.neg(b.mul(v, over)) for v in others])


def _btdtria(b: Builder, z: Value, p: Value, q: Value, x: Value) -> tuple[Partial, ...]:
    first, second, density = _beta(b, z, q, x)
    return _implicit(b, first, [None, second, density])


def _btdtrib(b: Builder, z: Value, a: Value, p: Value, x: Value) -> tuple[Partial, ...]:
    first, second, density = _beta(b, a, z, x)
    return _implicit(b, second, [first, None, density])


def _binomial(b: Builder, k: Value, n: Value, p: Value) -> tuple[Value, Value, Value]:
    """The partial derivatives of I_{1-p}(n - k, k + 1) by k, n and p."""
    first, second, density = _beta(b, b.sub(n, k), _plus(b, 1, k), b.sub(b.like(1, p), p))
    return b.sub(second, first), first, b.neg(density)


def _bdtrik(b: Builder, z: Value, y: Value, n: Value, p: Value) -> tuple[Partial, ...]:
    by_k, by_n, by_p = _binomial(b, z, n, p)
    return _implicit(b, by_k, [None, by_n, by_p])


def _bdtrin(b: Builder, z: Value, k: Value, y: Value, p: Value) -> tuple[Partial, ...]:
    by_k, by_n, by_p = _binomial(b, k, z, p)
    return _implicit(b, by_n, [by_k, None, by_p])


def _nbdtrik(b: Builder, z: Value, y: Value, n: Value, p: Value) -> tuple[Partial, ...]:
    by_n, by_k, by_p = _beta(b, n, _plus(b, 1, z), p)
    return _implicit(b, by_k, [None, by_n, by_p])


def _nbdtrin(b: Builder, z: Value, k: Value, y: Value, p: Value) -> tuple[Partial, ...]:
    by_n, by_k, by_p = _beta(b, z, _plus(b, 1, k), p)
    return _implicit(b, by_n, [by_k, None, by_p])


def _gdtrib(b: Builder, z: Value, a: Value, p: Value, x: Value) -> tuple[Partial, ...]:
    """γ(z, a x) = p"""
    scaled = b.mul(a, x)
    density = b.exp(_log_density_gamma(b, z, scaled))
    by_z = _f("gammainc_a", b, z, scaled)
    return _implicit(b, by_z, [b.mul(density, x), None, b.mul(density, a)])


def _chdtriv(b: Builder, z: Value, p: Value, x: Value) -> tuple[Partial, ...]:
    """γ(z/2, x/2) = p"""
    half_z, half_x = _times(b, 0.5, z), _times(b, 0.5, x)
    by_z = _times(b, 0.5, _f("gammainc_a", b, half_z, half_x))
    density = _times(b, 0.5, b.exp(_log_density_gamma(b, half_z, half_x)))
    return _implicit(b, by_z, [None, density])


def _pdtrik(b: Builder, z: Value, p: Value, m: Value) -> tuple[Partial, ...]:
    """1 - γ(z + 1, m) = p"""
    a = _plus(b, 1, z)
    by_z = b.neg(_f("gammainc_a", b, a, m))
    return _implicit(b, by_z, [None, b.neg(b.exp(_log_density_gamma(b, a, m)))])


def _stdtridf(b: Builder, z: Value, p: Value, t: Value) -> tuple[Partial, ...]:
    return _implicit(b, _t_by_freedom(b, z, t), [None, _t_density(b, z, t)])


def _tklmbda(b: Builder, z: Value, x: Value, shape: Value) -> tuple[Partial, ...]:
    """The quantiles are (z^λ - (1-z)^λ) / λ."""
    less = _plus(b, -1, shape)
    inside = b.logical_and(b.gt(z, b.like(0, z)), b.lt(z, b.like(1, z)))
    safe = b.select(inside, z, b.like(0.5, z))
    slope = b.add(b.emit("pow", (safe, less)), b.emit("pow", (b.sub(b.like(1, safe), safe), less)))
    return b.select(inside, _over(b, 1, slope), b.like(0, z)), UNKNOWN


_UNIT = (0.2, 0.6, 0.2), (0.8, 3.0, 0.8)
declare("btdtria", 3, _btdtria, low=_UNIT[0], high=_UNIT[1], ulp=1e6)
declare("btdtrib", 3, _btdtrib, low=(0.6, 0.2, 0.2), high=(3.0, 0.8, 0.8), ulp=1e6)
declare("bdtrik", 3, _bdtrik, low=(0.5, 6.0, 0.3), high=(0.8, 9.0, 0.6), ulp=1e6)
declare("bdtrin", 3, _bdtrin, low=(1.0, 0.3, 0.3), high=(3.0, 0.7, 0.6), ulp=1e6)
declare("nbdtrik", 3, _nbdtrik, low=(0.5, 2.0, 0.3), high=(0.8, 4.0, 0.5), ulp=1e6)
declare("nbdtrin", 3, _nbdtrin, low=(1.0, 0.3, 0.3), high=(3.0, 0.7, 0.6), ulp=1e6)
declare("gdtrib", 3, _gdtrib, low=(0.5, 0.2, 0.5), high=(2.0, 0.8, 3.0), ulp=1e6)
declare("chdtriv", 2, _chdtriv, low=(0.2, 1.0), high=(0.8, 5.0), ulp=1e6)
declare("pdtrik", 2, _pdtrik, low=(0.4, 1.0), high=(0.9, 5.0), ulp=1e6)
declare("stdtridf", 2, _stdtridf, low=(0.8, 1.0), high=(0.84, 1.1), ulp=1e6)
declare("tklmbda", 2, _tklmbda, low=(-0.4, 0.5), high=(0.4, 2.0), unknown=(1,), ulp=1e6)
declare("log_wright_bessel", 3, lambda b, z, p, q, x: (
            UNKNOWN, UNKNOWN, b.exp(b.sub(_f("log_wright_bessel", b, p, b.add(p, q), x), z))),
        low=(0.5, 0.5, 0.1), high=(2.0, 2.0, 3.0), unknown=(0, 1), ulp=1e4)  # fmt: skip
