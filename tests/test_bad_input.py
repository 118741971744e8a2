"""Wrong use gives a typed error that names the user's line, and nothing breaks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import tapec
from tapec.ir.core import Dense

HERE = "test_bad_input.py"


def vector(x):
    return x * 2


@pytest.mark.parametrize("transform", [tapec.grad, tapec.value_and_grad, tapec.hessian])
def test_vector_result_is_refused(transform):
    with pytest.raises(ValueError, match=r"shape \(3,\).*jacobian") as caught:
        transform(vector)(np.ones(3))
    assert HERE in str(caught.value) and "vector" in str(caught.value)
    with pytest.raises(ValueError, match=r"shape \(1,\)"):
        transform(vector)(np.ones(1))


def test_tuple_result_is_refused():
    with pytest.raises(TypeError, match=r"scalar.*tuple.*has_aux"):
        tapec.grad(lambda x: (x, x))(1.0)
    with pytest.raises(TypeError, match="has_aux"):
        tapec.grad(lambda x: {"a": x})(1.0)
    with pytest.raises(TypeError, match="scalar"):
        tapec.grad(lambda x: None)(1.0)
    with pytest.raises(TypeError, match=r"has_aux=True.*\(value, aux\)"):
        tapec.grad(lambda x: x, has_aux=True)(1.0)


def test_results_that_have_no_derivative():
    with pytest.raises(TypeError, match="bool"):
        tapec.grad(lambda x: x > 0)(1.0)
    with pytest.raises(TypeError, match="int64"):
        tapec.grad(lambda x: np.argmax(x))(np.ones(2))
    with pytest.raises(TypeError, match="str"):
        tapec.grad(lambda x: "text")(1.0)
    with pytest.raises(TypeError, match="no derivative"):
        tapec.jacobian(lambda x: x > 0)(np.ones(2))


@pytest.mark.parametrize(
    "value",
    [np.arange(3), np.array([True, False]), np.int32(3), True, "text", b"x", np.bool_(True)],
)
def test_arguments_that_have_no_derivative(value):
    with pytest.raises(TypeError, match=r"argument 0 \('x'\)"):
        tapec.grad(lambda x: np.sum(x))(value)


def test_integer_argument_names_the_way_out():
    with pytest.raises(TypeError, match=r"int64.*astype\(float\)"):
        tapec.grad(lambda x: np.sum(x))(np.arange(3))
    with pytest.raises(TypeError, match=r"\['w'\]"):
        tapec.grad(lambda p: np.sum(p["w"]))({"w": np.arange(3)})


@pytest.mark.parametrize(
    "value",
    [
        np.ma.masked_array([1.0, 2.0], [True, False]),
        np.ones((1, 2)).view(np.matrix),
        np.array(["a"]),
        np.array([object()]),
        np.ones(2, np.float16),
        np.ones(2, np.longdouble),
        np.array(["2020-01-01"], "M8[D]"),
        np.zeros(2, [("a", float)]),
    ],
)
def test_arrays_of_foreign_kinds(value):
    for f in (tapec.jit(lambda x: x), tapec.grad(lambda x: np.sum(x))):
        with pytest.raises(TypeError, match="argument 0"):
            f(value)


def test_unhashable_unknown_object():
    class Thing:
        __hash__ = None

    with pytest.raises(TypeError, match=r"argument 1 \('thing'\).*Thing.*optree"):
        tapec.jit(lambda x, thing: x)(1.0, Thing())


def test_result_of_unknown_kind():
    class Box:
        def __init__(self, x):
            self.x = x

    with pytest.raises(TypeError, match=r"test_bad_input.py.*Box"):
        tapec.jit(lambda x: Box(x))(1.0)


@pytest.mark.parametrize("argnums", [None, "x", 1.5, (), (0, "a"), True, {0}])
def test_argnums_of_a_wrong_kind(argnums):
    with pytest.raises(TypeError, match="argnums"):
        tapec.grad(vector, argnums=argnums)


def test_argnums_that_do_not_fit():
    with pytest.raises(TypeError, match=r"argnums=2.*1 positional argument"):
        tapec.grad(lambda x: x, argnums=2)(1.0)
    with pytest.raises(TypeError, match="by position"):
        tapec.grad(lambda x: x)(x=1.0)
    with pytest.raises(ValueError, match="twice"):
        tapec.grad(lambda x: x, argnums=(0, -1))(1.0)


def test_not_a_function():
    for transform in (tapec.grad, tapec.jit, tapec.jacobian, tapec.hvp):
        with pytest.raises(TypeError, match="expects a function, not a int"):
            transform(3)
    with pytest.raises(TypeError, match="expects a function"):
        tapec.jvp(3, (1.0,), (1.0,))
    with pytest.raises(TypeError, match="tuples"):
        tapec.jvp(vector, 1.0, 1.0)


def test_wrong_call_is_pythons_own_error():
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        tapec.grad(lambda x, y: x)(1.0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        tapec.grad(lambda x: x)(1.0, z=2)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: float(x) * x,
        lambda x: math.sin(x),
        lambda x: np.sum(np.zeros(2) + complex(x)),
    ],
)
def test_lost_derivatives_are_errors(f):
    with pytest.raises(TypeError, match=HERE):
        tapec.grad(f)(1.0)


def test_leaked_tracer():
    kept = []

    def f(x):
        kept.append(x * 2)
        return x**2

    assert tapec.grad(f)(3.0) == 6.0
    with pytest.raises(tapec.LeakedTracerError, match=HERE):
        kept[0] + 1


def test_unsupported_function_is_named():
    with pytest.raises(NotImplementedError, match="packbits"):
        tapec.grad(lambda x: np.sum(np.packbits(x)))(np.ones(8))


def test_wrong_shapes_inside():
    with pytest.raises(ValueError, match=HERE):
        tapec.grad(lambda x: np.sum(x + np.ones(4)))(np.ones(3))
    with pytest.raises(ValueError, match=HERE):
        tapec.grad(lambda x: np.sum(x @ np.ones(4)))(np.ones(3))


def test_recursion_names_the_function():
    def endless(x):
        return endless(x * 0.5) + 1

    with pytest.raises(RecursionError, match=rf"{HERE}:\d+, in endless"):
        tapec.grad(endless)(1.0)
    with pytest.raises(RecursionError):
        tapec.grad(endless)(2.0)


def test_object_stays_usable_after_errors():
    def f(x):
        return np.sum(x**2) if np.ndim(x) < 2 else x

    g = tapec.grad(f)
    for _ in range(2):
        with pytest.raises(ValueError, match="shape"):
            g(np.ones((2, 2)))
        with pytest.raises(TypeError, match="int64"):
            g(np.arange(2))
        assert g(np.ones(2)).tolist() == [2, 2]


def test_hvp_vector_must_match():
    h = tapec.hvp(lambda x: np.sum(x**2))
    with pytest.raises(ValueError, match=r"shape \(3,\), expected \(2,\)"):
        h(np.ones(2), np.ones(3))
    with pytest.raises(TypeError, match="structure"):
        h(np.ones(2), (1.0, 2.0))
    with pytest.raises(TypeError, match="argnums"):
        tapec.hvp(vector, argnums=(0, 1))


def test_dump_of_an_unknown_stage():
    with pytest.raises(ValueError, match=r"stage 'poetry'.*opt"):
        tapec.grad(vector).dump("poetry", 1.0)


@pytest.mark.parametrize("dtype", [">f8", ">f4", ">i8", ">i4", ">c16", ">c8"])
def test_constants_of_other_byte_order(dtype: str) -> None:
    x = np.array([1.0, 2.0, 3.0])
    made = tapec.grad(lambda x: np.sum(np.real(np.array([5, 7, 9], dtype=dtype) * x)))(x)
    assert made.dtype == np.float64
    assert_array_equal(made, [5, 7, 9])
    native = np.arange(3)[::-1]
    swapped = native.astype(">i8")
    assert_array_equal(tapec.grad(lambda x: x[np.array(swapped)] @ native)(x), native[native])
    assert Dense(swapped) == Dense(native)
