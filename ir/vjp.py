"""Reverse mode as a transform: ``vjp(fn)`` is an ordinary ``Function``.

The result computes the primal operations once, in their order, and then walks them
backwards, giving each operation's cotangent to its rule in the op table.  Since the
rules write operations of the same table, ``vjp`` and ``jvp`` apply to the result again.

Invariants: an absent cotangent is zero and costs nothing; only values that depend on
the selected parameters and carry a derivative get one; contributions are added in a
fixed order, so results are reproducible.  Primal operations are shared with ``fn`` (they
are immutable), not copied.

>>> from tapec.ir import F64, Builder, Type, interpret, vjp
>>> b = Builder()
>>> x = b.param(Type(F64), "x")
>>> square = b.function("square", [b.mul(x, x)])
>>> [float(a) for a in interpret(vjp(square, seeds=False), [3.0])]
[9.0, 6.0]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tapec.ir.adjoint import AdjointBuilder, inline_calls, is_zero
from tapec.ir.core import Function, Op, Value
from tapec.ir.opdef import OPS, OpDef
from tapec.ir.rewrite import paused_gc

__all__ = ["Pulled", "active_values", "differentiable_params", "pull_back", "vjp"]

Piece = tuple[Value, tuple[int, ...], tuple[int, ...]]
#: Arrays larger than this are not searched for elements that no slice reads.
_COVER_LIMIT = 1 << 20


@paused_gc()
def vjp(
    fn: Function,
    wrt: Sequence[int] | None = None,
    outputs: Sequence[int] | None = None,
    *,
    seeds: bool = True,
    masked_seeds: bool = False,
) -> Function:
    """Values of ``fn`` and cotangents of its parameters.

    Parameters of the result: those of ``fn``, then one cotangent per selected output.
    Results: those of ``fn``, then the cotangents of the parameters ``wrt``.

    ``wrt``, ``outputs``: positions; by default all that carry a derivative.
    ``seeds=False``: the selected outputs are scalars and their cotangents the constant 1.
    ``masked_seeds``: a zero in a seed means that the output is not selected (rows of a
    Jacobian), so that its infinite derivatives do not make NaN of the others.
    """
    fn = inline_calls(fn)
    selected = _selected_outputs(fn, outputs)
    return pull_back(fn, wrt, selected, [masked_seeds] * len(selected), seeds).fn


class Pulled(NamedTuple):
    """``fn`` as ``vjp`` gives it; per cotangent whether it is masked and whether absent."""

    fn: Function
    masked: list[bool]
    absent: list[bool]


def pull_back(
    fn: Function,
    wrt: Sequence[int] | None,
    selected: Sequence[int],
    masked_seeds: Sequence[bool],
    seeds: bool = True,
) -> Pulled:
    """``vjp`` with one entry of ``masked_seeds`` per selected output, and what it knows of the
    cotangents."""
    fn = inline_calls(fn)
    wrt = differentiable_params(fn, wrt)
    b = AdjointBuilder()
    b.params.extend(fn.params)
    b.ops.extend(fn.ops)
    reverse = _Reverse(b)
    b.active = active_values(fn, wrt)
    for k, mask in zip(selected, masked_seeds, strict=True):
        out = fn.results[k]
        if seeds:
            seed = b.param(out.type, f"d{out.hint}" if out.hint else None)
            if mask:
                b.masked.add(seed)
        elif out.type.shape:
            raise ValueError(
                f"{fn.name}: result {k} has type {out.type}; seeds=False takes scalars"
            )
        else:
            seed = b.like(1, out)
        if out in b.active:
            reverse.add(out, seed)
    reverse.run(fn.ops)

    b.loc = None
    grads, masked, absent = [], [], []
    for k in wrt:
        ct = reverse.take(fn.params[k])
        absent.append(ct is None)
        masked.append(ct is not None and ct in b.masked)
        grads.append(b.zeros(fn.params[k].type) if ct is None else ct)
    return Pulled(b.function(f"{fn.name}.vjp", [*fn.results, *grads]), masked, absent)


def differentiable_params(fn: Function, wrt: Sequence[int] | None) -> list[int]:
    """The positions ``wrt``, checked; by default all that carry a derivative."""
    if wrt is None:
        return [k for k, p in enumerate(fn.params) if p.type.dtype.is_inexact]
    for k in wrt:
        if not fn.params[k].type.dtype.is_inexact:
            raise TypeError(
                f"{fn.name}: parameter {k} of type {fn.params[k].type} has no derivative"
            )
    return list(wrt)


def _selected_outputs(fn: Function, outputs: Sequence[int] | None) -> list[int]:
    if outputs is None:
        return [k for k, r in enumerate(fn.results) if r.type.dtype.is_inexact]
    for k in outputs:
        if not fn.results[k].type.dtype.is_inexact:
            raise TypeError(f"{fn.name}: result {k} of type {fn.results[k].type} has no derivative")
    return list(outputs)


def active_values(fn: Function, wrt: Sequence[int]) -> set[Value]:
    """The values that depend on the selected parameters and carry a derivative."""
    active = {fn.params[k] for k in wrt}
    table = OPS
    for op in fn.ops:
        if active.isdisjoint(op.operands) or table[op.name].nondifferentiable:
            continue
        for z in op.results:
            if z.type.dtype.is_inexact:
                active.add(z)
    return active


class _Reverse:
    """Cotangents on their way up: one value each, or pieces of it not yet put together."""

    __slots__ = ("b", "cts", "pieces")

    def __init__(self, b: AdjointBuilder) -> None:
        self.b = b
        self.cts: dict[Value, Value] = {}
        #: Cotangents of slices, by the value that was sliced.  Kept apart until the value's
        #: definition is reached: n elements read one by one cost one ``place`` of n pieces.
        self.pieces: dict[Value, list[Piece]] = {}

    def add(self, v: Value, ct: Value) -> None:
        """One more contribution to the cotangent of ``v``."""
        old = self.cts.get(v)
        if old is not None:
            b = self.b
            masked = ct in b.masked or old in b.masked
            ct = b.pair("add", old, ct)
            if masked:
                b.masked.add(ct)
        self.cts[v] = ct

    def take(self, v: Value) -> Value | None:
        """The finished cotangent of ``v``."""
        pieces = self.pieces.pop(v, None)
        if pieces is not None:
            self.add(v, self._place(v, pieces))
        return self.cts.pop(v, None)

    def _place(self, v: Value, pieces: list[Piece]) -> Value:
        b = self.b
        at: dict[tuple[tuple[int, ...], ...], Value] = {}
        masked = False
        for ct, start, step in pieces:
            key = (start, ct.type.shape, step)
            masked = masked or ct in b.masked
            old = at.get(key)
            at[key] = ct if old is None else b.add(old, ct)
        out = b.place(list(at.values()), v.type.shape, [(s, t) for s, _, t in at])
        # Where no piece lies, the zero means "not selected".
        if masked or (v.op is not None and not _covered(v.type.shape, list(at))):
            b.masked.add(out)
        return out

    def run(self, ops: Sequence[Op]) -> None:
        b, cts, pieces, table = self.b, self.cts, self.pieces, OPS
        active, masked, pair, add = b.active, b.masked, b.pair, self.add
        for op in reversed(ops):
            results = op.results
            if len(results) == 1:
                z = results[0]
                ct = self.take(z) if z in pieces else cts.pop(z, None)
                if ct is None:
                    continue
                b.loc = op.loc
                entry = table[op.name]
                partials = entry.partials
                if partials is not None and entry.vjp is None:
                    operands = op.operands
                    weak = ct not in masked and not entry.masks
                    for x, p in zip(operands, partials(b, z, *operands)):
                        if p is None or x not in active or is_zero(p):
                            continue
                        if weak and isinstance(p, Value):
                            c = pair("mul", ct, p)
                        else:
                            c = b.ct_mul(ct, p)
                        if x in cts:
                            add(x, c)
                        else:
                            cts[x] = c
                    continue
                if op.name == "slice":
                    x, attrs = op.operands[0], op.attrs
                    if ct.type.size:
                        pieces.setdefault(x, []).append((ct, attrs["start"], attrs["step"]))
                    continue
                self._rule(entry, op, [ct])
            else:
                found = [self.take(z) for z in results]
                if any(ct is not None for ct in found):
                    b.loc = op.loc
                    self._rule(table[op.name], op, found)

    def _rule(self, entry: OpDef, op: Op, cts: list[Value | None]) -> None:
        """Apply the entry's own ``vjp``."""
        if entry.vjp is None:
            raise NotImplementedError(f"operation {op.name!r} has no reverse-mode rule")
        b = self.b
        masked = entry.masks or any(ct in b.masked for ct in cts if ct is not None)
        found = entry.vjp(b, op, cts)
        if len(found) != len(op.operands):
            raise AssertionError(f"the vjp of {op.name!r} gives {len(found)} cotangents")
        for x, c in zip(op.operands, found):
            if c is None or x not in b.active:
                continue
            if c.type is not x.type:
                raise AssertionError(f"the vjp of {op.name!r} gives {c.type} for {x.type}")
            if masked:
                b.masked.add(c)
            self.add(x, c)


def _covered(shape: tuple[int, ...], at: list[tuple[tuple[int, ...], ...]]) -> bool:
    """Whether pieces at (start, size, step) together cover every element of ``shape``."""
    total = 1
    for n in shape:
        total *= n
    sizes = 0
    for _, size, _ in at:
        k = 1
        for n in size:
            k *= n
        sizes += k
    if sizes < total:
        return False
    if len(at) == 1:
        return True
    if total > _COVER_LIMIT:
        return False
    seen = np.zeros(shape, np.bool_)
    for start, size, step in at:
        seen[tuple([_range(*axis) for axis in zip(start, size, step)])] = True
    return bool(seen.all())


def _range(start: int, size: int, step: int) -> slice:
    if step < 0:  # the same elements, upwards
        start, step = start + (size - 1) * step, -step
    return slice(start, start + (size - 1) * step + 1, step)
