"""Derivatives of derivatives: transforms compose to any order.

python examples/higher_order.py
"""

import numpy as np

import tapec


def tower(f, order):
    for _ in range(order):
        f = tapec.grad(f)
    return f


def main():
    def wave(t):
        return 0.3 * np.sin(t) * t**10

    for order in range(11):
        print(f"derivative {order:2d} of 0.3 sin(t) t**10 at 1.3: {tower(wave, order)(1.3):.12g}")
    # Leibniz's rule, term by term.
    k = np.arange(11)
    binomial = np.array([1, 10, 45, 120, 210, 252, 210, 120, 45, 10, 1])
    falling = np.cumprod(np.concatenate(([1.0], 10.0 - k[:-1])))
    terms = binomial * falling * 1.3 ** (10 - k) * np.sin(1.3 + (10 - k) * np.pi / 2)
    assert abs(tower(wave, 10)(1.3) / (0.3 * terms.sum()) - 1) < 1e-10

    # A derivative inside a function that is differentiated.
    nested = tapec.grad(lambda x: x * tapec.grad(lambda y: x * y)(1.0))(4.0)
    print(f"d/dx x · d/dy (x y) at 4: {nested}")
    assert nested == 8.0

    # A Hessian, and its product with a vector without forming it.
    def quartic(x):
        return np.sum(x**2) ** 2

    x, v = np.array([1.0, 2.0, -1.0]), np.array([0.5, -1.0, 2.0])
    hessian = tapec.hessian(quartic)(x)
    print(hessian)
    assert np.allclose(hessian, 8 * np.outer(x, x) + 4 * (x @ x) * np.eye(3))
    product = tapec.grad(lambda x: np.dot(tapec.grad(quartic)(x), v))(x)
    assert np.allclose(hessian @ v, product)
    return hessian


if __name__ == "__main__":
    main()
