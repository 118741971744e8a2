"""Python's operators on tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapec.tensors.record import binary, unary

__all__ = ["Operators"]

_MATRICES = (np.ndarray,)


class Operators:
    """Arithmetic, comparison and the in-place operators."""

    __slots__ = ()

    def __add__(self, other: Any) -> Any:
        return binary("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return binary("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return binary("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return binary("sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return binary("mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return binary("mul", other, self)

    def __truediv__(self, other: Any) -> Any:
        return binary("div", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        if isinstance(other, (int, float)):
            return binary("rdiv", other, self)
        return binary("div", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return binary("floor_div", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return binary("floor_div", other, self)

    def __mod__(self, other: Any) -> Any:
        return binary("mod", self, other)

    def __rmod__(self, other: Any) -> Any:
        return binary("mod", other, self)

    def __pow__(self, other: Any) -> Any:
        return binary("pow", self, other)

    def __rpow__(self, other: Any) -> Any:
        return binary("pow", other, self)

    def __matmul__(self, other: Any) -> Any:
        return binary("matmul", self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return binary("matmul", other, self)

    def __neg__(self) -> Any:
        return unary("neg", self)  # type: ignore[arg-type]

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return unary("abs", self)  # type: ignore[arg-type]

    @property
    def real(self) -> Any:
        """The real part; of a real tensor itself."""
        return unary("real", self) if self.dtype.is_complex else self  # type: ignore

    @property
    def imag(self) -> Any:
        """The imaginary part of a complex tensor."""
        return unary("imag", self)  # type: ignore[arg-type]

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

    __hash__ = object.__hash__  # by identity, although == is elementwise

    def __eq__(self, other: Any) -> Any:
        if other is None:
            return False
        return binary("eq", self, other)

    def __ne__(self, other: Any) -> Any:
        if other is None:
            return True
        return binary("ne", self, other)

    def __lt__(self, other: Any) -> Any:
        return binary("lt", self, other)

    def __le__(self, other: Any) -> Any:
        return binary("le", self, other)

    def __gt__(self, other: Any) -> Any:
        return binary("gt", self, other)

    def __ge__(self, other: Any) -> Any:
        return binary("ge", self, other)

    # -- in place ---------------------------------------------------------------------

    def __iadd__(self, other: Any) -> Any:
        return _in_place(self, "add", other)

    def __isub__(self, other: Any) -> Any:
        return _in_place(self, "sub", other)

    def __imul__(self, other: Any) -> Any:
        return _in_place(self, "mul", other)

    def __itruediv__(self, other: Any) -> Any:
        return _in_place(self, "div", other)

    def __ipow__(self, other: Any) -> Any:
        return _in_place(self, "pow", other)

    def __getitem__(self, key: Any) -> Any:
        from tapec.tensors.indexing import getitem

        return getitem(self, key)  # type: ignore[arg-type]

    def __setitem__(self, key: Any, value: Any) -> None:
        from tapec.tensors.indexing import setitem

        setitem(self, key, value)  # type: ignore[arg-type]


def _in_place(t: Any, op: str, other: Any) -> Any:
    from tapec.tensors.inplace import check_writable, write

    check_writable(t)
    result = binary(op, t, other, 3)
    if result is NotImplemented:
        return result
    return write(t, result)
