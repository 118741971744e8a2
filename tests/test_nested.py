"""Sums over chains of products, nested; what is no such chain stays as it is."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tapec
from tapec.ir import F64, Builder, Type, parse
from tapec.ir.core import Function, Value
from tapec.ir.interp import interpret
from tapec.ir.nested import nested
from tapec.ir.verify import verify


def chain(lines: str, results: str = "%z") -> Function:
    body = "\n".join(f"  {line.strip()} : f64[]" for line in lines.split(";"))
    kinds = ", ".join("f64[]" for _ in results.split(","))
    return parse(
        f"""func @f(%t: f64[], %p: f64[], %q: f64[], %r: f64[], %u: f64[]) -> ({kinds}) {{
          %k = constant {{value=0.05}} : f64[]
          %m = constant {{value=-3.0}} : f64[]
          %a = mul %t, %p : f64[]
          %b = mul %q, %a : f64[]
          %c = mul %b, %r : f64[]
        {body}
          return {results}
        }}"""
    )


def work(fn: Function) -> int:
    return sum(op.name in ("add", "sub", "mul", "neg") for op in fn.ops)


ARGUMENTS = [1.7, -0.4, 0.9, 2.3, -5.1]


@pytest.mark.parametrize(
    "lines",
    [
        "%x = add %t, %a; %y = add %x, %b; %z = add %y, %c",
        "%x = sub %t, %a; %y = sub %c, %b; %z = sub %x, %y",
        "%x = add %t, %a; %y = add %x, %b; %s = mul %y, %k; %z = add %s, %c",
        "%x = add %b, %a; %y = sub %t, %x; %s = mul %y, %m; %z = sub %c, %s",
        "%x = add %t, %a; %w = add %x, %u; %y = add %w, %b; %z = add %y, %c",
        "%x = add %c, %a; %v = sub %u, %b; %w = add %v, %t; %z = sub %w, %x",
    ],
)
def test_chains(lines: str) -> None:
    fn = chain(lines)
    new = nested(fn, set())
    assert new is not fn
    verify(new)
    assert np.allclose(interpret(new, ARGUMENTS), interpret(fn, ARGUMENTS), rtol=1e-14)
    assert sum(fn.params[0] in op.operands for op in new.ops) == 1


@pytest.mark.parametrize(
    ("lines", "results"),
    [
        ("%x = add %t, %a; %z = add %x, %b", "%z"),  # short
        ("%x = add %t, %a; %y = add %x, %b; %z = add %y, %c", "%z, %b"),  # used elsewhere
        ("%x = add %t, %a; %y = add %x, %b; %z = add %y, %c", "%z, %c"),
        ("%x = add %t, %a; %y = add %x, %u; %s = mul %y, %k; %w = add %s, %b; %z = add %w, %c",
         "%z"),  # a number times more than the chain
        ("%x = add %t, %a; %y = add %x, %b; %w = add %y, %c; %z = add %w, %c", "%z"),
        ("%x = max %t, %a; %y = add %x, %b; %z = add %y, %c", "%z"),
    ],
)  # fmt: skip
def test_what_is_left_alone(lines: str, results: str) -> None:
    fn = chain(lines, results)
    assert nested(fn, set()) is fn


def test_primal_values_stay() -> None:
    fn = chain("%x = add %t, %a; %y = add %x, %b; %z = add %y, %c")
    values = {op.results[0] for op in fn.ops}
    assert nested(fn, values) is fn
    for op in fn.ops[3:5]:
        assert nested(fn, {op.results[0]}) is fn


def random_sum(rng: random.Random) -> Function:
    b = Builder()
    t, u, *factors = [b.param(Type(F64, (3,))) for _ in range(9)]
    terms: list[Value] = [t]
    for q in factors[: rng.randint(1, 7)]:
        terms.append(b.mul(*rng.sample([terms[-1], q], 2)))
    extra = rng.choice([[], [u], [b.mul(u, t)], [rng.choice(terms)]])
    some = [v for v in terms if rng.random() < 0.9] + extra
    rng.shuffle(some)
    while len(some) > 1:
        x, y = some.pop(rng.randrange(len(some))), some.pop(rng.randrange(len(some)))
        z = b.emit(rng.choice(["add", "sub"]), (x, y))
        if rng.random() < 0.25:
            z = b.mul(z, b.like(rng.choice([0.05, -2.0, 3.0, -1.0, 1.0]), z))
        some.append(z)
    more = [v for v in terms if rng.random() < 0.03]
    return b.function("f", [some[0] if some else t, *more])


def test_random_sums() -> None:
    changed = 0
    values = np.random.default_rng(0)
    for seed in range(600):
        fn = random_sum(random.Random(seed))
        new = nested(fn, set())
        if new is fn:
            continue
        changed += 1
        verify(new)
        args = [values.uniform(-2, 2, 3) for _ in fn.params]
        for a, b in zip(interpret(fn, args), interpret(new, args), strict=True):
            assert np.allclose(a, b, rtol=1e-12, atol=1e-11), seed
    assert changed > 60


@pytest.mark.parametrize("steps", [2, 3, 9])
def test_gradients_of_recurrences(steps: int) -> None:
    """Against the derivative of the recurrence, computed forwards."""

    def fn(x: Any) -> Any:
        y = x
        for _ in range(steps):
            y = y * (1.0 - 0.1 * y * y) + 0.05 * x
        return np.sum(y * y)

    x = np.random.default_rng(1).uniform(-1.5, 1.5, 50)
    y, d = x, np.ones(50)
    for _ in range(steps):
        d, y = d * (1 - 0.3 * y * y) + 0.05, y * (1 - 0.1 * y * y) + 0.05 * x
    value, g = tapec.value_and_grad(fn)(x)
    assert np.isclose(value, np.sum(y * y), rtol=1e-13)
    assert np.allclose(g, 2 * y * d, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("steps", [4, 7])
def test_a_step_costs_one_multiplication_and_one_addition(steps: int) -> None:
    fn = Builder()
    t, x = fn.param(Type(F64, (5,))), fn.param(Type(F64, (5,)))
    total, v = t, t
    for k in range(steps):
        v = fn.mul(v, fn.add(x, fn.like(float(k), x)))
        total = fn.add(total, v)
    before = fn.function("f", [total])
    assert work(nested(before, set())) <= work(before) + 1
    products = [op for op in nested(before, set()).ops if op.name == "mul"]
    assert len(products) == steps
