"""Root finders of ``scipy.optimize`` inside of traced functions: the solution is differentiated by
the implicit function theorem (``tapec.implicit``), to any order.

The function may use traced values of the enclosing function, or take them by ``args``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.optimize as _scipy

from tapec.api import grad, jit
from tapec.control import while_loop
from tapec.errors import TapecValueError, UnsupportedError, fail
from tapec.implicit import Solver, accepted, closed, root
from tapec.tape import as_tracer, current_tape

__all__ = ["bisect", "brenth", "brentq", "fsolve", "newton", "ridder", "root_scalar", "toms748"]

_STEPS = 200


def _within(fn: Callable[..., Any], name: str, xtol: float) -> Callable[..., Any]:
    """Newton's method inside of a bracket that shrinks; halving where a step would leave it, or is
    more than half of the one before."""
    slope = grad(fn)

    def search(ends: Any, *args: Any) -> Any:
        low, high = ends[0], ends[1]
        at_low, at_high = fn(low, *args), fn(high, *args)
        rising = at_high > at_low

        def more(c: Any) -> Any:
            low, high, _, step, k = c
            return (np.abs(step) > xtol * (1 + np.abs(low))) & (high != low) & (k < _STEPS)

        def again(c: Any) -> Any:
            low, high, x, last, k = c
            value, by_x = fn(x, *args), slope(x, *args)
            above = (value > 0) == rising
            low, high = np.where(above, low, x), np.where(above, x, high)
            low, high = np.where(value == 0, x, low), np.where(value == 0, x, high)
            steep = by_x != 0
            guess = x - value / np.where(steep, by_x, 1.0)
            inside = steep & (guess >= low) & (guess <= high)
            inside = inside & (2 * np.abs(guess - x) <= np.abs(last))
            new = np.where(inside, guess, 0.5 * (low + high))
            return low, high, new, new - x, k + 1

        start = (low, high, 0.5 * (low + high), high - low, 0)
        low, high, x, step, _ = while_loop(more, again, start)
        found = (np.abs(step) <= xtol * (1 + np.abs(low))) | (high == low)
        x = np.where(found, x, np.nan)
        x = np.where(at_low == 0, ends[0], np.where(at_high == 0, ends[1], x))
        message = f"{name}: f(a) and f(b) must have different signs"
        return accepted(at_low * at_high <= 0, x, message)

    return search


def _bracketing(name: str) -> Callable[..., Any]:
    plain = getattr(_scipy, name)

    def find(
        f: Any, a: Any, b: Any, args: Any = (), xtol: float = 2e-12, rtol: Any = None,
        maxiter: Any = None, full_output: bool = False, disp: bool = True, **kwargs: Any,
    ) -> Any:  # fmt: skip
        tape = current_tape()
        if tape is None:
            more = {"rtol": rtol, "maxiter": maxiter}
            given = {k: v for k, v in more.items() if v is not None} | kwargs
            return plain(f, a, b, args=args, xtol=xtol, full_output=full_output, disp=disp, **given)
        if full_output:
            raise fail(UnsupportedError, f"{name} in a traced function: full_output")
        ends = np.stack([as_tracer(tape, a) * 1.0, as_tracer(tape, b) * 1.0])
        fn, more_args = closed(f, ends[0], args)
        solver = Solver(fn, name, fn, _within(fn, name, float(xtol)), (float(xtol),))
        return jit(solver)(ends, *more_args)

    find.__name__ = find.__qualname__ = name
    find.__doc__ = f"``scipy.optimize.{name}``: the root of ``f`` between ``a`` and ``b``."
    return find


bisect, brenth, brentq = _bracketing("bisect"), _bracketing("brenth"), _bracketing("brentq")
ridder, toms748 = _bracketing("ridder"), _bracketing("toms748")


def newton(
    func: Any, x0: Any, fprime: Any = None, args: Any = (), tol: float = 1.48e-8, maxiter: int = 50,
    fprime2: Any = None, x1: Any = None, rtol: float = 0.0, full_output: bool = False,
    disp: bool = True,
) -> Any:  # fmt: skip
    """``scipy.optimize.newton``; the derivative is the exact one, whatever ``fprime`` is."""
    if current_tape() is None:
        return _scipy.newton(
            func, x0, fprime, args, tol, maxiter, fprime2, x1, rtol, full_output, disp
        )
    if full_output:
        raise fail(UnsupportedError, "newton in a traced function: full_output")
    return root(func, x0, args, max_iter=max(int(maxiter), 50))


def fsolve(func: Any, x0: Any, args: Any = (), *rest: Any, **kwargs: Any) -> Any:
    """``scipy.optimize.fsolve``, by Newton's method with the exact Jacobian."""
    if current_tape() is None:
        return _scipy.fsolve(func, x0, args, *rest, **kwargs)
    if kwargs.get("full_output"):
        raise fail(UnsupportedError, "fsolve in a traced function: full_output")
    start = np.atleast_1d(x0) * 1.0
    return root(lambda x, *more: np.stack([*func(x, *more)]).reshape(start.shape), start, args)


def root_scalar(
    f: Any, args: Any = (), method: Any = None, bracket: Any = None, fprime: Any = None,
    fprime2: Any = None, x0: Any = None, x1: Any = None, xtol: Any = None, rtol: Any = None,
    maxiter: Any = None, options: Any = None,
) -> Any:  # fmt: skip
    """``scipy.optimize.root_scalar``: an object whose ``root`` is the solution."""
    if current_tape() is None:
        return _scipy.root_scalar(
            f, args, method, bracket, fprime, fprime2, x0, x1, xtol, rtol, maxiter, options
        )
    if fprime is True:
        raise fail(UnsupportedError, "root_scalar in a traced function: f returns its derivative")
    if bracket is not None:
        found = brentq(f, *bracket, args=args, xtol=2e-12 if xtol is None else xtol)
    elif x0 is not None:
        found = root(f, x0, args)
    else:
        raise fail(TapecValueError, "root_scalar: a bracket or x0 is needed")
    return _scipy.RootResults(found, 0, 0, 0, "implicit")
