"""Functions that make tensors, and those that join several."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapec.tensors.dtypes import to_ir
from tapec.tensors.graph import TensorError, TensorTypeError
from tapec.tensors.record import apply
from tapec.tensors.rules import defaults
from tapec.tensors.shapes import dim_of, sizes_of
from tapec.tensors.tensor import Tensor, tensor

__all__ = [
    "arange", "as_tensor", "bernoulli", "cat", "empty", "eye", "from_numpy", "full", "full_like",
    "generator", "linspace", "manual_seed", "ones", "ones_like", "rand", "rand_like", "randint",
    "randn", "randn_like", "randperm", "stack", "zeros", "zeros_like",
]  # fmt: skip


class _Generator:
    """The random numbers of ``rand`` and its relatives: NumPy's generator."""

    def __init__(self) -> None:
        self.numpy = np.random.default_rng()


generator = _Generator()


def manual_seed(seed: int) -> None:
    """Start the random numbers anew.

    >>> import tapec
    >>> tapec.manual_seed(0)
    >>> a = tapec.rand(2)
    >>> tapec.manual_seed(0)
    >>> bool((a == tapec.rand(2)).all())
    True
    """
    generator.numpy = np.random.default_rng(seed)


def _dtype(dtype: Any) -> Any:
    return defaults.dtype.np if dtype is None else to_ir(dtype).np


def _made(array: Any, requires_grad: bool) -> Tensor:
    t = Tensor._of(np.ascontiguousarray(array) if array.ndim else np.array(array))
    return t.requires_grad_() if requires_grad else t


def zeros(*size: Any, dtype: Any = None, requires_grad: bool = False, device: Any = None) -> Tensor:
    """Zeros.

    >>> import tapec
    >>> tapec.zeros(2)
    tensor([0., 0.])
    """
    return _made(np.zeros(sizes_of(size), _dtype(dtype)), requires_grad)


def ones(*size: Any, dtype: Any = None, requires_grad: bool = False, device: Any = None) -> Tensor:
    """Ones."""
    return _made(np.ones(sizes_of(size), _dtype(dtype)), requires_grad)


empty = zeros


def full(size: Any, value: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """One number, repeated."""
    shape = tuple(size) if isinstance(size, (tuple, list)) else (size,)
    if dtype is None:
        kind: Any = (
            bool if isinstance(value, bool) else np.int64 if isinstance(value, int) else None
        )
        dtype = kind
    return _made(np.full(shape, value, _dtype(dtype)), requires_grad)


def zeros_like(t: Tensor, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Zeros of the shape and dtype of ``t``."""
    return zeros(t._type.shape, dtype=dtype or t.dtype, requires_grad=requires_grad)


def ones_like(t: Tensor, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Ones of the shape and dtype of ``t``."""
    return ones(t._type.shape, dtype=dtype or t.dtype, requires_grad=requires_grad)


def full_like(t: Tensor, value: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """One number in the shape and dtype of ``t``."""
    return full(t._type.shape, value, dtype or t.dtype, requires_grad)


def arange(*args: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Numbers in equal steps; integers give int64."""
    values = [a.item() if isinstance(a, Tensor) else a for a in args]
    if dtype is None:
        dtype = np.int64 if all(isinstance(a, int) for a in values) else defaults.dtype.np
    return _made(np.arange(*values).astype(to_ir(dtype).np), requires_grad)


def linspace(
    start: Any, end: Any, steps: int, dtype: Any = None, requires_grad: bool = False
) -> Tensor:
    """``steps`` numbers from ``start`` to ``end``."""
    return _made(np.linspace(start, end, steps, dtype=_dtype(dtype)), requires_grad)


def eye(n: int, m: int | None = None, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """The identity matrix."""
    return _made(np.eye(n, m, dtype=_dtype(dtype)), requires_grad)


def rand(*size: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Uniform random numbers in [0, 1)."""
    return _made(
        np.asarray(generator.numpy.random(sizes_of(size))).astype(_dtype(dtype)), requires_grad
    )


def randn(*size: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """Normal random numbers."""
    draw = np.asarray(generator.numpy.standard_normal(sizes_of(size)))
    return _made(draw.astype(_dtype(dtype)), requires_grad)


def rand_like(t: Tensor) -> Tensor:
    return rand(t._type.shape, dtype=t.dtype)


def randn_like(t: Tensor) -> Tensor:
    return randn(t._type.shape, dtype=t.dtype)


def randint(low: int, high: int, size: Any, dtype: Any = None) -> Tensor:
    """Random integers from ``low`` to ``high - 1``."""
    draw = generator.numpy.integers(low, high, size=tuple(size))
    return _made(np.asarray(draw).astype(np.int64 if dtype is None else to_ir(dtype).np), False)


def randperm(n: int) -> Tensor:
    """A random order of 0 to n - 1."""
    return _made(generator.numpy.permutation(n).astype(np.int64), False)


def bernoulli(p: Tensor) -> Tensor:
    """1 with the given probabilities, else 0."""
    draw = generator.numpy.random(p._type.shape) < p.materialized()
    return _made(np.asarray(draw).astype(p._type.dtype.np), False)


def from_numpy(array: Any) -> Tensor:
    """A tensor with the array's values (a copy: tensors never share memory with NumPy)."""
    return tensor(np.asarray(array))


def as_tensor(data: Any, dtype: Any = None) -> Tensor:
    """``data`` itself if it is a tensor of that dtype, else a new tensor."""
    if isinstance(data, Tensor):
        return data if dtype is None else data.to(dtype)
    return tensor(data, dtype)


def _several(tensors: Any, name: str) -> list[Tensor]:
    found = list(tensors)
    if not found:
        raise TensorError(f"{name}: expected a non-empty list of tensors")
    for t in found:
        if not isinstance(t, Tensor):
            raise TensorTypeError(f"{name}: a {type(t).__name__} among the tensors")
    return found


def cat(tensors: Any, dim: int = 0) -> Tensor:
    """Join along an existing dimension.

    >>> import tapec
    >>> tapec.cat([tapec.ones(1), tapec.zeros(2)])
    tensor([1., 0., 0.])
    """
    found = _several(tensors, "cat")
    k = dim_of(dim, found[0]._type.ndim)
    shape = found[0]._type.shape
    for t in found:
        other = t._type.shape
        if not shape:
            raise TensorError("cat: zero-dimensional tensors cannot be concatenated; use stack")
        if other[:k] + other[k + 1 :] != shape[:k] + shape[k + 1 :]:
            raise TensorError(
                f"cat: sizes of tensors must match except in dimension {k}: {list(shape)} and "
                f"{list(other)}"
            )
    return apply("cat", found, k)  # type: ignore[no-any-return]


concat = cat


def stack(tensors: Any, dim: int = 0) -> Tensor:
    """Join along a new dimension."""
    found = _several(tensors, "stack")
    shape = found[0]._type.shape
    for t in found:
        if t._type.shape != shape:
            raise TensorError(
                f"stack expects each tensor to be equal size, but got {list(shape)} and "
                f"{list(t._type.shape)}"
            )
    return apply("stack", found, dim_of(dim, len(shape) + 1))  # type: ignore[no-any-return]
