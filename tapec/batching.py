"""``vmap`` and ``vectorize``: a function of one point, applied to many points at once.

``vmap(f)`` is ``jit`` of a function that traces ``f`` on one lane of its arguments, rewrites
the traced function for all lanes (``ir.batch``) and records the result.  Since that happens on
a tape like everything else, it composes with the other transforms in any order.

Invariant: what the function returns for one lane does not depend on the other lanes.

>>> import numpy as np, tapec
>>> tapec.vmap(lambda x, w: np.dot(x, w), in_axes=(0, None))(np.eye(2), np.array([3.0, 4.0]))
array([3., 4.])
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tapec import trees
from tapec.api import jit
from tapec.errors import ConversionError, TapecTypeError, TapecValueError
from tapec.ir.batch import batch_keeping
from tapec.ir.core import DType
from tapec.kinds import PYTHON_SCALARS, supported_dtype
from tapec.primitives import broadcast_to, full, reshape, transpose
from tapec.signature import Flat, Layout, Spec, Static
from tapec.source import describe_site
from tapec.tape import Handle, as_tracer, current_tape, is_traced
from tapec.trace import Constant, parameter_names, trace, where_defined

if TYPE_CHECKING:
    from optree import PyTreeSpec

    from tapec.tape import Tape
    from tapec.tracer import Tracer

__all__ = ["vectorize", "vmap"]

F = TypeVar("F", bound=Callable[..., Any])


class _Lane:
    """The caller's value of one lane, for decisions that Python takes while tracing."""

    __slots__ = ("axis", "tracer")

    def __init__(self, tracer: Tracer, axis: int) -> None:
        self.tracer = tracer
        self.axis = axis

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        whole = self.tracer.tape.value_of(self.tracer.id)
        return np.asarray(np.take(whole, 0, self.axis), dtype)


class Mapped:
    """``fn`` over all lanes; called with a tape active."""

    def __init__(self, fn: Callable[..., Any], in_axes: Any, out_axes: Any) -> None:
        functools.update_wrapper(self, fn, updated=())
        self.in_axes = in_axes
        self.out_axes = out_axes

    @property
    def origin(self) -> tuple[Any, Any]:
        """The user's function, and what else identifies this one."""
        fn, key = self.__wrapped__, _frozen((self.in_axes, self.out_axes))  # type: ignore[attr-defined]
        return fn, ("vmap", key)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        tape = current_tape()
        if tape is None:
            raise RuntimeError("a mapped function runs only while it is traced")
        return self.apply(tape, args, kwargs)

    def apply(self, tape: Tape, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        fn = self.__wrapped__  # type: ignore[attr-defined]
        leaves, treedef = trees.flatten((args, kwargs))
        positional, keywords = trees.children(treedef)
        axes = _prefix(self.in_axes, positional, "in_axes", len(args))
        axes += [None] * keywords.num_leaves
        axes, n = self._sizes(leaves, axes, treedef)
        keys: list[Spec | Static] = []
        given: list[Any] = []
        operands: list[Tracer] = []
        for leaf, axis in zip(leaves, axes):
            if not (is_traced(leaf) or isinstance(leaf, (np.ndarray, np.generic, float, complex))):
                keys.append(Static(type(leaf), leaf))
                given.append(leaf)
                continue
            tracer = as_tracer(tape, leaf)
            operands.append(tracer)
            if axis is None:
                kind = _WEAK[tracer.type.dtype.kind] if tracer.weak else "array"
                keys.append(Spec(kind, tracer.type))
                given.append(tracer)
            else:
                shape = tracer.type.shape
                lane = tracer.type.with_shape(shape[:axis] + shape[axis + 1 :])
                keys.append(Spec("array", lane))
                given.append(_Lane(tracer, axis))
        flat = Flat(given, tuple(keys), Layout(treedef, None, "vmap"))
        traced = trace(fn, flat, getattr(fn, "__name__", "lane").strip("<>"))
        operands += [as_tracer(tape, c) for c in traced.captures]
        mapped = [a for a, key in zip(axes, keys) if type(key) is Spec]
        mapped += [None] * len(traced.captures)
        done, flags = batch_keeping(traced.fn, mapped, n)
        start = len(tape.records)
        values = tape.inline(done, operands)
        if any(op.name == "guard" for op in done.ops):
            _check_guards(tape, start, fn)
        out_axes = _prefix(self.out_axes, traced.treedef, "out_axes")
        results = []
        for x, axis in zip(traced.leaves, out_axes, strict=True):
            if isinstance(x, Constant):
                results.append(_constant(tape, x.value, axis, n))
            else:
                results.append(_placed(values[x.slot], flags[x.slot], axis, n))
        return trees.unflatten(traced.treedef, results)

    def _sizes(
        self, leaves: Sequence[Any], axes: Sequence[int | None], treedef: PyTreeSpec
    ) -> tuple[list[int | None], int]:
        """The axes counted from the front, and the number of lanes."""
        found: list[int | None] = []
        n: int | None = None
        first = ""
        for k, (leaf, axis) in enumerate(zip(leaves, axes, strict=True)):
            if axis is None:
                found.append(None)
                continue
            name = _argument(self.__wrapped__, treedef, k)  # type: ignore[attr-defined]
            if not (is_traced(leaf) or isinstance(leaf, (np.ndarray, np.generic, float, complex))):
                raise TapecTypeError(
                    f"vmap: {name} is {leaf!r}, which has no axis {axis}; instead: in_axes=None "
                    "for arguments that all points share"
                )
            shape = np.shape(leaf)
            if not -len(shape) <= axis < len(shape):
                raise TapecValueError(
                    f"vmap: {name} of shape {shape} has no axis {axis}; instead: in_axes=None "
                    "for arguments that all points share"
                )
            axis %= len(shape)
            if n is None:
                n, first = shape[axis], f"{name} has {shape[axis]} along axis {axis}"
            elif shape[axis] != n:
                raise TapecValueError(
                    f"vmap: inconsistent numbers of points: {first}, "
                    f"{name} has {shape[axis]} along axis {axis}"
                )
            found.append(axis)
        if n is None:
            raise TapecValueError(
                "vmap: no argument is mapped over (in_axes is None everywhere), so the number of "
                "points is not known"
            )
        return found, n


_WEAK = {"f": "float", "i": "int"}


def _argument(fn: Any, treedef: PyTreeSpec, leaf: int) -> str:
    where, first, *rest = trees.leaf_paths(treedef)[leaf]
    names = parameter_names(fn)
    name = f"argument {first!r}"
    if where == 0 and first < len(names):
        name += f" ({names[first]!r})"
    return name + "".join(f"[{k!r}]" for k in rest)


def _frozen(axes: Any) -> Any:
    """A hashable copy of nested tuples, lists and dicts."""
    if isinstance(axes, (tuple, list)):
        return (type(axes), *map(_frozen, axes))
    if isinstance(axes, dict):
        return (dict, *sorted((repr(k), _frozen(v)) for k, v in axes.items()))
    return axes


def _prefix(axes: Any, tree: PyTreeSpec, what: str, args: int | None = None) -> list[int | None]:
    """One axis per leaf of ``tree`` from a tree of axes that may end earlier."""
    if axes is None:
        return [None] * tree.num_leaves
    if isinstance(axes, (int, np.integer)) and not isinstance(axes, bool):
        return [int(axes)] * tree.num_leaves
    if isinstance(axes, (tuple, list, dict)) and not trees.is_leaf(tree):
        children = trees.children(tree)
        items = list(axes)
        if args is not None and len(items) != args:
            raise TapecValueError(
                f"vmap: {what} has {len(items)} entries, but the function was called with "
                f"{args} positional argument{'' if args == 1 else 's'}"
            )
        if isinstance(axes, dict):
            keys = tree.entries()
            if set(keys) == set(axes):
                items = [axes[k] for k in keys]
                return [a for i, c in zip(items, children) for a in _prefix(i, c, what)]
        elif len(items) == len(children):
            return [a for i, c in zip(items, children) for a in _prefix(i, c, what)]
    raise TapecTypeError(
        f"vmap: {what}={axes!r} does not fit the structure {tree}; it is an int, None, or a "
        "container of those like the arguments (results)"
    )


def _check_guards(tape: Tape, start: int, fn: Any) -> None:
    """The caller's points must all take the path of the first one."""
    for record in tape.records[start:]:
        if record is None or record[0] != "guard":
            continue
        try:
            holds = tape.value_of(record[1][0]).item() == record[2]["expected"]
        except ConversionError:
            continue
        if not holds:
            message = record[2]["message"]
            raise TapecValueError(
                f"{describe_site(record[4])}: the points of vmap({getattr(fn, '__name__', fn)}) "
                f"differ in a value that Python decides by"
                f"{f' ({message})' if message else ''}; instead: use np.where, "
                "tapec.cond, tapec.while_loop, or tapec.numpy.array(table)[index]"
            )


def _constant(tape: Tape, value: Any, axis: int | None, n: int) -> Any:
    if axis is None or not isinstance(value, (bool, int, float, complex, np.generic)):
        return value
    dtype: DType = PYTHON_SCALARS.get(type(value)) or supported_dtype(np.asarray(value).dtype)
    if axis not in (0, -1):
        raise TapecValueError(f"vmap: out_axes={axis} for a result without axes")
    return full(tape, (n,), np.asarray(value).item(), dtype)


def _placed(value: Tracer, batched: bool, axis: int | None, n: int) -> Any:
    shape = value.type.shape
    if axis is None:
        if batched:
            raise TapecValueError(
                "vmap: out_axes is None for a result that differs between points; give its "
                "axis, or return something that does not depend on mapped arguments"
            )
        return value
    ndim = len(shape) if batched else len(shape) + 1
    if not -ndim <= axis < ndim:
        raise TapecValueError(f"vmap: out_axes={axis} for a result of {ndim} axes")
    axis %= ndim
    if not batched:
        wide = (*shape[:axis], n, *shape[axis:])
        one = reshape(value, (*shape[:axis], 1, *shape[axis:]))
        return broadcast_to(one, wide)
    rest = list(range(1, ndim))
    return transpose(value, (*rest[:axis], 0, *rest[axis:]))


def vmap(fn: F, in_axes: Any = 0, out_axes: Any = 0) -> F:
    """``fn``, which is written for one point, over an axis of its arguments.

    ``in_axes``: which axis of each positional argument runs over the points, None for
    arguments that all points share; an int for all, or a tuple with one entry per argument,
    each an int, None or a container like the argument.  Keyword arguments are shared.
    ``out_axes``: where that axis stands in the results (int, or a container like the result).

    The function is traced once, for one point, and compiled for all.  ``if`` and ``while``
    on mapped values work as long as all points take the same path; use ``np.where``,
    ``tapec.cond`` or ``tapec.while_loop`` where they differ.

    Raises ``ValueError`` for axes that do not exist or have different lengths.

    >>> import numpy as np, tapec
    >>> tapec.vmap(tapec.grad(lambda x: np.sum(x ** 3)))(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([[ 3., 12.],
           [27., 48.]])
    """
    if not callable(fn):
        raise TapecTypeError(f"vmap expects a function, not a {type(fn).__qualname__}")
    for what, axes in (("in_axes", in_axes), ("out_axes", out_axes)):
        _check_axes(what, axes)
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    made: Any = jit(Mapped(fn, in_axes, out_axes))
    return made  # type: ignore[no-any-return]


def _check_axes(what: str, axes: Any) -> None:
    if axes is None or (isinstance(axes, (int, np.integer)) and not isinstance(axes, bool)):
        return
    if isinstance(axes, (tuple, list, dict)):
        for inner in axes.values() if isinstance(axes, dict) else axes:
            _check_axes(what, inner)
        return
    raise TapecTypeError(f"vmap: {what} holds {axes!r}; axes are ints or None")


# -- vectorize --------------------------------------------------------------------------

_DIM = r"[A-Za-z_]\w*|\d+"
_CORE = re.compile(rf"\(\s*((?:{_DIM})(?:\s*,\s*(?:{_DIM}))*)?\s*\)")


def _parse(side: str, signature: str) -> list[tuple[str, ...]]:
    rest = _CORE.sub("", side).replace(",", "").strip()
    if rest or not side.strip():
        raise TapecValueError(f"vectorize: not a signature like '(n),(n)->()': {signature!r}")
    return [
        tuple(d.strip() for d in m.group(1).split(",")) if m.group(1) else ()
        for m in _CORE.finditer(side)
    ]


class Vectorized:
    """``fn`` over the leading axes that its arguments have beyond their core dimensions."""

    def __init__(self, fn: Callable[..., Any], signature: str | None) -> None:
        functools.update_wrapper(self, fn, updated=())
        self.signature = signature
        self.cores: list[tuple[str, ...]] | None = None
        self.outs: list[tuple[str, ...]] | None = None
        if signature is not None:
            left, arrow, right = signature.partition("->")
            if not arrow:
                raise TapecValueError(
                    f"vectorize: not a signature like '(n),(n)->()': {signature!r}"
                )
            self.cores, self.outs = _parse(left, signature), _parse(right, signature)

    @property
    def origin(self) -> tuple[Any, Any]:
        return self.__wrapped__, ("vectorize", self.signature)  # type: ignore[attr-defined]

    def __call__(self, /, *args: Any) -> Any:
        tape = current_tape()
        if tape is None:
            raise RuntimeError("a vectorized function runs only while it is traced")
        fn = self.__wrapped__  # type: ignore[attr-defined]
        at = where_defined(fn)
        cores = self.cores if self.cores is not None else [()] * len(args)
        if len(cores) != len(args):
            raise TapecTypeError(
                f"vectorize: the signature {self.signature!r} has {len(cores)} arguments, "
                f"{at} was called with {len(args)}"
            )
        dims: dict[str, int] = {}
        tracers = [as_tracer(tape, a) for a in args]
        loops = []
        for k, (x, core) in enumerate(zip(tracers, cores)):
            shape = x.type.shape
            split = len(shape) - len(core)
            if split < 0:
                raise TapecValueError(
                    f"vectorize: argument {k} of shape {shape} has fewer axes than its core "
                    f"({','.join(core)})"
                )
            for name, size in zip(core, shape[split:]):
                wanted = int(name) if name.isdigit() else dims.setdefault(name, size)
                if wanted != size:
                    raise TapecValueError(
                        f"vectorize: core dimension {name} of argument {k} is {size}, "
                        f"elsewhere {wanted}"
                    )
            loops.append(shape[:split])
        loop = np.broadcast_shapes(*loops)
        if not loop:
            return fn(*tracers)
        n = math.prod(loop)
        given: list[Any] = []
        axes: list[int | None] = []
        for x, lead in zip(tracers, loops):
            tail = x.type.shape[len(lead) :]
            if math.prod(lead) == 1 and n != 1:
                given.append(reshape(x, tail))
                axes.append(None)
            else:
                wide = broadcast_to(x, (*loop, *tail))
                given.append(reshape(wide, (n, *tail)))
                axes.append(0)
        out = Mapped(fn, tuple(axes), 0).apply(tape, tuple(given), {})
        leaves, treedef = trees.flatten(out)
        if self.outs is not None and len(self.outs) != len(leaves):
            raise TapecValueError(
                f"vectorize: the signature {self.signature!r} has {len(self.outs)} results, "
                f"{at} returned {len(leaves)}"
            )
        shaped = [
            reshape(as_tracer(tape, v), (*loop, *v.type.shape[1:])) if isinstance(v, Handle) else v
            for v in leaves
        ]
        for v, core in zip(shaped, self.outs or ()):
            inner = v.type.shape[len(loop) :]
            named = [int(d) if d.isdigit() else dims.setdefault(d, s) for d, s in zip(core, inner)]
            if len(core) != len(inner) or tuple(named) != inner:
                raise TapecValueError(
                    f"vectorize: a result of {at} has shape {inner} for its core ({','.join(core)})"
                )
        return trees.unflatten(treedef, shaped)


def vectorize(fn: F | None = None, *, signature: str | None = None) -> Any:
    """``fn`` with NumPy's broadcasting over leading axes, as ``np.vectorize``, compiled.

    ``signature`` names the core dimensions that one call of ``fn`` takes and returns, for
    example ``"(m,n),(n)->(m)"``; without it, ``fn`` takes and returns scalars.

    >>> import numpy as np, tapec
    >>> norm = tapec.vectorize(lambda v: np.sqrt(v @ v), signature="(n)->()")
    >>> norm(np.array([[3.0, 4.0], [6.0, 8.0]]))
    array([ 5., 10.])
    """
    if fn is None:
        return lambda fn: vectorize(fn, signature=signature)
    if not callable(fn):
        raise TapecTypeError(f"vectorize expects a function, not a {type(fn).__qualname__}")
    return jit(Vectorized(fn, signature))
