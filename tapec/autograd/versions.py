"""Refusing to differentiate through values that were overwritten in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tapec.tensors.dtypes import of_ir
from tapec.tensors.graph import Graph, TensorError, writes
from tapec.tensors.rules import RULES

__all__ = ["check_saved", "inputs_unchanged", "saved_values"]


def inputs_unchanged(g: Graph) -> bool:
    """Whether no input of the graph has been written to since it was recorded."""
    if writes.count == 0:
        return True
    for ref, version in g.refs:
        if ref is None:
            continue
        t = ref()
        if t is not None:
            m = t._meta
            if m is not None and m.storage is not None and m.storage.version != version:
                return False
    return True


def saved_values(g: Graph, k: int) -> list[int]:
    """The values that the node of ``k`` would have saved for backward."""
    state = g.states[k]
    spec = RULES[state.op].saved
    out = []
    for n, at in enumerate(state.operands):
        if at.__class__ is not int:
            continue
        where = spec.find(str(n))
        if where < 0:
            continue
        if spec[where + 1 : where + 2] == "*":
            others = [j for m, j in enumerate(state.operands) if m != n and j.__class__ is int]
            if not any(g.states[j].requires for j in others):
                continue
        out.append(at)
    if "r" in spec:
        out.append(k)
    return out


def check_saved(g: Graph, values: Sequence[int]) -> None:
    """Raise if a node among ``values`` saved something that was written to afterwards."""
    mutated = g.mutated or {}
    changed: dict[int, tuple[int, int, Any]] = {}
    for (ref, version), at in zip(g.refs, g.positions):
        t = None if ref is None else ref()
        if t is None:
            continue
        m = t._meta
        if m is not None and m.storage is not None and m.storage.version != version:
            changed[at] = (version, m.storage.version, t)
    if not mutated and not changed:
        return
    for k in values:
        state = g.states[k]
        if state.op == "input" or not state.requires:
            continue
        for at in saved_values(g, k):
            if at in changed:
                expected, found, _ = changed[at]
            elif at in mutated:
                expected, storage = mutated[at]
                found = storage.version
            else:
                continue
            s = g.states[at]
            maker = "a leaf" if s.op == "input" else f"output 0 of {RULES[s.op].name}"
            raise TensorError(
                "one of the variables needed for gradient computation has been modified by an "
                f"inplace operation: [{of_ir(s.type.dtype)} {list(s.type.shape)}], which is "
                f"{maker} made at {g.site(at) if s.op != 'input' else '<input>'}, is at version "
                f"{found}; expected version {expected} instead ({RULES[state.op].name} at "
                f"{g.site(k)} saved it); instead: write to a clone(), or use the out-of-place "
                "operation"
            )
