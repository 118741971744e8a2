"""The tape: what a user's function does to traced values, as a flat list of light records.

A record is ``(op, operands, attrs, types, site)``; its position is the id of its result
(a record with n results is followed by n - 1 ``None``).  Operands are ids.  Besides the
ops of the IR a tape knows ``input``, ``capture``, ``item`` (``x[i, j]`` with integers)
and ``stack`` (scalars → array).  A record whose attrs are ``BROADCAST`` leaves NumPy's
implicit broadcasting to ``lift``; operand dtypes are exact.

Tapes nest: the active ones form a stack per thread, and an operation goes to the innermost
tape among its operands.  Values of outer tapes, and NumPy arrays, that a tape meets become
its *captures*: hidden inputs, arrays by reference.

    with Tape("loss") as tape:
        x = tape.input(Type(F64, (3,)), array, "x")
        fn = lift(tape, [(x * x).sum()], "loss")
"""

from __future__ import annotations

import functools
import sys
import threading
from _thread import get_ident
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from tapec import options
from tapec.concrete import evaluate, fingerprint, same_contents
from tapec.errors import (
    ConversionError,
    LeakedTracerError,
    TapecError,
    TapecTypeError,
    TapecValueError,
    UnsupportedError,
    fail,
    tape_full,
)
from tapec.ir.core import Attrs, Dense, DType, Function, Loc, Type
from tapec.kinds import PYTHON_SCALARS, Kind, supported_dtype
from tapec.kinds import weak_kind as _weak_kind
from tapec.source import NOWHERE, Site, describe_site, user_site

if TYPE_CHECKING:
    from tapec.tracer import Tracer

__all__ = ["Capture", "Handle", "Record", "Tape", "as_tracer", "current_tape", "is_traced"]

#: op, operand ids, attributes, result types, where.
Record = tuple[str, tuple[int, ...], Attrs, tuple[Type, ...], Site]


class Capture(NamedTuple):
    """A hidden input: an array taken by reference, or a tracer of an outer tape."""

    obj: Any
    type: Type


class Handle:
    """A value on a tape; ``Tracer`` adds NumPy's behaviour.  ``id`` moves on in-place writes.

    ``link`` is None, or for a view of another traced array ``(base, forward, backward)``.
    """

    __slots__ = ("__weakref__", "id", "kind", "link", "tape", "type")

    def __init__(self, tape: Tape, id: int, type: Type, kind: Kind) -> None:
        self.tape = tape
        self.id = id
        self.type = type
        self.kind = kind
        self.link: Any = None

    @property
    def weak(self) -> bool:
        """Stands for a Python number, which takes the dtype of what it meets."""
        return self.kind is not self.type


#: Set by ``tapec.tracer`` and ``tapec.complexes``.
_tracer_class: type[Any] = Handle
_complex_class: type[Any] = Handle


class _Stack(threading.local):
    def __init__(self) -> None:
        self.tapes: list[Tape] = []


_stack = _Stack()


def current_tape() -> Tape | None:
    """The innermost tape that is recording in this thread."""
    tapes = _stack.tapes
    return tapes[-1] if tapes else None


class Tape:
    """See the module's description.  ``captures`` is final once the tape has been lifted."""

    __slots__ = (
        "__weakref__", "_arrays", "_complex", "_constants", "_hidden", "_items", "_values",
        "captures", "chains", "closed", "concrete", "differentiated", "guards", "inputs", "level",
        "limit", "name", "notes", "ranges", "records", "squares", "thread", "views",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.records: list[Record | None] = []
        self.inputs: list[tuple[int, str | None]] = []  # record id, name
        self.concrete: list[Any] = []  # the caller's values, per input
        self.captures: list[Capture] = []
        self.guards: dict[tuple[int, Any], int] = {}
        #: long stretches that could not be rolled into loops: where, and why
        self.notes: list[tuple[Site, str]] = []
        #: ids of the inputs that are differentiated
        self.differentiated: set[int] = set()
        #: records at most
        self.limit = options.tape_limit()
        self.level = -1
        self.thread = get_ident()
        self.closed = False
        #: ids of integers that are known to lie in [low, high): indices of loops
        self.ranges: dict[int, tuple[int, int]] = {}
        #: id of sqrt(s) → id of s, for s that cannot be negative: its square is s again
        self.squares: dict[int, int] = {}
        #: last version of an array that is written to piece by piece → what it is made of
        self.chains: dict[int, Any] = {}
        #: id(base handle) → views of it that are alive (weak references)
        self.views: dict[int, list[Any]] = {}
        self._constants: dict[Any, int] = {}
        self._hidden: dict[Any, int] = {}  # key of a captured object → record id
        self._arrays: dict[int, Any] = {}  # capture record id → fingerprint at capture
        self._complex: dict[int, Any] = {}  # id(complex array) → it and its parts
        self._items: dict[Any, int] = {}
        self._values: dict[int, Any] = {}  # lazily computed concrete values

    def __enter__(self) -> Tape:
        tapes = _stack.tapes
        self.level = len(tapes)
        tapes.append(self)
        return self

    def __exit__(
        self, cls: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.closed = True
        self._values.clear()
        popped = _stack.tapes.pop()
        assert popped is self
        if isinstance(error, (ValueError, SystemError)) and isinstance(error.__cause__, TapecError):
            # NumPy wraps what __float__ raises into "setting an array element with a sequence",
            # compiled callers of the user's function into "returned a result with an exception"
            raise error.__cause__.with_traceback(tb) from None

    def __repr__(self) -> str:
        return f"<Tape {self.name!r}, {len(self.records)} records>"

    # -- recording --------------------------------------------------------------------

    def check(self, handle_id: int | None = None) -> None:
        """Raise ``LeakedTracerError`` unless this tape is recording in this thread."""
        if not self.closed and self.thread == get_ident():
            return
        made = ""
        if handle_id is not None:
            record = self.records[handle_id]
            assert record is not None
            site = record[4]
            named = f" '{site.hint}'" if site.hint else ""
            made = f" The value{named} ({record[3][0]}) was made at {describe_site(site)}."
        why = "its trace has ended" if self.closed else "it belongs to a trace of another thread"
        raise fail(
            LeakedTracerError,
            f"a traced value of '{self.name}' is used although {why}.{made}",
            "return the value from the traced function (has_aux=True for extra results)",
        )

    def full(self) -> NoReturn:
        raise tape_full(self.name, self.limit)

    def push(
        self, op: str, operands: tuple[int, ...], attrs: Attrs, types: tuple[Type, ...]
    ) -> int:
        """Append a record; the id of its first result."""
        if self.closed or self.thread != get_ident():
            self.check(operands[0] if operands else None)
        records = self.records
        at = len(records)
        if at >= self.limit:
            self.full()
        records.append((op, operands, attrs, types, user_site(2)))
        if len(types) > 1:
            records.extend([None] * (len(types) - 1))
        return at

    def record(
        self, op: str, operands: tuple[int, ...], attrs: Attrs, type: Type, kind: Kind = None
    ) -> Tracer:
        """Append a record with one result; its tracer."""
        if self.closed or self.thread != get_ident():
            self.check(operands[0] if operands else None)
        records = self.records
        at = len(records)
        if at >= self.limit:
            self.full()
        records.append((op, operands, attrs, (type,), user_site(2)))
        return _tracer_class(self, at, type, type if kind is None else kind)  # type: ignore[no-any-return]

    def handle(self, at: int) -> Tracer:
        """A tracer for the value ``at``."""
        type = self.type_of(at)
        return _tracer_class(self, at, type, type)  # type: ignore[no-any-return]

    def type_of(self, at: int) -> Type:
        first = at
        while self.records[first] is None:
            first -= 1
        record = self.records[first]
        assert record is not None
        return record[3][at - first]

    def input(self, type: Type, concrete: Any, hint: str | None, weak: bool = False) -> Tracer:
        """A parameter of the traced function.

        ``concrete``: the caller's array, number or outer tracer, from which guards are
        decided; None if it is not known (bodies of structured loops)."""
        supported_dtype(type.dtype.np, f"the argument {hint or ''}".rstrip())
        if type.dtype.kind == "c":  # else it is two parameters, see ``trees``
            raise fail(UnsupportedError, f"{hint or 'a tensor'} is complex", "pass arrays")
        at = len(self.records)
        attrs = {"index": len(self.inputs)}
        self.records.append(("input", (), attrs, (type,), Site(None, hint)))
        self.inputs.append((at, hint))
        self.concrete.append(concrete)
        return _tracer_class(self, at, type, _weak_kind(type) if weak else type)  # type: ignore[no-any-return]

    def constant_id(self, value: Any, dtype: DType) -> int:
        """The id of the scalar constant ``value``."""
        key = (value if value else repr(value), dtype)  # 0.0 and -0.0 differ
        found = self._constants.get(key)
        if found is None:
            type = Type(dtype)
            kind = dtype.kind
            if kind == "i":
                bits = dtype.bits - 1
                if not -(1 << bits) <= value < (1 << bits):
                    raise fail(
                        TapecValueError,
                        f"Python integer {value} out of bounds for {dtype.np}",
                    )
                value = int(value)
            elif kind == "f":
                value = float(value)
            found = len(self.records)
            self.records.append(("constant", (), {"value": value, "type": type}, (type,), NOWHERE))
            self._constants[key] = found
        return found

    def constant(self, value: Any, dtype: DType | None = None) -> Tracer:
        """A constant: a number, or an array that is baked into the program."""
        if isinstance(value, np.ndarray) and value.ndim:
            if value.dtype.kind == "c":
                return self._parts(value, self.constant)
            type = Type(supported_dtype(value.dtype), value.shape)
            at = len(self.records)
            attrs = {"value": Dense(value), "type": type}
            self.records.append(("constant", (), attrs, (type,), NOWHERE))
            return self.handle(at)
        if isinstance(value, (np.generic, np.ndarray)):
            dtype = dtype or supported_dtype(value.dtype)
            value = value.item()
        if dtype is None:
            dtype = PYTHON_SCALARS[value.__class__]
        return self.handle(self.constant_id(value, dtype))

    def fixed(self, array: np.ndarray[Any, Any]) -> Tracer:
        """An array of ours that never changes: a constant if it is small."""
        if array.dtype.kind == "c":
            return self._parts(array, self.fixed)
        return self.constant(array) if array.nbytes <= 2048 else self.array(array)

    def guard(self, condition: Tracer, expected: bool | int, message: str = "") -> None:
        """The compiled program is valid only while ``condition == expected``."""
        key = (condition.id, expected)
        record = self.records[condition.id]
        if record is not None and record[0] == "constant":
            return
        if key not in self.guards:
            attrs = {"expected": expected, "message": message}
            self.guards[key] = self.push("guard", (condition.id,), attrs, ())

    # -- captures ---------------------------------------------------------------------

    def own(self, tracer: Tracer) -> Tracer:
        """``tracer`` as a value of this tape: itself, or a capture of an outer tape's value."""
        outer = tracer.tape
        if outer is self:
            return tracer
        outer.check(tracer.id)
        if outer.level >= self.level:
            raise fail(LeakedTracerError, "values of two unrelated traces meet in one operation")
        key = (id(outer), tracer.id)
        at = self._hidden.get(key)
        if at is None:
            snapshot = _tracer_class(outer, tracer.id, tracer.type, tracer.kind)
            at = self._capture(key, snapshot, tracer.type, Site(None, _hint_of(tracer)))
        return _tracer_class(self, at, tracer.type, tracer.kind)  # type: ignore[no-any-return]

    def _parts(self, array: np.ndarray[Any, Any], make: Callable[..., Tracer]) -> Tracer:
        """A complex array by its parts, of which the same array always has the same two."""
        known = self._complex.get(id(array))
        if known is None:
            known = self._complex[id(array)] = array, array.real, array.imag
        return _complex_class(make(known[1]), make(known[2]))  # type: ignore[no-any-return]

    def array(self, array: np.ndarray[Any, Any]) -> Tracer:
        """A NumPy array that the traced function uses: a hidden input, by reference."""
        if array.dtype.kind == "c":
            return self._parts(array, self.array)
        key = id(array)
        at = self._hidden.get(key)
        if at is not None and array.nbytes <= 4096 and not same_contents(array, self._arrays[at]):
            # written to since: what was read so far stays what it was (see ``lift``)
            at = None
        if at is None:
            if type(array) is not np.ndarray and type(array) is not np.memmap:
                raise fail(
                    TapecTypeError,
                    f"a {type(array).__qualname__} meets a traced value; its own rules for "
                    "operators would be lost",
                    "convert it with np.asarray",
                )
            dtype = supported_dtype(array.dtype)
            at = self._capture(key, array, Type(dtype, array.shape), user_site(2))
            self._arrays[at] = fingerprint(array)
        return self.handle(at)

    def _capture(self, key: Any, obj: Any, type: Type, site: Site) -> int:
        self.check()
        at = len(self.records)
        hint = site.hint if isinstance(obj, Handle) else None
        attrs = {"index": len(self.captures)}
        self.records.append(("capture", (), attrs, (type,), Site(site.loc, hint)))
        self.captures.append(Capture(obj, type))
        self._hidden[key] = at
        return at

    def settle_captures(self, size: int) -> dict[int, Any]:
        """Decide which captures become constants: record id → their value.

        An array that nobody but this tape can reach any more was made inside the traced
        function: it cannot change, and a small one is worth baking in.  An array that was
        written to during the trace is baked as it was when it was read, if it cannot be
        reached; else the function edits a captured array, which no compiled program mirrors.
        """
        self._values.clear()
        self._complex.clear()
        baked: dict[int, Any] = {}
        kept: list[Capture] = []
        times = Counter(id(c.obj) for c in self.captures)
        halves = Counter(id(b) for c in self.captures if (b := _whole(c.obj)) is not None)
        b = None
        for at in [at for at, r in enumerate(self.records) if r is not None and r[0] == "capture"]:
            record = self.records[at]
            assert record is not None
            obj = self.captures[record[2]["index"]].obj
            if not isinstance(obj, Handle):
                # names of ours: obj, the argument of getrefcount, the captures
                private = sys.getrefcount(obj) <= 2 + times[id(obj)]
                whole = _whole(obj)
                if whole is not None:  # a part of a complex array: ``whole`` and the parts refer
                    private &= whole.base is None
                    private &= sys.getrefcount(whole) <= 2 + halves[id(whole)]
                else:
                    private &= obj.base is None
                whole = None
                mark = self._arrays[at]
                if not same_contents(obj, mark):
                    if not isinstance(mark, np.ndarray) or not private:
                        raise TapecValueError(
                            f"{describe_site(record[4])}: an array used here (shape {obj.shape}) "
                            "is written to while the function is traced; instead: use "
                            "tapec.numpy arrays, or finish the array before using it"
                        )
                    baked[at] = mark
                    continue
                if private and obj.nbytes <= size:
                    baked[at] = obj
                    continue
            record[2]["index"] = len(kept)  # type: ignore[index]
            kept.append(Capture(obj, record[3][0]))
        self.captures = kept
        return baked

    # -- values -----------------------------------------------------------------------

    def value_of(self, at: int) -> Any:
        """The concrete value of ``at`` for the caller's arguments (computed once)."""
        memo = self._values
        todo = [at]
        while todo:
            now = todo[-1]
            if now in memo:
                todo.pop()
                continue
            first = now
            while self.records[first] is None:
                first -= 1
            record = self.records[first]
            assert record is not None
            op, operands = record[0], record[1]
            missing = [k for k in operands if k not in memo]
            if missing:
                todo.extend(missing)
                continue
            todo.pop()
            if op in ("input", "capture"):
                memo[now] = self._leaf(record)
            else:
                results = evaluate(record, [memo[k] for k in operands])
                memo.update(zip(range(first, first + len(results)), results))
        return memo[at]

    def _leaf(self, record: Record) -> Any:
        op, _, attrs, types, site = record
        index = attrs["index"]
        obj = self.concrete[index] if op == "input" else self.captures[index].obj
        if obj is None:
            raise fail(
                ConversionError,
                f"the value of '{site.hint or 'a loop variable'}' is not known while tracing, so "
                "Python cannot branch on it",
                "use np.where, tapec.cond or tapec.while_loop",
            )
        if isinstance(obj, Handle):
            return obj.tape.value_of(obj.id)
        return np.asarray(obj, types[0].dtype.np)

    # -- functions --------------------------------------------------------------------

    def inline(self, fn: Function, operands: Sequence[Any]) -> list[Tracer]:
        """Replay the body of ``fn`` on this tape; tracers of its results."""
        if len(operands) != len(fn.params):
            raise TypeError(f"{fn.name} takes {len(fn.params)} operands, not {len(operands)}")
        env: dict[Any, int] = {}
        for param, operand in zip(fn.params, operands):
            value = as_tracer(self, operand)
            if value.type is not param.type:
                raise TypeError(f"{fn.name}: operand of type {value.type} for {param.type}")
            env[param] = value.id
        self.check()
        records = self.records
        for op in fn.ops:
            results = op.results
            attrs: Attrs = op.attrs
            if op.regions:
                attrs = {**attrs, "regions": op.regions}
            at = len(records)
            site = _site(op.loc, results[0].hint if results else None)
            operand_ids = tuple([env[v] for v in op.operands])
            records.append((op.name, operand_ids, attrs, tuple([r.type for r in results]), site))
            for k, result in enumerate(results):
                env[result] = at + k
                if k:
                    records.append(None)
        return [self.handle(env[v]) for v in fn.results]

    def format(self, color: bool = False) -> str:
        """The tape as text, one record a line, with the user's source lines."""
        from tapec.lift import format_tape

        return format_tape(self, color)


@functools.lru_cache(4096)
def _site(loc: Loc | None, hint: str | None) -> Site:
    """One object for one place, by which ``lift`` recognises repetitions."""
    return Site(loc, hint)


def _whole(obj: Any) -> Any:
    """The complex array of which ``obj`` is a part; None if it is not one."""
    base = obj.base if isinstance(obj, np.ndarray) and obj.dtype.kind == "f" else None
    return base if isinstance(base, np.ndarray) and base.dtype.kind == "c" else None


def _hint_of(tracer: Tracer) -> str | None:
    at = tracer.id
    record = tracer.tape.records[at]
    return record[4].hint if record is not None else None


# -- anything → tracer ------------------------------------------------------------------


def is_traced(value: Any) -> bool:
    """Whether ``value`` is a tracer, or an object array or nested list that holds one."""
    if isinstance(value, Handle):
        return True
    if isinstance(value, np.ndarray):
        return value.dtype == object and any(isinstance(e, Handle) for e in value.flat)
    if isinstance(value, (list, tuple)):
        return any(is_traced(e) for e in value)
    return False


def as_tracer(tape: Tape, value: Any) -> Tracer:
    """``value`` as a value of ``tape``.

    Numbers become constants; NumPy arrays, and tracers of outer tapes, captures; object
    arrays and nested lists of traced values are stacked.
    """
    cls = value.__class__
    if cls is _tracer_class:
        return value if value.tape is tape else tape.own(value)
    if cls is complex or cls is _complex_class or isinstance(value, np.complexfloating):
        from tapec import complexes

        made = complexes.own if cls is _complex_class else complexes.constant
        return made(tape, value)
    if cls in PYTHON_SCALARS:
        tracer = tape.constant(value)
        tracer.kind = _weak_kind(tracer.type) if cls is not bool else tracer.type
        return tracer
    if isinstance(value, np.ndarray):
        return stack_nested(tape, value.tolist()) if value.dtype == object else tape.array(value)
    if isinstance(value, np.generic):
        return tape.constant(value)
    if isinstance(value, (list, tuple)):
        if is_traced(value):
            return stack_nested(tape, value)
        try:
            array = np.array(value)
        except ValueError as error:
            raise fail(TapecValueError, str(error)) from None
        if array.size == 0 or array.dtype != object:
            return tape.fixed(array)
    convert = getattr(value, "__array__", None)
    if convert is not None and not isinstance(value, type):
        return as_tracer(tape, convert())
    raise fail(
        TapecTypeError, f"a {cls.__qualname__} where an array or a number is expected: {value!r}"
    )


# The operators and NumPy functions of tracers register themselves.
import tapec.numpy  # noqa: E402, F401
from tapec.stacking import stack_nested  # noqa: E402
