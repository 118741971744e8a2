"""``Function``: an operation with a derivative of one's own.

class Cube(tapec.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * grad

y = Cube.apply(x)
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from tapec.tensors.graph import (
    TensorError,
    TensorTypeError,
    close,
    kind_of_input,
    modes,
    next_id,
    switch,
)
from tapec.tensors.inplace import storage_of
from tapec.tensors.tensor import Tensor, meta_of

__all__ = ["Context", "Function", "FunctionNode", "once_differentiable"]


class Context:
    """What ``forward`` leaves for ``backward``."""

    def __init__(self) -> None:
        self.needs_input_grad: tuple[bool, ...] = ()
        self.materialize_grads = True
        self._saved: list[Any] = []
        self._versions: list[int] = []
        self._dirty: tuple[Any, ...] = ()
        self._constant: tuple[Any, ...] = ()
        self._outputs: list[Any] = []
        self._freed = False

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors for ``backward``; writing into one later is noticed."""
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):
                raise TensorTypeError(
                    f"save_for_backward can only save tensors, but argument is a {type(t).__name__}"
                )
        self._saved = list(tensors)
        self._versions = [0 if t is None else t._version for t in tensors]

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What was saved, in order."""
        if self._freed:
            raise TensorError(
                "Trying to backward through the graph a second time (or to access saved tensors "
                "after they have been freed); instead: use retain_graph=True the first time"
            )
        for t, version in zip(self._saved, self._versions):
            if isinstance(t, Tensor) and t._version != version:
                raise TensorError(
                    "one of the variables needed for gradient computation has been modified by an "
                    f"inplace operation: {t._described()} is at version {t._version}; expected "
                    f"version {version} instead; instead: save a clone()"
                )
        return tuple([t() if isinstance(t, _Output) else t for t in self._saved])

    def mark_dirty(self, *tensors: Any) -> None:
        """Declare inputs that ``forward`` wrote to."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Declare outputs that have no derivative."""
        self._constant = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether absent gradients arrive as zeros (the default) or as None."""
        self.materialize_grads = value


class _Output:
    """A saved output: held so that it does not hold its own node."""

    def __init__(self, t: Tensor, node: Any, k: int) -> None:
        self._parts = (t._graph, t._index, t._data, t._kind)
        self._node = weakref.ref(node)
        self._k = k

    def __call__(self) -> Tensor:
        t = Tensor.__new__(Tensor)
        t._graph, t._index, t._data, kind = self._parts
        t._gid, t._meta = 0, None
        node = self._node()
        t._kind = kind
        if node is not None:
            t._kind = kind_of_input(kind.type, True)
            t._graph = None
            meta_of(t).node = (node, self._k)
        return t


class FunctionNode(Context):
    """The node of one call of a ``Function``; also its context."""

    def __init__(self, cls: Any, edges: list[Any]) -> None:
        super().__init__()
        self.id = next_id()
        self.cls = cls
        self.edges = edges  # per argument: None, a weak reference to a leaf, (node, index)
        self.types: list[Any] = []
        self.outputs: list[Any] = []
        self.metadata: dict[str, Any] = {}

    def name(self) -> str:
        return f"{self.cls.__name__}Backward"

    @property
    def next_functions(self) -> tuple[Any, ...]:
        from tapec.autograd.nodes import AccumulateGrad, _edge
        from tapec.tensors.graph import Graph

        out: list[Any] = []
        for edge in self.edges:
            if edge is None:
                out.append((None, 0))
            elif edge.__class__ is tuple:
                node, index = edge
                out.append(_edge(node, index) if isinstance(node, Graph) else (node, index))
            else:
                out.append((AccumulateGrad(edge), 0))
        return tuple(out)

    def run(self, cts: dict[int, Any], create: bool, retain: bool) -> list[tuple[Any, Any]]:
        """Call the user's backward; pairs of edge and gradient."""
        grads: list[Any] = []
        for k, type in enumerate(self.outputs):
            ct = cts.get(k)
            if ct is None:
                ct = (
                    Tensor._of(np.zeros(type.shape, type.dtype.np))
                    if self.materialize_grads and type is not None
                    else None
                )
            elif isinstance(ct, np.ndarray):
                ct = Tensor._of(ct)
            grads.append(ct)
        before = modes.grad
        switch(create, modes.inference)
        try:
            result = self.cls.backward(self, *grads)
        finally:
            switch(before, modes.inference)
        if not retain:
            self._freed = True
        if not isinstance(result, tuple):
            result = (result,)
        n = len(self.edges)
        if len(result) > n and all(r is None for r in result[n:]):
            result = result[:n]
        if len(result) != n:
            raise TensorError(
                f"function {self.name()} returned an incorrect number of gradients "
                f"(expected {n}, got {len(result)}); instead: return one per argument of forward, "
                "None where there is none"
            )
        out = []
        for k, (edge, g) in enumerate(zip(self.edges, result)):
            if edge is None or g is None:
                continue
            if not isinstance(g, Tensor):
                raise TensorTypeError(
                    f"function {self.name()}: gradient {k} is a {type_name(g)}, not a tensor"
                )
            wanted = self.types[k]
            if g._type.shape != wanted.shape:
                g = _fit(g, wanted, self.name(), k)
            if g._type.dtype is not wanted.dtype:
                g = g.to(wanted.dtype.np)
            out.append((edge, g if create else g.materialized()))
        return out


def type_name(x: Any) -> str:
    return type(x).__name__


def _fit(g: Tensor, type: Any, name: str, k: int) -> Tensor:
    from tapec.tensors.record import apply

    try:
        if np.broadcast_shapes(g._type.shape, type.shape) == g._type.shape:
            return apply("sum_to", (g,), type.shape)  # type: ignore[no-any-return]
        if np.broadcast_shapes(g._type.shape, type.shape) == type.shape:
            return apply("expand", (g,), type.shape)  # type: ignore[no-any-return]
    except ValueError:
        pass
    raise TensorError(
        f"function {name} returned an invalid gradient at index {k} - got {list(g._type.shape)} "
        f"but expected shape compatible with {list(type.shape)}"
    )


class _Meta(type):
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise TensorError(
            f"a Function is not made by calling it; instead: use {cls.__name__}.apply(...)"
        )


class Function(metaclass=_Meta):
    """See the module's description."""

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the result; to be overridden."""
        raise NotImplementedError("You must implement the forward function for a Function")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Save what backward needs, where ``forward`` has no ``ctx`` argument."""
        raise NotImplementedError

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """One gradient per argument of forward; to be overridden."""
        raise NotImplementedError("You must implement either the backward or vjp method")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Call the function."""
        edges = [_edge_of(a) for a in args]
        tracked = modes.grad and any(e is not None for e in edges)
        node = FunctionNode(cls, edges if tracked else [None] * len(args))
        node.needs_input_grad = tuple([e is not None for e in edges])
        node.types = [a._type if isinstance(a, Tensor) else None for a in args]
        separate = cls.setup_context is not Function.setup_context
        before = modes.grad
        switch(False, modes.inference)
        try:
            output = cls.forward(*args) if separate else cls.forward(node, *args)
            if separate:
                cls.setup_context(node, args, output)
        finally:
            switch(before, modes.inference)
        single = isinstance(output, Tensor) or not isinstance(output, (tuple, list))
        outputs = [output] if single else list(output)
        results: list[Any] = []
        node.id = next_id()
        for k, o in enumerate(outputs):
            node.outputs.append(o._type if isinstance(o, Tensor) else None)
            if not isinstance(o, Tensor) or not tracked:
                results.append(o)
                continue
            constant = any(o is c for c in node._constant) or not o._type.dtype.is_inexact
            if constant:
                results.append(o)
                continue
            dirty = any(o is d for d in node._dirty)
            t = _with_node(o, node, k, dirty)
            for n, s in enumerate(node._saved):
                if s is o and not any(o is a for a in args):
                    node._saved[n] = _Output(o, node, k)
            results.append(t)
        if tracked:
            close()
        if single:
            return results[0]
        return tuple(results)


def _edge_of(a: Any) -> Any:
    if not isinstance(a, Tensor) or not a.requires_grad:
        return None
    m = a._meta
    if a.is_leaf:
        return weakref.ref(a)
    if m is not None and m.node is not None:
        return m.node
    return (a._graph, a._index)


def _with_node(o: Tensor, node: FunctionNode, k: int, dirty: bool) -> Tensor:
    """``o`` as output ``k`` of ``node``."""
    t = o
    if not dirty:
        t = Tensor.__new__(Tensor)
        t._gid, t._meta = 0, None
        t._graph, t._index, t._data = o._graph, o._index, o._data
    t._data = o.materialized()
    t._graph, t._index, t._gid = None, -1, 0
    t._kind = kind_of_input(o._type, True)
    m = meta_of(t)
    m.node = (node, k)
    m.leaf = False
    if dirty:
        s = storage_of(t)
        s.version += 1
        s.leaf = False
        s.take(t)
        m.seen = s.version
    return t


def once_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """A ``backward`` that cannot be differentiated again: trying to is an error."""

    @functools.wraps(function)
    def wrapper(ctx: Any, *grads: Any) -> Any:
        create = modes.grad
        switch(False, modes.inference)
        try:
            result = function(ctx, *grads)
        finally:
            switch(create, modes.inference)
        if not create:
            return result
        single = not isinstance(result, tuple)
        out = [
            _Once.apply(g) if isinstance(g, Tensor) else g
            for g in (result if not single else [result])
        ]
        return out[0] if single else tuple(out)

    return wrapper


class _Once(Function):
    @classmethod
    def apply(cls, *args: Any) -> Any:
        (g,) = args
        node = FunctionNode(cls, [])
        node.outputs = [g._type]
        t = _with_node(g, node, 0, False)
        close()
        return t

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise TensorError(
            "trying to differentiate twice a function that was marked with @once_differentiable"
        )
