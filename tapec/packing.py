"""Complex arrays at the boundary of compiled code: one array instead of two parts.

The program of a traced function has two real parameters for a complex array, and two results.
``pack`` gives the same program with one parameter (or result) of pairs, whose memory is that of
the user's complex array: nothing is copied on the way in or out, and native code can check and
return the array itself.

Only arrays are packed; complex numbers stay two numbers.

Invariant: packed leaf k of a call is the complex array that the leaves ``sources[k]`` are the
parts of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tapec import trees
from tapec.ir.core import C64, C128, F32, Function, Type
from tapec.ir.deferred import interleave, result_types, simplify
from tapec.signature import Flat, Layout, Spec
from tapec.transforms import Program, Result

if TYPE_CHECKING:
    from tapec.trace import Traced

__all__ = ["Packed", "pack", "unpacked"]

Array = np.ndarray[Any, Any]


class Packed(NamedTuple):
    """A program for calls with packed leaves, and how to make those of a call."""

    program: Program
    captures: list[Array]
    layout: Layout
    keys: tuple[Any, ...]
    sources: tuple[tuple[int, ...], ...]  #: per packed leaf: the leaves it is made of
    results: tuple[Type, ...]  #: what the caller gets, per result of the program

    def flat(self, flat: Flat) -> Flat:
        """A call with packed leaves."""
        if flat.layout is self.layout:
            return flat
        leaves = [
            flat.leaves[s[0]] if len(s) == 1 else _whole(flat.leaves[s[0]], flat.leaves[s[1]])
            for s in self.sources
        ]
        return Flat(leaves, self.keys, self.layout)


def _whole(re: Any, im: Any) -> Any:
    """The complex array of two parts: the one they are views of, if they are."""
    base = getattr(re, "base", None)
    if _is_part(re, base, 0) and _is_part(im, base, 1):
        return base
    return trees.join(re, im)


def _is_part(part: Any, base: Any, k: int) -> bool:
    """Whether ``part`` is the real (0) or imaginary (1) part of the whole array ``base``."""
    return (
        type(base) is np.ndarray
        and type(part) is np.ndarray
        and part.base is base
        and base.dtype.kind == "c"
        and base.dtype.isnative
        and base.shape == part.shape
        and base.strides == part.strides
        and part.ctypes.data == base.ctypes.data + k * part.itemsize
    )


class _Mark:
    """Leaf number ``k`` of a structure."""

    __slots__ = ("k",)

    def __init__(self, k: int) -> None:
        self.k = k


def _pairs(treedef: Any) -> list[tuple[int, int, bool]]:
    """The numbers of the leaves that are the parts of one, and whether it is their conjugate."""
    found: list[tuple[int, int, bool]] = []

    def note(p: trees.Pair) -> Any:
        if type(p.re) is _Mark and type(p.im) is _Mark:
            found.append((p.re.k, p.im.k, type(p) is trees.Conjugate))
        return p

    trees.map_pairs(note, treedef.unflatten([_Mark(k) for k in range(treedef.num_leaves)]))
    return found


def _merged(treedef: Any, chosen: set[int]) -> tuple[list[int], Any]:
    """The structure with one leaf for each pair whose first leaf is chosen; the leaves left."""
    marks = treedef.unflatten([_Mark(k) for k in range(treedef.num_leaves)])
    tree = trees.map_pairs(lambda p: p.re if type(p.re) is _Mark and p.re.k in chosen else p, marks)
    leaves, merged = trees.flatten(tree)
    return [m.k for m in leaves], merged


def _together(t: Type) -> Type:
    return t.with_dtype(C64 if t.dtype is F32 else C128)


def pack(program: Program, traced: Traced) -> Packed | None:
    """The packed form; None if no complex array is passed in or out."""
    flat, captures = traced.flat, traced.captures
    if program.sweep is not None or program.seeds:
        return None
    position = {leaf: k for k, leaf in enumerate(flat.traced)}
    ins: list[tuple[int, int]] = []
    first: set[int] = set()
    keys: list[Any] = list(flat.keys)
    for i, j, _ in _pairs(flat.layout.treedef):
        a, b = flat.keys[i], flat.keys[j]
        if isinstance(a, Spec) and a == b and a.kind == "array":
            ins.append((position[i], position[j]))
            first.add(i)
            keys[i] = Spec("array", _together(a.type))
    n = len(flat.traced)
    kept: list[Array] = list(captures)
    for i, j in _captured_pairs(captures):
        ins.append((n + i, n + j))
        whole = captures[i].base
        kept[i] = whole.view(captures[i].dtype).reshape((*whole.shape, 2))
    dropped = {q - n for _, q in ins}
    kept = [a for k, a in enumerate(kept) if k not in dropped]
    outs: list[tuple[int, int, bool]] = []
    done: set[int] = set()
    for i, j, conjugate in _pairs(program.treedef):
        re, im = program.leaves[i], program.leaves[j]
        if isinstance(re, Result) and isinstance(im, Result) and re.box == im.box == "array":
            outs.append((re.slot, im.slot, conjugate))
            done.add(i)
    if not ins and not outs:
        return None
    fn = interleave(program.fn, tuple(ins), tuple(outs))
    left, treedef = _merged(program.treedef, done)
    results, slots = _result_slots(program.fn, outs)
    leaves = []
    for k in left:
        x = program.leaves[k]
        leaves.append(Result(slots[x.slot], x.box) if isinstance(x, Result) else x)
    order, arguments = _merged(flat.layout.treedef, first)
    sources = tuple([(k, _partner(flat, k)) if k in first else (k,) for k in order])
    layout = Layout(arguments, flat.layout.wrt or None, "call")
    made = program._replace(fn=simplify(fn), leaves=tuple(leaves), treedef=treedef, raw=None)
    return Packed(made, kept, layout, tuple([keys[k] for k in order]), sources, results)


def _partner(flat: Flat, k: int) -> int:
    return next(j for i, j, _ in _pairs(flat.layout.treedef) if i == k)


def _captured_pairs(captures: Sequence[Any]) -> list[tuple[int, int]]:
    """Captures that are the parts of one array, which native code can read as it is."""
    found = []
    for i, a in enumerate(captures):
        base: Any = getattr(a, "base", None)
        if _is_part(a, base, 0) and base.flags.c_contiguous and base.flags.aligned:
            for j, b in enumerate(captures):
                if _is_part(b, base, 1):
                    found.append((i, j))
                    break
    return found


def _result_slots(
    fn: Function, outs: Sequence[tuple[int, int, bool]]
) -> tuple[tuple[Type, ...], dict[int, int]]:
    """What the caller gets, and the new place of each result that is left."""
    gone = {j for _, j, _ in outs}
    whole = {i for i, _, _ in outs}
    types: list[Type] = []
    slots: dict[int, int] = {}
    for k, t in enumerate(result_types(fn)):
        if k not in gone:
            slots[k] = len(types)
            types.append(_together(t) if k in whole else t)
    return tuple(types), slots


def unpacked(program: Program, traced: Traced) -> Packed:
    """The program as it is, in the same form."""
    flat = traced.flat
    sources = tuple([(k,) for k in range(len(flat.keys))])
    return Packed(
        program, list(traced.captures), flat.layout, flat.keys, sources, result_types(program.fn)
    )
