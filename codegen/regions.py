"""Operations with regions in native code: which of them live in registers, and bodies as functions.

A region is *scalar* if its operations are straight-line code on register elements (``plan``),
with no more than a few hundred results, and so are the regions inside.  It is then emitted
in place: in a loop, its carries are phis.  Any other region becomes a function with the
kernel's own calling convention, made by the same planner and emitter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tapec.ir.core import Block, Op, Value
from tapec.ir.loops import phases, scan_parts

if TYPE_CHECKING:
    from tapec.codegen.program import Program

__all__ = [
    "classify", "has_guard", "is_index", "is_scalar", "operands_in_memory", "products_of",
    "scalar_elements",
]  # fmt: skip

#: Longer bodies are functions, which are cut into pieces (see ``kernel.CHUNK``).
INLINE_ELEMENTS = 2500
#: Larger matrices, constant in a loop, are multiplied with vectors by a loop of their own.
_MATRIX = 144


def is_index(x: object) -> bool:
    """Whether a scanned operand is just 0, 1, 2, …"""
    op = getattr(x, "op", None)
    return op is not None and op.name == "iota" and op.results[0].type.ndim == 1


def has_guard(block: Block) -> bool:
    return any(op.name == "guard" or any(map(has_guard, op.regions)) for op in block.ops)


def is_scalar(op: Op, nested: bool = False) -> bool:
    """Whether an operation with regions is emitted in registers."""
    from tapec.codegen.plan import small

    consts: set[Value] = set()
    if op.name == "scan":
        (body,) = op.regions
        carry, xs, given = scan_parts(op, body.params)
        consts = {p for p in given if not small(p.type)}
        if nested and (xs or len(op.results) > len(carry)):
            return False
        if not all([small(v.type) for v in (*carry, *xs, *body.results)]):
            return False
    elif op.name in ("cond", "call"):
        if not all([small(v.type) for v in op.results]):
            return False
        consts = {p for r in op.regions for p in r.params if not small(p.type)}
    else:
        loops = phases(op)
        if len(loops) > 1 and nested:
            return False
        n = sum(op.attrs["n_carry"])
        if not all([small(v.type) for v in op.operands[:n]]):
            return False
        for p in loops:
            if not all([small(v.type) for v in p.body.results]):
                return False
            consts |= {q for q in p.body.params[p.n_carry + len(p.reads) :] if not small(q.type)}
        first = loops[0].n_carry
        consts |= {q for q in op.regions[0].params[first:] if not small(q.type)}
    if consts and nested:
        return False
    total = 0
    for region in op.regions:
        found = _scalar_block(region, consts)
        if found is None:
            return False
        total += found
    return total <= INLINE_ELEMENTS


def scalar_elements(block: Block) -> int | None:
    """The number of elements that a block of small values computes; None if it has others."""
    from tapec.codegen.plan import small

    if not all([small(r.type) for r in block.results]):
        return None
    return _scalar_block(block, {p for p in block.params if not small(p.type)})


def _scalar_block(block: Block, stored: set[Value]) -> int | None:
    """The number of elements that a scalar block computes; None if it is not scalar.
    ``stored``: parameters that are in memory."""
    from tapec.codegen.plan import reg_op, small

    total = 0
    for op in block.ops:
        if op.regions:
            if not is_scalar(op, nested=True):
                return None
            if any(v in stored for v in op.operands):
                return None
            for r in op.regions:
                total += _scalar_block(r, set()) or 0
        elif op.name == "dot" and any(v in stored for v in op.operands):
            terms = products_of(op)
            if terms is None:
                return None
            total += terms
        elif not reg_op(op):
            return None
        elif op.name == "gather" and op.operands[0] not in stored:
            return None
        elif op.name not in ("slice", "gather") and any(v in stored for v in op.operands):
            return None
        elif not all([v in stored or small(v.type) for v in op.operands]):
            return None
        total += sum([r.type.size for r in op.results])
    if any(r in stored for r in block.results):
        return None
    return total


def products_of(op: Op) -> int | None:
    """The number of multiplications in a product of a vector with a matrix in memory; None if it
    is too large to be written out."""
    from tapec.codegen.plan import small

    if not small(op.results[0].type) or any(v.type.size > _MATRIX for v in op.operands):
        return None
    (xc, _), _ = op.attrs["contract"], op.attrs["batch"]
    terms: int = op.results[0].type.size
    for axis in xc:
        terms *= op.operands[0].type.shape[axis]
    return terms


def classify(program: Program, op: Op) -> None:
    """Places of the results of an operation with regions."""
    scalar = is_scalar(op)
    if scalar:
        program.scalar.add(op)
    kept = op.attrs["n_carry"] if op.name == "scan" else len(op.results)
    for k, r in enumerate(op.results):
        program.kind[r] = "reg" if scalar and k < kept else "mem"


def operands_in_memory(program: Program, op: Op) -> list[Value]:
    """The operands that must be stored."""
    from tapec.codegen.plan import small

    if op.name == "scan":
        carry, xs, consts = scan_parts(op, op.operands)
        stored = [x for x in xs if not is_index(x)]
        others = [*carry, *consts]
    else:
        stored, others = [], list(op.operands)
        if op.name == "cond":
            others = others[1:]
    if op in program.scalar:
        return stored + [v for v in others if not small(v.type)]
    return stored + others
