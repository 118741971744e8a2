"""``ComplexTracer``: a traced complex value, which is two traced real values.

The tape and everything below it are real.  A complex value is a front-end object that holds its
parts ``re`` and ``im``; an operation on it is recorded as operations on them.  Movements of
elements and sums (``_LINEAR``) apply to both parts alike, so that whatever NumPy function is made
of them works on complex arrays, too; arithmetic and elementwise functions are in
``complex_math``.  An operation that has no complex form is an error that names the user's line.

The parts are ordinary traced arrays that are written to in place: ``z.real[0] = 1`` and views of
``z`` need nothing further.  So no two complex values may share a part.

>>> import numpy as np, tapec
>>> tapec.grad(lambda z: np.abs(z))(3 + 4j)
(0.6+0.8j)
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapec import primitives as p
from tapec import tape as _tape
from tapec.errors import TapecTypeError, UnsupportedError, fail
from tapec.ir.core import BOOL, C64, C128, F32, F64, Attrs, DType, Type
from tapec.kinds import WEAK_COMPLEX, Kind, broadcast_shapes, common_dtype
from tapec.tape import Tape, as_tracer
from tapec.tracer import Tracer, view

__all__ = ["ComplexTracer", "complex_of", "pair_of", "part_dtype"]


def part_dtype(dtype: DType) -> DType:
    """The dtype of the parts of a complex dtype."""
    return F32 if dtype is C64 else F64


def complex_of(dtype: DType) -> DType:
    """The complex dtype whose parts hold values of a real dtype."""
    return C64 if dtype in (F32, C64) else C128


class ComplexTracer(Tracer):
    """See the module's description."""

    __slots__ = ("im", "re")
    __hash__ = None
    is_pair = True

    def __init__(self, re: Tracer, im: Tracer) -> None:
        self.re = re
        self.im = im
        self.link = None

    @property
    def tape(self) -> Tape:  # type: ignore[override]
        first, second = self.re.tape, self.im.tape
        return first if first is second or first.level > second.level else second

    @property
    def type(self) -> Type:  # type: ignore[override]
        return Type(complex_of(self.re.type.dtype), self.re.type.shape)

    @property
    def kind(self) -> Kind:
        return WEAK_COMPLEX if self.re.weak and self.im.weak else self.type

    @property
    def weak(self) -> bool:
        return self.re.weak and self.im.weak

    @property
    def id(self) -> int:  # type: ignore[override]
        raise fail(
            UnsupportedError,
            f"an operation on {self.describe()} has no complex form",
            "use its .real and .imag",
        )

    def __repr__(self) -> str:
        return f"<traced: {self.type}>"

    def describe(self) -> str:
        return f"a traced value of type {self.type}"

    # -- parts --------------------------------------------------------------------------

    @property
    def real(self) -> Tracer:
        return self.re

    @real.setter
    def real(self, value: Any) -> None:
        self.re.overwrite(value)

    @property
    def imag(self) -> Tracer:
        return self.im

    @imag.setter
    def imag(self, value: Any) -> None:
        self.im.overwrite(value)

    def each(self, f: Callable[[Tracer], Any]) -> ComplexTracer:
        """``f`` of both parts: for real-linear functions."""
        return ComplexTracer(f(self.re), f(self.im))

    def conj(self) -> ComplexTracer:
        return ComplexTracer(self.re.copy(), p.unary("neg", self.im))

    conjugate = conj

    def copy(self, order: str = "C") -> ComplexTracer:
        return self.each(lambda part: part.copy())

    def strong(self) -> ComplexTracer:
        """The same value, no longer standing for a Python number."""
        return self.each(lambda x: Tracer(x.tape, x.id, x.type, x.type))

    def concrete(self) -> Any:
        re, im = self.re.concrete(), self.im.concrete()
        out = np.empty(re.shape, self.type.dtype.np)
        out.real, out.imag = re, im
        return out

    # -- in place -----------------------------------------------------------------------

    def _new_parts(self, value: Any) -> ComplexTracer:
        new = as_tracer(p.tape_among((self, value)), value)
        return cast(new, self.type.dtype)  # type: ignore[return-value]

    def overwrite(self, value: Any) -> None:
        new = self._new_parts(value)
        if new is not self:
            self.re.overwrite(new.re)
            self.im.overwrite(new.im)

    def __setitem__(self, key: Any, value: Any) -> None:
        new = self._new_parts(value)
        self.re[key] = new.re
        self.im[key] = new.im

    def fill(self, value: Any) -> None:
        new = self._new_parts(value)
        self.re.fill(new.re)
        self.im.fill(new.im)

    def as_view(self, base: Any, forward: Any, backward: Any) -> ComplexTracer:
        """This value as a view of another: its parts are views of the other's."""
        return ComplexTracer(
            view(self.re, base.re, forward, backward), view(self.im, base.im, forward, backward)
        )

    # -- operators that look at records -------------------------------------------------

    def __mul__(self, other: Any) -> Any:
        return p.binary("mul", self, other)

    def __int__(self) -> int:
        raise fail(TapecTypeError, f"int() of {self.describe()}", "use its .real")

    def __float__(self) -> float:
        raise fail(TapecTypeError, f"float() of {self.describe()}", "use its .real")


def pair_of(re: Any, im: Any) -> ComplexTracer:
    """The complex value of two real parts, of which at least one is traced."""
    re, im = p.operands(re, im)
    if re.type is not im.type:
        dtype = common_dtype([re.kind, im.kind])
        if dtype.kind != "f":
            dtype = F64
        shape = broadcast_shapes(re.type.shape, im.type.shape)
        re = p.broadcast_to(p.cast(re, dtype), shape)
        im = p.broadcast_to(p.cast(im, dtype), shape)
    return ComplexTracer(re.copy(), im.copy())


# -- what primitives do with complex operands -----------------------------------------------


def constant(tape: Tape, value: Any) -> ComplexTracer:
    """A complex number: weak if it is Python's."""
    if value.__class__ is complex:
        return ComplexTracer(as_tracer(tape, value.real), as_tracer(tape, value.imag))
    return ComplexTracer(tape.constant(value.real), tape.constant(value.imag))


def own(tape: Tape, x: ComplexTracer) -> ComplexTracer:
    """``x`` as a value of ``tape``."""
    if x.re.tape is tape and x.im.tape is tape:
        return x
    return ComplexTracer(tape.own(x.re), tape.own(x.im))


def zeros_like(x: Tracer) -> Tracer:
    return p.full(x.tape, x.type.shape, 0, x.type.dtype)


def promoted(x: Tracer) -> ComplexTracer:
    """A real value as a complex one."""
    if isinstance(x, ComplexTracer):
        return x
    dtype = x.type.dtype if x.type.dtype.kind == "f" else F64
    re = p.cast(x, dtype)
    im = zeros_like(re)
    if re.weak:
        im.kind = re.kind
    return ComplexTracer(re.copy(), im)


def cast(x: Tracer, dtype: DType) -> Tracer:
    """A conversion from or to a complex dtype."""
    if dtype.kind == "c":
        part = part_dtype(dtype)
        if isinstance(x, ComplexTracer):
            return x if x.type.dtype is dtype else x.each(lambda y: p.cast(y, part))
        re = p.cast(x, part)
        return ComplexTracer(re.copy(), zeros_like(re))
    assert isinstance(x, ComplexTracer)
    if dtype is BOOL:
        return p.binary("ne", x, 0)
    warnings.warn(
        "Casting complex values to real discards the imaginary part", _WARNING, stacklevel=3
    )
    return p.cast(x.re.copy(), dtype)


_WARNING: Any = getattr(np, "exceptions", np).ComplexWarning


def select(condition: Tracer, x: Tracer, y: Tracer) -> ComplexTracer:
    dtype = common_dtype([x.kind, y.kind])
    a, b = cast(x, dtype), cast(y, dtype)
    assert isinstance(a, ComplexTracer) and isinstance(b, ComplexTracer)
    return ComplexTracer(p.select(condition, a.re, b.re), p.select(condition, a.im, b.im))


def full(tape: Tape, shape: Sequence[int], value: Any, dtype: DType) -> ComplexTracer:
    number, part = complex(value), part_dtype(dtype)
    return ComplexTracer(
        p.full(tape, shape, number.real, part), p.full(tape, shape, number.imag, part)
    )


#: Ops that are linear in so many of their first operands (-1: in all), the others being real.
_LINEAR = {
    "broadcast": 1, "cumsum": 1, "gather": 1, "place": -1, "reduce_sum": 1, "reshape": 1,
    "scatter_add": 2, "slice": 1, "transpose": 1,
}  # fmt: skip


def emit(op: str, args: Sequence[Tracer], attrs: Attrs) -> Tracer:
    """An op of the IR of which some operands are complex."""
    if op == "reduce_prod":
        (x,) = args
        return _product(x, attrs["axes"])
    n = _LINEAR.get(op)
    if n is None:
        raise fail(
            UnsupportedError,
            f"{op} of complex values is not supported",
            "use the .real and .imag of the operands",
        )
    n = len(args) if n < 0 else n
    parts = [promoted(x) for x in args[:n]]
    return ComplexTracer(
        p.emit(op, [*(x.re for x in parts), *args[n:]], attrs),
        p.emit(op, [*(x.im for x in parts), *args[n:]], attrs),
    )


def _product(x: Tracer, axes: Sequence[int]) -> Tracer:
    """The product over axes: halves are multiplied, so that zeros have exact derivatives."""
    rest = [k for k in range(x.type.ndim) if k not in axes]
    lead = tuple(x.type.shape[k] for k in rest)
    x = p.transpose(x, [*axes, *rest])
    n = x.type.size // max(int(np.prod(lead)), 1) if lead else x.type.size
    if 0 in lead:
        return p.full(x.tape, lead, 1, x.type.dtype)
    x = p.reshape(x, (n, *lead))
    zeros = [0] * len(lead)
    while n > 1:
        half = n // 2
        low = p.slice_(x, [0, *zeros], (half, *lead))
        high = p.slice_(x, [half, *zeros], (half, *lead))
        product = p.binary("mul", low, high)
        if n % 2:
            product = p.concat([product, p.slice_(x, [n - 1, *zeros], (1, *lead))], 0)
        x, n = product, half + n % 2
    return p.full(x.tape, lead, 1, x.type.dtype) if n == 0 else p.reshape(x, lead)


def dot(x: Tracer, y: Tracer, contract: Any, batch: Any) -> ComplexTracer:
    """A contraction: four real ones, or two if one operand is real."""

    def real(a: Tracer, b: Tracer) -> Tracer:
        return p.dot(a, b, contract, batch)

    dtype = part_dtype(common_dtype([x.kind, y.kind]))
    if not isinstance(x, ComplexTracer):
        assert isinstance(y, ComplexTracer)
        a = p.cast(x, dtype)
        return y.each(lambda part: real(a, p.cast(part, dtype)))
    if not isinstance(y, ComplexTracer):
        b = p.cast(y, dtype)
        return x.each(lambda part: real(p.cast(part, dtype), b))
    a, b = p.cast(x.re, dtype), p.cast(x.im, dtype)
    c, d = p.cast(y.re, dtype), p.cast(y.im, dtype)
    return ComplexTracer(
        p.binary("sub", real(a, c), real(b, d)), p.binary("add", real(a, d), real(b, c))
    )


def stacked(tape: Tape, leaves: Sequence[Tracer], make: Callable[[list[Tracer]], Tracer]) -> Tracer:
    """An array of scalars of which some are complex; ``make`` does it for real ones."""
    parts = [own(tape, promoted(x)) for x in leaves]
    return ComplexTracer(make([x.re for x in parts]), make([x.im for x in parts]))


def setitem(x: Tracer, key: Any, value: Any, write: Callable[..., Tracer]) -> ComplexTracer:
    """What ``x`` is after a write, by the function that does it for a real array."""
    if not isinstance(x, ComplexTracer):
        raise fail(
            TapecTypeError,
            f"complex values do not fit an array of {x.type.dtype.np}",
            "make the array of a complex dtype",
        )
    new = cast(as_tracer(p.tape_among((x, value)), value), x.type.dtype)
    assert isinstance(new, ComplexTracer)
    return ComplexTracer(write(x.re, key, new.re), write(x.im, key, new.im))


def real_only(x: Tracer, what: str = "this function") -> None:
    """An error if ``x`` is complex."""
    if isinstance(x, ComplexTracer):
        raise fail(
            TapecTypeError, f"complex values where {what} takes real ones", "use .real or np.abs"
        )


_tape._complex_class = ComplexTracer
p.complexes = sys.modules[__name__]
