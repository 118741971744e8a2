"""Array-level rewriting that prepares a function for planning.

``call`` is inlined, and every ``dot`` becomes one of

- a product and a sum (no contraction, a plain inner product, or too small for a library call),
  which then fuses with its neighbours;
- a *canonical* ``dot`` of three-dimensional stored operands: x is [B,M,K] or [B,K,M] and
  y is [B,K,N] or [B,N,K], which the emitter hands to BLAS.

Small products (registers only) stay as they are and are unrolled.
"""

from __future__ import annotations

from tapec.codegen.plan import SMALL
from tapec.ir.builder import Builder
from tapec.ir.core import Function, Op, Value
from tapec.ir.dce import rebuilt
from tapec.ir.loops import body_function

__all__ = ["lower"]

#: Multiply-adds below which loops beat a library call.
LIBRARY_LIMIT = 4096


def lower(fn: Function) -> Function:
    """See the module docstring."""
    if not any(op.name in ("call", "dot") or op.regions for op in fn.ops):
        return fn
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
            env[op.results[0]] = _lower_dot(b, op, *operands)
        elif op.regions:
            regions = tuple([lower(body_function(r)).block for r in op.regions])
            new = rebuilt(op, operands, regions)
            b.ops.append(new)
            env.update(zip(op.results, new.results))
        else:
            env.update(zip(op.results, b.append(op, operands).results))
    return b.function(fn.name, [env[r] for r in fn.results])


def _prod(numbers: list[int]) -> int:
    total = 1
    for n in numbers:
        total *= n
    return total


def _lower_dot(b: Builder, op: Op, x: Value, y: Value) -> Value:
    xs, ys = x.type.shape, y.type.shape
    (xc, yc), (xb, yb) = op.attrs["contract"], op.attrs["batch"]
    xm = [j for j in range(len(xs)) if j not in xc and j not in xb]
    yn = [j for j in range(len(ys)) if j not in yc and j not in yb]
    batch, m = _prod([xs[j] for j in xb]), _prod([xs[j] for j in xm])
    k, n = _prod([xs[j] for j in xc]), _prod([ys[j] for j in yn])
    result = op.results[0].type
    if x.type.size <= SMALL and y.type.size <= SMALL and result.size <= SMALL:
        return b.append(op, (x, y)).results[0]
    work = batch * m * n * k
    inner = m == n == 1
    if (
        not xc
        or inner
        or x.type.dtype.kind != "f"
        or work <= LIBRARY_LIMIT
        or (batch > 1 and m * n * k <= 512)
    ):
        shape = (
            [xs[j] for j in xb] + [xs[j] for j in xm] + [ys[j] for j in yn] + [xs[j] for j in xc]
        )
        nb, nm, nn = len(xb), len(xm), len(yn)
        contracted = list(range(nb + nm + nn, len(shape)))
        wide_x = _spread(b, x, [*xb, *xm, *xc], shape, [*range(nb + nm), *contracted])
        wide_y = _spread(
            b, y, [*yb, *yn, *yc], shape, [*range(nb), *range(nb + nm, nb + nm + nn), *contracted]
        )
        return b.reduce_sum(b.mul(wide_x, wide_y), contracted)
    x3 = _canonical(b, x, xb, tuple(xm), xc, (batch, m, k))
    y3 = _canonical(b, y, yb, tuple(yn), yc, (batch, n, k))
    x_k = 2 if _k_last(x, xb, tuple(xm), xc) else 1
    y_k = 2 if _k_last(y, yb, tuple(yn), yc) else 1
    out = b.dot(x3, y3, ((x_k,), (y_k,)), ((0,), (0,)))
    return b.reshape(out, result.shape)


def _spread(b: Builder, x: Value, axes: list[int], shape: list[int], dims: list[int]) -> Value:
    return b.broadcast(b.transpose(x, axes), shape, dims)


def _k_last(
    x: Value, batch: tuple[int, ...], free: tuple[int, ...], contract: tuple[int, ...]
) -> bool:
    """Whether the operand is laid out (or will be copied to) batch, free, contracted."""
    order = tuple(range(x.type.ndim))
    return (*batch, *contract, *free) != order or not contract or not free


def _canonical(
    b: Builder,
    x: Value,
    batch: tuple[int, ...],
    free: tuple[int, ...],
    contract: tuple[int, ...],
    sizes: tuple[int, int, int],
) -> Value:
    n_batch, n_free, n_contract = sizes
    if _k_last(x, batch, free, contract):
        return b.reshape(b.transpose(x, (*batch, *free, *contract)), (n_batch, n_free, n_contract))
    return b.reshape(x, (n_batch, n_contract, n_free))
