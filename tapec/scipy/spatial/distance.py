"""``scipy.spatial.distance`` for traced values: ``from tapec.scipy.spatial import distance``.

Distances of vectors, of all pairs of rows, and of all rows of one matrix to those of another.
Where two points coincide, the derivative of a distance is taken as 0 (as that of ``norm``).
Every other name is SciPy's own, on plain arrays.

>>> import numpy as np, tapec
>>> from tapec.scipy.spatial.distance import cdist
>>> x, y = np.array([[0.0, 0.0], [3.0, 0.0]]), np.array([[0.0, 4.0]])
>>> tapec.grad(lambda x: np.sum(cdist(x, y)))(x).round(12).tolist()
[[0.0, -1.0], [0.6, -0.8]]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.spatial.distance as _scipy

from tapec.errors import TapecValueError, UnsupportedError, fail
from tapec.scipy._traced import numbers, replacing

__all__ = [
    "braycurtis", "canberra", "cdist", "chebyshev", "cityblock", "correlation", "cosine",
    "euclidean", "mahalanobis", "minkowski", "pdist", "seuclidean", "sqeuclidean", "squareform",
]  # fmt: skip

replaces = replacing(_scipy)

_ALIASES = {
    "cityblock": ("cblock", "cb", "c"),
    "chebyshev": ("chebychev", "cheby", "cheb", "ch"),
    "correlation": ("co",),
    "cosine": ("cos",),
    "euclidean": ("euclid", "eu", "e"),
    "mahalanobis": ("mahal", "mah"),
    "minkowski": ("mi", "m", "pnorm"),
    "seuclidean": ("se", "s"),
    "sqeuclidean": ("sqe", "sqeuclid"),
}
_NAMES = {alias: name for name, aliases in _ALIASES.items() for alias in aliases}


def _weighted(x: Any, w: Any) -> Any:
    return x if w is None else x * w


# -- distances along the last axis ----------------------------------------------------------------


def _euclidean(u: Any, v: Any, w: Any = None) -> Any:
    d = u - v
    return np.linalg.norm(d if w is None else d * np.sqrt(w), axis=-1)


def _sqeuclidean(u: Any, v: Any, w: Any = None) -> Any:
    return np.sum(_weighted((u - v) ** 2, w), axis=-1)


def _cityblock(u: Any, v: Any, w: Any = None) -> Any:
    return np.sum(_weighted(np.abs(u - v), w), axis=-1)


def _chebyshev(u: Any, v: Any, w: Any = None) -> Any:
    return np.max(_weighted(np.abs(u - v), w), axis=-1)


def _minkowski(u: Any, v: Any, p: Any = 2, w: Any = None) -> Any:
    d = u - v
    return np.linalg.norm(d if w is None else d * w ** (1 / p), ord=p, axis=-1)


def _cosine(u: Any, v: Any, w: Any = None) -> Any:
    uv = np.sum(_weighted(u * v, w), axis=-1)
    uu, vv = np.sum(_weighted(u * u, w), axis=-1), np.sum(_weighted(v * v, w), axis=-1)
    return 1 - uv / np.sqrt(uu * vv)


def _correlation(u: Any, v: Any, w: Any = None) -> Any:
    share = None if w is None else w / np.sum(w)

    def centred(x: Any) -> Any:
        mean = np.mean(x, axis=-1) if share is None else np.sum(x * share, axis=-1)
        return x - mean[..., None]

    return _cosine(centred(u), centred(v), w)


def _braycurtis(u: Any, v: Any, w: Any = None) -> Any:
    top, bottom = np.abs(u - v), np.abs(u + v)
    return np.sum(_weighted(top, w), axis=-1) / np.sum(_weighted(bottom, w), axis=-1)


def _canberra(u: Any, v: Any, w: Any = None) -> Any:
    top, bottom = np.abs(u - v), np.abs(u) + np.abs(v)
    ratio = top / np.where(bottom == 0, 1.0, bottom)
    return np.sum(_weighted(ratio, w), axis=-1)


def _seuclidean(u: Any, v: Any, V: Any) -> Any:
    return np.linalg.norm((u - v) / np.sqrt(V), axis=-1)


def _mahalanobis(u: Any, v: Any, VI: Any) -> Any:
    d = u - v
    square = np.sum((d @ VI) * d, axis=-1)
    apart = square > 0
    return np.where(apart, np.sqrt(np.where(apart, square, 1.0)), 0.0)


_METRICS: dict[str, Callable[..., Any]] = {
    "braycurtis": _braycurtis, "canberra": _canberra, "chebyshev": _chebyshev,
    "cityblock": _cityblock, "correlation": _correlation, "cosine": _cosine,
    "euclidean": _euclidean, "mahalanobis": _mahalanobis, "minkowski": _minkowski,
    "seuclidean": _seuclidean, "sqeuclidean": _sqeuclidean,
}  # fmt: skip


def _metric(metric: Any, points: tuple[Any, ...], options: dict[str, Any]) -> Callable[..., Any]:
    """The distance along the last axis; ``points``: what default variances are taken from."""
    if not isinstance(metric, str):
        raise fail(
            UnsupportedError, "a function as the metric",
            "write it as NumPy code on x[:, None, :] and y[None, :, :]",
        )  # fmt: skip
    name = _NAMES.get(metric.lower(), metric.lower())
    if name not in _METRICS:
        raise fail(UnsupportedError, f"the metric {metric!r} of traced values")
    options = dict(options)
    if name == "seuclidean" and options.get("V") is None:
        options["V"] = np.var(np.concatenate(points), axis=0, ddof=1)
    if name == "mahalanobis" and options.get("VI") is None:
        options["VI"] = np.linalg.inv(np.atleast_2d(np.cov(np.concatenate(points).T)))
    distance = _METRICS[name]
    given = {k: numbers(x) for k, x in options.items() if x is not None}
    return lambda u, v: distance(u, v, **given)


# -- functions of SciPy ---------------------------------------------------------------------------


def _rows(x: Any, name: str) -> Any:
    a = numbers(x)
    if a.ndim != 2:
        raise fail(TapecValueError, f"{name} must be a 2-dimensional array.")
    return a


@replaces
def cdist(XA: Any, XB: Any, metric: Any = "euclidean", *, out: Any = None, **kwargs: Any) -> Any:
    a, b = _rows(XA, "XA"), _rows(XB, "XB")
    if a.shape[1] != b.shape[1]:
        raise fail(TapecValueError, "XA and XB must have the same number of columns")
    return _metric(metric, (a, b), kwargs)(a[:, None, :], b[None, :, :])


@replaces
def pdist(X: Any, metric: Any = "euclidean", *, out: Any = None, **kwargs: Any) -> Any:
    x = _rows(X, "X")
    i, j = np.triu_indices(x.shape[0], 1)
    return _metric(metric, (x,), kwargs)(x[i], x[j])


@replaces
def squareform(X: Any, force: str = "no", checks: bool = True) -> Any:
    """A vector of distances as a symmetric matrix, or back."""
    x = numbers(X)
    if force.lower() not in ("no", "tomatrix", "tovector"):
        raise fail(TapecValueError, f"squareform: force={force!r}")
    if x.ndim == 1 and force.lower() != "tovector":
        n = round((1 + np.sqrt(1 + 8 * x.shape[0])) / 2)
        if n * (n - 1) // 2 != x.shape[0]:
            raise fail(TapecValueError, f"squareform: {x.shape[0]} is not n (n - 1) / 2 for any n")
        place = np.zeros((n, n), int)
        place[np.triu_indices(n, 1)] = np.arange(1, x.shape[0] + 1)
        return np.concatenate([np.zeros(1), x])[place + place.T]
    if x.ndim == 2 and force.lower() != "tomatrix":
        if x.shape[0] != x.shape[1]:
            raise fail(TapecValueError, "The matrix argument must be square.")
        return x[np.triu_indices(x.shape[0], 1)]
    raise fail(TapecValueError, f"squareform: {x.ndim} dimensions, force={force!r}")


def _of_two(name: str) -> Callable[..., Any]:
    def distance(u: Any, v: Any, *args: Any, **kwargs: Any) -> Any:
        a, b = numbers(u), numbers(v)
        if a.ndim != 1 or a.shape != b.shape:
            raise fail(TapecValueError, f"{name}: vectors of shapes {a.shape} and {b.shape}")
        return _METRICS[name](a, b, *args, **kwargs)

    distance.__name__ = name
    distance.__doc__ = f"``scipy.spatial.distance.{name}``"
    return replaces(distance)


braycurtis, canberra, chebyshev = _of_two("braycurtis"), _of_two("canberra"), _of_two("chebyshev")
cityblock, correlation, cosine = _of_two("cityblock"), _of_two("correlation"), _of_two("cosine")
euclidean, mahalanobis = _of_two("euclidean"), _of_two("mahalanobis")
minkowski, seuclidean = _of_two("minkowski"), _of_two("seuclidean")
sqeuclidean = _of_two("sqeuclidean")


def __getattr__(name: str) -> Any:
    return getattr(_scipy, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(_scipy)})
