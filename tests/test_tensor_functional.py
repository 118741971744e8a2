"""autograd.functional, Function, gradcheck, anomaly detection; no reference cycles."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest


@pytest.fixture(params=["tapec", "torch"])
def lib(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The library under test: what holds for tapec holds for PyTorch, if that is installed."""
    if request.param == "torch":
        torch = pytest.importorskip("torch")
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        yield torch
        torch.set_default_dtype(before)
    else:
        yield importlib.import_module("tapec")


def values(t: Any) -> Any:
    return np.asarray(t.detach().numpy())


def close(t: Any, expected: Any, tol: float = 1e-12) -> None:
    np.testing.assert_allclose(values(t), expected, rtol=tol, atol=tol)


def raises(lib: Any, error: Any, *words: str) -> Any:
    """``pytest.raises`` whose message is checked for tapec only; torch words it differently."""
    pattern = ".*".join(words) if lib.__name__ == "tapec" and words else None
    return pytest.raises(error, match=f"(?s){pattern}" if pattern else None)


X = np.array([0.5, -1.0, 2.0])


def cubes(x: Any) -> Any:
    return (x**3).sum()


def test_vjp(lib: Any) -> None:
    out, g = lib.autograd.functional.vjp(lambda x: x**2, lib.tensor(X), lib.tensor([1.0, 2.0, 3.0]))
    close(out, X**2)
    close(g, 2 * X * [1, 2, 3])


def test_vjp_needs_a_vector(lib: Any) -> None:
    with raises(lib, RuntimeError, "single element"):
        lib.autograd.functional.vjp(lambda x: x**2, lib.tensor(X))


def test_jvp(lib: Any) -> None:
    out, t = lib.autograd.functional.jvp(lambda x: x**2, lib.tensor(X), lib.tensor([1.0, 2.0, 3.0]))
    close(t, 2 * X * [1, 2, 3])
    close(out, X**2)


def test_vector_of_wrong_size(lib: Any) -> None:
    with raises(lib, RuntimeError, "size"):
        lib.autograd.functional.jvp(lambda x: x**2, lib.tensor(X), lib.ones(2))


@pytest.mark.parametrize("name", ["hvp", "vhp"])
def test_hessian_products(lib: Any, name: str) -> None:
    out, h = getattr(lib.autograd.functional, name)(
        cubes, lib.tensor(X), lib.tensor([1.0, 2.0, 3.0])
    )
    close(out, (X**3).sum())
    close(h, 6 * X * [1, 2, 3])


@pytest.mark.parametrize("name", ["hvp", "vhp"])
def test_hessian_products_need_a_scalar(lib: Any, name: str) -> None:
    with raises(lib, RuntimeError, "single element"):
        getattr(lib.autograd.functional, name)(lambda x: x**2, lib.tensor(X), lib.tensor(X))


def test_jacobian_shapes(lib: Any) -> None:
    jacobian = lib.autograd.functional.jacobian
    j = jacobian(lambda x: x.reshape(3, 1) * x, lib.tensor(X))
    assert tuple(j.shape) == (3, 3, 3)
    x, y = lib.tensor(X), lib.tensor([1.0, 2.0])
    a, b = jacobian(lambda x, y: x.sum() * y, (x, y))
    assert tuple(a.shape) == (2, 3) and tuple(b.shape) == (2, 2)
    (c,), (d,) = jacobian(lambda x: (x * 2, x.sum()), (x,))
    close(c, 2 * np.eye(3))
    close(d, np.ones(3))


@pytest.mark.parametrize("vectorize", [False, True])
def test_jacobian_values(lib: Any, vectorize: bool) -> None:
    j = lib.autograd.functional.jacobian(lambda x: x**2, lib.tensor(X), vectorize=vectorize)
    close(j, np.diag(2 * X))


def test_jacobian_strict(lib: Any) -> None:
    jacobian = lib.autograd.functional.jacobian
    close(jacobian(lambda x: lib.ones(2), lib.tensor(X)), np.zeros((2, 3)))
    with raises(lib, RuntimeError, "independent"):
        jacobian(lambda x: lib.ones(2), lib.tensor(X), strict=True)


def test_jacobian_create_graph(lib: Any) -> None:
    x = lib.tensor(X, requires_grad=True)
    j = lib.autograd.functional.jacobian(lambda x: x**3, x, create_graph=True)
    assert j.requires_grad
    j.sum().backward()
    close(x.grad, 6 * X)


def test_hessian(lib: Any) -> None:
    close(lib.autograd.functional.hessian(cubes, lib.tensor(X)), np.diag(6 * X))


def test_hessian_of_two(lib: Any) -> None:
    h = lib.autograd.functional.hessian(
        lambda x, y: (x * y).sum() ** 2, (lib.tensor(2.0), lib.tensor(3.0))
    )
    close(h[0][0], 18.0)
    close(h[0][1], 24.0)
    close(h[1][1], 8.0)


def test_hessian_needs_one_element(lib: Any) -> None:
    with raises(lib, RuntimeError, "single element"):
        lib.autograd.functional.hessian(lambda x: x**2, lib.tensor(X))


def test_inputs_are_not_touched(lib: Any) -> None:
    x = lib.tensor(X, requires_grad=True)
    lib.autograd.functional.jacobian(lambda x: x**2, x)
    assert x.grad is None


# -- Function -----------------------------------------------------------------------------------


def make_cube(lib: Any) -> Any:
    class Cube(lib.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 3 * x**2 * grad

    return Cube


def test_function(lib: Any) -> None:
    x = lib.tensor(2.0, requires_grad=True)
    y = make_cube(lib).apply(x * 2)
    assert y.requires_grad and not y.is_leaf and y.grad_fn.name() == "CubeBackward"
    (y * 2).backward()
    close(x.grad, 2 * 3 * 16.0 * 2)


def test_function_twice_differentiable(lib: Any) -> None:
    x = lib.tensor(2.0, requires_grad=True)
    (g,) = lib.autograd.grad(make_cube(lib).apply(x), x, create_graph=True)
    (h,) = lib.autograd.grad(g, x)
    close(g, 12.0)
    close(h, 12.0)


def test_function_without_grad(lib: Any) -> None:
    assert not make_cube(lib).apply(lib.tensor(2.0)).requires_grad
    with lib.no_grad():
        assert not make_cube(lib).apply(lib.tensor(2.0, requires_grad=True)).requires_grad


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_function_cannot_be_called(lib: Any) -> None:
    with raises(lib, RuntimeError, "apply"):
        make_cube(lib)()(lib.tensor(1.0))


def test_function_needs_input_grad(lib: Any) -> None:
    seen = []

    class Product(lib.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any, k: int) -> Any:
            ctx.save_for_backward(x, y)
            ctx.k = k
            return x * y * k

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            seen.append(ctx.needs_input_grad)
            _, y = ctx.saved_tensors
            return g * y * ctx.k, None, None

    x = lib.tensor(2.0, requires_grad=True)
    Product.apply(x, lib.tensor(3.0), 5).backward()
    assert seen == [(True, False, False)]
    close(x.grad, 15.0)


def test_function_number_of_gradients(lib: Any) -> None:
    class Wrong(lib.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            return x * y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g

    x = lib.tensor(2.0, requires_grad=True)
    with raises(lib, RuntimeError, "expected 2, got 1"):
        Wrong.apply(x, x).backward()


def test_function_shape_of_gradient(lib: Any) -> None:
    class Wrong(lib.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return lib.ones(5)

    x = lib.ones(2, requires_grad=True)
    with raises(lib, RuntimeError, "invalid gradient"):
        Wrong.apply(x).sum().backward()


def test_function_several_outputs(lib: Any) -> None:
    class Both(lib.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2, x * 3

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any) -> Any:
            return 2 * a + 3 * b

    x = lib.tensor(1.0, requires_grad=True)
    a, b = Both.apply(x)
    (a * 10 + b).backward()
    close(x.grad, 23.0)
    x.grad = None
    a, b = Both.apply(x)
    b.backward()
    close(x.grad, 3.0)


def test_function_without_materialized_grads(lib: Any) -> None:
    seen = []

    class Both(lib.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any) -> Any:
            seen.append(b)
            return 2 * a

    x = lib.tensor(1.0, requires_grad=True)
    Both.apply(x)[0].backward()
    assert seen == [None]


def test_function_non_differentiable_output(lib: Any) -> None:
    class Sorted(lib.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x * 2
            rank = x * 0
            ctx.mark_non_differentiable(rank)
            return y, rank

        @staticmethod
        def backward(ctx: Any, g: Any, unused: Any) -> Any:
            return g * 2

    y, rank = Sorted.apply(lib.ones(2, requires_grad=True))
    assert y.requires_grad and not rank.requires_grad


def test_function_setup_context(lib: Any) -> None:
    class Square(lib.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(x: Any) -> Any:
            return x * x

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 2 * x * g

    x = lib.tensor(3.0, requires_grad=True)
    Square.apply(x).backward()
    close(x.grad, 6.0)


def test_function_saves_its_result(lib: Any) -> None:
    class Exp(lib.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (y,) = ctx.saved_tensors
            return g * y

    x = lib.tensor(0.5, requires_grad=True)
    (g,) = lib.autograd.grad(Exp.apply(x), x, create_graph=True)
    (h,) = lib.autograd.grad(g, x)
    close(h, np.exp(0.5))


def test_once_differentiable(lib: Any) -> None:
    once = importlib.import_module(f"{lib.__name__}.autograd.function").once_differentiable

    class Square(lib.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 2 * x * g

    x = lib.tensor(3.0, requires_grad=True)
    (g,) = lib.autograd.grad(Square.apply(x), x, create_graph=True)
    close(g, 6.0)
    with raises(lib, RuntimeError, "once_differentiable"):
        lib.autograd.grad(g, x)


def test_function_freed(lib: Any) -> None:
    x = lib.tensor(3.0, requires_grad=True)
    y = make_cube(lib).apply(x)
    y.backward()
    with raises(lib, RuntimeError, "retain_graph"):
        y.backward()


def test_function_saved_input_written(lib: Any) -> None:
    x = lib.ones(2, requires_grad=True)
    h = x * 1
    y = make_cube(lib).apply(h)
    h.add_(1)
    with raises(lib, RuntimeError, "inplace"):
        y.sum().backward()


def test_straight_through(lib: Any) -> None:
    class Round(lib.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.round()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g

    x = lib.tensor([0.4, 1.6], requires_grad=True)
    (Round.apply(x) * lib.tensor([1.0, 10.0])).sum().backward()
    close(x.grad, [1.0, 10.0])


# -- checks -------------------------------------------------------------------------------------


def test_gradcheck(lib: Any) -> None:
    x = lib.tensor(X, requires_grad=True)
    w = lib.tensor([1.0, 2.0, 3.0], requires_grad=True)
    assert lib.autograd.gradcheck(lambda x, w: (x * w).tanh(), (x, w))
    assert lib.autograd.gradgradcheck(lambda x, w: (x * w).tanh(), (x, w))


def test_gradcheck_finds_a_wrong_derivative(lib: Any) -> None:
    class Wrong(lib.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 3

    x = lib.tensor(X, requires_grad=True)
    error = importlib.import_module(f"{lib.__name__}.autograd.gradcheck").GradcheckError
    with raises(lib, error, "numerical", "analytical"):
        lib.autograd.gradcheck(Wrong.apply, (x,))
    assert not lib.autograd.gradcheck(Wrong.apply, (x,), raise_exception=False)


def test_gradcheck_wants_double(lib: Any) -> None:
    x = lib.tensor(X, dtype=lib.float32, requires_grad=True)
    with pytest.warns(UserWarning, match="double"):
        lib.autograd.gradcheck(lambda x: x * 2, (x,), raise_exception=False)


def test_gradcheck_needs_an_input(lib: Any) -> None:
    with raises(lib, ValueError, "require"):
        lib.autograd.gradcheck(lambda x: x * 2, (lib.tensor(X),))


def test_detect_anomaly(lib: Any) -> None:
    x = lib.tensor([0.0, -1.0], requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with lib.autograd.detect_anomaly():
            y = x.sqrt() * 1
            with pytest.raises(
                RuntimeError, match="SqrtBackward0.* returned nan values in its 0th"
            ):
                y.sum().backward()


def test_detect_anomaly_warns(lib: Any) -> None:
    with pytest.warns(UserWarning, match="(?i)anomaly detection has been enabled"):
        lib.autograd.detect_anomaly()


def test_anomaly_off_again(lib: Any) -> None:
    x = lib.tensor(-1.0, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with lib.autograd.detect_anomaly():
            pass
    x.sqrt().backward()
    assert np.isnan(values(x.grad))


# -- memory ---------------------------------------------------------------------------------------


def test_second_order_leaves_no_cycle() -> None:
    import gc
    import weakref

    import tapec

    gc.collect()
    gc.disable()
    try:
        x = tapec.tensor([1.0, 2.0], requires_grad=True)
        y = (x**3).sum()
        y.backward(create_graph=True)
        ref = weakref.ref(x)
        del x, y
        assert ref() is None
    finally:
        gc.enable()


def test_memory_flat_without_collector() -> None:
    import gc

    import tapec

    def step() -> None:
        x = tapec.tensor([1.0, 2.0], requires_grad=True)
        y = (x.exp() * x).sum()
        y.backward(create_graph=True)
        (x.grad**2).sum().backward()

    step()
    gc.collect()
    gc.disable()
    try:
        step()
        before = len(gc.get_objects())
        for _ in range(1000):
            step()
        assert len(gc.get_objects()) - before < 200
    finally:
        gc.enable()
