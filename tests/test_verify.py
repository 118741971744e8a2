"""The verifier accepts what the Builder makes and names what is wrong with other functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tapec.ir import Builder, Function, Op, Type, Value, VerifyError, parse, verify
from tapec.ir.core import BOOL, F32, F64, Block, Loc

T = Type(F64, (3,))


def x() -> Value:
    return Value(T, None, "x")


def check(fn: Function, *messages: str) -> VerifyError:
    with pytest.raises(VerifyError) as caught:
        verify(fn)
    for message in messages:
        assert message in str(caught.value)
    return caught.value


def test_error_names_the_op_and_shows_it() -> None:
    text = """func @f(%x: f64[3], %y: f32[3]) -> (f64[3]) {
  %a = exp %x : f64[3]
  %p = mul %a, %y : f64[3]    # fit.py:7
  %q = neg %p : f64[3]
  return %q
}"""
    fn = parse(text, check=False)
    error = check(fn, "mul in @f: ", "from fit.py:7")
    assert error.op is fn.ops[1]
    lines = str(error).splitlines()
    at = lines.index("      %p = mul %a, %y : f64[3]")
    assert lines[at - 1] == "      %a = exp %x : f64[3]"
    assert lines[at + 1].startswith("      ^^^^^^^^^^^^^^^^^^^^^^^^ ")
    assert lines[at + 2] == "      %q = neg %p : f64[3]"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%z = neg %x : f64[4]", "result 0 is declared f64[4], its type rule gives f64[3]"),
        ("%z, %w = neg %x : f64[3], f64[3]", "has 2 results, its type rule gives 1"),
        ("%z = frobnicate %x : f64[3]", "unknown operation"),
        ("%z = add %x : f64[3]", "operand"),
        ("%z = reshape %x : f64[3]", "attribute 'shape' is missing"),
        ("%z = slice %x {size=(3), start=(1), step=(1)} : f64[3]", "out of bounds for axis 0"),
        ("exp %x", "has 0 results, its type rule gives 1"),
        ("%z = neg %x {n=1} (%q: f64[3]) { return %q } : f64[3]", "takes no regions"),
    ],
)
def test_type_rules(line: str, message: str) -> None:
    text = f"func @f(%x: f64[3]) -> () {{\n  {line}\n  return\n}}"
    check(parse(text, check=False), message, "^^^")


def test_operand_that_is_not_defined() -> None:
    stray = Value(T, None, "stray")
    op = Op("neg", (stray,), (T,))
    check(Function("f", [], [op], op.results), "operand 0 (%stray: f64[3]) is not defined before")


def test_operand_that_is_defined_later() -> None:
    p = x()
    first = Op("neg", (p,), (T,))
    second = Op("exp", first.results, (T,))
    verify(Function("f", [p], [first, second], second.results))
    check(Function("f", [p], [second, first], second.results), "exp in @f", "not defined before")


def test_result_that_is_not_defined() -> None:
    check(Function("f", [x()], [], [x()]), "returns a value that is not defined (result 0)")


def test_single_definition() -> None:
    p = x()
    op = Op("neg", (p,), (T,))
    check(Function("f", [p], [op, op], op.results), "is defined twice")
    check(Function("f", [p, p], [], []), "parameter 1 (%x: f64[3]) is defined twice")
    check(Function("f", [op.results[0]], [], []), "is a result of neg")
    other = Op("neg", (p,), (T,))
    other.results = op.results
    check(Function("f", [p], [other], []), "names another operation as its definition")


def test_values_are_values() -> None:
    op = Op("neg", (3.0,), (T,))  # type: ignore[arg-type]
    check(Function("f", [], [op], []), "operand 0 is not a Value but 3.0")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([0], "holds [0] of builtins.list"),
        ((np.int64(0),), "of numpy.int64"),
        (((0, (np.float64(1.0),)),), "of numpy.float64"),
    ],
)
def test_attributes_are_plain(value: Any, message: str) -> None:
    p = x()
    op = Op("reduce_sum", (p,), (Type(F64),), {"axes": value})
    check(Function("f", [p], [op], op.results), "attribute 'axes' holds", message)


def test_region_of_call_sees_only_its_parameters() -> None:
    p, q = x(), x()
    op = Op("call", (p,), (T,), {"name": "g"}, (Block([q], [], [p]),))
    check(Function("f", [p], [op], op.results), "the region returns a value that is not defined")
    good = Op("call", (p,), (T,), {"name": "g"}, (Block([q], [], [q]),))
    verify(Function("f", [p], [good, Op("call", (p,), (T,), good.attrs, good.regions)], []))


def test_region_of_call_is_checked_inside() -> None:
    p, q = x(), x()
    inner = Op("neg", (q,), (Type(F32, (3,)),), loc=Loc("lib.py", 4))
    op = Op("call", (p,), (Type(F32, (3,)),), {"name": "g"}, (Block([q], [inner], inner.results),))
    error = check(Function("f", [p], [op], op.results), "neg in @f", "declared f32[3]", "lib.py:4")
    assert error.op is inner


def test_call_types() -> None:
    p, q = x(), Value(Type(F64), None, "q")
    op = Op("call", (p,), (Type(F64),), {"name": "g"}, (Block([q], [], [q]),))
    check(Function("f", [p], [op], op.results), "g takes (f64[],), got (f64[3],)")
    op = Op("call", (p,), (T,), {"name": "g"}, ())
    check(Function("f", [p], [op], op.results), "takes one region")


def test_values_of_a_region_do_not_leave_it() -> None:
    p, q = x(), x()
    inner = Op("neg", (q,), (T,))
    op = Op("call", (p,), (T,), {"name": "g"}, (Block([q], [inner], inner.results),))
    outside = Op("exp", inner.results, (T,))
    check(Function("f", [p], [op, outside], []), "exp in @f", "not defined before")


def test_long_functions_are_cut_around_the_error() -> None:
    b = Builder()
    v = b.param(T, "x")
    values = [v]
    for _ in range(100):
        values.append(b.exp(values[-1]))
    ops = list(b.ops)
    ops[50] = Op("exp", (values[50],), (Type(BOOL, (3,)),))
    lines = str(check(Function("f", [v], ops, []), "declared bool[3]")).splitlines()
    assert len(lines) == 1 + 2 + 6 + 1 + 5
    assert lines[1] == lines[-1] == "    ..."


def test_unprintable_function_keeps_the_message() -> None:
    p = x()
    op = Op("reduce_sum", (p,), (Type(F64),), {"axes": object()})
    check(Function("f", [p], [op], op.results), "attribute 'axes' holds", "cannot be printed")
