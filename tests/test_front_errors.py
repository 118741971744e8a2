"""Bad uses of traced values: typed errors that name the user's line and the way out."""

from __future__ import annotations

import cmath
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tapec.errors import (
    ConversionError,
    TapecError,
    TapecTypeError,
    TapecValueError,
    UnsupportedError,
)
from tapec.ir.core import F64, I32, Type
from tapec.tape import Tape

X = np.array([1.0, 2.0, 3.0])


def trace(fn: Callable[..., Any], *args: Any) -> Any:
    with Tape("f") as tape:
        s = tape.input(Type(F64), 0.5, "s", weak=True)
        x = tape.input(Type(F64, (3,)), X, "x")
        m = tape.input(Type(F64, (2, 3)), np.ones((2, 3)), "m")
        i = tape.input(Type(I32), np.int32(2), "i")
        return fn(s, x, m, i)


def write_into_plain_array(s: Any, x: Any, m: Any, i: Any) -> Any:
    buffer = np.zeros(3)
    buffer[0] = s
    return buffer


def write_slice_into_plain_array(s: Any, x: Any, m: Any, i: Any) -> Any:
    buffer = np.zeros(3)
    buffer[:] = x
    return buffer


def add_into_plain_array(s: Any, x: Any, m: Any, i: Any) -> Any:
    buffer = np.zeros(3)
    buffer += x
    return buffer


CONVERSIONS: list[tuple[Callable[..., Any], str]] = [
    (lambda s, x, m, i: float(s), r"float\(\) of the traced value 's' \(f64\[\]"),
    (lambda s, x, m, i: math.sin(s), r"np\.sin for math\.sin"),
    (lambda s, x, m, i: math.sin(s * 2), r"made at .*test_front_errors\.py:\d+"),
    (lambda s, x, m, i: complex(s), r"complex\(\)"),
    (lambda s, x, m, i: cmath.exp(s), r"derivative"),
    (lambda s, x, m, i: s.item(), r"\.item\(\)"),
    (lambda s, x, m, i: x.tolist(), r"\.tolist\(\)"),
    (lambda s, x, m, i: np.asarray(x, dtype=float), r"NumPy array of float64"),
    (lambda s, x, m, i: np.array([s, s], dtype=float), r"float\(\)|NumPy array"),
    (write_into_plain_array, r"tapec\.numpy\.zeros"),
    (write_slice_into_plain_array, r"tapec\.numpy"),
    (add_into_plain_array, r"plain NumPy array"),
    (lambda s, x, m, i: np.add(x, 1, out=np.zeros(3)), r"plain NumPy array"),
    (lambda s, x, m, i: np.sum(x, out=np.zeros(())), r"plain NumPy array"),
    (lambda s, x, m, i: pickle.dumps(x), r"pickled"),
]


@pytest.mark.parametrize("case", range(len(CONVERSIONS)))
def test_conversions_to_plain_numbers(case: int) -> None:
    fn, text = CONVERSIONS[case]
    with pytest.raises(ConversionError, match=text) as caught:
        trace(fn)
    assert isinstance(caught.value, TypeError)
    assert "test_front_errors.py:" in str(caught.value)


def test_the_line_is_the_users() -> None:
    with pytest.raises(ConversionError) as caught:
        trace(write_into_plain_array)
    line = write_into_plain_array.__code__.co_firstlineno + 2
    assert str(caught.value).startswith(f"{__file__}:{line}:")


UNSUPPORTED: list[tuple[Callable[..., Any], str]] = [
    (lambda s, x, m, i: np.sort(x * 1j), "complex"),
    (lambda s, x, m, i: np.busday_count(x, x), "busday"),
    (lambda s, x, m, i: np.packbits(x > 0), "packbits"),
    (lambda s, x, m, i: np.linalg.qr(m, mode="raw"), "raw"),
    (lambda s, x, m, i: np.pad(x, 1, mode="empty"), "empty"),
    (lambda s, x, m, i: x.view(int), "view"),
]


@pytest.mark.parametrize("case", range(len(UNSUPPORTED)))
def test_unsupported_functions_are_named(case: int) -> None:
    fn, text = UNSUPPORTED[case]
    with pytest.raises(UnsupportedError, match=text) as caught:
        trace(fn)
    assert isinstance(caught.value, NotImplementedError)
    assert "test_front_errors.py:" in str(caught.value)


WRONG: list[tuple[Callable[..., Any], type[Exception], str]] = [
    (
        lambda s, x, m, i: x + np.ones(4),
        ValueError,
        r"broadcast together with shapes \(3,\) \(4,\)",
    ),
    (lambda s, x, m, i: m @ m, ValueError, r"matmul: shapes \(2, 3\) and \(2, 3\) do not fit"),
    (lambda s, x, m, i: x @ 2.0, ValueError, "use \\* for scalars"),
    (lambda s, x, m, i: x.reshape(2, 2), ValueError, "cannot reshape array of size 3"),
    (lambda s, x, m, i: x.sum(axis=1), IndexError, "axis 1 is out of bounds"),
    (lambda s, x, m, i: x.sum(axis=1), ValueError, "axis 1 is out of bounds"),
    (lambda s, x, m, i: m.sum(axis=(0, 0)), ValueError, "duplicate"),
    (lambda s, x, m, i: np.concatenate([x, m]), ValueError, "dimensions"),
    (lambda s, x, m, i: np.stack([x, x[:2]]), ValueError, "same shape"),
    (lambda s, x, m, i: np.einsum("ij,jk", m, m), ValueError, "length"),
    (lambda s, x, m, i: np.einsum("i", m), ValueError, "axes"),
    (lambda s, x, m, i: np.einsum("i,i", x), ValueError, "2 subscripts for 1 operands"),
    (lambda s, x, m, i: np.max(x[:0]), ValueError, "zero-size array"),
    (lambda s, x, m, i: x & x, TypeError, "bitwise_and"),
    (lambda s, x, m, i: -(x > 0), TypeError, "negative"),
    (lambda s, x, m, i: (x > 0) - (x < 0), TypeError, "subtract"),
    (lambda s, x, m, i: x + "text", TypeError, "str"),
    (lambda s, x, m, i: x + None, TypeError, "NoneType"),
    (lambda s, x, m, i: x + np.ones(3, np.float16), TypeError, "float16"),
    (lambda s, x, m, i: x * np.ones(3, np.uint8), TypeError, "uint8"),
    (lambda s, x, m, i: x * np.ones(3, np.longdouble), TypeError, "longdouble|float128"),
    (lambda s, x, m, i: x.astype(np.int8), TypeError, "int8"),
    (lambda s, x, m, i: x * X.view(np.matrix), TypeError, "matrix"),
    (lambda s, x, m, i: x * np.ma.masked_array(X), TypeError, "MaskedArray"),
    (lambda s, x, m, i: bool(x), ValueError, "truth value of an array with 3 elements"),
    (lambda s, x, m, i: 1 if x > 0 else 2, ValueError, "ambiguous"),
    (lambda s, x, m, i: len(s), TypeError, "unsized"),
    (lambda s, x, m, i: list(s), TypeError, "0-d"),
    (lambda s, x, m, i: [1, 2][s], TypeError, "integer"),
    (lambda s, x, m, i: {x: 1}, TypeError, "unhashable"),
    (lambda s, x, m, i: np.split(x, 2), ValueError, "equal division"),
    (lambda s, x, m, i: np.array([x, x[:2]]) + x, (ValueError), "shape"),
    (lambda s, x, m, i: i ** np.int32(-1), ValueError, "negative integer powers"),
    (lambda s, x, m, i: np.squeeze(m, 0), ValueError, "squeeze"),
    (lambda s, x, m, i: x.no_such_method(), AttributeError, "no_such_method"),
]


@pytest.mark.parametrize("case", range(len(WRONG)))
def test_wrong_arguments(case: int) -> None:
    fn, error, text = WRONG[case]
    with pytest.raises(error, match=text) as caught:
        trace(fn)
    if isinstance(caught.value, TapecError):
        assert "test_front_errors.py:" in str(caught.value)


def test_in_place_with_a_wider_dtype() -> None:
    def f(s: Any, x: Any, m: Any, i: Any) -> Any:
        counts = (x > 0).astype(int)
        counts += x
        return counts

    with pytest.raises(TapecTypeError, match="same_kind"):
        trace(f)

    def g(s: Any, x: Any, m: Any, i: Any) -> Any:
        x += m
        return x

    with pytest.raises(TapecValueError, match="does not fit"):
        trace(g)


def test_unknown_values_cannot_decide_branches() -> None:
    with Tape("body") as tape:
        k = tape.input(Type(F64), None, "k")
        with pytest.raises(ConversionError, match=r"'k' is not known while tracing.*tapec\.cond"):
            _ = 1 if k > 0 else 2


def test_errors_of_the_users_code_come_through() -> None:
    def f(s: Any, x: Any, m: Any, i: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        trace(f)


def test_operations_without_a_complex_form_are_refused_clearly() -> None:
    with pytest.raises(UnsupportedError, match=f"{__file__}:.*complex"):
        trace(lambda s, x, m, i: np.sort(x * 1j))
    with pytest.raises(UnsupportedError, match=f"{__file__}:.*argmax of complex"):
        trace(lambda s, x, m, i: np.argmax(x.astype(complex)))
