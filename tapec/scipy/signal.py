"""``scipy.signal`` for traced values: ``from tapec.scipy import signal``.

Convolutions, filters and what is linear in the signal; also right where the coefficients of a
filter are traced.  Every other name is SciPy's own, on plain arrays.

>>> import numpy as np, tapec
>>> from tapec.scipy import signal
>>> decay = lambda a: np.sum(signal.lfilter([1.0], [1.0, -a], np.ones(4)))
>>> tapec.value_and_grad(decay)(0.5)
(6.125, 5.75)
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import scipy.signal as _scipy

from tapec.control import scan
from tapec.errors import TapecValueError, UnsupportedError, fail
from tapec.numpy.registry import axes_of
from tapec.scipy._traced import numbers, replacing
from tapec.tape import is_traced

__all__ = [
    "convolve", "convolve2d", "correlate", "correlate2d", "detrend", "fftconvolve", "filtfilt",
    "hilbert", "lfilter", "oaconvolve", "savgol_filter", "sosfilt",
]  # fmt: skip

replaces = replacing(_scipy)

#: Convolutions with more elements than this in the smaller array go through Fourier transforms.
_DIRECT = 200


# -- convolution ----------------------------------------------------------------------------------


def _operands(x: Any, y: Any, mode: str, name: str) -> tuple[Any, Any]:
    x, y = numbers(x), numbers(y)
    if x.ndim != y.ndim:
        raise fail(TapecValueError, f"{name}: the inputs should have the same dimensionality")
    if mode not in ("full", "same", "valid"):
        raise fail(TapecValueError, f"{name}: acceptable modes are 'valid', 'same', or 'full'")
    if mode == "valid" and _contained(x, y):
        x, y = y, x
    return x, y


def _contained(x: Any, y: Any) -> bool:
    """Whether x is inside y, in every direction; an error if neither is inside of the other."""
    if all(m >= n for m, n in zip(x.shape, y.shape)):
        return False
    if all(m <= n for m, n in zip(x.shape, y.shape)):
        return True
    raise fail(
        TapecValueError,
        "for 'valid' mode, one input must be at least as large as the other in every dimension",
    )


def _cut(full: Any, like: tuple[int, ...], other: tuple[int, ...], mode: str) -> Any:
    """The part of a full convolution that the mode asks for."""
    if mode == "full":
        return full
    size = like if mode == "same" else tuple([m - n + 1 for m, n in zip(like, other)])
    start = [(f - n) // 2 for f, n in zip(full.shape, size)]
    return full[tuple([slice(s, s + n) for s, n in zip(start, size)])]


def _direct(x: Any, y: Any) -> Any:
    """Every element of the smaller array times the other one, moved."""
    if x.ndim == 0:
        return x * y
    if x.ndim == 1 and x.size and y.size:
        return np.convolve(x, y)
    if x.size < y.size:
        x, y = y, x
    widths = [(n - 1, n - 1) for n in y.shape]
    shape = tuple([m + n - 1 for m, n in zip(x.shape, y.shape)])
    padded, total = np.pad(x, widths), None
    for at in itertools.product(*[range(n) for n in y.shape]):
        start = [n - 1 - k for n, k in zip(y.shape, at)]
        term = padded[tuple([slice(s, s + m) for s, m in zip(start, shape)])] * y[at]
        total = term if total is None else total + term
    return total


def _fourier(x: Any, y: Any, axes: tuple[int, ...]) -> Any:
    shape = [x.shape[a] + y.shape[a] - 1 for a in axes]
    if np.issubdtype(x.dtype, np.complexfloating) or np.issubdtype(y.dtype, np.complexfloating):
        product = np.fft.fftn(x, shape, axes) * np.fft.fftn(y, shape, axes)
        return np.fft.ifftn(product, shape, axes)
    product = np.fft.rfftn(x, shape, axes) * np.fft.rfftn(y, shape, axes)
    return np.fft.irfftn(product, shape, axes)


@replaces
def convolve(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Any:
    """In any number of dimensions; ``auto``: by Fourier transforms if both arrays are large."""
    if method not in ("auto", "direct", "fft"):
        raise fail(TapecValueError, "convolve: method is 'auto', 'fft' or 'direct'")
    x, y = _operands(in1, in2, mode, "convolve")
    if x.size == 0 or y.size == 0:
        return np.zeros(0)
    many = x.ndim > 1 and min(x.size, y.size) > _DIRECT
    if method == "fft" or (method == "auto" and many):
        full = _fourier(x, y, tuple(range(x.ndim)))
    else:
        full = _direct(x, y)
    return _cut(full, x.shape, y.shape, mode)


@replaces
def fftconvolve(in1: Any, in2: Any, mode: str = "full", axes: Any = None) -> Any:
    x, y = _operands(in1, in2, mode, "fftconvolve")
    if x.size == 0 or y.size == 0:
        return np.zeros(0)
    along = tuple(range(x.ndim)) if axes is None else axes_of(axes, x.ndim)
    full = _fourier(x, y, along)
    like = tuple([m if a in along else f for a, (m, f) in enumerate(zip(x.shape, full.shape))])
    other = tuple([n if a in along else 1 for a, n in enumerate(y.shape)])
    return _cut(full, like, other, mode)


@replaces
def oaconvolve(in1: Any, in2: Any, mode: str = "full", axes: Any = None) -> Any:
    return fftconvolve(in1, in2, mode, axes)


def _reversed(y: Any) -> Any:
    return np.conj(y[(slice(None, None, -1),) * y.ndim])


@replaces
def correlate(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Any:
    x, y = numbers(in1), numbers(in2)
    if mode == "valid" and x.ndim == y.ndim and _contained(x, y):
        return _reversed(convolve(y, _reversed(x), mode, method))
    return convolve(x, _reversed(y), mode, method)


_BOUNDARY = {"wrap": "wrap", "symm": "symmetric"}


@replaces
def convolve2d(
    in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0
) -> Any:
    x, y = _operands(in1, in2, mode, "convolve2d")
    if x.ndim != 2:
        raise fail(TapecValueError, "convolve2d: both inputs must be 2-D arrays")
    if mode == "valid" or (boundary == "fill" and not is_traced(fillvalue) and fillvalue == 0):
        return convolve(x, y, mode)
    widths = [(n - 1, n - 1) for n in y.shape]
    if boundary == "fill":
        padded = np.pad(x, widths, constant_values=fillvalue)
    elif boundary in _BOUNDARY:
        padded = np.pad(x, widths, mode=_BOUNDARY[boundary])  # type: ignore[call-overload]
    else:
        raise fail(TapecValueError, "convolve2d: boundary is 'fill', 'wrap' or 'symm'")
    full = convolve(padded, y, "valid")
    return _cut(full, x.shape, y.shape, mode)


@replaces
def correlate2d(
    in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0
) -> Any:
    x, y = numbers(in1), numbers(in2)
    if mode == "valid" and x.ndim == y.ndim and _contained(x, y):
        return _reversed(convolve2d(y, _reversed(x), mode, boundary, fillvalue))
    if mode != "same":
        return convolve2d(x, _reversed(y), mode, boundary, fillvalue)
    full = convolve2d(x, _reversed(y), "full", boundary, fillvalue)
    start = [n // 2 for n in y.shape]  # one further than a convolution's where n is even
    return full[tuple([slice(k, k + m) for k, m in zip(start, x.shape)])]


# -- filters --------------------------------------------------------------------------------------


def _padded(c: Any, n: int) -> Any:
    return np.concatenate([c, np.zeros(n - c.shape[0])]) if c.shape[0] < n else c


@replaces
def lfilter(b: Any, a: Any, x: Any, axis: int = -1, zi: Any = None) -> Any:
    """A rational filter, in the transposed direct form II."""
    b, a, x = (np.atleast_1d(numbers(v)) for v in (b, a, x))
    if b.ndim != 1 or a.ndim != 1 or not b.size or not a.size:
        raise fail(TapecValueError, "lfilter: b and a are vectors of one or more coefficients")
    n = max(a.size, b.size)
    b, a = _padded(b / a[0], n), _padded(a / a[0], n)
    (axis,) = axes_of(axis, x.ndim)
    rows = np.moveaxis(x, axis, 0)
    if n == 1:
        out = b[0] * x
        return out if zi is None else (out, numbers(zi))
    if zi is None:
        state = np.zeros((n - 1, *rows.shape[1:]))
    else:
        state = np.moveaxis(numbers(zi), axis, 0)
        if state.shape != (n - 1, *rows.shape[1:]):
            raise fail(TapecValueError, f"lfilter: zi must hold {n - 1} values along the axis")
    column = (n - 1, *[1] * (rows.ndim - 1))
    feed, back = b[1:].reshape(column), a[1:].reshape(column)

    def step(z: Any, now: Any) -> tuple[Any, Any]:
        y = b[0] * now + z[0]
        later = np.concatenate([z[1:], np.zeros((1, *rows.shape[1:]))])
        return later + feed * now - back * y, y

    last, ys = scan(step, state, rows)
    out = np.moveaxis(ys, 0, axis)
    return out if zi is None else (out, np.moveaxis(last, 0, axis))


@replaces
def sosfilt(sos: Any, x: Any, axis: int = -1, zi: Any = None) -> Any:
    """Second-order sections, one after the other."""
    sos, x = numbers(sos), numbers(x)
    if sos.ndim != 2 or sos.shape[1] != 6:
        raise fail(TapecValueError, "sosfilt: sos must have the shape (sections, 6)")
    last = []
    for k in range(sos.shape[0]):
        if zi is None:
            x = lfilter(sos[k, :3], sos[k, 3:], x, axis)
        else:
            x, end = lfilter(sos[k, :3], sos[k, 3:], x, axis, numbers(zi)[k])
            last.append(end)
    return x if zi is None else (x, np.stack(last))


def _odd_ends(x: Any, n: int) -> Any:
    """Along the first axis, n values more at each end, reflected at the point there."""
    return np.concatenate([2 * x[:1] - x[n:0:-1], x, 2 * x[-1:] - x[-2 : -n - 2 : -1]])


@replaces
def filtfilt(
    b: Any, a: Any, x: Any, axis: int = -1, padtype: Any = "odd", padlen: Any = None,
    method: str = "pad", irlen: Any = None,
) -> Any:  # fmt: skip
    """Forward and backward; the coefficients are plain numbers."""
    if is_traced(b) or is_traced(a) or method != "pad" or padtype not in ("odd", None):
        raise fail(
            UnsupportedError, "filtfilt: traced coefficients, or another padding than 'odd'",
            "apply lfilter twice",
        )  # fmt: skip
    x = np.atleast_1d(numbers(x))
    (axis,) = axes_of(axis, x.ndim)
    rows = np.moveaxis(x, axis, 0)
    edge = 3 * max(np.size(a), np.size(b)) if padlen is None else int(padlen)
    edge = 0 if padtype is None else edge
    if edge >= rows.shape[0]:
        raise fail(
            TapecValueError,
            f"The length of the input vector x must be greater than padlen, which is {edge}",
        )
    rows = _odd_ends(rows, edge) if edge else rows
    start = _scipy.lfilter_zi(b, a).reshape(-1, *[1] * (rows.ndim - 1))
    for _ in range(2):
        rows = lfilter(b, a, rows, 0, start * rows[:1])[0][::-1]
    rows = rows[edge : rows.shape[0] - edge] if edge else rows
    return np.moveaxis(rows, 0, axis)


# -- linear in the signal -------------------------------------------------------------------------


@replaces
def savgol_filter(
    x: Any, window_length: int, polyorder: int, deriv: int = 0, delta: float = 1.0, axis: int = -1,
    mode: str = "interp", cval: float = 0.0,
) -> Any:  # fmt: skip
    x = numbers(x)
    (axis,) = axes_of(axis, x.ndim)
    rows = np.moveaxis(x, axis, -1)
    n, w = rows.shape[-1], int(window_length)
    weights = _scipy.savgol_coeffs(w, polyorder, deriv=deriv, delta=delta)[::-1].copy()
    before, after = (w - 1) // 2, w // 2
    if mode == "interp":
        if w > n:
            raise fail(TapecValueError, f"savgol_filter: window_length {w} is larger than x, {n}")
        # at the ends, a polynomial is fitted to the first and the last window
        ends = _scipy.savgol_filter(np.eye(w), w, polyorder, deriv, delta, 0, "interp")
        inner = _windows(rows[..., after - before :], w) @ weights
        first = rows[..., :w] @ ends[:after].T
        last = rows[..., n - w :] @ ends[w - after :].T
        inner = inner[..., : n - 2 * after]
        out = np.concatenate([first, inner, last], axis=-1)
    else:
        names = {"mirror": "reflect", "nearest": "edge", "wrap": "wrap", "constant": "constant"}
        if mode not in names:
            raise fail(TapecValueError, f"savgol_filter: no mode {mode!r}")
        widths = [(0, 0)] * (rows.ndim - 1) + [(before, after)]
        value = {"constant_values": cval} if mode == "constant" else {}
        padded = np.pad(rows, widths, mode=names[mode], **value)  # type: ignore[call-overload]
        out = _windows(padded, w) @ weights
    return np.moveaxis(out, -1, axis)


def _windows(x: Any, w: int) -> Any:
    """All stretches of w neighbours along the last axis."""
    at = np.arange(x.shape[-1] - w + 1)[:, None] + np.arange(w)
    return x[..., at]


@replaces
def detrend(
    data: Any, axis: int = -1, type: str = "linear", bp: Any = 0, overwrite_data: Any = False
) -> Any:
    x = numbers(data)
    (axis,) = axes_of(axis, x.ndim)
    if type in ("constant", "c"):
        return x - np.mean(x, axis, keepdims=True)
    if type not in ("linear", "l"):
        raise fail(TapecValueError, "detrend: type is 'linear' or 'constant'")
    n = x.shape[axis]
    cuts = np.unique([0, *np.atleast_1d(bp), n])
    if cuts[0] < 0 or cuts[-1] > n:
        raise fail(TapecValueError, "detrend: breakpoints must be within the data")
    rows = np.moveaxis(x, axis, 0)
    parts = []
    for start, end in itertools.pairwise(cuts):
        basis = np.stack([np.ones(end - start), np.linspace(-1, 1, end - start)], 1)
        q = np.linalg.qr(basis)[0] if end - start > 1 else np.ones((1, 1))
        part = rows[start:end]
        parts.append(part - np.tensordot(q @ q.T, part, 1))
    return np.moveaxis(np.concatenate(parts), 0, axis)


@replaces
def hilbert(x: Any, N: Any = None, axis: int = -1) -> Any:
    """The analytic signal: twice the positive frequencies."""
    x = numbers(x)
    (axis,) = axes_of(axis, x.ndim)
    n = x.shape[axis] if N is None else int(N)
    if n <= 0:
        raise fail(TapecValueError, "hilbert: N must be positive")
    weight = np.zeros(n)
    weight[: (n + 1) // 2] = 2
    weight[0] = 1
    if n % 2 == 0:
        weight[n // 2] = 1
    along = [1] * x.ndim
    along[axis] = n
    return np.fft.ifft(np.fft.fft(x, n, axis) * weight.reshape(along), axis=axis)


def __getattr__(name: str) -> Any:
    return getattr(_scipy, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(_scipy)})
