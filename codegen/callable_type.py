"""``NativeCallable``: the Python type whose instances are called straight into native code.

It is a heap type with a vectorcall slot, made with ``PyType_FromSpec`` through ``ctypes``, because
a class with ``__call__`` costs 30-100 ns per call and a builtin has no ``__dict__``.  An instance
holds

- ``vectorcall``: the address that a call jumps to, at first a shim that calls ``slow``;
- ``slow``: a Python callable that can serve every call;
- ``keep``: a list of whatever must live as long as the instance, such as loaded code;
- a ``__dict__`` and weak references.

Invariant: native entries run only while their code is alive.  ``keep`` only grows, cannot be
reached from Python, and is cleared by the garbage collector only after ``vectorcall`` was reset.

Methods and properties are added by setting attributes of the type; instances bind like functions
when they are class attributes.

>>> f = new_callable(lambda *args, **kwargs: (args, kwargs))
>>> f(1, a=2)
((1,), {'a': 2})
>>> type(f).twice = lambda self, x: (self(x), self(x))
>>> f.twice(1)
(((1,), {}), ((1,), {}))
>>> del type(f).twice
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from tapec.codegen import engine, libraries
from tapec.codegen.objects import text_object

__all__ = [
    "SLOW_OFFSET", "VECTORCALL_OFFSET", "callable_type", "current_entry", "install", "keepalives",
    "new_callable", "set_entry", "slow_entry", "slow_of",
]  # fmt: skip

# Where the fields of an instance are; a PyObject header has a different size in free-threaded
# builds, so nothing here is a literal.
VECTORCALL_OFFSET = object.__basicsize__
_WORD = ctypes.sizeof(ctypes.c_void_p)
SLOW_OFFSET = VECTORCALL_OFFSET + _WORD
_KEEP_OFFSET = VECTORCALL_OFFSET + 2 * _WORD
_DICT_OFFSET = VECTORCALL_OFFSET + 3 * _WORD
_WEAK_OFFSET = VECTORCALL_OFFSET + 4 * _WORD
_SIZE = VECTORCALL_OFFSET + 5 * _WORD

# Native code that every instance may need; it is never unloaded.
_RUNTIME = f"""
@PyExc_ReferenceError = external global ptr
@_Py_NoneStruct = external global i8
@gone = private constant [38 x i8] c"the native function was already freed\\00"
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare void @PyErr_SetString(ptr, ptr)
declare ptr @PyMethod_New(ptr, ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)

define ptr @tapec.slow(ptr %self, ptr %args, i64 %nargsf, ptr %kwnames) nounwind {{
  %slot = getelementptr i8, ptr %self, i64 {SLOW_OFFSET}
  %slow = load ptr, ptr %slot
  %dead = icmp eq ptr %slow, null
  br i1 %dead, label %error, label %forward
forward:
  %result = musttail call ptr @PyObject_Vectorcall(ptr %slow, ptr %args, i64 %nargsf, ptr %kwnames)
  ret ptr %result
error:
  %class = load ptr, ptr @PyExc_ReferenceError
  call void @PyErr_SetString(ptr %class, ptr @gone)
  ret ptr null
}}

define ptr @tapec.bind(ptr %self, ptr %instance, ptr %owner) nounwind {{
  %absent = icmp eq ptr %instance, null
  %none = icmp eq ptr %instance, @_Py_NoneStruct
  %plain = or i1 %absent, %none
  br i1 %plain, label %function, label %method
function:
  call void @Py_IncRef(ptr %self)
  ret ptr %self
method:
  %bound = tail call ptr @PyMethod_New(ptr %self, ptr %instance)
  ret ptr %bound
}}

define i32 @tapec.clear(ptr %self) nounwind {{
  %entry = getelementptr i8, ptr %self, i64 {VECTORCALL_OFFSET}
  store ptr @tapec.slow, ptr %entry
  %slow.slot = getelementptr i8, ptr %self, i64 {SLOW_OFFSET}
  %slow = load ptr, ptr %slow.slot
  store ptr null, ptr %slow.slot
  %keep.slot = getelementptr i8, ptr %self, i64 {_KEEP_OFFSET}
  %keep = load ptr, ptr %keep.slot
  store ptr null, ptr %keep.slot
  %dict.slot = getelementptr i8, ptr %self, i64 {_DICT_OFFSET}
  %dict = load ptr, ptr %dict.slot
  store ptr null, ptr %dict.slot
  call void @Py_DecRef(ptr %slow)
  call void @Py_DecRef(ptr %dict)
  call void @Py_DecRef(ptr %keep)
  ret i32 0
}}
"""
_RUNTIME_SYMBOLS = (
    "PyExc_ReferenceError", "_Py_NoneStruct", "PyObject_Vectorcall", "PyErr_SetString",
    "PyMethod_New", "Py_IncRef", "Py_DecRef",
)  # fmt: skip


class _Member(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_int),
        ("offset", ctypes.c_ssize_t),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


class _GetSet(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("get", ctypes.c_void_p),
        ("set", ctypes.c_void_p),
        ("doc", ctypes.c_char_p),
        ("closure", ctypes.c_void_p),
    ]


class _Slot(ctypes.Structure):
    _fields_ = [("slot", ctypes.c_int), ("function", ctypes.c_void_p)]


class _Spec(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("basicsize", ctypes.c_int),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", ctypes.POINTER(_Slot)),
    ]


# Numbers from CPython's stable ABI: typeslots.h, object.h, structmember.h.
_TP_CALL, _TP_CLEAR, _TP_DESCR_GET, _TP_DOC = 50, 51, 54, 56
_TP_TRAVERSE, _TP_MEMBERS, _TP_GETSET = 71, 72, 73
_DISALLOW_INSTANTIATION, _HAVE_VECTORCALL, _HAVE_GC, _METHOD_DESCRIPTOR = (
    1 << 7, 1 << 11, 1 << 14, 1 << 17,
)  # fmt: skip
_T_OBJECT_EX, _T_PYSSIZET, _READONLY = 16, 19, 1


class _Runtime:
    """The type, the addresses of its native functions, and the memory its slots point to."""

    def __init__(self) -> None:
        self.library = engine.link(
            text_object(_RUNTIME, 1),
            libraries.resolve(_RUNTIME_SYMBOLS),
            ["tapec.slow", "tapec.bind", "tapec.clear"],
        ).keep_forever()
        self.slow = self.library.address("tapec.slow")
        api = libraries.resolve(
            ["PyVectorcall_Call", "PyObject_GenericGetDict", "PyObject_GenericSetDict"]
        )
        self.members = (_Member * 6)(
            _Member(b"__vectorcalloffset__", _T_PYSSIZET, VECTORCALL_OFFSET, _READONLY, None),
            _Member(b"__dictoffset__", _T_PYSSIZET, _DICT_OFFSET, _READONLY, None),
            _Member(b"__weaklistoffset__", _T_PYSSIZET, _WEAK_OFFSET, _READONLY, None),
            # As object members these two are visited, and cleared on deallocation, by the generic
            # heap type functions.
            _Member(b"_slow", _T_OBJECT_EX, SLOW_OFFSET, 0, None),
            _Member(b"_keep", _T_OBJECT_EX, _KEEP_OFFSET, 0, None),
        )
        self.getset = (_GetSet * 2)(
            _GetSet(
                b"__dict__",
                api["PyObject_GenericGetDict"],
                api["PyObject_GenericSetDict"],
                None,
                None,
            )
        )
        self.doc = b"A function compiled to native code."
        self.slots = (_Slot * 8)(
            _Slot(_TP_DOC, ctypes.cast(ctypes.c_char_p(self.doc), ctypes.c_void_p).value),
            _Slot(_TP_CALL, api["PyVectorcall_Call"]),
            _Slot(_TP_TRAVERSE, _generic_traverse()),
            _Slot(_TP_CLEAR, self.library.address("tapec.clear")),
            _Slot(_TP_DESCR_GET, self.library.address("tapec.bind")),
            _Slot(_TP_MEMBERS, ctypes.addressof(self.members)),
            _Slot(_TP_GETSET, ctypes.addressof(self.getset)),
        )
        self.spec = _Spec(
            b"tapec.codegen.NativeCallable",
            _SIZE,
            0,
            _HAVE_GC | _HAVE_VECTORCALL | _METHOD_DESCRIPTOR | _DISALLOW_INSTANTIATION,
            self.slots,
        )
        from_spec = ctypes.pythonapi.PyType_FromSpec
        from_spec.restype = ctypes.py_object
        from_spec.argtypes = [ctypes.POINTER(_Spec)]
        self.type: Any = from_spec(ctypes.byref(self.spec))
        # The setters stay ours: reachable attributes would let a program free running code.
        self.set_slow = self.type._slow.__set__
        self.get_slow = self.type._slow.__get__
        self.set_keep = self.type._keep.__set__
        self.get_keep = self.type._keep.__get__
        del self.type._slow, self.type._keep
        # As for the code: instances may be called until the very end of the process.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        self.allocate = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_ssize_t)(
            ("PyType_GenericAlloc", ctypes.pythonapi)
        )


def _generic_traverse() -> int:
    """CPython's ``subtype_traverse``: visits object members, ``__dict__`` and the type."""

    class Model:
        pass

    get_slot = ctypes.pythonapi.PyType_GetSlot
    get_slot.restype = ctypes.c_void_p
    get_slot.argtypes = [ctypes.py_object, ctypes.c_int]
    address: int = get_slot(Model, _TP_TRAVERSE)
    return address


_lock = threading.Lock()
_runtime: _Runtime | None = None


def _get_runtime() -> _Runtime:
    global _runtime
    if _runtime is None:
        with _lock:
            if _runtime is None:
                _runtime = _Runtime()
    return _runtime


def callable_type() -> Any:
    """The type itself; the first use creates it (a few milliseconds)."""
    return _get_runtime().type


def slow_entry() -> int:
    """The address of the vectorcall function that forwards a call to ``slow``."""
    return _get_runtime().slow


def new_callable(slow: Callable[..., Any]) -> Any:
    """A callable that hands every call to ``slow`` until native code is installed."""
    runtime = _get_runtime()
    self = runtime.allocate(runtime.type, 0)
    runtime.set_slow(self, slow)
    runtime.set_keep(self, [])
    set_entry(self, runtime.slow)
    return self


def _checked(obj: Any) -> _Runtime:
    runtime = _get_runtime()
    # Writing the fields of any other object would corrupt memory.
    if type(obj) is not runtime.type:
        raise TypeError(f"expected a {runtime.type.__name__}, got {type(obj).__name__}")
    return runtime


def slow_of(obj: Any) -> Callable[..., Any]:
    """The Python callable behind ``obj``."""
    found: Callable[..., Any] = _checked(obj).get_slow(obj)
    return found


def keepalives(obj: Any) -> list[Any]:
    """What lives as long as ``obj``.  Add to it; removing native code in use would crash."""
    found: list[Any] = _checked(obj).get_keep(obj)
    return found


def current_entry(obj: Any) -> int:
    """The address that a call of ``obj`` jumps to."""
    _checked(obj)
    return ctypes.c_void_p.from_address(id(obj) + VECTORCALL_OFFSET).value or 0


def set_entry(obj: Any, address: int) -> None:
    """Let calls of ``obj`` jump to ``address``, whose code must be among its keepalives."""
    _checked(obj)
    ctypes.c_void_p.from_address(id(obj) + VECTORCALL_OFFSET).value = address


def install(obj: Any, address: int, keepalive: object) -> None:
    """Let calls of ``obj`` jump to ``address``; ``keepalive`` and all older code stay alive."""
    keepalives(obj).append(keepalive)
    set_entry(obj, address)
