"""Batching as a transform: ``batch(fn, in_axes, n)`` is ``fn`` for n points at once.

Values that depend on a batched parameter get a leading axis of length n; the others stay as
they are and are computed once.  Elementwise operations keep their name: operands without
the axis are repeated along it (a ``broadcast``, which costs nothing in native code).  The other
operations declare a ``batch`` rule in the op table.

A rule is called as ``batch(b, op, xs)`` when at least one operand is batched.  ``xs`` are the
new operands, ``b`` the ``BatchBuilder``: ``x in b.batched`` tells whether one has the axis,
``b.spread(x)`` gives it one, ``b.n`` is its length.  It returns the new results, all with
the axis except those that it declares by ``b.plain``.

>>> from tapec.ir import F64, Builder, Type
>>> b = Builder()
>>> x = b.param(Type(F64, (3,)), "x")
>>> batch(b.function("total", [b.reduce_sum(x, [0])]), [0], 5)
<Function @total.batch(f64[5,3]) -> (f64[5]), 1 ops>
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tapec.ir.adjoint import inline_calls
from tapec.ir.builder import Builder
from tapec.ir.core import BOOL, Block, Function, Op, Type, Value
from tapec.ir.opdef import OPS
from tapec.ir.rewrite import paused_gc, splat

__all__ = ["BatchBuilder", "Batched", "batch", "batch_block", "batch_keeping"]


#: operations that read or write at indices → position of the first index operand
_INDEXED = {"gather": 1, "scatter_add": 2}


class BatchBuilder(Builder):
    """A ``Builder`` that knows which values have the batch axis; see the module's text."""

    __slots__ = ("_plain", "_spread", "active", "batched", "n")

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = n
        self.batched: set[Value] = set()
        #: bool[n]: the lanes whose values matter here (None: all).  Below a branch that only
        #: some lanes take, guards and loop tests of the others must not count.
        self.active: Value | None = None
        self._plain: set[Value] = set()
        self._spread: dict[Value, Value] = {}

    def lift(self, type: Type) -> Type:
        """``type`` with the batch axis."""
        return type.with_shape((self.n, *type.shape))

    def spread(self, x: Value) -> Value:
        """``x`` with the batch axis: itself, or repeated."""
        if x in self.batched:
            return x
        found = self._spread.get(x)
        if found is None:
            value = splat(x)
            shape = (self.n, *x.type.shape)
            if value is not None:
                found = self.constant(value, x.type.with_shape(shape))
            else:
                found = self.broadcast(x, shape, tuple(range(1, len(shape))))
            self._spread[x] = found
            self.batched.add(found)
        return found

    def front(self, x: Value, axis: int) -> Value:
        """``x`` with its axis ``axis`` moved to the front."""
        rest = [k for k in range(x.type.ndim) if k != axis]
        return self.transpose(x, (axis, *rest))

    def plain(self, x: Value) -> Value:
        """Declare that the result ``x`` of a rule has no batch axis."""
        self._plain.add(x)
        return x

    def _safe_indices(self, op: Op, xs: tuple[Value, ...]) -> tuple[Value, ...]:
        """Operands of an indexing operation whose inactive lanes read element 0: their own
        indices may be out of range."""
        assert self.active is not None
        first = _INDEXED[op.name]
        if any(op.operands[0].type.shape[k] == 0 for k in op.attrs["axes"]):
            raise NotImplementedError(f"{op.name} of an empty axis in a branch of some lanes")
        safe = []
        for i in xs[first:]:
            i = self.spread(i)
            lanes = self.broadcast(self.active, i.type.shape, (0,))
            safe.append(self.select(lanes, i, self.like(0, i)))
        self.batched.update(safe)
        return (*xs[:first], *safe)

    def run(self, block: Block, args: Sequence[Value], share: bool = False) -> list[Value]:
        """Append the batched operations of ``block``; its results, in ``batched`` or not.

        ``share``: operations that do not change may be those of ``block`` themselves.
        """
        env: dict[Value, Value] = dict(zip(block.params, args, strict=True))
        batched, table, append = self.batched, OPS, self.ops.append
        for op in block.ops:
            xs = tuple([env[v] for v in op.operands])
            if batched.isdisjoint(xs) and not (
                self.active is not None and (op.regions or op.name == "guard")
            ):
                if share and xs == op.operands:
                    append(op)
                    for z in op.results:
                        env[z] = z
                else:
                    env.update(zip(op.results, self.append(op, xs).results))
                continue
            self.loc = op.loc
            if self.active is not None and op.name in _INDEXED:
                xs = self._safe_indices(op, xs)
            entry = table[op.name]
            if entry.elementwise:
                xs = tuple([x if x in batched else self.spread(x) for x in xs])
                (z,) = op.results
                new = Op(op.name, xs, (self.lift(z.type),), op.attrs, (), op.loc, z.hint)
                append(new)
                env[z] = new.results[0]
                batched.add(new.results[0])
                continue
            if entry.batch is None:
                raise NotImplementedError(f"operation {op.name!r} has no batching rule")
            found = entry.batch(self, op, xs)
            for z, made in zip(op.results, found, strict=True):
                env[z] = made
                if made.hint is None and made.op is not None:
                    made.hint = z.hint
                wanted = z.type
                if made not in self._plain:
                    batched.add(made)
                    wanted = self.lift(wanted)
                if made.type is not wanted:
                    raise AssertionError(
                        f"the batching of {op.name!r} gives {made.type} for {wanted}"
                    )
        self.loc = None
        return [env[v] for v in block.results]


class Batched(NamedTuple):
    """``fn`` as ``batch_keeping`` gives it, and which of its results have the batch axis."""

    fn: Function
    batched: list[bool]


def batch(fn: Function, in_axes: Sequence[int | None], n: int) -> Function:
    """``fn`` for ``n`` points: every result has a leading axis of length ``n``.

    ``in_axes``: per parameter the position of the batch axis among the axes of its new
    type, or None if all points share it.
    """
    return _batch(fn, in_axes, n, True).fn


def batch_keeping(fn: Function, in_axes: Sequence[int | None], n: int) -> Batched:
    """The same, but results that do not depend on a batched parameter keep their type."""
    return _batch(fn, in_axes, n, False)


@paused_gc()
def _batch(fn: Function, in_axes: Sequence[int | None], n: int, spread: bool) -> Batched:
    fn = inline_calls(fn)
    b = BatchBuilder(n)
    args = []
    for p, axis in zip(fn.params, in_axes, strict=True):
        if axis is None:
            b.params.append(p)
            args.append(p)
            continue
        shape = p.type.shape
        if not 0 <= axis <= len(shape):
            raise ValueError(f"{fn.name}: no axis {axis} in a batch of {p.type}")
        q = b.param(p.type.with_shape((*shape[:axis], n, *shape[axis:])), p.hint)
        q = b.front(q, axis)
        b.batched.add(q)
        args.append(q)
    results = b.run(fn.block, args, share=True)
    if spread:
        results = [b.spread(r) for r in results]
    return Batched(b.function(f"{fn.name}.batch", results), [r in b.batched for r in results])


def batch_block(
    block: Block,
    flags: Sequence[bool],
    n: int,
    want: Sequence[bool] | None = None,
    active: bool = False,
) -> tuple[Block, list[bool]]:
    """A region whose parameters are batched where ``flags`` says so, and which results are.

    ``want``: results that must be.  ``active``: a last parameter says which lanes matter.
    Guards stay in the region.
    """
    b = BatchBuilder(n)
    args = []
    for p, flag in zip(block.params, flags, strict=True):
        q = b.param(b.lift(p.type) if flag else p.type, p.hint)
        if flag:
            b.batched.add(q)
        args.append(q)
    if active:
        b.active = b.param(Type(BOOL, (n,)), "active")
    results = b.run(block, args, share=True)
    if want is not None:
        results = [b.spread(r) if w else r for r, w in zip(results, want, strict=True)]
    return b.block(results), [r in b.batched for r in results]
