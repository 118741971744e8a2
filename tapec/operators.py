"""The operators of traced values: arithmetic, comparison, and their in-place forms."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from tapec.primitives import binary, unary
from tapec.rules import FUNCTIONS, UFUNCS
from tapec.tape import Handle

__all__ = ["Operators"]


def _is_sparse(x: Any) -> bool:
    scipy = sys.modules.get("scipy.sparse")
    return scipy is not None and bool(scipy.issparse(x))


class Operators(Handle):
    """What Python's operators record.  In place, numbers are immutable and arrays are not."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    # -- arithmetic -------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        return binary("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return binary("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return binary("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return binary("sub", other, self)

    def __mul__(self, other: Any) -> Any:
        if other.__class__ is self.__class__ and other.id == self.id and self.tape.squares:
            return UFUNCS[np.square](self)
        return binary("mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        if other.__class__ is float or not _is_sparse(other):
            return binary("mul", other, self)
        return self.__rmatmul__(other)  # of SciPy's older kind, whose * is @

    def __truediv__(self, other: Any) -> Any:
        return binary("div", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return binary("div", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return binary("floor_div", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return binary("floor_div", other, self)

    def __mod__(self, other: Any) -> Any:
        return binary("mod", self, other)

    def __rmod__(self, other: Any) -> Any:
        return binary("mod", other, self)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __pow__(self, other: Any, modulus: None = None) -> Any:
        return UFUNCS[np.power](self, other)

    def __rpow__(self, other: Any) -> Any:
        return UFUNCS[np.power](other, self)

    def __matmul__(self, other: Any) -> Any:
        if _is_sparse(other):
            from tapec.sparse_operands import right_product

            return right_product(self, other)
        return UFUNCS[np.matmul](self, other)

    def __rmatmul__(self, other: Any) -> Any:
        if _is_sparse(other):
            from tapec.sparse_operands import left_product

            return left_product(other, self)
        return UFUNCS[np.matmul](other, self)

    def __neg__(self) -> Any:
        return unary("neg", self)  # type: ignore[arg-type]

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return UFUNCS[np.absolute](self)

    def __invert__(self) -> Any:
        return unary("not", self)  # type: ignore[arg-type]

    def __and__(self, other: Any) -> Any:
        return binary("and", self, other)

    def __rand__(self, other: Any) -> Any:
        return binary("and", other, self)

    def __or__(self, other: Any) -> Any:
        return binary("or", self, other)

    def __ror__(self, other: Any) -> Any:
        return binary("or", other, self)

    def __xor__(self, other: Any) -> Any:
        return binary("xor", self, other)

    def __rxor__(self, other: Any) -> Any:
        return binary("xor", other, self)

    def __lshift__(self, other: Any) -> Any:
        return binary("shift_left", self, other)

    def __rlshift__(self, other: Any) -> Any:
        return binary("shift_left", other, self)

    def __rshift__(self, other: Any) -> Any:
        return binary("shift_right", self, other)

    def __rrshift__(self, other: Any) -> Any:
        return binary("shift_right", other, self)

    # -- comparison -------------------------------------------------------------------

    def __eq__(self, other: Any) -> Any:
        if other is None or other.__class__ is str:
            return np.False_ if not self.type.shape else np.zeros(self.type.shape, bool)
        return binary("eq", self, other)

    def __ne__(self, other: Any) -> Any:
        if other is None or other.__class__ is str:
            return np.True_ if not self.type.shape else np.ones(self.type.shape, bool)
        return binary("ne", self, other)

    def __lt__(self, other: Any) -> Any:
        return binary("lt", self, other)

    def __le__(self, other: Any) -> Any:
        return binary("le", self, other)

    def __gt__(self, other: Any) -> Any:
        return binary("gt", self, other)

    def __ge__(self, other: Any) -> Any:
        return binary("ge", self, other)

    def __contains__(self, value: Any) -> bool:
        return bool(FUNCTIONS[np.any](self == value))

    # -- in place ---------------------------------------------------------------------

    def __iadd__(self, other: Any) -> Any:
        return self._in_place(self + other)

    def __isub__(self, other: Any) -> Any:
        return self._in_place(self - other)

    def __imul__(self, other: Any) -> Any:
        return self._in_place(self * other)

    def __itruediv__(self, other: Any) -> Any:
        return self._in_place(self / other)

    def __ifloordiv__(self, other: Any) -> Any:
        return self._in_place(self // other)

    def __imod__(self, other: Any) -> Any:
        return self._in_place(self % other)

    def __ipow__(self, other: Any, modulus: None = None) -> Any:
        return self._in_place(self**other)

    def __imatmul__(self, other: Any) -> Any:
        return self._in_place(self @ other)

    def __iand__(self, other: Any) -> Any:
        return self._in_place(self & other)

    def __ior__(self, other: Any) -> Any:
        return self._in_place(self | other)

    def __ixor__(self, other: Any) -> Any:
        return self._in_place(self ^ other)

    def _in_place(self, value: Any) -> Any:
        """The result of ``self op= other``: numbers are immutable, arrays are written to."""
        if not self.type.shape:
            return value
        self.overwrite(value)
        return self

    def overwrite(self, value: Any) -> None:
        raise NotImplementedError
