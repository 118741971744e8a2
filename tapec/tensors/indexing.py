"""``t[key]`` and ``t[key] = value``.

Integers, slices, ``None`` and ``...`` select a view; integer tensors gather, and masks are
looked at now.  Positions for writes with index tensors are computed on the host.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from tapec.source import describe_site, user_site
from tapec.tensors.graph import TensorIndexError, TensorTypeError, modes
from tapec.tensors.inplace import check_writable, view, write
from tapec.tensors.methods import _check_range, _fitted
from tapec.tensors.record import apply
from tapec.tensors.tensor import Tensor

__all__ = ["getitem", "setitem"]

_WHOLE = slice(None)


def _here() -> str:
    site = user_site(3)
    return f"{describe_site(site)}: " if site.loc is not None else ""


def _parts(x: Tensor, key: Any) -> list[Any]:
    """The key as a list with one entry per dimension or new axis."""
    given = list(key) if isinstance(key, tuple) else [key]
    used = 0
    dots = None
    out: list[Any] = []
    for k in given:
        if k is Ellipsis:
            if dots is not None:
                raise TensorIndexError(f"{_here()}an index can only have a single ellipsis")
            dots = len(out)
            continue
        if k is None or isinstance(k, slice):
            out.append(k)
            used += k is not None
            continue
        if isinstance(k, (bool, np.bool_)):
            raise TensorTypeError(
                f"{_here()}a bool as an index is not supported; use a mask tensor"
            )
        if isinstance(k, (list, np.ndarray)):
            k = Tensor._of(np.array(k))
        if isinstance(k, Tensor):
            if k._type.dtype.kind == "b":
                mask = k.materialized()
                n = mask.ndim
                shape = x._type.shape[used : used + n]
                if mask.shape != shape:
                    raise TensorIndexError(
                        f"{_here()}the shape of the mask {list(mask.shape)} does not match the "
                        f"shape of the indexed tensor {list(x._type.shape)}"
                    )
                out.extend(Tensor._of(i.astype(np.int64)) for i in np.nonzero(mask))
                used += n
                continue
            if k._type.dtype.kind != "i":
                raise TensorIndexError(
                    f"{_here()}tensors used as indices must be integers or bools, not {k.dtype}"
                )
            if not k._type.shape:
                k = int(k.item())
        else:
            try:
                k = operator.index(k)
            except TypeError:
                raise TensorTypeError(
                    f"{_here()}an index of type {type(k).__name__}; only integers, slices, "
                    "ellipsis, None and integer or bool tensors are valid"
                ) from None
        out.append(k)
        used += 1
    rest = x._type.ndim - used
    if rest < 0:
        raise TensorIndexError(
            f"{_here()}too many indices for a tensor of dimension {x._type.ndim}"
        )
    at = len(out) if dots is None else dots
    out[at:at] = [_WHOLE] * rest
    return out


def _region(shape: tuple[int, ...], parts: list[Any]) -> Any:
    """start, size, step per axis and the shape of the result."""
    start, size, step, out = [], [], [], []
    axis = 0
    for k in parts:
        if k is None:
            out.append(1)
            continue
        n = shape[axis]
        if isinstance(k, slice):
            a, b, s = k.indices(n)
            if s < 1:
                raise TensorTypeError(f"{_here()}slice step must be positive; use flip()")
            m = max(0, -(-(b - a) // s))
            start.append(a if m else 0)
            size.append(m)
            step.append(s if m else 1)
            out.append(m)
        else:
            if not -n <= k < n:
                raise TensorIndexError(
                    f"{_here()}index {k} is out of bounds for dimension {axis} with size {n}"
                )
            start.append(k % n)
            size.append(1)
            step.append(1)
        axis += 1
    return tuple(start), tuple(size), tuple(step), tuple(out)


def _basic(x: Tensor, parts: list[Any]) -> Tensor:
    region = _region(x._type.shape, parts)
    _, size, step, out = region
    if size == x._type.shape and set(step) <= {1}:
        return view(x, "view", out) if out != size else view(x, "alias", None)
    return view(x, "slice", region)


def getitem(x: Tensor, key: Any) -> Any:
    """``x[key]``."""
    parts = _parts(x, key)
    advanced = [k for k in parts if isinstance(k, Tensor)]
    if not advanced:
        return _basic(x, parts)
    # basic parts first; the index tensors then stand on axes of the result
    base = x
    if not all([isinstance(k, Tensor) or k == _WHOLE for k in parts]):
        base = _basic(x, [_WHOLE if isinstance(k, Tensor) else k for k in parts])
    axes = []
    axis = 0
    for k in parts:
        if isinstance(k, Tensor):
            axes.append(axis)
        axis += not isinstance(k, int)
    for i, a in zip(advanced, axes):
        _check_range(i, base._type.shape[a])
    together = axes == list(range(axes[0], axes[0] + len(axes)))
    return apply("index", (base, *advanced), (tuple(axes), axes[0] if together else 0))


def setitem(x: Tensor, key: Any, value: Any) -> None:
    """``x[key] = value``."""
    if isinstance(key, Tensor) and key._type.dtype.kind == "b" and not isinstance(value, Tensor):
        if key._type.shape == x._type.shape and isinstance(value, (int, float)):
            check_writable(x)
            write(x, x.masked_fill(key, value))
            return
    parts = _parts(x, key)
    check_writable(x)
    if not any(isinstance(k, Tensor) for k in parts):
        target = _basic(x, parts)
        check_writable(target)
        write(target, _fit(target, value))
        if modes.grad:
            x.requires_grad  # noqa: B018  read anew
        return
    positions = np.arange(x._type.size).reshape(x._type.shape)
    index = tuple([k.materialized() if isinstance(k, Tensor) else k for k in parts])
    try:
        picked = positions[index]
    except IndexError as error:
        raise TensorIndexError(f"{_here()}{error}") from None
    if not isinstance(value, Tensor):
        value = Tensor._of(np.array(value, x._type.dtype.np))
    if value._type.shape != picked.shape:
        value = apply("expand", (value,), picked.shape)
    flat = picked.reshape(-1)
    target_at, last = np.unique(flat[::-1], return_index=True)
    if target_at.size < flat.size:  # the last of several writes to one place counts
        order = Tensor._of(np.ascontiguousarray(flat.size - 1 - last))
        value = getitem(value.reshape(-1), order)
        flat = target_at
    hit = np.zeros(x._type.size, bool)
    hit[flat] = True
    where = Tensor._of(np.ascontiguousarray(flat, np.int64))
    write(x, apply("put", (x, value, where, Tensor._of(hit))))


def _fit(target: Tensor, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        shape = value._type.shape
        # leading dimensions of length 1 may be dropped
        while len(shape) > target._type.ndim and shape[0] == 1:
            shape = shape[1:]
        if shape != value._type.shape:
            value = value.view(shape)
    return _fitted(target, value)  # type: ignore[no-any-return]
