"""A partial derivative that is the literal 0 contributes nothing, whatever it meets."""

from __future__ import annotations

import numpy as np

import tapec


def test_literal_zero_times_an_infinite_derivative():
    f = lambda x: 0.0 * np.sqrt(x) + x  # noqa: E731
    assert tapec.grad(f)(0.0) == 1.0
    assert tapec.jvp(f, (0.0,), (1.0,))[1] == 1.0
    assert tapec.grad(tapec.grad(f))(0.0) == 0.0


def test_no_code_for_it():
    text = tapec.grad(lambda x: np.sum(0.0 * np.exp(x) + np.sin(x))).dump("opt", np.ones(40))
    assert " = exp " not in text
