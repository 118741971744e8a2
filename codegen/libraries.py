"""Addresses of the external functions and objects that generated code names.

Generated text holds only symbols; ``resolve`` turns them into addresses of this process just before
linking.  The name says which library provides the symbol, and a library is loaded when the first
symbol of it is asked for (SciPy takes 0.1 s to import):

=============================  ==================================================================
``tapec.blas.dgemm``           ``scipy.linalg.cython_blas`` (Fortran convention, 32-bit integers)
``tapec.lapack.dpotrf``        ``scipy.linalg.cython_lapack``
``tapec.special.psi.dd``       ``scipy.special.cython_special``; the suffix is the C signature, the
                               result first: d double, f float, i int, l long, n intptr_t,
                               z double complex, c float complex, v void, capitals for pointers.
                               Unless the result is void, pass one more argument, ``i32 0``.
``tapec.dtype.float64``        a NumPy dtype singleton (data)
``tapec.host.6e61…``           the callback of a host function (see ``host``)
``tapec.*``                    whatever ``provide`` registered
``PyArray_NewFromDescr``       NumPy's C API table
``_ZGVdN4v_sin``               glibc's vector math library
anything else                  CPython, libm or the C library
=============================  ==================================================================

>>> sorted(resolve(["sin", "PyFloat_Type"]))
['PyFloat_Type', 'sin']
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable
from importlib.machinery import PathFinder
from typing import Any

import numpy as np

__all__ = ["SymbolError", "available", "provide", "resolve", "special_signatures"]


class SymbolError(LookupError):
    """A symbol that generated code needs exists in none of the libraries here."""


_resolved: dict[str, int] = {}
_provided: dict[str, int] = {}


def provide(name: str, address: int) -> None:
    """Define the symbol ``name`` for all later ``resolve`` calls."""
    _provided[name] = address


def resolve(names: Iterable[str]) -> dict[str, int]:
    """The address of each symbol; ``SymbolError`` names the ones that do not exist."""
    found: dict[str, int] = {}
    missing: list[str] = []
    for name in names:
        address = _provided.get(name) or _resolved.get(name) or _find(name)
        if address:
            found[name] = address
        else:
            missing.append(name)
    if missing:
        raise SymbolError(
            f"native code needs {', '.join(sorted(missing))}, which no library here provides"
        )
    return found


def available(name: str) -> bool:
    """Whether ``resolve([name])`` would succeed."""
    return bool(_provided.get(name) or _resolved.get(name) or _find(name))


def _find(name: str) -> int | None:
    if name.startswith("tapec."):
        address = _find_own(name)
    elif name.startswith("_ZGV"):
        address = _in_library(_libmvec(), name)
    elif name.startswith("PyArray_"):
        address = _numpy_entry(name)
    else:
        address = next(filter(None, (_in_library(lib, name) for lib in _process())), None)
    if address:
        _resolved[name] = address
    return address


def _find_own(name: str) -> int | None:
    _, family, rest = (*name.split(".", 2), "")[:3]
    if family == "dtype":
        # NumPy's built-in dtypes are immortal singletons, so their address is a valid symbol.
        return id(np.dtype(rest))
    if family in ("blas", "lapack"):
        return _capsules(f"scipy.linalg.cython_{family}").get(rest, (None, ""))[0]
    if family == "host":
        from tapec.codegen.host import address_of

        return address_of(rest)
    if family == "fft":
        from tapec.codegen.fourier import address_of as loop_of

        return loop_of(rest)
    if family == "special":
        function, _, signature = rest.rpartition(".")
        return special_signatures(function).get(signature)
    return None


# ---- libraries of the process --------------------------------------------------------------------


def _in_library(library: ctypes.CDLL | None, name: str) -> int | None:
    if library is None:
        return None
    try:
        # For a function too this gives the address of its first byte.
        return ctypes.addressof(ctypes.c_char.in_dll(library, name))
    except ValueError:
        return None


def _load(*names: str | None) -> ctypes.CDLL | None:
    for name in names:
        try:
            return ctypes.CDLL(name)
        except (OSError, TypeError):
            continue
    return None


@functools.cache
def _process() -> tuple[ctypes.CDLL | None, ...]:
    """CPython, libm and libc, in the order of search."""
    if sys.platform == "win32":
        return (ctypes.pythonapi, _load("ucrtbase"))
    maths = ("libSystem.dylib",) if sys.platform == "darwin" else ("libm.so.6", "libm.so")
    return (ctypes.pythonapi, _load(*maths), _load(None))


@functools.cache
def _libmvec() -> ctypes.CDLL | None:
    """glibc's vector functions (x86-64 and newer aarch64 only)."""
    return _load("libmvec.so.1") if sys.platform.startswith("linux") else None


# ---- NumPy's C API -------------------------------------------------------------------------------

# Index in the table; part of NumPy's ABI, the same in 1.x and 2.x.
_NUMPY_TABLE = {
    "PyArray_Type": 2,
    "PyArrayDescr_Type": 3,
    "PyArray_DescrFromType": 45,
    "PyArray_Scalar": 60,
    "PyArray_New": 93,
    "PyArray_NewFromDescr": 94,
    "PyArray_Empty": 184,
}

_capsule_name = ctypes.pythonapi.PyCapsule_GetName
_capsule_name.restype = ctypes.c_char_p
_capsule_name.argtypes = [ctypes.py_object]
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _numpy_entry(name: str) -> int | None:
    index = _NUMPY_TABLE.get(name)
    return None if index is None else _numpy_table()[index]


@functools.cache
def _numpy_table() -> Any:
    package = "numpy._core" if hasattr(np, "_core") else "numpy.core"
    capsule = importlib.import_module(f"{package}._multiarray_umath")._ARRAY_API
    table = _capsule_pointer(capsule, _capsule_name(capsule))
    return (ctypes.c_void_p * (max(_NUMPY_TABLE.values()) + 1)).from_address(table)


# ---- SciPy's Cython modules ----------------------------------------------------------------------


def _extension(module: str) -> Any:
    """An extension module of SciPy, without the Python package around it where that is possible:
    ``scipy.linalg`` takes twenty times as long to import as the BLAS pointers in it.

    The module is entered in ``sys.modules``, so a later import of the package finds this one.
    """
    loaded = sys.modules.get(module)
    package, _, _ = module.rpartition(".")
    if loaded is not None or package in sys.modules or package != "scipy.linalg":
        return importlib.import_module(module)
    import scipy

    spec = PathFinder.find_spec(module, [os.path.join(p, "linalg") for p in scipy.__path__])
    if spec is None or spec.loader is None:
        return importlib.import_module(module)
    found = importlib.util.module_from_spec(spec)
    sys.modules[module] = found
    try:
        spec.loader.exec_module(found)
    except BaseException:
        del sys.modules[module]
        raise
    return found


@functools.cache
def _capsules(module: str) -> dict[str, tuple[int, str]]:
    """Name -> (address, C signature) of the C functions that a Cython module exports."""
    try:
        exported = _extension(module).__pyx_capi__
    except ImportError as error:
        raise SymbolError(f"native code needs {module}, but SciPy cannot be imported") from error
    found = {}
    for name, capsule in exported.items():
        signature: bytes = _capsule_name(capsule)
        found[name] = (_capsule_pointer(capsule, signature), signature.decode())
    return found


_LETTERS = {
    "double": "d",
    "float": "f",
    "int": "i",
    "long": "l",
    "Py_ssize_t": "n",
    "npy_intp": "n",
    "npy_cdouble": "z",
    "npy_cfloat": "c",
    "__pyx_t_double_complex": "z",
    "__pyx_t_float_complex": "c",
    "double complex": "z",
    "float complex": "c",
    "void": "v",
}


@functools.cache
def special_signatures(function: str) -> dict[str, int]:
    """Signature -> address of the variants of a ``scipy.special.cython_special`` function.

    Fused names are numbered inconsistently (``__pyx_fuse_1psi`` is the double version of psi, but
    ``__pyx_fuse_0erfinv`` that of erfinv), so variants are told apart by their C signature.

    >>> sorted(special_signatures("psi"))
    ['dd', 'zz']
    """
    variants: dict[str, int] = {}
    for name, (address, signature) in _capsules("scipy.special.cython_special").items():
        plain = name
        while plain.startswith("__pyx_fuse_"):
            plain = plain.removeprefix("__pyx_fuse_").lstrip("0123456789_")
        if plain == function:
            letters = _signature_letters(signature)
            if letters is not None:
                variants[letters] = address
    return variants


def _signature_letters(signature: str) -> str | None:
    """``"double (double, int __pyx_skip_dispatch)"`` -> ``"dd"``; None if it uses other types."""
    result, _, rest = signature.partition(" (")
    arguments = [a.strip() for a in rest.rstrip(")").split(",")]
    if arguments and "skip_dispatch" in arguments[-1]:
        arguments.pop()
    letters = ""
    for word in (result, *arguments):
        base = word.rstrip("* ")
        letter = _LETTERS.get(base)
        if letter is None:
            return None
        letters += letter.upper() if word.endswith("*") else letter
    return letters
