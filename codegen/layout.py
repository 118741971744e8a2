"""Where native entries read and write in Python objects, and a check that it is so.

>>> check_layout()
>>> ctypes.c_double.from_address(id(1.5) + PAYLOAD).value
1.5
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
import types
import weakref
from typing import Any

import numpy as np

__all__ = [
    "BASE", "DESCR", "DIMS", "FLAGS", "HASH", "ITEMS", "LayoutError", "ND", "PAYLOAD", "TYPE",
    "WEAK", "WORD", "check_layout",
]  # fmt: skip

WORD = 8
#: The value of a float; the data pointer of an array.
PAYLOAD = object.__basicsize__
TYPE = object.__basicsize__ - WORD
#: Fields of an array.
ND, DIMS, BASE, DESCR, FLAGS, WEAK = (PAYLOAD + k for k in (8, 16, 32, 40, 48, 56))
#: The first item of a tuple.
ITEMS = tuple.__basicsize__
#: The cached hash of a tuple, which newer Pythons have before the items.
HASH = object.__basicsize__ + WORD


class LayoutError(ImportError):
    """This Python or NumPy stores floats or arrays differently from what native entries read."""


@functools.cache
def check_layout() -> None:
    """Raise ``LayoutError`` unless known objects read as expected."""
    value = 1.2345678901234567e100
    array = np.arange(6.0).reshape(2, 3).copy()
    strided = array[:, ::2]
    dims = _read(ctypes.c_void_p, array, DIMS) or 0
    pair = (value, array)
    unreferenced = _read(ctypes.c_void_p, array, WEAK)
    reference = weakref.ref(array)
    reads = {
        "pointer size": ctypes.sizeof(ctypes.c_void_p) == WORD,
        "reference count": ctypes.c_uint32.from_address(id(pair)).value
        == sys.getrefcount(pair) - 1,
        "float type": _read(ctypes.c_void_p, value, TYPE) == id(float),
        "float value": _read(ctypes.c_double, value, PAYLOAD) == value,
        "tuple items": [_read(ctypes.c_void_p, pair, ITEMS + i) for i in (0, WORD)]
        == [id(value), id(array)],
        "hash of a tuple": ITEMS == HASH
        or (ITEMS == HASH + WORD and _read(ctypes.c_int64, pair, HASH) == -1),
        "array type": _read(ctypes.c_void_p, array, TYPE) == id(np.ndarray),
        "array data": _read(ctypes.c_void_p, array, PAYLOAD) == array.ctypes.data,
        "array nd": _read(ctypes.c_int, array, ND) == 2,
        "array shape": bool(dims) and list((ctypes.c_ssize_t * 2).from_address(dims)) == [2, 3],
        "array base": [_read(ctypes.c_void_p, a, BASE) for a in (array, strided)]
        == [None, id(array)],
        "array dtype": _read(ctypes.c_void_p, array, DESCR) == id(np.dtype("f8")),
        "array flags": _read(ctypes.c_int, array, FLAGS) & 0x103 == 0x101,
        "weak references": unreferenced is None
        and _read(ctypes.c_void_p, array, WEAK) == id(reference),
        "cell contents": _read(ctypes.c_void_p, types.CellType(array), PAYLOAD) == id(array),
        "strided flags": _read(ctypes.c_int, strided, FLAGS) & 0x101 == 0x100,
    }
    wrong = [what for what, right in reads.items() if not right]
    if wrong:
        raise LayoutError(
            f"tapec cannot call native code in Python {platform.python_version()} with "
            f"NumPy {np.__version__}: unexpected {', '.join(wrong)}"
        )


def _read(kind: Any, obj: object, offset: int) -> Any:
    return kind.from_address(id(obj) + offset).value
