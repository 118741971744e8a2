"""What planning makes: loop nests, other steps, and the program that they are part of."""

from __future__ import annotations

from collections.abc import Sequence

from tapec.codegen.body import IndexMap, Node, map_axes, strides_of
from tapec.codegen.recompute import SOURCES
from tapec.ir.core import Dense, Function, Op, Value

__all__ = ["Nest", "Opaque", "Program", "Step", "Store"]


class Store:
    """Write ``value`` at each iteration to ``target``; ``accumulate`` adds to what is there.

    ``offset`` and ``strides`` (elements per nest axis) address the target.
    """

    __slots__ = ("accumulate", "offset", "strides", "target", "value")

    def __init__(
        self,
        value: Value,
        target: Value,
        offset: int,
        strides: Sequence[int],
        accumulate: bool = False,
    ) -> None:
        self.value = value
        self.target = target
        self.offset = offset
        self.strides = tuple(strides)
        self.accumulate = accumulate


class Nest:
    """One loop nest: iterate over ``space``, store and reduce."""

    __slots__ = ("parts", "produces", "reduces", "space", "stores")

    def __init__(self, space: tuple[int, ...]) -> None:
        self.space = space
        self.stores: list[Store] = []
        self.reduces: list[Op] = []
        #: stored values that later roots of this nest may read from registers
        self.produces: set[Value] = set()
        #: (segment, nodes, roots), filled by ``plan``
        self.parts: list[tuple[tuple[tuple[int, int], ...], list[Node], list[Node | None]]] = []

    def wanted(self) -> list[Value]:
        """The values of the stores, then of the reductions.  A value may have a smaller shape
        than the nest: it is then wanted in the first iterations of each axis only."""
        return [s.value for s in self.stores] + [r.operands[0] for r in self.reduces]

    def accepts(self, shape: tuple[int, ...]) -> bool:
        """Whether values of this shape can be computed here: the same iteration space, or a
        large one that differs by an element or two (``x[1:]`` beside ``x``)."""
        if shape == self.space:
            return True
        return len(shape) == len(self.space) and all(
            a == b or (abs(a - b) <= 2 and min(a, b) >= 64) for a, b in zip(shape, self.space)
        )

    def grow(self, shape: tuple[int, ...]) -> None:
        self.space = tuple(map(max, self.space, shape))


class Opaque:
    """A step that is one operation on stored arrays; ``nests`` are loops that belong to it.
    ``adds``: a ``place`` whose pieces may overlap."""

    __slots__ = ("adds", "nests", "op")

    def __init__(self, op: Op) -> None:
        self.op = op
        self.nests: list[Nest] = []
        self.adds = False


Step = Nest | Opaque


class Program:
    """See the module docstring."""

    def __init__(self, fn: Function) -> None:
        self.fn = fn
        self.params = {p: k for k, p in enumerate(fn.params)}
        #: value → 'reg' | 'mem' | 'inline' (parameters are 'mem')
        self.kind: dict[Value, str] = dict.fromkeys(fn.params, "mem")
        #: reshape or contiguous slice → the value whose memory it shares
        self.alias: dict[Value, Value] = {}
        #: ... and for a slice the bytes before it
        self.offset: dict[Value, int] = {}
        #: register values that are stored to memory as well
        self.spilled: set[Value] = set()
        #: ``place`` results that are written piece by piece
        self.stored_places: set[Value] = set()
        #: operations with regions that are emitted in registers
        self.scalar: set[Op] = set()
        self.steps: list[Step] = []
        self.slots: list[list[Op]] = [[]]
        #: value → slot from which it is there
        self.avail: dict[Value, int] = dict.fromkeys(fn.params, 0)

    def root(self, v: Value) -> Value:
        while v in self.alias:
            v = self.alias[v]
        return v

    def bytes_before(self, v: Value) -> int:
        """Where the first element of ``v`` lies in the memory of its root."""
        total = 0
        while v in self.alias:
            total += self.offset.get(v, 0)
            v = self.alias[v]
        return total

    # -- what a nest body sees --------------------------------------------------------

    def is_leaf(self, nest: Nest, v: Value, m: IndexMap) -> bool:
        if _is_source(v):
            return True
        return self.kind[v] != "inline" and v not in nest.produces

    def leaf(self, nest: Nest, v: Value, m: IndexMap) -> Node | None:
        """The leaf node for an element of ``v``, or None if the body computes it."""
        if not self.is_leaf(nest, v, m):
            return None
        op = v.op
        if op is not None and _is_source(v):
            if op.name == "constant":
                node = Node("const", v, ())
                node.text = op.attrs["value"]
                return node
            t = m[op.attrs["axis"]]
            return Node("iota", v, (t,), (), op, map_axes((t,)))
        if self.kind[v] == "reg" and not map_axes(m):
            offset = sum(t[2] * s for t, s in zip(m, strides_of(v.type.shape)))
            node = Node("reg", v, m)
            node.text = offset
            return node
        if self.kind[v] == "reg":
            self.spilled.add(v)  # an element chosen by a loop index must be in memory
        return Node("load", v, m, (), None, map_axes(m))


def _is_source(v: Value) -> bool:
    """Whether an element of ``v`` follows from its index alone."""
    op = v.op
    if op is None or op.name not in SOURCES:
        return False
    return op.name == "iota" or not isinstance(op.attrs["value"], Dense)
