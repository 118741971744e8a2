"""``scipy.optimize`` with exact derivatives: ``minimize``, ``least_squares``, ``root``,
``curve_fit``, ``NonlinearConstraint``.

Each takes what SciPy's function of the same name takes and returns what it returns, but the
functions are written in NumPy for tapec and derivatives are not given: gradient, Jacobian and,
where the method uses one, Hessian (or Hessian-vector product) are compiled.  ``x0`` may be a
container; the result's ``x`` is one then, and ``x_flat`` the vector.  The root finders of scalar
equations may be called inside of traced functions, and are differentiated implicitly.

>>> import numpy as np
>>> from tapec.scipy.optimize import minimize
>>> rosen = lambda x: np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)
>>> np.round(minimize(rosen, np.array([-1.0, 2.0])).x, 6)
array([1., 1.])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapec import trees
from tapec.api import hessian as dense_hessian
from tapec.api import hvp, jacobian, jit, value_and_grad
from tapec.errors import TapecTypeError
from tapec.scipy import _roots
from tapec.scipy._roots import (
    bisect,
    brenth,
    brentq,
    fsolve,
    newton,
    ridder,
    root_scalar,
    toms748,
)
from tapec.sparse import sparse_hessian, sparse_jacobian

__all__ = [
    "NonlinearConstraint", "bisect", "brenth", "brentq", "curve_fit", "fsolve", "least_squares",
    "minimize", "newton", "ridder", "root", "root_scalar", "toms748",
]  # fmt: skip

#: Those that may be called inside of a traced function.
TRACED = _roots.__all__

_HESSIAN = ("dogleg", "trust-exact")
_PRODUCT = ("newton-cg", "trust-ncg", "trust-krylov", "trust-constr")
_NO_GRADIENT = ("nelder-mead", "powell", "cobyla", "cobyqa")


class _Flat:
    """A container of arrays as one vector."""

    def __init__(self, x0: Any) -> None:
        leaves, self.treedef = trees.flatten(x0)
        arrays = [np.asarray(leaf, float) for leaf in leaves]
        self.shapes = [a.shape for a in arrays]
        self.x0 = np.concatenate([a.reshape(-1) for a in arrays]) if arrays else np.zeros(0)
        self.plain = trees.is_leaf(self.treedef) and len(self.shapes[0]) == 1

    def unflatten(self, x: Any) -> Any:
        if self.plain:
            return x
        out, at = [], 0
        for shape in self.shapes:
            size = math.prod(shape)
            out.append(x[at : at + size].reshape(shape) if shape else x[at])
            at += size
        return trees.unflatten(self.treedef, out)

    def on_vector(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        if self.plain:
            return fn
        return lambda x, *args: fn(self.unflatten(x), *args)

    def finish(self, result: Any) -> Any:
        if not self.plain:
            result.x_flat = result.x
            result.x = self.unflatten(result.x)
        return result


def _tuple(args: Any) -> tuple[Any, ...]:
    return tuple(args) if isinstance(args, (tuple, list)) else (args,)


def _refuse(given: dict[str, Any], names: Sequence[str], what: str) -> None:
    for name in names:
        if name in given:
            raise TapecTypeError(f"{what}: {name}= is not given, tapec derives it")


def minimize(
    fun: Callable[..., Any], x0: Any, args: Any = (), method: str | None = None,
    constraints: Any = (), **kwargs: Any,
) -> Any:  # fmt: skip
    """``scipy.optimize.minimize``; constraints may be dicts without ``jac`` or this module's
    ``NonlinearConstraint``."""
    import scipy.optimize as so

    _refuse(kwargs, ("jac", "hess", "hessp"), "minimize")
    flat = _Flat(x0)
    fn = flat.on_vector(fun)
    name = (method or "").lower()
    if name in _NO_GRADIENT:
        result = so.minimize(jit(fn), flat.x0, _tuple(args), method, **kwargs)
        return flat.finish(result)
    if name in _HESSIAN:
        kwargs["hess"] = dense_hessian(fn)
    elif name in _PRODUCT:
        kwargs["hessp"] = hvp(fn)
    found = constraints if isinstance(constraints, (list, tuple)) else [constraints]
    ready = [_constraint(c, flat, flat.x0) for c in found]
    result = so.minimize(
        value_and_grad(fn), flat.x0, _tuple(args), method, jac=True, constraints=ready, **kwargs
    )
    return flat.finish(result)


def _constraint(c: Any, flat: _Flat, x0: Any) -> Any:
    if isinstance(c, NonlinearConstraint):
        return c.for_vector(flat, x0)
    if not isinstance(c, dict) or "jac" in c:
        return c
    fn, extra = flat.on_vector(c["fun"]), _tuple(c.get("args", ()))

    def atleast(x: Any) -> Any:
        return np.reshape(fn(x, *extra), (-1,))

    made = {**c, "fun": jit(atleast), "jac": jacobian(atleast)}
    made.pop("args", None)
    return made


class NonlinearConstraint:
    """``lb <= fun(x) <= ub`` with its Jacobian and the Hessian of its combinations.

    ``sparse``: derivatives as ``scipy.sparse`` matrices.
    """

    def __init__(self, fun: Callable[..., Any], lb: Any, ub: Any, *, sparse: bool = False) -> None:
        if not callable(fun):
            raise TapecTypeError(f"NonlinearConstraint expects a function, not {fun!r}")
        self.fun, self.lb, self.ub, self.sparse = fun, lb, ub, sparse

    def for_vector(self, flat: _Flat, x0: Any) -> Any:
        import scipy.optimize as so

        fn = flat.on_vector(self.fun)

        def values(x: Any) -> Any:
            return np.reshape(fn(x), (-1,))

        def combined(x: Any, v: Any) -> Any:
            return values(x) @ v

        jac: Any = sparse_jacobian(values) if self.sparse else jacobian(values)
        hess: Any = sparse_hessian(combined) if self.sparse else dense_hessian(combined)
        return so.NonlinearConstraint(jit(values), self.lb, self.ub, jac=jac, hess=hess)

    def scipy(self, x0: Any) -> Any:
        """The ``scipy.optimize.NonlinearConstraint`` for unknowns like ``x0``."""
        flat = _Flat(x0)
        return self.for_vector(flat, flat.x0)


def least_squares(
    fun: Callable[..., Any], x0: Any, args: Any = (), *, sparse: bool = False, **kwargs: Any
) -> Any:
    """``scipy.optimize.least_squares`` with the exact Jacobian (``sparse``: compressed)."""
    import scipy.optimize as so

    _refuse(kwargs, ("jac", "jac_sparsity"), "least_squares")
    flat = _Flat(x0)
    fn = flat.on_vector(fun)
    jac: Any = sparse_jacobian(fn) if sparse else jacobian(fn)
    return flat.finish(so.least_squares(jit(fn), flat.x0, jac, args=_tuple(args), **kwargs))


def root(
    fun: Callable[..., Any], x0: Any, args: Any = (), method: str = "hybr", **kwargs: Any
) -> Any:
    """``scipy.optimize.root`` with the exact Jacobian where the method uses one."""
    import scipy.optimize as so

    _refuse(kwargs, ("jac",), "root")
    flat = _Flat(x0)
    fn = flat.on_vector(fun)
    jac = jacobian(fn) if method in ("hybr", "lm") else None
    return flat.finish(so.root(jit(fn), flat.x0, _tuple(args), method, jac=jac, **kwargs))


def curve_fit(f: Callable[..., Any], xdata: Any, ydata: Any, p0: Any, **kwargs: Any) -> Any:
    """``scipy.optimize.curve_fit``: ``f(x, *parameters)``; returns parameters and covariance."""
    import scipy.optimize as so

    _refuse(kwargs, ("jac",), "curve_fit")
    packed = jacobian(lambda p, x: f(x, *[p[k] for k in range(p.shape[0])]))

    def jac(x: Any, *p: float) -> Any:
        return packed(np.array(p, float), x)

    call: Any = jit(lambda p, x: f(x, *[p[k] for k in range(p.shape[0])]))

    def fn(x: Any, *p: float) -> Any:
        return call(np.array(p, float), x)

    return so.curve_fit(fn, np.asarray(xdata, float), ydata, p0, jac=jac, **kwargs)
