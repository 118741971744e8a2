"""The one data structure of the compiler: a typed SSA function over arrays.

A ``Function`` has a name and a ``Block``; a block has parameters, operations in
order, and results.  Region operations (``cond``, ``scan``, ...) hold further blocks.
A ``Value`` is a type plus the place where it is defined; its identity *is* the SSA
value, so two values are never compared by content.

Everything here is immutable by convention: passes build new operations through a
``Builder`` and never edit old ones.  The classes are plain slotted classes rather
than frozen dataclasses because a pass may spend only a microsecond or two per
operation, and a frozen dataclass costs that much to create.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "BOOL", "C64", "C128", "DTYPES", "F32", "F64", "I32", "I64",
    "Attrs", "Block", "DType", "Dense", "Function", "Loc", "NO_ATTRS", "Op", "Type", "Value",
    "dtype_of", "walk",
]  # fmt: skip


class DType:
    """An element type: ``name`` as printed, its NumPy dtype, and its kind.

    ``kind`` is ``'b'`` (bool), ``'i'`` (signed integer), ``'f'`` (real) or ``'c'`` (complex).
    """

    __slots__ = ("bits", "itemsize", "kind", "name", "np")

    def __init__(self, name: str, kind: str, numpy_dtype: Any) -> None:
        self.name = name
        self.kind = kind
        self.np: np.dtype[Any] = np.dtype(numpy_dtype)
        self.itemsize: int = self.np.itemsize
        self.bits = 1 if kind == "b" else 8 * self.itemsize

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return _dtype_named, (self.name,)

    @property
    def real(self) -> DType:
        """The dtype of a real part: itself unless complex."""
        return {"c64": F32, "c128": F64}.get(self.name, self)

    @property
    def is_inexact(self) -> bool:
        """Whether values of this dtype can carry a derivative."""
        return self.kind in "fc"


BOOL = DType("bool", "b", np.bool_)
I32 = DType("i32", "i", np.int32)
I64 = DType("i64", "i", np.int64)
F32 = DType("f32", "f", np.float32)
F64 = DType("f64", "f", np.float64)
C64 = DType("c64", "c", np.complex64)
C128 = DType("c128", "c", np.complex128)
DTYPES: Mapping[str, DType] = MappingProxyType(
    {d.name: d for d in (BOOL, I32, I64, F32, F64, C64, C128)}
)
_BY_NUMPY = {d.np: d for d in DTYPES.values()}


def _dtype_named(name: str) -> DType:
    return DTYPES[name]


def dtype_of(numpy_dtype: Any) -> DType:
    """The DType of a NumPy dtype; ``TypeError`` if the IR has none for it."""
    dt = np.dtype(numpy_dtype)
    found = _BY_NUMPY.get(dt)
    if found is None:
        raise TypeError(
            f"dtype {dt} is not supported; supported are {', '.join(map(str, _BY_NUMPY))}"
        )
    return found


class Type:
    """``dtype`` × static ``shape``.  Interned: equal types are the same object.

    >>> Type(F64, (3, 4))
    f64[3,4]
    """

    __slots__ = ("dtype", "ndim", "shape", "size")
    dtype: DType
    shape: tuple[int, ...]
    ndim: int
    size: int

    _table: dict[tuple[DType, tuple[int, ...]], Type] = {}
    _lock = threading.Lock()

    def __new__(cls, dtype: DType, shape: Sequence[int] = ()) -> Type:
        key = (dtype, tuple(shape))
        self = cls._table.get(key)
        if self is None:
            with cls._lock:
                self = cls._table.get(key)
                if self is None:
                    self = object.__new__(cls)
                    self.dtype = dtype
                    self.shape = tuple(int(n) for n in shape)
                    self.ndim = len(self.shape)
                    size = 1
                    for n in self.shape:
                        size *= n
                    self.size = size
                    cls._table[key] = self
        return self

    def __repr__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"

    def __reduce__(self) -> tuple[Any, ...]:
        return Type, (self.dtype, self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def with_shape(self, shape: Sequence[int]) -> Type:
        return Type(self.dtype, shape)

    def with_dtype(self, dtype: DType) -> Type:
        return Type(dtype, self.shape)


class Loc(NamedTuple):
    """A place in the user's source."""

    file: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        return f"{self.file.rsplit('/', 1)[-1]}:{self.line}"


class Dense:
    """An array constant as an attribute value: read-only, in native byte order, hashable."""

    __slots__ = ("_hash", "array")

    def __init__(self, array: Any) -> None:
        a = np.array(array, order="C", copy=True)
        if not a.dtype.isnative:
            a = a.astype(a.dtype.newbyteorder("="))
        a.flags.writeable = False
        self.array = a
        self._hash = hash((a.dtype.str, a.shape, a.tobytes()))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Dense)
            and self.array.dtype == other.array.dtype
            and self.array.shape == other.array.shape
            and self.array.tobytes() == other.array.tobytes()
        )

    def __repr__(self) -> str:
        return f"dense{self.array.tolist()!r}"


Attrs = Mapping[str, Any]
#: Shared by every operation without attributes.
NO_ATTRS: Attrs = MappingProxyType({})


class Value:
    """An SSA value: its ``type``, the ``op`` that defines it (None: a block parameter)
    and a ``hint`` for its printed name."""

    __slots__ = ("hint", "op", "type")

    def __init__(self, type: Type, op: Op | None = None, hint: str | None = None) -> None:
        self.type = type
        self.op = op
        self.hint = hint

    def __repr__(self) -> str:
        return f"%{self.hint or '?'}: {self.type}"


class Op:
    """One operation: ``results = name operands {attrs} regions``, at ``loc``.

    ``attrs`` values are hashable (numbers, strings, nested tuples, ``Dense``); NaN and
    signed zeros are compared by bits where operations are compared.
    """

    __slots__ = ("attrs", "loc", "name", "operands", "regions", "results")

    def __init__(
        self,
        name: str,
        operands: tuple[Value, ...],
        types: tuple[Type, ...],
        attrs: Attrs = NO_ATTRS,
        regions: tuple[Block, ...] = (),
        loc: Loc | None = None,
        hint: str | None = None,
    ) -> None:
        self.name = name
        self.operands = operands
        self.attrs = attrs
        self.regions = regions
        self.loc = loc
        if len(types) == 1:
            self.results: tuple[Value, ...] = (Value(types[0], self, hint),)
        else:
            self.results = tuple(Value(t, self, hint) for t in types)

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value

    def __repr__(self) -> str:
        args = ", ".join(map(repr, self.operands))
        return f"<{self.name} {args} {dict(self.attrs) or ''}-> {[r.type for r in self.results]}>"


class Block:
    """Parameters, operations in execution order, results."""

    __slots__ = ("ops", "params", "results")

    def __init__(
        self, params: Sequence[Value], ops: Sequence[Op], results: Sequence[Value]
    ) -> None:
        self.params = tuple(params)
        self.ops = tuple(ops)
        self.results = tuple(results)


class Function:
    """A named block: the unit that passes transform and codegen compiles."""

    __slots__ = ("block", "name")

    def __init__(
        self, name: str, params: Sequence[Value], ops: Sequence[Op], results: Sequence[Value]
    ) -> None:
        self.name = name
        self.block = Block(params, ops, results)

    @property
    def params(self) -> tuple[Value, ...]:
        return self.block.params

    @property
    def ops(self) -> tuple[Op, ...]:
        return self.block.ops

    @property
    def results(self) -> tuple[Value, ...]:
        return self.block.results

    def __repr__(self) -> str:
        params = ", ".join(str(p.type) for p in self.params)
        results = ", ".join(str(r.type) for r in self.results)
        return f"<Function @{self.name}({params}) -> ({results}), {len(self.ops)} ops>"


def walk(block: Block) -> Iterator[Op]:
    """Every operation of a block and of its regions, outermost first, in order."""
    for op in block.ops:
        yield op
        for region in op.regions:
            yield from walk(region)
