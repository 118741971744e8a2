"""The intermediate representation: types, operations, text, analyses and transforms.

This package imports the standard library and NumPy only: no front end, no code
generator, no LLVM, no SymPy.
"""

from tapec.ir import control, elementwise, indexing, linalg, reduce, shape  # noqa: F401  (fill the op table)
from tapec.ir.builder import Builder
from tapec.ir.core import (
    BOOL,
    C64,
    C128,
    F32,
    F64,
    I32,
    I64,
    Block,
    Dense,
    DType,
    Function,
    Loc,
    Op,
    Type,
    Value,
    dtype_of,
    walk,
)
from tapec.ir.interp import GuardFailed, interpret
from tapec.ir.jvp import jvp
from tapec.ir.opdef import OPS, OpDef
from tapec.ir.vjp import vjp

__all__ = [
    "BOOL",
    "C64",
    "C128",
    "F32",
    "F64",
    "I32",
    "I64",
    "OPS",
    "Block",
    "Builder",
    "DType",
    "Dense",
    "Function",
    "GuardFailed",
    "Loc",
    "Op",
    "OpDef",
    "Type",
    "Value",
    "dtype_of",
    "interpret",
    "jvp",
    "vjp",
    "walk",
]
