"""``scipy.integrate.solve_ivp`` with a compiled right-hand side and its exact Jacobian.

For a solution that is differentiable itself, see ``tapec.odeint``.

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

from tapec.api import jacobian, jit
from tapec.errors import TapecTypeError
from tapec.sparse import sparse_jacobian

__all__ = ["solve_ivp"]

_IMPLICIT = ("Radau", "BDF", "LSODA")


def solve_ivp(
    fun: Callable[..., Any], t_span: Any, y0: Any, method: Any = "RK45", *, args: Any = (),
    sparse: bool = False, **kwargs: Any,
) -> Any:  # fmt: skip
    """As SciPy's: ``fun(t, y, *args)`` gives the derivative, shape ``(n,)``, of ``y``.

    Implicit methods (Radau, BDF, LSODA) get the exact Jacobian; ``sparse``: as a
    ``scipy.sparse`` matrix (not for LSODA).  Raises ``TypeError`` if ``jac`` is given as well.
    """
    from scipy.integrate import solve_ivp as of_scipy

    for name in ("jac", "jac_sparsity"):
        if name in kwargs:
            raise TapecTypeError(f"solve_ivp: {name}= is not given, tapec derives it")
    rest = tuple(args) if isinstance(args, (tuple, list)) else (args,)

    def field(t: Any, y: Any) -> Any:
        out = fun(t, y, *rest)
        return np.stack(out) if isinstance(out, (list, tuple)) else out

    if isinstance(method, str) and method in _IMPLICIT:
        derive: Any = sparse_jacobian if sparse else jacobian
        kwargs["jac"] = derive(field, argnums=1)
    compiled = jit(field)
    # SciPy passes NumPy floats for t, for which there would be a variant of their own.
    return of_scipy(
        lambda t, y: compiled(float(t), y), t_span, np.asarray(y0, float), method, **kwargs
    )
