"""NumPy's ufuncs on tensors: ``np.exp(t)`` is ``t.exp()``."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapec.tensors.graph import TensorTypeError
from tapec.tensors.record import binary, unary

__all__ = ["call_function", "call_ufunc"]

_BINARY = {
    np.add: "add", np.subtract: "sub", np.multiply: "mul", np.true_divide: "div",
    np.power: "pow", np.floor_divide: "floor_div", np.remainder: "mod", np.fmod: "fmod",
    np.maximum: "max", np.minimum: "min", np.arctan2: "atan2", np.hypot: "hypot",
    np.equal: "eq", np.not_equal: "ne", np.less: "lt", np.less_equal: "le", np.greater: "gt",
    np.greater_equal: "ge", np.matmul: "matmul", np.logaddexp: "logaddexp",
    np.bitwise_and: "and", np.bitwise_or: "or", np.bitwise_xor: "xor",
}  # fmt: skip
_UNARY = {
    np.negative: "neg", np.absolute: "abs", np.sign: "sign", np.floor: "floor", np.ceil: "ceil",
    np.trunc: "trunc", np.rint: "round", np.sqrt: "sqrt", np.exp: "exp", np.exp2: "exp2",
    np.expm1: "expm1", np.log: "log", np.log2: "log2", np.log10: "log10", np.log1p: "log1p",
    np.sin: "sin", np.cos: "cos", np.tan: "tan", np.arcsin: "arcsin", np.arccos: "arccos",
    np.arctan: "arctan", np.sinh: "sinh", np.cosh: "cosh", np.tanh: "tanh",
    np.arcsinh: "arcsinh", np.arccosh: "arccosh", np.arctanh: "arctanh",
    np.reciprocal: "reciprocal", np.square: "square", np.isnan: "isnan", np.isinf: "isinf",
    np.isfinite: "isfinite", np.cbrt: "cbrt", np.conjugate: "conj",
}  # fmt: skip


def call_ufunc(ufunc: Any, method: str, inputs: Any, kwargs: Any) -> Any:
    """A ufunc that met a tensor."""
    if method == "__call__" and not kwargs:
        op = _BINARY.get(ufunc)
        if op is not None:
            return binary(op, inputs[0], inputs[1], 3)
        op = _UNARY.get(ufunc)
        if op is not None:
            return unary(op, inputs[0], 0 if op == "round" else None, 3)
    raise TensorTypeError(
        f"numpy.{ufunc.__name__} ({method}) is not supported on tensors; instead: use the "
        "function of tapec, or t.detach().numpy()"
    )


_RENAMED = {"axis": "dim", "keepdims": "keepdim", "ddof": "correction"}
_METHODS = [
    "sum",
    "mean",
    "prod",
    "max",
    "min",
    "amax",
    "amin",
    "argmax",
    "argmin",
    "any",
    "all",
    "cumsum",
    "cumprod",
    "reshape",
    "transpose",
    "squeeze",
    "clip",
    "dot",
    "matmul",
    "outer",
    "trace",
    "diagonal",
    "sort",
    "argsort",
    "round",
    "ravel",
    "swapaxes",
    "tril",
    "triu",
    "flip",
    "roll",
]


def call_function(function: Any, args: Any, kwargs: Any) -> Any:
    """A NumPy function that met a tensor: the method of that name."""
    from tapec.tensors import creation, functions
    from tapec.tensors.tensor import Tensor

    name = function.__name__
    options = {_RENAMED.get(k, k): v for k, v in kwargs.items()}
    if name == "where":
        return functions.where(*args)
    if name in ("concatenate", "stack"):
        join = creation.cat if name == "concatenate" else creation.stack
        tensors = [t if isinstance(t, Tensor) else Tensor._of(np.array(t)) for t in args[0]]
        return join(tensors, *args[1:], **options)
    if args and isinstance(args[0], Tensor):
        if name in ("var", "std"):
            options.setdefault("correction", 0)
            return getattr(args[0], name)(*args[1:], **options)
        if name == "norm":
            return args[0].norm(*[2 if a is None else a for a in args[1:]], **options)
        if name == "transpose" and len(args) == 1:
            return args[0].T
        if name in ("max", "min") and (len(args) > 1 or "dim" in options):
            name = "a" + name
        if name in _METHODS:
            return getattr(args[0], name)(*args[1:], **options)
    raise TensorTypeError(
        f"numpy.{name} is not supported on tensors; instead: use the function of tapec, or "
        "t.detach().numpy()"
    )
