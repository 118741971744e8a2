"""The programs of ``tests/programs``: values by a second method, gradients by differences."""

from __future__ import annotations

import numpy as np
import pytest
from programs import PROGRAMS, finance, geometry, inference, physics  # noqa: F401

import tapec


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_program(name: str) -> None:
    """Differences of sixth order of the plain function, coordinate by coordinate."""
    fn, x, other, rtol = PROGRAMS[name]
    value, gradient = tapec.value_and_grad(fn)(x)
    plain = fn(x.copy())
    np.testing.assert_allclose(value, plain, rtol=1e-12, atol=1e-13)
    if other is not None:
        np.testing.assert_allclose(value, other(x), rtol=rtol, atol=rtol)
    h = 3e-4
    wanted = np.empty_like(x)
    for k in np.ndindex(*x.shape):
        step = np.zeros_like(x)
        step[k] = h
        near, far = (fn(x + m * step) - fn(x - m * step) for m in (1, 2))
        farther = fn(x + 3 * step) - fn(x - 3 * step)
        wanted[k] = (45 * near - 9 * far + farther) / (60 * h)
    size = np.max(np.abs(wanted)) + 1e-3
    np.testing.assert_allclose(gradient, wanted, rtol=1e-7, atol=1e-7 * size)


def test_plain_array_by_traced_indices_names_the_way() -> None:
    table = np.arange(10.0)

    def look_up(x: np.ndarray) -> object:
        return np.sum(x * table[np.floor(x).astype(int)])

    with pytest.raises(IndexError, match=r"programs.py:\d+: .*tapec.numpy.array") as caught:
        tapec.grad(look_up)(np.array([1.5, 2.5]))
    assert isinstance(caught.value, tapec.TapecError)


def test_there_are_forty() -> None:
    assert len(PROGRAMS) >= 40
