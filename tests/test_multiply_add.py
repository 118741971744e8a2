"""Products joined to the additions that use them, in loop nests."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tapec
from tapec.codegen import compile_kernel
from tapec.codegen.target import host
from tapec.ir import parse

pytestmark = pytest.mark.skipif(not host().has_fma, reason="this CPU has no fused multiply-add")


def fused(body: str, results: str = "%r") -> int:
    """How many multiply-adds the vector body of a nest over 64 elements has."""
    fn = parse(
        "func @f(%x: f64[64], %y: f64[64], %z: f64[64]) -> (f64[64]) {\n"
        + "\n".join(f"  {line} : f64[64]" for line in body.split("; "))
        + f"\n  return {results}\n}}"
    )
    return len(re.findall(r"= call .*@llvm\.fma\.v8f64", compile_kernel(fn).text))


@pytest.mark.parametrize(
    "body",
    [
        "%p = mul %x, %y; %r = add %p, %z",
        "%p = mul %x, %y; %r = add %z, %p",
        "%p = mul %x, %y; %r = sub %p, %z",
        "%p = mul %x, %y; %r = sub %z, %p",
    ],
)
def test_a_product_with_one_use_is_fused(body: str) -> None:
    assert fused(body) == 1


@pytest.mark.parametrize(
    "body",
    [
        "%p = mul %x, %x; %q = mul %y, %y; %r = sub %p, %q",
        "%p = mul %x, %x; %q = mul %y, %y; %n = neg %q; %r = add %p, %n",
        "%p = mul %x, %y; %q = add %p, %z; %r = div %q, %p",
    ],
)
def test_two_products_and_a_product_used_twice_are_not(body: str) -> None:
    assert fused(body) == 0


def test_what_cancels_exactly_still_does() -> None:
    x = np.random.default_rng(0).uniform(size=100)
    f = tapec.jit(lambda x, y: np.sqrt(x * x - y * y))
    assert np.array_equal(f(x, x.copy()), np.zeros(100))


def test_values_in_loops_of_any_length() -> None:
    rng = np.random.default_rng(1)
    for n in (17, 64, 100, 1031):
        x, y, z = rng.normal(size=(3, n))
        f = tapec.jit(lambda x, y, z: (x * y + z, z - x * y, x * y - z, np.sum(x * y)))
        expected = x * y + z, z - x * y, x * y - z, np.sum(x * y)
        for found, want in zip(f(x, y, z), expected):
            assert np.allclose(found, want, rtol=1e-15, atol=1e-14)


def contracted(body: str) -> int:
    """How many operations of scalar code may become part of another one."""
    fn = parse(
        "func @f(%x: f64[], %y: f64[], %z: f64[]) -> (f64[]) {\n"
        + "\n".join(f"  {line} : f64[]" for line in body.split("; "))
        + "\n  return %r\n}"
    )
    return compile_kernel(fn).text.count("contract double")


@pytest.mark.parametrize(
    ("body", "n"),
    [
        ("%p = mul %x, %y; %r = add %p, %z", 2),
        ("%p = mul %x, %y; %r = sub %z, %p", 2),
        ("%p = mul %x, %x; %q = mul %y, %y; %r = sub %p, %q", 0),
        ("%p = mul %x, %y; %q = add %p, %z; %r = div %q, %p", 0),
        ("%p = mul %x, %y; %q = mul %z, %y; %s = add %p, %x; %r = add %q, %s", 4),
    ],
)
def test_scalar_code(body: str, n: int) -> None:
    assert contracted(body) == n
