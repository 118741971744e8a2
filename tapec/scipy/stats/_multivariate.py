"""Distributions of vectors and matrices.

Covariances go through their Cholesky factors, so a matrix that is not positive definite is an
error.  Formulas: Gupta, Nagar, "Matrix Variate Distributions", in the parametrization of
``scipy.stats``; the last axis of ``x`` holds the components, except of ``dirichlet``,
whose first does, and of Wishart's matrices, whose first two do.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapec.errors import TapecValueError, UnsupportedError, fail
from tapec.scipy import special as sp
from tapec.scipy.linalg import solve_triangular
from tapec.scipy.stats._distribution import Distribution, on_traced, poisoned, real
from tapec.scipy.stats._functions import LOG_2PI
from tapec.tape import is_traced

__all__ = [
    "dirichlet", "dirichlet_multinomial", "invwishart", "matrix_normal", "multinomial",
    "multivariate_normal", "multivariate_t", "wishart",
]  # fmt: skip


class _Density(Distribution):
    """``pdf`` from ``logpdf``."""

    @on_traced
    def pdf(self, x: Any, *args: Any, **kwds: Any) -> Any:
        return np.exp(self.logpdf(x, *args, **kwds))


class _Mass(Distribution):
    """``pmf`` from ``logpmf``."""

    @on_traced
    def pmf(self, x: Any, *args: Any, **kwds: Any) -> Any:
        return np.exp(self.logpmf(x, *args, **kwds))


def _half_log_det(factor: Any) -> Any:
    return np.sum(np.log(np.diagonal(factor)))


def _location_and_spread(mean: Any, cov: Any) -> tuple[int, Any, Any]:
    """The dimension, the mean and the covariance matrix, from what SciPy takes."""
    cov = 1.0 if cov is None else getattr(cov, "covariance", cov)
    if mean is not None:
        dim = int(np.size(mean))
    else:
        dim = int(np.shape(cov)[0]) if np.ndim(cov) >= 2 else 1
    mean = np.zeros(dim) if mean is None else np.reshape(real(mean), (dim,))
    cov = real(cov)
    if np.ndim(cov) == 0:
        cov = cov * np.eye(dim)
    elif np.ndim(cov) == 1:
        cov = np.reshape(cov, (1, 1)) if dim == 1 else np.diag(cov)
    if np.shape(cov) != (dim, dim):
        raise fail(TapecValueError, f"a covariance of shape {np.shape(cov)} of {dim} components")
    return dim, mean, cov


def _rows(x: Any, dim: int) -> tuple[Any, tuple[int, ...]]:
    """Points as rows, and the shape of the result (SciPy drops axes of length 1)."""
    x = real(x)
    shape = np.shape(x)
    lead = shape[:-1] if len(shape) > 1 or (shape and dim > 1) else shape
    if dim > 1 and (not shape or shape[-1] not in (1, dim)):
        raise fail(TapecValueError, f"points of shape {shape} of {dim} components")
    if dim > 1 and shape[-1] == 1:
        x = np.broadcast_to(x, (*lead, dim))
    rows = np.reshape(x, (-1, dim))
    return rows, tuple(n for n in lead if n != 1)


def _whitened(x: Any, mean: Any, cov: Any) -> tuple[Any, Any, int, tuple[int, ...]]:
    """Squared Mahalanobis distances, half of the log-determinant, dimension, result shape."""
    dim, mean, cov = _location_and_spread(mean, cov)
    rows, shape = _rows(x, dim)
    factor = np.linalg.cholesky(cov)
    z = solve_triangular(factor, np.transpose(rows - mean), lower=True)
    return np.sum(z * z, axis=0), _half_log_det(factor), dim, shape


class _MultivariateNormal(_Density):
    @on_traced
    def logpdf(self, x: Any, mean: Any = None, cov: Any = 1, allow_singular: bool = False) -> Any:
        distance, spread, dim, shape = _whitened(x, mean, cov)
        return np.reshape(-0.5 * (distance + dim * LOG_2PI) - spread, shape)

    @on_traced
    def entropy(self, mean: Any = None, cov: Any = 1) -> Any:
        dim, _, cov = _location_and_spread(mean, cov)
        return 0.5 * dim * (1 + LOG_2PI) + _half_log_det(np.linalg.cholesky(cov))


class _MultivariateT(_Density):
    @on_traced
    def logpdf(self, x: Any, loc: Any = None, shape: Any = 1, df: Any = 1) -> Any:
        df = real(df)
        if not is_traced(df) and np.isinf(df):
            return multivariate_normal.logpdf(x, loc, shape)
        distance, spread, dim, out = _whitened(x, loc, shape)
        both = 0.5 * (df + dim)
        top = sp.gammaln(both) - sp.gammaln(0.5 * df) - 0.5 * dim * np.log(df * math.pi) - spread
        value = top - both * np.log1p(distance / df)
        return np.reshape(poisoned(df > 0, value), out)


class _Dirichlet(_Density):
    @on_traced
    def logpdf(self, x: Any, alpha: Any) -> Any:
        """``x`` of shape (k,) or (k, n): the components stand first; the last may be left out."""
        x, alpha = real(x), real(alpha)
        (k,) = np.shape(alpha)
        if np.shape(x)[0] == k - 1:
            x = np.concatenate([x, (1 - np.sum(x, axis=0))[None]])
        if np.shape(x)[0] != k:
            raise fail(
                TapecValueError, f"dirichlet: {np.shape(x)[0]} components and {k} parameters"
            )
        norm = np.sum(sp.gammaln(alpha)) - sp.gammaln(np.sum(alpha))
        weights = np.reshape(alpha - 1.0, (k,) + (1,) * (np.ndim(x) - 1))
        return poisoned(np.all(alpha > 0), np.sum(sp.xlogy(weights, x), axis=0) - norm)

    @on_traced
    def mean(self, alpha: Any) -> Any:
        return real(alpha) / np.sum(alpha)

    @on_traced
    def var(self, alpha: Any) -> Any:
        alpha = real(alpha)
        total = np.sum(alpha)
        return alpha * (total - alpha) / (total * total * (total + 1))

    @on_traced
    def entropy(self, alpha: Any) -> Any:
        alpha = real(alpha)
        total = np.sum(alpha)
        norm = np.sum(sp.gammaln(alpha)) - sp.gammaln(total)
        return norm + (total - len(alpha)) * sp.psi(total) - np.sum((alpha - 1) * sp.psi(alpha))


class _Multinomial(_Mass):
    @on_traced
    def logpmf(self, x: Any, n: Any, p: Any) -> Any:
        """nan where the probabilities do not sum to 1 within rounding."""
        x, n, p = np.floor(real(x)), real(n), real(p)
        value = sp.gammaln(n + 1.0) + np.sum(sp.xlogy(x, p) - sp.gammaln(x + 1.0), axis=-1)
        good = np.all(x >= 0, axis=-1) & (np.sum(x, axis=-1) == n)
        rounding = 2.3e-16 * max(10, int(np.shape(p)[-1]))
        whole = np.abs(1 - np.sum(p, axis=-1)) <= rounding
        valid = whole & np.all((p >= 0) & (p <= 1), axis=-1) & (n >= 0)
        return poisoned(valid, np.where(good, value, -np.inf))


class _DirichletMultinomial(_Mass):
    @on_traced
    def logpmf(self, x: Any, alpha: Any, n: Any) -> Any:
        x, alpha, n = np.floor(real(x)), real(alpha), real(n)
        total = np.sum(alpha, axis=-1)
        top = sp.gammaln(total) + sp.gammaln(n + 1.0) - sp.gammaln(n + total)
        each = sp.gammaln(x + alpha) - sp.gammaln(alpha) - sp.gammaln(x + 1.0)
        value = top + np.sum(each, axis=-1)
        good = np.all(x >= 0, axis=-1) & (np.sum(x, axis=-1) == n)
        return poisoned(np.all(alpha > 0, axis=-1), np.where(good, value, -np.inf))


class _MatrixNormal(_Density):
    @on_traced
    def logpdf(self, X: Any, mean: Any = None, rowcov: Any = 1, colcov: Any = 1) -> Any:
        """``X`` of shape (…, n, p)."""
        X = real(X)
        shape = np.shape(X)
        n, p = int(shape[-2]), int(shape[-1])
        rows, columns = _factor(rowcov, n), _factor(colcov, p)
        points = np.reshape(X if mean is None else X - real(mean), (-1, n, p))
        m = len(points)
        half = solve_triangular(
            rows, np.reshape(np.transpose(points, (1, 0, 2)), (n, m * p)), lower=True
        )
        turned = np.transpose(np.reshape(half, (n, m, p)), (2, 0, 1))
        z = solve_triangular(columns, np.reshape(turned, (p, n * m)), lower=True)
        distance = np.sum(np.reshape(z * z, (p, n, m)), axis=(0, 1))
        spread = n * _half_log_det(columns) + p * _half_log_det(rows)
        value = -0.5 * (distance + n * p * LOG_2PI) - spread
        return np.reshape(value, tuple(k for k in shape[:-2] if k != 1))


def _factor(cov: Any, dim: int) -> Any:
    """The Cholesky factor of a covariance: a number, a diagonal or a matrix."""
    cov = real(cov)
    cov = np.reshape(cov, (1, 1)) * np.eye(dim) if np.size(cov) == 1 else _diagonal(cov)
    if np.shape(cov) != (dim, dim):
        raise fail(TapecValueError, f"a covariance of shape {np.shape(cov)} of {dim} components")
    return np.linalg.cholesky(cov)


def _diagonal(c: Any) -> Any:
    return np.diag(c) if np.ndim(c) == 1 else c


class _Wishart(_Density):
    def __init__(self, name: str, sign: int) -> None:
        super().__init__(name)
        self._sign = sign

    @on_traced
    def logpdf(self, x: Any, df: Any, scale: Any) -> Any:
        """``x`` of shape (p, p) or (p, p, n)."""
        x, df, scale = real(x), real(df), real(scale)
        scale = np.reshape(scale, (1, 1)) if np.ndim(scale) == 0 else _diagonal(scale)
        p = int(np.shape(scale)[0])
        if p == 1 and np.ndim(x) < 2:
            x = np.reshape(x, (1, 1, -1))
        if np.ndim(x) not in (2, 3) or np.shape(x)[:2] != (p, p):
            raise fail(
                UnsupportedError,
                f"{self.name}: points of shape {np.shape(x)}",
                f"one matrix of shape {(p, p)}, or {(p, p)} + (n,)",
            )
        spread = np.linalg.cholesky(scale)
        if np.ndim(x) == 2:
            value = self._one(x, df, spread, p)
        else:
            count = int(np.shape(x)[2])
            value = np.stack([self._one(x[:, :, k], df, spread, p) for k in range(count)])
            value = value[0] if count == 1 else value
        return poisoned(df > p - 1, value)

    def _one(self, x: Any, df: Any, spread: Any, p: int) -> Any:
        """tr(scale⁻¹ x) is the sum of squares of L⁻¹ M, with the Cholesky factors L and M."""
        point = np.linalg.cholesky(x)
        inner, outer = (spread, point) if self._sign > 0 else (point, spread)
        z = solve_triangular(inner, outer, lower=True)
        norm = 0.5 * math.log(2) * p * df + sp.multigammaln(0.5 * df, p)
        norm = norm + self._sign * df * _half_log_det(spread)
        power = (self._sign * df - p - 1) * _half_log_det(point)
        return power - 0.5 * np.sum(z * z) - norm


multivariate_normal = _MultivariateNormal("multivariate_normal")
multivariate_t = _MultivariateT("multivariate_t")
dirichlet, multinomial = _Dirichlet("dirichlet"), _Multinomial("multinomial")
dirichlet_multinomial = _DirichletMultinomial("dirichlet_multinomial")
matrix_normal = _MatrixNormal("matrix_normal")
wishart, invwishart = _Wishart("wishart", 1), _Wishart("invwishart", -1)
