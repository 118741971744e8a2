"""Plain ``scipy.sparse`` matrices times traced arrays: ``A @ x``, ``x @ A``, ``A.dot(x)``.

The entries are gathered, multiplied and added up by rows.  Their arrays are inputs of the compiled
function, as other arrays that a traced function reads are: changes of the numbers are seen.

>>> import numpy as np, scipy.sparse, tapec
>>> a = scipy.sparse.csr_array(np.array([[1.0, 0, 2], [0, 3, 0]]))
>>> tapec.grad(lambda x: np.sum((a @ x) ** 2))(np.ones(3)).tolist()
[6.0, 18.0, 12.0]
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapec import primitives as p
from tapec.complexes import ComplexTracer
from tapec.errors import TapecValueError, UnsupportedError, fail
from tapec.indexing import getitem
from tapec.tape import as_tracer

__all__ = ["left_product", "right_product"]


def left_product(a: Any, x: Any) -> Any:
    """``a @ x`` for a sparse ``a`` of shape (m, n) and a traced ``x`` of shape (n,) or (n, k)."""
    if a.ndim != 2 or x.ndim not in (1, 2) or x.shape[0] != a.shape[1]:
        raise fail(
            TapecValueError,
            f"matmul: a sparse matrix of shape {a.shape} times an array of shape {x.shape}",
        )
    if isinstance(x, ComplexTracer):
        return left_product(a, x.real) + 1j * left_product(a, x.imag)
    if np.iscomplexobj(a):
        return left_product(a.real, x) + 1j * left_product(a.imag, x)
    rows, cols, data = _entries(a)
    data = as_tracer(x.tape, data)
    if x.ndim == 2:
        data = p.reshape(data, (*data.type.shape, 1))
    terms = p.binary("mul", data, getitem(x, as_tracer(x.tape, cols)))
    zero = p.full(x.tape, (a.shape[0], *x.shape[1:]), 0, terms.type.dtype)
    return p.scatter_add(zero, terms, [as_tracer(x.tape, rows)], [0])


def right_product(x: Any, a: Any) -> Any:
    """``x @ a``"""
    if x.ndim > 2 or x.ndim == 0:
        raise fail(
            TapecValueError,
            f"matmul: an array of shape {x.shape} times a sparse matrix of shape {a.shape}",
        )
    return left_product(a.T, x.T).T


def _entries(a: Any) -> tuple[Any, Any, Any]:
    """Rows, columns and values; the arrays of the matrix itself, as far as it has them."""
    if a.format in ("csr", "csc"):
        numbers = np.repeat(np.arange(a.indptr.size - 1), np.diff(a.indptr))
        pair = (numbers, a.indices)
        return (*(pair if a.format == "csr" else pair[::-1]), a.data)
    if a.format in ("lil", "dok"):  # whose changes could not be seen
        raise fail(
            UnsupportedError, f"a traced function with a {a.format} matrix",
            "convert it once, outside, by .tocsr()",
        )  # fmt: skip
    a = a.tocoo()
    return a.row, a.col, a.data
