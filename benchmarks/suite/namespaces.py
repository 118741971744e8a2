"""NumPy as each tool spells it: the ``np`` that the objectives are written against.

Beside the functions of NumPy an objective may use ``np.erf`` and ``np.scan(step, init, xs)``, a
loop over the rows of ``xs`` that returns the last carry; ``np.index`` makes an array of indices.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy

__all__ = ["namespace"]


def python_scan(step: Callable[..., Any], init: Any, xs: Any) -> Any:
    carry = init
    for i in range(len(xs)):
        carry = step(carry, xs[i])
    return carry


class Namespace:
    """A module with additions; what is not added is the module's."""

    def __init__(self, module: Any, **added: Any) -> None:
        self.__dict__.update(added)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _numpy() -> Any:
    special = importlib.import_module("scipy.special")
    return Namespace(numpy, erf=special.erf, scan=python_scan, index=numpy.asarray)


def _tapec() -> Any:
    special, tapec = importlib.import_module("scipy.special"), importlib.import_module("tapec")

    def scan(step: Callable[..., Any], init: Any, xs: Any) -> Any:
        return tapec.scan(lambda carry, x: (step(carry, x), None), init, xs)[0]

    return Namespace(numpy, erf=special.erf, scan=scan, index=numpy.asarray)


def _jax() -> Any:
    jax = importlib.import_module("jax")
    jnp = importlib.import_module("jax.numpy")
    special = importlib.import_module("jax.scipy.special")

    def scan(step: Callable[..., Any], init: Any, xs: Any) -> Any:
        return jax.lax.scan(lambda carry, x: (step(carry, x), None), init, xs)[0]

    return Namespace(jnp, erf=special.erf, scan=scan, index=jnp.asarray)


def _autograd() -> Any:
    anp = importlib.import_module("autograd.numpy")
    special = importlib.import_module("autograd.scipy.special")
    return Namespace(anp, erf=special.erf, scan=python_scan, index=numpy.asarray)


def _torch() -> Any:
    torch = importlib.import_module("torch")

    def reduced(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, axis=None: function(x) if axis is None else function(x, dim=axis)

    return Namespace(
        torch,
        max=reduced(torch.amax),
        stack=lambda xs, axis=0: torch.stack(list(xs), dim=axis),
        concatenate=lambda xs, axis=0: torch.cat(list(xs), dim=axis),
        asarray=lambda a: torch.as_tensor(a, dtype=torch.float64),
        scan=python_scan,
        index=torch.as_tensor,
    )


def _casadi() -> Any:
    ca = importlib.import_module("casadi")
    return SimpleNamespace(sum=ca.sum1, exp=ca.exp, sin=ca.sin, cos=ca.cos, tanh=ca.tanh)


_MAKERS: dict[str, Callable[[], Any]] = {
    "numpy": _numpy,
    "tapec": _tapec,
    "jax": _jax,
    "autograd": _autograd,
    "torch": _torch,
    "casadi": _casadi,
}


def namespace(tool: str) -> Any:
    """The namespace of a tool."""
    return _MAKERS[tool]()
