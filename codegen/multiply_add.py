"""Which products of a nest body are added at once: ``x*y + z`` with one rounding.

A product joins the addition or subtraction that uses it if that is its only use and it is computed
at the same loop level.  The other operand must not be a product itself: with ``x*y - z*w`` rounded
on one side only, what should cancel exactly would not (``x*x - y*y`` at ``x = y``, say, below a
square root).  Sums over products are accumulated in the same way.

Machines without fused multiply-add get two instructions, as written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tapec.codegen.body import Node

__all__ = ["fused_products"]


def _is(node: Node, name: str) -> bool:
    return node.kind == "op" and node.op is not None and node.op.name == name


def _product(node: Node) -> bool:
    while _is(node, "neg"):
        node = node.args[0]
    return node.kind == "op" and node.op is not None and node.op.name.endswith("mul")


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
