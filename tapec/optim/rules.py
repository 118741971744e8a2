"""SGD, Adam, AdamW, RMSprop, Adagrad: each an update rule in IR operations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tapec.ir.builder import Builder
from tapec.ir.core import Value
from tapec.optim.optimizer import Optimizer, check_positive
from tapec.tensors.graph import TensorValueError

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "RMSprop"]

Group = dict[str, Any]


class SGD(Optimizer):
    """Gradient descent with momentum."""

    def __init__(self, params: Any, lr: float = 1e-3, momentum: float = 0.0, dampening: float = 0.0,
                 weight_decay: float = 0.0, nesterov: bool = False, *,
                 maximize: bool = False) -> None:  # fmt: skip
        check_positive(learning_rate=lr, momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise TensorValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
            "nesterov": nesterov, "maximize": maximize,
        })  # fmt: skip

    def buffers(self, group: Group) -> tuple[str, ...]:
        return ("momentum_buffer",) if group["momentum"] else ()

    def phase(self, state: Group, group: Group) -> Any:
        return bool(state["step"]) if group["momentum"] else None

    def flags(self, group: Group) -> Any:
        return (bool(group["momentum"]), bool(group["weight_decay"]), group["nesterov"],
                group["maximize"])  # fmt: skip

    def scalars(self, group: Group, phase: Any) -> Sequence[float]:
        return (float(group["lr"]), float(group["momentum"]), 1.0 - group["dampening"],
                float(group["weight_decay"]))  # fmt: skip

    def update(self, b: Builder, p: Value, g: Value, buffers: list[Value], scalars: list[Value],
               flags: Any, phase: Any) -> list[Value]:  # fmt: skip
        lr, momentum, keep, decay = scalars
        has_momentum, has_decay, nesterov, maximize = flags
        d = b.neg(g) if maximize else g
        if has_decay:
            d = b.add(d, b.mul(decay, p))
        out: list[Value] = []
        if has_momentum:
            buf = b.add(b.mul(momentum, buffers[0]), b.mul(keep, d)) if phase else d
            out.append(buf)
            d = b.add(d, b.mul(momentum, buf)) if nesterov else buf
        return [b.sub(p, b.mul(lr, d)), *out]


class Adam(Optimizer):
    """Steps scaled by running moments of the gradient."""

    decoupled = False

    def __init__(self, params: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0.0, amsgrad: bool = False, *,
                 maximize: bool = False) -> None:  # fmt: skip
        check_positive(learning_rate=lr, epsilon=eps, weight_decay=weight_decay)
        for k, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise TensorValueError(f"Invalid beta parameter at index {k}: {beta}")
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "amsgrad": amsgrad, "maximize": maximize,
        })  # fmt: skip

    def buffers(self, group: Group) -> tuple[str, ...]:
        names = ("exp_avg", "exp_avg_sq")
        return (*names, "max_exp_avg_sq") if group["amsgrad"] else names

    def phase(self, state: Group, group: Group) -> Any:
        return state["step"] + 1

    def flags(self, group: Group) -> Any:
        return (bool(group["weight_decay"]), group["amsgrad"], group["maximize"])

    def scalars(self, group: Group, phase: Any) -> Sequence[float]:
        one, two = group["betas"]
        lr = float(group["lr"])
        return (
            lr / (1 - one**phase), math.sqrt(1 - two**phase), one, two, 1 - one, 1 - two,
            float(group["eps"]), float(group["weight_decay"]), 1 - lr * group["weight_decay"],
        )  # fmt: skip

    def update(self, b: Builder, p: Value, g: Value, buffers: list[Value], scalars: list[Value],
               flags: Any, phase: Any) -> list[Value]:  # fmt: skip
        step, root, _, two, one_c, two_c, eps, decay, shrink = scalars
        has_decay, amsgrad, maximize = flags
        if maximize:
            g = b.neg(g)
        if has_decay:
            if self.decoupled:
                p = b.mul(p, shrink)
            else:
                g = b.add(g, b.mul(decay, p))
        m = b.add(buffers[0], b.mul(b.sub(g, buffers[0]), one_c))
        v = b.add(b.mul(two, buffers[1]), b.mul(two_c, b.mul(g, g)))
        out = [m, v]
        second = v
        if amsgrad:
            second = b.max(buffers[2], v)
            out.append(second)
        denominator = b.add(b.div(b.sqrt(second), root), eps)
        return [b.sub(p, b.mul(step, b.div(m, denominator))), *out]


class AdamW(Adam):
    """Adam with weight decay apart from the gradient."""

    decoupled = True

    def __init__(self, params: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 1e-2, amsgrad: bool = False, *,
                 maximize: bool = False) -> None:  # fmt: skip
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize)


class RMSprop(Optimizer):
    """Steps scaled by a running mean of squared gradients."""

    def __init__(self, params: Any, lr: float = 1e-2, alpha: float = 0.99, eps: float = 1e-8,
                 weight_decay: float = 0.0, momentum: float = 0.0, centered: bool = False, *,
                 maximize: bool = False) -> None:  # fmt: skip
        check_positive(learning_rate=lr, alpha=alpha, epsilon=eps, momentum=momentum,
                       weight_decay=weight_decay)  # fmt: skip
        super().__init__(params, {
            "lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay,
            "momentum": momentum, "centered": centered, "maximize": maximize,
        })  # fmt: skip

    def buffers(self, group: Group) -> tuple[str, ...]:
        names = ["square_avg"]
        if group["momentum"]:
            names.append("momentum_buffer")
        if group["centered"]:
            names.append("grad_avg")
        return tuple(names)

    def flags(self, group: Group) -> Any:
        return (bool(group["weight_decay"]), bool(group["momentum"]), group["centered"],
                group["maximize"])  # fmt: skip

    def scalars(self, group: Group, phase: Any) -> Sequence[float]:
        alpha = float(group["alpha"])
        return (float(group["lr"]), alpha, 1 - alpha, float(group["eps"]),
                float(group["weight_decay"]), float(group["momentum"]))  # fmt: skip

    def update(self, b: Builder, p: Value, g: Value, buffers: list[Value], scalars: list[Value],
               flags: Any, phase: Any) -> list[Value]:  # fmt: skip
        lr, alpha, rest, eps, decay, momentum = scalars
        has_decay, has_momentum, centered, maximize = flags
        if maximize:
            g = b.neg(g)
        if has_decay:
            g = b.add(g, b.mul(decay, p))
        v = b.add(b.mul(alpha, buffers[0]), b.mul(rest, b.mul(g, g)))
        out = [v]
        second, mean = v, None
        if centered:
            old = buffers[-1]
            mean = b.add(old, b.mul(b.sub(g, old), rest))
            second = b.sub(v, b.mul(mean, mean))
        d = b.div(g, b.add(b.sqrt(second), eps))
        if has_momentum:
            d = b.add(b.mul(momentum, buffers[1]), d)
            out.append(d)
        if mean is not None:
            out.append(mean)
        return [b.sub(p, b.mul(lr, d)), *out]


class Adagrad(Optimizer):
    """Steps scaled by the sum of squared gradients."""

    def __init__(self, params: Any, lr: float = 1e-2, lr_decay: float = 0.0,
                 weight_decay: float = 0.0, eps: float = 1e-10) -> None:  # fmt: skip
        check_positive(learning_rate=lr, lr_decay=lr_decay, epsilon=eps, weight_decay=weight_decay)
        super().__init__(params, {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
        })  # fmt: skip

    def buffers(self, group: Group) -> tuple[str, ...]:
        return ("sum",)

    def phase(self, state: Group, group: Group) -> Any:
        return state["step"] + 1

    def flags(self, group: Group) -> Any:
        return bool(group["weight_decay"])

    def scalars(self, group: Group, phase: Any) -> Sequence[float]:
        lr = group["lr"] / (1 + (phase - 1) * group["lr_decay"])
        return (float(lr), float(group["eps"]), float(group["weight_decay"]))

    def update(self, b: Builder, p: Value, g: Value, buffers: list[Value], scalars: list[Value],
               flags: Any, phase: Any) -> list[Value]:  # fmt: skip
        lr, eps, decay = scalars
        if flags:
            g = b.add(g, b.mul(decay, p))
        total = b.add(buffers[0], b.mul(g, g))
        return [b.sub(p, b.mul(lr, b.div(g, b.add(b.sqrt(total), eps)))), total]
