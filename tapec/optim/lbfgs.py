"""``LBFGS``: a quasi-Newton method; ``step`` takes a closure that evaluates the loss anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapec.optim.optimizer import Optimizer
from tapec.tensors.graph import TensorError, TensorValueError, modes, switch

__all__ = ["LBFGS"]

Array = np.ndarray[Any, Any]


class LBFGS(Optimizer):
    """Limited-memory BFGS over one group of parameters.

    ``line_search_fn``: None (steps of ``lr``) or ``"strong_wolfe"``.
    """

    def __init__(self, params: Any, lr: float = 1.0, max_iter: int = 20,
                 max_eval: int | None = None, tolerance_grad: float = 1e-7,
                 tolerance_change: float = 1e-9, history_size: int = 100,
                 line_search_fn: str | None = None) -> None:  # fmt: skip
        if line_search_fn not in (None, "strong_wolfe"):
            raise TensorValueError("only 'strong_wolfe' is supported as line_search_fn")
        super().__init__(params, {
            "lr": lr, "max_iter": max_iter, "max_eval": max_eval or max_iter * 5 // 4,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change,
            "history_size": history_size, "line_search_fn": line_search_fn,
        })  # fmt: skip
        if len(self.param_groups) != 1:
            raise TensorValueError("LBFGS doesn't support per-parameter options")
        self._memory: dict[str, Any] = {"pairs": [], "n": 0}

    def _gradient(self) -> Array:
        parts = []
        for p in self.param_groups[0]["params"]:
            g = None if p._meta is None else p._meta.grad
            parts.append(np.zeros(p.numel()) if g is None else g.materialized().reshape(-1))
        return np.concatenate(parts).astype(np.float64)

    def _point(self) -> Array:
        params = self.param_groups[0]["params"]
        return np.concatenate([p.materialized().reshape(-1) for p in params]).astype(np.float64)

    def _move(self, x: Array) -> None:
        at = 0
        for p in self.param_groups[0]["params"]:
            n = p.numel()
            p._rebind(np.array(x[at : at + n].reshape(p.shape), p._type.dtype.np))
            at += n

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Up to ``max_iter`` iterations; the loss before the first."""
        if closure is None:
            raise TensorError("LBFGS.step needs a closure that evaluates the loss and its gradient")
        group = self.param_groups[0]
        memory = self._memory

        def evaluate() -> tuple[Any, float, Array]:
            before = modes.grad
            switch(True, modes.inference)
            try:
                loss = closure()
            finally:
                switch(before, modes.inference)
            return loss, float(loss), self._gradient()

        first, f, g = evaluate()
        evaluations = 1
        if np.abs(g).max() <= group["tolerance_grad"]:
            return first
        x = self._point()
        for _ in range(group["max_iter"]):
            memory["n"] += 1
            if memory["n"] > 1 and "gradient" in memory:
                y, s = g - memory["gradient"], memory["step"]
                ys = float(y @ s)
                if ys > 1e-10:
                    pairs = memory["pairs"]
                    pairs.append((s, y, 1 / ys))
                    del pairs[: -group["history_size"]]
                    memory["scale"] = ys / float(y @ y)
            d = self._direction(g)
            memory["gradient"] = g
            t = min(1.0, 1.0 / np.abs(g).sum()) * group["lr"] if memory["n"] == 1 else group["lr"]
            slope = float(g @ d)
            if slope > -group["tolerance_change"]:
                break
            old = f
            if group["line_search_fn"]:

                def at(t: float, x: Array = x, d: Array = d) -> tuple[float, Array]:
                    self._move(x + t * d)
                    _, value, gradient = evaluate()
                    return value, gradient

                t, f, g, n = _strong_wolfe(at, t, f, g, d, slope)
                evaluations += n
                x = x + t * d
                self._move(x)
            else:
                x = x + t * d
                self._move(x)
                _, f, g = evaluate()
                evaluations += 1
            memory["step"] = t * d
            if evaluations >= group["max_eval"] or np.abs(g).max() <= group["tolerance_grad"]:
                break
            if np.abs(t * d).max() <= group["tolerance_change"]:
                break
            if abs(f - old) < group["tolerance_change"]:
                break
        return first

    def _direction(self, g: Array) -> Array:
        q = -g
        pairs = self._memory["pairs"]
        alphas = []
        for s, y, rho in reversed(pairs):
            a = rho * float(s @ q)
            alphas.append(a)
            q = q - a * y
        q = q * self._memory.get("scale", 1.0)
        for (s, y, rho), a in zip(pairs, reversed(alphas)):
            q = q + s * (a - rho * float(y @ q))
        return np.asarray(q)


def _strong_wolfe(
    at: Callable[[float], tuple[float, Array]], t: float, f: float, g: Array, d: Array, slope: float
) -> tuple[float, float, Array, int]:
    """A step with sufficient decrease and a small enough slope: bracket, then bisect."""
    low, high = 0.0, np.inf
    best = (0.0, f, g)
    n = 0
    for _ in range(25):
        value, gradient = at(t)
        n += 1
        new = float(gradient @ d)
        if not value <= f + 1e-4 * t * slope:
            high = t
        else:
            best = (t, value, gradient)
            if new < 0.9 * slope:
                low = t
            elif new > -0.9 * slope:
                high = t
            else:
                break
        t = 2 * t if high == np.inf else 0.5 * (low + high)
    return (*best, n)
