"""``tapec.scipy.signal``: SciPy's values; derivatives by differences of a complex step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.signal as ss

import tapec
from tapec.scipy import signal as ts

RNG = np.random.default_rng(3)
A, B = RNG.normal(size=9), RNG.normal(size=4)
M, K = RNG.normal(size=(6, 7)), RNG.normal(size=(3, 2))
BIG, WIDE = RNG.normal(size=(20, 18)), RNG.normal(size=(15, 16))
SOS = ss.butter(4, 0.3, output="sos")
NUM, DEN = ss.butter(2, 0.4)

CASES: list[tuple[Callable[[Any, Any], Any], Any, Any]] = [
    *[(lambda s, x, m=m: s.convolve(x, B, m), A, None) for m in ("full", "same", "valid")],
    *[(lambda s, x, m=m: s.convolve(B, x, m), A, None) for m in ("full", "same", "valid")],
    *[(lambda s, x, m=m: s.convolve(x, K, m), M, None) for m in ("full", "same", "valid")],
    *[(lambda s, x, m=m: s.correlate(x, B, m), A, None) for m in ("full", "same", "valid")],
    *[(lambda s, x, m=m: s.correlate(B, x, m), A, None) for m in ("full", "same", "valid")],
    *[(lambda s, x, m=m: s.correlate(K, x, m), M, None) for m in ("full", "valid")],
    *[(lambda s, x, m=m: s.convolve(x, WIDE, m), BIG, None) for m in ("full", "same", "valid")],
    *[(lambda s, x, m=m: s.fftconvolve(x, K, m), M, None) for m in ("full", "same", "valid")],
    (lambda s, x: s.fftconvolve(x, M[:, :3], "same", axes=1), M, None),
    (lambda s, x: s.oaconvolve(x, B), A, None),
    (lambda s, x: s.convolve(x, B, method="fft"), A, None),
    *[
        (lambda s, x, m=m, b=b: s.convolve2d(x, K, m, b), M, None)
        for m in ("full", "same", "valid")
        for b in ("fill", "wrap", "symm")
    ],
    *[
        (lambda s, x, m=m: s.correlate2d(x, K, m, "symm"), M, None)
        for m in ("full", "same", "valid")
    ],
    (lambda s, x: s.convolve2d(x, K, "same", fillvalue=2.0), M, None),
    (lambda s, x: s.lfilter(NUM, DEN, x), A, None),
    (lambda s, x: s.lfilter(NUM, DEN, x, axis=0), M, None),
    (lambda s, x: s.lfilter(x, [2.0, 0.3], A), B, None),
    (lambda s, x: s.lfilter([1.0, 0.5], x, A), np.array([1.5, -0.3, 0.2]), None),
    (lambda s, x: s.lfilter([0.7], [2.0], x), A, None),
    (lambda s, x: s.lfilter(NUM, DEN, x, zi=[0.1, -0.2])[0], A, None),
    (lambda s, x: s.lfilter(NUM, DEN, A, zi=x)[1], np.array([0.1, -0.2]), None),
    (lambda s, x: s.sosfilt(SOS, x), A, None),
    (lambda s, x: s.sosfilt(SOS, x, zi=np.ones((2, 2)))[1], A, None),
    (lambda s, x: s.filtfilt(NUM, DEN, x), RNG.normal(size=20), None),
    (lambda s, x: s.filtfilt(NUM, DEN, x, axis=0, padlen=2), M, None),
    *[
        (lambda s, x, m=m: s.savgol_filter(x, 5, 2, mode=m), A, None)
        for m in ("interp", "mirror", "nearest", "wrap", "constant")
    ],
    (lambda s, x: s.savgol_filter(x, 4, 2, deriv=1, delta=0.1, axis=0), M, None),
    (lambda s, x: s.detrend(x), A, None),
    (lambda s, x: s.detrend(x, axis=0, type="constant"), M, None),
    (lambda s, x: s.detrend(x, bp=[4]), A, None),
    (lambda s, x: np.abs(s.hilbert(x)) ** 2, A, None),
    (lambda s, x: np.imag(s.hilbert(x, 12, axis=0)), M, None),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_value_and_derivative(case: int) -> None:
    fn, x, _ = CASES[case]
    want = fn(ss, x)
    got = tapec.jit(lambda x: fn(ts, x))(x)
    np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-13)
    direction = RNG.normal(size=x.shape)
    w = RNG.normal(size=np.shape(want))
    slope = np.sum(tapec.grad(lambda x: np.sum(w * fn(ts, x)))(x) * direction)
    h = 1e-3  # six points: the error is of order h**6
    points = [np.sum(w * fn(ss, x + k * h * direction)) for k in (-3, -2, -1, 1, 2, 3)]
    exact = np.dot(points, np.array([-1, 9, -45, 45, -9, 1]) / 60) / h
    assert slope == pytest.approx(exact, rel=1e-8, abs=1e-9)
    jvp = tapec.jvp(lambda x: np.sum(w * fn(ts, x)), (x,), (direction,))[1]
    assert jvp == pytest.approx(slope, rel=1e-11, abs=1e-12)


def test_plain_names() -> None:
    """A function that names scipy.signal is traced again on the counterparts."""
    loss = lambda a: np.sum(ss.lfilter([1.0], [1.0, -a], np.ones(4)))  # noqa: E731
    value, slope = tapec.value_and_grad(loss)(0.5)
    assert (value, slope) == (6.125, 5.75)  # Σ_k (4 - k) aᵏ and its derivative
    assert ts.lfilter([1.0], [1.0, -0.5], np.ones(4)).tolist() == [1, 1.5, 1.75, 1.875]
    assert ts.butter is ss.butter


def test_two_points_of_recursion_at_once() -> None:
    """Second derivative by a coefficient: Σ_t Σ_k k (k - 1) a^(k-2) for the running sums."""
    loss = lambda a: np.sum(ts.lfilter([1.0], [1.0, -a], np.ones(4)))  # noqa: E731
    assert tapec.grad(tapec.grad(loss))(0.5) == pytest.approx(2 * 2 + 6 * 0.5)
    many = tapec.vmap(tapec.grad(loss))(np.array([0.5, 0.0]))
    np.testing.assert_allclose(many, [5.75, 3])


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda x: ts.convolve(x, K), "same dimensionality"),
        (lambda x: ts.convolve(x, B, "some"), "modes"),
        (lambda x: ts.convolve2d(x, B), "2-D"),
        (lambda x: ts.lfilter([1.0, 2.0], [1.0], x, zi=np.ones(3)), "zi must hold 1"),
        (lambda x: ts.filtfilt(NUM, DEN, x), "padlen"),
        (lambda x: ts.savgol_filter(x, 11, 2), "window_length 11"),
        (lambda x: ts.detrend(x, bp=20), "breakpoints"),
    ],
)
def test_mistakes(fn: Any, message: str) -> None:
    with pytest.raises(ValueError, match=rf"scipy_signal.py:\d+: .*{message}"):
        tapec.jit(fn)(A)
