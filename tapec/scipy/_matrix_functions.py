"""Functions of matrices, and linear equations between matrices.

``expm`` is a Padé approximant with scaling and squaring, in traced operations.  ``logm``,
``sqrtm`` and the Riccati solutions are computed by SciPy when the program runs (a host call); their
derivatives solve the linear equation that the derivative of the defining equation is, which is
written with traced operations, so it exists to any order.

The equations of Sylvester's kind are solved as one system of n² unknowns: right for every
matrix, meant for small ones.

Sources: N. J. Higham, "The scaling and squaring method for the matrix exponential revisited",
SIAM J. Matrix Anal. Appl. 26 (2005) 1179; the same, "Functions of Matrices", SIAM 2008, for the
derivatives of the square root (6.2) and the logarithm (the inverse of that of exp).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg as _scipy

from tapec import primitives as p
from tapec.errors import TapecValueError, UnsupportedError, fail
from tapec.scipy._traced import array, replaces, square
from tapec.tape import is_traced

__all__ = [
    "coshm", "cosm", "expm", "expm_cond", "expm_frechet", "fractional_matrix_power", "logm",
    "polar", "signm", "sinhm", "sinm", "solve_continuous_are", "solve_continuous_lyapunov",
    "solve_discrete_are", "solve_discrete_lyapunov", "solve_lyapunov", "solve_sylvester", "sqrtm",
    "tanhm", "tanm",
]  # fmt: skip


def _traced_square(a: Any) -> Any:
    x = square(a)
    return p.as_array(x) if is_traced(x) else x


# -- the exponential --------------------------------------------------------------------------

#: Padé numerator of order 13, and the norm up to which it is exact to double precision
_PADE = [math.comb(13, k) * math.factorial(26 - k) / math.factorial(26) for k in range(14)]
_RADIUS = 5.371920351148152


@replaces
def expm(A: Any) -> Any:
    """The exponential of a square matrix, or of a stack of them.

    >>> import numpy as np, tapec
    >>> from tapec.scipy import linalg
    >>> turn = np.array([[0.0, -1.0], [1.0, 0.0]])
    >>> round(float(tapec.grad(lambda t: linalg.expm(t * turn)[1, 0])(0.0)), 12)
    1.0
    """
    from tapec.control import fori_loop
    from tapec.custom import stop_gradient

    a = square(A)
    if 0 in a.shape:
        return a
    size = stop_gradient(np.max(np.sum(np.abs(a), axis=-2)))
    ratio = np.maximum(size / _RADIUS, 1.0)
    halvings = np.where(np.isfinite(ratio), np.ceil(np.log2(ratio)), 0.0)
    a = a * np.exp2(-halvings)
    return fori_loop(0, halvings.astype(np.int64), lambda _, e: e @ e, _pade(a))


def _pade(a: Any) -> Any:
    eye = np.eye(a.shape[-1], dtype=a.dtype)
    b = _PADE
    a2 = a @ a
    a4 = a2 @ a2
    a6 = a4 @ a2
    odd = a6 @ (b[13] * a6 + b[11] * a4 + b[9] * a2)
    odd = a @ (odd + b[7] * a6 + b[5] * a4 + b[3] * a2 + b[1] * eye)
    even = a6 @ (b[12] * a6 + b[10] * a4 + b[8] * a2)
    even = even + b[6] * a6 + b[4] * a4 + b[2] * a2 + b[0] * eye
    return np.linalg.solve(even - odd, even + odd)


def _block(a: Any, b: Any, c: Any, d: Any) -> Any:
    left, right = np.concatenate((a, c), axis=-2), np.concatenate((b, d), axis=-2)
    return np.concatenate((left, right), axis=-1)


@replaces
def expm_frechet(
    A: Any, E: Any, method: Any = None, compute_expm: bool = True, check_finite: bool = True
) -> Any:
    """The exponential and its derivative in the direction ``E``."""
    a, e = square(A), square(E)
    n = a.shape[-1]
    both = expm(_block(a, e, 0.0 * a, a))
    slope = both[..., :n, n:]
    return (both[..., :n, :n], slope) if compute_expm else slope


def _exponential_slopes(x: Any) -> Any:
    """The matrix of the linear map E → d exp(x)[E] on flattened matrices."""
    n = x.shape[-1]
    directions = np.eye(n * n).reshape(n * n, n, n)
    wide = x + np.zeros((n * n, 1, 1))
    slopes = expm_frechet(wide, directions, compute_expm=False)
    return np.reshape(slopes, (n * n, n * n)).T


@replaces
def expm_cond(A: Any, check_finite: bool = True) -> Any:
    """The relative condition number in the Frobenius norm."""
    a = square(A)
    norm = np.linalg.norm
    return norm(_exponential_slopes(a), 2) * norm(a) / norm(expm(a))


@replaces
def sinm(A: Any) -> Any:
    return _sine_cosine(A)[0]


@replaces
def cosm(A: Any) -> Any:
    return _sine_cosine(A)[1]


def _sine_cosine(A: Any) -> tuple[Any, Any]:
    a = square(A)
    n = a.shape[-1]
    turn = expm(_block(0.0 * a, -a, a, 0.0 * a))
    return turn[..., n:, :n], turn[..., :n, :n]


@replaces
def tanm(A: Any) -> Any:
    sine, cosine = _sine_cosine(A)
    return np.linalg.solve(cosine, sine)


@replaces
def sinhm(A: Any) -> Any:
    a = square(A)
    return 0.5 * (expm(a) - expm(-a))


@replaces
def coshm(A: Any) -> Any:
    a = square(A)
    return 0.5 * (expm(a) + expm(-a))


@replaces
def tanhm(A: Any) -> Any:
    a = square(A)
    return np.linalg.solve(coshm(a), sinhm(a))


# -- computed by SciPy, differentiated by their equations --------------------------------------


def _by_equation(
    name: str, value: Callable[..., Any], shape: Callable[..., tuple[int, ...]]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates ``derivative(result, primals, tangents)``, linear in the tangents."""

    def register(derivative: Callable[..., Any]) -> Callable[..., Any]:
        @functools.cache
        def made() -> Any:
            from tapec.custom import custom_jvp
            from tapec.host import host_call

            def body(*args: Any) -> Any:
                like = np.broadcast_to(0.0, shape(*args))
                return host_call(value, like, *args, name=f"tapec.{name}")

            body.__name__ = name
            whole = custom_jvp(body)

            def rule(primals: Any, tangents: Any) -> Any:
                result = whole(*primals)
                return result, derivative(result, primals, tangents)

            whole.defjvp(rule)
            return whole

        return lambda *args: made()(*args)

    return register


def _real(name: str, a: Any) -> Any:
    """SciPy's value, which must be real."""
    out = getattr(_scipy, name)(a)
    if np.iscomplexobj(out):
        size = np.max(np.abs(out), initial=1.0)
        if np.max(np.abs(out.imag), initial=0.0) > 1e-13 * size:
            raise fail(
                UnsupportedError,
                f"{name}: the result is complex (the matrix has eigenvalues that are not positive)",
            )
    return np.ascontiguousarray(out.real)


def _root_of(a: Any) -> Any:
    return _real("sqrtm", a)


def _log_of(a: Any) -> Any:
    state = np.random.get_state()  # SciPy's estimates of norms draw numbers
    try:
        return _real("logm", a)
    finally:
        np.random.set_state(state)


@_by_equation("sqrtm", _root_of, lambda a: a.shape)
def _sqrtm(s: Any, primals: Any, tangents: Any) -> Any:
    """s ds + ds s = da"""
    return solve_sylvester(s, s, tangents[0])


@_by_equation("logm", _log_of, lambda a: a.shape)
def _logm(x: Any, primals: Any, tangents: Any) -> Any:
    """d exp(x)[dx] = da"""
    da = tangents[0]
    flat = np.linalg.solve(_exponential_slopes(x), np.reshape(da, (-1,)))
    return np.reshape(flat, da.shape)


def _one_matrix(A: Any, name: str) -> Any:
    a = square(A)
    if a.ndim != 2:
        raise fail(TapecValueError, f"{name}: one square matrix, not the shape {a.shape}")
    return a * 1.0


@replaces
def sqrtm(A: Any, *_: Any, **__: Any) -> Any:
    """The principal square root; an error where it is not real."""
    return _sqrtm(_one_matrix(A, "sqrtm"))


@replaces
def logm(A: Any, *_: Any, **__: Any) -> Any:
    """The principal logarithm; an error where it is not real."""
    return _logm(_one_matrix(A, "logm"))


@replaces
def fractional_matrix_power(A: Any, t: Any) -> Any:
    """``A`` to a real power, through integers, square roots or the logarithm."""
    a = _one_matrix(A, "fractional_matrix_power")
    if not is_traced(t) and float(t) == int(t):
        return np.linalg.matrix_power(a, int(t))
    return expm(t * logm(a))


@replaces
def signm(A: Any, *_: Any, **__: Any) -> Any:
    """A (A²)^(-1/2)"""
    a = _one_matrix(A, "signm")
    return np.linalg.solve(sqrtm(a @ a), a)


@replaces
def polar(a: Any, side: str = "right") -> Any:
    """Orthogonal and positive semidefinite factors of a matrix of full rank."""
    if side not in ("right", "left"):
        raise fail(TapecValueError, "`side` must be either 'right' or 'left'")
    a = array(a)
    if a.ndim != 2:
        raise fail(TapecValueError, "`a` must be a 2-D array.")
    m, n = a.shape
    if m >= n:
        u = np.linalg.solve(sqrtm(a.T @ a), a.T).T
    else:
        u = np.linalg.solve(sqrtm(a @ a.T), a)
    half = u.T @ a if side == "right" else a @ u.T
    return u, 0.5 * (half + half.T)


# -- equations --------------------------------------------------------------------------------


def _solved(system: Any, q: Any) -> Any:
    return np.reshape(np.linalg.solve(system, np.reshape(q, (-1,))), q.shape)


@replaces
def solve_sylvester(a: Any, b: Any, q: Any) -> Any:
    """x with a x + x b = q."""
    a, b, q = square(a), square(b), array(q)
    m, n = a.shape[-1], b.shape[-1]
    if q.shape != (m, n):
        raise fail(TapecValueError, f"solve_sylvester: q has shape {q.shape}, not {(m, n)}")
    return _solved(np.kron(a, np.eye(n)) + np.kron(np.eye(m), b.T), q)


@replaces
def solve_continuous_lyapunov(a: Any, q: Any) -> Any:
    """x with a x + x aᵀ = q."""
    a = square(a)
    return solve_sylvester(a, a.T, q)


solve_lyapunov = solve_continuous_lyapunov


@replaces
def solve_discrete_lyapunov(a: Any, q: Any, method: Any = None) -> Any:
    """x with a x aᵀ - x + q = 0."""
    a, q = square(a), square(q)
    return _solved(np.eye(a.shape[-1] ** 2) - np.kron(a, a), q)


@_by_equation("care", _scipy.solve_continuous_are, lambda a, b, q, r: a.shape)
def _care(x: Any, primals: Any, tangents: Any) -> Any:
    a, b, _, r = primals
    da, db, dq, dr = tangents
    k = np.linalg.solve(r, b.T @ x)
    closed = a - b @ k
    half = x @ (da - db @ k)
    return solve_continuous_lyapunov(closed.T, -(dq + half + half.T + k.T @ dr @ k))


@_by_equation("dare", _scipy.solve_discrete_are, lambda a, b, q, r: a.shape)
def _dare(x: Any, primals: Any, tangents: Any) -> Any:
    a, b, _, r = primals
    da, db, dq, dr = tangents
    k = np.linalg.solve(r + b.T @ x @ b, b.T @ x @ a)
    closed = a - b @ k
    half = closed.T @ x @ (da - db @ k)
    return solve_discrete_lyapunov(closed.T, dq + half + half.T + k.T @ dr @ k)


def _riccati(solver: Any, args: Any, e: Any, s: Any) -> Any:
    if e is not None or s is not None:
        raise fail(UnsupportedError, "the generalised Riccati equation (e, s) of traced values")
    a, b, q, r = (array(x) * 1.0 for x in args)
    # only the symmetric parts of q and r are weights
    return solver(a, b, 0.5 * (q + q.T), 0.5 * (r + r.T))


@replaces
def solve_continuous_are(
    a: Any, b: Any, q: Any, r: Any, e: Any = None, s: Any = None, balanced: bool = True
) -> Any:
    """x with aᵀ x + x a - x b r⁻¹ bᵀ x + q = 0."""
    return _riccati(_care, (a, b, q, r), e, s)


@replaces
def solve_discrete_are(
    a: Any, b: Any, q: Any, r: Any, e: Any = None, s: Any = None, balanced: bool = True
) -> Any:
    """x with aᵀ x a - x - (aᵀ x b) (r + bᵀ x b)⁻¹ (bᵀ x a) + q = 0."""
    return _riccati(_dare, (a, b, q, r), e, s)
