"""Result objects that a variant keeps and hands out again.

A variant keeps the last two arrays of each array result, and the last tuple of floats.  When the
reference count of one shows that the caller has dropped it, nobody can tell it from a new one, and
the next call fills it again: an optimiser's loop allocates nothing and touches no fresh memory.
(Two arrays, because in ``g = f(x)`` the old ``g`` lives until the new one is there.)  CPython's
``zip`` and ``enumerate`` do the same with their tuples.

Two native functions, linked once per process, do this for the entries that ``entry`` writes:

- ``tapec.array(slots, form, descr)``: an owned reference to an array of this form, with any
  content.  ``slots`` are three words: two arrays, and the flags of an untouched one; ``form``
  holds the number of dimensions, the number of bytes, and the dimensions.
- ``tapec.floats(slot, n, values)``: an owned reference to a tuple of ``n`` floats.

Invariants
- An object is reused only if the slot owns its only reference, and an array only if nothing about
  it was changed: type, shape, dtype, flags, base; and nothing refers to it weakly.
- All slots change while the GIL is held, and no Python code runs in between.
- All arrays kept, idle or in use, are at most ``LIMIT`` bytes; beyond that arrays are not kept.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from tapec.codegen import engine, libraries
from tapec.codegen.layout import (
    BASE,
    DESCR,
    DIMS,
    FLAGS,
    HASH,
    ITEMS,
    ND,
    PAYLOAD,
    TYPE,
    WEAK,
    WORD,
)
from tapec.codegen.objects import text_object

__all__ = ["ARRAY_WORDS", "LIMIT", "SYMBOLS", "addresses", "kept_bytes", "release"]

#: Bytes of arrays that all variants together may keep.
LIMIT = 256 << 20
#: Words of the slots of an array result.
ARRAY_WORDS = 3
#: What entries may call, with its declaration.
SYMBOLS = {
    "tapec.array": "declare ptr @tapec.array(ptr, ptr, ptr)",
    "tapec.floats": "declare ptr @tapec.floats(ptr, i64, ptr)",
}

_FORGET_HASH = (
    f"""  %hash = getelementptr i8, ptr %kept, i64 {HASH}
  store i64 -1, ptr %hash"""
    if ITEMS > HASH
    else ""
)

_TEXT = f"""
@PyArray_Type = external global i8
@tapec.kept = external global i64
declare ptr @PyArray_NewFromDescr(ptr, ptr, i32, ptr, ptr, ptr, i32, ptr)
declare ptr @PyFloat_FromDouble(double)
declare ptr @PyTuple_New(i64)
declare void @Py_DecRef(ptr)
declare void @Py_IncRef(ptr)

; Whether the array is there, nobody else's, and as it was made.
define internal i1 @idle(ptr %array, ptr %form, ptr %descr, i32 %flags) nounwind {{
  %absent = icmp eq ptr %array, null
  br i1 %absent, label %no, label %counts
counts:
  %count = load i32, ptr %array
  %single = icmp eq i32 %count, 1
  br i1 %single, label %look, label %no
look:
  %type.at = getelementptr i8, ptr %array, i64 {TYPE}
  %type = load ptr, ptr %type.at
  %same.type = icmp eq ptr %type, @PyArray_Type
  %descr.at = getelementptr i8, ptr %array, i64 {DESCR}
  %its.descr = load ptr, ptr %descr.at
  %same.descr = icmp eq ptr %its.descr, %descr
  %flags.at = getelementptr i8, ptr %array, i64 {FLAGS}
  %its.flags = load i32, ptr %flags.at
  %same.flags = icmp eq i32 %its.flags, %flags
  %base.at = getelementptr i8, ptr %array, i64 {BASE}
  %base = load ptr, ptr %base.at
  %no.base = icmp eq ptr %base, null
  %weak.at = getelementptr i8, ptr %array, i64 {WEAK}
  %weak = load ptr, ptr %weak.at
  %no.weak = icmp eq ptr %weak, null
  %nd.at = getelementptr i8, ptr %array, i64 {ND}
  %its.nd = load i32, ptr %nd.at
  %nd = load i64, ptr %form
  %nd32 = trunc i64 %nd to i32
  %same.nd = icmp eq i32 %its.nd, %nd32
  %a1 = and i1 %same.type, %same.descr
  %a2 = and i1 %same.flags, %no.base
  %a3 = and i1 %no.weak, %same.nd
  %a4 = and i1 %a1, %a2
  %same = and i1 %a3, %a4
  br i1 %same, label %shape, label %no
shape:
  %dims.at = getelementptr i8, ptr %array, i64 {DIMS}
  %its.dims = load ptr, ptr %dims.at
  %dims = getelementptr i8, ptr %form, i64 {2 * WORD}
  br label %axes
axes:
  %axis = phi i64 [ 0, %shape ], [ %next, %compare ]
  %over = icmp eq i64 %axis, %nd
  br i1 %over, label %yes, label %compare
compare:
  %p = getelementptr i64, ptr %its.dims, i64 %axis
  %q = getelementptr i64, ptr %dims, i64 %axis
  %have = load i64, ptr %p
  %want = load i64, ptr %q
  %equal = icmp eq i64 %have, %want
  %next = add i64 %axis, 1
  br i1 %equal, label %axes, label %no
yes:
  ret i1 true
no:
  ret i1 false
}}

define ptr @tapec.array(ptr %slots, ptr %form, ptr %descr) nounwind {{
  %slot1 = getelementptr i8, ptr %slots, i64 {WORD}
  %flags.at = getelementptr i8, ptr %slots, i64 {2 * WORD}
  %flags = load i32, ptr %flags.at
  %a0 = load ptr, ptr %slots
  %idle0 = call i1 @idle(ptr %a0, ptr %form, ptr %descr, i32 %flags)
  br i1 %idle0, label %first, label %other
first:
  call void @Py_IncRef(ptr %a0)
  ret ptr %a0
other:
  %a1 = load ptr, ptr %slot1
  %idle1 = call i1 @idle(ptr %a1, ptr %form, ptr %descr, i32 %flags)
  br i1 %idle1, label %second, label %make
second:
  store ptr %a1, ptr %slots
  store ptr %a0, ptr %slot1
  call void @Py_IncRef(ptr %a1)
  ret ptr %a1
make:
  %nd = load i64, ptr %form
  %nd32 = trunc i64 %nd to i32
  %dims = getelementptr i8, ptr %form, i64 {2 * WORD}
  call void @Py_IncRef(ptr %descr)
  %new = call ptr @PyArray_NewFromDescr(ptr @PyArray_Type, ptr %descr, i32 %nd32, ptr %dims,
                                        ptr null, ptr null, i32 0, ptr null)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %return, label %count
count:
  ; What goes for it is of the same size; an empty slot is new weight.
  %oldest = load ptr, ptr %slot1
  %replaces = icmp ne ptr %oldest, null
  %size.at = getelementptr i8, ptr %form, i64 {WORD}
  %size = load i64, ptr %size.at
  %weight = select i1 %replaces, i64 0, i64 %size
  %total = load i64, ptr @tapec.kept
  %sum = add i64 %total, %weight
  %light = icmp sle i64 %sum, {LIMIT}
  br i1 %light, label %keep, label %return
keep:
  store i64 %sum, ptr @tapec.kept
  %new.flags.at = getelementptr i8, ptr %new, i64 {FLAGS}
  %new.flags = load i32, ptr %new.flags.at
  store i32 %new.flags, ptr %flags.at
  %newest = load ptr, ptr %slots
  store ptr %new, ptr %slots
  store ptr %newest, ptr %slot1
  call void @Py_IncRef(ptr %new)
  call void @Py_DecRef(ptr %oldest)
  ret ptr %new
return:
  ret ptr %new
}}

define ptr @tapec.floats(ptr %slot, i64 %n, ptr %values) nounwind {{
  %kept = load ptr, ptr %slot
  %absent = icmp eq ptr %kept, null
  br i1 %absent, label %make, label %counts
counts:
  %count = load i32, ptr %kept
  %single = icmp eq i32 %count, 1
  br i1 %single, label %reuse, label %make
reuse:
  call void @Py_IncRef(ptr %kept)
{_FORGET_HASH}
  br label %fill
make:
  %new = call ptr @PyTuple_New(i64 %n)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %none, label %swap
swap:
  ; Allocating may have run a collection, and that a call of this function.
  %old = load ptr, ptr %slot
  store ptr %new, ptr %slot
  call void @Py_IncRef(ptr %new)
  call void @Py_DecRef(ptr %old)
  br label %fill
fill:
  %tuple = phi ptr [ %kept, %reuse ], [ %new, %swap ]
  %items = getelementptr i8, ptr %tuple, i64 {ITEMS}
  br label %item
item:
  %i = phi i64 [ 0, %fill ], [ %i.next, %done ]
  %over = icmp eq i64 %i, %n
  br i1 %over, label %filled, label %take
take:
  %value.at = getelementptr double, ptr %values, i64 %i
  %value = load double, ptr %value.at
  %at = getelementptr ptr, ptr %items, i64 %i
  %float = load ptr, ptr %at
  %empty = icmp eq ptr %float, null
  br i1 %empty, label %box, label %owned
owned:
  %float.count = load i32, ptr %float
  %ours = icmp eq i32 %float.count, 1
  br i1 %ours, label %write, label %box
write:
  %payload = getelementptr i8, ptr %float, i64 {PAYLOAD}
  store double %value, ptr %payload
  br label %done
box:
  %boxed = call ptr @PyFloat_FromDouble(double %value)
  %no.memory = icmp eq ptr %boxed, null
  br i1 %no.memory, label %undo, label %exchange
exchange:
  store ptr %boxed, ptr %at
  call void @Py_DecRef(ptr %float)
  br label %done
done:
  %i.next = add i64 %i, 1
  br label %item
filled:
  ret ptr %tuple
undo:
  ; A tuple with empty items must not stay.
  store ptr null, ptr %slot
  call void @Py_DecRef(ptr %tuple)
  call void @Py_DecRef(ptr %tuple)
  ret ptr null
none:
  ret ptr null
}}
"""
_USED = (
    "PyArray_NewFromDescr", "PyArray_Type", "PyFloat_FromDouble", "PyTuple_New", "Py_DecRef",
    "Py_IncRef",
)  # fmt: skip

_kept = ctypes.c_int64(0)
_dec_ref = ctypes.pythonapi.Py_DecRef
_dec_ref.restype = None
_dec_ref.argtypes = [ctypes.c_void_p]


@functools.cache
def addresses() -> dict[str, int]:
    """The addresses of ``SYMBOLS``, linked at the first use and never unloaded."""
    used = {**libraries.resolve(_USED), "tapec.kept": ctypes.addressof(_kept)}
    library = engine.link(text_object(_TEXT, 1), used, list(SYMBOLS)).keep_forever()
    return {name: library.address(name) for name in SYMBOLS}


def kept_bytes() -> int:
    """Bytes of all arrays that are kept now, idle or in use."""
    return _kept.value


def release(data: Any, slots: dict[int, int | None]) -> None:
    """Let go what a variant's data block keeps: at each word of ``slots`` a pair of arrays of so
    many bytes, or, for None, a tuple."""
    # Nothing between reading and clearing a slot lets another thread in.
    for word, size in slots.items():
        for at in (word,) if size is None else (word, word + 1):
            kept, data[at] = data[at], 0
            if kept:
                if size is not None:
                    _kept.value -= size
                _dec_ref(kept)
