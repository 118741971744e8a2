"""Random programs with branches and loops: as Python writes them, traced one path at a time and
with both sides of branches, and with tapec's own control flow.  The right values are those of
numbers that carry their derivatives through the same source (``jets``)."""

from __future__ import annotations

import itertools
import linecache
import math
from typing import Any

import jets
import numpy as np
import pytest

import tapec

PROGRAMS, GROUP = 1000, 40
_number = itertools.count()


def load(source: str, **names: Any) -> Any:
    """The function ``program`` of a source text, which can be read back like a file."""
    file = f"<random program {next(_number)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    space = {**names}
    exec(compile(source, file, "exec"), space)
    return space["program"]


class Writer:
    """Writes one program twice: with Python's statements, and with tapec's functions."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.counter = 0
        self.helper = bool(self.rng.random() < 0.4)
        body, built = self.block(2, True, 0)
        head, built_head = [], []
        if self.helper:
            inner, built_inner = self.block(1, True, 0)
            head = ["def helper(x, a, b, n):", *indent([*inner, "return a * cos(b)"])]
            built_head = [
                "def helper(x, a, b, n):", *indent([*built_inner, "return a * cos(b)"]),
            ]  # fmt: skip
        start, end = ["a, b, n = x[0], x[1], 1"], ["return sin(a) + 0.5 * b + 0.1 * n"]
        main = ["def program(x):"]
        self.python = "\n".join([*head, *main, *indent([*start, *body, *end])]) + "\n"
        start = ["a, b, n = x[0], x[1], 1.0"]
        self.built = "\n".join([*built_head, *main, *indent([*start, *built, *end])]) + "\n"

    def pick(self, *items: Any) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def value(self) -> str:
        """An expression of type float."""
        c = round(float(self.rng.normal()), 3)
        return str(self.pick(
            f"sin(a) + {c} * b", "a * tanh(b) + x[0]", f"{c} * a - x[1] * cos(b)",
            "sqrt(a * a + 0.5) - b", f"a / (1 + b * b) + {c}", "tanh(a * b + x[1])",
            "0.5 * n * b - a", f"{c} * tanh(a) * n", "exp(-a * a) * b",
        ))  # fmt: skip

    def test(self) -> str:
        c = round(float(self.rng.normal()) * 0.5, 3)
        return str(self.pick(f"a > {c}", f"b < {c}", f"a + b > {c}", f"x[0] * b > {c}",
                             f"n * a > {c}"))  # fmt: skip

    def block(self, depth: int, returns: bool, loops: int) -> tuple[list[str], list[str]]:
        out: list[str] = []
        built: list[str] = []
        for _ in range(int(self.rng.integers(1, 4))):
            kinds = ["set", "set", "set"]
            if depth:
                kinds += ["if", "if", "for", "while", "logic", "arm"]
                if self.helper and loops == 0 and depth == 2:
                    kinds += ["call"]
            made = getattr(self, f"{self.pick(*kinds)}_")(depth, returns, loops)
            out += made[0]
            built += made[1]
        return out, built

    def set_(self, depth: int, returns: bool, loops: int) -> tuple[list[str], list[str]]:
        kind = int(self.rng.integers(8))
        if kind == 0:
            step = int(self.rng.integers(1, 3))
            return [f"n = n + {step}"], [f"n = n + {step}"]
        if kind == 1:
            k = self.pick(-1, 2, 3)
            return [f"n = {k}"], [f"n = 0 * n + {k}"]
        name, value = self.pick("a", "b"), self.value()
        if kind == 2:
            return [f"{name} += 0.3 * ({value})"], [f"{name} = {name} + 0.3 * ({value})"]
        if kind == 3:
            return [f"a, b = b, {value}"], [f"a, b = b, {value}"]
        return [f"{name} = {value}"], [f"{name} = {value}"]

    def if_(self, depth: int, returns: bool, loops: int) -> tuple[list[str], list[str]]:
        test = self.test()
        one, built_one = self.block(depth - 1, False, loops)
        two, built_two = self.block(depth - 1, False, loops)
        out = [f"if {test}:", *indent(one), "else:", *indent(two)]
        if self.rng.random() < 0.3:
            out, built_two = out[: -1 - len(two)], ["pass"]
        k = self.next()
        built = [
            f"def true_{k}(x, a, b, n):", *indent([*built_one, "return a, b, n"]),
            f"def false_{k}(x, a, b, n):", *indent([*built_two, "return a, b, n"]),
            f"a, b, n = cond({test}, true_{k}, false_{k}, x, a, b, n)",
        ]  # fmt: skip
        if returns and self.rng.random() < 0.2:  # an early return; only for Python's form
            value = self.value()
            out = [f"if {test}:", *indent([*one, f"return {value}"])]
            k = self.next()
            self.early = True
            built = [*out]
        return out, built

    early = False

    def logic_(self, depth: int, returns: bool, loops: int) -> tuple[list[str], list[str]]:
        p, q, word = self.test(), self.test(), self.pick("and", "or")
        value = self.value()
        out = [f"if {p} {word} not {q}:", *indent([f"a = {value}"])]
        symbol = {"and": "&", "or": "|"}[word]
        built = [
            f"a = where(({p}) {symbol} ~({q}), {value}, a)"
            if self.rng.random() < 0.5
            else f"a = cond(({p}) {symbol} ~({q}), lambda x, a, b, n: {value}, "
            "lambda x, a, b, n: a, x, a, b, n)"
        ]
        return out, built

    def arm_(self, depth: int, returns: bool, loops: int) -> tuple[list[str], list[str]]:
        p, u, v = self.test(), self.value(), self.value()
        name = self.pick("a", "b")
        if self.rng.random() < 0.3:
            best = self.pick("max", "min")
            which = {"max": ">", "min": "<"}[best]
            return (
                [f"{name} = {best}({u}, {v})"],
                [f"{name} = cond(({v}) {which} ({u}), lambda x, a, b, n: {v}, "
                 f"lambda x, a, b, n: {u}, x, a, b, n)"],
            )  # fmt: skip
        return (
            [f"{name} = ({u}) if {p} else ({v})"],
            [f"{name} = cond({p}, lambda x, a, b, n: {u}, lambda x, a, b, n: {v}, x, a, b, n)"],
        )

    def for_(self, depth: int, returns: bool, loops: int) -> tuple[list[str], list[str]]:
        k, trips = self.next(), int(self.rng.integers(1, 4))
        one, built = self.block(depth - 1, False, loops + 1)
        out = [f"for i{k} in range({trips}):", *indent(one)]
        made = [
            f"def body_{k}(state, _):",
            *indent(["a, b, n = state", *built, "return (a, b, n), None"]),
            f"(a, b, n), _ = scan(body_{k}, (a, b, n), length={trips})",
        ]
        if self.rng.random() < 0.25:  # only for Python's form
            self.early = True
            leave = self.pick("break", "continue")
            out = [out[0], *indent([f"if {self.test()}:", f"    {leave}", *one])]
        return out, made

    def while_(self, depth: int, returns: bool, loops: int) -> tuple[list[str], list[str]]:
        k, limit = self.next(), round(float(self.rng.uniform(0.5, 2.5)), 3)
        one, built = self.block(depth - 1, False, loops + 1)
        t = f"t{k}"
        step = f"{t} = {t} + 0.4 + 0.3 * sin(a) * sin(a)"
        out = [
            f"{t} = 0.3 + 0.5 * tanh(b) * tanh(b)",
            f"while {t} < {limit}:",
            *indent([*one, step]),
        ]
        made = [
            out[0],
            f"def body_{k}(state):",
            *indent([f"a, b, n, {t} = state", *built, step, f"return a, b, n, {t}"]),
            f"a, b, n, {t} = while_loop(lambda s: s[3] < {limit}, body_{k}, (a, b, n, {t}))",
        ]
        return out, made

    def call_(self, depth: int, returns: bool, loops: int) -> tuple[list[str], list[str]]:
        u = self.value()
        line = f"a = helper(x, {u}, b, n)"
        return [line], [line]

    def next(self) -> int:
        self.counter += 1
        return self.counter


def indent(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


FUNCTIONS = {k: getattr(np, k) for k in ("sin", "cos", "exp", "tanh", "sqrt")}
ORACLE = {k: getattr(jets, k) for k in FUNCTIONS}
TAPEC = {"cond": tapec.cond, "scan": tapec.scan, "while_loop": tapec.while_loop,
         "where": np.where}  # fmt: skip


def check(f: Any, oracle: Any, points: Any, v: Any, source: str) -> None:
    """Value, gradient and Hessian in a direction."""
    both = tapec.value_and_grad(f)
    for x in points:
        want = jets.jet(oracle([jets.Jet(p, d) for p, d in zip(x.tolist(), v.tolist())]))
        (value, slope), (_, curve) = tapec.jvp(both, (x,), (v,))
        found = np.array([value, slope @ v, curve @ v])
        right = np.array([want.v, want.d, want.dd])
        assert np.allclose(found, right, rtol=1e-9, atol=1e-9 * (1 + abs(right).max())), (
            f"{found} for {right} at {x}:\n{source}"
        )


@pytest.mark.parametrize("group", range(PROGRAMS // GROUP))
def test_random_structured_programs(group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's form of all; tapec's form of every other one; some compiled, some verified after
    each pass, some one path at a time."""
    for seed in range(group * GROUP, (group + 1) * GROUP):
        monkeypatch.setenv("TAPEC_BACKEND", "native" if seed % GROUP == 7 else "interpret")
        monkeypatch.setenv("TAPEC_CHECK", "1" if seed % 4 == 3 else "0")
        monkeypatch.setenv("TAPEC_JOIN", "0" if seed % 5 == 0 else "1")
        w = Writer(seed)
        oracle = load(w.python, **ORACLE)
        points = w.rng.uniform(0.3, 2.0, (2, 2)) * w.rng.choice([-1, 1], (2, 2))
        v = w.rng.normal(size=2)
        points = points[: 1 + (seed % 3 == 0)]
        check(load(w.python, **FUNCTIONS), oracle, points, v, w.python)
        if (seed % 2 or seed % GROUP == 7) and not w.early:
            check(load(w.built, **FUNCTIONS, **TAPEC), oracle, points, v, w.built)


def test_the_oracle() -> None:
    x = jets.Jet(0.7, 1.0)
    y = jets.exp(jets.sin(x) * x) / jets.sqrt(1 + x * x) - jets.tanh(2 * x) * jets.cos(x)
    f = lambda t: (  # noqa: E731
        math.exp(math.sin(t) * t) / math.sqrt(1 + t * t) - math.tanh(2 * t) * math.cos(t)
    )
    h = 1e-4
    assert math.isclose(y.v, f(0.7))
    assert math.isclose(y.d, (f(0.7 + h) - f(0.7 - h)) / (2 * h), rel_tol=1e-6)
    assert math.isclose(y.dd, (f(0.7 + h) - 2 * f(0.7) + f(0.7 - h)) / h**2, rel_tol=1e-6)
