"""Golden counters per class of kernel: nests, library calls, traffic, calls in loops, workspace.

``tests/golden/counters.json`` holds the numbers of each kernel below.  A number may become
smaller at any time; one that is larger fails.  ``pytest --update-golden`` writes the numbers of
today.  Nothing is timed, and nothing is compiled beyond inlining.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapec
from tapec.codegen import compile_kernel, engine
from tapec.codegen.callable_type import slow_of
from tapec.codegen.counters import Counters, count, count_program, loop_calls
from tapec.ir import parse
from tapec.ir.core import Function
from tapec.transforms import build

GOLDEN = Path(__file__).parent / "golden" / "counters.json"
INDEX = np.arange(0, 900, 3)


def ones(*shape: int) -> np.ndarray[Any, Any]:
    return np.full(shape, 0.5)


def rosenbrock(x: Any) -> Any:
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def logistic(w: Any, x: Any, y: Any) -> Any:
    p = 1 / (1 + np.exp(-(x @ w)))
    return -np.mean(y * np.log(p) + (1 - y) * np.log(1 - p))


def softmax(x: Any) -> Any:
    z = x - np.max(x, axis=1, keepdims=True)
    return np.sum(z[:, 0] - np.log(np.sum(np.exp(z), axis=1)))


def network(a: Any, b: Any, x: Any) -> Any:
    return np.sum((np.tanh(x @ a) @ b) ** 2)


def standardised(x: Any) -> Any:
    z = (x - np.mean(x, axis=0)) / np.std(x, axis=0)
    return np.sum(np.tanh(z))


def black_scholes(s: Any, k: Any, v: Any) -> Any:
    d = np.log(s / k) / v + 0.5 * v
    return np.sum(s * np.tanh(d) - k * np.tanh(d - v))


def chain(x: Any) -> Any:
    for _ in range(8):
        x = x * (0.9 - 0.1 * x)
    return np.sum(x)


def straight(x: Any, y: Any) -> Any:
    for k in range(40):
        x, y = np.sin(x) + y, x * y - float(k)
    return x + y


def mixed(x: Any, y: Any) -> Any:
    return np.sum(np.where(x > y, np.exp(x), y)) + np.prod(x[:3])


def blocks(x: Any, y: Any) -> Any:
    """A small Jacobian for each of many observations, and what it is the derivative of."""

    def fn(x: Any, y: Any) -> Any:
        return np.stack((x[0] * np.exp(y[0]), x[1] * np.sin(y[1] * x[0])))

    jacobian = tapec.jacobian(fn, argnums=(0, 1))
    return tapec.vmap(fn)(x, y), tapec.vmap(jacobian)(x, y)


#: name → function, arguments, which to differentiate
KERNELS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[int, ...]]] = {
    "stencil": (rosenbrock, (ones(1000),), (0,)),
    "map and sum": (lambda x: np.sum(np.sin(np.exp(x))), (ones(1000),), (0,)),
    "polynomial chain": (chain, (ones(1000),), (0,)),
    "several inputs": (black_scholes, (ones(1000), ones(1000), ones(1000)), (0, 1, 2)),
    "select": (mixed, (ones(1000), ones(1000)), (0, 1)),
    "broadcast": (
        lambda x, y: np.sum(x[:, None] * np.exp(y[None, :])),
        (ones(40), ones(30)),
        (0, 1),
    ),
    "row reduction": (softmax, (ones(100, 40),), (0,)),
    "column statistics": (standardised, (ones(100, 40),), (0,)),
    "transposed": (lambda x: np.sum(np.exp(x.T) * x.T), (ones(30, 20),), (0,)),
    "matrix times vector": (logistic, (ones(50), ones(1000, 50), ones(1000)), (0,)),
    "network": (network, (ones(60, 50), ones(50, 10), ones(64, 60)), (0, 1)),
    "blocks of rows": (network, (ones(8, 16), ones(16, 2), ones(20_000, 8)), (0, 1)),
    "small product": (lambda a, b: np.sum((a @ b) ** 2), (ones(3, 3), ones(3, 3)), (0, 1)),
    "many small matrices": (
        lambda a, b, c: np.sum(np.tanh(np.tanh(a @ b) @ c)),
        (ones(26, 4, 4), ones(4, 4), ones(4, 4)),
        (0,),
    ),
    "product of few terms": (
        lambda a, b, c: np.sum((c - a @ b) ** 2),
        (ones(200, 3), ones(3, 100), ones(200, 100)),
        (0, 1),
    ),
    "any spelling": (
        lambda x: np.sum(0.05 * x + (1.0 - x**2 * 0.1) * x),
        (ones(1000),),
        (0,),
    ),
    "hessian times vector": (
        lambda x, v: tapec.hvp(rosenbrock)(x, v),
        (ones(1000), ones(1000)),
        (),
    ),
    "gather": (lambda x: np.sum(x[INDEX] ** 2), (ones(1000),), (0,)),
    "stacked blocks": (blocks, (ones(1000, 2), ones(1000, 2)), ()),
    "running sum": (lambda x: np.sum(np.cumsum(x) ** 2), (ones(1000),), (0,)),
    "single precision": (
        lambda x: np.sum(np.exp(x)),
        (ones(1000).astype(np.float32),),
        (0,),
    ),
    "scalars": (straight, (0.3, 0.4), (0, 1)),
    "guarded": (lambda x: np.sum(x**2) if x[0] > 0 else np.sum(x), (ones(1000),), (0,)),
}


def program(name: str) -> Function:
    """The simplified value and gradient of a kernel (itself, if nothing is to be differentiated)."""
    fn, args, wrt = KERNELS[name]
    slow: Any = slow_of(tapec.value_and_grad(fn, argnums=wrt) if wrt else tapec.jit(fn))
    call = slow.dispatcher.flatten(slow.subject, args, {})
    return build(slow.dispatcher.trace(slow.subject, call.flat), slow.dispatcher.transform).fn


def counters(name: str) -> dict[str, float]:
    """The numbers that are pinned down."""
    fn = program(name)
    source = compile_kernel(fn)
    found = count_program(source.program)
    calls = loop_calls(engine.optimised_text(source.text))
    return {
        "nests": len(found.nests),
        "library calls": len(found.library),
        "passes": round(found.passes, 2),
        "reads of an argument": max(found.sweeps.values()),
        "calls in loops": sum(".far" not in c for c in calls),
        "workspace": source.workspace_bytes,
        "cost": found.cost,
    }


def golden() -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = json.loads(GOLDEN.read_text())
    return found


@pytest.mark.parametrize("name", KERNELS)
def test_no_counter_has_grown(name: str, request: pytest.FixtureRequest) -> None:
    found = counters(name)
    if request.config.getoption("--update-golden"):
        known = golden() if GOLDEN.exists() else {}
        known[name] = found
        ordered = {n: known[n] for n in KERNELS if n in known}
        GOLDEN.write_text(json.dumps(ordered, indent=1) + "\n")
    worse = {
        what: f"{limit} → {found[what]}"
        for what, limit in golden()[name].items()
        if found[what] > limit * 1.001
    }
    assert not worse, f"{name}: {worse}"


def test_the_golden_file_is_about_these_kernels() -> None:
    assert list(golden()) == list(KERNELS)


# -- the counting itself ----------------------------------------------------------------


def counted(text: str) -> Counters:
    return count(parse(text))


def test_a_map_and_a_sum_are_one_nest() -> None:
    found = counted(
        """func @f(%x: f64[100]) -> (f64[], f64[100]) {
          %e = exp %x : f64[100]
          %s = reduce_sum %e {axes=(0)} : f64[]
          return %s, %e
        }"""
    )
    (nest,) = found.nests
    assert (nest.space, nest.loads, nest.stores, nest.reductions) == ((100,), 1, 1, 1)
    assert (found.operations, found.cost) == (200, 1100)
    assert (found.bytes_read, found.bytes_written, found.bytes_needed) == (800, 800, 1608)
    assert found.sweeps == {"x": 1}


def test_what_does_not_depend_on_an_axis_counts_once_per_iteration_of_the_others() -> None:
    found = counted(
        """func @f(%x: f64[100], %y: f64[50,100]) -> (f64[50,100]) {
          %e = exp %x : f64[100]
          %b = broadcast %e {dims=(1), shape=(50,100)} : f64[50,100]
          %z = mul %b, %y : f64[50,100]
          return %z
        }"""
    )
    assert found.operations in (100 + 5000, 5000 + 5000)
    assert found.bytes_read <= 100 * 8 * 2 + 5000 * 8


def test_a_product_is_a_library_call() -> None:
    found = counted(
        """func @f(%x: f64[40,50], %y: f64[50,60]) -> (f64[40,60]) {
          %z = dot %x, %y {batch=((),()), contract=((1),(0))} : f64[40,60]
          return %z
        }"""
    )
    assert found.library == ["dot"]
    assert found.operations == 2 * 40 * 50 * 60


def test_scalars_are_outside_of_nests() -> None:
    found = counted(
        """func @f(%x: f64[]) -> (f64[]) {
          %y = sin %x : f64[]
          %z = mul %y, %x : f64[]
          return %z
        }"""
    )
    assert (found.nests, found.scalars, found.cost) == ([], 2, 13)


def test_calls_in_loops_are_found() -> None:
    text = """define void @f(ptr %p) {
entry:
  call void @before()
  br label %L1
L1:                 ; preds = %L1, %entry
  %x = tail call <8 x double> @inside(<8 x double> %y)
  %z = call double @llvm.floor.f64(double %w)
  br i1 %c, label %L1, label %L2
L2:
  call void @after()
  ret void
}
"""
    assert loop_calls(text) == ["inside"]
