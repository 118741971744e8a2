"""``Tracer``: a traced value that behaves as an ndarray.

Operators record operations; NumPy's ufuncs and functions arrive at ``__array_ufunc__`` and
``__array_function__`` and are looked up in ``UFUNCS``, ``METHODS`` and ``FUNCTIONS``, which
the modules of ``tapec.numpy`` fill.  What would turn a traced value into a plain number
(and lose its derivative) is an error that says where and what to write instead; conditions
and integers are *guards*: decided by the caller's values, checked by the compiled program.

In-place operators on arrays rebind: the tracer object stands for the new value, as every
other name of the same object does, and views follow their base.
"""

from __future__ import annotations

import operator
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from tapec import primitives, rules
from tapec import tape as _tape
from tapec.cautions import warn_of_equality
from tapec.errors import (
    ConversionError,
    TapecTypeError,
    TapecValueError,
    UnsupportedError,
    fail,
    writing_into_plain_array,
)
from tapec.ir.core import BOOL, I64
from tapec.operators import Operators
from tapec.primitives import binary, cast, reshape, to_dtype, unary
from tapec.rules import (
    FUNCTIONS,
    METHODS,
    UFUNCS,
    call,
    strong,
)
from tapec.source import describe_site
from tapec.tape import as_tracer, is_traced

__all__ = ["FUNCTIONS", "METHODS", "UFUNCS", "Tracer", "as_tracer", "is_traced", "view"]

_SAME_KIND = "bifc"


#: Modules of SciPy that compute with NumPy's functions alone, which take arrays of objects.
_PURE = frozenset(
    f"scipy.{module}"
    for module in (
        "constants._constants", "integrate._quadrature", "interpolate._polyint",
        "linalg._special_matrices", "optimize._optimize", "signal._waveforms",
    )
)  # fmt: skip


def _inside_scipy(frame: FrameType | None) -> bool:
    """Whether the user called a function of SciPy that may hand arrays to compiled code."""
    outermost = ""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("scipy."):
            outermost = module
        elif module.partition(".")[0] != "numpy":
            break
        frame = frame.f_back
    return bool(outermost) and outermost not in _PURE


class Tracer(Operators):
    """See the module's description; made by ``Tape.input`` and by operations."""

    __slots__ = ()
    __array_priority__ = 1000.0
    __hash__ = None
    #: two of them are the parts of a complex value (see ``trees.join``)
    joins = True

    # -- what it is -------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def ndim(self) -> int:
        return self.type.ndim

    @property
    def size(self) -> int:
        return self.type.size

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.type.dtype.np

    @property
    def itemsize(self) -> int:
        return self.type.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.type.nbytes

    @property
    def T(self) -> Tracer:
        return self.transpose()

    @property
    def mT(self) -> Tracer:
        return call(np.matrix_transpose, self)  # type: ignore[no-any-return]

    @property
    def real(self) -> Tracer:
        return self

    @property
    def imag(self) -> Tracer:
        return primitives.full(self.tape, self.type.shape, 0, self.type.dtype)

    @property
    def flat(self) -> Tracer:
        return self.reshape(-1)

    def describe(self) -> str:
        """The value in a message: its name if it has one, its type, and where it was made."""
        record = self.tape.records[self.id]
        site = record[4] if record is not None else None
        name = f" '{site.hint}'" if site and site.hint else ""
        made = f", made at {describe_site(site)}" if site and site.loc else ""
        return f"the traced value{name} ({self.type}{made})"

    def __repr__(self) -> str:
        record = self.tape.records[self.id]
        name = f" {record[4].hint}" if record is not None and record[4].hint else ""
        return f"<traced{name}: {self.type}>"

    def __format__(self, spec: str) -> str:
        return repr(self)

    # -- in place ---------------------------------------------------------------------

    def overwrite(self, value: Any) -> None:
        """Make every name of this array, and of its views and its base, see ``value``."""
        new = as_tracer(primitives.tape_among((self, value)), value)
        if new.type.shape != self.type.shape:
            try:
                new = primitives.broadcast_to(new, self.type.shape)
            except TapecValueError:
                raise fail(
                    TapecValueError,
                    f"a result of shape {new.type.shape} does not fit the array of shape "
                    f"{self.type.shape} that is written to",
                ) from None
        old, dtype = self.type.dtype, new.type.dtype
        if old is not dtype:
            if _SAME_KIND.index(dtype.kind) > _SAME_KIND.index(old.kind):
                raise fail(
                    TapecTypeError,
                    f"cannot cast the result from {dtype.np} to {old.np} with casting rule "
                    "'same_kind'",
                    "make the array of the wider dtype",
                )
            new = cast(new, old)
        self._set(new, None)
        child = self
        while child.link is not None:
            base, _, backward = child.link
            base._set(backward(base, child), child)
            child = base

    def _set(self, new: Tracer, source: Tracer | None) -> None:
        views = self.tape.views.get(id(self), ())
        self.tape, self.id, self.kind = new.tape, new.id, new.type
        if views and self.tape.views.get(id(self)) is not views:
            self.tape.views[id(self)] = list(views)
        for reference in views:
            child = reference()
            if child is not None and child is not source and child.link[0] is self:
                child._set(child.link[1](self), None)

    def __setitem__(self, key: Any, value: Any) -> None:
        if not self.type.shape and key != () and key is not Ellipsis:
            raise fail(TapecTypeError, "a 0-d value does not support item assignment")
        self.overwrite(rules.setitem(self, key, value))

    def fill(self, value: Any) -> None:
        self.overwrite(cast(as_tracer(self.tape, value), self.type.dtype))

    # -- parts ------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        return rules.getitem(self, key)

    def __len__(self) -> int:
        shape = self.type.shape
        if not shape:
            raise TypeError("len() of unsized object")
        return shape[0]

    def __iter__(self) -> Iterator[Any]:
        shape = self.type.shape
        if not shape:
            raise fail(TapecTypeError, f"iteration over a 0-d value: {self.describe()}")
        return iter([self[k] for k in range(shape[0])])

    # -- becoming a Python value --------------------------------------------------------

    def concrete(self) -> Any:
        """The value for the caller's arguments, as a NumPy array: what guards are made of."""
        self.tape.check(self.id)
        return self.tape.value_of(self.id)

    def __bool__(self) -> bool:
        if self.type.size != 1:
            raise fail(
                TapecValueError,
                f"the truth value of an array with {self.type.size} elements is ambiguous "
                f"({self.describe()})",
                "use .any() or .all(), or np.where to choose elementwise",
            )
        x = reshape(self, ())
        if x.type.dtype is not BOOL:
            x = binary("ne", x, 0)
        expected = bool(x.concrete())
        x.tape.guard(x, expected, "if")
        if expected and x.tape.differentiated:
            warn_of_equality(x)
        return expected

    def __int__(self) -> int:
        if self.type.size != 1:
            raise fail(TapecTypeError, "only arrays of one element can be converted to int")
        x = cast(reshape(self, ()), I64)
        expected = int(x.concrete())
        x.tape.guard(x, expected, "int")
        return expected

    def __index__(self) -> int:
        if self.type.dtype.kind not in "i" or self.type.shape:
            raise fail(
                TapecTypeError,
                f"only a traced integer can be used as an index, not {self.describe()}",
                "use int(...) if you mean its integer part",
            )
        return int(self)

    def __round__(self, digits: int | None = None) -> Any:
        if digits is None:
            return cast(unary("rint", self), I64)
        return call(np.round, self, digits)

    def __floor__(self) -> Any:
        return cast(unary("floor", self), I64)

    def __ceil__(self) -> Any:
        return cast(unary("ceil", self), I64)

    def __trunc__(self) -> Any:
        return cast(self, I64)

    def _refuse(self, what: str, instead: str) -> NoReturn:
        raise writing_into_plain_array(
            fail(
                ConversionError,
                f"{what} of {self.describe()} would lose its derivative",
                instead,
            )
        )

    def __float__(self) -> float:
        self._refuse(
            "float()",
            "use NumPy's function in place of math's (np.sin for math.sin); to write traced "
            "values into an array, make it with tapec.numpy.zeros or np.array([...])",
        )

    def __complex__(self) -> complex:
        self._refuse("complex()", "use NumPy's functions in place of cmath's")

    def item(self, *args: Any) -> Any:
        self._refuse(".item()", "use the value itself")

    def tolist(self) -> Any:
        self._refuse(".tolist()", "use list(x) for a list of traced elements")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """An object array of the elements: what ``np.array([a, b])`` is made from."""
        frame = sys._getframe(1)
        if frame.f_code.co_name == "_matmul_dispatch":
            # a sparse matrix of SciPy, which leaves the product to what it cannot interpret
            whole = np.empty((), object)
            whole[()] = self
            return whole
        if _inside_scipy(frame):
            # its compiled code takes the references of an array of objects for numbers
            raise fail(ConversionError, f"{self.describe()} in a function of SciPy")
        if dtype is not None and np.dtype(dtype) != object:
            self._refuse(
                f"conversion to a NumPy array of {np.dtype(dtype)}",
                "use the value itself, np.stack, or asarray and array of tapec.numpy",
            )
        if self.type.size > 4096:
            raise fail(
                ConversionError,
                f"np.array or np.asarray of {self.describe()} would split it into "
                f"{self.type.size} traced scalars",
                "use the value itself, np.stack, or asarray and array of tapec.numpy",
            )
        out = np.empty(self.type.shape, object)
        for index in np.ndindex(*self.type.shape):
            out[index] = self[index] if index else self
        return out

    def __copy__(self) -> Tracer:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Tracer:
        return self.copy()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise fail(ConversionError, f"{self.describe()} cannot be pickled")

    # -- NumPy's protocols --------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "__call__" and not kwargs:
            rule = UFUNCS.get(ufunc)
            if rule is not None:
                result = rule(*inputs)
                return result if result.__class__ is tuple else strong(result)
        return rules.apply_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return call(function, *args, **kwargs)

    # -- methods that are not one NumPy function -----------------------------------------

    def astype(self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True,
               copy: bool = True) -> Tracer:  # fmt: skip
        new = cast(self, to_dtype(dtype))
        return self.copy() if new is self else new

    def copy(self, order: str = "C") -> Tracer:
        return Tracer(self.tape, self.id, self.type, self.kind)

    def __array_namespace__(self, *, api_version: Any = None) -> Any:
        return np

    def reshape(self, *shape: Any, order: str = "C", copy: bool | None = None) -> Tracer:
        new = shape[0] if len(shape) == 1 else shape
        return FUNCTIONS[np.reshape](self, new, order=order)  # type: ignore[no-any-return]

    def flatten(self, order: str = "C") -> Tracer:
        return FUNCTIONS[np.ravel](self, order=order).copy()  # type: ignore[no-any-return]

    def transpose(self, *axes: Any) -> Tracer:
        perm = axes[0] if len(axes) == 1 else axes or None
        return FUNCTIONS[np.transpose](self, perm)  # type: ignore[no-any-return]

    def dot(self, other: Any, out: None = None) -> Any:
        return call(np.dot, self, other)

    def conj(self) -> Tracer:
        return self

    def conjugate(self) -> Tracer:
        return self

    def view(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise fail(UnsupportedError, ".view() of a traced value is not supported", "use .astype")

    def sort(self, *args: Any, **kwargs: Any) -> None:
        self.overwrite(call(np.sort, self, *args, **kwargs))

    def partition(self, kth: Any, *args: Any, **kwargs: Any) -> None:
        self.overwrite(call(np.partition, self, kth, *args, **kwargs))


def view(
    result: Tracer,
    base: Tracer,
    forward: Callable[[Tracer], Tracer],
    backward: Callable[[Tracer, Tracer], Tracer],
) -> Tracer:
    """Make ``result`` a view: writes to either side are seen by the other.

    ``forward(base)`` reads the view; ``backward(base, view)`` is the base after a write."""
    if result.__class__ is not Tracer:
        return result.as_view(base, forward, backward)  # type: ignore[attr-defined, no-any-return]
    if result is base:
        result = base.copy()
    if result.type.shape:
        result.link = (base, forward, backward)
        known = result.tape.views.setdefault(id(base), [])
        if len(known) > 64:
            known[:] = [r for r in known if r() is not None]
        known.append(weakref.ref(result))
    return result


def _method(function: Any, name: str) -> None:
    def method(self: Tracer, *args: Any, **kwargs: Any) -> Any:
        return call(function, self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"``np.{name}`` of this array."
    setattr(Tracer, name, method)


for _name in [
    "sum",
    "prod",
    "mean",
    "var",
    "std",
    "max",
    "min",
    "any",
    "all",
    "argmax",
    "argmin",
    "cumsum",
    "cumprod",
    "ptp",
    "clip",
    "round",
    "squeeze",
    "swapaxes",
    "ravel",
    "repeat",
    "take",
    "diagonal",
    "trace",
    "nonzero",
    "searchsorted",
    "argsort",
    "argpartition",
    "choose",
    "compress",
    "put",
]:
    _method(getattr(np, _name), _name)


def _ufunc_method(ufunc: Any, name: str) -> None:
    def method(self: Tracer, *args: Any) -> Any:
        return ufunc(self, *args)

    method.__name__ = name
    method.__doc__ = f"``np.{name}``: NumPy calls it for elements of object arrays."
    setattr(Tracer, name, method)


for _name in [
    "sin",
    "cos",
    "tan",
    "arcsin",
    "arccos",
    "arctan",
    "sinh",
    "cosh",
    "tanh",
    "arcsinh",
    "arccosh",
    "arctanh",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "cbrt",
    "square",
    "reciprocal",
    "rint",
    "floor",
    "ceil",
    "trunc",
    "fabs",
    "sign",
    "deg2rad",
    "rad2deg",
    "degrees",
    "radians",
    "arctan2",
    "hypot",
    "logaddexp",
    "logaddexp2",
    "fmod",
    "copysign",
    "isnan",
    "isinf",
    "isfinite",
    "float_power",
    "heaviside",
    "fmax",
    "fmin",
    "signbit",
    "logical_not",
    "logical_and",
    "logical_or",
    "logical_xor",
]:
    _ufunc_method(getattr(np, _name), _name)

_tape._tracer_class = Tracer
primitives._make = Tracer


def ints(values: Sequence[Any]) -> tuple[int, ...]:
    """Axis numbers and lengths given by the user, as ints."""
    return tuple(operator.index(v) for v in values)
