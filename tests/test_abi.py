"""The native callable: what it accepts, what a miss does, what it returns, and what it keeps."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
import timeit
import tracemalloc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tapec.codegen import abi
from tapec.codegen.abi import MISS, Arg, EntrySpec, Result, Variant, build_variant, new_callable
from tapec.ir.core import BOOL, F32, F64, I32, I64, DType, Type

SCALAR, VECTOR, MATRIX = Type(F64), Type(F64, (3,)), Type(F64, (2, 3))
LLVM = {"f64": "double", "f32": "float", "i64": "i64", "i32": "i32", "bool": "i8"}


def kernel(
    inputs: Sequence[Type], outputs: Sequence[Type], code: str = "0", extra: str = ""
) -> str:
    """Output i is input i (or the last one), doubled elementwise; bools are copied."""
    lines = []
    for o, type_ in enumerate(outputs):
        i = min(o, len(inputs) - 1)
        t = LLVM[type_.dtype.name]
        add = {"f": "fadd", "i": "add", "b": "and"}[type_.dtype.kind]
        lines += [
            f"  %ia{o} = getelementptr ptr, ptr %in, i64 {i}",
            f"  %ip{o} = load ptr, ptr %ia{o}",
            f"  %oa{o} = getelementptr ptr, ptr %out, i64 {o}",
            f"  %op{o} = load ptr, ptr %oa{o}",
        ]
        for e in range(type_.size):
            lines += [
                f"  %x{o}_{e} = getelementptr {t}, ptr %ip{o}, i64 {e}",
                f"  %v{o}_{e} = load {t}, ptr %x{o}_{e}",
                f"  %w{o}_{e} = {add} {t} %v{o}_{e}, %v{o}_{e}",
                f"  %y{o}_{e} = getelementptr {t}, ptr %op{o}, i64 {e}",
                f"  store {t} %w{o}_{e}, ptr %y{o}_{e}",
            ]
    body = "\n".join(lines)
    return (
        "define internal i32 @kernel(ptr %in, ptr %out, ptr %ws) alwaysinline {\n"
        f"{body}\n{extra}\n  ret i32 {code}\n}}"
    )


def args(*types: Type) -> tuple[Arg, ...]:
    return tuple(Arg("array" if t.ndim else "float", t) for t in types)


def results(*types: Type) -> tuple[Result, ...]:
    kinds: dict[str, Any] = {"f": "float", "i": "int", "b": "bool"}
    return tuple(Result("array" if t.ndim else kinds[t.dtype.kind], t) for t in types)


def linked(slow: Callable[..., Any], *variants: Variant) -> Any:
    f = new_callable(slow)
    abi.link_chain(f, variants)
    return f


def slow(*args: Any, **kwargs: Any) -> Any:
    return "slow", args, kwargs


FLOATS = EntrySpec(args(SCALAR), results(SCALAR, SCALAR), (0, 1))
ARRAYS = EntrySpec(args(VECTOR), results(VECTOR), 0)
MIXED = EntrySpec(args(VECTOR, SCALAR), results(VECTOR, SCALAR), (1, 0))


@pytest.fixture(scope="module")
def floats() -> Any:
    return linked(slow, build_variant(kernel([SCALAR], [SCALAR, SCALAR]), FLOATS, ()))


@pytest.fixture(scope="module")
def arrays() -> Any:
    return linked(slow, build_variant(kernel([VECTOR], [VECTOR]), ARRAYS, ()))


@pytest.fixture(scope="module")
def mixed() -> Any:
    return linked(slow, build_variant(kernel([VECTOR, SCALAR], [VECTOR, SCALAR]), MIXED, ()))


# ---- hits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("opt", [0, 1, 2])
def test_floats_in_tuple_out(opt: int) -> None:
    f = linked(slow, build_variant(kernel([SCALAR], [SCALAR, SCALAR]), FLOATS, (), opt))
    assert f(1.5) == (3.0, 3.0)


def test_array_result_is_new_writable_and_owns_its_data(arrays: Any) -> None:
    x = np.array([1.0, 2.0, 3.0])
    y = arrays(x)
    assert type(y) is np.ndarray and y.dtype == np.float64 and y.tolist() == [2.0, 4.0, 6.0]
    assert y.flags.owndata and y.flags.writeable and y.base is None and y is not x
    assert sys.getrefcount(y) == 3  # y, the argument, and the variant, which may fill it again


def test_read_only_array_hits(arrays: Any) -> None:
    x = np.ones(3)
    x.flags.writeable = False
    assert arrays(x).tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("dtype", [F64, F32, I64, I32, BOOL])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3,), (2, 3), (1, 2, 2, 1)])
def test_every_dtype_and_shape(dtype: DType, shape: tuple[int, ...]) -> None:
    type_ = Type(dtype, shape)
    spec = EntrySpec((Arg("array", type_),), (Result("array", type_),), 0)
    f = linked(slow, build_variant(kernel([type_], [type_]), spec, (), 0))
    x = np.array(np.arange(type_.size).reshape(shape) % 2, dtype.np)
    y = f(x)
    assert type(y) is np.ndarray and y.shape == shape and y.dtype == dtype.np
    assert np.array_equal(y, x & x if dtype is BOOL else x + x)


@pytest.mark.parametrize(
    ("kind", "dtype", "value", "expected"),
    [
        ("float", F64, 1.25, 2.5),
        ("float", F32, 1.25, 2.5),
        ("int", I64, -(2**61), -(2**62)),
        ("int", I32, -5, -10),
        ("bool", BOOL, True, True),
        ("bool", BOOL, False, False),
        ("scalar", F32, 1.25, np.float32(2.5)),
        ("scalar", F64, 1.25, np.float64(2.5)),
    ],
)
def test_scalar_results(kind: Any, dtype: DType, value: Any, expected: Any) -> None:
    type_ = Type(dtype)
    spec = EntrySpec((Arg("array", type_),), (Result(kind, type_),), 0)
    f = linked(slow, build_variant(kernel([type_], [type_]), spec, (), 0))
    got = f(np.array(value, dtype.np))
    assert type(got) is type(expected) and got == expected


@pytest.mark.parametrize(
    ("structure", "expected"),
    [
        (0, 2.0),
        ((), ()),
        (None, None),
        ((0,), (2.0,)),
        ((0, (1, 2)), (2.0, (4.0, 6.0))),
        ([2, (1, [0, None]), None], [6.0, (4.0, [2.0, None]), None]),
        ((0, 0, 0), (2.0, 2.0, 2.0)),
        (((((1,),),),), ((((4.0,),),),)),
    ],
)
def test_structures(structure: Any, expected: Any) -> None:
    types = [SCALAR] * 3
    spec = EntrySpec(args(*types), results(*types), structure)
    f = linked(slow, build_variant(kernel(types, types), spec, (), 0))
    none, x = sys.getrefcount(None), [1.0, 2.0, 3.0]
    for _ in range(1000):
        assert f(*x) == expected
    assert abs(sys.getrefcount(None) - none) < 50


def test_no_arguments() -> None:
    spec = EntrySpec((), (), (), 0)
    f = linked(slow, build_variant(kernel([], []), spec, ()))
    assert f() == () and f(1)[0] == "slow"


def test_static_argument_is_compared_by_identity() -> None:
    axis = object()
    spec = EntrySpec(
        (Arg("static", value=axis), *args(SCALAR), Arg("static", value=None)), results(SCALAR), 0
    )
    f = linked(slow, build_variant(kernel([SCALAR], [SCALAR]), spec, ()))
    assert f(axis, 2.0, None) == 4.0
    assert f(object(), 2.0, None)[0] == "slow"
    assert f(axis, 2.0, False)[0] == "slow"


def test_captured_array_is_read_at_every_call() -> None:
    weights = np.array([1.0, 2.0, 3.0])
    spec = EntrySpec(args(SCALAR), results(SCALAR, VECTOR), (0, 1), captures=1)
    variant = build_variant(
        kernel([SCALAR, VECTOR], [SCALAR, VECTOR]), spec, (), captured=[weights]
    )
    f = linked(slow, variant)
    assert f(1.0)[1].tolist() == [2.0, 4.0, 6.0]
    weights[0] = 10.0
    assert f(1.0)[1].tolist() == [20.0, 4.0, 6.0]
    count = sys.getrefcount(weights)
    variant.set_captured([np.zeros(3)])
    assert sys.getrefcount(weights) < count
    assert f(1.0)[1].tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(ValueError, match="contiguous"):
        variant.set_captured([np.zeros(6)[::2]])
    with pytest.raises(ValueError, match="expected 1"):
        variant.set_captured([])


# ---- misses --------------------------------------------------------------------------------------


class Subclass(np.ndarray[Any, Any]):
    pass


class FloatSubclass(float):
    pass


@pytest.mark.parametrize("value", [1, np.float64(1.0), True, None, "x", np.array(1.0), [1.0], 1j])
def test_float_misses(floats: Any, value: object) -> None:
    assert floats(value) == ("slow", (value,), {})


def test_float_subclass_misses(floats: Any) -> None:
    assert floats(FloatSubclass(1.0))[0] == "slow"


NOT_ACCEPTED: list[Any] = [
    [1.0, 2.0, 3.0], np.array([1, 2, 3]), np.ones(3, np.float32), np.ones(3, ">f8"), np.ones(4),
    np.ones(2), np.ones(0), np.ones((3, 1)), np.ones((1, 3)), np.array(1.0), np.ones(6)[::2],
    np.ones(3)[::-1], np.ones(3).view(Subclass), np.zeros(25, np.uint8)[1:25].view("f8"), 1.0, None,
]  # fmt: skip


@pytest.mark.parametrize("value", NOT_ACCEPTED, ids=repr)
def test_array_misses(arrays: Any, value: object) -> None:
    tag, (got,), kwargs = arrays(value)
    assert tag == "slow" and got is value and kwargs == {}


def test_fortran_order_misses() -> None:
    spec = EntrySpec(args(MATRIX), results(MATRIX), 0)
    f = linked(slow, build_variant(kernel([MATRIX], [MATRIX]), spec, ()))
    assert f(np.ones((2, 3))).shape == (2, 3)
    assert f(np.ones((2, 3), order="F"))[0] == "slow"
    assert f(np.ones((3, 2)).T)[0] == "slow"


def test_wrong_counts_and_keywords_miss(mixed: Any) -> None:
    x = np.ones(3)
    assert mixed(x, 1.0)[0] == 2.0
    assert mixed(x)[0] == "slow" and mixed()[0] == "slow" and mixed(x, 1.0, 2.0)[0] == "slow"
    assert mixed(x, b=1.0) == ("slow", (x,), {"b": 1.0})
    assert mixed(a=1, b=2) == ("slow", (), {"a": 1, "b": 2})
    assert mixed(*(x, 1.0))[0] == 2.0
    assert mixed(*(x,), b=3)[2] == {"b": 3}


def test_tracing_misses(floats: Any) -> None:
    abi.trace_depth.value += 1
    try:
        assert floats(1.0)[0] == "slow"
    finally:
        abi.trace_depth.value -= 1
    assert floats(1.0) == (2.0, 2.0)


def test_exceptions_of_the_slow_function_propagate() -> None:
    def refuse(*args: object) -> None:
        raise ValueError("refused")

    f = linked(refuse, build_variant(kernel([SCALAR], [SCALAR, SCALAR]), FLOATS, ()))
    with pytest.raises(ValueError, match="refused"):
        f(1)
    assert f(1.0) == (2.0, 2.0)


def test_variants_chain_in_order() -> None:
    def make(type_: Type) -> Variant:
        spec = EntrySpec(args(type_), results(type_), 0)
        return build_variant(kernel([type_], [type_]), spec, (), 0)

    chain = [make(t) for t in (SCALAR, VECTOR, MATRIX)]
    f = linked(slow, *chain)
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0], [1, 0]):
        abi.link_chain(f, [chain[i] for i in order])
        assert f(1.0) == 2.0 and f(np.ones(3)).shape == (3,)
        assert f("x")[0] == "slow"
        assert isinstance(f(np.ones((2, 3))), tuple) is (2 not in order)
    abi.link_chain(f, [])
    assert f(1.0)[0] == "slow"
    # What was linked once stays: calls may still be running in it.
    assert len(abi.keepalives(f)) == 3


def test_failed_guard_drops_outputs_and_continues() -> None:
    guarded = kernel(
        [VECTOR, SCALAR],
        [VECTOR, SCALAR],
        code="%code",
        extra="  %bad = fcmp olt double %v1_0, 0.0\n  %code = zext i1 %bad to i32",
    )
    f = linked(
        slow,
        build_variant(guarded, MIXED, ()),
        build_variant(kernel([SCALAR], [SCALAR, SCALAR]), FLOATS, ()),
    )
    x = np.ones(3)
    assert f(x, 1.0)[0] == 2.0
    assert f(x, -1.0) == ("slow", (x, -1.0), {})
    count = sys.getrefcount(x)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(2000):
        f(x, -1.0)
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert sys.getrefcount(x) == count and after - before < 4000


def test_variant_call_returns_miss() -> None:
    variant = build_variant(
        kernel([SCALAR], [SCALAR, SCALAR]), FLOATS._replace(structure=[0, 1]), ()
    )
    assert variant.call(1.0) == [2.0, 2.0]
    assert variant.call(1) is MISS and variant.call() is MISS
    other = build_variant(kernel([VECTOR], [VECTOR]), ARRAYS, ())
    f = linked(slow, variant, other)
    assert f(np.ones(3)).shape == (3,) and variant.call(np.ones(3)) is MISS
    abi.trace_depth.value += 1
    try:
        assert variant.call(1.0) == [2.0, 2.0] and variant.call(1) is MISS
    finally:
        abi.trace_depth.value -= 1


def test_invalid_results_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be returned as 'int'"):
        abi.entry_text(EntrySpec((), (Result("int", SCALAR),), 0))
    with pytest.raises(ValueError, match="has shape"):
        abi.entry_text(EntrySpec((), (Result("float", VECTOR),), 0))


# ---- threads and fork ----------------------------------------------------------------------------


def test_eight_threads_agree(mixed: Any) -> None:
    wrong: list[Any] = []

    def work(i: int) -> None:
        x, y = np.full(3, float(i)), float(i)
        for _ in range(3000):
            a, b = mixed(x, y)
            if a != 2 * i or b.tolist() != [2.0 * i] * 3:
                wrong.append((a, b))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_relinking_while_threads_call() -> None:
    def make(type_: Type) -> Variant:
        spec = EntrySpec(args(type_), results(type_), 0)
        return build_variant(kernel([type_], [type_]), spec, (), 0)

    chain = [make(t) for t in (SCALAR, VECTOR, MATRIX)]
    f = linked(lambda x: x + x, *chain)
    running, wrong = True, []

    def work() -> None:
        while running:
            if f(1.0) != 2.0 or f(np.ones(3)).tolist() != [2.0] * 3:
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for k in range(300):
        abi.link_chain(f, [chain[(k + i) % 3] for i in range(1 + k % 3)])
    running = False
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_fork_after_compiling(mixed: Any) -> None:
    pid = os.fork()
    if pid == 0:
        good = mixed(np.ones(3), 1.0)[0] == 2.0
        variant = build_variant(kernel([SCALAR], [SCALAR]), FLOATS._replace(structure=0), ())
        os._exit(0 if good and variant.call(2.0) == 4.0 else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert mixed(np.ones(3), 1.0)[0] == 2.0


# ---- memory --------------------------------------------------------------------------------------


def test_200_000_calls_leak_nothing(mixed: Any) -> None:
    x, y = np.ones(3), 1.25
    f64 = np.dtype(np.float64)
    mixed(x, y)
    counts = [sys.getrefcount(o) for o in (x, y, mixed, f64, None)]
    tracemalloc.start()
    mixed(x, y)
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(200_000):
        mixed(x, y)
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    now = [sys.getrefcount(o) for o in (x, y, mixed, f64, None)]
    assert all(abs(a - b) < 100 for a, b in zip(counts, now))
    assert after - before < 2000


def test_misses_leak_nothing(mixed: Any) -> None:
    x: list[Any] = [object(), {}]
    counts = [sys.getrefcount(o) for o in x]
    for _ in range(20_000):
        mixed(*x)
        mixed(x[0], b=x[1])
    assert counts == [sys.getrefcount(o) for o in x]


def test_every_failed_allocation_raises_memory_error(mixed: Any) -> None:
    testcapi = pytest.importorskip("_testcapi")
    x, y = np.ones(3), 1.25
    types = [VECTOR, SCALAR]
    spec = EntrySpec(args(*types), results(*types), [0, (1, [0])], workspace_bytes=1 << 17)
    f = linked(slow, build_variant(kernel(types, types), spec, ()))
    counts = [sys.getrefcount(o) for o in (x, y)]
    hold: list[Any] = [float(i) for i in range(300)]  # empty the free list
    failures = 0
    for start in range(12):
        for _ in range(20):
            try:
                testcapi.set_nomemory(start, start + 1)
                got = f(x, y)
            except MemoryError:
                failures += 1
            else:
                testcapi.remove_mem_hooks()
                assert got[1][0] == 2.5 and got[0] is got[1][1][0]
                hold.append(got)
            finally:
                testcapi.remove_mem_hooks()
    hold.clear()
    got = None
    assert failures >= 40
    assert counts == [sys.getrefcount(o) for o in (x, y)]


def test_callable_in_a_cycle_is_collected_with_its_code() -> None:
    def make() -> tuple[weakref.ref[Any], weakref.ref[Any]]:
        variant = build_variant(kernel([SCALAR], [SCALAR, SCALAR]), FLOATS, (), 0)

        def slow(*args: object) -> Any:
            return f

        f = linked(slow, variant)
        f.self = f
        assert f(1) is f and f(1.0) == (2.0, 2.0)
        return weakref.ref(f), weakref.ref(variant.library)

    refs = make()
    gc.collect()
    assert [r() for r in refs] == [None, None]


def test_last_reference_dropped_during_the_call() -> None:
    for _ in range(50):
        holder: list[Any] = []

        def slow(*args: object, holder: list[Any] = holder) -> str:
            holder.clear()
            return "done"

        holder.append(
            linked(slow, build_variant(kernel([SCALAR], [SCALAR, SCALAR]), FLOATS, (), 0))
        )
        assert holder[0](1) == "done"


def test_clearing_the_dict_keeps_the_code(floats: Any) -> None:
    f = linked(slow, build_variant(kernel([SCALAR], [SCALAR, SCALAR]), FLOATS, ()))
    f.note = 1
    f.__dict__.clear()
    f.__dict__ = {}
    gc.collect()
    assert f(1.0) == (2.0, 2.0) and f(1)[0] == "slow"


def test_static_self_runs_natively() -> None:
    class Model:
        pass

    model = Model()
    spec = EntrySpec((Arg("static", value=model), *args(SCALAR)), results(SCALAR), 0)
    f = linked(slow, build_variant(kernel([SCALAR], [SCALAR]), spec, ()))
    Model.twice = f  # type: ignore[attr-defined]
    assert model.twice(2.0) == 4.0  # type: ignore[attr-defined]
    assert Model().twice(2.0)[0] == "slow"  # type: ignore[attr-defined]


def test_layout_check_finds_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    from tapec.codegen import layout

    monkeypatch.setattr(layout, "FLAGS", layout.FLAGS - 8)
    with pytest.raises(abi.LayoutError, match="array flags"):
        layout.check_layout.__wrapped__()


# ---- speed ---------------------------------------------------------------------------------------


def test_call_overhead_is_near_that_of_a_python_function(floats: Any, arrays: Any) -> None:
    def nanoseconds(f: Any, x: object) -> float:
        return min(timeit.repeat(lambda: f(x), number=2000, repeat=9)) / 2000 * 1e9

    reference = nanoseconds(lambda x: (x + x, x + x), 1.5)
    assert nanoseconds(floats, 1.5) < 3 * reference
    x = np.ones(3)
    # A single NumPy operation does less than half the work and makes the same result.
    assert nanoseconds(arrays, x) < 1.5 * nanoseconds(np.copy, x)


def test_entry_text_is_the_same_in_every_process() -> None:
    text = abi.entry_text(MIXED).text
    assert str(id(float)) not in text and str(ctypes.addressof(abi.trace_depth)) not in text
    assert text == abi.entry_text(MIXED).text
