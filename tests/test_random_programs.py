"""Random NumPy programs: value and gradient of 2,000 of them, each checked by several routes.

A seeded generator writes straight NumPy source, running along at a point so that every
intermediate value is finite and of moderate size.  ``GROUP`` programs with inputs of their own
make one function (their sum), so that one compilation serves many and a gradient still tells
which program it belongs to.  For every program

- the compiled value equals NumPy's, and the value of the reference interpreter;
- the compiled gradient equals the interpreter's, and its product with a random direction
  equals the forward-mode derivative and NumPy's central differences.

A failure prints the source of the one program that is wrong.
"""

from __future__ import annotations

import random
import re
import textwrap
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import tapec

GROUP = 30
GROUPS = 67  # 2,010 programs
Array = np.ndarray
SHAPES = [(), (3,), (4,), (2, 3), (3, 3), (2, 1, 3), (1,)]

# One line per function: a template over existing values (a, b: any; m: a matrix; s: a scalar)
# and small random integers.  A candidate whose value fails or is out of range is drawn again,
# so domains need no care here.
UNARY = """
-{a} | +{a} | np.abs({a}) | np.exp({a}) | np.expm1({a}) | np.exp2({a}) | np.log({a})
np.log1p({a}) | np.log2({a}) | np.log10({a}) | np.sin({a}) | np.cos({a}) | np.tan({a})
np.arcsin({a}) | np.arccos({a}) | np.arctan({a}) | np.sinh({a}) | np.cosh({a}) | np.tanh({a})
np.arcsinh({a}) | np.arccosh({a}) | np.arctanh({a}) | np.sqrt({a}) | np.cbrt({a})
np.square({a}) | np.reciprocal({a}) | {a} ** 2 | {a} ** 3 | {a} ** -1 | {a} ** 0.5 | {a} ** 1.7
2.0 ** {a} | 1.0 / {a} | 3 - {a} | 0.3 * {a} + 1 | np.sign({a}) * {a} | np.floor({a}) + {a}
np.ceil({a}) * {a} | np.rint({a}) - {a} | np.trunc({a}) + {a} | np.clip({a}, -0.8, 0.9)
np.where({a} > 0.1, {a}, 0.5 * {a}) | np.where({a} > 0, np.sqrt({a}), 0.0) | {a} % 1.3
{a} / (1 + np.exp(-{a})) | np.maximum({a}, 0.2) | np.minimum(0.7, {a})
"""
BINARY = """
{a} + {b} | {a} - {b} | {a} * {b} | {a} / {b} | np.maximum({a}, {b}) | np.minimum({a}, {b})
np.arctan2({a}, {b}) | np.hypot({a}, {b}) | np.logaddexp({a}, {b}) | (np.abs({a}) + 0.1) ** {b}
np.where({a} > {b}, {a}, {b} * 2) | np.where({a} < {b}, np.sin({a}), {b})
np.copysign({a}, {b}) | np.add({a}, {b}) * {a} | np.multiply({a}, {b}) - {b} | np.fmod({a}, {b})
np.remainder({a}, {b}) | {a} // {b} + {a} | np.power(np.abs({a}) + 0.5, {b})
np.outer({a}, {b}) | np.subtract({a}, {b}) | np.where(({a} > 0) & ({b} < 0.5), {a}, {b})
np.where(np.isnan({a}), {b}, {a} * {b})
"""
# np.array([s, t, 1.5]) is an object array until it meets a traced value: a ufunc applied to it
# would look for a method of the float.
SHAPE = """
{a}.T | {a}.reshape(-1) | {a}.ravel() | {a}[::-1] | {a}[1:] | {a}[..., 0] | {a}[None] | {a}[-1]
{a}[..., ::-1] | {a}[0] * {a} | np.concatenate([{a}, {a}]) | np.concatenate([{a}, {b}])
np.stack([{a}, {a} * 2]) | np.stack([{a}, {b}], axis=-1) | np.roll({a}, 1) | np.flip({a})
np.tile({a}, 2) | np.repeat({a}, 2) | np.expand_dims({a}, 0) | np.squeeze({a})
np.swapaxes({a}, 0, -1) | np.moveaxis({a}, 0, -1) | np.transpose({a})
np.broadcast_to({a}, (2, 3)) | np.hstack([{a}, {b}]) | np.vstack([{a}, {b}])
{a}[np.array([0, 1, 0])] | {a}[..., np.array([1, -1])] | {a}[:, 1] | {a}[::2]
{a}[1:] - {a}[:-1] | np.diag({a}) | np.array([{s}, {t}, 1.5]) * {s}
np.array([[{s}, {t}], [{t}, {s} * {t}]]) * {s} | np.split({a}, 2)[0] | np.reshape({a}, (-1, 1))
np.ravel({a})[:2] | np.full((2,), 0.7) * {s}
"""
REDUCE = """
{a}.sum() | {a}.mean() | np.sum({a}, axis=0) | np.sum({a}, axis=-1, keepdims=True)
np.mean({a}, axis=0) | np.prod({a}) | np.prod({a}, axis=-1) | np.max({a}) | np.min({a}, axis=0)
{a}.max(axis=-1) | np.var({a}) | np.std({a}) | np.var({a}, axis=0) | np.cumsum({a})
np.cumsum({a}, axis=-1) | np.linalg.norm({a}) | np.trace({m}) | np.dot({a}, {b}) | {a} @ {b}
{a} @ {a} | np.inner({a}, {b}) | {m} @ {m} | np.einsum('ij,ij->i', {m}, {m})
np.einsum('ij,kj->ik', {m}, {m}) | np.einsum('ij->j', {m}) | np.tensordot({a}, {b}, axes=1)
np.matmul({m}.T, {m}) | np.vdot({a}, {a}) | {a}.dot({a}) | {a} - {a}.mean()
np.exp({a} - np.max({a})) | {a}[np.argmax({s} * np.array([1.0, 2.0]))]
np.log(np.sum(np.exp({a}))) | np.sum({a} * {a}) ** 0.5 | np.sum({a}, axis=(0, -1))
"""


def templates(table: str) -> list[str]:
    return [entry.strip() for line in table.splitlines() for entry in line.split(" | ") if entry]


FAMILIES = [templates(table) for table in (UNARY, BINARY, BINARY, SHAPE, REDUCE)]


class Program(NamedTuple):
    source: str
    args: tuple[Array, ...]
    direction: tuple[Array, ...]
    slope: float
    """NumPy's derivative along ``direction``."""


def compiled(source: str, name: str = "program") -> Callable[..., Any]:
    scope: dict[str, Any] = {"np": np}
    exec(compile(source, "<random program>", "exec"), scope)
    fn: Callable[..., Any] = scope[name]
    return fn


def smooth_slope(source: str, args: Any, direction: Any) -> float | None:
    """The derivative along a direction by central differences of two step sizes; None where
    they disagree (a kink or a jump nearby, or too steep for differences)."""
    fn = compiled(source)

    def at(t: float) -> float:
        return float(fn(*(a + t * d for a, d in zip(args, direction, strict=True))))

    slopes = []
    try:
        for h in (4e-4, 1.7e-4):
            slopes.append((at(-2 * h) - 8 * at(-h) + 8 * at(h) - at(2 * h)) / (12 * h))
    except (FloatingPointError, ValueError):
        return None
    if abs(slopes[0] - slopes[1]) > 2e-8 * (1 + abs(slopes[1])) or abs(slopes[1]) > 1e3:
        return None
    return slopes[1]


def run(statements: str, name: str, values: dict[str, Any]) -> Any:
    scope = {"np": np, **values}
    exec(statements, scope)
    return scope[name]


def value_of(statements: str, name: str, values: dict[str, Any], noise: np.random.Generator) -> Any:
    """What the statements give ``name``; None if they fail, leave the range where tests are
    sharp, or react strongly to a tiny change of any operand (poles, jumps, sqrt at 0: there
    the derivative is infinite or a matter of convention, which other tests pin down)."""
    tiny = 1e-7
    moved = {n: v + tiny * noise.uniform(-1, 1, np.shape(v)) for n, v in values.items()}
    back = {n: 2 * v - moved[n] for n, v in values.items()}
    try:
        found = run(statements, name, values)
        value = np.asarray(found)
        if value.dtype != np.float64 or not 0 < value.size <= 24 or np.max(np.abs(value)) > 30:
            return None
        for nearby in (moved, back):
            if np.max(np.abs(run(statements, name, nearby) - value)) > 200 * tiny:
                return None
    except (ArithmeticError, AttributeError, IndexError, TypeError, ValueError):
        return None
    return found


def draw(rng: random.Random, shapes: dict[str, tuple[int, ...]]) -> str:
    """A random right-hand side over the values so far, the recent ones more likely."""
    names = list(shapes)
    recent = names + names[-3:] * 2
    matrices = [n for n in names if len(shapes[n]) == 2] or names
    scalars = [n for n in names if shapes[n] == ()] or names
    text = rng.choice(rng.choice(FAMILIES))
    if "ax" in text:  # NumPy takes axis=0 of a scalar, for old times' sake; tapec need not
        recent = [n for n in recent if shapes[n]]
        if not recent:
            return draw(rng, shapes)
    a = rng.choice(recent)
    return text.format(
        a=a,
        b=rng.choice([n for n in recent if n != a] or recent),
        m=rng.choice(matrices),
        s=rng.choice(scalars),
        t=rng.choice(scalars),
    )


def generate(seed: int) -> Program:
    """A program of 3 to 12 statements on one to three arrays, and a point where it is smooth."""
    rng = random.Random(seed)
    generator = np.random.default_rng(seed)
    with np.errstate(all="raise", under="ignore"):
        while True:
            inputs = [f"x{i}" for i in range(rng.randint(1, 3))]
            args = tuple(np.array(generator.uniform(-1.5, 1.5, rng.choice(SHAPES))) for _ in inputs)
            values: dict[str, Any] = dict(zip(inputs, args, strict=True))
            body = ""
            wanted = len(inputs) + rng.randint(3, 12)
            for _ in range(20 * wanted):
                if len(values) == wanted:
                    break
                name = f"v{len(values) - len(inputs)}"
                line = f"{name} = {draw(rng, {n: np.shape(v) for n, v in values.items()})}\n"
                if rng.random() < 0.05:
                    # Control flow on values: the trace records a guard.
                    line += f"if np.sum({name}) > 0.3:\n    {name} = {name} * 0.5\n"
                value = value_of(line, name, values, generator)
                if value is not None:
                    body += line
                    values[name] = value
            unused = [n for n in values if len(re.findall(rf"\b{n}\b", body)) <= 1] or [name]
            results = " + ".join(f"np.sum({n})" for n in unused)
            source = f"def program({', '.join(inputs)}):\n"
            source += textwrap.indent(f"{body}return {results}\n", "    ")
            direction = tuple(generator.normal(size=a.shape) for a in args)
            slope = smooth_slope(source, args, direction)
            if slope is not None:
                return Program(source, args, direction, slope)


def together(programs: list[Program]) -> Callable[..., Any]:
    """One function of all inputs: the value of each program, stacked."""
    text = "".join(
        p.source.replace("def program(", f"def program{i}(") for i, p in enumerate(programs)
    )
    text += "def program(inputs):\n    return np.stack([\n"
    text += "".join(f"        program{i}(*inputs[{i}]),\n" for i in range(len(programs)))
    return compiled(text + "    ])\n")


def group(index: int, size: int = GROUP) -> list[Program]:
    return [generate(1_000_000 + GROUP * index + k) for k in range(size)]


def total(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda inputs: np.sum(fn(inputs))


def assert_close(got: Any, want: Any, tolerance: float, what: str, program: Program) -> None:
    """Relative to the largest entry, and to 1."""
    got, want = np.asarray(got), np.asarray(want)
    scale = 1 + np.max(np.abs(want), initial=0)
    error = np.max(np.abs(got - want), initial=0) / scale
    # `not <=` rather than `>`: NaN has to fail.
    if got.shape != want.shape or not error <= tolerance:
        raise AssertionError(
            f"{what} differs by {error:.1e} (allowed {tolerance:.0e}): {got} and {want}\n"
            f"{program.source}\nat {program.args!r}"
        )


@pytest.mark.parametrize("index", range(GROUPS))
def test_value_and_gradient(index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = group(index)
    fn = together(programs)
    inputs = [p.args for p in programs]
    values = tapec.jit(fn)(inputs)
    value, gradients = tapec.value_and_grad(total(fn))(inputs)
    _, slopes = tapec.jvp(fn, (inputs,), ([p.direction for p in programs],))
    with monkeypatch.context() as patch:
        patch.setenv("TAPEC_BACKEND", "interpret")
        reference = tapec.jit(fn)(inputs)
        _, reference_gradients = tapec.value_and_grad(total(fn))(inputs)

    for k, program in enumerate(programs):
        value_by_numpy = compiled(program.source)(*program.args)
        assert_close(values[k], value_by_numpy, 1e-12, "value: compiled and NumPy's", program)
        assert_close(values[k], reference[k], 1e-12, "value: compiled and interpreted", program)
        for g, r in zip(gradients[k], reference_gradients[k], strict=True):
            assert_close(g, r, 1e-10, "gradient: compiled and interpreted", program)
        slope = sum(
            float(np.sum(g * d)) for g, d in zip(gradients[k], program.direction, strict=True)
        )
        assert_close(slope, slopes[k], 1e-10, "slope: reverse and forward mode", program)
        assert_close(slope, program.slope, 1e-6, "slope: gradient and differences", program)
    assert value == pytest.approx(float(np.sum(values)), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("index", range(GROUPS, GROUPS + 8))
def test_second_order_by_three_routes(index: int) -> None:
    """Hessian times a direction: forward over reverse, reverse over reverse, reverse over
    forward."""
    programs = group(index, 10)
    fn = total(together(programs))
    inputs = [p.args for p in programs]
    direction = [p.direction for p in programs]

    def along(gradients: Any) -> Any:
        return sum(
            np.sum(g * d)
            for gs, ds in zip(gradients, direction, strict=True)
            for g, d in zip(gs, ds, strict=True)
        )

    forward_reverse = tapec.hvp(fn)(inputs, direction)
    reverse_reverse = tapec.grad(lambda x: along(tapec.grad(fn)(x)))(inputs)
    reverse_forward = tapec.grad(lambda x: tapec.jvp(fn, (x,), (direction,))[1])(inputs)
    for k, program in enumerate(programs):
        for a, b, c in zip(forward_reverse[k], reverse_reverse[k], reverse_forward[k], strict=True):
            assert_close(a, b, 1e-8, "forward over reverse, reverse over reverse", program)
            assert_close(a, c, 1e-8, "forward over reverse, reverse over forward", program)
