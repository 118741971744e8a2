"""Losses and activations; each is one operation of the graph.

>>> import tapec
>>> tapec.nn.functional.mse_loss(tapec.tensor([1.0, 2.0]), tapec.tensor([0.0, 0.0]))
tensor(2.5000)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapec.tensors.graph import Const, TensorError, TensorIndexError, TensorValueError
from tapec.tensors.record import apply
from tapec.tensors.tensor import Tensor

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "dropout", "elu",
    "gelu", "huber_loss", "l1_loss", "leaky_relu", "linear", "log_softmax", "logsigmoid",
    "mse_loss",
    "nll_loss", "normalize", "one_hot", "relu", "sigmoid", "silu", "smooth_l1_loss", "softmax",
    "softplus", "tanh",
]  # fmt: skip


def _how(reduction: str) -> str:
    if reduction not in ("none", "mean", "sum"):
        raise TensorValueError(f"{reduction} is not a valid value for reduction")
    return reduction


def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """The mean of squared differences."""
    return apply("mse_loss", (input, target), _how(reduction))  # type: ignore[no-any-return]


def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """The mean of absolute differences."""
    return apply("l1_loss", (input, target), _how(reduction))  # type: ignore[no-any-return]


def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0
) -> Tensor:
    """Squares near zero, lines beyond ``delta``."""
    attrs = (_how(reduction), Const(float(delta)), False)
    return apply("huber_loss", (input, target), attrs)  # type: ignore[no-any-return]


def smooth_l1_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """``huber_loss`` divided by ``beta``."""
    attrs = (_how(reduction), Const(float(beta)), True)
    return apply("huber_loss", (input, target), attrs)  # type: ignore[no-any-return]


def _targets(input: Tensor, target: Tensor, ignore: int) -> None:
    data = target._data
    if data is None or data.dtype.kind != "i" or not data.size:
        return
    classes = input.shape[1] if input.ndim > 1 else input.shape[0]
    low, high = data.min(), data.max()
    if low < 0 or high >= classes:
        bad = data[((data < 0) | (data >= classes)) & (data != ignore)]
        if bad.size:
            raise TensorIndexError(f"Target {bad.flat[0]} is out of bounds for {classes} classes")


def _class_loss(op: str, input: Tensor, target: Tensor, weight: Any, ignore_index: int,
                reduction: str, smoothing: float) -> Tensor:  # fmt: skip
    _targets(input, target, ignore_index)
    data = target._data
    ignore = (
        None
        if data is not None and data.size and data.min() >= 0 <= -ignore_index
        else ignore_index
    )
    attrs = (_how(reduction), ignore, Const(float(smoothing)))
    operands = (input, target) if weight is None else (input, target, weight)
    return apply(op, operands, attrs)  # type: ignore[no-any-return]


def nll_loss(
    input: Tensor, target: Tensor, weight: Any = None, ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Minus the log-probability of the target class."""
    return _class_loss("nll_loss", input, target, weight, ignore_index, reduction, 0.0)


def cross_entropy(
    input: Tensor, target: Tensor, weight: Any = None, ignore_index: int = -100,
    reduction: str = "mean", label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    """``nll_loss`` of ``log_softmax``; targets are class numbers, or probabilities."""
    if target.is_floating_point():
        if weight is not None or label_smoothing:
            raise TensorValueError("weights and smoothing of probabilities are not supported")
        return apply("cross_entropy_soft", (input, target), _how(reduction))  # type: ignore[no-any-return]
    return _class_loss(
        "cross_entropy", input, target, weight, ignore_index, reduction, label_smoothing
    )


def binary_cross_entropy(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Minus the log-likelihood of 0/1 targets for probabilities."""
    return apply("bce", (input, target), _how(reduction))  # type: ignore[no-any-return]


def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, reduction: str = "mean", pos_weight: Any = None
) -> Tensor:
    """The same for logits, without overflow."""
    operands = (input, target) if pos_weight is None else (input, target, pos_weight)
    return apply("bce_with_logits", operands, _how(reduction))  # type: ignore[no-any-return]


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input @ weight.T + bias``."""
    operands = (input, weight) if bias is None else (input, weight, bias)
    return apply("linear", operands)  # type: ignore[no-any-return]


def relu(input: Tensor) -> Tensor:
    """max(x, 0), with derivative 0 at 0."""
    return apply("relu", (input,))  # type: ignore[no-any-return]


def leaky_relu(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """x, or a small multiple of it where negative."""
    return apply("leaky_relu", (input,), Const(float(negative_slope)))  # type: ignore[no-any-return]


def elu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """x, or alpha (exp(x) - 1) where negative."""
    return apply("elu", (input,), Const(float(alpha)))  # type: ignore[no-any-return]


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x times the normal distribution function."""
    return apply("gelu", (input,), approximate)  # type: ignore[no-any-return]


def silu(input: Tensor) -> Tensor:
    """x sigmoid(x)."""
    return apply("silu", (input,))  # type: ignore[no-any-return]


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return apply("sigmoid", (input,))  # type: ignore[no-any-return]


def logsigmoid(input: Tensor) -> Tensor:
    """log sigmoid(x), without overflow."""
    return apply("logsigmoid", (input,))  # type: ignore[no-any-return]


def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return apply("tanh", (input,))  # type: ignore[no-any-return]


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(x)), without overflow."""
    return input.softplus(beta, threshold)  # type: ignore[no-any-return]


def softmax(input: Tensor, dim: int) -> Tensor:
    """Exponentials that sum to 1 along ``dim``."""
    return input.softmax(dim)  # type: ignore[no-any-return]


def log_softmax(input: Tensor, dim: int) -> Tensor:
    """The logarithm of ``softmax``."""
    return input.log_softmax(dim)  # type: ignore[no-any-return]


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """Divided by its norm along ``dim``."""
    return input / input.norm(p, dim, True).clamp(min=eps)  # type: ignore[no-any-return]


def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """A row per class number, 1 at its place."""
    if num_classes < 0:
        num_classes = int(input.max().item()) + 1
    return apply("one_hot", (input,), num_classes)  # type: ignore[no-any-return]


def dropout(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Random elements zeroed, the others scaled up."""
    if not 0 <= p <= 1:
        raise TensorError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0:
        return input
    from tapec.tensors.creation import generator

    kept = generator.numpy.random(input.shape) >= p
    scale = 0.0 if p == 1 else 1 / (1 - p)
    return input * Tensor._of(np.asarray(kept * scale, input._type.dtype.np))  # type: ignore[no-any-return]
