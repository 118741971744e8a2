"""Matrices that are made from vectors: ``toeplitz``, ``block_diag``, ``companion`` and others.

All are rearrangements of their arguments, written with NumPy's functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapec.errors import TapecValueError, fail
from tapec.scipy._traced import array, replaces

__all__ = [
    "block_diag", "circulant", "companion", "convolution_matrix", "diagsvd", "fiedler",
    "fiedler_companion", "from_bands", "hankel", "khatri_rao", "leslie", "matmul_toeplitz",
    "to_bands", "toeplitz",
]  # fmt: skip


def _vector(x: Any) -> Any:
    return np.reshape(array(x), (-1,))


@replaces
def block_diag(*arrs: Any) -> Any:
    """The matrices along the diagonal, zeros elsewhere.

    >>> import numpy as np, tapec
    >>> from tapec.scipy import linalg
    >>> tapec.jit(lambda a: linalg.block_diag(a, [[5.0]]))(np.ones((1, 2)))
    array([[1., 1., 0.],
           [0., 0., 5.]])
    """
    blocks = [np.atleast_2d(array(a)) for a in arrs]
    if any(a.ndim != 2 for a in blocks):
        raise fail(TapecValueError, "block_diag: arguments must have at most two dimensions")
    width = sum(a.shape[1] for a in blocks)
    rows, at = [], 0
    for a in blocks:
        rows.append(np.pad(a, ((0, 0), (at, width - at - a.shape[1]))))
        at += a.shape[1]
    return np.concatenate(rows)


@replaces
def toeplitz(c: Any, r: Any = None) -> Any:
    """Constant along diagonals: first column ``c``, first row ``r`` (by default ``c``)."""
    c = _vector(c)
    r = c if r is None else _vector(r)
    m, n = c.shape[0], r.shape[0]
    values = np.concatenate((c[::-1], r[1:]))
    return values[m - 1 - np.arange(m)[:, None] + np.arange(n)]


@replaces
def hankel(c: Any, r: Any = None) -> Any:
    """Constant along antidiagonals: first column ``c``, last row ``r`` (by default zeros)."""
    c = _vector(c)
    r = np.zeros(c.shape[0]) if r is None else _vector(r)
    values = np.concatenate((c, r[1:]))
    return values[np.arange(c.shape[0])[:, None] + np.arange(r.shape[0])]


@replaces
def circulant(c: Any) -> Any:
    c = array(c)
    i = np.arange(c.shape[-1])
    return c[..., (i[:, None] - i) % c.shape[-1]]


def _below(first: Any, sub: Any) -> Any:
    """The matrix with a first row and a first subdiagonal."""
    n = first.shape[-1]
    if n == 1:
        return np.reshape(first, (1, 1))
    return np.concatenate((first[None], np.pad(np.diag(sub), ((0, 0), (0, 1)))))


@replaces
def companion(a: Any) -> Any:
    """Its characteristic polynomial is ``a`` / a[0]."""
    a = array(a)
    if a.ndim != 1 or a.shape[0] < 2:
        raise fail(TapecValueError, "companion: `a` must be a vector of at least two elements")
    return _below(-a[1:] / a[0], np.ones(a.shape[0] - 2))


@replaces
def leslie(f: Any, s: Any) -> Any:
    f, s = array(f), array(s)
    if f.ndim != 1 or s.ndim != 1 or f.shape[0] != s.shape[0] + 1:
        raise fail(TapecValueError, "leslie: `f` and `s` are vectors, `s` one shorter")
    return _below(f, s)


@replaces
def fiedler(a: Any) -> Any:
    a = array(a)
    return np.abs(a[..., :, None] - a[..., None, :])


@replaces
def fiedler_companion(a: Any) -> Any:
    """The pentadiagonal companion matrix (M. Fiedler, Linear Algebra Appl. 372 (2003) 325)."""
    a = array(a)
    if a.ndim != 1:
        raise fail(TapecValueError, "fiedler_companion: `a` must be a vector")
    if a.shape[0] <= 2:
        return np.reshape(-a[1:] / a[0], (-1, 1)) if a.shape[0] == 2 else np.zeros((0, 0))
    a = a / a[0]
    n = a.shape[0] - 1
    places: dict[tuple[int, int], Any] = {(0, 0): -a[1], (1, 0): 1.0}
    for k in range(0, n - 1, 2):
        places[k, k + 1] = -a[k + 2]
    for k in range(0, n - 2, 2):
        places[k, k + 2] = 1.0
    for k in range(2, n, 2):
        places[k, k - 1] = -a[k + 1]
    for k in range(3, n, 2):
        places[k, k - 2] = 1.0
    values = np.stack([np.asarray(0.0), *places.values()])
    index = np.zeros((n, n), np.int64)
    for k, place in enumerate(places):
        index[place] = k + 1
    return values[index]


@replaces
def convolution_matrix(a: Any, n: int, mode: str = "full") -> Any:
    """``convolution_matrix(a, n) @ v`` is ``np.convolve(a, v)`` for a ``v`` of length ``n``."""
    a = array(a)
    if n <= 0:
        raise fail(TapecValueError, "n must be a positive integer.")
    if a.ndim != 1:
        raise fail(TapecValueError, "convolution_matrix: `a` must be a vector")
    m = a.shape[0]
    if mode not in ("full", "same", "valid"):
        raise fail(TapecValueError, "'mode' argument must be one of ('full', 'valid', 'same')")
    rows = np.arange(m + n - 1)[:, None] - np.arange(n)
    if mode == "same":
        first = (min(m, n) - 1) // 2
        rows = rows[first : first + max(m, n)]
    elif mode == "valid":
        first = min(m, n) - 1
        rows = rows[first : first + max(m, n) - first]
    inside = (rows >= 0) & (rows < m)
    return np.where(inside, a[np.where(inside, rows, 0)], 0.0)


@replaces
def khatri_rao(a: Any, b: Any) -> Any:
    """Kronecker products of the columns."""
    a, b = array(a), array(b)
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-1]:
        raise fail(TapecValueError, "khatri_rao: two matrices with equal numbers of columns")
    c = a[..., :, None, :] * b[..., None, :, :]
    return np.reshape(c, (*c.shape[:-3], c.shape[-3] * c.shape[-2], c.shape[-1]))


@replaces
def diagsvd(s: Any, M: int, N: int) -> Any:
    """The singular values as the matrix of shape (M, N) of the decomposition."""
    s = array(s)
    k = s.shape[-1]
    if k not in (M, N):
        raise fail(TapecValueError, "Length of s must be M or N.")
    eye = np.eye(k)
    return np.pad(s[:, None] * eye, ((0, M - k), (0, N - k)))


def matrix_of(c_or_cr: Any) -> Any:
    return toeplitz(*c_or_cr) if isinstance(c_or_cr, tuple) else toeplitz(c_or_cr)


@replaces
def matmul_toeplitz(c_or_cr: Any, x: Any, check_finite: bool = False, workers: Any = None) -> Any:
    x = array(x)
    flat = x if x.ndim == 1 else np.reshape(x, (x.shape[0], -1))
    out = matrix_of(c_or_cr) @ flat
    return np.reshape(out, (out.shape[0], *x.shape[1:]))


def from_bands(ab: Any, lower: int, upper: int) -> Any:
    """The square matrix with element (i, j) at ``ab[upper + i - j, j]``."""
    n = ab.shape[-1]
    i, j = np.indices((n, n))
    k = upper + i - j
    inside = (k >= 0) & (k <= lower + upper)
    return np.where(inside, ab[np.where(inside, k, 0), j], 0.0)


def to_bands(a: Any, lower: int, upper: int) -> Any:
    """The inverse of ``from_bands``."""
    n = a.shape[-1]
    k, j = np.indices((lower + upper + 1, n))
    i = k - upper + j
    inside = (i >= 0) & (i < n)
    return np.where(inside, a[np.where(inside, i, 0), j], 0.0)
