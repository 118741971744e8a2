"""The intermediate representation: types, operations, text, analyses and transforms.

This package imports the standard library and NumPy only: no front end, no code
generator, no LLVM, no SymPy.
"""

# The entry modules fill the op table when they are imported.
from tapec.ir import (  # noqa: F401
    bessel,
    control,
    custom,
    elementwise,
    fourier,
    host,
    indexing,
    linalg,
    loops,
    lu,
    matrix_functions,
    pseudo,
    reduce,
    shape,
    signs,
    sorting,
    special,
    special_inverses,
    special_more,
    spectral,
    triangular,
)
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
from tapec.ir.equal import diff, equal
from tapec.ir.interp import GuardFailed, interpret
from tapec.ir.jvp import jvp
from tapec.ir.opdef import OPS, OpDef
from tapec.ir.parser import ParseError, parse, parse_all, parse_type
from tapec.ir.printer import format_function
from tapec.ir.verify import VerifyError, verify
from tapec.ir.vjp import vjp

__all__ = [
    "BOOL",
    "Block",
    "Builder",
    "C128",
    "C64",
    "DType",
    "Dense",
    "F32",
    "F64",
    "Function",
    "GuardFailed",
    "I32",
    "I64",
    "Loc",
    "OPS",
    "Op",
    "OpDef",
    "ParseError",
    "Type",
    "Value",
    "VerifyError",
    "diff",
    "dtype_of",
    "equal",
    "format_function",
    "interpret",
    "jvp",
    "parse",
    "parse_all",
    "parse_type",
    "verify",
    "vjp",
    "walk",
]
