"""Recording: one function per way of putting operations on a tape.

``unary`` and ``binary`` are the fast path of operators (a few µs per operation, source
location and promotion included); ``emit`` records any other op of the IR, with the type
that the op table infers.  Everything in ``tapec.numpy`` is composed from these.
"""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tapec.errors import TapecError, TapecTypeError, TapecValueError, fail
from tapec.ir.core import BOOL, F64, I64, NO_ATTRS, Attrs, DType, Type
from tapec.ir.opdef import OPS
from tapec.kinds import (
    BROADCAST,
    COMPLEX,
    PYTHON_SCALARS,
    broadcast_shapes,
    common_dtype,
    entry,
    supported_dtype,
)
from tapec.kinds import _entries as _entry_table
from tapec.source import user_site
from tapec.tape import Handle, Tape, as_tracer, current_tape

if TYPE_CHECKING:
    from tapec.tracer import Tracer

__all__ = [
    "as_array", "as_tracer", "binary", "broadcast_to", "cast", "concat", "dot", "emit", "emit_many",
    "full", "gather", "iota", "kind_of", "operands", "place", "reduce", "reshape", "scatter_add",
    "select", "slice_", "strong", "strong_operands", "tape_among", "to_dtype", "transpose", "unary",
]  # fmt: skip

_make: Any = None  # the Tracer class; set by tapec.tracer
complexes: Any = None  # what has complex operands is done there; set by these modules
complex_math: Any = None


# -- elementwise ------------------------------------------------------------------------


def unary(op: str, x: Tracer) -> Tracer:
    """An elementwise op of one traced operand."""
    kind = x.kind
    e = _entry_table.get((op, kind)) or entry(op, (kind,))
    if not e.plain:
        if e.op is COMPLEX:
            return complex_math.unary(op, x)  # type: ignore[no-any-return]
        x = cast(x, e.casts[0])
    tape = x.tape
    if tape.closed or tape.thread != get_ident():
        tape.check(x.id)
    records = tape.records
    at = len(records)
    if at >= tape.limit:
        tape.full()
    records.append((op, (x.id,), NO_ATTRS, e.types, user_site(2)))
    return _make(tape, at, e.types[0], e.kind)  # type: ignore[no-any-return]


def binary(op: str, x: Any, y: Any) -> Tracer:
    """An elementwise op of two operands, of which at least one is traced."""
    if x.__class__ is _make:
        tape = x.tape
        kx = x.kind
        if y.__class__ is _make:
            ky = y.kind
            if y.tape is not tape:
                x, y = operands(x, y)
                tape = x.tape
        else:
            ky = y.__class__
            if ky not in PYTHON_SCALARS:
                x, y = operands(x, y)
                tape, kx, ky = x.tape, x.kind, y.kind
    else:
        kx = x.__class__
        if kx not in PYTHON_SCALARS:
            x, y = operands(x, y)
            kx = x.kind
        tape, ky = y.tape, y.kind
    e = _entry_table.get((op, kx, ky)) or entry(op, (kx, ky))
    if e.plain:
        ids = (x.id, y.id)
    elif e.op is COMPLEX:
        return complex_math.binary(op, *operands(x, y))  # type: ignore[no-any-return]
    else:
        cx, cy = e.casts
        ids = (
            x.id if cx is None else _cast_id(tape, x, cx),
            y.id if cy is None else _cast_id(tape, y, cy),
        )
    if tape.closed or tape.thread != get_ident():
        tape.check(x.id if x.__class__ is _make else y.id)
    records = tape.records
    at = len(records)
    if at >= tape.limit:
        tape.full()
    records.append((e.op, ids, e.attrs, e.types, user_site(3)))
    return _make(tape, at, e.types[0], e.kind)  # type: ignore[no-any-return]


def _cast_id(tape: Tape, x: Any, dtype: DType) -> int:
    return cast(x, dtype).id if x.__class__ is _make else tape.constant_id(x, dtype)


def select(condition: Any, x: Any, y: Any) -> Tracer:
    """``np.where`` of three operands."""
    c: Tracer
    c, x, y = operands(condition, x, y)
    tape = c.tape
    if c.type.dtype is not BOOL:
        c = binary("ne", c, 0)
    dtype = common_dtype([x.kind, y.kind])
    if dtype.kind == "c":
        return complexes.select(c, x, y)  # type: ignore[no-any-return]
    type = Type(dtype, broadcast_shapes(c.type.shape, x.type.shape, y.type.shape))
    x, y = cast(x, dtype), cast(y, dtype)
    return tape.record("select", (c.id, x.id, y.id), BROADCAST, type)


def cast(x: Tracer, dtype: DType | None) -> Tracer:
    """``x`` in another dtype, as ``astype``; ``x`` itself if it has it."""
    old = x.type.dtype
    if dtype is None or old is dtype:
        return x
    if dtype.kind == "c" or old.kind == "c":
        return complexes.cast(x, dtype)  # type: ignore[no-any-return]
    record = x.tape.records[x.id]
    if record is not None and record[0] == "constant" and not x.type.shape:
        value = record[2]["value"]
        if dtype.kind == "f" or (dtype.kind == "i" and isinstance(value, int)):
            return x.tape.handle(x.tape.constant_id(value, dtype))
    return x.tape.record("convert", (x.id,), {"dtype": dtype.name}, Type(dtype, x.type.shape))


# -- operands ---------------------------------------------------------------------------


def tape_among(values: Iterable[Any]) -> Tape:
    """The innermost tape among traced values, else the innermost that is recording."""
    best = _search(values, None)
    if best is None:
        best = current_tape()
        if best is None:
            raise RuntimeError("no traced operand and no active trace")
    return best


def _search(values: Iterable[Any], best: Tape | None) -> Tape | None:
    for value in values:
        if isinstance(value, Handle):
            tape = value.tape
            if best is None or tape.level > best.level:
                best = tape
        elif isinstance(value, (list, tuple)):
            best = _search(value, best)
        elif isinstance(value, np.ndarray) and value.dtype == object:
            best = _search(value.flat, best)
    return best


def operands(*values: Any) -> list[Any]:
    """All as tracers of one tape."""
    tape = tape_among(values)
    return [as_tracer(tape, v) for v in values]


def strong_operands(*values: Any) -> list[Any]:
    """The same for functions that make arrays of their arguments: no number is weak there."""
    return [strong(x) for x in operands(*values)]


def strong(x: Any) -> Any:
    """The same value, no longer standing for a Python number: NumPy's functions return
    NumPy scalars."""
    if x.__class__ is _make:
        return _make(x.tape, x.id, x.type, x.type) if x.weak else x
    return x.strong() if isinstance(x, _make) and x.weak else x


def as_array(x: Any) -> Tracer:
    """One operand as a tracer."""
    return x if x.__class__ is _make else as_tracer(tape_among((x,)), x)


def kind_of(x: Any) -> Any:
    return x.kind if x.__class__ is _make else x.__class__


# -- everything else --------------------------------------------------------------------


def emit(op: str, args: Sequence[Tracer], attrs: Attrs) -> Tracer:
    """Record an op of the IR; the op table says the result's type."""
    for x in args:
        if x.__class__ is not _make:
            return complexes.emit(op, args, attrs)  # type: ignore[no-any-return]
    try:
        (type,) = OPS[op].infer(tuple([x.type for x in args]), attrs)
    except TapecError:
        raise
    except TypeError as error:
        raise fail(TapecTypeError, str(error)) from None
    except ValueError as error:
        raise fail(TapecValueError, str(error)) from None
    return args[0].tape.record(op, tuple([x.id for x in args]), attrs, type)


def emit_many(op: str, args: Sequence[Tracer], attrs: Attrs = NO_ATTRS) -> list[Tracer]:
    """Record an op of the IR with several results."""
    try:
        types = OPS[op].infer(tuple([x.type for x in args]), attrs)
    except ValueError as error:
        raise fail(TapecValueError, str(error)) from None
    tape = args[0].tape
    at = tape.push(op, tuple([x.id for x in args]), attrs, types)
    return [tape.handle(at + k) for k in range(len(types))]


def full(tape: Tape, shape: Sequence[int], value: Any, dtype: DType = F64) -> Tracer:
    """A constant number repeated over ``shape``."""
    if dtype.kind == "c":
        return complexes.full(tape, shape, value, dtype)  # type: ignore[no-any-return]
    type = Type(dtype, tuple(shape))
    if not type.shape:
        return tape.handle(tape.constant_id(value, dtype))
    value = {"b": bool, "i": int, "f": float}[dtype.kind](value)
    return tape.record("constant", (), {"value": value, "type": type}, type)


def iota(tape: Tape, shape: Sequence[int], axis: int, dtype: DType = I64) -> Tracer:
    """Each element is its index along ``axis``."""
    type = Type(dtype, tuple(shape))
    return tape.record("iota", (), {"type": type, "axis": axis}, type)


def reshape(x: Tracer, shape: Sequence[int]) -> Tracer:
    shape = tuple(shape)
    return x if shape == x.type.shape else emit("reshape", (x,), {"shape": shape})


def transpose(x: Tracer, perm: Sequence[int]) -> Tracer:
    perm = tuple(perm)
    return x if perm == tuple(range(len(perm))) else emit("transpose", (x,), {"perm": perm})


def broadcast_to(x: Tracer, shape: Sequence[int]) -> Tracer:
    """NumPy's ``broadcast_to``."""
    shape = tuple(shape)
    old = x.type.shape
    if old == shape:
        return x
    offset = len(shape) - len(old)
    keep = [k for k, n in enumerate(old) if offset >= 0 and n == shape[offset + k]]
    if offset < 0 or any(n != 1 for k, n in enumerate(old) if k not in keep):
        raise fail(TapecValueError, f"cannot broadcast shape {old} to {shape}")
    squeezed = reshape(x, [old[k] for k in keep])
    dims = tuple([offset + k for k in keep])
    if squeezed.type.shape == shape:
        return squeezed
    return emit("broadcast", (squeezed,), {"shape": shape, "dims": dims})


def slice_(
    x: Tracer, start: Sequence[int], size: Sequence[int], step: Sequence[int] | None = None
) -> Tracer:
    start, size = tuple(start), tuple(size)
    step = (1,) * len(start) if step is None else tuple(step)
    if size == x.type.shape and all(s == 1 for s in step):
        return x
    return emit("slice", (x,), {"start": start, "size": size, "step": step})


def place(
    pieces: Sequence[Tracer],
    shape: Sequence[int],
    at: Sequence[tuple[Sequence[int], Sequence[int]]],
) -> Tracer:
    """Zeros of ``shape`` with each piece added at ``(start, step)``."""
    attrs = {"shape": tuple(shape), "at": tuple((tuple(a), tuple(s)) for a, s in at)}
    return emit("place", pieces, attrs)


def concat(xs: Sequence[Tracer], axis: int) -> Tracer:
    """Join arrays of one dtype along ``axis``."""
    shape = list(xs[0].type.shape)
    ones = (1,) * len(shape)
    at, offset, pieces = [], 0, []
    for x in xs:
        n = x.type.shape[axis]
        if x.type.size:
            pieces.append(x)
            at.append(([offset if k == axis else 0 for k in range(len(shape))], ones))
        offset += n
    shape[axis] = offset
    if not pieces:
        return full(xs[0].tape, shape, 0, xs[0].type.dtype)
    if len(pieces) == 1:
        return pieces[0]
    return place(pieces, shape, at)


def reduce(kind: str, x: Tracer, axes: Sequence[int]) -> Tracer:
    """``kind``: sum, prod, max, min, any, all.  The axes are removed."""
    axes = tuple(sorted(axes))
    return emit("reduce_" + kind, (x,), {"axes": axes}) if axes else x


def gather(x: Tracer, indices: Sequence[Tracer], axes: Sequence[int]) -> Tracer:
    return emit("gather", (x, *indices), {"axes": tuple(axes)})


def scatter_add(
    base: Tracer, updates: Tracer, indices: Sequence[Tracer], axes: Sequence[int]
) -> Tracer:
    return emit("scatter_add", (base, updates, *indices), {"axes": tuple(axes)})


def dot(
    x: Tracer,
    y: Tracer,
    contract: tuple[Sequence[int], Sequence[int]],
    batch: tuple[Sequence[int], Sequence[int]] = ((), ()),
) -> Tracer:
    """Contract axes of two operands, which are promoted to a common dtype."""
    dtype = common_dtype([x.kind, y.kind])
    if dtype.kind == "c":
        return complexes.dot(x, y, contract, batch)  # type: ignore[no-any-return]
    attrs = {
        "contract": (tuple(contract[0]), tuple(contract[1])),
        "batch": (tuple(batch[0]), tuple(batch[1])),
    }
    return emit("dot", (cast(x, dtype), cast(y, dtype)), attrs)


def to_dtype(dtype: Any, what: str = "dtype") -> DType:
    """A dtype given by the user."""
    return supported_dtype(np.dtype(dtype), what)
