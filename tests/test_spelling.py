"""No special case: the benchmarks' objectives cost the same in whatever order they are written.

Each is respelled at random (operands swapped, sums and products re-associated, differences as sums,
squares as products), and the gradient's nests and operations are counted; nothing is timed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapec
from tapec.codegen.callable_type import slow_of
from tapec.codegen.counters import Counters, count
from tapec.transforms import build

SUITE = Path(__file__).resolve().parents[1] / "benchmarks" / "suite"
if not SUITE.is_dir():
    pytest.skip("no benchmarks beside the tests", allow_module_level=True)
sys.path.insert(0, str(SUITE.parent))
try:
    from suite import adbench, basic
    from suite.namespaces import namespace
    from suite.respell import objectives, respelled
finally:
    sys.path.remove(str(SUITE.parent))

#: objective → module, arguments, how many of them are differentiated
OBJECTIVES: dict[str, tuple[Any, tuple[Any, ...], int]] = {
    "rosenbrock": (basic, (basic.uniform(1, -1.5, 1.5, 37),), 1),
    "logistic": (basic, basic.logistic_data(70, 5), 1),
    "network": (basic, basic.network_data(8, (12, 7, 6, 4)), 6),
    "black_scholes": (basic, basic.black_scholes_data(33), 5),
    "chain_poly": (basic, (basic.uniform(11, -1, 1, 33),), 1),
    "chain_trans": (basic, (basic.uniform(11, -1, 1, 33),), 1),
    "gmm": (adbench, adbench.gmm_data(30, 3, 4), 3),
    "lstm": (adbench, adbench.lstm_data(2, 9), 2),
    "hand": (adbench, adbench.hand_data(20, 7), 1),
}


def objective(module: Any, name: str) -> Callable[..., Any]:
    fn: Callable[..., Any] = getattr(module, name)(namespace("tapec"))
    return (lambda *args: np.sum(fn(*args) ** 2)) if name == "hand" else fn


def counters(fn: Callable[..., Any], args: tuple[Any, ...], wrt: int) -> Counters:
    slow: Any = slow_of(tapec.value_and_grad(fn, argnums=tuple(range(wrt))))
    call = slow.dispatcher.flatten(slow.subject, args, {})
    return count(
        build(slow.dispatcher.trace(slow.subject, call.flat), slow.dispatcher.transform).fn
    )


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_spelling_costs_as_much_as_another(name: str) -> None:
    module, args, wrt = OBJECTIVES[name]
    first = objective(module, name)
    expected = counters(first, args, wrt)
    for seed in range(3):
        fn = objective(objectives(module.__name__.rpartition(".")[2], seed), name)
        found = counters(fn, args, wrt)
        assert len(found.nests) == len(expected.nests)
        assert found.cost <= 1.02 * expected.cost
        assert found.passes <= 1.02 * expected.passes


@pytest.mark.parametrize("seed", range(3))
def test_gradients_of_a_spelling(seed: int) -> None:
    module, args, _ = OBJECTIVES["chain_poly"]
    first = tapec.value_and_grad(objective(module, "chain_poly"))(*args)
    again = tapec.value_and_grad(objective(objectives("basic", seed), "chain_poly"))(*args)
    assert np.isclose(first[0], again[0], rtol=1e-13)
    assert np.allclose(first[1], again[1], rtol=1e-11, atol=1e-13)


def test_a_respelling_is_the_same_function() -> None:
    source = "f = lambda x, y: (x - 0.1 * y * y) * x ** 2 + 3 * x"
    texts = {respelled(source, seed) for seed in range(20)}
    assert len(texts) > 5
    for text in texts:
        scope: dict[str, Any] = {}
        exec(text, scope)
        assert np.isclose(scope["f"](0.7, -1.3), (0.7 + 0.1 * -1.3 * 1.3) * 0.49 + 2.1)
