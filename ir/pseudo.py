"""Op entry: ``pinv``, the Moore-Penrose inverse, differentiated at constant rank.

The rule of Golub and Pereyra needs the result only, so it has no trouble with coinciding or
vanishing singular values.  Singular values up to ``rcond`` times the largest count as 0.

>>> from tapec.ir import F64, Builder, Type
>>> b = Builder()
>>> b.emit("pinv", (b.param(Type(F64, (5, 3))),), {"rcond": 1e-15}).type
f64[3,5]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tapec.ir.adjoint import AdjointBuilder
from tapec.ir.checks import attr, count
from tapec.ir.core import Attrs, Op, Value
from tapec.ir.matrix import (
    Cts,
    Types,
    batch_all,
    matrices,
    product,
    real_matrix,
    scale,
    transposed,
)
from tapec.ir.opdef import define

if TYPE_CHECKING:
    from tapec.ir.builder import Builder

__all__ = ["closed_pinv"]


def _infer(types: Types, attrs: Attrs) -> Types:
    count("pinv", types, 1)
    t = real_matrix("pinv", types[0])
    if type(attr("pinv", attrs, "rcond")) is not float:
        raise TypeError(f"pinv: attribute 'rcond' must be a float, got {attrs['rcond']!r}")
    return (t.with_shape((*t.shape[:-2], t.shape[-1], t.shape[-2])),)


def _numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    return np.linalg.pinv(arrays[0], attrs["rcond"])


def closed_pinv(b: Builder, op: Op, a: Value) -> Sequence[Value]:
    u, s, vt, _ = b.emit_op("svd", (a,), {"full": False}).results
    n = s.type.ndim
    top = b.broadcast(b.reduce("max", s, (n - 1,)), s.type.shape, tuple(range(n - 1)))
    large = b.gt(s, b.mul(top, b.like(op.attrs["rcond"], s)))
    inverse = b.select(large, b.div(b.like(1, s), s), b.zeros(s.type))
    return (product(b, scale(b, transposed(b, vt), inverse), u, ty=True),)


def _projected(b: Builder, x: Value, p: Value, a: Value) -> Value:
    """(I - A P) x"""
    return b.sub(x, product(b, a, product(b, p, x)))


def _vjp(b: AdjointBuilder, op: Op, cts: Cts) -> Cts:
    """dP = -P dA P + P Pᵀ dAᵀ (I - A P) + (I - P A) dAᵀ Pᵀ P"""
    (ct,) = cts
    if ct is None:
        return (None,)
    a, p = op.operands[0], op.results[0]
    m, n = a.type.shape[-2:]
    gt = transposed(b, ct)
    total = b.neg(product(b, product(b, p, ct, tx=True), p, ty=True))
    if m >= n:  # for full rank the terms that vanish would be rounding only
        term = product(b, product(b, gt, p), p, ty=True)
        total = b.add(total, _projected(b, term, p, a))
    if n >= m:
        term = product(b, product(b, p, p, tx=True), gt)
        total = b.add(total, b.sub(term, product(b, product(b, term, p), a)))
    return (total,)


def _jvp(b: AdjointBuilder, op: Op, tangents: Cts) -> Cts:
    (t,) = tangents
    if t is None:
        return (None,)
    a, p = op.operands[0], op.results[0]
    m, n = a.type.shape[-2:]
    total = b.neg(product(b, product(b, p, t), p))
    if m >= n:
        term = product(b, product(b, p, p, ty=True), t, ty=True)
        total = b.add(total, b.sub(term, product(b, product(b, term, a), p)))
    if n >= m:
        term = product(b, product(b, t, p, tx=True, ty=True), p)
        total = b.add(total, b.sub(term, product(b, p, product(b, a, term))))
    return (total,)


define(
    "pinv",
    infer=_infer,
    numpy=_numpy,
    vjp=_vjp,
    jvp=_jvp,
    batch=batch_all,
    samples=matrices("f64[4,3]", rcond=1e-15),
    doc="The pseudo-inverse.",
)
