"""Histograms, roots and neighbours among numbers: NumPy's values, derivatives by differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapec

rng = np.random.default_rng(0)
X, W = rng.normal(size=(20, 2)), rng.normal(size=20)
EDGES = np.array([-1.0, 0, 0.5, 2])

CASES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (lambda a: np.histogram(a), (X,)),
    (lambda a: np.histogram(a, 4), (np.ones(5),)),
    (lambda a: np.histogram(a, 5, (-1, 1), density=True), (X,)),
    (lambda a, w: np.histogram(a, 5, weights=w), (X[:, 0], W)),
    (lambda a: np.histogram_bin_edges(a, 7), (X,)),
    (lambda a: np.histogramdd(a, 4)[0], (X,)),
    (lambda a: np.histogramdd(a, [3, 5], density=True)[0], (X,)),
    (lambda a: np.histogramdd([a[:, 0], W], [3, EDGES])[1], (X,)),
    (lambda a, w: np.histogram2d(a[:, 0], a[:, 1], bins=[3, EDGES], weights=w), (X, W)),
    (lambda a: np.histogram2d(a[:, 0], a[:, 1], bins=EDGES), (X,)),
    (lambda a: np.histogram2d(a[:, 0], a[:, 1], 4, [[-1, 1], [-2, 2]], density=True), (X,)),
    (np.roots, (np.array([1.0, -6, 11, -6]),)),
    (np.roots, (np.array([0.0, 2, 0, 8, 0, 0]),)),
    (np.roots, (np.array([3.0]),)),
    (np.roots, (np.array([1.0, -4.5, -5, 2, 0, 0]),)),
    (np.roots, (np.array([2.0, 1]),)),
    (np.sort_complex, (np.array([3.0, 1, 2]),)),
    (np.sort_complex, (np.array([3.0 + 1j, 1, 3 - 1j]),)),
    (np.spacing, (X,)),
    (np.nextafter, (X, X[::-1].copy())),
    (lambda x: np.nextafter(x, np.inf), (X.astype(np.float32),)),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_values(case: int) -> None:
    fn, args = CASES[case]
    got, want = tapec.jit(fn)(*args), fn(*args)
    flat = lambda v: [u for w in v for u in flat(w)] if isinstance(v, (tuple, list)) else [v]  # noqa: E731
    for g, w in zip(flat(got), flat(want), strict=True):
        assert np.asarray(g).dtype == np.asarray(w).dtype
        np.testing.assert_allclose(g, w, rtol=1e-12, atol=1e-13)


def test_edges_that_follow_the_data() -> None:
    f = lambda a: np.sum(np.histogram_bin_edges(a, 3) ** 2)  # noqa: E731
    tapec.check_grads(f, (X[:6, 0],), order=2)
    g = tapec.grad(lambda w: np.sum(np.arange(5.0) * np.histogram(X[:, 0], 5, weights=w)[0]))(W)
    np.testing.assert_array_equal(g, np.clip(np.digitize(X[:, 0], np.histogram_bin_edges(X[:, 0], 5)) - 1, 0, 4))  # fmt: skip


@pytest.mark.parametrize(
    "c", [[1.0, -6.5, 11, -6], [1.0, 0.5, 3, 1], [2.0, 1, 0], [2.0, -1, 3, 1, 0]]
)
def test_roots_move(c: list[float]) -> None:
    """dr/dc_k = -r^(n-k) / p'(r)"""
    point = np.array(c)
    f = lambda c: np.sum(np.abs(np.roots(c)) ** 2)  # noqa: E731
    r = np.roots(point)
    powers = r[:, None] ** np.arange(len(c) - 1, -1, -1)
    slopes = -powers / np.polyval(np.polyder(point), r)[:, None]
    want = 2 * np.real(np.conj(r)[:, None] * slopes).sum(0)
    np.testing.assert_allclose(tapec.grad(f)(point), want, rtol=1e-10, atol=1e-12)


def test_no_derivative_is_an_error_and_steps_have_none() -> None:
    assert tapec.grad(lambda x: np.spacing(x) + x)(1.0) == 1
    with pytest.raises(TypeError, match=r"numpy.nextafter.*no derivative"):
        tapec.grad(lambda x: np.nextafter(x, 2.0))(1.0)
    with pytest.raises(TypeError, match=r"multiple root 0.*no derivative"):
        tapec.grad(lambda c: np.sum(np.roots(c)))(np.array([2.0, 1, 0, 0]))
    with pytest.raises(ValueError, match=r"test_histograms.py:\d+"):
        tapec.jit(lambda x: np.histogramdd(x, [2, 2, 2])[0])(X)
