"""Minimise the Rosenbrock function of 50 variables with SciPy and exact derivatives.

python examples/rosenbrock.py
"""

import numpy as np
from scipy.optimize import minimize

import tapec


def rosenbrock(x):
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def main():
    start = np.full(50, -1.0)
    start[::2] = 1.2
    by_gradient = minimize(
        tapec.value_and_grad(rosenbrock), start, jac=True, method="L-BFGS-B", options={"gtol": 1e-9}
    )
    print(f"L-BFGS-B: {by_gradient.nit} iterations, f = {by_gradient.fun:.2e}")

    by_hessian = minimize(
        tapec.value_and_grad(rosenbrock),
        start,
        jac=True,
        hess=tapec.hessian(rosenbrock),
        method="trust-exact",
        options={"gtol": 1e-10},
    )
    error = np.max(np.abs(by_hessian.x - 1.0))
    print(f"trust-exact with the Hessian: {by_hessian.nit} iterations, error {error:.1e}")
    assert error < 1e-6
    return by_hessian.x


if __name__ == "__main__":
    main()
