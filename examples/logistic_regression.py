"""Penalised logistic regression by Newton's method, and the standard errors of the fit.

    python examples/logistic_regression.py

Gradient and Hessian come from the same plain NumPy function.
"""

import numpy as np

import tapec


def loss(weights, x, label, penalty):
    """Mean negative log-likelihood; ``label`` is -1 or 1."""
    margin = label * (x @ weights)
    return np.mean(np.logaddexp(0.0, -margin)) + penalty * np.sum(weights**2)


def simulate(rows=2000, truth=(1.0, -2.0, 0.5, 0.0), seed=0):
    rng = np.random.default_rng(seed)
    truth = np.array(truth)
    x = rng.normal(size=(rows, len(truth)))
    chance = 1 / (1 + np.exp(-x @ truth))
    return truth, x, np.where(rng.uniform(size=rows) < chance, 1.0, -1.0)


def main():
    truth, x, label = simulate()
    gradient, hessian = tapec.grad(loss), tapec.hessian(loss)
    weights = np.zeros(len(truth))
    for step in range(20):
        slope = gradient(weights, x, label, 1e-6)
        print(f"step {step}: |gradient| = {np.linalg.norm(slope):.2e}")
        if np.linalg.norm(slope) < 1e-12:
            break
        weights = weights - np.linalg.solve(hessian(weights, x, label, 1e-6), slope)
    information = len(label) * hessian(weights, x, label, 0.0)
    errors = np.sqrt(np.diag(np.linalg.inv(information)))
    for name, estimate, error in zip(truth, weights, errors):
        print(f"true {name:5.2f}   estimate {estimate:6.3f} ± {error:.3f}")
    assert np.all(np.abs(weights - truth) < 4 * errors)
    return weights


if __name__ == "__main__":
    main()
