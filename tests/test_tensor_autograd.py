"""Leaves, gradients, backward, autograd.grad and modes: as PyTorch has them."""

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


# -- leaves -----------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [1, [1, 2], True, [[1], [2]]])
def test_only_floats_require_grad(lib: Any, data: Any) -> None:
    with raises(lib, RuntimeError, "floating point"):
        lib.tensor(data, requires_grad=True)
    with raises(lib, RuntimeError, "floating point"):
        lib.tensor(data).requires_grad_()


def test_leaf_flags(lib: Any) -> None:
    x = lib.tensor(1.0, requires_grad=True)
    y = x * 2
    z = lib.tensor(1.0) * 2
    assert x.is_leaf and not y.is_leaf and z.is_leaf
    assert x.requires_grad and y.requires_grad and not z.requires_grad
    assert x.grad_fn is None and z.grad_fn is None and y.grad_fn is not None


def test_default_does_not_require_grad(lib: Any) -> None:
    assert not lib.tensor([1.0]).requires_grad


def test_result_requires_grad_if_any_operand_does(lib: Any) -> None:
    x, c = lib.tensor(1.0, requires_grad=True), lib.tensor(2.0)
    assert (c * x).requires_grad and not (c + c).requires_grad


@pytest.mark.parametrize("value", [True, False])
def test_flag_of_a_non_leaf_cannot_change(lib: Any, value: bool) -> None:
    y = lib.tensor(1.0, requires_grad=True) * 2
    with raises(lib, RuntimeError, "leaf", "detach"):
        y.requires_grad = value


def test_requires_grad_underscore_returns_self(lib: Any) -> None:
    x = lib.zeros(2)
    assert x.requires_grad_() is x and x.requires_grad
    x.requires_grad_(False)
    assert not x.requires_grad


def test_detach_gives_fresh_leaf(lib: Any) -> None:
    y = lib.tensor(3.0, requires_grad=True) * 2
    d = y.detach()
    assert d.is_leaf and not d.requires_grad
    d.requires_grad_()
    (d * d).backward()
    close(d.grad, 12.0)


def test_grad_fn_names(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    assert (x * 2).grad_fn.name() == "MulBackward0"
    assert (x + 2).grad_fn.name() == "AddBackward0"
    assert x.sum().grad_fn.name() == "SumBackward0"
    assert x.exp().grad_fn.name() == "ExpBackward0"
    assert (x**2).grad_fn.name() == "PowBackward0"
    assert x.mean().grad_fn.name() == "MeanBackward0"
    assert (-x).grad_fn.name() == "NegBackward0"


def test_next_functions(lib: Any) -> None:
    x = lib.tensor(1.0, requires_grad=True)
    y = x * 2
    z = y + y.exp()
    names = [f.name() for f, _ in z.grad_fn.next_functions]
    assert names == ["MulBackward0", "ExpBackward0"]
    accumulate, number = y.grad_fn.next_functions[0]
    assert number == 0 and accumulate.variable is x
    assert "AccumulateGrad" in accumulate.name()


def test_constants_have_no_next_function(lib: Any) -> None:
    x, c = lib.tensor(1.0, requires_grad=True), lib.tensor(2.0)
    assert (x * c).grad_fn.next_functions[1][0] is None


# -- .grad ------------------------------------------------------------------------------------


def test_grad_starts_none_and_accumulates_in_place(lib: Any) -> None:
    x = lib.tensor(2.0, requires_grad=True)
    assert x.grad is None
    (x * x).backward()
    g = x.grad
    close(g, 4.0)
    (x * x).backward()
    assert x.grad is g
    close(g, 8.0)


def test_grad_of_non_leaf_warns(lib: Any) -> None:
    x = lib.tensor(2.0, requires_grad=True)
    y = x * 2
    y.backward()
    with pytest.warns(UserWarning, match="leaf"):
        assert y.grad is None


def test_retain_grad(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    y.retain_grad()
    assert y.retains_grad
    (y * y).sum().backward()
    close(y.grad, [6.0, 12.0])
    close(x.grad, [18.0, 36.0])


def test_retain_grad_after_use(lib: Any) -> None:
    x = lib.tensor(2.0, requires_grad=True)
    y = x * 3
    z = y.exp()
    y.retain_grad()
    z.backward()
    close(y.grad, np.exp(6.0))


def test_retain_grad_of_a_leaf_does_nothing(lib: Any) -> None:
    x = lib.tensor(2.0, requires_grad=True)
    x.retain_grad()
    assert not x.retains_grad


def test_retain_grad_without_requires_grad(lib: Any) -> None:
    with raises(lib, RuntimeError, "requires_grad=False"):
        lib.tensor(1.0).retain_grad()


def test_grad_assignment_checks(lib: Any) -> None:
    x = lib.zeros(3, requires_grad=True)
    with raises(lib, RuntimeError, "shape"):
        x.grad = lib.zeros(2)
    with raises(lib, RuntimeError, "dtype"):
        x.grad = lib.zeros(3, dtype=lib.float32)
    with raises(lib, TypeError, "tensor or None"):
        x.grad = [1.0, 2.0, 3.0]
    x.grad = lib.ones(3)
    close(x.grad, np.ones(3))
    x.grad = None
    assert x.grad is None


def test_accumulates_into_assigned_grad(lib: Any) -> None:
    x = lib.zeros(2, requires_grad=True)
    x.grad = lib.ones(2)
    x.sum().backward()
    close(x.grad, [2.0, 2.0])


def test_grad_dtype_is_the_leafs(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0], dtype=lib.float32, requires_grad=True)
    (x.to(lib.float64) ** 2).sum().backward()
    assert x.grad.dtype == lib.float32


def test_create_graph_replaces_the_grad_object(lib: Any) -> None:
    x = lib.tensor(3.0, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (x**3).backward(create_graph=True)
        first = x.grad
        assert first.grad_fn is not None
        (x**3).backward(create_graph=True)
    assert x.grad is not first
    close(x.grad, 54.0)
    close(first, 27.0)


# -- backward -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_implicit_seed_for_one_element(lib: Any, shape: Any) -> None:
    x = lib.ones(shape, requires_grad=True)
    (x * 3).backward()
    close(x.grad, np.full(shape, 3.0))


def test_implicit_seed_needs_one_element(lib: Any) -> None:
    x = lib.ones(2, requires_grad=True)
    with raises(lib, RuntimeError, "scalar outputs"):
        (x * 3).backward()


def test_seed(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    (x**2).backward(gradient=lib.tensor([0.1, 0.2]))
    close(x.grad, [0.2, 0.8])


@pytest.mark.parametrize("shape", [(1,), (), (2, 2), (3,)])
def test_seed_must_match_exactly(lib: Any, shape: Any) -> None:
    x = lib.ones(2, requires_grad=True)
    with raises(lib, RuntimeError, "shape", r"\[2\]"):
        (x * 2).backward(lib.ones(shape))


def test_seed_must_be_a_tensor(lib: Any) -> None:
    x = lib.ones(2, requires_grad=True)
    with raises(lib, TypeError, "tensors or None"):
        (x * 2).backward([1.0, 1.0])


def test_output_without_grad(lib: Any) -> None:
    with raises(lib, RuntimeError, "does not require grad"):
        lib.tensor(1.0).backward()


def test_second_backward(lib: Any) -> None:
    x = lib.tensor(3.0, requires_grad=True)
    y = x * x
    y.backward()
    with raises(lib, RuntimeError, "second time", "retain_graph"):
        y.backward()
    close(x.grad, 6.0)


def test_second_backward_with_retain_graph(lib: Any) -> None:
    x = lib.tensor(3.0, requires_grad=True)
    y = x * x
    y.backward(retain_graph=True)
    y.backward()
    close(x.grad, 12.0)
    with raises(lib, RuntimeError, "retain_graph"):
        y.backward()


def test_backward_through_a_freed_part(lib: Any) -> None:
    x = lib.tensor(3.0, requires_grad=True)
    h = x * x
    (h * 2).backward()
    with raises(lib, RuntimeError, "retain_graph"):
        (h * 3).backward()


def test_unrelated_losses_do_not_free_each_other(lib: Any) -> None:
    x, w = lib.tensor(3.0, requires_grad=True), lib.tensor(2.0, requires_grad=True)
    a, b = x * x, w * w
    a.backward()
    b.backward()
    close(x.grad, 6.0)
    close(w.grad, 4.0)


def test_two_losses_share_a_part_with_retain(lib: Any) -> None:
    x = lib.tensor(2.0, requires_grad=True)
    h = x * x
    a, b = h * 3, h.exp()
    a.backward(retain_graph=True)
    b.backward()
    close(x.grad, 12.0 + 4 * np.exp(4.0))


def test_create_graph_retains(lib: Any) -> None:
    x = lib.tensor(2.0, requires_grad=True)
    y = x**3
    (g,) = lib.autograd.grad(y, x, create_graph=True)
    y.backward()
    close(g, 12.0)


def test_inputs_argument(lib: Any) -> None:
    x, w = lib.tensor(2.0, requires_grad=True), lib.tensor(3.0, requires_grad=True)
    (x * w).backward(inputs=[x])
    close(x.grad, 3.0)
    assert w.grad is None


def test_inputs_argument_may_be_one_tensor(lib: Any) -> None:
    x, w = lib.tensor(2.0, requires_grad=True), lib.tensor(3.0, requires_grad=True)
    (x * w).backward(inputs=w)
    close(w.grad, 2.0)
    assert x.grad is None


def test_inputs_argument_empty(lib: Any) -> None:
    x = lib.tensor(2.0, requires_grad=True)
    with raises(lib, RuntimeError, "empty"):
        (x * x).backward(inputs=[])


def test_backward_on_a_leaf(lib: Any) -> None:
    x = lib.tensor(2.0, requires_grad=True)
    x.backward()
    close(x.grad, 1.0)


def test_broadcast_is_summed_back(lib: Any) -> None:
    x, y = lib.ones(3, 1, requires_grad=True), lib.ones(4, requires_grad=True)
    (x * y).sum().backward()
    close(x.grad, np.full((3, 1), 4.0))
    close(y.grad, np.full(4, 3.0))


def test_repeated_index_accumulates(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0, 3.0], requires_grad=True)
    x[lib.tensor([0, 0, 1])].sum().backward()
    close(x.grad, [2.0, 1.0, 0.0])


def test_centred_vector(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0, 3.0, 5.0], requires_grad=True)
    y = x - x.mean()
    y.backward(lib.ones(4), retain_graph=True)
    close(x.grad, np.zeros(4))
    x.grad = None
    y.backward(lib.tensor([1.0, 0.0, 0.0, 0.0]))
    close(x.grad, [0.75, -0.25, -0.25, -0.25])


def test_autograd_backward_several(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    a, b = (x**2).sum(), x * 3
    lib.autograd.backward([a, b], [None, lib.tensor([1.0, 10.0])])
    close(x.grad, [2.0 + 3.0, 4.0 + 30.0])


def test_linear_chain_of_many_steps(lib: Any) -> None:
    x = lib.tensor(1.0, requires_grad=True)
    y = x
    for _ in range(50):
        y = y * 1.1 + x
    y.backward()
    expected = sum(1.1**k for k in range(50)) + 1.1**50
    close(x.grad, expected, 1e-10)


def test_observing_in_between_changes_nothing(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    y = x.exp()
    assert y.sum().item() > 0
    z = (y * x).sum()
    assert z.item() > 0
    z.backward()
    close(x.grad, np.exp([1.0, 2.0]) * np.array([2.0, 3.0]))


# -- autograd.grad -------------------------------------------------------------------------------


def test_grad_returns_a_tuple_and_leaves_grad_alone(lib: Any) -> None:
    x = lib.tensor(2.0, requires_grad=True)
    result = lib.autograd.grad(x**3, x)
    assert isinstance(result, tuple)
    close(result[0], 12.0)
    assert x.grad is None and not result[0].requires_grad


def test_grad_of_an_intermediate(lib: Any) -> None:
    x = lib.tensor(2.0, requires_grad=True)
    h = x * 3
    y = h**2 + x
    gh, gx = lib.autograd.grad(y, [h, x])
    close(gh, 12.0)
    close(gx, 37.0)


def test_grad_sums_outputs(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    (g,) = lib.autograd.grad([x.sum(), (x**2).sum()], x)
    close(g, [3.0, 5.0])


def test_grad_unused(lib: Any) -> None:
    x, w = lib.tensor(2.0, requires_grad=True), lib.tensor(3.0, requires_grad=True)
    with raises(lib, RuntimeError, "not have been used", "allow_unused"):
        lib.autograd.grad(x * x, [x, w])
    gx, gw = lib.autograd.grad(x * x, [x, w], allow_unused=True)
    assert gw is None
    close(gx, 4.0)
    _, gw = lib.autograd.grad(x * x, [x, w], materialize_grads=True)
    close(gw, 0.0)


def test_grad_input_without_requires_grad(lib: Any) -> None:
    x, w = lib.tensor(2.0, requires_grad=True), lib.tensor(3.0)
    with raises(lib, RuntimeError, "require grad"):
        lib.autograd.grad(x * w, w)


def test_grad_batched(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x**2
    (j,) = lib.autograd.grad(y, x, lib.eye(3), is_grads_batched=True)
    close(j, np.diag([2.0, 4.0, 6.0]))


def test_grad_of_grad_needs_create_graph(lib: Any) -> None:
    x = lib.tensor(2.0, requires_grad=True)
    (g,) = lib.autograd.grad(x**3, x)
    with raises(lib, RuntimeError, "does not require grad"):
        lib.autograd.grad(g, x)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_derivatives_of_every_order(lib: Any, order: int) -> None:
    x = lib.tensor(0.7, requires_grad=True)
    y = x.sin()
    for k in range(order):
        (y,) = lib.autograd.grad(y, x, create_graph=k < order - 1)
    expected = [np.cos(0.7), -np.sin(0.7), -np.cos(0.7), np.sin(0.7)][order - 1]
    close(y, expected)


def test_hessian_vector_product(lib: Any) -> None:
    x = lib.tensor([0.1, 0.2, 0.3], requires_grad=True)
    v = lib.tensor([1.0, -2.0, 0.5])
    y = (x.exp() * x.roll(1, 0)).sum()
    (g,) = lib.autograd.grad(y, x, create_graph=True)
    (h,) = lib.autograd.grad((g * v).sum(), x)
    rows = []
    for k in range(3):
        y = (x.exp() * x.roll(1, 0)).sum()
        (g,) = lib.autograd.grad(y, x, create_graph=True)
        rows.append(values(lib.autograd.grad(g[k], x)[0]))
    close(h, np.array(rows) @ np.array([1.0, -2.0, 0.5]))


def test_second_order_through_an_intermediate(lib: Any) -> None:
    x = lib.tensor(1.5, requires_grad=True)
    h = x**2
    y = h**3
    (g,) = lib.autograd.grad(y, h, create_graph=True)
    (s,) = lib.autograd.grad(g, h, create_graph=True)
    close(s, 6 * 1.5**2)
    (t,) = lib.autograd.grad(g, x)
    close(t, 6 * 1.5**2 * 2 * 1.5)


def test_gradient_penalty(lib: Any) -> None:
    w = lib.tensor([1.0, -2.0], requires_grad=True)
    x = lib.tensor([0.5, 0.3], requires_grad=True)
    (g,) = lib.autograd.grad((w * x).tanh().sum(), x, create_graph=True)
    ((g**2).sum()).backward()
    eps = 1e-6

    def penalty(w: Any) -> float:
        x = np.array([0.5, 0.3])
        return float((((1 - np.tanh(w * x) ** 2) * w) ** 2).sum())

    base = np.array([1.0, -2.0])
    numeric = [(penalty(base + eps * e) - penalty(base - eps * e)) / (2 * eps) for e in np.eye(2)]
    close(w.grad, numeric, 1e-7)


def test_create_graph_after_observing(lib: Any) -> None:
    x = lib.tensor(2.0, requires_grad=True)
    y = x**4
    assert y.item() == 16.0
    (g,) = lib.autograd.grad(y, x, create_graph=True)
    assert g.item() == 32.0
    (h,) = lib.autograd.grad(g, x)
    close(h, 48.0)


# -- modes ----------------------------------------------------------------------------------------


def test_no_grad(lib: Any) -> None:
    x = lib.tensor(1.0, requires_grad=True)
    with lib.no_grad():
        y = x * 2
        w = lib.tensor(1.0, requires_grad=True)
        assert not lib.is_grad_enabled()
    assert not y.requires_grad and y.is_leaf and w.requires_grad
    assert (x * 2).requires_grad


def test_enable_grad_inside_no_grad(lib: Any) -> None:
    x = lib.tensor(2.0, requires_grad=True)
    with lib.no_grad(), lib.enable_grad():
        y = x * x
    y.backward()
    close(x.grad, 4.0)


def test_modes_as_decorators(lib: Any) -> None:
    x = lib.tensor(2.0, requires_grad=True)

    @lib.no_grad()
    def off(x: Any) -> Any:
        return x * 2

    @lib.enable_grad()
    def on(x: Any) -> Any:
        return x * 2

    assert not off(x).requires_grad
    with lib.no_grad():
        assert on(x).requires_grad
    assert off.__name__ == "off"


def test_set_grad_enabled(lib: Any) -> None:
    x = lib.tensor(2.0, requires_grad=True)
    with lib.set_grad_enabled(False):
        assert not (x * 2).requires_grad
    assert (x * 2).requires_grad
    lib.set_grad_enabled(False)
    assert not lib.is_grad_enabled()
    lib.set_grad_enabled(True)
    assert lib.is_grad_enabled()


@pytest.mark.parametrize("decorated", [True, False])
def test_modes_are_restored_after_an_error(lib: Any, decorated: bool) -> None:
    def fails() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        if decorated:
            lib.no_grad()(fails)()
        else:
            with lib.no_grad():
                fails()
    assert lib.is_grad_enabled()


def test_modes_nest(lib: Any) -> None:
    with lib.no_grad():
        with lib.no_grad():
            pass
        assert not lib.is_grad_enabled()
    assert lib.is_grad_enabled()


def test_modes_are_per_thread(lib: Any) -> None:
    import threading

    seen = []
    with lib.no_grad():
        thread = threading.Thread(target=lambda: seen.append(lib.is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


def test_inference_mode(lib: Any) -> None:
    x = lib.tensor(2.0, requires_grad=True)
    with lib.inference_mode():
        y = x * 2
        assert y.is_inference() and not y.requires_grad
    assert not (x * 2).is_inference()


def test_inference_tensor_cannot_be_saved(lib: Any) -> None:
    x = lib.tensor(2.0, requires_grad=True)
    with lib.inference_mode():
        c = lib.tensor(3.0) * 1
    with raises(lib, RuntimeError, "[Ii]nference", "clone"):
        (x * c).backward()
    (x * c.clone()).backward()
    close(x.grad, 3.0)


def test_detached_part_carries_no_gradient(lib: Any) -> None:
    x = lib.tensor(3.0, requires_grad=True)
    (x * x.detach()).backward()
    close(x.grad, 3.0)


def test_value_used_in_both_ways(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    y = x.exp()
    with lib.no_grad():
        scale = y.sum()
    (y / scale).sum().backward()
    close(x.grad, np.exp([1.0, 2.0]) / np.exp([1.0, 2.0]).sum())


# -- hooks ------------------------------------------------------------------------------------------


def test_hook_on_a_leaf(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    handle = x.register_hook(lambda g: g * 10)
    x.sum().backward()
    close(x.grad, [10.0, 10.0])
    handle.remove()
    x.sum().backward()
    close(x.grad, [11.0, 11.0])


def test_hook_on_an_intermediate(lib: Any) -> None:
    x = lib.tensor(2.0, requires_grad=True)
    y = x * 3
    seen = []
    y.register_hook(lambda g: seen.append(g.item()))
    y.register_hook(lambda g: g + 1)
    (y**2).backward()
    assert seen == [12.0]
    close(x.grad, 39.0)


def test_hook_registered_after_use(lib: Any) -> None:
    x = lib.tensor(2.0, requires_grad=True)
    y = x * 3
    z = y**2
    y.register_hook(lambda g: g * 0)
    z.backward()
    close(x.grad, 0.0)


def test_hook_needs_requires_grad(lib: Any) -> None:
    with raises(lib, RuntimeError, "require gradient"):
        lib.tensor(1.0).register_hook(lambda g: g)


def test_hook_must_keep_the_shape(lib: Any) -> None:
    x = lib.ones(2, requires_grad=True)
    x.register_hook(lambda g: g.sum())
    with raises(lib, RuntimeError, "size"):
        x.sum().backward()


def test_post_accumulate_hook(lib: Any) -> None:
    x = lib.tensor(2.0, requires_grad=True)
    seen = []
    x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.item()))
    (x * x).backward()
    (x * x).backward()
    assert seen == [4.0, 8.0]


def test_post_accumulate_hook_needs_a_leaf(lib: Any) -> None:
    y = lib.tensor(2.0, requires_grad=True) * 2
    with raises(lib, RuntimeError, "leaf"):
        y.register_post_accumulate_grad_hook(lambda p: None)


def test_node_hooks_and_their_order(lib: Any) -> None:
    x, c = lib.tensor(2.0, requires_grad=True), lib.tensor(5.0)
    y = x * c
    order = []
    y.register_hook(lambda g: order.append("tensor"))
    y.grad_fn.register_prehook(lambda out: order.append("pre"))
    y.grad_fn.register_hook(lambda ins, outs: order.append((ins[0].item(), ins[1], outs[0].item())))
    (y * 2).backward()
    assert order == ["tensor", "pre", (10.0, None, 2.0)]
    close(x.grad, 10.0)


def test_node_hook_replaces_grad_inputs(lib: Any) -> None:
    x = lib.tensor(2.0, requires_grad=True)
    y = x.exp()
    y.grad_fn.register_hook(lambda ins, outs: (ins[0] * 0 + 7,))
    y.backward()
    close(x.grad, 7.0)


def test_node_prehook_replaces_grad_outputs(lib: Any) -> None:
    x = lib.tensor(2.0, requires_grad=True)
    y = x * 3
    y.grad_fn.register_prehook(lambda outs: (outs[0] * 2,))
    y.backward()
    close(x.grad, 6.0)


def test_saved_tensors_hooks(lib: Any) -> None:
    packed, unpacked = [], []

    def pack(t: Any) -> Any:
        packed.append(t.item())
        return t

    def unpack(t: Any) -> Any:
        unpacked.append(t.item())
        return t

    x = lib.tensor(3.0, requires_grad=True)
    with lib.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = x * x
    assert packed == [3.0, 3.0] and unpacked == []
    y.backward()
    assert unpacked == [3.0, 3.0]
    close(x.grad, 6.0)


def test_saved_tensors_hooks_may_change_values(lib: Any) -> None:
    x = lib.tensor(3.0, requires_grad=True)
    with lib.autograd.graph.saved_tensors_hooks(lambda t: t * 0 + 10, lambda t: t):
        y = x.sin() * 1.0
    y.backward()
    close(x.grad, np.cos(10.0))


# -- conversions, copies ------------------------------------------------------------------------------


def test_numpy_needs_detach(lib: Any) -> None:
    x = lib.ones(2, requires_grad=True)
    with raises(lib, RuntimeError, "detach"):
        x.numpy()
    assert x.detach().numpy().tolist() == [1.0, 1.0]


def test_bool_of_many(lib: Any) -> None:
    with raises(lib, RuntimeError, "ambiguous"):
        bool(lib.ones(2))


def test_item_of_many(lib: Any) -> None:
    with raises(lib, RuntimeError, "2 elements"):
        lib.ones(2).item()


def test_deepcopy(lib: Any) -> None:
    import copy

    x = lib.tensor([1.0], requires_grad=True)
    y = copy.deepcopy(x)
    assert y is not x and y.requires_grad and y.is_leaf
    with raises(lib, RuntimeError, "leaf"):
        copy.deepcopy(x * 2)


def test_pickle(lib: Any) -> None:
    import pickle

    x = lib.tensor([1.0, 2.0], requires_grad=True)
    y = pickle.loads(pickle.dumps(x))
    assert y.requires_grad
    close(y, [1.0, 2.0])


def test_clone_is_differentiable(lib: Any) -> None:
    x = lib.tensor(2.0, requires_grad=True)
    (x.clone() * 3).backward()
    close(x.grad, 3.0)


def test_repr(lib: Any) -> None:
    assert repr(lib.tensor(7.0)) == "tensor(7.)"
    assert repr(lib.tensor([0.2, 0.8])) == "tensor([0.2000, 0.8000])"
    assert repr(lib.tensor([1, 2])) == "tensor([1, 2])"
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    assert repr(x) == "tensor([1., 2.], requires_grad=True)"
    assert repr(x * 2) == "tensor([2., 4.], grad_fn=<MulBackward0>)"


def test_zero_grad_in_place(lib: Any) -> None:
    x = lib.tensor(2.0, requires_grad=True)
    (x * x).backward()
    x.grad.zero_()
    close(x.grad, 0.0)
    (x * x).backward()
    close(x.grad, 4.0)
