"""Tensors and function transforms meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tapec

X = np.array([0.5, -1.0, 2.0])


def loss(x: Any) -> Any:
    return (x.sigmoid() * x).sum(dim=0) if isinstance(x, tapec.Tensor) else None


def plain(x: Any) -> Any:
    return np.sum(np.tanh(x) * x)


@pytest.mark.parametrize("f", [loss, plain])
def test_gradient_of_a_function_of_tensors(f: Any) -> None:
    x = tapec.tensor(X)
    g = tapec.grad(f)(x)
    assert isinstance(g, tapec.Tensor) and not x.requires_grad
    y = tapec.tensor(X, requires_grad=True)
    f(y).backward()
    assert g.allclose(y.grad)
    value, again = tapec.value_and_grad(f)(x)
    assert again.allclose(g) and abs(value.item() - f(y).item()) < 1e-15


def test_matrices_of_derivatives() -> None:
    x, v = tapec.tensor(X), tapec.tensor([1.0, 2.0, 3.0])
    h = tapec.hessian(plain)(x)
    np.testing.assert_allclose(h.numpy(), tapec.hessian(plain)(X), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(tapec.hvp(plain)(x, v).numpy(), h.numpy() @ v.numpy(), atol=1e-12)
    j = tapec.jacobian(lambda x: x**2)(x)
    np.testing.assert_allclose(j.numpy(), np.diag(2 * X))


def test_several_arguments_and_containers() -> None:
    f = lambda p, y: (p["w"] * y).sum() + p["b"] ** 2  # noqa: E731
    params = {"w": tapec.tensor(X), "b": tapec.tensor(2.0)}
    g = tapec.grad(f)(params, tapec.tensor([1.0, 2.0, 3.0]))
    assert g["w"].tolist() == [1.0, 2.0, 3.0] and g["b"].item() == 4.0


def test_jitted_function_of_tensors() -> None:
    f = tapec.jit(plain)
    y = f(tapec.tensor(X))
    assert isinstance(y, tapec.Tensor) and abs(y.item() - plain(X)) < 1e-14
    x = tapec.tensor(X, requires_grad=True)
    (f(x * 2) * 3).backward()
    np.testing.assert_allclose(x.grad.numpy(), 6 * tapec.grad(plain)(2 * X), rtol=1e-12)


def test_numpy_functions_on_tensors() -> None:
    x = tapec.tensor([[1.0, 2.0], [3.0, 5.0]], requires_grad=True)
    assert np.mean(x, axis=0).tolist() == [2.0, 3.5]
    assert abs(np.var(x).item() - np.var([1.0, 2.0, 3.0, 5.0])) < 1e-15
    assert np.where(x > 2, x, 0.0).sum().item() == 8.0
    assert np.concatenate([x, x]).shape == (4, 2) and np.transpose(x).shape == (2, 2)
