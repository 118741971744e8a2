"""Options, portfolios, networks of ratings, recommendations."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.stats
from scipy.special import ndtr

from programs import program

rng = np.random.default_rng(7)


def _black_scholes_integral(p: Any) -> Any:
    spot, rate, vol, years = p
    x, w = np.polynomial.legendre.leggauss(200)
    low = (np.log(100 / spot) - (rate - vol**2 / 2) * years) / (vol * np.sqrt(years))
    z = low + (x + 1) * 6
    end = spot * np.exp((rate - vol**2 / 2) * years + vol * np.sqrt(years) * z)
    return np.exp(-rate * years) * np.sum(6 * w * scipy.stats.norm.pdf(z) * (end - 100))


@program([105.0, 0.03, 0.25, 0.7], _black_scholes_integral)
def black_scholes(p: Any) -> Any:
    spot, rate, vol, years = p
    d1 = (np.log(spot / 100.0) + (rate + vol**2 / 2) * years) / (vol * np.sqrt(years))
    d2 = d1 - vol * np.sqrt(years)
    return spot * ndtr(d1) - 100.0 * np.exp(-rate * years) * ndtr(d2)


SHOCKS = rng.normal(size=(64, 12))


def _asian_loop(p: Any) -> Any:
    spot, rate, vol = p
    total = 0.0
    for path in SHOCKS:
        s, mean = spot, 0.0
        for z in path:
            s *= np.exp((rate - vol**2 / 2) / 12 + vol * np.sqrt(1 / 12) * z)
            mean += s / 12
        total += max(mean - 95.7, 0.0) / 64
    return np.exp(-rate) * total


@program([100.0, 0.05, 0.2], _asian_loop)
def asian_option_monte_carlo(p: Any) -> Any:
    spot, rate, vol = p
    dt = 1 / 12
    steps = (rate - 0.5 * vol**2) * dt + vol * np.sqrt(dt) * SHOCKS
    paths = spot * np.exp(np.cumsum(steps, axis=1))
    return np.exp(-rate) * np.maximum(paths.mean(axis=1) - 95.7, 0).mean()


@program([100.0, 0.04, 0.3])
def binomial_tree(p: Any) -> Any:
    """An American put."""
    spot, rate, vol = p
    n = 12
    dt = 0.5 / n
    up = np.exp(vol * np.sqrt(dt))
    down = 1 / up
    chance = (np.exp(rate * dt) - down) / (up - down)
    k = np.arange(n + 1)
    value = np.maximum(103.3 - spot * up ** (2.0 * k - n), 0)
    for step in range(n - 1, -1, -1):
        k = np.arange(step + 1)
        held = np.exp(-rate * dt) * (chance * value[1:] + (1 - chance) * value[:-1])
        value = np.maximum(held, 103.3 - spot * up ** (2.0 * k - step))
    return value[0]


RETURNS = rng.normal(size=(30, 4)) * 0.02 + 0.01


@program([0.1, 0.4, -0.2, 0.3])
def sharpe_ratio(logits: Any) -> Any:
    weights = np.exp(logits) / np.exp(logits).sum()
    daily = RETURNS @ weights
    return daily.mean() / daily.std(ddof=1) * np.sqrt(252)


CASHFLOWS = np.array([3.0, 3.0, 3.0, 103.0])


@program([0.02, 0.01, -0.01])
def yield_curve(p: Any) -> Any:
    """Nelson-Siegel: price of a bond."""
    t = np.arange(1, 5)
    decay = (1 - np.exp(-t / 1.5)) / (t / 1.5)
    y = p[0] + p[1] * decay + p[2] * (decay - np.exp(-t / 1.5))
    return np.sum(CASHFLOWS * np.exp(-y * t))


LINKS = rng.uniform(size=(5, 5)) < 0.6
np.fill_diagonal(LINKS, True)


def _power_iteration(p: Any) -> Any:
    weight = np.where(LINKS, np.exp(p.reshape(5, 5)), 0.0)
    weight = 0.85 * weight / weight.sum(0) + 0.03
    rank = np.full(5, 0.2)
    for _ in range(400):
        rank = weight @ rank
    return rank[2] + np.sum(rank**2)


@program(0.3 * rng.normal(size=25), _power_iteration)
def page_rank(p: Any) -> Any:
    weight = np.where(LINKS, np.exp(p.reshape(5, 5)), 0.0)
    moves = weight / weight.sum(axis=0)
    rank = np.linalg.solve(np.eye(5) - 0.85 * moves, np.full(5, 0.15 / 5))
    return rank[2] + np.sum(rank**2)


RATED = [(0, 1, 4.0), (0, 2, 3.0), (1, 0, 5.0), (2, 2, 1.0), (3, 1, 2.0), (3, 0, 4.5)]


def _rating_loop(p: Any) -> Any:
    users, items = p[:8].reshape(4, 2), p[8:].reshape(3, 2)
    return sum((users[u] @ items[i] - r) ** 2 for u, i, r in RATED) + 0.1 * np.sum(p**2)


@program(rng.normal(size=14), _rating_loop)
def matrix_factorisation(p: Any) -> Any:
    users, items = p[:8].reshape(4, 2), p[8:].reshape(3, 2)
    who, what, ratings = np.array(RATED).T
    guess = np.einsum("nk,nk->n", users[who.astype(int)], items[what.astype(int)])
    return np.sum((guess - ratings) ** 2) + 0.1 * (np.sum(users**2) + np.sum(items**2))


GAMES = rng.integers(0, 4, size=(10, 2))
GAMES = GAMES[GAMES[:, 0] != GAMES[:, 1]]


@program([0.1, -0.3, 0.5, 0.2])
def elo_ratings(r: Any) -> Any:
    gap = r[GAMES[:, 0]] - r[GAMES[:, 1]]
    return np.sum(np.log1p(np.exp(-gap))) + 0.5 * np.linalg.norm(r) ** 2
