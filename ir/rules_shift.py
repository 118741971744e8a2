"""Rules for shifted exponentials: ``log(sum(exp(x - m))) + m`` and its relatives.

The shift ``m`` (usually the maximum of ``x``) is there for the sake of range only: the
mathematical value does not depend on it.  These rules make that known to the derivative, by
marking it as a constant (``stop``).  Otherwise the adjoint of the maximum, with its ties and
selections, would be computed only to cancel.  The value keeps every bit.
"""

from __future__ import annotations

from typing import NamedTuple

from tapec.ir.core import Op, Value
from tapec.ir.rewrite import Rewriter, rule

__all__ = ["Shifted"]

_EXACT_VALUE = "the derivative with respect to the shift, which is zero"


class Shifted(NamedTuple):
    """``reduce_sum(exp(x - broadcast(m)), axes)``."""

    x: Value
    m: Value
    spread: Op
    exp: Op
    sum: Op


def _made(v: Value, name: str) -> Op | None:
    op = v.op
    return op if op is not None and op.name == name else None


def _unshaped(v: Value) -> Value:
    """Behind reshapes."""
    while v.op is not None and v.op.name == "reshape":
        v = v.op.operands[0]
    return v


def _shifted(v: Value) -> Shifted | None:
    total = _made(_unshaped(v), "reduce_sum")
    exp = _made(total.operands[0], "exp") if total is not None else None
    gap = _made(exp.operands[0], "sub") if exp is not None else None
    spread = _made(gap.operands[1], "broadcast") if gap is not None else None
    if total is None or exp is None or gap is None or spread is None:
        return None
    m = spread.operands[0]
    if _made(m, "stop") is not None or m.type.size != total.results[0].type.size:
        return None
    return Shifted(gap.operands[0], m, spread, exp, total)


def _fixed(b: Rewriter, s: Shifted) -> tuple[Value, Value, Value]:
    """The stopped shift, the exponentials and their sum with it."""
    m = b.unary("stop", s.m)
    e = b.exp(b.sub(s.x, b.emit("broadcast", (m,), s.spread.attrs)))
    return m, e, b.emit("reduce_sum", (e,), s.sum.attrs)


def _like(b: Rewriter, new: Value, old: Value) -> Value:
    """``new`` in the shape of ``old`` (they differ by reshapes)."""
    return b.reshape(new, old.type.shape)


@rule("add", given=("log", "reshape"), up_to=_EXACT_VALUE)
def logsumexp_shift(b: Rewriter, op: Op) -> Value | None:
    """m + log(sum(exp(x - m))): m is a constant to derivatives"""
    for shift, log in (op.operands, op.operands[::-1]):
        made = _made(_unshaped(log), "log")
        s = _shifted(made.operands[0]) if made is not None else None
        if s is not None and _unshaped(shift) is _unshaped(s.m):
            m, _, total = _fixed(b, s)
            return b.add(_like(b, m, shift), _like(b, b.log(total), log))
    return None


@rule("div", given="exp", at="first", up_to=_EXACT_VALUE)
def softmax_shift(b: Rewriter, op: Op) -> Value | None:
    """exp(x - m)/sum(exp(x - m)): m is a constant to derivatives"""
    e, below = op.operands
    spread = _made(below, "broadcast")
    s = _shifted(spread.operands[0]) if spread is not None else None
    if spread is None or s is None or s.exp.results[0] is not e:
        return None
    _, new, total = _fixed(b, s)
    return b.div(new, b.emit("broadcast", (_like(b, total, spread.operands[0]),), spread.attrs))


@rule("sub", given="sub", at="first", up_to=_EXACT_VALUE)
def log_softmax_shift(b: Rewriter, op: Op) -> Value | None:
    """(x - m) - log(sum(exp(x - m))): m is a constant to derivatives"""
    gap, below = op.operands
    spread = _made(below, "broadcast")
    log = _made(_unshaped(spread.operands[0]), "log") if spread is not None else None
    s = _shifted(log.operands[0]) if log is not None else None
    if spread is None or log is None or s is None or s.exp.operands[0] is not gap:
        return None
    m, _, total = _fixed(b, s)
    new = b.sub(s.x, b.emit("broadcast", (m,), s.spread.attrs))
    norm = _like(b, b.log(total), spread.operands[0])
    return b.sub(new, b.emit("broadcast", (norm,), spread.attrs))
