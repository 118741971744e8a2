"""The native entry: from Python arguments to a kernel and back to Python results.

A variant is a kernel with a vectorcall function around it, written by ``entry``.  That checks every
argument in machine code, allocates the output arrays, runs the kernel on data pointers and boxes
the results.  Whatever it does not expect, a *miss*, goes to the next variant of the same callable,
and after the last one to the Python function ``slow`` of the callable.

Kernel ABI: ``define i32 @kernel(ptr %in, ptr %out, ptr %workspace)``.  ``%in`` holds the address
of the data of each parameter (scalars too): first the non-static arguments, then the captured
arrays; ``%out`` the same for each result.  Arrays are C-contiguous and aligned to their items, a
bool is a byte.  A nonzero return value means that a guard failed: outputs are dropped, and the call
is a miss.

Invariants
- A variant's code, data block and the variants that its misses go to live as long as it does.
- A chain of variants always ends at the slow function, also while another thread relinks it.

>>> from tapec.ir.core import F64, Type
>>> spec = EntrySpec((Arg("float", Type(F64)),), (Result("float", Type(F64)),), 0)
>>> text = '''define internal i32 @kernel(ptr %in, ptr %out, ptr %ws) alwaysinline {
...   %p = load ptr, ptr %in
...   %x = load double, ptr %p
...   %y = fmul double %x, %x
...   %q = load ptr, ptr %out
...   store double %y, ptr %q
...   ret i32 0
... }'''
>>> f = new_callable(lambda x: "slow")
>>> link_chain(f, [build_variant(text, spec, ())])
>>> f(3.0), f(3)
(9.0, 'slow')
"""

from __future__ import annotations

import ctypes
import functools
import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tapec.codegen import engine, libraries, results
from tapec.codegen.callable_type import (
    SLOW_OFFSET,
    callable_type,
    install,
    keepalives,
    new_callable,
    set_entry,
    slow_entry,
    slow_of,
)
from tapec.codegen.entry import (
    FIRST_WORD,
    KEPT_BYTES,
    NEXT_WORD,
    STACK_BYTES,
    WORKSPACE_WORD,
    Arg,
    EntrySpec,
    EntryText,
    ReadKind,
    Result,
    Structure,
    entry_text,
)
from tapec.codegen.layout import LayoutError, check_layout
from tapec.codegen.objects import COUNTDOWN, exported, text_object

__all__ = [
    "Arg", "EntrySpec", "EntryText", "LayoutError", "MISS", "NEVER", "Read", "Result",
    "SLOW_OFFSET", "Structure", "Variant", "build_variant", "callable_type", "check_layout",
    "entry_text", "forget_entries", "install", "keepalives", "link_chain", "load_variant",
    "new_callable", "release_memory", "slow_of", "trace_depth",
]  # fmt: skip

#: A number of calls that is not reached.
NEVER = 1 << 62
#: While nonzero, every native entry misses, so that functions called by a function that is being
#: traced are traced too.  Process-wide: raise it only for the duration of a trace.
trace_depth = ctypes.c_int(0)


class _Miss:
    """The type of ``MISS``."""

    def __repr__(self) -> str:
        return "MISS"


#: What ``Variant.call`` returns when the arguments do not fit or a guard failed.
MISS = _Miss()


class Read(NamedTuple):
    """Something that the user's code read elsewhere; see ``ReadKind``.

    ``value`` is the expected object (``absent``: there was none under that key), the number of
    items, or a contiguous copy of a contiguous array.  A call from outside runs the variant only
    while nothing has changed.
    """

    kind: ReadKind
    owner: Any
    key: object
    value: Any
    absent: bool = False

    def words(self) -> list[int]:
        """What the variant's data block says of it."""
        if self.kind == "bytes":
            return [self.owner.ctypes.data, self.owner.nbytes, self.value.ctypes.data]
        if self.kind == "size":
            return [id(self.owner), self.value]
        key = [id(self.key)] if self.kind == "dict" else []
        return [id(self.owner), *key, 0 if self.absent else id(self.value)]


class Variant:
    """Loaded native code for one signature: an entry and its data block.

    It may be linked into the chain of one callable, and ``call`` runs it outside of the chain.
    """

    __slots__ = (
        "__weakref__", "_caller", "_captured", "_data", "_first_capture", "_following", "_kept",
        "_reads", "_statics", "address", "countdown", "library", "spec",
    )  # fmt: skip

    def __init__(
        self, library: engine.Library, spec: EntrySpec, data: Any, kept: dict[int, int | None]
    ) -> None:
        self.library = library
        self.spec = spec
        self.address = library.address("entry")
        self._data = data
        self._statics = [a.value for a in spec.args if a.kind == "static"]
        self._captured: list[Any] = [None] * spec.captures
        self._first_capture = FIRST_WORD + len(self._statics)
        self._reads: list[Read] = []
        self._caller: Any = None
        #: calls left until the kernel misses to be promoted; None: it does not count them
        self.countdown: ctypes.c_int64 | None = None
        self._following: Variant | None = None
        data[NEXT_WORD] = slow_entry()
        for i, value in enumerate(self._statics):
            data[FIRST_WORD + i] = id(value)
        self._kept = kept
        if kept or STACK_BYTES < spec.workspace_bytes <= KEPT_BYTES:
            weakref.finalize(self, _let_go, data, kept).atexit = False
            _keeping.add(self)

    def set_next(self, following: Variant | None) -> None:
        """Where a miss continues: another variant, or the slow function of the callable."""
        self._data[NEXT_WORD] = slow_entry() if following is None else following.address
        self._following = following

    def set_captured(self, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
        """Give the captured arrays; they are kept alive and read at every call.

        Their types must be those the kernel was compiled for.  Not while a call may be running
        without the GIL: it could still read an array that this lets go.
        """
        if len(arrays) != self.spec.captures:
            raise ValueError(f"expected {self.spec.captures} captured arrays, got {len(arrays)}")
        for array in arrays:
            if not (array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative):
                raise ValueError("a captured array must be contiguous, aligned and native")
        for i, array in enumerate(arrays):
            self._data[self._first_capture + i] = array.ctypes.data
        self._captured[:] = arrays

    def set_reads(self, reads: Sequence[Read]) -> None:
        """What must be unchanged, in the order of ``EntrySpec.reads``; kept alive."""
        if tuple(r.kind for r in reads) != self.spec.reads:
            raise ValueError(f"expected reads of {self.spec.reads}, got {reads}")
        self._reads = list(reads)
        at = self._first_capture + self.spec.captures
        for read in reads:
            words = read.words()
            self._data[at : at + len(words)] = words
            at += len(words)

    def call(self, *args: object) -> Any:
        """Run on exactly matching arguments, also during a trace; ``MISS`` if they do not match
        or a guard failed."""
        caller = self._caller
        if caller is None:
            caller = new_callable(lambda *args, **kwargs: MISS)
            set_entry(caller, self.library.address("direct"))
            self._caller = caller
        return caller(*args)

    def __repr__(self) -> str:
        return f"<Variant {', '.join(_described(a) for a in self.spec.args)}>"


def _described(arg: Arg) -> str:
    return repr(arg.value if arg.kind == "static" else arg.type)


#: Variants that may keep memory between calls.
_keeping: weakref.WeakSet[Variant] = weakref.WeakSet()
_raw_free = ctypes.pythonapi.PyMem_RawFree
_raw_free.restype = None
_raw_free.argtypes = [ctypes.c_void_p]


def _let_go(data: Any, kept: dict[int, int | None]) -> None:
    block, data[WORKSPACE_WORD] = data[WORKSPACE_WORD], 0
    _raw_free(block)
    results.release(data, kept)


def release_memory() -> None:
    """Free the workspaces and results that variants keep for their next calls.

    Entries take and return them while they hold the GIL, so none is in use here.
    """
    for variant in list(_keeping):
        _let_go(variant._data, variant._kept)


def build_variant(
    kernel_text: str,
    spec: EntrySpec,
    symbols: Iterable[str],
    opt: int = 2,
    captured: Sequence[np.ndarray[Any, Any]] = (),
    reads: Sequence[Read] = (),
) -> Variant:
    """Compile and load a kernel, with an entry for ``spec``; see ``load_variant``.  ``opt`` is the
    level for the kernel.
    """
    code = engine.object_code(exported(kernel_text), opt)
    return load_variant(code, spec, symbols, captured, reads)


def load_variant(
    kernel_code: bytes,
    spec: EntrySpec,
    symbols: Iterable[str],
    captured: Sequence[np.ndarray[Any, Any]] = (),
    reads: Sequence[Read] = (),
    calls: int = NEVER,
) -> Variant:
    """Load the object code of a kernel, with an entry for ``spec``.

    ``symbols`` are the external names that the kernel uses (see ``libraries``); ``reads`` must
    be unchanged for a call from outside.  The entry is compiled separately: it gains nothing from
    a higher level, which would take longer than most kernels, and functions of equal signatures
    can share it.  ``calls``: after how many calls a kernel that counts them misses once.
    """
    check_layout()
    symbols = set(symbols)
    entry = entry_text(spec)
    data = (ctypes.c_uint64 * entry.data_words)()
    addresses = libraries.resolve(
        name for name in (*entry.symbols, *symbols) if name not in _OWN_SYMBOLS
    )
    addresses |= results.addresses()
    addresses["tapec.data"] = ctypes.addressof(data)
    addresses["tapec.slow"] = slow_entry()
    addresses["tapec.trace_depth"] = ctypes.addressof(trace_depth)
    countdown = None
    if COUNTDOWN in symbols:
        countdown = ctypes.c_int64(calls)
        addresses[COUNTDOWN] = ctypes.addressof(countdown)
    code = [kernel_code, _entry_code(entry.text)]
    library = engine.link(code, addresses, ["entry", "direct"])
    variant = Variant(library, spec, data, entry.kept)
    variant.countdown = countdown
    variant.set_captured(captured)
    variant.set_reads(reads)
    return variant


@functools.lru_cache(maxsize=256)
def _entry_code(text: str) -> bytes:
    return text_object(text, 0)


def forget_entries() -> None:
    """Forget the object code of entries; those that are loaded stay."""
    _entry_code.cache_clear()


_OWN_SYMBOLS = {COUNTDOWN, "tapec.data", "tapec.slow", "tapec.trace_depth", *results.SYMBOLS}
_chain_lock = threading.Lock()


def link_chain(obj: Any, variants: Sequence[Variant]) -> None:
    """Let calls of ``obj`` try these variants in order, then its slow function.

    A variant belongs to one callable only.  All variants ever linked stay alive with ``obj``.
    The links are written from the last to the first, so that a call on its way through the old
    chain always ends at the slow function.
    """
    with _chain_lock:
        kept = keepalives(obj)
        known = set(map(id, kept))
        kept.extend(v for v in variants if id(v) not in known)
        following = None
        for variant in reversed(variants):
            variant.set_next(following)
            following = variant
        set_entry(obj, slow_entry() if following is None else following.address)
