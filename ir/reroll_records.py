"""What re-rolling works on: a program as a list of light records, as the tape has them.

A record is ``(op, operands, attrs, types, site)``; its position is the id of its result (one
with n results is followed by n - 1 ``None``), and operands are ids.  ``site`` is whatever the
owner of the records wants to find again at the emitted operation.  Besides the ops of the IR
there are

``item``    ``x[i, j]``: attribute ``index``, integers for the leading axes;
``stack``   operands of one type, in order, as one array: attribute ``shape``;
``scan``    a loop: attribute ``loop``, see ``Loop``; operands carries, xs, consts;
``param``   a parameter of a loop's body.

Records without operands (constants, parameters) need no place in the order of execution:
whoever emits the program makes them where they are used first.  So do *elements*: items
of a parameter, or of what a loop stacked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tapec.ir.core import Attrs, Type

__all__ = ["Loop", "Record", "Records", "loop_signature"]

Record = tuple[str, tuple[int, ...], Attrs, tuple[Type, ...], Any]
Records = list[Record | None]


class Loop:
    """The body of a ``scan`` record: ids of parameters, of records in order, and of results.

    Loops are equal if they compute the same (``signature``), whatever the ids.
    """

    __slots__ = ("body", "length", "n_carry", "n_xs", "params", "results", "signature")

    def __init__(
        self,
        length: int,
        n_carry: int,
        n_xs: int,
        params: list[int],
        body: list[int],
        results: list[int],
        signature: Any,
    ) -> None:
        self.length = length
        self.n_carry = n_carry
        self.n_xs = n_xs
        self.params = params
        self.body = body
        self.results = results
        self.signature = signature

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Loop) and self.signature == other.signature

    def __hash__(self) -> int:
        return hash(self.signature)


def loop_signature(
    records: Records,
    header: tuple[int, int, int],
    params: Sequence[int],
    body: Sequence[int],
    results: Sequence[int],
) -> Any:
    """What a loop computes, without ids: hashable."""
    local: dict[int, int] = {}
    for p in params:
        local[p] = len(local)
    rows: list[Any] = []

    def name(at: int) -> Any:
        known = local.get(at)
        if known is not None:
            return known
        record = records[at]
        if record is not None and record[0] == "item":  # an element of a loop's ys
            return ("item", name(record[1][0]), record[2]["index"])
        return ("outside", at)

    for at in body:
        record = records[at]
        assert record is not None
        op, operands, attrs, types, _ = record
        frozen = tuple(sorted(attrs.items())) if attrs else ()
        rows.append((op, tuple([name(k) for k in operands]), frozen, types))
        for m in range(max(len(types), 1)):
            local[at + m] = len(local)
    types_of = tuple([_type(records, p) for p in params])
    return hash_once((header, types_of, tuple(rows), tuple([name(r) for r in results])))


class hash_once(tuple[Any, ...]):
    """A tuple that remembers its hash; unequal hashes make comparison cheap."""

    def __hash__(self) -> int:
        try:
            return self._hash  # type: ignore[no-any-return, has-type]
        except AttributeError:
            self._hash = tuple.__hash__(self)
            return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (hash(self) == hash(other) and tuple.__eq__(self, other))


def _type(records: Records, at: int) -> Type:
    record = records[at]
    assert record is not None
    return record[3][0]
