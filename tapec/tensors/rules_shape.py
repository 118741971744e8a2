"""Rules of reductions, shapes, indexing, products and losses; see ``rules``.

Dimensions in attributes are already normalised: not negative, sorted where a set is meant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import tapec.tape  # noqa: F401  before the modules that it imports in a circle
from tapec import primitives as p
from tapec.ir.core import BOOL, I64
from tapec.numpy.ufuncs import absolute_square, guarded_sqrt
from tapec.primitives import binary, cast, reduce, reshape, select, unary
from tapec.tape import Tape
from tapec.tensors.graph import TensorError, TensorValueError
from tapec.tensors.rules import RULES, as_float, number, promote, result_dtype, rule
from tapec.tracer import FUNCTIONS, UFUNCS, Tracer

__all__ = ["log_softmax", "logsumexp"]

Args = Sequence[Any]


def _keep(x: Tracer, result: Tracer, dims: Sequence[int], keep: bool) -> Tracer:
    if not keep:
        return result
    return reshape(result, [1 if k in dims else n for k, n in enumerate(x.type.shape)])


def _reduction(op: str, kind: str, name: str, saved: str, floating: bool = False) -> None:
    def lower(tape: Tape, args: Args, attrs: Any) -> Tracer:
        dims, keep = attrs
        x = args[0]
        if kind in ("any", "all"):
            x = x if x.type.dtype is BOOL else binary("ne", x, 0)
        elif kind in ("sum", "prod"):
            x = as_float(tape, x) if floating else x
            x = cast(x, I64) if x.type.dtype.kind in "bi" else x
        elif x.type.dtype is BOOL:
            kind_ = {"max": "any", "min": "all"}[kind]
            return _keep(x, reduce(kind_, x, dims), dims, keep)
        return _keep(x, reduce(kind, x, dims), dims, keep)

    rule(op, name, saved, kind not in ("any", "all"))(lower)


_reduction("sum", "sum", "Sum", "")
_reduction("prod", "prod", "Prod", "0r")
_reduction("amax", "max", "Amax", "0r")
_reduction("amin", "min", "Amin", "0r")
_reduction("any", "any", "Any", "")
_reduction("all", "all", "All", "")


def _count(x: Tracer, dims: Sequence[int]) -> int:
    n = 1
    for k in dims:
        n *= x.type.shape[k]
    return n


@rule("mean", "Mean", "")
def _mean(tape: Tape, args: Args, attrs: Any) -> Tracer:
    dims, keep = attrs
    x = args[0]
    if not x.type.dtype.is_inexact:
        raise TensorError(
            f"mean(): the input must be floating point, not {x.type.dtype}; "
            "convert it with .to(tapec.float64)"
        )
    n = _count(x, dims)
    return binary("div", _keep(x, reduce("sum", x, dims), dims, keep), float(n))


@rule("var", "Var", "0")
def _var(tape: Tape, args: Args, attrs: Any) -> Tracer:
    dims, keep, correction = attrs
    x = as_float(tape, args[0])
    n = _count(x, dims)
    center = binary("div", _keep(x, reduce("sum", x, dims), dims, True), float(n))
    d = binary("sub", x, center)
    total = _keep(x, reduce("sum", absolute_square(d), dims), dims, keep)
    return binary("div", total, float(max(n - correction, 0)))


@rule("std", "Std", "0r")
def _std(tape: Tape, args: Args, attrs: Any) -> Tracer:
    return guarded_sqrt(_var(tape, args, attrs))


def _extremum_along(op: str, kind: str) -> None:
    """Values of ``max(dim)``: the gradient goes to the element at the index that is returned."""

    def lower(tape: Tape, args: Args, attrs: Any) -> Tracer:
        (dim,), keep = attrs
        x = args[0]
        where = p.emit("arg" + kind, (x,), {"axis": dim})
        return _keep(x, _along(x, where, dim), (dim,), keep)

    rule(op, kind.capitalize(), "")(lower)


def _along(x: Tracer, where: Tracer, dim: int) -> Tracer:
    """x[..., where, ...] with one index per line along ``dim``."""
    shape = where.type.shape
    indices = []
    axis = 0
    for k in range(x.type.ndim):
        if k == dim:
            indices.append(where)
        else:
            indices.append(p.iota(x.tape, shape, axis))
            axis += 1
    return p.gather(x, indices, range(x.type.ndim))


_extremum_along("max_values", "max")
_extremum_along("min_values", "min")


def _index_along(op: str) -> None:
    def lower(tape: Tape, args: Args, attrs: Any) -> Tracer:
        dims, keep = attrs
        x = args[0]
        if x.type.dtype is BOOL:
            x = cast(x, I64)
        if dims is None:
            found = p.emit(op, (reshape(x, (x.type.size,)),), {"axis": 0})
            return _keep(x, found, range(x.type.ndim), keep)
        return _keep(x, p.emit(op, (x,), {"axis": dims[0]}), dims, keep)

    rule(op, op.capitalize(), "", False)(lower)


_index_along("argmax")
_index_along("argmin")


@rule("cumsum", "Cumsum", "")
def _cumsum(tape: Tape, args: Args, attrs: Any) -> Tracer:
    x = args[0]
    x = cast(x, I64) if x.type.dtype.kind in "bi" else x
    return p.emit("cumsum", (x,), {"axis": attrs, "reverse": False})


@rule("cumprod", "Cumprod", "0r")
def _cumprod(tape: Tape, args: Args, attrs: Any) -> Tracer:
    return FUNCTIONS[np.cumprod](args[0], attrs)  # type: ignore[no-any-return]


@rule("norm", "LinalgVectorNorm", "0r")
def _norm(tape: Tape, args: Args, attrs: Any) -> Tracer:
    order, dims, keep = attrs
    x = as_float(tape, args[0])
    n = order.value
    if n == 2:
        return guarded_sqrt(_keep(x, reduce("sum", absolute_square(x), dims), dims, keep))
    size = unary("abs", x)
    if n == math.inf:
        return _keep(x, reduce("max", size, dims), dims, keep)
    if n == -math.inf:
        return _keep(x, reduce("min", size, dims), dims, keep)
    if n == 0:
        there = cast(binary("ne", x, 0), size.type.dtype)
        return _keep(x, reduce("sum", there, dims), dims, keep)
    if n == 1:
        return _keep(x, reduce("sum", size, dims), dims, keep)
    power = UFUNCS[np.power]
    total = _keep(x, reduce("sum", power(size, float(n)), dims), dims, keep)
    at_zero = binary("eq", total, 0.0)
    root = power(select(at_zero, number(tape, 1.0, x.type.dtype), total), 1.0 / float(n))
    return select(at_zero, number(tape, 0.0, x.type.dtype), root)


def _shift(x: Tracer, dims: Sequence[int]) -> Tracer:
    """A number per line within 1 of its maximum, that carries no derivative."""
    top = unary("ceil", _keep(x, reduce("max", x, dims), dims, True))
    finite = unary("not", binary("or", unary("isnan", top), unary("isinf", top)))
    return select(finite, top, number(x.tape, 0.0, x.type.dtype))


def logsumexp(x: Tracer, dims: Sequence[int], keep: bool) -> Tracer:
    top = _shift(x, dims)
    total = _keep(x, reduce("sum", unary("exp", binary("sub", x, top)), dims), dims, True)
    # all minus infinity: the value is -inf and the derivative 0
    empty = binary("eq", total, 0.0)
    safe = select(empty, number(x.tape, 1.0, x.type.dtype), total)
    low = number(x.tape, -math.inf, x.type.dtype)
    result = binary("add", select(empty, low, unary("log", safe)), top)
    if keep:
        return result
    return reshape(result, [n for k, n in enumerate(x.type.shape) if k not in dims])


@rule("logsumexp", "Logsumexp", "0r")
def _logsumexp(tape: Tape, args: Args, attrs: Any) -> Tracer:
    dims, keep = attrs
    return logsumexp(as_float(tape, args[0]), dims, keep)


@rule("softmax", "Softmax", "r")
def _softmax(tape: Tape, args: Args, attrs: Any) -> Tracer:
    x = as_float(tape, args[0])
    e = unary("exp", binary("sub", x, _shift(x, (attrs,))))
    return binary("div", e, _keep(x, reduce("sum", e, (attrs,)), (attrs,), True))


def log_softmax(x: Tracer, dim: int) -> Tracer:
    shifted = binary("sub", x, _shift(x, (dim,)))
    total = _keep(x, reduce("sum", unary("exp", shifted), (dim,)), (dim,), True)
    return binary("sub", shifted, unary("log", total))


@rule("log_softmax", "LogSoftmax", "r")
def _log_softmax(tape: Tape, args: Args, attrs: Any) -> Tracer:
    return log_softmax(as_float(tape, args[0]), attrs)


# -- shapes -----------------------------------------------------------------------------------


@rule("view", "View", "")
def _view(tape: Tape, args: Args, attrs: Any) -> Tracer:
    x = args[0]
    try:
        return reshape(x, attrs)
    except ValueError:
        raise TensorValueError(
            f"shape {list(attrs)} is invalid for a tensor of {x.type.size} elements"
        ) from None


@rule("permute", "Permute", "")
def _permute(tape: Tape, args: Args, attrs: Any) -> Tracer:
    return p.transpose(args[0], attrs)


@rule("expand", "Expand", "")
def _expand(tape: Tape, args: Args, attrs: Any) -> Tracer:
    return p.broadcast_to(args[0], attrs)


@rule("sum_to", "SumTo", "")
def _sum_to(tape: Tape, args: Args, attrs: Any) -> Tracer:
    x = args[0]
    lead = x.type.ndim - len(attrs)
    dims = [*range(lead), *[lead + k for k, n in enumerate(attrs) if n != x.type.shape[lead + k]]]
    return reshape(reduce("sum", x, dims), attrs)


@rule("slice", "Slice", "")
def _slice(tape: Tape, args: Args, attrs: Any) -> Tracer:
    """attrs: start, size, step per axis, and the shape of the result."""
    start, size, step, shape = attrs
    return reshape(p.slice_(args[0], start, size, step), shape)


@rule("slice_write", "CopySlices", "")
def _slice_write(tape: Tape, args: Args, attrs: Any) -> Tracer:
    x, new = args
    start, size, step, _ = attrs
    piece = reshape(cast(new, x.type.dtype), size)
    if size == x.type.shape and all(s == 1 for s in step):
        return piece
    ones = p.full(tape, size, True, BOOL)
    spot = p.place([cast(ones, I64)], x.type.shape, [(start, step)])
    return select(binary("gt", spot, 0), p.place([piece], x.type.shape, [(start, step)]), x)


@rule("flip", "Flip", "")
def _flip(tape: Tape, args: Args, attrs: Any) -> Tracer:
    return FUNCTIONS[np.flip](args[0], attrs)  # type: ignore[no-any-return]


@rule("cat", "Cat", "")
def _cat(tape: Tape, args: Args, attrs: Any) -> Tracer:
    dtype = result_dtype(args)
    return p.concat([cast(a, dtype) for a in args], attrs)


@rule("stack", "Stack", "")
def _stack(tape: Tape, args: Args, attrs: Any) -> Tracer:
    dtype = result_dtype(args)
    shape = list(args[0].type.shape)
    shape.insert(attrs, 1)
    return p.concat([reshape(cast(a, dtype), shape) for a in args], attrs)


def _numpy_rule(op: str, name: str, function: Any) -> None:
    def lower(tape: Tape, args: Args, attrs: Any) -> Tracer:
        return FUNCTIONS[function](*args, *attrs)  # type: ignore[no-any-return]

    rule(op, name, "")(lower)


_numpy_rule("tril", "Tril", np.tril)
_numpy_rule("triu", "Triu", np.triu)
_numpy_rule("diag", "Diag", np.diag)
_numpy_rule("diagonal", "Diagonal", np.diagonal)
_numpy_rule("roll", "Roll", np.roll)
_numpy_rule("repeat", "Repeat", np.tile)
_numpy_rule("repeat_interleave", "RepeatInterleave", np.repeat)


# -- indexing: index operands are integers, in range by a guard -----------------------------------


def _ranged(index: Tracer, n: int) -> Tracer:
    """Negative indices count from the end; others out of range fail the guard."""
    index = cast(index, I64)
    if index.type.size == 0:
        return index
    low, high = binary("ge", index, -n), binary("lt", index, n)
    good = binary("and", low, high)
    good = reduce("all", good, range(good.type.ndim))
    index.tape.guard(good, True, f"index out of range for a dimension of size {n}")
    return select(binary("lt", index, 0), binary("add", index, n), index)


@rule("index", "Index", "", fixed=tuple(range(1, 33)))
def _index(tape: Tape, args: Args, attrs: Any) -> Tracer:
    """x[i0, i1, ...] with integer arrays on the axes ``attrs``, which follow each other: the
    broadcast index shape takes the place of the first."""
    x, indices = args[0], args[1:]
    shape = np.broadcast_shapes(*[i.type.shape for i in indices])
    where = [p.broadcast_to(_ranged(i, x.type.shape[a]), shape) for i, a in zip(indices, attrs[0])]
    out = p.gather(x, where, attrs[0])
    first, n = attrs[1], len(shape)
    if first:
        rest = out.type.ndim - n
        perm = [*range(n, n + first), *range(n), *range(n + first, n + rest)]
        out = p.transpose(out, perm)
    return out


@rule("gather", "Gather", "", fixed=(1,))
def _gather(tape: Tape, args: Args, attrs: Any) -> Tracer:
    x, index = args
    shape = index.type.shape
    where = [
        _ranged(index, x.type.shape[k]) if k == attrs else p.iota(tape, shape, k)
        for k in range(x.type.ndim)
    ]
    return p.gather(x, where, range(x.type.ndim))


@rule("scatter_add", "ScatterAdd", "", fixed=(1,))
def _scatter_add(tape: Tape, args: Args, attrs: Any) -> Tracer:
    x, index, source = args
    shape = index.type.shape
    if source.type.shape != shape:
        source = p.slice_(source, (0,) * len(shape), shape)
    where = [
        _ranged(index, x.type.shape[k]) if k == attrs else p.iota(tape, shape, k)
        for k in range(x.type.ndim)
    ]
    return p.scatter_add(x, cast(source, x.type.dtype), where, range(x.type.ndim))


@rule("put", "IndexPut", "", fixed=(2, 3))
def _put(tape: Tape, args: Args, attrs: Any) -> Tracer:
    """Flat positions (each once) take new values: x, values, positions, mask of hits."""
    x, values, where, hit = args
    flat = reshape(x, (x.type.size,))
    kept = select(hit, number(tape, 0, x.type.dtype), flat)
    values = reshape(cast(values, x.type.dtype), (values.type.size,))
    return reshape(p.scatter_add(kept, values, [where], [0]), x.type.shape)


@rule("put_add", "IndexPut", "", fixed=(2,))
def _put_add(tape: Tape, args: Args, attrs: Any) -> Tracer:
    x, values, where = args
    flat = reshape(x, (x.type.size,))
    values = reshape(cast(values, x.type.dtype), (values.type.size,))
    return reshape(p.scatter_add(flat, values, [where], [0]), x.type.shape)


@rule("one_hot", "OneHot", "", False)
def _one_hot(tape: Tape, args: Args, attrs: Any) -> Tracer:
    i = args[0]
    shape = (*i.type.shape, attrs)
    return cast(
        binary("eq", reshape(i, (*i.type.shape, 1)), p.iota(tape, shape, len(shape) - 1)), I64
    )


# -- products -----------------------------------------------------------------------------------


@rule("matmul", "Mm", "0*1*")
def _matmul(tape: Tape, args: Args, attrs: Any) -> Tracer:
    x, y = args
    if x.type.dtype is not y.type.dtype:
        raise TensorError(
            f"matmul: both must have one dtype, got {x.type.dtype} and {y.type.dtype}; "
            "convert one with .to()"
        )
    try:
        return UFUNCS[np.matmul](x, y)  # type: ignore[no-any-return]
    except ValueError:
        raise TensorValueError(
            f"matmul: shapes {list(x.type.shape)} and {list(y.type.shape)} cannot be multiplied"
        ) from None


@rule("linear", "Addmm", "0*1*")
def _linear(tape: Tape, args: Args, attrs: Any) -> Tracer:
    x, w = args[0], args[1]
    if x.type.shape[-1:] != w.type.shape[1:]:
        raise TensorValueError(
            f"linear: input of shape {list(x.type.shape)} does not fit a weight of shape "
            f"{list(w.type.shape)}"
        )
    y = p.dot(x, w, ([x.type.ndim - 1], [1]))
    return y if len(args) == 2 else binary("add", y, args[2])


@rule("einsum", "Einsum", "01")
def _einsum(tape: Tape, args: Args, attrs: Any) -> Tracer:
    return FUNCTIONS[np.einsum](attrs, *promote(tape, args))  # type: ignore[no-any-return]


@rule("outer", "Outer", "0*1*")
def _outer(tape: Tape, args: Args, attrs: Any) -> Tracer:
    return FUNCTIONS[np.outer](*promote(tape, args))  # type: ignore[no-any-return]


# -- losses -------------------------------------------------------------------------------------


def _reduced(x: Tracer, how: str) -> Tracer:
    if how == "none":
        return x
    total = reduce("sum", x, range(x.type.ndim))
    if how == "sum":
        return total
    return binary("div", total, float(x.type.size))


@rule("mse_loss", "MseLoss", "01")
def _mse(tape: Tape, args: Args, attrs: Any) -> Tracer:
    x, y = promote(tape, args, True)
    d = binary("sub", x, y)
    return _reduced(binary("mul", d, d), attrs)


@rule("l1_loss", "L1Loss", "01")
def _l1(tape: Tape, args: Args, attrs: Any) -> Tracer:
    x, y = promote(tape, args, True)
    return _reduced(unary("abs", binary("sub", x, y)), attrs)


@rule("huber_loss", "HuberLoss", "01")
def _huber(tape: Tape, args: Args, attrs: Any) -> Tracer:
    how, delta, smooth = attrs[0], attrs[1].value, attrs[2]
    x, y = promote(tape, args, True)
    d = binary("sub", x, y)
    size = unary("abs", d)
    inside = binary("mul", binary("mul", d, d), 0.5)
    outside = binary("mul", binary("sub", size, 0.5 * delta), delta)
    if smooth:
        inside, outside = binary("div", inside, delta), binary("sub", size, 0.5 * delta)
    return _reduced(select(binary("lt", size, delta), inside, outside), how)


@rule("nll_loss", "NllLoss", "0", fixed=(1, 2))
def _nll(tape: Tape, args: Args, attrs: Any) -> Tracer:
    return _picked(tape, args[0], args, attrs)


@rule("cross_entropy", "CrossEntropy", "0", fixed=(1, 2))
def _cross_entropy(tape: Tape, args: Args, attrs: Any) -> Tracer:
    x = as_float(tape, args[0])
    dim = 1 if x.type.ndim > 1 else 0
    return _picked(tape, log_softmax(x, dim), args, attrs)


@rule("cross_entropy_soft", "CrossEntropy", "0")
def _cross_entropy_soft(tape: Tape, args: Args, attrs: Any) -> Tracer:
    """Targets are probabilities: summed over classes, averaged over the rest."""
    x, target = promote(tape, args, True)
    dim = 1 if x.type.ndim > 1 else 0
    product = binary("mul", log_softmax(x, dim), target)
    loss = unary("neg", reduce("sum", product, (dim,)))
    return _reduced(loss, attrs)


def _picked(tape: Tape, logp: Tracer, args: Args, attrs: Any) -> Tracer:
    """Minus the log-probabilities of the targets; attrs: reduction, ignored target, smoothing."""
    how, ignore, smoothing = attrs[0], attrs[1], attrs[2].value
    target = args[1]
    dim = 1 if logp.type.ndim > 1 else 0
    classes = logp.type.shape[dim]
    shape = tuple([n for k, n in enumerate(logp.type.shape) if k != dim])
    if target.type.shape != shape:
        raise TensorValueError(
            f"targets of shape {list(target.type.shape)} for scores of shape "
            f"{list(logp.type.shape)}: expected {list(shape)}"
        )
    target = cast(target, I64)
    kept = None
    if ignore is not None:
        kept = binary("ne", target, ignore)
        target = select(kept, target, number(tape, 0, I64))
    good = binary("and", binary("ge", target, 0), binary("lt", target, classes))
    good = reduce("all", good, range(good.type.ndim)) if good.type.ndim else good
    tape.guard(good, True, f"target out of range for {classes} classes")
    picked = _along(logp, target, dim)
    loss = unary("neg", picked)
    weight = None
    if len(args) > 2:
        weight = p.gather(args[2], [target], [0])
        loss = binary("mul", loss, weight)
    if smoothing:
        even = unary("neg", reduce("sum", logp, (dim,)))
        even = binary("div", even, float(classes))
        loss = binary("add", binary("mul", loss, 1 - smoothing), binary("mul", even, smoothing))
    if kept is None and weight is None:
        return _reduced(loss, how)
    zero = number(tape, 0.0, loss.type.dtype)
    if kept is not None:
        loss = select(kept, loss, zero)
    if how == "none":
        return loss
    total = reduce("sum", loss, range(loss.type.ndim))
    if how == "sum":
        return total
    one = p.full(tape, loss.type.shape, 1.0, loss.type.dtype) if weight is None else weight
    if kept is not None:
        one = select(kept, one, zero)
    return binary("div", total, reduce("sum", one, range(one.type.ndim)))


@rule("bce_with_logits", "BinaryCrossEntropyWithLogits", "01")
def _bce_with_logits(tape: Tape, args: Args, attrs: Any) -> Tracer:
    """softplus(x) - x*y, optionally with a weight of the positive class."""
    x, y = promote(tape, args[:2], True)
    if x.type.shape != y.type.shape:
        raise TensorValueError(
            f"target of shape {list(y.type.shape)} for input of shape {list(x.type.shape)}"
        )
    softplus = RULES["softplus"].lower
    from tapec.tensors.graph import Const

    plain = Const((1.0, math.inf))
    if len(args) > 2:
        w = cast(args[2], x.type.dtype)
        positive = binary("mul", binary("mul", w, y), softplus(tape, [unary("neg", x)], plain))
        negative = binary("mul", binary("sub", 1.0, y), softplus(tape, [x], plain))
        return _reduced(binary("add", positive, negative), attrs)
    return _reduced(binary("sub", softplus(tape, [x], plain), binary("mul", x, y)), attrs)


@rule("bce", "BinaryCrossEntropy", "01")
def _bce(tape: Tape, args: Args, attrs: Any) -> Tracer:
    x, y = promote(tape, args, True)
    floor = number(tape, -100.0, x.type.dtype)
    a = binary("max", unary("log", x), floor)
    b = binary("max", unary("log", binary("sub", 1.0, x)), floor)
    loss = binary("add", binary("mul", y, a), binary("mul", binary("sub", 1.0, y), b))
    return _reduced(unary("neg", loss), attrs)
