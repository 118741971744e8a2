"""What a call looks like to the compiler: ``Flat``, and the signature that selects a variant.

A call's positional and keyword arguments are flattened.  Each leaf is *traced* (arrays,
Python floats and complex numbers, NumPy scalars) and then described by a ``Spec``; or
*static* (bool, int, str and other hashables) and then part of the signature by value,
with its type, so that ``1`` and ``True`` differ.  A leaf that is differentiated must be
traced: a Python ``int`` counts as a ``float`` there, and anything that has no derivative
is a ``TypeError`` that names the argument.

Invariant: two calls of one function with equal ``Flat.key`` may run the same kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tapec import trees
from tapec.errors import TapecTypeError, TapecValueError
from tapec.ir.core import F64, DType, Type, dtype_of

if TYPE_CHECKING:
    from optree import PyTreeSpec

__all__ = [
    "FLOAT", "Flat", "Layout", "Spec", "Static", "argument_names", "describe", "known_array",
    "native_array",
]  # fmt: skip


class Spec(NamedTuple):
    """A traced leaf.  ``kind``: ``float`` (also a Python int that is differentiated),
    ``int`` (only of tracers), ``scalar`` (NumPy scalar) or ``array``."""

    kind: str
    type: Type

    @property
    def weak(self) -> bool:
        """Python scalars take the dtype of what they meet (NEP 50)."""
        return self.kind in ("float", "int")


class Static(NamedTuple):
    """A leaf that is part of the signature."""

    cls: type
    value: Any


Key = Spec | Static

FLOAT = Spec("float", Type(F64))
_arrays: dict[tuple[np.dtype[Any], tuple[int, ...]], Spec] = {}
_scalars: dict[np.dtype[Any], Spec] = {}


def _native_dtype(dtype: np.dtype[Any]) -> DType:
    return dtype_of(dtype.newbyteorder("=") if dtype.kind in "biufc" else dtype)


def known_array(array: np.ndarray[Any, Any]) -> Spec | None:
    """The key of an exact ndarray of a dtype and shape that was seen before."""
    return _arrays.get((array.dtype, array.shape))


def describe(leaf: Any, differentiated: bool, name: Callable[[], str]) -> Key:
    """The key of one leaf; ``name`` says which argument it is, for errors."""
    cls = type(leaf)
    if cls is float:
        return FLOAT
    if cls is np.ndarray:
        spec = _arrays.get((leaf.dtype, leaf.shape))
        if spec is None:
            spec = _describe_array(leaf, name)
        if differentiated and not spec.type.dtype.is_inexact:
            raise _no_derivative(leaf, name())
        return spec
    if cls is int and differentiated:
        return FLOAT
    if isinstance(leaf, np.generic):
        spec = _scalars.get(leaf.dtype)
        if spec is None:
            try:
                spec = Spec("scalar", Type(_native_dtype(leaf.dtype)))
            except TypeError as error:
                raise TapecTypeError(f"{name()}: {error}") from None
            _scalars[leaf.dtype] = spec
        if differentiated and not spec.type.dtype.is_inexact:
            raise _no_derivative(leaf, name())
        return spec
    if isinstance(leaf, np.ndarray):
        _refuse_subclass(leaf, name)
        return describe(leaf.view(np.ndarray), differentiated, name)
    if differentiated:
        raise _no_derivative(leaf, name())
    try:
        hash(leaf)
    except TypeError:
        raise TapecTypeError(
            f"{name()} is a {cls.__qualname__}, which is neither an array, a number, a "
            "registered container nor hashable; register it with "
            "optree.register_pytree_node(..., namespace='tapec') or pass its arrays"
        ) from None
    return Static(cls, leaf)


def _describe_array(array: np.ndarray[Any, Any], name: Callable[[], str]) -> Spec:
    try:
        spec = Spec("array", Type(_native_dtype(array.dtype), array.shape))
    except TypeError as error:
        hint = ""
        if array.dtype.kind in "uif":
            hint = "; convert it with .astype(...)"
        elif array.dtype == object:
            hint = "; give the elements a common dtype with .astype(float)"
        raise TapecTypeError(f"{name()}: {error}{hint}") from None
    if len(_arrays) > 10_000:  # shapes that never come back must not pile up
        _arrays.clear()
    _arrays[array.dtype, array.shape] = spec
    return spec


def _refuse_subclass(array: np.ndarray[Any, Any], name: Callable[[], str]) -> None:
    """Subclasses whose arithmetic differs from ndarray's would silently change meaning."""
    if isinstance(array, np.ma.MaskedArray):
        raise TapecTypeError(
            f"{name()} is a masked array; pass array.filled(...) and a mask, and use np.where"
        )
    if isinstance(array, np.matrix):
        raise TapecTypeError(
            f"{name()} is an np.matrix, whose * and ** differ; pass np.asarray(...)"
        )


def _no_derivative(leaf: Any, name: str) -> TapecTypeError:
    if isinstance(leaf, (np.ndarray, np.generic)):
        return TapecTypeError(
            f"cannot differentiate with respect to {name}: its dtype is {leaf.dtype}; "
            "only real and complex floating-point arrays have a gradient: "
            "convert it with .astype(float), or leave it out of argnums"
        )
    return TapecTypeError(
        f"cannot differentiate with respect to {name}: it is a {type(leaf).__qualname__}; "
        "leave it out of argnums"
    )


def native_array(leaf: Any, spec: Spec) -> np.ndarray[Any, Any]:
    """The leaf as a plain, aligned, C-contiguous array of the machine's byte order."""
    array = np.asarray(leaf, dtype=spec.type.dtype.np, order="C")
    if not array.flags.aligned or type(array) is not np.ndarray:
        array = np.array(array, dtype=spec.type.dtype.np, order="C", copy=True, subok=False)
    return array


class Layout:
    """What is fixed by the structure of a call: which leaf belongs to which argument.

    ``differentiated[i]`` tells whether leaf i is; ``ranges[k]`` are the leaves of
    positional argument k; ``args[k]`` its structure.
    """

    __slots__ = ("args", "differentiated", "keywords", "ranges", "treedef", "wrt")

    def __init__(self, treedef: PyTreeSpec, argnums: Sequence[int] | None, what: str) -> None:
        self.treedef = treedef
        positional, keywords = trees.children(treedef)
        self.args = trees.children(positional)
        self.keywords = keywords
        ranges: list[range] = []
        at = 0
        for child in self.args:
            ranges.append(range(at, at + child.num_leaves))
            at += child.num_leaves
        self.ranges = ranges
        self.wrt: tuple[int, ...] = ()
        if argnums is not None:
            self.wrt = tuple(_position(k, len(ranges), what) for k in argnums)
            if len(set(self.wrt)) < len(self.wrt):
                raise TapecValueError(f"{what}: argnums={tuple(argnums)} names an argument twice")
        mask = [False] * treedef.num_leaves
        for k in self.wrt:
            for i in ranges[k]:
                mask[i] = True
        self.differentiated = tuple(mask)

    def position(self, leaf: int) -> tuple[int, int] | None:
        """``(argument, leaf within it)`` of a positional leaf; None for keywords."""
        for k, r in enumerate(self.ranges):
            if leaf in r:
                return k, leaf - r.start
        return None


def _position(k: int, n: int, what: str) -> int:
    if not -n <= k < n:
        raise TapecTypeError(
            f"{what}: argnums={k}, but it was called with {n} positional argument"
            f"{'' if n == 1 else 's'}; arguments that are differentiated are passed by position"
        )
    return k % n


class Flat:
    """One call, flattened: ``leaves``, their ``keys``, the ``layout``; ``key`` identifies
    the signature."""

    __slots__ = ("key", "keys", "layout", "leaves")

    def __init__(self, leaves: list[Any], keys: tuple[Key, ...], layout: Layout) -> None:
        self.leaves = leaves
        self.keys = keys
        self.layout = layout
        self.key = (layout.treedef, keys)

    @property
    def traced(self) -> list[int]:
        """Positions of the traced leaves."""
        return [i for i, k in enumerate(self.keys) if type(k) is Spec]

    def arrays(self) -> list[np.ndarray[Any, Any]]:
        """The traced leaves as native arrays, in order."""
        return [
            native_array(leaf, k)
            for leaf, k in zip(self.leaves, self.keys, strict=True)
            if type(k) is Spec
        ]


def argument_names(parameters: Sequence[str], layout: Layout) -> list[str]:
    """For each leaf a short name: ``w``, ``params_w``, ``args_0``."""
    names = []
    for path in trees.leaf_paths(layout.treedef):
        where, first, *rest = path
        if where == 0:
            head = parameters[first] if first < len(parameters) else f"arg{first}"
        else:
            head = str(first)
        text = "_".join([head, *map(str, rest)])
        names.append("".join(c if c.isalnum() or c == "_" else "_" for c in text))
    return names
