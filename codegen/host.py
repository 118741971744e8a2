"""``host_call`` in native code: a callback that holds the GIL while Python runs.

The symbol of a call spells the function's token and the types of operands and results, so that
object code from another process resolves it without knowing more.  The callback returns
nonzero if Python raised; the kernel then fails as at a guard, and the exception waits for
``take_error`` on the same thread.

A thread that has released the GIL acquires it for the callback (``ctypes`` does).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tapec.ir.core import Op, Type
from tapec.ir.host import FUNCTIONS, call_host
from tapec.ir.parser import parse_type

if TYPE_CHECKING:
    from tapec.codegen.kernel import KernelEmitter

__all__ = ["HOST_FAILED", "address_of", "emit_host_call", "take_error"]

#: What a kernel returns when a host function raised.
HOST_FAILED = 1 << 30

_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
#: symbol → callback; never freed, since object code may refer to it as long as the process lives
_callbacks: dict[str, Any] = {}


class _Pending(threading.local):
    error: BaseException | None = None


_pending = _Pending()


def take_error() -> BaseException | None:
    """The exception of a host function that made this thread's last kernel fail."""
    error, _pending.error = _pending.error, None
    return error


def _symbol(op: Op) -> str:
    parts = (
        op.attrs["token"],
        ";".join(str(v.type) for v in op.operands),
        ";".join(op.attrs["types"]),
    )
    return "tapec.host." + "|".join(parts).encode().hex()


def address_of(rest: str) -> int | None:
    """The address of the callback whose symbol ends with ``rest``; None if there is none here."""
    found = _callbacks.get(rest)
    if found is None:
        token, operands, results = bytes.fromhex(rest).decode().rsplit("|", 2)
        if token not in FUNCTIONS:
            return None
        found = _callback(token, _types(operands), _types(results))
        found = _callbacks.setdefault(rest, found)
    return ctypes.cast(found, ctypes.c_void_p).value


def _types(text: str) -> list[Type]:
    return [parse_type(t) for t in text.split(";")] if text else []


def _array(address: int | None, t: Type) -> np.ndarray[Any, Any]:
    """The memory of a value; an array without elements has none."""
    if not t.size:
        return np.empty(t.shape, t.dtype.np)
    memory: Any = (ctypes.c_char * t.nbytes).from_address(address or 0)
    array: np.ndarray[Any, Any] = np.frombuffer(memory, t.dtype.np)
    return array.reshape(t.shape)


def _callback(token: str, operands: Sequence[Type], results: Sequence[Type]) -> Any:
    n, m = len(operands), len(results)

    def run(inputs: int, outputs: int) -> int:
        try:
            given = (ctypes.c_void_p * n).from_address(inputs) if n else ()
            arrays = []
            for address, t in zip(given, operands):
                array = _array(address, t)
                array.flags.writeable = False
                arrays.append(array)
            found = call_host(token, arrays, results)
            places = (ctypes.c_void_p * m).from_address(outputs) if m else ()
            for address, t, value in zip(places, results, found):
                if t.size:
                    ctypes.memmove(address or 0, value.ctypes.data, t.nbytes)
        except BaseException as error:  # also KeyboardInterrupt: it must not get lost here
            _pending.error = error
            return 1
        return 0

    return _Callback(run)


def emit_host_call(k: KernelEmitter, op: Op) -> None:
    """Call the function on the addresses of operands and results."""
    em = k.em
    symbol = _symbol(op)
    k.symbols.add(symbol)
    k.declares.add(f"declare i32 @{symbol}(ptr, ptr)")
    tables = []
    for values in (op.operands, op.results):
        table = k.alloca(f"[{max(len(values), 1)} x ptr]")
        for i, v in enumerate(values):
            at = em.let(f"getelementptr ptr, ptr {table}, i64 {i}")
            em.line(f"store ptr {k.pointer(v)}, ptr {at}")
        tables.append(table)
    code = em.let(f"call i32 @{symbol}(ptr {tables[0]}, ptr {tables[1]})")
    fine = em.let(f"icmp eq i32 {code}, 0")
    go_on, fail = k.label(), k.label()
    em.line(f"br i1 {fine}, label %{go_on}, label %{fail}")
    em.label(fail)
    em.line(f"ret i32 {HOST_FAILED}")
    k.start_block(go_on)
