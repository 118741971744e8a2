"""Kinds: what NumPy's promotion rules need to know of an operand, and the rules' results.

The kind of a traced value is its ``Type``, or a ``Weak`` type if it stands for a Python
number (NEP 50: it takes the dtype of what it meets).  The kind of a Python number met in
an expression is its class.  ``entry`` answers, for an operation and the kinds of its
operands, everything that recording it needs, and remembers the answer: recording a
scalar operation may cost 3 µs in all.

>>> from tapec.ir.core import F32
>>> entry("mul", (Type(F32, (3,)), float)).types
(f32[3],)
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from tapec.errors import TapecError, TapecTypeError, TapecValueError, fail
from tapec.ir.core import BOOL, C128, F64, I64, NO_ATTRS, Attrs, DType, Type, dtype_of

__all__ = [
    "BROADCAST",
    "COMPLEX",
    "PYTHON_SCALARS",
    "UFUNC_OF_OP",
    "WEAK_COMPLEX",
    "WEAK_FLOAT",
    "Entry",
    "Kind",
    "Weak",
    "broadcast_shapes",
    "common_dtype",
    "entry",
    "numpy_kind",
    "supported_dtype",
    "weak_kind",
]

#: The attributes of a record whose operands must still be broadcast to the result's shape.
#: Empty, and told from ``NO_ATTRS`` by identity.
BROADCAST: Attrs = MappingProxyType({})


class Weak:
    """The kind of a traced Python number of type ``type``."""

    __slots__ = ("type",)

    def __init__(self, type: Type) -> None:
        self.type = type

    def __repr__(self) -> str:
        return f"weak {self.type}"


WEAK_FLOAT = Weak(Type(F64))
WEAK_COMPLEX = Weak(Type(C128))
_WEAK_INT = Weak(Type(I64))
_WEAK_BY_DTYPE = {F64: WEAK_FLOAT, C128: WEAK_COMPLEX, I64: _WEAK_INT}

#: Type | Weak | type[float] | type[int] | type[bool] | type[complex]
Kind = Any

PYTHON_SCALARS: dict[type, DType] = {float: F64, int: I64, bool: BOOL, complex: C128}
_DEFAULTS: dict[Any, np.dtype[Any]] = {k: d.np for k, d in PYTHON_SCALARS.items()}


def weak_kind(type: Type) -> Kind:
    """The weak kind of a 0-d float, complex or int type; any other type itself."""
    return _WEAK_BY_DTYPE.get(type.dtype, type) if not type.shape else type


def numpy_kind(kind: Kind) -> Any:
    """What NumPy's own promotion functions take for ``kind``: a dtype or a Python class."""
    if kind.__class__ is Type:
        return kind.dtype.np
    if kind.__class__ is Weak:
        return {F64: float, C128: complex, I64: int}[kind.type.dtype]
    return np.dtype(bool) if kind is bool else kind


def _native(dtype: Any) -> Any:
    """The dtype in the machine's byte order."""
    found = np.dtype(dtype)
    return found.newbyteorder("=") if found.kind in "iufc" else found


def supported_dtype(dtype: Any, what: str = "an array") -> DType:
    """The IR's dtype for ``dtype``, or a ``TypeError`` that names it and the user's line."""
    try:
        return dtype_of(_native(dtype))
    except TypeError:
        raise fail(
            TapecTypeError,
            f"{what} of dtype {np.dtype(dtype)}, which tapec does not support",
            "convert it to bool, int32, int64, float32, float64, complex64 or complex128",
        ) from None


def common_dtype(kinds: Any) -> DType:
    """The dtype that ``np.result_type`` gives to operands of these kinds."""
    sample = {float: 1.0, int: 1, complex: 1j}
    args = [sample.get(k, k) if isinstance(k, type) else k for k in map(numpy_kind, kinds)]
    return supported_dtype(np.result_type(*args), "a value")


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """As ``np.broadcast_shapes``, with NumPy's message for operands that do not fit."""
    first = shapes[0]
    if all(s == first for s in shapes):
        return first
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        text = " ".join(str(s).replace(" ", "") for s in shapes)
        raise fail(
            TapecValueError, f"operands could not be broadcast together with shapes {text}"
        ) from None


#: Elementwise op → the ufunc whose type resolution it follows.
UFUNC_OF_OP: dict[str, np.ufunc] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide,
    "pow": np.power, "atan2": np.arctan2, "hypot": np.hypot, "max": np.maximum,
    "min": np.minimum, "mod": np.remainder, "fmod": np.fmod, "floor_div": np.floor_divide,
    "copysign": np.copysign, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "shift_left": np.left_shift, "shift_right": np.right_shift,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal,
    "neg": np.negative, "abs": np.absolute, "sign": np.sign, "floor": np.floor,
    "ceil": np.ceil, "rint": np.rint, "trunc": np.trunc, "sqrt": np.sqrt, "cbrt": np.cbrt,
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log10": np.log10, "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "arcsin": np.arcsin, "arccos": np.arccos, "arctan": np.arctan, "sinh": np.sinh,
    "cosh": np.cosh, "tanh": np.tanh, "arcsinh": np.arcsinh, "arccosh": np.arccosh,
    "arctanh": np.arctanh, "isnan": np.isnan, "isinf": np.isinf, "not": np.invert,
}  # fmt: skip

#: Ops on which NumPy returns its integer operands unchanged.
_IDENTITY_ON_INTEGERS = {"floor", "ceil", "trunc"}
_ON_BOOL = {"add": "or", "mul": "and", "max": "or", "min": "and"}


class Entry(NamedTuple):
    """How to record one elementwise operation."""

    types: tuple[Type, ...]
    kind: Kind  #: of the result when every operand is a Python number
    casts: tuple[DType | None, ...]  #: per operand: the dtype it must be converted to first
    plain: bool  #: no operand needs a conversion and each one is a tracer
    attrs: Attrs
    op: str  #: sums of bools are "or", their products "and"


#: For operations with complex operands, which ``complex_math`` does.
COMPLEX = "complex"
_ON_COMPLEX = Entry((), None, (), False, NO_ATTRS, COMPLEX)

_entries: dict[Any, Entry] = {}


def entry(op: str, kinds: tuple[Kind, ...]) -> Entry:
    """The entry of ``op`` for operands of these kinds; ``TypeError`` as NumPy's if none."""
    key = (op, *kinds)
    found = _entries.get(key)
    if found is None:
        if len(_entries) > 100_000:
            _entries.clear()
        try:
            found = _entries[key] = _resolve(op, kinds)
        except TapecError:
            raise
        except TypeError as error:
            raise fail(TapecTypeError, str(error)) from None
    return found


def _resolve(op: str, kinds: tuple[Kind, ...]) -> Entry:
    ufunc = UFUNC_OF_OP[op]
    args = [numpy_kind(k) for k in kinds]
    if op in _IDENTITY_ON_INTEGERS and args[0] in (int, np.dtype("i4"), np.dtype("i8")):
        dtypes: Any = (np.dtype(float), np.dtype(float))
    elif all(isinstance(a, type) for a in args):
        dtypes = ufunc.resolve_dtypes((*[_DEFAULTS[a] for a in args], None))
    else:
        dtypes = ufunc.resolve_dtypes((*args, None))
    if any(dtype.kind == "c" for dtype in dtypes):
        return _ON_COMPLEX
    wanted = [supported_dtype(d, f"{ufunc.__name__}: a result") for d in dtypes]
    shapes = [_shape(k) for k in kinds]
    shape = broadcast_shapes(*shapes)
    casts = tuple([d if _dtype(k) is not d else None for k, d in zip(kinds, wanted)])
    plain = not any(casts) and not any(isinstance(k, type) for k in kinds)
    exact = all(s == shape for s in shapes)
    result = Type(wanted[-1], shape)
    weak = all(k.__class__ is Weak or isinstance(k, type) for k in kinds)
    kind = weak_kind(result) if weak and wanted[-1].kind in "fi" else result
    if wanted[0] is BOOL:
        op = _ON_BOOL.get(op, op)
    return Entry((result,), kind, casts, plain, NO_ATTRS if exact else BROADCAST, op)


def _shape(kind: Kind) -> tuple[int, ...]:
    return kind.shape if kind.__class__ is Type else ()


def _dtype(kind: Kind) -> DType | None:
    if kind.__class__ is Type:
        return kind.dtype
    return kind.type.dtype if kind.__class__ is Weak else None
