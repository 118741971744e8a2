"""The JIT engine and symbol resolution: compile, link, unload, errors, threads, fork."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from tapec.codegen import engine, libraries

TWICE = """define double @twice(double %x) {
  %y = fadd double %x, %x
  ret double %y
}"""
Unary = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)


@pytest.mark.parametrize("opt", [0, 1, 2])
def test_compile_runs_at_every_level(opt: int) -> None:
    library = engine.compile_module(TWICE, {}, opt=opt, exports=["twice"])
    assert Unary(library.address("twice"))(1.5) == 3.0


def test_object_code_links_many_times_with_other_symbols() -> None:
    text = """@tapec.number = external global double
    define double @read() {
      %x = load double, ptr @tapec.number
      ret double %x
    }"""
    code = engine.object_code(text, 1)
    numbers = [ctypes.c_double(x) for x in (1.5, 2.5)]
    libraries_ = [
        engine.link(code, {"tapec.number": ctypes.addressof(n)}, ["read"]) for n in numbers
    ]
    assert [ctypes.CFUNCTYPE(ctypes.c_double)(lib.address("read"))() for lib in libraries_] == [
        1.5,
        2.5,
    ]


def test_always_inline_functions_disappear() -> None:
    text = """define internal double @inner(double %x) alwaysinline {
      %y = fmul double %x, %x
      ret double %y
    }
    define double @outer(double %x) {
      %y = call double @inner(double %x)
      ret double %y
    }"""
    assert "@inner" not in engine.optimised_text(text)
    assert "outer:" in engine.assemble(text, 2)


def test_calls_that_llvm_introduces_are_found() -> None:
    text = """define double @mod(double %x) {
      %y = frem double %x, 3.0
      ret double %y
    }"""
    library = engine.compile_module(text, {}, opt=0, exports=["mod"])
    assert Unary(library.address("mod"))(7.5) == 1.5


@pytest.mark.parametrize(
    "text",
    [
        "define i32 @f() {\n  ret i32 %missing\n}",
        "define i32 @f(i1 %c) {\n  br i1 %c, label %a, label %b\na:\n  %x = add i32 1, 1\n"
        "  br label %b\nb:\n  ret i32 %x\n}",
    ],
    ids=["parser", "verifier"],
)
def test_invalid_text_raises(text: str) -> None:
    with pytest.raises(engine.CompileError, match="internal compiler error"):
        engine.object_code(text)


def test_parser_error_shows_the_line() -> None:
    with pytest.raises(engine.CompileError, match=r">\s+2   ret i32 %missing"):
        engine.object_code("define i32 @f() {\n  ret i32 %missing\n}")


def test_undefined_symbol_raises(capfd: pytest.CaptureFixture[str]) -> None:
    text = """declare void @tapec.nowhere()
    define void @f() {
      call void @tapec.nowhere()
      ret void
    }"""
    with pytest.raises(engine.CompileError, match="linking"):
        engine.compile_module(text, {}, exports=["f"])
    capfd.readouterr()


def test_closed_library_has_no_addresses() -> None:
    library = engine.compile_module(TWICE, {}, exports=["twice"])
    library.close()
    library.close()
    with pytest.raises(ValueError, match="closed"):
        library.address("twice")


def test_cache_key_depends_on_text_and_level() -> None:
    keys = {engine.cache_key(TWICE, 0), engine.cache_key(TWICE, 2), engine.cache_key("", 2)}
    assert len(keys) == 3
    assert engine.cache_key(TWICE, 0) in keys


def test_invalid_level_raises() -> None:
    with pytest.raises(ValueError, match="level"):
        engine.object_code(TWICE, 7)


def test_threads_compile_at_once() -> None:
    results: list[float] = []

    def work(i: int) -> None:
        for k in range(5):
            text = TWICE.replace("fadd double %x, %x", f"fadd double %x, {i * 100 + k}.0")
            library = engine.compile_module(text, {}, opt=0, exports=["twice"])
            results.append(Unary(library.address("twice"))(0.0))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(results) == sorted(float(i * 100 + k) for i in range(8) for k in range(5))


FORK = """
import ctypes, os, sys, threading
from tapec.codegen import engine
text = "define double @f(double %x) {\\n  %y = fadd double %x, 1.0\\n  ret double %y\\n}"
kind = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)
before = engine.compile_module(text, {}, exports=["f"])
busy = True
def compile_forever():
    while busy:
        engine.object_code(text, 2)
thread = threading.Thread(target=compile_forever)
thread.start()
for _ in range(10):
    pid = os.fork()
    if pid == 0:
        after = engine.compile_module(text, {}, exports=["f"])
        sums = kind(before.address("f"))(1.0), kind(after.address("f"))(2.0)
        os._exit(0 if sums == (2.0, 3.0) else 1)
    assert os.waitpid(pid, 0)[1] == 0
busy = False
thread.join()
print(kind(before.address("f"))(1.0))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_fork_while_another_thread_compiles() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "2.0"), done.stderr


def test_import_compiles_nothing_and_loads_no_scipy() -> None:
    code = (
        "import sys; from tapec.codegen import engine, libraries, abi, callable_type; "
        "print(engine._host, callable_type._runtime, 'scipy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["None", "None", "False"]


# ---- symbols -------------------------------------------------------------------------------------


def test_libm_and_cpython_and_numpy_symbols_resolve() -> None:
    found = libraries.resolve(
        ["sin", "memcpy", "PyFloat_Type", "PyFloat_FromDouble", "PyArray_Type", "tapec.dtype.int64"]
    )
    assert Unary(found["sin"])(0.5) == np.sin(0.5)
    assert found["PyFloat_Type"] == id(float)
    assert found["PyArray_Type"] == id(np.ndarray)
    assert found["tapec.dtype.int64"] == id(np.dtype(np.int64))


def test_numpy_table_allocates() -> None:
    address = libraries.resolve(["PyArray_New"])["PyArray_New"]
    new = ctypes.PYFUNCTYPE(
        ctypes.py_object, ctypes.py_object, ctypes.c_int, ctypes.c_void_p, ctypes.c_int,
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p,
    )(address)  # fmt: skip
    dims = (ctypes.c_ssize_t * 2)(2, 3)
    array = new(np.ndarray, 2, ctypes.addressof(dims), np.dtype("f4").num, None, None, 0, 0, None)
    assert (array.shape, array.dtype) == ((2, 3), np.float32)


def test_blas_product() -> None:
    address = libraries.resolve(["tapec.blas.dgemm"])["tapec.blas.dgemm"]
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    c = np.empty((2, 4))
    one, zero = ctypes.c_double(1), ctypes.c_double(0)
    m, n, k = ctypes.c_int(2), ctypes.c_int(4), ctypes.c_int(3)
    word = ctypes.create_string_buffer(b"N")
    # Row-major C = A B is column-major C' = B' A'.
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 13)(address)(
        *(ctypes.addressof(x) for x in (word, word, n, m, k, one)),
        *(b.ctypes.data, ctypes.addressof(n), a.ctypes.data, ctypes.addressof(k)),
        *(ctypes.addressof(zero), c.ctypes.data, ctypes.addressof(n)),
    )
    assert np.array_equal(c, a @ b)


@pytest.mark.parametrize("name", ["psi", "erfinv", "gammaln", "expit"])
def test_special_functions_by_signature(name: str) -> None:
    import scipy.special

    address = libraries.resolve([f"tapec.special.{name}.dd"])[f"tapec.special.{name}.dd"]
    function = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_int)(address)
    assert function(0.7, 0) == pytest.approx(getattr(scipy.special, name)(0.7), rel=1e-15)


def test_missing_symbols_are_named() -> None:
    with pytest.raises(libraries.SymbolError, match=r"no_such_function, tapec\.blas\.nope,"):
        libraries.resolve(["sin", "tapec.blas.nope", "no_such_function"])
    assert not libraries.available("tapec.special.psi.qq")
    assert libraries.available("cos")


def test_provided_symbol_wins() -> None:
    libraries.provide("tapec.test.symbol", 4096)
    assert libraries.resolve(["tapec.test.symbol"]) == {"tapec.test.symbol": 4096}
