"""Checks for gradients: ``check_grads`` compares every mode and order with differences.

>>> import numpy as np, tapec
>>> tapec.check_grads(lambda x: np.sum(np.sin(x) * x), (np.array([0.5, 1.5]),), order=2)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapec import points, trees

__all__ = ["check_grads"]

Leaves = list[np.ndarray[Any, Any]]


def check_grads(
    fn: Callable[..., Any],
    args: Sequence[Any],
    order: int = 2,
    modes: Sequence[str] = ("fwd", "rev"),
    atol: float | None = None,
    rtol: float | None = None,
) -> None:
    """Check derivatives of ``fn`` at ``args`` to ``order``; ``AssertionError`` with a report.

    ``args``: the positional arguments, each a float, a floating-point array or a container of
    them; ``fn`` returns floating-point arrays or containers.  In each mode the derivative along
    random directions is compared with central differences, forward mode with reverse mode, and,
    for the next order, the same is done to the derivative itself.

    ``atol``, ``rtol``: tolerances; by default 1e-6 in float64 and 2e-2 in float32, relative to
    the size of the derivative.

    >>> import numpy as np, tapec
    >>> tapec.check_grads(np.tanh, (0.3,))
    """
    if order < 1:
        raise ValueError(f"check_grads: order is 1 or more, not {order}")
    unknown = set(modes) - {"fwd", "rev"}
    if unknown or not modes:
        raise ValueError(f"check_grads: modes are 'fwd' and 'rev', not {modes!r}")
    given = tuple(args)
    for k, leaf in enumerate(trees.flatten(given)[0]):
        if np.asarray(leaf).dtype.kind not in "fci":
            raise TypeError(f"check_grads: leaf {k} of args is a {type(leaf).__qualname__}")
    given = _map(lambda x: np.asarray(x, float) if np.asarray(x).dtype.kind == "i" else x, given)
    rng = np.random.default_rng(0)
    _check(fn, given, order, tuple(modes), atol, rtol, rng, "")


def _check(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    order: int,
    modes: tuple[str, ...],
    atol: float | None,
    rtol: float | None,
    rng: np.random.Generator,
    path: str,
) -> None:
    single = any(np.asarray(x).dtype in (np.float32, np.complex64) for x in trees.flatten(args)[0])
    tolerance = (
        (2e-2 if single else 1e-6) if atol is None else atol,
        (2e-2 if single else 1e-6) if rtol is None else rtol,
    )
    out = fn(*args)
    direction = _random_like(args, rng)
    weights = _random_like(out, rng)
    expected = _difference(fn, args, direction, 1e-2 if single else 1e-5)
    tangent = None
    if "fwd" in modes:
        value, tangent = points.jvp(fn, args, direction)
        _close(value, out, tolerance, f"{path}value by jvp", "value by NumPy")
        _close(tangent, expected, tolerance, f"{path}jvp", "central differences")
    if "rev" in modes:
        value, pull = points.vjp(fn, *args)
        _close(value, out, tolerance, f"{path}value by vjp", "value by NumPy")
        cotangents = pull(weights)
        got = _inner(cotangents, direction)
        _close(got, _inner(weights, expected), tolerance, f"{path}vjp", "central differences")
        if tangent is not None:
            exact = (tolerance[0], tolerance[1] if single else min(tolerance[1], 1e-8))
            _close(got, _inner(weights, tangent), exact, f"{path}vjp", "jvp")
    if order == 1:
        return
    if "fwd" in modes:
        _check(
            lambda *a: points.jvp(fn, a, direction)[1],
            args, order - 1, modes, atol, rtol, rng, f"{path}fwd > ",
        )  # fmt: skip
    if "rev" in modes:
        _check(
            lambda *a: points.vjp(fn, *a)[1](weights),
            args, order - 1, modes, atol, rtol, rng, f"{path}rev > ",
        )  # fmt: skip


def _map(f: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    leaves, treedef = trees.flatten(tree)
    others = [trees.flatten(t)[0] for t in rest]
    return trees.unflatten(treedef, [f(*xs) for xs in zip(leaves, *others, strict=True)])


def _random_like(tree: Any, rng: np.random.Generator) -> Any:
    def draw(x: Any) -> Any:
        a = np.asarray(x)
        if a.dtype.kind not in "fc":
            raise TypeError(
                f"check_grads: a result of dtype {a.dtype} has no derivative; return floats"
            )
        r = rng.uniform(0.5, 1.5, a.shape) * np.where(rng.random(a.shape) < 0.5, -1, 1)
        return r.astype(a.dtype) if a.ndim or isinstance(x, np.ndarray) else type(x)(r)

    return _map(draw, tree)


def _difference(fn: Callable[..., Any], args: Any, direction: Any, step: float) -> Any:
    """The derivative along ``direction`` by central differences, extrapolated once."""

    def central(h: float) -> Any:
        ahead = fn(*_map(lambda x, d: _moved(x, h, d), args, direction))
        behind = fn(*_map(lambda x, d: _moved(x, -h, d), args, direction))
        return _map(
            lambda a, b: (np.asarray(a, float) - np.asarray(b, float)) / (2 * h), ahead, behind
        )

    return _map(lambda a, b: (4 * a - b) / 3, central(step), central(2 * step))


def _moved(x: Any, h: float, d: Any) -> Any:
    moved = np.asarray(x) + np.asarray(h * np.asarray(d), np.asarray(x).dtype)
    return moved if isinstance(x, np.ndarray) else type(x)(moved)


def _inner(a: Any, b: Any) -> float:
    return float(
        sum(
            np.vdot(np.asarray(x, float), np.asarray(y, float))
            for x, y in zip(trees.flatten(a)[0], trees.flatten(b)[0], strict=True)
        )
    )


def _close(got: Any, want: Any, tolerance: tuple[float, float], name: str, other: str) -> None:
    atol, rtol = tolerance
    gots, gdef = trees.flatten(got)
    wants, wdef = trees.flatten(want)
    if gdef != wdef:
        raise AssertionError(f"check_grads: {name} has the structure {gdef}, {other} {wdef}")
    for k, (g, w) in enumerate(zip(gots, wants, strict=True)):
        a, b = np.asarray(g, float), np.asarray(w, float)
        if a.shape != b.shape:
            raise AssertionError(f"check_grads: {name} has shape {a.shape}, {other} {b.shape}")
        # Differences lose digits in proportion to the largest entry, not to each one.
        scale = float(np.max(np.abs(b[np.isfinite(b)]), initial=1.0))
        bad = ~((np.abs(a - b) <= atol + rtol * scale) | (a == b) | (np.isnan(a) & np.isnan(b)))
        if bad.any():
            at = tuple(int(i) for i in np.argwhere(np.atleast_1d(bad))[0]) if a.ndim else ()
            raise AssertionError(
                f"check_grads: {name} and {other} disagree"
                + (f" in result {k}" if len(gots) > 1 else "")
                + (f" at {at}" if at else "")
                + f": {a[at]!r} against {b[at]!r} "
                + f"({int(bad.sum())} of {bad.size} entries, atol={atol:g}, rtol={rtol:g})"
            )
