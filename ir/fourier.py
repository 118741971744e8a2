"""Op entries ``fft``, ``rfft`` and ``irfft``: discrete Fourier transforms along one axis.

Complex arrays are real here, with a last axis of length 2 for the real and imaginary part.  With
w = exp(-2πi/n):

``fft(x) {axis, inverse}``   y_k = Σ_j x_j w^(jk); with ``inverse`` w^(-jk).  No factor 1/n.
``rfft(x) {axis}``           the same of real x, for k = 0 … n // 2.
``irfft(x) {axis, n}``       the real y_j of length n whose terms k = 0 … n // 2 are x, times n;
                             imaginary parts of the terms 0 and n / 2 do not count.

All are linear, and each one's transpose is another of them: that of ``fft`` is the inverse, that of
``rfft`` is ``irfft`` with the terms that stand for two halved.

>>> from tapec.ir import F64, Builder, Type
>>> b = Builder()
>>> x = b.param(Type(F64, (6,)))
>>> b.emit("rfft", (x,), {"axis": 0}).type
f64[4,2]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tapec.ir.checks import attr, axis_of, count, kind_one_of
from tapec.ir.core import Attrs, Op, Type, Value
from tapec.ir.matrix import Cts, Types
from tapec.ir.opdef import Samples, define

if TYPE_CHECKING:
    from tapec.ir.batch import BatchBuilder
    from tapec.ir.builder import Builder

__all__: list[str] = []


def _operand(name: str, types: Types, attrs: Attrs, pairs: bool) -> tuple[Type, int, int]:
    """The operand's type, the axis and its length."""
    count(name, types, 1)
    kind_one_of(name, types[0], "f")
    t = types[0]
    if pairs and (t.ndim < 2 or t.shape[-1] != 2):
        raise ValueError(f"{name}: the last axis holds real and imaginary parts, got {t}")
    axis_of(name, attrs, t.ndim - pairs)
    axis = attrs["axis"]
    n = t.shape[axis]
    if n < 1:
        raise ValueError(f"{name}: the transformed axis of {t} is empty")
    return t, axis, n


def _with_length(shape: Sequence[int], axis: int, n: int) -> tuple[int, ...]:
    return (*shape[:axis], n, *shape[axis + 1 :])


def _fft_infer(types: Types, attrs: Attrs) -> Types:
    t, _, _ = _operand("fft", types, attrs, True)
    if type(attr("fft", attrs, "inverse")) is not bool:
        raise TypeError(f"fft: attribute 'inverse' must be a bool, got {attrs['inverse']!r}")
    return (t,)


def _rfft_infer(types: Types, attrs: Attrs) -> Types:
    t, axis, n = _operand("rfft", types, attrs, False)
    return (t.with_shape((*_with_length(t.shape, axis, n // 2 + 1), 2)),)


def _irfft_infer(types: Types, attrs: Attrs) -> Types:
    t, axis, terms = _operand("irfft", types, attrs, True)
    n = attr("irfft", attrs, "n")
    if type(n) is not int or n < 1:
        raise TypeError(f"irfft: attribute 'n' must be a positive int, got {n!r}")
    if terms != n // 2 + 1:
        raise ValueError(f"irfft: {terms} terms along axis {axis} of {t} for a length of {n}")
    return (t.with_shape(_with_length(t.shape[:-1], axis, n)),)


def _complex(x: Any) -> Any:
    return x[..., 0] + 1j * x[..., 1]


def _pairs(z: Any) -> Any:
    return np.stack([z.real, z.imag], axis=-1)


def _fft_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    z, axis = _complex(arrays[0]), attrs["axis"]
    if attrs["inverse"]:
        return _pairs(np.fft.ifft(z, axis=axis, norm="forward"))
    return _pairs(np.fft.fft(z, axis=axis))


def _rfft_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    return _pairs(np.fft.rfft(arrays[0], axis=attrs["axis"]))


def _irfft_numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    z = _complex(arrays[0])
    return np.fft.irfft(z, attrs["n"], axis=attrs["axis"], norm="forward")


# -- transposes ---------------------------------------------------------------------------


def _weighted(b: Builder, x: Value, axis: int, n: int, inner: float) -> Value:
    """Terms of a real transform of length ``n``: those that stand for two times ``inner``."""
    terms = np.full(n // 2 + 1, inner)
    terms[0] = 1.0
    if n % 2 == 0:
        terms[-1] = 1.0
    if bool(np.all(terms == 1.0)):
        return x
    line = b.constant(terms, Type(x.type.dtype, terms.shape))
    return b.mul(x, b.broadcast(line, x.type.shape, (axis,)))


def _fft_vjp(b: Builder, op: Op, cts: Cts) -> Cts:
    if cts[0] is None:
        return (None,)
    attrs = {"axis": op.attrs["axis"], "inverse": not op.attrs["inverse"]}
    return (b.emit("fft", (cts[0],), attrs),)


def _rfft_vjp(b: Builder, op: Op, cts: Cts) -> Cts:
    if cts[0] is None:
        return (None,)
    axis = op.attrs["axis"]
    n = op.operands[0].type.shape[axis]
    return (b.emit("irfft", (_weighted(b, cts[0], axis, n, 0.5),), {"axis": axis, "n": n}),)


def _irfft_vjp(b: Builder, op: Op, cts: Cts) -> Cts:
    if cts[0] is None:
        return (None,)
    axis, n = op.attrs["axis"], op.attrs["n"]
    terms = b.emit("rfft", (cts[0],), {"axis": axis})
    return (_weighted(b, terms, axis, n, 2.0),)


def _batch(b: BatchBuilder, op: Op, xs: Sequence[Value]) -> Sequence[Value]:
    return (b.emit(op.name, (xs[0],), {**op.attrs, "axis": op.attrs["axis"] + 1}),)


define(
    "fft",
    infer=_fft_infer,
    numpy=_fft_numpy,
    vjp=_fft_vjp,
    batch=_batch,
    linear=(0,),
    samples=Samples(
        cases=(
            (("f64[5,2]",), {"axis": 0, "inverse": False}),
            (("f64[8,2]",), {"axis": 0, "inverse": True}),
            (("f64[3,4,2]",), {"axis": 0, "inverse": False}),
            (("f32[3,4,2]",), {"axis": 1, "inverse": True}),
            (("f64[2,3,4,2]",), {"axis": 1, "inverse": False}),
            (("f64[1,2]",), {"axis": 0, "inverse": False}),
            (("f64[0,3,2]",), {"axis": 1, "inverse": False}),
        )
    ),
    doc="The Fourier transform of pairs (real, imaginary) along `axis`, without a factor.",
)

define(
    "rfft",
    infer=_rfft_infer,
    numpy=_rfft_numpy,
    vjp=_rfft_vjp,
    batch=_batch,
    linear=(0,),
    samples=Samples(
        cases=(
            (("f64[5]",), {"axis": 0}),
            (("f64[8]",), {"axis": 0}),
            (("f64[3,4]",), {"axis": 0}),
            (("f32[3,4]",), {"axis": 1}),
            (("f64[2,6,3]",), {"axis": 1}),
            (("f64[1]",), {"axis": 0}),
            (("f64[2]",), {"axis": 0}),
        )
    ),
    doc="The terms 0 … n // 2 of the Fourier transform of real numbers along `axis`.",
)

define(
    "irfft",
    infer=_irfft_infer,
    numpy=_irfft_numpy,
    vjp=_irfft_vjp,
    batch=_batch,
    linear=(0,),
    samples=Samples(
        cases=(
            (("f64[3,2]",), {"axis": 0, "n": 5}),
            (("f64[5,2]",), {"axis": 0, "n": 8}),
            (("f64[3,4,2]",), {"axis": 0, "n": 4}),
            (("f32[3,3,2]",), {"axis": 1, "n": 5}),
            (("f64[1,2]",), {"axis": 0, "n": 1}),
            (("f64[2,2]",), {"axis": 0, "n": 2}),
        )
    ),
    doc="`n` real numbers from the terms 0 … n // 2 of their Fourier transform, times n.",
)
