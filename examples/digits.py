"""A 64-128-64-10 network learns handwritten digits: mini-batches, cross-entropy, Adam.

    pip install 'tapec[examples]'
    python examples/digits.py

Data: the 1,797 8x8 digits that scikit-learn ships.  Each training step (gather the batch, forward,
loss, all gradients) is one native call, and so is the optimiser's update.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import numpy as np

import tapec as torch

SIZES = (64, 128, 64, 10)
BATCH = 64


def data() -> Any:
    """Training and test images (scaled to 0..1) and labels, always split the same way."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = images[order] / 16.0, labels[order].astype(np.int64)
    return images[:1437], labels[:1437], images[1437:], labels[1437:]


def weights(seed: int = 0) -> list[Any]:
    """Initial weights as arrays: W1, b1, W2, b2, W3, b3."""
    rng = np.random.default_rng(seed)
    out = []
    for n, m in pairwise(SIZES):
        out.append(rng.normal(size=(n, m)) / np.sqrt(n))
        out.append(np.zeros(m))
    return out


def network(params: Any, x: Any) -> Any:
    """Two tanh layers and a linear one; for tensors of tapec and of PyTorch."""
    w1, b1, w2, b2, w3, b3 = params
    h = (x @ w1 + b1).tanh()
    h = (h @ w2 + b2).tanh()
    return h @ w3 + b3


def batches(n: int, epochs: int) -> Any:
    """Index arrays of full mini-batches, in a fixed random order."""
    rng = np.random.default_rng(7)
    for _ in range(epochs):
        order = rng.permutation(n)
        for k in range(0, n - BATCH + 1, BATCH):
            yield order[k : k + BATCH]


def train(lib: Any, epochs: int = 30, steps: int | None = None) -> tuple[list[float], Any, float]:
    """Losses, parameters and seconds per step; ``lib`` is ``tapec`` or ``torch``."""
    from importlib import import_module

    functional = import_module(f"{lib.__name__}.nn.functional")
    images, labels, _, _ = data()
    x, y = lib.tensor(images), lib.tensor(labels)
    params = [lib.tensor(w, requires_grad=True) for w in weights()]
    optimizer = import_module(f"{lib.__name__}.optim").Adam(params, lr=2e-3)
    losses: list[Any] = []
    times: list[float] = []
    for index in batches(len(images), epochs):
        start = time.perf_counter()
        batch = lib.tensor(index)
        optimizer.zero_grad()
        loss = functional.cross_entropy(network(params, x[batch]), y[batch])
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
        losses.append(loss.detach())
        if steps is not None and len(losses) == steps:
            break
    return [float(loss) for loss in losses], params, float(np.median(times))


def accuracy(params: Any) -> float:
    """The share of test digits that are recognised."""
    _, _, images, labels = data()
    with torch.no_grad():
        predicted = network(params, torch.tensor(images)).argmax(dim=1)
        return float((predicted == torch.tensor(labels)).to(torch.float64).mean().item())


def main() -> None:
    try:
        data()
    except ImportError:
        print("this example needs scikit-learn: pip install 'tapec[examples]'")
        return
    losses, params, seconds = train(torch)
    score = accuracy(params)
    print(
        f"{len(losses)} steps, {1e6 * seconds:.0f} µs each; "
        f"loss {losses[0]:.3f} -> {losses[-1]:.4f}"
    )
    print(f"test accuracy {100 * score:.1f} %")
    assert score >= 0.97, score


if __name__ == "__main__":
    main()
