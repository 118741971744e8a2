"""The recorded graph behind tensors: what an operation costs while recording, and how values and
gradients are computed from it.

A ``Graph`` is a straight list of values: inputs and results of operations.  Its structure is
not stored in it but in a shared trie of ``State`` nodes: recording follows one edge of the trie
(one dictionary look-up by operation and operand positions), so a loop that does the same work
again walks the same path and arrives at the same ``State``, which holds the compiled programs.
That look-up is all the type inference and all the cache key there is.

Values are lazy.  ``Graph.evaluate`` lowers what is needed to one IR function and compiles it;
``backward_plan`` does the same for a value and its gradients.  A graph that has been observed or
differentiated gets no further operations: new ones go to a new graph, whose inputs refer to the
old one.  References only point from newer graphs to older ones and to arrays, and leaves are
referred to weakly, so nothing here needs the cycle collector.

Arrays that belong to a graph or a tensor are never written to.

>>> from tapec.tensors.graph import current
>>> g = current()
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import tapec.tape  # noqa: F401  before the modules that it imports in a circle
from tapec.errors import TapecError
from tapec.ir.core import Type
from tapec.source import Site, describe_site
from tapec.tensors.dtypes import defaults

if TYPE_CHECKING:
    from tapec.tensors.tensor import Tensor

__all__ = [
    "Const", "Graph", "Kind", "State", "TensorError", "TensorIndexError", "TensorTypeError",
    "TensorValueError", "close", "current", "kind_of_input", "modes", "next_id", "place_of",
    "stats", "switch", "writes",
]  # fmt: skip

Array = np.ndarray[Any, Any]

#: A graph longer than this is closed, so that a loop without end does not hold its past.
MAX_VALUES = 1 << 16
#: Values wait for values of older graphs, that wait in turn, at most so deep.
MAX_DEPTH = 32
#: States kept in the trie before it is started afresh.
MAX_STATES = 1 << 20
#: Different constants at one place before numbers there become inputs.
MAX_CONSTANTS = 4


class TensorError(TapecError, RuntimeError):
    """A use of tensors that the rules of automatic differentiation forbid."""


class TensorValueError(TensorError, ValueError):
    """Shapes that do not fit, or a value that cannot be meant."""


class TensorTypeError(TensorError, TypeError):
    """A value of a wrong kind or dtype."""


class TensorIndexError(TensorError, IndexError):
    """An index or dimension out of range."""


class Kind:
    """What is known of an input: its type, whether it requires grad, and whether it stands for
    a Python number.  Interned, and the key of the trie edge that enters it."""

    __slots__ = ("requires", "type", "weak")
    index = -1

    def __init__(self, type: Type, requires: bool, weak: bool) -> None:
        self.type = type
        self.requires = requires
        self.weak = weak


_kinds: dict[Any, Kind] = {}


def kind_of_input(type: Type, requires: bool = False, weak: bool = False) -> Kind:
    key = (type, requires, weak)
    found = _kinds.get(key)
    if found is None:
        found = _kinds.setdefault(key, Kind(type, requires, weak))
    return found


class Const:
    """A Python number as an operand or attribute: equal only to the same number of the same
    class (0.0 and -0.0 differ, and so do 1 and 1.0)."""

    __slots__ = ("_key", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self._key = (value.__class__, repr(value))

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return other.__class__ is Const and self._key == other._key

    def __repr__(self) -> str:
        return repr(self.value)


class State:
    """One value at the end of one history: see the module's description."""

    __slots__ = (
        "attrs", "constants", "first", "first_key", "index", "next", "op", "operands", "parent",
        "plans", "requires", "type",
    )  # fmt: skip
    type: Type

    def __init__(
        self, parent: State | None, op: str, operands: tuple[Any, ...], attrs: Any, requires: bool
    ) -> None:
        self.parent = parent
        self.op = op
        self.operands = operands
        self.attrs = attrs
        self.requires = requires
        self.index: int = -1 if parent is None else parent.index + 1
        self.first_key: Any = None  # most states have one successor
        self.first: State | None = None
        self.next: dict[Any, State] | None = None  # the others
        self.plans: dict[Any, Any] | None = None
        self.constants: dict[Any, int] | None = None

    def find(self, key: Any) -> State | None:
        """The successor along the edge ``key``."""
        if self.first_key == key:
            return self.first
        return None if self.next is None else self.next.get(key)

    def plan(self, key: Any, make: Callable[[], Any]) -> Any:
        """The program ``key`` of this state, made at the first request."""
        plans = self.plans
        if plans is None:
            plans = self.plans = {}
        found = plans.get(key)
        if found is None:
            found = plans[key] = make()
        return found


class _Trie:
    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start afresh; graphs that are being recorded keep their states."""
        self.root = State(None, "", (), None, False)
        self.size = 0

    def grow(self, state: State, key: Any, new: State) -> State:
        self.size += 1
        if self.size > MAX_STATES:
            self.reset()
        if state.first_key is None:
            state.first = new
            state.first_key = key
        elif state.next is None:
            state.next = {key: new}
        else:
            state.next[key] = new
        return new


trie = _Trie()
_ids = itertools.count(1)


def next_id() -> int:
    """A number larger than that of everything recorded before."""
    return next(_ids)


class _Modes(threading.local):
    """What holds for the current thread: the graph that records, and the modes."""

    def __init__(self) -> None:
        self.graph: Graph | None = None
        self.grad = True
        self.inference = False
        self.anomaly = False
        self.check_nan = True
        self.saved_hooks: list[tuple[Any, Any]] = []


modes = _Modes()


class _Writes:
    """How often anything was written to in place: while 0, nothing has to be checked."""

    count = 0


writes = _Writes()


class _Stats:
    def __init__(self) -> None:
        self.compiled = 0
        self.runs = 0


_stats = _Stats()


def stats() -> dict[str, int]:
    """Counters of the tensor side of this process.

    ``compiled`` native programs, ``runs`` of them, and recorded ``states``.  A training loop in
    its steady state compiles nothing:

    >>> import tapec
    >>> before = tapec.stats()["compiled"]
    """
    return {"compiled": _stats.compiled, "runs": _stats.runs, "states": trie.size}


def current() -> Graph:
    """The graph that records in this thread."""
    g = modes.graph
    if g is None or g.state.index >= MAX_VALUES:
        g = modes.graph = Graph()
        g.special = not modes.grad or modes.inference or bool(modes.saved_hooks)
    return g


def switch(grad: bool, inference: bool) -> None:
    """Set the modes of this thread."""
    modes.grad, modes.inference = grad, inference
    if modes.graph is not None:
        modes.graph.special = not grad or inference or bool(modes.saved_hooks)


def close() -> None:
    """What is recorded from now on goes to a new graph."""
    modes.graph = None


class Graph:
    """See the module's description.

    ``inputs[k]`` is an array or ``(graph, index)`` of an older graph; ``edges[k]`` tells where
    the gradient of input k goes: None, a weak reference to a leaf, or ``(node, index)``.
    """

    depth = 0  # of graphs that have to be evaluated first
    special = False  # another mode than plain recording is active
    linked = False  # some input's gradient goes to a node rather than a leaf
    freed: list[int] | None = None  # roots that were differentiated without retain_graph
    mutated: dict[int, Any] | None = None  # value index → (version, storage) after a write
    hooks: dict[int, Any] | None = None  # value index → what happens at its gradient
    packed: list[Any] | None = None
    untracked: set[int] | None = None  # inputs made in inference mode
    nodes: Any = None

    def __init__(self) -> None:
        self.id = next(_ids)
        self.state = trie.root
        self.states: list[State] = []  # per value
        self.sites: list[Any] = []  # per value: the user's code object, a Site, or None
        self.places: list[int] = []  # the instruction in that code; of an input, its number
        self.inputs: list[Any] = []
        self.edges: list[Any] = []
        self.refs: list[tuple[Any, int]] = []  # per input: the tensor (weakly) and its version
        self.positions: list[int] = []  # per input: its value index
        self.values: dict[int, Array] = {}
        self.wanted: list[Any] = []  # tensors written in place, evaluated with the next value

    # -- recording --------------------------------------------------------------------

    def enter(self, x: Tensor) -> int:
        """The position of ``x`` in this graph: as an input, unless it is here already."""
        meta = x._meta
        if meta is not None and meta.stale is not None:
            x._refresh()
            if x._graph is self:
                return x._index
        kind = x._kind
        source: Any = x._graph
        # what is not recorded for differentiation must not hold the history of its operands
        requires = kind.requires and modes.grad
        data: Any = x._data
        edge: Any
        if data is None:
            data = source.values.get(x._index)
        if source is None:
            if data is None:
                raise TensorError("a tensor without a value")
            edge = weakref.ref(x) if requires else None
        elif meta is not None and meta.leaf:
            data = x.materialized()
            edge = weakref.ref(x) if requires else None
        else:
            if data is None:
                data = (source, x._index)
                if not requires and source.depth >= MAX_DEPTH:
                    data = source.value(x._index)
                else:
                    self.depth = max(self.depth, source.depth + 1)
            if requires:
                edge = (source, x._index)
                self.linked = True
            else:
                edge = None
        if meta is not None and meta.node is not None and requires:
            edge = meta.node
            self.linked = True
        was_required = kind.requires
        if kind.__class__ is State or requires is not was_required:
            kind = kind_of_input(kind.type, requires)
        at = self._input(kind, data, edge)
        self.refs.append((weakref.ref(x), 0 if meta is None else x._version))
        if requires is was_required:
            x._gid = self.id
            x._slot = at
        return at

    def _input(self, kind: Any, data: Any, edge: Any) -> int:
        state = self.state
        new = state.find(kind)
        if new is None:
            new = State(state, "input", (), kind, kind.requires)
            new.type = kind.type
            trie.grow(state, kind, new)
        self.state = new
        self.states.append(new)
        at = new.index
        self.inputs.append(data)
        self.edges.append(edge)
        self.positions.append(at)
        self.sites.append(None)
        self.places.append(len(self.inputs) - 1)
        return at

    def number(self, value: Any) -> int:
        """A Python number as an input."""
        from tapec.kinds import PYTHON_SCALARS

        dtype = PYTHON_SCALARS[value.__class__]
        at = self._input(kind_of_input(Type(dtype), False, True), np.asarray(value, dtype.np), None)
        self.refs.append((None, 0))
        return at

    def push(
        self, key: Any, op: str, operands: tuple[Any, ...], attrs: Any, site: Any, place: int = -1
    ) -> State:
        """Follow the edge ``key``; at the first time, infer what it leads to."""
        new = self.state.find(key)
        if new is None:
            new = self.grow(key, op, operands, attrs)
        self.state = new
        self.states.append(new)
        self.sites.append(site)
        self.places.append(place)
        return new

    def grow(self, key: Any, op: str, operands: tuple[Any, ...], attrs: Any) -> State:
        """The state after the current one; errors of the operation are raised here."""
        states = self.states
        types: list[Any] = []
        requires = False
        for k in operands:
            if k.__class__ is int:
                s = states[k]
                types.append(s.attrs if s.op == "input" and s.attrs.weak else s.type)
                if s.requires:
                    requires = True
            else:
                types.append(k)
        cached = (op, attrs, *types)
        found = defaults.inferred.get(cached)
        if found is None:
            from tapec.tensors.rules import infer

            found = defaults.inferred[cached] = infer(op, tuple(types), attrs)
        new = State(self.state, op, operands, attrs, requires and found[1] and modes.grad)
        new.type = found[0]
        return trie.grow(self.state, key, new)

    def lifted(self, op: str, operands: tuple[Any, ...]) -> bool:
        """Whether a number that is new at this place should become an input."""
        state = self.state
        known = state.constants
        if known is None:
            known = state.constants = {}
        at = (op, *[None if k.__class__ is Const else k for k in operands])
        n = known[at] = known.get(at, 0) + 1
        return n > MAX_CONSTANTS

    def site(self, at: int) -> str:
        """``file:line`` where value ``at`` was made."""
        return place_of(self.sites[at], self.places[at])

    # -- values -----------------------------------------------------------------------

    def value(self, at: int) -> Array:
        """Value ``at`` as an array."""
        found = self.values.get(at)
        if found is None:
            self.evaluate((at,))
            found = self.values[at]
        return found

    def evaluate(self, want: Sequence[int]) -> None:
        """Compute the values ``want``, and what was written in place, in one program."""
        values = self.values
        outs = {at for at in want if at not in values}
        if self.wanted:
            for ref in self.wanted:
                t = ref()
                if t is not None and t._graph is self and t._index not in values:
                    outs.add(t._index)
            self.wanted = []
        if not outs:
            return
        from tapec.tensors.plans import forward_plan

        for k, at in enumerate(self.positions):
            if at in outs:
                values[at] = self.input(k)
                outs.discard(at)
        if not outs:
            return
        chosen, known = tuple(sorted(outs)), tuple(sorted(values)) if values else ()
        state = self.state
        plan = state.plan(
            ("forward", chosen, known), lambda: forward_plan(self.states, chosen, known)
        )
        results = plan.run(self, ())
        for at, result in zip(chosen, results):
            values[at] = result

    def input(self, k: int) -> Array:
        """Input ``k`` as an array."""
        held = self.inputs[k]
        if held.__class__ is tuple:
            self.resolve((k,))
            held = self.inputs[k]
        return held  # type: ignore[no-any-return]

    def resolve(self, which: Sequence[int]) -> None:
        """Replace references to older graphs by their values."""
        by_graph: dict[int, tuple[Graph, list[int]]] = {}
        for k in which:
            held = self.inputs[k]
            if held.__class__ is tuple:
                by_graph.setdefault(id(held[0]), (held[0], []))[1].append(k)
        for graph, ks in by_graph.values():
            graph.evaluate([self.inputs[k][1] for k in ks])
            for k in ks:
                self.inputs[k] = graph.values[self.inputs[k][1]]


def place_of(held: Any, lasti: int) -> str:
    """``file:line`` of what ``sites`` and ``places`` hold."""
    if held is None:
        return "<unknown place>"
    if held.__class__ is Site:
        return describe_site(held)
    line = held.co_firstlineno
    for start, end, number in held.co_lines():
        if start <= lasti < end:
            line = number or line
    return f"{held.co_filename}:{line}"


def count(compiled: int = 0, runs: int = 0) -> None:
    _stats.compiled += compiled
    _stats.runs += runs
