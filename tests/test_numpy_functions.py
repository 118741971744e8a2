"""NumPy functions on traced values give NumPy's numbers, shapes and dtypes.

Every case is a function of arrays, called once with NumPy and once traced, lifted and run
by the reference interpreter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tapec.ir.core import Type, dtype_of
from tapec.ir.interp import interpret
from tapec.ir.verify import verify
from tapec.lift import lift
from tapec.tape import Tape, is_traced


def run(fn: Callable[..., Any], *args: Any) -> list[np.ndarray]:
    """The results of ``fn`` through tape, lift and interpreter."""
    with Tape("case") as tape:
        tracers = []
        for k, a in enumerate(args):
            array = np.asarray(a)
            weak = isinstance(a, (float, int))
            t = Type(dtype_of(array.dtype), array.shape)
            tracers.append(tape.input(t, a, f"x{k}", weak=weak))
        out = fn(*tracers)
        outs = list(out) if isinstance(out, (tuple, list)) else [out]
        assert any(is_traced(o) for o in outs), "nothing was traced"
        lifted = lift(tape, outs, "case")
    verify(lifted)
    return interpret(lifted, [*map(np.asarray, args), *[c.obj for c in tape.captures]])


def check(fn: Callable[..., Any], *args: Any, rtol: float = 1e-13, dtype: bool = True) -> None:
    expected = fn(*[a.copy() if isinstance(a, np.ndarray) else a for a in args])
    wanted = list(expected) if isinstance(expected, (tuple, list)) else [expected]
    got = run(fn, *args)
    assert len(got) == len(wanted)
    for g, w in zip(got, wanted):
        w = np.asarray(w)
        if w.dtype == object:
            w = w.astype(float)
        assert g.shape == w.shape
        if dtype:
            assert g.dtype == w.dtype
        tol = rtol if w.dtype != np.float32 else 2e-6
        np.testing.assert_allclose(g, w, rtol=tol, atol=tol)


rng = np.random.default_rng(7)
V = rng.normal(size=5)
W = rng.normal(size=5)
P = np.abs(V) + 0.1
U = rng.uniform(-0.9, 0.9, 5)
M = rng.normal(size=(3, 4))
N = rng.normal(size=(4, 2))
C = rng.normal(size=(2, 3, 4))
Q = rng.normal(size=(3, 3))
I = np.array([3, -1, 2, 0, 7])
J = np.array([2, 5, -3, 4, 1])
B = np.array([True, False, True, True, False])
F = V.astype(np.float32)
TIES = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])

UNARY = (
    (
        "negative absolute sign floor ceil rint trunc cbrt exp exp2 expm1 sin cos tan arctan sinh cosh "
        "tanh arcsinh isnan isinf isfinite square reciprocal deg2rad rad2deg degrees radians fabs "
        "positive conjugate sinc signbit fix real i0"
    )
    .replace(" i0", "")
    .split()
)
BINARY = [
    "add",
    "subtract",
    "multiply",
    "true_divide",
    "divide",
    "arctan2",
    "hypot",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "remainder",
    "mod",
    "fmod",
    "floor_divide",
    "copysign",
    "logaddexp",
    "logaddexp2",
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
    "heaviside",
]


@pytest.mark.parametrize("name", UNARY)
def test_unary_ufuncs(name: str) -> None:
    f = getattr(np, name)
    for x in (V, F, M, 0.7, np.float64(-1.3)):
        check(f, x)


@pytest.mark.parametrize(
    "name", ["sqrt", "log", "log2", "log10", "log1p", "arccosh", "arcsin", "arccos", "arctanh"]
)
def test_unary_ufuncs_with_a_domain(name: str) -> None:
    x = {"arccosh": P + 1, "arcsin": U, "arccos": U, "arctanh": U}.get(name, P)
    check(getattr(np, name), x)
    check(getattr(np, name), x.astype(np.float32))


@pytest.mark.parametrize("name", BINARY)
def test_binary_ufuncs(name: str) -> None:
    f = getattr(np, name)
    check(f, V, W)
    check(f, M[:, :1], V[:4])
    check(f, F, W.astype(np.float32))
    check(lambda x: f(x, 0.5), F)
    check(lambda x: f(0.5, x), V)
    check(lambda x: f(x, W), V)
    check(f, 1.5, V)
    check(f, I, V)


@pytest.mark.parametrize(
    "name",
    [
        "add",
        "subtract",
        "multiply",
        "maximum",
        "minimum",
        "equal",
        "less",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "remainder",
        "floor_divide",
        "true_divide",
    ],
)
def test_integers(name: str) -> None:
    f = getattr(np, name)
    check(f, I, J)
    check(f, I.astype(np.int32), J.astype(np.int32))
    check(lambda x: f(x, 3), I.astype(np.int32))


PROMOTION: list[Callable[..., Any]] = [
    lambda f, d, i, b: f + d,
    lambda f, d, i, b: f + 1.5,
    lambda f, d, i, b: f * np.float64(2.0),
    lambda f, d, i, b: i + 1.5,
    lambda f, d, i, b: i / 2,
    lambda f, d, i, b: i.astype(np.int32) + 2,
    lambda f, d, i, b: i.astype(np.int32) * 2.0,
    lambda f, d, i, b: b * f,
    lambda f, d, i, b: b + b,
    lambda f, d, i, b: b * b,
    lambda f, d, i, b: b & (d > 0),
    lambda f, d, i, b: ~b | (i > 0),
    lambda f, d, i, b: f + i.astype(np.int32),
    lambda f, d, i, b: f.sum() * d,
    lambda f, d, i, b: np.sin(i),
    lambda f, d, i, b: b.sum(),
    lambda f, d, i, b: b.mean(),
    lambda f, d, i, b: i.astype(np.int32).sum(),
    lambda f, d, i, b: i.mean(),
    lambda f, d, i, b: f.mean(),
    lambda f, d, i, b: f.var(),
    lambda f, d, i, b: np.where(b, f, 0.0),
    lambda f, d, i, b: np.where(b, f, d),
    lambda f, d, i, b: np.where(b, 1.0, f),
    lambda f, d, i, b: np.clip(f, -1, 1),
    lambda f, d, i, b: f**2,
    lambda f, d, i, b: f**2.5 if False else (f * f) ** 2.5,
    lambda f, d, i, b: f ** np.float64(2),
    lambda f, d, i, b: i**2,
    lambda f, d, i, b: i.astype(np.int32) ** 3,
    lambda f, d, i, b: 2.0**f,
    lambda f, d, i, b: 2**d,
    lambda f, d, i, b: np.concatenate([f, d]),
    lambda f, d, i, b: np.stack([f, i.astype(np.int32)]),
    lambda f, d, i, b: i > 2.5,
    lambda f, d, i, b: f == 1,
    lambda f, d, i, b: -i,
    lambda f, d, i, b: abs(i),
    lambda f, d, i, b: i // 2 + i % 3,
    lambda f, d, i, b: i << 1,
    lambda f, d, i, b: i >> 1,
    lambda f, d, i, b: np.floor(i),
    lambda f, d, i, b: np.dot(f, d),
    lambda f, d, i, b: np.dot(i, i),
    lambda f, d, i, b: np.prod(i),
    lambda f, d, i, b: np.sum(f, dtype=np.float64),
    lambda f, d, i, b: np.cumsum(i.astype(np.int32)),
    lambda f, d, i, b: np.max(b),
    lambda f, d, i, b: np.argmax(b),
    lambda f, d, i, b: np.power(f, 3),
    lambda f, d, i, b: np.float_power(f, 2),
    lambda f, d, i, b: np.array([f[0], 1.0]),
]


@pytest.mark.parametrize("case", range(len(PROMOTION)))
def test_promotion(case: int) -> None:
    check(PROMOTION[case], F, V, I, B)


POWERS = [0, 1, 2, 3, 7, -1, -2, 0.5, 2.0, 3.0, -1.0, 1.5, 33, 2.5, np.float64(2.0), np.int64(3)]


@pytest.mark.parametrize("n", POWERS)
def test_constant_powers(n: Any) -> None:
    check(lambda x: x**n, P)
    check(lambda x: np.power(x, n), P)
    check(lambda x: x**n, P.astype(np.float32))
    check(lambda x: x**n, 1.7)


REDUCTIONS = [
    "sum", "prod", "mean", "max", "min", "var", "std", "any", "all", "ptp", "count_nonzero",
    "amax", "amin", "nansum", "nanmean", "average",
]  # fmt: skip


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str) -> None:
    f = getattr(np, name)
    for axis in (None, 0, -1, 1, (0, 2), (0, 1, 2), (-1, -2)):
        check(lambda x, a=axis: f(x, axis=a), C)
        check(lambda x, a=axis: f(x, axis=a, keepdims=True), C)
    check(lambda x: f(x), V)


CASES: dict[str, Callable[..., Any]] = {
    "var ddof": lambda v, m, c, q: np.var(m, axis=1, ddof=1),
    "std ddof": lambda v, m, c, q: m.std(0, ddof=1),
    "sum initial": lambda v, m, c, q: np.sum(m, initial=2.0),
    "max initial": lambda v, m, c, q: np.max(m, axis=0, initial=0.5),
    "argmax": lambda v, m, c, q: [np.argmax(m), m.argmax(0), np.argmin(c, axis=-1)],
    "argmax keepdims": lambda v, m, c, q: np.argmax(m, axis=1, keepdims=True),
    "cumsum": lambda v, m, c, q: [np.cumsum(m), m.cumsum(0), np.cumsum(c, axis=-1)],
    "cumprod": lambda v, m, c, q: [np.cumprod(m), m.cumprod(1), np.cumprod(c, axis=0)],
    "diff": lambda v, m, c, q: [np.diff(v), np.diff(m, axis=0), np.diff(c, n=2), np.diff(v, n=0)],
    "diff prepend": lambda v, m, c, q: np.diff(v, prepend=0.0, append=v[:1]),
    "ediff1d": lambda v, m, c, q: np.ediff1d(v, to_begin=v[0]),
    "average": lambda v, m, c, q: np.average(v, weights=np.arange(1.0, 6.0)),
    "average axis": lambda v, m, c, q: np.average(m, axis=1, weights=v[:4] ** 2),
    "dot": lambda v, m, c, q: [np.dot(v, v), np.dot(m, v[:4]), np.dot(q, m), np.dot(v, 2.0)],
    "dot nd": lambda v, m, c, q: np.dot(c, m.T),
    "dot 3-2": lambda v, m, c, q: np.dot(q, c),
    "matmul": lambda v, m, c, q: [m @ m.T, m @ v[:4], v[:3] @ m, v @ v, c @ m.T, q @ c],
    "matmul batch": lambda v, m, c, q: np.matmul(c, np.swapaxes(c, 1, 2)),
    "matmul broadcast": lambda v, m, c, q: c[:, None] @ np.swapaxes(c, 1, 2)[None],
    "matmul constant": lambda v, m, c, q: np.arange(6.0).reshape(2, 3) @ m,
    "inner": lambda v, m, c, q: [np.inner(v, v), np.inner(m, c), np.inner(c, v[:4])],
    "outer": lambda v, m, c, q: [np.outer(v, v[:2]), np.outer(m, q)],
    "vdot": lambda v, m, c, q: np.vdot(m, m * 2),
    "tensordot": lambda v, m, c, q: [
        np.tensordot(m, m.T, 1), np.tensordot(c, m, ([1, 2], [0, 1])), np.tensordot(v, v, 0),
        np.tensordot(c, np.transpose(c, (1, 2, 0)), 2), np.tensordot(c, q, (1, 0)),
    ],
    "kron": lambda v, m, c, q: [np.kron(v, v[:2]), np.kron(m, q), np.kron(v, m)],
    "cross": lambda v, m, c, q: [np.cross(v[:3], v[1:4]), np.cross(q, q[::-1])],
    "cross axis": lambda v, m, c, q: np.cross(q, q.T, axis=0),
    "matrix_power": lambda v, m, c, q: [np.linalg.matrix_power(q, n) for n in (0, 1, 3)],
    "multi_dot": lambda v, m, c, q: np.linalg.multi_dot([q, m, m.T, v[:3]]),
    "trace": lambda v, m, c, q: [np.trace(m), m.trace(1), np.trace(c, axis1=1, axis2=2)],
    "diag": lambda v, m, c, q: [np.diag(v), np.diag(v, 2), np.diag(v, -1), np.diag(m), np.diag(m, -1)],
    "diagonal": lambda v, m, c, q: [m.diagonal(), np.diagonal(c, 1, 0, 2), np.diagonal(m, -2)],
    "diagflat": lambda v, m, c, q: np.diagflat(m),
    "triu": lambda v, m, c, q: [np.triu(m), np.tril(m, -1), np.triu(c, 1), np.tril(q)],
    "where": lambda v, m, c, q: [np.where(m > 0, m, 0.0), np.where(v > 0, v, v**2)],
    "where constant mask": lambda v, m, c, q: np.where(np.array([1, 0, 1, 0, 1], bool), v, -v),
    "clip": lambda v, m, c, q: [np.clip(v, -0.5, 0.5), v.clip(0), np.clip(m, None, 0.1)],
    "clip arrays": lambda v, m, c, q: np.clip(m, -np.abs(v[:4]), 0.3),
    "select": lambda v, m, c, q: np.select([v > 1, v > 0], [v, v * 2], default=-1.0),
    "piecewise": lambda v, m, c, q: np.piecewise(v, [v < 0, v >= 0], [lambda x: -x, lambda x: x * x]),
    "concatenate": lambda v, m, c, q: [
        np.concatenate([m, q], 1), np.concatenate((v, v[:2], np.ones(2))),
        np.concatenate([m, q], axis=None),
    ],
    "stack": lambda v, m, c, q: [np.stack([v, v * 2]), np.stack([v, v], axis=1), np.stack([m, m], -1)],
    "stacks": lambda v, m, c, q: [
        np.hstack([v, v]), np.hstack([m, q]), np.vstack([v, v]), np.vstack([m, v[:4]]),
        np.dstack([m, m]), np.column_stack([v, v * 2]), np.hstack([v[0], v[1]]),
    ],
    "append": lambda v, m, c, q: [np.append(v, 3.0), np.append(m, m, axis=0)],
    "block": lambda v, m, c, q: np.block([[m, q], [np.ones((1, 7))]]),
    "split": lambda v, m, c, q: [*np.split(m, 2, axis=1), *np.split(v, [1, 3])],
    "array_split": lambda v, m, c, q: np.array_split(v, 3),
    "splits": lambda v, m, c, q: [*np.hsplit(m, 2), *np.vsplit(m, 3), *np.dsplit(c, 2)],
    "squeeze": lambda v, m, c, q: [np.squeeze(v[None, :, None]), np.squeeze(v[None, :, None], 0)],
    "expand_dims": lambda v, m, c, q: [np.expand_dims(v, 0), np.expand_dims(m, (0, -1))],
    "ravel": lambda v, m, c, q: [m.ravel(), np.ravel(m, "F"), m.flatten(), m.flatten("F")],
    "reshape": lambda v, m, c, q: [
        m.reshape(2, 6), m.reshape((4, -1)), m.reshape(-1), np.reshape(m, (2, 6), order="F"),
        c.reshape(6, 4, order="F"),
    ],
    "axes": lambda v, m, c, q: [
        m.T, c.T, c.transpose(1, 0, 2), np.transpose(c, (2, 0, 1)), np.swapaxes(c, 0, 2),
        np.moveaxis(c, 0, -1), np.moveaxis(c, [0, 1], [-1, 0]), np.rollaxis(c, 2), c.mT,
    ],
    "broadcast_to": lambda v, m, c, q: np.broadcast_to(v, (3, 5)),
    "broadcast_arrays": lambda v, m, c, q: list(np.broadcast_arrays(v[:4], m)),
    "tile": lambda v, m, c, q: [np.tile(v, 3), np.tile(m, (2, 1)), np.tile(v, (2, 2)), np.tile(m, 2)],
    "repeat": lambda v, m, c, q: [np.repeat(v, 3), m.repeat(2, axis=1), np.repeat(m, [1, 0, 2], axis=0)],
    "roll": lambda v, m, c, q: [np.roll(v, 2), np.roll(m, -1), np.roll(m, 1, 0), np.roll(m, (1, 2), (0, 1))],
    "flip": lambda v, m, c, q: [np.flip(v), np.flip(m, 1), np.fliplr(m), np.flipud(m), np.flip(c, (0, 2))],
    "rot90": lambda v, m, c, q: [np.rot90(m, k) for k in range(4)],
    "pad": lambda v, m, c, q: [
        np.pad(v, (1, 2)), np.pad(m, 1), np.pad(m, ((1, 0), (0, 2)), constant_values=3.0),
        np.pad(v, 2, mode="edge"), np.pad(m, 1, mode="reflect"), np.pad(v, 2, "wrap"),
    ],
    "delete": lambda v, m, c, q: [np.delete(v, 1), np.delete(m, [0, 2], axis=1)],
    "atleast": lambda v, m, c, q: [
        np.atleast_1d(v[0]), np.atleast_2d(v), np.atleast_3d(v), np.atleast_3d(m), np.atleast_2d(m),
    ],
    "likes": lambda v, m, c, q: [
        np.zeros_like(m) + v[0], np.ones_like(v) * v, np.full_like(m, v[1]), np.full_like(v, 2.0) + v,
    ],
    "copy": lambda v, m, c, q: [np.copy(v), v.copy(), m.astype(np.float32)],
    "norms": lambda v, m, c, q: [
        np.linalg.norm(v), np.linalg.norm(m), np.linalg.norm(m, axis=0), np.linalg.norm(v, 1),
        np.linalg.norm(v, np.inf), np.linalg.norm(v, -np.inf), np.linalg.norm(v, 3),
        np.linalg.norm(v, 0), np.linalg.norm(m, "fro"), np.linalg.norm(m, 1),
        np.linalg.norm(m, np.inf), np.linalg.norm(c, axis=(0, 2)),
        np.linalg.norm(m, axis=1, keepdims=True), np.linalg.norm(m, -1),
    ],
    "modf": lambda v, m, c, q: [*np.modf(v), *np.divmod(v, 0.3)],
    "python divmod": lambda v, m, c, q: [*divmod(v, 0.7), v % 0.7, v // 0.7, 5.0 % v, 5.0 // v],
    "nan_to_num": lambda v, m, c, q: np.nan_to_num(v * np.array([1, np.inf, np.nan, -np.inf, 3.0]), posinf=9.0),
    "isclose": lambda v, m, c, q: [np.isclose(v, v + 1e-9), np.allclose(v, v), np.array_equal(v, v)],
    "take": lambda v, m, c, q: [
        np.take(v, [0, 2, -1]), m.take([1, 0], axis=1), np.take(m, [[0, 5], [1, 2]]),
        np.take(v, [7, -9], mode="clip"), np.take(v, [7, -9], mode="wrap"),
    ],
    "take_along_axis": lambda v, m, c, q: np.take_along_axis(m, np.array([[0, 1], [2, 3], [1, 1]]), 1),
    "searchsorted": lambda v, m, c, q: [
        np.searchsorted(np.array([-1.0, 0.0, 1.0]), v), np.searchsorted([-1.0, 0.0], v, "right"),
        np.digitize(v, [-1.0, 0.0, 1.0]),
    ],
    "interp": lambda v, m, c, q: [
        np.interp(v, [-1.0, 0.0, 1.0], [3.0, 5.0, 4.0]),
        np.interp(v[0], np.array([-1.0, 0.0, 1.0]), v[:3], left=-7.0),
        np.interp(np.array([0.1, 0.2, 5.0]), [0.0, 1.0, 2.0], v[:3]),
    ],
    "round": lambda v, m, c, q: [np.round(v), v.round(2), np.around(v * 100, -1)],
    "trapezoid": lambda v, m, c, q: [np.trapezoid(v, dx=0.5), np.trapezoid(m, v[:4], axis=1)],
    "meshgrid": lambda v, m, c, q: [*np.meshgrid(v, v[:3]), *np.meshgrid(v[:2], v, indexing="ij")],
    "linspace": lambda v, m, c, q: [
        np.linspace(v[0], v[1], 7), np.linspace(v[:2], v[2:4], 3), np.linspace(0, v[0], 4, endpoint=False),
    ],
    "polyval": lambda v, m, c, q: np.polyval(v, m),
    "reduce": lambda v, m, c, q: [
        np.add.reduce(m), np.add.reduce(m, axis=None), np.multiply.reduce(m, 1),
        np.maximum.reduce(v), np.minimum.reduce(m, axis=1, keepdims=True),
        np.logaddexp.reduce(m, axis=1),
    ],
    "accumulate": lambda v, m, c, q: [
        np.add.accumulate(m), np.multiply.accumulate(v), np.maximum.accumulate(v),
        np.minimum.accumulate(m, axis=1),
    ],
    "ufunc outer": lambda v, m, c, q: [np.add.outer(v, m), np.multiply.outer(v, v), np.maximum.outer(v, v)],
    "logic": lambda v, m, c, q: [np.logical_not(v > 0), np.any(m > 1), np.all(m > -9, axis=1)],
    "einsum": lambda v, m, c, q: [
        np.einsum("i,i", v, v), np.einsum("ij->ji", m), np.einsum("ij->", m), np.einsum("ij->j", m),
        np.einsum("ii", q), np.einsum("ii->i", q), np.einsum("ij,jk", q, m), np.einsum("ij,ij->i", m, m),
        np.einsum("i,j->ij", v, v), np.einsum("bij,bjk->bik", c, np.swapaxes(c, 1, 2)),
        np.einsum("...ij,...jk->...ik", c, m.T), np.einsum("...i,i", c, v[:4]),
        np.einsum("ij,jk,k", q, m, v[:4]), np.einsum("ij,jk,kl->il", q, m, m.T),
        np.einsum("i,ij,j->", v[:3], m, v[:4]), np.einsum("ji", m), np.einsum("i...->...", c),
        np.einsum("ijk->k", c), np.einsum("iij->j", q[:, :, None] * v[:2]),
        np.einsum(m, [0, 1], m, [2, 1], [0, 2]), np.einsum(q, [0, 0]), np.einsum("ij,kl->", m, q),
        np.einsum("i,i", v, v[:1]), np.einsum("ab,b,a,ab->a", q, q[0], q[1], q, optimize=True),
        np.einsum("ij , jk -> ik", q, m), np.einsum("i,i->", v, np.arange(5)),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_functions(name: str) -> None:
    check(CASES[name], V, M, C, Q, rtol=1e-12)


@pytest.mark.parametrize(
    "name", ["dot", "axes", "pad", "norms", "cumprod", "einsum", "roll", "where"]
)
def test_functions_in_single_precision(name: str) -> None:
    if name == "einsum":  # mixes in float64 constants
        check(lambda m, q: np.einsum("ij,jk->ik", q, m), M.astype("f4"), Q.astype("f4"))
        return
    args = [a.astype(np.float32) for a in (V, M, C, Q)]
    check(CASES[name], *args, dtype=name not in ("pad",))


def test_empty_and_size_one() -> None:
    empty = np.zeros((0, 3))
    check(lambda x: [np.sum(x), x.sum(0), x.sum(1), np.prod(x), x.T, x * 2, x @ np.ones(3)], empty)
    check(lambda x: [np.diff(x), np.cumsum(x), x.sum(), x[0], np.squeeze(x)], np.array([2.0]))
    check(lambda x: [np.concatenate([x, x]), x.reshape(3, 0), np.any(x)], empty)
    check(lambda x: [x + 1, x.sum(), x.reshape(1, 1), np.mean(x)], np.array(2.5))


def test_special_values() -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e300])
    y = x[:, None]
    for f in (np.logaddexp, np.maximum, np.fmax, np.fmin, np.hypot, np.copysign, np.heaviside):
        with np.errstate(all="ignore"):
            check(f, x, y)
    with np.errstate(all="ignore"):
        check(lambda x: [*np.modf(x), np.nan_to_num(x), np.sign(x), np.signbit(x)], x)
    tiny = np.array([0.0, 1e-9, 1e-3, 0.1, 0.31, 0.32, -0.3, 1.0, 2.5])
    check(np.sinc, tiny)


def test_object_arrays() -> None:
    check(lambda v: np.array([v[0], v[1] * 2]) * v[2], V)
    check(lambda v: np.array([[v[0], 1.0], [2.0, v[1]]]) @ v[:2], V)
    check(lambda v: np.sin(np.array([v[0], v[1]])), V)
    check(lambda v: np.array([v[0], v[1]]) @ np.array([1.0, 2.0]), V)
    check(lambda v: np.array([v, v * 2]).sum(axis=0), V)
    check(lambda v: np.asarray(v) + 1, V)
    check(lambda v: np.concatenate([[v[0]], [v[1]], v]), V)
    check(lambda v: np.stack([np.array([v[0], 0.0]), v[:2]]), V)
    check(lambda v: np.dot(np.array([[v[0], v[1]], [v[2], v[3]]]), v[:2]), V)
    check(lambda v: np.exp(np.array([v[0], v[1]])).sum(), V)
    check(lambda v: np.linalg.norm(np.array([v[0], v[1]])), V)
    check(lambda v: sum(np.array([v[0], v[1]])), V)
    check(lambda v: np.hypot(np.array([v[0]]), np.array([v[1]])), V)
    check(lambda v: v @ [[1.0, 2.0]] * 5 if False else v * [v[0], 1.0, 2.0, 3.0, v[1]], V)
    check(lambda s: np.array([np.cos(s), np.sin(s)]) * 2, 0.4)
