"""Op entry ``unsigned_zero``: x, with 0.0 in place of -0.0.

That is ``x + 0.0``, which the rules may simplify, since they do not keep the sign of a zero.  Where
the sign decides (on the branch cuts of complex functions) this operation says so.

>>> import numpy as np
>>> from tapec.ir import F64, Builder, Type, interpret
>>> b = Builder()
>>> x = b.param(Type(F64))
>>> np.signbit(interpret(b.function("f", [b.emit("unsigned_zero", (x,))]), [-0.0])[0])
np.False_
"""

from __future__ import annotations

from tapec.ir.elementwise import _same
from tapec.ir.opdef import Samples, define

__all__: list[str] = []

define(
    "unsigned_zero",
    infer=_same("unsigned_zero", 1, "f", None),
    numpy=lambda xs, attrs: xs[0] + xs[0].dtype.type(0),
    elementwise=True,
    llvm="own:unsigned_zero",
    linear=(0,),
    partials=lambda b, z, x: (1,),
    sympy=lambda sp, x: x,
    samples=Samples(ulp=0.0),
    doc="x + 0.0, kept: no zero is negative.",
)
