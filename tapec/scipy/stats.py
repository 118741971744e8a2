"""Log-densities with the names and parameters of ``scipy.stats``, for traced values.

    from tapec.scipy import stats
    stats.norm.logpdf(x, loc=mu, scale=sigma)

Each distribution has ``logpdf`` (or ``logpmf``) and ``pdf`` (``pmf``), and ``cdf``, ``logcdf``
and ``sf`` where the distribution function has a derivative.  Outside of the support a density is
0 (its log -inf) with derivative 0.  Other methods and distributions are SciPy's own, on plain
arrays.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapec.scipy import special as sp
from tapec.tape import is_traced

__all__ = [
    "bernoulli", "beta", "binom", "cauchy", "chi2", "dirichlet", "expon", "gamma", "geom",
    "gumbel_r", "halfnorm", "invgamma", "laplace", "logistic", "lognorm", "multivariate_normal",
    "nbinom", "norm", "pareto", "poisson", "rayleigh", "t", "truncnorm", "uniform", "vonmises",
    "weibull_min",
]  # fmt: skip

_LOG_2PI = math.log(2 * math.pi)


class _Distribution:
    """One distribution: methods here, the rest from SciPy."""

    name = ""

    def __getattr__(self, name: str) -> Any:
        import scipy.stats

        return getattr(getattr(scipy.stats, self.name), name)


class _Continuous(_Distribution):
    def _log(self, y: Any, *shape: Any) -> Any:
        """The log-density for location 0 and scale 1."""
        raise NotImplementedError

    def _inside(self, y: Any, *shape: Any) -> Any:
        """Where the density is not 0; None: everywhere."""
        return None

    #: how many shape parameters there are, and a point inside of the support
    shapes, point = 0, 0.5

    def logpdf(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        shape, loc, scale = self._parameters(args, kwargs)
        y = (x - loc) / scale
        inside = self._inside(y, *shape)
        if inside is None:
            return self._log(y, *shape) - np.log(scale)
        safe = np.where(inside, y, self.point)
        return np.where(inside, self._log(safe, *shape) - np.log(scale), -np.inf)

    def pdf(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        return np.exp(self.logpdf(x, *args, **kwargs))

    def _standard(self, x: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        shape, loc, scale = self._parameters(args, kwargs)
        return (x - loc) / scale, shape

    def _parameters(self, args: Any, kwargs: Any) -> tuple[tuple[Any, ...], Any, Any]:
        n = self.shapes
        names = self._names()
        values = list(args[:n])
        for name in names[len(values) :]:
            values.append(kwargs.pop(name))
        rest = list(args[n:])
        loc = rest.pop(0) if rest else kwargs.pop("loc", 0.0)
        scale = rest.pop(0) if rest else kwargs.pop("scale", 1.0)
        if kwargs or rest:
            raise TypeError(f"{self.name}: unexpected arguments {[*rest, *kwargs]}")
        return tuple(values), loc, scale

    def _names(self) -> tuple[str, ...]:
        code = type(self)._log.__code__
        return code.co_varnames[2 : 2 + self.shapes]


class _Norm(_Continuous):
    name = "norm"

    def _log(self, y: Any) -> Any:
        return -0.5 * (y * y + _LOG_2PI)

    def cdf(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        return sp.ndtr(self._standard(x, args, kwargs)[0])

    def sf(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        return sp.ndtr(-self._standard(x, args, kwargs)[0])

    def logcdf(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        return sp.log_ndtr(self._standard(x, args, kwargs)[0])

    def logsf(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        return sp.log_ndtr(-self._standard(x, args, kwargs)[0])

    def ppf(self, q: Any, *args: Any, **kwargs: Any) -> Any:
        _, loc, scale = self._parameters(args, kwargs)
        return sp.ndtri(q) * scale + loc


class _T(_Continuous):
    name, shapes = "t", 1

    def _log(self, y: Any, df: Any) -> Any:
        half = (df + 1) / 2
        norm = sp.gammaln(half) - sp.gammaln(df / 2) - 0.5 * np.log(df * math.pi)
        return norm - half * np.log1p(y * y / df)

    def cdf(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        y, (df,) = self._standard(x, args, kwargs)
        return sp.stdtr(df, y)


class _Gamma(_Continuous):
    name, shapes = "gamma", 1

    def _inside(self, y: Any, a: Any) -> Any:
        return y >= 0

    def _log(self, y: Any, a: Any) -> Any:
        return sp.xlogy(a - 1.0, y) - y - sp.gammaln(a)

    def cdf(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        y, (a,) = self._standard(x, args, kwargs)
        return np.where(y > 0, sp.gammainc(a, np.where(y > 0, y, 1.0)), 0.0)


class _InvGamma(_Continuous):
    name, shapes = "invgamma", 1

    def _inside(self, y: Any, a: Any) -> Any:
        return y > 0

    def _log(self, y: Any, a: Any) -> Any:
        return -(a + 1) * np.log(y) - sp.gammaln(a) - 1 / y


class _Chi2(_Continuous):
    name, shapes = "chi2", 1

    def _inside(self, y: Any, df: Any) -> Any:
        return y >= 0

    def _log(self, y: Any, df: Any) -> Any:
        half = df / 2
        return sp.xlogy(half - 1.0, y) - y / 2 - sp.gammaln(half) - half * math.log(2)


class _Beta(_Continuous):
    name, shapes = "beta", 2

    def _inside(self, y: Any, a: Any, b: Any) -> Any:
        return (y >= 0) & (y <= 1)

    def _log(self, y: Any, a: Any, b: Any) -> Any:
        return sp.xlogy(a - 1.0, y) + sp.xlog1py(b - 1.0, -y) - sp.betaln(a, b)


class _Expon(_Continuous):
    name = "expon"

    def _inside(self, y: Any) -> Any:
        return y >= 0

    def _log(self, y: Any) -> Any:
        return -y


class _Uniform(_Continuous):
    name = "uniform"

    def _inside(self, y: Any) -> Any:
        return (y >= 0) & (y <= 1)

    def _log(self, y: Any) -> Any:
        return 0.0 * y


class _Laplace(_Continuous):
    name = "laplace"

    def _log(self, y: Any) -> Any:
        return -np.abs(y) - math.log(2)


class _Cauchy(_Continuous):
    name = "cauchy"

    def _log(self, y: Any) -> Any:
        return -math.log(math.pi) - np.log1p(y * y)


class _Logistic(_Continuous):
    name = "logistic"

    def _log(self, y: Any) -> Any:
        return sp.log_expit(y) + sp.log_expit(-y)

    def cdf(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        return sp.expit(self._standard(x, args, kwargs)[0])


class _LogNorm(_Continuous):
    name, shapes = "lognorm", 1

    def _inside(self, y: Any, s: Any) -> Any:
        return y > 0

    def _log(self, y: Any, s: Any) -> Any:
        log = np.log(y)
        return -0.5 * (log / s) ** 2 - log - np.log(s) - 0.5 * _LOG_2PI


class _HalfNorm(_Continuous):
    name = "halfnorm"

    def _inside(self, y: Any) -> Any:
        return y >= 0

    def _log(self, y: Any) -> Any:
        return 0.5 * math.log(2 / math.pi) - 0.5 * y * y


class _Weibull(_Continuous):
    name, shapes = "weibull_min", 1

    def _inside(self, y: Any, c: Any) -> Any:
        return y >= 0

    def _log(self, y: Any, c: Any) -> Any:
        return np.log(c) + sp.xlogy(c - 1.0, y) - y**c


class _Pareto(_Continuous):
    name, shapes, point = "pareto", 1, 2.0

    def _inside(self, y: Any, b: Any) -> Any:
        return y >= 1

    def _log(self, y: Any, b: Any) -> Any:
        return np.log(b) - (b + 1) * np.log(y)


class _Gumbel(_Continuous):
    name = "gumbel_r"

    def _log(self, y: Any) -> Any:
        return -y - np.exp(-y)


class _Rayleigh(_Continuous):
    name = "rayleigh"

    def _inside(self, y: Any) -> Any:
        return y >= 0

    def _log(self, y: Any) -> Any:
        return np.log(y) - 0.5 * y * y


class _VonMises(_Continuous):
    name, shapes = "vonmises", 1

    def _log(self, y: Any, kappa: Any) -> Any:
        return kappa * (np.cos(y) - 1) - _LOG_2PI - np.log(sp.i0e(kappa))


class _TruncNorm(_Continuous):
    name, shapes = "truncnorm", 2

    def _inside(self, y: Any, a: Any, b: Any) -> Any:
        return (y >= a) & (y <= b)

    def _log(self, y: Any, a: Any, b: Any) -> Any:
        # the mass of the tail that both limits lie in, from its nearer end
        flip = a > 0
        low, high = np.where(flip, -b, a), np.where(flip, -a, b)
        upper, lower = sp.log_ndtr(high), sp.log_ndtr(low)
        mass = upper + np.log1p(-np.exp(lower - upper))
        return -0.5 * (y * y + _LOG_2PI) - mass


# -- discrete distributions: the counts are data ------------------------------------------------


class _Discrete(_Distribution):
    def _log(self, k: Any, *parameters: Any) -> Any:
        raise NotImplementedError

    def logpmf(self, k: Any, *args: Any, loc: Any = 0, **kwargs: Any) -> Any:
        names = type(self)._log.__code__.co_varnames[2 : type(self)._log.__code__.co_argcount]
        values = [*args, *[kwargs.pop(n) for n in names[len(args) :]]]
        return self._log(k - loc if is_traced(loc) or np.any(loc) else k, *values)

    def pmf(self, k: Any, *args: Any, **kwargs: Any) -> Any:
        return np.exp(self.logpmf(k, *args, **kwargs))


class _Poisson(_Discrete):
    name = "poisson"

    def _log(self, k: Any, mu: Any) -> Any:
        return np.where(k >= 0, sp.xlogy(k, mu) - sp.gammaln(k + 1.0) - mu, -np.inf)


class _Binom(_Discrete):
    name = "binom"

    def _log(self, k: Any, n: Any, p: Any) -> Any:
        choices = sp.gammaln(n + 1.0) - sp.gammaln(k + 1.0) - sp.gammaln(n - k + 1.0)
        value = choices + sp.xlogy(k, p) + sp.xlog1py(n - k, -p)
        return np.where((k >= 0) & (k <= n), value, -np.inf)


class _Bernoulli(_Discrete):
    name = "bernoulli"

    def _log(self, k: Any, p: Any) -> Any:
        return np.where((k == 0) | (k == 1), sp.xlogy(k, p) + sp.xlog1py(1 - k, -p), -np.inf)


class _Geom(_Discrete):
    name = "geom"

    def _log(self, k: Any, p: Any) -> Any:
        return np.where(k >= 1, sp.xlog1py(k - 1, -p) + np.log(p), -np.inf)


class _NBinom(_Discrete):
    name = "nbinom"

    def _log(self, k: Any, n: Any, p: Any) -> Any:
        choices = sp.gammaln(n + k) - sp.gammaln(k + 1.0) - sp.gammaln(n)
        return np.where(k >= 0, choices + n * np.log(p) + sp.xlog1py(k, -p), -np.inf)


# -- several dimensions ---------------------------------------------------------------------------


class _MultivariateNormal(_Distribution):
    name = "multivariate_normal"

    def logpdf(self, x: Any, mean: Any = None, cov: Any = 1.0, allow_singular: bool = False) -> Any:
        """Through the Cholesky factor of the covariance."""
        if not any(map(is_traced, (x, mean, cov))):
            import scipy.stats

            return scipy.stats.multivariate_normal.logpdf(x, mean, cov, allow_singular)
        d = np.shape(x)[-1] if np.ndim(x) else 1
        if mean is not None:
            x = x - mean
            d = np.shape(x)[-1] if np.ndim(x) else 1
        if np.ndim(cov) == 0:
            cov = cov * np.eye(d)
        elif np.ndim(cov) == 1:
            cov = np.diag(cov)
        factor = np.linalg.cholesky(cov)
        rows = np.reshape(x, (-1, d))
        z = np.linalg.solve(factor, np.transpose(rows))
        half_log_det = np.sum(np.log(np.diagonal(factor)))
        log = -0.5 * np.sum(z * z, axis=0) - half_log_det - 0.5 * d * _LOG_2PI
        lead = np.shape(x)[:-1] if np.ndim(x) > 1 else ()
        return np.reshape(log, lead)

    def pdf(self, x: Any, mean: Any = None, cov: Any = 1.0, allow_singular: bool = False) -> Any:
        return np.exp(self.logpdf(x, mean, cov, allow_singular))


class _Dirichlet(_Distribution):
    name = "dirichlet"

    def logpdf(self, x: Any, alpha: Any) -> Any:
        """``x`` of shape (k,) or (k, n): the components stand first."""
        norm = np.sum(sp.gammaln(alpha)) - sp.gammaln(np.sum(alpha))
        weights = alpha - 1.0
        if np.ndim(x) > 1:
            weights = np.reshape(weights, (-1, 1))
        return np.sum(sp.xlogy(weights, x), axis=0) - norm

    def pdf(self, x: Any, alpha: Any) -> Any:
        return np.exp(self.logpdf(x, alpha))


norm, t, gamma, invgamma, chi2, beta = _Norm(), _T(), _Gamma(), _InvGamma(), _Chi2(), _Beta()
expon, uniform, laplace, cauchy = _Expon(), _Uniform(), _Laplace(), _Cauchy()
logistic, lognorm, halfnorm, weibull_min = _Logistic(), _LogNorm(), _HalfNorm(), _Weibull()
pareto, gumbel_r, rayleigh, vonmises = _Pareto(), _Gumbel(), _Rayleigh(), _VonMises()
truncnorm = _TruncNorm()
poisson, binom, bernoulli, geom, nbinom = _Poisson(), _Binom(), _Bernoulli(), _Geom(), _NBinom()
multivariate_normal, dirichlet = _MultivariateNormal(), _Dirichlet()


def __getattr__(name: str) -> Any:
    import scipy.stats

    return getattr(scipy.stats, name)
