"""Structural equality of functions, and a readable difference.

Two functions are equal if they have the same operations in the same order on the same values,
up to the names and the source locations.  Attributes are compared by bits: NaN equals NaN,
0.0 does not equal -0.0, and 1 does not equal 1.0 or True.

>>> from tapec.ir.parser import parse
>>> text = "func @f(%x: f64[2]) -> (f64[]) {\\n%s = reduce_sum %x {axes=(0)} : f64[]\\n return %s }"
>>> print(diff(parse(text), parse(text.replace("sum", "max"))))
   func @f(%0: f64[2]) -> (f64[]) {         func @f(%0: f64[2]) -> (f64[]) {
<>   %1 = reduce_sum %0 {axes=(0)} : f64[]    %1 = reduce_max %0 {axes=(0)} : f64[]
     return %1                                return %1
   }                                        }
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any

from tapec.ir.core import Attrs, Block, Function, Op, Type, Value
from tapec.ir.printer import format_lines

__all__ = ["attr_key", "diff", "equal", "same_operations"]

_SAME = frozenset((int, bool, str, type(None)))


def attr_key(value: Any) -> Any:
    """A hashable key that is equal for attribute values with the same bits."""
    kind = type(value)
    if kind in _SAME:
        return kind, value
    if kind is tuple:
        return kind, tuple([attr_key(v) for v in value])
    if kind is float:
        return kind, struct.pack("<d", value)
    if kind is complex:
        return kind, struct.pack("<dd", value.real, value.imag)
    return kind, value


def equal(f: Function, g: Function) -> bool:
    """Whether two functions are the same up to names (their own too) and locations."""
    return _same_blocks(f.block, g.block, {})


def same_operations(f: Block, g: Block) -> bool:
    """Whether two isolated regions compute the same, operation by operation."""
    return _same_blocks(f, g, {})


def _same_blocks(f: Block, g: Block, pairs: dict[Value, Value]) -> bool:
    """``pairs`` maps the values of f that are defined so far to those of g."""
    if (
        len(f.params) != len(g.params)
        or len(f.ops) != len(g.ops)
        or len(f.results) != len(g.results)
        or not _pair(f.params, g.params, pairs)
    ):
        return False
    for p, q in zip(f.ops, g.ops):
        if (
            p.name != q.name
            or len(p.results) != len(q.results)
            or not _same_values(p.operands, q.operands, pairs)
            or not _same_attrs(p.attrs, q.attrs)
            or len(p.regions) != len(q.regions)
        ):
            return False
        for inner_f, inner_g in zip(p.regions, q.regions):
            if not _same_blocks(inner_f, inner_g, dict(pairs)):
                return False
        if not _pair(p.results, q.results, pairs):
            return False
    return _same_values(f.results, g.results, pairs)


def _pair(xs: Sequence[Value], ys: Sequence[Value], pairs: dict[Value, Value]) -> bool:
    for x, y in zip(xs, ys):
        if x.type is not y.type:
            return False
        pairs[x] = y
    return True


def _same_values(xs: Sequence[Value], ys: Sequence[Value], pairs: dict[Value, Value]) -> bool:
    # A value that is not defined before (a malformed function) equals only itself.
    return len(xs) == len(ys) and all(pairs.get(x, x) is y for x, y in zip(xs, ys))


def _same_attrs(p: Attrs, q: Attrs) -> bool:
    if p is q or (not p and not q):
        return True
    return p.keys() == q.keys() and all(attr_key(p[k]) == attr_key(q[k]) for k in p)


# -- difference ---------------------------------------------------------------------------


def diff(f: Function, g: Function) -> str:
    """The two texts side by side, ``<>`` before lines that differ; "" if the functions are equal.

    Names are replaced by numbers, so that only what ``equal`` looks at is compared.
    """
    if equal(f, g):
        return ""
    left, right = _plain_lines(f, "f"), _plain_lines(g, "f")
    rows: list[tuple[str, str, str]] = []
    for tag, i0, i1, j0, j1 in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        mark = "  " if tag == "equal" else "<>"
        rows += [(mark, a, b) for a, b in zip_longest(left[i0:i1], right[j0:j1], fillvalue="")]
    width = max([len(a) for _, a, _ in rows], default=0)
    return "\n".join([f"{mark} {a:<{width}} {b}".rstrip() for mark, a, b in rows])


def _plain_lines(fn: Function, name: str) -> list[str]:
    return [line.text for line in format_lines(_renamed(fn, name))]


def _renamed(fn: Function, name: str) -> Function:
    """A copy without hints and locations."""
    block = _renamed_block(fn.block, {})
    return Function(name, block.params, block.ops, block.results)


def _renamed_block(block: Block, env: dict[Value, Value]) -> Block:
    params = [_fresh(p.type, env, p) for p in block.params]
    ops = []
    for op in block.ops:
        regions = tuple([_renamed_block(r, dict(env)) for r in op.regions])
        operands = tuple([env.get(v, v) for v in op.operands])
        new = Op(op.name, operands, tuple([r.type for r in op.results]), op.attrs, regions)
        env.update(zip(op.results, new.results))
        ops.append(new)
    return Block(params, ops, [env.get(v, v) for v in block.results])


def _fresh(type: Type, env: dict[Value, Value], old: Value) -> Value:
    env[old] = new = Value(type)
    return new
