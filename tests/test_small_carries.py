"""Loops whose carries are small matrices: all ways to take them apart and put them together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapec

MOVES: dict[str, Callable[[Any], Any]] = {
    "rows down": lambda z: np.concatenate([z[1:], np.zeros((1, z.shape[1]))]),
    "columns left": lambda z: np.concatenate([z[:, 1:], np.zeros((z.shape[0], 1))], axis=1),
    "first row": lambda z: z + z[0],
    "first row of two": lambda z: z + z[:1],
    "last column": lambda z: z * z[:, -1:],
    "reversed": lambda z: z[::-1, ::-1] + z,
    "every other": lambda z: z + np.sum(z[:, ::2]),
    "inner": lambda z: z + np.sum(z[:, 1:-1], axis=1, keepdims=True),
    "roll": lambda z: np.roll(z, 1, axis=1) - z,
    "corner": lambda z: z - z[0, 0] * z[-1, -1],
    "transposed product": lambda z: z @ (z.T @ z) * 0.1,
    "stack": lambda z: np.stack([z[k] for k in range(z.shape[0] - 1, -1, -1)]),
}


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("shape", [(2, 7), (4, 4), (3, 5), (1, 8), (8, 1)])
def test_small_matrices(move: str, shape: tuple[int, int]) -> None:
    step = MOVES[move]
    z0 = np.linspace(-0.5, 0.7, shape[0] * shape[1]).reshape(shape)
    xs = np.cos(np.arange(3.0 * shape[1])).reshape(3, shape[1])

    def looped(z: Any) -> Any:
        last, ys = tapec.scan(lambda z, x: (step(z) * 0.5 + x, np.sum(z, axis=0)), z, xs)
        return np.sum(last**2) + np.sum(ys**3)

    def plain(z: Any) -> Any:
        total = 0.0
        for x in xs:
            total = total + np.sum(np.sum(z, axis=0) ** 3)
            z = step(z) * 0.5 + x
        return np.sum(z**2) + total

    value, slope = tapec.value_and_grad(looped)(z0)
    assert value == pytest.approx(plain(z0), rel=1e-12)
    h, w = 1e-3, np.cos(z0 * 3)
    points = [plain(z0 + k * h * w) for k in (-3, -2, -1, 1, 2, 3)]
    exact = np.dot(points, np.array([-1, 9, -45, 45, -9, 1]) / 60) / h
    assert np.sum(slope * w) == pytest.approx(exact, rel=1e-8, abs=1e-9)
