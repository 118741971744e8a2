"""Structured control flow: ``cond``, ``switch``, ``fori_loop``, ``while_loop``, ``scan``,
``associative_scan``, ``map``, ``checkpoint``.

Inside of a traced function they record one operation whose bodies were traced once, so the
program does not grow with the number of iterations, and a condition is decided when the
program runs.  Bodies may use any traced value around them.  Outside of a trace the same
functions run as jitted calls (a condition that is known just takes its branch).

>>> import numpy as np, tapec
>>> def total(x):
...     return tapec.scan(lambda s, v: (0.5 * s + v, None), 0.0, x)[0]
>>> tapec.grad(total)(np.array([1.0, 2.0, 3.0]))
array([0.25, 0.5 , 1.  ])
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tapec.tape  # noqa: F401  first: it needs nothing of the others
from tapec import primitives, trees
from tapec.bodies import (
    JOBS,
    Body,
    Carry,
    casting,
    leaf_text,
    leaf_types,
    outside,
    record,
    trace_body,
    type_text,
    wider,
)
from tapec.checkpoints import chunk_sizes, chunked
from tapec.errors import TapecTypeError, TapecValueError, fail
from tapec.ir.builder import Builder
from tapec.ir.core import BOOL, I64, Block, Type, Value
from tapec.ir.loops import body_function
from tapec.source import user_site
from tapec.tape import Tape, as_tracer, current_tape, is_traced
from tapec.trace import where_defined

__all__ = [
    "associative_scan", "checkpoint", "cond", "fori_loop", "loop_while", "map", "record_cond",
    "scan", "switch", "while_loop",
]  # fmt: skip

# -- cond and switch --------------------------------------------------------------------


def cond(
    pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any
) -> Any:
    """``true_fun(*operands)`` if ``pred`` else ``false_fun(*operands)``; only one is run.

    Both must return the same structure of arrays.

    >>> import tapec
    >>> f = lambda x: tapec.cond(x > 0, lambda v: v * v, lambda v: -v, x)
    >>> tapec.grad(f)(3.0), tapec.grad(f)(-3.0)
    (6.0, -1.0)
    """
    if not is_traced(pred):
        return (true_fun if pred else false_fun)(*operands)
    tape = current_tape()
    assert tape is not None
    index = as_tracer(tape, pred)
    if index.type.shape:
        raise fail(TapecValueError, f"cond: the condition has shape {index.type.shape}, not ()")
    if index.type.dtype is not BOOL:
        index = index != 0
    return _branch(tape, "cond", index, (false_fun, true_fun), operands)


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """``branches[index](*operands)``, the index being clamped to those there are."""
    branches = tuple(branches)
    if not branches:
        raise TapecValueError("switch: needs at least one branch")
    if not is_traced(index):
        return branches[min(max(int(index), 0), len(branches) - 1)](*operands)
    tape = current_tape()
    assert tape is not None
    which = as_tracer(tape, index)
    if which.type.shape or which.type.dtype.kind not in "bi":
        raise fail(TapecTypeError, f"switch: the index is a {which.type}, not an integer")
    if which.type.dtype is BOOL:
        which = which.astype(np.int64)
    if len(branches) == 1:
        return branches[0](*operands)
    return _branch(tape, "switch", which, branches, operands)


def _branch(
    tape: Tape, name: str, index: Any, branches: Sequence[Callable[..., Any]], operands: Any
) -> Any:
    leaves, treedef = trees.flatten(tuple(operands))
    args, types = leaf_types(tape, leaves)
    bodies = [trace_body(name, fn, treedef, types) for fn in branches]
    first = bodies[0]
    # numbers of Python take the dtype of what the other branches return
    wanted = list(first.types)
    for k, body in enumerate(bodies[1:], 1):
        if body.treedef != first.treedef:
            raise fail(
                TapecTypeError,
                f"{name}: branch 0 ({where_defined(branches[0])}) returns {first.treedef}, "
                f"branch {k} ({where_defined(branches[k])}) returns {body.treedef}",
            )
        for j, (a, b) in enumerate(zip(wanted, body.types)):
            if a is b:
                continue
            if a.shape != b.shape:
                raise fail(
                    TapecTypeError,
                    f"{name}: result {leaf_text(first.treedef, j)} has type {type_text(a)} in "
                    f"branch 0 ({where_defined(branches[0])}) and {type_text(b)} in branch {k} "
                    f"({where_defined(branches[k])})",
                )
            wanted[j] = Type(wider(a, b).dtype, a.shape)
    if any(body.types != wanted for body in bodies):
        bodies = [trace_body(name, casting(fn, wanted), treedef, types) for fn in branches]
    return trees.unflatten(first.treedef, record_cond(tape, index, args, bodies))


def record_cond(tape: Tape, index: Any, args: Sequence[Any], bodies: Sequence[Body]) -> list[Any]:
    """Record a choice between bodies of equal result types, of which each takes ``args`` and what
    it captured."""
    captured: list[Any] = []
    for body in bodies:
        captured += [as_tracer(tape, c) for c in body.captures]
    regions, at = [], 0
    for body in bodies:
        n = len(args)
        given = [*body.block.params[:n]]
        for j, c in enumerate(captured):
            mine = at <= j < at + len(body.captures)
            given.append(body.block.params[n + j - at] if mine else Value(c.type))
        at += len(body.captures)
        regions.append(Block(given, body.block.ops, body.block.results))
    return record(tape, "cond", [index, *args, *captured], {}, regions)


# -- scan -------------------------------------------------------------------------------


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int = 1,
    *,
    checkpoint: int | str | None = None,
) -> tuple[Any, Any]:
    """Fold along the leading axis: ``carry, y = f(carry, x)`` for each ``x`` of ``xs``.

    Returns the last carry and the ys stacked.  ``xs`` may be None if ``length`` is given.
    ``checkpoint=k``: for the gradient, keep the carry of every k-th step only, and compute
    the others again; ``"sqrt"`` chooses k so that memory grows with the square root.
    ``checkpoint="64 kB"`` (or B, MB, GB) keeps so much at most: carries of some steps, in as many
    levels as that takes, each of which costs one more evaluation of the loop.
    ``unroll`` copies the body that many times.
    """
    if current_tape() is None:
        return outside(  # type: ignore[no-any-return]
            "scan", (f, length, reverse, unroll, checkpoint), (init, xs)
        )
    return _scan(f, length, reverse, unroll, checkpoint, init, xs)


def _scan(
    f: Callable[..., Any],
    length: int | None,
    reverse: bool,
    unroll: int,
    checkpoint: int | str | None,
    init: Any,
    xs: Any,
) -> tuple[Any, Any]:
    tape = current_tape()
    assert tape is not None
    x_leaves, x_def = trees.flatten(xs)
    scanned, x_types = leaf_types(tape, x_leaves)
    n = _length(length, x_def, x_types)
    slices = [t.with_shape(t.shape[1:]) for t in x_types]
    carry = Carry(tape, init)
    _, both = trees.flatten((init, xs))
    while True:
        body = trace_body("scan", f, both, [*carry.types, *slices])
        parts = trees.children(body.treedef)
        if body.treedef.type is not tuple or len(parts) != 2:
            raise fail(
                TapecTypeError,
                f"scan: the function at {where_defined(f)} must return (carry, y), a tuple of "
                f"two; it returned {body.treedef}",
            )
        c_def, y_def = parts
        if not carry.widen("scan", f, c_def, body.types[: c_def.num_leaves]):
            break
    captured = [as_tracer(tape, c) for c in body.captures]
    c = len(carry.values)
    block = body.block
    results = _recorded(
        tape, block, carry.values, scanned, captured, n, reverse, checkpoint, unroll
    )
    return (
        trees.unflatten(carry.treedef, results[:c]),
        trees.unflatten(y_def, results[c:]),
    )


def _length(length: int | None, treedef: Any, types: Sequence[Type]) -> int:
    n = None if length is None else int(length)
    for k, t in enumerate(types):
        if not t.shape:
            raise fail(
                TapecValueError, f"scan: xs{leaf_text(treedef, k)} is 0-d: nothing to go along"
            )
        if n is None:
            n = t.shape[0]
        elif t.shape[0] != n:
            raise fail(
                TapecValueError,
                f"scan: xs{leaf_text(treedef, k)} of shape {t.shape} does not have the length {n}",
            )
    if n is None:
        raise fail(TapecValueError, "scan: needs xs or length")
    return n


def _attrs(n: int, c: int, x: int, reverse: bool) -> dict[str, Any]:
    return {"length": n, "n_carry": c, "n_xs": x, "reverse": reverse}


def _recorded(
    tape: Tape,
    block: Block,
    carry: list[Any],
    xs: list[Any],
    consts: list[Any],
    n: int,
    reverse: bool,
    checkpoint: int | str | None,
    unroll: int,
) -> list[Any]:
    """Record a scan, or scans of scans that keep only the carries between chunks."""
    c, x = len(carry), len(xs)
    if unroll > 1 and n and n % unroll == 0:
        block = _unrolled(block, c, x, unroll, reverse)
        xs = [v.reshape((n // unroll, unroll, *v.shape[1:])) for v in xs]
        out = _recorded(tape, block, carry, xs, consts, n // unroll, reverse, checkpoint, 1)
        return out[:c] + [y.reshape((n, *y.shape[2:])) for y in out[c:]]
    operands = [*carry, *xs, *consts]
    sizes = chunk_sizes(checkpoint, block, c, n)
    if not sizes:
        return record(tape, "scan", operands, _attrs(n, c, x, reverse), [block])
    types = [v.type for v in operands]
    return tape.inline(chunked(block, types, c, x, n, reverse, sizes, user_site(1).loc), operands)


def _unrolled(block: Block, c: int, x: int, k: int, reverse: bool) -> Block:
    """``k`` steps as one: the xs and ys get a leading axis of length k."""
    fn = body_function(block)
    b = Builder()
    state = [b.param(p.type, p.hint) for p in block.params[:c]]
    xs = [b.param(p.type.with_shape((k, *p.type.shape)), p.hint) for p in block.params[c : c + x]]
    consts = [b.param(p.type, p.hint) for p in block.params[c + x :]]
    ys: dict[int, list[Value]] = {}
    for t in reversed(range(k)) if reverse else range(k):
        now = []
        for v in xs:
            rest = v.type.shape[1:]
            piece = b.slice(v, (t, *[0] * len(rest)), (1, *rest))
            now.append(b.reshape(piece, rest))
        out = b.inline(fn, [*state, *now, *consts])
        state = out[:c]
        ys[t] = out[c:]
    stacked = []
    for j in range(len(block.results) - c):
        pieces = [b.reshape(ys[t][j], (1, *ys[t][j].type.shape)) for t in range(k)]
        stacked.append(b.concat(pieces, 0))
    return b.block([*state, *stacked])


def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """``f`` applied to each element of ``xs`` along the leading axis, results stacked."""
    return scan(_Mapped(f), None, xs)[1]


class _Mapped:
    """``f`` as the body of a scan; equal for equal ``f``, so that it is compiled once."""

    def __init__(self, f: Callable[[Any], Any]) -> None:
        self.f = f
        self.__name__ = getattr(f, "__name__", "map")
        self.__wrapped__ = f

    def __call__(self, carry: None, x: Any) -> tuple[None, Any]:
        return None, self.f(x)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Mapped) and other.f == self.f

    def __hash__(self) -> int:
        return hash((_Mapped, self.f))


# -- loops ------------------------------------------------------------------------------


def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[[Any, Any], Any],
    init_val: Any,
    *,
    unroll: int = 1,
    checkpoint: int | str | None = None,
) -> Any:
    """``for i in range(lower, upper): val = body_fun(i, val)``; the last ``val``.

    With known bounds the loop has a known length; otherwise it is a ``while_loop``.
    ``unroll`` and ``checkpoint`` as for ``scan``.
    """
    if current_tape() is None:
        if isinstance(lower, (int, np.integer)) and isinstance(upper, (int, np.integer)):
            statics = (body_fun, unroll, checkpoint, int(lower), int(upper))
            return outside("fori_loop", statics, (init_val,))
        raise TapecTypeError("fori_loop: the bounds must be integers")
    return _fori(body_fun, unroll, checkpoint, lower, upper, init_val)


def _fori(
    body_fun: Callable[[Any, Any], Any],
    unroll: int,
    checkpoint: int | str | None,
    lower: Any,
    upper: Any,
    init_val: Any,
) -> Any:
    tape = current_tape()
    assert tape is not None
    if is_traced(lower) or is_traced(upper):
        for bound in (lower, upper):
            if is_traced(bound) and (bound.type.shape or bound.type.dtype.kind != "i"):
                raise fail(TapecTypeError, f"fori_loop: a bound is a {bound.type}, not an integer")
        if checkpoint is not None:
            raise fail(TapecValueError, "fori_loop: checkpoint= needs bounds that are known")
        start = as_tracer(tape, lower).astype(np.int64)

        def test(state: Any) -> Any:
            return state[0] < upper

        def step(state: Any) -> Any:
            return state[0] + 1, body_fun(state[0], state[1])

        step.__wrapped__ = body_fun  # type: ignore[attr-defined]
        return loop_while(test, step, (start, init_val))[1]
    n = max(int(upper) - int(lower), 0)
    first = int(lower)

    def body(carry: Any, i: Any) -> Any:
        i.tape.ranges[i.id] = (0, n)
        return body_fun(i + first if first else i, carry), None

    body.__wrapped__ = body_fun  # type: ignore[attr-defined]
    index = primitives.iota(tape, (n,), 0, I64)
    return _scan(body, n, False, unroll, checkpoint, init_val, index)[0]


def while_loop(
    cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any
) -> Any:
    """``while cond_fun(val): val = body_fun(val)``; the last ``val``.

    Differentiable in both modes: the derivative costs a multiple of the iterations made.

    >>> import tapec
    >>> halve = lambda x: tapec.while_loop(lambda v: v > 1, lambda v: v / 2, x)
    >>> tapec.grad(halve)(6.0)
    0.125
    """
    if current_tape() is None:
        return outside("while_loop", (cond_fun, body_fun), (init_val,))
    return loop_while(cond_fun, body_fun, init_val)


def loop_while(cond_fun: Callable[..., Any], body_fun: Callable[..., Any], init_val: Any) -> Any:
    tape = current_tape()
    assert tape is not None
    carry = Carry(tape, init_val)
    _, args = trees.flatten((init_val,))
    while True:
        body = trace_body("while_loop", body_fun, args, carry.types)
        if not carry.widen("while_loop", body_fun, body.treedef, body.types):
            break
    test = trace_body("while_loop", cond_fun, args, carry.types)
    if len(test.types) != 1 or test.types[0].shape:
        raise fail(
            TapecTypeError,
            f"while_loop: the condition at {where_defined(cond_fun)} must return one bool; it "
            f"returned {', '.join([type_text(t) for t in test.types]) or 'nothing'}",
        )
    if test.types[0].dtype is not BOOL:
        test = trace_body("while_loop", lambda v: cond_fun(v) != 0, args, carry.types)
    c = len(carry.values)
    blocks, captured = [], []
    for mine, other, first in ((test, body, True), (body, test, False)):
        own = list(mine.block.params[c:])
        theirs = [Value(p.type) for p in other.block.params[c:]]
        params = [*mine.block.params[:c], *(own + theirs if first else theirs + own)]
        blocks.append(Block(params, mine.block.ops, mine.block.results))
    captured = [as_tracer(tape, x) for x in (*test.captures, *body.captures)]
    attrs = {"n_carry": (c,), "reads": ((),), "reverse": (False,)}
    results = record(tape, "while", [*carry.values, *captured], attrs, blocks)
    return trees.unflatten(carry.treedef, results)


# -- checkpoint -------------------------------------------------------------------------


def checkpoint(fun: Callable[..., Any]) -> Callable[..., Any]:
    """``fun`` whose gradient keeps only the arguments and computes the rest again."""

    @functools.wraps(fun)
    def again(*args: Any, **kwargs: Any) -> Any:
        tape = current_tape()
        if tape is None:
            return fun(*args, **kwargs)
        leaves, treedef = trees.flatten((args, kwargs))
        traced = [k for k, leaf in enumerate(leaves) if is_traced(leaf)]
        values = [as_tracer(tape, leaves[k]) for k in traced]

        def body(*given: Any) -> Any:
            mine = list(leaves)
            for k, v in zip(traced, given):
                mine[k] = v
            a, kw = trees.unflatten(treedef, mine)
            return fun(*a, **kw)

        _, flat = trees.flatten(tuple(values))
        done = trace_body("checkpoint", body, flat, [v.type for v in values])
        captured = [as_tracer(tape, c) for c in done.captures]
        attrs = {**_attrs(1, 0, 0, False), "remat": True}
        out = record(tape, "scan", [*values, *captured], attrs, [done.block])
        return trees.unflatten(done.treedef, [y.reshape(y.shape[1:]) for y in out])

    return again


# -- associative scan -------------------------------------------------------------------


def associative_scan(
    fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0
) -> Any:
    """All prefixes combined by an associative function of two (structures of) arrays, in a
    logarithmic number of vectorised steps.

    >>> import numpy as np, tapec
    >>> tapec.associative_scan(lambda a, b: a * b, np.array([1.0, 2.0, 3.0]))
    array([1., 2., 6.])
    """
    if current_tape() is None:
        return outside("associative_scan", (fn, reverse, axis), (elems,))
    return _associative(fn, reverse, axis, elems)


def _associative(fn: Callable[[Any, Any], Any], reverse: bool, axis: int, elems: Any) -> Any:
    tape = current_tape()
    assert tape is not None
    leaves, treedef = trees.flatten(elems)
    values = [as_tracer(tape, leaf) for leaf in leaves]
    if not values:
        return elems
    moved: list[Any] = [np.moveaxis(v, axis, 0) for v in values]  # type: ignore[type-var]
    if len({v.shape[0] for v in moved}) > 1:
        raise fail(TapecValueError, "associative_scan: the arrays have different lengths")
    if reverse:
        moved = [v[::-1] for v in moved]

    def combine(a: list[Any], b: list[Any]) -> list[Any]:
        out, _ = trees.flatten(fn(trees.unflatten(treedef, a), trees.unflatten(treedef, b)))
        return out

    def prefixes(v: list[Any]) -> list[Any]:
        n = v[0].shape[0]
        if n < 2:
            return v
        pairs = combine([x[:-1:2] for x in v], [x[1::2] for x in v])
        odd = prefixes(pairs)
        left = odd if n % 2 else [x[:-1] for x in odd]
        even = combine(left, [x[2::2] for x in v]) if n > 2 else [x[:0] for x in v]
        even = [np.concatenate([x[:1], e]) for x, e in zip(v, even)]
        return [_interleave(e, o) for e, o in zip(even, odd)]

    out = prefixes(moved)
    if reverse:
        out = [v[::-1] for v in out]
    return trees.unflatten(treedef, [np.moveaxis(v, 0, axis) for v in out])


def _interleave(even: Any, odd: Any) -> Any:
    n, m = even.shape[0], odd.shape[0]
    shape = (n + m, *even.shape[1:])
    ones = (1,) * (len(shape) - 1)
    zeros = (0,) * (len(shape) - 1)
    return primitives.place(
        [even, odd], shape, [((0, *zeros), (2, *ones)), ((1, *zeros), (2, *ones))]
    )


JOBS.update(associative_scan=_associative, fori_loop=_fori, scan=_scan, while_loop=loop_while)
