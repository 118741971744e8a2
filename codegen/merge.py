"""Loops that run twice and need not: a ``while`` and the pullback that runs it again.

The pullback of a ``while`` is an operation with the same loop, which also yields what the
further phases read.  Where both are in one program the first can yield it, and the second
only runs its further phases.  ``merged_loops`` finds such pairs: the same carries, and
tests and bodies that compute the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tapec.codegen.regions import has_guard, scalar_elements
from tapec.ir.core import Block, Op, Value
from tapec.ir.dce import live_ops
from tapec.ir.equal import same_operations

__all__ = ["Merged", "merged_loops"]


class Merged(NamedTuple):
    """``first`` runs ``body`` (its own, and what that yields) and keeps the stack for
    ``second``."""

    first: Op
    second: Op
    body: Block


def merged_loops(ops: Sequence[Op], scalar: set[Op]) -> list[Merged]:
    loops = [op for op in ops if op.name == "while"]
    found: list[Merged] = []
    taken: set[Op] = set()
    for k, second in enumerate(loops):
        if len(second.attrs["n_carry"]) < 2:
            continue
        for first in loops[:k]:
            if first in taken or len(first.attrs["n_carry"]) > 1:
                continue
            body = _merged_body(first, second)
            if body is None or (first in scalar and scalar_elements(body) is None):
                continue
            taken.add(first)
            found.append(Merged(first, second, body))
            break
    return found


def _merged_body(first: Op, second: Op) -> Block | None:
    """The second operation's body with the first one's parameters; None if they differ."""
    (n,) = first.attrs["n_carry"]
    total = sum(second.attrs["n_carry"])
    if second.attrs["n_carry"][0] != n or first.operands[:n] != second.operands[:n]:
        return None
    if has_guard(first.regions[0]) or has_guard(first.regions[1]):
        return None
    places = {v: k for k, v in enumerate(second.operands[total:])}
    consts = first.operands[n:]

    def params(block: Block) -> list[Value]:
        """Those of the second operation's block in the order of the first's operands."""
        mine = block.params[len(block.params) - len(places) :] if places else ()
        return [
            *block.params[:n],
            *[mine[places[v]] if v in places else Value(v.type) for v in consts],
        ]

    if len(places) != len(second.operands) - total:
        return None
    blocks = []
    for own, other, n_results in (
        (first.regions[0], second.regions[0], 1),
        (first.regions[1], second.regions[1], n),
    ):
        theirs = params(other)
        results = other.results[:n_results]
        plain = Block(theirs, live_ops(other.ops, results), results)
        if not same_operations(own, plain):
            return None
        blocks.append(Block(theirs, other.ops, other.results))
    body = blocks[1]
    known = set(body.params)
    for op in body.ops:
        if not known.issuperset(op.operands):
            return None  # it yields something that the first operation is not given
        known.update(op.results)
    return body if known.issuperset(body.results) else None
