"""``scipy.fft`` for traced values: ``from tapec.scipy import fft``.

Fourier transforms are NumPy's; cosine and sine transforms are made of them.  Every other name is
SciPy's own, on plain arrays.

>>> import numpy as np, tapec
>>> from tapec.scipy import fft
>>> tapec.grad(lambda x: np.sum(fft.dct(x, norm="ortho") ** 2))(np.array([1.0, 2.0])).round(12)
array([2., 4.])
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.fft as _scipy

from tapec.errors import TapecValueError, fail
from tapec.numpy.registry import axes_of
from tapec.scipy._traced import numbers, replacing

_FOURIER = (
    "fft", "fft2", "fftn", "hfft", "ifft", "ifft2", "ifftn", "ihfft", "irfft", "irfft2", "irfftn",
    "rfft", "rfft2", "rfftn",
)  # fmt: skip

__all__ = [*_FOURIER, "dct", "dctn", "dst", "dstn", "idct", "idctn", "idst", "idstn"]

replaces = replacing(_scipy)


def _of_numpy(name: str) -> Callable[..., Any]:
    """NumPy's function; what SciPy has in addition only concerns how it computes."""
    plain = getattr(np.fft, name)

    def transform(
        x: Any, *args: Any, overwrite_x: Any = False, workers: Any = None, plan: Any = None,
        **kwargs: Any,
    ) -> Any:  # fmt: skip
        return plain(x, *args[:3], **kwargs)

    transform.__name__ = transform.__qualname__ = name
    transform.__doc__ = f"``scipy.fft.{name}``"
    return replaces(transform)


globals().update({name: _of_numpy(name) for name in _FOURIER})


# -- cosine and sine transforms along the last axis, not normalised -------------------------------


def _dct1(x: Any) -> Any:
    return np.real(np.fft.rfft(np.concatenate([x, x[..., -2:0:-1]], axis=-1)))


def _dct2(x: Any) -> Any:
    n = x.shape[-1]
    whole = np.fft.fft(np.concatenate([x, x[..., ::-1]], axis=-1))[..., :n]
    return np.real(whole * np.exp(-0.5j * np.pi * np.arange(n) / n))


def _dct3(x: Any) -> Any:
    """The transpose of ``_dct2``, all but the first element twice."""
    n = x.shape[-1]
    turned = x * np.exp(0.5j * np.pi * np.arange(n) / n)
    padded = np.concatenate([turned, np.zeros((*x.shape[:-1], n))], axis=-1)
    return 2 * np.real(np.fft.ifft(padded)[..., :n]) * (2 * n) - x[..., :1]


def _dct4(x: Any) -> Any:
    n = x.shape[-1]
    k = np.arange(n)
    turned = x * np.exp(-0.5j * np.pi * k / n)
    padded = np.concatenate([turned, np.zeros((*x.shape[:-1], n))], axis=-1)
    return 2 * np.real(np.fft.fft(padded)[..., :n] * np.exp(-0.25j * np.pi * (2 * k + 1) / n))


def _signs(n: int) -> Any:
    return (-1.0) ** np.arange(n)


def _dst1(x: Any) -> Any:
    zero = np.zeros((*x.shape[:-1], 1))
    odd = np.concatenate([zero, x, zero, -x[..., ::-1]], axis=-1)
    return -np.imag(np.fft.rfft(odd))[..., 1:-1]


def _dst2(x: Any) -> Any:
    return _dct2(x * _signs(x.shape[-1]))[..., ::-1]


def _dst3(x: Any) -> Any:
    return _dct3(x[..., ::-1]) * _signs(x.shape[-1])


def _dst4(x: Any) -> Any:
    return _dct4(x[..., ::-1]) * _signs(x.shape[-1])


_COSINE = {1: _dct1, 2: _dct2, 3: _dct3, 4: _dct4}
_SINE = {1: _dst1, 2: _dst2, 3: _dst3, 4: _dst4}
_INVERSE = {1: 1, 2: 3, 3: 2, 4: 4}


def _edges(n: int, kind: int, sine: bool) -> tuple[Any, Any]:
    """What makes the transform orthogonal but for its scale: factors before and after it."""
    before, after = np.ones(n), np.ones(n)
    if kind == 1 and not sine:
        before[[0, -1]], after[[0, -1]] = np.sqrt(2), np.sqrt(0.5)
    at = -1 if sine else 0
    if kind == 2:
        after[at] = np.sqrt(0.5)
    if kind == 3:
        before[at] = np.sqrt(2)
    return before, after


def _transform(
    x: Any, kind: int, n: Any, axis: int, norm: Any, sine: bool, inverse: bool, ortho: Any
) -> Any:
    if kind not in _INVERSE:
        raise fail(TapecValueError, f"a cosine or sine transform of type {kind}; there are 1 to 4")
    if norm not in (None, "backward", "ortho", "forward"):
        raise fail(TapecValueError, f"norm={norm!r}; it is 'backward', 'ortho' or 'forward'")
    a = numbers(x)
    if np.issubdtype(a.dtype, np.complexfloating):
        again = functools.partial(_transform, kind=kind, n=n, axis=axis, norm=norm, sine=sine,
                                  inverse=inverse, ortho=ortho)  # fmt: skip
        return again(np.real(a)) + 1j * again(np.imag(a))
    (axis,) = axes_of(axis, a.ndim)
    rows = np.moveaxis(a, axis, -1)
    size = rows.shape[-1] if n is None else int(n)
    if size < (2 if kind == 1 and not sine else 1):
        raise fail(TapecValueError, f"a transform of type {kind} of {size} elements")
    if size > rows.shape[-1]:
        more = np.zeros((*rows.shape[:-1], size - rows.shape[-1]))
        rows = np.concatenate([rows, more], axis=-1)
    rows = rows[..., :size]
    kind = _INVERSE[kind] if inverse else kind
    length = 2 * (size + (0 if kind != 1 else 1 if sine else -1))
    orthogonal = norm == "ortho" if ortho is None else ortho
    if orthogonal:
        before, after = _edges(size, kind, sine)
        rows = rows * before
    out = (_SINE if sine else _COSINE)[kind](rows)
    if orthogonal:
        out = out * after
    if norm == "ortho":
        out = out / np.sqrt(length)
    elif inverse != (norm == "forward"):
        out = out / length
    return np.moveaxis(out, -1, axis)


def _along(
    x: Any, kind: int, shape: Any, axes: Any, norm: Any, sine: bool, inverse: bool, ortho: Any
) -> Any:
    a = numbers(x)
    if axes is None:
        along = tuple(range(a.ndim))[-len(shape) :] if shape is not None else tuple(range(a.ndim))
    else:
        along = axes_of(axes, a.ndim)
    sizes = [None] * len(along) if shape is None else list(np.atleast_1d(shape))
    for axis, n in zip(along, sizes, strict=True):
        a = _transform(a, kind, n, axis, norm, sine, inverse, ortho)
    return a


def _one(name: str, sine: bool, inverse: bool) -> Callable[..., Any]:
    def transform(
        x: Any, type: int = 2, n: Any = None, axis: int = -1, norm: Any = None,
        overwrite_x: Any = False, workers: Any = None, orthogonalize: Any = None,
    ) -> Any:  # fmt: skip
        return _transform(x, type, n, axis, norm, sine, inverse, orthogonalize)

    transform.__name__ = transform.__qualname__ = name
    transform.__doc__ = f"``scipy.fft.{name}``"
    return replaces(transform)


def _many(name: str, sine: bool, inverse: bool) -> Callable[..., Any]:
    def transform(
        x: Any, type: int = 2, s: Any = None, axes: Any = None, norm: Any = None,
        overwrite_x: Any = False, workers: Any = None, *, orthogonalize: Any = None,
    ) -> Any:  # fmt: skip
        return _along(x, type, s, axes, norm, sine, inverse, orthogonalize)

    transform.__name__ = transform.__qualname__ = name
    transform.__doc__ = f"``scipy.fft.{name}``"
    return replaces(transform)


dct, idct = _one("dct", False, False), _one("idct", False, True)
dst, idst = _one("dst", True, False), _one("idst", True, True)
dctn, idctn = _many("dctn", False, False), _many("idctn", False, True)
dstn, idstn = _many("dstn", True, False), _many("idstn", True, True)


def __getattr__(name: str) -> Any:
    return getattr(_scipy, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(_scipy)})
