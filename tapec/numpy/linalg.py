"""``numpy.linalg``: equations, determinants, Cholesky, and inverses.

Failures are NumPy's: where NumPy raises ``LinAlgError``, tracing does, in the user's function (so
``try: … except np.linalg.LinAlgError`` works), and the compiled program has a guard
that the matrix was regular, or was not, as in the trace.

A matrix that is known to be triangular (a Cholesky factor, or the R of a QR
factorisation, or their transposes) is never factorised again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapec import primitives as p
from tapec.errors import ConversionError, TapecLinAlgError, TapecValueError, fail
from tapec.kinds import common_dtype
from tapec.numpy.registry import axes_of, implements
from tapec.numpy.shapes import diagonal
from tapec.numpy.ufuncs import real_float
from tapec.primitives import binary, broadcast_to, cast, emit, emit_many, reshape
from tapec.tape import Tape
from tapec.tracer import Tracer

__all__ = [
    "check", "cholesky_factor", "matrix", "named", "solve_system", "solve_triangle",
    "square_matrix", "swap", "with_batch",
]  # fmt: skip


# -- what the functions share -----------------------------------------------


def matrix(x: Any) -> Tracer:
    """An operand as real numbers with at least two axes."""
    a = real_float(x)
    if a.type.ndim < 2:
        raise fail(
            TapecLinAlgError,
            f"{a.type.ndim}-dimensional array given. Array must be at least two-dimensional",
        )
    return a


def square_matrix(x: Any) -> Tracer:
    a = matrix(x)
    if a.type.shape[-1] != a.type.shape[-2]:
        raise fail(TapecLinAlgError, "Last 2 dimensions of the array must be square")
    return a


def swap(a: Tracer) -> Tracer:
    """The matrix transposed."""
    n = a.type.ndim
    return p.transpose(a, (*range(n - 2), n - 1, n - 2))


def with_batch(a: Tracer, lead: tuple[int, ...]) -> Tracer:
    """``a`` repeated over the batch ``lead``."""
    return broadcast_to(a, (*lead, *a.type.shape[-2:]))


def common_batch(a: Tracer, b: Tracer) -> tuple[Tracer, Tracer]:
    x, y = a.type.shape[:-2], b.type.shape[:-2]
    try:
        lead = np.broadcast_shapes(x, y)
    except ValueError:
        raise fail(
            TapecValueError, f"stacks of matrices of shapes {x} and {y} do not broadcast"
        ) from None
    return with_batch(a, lead), with_batch(b, lead)


def check(ok: Tracer, message: str) -> None:
    """Raise ``LinAlgError`` where it does not hold for the caller's values, else guard it."""
    whole = p.reduce("all", ok, range(ok.type.ndim))
    try:
        holds = bool(whole.concrete())
    except ConversionError:  # in the body of a structured loop
        holds = True
    whole.tape.guard(whole, holds, f"LinAlgError: {message}")
    if not holds:
        raise fail(TapecLinAlgError, message)


def _known_triangle(a: Tracer) -> str:
    """``"lower"`` or ``"upper"`` if ``a`` is a triangular factor, else nothing."""
    records = a.tape.records
    at, flipped = a.id, False
    record = records[at]
    n = a.type.ndim
    if record is not None and record[0] == "transpose":
        if record[2]["perm"] != (*range(n - 2), n - 1, n - 2):
            return ""
        at, flipped = record[1][0], True
        record = records[at]
    if record is not None and record[0] == "cholesky":
        return "upper" if flipped else "lower"
    before = records[at - 1] if record is None else None
    if before is not None and before[0] == "qr":
        return "lower" if flipped else "upper"
    return ""


# -- equations -----------------------------------------------


def solve_triangle(
    a: Tracer, b: Tracer, lower: bool, trans: bool = False, unit: bool = False, safe: bool = False
) -> Tracer:
    """For stacks of matrices.  ``safe``: no diagonal element can be 0."""
    if not (safe or unit):
        diag = diagonal(a, 0, -2, -1)
        check(binary("ne", diag, 0.0), "Singular matrix")
    return emit("triangular_solve", (a, b), {"lower": lower, "trans": trans, "unit": unit})


def factors(a: Tracer) -> list[Tracer]:
    """LU factors and exchanges; equal matrices are factorised once (CSE)."""
    return emit_many("lu", (a,))


def solve_system(a: Tracer, b: Tracer) -> Tracer:
    """a x = b for stacks of matrices with a common batch."""
    known = _known_triangle(a)
    if known:
        return solve_triangle(a, b, known == "lower", safe=_from_cholesky(a))
    lut, pivots, ok = factors(a)
    check(ok, "Singular matrix")
    return emit("lu_solve", (a, lut, pivots, b), {"trans": False})


def _from_cholesky(a: Tracer) -> bool:
    record = a.tape.records[a.id]
    if record is not None and record[0] == "transpose":
        record = a.tape.records[record[1][0]]
    return record is not None and record[0] == "cholesky"


def _right_hand_side(a: Tracer, y: Tracer, name: str) -> None:
    if y.type.shape[-2] != a.type.shape[-1]:
        raise fail(
            TapecValueError,
            f"{name}: shapes {a.type.shape} and {y.type.shape} of the matrix and the right-hand "
            "side do not fit",
        )


@implements(np.linalg.solve)
def solve(a: Any, b: Any) -> Tracer:
    x, y = p.strong_operands(a, b)
    x, y = square_matrix(x), real_float(y)
    dtype = common_dtype([x.kind, y.kind])
    x, y = cast(x, dtype), cast(y, dtype)
    if not y.type.ndim:
        raise fail(TapecLinAlgError, "0-dimensional array given. Array must be at least 1-d")
    vector = y.type.ndim == 1
    if vector:
        y = reshape(y, (*y.type.shape, 1))
    _right_hand_side(x, y, "solve")
    x, y = common_batch(x, y)
    out = solve_system(x, y)
    return reshape(out, out.type.shape[:-1]) if vector else out


@implements(np.linalg.inv)
def inv(a: Any) -> Tracer:
    x = square_matrix(a)
    known = _known_triangle(x)
    if known:
        eye = with_batch(identity(x.tape, x), x.type.shape[:-2])
        return solve_triangle(x, eye, known == "lower", safe=_from_cholesky(x))
    lut, pivots, ok = factors(x)
    check(ok, "Singular matrix")
    return swap(emit("lu_inverse", (x, lut, pivots), {}))


def identity(tape: Tape, like: Tracer) -> Tracer:
    """The identity of the size and dtype of a matrix."""
    n = like.type.shape[-1]
    i, j = p.iota(tape, (n, n), 0), p.iota(tape, (n, n), 1)
    return cast(binary("eq", i, j), like.type.dtype)


@implements(np.linalg.tensorsolve)
def tensorsolve(a: Any, b: Any, axes: Any = None) -> Tracer:
    x, y = p.strong_operands(a, b)
    x, y = real_float(x), real_float(y)
    if axes is not None:
        moved = axes_of(tuple(axes), x.type.ndim)
        x = p.transpose(x, [k for k in range(x.type.ndim) if k not in moved] + list(moved))
    shape = x.type.shape[y.type.ndim :]
    if int(np.prod(shape)) != y.type.size or x.type.size != y.type.size**2:
        raise fail(
            TapecLinAlgError,
            "Input arrays must satisfy the requirement prod(a.shape[b.ndim:]) == "
            "prod(a.shape[:b.ndim])",
        )
    return reshape(solve(reshape(x, (y.type.size, y.type.size)), reshape(y, (y.type.size,))), shape)


@implements(np.linalg.tensorinv)
def tensorinv(a: Any, ind: Any = 2) -> Tracer:
    x = real_float(a)
    if ind <= 0:
        raise fail(TapecValueError, "Invalid ind argument.")
    shape = x.type.shape
    n = int(np.prod(shape[ind:]))
    return reshape(inv(reshape(x, (x.type.size // n, n))), shape[ind:] + shape[:ind])


# -- factors and determinants -----------------------------------------------


def cholesky_factor(a: Tracer) -> Tracer:
    """The lower factor of the lower triangle."""
    low, ok = emit_many("cholesky", (a,))
    check(ok, "Matrix is not positive definite")
    return low


@implements(np.linalg.cholesky)
def cholesky(a: Any, /, *, upper: Any = False) -> Tracer:
    x = square_matrix(a)
    return swap(cholesky_factor(swap(x))) if upper else cholesky_factor(x)


#: Sizes up to which a determinant is its polynomial: exact derivatives of every order.
_POLYNOMIAL = 4


def _minors(x: Tracer, rows: tuple[int, ...]) -> Tracer:
    """Determinants by Laplace expansion along the first row, for a few rows."""

    def element(i: int, j: int) -> Tracer:
        return x[..., i, j]  # type: ignore[no-any-return]

    known: dict[tuple[int, tuple[int, ...]], Tracer] = {}

    def minor(i: int, columns: tuple[int, ...]) -> Tracer:
        found = known.get((i, columns))
        if found is not None:
            return found
        if len(columns) == 1:
            return element(i, columns[0])
        total: Any = None
        for k, j in enumerate(columns):
            term = binary("mul", element(i, j), minor(i + 1, columns[:k] + columns[k + 1 :]))
            total = term if total is None else binary("sub" if k % 2 else "add", total, term)
        known[i, columns] = total
        return total  # type: ignore[no-any-return]

    return minor(0, rows)


@implements(np.linalg.det)
def det(a: Any) -> Tracer:
    x = square_matrix(a)
    n = x.type.shape[-1]
    if n == 0:
        return p.full(x.tape, x.type.shape[:-2], 1.0, x.type.dtype)
    if n <= _POLYNOMIAL:
        return _minors(x, tuple(range(n)))
    lut, pivots, _ = factors(x)
    return emit("det", (x, lut, pivots), {})


@implements(np.linalg.slogdet)
def slogdet(a: Any) -> Any:
    x = square_matrix(a)
    lut, pivots, _ = factors(x)
    return named("slogdet", emit_many("slogdet", (x, lut, pivots)))


def named(name: str, parts: Any) -> Any:
    """NumPy's named tuple for the results of a function."""
    kind = type(getattr(np.linalg, name)(np.eye(1)))
    return tuple(parts) if kind is tuple else kind(*parts)
