"""tapec.cond, switch, fori_loop, while_loop, scan, associative_scan, map, checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapec
from tapec import errors

RNG = np.random.default_rng(0)


def close(got: Any, want: Any, rtol: float = 1e-9) -> None:
    np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-11)


# -- known values -----------------------------------------------------------------------


def test_scan_adjoint_of_sequence() -> None:
    def states(n: Any) -> Any:
        return tapec.scan(lambda s, v: (s + 2.0 * v,) * 2, 0.0, n)[1]

    want = 2 * np.tri(4)
    n = np.array([0.3, -1.0, 2.0, 0.7])
    close(tapec.jacobian(states)(n), want)
    for k in range(4):
        _, t = tapec.jvp(states, (n,), (np.eye(4)[k],))
        close(t, want[:, k])
        close(tapec.grad(lambda n, k=k: states(n)[k])(n), want[k])


def test_dict_carry_partly_unused() -> None:
    def f(x: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            return {"a": c["a"] * 2, "b": c["b"] + c["a"]}, None

        return tapec.scan(step, {"a": x, "b": 0.0}, np.array([1.0, 2.0]))[0]["a"] * x

    g = tapec.grad(f)
    close([g(1.5), g(0.0), tapec.jit(g)(1.5), tapec.grad(g)(1.5)], [12.0, 0.0, 12.0, 8.0])


def test_third_derivative_of_scan() -> None:
    def f(x: Any) -> Any:
        return tapec.scan(lambda c, _: (c * c, None), x, length=4)[0]

    g = tapec.grad
    close(g(g(g(f)))(0.95), 16 * 15 * 14 * 0.95**13)


def test_while_trip_count_depends_on_value() -> None:
    g = tapec.grad(lambda x: tapec.while_loop(lambda y: y > 1, lambda y: y / 2, x))
    for _ in range(2):
        close([g(6.0), g(3.0), g(0.5)], [1 / 8, 1 / 4, 1.0])


def test_repeat_until_ten() -> None:
    def f(x: Any) -> Any:
        return tapec.while_loop(lambda s: s < 10, lambda s: s * x, x)

    g, h = tapec.grad(f), tapec.grad(tapec.grad(f))
    close([g(2.0), g(3.0), g(9.99), g(12.0), g(10.0), g(1.5)],
          [32.0, 27.0, 2 * 9.99, 1.0, 1.0, 6 * 1.5**5])  # fmt: skip
    close([h(2.0), h(3.0), h(12.0)], [48.0, 18.0, 0.0])
    close([tapec.jvp(f, (2.0,), (1.0,))[1], tapec.hessian(f)(3.0)], [32.0, 18.0])


def test_value_before_loop_used_after() -> None:
    def f(x: Any) -> Any:
        u = np.sin(x)
        return tapec.while_loop(lambda s: s < 3, lambda s: s + x, 0.0) * u

    x = 1.25
    close(tapec.grad(f)(x), 3 * math.sin(x) + 3 * x * math.cos(x))
    close(tapec.grad(tapec.grad(f))(x), 6 * math.cos(x) - 3 * x * math.sin(x))


def test_carried_rotation_vector() -> None:
    def f(t: Any) -> Any:
        def turn(_: Any, uv: Any) -> Any:
            u, v = uv
            return u * np.cos(t) - v * np.sin(t), u * np.sin(t) + v * np.cos(t)

        u, v = tapec.fori_loop(0, 6, turn, (1.0, 0.0))
        return u + 2 * v

    close(tapec.grad(f)(0.3), -6 * math.sin(1.8) + 12 * math.cos(1.8))
    close(tapec.grad(tapec.grad(f))(0.3), -36 * math.cos(1.8) - 72 * math.sin(1.8))


def test_unused_loop_state() -> None:
    def f(x: Any) -> Any:
        def step(_: Any, state: Any) -> Any:
            return state[0] * x, state[1]

        return np.sum(tapec.fori_loop(0, 2, step, (x, np.ones(7)))[0])

    close(tapec.grad(f)(np.array([1.0, 2.0, 3.0])), [3.0, 12.0, 27.0])


def test_nested_dynamic_ranges() -> None:
    counts = np.array([1, 2, 1])

    def f(x: Any, starts: Any, repeat: Any) -> Any:
        def branch(b: Any, p: Any) -> Any:
            def item(i: Any, p: Any) -> Any:
                return tapec.fori_loop(0, repeat[i], lambda _, p: p * (1 + x[i]), p)

            return tapec.fori_loop(starts[b], starts[b + 1], item, p)

        return tapec.fori_loop(0, 2, branch, 1.0)

    lists = np.array([0, 2, 3]), counts
    g = tapec.grad(f)
    close(g(np.zeros(3), *lists), [1.0, 2.0, 1.0])
    x = np.array([0.1, 0.2, 0.3])
    close(value := tapec.jit(f)(x, *lists), np.prod((1 + x) ** counts))
    close(g(x, *lists), counts * value / (1 + x))


def test_ramp_by_cond_at_all_orders() -> None:
    def f(x: Any) -> Any:
        return tapec.cond(x < 0, lambda v: 0 * v, lambda v: v * v, x)

    g = tapec.grad(f)
    close([g(-1.3), g(1.34), g(-0.2), g(7.0)], [0.0, 2.68, 0.0, 14.0])
    h = tapec.grad(g)
    close([h(-1.3), h(1.34)], [0.0, 2.0])


def test_newton_by_while_loop() -> None:
    def root(a: Any) -> Any:
        def step(state: Any) -> Any:
            x, _ = state
            new = 0.5 * (x + a / x)
            return new, x

        return tapec.while_loop(
            lambda s: np.abs(s[0] - s[1]) > 1e-12 * np.abs(s[0]), step, (a, 0.0 * a)
        )[0]

    close([tapec.grad(root)(2.0), tapec.grad(root)(9.0)], [0.5 / math.sqrt(2), 1 / 6])
    close(tapec.grad(tapec.grad(root))(2.0), -0.25 * 2**-1.5, 1e-7)


def test_collatz_counts() -> None:
    @tapec.jit
    def steps(n: Any) -> Any:
        def step(s: Any) -> Any:
            n, k = s
            return tapec.cond(n % 2 == 0, lambda n: n // 2, lambda n: 3 * n + 1, n), k + 1

        return tapec.while_loop(lambda s: s[0] != 1, step, (n, 0))[1]

    assert [steps(np.array(n)) for n in (1, 6, 27)] == [0, 8, 111]


# -- what may be passed -----------------------------------------------------------------


def test_outside_of_a_trace() -> None:
    assert tapec.fori_loop(2, 5, lambda i, s: s + i, 0) == 9
    assert tapec.while_loop(lambda v: v < 100, lambda v: v * 3, 2.0) == 162.0
    last, all_ = tapec.scan(lambda s, v: (s + v, s), 0.0, np.arange(4.0))
    assert last == 6.0 and all_.tolist() == [0.0, 0.0, 1.0, 3.0]
    assert tapec.cond(True, lambda x: x + 1, lambda x: x, 1.0) == 2.0
    assert tapec.switch(7, [lambda x: x, lambda x: -x], 1.0) == -1.0
    assert tapec.map(lambda v: v.sum(), np.ones((3, 2))).tolist() == [2.0, 2.0, 2.0]
    assert tapec.checkpoint(np.sin)(0.5) == np.sin(0.5)


def test_captured_arrays_are_read_at_each_call() -> None:
    w = np.array([1.0, 2.0])

    @tapec.grad
    def f(x: Any) -> Any:
        return tapec.scan(lambda s, v: (s + np.sum(w * v * x), None), 0.0, np.ones((3, 2)))[0]

    close(f(1.0), 9.0)
    w[0] = 5.0
    close(f(1.0), 21.0)


def test_invariants_accumulate_over_iterations() -> None:
    def f(k: Any, x: Any) -> Any:
        return tapec.scan(lambda s, v: (s * k + v, None), 1.0, x)[0]

    k, x = 0.7, np.array([1.0, 2.0, 3.0])
    close(tapec.grad(f)(k, x), 3 * k**2 + 1 * 2 * k + 2 * 1)
    close(tapec.grad(f, 1)(k, x), [k**2, k, 1.0])


def test_structures_and_dtypes() -> None:
    @tapec.jit
    def f(x: Any) -> Any:
        def step(c: Any, v: Any) -> Any:
            (a, d), n = c
            return ((a + v["p"], {"k": d["k"] * v["q"][0]}), n + 1), [a, (v["p"],)]

        xs = {"p": x, "q": (x + 1,)}
        return tapec.scan(step, ((x[0] * 0, {"k": x[0]}), 0), xs)

    ((a, d), n), (first, (second,)) = f(np.array([1.0, 2.0, 3.0], np.float32))
    assert (a, d["k"], n) == (6.0, 24.0, 3)
    assert first.tolist() == [0.0, 1.0, 3.0] and second.dtype == np.float32


def test_reverse_and_unroll() -> None:
    x = RNG.normal(size=12)

    def f(x: Any, **kw: Any) -> Any:
        last, ys = tapec.scan(lambda c, v: (np.sin(c) * v, c + v), 0.3, x, **kw)
        return last + np.sum(ys * np.arange(12.0))

    for reverse in (False, True):
        want = tapec.grad(f)(x, reverse=reverse)
        for unroll in (2, 3, 12, 5):
            close(tapec.grad(f)(x, reverse=reverse, unroll=unroll), want)


@pytest.mark.parametrize("every", [1, 3, 4, "sqrt", 100])
@pytest.mark.parametrize("reverse", [False, True])
def test_checkpointed_scan(every: Any, reverse: bool) -> None:
    x = RNG.normal(size=14)

    def f(a: Any, x: Any, **kw: Any) -> Any:
        last, ys = tapec.scan(lambda c, v: (np.sin(c) * a + v, c * v), a, x, reverse=reverse, **kw)
        return last + np.sum(ys**2)

    for transform in (
        lambda f: tapec.grad(f, (0, 1)),
        lambda f: tapec.grad(tapec.grad(f)),
        lambda f: tapec.grad(lambda a, x: np.sum(tapec.grad(f, 1)(a, x) ** 2)),
    ):
        want = transform(f)(0.7, x)
        got = transform(lambda a, x: f(a, x, checkpoint=every))(0.7, x)
        for p, q in zip(np.atleast_1d(got[0] if isinstance(got, tuple) else got),
                        np.atleast_1d(want[0] if isinstance(want, tuple) else want)):  # fmt: skip
            close(p, q)


def test_checkpoint_of_a_function() -> None:
    w = RNG.normal(size=(5, 5))

    def layer(x: Any) -> Any:
        return np.tanh(w @ x)

    def f(x: Any, wrap: Callable[[Any], Any]) -> Any:
        for _ in range(3):
            x = wrap(layer)(x)
        return np.sum(x)

    x = RNG.normal(size=5)
    want = tapec.grad(lambda x: f(x, lambda g: g))(x)
    close(tapec.grad(lambda x: f(x, tapec.checkpoint))(x), want)
    close(
        tapec.hessian(lambda x: f(x, tapec.checkpoint))(x),
        tapec.hessian(lambda x: f(x, lambda g: g))(x),
    )


def test_associative_scan() -> None:
    for n in (0, 1, 2, 3, 7, 16):
        x = RNG.normal(size=(n, 2))
        for reverse in (False, True):
            step = -1 if reverse else 1
            got = tapec.associative_scan(lambda a, b: a * b, x, reverse=reverse)
            close(got, np.cumprod(x[::step], 0)[::step])
    a, b = RNG.normal(size=(2, 9))

    def linear(a: Any, b: Any) -> Any:
        """y ← a y + b from 0."""
        return tapec.associative_scan(lambda f, g: (f[0] * g[0], f[1] * g[0] + g[1]), (a, b))[1]

    def plain(a: Any, b: Any) -> Any:
        return tapec.scan(lambda y, ab: (ab[0] * y + ab[1],) * 2, 0.0, (a, b))[1]

    close(tapec.jit(linear)(a, b), tapec.jit(plain)(a, b))
    for k in (0, 1):
        close(tapec.jacobian(linear, k)(a, b), tapec.jacobian(plain, k)(a, b))


def test_map_of_independent_problems() -> None:
    x = RNG.uniform(1, 9, 5)

    def f(x: Any) -> Any:
        return np.sum(tapec.map(lambda v: tapec.while_loop(
            lambda y: y > 1, lambda y: y / 2, v) ** 2, x))  # fmt: skip

    want = [2 * v / 4.0 ** math.ceil(math.log2(v)) for v in x]
    close(tapec.grad(f)(x), want)


# -- mistakes ---------------------------------------------------------------------------


def expect(kind: type[Exception], *parts: str, run: Callable[[], Any]) -> None:
    with pytest.raises(kind) as caught:
        run()
    for part in parts:
        assert part in str(caught.value), caught.value


def test_carry_errors_name_both_types() -> None:
    def shapes(x: Any) -> Any:
        return tapec.scan(lambda c, v: ({"a": np.stack([c["a"], v])}, None), {"a": x}, np.ones(3))

    expect(errors.TapecTypeError, "['a']", "float64[]", "float64[2]", "test_control.py",
           run=lambda: tapec.jit(shapes)(1.0))  # fmt: skip
    x = np.ones(2)
    expect(errors.TapecTypeError, "int64[2]", "float64[2]",
           run=lambda: tapec.fori_loop(0, 3, lambda i, c: c * 0.5, x.astype(int)))  # fmt: skip
    expect(errors.TapecTypeError, "carry starts as",
           run=lambda: tapec.fori_loop(0, 3, lambda i, c: (c, c), x))  # fmt: skip


def test_other_errors() -> None:
    jit = tapec.jit
    expect(errors.TapecTypeError, "branch 0", "branch 1",
           run=lambda: jit(lambda x: tapec.cond(x > 0, lambda: [x], lambda: x))(1.0))  # fmt: skip
    expect(errors.TapecTypeError, "float64[2]", "float64[3]",
           run=lambda: jit(lambda x: tapec.cond(x > 0, lambda: np.ones(2) * x,
                                                lambda: np.ones(3) * x))(1.0))  # fmt: skip
    expect(errors.TapecValueError, "length",
           run=lambda: tapec.scan(lambda c, v: (c, 0), 0.0, (np.ones(3), np.ones(4))))  # fmt: skip
    expect(errors.TapecValueError, "xs or length",
           run=lambda: tapec.scan(lambda c, v: (c, None), 0.0))  # fmt: skip
    expect(errors.TapecTypeError, "(carry, y)",
           run=lambda: tapec.scan(lambda c, v: c, 0.0, np.ones(3)))  # fmt: skip
    expect(errors.TapecTypeError, "one bool",
           run=lambda: tapec.while_loop(lambda c: (c > 1, c), lambda c: c, 0.0))  # fmt: skip
    expect(errors.ConversionError, "tapec.cond",
           run=lambda: tapec.fori_loop(0, 3, lambda i, c: c if c > 0 else -c, 1.0))  # fmt: skip


def test_memory_error(monkeypatch: pytest.MonkeyPatch) -> None:
    import ctypes

    from tapec.codegen import libraries

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    def nothing(old: Any, size: int) -> None:
        return None

    monkeypatch.setitem(
        libraries._provided, "realloc", ctypes.cast(nothing, ctypes.c_void_p).value or 0
    )
    g = tapec.grad(lambda x: tapec.while_loop(lambda y: y < 1e3, lambda y: y * y, x))
    for _ in range(3):
        with pytest.raises(MemoryError):
            g(3.0)
    monkeypatch.undo()
    g = tapec.grad(lambda x: tapec.while_loop(lambda y: y < 1e3, lambda y: y * y, x))
    close(g(3.0), 8 * 3.0**7)


# -- what loops read ------------------------------------------------------------------------


def test_contiguous_slices_are_read_where_they_lie() -> None:
    """``x[1:]`` of a scanned array, or one matrix of many, is no copy."""
    rng = np.random.default_rng(0)
    x, m = rng.normal(size=(60, 20)), rng.normal(size=(3, 20, 20)) / 5

    def f(x: Any, m: Any) -> Any:
        step = lambda s, row: (np.tanh(m[1] @ s + row), None)  # noqa: E731
        return tapec.scan(step, x[0], x[1:50])[0]

    def by_hand(x: Any, m: Any) -> Any:
        s = x[0]
        for row in x[1:50]:
            s = np.tanh(m[1] @ s + row)
        return s

    g = tapec.jit(f)
    np.testing.assert_allclose(g(x, m), by_hand(x, m), rtol=1e-12)
    assert g.stats().workspace_bytes < x[1:50].nbytes
    w = rng.normal(size=20)
    found = tapec.jvp(tapec.grad(lambda x: np.sum(w * f(x, m))), (x,), (x * 0.1,))
    eps = 1e-30
    slope = [np.sum(w * by_hand(x + 1j * eps * e, m)).imag / eps for e in _units(x)[:5]]
    np.testing.assert_allclose(found[0].reshape(-1)[:5], slope, rtol=1e-10)

    def several(x: Any) -> Any:  # the slice is a result as well, and read elsewhere
        y = x[10:40]
        total, ys = tapec.scan(lambda s, row: (s + np.sum(row), s * row), 0.0, y)
        return y, total, ys + y, x[5:6, 3:9], np.sum(y[2:4])

    y = x[10:40]
    sums = np.cumsum(np.concatenate([[0.0], y.sum(1)]))
    right = (y, sums[-1], sums[:-1, None] * y + y, x[5:6, 3:9], np.sum(y[2:4]))
    for a, b in zip(tapec.jit(several)(x), right):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def _units(x: Any) -> Any:
    return np.eye(x.size).reshape(x.size, *x.shape)


@pytest.mark.parametrize("shape", [(8, 8), (5, 7), (12, 12), (13, 13)])
def test_products_with_a_fixed_matrix_in_registers(shape: tuple[int, int]) -> None:
    """The matrix of a linear recurrence may be larger than what lives in registers."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=shape) / 4, rng.normal(size=shape[::-1]) / 4
    x = rng.normal(size=(9, shape[0]))

    def f(a: Any, b: Any, x: Any) -> Any:
        step = lambda s, row: (np.sin((s @ a) @ b + b.T @ s[: shape[1]] if shape[0] == shape[1]  # noqa: E731
                                      else (s @ a) @ b) + row, s[0])  # fmt: skip
        s, first = tapec.scan(step, x[0], x[1:])
        return np.sum(s * s) + np.sum(first)

    def by_hand(a: Any, b: Any, x: Any) -> Any:
        s, total = x[0], 0.0
        for row in x[1:]:
            total = total + s[0]
            more = b.T @ s[: shape[1]] if shape[0] == shape[1] else 0.0
            s = np.sin((s @ a) @ b + more) + row
        return np.sum(s * s) + total

    value, grads = tapec.value_and_grad(f, argnums=(0, 1, 2))(a, b, x)
    np.testing.assert_allclose(value, by_hand(a, b, x), rtol=1e-12)
    np.testing.assert_allclose(tapec.jit(f)(a, b, x), value, rtol=1e-13)
    eps = 1e-30
    for k, (v, g) in enumerate(zip((a, b, x), grads)):
        args = [a, b, x]
        d = rng.normal(size=v.shape)
        args[k] = v + 1j * eps * d
        np.testing.assert_allclose(np.sum(g * d), by_hand(*args).imag / eps, rtol=1e-10)


@pytest.mark.parametrize("n", [1, 7, 500, 2_003])
@pytest.mark.parametrize("budget", ["1 GB", "5 kB", "1500 B"])
def test_chunks_of_chunks_take_every_step_once(n: int, budget: str) -> None:
    k = 1.001

    def f(x: Any) -> Any:
        step = lambda c, _: ((c[0] * k + x, c[1] + 1, c[2]), c[1] * x)  # noqa: E731
        c, ys = tapec.scan(step, (0.0 * x, 0.0, x), length=n, checkpoint=budget)
        return c[0] + c[1] + 0.0 * c[2], ys

    value, ys = tapec.jit(f)(2.0)
    slope = (k**n - 1) / (k - 1)
    np.testing.assert_allclose(value, 2.0 * slope + n, rtol=1e-11)
    np.testing.assert_array_equal(ys, 2.0 * np.arange(n))
    np.testing.assert_allclose(tapec.grad(lambda x: f(x)[0])(2.0), slope, rtol=1e-11)
