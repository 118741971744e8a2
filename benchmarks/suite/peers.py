"""The tools as adapters: each makes a case ready to be called.

``TOOLS[name](case, args)`` returns a ``Ready``: a call for the value and one for value and
derivatives, each a function and its arguments, and ``collect``, which turns a result into plain
arrays: value and gradients, or the product, the matrix, the residuals and blocks.
Modules are imported when an adapter first runs.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from suite.case import Case
from suite.hand_c import BASIC, HEADER, Native, compiler, library
from suite.hand_c_models import MODELS
from suite.hand_python import LOOPS, NUMPY, network_value, straight
from suite.namespaces import namespace

__all__ = ["MODULES", "TOOLS", "Ready", "available"]

Call = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True)
class Ready:
    """``value`` is None where the tool has no function for the value alone."""

    value: Call | None
    both: Call
    collect: Callable[[Any], list[Any]]
    #: The callable to ask for dumps and statistics (tapec only).
    handle: Any = None


def arrays(result: Any) -> list[Any]:
    """The leaves of nested tuples as arrays."""
    if isinstance(result, (tuple, list)):
        return [leaf for part in result for leaf in arrays(part)]
    return [numpy.asarray(result, float)]


def blocks(result: Any) -> list[Any]:
    """Residuals and 2x15 blocks, from the blocks in camera, point and weight."""
    miss, *parts = arrays(result)
    if len(parts) == 6:  # two pulls of three
        parts = [numpy.stack((parts[i], parts[i + 3]), axis=1) for i in range(3)]
    return [miss, numpy.concatenate([p.reshape(*miss.shape, -1) for p in parts], axis=-1)]


def objective(case: Case, tool: str) -> Callable[..., Any]:
    return case.variants.get(tool, case.make)(namespace(tool))


def tapec_tool(case: Case, args: tuple[Any, ...]) -> Ready:
    import tapec

    fn = objective(case, "tapec")
    if case.kind == "gradient":
        both: Any = tapec.value_and_grad(fn, argnums=tuple(range(case.wrt)))
        return Ready((tapec.jit(fn), args), (both, args), arrays, both)
    if case.kind == "blocks":

        def residuals(
            camera: Any, point: Any, weight: Any, feature: Any, which: Any, where: Any
        ) -> Any:
            return tapec.vmap(fn)(camera[which], point[where], weight, feature)

        def all_blocks(
            camera: Any, point: Any, weight: Any, feature: Any, which: Any, where: Any
        ) -> Any:
            seen = camera[which], point[where], weight, feature
            jacobian = tapec.jacobian(fn, argnums=(0, 1, 2))
            return tapec.vmap(fn)(*seen), tapec.vmap(jacobian)(*seen)

        both = tapec.jit(all_blocks)
        return Ready((tapec.jit(residuals), args), (both, args), blocks, both)
    both = getattr(tapec, case.kind)(fn)
    primal = args[:1] if case.kind == "hvp" else args
    return Ready((tapec.jit(fn), primal), (both, args), arrays, both)


def jax_tool(case: Case, args: tuple[Any, ...]) -> Ready:
    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    fn = objective(case, "jax")
    held = jax.block_until_ready(tuple(jax.numpy.asarray(a) for a in args))
    primal, inputs = fn, held
    if case.kind == "gradient":
        both: Any = jax.value_and_grad(fn, argnums=tuple(range(case.wrt)))
    elif case.kind == "hvp":
        inputs = held[:1]

        def both(x: Any, v: Any) -> Any:
            return jax.jvp(jax.grad(fn), (x,), (v,))[1]

    elif case.kind == "blocks":

        def primal(camera: Any, point: Any, weight: Any, feature: Any, which: Any, at: Any) -> Any:
            return fn(camera[which], point[at], weight, feature)

        def both(camera: Any, point: Any, weight: Any, feature: Any, which: Any, at: Any) -> Any:
            miss, pull = jax.vjp(
                lambda *a: fn(*a, feature), camera[which], point[at], weight
            )  # fmt: skip
            first = jax.numpy.zeros_like(miss).at[:, 0].set(1.0)
            return miss, pull(first), pull(1.0 - first)

    else:
        both = jax.hessian(fn) if case.kind == "hessian" else jax.jacfwd(fn)
    compiled, block = [jax.jit(primal), jax.jit(both)], jax.block_until_ready
    return Ready(
        (lambda *a: block(compiled[0](*a)), inputs),
        (lambda *a: block(compiled[1](*a)), held),
        blocks if case.kind == "blocks" else arrays,
    )


def torch_tool(case: Case, args: tuple[Any, ...]) -> Ready:
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    fn = objective(case, "torch")
    held = [torch.as_tensor(a) for a in args]
    leaves = [a.requires_grad_() for a in held[: case.wrt]]
    inputs = tuple(held)
    pull = torch.autograd.grad

    if case.kind == "blocks":
        camera, point, weight, feature, which, at = held

        def seen() -> Any:
            found = [camera[which], point[at], weight]
            return found, fn(*found, feature)

        def value() -> Any:
            with torch.no_grad():
                return seen()[1]

        def both() -> Any:
            found, miss = seen()
            first = torch.zeros_like(miss)
            first[:, 0] = 1.0
            pulled = pull(miss, found, first, retain_graph=True), pull(miss, found, 1.0 - first)
            return miss.detach(), *pulled

        return Ready((value, ()), (both, ()), blocks)

    def primal(*a: Any) -> Any:
        with torch.no_grad():
            return fn(*a)

    if case.kind == "gradient":

        def derived(*a: Any) -> Any:
            result = fn(*a)
            return result.detach(), pull(result, leaves, materialize_grads=True)

        return Ready((primal, inputs), (derived, inputs), arrays)
    if case.kind == "hvp":

        def product(x: Any, v: Any) -> Any:
            return pull(pull(fn(x), x, create_graph=True)[0], x, v)

        return Ready((primal, inputs[:1]), (product, inputs), arrays)
    dense = torch.func.hessian(fn) if case.kind == "hessian" else torch.func.jacfwd(fn)
    return Ready((primal, inputs), (lambda *a: dense(*a).detach(), inputs), arrays)


def autograd_tool(case: Case, args: tuple[Any, ...]) -> Ready:
    autograd = importlib.import_module("autograd")
    fn = objective(case, "autograd")
    if case.kind == "gradient":
        both: Any = autograd.value_and_grad(fn, tuple(range(case.wrt)))
        return Ready((fn, args), (both, args), arrays)
    if case.kind == "hvp":
        return Ready((fn, args[:1]), (autograd.hessian_vector_product(fn), args), arrays)
    if case.kind == "blocks":
        make_vjp = importlib.import_module("autograd.core").make_vjp
        as_tuple = importlib.import_module("autograd.builtins").tuple

        def both(camera: Any, point: Any, weight: Any, feature: Any, which: Any, at: Any) -> Any:
            start = as_tuple((camera[which], point[at], weight))
            pull, miss = make_vjp(lambda t: fn(t[0], t[1], t[2], feature), start)
            first = numpy.zeros_like(miss)
            first[:, 0] = 1.0
            return miss, pull(first), pull(1.0 - first)

        return Ready(None, (both, args), blocks)
    return Ready((fn, args), (getattr(autograd, case.kind)(fn), args), arrays)


def casadi_tool(case: Case, args: tuple[Any, ...], options: Any = None) -> Ready:
    """SX graphs called through the buffer interface: pointers are set once."""
    ca = importlib.import_module("casadi")
    symbols = [ca.SX.sym(f"a{i}", numpy.size(a)) for i, a in enumerate(args)]
    output = objective(case, "casadi")(*symbols)
    if case.kind == "hessian":
        derived = [ca.densify(ca.hessian(output, symbols[0])[0])]
    else:
        derived = [output, *(ca.densify(ca.gradient(output, s)) for s in symbols[: case.wrt])]

    def call(outputs: list[Any]) -> tuple[Call, list[Any]]:
        compiled = ca.Function("f", symbols, outputs, options or {})
        buffer, evaluate = compiled.buffer()
        inputs: list[Any] = [numpy.atleast_1d(numpy.asarray(a, float)) for a in args]
        results: list[Any] = [numpy.zeros(compiled.nnz_out(i)) for i in range(len(outputs))]
        for i, array in enumerate(inputs):
            buffer.set_arg(i, memoryview(array))
        for i, array in enumerate(results):
            buffer.set_res(i, memoryview(array))
        _alive.append((compiled, buffer, inputs))
        return (evaluate, ()), results

    both, results = call(derived)

    def value() -> Any:
        return call([output])[0][0]

    return Ready((Later(value), ()), both, lambda _: arrays(results))


class Later:
    """A function made at its first call (making it is not part of the first gradient)."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = functools.cache(make)

    def __call__(self, *args: Any) -> Any:
        return self.make()(*args)


#: What native calls point into.
_alive: list[Any] = []


def casadi_c_tool(case: Case, args: tuple[Any, ...]) -> Ready:
    """The same through CasADi's C generator and the C compiler."""
    flags = {"flags": ["-O3", "-march=native"], "compiler": "gcc"}
    return casadi_tool(case, args, {"jit": True, "compiler": "shell", "jit_options": flags})


def numpy_tool(case: Case, args: tuple[Any, ...]) -> Ready:
    if case.hand.startswith("straight "):
        count = int(case.hand.split()[1])
        return Ready((objective(case, "numpy"), args), (straight(count), args), arrays)
    value: Any = network_value if case.hand == "network" else objective(case, "numpy")
    primal = args[:1] if case.kind == "hvp" else args
    return Ready((value, primal), (NUMPY[case.hand], args), arrays)


def numba_tool(case: Case, args: tuple[Any, ...]) -> Ready:
    numba = importlib.import_module("numba")
    both, value = (numba.njit(fn, fastmath=True) for fn in LOOPS[case.hand])
    primal = args[:1] if case.kind == "hvp" else args
    filled = numpy.empty_like(args[0])
    collect = (lambda _: [filled]) if case.kind == "hvp" else (lambda v: [*arrays(v), filled])
    return Ready((value, primal), (both, (*args, filled)), collect)


@functools.cache
def c_library() -> Any:
    return library(HEADER + BASIC + MODELS)


def shapes(case: Case, args: Sequence[Any]) -> list[tuple[int, ...]]:
    """The shapes of the results in C."""
    if case.kind == "gradient":
        return [(), *(numpy.shape(a) for a in args[: case.wrt])]
    if case.kind == "hvp":
        return [numpy.shape(args[0])]
    if case.kind == "blocks":
        return [(case.sizes[0], 2), (case.sizes[0], 2, 15)]
    return [(3, case.sizes[1]), (3, case.sizes[1], 26)]


def c_tool(case: Case, args: tuple[Any, ...]) -> Ready:
    code = c_library()
    sized = shapes(case, args)
    bound = Native(getattr(code, case.hand), args, sized, case.sizes)
    primal = "rosenbrock" if case.kind == "hvp" else case.hand
    alone = Native(getattr(code, f"{primal}_value"), args, sized[:1], case.sizes)
    _alive.append((bound, alone))
    hide = 1 if case.kind == "jacobian" else 0
    return Ready(
        (alone.call, alone.pointers),
        (bound.call, bound.pointers),
        lambda _: arrays(bound.results[hide:]),
    )


MODULES = {
    "tapec": "tapec",
    "jax": "jax",
    "torch": "torch",
    "autograd": "autograd",
    "casadi": "casadi",
    "casadi-c": "casadi",
    "numpy": "numpy",
    "numba": "numba",
    "c": "numpy",
}
TOOLS: dict[str, Callable[[Case, tuple[Any, ...]], Ready]] = {
    "tapec": tapec_tool,
    "jax": jax_tool,
    "torch": torch_tool,
    "autograd": autograd_tool,
    "casadi": casadi_tool,
    "casadi-c": casadi_c_tool,
    "numpy": numpy_tool,
    "numba": numba_tool,
    "c": c_tool,
}


def available(tool: str) -> bool:
    """Can the tool run in this interpreter?"""
    needs_gcc = tool in ("c", "casadi-c")
    found = importlib.util.find_spec(MODULES[tool]) is not None
    return found and (not needs_gcc or compiler() is not None)
