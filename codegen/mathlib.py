"""The math library of a module: which symbol computes a function, and the text that defines it.

A function of a vector of doubles is, in this order: ours (``vecmath``), libmvec's where it is
installed and accurate, or libm's applied lane by lane.  Vectors of float32 are computed in double
and rounded once.  Scalars are libm's.

Invariants
- One symbol per function, dtype and width; ``definitions`` holds each needed one once.
- All definitions are ``internal``; the only external names are those in ``symbols``.
- libm functions are declared without ``memory(none)``: LLVM would take them for its own nodes and
  then might call another function (``sincos`` for a ``sin`` and a ``cos``).

>>> from tapec.codegen.target import host
>>> from tapec.ir.core import F64
>>> library = MathLibrary(host())
>>> library.call("exp", F64, 8), library.call("exp", F64, 1)
('@tapec.exp.v8f64', '@exp')
>>> library.symbols
{'exp'}
"""

from __future__ import annotations

from tapec.codegen import specialmath, vecmath, vecspecial
from tapec.codegen.target import Target
from tapec.ir.core import F32, F64, DType

__all__ = ["BINARY", "COST", "NAMES", "MathLibrary"]

# Our names (NumPy's) of libm functions that are called differently there.
_LIBM = {
    "arcsin": "asin", "arccos": "acos", "arctan": "atan",
    "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh",
}  # fmt: skip
BINARY = frozenset({"pow", "atan2", "hypot", "fmod"})
NAMES = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "sincos", "tan",
    "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh",
    "cbrt", "pow", "atan2", "hypot", "fmod", "erf", "erfc", "lgamma",
)  # fmt: skip

# Time per element of a vector of doubles, in units of a multiplication (0.1 ns on an AVX2 machine
# of 2021), where libmvec is installed.  Only ratios matter: they tell what is cheap to recompute.
COST: dict[str, float] = {
    "exp": 15, "exp2": 19, "expm1": 17, "log": 21, "log2": 19, "log10": 19, "log1p": 25,
    "sin": 15, "cos": 15, "sincos": 17, "tan": 17, "arcsin": 21, "arccos": 21, "arctan": 19,
    "sinh": 20, "cosh": 21, "tanh": 24, "arcsinh": 60, "arccosh": 56, "arctanh": 50, "cbrt": 27,
    "pow": 70, "atan2": 27, "hypot": 15, "fmod": 65, "erf": 19, "erfc": 25, "lgamma": 140,
}  # fmt: skip

# libmvec's version is wrong on special values or off by more than 4 ulp: libm instead.
_MVEC_BAD: frozenset[str] = frozenset()

#: parameters of the functions written here
_NAMES = ["%x", "%y", "%u", "%v", "%w"]


def _operands(ty: str, names: list[str]) -> str:
    return ", ".join(f"{ty} {n}" for n in names)


class MathLibrary:
    """The math functions of one module being emitted."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._mvec = dict(target.mvec)
        self._texts: dict[str, str] = {}  # by symbol, in order of first need
        self._known: dict[tuple[str, DType, int], str] = {}
        #: external functions that linking must resolve
        self.symbols: set[str] = set()

    def call(self, name: str, dtype: DType, width: int) -> str:
        """The symbol that computes ``name``; its definition will be part of ``definitions()``.

        Its type is ``T (T)`` or ``T (T, T)`` with T the scalar (width 1) or vector type, and for
        sincos ``{T, T} (T)``.
        """
        key = (name, dtype, width)
        symbol = self._known.get(key)
        if symbol is None:
            symbol = self._known[key] = self._need(name, dtype, width)
        return symbol

    def special(self, spec: str, dtype: DType, width: int) -> str:
        """The symbol of a special function (see ``specialmath``) of ``dtype`` and width."""
        key = (spec, dtype, width)
        symbol = self._known.get(key)
        if symbol is None:
            symbol = self._known[key] = self._need_special(spec, dtype, width)
        return symbol

    def _need_special(self, spec: str, dtype: DType, width: int) -> str:
        own = spec.split(".")[0]
        if dtype is F64 and width > 1 and own in vecspecial.OWN:
            symbol = f"@tapec.{own}.v{width}f64"
            self._texts[symbol] = vecspecial.function(own, width, self._target.has_fma)
            return symbol
        name, n = spec.replace(":", "."), specialmath.arity(spec)
        symbol = f"@tapec.special.{name}.{'' if width == 1 else f'v{width}'}f{dtype.bits}"
        if width == 1 and dtype is F64:
            text, needs = specialmath.wrapper(symbol, spec)
            for external, declaration in needs.items():
                if "@" + external not in self._texts:
                    self._texts["@" + external] = declaration + "\n"
                    if not external.startswith("llvm."):
                        self.symbols.add(external)
            self._texts[symbol] = text
            return symbol
        self._texts[symbol] = ""
        if dtype is F32:
            callee = self.special(spec, F64, width)
            lanes = "{}" if width == 1 else f"<{width} x {{}}>"
            single, double = lanes.format("float"), lanes.format("double")
            self._texts[symbol] = _through_double(symbol, n, callee, single, double)
        else:
            self._texts[symbol] = _on_lanes(symbol, self.special(spec, F64, 1), n, width)
        return symbol

    def define(self, symbol: str, text: str) -> None:
        """A function of the module that is written elsewhere."""
        self._texts.setdefault(symbol, text)

    def definitions(self) -> str:
        """Definitions and declarations of everything asked for so far."""
        return "\n".join(self._texts.values())

    def _need(self, name: str, dtype: DType, width: int) -> str:
        if name not in NAMES:
            raise KeyError(f"no math function {name!r}")
        if dtype.kind != "f":
            raise TypeError(f"math functions are real; {name} of {dtype} is not one")
        if width == 1:
            return self._scalar(name, dtype is F32)
        symbol = f"@tapec.{name}.v{width}f{dtype.bits}"
        if symbol not in self._texts:
            self._texts[symbol] = ""  # keep the place: callees come later, which LLVM allows
            if dtype is F32:
                self._texts[symbol] = self._in_double(symbol, name, width)
            elif name in vecmath.OWN:
                for libm in vecmath.COLD.get(name, ()):
                    self._external(libm, 1)
                self._texts[symbol] = vecmath.function(name, width, self._target.has_fma)
            elif (libm := _LIBM.get(name, name)) in self._mvec and libm not in _MVEC_BAD:
                self._texts[symbol] = self._pieces(symbol, name, self._mvec[libm], width)
            else:
                self._texts[symbol] = self._lanes(symbol, name, width)
        return symbol

    def _external(self, name: str, arity: int, ty: str = "double") -> str:
        symbol = "@" + name
        if symbol not in self._texts:
            self._texts[symbol] = f"declare {ty} {symbol}({', '.join([ty] * arity)}) nounwind\n"
            self.symbols.add(name)
        return symbol

    def _scalar(self, name: str, single: bool) -> str:
        arity = 2 if name in BINARY else 1
        if not single and name != "sincos":
            return self._external(_LIBM.get(name, name), arity)
        symbol = f"@tapec.{name}.f{32 if single else 64}"
        if symbol in self._texts:
            return symbol
        self._texts[symbol] = ""
        if single:
            # libm's float functions may be off by 2 ulp; rounding the double result never is.
            callee = self._scalar(name, False)
            text = _through_double(symbol, arity, callee, "float", "double", name == "sincos")
        elif self._target.has_sincos:
            self._texts["@sincos"] = "declare void @sincos(double, ptr, ptr) nounwind\n"
            self.symbols.add("sincos")
            text = (
                f"define internal {{ double, double }} {symbol}(double %x) nounwind {{\n"
                "  %ps = alloca double\n  %pc = alloca double\n"
                "  call void @sincos(double %x, ptr %ps, ptr %pc)\n"
                "  %s = load double, ptr %ps\n  %c = load double, ptr %pc\n"
                + _pair("double", "%s", "%c")
            )
        else:
            self._external("sin", 1)
            self._external("cos", 1)
            text = (
                f"define internal {{ double, double }} {symbol}(double %x) nounwind {{\n"
                "  %s = call double @sin(double %x)\n  %c = call double @cos(double %x)\n"
                + _pair("double", "%s", "%c")
            )
        self._texts[symbol] = text
        return symbol

    def _in_double(self, symbol: str, name: str, width: int) -> str:
        """float32: at most eight lanes at a time in double."""
        single, piece = f"<{width} x float>", f"<{min(width, 8)} x float>"
        if width <= 8:
            callee = self.call(name, F64, width)
            arity, double = 2 if name in BINARY else 1, f"<{width} x double>"
            return _through_double(symbol, arity, callee, single, double, name == "sincos")
        self._whole_pieces(width, 8)
        callee = self.call(name, F32, 8)
        return _split(symbol, name, callee, "float", width, 8, piece)

    def _pieces(self, symbol: str, name: str, mvec: str, width: int) -> str:
        """libmvec's function on each piece of the vector."""
        lanes = self._target.mvec_width
        self._external(mvec, 2 if name in BINARY else 1, f"<{lanes} x double>")
        if width >= lanes:
            self._whole_pieces(width, lanes)
        return _split(symbol, name, "@" + mvec, "double", width, lanes, f"<{lanes} x double>")

    @staticmethod
    def _whole_pieces(width: int, piece: int) -> None:
        if width % piece:
            raise ValueError(f"vector width {width} is not a multiple of {piece}")

    def _lanes(self, symbol: str, name: str, width: int) -> str:
        """libm's function on each lane, out of line: a loop over memory."""
        n = 2 if name in BINARY else 1
        return _on_lanes(symbol, self._external(_LIBM.get(name, name), n), n, width)


def _on_lanes(symbol: str, callee: str, arity: int, width: int) -> str:
    """A function of doubles on each lane, out of line: a loop over memory."""
    ty = f"<{width} x double>"
    names = _NAMES[:arity]
    text = [f"define internal {ty} {symbol}({_operands(ty, names)}) noinline nounwind {{"]
    for n in names:
        text.append(f"  {n}.m = alloca [{width} x double], align 64")
        text.append(f"  store {ty} {n}, ptr {n}.m, align 64")
    text += [
        f"  %z.m = alloca [{width} x double], align 64",
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %0 ], [ %next, %loop ]",
    ]
    for n in names:
        text.append(f"  {n}.p = getelementptr double, ptr {n}.m, i64 %i")
        text.append(f"  {n}.v = load double, ptr {n}.p")
    text += [
        f"  %z = call double {callee}({_operands('double', [n + '.v' for n in names])})",
        "  %z.p = getelementptr double, ptr %z.m, i64 %i",
        "  store double %z, ptr %z.p",
        "  %next = add i64 %i, 1",
        f"  %more = icmp ult i64 %next, {width}",
        "  br i1 %more, label %loop, label %done",
        "done:",
        f"  %r = load {ty}, ptr %z.m, align 64",
        f"  ret {ty} %r",
        "}",
        "",
    ]
    return "\n".join(text)


def _pair(ty: str, first: str, second: str) -> str:
    """The end of a function that returns two values."""
    pair = f"{{ {ty}, {ty} }}"
    return (
        f"  %r0 = insertvalue {pair} poison, {ty} {first}, 0\n"
        f"  %r1 = insertvalue {pair} %r0, {ty} {second}, 1\n"
        f"  ret {pair} %r1\n}}\n"
    )


def _through_double(
    symbol: str, arity: int, callee: str, single: str, double: str, two: bool = False
) -> str:
    """A float32 function (``two``: of two results) as the double function between conversions."""
    names = _NAMES[:arity]
    result = f"{{ {single}, {single} }}" if two else single
    called = f"{{ {double}, {double} }}" if two else double
    operands = _operands(single, names)
    text = f"define internal {result} {symbol}({operands}) alwaysinline nounwind {{\n"
    for n in names:
        text += f"  {n}.d = fpext {single} {n} to {double}\n"
    wide = _operands(double, [n + ".d" for n in names])
    text += f"  %z.d = call {called} {callee}({wide})\n"
    if not two:
        return text + f"  %z = fptrunc {double} %z.d to {single}\n  ret {single} %z\n}}\n"
    for j in range(2):
        text += f"  %d{j} = extractvalue {called} %z.d, {j}\n"
        text += f"  %z{j} = fptrunc {double} %d{j} to {single}\n"
    return text + _pair(single, "%z0", "%z1")


def _mask(start: int, count: int, limit: int) -> str:
    """A shuffle mask of consecutive lanes; lanes beyond the limit repeat the last."""
    lanes = (f"i32 {min(start + j, limit - 1)}" for j in range(count))
    return f"<{count} x i32> <{', '.join(lanes)}>"


def _split(
    symbol: str, name: str, callee: str, scalar: str, width: int, lanes: int, piece: str
) -> str:
    """A function of a vector as ``callee`` on pieces of ``lanes`` lanes."""
    ty = f"<{width} x {scalar}>"
    names = ["%x", "%y"] if name in BINARY else ["%x"]
    two = name == "sincos"
    result = f"{{ {ty}, {ty} }}" if two else ty
    called = f"{{ {piece}, {piece} }}" if two else piece
    lines = [f"define internal {result} {symbol}({_operands(ty, names)}) alwaysinline nounwind {{"]
    parts: list[list[str]] = [[], []]
    for j, start in enumerate(range(0, width, lanes)):
        for n in names:
            mask = _mask(start, lanes, width)
            lines.append(f"  {n}.{j} = shufflevector {ty} {n}, {ty} poison, {mask}")
        operands = _operands(piece, [f"{n}.{j}" for n in names])
        lines.append(f"  %z.{j} = call {called} {callee}({operands})")
        if two:
            for k in range(2):
                lines.append(f"  %z.{j}.{k} = extractvalue {called} %z.{j}, {k}")
                parts[k].append(f"%z.{j}.{k}")
        else:
            parts[0].append(f"%z.{j}")
    whole = []
    for k in range(2 if two else 1):
        pieces, size = parts[k], lanes
        while len(pieces) > 1:  # join pairs: shufflevector needs two operands of one type
            joined = []
            for j in range(0, len(pieces), 2):
                v = f"%j{k}.{size}.{j}"
                half = f"<{size} x {scalar}>"
                lines.append(
                    f"  {v} = shufflevector {half} {pieces[j]}, {half} {pieces[j + 1]},"
                    f" {_mask(0, 2 * size, 2 * size)}"
                )
                joined.append(v)
            pieces, size = joined, 2 * size
        if size > width:
            lines.append(
                f"  %cut{k} = shufflevector <{size} x {scalar}> {pieces[0]},"
                f" <{size} x {scalar}> poison, {_mask(0, width, size)}"
            )
            pieces = [f"%cut{k}"]
        whole.append(pieces[0])
    if two:
        return "\n".join(lines) + "\n" + _pair(ty, *whole)
    return "\n".join([*lines, f"  ret {ty} {whole[0]}", "}", ""])
