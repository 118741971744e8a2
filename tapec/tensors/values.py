"""Tensors as Python and NumPy values: numbers, arrays, text, copies."""

from __future__ import annotations

import copy as _copy
from collections.abc import Iterator
from typing import Any

import numpy as np

from tapec.source import describe_site, user_site
from tapec.tensors.graph import TensorError, TensorTypeError
from tapec.tensors.printing import tensor_repr

__all__ = ["Values"]

Array = np.ndarray[Any, Any]


class Values:
    """What looks at the value; see the module's description."""

    __slots__ = ()
    _type: Any
    _meta: Any
    is_leaf: Any
    requires_grad: Any
    materialized: Any
    _described: Any
    _of: Any

    def item(self) -> Any:
        """The only element, as a Python number.

        >>> import tapec
        >>> tapec.tensor([2.5]).item()
        2.5
        """
        data = self.materialized()
        if data.size != 1:
            raise TensorError(
                f"{_here()}a tensor with {data.size} elements cannot be converted to a number"
            )
        return data.item()

    def tolist(self) -> Any:
        """Nested lists of Python numbers."""
        return self.materialized().tolist()

    def numpy(self) -> Array:
        """The value as a read-only array (copy it to write).

        >>> import tapec
        >>> tapec.tensor([1.0, 2.0]).numpy().sum().item()
        3.0
        """
        if self.requires_grad:
            raise TensorError(
                f"{_here()}can't call numpy() on {self._described()}, which requires grad; "
                "instead: use tensor.detach().numpy()"
            )
        view = self.materialized().view()
        view.flags.writeable = False
        return view  # type: ignore[no-any-return]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from tapec.tensors.numpy_protocol import call_ufunc

        return call_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from tapec.tensors.numpy_protocol import call_function

        return call_function(function, args, kwargs)

    def __bool__(self) -> bool:
        data = self.materialized()
        if data.size != 1:
            raise TensorError(
                f"{_here()}the truth value of a tensor with {data.size} elements is ambiguous; "
                "instead: use .any() or .all()"
            )
        return bool(data.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if self._type.dtype.kind not in "ib" or self._type.size != 1:
            raise TensorTypeError(
                f"{_here()}only integer tensors of a single element can be converted to an index"
            )
        return int(self.item())

    def __len__(self) -> int:
        shape = self._type.shape
        if not shape:
            raise TensorTypeError(f"{_here()}len() of a 0-d tensor")
        return shape[0]  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[Any]:
        shape = self._type.shape
        if not shape:
            raise TensorTypeError(f"{_here()}iteration over a 0-d tensor")
        return iter([self[k] for k in range(shape[0])])  # type: ignore[index]

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    def __format__(self, spec: str) -> str:
        if spec and self._type.size == 1:
            return format(self.item(), spec)
        return repr(self)

    def __repr__(self) -> str:
        return tensor_repr(self)  # type: ignore[arg-type]

    # -- copies -----------------------------------------------------------------------

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if not self.is_leaf:
            raise TensorError(
                f"{_here()}only leaf tensors support deepcopy, and {self._described()} is the "
                "result of an operation; instead: use detach() or clone()"
            )
        new = type(self)._of(self.materialized().copy(), self.requires_grad)
        memo[id(self)] = new
        m = self._meta
        if m is not None and m.grad is not None:
            new.grad = _copy.deepcopy(m.grad, memo)
        return new

    def __reduce__(self) -> tuple[Any, ...]:
        if not self.is_leaf:
            raise TensorError(
                f"{_here()}only leaf tensors can be pickled, and {self._described()} is the "
                "result of an operation; instead: use detach()"
            )
        return _unpickled, (self.materialized(), self.requires_grad)


def _here() -> str:
    site = user_site(2)
    return f"{describe_site(site)}: " if site.loc is not None else ""


def _unpickled(array: Array, requires: bool) -> Any:
    from tapec.tensors.tensor import Tensor

    return Tensor._of(array, requires)
