"""``scipy.special`` for traced values: ``from tapec.scipy import special``.

The ufuncs of SciPy arrive at ``__array_ufunc__``; this module registers their rules, and
replaces the functions that are not ufuncs (``logsumexp``, ``softmax``, ``polygamma``, …) by ones
that take traced values too.  Every other name is SciPy's own.

    from tapec.scipy.special import gammaln, logsumexp
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import scipy.special as _scipy

from tapec import primitives as p
from tapec.errors import TapecValueError, UnsupportedError, fail
from tapec.ir.core import F32, F64, NO_ATTRS
from tapec.ir.opdef import OPS
from tapec.kinds import BROADCAST, broadcast_shapes
from tapec.numpy.reductions import reduced
from tapec.numpy.registry import axes_of, int_argument
from tapec.numpy.ufuncs import real_float
from tapec.primitives import binary, cast, operands, reshape, select, unary
from tapec.scipy._special_more import (
    assoc_laguerre,
    diric,
    lambertw,
    lmbda,
    riccati_jn,
    riccati_yn,
    spherical_in,
    spherical_jn,
    spherical_kn,
    spherical_yn,
)
from tapec.tape import is_traced
from tapec.tracer import FUNCTIONS, UFUNCS, Tracer

__all__ = [
    "assoc_laguerre", "comb", "diric", "factorial", "ivp", "jvp", "kvp", "lambertw", "lmbda",
    "log_softmax", "logsumexp", "multigammaln", "perm", "polygamma", "riccati_jn", "riccati_yn",
    "sinc", "softmax", "softplus", "spherical_in", "spherical_jn", "spherical_kn", "spherical_yn",
    "yvp", "zeta",
]  # fmt: skip


def elementwise(op: str, *xs: Any, attrs: dict[str, Any] | None = None) -> Tracer:
    """A special function as one operation: float32 if every array is, else float64."""
    tracers = operands(*xs)
    strong = [x for x in tracers if not x.weak]
    dtype = F32 if strong and all(x.type.dtype is F32 for x in strong) else F64
    shape = broadcast_shapes(*[x.type.shape for x in tracers])
    tracers = [cast(x, dtype) for x in tracers]
    first = tracers[0]
    kind = first.type.with_shape(shape)
    if attrs is not None:
        made: Tracer = first.tape.record(op, (first.id,), attrs, kind)
        return made
    exact = all(x.type.shape == shape for x in tracers)
    ids = tuple([x.id for x in tracers])
    result: Tracer = first.tape.record(op, ids, NO_ATTRS if exact else BROADCAST, kind)
    return result


_Rule = TypeVar("_Rule", bound=Callable[..., Any])


def ufunc(*names: str) -> Callable[[_Rule], _Rule]:
    """Register the rule of SciPy's ufuncs; names that this SciPy lacks are skipped."""

    def register(rule: _Rule) -> _Rule:
        for name in names:
            function = getattr(_scipy, name, None)
            if isinstance(function, np.ufunc):
                UFUNCS[function] = rule
        return rule

    return register


def _one_operation(op: str) -> Callable[..., Tracer]:
    return lambda *xs: elementwise(op, *xs)


#: SciPy's names of ufuncs that are one operation of another name
_RENAMED = {"psi": "digamma", "expit": "logistic", "loggamma": "gammaln", "kn": "kv", "yn": "yv",
            "jve": "jv", "yve": "yv"}  # fmt: skip

for _name in dir(_scipy):
    _function = getattr(_scipy, _name)
    _op = _RENAMED.get(_name, _name)
    if isinstance(_function, np.ufunc) and _op in OPS and _op not in ("round", "zeta"):
        UFUNCS.setdefault(_function, _one_operation(_op))

_SEVERAL = {
    "airy": ("airy_ai", "airy_aip", "airy_bi", "airy_bip"),
    "fresnel": ("fresnel_s", "fresnel_c"),
    "sici": ("sici_si", "sici_ci"),
    "shichi": ("shichi_shi", "shichi_chi"),
    "itj0y0": ("itj0y0_j", "itj0y0_y"),
    "iti0k0": ("iti0k0_i", "iti0k0_k"),
    "itairy": ("itairy_a", "itairy_b", "itairy_c", "itairy_d"),
    "it2j0y0": ("it2j0y0_j", "it2j0y0_y"),
    "it2i0k0": ("it2i0k0_i", "it2i0k0_k"),
    "ellipj": ("ellipj_sn", "ellipj_cn", "ellipj_dn", "ellipj_ph"),
    "pbdv": ("pbdv_f", "pbdv_p"),
    "pbvv": ("pbvv_f", "pbvv_p"),
    "pbwa": ("pbwa_f", "pbwa_p"),
}


def _several_operations(ops: tuple[str, ...]) -> Callable[..., tuple[Tracer, ...]]:
    return lambda *xs: tuple([elementwise(op, *xs) for op in ops])


for _name, _ops in _SEVERAL.items():
    ufunc(_name)(_several_operations(_ops))


# -- ufuncs that are compositions ----------------------------------------------------------------


def _add(x: Any, y: Any) -> Tracer:
    return binary("add", x, y)


def _sub(x: Any, y: Any) -> Tracer:
    return binary("sub", x, y)


def _mul(x: Any, y: Any) -> Tracer:
    return binary("mul", x, y)


def _div(x: Any, y: Any) -> Tracer:
    return binary("div", x, y)


def _series_quotient(x: Tracer, coefficients: list[float], far: Callable[[Tracer], Any]) -> Tracer:
    """f(x)/x: a power series for |x| < 1 and the quotient beyond."""
    near = binary("lt", unary("abs", x), 1.0)
    t = select(near, x, 0.0)
    total: Any = 0.0
    for c in reversed(coefficients):
        total = _add(_mul(t, total), c)
    safe = select(near, 2.0, x)
    return select(near, total, far(safe))


@ufunc("exprel")
def exprel(x: Any) -> Tracer:
    """(e^x - 1) / x"""
    x = real_float(x)
    terms = [1 / math.factorial(k + 1) for k in range(20)]
    return _series_quotient(x, terms, lambda v: _div(unary("expm1", v), v))


def _log1p_ratio(u: Tracer) -> Tracer:
    """log(1 + u) / u, through artanh near 0."""
    s = _div(u, _add(u, 2.0))
    square = _mul(s, s)
    near = binary("lt", square, 0.1)
    t = select(near, square, 0.0)
    total: Any = 0.0
    for n in range(19, -1, -1):
        total = _add(_mul(t, total), 1 / (2 * n + 1))
    far = select(near, 1.0, u)
    return select(near, _div(_mul(2.0, total), _add(u, 2.0)), _div(unary("log1p", far), far))


@ufunc("boxcox")
def boxcox(x: Any, lmbda: Any) -> Tracer:
    """(x^λ - 1) / λ, log x at λ = 0"""
    x, lam = operands(x, lmbda)
    log = unary("log", real_float(x))
    return _mul(log, exprel(_mul(lam, log)))


@ufunc("boxcox1p")
def boxcox1p(x: Any, lmbda: Any) -> Tracer:
    x, lam = operands(x, lmbda)
    log = unary("log1p", real_float(x))
    return _mul(log, exprel(_mul(lam, log)))


@ufunc("inv_boxcox")
def inv_boxcox(y: Any, lmbda: Any) -> Tracer:
    """(1 + λ y)^(1/λ), e^y at λ = 0"""
    y, lam = operands(y, lmbda)
    y = real_float(y)
    return unary("exp", _mul(y, _log1p_ratio(_mul(lam, y))))


@ufunc("inv_boxcox1p")
def inv_boxcox1p(y: Any, lmbda: Any) -> Tracer:
    y, lam = operands(y, lmbda)
    y = real_float(y)
    return unary("expm1", _mul(y, _log1p_ratio(_mul(lam, y))))


@ufunc("powm1")
def powm1(x: Any, y: Any) -> Tracer:
    x, y = operands(x, y)
    return unary("expm1", elementwise("xlogy", y, x))


@ufunc("rgamma")
def rgamma(x: Any) -> Tracer:
    """1/Γ, by reflection left of 1/2: zeros at 0, -1, … are exact, and so are the slopes."""
    x = real_float(x)
    left = binary("lt", x, 0.5)
    near = unary("rint", x)
    rest = _mul(math.pi, _sub(x, near))
    parity = _sub(1.0, _mul(2.0, binary("mod", near, 2.0)))
    sine = _mul(parity, unary("sin", rest))
    mirrored = elementwise("gamma", select(left, _sub(1.0, x), 1.0))
    direct = _div(1.0, elementwise("gamma", select(left, 1.0, x)))
    return select(left, _div(_mul(sine, mirrored), math.pi), direct)


@ufunc("gammasgn")
def gammasgn(x: Any) -> Tracer:
    x = real_float(x)
    odd = binary("mod", unary("floor", x), 2.0)
    sign = select(binary("gt", x, 0.0), 1.0, _sub(1.0, _mul(2.0, odd)))
    pole = binary("and", binary("le", x, 0.0), binary("eq", unary("floor", x), x))
    return select(pole, select(binary("eq", x, 0.0), binary("copysign", 1.0, x), np.nan), sign)


@ufunc("huber")
def huber(delta: Any, r: Any) -> Tracer:
    d, r = (real_float(v) for v in operands(delta, r))
    size = unary("abs", r)
    inner = _mul(0.5, _mul(r, r))
    outer = _mul(d, _sub(size, _mul(0.5, d)))
    return select(binary("lt", d, 0.0), np.inf, select(binary("le", size, d), inner, outer))


@ufunc("pseudo_huber")
def pseudo_huber(delta: Any, r: Any) -> Tracer:
    """δ² (√(1 + (r/δ)²) - 1) without cancellation"""
    d, r = (real_float(v) for v in operands(delta, r))
    ratio = _div(r, d)
    square = _mul(ratio, ratio)
    return _div(_mul(r, r), _add(1.0, unary("sqrt", _add(1.0, square))))


@ufunc("exp10")
def exp10(x: Any) -> Tracer:
    return binary("pow", 10.0, real_float(x))


@ufunc("radian")
def radian(d: Any, m: Any, s: Any) -> Tracer:
    d, m, s = operands(d, m, s)
    return _mul(_add(d, _add(_div(m, 60.0), _div(s, 3600.0))), math.pi / 180)


def _degrees(op: str) -> Callable[[Any], Tracer]:
    """Through the remainder by 180, so that multiples of 90 degrees are exact."""

    def rule(x: Any) -> Tracer:
        x = real_float(x)
        turn = binary("mod", x, 360.0)
        back = _sub(turn, _mul(90.0, unary("rint", _div(turn, 90.0))))
        quarter = binary("mod", unary("rint", _div(turn, 90.0)), 4.0)
        angle = _mul(back, math.pi / 180)
        sine, cosine = unary("sin", angle), unary("cos", angle)
        minus_s, minus_c = _sub(0.0, sine), _sub(0.0, cosine)
        first = {"sin": (sine, cosine, minus_s, minus_c), "cos": (cosine, minus_s, minus_c, sine)}

        def pick(values: tuple[Tracer, ...]) -> Tracer:
            out = values[3]
            for k in (2, 1, 0):
                out = select(binary("eq", quarter, float(k)), values[k], out)
            return out

        if op in first:
            return pick(first[op])
        s, c = pick(first["sin"]), pick(first["cos"])
        return _div(s, c) if op == "tan" else _div(c, s)

    return rule


for _name, _op in (("sindg", "sin"), ("cosdg", "cos"), ("tandg", "tan"), ("cotdg", "cot")):
    ufunc(_name)(_degrees(_op))

UFUNCS[_scipy.cbrt] = UFUNCS[np.cbrt]
UFUNCS[_scipy.exp2] = UFUNCS[np.exp2]
UFUNCS[_scipy.expm1] = UFUNCS[np.expm1]
UFUNCS[_scipy.log1p] = UFUNCS[np.log1p]
UFUNCS[_scipy.round] = UFUNCS[np.rint]
ufunc("ellipkm1")(lambda x: elementwise("ellipk", _sub(1.0, real_float(x))))
if hasattr(_scipy, "_ufuncs") and hasattr(_scipy._ufuncs, "_zeta"):
    UFUNCS[_scipy._ufuncs._zeta] = _one_operation("zeta")

# -- distribution functions: incomplete gamma and beta functions ---------------------------------


def _half(x: Any) -> Any:
    return _mul(0.5, x)


ufunc("chdtr")(lambda v, x: elementwise("gammainc", *map(_half, operands(v, x))))
ufunc("chdtrc")(lambda v, x: elementwise("gammaincc", *map(_half, operands(v, x))))
ufunc("chdtri")(lambda v, q: _mul(2.0, elementwise("gammainccinv", _half(operands(v, q)[0]), q)))
ufunc("gdtr")(lambda a, s, x: elementwise("gammainc", s, _mul(*operands(a, x))))
ufunc("gdtrc")(lambda a, s, x: elementwise("gammaincc", s, _mul(*operands(a, x))))
ufunc("gdtrix")(lambda a, s, q: _div(elementwise("gammaincinv", *operands(s, q)), a))
ufunc("pdtr")(
    lambda k, m: elementwise("gammaincc", _add(1.0, unary("floor", operands(k, m)[0])), m)
)
ufunc("pdtrc")(
    lambda k, m: elementwise("gammainc", _add(1.0, unary("floor", operands(k, m)[0])), m)
)


@ufunc("fdtr")
def fdtr(a: Any, b: Any, x: Any) -> Tracer:
    a, b, x = operands(a, b, x)
    return elementwise("betainc", _half(a), _half(b), _div(_mul(a, x), _add(b, _mul(a, x))))


@ufunc("fdtrc")
def fdtrc(a: Any, b: Any, x: Any) -> Tracer:
    a, b, x = operands(a, b, x)
    return elementwise("betainc", _half(b), _half(a), _div(b, _add(b, _mul(a, x))))


def _whole(*xs: Any) -> Any:
    """Operands of which SciPy takes the whole part of all but the last."""
    *steps, x = operands(*xs)
    return (*[unary("floor", v) for v in steps], x)


def _of_beta(op: str, arguments: Callable[..., tuple[Any, ...]]) -> Callable[..., Tracer]:
    return lambda *xs: elementwise(op, *arguments(*_whole(*xs)))


ufunc("bdtr")(_of_beta("betainc", lambda k, n, q: (_sub(n, k), _add(k, 1.0), _sub(1.0, q))))
ufunc("bdtrc")(_of_beta("betainc", lambda k, n, q: (_add(k, 1.0), _sub(n, k), q)))
ufunc("nbdtr")(_of_beta("betainc", lambda k, n, q: (n, _add(k, 1.0), q)))
ufunc("nbdtrc")(_of_beta("betainc", lambda k, n, q: (_add(k, 1.0), n, _sub(1.0, q))))
ufunc("nbdtri")(_of_beta("betaincinv", lambda k, n, y: (n, _add(k, 1.0), y)))
ufunc("pdtri")(_of_beta("gammainccinv", lambda k, y: (_add(k, 1.0), y)))


@ufunc("bdtri")
def bdtri(k: Any, n: Any, y: Any) -> Tracer:
    k, n, y = _whole(k, n, y)
    return _sub(1.0, elementwise("betaincinv", _sub(n, k), _add(k, 1.0), y))


# -- inverted for a parameter: others are operations of ``ir.special_inverses`` ------------------

ufunc("gdtria")(lambda p, b, x: _div(elementwise("gammaincinv", *operands(b, p)), x))
ufunc("nrdtrimn")(lambda p, sd, x: _sub(x, _mul(sd, elementwise("ndtri", operands(p, sd, x)[0]))))
ufunc("nrdtrisd")(
    lambda mn, p, x: _div(_sub(*operands(x, mn)), elementwise("ndtri", operands(p, x, mn)[0]))
)


@ufunc("fdtri")
def fdtri(a: Any, b: Any, q: Any) -> Tracer:
    a, b, q = operands(a, b, q)
    z = elementwise("betaincinv", _half(a), _half(b), q)
    return _div(_mul(b, z), _mul(a, _sub(1.0, z)))


# -- orthogonal polynomials on other intervals ---------------------------------------------------


def _shifted(x: Any) -> Any:
    return _sub(_mul(2.0, x), 1.0)


ufunc("eval_sh_jacobi")(
    lambda n, p, q, x: _div(
        elementwise("eval_jacobi", n, _sub(operands(p, x)[0], q), _sub(operands(q, x)[0], 1.0),
                    _shifted(operands(n, x)[1])),
        elementwise("binom", _add(_mul(2.0, operands(n, x)[0]), _sub(operands(p, x)[0], 1.0)), n),
    )
)  # fmt: skip
ufunc("eval_sh_legendre")(lambda n, x: elementwise("eval_legendre", n, _shifted(operands(n, x)[1])))
ufunc("eval_sh_chebyt")(lambda n, x: elementwise("eval_chebyt", n, _shifted(operands(n, x)[1])))
ufunc("eval_sh_chebyu")(lambda n, x: elementwise("eval_chebyu", n, _shifted(operands(n, x)[1])))
ufunc("eval_chebyc")(
    lambda n, x: _mul(2.0, elementwise("eval_chebyt", n, _half(operands(n, x)[1])))
)
ufunc("eval_chebys")(lambda n, x: elementwise("eval_chebyu", n, _half(operands(n, x)[1])))


# -- functions of SciPy that are no ufuncs -------------------------------------------------------


def _plain_or(name: str, *arguments: Any) -> Any:
    """SciPy's function if nothing is traced."""
    return None if any(is_traced(a) for a in arguments) else getattr(_scipy, name)


def logsumexp(
    a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False
) -> Any:
    """log Σ b exp(a), shifted by the maximum; entries of -inf have weight 0."""
    plain = _plain_or("logsumexp", a, b)
    if plain is not None:
        return plain(a, axis=axis, b=b, keepdims=keepdims, return_sign=return_sign)
    if b is not None:
        x, w = operands(a, b)
        shape = broadcast_shapes(x.type.shape, w.type.shape)
        x, w = p.broadcast_to(real_float(x), shape), p.broadcast_to(real_float(w), shape)
        x = select(binary("eq", w, 0.0), -np.inf, x)
    else:
        x, w = real_float(p.as_array(a)), None
    if not x.type.ndim:
        x = reshape(x, (1,))
        w = None if w is None else reshape(w, (1,))
        return logsumexp(x, 0, w, False, return_sign)
    axes = axes_of(axis, x.type.ndim)
    top = reduced("max", x, axes, True)
    finite = UFUNCS[np.isfinite](top)
    shift = stop(select(finite, top, 0.0))
    terms = unary("exp", _sub(x, shift))
    if w is not None:
        terms = _mul(w, terms)
    total = reduced("sum", terms, axes, True)
    sign = unary("sign", total)
    if return_sign:
        total = unary("abs", total)
    empty = binary("eq", total, 0.0)
    result = select(empty, -np.inf, _add(unary("log", select(empty, 1.0, total)), shift))
    if not keepdims:
        rest = [n for k, n in enumerate(x.type.shape) if k not in axes]
        result, sign = reshape(result, rest), reshape(sign, rest)
    return (result, sign) if return_sign else result


def stop(x: Tracer) -> Tracer:
    """``x`` as it is: the shift of a sum of exponentials cancels, so its derivative must not
    count twice.  (Its derivative is 0 in exact arithmetic; ties and rounding are avoided.)"""
    from tapec.custom import stop_gradient

    return stop_gradient(x)  # type: ignore[no-any-return]


def softmax(x: Any, axis: Any = None) -> Any:
    plain = _plain_or("softmax", x)
    if plain is not None:
        return plain(x, axis=axis)
    a = real_float(p.as_array(x))
    axes = axes_of(axis, a.type.ndim)
    e = unary("exp", _sub(a, stop(reduced("max", a, axes, True))))
    return _div(e, reduced("sum", e, axes, True))


def log_softmax(x: Any, axis: Any = None) -> Any:
    plain = _plain_or("log_softmax", x)
    if plain is not None:
        return plain(x, axis=axis)
    a = real_float(p.as_array(x))
    axes = axes_of(axis, a.type.ndim)
    top = stop(reduced("max", a, axes, True))
    shifted = _sub(a, select(UFUNCS[np.isfinite](top), top, 0.0))
    return _sub(shifted, unary("log", reduced("sum", unary("exp", shifted), axes, True)))


def softplus(x: Any, **kwargs: Any) -> Any:
    """log(1 + e^x)"""
    if not is_traced(x):
        return np.logaddexp(0.0, x, **kwargs)
    return UFUNCS[np.logaddexp](0.0, x)


def polygamma(n: Any, x: Any) -> Any:
    """The n-th derivative of digamma; ``n`` is a plain integer, or an array of them."""
    plain = _plain_or("polygamma", n, x)
    if plain is not None:
        return plain(n, x)
    if isinstance(n, Tracer) or np.ndim(n):
        raise fail(UnsupportedError, "polygamma: the order must be one plain integer")
    order = int_argument(int(n) if float(n) == int(n) else n, "the order")
    if order < 0:
        raise fail(TapecValueError, "polygamma: the order must not be negative")
    if order == 0:
        return elementwise("digamma", x)
    return elementwise("polygamma", x, attrs={"n": order})


def zeta(x: Any, q: Any = None, out: None = None) -> Any:
    """Hurwitz's zeta function; the derivative by q only."""
    plain = _plain_or("zeta", x, q)
    if plain is not None:
        return plain(x, q)
    return elementwise("zeta", x, 1.0 if q is None else q)


def multigammaln(a: Any, d: Any) -> Any:
    plain = _plain_or("multigammaln", a)
    if plain is not None:
        return plain(a, d)
    d = int_argument(d, "d")
    a = real_float(p.as_array(a))
    total: Any = d * (d - 1) * 0.25 * math.log(math.pi)
    for j in range(1, d + 1):
        total = _add(elementwise("gammaln", _sub(a, (j - 1.0) / 2)), total)
    return total


def _bessel_derivative(name: str, op: str, below: float, above: float) -> Callable[..., Any]:
    """The n-th derivative: neighbours in order, n times."""

    def rule(v: Any, z: Any, n: int = 1) -> Any:
        plain = _plain_or(name, v, z)
        if plain is not None:
            return plain(v, z, n)
        n = int_argument(n, "n")
        v, z = operands(v, z)
        total: Any = 0.0
        for k in range(n + 1):
            weight = math.comb(n, k) * below ** (n - k) * above**k
            total = _add(_mul(weight, elementwise(op, _add(v, float(2 * k - n)), z)), total)
        return total

    rule.__name__ = name
    return rule


jvp = _bessel_derivative("jvp", "jv", 0.5, -0.5)
yvp = _bessel_derivative("yvp", "yv", 0.5, -0.5)
ivp = _bessel_derivative("ivp", "iv", 0.5, 0.5)
kvp = _bessel_derivative("kvp", "kv", -0.5, -0.5)


def perm(N: Any, k: Any, exact: bool = False) -> Any:
    """N! / (N - k)!"""
    plain = _plain_or("perm", N, k)
    if plain is not None:
        return plain(N, k, exact)
    n, j = operands(N, k)
    inside = binary("and", binary("le", j, n), binary("ge", j, 0))
    value = elementwise("poch", _add(_sub(n, j), 1.0), j)
    return select(binary("and", inside, binary("ge", n, 0)), value, 0.0)


def sinc(x: Any) -> Any:
    return FUNCTIONS[np.sinc](x) if is_traced(x) else _scipy.sinc(x)


def comb(N: Any, k: Any, *, exact: bool = False, repetition: bool = False) -> Any:
    """Binomial coefficients of real numbers (``exact`` is for plain integers)."""
    plain = _plain_or("comb", N, k)
    if plain is not None:
        return plain(N, k, exact=exact, repetition=repetition)
    if repetition:
        return comb(_sub(_add(*operands(N, k)), 1.0), k)
    n, j = operands(N, k)
    value = elementwise("binom", n, j)
    inside = binary("and", binary("le", j, n), binary("ge", j, 0))
    return select(binary("and", inside, binary("ge", n, 0)), value, 0.0)


def factorial(n: Any, exact: bool = False, **kwargs: Any) -> Any:
    plain = _plain_or("factorial", n)
    if plain is not None:
        return plain(n, exact=exact, **kwargs)
    x = real_float(p.as_array(n))
    return select(binary("lt", x, 0.0), 0.0, elementwise("gamma", _add(x, 1.0)))


def __getattr__(name: str) -> Any:
    return getattr(_scipy, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(_scipy)})
