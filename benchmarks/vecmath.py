"""Speed and accuracy of the vector math library.

    python benchmarks/vecmath.py                    # every function: ns per element, largest error
    python benchmarks/vecmath.py exp tanh --opt 0   # some functions, LLVM code generation level 0
    python benchmarks/vecmath.py --derive           # the coefficients in codegen/vecmath.py
    python benchmarks/vecmath.py --derive exp       # those of one function

Times are the best of many runs over 4096 doubles, so cache and call overhead are small.  Errors are
in units of the last place of the exact result (mpmath); NumPy's on the same points beside them, and
libm's where NumPy lacks the function.  ``Kernel`` also serves the tests.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import time
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np

from tapec.codegen import engine, mathlib, target, vecmath
from tapec.ir.core import F32, F64, DType

Array = np.ndarray[Any, Any]

# Where functions are timed and their errors measured: intervals of the first argument.
DOMAINS: dict[str, tuple[float, float]] = {
    "exp": (-700, 700), "exp2": (-1000, 1000), "expm1": (-3, 3), "log": (0, 10), "log2": (0, 10),
    "log10": (0, 10), "log1p": (-0.99, 3), "sin": (-10, 10), "cos": (-10, 10),
    "sincos": (-10, 10), "tan": (-10, 10), "arcsin": (-1, 1), "arccos": (-1, 1),
    "arctan": (-10, 10), "sinh": (-10, 10), "cosh": (-10, 10), "tanh": (-3, 3),
    "arcsinh": (-20, 20), "arccosh": (1, 20), "arctanh": (-1, 1), "cbrt": (-100, 100),
    "pow": (0, 10), "atan2": (-5, 5), "hypot": (-5, 5), "fmod": (-20, 20), "erf": (-5, 5),
    "erfc": (-5, 26), "lgamma": (0, 20),
}  # fmt: skip

_mp: Any = mpmath.mp
EXACT: dict[str, Callable[..., Any]] = {
    "exp2": lambda x: _mp.mpf(2) ** x, "log2": lambda x: _mp.log(x, 2),
    "arcsin": _mp.asin, "arccos": _mp.acos, "arctan": _mp.atan, "arcsinh": _mp.asinh,
    "arccosh": _mp.acosh, "arctanh": _mp.atanh, "pow": lambda x, y: x**y,
    "cbrt": lambda x: _mp.sign(x) * _mp.cbrt(abs(x)), "lgamma": _mp.loggamma,
    "fmod": lambda x, y: x - y * int(x / y),
}  # fmt: skip


def exact(name: str) -> Callable[..., Any]:
    """mpmath's version of a function."""
    return EXACT.get(name) or getattr(_mp, name)


def numpy_function(name: str) -> Callable[..., Any]:
    """NumPy's function, or libm's applied to each element."""
    found = {"pow": np.power, "atan2": np.arctan2}.get(name) or getattr(np, name, None)
    return found or np.vectorize(getattr(math, name), otypes=[float])


class Kernel:
    """A native loop that applies one function of the math library to arrays; a special function
    is named with its signature, as in ``ndtr.dd``."""

    def __init__(
        self,
        name: str,
        dtype: DType = F64,
        width: int = 8,
        *,
        opt: int = 2,
        machine: target.Target | None = None,
        compiler: Callable[[str], bytes] | None = None,
    ) -> None:
        self.name, self.dtype, self.width = name, dtype, width
        self.library = mathlib.MathLibrary(machine or target.host())
        self.text = self._text()
        code = compiler(self.text) if compiler else engine.object_code(self.text, opt)
        symbols = {s: target.address(s) for s in self.library.symbols}
        self._code = engine.link(code, symbols, ["kernel"])
        prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_int64)
        self.native = prototype(self._code.address("kernel"))

    def _text(self) -> str:
        need = self.library.special if "." in self.name else self.library.call
        symbol = need(self.name, self.dtype, self.width)
        scalar = "double" if self.dtype is F64 else "float"
        ty = scalar if self.width == 1 else f"<{self.width} x {scalar}>"
        align = f"align {self.dtype.itemsize}"
        lines = [
            "define void @kernel(ptr %x, ptr %y, ptr %out0, ptr %out1, i64 %n) {",
            "entry:",
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]",
        ]
        names = ["x", "y"] if self.name in mathlib.BINARY else ["x"]
        for v in names:
            lines.append(f"  %p.{v} = getelementptr {scalar}, ptr %{v}, i64 %i")
            lines.append(f"  %v.{v} = load {ty}, ptr %p.{v}, {align}")
        operands = ", ".join(f"{ty} %v.{v}" for v in names)
        two = self.name == "sincos"
        result = f"{{ {ty}, {ty} }}" if two else ty
        lines.append(f"  %r = call {result} {symbol}({operands})")
        for j in range(2 if two else 1):
            value = "%r"
            if two:
                value = f"%r{j}"
                lines.append(f"  {value} = extractvalue {result} %r, {j}")
            lines.append(f"  %q{j} = getelementptr {scalar}, ptr %out{j}, i64 %i")
            lines.append(f"  store {ty} {value}, ptr %q{j}, {align}")
        lines += [
            f"  %next = add i64 %i, {self.width}",
            "  %more = icmp ult i64 %next, %n",
            "  br i1 %more, label %loop, label %end",
            "end:",
            "  ret void",
            "}",
            self.library.definitions(),
        ]
        return "\n".join(lines)

    def run(self, x: Array, y: Array | None = None) -> tuple[Array, Array]:
        """The results (the second is for sincos) at any number of points."""
        n = len(x)
        padding = np.ones(-n % self.width, self.dtype.np)
        x = np.concatenate([np.asarray(x, self.dtype.np), padding])
        y = x if y is None else np.concatenate([np.asarray(y, self.dtype.np), padding])
        out = np.empty_like(x), np.empty_like(x)
        self.native(x.ctypes.data, y.ctypes.data, *(o.ctypes.data for o in out), len(x))
        return out[0][:n], out[1][:n]

    def __call__(self, x: Array, y: Array | None = None) -> Array:
        return self.run(x, y)[0]

    def time(self, x: Array, y: Array, repeats: int = 300) -> float:
        """ns per element."""
        out = np.empty_like(x), np.empty_like(x)
        arguments = (x.ctypes.data, y.ctypes.data, *(o.ctypes.data for o in out), len(x))
        return best(lambda: self.native(*arguments), repeats) / len(x)


def best(run: Callable[[], object], repeats: int) -> float:
    """The shortest time of a run in ns."""
    shortest = math.inf
    for _ in range(repeats):
        start = time.perf_counter_ns()
        run()
        shortest = min(shortest, time.perf_counter_ns() - start)
    return shortest


def largest_error(name: str, results: Array, *arguments: Array) -> float:
    """The largest error in ulp of the exact value; points without a finite value are skipped."""
    function, worst = exact(name), 0.0
    with _mp.workdps(40):
        for result, *point in zip(results, *arguments):
            if not np.isfinite(result):
                continue
            value = function(*(_mp.mpf(float(p)) for p in point))
            ulp = np.spacing(results.dtype.type(abs(float(value))))
            worst = max(worst, float(abs(_mp.mpf(float(result)) - value) / _mp.mpf(float(ulp))))
    return worst


def measure(names: list[str], opt: int, points: int) -> None:
    print(f"{'':10}{'ns':>7}{'f32 ns':>8}{'numpy':>8}{'ulp':>7}{'numpy':>7}  by")
    for name in names:
        rng = np.random.default_rng(1)
        x = rng.uniform(*DOMAINS[name], 4096)
        y = rng.uniform(*DOMAINS[name], 4096)
        arguments = (x, y) if name in mathlib.BINARY else (x,)
        few = tuple(a[:points] for a in arguments)
        kernel = Kernel(name, opt=opt)
        single = Kernel(name, F32, 16, opt=opt)
        t = kernel.time(x, y)
        t32 = single.time(x.astype(np.float32), y.astype(np.float32))
        if name == "sincos":
            print(f"{name:10}{t:7.2f}{t32:8.2f}")
            continue
        reference = numpy_function(name)
        tn = best(lambda f=reference, a=arguments: f(*a), 50) / len(x)  # type: ignore[misc]
        error = largest_error(name, kernel(*few), *few)
        errorn = largest_error(name, reference(*few), *few)
        by = "tapec" if name in vecmath.OWN else next(iter(kernel.library.symbols))
        print(f"{name:10}{t:7.2f}{t32:8.2f}{tn:8.2f}{error:7.2f}{errorn:7.2f}  {by}", flush=True)


def _scaled_erfc(t: Any) -> Any:
    """(1 + 2a) exp(a**2) erfc(a) for a = 3.5 (1 + t)/(1 - t)."""
    t = _mp.mpf(t)
    if t >= 1:
        return 2 / _mp.sqrt(_mp.pi)
    a = _mp.mpf("3.5") * (1 + t) / (1 - t)
    if a < 60:
        return (1 + 2 * a) * _mp.exp(a * a) * _mp.erfc(a)
    terms = [_mp.mpf(1)]
    for k in range(1, 40):
        terms.append(terms[-1] * (1 - 2 * k) / (2 * a * a))
    return (1 + 2 * a) / (a * _mp.sqrt(_mp.pi)) * _mp.fsum(terms)


def derive(names: list[str]) -> None:
    """Chebyshev fits of the power series that remain after argument reduction."""

    def series(term: Callable[[int], Any]) -> Callable[[Any], Any]:
        return lambda z: _mp.fsum(term(i) * z**i for i in range(80))

    # A little beyond the reduced interval: the rounding of k moves its ends.
    with _mp.workdps(60):
        half = _mp.log(2) / 2 + _mp.mpf(2) ** -20
        quarter = (_mp.pi / 4 + _mp.mpf(2) ** -20) ** 2
        s = ((_mp.sqrt(2) - 1) / (_mp.sqrt(2) + 1)) ** 2
        table = {
            "exp": (series(lambda i: 1 / _mp.factorial(i + 2)), [-half, half], 11),
            "log": (series(lambda i: _mp.mpf(2) / (2 * i + 3)), [0, s], 7),
            "sin": (series(lambda i: -((-1) ** i) / _mp.factorial(2 * i + 3)), [0, quarter], 6),
            "cos": (series(lambda i: (-1) ** i / _mp.factorial(2 * i + 4)), [0, quarter], 6),
            "erfcx": (_scaled_erfc, [-1, 1], 25),
        }
        for name in names or list(table):
            function, interval, terms = table[name]
            fit, error = mpmath.chebyfit(function, interval, terms, error=True)
            print(f"{name.upper()} = {tuple(float(c) for c in reversed(fit))}")
            print(f"    # error {_mp.nstr(error, 3)}")
        for name, value, bits in (
            ("LN2_HI, LN2_LO", _mp.log(2), (32, 53)),
            ("HALF_PI_FMA", _mp.pi / 2, (53, 53, 53)),
            ("HALF_PI", _mp.pi / 2, (33, 33, 33, 53)),
        ):
            parts = []
            for b in bits:
                unit = _mp.mpf(2) ** (_mp.floor(_mp.log(abs(value), 2)) - b + 1)
                parts.append(float(_mp.nint(value / unit) * unit))
                value -= parts[-1]
            print(f"{name} = {[p.hex() for p in parts]}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed and accuracy of the vector math library.")
    parser.add_argument("names", nargs="*", help="functions (default: all)")
    parser.add_argument("--opt", type=int, default=2, help="LLVM code generation level")
    parser.add_argument("--points", type=int, default=1000, help="points for the largest error")
    parser.add_argument("--derive", action="store_true", help="print the coefficients instead")
    options = parser.parse_args()
    if options.derive:
        derive(options.names)
    else:
        measure(options.names or list(mathlib.NAMES), options.opt, options.points)


if __name__ == "__main__":
    main()
