"""The vector math library against mpmath (errors in ulp) and NumPy (special values)."""

from __future__ import annotations

import importlib.util
import math
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import mpmath
import numpy as np
import pytest

from tapec.codegen import mathlib, target, vecmath
from tapec.codegen.mathlib import BINARY, NAMES, MathLibrary
from tapec.ir.core import F32, F64, I64, DType

_path = Path(__file__).parents[1] / "benchmarks" / "vecmath.py"
_spec = importlib.util.spec_from_file_location("vecmath_benchmark", _path)
assert _spec and _spec.loader
bench: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(bench)

HOST = target.host()
LIBM_ONLY = target.describe(HOST.cpu, {"fma": HOST.has_fma}, "x86_64", None, False)
SINGLE = [name for name in NAMES if name != "sincos"]
OWN = [name for name in vecmath.OWN if name != "sincos"]

# Largest error allowed with fused multiply-add, and without.
ULP = {
    "exp": (1.0, 1.2), "expm1": (1.3, 1.5), "log": (0.9, 0.9), "log1p": (1.0, 1.0),
    "sin": (1.5, 2.5), "cos": (1.6, 2.5), "tanh": (1.0, 2.5),
}  # fmt: skip

LIMIT = np.finfo(float).max
SPECIAL = np.array([
    0.0, math.inf, math.nan, 5e-324, 1e-310, 2.2250738585072014e-308, 1e-300, 1e-20, 2.0**-54, 1e-8,
    1e-5, 0.25, 0.5, np.nextafter(0.5, 0), 0.75, np.nextafter(1, 0), 1.0, np.nextafter(1, 2), 1.5,
    math.pi / 4, math.pi / 2, math.e, 2.0, 3.0, math.pi, 7.0, 19.9, 20.1, 22.0, 26.6, 27.3, 37.0,
    308.2, 700.0, 708.3, 708.5, 709.7, 709.79, 710.4, 710.5, 720.0, 744.4, 745.1, 745.2, 746.0,
    1022.5, 1023.9, 1024.0, 1074.0, 1074.9, 1075.1, 2.0**20, 2.0**30, 1.1e9, 2.0**53 + 2, 1e17,
    1e22, 1e154, 1e155, 1e300, LIMIT,
])  # fmt: skip
SPECIAL = np.concatenate([SPECIAL, -SPECIAL])


def kernel(name: str, dtype: DType = F64, width: int = 8, **options: Any) -> Any:
    return _kernel(name, dtype, width, tuple(options.items()))


@cache
def _kernel(name: str, dtype: DType, width: int, options: tuple[tuple[str, Any], ...]) -> Any:
    return bench.Kernel(name, dtype, width, **{"opt": 0, **dict(options)})


def without_fma(text: str) -> bytes:
    """Object code for the oldest x86-64: SSE2 only."""
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu="x86-64", features="", opt=2, jit=True, codemodel="jitdefault"
    )
    module = llvm.parse_assembly(text)
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    options = llvm.create_pipeline_tuning_options(speed_level=0)
    passes.run(module, llvm.create_pass_builder(machine, options))
    return bytes(machine.emit_object(module))


def old_kernel(name: str, width: int = 8) -> Any:
    if "x86" not in llvm.get_default_triple():
        pytest.skip("an x86 without FMA")
    old = target.describe("x86-64", {}, "x86_64", target._libmvec(), HOST.has_sincos)
    assert not old.has_fma
    return kernel(name, width=width, machine=old, compiler=without_fma)


def same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> None:
    """Equal to the last bit, the signs of zeros included (those of nan not)."""
    np.testing.assert_array_equal(a, b)
    defined = ~np.isnan(a)
    np.testing.assert_array_equal(np.signbit(a[defined]), np.signbit(b[defined]))


def samples(name: str, count: int = 300) -> np.ndarray[Any, Any]:
    """The usual interval, and magnitudes of every size in the domain."""
    rng = np.random.default_rng(7)
    low, high = bench.DOMAINS[name]
    usual = rng.uniform(low, high, count)
    small, large = {
        "exp": (-50, 9.4), "expm1": (-60, 9.4), "tanh": (-60, 4.5), "sin": (-40, 29.9),
        "cos": (-40, 29.9), "log": (-1070, 1023), "log1p": (-60, 1023),
    }[name]  # fmt: skip
    sized = 2.0 ** rng.uniform(small, large, count) * rng.choice([-1.0, 1.0], count)
    if name == "log":
        sized = abs(sized)
    elif name == "log1p":
        sized = np.where(sized < -0.99, -sized, sized)
    near_one = 1 + rng.uniform(-1, 1, count) * 2.0 ** rng.integers(-50, -1, count)
    hard = {"sin": np.pi * rng.integers(1, 10**6, count), "log": near_one}.get(name)
    return np.concatenate([usual, sized] if hard is None else [usual, sized, hard])


@pytest.mark.parametrize("name", OWN)
def test_error_of_own_functions(name: str) -> None:
    x = samples(name)
    assert bench.largest_error(name, kernel(name)(x), x) <= ULP[name][0 if HOST.has_fma else 1]


@pytest.mark.parametrize("name", OWN)
def test_error_without_fused_multiply_add(name: str) -> None:
    x = samples(name)
    assert bench.largest_error(name, old_kernel(name)(x), x) <= ULP[name][1]


@pytest.mark.parametrize("name", [n for n in SINGLE if n not in OWN])
def test_error_of_library_functions(name: str) -> None:
    rng = np.random.default_rng(3)
    low, high = bench.DOMAINS[name]
    arguments = [rng.uniform(low, high, 200) for _ in range(1 + (name in BINARY))]
    assert bench.largest_error(name, kernel(name)(*arguments), *arguments) <= 4.0


def reference(name: str, arguments: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    if name == "lgamma":  # Python's is inaccurate near 1 and raises at the poles
        return np.array([_lgamma(float(v)) for v in arguments[0]])
    with np.errstate(all="ignore"):
        return np.asarray(bench.numpy_function(name)(*arguments))


def _lgamma(x: float) -> float:
    if math.isnan(x) or abs(x) > 1e300 or (x <= 0 and x == int(x)):
        return x if math.isnan(x) else math.inf
    return float(mpmath.mp.loggamma(x).real)


def check_special(name: str, run: Any, dtype: DType = F64) -> None:
    x = SPECIAL if dtype is F64 else SPECIAL[abs(SPECIAL) < 1e40]
    points = [x]
    if name in BINARY:
        points = [a.ravel() for a in np.meshgrid(x, x)]
    with np.errstate(all="ignore"):
        points = [p.astype(dtype.np) for p in points]
        expected = reference(name, [p.astype(float) for p in points]).astype(dtype.np)
        got = run(*points)
        plain = np.isfinite(expected) & (expected != 0) & np.isfinite(got)
        same(np.where(plain, 0, got), np.where(plain, 0, expected))
        error = abs(got - expected)[plain] / np.spacing(abs(expected[plain]))
    assert error.max(initial=0) <= 3.5, points[0][plain][error.argmax()]


@pytest.mark.parametrize("name", SINGLE)
def test_special_values(name: str) -> None:
    check_special(name, kernel(name))


@pytest.mark.parametrize("name", SINGLE)
def test_special_values_of_float32(name: str) -> None:
    check_special(name, kernel(name, F32, 16), F32)


@pytest.mark.parametrize("name", SINGLE)
def test_special_values_lane_by_lane(name: str) -> None:
    """Where there is no libmvec."""
    check_special(name, kernel(name, machine=LIBM_ONLY))


@pytest.mark.parametrize("name", SINGLE)
def test_special_values_without_fused_multiply_add(name: str) -> None:
    check_special(name, old_kernel(name))


@pytest.mark.parametrize("dtype", [F64, F32], ids=str)
@pytest.mark.parametrize("name", SINGLE)
def test_scalars(name: str, dtype: DType) -> None:
    check_special(name, kernel(name, dtype, 1), dtype)


@pytest.mark.parametrize("name", [*OWN, "tan", "pow"])
def test_results_depend_on_neither_width_nor_neighbours(name: str) -> None:
    x = np.concatenate([SPECIAL, np.random.default_rng(2).uniform(-9, 9, 96)])
    y = x[::-1].copy()
    expected = kernel(name)(x, y)
    order = np.random.default_rng(5).permutation(len(x))
    same(kernel(name)(x[order], y[order]), expected[order])
    for width in (2, 4, 16):
        same(kernel(name, width=width)(x, y), expected)
    same(kernel(name, opt=2)(x, y), expected)


@pytest.mark.parametrize("width", [1, 2, 8, 16])
@pytest.mark.parametrize("dtype", [F64, F32], ids=str)
def test_sincos_is_sin_and_cos(dtype: DType, width: int) -> None:
    x = np.concatenate([SPECIAL[abs(SPECIAL) < 1e38], np.linspace(-9, 9, 99)])
    sine, cosine = kernel("sincos", dtype, width).run(x)
    same(sine, kernel("sin", dtype, width)(x))
    same(cosine, kernel("cos", dtype, width)(x))


@pytest.mark.parametrize("width", [1, 8])
def test_sincos_without_fused_multiply_add_or_sincos(width: int) -> None:
    x = np.concatenate([SPECIAL, np.linspace(-9, 9, 99)])
    if width == 1:
        sine, cosine = kernel("sincos", width=1, machine=LIBM_ONLY).run(x)
        same(sine, kernel("sin", width=1)(x))
        same(cosine, kernel("cos", width=1)(x))
    else:
        sine, cosine = old_kernel("sincos").run(x)
        same(sine, old_kernel("sin")(x))
        same(cosine, old_kernel("cos")(x))


def test_huge_angles_are_libms() -> None:
    x = np.random.default_rng(4).uniform(-1e300, 1e300, 64)
    x[::5] = 0.5
    assert bench.largest_error("sin", kernel("sin")(x), x) <= 1.0


def test_angles_next_to_multiples_of_half_pi() -> None:
    """The doubles nearest to k π/2: all digits of the result come from the reduction."""
    k = np.concatenate([np.arange(1, 200), np.random.default_rng(8).integers(1, 2**19, 300)])
    x = k * (math.pi / 2)
    x = x[x < vecmath.TRIG_LIMIT]
    for name in ("sin", "cos"):
        assert bench.largest_error(name, kernel(name)(x), x) <= ULP[name][0 if HOST.has_fma else 1]
        assert bench.largest_error(name, old_kernel(name)(x), x) <= ULP[name][1]


def test_definitions_come_once() -> None:
    library = MathLibrary(HOST)
    for name in NAMES:
        for dtype, width in ((F64, 1), (F64, 8), (F32, 1), (F32, 8), (F32, 16), (F64, 8)):
            assert library.call(name, dtype, width) == library.call(name, dtype, width)
    text = library.definitions()
    llvm.parse_assembly(text).verify()
    starts = [line for line in text.splitlines() if line.startswith(("define", "declare"))]
    assert len(starts) == len(set(starts))
    declared = {s.split("@")[1].split("(")[0] for s in starts if s.startswith("declare")}
    assert declared == library.symbols
    assert all(target.address(s) for s in library.symbols)


def test_costs_are_complete() -> None:
    assert set(mathlib.COST) == set(NAMES)


def test_refusals() -> None:
    library = MathLibrary(HOST)
    with pytest.raises(KeyError, match="no math function 'sine'"):
        library.call("sine", F64, 8)
    with pytest.raises(TypeError, match="exp of i64"):
        library.call("exp", I64, 8)
    with pytest.raises(KeyError, match="nowhere"):
        target.address("nowhere")
