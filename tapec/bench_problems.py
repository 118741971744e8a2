"""The kernels that ``python -m tapec bench`` times.

A ``Problem`` is one scalar function written once, as ``make(np) -> fn``: ``np`` is NumPy for
tapec and the namesake module of each peer for that peer, so that all run the same text.
``by_hand`` is the yardstick: value and gradient derived on paper, in good NumPy (or plain
Python floats where the program is scalar).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

__all__ = ["Problem", "problems", "straight_line_source"]


@dataclass(frozen=True)
class Problem:
    """``make(np)(*args)`` is differentiated in its first ``wrt`` arguments."""

    name: str
    make: Callable[[Any], Callable[..., Any]]
    args: tuple[Any, ...]
    by_hand: Callable[..., tuple[Any, tuple[Any, ...]]]
    wrt: int = 1
    #: Explicit loops for Numba, where they differ from ``by_hand``.
    loops: Callable[..., Any] | None = None
    #: Made of Python floats: by hand with ``math`` rather than NumPy.
    scalar: bool = False
    #: Peers that are not run, because they lack the operations or need minutes.
    skip: frozenset[str] = frozenset()


# Rosenbrock


def rosenbrock(np: Any) -> Callable[..., Any]:
    def fn(x: Any) -> Any:
        return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)

    return fn


def rosenbrock_by_hand(x: Any) -> Any:
    left = x[:-1]
    a = x[1:] - left * left
    b = 1.0 - left
    gradient = numpy.zeros_like(x)
    gradient[:-1] = -400.0 * a * left - 2.0 * b
    gradient[1:] += 200.0 * a
    return 100.0 * (a @ a) + b @ b, (gradient,)


def rosenbrock_loops(x: Any) -> Any:
    n = len(x)
    gradient = numpy.zeros(n)
    value = 0.0
    carry = 0.0
    for i in range(n - 1):
        a = x[i + 1] - x[i] * x[i]
        b = 1.0 - x[i]
        value += 100.0 * a * a + b * b
        gradient[i] = carry - 400.0 * a * x[i] - 2.0 * b
        carry = 200.0 * a
    gradient[n - 1] = carry
    return value, gradient


# sum(sin(exp(x)))


def sum_sin_exp(np: Any) -> Callable[..., Any]:
    def fn(x: Any) -> Any:
        return np.sum(np.sin(np.exp(x)))

    return fn


def sum_sin_exp_by_hand(x: Any) -> Any:
    e = numpy.exp(x)
    return numpy.sin(e).sum(), (numpy.cos(e) * e,)


def sum_sin_exp_loops(x: Any) -> Any:
    gradient = numpy.empty_like(x)
    value = 0.0
    for i in range(len(x)):
        e = math.exp(x[i])
        value += math.sin(e)
        gradient[i] = math.cos(e) * e
    return value, gradient


# Logistic regression, labels -1 and 1


def logistic_regression(np: Any) -> Callable[..., Any]:
    def fn(w: Any, x: Any, sign: Any) -> Any:
        return np.mean(np.log1p(np.exp(-sign * (x @ w))))

    return fn


def logistic_by_hand(w: Any, x: Any, sign: Any) -> Any:
    e = numpy.exp(-sign * (x @ w))
    return numpy.log1p(e).mean(), (x.T @ (-sign * e / (1.0 + e)) / len(sign),)


# A network of three tanh layers


def tanh_network(np: Any) -> Callable[..., Any]:
    def fn(w1: Any, b1: Any, w2: Any, b2: Any, w3: Any, b3: Any, x: Any, y: Any) -> Any:
        hidden = np.tanh(np.tanh(x @ w1 + b1) @ w2 + b2)
        return np.mean((np.tanh(hidden @ w3 + b3) - y) ** 2)

    return fn


def tanh_network_by_hand(
    w1: Any, b1: Any, w2: Any, b2: Any, w3: Any, b3: Any, x: Any, y: Any
) -> Any:
    h1 = numpy.tanh(x @ w1 + b1)
    h2 = numpy.tanh(h1 @ w2 + b2)
    out = numpy.tanh(h2 @ w3 + b3)
    miss = out - y
    d3 = (2.0 / miss.size) * miss * (1.0 - out * out)
    d2 = (d3 @ w3.T) * (1.0 - h2 * h2)
    d1 = (d2 @ w2.T) * (1.0 - h1 * h1)
    gradients = (x.T @ d1, d1.sum(0), h1.T @ d2, d2.sum(0), h2.T @ d3, d3.sum(0))
    return (miss * miss).mean(), gradients


# Robot arm: seven revolute joints, (length, twist, offset) of each link; squared distance of
# the hand to a target.

ARM = (
    (0.0, -math.pi / 2, 0.36),
    (0.0, math.pi / 2, 0.0),
    (0.0, math.pi / 2, 0.42),
    (0.0, -math.pi / 2, 0.0),
    (0.05, -math.pi / 2, 0.40),
    (0.0, math.pi / 2, 0.02),
    (0.1, 0.3, 0.126),
)
TARGET = (0.4, 0.3, 0.6)


def robot_arm(np: Any) -> Callable[..., Any]:
    def fn(q: Any) -> Any:
        # Columns of the rotation (x, y, z axes) and the position, one scalar each.
        xx, xy, xz = 1.0, 0.0, 0.0
        yx, yy, yz = 0.0, 1.0, 0.0
        zx, zy, zz = 0.0, 0.0, 1.0
        px, py, pz = 0.0, 0.0, 0.0
        for i in range(7):
            length, twist, offset = ARM[i]
            c, s = np.cos(q[i]), np.sin(q[i])
            ct, st = math.cos(twist), math.sin(twist)
            nx, ny, nz = xx * c + yx * s, xy * c + yy * s, xz * c + yz * s
            mx, my, mz = yx * c - xx * s, yy * c - xy * s, yz * c - xz * s
            px = px + length * nx + offset * zx
            py = py + length * ny + offset * zy
            pz = pz + length * nz + offset * zz
            xx, xy, xz = nx, ny, nz
            yx, yy, yz, zx, zy, zz = (
                mx * ct + zx * st,
                my * ct + zy * st,
                mz * ct + zz * st,
                zx * ct - mx * st,
                zy * ct - my * st,
                zz * ct - mz * st,
            )
        return (px - TARGET[0]) ** 2 + (py - TARGET[1]) ** 2 + (pz - TARGET[2]) ** 2

    return fn


def robot_arm_by_hand(q: Any) -> Any:
    """The geometric Jacobian: a joint moves the hand by its axis × (hand - joint)."""
    rotation = numpy.eye(3)
    position = numpy.zeros(3)
    axes, joints = numpy.empty((7, 3)), numpy.empty((7, 3))
    for i, (length, twist, offset) in enumerate(ARM):
        axes[i], joints[i] = rotation[:, 2], position
        c, s, ct, st = math.cos(q[i]), math.sin(q[i]), math.cos(twist), math.sin(twist)
        link = numpy.array([[c, -s * ct, s * st], [s, c * ct, -c * st], [0.0, st, ct]])
        position = position + rotation @ numpy.array([length * c, length * s, offset])
        rotation = rotation @ link
    miss = position - numpy.array(TARGET)
    return miss @ miss, (2.0 * numpy.cross(axes, position - joints) @ miss,)


# Straight-line scalar programs


def straight_line_source(count: int, inputs: int = 10, seed: int = 0) -> tuple[str, str]:
    """Python source of a program of ``count`` scalar operations, and of its gradient by hand.

    Operands come from the last 20 values and, now and then, from the inputs, so that the end
    depends on these.  The generator runs along at the point ``i / 10`` and takes a sine whenever
    a value grows, so that all stay of the order of one.
    """
    rng = random.Random(seed)
    names = [f"a{i}" for i in range(inputs)]
    at = {name: 0.1 * (i + 1) for i, name in enumerate(names)}
    body: list[str] = []
    back: list[str] = []
    header = ", ".join(names)
    for i in range(count):
        a = rng.choice(names[-20:])
        near = names[:inputs] if rng.random() < 0.1 else names[-20:]
        b = rng.choice([name for name in near if name != a])
        v = f"v{i}"
        kind = rng.choice(("add", "sub", "mul", "mul", "sin", "cos"))
        if abs(at[a]) > 2 or abs(at[b]) > 2:
            kind, a = "sin", a if abs(at[a]) > 2 else b
        if kind == "add":
            text, at[v] = f"{a} + {b}", at[a] + at[b]
            steps = [f"d_{a} += d_{v}", f"d_{b} += d_{v}"]
        elif kind == "sub":
            text, at[v] = f"{a} - {b}", at[a] - at[b]
            steps = [f"d_{a} += d_{v}", f"d_{b} -= d_{v}"]
        elif kind == "mul":
            text, at[v] = f"{a} * {b}", at[a] * at[b]
            steps = [f"d_{a} += {b} * d_{v}", f"d_{b} += {a} * d_{v}"]
        elif kind == "sin":
            text, at[v] = f"np.sin({a})", math.sin(at[a])
            steps = [f"d_{a} += np.cos({a}) * d_{v}"]
        else:
            text, at[v] = f"np.cos({a})", math.cos(at[a])
            steps = [f"d_{a} -= np.sin({a}) * d_{v}"]
        body.append(f"    {v} = {text}")
        back.extend(f"    {step}" for step in reversed(steps))
        names.append(v)
    # The sum of the last 20 values keeps most of the program alive.
    tail = names[-20:]
    program = [f"def fn({header}):", *body, f"    return {' + '.join(tail)}"]
    zeros = [f"    d_{name} = {1.0 if name in tail else 0.0}" for name in names]
    result = ", ".join(f"d_{name}" for name in names[:inputs])
    by_hand = [
        f"def by_hand({header}):",
        *body,
        *zeros,
        *reversed(back),
        f"    return {' + '.join(tail)}, ({result},)",
    ]
    return "\n".join(program) + "\n", "\n".join(by_hand) + "\n"


def define(source: str, name: str, np: Any) -> Callable[..., Any]:
    """The function ``name`` of ``source``, with ``np`` in scope."""
    scope: dict[str, Any] = {"np": np}
    exec(compile(source, f"<straight line {name}>", "exec"), scope)
    fn: Callable[..., Any] = scope[name]
    return fn


def straight_line(count: int) -> Problem:
    program, gradient = straight_line_source(count)
    skip = {100: set[str](), 1000: {"numba"}}.get(count, {"numba", "jax", "casadi-c"})
    return Problem(
        f"straight line, {count} ops",
        lambda np: define(program, "fn", np),
        tuple(0.1 * (i + 1) for i in range(10)),
        define(gradient, "by_hand", math),
        wrt=10,
        scalar=True,
        skip=frozenset(skip),
    )


def problems(quick: bool = False) -> Sequence[Problem]:
    """All kernels in the order of the table; ``quick`` leaves the largest sizes out."""
    rng = numpy.random.default_rng(0)

    def uniform(*shape: int) -> Any:
        return rng.uniform(-1.0, 1.0, shape)

    found = []
    for n in (2, 100, 10_000) if quick else (2, 100, 10_000, 1_000_000):
        skip = {2: set[str](), 100: set[str](), 10_000: {"casadi-c"}}.get(n, {"casadi", "casadi-c"})
        found.append(
            Problem(
                f"rosenbrock, n = {n}",
                rosenbrock,
                (uniform(n),),
                rosenbrock_by_hand,
                loops=rosenbrock_loops,
                skip=frozenset(skip),
            )
        )
    arrays_only = frozenset({"casadi", "casadi-c"})
    n = 10_000 if quick else 1_000_000
    found.append(
        Problem(
            f"sum(sin(exp(x))), n = {n}",
            sum_sin_exp,
            (uniform(n),),
            sum_sin_exp_by_hand,
            loops=sum_sin_exp_loops,
            skip=arrays_only,
        )
    )
    rows = 1000 if quick else 10_000
    sign = numpy.where(uniform(rows) > 0, 1.0, -1.0)
    found.append(
        Problem(
            f"logistic regression, {rows} x 50",
            logistic_regression,
            (uniform(50), uniform(rows, 50), sign),
            logistic_by_hand,
            skip=arrays_only,
        )
    )
    layers = [uniform(64, 128) / 8, uniform(128), uniform(128, 128) / 11, uniform(128)]
    layers += [uniform(128, 10) / 11, uniform(10)]
    found.append(
        Problem(
            "tanh network, 64 x (64, 128, 128, 10)",
            tanh_network,
            (*layers, uniform(64, 64), uniform(64, 10)),
            tanh_network_by_hand,
            wrt=6,
            skip=arrays_only | {"numba"},
        )
    )
    found.append(
        Problem(
            "robot arm, 7 joints",
            robot_arm,
            (uniform(7),),
            robot_arm_by_hand,
            scalar=True,
            skip=frozenset({"numba"}),
        )
    )
    found.extend(straight_line(n) for n in ((100, 1000) if quick else (100, 1000, 10_000)))
    return found
