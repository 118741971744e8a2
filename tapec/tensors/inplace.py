"""Writing in place: versions, shared storage, views.

Arrays are never written to.  A write gives the tensor, or the storage it shares, a new value of
the graph; every other tensor of that storage notices by the version and is read anew, through
the view operations that it was made with.  So old values stay what they were, for whatever was
recorded from them; ``backward`` refuses where PyTorch would (see ``autograd.versions``).
"""

from __future__ import annotations

import weakref
from typing import Any

from tapec.source import describe_site, user_site
from tapec.tensors.graph import TensorError, TensorValueError, kind_of_input, modes, writes
from tapec.tensors.record import apply
from tapec.tensors.tensor import Storage, Tensor, meta_of

__all__ = ["check_writable", "refresh", "share", "storage_of", "view", "write"]


def storage_of(t: Tensor) -> Storage:
    """The storage of ``t``, made when it is first shared or written to."""
    m = meta_of(t)
    s = m.storage
    if s is None:
        s = m.storage = Storage(t)
        m.path = ()
        m.seen = 0
    elif m.seen != s.version:
        refresh(t)
    return s


def _place(s: Storage, t: Tensor) -> None:
    if t._graph is not None:
        s.places.append((weakref.ref(t._graph), t._index, s.version))


def share(t: Tensor, detached: bool = False) -> Tensor:
    """Another tensor on the storage of ``t``."""
    s = storage_of(t)
    m = t._meta
    assert m is not None
    _place(s, t)
    new = Tensor.__new__(Tensor)
    new._gid = 0
    new._meta = None
    if t._graph is None or (m.leaf and t.is_leaf):
        t.materialized()
        new._graph, new._index, new._data = None, -1, t._data
        new._kind = kind_of_input(t._type, False)
    elif not t._kind.requires:
        new._graph, new._index, new._data, new._kind = t._graph, t._index, t._data, t._kind
    else:
        done = _detached(t)
        new._graph, new._index, new._data, new._kind = done._graph, done._index, t._data, done._kind
    n = meta_of(new)
    n.storage, n.seen, n.path, n.detached = s, s.version, m.path, True
    return new


def _detached(t: Tensor) -> Tensor:
    """The value of ``t`` without its history: nothing recorded if its graph is closed."""
    if t._graph is None or t._graph is modes.graph:
        return apply("detach", (t,))  # type: ignore[no-any-return]
    new = Tensor.__new__(Tensor)
    new._graph, new._index, new._data = t._graph, t._index, t._data
    new._kind = kind_of_input(t._type, False)
    new._gid, new._meta = 0, None
    return new


def view(base: Tensor, op: str, attrs: Any) -> Tensor:
    """``op(base)``, sharing the storage of ``base``."""
    s = storage_of(base)
    m = base._meta
    assert m is not None and m.path is not None
    _place(s, base)
    new: Tensor = apply(op, (base,), attrs)
    n = meta_of(new)
    n.storage, n.seen, n.path = s, s.version, (*m.path, (op, attrs))
    n.detached = m.detached
    _place(s, new)
    return new


def _contents(s: Storage) -> Tensor:
    """What the storage holds, as a tensor of its own."""
    t = Tensor.__new__(Tensor)
    t._graph, t._index, t._data, t._kind = s.graph, s.index, s.data, s.kind
    t._gid = 0
    t._meta = None
    return t


def refresh(t: Tensor) -> None:
    """Read ``t`` anew from its storage."""
    m = t._meta
    assert m is not None and m.storage is not None
    s = m.storage
    m.seen = s.version
    was_leaf = s.leaf and m.path == () and not m.detached
    found = _contents(s)
    for op, attrs in m.path or ():
        found = apply(op, (found,), attrs)
    if m.detached and found._kind.requires:
        found = _detached(found)
    t._graph, t._index, t._data, t._kind = found._graph, found._index, found._data, found._kind
    t._gid = 0
    if was_leaf and not found._kind.requires:
        t._kind = kind_of_input(t._type, True)
        m.leaf = t._graph is not None
        if m.leaf:
            assert t._graph is not None
            t._graph.wanted.append(weakref.ref(t))


def check_writable(t: Tensor) -> None:
    """The errors of a write in place that are known before it."""
    if not modes.grad:
        if t.is_inference() is False or modes.inference:
            return
        return
    site = user_site(3)
    here = f"{describe_site(site)}: " if site.loc is not None else ""
    m = t._meta
    if m is not None and m.inference and not modes.inference:
        raise TensorError(
            f"{here}an inference tensor is written to outside of inference_mode(); "
            "instead: use clone()"
        )
    if t.requires_grad and t.is_leaf:
        raise TensorError(
            f"{here}a leaf that requires grad is written to in place: {t._described()}; "
            "instead: write inside tapec.no_grad(), or to a clone()"
        )
    if m is not None and m.path and not m.detached and m.storage is not None and m.storage.leaf:
        raise TensorError(
            f"{here}a view of a leaf that requires grad is written to in place; "
            "instead: write inside tapec.no_grad(), or to a clone()"
        )
    if m is not None and m.path and any(op == "expand" for op, _ in m.path):
        raise TensorError(
            f"{here}an expanded tensor is written to in place, but several of its elements are "
            "one place in memory; instead: use clone()"
        )


def write(t: Tensor, result: Tensor) -> Tensor:
    """Let ``t`` hold ``result``, as every tensor that shares its storage."""
    if result._type.shape != t._type.shape:
        raise TensorValueError(
            f"a result of shape {list(result._type.shape)} doesn't match the shape "
            f"{list(t._type.shape)} of the tensor that is written to"
        )
    if result._type.dtype is not t._type.dtype:
        if "bifc".index(result._type.dtype.kind) > "bifc".index(t._type.dtype.kind):
            raise TensorError(
                f"result type {result.dtype} can't be cast to {t.dtype}, the dtype of the tensor "
                "that is written to"
            )
        result = apply("convert", (result,), t._type.dtype.name)
    s = storage_of(t)
    m = t._meta
    assert m is not None
    writes.count += 1
    _place(s, t)
    _mark(s)
    path = m.path or ()
    leaf = s.leaf
    if path:
        values = [_contents(s)]
        for op, attrs in path[:-1]:
            values.append(apply(op, (values[-1],), attrs))
        new = result
        for (op, attrs), held in zip(reversed(path), reversed(values)):
            new = written_back(op, attrs, held, new)
    else:
        new = result
    if m.detached and new._kind.requires:
        new = _detached(new)
    s.version += 1
    s.take(new)
    if leaf and new._kind.requires:
        s.leaf = False
    was_leaf = leaf and not path and not m.detached and not result._kind.requires
    m.seen = s.version
    m.retains = False
    t._graph, t._index, t._data, t._kind = result._graph, result._index, result._data, result._kind
    t._gid = 0
    m.leaf = False
    if not path and not was_leaf:
        m.node = None
    if was_leaf:
        t._kind = kind_of_input(t._type, True)
        m.leaf = t._graph is not None
    if t._graph is not None and (m.leaf or not t._kind.requires):
        t._graph.wanted.append(weakref.ref(t))
    return t


def _mark(s: Storage) -> None:
    """Tell the graphs that hold values of this storage that they are outdated."""
    for ref, index, version in s.places:
        g = ref()
        if g is not None:
            if g.mutated is None:
                g.mutated = {}
            g.mutated.setdefault(index, (version, s))
    s.places = []


def written_back(op: str, attrs: Any, held: Tensor, new: Tensor) -> Tensor:
    """``held`` after ``new`` has been written to its view ``op``."""
    if op == "slice":
        return apply("slice_write", (held, new), attrs)  # type: ignore[no-any-return]
    if op == "view":
        return apply("view", (new,), held._type.shape)  # type: ignore[no-any-return]
    if op == "permute":
        inverse = [0] * len(attrs)
        for k, axis in enumerate(attrs):
            inverse[axis] = k
        return apply("permute", (new,), tuple(inverse))  # type: ignore[no-any-return]
    if op == "alias":
        return new
    raise TensorError(f"a write through {op} is not supported; instead: use clone()")
