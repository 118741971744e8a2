"""Problems for Ipopt: what ``cyipopt.Problem`` calls, with exact sparse derivatives.

>>> import numpy as np
>>> problem = Problem(
...     lambda x: x[0] ** 2 + x[1] ** 2, np.ones(2), constraints=lambda x: np.stack([x[0] * x[1]])
... )
>>> problem.gradient(np.array([1.0, 3.0])), problem.jacobian(np.array([1.0, 3.0]))
(array([2., 6.]), array([3., 1.]))
>>> problem.hessianstructure(), problem.hessian(np.ones(2), np.array([5.0]), 1.0)
((array([0, 1, 1]), array([0, 0, 1])), array([2., 5., 2.]))

With the solver installed::

    solver = cyipopt.Problem(n=2, m=1, problem_obj=problem, lb=lb, ub=ub, cl=cl, cu=cu)
    x, info = solver.solve(x0)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapec.api import jit, value_and_grad
from tapec.errors import TapecTypeError, TapecValueError
from tapec.sparse import Pattern, sparse_hessian, sparse_jacobian

__all__ = ["Problem"]

Array = np.ndarray[Any, Any]


class Problem:
    """Minimise ``objective(x)`` subject to bounds on ``constraints(x)``.

    ``x0`` gives the shape ``(n,)`` of the unknowns; ``constraints`` returns a vector ``(m,)``, or
    is None.  The methods are those that cyipopt looks for.  Structures are exact and found once;
    a function whose structure changes with its branches is refused (``ValueError``): give Ipopt a
    point ``x0`` where every entry is there.
    """

    def __init__(
        self,
        objective: Callable[[Any], Any],
        x0: Any,
        constraints: Callable[[Any], Any] | None = None,
    ) -> None:
        start = np.asarray(x0, float)
        if start.ndim != 1:
            raise TapecTypeError(f"Problem: x0 is a vector, not of shape {start.shape}")
        self.n = len(start)
        self._objective = jit(objective)
        self._gradient: Any = value_and_grad(objective)
        self._constraints: Any = None
        self.m = 0
        if constraints is not None:
            given = constraints

            def values(x: Any) -> Any:
                return np.reshape(given(x), (-1,))

            def lagrangian(x: Any, multipliers: Any, factor: Any) -> Any:
                return factor * objective(x) + values(x) @ multipliers

            self._constraints = jit(values)
            self.m = len(self._constraints(start))
            self._jacobian: Any = sparse_jacobian(values)
            self._jacobian(start)
        else:

            def lagrangian(x: Any, multipliers: Any, factor: Any) -> Any:
                return factor * objective(x)

        self._hessian: Any = sparse_hessian(lagrangian, lower=True)
        self._hessian(start, np.ones(self.m), 1.0)
        self._patterns: tuple[Pattern | None, Pattern] = (
            self._jacobian.pattern if self.m else None,
            self._hessian.pattern,
        )

    def objective(self, x: Array) -> float:
        """The objective at ``x``."""
        return float(self._objective(x))

    def gradient(self, x: Array) -> Array:
        """Its gradient, shape ``(n,)``."""
        found: Array = self._gradient(x)[1]
        return found

    def constraints(self, x: Array) -> Array:
        """The constraints at ``x``, shape ``(m,)``."""
        return self._constraints(x) if self.m else np.zeros(0)

    def jacobianstructure(self) -> tuple[Array, Array]:
        """Rows and columns of the structural non-zeros of the constraints' Jacobian."""
        pattern = self._patterns[0]
        if pattern is None:
            return np.zeros(0, int), np.zeros(0, int)
        return pattern.rows, pattern.cols

    def jacobian(self, x: Array) -> Array:
        """Their values, in the order of ``jacobianstructure``."""
        if not self.m:
            return np.zeros(0)
        return self._values(self._jacobian, 0, x)

    def hessianstructure(self) -> tuple[Array, Array]:
        """Rows and columns of the lower triangle of the Lagrangian's Hessian."""
        return self._patterns[1].rows, self._patterns[1].cols

    def hessian(self, x: Array, lagrange: Array, obj_factor: float) -> Array:
        """Values of ``obj_factor ∇²f + Σ lagrange[k] ∇²c[k]``, as ``hessianstructure`` says."""
        return self._values(self._hessian, 1, x, np.asarray(lagrange, float), float(obj_factor))

    def _values(self, derivative: Any, which: int, *args: Any) -> Array:
        found: Array = derivative.values(*args)
        if derivative.pattern is not self._patterns[which]:
            known = self._patterns[which]
            assert known is not None
            if not np.array_equal(known.keys(), derivative.pattern.keys()):
                raise TapecValueError(
                    "Problem: the structure of the derivatives has changed with a branch of the "
                    f"function, from {known.nnz} to {derivative.pattern.nnz} non-zeros; start at a "
                    "point where every entry is there"
                )
        return found
