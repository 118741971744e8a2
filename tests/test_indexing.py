"""``x[key]`` and ``x[key] = v`` on traced arrays, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapec.numpy as tnp
from tapec.errors import TapecIndexError, TapecTypeError, TapecValueError
from tapec.ir.core import F64, Function, Type, dtype_of
from tapec.ir.interp import GuardFailed, interpret
from tapec.ir.verify import verify
from tapec.lift import lift
from tapec.tape import Tape


def traced(fn: Callable[..., Any], *args: Any) -> tuple[Function, list[Any]]:
    with Tape("case") as tape:
        tracers = [
            tape.input(Type(dtype_of(np.asarray(a).dtype), np.shape(a)), a, f"x{k}")
            for k, a in enumerate(args)
        ]
        out = fn(*tracers)
        lifted = lift(tape, list(out) if isinstance(out, (tuple, list)) else [out], "case")
    verify(lifted)
    return lifted, [c.obj for c in tape.captures]


def run(fn: Callable[..., Any], *args: Any) -> list[np.ndarray]:
    lifted, captures = traced(fn, *args)
    return interpret(lifted, [*map(np.asarray, args), *captures])


def check(fn: Callable[..., Any], *args: Any) -> None:
    expected = fn(*[np.array(a) for a in args])
    wanted = list(expected) if isinstance(expected, (tuple, list)) else [expected]
    for g, w in zip(run(fn, *args), wanted, strict=True):
        w = np.asarray(w)
        assert g.shape == w.shape
        np.testing.assert_array_equal(g, w)


X = np.arange(5.0)
Y = np.arange(12.0).reshape(3, 4)
Z = np.arange(24.0).reshape(2, 3, 4)
IDX = np.array([2, 0, -1, 2])
GRID = np.array([[0, 2], [1, -1]])
MASK = np.array([True, False, True, False, False])

KEYS = [
    np.s_[0], np.s_[-1], np.s_[1:3], np.s_[::-1], np.s_[3:0:-2], np.s_[1:1], np.s_[::2], np.s_[...],
    np.s_[None], np.s_[10:], np.s_[-2:], [0, 2, 2], [True, False, True, False, False], IDX, MASK,
    GRID, np.int64(2), np.s_[:100], [],
]  # fmt: skip
KEYS_2D = [
    np.s_[0], np.s_[0, 1], np.s_[-1, -1], np.s_[:, 1], np.s_[1:, ::-1], np.s_[..., 0],
    np.s_[..., None, 1], np.s_[None, :, 0], np.s_[1, None], [0, 2], np.s_[:, [0, 3, 3]],
    np.s_[[0, 1], [1, 2]], np.s_[[0, 1], 1], np.s_[[[0], [1]], [0, 1]], np.s_[1, [0, 1]],
    np.s_[1:, [1, 0]], np.s_[None, [1, 0]], np.s_[[0, 1], None], np.s_[::2, 1:3],
    np.s_[[True, False, True]], np.s_[:, np.array([True, False, True, True])], np.s_[:0],
]  # fmt: skip
KEYS_3D = [
    np.s_[0, 1, 2], np.s_[1], np.s_[:, 0], np.s_[..., 1:3], np.s_[:, [0, 1], [2, 3]],
    np.s_[[0, 1], :, [2, 3]], np.s_[0, :, [1, 2]], np.s_[[1, 0]], np.s_[:, :, GRID],
    np.s_[0, [2, 1]], np.s_[:, None, [0, 2]], np.s_[np.ones((2, 3), bool)], np.s_[1, ..., 0],
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_reading_vectors(key: Any) -> None:
    check(lambda x: x[key], X)


@pytest.mark.parametrize("key", KEYS_2D, ids=repr)
def test_reading_matrices(key: Any) -> None:
    check(lambda x: x[key], Y)


@pytest.mark.parametrize("key", KEYS_3D, ids=repr)
def test_reading_boxes(key: Any) -> None:
    check(lambda x: x[key], Z)


@pytest.mark.parametrize("shape,keys", [(X, KEYS), (Y, KEYS_2D), (Z, KEYS_3D)])
def test_writing(shape: Any, keys: list[Any]) -> None:
    for key in keys:

        def assign(x: Any, v: Any, key: Any = key) -> Any:
            y = x * 2
            y[key] = v
            y[key] += 1.0
            return y

        check(assign, shape, np.array(7.5))

        def assign_array(x: Any, key: Any = key) -> Any:
            y = x * 2
            y[key] = x[key] * 3
            return y

        check(assign_array, shape)


def test_traced_indices() -> None:
    check(lambda x, i: x[i], X, IDX)
    check(lambda x, i: x[i[0]], X, IDX)
    check(lambda y, i: y[i[:3], 1], Y, np.array([0, 2, 1]))
    check(lambda y, i: y[:, i], Y, GRID)
    check(lambda x: x[np.argmax(x)], X)
    check(lambda x: x[x > 1.5], X)
    check(lambda y: y[y[:, 0] > 2], Y)
    lifted, captures = traced(lambda x, i: x[i], X, IDX)
    again = interpret(lifted, [X, np.array([1, 1, -5, 4]), *captures])
    np.testing.assert_array_equal(again[0], [1, 1, 0, 4])
    with pytest.raises(GuardFailed):
        interpret(lifted, [X, np.array([1, 1, 5, 4]), *captures])
    with pytest.raises(TapecIndexError, match="index 9 is out of bounds for axis 0 with size 5"):
        run(lambda x, i: x[i], X, np.array([0, 9]))


def test_masks_are_guarded() -> None:
    lifted, captures = traced(lambda x: x[x > 1.5].sum(), X)
    assert float(interpret(lifted, [X + 0.2, *captures])[0]) == pytest.approx(9.6)
    with pytest.raises(GuardFailed):
        interpret(lifted, [X + 1, *captures])


def test_captured_index_arrays_are_read_at_run_time() -> None:
    where = np.array([0, 1, 2])
    lifted, captures = traced(lambda x: x[where], X)
    assert captures[0] is where
    where[:] = [4, -1, 0]
    np.testing.assert_array_equal(interpret(lifted, [X, *captures])[0], [4, 4, 0])


def test_elements_are_read_once_and_reassembled() -> None:
    with Tape("t") as tape:
        x = tape.input(Type(F64, (4,)), X[:4], "x")
        a, b, c, d = x
        assert x[1].id == b.id and x[-1].id == d.id
        before = len(tape.records)
        assert np.array([a, b, c, d])[0] is not None
        whole = x + np.array([a, b, c, d])
        assert len(tape.records) == before + 1  # the array is recognised as x
        assert whole.shape == (4,)


def test_in_place_is_seen_through_views_and_names() -> None:
    def through_view(x: Any) -> Any:
        y = np.zeros_like(x) if False else x * 0.0
        v = y[1:3]
        v += x[:2]
        y[2] *= 3
        return [y, v]

    check(through_view, X)

    def names(x: Any) -> Any:
        y = x * 1.0
        z = y
        y += 1
        t = y.T
        t[0] = 9.0
        r = y.reshape(5, 1)
        r[4, 0] = -1.0
        s = z.copy()
        s *= 0
        w = y[::-1]
        w[0] += 2
        return [z, y, s, r, w]

    check(names, X)

    def matrix(y: Any) -> Any:
        a = y * 1.0
        row, column = a[1], a[:, 2]
        row[0] = 50.0
        column *= 10
        a.T[3, 0] = -7.0
        return [a, row, column]

    check(matrix, Y)

    def scalars(x: Any) -> Any:
        s = x[0]
        t = s
        s += 1
        return [s, t, x]

    check(scalars, X)


def test_arguments_are_not_changed() -> None:
    x = np.array([1.0, 2.0])

    def f(a: Any) -> Any:
        a[0] = 0.0
        a *= 2
        return (a * a).sum()

    assert float(run(f, x)[0]) == 16.0
    np.testing.assert_array_equal(x, [1.0, 2.0])


def test_creation_functions_make_writable_arrays() -> None:
    def fill(s: Any) -> Any:
        a = tnp.zeros((2, 3))
        for z in range(3):
            a[:, z] = s * z + s * s
        b = tnp.ones(4)
        b[1:3] = s
        b[0] += b[1]
        c = tnp.empty(3, dtype=np.float32)
        c[:] = s
        d = tnp.eye(2)
        d[0, 1] = s
        e = tnp.arange(3.0)
        e[-1] = s
        f = tnp.full(2, s)
        f[0] = 1.0
        g = tnp.linspace(0.0, 1.0, 3)
        g[1] = s
        h = tnp.array([1.0, 2.0])
        h[0] = s
        return [a, b, c, d, e, f, g, h]

    def same_with_numpy(s: Any) -> Any:
        import types

        glob = dict(fill.__globals__, tnp=np)
        return types.FunctionType(fill.__code__, glob)(s)

    got = run(fill, np.array(2.0))
    for g, w in zip(got, same_with_numpy(2.0), strict=True):
        np.testing.assert_array_equal(g, w)
        assert g.dtype == w.dtype


def test_creation_functions_outside_a_trace_are_numpys() -> None:
    assert type(tnp.zeros(3)) is np.ndarray
    assert type(tnp.array([1.0])) is np.ndarray
    assert tnp.sin is np.sin and tnp.pi == np.pi
    with pytest.raises(AttributeError):
        _ = tnp.no_such_name


def test_out_argument() -> None:
    def f(x: Any) -> Any:
        buffer = np.zeros_like(x)
        np.multiply(x, x, out=buffer)
        np.add(buffer, x, out=buffer)
        return buffer

    check(f, X)


def test_add_at() -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        np.add.at(y, [0, 0, 3], np.array([1.0, 2.0, 5.0]))
        return y

    check(f, X)


def test_wrong_subscripts() -> None:
    cases: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
        (lambda x: x[5], TapecIndexError, "index 5 is out of bounds for axis 0 with size 5"),
        (lambda x: x[-6], TapecIndexError, "out of bounds"),
        (lambda x: x[0, 0], TapecIndexError, "too many indices"),
        (lambda x: x[[0, 7]], TapecIndexError, "out of bounds"),
        (lambda x: x[1.5], TapecIndexError, "valid indices"),
        (lambda x: x["a"], TapecIndexError, "valid indices"),
        (lambda x: x[..., ...], TapecIndexError, "single ellipsis"),
        (lambda x: x[np.array([True, False])], TapecIndexError, "did not match"),
        (lambda x: x[x], TapecIndexError, "integer"),
        (lambda x: x[::0], TapecIndexError, "zero"),
    ]
    for f, error, text in cases:
        with pytest.raises(error, match=text):
            run(f, X)

    def wrong_shape(x: Any) -> Any:
        x[1:3] = np.ones(3)
        return x

    with pytest.raises(TapecValueError, match="cannot broadcast"):
        run(wrong_shape, X)

    def wrong_dtype(x: Any) -> Any:
        counts = tnp.zeros(3, dtype=int)
        counts[0] = x[0]
        return counts

    with pytest.raises(TapecTypeError, match="do not fit an array of int64"):
        run(wrong_dtype, X)


def test_small_arrays_are_assembled_from_scalars() -> None:
    def rotation(t: Any) -> Any:
        m = tnp.eye(4)
        m[0, 0] = m[1, 1] = np.cos(t)
        m[0, 1] = -np.sin(t)
        m[1, 0] = -m[0, 1]
        m[:3, 3] = t
        m[2] = tnp.array([1.0, 2.0, t, 4.0])
        return m

    lifted, _ = traced(rotation, np.array(0.3))
    names = [op.name for op in lifted.ops]
    assert names.count("place") == 1 and "slice" not in names
    c, s, t = np.cos(0.3), np.sin(0.3), 0.3
    want = [[c, -s, 0, t], [s, c, 0, t], [1, 2, t, 4], [0, 0, 0, 1]]
    np.testing.assert_allclose(interpret(lifted, [np.array(0.3)])[0], want)

    def recurrence(x: Any) -> Any:
        y = tnp.zeros(4)
        y[0] = x[0]
        for i in range(1, 4):
            y[i] = y[i - 1] * x[1]
        y[::2] *= 2
        return y

    got = run(recurrence, np.array([2.0, 3.0]))[0]
    np.testing.assert_array_equal(got, [4, 6, 36, 54])
