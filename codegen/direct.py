"""``native``: run an IR function as machine code, without the front end.

For development and tests: no argument checks, no native entry, results are new arrays.

>>> from tapec.ir import F64, Builder, Type
>>> b = Builder()
>>> x = b.param(Type(F64, (3,)), "x")
>>> [y.tolist() for y in native(b.function("square", [b.mul(x, x)]))([[1.0, 2.0, 3.0]])]
[[1.0, 4.0, 9.0]]
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapec.codegen import engine, libraries
from tapec.codegen.kernel import compile_kernel
from tapec.ir.core import Function
from tapec.ir.interp import GuardFailed

__all__ = ["native"]


def native(
    fn: Function, opt: int | None = None
) -> Callable[[Sequence[Any]], list[np.ndarray[Any, Any]]]:
    """Compile ``fn``; the callable takes a list of arrays and returns a list of arrays.

    Outputs and workspace start as garbage, so that reading what was not written shows.
    Raises ``GuardFailed`` with the number of the guard (from 0).
    """
    source = compile_kernel(fn)
    text = source.text.replace("define internal i32 @kernel(", "define i32 @kernel(")
    library = engine.compile_module(
        text,
        libraries.resolve(source.symbols),
        opt=source.opt if opt is None else opt,
        exports=["kernel"],
    )
    pointer = ctypes.c_void_p
    entry = ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer, pointer)(library.address("kernel"))

    def call(arrays: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
        ins = [
            np.ascontiguousarray(a, p.type.dtype.np).reshape(p.type.shape)
            for a, p in zip(arrays, fn.params, strict=True)
        ]
        outs = [np.full(r.type.shape, 77, r.type.dtype.np) for r in fn.results]
        work = np.full(source.workspace_bytes + 128, 0x55, np.uint8)
        p_in = (pointer * (len(ins) + 1))(*[a.ctypes.data for a in ins])
        p_out = (pointer * (len(outs) + 1))(*[a.ctypes.data for a in outs])
        at = (work.ctypes.data + 63) // 64 * 64
        code = entry(ctypes.addressof(p_in), ctypes.addressof(p_out), at)
        if code:
            raise GuardFailed(code - 1)
        return outs

    call.library = library  # type: ignore[attr-defined]  # keeps the code loaded
    return call
