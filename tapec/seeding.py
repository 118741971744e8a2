"""All rows or columns of a Jacobian in one function: ``all_seeds(product, ...)``.

A product (``vjp`` or ``jvp`` of a function, one seed) is batched over the unit seeds of its
last parameter.  What does not depend on the seed is computed once; the seeds lie in a leading
axis, so that native code has them in SIMD lanes and matrix products with vectors become
matrix products.
"""

from __future__ import annotations

from collections.abc import Sequence

from tapec.ir.batch import batch
from tapec.ir.builder import Builder
from tapec.ir.core import BOOL, Function, Type, Value

__all__ = ["fits", "all_seeds"]

#: Bytes that the largest intermediate value may have in all lanes.
LIMIT_BYTES = 1 << 26
#: Elements of a small array.
SMALL = 64


def fits(fn: Function, count: int) -> bool:
    """Whether ``count`` seeds at once take a moderate amount of memory."""
    largest = max([v.type.nbytes for op in fn.ops for v in op.results], default=0)
    return count * largest <= LIMIT_BYTES


def small(fn: Function) -> bool:
    """Whether all values are so small that native code keeps them in registers."""
    return all(v.type.size <= SMALL for op in fn.ops for v in op.results)


def all_seeds(product: Function, shapes: Sequence[tuple[int, ...]], last: bool) -> Function:
    """``product`` for every unit seed of its last parameter, which is no parameter any more.

    ``last``: the axis of the seeds is the last one of each result (columns), else the first
    (rows).  ``shapes``: those of the results, in which that axis has the seed's shape.
    """
    *params, seed = product.params
    n = seed.type.size
    lanes = batch(product, [None] * len(params) + [0], n)
    b = Builder()
    b.params.extend(params)
    found = b.inline(lanes, [*params, unit_seeds(b, seed.type)])
    results = []
    for v, shape in zip(found, shapes, strict=True):
        if last:
            v = b.transpose(v, (*range(1, v.type.ndim), 0))
        results.append(b.reshape(v, shape))
    return b.function(product.name, results)


def unit_seeds(b: Builder, type: Type) -> Value:
    """The arrays of ``type`` with a single one, stacked: computed, not stored."""
    n = type.size
    square = Type(BOOL, (n, n))
    same = b.eq(b.iota(square.shape, 0), b.iota(square.shape, 1))
    return b.reshape(b.convert(same, type.dtype), (n, *type.shape))
