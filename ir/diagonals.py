"""Derivatives along diagonals: ``diagonals(fn, param, result)``.

Where a program moves elements by fixed distances only (slices, padding, reversal, stencils of any
rank), the derivative of element i of a value by a parameter is non-zero at few elements
``offset + stride * i``: its *diagonals*.  Forward mode then needs no seeds: a tangent is one array
of coefficients per diagonal, and the structural non-zeros are computed, each once.

A diagonal of a value is a pair ``(offset, strides)``: element ``(i, j, …)`` of its coefficients is
the derivative of that element by flat element ``offset + strides · (i, j, …)`` of the parameter;
where that lies outside of the parameter the coefficient is zero.

>>> from tapec.ir import F64, Builder, Type
>>> b = Builder()
>>> x = b.param(Type(F64, (5,)), "x")
>>> f = b.function("f", [b.mul(b.slice(x, [0], [4]), b.slice(x, [1], [4]))])
>>> found = diagonals(f, 0, 0)
>>> found[1], [str(v.type) for v in found[0].results]
([(0, (1,)), (1, (1,))], ['f64[4]', 'f64[4]'])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

from tapec.ir.builder import Builder
from tapec.ir.core import Function, Op, Value
from tapec.ir.deferred import simplify
from tapec.ir.jvp import jvp

__all__ = ["Diagonal", "diagonals"]

Diagonal = tuple[int, tuple[int, ...]]
Tangent = dict[Diagonal, Value]
Moved = list[tuple[Diagonal, Value]]

#: More diagonals than this are no stencil.
MAX_DIAGONALS = 64
#: Elementwise operations of a tangent program: linear in their tangents.
_ELEMENTWISE = ("add", "convert", "div", "mul", "neg", "select", "strong_mul", "sub")


class _Unknown(Exception):
    """An operation that does not keep to diagonals."""


def diagonals(fn: Function, param: int, result: int) -> tuple[Function, list[Diagonal]] | None:
    """A function of ``fn``'s parameters with one result per diagonal, the coefficients of the
    derivative of a result by a parameter, and the diagonals; None if it has no such form."""
    before = sum([v.type.dtype.is_inexact for v in fn.results[:result]])
    pushed = jvp(fn, [param])
    tangent = pushed.results[len(fn.results) + before]
    linear = simplify(Function(fn.name, pushed.params, pushed.ops, [tangent]))
    *params, seed = linear.params
    b = Builder()
    b.params.extend(params)
    strides = _strides(seed.type.shape)
    tangents: dict[Value, Tangent] = {seed: {(0, strides): b.constant(1, seed.type)}}
    for op in linear.ops:
        if tangents.keys().isdisjoint(op.operands):
            b.ops.append(op)
            continue
        b.loc = op.loc
        try:
            found = _push(b, op, tangents)
        except _Unknown:
            return None
        if len(found) > MAX_DIAGONALS:
            return None
        tangents[op.results[0]] = found
    out = tangents.get(linear.results[0])
    if not out:
        return None
    keys = sorted(out)
    return simplify(b.function(fn.name, [out[k] for k in keys])), keys


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Of C order; 0 along axes of length 1, so that equal diagonals are equal pairs."""
    return tuple([0 if n == 1 else math.prod(shape[k + 1 :]) for k, n in enumerate(shape)])


def _push(b: Builder, op: Op, tangents: dict[Value, Tangent]) -> Tangent:
    """The diagonals of the result of an operation that is linear in its tangents."""
    if op.name in _ELEMENTWISE:
        return _elementwise(b, op, tangents)
    if op.name == "place":
        return _place(b, op, tangents)
    rule = _RULES.get(op.name)
    if rule is None:
        raise _Unknown
    out: Tangent = {}
    for (offset, strides), c in tangents[op.operands[0]].items():
        for key, v in rule(b, op, offset, strides, c):
            _add(b, out, key, v)
    return out


def _add(b: Builder, out: Tangent, key: Diagonal, c: Value) -> None:
    known = out.get(key)
    out[key] = c if known is None else b.add(known, c)


def _elementwise(b: Builder, op: Op, tangents: dict[Value, Tangent]) -> Tangent:
    given = [tangents.get(x) for x in op.operands]
    if op.name in ("mul", "div", "strong_mul") and (
        sum([t is not None for t in given]) != 1 or (op.name != "mul" and given[0] is None)
    ):
        raise _Unknown
    if op.name in ("add", "sub", "select"):
        for x, t in zip(op.operands[-2:], given[-2:]):
            if t is None:
                _require_zero(x)
    out: Tangent = {}
    for key in dict.fromkeys([key for t in given if t is not None for key in t]):
        operands = [
            x if t is None else t[key] if key in t else b.zeros(x.type)
            for x, t in zip(op.operands, given)
        ]
        out[key] = b.emit(op.name, tuple(operands), op.attrs)
    return out


def _require_zero(x: Value) -> None:
    """A term of a sum that is no tangent belongs to no diagonal: it is zero."""
    if x.op is None or x.op.name != "constant" or x.op.attrs["value"] != 0:
        raise _Unknown


def _place(b: Builder, op: Op, tangents: dict[Value, Tangent]) -> Tangent:
    shape = op.results[0].type.shape
    out: Tangent = {}
    parts: dict[Diagonal, list[tuple[Value, tuple[tuple[int, ...], tuple[int, ...]]]]] = {}
    for piece, (start, step) in zip(op.operands, op.attrs["at"]):
        t = tangents.get(piece)
        if t is None:
            _require_zero(piece)
            continue
        for (offset, strides), c in t.items():
            wide = []
            for s, e, n in zip(strides, step, piece.type.shape):
                if n > 1 and s % e:
                    raise _Unknown
                wide.append(s // e if n > 1 else 0)
            moved = offset - sum([s * a for s, a in zip(wide, start)])
            parts.setdefault((moved, tuple(wide)), []).append((c, (start, step)))
    for key, found in parts.items():
        out[key] = b.place([c for c, _ in found], shape, [at for _, at in found])
    return out


def _slice(b: Builder, op: Op, offset: int, strides: tuple[int, ...], c: Value) -> Moved:
    start, step, size = op.attrs["start"], op.attrs["step"], op.attrs["size"]
    moved = offset + sum([s * a for s, a in zip(strides, start)])
    now = tuple([0 if n == 1 else s * e for s, e, n in zip(strides, step, size)])
    return [((moved, now), b.slice(c, start, size, step))]


def _transpose(b: Builder, op: Op, offset: int, strides: tuple[int, ...], c: Value) -> Moved:
    perm = op.attrs["perm"]
    return [((offset, tuple([strides[p] for p in perm])), b.transpose(c, perm))]


def _broadcast(b: Builder, op: Op, offset: int, strides: tuple[int, ...], c: Value) -> Moved:
    wide = [0] * len(op.attrs["shape"])
    for s, d in zip(strides, op.attrs["dims"]):
        wide[d] = s
    return [((offset, tuple(wide)), b.emit("broadcast", (c,), op.attrs))]


def _reshape(b: Builder, op: Op, offset: int, strides: tuple[int, ...], c: Value) -> Moved:
    shape = op.attrs["shape"]
    return [((offset, _reshaped(strides, c.type.shape, shape)), b.reshape(c, shape))]


def _reshaped(strides: Sequence[int], old: Sequence[int], new: Sequence[int]) -> tuple[int, ...]:
    """The strides of the same elements under another shape."""
    if math.prod(old) == 0:
        raise _Unknown
    before = [(n, s) for n, s in zip(old, strides) if n > 1]
    after = [k for k, n in enumerate(new) if n > 1]
    out = [0] * len(new)
    while before:
        group, axes = [before.pop()], [after.pop()]
        a, z = group[0][0], new[axes[0]]
        while a != z:  # the shortest runs of axes with as many elements
            if a < z:
                group.append(before.pop())
                a *= group[-1][0]
                n, s = group[-2]
                if group[-1][1] != n * s:
                    raise _Unknown
            else:
                axes.append(after.pop())
                z *= new[axes[-1]]
        stride = group[0][1]
        for k in axes:
            out[k] = stride
            stride *= new[k]
    return tuple(out)


def _reduce_sum(b: Builder, op: Op, offset: int, strides: tuple[int, ...], c: Value) -> Moved:
    shape, axes = c.type.shape, op.attrs["axes"]
    same = [k for k in axes if strides[k] == 0]
    apart = [k for k in axes if strides[k] != 0]
    if math.prod([shape[k] for k in apart]) > MAX_DIAGONALS:
        raise _Unknown
    rest = tuple([s for k, s in enumerate(strides) if k not in axes])
    kept = [n for k, n in enumerate(shape) if k not in axes]
    out = []
    for at in product(*[range(shape[k]) for k in apart]):
        start, size = [0] * len(shape), list(shape)
        for k, i in zip(apart, at):
            start[k], size[k] = i, 1
        moved = offset + sum([strides[k] * i for k, i in zip(apart, at)])
        piece = b.reduce_sum(b.slice(c, start, size), same)
        out.append(((moved, rest), b.reshape(piece, kept)))
    return out


_RULES = {
    "broadcast": _broadcast,
    "reduce_sum": _reduce_sum,
    "reshape": _reshape,
    "slice": _slice,
    "transpose": _transpose,
}
