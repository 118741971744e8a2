"""The tape and what a traced value does: recording, lifting, captures, guards, nesting."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tapec.errors import LeakedTracerError, TapecValueError
from tapec.ir.core import F32, F64, I64, Function, Type, dtype_of
from tapec.ir.interp import GuardFailed, interpret
from tapec.ir.printer import format_function
from tapec.ir.verify import verify
from tapec.lift import lift
from tapec.tape import Tape, as_tracer, current_tape, is_traced


def traced(fn: Callable[..., Any], *args: Any) -> tuple[Function, list[Any], Tape]:
    with Tape("case") as tape:
        tracers = []
        for k, a in enumerate(args):
            array = np.asarray(a)
            t = Type(dtype_of(array.dtype), array.shape)
            tracers.append(tape.input(t, a, f"x{k}", weak=isinstance(a, float)))
        out = fn(*tracers)
        lifted = lift(tape, list(out) if isinstance(out, (tuple, list)) else [out], "case")
    verify(lifted)
    return lifted, [c.obj for c in tape.captures], tape


def run(fn: Callable[..., Any], *args: Any) -> list[np.ndarray]:
    lifted, captures, _ = traced(fn, *args)
    return interpret(lifted, [*map(np.asarray, args), *captures])


X = np.array([0.5, -1.0, 2.0])


def test_operators() -> None:
    def f(x: Any, y: Any) -> Any:
        return [
            x + y, x - y, x * y, x / y, x // y, x % y, (x * x) ** y, -x, +x, abs(x), 2 + x, 2 - x,
            2 * x, 2 / x, 2 // x, 2 % x, 2**x, x == y, x != y, x < y, x <= y, x > y, x >= y,
            x > 1, x @ y, [1.0, 2.0, 3.0] @ y, round(x[0], 1), (x > 0) & (y > 0), (x > 0) | (y > 0),
            (x > 0) ^ (y > 0), ~(x > 0), x * [1, 2, 3], np.float64(2) * x, np.float32(2) - x,
        ]  # fmt: skip

    y = np.array([1.5, 0.25, -3.0])
    for g, w in zip(run(f, X, y), f(X, y), strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-14)
        assert g.dtype == np.asarray(w).dtype


def test_attributes_and_methods() -> None:
    m = np.arange(6.0).reshape(2, 3)

    def f(x: Any) -> Any:
        assert x.shape == (2, 3) and x.ndim == 2 and x.size == 6 and len(x) == 2
        assert x.dtype == np.float64 and x.nbytes == 48 and x.itemsize == 8
        assert np.shape(x) == (2, 3) and np.ndim(x) == 2 and np.size(x) == 6
        return [
            x.T, x.mT, x.real, x.imag, x.sum(), x.mean(0), x.max(axis=1), x.min(), x.argmax(),
            x.argmin(1), x.prod(), x.var(), x.std(ddof=1), x.any(), x.all(), x.cumsum(1),
            x.cumprod(), x.clip(1, 2), x.round(), x.reshape(3, 2), x.ravel(), x.flatten(),
            x.transpose(), x.swapaxes(0, 1), x.dot(x.T), x.diagonal(), x.trace(), x.take([0, 1]),
            x.repeat(2), x.conj(), x.copy(), x.squeeze(), x.astype(int), x.astype(bool),
        ]  # fmt: skip

    for g, w in zip(run(f, m), f(m), strict=True):
        np.testing.assert_allclose(g, w)
        assert g.dtype == np.asarray(w).dtype


def test_weak_python_numbers_follow_their_partner() -> None:
    f32 = X.astype(np.float32)
    got = run(
        lambda s, x: [s * x, s + s, np.sin(s) * x, (s * 2 + 1) * x, -s * x, s**2 * x], 2.0, f32
    )
    kinds = [g.dtype for g in got]
    assert kinds == [np.float32, np.float64, np.float64, np.float32, np.float32, np.float32]


def test_names_and_places() -> None:
    def f(x: Any) -> Any:
        z = x * 2
        total = z.sum()
        return total  # noqa: RET504 (the name is what is tested)

    text = format_function(traced(f, X)[0])
    assert "%z = mul %x0" in text and "%total = reduce_sum %z" in text
    assert "test_tracer.py" in text
    _, _, tape = traced(f, X)
    dump = tape.format()
    assert "mul #0" in dump and "test_tracer.py" in dump and "'total'" in dump


def test_captured_arrays_are_inputs_by_reference() -> None:
    w = np.arange(300.0)
    lifted, captures, _ = traced(lambda s: (s * w).sum() + w[0], 2.0)
    assert len(captures) == 1 and captures[0] is w and len(lifted.params) == 2
    before = interpret(lifted, [np.asarray(2.0), w])[0]
    w[1] += 1000
    assert float(interpret(lifted, [np.asarray(2.0), w])[0] - before) == 2000


def test_small_arrays_made_inside_become_constants() -> None:
    def f(s: Any) -> Any:
        return (s * np.array([1.0, 2.0, 3.0])).sum()

    lifted, captures, _ = traced(f, 2.0)
    assert captures == [] and len(lifted.params) == 1
    outside = np.array([1.0, 2.0, 3.0])
    assert traced(lambda s: s * outside, 2.0)[1][0] is outside
    part = outside[1:]
    assert len(traced(lambda s: s * outside[1:], 2.0)[1]) == 1  # a view of something reachable
    assert part.base is outside


def test_arrays_written_to_while_traced() -> None:
    def f(s: Any) -> Any:
        buffer = np.zeros(2)
        first = s * buffer
        buffer[:] = [1.0, 2.0]
        second = s * buffer
        buffer[:] = 7.0
        return [first, second]

    got = run(f, 3.0)
    np.testing.assert_array_equal(got[0], [0, 0])
    np.testing.assert_array_equal(got[1], [3, 6])
    state = np.zeros(2)

    def impure(s: Any) -> Any:
        y = s * state
        state[0] += 1
        return y

    with pytest.raises(TapecValueError, match="written to while the function is traced"):
        run(impure, 1.0)


def test_branches_are_guarded() -> None:
    def f(x: Any) -> Any:
        if x > 1:
            return x * x
        return 3 * x

    lifted, _, _ = traced(f, 2.0)
    assert float(interpret(lifted, [np.asarray(5.0)])[0]) == 25
    with pytest.raises(GuardFailed):
        interpret(lifted, [np.asarray(0.5)])

    def power(x: Any) -> Any:
        s = x
        while s < 10:
            s = s * x
        return s

    assert float(run(power, 2.0)[0]) == 16
    assert float(run(lambda x: max(x, 1.0) * min(x, 5.0) + abs(x), 3.0)[0]) == 12
    assert float(run(lambda x: x * int(x) + math.floor(x) + round(x), 2.6)[0]) == pytest.approx(
        10.2
    )
    assert float(run(lambda x: x * [1.0, 5.0][np.argmax(np.array([0.0, x]))], 2.0)[0]) == 10


def test_the_same_condition_is_guarded_once() -> None:
    def f(x: Any) -> Any:
        positive = x > 0
        for _ in range(5):
            if positive:
                x = x + 1
        return x

    lifted, _, _ = traced(f, 1.0)
    assert [op.name for op in lifted.ops].count("guard") == 1


def test_iteration_and_membership() -> None:
    def f(a: Any) -> Any:
        p, q = a
        total = p @ q
        for v in p:
            total = total + v
        return total

    a = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert float(run(f, a)[0]) == 14
    assert float(run(lambda x: x.sum() if 2.0 in x else x[0], X)[0]) == 1.5
    assert float(run(lambda x: sum(v * v for v in x), X)[0]) == 5.25
    assert float(run(lambda x: max(x), X)[0]) == 2.0
    assert [float(v) for v in run(lambda x: sorted(x), X)] == [-1.0, 0.5, 2.0]


def test_squares_of_roots_are_remembered() -> None:
    for f in (
        lambda x: np.linalg.norm(x) ** 2,
        lambda x: np.sqrt(np.sum(x**2)) ** 2,
        lambda x: np.sqrt(x @ x) * np.sqrt(x @ x) if False else np.square(np.linalg.norm(x)),
    ):
        lifted, _, _ = traced(lambda x, f=f: f(x) / 2, X)
        assert float(interpret(lifted, [X])[0]) == 2.625
        result = lifted.results[0].op
        assert result is not None and result.operands[0].op is not None
        assert result.operands[0].op.name in ("reduce_sum", "dot")
    root, _, _ = traced(lambda x: np.sqrt(x * x), X)
    assert [op.name for op in root.ops if op.results[0] in root.results] == ["abs"]


def test_nested_tapes() -> None:
    with Tape("outer") as outer:
        x = outer.input(Type(F64), 4.0, "x", weak=True)
        with Tape("inner") as inner:
            assert current_tape() is inner
            y = inner.input(Type(F64), 1.0, "y", weak=True)
            z = x * y
            w = x * x  # concerns the outer tape only
            assert z.tape is inner and w.tape is outer
            fn = lift(inner, [z + w], "inner")
        assert [c.obj.id for c in inner.captures] == [x.id, w.id]
        (r,) = outer.inline(fn, [1.0, *[c.obj for c in inner.captures]])
        assert r.tape is outer
        done = lift(outer, [r], "outer")
    verify(done)
    assert float(interpret(done, [np.asarray(4.0)])[0]) == 20
    assert current_tape() is None


def test_guards_of_inner_tapes_see_outer_values() -> None:
    with Tape("outer") as outer:
        x = outer.input(Type(F64), 4.0, "x")
        with Tape("inner") as inner:
            y = inner.input(Type(F64), x * 2, "y")
            out = y * 3 if y > x else y
            fn = lift(inner, [out], "inner")
        (r,) = outer.inline(fn, [x * 2, *[c.obj for c in inner.captures]])
        done = lift(outer, [r], "outer")
    assert float(interpret(done, [np.asarray(4.0)])[0]) == 24


def test_leaks() -> None:
    with Tape("first") as tape:
        x = tape.input(Type(F64, (3,)), X, "x")
        y = x * 2
    for use in (
        lambda: y + 1,
        lambda: np.sin(y),
        lambda: y[0],
        lambda: bool(y.sum()),
        lambda: 1 - y,
    ):
        with pytest.raises(LeakedTracerError, match=r"'y'.*made at .*test_tracer\.py"):
            use()
    with Tape("second") as tape:
        z = tape.input(Type(F64, (3,)), X, "z")
        with pytest.raises(LeakedTracerError, match="its trace has ended"):
            z + y
    assert "f64[3]" in repr(y)


def test_tracers_stay_in_their_thread() -> None:
    import threading

    caught: list[Exception] = []
    with Tape("t") as tape:
        x = tape.input(Type(F64), 1.0, "x")

        def use() -> None:
            try:
                x + 1
            except LeakedTracerError as error:
                caught.append(error)

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
    assert len(caught) == 1 and "another thread" in str(caught[0])


def test_as_tracer_and_is_traced() -> None:
    with Tape("t") as tape:
        x = tape.input(Type(F64), 1.0, "x")
        assert is_traced(x) and is_traced(np.array([x, 1.0])) and is_traced([1, [x]])
        assert not is_traced(X) and not is_traced([1.0]) and not is_traced("x")
        assert as_tracer(tape, x) is x
        assert as_tracer(tape, 2.0).type is Type(F64)
        assert as_tracer(tape, np.float32(2.0)).type is Type(F32)
        assert as_tracer(tape, [[x, 1], [2, x]]).type is Type(F64, (2, 2))
        assert as_tracer(tape, [1, 2]).type is Type(I64, (2,))
        with pytest.raises(TypeError, match="str"):
            as_tracer(tape, "text")


def test_copies_are_independent() -> None:
    def f(x: Any) -> Any:
        y = copy.copy(x)
        z = copy.deepcopy([x])[0]
        y += 1
        z *= 0
        return [x, y, z]

    got = run(f, X)
    np.testing.assert_array_equal(got[0], X)
    np.testing.assert_array_equal(got[1], X + 1)


def test_constants_keep_their_sign_and_size() -> None:
    got = run(lambda x: [np.copysign(1.0, x * -0.0 + -0.0), x * 0.0 + 0.0, x + 1e300], 1.0)
    assert float(got[0]) == -1.0
    with pytest.raises(OverflowError if False else ValueError, match="out of bounds for int32"):
        run(lambda i: i + 2**40, np.array([1], np.int32))


def test_recording_and_lifting_are_linear_and_cheap() -> None:
    def program(n: int) -> Any:
        with Tape("t") as tape:
            s = tape.input(Type(F64), 2.0, "s", weak=True)
            start = time.process_time()
            for _ in range(n):
                s = s * 1.0001 + 0.5
            recorded = time.process_time()
            lift(tape, [s], "t")
            lifted = time.process_time()
        return (recorded - start) / (2 * n), (lifted - recorded) / (2 * n)

    record, lifting = min(program(2000) for _ in range(5))
    assert record < 30e-6 and lifting < 30e-6  # generous: about 2 µs each on an idle machine


def test_straight_line_functions_find_their_lines() -> None:
    n = 3000
    source = (
        "def f(x):\n" + "".join(f"    x = x * 1.5 + {k}.0\n" for k in range(n)) + "    return x\n"
    )
    scope: dict[str, Any] = {}
    exec(compile(source, "long.py", "exec"), scope)
    start = time.process_time()
    lifted, _, _ = traced(scope["f"], 1.0)
    assert time.process_time() - start < 2.0
    lines = [op.loc.line for op in lifted.ops if op.loc is not None and op.name == "mul"]
    assert lines == list(range(2, n + 2))


def test_large_fixed_arrays_are_not_baked() -> None:
    x = np.linspace(-1.0, 1.0, 5000)
    lifted, captures, _ = traced(lambda x: x[x > 0].sum() + x[list(range(4000))].sum(), x)
    assert len(captures) >= 3 and all(c.size >= 2000 for c in captures)
    want = x[x > 0].sum() + x[:4000].sum()
    assert float(interpret(lifted, [x, *captures])[0]) == pytest.approx(want)
