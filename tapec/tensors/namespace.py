"""Where the tensor side's public names come from: ``tapec.<name>`` is imported at first use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["FROM", "MODULES", "find"]

#: Sub-packages that are reached as attributes.
MODULES = ("autograd", "multitask", "nn", "optim")

_CREATION = (
    "arange as_tensor bernoulli cat concat empty eye from_numpy full full_like linspace "
    "manual_seed ones ones_like rand rand_like randint randn randn_like randperm stack zeros "
    "zeros_like"
)
_FUNCTIONS = (
    "abs absolute acos acosh add all allclose amax amin any arccos arccosh arcsin arcsinh "
    "arctan arctanh argmax argmin argsort asin asinh atan atan2 atanh bitwise_not bmm ceil "
    "chunk clamp clamp_max clamp_min clip clone cos cosh cumprod cumsum detach diag diagonal "
    "div dot einsum eq equal erf exp exp2 expm1 flatten flip floor floor_divide fmod gather "
    "ge gelu gt hypot index_add index_select is_floating_point is_tensor isfinite isinf isnan "
    "le lerp log log10 log1p log2 log_softmax logaddexp logical_and logical_not logical_or "
    "logical_xor logsigmoid logsumexp lt masked_fill masked_select matmul max maximum mean "
    "median min minimum mm movedim mul mv nan_to_num narrow ne neg negative nonzero norm "
    "numel outer permute pow prod ravel reciprocal relu remainder repeat_interleave reshape "
    "roll round rsqrt scatter_add select sigmoid sign silu sin sinc sinh softmax softplus "
    "sort split sqrt square squeeze std sub sum swapaxes t take_along_dim tan tanh tile topk "
    "transpose tril triu trunc unbind unflatten unsqueeze var where pi inf nan e"
)
_MODES = (
    "enable_grad inference_mode is_grad_enabled is_inference_mode_enabled no_grad set_grad_enabled"
)
_DTYPES = "complex64 complex128 float32 float64 int32 int64 get_default_dtype set_default_dtype"

#: name → (module, attribute)
FROM: dict[str, tuple[str, str]] = {
    **{n: ("tapec.tensors.functions", n) for n in _FUNCTIONS.split()},
    **{n: ("tapec.tensors.creation", n) for n in _CREATION.split()},
    **{n: ("tapec.autograd.grad_mode", n) for n in _MODES.split()},
    **{n: ("tapec.tensors.dtypes", n) for n in _DTYPES.split()},
    "Size": ("tapec.tensors.shapes", "Size"),
    "Tensor": ("tapec.tensors.tensor", "Tensor"),
    "TensorError": ("tapec.tensors.graph", "TensorError"),
    "bool": ("tapec.tensors.dtypes", "bool_"),
    "double": ("tapec.tensors.dtypes", "float64"),
    "dtype": ("tapec.tensors.dtypes", "dtype"),
    "float": ("tapec.tensors.dtypes", "float32"),
    "int": ("tapec.tensors.dtypes", "int32"),
    "long": ("tapec.tensors.dtypes", "int64"),
    "stats": ("tapec.tensors.graph", "stats"),
    "tensor": ("tapec.tensors.tensor", "tensor"),
}


def find(name: str) -> Any:
    """The public object ``name``; None if there is none."""
    if name in MODULES:
        return import_module(f"tapec.{name}")
    place = FROM.get(name)
    return None if place is None else getattr(import_module(place[0]), place[1])
