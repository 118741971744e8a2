"""More functions of ``scipy.special`` on traced values, as compositions: part of
``tapec.scipy.special``.

Spherical Bessel functions (DLMF 10.47), Lambert's W on the real branches (the derivative from
w e^w = z), elliptic integrals through Carlson's, the Kolmogorov distribution, Dirichlet's kernel.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special as _scipy

from tapec import primitives as p
from tapec.errors import TapecValueError, UnsupportedError, fail
from tapec.numpy.registry import int_argument
from tapec.numpy.ufuncs import real_float
from tapec.tape import is_traced
from tapec.tracer import UFUNCS

__all__ = [
    "assoc_laguerre", "diric", "lambertw", "lmbda", "riccati_jn", "riccati_yn", "spherical_in",
    "spherical_jn", "spherical_kn", "spherical_yn",
]  # fmt: skip


def _replaces(rule: Any) -> Any:
    plain = getattr(_scipy, rule.__name__)

    @functools.wraps(rule)
    def function(*args: Any, **kwargs: Any) -> Any:
        chosen = rule if is_traced(args) or is_traced(list(kwargs.values())) else plain
        return chosen(*args, **kwargs)

    return function


def _order(n: Any, name: str) -> int:
    n = int_argument(n, f"{name}: the order")
    if n < 0:
        raise fail(TapecValueError, f"{name}: the order must not be negative")
    return int(n)


def _real(x: Any) -> Any:
    return real_float(p.as_array(x))


# -- spherical Bessel functions ---------------------------------------------------------------


def _spherical(name: str, op: str, factor: float, turn: float) -> Callable[..., Any]:
    """√(π/2z) times the function of order n + 1/2; ``turn`` is the sign of the next order in the
    derivative f_n' = (n/z) f_n + turn f_{n+1}."""

    def value(n: int, z: Any) -> Any:
        return np.sqrt(factor / z) * getattr(_scipy, op)(n + 0.5, z)

    def rule(n: Any, z: Any, derivative: bool = False) -> Any:
        n, x = _order(n, name), _real(z)
        if np.any(x <= 0):
            raise fail(
                UnsupportedError, f"{name}: traced arguments must be positive", "shift the argument"
            )
        if derivative:
            return n / x * value(n, x) + turn * value(n + 1, x)
        return value(n, x)

    rule.__name__ = rule.__qualname__ = name
    return _replaces(rule)  # type: ignore[no-any-return]


spherical_jn = _spherical("spherical_jn", "jv", math.pi / 2, -1.0)
spherical_yn = _spherical("spherical_yn", "yv", math.pi / 2, -1.0)
spherical_in = _spherical("spherical_in", "iv", math.pi / 2, 1.0)
spherical_kn = _spherical("spherical_kn", "kv", math.pi / 2, -1.0)


def _riccati(function: Any) -> Callable[..., Any]:
    def rule(n: Any, x: Any) -> Any:
        x = _real(x)
        orders = range(_order(n, "riccati") + 1)
        values = [function(k, x) for k in orders]
        slopes = [function(k, x, derivative=True) for k in orders]
        return np.stack([x * f for f in values]), np.stack(
            [f + x * d for f, d in zip(values, slopes)]
        )

    return rule


@_replaces
def riccati_jn(n: Any, x: Any) -> Any:
    return _riccati(spherical_jn)(n, x)


@_replaces
def riccati_yn(n: Any, x: Any) -> Any:
    return _riccati(spherical_yn)(n, x)


@_replaces
def lmbda(v: Any, x: Any) -> Any:
    """Γ(k + 1) (2/x)^k J_k(x) for whole orders k up to ``v``, and the derivatives."""
    n, x = _order(v, "lmbda"), _real(x)

    def value(k: int) -> Any:
        return math.factorial(k) * (2 / x) ** k * _scipy.jv(float(k), x)

    values = [value(k) for k in range(n + 1)]
    slopes = [-x / (2 * (k + 1)) * value(k + 1) for k in range(n + 1)]
    return np.stack(values), np.stack(slopes)


# -- others -----------------------------------------------------------------------------------


@_replaces
def assoc_laguerre(x: Any, n: Any, k: Any = 0.0) -> Any:
    return _scipy.eval_genlaguerre(n, k, x)


@_replaces
def diric(x: Any, n: Any) -> Any:
    """sin(n x/2) / (n sin(x/2)), as a sum of cosines: no quotient of zeros."""
    x, n = _real(x), int_argument(n, "diric: n")
    if n <= 0:
        raise fail(TapecValueError, "diric: n must be positive")
    harmonics = np.arange(n) - (n - 1) / 2
    return np.mean(np.cos(x[..., None] * harmonics), axis=-1)


def _lambert(k: int) -> Callable[[Any], Any]:
    from tapec.custom import custom_jvp
    from tapec.host import host_call

    value = _principal if k == 0 else _lower

    def body(z: Any) -> Any:
        return host_call(
            value, np.broadcast_to(np.float64(0), z.shape), z, name=f"tapec.lambertw{k}"
        )

    body.__name__ = "lambertw"
    whole = custom_jvp(body)

    def rule(primals: Any, tangents: Any) -> Any:
        w = whole(*primals)
        return w, tangents[0] / (np.exp(w) * (1 + w))

    whole.defjvp(rule)
    return whole


def _principal(z: Any) -> Any:
    return _branch(z, 0)


def _lower(z: Any) -> Any:
    return _branch(z, -1)


def _branch(z: Any, k: int) -> Any:
    w = _scipy.lambertw(z, k)
    return np.where(np.imag(w) == 0, np.real(w), np.nan)


_lambert_of = functools.cache(_lambert)


@_replaces
def lambertw(z: Any, k: Any = 0, tol: Any = 1e-8) -> Any:
    """The real branches 0 and -1, as real numbers; NaN where the value is complex.

    >>> import tapec
    >>> from tapec.scipy import special
    >>> tapec.grad(lambda z: special.lambertw(z))(0.0)
    1.0
    """
    k = int_argument(k, "lambertw: k")
    if k not in (0, -1):
        raise fail(UnsupportedError, f"lambertw: the branch {k} of traced values is complex")
    return _lambert_of(k)(_real(z) * 1.0)


def _ufunc(name: str) -> Callable[[Any], Any]:
    def register(rule: Any) -> Any:
        function = getattr(_scipy, name, None)
        if isinstance(function, np.ufunc):
            UFUNCS[function] = rule
        return rule

    return register


@_ufunc("elliprc")
def elliprc(x: Any, y: Any) -> Any:
    """R_F(x, y, y) (DLMF 19.16.6)"""
    return _scipy.elliprf(x, y, y)


@_ufunc("agm")
def agm(a: Any, b: Any) -> Any:
    """(π/2) / R_F(0, a², b²), for positive numbers (DLMF 19.8.5 and 19.25.1): with
    x = 4ab/(a+b)², π (a+b) / (4 K(1 - x))."""
    total = a + b
    return math.pi / 4 * total / _scipy.ellipkm1(4 * a * b / total**2)


@_ufunc("kolmogorov")
def kolmogorov(x: Any) -> Any:
    """Two series, one for small x (DLMF 20.7: Jacobi's identity)."""
    x = _real(x)
    small = x < 1.0
    y = np.where(small, np.maximum(x, 0.04), 1.0)
    odd = np.arange(1.0, 10.0, 2.0)
    near = np.exp(-((odd * math.pi) ** 2) / (8 * y[..., None] ** 2)).sum(-1)
    far_x = np.where(small, 1.0, x)
    k = np.arange(1.0, 8.0)
    far = 2 * ((-1) ** (k + 1) * np.exp(-2 * (k * far_x[..., None]) ** 2)).sum(-1)
    low = 1 - math.sqrt(2 * math.pi) / y * near
    return np.where(x < 0.04, 1.0, np.where(small, low, far))
