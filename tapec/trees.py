"""Nested containers (pytrees), through ``optree``, imported at the first use.

Tuples, lists, dicts, named tuples and everything registered with ``optree`` (globally, or
in the namespace ``"tapec"``) are containers; the rest are leaves; ``None`` belongs to the
structure and is not a leaf.

>>> leaves, treedef = flatten({"w": 1.0, "b": (2.0, None)})
>>> leaves
[2.0, 1.0]
>>> unflatten(treedef, leaves)
{'w': 1.0, 'b': (2.0, None)}
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optree import PyTreeSpec

__all__ = ["children", "flatten", "is_leaf", "leaf_paths", "unflatten"]

NAMESPACE = "tapec"


def flatten(tree: Any) -> tuple[list[Any], PyTreeSpec]:
    """The leaves of ``tree`` in a fixed order, and its structure (hashable)."""
    leaves, treedef = _optree().tree_flatten(tree, namespace=NAMESPACE)
    return leaves, treedef


@functools.cache
def _optree() -> Any:
    import optree

    return optree


def unflatten(treedef: PyTreeSpec, leaves: Iterable[Any]) -> Any:
    """The inverse of ``flatten``."""
    return treedef.unflatten(leaves)


def is_leaf(treedef: PyTreeSpec) -> bool:
    """Whether the structure is a single leaf (not a container)."""
    return bool(treedef.is_leaf())


def children(treedef: PyTreeSpec) -> list[PyTreeSpec]:
    """The structures directly inside a container."""
    return list(treedef.children())


def leaf_paths(treedef: PyTreeSpec) -> list[tuple[Any, ...]]:
    """For each leaf, the keys that lead to it: ``(0, 'w')``."""
    return list(treedef.paths())
