"""``AdjointBuilder``: the builder that derivative rules write with, in both modes.

A cotangent that is exactly zero may mean "this branch was not selected": below a
``select``, the derivative of the arm not taken is often infinite or NaN, and
``0 * inf`` would poison the gradient.  So cotangents that come out of an operation
with ``masks=True`` (select, max, gather, ...), and everything that is derived from
them, are *masked*, and products with a masked cotangent are *strong*: zero where the
cotangent is zero, whatever the other factor is.  Elsewhere products stay plain ``mul``,
which the simplifier knows more about.  Forward mode does the same with tangents
(``masks_tangent=True``): in ``sqrt(max(x, 0))`` at -1 it is the tangent of ``max`` that
is zero, and the derivative of ``sqrt`` that is infinite.

Rules take part through three methods:

``b.ct_mul(ct, p)``   the product of the op's cotangent (or a tangent) and a partial derivative;
``b.mask(v)``         declare ``v`` masked (the transform does that itself for all that a rule
                      returns, if the op masks or was given something masked);
``b.is_masked(v)``.
"""

from __future__ import annotations

from collections.abc import Sequence

from tapec.ir.builder import Builder
from tapec.ir.core import NO_ATTRS, Block, Dense, Function, Loc, Op, Value
from tapec.ir.dce import rebuilt
from tapec.ir.opdef import Partial

__all__ = ["AdjointBuilder", "inline_calls", "is_zero"]


class AdjointBuilder(Builder):
    """A ``Builder`` that knows which cotangents are masked; see the module's text."""

    __slots__ = ("active", "masked", "replaced")

    def __init__(self, loc: Loc | None = None) -> None:
        super().__init__(loc)
        self.masked: set[Value] = set()
        #: the values that a derivative is wanted of; rules may skip the others
        self.active: set[Value] = set()
        #: primal operations that rules replace by ones with further results (which stand
        #: after the old ones): loops that also give what their derivatives need
        self.replaced: dict[Op, Op] = {}

    def function(self, name: str, results: Sequence[Value]) -> Function:
        if self.replaced:
            self.ops, results = _substituted(self.ops, self.replaced, results)
        return super().function(name, results)

    def pair(self, name: str, x: Value, y: Value) -> Value:
        """``emit`` for the commonest operations: two operands and a result of one type."""
        if x.type is not y.type:
            return self.emit(name, (x, y))  # which reports the mismatch
        op = Op(name, (x, y), (x.type,), NO_ATTRS, (), self.loc)
        self.ops.append(op)
        return op.results[0]

    def mask(self, v: Value) -> Value:
        """Declare that zeros of ``v`` mean "not selected"."""
        self.masked.add(v)
        return v

    def is_masked(self, v: Value) -> bool:
        return v in self.masked

    def ct_mul(self, ct: Value, p: Partial) -> Value:
        """``ct * p``, strong where ``ct`` is masked.  ``p`` is a value or a number."""
        if isinstance(p, Value):
            if ct in self.masked:
                return self.mask(self.pair("strong_mul", ct, p))
            return self.pair("mul", ct, p)
        if p == 1:
            return ct
        if p == -1:
            out = self.emit("neg", (ct,))
        elif p is None or p != p:
            if p is not None:
                where = f"{self.loc}: " if self.loc else ""
                raise NotImplementedError(
                    f"{where}the derivative by this operand of a special function is not known; "
                    "keep it constant"
                )
            raise ValueError("a product with an absent partial derivative")
        else:
            # A finite number times zero is zero: no need to be strong.
            out = self.emit("mul", (ct, self.constant(p, ct.type)))
        if ct in self.masked:
            self.masked.add(out)
        return out


def is_zero(p: Partial) -> bool:
    """Whether a partial derivative is the literal 0: it contributes nothing, whatever it would
    be multiplied with."""
    if not isinstance(p, Value):
        return p == 0
    op = p.op
    if op is None or op.name != "constant":
        return False
    value = op.attrs["value"]
    return not isinstance(value, Dense) and value == 0


def _substituted(
    ops: Sequence[Op], replaced: dict[Op, Op], results: Sequence[Value]
) -> tuple[list[Op], list[Value]]:
    """``ops`` and ``results`` after replacing operations, where they stand."""
    env: dict[Value, Value] = {}
    for old, new in replaced.items():
        env.update(zip(old.results, new.results))

    def now(v: Value) -> Value:
        while v in env:
            v = env[v]
        return v

    out = []
    for op in ops:
        op = replaced.get(op, op)
        if not env.keys().isdisjoint(op.operands):
            new = rebuilt(op, tuple([now(v) for v in op.operands]), op.regions)
            env.update(zip(op.results, new.results))
            op = new
        out.append(op)
    return out, [now(v) for v in results]


def inline_calls(fn: Function) -> Function:
    """``fn`` with the body of every ``call`` in its place; ``fn`` itself if it has none."""
    for op in fn.ops:
        if op.name == "call":
            break
    else:
        return fn
    out: list[Op] = []
    env: dict[Value, Value] = {}
    _inline_block(fn.block, env, out)
    return Function(fn.name, fn.params, out, [env.get(v, v) for v in fn.results])


def _inline_block(block: Block, env: dict[Value, Value], out: list[Op]) -> None:
    for op in block.ops:
        operands = tuple([env.get(v, v) for v in op.operands])
        if op.name == "call":
            body = op.regions[0]
            # The same body may be called many times: each has names of its own.
            inner = dict(zip(body.params, operands, strict=True))
            _inline_block(body, inner, out)
            for z, v in zip(op.results, body.results, strict=True):
                env[z] = inner.get(v, v)
            continue
        types = tuple([r.type for r in op.results])
        hint = op.results[0].hint if op.results else None
        new = Op(op.name, operands, types, op.attrs, op.regions, op.loc, hint)
        out.append(new)
        env.update(zip(op.results, new.results, strict=True))
