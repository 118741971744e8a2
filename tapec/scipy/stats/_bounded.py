"""Continuous distributions on a half-line or an interval.

Formulas: Johnson, Kotz, Balakrishnan, "Continuous Univariate Distributions", in the
parametrization of ``scipy.stats``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapec.scipy import special as sp
from tapec.scipy.stats._distribution import Continuous
from tapec.scipy.stats._functions import LOG_2PI, log1mexp, log_gammaincc

__all__ = [
    "arcsine", "beta", "betaprime", "bradford", "burr", "burr12", "chi", "chi2", "erlang",
    "expon", "exponweib", "f", "fisk", "foldnorm", "gamma", "gibrat", "gompertz", "halfcauchy",
    "halflogistic", "halfnorm", "invgamma", "invgauss", "invweibull", "levy", "loglaplace",
    "lognorm", "loguniform", "lomax", "maxwell", "nakagami", "pareto", "powerlaw", "rayleigh",
    "reciprocal", "rice", "triang", "truncexpon", "uniform", "weibull_max", "weibull_min",
    "wrapcauchy",
]  # fmt: skip

_GAMMA = float(np.euler_gamma)
_HALF_LINE = (0.0, math.inf)
_UNIT = (0.0, 1.0)


def _beyond(parameter: Any, limit: float, value: Any) -> Any:
    """A moment that is finite where a parameter is above a limit."""
    exists = parameter > limit
    return np.where(exists, value(np.where(exists, parameter, limit + 1)), np.inf)


# -- exponential and gamma ------------------------------------------------------------------------

expon = Continuous(
    "expon", lambda y: -y, support=_HALF_LINE, logsf=lambda y: -y, quantile=lambda lp, ls: -ls,
    mean=lambda: 1.0, var=lambda: 1.0, entropy=lambda: 1.0,
)  # fmt: skip


def _gamma(name: str) -> Continuous:
    return Continuous(
        name, lambda y, a: sp.xlogy(a - 1.0, y) - y - sp.gammaln(a), support=_HALF_LINE,
        cdf=lambda y, a: sp.gammainc(a, y), sf=lambda y, a: sp.gammaincc(a, y),
        logsf=lambda y, a: log_gammaincc(a, y),
        ppf=lambda q, a: sp.gammaincinv(a, q), isf=lambda q, a: sp.gammainccinv(a, q),
        mean=lambda a: a, var=lambda a: a,
        entropy=lambda a: sp.psi(a) * (1 - a) + a + sp.gammaln(a),
    )  # fmt: skip


gamma, erlang = _gamma("gamma"), _gamma("erlang")


def _chi2_log(y: Any, df: Any) -> Any:
    return sp.xlogy(df / 2 - 1.0, y) - y / 2 - sp.gammaln(df / 2) - 0.5 * math.log(2) * df


def _chi2_entropy(df: Any) -> Any:
    half = df / 2
    return half + math.log(2) + sp.gammaln(half) + (1 - half) * sp.psi(half)


chi2 = Continuous(
    "chi2", _chi2_log, support=_HALF_LINE, cdf=lambda y, df: sp.gammainc(df / 2, y / 2),
    sf=lambda y, df: sp.gammaincc(df / 2, y / 2),
    logsf=lambda y, df: log_gammaincc(df / 2, y / 2),
    ppf=lambda q, df: 2 * sp.gammaincinv(df / 2, q),
    isf=lambda q, df: 2 * sp.gammainccinv(df / 2, q), mean=lambda df: df, var=lambda df: 2 * df,
    entropy=_chi2_entropy,
)  # fmt: skip


def _chi_log(y: Any, df: Any) -> Any:
    top = math.log(2) * (1 - 0.5 * df) - sp.gammaln(0.5 * df)
    return top + sp.xlogy(df - 1.0, y) - 0.5 * y * y


def _chi_mean(df: Any) -> Any:
    return math.sqrt(2) * sp.poch(0.5 * df, 0.5)


chi = Continuous(
    "chi", _chi_log, support=_HALF_LINE, cdf=lambda y, df: sp.gammainc(0.5 * df, 0.5 * y * y),
    sf=lambda y, df: sp.gammaincc(0.5 * df, 0.5 * y * y),
    logsf=lambda y, df: log_gammaincc(0.5 * df, 0.5 * y * y),
    ppf=lambda q, df: np.sqrt(2 * sp.gammaincinv(0.5 * df, q)),
    isf=lambda q, df: np.sqrt(2 * sp.gammainccinv(0.5 * df, q)), mean=_chi_mean,
    var=lambda df: df - _chi_mean(df) ** 2,
    entropy=lambda df: (
        sp.gammaln(0.5 * df) + 0.5 * (df - math.log(2) - (df - 1) * sp.psi(0.5 * df))
    ),
)  # fmt: skip
maxwell = Continuous(
    "maxwell", lambda y: 0.5 * math.log(2 / math.pi) + 2 * np.log(y) - 0.5 * y * y,
    support=_HALF_LINE, cdf=lambda y: sp.gammainc(1.5, 0.5 * y * y),
    sf=lambda y: sp.gammaincc(1.5, 0.5 * y * y), logsf=lambda y: log_gammaincc(1.5, 0.5 * y * y),
    ppf=lambda q: np.sqrt(2 * sp.gammaincinv(1.5, q)),
    isf=lambda q: np.sqrt(2 * sp.gammainccinv(1.5, q)), mean=lambda: 2 * math.sqrt(2 / math.pi),
    var=lambda: 3 - 8 / math.pi, entropy=lambda: _GAMMA + 0.5 * LOG_2PI - 0.5,
)  # fmt: skip


def _nakagami_log(y: Any, nu: Any) -> Any:
    top = math.log(2) + sp.xlogy(nu, nu) - sp.gammaln(nu)
    return top + sp.xlogy(2 * nu - 1.0, y) - nu * (y * y)


def _nakagami_mean(nu: Any) -> Any:
    return sp.poch(nu, 0.5) / np.sqrt(nu)


nakagami = Continuous(
    "nakagami", _nakagami_log, support=_HALF_LINE, cdf=lambda y, nu: sp.gammainc(nu, nu * (y * y)),
    sf=lambda y, nu: sp.gammaincc(nu, nu * (y * y)),
    logsf=lambda y, nu: log_gammaincc(nu, nu * (y * y)),
    ppf=lambda q, nu: np.sqrt(sp.gammaincinv(nu, q) / nu),
    isf=lambda q, nu: np.sqrt(sp.gammainccinv(nu, q) / nu), mean=_nakagami_mean,
    var=lambda nu: 1 - _nakagami_mean(nu) ** 2,
)  # fmt: skip
invgamma = Continuous(
    "invgamma", lambda y, a: -(a + 1) * np.log(y) - sp.gammaln(a) - 1 / y, support=_HALF_LINE,
    open=True, cdf=lambda y, a: sp.gammaincc(a, 1 / y), sf=lambda y, a: sp.gammainc(a, 1 / y),
    logcdf=lambda y, a: log_gammaincc(a, 1 / y),
    ppf=lambda q, a: 1 / sp.gammainccinv(a, q), isf=lambda q, a: 1 / sp.gammaincinv(a, q),
    mean=lambda a: _beyond(a, 1, lambda a: 1 / (a - 1)),
    var=lambda a: _beyond(a, 2, lambda a: 1 / ((a - 1) ** 2 * (a - 2))),
    entropy=lambda a: a - (a + 1) * sp.psi(a) + sp.gammaln(a),
)  # fmt: skip

# -- normal and Cauchy ----------------------------------------------------------------------------


def _halfnorm_logsf(y: Any) -> Any:
    small = y < 1
    near = np.log1p(-sp.erf(np.where(small, y, 0.0) * math.sqrt(0.5)))
    return np.where(small, near, math.log(2) + sp.log_ndtr(-np.where(small, 1.0, y)))


def _halflogistic_logsf(y: Any) -> Any:
    small = y < 1
    near = -np.log1p(0.5 * np.expm1(np.where(small, y, 0.0)))
    return np.where(small, near, math.log(2) + sp.log_expit(-np.where(small, 1.0, y)))


halfnorm = Continuous(
    "halfnorm", lambda y: 0.5 * math.log(2 / math.pi) - 0.5 * y * y, support=_HALF_LINE,
    cdf=lambda y: sp.erf(y * math.sqrt(0.5)), sf=lambda y: sp.erfc(y * math.sqrt(0.5)),
    logsf=_halfnorm_logsf, ppf=lambda q: math.sqrt(2) * sp.erfinv(q),
    isf=lambda q: math.sqrt(2) * sp.erfcinv(q), mean=lambda: math.sqrt(2 / math.pi),
    var=lambda: 1 - 2 / math.pi, entropy=lambda: 0.5 * math.log(math.pi / 2) + 0.5,
)  # fmt: skip


def _log_normal(y: Any, s: Any) -> Any:
    log = np.log(y)
    return -0.5 * (log / s) ** 2 - log - np.log(s) - 0.5 * LOG_2PI


lognorm = Continuous(
    "lognorm", _log_normal, support=_HALF_LINE, open=True, cdf=lambda y, s: sp.ndtr(np.log(y) / s),
    sf=lambda y, s: sp.ndtr(-np.log(y) / s), logcdf=lambda y, s: sp.log_ndtr(np.log(y) / s),
    logsf=lambda y, s: sp.log_ndtr(-np.log(y) / s), ppf=lambda q, s: np.exp(s * sp.ndtri(q)),
    isf=lambda q, s: np.exp(-s * sp.ndtri(q)), mean=lambda s: np.exp(0.5 * s * s),
    var=lambda s: np.expm1(s * s) * np.exp(s * s),
    entropy=lambda s: 0.5 * (1 + LOG_2PI + 2 * np.log(s)),
)  # fmt: skip


gibrat = Continuous(
    "gibrat", lambda y: _log_normal(y, 1.0), support=_HALF_LINE, open=True,
    cdf=lambda y: sp.ndtr(np.log(y)), sf=lambda y: sp.ndtr(-np.log(y)),
    logcdf=lambda y: sp.log_ndtr(np.log(y)), logsf=lambda y: sp.log_ndtr(-np.log(y)),
    ppf=lambda q: np.exp(sp.ndtri(q)), isf=lambda q: np.exp(-sp.ndtri(q)),
    mean=lambda: math.exp(0.5), var=lambda: math.e * math.expm1(1.0),
    entropy=lambda: 0.5 * LOG_2PI + 0.5,
)  # fmt: skip
foldnorm = Continuous(
    "foldnorm", lambda y, c: -0.5 * ((y - c) ** 2 + LOG_2PI) + np.log1p(np.exp(-2 * c * y)),
    support=_HALF_LINE, valid=lambda c: c >= 0, folded=False,
    cdf=lambda y, c: 0.5 * (sp.erf((y - c) * math.sqrt(0.5)) + sp.erf((y + c) * math.sqrt(0.5))),
    sf=lambda y, c: sp.ndtr(c - y) + sp.ndtr(-y - c),
    logsf=lambda y, c: np.logaddexp(sp.log_ndtr(c - y), sp.log_ndtr(-y - c)),
)  # fmt: skip
rice = Continuous(
    "rice", lambda y, b: np.log(y) - 0.5 * (y - b) ** 2 + np.log(sp.i0e(y * b)),
    support=_HALF_LINE, valid=lambda b: b >= 0,
)  # fmt: skip


def _invgauss_log(y: Any, mu: Any) -> Any:
    return -0.5 * LOG_2PI - 1.5 * np.log(y) - (y / mu - 1) ** 2 / (2 * y)


def _invgauss_parts(y: Any, mu: Any, sign: int) -> tuple[Any, Any]:
    root = 1 / np.sqrt(y)
    first = sp.log_ndtr(sign * root * (y / mu - 1))
    return first, 2 / mu + sp.log_ndtr(-root * (y / mu + 1)) - first


def _invgauss_logcdf(y: Any, mu: Any) -> Any:
    first, ratio = _invgauss_parts(y, mu, 1)
    return first + np.log1p(np.exp(ratio))


def _invgauss_logsf(y: Any, mu: Any) -> Any:
    first, ratio = _invgauss_parts(y, mu, -1)
    return first + log1mexp(ratio)


invgauss = Continuous(
    "invgauss", _invgauss_log, support=_HALF_LINE, open=True, logcdf=_invgauss_logcdf,
    logsf=_invgauss_logsf, mean=lambda mu: mu, var=lambda mu: mu**3,
)  # fmt: skip
levy = Continuous(
    "levy", lambda y: -0.5 * LOG_2PI - 1.5 * np.log(y) - 0.5 / y, support=_HALF_LINE, open=True,
    cdf=lambda y: sp.erfc(np.sqrt(0.5 / y)), sf=lambda y: sp.erf(np.sqrt(0.5 / y)),
    ppf=lambda q: 0.5 / sp.erfcinv(q) ** 2, isf=lambda q: 0.5 / sp.erfinv(q) ** 2,
    mean=lambda: math.inf, var=lambda: math.inf,
    entropy=lambda: 0.5 * (1 + 3 * _GAMMA + math.log(16 * math.pi)),
)  # fmt: skip
halfcauchy = Continuous(
    "halfcauchy", lambda y: math.log(2 / math.pi) - np.log1p(y * y), support=_HALF_LINE,
    cdf=lambda y: 2 / math.pi * np.arctan(y), sf=lambda y: 2 / math.pi * np.arctan2(1.0, y),
    ppf=lambda q: np.tan(0.5 * math.pi * q), isf=lambda q: 1 / np.tan(0.5 * math.pi * q),
    mean=lambda: math.inf, var=lambda: math.inf, entropy=lambda: LOG_2PI,
)  # fmt: skip
halflogistic = Continuous(
    "halflogistic", lambda y: math.log(2) + sp.log_expit(y) + sp.log_expit(-y), support=_HALF_LINE,
    cdf=lambda y: np.tanh(0.5 * y), sf=lambda y: 2 * sp.expit(-y), logsf=_halflogistic_logsf,
    quantile=lambda lp, ls: np.log1p(np.exp(lp)) - ls, mean=lambda: math.log(4),
    var=lambda: math.pi**2 / 3 - math.log(4) ** 2, entropy=lambda: 2 - math.log(2),
)  # fmt: skip

# -- extreme values and powers --------------------------------------------------------------------


def _weibull_var(c: Any) -> Any:
    return sp.gamma(1 + 2 / c) - sp.gamma(1 + 1 / c) ** 2


def _weibull_entropy(c: Any) -> Any:
    return _GAMMA * (1 - 1 / c) - np.log(c) + 1


weibull_min = Continuous(
    "weibull_min", lambda y, c: np.log(c) + sp.xlogy(c - 1.0, y) - y**c, support=_HALF_LINE,
    logsf=lambda y, c: -(y**c), quantile=lambda lp, ls, c: (-ls) ** (1 / c),
    mean=lambda c: sp.gamma(1 + 1 / c), var=_weibull_var, entropy=_weibull_entropy,
)  # fmt: skip
weibull_max = Continuous(
    "weibull_max", lambda y, c: np.log(c) + sp.xlogy(c - 1.0, -y) - (-y) ** c,
    support=(-math.inf, 0.0), logcdf=lambda y, c: -((-y) ** c),
    quantile=lambda lp, ls, c: -((-lp) ** (1 / c)), mean=lambda c: -sp.gamma(1 + 1 / c),
    var=_weibull_var, entropy=_weibull_entropy,
)  # fmt: skip
invweibull = Continuous(
    "invweibull", lambda y, c: np.log(c) - (c + 1) * np.log(y) - y**-c, support=_HALF_LINE,
    open=True, logcdf=lambda y, c: -(y**-c), quantile=lambda lp, ls, c: (-lp) ** (-1 / c),
    mean=lambda c: _beyond(c, 1, lambda c: sp.gamma(1 - 1 / c)),
    entropy=lambda c: 1 + _GAMMA * (1 + 1 / c) - np.log(c),
)  # fmt: skip


def _exponweib_log(y: Any, a: Any, c: Any) -> Any:
    power = y**c
    top = np.log(a) + np.log(c) - power + sp.xlogy(c - 1.0, y)
    return top + sp.xlogy(a - 1.0, -np.expm1(-power))


exponweib = Continuous(
    "exponweib", _exponweib_log, support=_HALF_LINE, logcdf=lambda y, a, c: a * log1mexp(-(y**c)),
    quantile=lambda lp, ls, a, c: (-log1mexp(lp / a)) ** (1 / c),
)  # fmt: skip
rayleigh = Continuous(
    "rayleigh", lambda y: np.log(y) - 0.5 * y * y, support=_HALF_LINE, logsf=lambda y: -0.5 * y * y,
    quantile=lambda lp, ls: np.sqrt(-2 * ls), mean=lambda: math.sqrt(math.pi / 2),
    var=lambda: (4 - math.pi) / 2, entropy=lambda: _GAMMA / 2 + 1 - 0.5 * math.log(2),
)  # fmt: skip
gompertz = Continuous(
    "gompertz", lambda y, c: np.log(c) + y - c * np.expm1(y), support=_HALF_LINE,
    logsf=lambda y, c: -c * np.expm1(y), quantile=lambda lp, ls, c: np.log1p(-ls / c),
)  # fmt: skip


def _pareto_var(b: Any) -> Any:
    return _beyond(b, 2, lambda b: b / ((b - 2) * (b - 1) ** 2))


pareto = Continuous(
    "pareto", lambda y, b: np.log(b) - (b + 1) * np.log(y), support=(1.0, math.inf),
    logsf=lambda y, b: -b * np.log(y), quantile=lambda lp, ls, b: np.exp(-ls / b),
    mean=lambda b: _beyond(b, 1, lambda b: b / (b - 1)), var=_pareto_var,
    entropy=lambda b: 1 + 1 / b - np.log(b),
)  # fmt: skip
lomax = Continuous(
    "lomax", lambda y, c: np.log(c) - (c + 1) * np.log1p(y), support=_HALF_LINE,
    logsf=lambda y, c: -c * np.log1p(y), quantile=lambda lp, ls, c: np.expm1(-ls / c),
    mean=lambda c: _beyond(c, 1, lambda c: 1 / (c - 1)), var=_pareto_var,
    entropy=lambda c: 1 + 1 / c - np.log(c),
)  # fmt: skip


def _log1p_power(y: Any, c: Any) -> Any:
    """log(1 + y^c), by the reciprocal where y > 1."""
    small = y < 1
    less, more = np.where(small, y, 1.0), np.where(small, 1.0, y)
    return np.where(small, np.log1p(less**c), c * np.log(more) + np.log1p(more**-c))


fisk = Continuous(
    "fisk", lambda y, c: np.log(c) + sp.xlogy(c - 1.0, y) - 2 * _log1p_power(y, c),
    support=_HALF_LINE, cdf=lambda y, c: -np.expm1(-_log1p_power(y, c)),
    logcdf=lambda y, c: -_log1p_power(1 / y, c), logsf=lambda y, c: -_log1p_power(y, c),
    quantile=lambda lp, ls, c: np.exp((lp - ls) / c), entropy=lambda c: 2 - np.log(c),
)  # fmt: skip

burr = Continuous(
    "burr",
    lambda y, c, d: (
        np.log(c) + np.log(d) + sp.xlogy(c * d - 1.0, y) - (d + 1) * _log1p_power(y, c)
    ),
    support=_HALF_LINE, logcdf=lambda y, c, d: -d * _log1p_power(1 / y, c),
    quantile=lambda lp, ls, c, d: np.expm1(-lp / d) ** (-1 / c),
)  # fmt: skip
burr12 = Continuous(
    "burr12",
    lambda y, c, d: np.log(c) + np.log(d) + sp.xlogy(c - 1.0, y) - (d + 1) * _log1p_power(y, c),
    support=_HALF_LINE, logsf=lambda y, c, d: -d * _log1p_power(y, c),
    quantile=lambda lp, ls, c, d: np.expm1(-ls / d) ** (1 / c),
)  # fmt: skip


def _loglaplace_log(y: Any, c: Any) -> Any:
    small = y < 1
    near = sp.xlogy(c - 1.0, np.where(small, y, 1.0))
    return np.log(0.5 * c) + near - (c + 1) * np.log(np.where(small, 1.0, y))


def _loglaplace_cdf(y: Any, c: Any) -> Any:
    small = y < 1
    low = 0.5 * np.where(small, y, 1.0) ** c
    return np.where(small, low, 1 - 0.5 * np.where(small, 1.0, y) ** -c)


loglaplace = Continuous(
    "loglaplace", _loglaplace_log, support=_HALF_LINE, cdf=_loglaplace_cdf,
    sf=lambda y, c: _loglaplace_cdf(1 / y, c),
    quantile=lambda lp, ls, c: np.exp(
        np.where(lp < -math.log(2), lp + math.log(2), -ls - math.log(2)) / c
    ),
    entropy=lambda c: np.log(2.0 / c) + 1.0,
)  # fmt: skip


def _truncexpon_ppf(q: Any, b: Any) -> Any:
    return -np.log1p(q * np.expm1(-b))


truncexpon = Continuous(
    "truncexpon", lambda y, b: -y - log1mexp(-b), support=lambda b: (0.0, b),
    inside=lambda b: 0.5 * b, cdf=lambda y, b: np.expm1(-y) / np.expm1(-b),
    sf=lambda y, b: np.exp(-y) * np.expm1(y - b) / np.expm1(-b), ppf=_truncexpon_ppf,
    isf=lambda q, b: _truncexpon_ppf(1 - q, b),
)  # fmt: skip

# -- beta -----------------------------------------------------------------------------------------


def _beta_log(y: Any, a: Any, b: Any) -> Any:
    return sp.xlogy(a - 1.0, y) + sp.xlog1py(b - 1.0, -y) - sp.betaln(a, b)


def _beta_entropy(a: Any, b: Any) -> Any:
    own = (a - 1) * sp.psi(a) + (b - 1) * sp.psi(b)
    return sp.betaln(a, b) - own + (a + b - 2) * sp.psi(a + b)


beta = Continuous(
    "beta", _beta_log, support=_UNIT, cdf=lambda y, a, b: sp.betainc(a, b, y),
    sf=lambda y, a, b: sp.betainc(b, a, 1 - y), ppf=lambda q, a, b: sp.betaincinv(a, b, q),
    isf=lambda q, a, b: sp.betainccinv(a, b, q), mean=lambda a, b: a / (a + b),
    var=lambda a, b: a * b / ((a + b) ** 2 * (a + b + 1)), entropy=_beta_entropy,
)  # fmt: skip


def _prime_ppf(q: Any, a: Any, b: Any) -> Any:
    part = sp.betaincinv(a, b, q)
    return part / (1 - part)


def _prime_isf(q: Any, a: Any, b: Any) -> Any:
    rest = sp.betaincinv(b, a, q)
    return (1 - rest) / rest


def _prime_var(a: Any, b: Any) -> Any:
    return _beyond(b, 2, lambda b: a * (a + b - 1) / ((b - 2) * (b - 1) ** 2))


betaprime = Continuous(
    "betaprime", lambda y, a, b: sp.xlogy(a - 1.0, y) - sp.xlog1py(a + b, y) - sp.betaln(a, b),
    support=_HALF_LINE, cdf=lambda y, a, b: sp.betainc(a, b, y / (1 + y)),
    sf=lambda y, a, b: sp.betainc(b, a, 1 / (1 + y)), ppf=_prime_ppf, isf=_prime_isf,
    mean=lambda a, b: _beyond(b, 1, lambda b: a / (b - 1)), var=_prime_var,
)  # fmt: skip


def _f_log(y: Any, dfn: Any, dfd: Any) -> Any:
    half, ratio = dfn / 2, dfn / dfd
    top = half * np.log(ratio) - sp.betaln(half, dfd / 2)
    return top + sp.xlogy(half - 1.0, y) - 0.5 * (dfn + dfd) * np.log1p(ratio * y)


def _f_mean(dfn: Any, dfd: Any) -> Any:
    return _beyond(dfd, 2, lambda d: d / (d - 2)) + 0 * dfn


def _f_var(dfn: Any, dfd: Any) -> Any:
    def value(d: Any) -> Any:
        return 2 * d * d * (dfn + d - 2) / (dfn * (d - 2) ** 2 * (d - 4))

    return _beyond(dfd, 4, value)


f = Continuous(
    "f", _f_log, support=_HALF_LINE, cdf=lambda y, dfn, dfd: sp.fdtr(dfn, dfd, y),
    sf=lambda y, dfn, dfd: sp.fdtrc(dfn, dfd, y), mean=_f_mean, var=_f_var,
    ppf=lambda q, dfn, dfd: _prime_ppf(q, dfn / 2, dfd / 2) * (dfd / dfn),
    isf=lambda q, dfn, dfd: _prime_isf(q, dfn / 2, dfd / 2) * (dfd / dfn),
)  # fmt: skip
arcsine = Continuous(
    "arcsine", lambda y: -math.log(math.pi) - 0.5 * (np.log(y) + np.log1p(-y)), support=_UNIT,
    cdf=lambda y: 2 / math.pi * np.arcsin(np.sqrt(y)),
    sf=lambda y: 2 / math.pi * np.arcsin(np.sqrt(1 - y)),
    ppf=lambda q: np.sin(0.5 * math.pi * q) ** 2, isf=lambda q: np.cos(0.5 * math.pi * q) ** 2,
    mean=lambda: 0.5, var=lambda: 0.125, entropy=lambda: math.log(math.pi / 4),
)  # fmt: skip
uniform = Continuous(
    "uniform", lambda y: 0.0 * y, support=_UNIT, cdf=lambda y: y, sf=lambda y: 1 - y,
    ppf=lambda q: q, isf=lambda q: 1 - q, mean=lambda: 0.5, var=lambda: 1 / 12,
    entropy=lambda: 0.0,
)  # fmt: skip
powerlaw = Continuous(
    "powerlaw", lambda y, a: np.log(a) + sp.xlogy(a - 1.0, y), support=_UNIT,
    cdf=lambda y, a: y**a, logcdf=lambda y, a: a * np.log(y),
    quantile=lambda lp, ls, a: np.exp(lp / a), mean=lambda a: a / (a + 1),
    var=lambda a: a / ((a + 2) * (a + 1) ** 2), entropy=lambda a: 1 - 1 / a - np.log(a),
)  # fmt: skip


def _bradford_ppf(q: Any, c: Any) -> Any:
    return np.expm1(q * np.log1p(c)) / c


bradford = Continuous(
    "bradford", lambda y, c: np.log(c) - np.log(np.log1p(c)) - np.log1p(c * y), support=_UNIT,
    cdf=lambda y, c: np.log1p(c * y) / np.log1p(c),
    sf=lambda y, c: np.log1p(c * (1 - y) / (1 + c * y)) / np.log1p(c), ppf=_bradford_ppf,
    isf=lambda q, c: _bradford_ppf(1 - q, c),
)  # fmt: skip


def _sides(y: Any, c: Any) -> tuple[Any, Any, Any]:
    """Whether y is left of the mode, and the mode as a divisor on either side."""
    left = (y < c) | (c == 1)
    return left, np.where(left, c, 0.5), 1 - np.where(left, 0.5, c)


def _triang_log(y: Any, c: Any) -> Any:
    left, up, down = _sides(y, c)
    rise = np.log(np.where(left, y, 0.5)) - np.log(up)
    return math.log(2) + np.where(left, rise, np.log1p(-np.where(left, 0.5, y)) - np.log(down))


def _triang_cdf(y: Any, c: Any) -> Any:
    left, up, down = _sides(y, c)
    return np.where(left, y * y / up, 1 - (1 - y) ** 2 / down)


def _triang_sf(y: Any, c: Any) -> Any:
    left, up, down = _sides(y, c)
    return np.where(left, 1 - y * y / up, (1 - y) ** 2 / down)


def _triang_ppf(q: Any, c: Any) -> Any:
    left = q < c
    up = np.sqrt(np.where(left, c * q, 0.5))
    return np.where(left, up, 1 - np.sqrt(np.where(left, 0.5, (1 - c) * (1 - q))))


triang = Continuous(
    "triang", _triang_log, support=_UNIT, valid=lambda c: (c >= 0) & (c <= 1), cdf=_triang_cdf,
    sf=_triang_sf, ppf=_triang_ppf, isf=lambda q, c: 1 - _triang_ppf(q, 1 - c),
    mean=lambda c: (c + 1) / 3, var=lambda c: (1 - c + c * c) / 18,
    entropy=lambda c: 0.5 - math.log(2) + 0 * c,
)  # fmt: skip


def _reciprocal(name: str) -> Continuous:
    def width(a: Any, b: Any) -> Any:
        return np.log(b) - np.log(a)

    def var(a: Any, b: Any) -> Any:
        return (b - a) * (b + a) / (2 * width(a, b)) - ((b - a) / width(a, b)) ** 2

    return Continuous(
        name, lambda y, a, b: -np.log(y) - np.log(width(a, b)), support=lambda a, b: (a, b),
        valid=lambda a, b: (a > 0) & (a < b), inside=lambda a, b: 0.5 * (a + b),
        cdf=lambda y, a, b: np.log1p((y - a) / a) / width(a, b),
        sf=lambda y, a, b: -np.log1p((y - b) / b) / width(a, b),
        ppf=lambda q, a, b: np.exp(np.log(a) + q * width(a, b)),
        isf=lambda q, a, b: np.exp(np.log(b) - q * width(a, b)),
        mean=lambda a, b: (b - a) / width(a, b), var=var,
        entropy=lambda a, b: 0.5 * (np.log(a) + np.log(b)) + np.log(width(a, b)),
    )  # fmt: skip


loguniform, reciprocal = _reciprocal("loguniform"), _reciprocal("reciprocal")


def _wrapped_log(y: Any, c: Any) -> Any:
    sine = np.sin(0.5 * y)
    return np.log1p(-c * c) - LOG_2PI - np.log((1 - c) ** 2 + 4 * c * sine * sine)


def _wrapped_ppf(q: Any, c: Any) -> Any:
    turn = math.pi * q
    return 2 * np.arctan2((1 - c) * np.sin(turn), (1 + c) * np.cos(turn))


wrapcauchy = Continuous(
    "wrapcauchy", _wrapped_log, support=(0.0, 2 * math.pi), valid=lambda c: (c > 0) & (c < 1),
    cdf=lambda y, c: np.arctan2((1 + c) * np.sin(y / 2), (1 - c) * np.cos(y / 2)) / math.pi,
    sf=lambda y, c: np.arctan2((1 + c) * np.sin(y / 2), -(1 - c) * np.cos(y / 2)) / math.pi,
    ppf=_wrapped_ppf, isf=lambda q, c: 2 * math.pi - _wrapped_ppf(q, c),
    entropy=lambda c: LOG_2PI + np.log1p(-c * c),
)  # fmt: skip
