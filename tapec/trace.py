"""Run the user's function on tracers: a flattened call → ``Traced``.

The traced leaves become inputs of a new tape, static leaves are passed as they are, and
whatever the function returns is flattened.  Result leaves that depend on the tape (or
must, because they are differentiated) become results of the lifted IR function; numbers,
strings and ``None`` stay Python constants.

Invariant: ``Traced.fn`` has one parameter per traced leaf, in order, then one per capture;
``Traced.results[k]`` is result ``k``'s place in the returned structure.
"""

from __future__ import annotations

import contextlib
import enum
import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tapec import trees
from tapec.errors import TapecError, TapecIndexError, TapecTypeError
from tapec.ir.core import Function, Type
from tapec.signature import Flat, Spec, argument_names
from tapec.source import describe_site

if TYPE_CHECKING:
    from optree import PyTreeSpec

    from tapec.tape import Tape

__all__ = [
    "Constant", "Output", "Traced", "definition", "parameter_names", "trace", "where_defined",
]  # fmt: skip

#: Result leaves that are returned as they are.
_PLAIN = (bool, int, float, complex, str, bytes, np.generic, np.dtype, type, enum.Enum)


class Output(NamedTuple):
    """A result leaf that the kernel computes: its index among the results, and its type."""

    slot: int
    type: Type


class Constant(NamedTuple):
    """A result leaf that does not depend on the arguments (a string, a Python number)."""

    value: Any


class Traced(NamedTuple):
    """One run of the user's function, as IR.

    ``leaves`` and ``treedef`` describe what it returned; ``captures`` are the arrays (or
    tracers of an outer trace) that it used without being given them; ``concrete`` tells
    whether none of them belongs to an outer trace.
    """

    fn: Function
    subject: Any
    flat: Flat
    captures: list[Any]
    leaves: list[Output | Constant]
    treedef: PyTreeSpec
    tape_text: str | None
    concrete: bool
    #: what kept long repeated stretches from becoming loops, for dumps
    notes: tuple[str, ...] = ()


def definition(subject: Any) -> tuple[str, int, str]:
    """File, line and name of the definition of a function; file and line may be unknown."""
    inner = inspect.unwrap(subject)
    inner = getattr(inner, "func", inner)
    inner = getattr(inner, "__func__", inner)
    code = getattr(inner, "__code__", None)
    name = str(getattr(inner, "__name__", type(inner).__name__))
    return ("", 0, name) if code is None else (code.co_filename, code.co_firstlineno, name)


def where_defined(subject: Any) -> str:
    """``file.py:12, in loss``: the definition of a function, for error messages."""
    file, line, name = definition(subject)
    return f"{file}:{line}, in {name}" if file else name


def parameter_names(subject: Any) -> list[str]:
    """Names of the positional parameters, as far as they can be found."""
    try:
        parameters = inspect.signature(subject).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in parameters if p.kind in kinds]


def trace(
    subject: Callable[..., Any],
    flat: Flat,
    name: str,
    *,
    lift_constants: Callable[[PyTreeSpec], Sequence[bool]] | None = None,
    keep_text: bool = False,
    color: bool = False,
    body: Callable[..., Any] | None = None,
) -> Traced:
    """Trace ``subject`` on the call ``flat``; ``body`` is run in its place, if given.

    A function that writes traced values into arrays of plain NumPy, or hands them to functions
    of SciPy that take none, is traced again with counterparts of these (see ``retry``).

    ``lift_constants`` tells, for a structure of results, which leaves must be computed even
    if they are constant numbers (those that are differentiated).  Exceptions of the user's
    function come through unchanged.
    """
    rest = (flat, name, lift_constants, keep_text, color)
    run, libraries = body or subject, frozenset[str]()
    first: Exception | None = None
    while True:
        try:
            return _traced(subject, run, *rest)
        except Exception as error:
            from tapec.retry import failed_in, unsupported, with_counterparts

            first = first or error
            library = failed_in(error)
            if library is None:
                if libraries == {"numpy"}:
                    raise first from None
                raise
            copy = None
            if library not in libraries:
                libraries |= {library}
                copy = with_counterparts(body or subject, libraries)
            if copy is None:
                better = unsupported(error)
                if better is error:
                    raise
                raise better from error
            run = copy


def _traced(
    subject: Callable[..., Any],
    body: Callable[..., Any],
    flat: Flat,
    name: str,
    lift_constants: Callable[[PyTreeSpec], Sequence[bool]] | None,
    keep_text: bool,
    color: bool,
) -> Traced:
    """One run of ``body``, which is ``subject`` or a copy of it."""
    from tapec.lift import lift
    from tapec.object_arrays import forwarding
    from tapec.tape import Tape

    hints = argument_names(parameter_names(subject), flat.layout)
    with _native_code_declines(), forwarding(), Tape(name) as tape:
        leaves: list[Any] = []
        for leaf, key, hint in zip(flat.leaves, flat.keys, hints, strict=True):
            if type(key) is Spec:
                leaves.append(tape.input(key.type, leaf, hint, weak=key.weak))
                if flat.layout.differentiated[len(leaves) - 1]:
                    tape.differentiated.add(leaves[-1].id)
            else:
                leaves.append(leaf)
        args, kwargs = trees.unflatten(flat.layout.treedef, leaves)
        try:
            returned = body(*args, **kwargs)
        except RecursionError as error:
            raise _recursion(error, subject) from None
        except IndexError as error:
            raise _plain_array_indexed(error) from None
        out_leaves, treedef = trees.flatten(returned)
        must = lift_constants(treedef) if lift_constants else (False,) * len(out_leaves)
        results: list[Output | Constant] = []
        values: list[Any] = []
        for leaf, needed in zip(out_leaves, must, strict=True):
            value = _result(tape, leaf, needed, subject)
            if isinstance(value, Constant):
                results.append(value)
            else:
                results.append(Output(len(values), value.type))
                values.append(value)
        fn = lift(tape, values, name)
    text = tape.format(color) if keep_text else None
    captures = [c.obj for c in tape.captures]
    concrete = all(isinstance(c, np.ndarray) for c in captures)
    notes = tuple(dict.fromkeys([f"{describe_site(site)}: {why}" for site, why in tape.notes]))
    return Traced(fn, subject, flat, captures, results, treedef, text, concrete, notes)


def _plain_array_indexed(error: IndexError) -> IndexError:
    """NumPy's complaint about ``plain[index]`` for an array of traced indices, with the way out."""
    if isinstance(error, TapecError) or not str(error).startswith("only integers, slices"):
        return error
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}: " if trace else ""
    return TapecIndexError(
        f"{place}{error}; instead: to index a plain NumPy array by an array of traced indices, "
        "write tapec.numpy.array(array)[index]"
    )


_depth_lock = threading.Lock()


@contextlib.contextmanager
def _native_code_declines() -> Iterator[None]:
    """While a trace runs, calls of compiled functions reach the dispatcher, which knows
    whether they are part of the trace."""
    from tapec.codegen.abi import trace_depth

    with _depth_lock:
        trace_depth.value += 1
    try:
        yield
    finally:
        with _depth_lock:
            trace_depth.value -= 1


def _result(tape: Tape, leaf: Any, needed: bool, subject: Any) -> Any:
    """A tracer of ``tape`` for one result leaf, or a ``Constant``."""
    from tapec.tape import as_tracer, is_traced

    if is_traced(leaf) or isinstance(leaf, np.ndarray):
        return as_tracer(tape, leaf)
    if needed and isinstance(leaf, (int, float, complex, np.number)):
        return as_tracer(tape, leaf if not isinstance(leaf, int) else float(leaf))
    if isinstance(leaf, _PLAIN):
        return Constant(leaf)
    raise TapecTypeError(
        f"the function at {where_defined(subject)} returned a {type(leaf).__qualname__}, which "
        "may hide traced values; return arrays, numbers, strings or containers of them "
        "(register other containers with optree, namespace='tapec')"
    )


def _recursion(error: RecursionError, subject: Any) -> RecursionError:
    """The same kind of error, saying where the user's function recurses."""
    inner = getattr(inspect.unwrap(subject), "__code__", None)
    line = None
    tb = error.__traceback__
    while tb is not None:
        if inner is not None and tb.tb_frame.f_code is inner:
            line = tb.tb_lineno
        tb = tb.tb_next
    at = where_defined(subject)
    if line is not None:
        at += f" (line {line})"
    return RecursionError(
        f"maximum recursion depth exceeded while tracing the function at {at}; "
        "write the recursion as a loop, or end it on a static value"
    )
