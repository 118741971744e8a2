"""``Tensor``: define-by-run arrays with PyTorch's semantics on the compiler.

Operations are recorded (see ``graph``) and computed when somebody looks: ``item``, ``numpy``,
``repr``, ``bool``, ``backward``.  What can be seen is as if each line ran at once.

>>> import tapec
>>> x = tapec.tensor([1.0, 2.0], requires_grad=True)
>>> y = x**2
>>> y.backward(gradient=tapec.tensor([0.1, 0.2]))
>>> x.grad
tensor([0.2000, 0.8000])

A tensor is a value of a graph (``_graph``, ``_index``) or an array (``_data``) or both; what only
few tensors have is in ``_meta``.  Tensors that share storage (views, ``detach``) share a
``Storage``, whose version tells when one of them must be read anew.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from tapec.ir.core import Type
from tapec.source import describe_site, user_site
from tapec.tensors import record, rules_shape
from tapec.tensors.dtypes import array_of, of_ir, to_ir
from tapec.tensors.dtypes import dtype as Dtype
from tapec.tensors.graph import (
    Graph,
    Kind,
    TensorError,
    TensorTypeError,
    close,
    kind_of_input,
    modes,
    place_of,
    writes,
)
from tapec.tensors.methods import Methods
from tapec.tensors.operators import Operators
from tapec.tensors.shapes import Shapes, Size
from tapec.tensors.values import Values

__all__ = ["Meta", "Storage", "Tensor", "meta_of", "tensor"]

Array = np.ndarray[Any, Any]


class Storage:
    """The current contents of memory that several tensors share, and how often it was written."""

    __slots__ = ("data", "graph", "index", "kind", "leaf", "places", "requires_leaf", "version")

    def __init__(self, t: Tensor) -> None:
        self.version = 0
        self.leaf = t.requires_grad and t.is_leaf
        #: (graph, value, version) of everything recorded from this memory
        self.places: list[tuple[Any, int, int]] = []
        self.take(t)

    def take(self, t: Any) -> None:
        self.graph, self.index, self.data, self.kind = t._graph, t._index, t._data, t._kind


class Meta:
    """What only some tensors have; defaults are the class's, so that making one is cheap."""

    grad: Any = None
    hooks: Any = None
    post_hooks: Any = None
    retains = False
    storage: Storage | None = None
    seen = 0
    path: tuple[Any, ...] | None = None  # view operations from the storage's contents
    detached = False
    leaf = False  # a leaf whose value is still to be computed
    node: Any = None  # (node, output) of a custom function
    inference = False
    site: Any = None
    stale: Any = None


def meta_of(t: Tensor) -> Meta:
    m = t._meta
    if m is None:
        m = t._meta = Meta()
    return m


class Tensor(Operators, Values, Methods, Shapes):
    """See the module's description.  Made by ``tapec.tensor`` and by operations."""

    __slots__ = ("__weakref__", "_data", "_gid", "_graph", "_index", "_kind", "_meta", "_slot")
    __array_priority__ = 2000.0

    _graph: Graph | None
    _index: int
    _gid: int
    _slot: int
    _kind: Any
    _data: Array | None
    _meta: Meta | None

    @staticmethod
    def _of(array: Array, requires_grad: bool = False) -> Tensor:
        """A leaf around an array that nobody else writes to."""
        t = Tensor.__new__(Tensor)
        t._graph = None
        t._index = -1
        t._gid = 0
        t._kind = _kind(array, requires_grad)
        t._data = array
        t._meta = None
        return t

    # -- what it is -------------------------------------------------------------------

    @property
    def _type(self) -> Type:
        return self._kind.type  # type: ignore[no-any-return]

    @property
    def shape(self) -> Size:
        """The lengths of the dimensions.

        >>> import tapec
        >>> tapec.zeros(2, 3).shape
        tapec.Size([2, 3])
        """
        return Size(self._kind.type.shape)

    @property
    def dtype(self) -> Dtype:
        return of_ir(self._kind.type.dtype)

    @property
    def ndim(self) -> int:
        return self._kind.type.ndim  # type: ignore[no-any-return]

    @property
    def device(self) -> str:
        return "cpu"

    def size(self, dim: int | None = None) -> Any:
        """All lengths, or that of one dimension."""
        return self.shape if dim is None else self._kind.type.shape[dim]

    def dim(self) -> int:
        """The number of dimensions."""
        return self._kind.type.ndim  # type: ignore[no-any-return]

    def numel(self) -> int:
        """The number of elements."""
        return self._kind.type.size  # type: ignore[no-any-return]

    nelement = numel

    def is_floating_point(self) -> bool:
        """Whether the dtype is a float."""
        return self._kind.type.dtype.kind == "f"  # type: ignore[no-any-return]

    def is_inference(self) -> bool:
        """Whether it was made in ``inference_mode``."""
        return self._meta is not None and self._meta.inference

    def is_contiguous(self) -> bool:
        """Always true: strides are an affair of the compiler."""
        return True

    # -- autograd ---------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to or through this tensor."""
        m = self._meta
        if m is not None and m.storage is not None and m.seen != m.storage.version:
            self._refresh()
        return self._kind.requires  # type: ignore[no-any-return]

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if not self.is_leaf:
            raise self._not_a_leaf()
        self.requires_grad_(value)

    def _not_a_leaf(self) -> TensorError:
        return TensorError(
            f"{_here()}you can only change requires_grad of leaf tensors, and {self._described()} "
            "is the result of an operation; instead: use detach()"
        )

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Let a leaf require grad, or not.

        >>> import tapec
        >>> tapec.zeros(2).requires_grad_().requires_grad
        True
        """
        if requires_grad == self.requires_grad:
            return self
        if self._kind.requires:
            if not self.is_leaf:
                raise self._not_a_leaf()
        else:
            _check_differentiable(self._type)
        data = self.materialized()
        self._data = data
        self._graph = None
        self._index = -1
        self._gid = 0
        self._kind = kind_of_input(self._type, requires_grad)
        m = self._meta
        if m is not None:
            m.leaf = False
            if m.storage is not None and m.path == ():
                m.storage.leaf = requires_grad
                m.storage.take(self)
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether gradients end here: made by the user, or not requiring grad."""
        if not self.requires_grad:
            return True
        m = self._meta
        if m is not None and m.node is not None:
            return False
        return self._graph is None or (m is not None and m.leaf)

    @property
    def grad_fn(self) -> Any:
        """The node that gradients arrive at; None for leaves."""
        if self.is_leaf:
            return None
        from tapec.autograd.nodes import node_of

        return node_of(self)

    @property
    def output_nr(self) -> int:
        return 0 if self._meta is None or self._meta.node is None else int(self._meta.node[1])

    @property
    def grad(self) -> Tensor | None:
        """The accumulated gradient of a leaf (or of what was asked to ``retain_grad``)."""
        m = self._meta
        grad = None if m is None else m.grad
        if grad is None and not self.is_leaf and not (m is not None and m.retains):
            import warnings

            warnings.warn(
                f"the .grad of {self._described()}, which is not a leaf, is read: it is not "
                "populated during backward(); use .retain_grad() if you want it",
                UserWarning,
                stacklevel=2,
            )
        return grad

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is None:
            if self._meta is not None:
                self._meta.grad = None
            return
        if not isinstance(value, Tensor):
            raise TensorTypeError(
                f"{_here()}.grad must be a tensor or None, not {type(value).__name__}"
            )
        if value is self:
            raise TensorError(f"{_here()}cannot assign a tensor as its own gradient")
        if value._type.shape != self._type.shape:
            raise TensorError(
                f"{_here()}the gradient assigned has shape {list(value._type.shape)}, but the "
                f"tensor has shape {list(self._type.shape)}"
            )
        if value._type.dtype is not self._type.dtype:
            raise TensorError(
                f"{_here()}the gradient assigned has dtype {value.dtype}, but the tensor has "
                f"dtype {self.dtype}; convert it with .to({self.dtype})"
            )
        meta_of(self).grad = value

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradient, or set it to zeros in place."""
        m = self._meta
        if m is None or m.grad is None:
            return
        if set_to_none:
            m.grad = None
        else:
            grad = m.grad
            if grad.requires_grad:
                grad.detach_()
            grad._rebind(np.zeros(grad._type.shape, grad._type.dtype.np))

    def retain_grad(self) -> None:
        """Have ``.grad`` filled although this is not a leaf."""
        if not self.requires_grad:
            raise TensorError(
                f"{_here()}cannot retain_grad() on {self._described()}, which has "
                "requires_grad=False"
            )
        if self.is_leaf:
            return
        m = meta_of(self)
        if m.retains:
            return
        m.retains = True
        from tapec.autograd.nodes import hooks_at

        ref = weakref.ref(self)
        hooks_at(self).retain = ref

    @property
    def retains_grad(self) -> bool:
        return self._meta is not None and self._meta.retains

    def backward(
        self,
        gradient: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Accumulate the gradients of this tensor into the leaves.

        >>> import tapec
        >>> x = tapec.tensor(2.0, requires_grad=True)
        >>> (x**2 + 3 * x).backward()
        >>> x.grad
        tensor(7.)
        """
        if gradient is None and inputs is None and not create_graph and _fast(self, retain_graph):
            return
        from tapec.autograd.engine import backward

        backward(
            (self,), None if gradient is None else (gradient,), retain_graph, create_graph, inputs
        )

    def register_hook(self, hook: Callable[[Any], Any]) -> Any:
        """Call ``hook(grad)`` when the gradient of this tensor is known; what it returns
        replaces it."""
        if not self.requires_grad:
            raise TensorError(
                f"{_here()}cannot register a hook on {self._described()}, which doesn't require "
                "gradient"
            )
        from tapec.autograd.nodes import Handle, hooks_at

        if self.is_leaf:
            m = meta_of(self)
            if m.hooks is None:
                m.hooks = {}
            return Handle(m.hooks, hook)
        return Handle(hooks_at(self).tensor, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Any], Any]) -> Any:
        """Call ``hook(tensor)`` after ``.grad`` of this leaf has been accumulated."""
        if not self.requires_grad or not self.is_leaf:
            raise TensorError(
                f"{_here()}post accumulate grad hooks cannot be registered on non-leaf tensors"
            )
        from tapec.autograd.nodes import Handle

        m = meta_of(self)
        if m.post_hooks is None:
            m.post_hooks = {}
        return Handle(m.post_hooks, hook)

    def detach(self) -> Tensor:
        """The same storage without history.

        >>> import tapec
        >>> x = tapec.tensor(1.0, requires_grad=True)
        >>> x.detach().requires_grad
        False
        """
        from tapec.tensors.inplace import share

        return share(self, detached=True)

    def detach_(self) -> Tensor:
        """Cut this tensor off from its history, in place."""
        m = self._meta
        if m is not None and m.path:
            raise TensorError(f"{_here()}cannot detach a view in place; use detach()")
        if self.requires_grad:
            data = self.materialized()
            self._data, self._graph, self._index, self._gid = data, None, -1, 0
            self._kind = kind_of_input(self._type, False)
            if m is not None:
                m.leaf, m.node = False, None
                m.retains = False
        return self

    @property
    def data(self) -> NoReturn:
        raise TensorError(
            f"{_here()}.data would let values change behind the back of backward(); "
            "instead: use detach(), or write inside tapec.no_grad()"
        )

    @property
    def _version(self) -> int:
        m = self._meta
        return 0 if m is None or m.storage is None else m.storage.version

    @property
    def _base(self) -> Any:
        return None

    # -- values -----------------------------------------------------------------------

    def _refresh(self) -> None:
        from tapec.tensors.inplace import refresh

        refresh(self)

    def materialized(self) -> Array:
        """The value as an array, which must not be written to."""
        m = self._meta
        if m is not None and m.storage is not None and m.seen != m.storage.version:
            self._refresh()
        data = self._data
        if data is None:
            g = self._graph
            assert g is not None
            data = g.value(self._index)
            if modes.graph is g:
                close()
            self._data = data
            if m is not None and m.leaf:
                self._graph, self._index, m.leaf = None, -1, False
        return data

    def _rebind(self, array: Array) -> None:
        """Give a tensor without history another value; a write in place as the user sees it."""
        from tapec.tensors.inplace import storage_of

        s = storage_of(self)
        self._data, self._graph, self._index, self._gid = array, None, -1, 0
        s.version += 1
        s.take(self)
        assert self._meta is not None
        self._meta.seen = s.version

    def _described(self) -> str:
        """The tensor in a message: its type and where it was made."""
        g = self._graph
        kind = f"the tensor of shape {list(self._type.shape)}"
        if g is not None and self._index < len(g.sites):
            return f"{kind} made at {g.site(self._index)}"
        m = self._meta
        if m is not None and m.site is not None:
            return f"{kind} made at {place_of(*m.site)}"
        return kind


record._tensor = Tensor
_leaf_kinds: dict[Any, Kind] = {}


def _kind(array: Array, requires: bool) -> Kind:
    key = (array.dtype.char, array.shape, requires)
    found = _leaf_kinds.get(key)
    if found is None:
        found = kind_of_input(Type(to_ir(array.dtype), array.shape), requires)
        if len(_leaf_kinds) > 100_000:
            _leaf_kinds.clear()
        _leaf_kinds[key] = found
    return found


def _here() -> str:
    site = user_site(2)
    return f"{describe_site(site)}: " if site.loc is not None else ""


def _check_differentiable(type: Type) -> None:
    if not type.dtype.is_inexact:
        raise TensorError(
            f"{_here()}only tensors of floating point dtype can require gradients, not "
            f"{of_ir(type.dtype)}; instead: give dtype=tapec.float64 or write 1.0 for 1"
        )


def tensor(data: Any, dtype: Any = None, requires_grad: bool = False, device: Any = None) -> Tensor:
    """A new leaf from numbers, nested lists, an array or a tensor (copied).

    >>> import tapec
    >>> tapec.tensor([[1.0, 2.0], [3.0, 4.0]]).shape
    tapec.Size([2, 2])
    """
    t = Tensor._of(array_of(data, dtype), requires_grad)
    if requires_grad:
        if t._kind.type.dtype.kind not in "fc":
            _check_differentiable(t._kind.type)
        frame = sys._getframe(1)
        m = t._meta = Meta()
        m.site = (frame.f_code, frame.f_lasti)
    return t


def _unchanged(g: Graph) -> bool:
    from tapec.autograd.versions import inputs_unchanged

    return inputs_unchanged(g)


def _fast(root: Tensor, retain: bool | None) -> bool:
    """``backward()`` of a scalar through one graph that ends at leaves, without hooks: the
    common case, in one call of one program.  False: the engine must look closer."""
    g = root._graph
    if g is None or g.freed or g.linked or g.hooks or modes.anomaly or g.packed is not None:
        return False
    kind = root._kind
    m = root._meta
    if m is not None and (m.storage is not None or m.node is not None or m.leaf):
        return False
    if not kind.requires or kind.type.size != 1 or g.mutated:
        return False
    at = root._index
    state = g.state
    plans = state.plans
    plan = None if plans is None else plans.get(at)
    if plan is None:
        from tapec.tensors.plans import backward_plan

        if kind.type.shape != () or kind.type.dtype.kind == "c":
            return False
        plan = state.plan(at, lambda: backward_plan(g.states, (at,), False))
    if writes.count and not _unchanged(g):
        return False
    results = plan.run(g, ())
    g.values[at] = results[0]
    if not retain:
        g.freed = [at] if g.freed is None else [*g.freed, at]
        if modes.graph is g:
            modes.graph = None
    edges = g.edges
    k = 1
    for _, number in plan.grads:
        leaf = edges[number]()
        if leaf is not None:
            meta = leaf._meta
            if meta is None:
                meta = leaf._meta = Meta()
            if meta.hooks is None and meta.post_hooks is None and meta.grad is None:
                meta.grad = Tensor._of(results[k])
            else:
                from tapec.autograd.engine import accumulate

                accumulate(leaf, results[k])
        k += 1
    return True


_ = rules_shape  # imported to fill the table of rules
