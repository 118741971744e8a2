"""``linearize``, ``jacfwd``, ``jacrev`` and ``fuse``; ``jvp`` and ``vjp`` are in test_transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tapec
from tapec.ir import parse
from tapec.ir.interp import interpret
from tapec.ir.partial import split

X = np.array([0.3, -0.7, 1.1])


def curve(x: Any) -> Any:
    return np.stack([np.sum(np.sin(x)), np.prod(x)])


def energy(x: Any) -> Any:
    return np.sum(np.exp(x) * x)


def test_the_linear_map_is_that_of_jvp() -> None:
    value, linear = tapec.linearize(curve, X)
    np.testing.assert_array_equal(value, curve(X))
    for k in range(3):
        want = [np.cos(X[k]), np.prod(np.delete(X, k))]
        np.testing.assert_allclose(linear(np.eye(3)[k]), want, rtol=1e-15)


def test_containers_and_what_has_no_derivative() -> None:
    value, linear = tapec.linearize(
        lambda d, n: {"y": d["a"] * d["b"], "n": n > 0.0, "zero": np.zeros(2) * 1.0},
        {"a": 2.0, "b": X},
        1.5,
    )
    assert value["n"] is True
    out = linear({"a": 1.0, "b": np.ones(3)}, 0.0)
    np.testing.assert_allclose(out["y"], X + 2.0)
    assert out["n"] is None
    with pytest.raises(TypeError, match="tangents have the structure"):
        linear(1.0)


def test_the_primal_is_computed_once() -> None:
    calls = []

    def host(x: Any) -> Any:
        calls.append(1)
        return np.cosh(x)

    def fn(x: Any) -> Any:
        return x * tapec.host_call(host, np.zeros(3), x)  # not differentiated

    value, _ = tapec.linearize(lambda x: fn(tapec.stop_gradient(x)) * x, X)
    count = len(calls)
    np.testing.assert_allclose(value, X**2 * np.cosh(X))
    _, linear = tapec.linearize(lambda x: fn(tapec.stop_gradient(x)) * x, X)
    again = len(calls)
    for _ in range(3):
        np.testing.assert_allclose(linear(np.ones(3)), X * np.cosh(X), rtol=1e-14)
    assert count and len(calls) == again


def test_inside_other_transforms() -> None:
    def third(x: Any) -> Any:
        return tapec.linearize(lambda y: y**3, x)[1](1.0)

    assert tapec.grad(third)(2.0) == 12.0
    assert tapec.jit(third)(2.0) == 12.0
    np.testing.assert_allclose(
        tapec.grad(lambda t: np.sum(tapec.linearize(energy, X)[1](t * np.ones(3))))(1.0),
        np.sum(np.exp(X) * (1 + X)),
    )


def test_guards_hold_where_it_is_linearized() -> None:
    def fn(x: Any) -> Any:
        return x**2 if x > 0 else -x

    for x, want in ((2.0, 4.0), (-2.0, -1.0), (3.0, 6.0)):
        assert tapec.linearize(fn, x)[1](1.0) == want


def test_jacobians_in_either_mode() -> None:
    want = tapec.jacobian(curve)(X)
    np.testing.assert_allclose(tapec.jacfwd(curve)(X), want, rtol=1e-15)
    np.testing.assert_allclose(tapec.jacrev(curve)(X), want, rtol=1e-15)
    np.testing.assert_allclose(
        tapec.jacfwd(tapec.jacrev(energy))(X), tapec.hessian(energy)(X), rtol=1e-14
    )
    block = tapec.jacrev(lambda a, b: {"p": a * b}, argnums=(0, 1))(2.0, X)["p"]
    np.testing.assert_allclose(block[0], X)
    np.testing.assert_allclose(block[1], 2.0 * np.eye(3))
    with pytest.raises(TypeError, match="jacrev"):
        tapec.jacrev(np.argsort)(X)


def test_fused_functions_share_their_primal() -> None:
    fused = tapec.fuse(value=energy, grad=tapec.grad(energy), hess=tapec.hessian(energy))
    value, gradient, hessian = fused(X)
    np.testing.assert_allclose(value, energy(X))
    np.testing.assert_allclose(gradient, tapec.grad(energy)(X))
    np.testing.assert_allclose(hessian, tapec.hessian(energy)(X), rtol=1e-14)
    assert fused.dump("opt", X).count("= exp ") == 1
    pair = tapec.fuse(value=lambda x, v: energy(x), hvp=tapec.hvp(energy))(X, np.ones(3))
    np.testing.assert_allclose(pair[1], np.exp(X) * (2 + X))


def test_fuse_refuses_what_is_not_a_function() -> None:
    with pytest.raises(TypeError, match="grad is a float"):
        tapec.fuse(value=energy, grad=1.0)
    with pytest.raises(TypeError, match="expects functions"):
        tapec.fuse()


def test_split() -> None:
    fn = parse(
        """func @f(%x: f64[3], %t: f64[3], %y: f64[3]) -> (f64[3], f64[3], f64[3], f64[3]) {
          %c = constant {value=2.0} : f64[3]
          %a = mul %x, %c : f64[3]
          %b = exp %y : f64[3]
          %d = mul %a, %t : f64[3]
          %e = add %d, %c : f64[3]
          return %a, %e, %t, %b
        }"""
    )
    early, rest = split(fn, [1], 1)
    x, t, y = np.arange(3.0), np.ones(3), np.arange(3.0)
    first, *residuals = interpret(early, [x, y])
    assert [op.name for op in rest.ops] == ["constant", "mul", "add"]
    want = interpret(fn, [x, t, y])
    np.testing.assert_array_equal(first, want[0])
    for got, right in zip(interpret(rest, [*residuals, t]), want[1:]):
        np.testing.assert_array_equal(got, right)
    with pytest.raises(ValueError, match="depend on late"):
        split(fn, [1], 2)
