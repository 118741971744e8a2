"""The public transforms: forms of use, structures in and out, kinds of result, composition."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections import namedtuple

import numpy as np
import optree
import pytest

import tapec

Point = namedtuple("Point", "x y")


def bowl(v):
    """A valley with its minimum at (1, 1)."""
    return (v[0] - 1) ** 2 + 10 * (v[1] - v[0] ** 2) ** 2


gradient_of_bowl = tapec.grad(bowl)


@tapec.grad
def decorated(x):
    """Three x squared."""
    return x**3


@tapec.value_and_grad(argnums=(0, 1))
def decorated_with_options(a, b):
    return a * b**2


# -- forms of use ------------------------------------------------------------------------


def test_function_and_decorator_forms():
    assert tapec.grad(lambda x: x**2)(3.0) == 6.0
    assert decorated(2.0) == 12.0
    assert decorated_with_options(2.0, 3.0) == (18.0, (9.0, 12.0))

    @tapec.grad(argnums=1, has_aux=True)
    def f(a, b):
        return a * b, (a, "note")

    assert f(2.0, 3.0) == (2.0, (2.0, "note"))


@pytest.mark.parametrize(
    ("argnums", "expected"),
    [((0, 2), (3.0, 8.0)), (1, 2.0), ((0,), (3.0,)), (-1, 8.0), ([1], (2.0,))],
)
def test_several_argnums(argnums, expected):
    assert tapec.grad(lambda a, b, c: a * b + c**2, argnums=argnums)(2.0, 3.0, 4.0) == expected


def test_argnums_order_is_kept():
    assert tapec.grad(lambda a, b: a**2 * b, argnums=(1, 0))(2.0, 5.0) == (4.0, 20.0)


def test_keyword_arguments():
    def f(x, *, k, flag="sq"):
        return k * (x**2 if flag == "sq" else x)

    g = tapec.grad(f)
    assert g(2.0, k=3.0) == 12.0
    assert g(2.0, k=3.0, flag="lin") == 3.0
    assert g(2.0, k=3) == 12.0


def test_star_arguments():
    def f(*xs, **named):
        return sum(x**2 for x in xs) * named["scale"]

    assert tapec.grad(f, argnums=(0, 1))(1.0, 2.0, scale=3.0) == (6.0, 12.0)


def test_value_and_grad_with_aux():
    def f(x):
        return np.sum(x**2), {"twice": 2 * x, "n": len(x), "none": None}

    (value, aux), grad = tapec.value_and_grad(f, has_aux=True)(np.array([1.0, 2.0]))
    assert value == 5.0 and isinstance(value, float)
    assert aux["twice"].tolist() == [2, 4] and aux["n"] == 2 and aux["none"] is None
    assert grad.tolist() == [2, 4]


def test_name_doc_and_signature():
    assert decorated.__name__ == "decorated" and decorated.__doc__ == "Three x squared."
    assert decorated.__wrapped__(2.0) == 8.0
    assert "decorated" in repr(decorated) and "grad" in repr(decorated)
    assert str(inspect.signature(decorated)) == "(x)"
    assert "argnums=1" in repr(tapec.grad(bowl, argnums=1))


def test_pickle_by_reference():
    for f in (gradient_of_bowl, decorated, decorated_with_options):
        again = pickle.loads(pickle.dumps(f))
        assert repr(again) == repr(f)
    g = pickle.loads(pickle.dumps(gradient_of_bowl))
    assert g(np.array([0.5, 2.0])).tolist() == [-36.0, 35.0]
    assert pickle.loads(pickle.dumps(decorated)) is decorated


def test_deepcopy():
    f = tapec.grad(lambda x: x**2)
    assert copy.deepcopy(f)(3.0) == copy.copy(f)(3.0) == 6.0
    assert copy.deepcopy({"f": decorated})["f"](1.0) == 3.0


# -- structures ----------------------------------------------------------------------------


def test_dict_of_parameters():
    g = tapec.grad(lambda p: np.sum(p["w"] ** 2) + p["b"] ** 3)
    out = g({"w": np.array([1.0, 2.0]), "b": 2.0})
    assert out["w"].tolist() == [2, 4] and out["b"] == 12.0 and isinstance(out["b"], float)


def test_containers_come_back_as_they_were():
    def f(p):
        return p[0].x * p[0].y + np.sum(p[1]["a"]) * p[2][0]

    out = tapec.grad(f)([Point(2.0, 3.0), {"a": np.ones(2)}, (5.0, None)])
    assert out[0] == Point(3.0, 2.0) and type(out[0]) is Point
    assert out[1]["a"].tolist() == [5, 5]
    assert out[2] == (2.0, None)


def test_registered_dataclass():
    @optree.dataclasses.dataclass(namespace="tapec")
    class Model:
        w: float
        b: float

    out = tapec.grad(lambda m, x: (m.w * x + m.b) ** 2)(Model(2.0, 1.0), 3.0)
    assert (out.w, out.b) == (42.0, 14.0)


def test_list_of_floats_is_a_container():
    assert tapec.grad(lambda p: p[0] * p[1] ** 2)([2.0, 3.0]) == [9.0, 12.0]
    assert tapec.grad(lambda p: np.sum(np.array(p) ** 2))([2.0, 3.0]) == [4.0, 6.0]


def test_dict_read_inside_closure():
    assert tapec.grad(lambda d: (lambda: d["y"] ** 2)())({"y": 0.4, "z": 1.0}) == {
        "y": 0.8,
        "z": 0.0,
    }


def test_jit_structures_and_statics():
    def f(x, mode, n):
        return {"sum": np.sum(x) * n, "mode": mode, "all": [x, None, n]}

    out = tapec.jit(f)(np.array([1.0, 2.0]), "fast", 3)
    assert out["sum"] == 9.0 and out["mode"] == "fast" and out["all"][1:] == [None, 3]
    assert out["all"][0].tolist() == [1.0, 2.0]


# -- kinds of result -----------------------------------------------------------------------


def test_kinds_of_result():
    f = tapec.jit(lambda x: (np.sum(x), np.argmax(x), np.sum(x) > 0, x * 2))
    a, b, c, d = f(np.array([1.0, 3.0]))
    assert (a, b, c) == (4.0, 1, True)
    assert type(a) is float and type(b) is int and type(c) is bool and type(d) is np.ndarray
    s = tapec.jit(np.sum)(np.array([1.0, 2.0], np.float32))
    assert type(s) is np.float32


def test_gradients_follow_their_argument():
    g = tapec.grad(lambda x: np.sum(x**2))
    assert type(g(3.0)) is float and g(3.0) == 6.0
    assert type(g(3)) is float and g(3) == 6.0
    zero_d = g(np.array(3.0))
    assert type(zero_d) is np.ndarray and zero_d.shape == () and zero_d == 6.0
    assert g(np.array([3.0])).shape == (1,)
    assert float(g(np.float64(3.0))) == 6.0
    single = g(np.array([1.0, 2.0], np.float32))
    assert single.dtype == np.float32
    assert type(g(np.float32(2.0))) is np.float32


def test_zero_gradient_keeps_shape_and_dtype():
    out = tapec.grad(lambda x: 3.0)(np.ones((2, 2), np.float32))
    assert out.shape == (2, 2) and out.dtype == np.float32 and not out.any()
    assert tapec.grad(lambda x: 3)(2.0) == 0.0


def test_results_are_the_callers_own():
    x = np.array([1.0, 2.0])
    out = tapec.jit(lambda x: x)(x)
    out[0] = 5.0
    assert x.tolist() == [1.0, 2.0]


# -- jvp, vjp, jacobian, hessian, hvp ------------------------------------------------------


def test_jvp():
    assert tapec.jvp(lambda x, y: x * y, (2.0, 3.0), (1.0, 0.5)) == (6.0, 4.0)
    out, dot = tapec.jvp(lambda p: {"a": p["w"] ** 2}, ({"w": np.ones(2)},), ({"w": np.ones(2)},))
    assert out["a"].tolist() == [1, 1] and dot["a"].tolist() == [2, 2]


def test_jvp_of_wrong_tangents():
    with pytest.raises(TypeError, match="structure"):
        tapec.jvp(lambda x: x, (1.0,), (1.0, 2.0))
    with pytest.raises(ValueError, match=r"shape \(3,\), expected \(2,\)"):
        tapec.jvp(lambda x: x, (np.ones(2),), (np.ones(3),))


def test_vjp():
    out, pull = tapec.vjp(lambda x, y: (x * y, x + y), 2.0, 3.0)
    assert out == (6.0, 5.0)
    assert pull((1.0, 0.0)) == (3.0, 2.0)
    assert pull((1.0, 1.0)) == (4.0, 3.0)
    with pytest.raises(TypeError, match="structure"):
        pull(1.0)


def test_vjp_keeps_its_point():
    x = np.array([1.0, 2.0])
    _, pull = tapec.vjp(lambda x: x**2, x)
    x[:] = 100
    assert pull(np.ones(2))[0].tolist() == [2, 4]


def test_vjp_inside_a_trace():
    def f(x):
        out, pull = tapec.vjp(lambda y: y**3, x)
        return out + pull(1.0)[0]

    assert tapec.grad(f)(2.0) == 12.0 + 12.0


def test_jvp_inside_a_trace():
    assert tapec.grad(lambda x: tapec.jvp(lambda y: y**3, (x,), (1.0,))[1])(2.0) == 12.0
    assert tapec.grad(lambda t: tapec.jvp(lambda y: y**3, (2.0,), (t,))[1])(1.0) == 12.0


@pytest.mark.parametrize(("n", "m"), [(2, 5), (5, 2), (20, 30), (30, 18), (1, 1), (3, 0), (0, 3)])
def test_jacobian_shapes(n, m):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(m, n))
    x = rng.normal(size=n)
    J = tapec.jacobian(lambda x: np.sin(A @ x))(x)
    assert J.shape == (m, n)
    np.testing.assert_allclose(J, np.cos(A @ x)[:, None] * A, rtol=1e-12)


def test_jacobian_of_matrices_and_containers():
    W = np.arange(6.0).reshape(2, 3)
    J = tapec.jacobian(lambda W: W.T * 2)(W)
    assert J.shape == (3, 2, 2, 3)
    expected = np.zeros((3, 2, 2, 3))
    for i in range(3):
        for j in range(2):
            expected[i, j, j, i] = 2
    np.testing.assert_array_equal(J, expected)
    out = tapec.jacobian(lambda p: {"s": p[0] * p[1], "v": p[1] * np.ones(2)})((2.0, 3.0))
    assert out["s"] == (3.0, 2.0)
    assert out["v"][0].tolist() == [0, 0] and out["v"][1].tolist() == [1, 1]


def test_jacobian_of_a_constant_function():
    J = tapec.jacobian(lambda v: np.array([4.0, 5.0]))
    assert J(np.ones(3)).tolist() == [[0, 0, 0], [0, 0, 0]]
    assert tapec.jacobian(lambda v: np.array([4.0]))(np.ones(3)).shape == (1, 3)
    assert tapec.jacobian(J)(np.ones(3)).shape == (2, 3, 3)


def test_jacobian_argnums():
    J = tapec.jacobian(lambda a, b: a * b, argnums=(0, 1))(np.ones(2), np.array([2.0, 3.0]))
    assert J[0].tolist() == [[2, 0], [0, 3]] and J[1].tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("n", [3, 25])
def test_hessian_and_hvp(n):
    rng = np.random.default_rng(1)
    x, v = rng.normal(size=n), rng.normal(size=n)

    def f(x):
        return np.sum(np.exp(x) * np.roll(x, 1))

    H = tapec.hessian(f)(x)
    assert H.shape == (n, n)
    np.testing.assert_allclose(H, H.T, rtol=1e-12)
    np.testing.assert_allclose(tapec.hvp(f)(x, v), H @ v, rtol=1e-12)
    np.testing.assert_allclose(H, tapec.jacobian(tapec.grad(f))(x), rtol=1e-12)


def test_hessian_of_containers():
    H = tapec.hessian(lambda p: p["a"] ** 2 * p["b"])({"a": 2.0, "b": 3.0})
    assert H == {"a": {"a": 6.0, "b": 4.0}, "b": {"a": 4.0, "b": 0.0}}
    H = tapec.hessian(lambda a, b: a**2 * b, argnums=(0, 1))(2.0, 3.0)
    assert H == ((6.0, 4.0), (4.0, 0.0))


def test_hvp_of_second_argument_and_rest():
    out = tapec.hvp(lambda x, c: c * np.sum(x**3))(np.ones(2), np.array([1.0, 2.0]), 2.0)
    assert out.tolist() == [12.0, 24.0]
    assert tapec.hvp(lambda c, x: c * x**3, argnums=1)(2.0, 3.0, 1.0) == 36.0
    with pytest.raises(TypeError, match=r"hvp\(fn\)\(x, v"):
        tapec.hvp(lambda x: x)(1.0)


def test_hvp_fits_scipy():
    from scipy.optimize import minimize, rosen

    start = np.array([-1.0, 2.0, 0.5])

    def f(x):
        return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    found = minimize(
        rosen, start, jac=tapec.grad(f), hessp=tapec.hvp(f), method="Newton-CG", tol=1e-10
    )
    np.testing.assert_allclose(found.x, 1.0, atol=1e-6)


# -- composition ---------------------------------------------------------------------------


def test_perturbations_are_not_confused():
    assert tapec.grad(lambda x: x * tapec.grad(lambda y: x * y)(1.0))(4.0) == 8.0
    assert tapec.grad(lambda x: x * tapec.grad(lambda y: x + y)(1.0))(1.0) == 1.0


def test_transforms_of_transforms():
    f = lambda x: 0.3 * np.sin(x) * x**10  # noqa: E731
    g = f
    for _ in range(3):
        g = tapec.grad(g)
    t = 1.3
    h = tapec.jit(tapec.grad(tapec.jit(tapec.grad(tapec.grad(f)))))
    assert abs(g(t) / h(t) - 1) < 1e-13
    assert tapec.jacobian(tapec.jacobian(lambda x: x**3))(2.0) == 12.0
    assert tapec.grad(lambda x: tapec.hessian(lambda y: y**4)(x))(1.0) == 24.0


def test_gradient_of_a_jacobian_inside():
    def f(x):
        return np.sum(tapec.jacobian(lambda y: y**3)(x) ** 2)

    x = np.array([1.0, 2.0])
    np.testing.assert_allclose(tapec.grad(f)(x), 36 * x**3)


def test_value_and_grad_inside():
    def f(x):
        v, g = tapec.value_and_grad(lambda y: x * y**2)(3.0)
        return v * g

    assert tapec.grad(f)(2.0) == 2 * 2.0 * 9 * 6


def test_concrete_call_inside_a_trace():
    inner = tapec.value_and_grad(lambda y: y**3)

    def f(x):
        v, g = inner(2.0)
        assert type(v) is float and type(g) is float
        return x * v * g

    assert tapec.grad(f)(1.0) == 96.0
    assert inner(2.0) == (8.0, 12.0)


def test_dtype_of_nested_gradient_is_weak():
    def f(x):
        return np.sum(x * tapec.grad(lambda t: t**2)(2.0))

    def g(x, t):
        return np.sum(x * tapec.grad(lambda t: t**2)(t))

    x = np.ones(3, np.float32)
    assert tapec.grad(f)(x).dtype == np.float32
    assert tapec.jit(g)(x, 2.0).dtype == np.float32


def test_aux_inside_a_trace():
    def f(x):
        g, aux = tapec.grad(lambda y: (y**2, x * y), has_aux=True)(3.0)
        return g * aux

    assert tapec.grad(f)(2.0) == 18.0


# -- methods -------------------------------------------------------------------------------


class Model:
    def __init__(self, scale):
        self.scale = scale
        self.w = np.array([1.0, 2.0])

    @tapec.grad
    def loss(self, x):
        return self.scale * np.sum(self.w * x**2)

    @tapec.grad(argnums=1)
    def second(self, a, b):
        return a * b * self.scale

    @staticmethod
    @tapec.grad
    def plain(x):
        return x**2


def test_methods_bind_self():
    m, n = Model(1.0), Model(10.0)
    x = np.array([1.0, 1.0])
    assert m.loss(x).tolist() == [2, 4]
    assert n.loss(x).tolist() == [20, 40]
    m.w[0] = 5.0
    assert m.loss(x).tolist() == [10, 4]
    m.scale = 2.0
    assert m.loss(x).tolist() == [20, 8]
    assert Model.loss(m, x).tolist() == [20, 8]
    assert n.second(2.0, 3.0) == 20.0
    assert Model.plain(3.0) == m.plain(3.0) == 6.0
    assert m.loss is not None and "loss" in repr(Model.loss)


def test_method_of_an_instance_without_weak_references():
    class Slots:
        __slots__ = ("k",)

        def __init__(self, k):
            self.k = k

        @tapec.grad
        def f(self, x):
            return self.k * x**2

    s = Slots(2.0)
    assert s.f(3.0) == 12.0
    s.k = 5.0
    assert s.f(3.0) == 30.0


# -- check_grads ---------------------------------------------------------------------------


def test_check_grads():
    tapec.check_grads(lambda x: np.sum(np.sin(x) * x), (np.array([0.5, 1.5]),), order=3)
    tapec.check_grads(lambda a, b: a * np.exp(b), (1.5, np.array([0.1, 0.2])), order=2)
    tapec.check_grads(lambda p: {"y": p["a"] ** 3}, ({"a": np.float32(0.7)},), order=1)


def test_check_grads_reports():
    def wrong(x):  # looks smooth to tapec, is not the same function to NumPy
        return x**2 if isinstance(x, float) else x**3

    with pytest.raises(AssertionError, match="jvp"):
        tapec.check_grads(wrong, (2.0,), order=1)
    with pytest.raises(ValueError, match="modes"):
        tapec.check_grads(wrong, (2.0,), modes=("sideways",))
