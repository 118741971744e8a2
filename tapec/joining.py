"""One trace for both sides of a branch: what rewritten functions call (see ``rewriting``).

A ``Joiner`` belongs to one trace.  ``branch`` and ``value`` are asked at each ``if``: where the
condition is traced, both sides run, each on a tape of its own, and a ``cond`` joins what they
assign or return.  So a function with twelve independent branches is one program with twelve
``cond``, not 4,096 traces.

A side that is not taken runs with the values of another path, so it must not be seen to run:
``call`` lets only functions through that compute and do nothing else.  Whatever goes wrong in
a side (such a call, an exception, results that cannot be joined) makes the branch a guard, as
it would be without all this.

Invariants: no side has effects outside of its tape; a joined value stands for the same value on
either path (``sound`` at the end of the trace says whether arrays that names may share were
written to, in which case the trace must not be used).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import local
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from tapec import trees
from tapec.control import loop_while
from tapec.errors import TapeLimitError
from tapec.ir.core import BOOL, C64, F32, I64, Function, Type, walk
from tapec.kinds import weak_kind
from tapec.primitives import select, unary
from tapec.purity import WRITING, computes, is_internal, reading
from tapec.rewriting import rewritten, with_code
from tapec.sides import (
    AMBIGUOUS,
    DIFFERENT,
    UNBOUND,
    NotJoined,
    Sentinel,
    Side,
    common_type,
    common_value,
    condition,
    matched,
    recorded,
    tracers,
    within,
)  # fmt: skip
from tapec.tape import as_tracer, current_tape, is_traced
from tapec.tracer import Tracer

__all__ = ["Joiner", "current_joiner"]

#: Branches joined in one trace at most; beyond that, re-tracing is no worse.
MAX_BRANCHES = 2000


_NUMBERS = (bool, int, float, complex, str, tuple, np.generic)
_IN_PLACE: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.iadd, "Sub": operator.isub, "Mult": operator.imul, "Div": operator.itruediv,
    "FloorDiv": operator.ifloordiv, "Mod": operator.imod, "Pow": operator.ipow,
    "MatMult": operator.imatmul, "BitAnd": operator.iand, "BitOr": operator.ior,
    "BitXor": operator.ixor, "LShift": operator.ilshift, "RShift": operator.irshift,
}  # fmt: skip


class _Active(local):
    joiner: Joiner | None = None


_active = _Active()


def current_joiner() -> Joiner | None:
    """The joiner of the trace that is running in this thread."""
    return _active.joiner


class Joiner:
    """See the module's description."""

    def __init__(self) -> None:
        #: branches that were joined, and branches (by place) that cannot be
        self.joined = 0
        self.plain: set[Any] = set()
        self.sound = True
        #: whether numbers of Python, which have no bounds, were joined
        self.integers = False
        self._inside: list[Any] = []  # places of the branches whose sides are running
        self._shared: list[tuple[Tracer, Any, int]] = []
        self._copies: dict[Any, Any] = {}

    @contextmanager
    def active(self) -> Iterator[None]:
        before, _active.joiner = _active.joiner, self
        try:
            yield
        finally:
            _active.joiner = before
            if any(t.tape is not tape or t.id != at for t, tape, at in self._shared):
                self.sound = False
            # Copies and their helper refer to each other, and to what the function captured.
            self._copies.clear()
            self._shared.clear()

    # -- functions ------------------------------------------------------------------

    def copy(self, f: Any) -> Any:
        """``f`` with its branches rewritten, or itself."""
        if isinstance(f, functools.partial):
            return functools.partial(self.copy(f.func), *f.args, **f.keywords)
        if isinstance(f, MethodType):
            return MethodType(self.copy(f.__func__), f.__self__)
        if not isinstance(f, FunctionType) or is_internal(f):
            return f
        known = self._copies.get(f)
        if known is None:
            made = rewritten(f.__code__)
            known = self._copies[f] = f if made is None else with_code(f, made.code, self)
        return known

    def call(self, f: Any) -> Any:
        """What stands for ``f`` in a call."""
        if f is max or f is min:
            return functools.partial(self._extreme, f)
        if f is isinstance or f is type:
            ask: Callable[..., Any] = f
            return functools.partial(self._class, ask)
        if self._inside:
            if not self._pure(f):
                raise NotJoined(f"{f!r} is called")
            if not isinstance(f, (FunctionType, MethodType)) or f.__module__ == "numpy":
                return reading(f)
        return self.copy(f)

    def _pure(self, f: Any) -> bool:
        if isinstance(f, MethodType):
            if isinstance(f.__self__, Tracer):
                return f.__name__ not in WRITING and not f.__name__.startswith("__")
            return self._pure(f.__func__)
        if isinstance(f, FunctionType) and not is_internal(f):
            made = rewritten(f.__code__)
            return made is not None and made.pure
        return computes(f)

    # -- branches -------------------------------------------------------------------

    def get(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except NameError:
            return UNBOUND

    def is_unbound(self, value: Any) -> bool:
        return value is UNBOUND or value is AMBIGUOUS

    def in_place(self, op: str, value: Any, other: Any) -> Any:
        """``value += other``.  In a side it must not change an array or a list."""
        if self._inside and not isinstance(value, _NUMBERS):
            if not isinstance(value, Tracer) or value.type.shape:
                raise NotJoined("an array is written to")
        return _IN_PLACE[op](value, other)

    def items(self, value: Any) -> Any:
        """``value``, over whose items a side goes: they must be there the next time, too."""
        if self._inside and hasattr(type(value), "__next__"):
            raise NotJoined("an iterator is used up")
        return value

    def asked(self, value: Any) -> Any:
        """``value``, which is asked what object it is: a joined one cannot tell."""
        if isinstance(value, Tracer) and (value.weak or value.type.dtype is BOOL):
            self.sound = False
        return value

    def _class(self, ask: Callable[..., Any], value: Any, *rest: Any) -> Any:
        return ask(self.asked(value), *rest)

    def branch(
        self,
        place: Any,
        test: Any,
        true: Callable[..., tuple[Any, ...]],
        false: Callable[..., tuple[Any, ...]],
        values: tuple[Any, ...],
        strict: Sequence[bool],
    ) -> tuple[Any, ...]:
        """The names that two sides assign, after one of them has run."""
        if isinstance(test, Tracer):
            key = getattr(true, "__code__", None), place
            out = self._join(key, test, true, false, values, strict)
            if out is not None:
                return tuple(out)
        return self._taken(true if test else false, values)  # type: ignore[no-any-return]

    def value(
        self,
        place: Any,
        test: Any,
        true: Callable[..., Any],
        false: Callable[..., Any],
        values: tuple[Any, ...],
    ) -> Any:
        """What one of two functions returns."""
        if isinstance(test, Tracer):
            key = getattr(true, "__code__", None), place
            out = self._join(key, test, _single(true), _single(false), values, (True,), True)
            if out is not None:
                return out[0]
        return self._taken(true if test else false, values)

    def both(self, place: Any, first: Any, second: Callable[..., Any], values: Any) -> Any:
        """``first and second``"""
        if not isinstance(first, Tracer):
            return first and second(*values)
        return self.value(place, first, second, lambda *_: first, values)

    def either(self, place: Any, first: Any, second: Callable[..., Any], values: Any) -> Any:
        """``first or second``"""
        if not isinstance(first, Tracer):
            return first or second(*values)
        return self.value(place, first, lambda *_: first, second, values)

    def negated(self, value: Any) -> Any:
        if isinstance(value, Tracer) and value.type.size == 1:
            return unary("not", condition(value))
        return not value

    def _extreme(self, f: Any, *args: Any, **kwargs: Any) -> Any:
        """Python's ``max`` and ``min``: of equal ones the first."""
        if kwargs or len(args) < 2 or not is_traced(list(args)):
            return f(*args, **kwargs)
        if any(x.type.shape if isinstance(x, Tracer) else np.ndim(x) for x in args):
            return f(*args)
        best = args[0]
        for x in args[1:]:
            better = x > best if f is max else x < best
            if isinstance(better, Tracer):
                try:
                    weak = common_type(x, best)[1]
                except NotJoined:
                    return f(*args)
                best = select(better, x, best)
                if weak:
                    best.kind = weak_kind(best.type)
                self.joined += 1
            elif better:
                best = x
        return best

    def loop(
        self,
        place: Any,
        test: Callable[..., Any],
        body: Callable[..., tuple[Any, ...]],
        values: tuple[Any, ...],
        stored: Sequence[int],
        strict: Sequence[bool],
    ) -> tuple[Any, ...]:
        """The names that the body of a ``while`` assigns (``stored``: places among ``values``),
        after the last iteration."""
        now = list(values)
        key = (test.__code__, place)
        while True:
            going = test(*now)
            if isinstance(going, Tracer) and going.type.size == 1 and key not in self.plain:
                self._inside.append(key)
                try:
                    return self._looped(test, body, now, stored, strict)
                except TapeLimitError:
                    raise
                except Exception:
                    self.plain.add(key)
                finally:
                    self._inside.pop()
            if not going:
                return tuple([now[k] for k in stored])
            for k, v in zip(stored, body(*now)):
                now[k] = v

    def _looped(
        self,
        test: Callable[..., Any],
        body: Callable[..., tuple[Any, ...]],
        values: list[Any],
        stored: Sequence[int],
        strict: Sequence[bool],
    ) -> tuple[Any, ...]:
        # What only the body reads is carried from one iteration to the next if it has a value.
        strict = [must or isinstance(values[k], (int, float, Tracer))
                  for k, must in zip(stored, strict)]  # fmt: skip
        carried = [k for k, must in zip(stored, strict) if must]
        init = [values[k] for k in carried]
        _check_carried(init, values)

        def given(state: tuple[Any, ...]) -> list[Any]:
            tape = current_tape()
            assert tape is not None
            out = [within(tape, v) for v in values]
            for k in stored:
                out[k] = UNBOUND
            for k, v in zip(carried, state):
                out[k] = v
            return out

        def again(state: tuple[Any, ...]) -> tuple[Any, ...]:
            new = body(*given(state))
            for was, v in zip(init, out := [v for v, must in zip(new, strict) if must]):
                if isinstance(was, int) and not _counts(v):
                    raise NotJoined("an integer that may grow beyond 64 bits")
            return tuple(out)

        done = iter(loop_while(lambda state: test(*given(state)), again, tuple(init)))
        self.integers = self.integers or any(isinstance(v, int) for v in init)
        for leaf in tracers(values):
            self.share(leaf)
        self.joined += 1
        return tuple([next(done) if must else AMBIGUOUS for must in strict])

    def _taken(self, side: Callable[..., Any], values: tuple[Any, ...]) -> Any:
        try:
            return side(*values)
        except Exception:
            if AMBIGUOUS in [v for v in values if isinstance(v, Sentinel)]:
                self.sound = False
            raise

    def _join(
        self,
        key: Any,
        test: Tracer,
        true: Callable[..., Sequence[Any]],
        false: Callable[..., Sequence[Any]],
        values: tuple[Any, ...],
        strict: Sequence[bool],
        fresh: bool = False,
    ) -> list[Any] | None:
        """``fresh``: results are new objects, unless they are among ``values``."""
        if test.type.size != 1 or key in self.plain or self.joined >= MAX_BRANCHES:
            return None
        if key in self._inside:  # recursion: where it ends is for the guards to say
            return None
        self._inside.append(key)
        try:
            return self._joined(condition(test), true, false, values, strict, fresh)
        except TapeLimitError:
            raise
        except Exception:
            self.plain.add(key)
            return None
        finally:
            self._inside.pop()

    def _joined(
        self,
        test: Tracer,
        true: Callable[..., Sequence[Any]],
        false: Callable[..., Sequence[Any]],
        values: tuple[Any, ...],
        strict: Sequence[bool],
        fresh: bool,
    ) -> list[Any]:
        tape = current_tape()
        assert tape is not None
        sides = [Side(fn, values) for fn in (false, true)]
        results: list[Any] = []
        wanted: list[Type] = []
        at: list[tuple[int, Any]] = []  # place among the results, structure
        weak: list[bool] = []
        for k, must in enumerate(strict):
            pair = [side.out[k] for side in sides]
            same = common_value(sides, pair, values)
            if same is not DIFFERENT:
                results.append(same)
                continue
            try:
                a, b, treedef = matched(sides, pair, fresh)
                types = [common_type(x, y) for x, y in zip(a, b)]
            except NotJoined:
                if must:
                    raise
                results.append(AMBIGUOUS)
                continue
            at.append((len(results), treedef))
            results.append(None)
            for x, y, (type, is_weak) in zip(a, b, types):
                self.integers = self.integers or (is_weak and type.dtype is I64)
                wanted.append(type)
                weak.append(is_weak)
                for side, leaf in zip(sides, (x, y)):
                    side.leaves.append(leaf)
        if not wanted:  # both sides say the same
            return results
        bodies = [side.body(wanted) for side in sides]
        made = recorded(tape, as_tracer(tape, test), bodies)
        for tracer, is_weak in zip(made, weak):
            if is_weak:
                tracer.kind = weak_kind(tracer.type)
            elif tracer.type.shape:
                self.share(tracer)
        for leaf in tracers(values):
            self.share(leaf)
        done = iter(made)
        for k, treedef in at:
            count = treedef.num_leaves
            results[k] = trees.unflatten(treedef, [next(done) for _ in range(count)])
        self.joined += 1
        return results

    def exact(self, fn: Function) -> bool:
        """Whether integers of 64 bits do for what the function does with joined ones."""
        return not self.integers or not any(
            op.name in ("integer_pow", "mul", "pow", "shift_left") and r.type.dtype is I64
            for op in walk(fn.block)
            for r in op.results
        )

    def share(self, tracer: Tracer) -> None:
        """After a branch two names may stand for one array, or not: it must stay as it is."""
        if tracer.type.shape:
            self._shared.append((tracer, tracer.tape, tracer.id))


def _single(side: Callable[..., Any]) -> Callable[..., tuple[Any]]:
    return lambda *args: (side(*args),)


# -- what goes round a loop ---------------------------------------------------------------


def _check_carried(init: Sequence[Any], values: Sequence[Any]) -> None:
    """Numbers and traced values can be carried.  A Python number takes the dtype of what it meets
    in each iteration, so it does not go with single precision."""
    for v in init:
        if not isinstance(v, (int, float, complex, Tracer)) or isinstance(v, bool):
            raise NotJoined(f"a {type(v).__qualname__} is carried")
    weak = any(not isinstance(v, Tracer) or v.weak for v in init)
    if weak and any(t.type.dtype in (F32, C64) for t in tracers(tuple(values))):
        raise NotJoined("numbers of Python with single precision")


def _counts(v: Any) -> bool:
    """Whether an integer is what it was before, plus or minus a constant."""
    if not isinstance(v, Tracer):
        return False
    records = v.tape.records
    record = records[v.id]
    if record is None or record[0] == "input":
        return True
    if record[0] not in ("add", "sub"):
        return False
    kinds = [r[0] for k in record[1] if (r := records[k]) is not None]
    return (
        kinds[0] in ("input", "constant")
        and kinds[1] in ("input", "constant")
        and ("constant" in kinds)
    )
