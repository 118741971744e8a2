"""``vmap`` and ``vectorize``: equal to the loop over points, in any composition."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapec

RNG = np.random.default_rng(11)
X = RNG.uniform(0.2, 0.9, (4, 3))


def loop(fn: Callable[..., Any], *columns: Any) -> Any:
    return np.stack([np.asarray(fn(*point)) for point in zip(*columns)])


def words(text: str) -> list[str]:
    return text.split()


# -- every function ------------------------------------------------------------------------

UNARY = words("""
exp expm1 exp2 log log1p log2 log10 sin cos tan arcsin arccos arctan sinh cosh tanh
arcsinh arctanh sqrt cbrt square reciprocal abs floor ceil rint sign negative sinc
""")
REDUCE = words("""
sum prod max min mean var std median cumsum cumprod sort argmax ptp diff linalg.norm flip
roll
""")
BINARY = words("""
add subtract multiply divide power maximum minimum arctan2 hypot fmod remainder logaddexp
copysign dot outer
""")
MATRIX = words("""
trace diagonal transpose ravel tril triu
""")


def _call(name: str) -> Callable[..., Any]:
    fn: Any = np
    for part in name.split("."):
        fn = getattr(fn, part)
    return lambda *a: fn(*a, 1) if name == "roll" else fn(*a)


def _supported(fn: Callable[..., Any], *args: Any) -> bool:
    try:
        tapec.jit(fn)(*args)
    except NotImplementedError:
        return False
    return True


@pytest.mark.parametrize("name", UNARY + REDUCE + BINARY + MATRIX)
def test_function_and_gradient(name: str) -> None:
    fn = _call(name)
    if name in BINARY:
        columns = [X, X[::-1] + 0.3]
    elif name in MATRIX:
        columns = [RNG.normal(size=(4, 3, 3))]
    else:
        columns = [X]
    if not _supported(fn, *[c[0] for c in columns]):
        pytest.skip("not supported by the front end")
    mapped = tapec.vmap(fn)(*columns)
    np.testing.assert_allclose(mapped, loop(fn, *columns), rtol=1e-13, atol=1e-15)
    if np.asarray(fn(*[c[0] for c in columns])).dtype.kind != "f":
        return

    def total(*a: Any) -> Any:
        return np.sum(np.cos(fn(*a)))

    gradient = tapec.grad(total)
    got = tapec.vmap(gradient)(*columns)
    np.testing.assert_allclose(got, loop(gradient, *columns), rtol=1e-12, atol=1e-13)


# -- axes and structures ---------------------------------------------------------------------


def test_axes() -> None:
    a, b = RNG.normal(size=(2, 4, 3)), RNG.normal(size=(3, 4))

    def fn(a: Any, b: Any) -> Any:
        return np.outer(a, b)[0], a.sum()

    first, second = tapec.vmap(fn, in_axes=(0, None), out_axes=(-1, 0))(a[0], b[:, 0])
    assert first.shape == (3, 4)
    np.testing.assert_allclose(first, np.stack([np.outer(r, b[:, 0])[0] for r in a[0]], -1))
    np.testing.assert_allclose(second, a[0].sum(1))
    got = tapec.vmap(lambda a, b: a @ b, in_axes=(1, -1), out_axes=0)(a[0].T, b)
    np.testing.assert_allclose(got, np.einsum("ni,in->n", a[0], b))


def test_containers() -> None:
    def fn(p: Any, q: Any, flag: str = "") -> Any:
        return {"sum": p["w"] + p["b"] * q, "flag": flag, "three": 3, "list": [q, 2.5]}

    p = {"w": np.arange(6.0).reshape(2, 3), "b": 2.0}
    out = tapec.vmap(fn, in_axes=({"w": 0, "b": None}, None))(p, np.ones(3), flag="on")
    np.testing.assert_array_equal(out["sum"], p["w"] + 2)
    assert out["flag"] == "on"
    np.testing.assert_array_equal(out["three"], [3, 3])
    np.testing.assert_array_equal(out["list"][0], np.ones((2, 3)))
    np.testing.assert_array_equal(out["list"][1], [2.5, 2.5])
    same = tapec.vmap(lambda x, y: (x, y), (0, None), (0, None))(np.arange(3.0), np.ones(2))
    np.testing.assert_array_equal(same[1], np.ones(2))


def test_static_and_captured() -> None:
    w = np.array([1.0, 2.0, 3.0])
    fn = tapec.vmap(lambda x, n: np.sum(w * x**n), in_axes=(0, None))
    np.testing.assert_allclose(fn(X, 2), (X**2) @ w)
    w[0] = 5.0
    np.testing.assert_allclose(fn(X, 2), (X**2) @ w)
    np.testing.assert_allclose(fn(X, 3), (X**3) @ w)


def test_in_place_code() -> None:
    import tapec.numpy as tnp

    def fn(x: Any) -> Any:
        y = tnp.zeros(3)
        for k in range(3):
            y[k] = x[k] * k
        y[1:] += x[:2]
        return y

    np.testing.assert_allclose(tapec.vmap(fn)(X), X * np.arange(3) + np.c_[X[:, 0] * 0, X[:, :2]])


# -- compositions --------------------------------------------------------------------------


def f(x: Any) -> Any:
    return np.sum(np.sin(x) * x[::-1]) * x[0]


def test_compositions() -> None:
    grad, hessian = tapec.grad(f), tapec.hessian(f)
    np.testing.assert_allclose(tapec.vmap(hessian)(X), loop(hessian, X), rtol=1e-12)
    np.testing.assert_allclose(tapec.jit(tapec.vmap(grad))(X), loop(grad, X), rtol=1e-12)
    np.testing.assert_allclose(tapec.vmap(tapec.jit(f))(X), loop(f, X), rtol=1e-12)
    third = tapec.jacobian(hessian)
    np.testing.assert_allclose(tapec.vmap(third)(X), loop(third, X), rtol=1e-11, atol=1e-13)
    value, g = tapec.vmap(tapec.value_and_grad(f))(X)
    np.testing.assert_allclose(value, loop(f, X), rtol=1e-12)
    np.testing.assert_allclose(g, loop(grad, X), rtol=1e-12)
    total = tapec.grad(lambda x: np.sum(tapec.vmap(f)(x) ** 2))(X)
    np.testing.assert_allclose(total, 2 * loop(f, X)[:, None] * loop(grad, X), rtol=1e-12)
    jac = tapec.jacobian(tapec.vmap(f))(X)
    np.testing.assert_allclose(np.einsum("nnk->nk", jac), loop(grad, X), rtol=1e-12)
    assert np.count_nonzero(jac) == X.size
    v = RNG.normal(size=X.shape)
    hv = tapec.vmap(tapec.hvp(f))(X, v)
    np.testing.assert_allclose(hv, np.einsum("nij,nj->ni", loop(hessian, X), v), rtol=1e-11)
    _, dot = tapec.jvp(tapec.vmap(f), (X,), (v,))
    np.testing.assert_allclose(dot, np.sum(loop(grad, X) * v, 1), rtol=1e-11)
    out = tapec.vmap(lambda x, v: tapec.jvp(f, (x,), (v,))[1])(X, v)
    np.testing.assert_allclose(out, dot, rtol=1e-11)
    out = tapec.vmap(lambda x: tapec.vjp(f, x)[1](1.0)[0])(X)
    np.testing.assert_allclose(out, loop(grad, X), rtol=1e-12)


def test_nested() -> None:
    a, b = RNG.normal(size=4), RNG.normal(size=3)

    def fn(x: Any, y: Any) -> Any:
        return np.sin(x) * y + x

    table = tapec.vmap(tapec.vmap(fn, (None, 0)), (0, None))(a, b)
    np.testing.assert_allclose(table, np.sin(a)[:, None] * b + a[:, None], rtol=1e-13)
    inner = tapec.vmap(lambda x: np.sum(tapec.vmap(lambda y: fn(x, y))(b)))(a)
    np.testing.assert_allclose(inner, table.sum(1), rtol=1e-13)
    gradient = tapec.vmap(tapec.grad(lambda x: np.sum(tapec.vmap(lambda y: fn(x, y))(b))))(a)
    np.testing.assert_allclose(gradient, np.cos(a) * b.sum() + 3, rtol=1e-13)


def test_gather_per_lane() -> None:
    import tapec.numpy as tnp

    table = np.arange(12.0).reshape(3, 4)
    i = np.array([2, 0, 1, 3])
    got = tapec.vmap(lambda i, x: tnp.array(table)[:, i] * x, in_axes=(0, 0))(i, np.ones(4))
    np.testing.assert_array_equal(got, table[:, i].T)
    got = tapec.vmap(lambda x, i: x[i])(table.T.copy(), np.array([2, 0, 1, 1]))
    np.testing.assert_array_equal(got, [8.0, 1.0, 6.0, 7.0])
    with pytest.raises(ValueError, match="index in range for axis 0 with size 3"):
        tapec.vmap(lambda x, i: x[i])(table.T.copy(), np.array([2, 0, 1, 7]))
    with pytest.raises(ValueError, match=r"decides by .*array"):
        tapec.vmap(lambda i: table[:, i])(i)


# -- seeds ---------------------------------------------------------------------------------


def test_mask_mapped_no_nan() -> None:
    second = tapec.grad(tapec.grad(lambda x: np.where(x > 0, np.sqrt(x), 0.0)))
    np.testing.assert_allclose(tapec.vmap(second)(np.array([-1.0, 0.0, 4.0])), [0, 0, -1 / 32])


def test_lanes_are_independent() -> None:
    def fn(x: Any) -> Any:
        return np.sum(np.where(x > 0, np.log(x), x))

    x = np.array([[1.0, 2.0], [np.nan, -np.inf], [3.0, -1.0]])
    both = tapec.vmap(tapec.grad(fn))(x)
    np.testing.assert_array_equal(both[[0, 2]], tapec.vmap(tapec.grad(fn))(x[[0, 2]]))


# -- decisions and mistakes ------------------------------------------------------------------


def branch(x: Any) -> Any:
    if x > 0:
        return x * 2
    return -x


def test_python_branches() -> None:
    fn = tapec.vmap(branch)
    np.testing.assert_array_equal(fn(np.array([1.0, 2.0])), [2.0, 4.0])
    np.testing.assert_array_equal(fn(np.array([-1.0, -2.0])), [1.0, 2.0])
    for _ in range(2):
        with pytest.raises(ValueError, match=r"test_vmap\.py:\d+.*differ in a value.*np\.where"):
            fn(np.array([1.0, -2.0]))
    np.testing.assert_array_equal(fn(np.array([3.0, 4.0])), [6.0, 8.0])


@pytest.mark.parametrize(
    ("axes", "args", "message"),
    [
        (0, (np.ones(3), np.ones(4)), r"inconsistent.*argument 0 \('a'\) has 3.*\('b'\) has 4"),
        ((1, 0), (np.ones(3), np.ones(3)), r"argument 0 \('a'\) of shape \(3,\) has no axis 1"),
        (0, (np.ones(3), 2.0), r"argument 1 \('b'\) of shape \(\) has no axis 0.*in_axes=None"),
        (0, (np.ones(3), 2), r"argument 1 \('b'\) is 2, which has no axis"),
        (None, (np.ones(3), np.ones(3)), "no argument is mapped"),
        ((0,), (np.ones(3), np.ones(3)), "in_axes has 1 entries.*2 positional"),
        ((0, (0, 1)), (np.ones(3), np.ones(3)), "does not fit the structure"),
        ((0, "x"), (np.ones(3), np.ones(3)), "axes are ints or None"),
    ],
)
def test_bad_axes(axes: Any, args: Any, message: str) -> None:
    with pytest.raises(tapec.TapecError, match=message):
        tapec.vmap(lambda a, b: a * b, in_axes=axes)(*args)


def test_bad_out_axes() -> None:
    with pytest.raises(ValueError, match="out_axes=2 for a result of 1 axes"):
        tapec.vmap(np.sin, out_axes=2)(np.ones(3))
    with pytest.raises(ValueError, match="differs between points"):
        tapec.vmap(lambda x: x * 2, out_axes=None)(np.ones(3))
    with pytest.raises(TypeError, match="expects a function"):
        tapec.vmap(3)  # type: ignore[type-var]


def test_exceptions_of_the_function_come_through() -> None:
    def fn(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        tapec.vmap(fn)(np.ones(3))


def test_pickle_and_name() -> None:
    fn = tapec.vmap(f)
    assert fn.__name__ == "f"
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fn))(X), fn(X))


def test_made_anew_in_a_loop() -> None:
    traces = []

    def counted(x: Any) -> Any:
        traces.append(1)
        return x * 2

    for _ in range(5):
        tapec.vmap(counted)(np.ones(3))
    assert len(traces) == 1


# -- vectorize -----------------------------------------------------------------------------


def test_vectorize() -> None:
    matvec = tapec.vectorize(lambda m, v: m @ v, signature="(m,n),(n)->(m)")
    m, v = RNG.normal(size=(5, 1, 2, 3)), RNG.normal(size=(4, 3))
    np.testing.assert_allclose(matvec(m, v), np.einsum("aimn,in->aim", np.repeat(m, 4, 1), v))
    np.testing.assert_allclose(matvec(m[0, 0], v[0]), m[0, 0] @ v[0])
    np.testing.assert_allclose(matvec(m[0, 0], v), v @ m[0, 0].T)
    clamp = tapec.vectorize(lambda x, y: np.minimum(x, y))
    np.testing.assert_array_equal(clamp(np.arange(4.0), 2.0), [0, 1, 2, 2])
    gradient = tapec.vectorize(tapec.grad(lambda v: v @ v), signature="(n)->(n)")
    np.testing.assert_allclose(gradient(m), 2 * m)


@pytest.mark.parametrize(
    ("signature", "args", "message"),
    [
        ("(n),(n)->()", (np.ones(3), np.ones(4)), "core dimension n of argument 1 is 4.* 3"),
        ("(n)->()", (np.ones(3), np.ones(3)), "has 1 arguments"),
        ("(n,m)->()", (np.ones(3),), "fewer axes than its core"),
        ("(n)->(n)", (np.ones((2, 3)),), r"has shape \(\) for its core \(n\)"),
        ("(n)", (np.ones(3),), "not a signature"),
        ("(n->()", (np.ones(3),), "not a signature"),
    ],
)
def test_bad_signature(signature: str, args: Any, message: str) -> None:
    with pytest.raises(tapec.TapecError, match=message):
        tapec.vectorize(lambda *a: np.sum(a[0]), signature=signature)(*args)


# -- branches and loops ----------------------------------------------------------------------


def repeat(step: Any, n: Any) -> Any:
    return tapec.while_loop(lambda c: c[1] < n, lambda c: (c[0] + step, c[1] + 1.0), (0.0, 0.0))[0]


def test_both_orders_over_while() -> None:
    steps, counts = np.array([0.1, 0.5]), np.array([0.0, 1.0, 3.0])
    table = tapec.vmap(tapec.vmap(repeat, (None, 0)), (0, None))(steps, counts)
    np.testing.assert_allclose(table, np.outer(steps, counts))
    other = tapec.vmap(tapec.vmap(repeat, (0, None)), (None, 0))(steps, counts)
    np.testing.assert_allclose(other, table.T)
    slope = tapec.vmap(tapec.vmap(tapec.grad(repeat), (None, 0)), (0, None))(steps, counts)
    np.testing.assert_allclose(slope, [counts, counts])
    total = tapec.grad(lambda s: np.sum(tapec.vmap(repeat, (None, 0))(s, counts)))(0.3)
    assert total == pytest.approx(4.0)


def test_guarded_normalisation_mapped() -> None:
    def norm(x: Any) -> Any:
        unit = tapec.cond(
            np.any(x != 0), lambda x: x / np.sqrt(np.sum(x * x)), lambda x: x * 0.0, x
        )
        return np.sum(unit)

    got = tapec.vmap(tapec.grad(norm))(np.array([[0.0, 0.0], [3.0, 4.0]]))
    np.testing.assert_allclose(got, [[0, 0], [0.032, -0.024]], atol=1e-15)


def test_newton_per_lane() -> None:
    """Each lane stops by its own test: results do not depend on the neighbours."""

    def cube_root(a: Any) -> Any:
        def step(c: Any) -> Any:
            x, _ = c
            new = x - (x**3 - a) / (3 * x * x)
            return new, np.abs(new - x)

        return tapec.while_loop(lambda c: c[1] > 1e-13 * c[0], step, (a, a))[0]

    a = np.array([1.0, 8.0, 1e6, 1e-3])
    roots = tapec.vmap(cube_root)(a)
    np.testing.assert_allclose(roots, np.cbrt(a), rtol=1e-12)
    alone = [tapec.jit(cube_root)(v) for v in a]
    np.testing.assert_array_equal(roots, alone)
    np.testing.assert_allclose(
        tapec.vmap(tapec.grad(cube_root))(a), np.cbrt(a) / (3 * a), rtol=1e-9
    )


def test_scan_mapped() -> None:
    def last(x0: Any, rates: Any) -> Any:
        end, path = tapec.scan(lambda x, r: (x * r, x + r), x0, rates)
        return end + np.sum(path)

    rng = np.random.default_rng(2)
    x0, rates = rng.normal(size=3), rng.normal(size=(3, 5))
    for fn in (last, tapec.grad(last), tapec.grad(last, argnums=1)):
        np.testing.assert_allclose(tapec.vmap(fn)(x0, rates), loop(fn, x0, rates), rtol=1e-12)
        shared = tapec.vmap(fn, (0, None))(x0, rates[0])
        np.testing.assert_allclose(shared, loop(fn, x0, rates[[0, 0, 0]]), rtol=1e-12)
