"""``grad_fn`` nodes, hooks on them and on tensors, and their handles."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

from tapec.tensors.graph import Graph
from tapec.tensors.rules import RULES

__all__ = ["AccumulateGrad", "Handle", "Hooks", "Node", "hooks_at", "node_of"]

_numbers = itertools.count()


class Handle:
    """A registered hook; ``remove()`` takes it away."""

    def __init__(self, table: dict[int, Any], hook: Callable[..., Any]) -> None:
        self._table = table
        self.id = next(_numbers)
        table[self.id] = hook

    def remove(self) -> None:
        """No longer call the hook."""
        self._table.pop(self.id, None)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


class Hooks:
    """What happens when the gradient of one value is known."""

    __slots__ = ("post", "pre", "retain", "tensor")

    def __init__(self) -> None:
        self.tensor: dict[int, Any] = {}
        self.pre: dict[int, Any] = {}
        self.post: dict[int, Any] = {}
        self.retain: Any = None

    @property
    def node(self) -> bool:
        return bool(self.pre or self.post)


def hooks_of(g: Graph, index: int) -> Hooks:
    if g.hooks is None:
        g.hooks = {}
    found = g.hooks.get(index)
    if found is None:
        found = g.hooks[index] = Hooks()
    return found


def hooks_at(t: Any) -> Hooks:
    """The hooks of the value that ``t`` is now."""
    m = t._meta
    if m is not None and m.node is not None and t._graph is None:
        from tapec.tensors.record import apply

        # the output of a custom function: give it a value of its own
        alias = apply("alias", (t,))
        t._graph, t._index, t._kind = alias._graph, alias._index, alias._kind
        m.node = None
    return hooks_of(t._graph, t._index)


class AccumulateGrad:
    """Where gradients end: it adds to ``variable.grad``."""

    __slots__ = ("__weakref__", "_ref")

    def __init__(self, ref: Any) -> None:
        self._ref = ref

    def name(self) -> str:
        return "AccumulateGrad"

    @property
    def variable(self) -> Any:
        """The leaf itself."""
        return self._ref()

    @property
    def next_functions(self) -> tuple[Any, ...]:
        return ()

    def __repr__(self) -> str:
        return "<AccumulateGrad>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AccumulateGrad) and other._ref() is self._ref()

    def __hash__(self) -> int:
        return hash(id(self._ref()))


class Node:
    """The node of one recorded operation; ``grad_fn`` of its result."""

    __slots__ = ("__weakref__", "_graph", "_index", "metadata")

    def __init__(self, graph: Graph, index: int) -> None:
        self._graph = graph
        self._index = index
        self.metadata: dict[str, Any] = {}

    def name(self) -> str:
        """For example ``MulBackward0``.

        >>> import tapec
        >>> (tapec.tensor(1.0, requires_grad=True) * 2).grad_fn.name()
        'MulBackward0'
        """
        state = self._graph.states[self._index]
        if state.op == "matmul":
            a, b = [self._graph.states[k].type.ndim for k in state.operands]
            return {(1, 1): "DotBackward0", (2, 1): "MvBackward0", (2, 2): "MmBackward0"}.get(
                (a, b), "BmmBackward0"
            )
        return RULES[state.op].name

    @property
    def next_functions(self) -> tuple[Any, ...]:
        """``(node or None, output number)`` per operand that is a tensor."""
        g = self._graph
        out = []
        for k in g.states[self._index].operands:
            if k.__class__ is int:
                out.append(_edge(g, k))
        return tuple(out)

    def register_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call ``hook(grad_inputs, grad_outputs)`` after the node has run."""
        return Handle(hooks_of(self._graph, self._index).post, hook)

    def register_prehook(self, hook: Callable[..., Any]) -> Handle:
        """Call ``hook(grad_outputs)`` before the node runs."""
        return Handle(hooks_of(self._graph, self._index).pre, hook)

    def __repr__(self) -> str:
        return f"<{self.name()}>"


def _edge(g: Graph, k: int) -> tuple[Any, int]:
    state = g.states[k]
    if not state.requires:
        return (None, 0)
    if state.op != "input":
        return (_node(g, k), 0)
    edge = g.edges[g.places[k]]
    if edge.__class__ is tuple:
        node, index = edge
        if isinstance(node, Graph):
            return _edge(node, index)
        return (node, index)
    return (AccumulateGrad(edge), 0)


def _node(g: Graph, index: int) -> Node:
    nodes = g.nodes
    if nodes is None:
        nodes = g.nodes = weakref.WeakValueDictionary()
    found = nodes.get(index)
    if found is None:
        found = nodes[index] = Node(g, index)
    return found  # type: ignore[no-any-return]


def node_of(t: Any) -> Any:
    """The node that the gradient of ``t`` arrives at."""
    m = t._meta
    if m is not None and m.node is not None:
        return m.node[0]
    return _edge(t._graph, t._index)[0]
