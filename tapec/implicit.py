"""Solutions of equations as differentiable operations: ``root``, ``fixed_point``, ``argmin``,
``linear_solve``.

The solver is an ordinary loop; its derivative is not that of the loop but that of the
equation, ``dx = -J⁻¹ df`` at the solution (implicit function theorem), as the rule of a
``custom_jvp``.  Since the rule refers to the solution itself, it holds at every order, in both
modes and under ``vmap``.

Invariant: a solution that was not reached is an error (or NaN where a trace cannot know).

>>> import tapec
>>> def golden(a):
...     return tapec.root(lambda x, a: x * x - a * x - 1, 1.0, (a,))
>>> round(tapec.grad(golden)(1.0), 12)
0.72360679775
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tapec import trees
from tapec.api import grad, jacobian, jit
from tapec.control import while_loop
from tapec.custom import custom_jvp, custom_vjp, stop_gradient
from tapec.dispatch import Dispatcher
from tapec.errors import ConversionError, TapecTypeError, TapecValueError
from tapec.ir.core import walk
from tapec.points import jvp, vjp
from tapec.primitives import cast
from tapec.tape import Handle, as_tracer, current_tape
from tapec.trace import Output, where_defined
from tapec.transforms import Transform

__all__ = ["argmin", "fixed_point", "linear_solve", "root"]


def _name(fn: Any) -> str:
    return str(getattr(fn, "__name__", "the equation"))


def _size(v: Any) -> Any:
    return np.max(np.abs(v)) if np.ndim(v) else np.abs(v)


def _solved(j: Any, r: Any) -> Any:
    """``j⁻¹ r`` for a value of any shape and its square Jacobian."""
    shape = np.shape(r)
    if not shape:
        return r / j
    n = r.size
    return np.linalg.solve(j.reshape(n, n), r.reshape(n)).reshape(shape)


class Solver:
    """A solver as the subject of ``jit``: ``(x0, *args) → x``."""

    def __init__(
        self, fn: Callable[..., Any], kind: str, equation: Callable[..., Any],
        search: Callable[..., Any], options: tuple[Any, ...],
    ) -> None:  # fmt: skip
        functools.update_wrapper(self, fn, updated=())
        self.kind = kind
        self.options = options
        self.equation = equation
        self.solve = custom_jvp(search)
        self.solve.name = f"{kind} of {_name(fn)}"
        self.solve.defjvp(self.rule)

    @property
    def origin(self) -> tuple[Any, Any]:
        return self.__wrapped__, (self.kind, self.options)  # type: ignore[attr-defined]

    def __call__(self, /, x0: Any, *args: Any) -> Any:
        tape = current_tape()
        assert tape is not None
        # Traced, so that the rule is used even if nothing else is.
        x0 = as_tracer(tape, float(x0) if type(x0) is int else x0)
        return self.solve(stop_gradient(x0), *args)

    def rule(self, primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
        x = self.solve(*primals)
        _, *args = primals
        moving = [k for k, t in enumerate(tangents[1:]) if t is not None]

        def at(*values: Any) -> Any:
            given = list(args)
            for k, v in zip(moving, values):
                given[k] = v
            return self.equation(x, *given)

        if not moving:
            return x, x * 0.0
        _, df = jvp(at, tuple(args[k] for k in moving), tuple(tangents[1 + k] for k in moving))
        return x, -_solved(jacobian(self.equation)(x, *args), df)


def accepted(ok: Any, x: Any, what: str) -> Any:
    """``x`` if the search ended well, an error if it is known that it did not, else NaN."""
    try:
        if ok:
            return x
    except ConversionError:
        return np.where(ok, x, np.nan)
    raise TapecValueError(what)


def _search_root(
    fn: Callable[..., Any], tol: float, max_iter: int, kind: str
) -> Callable[..., Any]:
    derivative = jacobian(fn)

    def search(x0: Any, *args: Any) -> Any:
        x0 = x0 * 1.0
        first = fn(x0, *args)
        if np.shape(first) != np.shape(x0):
            raise TapecValueError(
                f"{kind}: {where_defined(fn)} returned an array of shape {np.shape(first)} for "
                f"unknowns of shape {np.shape(x0)}"
            )

        def more(c: Any) -> Any:
            x, step, k = c
            return (step > tol * (1.0 + _size(x))) & (k < max_iter)

        def newton(c: Any) -> Any:
            x, _, k = c
            step = _solved(derivative(x, *args), fn(x, *args))
            return x - step, _size(step), k + 1

        x, step, _ = while_loop(more, newton, (x0, _size(x0) * 0 + np.inf, 0))
        return accepted(
            (step <= tol * (1.0 + _size(x))) & (_size(x) < np.inf),
            x,
            f"{kind}: no solution of {where_defined(fn)} found in {max_iter} Newton steps (a "
            "singular Jacobian, or a start too far off); instead: another x0, or max_iter",
        )

    return search


def _start(x0: Any, kind: str) -> Any:
    if not isinstance(x0, (float, int, np.ndarray, np.generic)) and not hasattr(x0, "tape"):
        raise TapecTypeError(f"{kind}: x0 is a number or an array, not a {type(x0).__qualname__}")
    return float(x0) if type(x0) is int else x0


def closed(fn: Callable[..., Any], x: Any, args: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """``fn`` with the values that it takes from an enclosing trace as further arguments, so that
    the rule knows of them; and all arguments after the first."""
    args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    if current_tape() is None:
        return fn, args
    dispatcher = Dispatcher(Transform("jit"), _name(fn))
    flat = dispatcher.flatten(fn, (x, *args), {}).flat
    traced = dispatcher.trace(fn, flat)
    taken = [c for c in traced.captures if isinstance(c, Handle) and c.type.dtype.is_inexact]
    # a path that Python chose at the start need not be that of the solution
    if not taken or any(op.name == "guard" for op in walk(traced.fn.block)):
        return fn, args
    place = {id(c): k for k, c in enumerate(taken)}

    @functools.wraps(fn)
    def hoisted(x: Any, *values: Any) -> Any:
        tape = current_tape()
        assert tape is not None
        given, captured = values[: len(args)], values[len(args) :]
        leaves, _ = trees.flatten(((x, *given), {}))
        operands = [leaves[k] for k in flat.traced]
        operands += [captured[place[id(c)]] if id(c) in place else c for c in traced.captures]
        types = [p.type.dtype for p in traced.fn.params]
        results = tape.inline(
            traced.fn, [cast(as_tracer(tape, v), t) for v, t in zip(operands, types)]
        )
        found = [results[r.slot] if isinstance(r, Output) else r.value for r in traced.leaves]
        return trees.unflatten(traced.treedef, found)

    return hoisted, (*args, *taken)


def _positive(tol: Any, max_iter: Any, kind: str) -> tuple[float, int]:
    if not float(tol) > 0 or int(max_iter) < 1:
        raise TapecValueError(f"{kind}: tol and max_iter are positive")
    return float(tol), int(max_iter)


def root(
    fn: Callable[..., Any], x0: Any, args: Any = (), *, tol: float = 1e-12, max_iter: int = 50
) -> Any:
    """x with ``fn(x, *args) = 0``, by Newton's method from ``x0``.

    Differentiable with respect to ``args`` (not ``x0``), to any order, in both modes, under
    ``vmap``; and to values of an enclosing traced function that ``fn`` uses.  ``fn`` returns an
    array of the shape of x.
    """
    tol, max_iter = _positive(tol, max_iter, "root")
    x0 = _start(x0, "root")
    fn, args = closed(fn, x0, args)
    search = _search_root(fn, tol, max_iter, "root")
    return jit(Solver(fn, "root", fn, search, (tol, max_iter)))(x0, *args)


def fixed_point(
    fn: Callable[..., Any], x0: Any, args: Any = (), *, tol: float = 1e-12, max_iter: int = 10_000
) -> Any:
    """x with ``x = fn(x, *args)``, by iterating ``fn``; differentiable like ``root``."""
    tol, max_iter = _positive(tol, max_iter, "fixed_point")
    x0 = _start(x0, "fixed_point")
    fn, args = closed(fn, x0, args)

    def search(x0: Any, *args: Any) -> Any:
        x0 = x0 * 1.0

        def more(c: Any) -> Any:
            x, step, k = c
            return (step > tol * (1.0 + _size(x))) & (k < max_iter)

        def again(c: Any) -> Any:
            x, _, k = c
            new = fn(x, *args)
            return new, _size(new - x), k + 1

        x, step, _ = while_loop(more, again, (x0, _size(x0) * 0 + np.inf, 0))
        return accepted(
            (step <= tol * (1.0 + _size(x))) & (_size(x) < np.inf),
            x,
            f"fixed_point: {where_defined(fn)} does not converge in {max_iter} iterations",
        )

    def equation(x: Any, *args: Any) -> Any:
        return x - fn(x, *args)

    return jit(Solver(fn, "fixed_point", equation, search, (tol, max_iter)))(x0, *args)


def argmin(
    fn: Callable[..., Any], x0: Any, args: Any = (), *, tol: float = 1e-10, max_iter: int = 50
) -> Any:
    """Where ``fn(x, *args)`` is stationary, by Newton's method on its gradient from ``x0``;
    differentiable like ``root``."""
    tol, max_iter = _positive(tol, max_iter, "argmin")
    x0 = _start(x0, "argmin")
    fn, args = closed(fn, x0, args)
    slope = grad(fn)
    search = _search_root(slope, tol, max_iter, "argmin")
    return jit(Solver(fn, "argmin", slope, search, (tol, max_iter)))(x0, *args)


def linear_solve(
    matvec: Callable[..., Any],
    b: Any,
    args: Any = (),
    *,
    tol: float = 1e-12,
    max_iter: int = 10_000,
) -> Any:
    """x with ``matvec(x, *args) = b`` for a symmetric positive definite operator, by conjugate
    gradients, without the matrix; for a matrix use ``np.linalg.solve``.

    Differentiable with respect to ``b`` and ``args``; the derivative is another such solve.
    """
    tol, max_iter = _positive(tol, max_iter, "linear_solve")
    matvec, args = closed(matvec, b, args)

    def search(b: Any, *args: Any) -> Any:
        b = b * 1.0
        goal = tol * tol * np.sum(b * b)

        def more(c: Any) -> Any:
            return (c[3] > goal) & (c[4] < max_iter)

        def step(c: Any) -> Any:
            x, r, p, rr, k = c
            ap = matvec(p, *args)
            a = rr / np.sum(p * ap)
            r = r - a * ap
            new = np.sum(r * r)
            return x + a * p, r, r + (new / rr) * p, new, k + 1

        x, _, _, rr, _ = while_loop(more, step, (b * 0.0, b, b, np.sum(b * b), 0))
        return accepted(
            rr <= goal,
            x,
            f"linear_solve: {where_defined(matvec)} is not positive definite, or needs more than "
            f"{max_iter} iterations",
        )

    solver = _Linear(matvec, search, (tol, max_iter))
    return jit(solver)(b, *args)


class _Linear:
    def __init__(self, fn: Any, search: Callable[..., Any], options: tuple[Any, ...]) -> None:
        functools.update_wrapper(self, fn, updated=())
        self.matvec = fn
        self.options = options
        self.solve = custom_vjp(search)
        self.solve.name = f"linear_solve of {_name(fn)}"
        self.solve.defvjp(self.forward, self.backward)

    @property
    def origin(self) -> tuple[Any, Any]:
        return self.matvec, ("linear_solve", self.options)

    def __call__(self, /, b: Any, *args: Any) -> Any:
        return self.solve(b, *args)

    def forward(self, b: Any, *args: Any) -> tuple[Any, Any]:
        x = self.solve(b, *args)
        return x, (x, args)

    def backward(self, residuals: Any, ct: Any) -> tuple[Any, ...]:
        """The operator is symmetric: its inverse is its own transpose."""
        x, args = residuals
        lam = self.solve(ct, *args)
        moving = [k for k, a in enumerate(args) if _inexact(a)]
        cts: list[Any] = [None] * len(args)
        if moving:

            def at(*values: Any) -> Any:
                given = list(args)
                for k, v in zip(moving, values):
                    given[k] = v
                return self.matvec(x, *given)

            _, pull = vjp(at, *[args[k] for k in moving])
            for k, found in zip(moving, pull(-lam)):
                cts[k] = found
        return (lam, *cts)


def _inexact(value: Any) -> bool:
    return np.dtype(getattr(value, "dtype", type(value))).kind in "fc"
