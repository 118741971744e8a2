"""Rules that recognise a matrix put together again from its eigenvectors or singular vectors.

    (V * f(w)) @ V.T             of ``w, V = eigh(a)``
    V @ diag(f(w)) @ V.T         also ``V @ (f(w)[:, None] * V.T)``, ``einsum("ij,j,kj", …)``
    (U * f(s)) @ Vh, U @ Vh      of ``U, s, Vh = svd(a)``

become ``eigh_function`` and ``svd_function``, which have a derivative where values coincide, while
the vectors alone have none.  The gradient of a sum over f(w) is of this form too, so that its own
derivative exists as well: symmetric functions of eigenvalues are right to second order.

>>> from tapec.ir import parse
>>> from tapec.ir.passes import simplify
>>> fn = parse('''func @f(%a: f64[2,2]) -> (f64[2,2]) {
...   %w, %v, %ok = eigh %a : f64[2], f64[2,2], bool[]
...   %y = broadcast %w {dims=(0), shape=(2,2)} : f64[2,2]
...   %z = mul %y, %v : f64[2,2]
...   %x = dot %v, %z {batch=((),()), contract=((0),(0))} : f64[2,2]
...   return %x
... }''')
>>> [op.name for op in simplify(fn).ops]
['eigh', 'constant', 'eigh_function']
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tapec.ir.builder import Builder
from tapec.ir.core import Op, Value
from tapec.ir.matrix import transposed
from tapec.ir.opdef import OPS
from tapec.ir.rewrite import Rewriter, rule, splat

__all__ = ["lane_slope"]

#: How many operations may stand between the vectors and the product.
_DEPTH = 6


class Frame(NamedTuple):
    """A matrix of vectors of a decomposition, each times a number."""

    made: Op
    #: which result: left or right vectors
    left: bool
    #: the axis along which the vectors are numbered
    axis: int
    #: what they are multiplied with, one value of the shape of the spectrum; None: nothing
    factor: Value | None


def _spectrum(op: Op) -> Value:
    return op.results[0 if op.name == "eigh" else 1]


def _frame(b: Builder, v: Value, depth: int = _DEPTH) -> Frame | None:
    op = v.op
    if op is None or not depth:
        return None
    n = v.type.ndim
    if op.name == "eigh":
        return Frame(op, False, n - 2, None) if v is op.results[1] else None
    if op.name == "svd":
        return _singular_vectors(op, v)
    if op.name == "slice":
        return _first_vectors(op)
    if op.name == "transpose":
        if op.attrs["perm"] != (*range(n - 2), n - 1, n - 2):
            return None
        inner = _frame(b, op.operands[0], depth - 1)
        return inner and inner._replace(axis=2 * n - 3 - inner.axis)
    if op.name in ("mul", "div"):
        return _scaled(b, op, depth)
    if op.name == "dot":
        return _times_diagonal(b, op, depth)
    return None


def _singular_vectors(op: Op, v: Value) -> Frame | None:
    n, k = v.type.ndim, op.results[1].type.shape[-1]
    left = v is op.results[0]
    axis = n - 1 if left else n - 2
    if v.type.shape[axis] != k or not (left or v is op.results[2]):
        return None
    return Frame(op, left, axis, None)


def _first_vectors(op: Op) -> Frame | None:
    """The vectors that belong to singular values, of the full matrix of them."""
    v = op.operands[0]
    made = v.op
    if made is None or made.name != "svd" or v is made.results[1]:
        return None
    n, left = v.type.ndim, v is made.results[0]
    axis, k = (n - 1 if left else n - 2), made.results[1].type.shape[-1]
    size = list(v.type.shape)
    size[axis] = k
    a = op.attrs
    if any(a["start"]) or a["size"] != tuple(size) or any(s != 1 for s in a["step"]):
        return None
    return Frame(made, left, axis, None)


def _along(b: Builder, v: Value, frame: Frame) -> Value | None:
    """The vector that ``v`` repeats, element j at vector j, in the shape of the spectrum."""
    shape = _spectrum(frame.made).type.shape
    c = splat(v)
    if c is not None:
        return b.constant(c, v.type.with_shape(shape))
    op = v.op
    if op is None or op.name != "broadcast":
        return None
    lead, (x,) = tuple(range(len(shape) - 1)), op.operands
    for dims, to in (
        ((*lead, frame.axis), None), ((frame.axis,), (len(lead),)), (lead, lead), ((), ()),
    ):  # fmt: skip
        if op.attrs["dims"] == dims:
            return x if to is None else b.broadcast(x, shape, to)
    return None


def _multiplied(b: Builder, frame: Frame, by: Value, divided: bool = False) -> Frame:
    old = frame.factor
    if divided:
        return frame._replace(factor=b.div(b.like(1, by) if old is None else old, by))
    return frame._replace(factor=by if old is None else b.mul(old, by))


def _scaled(b: Builder, op: Op, depth: int) -> Frame | None:
    x, y = op.operands
    for one, other in ((x, y), (y, x)):
        frame = _frame(b, one, depth - 1)
        if frame is not None:
            by = _along(b, other, frame)
            return None if by is None else _multiplied(b, frame, by, op.name == "div")
        if op.name == "div":
            break
    return None


def _plain_product(op: Op) -> tuple[int, int] | None:
    """The contracted axes of a product of matrices."""
    x, y = op.operands
    n = x.type.ndim
    lead = tuple(range(n - 2))
    (cx, cy), batch = op.attrs["contract"], op.attrs["batch"]
    if n < 2 or y.type.ndim != n or len(cx) != 1 or batch != (lead, lead):
        return None
    return (cx[0], cy[0]) if cx[0] >= n - 2 and cy[0] >= n - 2 else None


def _times_diagonal(b: Builder, op: Op, depth: int) -> Frame | None:
    axes = _plain_product(op)
    if axes is None:
        return None
    n = op.operands[0].type.ndim
    for k in (0, 1):
        vector = _on_diagonal(op.operands[1 - k])
        if vector is None:
            continue
        frame = _frame(b, op.operands[k], depth - 1)
        if frame is None or frame.axis != axes[k]:
            continue
        if vector.type.shape != _spectrum(frame.made).type.shape:
            continue
        return _multiplied(b, frame._replace(axis=n - 1 if k == 0 else n - 2), vector)
    return None


def _on_diagonal(v: Value) -> Value | None:
    """The vector of which ``v`` is the diagonal matrix."""
    op = v.op
    n = v.type.ndim
    if op is None or v.type.shape[-1] != v.type.shape[-2]:
        return None
    if op.name == "reshape":
        made, m = op.operands[0].op, v.type.shape[-1]
        if made is None or made.name != "place" or len(made.operands) != 1:
            return None
        lead = v.type.shape[:-2]
        zeros, ones = (0,) * len(lead), (1,) * len(lead)
        fits = made.attrs["at"] == (((*zeros, 0), (*ones, m + 1)),)
        fits = fits and made.operands[0].type.shape == (*lead, m)
        return made.operands[0] if fits and made.attrs["shape"] == (*lead, m * m) else None
    if op.name != "select" or splat(op.operands[2]) != 0:
        return None
    condition, full = op.operands[0].op, op.operands[1].op
    if condition is None or full is None or condition.name != "eq" or full.name != "broadcast":
        return None
    numbers = [x.op for x in condition.operands]
    if any(x is None or x.name != "iota" for x in numbers):
        return None
    if sorted(x.attrs["axis"] for x in numbers if x is not None) != [n - 2, n - 1]:
        return None
    dims = full.attrs["dims"]
    fits = len(dims) == n - 1 and dims[:-1] == tuple(range(n - 2)) and dims[-1] >= n - 2
    return full.operands[0] if fits else None


# -- the slope of a function of the spectrum ------------------------------------------------


def _depends(v: Value, on: Op) -> bool:
    seen: set[Op] = set()
    stack = [v]
    while stack:
        op = stack.pop().op
        if op is on:
            return True
        if op is not None and op not in seen:
            seen.add(op)
            stack.extend(op.operands)
    return False


def lane_slope(b: Builder, y: Value, w: Value) -> Value:
    """The derivative of each element of ``y`` by the element of ``w`` at the same place, sums and
    the like over all of ``w`` held constant; NaN where another operation mixes places."""
    known: dict[Value, Value | None] = {w: b.like(1, w)}
    stack = [y]
    while stack:
        v = stack[-1]
        if v in known:
            stack.pop()
            continue
        op = v.op
        lanes = op is not None and OPS[op.name].elementwise and v.type.shape == w.type.shape
        if op is not None and lanes and not OPS[op.name].nondifferentiable:
            waiting = [x for x in op.operands if x not in known]
            if waiting:
                stack.extend(waiting)
                continue
            known[v] = _chain(b, op, [known[x] for x in op.operands])
        else:
            known[v] = None if op is None or lanes else _mixed(b, v, w)
        stack.pop()
    found = known[y]
    return b.zeros(y.type) if found is None else found


def _mixed(b: Builder, v: Value, w: Value) -> Value | None:
    op = v.op
    assert op is not None and w.op is not None
    if op.name == "constant" or not v.type.dtype.is_inexact:
        return None
    last = v.type.ndim - 1
    if op.name == "broadcast" and last not in op.attrs["dims"]:
        return None
    return b.like(np.nan, v) if _depends(v, w.op) else None


def _chain(b: Builder, op: Op, slopes: list[Value | None]) -> Value | None:
    z, xs = op.results[0], op.operands
    if all(s is None for s in slopes) or not z.type.dtype.is_inexact:
        return None

    def full(k: int) -> Value:
        s = slopes[k]
        return b.zeros(z.type) if s is None else s

    if op.name == "select":
        return b.select(xs[0], full(1), full(2))
    if op.name in ("max", "min"):
        x, y = xs
        first = b.gt(x, y) if op.name == "max" else b.lt(x, y)
        both = b.mul(b.add(full(0), full(1)), b.like(0.5, z))
        return b.select(b.eq(x, y), both, b.select(first, full(0), full(1)))
    if op.name == "convert":
        return b.convert(full(0), z.type.dtype)
    if op.name in ("strong_mul", "null_mul"):
        return b.add(b.mul(full(0), xs[1]), b.mul(full(1), xs[0]))
    rule = OPS[op.name].partials
    if rule is None:
        return b.like(np.nan, z)
    total: Value | None = None
    for s, p in zip(slopes, rule(b, z, *xs), strict=True):
        if s is None or p is None:
            continue
        term = b.mul(s, p if isinstance(p, Value) else b.like(p, z))
        total = term if total is None else b.add(total, term)
    return total


# -- the rule -------------------------------------------------------------------------------


@rule(
    "dot", given=("mul", "div", "dot", "transpose", "slice", "svd"), up_to="rounding", group="shape"
)
def matrix_function(b: Rewriter, op: Op) -> Value | None:
    """(V * f(w)) @ Vᵀ -> eigh_function, (U * f(s)) @ Vᵀ and U @ Vᵀ -> svd_function"""
    axes = _plain_product(op)
    if axes is None:
        return None
    frames = [_frame(b, x) for x in op.operands]
    x, y = frames
    if x is None or y is None or x.made is not y.made or (x.axis, y.axis) != axes:
        return None
    made = x.made
    a, w = made.operands[0], _spectrum(made)
    if made.name == "svd" and x.left is y.left:
        return None
    if x.factor is not None and y.factor is not None:
        factor = b.mul(x.factor, y.factor)
    elif made.name == "svd":
        factor = x.factor or y.factor or b.like(1, w)  # U Vᵀ: the polar factor
    elif x.factor is None and y.factor is None:
        return None
    else:
        factor = x.factor or y.factor  # type: ignore[assignment]
    slope = lane_slope(b, factor, w)
    if made.name == "eigh":
        return b.emit("eigh_function", (a, w, made.results[1], factor, slope))
    u, vt = made.results[0], made.results[2]
    if made.attrs["full"]:
        u, vt = _thin(b, u, w), _thin(b, vt, w)
    found = b.emit("svd_function", (a, u, w, vt, factor, slope))
    return found if x.left else transposed(b, found)


def _thin(b: Builder, v: Value, s: Value) -> Value:
    """The vectors that belong to singular values."""
    k = s.type.shape[-1]
    shape = list(v.type.shape)
    made = v.op
    assert made is not None
    shape[-1 if v is made.results[0] else -2] = k
    return b.slice(v, (0,) * len(shape), shape)
