"""``saved_tensors_hooks``: what a graph keeps for backward passes through the user's hands.

Inside the context every operation packs what it would save; the packed objects are kept in place
of the arrays, and unpacked when backward runs.
"""

from __future__ import annotations

from typing import Any

from tapec.tensors.graph import Graph, close, modes, switch
from tapec.tensors.tensor import Tensor

__all__ = ["pack_saved", "saved_tensors_hooks", "unpack"]


class saved_tensors_hooks:
    """Call ``pack(tensor)`` for all that is saved for backward, and ``unpack`` when it is used.

    >>> import tapec
    >>> with tapec.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
    ...     y = tapec.tensor(2.0, requires_grad=True) ** 2
    """

    def __init__(self, pack: Any, unpack: Any) -> None:
        self._hooks = (pack, unpack)

    def __enter__(self) -> None:
        close()
        modes.saved_hooks.append(self._hooks)

    def __exit__(self, *exc: object) -> None:
        modes.saved_hooks.pop()
        close()


def pack_saved(g: Graph, t: Tensor) -> None:
    """Pack what the operation that made ``t`` saves.  One graph per operation, so that all its
    saved operands are inputs."""
    if not t._kind.requires:
        close()
        return
    from tapec.autograd.versions import saved_values

    pack, unpack_hook = modes.saved_hooks[-1]
    packed: list[Any] = []
    close()
    hooks = modes.saved_hooks
    modes.saved_hooks = []
    grad = modes.grad
    switch(False, modes.inference)
    try:
        for at in saved_values(g, t._index):
            value = Tensor._of(g.value(at))
            number = g.positions.index(at) if at in g.positions else None
            packed.append((number, pack(value), unpack_hook))
    finally:
        modes.saved_hooks = hooks
        switch(grad, modes.inference)
    g.value(t._index)
    g.packed = packed


def unpack(g: Graph) -> None:
    """Put what ``unpack`` returns in place of the saved inputs."""
    hooks = modes.saved_hooks
    modes.saved_hooks = []
    try:
        for number, obj, hook in g.packed or ():
            value = hook(obj)
            if number is not None:
                g.inputs[number] = value.materialized()
    finally:
        modes.saved_hooks = hooks
