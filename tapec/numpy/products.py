"""Matrix products and ``einsum``: everything is a sequence of labelled pair contractions.

``contract`` multiplies two operands whose axes carry labels and sums the labels that the
result does not have.  Without labels to sum it is a broadcast product, which fuses with
its neighbours; else one ``dot`` with batch axes.  As in NumPy, a label may have length 1 in
one operand and n in the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapec import primitives as p
from tapec.errors import TapecTypeError, TapecValueError, fail
from tapec.ir.core import BOOL
from tapec.kinds import common_dtype
from tapec.numpy.registry import axes_of, implements, int_argument
from tapec.numpy.shapes import diagonal, moveaxis
from tapec.primitives import as_array, binary, cast, strong_operands
from tapec.tracer import UFUNCS, Tracer

__all__ = ["contract", "einsum"]

Labels = Sequence[int]


def _summed(x: Tracer, labels: list[int], wanted: set[int]) -> tuple[Tracer, list[int]]:
    """Sum the axes whose labels nobody wants."""
    axes = [k for k, name in enumerate(labels) if name not in wanted]
    if axes:
        x = p.reduce("sum", x, axes)
        labels = [name for name in labels if name in wanted]
    return x, labels


def _arranged(x: Tracer, labels: list[int], out: Labels) -> Tracer:
    """``x`` with an axis for every label of ``out``, of length 1 where it has none."""
    order = [labels.index(name) for name in out if name in labels]
    x = p.transpose(x, order)
    sizes = iter(x.type.shape)
    return p.reshape(x, [next(sizes) if name in labels else 1 for name in out])


def contract(x: Tracer, lx: Labels, y: Tracer, ly: Labels, out: Labels) -> Tracer:
    """Σ x[lx] y[ly] over the labels that ``out`` lacks."""
    lx, ly = list(lx), list(ly)
    sizes = {**dict(zip(ly, y.type.shape))}
    for name, n in zip(lx, x.type.shape):
        m = sizes.get(name, n)
        if m != n and 1 not in (m, n):
            raise fail(
                TapecValueError,
                f"operands do not fit: an axis has length {n} in shape {x.type.shape} and {m} in "
                f"shape {y.type.shape}",
            )
    # a label of length 1 in one operand only is dropped there: it broadcasts
    for name in set(lx) & set(ly):
        n, m = x.type.shape[lx.index(name)], y.type.shape[ly.index(name)]
        if n == m:
            continue
        if n == 1:
            x, lx = _dropped(x, lx, name)
        else:
            y, ly = _dropped(y, ly, name)
    x, lx = _summed(x, lx, set(ly) | set(out))
    y, ly = _summed(y, ly, set(lx) | set(out))
    shared = [name for name in lx if name in ly]
    summed = [name for name in shared if name not in out]
    if not summed:
        return binary("mul", _arranged(x, lx, out), _arranged(y, ly, out))
    if common_dtype([x.kind, y.kind]) is BOOL:
        raise fail(TapecTypeError, "products of boolean matrices are not supported", "use ints")
    batch = [name for name in out if name in shared]
    result = p.dot(
        x,
        y,
        ([lx.index(n) for n in summed], [ly.index(n) for n in summed]),
        ([lx.index(n) for n in batch], [ly.index(n) for n in batch]),
    )
    have = batch + [n for n in lx if n not in shared] + [n for n in ly if n not in shared]
    return _arranged(result, have, out)


def _dropped(x: Tracer, labels: list[int], name: int) -> tuple[Tracer, list[int]]:
    k = labels.index(name)
    shape = [n for d, n in enumerate(x.type.shape) if d != k]
    return p.reshape(x, shape), labels[:k] + labels[k + 1 :]


# -- einsum -----------------------------------------------------------------------------------


def _parse(text: str, shapes: list[tuple[int, ...]]) -> tuple[list[list[int]], list[int]]:
    """Labels per operand, and of the result.  Letters are their code points; the axes of an
    ellipsis are -1 (the last), -2, …"""
    text = text.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise fail(
            TapecValueError,
            f"einsum: {len(terms)} subscripts for {len(shapes)} operands in {text!r}",
        )
    dots = 0
    labels = []
    for term, shape in zip(terms, shapes):
        before, ellipsis, after = term.partition("...")
        extra = len(shape) - len(before) - len(after)
        if extra < 0 or (extra and not ellipsis):
            raise fail(
                TapecValueError,
                f"einsum: operand of shape {shape} does not have the axes of {term!r}",
            )
        if not (before + after).isalpha() and before + after:
            raise fail(TapecValueError, f"einsum: invalid subscripts {term!r}")
        dots = max(dots, extra)
        labels.append([*map(ord, before), *range(-extra, 0), *map(ord, after)])
    if arrow:
        before, ellipsis, after = right.partition("...")
        out = [*map(ord, before), *(range(-dots, 0) if ellipsis else ()), *map(ord, after)]
    else:
        letters = [name for term in labels for name in term if name >= 0]
        out = [*range(-dots, 0), *sorted(n for n in set(letters) if letters.count(n) == 1)]
    known = {name for term in labels for name in term}
    if len(set(out)) != len(out) or not set(out) <= known:
        raise fail(TapecValueError, f"einsum: invalid output subscripts in {text!r}")
    return labels, out


def _interleaved(args: Sequence[Any]) -> tuple[list[Any], list[list[int]], list[int] | None]:
    """The form einsum(op0, [0, 1], op1, [1, 2], [0, 2])."""
    arrays = list(args[0 : len(args) - len(args) % 2 : 2])
    lists = list(args[1 : len(args) - len(args) % 2 : 2])
    return arrays, lists, args[-1] if len(args) % 2 else None


def _letters(labels: Sequence[Any]) -> str:
    alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return "".join("..." if k is Ellipsis else alphabet[int_argument(k, "a label")] for k in labels)


def _diagonalised(x: Tracer, labels: list[int]) -> tuple[Tracer, list[int]]:
    """Repeated labels of one operand: the diagonal of their axes."""
    labels = list(labels)
    for name in list(labels):
        while labels.count(name) > 1:
            i = labels.index(name)
            j = labels.index(name, i + 1)
            if x.type.shape[i] != x.type.shape[j]:
                raise fail(
                    TapecValueError,
                    f"einsum: a repeated label has lengths {x.type.shape[i]} and {x.type.shape[j]}",
                )
            x = diagonal(x, 0, i, j)
            labels = [n for k, n in enumerate(labels) if k not in (i, j)] + [name]
    return x, labels


@implements(np.einsum)
def einsum(*args: Any, optimize: Any = False, dtype: Any = None, order: str = "K",
           casting: str = "safe") -> Tracer:  # fmt: skip
    if isinstance(args[0], str):
        text, arrays = args[0], list(args[1:])
    else:
        arrays, lists, out_list = _interleaved(args)
        text = ",".join(_letters(one) for one in lists)
        if out_list is not None:
            text += "->" + _letters(out_list)
    xs = strong_operands(*arrays)
    common = common_dtype([x.kind for x in xs]) if dtype is None else p.to_dtype(dtype)
    xs = [cast(x, common) for x in xs]
    names, out = _parse(text, [x.type.shape for x in xs])
    terms = [_diagonalised(x, labels) for x, labels in zip(xs, names)]
    while len(terms) > 1:
        i, j = _cheapest(terms, out)
        (x, lx), (y, ly) = terms[i], terms[j]
        rest = [t for k, t in enumerate(terms) if k not in (i, j)]
        if rest:
            needed = set(out).union(*[set(labels) for _, labels in rest])
            keep = [n for n in dict.fromkeys([*lx, *ly]) if n in needed]
        else:
            keep = list(out)
        terms = [*rest, (contract(x, lx, y, ly, keep), keep)]
    x, labels = terms[0]
    x, labels = _summed(x, labels, set(out))
    return _arranged(x, labels, out)


def _cheapest(terms: list[tuple[Tracer, list[int]]], out: list[int]) -> tuple[int, int]:
    """The pair whose product is the smallest, the first of several."""
    if len(terms) == 2:
        return 0, 1
    best: tuple[int, int, int] | None = None
    for i in range(len(terms)):
        for j in range(i + 1, len(terms)):
            rest = set(out).union(*[set(t[1]) for k, t in enumerate(terms) if k not in (i, j)])
            sizes: dict[int, int] = {}
            for x, labels in (terms[i], terms[j]):
                for name, n in zip(labels, x.type.shape):
                    sizes[name] = max(n, sizes.get(name, 1))
            cost = 1
            for name, n in sizes.items():
                cost *= n if name in rest else 1
            if best is None or cost < best[0]:
                best = (cost, i, j)
    assert best is not None
    return best[1], best[2]


# -- matrix products ----------------------------------------------------------------------------


def _needs_axes(name: str, *xs: Tracer) -> None:
    if any(not x.type.ndim for x in xs):
        raise fail(
            TapecValueError,
            f"{name}: input operand does not have enough dimensions (it is 0-d)",
            "use * for scalars",
        )


def _check_inner(name: str, x: Tracer, y: Tracer, i: int, j: int) -> None:
    if x.type.shape[i] != y.type.shape[j]:
        raise fail(
            TapecValueError,
            f"{name}: shapes {x.type.shape} and {y.type.shape} do not fit: "
            f"{x.type.shape[i]} (axis {i % x.type.ndim}) != {y.type.shape[j]} "
            f"(axis {j % y.type.ndim})",
        )


def matmul(a: Any, b: Any) -> Tracer:
    x, y = strong_operands(a, b)
    _needs_axes("matmul", x, y)
    _check_inner("matmul", x, y, -1, 0 if y.type.ndim == 1 else -2)
    bx, by = max(x.type.ndim - 2, 0), max(y.type.ndim - 2, 0)
    n = max(bx, by)
    lead_x, lead_y = list(range(10 + n - bx, 10 + n)), list(range(10 + n - by, 10 + n))
    lx = [*lead_x, 1, 2] if x.type.ndim > 1 else [2]
    ly = [*lead_y, 2, 3] if y.type.ndim > 1 else [2]
    out = list(range(10, 10 + n))
    out += ([1] if x.type.ndim > 1 else []) + ([3] if y.type.ndim > 1 else [])
    return contract(x, lx, y, ly, out)


UFUNCS[np.matmul] = matmul


@implements(np.dot)
def dot(a: Any, b: Any) -> Tracer:
    x, y = strong_operands(a, b)
    if not x.type.ndim or not y.type.ndim:
        return binary("mul", x, y)
    j = 0 if y.type.ndim == 1 else -2
    _check_inner("dot", x, y, -1, j)
    lx = [*range(100, 99 + x.type.ndim), 0]
    ly = list(range(200, 200 + y.type.ndim))
    ly[j] = 0
    return contract(x, lx, y, ly, [n for n in lx + ly if n])


@implements(np.inner)
def inner(a: Any, b: Any, /) -> Tracer:
    x, y = strong_operands(a, b)
    if not x.type.ndim or not y.type.ndim:
        return binary("mul", x, y)
    _check_inner("inner", x, y, -1, -1)
    lx = [*range(100, 99 + x.type.ndim), 0]
    ly = [*range(200, 199 + y.type.ndim), 0]
    return contract(x, lx, y, ly, [n for n in lx + ly if n])


@implements(np.outer, getattr(np.linalg, "outer", ""))
def outer(a: Any, b: Any) -> Tracer:
    x, y = strong_operands(a, b)
    return binary("mul", p.reshape(x, (x.type.size, 1)), p.reshape(y, (1, y.type.size)))


@implements(np.vdot)
def vdot(a: Any, b: Any, /) -> Tracer:
    x, y = strong_operands(a, b)
    first = UFUNCS[np.conjugate](p.reshape(x, (x.type.size,)))
    return dot(first, p.reshape(y, (y.type.size,)))


@implements(getattr(np.linalg, "vecdot", ""))
def vecdot(x1: Any, x2: Any, /, *, axis: Any = -1) -> Tracer:
    return _vecdot(moveaxis(x1, axis, -1), moveaxis(x2, axis, -1))


def _vecdot(a: Any, b: Any) -> Tracer:
    return einsum("...i,...i->...", UFUNCS[np.conjugate](a), b)


if hasattr(np, "vecdot"):
    UFUNCS[np.vecdot] = _vecdot
if hasattr(np, "matvec"):
    UFUNCS[np.matvec] = lambda a, b: einsum("...ij,...j->...i", a, b)
    UFUNCS[np.vecmat] = lambda a, b: einsum("...i,...ij->...j", UFUNCS[np.conjugate](a), b)


@implements(getattr(np.linalg, "matmul", ""))
def linalg_matmul(x1: Any, x2: Any, /) -> Tracer:
    return matmul(x1, x2)


@implements(np.tensordot, getattr(np.linalg, "tensordot", ""))
def tensordot(a: Any, b: Any, axes: Any = 2) -> Tracer:
    x, y = strong_operands(a, b)
    if isinstance(axes, (int, np.integer)):
        n = int(axes)
        first, second = tuple(range(x.type.ndim - n, x.type.ndim)), tuple(range(n))
    else:
        first, second = (
            axes_of(tuple(one) if isinstance(one, (list, tuple, np.ndarray)) else one, z.type.ndim)
            for one, z in zip(axes, (x, y))
        )
    if len(first) != len(second):
        raise fail(TapecValueError, "tensordot: shape-mismatch for sum (numbers of axes differ)")
    for i, j in zip(first, second):
        _check_inner("tensordot", x, y, i, j)
    lx = list(range(100, 100 + x.type.ndim))
    ly = list(range(200, 200 + y.type.ndim))
    for i, j in zip(first, second):
        ly[j] = lx[i]
    shared = {lx[i] for i in first}
    return contract(x, lx, y, ly, [n for n in lx + ly if n not in shared])


@implements(np.kron)
def kron(a: Any, b: Any) -> Tracer:
    x, y = strong_operands(a, b)
    n = max(x.type.ndim, y.type.ndim)
    sx = (1,) * (n - x.type.ndim) + x.type.shape
    sy = (1,) * (n - y.type.ndim) + y.type.shape
    x = p.reshape(x, [m for k in sx for m in (k, 1)])
    y = p.reshape(y, [m for k in sy for m in (1, k)])
    return p.reshape(binary("mul", x, y), [i * j for i, j in zip(sx, sy)])


@implements(np.cross, getattr(np.linalg, "cross", ""))
def cross(a: Any, b: Any, axisa: Any = -1, axisb: Any = -1, axisc: Any = -1,
          axis: Any = None) -> Tracer:  # fmt: skip
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = strong_operands(a, b)
    x, y = moveaxis(x, axisa, -1), moveaxis(y, axisb, -1)
    m, n = x.type.shape[-1], y.type.shape[-1]
    if m not in (2, 3) or n not in (2, 3):
        raise fail(TapecValueError, "incompatible dimensions for cross product (must be 2 or 3)")
    x0, x1, x2 = x[..., 0], x[..., 1], x[..., 2] if m == 3 else 0
    y0, y1, y2 = y[..., 0], y[..., 1], y[..., 2] if n == 3 else 0
    z = x0 * y1 - x1 * y0
    if m == n == 2:
        return z  # type: ignore[no-any-return]
    parts = [x1 * y2 - x2 * y1, x2 * y0 - x0 * y2, z]
    shape = z.type.shape
    joined = p.concat([p.reshape(part, (*shape, 1)) for part in parts], len(shape))
    return moveaxis(joined, -1, axisc)


# -- numpy.linalg without decompositions ----------------------------------------------------------


@implements(np.linalg.matrix_power)
def matrix_power(a: Any, n: Any) -> Tracer:
    x = as_array(a)
    n = int_argument(n, "exponent")
    if x.type.ndim < 2 or x.type.shape[-1] != x.type.shape[-2]:
        raise fail(TapecValueError, "matrix_power: last 2 dimensions of the array must be square")
    result: Any = None
    if n < 0:
        inverse: Any = np.linalg.inv
        x, n = inverse(x), -n
    if n == 0:
        eye = x.tape.constant(np.eye(x.type.shape[-1], dtype=x.type.dtype.np))
        return p.broadcast_to(eye, x.type.shape)
    while n:
        if n & 1:
            result = x if result is None else matmul(result, x)
        n >>= 1
        if n:
            x = matmul(x, x)
    power: Tracer = result
    return power


@implements(np.linalg.multi_dot)
def multi_dot(arrays: Any) -> Tracer:
    """Left to right, or right to left, whichever needs fewer products."""
    xs = strong_operands(*arrays)
    if len(xs) < 2:
        raise fail(TapecValueError, "multi_dot: expecting at least two arrays")
    if xs[-1].type.ndim == 1 and xs[0].type.ndim > 1:
        result: Tracer = xs[-1]
        for x in reversed(xs[:-1]):
            result = dot(x, result)
        return result
    result = xs[0]
    for x in xs[1:]:
        result = dot(result, x)
    return result
