"""Writes in place: versions, what may be written, views and slices."""

from __future__ import annotations

import importlib
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


def test_version_counts_writes(lib: Any) -> None:
    x = lib.zeros(2)
    assert x._version == 0
    x.add_(1)
    x *= 2
    x[0] = 5
    assert x._version == 3
    close(x, [5.0, 2.0])


@pytest.mark.parametrize("how", ["add_", "iadd", "setitem", "zero_", "copy_"])
def test_leaf_cannot_be_written(lib: Any, how: str) -> None:
    x = lib.ones(2, requires_grad=True)
    with raises(lib, RuntimeError, "leaf"):
        if how == "add_":
            x.add_(1)
        elif how == "iadd":
            x += 1
        elif how == "setitem":
            x[0] = 5
        elif how == "zero_":
            x.zero_()
        else:
            x.copy_(lib.zeros(2))
    close(x, [1.0, 1.0])


def test_view_of_a_leaf_cannot_be_written(lib: Any) -> None:
    x = lib.ones(4, requires_grad=True)
    v = x.view(2, 2)
    with raises(lib, RuntimeError, "view of a leaf"):
        v.add_(1)


@pytest.mark.parametrize("steps", [1, 5])
def test_leaf_may_be_written_without_grad(lib: Any, steps: int) -> None:
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    for _ in range(steps):
        (x * x).sum().backward()
        with lib.no_grad():
            x -= 0.1 * x.grad
            x.grad = None
    assert x.is_leaf and x.requires_grad
    close(x, np.array([1.0, 2.0]) * 0.8**steps)


def test_leaf_slice_written_without_grad(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    with lib.no_grad():
        x[0] = 7.0
        x[1].add_(1)
    assert x.is_leaf and x.requires_grad
    close(x, [7.0, 3.0])
    (x * x).sum().backward()
    close(x.grad, [14.0, 6.0])


def test_saved_operand_written(lib: Any) -> None:
    x = lib.ones(3, requires_grad=True)
    y = x * 2
    z = y * y
    y.add_(1)
    with raises(lib, RuntimeError, "modified by an inplace operation", r"\[3\]", "version 1"):
        z.sum().backward()


def test_saved_result_written(lib: Any) -> None:
    x = lib.ones(3, requires_grad=True)
    y = x.exp()
    z = y + 1
    y.mul_(2)
    with raises(lib, RuntimeError, "inplace", "ExpBackward0", "expected version 0"):
        z.sum().backward()


def test_saved_leaf_written_without_grad(lib: Any) -> None:
    x = lib.ones(3, requires_grad=True)
    y = (x * x).sum()
    with lib.no_grad():
        x.add_(1)
    with raises(lib, RuntimeError, "inplace"):
        y.backward()


def test_saved_constant_written(lib: Any) -> None:
    x, c = lib.ones(3, requires_grad=True), lib.ones(3)
    y = (x * c).sum()
    c.add_(1)
    with raises(lib, RuntimeError, "inplace"):
        y.backward()


def test_unsaved_leaf_written_without_grad(lib: Any) -> None:
    x = lib.ones(3, requires_grad=True)
    y = (x + x).sum()
    with lib.no_grad():
        x.add_(1)
    y.backward()
    close(x.grad, [2.0, 2.0, 2.0])


def test_unsaved_operand_written(lib: Any) -> None:
    x = lib.ones(3, requires_grad=True)
    y = x * 2
    z = y + 3
    y.mul_(5)
    (z.sum() + y.sum()).backward()
    close(x.grad, [12.0, 12.0, 12.0])


def test_unsaved_result_overwritten(lib: Any) -> None:
    a = lib.tensor([1.0, 0.0, 3.0], requires_grad=True)
    b = 1 / ((-a).exp() + 1)
    b[1] = 2
    b.sum().backward()
    s = 1 / (1 + np.exp(-np.array([1.0, 0.0, 3.0])))
    close(a.grad, s * (1 - s) * [1, 0, 1])


def test_graph_is_usable_after_the_error(lib: Any) -> None:
    x = lib.ones(3, requires_grad=True)
    y = x * 2
    z = (y * y).sum()
    y.add_(1)
    with pytest.raises(RuntimeError):
        z.backward()
    assert x.grad is None
    (x * 3).sum().backward()
    close(x.grad, [3.0, 3.0, 3.0])


def test_in_place_chain_is_differentiated(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    y = x * 1
    y += x
    y.mul_(3)
    y[0] = y[0] + x[1]
    y.sum().backward()
    close(x.grad, [6.0, 7.0])


def test_overwriting_an_operand_afterwards(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    y = x * x
    c = x.clone()
    c.mul_(0)
    (y * x).sum().backward()
    close(x.grad, [3.0, 12.0])


def test_buffer_filled_from_leaf(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0, 3.0], requires_grad=True)
    buf = lib.zeros(2, 4)
    buf[:1, :3] = x
    assert buf.requires_grad
    (buf**2).sum().backward()
    close(x.grad, [2.0, 4.0, 6.0])


def test_row_by_row(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    out = lib.zeros(3, 2)
    for k in range(3):
        out[k] = x * (k + 1)
    (out * lib.tensor([[1.0, 10.0]])).sum().backward()
    close(x.grad, [6.0, 60.0])


def test_recurrence_in_place(lib: Any) -> None:
    x = lib.tensor([2.0, 0.5], requires_grad=True)
    s = lib.zeros(4)
    s[0] = x[0]
    for k in range(1, 4):
        s[k] = s[k - 1] + s[k - 1].clone() * x[1] * 2
    s[3].backward()
    close(x.grad, [8.0, 48.0])


def test_accumulate_through_a_view(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    y = lib.zeros(4)
    v = y[1:3]
    v += x
    y[2] *= 3
    close(y, [0.0, 1.0, 6.0, 0.0])
    (y**2).sum().backward()
    close(x.grad, [2.0, 36.0])


@pytest.mark.parametrize("kind", ["view", "slice", "transpose", "squeeze", "select", "twice"])
def test_views_share_storage(lib: Any, kind: str) -> None:
    x = lib.arange(6).to(lib.float64).reshape(2, 3).clone()
    make = {
        "view": lambda t: t.view(6),
        "slice": lambda t: t[:, 1:],
        "transpose": lambda t: t.t(),
        "squeeze": lambda t: t.unsqueeze(0),
        "select": lambda t: t[1],
        "twice": lambda t: t.t()[1:].reshape(-1) if False else t.t()[1:],
    }[kind]
    v = make(x)
    array = np.arange(6.0).reshape(2, 3)
    w = {
        "view": lambda t: t.reshape(6),
        "slice": lambda t: t[:, 1:],
        "transpose": lambda t: t.T,
        "squeeze": lambda t: t[None],
        "select": lambda t: t[1],
        "twice": lambda t: t.T[1:],
    }[kind](array)
    v.add_(10)
    w += 10
    close(x, array)
    x.mul_(2)
    array *= 2
    close(v, w)
    assert v._version == x._version == 2


def test_detach_shares_storage_and_version(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    y = x * 1
    d = y.detach()
    out = (y * y).sum()
    d.add_(1)
    close(y, [2.0, 3.0])
    assert y._version == d._version == 1
    with raises(lib, RuntimeError, "inplace"):
        out.backward()


def test_detach_of_leaf_written(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    x.detach().mul_(3)
    close(x, [3.0, 6.0])
    assert x.is_leaf and x.requires_grad
    (x * x).sum().backward()
    close(x.grad, [6.0, 12.0])


def test_clone_does_not_share(lib: Any) -> None:
    x = lib.ones(2)
    c = x.clone()
    c.add_(1)
    close(x, [1.0, 1.0])


def test_detach_in_place(lib: Any) -> None:
    y = lib.ones(2, requires_grad=True) * 2
    y.detach_()
    assert y.is_leaf and not y.requires_grad


def test_in_place_keeps_the_dtype(lib: Any) -> None:
    x = lib.ones(2, dtype=lib.float32)
    x += lib.ones(2, dtype=lib.float64)
    assert x.dtype == lib.float32
    i = lib.tensor([1, 2])
    with raises(lib, RuntimeError, "cast"):
        i += 0.5


def test_in_place_keeps_the_shape(lib: Any) -> None:
    x = lib.ones(2)
    with raises(lib, RuntimeError, "shape"):
        x += lib.ones(3, 2)


def test_expanded_cannot_be_written(lib: Any) -> None:
    x = lib.ones(1, 2).expand(3, 2)
    with raises(lib, RuntimeError, "expanded"):
        x.add_(1)


def test_masked_write(lib: Any) -> None:
    x = lib.tensor([1.0, -2.0, 3.0], requires_grad=True)
    y = x * 2
    y[y < 0] = 0.0
    y.sum().backward()
    close(y, [2.0, 0.0, 6.0])
    close(x.grad, [2.0, 0.0, 2.0])


def test_masked_write_of_a_tensor(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    y = lib.zeros(4)
    y[lib.tensor([True, False, True, False])] = x * 3
    close(y, [3.0, 0.0, 6.0, 0.0])
    y.sum().backward()
    close(x.grad, [3.0, 3.0])


def test_index_write(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    y = lib.ones(2, 3) * 5
    y[lib.tensor([0, 1]), lib.tensor([2, 0])] = x
    close(y, [[5.0, 5.0, 1.0], [2.0, 5.0, 5.0]])
    (y * y).sum().backward()
    close(x.grad, [2.0, 4.0])


@pytest.mark.parametrize(
    "name", ["exp_", "neg_", "sqrt_", "sigmoid_", "tanh_", "abs_", "zero_", "relu_"]
)
def test_method_with_underscore(lib: Any, name: str) -> None:
    x = lib.tensor([0.5, 2.0])
    same = getattr(x, name)()
    assert same is x
    f = {
        "exp_": np.exp, "neg_": np.negative, "sqrt_": np.sqrt, "tanh_": np.tanh, "abs_": np.abs,
        "sigmoid_": lambda a: 1 / (1 + np.exp(-a)), "zero_": lambda a: a * 0,
        "relu_": lambda a: np.maximum(a, 0),
    }[name]  # fmt: skip
    close(x, f(np.array([0.5, 2.0])))


def test_scalar_keys_out_of_range(lib: Any) -> None:
    x = lib.zeros(2)
    with raises(lib, IndexError, "out of bounds"):
        x[2]
    with raises(lib, IndexError, "out of bounds"):
        x[5] = 1.0
    with raises(lib, IndexError, "too many"):
        x[0, 0]


def test_old_value_stays_for_what_was_computed(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0])
    y = x * 2
    x.add_(10)
    close(y, [2.0, 4.0])
    close(x, [11.0, 12.0])
