"""Fit the parameters of a differential equation through its integrator.

    python examples/ode_fit.py

Lotka-Volterra predators and prey, integrated by a plain Python loop of Runge-Kutta steps.
SciPy's least squares gets the exact Jacobian of the whole simulation.
"""

import numpy as np
from scipy.optimize import least_squares

import tapec

STEPS, DT = 60, 0.1


def rate(state, theta):
    prey, predators = state[0], state[1]
    return np.array(
        [
            theta[0] * prey - theta[1] * prey * predators,
            theta[2] * prey * predators - theta[3] * predators,
        ]
    )


def simulate(theta, start):
    """The state after every step, (STEPS, 2)."""
    state = start
    path = []
    for _ in range(STEPS):
        k1 = rate(state, theta)
        k2 = rate(state + DT / 2 * k1, theta)
        k3 = rate(state + DT / 2 * k2, theta)
        k4 = rate(state + DT * k3, theta)
        state = state + DT / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        path.append(state)
    return np.stack(path)


def residual(theta, start, data):
    return np.ravel(np.log(simulate(theta, start)) - np.log(data))


def main():
    truth = np.array([1.1, 0.4, 0.1, 0.4])
    start = np.array([10.0, 5.0])
    rng = np.random.default_rng(0)
    data = simulate(truth, start) * np.exp(0.02 * rng.normal(size=(STEPS, 2)))
    fit = least_squares(
        residual, np.array([0.8, 0.3, 0.15, 0.6]), jac=tapec.jacobian(residual), args=(start, data)
    )
    print(f"{fit.nfev} evaluations, {fit.njev} Jacobians")
    for name, value, want in zip(("growth", "hunted", "fed", "starved"), fit.x, truth):
        print(f"{name:8s} {value:.4f}   true {want:.4f}")
    assert np.all(np.abs(fit.x / truth - 1) < 0.05)
    return fit.x


if __name__ == "__main__":
    main()
