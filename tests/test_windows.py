"""``sliding_window_view`` and functions of ``np.frompyfunc``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view as windows

import tapec

A = np.arange(24.0).reshape(2, 3, 4) ** 1.5


@pytest.mark.parametrize(
    "fn",
    [
        lambda a: windows(a[0, 0], 2),
        lambda a: windows(a, (1, 2, 3)),
        lambda a: windows(a, 3, axis=-1),
        lambda a: windows(a, 2, axis=1),
        lambda a: windows(a, (2, 3), axis=(1, 2)),
        lambda a: windows(a, (2, 2), axis=(2, 2)),
        lambda a: windows(a, (3, 2), axis=(2, 0)),
        lambda a: windows(a, 0, axis=1),
    ],
)
def test_windows(fn: Callable[[Any], Any]) -> None:
    want = fn(A)
    np.testing.assert_array_equal(tapec.jit(fn)(A), want)
    weights = np.cos(np.arange(want.size)).reshape(want.shape)
    # each element counts as often as it is seen
    places = fn(np.arange(24).reshape(A.shape))
    want = np.bincount(places.ravel(), weights.ravel(), 24).reshape(A.shape)
    got = tapec.grad(lambda a: np.sum(fn(a) * weights))(A)
    np.testing.assert_allclose(got, want, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize(("size", "axis"), [(5, 2), ((1, 2), None), ((2, 2), 1)])
def test_windows_that_do_not_fit(size: Any, axis: Any) -> None:
    with pytest.raises(ValueError, match="windows.py"):
        tapec.jit(lambda a: windows(a, size, axis))(A)


def test_python_functions_as_ufuncs() -> None:
    power = np.frompyfunc(lambda a, b: a**b if a > 1 else a * b, 2, 1)
    both = np.frompyfunc(lambda a: (np.sin(a), a**2), 1, 2)
    x = np.array([0.5, 2.0, 3.0])
    np.testing.assert_allclose(tapec.grad(lambda x: np.sum(power(x, 3.0)))(x), [3, 12, 27])
    np.testing.assert_allclose(tapec.grad(lambda b: np.sum(power(x, b)))(3.0), 0.5 + 8 * np.log(2) + 27 * np.log(3))  # fmt: skip
    got = tapec.grad(lambda x: np.sum(both(x)[0] * both(x)[1]))(x)
    np.testing.assert_allclose(got, np.cos(x) * x**2 + 2 * x * np.sin(x), rtol=1e-14)
    assert tapec.grad(lambda x: power(x, 2.0))(3.0) == 6
