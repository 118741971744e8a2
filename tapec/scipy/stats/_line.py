"""Continuous distributions on the whole real line, and those whose support depends on the shape.

Formulas: Johnson, Kotz, Balakrishnan, "Continuous Univariate Distributions", in the
parametrization of ``scipy.stats``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapec.scipy import special as sp
from tapec.scipy.special import _log1p_ratio
from tapec.scipy.stats._distribution import Continuous
from tapec.scipy.stats._functions import LOG_2PI, log1mexp, log_gammaincc
from tapec.tape import is_traced

__all__ = [
    "cauchy", "dgamma", "dweibull", "exponnorm", "genextreme", "genlogistic", "gennorm",
    "genpareto", "gumbel_l", "gumbel_r", "hypsecant", "johnsonsu", "laplace",
    "laplace_asymmetric", "loggamma", "logistic", "moyal", "norm", "skewnorm", "t", "truncnorm",
    "vonmises",
]  # fmt: skip

_GAMMA = float(np.euler_gamma)


def _finite(*shape: Any) -> Any:
    valid: Any = np.True_
    for s in shape:
        valid = valid & np.isfinite(s)
    return valid


def _log_norm(y: Any) -> Any:
    return -0.5 * (y * y + LOG_2PI)


norm = Continuous(
    "norm", _log_norm, symmetric=True, cdf=lambda y: sp.ndtr(y), logcdf=lambda y: sp.log_ndtr(y),
    ppf=lambda q: sp.ndtri(q), mean=lambda: 0.0, var=lambda: 1.0,
    entropy=lambda: 0.5 * (LOG_2PI + 1),
)  # fmt: skip


def _cauchy_ppf(q: Any) -> Any:
    """tan(π (q - 1/2)), near the ends by the distance from them."""
    left = q < 0.5
    rest = np.where(left, q, 1 - q)
    middle = rest > 0.25
    inner = np.tan(math.pi * (np.where(middle, q, 0.5) - 0.5))
    outer = 1 / np.tan(math.pi * np.where(middle, 0.1, rest))
    return np.where(middle, inner, np.where(left, -outer, outer))


cauchy = Continuous(
    "cauchy", lambda y: -math.log(math.pi) - np.log1p(y * y), symmetric=True,
    cdf=lambda y: np.arctan2(1.0, -y) / math.pi, ppf=_cauchy_ppf,
    entropy=lambda: math.log(4 * math.pi),
)  # fmt: skip


def _laplace_cdf(y: Any) -> Any:
    left = y < 0
    low = 0.5 * np.exp(np.where(left, y, 0.0))
    return np.where(left, low, 1 - 0.5 * np.exp(-np.where(left, 0.0, y)))


def _laplace_logcdf(y: Any) -> Any:
    left = y < 0
    right = np.log1p(-0.5 * np.exp(-np.where(left, 0.0, y)))
    return np.where(left, np.where(left, y, 0.0) - math.log(2), right)


laplace = Continuous(
    "laplace", lambda y: -np.abs(y) - math.log(2), symmetric=True, cdf=_laplace_cdf,
    logcdf=_laplace_logcdf, mean=lambda: 0.0, var=lambda: 2.0, entropy=lambda: math.log(2) + 1,
    quantile=lambda lp, ls: np.where(lp < -math.log(2), lp + math.log(2), -ls - math.log(2)),
)  # fmt: skip
logistic = Continuous(
    "logistic", lambda y: sp.log_expit(y) + sp.log_expit(-y), symmetric=True,
    cdf=lambda y: sp.expit(y), logcdf=lambda y: sp.log_expit(y), ppf=lambda q: sp.logit(q),
    mean=lambda: 0.0, var=lambda: math.pi**2 / 3, entropy=lambda: 2.0,
)  # fmt: skip
gumbel_r = Continuous(
    "gumbel_r", lambda y: -y - np.exp(-y), logcdf=lambda y: -np.exp(-y),
    quantile=lambda lp, ls: -np.log(-lp), mean=lambda: _GAMMA, var=lambda: math.pi**2 / 6,
    entropy=lambda: _GAMMA + 1,
)  # fmt: skip
gumbel_l = Continuous(
    "gumbel_l", lambda y: y - np.exp(y), logsf=lambda y: -np.exp(y),
    quantile=lambda lp, ls: np.log(-ls), mean=lambda: -_GAMMA, var=lambda: math.pi**2 / 6,
    entropy=lambda: _GAMMA + 1,
)  # fmt: skip


genlogistic = Continuous(
    "genlogistic", lambda y, c: np.log(c) - y + (c + 1) * sp.log_expit(y),
    logcdf=lambda y, c: c * sp.log_expit(y), quantile=lambda lp, ls, c: lp / c - log1mexp(lp / c),
    mean=lambda c: _GAMMA + sp.psi(c), var=lambda c: math.pi**2 / 6 + sp.polygamma(1, c),
)  # fmt: skip


def _double(tail: Any, y: Any) -> Any:
    """A distribution function from the tail of one side."""
    return np.where(y < 0, 0.5 * tail, 1 - 0.5 * tail)


dgamma = Continuous(
    "dgamma",
    lambda y, a: sp.xlogy(a - 1.0, np.abs(y)) - np.abs(y) - math.log(2) - sp.gammaln(a),
    symmetric=True, inside=1.0, cdf=lambda y, a: _double(sp.gammaincc(a, np.abs(y)), y),
    logcdf=lambda y, a: _double_log(log_gammaincc(a, np.abs(y)), y),
    mean=lambda a: 0.0 * a, var=lambda a: a * (a + 1),
)  # fmt: skip
dweibull = Continuous(
    "dweibull",
    lambda y, c: np.log(0.5 * c) + sp.xlogy(c - 1.0, np.abs(y)) - np.abs(y) ** c,
    symmetric=True, inside=1.0, cdf=lambda y, c: _double(np.exp(-(np.abs(y) ** c)), y),
    logcdf=lambda y, c: _double_log(-(np.abs(y) ** c), y),
    mean=lambda c: 0.0 * c, var=lambda c: sp.gamma(1 + 2 / c),
)  # fmt: skip


def _hypsecant_ppf(q: Any) -> Any:
    left = q < 0.5
    value = np.log(np.tan(0.5 * math.pi * np.where(left, q, 1 - q)))
    return np.where(left, value, -value)


hypsecant = Continuous(
    "hypsecant", lambda y: math.log(2 / math.pi) - np.logaddexp(y, -y), symmetric=True,
    cdf=lambda y: 2 / math.pi * np.arctan(np.exp(y)), ppf=_hypsecant_ppf, mean=lambda: 0.0,
    var=lambda: math.pi**2 / 4, entropy=lambda: LOG_2PI,
)  # fmt: skip
moyal = Continuous(
    "moyal", lambda y: -0.5 * (y + np.exp(-y) + LOG_2PI),
    cdf=lambda y: sp.erfc(np.exp(-0.5 * y) * math.sqrt(0.5)),
    sf=lambda y: sp.erf(np.exp(-0.5 * y) * math.sqrt(0.5)),
    ppf=lambda q: -np.log(2 * sp.erfcinv(q) ** 2), isf=lambda q: -np.log(2 * sp.erfinv(q) ** 2),
    mean=lambda: _GAMMA + math.log(2), var=lambda: math.pi**2 / 2,
    entropy=lambda: 0.5 * (LOG_2PI + _GAMMA + math.log(2) + 1),
)  # fmt: skip
loggamma = Continuous(
    "loggamma", lambda y, c: c * y - np.exp(y) - sp.gammaln(c),
    cdf=lambda y, c: sp.gammainc(c, np.exp(y)), sf=lambda y, c: sp.gammaincc(c, np.exp(y)),
    logsf=lambda y, c: log_gammaincc(c, np.exp(y)),
    ppf=lambda q, c: np.log(sp.gammaincinv(c, q)), isf=lambda q, c: np.log(sp.gammainccinv(c, q)),
    mean=lambda c: sp.psi(c), var=lambda c: sp.polygamma(1, c),
    entropy=lambda c: sp.gammaln(c) - c * sp.psi(c) + c,
)  # fmt: skip


def _johnson(y: Any, a: Any, b: Any) -> Any:
    return a + b * np.arcsinh(y)


johnsonsu = Continuous(
    "johnsonsu",
    lambda y, a, b: _log_norm(_johnson(y, a, b)) + np.log(b) - 0.5 * np.log1p(y * y),
    valid=lambda a, b: (b > 0) & np.isfinite(a),
    logcdf=lambda y, a, b: sp.log_ndtr(_johnson(y, a, b)),
    logsf=lambda y, a, b: sp.log_ndtr(-_johnson(y, a, b)),
    ppf=lambda q, a, b: np.sinh((sp.ndtri(q) - a) / b),
    isf=lambda q, a, b: np.sinh((-sp.ndtri(q) - a) / b),
    mean=lambda a, b: -np.exp(0.5 / b**2) * np.sinh(a / b),
    var=lambda a, b: 0.5 * np.expm1(b**-2.0) * (np.exp(b**-2.0) * np.cosh(2 * a / b) + 1),
)


def _asymmetric_log(y: Any, kappa: Any) -> Any:
    return np.where(y < 0, y / kappa, -y * kappa) - np.log(kappa + 1 / kappa)


def _asymmetric_logsf(y: Any, kappa: Any) -> Any:
    left, square = y < 0, kappa * kappa
    low = np.log1p(-np.exp(np.where(left, y, -1.0) / kappa) * (square / (1 + square)))
    return np.where(left, low, -np.where(left, 0.0, y) * kappa - np.log1p(square))


def _asymmetric_quantile(lp: Any, ls: Any, kappa: Any) -> Any:
    more, less = np.log1p(kappa**2), np.log1p(kappa**-2.0)
    return np.where(lp < -less, kappa * (lp + less), -(ls + more) / kappa)


laplace_asymmetric = Continuous(
    "laplace_asymmetric", _asymmetric_log, logsf=_asymmetric_logsf,
    logcdf=lambda y, kappa: _asymmetric_logsf(-y, 1 / kappa), quantile=_asymmetric_quantile,
    mean=lambda kappa: 1 / kappa - kappa, var=lambda kappa: kappa**-2.0 + kappa**2,
    entropy=lambda kappa: 1 + np.log(kappa + 1 / kappa),
)  # fmt: skip


def _gennorm_cdf(y: Any, beta: Any) -> Any:
    tail = 0.5 * sp.gammaincc(1 / beta, np.abs(y) ** beta)
    return np.where(y < 0, tail, 1 - tail)


def _double_log(tail: Any, y: Any) -> Any:
    """The logarithm of a distribution function from that of the tail of one side."""
    left = y < 0
    right = np.log1p(-0.5 * np.exp(np.where(left, 0.0, tail)))
    return np.where(left, tail - math.log(2), right)


def _gennorm_ppf(q: Any, beta: Any) -> Any:
    left = q < 0.5
    both = 2 * np.where(left, q, 1 - q)
    middle = both == 1
    size = sp.gammainccinv(1 / beta, np.where(middle, 0.5, both)) ** (1 / beta)
    return np.where(middle, 0.0, np.where(left, -size, size))


gennorm = Continuous(
    "gennorm", lambda y, beta: np.log(0.5 * beta) - sp.gammaln(1 / beta) - np.abs(y) ** beta,
    symmetric=True, cdf=_gennorm_cdf,
    logcdf=lambda y, beta: _double_log(log_gammaincc(1 / beta, np.abs(y) ** beta), y),
    ppf=_gennorm_ppf, mean=lambda beta: 0.0 * beta,
    var=lambda beta: np.exp(sp.gammaln(3 / beta) - sp.gammaln(1 / beta)),
    entropy=lambda beta: 1 / beta - np.log(0.5 * beta) + sp.gammaln(1 / beta),
)  # fmt: skip


def _t_log(y: Any, df: Any) -> Any:
    """The normal density for plain ``df`` of inf."""
    many = False if is_traced(df) else np.isinf(df)
    if np.any(many):
        return np.where(many, _log_norm(y), _t_log(y, np.where(many, 1.0, df)))
    top = np.log(sp.poch(0.5 * df, 0.5)) - 0.5 * np.log(df * math.pi)
    return top - 0.5 * (df + 1) * np.log1p(y * y / df)


def _t_entropy(df: Any) -> Any:
    half, more = df / 2, (df + 1) / 2
    spread = 0.5 * np.log(df) + sp.betaln(half, 0.5)
    return more * (sp.psi(more) - sp.psi(half)) + spread


def _t_var(df: Any) -> Any:
    exists = df > 2
    value = np.where(exists, df, 3.0) / (np.where(exists, df, 3.0) - 2)
    return np.where(exists, value, np.where(df > 1, np.inf, np.nan))


t = Continuous(
    "t", _t_log, symmetric=True, cdf=lambda y, df: sp.stdtr(df, y),
    ppf=lambda q, df: sp.stdtrit(df, q), mean=lambda df: np.where(df > 1, 0.0, np.inf), var=_t_var,
    entropy=_t_entropy,
)  # fmt: skip


def _skew_mean(a: Any) -> Any:
    return math.sqrt(2 / math.pi) * a / np.hypot(1.0, a)


skewnorm = Continuous(
    "skewnorm", lambda y, a: _log_norm(y) + sp.log_ndtr(a * y) + math.log(2), valid=_finite,
    folded=False, cdf=lambda y, a: sp.ndtr(y) - 2 * sp.owens_t(y, a),
    sf=lambda y, a: sp.ndtr(-y) + 2 * sp.owens_t(y, a), mean=_skew_mean,
    var=lambda a: 1 - _skew_mean(a) ** 2,
)  # fmt: skip


def _exponential_part(y: Any, K: Any) -> Any:
    return 0.5 / (K * K) - y / K + sp.log_ndtr(y - 1 / K)


exponnorm = Continuous(
    "exponnorm", lambda y, K: _exponential_part(y, K) - np.log(K), folded=False,
    cdf=lambda y, K: sp.ndtr(y) - np.exp(_exponential_part(y, K)),
    logsf=lambda y, K: np.logaddexp(sp.log_ndtr(-y), _exponential_part(y, K)),
    mean=lambda K: K, var=lambda K: 1 + K * K,
)  # fmt: skip


def _von_mises_entropy(kappa: Any) -> Any:
    base = sp.i0e(kappa)
    return kappa * (1 - sp.i1e(kappa) / base) + np.log(base) + LOG_2PI


vonmises = Continuous(
    "vonmises", lambda y, kappa: kappa * sp.cosm1(y) - LOG_2PI - np.log(sp.i0e(kappa)),
    valid=lambda kappa: kappa >= 0, entropy=_von_mises_entropy,
)  # fmt: skip


# -- the support depends on the shape -----------------------------------------------------------


def _log1p_over(c: Any, y: Any) -> Any:
    """log(1 + c y) / c, which is y at c = 0."""
    return y * _log1p_ratio(c * y)


genpareto = Continuous(
    "genpareto", lambda y, c: -(1 + c) * _log1p_over(c, y), valid=_finite, inside=0.0,
    support=lambda c: (0.0, np.where(c < 0, -1 / np.where(c < 0, c, -1.0), np.inf)),
    logsf=lambda y, c: -_log1p_over(c, y), quantile=lambda lp, ls, c: -ls * sp.exprel(-c * ls),
    mean=lambda c: np.where(c < 1, 1 / (1 - np.where(c < 1, c, 0.0)), np.inf),
    var=lambda c: np.where(c < 0.5, _genpareto_var(np.where(c < 0.5, c, 0.0)), np.inf),
    entropy=lambda c: 1 + c,
)  # fmt: skip


def _genpareto_var(c: Any) -> Any:
    return 1 / ((1 - c) ** 2 * (1 - 2 * c))


def _extreme(y: Any, c: Any) -> Any:
    """The logarithm of -log cdf."""
    return -_log1p_over(-c, y)


def _extreme_support(c: Any) -> tuple[Any, Any]:
    end = 1 / np.where(c == 0, 1.0, c)
    return np.where(c < 0, end, -np.inf), np.where(c > 0, end, np.inf)


def _extreme_quantile(lp: Any, ls: Any, c: Any) -> Any:
    w = np.log(-lp)
    return -w * sp.exprel(c * w)


genextreme = Continuous(
    "genextreme", lambda y, c: (1 - c) * _extreme(y, c) - np.exp(_extreme(y, c)),
    valid=_finite, inside=0.0, support=_extreme_support,
    logcdf=lambda y, c: -np.exp(_extreme(y, c)), quantile=_extreme_quantile,
    entropy=lambda c: _GAMMA * (1 - c) + 1,
)  # fmt: skip


def _interval(low: Any, high: Any) -> Any:
    """The logarithm of the normal probability of an interval, from the nearer tail."""
    flip = low > 0
    below, above = np.where(flip, -high, low), np.where(flip, -low, high)
    upper = sp.log_ndtr(above)
    return upper + log1mexp(sp.log_ndtr(below) - upper)


def _truncnorm_quantile(lp: Any, ls: Any, a: Any, b: Any) -> Any:
    flip = a > 0
    start = sp.log_ndtr(np.where(flip, -b, a))
    z = sp.ndtri_exp(np.logaddexp(start, np.where(flip, ls, lp) + _interval(a, b)))
    return np.where(flip, -z, z)


def _truncnorm_mean(a: Any, b: Any) -> Any:
    mass = _interval(a, b)
    return np.exp(_log_norm(a) - mass) - np.exp(_log_norm(b) - mass)


def _truncnorm_inside(a: Any, b: Any) -> Any:
    low, high = np.maximum(a, -1e300), np.minimum(b, 1e300)
    return 0.5 * (np.maximum(low, np.minimum(high, 0.0)) + np.minimum(high, np.maximum(low, 0.0)))


truncnorm = Continuous(
    "truncnorm", lambda y, a, b: _log_norm(y) - _interval(a, b), valid=lambda a, b: a < b,
    support=lambda a, b: (a, b), inside=_truncnorm_inside,
    logcdf=lambda y, a, b: _interval(a, y) - _interval(a, b),
    logsf=lambda y, a, b: _interval(y, b) - _interval(a, b), quantile=_truncnorm_quantile,
    mean=_truncnorm_mean,
)  # fmt: skip
