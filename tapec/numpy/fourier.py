"""``numpy.fft`` on traced arrays: three linear operations, cropping, padding and factors.

Inside, the terms of a transform are a real array with a last axis for real and imaginary parts,
as the operations ``fft``, ``rfft`` and ``irfft`` take them; transforms along several axes hand it
on.  A transform of real values computes half of the terms; the others are their conjugates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapec import primitives as p
from tapec.complexes import ComplexTracer
from tapec.errors import TapecTypeError, TapecValueError, fail
from tapec.numpy.registry import axes_of, axis_of, implements, int_argument
from tapec.numpy.ufuncs import inexact
from tapec.primitives import binary, emit, reshape
from tapec.tracer import FUNCTIONS, Tracer

__all__: list[str] = []


# -- pairs ------------------------------------------------------------------------------------


def _paired(x: Tracer) -> Tracer:
    """Complex or real values with the parts along a new last axis."""
    if isinstance(x, ComplexTracer):
        re, im = x.re, x.im
    else:
        re, im = x, p.full(x.tape, x.type.shape, 0.0, x.type.dtype)
    shape = (*x.type.shape, 1)
    return p.concat([reshape(re, shape), reshape(im, shape)], len(shape) - 1)


def _unpaired(y: Tracer, factor: float) -> ComplexTracer:
    """The complex values of pairs, times a factor."""
    shape = y.type.shape[:-1]

    def part(k: int) -> Tracer:
        start = [0] * len(shape) + [k]
        one = reshape(p.slice_(y, start, (*shape, 1)), shape)
        return one if factor == 1.0 else binary("mul", one, factor)

    return ComplexTracer(part(0), part(1))


def _resized(x: Tracer, axis: int, n: int) -> Tracer:
    """Cropped or filled up with zeros."""
    shape = list(x.type.shape)
    m = shape[axis]
    if n == m:
        return x
    zeros = [0] * len(shape)
    shape[axis] = n
    if n < m:
        return p.slice_(x, zeros, shape)
    return p.place([x], shape, [(zeros, [1] * len(shape))])


# -- arguments --------------------------------------------------------------------------------


def _factor(norm: Any, n: int, inverse: bool) -> float:
    if norm == "ortho":
        return 1.0 / math.sqrt(n)
    if norm not in (None, "backward", "forward"):
        raise fail(
            TapecValueError,
            f'Invalid norm value {norm}; should be "backward", "ortho" or "forward".',
        )
    return 1.0 / n if (norm == "forward") != inverse else 1.0


def _length(n: Any, default: int) -> int:
    length = default if n is None else int_argument(n, "n")
    if length < 1:
        raise fail(TapecValueError, f"Invalid number of FFT data points ({length}) specified.")
    return length


def _values(a: Any) -> Tracer:
    x = inexact(a)
    if not x.type.ndim:
        raise fail(TapecValueError, "a Fourier transform of a 0-d value")
    return x


# -- one axis ---------------------------------------------------------------------------------


def _mirrored(half: ComplexTracer, axis: int, n: int) -> ComplexTracer:
    """All n terms of a real transform from the first n // 2 + 1."""
    m = n - half.type.shape[axis]
    if m == 0:
        return half
    lead = (slice(None),) * axis

    def whole(part: Tracer, sign: str) -> Tracer:
        rest = part[(*lead, slice(m, 0, -1))]
        return p.concat([part, rest if sign == "+" else p.unary("neg", rest)], axis)

    return ComplexTracer(whole(half.re, "+"), whole(half.im, "-"))


def _full(a: Any, n: Any, axis: Any, norm: Any, inverse: bool) -> Tracer:
    x = _values(a)
    k = axis_of(axis, x.type.ndim)
    n = _length(n, x.type.shape[k])
    factor = _factor(norm, n, inverse)
    x = _resized(x, k, n)
    if isinstance(x, ComplexTracer):
        return _unpaired(emit("fft", (_paired(x),), {"axis": k, "inverse": inverse}), factor)
    whole = _mirrored(_unpaired(emit("rfft", (x,), {"axis": k}), factor), k, n)
    return whole.conj() if inverse else whole


def _half(a: Any, n: Any, axis: Any, norm: Any, inverse: bool) -> ComplexTracer:
    """``rfft``; ``inverse`` says only which factor is meant."""
    x = _values(a)
    if isinstance(x, ComplexTracer):
        raise fail(TapecTypeError, "rfft and ihfft take real values", "use fft or .real")
    k = axis_of(axis, x.type.ndim)
    n = _length(n, x.type.shape[k])
    y = emit("rfft", (_resized(x, k, n),), {"axis": k})
    return _unpaired(y, _factor(norm, n, inverse))


def _real(a: Any, n: Any, axis: Any, norm: Any, inverse: bool) -> Tracer:
    """``irfft``."""
    x = _values(a)
    k = axis_of(axis, x.type.ndim)
    n = _length(n, 2 * (x.type.shape[k] - 1))
    terms = _paired(_resized(x, k, n // 2 + 1))
    y = emit("irfft", (terms,), {"axis": k, "n": n})
    factor = _factor(norm, n, inverse)
    return y if factor == 1.0 else binary("mul", y, factor)


@implements(np.fft.fft)
def fft(a: Any, n: Any = None, axis: Any = -1, norm: Any = None) -> Tracer:
    return _full(a, n, axis, norm, False)


@implements(np.fft.ifft)
def ifft(a: Any, n: Any = None, axis: Any = -1, norm: Any = None) -> Tracer:
    return _full(a, n, axis, norm, True)


@implements(np.fft.rfft)
def rfft(a: Any, n: Any = None, axis: Any = -1, norm: Any = None) -> Tracer:
    return _half(a, n, axis, norm, False)


@implements(np.fft.irfft)
def irfft(a: Any, n: Any = None, axis: Any = -1, norm: Any = None) -> Tracer:
    return _real(a, n, axis, norm, True)


@implements(np.fft.hfft)
def hfft(a: Any, n: Any = None, axis: Any = -1, norm: Any = None) -> Tracer:
    x = _values(a)
    return _real(x.conj(), n, axis, norm, False)


@implements(np.fft.ihfft)
def ihfft(a: Any, n: Any = None, axis: Any = -1, norm: Any = None) -> Tracer:
    return _half(a, n, axis, norm, True).conj()


# -- several axes -----------------------------------------------------------------------------


def _sizes(x: Tracer, s: Any, axes: Any, real_last: bool = False) -> tuple[list[int], list[int]]:
    """Lengths and axes of a transform along several axes."""
    if s is None:
        which = range(x.type.ndim) if axes is None else axes
        found = [axis_of(k, x.type.ndim) for k in which]
        sizes = [x.type.shape[k] for k in found]
        if real_last and found:
            sizes[-1] = 2 * (sizes[-1] - 1)
    else:
        given = [int_argument(n, "s") for n in s]
        which = range(-len(given), 0) if axes is None else axes
        found = [axis_of(k, x.type.ndim) for k in which]
        if len(given) != len(found):
            raise fail(TapecValueError, "Shape and axes have different lengths.")
        sizes = [x.type.shape[k] if n == -1 else n for n, k in zip(given, found)]
    return [_length(n, 1) for n in sizes], found


def _over(
    x: Tracer, sizes: Sequence[int], axes: Sequence[int], norm: Any, inverse: bool
) -> ComplexTracer:
    """Complex transforms along the axes, the last one first."""
    factor = 1.0
    for n, k in zip(sizes, axes):
        factor *= _factor(norm, n, inverse)
    pairs = None
    for n, k in reversed(list(zip(sizes, axes))):
        pairs = _paired(x) if pairs is None else pairs
        pairs = emit("fft", (_resized(pairs, k, n),), {"axis": k, "inverse": inverse})
    assert pairs is not None
    return _unpaired(pairs, factor)


def _full_nd(a: Any, s: Any, axes: Any, norm: Any, inverse: bool) -> Tracer:
    x = _values(a)
    sizes, axes = _sizes(x, s, axes)
    if not axes:
        return x.copy()
    if isinstance(x, ComplexTracer) or inverse:
        return _over(x, sizes, axes, norm, inverse)
    first = _full(x, sizes[-1], axes[-1], norm, inverse)
    return _over(first, sizes[:-1], axes[:-1], norm, inverse) if axes[:-1] else first


def _half_nd(a: Any, s: Any, axes: Any, norm: Any) -> Tracer:
    x = _values(a)
    sizes, axes = _sizes(x, s, axes)
    first = _half(x, sizes[-1], axes[-1], norm, False)
    return _over(first, sizes[:-1], axes[:-1], norm, False) if axes[:-1] else first


def _real_nd(a: Any, s: Any, axes: Any, norm: Any) -> Tracer:
    x = _values(a)
    sizes, axes = _sizes(x, s, axes, real_last=True)
    first, rest = x, list(zip(sizes[:-1], axes[:-1]))
    if rest:  # the first axis first, as NumPy does
        first = _over(x, sizes[-2::-1], axes[-2::-1], norm, True)
    return _real(first, sizes[-1], axes[-1], norm, True)


@implements(np.fft.fftn)
def fftn(a: Any, s: Any = None, axes: Any = None, norm: Any = None) -> Tracer:
    return _full_nd(a, s, axes, norm, False)


@implements(np.fft.ifftn)
def ifftn(a: Any, s: Any = None, axes: Any = None, norm: Any = None) -> Tracer:
    return _full_nd(a, s, axes, norm, True)


@implements(np.fft.fft2)
def fft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None) -> Tracer:
    return _full_nd(a, s, axes, norm, False)


@implements(np.fft.ifft2)
def ifft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None) -> Tracer:
    return _full_nd(a, s, axes, norm, True)


@implements(np.fft.rfftn)
def rfftn(a: Any, s: Any = None, axes: Any = None, norm: Any = None) -> Tracer:
    return _half_nd(a, s, axes, norm)


@implements(np.fft.rfft2)
def rfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None) -> Tracer:
    return _half_nd(a, s, axes, norm)


@implements(np.fft.irfftn)
def irfftn(a: Any, s: Any = None, axes: Any = None, norm: Any = None) -> Tracer:
    return _real_nd(a, s, axes, norm)


@implements(np.fft.irfft2)
def irfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: Any = None) -> Tracer:
    return _real_nd(a, s, axes, norm)


# -- order of the terms -----------------------------------------------------------------------


def _shifted(by: Callable[[int], int]) -> Callable[..., Tracer]:
    def rule(x: Any, axes: Any = None) -> Tracer:
        a = p.as_array(x)
        found = axes_of(axes, a.type.ndim)
        shift = tuple(by(a.type.shape[k]) for k in found)
        return FUNCTIONS[np.roll](a, shift, found)  # type: ignore[no-any-return]

    return rule


FUNCTIONS[np.fft.fftshift] = _shifted(lambda n: n // 2)
FUNCTIONS[np.fft.ifftshift] = _shifted(lambda n: -(n // 2))
