"""Logarithms of tail functions that several distributions share.

>>> bool(log1mexp(-1e-20) == np.log(1e-20))
True
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapec.scipy import special as sp

__all__ = ["LOG_2PI", "log1mexp", "log_gammaincc", "log_zeta"]

LOG_2PI = math.log(2 * math.pi)
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)


def log1mexp(x: Any) -> Any:
    """log(1 - e^x) for x ≤ 0.

    The branch is as in Mächler, "Accurately computing log(1 - exp(-|a|))".
    """
    near = x > -math.log(2)
    left = np.log(-np.expm1(np.where(near, x, -1.0)))
    return np.where(near, left, np.log1p(-np.exp(np.where(near, -1.0, x))))


def log_gammaincc(a: Any, x: Any) -> Any:
    """log Q(a, x); in the tail by the continued fraction (DLMF 8.9.2), so that its derivative by
    ``a`` keeps its digits and nothing underflows.

    With x > a + 4 √a + 5 the 25 terms are exact to 1e-14; there Q is below 1e-4.
    """
    far = x > a + 4 * np.sqrt(a) + 5
    t = np.where(far, x, a + 4 * np.sqrt(a) + 6)
    fraction = t + 51.0 - a
    for n in range(25, 0, -1):
        fraction = t + (2 * n - 1.0) - a - n * (n - a) / fraction
    tail = a * np.log(t) - t - sp.gammaln(a) - np.log(fraction)
    y = np.where(far, 0.5 * a, x)
    value = sp.gammaincc(a, y)
    small = value < 0.5
    body = np.where(
        small,
        np.log(np.where(small, value, 0.5)),
        np.log1p(-np.where(small, 0.5, sp.gammainc(a, y))),
    )
    return np.where(far, tail, body)


def log_zeta(s: Any) -> Any:
    """log ζ(s) for s > 1, by the Euler-Maclaurin formula with 10 terms (DLMF 25.2.9)."""
    n = 10.0
    total: Any = 1.0
    for k in range(2, int(n)):
        total = total + np.exp(-s * math.log(k))
    last = np.exp(-s * math.log(n))
    total = total + last * (n / (s - 1) + 0.5)
    rising, factor = s, last / n
    for j, number in enumerate(_BERNOULLI, 1):
        total = total + number / math.factorial(2 * j) * rising * factor
        rising = rising * (s + (2 * j - 1)) * (s + 2 * j)
        factor = factor / (n * n)
    return np.log(total)
