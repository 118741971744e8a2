"""Several losses, shared parameters: weighting and gradient surgery.

>>> import tapec
>>> w = tapec.tensor([1.0, 1.0], requires_grad=True)
>>> losses = [w[0] ** 2, (w[1] - 3) ** 2]
>>> tapec.multitask.pcgrad(losses, [w], order=lambda n, i: range(n))
>>> w.grad
tensor([2., -4.])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tapec.autograd.engine import gradients
from tapec.tensors.creation import generator, ones, stack, zeros
from tapec.tensors.graph import TensorValueError
from tapec.tensors.tensor import tensor

__all__ = [
    "GradNorm", "MagnitudeSchedule", "UncertaintyWeights", "gradient_norms", "pcgrad",
    "weighted_sum",
]  # fmt: skip


def weighted_sum(losses: Sequence[Any], weights: Sequence[Any]) -> Any:
    """Σ wᵢ Lᵢ."""
    if len(losses) != len(weights):
        raise TensorValueError(f"{len(losses)} losses and {len(weights)} weights")
    total = losses[0] * weights[0]
    for loss, w in zip(losses[1:], weights[1:]):
        total = total + loss * w
    return total


def gradient_norms(
    losses: Sequence[Any], shared: Sequence[Any], create_graph: bool = False
) -> list[Any]:
    """‖∂Lᵢ/∂W‖ over the shared parameters, for each loss; the graph is kept."""
    out = []
    for loss in losses:
        grads = gradients(loss, shared, None, True, create_graph, True)
        total: Any = None
        for g in grads:
            if g is not None:
                square = (g * g).sum()
                total = square if total is None else total + square
        out.append(tensor(0.0) if total is None else total.sqrt())
    return out


class UncertaintyWeights:
    """Learned weights from homoscedastic uncertainty (Kendall, Gal and Cipolla 2018).

    With uᵢ = log σᵢ²: ½ e^(-u) L + ½ u for a regression loss, e^(-u) L + ½ u for a classification
    loss.  At the optimum of a regression, e^u = L.
    """

    def __init__(self, kinds: int | Sequence[str]) -> None:
        self.kinds = ["regression"] * kinds if isinstance(kinds, int) else list(kinds)
        for kind in self.kinds:
            if kind not in ("regression", "classification"):
                raise TensorValueError(f"{kind!r} is neither 'regression' nor 'classification'")
        self.log_variance = zeros(len(self.kinds), requires_grad=True)

    def parameters(self) -> list[Any]:
        """What an optimiser has to learn besides the model."""
        return [self.log_variance]

    def __call__(self, losses: Sequence[Any]) -> Any:
        if len(losses) != len(self.kinds):
            raise TensorValueError(f"{len(losses)} losses for {len(self.kinds)} weights")
        total: Any = None
        for k, (loss, kind) in enumerate(zip(losses, self.kinds)):
            u = self.log_variance[k]
            scale = 0.5 if kind == "regression" else 1.0
            term = scale * (-u).exp() * loss + 0.5 * u
            total = term if total is None else total + term
        return total


class GradNorm:
    """Weights that balance gradient norms on shared parameters (Chen et al. 2018).

    ``backward(losses, shared)`` accumulates the gradient of Σ wᵢ Lᵢ into the model and the
    gradient of Σ |Gᵢ - targetᵢ| into the weights; after the optimiser's step call
    ``renormalize()``.
    """

    def __init__(self, tasks: int, alpha: float = 1.5) -> None:
        self.alpha = alpha
        self.weights = ones(tasks, requires_grad=True)
        self.initial: Any = None

    def parameters(self) -> list[Any]:
        """The weights."""
        return [self.weights]

    def norms(self, losses: Sequence[Any], shared: Sequence[Any]) -> Any:
        """Gᵢ = ‖∂(wᵢ Lᵢ)/∂W‖, differentiable with respect to the weights."""
        weighted = [loss * self.weights[k] for k, loss in enumerate(losses)]
        return stack(gradient_norms(weighted, shared, create_graph=True))

    def targets(self, norms: Any, losses: Sequence[Any]) -> Any:
        """mean(G) rᵢ^α, held constant."""
        now = np.array([float(loss.detach().item()) for loss in losses])
        if self.initial is None:
            self.initial = now
        ratio = now / self.initial
        rate = ratio / ratio.mean()
        mean = float(norms.detach().mean().item())
        return tensor(mean * rate**self.alpha)

    def loss(self, losses: Sequence[Any], shared: Sequence[Any]) -> Any:
        """Σ |Gᵢ - targetᵢ|."""
        norms = self.norms(losses, shared)
        return (norms - self.targets(norms, losses)).abs().sum()

    def backward(self, losses: Sequence[Any], shared: Sequence[Any]) -> Any:
        """Gradients of the model and of the weights; the total loss."""
        (grad,) = gradients(self.loss(losses, shared), self.weights, None, True)
        total = weighted_sum(losses, [w.detach() for w in self.weights])
        total.backward()
        self.weights.grad = grad
        return total

    def renormalize(self) -> None:
        """Scale the weights so that they sum to the number of tasks."""
        w = self.weights.materialized()
        self.weights._rebind(np.asarray(w * (w.size / w.sum())))


class MagnitudeSchedule:
    """Weights inversely proportional to a running mean of gradient norms, summing to the number
    of tasks: no task drowns the others."""

    def __init__(self, tasks: int, decay: float = 0.9) -> None:
        self.decay = decay
        self.average: Any = None
        self.weights = np.ones(tasks)

    def update(self, losses: Sequence[Any], shared: Sequence[Any]) -> list[float]:
        """Measure the gradients of the losses; the new weights."""
        norms = np.array([float(n) for n in gradient_norms(losses, shared)])
        if self.average is None:
            self.average = norms
        else:
            self.average = self.decay * self.average + (1 - self.decay) * norms
        inverse = 1 / np.maximum(self.average, 1e-12)
        self.weights = inverse * (inverse.size / inverse.sum())
        return [float(w) for w in self.weights]


def pcgrad(
    losses: Sequence[Any],
    params: Iterable[Any],
    order: Callable[[int, int], Iterable[int]] | None = None,
) -> None:
    """Gradient surgery (Yu et al. 2020): each task's gradient loses its component along those
    of other tasks that it conflicts with; the sum is accumulated into ``.grad``.

    ``order(n, i)``: the order in which task i meets the others; random unless given.
    """
    from tapec.autograd.engine import accumulate

    parameters = list(params)
    vectors = []
    for loss in losses:
        grads = gradients(loss, parameters, None, True, allow_unused=True, materialize_grads=True)
        vectors.append(np.concatenate([g.materialized().reshape(-1) for g in grads]))
    n = len(vectors)
    total = np.zeros_like(vectors[0])
    for i in range(n):
        g = vectors[i].copy()
        for j in order(n, i) if order is not None else generator.numpy.permutation(n):
            if j == i:
                continue
            other = vectors[j]
            product = float(g @ other)
            if product < 0:
                g -= product / float(other @ other) * other
        total += g
    at = 0
    for p in parameters:
        size = p.numel()
        accumulate(p, np.array(total[at : at + size].reshape(p._type.shape), p._type.dtype.np))
        at += size
