"""Gradients of several parameters taken together."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapec.tensors.graph import TensorError
from tapec.tensors.tensor import Tensor

__all__ = ["clip_grad_norm_", "clip_grad_value_", "parameters_to_vector", "vector_to_parameters"]


def _list(parameters: Any) -> list[Tensor]:
    return [parameters] if isinstance(parameters, Tensor) else list(parameters)


def clip_grad_norm_(
    parameters: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> Tensor:
    """Scale all gradients so that their common norm is at most ``max_norm``; the norm before.

    >>> import tapec
    >>> w = tapec.tensor([0.0, 0.0], requires_grad=True)
    >>> w.grad = tapec.tensor([3.0, 4.0])
    >>> tapec.nn.utils.clip_grad_norm_([w], 1.0)
    tensor(5.)
    """
    grads = [p.grad for p in _list(parameters) if p.grad is not None]
    if not grads:
        return Tensor._of(np.array(0.0))
    arrays = [g.materialized() for g in grads]
    if norm_type == np.inf:
        total = float(max(np.abs(a).max(initial=0) for a in arrays))
    elif norm_type == 2:
        total = float(np.sqrt(sum(float(np.vdot(a, a)) for a in arrays)))
    else:
        total = float(sum(float((np.abs(a) ** norm_type).sum()) for a in arrays) ** (1 / norm_type))
    if error_if_nonfinite and not np.isfinite(total):
        raise TensorError(
            f"the total norm of order {norm_type} for gradients is non-finite, so it "
            "cannot be clipped"
        )
    scale = min(max_norm / (total + 1e-6), 1.0)
    if scale < 1.0:
        for g, a in zip(grads, arrays):
            g._rebind(np.asarray(a * a.dtype.type(scale)))
    return Tensor._of(np.array(total))


def clip_grad_value_(parameters: Any, clip_value: float) -> None:
    """Limit every element of every gradient."""
    for p in _list(parameters):
        g = p.grad
        if g is not None:
            g._rebind(np.clip(g.materialized(), -clip_value, clip_value))


def parameters_to_vector(parameters: Any) -> Tensor:
    """All parameters as one vector."""
    from tapec.tensors.creation import cat

    return cat([p.view(-1) for p in _list(parameters)])


def vector_to_parameters(vector: Tensor, parameters: Any) -> None:
    """Write a vector back into parameters."""
    flat, at = vector.materialized(), 0
    for p in _list(parameters):
        n = p.numel()
        p._rebind(np.array(flat[at : at + n].reshape(p.shape)))
        at += n
