"""The reference interpreter: runs a function with the NumPy rules of the op table.

It defines what a function means.  Every result is cast to the type that the op table
infers for it, and must have that type's shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapec.ir.core import Block, Function, Loc, Op, Value
from tapec.ir.loops import evaluate
from tapec.ir.opdef import OPS

__all__ = ["GuardFailed", "interpret", "run_block"]

Array = np.ndarray[Any, Any]


class GuardFailed(Exception):
    """A guard did not hold.  ``index`` counts the guards of the function from 0."""

    def __init__(self, index: int, message: str = "", loc: Loc | None = None) -> None:
        super().__init__(message or f"guard {index} failed")
        self.index = index
        self.loc = loc


def interpret(fn: Function, arrays: Sequence[Any]) -> list[Array]:
    """The results of ``fn`` on ``arrays``, one per parameter, of exactly its type's shape.

    Values are converted to the parameters' dtypes.  Raises ``GuardFailed``.
    """
    if len(arrays) != len(fn.params):
        raise TypeError(f"{fn.name} takes {len(fn.params)} arrays, got {len(arrays)}")
    args = []
    for k, (p, a) in enumerate(zip(fn.params, arrays)):
        array = np.asarray(a, p.type.dtype.np)
        if array.shape != p.type.shape:
            raise ValueError(f"{fn.name}: argument {k} has shape {array.shape}, wanted {p.type}")
        args.append(array)
    with np.errstate(all="ignore"):
        return run_block(fn.block, args, {}, [0])


def run_block(
    block: Block, args: Sequence[Array], outer: dict[Value, Array], guards: list[int]
) -> list[Array]:
    """Run a block whose free values are in ``outer``.  ``guards``: how many came before."""
    env = dict(outer)
    env.update(zip(block.params, args, strict=True))
    for op in block.ops:
        operands = [env[v] for v in op.operands]
        if op.name == "guard":
            _check(op, operands[0], guards)
        elif op.name in ("call", "custom"):
            results = run_block(op.regions[0], operands, {}, guards)
            env.update(zip(op.results, results, strict=True))
        elif op.regions:
            results = evaluate(op, operands, lambda r, args: run_block(r, args, {}, guards))
            env.update(zip(op.results, results, strict=True))
        else:
            found = OPS[op.name].numpy(operands, op.attrs)
            results = list(found) if isinstance(found, tuple) else [found]
            for z, a in zip(op.results, results, strict=True):
                env[z] = _cast(op, z, a)
    return [env[v] for v in block.results]


def _check(op: Op, condition: Array, guards: list[int]) -> None:
    index = guards[0]
    guards[0] += 1
    if condition.item() != op.attrs["expected"]:
        raise GuardFailed(index, op.attrs["message"], op.loc)


def _cast(op: Op, z: Value, value: Any) -> Array:
    array = np.asarray(value, z.type.dtype.np)
    if array.shape != z.type.shape:
        raise AssertionError(f"{op.name!r} gave shape {array.shape} for {z.type}")
    return array
