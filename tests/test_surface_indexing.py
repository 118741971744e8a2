"""Random indexing programs against NumPy: every form of subscript, reading and writing in place.

A program is a function of arrays that runs on NumPy arrays and on traced ones.  Values must be
equal; derivatives follow from linearity: the programs are linear in the data, so the Jacobian
applied to other data is the program's value there.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapec
import tapec.numpy as tnp
from tapec.ir import jvp, vjp
from tapec.ir.core import Type, dtype_of
from tapec.ir.interp import interpret
from tapec.ir.verify import verify
from tapec.lift import lift
from tapec.tape import Tape

Array = np.ndarray[Any, Any]


def lifted(fn: Callable[..., Any], *args: Any) -> tuple[Any, list[Any]]:
    """``fn`` as IR, and the values of its parameters."""
    with Tape("case") as tape:
        tracers = [
            tape.input(Type(dtype_of(a.dtype), a.shape), a, f"x{k}") for k, a in enumerate(args)
        ]
        out = fn(*tracers)
        made = lift(tape, [out], "case")
    return verify(made), [*args, *[c.obj for c in tape.captures]]


def check(fn: Callable[..., Any], *args: Array) -> None:
    """``fn`` is linear in its floating-point arguments together."""
    want = fn(*[a.copy() for a in args])
    made, values = lifted(fn, *args)
    (got,) = interpret(made, values)
    np.testing.assert_array_equal(got, want)
    wrt = [k for k, a in enumerate(args) if a.dtype.kind == "f"]
    rng = np.random.default_rng(0)
    tangents = [rng.normal(size=args[k].shape) for k in wrt]
    seed = rng.normal(size=got.shape)
    moved = list(args)
    for k, t in zip(wrt, tangents):
        moved[k] = t
    zero = [a * 0 if a.dtype.kind == "f" else a for a in args]
    expected = fn(*[a.copy() for a in moved]) - fn(*[a.copy() for a in zero])
    forward = interpret(jvp(made, wrt), [*values, *tangents])[-1]
    np.testing.assert_allclose(forward, expected, rtol=1e-12, atol=1e-12)
    back = interpret(vjp(made, wrt, [0]), [*values, seed])[1:]
    total = sum(float(np.sum(b * t)) for b, t in zip(back, tangents))
    assert total == pytest.approx(float(np.sum(seed * expected)), rel=1e-10, abs=1e-10)


SHAPES = [(5,), (4, 3), (3, 2, 4), (2, 3, 2, 3), (40,), (7, 9)]


def random_slice(r: random.Random, n: int) -> slice:
    def bound() -> int | None:
        return r.choice([None, r.randint(-n - 1, n + 1)])

    return slice(bound(), bound(), r.choice([None, 1, 1, 2, -1, -2, 3]))


def random_key(r: random.Random, shape: tuple[int, ...]) -> Any:
    """A subscript: integers, slices, Ellipsis, new axes, integer arrays, masks."""
    parts: list[Any] = []
    axis, dots = 0, False
    arrays = r.random() < 0.5
    common: tuple[int, ...] = r.choice([(2,), (3,), (2, 2), ()])
    while axis < len(shape) and r.random() < 0.85:
        n, c = shape[axis], r.random()
        if c < 0.25:
            parts.append(r.randint(-n, n - 1))
        elif c < 0.5:
            parts.append(random_slice(r, n))
        elif c < 0.58:
            parts.append(None)
            continue
        elif c < 0.66 and not dots:
            parts.append(Ellipsis)
            dots = True
            axis += r.randint(0, len(shape) - axis)
            continue
        elif c < 0.8 and arrays:
            index = np.array([r.randint(-n, n - 1) for _ in range(int(np.prod(common)))], int)
            index = index.reshape(common)
            parts.append(r.choice([index, index.tolist()]))
        elif c < 0.87 and arrays and common == (2,):
            mask = np.zeros(n, bool)
            mask[r.sample(range(n), min(2, n))] = True
            if mask.sum() != 2:
                continue
            parts.append(mask)
        else:
            parts.append(slice(None))
        axis += 1
    if len(parts) == 1 and r.random() < 0.5 and not isinstance(parts[0], list):
        return parts[0]
    return tuple(parts)


def valid(shape: tuple[int, ...], key: Any) -> bool:
    try:
        np.zeros(shape)[key]
    except IndexError:
        return False
    return True


@pytest.mark.parametrize("block", range(8))
def test_random_reads(block: int) -> None:
    r = random.Random(block)
    done = 0
    while done < 25:
        shape = r.choice(SHAPES)
        key = random_key(r, shape)
        if not valid(shape, key):
            continue
        done += 1
        x = np.random.default_rng(done).normal(size=shape)
        check(lambda x, key=key: x[key] * 1.0, x)


@pytest.mark.parametrize("block", range(8))
def test_random_writes(block: int) -> None:
    """Several writes and reads in one program."""
    r = random.Random(100 + block)
    done = 0
    while done < 12:
        shape = r.choice(SHAPES)
        keys = [random_key(r, shape) for _ in range(r.randint(1, 6))]
        if not all(valid(shape, k) for k in keys):
            continue
        done += 1
        kinds = [r.choice(["set", "set", "add", "scale", "copy"]) for _ in keys]
        x = np.random.default_rng(done).normal(size=shape)
        s = np.random.default_rng(done).normal(size=3)

        def program(x: Any, s: Any, keys: Any = keys, kinds: Any = kinds) -> Any:
            a = x * 1.0
            total = 0.0
            for n, (key, kind) in enumerate(zip(keys, kinds)):
                if kind == "set":
                    a[key] = s[n % 3]
                elif kind == "add":
                    a[key] += s[n % 3]
                elif kind == "scale":
                    a[key] *= 2.0
                else:
                    b = a.copy()
                    b[key] = a[key] * 3.0
                    total = total + b.sum()
            return a + total

        check(program, x, s)


@pytest.mark.parametrize("block", range(6))
def test_random_element_programs(block: int) -> None:
    """Arrays filled and read one by one, by rows and by slices, in larger arrays."""
    r = random.Random(200 + block)
    for case in range(6):
        n, m = r.choice([(40, 1), (9, 8), (50, 2)])
        shape = (n,) if m == 1 else (n, m)
        steps = []
        for _ in range(r.randint(10, 60)):
            at = [r.randrange(k) for k in shape]
            frm = [r.randrange(k) for k in shape]
            steps.append((r.choice(["e", "e", "e", "row", "slice", "all", "view"]), at, frm))
        zeros = r.random() < 0.5
        x = np.random.default_rng(case).normal(size=shape)

        def program(x: Any, steps: Any = steps, zeros: Any = zeros, shape: Any = shape) -> Any:
            a = x * 1.0
            if zeros:
                a = np.zeros(shape) if isinstance(x, np.ndarray) else tnp.zeros(shape)
            total = 0.0
            for kind, at, frm in steps:
                if kind == "e":
                    a[tuple(at)] = x[tuple(frm)] + a[tuple(frm)] * 0.5
                elif kind == "row":
                    a[at[0]] = x[frm[0]] - a[frm[0]]
                elif kind == "slice":
                    a[at[0] :: 7] = a[at[0] :: 7] * 0.5 + x[tuple(frm)]
                elif kind == "view":
                    b = a[frm[0] :]
                    b[0] = x[at[0]] * 0.25
                    total = total + b[-1].sum()
                else:
                    total = total + a.sum() * 0.125
            return a + total

        check(program, x)


def test_writes_of_elements_do_not_copy_the_array() -> None:
    """n writes are one ``place``: the number of array operations does not grow with n."""

    def running(x: Any) -> Any:
        s = tnp.zeros(len(x))
        s[0] = x[0]
        for i in range(1, len(x)):
            s[i] = s[i - 1] * 0.5 + x[i]
        return s

    for n in (40, 160):
        made, _ = lifted(running, np.linspace(0, 1, n))
        large = [op for op in made.ops if op.results and op.results[0].type.size == n]
        assert len(large) <= 2, [op.name for op in large]


def test_tridiagonal_solve_in_place() -> None:
    def solve(a: Any, b: Any, c: Any, d: Any) -> Any:
        n = len(d)
        b, d = b.copy(), d.copy()
        for i in range(1, n):
            w = a[i - 1] / b[i - 1]
            b[i] -= w * c[i - 1]
            d[i] -= w * d[i - 1]
        x = tnp.zeros(n)
        x[n - 1] = d[n - 1] / b[n - 1]
        for i in range(n - 2, -1, -1):
            x[i] = (d[i] - c[i] * x[i + 1]) / b[i]
        return x

    rng = np.random.default_rng(0)
    n = 60
    a, c = rng.normal(size=(2, n - 1))
    b, d = rng.normal(size=n) + 5, rng.normal(size=n)
    value, grads = tapec.value_and_grad(
        lambda *args: np.sum(solve(*args) ** 2), argnums=(0, 1, 2, 3)
    )(a, b, c, d)
    matrix = np.diag(b) + np.diag(a, -1) + np.diag(c, 1)
    x = np.linalg.solve(matrix, d)
    adjoint = np.linalg.solve(matrix.T, 2 * x)
    np.testing.assert_allclose(value, np.sum(x**2), rtol=1e-13)
    np.testing.assert_allclose(grads[3], adjoint, rtol=1e-11)
    np.testing.assert_allclose(grads[1], -adjoint * x, rtol=1e-11)
    np.testing.assert_allclose(grads[0], -adjoint[1:] * x[:-1], rtol=1e-11)
    np.testing.assert_allclose(grads[2], -adjoint[:-1] * x[1:], rtol=1e-11)


def test_overwritten_pieces_and_branches_on_elements() -> None:
    def program(x: Any) -> Any:
        a = tnp.zeros(64)
        for i in range(64):
            a[i] = x[i % 4]
        for i in range(0, 64, 2):
            a[i] = a[i + 1] * 2.0
            if a[i] > 0:
                a[i] = a[i] * 3.0
        return np.sum(a * a)

    x = np.array([1.0, 2.0, -3.0, 4.0])
    a = np.array([x[i % 4] for i in range(64)])
    a[::2] = np.where(a[1::2] > 0, 6.0, 2.0) * a[1::2]
    value, gradient = tapec.value_and_grad(program)(x)
    assert value == pytest.approx(float(np.sum(a * a)))
    expected = np.array([0.0, 16 * (36 + 1) * 2 * x[1], 0.0, 16 * (36 + 1) * 2 * x[3]])
    np.testing.assert_allclose(gradient, expected)


# -- plain arrays that traced values are written into ---------------------------------------------

TABLE = np.ones(5)


def helper(n: int) -> Any:
    return np.zeros(n)


def test_plain_zeros_are_traced_again() -> None:
    def filled(x: Any) -> Any:
        a = helper(4)
        for i in range(4):
            a[i] = x[i] ** 2
        a += 1.0
        return np.sum(a * x)

    def through_likeness(x: Any) -> Any:
        b = np.zeros_like(TABLE)
        b[1:3] = x[:2]
        np.add.at(b, [0, 0], x[:2])
        return (b**2).sum()

    x = np.array([1.0, 2.0, 3.0, 4.0])
    value, gradient = tapec.value_and_grad(filled)(x)
    assert value == filled(x)
    np.testing.assert_allclose(gradient, 3 * x**2 + 1)
    value, gradient = tapec.value_and_grad(through_likeness)(x)
    assert value == through_likeness(x)
    np.testing.assert_allclose(gradient, [8, 10, 0, 0])
    assert helper.__globals__["np"] is np and type(helper(2)) is np.ndarray


def test_the_first_error_stands() -> None:
    with pytest.raises(tapec.ConversionError, match=r"float\(\) of the traced value"):
        tapec.grad(lambda x: float(x[0]) + np.zeros(1)[0])(np.ones(2))
