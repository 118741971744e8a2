"""Which elements of the results depend on which elements of the parameters.

Every value is given, per element, the set of input elements that it may depend on with a
non-zero derivative: a sorted array of keys ``element * n + input`` (None: no dependence).
Operations map these sets exactly where they move elements; where an operation mixes elements
in a way that is not known here, its results depend on everything that its operands do.

Values that depend on no differentiated parameter are computed along (``known``), so that
indices that are constants, or given arrays, select exactly.

>>> from tapec.ir import F64, Builder, Type
>>> b = Builder()
>>> x = b.param(Type(F64, (3,)), "x")
>>> f = b.function("f", [b.mul(b.slice(x, [0], [2]), b.slice(x, [1], [2]))])
>>> [a.tolist() for a in sparsity(f, [0])[0]]
[[0, 0, 1, 1], [0, 1, 1, 2]]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tapec.ir.adjoint import inline_calls
from tapec.ir.core import Block, Function, Op, Value
from tapec.ir.linalg import free_axes
from tapec.ir.loops import phases, scan_parts
from tapec.ir.opdef import OPS
from tapec.ir.shape import index_of

__all__ = ["distinct", "sparsity"]

Array = np.ndarray[Any, Any]
Keys = Array | None
#: Values larger than this are not computed along.
_KNOWN_LIMIT = 1 << 22


def sparsity(
    fn: Function, wrt: Sequence[int], known: Mapping[int, Array] | None = None
) -> list[tuple[Array, Array]]:
    """Per result the rows and columns of its structural non-zeros, sorted by rows.

    Columns count the elements of the parameters ``wrt``, one after the other.  ``known``:
    arrays for other parameters (integers that are used as indices).
    """
    fn = inline_calls(fn)
    n = sum(fn.params[k].type.size for k in wrt)
    s = _Sets(max(n, 1))
    sets: dict[Value, Keys] = {}
    at = 0
    for k in wrt:
        size = fn.params[k].type.size
        sets[fn.params[k]] = np.arange(size, dtype=np.int64) * s.n + np.arange(at, at + size)
        at += size
    values = {fn.params[k]: np.asarray(a) for k, a in (known or {}).items()}
    out = s.block(fn.block, sets, values)
    empty = np.zeros(0, np.int64)
    return [(empty, empty) if k is None else (k // s.n, k % s.n) for k in out]


def distinct(keys: Array) -> Array:
    """Sorted, without repetitions (``np.unique`` hashes, which is slow for keys like these)."""
    keys = np.sort(keys)
    if keys.size < 2:
        return keys
    out: Array = keys[np.concatenate([[True], keys[1:] != keys[:-1]])]
    return out


class _Sets:
    def __init__(self, n: int) -> None:
        self.n = n

    # -- sets ---------------------------------------------------------------------------

    def union(self, *many: Keys) -> Keys:
        found = [k for k in many if k is not None]
        if not found:
            return None
        first = found[0]
        if all(k is first for k in found):
            return first
        return distinct(np.concatenate(found))

    def take(self, keys: Keys, source: Array) -> Keys:
        """Element r of the result has the set of element ``source[r]``."""
        if keys is None:
            return None
        source = source.reshape(-1).astype(np.int64)
        start = np.searchsorted(keys, source * self.n)
        count = np.searchsorted(keys, (source + 1) * self.n) - start
        total = int(count.sum())
        ends = np.cumsum(count)
        index = np.arange(total) + np.repeat(start - (ends - count), count)
        rows = np.repeat(np.arange(source.size, dtype=np.int64), count)
        out: Array = rows * self.n + keys[index] % self.n
        return out

    def give(self, keys: Keys, target: Array) -> Keys:
        """The set of element r goes to element ``target[r]``."""
        if keys is None:
            return None
        rows = target.reshape(-1).astype(np.int64)[keys // self.n]
        return distinct(rows * self.n + keys % self.n)

    def everything(self, keys: Keys, size: int) -> Keys:
        """All elements have the union of all sets."""
        if keys is None or not size:
            return None
        columns = distinct(keys % self.n)
        out: Array = (np.arange(size, dtype=np.int64)[:, None] * self.n + columns).reshape(-1)
        return out

    # -- the walk -------------------------------------------------------------------------

    def block(
        self, block: Block, sets: dict[Value, Keys], values: dict[Value, Array]
    ) -> list[Keys]:
        for op in block.ops:
            xs = [sets.get(x) for x in op.operands]
            if all(x is None for x in xs):
                self.compute(op, values)
                continue
            entry = OPS[op.name]
            if entry.nondifferentiable or entry.effect:
                continue
            rule = _RULES.get(op.name)
            if op.regions:
                found = self.regions(op, xs, values)
            elif entry.elementwise:
                found = [self.union(*xs)]
            elif rule is not None:
                found = [rule(self, op, xs, values)]
            else:
                whole = [self.everything(x, 1) for x in xs]
                joined = self.union(*whole)
                found = [self.everything(joined, r.type.size) for r in op.results]
            for z, keys in zip(op.results, found, strict=True):
                if z.type.dtype.is_inexact and keys is not None and keys.size:
                    sets[z] = keys
        return [sets.get(r) for r in block.results]

    def compute(self, op: Op, values: dict[Value, Array]) -> None:
        """The value of an operation on known operands."""
        if op.regions or len(op.results) != 1 or op.results[0].type.size > _KNOWN_LIMIT:
            return
        if not all(x in values for x in op.operands):
            return
        z = op.results[0]
        with np.errstate(all="ignore"):
            found = OPS[op.name].numpy([values[x] for x in op.operands], op.attrs)
        values[z] = np.asarray(found, z.type.dtype.np)

    # -- regions --------------------------------------------------------------------------

    def body(
        self, block: Block, given: Sequence[Keys], known: Sequence[Array | None]
    ) -> list[Keys]:
        sets: dict[Value, Keys] = {p: k for p, k in zip(block.params, given) if k is not None}
        values = {p: v for p, v in zip(block.params, known) if v is not None}
        return self.block(block, sets, values)

    def regions(self, op: Op, xs: list[Keys], values: dict[Value, Array]) -> list[Keys]:
        known = [values.get(x) for x in op.operands]
        if op.name == "custom":
            return self.body(op.regions[0], xs, known)
        if op.name == "cond":
            branches = [self.body(r, xs[1:], known[1:]) for r in op.regions]
            return [self.union(*many) for many in zip(*branches)]
        if op.name == "scan":
            return self.scan(op, xs, known)
        return self.loop(op, xs, known)

    def scan(self, op: Op, xs: list[Keys], known: list[Array | None]) -> list[Keys]:
        (body,) = op.regions
        c, m, length = op.attrs["n_carry"], op.attrs["n_xs"], op.attrs["length"]
        carry, stacks, consts = scan_parts(op, xs)
        _, arrays, fixed = scan_parts(op, known)
        pieces: list[list[Keys]] = [[] for _ in op.results[c:]]
        for t in reversed(range(length)) if op.attrs["reverse"] else range(length):
            slices = []
            for keys, p in zip(stacks, body.params[c : c + m]):
                size = p.type.size
                slices.append(self.take(keys, np.arange(t * size, (t + 1) * size)))
            rows = [None if a is None else a[t] for a in arrays]
            out = self.body(body, [*carry, *slices, *consts], [*[None] * c, *rows, *fixed])
            carry = out[:c]
            for piece, keys, r in zip(pieces, out[c:], body.results[c:]):
                if keys is not None:
                    piece.append(keys + t * r.type.size * self.n)
        return [*carry, *[self.union(*piece) for piece in pieces]]

    def loop(self, op: Op, xs: list[Keys], known: list[Array | None]) -> list[Keys]:
        """Over any number of iterations: sets grow until they do not change."""
        parts = phases(op)
        total = sum(op.attrs["n_carry"])
        consts, fixed = xs[total:], known[total:]
        carry = list(xs[:total])
        yields: list[list[Keys]] = []
        for p in parts:
            stop = p.first + p.n_carry
            while True:
                slices = [yields[q][k] for q, k in p.reads]
                none: list[Array | None] = [None] * (p.n_carry + len(slices))
                out = self.body(p.body, [*carry[p.first : stop], *slices, *consts], [*none, *fixed])
                grown = [self.union(a, c) for a, c in zip(carry[p.first : stop], out)]
                same = all(
                    (a is None and g is None)
                    or (a is not None and g is not None and a.size == g.size)
                    for a, g in zip(carry[p.first : stop], grown)
                )
                carry[p.first : stop] = grown
                if same:
                    break
            yields.append(out[p.n_carry :])
        return carry


# -- rules ------------------------------------------------------------------------------

Rule = Callable[[_Sets, Op, list[Keys], dict[Value, Array]], Keys]


def _numbers(shape: tuple[int, ...]) -> Array:
    return np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)


def _moved(s: _Sets, op: Op, xs: list[Keys], values: dict[Value, Array]) -> Keys:
    source = OPS[op.name].numpy([_numbers(op.operands[0].type.shape)], op.attrs)
    return s.take(xs[0], np.asarray(source))


def _same(s: _Sets, op: Op, xs: list[Keys], values: dict[Value, Array]) -> Keys:
    return xs[0]


def _place(s: _Sets, op: Op, xs: list[Keys], values: dict[Value, Array]) -> Keys:
    numbers = _numbers(op.results[0].type.shape)
    return s.union(
        *[
            s.give(x, numbers[index_of(start, piece.type.shape, step)])
            for x, piece, (start, step) in zip(xs, op.operands, op.attrs["at"])
        ]
    )


def _reduced(s: _Sets, op: Op, xs: list[Keys], values: dict[Value, Array]) -> Keys:
    shape, axes = op.operands[0].type.shape, op.attrs["axes"]
    kept = tuple([1 if k in axes else m for k, m in enumerate(shape)])
    return s.give(xs[0], np.broadcast_to(_numbers(kept), shape))


def _cumsum(s: _Sets, op: Op, xs: list[Keys], values: dict[Value, Array]) -> Keys:
    shape, axis = op.operands[0].type.shape, op.attrs["axis"]
    numbers = np.moveaxis(_numbers(shape), axis, -1).reshape(-1, shape[axis])
    if op.attrs["reverse"]:
        numbers = numbers[:, ::-1]
    i, j = np.triu_indices(shape[axis])
    # element i of a line goes to every element j behind it
    source, target = numbers[:, i].reshape(-1), numbers[:, j].reshape(-1)
    keys = s.take(xs[0], source)
    return s.give(keys, target)


def _dot(s: _Sets, op: Op, xs: list[Keys], values: dict[Value, Array]) -> Keys:
    x, y = op.operands
    (cx, cy), (bx, by) = op.attrs["contract"], op.attrs["batch"]
    fx, fy = free_axes(x.type.ndim, cx, bx), free_axes(y.type.ndim, cy, by)
    parts = []
    for keys, t, other, batch, free, contract, other_contract, other_batch, first in (
        (xs[0], x.type, y, bx, fx, cx, cy, by, True),
        (xs[1], y.type, x, by, fy, cy, cx, bx, False),
    ):
        if keys is None:
            continue
        out_shape = op.results[0].type.shape
        lead, nx = len(bx), len(fx)
        places = list(range(lead)) + (
            list(range(lead, lead + nx)) if first else list(range(lead + nx, len(out_shape)))
        )
        factor = values.get(other)
        if (
            factor is not None
            and not batch
            and factor.ndim
            == len(other_contract) + len(free_axes(factor.ndim, other_contract, other_batch))
        ):
            found = _dot_known(s, op, keys, t, factor, free, contract, other_contract, first)
            parts.append(found)
            continue
        kept = [t.shape[k] for k in (*batch, *free)]
        numbers = _numbers(tuple(kept)).reshape([*kept, *[1] * len(contract)])
        wide = np.broadcast_to(numbers, [*kept, *[t.shape[k] for k in contract]])
        target = np.transpose(wide, np.argsort([*batch, *free, *contract]))
        merged = s.give(keys, target)
        aligned = [out_shape[k] if k in places else 1 for k in range(len(out_shape))]
        source = np.broadcast_to(_numbers(tuple(kept)).reshape(aligned), out_shape)
        parts.append(s.take(merged, source))
    return s.union(*parts)


def _dot_known(
    s: _Sets, op: Op, keys: Array, t: Any, factor: Array, free: Any, contract: Any,
    other_contract: Any, first: bool,
) -> Keys:  # fmt: skip
    """A product with a known array, whose zeros drop what they multiply."""
    other_free = free_axes(factor.ndim, other_contract, ())
    m = np.transpose(factor, [*other_contract, *other_free]).reshape(
        int(np.prod([factor.shape[k] for k in other_contract])), -1
    )
    order = [*free, *contract]
    rows = int(np.prod([t.shape[k] for k in free]))
    inner = np.transpose(_numbers(t.shape), order).reshape(rows, -1)
    c, j = np.nonzero(m)
    source = inner[:, c]
    columns = m.shape[1]
    r = np.arange(rows)[:, None]
    target = (r * columns + j) if first else (j * rows + r)
    order_ = np.argsort(target.reshape(-1), kind="stable")
    picked = s.take(keys, source.reshape(-1)[order_])
    return s.give(picked, target.reshape(-1)[order_])


def _gather(s: _Sets, op: Op, xs: list[Keys], values: dict[Value, Array]) -> Keys:
    x, *indices = op.operands
    axes = op.attrs["axes"]
    numbers = np.moveaxis(_numbers(x.type.shape), axes, range(len(axes)))
    if all(i in values for i in indices):
        return s.take(xs[0], numbers[tuple([values[i] for i in indices])])
    # any of the elements that the indices choose among
    flat = numbers.reshape(-1, int(np.prod(numbers.shape[len(axes) :])))
    target = np.empty(x.type.size, np.int64)
    target[flat] = np.arange(flat.shape[1])
    merged = s.give(xs[0], target)
    rest = numbers.shape[len(axes) :]
    return s.take(merged, np.broadcast_to(_numbers(rest), op.results[0].type.shape))


def _scatter(s: _Sets, op: Op, xs: list[Keys], values: dict[Value, Array]) -> Keys:
    base, _, *indices = op.operands
    axes = op.attrs["axes"]
    numbers = np.moveaxis(_numbers(base.type.shape), axes, range(len(axes)))
    if all(i in values for i in indices):
        target = numbers[tuple([values[i] for i in indices])]
        return s.union(xs[0], s.give(xs[1], target))
    return s.union(xs[0], s.everything(xs[1], base.type.size))


_RULES: dict[str, Rule] = {
    "reshape": _same,
    "transpose": _moved,
    "broadcast": _moved,
    "slice": _moved,
    "place": _place,
    "cumsum": _cumsum,
    "dot": _dot,
    "gather": _gather,
    "scatter_add": _scatter,
    **dict.fromkeys(("reduce_sum", "reduce_prod", "reduce_max", "reduce_min"), _reduced),
}
