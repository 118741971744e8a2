"""Calls of Python functions from compiled programs."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tapec
from tapec.ir.custom import RuleError


def doubled(x: Any) -> Any:
    return 2 * x


@tapec.custom_jvp
def sorted_(x: Any) -> Any:
    return tapec.host_call(np.sort, x, x)


@sorted_.defjvp
def sorted_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    order = tapec.host_call(np.argsort, np.zeros(3, np.int64), x)
    return sorted_(x), t[order]


def test_value() -> None:
    f = tapec.jit(lambda x: np.sum(tapec.host_call(doubled, x, x) * x))
    x = np.array([1.0, 2.0, 3.0])
    assert f(x) == f(x) == 28
    assert "host %" in str(f.dump("loops", x))
    assert tapec.host_call(doubled, x, x)[2] == 6  # outside of a trace


def test_shapes_and_several_results() -> None:
    def parts(x: Any) -> Any:
        return np.outer(x, x), np.array(len(x))

    def f(x: Any) -> Any:
        outer, n = tapec.host_call(parts, [(3, 3), np.zeros((), np.int64)], x, several=True)
        return np.sum(outer) * n

    assert tapec.jit(f)(np.array([1.0, 2.0, 3.0])) == 108


def test_rule() -> None:
    def f(x: Any) -> Any:
        return sorted_(x) @ np.array([1.0, 10.0, 100.0])

    x = np.array([3.0, 1.0, 2.0])
    np.testing.assert_allclose(tapec.grad(f)(x), [100, 1, 10])
    assert np.isclose(tapec.jvp(f, (x,), (np.array([1.0, 0.0, 0.0]),))[1], 100)


def test_without_a_rule_is_an_error() -> None:
    with pytest.raises(RuleError, match=r"test_host.py:\d+: 'doubled#\d+' .* no derivative rule"):
        tapec.grad(lambda x: np.sum(tapec.host_call(doubled, x, x)))(np.ones(3))


def test_exceptions_come_through() -> None:
    calls = []

    def picky(x: Any) -> Any:
        calls.append(float(x[0]))
        if x[0] < 0:
            raise ZeroDivisionError("negative")
        return x

    f = tapec.jit(lambda x: tapec.host_call(picky, x, x) + 1)
    for _ in range(2):
        np.testing.assert_allclose(f(np.ones(2)), 2)
        with pytest.raises(ZeroDivisionError, match="negative"):
            f(-np.ones(2))
    wrong = tapec.jit(lambda x: tapec.host_call(lambda a: a[:1], x, x))
    with pytest.raises(ValueError, match=r"gave shape \(1,\) for f64\[2\]"):
        wrong(np.ones(2))


def test_operands_are_read_only() -> None:
    def rude(x: Any) -> Any:
        x[0] = 5
        return x

    with pytest.raises(ValueError, match="read-only"):
        tapec.jit(lambda x: tapec.host_call(rude, x, x))(np.ones(2))


def test_in_a_loop_and_mapped() -> None:
    def f(x: Any) -> Any:
        return tapec.fori_loop(0, 3, lambda i, a: tapec.host_call(doubled, a, a), x)

    np.testing.assert_allclose(tapec.jit(f)(np.ones(2)), 8)
    np.testing.assert_allclose(tapec.vmap(f)(np.ones((4, 2))), np.full((4, 2), 8.0))


def test_from_threads() -> None:
    f = tapec.jit(lambda x: np.sum(np.exp(tapec.host_call(doubled, x, x))))
    x = np.full(50_000, 0.5)
    want = float(f(x))
    found: list[float] = []
    threads = [threading.Thread(target=lambda: found.append(float(f(x)))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [want] * 4
