"""Recording one operation on tensors: ``apply`` for any, ``binary`` and ``unary`` for operators.

``binary`` is the fast path: two operand positions, one look-up in the trie of states, one new
tensor; about a microsecond.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tapec.source import user_site
from tapec.tensors.graph import Const, Graph, TensorError, TensorTypeError, current, modes, place_of

if TYPE_CHECKING:
    from tapec.tensors.tensor import Tensor

__all__ = ["apply", "as_tensor_operand", "binary", "new", "position", "unary"]

_tensor: Any = None  # the Tensor class; set by tapec.tensor
_NUMBERS = frozenset((int, float, bool, complex))


def new(g: Graph, state: Any) -> Tensor:
    """The tensor for the value that has just been recorded."""
    t = _tensor.__new__(_tensor)
    t._graph = g
    t._index = state.index
    t._gid = 0
    t._kind = state
    t._data = None
    t._meta = None
    if g.special:
        _after(g, t)
    return t  # type: ignore[no-any-return]


def position(g: Graph, x: Tensor) -> int:
    """Where ``x`` stands in ``g``; entered if need be."""
    m = x._meta
    if m is not None:
        s = m.storage
        if s is not None and m.seen != s.version:
            x._refresh()
        if m.inference and modes.grad and not modes.inference:
            at = x._slot if x._gid == g.id else g.enter(x)
            if g.untracked is None:
                g.untracked = set()
            g.untracked.add(at)
            g.special = True
            return at
        if m.leaf:
            return x._slot if x._gid == g.id else g.enter(x)
        if m.node is not None and x._graph is not g:
            return x._slot if x._gid == g.id else g.enter(x)
    if x._graph is g:
        return x._index
    if x._gid == g.id:
        return x._slot
    return g.enter(x)


def binary(op: str, x: Any, y: Any, depth: int = 2) -> Any:
    """Record an operation of two operands, of which at least one is a tensor."""
    g = modes.graph
    if g is None:
        g = current()
    if x.__class__ is _tensor:
        i: Any = x._index if x._graph is g and x._meta is None else position(g, x)
    elif x.__class__ in _NUMBERS:
        i = Const(x)
    else:
        x = as_tensor_operand(x)
        if x is None:
            return NotImplemented
        return binary(op, x, y, depth + 1)
    if y.__class__ is _tensor:
        j: Any = y._index if y._graph is g and y._meta is None else position(g, y)
        key: Any = (op, i, j)
    elif y.__class__ in _NUMBERS:
        j = None
        key = (op, i, y.__class__, y) if y else (op, i, y.__class__, repr(y))
    else:
        y = as_tensor_operand(y)
        if y is None:
            return NotImplemented
        return binary(op, x, y, depth + 1)
    special = g.special
    if special and not modes.grad:
        key = (key, 0)
    frame = sys._getframe(depth)
    last = g.state
    if last.first_key == key:
        state: Any = last.first
    else:
        state = None if last.next is None else last.next.get(key)
        if state is None:
            j = Const(y) if j is None else j
            if (i.__class__ is Const or j.__class__ is Const) and _liftable(op, i, j):
                if g.lifted(op, (i, j)):
                    if i.__class__ is Const:
                        i = g.number(i.value)
                    else:
                        j = g.number(j.value)
                    key = (op, i, j) if modes.grad else ((op, i, j), 0)
                    state = g.state.find(key)
            if state is None:
                state = g.grow(key, op, (i, j), None)
    g.state = state
    g.states.append(state)
    g.sites.append(frame.f_code)
    g.places.append(frame.f_lasti)
    t = _tensor.__new__(_tensor)
    t._graph = g
    t._index = state.index
    t._gid = 0
    t._kind = state
    t._data = None
    t._meta = None
    if special:
        _after(g, t)
    return t


def _liftable(op: str, i: Any, j: Any) -> bool:
    """Exponents that are integers stay in the structure: they have rules of their own; and
    so do complex numbers."""
    if any(c.__class__ is Const and c.value.__class__ is complex for c in (i, j)):
        return False
    if op != "pow":
        return True
    return i.__class__ is Const or not float(j.value).is_integer()


def _after(g: Graph, t: Any) -> None:
    """What other modes than plain recording do to a new tensor."""
    if modes.inference:
        from tapec.tensors.tensor import meta_of

        meta_of(t).inference = True
    if g.untracked and t._kind.requires:
        from tapec.autograd.versions import saved_values

        if g.untracked.intersection(saved_values(g, t._index)):
            raise TensorError(
                f"{place_of(g.sites[t._index], g.places[t._index])}: Inference tensors cannot be "
                "saved for backward; instead: use clone() to get a normal tensor"
            )
    if modes.saved_hooks:
        from tapec.autograd.saved import pack_saved

        pack_saved(g, t)


def unary(op: str, x: Tensor, attrs: Any = None, depth: int = 2) -> Tensor:
    """Record an operation of one tensor."""
    g = modes.graph
    if g is None:
        g = current()
    i = x._index if x._graph is g and x._meta is None else position(g, x)
    special = g.special
    key: Any = (op, i, attrs)
    if special and not modes.grad:
        key = (key, 0)
    frame = sys._getframe(depth)
    state = g.state.find(key)
    if state is None:
        state = g.grow(key, op, (i,), attrs)
    g.state = state
    g.states.append(state)
    g.sites.append(frame.f_code)
    g.places.append(frame.f_lasti)
    t = _tensor.__new__(_tensor)
    t._graph = g
    t._index = state.index
    t._gid = 0
    t._kind = state
    t._data = None
    t._meta = None
    if special:
        _after(g, t)
    return t  # type: ignore[no-any-return]


def apply(op: str, operands: Sequence[Any], attrs: Any = None) -> Any:
    """Record an operation of any number of tensors and numbers."""
    g = current()
    places: list[Any] = []
    for x in operands:
        if x.__class__ is _tensor:
            places.append(position(g, x))
        elif x.__class__ in _NUMBERS:
            places.append(Const(x))
        else:
            t = as_tensor_operand(x)
            if t is None:
                raise TensorTypeError(f"{op}: a {type(x).__name__} where a tensor is expected")
            places.append(position(g, t))
    args = tuple(places)
    key: Any = (op, args, attrs) if modes.grad else ((op, args, attrs), 0)
    state = g.push(key, op, args, attrs, user_site(2))
    return new(g, state)


def as_tensor_operand(x: Any) -> Any:
    """Arrays and NumPy scalars as tensors; None for what is not a number."""
    if isinstance(x, _tensor):
        return x
    if isinstance(x, np.ndarray):
        if x.dtype.kind not in "bifc":
            return None
        return _tensor._of(np.array(x, order="C"))
    if isinstance(x, np.generic):
        return x.item() if x.dtype.kind in "bifc" else None
    return None
