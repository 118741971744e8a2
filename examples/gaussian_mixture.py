"""A Gaussian mixture of any number of components in one broadcast expression.

    python examples/gaussian_mixture.py

Parameters are a dict: gradients come back as a dict of the same shape.
"""

import numpy as np

import tapec


def mean_log_likelihood(p, data):
    """Diagonal covariances; data (n, d), means (k, d), log scales (k, d), logits (k,)."""
    z = (data[:, None, :] - p["means"]) * np.exp(-p["log_scales"])
    log_weights = p["logits"] - np.log(np.sum(np.exp(p["logits"])))
    parts = log_weights - 0.5 * np.sum(z**2, axis=-1) - np.sum(p["log_scales"], axis=-1)
    top = np.max(parts, axis=1, keepdims=True)
    log_sums = top[:, 0] + np.log(np.sum(np.exp(parts - top), axis=1))
    return np.mean(log_sums) - 0.5 * data.shape[1] * np.log(2 * np.pi)


def main():
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    data = centres[rng.integers(3, size=600)] + 0.6 * rng.normal(size=(600, 2))
    p = {
        "means": np.array([[1.0, 1.0], [2.0, 0.0], [0.0, 2.0]]),
        "log_scales": np.zeros((3, 2)),
        "logits": np.zeros(3),
    }
    step = tapec.value_and_grad(mean_log_likelihood)
    momentum = {name: np.zeros_like(value) for name, value in p.items()}
    for i in range(301):
        value, g = step(p, data)
        momentum = {name: 0.9 * momentum[name] + g[name] for name in p}
        p = {name: p[name] + 0.1 * momentum[name] for name in p}
        if i % 100 == 0:
            print(f"step {i:3d}: mean log-likelihood {value:.5f}")
    print(np.round(p["means"], 3))
    found = p["means"][np.argsort(p["means"] @ [1.0, 2.0])]
    assert np.max(np.abs(found - centres)) < 0.15
    return found


if __name__ == "__main__":
    main()
