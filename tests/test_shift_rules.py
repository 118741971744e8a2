"""Shift-invariant exponentials: right derivatives to order 2, and nothing left of the maximum."""

from __future__ import annotations

import numpy as np
import pytest

import tapec


def logsumexp(x):
    m = np.max(x, axis=1, keepdims=True)
    return np.squeeze(m, 1) + np.log(np.sum(np.exp(x - m), axis=1))


def softmax(x):
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    return e / np.sum(e, axis=1, keepdims=True)


def log_softmax(x):
    z = x - np.max(x, axis=1, keepdims=True)
    return z - np.log(np.sum(np.exp(z), axis=1, keepdims=True))


X = np.random.default_rng(0).normal(size=(20, 30)) * 3
X[3, :5] = X[3].max()  # ties
W = np.random.default_rng(1).normal(size=(20, 30))
P = np.exp(X) / np.exp(X).sum(1, keepdims=True)


@pytest.mark.parametrize(
    ("f", "gradient"),
    [
        (lambda x: np.sum(logsumexp(x)), P),
        (
            lambda x: np.sum(W[: len(x), : len(x.T)] * softmax(x)),
            P * (W - (P * W).sum(1, keepdims=True)),
        ),
        (
            lambda x: np.sum(W[: len(x), : len(x.T)] * log_softmax(x)),
            W - P * W.sum(1, keepdims=True),
        ),
    ],
    ids=["logsumexp", "softmax", "log_softmax"],
)
def test_gradient_and_its_program(f, gradient):
    g = tapec.grad(f)
    np.testing.assert_allclose(g(X), gradient, rtol=1e-12, atol=1e-13)
    text = g.dump("opt", X)
    assert " eq " not in text and "select" not in text and text.count("reduce_max") == 1
    tapec.check_grads(f, (X[:3, :4],), order=2)


def test_extreme_scores():
    """The shifted formula stays finite where the plain one overflows."""
    s = np.array([[-1000.0, 0.0, 500.0]])
    value, g = tapec.value_and_grad(lambda s: -(s[0, 0] - logsumexp(s)[0]))(s)
    assert value == 1500
    np.testing.assert_allclose(g, [[-1, 0, 1]], atol=1e-15)


def test_a_maximum_that_is_used_elsewhere_keeps_its_derivative():
    f = lambda x: np.sum(logsumexp(x)) + np.sum(np.max(x, axis=1) ** 2)  # noqa: E731
    x = X[:2] + np.arange(30) * 1e-3
    e = np.exp(x - x.max(1, keepdims=True))
    want = e / e.sum(1, keepdims=True)
    want[np.arange(2), x.argmax(1)] += 2 * x.max(1)
    np.testing.assert_allclose(tapec.grad(f)(x), want, rtol=1e-12, atol=1e-15)
