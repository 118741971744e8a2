"""``scipy.interpolate`` for traced values: ``from tapec.scipy import interpolate``.

Piecewise polynomials: evaluated at traced points, with a derivative by the points and by the
values that they interpolate.  The places of the data are plain arrays.  Every other name is
SciPy's own, on plain arrays.

>>> import numpy as np, tapec
>>> from tapec.scipy.interpolate import CubicSpline
>>> x, y = np.arange(5.0), np.arange(5.0) ** 3
>>> tapec.value_and_grad(lambda t: CubicSpline(x, y)(t))(1.5)
(3.375, 6.75)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import scipy.interpolate as _scipy

from tapec.errors import TapecValueError, UnsupportedError, fail
from tapec.scipy._traced import numbers, replacing
from tapec.tape import as_tracer, current_tape, is_traced

__all__ = [
    "BSpline", "CubicHermiteSpline", "CubicSpline", "PPoly", "PchipInterpolator",
    "RegularGridInterpolator", "interp1d", "make_interp_spline", "splev",
]  # fmt: skip

_replacing = replacing(_scipy)

_Rule = TypeVar("_Rule", bound=Callable[..., Any])


def replaces(rule: _Rule) -> _Rule:
    """In a trace, what is made of plain numbers may yet be evaluated at traced points."""
    either = _replacing(rule)

    @functools.wraps(rule)
    def function(*args: Any, **kwargs: Any) -> Any:
        made = either(*args, **kwargs)
        found = None if current_tape() is None else counterpart(made)
        return made if found is None else found

    return function  # type: ignore[return-value]


def _plain(x: Any, name: str) -> Any:
    """Where the data are: plain, increasing numbers."""
    if is_traced(x):
        raise fail(
            UnsupportedError, f"{name}: traced places of the data",
            "give them as plain numbers; values and points of evaluation may be traced",
        )  # fmt: skip
    x = np.asarray(x, float)
    if x.ndim != 1 or x.size < 2 or not (np.diff(x) > 0).all():
        raise fail(TapecValueError, f"{name}: `x` must be 2 or more numbers, strictly increasing")
    return x


class Piecewise:
    """A piecewise polynomial: coefficients by falling powers, pieces, further axes."""

    def __init__(self, c: Any, x: Any, extrapolate: Any = True, axis: int = 0) -> None:
        self.c, self.x, self.axis = c, x, axis
        self.extrapolate = True if extrapolate is None else extrapolate

    def __call__(self, x: Any, nu: int = 0, extrapolate: Any = None) -> Any:
        at = numbers(x)
        way = self.extrapolate if extrapolate is None else extrapolate
        first, last = self.x[0], self.x[-1]
        if isinstance(way, str):  # periodic
            at = first + (at - first) % (last - first)
        piece = np.clip(np.searchsorted(self.x[1:-1], at, "right"), 0, self.x.size - 2)
        more = self.c.ndim - 2
        t = (at - _taken(self.x, piece))[(..., *[None] * more)]
        total: Any = 0.0
        degree = self.c.shape[0] - 1
        for j in range(max(degree - nu + 1, 0)):
            total = total * t + math.perm(degree - j, nu) * _taken(self.c[j], piece)
        if degree < nu:
            total = 0 * _taken(self.c[0], piece) + 0 * t
        if way is False:
            outside = ((at < first) | (at > last))[(..., *[None] * more)]
            total = np.where(outside, np.nan, total)
        if more and self.axis:
            front = list(range(at.ndim, at.ndim + self.axis))
            rest = list(range(at.ndim + self.axis, at.ndim + more))
            total = np.transpose(total, [*front, *range(at.ndim), *rest])
        return total

    def derivative(self, nu: int = 1) -> Piecewise:
        if nu < 0:
            return self.antiderivative(-nu)
        degree = self.c.shape[0] - 1
        rows = [math.perm(degree - j, nu) * self.c[j] for j in range(max(degree - nu + 1, 0))]
        c = np.stack(rows) if rows else 0 * self.c[:1]
        return Piecewise(c, self.x, self.extrapolate, self.axis)

    def antiderivative(self, nu: int = 1) -> Piecewise:
        found = self
        for _ in range(nu):
            c = found.c
            rows = [c[j] / (c.shape[0] - j) for j in range(c.shape[0])]
            width = np.diff(found.x)[(..., *[None] * (c.ndim - 2))]
            whole: Any = 0.0
            for row in rows:
                whole = (whole + row) * width
            start = np.concatenate([0 * whole[:1], np.cumsum(whole, axis=0)[:-1]])
            way = False if isinstance(found.extrapolate, str) else found.extrapolate
            found = Piecewise(np.stack([*rows, start]), found.x, way, found.axis)
        return found

    def integrate(self, a: Any, b: Any, extrapolate: Any = None) -> Any:
        if isinstance(self.extrapolate if extrapolate is None else extrapolate, str):
            raise fail(UnsupportedError, "integrate over a periodic spline of traced values")
        whole = self.antiderivative()
        return whole(b, extrapolate=extrapolate) - whole(a, extrapolate=extrapolate)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or is_traced(self.c):
            raise AttributeError(name)
        return getattr(_scipy.PPoly(self.c, self.x, self.extrapolate, self.axis), name)


def _taken(c: Any, piece: Any) -> Any:
    """Along the first axis; NumPy asks a plain array alone how to index it by traced numbers."""
    tape = current_tape()
    return c[piece] if tape is None else as_tracer(tape, c)[piece]


def _front(y: Any, axis: int) -> tuple[Any, int]:
    """Values with the axis of the data in front, and the number of that axis."""
    a = numbers(y)
    axis = axis % a.ndim
    return np.moveaxis(a, axis, 0), axis


def _length(y: Any, x: Any, name: str) -> None:
    if y.shape[0] != x.size:
        raise fail(TapecValueError, f"{name}: {x.size} places, but {y.shape[0]} values")


# -- splines --------------------------------------------------------------------------------------


def _homogeneous(end: Any, n: int) -> Any:
    return end if isinstance(end, str) else (end[0], np.zeros(n))


@replaces
def CubicSpline(
    x: Any, y: Any, axis: int = 0, bc_type: Any = "not-a-knot", extrapolate: Any = None
) -> Any:
    """Linear in the values: the splines of unit vectors, added up."""
    x = _plain(x, "CubicSpline")
    rows, axis = _front(y, axis)
    _length(rows, x, "CubicSpline")
    unit = np.eye(x.size)
    offset: Any = 0.0
    if isinstance(bc_type, str):
        if bc_type == "periodic":
            unit, rows = np.concatenate([unit[:-1], unit[:1]])[:, :-1], rows[:-1]
            extrapolate = "periodic" if extrapolate is None else extrapolate
        basis = _scipy.CubicSpline(x, unit, 0, bc_type)
    else:
        if any(is_traced(end[1]) for end in bc_type if not isinstance(end, str)):
            raise fail(UnsupportedError, "CubicSpline: traced derivatives at the ends")
        if any(np.ndim(end[1]) for end in bc_type if not isinstance(end, str)):
            raise fail(UnsupportedError, "CubicSpline of traced values: arrays in bc_type")
        ends = tuple([_homogeneous(end, x.size) for end in bc_type])
        basis = _scipy.CubicSpline(x, unit, 0, ends)
        offset = _scipy.CubicSpline(x, np.zeros(x.size), 0, bc_type).c
        offset = offset[(..., *[None] * (rows.ndim - 1))]
    return Piecewise(np.tensordot(basis.c, rows, 1) + offset, x, extrapolate, axis)


def _hermite(x: Any, y: Any, slope: Any, extrapolate: Any, axis: int) -> Piecewise:
    width = np.diff(x)[(..., *[None] * (y.ndim - 1))]
    rise = (y[1:] - y[:-1]) / width
    t = (slope[:-1] + slope[1:] - 2 * rise) / width
    c = np.stack([t / width, (rise - slope[:-1]) / width - t, slope[:-1], y[:-1]])
    return Piecewise(c, x, extrapolate, axis)


@replaces
def CubicHermiteSpline(x: Any, y: Any, dydx: Any, axis: int = 0, extrapolate: Any = None) -> Any:
    x = _plain(x, "CubicHermiteSpline")
    (rows, axis), (slopes, _) = _front(y, axis), _front(dydx, axis)
    _length(rows, x, "CubicHermiteSpline")
    _length(slopes, x, "CubicHermiteSpline")
    return _hermite(x, rows, slopes, extrapolate, axis)


@replaces
def PchipInterpolator(x: Any, y: Any, axis: int = 0, extrapolate: Any = None) -> Any:
    """Slopes: weighted harmonic means of those of the two pieces, 0 where these differ in sign
    (Fritsch and Butland)."""
    x = _plain(x, "PchipInterpolator")
    rows, axis = _front(y, axis)
    _length(rows, x, "PchipInterpolator")
    h = np.diff(x)[(..., *[None] * (rows.ndim - 1))]
    m = (rows[1:] - rows[:-1]) / h
    if x.size == 2:
        return _hermite(x, rows, np.concatenate([m, m]), extrapolate, axis)
    w1, w2 = 2 * h[1:] + h[:-1], h[1:] + 2 * h[:-1]
    flat = m[1:] * m[:-1] <= 0
    left, right = np.where(flat, 1.0, m[:-1]), np.where(flat, 1.0, m[1:])
    inner = np.where(flat, 0.0, (w1 + w2) / (w1 / left + w2 / right))
    ends = [_end(h[0], h[1], m[0], m[1]), _end(h[-1], h[-2], m[-1], m[-2])]
    slopes = np.concatenate([ends[0][None], inner, ends[1][None]])
    return _hermite(x, rows, slopes, extrapolate, axis)


def _end(h0: Any, h1: Any, m0: Any, m1: Any) -> Any:
    d = ((2 * h0 + h1) * m0 - h0 * m1) / (h0 + h1)
    d = np.where((np.sign(m0) != np.sign(m1)) & (np.abs(d) > 3 * np.abs(m0)), 3 * m0, d)
    return np.where(np.sign(d) != np.sign(m0), 0.0, d)


@replaces
def PPoly(c: Any, x: Any, extrapolate: Any = None, axis: int = 0) -> Any:
    return Piecewise(numbers(c), _plain(x, "PPoly"), extrapolate, axis)


def _from_spline(t: Any, c: Any, k: int, extrapolate: Any, axis: int = 0) -> Piecewise:
    """A spline in the B-spline basis as polynomials on its pieces."""
    t = np.asarray(t, float)
    n = t.size - k - 1
    basis = np.stack([_scipy.PPoly.from_spline((t, unit, k)).c for unit in np.eye(n)], -1)
    keep = np.diff(t) > 0  # multiple knots
    x = np.append(t[:-1][keep], t[-1])
    rows, axis = _front(c, axis)
    return Piecewise(np.tensordot(basis[:, keep], rows[:n], 1), x, extrapolate, axis)


@replaces
def BSpline(t: Any, c: Any, k: int, extrapolate: Any = True, axis: int = 0) -> Any:
    if is_traced(t):
        raise fail(UnsupportedError, "BSpline: traced knots", "give them as plain numbers")
    return _from_spline(t, c, int(k), extrapolate, axis)


@replaces
def make_interp_spline(
    x: Any, y: Any, k: int = 3, t: Any = None, bc_type: Any = None, axis: int = 0,
    check_finite: bool = True,
) -> Any:  # fmt: skip
    x = _plain(x, "make_interp_spline")
    rows, axis = _front(y, axis)
    _length(rows, x, "make_interp_spline")
    if bc_type == "periodic":
        raise fail(UnsupportedError, "make_interp_spline: periodic", "use CubicSpline")
    if not (bc_type is None or isinstance(bc_type, str)):
        raise fail(UnsupportedError, "make_interp_spline: ends with values", "use CubicSpline")
    basis = _scipy.make_interp_spline(x, np.eye(x.size), k, t, bc_type)
    found = _from_spline(basis.t, basis.c, k, True)
    return Piecewise(np.tensordot(found.c, rows, 1), found.x, True, axis)


@replaces
def splev(x: Any, tck: Any, der: int = 0, ext: int = 0) -> Any:
    if not isinstance(tck, (tuple, list)):
        return tck(x, nu=der, extrapolate=ext == 0)
    t, c, k = tck
    if isinstance(c, (tuple, list)):  # a curve
        return [splev(x, (t, part, k), der, ext) for part in c]
    spline = _from_spline(t, c, int(k), True)
    return _beyond(spline, x, der, ext)


def _beyond(spline: Piecewise, x: Any, der: int, ext: Any) -> Any:
    """FITPACK's ways outside of the interval: 0 extrapolate, 1 zero, 2 error, 3 constant."""
    ext = {"extrapolate": 0, "zeros": 1, "raise": 2, "const": 3}.get(ext, ext)
    at = numbers(x)
    first, last = spline.x[0], spline.x[-1]
    if ext == 3:
        return spline(np.clip(at, first, last), der)
    outside = (at < first) | (at > last)
    if ext == 2:
        _refuse(outside, "x")
    value = spline(at, der)
    return np.where(outside, 0.0, value) if ext == 1 else value


def _refuse(outside: Any, name: str) -> None:
    if np.any(outside):
        raise fail(TapecValueError, f"A value in {name} is outside of the interpolation range.")


# -- interp1d and grids ---------------------------------------------------------------------------


class _Interp1d:
    def __init__(self, x: Any, y: Any, kind: Any, axis: int, bounds_error: Any, fill: Any) -> None:
        self.x = x
        rows, axis = _front(y, axis)
        _length(rows, x, "interp1d")
        self.strict = not isinstance(fill, str) if bounds_error is None else bounds_error
        self.fill = fill
        if kind in ("linear", "slinear", 1):
            width = np.diff(x)[(..., *[None] * (rows.ndim - 1))]
            c = np.stack([(rows[1:] - rows[:-1]) / width, rows[:-1]])
            self.spline = Piecewise(c, x, True, axis)
        elif kind in ("quadratic", "cubic", 2, 3):
            k = {"quadratic": 2, "cubic": 3}.get(kind, kind)
            made = make_interp_spline(x, rows, k)
            made = made if isinstance(made, Piecewise) else counterpart(made)
            self.spline = Piecewise(made.c, made.x, True, axis)
        else:
            raise fail(UnsupportedError, f"interp1d of traced values: kind={kind!r}")

    def __call__(self, x: Any) -> Any:
        at = numbers(x)
        outside = (at < self.x[0]) | (at > self.x[-1])
        if self.strict:
            _refuse(outside, "x_new")
        value = self.spline(at)
        if isinstance(self.fill, str):
            return value
        low, high = self.fill if isinstance(self.fill, tuple) else (self.fill, self.fill)
        if self.spline.c.ndim > 2 and not self.strict:
            raise fail(UnsupportedError, "interp1d of traced values: fill_value for several curves")
        if self.strict:
            return value
        return np.where(at < self.x[0], low, np.where(at > self.x[-1], high, value))


@replaces
def interp1d(
    x: Any, y: Any, kind: Any = "linear", axis: int = -1, copy: bool = True,
    bounds_error: Any = None, fill_value: Any = np.nan, assume_sorted: bool = False,
) -> Any:  # fmt: skip
    """Not outside of the range unless ``fill_value`` or ``bounds_error=False`` says so."""
    x = _plain(x, "interp1d")
    if bounds_error is None and not (isinstance(fill_value, float) and math.isnan(fill_value)):
        bounds_error = False
    return _Interp1d(x, y, kind, axis, bounds_error, fill_value)


class _Grid:
    def __init__(self, points: Any, values: Any, strict: bool, fill: Any) -> None:
        self.points = [np.asarray(p, float) for p in points]
        self.values, self.strict, self.fill = numbers(values), strict, fill
        sizes = tuple([p.size for p in self.points])
        if self.values.shape[: len(sizes)] != sizes:
            raise fail(
                TapecValueError,
                f"RegularGridInterpolator: a grid of shape {sizes}, values {self.values.shape}",
            )

    def __call__(self, xi: Any) -> Any:
        """Linear in each direction."""
        if isinstance(xi, tuple):
            xi = np.stack(np.broadcast_arrays(*xi), axis=-1)
        at, n = numbers(xi), len(self.points)
        if at.ndim == 0 or at.shape[-1] != n:
            raise fail(
                TapecValueError,
                f"RegularGridInterpolator: points of {n} coordinates, not of shape {at.shape}",
            )
        outside: Any = False
        corners: list[tuple[Any, ...]] = [()]
        weights: list[Any] = [1.0]
        more = (..., *[None] * (self.values.ndim - n))
        for k, grid in enumerate(self.points):
            x = at[..., k]
            outside = outside | (x < grid[0]) | (x > grid[-1])
            low = np.clip(np.searchsorted(grid[1:-1], x, "right"), 0, grid.size - 2)
            t = (x - _taken(grid, low)) / _taken(np.diff(grid), low)
            corners = [(*c, low + step) for c in corners for step in (0, 1)]
            weights = [w * share for w in weights for share in (1 - t, t)]
        if self.strict:
            _refuse(outside, "xi")
        total: Any = 0.0
        values = self.values
        flat = np.reshape(values, (-1, *values.shape[n:]))
        for corner, weight in zip(corners, weights):
            place = corner[0]
            for index, size in zip(corner[1:], values.shape[1:n]):
                place = place * size + index
            total = total + weight[more] * _taken(flat, place)
        if self.strict or self.fill is None:
            return total
        return np.where(outside[more], self.fill, total)


@replaces
def RegularGridInterpolator(
    points: Any, values: Any, method: str = "linear", bounds_error: bool = True,
    fill_value: Any = np.nan, **kwargs: Any,
) -> Any:  # fmt: skip
    if method != "linear":
        raise fail(UnsupportedError, f"RegularGridInterpolator of traced values: method={method!r}")
    grid = [_plain(p, "RegularGridInterpolator") for p in points]
    return _Grid(grid, values, bounds_error, fill_value)


# -- objects made outside of the traced function --------------------------------------------------


def counterpart(x: Any) -> Any:
    """For an interpolator of SciPy, one of the same numbers that takes traced points; else None."""
    if isinstance(x, _scipy.PPoly):
        return Piecewise(x.c, x.x, x.extrapolate, x.axis)
    if isinstance(x, _scipy.BSpline):
        return _from_spline(x.t, np.moveaxis(x.c, 0, x.axis), x.k, x.extrapolate, x.axis)
    if isinstance(x, _scipy.UnivariateSpline):
        t, c, k = x._eval_args
        spline = _from_spline(t, c[: t.size - k - 1], k, True)
        return lambda at, nu=0, ext=None: _beyond(spline, at, nu, x.ext if ext is None else ext)
    if isinstance(x, _scipy.RegularGridInterpolator) and x.method == "linear":
        return _Grid(x.grid, x.values, x.bounds_error, x.fill_value)
    if isinstance(x, _scipy.interp1d) and x._kind in ("linear", "spline"):
        kind = "linear" if x._kind == "linear" else x._spline.k
        if kind not in ("linear", 2, 3):
            return None
        fill: Any = "extrapolate" if x._extrapolate else x.fill_value
        if not isinstance(fill, (str, tuple)):
            fill = float(fill) if np.ndim(fill) == 0 else fill
        return _Interp1d(x.x, x.y, kind, x.axis, x.bounds_error, fill)
    return None


def __getattr__(name: str) -> Any:
    return getattr(_scipy, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(_scipy)})
