"""Python loops become loops again: every way in which iterations may be connected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapec
import tapec.numpy as tnp
from tapec.ir import Function, interpret, parse, walk
from tapec.ir.passes import run_passes
from tapec.ir.reroll import reroll
from tapec.ir.reroll_find import periods, stretches
from tests.rolling import assert_rolls, scans, traced
from tests.structured import native

RNG = np.random.default_rng(1)
X = RNG.normal(size=12)
A = RNG.normal(size=(6, 5))


# -- how iterations are connected (each function, its argument, the loops that it becomes) --


def fibonacci(x: Any) -> Any:
    a, b = x[0], x[1]
    for _ in range(12):
        a, b = b, a + 0.3 * b
    return a * b


def three_steps_back(x: Any) -> Any:
    h = [x[0], x[1], x[2]]
    for t in range(3, 12):
        h.append(h[-1] * 0.5 + h[-3] * x[t])
    return np.array(h)


def there_and_back(x: Any) -> Any:
    kept, s = [], 0.0
    for i in range(12):
        s = np.sin(x[i]) + 0.5 * s
        kept.append(s)
    y, out = 0.0, []
    for i in reversed(range(12)):
        y = kept[i] * y + x[i]
        out.append(y)
    return sum(out)


def nested(a: Any) -> Any:
    total = 0.0
    for i in range(6):
        r = 1.0
        for j in range(5):
            r = r * a[i, j] + j
        total = total + r * np.cos(total)
    return total


def rows_and_elements(a: Any) -> Any:
    t = np.zeros(5)
    for i in range(6):
        row = a[i]
        r = row[0] * 0
        for j in range(5):
            r = r + row[j] * (t[j] + 1)
        t = t * r + row
    return t


def three_deep(x: Any) -> Any:
    s = 0.0
    for i in range(4):
        for j in range(4):
            for k in range(4):
                s = s * 0.9 + x[i] * x[j + 4] * x[k + 8]
    return s


def triangle(x: Any) -> Any:
    s = 0.0
    for i in range(8):
        for j in range(i):
            s = s + x[i] * x[j]
    return s


def windows(x: Any) -> Any:
    s = 0.0
    for i in range(8):
        s = s + np.sum(x[i : i + 3] * x[i + 1 : i + 4]) * np.exp(-i)
    return s


def columns(a: Any) -> Any:
    s = np.zeros(6)
    for j in range(5):
        s = np.tanh(s + a[:, j] * j)
    return s


def other_first_iteration(x: Any) -> Any:
    s = np.sin(x[0])
    for i in range(10):
        if i == 0:
            s = s * 2
        s = s * x[i] + 1
    return s, s * 2


def one_from_the_middle(x: Any) -> Any:
    s, kept = x[0], None
    for i in range(12):
        s = s * x[i] + 1
        if i == 5:
            kept = s
    return s + kept


def the_first_for_ever(x: Any) -> Any:
    s, first = x[0], None
    for i in range(12):
        s = np.sin(s * x[i])
        if first is None:
            first = s
        s = s + first
    return s


def constants_that_vary(x: Any) -> Any:
    s = x[0]
    for i in range(10):
        s = s * [0.1, 0.7, -2, 3.5, 1, 1, 2, 0.5, 0.25, 9][i] + x[(i * 7) % 12]
    return s


def index_arrays(x: Any) -> Any:
    s = x[0:3]
    for i in range(10):
        s = s * x[np.array([i % 5, (i * 3) % 12, i])] + np.array([i, 1.0, 2.0])
    return s


def written_in_place(x: Any) -> Any:
    y = tnp.zeros(12)
    y[0] = x[0]
    for i in range(1, 12):
        y[i] = y[i - 1] * x[i] + 1
    return y.sum()


def iterated(x: Any) -> Any:
    s = 0.0
    for v in x:
        s = s * v + v
    return s


def zipped(x: Any) -> Any:
    s = 0.0
    for a, b, c in zip(x, x[::-1], np.roll(x, 1)):
        s = np.sin(s * a + b) * c
    return s


def swapped(x: Any) -> Any:
    a, b = x[0], x[1]
    for i in range(12):
        a, b = b * x[i], a + 1
    return a - b


def matrices(a: Any) -> Any:
    m, v = a[:5, :5], a[5]
    for _ in range(9):
        v = np.tanh(m @ v + v[0])
    return v


def guarded(x: Any) -> Any:
    s, n = 1.0, 0
    while s < 50:
        s = s + np.abs(x[n % 12]) + 1
        n += 1
    return s * n


def comprehension(x: Any) -> Any:
    out = [np.exp(x[i]) * x[i] for i in range(12)]
    return sum(out) / len(out), np.stack(out)


def epochs(x: Any) -> Any:
    w, history = x[0], []
    for _ in range(6):
        for i in range(12):
            w = w - 0.1 * (w * x[i] - x[11 - i]) * x[i]
            history.append(w)
    return np.array(history)


def the_last_few(x: Any) -> Any:
    h = [x[0], x[1], x[2]]
    for i in range(12):
        h.append(np.cos(h[-1] * x[i]) + h[-3] * h[-2])
    return h[-1] * h[-2] + h[-3]


def invariants(x: Any) -> Any:
    a = np.exp(x)
    b, s = a.sum(), x
    for _ in range(10):
        s = s * b + a * s.sum()
    return s


def element_of_the_carry(x: Any) -> Any:
    s = x
    for i in range(10):
        s = s * s[i] + x
    return s


def gates(a: Any) -> Any:
    h, c = np.zeros(5), np.zeros(5)
    w = a[:5]
    for t in range(20):
        z = w @ h + a[t % 6]
        c = c * 0.9 + np.tanh(z)
        h = np.tanh(c) * z
    return h.sum() + c[0]


def lattice(x: Any) -> Any:
    """What a loop stacks is what the next loops over, outside of it another one."""
    for k in range(4):
        row = [x[i] * 0.5 + k for i in range(12)]
        x = np.array([row[i] * row[11 - i] for i in range(12)])
    return x


LOOPS = [
    (fibonacci, X, 1), (three_steps_back, X, 1), (there_and_back, X, 3), (nested, A, 2),
    (rows_and_elements, A, 2), (three_deep, X, 1), (triangle, X, 1), (windows, X, 1),
    (columns, A, 1), (other_first_iteration, X, 1), (one_from_the_middle, X, 1),
    (the_first_for_ever, X, 1), (constants_that_vary, X, 1), (index_arrays, X, 1),
    (written_in_place, X, 1), (iterated, X, 1), (zipped, X, 1), (swapped, X, 1),
    (matrices, A, 1), (guarded, X, 1), (comprehension, X, 2), (epochs, X, 1),
    (the_last_few, X, 1), (invariants, X, 1), (element_of_the_carry, X, 1), (gates, A, 1),
    (lattice, X, 1),
]  # fmt: skip


@pytest.mark.parametrize(("fn", "x", "least"), LOOPS, ids=[f.__name__ for f, _, _ in LOOPS])
def test_rolled_and_unrolled_agree(
    fn: Any, x: Any, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rolled = assert_rolls(monkeypatch, fn, (x,), order=2 if x is X else 1)
    assert len(scans(rolled)) >= least


@pytest.mark.parametrize(("fn", "x", "least"), LOOPS, ids=[f.__name__ for f, _, _ in LOOPS])
def test_compiled_loops_agree(fn: Any, x: Any, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    t = traced(monkeypatch, fn, (x,), True)
    given = [x, *t.captures]
    for a, b in zip(native(run_passes(t.fn, ["simplify"]), given), interpret(t.fn, given)):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_a_short_program_stays_as_it_is() -> None:
    @tapec.grad
    def f(x: Any) -> Any:
        s = x[0]
        for i in range(12):
            s = s * x[i]
        return s

    assert "scan" not in f.dump("ir", X)


def long_loop(x: Any, n: int) -> Any:
    for i in range(n):
        x = x * 0.999 + np.sin(x) / (i + 1)
    return x


def test_a_long_loop_is_rolled_by_itself_and_exact() -> None:
    g = tapec.value_and_grad(lambda x: long_loop(x, 1000))
    value, slope = g(0.7)
    x, d = 0.7, 1.0
    for i in range(1000):
        x, d = x * 0.999 + np.sin(x) / (i + 1), d * (0.999 + np.cos(x) / (i + 1))
    assert value == pytest.approx(x, rel=1e-12)
    assert slope == pytest.approx(d, rel=1e-10)
    text = g.dump("ir", 0.7)
    assert text.count("scan") == 1 and len(text.splitlines()) < 40


def test_the_size_of_the_program_does_not_depend_on_the_trip_count() -> None:
    sizes = []
    for n in (1000, 3000):
        text = tapec.grad(lambda x, n=n: long_loop(x, n)).dump("opt", 0.7)
        sizes.append(len(text.splitlines()))
    assert sizes[0] == sizes[1]


def test_the_environment_variable_switches_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPEC_REROLL", "0")
    text = tapec.jit(lambda x: long_loop(x, 600)).dump("ir", 0.7)
    assert "scan" not in text


def test_the_line_that_prevents_a_loop_is_named() -> None:
    def irregular(x: Any) -> Any:
        values = [x]
        for i in range(3000):
            values.append(values[(i * 7919) % (i + 1)] * 0.5)  # the culprit
        return np.array(values)

    text = tapec.jit(irregular).dump("ir", 0.7)
    lines = Path(__file__).read_text().splitlines()
    line = next(k for k, row in enumerate(lines, 1) if "# the culprit" in row)
    first = text.splitlines()[0]
    assert first.startswith("# not rolled into a loop:") and f"test_reroll.py:{line}" in first


# -- the pass on functions ----------------------------------------------------------------


TEXT = (
    """func @f(%x: f64[6]) -> (f64[]) {
  %s0 = constant {value=1.0} : f64[]
"""
    + "".join(
        f"""  %a{t} = slice %x {{size=(1), start=({t}), step=(1)}} : f64[1]
  %b{t} = reshape %a{t} {{shape=()}} : f64[]
  %m{t} = mul %s{t}, %b{t} : f64[]
  %s{t + 1} = sin %m{t} : f64[]
"""
        for t in range(6)
    )
    + """  return %s6
}
"""
)


def parsed() -> Function:
    fn = parse(TEXT)
    assert isinstance(fn, Function)
    return fn


def test_a_function_without_locations() -> None:
    fn = parsed()
    rolled = reroll(fn, 3, 4)
    (loop,) = scans(rolled)
    assert loop.attrs == {"length": 6, "n_carry": 1, "n_xs": 1, "reverse": False}
    assert [op.name for op in loop.regions[0].ops] == ["reshape", "mul", "sin"]
    x = RNG.normal(size=6)
    np.testing.assert_array_equal(interpret(fn, [x])[0], interpret(rolled, [x])[0])


def test_the_pass_leaves_short_loops() -> None:
    fn = parsed()
    assert run_passes(fn, ["reroll"]) is fn
    assert not any(op.name == "scan" for op in walk(fn.block))


def test_periods_and_stretches() -> None:
    keys = np.array([7, *[1, 2, 3] * 20, 9, *[4] * 10])
    assert periods(keys, 3, 6) == [1, 3]
    assert stretches(keys, 3, 4) == [(1, 61)]
    assert stretches(keys, 1, 4) == [(62, 72)]
    assert periods(keys[:1], 3, 6) == []
