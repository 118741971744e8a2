"""Which products of a nest body are added at once: ``x*y + z`` with one rounding.

A product joins the addition or subtraction that uses it if that is its only use and it is computed
at the same loop level.  The other operand must not be a product itself: with ``x*y - z*w`` rounded
on one side only, what should cancel exactly would not (``x*x - y*y`` at ``x = y``, say, below a
square root).  Sums over products are accumulated in the same way.

Machines without fused multiply-add get two instructions, as written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

from tapec.codegen.body import Node
from tapec.ir.core import Function, Op, Value, walk

__all__ = ["contractions", "fused_products"]


_PRODUCTS = frozenset(("mul", "strong_mul", "null_mul"))


def _is(node: Node, name: str) -> bool:
    return node.kind == "op" and node.op is not None and node.op.name == name


def _product(node: Node) -> bool:
    while _is(node, "neg"):
        node = node.args[0]
    return node.kind == "op" and node.op is not None and node.op.name in _PRODUCTS


def fused_products(
    nodes: Sequence[Node],
    stored: Sequence[Node],
    summed: Sequence[Node],
    level: Mapping[Node, int],
) -> dict[Node, Node]:
    """Products that are not computed by themselves → the addition that computes each; a product
    in ``summed`` (what sums over vector lanes add up) that has no other use → itself."""
    uses: dict[Node, int] = {}
    for node in nodes:
        for a in node.args:
            uses[a] = uses.get(a, 0) + 1
    for node in (*stored, *summed):
        uses[node] = uses.get(node, 0) + 1
    out: dict[Node, Node] = {}
    for node in nodes:
        if node.dtype.kind != "f" or not (_is(node, "add") or _is(node, "sub")):
            continue
        x, y = node.args
        if _product(x) == _product(y):
            continue
        p = x if _product(x) else y
        if _is(p, "mul") and uses[p] == 1 and level[p] == level[node]:
            out[p] = node
    for node in summed:
        if _is(node, "mul") and node.dtype.kind == "f" and uses[node] == 1:
            out[node] = node
    return out


def contractions(fn: Function) -> frozenset[Op]:
    """For straight-line code: the products, and the sums that use them, of which LLVM may make
    one instruction (it does so where it optimises)."""
    ops = list(walk(fn.block))
    uses = Counter(chain.from_iterable([op.operands for op in ops]))
    uses.update(fn.results)
    for op in ops:
        for region in op.regions:
            uses.update(region.results)
    out: set[Op] = set()
    for op in ops:
        if op.name not in ("add", "sub") or op.results[0].type.dtype.kind != "f":
            continue
        x, y = map(_is_product, op.operands)
        if x == y:
            continue
        product = op.operands[0 if x else 1].op
        if product is not None and product.name == "mul" and uses[product.results[0]] == 1:
            out.update((product, op))
    return frozenset(out)


def _is_product(v: Value) -> bool:
    """Whether a value is a product, or minus one."""
    op = v.op
    while op is not None and op.name == "neg":
        op = op.operands[0].op
    return op is not None and op.name in _PRODUCTS
