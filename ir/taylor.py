"""Taylor mode as a transform: ``taylor(fn, order)`` carries truncated power series.

Along the line ``x + t v`` every value is a series in t; each operation maps the series of its
operands to that of its result by a recurrence of O(order²) operations, where nesting
first derivatives would take 2^order.  ``c[k]`` is the coefficient of t^k, the k-th derivative
over k!; an absent coefficient is zero.

Operations without a rule (loops, branches, custom rules) are an error that names them.

>>> from tapec.ir import F64, Builder, Type, interpret
>>> b = Builder()
>>> x = b.param(Type(F64), "x")
>>> f = taylor(b.function("f", [b.exp(x)]), 3)
>>> [float(a) for a in interpret(f, [0.0, 1.0])[0]]
[1.0, 1.0, 0.5, 0.16666666666666666]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tapec.ir.adjoint import inline_calls
from tapec.ir.builder import Builder
from tapec.ir.core import Function, Op, Type, Value
from tapec.ir.elementwise import LN2, LN10
from tapec.ir.opdef import OPS
from tapec.ir.rewrite import paused_gc, splat
from tapec.ir.vjp import differentiable_params

__all__ = ["taylor"]

Coefficient = Value | None
Series = list[Coefficient]
Rule = Callable[["_Taylor", Op, list[Series]], Series]


@paused_gc()
def taylor(fn: Function, order: int, wrt: Sequence[int] | None = None) -> Function:
    """The Taylor coefficients of ``fn`` along a line.

    Parameters of the result: those of ``fn``, then one direction per parameter in ``wrt``
    (by default all that carry a derivative).  Results: per result of ``fn`` its
    coefficients 0 … order, stacked along a first axis; results of integer or bool dtype as
    they are.
    """
    fn = inline_calls(fn)
    wrt = differentiable_params(fn, wrt)
    t = _Taylor(order)
    b = t.b
    b.params.extend(fn.params)
    env: dict[Value, Series] = {}
    for k in wrt:
        p = fn.params[k]
        direction = b.param(p.type, f"d{p.hint}" if p.hint else None)
        env[p] = [p, direction, *[None] * (order - 1)][: order + 1]
    known = env.keys()
    for op in fn.ops:
        b.ops.append(op)
        if known.isdisjoint(op.operands):
            continue
        entry = OPS[op.name]
        if entry.nondifferentiable or entry.effect:
            continue
        b.loc = op.loc
        xs = [env.get(x) or t.fixed(x) for x in op.operands]
        rule = _RULES.get(op.name)
        if rule is not None:
            series = rule(t, op, xs)
        elif entry.linear:
            series = t.linear(op, xs, entry.linear)
        else:
            raise NotImplementedError(
                f"operation {op.name!r} has no Taylor rule; instead: nest grad or jvp"
            )
        if op.results[0].type.dtype.is_inexact:
            series[0] = op.results[0]
            env[op.results[0]] = series
    b.loc = None
    results = []
    for r in fn.results:
        if not r.type.dtype.is_inexact:
            results.append(r)
            continue
        found = env.get(r) or t.fixed(r)
        wide = (1, *r.type.shape)
        pieces = [b.zeros(r.type) if c is None else c for c in found]
        results.append(b.concat([b.reshape(c, wide) for c in pieces], 0))
    return b.function(f"{fn.name}.taylor", results)


class _Taylor:
    """The builder and the arithmetic of series that rules share."""

    def __init__(self, order: int) -> None:
        self.b = Builder()
        self.order = order
        self._twins: dict[tuple[str, Value], tuple[Series, Series]] = {}

    def fixed(self, x: Value) -> Series:
        """A value that does not move."""
        return [x, *[None] * self.order]

    def empty(self) -> Series:
        return [None] * (self.order + 1)

    # -- coefficients -----------------------------------------------------------------

    def add(self, x: Coefficient, y: Coefficient) -> Coefficient:
        if x is None or y is None:
            return x if y is None else y
        return self.b.add(x, y)

    def sub(self, x: Coefficient, y: Coefficient) -> Coefficient:
        if y is None:
            return x
        return self.b.neg(y) if x is None else self.b.sub(x, y)

    def scaled(self, c: float, x: Coefficient) -> Coefficient:
        if x is None or c == 1:
            return x
        return self.b.mul(x, self.b.like(c, x))

    def over(self, x: Coefficient, y: Value) -> Coefficient:
        return None if x is None else self.b.div(x, y)

    def each(self, f: Callable[[Value], Value], x: Series) -> Series:
        return [None if c is None else f(c) for c in x]

    def rate(self, x: Series) -> Series:
        """``k c[k]``: the derivative, shifted by one place."""
        return [None, *[self.scaled(k, x[k]) for k in range(1, self.order + 1)]]

    def convolved(self, x: Series, y: Series, k: int, low: int = 0, high: int | None = None,
                  name: str = "mul") -> Coefficient:  # fmt: skip
        """The sum of ``x[i] y[k-i]`` for ``low <= i <= high`` (k by default)."""
        total: Coefficient = None
        for i in range(low, (k if high is None else high) + 1):
            a, c = x[i], y[k - i]
            if a is not None and c is not None:
                total = self.add(total, self.b.emit(name, (a, c)))
        return total

    # -- series -----------------------------------------------------------------------

    def sum(self, x: Series, y: Series) -> Series:
        return [self.add(a, c) for a, c in zip(x, y)]

    def product(self, x: Series, y: Series, name: str = "mul") -> Series:
        return [self.convolved(x, y, k, name=name) for k in range(self.order + 1)]

    def shifted(self, x: Series, sign: float, constant: float) -> Series:
        """``constant + sign x``."""
        b = self.b
        first = x[0]
        assert first is not None
        moved = first if sign == 1 else b.neg(first)
        rest = x[1:] if sign == 1 else self.each(b.neg, x[1:])
        return [b.add(moved, b.like(constant, moved)), *rest]

    def quotient(self, x: Series, y: Series, z0: Value | None = None) -> Series:
        y0 = y[0]
        assert y0 is not None
        z: Series = self.empty()
        z[0] = self.over(x[0], y0) if z0 is None else z0
        for k in range(1, self.order + 1):
            z[k] = self.over(self.sub(x[k], self.convolved(y, z, k, 1)), y0)
        return z

    def exp(self, x: Series, z0: Value) -> Series:
        """z' = z x'."""
        rate, z = self.rate(x), self.empty()
        z[0] = z0
        for k in range(1, self.order + 1):
            z[k] = self.scaled(1 / k, self.convolved(rate, z, k, 1))
        return z

    def root(self, s: Series, z0: Value) -> Series:
        """z z = s."""
        b, z = self.b, self.empty()
        z[0] = z0
        twice = b.add(z0, z0)
        for k in range(1, self.order + 1):
            z[k] = self.over(self.sub(s[k], self.convolved(z, z, k, 1, k - 1)), twice)
        return z

    def integral(self, rate: Series, w: Series, z0: Value) -> Series:
        """z' w = the series of ``rate`` (as ``rate`` gives it: shifted by one place)."""
        w0 = w[0]
        assert w0 is not None
        z, own = self.empty(), self.empty()
        z[0] = z0
        for k in range(1, self.order + 1):
            own[k] = self.over(self.sub(rate[k], self.convolved(own, w, k, 1, k - 1)), w0)
            z[k] = self.scaled(1 / k, own[k])
        return z

    def logarithmic(self, x: Series, z0: Value) -> Series:
        return self.integral(self.rate(x), x, z0)

    def power(self, x: Series, p: float, z0: Value) -> Series:
        """x z' = p z x'."""
        x0 = x[0]
        assert x0 is not None
        z = self.empty()
        z[0] = z0
        for k in range(1, self.order + 1):
            total: Coefficient = None
            for i in range(1, k + 1):
                a, c = x[i], z[k - i]
                if a is not None and c is not None:
                    total = self.add(total, self.scaled(p * i - (k - i), self.b.mul(a, c)))
            z[k] = self.scaled(1 / k, self.over(total, x0))
        return z

    def riccati(self, x: Series, z0: Value, square: float, line: float, one: float) -> Series:
        """z' = (one + line z + square z²) x': tan, tanh, logistic."""
        b, rate, z, w = self.b, self.rate(x), self.empty(), self.empty()
        z[0] = z0
        for k in range(self.order + 1):
            if k:
                z[k] = self.scaled(1 / k, self.convolved(rate, w, k, 1))
            if k < self.order:
                w[k] = self.scaled(square, self.convolved(z, z, k))
                if line:
                    w[k] = self.add(w[k], self.scaled(line, z[k]))
                if k == 0 and one:
                    w[0] = self.add(w[0], b.like(one, z0))
        return z

    def pair(self, kind: str, x: Series) -> tuple[Series, Series]:
        """sin and cos (or sinh and cosh) of a series, once."""
        x0 = x[0]
        assert x0 is not None
        found = self._twins.get((kind, x0))
        if found is None:
            b, rate = self.b, self.rate(x)
            sign = -1.0 if kind == "" else 1.0
            s, c = self.empty(), self.empty()
            s[0], c[0] = b.unary("sin" + kind, x0), b.unary("cos" + kind, x0)
            for k in range(1, self.order + 1):
                s[k] = self.scaled(1 / k, self.convolved(rate, c, k, 1))
                c[k] = self.scaled(sign / k, self.convolved(rate, s, k, 1))
            found = self._twins[kind, x0] = s, c
        return found

    def linear(self, op: Op, xs: list[Series], positions: Sequence[int]) -> Series:
        """The operation itself on each coefficient."""
        b, out = self.b, self.empty()
        for k in range(1, self.order + 1):
            given = [x[k] for x in xs]
            if all(given[p] is None for p in positions):
                continue
            operands = list(op.operands)
            for p in positions:
                c = given[p]
                operands[p] = b.zeros(operands[p].type) if c is None else c
            out[k] = b.emit(op.name, tuple(operands), op.attrs)
        return out


# -- rules ------------------------------------------------------------------------------


def _z0(op: Op) -> Value:
    return op.results[0]


def _add(t: _Taylor, op: Op, xs: list[Series]) -> Series:
    return t.sum(*xs)


def _sub(t: _Taylor, op: Op, xs: list[Series]) -> Series:
    return [t.sub(a, c) for a, c in zip(*xs)]


def _mul(t: _Taylor, op: Op, xs: list[Series]) -> Series:
    return t.product(xs[0], xs[1], op.name)


def _pow(t: _Taylor, op: Op, xs: list[Series]) -> Series:
    x, y = xs
    p = splat(op.operands[1])
    if p is not None:
        if p == int(p) and 0 <= p <= 64:
            return _integer(t, x, int(p))
        return t.power(x, p, _z0(op))
    x0 = x[0]
    assert x0 is not None
    return t.exp(t.product(y, t.logarithmic(x, t.b.log(x0))), _z0(op))


def _integer(t: _Taylor, x: Series, n: int) -> Series:
    x0 = x[0]
    assert x0 is not None
    if n < 0:
        return t.quotient(t.fixed(t.b.like(1, x0)), _integer(t, x, -n))
    total: Series | None = None
    while n:
        if n & 1:
            total = x if total is None else t.product(total, x)
        n >>= 1
        if n:
            x = t.product(x, x)
    return t.fixed(t.b.like(1, x0)) if total is None else list(total)


def _circle(t: _Taylor, x: Series, square: float, one: float) -> Series:
    """one + square x²."""
    b = t.b
    s = [t.scaled(square, c) for c in t.product(x, x)]
    assert s[0] is not None
    s[0] = b.add(s[0], b.like(one, s[0]))
    return s


def _inverse(square: float, one: float, sign: float, rooted: bool) -> Rule:
    """z' = sign x' / w with w = one + square x² or its root."""

    def rule(t: _Taylor, op: Op, xs: list[Series]) -> Series:
        w = _circle(t, xs[0], square, one)
        if rooted:
            assert w[0] is not None
            w = t.root(w, t.b.sqrt(w[0]))
        rate = [t.scaled(sign, c) for c in t.rate(xs[0])]
        return t.integral(rate, w, _z0(op))

    return rule


def _log(scale: float, shift: float) -> Rule:
    """z' = x' / (scale (shift + x))."""

    def rule(t: _Taylor, op: Op, xs: list[Series]) -> Series:
        w = t.shifted(xs[0], 1, shift) if shift else xs[0]
        rate = [t.scaled(1 / scale, c) for c in t.rate(xs[0])]
        return t.integral(rate, w, _z0(op))

    return rule


def _expm1(t: _Taylor, op: Op, xs: list[Series]) -> Series:
    return t.exp(xs[0], t.b.add(_z0(op), t.b.like(1, _z0(op))))


def _exp2(t: _Taylor, op: Op, xs: list[Series]) -> Series:
    return t.exp([t.scaled(LN2, c) for c in xs[0]], _z0(op))


def _hypot(t: _Taylor, op: Op, xs: list[Series]) -> Series:
    x, y = xs
    return t.root(t.sum(t.product(x, x), t.product(y, y)), _z0(op))


def _atan2(t: _Taylor, op: Op, xs: list[Series]) -> Series:
    y, x = xs
    dx, dy = t.rate(x), t.rate(y)
    left, right = t.product(x, dy), t.product(y, dx)
    rate = [t.sub(a, c) for a, c in zip(left, right)]
    return t.integral(rate, t.sum(t.product(x, x), t.product(y, y)), _z0(op))


def _factor(t: _Taylor, factor: Value, x: Series) -> Series:
    return t.each(lambda c: t.b.strong_mul(c, factor), x)


def _abs(t: _Taylor, op: Op, xs: list[Series]) -> Series:
    return _factor(t, t.b.sign(op.operands[0]), xs[0])


def _copysign(t: _Taylor, op: Op, xs: list[Series]) -> Series:
    x, y = op.operands
    b = t.b
    return _factor(t, b.mul(b.sign(x), b.emit("copysign", (b.like(1, y), y))), xs[0])


def _mod(t: _Taylor, op: Op, xs: list[Series]) -> Series:
    b = t.b
    x, y = op.operands
    q = b.emit("rint", (b.div(b.sub(x, _z0(op)), y),))
    return [t.sub(a, None if c is None else b.mul(q, c)) for a, c in zip(*xs)]


def _choice(t: _Taylor, c: Value, x: Series, y: Series) -> Series:
    b = t.b
    out = t.empty()
    for k in range(1, t.order + 1):
        p, q = x[k], y[k]
        if p is not None or q is not None:
            some = p if q is None else q
            assert some is not None
            zero = b.like(0, some)
            out[k] = b.select(c, zero if p is None else p, zero if q is None else q)
    return out


def _select(t: _Taylor, op: Op, xs: list[Series]) -> Series:
    return _choice(t, op.operands[0], xs[1], xs[2])


def _extremum(closer: str) -> Rule:
    def rule(t: _Taylor, op: Op, xs: list[Series]) -> Series:
        x, y = op.operands
        b = t.b
        half = [t.scaled(0.5, t.add(p, q)) for p, q in zip(*xs)]
        rest = _choice(t, b.eq(x, y), half, xs[1])
        return _choice(t, b.emit(closer, (x, y)), xs[0], rest)

    return rule


def _reduce_extremum(t: _Taylor, op: Op, xs: list[Series]) -> Series:
    b, axes = t.b, op.attrs["axes"]
    x, z = op.operands[0], _z0(op)
    kept = [k for k in range(x.type.ndim) if k not in axes]
    mask = b.eq(x, b.broadcast(z, x.type.shape, kept))
    ties = b.reduce_sum(b.convert(mask, x.type.dtype), axes)
    return t.each(lambda c: b.div(b.reduce_sum(b.select(mask, c, b.like(0, c)), axes), ties), xs[0])


def _prod(t: _Taylor, op: Op, xs: list[Series]) -> Series:
    from tapec.ir.reduce import _as_rows, _halves, _join

    b = t.b
    if op.operands[0].type.size == 0:
        return t.empty()
    rows = [None if c is None else _as_rows(b, op, c) for c in xs[0]]
    while (n := _length(rows)) > 1:
        parts = [(None, None, None) if c is None else _halves(b, c) for c in rows]
        merged = t.product([p[0] for p in parts], [p[1] for p in parts])
        if n % 2:
            last = [p[2] for p in parts]
            rows = []
            for m, e in zip(merged, last):
                if m is None and e is None:
                    rows.append(None)
                    continue
                like = next(c for c in (merged[0], last[0]) if c is not None)
                assert merged[0] is not None and last[0] is not None and like is not None
                m = b.zeros(merged[0].type) if m is None else m
                e = b.zeros(last[0].type) if e is None else e
                rows.append(_join(b, [m, e]))
        else:
            rows = merged
    return t.each(lambda c: b.reshape(c, op.results[0].type.shape), rows)


def _length(rows: Series) -> int:
    assert rows[0] is not None
    return rows[0].type.shape[-1]


def _dot(t: _Taylor, op: Op, xs: list[Series]) -> Series:
    b, out = t.b, t.empty()
    x, y = xs
    for k in range(1, t.order + 1):
        for i in range(k + 1):
            p, q = x[i], y[k - i]
            if p is not None and q is not None:
                out[k] = t.add(out[k], b.emit("dot", (p, q), op.attrs))
    return out


def _place(t: _Taylor, op: Op, xs: list[Series]) -> Series:
    out = t.empty()
    for k in range(1, t.order + 1):
        kept = [(x[k], at) for x, at in zip(xs, op.attrs["at"])]
        pieces = [(c, at) for c, at in kept if c is not None]
        if pieces:
            out[k] = t.b.place([c for c, _ in pieces], op.attrs["shape"], [at for _, at in pieces])
    return out


def _scatter(t: _Taylor, op: Op, xs: list[Series]) -> Series:
    b, out = t.b, t.empty()
    for k in range(1, t.order + 1):
        base, updates = xs[0][k], xs[1][k]
        if updates is None:
            out[k] = base
            continue
        base = b.zeros(op.results[0].type) if base is None else base
        out[k] = b.scatter_add(base, updates, op.operands[2:], op.attrs["axes"])
    return out


def _convert(t: _Taylor, op: Op, xs: list[Series]) -> Series:
    type_: Type = op.results[0].type
    if not type_.dtype.is_inexact:
        return t.empty()
    return t.each(lambda c: t.b.convert(c, type_.dtype), xs[0])


_RULES: dict[str, Rule] = {
    "add": _add,
    "sub": _sub,
    "neg": lambda t, op, xs: t.each(t.b.neg, xs[0]),
    "mul": _mul,
    "strong_mul": _mul,
    "null_mul": _mul,
    "div": lambda t, op, xs: t.quotient(xs[0], xs[1], _z0(op)),
    "pow": _pow,
    "integer_pow": lambda t, op, xs: _integer(t, xs[0], op.attrs["n"]),
    "sqrt": lambda t, op, xs: t.root(xs[0], _z0(op)),
    "cbrt": lambda t, op, xs: t.power(xs[0], 1 / 3, _z0(op)),
    "exp": lambda t, op, xs: t.exp(xs[0], _z0(op)),
    "exp2": _exp2,
    "expm1": _expm1,
    "log": _log(1, 0),
    "log1p": _log(1, 1),
    "log2": _log(LN2, 0),
    "log10": _log(LN10, 0),
    "sin": lambda t, op, xs: list(t.pair("", xs[0])[0]),
    "cos": lambda t, op, xs: list(t.pair("", xs[0])[1]),
    "sinh": lambda t, op, xs: list(t.pair("h", xs[0])[0]),
    "cosh": lambda t, op, xs: list(t.pair("h", xs[0])[1]),
    "tan": lambda t, op, xs: t.riccati(xs[0], _z0(op), 1, 0, 1),
    "tanh": lambda t, op, xs: t.riccati(xs[0], _z0(op), -1, 0, 1),
    "logistic": lambda t, op, xs: t.riccati(xs[0], _z0(op), -1, 1, 0),
    "arctan": _inverse(1, 1, 1, False),
    "arctanh": _inverse(-1, 1, 1, False),
    "arcsin": _inverse(-1, 1, 1, True),
    "arccos": _inverse(-1, 1, -1, True),
    "arcsinh": _inverse(1, 1, 1, True),
    "arccosh": _inverse(1, -1, 1, True),
    "hypot": _hypot,
    "atan2": _atan2,
    "abs": _abs,
    "copysign": _copysign,
    "mod": _mod,
    "fmod": _mod,
    "select": _select,
    "max": _extremum("gt"),
    "min": _extremum("lt"),
    "reduce_max": _reduce_extremum,
    "reduce_min": _reduce_extremum,
    "reduce_prod": _prod,
    "dot": _dot,
    "place": _place,
    "scatter_add": _scatter,
    "convert": _convert,
}
