"""Complex tensors: PyTorch's convention, promotion, optimisers, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapec

Z = np.array([0.3 + 0.4j, 1j, 2.0])


def gradient(f: Callable[[Any], Any], z: Any = Z) -> Any:
    t = tapec.tensor(z, requires_grad=True)
    f(t).backward()
    return t.grad.numpy()


def test_gradients_are_those_of_the_function_transforms() -> None:
    cases: list[tuple[Callable[[Any], Any], Callable[[Any], Any]]] = [
        (lambda t: t.abs().sum(), lambda z: np.sum(np.abs(z))),
        (lambda t: (t.exp() * t).abs().sum(), lambda z: np.sum(np.abs(np.exp(z) * z))),
        (lambda t: (t * 2j + 1).real.sum(), lambda z: np.sum((z * 2j + 1).real)),
        (lambda t: (t @ t.conj()).real, lambda z: (z @ z.conj()).real),
        (lambda t: t.angle().sum() + t.imag.mean(), lambda z: np.sum(np.angle(z)) + z.imag.mean()),
        (lambda t: t.var(correction=0), np.var),
        (
            lambda t: (1 / (t[:2].reshape(2, 1) + 1)).abs().max(),
            lambda z: np.abs(1 / (z + 1)).max(),
        ),
        (lambda t: np.abs(np.sqrt(t)).sum(), lambda z: np.sum(np.abs(np.sqrt(z)))),
    ]
    for f, plain in cases[:6]:
        np.testing.assert_allclose(gradient(f), tapec.grad(plain)(Z), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(
        gradient(cases[6][0])[:2], tapec.grad(cases[6][1])(Z[:2]), rtol=1e-12, atol=1e-14
    )
    np.testing.assert_allclose(gradient(cases[7][0]), tapec.grad(cases[7][1])(Z), rtol=1e-12)
    assert abs(gradient(lambda t: t.abs(), 3 + 4j) - (0.6 + 0.8j)) < 1e-15


def test_seeds() -> None:
    ct = np.array([1 + 1j, 2, 3])
    t = tapec.tensor(Z, requires_grad=True)
    (t * t).backward(gradient=tapec.tensor(ct))
    np.testing.assert_allclose(t.grad.numpy(), np.conj(2 * Z) * ct, rtol=1e-15)
    t = tapec.tensor(Z, requires_grad=True)
    (t * t).backward(gradient=tapec.tensor([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(t.grad.numpy(), np.conj(2 * Z) * [1, 2, 3], rtol=1e-15)
    with pytest.raises(
        RuntimeError, match=r"test_tensor_complex\.py:\d+: .*only for real scalar outputs"
    ):
        tapec.tensor(Z, requires_grad=True).sum().backward()
    x = tapec.tensor([1.0], requires_grad=True)
    with pytest.raises(RuntimeError, match=r"test_tensor_complex\.py:\d+: .*complex, but output"):
        (x * x).backward(gradient=tapec.tensor([1j]))


def test_real_leaves_have_real_gradients() -> None:
    x = tapec.tensor(2.0, requires_grad=True)
    ((x + 1j * x**2).abs() ** 2).backward()
    assert x.grad.dtype is tapec.float64 and x.grad.item() == 36.0


def test_promotion_and_values() -> None:
    single = tapec.tensor([1.0, 2.0], dtype=tapec.float32)
    assert (single * 1j).dtype is tapec.complex64
    assert (tapec.tensor([1.0]) * 1j).dtype is tapec.complex128
    assert (tapec.tensor([1j], dtype=tapec.complex64) * tapec.tensor([1.0])).dtype is (
        tapec.complex128
    )
    assert (tapec.tensor([1, 2]) + 1j).dtype is tapec.complex128
    t = tapec.tensor(Z)
    np.testing.assert_allclose((t / (1 - 2j) ** 2).numpy(), Z / (1 - 2j) ** 2, rtol=1e-15)
    np.testing.assert_array_equal((Z * t).numpy(), Z * Z)
    assert t[1].item() == 1j and t.conj()[0].item() == 0.3 - 0.4j
    assert t.real.dtype is tapec.float64 and tapec.tensor([1.0]).real.item() == 1.0
    with pytest.raises(RuntimeError, match="real tensor"):
        _ = tapec.tensor([1.0]).imag.item()


def test_descent() -> None:
    for make in (tapec.optim.SGD, tapec.optim.Adam):
        t = tapec.tensor(Z, requires_grad=True)
        optimizer = make([t], lr=0.1)
        for _ in range(150):
            optimizer.zero_grad()
            ((t - (1 - 1j)).abs() ** 2).sum().backward()
            optimizer.step()
        np.testing.assert_allclose(t.detach().numpy(), [1 - 1j] * 3, atol=2e-2)


def test_second_derivatives() -> None:
    """Hessian times vector of Σ |z|⁴, and the gradient of a gradient's length."""
    t = tapec.tensor(Z, requires_grad=True)
    (g,) = tapec.autograd.grad((t.abs() ** 4).sum(), [t], create_graph=True)
    np.testing.assert_allclose(g.detach().numpy(), 4 * abs(Z) ** 2 * Z, rtol=1e-13)
    v = np.array([1.0, 1j, 1 - 1j])
    (hv,) = tapec.autograd.grad(g, [t], tapec.tensor(v), retain_graph=True)
    want = tapec.hvp(lambda z: np.sum(np.abs(z) ** 4))(Z, v)
    np.testing.assert_allclose(hv.numpy(), want, rtol=1e-12, atol=1e-14)
    (g.abs() ** 2).sum().backward()
    np.testing.assert_allclose(t.grad.numpy(), 6 * 16 * abs(Z) ** 4 * Z, rtol=1e-12)
