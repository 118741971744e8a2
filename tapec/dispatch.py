"""From a call to the right compiled variant: signatures, guards, the slow path.

A ``Dispatcher`` belongs to one function and one transform.  It keeps, per signature, a
list of variants, most recently used first.  A variant is one trace of the user's
function; it holds for a call if what the function read elsewhere is unchanged
(``depends``) and its guards hold, which the kernel itself reports.  If none holds, the
function is traced again.

The callable that users hold starts in native code where that is possible (``native``);
everything here is what happens when that code declines.

Invariants: a result is returned only from a variant whose guards held for these arguments;
user exceptions pass through unchanged and leave the tables as they were.
"""

from __future__ import annotations

import inspect
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapec import options, trees
from tapec.backend import Compiled, NativeProgram, compile_program, seed_array
from tapec.cautions import Draws
from tapec.depends import Read, array_reads, collect, unchanged
from tapec.errors import (
    TapecError,
    TapecIndexError,
    TapecLinAlgError,
    TapecTypeError,
    TapecValueError,
    TapeLimitError,
    VariantLimitError,
)
from tapec.ir.interp import GuardFailed
from tapec.joining import Joiner, current_joiner
from tapec.kinds import weak_kind
from tapec.signature import (
    FLOAT,
    Flat,
    Key,
    Layout,
    Spec,
    describe,
    known_array,
    native_array,
)
from tapec.tape import Handle, as_tracer, current_tape, is_traced
from tapec.trace import Traced, definition, parameter_names, trace, where_defined
from tapec.transforms import (
    Program,
    Result,
    Transform,
    build,
    lifted_leaves,
    linear_map,
    pullback,
)

__all__ = ["Call", "Dispatcher", "Variant"]

Array = np.ndarray[Any, Any]

#: Signatures kept per function; the oldest goes first.
MAX_SIGNATURES = 1024
#: Variants that native code tries, one after the other, before it declines.
MAX_LINKED = 64
#: A trace with so many guards is one of very many paths: the second one joins branches.
MANY_GUARDS = 4


class Variant:
    """One trace of the function, compiled.  ``reads``: what else it depended on."""

    __slots__ = ("compiled", "guards", "joins", "linear", "program", "pull", "reads", "traced")

    def __init__(self, traced: Traced, program: Program, reads: tuple[Read, ...]) -> None:
        self.reads = reads
        self.program = program._replace(raw=None)
        self.compiled: Compiled = compile_program(program, traced, reads)
        # The caller's arguments must not live as long as the variant.
        flat = Flat([], traced.flat.keys, traced.flat.layout)
        self.traced = traced._replace(flat=flat, subject=None)
        self.pull: tuple[Program, Compiled] | None = None
        self.guards = sum(op.name == "guard" for op in traced.fn.ops)
        #: whether it takes both ways at some branches
        self.joins = False
        self.linear: Callable[[Sequence[Any], list[Any]], Any] | None = None

    def pullback(self) -> tuple[Program, Compiled]:
        """The program from cotangents to cotangents, compiled at its first use."""
        if self.pull is None:
            program = pullback(self.traced)
            self.pull = program, compile_program(program, self.traced)
        return self.pull

    def linear_map(self) -> Callable[[Sequence[Any], list[Any]], Any]:
        """From residuals and tangents to the tangent of the value; compiled at its first use."""
        if self.linear is None:
            program = linear_map(self.traced)
            types = program.fn.params[: len(program.fn.params) - len(program.seeds)]
            keys = tuple([Spec("array", p.type) for p in types])
            _, treedef = trees.flatten((tuple(range(len(keys))), {}))
            layout = Layout(treedef, None, "linearize")
            flat = Flat([], keys, layout)
            traced = self.traced._replace(fn=program.fn, flat=flat, captures=[])
            compiled = compile_program(program, traced)
            self.linear = lambda residuals, seeds: compiled.run(
                Flat(list(residuals), keys, layout), seeds
            )
        return self.linear


class Call:
    """One call: the flattened arguments and, for ``jvp`` and ``hvp``, the seeds."""

    __slots__ = ("flat", "seeds")

    def __init__(self, flat: Flat, seeds: list[Any] | None) -> None:
        self.flat = flat
        self.seeds = seeds


class Counts:
    """For ``fn.stats``: compilations, the time they took, and calls that took a new path."""

    __slots__ = ("compiles", "misses", "seconds")

    def __init__(self) -> None:
        self.compiles = self.misses = 0
        self.seconds = 0.0


_dispatchers: weakref.WeakSet[Dispatcher] = weakref.WeakSet()


class Dispatcher:
    """The variants of one function under one transform."""

    def __init__(self, transform: Transform, name: str) -> None:
        self.transform = transform
        self.name = name
        self.lock = threading.RLock()
        self.signatures: dict[Any, list[Variant]] = {}
        self.layouts: dict[Any, Layout] = {}
        #: the native callable that calls arrive through, and the variants linked into it
        self.owner: weakref.ref[Any] | None = None
        self.linked: list[Variant] = []
        self.counts = Counts()
        self.lift = lifted_leaves(transform)
        _dispatchers.add(self)

    # -- flattening ---------------------------------------------------------------------

    def flatten(
        self, subject: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Call:
        """Flatten and describe a call; ``TypeError`` naming an argument that cannot be."""
        kind = self.transform.kind
        vector: Any = None
        if kind == "hvp":
            args, vector = self._take_vector(args)
        leaves, treedef = trees.flatten((args, kwargs))
        layout = self.layouts.get(treedef)
        if layout is None:
            argnums = self.transform.argnums
            if kind in ("jvp", "vjp", "linearize"):
                argnums = tuple(range(len(args)))
            try:
                layout = Layout(treedef, None if kind == "jit" else argnums, kind)
            except TapecTypeError:
                _check_call(subject, args, kwargs)  # a call that does not fit is the first mistake
                raise
            self.layouts[treedef] = layout
        keys: list[Key] = []
        for i, (leaf, wanted) in enumerate(zip(leaves, layout.differentiated)):
            cls = type(leaf)
            if cls is float:
                keys.append(FLOAT)
                continue
            if cls is np.ndarray:
                known = known_array(leaf)
                if known is not None and (not wanted or known.type.dtype.is_inexact):
                    keys.append(known)
                    continue
            keys.append(self._describe(leaves, i, wanted, subject, layout))
        flat = Flat(leaves, tuple(keys), layout)
        if kind == "hvp":
            k = layout.wrt[0]
            seeds, seeds_def = trees.flatten(vector)
            fitted = trees.fit(seeds, seeds_def, layout.args[k])
            if fitted is None:
                raise TapecTypeError(
                    f"hvp: the vector has the structure {seeds_def}, but the argument that is "
                    f"differentiated has {layout.args[k]}"
                )
            return Call(flat, fitted)
        return Call(flat, None)

    def _take_vector(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
        assert self.transform.argnums is not None
        (k,) = self.transform.argnums
        if k < 0 or k + 1 >= len(args):
            raise TapecTypeError(
                f"hvp: expected the vector after argument {k}, as in hvp(fn)(x, v, ...); "
                f"it was called with {len(args)} positional arguments"
            )
        return (*args[: k + 1], *args[k + 2 :]), args[k + 1]

    def _describe(
        self, leaves: list[Any], i: int, wanted: bool, subject: Any, layout: Layout
    ) -> Key:
        """The key of leaf ``i``; an object array of tracers becomes one tracer in ``leaves``."""
        leaf = leaves[i]
        if not isinstance(leaf, Handle):
            tape = current_tape()
            if tape is None or not (isinstance(leaf, np.ndarray) and is_traced(leaf)):
                return describe(leaf, wanted, lambda: _leaf_name(subject, layout, i))
            leaves[i] = leaf = as_tracer(tape, leaf)
        type = leaf.type
        if wanted and not type.dtype.is_inexact:
            raise TapecTypeError(
                f"cannot differentiate with respect to {_leaf_name(subject, layout, i)}: "
                f"its dtype is {type.dtype.np}; convert it with .astype(float)"
            )
        if leaf.weak:
            return Spec("float" if type.dtype.kind == "f" else "int", type)
        return Spec("array", type)

    # -- calling --------------------------------------------------------------------------

    def call(
        self,
        subject: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        seeds: Any = None,
    ) -> Any:
        """What the transformed function returns."""
        if current_tape() is None and seeds is None:
            return self.compute(subject, self.flatten(subject, args, kwargs))[0]
        if self.transform.kind == "jit":
            joiner = current_joiner()
            return (subject if joiner is None else joiner.copy(subject))(*args, **kwargs)
        return self.select(subject, args, kwargs, seeds)[0]

    def select(
        self,
        subject: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        seeds: Any = None,
    ) -> tuple[Any, Variant | None, Call]:
        """The result, the variant that gave it (None: recorded on an outer tape), the call."""
        tape = current_tape()
        call = self.flatten(subject, args, kwargs)
        if seeds is not None:
            call.seeds = list(seeds)
        if tape is not None:
            traced = self.trace(subject, call.flat)
            if (
                not traced.concrete
                or any(isinstance(x, Handle) for x in call.flat.leaves)
                or any(is_traced(x) for x in call.seeds or ())
            ):
                return self.record(tape, traced, call), None, call
            return self.compute(subject, call, traced)
        return self.compute(subject, call, None)

    def trace(
        self,
        subject: Callable[..., Any],
        flat: Flat,
        *,
        keep_text: bool = False,
        color: bool = False,
    ) -> Traced:
        """Run the user's function on tracers."""
        joiner = current_joiner()
        return trace(
            subject,
            flat,
            self.name,
            lift_constants=self.lift,
            keep_text=keep_text,
            color=color,
            body=joiner.copy(subject) if joiner is not None else None,
        )

    def joined(self, subject: Callable[..., Any], flat: Flat) -> Traced | None:
        """A trace of both sides of each branch, as far as possible; None if there is no branch
        to join."""
        joiner = Joiner()
        try:
            with joiner.active():
                traced = self.trace(subject, flat)
        except TapeLimitError:
            raise
        except Exception:  # what is wrong will show again without it
            return None
        if not joiner.joined or not joiner.sound or not joiner.exact(traced.fn):
            return None
        return traced

    def record(self, tape: Any, traced: Traced, call: Call) -> Any:
        """Inline the transformed function in the outer tape; its result on tracers."""
        program = build(traced, self.transform, inline=True)
        return inline(tape, program, traced, call.seeds or [])

    def compute(
        self, subject: Callable[..., Any], call: Call, traced: Traced | None = None
    ) -> tuple[Any, Variant, Call]:
        """Run the variant that holds for a call, making it if there is none."""
        flat = call.flat
        variants = self.signatures.get(flat.key)
        failed: GuardFailed | None = None
        if variants:
            for at, variant in enumerate(variants):
                if variant.reads and not unchanged(variant.reads):
                    continue
                try:
                    result = variant.compiled.run(flat, call.seeds)
                except GuardFailed as error:
                    failed = error
                    continue
                if at:
                    self.signatures[flat.key] = [
                        variant,
                        *(v for v in variants if v is not variant),
                    ]
                if variant.compiled.linkable and variant not in self.linked:
                    self.link(variant)
                return result, variant, call
        with self.lock:
            now = self.signatures.get(flat.key)
            if now is not variants and now is not None and traced is None:
                # another thread was faster: its variants may serve this call
                for variant in now:
                    if variants and variant in variants:
                        continue
                    if variant.reads and not unchanged(variant.reads):
                        continue
                    try:
                        return variant.compiled.run(flat, call.seeds), variant, call
                    except GuardFailed as error:
                        failed = error
            from tapec.ir.rewrite import paused_gc

            with paused_gc():
                return self._compile_and_run(subject, call, traced, failed)

    def _compile_and_run(
        self,
        subject: Callable[..., Any],
        call: Call,
        traced: Traced | None,
        failed: GuardFailed | None,
    ) -> tuple[Any, Variant, Call]:
        flat = call.flat
        variants = self.signatures.get(flat.key, [])
        # Variants whose surroundings have changed are not counted: they are replaced.
        alive = [v for v in variants if not v.reads or unchanged(v.reads)]
        stale = [v for v in variants if v not in alive]
        limit = options.max_variants()
        if len(alive) >= limit:
            raise self._too_many(subject, alive, call, limit)
        statics = [k.value for k in flat.keys if not isinstance(k, Spec)]
        reads = collect((subject, *statics))
        draws = Draws([*(r.value for r in reads), *statics])
        started = time.perf_counter()
        join_at = options.join_at()
        joins = (
            traced is None
            and join_at is not None
            and (
                len(alive) + 1 >= join_at or any(v.joins or v.guards >= MANY_GUARDS for v in alive)
            )
        )
        if joins:
            traced = self.joined(subject, flat)
        if traced is None:
            joins = False
            traced = self.trace(subject, flat)
        draws.check(*definition(subject))
        # What the trace itself changed (a list it appends to) is not what it depends on.
        kept = [r for r in reads if unchanged((r,))]
        reads = (*kept, *array_reads(kept, traced.captures))
        if not traced.concrete:
            raise TapecTypeError(
                f"the function at {where_defined(subject)} uses a traced value of another trace"
            )
        variant = Variant(traced, build(traced, self.transform), reads)
        variant.compiled.seconds = time.perf_counter() - started
        self.counts.compiles += 1
        self.counts.seconds += variant.compiled.seconds
        self.counts.misses += failed is not None
        try:
            result = variant.compiled.run(flat, call.seeds)
        except GuardFailed:
            # The trace took a branch by NumPy's arithmetic that the kernel decides otherwise in
            # the last bit.  NumPy's is the meaning of the program.
            try:
                return variant.compiled.run_reference(flat, call.seeds), variant, call
            except GuardFailed as error:  # a guard in a loop, which the trace did not decide
                raise _failure_in_loop(self.name, error) from None
        if flat.key not in self.signatures and len(self.signatures) >= MAX_SIGNATURES:
            self.signatures.pop(next(iter(self.signatures)))
        variant.joins = joins
        if joins:  # it has the paths of those that take one way only
            alive = [v for v in alive if v.joins]
            self.linked = [v for v in self.linked if v in alive]
        self.signatures[flat.key] = [variant, *alive, *stale][:limit]
        self.link(variant)
        return result, variant, call

    def link(self, variant: Variant) -> None:
        """Let the callable's native code try this variant first, if it can."""
        if isinstance(variant.compiled, NativeProgram):
            variant.compiled.relink = weakref.WeakMethod(self.relink)
        if self.owner is not None and variant.compiled.linkable:
            with self.lock:
                others = [v for v in self.linked if v is not variant]
                self.linked = [variant, *others][:MAX_LINKED]
                self._link_all()

    def relink(self) -> None:
        """The native code of a variant has been exchanged."""
        with self.lock:
            self._link_all()

    def adopt(self, owner: Any) -> None:
        """Calls arrive through this native callable from now on."""
        with self.lock:
            self.owner = weakref.ref(owner)
            self._link_all()

    def _link_all(self) -> None:
        from tapec.codegen.abi import link_chain

        owner = self.owner() if self.owner is not None else None
        if owner is not None and self.linked:
            native = [v.compiled for v in self.linked]
            link_chain(owner, [c.variant for c in native if isinstance(c, NativeProgram)])

    def mentions(self, obj: Any) -> bool:
        """Whether a variant refers to ``obj``, and so keeps it alive."""
        return any(
            any(obj is x for x in r.value) if type(r.value) is tuple else obj is r.value
            for variants in self.signatures.values()
            for v in variants
            for r in v.reads
            if not isinstance(r.value, np.ndarray)
        )

    def _too_many(
        self, subject: Any, variants: Sequence[Variant], call: Call, limit: int
    ) -> VariantLimitError:
        """Names the condition at which most of the paths known part from this one."""
        reasons: Counter[tuple[str, str]] = Counter()
        for variant in variants:
            try:
                variant.compiled.run_reference(call.flat, call.seeds)
            except GuardFailed as error:
                place = f"{error.loc.file}:{error.loc.line}" if error.loc is not None else ""
                reasons[place, str(error)] += 1
        (line, what), times = ("", ""), 0
        if reasons:
            ((line, what), times), *_ = reasons.most_common(1)
        return VariantLimitError(
            f"{line or where_defined(subject)}: '{self.name}' has taken {limit} different paths "
            f"for arguments of one signature; the condition at this line ({what}) has decided "
            f"differently for {times} of them; instead: use np.where, tapec.cond or "
            "tapec.while_loop for decisions that depend on traced values, or raise the limit "
            "(TAPEC_MAX_VARIANTS)"
        )


def inline(tape: Any, program: Program, traced: Traced, seeds: Sequence[Any]) -> Any:
    """Record ``program`` on ``tape``, with the leaves that ``traced`` was called with."""
    given = operands(tape, traced)
    given += [
        seed_operand(tape, seed, type, k)
        for k, (seed, type) in enumerate(zip(seeds, program.seeds, strict=True))
    ]
    values = tape.inline(program.fn, given)
    for x in program.leaves:
        # What would be a Python number outside of a trace takes the dtype of what it meets.
        if isinstance(x, Result) and x.box in ("float", "int"):
            values[x.slot].kind = weak_kind(values[x.slot].type)
    return program.rebuild(values)


def operands(tape: Any, traced: Traced) -> list[Any]:
    """What ``traced`` was called with, and what it captures, on ``tape``."""
    flat = traced.flat
    found = [
        operand(tape, leaf, key)
        for leaf, key in zip(flat.leaves, flat.keys, strict=True)
        if isinstance(key, Spec)
    ]
    return found + [as_tracer(tape, c) for c in traced.captures]


def operand(tape: Any, leaf: Any, spec: Spec) -> Any:
    """A traced leaf on ``tape``: tracers as they are, numbers as constants, arrays captured."""
    if isinstance(leaf, Handle):
        return as_tracer(tape, leaf)
    if type(leaf) is np.ndarray and leaf.ndim and leaf.dtype.isnative:
        return as_tracer(tape, leaf)
    array = native_array(leaf, spec)
    return as_tracer(tape, array if array.ndim else array[()])


def seed_operand(tape: Any, seed: Any, type: Any, k: int) -> Any:
    """A tangent or cotangent as a tracer of exactly ``type``."""
    if not is_traced(seed):
        array = seed_array(seed, type, k)
        return as_tracer(tape, array if array.ndim else array[()])
    tracer = as_tracer(tape, seed)
    if tracer.type.shape != type.shape:
        raise TapecValueError(
            f"tangent or cotangent {k} has shape {tracer.type.shape}, expected {type.shape}"
        )
    return tracer if tracer.type is type else tracer.astype(type.dtype.np)


def _check_call(subject: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Python's complaint about a call, if it has one."""
    try:
        signature = inspect.signature(subject)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        name = getattr(subject, "__name__", type(subject).__name__)
        raise TapecTypeError(f"{name}() {error}") from None


def _failure_in_loop(name: str, error: GuardFailed) -> TapecError:
    """What a guard in the body of a structured loop means."""
    place = f"{error.loc.file}:{error.loc.line}: " if error.loc is not None else ""
    kind, _, message = str(error).partition(": ")
    if kind == "LinAlgError":
        return TapecLinAlgError(f"{place}{message}")
    return TapecIndexError(f"{place}'{name}': not so in a loop: {error}")


def _leaf_name(subject: Any, layout: Layout, leaf: int) -> str:
    """``argument 'params'['w'] of loss (file.py:3)``, for errors."""
    where, first, *rest = trees.leaf_paths(layout.treedef)[leaf]
    names = parameter_names(subject)
    if where == 0:
        name = f"argument {first}"
        if first < len(names):
            name += f" ({names[first]!r})"
    else:
        name = f"argument {first!r}"
    return name + "".join(f"[{k!r}]" for k in rest) + f" of {where_defined(subject)}"


def _after_fork() -> None:
    """A lock that another thread held at the fork would stay locked in the child, and its
    traces would count for ever."""
    from tapec.codegen.abi import trace_depth

    trace_depth.value = 0 if current_tape() is None else trace_depth.value
    for dispatcher in list(_dispatchers):
        dispatcher.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
