"""Histograms and counts: which bin an element falls into has no derivative; sums of weights have
one by the weights, and edges found from the smallest and the largest element by these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapec import primitives as p
from tapec.errors import TapecValueError, UnsupportedError, fail
from tapec.indexing import getitem
from tapec.ir.core import F64, I64
from tapec.numpy.reductions import reduced
from tapec.numpy.registry import implements, int_argument
from tapec.numpy.sorting import searchsorted
from tapec.numpy.ufuncs import real_float
from tapec.primitives import as_array, binary, cast, operands, reshape, select
from tapec.tape import is_traced
from tapec.tracer import FUNCTIONS, Tracer

__all__: list[str] = []


def _edges(x: Tracer, bins: Any, limits: Any) -> Any:
    """Bin edges: given ones as they are; a number of bins between given limits, or the smallest
    and the largest element (half a unit away from them if they are equal)."""
    if isinstance(bins, str):
        raise fail(UnsupportedError, "histogram of traced values: bins must be a number or edges")
    if not isinstance(bins, (int, np.integer)):
        return bins if isinstance(bins, Tracer) else np.asarray(bins, float)
    if int(bins) < 1:
        raise fail(TapecValueError, "`bins` must be positive, when an integer")
    if limits is not None:
        low, high = limits
    elif not x.type.size:
        low, high = 0.0, 1.0
    else:
        low, high = reduced("min", x, None, False), reduced("max", x, None, False)
    if is_traced(low) or is_traced(high):
        low, high = operands(low, high)
        same = binary("eq", low, high)
        low = select(same, binary("sub", low, 0.5), low)
        high = select(same, binary("add", high, 0.5), high)
        return FUNCTIONS[np.linspace](low, high, int(bins) + 1)
    return np.histogram_bin_edges(np.zeros(0), int(bins), (low, high))


def _place(x: Tracer, edges: Tracer) -> tuple[Tracer, Tracer]:
    """The bin of each element (0 outside) and whether there is one; the last is closed."""
    n = edges.type.size - 1
    place = binary("sub", searchsorted(edges, x, "right"), 1)
    place = select(binary("eq", x, getitem(edges, n)), n - 1, place)
    inside = binary("and", binary("ge", place, 0), binary("lt", place, n))
    return select(inside, place, 0), inside


def _counted(
    xs: Sequence[Tracer], edges: Sequence[Tracer], weights: Any, density: Any, whole: bool
) -> Tracer:
    """The histogram of points given by coordinates; ``whole``: counts are integers."""
    shape = tuple([e.type.size - 1 for e in edges])
    places, inside = zip(*[_place(x, e) for x, e in zip(xs, edges)])
    here = inside[0]
    for more in inside[1:]:
        here = binary("and", here, more)
    places = tuple([select(here, place, 0) for place in places])
    if weights is None:
        amounts = cast(here, I64 if whole else F64)
    else:
        w = operands(xs[0], weights)[1]
        w = reshape(w, (w.type.size,))
        amounts = cast(select(here, w, 0), w.type.dtype)
    zero = p.full(here.tape, shape, 0, amounts.type.dtype)
    counts = p.scatter_add(zero, amounts, list(places), list(range(len(shape))))
    if not density:
        return counts
    counts = cast(counts, F64)
    total = reduced("sum", counts, None, False)
    for k, e in enumerate(edges):
        width = binary("sub", getitem(e, slice(1, None)), getitem(e, slice(None, -1)))
        along = [1] * len(shape)
        along[k] = shape[k]
        counts = binary("div", counts, reshape(width, tuple(along)))
    return binary("div", counts, total)


def _lines(values: Sequence[Any]) -> list[Tracer]:
    """Coordinates as traced vectors, though some may be plain."""
    return [real_float(reshape(v, (v.type.size,))) for v in operands(*values)]


@implements(np.histogram)
def histogram(a: Any, bins: Any = 10, range: Any = None, density: Any = None,
              weights: Any = None) -> tuple[Any, Any]:  # fmt: skip
    """Counts have no derivative; with weights, the sums of weights have one."""
    first = operands(a, *[v for v in (bins, weights) if isinstance(v, Tracer)])[0]
    (x,) = _lines([first])
    edges = operands(x, _edges(x, bins, range))[1]
    return _counted([x], [edges], weights, density, True), edges


@implements(np.histogram_bin_edges)
def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    first = operands(a, *[v for v in (bins, weights) if isinstance(v, Tracer)])[0]
    (x,) = _lines([first])
    return operands(x, _edges(x, bins, range))[1]


@implements(np.histogramdd)
def histogramdd(sample: Any, bins: Any = 10, range: Any = None, density: Any = None,
                weights: Any = None) -> tuple[Any, Any]:  # fmt: skip
    """``sample``: points by rows, or a sequence of coordinates."""
    if isinstance(sample, (list, tuple)):
        columns: list[Any] = list(sample)
    else:
        points = as_array(sample)
        if points.type.ndim == 1:
            points = reshape(points, (points.type.size, 1))
        columns = [getitem(points, (slice(None), k)) for k in np.arange(points.type.shape[1])]
    n = len(columns)
    traced = [
        v for v in (weights, *(bins if isinstance(bins, (list, tuple)) else ())) if is_traced(v)
    ]
    xs = _lines(operands(*columns, *traced)[:n])
    per_axis = list(bins) if isinstance(bins, (list, tuple)) else [bins] * n
    if len(per_axis) != n:
        raise fail(TapecValueError, "bins must have one entry per dimension of the sample")
    limits = [None] * n if range is None else list(range)
    if len(limits) != n:
        raise fail(TapecValueError, "range argument must have one entry per dimension")
    edges = [operands(x, _edges(x, b, r))[1] for x, b, r in zip(xs, per_axis, limits)]
    return _counted(xs, edges, weights, density, False), tuple(edges)


@implements(np.histogram2d)
def histogram2d(x: Any, y: Any, bins: Any = 10, range: Any = None, density: Any = None,
                weights: Any = None) -> tuple[Any, Any, Any]:  # fmt: skip
    if not isinstance(bins, (int, np.integer)) and len(bins) not in (1, 2):
        bins = [bins, bins]
    elif isinstance(bins, np.ndarray):
        bins = list(bins)
    counts, edges = histogramdd([x, y], bins, range, density, weights)
    return counts, edges[0], edges[1]


@implements(np.bincount)
def bincount(x: Any, /, weights: Any = None, minlength: Any = 0) -> Tracer:
    index = operands(x, *([] if weights is None else [weights]))[0]
    largest = int(np.max(index.concrete(), initial=-1))
    n = max(largest + 1, int_argument(minlength, "minlength"))
    if index.type.size:
        top = reduced("max", cast(index, I64), None, False)
        index.tape.guard(binary("eq", top, largest), True, "the same largest index")
    if weights is None:
        amounts, zero = (
            p.full(index.tape, index.type.shape, 1, I64),
            p.full(index.tape, (n,), 0, I64),
        )
    else:
        amounts = cast(operands(index, weights)[1], F64)
        zero = p.full(index.tape, (n,), 0, F64)
    return p.scatter_add(zero, amounts, [cast(index, I64)], [0])
