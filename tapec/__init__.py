"""tapec: a tape-based symbolic autograd compiler for NumPy code.

A function written in plain NumPy becomes one native function that computes its value and its
gradient:

>>> import numpy as np, tapec
>>> @tapec.value_and_grad
... def loss(w, x, y):
...     return np.mean((x @ w - y) ** 2)
>>> value, gradient = loss(np.zeros(2), np.eye(2), np.ones(2))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tapec import numpy
    from tapec.api import fuse, grad, hessian, hvp, jacfwd, jacobian, jacrev, jit, value_and_grad
    from tapec.batching import vectorize, vmap
    from tapec.caches import clear_caches
    from tapec.control import (
        associative_scan,
        checkpoint,
        cond,
        fori_loop,
        map,
        scan,
        switch,
        while_loop,
    )
    from tapec.custom import custom_jvp, custom_vjp, primitive, stop_gradient
    from tapec.errors import (
        ConversionError,
        InternalError,
        LeakedTracerError,
        TapecError,
        TapecIndexError,
        TapecTypeError,
        TapecValueError,
        TapecWarning,
        TapeLimitError,
        UnsupportedError,
        VariantLimitError,
    )
    from tapec.host import host_call
    from tapec.implicit import argmin, fixed_point, linear_solve, root
    from tapec.ode import odeint
    from tapec.points import jvp, linearize, vjp
    from tapec.series import derivative, jet, taylor
    from tapec.sparse import sparse_hessian, sparse_jacobian, sparsity
    from tapec.testing import check_grads

__version__ = "0.1.0"

__all__ = [
    "ConversionError",
    "InternalError",
    "LeakedTracerError",
    "TapecError",
    "TapecIndexError",
    "TapecTypeError",
    "TapecValueError",
    "TapecWarning",
    "TapeLimitError",
    "UnsupportedError",
    "VariantLimitError",
    "argmin",
    "associative_scan",
    "check_grads",
    "checkpoint",
    "clear_caches",
    "cond",
    "custom_jvp",
    "custom_vjp",
    "derivative",
    "fixed_point",
    "fori_loop",
    "fuse",
    "grad",
    "hessian",
    "host_call",
    "hvp",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jet",
    "jit",
    "jvp",
    "linear_solve",
    "linearize",
    "map",
    "numpy",
    "odeint",
    "primitive",
    "root",
    "scan",
    "sparse_hessian",
    "sparse_jacobian",
    "sparsity",
    "stop_gradient",
    "switch",
    "taylor",
    "value_and_grad",
    "vectorize",
    "vjp",
    "vmap",
    "while_loop",
]

_FROM = {
    **dict.fromkeys(
        (
            "fuse",
            "grad",
            "hessian",
            "hvp",
            "jacfwd",
            "jacobian",
            "jacrev",
            "jit",
            "value_and_grad",
        ),
        "tapec.api",
    ),
    **dict.fromkeys(("jvp", "linearize", "vjp"), "tapec.points"),
    **dict.fromkeys(
        (
            "associative_scan",
            "checkpoint",
            "cond",
            "fori_loop",
            "map",
            "scan",
            "switch",
            "while_loop",
        ),
        "tapec.control",
    ),
    "check_grads": "tapec.testing",
    "clear_caches": "tapec.caches",
    "host_call": "tapec.host",
    **dict.fromkeys(("custom_jvp", "custom_vjp", "primitive", "stop_gradient"), "tapec.custom"),
    **dict.fromkeys(("argmin", "fixed_point", "linear_solve", "root"), "tapec.implicit"),
    **dict.fromkeys(("sparse_hessian", "sparse_jacobian", "sparsity"), "tapec.sparse"),
    **dict.fromkeys(("derivative", "jet", "taylor"), "tapec.series"),
    "odeint": "tapec.ode",
    "vectorize": "tapec.batching",
    "vmap": "tapec.batching",
    **dict.fromkeys([n for n in __all__ if n.endswith(("Error", "Warning"))], "tapec.errors"),
}


def __getattr__(name: str) -> Any:
    """Public names are imported at their first use: ``import tapec`` stays light."""
    module = _FROM.get(name)
    if module is not None:
        value = getattr(import_module(module), name)
    elif name == "numpy":
        value = import_module("tapec.numpy")
    else:
        value = (
            None if name.startswith("__") else import_module("tapec.tensors.namespace").find(name)
        )
        if value is None:
            raise AttributeError(f"module 'tapec' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
