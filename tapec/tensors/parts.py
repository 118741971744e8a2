"""Complex tensors in recorded programs: arrays of pairs, as compiled code has them.

A complex tensor is one array for the graph and for the caller.  In the program it is a real array
with a last axis for the two parts, which is the same memory, and a ``ComplexTracer`` while the
operations are recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tapec import primitives as p
from tapec.complexes import ComplexTracer, complex_of, part_dtype
from tapec.ir.core import Function, Type
from tapec.tensors.graph import TensorError

if TYPE_CHECKING:
    from tapec.tape import Tape

__all__ = ["OfPairs", "check_seed", "complex_value", "parameter", "program_type", "program_value"]


class OfPairs(Function):
    """A recorded pullback whose result stands for a complex tensor."""

    __slots__ = ()

    @property
    def complex_type(self) -> Type:
        t = self.results[0].type
        return Type(complex_of(t.dtype), t.shape[:-1])


def program_type(type: Type) -> Type:
    """The type that a value has in the program."""
    if type.dtype.kind != "c":
        return type
    return Type(part_dtype(type.dtype), (*type.shape, 2))


def parameter(tape: Tape, type: Type, weak: bool = False) -> Any:
    """A parameter of the program, as the rules take it."""
    if type.dtype.kind != "c":
        return tape.input(type, None, None, weak)
    return complex_value(tape.input(program_type(type), None, None))


def complex_value(pairs: Any) -> ComplexTracer:
    """The complex value of an array of pairs."""
    shape = pairs.type.shape[:-1]

    def part(k: int) -> Any:
        return p.reshape(p.slice_(pairs, [0] * len(shape) + [k], (*shape, 1)), shape)

    return ComplexTracer(part(0), part(1))


def program_value(value: Any) -> Any:
    """A result of a rule, as the program returns it."""
    if not isinstance(value, ComplexTracer):
        return value
    shape = (*value.type.shape, 1)
    return p.concat([p.reshape(value.re, shape), p.reshape(value.im, shape)], len(shape) - 1)


def check_seed(output: Type, seed: Type | None, k: int, here: Callable[[], str]) -> None:
    """An error for a cotangent (None: an implicit 1) that does not fit the kind of output ``k``."""
    if seed is None and output.dtype.kind == "c":
        raise TensorError(
            f"{here()}grad can be implicitly created only for real scalar outputs, and this one is "
            "complex; instead: give gradient=, or take .real or .abs()"
        )
    if seed is not None and seed.dtype.kind == "c" and output.dtype.kind != "c":
        raise TensorError(f"{here()}grad_output[{k}] is complex, but output[{k}] is real")
