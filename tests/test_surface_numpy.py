"""NumPy's functions on traced values: values, first and second derivatives, in tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from surface import check, check_value

import tapec

rng = np.random.default_rng(11)
V, W = rng.normal(size=7), rng.normal(size=7)
P = np.abs(rng.normal(size=7)) + 0.2
M, N = rng.normal(size=(4, 5)), rng.normal(size=(4, 5))
C = rng.normal(size=(2, 3, 4))
S = rng.normal(size=(3, 3))
L = rng.normal(size=40)
B = np.array([True, False, True, True, False, True, False])
BM = rng.random((4, 5)) < 0.6
I = np.array([3, 0, 2, 1, 3])
X = np.sort(rng.normal(size=6))
NAN = M.copy()
NAN[0, 1] = NAN[2] = np.nan
NAN[2, 3] = 1.5

Case = tuple[Callable[..., Any], tuple[Any, ...]]

REDUCTIONS: list[Case] = [
    (lambda x: np.sum(x, where=BM), (M,)), (lambda x: np.sum(x, axis=0, where=BM, initial=2.0), (M,)),
    (lambda x: np.prod(x, axis=1, where=BM), (M,)), (lambda x: np.prod(x, initial=3.0, keepdims=True), (M,)),
    (lambda x: np.max(x, axis=1, where=BM, initial=-1.0), (M,)), (lambda x: np.min(x, initial=0.1), (M,)),
    (lambda x: np.mean(x, axis=(0, 2), keepdims=True), (C,)), (lambda x: np.mean(x, where=BM), (M,)),
    (lambda x: np.var(x, axis=1, ddof=1), (M,)), (lambda x: np.var(x, where=BM, axis=0, ddof=0), (M,)),
    (lambda x: np.std(x, axis=(0, 1), ddof=1), (C,)), (lambda x: np.std(x, where=BM), (M,)),
    (lambda x: np.nansum(x, axis=0), (NAN,)), (lambda x: np.nanprod(x, axis=1), (NAN,)),
    (lambda x: np.nanmean(x, axis=0), (NAN,)), (lambda x: np.nanvar(x, axis=0), (NAN,)),
    (lambda x: np.nanstd(x), (NAN,)), (lambda x: np.nanmax(x, axis=0), (NAN,)), (lambda x: np.nanmin(x), (NAN,)),
    (lambda x: np.nanmedian(x), (NAN,)), (lambda x: np.nanmedian(x, axis=0), (NAN,)),
    (lambda x: np.nanquantile(x, 0.3, axis=1), (M,)), (lambda x: np.nanpercentile(x, 65, axis=0), (NAN,)),
    (lambda x: np.nancumsum(x, axis=1), (NAN,)), (lambda x: np.nancumprod(x, axis=0), (NAN,)),
    (lambda x: np.cumprod(x, axis=1), (M,)), (lambda x: np.cumsum(x), (M,)),
    (lambda x: np.median(x), (V,)), (lambda x: np.median(x, axis=1), (M,)), (lambda x: np.median(x, axis=0, keepdims=True), (M,)),
    (lambda x: np.median(x, axis=(0, 2)), (C,)), (lambda x: np.quantile(x, [0.1, 0.5, 0.77], axis=1), (M,)),
    (lambda x: np.percentile(x, 30), (V,)), (lambda x: np.quantile(x, 0.4, axis=0, keepdims=True), (M,)),
    (lambda x, q: np.quantile(x, q), (V, 0.37)),
    (lambda x, w: np.average(x, weights=w), (V, P)), (lambda x, w: np.average(x, axis=1, weights=w), (M, P[:5])),
    (lambda x: np.ptp(x, axis=1), (M,)), (lambda x: np.cov(x), (M,)), (lambda x, y: np.cov(x, y, bias=True), (V, W)),
    (lambda x, w: np.cov(x, aweights=w, rowvar=False), (M, P[:4])), (lambda x: np.corrcoef(x), (M,)),
    (lambda x: np.corrcoef(x, rowvar=False, y=None)[0, 1], (rng.normal(size=(9, 2)),)),
    (lambda x: np.logaddexp.reduce(x, axis=1), (M,)), (lambda x: np.hypot.reduce(x), (V,)),
    (lambda x: np.subtract.reduce(x, axis=1), (M,)), (lambda x: np.divide.reduce(x), (P,)),
    (lambda x: np.add.reduce(x, axis=(0, 1), keepdims=True), (M,)), (lambda x: np.multiply.reduce(x, axis=1, where=BM), (M,)),
    (lambda x: np.maximum.accumulate(x, axis=1), (M,)), (lambda x: np.subtract.accumulate(x), (V,)),
    (lambda x: np.logaddexp.accumulate(x), (V,)), (lambda x: np.multiply.accumulate(x, axis=0), (M,)),
    (lambda x: np.add.reduceat(x, [0, 3, 1, 5]), (V,)), (lambda x: np.multiply.reduceat(x, [0, 2], axis=1), (M,)),
    (lambda x, y: np.arctan2.outer(x, y), (V, P)), (lambda x, y: np.logaddexp2.outer(x, y), (V, W)),
]  # fmt: skip

CALCULUS: list[Case] = [
    (lambda x: np.sort(x), (V,)), (lambda x: np.sort(x, axis=0), (M,)), (lambda x: np.sort(x, axis=None), (M,)), (lambda x: np.sort(x), (L,)),
    (lambda x: np.partition(np.sort(x), 3) * W, (V,)),
    (lambda x: x[np.argsort(x)] * W, (V,)), (lambda x: np.take_along_axis(x, np.argsort(x, axis=1), 1), (M,)),
    (lambda x: np.gradient(x), (V,)), (lambda x: np.gradient(x, 0.5, edge_order=2), (V,)), (lambda x: np.gradient(x, axis=1), (M,)),
    (lambda x: np.gradient(x, 2.0, 0.5), (M,)), (lambda x, t: np.gradient(x, np.cumsum(t)), (V, P)),
    (lambda x, t: np.gradient(x, np.cumsum(t), edge_order=2), (V, P)), (lambda x: np.gradient(x[:2]), (V,)),
    (lambda y: np.trapezoid(y, dx=0.3), (V,)), (lambda y, x: np.trapezoid(y, np.cumsum(x)), (V, P)), (lambda y: np.trapezoid(y, axis=0), (M,)),
    (lambda y: np.trapezoid(y, X[:5], axis=1), (M,)),
    (lambda x, f: np.interp(x, np.arange(7.0), f), (P * 2, V)), (lambda x, xp, f: np.interp(x, np.cumsum(xp), f, left=-1.0, right=2.0), (W * 4, P, V)),
    (lambda x, f: np.interp(x, [0.1, 1.3, 2.2], f, period=3.0), (V * 5, W[:3])), (lambda x: np.interp(0.7, [0.0, 1.0], x), (V[:2],)),
    (lambda a, v: np.convolve(a, v), (V, W[:3])), (lambda a, v: np.convolve(a, v, "same"), (V, W[:4])), (lambda a, v: np.convolve(a, v, "valid"), (W[:2], V)),
    (lambda a, v: np.convolve(a, v), (L, np.concatenate([L, L])[5:40])), (lambda a, v: np.correlate(a, v), (V, W[:3])),
    (lambda a, v: np.correlate(a, v, "full"), (W[:3], V)), (lambda a, v: np.correlate(a, v, "same"), (V, W[:3])), (lambda a, v: np.correlate(a, v, "same"), (W[:4], V)),
    (lambda x: np.unwrap(x), (V * 5,)), (lambda x: np.unwrap(x, period=2.0, axis=0), (M * 3,)),
    (lambda c, x: np.polyval(c, x), (W[:4], V)), (lambda c, x: np.polynomial.Polynomial([1.0, 2.0, 3.0])(x) * c, (1.5, V)),
    (lambda a, b: np.polyadd(a, b), (V[:3], W[:5])), (lambda a, b: np.polysub(a, b), (V[:3], W[:2])), (lambda a, b: np.polymul(a, b), (V[:3], W[:4])),
    (lambda a: np.polyder(a), (V,)), (lambda a: np.polyint(a, 2), (V[:3],)), (lambda a: np.poly(a), (V[:4],)), (lambda a, b: np.polydiv(a, b), (V[:5], P[:3])),
    (lambda x, y: np.polyfit(x, y, 2), (np.arange(7.0) + 0.1 * V, W)), (lambda x: np.vander(x), (V[:3],)), (lambda x: np.vander(x, 3, increasing=True), (V,)),
    (lambda x: np.diff(x, 2, prepend=0.5, append=[1.0, 2.0]), (V,)), (lambda x: np.ediff1d(x, to_begin=[1.0]), (V,)),
    (lambda a, b: np.cross(a, b), (S, S[::-1].copy())), (lambda a, b: np.cross(a, b, axis=0), (S, S.T.copy())), (lambda a, b: np.kron(a, b), (M[:2, :2].copy(), S)),
    (lambda a, b: np.linspace(a, b, 5), (0.3, 1.9)), (lambda a, b: np.geomspace(a, b, 4), (0.3, 1.9)), (lambda a, b: np.logspace(a, b, 4), (0.3, 0.9)),
    (lambda x, w: np.histogram(x, bins=[-2.0, 0.0, 2.0], weights=w)[0], (np.clip(V, -1.9, 1.9) + 0.01, W)), (lambda w: np.bincount(I, weights=w, minlength=6), (W[:5],)),
    (lambda a: np.einsum("ij,kj,k->i", a, a, a[:, 0]), (M,)), (lambda a, b: np.vdot(a, b), (M, N)), (lambda x: np.i0(x), (V,)), (lambda x: np.sinc(x), (V,)),
]  # fmt: skip

PAD_MODES = ["constant", "edge", "reflect", "symmetric", "wrap", "linear_ramp", "maximum", "minimum", "mean", "median"]  # fmt: skip

MOVING: list[Case] = [
    *[(lambda x, m=m: np.pad(x, ((1, 2), (0, 3)), mode=m), (M,)) for m in PAD_MODES],
    (lambda x: np.pad(x, 2, mode="constant", constant_values=(1.0, 2.0)), (V,)), (lambda x: np.pad(x, (3, 2), mode="linear_ramp", end_values=(5.0, -4.0)), (V,)),
    (lambda x: np.pad(x, (2, 3), mode="reflect", reflect_type="odd"), (V,)), (lambda x: np.pad(x, 2, mode="mean", stat_length=3), (V,)),
    (lambda x, y: np.choose(I, [x[:5], y[:5], x[1:6], y[1:6]]), (V, W)), (lambda x: np.choose(I, x, mode="wrap"), (M[:3, :],)),
    (lambda x: np.select([x > 0.5, x > 0], [x**2, x], 3.0), (V,)), (lambda x: np.piecewise(x, [x < 0, x > 0.5], [lambda v: v * v, np.exp, 1.0]), (V,)),
    (lambda x: np.compress([True, False, True], x, axis=1), (M,)), (lambda x: np.extract(BM, x), (M,)), (lambda x: np.take(x, I, axis=1, mode="clip"), (M,)),
    (lambda x: np.insert(x, 2, 9.0), (V,)), (lambda x, y: np.insert(x, [1, 1, 4], y), (V, W[:3])), (lambda x, y: np.insert(x, 1, y, axis=1), (M, W[:4])),
    (lambda x: np.insert(x, slice(0, 4, 2), 5.0, axis=0), (M,)), (lambda x: np.delete(x, [0, 2]), (V,)), (lambda x: np.delete(x, slice(1, 3), axis=1), (M,)),
    (lambda x: np.resize(x, (3, 4)), (V,)), (lambda x: np.trim_zeros(x * np.array([0, 0, 1, 1, 0, 1, 0])), (V,)), (lambda x: np.unique(np.round(x, 12)) if isinstance(x, np.ndarray) else np.unique(x), (V,)),
    (lambda x: x[np.ix_([0, 2], [1, 3])], (M,)), (lambda x: x[np.tril_indices_from(x)], (S,)), (lambda x: x[np.triu_indices_from(x, 1)], (S,)), (lambda x: x[np.diag_indices_from(x)], (S,)),
    (lambda x: np.block([[x, x * 2], [np.ones((1, 3)), x[:1]]]), (S,)), (lambda x, y: np.append(x, y, axis=0), (M, N)), (lambda x: np.rot90(x, 3), (M,)), (lambda x: np.roll(x, (1, -2), (0, 1)), (M,)),
    (lambda x: np.apply_along_axis(lambda r: r * r.sum(), 1, x), (M,)), (lambda x: np.apply_along_axis(np.sum, 0, x), (C,)), (lambda x: np.apply_over_axes(np.sum, x, [0, 2]), (C,)),
    (lambda x: np.nan_to_num(x), (NAN,)), (lambda x: np.heaviside(x, 0.5) * x, (V,)), (lambda x: np.real_if_close(x) * 2, (V,)), (lambda x: np.tile(x, (2, 2)), (M,)),
    (lambda x, y: np.meshgrid(x, y, indexing="ij")[0] * np.meshgrid(x, y, indexing="ij")[1], (V, W[:3])), (lambda x: np.moveaxis(x, 0, -1) * 2, (C,)), (lambda x: np.diagflat(x, 1), (V[:3],)),
    (lambda x: np.multiply(x, 2.0, where=B, out=x * 1.0), (V,)), (lambda x, y: np.add(x, y, out=x * 0.0), (V, W)), (lambda x: np.sqrt(x, where=x > 0, out=np.zeros_like(x)), (V,)),
    (lambda x: np.exp(x, dtype=np.float64), (V,)), (lambda x: np.frexp(x)[0], (V,)), (lambda x: np.ldexp(x, 3), (V,)), (lambda x: np.modf(x)[0], (V,)),
    (lambda x: np.copy(x).clip(-0.5, 0.5), (V,)), (lambda x: np.sort(x).cumsum(), (V,)), (lambda x: np.setdiff1d(x, x[:2]), (V,)), (lambda x, y: np.union1d(x, y), (V[:3], W[:2])),
]  # fmt: skip


def fill_diagonal(x: Any) -> Any:
    y = x * 1.0
    np.fill_diagonal(y, x[0, 1] * 2.0)
    return y


def put(x: Any) -> Any:
    y = x * 1.0
    np.put(y, [1, -1, 1], x[:3] * 3.0)
    return y


def put_along(x: Any) -> Any:
    y = x * 1.0
    np.put_along_axis(y, np.array([[1], [0], [2], [1]]), x[:, :1] * 2.0, 1)
    return y


def place(x: Any) -> Any:
    y = x * 1.0
    np.place(y, B, x[:2] * 5.0)
    return y


def putmask(x: Any) -> Any:
    y = x * 1.0
    np.putmask(y, y > 0, x[:3] * 5.0)
    return y


def copyto(x: Any) -> Any:
    y = x * 1.0
    np.copyto(y, x[::-1] * 2.0, where=B)
    return y


def add_at(x: Any) -> Any:
    y = x * 1.0
    np.add.at(y, [0, 0, 2], x[:3])
    np.subtract.at(y, [1, 1], x[3])
    np.multiply.at(y, [0, 0, 2], x[:3])
    np.negative.at(y, [4, 4, 5])
    return y


def sort_in_place(x: Any) -> Any:
    y = x * 1.0
    y.sort()
    y[0] *= 2.0
    return y


IN_PLACE: list[Case] = [
    (fill_diagonal, (M,)), (fill_diagonal, (S,)), (put, (V,)), (put_along, (M,)), (place, (V,)), (putmask, (V,)), (copyto, (V,)),
    (add_at, (V,)), (sort_in_place, (V,)),
]  # fmt: skip

ALL = REDUCTIONS + CALCULUS + MOVING + IN_PLACE


@pytest.mark.parametrize("case", range(len(ALL)))
@pytest.mark.filterwarnings("ignore:.*")
def test_value_and_derivatives(case: int) -> None:
    fn, args = ALL[case]
    check(fn, *args)


VALUES: list[Case] = [
    (lambda x: np.argsort(x, axis=0), (M,)), (lambda x: np.argpartition(np.sort(x), 2), (V,)), (lambda x: np.lexsort((x, I)), (V[:5],)),
    (lambda x: np.searchsorted(X, x), (V,)), (lambda x: np.searchsorted(X, x, "right"), (M,)), (lambda x: np.searchsorted(x, X, sorter=np.argsort(x)), (V,)),
    (lambda x: np.digitize(x, X), (V,)), (lambda x: np.digitize(x, X[::-1].copy(), right=True), (V,)), (lambda x: np.histogram(x, 4)[0], (V,)),
    (lambda x: np.histogram(x, 5, range=(-1, 1), density=True)[0], (V,)), (lambda x: np.nanargmax(x, axis=1), (NAN,)), (lambda x: np.nanargmin(x), (NAN,)),
    (lambda x: np.isin(x, X), (V,)), (lambda i: np.unique(i, return_inverse=True, return_counts=True)[0], (I,)), (lambda i: np.bincount(i), (I,)),
    (lambda i: np.gcd(i, 12), (I,)), (lambda i: np.lcm(i, 4), (I,)), (lambda i: np.ravel_multi_index((i, i), (5, 6)), (I,)), (lambda i: np.unravel_index(i, (2, 2)), (I,)),
    (lambda x: np.all(x > -3, axis=1, where=BM), (M,)), (lambda x: np.any(x > 1, where=BM), (M,)), (lambda x: np.logical_xor.reduce(x > 0), (V,)),
    (lambda i: np.bitwise_or.reduce(i), (I,)), (lambda x: np.count_nonzero(x > 0, axis=0), (M,)), (lambda x: np.sum(x, dtype=np.float32), (V,)),
    (lambda i: np.sort(i), (I,)), (lambda x: np.median(x.astype(np.float32)), (V,)),
    *[(lambda x, m=m: np.quantile(x, [0.0, 0.12, 0.5, 0.99, 1.0], method=m), (V,)) for m in (
        "inverted_cdf", "averaged_inverted_cdf", "closest_observation", "interpolated_inverted_cdf", "hazen", "weibull", "linear",
        "median_unbiased", "normal_unbiased", "lower", "higher", "nearest", "midpoint")],
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(VALUES)))
@pytest.mark.filterwarnings("ignore:.*")
def test_value(case: int) -> None:
    fn, args = VALUES[case]
    check_value(fn, *args)


def test_order_statistics_native() -> None:
    """Median, quantiles and sorted weights through compiled gradients."""
    x = np.array([3.0, 1.0, 2.0])
    np.testing.assert_array_equal(
        tapec.grad(lambda x: np.sort(x) @ [1.0, 10.0, 100.0])(x), [100, 1, 10]
    )
    np.testing.assert_array_equal(tapec.grad(lambda x: np.median(x))(x), [0, 0, 1])
    np.testing.assert_array_equal(
        tapec.grad(lambda x: np.median(x))(np.array([4.0, 1.0, 2.0, 3.0])), [0, 0, 0.5, 0.5]
    )
    np.testing.assert_allclose(tapec.grad(lambda x: np.quantile(x, 0.25))(x), [0, 0.5, 0.5])
    big = np.random.default_rng(0).normal(size=1001)
    got = tapec.grad(lambda x: np.median(x))(big)
    assert got.sum() == 1 and got[np.argsort(big)[500]] == 1


def test_masked_square_root_has_no_infinite_derivative() -> None:
    x = np.array([-1.0, 0.0, 4.0])
    got = tapec.grad(lambda x: np.sqrt(x, where=x > 0, out=np.zeros_like(x)).sum())(x)
    np.testing.assert_array_equal(got, [0, 0, 0.25])
