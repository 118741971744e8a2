"""Fourier transforms in native code: the loops of NumPy's own FFT (pocketfft), called in place.

``numpy.fft`` computes with generalised ufuncs, whose C loops need neither Python nor the GIL:
``loop(char **args, intp *dimensions, intp *steps, void *data)``.  Their addresses are read from
the ufunc object (the head of that structure is part of NumPy's ABI) and tried once on known
numbers.  Where there are none (NumPy 1), a callback that holds the GIL does the same.

Symbols: ``tapec.fft.<name>.<d|f>`` for a loop, ``tapec.fft.<name>.<d|f>.data`` for its ``data``.
"""

from __future__ import annotations

import ctypes
import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tapec.ir.core import Op

if TYPE_CHECKING:
    from tapec.codegen.kernel import KernelEmitter

__all__ = ["address_of", "emit_fourier", "nanoseconds"]

_Loop = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class _UfuncHead(ctypes.Structure):
    """What follows the object's header in ``PyUFuncObject``."""

    _fields_ = (
        ("nin", ctypes.c_int),
        ("nout", ctypes.c_int),
        ("nargs", ctypes.c_int),
        ("identity", ctypes.c_int),
        ("functions", ctypes.POINTER(ctypes.c_void_p)),
        ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("ntypes", ctypes.c_int),
    )


def _sizes(name: str, nin: int, nout: int) -> int:
    """The length of the real side of a real transform."""
    return {"rfft_n_even": 2 * nout - 2, "rfft_n_odd": 2 * nout - 1}.get(name, nout)


def _by_numpy(name: str, x: Any, nout: int) -> Any:
    if name == "fft":
        return np.fft.fft(x)
    if name == "ifft":
        return np.fft.ifft(x, norm="forward")
    if name == "irfft":
        return np.fft.irfft(x, nout, norm="forward")
    return np.fft.rfft(x)


@functools.cache
def _loop(name: str, letter: str) -> tuple[int, int, Any]:
    """The address of a loop, of its data, and what keeps them alive."""
    found = _own_loop(name, letter)
    if found is not None and _works(name, letter, *found):
        return (*found, None)
    callback = _callback(name, letter)
    address = ctypes.cast(callback, ctypes.c_void_p).value
    assert address is not None
    return address, id(None), callback


def _own_loop(name: str, letter: str) -> tuple[int, int] | None:
    try:
        from numpy.fft import _pocketfft_umath as module  # type: ignore[attr-defined]

        ufunc = getattr(module, name)
        head = _UfuncHead.from_address(id(ufunc) + object.__basicsize__)
        if (head.nin, head.nout, head.nargs, head.ntypes) != (2, 1, 3, ufunc.ntypes):
            return None
        for k, signature in enumerate(ufunc.types):
            if signature.replace("D", "d").replace("F", "f") == f"{letter}{letter}->{letter}":
                # a loop without data does not look at it: any address will do
                data = int(head.data[k] or 0) if head.data else 0
                return int(head.functions[k] or 0), data or id(None)
    except (ImportError, AttributeError):
        pass
    return None


def _works(name: str, letter: str, address: int, data: int) -> bool:
    """Whether the loop transforms six numbers as NumPy does."""
    if not address:
        return False
    real = np.dtype(letter)
    pair = np.result_type(real, np.complex64)
    n = 5 if name == "rfft_n_odd" else 6
    x: Any = np.cos(np.arange(1.0, n + 1)).astype(real)
    if not name.startswith("rfft"):
        x = (x[: n // 2 + 1 if name == "irfft" else n]).astype(pair)
    want = _by_numpy(name, x, n)
    out = np.zeros(want.shape, real if name == "irfft" else pair)
    factor = np.ones((), real)
    args = (ctypes.c_void_p * 3)(x.ctypes.data, factor.ctypes.data, out.ctypes.data)
    sizes = (ctypes.c_ssize_t * 3)(1, x.size, out.size)
    steps = (ctypes.c_ssize_t * 5)(x.nbytes, 0, out.nbytes, x.itemsize, out.itemsize)
    _Loop(address)(args, sizes, steps, data)
    return bool(np.allclose(out, want, rtol=1e-5))


def _callback(name: str, letter: str) -> Any:
    real = np.dtype(letter)
    pair = np.result_type(real, np.complex64)
    given = real if name.startswith("rfft") else pair
    made = real if name == "irfft" else pair

    def run(args: int, sizes: int, steps: int, data: int) -> None:
        source, _, target = (ctypes.c_void_p * 3).from_address(args)
        outer, nin, nout = (ctypes.c_ssize_t * 3).from_address(sizes)
        si, _, so, step_in, step_out = (ctypes.c_ssize_t * 5).from_address(steps)
        size_in = (outer - 1) * si + (nin - 1) * step_in + given.itemsize
        size_out = (outer - 1) * so + (nout - 1) * step_out + made.itemsize
        memory_in: Any = (ctypes.c_char * size_in).from_address(source or 0)
        memory_out: Any = (ctypes.c_char * size_out).from_address(target or 0)
        x = np.ndarray((outer, nin), given, memory_in, 0, (si, step_in))
        out = np.ndarray((outer, nout), made, memory_out, 0, (so, step_out))
        out[...] = _by_numpy(name, x, _sizes(name, nin, nout))

    return _Loop(run)


def address_of(rest: str) -> int | None:
    """The address of ``tapec.fft.<rest>``."""
    name, letter, *data = rest.split(".")
    return _loop(name, letter)[1 if data else 0]


def _routine(op: Op) -> str:
    if op.name == "fft":
        return "ifft" if op.attrs["inverse"] else "fft"
    if op.name == "irfft":
        return "irfft"
    odd = op.operands[0].type.shape[op.attrs["axis"]] % 2
    return "rfft_n_odd" if odd else "rfft_n_even"


def _layout(op: Op) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
    """Blocks before the axis, elements behind it, and (length, bytes of one element) of operand
    and result."""
    (x,), axis = op.operands, op.attrs["axis"]
    before = math.prod(x.type.shape[:axis])
    pairs = op.name != "rfft"
    behind = math.prod(x.type.shape[axis + 1 : x.type.ndim - pairs])
    size = x.type.dtype.itemsize
    z = op.results[0]
    one = (x.type.shape[axis], size * (2 if pairs else 1))
    other = (z.type.shape[axis], size * (1 if op.name == "irfft" else 2))
    return before, behind, one, other


def nanoseconds(op: Op) -> float:
    """A rough estimate."""
    x = op.operands[0].type
    return 0.5 * x.size * (1 + math.log2(max(x.shape[op.attrs["axis"]], 2)))


def emit_fourier(k: KernelEmitter, op: Op) -> None:
    """One call for all transforms along the last axis, else one for each block."""
    (x,), (z,), em = op.operands, op.results, k.em
    if not x.type.size:
        return
    before, behind, (nin, one), (nout, other) = _layout(op)
    if behind == 1:  # lines behind each other
        outer, turns = before, 1
        steps = (nin * one, 0, nout * other, one, other)
    else:  # lines beside each other, block by block
        outer, turns = behind, before
        steps = (one, 0, other, behind * one, behind * other)
    letter = "d" if x.type.dtype.bits == 64 else "f"
    symbol = f"tapec.fft.{_routine(op)}.{letter}"
    data = f"{symbol}.data"
    k.symbols.update((symbol, data))
    k.declares.add(f"declare void @{symbol}(ptr, ptr, ptr, ptr)")
    k.declares.add(f"@{data} = external global i8")
    sizes_at = _numbers(k, (outer, nin, nout))
    steps_at = _numbers(k, steps)
    source, target = k.pointer(x), k.pointer(z)
    if turns > 1:
        i = k.open_loop(turns)
        source = em.let(
            f"getelementptr i8, ptr {source}, i64 {em.let(f'mul i64 {i}, {nin * behind * one}')}"
        )
        target = em.let(
            f"getelementptr i8, ptr {target}, i64 {em.let(f'mul i64 {i}, {nout * behind * other}')}"
        )
    table = k.alloca("[3 x ptr]")
    for j, address in enumerate((source, k.blas_real(1.0, x.type.dtype), target)):
        at = em.let(f"getelementptr ptr, ptr {table}, i64 {j}")
        em.line(f"store ptr {address}, ptr {at}")
    em.line(f"call void @{symbol}(ptr {table}, ptr {sizes_at}, ptr {steps_at}, ptr @{data})")
    if turns > 1:
        k.close_loop()


def _numbers(k: KernelEmitter, values: tuple[int, ...]) -> str:
    """The address of constant 64-bit integers."""
    text = ", ".join(f"i64 {n}" for n in values)
    name = "ints." + ".".join(map(str, values))
    return k.constant_global(name, f"private unnamed_addr constant [{len(values)} x i64] [{text}]")
