"""What a function reads besides its arguments, and whether it has changed since the trace.

A trace bakes in every Python number, string and function that the user's code reads from
globals, closures or the attributes of its objects.  ``collect`` finds those reads by walking
code objects; ``unchanged`` compares them before a variant is reused, so that setting
``SCALE = 5`` or redefining a helper between two calls is seen.  Arrays that are inputs of the
kernel are compared by identity, small arrays that NumPy computed with by their contents.

Nothing in the standard library or in installed packages is followed: those are taken as
constant.

Invariant: ``unchanged`` looks names up and compares; it runs no user code.

>>> scale = 2.0
>>> def f(x): return scale * x
>>> reads = collect(f)
>>> unchanged(reads)
True
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from collections.abc import Iterable
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np

__all__ = ["MISSING", "SIZE", "Read", "array_reads", "collect", "is_library", "unchanged"]


class _Missing:
    """The type of ``MISSING`` (a name that is not bound) and ``SIZE`` (no name)."""


MISSING = _Missing()
SIZE = _Missing()
_SCALARS = (bool, int, float, complex, str, bytes, type(None))
_ATOMS = (*_SCALARS, np.ndarray, np.generic, type(MISSING))
#: Attributes of sparse matrices that hold their entries.
_SPARSE = {"col", "coords", "data", "indices", "indptr", "offsets", "row"}
#: Containers with more elements than this are compared by identity only.
_MAX_ITEMS = 256
_MAX_READS = 2000
#: The contents of larger arrays are taken not to change where NumPy computes with them.
MAX_ARRAY_BYTES = 1 << 16

_FOLDERS = [sysconfig.get_paths()[k] for k in ("stdlib", "platstdlib", "purelib", "platlib")]
_LIBRARIES = tuple(
    os.path.realpath(folder) + os.sep
    for folder in [*_FOLDERS, os.path.dirname(os.path.abspath(__file__))]
)


class Read(NamedTuple):
    """One value that the trace depended on.

    ``owner[name]`` of a dict, an attribute, the contents of a cell, the elements of a list
    (``name`` None), the number of items of a dict (``name`` is ``SIZE``), or the contents of
    an array (``value`` is a copy of it).
    """

    owner: Any
    name: Any
    value: Any


def unchanged(reads: tuple[Read, ...]) -> bool:
    """Whether every value is still what it was."""
    for owner, name, value in reads:
        kind = type(owner)
        if kind is CellType:
            try:
                now = owner.cell_contents
            except ValueError:
                now = MISSING
        elif kind is list:
            if len(owner) != len(value) or not all(map(_same, owner, value)):
                return False
            continue
        elif kind is dict:
            now = len(owner) if name is SIZE else owner.get(name, MISSING)
        elif kind is np.ndarray:
            if owner.tobytes() != value.tobytes():
                return False
            continue
        else:
            now = getattr(owner, name, MISSING)
        if now is not value and (value is MISSING or not _same(now, value)):
            return False
    return True


def _same(now: Any, value: Any) -> bool:
    if now is value:
        return True
    if type(now) is not type(value):
        return False
    if type(value) in _SCALARS or isinstance(value, np.generic):
        return bool(now == value)
    if type(value) is tuple:
        return len(now) == len(value) and all(map(_same, now, value))
    return False


@functools.lru_cache(4096)
def is_library(file: str) -> bool:
    """Whether a file belongs to the standard library, an installed package or tapec."""
    return file.startswith("<frozen") or os.path.realpath(file).startswith(_LIBRARIES)


@functools.lru_cache(4096)
def _is_library_module(name: str) -> bool:
    if name.partition(".")[0] in sys.stdlib_module_names and name != "__main__":
        return True
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is not None and is_library(file)


def array_reads(reads: Iterable[Read], captures: Iterable[Any]) -> list[Read]:
    """Reads of the contents of small arrays that the kernel does not take by reference.

    The user's code computed with them in plain NumPy, so the trace has their values baked in.
    """
    seen: set[int] = set()
    for c in captures:
        seen.add(id(c))
        base = getattr(c, "base", None)
        if isinstance(base, np.ndarray) and base.dtype.kind == "c":  # ``c`` is a part of it
            seen.add(id(base))
    found = []
    for read in reads:
        for value in read.value if type(read.value) is tuple else (read.value,):
            if type(value) is not np.ndarray or id(value) in seen or value.dtype == object:
                continue
            seen.add(id(value))
            if value.nbytes <= MAX_ARRAY_BYTES:
                found.append(Read(value, None, np.array(value, order="K", copy=True)))
    return found


def collect(subject: Any) -> tuple[Read, ...]:
    """Everything that a call of ``subject`` may read besides its arguments."""
    names: set[str] = set()
    while True:  # an object found late may be read by code seen early, and conversely
        walker = _Walker(names)
        walker.visit(subject)
        if walker.names == names or len(walker.reads) > _MAX_READS:
            return tuple(walker.reads)
        names = walker.names


class _Walker:
    """One traversal from a callable.  ``names``: identifiers of the code that was seen."""

    def __init__(self, names: set[str]) -> None:
        self.known = names
        self.names = set(names)
        self.reads: list[Read] = []
        self.seen: set[int] = set()

    def visit(self, obj: Any) -> None:
        stack = [obj]
        while stack and len(self.reads) <= _MAX_READS:
            found = stack.pop()
            if isinstance(found, _ATOMS) or id(found) in self.seen:
                continue
            self.seen.add(id(found))
            start = len(self.reads)
            stack.extend(self._inside(found))
            stack.extend(r.value for r in self.reads[start:])

    def _read(self, owner: Any, name: Any, value: Any) -> None:
        self.reads.append(Read(owner, name, value))

    def _inside(self, obj: Any) -> list[Any]:
        """Record the reads from ``obj``; further objects to visit."""
        if isinstance(obj, FunctionType):
            return self._function(obj)
        if isinstance(obj, MethodType):
            return [obj.__func__, obj.__self__]
        if isinstance(obj, property):
            return [obj.fget]
        if isinstance(obj, functools.partial):
            return [obj.func, *obj.args, *obj.keywords.values()]
        if isinstance(obj, ModuleType):
            if not _is_library_module(obj.__name__):
                self._namespace(vars(obj))
            return []
        if isinstance(obj, type):
            if not _is_library_module(obj.__module__):
                self._class(obj)
            return []
        if type(obj) is tuple:
            return list(obj)
        if type(obj) is list:
            if len(obj) <= _MAX_ITEMS:
                self._read(obj, None, tuple(obj))
                return list(obj)
            return []
        if type(obj) is dict:
            if len(obj) <= _MAX_ITEMS:
                self._read(obj, SIZE, len(obj))
                for key, value in obj.items():
                    self._read(obj, key, value)
            return []
        wrapped = getattr(obj, "__wrapped__", None)
        if wrapped is not None:
            return [wrapped, *getattr(obj, "__rules__", ())]
        if _is_library_module(type(obj).__module__):
            if type(obj).__module__.startswith("scipy.sparse"):
                for name in _SPARSE & vars(obj).keys():
                    self._read(obj, name, getattr(obj, name))
            return []
        attributes = getattr(obj, "__dict__", None)
        if type(attributes) is dict:
            self._namespace(attributes)
            for cls in type(obj).__mro__:  # an instance attribute may hide these later
                for name in self.known.intersection(vars(cls)) - attributes.keys():
                    self._read(attributes, name, MISSING)
        for cls in type(obj).__mro__:
            slots = cls.__dict__.get("__slots__", ())
            for name in self.known.intersection((slots,) if isinstance(slots, str) else slots):
                self._read(obj, name, getattr(obj, name, MISSING))
        return [type(obj), *([type(obj).__call__] if callable(obj) else [])]

    def _class(self, cls: type) -> None:
        for base in cls.__mro__:
            if not _is_library_module(base.__module__):
                for name in self.known & vars(base).keys():
                    value = getattr(cls, name, MISSING)
                    self._read(cls, name, value)

    def _namespace(self, namespace: dict[str, Any]) -> None:
        for name in self.known & namespace.keys():
            self._read(namespace, name, namespace[name])

    def _function(self, fn: FunctionType) -> list[Any]:
        if is_library(fn.__code__.co_filename) and not fn.__globals__.get("TAPEC_USER_CODE"):
            return []
        pending: list[CodeType] = [fn.__code__]
        local: set[str] = set()
        while pending:
            code = pending.pop()
            local.update(code.co_names)
            pending.extend(c for c in code.co_consts if isinstance(c, CodeType))
        self.names |= local
        for name in local & fn.__globals__.keys():
            value = fn.__globals__[name]
            if not _constant(value):
                self._read(fn.__globals__, name, value)
        for cell in fn.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:
                continue
            if not _constant(value):
                self._read(cell, None, value)
        for name, value in (fn.__kwdefaults__ or {}).items():
            self._read(fn.__kwdefaults__, name, value)
        if fn.__defaults__:
            self._read(fn, "__defaults__", fn.__defaults__)
        return []


def _constant(value: Any) -> bool:
    """Library modules, functions and classes are never rebound in earnest."""
    if isinstance(value, ModuleType):
        return _is_library_module(value.__name__)
    if isinstance(value, (type, FunctionType)):
        return _is_library_module(value.__module__ or "")
    return isinstance(value, np.ufunc)
