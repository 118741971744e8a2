"""Dense Hessians: computed as a triangle where they are unrolled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tapec


def _reach(order: Any) -> Any:
    """A chain of rotations, whose Hessian is dense; joints used in this order."""

    def fn(q: Any) -> Any:
        x, y = 1.0, 0.5
        for k in order:
            c, s = np.cos(q[k]), np.sin(q[k])
            x, y = 1.0 + c * x - s * y, c * y + s * x
        return x * y

    return fn


@pytest.mark.parametrize("order", [range(6), range(5, -1, -1), (3, 0, 5, 1, 4, 2)])
def test_hessian_of_a_chain_is_that_of_differences_and_symmetric(order: Any) -> None:
    q = np.linspace(0.1, 0.9, 6)
    fn = _reach(order)
    got = tapec.hessian(fn)(q)
    np.testing.assert_array_equal(got, got.T)
    np.testing.assert_allclose(got, tapec.jacfwd(tapec.grad(fn))(q), rtol=1e-12, atol=1e-13)
    numeric = tapec.jacrev(tapec.grad(fn))(q)
    np.testing.assert_allclose(got, numeric, rtol=1e-12, atol=1e-13)


def test_only_one_triangle_is_computed() -> None:
    q = np.linspace(0.1, 0.9, 4)  # from five directions on, they are lanes of vectors
    counts = [
        make(_reach(order)).dump("opt", q).count("\n")
        for order in (range(4), range(3, -1, -1))
        for make in (tapec.hessian, lambda fn: tapec.jacfwd(tapec.grad(fn)))
    ]
    assert counts[0] < 0.85 * counts[1] and counts[2] < 0.85 * counts[3]


def test_blocks_of_a_hessian_mirror_each_other() -> None:
    def fn(a: Any, b: Any) -> Any:
        return np.sum(np.sin(a) * b["x"]) ** 2 + b["y"] * np.prod(a)

    args = (np.array([0.3, 0.7]), {"x": np.array([1.1, -0.4]), "y": 0.6})
    (aa, ab), below = tapec.hessian(fn, argnums=(0, 1))(*args)
    np.testing.assert_allclose(ab["x"], below["x"][0].T, rtol=1e-15)
    np.testing.assert_allclose(ab["y"], below["y"][0], rtol=1e-15)
    np.testing.assert_allclose(below["x"][1]["y"], below["y"][1]["x"], rtol=1e-15)
    want = tapec.jacfwd(tapec.grad(fn, argnums=(0, 1)), argnums=(0, 1))(*args)
    np.testing.assert_allclose(aa, want[0][0], rtol=1e-12)
    np.testing.assert_allclose(below["x"][0], want[1]["x"][0], rtol=1e-12)
    np.testing.assert_allclose(below["x"][1]["x"], want[1]["x"][1]["x"], rtol=1e-12, atol=1e-15)
    matrix = tapec.hessian(lambda m: np.sum(np.sin(m @ m)))(np.array([[0.1, 0.2], [0.3, 0.4]]))
    np.testing.assert_allclose(matrix, np.transpose(matrix, (2, 3, 0, 1)), rtol=1e-15)


def test_blocks_of_scalar_code_in_vectors() -> None:
    """Enough directions for lanes; arguments of different ranks."""

    def fn(m: Any, v: Any) -> Any:
        x = m[0, 0] * np.sin(v[0]) + m[1, 2] * m[0, 1]
        y = np.cos(m[1, 1] * v[4]) + v[1] * v[2] * m[1, 0]
        for k in range(5):
            x, y = x * v[k] - y * m[k % 2, k % 3], y * np.sin(x) + v[k]
        return x * y

    rng = np.random.default_rng(0)
    m, v = rng.uniform(size=(2, 3)), rng.uniform(size=5)
    (mm, mv), (vm, vv) = tapec.hessian(fn, argnums=(0, 1))(m, v)
    assert mm.shape == (2, 3, 2, 3) and mv.shape == (2, 3, 5) and vm.shape == (5, 2, 3)
    np.testing.assert_array_equal(mm, mm.transpose(2, 3, 0, 1))
    np.testing.assert_array_equal(vv, vv.T)
    np.testing.assert_array_equal(mv, vm.transpose(1, 2, 0))
    want = tapec.jacrev(tapec.grad(fn, argnums=(0, 1)), argnums=(0, 1))(m, v)
    np.testing.assert_allclose(mm, want[0][0], rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(mv, want[0][1], rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(vv, want[1][1], rtol=1e-11, atol=1e-12)
