"""Decompositions of complex (and of general real) matrices: by NumPy when the program runs.

They are called on the host, which the dump shows.  Their derivatives are those of the defining
equations, written with traced operations, and so exist to any order:

- A V = V diag(w): with P = V⁻¹ dA V, dw = diag(P) and dV = V (F ∘ P), F_ij = 1 / (w_j - w_i);
- A = U diag(s) Vᴴ, A = Q R, A = L Lᴴ: from the parts of U'ᴴ dU that must be skew-Hermitian.

(J. R. Magnus, Econometric Theory 1 (1985) 179; M. B. Giles, "Collected matrix derivative results",
2008; for complex factors e.g. Z.-Q. Wan, S.-X. Zhang, arXiv:1909.02659.)

Eigenvectors and singular vectors are unique up to a phase only, which here does not move with
the matrix; functions that do not depend on the phase have the right derivatives.  Where
values coincide, their vectors are not differentiable: the terms that would be infinite are
left out, as symmetric functions want it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapec import primitives as p
from tapec.complexes import ComplexTracer, complex_of
from tapec.ir.core import Type
from tapec.primitives import binary, select
from tapec.tracer import FUNCTIONS, UFUNCS, Tracer

__all__ = ["cholesky", "eig", "eigh", "phase", "qr", "svd"]

Like = tuple[tuple[int, ...], bool]  # shape, whether complex


class _Result:
    """The shape and dtype of a result."""

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape = shape
        self.dtype = dtype


def _on_host(
    function: Callable[..., Any], name: str, a: Any, likes: Sequence[Like]
) -> tuple[Any, ...]:
    from tapec.host import host_call

    real = a.type.dtype if a.type.dtype.kind == "f" else a.re.type.dtype
    results = [_Result(shape, (complex_of(real) if c else real).np) for shape, c in likes]
    found: tuple[Any, ...] = host_call(function, results, a, several=True, name=name)
    return found


def _rule(
    function: Callable[..., Any], name: str, likes: Callable[[Type], Sequence[Like]]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A function of one matrix that is called on the host.

    Decorates its derivative, ``derivative(results, a, da) -> tangents of the results``."""

    def register(derivative: Callable[..., Any]) -> Callable[..., Any]:
        @functools.cache
        def made() -> Any:
            from tapec.custom import custom_jvp

            def body(a: Any) -> Any:
                return _on_host(function, f"tapec.{name}", a, likes(a.type))

            body.__name__ = name
            whole = custom_jvp(body)

            def rule(primals: Any, tangents: Any) -> Any:
                results = whole(*primals)
                return results, tuple(derivative(results, primals[0], tangents[0]))

            whole.defjvp(rule)
            return whole

        return lambda a: made()(a)

    return register


# -- small parts ------------------------------------------------------------------------------


def _swap(a: Any) -> Any:
    n = a.type.ndim
    return p.transpose(a, (*range(n - 2), n - 1, n - 2))


def _adjoint(a: Any) -> Any:
    return UFUNCS[np.conjugate](_swap(a))


def _diagonal(a: Any) -> Any:
    return FUNCTIONS[np.diagonal](a, 0, -2, -1)


def _eye(a: Any) -> Tracer:
    """True on the diagonal."""
    shape = a.type.shape[-2:]
    return binary("eq", p.iota(a.tape, shape, 0), p.iota(a.tape, shape, 1))


def _row(x: Any) -> Any:
    return p.reshape(x, (*x.type.shape[:-1], 1, x.type.shape[-1]))


def _column(x: Any) -> Any:
    return p.reshape(x, (*x.type.shape, 1))


def _solve(a: Any, b: Any) -> Any:
    return FUNCTIONS[_SOLVE](a, b)


_SOLVE = np.linalg.solve


def _inverse_gaps(x: Any) -> Any:
    """1 / (x_j - x_i), and 0 where they are equal."""
    gap = _row(x) - _column(x)
    same = binary("eq", gap, 0)
    return select(same, 0.0, 1.0 / select(same, 1.0, gap))


def _strictly_lower(a: Any) -> Any:
    return FUNCTIONS[np.tril](a, -1)


def _imaginary(x: Any) -> ComplexTracer:
    """i x."""
    return ComplexTracer(p.full(x.tape, x.type.shape, 0.0, x.type.dtype), x)


def _imaginary_diagonal(a: Any) -> Any:
    """i Im diag, as a matrix."""
    return _imaginary(select(_eye(a), a.imag, 0.0))


# -- eigenvalues ------------------------------------------------------------------------------


def _vectors(t: Type) -> list[Like]:
    return [(t.shape[:-1], True), (t.shape, True)]


_numpy = {name: getattr(np.linalg, name) for name in ("eig", "eigh", "svd", "qr", "cholesky")}


def _eig_of(a: Any) -> Any:
    w, v = _numpy["eig"](a)
    return w, v


@_rule(_eig_of, "eig", _vectors)
def eig(results: Any, a: Any, da: Any) -> Any:
    """The vectors have length 1 and their largest element is real."""
    w, v = results
    inner = _solve(v, da @ v)
    dv = v @ (_inverse_gaps(w) * inner)
    size = (v * v.conj()).real
    rows = p.iota(v.tape, v.type.shape, v.type.ndim - 2)
    largest = FUNCTIONS[np.argmax](size, axis=-2, keepdims=True)
    at = binary("eq", rows, largest)

    def total(x: Any) -> Any:
        return FUNCTIONS[np.sum](x, axis=-2, keepdims=True)

    turned = total(select(at, dv.imag, 0.0)) / total(select(at, v.real, 0.0))
    grown = total((v.conj() * dv).real)
    return _diagonal(inner), dv - v * ComplexTracer(grown, turned)


def _hermitian_vectors(t: Type) -> list[Like]:
    return [(t.shape[:-1], False), (t.shape, True)]


def _eigh_of(a: Any) -> Any:
    w, v = _numpy["eigh"](a)
    return w, v


@_rule(_eigh_of, "eigh", _hermitian_vectors)
def eigh(results: Any, a: Any, da: Any) -> Any:
    w, v = results
    inner = _adjoint(v) @ da @ v
    return _diagonal(inner).real, v @ (_inverse_gaps(w) * inner)


# -- singular values --------------------------------------------------------------------------


def _thin(t: Type) -> list[Like]:
    *lead, m, n = t.shape
    k = min(m, n)
    return [((*lead, m, k), True), ((*lead, k), False), ((*lead, k, n), True)]


def _svd_of(a: Any) -> Any:
    u, s, vh = _numpy["svd"](a, full_matrices=False)
    return u, s, vh


@_rule(_svd_of, "svd", _thin)
def svd(results: Any, a: Any, da: Any) -> Any:
    u, s, vh = results
    v = _adjoint(vh)
    inner = _adjoint(u) @ da @ v
    scaled = inner * _row(s)  # dP S
    other = _column(s) * _adjoint(inner)  # S dPᴴ
    gaps = _inverse_gaps(s * s)
    zero = binary("eq", s, 0.0)
    inverse = select(zero, 0.0, 1.0 / select(zero, 1.0, s))
    du = u @ (gaps * (scaled + other))
    dv = v @ (gaps * (_column(s) * inner + _adjoint(inner) * _row(s)))
    # the phase of the pair (u, v) that the real s leaves: half to each
    turn = _imaginary_diagonal(inner) * _row(0.5 * inverse)
    du = du + u @ turn
    dv = dv - v @ turn
    m, n = a.type.shape[-2:]
    if m > n:
        rest = da @ v
        du = du + (rest - u @ (_adjoint(u) @ rest)) * _row(inverse)
    if n > m:
        rest = _adjoint(da) @ u
        dv = dv + (rest - v @ (_adjoint(v) @ rest)) * _row(inverse)
    return du, _diagonal(inner).real, _adjoint(dv)


# -- triangular factors -----------------------------------------------------------------------


def _orthogonal(t: Type) -> list[Like]:
    *lead, m, n = t.shape
    return [((*lead, m, n), True), ((*lead, n, n), True)]


def _qr_of(a: Any) -> Any:
    q, r = _numpy["qr"](a)
    return q, r


@_rule(_qr_of, "qr", _orthogonal)
def qr(results: Any, a: Any, da: Any) -> Any:
    """The diagonal of R is real, as LAPACK's."""
    q, r = results
    right = _swap(_solve(_swap(r), _swap(da)))  # dA R⁻¹
    inner = _adjoint(q) @ right
    low = _strictly_lower(inner)
    turn = low - _adjoint(low) + _imaginary_diagonal(inner)
    return right + q @ (turn - inner), (inner - turn) @ r


def _same(t: Type) -> list[Like]:
    return [(t.shape, True)]


def _cholesky_of(a: Any) -> Any:
    return (_numpy["cholesky"](a),)


@_rule(_cholesky_of, "cholesky", _same)
def _cholesky(results: Any, a: Any, da: Any) -> Any:
    (low,) = results
    half = _solve(low, da)
    inner = _adjoint(_solve(low, _adjoint(half)))
    return (low @ (_strictly_lower(inner) + 0.5 * select(_eye(inner), inner, 0.0)),)


def cholesky(a: ComplexTracer) -> ComplexTracer:
    return _cholesky(a)[0]  # type: ignore[no-any-return]


# -- determinants -----------------------------------------------------------------------------


def _number(t: Type) -> list[Like]:
    return [(t.shape[:-2], True)]


_slogdet = np.linalg.slogdet


def _phase_of(a: Any) -> Any:
    return (_slogdet(a)[0],)


@_rule(_phase_of, "phase", _number)
def _phase(results: Any, a: Any, da: Any) -> Any:
    (sign,) = results
    turned = _diagonal(_solve(a, da)).imag.sum(axis=-1)
    return (
        sign * ComplexTracer(p.full(a.tape, turned.type.shape, 0.0, turned.type.dtype), turned),
    )


def phase(a: ComplexTracer) -> Tracer:
    """det(a) / |det(a)|."""
    return _phase(a)[0]  # type: ignore[no-any-return]
