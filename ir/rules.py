"""Folding and the algebraic rules, as data: each has a name, a statement and a reason to be true.

How to read a rule: the docstring states the rewriting; ``up_to`` what may differ in the
result (empty: nothing).  What is allowed to differ:

* ``sign of zero``: -0.0 may become 0.0 or the reverse, and what follows from it;
* ``rounding``: another, usually better, rounding of the same real number, also where an
  intermediate result over- or underflows;
* anything else is spelled out.

What is *not* here, on purpose: ``x*0 -> 0``, ``x-x -> 0`` and ``x/x -> 1`` (wrong for inf
and nan; adjoints never need them, an absent cotangent is absent), and reassociation.
Rules about shapes are in ``rules_shape``.  Rules must not go round in circles: each makes
fewer or cheaper operations, or moves ``neg`` towards the result.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapec.ir.core import DTYPES, Dense, Op, Value
from tapec.ir.opdef import OPS
from tapec.ir.rewrite import Rewriter, rule, splat

__all__ = ["FOLD_LIMIT", "MAX_INTEGER_POWER"]

#: Constants of more elements than this are not folded, but for splats, which stay splats.
FOLD_LIMIT = 1024
#: ``pow`` with a constant integer exponent up to this becomes ``integer_pow``.
MAX_INTEGER_POWER = 32


def _is_float(x: Value) -> bool:
    return x.type.dtype.kind == "f"


def _maker(x: Value, name: str) -> Op | None:
    """The operation that defines ``x`` if it is a ``name``."""
    op = x.op
    return op if op is not None and op.name == name else None


# -- folding --------------------------------------------------------------------------


@rule("pure", given="constant", at="first", group="fold")
def fold_constants(b: Rewriter, op: Op) -> Value | None:
    """f(constants) -> constant"""
    out = op.results[0].type
    splats: list[Any] = []
    small = out.size <= FOLD_LIMIT
    for x in op.operands:
        made = x.op
        if made is None or made.name != "constant":
            return None
        content = made.attrs["value"]
        splats.append(content)
        if x.type.size > FOLD_LIMIT:
            small = False
    definition = OPS[op.name]
    is_splat = definition.elementwise and not any(type(c) is Dense for c in splats)
    if not is_splat and not small:
        return None
    arrays = [
        c.array if type(c) is Dense
        else np.full(() if is_splat else x.type.shape, c, x.type.dtype.np)
        for c, x in zip(splats, op.operands)
    ]  # fmt: skip
    with np.errstate(all="ignore"):
        result = np.asarray(definition.numpy(arrays, op.attrs)).astype(out.dtype.np)
    return b.constant(result.item() if is_splat else result, out)


# -- order ----------------------------------------------------------------------------


@rule("add", "mul", "max", "min", "and", "or", "xor", "eq", "ne", given="constant", at="first")
def constant_right(b: Rewriter, op: Op) -> Value | None:
    """c + x -> x + c, also for * max min and or xor == !="""
    x, y = op.operands
    if splat(x) is None or _maker(y, "constant") is not None:
        return None
    return b.emit(op.name, (y, x))


# -- sums and signs -------------------------------------------------------------------


@rule("add", "sub", given="constant", at="rest", up_to="sign of zero")
def add_zero(b: Rewriter, op: Op) -> Value | None:
    """x + 0 -> x, x - 0 -> x"""
    x, y = op.operands
    return x if splat(y) == 0 else None


@rule("sub", given="constant", at="first", up_to="sign of zero")
def zero_minus(b: Rewriter, op: Op) -> Value | None:
    """0 - x -> -x"""
    x, y = op.operands
    return b.neg(y) if splat(x) == 0 else None


@rule("neg", given="neg")
def neg_neg(b: Rewriter, op: Op) -> Value | None:
    """-(-x) -> x"""
    inner = op.operands[0].op
    return inner.operands[0] if inner is not None else None


@rule("add", given="neg")
def add_neg(b: Rewriter, op: Op) -> Value | None:
    """x + -y -> x - y, -x + y -> y - x"""
    x, y = op.operands
    n = _maker(y, "neg")
    if n is not None:
        return b.sub(x, n.operands[0])
    n = _maker(x, "neg")
    return None if n is None else b.sub(y, n.operands[0])


@rule("sub", given="neg", at="rest")
def sub_neg(b: Rewriter, op: Op) -> Value | None:
    """x - -y -> x + y"""
    x, y = op.operands
    n = _maker(y, "neg")
    return None if n is None else b.add(x, n.operands[0])


@rule("add", "sub", given=("mul", "div"))
def add_neg_product(b: Rewriter, op: Op) -> Value | None:
    """x + (-y)*z -> x - y*z, x - (-y)*z -> x + y*z, also for /

    The product with ``-y`` usually has no other use: adjoints of differences look so.  Sums of
    products are everywhere, so the candidates are noted by ``product_of_neg``.
    """
    negated = b.memo.get(_NEGATED)
    if negated is None:
        return None
    x, y = op.operands
    if y in negated:
        product = _positive_product(b, y)
        return b.sub(x, product) if op.name == "add" else b.add(x, product)
    if op.name == "add" and x in negated:
        return b.sub(y, _positive_product(b, x))
    return None


#: key in ``Rewriter.memo``: the set of products and quotients with a negated factor
_NEGATED = "negated products"


def _positive_product(b: Rewriter, x: Value) -> Value:
    """p, for ``x`` = -p that is written as a product or quotient with a negated factor."""
    op = x.op
    assert op is not None
    u, v = op.operands
    n = _maker(u, "neg")
    if n is not None:
        return b.emit(op.name, (n.operands[0], v))
    n = _maker(v, "neg")
    assert n is not None
    return b.emit(op.name, (u, n.operands[0]))


@rule("neg", given="sub", up_to="sign of zero")
def neg_sub(b: Rewriter, op: Op) -> Value | None:
    """-(x - y) -> y - x"""
    inner = op.operands[0].op
    if inner is None:
        return None
    x, y = inner.operands
    return b.sub(y, x)


@rule("neg", given=("mul", "div"))
def neg_product(b: Rewriter, op: Op) -> Value | None:
    """-(x*c) -> x*(-c), -(x/c) -> x/(-c), -(c/x) -> (-c)/x, -((-x)*y) -> x*y"""
    inner = op.operands[0].op
    if inner is None or not _is_float(op.operands[0]):
        return None
    x, y = inner.operands
    c = splat(y)
    if c is not None:
        return b.emit(inner.name, (x, b.like(-c, y)))
    c = splat(x)
    if c is not None:
        return b.emit(inner.name, (b.like(-c, x), y))
    negated = b.memo.get(_NEGATED, ())
    return _positive_product(b, op.operands[0]) if op.operands[0] in negated else None


@rule("mul", "div", given="neg")
def product_of_neg(b: Rewriter, op: Op) -> Value | None:
    """(-x)*(-y) -> x*y, (-x)*c -> x*(-c), (-x)*y -> -p if p = x*y is there already; also for /"""
    x, y = op.operands
    nx, ny = _maker(x, "neg"), _maker(y, "neg")
    u = x if nx is None else nx.operands[0]
    v = y if ny is None else ny.operands[0]
    if nx is not None and ny is not None:
        return b.emit(op.name, (u, v))
    other = y if ny is None else x
    c = splat(other)
    if c is not None and _is_float(other):
        minus = b.like(-c, other)
        return b.emit(op.name, (u, minus) if ny is None else (minus, v))
    known = b.known(op.name, (u, v))
    if known is not None:
        return b.neg(known)
    b.memo.setdefault(_NEGATED, set()).add(op.results[0])
    return None


@rule("abs", given=("neg", "abs", "exp"))
def abs_of(b: Rewriter, op: Op) -> Value | None:
    """|-x| -> |x|, ||x|| -> |x|, |exp x| -> exp x"""
    x = op.operands[0]
    if x.op is None:
        return None
    return b.abs(x.op.operands[0]) if x.op.name == "neg" else x


@rule("floor", "ceil", "rint", "trunc", given=("floor", "ceil", "rint", "trunc"))
def round_rounded(b: Rewriter, op: Op) -> Value | None:
    """floor(ceil x) -> ceil x, and every other pair of roundings"""
    return op.operands[0]


# -- products and powers --------------------------------------------------------------


@rule("mul", "div", given="constant", at="rest")
def times_one(b: Rewriter, op: Op) -> Value | None:
    """x*1 -> x, x/1 -> x, x*-1 -> -x, x/-1 -> -x"""
    x, y = op.operands
    c = splat(y)
    if c == 1:
        return x
    return b.neg(x) if c == -1 else None


@rule("mul", "and", given="constant", at="rest")
def integer_times_zero(b: Rewriter, op: Op) -> Value | None:
    """n*0 -> 0 and n&0 -> 0 for integers, c and false -> false"""
    x, y = op.operands
    return y if x.type.dtype.kind in "bi" and splat(y) == 0 else None


@rule("sub", "xor", given="itself")
def integer_minus_itself(b: Rewriter, op: Op) -> Value | None:
    """n - n -> 0, n xor n -> 0 for integers and bools"""
    x, y = op.operands
    return b.like(0, x) if x is y and x.type.dtype.kind in "bi" else None


@rule("div", given="constant", at="first")
def recognise_logistic(b: Rewriter, op: Op) -> Value | None:
    """1/(1 + exp(-x)) -> logistic(x): the same arithmetic, whose derivative does not overflow"""
    x, y = op.operands
    total = _maker(y, "add")
    if splat(x) != 1 or total is None or splat(total.operands[1]) != 1:
        return None
    e = _maker(total.operands[0], "exp")
    return None if e is None else b.unary("logistic", b.neg(e.operands[0]))


@rule("div", given="constant", at="rest")
def divide_by_power_of_two(b: Rewriter, op: Op) -> Value | None:
    """x/c -> x*(1/c) if c is a power of two: 1/c is exact then, and both round the same number"""
    x, y = op.operands
    c = splat(y)
    if type(c) is not float or abs(math.frexp(c)[0]) != 0.5:
        return None
    with np.errstate(all="ignore"):
        inverse = 1 / y.type.dtype.np.type(c)
    # a subnormal inverse would lose bits where subnormals are flushed
    if not np.isfinite(inverse) or abs(inverse) < np.finfo(y.type.dtype.np).tiny:
        return None
    return b.mul(x, b.like(float(inverse), y))


@rule("integer_pow")
def small_integer_power(b: Rewriter, op: Op) -> Value | None:
    """x**0 -> 1, x**1 -> x, x**2 -> x*x, x**-1 -> 1/x"""
    x, n = op.operands[0], op.attrs["n"]
    if n == 0:
        return b.like(1, x)
    if n == 1:
        return x
    if n == 2:
        return b.mul(x, x)
    return b.div(b.like(1.0, x), x) if n == -1 and _is_float(x) else None


@rule(
    "pow",
    given="constant",
    at="rest",
    up_to="rounding; pow(-0, 0.5) = -0 and pow(-inf, 0.5) = nan as sqrt",
)
def constant_power(b: Rewriter, op: Op) -> Value | None:
    """pow(x, n) -> x**n for small integers n, pow(x, 0.5) -> sqrt x

    ``x**0.5`` of NumPy arrays is ``sqrt`` too.
    """
    x, y = op.operands
    c = splat(y)
    if type(c) is not float:
        return None
    if c.is_integer() and abs(c) <= MAX_INTEGER_POWER:
        return b.integer_pow(x, int(c))
    return b.sqrt(x) if c == 0.5 else None


@rule("sqrt", given="mul", up_to="rounding")
def sqrt_of_square(b: Rewriter, op: Op) -> Value | None:
    """sqrt(x*x) -> |x|

    To be applied before differentiation: the derivative at 0 is then 0, not nan.
    """
    inner = op.operands[0].op
    if inner is None:
        return None
    x, y = inner.operands
    return b.abs(x) if x is y else None


@rule("strong_mul", given="constant", up_to="sign of zero")
def strong_mul_constant(b: Rewriter, op: Op) -> Value | None:
    """strong_mul(0, p) -> 0, strong_mul(c, p) -> c*p, strong_mul(x, c) -> x*c if c is finite"""
    ct, p = op.operands
    c = splat(ct)
    if c is not None:
        return b.like(0, ct) if c == 0 else b.mul(ct, p)
    c = splat(p)
    if c is None:
        made = _maker(p, "constant")
        if made is None or not np.isfinite(made.attrs["value"].array).all():
            return None
    elif not math.isfinite(c):
        return None
    return b.mul(ct, p)


# -- selection and logic --------------------------------------------------------------


@rule("select")
def select_same(b: Rewriter, op: Op) -> Value | None:
    """select(c, x, x) -> x"""
    _, x, y = op.operands
    return x if x is y else None


@rule("select", given="constant")
def select_constant(b: Rewriter, op: Op) -> Value | None:
    """select(true, x, y) -> x, select(false, x, y) -> y; select(c, true, false) -> c"""
    c, x, y = op.operands
    which = splat(c)
    if which is not None:
        return x if which else y
    if x.type.dtype.kind != "b":
        return None
    u, v = splat(x), splat(y)
    if u is None or v is None or u == v:
        return None
    return c if u else b.logical_not(c)


@rule("select", given="not", at="first")
def select_not(b: Rewriter, op: Op) -> Value | None:
    """select(not c, x, y) -> select(c, y, x)"""
    c, x, y = op.operands
    inner = _maker(c, "not")
    return None if inner is None else b.select(inner.operands[0], y, x)


@rule("select", given="select")
def select_select(b: Rewriter, op: Op) -> Value | None:
    """select(c, select(c, x, y), z) -> select(c, x, z), and the same in the other arm"""
    c, x, y = op.operands
    inner = _maker(x, "select")
    if inner is not None and inner.operands[0] is c:
        return b.select(c, inner.operands[1], y)
    inner = _maker(y, "select")
    if inner is not None and inner.operands[0] is c:
        return b.select(c, x, inner.operands[2])
    return None


@rule("add", given="select", up_to="sign of zero")
def add_selected(b: Rewriter, op: Op) -> Value | None:
    """select(c, x, 0) + select(c, 0, y) -> select(c, x, y): what ``where`` leaves in an adjoint"""
    p, q = _maker(op.operands[0], "select"), _maker(op.operands[1], "select")
    if p is None or q is None or p.operands[0] is not q.operands[0]:
        return None
    c, x, y = p.operands
    _, u, v = q.operands
    if splat(y) == 0 and splat(u) == 0:
        return b.select(c, x, v)
    return b.select(c, u, y) if splat(x) == 0 and splat(v) == 0 else None


@rule("max", "min", "and", "or", given="itself")
def idempotent(b: Rewriter, op: Op) -> Value | None:
    """max(x, x) -> x, also for min, and, or"""
    x, y = op.operands
    return x if x is y else None


@rule("and", "or", "xor", given="constant", at="rest")
def logic_identity(b: Rewriter, op: Op) -> Value | None:
    """x or 0 -> x, x xor 0 -> x, x and all ones -> x, c or true -> true, c xor true -> not c"""
    x, y = op.operands
    c = splat(y)
    if c is None:
        return None
    if op.name == "and":
        return x if (c is True or (c == -1 and c is not False)) else None
    if c == 0:
        return x
    if c is True:
        return y if op.name == "or" else b.logical_not(x)
    return None


@rule("not", given="not")
def not_not(b: Rewriter, op: Op) -> Value | None:
    """not not x -> x"""
    inner = op.operands[0].op
    return None if inner is None else inner.operands[0]


_OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}


@rule("not", given=tuple(_OPPOSITE))
def not_compare(b: Rewriter, op: Op) -> Value | None:
    """not x == y -> x != y; not x < y -> x >= y where there is no nan (integers)"""
    inner = op.operands[0].op
    if inner is None:
        return None
    if inner.name not in ("eq", "ne") and inner.operands[0].type.dtype.kind not in "bi":
        return None
    return b.emit(_OPPOSITE[inner.name], inner.operands)


@rule("eq", "ne", "lt", "le", "gt", "ge", given="itself")
def compare_with_itself(b: Rewriter, op: Op) -> Value | None:
    """n == n -> true, n < n -> false, … for integers and bools"""
    x, y = op.operands
    if x is not y or x.type.dtype.kind not in "bi":
        return None
    return b.constant(op.name in ("eq", "le", "ge"), op.results[0].type)


@rule("shift_left", "shift_right", given="constant", at="rest")
def shift_by_zero(b: Rewriter, op: Op) -> Value | None:
    """n << 0 -> n, n >> 0 -> n"""
    x, y = op.operands
    return x if splat(y) == 0 else None


# -- conversion -----------------------------------------------------------------------

#: (from, to) that lose nothing: any further conversion gives what the direct one gives
_LOSSLESS = {
    ("bool", "i32"), ("bool", "i64"), ("bool", "f32"), ("bool", "f64"),
    ("i32", "i64"), ("i32", "f64"), ("f32", "f64"),
}  # fmt: skip


@rule("convert")
def convert_to_itself(b: Rewriter, op: Op) -> Value | None:
    """convert(x: T, T) -> x"""
    x = op.operands[0]
    return x if x.type.dtype is op.results[0].type.dtype else None


@rule("convert", given="convert")
def convert_convert(b: Rewriter, op: Op) -> Value | None:
    """convert(convert(x, T), U) -> convert(x, U) if every value of x is one of T"""
    inner = op.operands[0].op
    if inner is None:
        return None
    x = inner.operands[0]
    if (x.type.dtype.name, op.operands[0].type.dtype.name) not in _LOSSLESS:
        return None
    return b.convert(x, DTYPES[op.attrs["dtype"]])
