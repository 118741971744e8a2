"""``numpy.fft`` on traced arrays: values, derivatives, native loops, errors."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapec
from tapec.codegen import fourier

rng = np.random.default_rng(7)
Z = rng.normal(size=(3, 4, 5)) + 1j * rng.normal(size=(3, 4, 5))
X = Z.real.copy()

ONE_AXIS = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
MANY = ["fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn"]
SHIFTS = ["fftshift", "ifftshift"]


def operands(name: str) -> list[Any]:
    return [X] if name.startswith(("rfft", "ihfft")) else [X, Z]


def agree(f: Callable[..., Any], a: Any, tol: float = 1e-12) -> None:
    want, got = f(a), tapec.jit(lambda a: f(a))(a)
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=tol, atol=tol)


@pytest.mark.parametrize("name", ONE_AXIS)
def test_values_along_one_axis(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPEC_BACKEND", "interpret")
    f: Any = getattr(np.fft, name)
    for a in operands(name):
        for n, axis, norm in itertools.product(
            (None, 3, 8, 1), (-1, 1), (None, "ortho", "forward")
        ):
            agree(lambda a, n=n, axis=axis, norm=norm: f(a, n=n, axis=axis, norm=norm), a)


@pytest.mark.parametrize("name", MANY + SHIFTS)
def test_values_along_several_axes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPEC_BACKEND", "interpret")
    f: Any = getattr(np.fft, name)
    forms: list[dict[str, Any]] = [{}, {"axes": (0, 1)}, {"axes": (1, 0)}]
    if name not in SHIFTS:
        forms += [{"axes": (1, 2), "s": (3, 8)}, {"axes": (0, 2), "norm": "ortho"}]
        forms += [{"s": (-1, 4), "axes": (2, 0), "norm": "forward"}]
    for a in operands(name):
        for kw in forms:
            agree(lambda a, kw=kw: f(a, **kw), a)


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft"])
def test_native_loops(name: str) -> None:
    f: Any = getattr(np.fft, name)
    for a in operands(name):
        for axis in (0, 2):
            agree(lambda a, axis=axis: f(a, axis=axis), a)
        single = a.astype(np.float32 if a.dtype == float else np.complex64)
        agree(lambda a: f(a), single, 1e-5)
    for n in (1, 2, 97, 128):
        line = np.resize(operands(name)[-1], n)
        if name == "irfft":
            agree(lambda a, n=n: f(a, n), line)
        else:
            agree(lambda a: f(a), line)


def test_empty_batches() -> None:
    agree(lambda a: np.fft.fft(a), np.zeros((0, 4), complex))
    agree(lambda a: np.fft.rfft(a), np.zeros((0, 4)))


def test_what_stands_in_where_numpy_has_no_loops() -> None:
    for name, x in (("fft", Z[0]), ("rfft_n_odd", X[0]), ("irfft", Z[0]), ("ifft", Z[0])):
        letter = "d"
        call = fourier._callback(name, letter)
        nout = {"rfft_n_odd": 3, "irfft": 8}.get(name, 5)
        out = np.zeros((4, nout), float if name == "irfft" else complex)
        one = np.ones(())
        args = (ctypes.c_void_p * 3)(x.ctypes.data, one.ctypes.data, out.ctypes.data)
        x = np.ascontiguousarray(x)
        args[0] = x.ctypes.data
        sizes = (ctypes.c_ssize_t * 3)(4, 5, nout)
        steps = (ctypes.c_ssize_t * 5)(x.strides[0], 0, out.strides[0], x.itemsize, out.itemsize)
        call(args, sizes, steps, None)
        np.testing.assert_allclose(out, fourier._by_numpy(name, x, nout), rtol=1e-14)
        assert all(fourier._loop(name, letter)[:2])


SMOOTH: list[tuple[Callable[..., Any], Any]] = [
    (lambda x: np.fft.rfft(x, axis=1), X),
    (lambda x: np.fft.fft(x, 7, axis=0), X),
    (lambda z: np.fft.fft(z) * np.fft.ifft(z**2, norm="ortho"), Z[0]),
    (lambda z: np.fft.irfft(z, 7), Z[0]),
    (lambda z: np.fft.irfft(z, 8) ** 2, Z[0]),
    (lambda z: np.fft.hfft(z), Z[0]),
    (lambda x: np.abs(np.fft.ihfft(x)) ** 2, X[0]),
    (lambda x: np.fft.irfft2(np.fft.rfft2(x) * np.exp(-np.abs(np.fft.rfft2(x))), X[0].shape), X[0]),
    (lambda z: np.fft.fftn(z, axes=(0, 2)), Z),
    (lambda z: np.fft.fftshift(np.fft.ifft2(z)) * z, Z[0]),
]


@pytest.mark.parametrize("case", range(len(SMOOTH)))
def test_derivatives(case: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPEC_BACKEND", "interpret")
    f, a = SMOOTH[case]
    tapec.check_grads(lambda a: f(a), (a,), order=2)


def test_real_fourier_round_trip() -> None:
    """The transform that keeps the mean: Σ y² = n mean², whose gradient is 2 mean."""
    g = tapec.grad(lambda x: np.sum(np.fft.irfft(np.fft.rfft(x) * np.array([1.0, 0, 0])) ** 2))
    np.testing.assert_allclose(g(np.array([1.0, 2.0, 3.0, 6.0])), [6.0] * 4, rtol=1e-15)


def test_gradient_of_the_power_spectrum_by_parseval() -> None:
    x = X[0, 0]
    g = tapec.grad(lambda x: np.sum(np.abs(np.fft.fft(x)) ** 2))(x)
    np.testing.assert_allclose(g, 2 * x.size * x, rtol=1e-13)
    z = Z[0, 0]
    g = tapec.grad(lambda z: np.sum(np.abs(np.fft.fft(z, norm="ortho")) ** 2))(z)
    np.testing.assert_allclose(g, 2 * z, rtol=1e-13)


def test_deconvolution_gradient_is_a_correlation() -> None:
    """|h * x - y|² by FFT and by a circulant matrix."""
    n = 12
    h, x, y = rng.normal(size=(3, n))
    circulant = np.array([[h[(i - j) % n] for j in range(n)] for i in range(n)])

    def loss(x: Any) -> Any:
        blurred = np.fft.irfft(np.fft.rfft(h) * np.fft.rfft(x), n)
        return np.sum((blurred - y) ** 2)

    want = 2 * circulant.T @ (circulant @ x - y)
    np.testing.assert_allclose(tapec.grad(loss)(x), want, rtol=1e-12)
    np.testing.assert_allclose(tapec.hessian(loss)(x), 2 * circulant.T @ circulant, atol=1e-12)


def test_batches() -> None:
    rows = Z[0]
    got = tapec.vmap(lambda z: np.fft.fft(z))(rows)
    np.testing.assert_allclose(got, np.fft.fft(rows), rtol=1e-13)
    columns = tapec.vmap(lambda x: np.abs(np.fft.rfft(x)), in_axes=1, out_axes=1)(X[0])
    np.testing.assert_allclose(columns, np.abs(np.fft.rfft(X[0], axis=0)), rtol=1e-12)
    jac = tapec.jacobian(lambda z: np.fft.fft(z), holomorphic=True)(rows[0])
    np.testing.assert_allclose(jac, np.fft.fft(np.eye(5), axis=0), atol=1e-14)


@pytest.mark.parametrize(
    ("f", "error", "text"),
    [
        (lambda: tapec.jit(lambda x: np.fft.fft(x, 0))(X), ValueError, "data points"),
        (lambda: tapec.jit(lambda x: np.fft.fft(x, norm="odd"))(X), ValueError, "norm value"),
        (lambda: tapec.jit(lambda x: np.fft.fft(x, axis=3))(X), IndexError, "out of bounds"),
        (lambda: tapec.jit(lambda z: np.fft.rfft(z))(Z), TypeError, "real"),
        (lambda: tapec.jit(lambda x: np.fft.fftn(x, (2, 2), (0,)))(X), ValueError, "lengths"),
        (lambda: tapec.jit(lambda x: np.fft.fft(x))(1.0), ValueError, "0-d"),
    ],
)
def test_mistakes(f: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        f()
    assert "test_fourier.py" in str(caught.value)
