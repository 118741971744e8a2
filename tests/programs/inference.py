"""Likelihoods and regressions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.stats
from scipy.special import expit, gammaln, ndtri

from programs import program
from tapec.scipy.linalg import cho_factor, cho_solve, solve_triangular
from tapec.scipy.special import logsumexp

rng = np.random.default_rng(2024)
T = np.linspace(0, 3, 9)
Y = np.sin(2 * T) + 0.1 * rng.normal(size=9)
X = np.column_stack([np.ones(12), rng.normal(size=(12, 2))])
COUNTS = rng.poisson(np.exp(X @ [0.5, 0.3, -0.4]))
LABELS = (rng.uniform(size=12) < 0.5).astype(float)
CLASSES = rng.integers(0, 3, size=12)
TARGET = X @ [1.0, -2.0, 0.5] + 0.1 * rng.normal(size=12)


def _kernel(theta: Any) -> Any:
    amplitude, length, noise = np.exp(theta)
    distance = T[:, None] - T[None, :]
    return amplitude**2 * np.exp(-0.5 * (distance / length) ** 2) + noise**2 * np.eye(len(T))


def _gp_density(theta: Any) -> Any:
    return scipy.stats.multivariate_normal(np.zeros(9), _kernel(theta)).logpdf(Y)


@program([0.1, -0.3, -1.0], _gp_density)
def gp_marginal_likelihood(theta: Any) -> Any:
    factor = np.linalg.cholesky(_kernel(theta))
    white = np.linalg.solve(factor, Y)
    return -0.5 * white @ white - np.log(np.diag(factor)).sum() - 4.5 * np.log(2 * np.pi)


@program([0.1, -0.3, -1.0], _gp_density)
def gp_by_cho_solve(theta: Any) -> Any:
    factor = cho_factor(_kernel(theta), lower=True)
    alpha = cho_solve(factor, Y)
    logdet = 2 * np.sum(np.log(np.diag(factor[0])))
    return -0.5 * (Y @ alpha + logdet + len(Y) * np.log(2 * np.pi))


def _poisson_density(w: Any) -> Any:
    return -scipy.stats.poisson(np.exp(X @ w)).logpmf(COUNTS).sum()


@program([0.2, 0.1, -0.3], _poisson_density)
def poisson_regression(w: Any) -> Any:
    eta = X @ w
    return np.sum(np.exp(eta) - COUNTS * eta + gammaln(COUNTS + 1.0))


@program(
    [0.2, 0.5, -0.3],
    lambda w: -scipy.stats.bernoulli(expit(X @ w)).logpmf(LABELS).sum() + 0.05 * w @ w,
)
def logistic_regression(w: Any) -> Any:
    p = 1 / (1 + np.exp(-(X @ w)))
    return -np.sum(LABELS * np.log(p) + (1 - LABELS) * np.log(1 - p)) + 0.05 * np.dot(w, w)


@program([0.8, -1.5, 0.2])
def huber_regression(w: Any) -> Any:
    r = np.abs(TARGET - X @ w)
    return np.where(r < 0.5, 0.5 * r**2, 0.5 * (r - 0.25)).mean()


@program(
    [0.8, -1.5, 0.2, -0.5],
    lambda p: -scipy.stats.t(4, loc=X @ p[:3], scale=np.exp(p[3])).logpdf(TARGET).sum(),
)
def student_t_regression(p: Any) -> Any:
    w, scale = p[:3], np.exp(p[3])
    z = (TARGET - X @ w) / scale
    norm = gammaln(2.5) - gammaln(2.0) - 0.5 * np.log(4 * np.pi)
    return -np.sum(norm - np.log(scale) - 2.5 * np.log1p(z**2 / 4))


@program(
    rng.normal(size=9),
    lambda w: np.sum(
        [np.log(np.sum(np.exp(z))) - z[k] for z, k in zip(X @ w.reshape(3, 3), CLASSES)]
    ),
)
def softmax_regression(w: Any) -> Any:
    logits = X @ w.reshape(3, 3)
    logits = logits - logits.max(axis=1, keepdims=True)
    return np.sum(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(12), CLASSES])


OBSERVED = rng.integers(0, 3, size=7)


def _all_paths(p: Any) -> Any:
    trans, emit = np.exp(p[:4].reshape(2, 2)), np.exp(p[4:].reshape(2, 3))
    trans, emit = trans / trans.sum(1, keepdims=True), emit / emit.sum(1, keepdims=True)
    total = 0.0
    for path in np.ndindex(*(2,) * 7):
        chance = 0.5 * emit[path[0], OBSERVED[0]]
        for t in range(1, 7):
            chance *= trans[path[t - 1], path[t]] * emit[path[t], OBSERVED[t]]
        total += chance
    return np.log(total)


@program(rng.normal(size=10), _all_paths)
def hidden_markov_forward(p: Any) -> Any:
    trans, emit = p[:4].reshape(2, 2), p[4:].reshape(2, 3)
    trans = trans - logsumexp(trans, axis=1, keepdims=True)
    emit = emit - logsumexp(emit, axis=1, keepdims=True)
    alpha = np.log(0.5) + emit[:, OBSERVED[0]]
    for seen in OBSERVED[1:]:
        alpha = logsumexp(alpha[:, None] + trans, axis=0) + emit[:, seen]
    return logsumexp(alpha)


NOISE = rng.normal(size=(16, 3))


@program([0.1, -0.2, 0.3, -1.0, -0.8, -1.2])
def variational_inference(p: Any) -> Any:
    mean, log_std = p[:3], p[3:]
    draws = mean + np.exp(log_std) * NOISE
    eta = draws @ X.T
    loglik = np.sum(LABELS * eta - np.logaddexp(0, eta), axis=1)
    prior = -0.5 * np.sum(draws**2, axis=1)
    return -(np.mean(loglik + prior) + np.sum(log_std))


def _normal_evidence(a: Any) -> Any:
    cov = 0.04 * np.eye(12) + X @ X.T / np.exp(a[0])
    return scipy.stats.multivariate_normal(np.zeros(12), cov).logpdf(TARGET)


@program([0.3], _normal_evidence)
def laplace_evidence(a: Any) -> Any:
    """Exact for a linear model."""
    alpha, beta = np.exp(a[0]), 25.0
    hessian = alpha * np.eye(3) + beta * X.T @ X
    mode = np.linalg.solve(hessian, beta * X.T @ TARGET)
    fit = 0.5 * beta * np.sum((TARGET - X @ mode) ** 2) + 0.5 * alpha * mode @ mode
    logdet = np.linalg.slogdet(hessian)[1]
    return -fit - 0.5 * logdet + 1.5 * np.log(alpha) + 6 * np.log(beta / (2 * np.pi))


SAMPLE = rng.normal(size=15)


@program([-0.5])
def kernel_density_cross_validation(h: Any) -> Any:
    width = np.exp(h[0])
    z = (SAMPLE[:, None] - SAMPLE) / width
    k = np.exp(-0.5 * z**2) / (np.sqrt(2 * np.pi) * width)
    np.fill_diagonal(k, 0.0)
    return -np.mean(np.log(k.sum(axis=1) / 14))


TIMES = rng.exponential(size=12)
EVENT = rng.uniform(size=12) < 0.7


def _cox_loop(w: Any) -> Any:
    risk = X[:, 1:] @ w
    return -sum(
        risk[i] - np.log(np.sum(np.exp(risk[TIMES[i] <= TIMES]))) for i in range(12) if EVENT[i]
    )


@program([0.3, -0.5], _cox_loop)
def cox_partial_likelihood(w: Any) -> Any:
    order = np.argsort(-TIMES)
    risk = (X[:, 1:] @ w)[order]
    at_risk = np.log(np.cumsum(np.exp(risk)))
    return -np.sum((risk - at_risk)[EVENT[order]])


ANSWERS = (rng.uniform(size=(5, 4)) < 0.6).astype(float)


@program(rng.normal(size=13))
def item_response(p: Any) -> Any:
    ability, difficulty, slope = p[:5], p[5:9], np.exp(p[9:])
    eta = slope * (ability[:, None] - difficulty[None, :])
    return np.sum(np.logaddexp(0, eta) - ANSWERS * eta) + 0.5 * np.sum(ability**2)


U = rng.uniform(0.05, 0.95, size=(10, 2))


def _copula_density(a: Any) -> Any:
    r = np.tanh(a[0])
    z = ndtri(U)
    joint = scipy.stats.multivariate_normal([0, 0], [[1, r], [r, 1]]).logpdf(z)
    return np.sum(joint - scipy.stats.norm.logpdf(z).sum(axis=1))


@program([0.4], _copula_density)
def gaussian_copula(a: Any) -> Any:
    rho = np.tanh(a[0])
    x, y = ndtri(U).T
    inner = rho**2 * (x**2 + y**2) - 2 * rho * x * y
    return np.sum(-0.5 * np.log(1 - rho**2) - inner / (2 * (1 - rho**2)))


POINTS = np.concatenate([rng.normal(size=(6, 2)), rng.normal(size=(6, 2)) + 3])


def _mixture_density(p: Any) -> Any:
    weight = expit(p[0])
    a = scipy.stats.multivariate_normal(p[1:3], np.eye(2) * np.exp(2 * p[5])).pdf(POINTS)
    b = scipy.stats.multivariate_normal(p[3:5], np.eye(2) * np.exp(2 * p[6])).pdf(POINTS)
    return np.sum(np.log(weight * a + (1 - weight) * b))


@program([0.2, 0.1, -0.1, 2.5, 3.0, 0.1, -0.1], _mixture_density)
def gaussian_mixture(p: Any) -> Any:
    logits = np.stack([p[0], 0.0 * p[0]])
    centres, scales = p[1:5].reshape(2, 2), p[5:]
    squares = np.sum((POINTS[:, None] - centres) ** 2, axis=-1)
    parts = -0.5 * squares / np.exp(2 * scales) - 2 * scales - math.log(2 * math.pi)
    return np.sum(logsumexp(parts + logits, axis=1) - logsumexp(logits))


PRICES = rng.normal(size=20)


@program([-2.0, -1.0, 1.0])
def garch(p: Any) -> Any:
    omega = np.exp(p[0])
    a, b = np.exp(p[1:]) / (1 + np.sum(np.exp(p[1:])))
    variance = np.var(PRICES)
    total = 0.0
    for r in PRICES:
        total = total + 0.5 * (np.log(variance) + r**2 / variance)
        variance = omega + a * r**2 + b * variance
    return total


def _stationary(p: Any) -> Any:
    phi, sigma = np.tanh(p[0]), np.exp(p[1])
    lag = np.abs(np.subtract.outer(np.arange(20), np.arange(20)))
    cov = sigma**2 / (1 - phi**2) * phi**lag
    return -scipy.stats.multivariate_normal(np.zeros(20), cov).logpdf(PRICES)


@program([0.3, 0.1], _stationary)
def autoregression(p: Any) -> Any:
    phi, sigma = np.tanh(p[0]), np.exp(p[1])
    first = PRICES[0] ** 2 * (1 - phi**2) / sigma**2 - np.log(1 - phi**2)
    rest = (PRICES[1:] - phi * PRICES[:-1]) / sigma
    return 0.5 * (first + np.sum(rest**2)) + 20 * np.log(sigma) + 10 * np.log(2 * np.pi)


def _random_walk(p: Any) -> Any:
    q, r = np.exp(p)
    steps = np.minimum.outer(np.arange(1, 21), np.arange(1, 21))
    return scipy.stats.multivariate_normal(np.zeros(20), q * steps + r * np.eye(20)).logpdf(PRICES)


@program([-1.0, 0.2], _random_walk)
def kalman_filter(p: Any) -> Any:
    q, r = np.exp(p)
    F, H = np.eye(1), np.ones((1, 1))
    mean, cov, loglik = np.zeros(1), np.zeros((1, 1)), 0.0
    for y in PRICES:
        mean, cov = F @ mean, F @ cov @ F.T + q
        innovation = y - H @ mean
        s = H @ cov @ H.T + r
        gain = np.linalg.solve(s, H @ cov).T
        loglik -= 0.5 * (
            innovation @ np.linalg.solve(s, innovation) + np.log(np.linalg.det(2 * np.pi * s))
        )
        mean = mean + gain @ innovation
        cov = cov - gain @ s @ gain.T
    return loglik


@program(
    rng.normal(size=6) * 0.4,
    lambda p: (
        -scipy.stats.multivariate_normal(
            np.zeros(3),
            (lambda c: c @ c.T)(
                np.array(
                    [[np.exp(p[0]), 0, 0], [p[1], np.exp(p[2]), 0], [p[3], p[4], np.exp(p[5])]]
                )
            ),
        )
        .logpdf(X)
        .sum()
    ),
)
def covariance_by_cholesky(p: Any) -> Any:
    factor = np.zeros_like(p, shape=(3, 3))
    factor[np.tril_indices(3)] = p
    diagonal = np.exp(np.diag(factor))
    np.fill_diagonal(factor, diagonal)
    white = solve_triangular(factor, X.T, lower=True)
    return 0.5 * np.sum(white**2) + 12 * np.sum(np.log(diagonal)) + 18 * np.log(2 * np.pi)
