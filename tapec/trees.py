"""Nested containers (pytrees), through ``optree``, imported at the first use.

Tuples, lists, dicts, named tuples and everything registered with ``optree`` (globally, or
in the namespace ``"tapec"``) are containers; the rest are leaves; ``None`` belongs to the
structure and is not a leaf.

>>> leaves, treedef = flatten({"w": 1.0, "b": (2.0, None)})
>>> leaves
[2.0, 1.0]
>>> unflatten(treedef, leaves)
{'w': 1.0, 'b': (2.0, None)}

A complex array, number or traced value is a container of its two real parts, so that
everything below this level sees real leaves only; ``unflatten`` joins them again:

>>> leaves, treedef = flatten([1 + 2j])
>>> leaves
[1.0, 2.0]
>>> unflatten(treedef, leaves)
[(1+2j)]
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from optree import PyTreeSpec

__all__ = [
    "Conjugate", "Pair", "children", "fit", "flatten", "has_pairs", "is_complex", "is_leaf",
    "join", "leaf_paths", "map_pairs", "part_names", "unflatten",
]  # fmt: skip

NAMESPACE = "tapec"


class Pair:
    """The real and imaginary parts of a complex leaf: what ``flatten`` replaces it by."""

    __slots__ = ("im", "re")

    def __init__(self, re: Any, im: Any) -> None:
        self.re = re
        self.im = im


class Conjugate(Pair):
    """Parts that are joined to the conjugate complex value: ``re - 1j * im``."""

    __slots__ = ()


#: Classes of leaves that are never complex; others are looked at.
_REAL = {float, int, bool, str}


def is_complex(leaf: Any) -> bool:
    """Whether a leaf is an array, a number or a traced value of a complex dtype."""
    cls = leaf.__class__
    if cls in _REAL:
        return False
    if cls is complex:
        return True
    if isinstance(leaf, (np.ndarray, np.generic)):
        if leaf.dtype.kind == "O":
            return any(getattr(x.__class__, "is_pair", False) for x in leaf.flat)
        return leaf.dtype.kind == "c"
    return getattr(cls, "is_pair", False)


def _halves(leaf: Any) -> Pair:
    if isinstance(leaf, np.ndarray) and leaf.dtype.kind == "O":
        from tapec.primitives import as_array

        leaf = as_array(leaf)
    return Pair(leaf.real, leaf.imag)


def flatten(tree: Any) -> tuple[list[Any], PyTreeSpec]:
    """The leaves of ``tree`` in a fixed order, and its structure (hashable)."""
    leaves, treedef = _optree().tree_flatten(tree, namespace=NAMESPACE)
    for leaf in leaves:
        if leaf.__class__ not in _REAL and is_complex(leaf):
            halves = [_halves(x) if is_complex(x) else x for x in leaves]
            leaves, treedef = _optree().tree_flatten(treedef.unflatten(halves), namespace=NAMESPACE)
            break
    return leaves, treedef


def join(re: Any, im: Any) -> Any:
    """The complex value of two parts; a ``Pair`` of anything that is not a number."""
    cls = re.__class__
    if cls is float and im.__class__ is float:
        return complex(re, im)
    if isinstance(re, np.ndarray) and isinstance(im, np.ndarray):
        if re.dtype.kind != "f" or re.shape != im.shape:
            return Pair(re, im)
        out = np.empty(re.shape, np.result_type(re.dtype, np.complex64))
        out.real, out.imag = re, im
        return out
    if isinstance(re, np.floating) and isinstance(im, np.floating):
        return np.result_type(re.dtype, np.complex64).type(complex(re, im))
    if re is None and im is None:
        return None
    if getattr(cls, "joins", False) or getattr(im.__class__, "joins", False):
        from tapec.complexes import pair_of

        return pair_of(re, im)
    return Pair(re, im)


def _join_conjugate(re: Any, im: Any) -> Any:
    if isinstance(re, _NUMBERS) or getattr(re.__class__, "joins", False):
        return join(re, -im)
    return Conjugate(re, im)


_NUMBERS = (float, np.ndarray, np.floating)


def _parts_of(p: Any) -> Any:
    return (p.re, p.im), None, ("real", "imag")


_registering = threading.Lock()
_registered: list[bool] = []


@functools.cache
def _optree() -> Any:
    import optree

    with _registering:
        if not _registered:
            _register(optree)
            _registered.append(True)
    return optree


def _register(optree: Any) -> None:
    for cls, make in ((Pair, join), (Conjugate, _join_conjugate)):
        node: Any = cls
        optree.register_pytree_node(
            node,
            _parts_of,
            lambda _, parts, make=make: make(*parts),
            namespace=NAMESPACE,
        )


def map_pairs(f: Callable[[Pair], Any], tree: Any) -> Any:
    """``tree`` with ``f(pair)`` in place of each ``Pair`` (or ``Conjugate``)."""
    leaves, treedef = _optree().tree_flatten(
        tree, is_leaf=lambda x: isinstance(x, Pair), namespace=NAMESPACE
    )
    return treedef.unflatten([f(x) if isinstance(x, Pair) else x for x in leaves])


def part_names(treedef: PyTreeSpec) -> list[str]:
    """For each leaf ``"real"`` or ``"imag"`` if it is a part of a complex leaf, else ``""``."""
    kind: Any = treedef.type
    if kind in (Pair, Conjugate):
        return ["real", "imag"]
    if is_leaf(treedef):
        return [""]
    return [name for child in treedef.children() for name in part_names(child)]


def has_pairs(treedef: PyTreeSpec) -> bool:
    """Whether a leaf is complex."""
    return any(part_names(treedef))


def fit(leaves: Sequence[Any], have: PyTreeSpec, want: PyTreeSpec) -> list[Any] | None:
    """The leaves of a tree of structure ``have`` for one of structure ``want``: real values
    serve as complex ones.  None if the structures differ otherwise."""
    if have == want:
        return list(leaves)
    if is_leaf(have):
        if want.type is not Pair:
            return None
        return [leaves[0], zero_like(leaves[0])]
    inner, wanted = children(have), children(want)
    if have.type is not want.type or len(inner) != len(wanted) or have.entries() != want.entries():
        return None
    found: list[Any] = []
    at = 0
    for one, other in zip(inner, wanted):
        part = fit(leaves[at : at + one.num_leaves], one, other)
        if part is None:
            return None
        found += part
        at += one.num_leaves
    return found


def zero_like(x: Any) -> Any:
    """Zero of the shape and dtype of a leaf."""
    return 0.0 if x.__class__ in (int, float) else np.zeros_like(x)


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
