"""Special functions as LLVM text: wrappers of SciPy's C functions, and a few of our own.

``OpDef.llvm`` of such an operation is ``special:NAME.SIGNATURE``, where the signature is that of
``scipy.special.cython_special`` (see ``libraries``), with ``:k`` after it for the k-th of several
results.  A name without signature is a function of this file.  All are functions of doubles; the
math library applies them to the lanes of a vector one by one.

>>> sorted(wrapper("@f", "psi.dd")[1])
['tapec.special.psi.dd']
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from tapec.codegen.scalars import constant
from tapec.ir.core import F64

__all__ = ["arity", "wrapper"]

_TYPES = {"d": "double", "l": "i64", "n": "i64", "i": "i32"}


def arity(spec: str) -> int:
    """How many doubles the function of ``spec`` takes."""
    name, _, rest = spec.partition(".")
    if not rest:
        return _OWN[name][0]
    return sum(letter in _TYPES for letter in rest.partition(":")[0][1:])


def wrapper(symbol: str, spec: str) -> tuple[str, dict[str, str]]:
    """The definition of ``symbol``, a function of doubles, and the external functions that it
    needs with their declarations."""
    name, _, rest = spec.partition(".")
    if not rest:
        return _OWN[name][1](symbol), _OWN[name][2]
    signature, _, which = rest.partition(":")
    callee = f"@tapec.special.{name}.{signature}"
    n = arity(spec)
    lines = [
        f"define internal double {symbol}({', '.join(f'double %x{k}' for k in range(n))}) "
        "nounwind {"
    ]
    types: list[str] = []
    args: list[str] = []
    pointers: list[str] = []
    position = 0
    for letter in signature[1:]:
        if letter == "D":
            pointer = f"%r{len(pointers)}"
            lines.append(f"  {pointer} = alloca double")
            pointers.append(pointer)
            types.append("ptr")
            args.append(f"ptr {pointer}")
            continue
        ty = _TYPES[letter]
        value = f"%x{position}"
        if ty != "double":  # orders: whole numbers
            lines += [
                f"  %in{position} = fcmp ogt double {value}, {_d(-1)}",
                f"  %few{position} = fcmp olt double {value}, {_d(1e5)}",
                f"  %c{position} = select i1 %few{position}, double {value}, double {_d(1e5)}",
                f"  %n{position} = fptosi double %c{position} to {ty}",
                f"  %i{position} = select i1 %in{position}, {ty} %n{position}, {ty} -1",
            ]
            value = f"%i{position}"
        position += 1
        types.append(ty)
        args.append(f"{ty} {value}")
    if signature[0] == "v":
        lines.append(f"  call void {callee}({', '.join(args)})")
        lines.append(f"  %z = load double, ptr {pointers[int(which)]}")
        declaration = f"declare void {callee}({', '.join(types)}) nounwind"
    else:
        lines.append(f"  %z = call double {callee}({', '.join([*args, 'i32 0'])})")
        declaration = f"declare double {callee}({', '.join([*types, 'i32'])}) nounwind"
    lines += ["  ret double %z", "}", ""]
    return "\n".join(lines), {callee[1:]: declaration}


# -- our own -----------------------------------------------------------------------------


def _d(x: float) -> str:
    return constant(x, F64)


def _bernoulli(n: int) -> Fraction:
    """The n-th Bernoulli number."""
    b = [Fraction(0)] * (n + 1)
    for m in range(n + 1):
        b[m] = Fraction(1, m + 1)
        for j in range(m, 0, -1):
            b[j - 1] = j * (b[j - 1] - b[j])
    return b[0]


def _zeta(symbol: str) -> str:
    """Hurwitz's zeta function Σ (q + k)^-s by Euler and Maclaurin: ten terms and more until
    q + k > 9, then the integral and twelve corrections."""
    text = f"""define internal double {symbol}(double %s, double %q) noinline nounwind {{
entry:
  %one = fcmp oeq double %s, {_d(1)}
  br i1 %one, label %infinite, label %n1
n1:
  %low = fcmp ult double %s, {_d(1)}
  %nan = fcmp uno double %q, %q
  %far = fcmp olt double %q, {_d(-1e7)}
  %b0 = or i1 %low, %nan
  br i1 %b0, label %bad, label %n2
n2:
  %minus = fcmp ole double %q, {_d(0)}
  br i1 %minus, label %negative, label %n3
negative:
  %fq = call double @llvm.floor.f64(double %q)
  %pole = fcmp oeq double %fq, %q
  br i1 %pole, label %infinite, label %n4
n4:
  %fs = call double @llvm.floor.f64(double %s)
  %part = fcmp une double %fs, %s
  %b1 = or i1 %part, %far
  br i1 %b1, label %bad, label %n3
n3:
  %ms = fneg double %s
  %large = fcmp ogt double %q, {_d(1e8)}
  br i1 %large, label %tail, label %start
tail:
  %t0 = fsub double %s, {_d(1)}
  %t1 = fdiv double {_d(1)}, %t0
  %t2 = fdiv double {_d(0.5)}, %q
  %t3 = fadd double %t1, %t2
  %t4 = fsub double {_d(1)}, %s
  %t5 = call double @pow(double %q, double %t4)
  %t6 = fmul double %t3, %t5
  ret double %t6
start:
  %first = call double @pow(double %q, double %ms)
  br label %loop
loop:
  %i = phi i64 [ 0, %start ], [ %i.next, %loop ]
  %a = phi double [ %q, %start ], [ %a.next, %loop ]
  %sum = phi double [ %first, %start ], [ %sum.next, %loop ]
  %a.next = fadd double %a, {_d(1)}
  %b = call double @pow(double %a.next, double %ms)
  %sum.next = fadd double %sum, %b
  %i.next = add i64 %i, 1
  %few = icmp ult i64 %i.next, 9
  %near = fcmp ole double %a.next, {_d(9)}
  %again = or i1 %few, %near
  br i1 %again, label %loop, label %corrections
corrections:
  %w = fdiv double %a.next, %t00
  %c0 = fmul double %b, %w
  %s0 = fadd double %sum.next, %c0
  %c1 = fmul double %b, {_d(0.5)}
  %s1 = fsub double %s0, %c1
  %p0 = fdiv double %b, %a.next
  %r0 = fmul double %p0, %s
"""
    text = text.replace("  %first =", f"  %t00 = fsub double %s, {_d(1)}\n  %first =", 1)
    total = "%s1"
    for k in range(12):
        coefficient = _bernoulli(2 * k + 2) / math.factorial(2 * k + 2)
        text += (
            f"  %e{k} = fmul double %r{k}, {_d(float(coefficient))}\n"
            f"  %u{k} = fadd double {total}, %e{k}\n"
            f"  %g{k} = fadd double %s, {_d(2 * k + 1)}\n"
            f"  %h{k} = fadd double %s, {_d(2 * k + 2)}\n"
            f"  %l{k} = fdiv double %g{k}, %a.next\n"
            f"  %m{k} = fdiv double %h{k}, %a.next\n"
            f"  %v{k} = fmul double %r{k}, %l{k}\n"
            f"  %r{k + 1} = fmul double %v{k}, %m{k}\n"
        )
        total = f"%u{k}"
    return (
        text
        + f"""  ret double {total}
infinite:
  ret double {_d(math.inf)}
bad:
  ret double {_d(math.nan)}
}}
"""
    )


def _gammainc_a(symbol: str) -> str:
    """∂P(a, x)/∂a; ``_gammainc_a_numpy`` of ``ir.special`` has the series and the fraction."""
    return f"""define internal double {symbol}(double %a, double %x) noinline nounwind {{
entry:
  %ok.a = fcmp ogt double %a, {_d(0)}
  %ok.x = fcmp ogt double %x, {_d(0)}
  %ok = and i1 %ok.a, %ok.x
  br i1 %ok, label %start, label %edge
start:
  %all = fcmp oeq double %x, {_d(math.inf)}
  br i1 %all, label %zero, label %finite
finite:
  %log = call double @log(double %x)
  %a1 = fadd double %a, {_d(1)}
  %right = fcmp ogt double %x, %a1
  br i1 %right, label %fraction, label %go
fraction:
  %q.psi = call double @tapec.special.psi.dd(double %a, i32 0)
  %b.0 = fsub double %x, %a
  %b0 = fadd double %b.0, {_d(1)}
  %h0 = fdiv double {_d(1)}, %b0
  %h0.a = fmul double %h0, %h0
  br label %lentz
lentz:
  %i = phi double [ {_d(1)}, %fraction ], [ %i.next, %lentz ]
  %b = phi double [ %b0, %fraction ], [ %b.next, %lentz ]
  %c = phi double [ {_d(1e300)}, %fraction ], [ %c.next, %lentz ]
  %c.a = phi double [ {_d(0)}, %fraction ], [ %c.a.next, %lentz ]
  %f = phi double [ %h0, %fraction ], [ %f.next, %lentz ]
  %f.a = phi double [ %h0.a, %fraction ], [ %f.a.next, %lentz ]
  %h = phi double [ %h0, %fraction ], [ %h.next, %lentz ]
  %h.a = phi double [ %h0.a, %fraction ], [ %h.a.next, %lentz ]
  %i.a = fsub double %a, %i
  %an = fmul double %i, %i.a
  %b.next = fadd double %b, {_d(2)}
  %r0 = fmul double %an, %f
  %r = fadd double %r0, %b.next
  %r1 = fmul double %i, %f
  %r2 = fmul double %an, %f.a
  %r3 = fadd double %r1, %r2
  %r.a = fsub double %r3, {_d(1)}
  %q = fdiv double %an, %c
  %c.next = fadd double %b.next, %q
  %c0 = fdiv double %i, %c
  %c1 = fmul double %q, %c.a
  %c2 = fdiv double %c1, %c
  %c3 = fsub double %c0, %c2
  %c.a.next = fsub double %c3, {_d(1)}
  %f.next = fdiv double {_d(1)}, %r
  %f0 = fmul double %f.next, %f.next
  %f1 = fmul double %r.a, %f0
  %f.a.next = fneg double %f1
  %e = fmul double %f.next, %c.next
  %g0 = fmul double %f.a.next, %c.next
  %g1 = fmul double %f.next, %c.a.next
  %e.a = fadd double %g0, %g1
  %h.next = fmul double %h, %e
  %k0 = fmul double %h.a, %e
  %k1 = fmul double %h, %e.a
  %h.a.next = fadd double %k0, %k1
  %i.next = fadd double %i, {_d(1)}
  %off.0 = fsub double %e, {_d(1)}
  %off.1 = call double @llvm.fabs.f64(double %off.0)
  %off = fcmp ogt double %off.1, {_d(2.3e-16)}
  %slope.0 = call double @llvm.fabs.f64(double %k1)
  %slope.1 = call double @llvm.fabs.f64(double %h.a.next)
  %slope.2 = fmul double %slope.1, {_d(1e-16)}
  %moves = fcmp ogt double %slope.0, %slope.2
  %either = or i1 %off, %moves
  %few = fcmp olt double %i, {_d(3e4)}
  %again = and i1 %either, %few
  br i1 %again, label %lentz, label %ended
ended:
  br i1 %few, label %tail, label %bad
tail:
  %t0 = fmul double %a, %log
  %t1 = fsub double %t0, %x
  %t2 = call double @tapec.special.gammaln.dd(double %a, i32 0)
  %t3 = fsub double %t1, %t2
  %t4 = call double @exp(double %t3)
  %t5 = fsub double %log, %q.psi
  %t6 = fmul double %h.next, %t5
  %t7 = fadd double %t6, %h.a.next
  %t8 = fmul double %t4, %t7
  %t9 = fneg double %t8
  ret double %t9
go:
  %psi = call double @tapec.special.psi.dd(double %a1, i32 0)
  %d0 = fsub double %log, %psi
  br label %loop
loop:
  %n = phi double [ %a1, %go ], [ %n.next, %loop ]
  %w = phi double [ {_d(1)}, %go ], [ %w.next, %loop ]
  %d = phi double [ %d0, %go ], [ %d.next, %loop ]
  %sum = phi double [ %d0, %go ], [ %sum.next, %loop ]
  %k = phi i32 [ 0, %go ], [ %k.next, %loop ]
  %k.next = add i32 %k, 1
  %ratio = fdiv double %x, %n
  %w.next = fmul double %w, %ratio
  %inverse = fdiv double {_d(1)}, %n
  %d.next = fsub double %d, %inverse
  %term = fmul double %w.next, %d.next
  %sum.next = fadd double %sum, %term
  %n.next = fadd double %n, {_d(1)}
  %size = call double @llvm.fabs.f64(double %term)
  %total = call double @llvm.fabs.f64(double %sum.next)
  %bound = fmul double %total, {_d(1e-18)}
  %large = fcmp ogt double %size, %bound
  %positive = fcmp ogt double %d.next, {_d(0)}
  %unfinished = or i1 %large, %positive
  %within = icmp slt i32 %k.next, 30000
  %more = and i1 %unfinished, %within
  br i1 %more, label %loop, label %stop
stop:
  br i1 %within, label %done, label %bad
done:
  %e0 = fmul double %a, %log
  %e1 = fsub double %e0, %x
  %e2 = call double @tapec.special.gammaln.dd(double %a1, i32 0)
  %e3 = fsub double %e1, %e2
  %e4 = call double @exp(double %e3)
  %z = fmul double %e4, %sum.next
  ret double %z
edge:
  %at.zero = fcmp oeq double %x, {_d(0)}
  %both = and i1 %at.zero, %ok.a
  br i1 %both, label %zero, label %bad
zero:
  ret double {_d(0)}
bad:
  ret double {_d(math.nan)}
}}
"""


def _betainc_ab(first: bool) -> Callable[[str], str]:
    """∂I_x(p, q)/∂p (``first``) or ∂q; ``_betainc_derivative`` of ``ir.special`` has the series.

    Right of the mean, I_x(p, q) = 1 - I_{1-x}(q, p): the derivative by the other parameter."""

    def text(symbol: str) -> str:
        operands = "double %p, double %q, double %x"
        return f"""define internal double {symbol}({operands}) noinline nounwind {{
entry:
  %ok.p = fcmp ogt double %p, {_d(0)}
  %ok.q = fcmp ogt double %q, {_d(0)}
  %ok.low = fcmp oge double %x, {_d(0)}
  %ok.high = fcmp ole double %x, {_d(1)}
  %ok.a = and i1 %ok.p, %ok.q
  %ok.b = and i1 %ok.low, %ok.high
  %ok.ab = and i1 %ok.a, %ok.b
  %whole = fadd double %p, %q
  %finite = fcmp olt double %whole, {_d(1e9)}
  %ok = and i1 %ok.ab, %finite
  br i1 %ok, label %inside, label %bad
inside:
  %at.low = fcmp oeq double %x, {_d(0)}
  %at.high = fcmp oeq double %x, {_d(1)}
  %at = or i1 %at.low, %at.high
  br i1 %at, label %zero, label %go
go:
  %mx = fneg double %x
  %y = fadd double %mx, {_d(1)}
  %log.x = call double @log(double %x)
  %log.y = call double @log1p(double %mx)
  %p1 = fadd double %p, {_d(1)}
  %pq = fadd double %p, %q
  %pq2 = fadd double %pq, {_d(2)}
  %mean = fdiv double %p1, %pq2
  %left = fcmp ole double %x, %mean
  %P = select i1 %left, double %p, double %q
  %Q = select i1 %left, double %q, double %p
  %X = select i1 %left, double %x, double %y
  %LX = select i1 %left, double %log.x, double %log.y
  %LY = select i1 %left, double %log.y, double %log.x
  %by.first = icmp eq i1 %left, {"true" if first else "false"}
  %P1 = fadd double %P, {_d(1)}
  %other = select i1 %by.first, double %P1, double %Q
  %psi.a = call double @tapec.special.psi.dd(double %pq, i32 0)
  %psi.b = call double @tapec.special.psi.dd(double %other, i32 0)
  %log.d = select i1 %by.first, double %LX, double %LY
  %psi = fsub double %psi.a, %psi.b
  %d0 = fadd double %log.d, %psi
  %d.less = select i1 %by.first, double {_d(1)}, double {_d(0)}
  br label %loop
loop:
  %n = phi double [ {_d(0)}, %go ], [ %n.next, %loop ]
  %w = phi double [ {_d(1)}, %go ], [ %w.next, %loop ]
  %d = phi double [ %d0, %go ], [ %d.next, %loop ]
  %sum = phi double [ %d0, %go ], [ %sum.next, %loop ]
  %top = fadd double %pq, %n
  %low = fadd double %P1, %n
  %quotient = fdiv double %top, %low
  %ratio = fmul double %X, %quotient
  %w.next = fmul double %w, %ratio
  %more.d = fdiv double {_d(1)}, %top
  %less.d = fdiv double %d.less, %low
  %d.step = fsub double %more.d, %less.d
  %d.next = fadd double %d, %d.step
  %term = fmul double %w.next, %d.next
  %sum.next = fadd double %sum, %term
  %n.next = fadd double %n, {_d(1)}
  %rest = fsub double {_d(1)}, %ratio
  %size = call double @llvm.fabs.f64(double %term)
  %total = call double @llvm.fabs.f64(double %sum.next)
  %scaled = fmul double %total, %rest
  %bound = fmul double %scaled, {_d(1e-17)}
  %large = fcmp ogt double %size, %bound
  %positive = fcmp ogt double %d.next, {_d(0)}
  %turning = icmp eq i1 %positive, %by.first
  %more = or i1 %large, %turning
  %early = fcmp olt double %n.next, {_d(1e7)}
  %again = and i1 %more, %early
  br i1 %again, label %loop, label %done
done:
  %e0 = fmul double %P, %LX
  %e1 = fmul double %Q, %LY
  %e2 = fadd double %e0, %e1
  %e3 = call double @tapec.special.betaln.ddd(double %P, double %Q, i32 0)
  %e4 = call double @log(double %P)
  %e5 = fadd double %e3, %e4
  %e6 = fsub double %e2, %e5
  %e7 = call double @exp(double %e6)
  %z = fmul double %e7, %sum.next
  %minus = fneg double %z
  %signed = select i1 %left, double %z, double %minus
  ret double %signed
zero:
  ret double {_d(0)}
bad:
  ret double {_d(math.nan)}
}}
"""

    return text


def _elliprd_m(symbol: str) -> str:
    """R_D(0, 1 - m, 1) / 3"""
    return f"""define internal double {symbol}(double %m) nounwind {{
  %r = fsub double {_d(1)}, %m
  %z = call double @tapec.special.elliprd.dddd(double {_d(0)}, double %r, double {_d(1)}, i32 0)
  %t = fdiv double %z, {_d(3)}
  ret double %t
}}
"""


def _declared(*names: str) -> dict[str, str]:
    known = {
        "log": "declare double @log(double) nounwind",
        "exp": "declare double @exp(double) nounwind",
        "pow": "declare double @pow(double, double) nounwind",
        "log1p": "declare double @log1p(double) nounwind",
        "llvm.floor.f64": "declare double @llvm.floor.f64(double)",
        "llvm.fabs.f64": "declare double @llvm.fabs.f64(double)",
        "tapec.special.psi.dd": "declare double @tapec.special.psi.dd(double, i32) nounwind",
        "tapec.special.gammaln.dd": (
            "declare double @tapec.special.gammaln.dd(double, i32) nounwind"
        ),
        "tapec.special.betaln.ddd": (
            "declare double @tapec.special.betaln.ddd(double, double, i32) nounwind"
        ),
        "tapec.special.elliprd.dddd": (
            "declare double @tapec.special.elliprd.dddd(double, double, double, i32) nounwind"
        ),
    }
    return {name: known[name] for name in names}


_BETAINC = _declared("log", "log1p", "exp", "llvm.fabs.f64", "tapec.special.psi.dd",
                     "tapec.special.betaln.ddd")  # fmt: skip
_OWN = {
    "betainc_a": (3, _betainc_ab(True), _BETAINC),
    "betainc_b": (3, _betainc_ab(False), _BETAINC),
    "zeta": (2, _zeta, _declared("pow", "llvm.floor.f64")),
    "elliprd_m": (1, _elliprd_m, _declared("tapec.special.elliprd.dddd")),
    "gammainc_a": (
        2,
        _gammainc_a,
        _declared("log", "exp", "llvm.fabs.f64", "tapec.special.psi.dd",
                  "tapec.special.gammaln.dd"),
    ),
}  # fmt: skip
