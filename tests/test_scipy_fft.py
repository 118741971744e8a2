"""``scipy.fft`` in traced functions: SciPy's values; the derivative of a linear map is the map."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.fft
from scipy.fft import dct, irfft, rfft

import tapec

RNG = np.random.default_rng(2)
X, M = RNG.normal(size=7), RNG.normal(size=(4, 6))

CASES: list[tuple[Any, Any]] = [
    *[
        (lambda x, f=f, t=t, n=n: getattr(scipy.fft, f)(x, t, norm=n), X)
        for f in ("dct", "idct", "dst", "idst")
        for t in (1, 2, 3, 4)
        for n in (None, "ortho", "forward")
    ],
    *[(lambda x, n=n: dct(x, n=n), X) for n in (1, 5, 10)],
    (lambda x: scipy.fft.dct(x, 3, axis=0), M),
    (lambda x: scipy.fft.dct(x, 2, orthogonalize=True), X),
    (lambda x: scipy.fft.dst(x, 3, norm="ortho", orthogonalize=False), X),
    *[(lambda x, f=f: getattr(scipy.fft, f)(x), M) for f in ("dctn", "idctn", "dstn", "idstn")],
    (lambda x: scipy.fft.dctn(x, s=(3, 5), norm="ortho"), M),
    (lambda x: scipy.fft.idctn(x, axes=1), M),
    (lambda x: scipy.fft.rfft(x).real, X),
    (lambda x: scipy.fft.fft(x, 9, norm="ortho").imag, X),
    (lambda x: scipy.fft.ifft2(x, workers=1).imag, M),
    (lambda x: scipy.fft.rfftn(x, axes=[0]).real, M),
    (lambda x: irfft(rfft(x) * np.arange(4), 7), X),
    (lambda x: scipy.fft.hfft(x * (1 + 2j)), X),
    (lambda x: scipy.fft.fftshift(scipy.fft.ifft(x)).real, X),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_linear_maps(case: int) -> None:
    fn, x = CASES[case]
    want = fn(x)
    np.testing.assert_allclose(tapec.jit(fn)(x), want, rtol=1e-12, atol=1e-13)
    v = RNG.normal(size=x.shape)
    _, tangent = tapec.jvp(lambda x: fn(x), (x,), (v,))
    np.testing.assert_allclose(tangent, fn(v), rtol=1e-12, atol=1e-13)
    w = RNG.normal(size=np.shape(want))
    slope = tapec.grad(lambda x: np.sum(w * fn(x)))(x)
    assert np.sum(slope * v) == pytest.approx(np.sum(w * fn(v)), rel=1e-11)


def test_mistakes() -> None:
    with pytest.raises(ValueError, match=r"scipy_fft.py:\d+: .*type 5"):
        tapec.jit(lambda x: tapec_fft().dct(x, 5))(X)
    with pytest.raises(ValueError, match="norm='odd'"):
        tapec.jit(lambda x: tapec_fft().dct(x, norm="odd"))(X)
    with pytest.raises(ValueError, match="of 1 elements"):
        tapec.jit(lambda x: tapec_fft().dct(x[:1], 1))(X)


def tapec_fft() -> Any:
    from tapec.scipy import fft

    return fft
