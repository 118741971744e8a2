"""Array-level rewriting that prepares a function for planning.

``call`` is inlined, and every ``dot`` becomes one of

- a product and a sum (no contraction, a plain inner product, or too small for a library call),
  which then fuses with its neighbours;
- a library call on strided operands (see ``gemm``), with a transpose of the result built in;
- itself, if it is small: it is then unrolled in registers.
"""

from __future__ import annotations

from tapec.codegen.gemm import lower_dot
from tapec.ir.builder import Builder
from tapec.ir.core import Function, Op, Value
from tapec.ir.dce import rebuilt
from tapec.ir.loops import body_function

__all__ = ["lower"]


def lower(fn: Function) -> Function:
    """See the module docstring."""
    if not any(op.name in ("call", "dot") or op.regions for op in fn.ops):
        return fn
    alone = _transposed_products(fn)
    b = Builder()
    env: dict[Value, Value] = {}
    for p in fn.params:
        env[p] = b.param(p.type, p.hint)
    for op in fn.ops:
        operands = tuple([env.get(v, v) for v in op.operands])
        b.loc = op.loc
        if op.name == "call":
            block = op.regions[0]
            inner = Function("call", block.params, block.ops, block.results)
            results = b.inline(lower(inner), operands)
            env.update(zip(op.results, results))
        elif op.name == "dot":
            follow = alone.get(op.results[0])
            value = lower_dot(b, op, operands[0], operands[1], follow)
            env[op.results[0] if follow is None else follow.results[0]] = value
        elif op.results and op.results[0] in env:
            continue  # the transpose after a product
        elif op.regions:
            regions = tuple([lower(body_function(r)).block for r in op.regions])
            new = rebuilt(op, operands, regions)
            b.ops.append(new)
            env.update(zip(op.results, new.results))
        else:
            env.update(zip(op.results, b.append(op, operands).results))
    return b.function(fn.name, [env[r] for r in fn.results])


def _transposed_products(fn: Function) -> dict[Value, Op]:
    """Results of ``dot`` whose only use is a transpose → that transpose."""
    uses: dict[Value, int] = {}
    for v in fn.results:
        uses[v] = uses.get(v, 0) + 1
    for op in fn.ops:
        for v in op.operands:
            uses[v] = uses.get(v, 0) + 1
    return {
        op.operands[0]: op
        for op in fn.ops
        if op.name == "transpose"
        and uses[op.operands[0]] == 1
        and op.operands[0].op is not None
        and op.operands[0].op.name == "dot"
    }
