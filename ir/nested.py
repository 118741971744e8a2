"""Sums over a chain of products, nested: Horner's scheme for derivatives.

    t1 = t*p;  t2 = t1*q;  t3 = t2*r;  s = 0.1*(t + t1 + t2) + t3
    ->  s = t*(0.1 + p*(0.1 + q*(0.1 + r)))

Reverse mode leaves such sums where each step of a recurrence uses the same input: the cotangent of
the input adds up the cotangents of all states.  Each step of the nested form is one fused
multiply-add instead of a product and an addition, and it is how forward mode would compute the
derivative.  Only the derivative is rewritten, not *primal* values.  Results differ by rounding.

    >>> from tapec.ir import parse
    >>> fn = parse('''func @f(%t: f64[], %p: f64[], %q: f64[], %r: f64[]) -> (f64[]) {
    ...   %a = mul %t, %p : f64[]
    ...   %b = mul %a, %q : f64[]
    ...   %c = mul %b, %r : f64[]
    ...   %x = add %t, %a : f64[]
    ...   %y = sub %x, %b : f64[]
    ...   %z = add %y, %c : f64[]
    ...   return %z
    ... }''')
    >>> [op.name for op in nested(fn, set()).ops]  # t*(1 + p*(1 + q*(r - 1)))
    ['constant', 'sub', 'mul', 'add', 'mul', 'add', 'mul']
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set

from tapec.ir.builder import Builder
from tapec.ir.core import Function, Op, Value
from tapec.ir.dce import dce, rebuilt
from tapec.ir.rewrite import splat

__all__ = ["nested"]

#: Shorter chains gain nothing; longer ones might overflow where the sum does not.
LEAST, MOST = 3, 40

#: A coefficient and a value.
Term = tuple[float, Value]


def nested(fn: Function, primal: Set[Value]) -> Function:
    """See the module docstring."""
    uses = Counter(fn.results)
    users: dict[Value, Op] = {}
    for op in fn.ops:
        uses.update(op.operands)
        users.update(dict.fromkeys(op.operands, op))
    found: dict[Op, _Chain] = {}
    for op in fn.ops:
        if not _is_sum(op, primal):
            continue
        r = op.results[0]
        if uses[r] == 1 and r in users and _is_part(users[r], primal):
            continue  # only part of another sum
        chain = _chain(op, uses, primal)
        if chain is not None:
            found[op] = chain
    if not found:
        return fn
    b = Builder()
    b.params.extend(fn.params)
    env: dict[Value, Value] = {}
    for op in fn.ops:
        b.loc = op.loc
        operands = tuple([env.get(v, v) for v in op.operands])
        if op in found:
            env[op.results[0]] = found[op].emit(b, env)
        elif operands == op.operands:
            b.ops.append(op)
        else:
            new = rebuilt(op, operands, op.regions)
            b.ops.append(new)
            env.update(zip(op.results, new.results))
    return dce(b.function(fn.name, [env.get(r, r) for r in fn.results]))


def _is_sum(op: Op, primal: Set[Value]) -> bool:
    return (
        op.name in ("add", "sub")
        and op.results[0].type.dtype.kind == "f"
        and op.results[0] not in primal
    )


def _scale(op: Op) -> float | None:
    """c, if ``op`` is a product with the number c."""
    c = splat(op.operands[1]) if op.name == "mul" else None
    return c if type(c) is float and 1e-9 < abs(c) < 1e9 else None


def _is_part(op: Op, primal: Set[Value]) -> bool:
    return _is_sum(op, primal) or (op.results[0] not in primal and _scale(op) is not None)


class _Chain:
    """``factors[k]`` takes one term of the chain to the next; ``weights`` are the coefficients."""

    def __init__(self, first: Value) -> None:
        self.first = first
        self.factors: list[Value] = []
        self.weights: list[float] = []
        self.rest: list[Term] = []

    def emit(self, b: Builder, env: dict[Value, Value]) -> Value:
        total: Value | None = None
        pending = self.weights[-1]  # a number that nothing has been added to yet
        for factor, weight in zip(reversed(self.factors), reversed(self.weights[:-1])):
            q = env.get(factor, factor)
            total = _scaled(b, q, pending) if total is None else b.mul(q, total)
            if weight != 0:
                constant = b.like(abs(weight), total)
                total = b.add(total, constant) if weight > 0 else b.sub(total, constant)
        assert total is not None
        total = b.mul(env.get(self.first, self.first), total)
        for c, v in self.rest:
            term = _scaled(b, env.get(v, v), abs(c))
            total = b.add(total, term) if c > 0 else b.sub(total, term)
        return total


def _scaled(b: Builder, v: Value, c: float) -> Value:
    return v if c == 1 else b.neg(v) if c == -1 else b.mul(v, b.like(c, v))


def _chain(op: Op, uses: Counter[Value], primal: Set[Value]) -> _Chain | None:
    """The longest chain in the sum that ends in ``op``, if all scaled sums in it belong to it."""
    terms: list[Term] = []
    inner: list[Value] = []  # terms of sums that are multiplied by a number
    todo: list[tuple[float, Value, bool]] = []
    for v, sign in zip(op.operands, (1.0, -1.0 if op.name == "sub" else 1.0)):
        todo.append((sign, v, False))
    while todo:
        c, v, scaled = todo.pop()
        made = v.op
        if made is not None and uses[v] == 1 and v not in primal:
            if _is_sum(made, primal):
                x, y = made.operands
                todo += [(c, x, scaled), (-c if made.name == "sub" else c, y, scaled)]
                continue
            k = _scale(made)
            below = made.operands[0].op if k is not None else None
            if k is not None and below is not None and uses[made.operands[0]] == 1:
                if _is_sum(below, primal):
                    todo.append((c * k, made.operands[0], True))
                    continue
        terms.append((c, v))
        if scaled:
            inner.append(v)
    weights: dict[Value, float] = {}
    for c, v in terms:
        if v in weights:
            return None
        weights[v] = c
    after: dict[Value, tuple[Value, Value]] = {}
    for w in weights:
        if w.op is None or w.op.name != "mul" or w in primal or uses[w] > 2:
            continue
        x, y = w.op.operands
        for v, factor in ((x, y), (y, x)):
            if v in weights and v is not factor and factor not in weights:
                if v in after:
                    return None
                after[v] = w, factor
    followers = {w for w, _ in after.values()}
    best: _Chain | None = None
    members: set[Value] = set()
    for first in weights:
        if first in followers or first not in after:
            continue
        chain, v, seen = _Chain(first), first, {first}
        chain.weights.append(weights[first])
        while v in after:
            v, factor = after[v]
            chain.factors.append(factor)
            chain.weights.append(weights[v])
            seen.add(v)
            if uses[v] != (2 if v in after else 1):
                break
        else:
            if best is None or len(chain.factors) > len(best.factors):
                best, members = chain, seen
    if best is None or not LEAST <= len(best.factors) <= MOST:
        return None
    if any(v not in members for v in inner):
        return None
    best.rest = [(c, v) for c, v in terms if v not in members]
    return best
