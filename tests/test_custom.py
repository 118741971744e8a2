"""Custom derivative rules: every transform, every order, and every mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapec
from tapec.ir import format_function, interpret, parse, verify
from tapec.ir.batch import batch
from tapec.ir.custom import expand


@tapec.custom_vjp
def rexp(x: Any) -> Any:
    return np.exp(x)


rexp.defvjp(lambda x: ((z := rexp(x)), z), lambda z, ct: (ct * z,))


@tapec.custom_jvp
def fexp(x: Any) -> Any:
    return np.exp(x)


@fexp.defjvp
def _fexp_jvp(primals: Any, tangents: Any) -> Any:
    z = fexp(*primals)
    return z, tangents[0] * z


pexp = tapec.primitive(lambda x: np.exp(x), partials=lambda z, x: (z,))
texp = tapec.primitive(lambda x: np.exp(x), partials=["exp(x)"])


def root(x: Any) -> Any:
    """A square root by iteration, whose own derivative would be that of the iteration."""
    y = tapec.stop_gradient(x)
    for _ in range(40):
        y = 0.5 * (y + tapec.stop_gradient(x) / y)
    return y


vroot = tapec.custom_vjp(root)
vroot.defvjp(lambda x: ((z := vroot(x)), z), lambda z, ct: (0.5 * ct / z,))


@pytest.mark.parametrize("f", [rexp, fexp, pexp, texp])
def test_every_transform(f: Callable[..., Any]) -> None:
    e = np.exp
    g = f
    for _ in range(4):
        g = tapec.grad(g)
        assert g(0.3) == pytest.approx(e(0.3), rel=1e-14)
    x = np.array([0.1, 0.2, -0.5])
    np.testing.assert_allclose(f(x), e(x))
    np.testing.assert_allclose(tapec.jit(f)(x), e(x))
    np.testing.assert_allclose(tapec.jacobian(f)(x), np.diag(e(x)))
    np.testing.assert_allclose(
        tapec.hessian(lambda x: np.sum(f(x) * x))(x), np.diag((2 + x) * e(x))
    )
    _, dot = tapec.jvp(f, (x,), (np.array([1.0, 2.0, 3.0]),))
    np.testing.assert_allclose(dot, e(x) * [1, 2, 3])
    _, pull = tapec.vjp(f, x)
    np.testing.assert_allclose(pull(np.array([1.0, 2.0, 3.0]))[0], e(x) * [1, 2, 3])
    rows = np.stack([x, 2 * x])
    np.testing.assert_allclose(tapec.vmap(f)(rows), e(rows))
    total = tapec.grad(lambda x: np.sum(f(x) ** 2))
    np.testing.assert_allclose(tapec.vmap(total)(rows), 2 * e(rows) ** 2)
    np.testing.assert_allclose(tapec.grad(lambda r: np.sum(tapec.vmap(f)(r)))(rows), e(rows))
    third = tapec.jacobian(tapec.hessian(lambda x: np.sum(f(x))))(x)
    assert third[1, 1, 1] == pytest.approx(e(0.2))
    forward = tapec.grad(lambda x: tapec.jvp(f, (x,), (1.0,))[1])
    assert forward(0.3) == pytest.approx(e(0.3))


def test_the_rule_is_used_at_every_order() -> None:
    for order, want in enumerate([2.0, 0.25, -1 / 32, 3 / 256]):
        g: Any = vroot
        for _ in range(order):
            g = tapec.grad(g)
        assert g(4.0) == pytest.approx(want, rel=1e-14)


def test_a_wrong_rule_is_believed() -> None:
    """The rule is what counts, in both modes."""
    f = tapec.custom_vjp(lambda x: np.sin(x))
    f.defvjp(lambda x: (np.sin(x), x), lambda x, ct: (7 * x * ct,))
    assert tapec.grad(f)(2.0) == 14.0
    assert tapec.grad(tapec.grad(f))(2.0) == 7.0
    assert tapec.jvp(f, (2.0,), (1.0,))[1] == 14.0


def test_several_arguments_and_containers() -> None:
    @tapec.custom_vjp
    def f(p: Any, b: Any, power: int = 2) -> Any:
        return {"y": p["w"] * b**power, "k": p["w"].sum()}

    f.defvjp(
        lambda p, b, power=2: (f(p, b, power=power), (p, b, power)),
        lambda r, ct: (
            {"w": ct["y"] * r[1] ** r[2] + ct["k"]},
            np.sum(ct["y"] * r[0]["w"] * r[2] * r[1] ** (r[2] - 1)),
        ),
    )
    p = {"w": np.array([1.0, 2.0])}

    def total(p: Any, b: Any) -> Any:
        out = f(p, b, power=3)
        return np.sum(out["y"]) + 10 * out["k"]

    gp, gb = tapec.grad(total, argnums=(0, 1))(p, 2.0)
    np.testing.assert_allclose(gp["w"], [18.0, 18.0])
    assert gb == pytest.approx(36.0)
    assert tapec.grad(total, argnums=1)(p, 2.0) == pytest.approx(36.0)


def test_integer_argument_and_control_flow_in_a_rule() -> None:
    @tapec.custom_vjp
    def f(x: Any, n: Any) -> Any:
        return x ** n.astype(float)

    def bwd(r: Any, ct: Any) -> Any:
        x, n = r
        if x > 0:
            return ct * n * x ** (n - 1.0), None
        return ct * 0.0, None

    f.defvjp(lambda x, n: (f(x, n), (x, n)), bwd)
    g = tapec.grad(lambda x: f(x, np.array([1, 3])[1:].sum() * np.ones((), int)))
    assert tapec.jit(lambda x, n: f(x, n))(2.0, np.int64(3)) == 8.0
    d = tapec.grad(f)
    assert d(2.0, np.int64(3)) == pytest.approx(12.0)
    assert d(-2.0, np.int64(3)) == 0.0
    assert g is not None


# -- seeds ---------------------------------------------------------------------------------


def test_custom_rule_mapped() -> None:
    @tapec.custom_vjp
    def f(k: Any, x: Any) -> Any:
        return k * x**2

    f.defvjp(lambda k, x: (f(k, x), (k, x)), lambda r, ct: (ct * r[1] ** 2, ct * 2 * r[0] * r[1]))
    k, x = np.array([1.0, 2.0]), np.array([1.0, 2.0])
    np.testing.assert_allclose(tapec.vmap(tapec.grad(f, argnums=1))(k, x), [2, 8])
    np.testing.assert_allclose(tapec.vmap(f)(k, x), [1, 8])
    np.testing.assert_allclose(tapec.vmap(tapec.grad(f), in_axes=(None, 0))(3.0, x), [1, 4])
    shared = tapec.grad(lambda k: np.sum(tapec.vmap(f, in_axes=(None, 0))(k, x)))
    assert shared(3.0) == pytest.approx(5.0)


def test_custom_rule_reads_current_value() -> None:
    f = tapec.custom_vjp(lambda x: np.sin(x) + np.cos(x))
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * (np.cos(x) - np.sin(x)),))
    g = tapec.grad(f)
    for x in (np.pi / 6, np.pi / 6 + 0.1):
        assert g(x) == pytest.approx(np.cos(x) - np.sin(x))


SCALE = 2.0


def test_globals_of_a_rule_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    f = tapec.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, None), lambda r, ct: (ct * SCALE,))
    g = tapec.grad(f)
    assert g(1.0) == 2.0
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    assert g(1.0) == 5.0


def test_custom_rule_partial_use() -> None:
    f = tapec.custom_vjp(lambda a, b: a * b + b)
    f.defvjp(lambda a, b: (f(a, b), (a, b)), lambda r, ct: (ct * r[1], ct * (r[0] + 1)))
    assert tapec.grad(f)(2.0, 5.0) == 5.0
    assert tapec.grad(f, argnums=1)(2.0, 5.0) == 3.0
    assert tapec.grad(f, argnums=(0, 1))(2.0, 5.0) == (5.0, 3.0)


def test_zero_wins_below_a_mask() -> None:
    f = tapec.primitive(lambda x: np.sqrt(np.abs(x)), partials=lambda z, x: (0.5 / z,))
    g = tapec.grad(lambda x: np.where(x > 0, f(x), 0.0))
    assert g(0.0) == 0.0
    assert g(4.0) == 0.25


# -- stop_gradient ---------------------------------------------------------------------------


def test_stop_gradient() -> None:
    stop = tapec.stop_gradient
    assert stop(3.0) == 3.0
    assert tapec.grad(lambda x: x * stop(x))(3.0) == 3.0
    assert tapec.grad(lambda x: stop(x) * 1.0)(3.0) == 0.0
    assert tapec.hessian(lambda x: x * x * stop(x))(3.0) == 6.0
    assert tapec.jvp(lambda x: x + stop(x * x), (3.0,), (1.0,))[1] == 1.0
    x = np.array([1.0, 2.0])
    np.testing.assert_allclose(tapec.vmap(tapec.grad(lambda x: x * stop(x)))(x), x)
    got = tapec.grad(lambda p: np.sum(stop({"a": p["a"]})["a"] * p["b"]))({"a": x, "b": x})
    np.testing.assert_array_equal(got["a"], [0, 0])
    np.testing.assert_array_equal(got["b"], x)


def test_stop_gradient_but_last() -> None:
    def f(p: Any) -> Any:
        x = 1.0
        for _ in range(4):
            x = x * p
        return tapec.stop_gradient(x) * p

    assert tapec.grad(f)(3.0) == 81.0


# -- primitive -------------------------------------------------------------------------------


def test_primitive_from_an_expression() -> None:
    sp = pytest.importorskip("sympy")
    x, y = sp.symbols("x y")
    f = tapec.primitive(sp.sin(x) ** 2 * y + sp.exp(x * y), [x, y])
    h = tapec.hessian(f, argnums=(0, 1))(0.4, 0.7)
    want = sp.hessian(sp.sin(x) ** 2 * y + sp.exp(x * y), (x, y)).subs({x: 0.4, y: 0.7})
    np.testing.assert_allclose(np.array(h, float), np.array(want, float), rtol=1e-13)
    a = np.array([0.1, 0.4])
    np.testing.assert_allclose(tapec.vmap(f, in_axes=(0, None))(a, 0.7)[1], f(0.4, 0.7))


# -- mistakes ------------------------------------------------------------------------------


def test_a_value_from_around_the_function() -> None:
    def outer(w: Any, x: Any) -> Any:
        f = tapec.custom_vjp(lambda x: w * x)
        f.defvjp(lambda x: (f(x), None), lambda r, ct: (ct * w,))
        return f(x)

    assert tapec.grad(outer, argnums=1)(3.0, 2.0) == 3.0
    with pytest.raises(
        TypeError, match=r"takes from around it.*'w'.*pass the value as an argument"
    ):
        tapec.grad(outer)(3.0, 2.0)
    with pytest.raises(TypeError, match="takes from around it"):
        tapec.jvp(outer, (3.0, 2.0), (1.0, 0.0))


def test_not_linear() -> None:
    f = tapec.custom_jvp(lambda x: x)
    f.defjvp(lambda p, t: (p[0], t[0] ** 2))
    with pytest.raises(TypeError, match="not linear in its tangents"):
        tapec.grad(f)(1.0)
    g = tapec.custom_vjp(lambda x: x)
    g.defvjp(lambda x: (x, None), lambda r, ct: (np.sin(ct),))
    with pytest.raises(TypeError, match="not linear in its cotangents"):
        tapec.jvp(g, (1.0,), (1.0,))


def test_depth() -> None:
    """J0' = -J1, J1' = J0 - J1/x: rules that need each other, to a limited order."""
    special = pytest.importorskip("scipy.special")

    def series(n: int) -> Callable[[Any], Any]:
        coefficients = [
            (-1) ** k / (special.factorial(k) * special.factorial(k + n)) for k in range(20)
        ]
        return lambda x: sum(c * (x / 2) ** (2 * k + n) for k, c in enumerate(coefficients))

    j0: Any = tapec.primitive(series(0), partials=lambda z, x: (-j1(x),))
    j1: Any = tapec.primitive(series(1), partials=lambda z, x: (j0(x) - z / x,))
    g: Any = j0
    for order in range(1, 5):
        g = tapec.grad(g)
        assert g(1.5) == pytest.approx(special.jvp(0, 1.5, order), rel=1e-11)
    with pytest.raises(TypeError, match=r"derivative of .* of this order is not available"):
        tapec.grad(g)(1.5)


@pytest.mark.parametrize(
    ("fwd", "bwd", "message"),
    [
        (lambda x: x, lambda r, ct: (ct,), "a tuple of two"),
        (lambda x: (x, x), lambda r, ct: ct, "a tuple of 1; it returned"),
        (lambda x: (x, x), lambda r, ct: (ct, ct), "a tuple of 1; it returned 2"),
        (lambda x: (x, x), lambda r, ct: (np.sum(ct),), r"of shape \(\), expected \(2,\)"),
        (lambda x: ((x, x), x), lambda r, ct: (ct,), "returned a result of structure"),
        (lambda x: (x, x), lambda r, ct: ([ct, ct],), "has the structure"),
    ],
)
def test_wrong_vjp_rules(fwd: Any, bwd: Any, message: str) -> None:
    f = tapec.custom_vjp(lambda x: x * 2)
    f.defvjp(fwd, bwd)
    with pytest.raises(tapec.TapecError, match=message):
        tapec.grad(lambda x: np.sum(f(x)))(np.ones(2))


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda p, t: p[0], "a tuple of two"),
        (lambda p, t: (p[0], (t[0], t[0])), "gives a tangent of structure"),
        (lambda p, t: (p[0], np.sum(t[0])), r"of shape \(\), expected \(2,\)"),
        (lambda p, t: (p[0], "no"), "expected"),
    ],
)
def test_wrong_jvp_rules(rule: Any, message: str) -> None:
    f = tapec.custom_jvp(lambda x: x * 2)
    f.defjvp(rule)
    with pytest.raises(tapec.TapecError, match=message):
        tapec.grad(lambda x: np.sum(f(x)))(np.ones(2))


def test_missing_or_silly() -> None:
    f = tapec.custom_vjp(lambda x: x * 2)
    assert f(2.0) == 4.0
    with pytest.raises(TypeError, match=r"has no rule yet.*defvjp"):
        tapec.grad(f)(2.0)
    with pytest.raises(TypeError, match="expects a function"):
        tapec.custom_vjp(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="two functions"):
        f.defvjp(lambda x: x, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="partial derivatives"):
        tapec.primitive(lambda x: x)
    with pytest.raises(TypeError, match="2 partials for the arguments x"):
        tapec.primitive(lambda x: x, partials=["x", "x"])
    with pytest.raises(ValueError, match="use q, not among the arguments x"):
        tapec.primitive(lambda x: x, partials=["q"])


# -- the operation ---------------------------------------------------------------------------

TEXT = """func @f(%x: f64[2]) -> (f64[2]) {
  %y = custom %x {mode="jvp", n_args=1, name="f"} (%x: f64[2]) {
    %0 = exp %x : f64[2]
    return %0
  } (%x: f64[2], %y: f64[2], %t: f64[2]) {
    %0 = mul %t, %y : f64[2]
    return %0
  } : f64[2]
  return %y
}"""


def test_text_and_batching() -> None:
    fn = verify(parse(TEXT))
    assert verify(parse(format_function(fn)))
    x = np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])
    fb = verify(batch(fn, [0], 3))
    np.testing.assert_allclose(interpret(fb, [x])[0], np.exp(x))
    assert [op.name for op in verify(expand(fb)).ops] == ["exp"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('mode="jvp"', 'mode="none"'),
        ('mode="jvp"', 'mode="odd"'),
        ("n_args=1", "n_args=0"),
        ("n_args=1", "n_args=2"),
        ("mul %t, %y : f64[2]", "reduce_sum %t {axes=(0)} : f64[]"),
    ],
)
def test_malformed(old: str, new: str) -> None:
    with pytest.raises(ValueError, match="custom"):
        parse(TEXT.replace(old, new))
