"""Optimisers, schedules, multi-task training, and 200 random programs against the functional API."""

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


def optim(lib: Any) -> Any:
    return importlib.import_module(f"{lib.__name__}.optim")


OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda o, p: o.SGD(p, lr=0.1),
    "momentum": lambda o, p: o.SGD(p, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.01),
    "nesterov": lambda o, p: o.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda o, p: o.Adam(p, lr=0.1, weight_decay=0.01),
    "amsgrad": lambda o, p: o.Adam(p, lr=0.1, amsgrad=True),
    "adamw": lambda o, p: o.AdamW(p, lr=0.1),
    "rmsprop": lambda o, p: o.RMSprop(p, lr=0.05, weight_decay=0.01),
    "rmsprop_centered": lambda o, p: o.RMSprop(p, lr=0.05, momentum=0.5, centered=True),
    "adagrad": lambda o, p: o.Adagrad(p, lr=0.5, lr_decay=0.1),
    "maximize": lambda o, p: o.SGD(p, lr=0.01, maximize=True),
}


def trained(lib: Any, make: Any, steps: int = 6) -> Any:
    w = lib.tensor([1.0, -2.0], requires_grad=True)
    b = lib.tensor(0.5, requires_grad=True)
    optimizer = make(optim(lib), [w, b])
    for _ in range(steps):
        optimizer.zero_grad()
        loss = ((w * lib.tensor([1.0, 3.0])).sum() + b - 1) ** 2 + (w**4).sum() * 0.01
        loss.backward()
        optimizer.step()
    return np.concatenate([values(w), [values(b).item()]])


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_optimizers_follow_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    import tapec

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        theirs = trained(torch, OPTIMIZERS[name])
    finally:
        torch.set_default_dtype(before)
    np.testing.assert_allclose(trained(tapec, OPTIMIZERS[name]), theirs, rtol=1e-12, atol=1e-12)


def test_sgd_by_hand(lib: Any) -> None:
    w = lib.tensor(1.0, requires_grad=True)
    optimizer = optim(lib).SGD([w], lr=0.1, momentum=0.5)
    expected, velocity = 1.0, 0.0
    for _ in range(4):
        optimizer.zero_grad()
        (w**2).backward()
        optimizer.step()
        velocity = 0.5 * velocity + 2 * expected
        expected -= 0.1 * velocity
    close(w, expected)


def test_adam_by_hand(lib: Any) -> None:
    w = lib.tensor(1.0, requires_grad=True)
    optimizer = optim(lib).Adam([w], lr=0.1)
    x, m, v = 1.0, 0.0, 0.0
    for t in range(1, 5):
        optimizer.zero_grad()
        (w**2).backward()
        optimizer.step()
        g = 2 * x
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        x -= 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    close(w, x)


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs(lib: Any, search: Any) -> None:
    w = lib.tensor([-1.0, 2.0], requires_grad=True)
    optimizer = optim(lib).LBFGS([w], lr=0.5 if search is None else 1.0, max_iter=60,
                                 line_search_fn=search)  # fmt: skip

    def closure() -> Any:
        optimizer.zero_grad()
        loss = ((w - lib.tensor([3.0, 1.0])) ** 2 * lib.tensor([1.0, 10.0])).sum()
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    close(w, [3.0, 1.0], 1e-5)


def test_closure_and_parameter_groups(lib: Any) -> None:
    a, b = lib.tensor(1.0, requires_grad=True), lib.tensor(1.0, requires_grad=True)
    optimizer = optim(lib).SGD([{"params": [a]}, {"params": [b], "lr": 1.0}], lr=0.1)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = a + b
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 2.0
    close(a, 0.9)
    close(b, 0.0)


def test_state_dict_round_trip(lib: Any) -> None:
    def run(steps: int, resume: bool) -> Any:
        w = lib.tensor([1.0, 2.0], requires_grad=True)
        optimizer = optim(lib).Adam([w], lr=0.1)
        for k in range(steps):
            if resume and k == 2:
                state = optimizer.state_dict()
                optimizer = optim(lib).Adam([w], lr=0.5)
                optimizer.load_state_dict(state)
            optimizer.zero_grad()
            (w**2).sum().backward()
            optimizer.step()
        return values(w)

    np.testing.assert_allclose(run(5, True), run(5, False))


def test_optimizer_refuses(lib: Any) -> None:
    w = lib.tensor(1.0, requires_grad=True)
    with raises(lib, ValueError, "empty"):
        optim(lib).SGD([], lr=0.1)
    with raises(lib, ValueError, "non-leaf"):
        optim(lib).SGD([w * 2], lr=0.1)
    with raises(lib, TypeError, "iterable"):
        optim(lib).SGD(w, lr=0.1)
    with raises(lib, ValueError, "learning_rate"):
        optim(lib).SGD([w], lr=-1.0)


def test_optimizer_skips_parameters_without_gradient(lib: Any) -> None:
    a, b = lib.tensor(1.0, requires_grad=True), lib.tensor(1.0, requires_grad=True)
    optimizer = optim(lib).Adam([a, b], lr=0.1)
    (a * 2).backward()
    optimizer.step()
    close(b, 1.0)


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("StepLR", {"step_size": 2, "gamma": 0.1}, [1.0, 1.0, 0.1, 0.1]),
        ("MultiStepLR", {"milestones": [1, 3], "gamma": 0.5}, [1.0, 0.5, 0.5, 0.25]),
        ("ExponentialLR", {"gamma": 0.5}, [1.0, 0.5, 0.25, 0.125]),
        ("CosineAnnealingLR", {"T_max": 2}, [1.0, 0.5, 0.0]),
        ("LinearLR", {"start_factor": 0.25, "total_iters": 3}, [0.25, 0.5, 0.75, 1.0]),
    ],
)
def test_schedules(lib: Any, name: str, arguments: Any, expected: Any) -> None:
    w = lib.tensor(1.0, requires_grad=True)
    optimizer = optim(lib).SGD([w], lr=1.0)
    schedule = getattr(optim(lib).lr_scheduler, name)(optimizer, **arguments)
    rates = []
    for _ in expected:
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    np.testing.assert_allclose(rates, expected, atol=1e-15)


def test_clip_grad_norm(lib: Any) -> None:
    utils = importlib.import_module(f"{lib.__name__}.nn.utils")
    a, b = lib.zeros(1, requires_grad=True), lib.zeros(1, requires_grad=True)
    a.grad, b.grad = lib.tensor([3.0]), lib.tensor([4.0])
    total = utils.clip_grad_norm_([a, b], 1.0)
    close(total, 5.0)
    close(a.grad, [0.6], 1e-6)
    close(b.grad, [0.8], 1e-6)
    utils.clip_grad_value_([a, b], 0.5)
    close(b.grad, [0.5])


# -- several losses -------------------------------------------------------------------------------


def test_gradient_accumulation_equals_the_full_batch(lib: Any) -> None:
    rng = np.random.default_rng(0)
    x, y = lib.tensor(rng.normal(size=(8, 3))), lib.tensor(rng.normal(size=8))
    grads = []
    for batches in (1, 4):
        w = lib.tensor([1.0, 2.0, 3.0], requires_grad=True)
        for xs, ys in zip(x.chunk(batches), y.chunk(batches)):
            (((xs @ w - ys) ** 2).mean() / batches).backward()
        grads.append(values(w.grad))
    np.testing.assert_allclose(grads[0], grads[1], rtol=1e-12)


def test_losses_apart_equal_their_sum(lib: Any) -> None:
    x = lib.tensor([1.0, 2.0], requires_grad=True)
    h = x.exp()
    a, b = (h * 2).sum(), (h**2).sum()
    a.backward(retain_graph=True)
    (0.5 * b).backward()
    close(x.grad, 2 * np.exp([1.0, 2.0]) + np.exp([2.0, 4.0]))


def test_uncertainty_weights() -> None:
    import tapec

    weights = tapec.multitask.UncertaintyWeights(["regression", "classification"])
    losses = [tapec.tensor(2.0), tapec.tensor(3.0)]
    close(weights(losses), 0.5 * 2 + 3)
    single = tapec.multitask.UncertaintyWeights(1)
    optimizer = tapec.optim.Adam(single.parameters(), lr=0.05)
    for _ in range(400):
        optimizer.zero_grad()
        single([tapec.tensor(2.5)]).backward()
        optimizer.step()
    close(single.log_variance.exp(), [2.5], 1e-3)  # at the optimum e^u is the loss


def test_gradnorm() -> None:
    import tapec

    shared = tapec.tensor([1.0, 2.0], requires_grad=True)
    gradnorm = tapec.multitask.GradNorm(2, alpha=1.0)

    def losses() -> Any:
        return [(shared**2).sum(), 10 * (shared[0] - 3) ** 2]

    norms = np.array([np.hypot(2.0, 4.0), 40.0])
    gradnorm.backward(losses(), [shared])
    sign = np.sign(norms - norms.mean())
    close(gradnorm.weights.grad, sign * norms)
    close(shared.grad, [2.0 - 40.0, 4.0])
    with tapec.no_grad():
        gradnorm.weights.sub_(gradnorm.weights.grad * 0.01)
    gradnorm.renormalize()
    assert abs(gradnorm.weights.sum().item() - 2) < 1e-12


def test_pcgrad() -> None:
    import tapec

    w = tapec.tensor([0.0, 0.0], requires_grad=True)
    g1, g2 = np.array([1.0, 0.0]), np.array([-1.0, 1.0])
    losses = [(w * tapec.tensor(g1)).sum(), (w * tapec.tensor(g2)).sum()]
    tapec.multitask.pcgrad(losses, [w])
    first = g1 - (g1 @ g2) / (g2 @ g2) * g2
    second = g2 - (g1 @ g2) / (g1 @ g1) * g1
    assert abs(first @ g2) < 1e-15 and abs(second @ g1) < 1e-15
    close(w.grad, first + second)


def test_magnitude_schedule() -> None:
    import tapec

    w = tapec.tensor(1.0, requires_grad=True)
    schedule = tapec.multitask.MagnitudeSchedule(2)
    found = schedule.update([w * 1, w * 3], [w])
    np.testing.assert_allclose(found, [1.5, 0.5])
    total = tapec.multitask.weighted_sum([w * 1, w * 3], found)
    total.backward()
    close(w.grad, 3.0)


# -- random programs against the functional API ---------------------------------------------------


class _Numpy:
    """The functions that random programs use, for traced arrays."""

    exp, sin, tanh, sqrt, log1p = np.exp, np.sin, np.tanh, np.sqrt, np.log1p
    maximum, where = np.maximum, np.where

    @staticmethod
    def total(x: Any) -> Any:
        return np.sum(x)


class _Tensors:
    """The same for tensors."""

    def __init__(self) -> None:
        import tapec

        self.exp, self.sin, self.tanh = tapec.exp, tapec.sin, tapec.tanh
        self.sqrt, self.log1p = tapec.sqrt, tapec.log1p
        self.maximum, self.where = tapec.maximum, tapec.where

    @staticmethod
    def total(x: Any) -> Any:
        return x.sum()


def step(L: Any, op: int, a: Any, b: Any, c: float) -> Any:
    """One of fourteen ways to make a new value."""
    choices: list[Any] = [
        lambda: a + b,
        lambda: a * b,
        lambda: a - c * b,
        lambda: a / (b * b + c),
        lambda: L.sin(a),
        lambda: L.tanh(a * c),
        lambda: L.exp(L.tanh(a)),
        lambda: L.sqrt(a * a + c),
        lambda: L.log1p(b * b),
        lambda: L.where(a > b, a * c, b),
        lambda: a * L.total(b) * 0.1,
        lambda: (a**3) * 0.1,
        lambda: (L.tanh(a)[::-1] if L is _Numpy else L.tanh(a).flip(0)) * b,
        lambda: (L.tanh(a) @ L.tanh(b)) * a,
    ]
    return choices[op]()


def random_program(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    steps = [(int(rng.integers(14)), int(rng.integers(4)), int(rng.integers(4)),
              float(rng.uniform(0.5, 1.5))) for _ in range(int(rng.integers(3, 8)))]  # fmt: skip

    def program(L: Any, x: Any) -> Any:
        values = [x, x * 0.5 + 1, x * x]
        for op, i, j, c in steps:
            a, b = values[-1 - i % len(values)], values[-1 - j % len(values)]
            new = step(L, op, a, b, c)
            values.append(new)
        return L.total(values[-1] * values[-2])

    return program


@pytest.mark.parametrize("block", range(20))
def test_random_programs(block: int) -> None:
    """Gradient, Hessian-vector product and third derivative agree with the functional API."""
    import tapec

    tensors = _Tensors()
    for seed in range(block * 10, block * 10 + 10):
        program = random_program(seed)
        rng = np.random.default_rng(1000 + seed)
        at, v = rng.uniform(-1, 1, 3), rng.uniform(-1, 1, 3)

        def f(x: Any, program: Any = program) -> Any:
            return program(_Numpy, x)

        gradient = tapec.grad(f)(at)
        product = tapec.hvp(f)(at, v)

        def curvature(x: Any, f: Any = f, v: Any = v) -> Any:
            return np.sum(tapec.hvp(f)(x, v) * v)

        third = tapec.grad(curvature)(at)

        x, w = tapec.tensor(at, requires_grad=True), tapec.tensor(v)
        (g,) = tapec.autograd.grad(program(tensors, x), x, create_graph=True)
        (h,) = tapec.autograd.grad((g * w).sum(), x, create_graph=True)
        (t,) = tapec.autograd.grad((h * w).sum(), x, allow_unused=True, materialize_grads=True)
        scale = 1 + np.abs(gradient).max() + np.abs(product).max() + np.abs(third).max()
        for found, expected in ((g, gradient), (h, product), (t, third)):
            np.testing.assert_allclose(values(found), expected, rtol=1e-9, atol=1e-10 * scale)
