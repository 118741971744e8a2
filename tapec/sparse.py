"""Sparse derivatives: ``sparsity``, ``sparse_jacobian``, ``sparse_hessian``.

The structure comes from the traced program (``ir.sparsity``), not from values.  Columns or
rows that do not overlap share one derivative product (``coloring``); all products are one
native call with the seeds in a batch axis, which returns only the structural non-zeros.
Structure and colours are found once per signature; a call fills in the numbers.

If the function takes a new path (an ``if`` on a value), its pattern is looked at again, and
joined to the one known so far.

>>> import numpy as np, tapec
>>> f = lambda x: np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)
>>> h = tapec.sparse_hessian(f)
>>> h(np.zeros(4)).nnz, h.colors
(10, 3)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tapec import trees
from tapec.api import grad, jit
from tapec.batching import vmap
from tapec.coloring import bidirectional, columns, star
from tapec.dispatch import Dispatcher, operands
from tapec.errors import TapecTypeError, TapecValueError
from tapec.ir.diagonals import Diagonal, diagonals
from tapec.ir.sparsity import distinct
from tapec.ir.sparsity import sparsity as _sparsity
from tapec.pattern import Pattern
from tapec.points import jvp, vjp
from tapec.primitives import concat, gather, reshape
from tapec.signature import Spec
from tapec.tape import Handle, as_tracer, current_tape
from tapec.trace import Output, Traced, where_defined
from tapec.transforms import Program, Transform, build

__all__ = ["Pattern", "sparse_hessian", "sparse_jacobian", "sparsity"]

Array = np.ndarray[Any, Any]
#: Coefficients that are computed along diagonals, at most, per entry that is one.
DENSE = 2
#: Signatures whose plans are kept.
PLANS = 64


# -- finding patterns -------------------------------------------------------------------


class _Call(NamedTuple):
    """The arguments of a call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class _Path(NamedTuple):
    """The program of the path that some arguments take (of the gradient, for a Hessian)."""

    traced: Traced
    program: Program
    position: int
    slot: int
    pattern: Pattern


def _path(fn: Callable[..., Any], call: _Call, argnum: int, hessian: bool) -> _Path:
    """The path that these arguments take, and its pattern."""
    kind = "grad" if hessian else "jacobian"
    transform = Transform(kind, (argnum,), True)
    dispatcher = Dispatcher(transform, getattr(fn, "__name__", "f").strip("<>"))
    flat = dispatcher.flatten(fn, *call).flat
    traced = dispatcher.trace(fn, flat)
    layout = flat.layout
    leaves = [i for i, d in enumerate(layout.differentiated) if d]
    if len(leaves) != 1 or not trees.is_leaf(layout.args[argnum]):
        raise TapecTypeError(
            f"sparse derivatives are taken by one array; argument {argnum} of "
            f"{where_defined(fn)} is a container of {len(leaves)}"
        )
    position = flat.traced.index(leaves[0])
    if hessian:
        made = build(traced, transform, inline=True)
        slot = 0
    else:
        (leaf,) = traced.leaves if len(traced.leaves) == 1 else (None,)
        if not isinstance(leaf, Output) or not leaf.type.dtype.is_inexact:
            raise TapecTypeError(
                f"sparse_jacobian needs a function that returns one array; {where_defined(fn)} "
                f"returned {traced.treedef}"
            )
        made = build(traced, Transform("jit"), inline=True)
        slot = leaf.slot
    program = made.fn
    values = [leaf for leaf, key in zip(flat.leaves, flat.keys) if isinstance(key, Spec)]
    known = {}
    for k, (p, v) in enumerate(zip(program.params, [*values, *traced.captures], strict=True)):
        if p.type.dtype.kind in "ib":
            concrete = v.tape.value_of(v.id) if isinstance(v, Handle) else v
            known[k] = np.asarray(concrete, p.type.dtype.np)
    rows, cols = _sparsity(program, [position], known)[slot]
    shape = program.results[slot].type.size, program.params[position].type.size
    return _Path(traced, made, position, slot, Pattern(rows, cols, shape))


def sparsity(
    fn: Callable[..., Any], *args: Any, argnums: int = 0, of: str = "jacobian", **kwargs: Any
) -> Pattern:
    """The structural non-zeros of the Jacobian of ``fn`` at ``args`` (``of="hessian"``: of the
    Hessian), without computing it.

    >>> import numpy as np, tapec
    >>> print(tapec.sparsity(lambda x: x[1:] * x[:-1], np.ones(4)).spy())
    ██··
    ·██·
    ··██
    3×4, 6 non-zeros
    """
    if of not in ("jacobian", "hessian"):
        raise TapecValueError(f"sparsity: of is 'jacobian' or 'hessian', not {of!r}")
    return _path(fn, _Call(args, kwargs), argnums, of == "hessian").pattern


# -- compressed evaluation ----------------------------------------------------------------


class _Grown(Exception):
    """A path through the function has entries that the plan does not compute."""

    def __init__(self, pattern: Pattern, diagonals: bool = False) -> None:
        super().__init__()
        self.pattern = pattern
        self.diagonals = diagonals


class _Plan:
    """Pattern, how its entries are computed, and the compiled function, for one signature."""

    def __init__(
        self, owner: _Sparse, pattern: Pattern, shape: tuple[int, ...], stored: Stored | None,
        fixed: bool,
    ) -> None:  # fmt: skip
        self.owner = owner
        self.pattern = pattern
        self.shape = shape
        self.stored = stored
        #: whether the arguments, as far as the pattern depends on them, are shapes alone
        self.fixed = fixed
        matrix = pattern.matrix()
        self.kind = type(matrix)
        self.structure = dict(vars(matrix))
        first = None if stored is None else stored.first
        self.cut = None if first is None else _cut(first, pattern.nnz)
        self.compiled: Any = jit(functools.partial(owner.compressed, self))

    @functools.cached_property
    def colored(self) -> _Colored:
        return _Colored(self.pattern, self.owner.hessian, self.owner.mode, self.shape)


def _cut(first: int, count: int) -> Callable[[Array], Array]:
    """So many elements of an array from the ``first`` on, without a copy."""
    part = slice(first, first + count)
    return lambda x: x.reshape(-1)[part]


class _Colored:
    """The seeds of compressed products, and where each entry is found in the products."""

    def __init__(self, pattern: Pattern, hessian: bool, mode: str, shape: tuple[int, ...]) -> None:
        m, n = pattern.shape
        rows, cols = pattern.rows, pattern.cols
        if hessian:
            colors, read = _symmetric(rows, cols, n)
            by_row = np.zeros(rows.size, bool)
            row_colors = np.zeros(0, np.int64)
            color, at = colors[read[1]], read[0]
        else:
            colors, row_colors, by_row = _choose(rows, cols, (m, n), mode)
            color = np.where(by_row, row_colors[rows] if row_colors.size else 0, colors[cols])
            at = np.where(by_row, cols, rows)
        used = color[~by_row]
        self.forward = int(used.max()) + 1 if used.size else 0
        used = color[by_row]
        self.reverse = int(used.max()) + 1 if used.size else 0
        self.colors = colors.astype(np.int32).reshape(shape)
        self.row_colors = row_colors.astype(np.int32)
        # entry k of the data is element where[k] of the products, one after the other
        width = n if hessian else m
        self.where = _small(
            np.where(by_row, self.forward * width + color * n + at, color * width + at)
        )


def _small(index: Array) -> Array:
    fits = index.size == 0 or index.max() < np.iinfo(np.int32).max
    return index.astype(np.int32) if fits else index


class Stored(NamedTuple):
    """Entry k of the data is element ``where[k]`` of the diagonals' coefficients, which have the
    diagonals in the last axis; ``first``: if these are neighbours, the first of them."""

    keys: list[Diagonal]
    where: Array
    first: int | None


def _stored(keys: list[Diagonal], pattern: Pattern, shape: tuple[int, ...]) -> Stored | None:
    """Where the entries of a pattern are in the coefficients of its diagonals; None where an
    entry is on none of them, or on several."""
    m, n = pattern.shape
    if len(keys) * m > DENSE * pattern.nnz:
        return None
    index = np.indices(shape).reshape(len(shape), m)
    columns = [offset + np.array(strides, np.int64) @ index for offset, strides in keys]
    order = sorted(range(len(keys)), key=lambda k: int(columns[k][m // 2]))
    cells = np.stack([columns[k] for k in order], 1)
    inside = (cells >= 0) & (cells < n)
    wanted = np.where(inside, np.arange(m)[:, None] * n + cells, -1).reshape(-1)
    places = np.flatnonzero(np.isin(wanted, pattern.keys()))
    if places.size != pattern.nnz:
        return None
    sort = np.argsort(wanted[places], kind="stable")
    if not np.array_equal(wanted[places][sort], pattern.keys()):
        return None
    where = places[sort]
    first = int(where[0]) if bool((np.diff(where) == 1).all()) else None
    return Stored([keys[k] for k in order], _small(where), first)


def _seed(tape: Any, colors: Array, color: Any, dtype: Any) -> Any:
    """Ones where the colour is ``color``."""
    return (as_tracer(tape, colors) == color).astype(dtype)


def _symmetric(rows: Array, cols: Array, n: int) -> tuple[Array, tuple[Array, Array]]:
    """Colours of a Hessian's columns, and (row, column) at which each entry is read."""
    # All entries that the products mix, also those above the diagonal that are not read.
    symmetric = distinct(np.concatenate([rows * n + cols, cols * n + rows]))
    i, j = symmetric // max(n, 1), symmetric % max(n, 1)
    plain, stars = columns(i, j, (n, n)), star(i, j, n)
    if plain.size == 0 or plain.max() <= stars.max():
        return plain, (rows, cols)
    # H[i, j] is in the product of j's colour, unless row i has another column of that colour
    keys = np.sort(i * n + stars[j])
    wanted = rows * n + stars[cols]
    single = np.searchsorted(keys, wanted, "right") - np.searchsorted(keys, wanted) == 1
    return stars, (np.where(single, rows, cols), np.where(single, cols, rows))


def _choose(
    rows: Array, cols: Array, shape: tuple[int, int], mode: str
) -> tuple[Array, Array, Array]:
    m, n = shape
    none = np.zeros(0, np.int64)
    found: dict[str, tuple[Array, Array, Array]] = {}
    if mode in ("auto", "forward"):
        found["forward"] = columns(rows, cols, shape), none, np.zeros(rows.size, bool)
    if mode in ("auto", "reverse"):
        found["reverse"] = (
            np.zeros(n, np.int64), columns(cols, rows, (n, m)), np.ones(rows.size, bool)
        )  # fmt: skip
    if mode in ("auto", "both"):
        found["both"] = bidirectional(rows, cols, shape)

    def price(way: str) -> float:
        c, r, by_row = found[way]
        forward = int(c[cols[~by_row]].max()) + 1 if (~by_row).any() else 0
        reverse = int(r[rows[by_row]].max()) + 1 if by_row.any() else 0
        return forward + 1.5 * reverse + (0.5 if forward and reverse else 0)

    return found[min(found, key=price)]


class _Sparse:
    """What ``sparse_jacobian`` and ``sparse_hessian`` return: arguments → CSR matrix."""

    def __init__(
        self, fn: Callable[..., Any], argnum: int, hessian: bool, mode: str, lower: bool,
        pattern: Pattern | None,
    ) -> None:  # fmt: skip
        functools.update_wrapper(self, fn, updated=())
        self.fn = fn
        self.argnum = argnum
        self.hessian = hessian
        self.mode = mode
        self.lower = lower
        self.given = pattern
        self.plans: dict[Any, _Plan] = {}
        self.last: _Plan | None = None
        if hessian:
            self.derived = grad(fn, argnums=argnum)

    @property
    def pattern(self) -> Pattern:
        """The pattern of the last call."""
        return self._plan().pattern

    @property
    def colors(self) -> int:
        """How many colours the pattern of the last call takes."""
        colored = self._plan().colored
        return colored.forward + colored.reverse

    def _plan(self) -> _Plan:
        if self.last is None:
            raise TapecValueError("the pattern is known after the first call")
        return self.last

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The matrix at these arguments: CSR, with structure arrays shared between calls."""
        plan, data = self._data(args, kwargs)
        out = object.__new__(plan.kind)  # what copy.copy does, in a tenth of it
        out.__dict__ = {**plan.structure, "data": data if plan.cut is None else plan.cut(data)}
        return out

    def values(self, *args: Any, **kwargs: Any) -> Array:
        """Only the numbers, in the order of ``pattern``."""
        plan, data = self._data(args, kwargs)
        return data if plan.cut is None else plan.cut(data)

    def _data(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[_Plan, Array]:
        plan = self.last
        if plan is not None and plan.fixed:
            try:
                return plan, plan.compiled(*args, **kwargs)
            except _Grown:
                pass
        return self._planned(_Call(args, kwargs))

    def dump(self, stage: str, /, *args: Any, **kwargs: Any) -> str:
        """The program that computes the numbers at these arguments, as ``jit(f).dump`` gives it."""
        plan, _ = self._data(args, kwargs)
        return str(plan.compiled.dump(stage, *args, **kwargs))

    def _planned(self, call: _Call) -> tuple[_Plan, Array]:
        key, fixed = _signature(call)
        plan = self.plans.get(key)
        for _ in range(64):
            if plan is None:
                plan = self._make(call, self.given, fixed)
            try:
                data = plan.compiled(*call.args, **call.kwargs)
            except _Grown as grown:
                if self.given is not None:
                    raise self._foreign(grown.pattern) from None
                joined = plan.pattern.union(grown.pattern)
                plan = self._make(call, joined, fixed, not grown.diagonals)
                continue
            if len(self.plans) >= PLANS and key not in self.plans:
                del self.plans[next(iter(self.plans))]
            self.plans[key] = self.last = plan
            return plan, data
        raise TapecValueError(f"the pattern of {where_defined(self.fn)} keeps growing")

    def _make(
        self, call: _Call, pattern: Pattern | None, fixed: bool, diagonal: bool = True
    ) -> _Plan:
        if not -len(call.args) <= self.argnum < len(call.args):
            raise TapecTypeError(
                f"argnums={self.argnum}, but there are {len(call.args)} positional arguments"
            )
        path = self._path(call)
        shape = path.program.fn.params[path.position].type.shape
        if pattern is None:
            pattern = path.pattern
        if pattern.shape[1] != math.prod(shape):
            raise TapecValueError(
                f"the given pattern has {pattern.shape[1]} columns, argument {self.argnum} has "
                f"{math.prod(shape)} elements"
            )
        stored = None
        if diagonal and self.mode == "auto" and pattern.nnz:
            found = diagonals(path.program.fn, path.position, path.slot)
            if found is not None:
                stored = _stored(found[1], pattern, path.program.fn.results[path.slot].type.shape)
        return _Plan(self, pattern, shape, stored, fixed)

    def _path(self, call: _Call) -> _Path:
        path = _path(self.fn, call, self.argnum, self.hessian)
        return path._replace(pattern=path.pattern.lower()) if self.lower else path

    def _foreign(self, found: Pattern) -> TapecValueError:
        assert self.given is not None
        return TapecValueError(
            f"the given pattern ({self.given.shape}, {self.given.nnz} non-zeros) is not that of "
            f"{where_defined(self.fn)} ({found.shape}, {found.nnz} non-zeros)"
        )

    def compressed(self, plan: _Plan, *args: Any, **kwargs: Any) -> Any:
        """Traced once per path: the structural non-zeros."""
        path = self._path(_Call(args, kwargs))
        same = np.shape(args[self.argnum]) == plan.shape
        same = same and _signature(_Call(args, kwargs))[1] >= plan.fixed
        if not same or not plan.pattern.contains(path.pattern):
            raise _Grown(path.pattern)
        if not plan.pattern.nnz:
            return np.zeros(0)
        if plan.stored is not None:
            return _coefficients(plan.stored, path)
        colored = plan.colored
        k = self.argnum % len(args)

        def at(x: Any) -> Any:
            f = self.derived if self.hessian else self.fn
            return f(*args[:k], x, *args[k + 1 :], **kwargs)

        x = args[k]
        products = []
        if colored.forward:

            def push(color: Any) -> Any:
                seed = _seed(color.tape, colored.colors, color, x.dtype)
                return jvp(at, (x,), (seed,))[1]

            products.append(vmap(push)(np.arange(colored.forward, dtype=np.int32)).reshape(-1))
        if colored.reverse:
            out, pull = vjp(at, x)

            def pulled(color: Any) -> Any:
                colors = colored.row_colors.reshape(np.shape(out))
                return pull(_seed(color.tape, colors, color, out.dtype))[0]

            products.append(vmap(pulled)(np.arange(colored.reverse, dtype=np.int32)).reshape(-1))
        flat = products[0] if len(products) == 1 else concat(products, 0)
        return gather(flat, [as_tracer(flat.tape, colored.where)], (0,))


def _coefficients(stored: Stored, path: _Path) -> Any:
    """Recorded in the outer trace: the entries, from the coefficients along diagonals."""
    found = diagonals(path.program.fn, path.position, path.slot)
    if found is None or not set(found[1]) <= set(stored.keys):
        raise _Grown(path.pattern, diagonals=True)
    fn, keys = found
    tape = current_tape()
    assert tape is not None
    values = dict(zip(keys, tape.inline(fn, operands(tape, path.traced)), strict=True))
    shape = (*path.program.fn.results[path.slot].type.shape, 1)
    none = None
    pieces = []
    for key in stored.keys:
        if key in values:
            pieces.append(reshape(values[key], shape))
        else:
            if none is None:
                none = np.zeros(shape, path.program.fn.results[path.slot].type.dtype.np)
            pieces.append(as_tracer(tape, none))
    flat = concat(pieces, len(shape) - 1)
    if stored.first is not None:
        return flat  # the entries are cut out of it without a copy
    return gather(reshape(flat, (flat.type.size,)), [as_tracer(tape, stored.where)], (0,))


def _signature(call: _Call) -> tuple[Any, bool]:
    """What a plan depends on, and whether this is types and shapes alone."""
    leaves, treedef = trees.flatten(tuple(call))
    keys: list[Any] = []
    fixed, held = True, None  # type: bool, Any
    for leaf in leaves:
        if isinstance(leaf, Handle):  # while the products are traced
            held = None if leaf.type.dtype.is_inexact else leaf.type
            keys.append((leaf.type, held))
        elif isinstance(leaf, np.ndarray):
            # Arrays of integers may be indices: the pattern depends on what they hold.
            held = leaf.tobytes() if leaf.dtype.kind in "iub" else None
            keys.append((leaf.dtype, leaf.shape, held))
        else:
            held = None if isinstance(leaf, float) else leaf
            keys.append((type(leaf), held))
        fixed = fixed and held is None
    return (treedef, tuple(keys)), fixed


def _checked(fn: Any, argnums: Any, pattern: Any, what: str) -> int:
    if not callable(fn):
        raise TapecTypeError(f"{what} expects a function, not a {type(fn).__qualname__}")
    if not isinstance(argnums, (int, np.integer)) or isinstance(argnums, bool):
        raise TapecTypeError(f"{what}: argnums is one position, not {argnums!r}")
    if pattern is not None and not isinstance(pattern, Pattern):
        raise TapecTypeError(f"{what}: pattern is a Pattern, not a {type(pattern).__qualname__}")
    return int(argnums)


def sparse_jacobian(
    fn: Callable[..., Any], argnums: int = 0, *, mode: str = "auto", pattern: Pattern | None = None
) -> _Sparse:
    """The Jacobian of an array function as a ``scipy.sparse`` CSR matrix.

    Rows count the elements of the result, columns those of the argument (in C order).
    ``mode``: ``forward`` (columns share products), ``reverse`` (rows do), ``both``, or ``auto``
    for the cheapest.  ``pattern``: one that was saved, instead of finding it.

    The returned callable has ``pattern``, ``colors``, ``values(*args)`` and ``dump(stage, *args)``.
    """
    k = _checked(fn, argnums, pattern, "sparse_jacobian")
    if mode not in ("auto", "forward", "reverse", "both"):
        raise TapecValueError(f"sparse_jacobian: no mode {mode!r}")
    return _Sparse(fn, k, False, mode, False, pattern)


def sparse_hessian(
    fn: Callable[..., Any], argnums: int = 0, *, lower: bool = False, pattern: Pattern | None = None
) -> _Sparse:
    """The Hessian of a scalar function as a ``scipy.sparse`` CSR matrix.

    ``lower``: only the entries on and below the diagonal.  For the Hessian of a Lagrangian
    ``sigma * f(x) + lam @ g(x)``, give that function (its first argument is ``x``).
    """
    k = _checked(fn, argnums, pattern, "sparse_hessian")
    return _Sparse(fn, k, True, "auto", lower, pattern)
