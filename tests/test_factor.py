"""Derivatives with fewer multiplications, and primal values as they were written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapec
from tapec.ir import parse, vjp
from tapec.ir.core import Function
from tapec.ir.factor import factored
from tapec.ir.interp import interpret
from tapec.ir.passes import simplify


def count(fn: Function, name: str) -> int:
    return sum(op.name == name for op in fn.ops)


def primal_values(fn: Function) -> list[Any]:
    return [r for op in fn.ops for r in op.results]


def gradient(text: str) -> tuple[Function, Function]:
    """The simplified gradient of a function, before and after."""
    fn = simplify(parse(text))
    raw = simplify(vjp(fn, seeds=False))
    return raw, factored(raw, primal_values(fn))


CUBE = """func @f(%x: f64[], %c: f64[]) -> (f64[]) {
  %a = mul %c, %x : f64[]
  %s = mul %a, %x : f64[]
  %one = constant {value=1.0} : f64[]
  %p = sub %one, %s : f64[]
  %y = mul %x, %p : f64[]
  %e = exp %y : f64[]
  return %e
}"""


def test_products_that_are_there_and_common_factors() -> None:
    raw, new = gradient(CUBE)
    assert count(new, "mul") < count(raw, "mul")
    for x in (0.3, -1.7):
        for a, b in zip(interpret(raw, [x, 0.4]), interpret(new, [x, 0.4]), strict=True):
            assert np.isclose(a, b, rtol=1e-14)


def test_primal_values_are_not_touched() -> None:
    fn = parse(
        """func @f(%x: f64[], %y: f64[], %z: f64[]) -> (f64[]) {
          %a = mul %x, %y : f64[]
          %b = mul %x, %z : f64[]
          %s = add %a, %b : f64[]
          return %s
        }"""
    )
    assert factored(fn, primal_values(fn)) is fn
    new = factored(fn, [])
    assert (count(new, "mul"), count(new, "add")) == (1, 1)


@pytest.mark.parametrize(
    ("line", "products"),
    [
        ("%r = add %a, %b", 1),
        ("%r = sub %a, %b", 1),
        ("%r = sub %b, %a", 1),
        ("%t = add %a, %z; %r = sub %t, %b", 1),
        ("%t = add %a, %b; %r = sub %t, %a", 1),
        ("%t = add %a, %b; %r = div %t, %a", 2),  # a product with another use
        ("%t = sub %a, %a; %r = add %t, %z", 0),
    ],
)
def test_sums_of_products(line: str, products: int) -> None:
    body = "\n".join(f"  {x} : f64[]" for x in line.split("; "))
    fn = parse(
        f"""func @f(%x: f64[], %y: f64[], %z: f64[]) -> (f64[]) {{
          %a = mul %x, %y : f64[]
          %b = mul %x, %z : f64[]
        {body}
          return %r
        }}"""
    )
    new = factored(fn, [])
    assert count(new, "mul") == products
    args = [1.3, -0.7, 2.9]
    assert np.allclose(interpret(new, args), interpret(fn, args), rtol=1e-13)


def polynomial_chain(x: Any) -> Any:
    y = x
    for _ in range(6):
        y = y * (1.0 - 0.1 * y * y) + 0.05 * x
    return np.sum(y * y)


def powers(x: Any) -> Any:
    return np.sum(x * x * x * x - 3.0 * x * x * x + x * x)


def products(x: Any) -> Any:
    return np.prod(x[:5]) + np.sum(x[:-1] * x[1:] * x[:-1])


def divided(x: Any) -> Any:
    return np.sum((x * x - 1.0) / (x * x + 2.0) * x - np.sqrt(x * x + 1.0) * x)


def masked(x: Any) -> Any:
    return np.sum(np.where(x > 0, np.sqrt(np.abs(x)) * x * x, x * x * x))


@pytest.mark.parametrize("fn", [polynomial_chain, powers, products, divided, masked])
def test_gradients(fn: Callable[..., Any]) -> None:
    x = np.random.default_rng(0).uniform(-1.5, 1.5, 40)
    value, g = tapec.value_and_grad(fn)(x)
    assert np.isclose(value, fn(x), rtol=1e-13)
    along = tapec.jvp(fn, (x,), (np.cos(x),))[1]
    assert np.isclose(np.sum(g * np.cos(x)), along, rtol=1e-11)
    h = np.zeros(40)
    h[7] = 1e-6
    assert np.isclose(g[7], (fn(x + h) - fn(x - h)) / 2e-6, rtol=1e-6, atol=1e-8)


def test_a_step_of_a_chain_costs_few_multiplications() -> None:
    found = []
    for steps in (4, 5):

        def chain(x: Any, steps: int = steps) -> Any:
            y = x
            for _ in range(steps):
                y = y * (1.0 - 0.1 * y * y)
            return np.sum(y)

        found.append(tapec.value_and_grad(chain).dump("opt", np.ones(50)).count(" mul "))
    assert found[1] - found[0] <= 5


#: One step, y*(1 - y²/10) + x/20, in many spellings.
STEPS = (
    "y * (1.0 - 0.1 * y * y) + 0.05 * x",
    "0.05 * x + (1.0 - y**2 * 0.1) * y",
    "y * (1.0 - y * (y * 0.1)) + x * 0.05",
    "x * 0.05 - (y * y * 0.1 - 1.0) * y",
    "(1.0 - 0.1 * (y * y)) * y + 0.05 * x",
    "(1.0 + (-0.1) * y * y) * y + 0.05 * x",
    "y * (-(y * y) * 0.1 + 1.0) + 0.05 * x",
)


@pytest.mark.parametrize("step", STEPS)
def test_any_spelling_of_a_chain_costs_the_same(step: str) -> None:
    scope: dict[str, Any] = {"np": np}
    exec(f"def chain(x):\n y = x\n for _ in range(6): y = {step}\n return np.sum(y * y)", scope)
    x = np.random.default_rng(1).uniform(-1.5, 1.5, 40)
    call = tapec.value_and_grad(scope["chain"])
    texts = tapec.jit(scope["chain"]).dump("opt", x), call.dump("opt", x)
    value, both = (sum(t.count(f" {n} ") for n in ("mul", "add", "sub", "neg")) for t in texts)
    assert both - value <= 4 * 6 + 2  # of a step: 1 - 3*s, times d, 0.05 times the sum
    y, d = x, np.ones(40)
    for _ in range(6):
        d, y = d * (1 - 0.3 * y * y) + 0.05, y * (1 - 0.1 * y * y) + 0.05 * x
    value, g = call(x)
    assert np.isclose(value, np.sum(y * y), rtol=1e-13)
    assert np.allclose(g, 2 * y * d, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(
    ("line", "work"),
    [
        ("%r = sub %p, %s", 1),
        ("%t = sub %p, %s; %r = sub %t, %s", 2),  # 1 - 3*s
        ("%t = add %p, %s; %r = mul %t, %z", 2),  # s - s is left alone: s may be inf
        ("%t = mul %z, %x; %u = mul %t, %y; %r = add %u, %s", 3),  # a coefficient more
        ("%t = mul %z, %y; %u = mul %t, %c; %r = mul %u, %x", 1),  # z*s
        ("%t = mul %z, %y; %u = mul %t, %c3; %r = mul %u, %x", 2),  # (z*s)*-3
        ("%t = mul %z, %y; %u = neg %t; %v = mul %x, %u; %r = mul %c, %v", 2),  # -(z*s)
        ("%t = mul %z, %p; %u = mul %z, %s; %r = sub %t, %u", 3),  # z*(1 - 2*s)
        ("%t = mul %z, %p; %u = mul %z, %s; %v = add %u, %u; %r = sub %t, %v", 3),
    ],
)
def test_products_as_monomials(line: str, work: int) -> None:
    body = "\n".join(f"  {x} : f64[]" for x in line.split("; "))
    fn = parse(
        f"""func @f(%x: f64[], %y: f64[], %z: f64[]) -> (f64[], f64[]) {{
          %c = constant {{value=0.1}} : f64[]
          %c3 = constant {{value=-0.3}} : f64[]
          %one = constant {{value=1.0}} : f64[]
          %q = mul %y, %c : f64[]
          %s = mul %q, %x : f64[]
          %p = sub %one, %s : f64[]
        {body}
          return %p, %r
        }}"""
    )
    primal = [op.results[0] for op in fn.ops[:6]]
    new = factored(fn, primal)
    assert sum(op.name in ("mul", "add", "sub", "neg") for op in new.ops) - 3 == work
    args = [1.3, -0.7, 2.9]
    assert np.allclose(interpret(new, args), interpret(fn, args), rtol=1e-13)
