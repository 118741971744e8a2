"""``tapec.scipy.interpolate`` and ``spatial.distance``: SciPy's values, derivatives by differences
of high order, objects made outside, mistakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.interpolate as si
import scipy.spatial.distance
from scipy.spatial.distance import cdist, pdist

import tapec
from tapec.scipy import interpolate as ti
from tapec.scipy.spatial import distance as td

RNG = np.random.default_rng(11)
T = np.array([0.0, 0.5, 1.2, 2.0, 3.1, 4.0])
Y = np.array([0.3, 1.0, 0.8, 1.5, 1.1, 0.2])
AT = np.array([-0.3, 0.25, 0.5, 1.9, 3.99, 4.4])
INSIDE = np.array([[0.1, 0.7], [2.2, 3.9]])
YY = RNG.normal(size=(6, 2))
XY = (np.array([0.0, 1, 3]), np.array([-1.0, 0, 2, 2.5]))
V = RNG.normal(size=(3, 4))
P = np.array([[0.2, -0.5], [2.9, 2.4], [1.1, 0.3]])
A, B = RNG.normal(size=(4, 3)), RNG.normal(size=(5, 3))
W, M = np.array([0.5, 1.0, 2.0]), np.array([[2.0, 0.3, 0], [0.3, 1, 0.1], [0, 0.1, 1.5]])

SPLINES: list[Callable[[Any, Any, Any], Any]] = [
    *[
        lambda s, y, at, e=e: s.CubicSpline(T, y, bc_type=e)(at)
        for e in ("not-a-knot", "natural", "clamped", ((1, 0.5), (2, -0.3)), ("natural", (1, 2.0)))
    ],
    lambda s, y, at: s.CubicSpline(T, y)(at, 1),
    lambda s, y, at: s.CubicSpline(T, y)(at, 3) * at**2,
    lambda s, y, at: s.CubicSpline(T, y).derivative(2)(at),
    lambda s, y, at: s.CubicSpline(T, y).antiderivative()(at),
    lambda s, y, at: s.CubicSpline(T, y).integrate(at[1], at[3]) * at,
    lambda s, y, at: s.CubicSpline(T, y, extrapolate=False)(np.clip(at, 0.1, 3.9)),
    lambda s, y, at: s.CubicSpline(T, y**2 - y**2 + np.sin(y), extrapolate=True)(at),
    lambda s, y, at: s.PchipInterpolator(T, y)(at),
    lambda s, y, at: s.PchipInterpolator(T, -y, axis=0)(at, 1),
    lambda s, y, at: s.CubicHermiteSpline(T, y, y**2)(at),
    lambda s, y, at: s.PPoly(np.stack([y[:-1], y[1:]]), T)(at),
    lambda s, y, at: s.make_interp_spline(T, y)(at),
    lambda s, y, at: s.make_interp_spline(T, y, k=2)(at),
    lambda s, y, at: s.make_interp_spline(T, y, k=3, bc_type="natural")(at),
    lambda s, y, at: s.make_interp_spline(T, y, k=1)(np.clip(at, 0, 4)),
    lambda s, y, at: s.BSpline(np.array([0.0, 0, 0, 1, 2, 2, 3, 3, 3]), y, 2)(at),
    lambda s, y, at: s.splev(at, (np.array([0.0, 0, 0, 0, 1, 2, 4, 4, 4, 4]), y, 3)),
    lambda s, y, at: s.splev(at, (np.array([0.0, 0, 0, 0, 1, 2, 4, 4, 4, 4]), y, 3), 1, 1),
    lambda s, y, at: s.splev(at, (np.array([0.0, 0, 0, 0, 1, 2, 4, 4, 4, 4]), y, 3), 0, 3),
    lambda s, y, at: s.interp1d(T, y)(np.clip(at, 0, 4)),
    lambda s, y, at: s.interp1d(T, y, fill_value="extrapolate")(at),
    lambda s, y, at: s.interp1d(T, y, bounds_error=False, fill_value=(-1.0, 2.0))(at),
    lambda s, y, at: s.interp1d(T, y, kind="cubic")(np.clip(at, 0, 4)),
    lambda s, y, at: s.interp1d(T, y, kind="quadratic", fill_value="extrapolate")(at),
]


def differences(fn: Callable[[Any], Any], x: Any, direction: Any, h: float = 1e-3) -> Any:
    points = [fn(x + k * h * direction) for k in (-3, -2, -1, 1, 2, 3)]
    return np.tensordot(np.array([-1, 9, -45, 45, -9, 1]) / 60, np.array(points), 1) / h


def compare(ours: Callable[[Any], Any], theirs: Callable[[Any], Any], x: Any) -> None:
    want = theirs(x)
    np.testing.assert_allclose(tapec.jit(ours)(x), want, rtol=1e-11, atol=1e-12)
    w, direction = RNG.normal(size=np.shape(want)), RNG.normal(size=np.shape(x))
    slope = np.sum(tapec.grad(lambda x: np.sum(w * ours(x)))(x) * direction)
    exact = differences(lambda x: np.sum(w * theirs(x)), x, direction)
    assert slope == pytest.approx(exact, rel=1e-7, abs=1e-8)
    forward = tapec.jvp(lambda x: np.sum(w * ours(x)), (x,), (direction,))[1]
    assert forward == pytest.approx(slope, rel=1e-11, abs=1e-12)


@pytest.mark.parametrize("case", range(len(SPLINES)))
def test_splines(case: int) -> None:
    fn = SPLINES[case]
    at = np.array([-0.31, 0.27, 0.53, 1.9, 3.93, 4.4])  # not at a knot, where differences fail
    compare(lambda y: fn(ti, y, at), lambda y: fn(si, y, at), Y)
    compare(lambda at: fn(ti, Y, at), lambda at: fn(si, Y, at), at)


def for_axis(axis: int, y: Any) -> None:
    spline = lambda s, y, at: s.CubicSpline(T, y, axis)(at)  # noqa: E731
    compare(lambda y: spline(ti, y, INSIDE), lambda y: spline(si, y, INSIDE), y)
    compare(lambda at: spline(ti, y, at), lambda at: spline(si, y, at), INSIDE)


def test_many_curves_and_axes() -> None:
    for axis, y in ((0, YY), (1, YY.T), (-1, np.stack([YY.T, YY.T**2]))):
        for_axis(axis, y)
    closed = np.concatenate([YY[:-1], YY[:1]])

    def turn(s: Any) -> Any:
        def around(c: Any) -> Any:
            return s.CubicSpline(T, np.concatenate([c, c[:1]]), bc_type="periodic")(AT * 3 + 0.01)

        return around

    compare(turn(ti), turn(si), closed[:-1])


def test_objects_made_outside() -> None:
    """Plain SciPy objects that the traced function reads, also out of containers."""
    objects: list[Any] = [
        si.CubicSpline(T, Y), si.PchipInterpolator(T, Y), si.Akima1DInterpolator(T, Y),
        si.make_interp_spline(T, Y), si.UnivariateSpline(T, Y, s=0), si.UnivariateSpline(T, Y, ext=3),
        si.interp1d(T, Y), si.interp1d(T, Y, kind="cubic"), si.CubicSpline(T, YY),
        si.InterpolatedUnivariateSpline(T, Y),
        si.interp1d(T, Y, bounds_error=False, fill_value=(0.0, 1.0)),
    ]  # fmt: skip
    at = np.array([0.3, 1.4, 3.3])
    for one in objects:
        compare(lambda x: one(x), lambda x: one(x), at)  # noqa: B023
    compare(
        lambda x: objects[0](x) * objects[1](x, 1), lambda x: objects[0](x) * objects[1](x, 1), at
    )
    assert tapec.grad(lambda x: objects[0].derivative()(x))(0.3) == pytest.approx(
        float(objects[0](0.3, 2)), rel=1e-12
    )


def test_grids() -> None:
    made = si.RegularGridInterpolator(XY, V)
    compare(lambda p: made(p), lambda p: made(p), P)
    compare(
        lambda v: si.RegularGridInterpolator(XY, v)(P), lambda v: si.RegularGridInterpolator(XY, v)(P), V
    )  # fmt: skip
    open_ended = si.RegularGridInterpolator(XY, V, bounds_error=False, fill_value=None)
    compare(lambda p: open_ended(p), lambda p: open_ended(p), P * 3)
    zero = si.RegularGridInterpolator(XY, V, bounds_error=False, fill_value=0.0)
    compare(lambda p: zero((p[:, 0], p[:, 1])), lambda p: zero((p[:, 0], p[:, 1])), P * 1.9)


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda x: si.interp1d(T, Y)(x + 9), "outside of the interpolation range"),
        (lambda x: ti.CubicSpline(T[:3], x * Y)(1.0), "3 places, but 6 values"),
        (lambda x: ti.CubicSpline(T[::-1], x * Y)(1.0), "strictly increasing"),
        (lambda x: ti.CubicSpline(x * T, Y)(1.0), "traced places"),
        (lambda x: si.RegularGridInterpolator(XY, V)(x * P[0] + 9), "outside"),
        (lambda x: td.cdist(x * A, B[:, :2]), "same number of columns"),
        (lambda x: td.cdist(x * A, B, "yule"), "metric 'yule'"),
        (lambda x: td.squareform(x * np.ones(4)), "not n"),
        (lambda x: td.euclidean(x * np.ones(4), np.ones(3)), "shapes"),
    ],
)
def test_mistakes(fn: Any, message: str) -> None:
    with pytest.raises(tapec.TapecError, match=rf"scipy_pieces.py:\d+: .*{message}"):
        tapec.jit(fn)(1.0)


# -- distances ----------------------------------------------------------------------------------

METRICS: list[tuple[str, dict[str, Any]]] = [
    ("euclidean", {}), ("euclidean", {"w": W}), ("sqeuclidean", {}), ("cityblock", {"w": W}),
    ("chebyshev", {}), ("minkowski", {"p": 3}), ("minkowski", {"p": 1.5, "w": W}), ("cosine", {}),
    ("correlation", {}), ("braycurtis", {}), ("canberra", {}), ("seuclidean", {"V": W}),
    ("seuclidean", {}), ("mahalanobis", {"VI": M}), ("mahalanobis", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), METRICS)
def test_metrics(name: str, options: dict[str, Any]) -> None:
    compare(lambda a: cdist(a, B, name, **options), lambda a: cdist(a, B, name, **options), A)
    compare(lambda b: td.cdist(A, b, name, **options), lambda b: cdist(A, b, name, **options), B)
    compare(lambda a: pdist(a, name, **options), lambda a: pdist(a, name, **options), B)
    if name not in ("seuclidean", "mahalanobis") or options:
        one = getattr(scipy.spatial.distance, name)
        compare(lambda u: one(u, B[0], **options), lambda u: one(u, B[0], **options), A[0])


def test_matrices_of_distances() -> None:
    square = scipy.spatial.distance.squareform
    compare(lambda a: square(pdist(a)), lambda a: square(pdist(a)), A)
    compare(lambda v: square(v) ** 2, lambda v: square(v) ** 2, np.arange(1.0, 7))
    compare(lambda v: square(square(v) ** 2), lambda v: square(square(v) ** 2), np.arange(1.0, 7))


def test_a_kernel_of_coinciding_points_has_a_gradient() -> None:
    """exp(-d²/2) and exp(-d) of a matrix of points with itself: 0 on the diagonal."""

    def kernel(a: Any) -> Any:
        return np.sum(np.exp(-cdist(a, a)))

    d = cdist(A, A) + np.eye(4)
    direction = (A[:, None] - A[None]) / d[..., None]
    want = -2 * np.sum((np.exp(-cdist(A, A)) - np.eye(4))[..., None] * direction, axis=1)
    np.testing.assert_allclose(tapec.grad(kernel)(A), want, rtol=1e-12, atol=1e-14)
