"""``numpy.linalg`` of complex matrices, through the real matrix [[A, -B], [B, A]] of A + iB.

That matrix is the same linear map on the real and imaginary parts of a vector: it has the same
condition, and its inverse, solution and pseudo-inverse are the matrices of theirs.
Decompositions, which are not unique there, are in ``decompositions``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapec import primitives as p
from tapec.complexes import ComplexTracer, promoted
from tapec.errors import TapecLinAlgError, TapecValueError, UnsupportedError, fail
from tapec.kinds import common_dtype
from tapec.numpy import decompositions, linalg, spectra
from tapec.numpy.complex_rules import on_complex
from tapec.numpy.reductions import keep
from tapec.numpy.registry import axes_of
from tapec.numpy.ufuncs import absolute_square
from tapec.primitives import as_array, binary, cast, reshape, unary
from tapec.tracer import FUNCTIONS, Tracer

__all__ = ["embedded", "matrix", "solve", "spectral_norm", "square_matrix"]

#: how determinants of larger matrices are computed
_POLYNOMIAL = linalg._POLYNOMIAL


def matrix(a: Any) -> ComplexTracer:
    z = promoted(as_array(a))
    if z.type.ndim < 2:
        raise fail(
            TapecLinAlgError,
            f"{z.type.ndim}-dimensional array given. Array must be at least two-dimensional",
        )
    return z


def square_matrix(a: Any) -> ComplexTracer:
    z = matrix(a)
    if z.type.shape[-1] != z.type.shape[-2]:
        raise fail(TapecLinAlgError, "Last 2 dimensions of the array must be square")
    return z


def embedded(z: ComplexTracer) -> Tracer:
    """[[A, -B], [B, A]]."""
    n = z.type.ndim
    top = p.concat([z.re, unary("neg", z.im)], n - 1)
    return p.concat([top, p.concat([z.im, z.re], n - 1)], n - 2)


def _first_columns(m: Tracer, rows: int, columns: int) -> ComplexTracer:
    """The complex matrix of an embedded one."""
    return ComplexTracer(m[..., :rows, :columns], m[..., rows:, :columns])


# -- equations --------------------------------------------------------------------------------


@on_complex(FUNCTIONS, np.linalg.solve)
def solve(a: Any, b: Any) -> Tracer:
    x, y = p.strong_operands(a, b)
    dtype = common_dtype([x.kind, y.kind])
    z, w = promoted(cast(x, dtype)), promoted(cast(y, dtype))
    if not w.type.ndim:
        raise fail(TapecLinAlgError, "0-dimensional array given. Array must be at least 1-d")
    vector = w.type.ndim == 1
    if vector:
        w = w.each(lambda part: reshape(part, (*part.type.shape, 1)))
    z, n = square_matrix(z), z.type.shape[-1]
    if w.type.shape[-2] != n:
        raise fail(
            TapecValueError,
            f"solve: shapes {z.type.shape} and {w.type.shape} of the matrix and the right-hand "
            "side do not fit",
        )
    if not isinstance(x, ComplexTracer):  # a real matrix: both parts are right-hand sides
        columns = w.type.shape[-1]
        both = p.concat([w.re, w.im], w.type.ndim - 1)
        out = linalg.solve(z.re, both)
        found = ComplexTracer(out[..., :columns], out[..., columns:])
    else:
        out = linalg.solve(embedded(z), p.concat([w.re, w.im], w.type.ndim - 2))
        found = ComplexTracer(out[..., :n, :], out[..., n:, :])
    return found.each(lambda part: reshape(part, part.type.shape[:-1])) if vector else found


@on_complex(FUNCTIONS, np.linalg.inv)
def inv(a: Any) -> Tracer:
    z = square_matrix(a)
    n = z.type.shape[-1]
    return _first_columns(linalg.inv(embedded(z)), n, n)


@on_complex(FUNCTIONS, np.linalg.pinv)
def pinv(a: Any, rcond: Any = None, hermitian: Any = False, *, rtol: Any = np._NoValue) -> Tracer:
    z = matrix(a)
    if rcond is None:
        rcond = 1e-15 if rtol is np._NoValue else rtol
        if rcond is None:
            rcond = max(z.type.shape[-2:]) * float(np.finfo(z.re.type.dtype.np).eps)
    found = spectra.pseudo_inverse(embedded(z), rcond)
    return _first_columns(found, z.type.shape[-1], z.type.shape[-2])


@on_complex(FUNCTIONS, np.linalg.lstsq)
def lstsq(a: Any, b: Any, rcond: Any = None) -> tuple[Any, Any, Any, Any]:
    x, y = p.strong_operands(a, b)
    dtype = common_dtype([x.kind, y.kind])
    z, w = matrix(cast(x, dtype)), promoted(cast(y, dtype))
    m, n = z.type.shape[-2:]
    if z.type.ndim != 2 or w.type.ndim not in (1, 2) or w.type.shape[0] != m:
        raise fail(TapecLinAlgError, "Incompatible dimensions")
    eps = float(np.finfo(z.re.type.dtype.np).eps)
    cut = eps * max(m, n) if rcond is None else eps if rcond < 0 else float(rcond)
    rank = int(matrix_rank(z, rtol=cut))  # decided now, with a guard
    solution: Any = pinv(z, cut) @ w
    residuals: Any = p.full(z.tape, (0,), 0.0, z.re.type.dtype)
    if rank == n < m:
        sums = p.reduce("sum", absolute_square(w - z @ solution), (0,))
        residuals = sums if sums.type.shape else reshape(sums, (1,))
    return solution, residuals, rank, singular_values(z)


@on_complex(FUNCTIONS, np.linalg.tensorsolve)
def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    x, y = (promoted(t) for t in p.strong_operands(a, b))
    if axes is not None:
        moved = axes_of(tuple(axes), x.type.ndim)
        order = [k for k in range(x.type.ndim) if k not in moved] + list(moved)
        x = x.each(lambda part: p.transpose(part, order))
    shape, n = x.type.shape[y.type.ndim :], y.type.size
    if int(np.prod(shape)) != n or x.type.size != n**2:
        raise fail(
            TapecLinAlgError,
            "Input arrays must satisfy the requirement prod(a.shape[b.ndim:]) == "
            "prod(a.shape[:b.ndim])",
        )
    return p.reshape(solve(p.reshape(x, (n, n)), p.reshape(y, (n,))), shape)


@on_complex(FUNCTIONS, np.linalg.tensorinv)
def tensorinv(a: Any, ind: Any = 2) -> Any:
    x = promoted(as_array(a))
    if ind <= 0:
        raise fail(TapecValueError, "Invalid ind argument.")
    shape = x.type.shape
    n = int(np.prod(shape[ind:]))
    return p.reshape(inv(p.reshape(x, (x.type.size // n, n))), shape[ind:] + shape[:ind])


# -- determinants -----------------------------------------------------------------------------


@on_complex(FUNCTIONS, np.linalg.slogdet)
def slogdet(a: Any) -> Any:
    """The determinant of the embedded matrix is |det|²."""
    z = square_matrix(a)
    size = binary("mul", linalg.slogdet(embedded(z))[1], 0.5)
    return linalg.named("slogdet", (decompositions.phase(z), size))


@on_complex(FUNCTIONS, np.linalg.det)
def det(a: Any) -> Tracer:
    z = square_matrix(a)
    n = z.type.shape[-1]
    if n == 0:
        return p.full(z.tape, z.type.shape[:-2], 1.0, z.type.dtype)
    if n <= _POLYNOMIAL:
        return linalg._minors(z, tuple(range(n)))
    sign, size = slogdet(z)
    return binary("mul", sign, unary("exp", size))


# -- decompositions ---------------------------------------------------------------------------


@on_complex(FUNCTIONS, np.linalg.eigh)
def eigh(a: Any, UPLO: Any = "L") -> Any:
    return linalg.named("eigh", decompositions.eigh(_hermitian(a, UPLO)))


@on_complex(FUNCTIONS, np.linalg.eigvalsh)
def eigvalsh(a: Any, UPLO: Any = "L") -> Tracer:
    found: Tracer = decompositions.eigh(_hermitian(a, UPLO))[0]
    return found


def _hermitian(a: Any, uplo: Any) -> ComplexTracer:
    """The Hermitian matrix of which one triangle is given."""
    z = square_matrix(a)
    side = str(uplo).upper()
    if side not in ("L", "U"):
        raise fail(TapecValueError, "UPLO argument must be 'L' or 'U'")
    lower = z.each(linalg.swap).conj() if side == "U" else z
    below: Any = FUNCTIONS[np.tril](lower, -1)
    rows, columns = (p.iota(z.tape, z.type.shape[-2:], k) for k in (0, 1))
    diagonal = p.select(binary("eq", rows, columns), lower.re, 0.0)
    return below + below.each(linalg.swap).conj() + diagonal  # type: ignore[no-any-return]


@on_complex(FUNCTIONS, np.linalg.cholesky)
def cholesky(a: Any, /, *, upper: Any = False) -> Tracer:
    low: Any = decompositions.cholesky(_hermitian(a, "U" if upper else "L"))
    return low.each(linalg.swap).conj() if upper else low  # type: ignore[no-any-return]


@on_complex(FUNCTIONS, np.linalg.qr)
def qr(a: Any, mode: Any = "reduced") -> Any:
    z = matrix(a)
    if mode not in ("reduced", "r") and z.type.shape[-1] != z.type.shape[-2]:
        raise fail(UnsupportedError, f"qr: mode={mode!r} of a complex matrix is not supported")
    if z.type.shape[-1] > z.type.shape[-2]:
        raise fail(UnsupportedError, "qr of a wide complex matrix is not supported")
    q, r = decompositions.qr(z)
    return r if mode == "r" else linalg.named("qr", (q, r))


@on_complex(FUNCTIONS, np.linalg.svd)
def svd(a: Any, full_matrices: Any = True, compute_uv: Any = True, hermitian: Any = False) -> Any:
    z = matrix(a)
    if not compute_uv:
        return singular_values(z)
    if full_matrices and z.type.shape[-1] != z.type.shape[-2]:
        raise fail(
            UnsupportedError,
            "svd of a complex matrix that is not square: full_matrices=True is not supported",
            "use full_matrices=False",
        )
    return linalg.named("svd", decompositions.svd(z))


def singular_values(z: ComplexTracer) -> Tracer:
    """In descending order."""
    if 0 in z.type.shape[-2:]:
        return p.full(z.tape, (*z.type.shape[:-2], 0), 0.0, z.re.type.dtype)
    found: Tracer = decompositions.svd(z)[1]
    return found


if hasattr(np.linalg, "svdvals"):
    on_complex(FUNCTIONS, np.linalg.svdvals)(lambda x: singular_values(matrix(x)))


@on_complex(FUNCTIONS, np.linalg.matrix_rank)
def matrix_rank(A: Any, tol: Any = None, hermitian: Any = False, *, rtol: Any = None) -> Tracer:
    """Singular values of the embedded matrix come in twos."""
    z = matrix(A)
    if tol is None and rtol is None:
        rtol = max(z.type.shape[-2:]) * float(np.finfo(z.re.type.dtype.np).eps)
    twice = spectra.matrix_rank(embedded(z), tol, rtol=rtol)
    return binary("floor_div", twice, 2)


@on_complex(FUNCTIONS, np.linalg.cond)
def cond(x: Any, p: Any = None) -> Tracer:
    z = matrix(x)
    if p is None or p in (2, -2):
        s = singular_values(z)
        first, last = s[..., 0], s[..., -1]
        return binary("div", last, first) if p == -2 else binary("div", first, last)
    norm = FUNCTIONS[_NORM]
    return binary("mul", norm(z, p, axis=(-2, -1)), norm(inv(z), p, axis=(-2, -1)))


_NORM = np.linalg.norm


def spectral_norm(z: ComplexTracer, ord: Any, axis: Any, keepdims: Any) -> Tracer:
    """The norms that are made of singular values."""
    axes = axes_of(axis, z.type.ndim)
    order = [k for k in range(z.type.ndim) if k not in axes]
    moved = z.each(lambda part: p.transpose(part, [*order, *axes]))
    s = singular_values(moved)
    kind = "sum" if ord == "nuc" else "max" if ord == 2 else "min"
    return keep(z, p.reduce(kind, s, (s.type.ndim - 1,)), axes, keepdims)


# -- matrices that need not be symmetric ------------------------------------------------------


def _eigen(a: Any) -> tuple[Tracer, Tracer]:
    """Eigenvalues and vectors; real, as NumPy's, if all eigenvalues of a real matrix are now."""
    x = as_array(a)
    if isinstance(x, ComplexTracer):
        found: tuple[Tracer, Tracer] = decompositions.eig(square_matrix(x))
        return found
    w, v = decompositions.eig(linalg.square_matrix(x))
    real = p.reduce("all", binary("eq", w.imag, 0.0), range(w.type.ndim))
    return (w.real, v.real) if bool(real) else (w, v)


def eig(a: Any) -> Any:
    return linalg.named("eig", _eigen(a))


def eigvals(a: Any) -> Tracer:
    return _eigen(a)[0]


FUNCTIONS[np.linalg.eig] = eig
FUNCTIONS[np.linalg.eigvals] = eigvals
