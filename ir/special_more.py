"""Entries of further special functions: parabolic cylinders, Jacobi's elliptic functions,
associated Legendre functions, quantiles.

As in ``bessel``: SciPy's names (with the name of the part where SciPy returns several), orders and
parameters first, no derivative by them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapec.ir.bessel import _part
from tapec.ir.builder import Builder
from tapec.ir.core import Value
from tapec.ir.opdef import UNKNOWN, Partial
from tapec.ir.special import Partials, _betaincinv, _f, _plus, _times, declare

__all__: list[str] = []


# -- several results ----------------------------------------------------------------------------


def _pair(name: str, spec: str, k: int, partials: Partials, low: Any, high: Any) -> None:
    """The k-th result of a function of a parameter and a variable."""

    def numpy(xs: Any, attrs: Any) -> Any:
        from scipy import special

        found = getattr(special, spec.partition(".")[0])(*[np.asarray(x, float) for x in xs])
        return np.asarray(found[k]).astype(np.asarray(xs[0]).dtype)[()]

    unknown = (1,) if name.startswith("ellipj") else (0,)
    declare(name, 2, partials, f"special:{spec}:{k}", None, low, high, numpy, 1e4, unknown=unknown)


def _ellipj(partial: Any) -> Partials:
    def partials(b: Builder, z: Value, u: Value, m: Value) -> tuple[Partial, ...]:
        return partial(b, u, m), UNKNOWN

    return partials


def _j(part: str, b: Builder, u: Value, m: Value) -> Value:
    return _f("ellipj_" + part, b, u, m)


for _k, (_part_name, _rule) in enumerate((
    ("sn", lambda b, u, m: b.mul(_j("cn", b, u, m), _j("dn", b, u, m))),
    ("cn", lambda b, u, m: b.neg(b.mul(_j("sn", b, u, m), _j("dn", b, u, m)))),
    ("dn", lambda b, u, m: b.neg(b.mul(m, b.mul(_j("sn", b, u, m), _j("cn", b, u, m))))),
    ("ph", lambda b, u, m: _j("dn", b, u, m)),
)):  # fmt: skip
    _pair("ellipj_" + _part_name, "ellipj.vddDDDD", _k, _ellipj(_rule), (-2.0, 0.1), (2.0, 0.9))


def _cylinder(name: str, k: int) -> Partials:
    """y'' = (x²/4 - v - 1/2) y; for W(a, x) it is (a - x²/4) y."""

    def partials(b: Builder, z: Value, v: Value, x: Value) -> tuple[Partial, ...]:
        if k == 0:
            return UNKNOWN, _f(name + "_p", b, v, x)
        quarter = _times(b, 0.25, b.mul(x, x))
        if name == "pbwa":
            factor = b.sub(v, quarter)
        else:
            factor = _plus(b, -0.5, b.sub(quarter, v))
        return UNKNOWN, b.mul(factor, _f(name + "_f", b, v, x))

    return partials


for _name in ("pbdv", "pbvv", "pbwa"):
    for _k, _suffix in enumerate(("_f", "_p")):
        _pair(_name + _suffix, f"{_name}.vddDD", _k, _cylinder(_name, _k), (0.6, 0.3), (1.4, 2.0))


def _series_of(sign: int, struve: bool) -> list[float]:
    """By x²: (1 - J0)/x² (sign -1), (I0 - 1)/x² (+1) and H0/x (DLMF 10.2.2, 11.2.1)."""
    if struve:
        odd = [math.prod(range(1, 2 * k + 2, 2)) for k in range(12)]
        return [2 / math.pi * (-1) ** k / odd[k] ** 2 for k in range(12)]
    whole = [1 / 4**k / math.factorial(k) ** 2 for k in range(1, 12)]
    return [c if sign > 0 else -c * (-1) ** (k + 1) for k, c in enumerate(whole)]


def _near_zero(b: Builder, x: Value, series: list[float], far: Any, odd: bool) -> Value:
    """A power series in x² (times x if ``odd``) for |x| < 1, ``far(x)`` beyond."""
    near = b.lt(b.abs(x), b.like(1, x))
    zero, two = b.like(0, x), b.like(2, x)
    t = b.select(near, x, zero)
    square, total = b.mul(t, t), zero
    for c in reversed(series):
        total = _plus(b, c, b.mul(square, total))
    return b.select(near, b.mul(t, total) if odd else total, far(b.select(near, two, x)))


def _it2(which: str) -> Partials:
    """(1 - J0)/x and (I0 - 1)/x"""
    sign = -1 if which == "j0" else 1

    def partials(b: Builder, z: Value, x: Value) -> tuple[Partial, ...]:
        def far(y: Value) -> Value:
            top = _plus(b, -1, b.unary(which, y))
            return b.div(top if sign > 0 else b.neg(top), y)

        return (_near_zero(b, x, _series_of(sign, False), far, True),)

    return partials


def _it2struve0(b: Builder, z: Value, x: Value) -> tuple[Partial, ...]:
    def far(y: Value) -> Value:
        return b.div(_f("struve", b, b.like(0, y), y), y)

    return (b.neg(_near_zero(b, x, _series_of(0, True), far, False)),)


_part("it2j0y0_j", "it2j0y0.vdDD", 0, _it2("j0"), None, 0.5, 5.0, 1e8)
_part("it2j0y0_y", "it2j0y0.vdDD", 1, lambda b, z, x: (b.neg(b.div(b.unary("y0", x), x)),), None,
      0.5, 5.0, 1e8)  # fmt: skip
_part("it2i0k0_i", "it2i0k0.vdDD", 0, _it2("i0"), None, 0.5, 5.0, 1e8)
_part("it2i0k0_k", "it2i0k0.vdDD", 1, lambda b, z, x: (b.neg(b.div(b.unary("k0", x), x)),), None,
      0.5, 5.0, 1e8)  # fmt: skip
declare("it2struve0", 1, _it2struve0, low=0.5, high=5.0, ulp=1e8)

# -- others -------------------------------------------------------------------------------------


def _ferrers(b: Builder, m: Value, v: Value, x: Value) -> Value:
    """For whole m and v: P_v^m = (-1)^m (1-x²)^(m/2) Q with a Jacobi polynomial Q; its derivative
    has no quotient of zeros at ±1."""
    one, zero = b.like(1, x), b.like(0, x)
    rest = b.sub(one, b.mul(x, x))
    whole = b.lt(v, m)  # Q = 0

    def jacobi(k: Value) -> Value:
        n = b.sub(v, k)
        return b.select(b.lt(n, zero), zero, _f("eval_jacobi", b, b.max(n, zero), k, k, x))

    up = _plus(b, 1, m)
    odd = b.eq(b.emit("mod", (m, b.like(2, m))), one)
    scale = b.mul(_f("poch", b, _plus(b, 1, v), m), b.emit("pow", (b.like(0.5, m), m)))
    scale = b.select(odd, b.neg(scale), scale)
    half = _times(b, 0.5, m)
    none = b.eq(m, zero)
    outer = b.emit("pow", (rest, b.select(none, zero, _plus(b, -1, half))))
    outer = b.select(none, zero, b.mul(b.neg(b.mul(m, x)), outer))
    inner = b.mul(_times(b, 0.5, b.add(v, up)), jacobi(up))
    found = b.add(b.mul(outer, jacobi(m)), b.mul(b.emit("pow", (rest, half)), inner))
    return b.select(whole, zero, b.mul(scale, found))


def _lpmv(b: Builder, z: Value, m: Value, v: Value, x: Value) -> tuple[Partial, ...]:
    """Else (v x P_v - (v + m) P_{v-1}) / (x² - 1)"""
    known = b.logical_and(b.ge(m, b.like(0, m)), b.eq(b.unary("rint", v), v))
    known = b.logical_and(known, b.ge(v, b.like(0, v)))
    below = _f("lpmv", b, m, _plus(b, -1, v), x)
    top = b.sub(b.mul(v, b.mul(x, z)), b.mul(b.add(v, m), below))
    general = b.div(top, _plus(b, -1, b.mul(x, x)))
    return UNKNOWN, UNKNOWN, b.select(known, _ferrers(b, m, v, x), general)


declare("lpmv", 3, _lpmv, low=(1.0, 2.0, -0.9), high=(1.0, 2.0, 0.9), unknown=(0, 1), ulp=1e4)
declare("betainccinv", 3, _betaincinv(-1), low=(0.5, 0.5, 0.05), high=(4.0, 4.0, 0.95),
        ulp=1e4)  # fmt: skip
declare("wright_bessel", 3, lambda b, z, p, q, x: (
            UNKNOWN, UNKNOWN, _f("wright_bessel", b, p, b.add(p, q), x)),
        low=(0.5, 0.5, 0.1), high=(2.0, 2.0, 3.0), unknown=(0, 1), ulp=1e4)  # fmt: skip
