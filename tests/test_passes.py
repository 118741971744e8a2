"""The driver, the passes one by one, the table of passes and its runner."""

from __future__ import annotations

import gc
import random

import numpy as np
import pytest

from tapec.ir import (
    BOOL,
    F64,
    I64,
    Builder,
    Function,
    Loc,
    Op,
    Type,
    Value,
    diff,
    equal,
    interpret,
    parse,
    verify,
)
from tapec.ir.passes import (
    GRADIENT,
    ORDER,
    PASSES,
    algebra,
    checking,
    cse,
    dce,
    fold,
    order_errors,
    run_passes,
    simplify,
)  # fmt: skip

S = Type(F64)


def check(text: str, names: str, want: str) -> None:
    got = run_passes(parse(text), names.split())
    wanted = parse(want)
    assert equal(wanted, got), diff(wanted, got)


# -- single passes ------------------------------------------------------------------------


def test_dce() -> None:
    check(
        """
        func @f(%x: f64[]) -> (f64[]) {
          %a = sin %x : f64[]
          %b = cos %a : f64[]
          %c = gt %a, %x : bool[]
          guard %c {expected=true, message="m"}
          %d = exp %x : f64[]
          return %d
        }""",
        "dce",
        """
        func @f(%x: f64[]) -> (f64[]) {
          %a = sin %x : f64[]
          %c = gt %a, %x : bool[]
          guard %c {expected=true, message="m"}
          %d = exp %x : f64[]
          return %d
        }""",
    )


def test_dce_gives_back_what_it_did_not_change() -> None:
    fn = parse("func @f(%x: f64[]) -> (f64[]) {\n  %a = sin %x : f64[]\n  return %a\n}")
    for run in (dce, cse, fold, algebra, simplify):
        assert run(fn) is fn


def test_cse() -> None:
    check(
        """
        func @f(%x: f64[3], %y: f64[3]) -> (f64[3], f64[3]) {
          %a = mul %x, %y : f64[3]
          %b = mul %y, %x : f64[3]
          %c = sub %x, %y : f64[3]
          %d = sub %y, %x : f64[3]
          %e = slice %a {size=(1), start=(0), step=(1)} : f64[1]
          %g = slice %b {size=(1), start=(0), step=(1)} : f64[1]
          %h = slice %b {size=(1), start=(1), step=(1)} : f64[1]
          %i = sub %e, %g : f64[1]
          %j = sub %i, %h : f64[1]
          %k = reshape %j {shape=()} : f64[]
          %l = broadcast %k {dims=(), shape=(3)} : f64[3]
          %m = sub %c, %d : f64[3]
          return %l, %m
        }""",
        "cse",
        """
        func @f(%x: f64[3], %y: f64[3]) -> (f64[3], f64[3]) {
          %a = mul %x, %y : f64[3]
          %c = sub %x, %y : f64[3]
          %d = sub %y, %x : f64[3]
          %e = slice %a {size=(1), start=(0), step=(1)} : f64[1]
          %h = slice %a {size=(1), start=(1), step=(1)} : f64[1]
          %i = sub %e, %e : f64[1]
          %j = sub %i, %h : f64[1]
          %k = reshape %j {shape=()} : f64[]
          %l = broadcast %k {dims=(), shape=(3)} : f64[3]
          %m = sub %c, %d : f64[3]
          return %l, %m
        }""",
    )


def test_cse_tells_zeros_apart() -> None:
    x = Value(S, None, "x")
    ops = [
        Op("constant", (), (S,), {"value": v, "type": S}) for v in (0.0, -0.0, 0.0, np.nan, np.nan)
    ]
    quotients = [Op("div", (x, c.result), (S,)) for c in ops]
    fn = Function("f", [x], ops + quotients, [q.result for q in quotients])
    got = [float(a) for a in interpret(cse(fn), [np.array(1.0)])]
    assert got[:3] == [np.inf, -np.inf, np.inf]
    assert len(cse(fn).ops) == 6


def test_cse_keeps_the_first_name_and_place() -> None:
    b = Builder()
    x = b.param(S, "x")
    b.loc = Loc("a.py", 1)
    first = b.emit("sin", (x,), hint="first")
    b.loc = Loc("a.py", 2)
    second = b.emit("sin", (x,), hint="second")
    fn = cse(b.function("f", [b.mul(first, second)]))
    assert [(op.loc, op.result.hint) for op in fn.ops] == [
        (Loc("a.py", 1), "first"),
        (Loc("a.py", 2), None),
    ]
    assert fn.ops[0] is first.op


def test_guards_and_regions_are_not_merged() -> None:
    inner = Builder()
    p = inner.param(S, "p")
    callee = inner.function("g", [inner.mul(inner.add(p, inner.like(0.0, p)), p)])
    b = Builder()
    x = b.param(S, "x")
    c = b.gt(x, b.like(0.0, x))
    b.guard(c, True, "one")
    b.guard(c, True, "one")
    y = b.call(callee, [x])[0]
    z = b.call(callee, [x])[0]
    fn = b.function("f", [b.add(y, z)])
    new = verify(simplify(fn))
    assert [op.name for op in new.ops].count("guard") == 2
    calls = [op for op in new.ops if op.name == "call"]
    assert len(calls) == 2
    # a region used twice is simplified once
    assert [op.name for op in calls[0].regions[0].ops] == ["mul"]
    assert calls[0].regions[0] is calls[1].regions[0]
    assert interpret(new, [np.array(3.0)]) == [18.0]


def test_a_guard_inside_a_region_is_an_effect() -> None:
    inner = Builder()
    p = inner.param(S, "p")
    inner.guard(inner.gt(p, inner.like(0.0, p)), True)
    callee = inner.function("g", [inner.sin(p)])
    b = Builder()
    x = b.param(S, "x")
    b.call(callee, [x])
    fn = b.function("f", [x])
    (op,) = simplify(fn).ops
    assert op.name == "call"
    assert [o.name for o in op.regions[0].ops].count("guard") == 1
    assert "guard" not in [o.name for o in simplify(fn).ops]


def test_fold() -> None:
    check(
        """
        func @f(%x: f64[]) -> (f64[]) {
          %a = constant {value=2.0} : f64[]
          %b = constant {value=3.0} : f64[]
          %c = mul %a, %b : f64[]
          %d = add %x, %c : f64[]
          return %d
        }""",
        "fold",
        """
        func @f(%x: f64[]) -> (f64[]) {
          %c = constant {value=6.0} : f64[]
          %d = add %x, %c : f64[]
          return %d
        }""",
    )


def test_large_constants_are_not_folded_but_splats_are() -> None:
    b = Builder()
    big = b.array(np.arange(5000.0))
    fn = simplify(b.function("f", [b.sin(big), b.sin(b.constant(0.5, Type(F64, (10**9,))))]))
    assert [op.name for op in fn.ops] == ["constant", "sin", "constant"]


def test_a_replaced_operation_passes_on_its_name_and_place() -> None:
    b = Builder(Loc("a.py", 7))
    x, y = b.param(S, "x"), b.param(S, "y")
    z = b.emit("add", (x, b.neg(y)), hint="z")
    (op,) = simplify(b.function("f", [z])).ops
    assert (op.name, op.loc, op.result.hint) == ("sub", Loc("a.py", 7), "z")


def test_the_input_is_left_alone() -> None:
    fn = program(3)
    before = [(op, op.name, op.operands, op.results) for op in fn.ops]
    simplify(fn)
    assert before == [(op, op.name, op.operands, op.results) for op in fn.ops]
    assert all(r.op is op for op in fn.ops for r in op.results)


# -- whole programs -----------------------------------------------------------------------


def program(seed: int, length: int = 40) -> Function:
    """A random program over small arrays in which rules of all kinds meet."""
    r = random.Random(seed)
    b = Builder()
    pool = [b.param(Type(F64, s), f"x{k}") for k, s in enumerate([(), (3,), (2, 3), (3, 1)])]
    while len(b.ops) < length:
        x = r.choice(pool[-12:])
        match r.randrange(14):
            case 0 | 1 | 2 | 3:
                y = r.choice([v for v in pool if v.type is x.type])
                z = b.emit(r.choice(["add", "sub", "mul", "max"]), (x, y))
            case 4:
                z = b.emit(r.choice(["neg", "abs", "tanh", "floor"]), (x,))
            case 5:
                c = b.like(r.choice([0.0, 1.0, -1.0, 2.0, 0.3]), x)
                z = b.emit(r.choice(["add", "sub", "mul"]), r.choice([(x, c), (c, x)]))
            case 6:
                z = b.select(b.gt(x, b.neg(x)), x, r.choice([b.neg(x), b.like(0.0, x)]))
            case 7:
                z = b.reshape(x, r.choice([(x.type.size,), (1, x.type.size), x.type.shape[::-1]]))
            case 8:
                z = b.transpose(x, r.sample(range(x.type.ndim), x.type.ndim))
            case 9:
                if x.type.ndim > 3 or x.type.size > 60:
                    continue
                at = r.randrange(x.type.ndim + 1)
                shape = list(x.type.shape)
                shape.insert(at, r.choice([1, 2, 3]))
                z = b.broadcast(x, shape, [k for k in range(len(shape)) if k != at])
            case 10:
                if not x.type.size:
                    continue
                start, size, step = [], [], []
                for n in x.type.shape:
                    d = r.choice([1, 1, -1, 2])
                    s = r.randrange(n)
                    m = (n - 1 - s) // d + 1 if d > 0 else s + 1
                    start.append(s)
                    size.append(r.randint(1, m))
                    step.append(d)
                z = b.slice(x, start, size, step)
            case 11:
                y = r.choice([v for v in pool if v.type is x.type])
                z = b.concat([x, y], 0) if x.type.ndim and x.type.size < 60 else b.add(x, y)
            case 12:
                low = [r.randrange(2) for _ in x.type.shape]
                z = b.pad(x, low, low[::-1]) if x.type.size < 60 else b.neg(x)
            case _:
                axes = [k for k in range(x.type.ndim) if r.random() < 0.4]
                z = b.reduce(r.choice(["sum", "max"]), x, axes)
        pool.append(z)
    return b.function(f"p{seed}", pool[-6:])


@pytest.mark.parametrize("seed", range(150))
def test_random_programs_mean_the_same(seed: int) -> None:
    fn = program(seed)
    rng = np.random.default_rng(seed)
    args = [rng.normal(size=p.type.shape) for p in fn.params]
    want = interpret(fn, args)
    for names in (["simplify"], ["cse", "fold", "algebra"]):
        new = run_passes(fn, names)
        assert len(new.ops) <= 2 * len(dce(fn).ops) + 10
        for a, z in zip(want, interpret(new, args), strict=True):
            np.testing.assert_allclose(a, z, rtol=1e-9, atol=1e-9)
        again = run_passes(new, names)
        for a, z in zip(want, interpret(again, args), strict=True):
            np.testing.assert_allclose(a, z, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [5, 300, 2000])
def test_unpacking_a_stack_gives_its_pieces(n: int) -> None:
    b = Builder()
    x = b.param(Type(F64, (n,)), "x")
    parts = [b.reshape(b.slice(x, (k,), (1,)), ()) for k in range(n)]
    packed = b.concat([b.reshape(b.sin(p), (1,)) for p in parts], 0)
    unpacked = [b.reshape(b.slice(packed, (k,), (1,)), ()) for k in range(n)]
    out = unpacked[0]
    for p in unpacked[1:]:
        out = b.add(out, p)
    new = verify(simplify(b.function("f", [out])))
    names = [op.name for op in new.ops]
    assert "place" not in names
    assert names.count("slice") == n
    assert len(names) == 4 * n - 1


def test_the_collector_is_on_again_after_a_pass() -> None:
    assert gc.isenabled()
    simplify(program(1))
    assert gc.isenabled()


# -- the table and the runner -------------------------------------------------------------


def test_the_table_is_in_order() -> None:
    assert order_errors(list(PASSES)) == []
    assert order_errors(GRADIENT) == []
    assert {name for a, z, _ in ORDER for name in (a, z)} <= set(PASSES)
    assert all(why for _, _, why in ORDER)


def test_a_wrong_order_says_why() -> None:
    (error,) = order_errors(["vjp", "simplify"])
    assert "'vjp' runs before 'simplify'" in error
    assert "sqrt(x*x)" in error
    assert order_errors(["simplify", "vjp", "simplify"]) == []


def test_sqrt_of_a_square_is_differentiable_at_zero() -> None:
    fn = parse(
        """
        func @f(%x: f64[]) -> (f64[]) {
          %a = mul %x, %x : f64[]
          %b = sqrt %a : f64[]
          return %b
        }"""
    )
    value, slope = interpret(run_passes(fn, GRADIENT), [np.array(0.0)])
    assert (float(value), float(slope)) == (0.0, 0.0)


def test_vjp_and_jvp_run_by_name() -> None:
    b = Builder()
    x, k = b.param(Type(F64, (3,)), "x"), b.param(Type(I64, (3,)), "k")
    fn = b.function("f", [b.reduce_sum(b.mul(x, b.convert(k, F64)), (0,))])
    args = [np.arange(3.0), np.array([2, 3, 4])]
    value, slope = interpret(run_passes(fn, ["cse", "dce", "vjp"]), args)
    assert float(value) == 11.0
    assert slope.tolist() == [2.0, 3.0, 4.0]
    tangents = run_passes(fn, ["jvp"])
    assert interpret(tangents, [*args, np.array([1.0, 0.0, 0.0])])[1] == 2.0


def test_an_error_says_which_pass_and_function(monkeypatch: pytest.MonkeyPatch) -> None:
    from tapec.ir import passes

    def fail(fn: Function) -> Function:
        raise RuntimeError("no")

    monkeypatch.setitem(passes.PASSES, "bad", passes.Pass("bad", fail, ""))
    with pytest.raises(RuntimeError) as caught:
        run_passes(program(1), ["cse", "bad"])
    assert caught.value.__notes__ == ["while running bad on @p1"]


def test_a_pass_that_breaks_the_function_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    from tapec.ir import passes

    def cut(fn: Function) -> Function:
        return Function(fn.name, fn.params, fn.ops[1:], fn.results)

    monkeypatch.setitem(passes.PASSES, "cut", passes.Pass("cut", cut, ""))
    assert checking()
    fn = parse("func @f(%x: f64[]) -> (f64[]) {\n  %a = sin %x : f64[]\n  return %a\n}")
    with pytest.raises(ValueError, match="not defined") as caught:
        run_passes(fn, ["cut"])
    assert caught.value.__notes__ == ["while verifying @f after cut"]
    run_passes(fn, ["cut"], check=False)


def test_checking_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPEC_CHECK", "0")
    assert not checking()
    monkeypatch.setenv("TAPEC_CHECK", "1")
    assert checking()
    monkeypatch.delenv("TAPEC_CHECK")
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    assert not checking()


def test_times_and_dumps() -> None:
    times: dict[str, float] = {}
    seen: list[tuple[str, int]] = []
    fn = program(2)
    run_passes(
        fn, ["dce", "cse", "dce"], times=times, dump=lambda n, f: seen.append((n, len(f.ops)))
    )
    assert set(times) == {"dce", "cse"}
    assert [n for n, _ in seen] == ["dce", "cse", "dce"]


def test_an_unknown_pass_is_named() -> None:
    with pytest.raises(
        ValueError, match="there is no pass 'csee'; passes are reroll, dce, cse, fold"
    ):
        run_passes(program(1), ["csee"])


def test_results_may_be_parameters_and_repeated() -> None:
    b = Builder()
    c = b.param(Type(BOOL), "c")
    x = b.param(S, "x")
    fn = b.function("f", [x, b.add(x, b.like(0.0, x)), x, b.select(c, x, x)])
    new = simplify(fn)
    assert new.results == (x, x, x, x)
    assert new.ops == ()
