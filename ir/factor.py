"""Derivatives with fewer multiplications: products that are there already, common factors.

``factored`` rewrites what a derivative computes beyond the *primal* values, which stay as the user
wrote them:

    (g*x)*c           -> g*(x*c)          if x*c is computed anyway
    ((g*x)*-3c)*x     -> (g*s)*-3         if s = (x*x)*c, however that is spelled
    g*p + g*q - g*r   -> g*(p + q - r)    if the products have no other use
    g*p - 2*(g*s)     -> g*(1 - 3*s)      if p = 1 - s

Reverse mode multiplies from the outside in, so these patterns come with every chain of polynomials:
with y = x*(1 - c*x*x), the cotangent of x is g*(1 - c*x*x) - (g*x)*(c*x) - c*((g*x)*x), which
becomes g*(1 - 3*s), where s = (c*x)*x is a primal value.  Results differ by rounding.

Products are compared as *monomials*, a coefficient and factors in a fixed order, so that neither
the order of operands nor the place of a constant matters.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from tapec.ir.builder import Builder
from tapec.ir.core import Function, Op, Type, Value
from tapec.ir.dce import dce
from tapec.ir.nested import nested
from tapec.ir.rewrite import splat

__all__ = ["factored"]

#: Longer functions are scalar code whose compile time counts.
MOST_OPS = 1500
#: Products of more factors are not taken apart.
MOST_FACTORS = 5
#: Larger ratios of coefficients (or smaller than the inverse) might overflow.
MOST_SCALE = 1024.0

#: A coefficient and a value.
Term = tuple[float, Value]


def factored(fn: Function, primal: Iterable[Value]) -> Function:
    """See the module docstring.  ``primal``: values that are to be computed as they are."""
    if len(fn.ops) > MOST_OPS:
        return fn
    kept = set(primal)
    factoring = _Factoring(fn, kept)
    new = factoring.run()
    if _work(new) < _work(fn):
        fn, kept = new, factoring.kept
    return nested(fn, kept)


def _work(fn: Function) -> int:
    return sum(op.name != "constant" for op in fn.ops)


def _maker(v: Value, name: str) -> Op | None:
    return v.op if v.op is not None and v.op.name == name else None


class _Factoring:
    def __init__(self, fn: Function, primal: set[Value]) -> None:
        self.fn, self.primal = fn, primal
        self.b = Builder()
        self.b.params.extend(fn.params)
        self.env: dict[Value, Value] = {p: p for p in fn.params}
        #: (operation, operands) → value
        self.known: dict[tuple[str, int, int], Value] = {}
        #: new values of the derivative → how often the function used what they stand for
        self.claims: Counter[Value] = Counter()
        #: new values that stand for primal ones
        self.kept: set[Value] = set()
        #: factors of products → the products of them: coefficients, values
        self.monomials: dict[tuple[int, ...], list[Term]] = {}
        self.numbers: dict[Value, int] = {}
        self.constants: dict[tuple[float, Type], Value] = {}
        self.passed: set[Value] = set()
        #: products made by ``_grouped``: never taken apart
        self.groups: set[Value] = set()
        self.uses = Counter(fn.results)
        users: dict[Value, Op] = {}
        for op in fn.ops:
            self.uses.update(op.operands)
            users.update(dict.fromkeys(op.operands, op))
        #: sums and differences that are only part of another one
        self.parts = {
            op.results[0]: op
            for op in fn.ops
            if self._sums(op)
            and self.uses[op.results[0]] == 1
            and op.results[0] in users
            and self._sums(users[op.results[0]])
        }

    def _sums(self, op: Op) -> bool:
        return (
            op.name in ("add", "sub")
            and op.results[0].type.dtype.kind == "f"
            and op.results[0] not in self.primal
        )

    def run(self) -> Function:
        for op in self.fn.ops:
            if len(op.results) != 1 or op.results[0] in self.parts:
                if len(op.results) != 1:
                    self._append(op)
                continue
            r = op.results[0]
            self.b.loc = op.loc
            if r in self.primal or r.type.dtype.kind != "f":
                self._append(op)
                z = self.env[r]
                self.kept.add(z)
                if op.name == "mul" and r.type.dtype.kind == "f":
                    self.known.setdefault(_key("mul", *self.env_of(op)), z)
                    self._note(z)
            elif op.name == "mul":
                x, y = self.env_of(op)
                self.env[r] = z = self._product(x, y)
                self.claims[z] += self.uses[r]
            elif op.name in ("add", "sub"):
                self.env[r] = self._sum(op)
            elif op.name == "neg":
                self.env[r] = z = self._emit("neg", self.env[op.operands[0]])
                self.claims[z] += self.uses[r]
            else:
                self._append(op)
        results = [self.env[r] for r in self.fn.results]
        return dce(self.b.function(self.fn.name, results))

    def env_of(self, op: Op) -> tuple[Value, Value]:
        x, y = op.operands
        return self.env[x], self.env[y]

    def _append(self, op: Op) -> None:
        operands = tuple([self.env[v] for v in op.operands])
        if operands == op.operands:
            self.b.ops.append(op)
            self.env.update((r, r) for r in op.results)
        else:
            self.env.update(zip(op.results, self.b.append(op, operands).results))

    def _emit(self, name: str, *operands: Value) -> Value:
        """An operation, once."""
        key = _key(name, *operands)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self.b.emit(name, operands)
            if name == "mul":
                self._note(found)
        return found

    def _constant(self, c: float, like: Value) -> Value:
        found = self.constants.get((c, like.type))
        if found is None:
            found = self.constants[c, like.type] = self.b.like(c, like)
        return found

    # -- products -------------------------------------------------------------------

    def _product(self, x: Value, y: Value) -> Value:
        cost = self._price(x) + self._price(y)
        if cost and _key("mul", x, y) not in self.known:
            for c, factors in self._spellings(x, y):
                found = self._rebuilt(c, factors, cost)
                if found is not None:
                    return found
        return self._emit("mul", x, y)

    def _price(self, v: Value) -> float:
        """What ``v`` costs: 0 if it is there in any case, more if it is a product for one use."""
        made = v.op
        if made is None or made.name not in ("mul", "neg") or v in self.kept or v in self.groups:
            return 0.0
        return 1.0 if self.claims[v] > 1 else 1.5

    def _spellings(self, *values: Value) -> list[tuple[float, list[Value]]]:
        """Coefficients and factors whose product is that of ``values``.

        First all products of the derivative are taken apart, then those of the primal, level by
        level: what is a factor at one place is a product of two at another.
        """
        out: list[tuple[float, list[Value]]] = []
        c, factors, products = 1.0, list[Value](), list[Op]()
        todo = list(values)
        while todo:
            while todo:
                v = todo.pop()
                k = _coefficient(v)
                made = v.op
                if k is not None:
                    c *= k
                elif made is None or made.name not in ("neg", "mul") or v in self.groups:
                    factors.append(v)
                elif made.name == "neg":
                    c = -c
                    todo.append(made.operands[0])
                elif v not in self.kept or _coefficient(made.operands[1]) is not None:
                    todo += made.operands
                else:
                    products.append(made)
                if len(factors) + len(products) + len(todo) > MOST_FACTORS:
                    return out
            spelled = factors + [made.results[0] for made in products]
            if len(spelled) > 1 and _sane(c):
                for v in spelled:
                    self.numbers.setdefault(v, len(self.numbers))
                out.append((c, sorted(spelled, key=self.numbers.__getitem__)))
            todo = [v for made in products for v in made.operands]
            products = []
        return out

    def _note(self, product: Value) -> None:
        assert product.op is not None
        for c, factors in self._spellings(*product.op.operands):
            self.monomials.setdefault(self._index(factors), []).append((c, product))

    def _index(self, factors: list[Value]) -> tuple[int, ...]:
        return tuple([self.numbers[v] for v in factors])

    def _rebuilt(self, c: float, factors: list[Value], cost: float) -> Value | None:
        """The product as a multiple of one or of two values, if that is cheaper than ``cost``."""
        n = len(factors)
        best: tuple[float, Value, Value | None] | None = None
        for k, v in self.monomials.get(self._index(factors), ()):
            price = self._price(v) + (abs(c) != abs(k)) - 1
            if price < cost and _scales(c / k):
                cost, best = price, (c / k, v, None)
        for mask in range(1, 2**n - 1, 2):  # the first factor is on the left
            left = self._there([v for i, v in enumerate(factors) if mask >> i & 1])
            right = self._there([v for i, v in enumerate(factors) if not mask >> i & 1])
            for k, v in left:
                for m, w in right:
                    price = self._price(v) + self._price(w) + (abs(c) != abs(k * m))
                    if price < cost and _scales(c / (k * m)):
                        cost, best = price, (c / (k * m), v, w)
        if best is None:
            return None
        scale, v, second = best
        value = v if second is None else self._emit("mul", v, second)
        if scale != 1:
            self.claims[value] += 1
        return self._scaled(scale, value)

    def _there(self, factors: list[Value]) -> list[Term]:
        if len(factors) == 1:
            return [(1.0, factors[0])]
        return self.monomials.get(self._index(factors), [])

    def _scaled(self, c: float, v: Value) -> Value:
        if c == 1:
            return v
        return self._emit("neg", v) if c == -1 else self._emit("mul", v, self._constant(c, v))

    # -- sums -----------------------------------------------------------------------

    def _sum(self, op: Op) -> Value:
        grouped = terms = self._terms(op)
        while (better := self._grouped(grouped)) is not None:
            grouped = better
        merged: dict[Value, float] = {}
        for c, v in grouped:
            merged[v] = merged.get(v, 0.0) + c
        if all(merged.values()):
            grouped = min(grouped, self._opened([(k, v) for v, k in merged.items()]), key=_cost)
        return self._as_written(op) if grouped is terms else self._total(grouped, op.results[0])

    def _as_written(self, op: Op) -> Value:
        operands = [
            self._as_written(self.parts[v]) if v in self.parts else self.env[v] for v in op.operands
        ]
        return self._emit(op.name, *operands)

    def _terms(self, op: Op, sign: float = 1.0) -> list[Term]:
        out: list[Term] = []
        for v, s in zip(op.operands, (sign, -sign if op.name == "sub" else sign)):
            if v in self.parts:
                out += self._terms(self.parts[v], s)
            else:
                c, value = self._without_coefficient(self.env[v])
                out.append((s * c, value))
        return out

    def _without_coefficient(self, v: Value) -> Term:
        """c and w such that ``v`` is c*w, where c*w is computed for the derivative alone."""
        c = 1.0
        while v not in self.kept and v.op is not None and v.op.name in ("neg", "mul"):
            k = -1.0 if v.op.name == "neg" else _coefficient(v.op.operands[1])
            inner = v.op.operands[0]
            if k is None or not _sane(c * k) or _maker(inner, "mul") is None:
                if v.op.name == "neg":
                    c, v = -c, inner
                    continue
                break
            if v not in self.passed:  # who used v now uses what is in it
                self.passed.add(v)
                self.claims[inner] += self.claims[v] - 1
            c, v = c * k, inner
        return c, v

    def _grouped(self, terms: list[Term]) -> list[Term] | None:
        """The terms with those of one factor as one product; None if no factor is common."""
        count = Counter(v for _, v in terms)
        products = {
            v: made.operands
            for v, n in count.items()
            if (made := _maker(v, "mul")) is not None
            and v not in self.kept
            and v not in self.groups
            and self.claims[v] <= n
        }
        factors: Counter[Value] = Counter()
        for v, operands in products.items():
            for f in set(operands):
                factors[f] += count[v]
        if not factors:
            return None
        factor, n = max(factors.items(), key=lambda item: item[1])
        if n < 2:
            return None
        inside: dict[Value, float] = {}
        out: list[Term] = []
        place = -1
        for c, v in terms:
            if v not in products or factor not in products[v]:
                out.append((c, v))
                continue
            x, y = products[v]
            other = y if x is factor else x
            inside[other] = inside.get(other, 0.0) + c
            if place < 0:
                place = len(out)
                out.append((1.0, v))  # stands for the product until that is known
        weighted = [(k, v) for v, k in inside.items() if k]
        if not weighted:
            del out[place]
            return out or [(1.0, self.b.zeros(factor.type))]
        weighted = self._opened(weighted)
        outer = 1.0
        if len({abs(k) for k, _ in weighted}) == 1:
            outer = abs(weighted[0][0])
        if all(k < 0 for k, _ in weighted):
            outer = -outer
        total = self._total([(k / outer, v) for k, v in weighted], factor)
        out[place] = outer, self._emit("mul", factor, total)
        self.groups.add(out[place][1])
        return out

    def _opened(self, terms: list[Term]) -> list[Term]:
        """k*(1 - s) + m*s -> k + (m - k)*s: the primal sum need not be kept for that."""
        weights = {v: k for k, v in terms}
        for k, v in terms:
            made = v.op
            if v not in self.kept or made is None or made.name not in ("add", "sub"):
                continue
            x, y = made.operands
            flip = -1.0 if made.name == "sub" else 1.0
            for c, s, sign, whole in ((x, y, flip, 1.0), (y, x, 1.0, flip)):
                if splat(c) is None or weights.get(s, -k * sign) == -k * sign:
                    continue
                weights[s] += k * sign
                del weights[v]
                weights[c] = weights.get(c, 0.0) + k * whole
                break
        return [(k, v) for v, k in weights.items() if k]

    def _total(self, terms: Sequence[Term], like: Value) -> Value:
        """The sum of terms, from a positive one on."""
        known = [(k, v) for k, v in terms if (c := splat(v)) is None or not math.isfinite(c)]
        if len(known) < len(terms):
            constant = sum(k * splat(v) for k, v in terms if (k, v) not in known)
            known.insert(0, (1.0, self._constant(float(constant), like)))
        first = next((i for i, (k, _) in enumerate(known) if k > 0), 0)
        total = self._scaled(*known[first])
        for k, v in [*known[:first], *known[first + 1 :]]:
            total = self._emit("add" if k > 0 else "sub", total, self._scaled(abs(k), v))
        return total


def _coefficient(v: Value) -> float | None:
    """The number that ``v`` is everywhere, if it may be moved about."""
    c = splat(v)
    return c if type(c) is float and _sane(c) else None


def _cost(terms: list[Term]) -> int:
    """Operations of a sum, if a product and a sum are one (fused multiply-add)."""
    return len(terms) + (len(terms) == 1 and abs(terms[0][0]) != 1)


def _sane(c: float) -> bool:
    """Far from overflow and underflow, also in f32."""
    return 1e-18 < abs(c) < 1e18


def _scales(ratio: float) -> bool:
    return 1 / MOST_SCALE <= abs(ratio) <= MOST_SCALE


def _key(name: str, x: Value, y: Value | None = None) -> tuple[str, int, int]:
    a, c = id(x), id(y)
    return (name, a, c) if name == "sub" or a <= c else (name, c, a)
