"""Like terms: sums of products in a normal form, so that higher derivatives stay small.

The n-th derivative of a product has 2ⁿ terms as reverse mode writes them, but few
different ones: they differ in the order of the factors and in where the numbers stand.
This pass writes a product as ``number * x₁^k₁ * x₂^k₂ * …`` with the factors in the order
of their definition, and a sum as ``Σ number * product`` with one term per product:

    %0 = mul %s, %c {c = 10.0}            %0 = mul %s, %p
    %1 = mul %0, %p             ->        %1 = mul %0, 20.0
    %2 = mul %p, %c                       return %1
    %3 = mul %2, %s
    %4 = add %1, %3

It reassociates, so rounding (and where an intermediate result overflows) may differ; it is
meant for derivatives of derivatives, not for what the user wrote.  What it does not do:
multiply sums out, divide, or drop a term whose numbers cancel (0 * inf is nan).
Sharing is kept: a sum used more than once (or of more than ``MAX_TERMS`` terms) is one factor,
and a product of more than ``MAX_FACTORS`` different factors is not flattened any further.
"""

from __future__ import annotations

from collections import Counter

from tapec.ir.builder import Builder
from tapec.ir.core import NO_ATTRS, Attrs, Function, Op, Type, Value
from tapec.ir.dce import live_ops, rebuilt
from tapec.ir.rewrite import paused_gc, splat

__all__ = ["MAX_FACTORS", "MAX_TERMS", "collect"]

MAX_FACTORS = 4
MAX_TERMS = 100
#: Numbers outside of this range are factors like others: moving them might overflow.
_SMALLEST, _LARGEST = 2.0**-40, 2.0**40

#: Factors and their powers, in the order of the factors' numbers.
Monomial = tuple[tuple[int, int], ...]
#: monomial → number
Terms = dict[Monomial, float]


def collect(fn: Function) -> Function:
    """``fn`` with like terms collected; ``fn`` itself where that saves nothing."""
    with paused_gc():
        ops = live_ops(fn.ops, fn.results)
        walk = _Collector(fn, ops)
        for op in ops:
            walk.visit(op)
        results = [walk.value(v) for v in fn.results]
        new = live_ops(walk.b.ops, results)
        return Function(fn.name, fn.params, new, results) if len(new) < len(ops) else fn


class _Collector:
    __slots__ = ("b", "factors", "loc_of", "monomials", "numbers", "terms", "uses", "values")

    def __init__(self, fn: Function, ops: list[Op]) -> None:
        self.b = Builder()
        self.uses: Counter[Value] = Counter(fn.results)
        for op in ops:
            self.uses.update(op.operands)
        #: old value → its sum of products; those that are not in it are factors
        self.terms: dict[Value, Terms] = {}
        #: old value → new value, where it has been written out
        self.values: dict[Value, Value] = {p: p for p in fn.params}
        #: new value → its number as a factor, and back
        self.numbers: dict[Value, int] = {}
        self.factors: list[Value] = []
        #: (type, monomial) → its value without the number
        self.monomials: dict[tuple[Type, Monomial], Value] = {}

    # -- reading ------------------------------------------------------------------------

    def visit(self, op: Op) -> None:
        self.b.loc = op.loc
        results = op.results
        if len(results) == 1 and results[0].type.dtype.kind == "f":
            found = self._terms(op, results[0])
            if found is not None:
                self.terms[results[0]] = found
                return
        operands = tuple([self.value(v) for v in op.operands])
        new = op
        if any(a is not b for a, b in zip(operands, op.operands)):
            new = rebuilt(op, operands, op.regions)
        self.b.ops.append(new)
        self.values.update(zip(results, new.results))

    def _terms(self, op: Op, z: Value) -> Terms | None:
        """The sum of products that ``op`` is, or None if it is of another kind."""
        name = op.name
        if name == "mul":
            x, y = (self._read(v) for v in op.operands)
            if len(x) > 1 or len(y) > 1:
                for one, other in ((x, y), (y, x)):
                    if list(other) == [()]:  # a number times a sum
                        scaled = {m: c * other[()] for m, c in one.items()}
                        if all(_moderate(c) for c in scaled.values()):
                            return scaled
                x, y = (self._single(t, z.type) for t in (x, y))
            ((mx, cx),) = x.items()
            ((my, cy),) = y.items()
            product = _times(mx, my)
            if len(product) > MAX_FACTORS:
                product = _times(self._closed(mx, z.type), self._closed(my, z.type))
            return {product: cx * cy} if _moderate(cx * cy) else None
        if name in ("add", "sub"):
            sign = 1 if name == "add" else -1
            x, y = (self._read(v) for v in op.operands)
            if sign > 0 and len(y) > len(x):
                x, y = y, x
            for m, c in y.items():
                x[m] = x.get(m, 0.0) + sign * c
            return x
        if name == "neg":
            return {m: -c for m, c in self._read(op.operands[0]).items()}
        if name == "constant":
            number = splat(z)
            return {(): number} if number is not None and _moderate(number) else None
        if name == "integer_pow" and op.attrs["n"] > 0:
            n = op.attrs["n"]
            x = self._single(self._read(op.operands[0]), z.type)
            ((mx, cx),) = x.items()
            return {tuple([(k, p * n) for k, p in mx]): float(cx**n)} if cx in (1, -1) else None
        return None

    def _read(self, v: Value) -> Terms:
        """The terms of an operand, to be changed at will."""
        found = self.terms.get(v)
        if found is None:
            return {self._factor(self.values[v]): 1.0}
        if len(found) == 1:
            return dict(found)
        if self.uses[v] == 1 and len(found) <= MAX_TERMS:
            return found
        return {self._factor(self.value(v)): 1.0}

    def _factor(self, value: Value) -> Monomial:
        number = self.numbers.get(value)
        if number is None:
            number = self.numbers[value] = len(self.factors)
            self.factors.append(value)
        return ((number, 1),)

    def _single(self, terms: Terms, type: Type) -> Terms:
        """A sum as one factor."""
        return terms if len(terms) == 1 else {self._factor(self._write(terms, type)): 1.0}

    def _closed(self, m: Monomial, type: Type) -> Monomial:
        """A product as one factor."""
        return m if len(m) <= 1 else self._factor(self._product(m, type))

    # -- writing ------------------------------------------------------------------------

    def value(self, v: Value) -> Value:
        """The new value of ``v``."""
        new = self.values.get(v)
        if new is None:
            new = self.values[v] = self._write(self.terms[v], v.type)
            if new.hint is None:
                new.hint = v.hint
        return new

    def _emit(self, name: str, *operands: Value, attrs: Attrs = NO_ATTRS) -> Value:
        op = Op(name, operands, (operands[0].type,), attrs, (), self.b.loc)
        self.b.ops.append(op)
        return op.results[0]

    def _write(self, terms: Terms, type: Type) -> Value:
        total: Value | None = None
        for m, c in terms.items():
            if total is None:
                total = self._term(m, c, type)
            elif c < 0:
                total = self._emit("sub", total, self._term(m, -c, type))
            else:
                total = self._emit("add", total, self._term(m, c, type))
        assert total is not None
        return total

    def _term(self, m: Monomial, c: float, type: Type) -> Value:
        if not m:
            return self.b.constant(c, type)
        product = self._product(m, type)
        if c == 1:
            return product
        if c == -1:
            return self._emit("neg", product)
        return self._emit("mul", product, self.b.constant(c, type))

    def _product(self, m: Monomial, type: Type) -> Value:
        found = self.monomials.get((type, m))
        if found is None:
            if len(m) > 1:
                found = self._emit("mul", self._product(m[:-1], type), self._product(m[-1:], type))
            else:
                ((number, power),) = m
                found = self.factors[number]
                if power > 1:
                    found = self._emit("integer_pow", found, attrs={"n": power})
            self.monomials[(type, m)] = found
        return found


def _moderate(c: float) -> bool:
    return c == 0 or _SMALLEST <= abs(c) <= _LARGEST


def _times(x: Monomial, y: Monomial) -> Monomial:
    if not x or not y:
        return x or y
    powers = dict(x)
    for k, p in y:
        powers[k] = powers.get(k, 0) + p
    return tuple(sorted(powers.items()))
