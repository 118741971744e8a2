"""Function transforms on tensors: ``tapec.grad(f)(t)``, and tensors given to jitted functions.

Transforms that differentiate run ``f`` on tensors and differentiate what was recorded, so ``f`` may
use tensor methods; results are tensors.  A jitted function gets arrays and is one node of the
graph, whose derivative is the compiled pullback.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tapec import trees

__all__ = ["call", "has_tensors"]


def has_tensors(args: Any, kwargs: Any) -> bool:
    """Whether a tensor is among the arguments (cheap while tensors are not in use)."""
    module = sys.modules.get("tapec.tensors.tensor")
    if module is None:
        return False
    leaves, _ = trees.flatten((args, kwargs))
    return any(isinstance(x, module.Tensor) for x in leaves)


def call(subject: Callable[..., Any], transform: Any, args: Any, kwargs: Any, run: Any) -> Any:
    """The transform of ``subject`` for arguments with tensors among them; ``run`` calls the
    compiled function on arrays."""
    from tapec.autograd.engine import gradients
    from tapec.errors import UnsupportedError
    from tapec.tensors.tensor import Tensor

    kind = transform.kind
    if kind == "jit":
        return _jitted(subject, args, kwargs, run)
    if transform.has_aux or kind not in ("grad", "value_and_grad", "jacobian", "hessian", "hvp"):
        raise UnsupportedError(
            f"{kind} of tensors is not supported; pass arrays: t.detach().numpy()"
        )
    given = list(args)
    vector = None
    numbers = range(len(given)) if transform.argnums is None else transform.argnums
    if kind == "hvp":
        k = (transform.argnums or (0,))[0]
        vector = given.pop(k + 1)
    wrt: list[Any] = []
    places = []
    for k in numbers:
        leaves, treedef = trees.flatten(given[k])
        fresh = [_leaf(x) for x in leaves]
        places.append((len(leaves), treedef))
        wrt.extend(fresh)
        given[k] = treedef.unflatten(fresh)

    def rebuilt(flat: Any) -> Any:
        out, at = [], 0
        for n, treedef in places:
            out.append(treedef.unflatten(flat[at : at + n]))
            at += n
        return out[0] if transform.single and len(out) == 1 else tuple(out)

    if kind in ("jacobian", "hessian"):
        from tapec.autograd import functional

        def of(*values: Any) -> Any:
            inner, at = list(given), 0
            for k, (n, treedef) in zip(numbers, places):
                inner[k] = treedef.unflatten(values[at : at + n])
                at += n
            return subject(*inner, **kwargs)

        if len(wrt) != 1:
            raise UnsupportedError(f"{kind} of tensors takes one argument; pass arrays")
        return getattr(functional, kind)(of, wrt[0])
    value = subject(*given, **kwargs)
    if not isinstance(value, Tensor) or value.numel() != 1:
        from tapec.errors import TapecTypeError

        raise TapecTypeError(f"{kind} needs a function with a scalar result")
    create = kind == "hvp"
    grads = gradients(value, wrt, None, True, create, True, materialize_grads=True)
    if create:
        vectors, _ = trees.flatten(vector)
        pairs = [(g, v) for g, v in zip(grads, vectors) if g.requires_grad]
        if pairs:
            outs, seeds = [g for g, _ in pairs], [_tensor(v) for _, v in pairs]
            grads = gradients(outs, wrt, seeds, True, False, True, materialize_grads=True)
        else:
            grads = tuple([Tensor._of(np.zeros(t.shape, t._type.dtype.np)) for t in wrt])
    result = rebuilt(list(grads))
    return (value.detach(), result) if kind == "value_and_grad" else result


def _tensor(x: Any) -> Any:
    from tapec.tensors.tensor import Tensor, tensor

    return x if isinstance(x, Tensor) else tensor(x)


def _leaf(x: Any) -> Any:
    return _tensor(x).detach().clone().detach().requires_grad_()


def _jitted(subject: Any, args: Any, kwargs: Any, run: Any) -> Any:
    from tapec.autograd.function import Function
    from tapec.errors import UnsupportedError
    from tapec.tensors.tensor import Tensor

    leaves, treedef = trees.flatten((args, kwargs))
    at = [k for k, x in enumerate(leaves) if isinstance(x, Tensor)]

    def arrays(values: Any) -> Any:
        filled = list(leaves)
        for k, v in zip(at, values):
            filled[k] = v
        return treedef.unflatten(filled)

    def wrapped(result: Any) -> Any:
        flat, tree = trees.flatten(result)
        if trees.has_pairs(tree):
            raise UnsupportedError("a function of tensors gives complex values; pass arrays")
        return tree.unflatten([Tensor._of(np.array(x)) if _numeric(x) else x for x in flat])

    tensors = [leaves[k] for k in at]
    if not any(t.requires_grad for t in tensors):
        return wrapped(run(*arrays([t.materialized() for t in tensors])))

    class Jitted(Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            ctx.save_for_backward(*inputs)
            return wrapped(run(*arrays([t.materialized() for t in inputs])))

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            from tapec.points import vjp

            saved = ctx.saved_tensors
            wanted = [k for k, t in enumerate(saved) if t._type.dtype.is_inexact]

            def pure(*values: Any) -> Any:
                filled = [t.materialized() for t in saved]
                for k, v in zip(wanted, values):
                    filled[k] = v
                a, k = arrays(filled)
                return subject(*a, **k)

            _, pull = vjp(pure, *[saved[k].materialized() for k in wanted])
            seeds = [g.materialized() for g in grads]
            found = pull(seeds[0] if len(seeds) == 1 else tuple(seeds))
            out: list[Any] = [None] * len(saved)
            for k, g in zip(wanted, found):
                out[k] = Tensor._of(np.array(g))
            return tuple(out)

    return Jitted.apply(*tensors)


def _numeric(x: Any) -> bool:
    return isinstance(x, (float, int, np.ndarray, np.generic))
