"""``odeint``: initial value problems solved in native code, differentiable.

The method is Dormand and Prince's embedded pair of orders 5 and 4 (J. Comp. Appl. Math. 6, 1980),
with the usual step control (Hairer, Nørsett, Wanner, Solving ODEs I, II.4), as a ``while_loop`` in
a ``scan`` over the times.  Two derivatives:

- direct: that of the steps taken, their sizes held fixed; every order and both modes;
- ``adjoint=True``: the adjoint equation is solved backwards from the solution at the times (Chen et
  al., NeurIPS 2018), which needs no memory for the steps; a ``custom_vjp``.

>>> import numpy as np, tapec
>>> decay = lambda k: tapec.odeint(lambda y, t, k: -k * y, 1.0, np.array([0.0, 2.0]), k)[-1]
>>> round(tapec.grad(decay)(0.5), 7)  # -2 exp(-1)
-0.7357589
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tapec import trees
from tapec.api import jit
from tapec.control import scan, while_loop
from tapec.custom import custom_vjp, stop_gradient
from tapec.errors import TapecTypeError, TapecValueError
from tapec.points import vjp
from tapec.trace import where_defined

__all__ = ["odeint"]

# Dormand and Prince's coefficients: stages, the solution of order 5, and its difference from that
# of order 4.  The last stage is the first one of the next step.
_C = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
_A = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_E = (
    71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40,
)  # fmt: skip


def odeint(
    f: Callable[..., Any], y0: Any, t: Any, *args: Any,
    rtol: float = 1e-8, atol: float = 1e-8, max_steps: int = 100_000, adjoint: bool = False,
) -> Any:  # fmt: skip
    """Solve ``dy/dt = f(y, t, *args)`` from ``y(t[0]) = y0``.

    ``y0``: an array or number, or a container of those; ``t``: the times, increasing or
    decreasing, shape ``(n,)``; ``f`` returns the structure and shapes of ``y0``.  Returns the
    solution at all times: ``y0``'s structure, each array with a leading axis of length ``n``.
    Differentiable with respect to ``y0``, ``t`` and ``args``; ``adjoint``: see the module.

    ``rtol`` and ``atol`` bound the estimated error per step and component.  A solution that needs
    more than ``max_steps`` steps between two times, or leaves the finite numbers, is NaN from
    there on.

    Raises ``TypeError`` if ``f`` returns another structure, ``ValueError`` for other shapes or
    times that are not a vector.

    >>> import numpy as np, tapec
    >>> pendulum = lambda y, t: np.array([y[1], -y[0]])
    >>> y = tapec.odeint(pendulum, np.array([0.0, 1.0]), [0.0, 1.0])
    >>> np.round(y[-1], 6), np.round([np.sin(1), np.cos(1)], 6)
    (array([0.841471, 0.540302]), array([0.841471, 0.540302]))
    """
    if len(np.shape(t)) != 1 or not np.shape(t)[0]:
        raise TapecValueError(f"odeint: t is a vector of times, not of shape {np.shape(t)}")
    options = (float(rtol), float(atol), int(max_steps), bool(adjoint))
    # An integer would be a constant of the trace.
    t = np.asarray(t, float) if isinstance(t, (list, tuple)) else t * 1.0
    return jit(_Problem(f, options))(y0, t, *args)


class _Problem:
    """A problem as the subject of ``jit``: ``(y0, t, *args)`` to the solution."""

    def __init__(self, f: Callable[..., Any], options: tuple[Any, ...]) -> None:
        functools.update_wrapper(self, f, updated=())
        self.f = f
        self.options = options

    @property
    def origin(self) -> tuple[Any, Any]:
        return self.f, ("odeint", self.options)

    def __call__(self, /, y0: Any, t: Any, *args: Any) -> Any:
        rtol, atol, max_steps, adjoint = self.options
        leaves, structure = trees.flatten(y0)
        shapes = [np.shape(y) for y in leaves]

        def field(y: Any, t: Any, *args: Any) -> Any:
            out, found = trees.flatten(self.f(_apart(y, structure, shapes), t, *args))
            if found != structure:
                raise TapecTypeError(
                    f"odeint: {where_defined(self.f)} returned the structure {found}, but y0 has "
                    f"{structure}"
                )
            if [np.shape(d) for d in out] != shapes:
                raise TapecValueError(
                    f"odeint: {where_defined(self.f)} returned shapes "
                    f"{[np.shape(d) for d in out]}, but y0 has {shapes}"
                )
            return _joined(out)

        def solve(y0: Any, t: Any, *args: Any) -> Any:
            return _solve(field, y0, t, args, rtol, atol, max_steps)

        if adjoint:
            with_rule = custom_vjp(solve)
            with_rule.name = f"odeint of {getattr(self.f, '__name__', 'f')}"
            rule = functools.partial(_backward, field, (rtol, atol, max_steps))
            with_rule.defvjp(lambda *a: _forward(with_rule, *a), rule)
            solve = with_rule
        ys = solve(_joined(leaves), t, *args)
        out, at = [], 0
        for shape in shapes:
            size = int(np.prod(shape))
            out.append(ys[:, at : at + size].reshape(-1, *shape))
            at += size
        return trees.unflatten(structure, out)


def _joined(leaves: Any) -> Any:
    return np.concatenate([np.reshape(y * 1.0, -1) for y in leaves])


def _apart(y: Any, structure: Any, shapes: Any) -> Any:
    out, at = [], 0
    for shape in shapes:
        size = int(np.prod(shape))
        out.append(y[at : at + size].reshape(shape))
        at += size
    return trees.unflatten(structure, out)


def _norm(y: Any) -> Any:
    return np.sqrt(np.mean(y * y))


def _solve(
    field: Callable[..., Any], y0: Any, t: Any, args: Any, rtol: float, atol: float, limit: int
) -> Any:
    """The solution at ``t`` as the rows of a matrix, for a vector ``y0``."""
    f0 = field(y0, t[0], *args)
    scale = atol + rtol * np.abs(y0)
    d0, d1 = _norm(y0 / scale), _norm(f0 / scale)
    h0 = np.where((d0 < 1e-5) | (d1 < 1e-5), 1e-6, 0.01 * d0 / np.where(d1 > 0, d1, 1.0))
    h0 = stop_gradient(h0)

    def interval(carry: Any, end: Any) -> Any:
        _, t0, _, _ = carry
        forward = stop_gradient(np.where(end >= t0, 1.0, -1.0))

        def more(c: Any) -> Any:
            y, t, _, h, steps = c
            going = ((end - t) * forward > 0.0) & (steps < limit)
            return going & np.isfinite(h) & np.all(np.isfinite(y))

        def step(c: Any) -> Any:
            y, t, k1, h, steps = c
            left = (end - t) * forward
            last = h >= left
            dt = np.where(last, end - t, h * forward)
            ks = [k1]
            at = y
            for a, c_ in zip(_A, _C):
                at = y + dt * sum(w * k for w, k in zip(a, ks) if w)
                ks.append(field(at, t + c_ * dt, *args))
            error = dt * sum(w * k for w, k in zip(_E, ks) if w)
            size = _norm(error / (atol + rtol * np.maximum(np.abs(y), np.abs(at))))
            size = stop_gradient(size)
            good = size <= 1.0
            factor = np.clip(0.9 * np.maximum(size, 1e-10) ** -0.2, 0.2, 10.0)
            # What did not evaluate to a number is too far away, too.
            factor = np.where(np.isnan(size), 0.2, factor)
            tried = np.where(last, stop_gradient(left), h)
            # A step that was cut short says little about the next one.
            h_next = np.where(good & last, np.maximum(h, tried * factor), tried * factor)
            t_next = np.where(last, end, t + dt)
            return (
                np.where(good, at, y),
                np.where(good, t_next, t),
                np.where(good, ks[-1], k1),
                stop_gradient(h_next),
                steps + 1,
            )

        y, t1, k1, h, _ = while_loop(more, step, (*carry, 0))
        y = np.where((t1 == end) & np.all(np.isfinite(y)), y, np.nan)
        return (y, end, k1, h), y

    _, ys = scan(interval, (y0, t[0], f0, h0), t[1:])
    return np.concatenate([y0[np.newaxis], ys])


def _forward(solve: Callable[..., Any], y0: Any, t: Any, *args: Any) -> tuple[Any, Any]:
    ys = solve(y0, t, *args)
    return ys, (ys, t, args)


def _backward(
    field: Callable[..., Any], options: tuple[float, float, int], residuals: Any, ct: Any
) -> tuple[Any, ...]:
    """Cotangents of ``y0``, ``t`` and the arguments by the adjoint equation.

    With ``a(t)`` the cotangent of ``y(t)``, ``da/dt = -aᵀ ∂f/∂y``, and that of the arguments grows
    by ``-aᵀ ∂f/∂args``; at each time the cotangent of the solution there is added to ``a``.
    """
    ys, t, args = residuals
    leaves, structure = trees.flatten(args)
    moving = [k for k, x in enumerate(leaves) if _inexact(x)]
    shapes = [np.shape(leaves[k]) for k in moving]
    n = ys.shape[1]

    def with_moving(values: Any) -> Any:
        given = list(leaves)
        for k, v in zip(moving, values):
            given[k] = v
        return trees.unflatten(structure, given)

    def reverse_field(state: Any, t: Any, values: Any) -> Any:
        y, a = state[:n], state[n : 2 * n]
        f, pull = vjp(lambda y, *v: field(y, t, *with_moving(v)), y, *values)
        down, *rest = pull(-a)
        return _joined([f, down, *rest])

    values = [leaves[k] for k in moving]
    total = sum(int(np.prod(s)) for s in shapes)

    def interval(carry: Any, x: Any) -> Any:
        a, grown = carry
        y, start, end, g = x
        a = a + g
        f = field(y, start, *args)
        # Moving the time of a result moves it along the field.
        at_time = np.sum(g * f)
        state = np.concatenate([y, a, grown])
        back = _solve(reverse_field, state, np.stack([start, end]), (values,), *options)[-1]
        return (back[n : 2 * n], back[2 * n :]), at_time

    steps = len(ys) - 1
    xs = (ys[1:], t[1:], t[:-1], ct[1:])
    start = (ys[0] * 0.0, np.zeros(total) * ys[0, 0])
    (a, grown), times = scan(interval, start, xs, length=steps, reverse=True)
    first = -np.sum(a * field(ys[0], t[0], *args))
    a = a + ct[0]
    cts: list[Any] = [None] * len(leaves)
    at = 0
    for k, shape in zip(moving, shapes):
        size = int(np.prod(shape))
        cts[k] = grown[at : at + size].reshape(shape)
        at += size
    return (a, np.concatenate([first[np.newaxis], times]), *trees.unflatten(structure, cts))


def _inexact(value: Any) -> bool:
    return np.dtype(getattr(value, "dtype", type(value))).kind == "f"
