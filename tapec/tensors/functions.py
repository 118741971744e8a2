"""Functions of tensors under PyTorch's names: ``tapec.exp(t)`` is ``t.exp()``.

On traced values and on arrays they are NumPy's functions of the same name, so one source can be
differentiated by ``tapec.grad`` and by ``backward``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapec.tensors.graph import TensorTypeError
from tapec.tensors.methods import _UNARY
from tapec.tensors.record import apply
from tapec.tensors.tensor import Tensor

__all__ = ["NAMES", "einsum", "is_tensor", "numel", "where"]

_METHODS = [
    "add",
    "sub",
    "mul",
    "div",
    "pow",
    "atan2",
    "hypot",
    "maximum",
    "minimum",
    "logaddexp",
    "remainder",
    "fmod",
    "floor_divide",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "logical_and",
    "logical_or",
    "logical_xor",
    "logical_not",
    "round",
    "clamp",
    "clip",
    "clamp_min",
    "clamp_max",
    "masked_fill",
    "gelu",
    "softplus",
    "nan_to_num",
    "sum",
    "mean",
    "var",
    "std",
    "prod",
    "amax",
    "amin",
    "max",
    "min",
    "argmax",
    "argmin",
    "any",
    "all",
    "cumsum",
    "cumprod",
    "norm",
    "logsumexp",
    "softmax",
    "log_softmax",
    "matmul",
    "mm",
    "bmm",
    "mv",
    "dot",
    "outer",
    "gather",
    "index_select",
    "take_along_dim",
    "scatter_add",
    "index_add",
    "masked_select",
    "sort",
    "argsort",
    "topk",
    "median",
    "nonzero",
    "allclose",
    "equal",
    "reshape",
    "flatten",
    "ravel",
    "unflatten",
    "squeeze",
    "unsqueeze",
    "permute",
    "transpose",
    "swapaxes",
    "t",
    "movedim",
    "tile",
    "repeat_interleave",
    "narrow",
    "select",
    "split",
    "chunk",
    "unbind",
    "flip",
    "roll",
    "tril",
    "triu",
    "diag",
    "diagonal",
    "trace",
    "clone",
    "detach",
    "lerp",
]
_NUMPY = {"dim": "axis", "keepdim": "keepdims"}


def _function(name: str) -> Any:
    def function(input: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(input, Tensor):
            return getattr(input, name)(*args, **kwargs)
        for a in args:
            if isinstance(a, Tensor) and isinstance(input, (int, float)):
                return getattr(Tensor._of(np.asarray(input, a._type.dtype.np)), name)(
                    *args, **kwargs
                )
        other = getattr(np, name, None)
        if other is None or input is None:
            raise TensorTypeError(
                f"{name}() takes a tensor, not {type(input).__name__}; instead: use "
                "tapec.tensor(...)"
            )
        return other(input, *args, **{_NUMPY.get(k, k): v for k, v in kwargs.items()})

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"``input.{name}(...)``; NumPy's ``{name}`` on traced values and arrays."
    return function


NAMES = sorted({*_METHODS, *_UNARY})
for _name in NAMES:
    globals()[_name] = _function(_name)


def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """``x`` where the condition holds, else ``y``; a NaN in the other does no harm.

    >>> import tapec
    >>> t = tapec.tensor([-1.0, 4.0])
    >>> tapec.where(t > 0, t.sqrt(), 0.0)
    tensor([0., 2.])
    """
    if not any(isinstance(v, Tensor) for v in (condition, x, y)):
        return np.where(condition, x, y)
    if x is None:
        return tuple([Tensor._of(i.astype(np.int64)) for i in np.nonzero(condition.materialized())])
    return apply("where", (condition, x, y))


def einsum(equation: str, *operands: Any) -> Any:
    """Sums of products, in Einstein's notation."""
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    return apply("einsum", operands, equation)


def is_tensor(x: Any) -> bool:
    """Whether ``x`` is a tensor."""
    return isinstance(x, Tensor)


def numel(x: Tensor) -> int:
    """The number of elements."""
    return x.numel()


def is_floating_point(x: Tensor) -> bool:
    """Whether the dtype is a float."""
    return x.is_floating_point()


pi = math.pi
inf = math.inf
nan = math.nan
e = math.e


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module 'tapec.tensors.functions' has no attribute {name!r}")
