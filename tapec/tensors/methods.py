"""Mathematical methods of tensors: elementwise, reductions, products, in-place forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapec.tensors.graph import Const, TensorError, TensorTypeError
from tapec.tensors.record import apply, binary, unary
from tapec.tensors.shapes import dim_of, dims_of

__all__ = ["IN_PLACE", "Methods", "Pair"]


class Pair(tuple[Any, Any]):
    """``(values, indices)`` of ``max``, ``sort``, ``topk``."""

    __slots__ = ()

    @property
    def values(self) -> Any:
        return self[0]

    @property
    def indices(self) -> Any:
        return self[1]

    def __repr__(self) -> str:
        return f"(values={self[0]!r}, indices={self[1]!r})"


class Methods:
    """See the module's description; simple elementwise methods are added below."""

    __slots__ = ()
    _type: Any

    # -- dtype ------------------------------------------------------------------------

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """In another dtype; devices are accepted and ignored.

        >>> import tapec
        >>> tapec.tensor([1, 2]).to(tapec.float64)
        tensor([1., 2.])
        """
        from tapec.tensors.dtypes import to_ir

        wanted = kwargs.get("dtype")
        for a in args:
            if hasattr(a, "_type"):
                wanted = a.dtype
            elif not isinstance(a, str):
                wanted = a
        if wanted is None:
            return self
        ir = to_ir(wanted)
        if ir is self._type.dtype:
            return self
        return unary("convert", self, ir.name)  # type: ignore[arg-type]

    type = to

    def double(self) -> Any:
        return self.to(np.float64)

    def float(self) -> Any:
        return self.to(np.float32)

    def long(self) -> Any:
        return self.to(np.int64)

    def int(self) -> Any:
        return self.to(np.int32)

    def bool(self) -> Any:
        return self.to(np.bool_)

    def type_as(self, other: Any) -> Any:
        return self.to(other.dtype)

    def cpu(self) -> Any:
        return self

    def clone(self) -> Any:
        """A copy that gradients flow through."""
        return unary("clone", self)  # type: ignore[arg-type]

    # -- elementwise ------------------------------------------------------------------

    def add(self, other: Any, *, alpha: Any = 1) -> Any:
        return binary("add", self, other if _is_one(alpha) else other * alpha)

    def sub(self, other: Any, *, alpha: Any = 1) -> Any:
        return binary("sub", self, other if _is_one(alpha) else other * alpha)

    def mul(self, other: Any) -> Any:
        return binary("mul", self, other)

    def div(self, other: Any, *, rounding_mode: str | None = None) -> Any:
        if rounding_mode == "floor":
            return binary("floor_div", self, other)
        result = binary("div", self, other)
        return result.trunc() if rounding_mode == "trunc" else result

    def pow(self, exponent: Any) -> Any:
        return binary("pow", self, exponent)

    def atan2(self, other: Any) -> Any:
        return binary("atan2", self, other)

    def hypot(self, other: Any) -> Any:
        return apply("hypot", (self, other))

    def maximum(self, other: Any) -> Any:
        return binary("max", self, other)

    def minimum(self, other: Any) -> Any:
        return binary("min", self, other)

    def logaddexp(self, other: Any) -> Any:
        return apply("logaddexp", (self, other))

    def remainder(self, other: Any) -> Any:
        return binary("mod", self, other)

    def fmod(self, other: Any) -> Any:
        return binary("fmod", self, other)

    def floor_divide(self, other: Any) -> Any:
        return binary("floor_div", self, other)

    def eq(self, other: Any) -> Any:
        return binary("eq", self, other)

    def ne(self, other: Any) -> Any:
        return binary("ne", self, other)

    def lt(self, other: Any) -> Any:
        return binary("lt", self, other)

    def le(self, other: Any) -> Any:
        return binary("le", self, other)

    def gt(self, other: Any) -> Any:
        return binary("gt", self, other)

    def ge(self, other: Any) -> Any:
        return binary("ge", self, other)

    def logical_and(self, other: Any) -> Any:
        return apply("logical", (self, other), "and")

    def logical_or(self, other: Any) -> Any:
        return apply("logical", (self, other), "or")

    def logical_xor(self, other: Any) -> Any:
        return apply("logical", (self, other), "xor")

    def logical_not(self) -> Any:
        return apply("logical", (self,), "not")

    def round(self, *, decimals: Any = 0) -> Any:
        return unary("round", self, decimals)  # type: ignore[arg-type]

    def clamp(self, min: Any = None, max: Any = None) -> Any:
        """Bounded below and above, by numbers or tensors."""
        if min is None and max is None:
            raise TensorError("clamp: at least one of min and max must be given")
        if hasattr(min, "_type") or hasattr(max, "_type"):
            out: Any = self
            if min is not None:
                out = binary("max", out, min)
            return out if max is None else binary("min", out, max)
        bounds = tuple([None if b is None else Const(b) for b in (min, max)])
        return unary("clamp", self, bounds)  # type: ignore[arg-type]

    clip = clamp

    def clamp_min(self, min: Any) -> Any:
        return self.clamp(min=min)

    def clamp_max(self, max: Any) -> Any:
        return self.clamp(max=max)

    def masked_fill(self, mask: Any, value: Any) -> Any:
        """``value`` where ``mask`` is true."""
        if mask.shape != self._type.shape:
            mask = mask.expand(self._type.shape)
        if hasattr(value, "_type"):
            return apply("where", (mask, value, self))
        return apply("masked_fill", (self, mask, value))

    def where(self, condition: Any, other: Any) -> Any:
        return apply("where", (condition, self, other))

    def gelu(self, approximate: str = "none") -> Any:
        return unary("gelu", self, approximate)  # type: ignore[arg-type]

    def softplus(self, beta: Any = 1.0, threshold: Any = 20.0) -> Any:
        return unary("softplus", self, Const((beta * 1.0, threshold * 1.0)))  # type: ignore[arg-type]

    def nan_to_num(self, nan: Any = 0.0) -> Any:
        return self.masked_fill(self.isnan(), nan)  # type: ignore[attr-defined]

    # -- reductions ---------------------------------------------------------------------

    def sum(self, dim: Any = None, keepdim: Any = False, *, dtype: Any = None) -> Any:
        """The sum over all or some dimensions.

        >>> import tapec
        >>> tapec.ones(2, 3).sum(dim=0)
        tensor([2., 2., 2.])
        """
        x: Any = self if dtype is None else self.to(dtype)
        return unary("sum", x, (dims_of(dim, self._type.ndim), keepdim))

    def mean(self, dim: Any = None, keepdim: Any = False, *, dtype: Any = None) -> Any:
        x: Any = self if dtype is None else self.to(dtype)
        return unary("mean", x, (dims_of(dim, self._type.ndim), keepdim))

    def var(self, dim: Any = None, keepdim: Any = False, *, correction: Any = 1,
            unbiased: Any = None) -> Any:  # fmt: skip
        """The variance, with n - 1 unless ``correction=0``."""
        if unbiased is not None:
            correction = 1 if unbiased else 0
        return unary("var", self, (dims_of(dim, self._type.ndim), keepdim, correction))  # type: ignore[arg-type]

    def std(self, dim: Any = None, keepdim: Any = False, *, correction: Any = 1,
            unbiased: Any = None) -> Any:  # fmt: skip
        """The standard deviation; its derivative for constant data is 0."""
        if unbiased is not None:
            correction = 1 if unbiased else 0
        return unary("std", self, (dims_of(dim, self._type.ndim), keepdim, correction))  # type: ignore[arg-type]

    def prod(self, dim: Any = None, keepdim: Any = False) -> Any:
        return unary("prod", self, (dims_of(dim, self._type.ndim), keepdim))  # type: ignore[arg-type]

    def amax(self, dim: Any = None, keepdim: Any = False) -> Any:
        return unary("amax", self, (dims_of(dim, self._type.ndim), keepdim))  # type: ignore[arg-type]

    def amin(self, dim: Any = None, keepdim: Any = False) -> Any:
        return unary("amin", self, (dims_of(dim, self._type.ndim), keepdim))  # type: ignore[arg-type]

    def _extremum(self, kind: str, dim: Any, keepdim: Any) -> Any:
        if dim is None:
            return unary("a" + kind, self, (dims_of(None, self._type.ndim), False), 3)  # type: ignore[arg-type]
        if hasattr(dim, "_type"):
            return binary(kind, self, dim, 3)
        k = dim_of(dim, self._type.ndim)
        if not self._type.ndim:
            return Pair((self.clone(), self.argmax()))
        values = apply(kind + "_values", (self,), ((k,), keepdim))
        return Pair((values, apply("arg" + kind, (self,), ((k,), keepdim))))

    def max(self, dim: Any = None, keepdim: Any = False) -> Any:
        """The maximum (ties share the gradient evenly); with ``dim`` values and indices."""
        return self._extremum("max", dim, keepdim)

    def min(self, dim: Any = None, keepdim: Any = False) -> Any:
        return self._extremum("min", dim, keepdim)

    def argmax(self, dim: Any = None, keepdim: Any = False) -> Any:
        dims = None if dim is None else (dim_of(dim, self._type.ndim),)
        return unary("argmax", self, (dims, keepdim))  # type: ignore[arg-type]

    def argmin(self, dim: Any = None, keepdim: Any = False) -> Any:
        dims = None if dim is None else (dim_of(dim, self._type.ndim),)
        return unary("argmin", self, (dims, keepdim))  # type: ignore[arg-type]

    def any(self, dim: Any = None, keepdim: Any = False) -> Any:
        return unary("any", self, (dims_of(dim, self._type.ndim), keepdim))  # type: ignore[arg-type]

    def all(self, dim: Any = None, keepdim: Any = False) -> Any:
        return unary("all", self, (dims_of(dim, self._type.ndim), keepdim))  # type: ignore[arg-type]

    def cumsum(self, dim: Any) -> Any:
        return unary("cumsum", self, dim_of(dim, self._type.ndim))  # type: ignore[arg-type]

    def cumprod(self, dim: Any) -> Any:
        return unary("cumprod", self, dim_of(dim, self._type.ndim))  # type: ignore[arg-type]

    def norm(self, p: Any = 2, dim: Any = None, keepdim: Any = False) -> Any:
        """The p-norm of vectors; its derivative at 0 is 0."""
        p = 2 if p in ("fro", None) else p
        p = math.inf if p == "inf" else p
        return unary("norm", self, (Const(p), dims_of(dim, self._type.ndim), keepdim))  # type: ignore[arg-type]

    def logsumexp(self, dim: Any, keepdim: Any = False) -> Any:
        return unary("logsumexp", self, (dims_of(dim, self._type.ndim), keepdim))  # type: ignore[arg-type]

    def softmax(self, dim: Any, dtype: Any = None) -> Any:
        x: Any = self if dtype is None else self.to(dtype)
        return unary("softmax", x, dim_of(dim, self._type.ndim))

    def log_softmax(self, dim: Any, dtype: Any = None) -> Any:
        x: Any = self if dtype is None else self.to(dtype)
        return unary("log_softmax", x, dim_of(dim, self._type.ndim))

    # -- products -----------------------------------------------------------------------

    def matmul(self, other: Any) -> Any:
        return binary("matmul", self, other)

    def mm(self, other: Any) -> Any:
        _ndims("mm", 2, self, other)
        return binary("matmul", self, other)

    def bmm(self, other: Any) -> Any:
        _ndims("bmm", 3, self, other)
        return binary("matmul", self, other)

    def mv(self, other: Any) -> Any:
        return binary("matmul", self, other)

    def dot(self, other: Any) -> Any:
        _ndims("dot", 1, self, other)
        return binary("matmul", self, other)

    def outer(self, other: Any) -> Any:
        return apply("outer", (self, other))

    # -- choosing -----------------------------------------------------------------------

    def gather(self, dim: Any, index: Any) -> Any:
        """The elements at ``index`` along ``dim``."""
        k = dim_of(dim, self._type.ndim)
        _check_range(index, self._type.shape[k])
        return apply("gather", (self, index), k)

    def index_select(self, dim: Any, index: Any) -> Any:
        """Rows, columns, ... in the order of ``index``."""
        k = dim_of(dim, self._type.ndim)
        return self[(*[slice(None)] * k, index)]  # type: ignore[index]

    def take_along_dim(self, indices: Any, dim: Any) -> Any:
        return self.gather(dim, indices)

    def scatter_add(self, dim: Any, index: Any, src: Any) -> Any:
        """``src`` added at ``index`` along ``dim``."""
        k = dim_of(dim, self._type.ndim)
        _check_range(index, self._type.shape[k])
        return apply("scatter_add", (self, index, src), k)

    def index_add(self, dim: Any, index: Any, source: Any) -> Any:
        """Slices of ``source`` added at ``index`` along ``dim``."""
        k = dim_of(dim, self._type.ndim)
        shape = [1] * self._type.ndim
        shape[k] = -1
        return self.scatter_add(k, index.view(*shape).expand(source.shape), source)

    def masked_select(self, mask: Any) -> Any:
        return self[mask]  # type: ignore[index]

    def sort(self, dim: Any = -1, descending: Any = False, stable: Any = True) -> Any:
        """Sorted values, and the indices that sort."""
        order = self.argsort(dim, descending)
        return Pair((self.gather(dim, order) if self._type.ndim else self.clone(), order))

    def argsort(self, dim: Any = -1, descending: Any = False) -> Any:
        k = dim_of(dim, self._type.ndim)
        array = self.materialized()  # type: ignore[attr-defined]
        if not array.ndim:
            return _leaf(np.zeros((), np.int64))
        if descending:
            flipped = np.flip(array, k)
            order = array.shape[k] - 1 - np.flip(np.argsort(flipped, k, kind="stable"), k)
        else:
            order = np.argsort(array, k, kind="stable")
        return _leaf(np.ascontiguousarray(order, np.int64))

    def topk(self, k: Any, dim: Any = -1, largest: Any = True, sorted: Any = True) -> Any:
        """The ``k`` largest values and their indices."""
        d = dim_of(dim, self._type.ndim)
        if not 0 <= k <= self._type.shape[d]:
            raise TensorError(f"selected index k={k} out of range for size {self._type.shape[d]}")
        order = self.argsort(d, largest).narrow(d, 0, k)
        return Pair((self.gather(d, order), order))

    def median(self) -> Any:
        """The lower median, as PyTorch's."""
        flat = self.view(-1)  # type: ignore[attr-defined]
        return flat.sort().values[(self._type.size - 1) // 2]

    def nonzero(self) -> Any:
        """Indices of what is not zero, one row each."""
        return _leaf(np.argwhere(self.materialized()).astype(np.int64))  # type: ignore[attr-defined]

    def allclose(
        self, other: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: Any = False
    ) -> Any:
        """Whether all elements are close."""
        a, b = self.materialized(), other.materialized()  # type: ignore[attr-defined]
        return bool_(np.allclose(a, b, rtol, atol, equal_nan))

    def equal(self, other: Any) -> Any:
        """Whether shape and all elements are equal."""
        a, b = self.materialized(), other.materialized()  # type: ignore[attr-defined]
        return bool_(a.shape == b.shape and np.array_equal(a, b))

    # -- new tensors ----------------------------------------------------------------------

    def new_zeros(self, *size: Any) -> Any:
        from tapec.tensors.creation import zeros

        return zeros(*size, dtype=self.dtype)  # type: ignore[attr-defined]

    def new_ones(self, *size: Any) -> Any:
        from tapec.tensors.creation import ones

        return ones(*size, dtype=self.dtype)  # type: ignore[attr-defined]

    def new_tensor(self, data: Any) -> Any:
        from tapec.tensors.tensor import tensor

        return tensor(data, dtype=self.dtype)  # type: ignore[attr-defined]

    # -- in place -------------------------------------------------------------------------

    def copy_(self, source: Any) -> Any:
        """Take the values of ``source``."""
        return _write(self, lambda x: _fitted(x, source))

    def fill_(self, value: Any) -> Any:
        return _write(self, lambda x: _fitted(x, value))

    def zero_(self) -> Any:
        return _write(self, lambda x: _fitted(x, 0))

    def normal_(self, mean: Any = 0.0, std: Any = 1.0) -> Any:
        from tapec.tensors.creation import generator

        draw = generator.numpy.normal(mean, std, self._type.shape)
        return _write(self, lambda x: _fitted(x, np.asarray(draw)))

    def uniform_(self, low: Any = 0.0, high: Any = 1.0) -> Any:
        from tapec.tensors.creation import generator

        draw = generator.numpy.uniform(low, high, self._type.shape)
        return _write(self, lambda x: _fitted(x, np.asarray(draw)))

    def index_add_(self, dim: Any, index: Any, source: Any) -> Any:
        return _write(self, lambda x: x.index_add(dim, index, source))

    def scatter_add_(self, dim: Any, index: Any, src: Any) -> Any:
        return _write(self, lambda x: x.scatter_add(dim, index, src))

    def addcmul_(self, a: Any, b: Any, *, value: Any = 1.0) -> Any:
        return _write(self, lambda x: x + a * b * value)

    def addcdiv_(self, a: Any, b: Any, *, value: Any = 1.0) -> Any:
        return _write(self, lambda x: x + a / b * value)

    def lerp_(self, end: Any, weight: Any) -> Any:
        return _write(self, lambda x: x + (end - x) * weight)

    def lerp(self, end: Any, weight: Any) -> Any:
        return self + (end - self) * weight


bool_ = bool


def _leaf(array: Any) -> Any:
    from tapec.tensors.tensor import Tensor

    return Tensor._of(array)


def _is_one(alpha: Any) -> bool:
    return not hasattr(alpha, "_type") and alpha == 1


def _ndims(name: str, n: int, *tensors: Any) -> None:
    for t in tensors:
        if t._type.ndim != n:
            raise TensorError(f"{name}: expected tensors of {n} dimensions, got {t._type.ndim}")


def _check_range(index: Any, n: int) -> None:
    """Refuse an index that is known now and out of range, at the user's own line."""
    from tapec.tensors.graph import TensorIndexError

    if index._type.dtype.kind not in "i":
        raise TensorTypeError(f"an index must be an integer tensor, not {index.dtype}")
    data = index._data
    if data is not None and data.size and (data.min() < -n or data.max() >= n):
        bad = data[(data < -n) | (data >= n)].flat[0]
        raise TensorIndexError(f"index {bad} is out of bounds for a dimension of size {n}")


def _fitted(x: Any, source: Any) -> Any:
    """``source`` in the shape and dtype of ``x``."""
    from tapec.tensors.tensor import Tensor

    if not isinstance(source, Tensor):
        source = Tensor._of(np.array(source, x._type.dtype.np))
    if source._type.dtype is not x._type.dtype:
        source = source.to(x.dtype)
    if source._type.shape != x._type.shape:
        return apply("expand", (source,), x._type.shape)
    return unary("clone", source)


def _write(t: Any, function: Any) -> Any:
    from tapec.tensors.inplace import check_writable, write

    check_writable(t)
    return write(t, function(t))


_UNARY = {
    "neg": "neg", "negative": "neg", "abs": "abs", "absolute": "abs", "sign": "sign",
    "floor": "floor", "ceil": "ceil", "trunc": "trunc", "sqrt": "sqrt", "exp": "exp",
    "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2", "log10": "log10",
    "log1p": "log1p", "sin": "sin", "cos": "cos", "tan": "tan", "asin": "arcsin",
    "acos": "arccos", "atan": "arctan", "arcsin": "arcsin", "arccos": "arccos",
    "arctan": "arctan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "asinh": "arcsinh",
    "acosh": "arccosh", "atanh": "arctanh", "arcsinh": "arcsinh", "arccosh": "arccosh",
    "arctanh": "arctanh", "reciprocal": "reciprocal", "square": "square", "rsqrt": "rsqrt",
    "sigmoid": "sigmoid", "relu": "relu", "silu": "silu", "erf": "erf", "sinc": "sinc",
    "logsigmoid": "logsigmoid", "isnan": "isnan", "isinf": "isinf", "isfinite": "isfinite",
    "bitwise_not": "not", "conj": "conj", "angle": "angle",
}  # fmt: skip


def _add_unary(name: str, op: str) -> None:
    def method(self: Any) -> Any:
        return unary(op, self)

    method.__name__ = name
    method.__qualname__ = f"Tensor.{name}"
    method.__doc__ = f"Elementwise {name}."
    setattr(Methods, name, method)


for _name, _op in _UNARY.items():
    _add_unary(_name, _op)

#: Methods that also exist with an underscore, writing to the tensor.
IN_PLACE = [
    "add",
    "sub",
    "mul",
    "div",
    "pow",
    "neg",
    "abs",
    "sqrt",
    "exp",
    "log",
    "sin",
    "cos",
    "tanh",
    "sigmoid",
    "relu",
    "reciprocal",
    "square",
    "clamp",
    "clamp_min",
    "clamp_max",
    "floor",
    "ceil",
    "round",
    "trunc",
    "masked_fill",
    "remainder",
    "fmod",
    "sign",
    "erf",
    "rsqrt",
    "log1p",
    "expm1",
]


def _add_in_place(name: str) -> None:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _write(self, lambda x: getattr(x, name)(*args, **kwargs))

    method.__name__ = name + "_"
    method.__qualname__ = f"Tensor.{name}_"
    method.__doc__ = f"``{name}``, written to this tensor."
    setattr(Methods, name + "_", method)


for _name in IN_PLACE:
    _add_in_place(_name)
