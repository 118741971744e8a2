"""Entries of further special functions: parabolic cylinders, Jacobi's elliptic functions,
associated Legendre functions, quantiles.

As in ``bessel``: SciPy's names (with the name of the part where SciPy returns several), orders and
parameters first, no derivative by them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapec.ir.bessel import _part
from tapec.ir.builder import Builder
from tapec.ir.core import Value
from tapec.ir.elementwise import _over
from tapec.ir.opdef import UNKNOWN, Partial
from tapec.ir.special import Partials, _f, _log_density_beta, _plus, _times, declare

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

_part("it2j0y0_j", "it2j0y0.vdDD", 0, lambda b, z, x: (
          b.div(b.sub(b.like(1, x), b.unary("j0", x)), x),), None, 0.5, 5.0, 1e8)  # fmt: skip
_part("it2j0y0_y", "it2j0y0.vdDD", 1, lambda b, z, x: (b.neg(b.div(b.unary("y0", x), x)),), None,
      0.5, 5.0, 1e8)  # fmt: skip
_part("it2i0k0_i", "it2i0k0.vdDD", 0, lambda b, z, x: (
          b.div(_plus(b, -1, b.unary("i0", x)), x),), None, 0.5, 5.0, 1e8)  # fmt: skip
_part("it2i0k0_k", "it2i0k0.vdDD", 1, lambda b, z, x: (b.neg(b.div(b.unary("k0", x), x)),), None,
      0.5, 5.0, 1e8)  # fmt: skip
declare("it2struve0", 1, lambda b, z, x: (
            b.neg(b.div(_f("struve", b, b.like(0, x), x), x)),), low=0.5, high=5.0,
        ulp=1e8)  # fmt: skip

# -- others -------------------------------------------------------------------------------------


def _lpmv(b: Builder, z: Value, m: Value, v: Value, x: Value) -> tuple[Partial, ...]:
    """(v x P_v - (v + m) P_{v-1}) / (x² - 1)"""
    below = _f("lpmv", b, m, _plus(b, -1, v), x)
    top = b.sub(b.mul(v, b.mul(x, z)), b.mul(b.add(v, m), below))
    return UNKNOWN, UNKNOWN, b.div(top, _plus(b, -1, b.mul(x, x)))


declare("lpmv", 3, _lpmv, low=(1.0, 2.0, -0.9), high=(1.0, 2.0, 0.9), unknown=(0, 1), ulp=1e4)
declare("betainccinv", 3, lambda b, z, p, q, y: (
            UNKNOWN, UNKNOWN, b.neg(_over(b, 1, b.exp(_log_density_beta(b, p, q, z))))),
        low=(0.5, 0.5, 0.05), high=(4.0, 4.0, 0.95), unknown=(0, 1), ulp=1e4)  # fmt: skip
declare("wright_bessel", 3, lambda b, z, p, q, x: (
            UNKNOWN, UNKNOWN, _f("wright_bessel", b, p, b.add(p, q), x)),
        low=(0.5, 0.5, 0.1), high=(2.0, 2.0, 3.0), unknown=(0, 1), ulp=1e4)  # fmt: skip
