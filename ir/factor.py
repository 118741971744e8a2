"""Derivatives with fewer multiplications: products that are there already, common factors.

``factored`` rewrites what a derivative computes beyond the *primal* values, which stay as the user
wrote them:

    (a*x)*c           -> a*(x*c)          if x*c is computed anyway
    g*p + g*q - g*r   -> g*(p + q - r)    if the products have no other use

Reverse mode multiplies from the outside in, so both patterns come with every chain of polynomials:
with y = x*(1 - c*x*x), the cotangent of x is g*(1 - c*x*x) - (g*x)*(c*x) - c*((g*x)*x), which
becomes g*((1 - s) - 2*s), where s = (c*x)*x is a primal value.  Results differ by rounding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tapec.ir.builder import Builder
from tapec.ir.core import Function, Op, Value
from tapec.ir.dce import dce

__all__ = ["factored"]

#: Longer functions are scalar code whose compile time counts.
MOST_OPS = 1500

#: A sign and a value.
Term = tuple[int, Value]


def factored(fn: Function, primal: Iterable[Value]) -> Function:
    """See the module docstring.  ``primal``: values that are to be computed as they are."""
    if len(fn.ops) > MOST_OPS:
        return fn
    new = _Factoring(fn, set(primal)).run()
    return fn if len(new.ops) >= len(fn.ops) else new


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
        #: products of the derivative → how often the function used what they stand for
        self.claims: Counter[Value] = Counter()
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
                if op.name == "mul":
                    self.known.setdefault(_key("mul", *self.env_of(op)), self.env[r])
            elif op.name == "mul":
                x, y = self.env_of(op)
                self.env[r] = z = self._product(x, y)
                self.claims[z] += self.uses[r]
            elif op.name in ("add", "sub"):
                self.env[r] = self._sum(op)
            elif op.name == "neg":
                self.env[r] = self._emit("neg", self.env[op.operands[0]])
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
        return found

    # -- products -------------------------------------------------------------------

    def _product(self, x: Value, y: Value) -> Value:
        if _key("mul", x, y) not in self.known:
            for p, c in ((x, y), (y, x)):
                found = self._known_factor(p, c)
                if found is not None:
                    return found
        return self._emit("mul", x, y)

    def _known_factor(self, p: Value, c: Value) -> Value | None:
        """``p*c`` for a product ``p`` of which a factor times ``c`` is there already."""
        minus = _maker(p, "neg")
        product = _maker(p if minus is None else minus.operands[0], "mul")
        if product is None or product.results[0] in self.primal:
            return None
        for w, z in (product.operands, product.operands[::-1]):
            there = self.known.get(_key("mul", z, c))
            if there is not None and there is not product.results[0]:
                deeper = self._known_factor(w, there)
                value = deeper if deeper is not None else self._emit("mul", w, there)
                return value if minus is None else self._emit("neg", value)
        return None

    # -- sums -----------------------------------------------------------------------

    def _sum(self, op: Op) -> Value:
        terms = self._terms(op, 1)
        grouped = terms
        while (better := self._grouped(grouped)) is not None:
            grouped = better
        return self._as_written(op) if grouped is terms else self._total(grouped)

    def _as_written(self, op: Op) -> Value:
        operands = [
            self._as_written(self.parts[v]) if v in self.parts else self.env[v] for v in op.operands
        ]
        return self._emit(op.name, *operands)

    def _terms(self, op: Op, sign: int) -> list[Term]:
        out: list[Term] = []
        for v, s in zip(op.operands, (sign, -sign if op.name == "sub" else sign)):
            if v in self.parts:
                out += self._terms(self.parts[v], s)
                continue
            value = self.env[v]
            while (minus := _maker(value, "neg")) is not None:
                s, value = -s, minus.operands[0]
                if _maker(value, "mul") is not None:
                    self.claims[value] += self.uses[v]
            out.append((s, value))
        return out

    def _grouped(self, terms: list[Term]) -> list[Term] | None:
        """The terms with those of one factor as one product; None if no factor is common."""
        count = Counter(v for _, v in terms)
        products = {
            v: made.operands
            for v, n in count.items()
            if (made := _maker(v, "mul")) is not None
            and v not in self.primal
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
        inside: Counter[Value] = Counter()
        out: list[Term] = []
        place = -1
        for s, v in terms:
            if v not in products or factor not in products[v]:
                out.append((s, v))
                continue
            x, y = products[v]
            inside[y if x is factor else x] += s
            if place < 0:
                place = len(out)
                out.append((1, v))  # stands for the product until that is known
        weighted = [(k, v) for v, k in inside.items() if k]
        if not weighted:
            del out[place]
            return out or [(1, self.b.zeros(factor.type))]
        scaled = [
            (1 if k > 0 else -1, v if abs(k) == 1 else self._emit("mul", v, self.b.like(abs(k), v)))
            for k, v in weighted
        ]
        sign = 1
        if all(s < 0 for s, _ in scaled):
            sign, scaled = -1, [(1, v) for _, v in scaled]
        out[place] = sign, self._emit("mul", factor, self._total(scaled))
        self.claims[out[place][1]] += 2  # a group is not part of another one
        return out

    def _total(self, terms: Sequence[Term]) -> Value:
        """The sum of terms, from a positive one on."""
        first = next((k for k, (s, _) in enumerate(terms) if s > 0), 0)
        sign, total = terms[first]
        if sign < 0:
            total = self._emit("neg", total)
        for s, v in [*terms[:first], *terms[first + 1 :]]:
            total = self._emit("add" if s > 0 else "sub", total, v)
        return total


def _key(name: str, x: Value, y: Value | None = None) -> tuple[str, int, int]:
    a, c = id(x), id(y)
    return (name, a, c) if name == "sub" or a <= c else (name, c, a)
