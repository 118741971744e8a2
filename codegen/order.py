"""How a nest walks its iteration space: which axis is vectorised, which axes go as one."""

from __future__ import annotations

from collections.abc import Sequence

from tapec.codegen.body import Node, affine, strides_of
from tapec.codegen.program import Nest
from tapec.ir.core import Op

__all__ = ["accesses", "collapse", "result_strides", "sine_pairs", "vector_axis", "width"]


def result_strides(op: Op) -> list[int]:
    """Strides of a reduction's result per axis of its operand; 0 on reduced axes."""
    axes, space = op.attrs["axes"], op.operands[0].type.shape
    kept = [j for j in range(len(space)) if j not in axes]
    strides = [0] * len(space)
    for j, s in zip(kept, strides_of([space[j] for j in kept])):
        strides[j] = s
    return strides


def accesses(nest: Nest, nodes: Sequence[Node]) -> list[Sequence[int]]:
    rank = len(nest.space)
    out: list[Sequence[int]] = [s.strides for s in nest.stores]
    out += [result_strides(r) for r in nest.reduces]
    for node in nodes:
        if node.kind == "load":
            out.append(affine(node.map, node.value.type.shape, rank)[1])
    return out


def vector_axis(nest: Nest, accesses: list[Sequence[int]]) -> int:
    """The axis with the most unit-stride accesses, among those long enough to fill lanes."""
    space = nest.space
    long = [j for j, n in enumerate(space) if n >= 8] or [
        max(range(len(space)), key=lambda j: (space[j], j))
    ]

    def score(j: int) -> tuple[int, int]:
        unit = sum(1 for s in accesses if s[j] == 1)
        odd = sum(1 for s in accesses if s[j] not in (0, 1))
        return unit - odd, j

    return max(long, key=score)


def collapse(nest: Nest, accesses: list[Sequence[int]], nodes: Sequence[Node]) -> list[list[int]]:
    """Groups of adjacent axes that every access walks as one."""
    space = nest.space
    pinned = 0
    for node in nodes:
        if node.kind in ("iota", "gather"):
            pinned |= node.axes
    groups: list[list[int]] = []
    for j, n in enumerate(space):
        if n == 1:
            continue
        if groups and len(nest.parts) == 1 and not pinned >> j & 1:
            i = groups[-1][-1]
            reduced = [(i in r.attrs["axes"], j in r.attrs["axes"]) for r in nest.reduces]
            if (
                not pinned >> i & 1
                and all(s[i] == s[j] * n for s in accesses)
                and all(a == b for a, b in reduced)
            ):
                groups[-1].append(j)
                continue
        groups.append([j])
    return groups


def sine_pairs(nodes: Sequence[Node]) -> dict[Node, Node]:
    """Sine and cosine of one operand, each mapped to the other."""
    by_arg: dict[Node, dict[str, Node]] = {}
    for node in nodes:
        if node.kind == "op" and node.op is not None and node.op.name in ("sin", "cos"):
            by_arg.setdefault(node.args[0], {})[node.op.name] = node
    out: dict[Node, Node] = {}
    for found in by_arg.values():
        if len(found) == 2:
            out[found["sin"]], out[found["cos"]] = found["cos"], found["sin"]
    return out


#: Functions evaluated by our own polynomials, whose latency a wider vector hides.
_POLYNOMIALS = frozenset({"exp", "expm1", "log", "log1p", "sin", "cos", "tanh", "logistic"})


#: Operations whose latency a wider vector hides as well.
CHAIN = 40


def width(nest: Nest) -> int:
    """Lanes of the nest's vectors.

    Eight doubles are two AVX2 registers, which is as wide as simple bodies profit from.  A long
    one-dimensional body with polynomials takes sixteen: measured on ``sum(sin(exp(x)))`` with its
    gradient, 15% less time; and so does one with a long chain of arithmetic, 20% less.
    """
    long = len(nest.space) == 1 and nest.space[0] >= 1024 and len(nest.parts) == 1
    polynomial = False
    operations = 0
    for _, nodes, _ in nest.parts:
        for node in nodes:
            if node.kind == "gather":
                long = False
            if node.op is not None:
                operations += 1
                polynomial = polynomial or node.op.name in _POLYNOMIALS
    if long and (polynomial or operations >= CHAIN):
        return 16
    for _, nodes, _ in nest.parts:
        for node in nodes:
            if node.dtype.itemsize > 4 and node.kind != "iota":
                return 8
    return 16
