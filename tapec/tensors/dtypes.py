"""Dtypes as a PyTorch user writes them, and arrays from what a user gives."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapec.ir.core import BOOL, C64, C128, F32, F64, I32, I64, DType

__all__ = [
    "array_of", "complex64", "complex128", "defaults", "dtype", "float32", "float64",
    "get_default_dtype", "int32", "int64", "of_ir",
    "set_default_dtype", "to_ir",
]  # fmt: skip


class _Defaults:
    """The dtype of Python floats, and the cache of inferred types, which depends on it."""

    def __init__(self) -> None:
        self.dtype = F64
        self.inferred: dict[Any, Any] = {}


defaults = _Defaults()


class dtype:
    """An element type of tensors: ``tapec.float64`` and so on."""

    __slots__ = ("ir", "name")

    def __init__(self, name: str, ir: DType) -> None:
        self.name = name
        self.ir = ir

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's dtype (so that ``np.dtype(tapec.float64)`` works)."""
        return self.ir.np

    @property
    def itemsize(self) -> int:
        return self.ir.itemsize

    @property
    def is_floating_point(self) -> bool:
        return self.ir.kind == "f"

    @property
    def is_complex(self) -> bool:
        return self.ir.kind == "c"

    def __repr__(self) -> str:
        return f"tapec.{self.name}"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, dtype):
            return self is other
        try:
            return bool(self.ir.np == np.dtype(other))  # type: ignore[call-overload]
        except TypeError:
            return False

    def __hash__(self) -> int:
        return hash(self.ir.np)

    def __reduce__(self) -> Any:
        return _named, (self.name,)


bool_ = dtype("bool", BOOL)
int32 = dtype("int32", I32)
int64 = dtype("int64", I64)
float32 = dtype("float32", F32)
float64 = dtype("float64", F64)
complex64 = dtype("complex64", C64)
complex128 = dtype("complex128", C128)
_BY_IR = {d.ir: d for d in (bool_, int32, int64, float32, float64, complex64, complex128)}
_BY_NAME = {d.name: d for d in _BY_IR.values()}


def _named(name: str) -> dtype:
    return _BY_NAME[name]


def of_ir(ir: DType) -> dtype:
    return _BY_IR[ir]


_PYTHON: dict[Any, DType] = {int: I64, bool: BOOL}


def to_ir(given: Any) -> DType:
    """The IR's dtype for a dtype of ours, of NumPy's, or a Python class."""
    from tapec.ir.core import dtype_of
    from tapec.tensors.graph import TensorTypeError

    if isinstance(given, dtype):
        return given.ir
    if given is float:
        return F64
    if given in _PYTHON:
        return _PYTHON[given]
    try:
        return dtype_of(np.dtype(given).newbyteorder("="))
    except TypeError as error:
        raise TensorTypeError(str(error)) from None


def set_default_dtype(given: Any) -> None:
    """The dtype of tensors made from Python floats: float64 unless set.

    >>> import tapec
    >>> tapec.set_default_dtype(tapec.float32)
    >>> tapec.tensor(1.0).dtype
    tapec.float32
    >>> tapec.set_default_dtype(tapec.float64)
    """
    from tapec.tensors import graph

    ir = to_ir(given)
    if ir.kind != "f":
        raise graph.TensorTypeError(f"the default dtype must be a float, not {ir}")
    if ir is not defaults.dtype:
        defaults.dtype = ir
        defaults.inferred.clear()
        graph.trie.reset()
        graph.close()


def get_default_dtype() -> dtype:
    """The dtype of tensors made from Python floats."""
    return of_ir(defaults.dtype)


def array_of(data: Any, given: Any = None) -> np.ndarray[Any, Any]:
    """``data`` as an array of our own: C-contiguous, native, of a supported dtype."""
    cls = data.__class__
    if cls is float:
        if given is None:
            return np.array(data, defaults.dtype.np)
        return np.array(data, to_ir(given).np)
    from tapec.tensors.graph import TensorTypeError
    from tapec.tensors.tensor import Tensor

    if isinstance(data, Tensor):
        array = data.materialized()
    else:
        if isinstance(data, (list, tuple)):
            data = _plain(data)
        array = np.asarray(data)
    if given is not None:
        return np.array(array, to_ir(given).np, order="C")
    if array.dtype.kind == "f" and not isinstance(data, (np.ndarray, np.generic, Tensor)):
        return np.array(array, defaults.dtype.np, order="C")
    if array.dtype.kind not in "bifc":
        if array.dtype.kind in "u":
            return np.array(array, np.int64, order="C")
        raise TensorTypeError(f"cannot make a tensor of {type(data).__name__} ({array.dtype})")
    return np.array(array, to_ir(array.dtype).np, order="C")


def _plain(data: Any) -> Any:
    from tapec.tensors.tensor import Tensor

    return [
        x.materialized()
        if isinstance(x, Tensor)
        else _plain(x)
        if isinstance(x, (list, tuple))
        else x
        for x in data
    ]
