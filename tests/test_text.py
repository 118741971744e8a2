"""The textual form: exact round trip, readable names, errors with line and column."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from tapec.ir import (
    OPS,
    Builder,
    Dense,
    Function,
    Loc,
    ParseError,
    Type,
    Value,
    diff,
    equal,
    format_function,
    jvp,
    parse,
    parse_all,
    parse_type,
    verify,
    vjp,
)
from tapec.ir.core import BOOL, C128, F32, F64, I64
from tapec.ir.printer import format_attr


def check_round_trip(fn: Function) -> str:
    text = format_function(fn)
    again = parse(text)
    assert equal(fn, again) and equal(again, fn), diff(fn, again)
    assert format_function(again) == text
    assert verify(again).name == fn.name
    return text


# -- round trip -----------------------------------------------------------------------------


def functions_of(name: str) -> list[Function]:
    """A function for each sample of the op, and its derivatives."""
    entry = OPS[name]
    cases = list(entry.samples.cases)
    if entry.elementwise:
        attrs = cases[0][1] if cases else {}
        kinds = [("f64[3]",) * n for n in (1, 2, 3, 4)] + [
            ("bool[]",),
            ("i64[2]",),
            ("bool[2]",) * 2,
        ]
        kinds += [("i64[2]", "i64[2]"), ("bool[2]", "f32[2]", "f32[2]")]
        cases = [(types, attrs) for types in kinds]
    out = []
    for types, attrs in cases:
        b = Builder(Loc("somewhere/model.py", 12))
        xs = tuple(b.param(parse_type(t), "x") for t in types)
        try:
            op = b.emit_op(name, xs, attrs)
        except (TypeError, ValueError):
            continue
        fn = b.function(name, op.results)
        out.append(fn)
        wrt = [k for k, x in enumerate(xs) if x.type.dtype.kind == "f" and k not in entry.unknown]
        if wrt and not entry.nondifferentiable:
            out += [vjp(fn, wrt), jvp(fn, wrt)]
    return out


@pytest.mark.parametrize("name", [n for n, e in OPS.items() if e.infer_regions is None])
def test_round_trip_of_every_op(name: str) -> None:
    functions = functions_of(name)
    assert functions
    for fn in functions:
        check_round_trip(fn)


def nan(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (-0.0, "-0.0"),
        (1e300, "1e+300"),
        (5e-324, "5e-324"),
        (float("inf"), "inf"),
        (float("-inf"), "-inf"),
        (float("nan"), "nan"),
        (nan(0xFFF8000000000000), "-nan"),
        (nan(0x7FF80000000000AB), "nan(0x7ff80000000000ab)"),
        (1, "1"),
        (-(2**63), "-9223372036854775808"),
        (True, "true"),
        (None, "none"),
        ((), "()"),
        ((1,), "(1)"),
        ((((1, 2), (-1,)), ()), "(((1,2),(-1)),())"),
        ('a "b"\n\\ // # é', r'"a \"b\"\n\\ // # é"'),
        (complex(0.0, -0.0), "complex(0.0,-0.0)"),
        (complex(float("nan"), float("inf")), "complex(nan,inf)"),
        (Type(F32, (2, 0)), "f32[2,0]"),
    ],
)
def test_attribute_values(value: Any, text: str) -> None:
    assert format_attr(value) == text.replace("é", "\\u00e9")
    # The attribute of no op in particular: the types are not checked.
    b = Builder()
    b.guard(b.constant(True, Type(BOOL)), True, "")
    guard = b.ops[-1]
    guard = type(guard)("guard", guard.operands, (), {"expected": value, "message": ""})
    fn = Function("f", [], [b.ops[0], guard], [])
    printed = format_function(fn)
    again = parse(printed, check=False)
    assert equal(fn, again)
    assert format_function(again) == printed


@pytest.mark.parametrize(
    "array",
    [
        np.array([1.0, -0.0, np.inf, 5e-324]),
        np.array([[np.nan, 1.0]], np.float32),
        np.array([nan(0x7FF8000000000001), 1.0]),
        np.array([1, 2], np.int32),
        np.array([True, False]),
        np.array([1 + 2j, -0.0j]),
        np.arange(1000.0).reshape(10, 100),
        np.zeros((0, 3)),
    ],
)
def test_array_constants(array: np.ndarray) -> None:
    b = Builder()
    text = check_round_trip(b.function("f", [b.array(array)]))
    (line,) = [line for line in text.splitlines() if "dense" in line]
    value = parse(text).ops[0].attrs["value"]
    assert isinstance(value, Dense)
    assert value.array.tobytes() == array.tobytes()
    assert ('"' in line) == (
        array.size > 256 or b"\x01\x00\x00\x00\x00\x00\xf8\x7f" in array.tobytes()
    )


def test_constants_take_precision_from_their_type() -> None:
    text = """
    func @f() -> (f32[], f64[2]) {
      %a = constant {value=0.1} : f32[]
      %b = constant {value=1} : f64[2]
      return %a, %b
    }"""
    a, b = parse(text).ops
    assert a.attrs["value"] == float(np.float32(0.1))
    assert a.attrs["type"] is Type(F32)
    assert type(b.attrs["value"]) is float


def with_regions() -> Function:
    inner = Builder(Loc("lib.py", 3))
    p, q = inner.param(Type(F64, (2,)), "x"), inner.param(Type(F64, (2,)))
    fn = inner.function("<lambda>", [inner.mul(p, q), inner.reduce_sum(p, [0])])
    b = Builder(Loc("main.py", 7))
    x = b.param(Type(F64, (2,)), "x")
    first, _ = b.call(fn, [x, x])
    second, total = b.call(fn, [first, x])  # one body, printed twice
    middle = Builder()
    y = middle.param(Type(F64, (2,)), "y")
    nested = middle.function("nested", middle.call(fn, [y, y]))
    deep, _ = b.call(nested, [second])
    return b.function("outer.vjp", [deep, total])


def test_regions() -> None:
    text = check_round_trip(with_regions())
    assert '%0, %1 = call %x, %x {name="<lambda>"} (%x_1: f64[2], %2: f64[2]) {' in text
    assert "\n    %3 = mul %x_1, %2 : f64[2]" in text
    assert "\n    return %3, %4\n  } : f64[2], f64[]" in text


def test_names() -> None:
    b = Builder()
    hints = ["x", "x", "x_1", "", None, "7", "a b", "a[0]", "β", "layer.w", "_", "x"]
    xs = [b.param(Type(F64), h) for h in hints]
    text = check_round_trip(b.function("<lambda>", xs))
    names = [part.split(":")[0].strip() for part in text[text.index("(") :].split("%")[1:13]]
    assert names == [
        "x",
        "x_1",
        "x_1_1",
        "0",
        "1",
        "2",
        "a_b",
        "a_0",
        "3",
        *["layer.w", "_", "x_2"],
    ]
    assert text.startswith('func @"<lambda>"(')


def test_locations() -> None:
    text = """func @f(%x: f64[3]) -> (f64[]) { // a comment
  %0 = neg %x : f64[3]    # my model.py:12
  # a comment of its own
  %1 = exp %0 : f64[3]    # no location
  %2 = reduce_sum %1 {axes=(0)} : f64[] // "
  return %2 // the end
}
// more"""
    assert [op.loc for op in parse(text).ops] == [Loc("my model.py", 12), None, None]
    b = Builder(Loc("/home/of/user/model.py", 12, "loss"))
    x = b.param(Type(F64), "x")
    printed = format_function(b.function("f", [b.exp(b.neg(x))]))
    assert printed.count("# model.py:12") == 2
    first, second = (line for line in printed.splitlines() if "#" in line)
    assert first.index("#") == second.index("#")


def test_colour_adds_nothing_but_colour() -> None:
    import re

    fn = with_regions()
    coloured = format_function(fn, color=True)
    assert "\033[" in coloured
    assert re.sub(r"\033\[[\d;]*m", "", coloured) == format_function(fn)


def test_several_functions() -> None:
    text = format_function(with_regions())
    assert len(parse_all(f"{text}\n\n{text}")) == 2
    with pytest.raises(ParseError, match="expected one function, found more"):
        parse(text + text)


def test_no_params_and_no_results() -> None:
    fn = Function("f", [], [], [])
    assert format_function(fn) == "func @f() -> () {\n  return\n}"
    check_round_trip(fn)
    check_round_trip(parse("func @f() -> () { return }"))


def test_malformed_functions_can_be_printed() -> None:
    stray = Value(Type(F64), None, "stray")
    assert "return %<undefined>" in format_function(Function("f", [], [], [stray]))


# -- errors ---------------------------------------------------------------------------------

HEAD = "func @f(%x: f64[3], %c: bool[]) -> (f64[3]) {\n"
CALL = HEAD + '  %y = call %x {name="g"} '
ERRORS = [
    ("", 1, 1, "expected 'func', found the end of the text"),
    ("\n\n  fun", 3, 3, "expected 'func', found 'fun'"),
    ("func f", 1, 6, "expected a function name (@name), found 'f'"),
    ("func @f %x", 1, 9, "expected '(', found '%x'"),
    ("func @f(%x f64)", 1, 12, "expected ':', found 'f64'"),
    ("func @f(%x: f64)", 1, 13, "expected a type, found 'f64'"),
    ("func @f(%x: f65[])", 1, 13, "unknown dtype 'f65'"),
    ("func @f(%x: f64[1,])", 1, 13, "malformed type"),
    ("func @f(%x: f64[], %x: f64[])", 1, 20, "value %x is defined twice"),
    ("func @f() -> (f64[]) { return }", 1, 14, "the function returns ()"),
    (HEAD + "  %y = neg %z : f64[3]", 2, 12, "value %z is not defined before"),
    (HEAD + "  %y = neg %y : f64[3]", 2, 12, "value %y is not defined before"),
    (HEAD + "  %x = neg %x : f64[3]\n", 2, 3, "value %x is defined twice"),
    (HEAD + "  %y = ngg %x : f64[3]", 2, 8, "unknown operation 'ngg'; did you mean 'neg'?"),
    (HEAD + "  %y = neg %x : f64[4]", 2, 17, "neg gives f64[3] here"),
    (HEAD + "  %y = neg %x", 2, 14, "1 results, but 0 types"),
    (HEAD + "  neg %x : f64[3]", 2, 12, "0 results, but 1 types"),
    (HEAD + "  %y = neg %x : f64[3] %z", 2, 24, "expected the end of the line, found '%z'"),
    (HEAD + "  %y = neg %x, : f64[3]", 2, 16, "expected a value (%name), found ':'"),
    (HEAD + "  %y neg %x : f64[3]", 2, 6, "expected '=', found 'neg'"),
    (HEAD + "  %y = add %x, %c : f64[3]", 2, 8, "add"),
    (HEAD + "  %y = reduce_sum %x {axes=(1)} : f64[]", 2, 8, "axes must be increasing"),
    (HEAD + "  %y = reduce_sum %x : f64[]", 2, 8, "attribute 'axes' is missing"),
    (HEAD + "  %y = reduce_sum %x {axes=0) : f64[]", 2, 29, "expected '}', found ')'"),
    (HEAD + "  %y = reduce_sum %x {axes=} : f64[]", 2, 28, "expected an attribute value"),
    (HEAD + "  %y = reduce_sum %x {axes=(0), axes=(0)} : f64[]", 2, 33, "given twice"),
    (HEAD + "  %y = reduce_sum %x {axes=dense(1)} : f64[]", 2, 28, "dense(...) is for constants"),
    (HEAD + "  %y = reduce_sum %x {axes=what} : f64[]", 2, 28, "expected an attribute value"),
    (HEAD + "  %y = constant {value=dense(1.0)} : f64[2]", 2, 24, "elements do not fit f64[2]"),
    (HEAD + '  %y = constant {value=dense("0z")} : f64[2]', 2, 24, "elements do not fit f64[2]"),
    (HEAD + "  %y = constant {value=nan(0x12)} : f64[]", 2, 28, "the bits 0x12 are not a nan"),
    (HEAD + "  %y = constant {value=nan(0xzz)} : f64[]", 2, 28, "malformed bits"),
    (HEAD + "  %y = constant {value=complex(1,2)} : c128[]", 2, 24, "complex takes two floats"),
    (HEAD + '  guard %c {expected=true, message="a\\q"}', 2, 36, "malformed string"),
    (HEAD + '  guard %c {expected=true, message="a}', 2, 36, 'found \'"\''),
    (HEAD + "  return %y\n}", 2, 10, "value %y is not defined before"),
    (HEAD + "  return %c\n}", 1, 36, "the function returns (bool[])"),
    (HEAD + "  return %x", 2, 12, "expected '}', found the end of the text"),
    (HEAD + "  return %x\n} ;", 3, 3, "expected 'func', found ';'"),
    (CALL + "(%p: f64[3]) {\n    return %x\n  } : f64[3]", 3, 12, "not defined"),
    (CALL + "(%p: f64[4]) {\n    return %p\n  } : f64[4]", 2, 8, "call: g takes"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "column", "message"), ERRORS)
def test_errors(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text)
    error = caught.value
    assert message in error.message
    assert (error.line, error.column) == (line, column)
    assert isinstance(error, ValueError)
    shown, marker = str(error).splitlines()[-2:]
    assert shown[4:] == (text.splitlines() or [""])[line - 1]
    assert marker == " " * (4 + column - 1) + "^"


def test_damaged_text_is_an_error_or_another_function() -> None:
    """Whatever is missing or misplaced, nothing but a ParseError comes out."""
    rng = np.random.default_rng(0)
    b = Builder(Loc("a.py", 1))
    x = b.param(Type(F64, (3,)), "x")
    b.guard(b.constant(True, Type(BOOL)), True, 'a "b"')
    y = b.concat([x, b.array([1.0, float("nan")])], 0)
    text = format_function(
        b.function("f", [y, *b.call(with_regions(), [b.slice(x, [2], [2], [-2])])])
    )
    errors = 0
    for _ in range(500):
        at = int(rng.integers(len(text)))
        width = int(rng.integers(0, 6))
        extra = "".join(rng.choice(list('%@{}(),:="[]-> \n0x#/.\\'), int(rng.integers(0, 3))))
        try:
            verify(parse(text[:at] + extra + text[at + width :]))
        except ParseError as error:
            assert error.line >= 1 and error.column >= 1
            errors += 1
    assert 100 < errors < 500


def test_parse_type() -> None:
    assert parse_type("f64[3, 4]") is Type(F64, (3, 4))
    assert parse_type(" bool[] ") is Type(BOOL)
    for bad in ("f64", "f16[2]", "f64[-1]", "f64[2]x"):
        with pytest.raises(ParseError):
            parse_type(bad)


# -- equality ---------------------------------------------------------------------------------


def scalar(value: Any, type_: Type) -> Function:
    b = Builder()
    return b.function("f", [b.constant(value, type_)])


def test_equal_compares_attributes_by_bits() -> None:
    same = scalar(float("nan"), Type(F64))
    assert equal(same, scalar(float("nan"), Type(F64)))
    assert not equal(same, scalar(-float("nan"), Type(F64)))
    assert not equal(scalar(0.0, Type(F64)), scalar(-0.0, Type(F64)))
    assert not equal(scalar(0.0, Type(C128)), scalar(-0.0j, Type(C128)))
    assert not equal(scalar(1, Type(I64)), scalar(True, Type(BOOL)))


PAIR = "func @f(%x: f64[2], %y: f64[2]) -> (f64[2]) {\n %a = OP\n return %a\n}"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("sub %x, %y : f64[2]", "sub %y, %x : f64[2]"),
        ("sub %x, %y : f64[2]", "add %x, %y : f64[2]"),
        ("add %x, %y : f64[2]", "add %x, %x : f64[2]"),
        ("constant {value=1.0} : f64[2]", "constant {value=2.0} : f64[2]"),
    ],
)
def test_unequal(first: str, second: str) -> None:
    f, g = parse(PAIR.replace("OP", first)), parse(PAIR.replace("OP", second))
    assert not equal(f, g)
    assert [line[:2] for line in diff(f, g).splitlines()] == ["  ", "<>", "  ", "  "]


def test_equal_ignores_names_and_locations() -> None:
    f = parse(PAIR.replace("OP", "sub %x, %y : f64[2] # a.py:1"))
    g = parse(PAIR.replace("OP", "sub %x, %y : f64[2]").replace("%x", "%p").replace("@f", "@g"))
    assert equal(f, g)
    assert diff(f, g) == ""


def test_equal_looks_into_regions() -> None:
    f = with_regions()
    text = format_function(f)
    assert not equal(f, parse(text.replace("mul", "add", 1)))
    changed = diff(f, parse(text.replace("mul", "add", 1))).splitlines()
    assert ["mul" in line for line in changed if line.startswith("<>")] == [True]
