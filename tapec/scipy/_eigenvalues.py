"""Eigenvalues with SciPy's names: part of ``tapec.scipy.linalg``."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapec.errors import TapecValueError, UnsupportedError, fail
from tapec.scipy._equations import cholesky, from_half, solve_triangular, symmetric
from tapec.scipy._traced import array, replaces, square

__all__ = [
    "eig", "eig_banded", "eigh", "eigh_tridiagonal", "eigvals", "eigvals_banded", "eigvalsh",
    "eigvalsh_tridiagonal",
]  # fmt: skip


def _selected(w: Any, chosen: Any, by_value: Any) -> slice:
    if by_value is not None:
        raise fail(UnsupportedError, "a selection of eigenvalues by value; select by index")
    return slice(None) if chosen is None else slice(int(chosen[0]), int(chosen[1]) + 1)


@replaces
def eigh(
    a: Any, b: Any = None, *, lower: Any = True, eigvals_only: Any = False,
    overwrite_a: Any = False, overwrite_b: Any = False, type: Any = 1, check_finite: Any = True,
    subset_by_index: Any = None, subset_by_value: Any = None, driver: Any = None,
) -> Any:  # fmt: skip
    """Of a x = λ b x: with b = l lᵀ, those of l⁻¹ a l⁻ᵀ."""
    x = square(a)
    uplo: Any = "L" if lower else "U"
    factor: Any = None
    if b is not None:
        if type != 1:
            raise fail(UnsupportedError, f"eigh: type={type}")
        factor = cholesky(symmetric(square(b), lower), lower=True)
        half = solve_triangular(factor, symmetric(x, lower), lower=True)
        x = solve_triangular(factor, np.swapaxes(half, -1, -2), lower=True)
    if eigvals_only:
        w = np.linalg.eigvalsh(x, uplo)
        return w[..., _selected(w, subset_by_index, subset_by_value)]
    w, v = np.linalg.eigh(x, uplo)
    if factor is not None:
        v = solve_triangular(factor, v, trans=1, lower=True)
    chosen = _selected(w, subset_by_index, subset_by_value)
    return w[..., chosen], v[..., chosen]


@replaces
def eigvalsh(
    a: Any, b: Any = None, *, lower: Any = True, overwrite_a: Any = False, overwrite_b: Any = False,
    type: Any = 1, check_finite: Any = True, subset_by_index: Any = None,
    subset_by_value: Any = None, driver: Any = None,
) -> Any:  # fmt: skip
    return eigh(
        a, b, lower=lower, eigvals_only=True, type=type, subset_by_index=subset_by_index,
        subset_by_value=subset_by_value,
    )  # fmt: skip


@replaces
def eigh_tridiagonal(
    d: Any, e: Any, eigvals_only: Any = False, select: Any = "a", select_range: Any = None,
    check_finite: Any = True, tol: Any = 0.0, lapack_driver: Any = "auto",
) -> Any:  # fmt: skip
    """Through the full matrix."""
    d, e = array(d), array(e)
    if d.ndim != 1 or e.ndim != 1 or d.shape[0] != e.shape[0] + 1:
        raise fail(TapecValueError, "eigh_tridiagonal: d and e are vectors, e one shorter")
    if select not in ("a", "i", 0, 2):
        raise fail(UnsupportedError, f"eigh_tridiagonal: select={select!r}")
    chosen = select_range if select in ("i", 2) else None
    full = np.diag(d) + np.diag(e, -1) + np.diag(e, 1)
    return eigh(full, eigvals_only=eigvals_only, subset_by_index=chosen)


@replaces
def eigvalsh_tridiagonal(
    d: Any, e: Any, select: Any = "a", select_range: Any = None, check_finite: Any = True,
    tol: Any = 0.0, lapack_driver: Any = "auto",
) -> Any:  # fmt: skip
    return eigh_tridiagonal(d, e, True, select, select_range)


@replaces
def eig_banded(
    a_band: Any, lower: Any = False, eigvals_only: Any = False, overwrite_a_band: Any = False,
    select: Any = "a", select_range: Any = None, max_ev: Any = 0, check_finite: Any = True,
) -> Any:  # fmt: skip
    if select not in ("a", "i", 0, 2):
        raise fail(UnsupportedError, f"eig_banded: select={select!r}")
    chosen = select_range if select in ("i", 2) else None
    return eigh(from_half(a_band, lower), eigvals_only=eigvals_only, subset_by_index=chosen)


@replaces
def eigvals_banded(
    a_band: Any, lower: Any = False, overwrite_a_band: Any = False, select: Any = "a",
    select_range: Any = None, check_finite: Any = True,
) -> Any:  # fmt: skip
    return eig_banded(a_band, lower, True, select=select, select_range=select_range)


@replaces
def eig(
    a: Any, b: Any = None, left: Any = False, right: Any = True, overwrite_a: Any = False,
    overwrite_b: Any = False, check_finite: Any = True, homogeneous_eigvals: Any = False,
) -> Any:  # fmt: skip
    """Complex results, by a host call."""
    x = square(a)
    if left or homogeneous_eigvals:
        raise fail(UnsupportedError, "eig: left vectors and homogeneous eigenvalues")
    if b is not None:
        x = np.linalg.solve(square(b), x)
    if not right:
        return np.linalg.eigvals(x)
    w, v = np.linalg.eig(x)
    return w, v


@replaces
def eigvals(
    a: Any, b: Any = None, overwrite_a: Any = False, check_finite: Any = True,
    homogeneous_eigvals: Any = False,
) -> Any:  # fmt: skip
    return eig(a, b, right=False, homogeneous_eigvals=homogeneous_eigvals)
