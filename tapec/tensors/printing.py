"""``repr`` of tensors: four digits, dtype if unusual, ``grad_fn`` or ``requires_grad``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tapec.tensors.tensor import Tensor

__all__ = ["tensor_repr"]


def _float(data: Any) -> Any:
    """A formatter for floats: whole numbers as ``1.``, others with four digits."""
    finite = np.abs(data[np.isfinite(data)])
    nonzero = finite[finite > 0]
    if finite.size and (finite == np.floor(finite)).all() and finite.max(initial=0) < 1e8:
        return lambda v: f"{v:.0f}." if np.isfinite(v) else str(v)
    if nonzero.size and (
        nonzero.max() / nonzero.min() > 1000.0 or nonzero.max() > 1e8 or nonzero.min() < 1e-4
    ):
        return lambda v: f"{v:.4e}"
    return lambda v: f"{v:.4f}"


def tensor_repr(t: Tensor) -> str:
    from tapec.tensors.dtypes import get_default_dtype

    requires = t.requires_grad
    fn = t.grad_fn if requires else None
    data = t.materialized()
    if data.dtype.kind == "f":
        formatter: Any = {"float_kind": _float(data)}
    else:
        formatter = {}
    body = np.array2string(
        data, separator=", ", formatter=formatter, threshold=1000, edgeitems=3, prefix="tensor("
    )
    extra = ""
    usual = data.dtype.kind in "b" or data.dtype == np.int64 or t.dtype is get_default_dtype()
    if data.size == 0 and data.ndim > 1:
        extra += f", size={tuple(data.shape)}"
    if not usual:
        extra += f", dtype={t.dtype!r}"
    if fn is not None:
        extra += f", grad_fn=<{fn.name()}>"
    elif requires:
        extra += ", requires_grad=True"
    return f"tensor({body}{extra})"
