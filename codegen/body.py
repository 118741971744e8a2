"""The body of a loop nest: which elements of which values are computed per iteration.

An *index map* says which element of a value an iteration touches: one triple
``(axis, coefficient, offset)`` per dimension of the value, meaning
``offset + coefficient * i[axis]`` (``axis`` −1: the constant ``offset``).  Broadcasts,
transposes, slices and unit reshapes only rewrite maps; that is why they cost nothing.

``build`` turns the values wanted from a nest into a list of ``Node``s in execution order,
each ``(value, map)`` pair once.  A ``place`` (padding, concatenation) is resolved
statically: the iteration space is cut into *segments* within which every piece is either
wholly present or absent.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tapec.ir.core import DType, Op, Type, Value
from tapec.ir.opdef import OPS

if TYPE_CHECKING:
    from tapec.codegen.program import Nest, Program

__all__ = ["IndexMap", "Node", "NotSegmentable", "build", "identity_map", "segments", "strides_of"]

IndexMap = tuple[tuple[int, int, int], ...]
Segment = tuple[tuple[int, int], ...]

_CONST = (-1, 0, 0)


class NotSegmentable(Exception):
    """A ``place`` that cannot be resolved by cutting the iteration space."""

    def __init__(self, value: Value) -> None:
        super().__init__("place must be stored")
        self.value = value


class Node:
    """One computation of a body.

    ``kind``: ``load`` (memory), ``reg`` (an element held in a register), ``const``,
    ``iota``, ``gather``, ``op`` (elementwise).  ``axes``: bit set of the nest axes that
    the node depends on.
    """

    __slots__ = ("args", "axes", "dtype", "kind", "map", "op", "text", "value")

    def __init__(
        self,
        kind: str,
        value: Value,
        map: IndexMap,
        args: tuple[Node, ...] = (),
        op: Op | None = None,
        axes: int | None = None,
    ) -> None:
        self.kind = kind
        self.value = value
        self.map = map
        self.args = args
        self.op = op
        self.dtype: DType = value.type.dtype
        if axes is None:
            axes = 0
            for a in args:
                axes |= a.axes
        self.axes: int = axes
        self.text: Any = None


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """C-order strides in elements."""
    out: list[int] = []
    step = 1
    for n in reversed(shape):
        out.append(step)
        step *= n
    return tuple(reversed(out))


def identity_map(shape: Sequence[int]) -> IndexMap:
    return tuple(_CONST if n == 1 else (k, 1, 0) for k, n in enumerate(shape))


def map_axes(m: IndexMap) -> int:
    bits = 0
    for axis, coef, _ in m:
        if axis >= 0 and coef:
            bits |= 1 << axis
    return bits


def affine(m: IndexMap, shape: Sequence[int], rank: int) -> tuple[int, list[int]]:
    """The element offset of a map in C-contiguous memory: constant and stride per nest axis."""
    offset, per_axis = 0, [0] * rank
    for (axis, coef, off), stride in zip(m, strides_of(shape)):
        offset += off * stride
        if axis >= 0:
            per_axis[axis] += coef * stride
    return offset, per_axis


def unit_reshape(src: Sequence[int], dst: Sequence[int]) -> list[int] | None:
    """For a reshape that only adds or removes axes of length 1: for each source axis the
    destination axis (−1 where its length is 1), else None."""
    a = [k for k, n in enumerate(src) if n != 1]
    b = [k for k, n in enumerate(dst) if n != 1]
    if [src[k] for k in a] != [dst[k] for k in b]:
        return None
    to = dict(zip(a, b))
    return [to.get(k, -1) for k in range(len(src))]


def operand_maps(op: Op, m: IndexMap) -> list[tuple[Value, IndexMap]]:
    """The operand elements that an index-like op (not ``place``, not ``gather``) reads for
    the element ``m`` of its result."""
    x = op.operands[0] if op.operands else None
    name = op.name
    if name == "broadcast":
        assert x is not None
        dims = op.attrs["dims"]
        return [(x, tuple(_norm(m[d], n) for d, n in zip(dims, x.type.shape)))]
    if name == "transpose":
        assert x is not None
        out: list[tuple[int, int, int]] = [_CONST] * len(m)
        for k, p in enumerate(op.attrs["perm"]):
            out[p] = m[k]
        return [(x, tuple(out))]
    if name == "slice":
        assert x is not None
        sliced = []
        for (axis, coef, off), start, step, n in zip(
            m, op.attrs["start"], op.attrs["step"], x.type.shape
        ):
            sliced.append(_norm((axis, coef * step, off * step + start), n))
        return [(x, tuple(sliced))]
    if name == "reshape":
        assert x is not None
        to = unit_reshape(x.type.shape, op.attrs["shape"])
        if to is None:
            raise AssertionError("reshape that merges axes is not index-like")
        return [(x, tuple(_CONST if d < 0 else m[d] for d in to))]
    return [(v, m) for v in op.operands]


def _norm(t: tuple[int, int, int], n: int) -> tuple[int, int, int]:
    """An axis of length 1 is always read at 0."""
    if n == 1 or t[1] == 0:
        return (-1, 0, 0 if n == 1 else t[2])
    return t


def piece_ranges(
    place: Op, k: int, m: IndexMap
) -> tuple[IndexMap, list[tuple[int, int, int]]] | None:
    """The map into piece ``k`` of a ``place`` read at ``m`` and the conditions
    ``(axis, low, high)`` under which it is present; None if it never is."""
    piece = place.operands[k].type.shape
    starts, steps = place.attrs["at"][k]
    out: list[tuple[int, int, int]] = []
    conditions: list[tuple[int, int, int]] = []
    for (axis, coef, off), start, step, n in zip(m, starts, steps, piece):
        if axis < 0:
            q, r = divmod(off - start, step)
            if r or not 0 <= q < n:
                return None
            out.append((-1, 0, q))
            continue
        if step != 1 or coef not in (1, -1):
            raise NotSegmentable(place.results[0])
        shift = off - start  # piece index = shift + coef * i
        if coef == 1:
            low, high = -shift, n - shift
        else:
            low, high = shift - n + 1, shift + 1
        conditions.append((axis, low, high))
        out.append((-1, 0, 0) if n == 1 else (axis, coef, shift))
    return tuple(out), conditions


def segments(program: Program, nest: Nest) -> list[Segment]:
    """Cut the nest's space so that every ``place`` in it is resolved in each part."""
    rank = len(nest.space)
    cuts: list[set[int]] = [{0, n} for n in nest.space]
    seen: set[tuple[Value, IndexMap]] = set()
    stack = []
    cut = False
    for v in nest.wanted():
        stack.append((v, identity_map(v.type.shape)))
        for axis, n in enumerate(v.type.shape):
            if n != nest.space[axis]:
                cuts[axis].add(n)
                cut = True
    while stack:
        key = stack.pop()
        if key in seen:
            continue
        seen.add(key)
        v, m = key
        if program.is_leaf(nest, v, m):
            continue
        op = v.op
        assert op is not None
        if op.name == "place":
            cut = True
            for k in range(len(op.operands)):
                found = piece_ranges(op, k, m)
                if found is None:
                    continue
                pm, conditions = found
                for axis, low, high in conditions:
                    for at in (low, high):
                        if 0 < at < nest.space[axis]:
                            cuts[axis].add(at)
                stack.append((op.operands[k], pm))
        elif op.name == "gather":
            stack.extend(_gather_indices(op, m))
        else:
            stack.extend(operand_maps(op, m))
    if not cut:
        return [tuple((0, n) for n in nest.space)]
    parts: list[Segment] = [()]
    for k in range(rank):
        edges = sorted(cuts[k])
        parts = [(*p, r) for p in parts for r in pairwise(edges)]
    return parts


@cache
def _logistic_ops(dtype: DType) -> tuple[Op, ...]:
    """The operations that a logistic function is made of, on values of no function."""
    t = Type(dtype)
    x, one = Value(t), Value(t)
    return (
        Op("neg", (x,), (t,)),
        Op("exp", (x,), (t,)),
        Op("add", (x, one), (t,)),
        Op("div", (one, x), (t,)),
    )


def _constant_node(v: Value, number: Any) -> Node:
    node = Node("const", v, ())
    node.text = number
    return node


def _gather_indices(op: Op, m: IndexMap) -> list[tuple[Value, IndexMap]]:
    n = op.operands[1].type.ndim if len(op.operands) > 1 else 0
    head = tuple(_norm(t, d) for t, d in zip(m[:n], op.operands[1].type.shape))
    return [(v, head) for v in op.operands[1:]]


def build(program: Program, nest: Nest, segment: Segment) -> tuple[list[Node], list[Node | None]]:
    """All nodes of the body in execution order, and the node of each wanted value (None where
    this segment lies outside of it)."""
    memo: dict[tuple[Value, IndexMap], Node] = {}
    order: list[Node] = []
    zeros: dict[Type, Node] = {}
    ones = [hi - lo == 1 for lo, hi in segment]
    cse: dict[Any, Node] = {}

    def canonical(m: IndexMap) -> IndexMap:
        """An axis of which this segment has one iteration is a constant."""
        if not any(t[0] >= 0 and ones[t[0]] for t in m):
            return m
        return tuple(
            (-1, 0, t[2] + t[1] * segment[t[0]][0]) if t[0] >= 0 and ones[t[0]] else t for t in m
        )

    def add(node: Node) -> Node:
        order.append(node)
        return node

    def needs(v: Value, m: IndexMap) -> list[tuple[Value, IndexMap]]:
        op = v.op
        assert op is not None
        if op.name == "place":
            out = []
            for k in range(len(op.operands)):
                found = piece_ranges(op, k, m)
                if found is None:
                    continue
                pm, conditions = found
                if all(lo <= segment[a][0] and segment[a][1] <= hi for a, lo, hi in conditions):
                    out.append((op.operands[k], canonical(pm)))
            return out
        if op.name == "gather":
            return [(x, canonical(im)) for x, im in _gather_indices(op, m)]
        return [(x, canonical(om)) for x, om in operand_maps(op, m)]

    def zero(v: Value) -> Node:
        node = zeros.get(v.type)
        if node is None:
            node = zeros[v.type] = add(Node("const", v, ()))
            node.text = 0
        return node

    def leaf_node(leaf: Node) -> Node:
        if leaf.kind == "const":  # by content; the text of a number tells signed zeros apart
            key: Any = ("const", leaf.dtype, repr(leaf.text))
        else:
            key = (leaf.kind, leaf.value, leaf.map)
        known = cse.get(key)
        if known is None:
            known = cse[key] = add(leaf)
        return known

    def apply(op: Op, v: Value, m: IndexMap, args: tuple[Node, ...]) -> Node:
        key = (op.name, *[id(a) for a in args], tuple(op.attrs.items()) if op.attrs else None)
        found = cse.get(key)
        if found is None:
            found = cse[key] = add(Node("op", v, m, args, op))
        return found

    def logistic(v: Value, m: IndexMap, x: Node) -> Node:
        """1/(1 + exp(-x)) in its parts, so that it shares an exponential that is there anyway."""
        minus_x = x.args[0] if x.kind == "op" and x.op is not None and x.op.name == "neg" else None
        neg, exp, plus, over = _logistic_ops(v.type.dtype)
        if minus_x is None:
            minus_x = apply(neg, v, m, (x,))
        one = leaf_node(_constant_node(plus.operands[1], 1.0))
        total = apply(plus, v, m, (apply(exp, v, m, (minus_x,)), one))
        return apply(over, v, m, (one, total))

    def make(v: Value, m: IndexMap, args: list[Node]) -> Node:
        op = v.op
        assert op is not None
        name = op.name
        if name == "place":
            total = None
            for a in args:
                if a.kind == "const" and a.text == 0:
                    continue
                total = a if total is None else add(Node("add", v, m, (total, a)))
            return zero(v) if total is None else total
        if name == "gather":
            axes = map_axes(m[op.operands[1].type.ndim :])
            for a in args:
                axes |= a.axes
            return add(Node("gather", v, m, tuple(args), op, axes))
        if OPS[name].elementwise:
            # a zero from an absent piece: x + 0 and select on it need no instruction
            if name == "add" and v.type.dtype.kind != "b":
                x, y = args
                if x.kind == "const" and x.text == 0:
                    return y
                if y.kind == "const" and y.text == 0:
                    return x
            if name == "logistic":
                return logistic(v, m, args[0])
            return apply(op, v, m, tuple(args))
        return args[0]  # index-like: the element of the operand

    wanted: list[tuple[Value, IndexMap] | None] = [
        (v, canonical(identity_map(v.type.shape)))
        if all(hi <= n for (_, hi), n in zip(segment, v.type.shape))
        else None
        for v in nest.wanted()
    ]
    for root in wanted:
        if root is None:
            continue
        stack: list[tuple[tuple[Value, IndexMap], list[tuple[Value, IndexMap]] | None]] = [
            (root, None)
        ]
        while stack:
            key, pending = stack.pop()
            if key in memo:
                continue
            v, m = key
            if pending is None:
                leaf = program.leaf(nest, v, m)
                if leaf is not None:
                    memo[key] = leaf_node(leaf)
                    continue
                pending = needs(v, m)
                todo = [k for k in pending if k not in memo]
                if todo:
                    stack.append((key, pending))
                    stack.extend((k, None) for k in reversed(todo))
                    continue
            memo[key] = make(v, m, [memo[k] for k in pending])
    roots = [None if k is None else memo[k] for k in wanted]
    return order, roots
