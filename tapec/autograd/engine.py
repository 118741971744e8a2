"""Backward: gradients through graphs, custom functions and hooks, newest first.

One graph without hooks is one program: value and all gradients.  Where a hook, ``retain_grad``
or ``inputs`` asks for the gradient of a value inside a graph, that value is a *cut*: the program
of what came after it stops there, and another continues.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapec.source import describe_site, user_site
from tapec.tensors.graph import (
    Graph,
    TensorError,
    TensorTypeError,
    TensorValueError,
    close,
    current,
    modes,
    switch,
)
from tapec.tensors.parts import check_seed
from tapec.tensors.plans import backward_plan, derivative_records
from tapec.tensors.record import new as new_tensor
from tapec.tensors.record import position
from tapec.tensors.tensor import Tensor, meta_of

__all__ = ["accumulate", "backward", "gradients"]

Array = np.ndarray[Any, Any]


def _here() -> str:
    site = user_site(3)
    return f"{describe_site(site)}: " if site.loc is not None else ""


def _seed(t: Tensor, grad: Any, k: int, create_graph: bool, batched: bool = False) -> Any:
    """The cotangent of one output as an array, or as a tensor if a graph is wanted."""
    type = t._type
    if grad is None:
        if type.size != 1:
            raise TensorError(
                f"{_here()}grad can be implicitly created only for scalar outputs; "
                f"{t._described()} has {type.size} elements; instead: give gradient=, or reduce "
                "it with .sum() or .mean()"
            )
        check_seed(type, None, k, _here)
        array = np.ones(type.shape, type.dtype.np)
        return Tensor._of(array) if create_graph else array
    if not isinstance(grad, Tensor):
        found = grad.__class__.__name__
        raise TensorTypeError(f"{_here()}gradients must be tensors or None, not {found}")
    if grad._type.shape != type.shape:
        raise TensorValueError(
            f"{_here()}Mismatch in shape: grad_output[{k}] has a shape of {list(grad._type.shape)} "
            f"and output[{k}] has a shape of {list(type.shape)}; instead: give a gradient of "
            "exactly the output's shape"
        )
    check_seed(type, grad._type, k, _here)
    if grad._type.dtype is not type.dtype:
        grad = grad.to(t.dtype)
    if create_graph:
        return grad
    return grad.materialized()


def _check_output(t: Any, k: int) -> None:
    if not isinstance(t, Tensor):
        raise TensorTypeError(f"{_here()}output {k} is a {type(t).__name__}, not a tensor")
    if not t.requires_grad:
        raise TensorError(
            f"{_here()}element {k} of tensors does not require grad and does not have a grad_fn: "
            f"{t._described()}; instead: make a leaf with requires_grad=True before it, and not "
            "inside no_grad()"
        )


def _tuple(x: Any) -> tuple[Any, ...]:
    return (x,) if isinstance(x, Tensor) or x is None else tuple(x)


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Accumulate the gradients of ``tensors`` into leaves (or into ``inputs``)."""
    tensors = _tuple(tensors)
    seeds = (None,) * len(tensors) if grad_tensors is None else _tuple(grad_tensors)
    if len(seeds) != len(tensors):
        raise TensorError(f"{_here()}got {len(tensors)} tensors and {len(seeds)} gradients")
    if inputs is not None:
        inputs = _tuple(inputs)
        if not inputs:
            raise TensorError(f"{_here()}inputs argument to backward() cannot be empty")
    retain = create_graph if retain_graph is None else retain_graph
    for k, t in enumerate(tensors):
        _check_output(t, k)
    pairs = [(t, _seed(t, s, k, create_graph)) for k, (t, s) in enumerate(zip(tensors, seeds))]
    sweep = _Sweep(pairs, create_graph, retain, None if inputs is None else list(inputs), True)
    sweep.run()


def gradients(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of ``outputs`` with respect to ``inputs``, without touching ``.grad``."""
    if allow_unused is False and materialize_grads:
        raise TensorValueError(
            f"{_here()}expected allow_unused to be True or not passed when materialize_grads=True"
        )
    outputs, inputs = _tuple(outputs), _tuple(inputs)
    seeds = (None,) * len(outputs) if grad_outputs is None else _tuple(grad_outputs)
    if len(seeds) != len(outputs):
        raise TensorError(f"{_here()}got {len(outputs)} outputs and {len(seeds)} grad_outputs")
    for k, t in enumerate(outputs):
        _check_output(t, k)
    for k, t in enumerate(inputs):
        if not isinstance(t, Tensor):
            raise TensorTypeError(f"{_here()}input {k} is a {type(t).__name__}, not a tensor")
        if not t.requires_grad:
            raise TensorError(
                f"{_here()}one of the differentiated tensors (input {k}, {t._described()}) does "
                "not require grad; instead: make it with requires_grad=True"
            )
    retain = create_graph if retain_graph is None else retain_graph
    if is_grads_batched:
        return _batched(
            outputs, inputs, seeds, retain, create_graph, allow_unused, materialize_grads
        )
    pairs = [(t, _seed(t, s, k, create_graph)) for k, (t, s) in enumerate(zip(outputs, seeds))]
    sweep = _Sweep(pairs, create_graph, retain, list(inputs), False)
    sweep.run()
    found = [sweep.found.get(id(t)) for t in inputs]
    out: list[Any] = []
    for k, (t, g) in enumerate(zip(inputs, found)):
        if g is None:
            if materialize_grads:
                g = np.zeros(t._type.shape, t._type.dtype.np)
            elif not allow_unused:
                raise TensorError(
                    f"{_here()}one of the differentiated tensors (input {k}, {t._described()}) "
                    "appears to not have been used in the graph; instead: set allow_unused=True "
                    "if this is the desired behaviour"
                )
        out.append(Tensor._of(g) if isinstance(g, np.ndarray) else g)
    return tuple(out)


def _batched(outputs: Any, inputs: Any, seeds: Any, retain: Any, create: Any, unused: Any,
             materialize: Any) -> tuple[Any, ...]:  # fmt: skip
    from tapec.tensors.creation import stack

    sizes = {s._type.shape[0] for s in seeds if s is not None}
    if len(sizes) != 1:
        raise TensorError(f"{_here()}batched gradients must have one leading dimension")
    (n,) = sizes
    rows = []
    for b in range(n):
        row = [None if s is None else s[b] for s in seeds]
        last = b == n - 1
        rows.append(
            gradients(outputs, inputs, row, retain or not last, create, unused, False, materialize)
        )
    out: list[Any] = []
    for column in zip(*rows):
        out.append(None if any(c is None for c in column) else stack(column))
    return tuple(out)


def accumulate(leaf: Tensor, grad: Any, run_hooks: bool = True) -> None:
    """Add a gradient (array or tensor) to ``leaf.grad``, hooks included."""
    m = meta_of(leaf)
    if run_hooks and m.hooks:
        g = Tensor._of(grad) if isinstance(grad, np.ndarray) else grad
        for hook in list(m.hooks.values()):
            result = hook(g)
            if result is not None:
                g = _checked_hook(result, leaf)
        grad = g
    held = m.grad
    if held is None:
        m.grad = Tensor._of(grad) if isinstance(grad, np.ndarray) else _fresh(grad)
    elif isinstance(grad, np.ndarray) or not (grad.requires_grad or held.requires_grad):
        # without create_graph the sum is not recorded, as if written to in place
        array = grad if isinstance(grad, np.ndarray) else grad.materialized()
        total = np.asarray(held.materialized() + array)
        if held.requires_grad:
            held.detach_()
        held._rebind(total)
    else:
        m.grad = held + grad
    if m.post_hooks:
        for hook in list(m.post_hooks.values()):
            hook(leaf)


def _fresh(t: Tensor) -> Tensor:
    """A tensor object of its own for the same value."""
    same = Tensor.__new__(Tensor)
    same._graph, same._index, same._data, same._kind = t._graph, t._index, t._data, t._kind
    same._gid, same._meta = 0, None
    if t._meta is not None and t._meta.node is not None:
        meta_of(same).node = t._meta.node
    return same


def _checked_hook(result: Any, t: Tensor) -> Tensor:
    if not isinstance(result, Tensor):
        raise TensorTypeError(f"a hook must return a tensor or None, not {type(result).__name__}")
    if result._type.shape != t._type.shape:
        raise TensorError(
            f"a hook has changed the size of the gradient to {list(result._type.shape)}; "
            f"expected {list(t._type.shape)}"
        )
    return result


def _sum(x: Any, y: Any) -> Any:
    if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
        return np.asarray(x + y)
    x = Tensor._of(x) if isinstance(x, np.ndarray) else x
    return x + (Tensor._of(y) if isinstance(y, np.ndarray) else y)


class _Sweep:
    """One run of backward: cotangents waiting at nodes, newest node first."""

    def __init__(
        self,
        pairs: Sequence[tuple[Tensor, Any]],
        create_graph: bool,
        retain: bool,
        inputs: list[Tensor] | None,
        accumulate: bool,
    ) -> None:
        self.create = create_graph
        self.retain = retain
        self.accumulate = accumulate
        self.inputs = inputs
        self.found: dict[int, Any] = {}
        self.waiting: dict[int, tuple[Any, dict[int, Any]]] = {}
        self.heap: list[int] = []
        self.leaf_grads: dict[int, tuple[Tensor, Any]] = {}
        self.want: dict[tuple[int, int], list[Tensor]] = {}
        self.want_leaf: dict[int, Tensor] = {}
        self.keep: list[Any] = []
        if inputs is not None:
            for t in inputs:
                m = t._meta
                if t.is_leaf:
                    self.want_leaf[id(t)] = t
                elif m is not None and m.node is not None:
                    self.want.setdefault((m.node[0].id, m.node[1]), []).append(t)
                else:
                    self.want.setdefault(_origin(t), []).append(t)
        self.targets_only = inputs is not None
        for t, seed in pairs:
            m = t._meta
            if t.is_leaf:
                self.arrive_leaf(t, seed)
            elif m is not None and m.node is not None:
                self.arrive(m.node[0], m.node[1], seed)
            else:
                self.arrive(t._graph, t._index, seed)
        self.check_freed()

    def check_freed(self) -> None:
        for node, cts in self.waiting.values():
            if isinstance(node, Graph):
                _check_not_freed(node, list(cts))

    def arrive(self, node: Any, index: int, ct: Any) -> None:
        held = self.waiting.get(node.id)
        if held is None:
            held = self.waiting[node.id] = (node, {})
            heapq.heappush(self.heap, -node.id)
        cts = held[1]
        cts[index] = _sum(cts[index], ct) if index in cts else ct

    def arrive_leaf(self, leaf: Tensor, ct: Any) -> None:
        old = self.leaf_grads.get(id(leaf))
        self.leaf_grads[id(leaf)] = (leaf, ct if old is None else _sum(old[1], ct))

    def run(self) -> None:
        modes_grad = modes.grad
        switch(self.create, modes.inference)
        done: list[tuple[Graph, list[int]]] = []
        try:
            while self.heap:
                node, cts = self.waiting.pop(-heapq.heappop(self.heap))
                if isinstance(node, Graph):
                    roots = list(cts)
                    self.graph(node, cts)
                    done.append((node, roots))
                else:
                    self.function(node, cts)
            leaves = list(self.leaf_grads.values())
        finally:
            switch(modes_grad, modes.inference)
        if not self.retain:
            for g, roots in done:
                g.freed = [*(g.freed or ()), *roots]
                if modes.graph is g:
                    close()
        if not self.accumulate:
            for leaf, ct in leaves:
                if id(leaf) in self.want_leaf:
                    self.found[id(leaf)] = self.hooked(leaf, ct)
            return
        for leaf, ct in leaves:
            if self.inputs is None or id(leaf) in self.want_leaf:
                accumulate(leaf, ct)

    def hooked(self, leaf: Tensor, ct: Any) -> Any:
        m = leaf._meta
        if m is None or not m.hooks:
            return ct
        g = Tensor._of(ct) if isinstance(ct, np.ndarray) else ct
        for hook in list(m.hooks.values()):
            result = hook(g)
            if result is not None:
                g = _checked_hook(result, leaf)
        return g

    def function(self, node: Any, cts: dict[int, Any]) -> None:
        for at in list(cts):
            for t in self.want.get((node.id, at), ()):
                self.deliver(t, cts[at])
        for edge, ct in node.run(cts, self.create, self.retain):
            if edge.__class__ is tuple:
                self.arrive(edge[0], edge[1], ct)
            else:
                leaf = edge()
                if leaf is not None:
                    self.arrive_leaf(leaf, ct)

    def deliver(self, t: Tensor, ct: Any) -> None:
        """A gradient that was asked for by ``inputs``."""
        if self.accumulate:
            accumulate(t, ct, False)
        else:
            self.found[id(t)] = ct

    def graph(self, g: Graph, cts: dict[int, Any]) -> None:
        """All of one graph: stage by stage from cut to cut."""
        wanted = {at for (gid, at) in self.want if gid == g.id}
        hooks = g.hooks or {}
        if modes.anomaly:
            from tapec.autograd.anomaly import check_backward

            check_backward(g, {k: _array(v) for k, v in cts.items()})
        cuts = sorted(wanted | {k for k, h in hooks.items() if h.tensor or h.retain or h.node})
        seeds = dict(cts)
        plain = {k: v for k, v in seeds.items() if k not in cuts}
        waiting = {k: v for k, v in seeds.items() if k in cuts}
        nodes = [k for k, h in hooks.items() if h.node]
        stops = set(cuts)
        for k in nodes:
            stops.update(
                j for j in g.states[k].operands if j.__class__ is int and g.states[j].requires
            )
        for at in sorted(stops - set(waiting) - set(plain), reverse=True):
            del at
        pending: dict[int, Any] = {**plain, **waiting}
        while pending:
            if not stops:
                roots = sorted(pending)
            else:
                top = max(pending)
                roots = [top]
            seed = {k: pending.pop(k) for k in roots}
            if len(roots) == 1 and roots[0] in stops:
                k = roots[0]
                seed[k] = self.at_cut(g, k, seed[k])
            if len(roots) == 1 and roots[0] in nodes:
                self.node(g, roots[0], seed[roots[0]], pending)
                continue
            self.stage(g, seed, stops, pending)

    def at_cut(self, g: Graph, k: int, ct: Any) -> Any:
        """Hooks of a value whose gradient is complete; then who asked for it."""
        h = (g.hooks or {}).get(k)
        if h is not None and h.tensor:
            t = Tensor._of(ct) if isinstance(ct, np.ndarray) else ct
            for hook in list(h.tensor.values()):
                result = hook(t)
                if result is not None:
                    if not isinstance(result, Tensor):
                        raise TensorTypeError("a hook must return a tensor or None")
                    if result._type.shape != g.states[k].type.shape:
                        raise TensorError(
                            "a hook has changed the size of the gradient to "
                            f"{list(result._type.shape)}; expected {list(g.states[k].type.shape)}"
                        )
                    t = result
            ct = t if self.create else t.materialized()
        if (
            h is not None
            and h.retain is not None
            and not (self.inputs is not None and not self.accumulate)
        ):
            t = h.retain()
            if t is not None:
                accumulate(t, ct, False)
        for t in self.want.get((g.id, k), ()):
            self.deliver(t, ct)
        return ct

    def node(self, g: Graph, k: int, ct: Any, pending: dict[int, Any]) -> None:
        """One operation by itself, between its node hooks."""
        h = (g.hooks or {})[k]
        out = (Tensor._of(ct) if isinstance(ct, np.ndarray) else ct,)
        for hook in list(h.pre.values()):
            result = hook(out)
            if result is not None:
                out = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        operands = [j for j in g.states[k].operands if j.__class__ is int]
        collected: dict[int, Any] = {}
        seed = out[0] if self.create else out[0].materialized()
        self.stage(g, {k: seed}, set(operands), collected, deliver=False)
        inputs: Any = tuple(
            [
                Tensor._of(c) if isinstance(c, np.ndarray) else c
                for c in [collected.get(j) for j in operands]
            ]
        )
        for hook in list(h.post.values()):
            result = hook(inputs, out)
            if result is not None:
                inputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        seen = set()
        for j, c in zip(operands, inputs):
            if c is None or j in seen or not g.states[j].requires:
                continue
            seen.add(j)
            value = c if self.create else c.materialized()
            self.into(g, j, value, pending)

    def into(self, g: Graph, j: int, ct: Any, pending: dict[int, Any]) -> None:
        """A cotangent arrives at value ``j``: inside the graph, or through an input."""
        state = g.states[j]
        if state.op == "input":
            self.out(g, g.places[j], ct)
        else:
            pending[j] = _sum(pending[j], ct) if j in pending else ct

    def out(self, g: Graph, number: int, ct: Any) -> None:
        edge = g.edges[number]
        if edge.__class__ is tuple:
            self.arrive(edge[0], edge[1], ct)
            if isinstance(edge[0], Graph):
                _check_not_freed(edge[0], [edge[1]])
        elif edge is not None:
            leaf = edge()
            if leaf is not None:
                self.arrive_leaf(leaf, ct)

    def stage(
        self,
        g: Graph,
        seeds: dict[int, Any],
        stops: set[int],
        pending: dict[int, Any],
        deliver: bool = True,
    ) -> None:
        """From ``seeds`` back to inputs and to ``stops``."""
        roots = tuple(sorted(seeds))
        cuts = tuple(sorted(k for k in stops if k < roots[-1] and k not in seeds))
        if not deliver:
            cuts = tuple(sorted(k for k in stops if g.states[k].requires))
        _check_versions(g, roots)
        values = [seeds[k] for k in roots]
        if self.create:
            grads = self.recorded(g, roots, values, cuts)
        else:
            if g.packed is not None:
                from tapec.autograd.saved import unpack

                unpack(g)
            key = ("backward", roots, cuts)
            plan = g.state.plan(key, lambda: backward_plan(g.states, roots, True, cuts))
            arrays = [_array(v) for v in values]
            results = plan.run(g, arrays)
            for k, r in zip(roots, results):
                g.values[k] = r
            grads = list(zip(plan.grads, results[len(roots) :]))
        for (is_input, where), ct in grads:
            if is_input:
                if deliver:
                    self.out(g, where, ct)
                else:
                    at = g.positions[where]
                    pending[at] = ct
            else:
                pending[where] = _sum(pending[where], ct) if where in pending else ct

    def recorded(
        self, g: Graph, roots: tuple[int, ...], seeds: list[Any], cuts: tuple[int, ...]
    ) -> list[Any]:
        """The same with gradients as recorded tensors."""
        key = ("record", roots, cuts)
        rule = g.state.plan(key, lambda: derivative_records(g.states, roots, cuts, None))
        out = []
        tensors = [Tensor._of(s) if isinstance(s, np.ndarray) else s for s in seeds]
        for is_input, where, fn, operands in rule.pieces:
            d = current()
            places: list[int] = []
            for k, detached in operands:
                if k < 0:
                    places.append(position(d, tensors[-1 - k]))
                    continue
                t = _value(g, k)
                if detached:
                    t = t.detach()
                places.append(position(d, t))
            args = tuple(places)
            state = d.push(("ir", args, fn), "ir", args, fn, None)
            out.append(((is_input, where), new_tensor(d, state)))
        return out


def _value(g: Graph, k: int) -> Tensor:
    """Value ``k`` of a graph as a tensor."""
    state = g.states[k]
    t = Tensor.__new__(Tensor)
    t._gid, t._meta, t._kind = 0, None, state
    t._graph, t._index, t._data = g, k, g.values.get(k)
    if modes.graph is not g and state.op == "input":
        # the input's own source, so that a leaf stays a leaf
        number = g.places[k]
        edge = g.edges[number]
        held = g.inputs[number]
        if edge is None:
            t._data = g.input(number)
            t._graph, t._index = None, -1
            return t
        if edge.__class__ is tuple:
            if isinstance(edge[0], Graph):
                t._graph, t._index = edge
                t._data = None if held.__class__ is tuple else held
                t._kind = edge[0].states[edge[1]]
            else:
                t._graph, t._index, t._data = None, -1, g.input(number)
                meta_of(t).node = edge
        else:
            leaf = edge()
            data = g.input(number)
            if leaf is not None and leaf._data is data:
                return leaf  # type: ignore[no-any-return]
    return t


def _array(v: Any) -> Array:
    return v if isinstance(v, np.ndarray) else v.materialized()


def _origin(t: Tensor) -> tuple[int, int]:
    assert t._graph is not None
    return (t._graph.id, t._index)


def _check_not_freed(g: Graph, roots: Sequence[int]) -> None:
    freed = g.freed
    if not freed:
        return
    from tapec.tensors.plans import _closure

    states = g.states
    gone = {k for k in _closure(states, freed, ()) if states[k].op != "input"}
    for k in _closure(states, roots, ()):
        if k in gone and states[k].requires:
            raise TensorError(
                "Trying to backward through the graph a second time: the value made at "
                f"{g.site(k)} has been differentiated already and its graph was freed; instead: "
                "call backward() or autograd.grad() with retain_graph=True the first time"
            )


def _check_versions(g: Graph, roots: Sequence[int]) -> None:
    from tapec.autograd.versions import check_saved, inputs_unchanged
    from tapec.tensors.plans import _closure

    if g.mutated or not inputs_unchanged(g):
        check_saved(g, sorted(_closure(g.states, roots, ())))
