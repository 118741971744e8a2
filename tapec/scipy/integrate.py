"""``scipy.integrate.solve_ivp`` with a compiled right-hand side and its exact Jacobian; inside of
traced functions ``solve_ivp`` and ``odeint`` are differentiable, by ``tapec.odeint``.

>>> import numpy as np
>>> def decay(t, y): return -1000.0 * (y - np.cos(t))
>>> found = solve_ivp(decay, (0.0, 1.0), [0.0], method="Radau")
>>> found.success, found.njev > 0
(True, True)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapec import numpy as tnp
from tapec.api import jacobian, jit
from tapec.errors import TapecTypeError, UnsupportedError, fail
from tapec.ode import odeint as solve
from tapec.sparse import sparse_jacobian
from tapec.tape import current_tape

__all__ = ["odeint", "solve_ivp"]

#: Those that may be called inside of a traced function.
TRACED = __all__

_IMPLICIT = ("Radau", "BDF", "LSODA")


def solve_ivp(
    fun: Callable[..., Any], t_span: Any, y0: Any, method: Any = "RK45", *, args: Any = (),
    sparse: bool = False, **kwargs: Any,
) -> Any:  # fmt: skip
    """As SciPy's: ``fun(t, y, *args)`` gives the derivative, shape ``(n,)``, of ``y``.

    Implicit methods (Radau, BDF, LSODA) get the exact Jacobian; ``sparse``: as a
    ``scipy.sparse`` matrix (not for LSODA).  Raises ``TypeError`` if ``jac`` is given as well.

    Inside of a traced function: at the times ``t_eval``, by an explicit method of order 5 with a
    tolerance of at most 1e-8; ``UnsupportedError`` for an implicit method, events and the like.
    """
    from scipy.integrate import solve_ivp as of_scipy

    if current_tape() is not None:
        return _traced(fun, t_span, y0, method, args, kwargs)
    for name in ("jac", "jac_sparsity"):
        if name in kwargs:
            raise TapecTypeError(f"solve_ivp: {name}= is not given, tapec derives it")
    rest = _tuple(args)

    def field(t: Any, y: Any) -> Any:
        return _vector(fun(t, y, *rest))

    if isinstance(method, str) and method in _IMPLICIT:
        derive: Any = sparse_jacobian if sparse else jacobian
        kwargs["jac"] = derive(field, argnums=1)
    compiled = jit(field)
    # SciPy passes NumPy floats for t, for which there would be a variant of their own.
    return of_scipy(
        lambda t, y: compiled(float(t), y), t_span, np.asarray(y0, float), method, **kwargs
    )


def _tuple(args: Any) -> tuple[Any, ...]:
    if args is None:
        return ()
    return tuple(args) if isinstance(args, (tuple, list)) else (args,)


def _vector(y: Any) -> Any:
    return tnp.array(list(y)) if isinstance(y, (list, tuple)) else y


def _start(y0: Any) -> Any:
    return np.atleast_1d(_vector(y0)) * 1.0


#: At least as accurate as asked, and enough for a derivative.
_TOLERANCE = 1e-8


def odeint(
    func: Callable[..., Any], y0: Any, t: Any, args: Any = (), *rest: Any, tfirst: bool = False,
    rtol: Any = None, atol: Any = None, **kwargs: Any,
) -> Any:  # fmt: skip
    """``scipy.integrate.odeint``; inside of a traced function by an explicit method of order 5,
    differentiable with respect to ``y0``, ``t``, ``args`` and what ``func`` uses."""
    if current_tape() is None:
        from scipy.integrate import odeint as of_scipy

        return of_scipy(func, y0, t, args, *rest, tfirst=tfirst, rtol=rtol, atol=atol, **kwargs)
    if rest or kwargs.get("full_output"):
        raise fail(
            UnsupportedError, "odeint in a traced function: full_output, or Dfun by position"
        )

    def field(y: Any, t: Any, *more: Any) -> Any:
        out = func(t, y, *more) if tfirst else func(y, t, *more)
        return np.reshape(_vector(out), np.shape(y))

    rtol, atol = (min(v or _TOLERANCE, _TOLERANCE) for v in (rtol, atol))
    return solve(field, _start(y0), _vector(t), *_tuple(args), rtol=rtol, atol=atol)


def _traced(
    fun: Callable[..., Any], span: Any, y0: Any, method: Any, args: Any, options: dict[str, Any]
) -> Any:
    from scipy.integrate._ivp.ivp import OdeResult

    at = options.get("t_eval")
    unknown = [k for k in ("events", "dense_output") if options.get(k)]
    if method not in ("RK45", "RK23", "DOP853"):
        unknown.append(f"method={method!r}")
    if unknown:
        raise fail(UnsupportedError, f"solve_ivp in a traced function: {', '.join(unknown)}")
    if at is None:
        raise fail(
            UnsupportedError, "solve_ivp in a traced function chooses no times",
            "give them as t_eval",
        )  # fmt: skip
    at = _vector(at)

    def field(y: Any, t: Any, *more: Any) -> Any:
        return np.reshape(_vector(fun(t, y, *more)), np.shape(y))

    times = np.concatenate([np.reshape(span[0], (1,)) * 1.0, at])
    rtol, atol = options.get("rtol", _TOLERANCE), options.get("atol", _TOLERANCE)
    ys = solve(
        field, _start(y0), times, *_tuple(args), rtol=min(rtol, _TOLERANCE),
        atol=min(atol, _TOLERANCE),
    )  # fmt: skip
    return OdeResult(
        t=at, y=np.transpose(ys[1:]), sol=None, t_events=None, y_events=None, status=0,
        message="The solver successfully reached the end of the integration interval.",
        success=True,
    )  # fmt: skip
