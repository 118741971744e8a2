"""Discrete distributions: derivatives by their parameters; counts are data.

Formulas: Johnson, Kemp, Kotz, "Univariate Discrete Distributions", in the parametrization of
``scipy.stats``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapec.scipy import special as sp
from tapec.scipy.stats._distribution import Discrete, Distribution, on_traced
from tapec.scipy.stats._functions import log_zeta
from tapec.tape import is_traced

__all__ = [
    "bernoulli", "betabinom", "binom", "dlaplace", "geom", "hypergeom", "logser", "nbinom",
    "planck", "poisson", "skellam", "zipf",
]  # fmt: skip


def _choose(n: Any, k: Any) -> Any:
    """The logarithm of a binomial coefficient."""
    return sp.gammaln(n + 1.0) - sp.gammaln(k + 1.0) - sp.gammaln(n - k + 1.0)


def _probability(p: Any) -> Any:
    return (p >= 0) & (p <= 1)


def _whole(n: Any) -> Any:
    return (n >= 0) & (n == np.floor(n))


poisson = Discrete(
    "poisson", lambda k, mu: sp.xlogy(k, mu) - sp.gammaln(k + 1.0) - mu,
    valid=lambda mu: mu >= 0, cdf=lambda k, mu: sp.gammaincc(k + 1.0, mu),
    sf=lambda k, mu: sp.gammainc(k + 1.0, mu), mean=lambda mu: mu, var=lambda mu: mu,
)  # fmt: skip
binom = Discrete(
    "binom", lambda k, n, p: _choose(n, k) + sp.xlogy(k, p) + sp.xlog1py(n - k, -p),
    support=lambda n, p: (0.0, n), valid=lambda n, p: _whole(n) & _probability(p),
    cdf=lambda k, n, p: sp.betainc(n - k, k + 1.0, 1 - p),
    sf=lambda k, n, p: sp.betainc(k + 1.0, n - k, p), mean=lambda n, p: n * p,
    var=lambda n, p: n * p * (1 - p),
)  # fmt: skip


def _bernoulli_entropy(p: Any) -> Any:
    return sp.entr(p) + sp.entr(1 - p)


bernoulli = Discrete(
    "bernoulli", lambda k, p: sp.xlogy(k, p) + sp.xlog1py(1 - k, -p), support=(0.0, 1.0),
    valid=_probability, cdf=lambda k, p: 1 - p + 0 * k, sf=lambda k, p: p + 0 * k,
    mean=lambda p: p, var=lambda p: p * (1 - p), entropy=_bernoulli_entropy,
)  # fmt: skip
geom = Discrete(
    "geom", lambda k, p: sp.xlog1py(k - 1, -p) + np.log(p), support=(1.0, math.inf),
    valid=lambda p: (p > 0) & (p <= 1), logsf=lambda k, p: k * np.log1p(-p),
    mean=lambda p: 1 / p, var=lambda p: (1 - p) / p / p,
    entropy=lambda p: -np.log(p) - sp.xlog1py(1 - p, -p) / p,
)  # fmt: skip


def _nbinom_log(k: Any, n: Any, p: Any) -> Any:
    choices = sp.gammaln(n + k) - sp.gammaln(k + 1.0) - sp.gammaln(n)
    return choices + n * np.log(p) + sp.xlog1py(k, -p)


nbinom = Discrete(
    "nbinom", _nbinom_log, valid=lambda n, p: (n > 0) & (p > 0) & (p <= 1),
    cdf=lambda k, n, p: sp.betainc(n, k + 1.0, p), sf=lambda k, n, p: sp.betainc(k + 1.0, n, 1 - p),
    mean=lambda n, p: n * (1 - p) / p, var=lambda n, p: n * (1 - p) / p**2,
)  # fmt: skip


def _betabinom_log(k: Any, n: Any, a: Any, b: Any) -> Any:
    choices = -np.log(n + 1.0) - sp.betaln(n - k + 1.0, k + 1.0)
    return choices + sp.betaln(k + a, n - k + b) - sp.betaln(a, b)


betabinom = Discrete(
    "betabinom", _betabinom_log, support=lambda n, a, b: (0.0, n),
    valid=lambda n, a, b: _whole(n) & (a > 0) & (b > 0), mean=lambda n, a, b: n * a / (a + b),
    var=lambda n, a, b: n * (a * b) * (a + b + n) / ((a + b) ** 2 * (a + b + 1)),
)  # fmt: skip


logser = Discrete(
    "logser", lambda k, p: sp.xlogy(k, p) - np.log(k) - np.log(-np.log1p(-p)),
    support=(1.0, math.inf), valid=lambda p: (p > 0) & (p < 1),
    mean=lambda p: p / (p - 1) / np.log1p(-p),
)  # fmt: skip
planck = Discrete(
    "planck", lambda k, lambda_: np.log(-np.expm1(-lambda_)) - lambda_ * k,
    logsf=lambda k, lambda_: -lambda_ * (k + 1), mean=lambda lambda_: 1 / np.expm1(lambda_),
    var=lambda lambda_: np.exp(-lambda_) / np.expm1(-lambda_) ** 2,
)  # fmt: skip
dlaplace = Discrete(
    "dlaplace", lambda k, a: np.log(np.tanh(0.5 * a)) - a * np.abs(k),
    support=(-math.inf, math.inf), mean=lambda a: 0.0 * a,
    var=lambda a: 2 * np.exp(a) / np.expm1(a) ** 2,
)  # fmt: skip
zipf = Discrete(
    "zipf", lambda k, a: -a * np.log(k) - log_zeta(a), support=(1.0, math.inf),
    valid=lambda a: a > 1,
)  # fmt: skip


def _skellam_log(k: Any, mu1: Any, mu2: Any) -> Any:
    """Through the scaled Bessel function of order |k|."""
    apart = (np.sqrt(mu1) - np.sqrt(mu2)) ** 2
    bessel = sp.ive(np.abs(k), 2 * np.sqrt(mu1 * mu2))
    return 0.5 * k * (np.log(mu1) - np.log(mu2)) - apart + np.log(bessel)


skellam = Discrete(
    "skellam", _skellam_log, support=(-math.inf, math.inf), mean=lambda mu1, mu2: mu1 - mu2,
    var=lambda mu1, mu2: mu1 + mu2,
)  # fmt: skip


class _Hypergeometric(Distribution):
    """Its parameters are numbers of things: only the count may be traced."""

    @on_traced
    def logpmf(self, k: Any, M: Any, n: Any, N: Any, loc: Any = 0) -> Any:
        if is_traced([M, n, N]):
            raise self.unsupported("logpmf by M, n or N")
        return _hypergeom.logpmf(k, M, n, N, loc=loc)

    @on_traced
    def pmf(self, k: Any, M: Any, n: Any, N: Any, loc: Any = 0) -> Any:
        return np.exp(self.logpmf(k, M, n, N, loc))


def _hypergeom_log(k: Any, M: Any, n: Any, N: Any) -> Any:
    return _choose(n, k) + _choose(M - n, N - k) - _choose(M, N)


_hypergeom = Discrete(
    "hypergeom", _hypergeom_log,
    support=lambda M, n, N: (np.maximum(0.0, N - (M - n)), np.minimum(n, N)),
    valid=lambda M, n, N: _whole(M) & _whole(n) & _whole(N) & (n <= M) & (N <= M),
)  # fmt: skip
hypergeom = _Hypergeometric("hypergeom")
