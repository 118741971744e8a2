"""``Optimizer``: parameter groups, state, and one native update for all parameters of a group.

A subclass says in ``update`` how one parameter and its state change, with IR operations; the
updates of all parameters of a group are compiled together and called once per step.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapec.ir.builder import Builder
from tapec.ir.core import Type, Value
from tapec.tensors.graph import TensorTypeError, TensorValueError, modes, switch
from tapec.tensors.tensor import Tensor

__all__ = ["Optimizer"]


class Optimizer:
    """See the module's description."""

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self.state: dict[Any, dict[str, Any]] = {}
        self.param_groups: list[dict[str, Any]] = []
        self._kernels: dict[Any, Any] = {}
        if isinstance(params, Tensor):
            raise TensorTypeError("params must be an iterable of tensors or dicts, not a tensor")
        groups = list(params)
        if not groups:
            raise TensorValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, group: dict[str, Any]) -> None:
        """Also optimise these parameters, with options of their own."""
        group = dict(group)
        params = group["params"]
        group["params"] = [params] if isinstance(params, Tensor) else list(params)
        known = {id(p) for g in self.param_groups for p in g["params"]}
        for p in group["params"]:
            if not isinstance(p, Tensor):
                raise TensorTypeError(
                    f"optimizer can only optimize tensors, not {type(p).__name__}"
                )
            if not p.is_leaf:
                raise TensorValueError(
                    f"can't optimize a non-leaf tensor: {p._described()}; instead: use "
                    "detach().requires_grad_()"
                )
            if id(p) in known:
                raise TensorValueError("some parameters appear in more than one parameter group")
        for name, value in self.defaults.items():
            group.setdefault(name, value)
        self.param_groups.append(group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients."""
        for group in self.param_groups:
            for p in group["params"]:
                p.zero_grad(set_to_none)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient."""
        loss = None
        if closure is not None:
            before = modes.grad
            switch(True, modes.inference)
            try:
                loss = closure()
            finally:
                switch(before, modes.inference)
        for group in self.param_groups:
            self._step_group(group)
        return loss

    def _step_group(self, group: dict[str, Any]) -> None:
        params: list[Tensor] = []
        grads: list[Any] = []
        states: list[dict[str, Any]] = []
        for p in group["params"]:
            m = p._meta
            g = None if m is None else m.grad
            if g is None:
                continue
            state = self.state.get(p)
            if state is None:
                state = self.state[p] = self.initial(p, group)
            params.append(p)
            grads.append(g.materialized())
            states.append(state)
        if not params:
            return
        by: dict[Any, list[int]] = {}
        for k, s in enumerate(states):
            by.setdefault(self.phase(s, group), []).append(k)
        for phase, ks in by.items():
            self._run(group, phase, [params[k] for k in ks], [grads[k] for k in ks],
                      [states[k] for k in ks])  # fmt: skip

    def _run(
        self,
        group: dict[str, Any],
        phase: Any,
        params: Sequence[Tensor],
        grads: Sequence[Any],
        states: Sequence[dict[str, Any]],
    ) -> None:
        flags = self.flags(group)
        names = self.buffers(group)
        scalars = self.scalars(group, phase)
        key = (phase is None or bool(phase), flags, tuple([p._kind.type for p in params]))
        kernel = self._kernels.get(key)
        if kernel is None:
            kernel = self._kernels[key] = self._compile(params, len(scalars), names, flags, phase)
        args: list[Any] = [np.array(s) for s in scalars]
        for p, g, s in zip(params, grads, states):
            args.append(p.materialized())
            args.append(g)
            for name in names:
                args.append(s[name])
        results = kernel(*args)
        k = 0
        for p, s in zip(params, states):
            p._rebind(results[k])
            for name in names:
                k += 1
                s[name] = results[k]
            k += 1
            s["step"] += 1

    def _compile(
        self, params: Sequence[Tensor], n: int, names: Sequence[str], flags: Any, phase: Any
    ) -> Any:
        from tapec.ir.core import F64
        from tapec.ir.passes import run_passes
        from tapec.tensors.parts import program_type
        from tapec.tensors.plans import native

        b = Builder()
        scalars = [b.param(Type(F64)) for _ in range(n)]
        results: list[Value] = []
        given = [Type(F64)] * n  # types for the caller, who has complex arrays in one piece
        made: list[Type] = []
        for p in params:
            type = program_type(p._kind.type)
            given += [p._kind.type] * (2 + len(names))
            cast = [b.broadcast(b.convert(s, type.dtype), type.shape, ()) for s in scalars]
            x = b.param(type)
            g = b.param(type)
            buffers = [b.param(type) for _ in names]
            new = list(self.update(b, x, g, buffers, cast, flags, phase))
            results.extend(new)
            made += [p._kind.type if r.type is type else r.type for r in new]
        return native(run_passes(b.function("update", results), ["simplify"]), given, made)

    # -- what a subclass says ----------------------------------------------------------

    def initial(self, p: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """The state of a parameter before its first step."""
        state: dict[str, Any] = {"step": 0}
        for name in self.buffers(group):
            state[name] = np.zeros(p._type.shape, p._type.dtype.np)
        return state

    def buffers(self, group: dict[str, Any]) -> tuple[str, ...]:
        """Names of the arrays that are kept per parameter."""
        return ()

    def phase(self, state: dict[str, Any], group: dict[str, Any]) -> Any:
        """What tells parameters apart that are updated differently now; the number of steps
        if the update depends on it."""
        return None

    def flags(self, group: dict[str, Any]) -> Any:
        """Options that change the code of the update."""
        raise NotImplementedError

    def scalars(self, group: dict[str, Any], phase: Any) -> Sequence[float]:
        """Numbers that the update depends on, computed anew each step."""
        raise NotImplementedError

    def update(
        self, b: Builder, p: Value, g: Value, buffers: list[Value], scalars: list[Value],
        flags: Any, phase: Any,
    ) -> list[Value]:  # fmt: skip
        """The new parameter and buffers."""
        raise NotImplementedError

    # -- saving ---------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything but the parameters, by their numbers."""
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            packed = {k: v for k, v in group.items() if k != "params"}
            packed["params"] = [numbers.setdefault(id(p), len(numbers)) for p in group["params"]]
            groups.append(packed)
        state = {
            numbers[id(p)]: {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in s.items()}
            for p, s in self.state.items()
        }
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from what ``state_dict`` gave."""
        groups = state_dict["param_groups"]
        if len(groups) != len(self.param_groups):
            raise TensorValueError("loaded state dict has a different number of parameter groups")
        numbers: dict[int, Any] = {}
        for group, saved in zip(self.param_groups, groups):
            if len(group["params"]) != len(saved["params"]):
                raise TensorValueError(
                    "loaded state dict contains a parameter group that doesn't match the size of "
                    "the optimizer's group"
                )
            for p, n in zip(group["params"], saved["params"]):
                numbers[n] = p
            group.update({k: copy.deepcopy(v) for k, v in saved.items() if k != "params"})
        self.state = {
            numbers[n]: {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in s.items()}
            for n, s in state_dict["state"].items()
        }

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for k, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {k}")
            lines.extend(f"    {n}: {v}" for n, v in sorted(group.items()) if n != "params")
        return "\n".join([*lines, ")"])


def check_positive(**values: float) -> None:
    """Refuse negative options, as PyTorch does."""
    for name, value in values.items():
        if not value >= 0.0:
            raise TensorValueError(f"Invalid {name} value: {value}")
