"""Elementwise operations as LLVM text, for scalars (width 1) and explicit vectors.

``OpDef.llvm`` says how an operation is lowered:

``inst:FLOAT:INT``  an instruction, by kind of operand (``inst:fadd:add``)
``cmp:FLOAT:INT``   a comparison predicate (``cmp:olt:slt``)
``intr:NAME``       an LLVM intrinsic (``intr:floor``)
``math:NAME``       a function of the math library (``math:exp``)
``special:NAME``    a special function, see ``specialmath`` (``special:psi.dd``)
``own:NAME``        one of the emitters below

Booleans are ``i1`` in registers and ``i8`` in memory.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from tapec.ir.core import BOOL, DTYPES, F32, DType, Op
from tapec.ir.opdef import OPS

__all__ = [
    "Emitter",
    "MathCalls",
    "constant",
    "contracted",
    "emit_op",
    "llvm_type",
    "multiply_add",
    "reduce_step",
]


class MathCalls(Protocol):
    def call(self, name: str, dtype: DType, width: int) -> str: ...

    def special(self, spec: str, dtype: DType, width: int) -> str: ...


class Emitter:
    """Lines of one LLVM function under construction, with fresh names."""

    __slots__ = ("contract", "declares", "lines", "math", "n")

    def __init__(
        self, math: MathCalls, declares: set[str], contract: frozenset[Op] = frozenset()
    ) -> None:
        self.lines: list[str] = []
        #: products and the sums that may be one instruction with them, see ``multiply_add``
        self.contract = contract
        self.n = 0
        self.math = math
        #: ``declare`` lines of the module
        self.declares = declares

    def name(self) -> str:
        self.n += 1
        return f"%t{self.n}"

    def let(self, rhs: str) -> str:
        """``%t = rhs``; the new name."""
        self.n += 1
        name = f"%t{self.n}"
        self.lines.append(f"  {name} = {rhs}")
        return name

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def label(self, name: str) -> None:
        self.lines.append(name + ":")

    def intrinsic(self, name: str, ret: str, args: list[tuple[str, str]]) -> str:
        """A call of ``@llvm.name``; overload suffix by the return type."""
        sig = f"@llvm.{name}.{suffix(ret)}"
        self.declares.add(f"declare {ret} {sig}({', '.join(t for t, _ in args)})")
        return self.let(f"call {ret} {sig}({', '.join(f'{t} {v}' for t, v in args)})")


_LLVM = {
    "bool": "i1",
    "i32": "i32",
    "i64": "i64",
    "f32": "float",
    "f64": "double",
}
_SUFFIX = {"float": "f32", "double": "f64"}


def suffix(ty: str) -> str:
    """The overload suffix of an LLVM type: ``<8 x double>`` → ``v8f64``."""
    if ty.startswith("<"):
        n, _, elem = ty[1:-1].split(" ")
        return f"v{n}{_SUFFIX.get(elem, elem)}"
    return _SUFFIX.get(ty, ty)


def llvm_type(dtype: DType, width: int = 1) -> str:
    elem = _LLVM[dtype.name]
    return elem if width == 1 else f"<{width} x {elem}>"


def constant(value: Any, dtype: DType, width: int = 1) -> str:
    """A constant operand, repeated over the lanes."""
    kind = dtype.kind
    if kind == "b":
        text = "true" if value else "false"
    elif kind == "i":
        text = str(int(value))
    else:
        v = float(value)
        if dtype is F32:
            v = float(np.float32(v))
        text = f"0x{struct.unpack('<Q', struct.pack('<d', v))[0]:016X}"
    if width == 1:
        return text
    return f"splat ({_LLVM[dtype.name]} {text})"


_instructions: dict[tuple[str, DType, int], str | None] = {}


def instruction(name: str, dtype: DType, width: int) -> str | None:
    """``"fadd double"`` for an op that is one instruction on its operands, else None."""
    key = (name, dtype, width)
    if key not in _instructions:
        kind, _, rest = (OPS[name].llvm or "").partition(":")
        f, _, i = rest.partition(":")
        text = None
        if kind == "inst":
            text = f if dtype.kind == "f" else i or f
        elif kind == "cmp" and dtype.kind == "f":
            text = f"fcmp {f}"
        elif kind == "cmp":
            text = f"icmp {'u' + i[1:] if dtype is BOOL and i[0] == 's' else i}"
        _instructions[key] = text and f"{text} {llvm_type(dtype, width)}"
    return _instructions[key]


def contracted(text: str) -> str:
    """``fmul double`` → ``fmul contract double``"""
    return text.replace(" ", " contract ", 1)


def emit_op(em: Emitter, op: Op, width: int, args: list[str]) -> str:
    """Lower one elementwise operation on ``args`` (of ``width`` lanes); the result's name."""
    in_dtype = op.operands[0].type.dtype
    simple = instruction(op.name, in_dtype, width)
    if simple is not None:
        if op in em.contract:
            simple = contracted(simple)
        em.n += 1
        name = f"%t{em.n}"
        em.lines.append(f"  {name} = {simple} {', '.join(args)}")
        return name
    spec = OPS[op.name].llvm
    if spec is None:
        raise NotImplementedError(f"no native lowering for elementwise op {op.name!r}")
    kind, _, rest = spec.partition(":")
    ty = llvm_type(in_dtype, width)
    if kind == "intr":
        if in_dtype.kind == "i":
            return args[0]  # floor, ceil, rint, trunc of an integer
        return em.intrinsic(rest, ty, [(ty, a) for a in args])
    if kind == "math":
        symbol = em.math.call(_C_NAMES.get(rest, rest), in_dtype, width)
        return em.let(f"call {ty} {symbol}({', '.join(f'{ty} {a}' for a in args)})")
    if kind == "special":
        symbol = em.math.special(rest, in_dtype, width)
        return em.let(f"call {ty} {symbol}({', '.join(f'{ty} {a}' for a in args)})")
    own = _OWN.get(rest)
    if kind != "own" or own is None:
        raise NotImplementedError(f"op {op.name!r}: unknown lowering {spec!r}")
    return own(em, op, in_dtype, width, args)


#: C's names of functions that the math library calls by NumPy's
_C_NAMES = {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan",
    "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
}  # fmt: skip


def multiply_add(em: Emitter, dtype: DType, w: int, x: str, y: str, z: str) -> str:
    """``x*y + z``, rounded once.  Only for CPUs that can: elsewhere it is a slow function."""
    ty = llvm_type(dtype, w)
    return em.intrinsic("fma", ty, [(ty, x), (ty, y), (ty, z)])


def _select(em: Emitter, c: str, ty: str, x: str, y: str, width: int) -> str:
    return em.let(f"select {llvm_type(BOOL, width)} {c}, {ty} {x}, {ty} {y}")


def _emit_select(em: Emitter, op: Op, dt: DType, w: int, a: list[str]) -> str:
    return _select(em, a[0], llvm_type(op.results[0].type.dtype, w), a[1], a[2], w)


def _emit_strong_mul(em: Emitter, op: Op, dt: DType, w: int, a: list[str]) -> str:
    ty, zero = llvm_type(dt, w), constant(0, dt, w)
    product = em.let(f"fmul {ty} {a[0]}, {a[1]}")
    is_zero = em.let(f"fcmp oeq {ty} {a[0]}, {zero}")
    return _select(em, is_zero, ty, zero, product, w)


def _emit_null_mul(em: Emitter, op: Op, dt: DType, w: int, a: list[str]) -> str:
    ty, zero = llvm_type(dt, w), constant(0, dt, w)
    product = em.let(f"fmul {ty} {a[0]}, {a[1]}")
    zeros = [em.let(f"fcmp oeq {ty} {x}, {zero}") for x in a]
    either = em.let(f"or {llvm_type(BOOL, w)} {zeros[0]}, {zeros[1]}")
    return _select(em, either, ty, zero, product, w)


def _emit_abs(em: Emitter, op: Op, dt: DType, w: int, a: list[str]) -> str:
    ty = llvm_type(dt, w)
    if dt.kind == "f":
        return em.intrinsic("fabs", ty, [(ty, a[0])])
    negative = em.let(f"icmp slt {ty} {a[0]}, {constant(0, dt, w)}")
    minus = em.let(f"sub {ty} {constant(0, dt, w)}, {a[0]}")
    return _select(em, negative, ty, minus, a[0], w)


def _emit_neg(em: Emitter, op: Op, dt: DType, w: int, a: list[str]) -> str:
    ty = llvm_type(dt, w)
    if dt.kind == "f":
        return em.let(f"fneg {ty} {a[0]}")
    return em.let(f"sub {ty} {constant(0, dt, w)}, {a[0]}")


def _emit_unsigned_zero(em: Emitter, op: Op, dt: DType, w: int, a: list[str]) -> str:
    return em.let(f"fadd {llvm_type(dt, w)} {a[0]}, {constant(0, dt, w)}")


def _emit_sign(em: Emitter, op: Op, dt: DType, w: int, a: list[str]) -> str:
    """NaN stays NaN and a zero is +0, as in NumPy."""
    ty = llvm_type(dt, w)
    one, minus, zero = (constant(v, dt, w) for v in (1, -1, 0))
    if dt.kind != "f":
        positive = em.let(f"icmp sgt {ty} {a[0]}, {zero}")
        negative = em.let(f"icmp slt {ty} {a[0]}, {zero}")
        rest = zero
    else:
        positive = em.let(f"fcmp ogt {ty} {a[0]}, {zero}")
        negative = em.let(f"fcmp olt {ty} {a[0]}, {zero}")
        nan = em.let(f"fcmp uno {ty} {a[0]}, {a[0]}")
        rest = _select(em, nan, ty, a[0], zero, w)
    return _select(em, positive, ty, one, _select(em, negative, ty, minus, rest, w), w)


def _extremum(predicate: str) -> Callable[[Emitter, DType, int, str, str], str]:
    """max or min that propagate NaN: x if x > y or x is NaN, else y (NaN y included)."""

    def emit(em: Emitter, dt: DType, w: int, x: str, y: str) -> str:
        ty = llvm_type(dt, w)
        if dt.kind == "f":
            better = em.let(f"fcmp o{predicate} {ty} {x}, {y}")
            nan = em.let(f"fcmp uno {ty} {x}, {x}")
            keep = em.let(f"or {llvm_type(BOOL, w)} {better}, {nan}")
        else:
            sign = "u" if dt is BOOL else "s"
            keep = em.let(f"icmp {sign}{predicate} {ty} {x}, {y}")
        return _select(em, keep, ty, x, y, w)

    return emit


_max = _extremum("gt")
_min = _extremum("lt")


def _emit_floor_div_int(em: Emitter, dt: DType, w: int, x: str, y: str) -> tuple[str, str]:
    """Floor quotient and remainder of integers; a zero divisor gives 0, as NumPy does."""
    ty, bt = llvm_type(dt, w), llvm_type(BOOL, w)
    zero, one, minus = (constant(v, dt, w) for v in (0, 1, -1))
    is_zero = em.let(f"icmp eq {ty} {y}, {zero}")
    is_minus = em.let(f"icmp eq {ty} {y}, {minus}")  # the lowest integer / -1 would trap
    odd = em.let(f"or {bt} {is_zero}, {is_minus}")
    safe = _select(em, odd, ty, one, y, w)
    q = em.let(f"sdiv {ty} {x}, {safe}")
    r = em.let(f"srem {ty} {x}, {safe}")
    nonzero = em.let(f"icmp ne {ty} {r}, {zero}")
    signs = em.let(f"xor {ty} {r}, {safe}")
    differ = em.let(f"icmp slt {ty} {signs}, {zero}")
    adjust = em.let(f"and {bt} {nonzero}, {differ}")
    q = _select(em, adjust, ty, em.let(f"sub {ty} {q}, {one}"), q, w)
    r = _select(em, adjust, ty, em.let(f"add {ty} {r}, {safe}"), r, w)
    q = _select(em, is_minus, ty, em.let(f"sub {ty} {zero}, {x}"), q, w)
    q = _select(em, is_zero, ty, zero, q, w)
    r = _select(em, odd, ty, zero, r, w)
    return q, r


def _emit_mod_float(em: Emitter, dt: DType, w: int, x: str, y: str) -> tuple[str, str]:
    """NumPy's remainder (sign of the divisor) and the fmod it comes from."""
    ty, bt = llvm_type(dt, w), llvm_type(BOOL, w)
    zero = constant(0, dt, w)
    symbol = em.math.call("fmod", dt, w)
    r = em.let(f"call {ty} {symbol}({ty} {x}, {ty} {y})")
    nonzero = em.let(f"fcmp une {ty} {r}, {zero}")
    y_neg = em.let(f"fcmp olt {ty} {y}, {zero}")
    r_neg = em.let(f"fcmp olt {ty} {r}, {zero}")
    differ = em.let(f"xor {bt} {y_neg}, {r_neg}")
    adjust = em.let(f"and {bt} {nonzero}, {differ}")
    shifted = _select(em, adjust, ty, em.let(f"fadd {ty} {r}, {y}"), r, w)
    signed_zero = em.intrinsic("copysign", ty, [(ty, zero), (ty, y)])
    is_nan = em.let(f"fcmp uno {ty} {r}, {r}")
    keep = em.let(f"or {bt} {nonzero}, {is_nan}")
    return _select(em, keep, ty, shifted, signed_zero, w), r


def _emit_mod(em: Emitter, op: Op, dt: DType, w: int, a: list[str]) -> str:
    if dt.kind != "f":
        return _emit_floor_div_int(em, dt, w, a[0], a[1])[1]
    return _emit_mod_float(em, dt, w, a[0], a[1])[0]


def _emit_fmod(em: Emitter, op: Op, dt: DType, w: int, a: list[str]) -> str:
    ty = llvm_type(dt, w)
    if dt.kind == "f":
        return em.let(f"call {ty} {em.math.call('fmod', dt, w)}({ty} {a[0]}, {ty} {a[1]})")
    odd_zero = em.let(f"icmp eq {ty} {a[1]}, {constant(0, dt, w)}")
    odd_minus = em.let(f"icmp eq {ty} {a[1]}, {constant(-1, dt, w)}")
    odd = em.let(f"or {llvm_type(BOOL, w)} {odd_zero}, {odd_minus}")
    safe = _select(em, odd, ty, constant(1, dt, w), a[1], w)
    return em.let(f"srem {ty} {a[0]}, {safe}")


def _emit_floor_div(em: Emitter, op: Op, dt: DType, w: int, a: list[str]) -> str:
    """NumPy's floor division: through the remainder, so that it is consistent with ``mod``."""
    if dt.kind != "f":
        return _emit_floor_div_int(em, dt, w, a[0], a[1])[0]
    ty, bt = llvm_type(dt, w), llvm_type(BOOL, w)
    zero, one, half = (constant(v, dt, w) for v in (0, 1, 0.5))
    x, y = a
    quotient = em.let(f"fdiv {ty} {x}, {y}")
    _, r = _emit_mod_float(em, dt, w, x, y)
    d = em.let(f"fdiv {ty} {em.let(f'fsub {ty} {x}, {r}')}, {y}")
    nonzero = em.let(f"fcmp une {ty} {r}, {zero}")
    y_neg = em.let(f"fcmp olt {ty} {y}, {zero}")
    r_neg = em.let(f"fcmp olt {ty} {r}, {zero}")
    adjust = em.let(f"and {bt} {nonzero}, {em.let(f'xor {bt} {y_neg}, {r_neg}')}")
    d = _select(em, adjust, ty, em.let(f"fsub {ty} {d}, {one}"), d, w)
    f = em.intrinsic("floor", ty, [(ty, d)])
    more = em.let(f"fcmp ogt {ty} {em.let(f'fsub {ty} {d}, {f}')}, {half}")
    f = _select(em, more, ty, em.let(f"fadd {ty} {f}, {one}"), f, w)
    d_zero = em.let(f"fcmp oeq {ty} {d}, {zero}")
    f = _select(em, d_zero, ty, em.intrinsic("copysign", ty, [(ty, zero), (ty, quotient)]), f, w)
    by_zero = em.let(f"fcmp oeq {ty} {y}, {zero}")
    return _select(em, by_zero, ty, quotient, f, w)


def _emit_not(em: Emitter, op: Op, dt: DType, w: int, a: list[str]) -> str:
    ty = llvm_type(dt, w)
    return em.let(f"xor {ty} {a[0]}, {constant(True if dt is BOOL else -1, dt, w)}")


def _emit_isnan(em: Emitter, op: Op, dt: DType, w: int, a: list[str]) -> str:
    if dt.kind != "f":
        return constant(False, BOOL, w)
    return em.let(f"fcmp uno {llvm_type(dt, w)} {a[0]}, {a[0]}")


def _emit_isinf(em: Emitter, op: Op, dt: DType, w: int, a: list[str]) -> str:
    if dt.kind != "f":
        return constant(False, BOOL, w)
    ty = llvm_type(dt, w)
    magnitude = em.intrinsic("fabs", ty, [(ty, a[0])])
    return em.let(f"fcmp oeq {ty} {magnitude}, {constant(np.inf, dt, w)}")


def _emit_logistic(em: Emitter, op: Op, dt: DType, w: int, a: list[str]) -> str:
    ty, one = llvm_type(dt, w), constant(1, dt, w)
    minus = em.let(f"fneg {ty} {a[0]}")
    e = em.let(f"call {ty} {em.math.call('exp', dt, w)}({ty} {minus})")
    return em.let(f"fdiv {ty} {one}, {em.let(f'fadd {ty} {e}, {one}')}")


def _emit_polygamma(em: Emitter, op: Op, dt: DType, w: int, a: list[str]) -> str:
    """(-1)^(n+1) n! ζ(n+1, x)"""
    ty, n = llvm_type(dt, w), op.attrs["n"]
    order = constant(n + 1, dt, w)
    z = em.let(f"call {ty} {em.math.special('zeta', dt, w)}({ty} {order}, {ty} {a[0]})")
    return em.let(f"fmul {ty} {z}, {constant((-1) ** (n + 1) * math.factorial(n), dt, w)}")


def _emit_log_product(zero: str) -> Callable[[Emitter, Op, DType, int, list[str]], str]:
    """x log y (or log1p), and 0 where x is 0 and y no NaN; entr is -x log x."""

    def emit(em: Emitter, op: Op, dt: DType, w: int, a: list[str]) -> str:
        ty, nought = llvm_type(dt, w), constant(0, dt, w)
        x, y = a[0], a[-1]
        log = em.let(f"call {ty} {em.math.call(zero, dt, w)}({ty} {y})")
        z = em.let(f"fmul {ty} {x}, {log}")
        at_zero = em.let(f"fcmp oeq {ty} {x}, {nought}")
        number = em.let(f"fcmp ord {ty} {y}, {y}")
        flat = em.let(f"and {llvm_type(BOOL, w)} {at_zero}, {number}")
        return _select(em, flat, ty, nought, z, w)

    return emit


def _emit_entr(em: Emitter, op: Op, dt: DType, w: int, a: list[str]) -> str:
    ty = llvm_type(dt, w)
    z = em.let(f"fneg {ty} {_emit_log_product('log')(em, op, dt, w, a)}")
    below = em.let(f"fcmp olt {ty} {a[0]}, {constant(0, dt, w)}")
    return _select(em, below, ty, constant(-math.inf, dt, w), z, w)


def _emit_integer_pow(em: Emitter, op: Op, dt: DType, w: int, a: list[str]) -> str:
    """Repeated squaring, the square chain shared; negative exponents by one division."""
    ty, n = llvm_type(dt, w), op.attrs["n"]
    mul = "fmul" if dt.kind == "f" else "mul"
    if n == 0:
        return constant(1, dt, w)
    square, m, result = a[0], abs(n), ""
    while m:
        if m & 1:
            result = square if not result else em.let(f"{mul} {ty} {result}, {square}")
        m >>= 1
        if m:
            square = em.let(f"{mul} {ty} {square}, {square}")
    if n < 0:
        result = em.let(f"fdiv {ty} {constant(1, dt, w)}, {result}")
    return result


def _emit_shift(kind: str) -> Callable[[Emitter, Op, DType, int, list[str]], str]:
    def emit(em: Emitter, op: Op, dt: DType, w: int, a: list[str]) -> str:
        """A count outside of the word gives what shifting step by step would give."""
        ty = llvm_type(dt, w)
        inside = em.let(f"icmp ult {ty} {a[1]}, {constant(dt.bits, dt, w)}")
        count = _select(em, inside, ty, a[1], constant(dt.bits - 1, dt, w), w)
        if kind == "shl":
            zeroed = _select(em, inside, ty, a[0], constant(0, dt, w), w)
            return em.let(f"shl {ty} {zeroed}, {count}")
        return em.let(f"ashr {ty} {a[0]}, {count}")

    return emit


def _emit_convert(em: Emitter, op: Op, dt: DType, w: int, a: list[str]) -> str:
    return convert(em, a[0], dt, DTYPES[op.attrs["dtype"]], w)


def convert(em: Emitter, x: str, src: DType, dst: DType, w: int) -> str:
    """NumPy's ``astype`` between real dtypes."""
    if src is dst:
        return x
    st, dtt = llvm_type(src, w), llvm_type(dst, w)
    if dst is BOOL:
        zero = constant(0, src, w)
        return em.let(
            f"fcmp une {st} {x}, {zero}" if src.kind == "f" else f"icmp ne {st} {x}, {zero}"
        )
    if src is BOOL:
        return em.let(f"{'uitofp' if dst.kind == 'f' else 'zext'} {st} {x} to {dtt}")
    if src.kind == "f" and dst.kind == "f":
        return em.let(f"{'fpext' if dst.bits > src.bits else 'fptrunc'} {st} {x} to {dtt}")
    if src.kind == "i" and dst.kind == "i":
        return em.let(f"{'sext' if dst.bits > src.bits else 'trunc'} {st} {x} to {dtt}")
    if src.kind == "i":
        return em.let(f"sitofp {st} {x} to {dtt}")
    # Out of range and NaN give the lowest integer, as x86 and NumPy on it do; fptosi alone
    # would be undefined there.
    limit = 2.0 ** (dst.bits - 1)
    low = em.let(f"fcmp oge {st} {x}, {constant(-limit, src, w)}")
    high = em.let(f"fcmp olt {st} {x}, {constant(limit, src, w)}")
    ok = em.let(f"and {llvm_type(BOOL, w)} {low}, {high}")
    safe = _select(em, ok, st, x, constant(0, src, w), w)
    result = em.let(f"fptosi {st} {safe} to {dtt}")
    return _select(em, ok, dtt, result, constant(-(2 ** (dst.bits - 1)), dst, w), w)


def _binary(f: Callable[[Emitter, DType, int, str, str], str]) -> Any:
    def emit(em: Emitter, op: Op, dt: DType, w: int, a: list[str]) -> str:
        return f(em, dt, w, a[0], a[1])

    return emit


_OWN: dict[str, Callable[[Emitter, Op, DType, int, list[str]], str]] = {
    "abs": _emit_abs,
    "unsigned_zero": _emit_unsigned_zero,
    "convert": _emit_convert,
    "floor_div": _emit_floor_div,
    "entr": _emit_entr,
    "fmod": _emit_fmod,
    "integer_pow": _emit_integer_pow,
    "isinf": _emit_isinf,
    "isnan": _emit_isnan,
    "logistic": _emit_logistic,
    "max": _binary(_max),
    "min": _binary(_min),
    "mod": _emit_mod,
    "neg": _emit_neg,
    "not": _emit_not,
    "null_mul": _emit_null_mul,
    "polygamma": _emit_polygamma,
    "select": _emit_select,
    "shift_left": _emit_shift("shl"),
    "shift_right": _emit_shift("ashr"),
    "sign": _emit_sign,
    "stop": lambda em, op, dt, w, a: a[0],
    "strong_mul": _emit_strong_mul,
    "xlog1py": _emit_log_product("log1p"),
    "xlogy": _emit_log_product("log"),
}

#: reduction kind → its neutral element by dtype kind
_IDENTITY: dict[str, dict[str, Any]] = {
    "sum": {"f": 0.0, "i": 0, "b": False},
    "prod": {"f": 1.0, "i": 1, "b": True},
    "any": {"b": False},
    "all": {"b": True},
}


def identity(kind: str, dtype: DType) -> Any:
    """The neutral element of a reduction."""
    if kind in ("max", "min"):
        sign = -1 if kind == "max" else 1
        if dtype.kind == "f":
            return sign * np.inf
        if dtype is BOOL:
            return kind == "min"
        return -(2 ** (dtype.bits - 1)) if sign < 0 else 2 ** (dtype.bits - 1) - 1
    return _IDENTITY[kind][dtype.kind]


def reduce_step(em: Emitter, kind: str, dtype: DType, w: int, acc: str, x: str) -> str:
    """One step of a reduction: ``acc ⊕ x``."""
    ty = llvm_type(dtype, w)
    if kind == "max":
        return _max(em, dtype, w, acc, x)
    if kind == "min":
        return _min(em, dtype, w, acc, x)
    if dtype is BOOL:
        return em.let(f"{'or' if kind in ('sum', 'any') else 'and'} {ty} {acc}, {x}")
    inst = {"sum": "add", "prod": "mul"}[kind]
    return em.let(f"{'f' if dtype.kind == 'f' else ''}{inst} {ty} {acc}, {x}")
