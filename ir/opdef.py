"""``OpDef``: everything the compiler knows about one operation, and the table ``OPS``.

An operation is declared once, in one of the entry files (``elementwise``, ``shape``,
``reduce``, ``indexing``, ``linalg``, ``control``).  The rest of the compiler, and the
tests that sweep the table, name no operation unless they are about it.

Kinds of rule:

``infer(types, attrs)``      operand types → result types; raises ``TypeError``/``ValueError``.
``numpy(arrays, attrs)``     reference semantics on NumPy arrays → an array, or a tuple for
                             several results.  The interpreter casts to the inferred types.
``partials(b, z, *xs)``      elementwise ops: ∂z/∂xᵢ for each operand, as a Value of z's type,
                             a Python number, or None (no derivative).  Both modes follow.
``vjp(b, op, cts)``          other ops: cotangents of ``op.results`` (None: zero) → cotangents
                             of ``op.operands`` (None: zero).  Values of ``op`` may be used
                             as residuals.
``jvp(b, op, tangents)``     tangents of operands (None: zero) → tangents of results.
``batch(b, op, operands)``   ops that are not elementwise: the results for operands of which
                             some have a leading batch axis, see ``batch``.
``linear``                   operand positions in which the op is linear: the jvp is then the op
                             itself applied to the tangents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tapec.ir.core import Attrs, Block, Op, Type, Value

if TYPE_CHECKING:
    from tapec.ir.adjoint import AdjointBuilder
    from tapec.ir.batch import BatchBuilder

__all__ = ["OPS", "UNKNOWN", "Infer", "OpDef", "Partial", "Samples", "define"]

#: A partial derivative without a rule: a NaN, which ``AdjointBuilder.ct_mul`` refuses to use.
UNKNOWN = float("nan")

Infer = Callable[[tuple[Type, ...], Attrs], tuple[Type, ...]]
InferRegions = Callable[[tuple[Type, ...], Attrs, tuple[Block, ...]], tuple[Type, ...]]
Partial = Value | float | None
Partials = Callable[..., tuple[Partial, ...]]
Vjp = Callable[["AdjointBuilder", Op, Sequence["Value | None"]], Sequence["Value | None"]]
Jvp = Callable[["AdjointBuilder", Op, Sequence["Value | None"]], Sequence["Value | None"]]
Batch = Callable[["BatchBuilder", Op, Sequence[Value]], Sequence[Value]]


@dataclass(frozen=True, slots=True)
class Samples:
    """What the table-driven tests draw from.

    ``low``, ``high``: the open interval of real operands (one pair for all, or a tuple
    of pairs, one per operand).  ``ulp``: the bound on native against NumPy, in units in
    the last place.  ``cases``: for ops that are not elementwise, a list of
    ``(operand types as text, attrs)``.
    """

    low: float | tuple[float, ...] = -3.0
    high: float | tuple[float, ...] = 3.0
    ulp: float = 4.0
    cases: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = ()
    #: the test module that draws operands of its own instead (special matrices)
    swept_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpDef:
    name: str
    infer: Infer
    numpy: Callable[[Sequence[Any], Attrs], Any]
    #: ops with regions: checks the regions and gives the result types, instead of ``infer``
    infer_regions: InferRegions | None = None
    partials: Partials | None = None
    vjp: Vjp | None = None
    jvp: Jvp | None = None
    batch: Batch | None = None
    linear: tuple[int, ...] = ()
    #: one scalar result per element, all operands of the result's shape
    elementwise: bool = False
    commutative: bool = False
    #: a zero in an operand's cotangent may stand for "not selected" (select, gather, …):
    #: products below must be strong, see ``adjoint``
    masks: bool = False
    #: the same for a zero in the result's tangent (select, place, …)
    masks_tangent: bool = False
    #: must not be removed, merged or reordered
    effect: bool = False
    #: no operand has a derivative through this op
    nondifferentiable: bool = False
    #: operand positions whose derivative exists but has no rule: ``partials`` gives ``UNKNOWN``
    unknown: tuple[int, ...] = ()
    #: elementwise: the scalar lowering.  ``"fadd"``/``"libm.sin"``-like names are
    #: interpreted by codegen; see codegen/scalars.py
    llvm: str | None = None
    #: elementwise: rough cost in multiplications, for store-or-recompute decisions
    cost: int = 1
    #: elementwise: (sympy module, *sympy operands) → sympy expression
    sympy: Callable[..., Any] | None = None
    samples: Samples = field(default_factory=Samples)
    doc: str = ""


#: name → definition.  Filled by ``define`` when the entry files are imported.
OPS: dict[str, OpDef] = {}


def define(name: str, **fields: Any) -> OpDef:
    """Add an operation to the table."""
    if name in OPS:
        raise ValueError(f"operation {name!r} is declared twice")
    OPS[name] = entry = OpDef(name=name, **fields)
    return entry
