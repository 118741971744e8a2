"""PyTorch's automatic differentiation, with only the import changed.

    python examples/pytorch_tour.py

The usual tour of autograd: a scalar, a vector-Jacobian product, ``retain_graph`` and
``create_graph``, accumulation, several losses, ``no_grad``.  Every graph that is recorded here is
compiled to one native function for its value and all gradients.
"""

from __future__ import annotations

import tapec as torch


def scalar() -> float:
    """y = x² + 3x at 2: the derivative is 7."""
    x = torch.tensor(2.0, requires_grad=True)
    y = x**2 + 3 * x
    y.backward()
    assert x.grad is not None
    return float(x.grad.item())


def two_variables() -> tuple[float, float]:
    """z = x² y at (2, 3): the partial derivatives are 12 and 4."""
    x = torch.tensor(2.0, requires_grad=True)
    y = torch.tensor(3.0, requires_grad=True)
    (x**2 * y).backward()
    return float(x.grad.item()), float(y.grad.item())


def vector() -> list[float]:
    """A vector result needs a vector: ``gradient`` is the v of vᵀJ."""
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = x**2
    y.backward(gradient=torch.tensor([0.1, 0.2]))
    return [float(g) for g in x.grad.tolist()]


def twice() -> tuple[float, str]:
    """The graph is freed after backward, unless it is retained; gradients add up."""
    x = torch.tensor(2.0, requires_grad=True)
    y = x**2
    y.backward(retain_graph=True)
    y.backward()
    try:
        y.backward()
    except RuntimeError as error:
        return float(x.grad.item()), str(error)
    raise AssertionError("a third backward should fail")


def higher_orders() -> tuple[float, float, float]:
    """Derivatives of x³ at 2: 12, 12, 6."""
    x = torch.tensor(2.0, requires_grad=True)
    y = x**3
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    (second,) = torch.autograd.grad(first, x, create_graph=True)
    (third,) = torch.autograd.grad(second, x)
    return first.item(), second.item(), third.item()


def hessian_vector_product() -> list[float]:
    """H v for f = Σ x³: 6 x v, without H."""
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    v = torch.tensor([1.0, 0.0, 2.0])
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad((g * v).sum(), x)
    return [float(k) for k in h.tolist()]


def accumulation() -> tuple[list[float], list[float]]:
    """Four micro-batches, each loss divided by four, give the gradient of the whole batch."""
    torch.manual_seed(0)
    x, y = torch.randn(32, 3), torch.randn(32)
    grads = []
    for batches in (1, 4):
        w = torch.zeros(3, requires_grad=True)
        for xs, ys in zip(x.chunk(batches), y.chunk(batches)):
            loss = ((xs @ w - ys) ** 2).mean() / batches
            loss.backward()
        grads.append([float(g) for g in w.grad.tolist()])
    return grads[0], grads[1]


def several_losses() -> tuple[list[float], list[float]]:
    """Two tasks on shared parameters: one backward of the sum, or one each."""
    together = torch.tensor([1.0, 2.0], requires_grad=True)
    apart = torch.tensor([1.0, 2.0], requires_grad=True)
    hidden = together.exp()
    (0.5 * hidden.sum() + 2.0 * (hidden**2).sum()).backward()
    hidden = apart.exp()
    (0.5 * hidden.sum()).backward(retain_graph=True)
    (2.0 * (hidden**2).sum()).backward()
    return [float(g) for g in together.grad.tolist()], [float(g) for g in apart.grad.tolist()]


def without_recording() -> tuple[bool, bool]:
    """``no_grad`` for evaluation, ``detach`` for constants."""
    x = torch.tensor(2.0, requires_grad=True)
    with torch.no_grad():
        y = x * 2
    return y.requires_grad, x.detach().requires_grad


def training_loop() -> tuple[float, int]:
    """Gradient descent by hand: the loop compiles in its first step, then only runs."""
    torch.manual_seed(1)
    true = torch.tensor([2.0, -1.0, 0.5])
    x = torch.randn(64, 3)
    y = x @ true
    w = torch.zeros(3, requires_grad=True)
    for step in range(300):
        loss = ((x @ w - y) ** 2).mean()
        loss.backward()
        with torch.no_grad():
            w -= 0.1 * w.grad
            w.grad.zero_()
        if step == 2:
            before = torch.stats()["compiled"]
    compiled = torch.stats()["compiled"] - before
    return float((w - true).abs().max().item()), compiled


def main() -> None:
    print("d(x² + 3x)/dx at 2:", scalar())
    print("partial derivatives of x² y at (2, 3):", two_variables())
    print("vᵀJ of x² at (1, 2), v = (0.1, 0.2):", vector())
    total, message = twice()
    print("backward twice:", total)
    print("a third time:", message.split(";")[-1].strip())
    print("derivatives of x³ at 2:", higher_orders())
    print("H v of Σ x³:", hessian_vector_product())
    whole, parts = accumulation()
    print("whole batch:", [round(g, 6) for g in whole], "four parts:", [round(g, 6) for g in parts])
    sum_of_losses, one_by_one = several_losses()
    print("sum of losses:", [round(g, 6) for g in sum_of_losses])
    print("one by one:   ", [round(g, 6) for g in one_by_one])
    print("requires_grad inside no_grad, after detach:", without_recording())
    error, compiled = training_loop()
    print(f"training: error {error:.1e}, programs compiled after the third step: {compiled}")

    assert scalar() == 7.0
    assert two_variables() == (12.0, 4.0)
    assert max(abs(a - b) for a, b in zip(vector(), [0.2, 0.8])) < 1e-15
    assert total == 8.0 and "retain_graph" in message
    assert higher_orders() == (12.0, 12.0, 6.0)
    assert hessian_vector_product() == [6.0, 0.0, 36.0]
    assert max(abs(a - b) for a, b in zip(whole, parts)) < 1e-12
    assert max(abs(a - b) for a, b in zip(sum_of_losses, one_by_one)) < 1e-12
    assert without_recording() == (False, False)
    assert error < 1e-6 and compiled == 0


if __name__ == "__main__":
    main()
