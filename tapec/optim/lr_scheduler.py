"""Learning-rate schedules: ``step()`` after each epoch sets ``lr`` of every parameter group."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tapec.optim.optimizer import Optimizer

__all__ = [
    "CosineAnnealingLR", "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR",
    "SequentialLR", "StepLR",
]  # fmt: skip


class LRScheduler:
    """A factor of the initial learning rate as a function of the number of steps.

    >>> import tapec
    >>> w = tapec.tensor(1.0, requires_grad=True)
    >>> optimizer = tapec.optim.SGD([w], lr=1.0)
    >>> schedule = tapec.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.1)
    >>> for _ in range(2):
    ...     schedule.step()
    >>> schedule.get_last_lr()
    [0.1]
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = 0
        self._set()

    def lr_at(self, base: float, epoch: int) -> float:
        """The learning rate after ``epoch`` steps."""
        raise NotImplementedError

    def _set(self) -> None:
        for base, group in zip(self.base_lrs, self.optimizer.param_groups):
            group["lr"] = self.lr_at(base, self.last_epoch)

    def step(self) -> None:
        """One epoch on."""
        self.last_epoch += 1
        self._set()

    def get_last_lr(self) -> list[float]:
        """The learning rates now."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        return {"last_epoch": self.last_epoch, "base_lrs": list(self.base_lrs)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.last_epoch, self.base_lrs = state["last_epoch"], list(state["base_lrs"])
        self._set()


class LambdaLR(LRScheduler):
    """The factor is a function of the user's."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[int], float]) -> None:
        self._lambda = lr_lambda
        super().__init__(optimizer)

    def lr_at(self, base: float, epoch: int) -> float:
        return base * self._lambda(epoch)


class StepLR(LRScheduler):
    """Multiplied by ``gamma`` every ``step_size`` steps."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer)

    def lr_at(self, base: float, epoch: int) -> float:
        return float(base * self.gamma ** (epoch // self.step_size))


class MultiStepLR(LRScheduler):
    """Multiplied by ``gamma`` at each milestone."""

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1) -> None:
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer)

    def lr_at(self, base: float, epoch: int) -> float:
        return float(base * self.gamma ** sum(epoch >= m for m in self.milestones))


class ExponentialLR(LRScheduler):
    """Multiplied by ``gamma`` at each step."""

    def __init__(self, optimizer: Optimizer, gamma: float) -> None:
        self.gamma = gamma
        super().__init__(optimizer)

    def lr_at(self, base: float, epoch: int) -> float:
        return float(base * self.gamma**epoch)


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the initial rate to ``eta_min`` in ``T_max`` steps."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer)

    def lr_at(self, base: float, epoch: int) -> float:
        share = (1 + math.cos(math.pi * epoch / self.T_max)) / 2
        return self.eta_min + (base - self.eta_min) * share


class LinearLR(LRScheduler):
    """Warm-up: the factor goes from ``start_factor`` to ``end_factor`` in ``total_iters`` steps."""

    def __init__(self, optimizer: Optimizer, start_factor: float = 1 / 3, end_factor: float = 1.0,
                 total_iters: int = 5) -> None:  # fmt: skip
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer)

    def lr_at(self, base: float, epoch: int) -> float:
        done = min(epoch, self.total_iters) / self.total_iters
        return base * (self.start_factor + (self.end_factor - self.start_factor) * done)


class SequentialLR(LRScheduler):
    """One schedule after another: ``milestones`` say when the next takes over."""

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler],
                 milestones: Sequence[int]) -> None:  # fmt: skip
        self.schedulers, self.milestones = list(schedulers), list(milestones)
        super().__init__(optimizer)

    def lr_at(self, base: float, epoch: int) -> float:
        k = sum(epoch >= m for m in self.milestones)
        start = self.milestones[k - 1] if k else 0
        return self.schedulers[k].lr_at(base, epoch - start)
