"""``numpy.linalg`` of complex matrices, through the real matrix [[A, -B], [B, A]] of A + iB.

That matrix is the same linear map on the real and imaginary parts of a vector: it has the same
condition, its inverse is the matrix of the inverse, and its singular values are those of A + iB,
each of them twice.
"""

from __future__ import annotations

from typing import Any

from tapec import primitives as p
from tapec.complexes import ComplexTracer
from tapec.numpy import spectra
from tapec.numpy.reductions import keep
from tapec.numpy.registry import axes_of
from tapec.tracer import Tracer

__all__ = ["embedded", "spectral_norm"]


def embedded(z: ComplexTracer) -> Tracer:
    """[[A, -B], [B, A]]."""
    n = z.type.ndim
    top = p.concat([z.re, p.unary("neg", z.im)], n - 1)
    return p.concat([top, p.concat([z.im, z.re], n - 1)], n - 2)


def singular_values(z: ComplexTracer) -> Tracer:
    """In descending order."""
    return spectra.singular_values(embedded(z))[..., ::2]  # type: ignore[no-any-return]


def spectral_norm(z: ComplexTracer, ord: Any, axis: Any, keepdims: Any) -> Tracer:
    """The norms that are made of singular values."""
    axes = axes_of(axis, z.type.ndim)
    order = [k for k in range(z.type.ndim) if k not in axes]
    moved = z.each(lambda part: p.transpose(part, [*order, *axes]))
    s = singular_values(moved)
    last = (s.type.ndim - 1,)
    kind = "sum" if ord == "nuc" else "max" if ord == 2 else "min"
    return keep(z, p.reduce(kind, s, last), axes, keepdims)
