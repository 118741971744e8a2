"""Products and matrices of derivatives, under the names of ``torch.autograd.functional``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapec.autograd.engine import gradients
from tapec.tensors.graph import TensorError, TensorTypeError, modes, switch
from tapec.tensors.tensor import Tensor

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def _inputs(inputs: Any, create_graph: bool) -> tuple[bool, tuple[Any, ...]]:
    single = isinstance(inputs, Tensor)
    given = (inputs,) if single else tuple(inputs)
    out = []
    for k, t in enumerate(given):
        if not isinstance(t, Tensor):
            raise TensorTypeError(f"input {k} must be a tensor, not {type(t).__name__}")
        if create_graph and t.requires_grad:
            out.append(t.view(t._type.shape))
        else:
            out.append(t.detach().requires_grad_())
    return single, tuple(out)


def _call(func: Any, inputs: Any) -> tuple[bool, tuple[Any, ...]]:
    before = modes.grad
    switch(True, modes.inference)
    try:
        result = func(*inputs)
    finally:
        switch(before, modes.inference)
    single = isinstance(result, Tensor)
    outputs = (result,) if single else tuple(result)
    for o in outputs:
        if not isinstance(o, Tensor):
            raise TensorTypeError(f"the function must return tensors, not {type(o).__name__}")
    return single, outputs


def _strict(outputs: Any, strict: bool) -> None:
    for k, o in enumerate(outputs):
        if strict and not o.requires_grad:
            raise TensorError(
                f"output {k} of the user-provided function does not require gradient: it is "
                "independent of the inputs; instead: use strict=False for zeros"
            )


def _grads(outputs: Any, inputs: Any, seeds: Any, create: bool, strict: bool) -> list[Any]:
    pairs = [(o, s) for o, s in zip(outputs, seeds) if o.requires_grad]
    found: Any = [None] * len(inputs)
    if pairs:
        found = gradients([o for o, _ in pairs], inputs, [s for _, s in pairs], True, create, True)
    out = []
    for k, (t, g) in enumerate(zip(inputs, found)):
        if g is None:
            if strict:
                raise TensorError(
                    f"the output of the user-provided function is independent of input {k}; "
                    "instead: use strict=False for zeros"
                )
            g = Tensor._of(np.zeros(t._type.shape, t._type.dtype.np))
        out.append(g)
    return out


def _vector(v: Any, like: Any, single: bool, what: str) -> list[Any]:
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise TensorError(
                f"the vector v can only be None if {what} a tensor with a single element"
            )
        return [Tensor._of(np.ones(like[0]._type.shape, like[0]._type.dtype.np))]
    vs = [v] if isinstance(v, Tensor) else list(v)
    if len(vs) != len(like):
        raise TensorError(f"v has {len(vs)} elements, expected {len(like)}")
    for a, b in zip(vs, like):
        if a._type.shape != b._type.shape:
            raise TensorError(f"v has size {list(a._type.shape)}, expected {list(b._type.shape)}")
    return vs


def _done(values: Any, single: bool, create: bool) -> Any:
    out = [v if create else v.detach() for v in values]
    return out[0] if single else tuple(out)


def vjp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple[Any, Any]:  # fmt: skip
    """``(outputs, vᵀ J)``.

    >>> import tapec
    >>> tapec.autograd.functional.vjp(lambda x: (x**2).sum(), tapec.tensor([1.0, 2.0]))[1]
    tensor([2., 4.])
    """
    single, xs = _inputs(inputs, create_graph)
    one, outputs = _call(func, xs)
    _strict(outputs, strict)
    seeds = _vector(v, outputs, one, "the user-provided function returns")
    grads = _grads(outputs, xs, seeds, create_graph, strict)
    return _done(outputs, one, create_graph), _done(grads, single, create_graph)


def jvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple[Any, Any]:  # fmt: skip
    """``(outputs, J v)``, by differentiating the pullback."""
    single, xs = _inputs(inputs, create_graph)
    vs = _vector(v, xs, single, "the input is")
    one, outputs = _call(func, xs)
    _strict(outputs, strict)
    ws = [Tensor._of(np.zeros(o._type.shape, o._type.dtype.np), True) for o in outputs]
    before = modes.grad
    switch(True, modes.inference)
    try:
        pulled = _grads(outputs, xs, ws, True, strict)
        tangents = _grads(pulled, ws, vs, create_graph, False)
    finally:
        switch(before, modes.inference)
    return _done(outputs, one, create_graph), _done(tangents, one, create_graph)


def _scalar(outputs: Any, one: bool, what: str) -> None:
    if not one:
        raise TensorError(f"the function given to {what} should return a single tensor")
    if outputs[0].numel() != 1:
        raise TensorError(
            f"the tensor returned by the function given to {what} should contain a single element"
        )


def _second(func: Any, inputs: Any, v: Any, create: bool, strict: bool, what: str) -> Any:
    single, xs = _inputs(inputs, create)
    vs = _vector(v, xs, single, "the input is")
    one, outputs = _call(func, xs)
    _scalar(outputs, one, what)
    _strict(outputs, strict)
    before = modes.grad
    switch(True, modes.inference)
    try:
        first = _grads(outputs, xs, [None], True, strict)
        if strict:
            _strict(first, True)
        product = _grads(first, xs, vs, create, strict)
    finally:
        switch(before, modes.inference)
    return _done(outputs, True, create), _done(product, single, create)


def vhp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple[Any, Any]:  # fmt: skip
    """``(output, vᵀ H)`` of a scalar function."""
    return _second(func, inputs, v, create_graph, strict, "vhp")  # type: ignore[no-any-return]


def hvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple[Any, Any]:  # fmt: skip
    """``(output, H v)`` of a scalar function; the same as ``vhp``, as H is symmetric."""
    return _second(func, inputs, v, create_graph, strict, "hvp")  # type: ignore[no-any-return]


def jacobian(func: Callable[..., Any], inputs: Any, create_graph: bool = False,
             strict: bool = False, vectorize: bool = False,
             strategy: str = "reverse-mode") -> Any:  # fmt: skip
    """All derivatives: shape of the output followed by the shape of the input.

    >>> import tapec
    >>> tapec.autograd.functional.jacobian(lambda x: x**2, tapec.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    from tapec.tensors.creation import stack

    if strategy not in ("reverse-mode", "forward-mode"):
        raise TensorError(
            f"expected strategy to be 'reverse-mode' or 'forward-mode', got {strategy}"
        )
    single, xs = _inputs(inputs, create_graph)
    one, outputs = _call(func, xs)
    _strict(outputs, strict)
    rows: list[Any] = []
    for o in outputs:
        columns: list[list[Any]] = [[] for _ in xs]
        for n in range(o.numel()):
            seed = np.zeros(o._type.shape, o._type.dtype.np)
            seed.reshape(-1)[n] = 1
            for c, g in zip(columns, _grads([o], xs, [Tensor._of(seed)], create_graph, strict)):
                c.append(g)
        blocks = []
        for c, x in zip(columns, xs):
            shape = (*o._type.shape, *x._type.shape)
            if not c:
                blocks.append(Tensor._of(np.zeros(shape, x._type.dtype.np)))
            else:
                blocks.append(stack(c).view(shape))
        rows.append(blocks[0] if single else tuple(blocks))
    if not create_graph:
        rows = [
            r.detach() if isinstance(r, Tensor) else tuple([b.detach() for b in r]) for r in rows
        ]
    return rows[0] if one else tuple(rows)


def hessian(func: Callable[..., Any], inputs: Any, create_graph: bool = False,
            strict: bool = False, vectorize: bool = False,
            outer_jacobian_strategy: str = "reverse-mode") -> Any:  # fmt: skip
    """Second derivatives of a scalar function.

    >>> import tapec
    >>> tapec.autograd.functional.hessian(lambda x: (x**3).sum(), tapec.tensor([1.0, 2.0]))
    tensor([[6., 0.],
            [0., 12.]])
    """
    single = isinstance(inputs, Tensor)

    def gradient(*args: Any) -> Any:
        one, outputs = _call(func, args)
        _scalar(outputs, one, "hessian")
        _strict(outputs, strict)
        grads = _grads(outputs, args, [None], True, strict)
        return grads[0] if single else tuple(grads)

    return jacobian(gradient, inputs, create_graph, strict)
