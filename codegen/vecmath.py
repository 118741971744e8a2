"""Vector math: exp, log, sin, ... of whole vectors of doubles, as LLVM text.

Each function here writes the body of one function of ``<W x double>`` for any width W, without a
branch and without a table: range reduction, a polynomial, reassembly.  The text is meant for
instruction selection as it stands; no LLVM optimisation but inlining is expected.

Invariants
- Errors are below 2 ulp (see ``tests/test_vecmath.py`` for each bound), and results are exact on
  ±0, ±inf, nan, and right for subnormal arguments and results.
- A lane's result depends only on that lane's argument, never on its neighbours or the width.
- Rounding to an integer adds and subtracts 1.5*2**52: that is defined for every argument, whereas
  the result of LLVM's ``fptosi`` on nan is poison.
- On targets without fused multiply-add the same text has multiplications and additions instead;
  constants of argument reductions therefore have trailing zeros, to keep products exact.

The coefficients are Chebyshev fits; ``python benchmarks/vecmath.py --derive`` prints them.

>>> print(function("exp", 8, True).split(" alwaysinline")[0])
define internal <8 x double> @tapec.exp.v8f64(<8 x double> %x)
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache

__all__ = ["COLD", "OWN", "Body", "exp", "function", "text_of"]

MAGIC = 6755399441055744.0  # 1.5 * 2**52
SIGN = -(1 << 63)
INF = float("inf")

INV_LN2 = 1.4426950408889634
LN2_HI = float.fromhex("0x1.62e42ff000000p-1")  # 32 bits: k * LN2_HI is exact
LN2_LO = float.fromhex("-0x1.718432a1b0e26p-35")
SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
ONE_BITS = 0x3FF0000000000000
FOUR_BITS = 0x4010000000000000

# (exp(r) - 1 - r) / r**2 on |r| <= ln(2)/2
EXP = (
    0.5, 0.1666666666666667, 0.04166666666666667, 0.008333333333326141, 0.0013888888888883752,
    0.00019841269874801046, 2.480158732553376e-05, 2.7557255425043745e-06,
    2.755727366084684e-07, 2.510520666647184e-08, 2.091467958547083e-09,
)  # fmt: skip

# (log((1+s)/(1-s)) / s - 2) / s**2 in z = s**2, on the s of arguments in [sqrt(1/2), sqrt(2)]
LOG = (
    0.666666666666667, 0.39999999999899505, 0.28571428625975487, 0.2222221113479508,
    0.18182889125261723, 0.15331721600556042, 0.14616449685043406,
)  # fmt: skip

# (sin(r) / r - 1) / r**2 and (cos(r) - 1 + r**2/2) / r**4 in z = r**2, on |r| <= pi/4
SIN = (
    -0.16666666666666666, 0.008333333333330948, -0.0001984126983675853,
    2.7557316102529747e-06, -2.5051131840273875e-08, 1.5918128954107197e-10,
)  # fmt: skip
COS = (
    0.041666666666666664, -0.0013888888888887398, 2.4801587298765662e-05,
    -2.7557317271715595e-07, 2.087614626544433e-09, -1.1382632212345609e-11,
)  # fmt: skip

TWO_OVER_PI = 0.6366197723675814
# pi/2 in parts: with fused multiply-add k times a part need not be exact, without it must.
HALF_PI_FMA = tuple(
    float.fromhex(h)
    for h in ("0x1.921fb54442d18p+0", "0x1.1a62633145c07p-54", "-0x1.f1976b7ed8fbcp-110")
)
HALF_PI = tuple(
    float.fromhex(h)
    for h in (
        "0x1.921fb54400000p+0", "0x1.0b4611a600000p-34", "0x1.3198a2e000000p-69",
        "0x1.b839a252049c1p-104",
    )
)  # fmt: skip
# The largest |x| that sin and cos reduce themselves.  Above it lanes go to libm.
TRIG_LIMIT_FMA = 2.0**30
TRIG_LIMIT = 2.0**20


class Body:
    """Lines of one function over ``<width x double>`` in the making.

    Operands are strings: names of SSA values, or constants from ``f`` and ``i``.
    """

    __slots__ = ("b", "d", "fused", "l", "lines", "n", "w")

    def __init__(self, width: int, fused: bool) -> None:
        self.w = width
        self.fused = fused
        self.d = f"<{width} x double>"
        self.l = f"<{width} x i64>"
        self.b = f"<{width} x i1>"
        self.lines: list[str] = []
        self.n = 0

    def let(self, rhs: str) -> str:
        self.n += 1
        name = f"%t{self.n}"
        self.lines.append(f"  {name} = {rhs}")
        return name

    # Constants
    def f(self, value: float) -> str:
        return f"splat (double 0x{struct.pack('>d', value).hex().upper()})"

    def i(self, value: int) -> str:
        return f"splat (i64 {value})"

    # Doubles
    def add(self, x: str, y: str) -> str:
        return self.let(f"fadd {self.d} {x}, {y}")

    def sub(self, x: str, y: str) -> str:
        return self.let(f"fsub {self.d} {x}, {y}")

    def mul(self, x: str, y: str) -> str:
        return self.let(f"fmul {self.d} {x}, {y}")

    def div(self, x: str, y: str) -> str:
        return self.let(f"fdiv {self.d} {x}, {y}")

    def neg(self, x: str) -> str:
        return self.let(f"fneg {self.d} {x}")

    def abs(self, x: str) -> str:
        return self.let(f"call {self.d} @llvm.fabs.v{self.w}f64({self.d} {x})")

    def fma(self, x: str, y: str, z: str) -> str:
        """x*y + z, rounded once where the target can."""
        if not self.fused:
            return self.add(self.mul(x, y), z)
        d = self.d
        return self.let(f"call {d} @llvm.fma.v{self.w}f64({d} {x}, {d} {y}, {d} {z})")

    def cmp(self, predicate: str, x: str, y: str) -> str:
        return self.let(f"fcmp {predicate} {self.d} {x}, {y}")

    def select(self, condition: str, x: str, y: str) -> str:
        return self.let(f"select {self.b} {condition}, {self.d} {x}, {self.d} {y}")

    # Bit patterns
    def bits(self, x: str) -> str:
        return self.let(f"bitcast {self.d} {x} to {self.l}")

    def double(self, x: str) -> str:
        return self.let(f"bitcast {self.l} {x} to {self.d}")

    def int(self, opcode: str, x: str, y: str) -> str:
        return self.let(f"{opcode} {self.l} {x}, {y}")

    def with_sign(self, x: str, sign: str) -> str:
        """x, made negative where ``sign`` is; x itself must not be negative unless sign is."""
        s = self.int("and", self.bits(sign), self.i(SIGN))
        return self.double(self.int("or", self.bits(x), s))

    def poly(self, x: str, x2: str, coefficients: Sequence[float]) -> str:
        """Σ cᵢ xⁱ as even part + x * odd part: two independent chains."""
        even = self._horner(x2, coefficients[0::2])
        odd = self._horner(x2, coefficients[1::2])
        return self.fma(odd, x, even)

    def _horner(self, x: str, coefficients: Sequence[float]) -> str:
        acc = self.f(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            acc = self.fma(acc, x, self.f(c))
        return acc


def _exp_reduced(e: Body, x: str) -> tuple[str, str, str, str]:
    """(bits whose low 12 hold k, r, tail, q) with x = k ln2 + r + tail, exp(r) = 1 + r + q."""
    t = e.fma(x, e.f(INV_LN2), e.f(MAGIC))
    k = e.sub(t, e.f(MAGIC))
    high = e.fma(k, e.f(-LN2_HI), x)
    low = e.mul(k, e.f(LN2_LO))
    r = e.sub(high, low)
    tail = e.sub(e.sub(high, r), low)
    r2 = e.mul(r, r)
    return e.bits(t), r, tail, e.mul(r2, e.poly(r, r2, EXP))


def _power_of_two(e: Body, k: str) -> str:
    """2.0**k, k in the low bits of an integer whose high bits are anything."""
    return e.double(e.int("add", e.int("shl", k, e.i(52)), e.i(ONE_BITS)))


def exp(e: Body, x: str) -> str:
    # Clamped, since 2**k must not wrap; selects with ordered comparisons keep nan.
    x = e.select(e.cmp("olt", x, e.f(-746.0)), e.f(-746.0), x)
    x = e.select(e.cmp("ogt", x, e.f(710.0)), e.f(710.0), x)
    k, r, tail, q = _exp_reduced(e, x)
    y = e.add(e.add(r, e.add(q, tail)), e.f(1.0))
    # 2**k in two steps: k may be 1024, and only the last step may round (to a subnormal).
    half = e.int("lshr", k, e.i(1))
    rest = e.int("sub", k, half)
    return e.mul(e.mul(y, _power_of_two(e, half)), _power_of_two(e, rest))


def _expm1(e: Body, x: str) -> str:
    y = e.select(e.cmp("olt", x, e.f(-50.0)), e.f(-50.0), x)
    y = e.select(e.cmp("ogt", y, e.f(710.0)), e.f(710.0), y)
    k, r, tail, q = _exp_reduced(e, y)
    # 2**k (1 + r + q) - 1, with half of 2**k, as k may be 1024.
    s = _power_of_two(e, e.int("sub", k, e.i(1)))
    main = e.fma(s, r, e.sub(s, e.f(0.5)))
    y = e.fma(s, e.add(q, tail), main)
    y = e.add(y, y)
    return e.select(e.cmp("olt", e.abs(x), e.f(2.0**-54)), x, y)


def _tanh(e: Body, x: str) -> str:
    a = e.abs(x)
    a = e.select(e.cmp("ogt", a, e.f(20.0)), e.f(20.0), a)
    # -expm1(-2|x|) / (2 + expm1(-2|x|)): nothing overflows.
    k, r, tail, q = _exp_reduced(e, e.mul(a, e.f(-2.0)))
    s = _power_of_two(e, k)
    a = e.sub(s, e.f(1.0))
    main = e.fma(s, r, a)
    lost = e.fma(s, r, e.sub(a, main))
    low = e.fma(s, e.add(q, tail), lost)
    y = e.add(main, low)
    if e.fused:
        d = e.add(y, e.f(2.0))
        inverse = e.div(e.f(-1.0), d)
        z = e.mul(y, inverse)
        # One step of Newton's with what y and d were rounded by; z is about -y/d.
        y_low = e.add(e.sub(main, y), low)
        d_low = e.add(e.sub(y, e.sub(d, e.f(2.0))), y_low)
        rest = e.add(e.fma(z, d, y), e.fma(z, d_low, y_low))
        z = e.fma(rest, inverse, z)
    else:
        z = e.div(y, e.sub(e.f(-2.0), y))
    return e.let(f"call {e.d} @llvm.copysign.v{e.w}f64({e.d} {z}, {e.d} {x})")


def _log_split(e: Body, x: str) -> tuple[str, str]:
    """(k, m): a positive normal x is 2**k * m with m in [sqrt(1/2), sqrt(2)); k is a double."""
    i = e.bits(x)
    # Biased by 1023 so that it is never negative: AVX2 lacks an arithmetic 64-bit shift.
    shifted = e.int("add", i, e.i((1023 << 52) - SQRT_HALF_BITS))
    biased = e.int("lshr", shifted, e.i(52))
    # An integer below 2**52, put into the mantissa of 2**52, is that double plus the integer.
    k = e.double(e.int("or", biased, e.i(0x4330000000000000)))
    k = e.sub(k, e.f(2.0**52 + 1023.0))
    fraction = e.int("and", shifted, e.i((1 << 52) - 1))
    return k, e.double(e.int("add", fraction, e.i(SQRT_HALF_BITS)))


def _log_of(e: Body, k: str, f: str, extra: str | None) -> str:
    """k ln2 + log(1 + f) + extra."""
    s = e.div(f, e.add(f, e.f(2.0)))
    z = e.mul(s, s)
    half = e.mul(e.mul(f, f), e.f(0.5))
    rest = e.mul(z, e.poly(z, e.mul(z, z), LOG))
    low = e.mul(k, e.f(LN2_LO))
    if extra is not None:
        low = e.add(low, extra)
    y = e.sub(half, e.fma(s, e.add(half, rest), low))
    return e.fma(k, e.f(LN2_HI), e.sub(f, y))


def _log(e: Body, x: str) -> str:
    tiny = e.cmp("olt", x, e.f(2.0**-1022))
    k, m = _log_split(e, e.select(tiny, e.mul(x, e.f(2.0**54)), x))
    k = e.select(tiny, e.sub(k, e.f(54.0)), k)
    y = _log_of(e, k, e.sub(m, e.f(1.0)), None)
    return _log_edges(e, x, y, 0.0)


def _log_edges(e: Body, x: str, y: str, pole: float) -> str:
    """y, but inf and nan as they are, nan left of the pole, -inf at it."""
    y = e.select(e.cmp("olt", x, e.f(INF)), y, x)
    y = e.select(e.cmp("olt", x, e.f(pole)), e.f(float("nan")), y)
    return e.select(e.cmp("oeq", x, e.f(pole)), e.f(-INF), y)


def _log1p(e: Body, x: str) -> str:
    one = e.f(1.0)
    u = e.add(x, one)
    # The rounding error of u, exactly (two-sum).
    b = e.sub(u, one)
    error = e.add(e.sub(one, e.sub(u, b)), e.sub(x, b))
    k, m = _log_split(e, u)
    near = e.cmp("oeq", k, e.f(0.0))
    f = e.select(near, x, e.sub(m, one))
    # log(u + error) = log(u) + error/u, and 1/u = 2**-k / m, where 1 - f + f*f is near enough to
    # 1/m.  Here 4 * 2**-k, which is a normal number, times a quarter of that.
    scale = e.double(e.int("add", e.int("sub", e.bits(m), e.bits(u)), e.i(FOUR_BITS)))
    inverse = e.fma(f, e.fma(f, e.f(0.25), e.f(-0.25)), e.f(0.25))
    extra = e.mul(e.mul(error, scale), inverse)
    extra = e.select(near, e.f(0.0), extra)
    y = _log_edges(e, x, _log_of(e, k, f, extra), -1.0)
    return e.with_sign(y, x)


def _trig_reduced(e: Body, x: str) -> tuple[str, str]:
    """(bits whose low two are the quadrant k, r = x - k pi/2)."""
    t = e.fma(x, e.f(TWO_OVER_PI), e.f(MAGIC))
    k = e.sub(t, e.f(MAGIC))
    r = x
    for part in HALF_PI_FMA if e.fused else HALF_PI:
        r = e.fma(k, e.f(-part), r)
    return e.bits(t), r


def _sin_cos_of(e: Body, r: str) -> tuple[str, str]:
    z = e.mul(r, r)
    z2 = e.mul(z, z)
    sine = e.fma(e.mul(r, z), e.poly(z, z2, SIN), r)
    cosine = e.fma(z, e.fma(z, e.poly(z, z2, COS), e.f(-0.5)), e.f(1.0))
    return sine, cosine


def _odd(e: Body, k: str) -> str:
    # The lowest bit moved to the sign: what a blend instruction looks at.
    return e.let(f"icmp slt {e.l} {e.int('shl', k, e.i(63))}, zeroinitializer")


def _flip(e: Body, y: str, signs: str) -> str:
    """y with its sign flipped where the sign bit of ``signs`` is set."""
    s = e.int("and", signs, e.i(SIGN))
    return e.double(e.int("xor", e.bits(y), s))


def _sin_signs(e: Body, x: str, a: str, k: str) -> str:
    return e.int("xor", e.int("shl", k, e.i(62)), e.int("xor", e.bits(x), e.bits(a)))


def _cos_signs(e: Body, k: str) -> str:
    return e.int("shl", e.int("add", k, e.i(1)), e.i(62))


def _sin(e: Body, x: str) -> str:
    a = e.abs(x)  # sin(|x|) with the sign of x, which keeps -0
    k, r = _trig_reduced(e, a)
    sine, cosine = _sin_cos_of(e, r)
    return _flip(e, e.select(_odd(e, k), cosine, sine), _sin_signs(e, x, a, k))


def _cos(e: Body, x: str) -> str:
    k, r = _trig_reduced(e, x)
    sine, cosine = _sin_cos_of(e, r)
    return _flip(e, e.select(_odd(e, k), sine, cosine), _cos_signs(e, k))


def _sincos(e: Body, x: str) -> str:
    a = e.abs(x)
    k, r = _trig_reduced(e, a)
    sine, cosine = _sin_cos_of(e, r)
    odd = _odd(e, k)
    s = _flip(e, e.select(odd, cosine, sine), _sin_signs(e, x, a, k))
    c = _flip(e, e.select(odd, sine, cosine), _cos_signs(e, k))
    pair = f"{{ {e.d}, {e.d} }}"
    first = e.let(f"insertvalue {pair} poison, {e.d} {s}, 0")
    return e.let(f"insertvalue {pair} {first}, {e.d} {c}, 1")


OWN: dict[str, Callable[[Body, str], str]] = {
    "exp": exp, "expm1": _expm1, "tanh": _tanh, "log": _log, "log1p": _log1p,
    "sin": _sin, "cos": _cos, "sincos": _sincos,
}  # fmt: skip
# Functions whose own version has a limit, with the libm functions for lanes beyond it.
COLD: dict[str, tuple[str, ...]] = {"sin": ("sin",), "cos": ("cos",), "sincos": ("sin", "cos")}


def text_of(e: Body, name: str, result: str) -> str:
    """The definition of a function of ``%x`` with this body."""
    head = f"define internal {e.d} @tapec.{name}.v{e.w}f64({e.d} %x) alwaysinline nounwind {{"
    return "\n".join([head, *e.lines, f"  ret {e.d} {result}", "}", ""])


@cache
def function(name: str, width: int, fused: bool) -> str:
    """The definition of ``@tapec.NAME.vWIDTHf64``; uses libm's functions ``COLD[name]``."""
    e = Body(width, fused)
    d = e.d
    result = OWN[name](e, "%x")
    symbol = f"tapec.{name}.v{width}f64"
    if name not in COLD:
        return text_of(e, name, result)
    libm = COLD[name]
    out = d if len(libm) == 1 else f"{{ {d}, {d} }}"
    limit = e.f(TRIG_LIMIT_FMA if fused else TRIG_LIMIT)
    # An ordered comparison: nan lanes are right already and must not take the slow path.
    far = [
        f"  %a = call {d} @llvm.fabs.v{width}f64({d} %x)",
        f"  %far = fcmp ogt {d} %a, {limit}",
    ]
    text = [
        f"define internal {out} @{symbol}.near({d} %x) alwaysinline nounwind {{",
        *e.lines,
        f"  ret {out} {result}",
        "}",
        f"define internal {out} @{symbol}.far({d} %x) noinline cold nounwind {{",
        f"  %y0 = call {out} @{symbol}.near({d} %x)",
        *far,
        f"  %x1 = select {e.b} %far, {d} %x, {d} zeroinitializer",
        f"  %in = alloca [{width} x double], align 64",
        f"  store {d} %x1, ptr %in, align 64",
        *(f"  %out{j} = alloca [{width} x double], align 64" for j in range(len(libm))),
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %0 ], [ %next, %loop ]",
        "  %p = getelementptr double, ptr %in, i64 %i",
        "  %v = load double, ptr %p",
    ]
    for j, callee in enumerate(libm):
        text += [
            f"  %r{j} = call double @{callee}(double %v)",
            f"  %q{j} = getelementptr double, ptr %out{j}, i64 %i",
            f"  store double %r{j}, ptr %q{j}",
        ]
    text += [
        "  %next = add i64 %i, 1",
        f"  %more = icmp ult i64 %next, {width}",
        "  br i1 %more, label %loop, label %done",
        "done:",
    ]
    whole = "poison"
    for j in range(len(libm)):
        near = "%y0"
        text.append(f"  %l{j} = load {d}, ptr %out{j}, align 64")
        if len(libm) > 1:
            near = f"%n{j}"
            text.append(f"  {near} = extractvalue {out} %y0, {j}")
        text.append(f"  %s{j} = select {e.b} %far, {d} %l{j}, {d} {near}")
        if len(libm) > 1:
            text.append(f"  %w{j} = insertvalue {out} {whole}, {d} %s{j}, {j}")
            whole = f"%w{j}"
    text += [
        f"  ret {out} {whole if len(libm) > 1 else '%s0'}",
        "}",
        f"define internal {out} @{symbol}({d} %x) alwaysinline nounwind {{",
        *far,
        f"  %any = call i1 @llvm.vector.reduce.or.v{width}i1({e.b} %far)",
        "  br i1 %any, label %slow, label %fast",
        "slow:",
        f"  %f = call {out} @{symbol}.far({d} %x)",
        "  br label %end",
        "fast:",
        f"  %n = call {out} @{symbol}.near({d} %x)",
        "  br label %end",
        "end:",
        f"  %y = phi {out} [ %f, %slow ], [ %n, %fast ]",
        f"  ret {out} %y",
        "}",
        "",
    ]
    return "\n".join(text)
