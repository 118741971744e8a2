"""``gradcheck`` and ``gradgradcheck``: derivatives against finite differences."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapec.autograd.engine import gradients
from tapec.tensors.graph import TensorValueError
from tapec.tensors.tensor import Tensor

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


class GradcheckError(RuntimeError):
    """Analytical and numerical derivatives differ."""


def _tuple(x: Any) -> tuple[Any, ...]:
    return (x,) if isinstance(x, Tensor) else tuple(x)


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
) -> bool:
    """Whether the gradients of ``func`` agree with central differences.

    >>> import tapec
    >>> x = tapec.tensor([0.5, 2.0], requires_grad=True)
    >>> tapec.autograd.gradcheck(lambda x: (x**3).sum(), (x,))
    True
    """
    inputs = _tuple(inputs)
    wrt = [k for k, t in enumerate(inputs) if isinstance(t, Tensor) and t.requires_grad]
    if not wrt:
        raise TensorValueError(
            "gradcheck expects at least one input that requires grad, and none does"
        )
    for k in wrt:
        if inputs[k]._type.dtype.bits < 64:
            warnings.warn(
                f"input #{k} requires gradient and is not a double precision floating point; this "
                "check will likely fail",
                stacklevel=2,
            )
    outputs = _tuple(func(*inputs))
    for i, k in enumerate(wrt):
        for j, out in enumerate(outputs):
            if not out._type.dtype.is_inexact:
                continue
            numeric = _numeric(func, inputs, k, j, eps)
            analytic = _analytic(func, inputs, k, j, out)
            if not np.allclose(analytic, numeric, rtol, atol, equal_nan=True):
                if not raise_exception:
                    return False
                raise GradcheckError(
                    f"Jacobian mismatch for output {j} with respect to input {i},\n"
                    f"numerical:{numeric}\nanalytical:{analytic}\n"
                )
    return True


def _numeric(func: Any, inputs: Sequence[Any], k: int, j: int, eps: float) -> Any:
    base = inputs[k].materialized()
    columns = []
    flat = base.reshape(-1)
    for n in range(flat.size):
        sides = []
        for sign in (1, -1):
            moved = flat.copy()
            moved[n] += sign * eps
            args = list(inputs)
            args[k] = Tensor._of(moved.reshape(base.shape), True)
            sides.append(np.array(_tuple(func(*args))[j].materialized(), np.float64).reshape(-1))
        columns.append((sides[0] - sides[1]) / (2 * eps))
    size = _tuple(func(*inputs))[j].numel()
    return np.array(columns).reshape(flat.size, size)


def _analytic(func: Any, inputs: Sequence[Any], k: int, j: int, out: Tensor) -> Any:
    x = inputs[k]
    n = out.numel()
    result = np.zeros((x.numel(), n))
    if not out.requires_grad:
        return result
    for m in range(n):
        seed = np.zeros(out._type.shape, out._type.dtype.np)
        seed.reshape(-1)[m] = 1
        (g,) = gradients(out, x, Tensor._of(seed), True, allow_unused=True)
        if g is not None:
            result[:, m] = g.materialized().reshape(-1)
    return result


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
) -> bool:
    """``gradcheck`` of the gradient of ``func``."""
    inputs = _tuple(inputs)
    outputs = _tuple(func(*inputs))
    if grad_outputs is None:
        rng = np.random.default_rng(0)
        seeds = [
            Tensor._of(np.asarray(rng.standard_normal(o._type.shape)), True)
            for o in outputs
            if o.requires_grad
        ]
    else:
        seeds = list(_tuple(grad_outputs))
    n = len(inputs)
    wrt = [k for k, t in enumerate(inputs) if isinstance(t, Tensor) and t.requires_grad]

    def gradient(*args: Any) -> Any:
        outs = [o for o in _tuple(func(*args[:n])) if o.requires_grad]
        found = gradients(
            outs, [args[k] for k in wrt], args[n:], create_graph=True, allow_unused=True
        )
        return tuple([g for g in found if g is not None])

    return gradcheck(
        gradient, (*inputs, *seeds), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception
    )
