"""Sweep over the operations that are not elementwise, by their ``samples.cases``.

Values against definitions written with index loops; reverse against forward mode; both
against central differences, for the operation and for its own vjp (second order); f32
against f64.  Then what the table cannot say: ties, products with zeros, refused types.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tapec.ir import OPS, Builder, Function, Type, interpret, jvp, parse_type, verify, vjp
from tapec.ir.core import BOOL, F32, F64, I64

ENTRIES = [e for e in OPS.values() if not e.elementwise and not e.samples.swept_by]
CASES = [
    pytest.param(e.name, types, attrs, id=f"{e.name}-{k}-{'-'.join(types)}")
    for e in ENTRIES
    for k, (types, attrs) in enumerate(e.samples.cases)
]
SMOOTH = [
    case
    for case in CASES
    if not OPS[case.values[0]].nondifferentiable and any(t.startswith("f") for t in case.values[1])
]


def build(name: str, types: tuple[str, ...], attrs: dict[str, Any], f32: bool = False) -> Function:
    b = Builder()
    xs = []
    for k, text in enumerate(types):
        t = parse_type(text)
        if t.dtype.kind == "f":
            t = t.with_dtype(F32 if f32 else F64)
        xs.append(b.param(t, "xyzuvw"[k]))
    op = b.emit_op(name, tuple(xs), attrs)
    return verify(b.function(name, op.results))


def draw(fn: Function, rng: np.random.Generator) -> list[np.ndarray]:
    """Values for the parameters, from the interval that the op's samples give."""
    samples = OPS[fn.ops[0].name].samples
    out = []
    for k, p in enumerate(fn.params):
        low, high = (
            v[min(k, len(v) - 1)] if isinstance(v, tuple) else v
            for v in (samples.low, samples.high)
        )
        shape, dtype = p.type.shape, p.type.dtype
        if dtype.kind == "b":
            out.append(rng.random(shape) < 0.5)
        elif dtype.kind == "i":
            out.append(rng.integers(int(low), int(high), shape).astype(dtype.np))
        else:
            out.append(rng.uniform(low, high, shape).astype(dtype.np))
    return out


def close(got: Any, want: Any, tol: float) -> None:
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=tol, atol=tol)


# -- values -----------------------------------------------------------------------------


def fourier_sum(name: str, x: np.ndarray, attrs: dict[str, Any]) -> np.ndarray:
    """A Fourier transform as a sum over the axis."""
    axis = attrs["axis"]
    terms = np.moveaxis(x[..., 0] + 1j * x[..., 1] if name != "rfft" else x, axis, 0)
    n = attrs.get("n", len(terms))
    j = np.arange(n)
    if name == "irfft":  # the terms that are missing are conjugates
        rest = np.conj(terms[1 : (n + 1) // 2][::-1])
        terms = np.concatenate([terms[:1].real, terms[1:], rest])
        if n % 2 == 0 and n > 1:
            terms[n // 2] = terms[n // 2].real
    sign = 2j if name == "irfft" or attrs.get("inverse") else -2j
    y = np.tensordot(np.exp(sign * np.pi * np.outer(j, j) / n), terms, 1)
    y = np.moveaxis(y[: n // 2 + 1] if name == "rfft" else y, 0, axis)
    return y.real if name == "irfft" else np.stack([y.real, y.imag], -1)


def by_loops(name: str, arrays: list[np.ndarray], attrs: dict[str, Any], out: Type) -> Any:
    """The operation from its definition, one element at a time."""
    z = np.zeros(out.shape, out.dtype.np)
    x = arrays[0] if arrays else None
    axes = attrs.get("axes", ())

    def at(start: Any, step: Any, i: Any) -> tuple[int, ...]:
        return tuple(a + k * s for a, k, s in zip(start, i, step))

    def picked(i: tuple[int, ...], indices: list[np.ndarray], ndim: int) -> tuple[int, ...]:
        lead = i[: indices[0].ndim]
        where = iter(i[indices[0].ndim :])
        at_axis = dict(zip(axes, [int(index[lead]) for index in indices]))
        return tuple(at_axis[k] if k in at_axis else next(where) for k in range(ndim))

    if name in ("fft", "rfft", "irfft"):
        z[...] = fourier_sum(name, x, attrs)
    elif name == "reshape":
        flat = [x[i] for i in np.ndindex(x.shape)]
        for k, i in enumerate(np.ndindex(z.shape)):
            z[i] = flat[k]
    elif name == "place":
        for piece, (start, step) in zip(arrays, attrs["at"]):
            for i in np.ndindex(piece.shape):
                z[at(start, step, i)] += piece[i]
    elif name == "scatter_add":
        z[...] = x
        for i in np.ndindex(arrays[1].shape):
            z[picked(i, arrays[2:], x.ndim)] += arrays[1][i]
    elif name.startswith("reduce_"):
        start, f = {
            "sum": (0, lambda a, b: a + b),
            "prod": (1, lambda a, b: a * b),
            "max": (None, max),
            "min": (None, min),
            "any": (False, lambda a, b: a or b),
            "all": (True, lambda a, b: a and b),
        }[name.removeprefix("reduce_")]
        have: dict[Any, Any] = {}
        for i in np.ndindex(x.shape):
            j = tuple(k for axis, k in enumerate(i) if axis not in axes)
            have[j] = x[i] if j not in have and start is None else f(have.get(j, start), x[i])
        for j in np.ndindex(z.shape):
            z[j] = have.get(j, start)
    elif name == "dot":
        y = arrays[1]
        (cx, cy), (bx, by) = attrs["contract"], attrs["batch"]
        fx = [k for k in range(x.ndim) if k not in cx + bx]
        fy = [k for k in range(y.ndim) if k not in cy + by]
        for i in np.ndindex(x.shape):
            for j in np.ndindex(y.shape):
                if all(i[a] == j[c] for a, c in zip(cx + bx, cy + by)):
                    k = [i[a] for a in bx] + [i[a] for a in fx] + [j[a] for a in fy]
                    z[tuple(k)] += x[i] * y[j]
    else:
        for i in np.ndindex(z.shape):
            if name == "constant":
                value = attrs["value"]
                z[i] = value.array[i] if hasattr(value, "array") else value
            elif name == "iota":
                z[i] = i[attrs["axis"]]
            elif name == "transpose":
                j = dict(zip(attrs["perm"], i))
                z[i] = x[tuple(j[k] for k in range(x.ndim))]
            elif name == "broadcast":
                z[i] = x[tuple(i[d] for d in attrs["dims"])]
            elif name == "slice":
                z[i] = x[at(attrs["start"], attrs["step"], i)]
            elif name == "gather":
                z[i] = x[picked(i, arrays[1:], x.ndim)]
            elif name == "sort":
                axis = attrs["axis"]
                row = [x[(*i[:axis], k, *i[axis + 1 :])] for k in range(x.shape[axis])]
                z[i] = sorted(row)[i[axis]]
            elif name == "searchsorted":
                v = arrays[1][i]
                z[i] = sum(bool(e <= v if attrs["right"] else e < v) for e in x)
            elif name in ("argmax", "argmin", "cumsum"):
                axis = attrs["axis"]
                if name == "cumsum":
                    row = range(i[axis], x.shape[axis]) if attrs["reverse"] else range(i[axis] + 1)
                    z[i] = sum(x[(*i[:axis], k, *i[axis + 1 :])] for k in row)
                else:
                    row = [x[(*i[:axis], k, *i[axis:])] for k in range(x.shape[axis])]
                    best = (max if name == "argmax" else min)(row)
                    z[i] = row.index(best)
            else:
                raise NotImplementedError(name)
    return z


@pytest.mark.parametrize(("name", "types", "attrs"), CASES)
def test_value_is_that_of_the_definition(name: str, types: Any, attrs: Any) -> None:
    fn = build(name, types, attrs)
    args = draw(fn, np.random.default_rng(1))
    if name == "guard":
        return
    got, *_ = interpret(fn, args)
    want = by_loops(name, args, attrs, fn.results[0].type)
    assert got.dtype == want.dtype
    close(got, want, 1e-14 if "fft" not in name else 1e-5 if want.dtype == np.float32 else 1e-13)


@pytest.mark.parametrize(("name", "types", "attrs"), SMOOTH)
def test_f32_follows_f64(name: str, types: Any, attrs: Any) -> None:
    narrow, wide = vjp(build(name, types, attrs, f32=True)), vjp(build(name, types, attrs))
    rng = np.random.default_rng(2)
    args = draw(build(name, types, attrs, f32=True), rng)
    args.append(rng.uniform(-1, 1, narrow.results[0].type.shape).astype(np.float32))
    for got, want in zip(interpret(narrow, args), interpret(wide, args), strict=True):
        if want.dtype == np.float64:
            assert got.dtype == np.float32
            close(got, want, 3e-5)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.name)
def test_entry_is_complete(entry: Any) -> None:
    assert entry.doc
    assert entry.samples.cases or entry.infer_regions
    assert entry.infer_regions or entry.nondifferentiable or entry.vjp
    assert entry.infer_regions or entry.nondifferentiable or entry.jvp or entry.linear


# -- derivatives --------------------------------------------------------------------------


def check_derivatives(fn: Function, args: list[np.ndarray], tol: float = 1e-6) -> None:
    """Reverse = transposed forward = central differences, for all real parameters."""
    rng = np.random.default_rng(3)
    wrt = [k for k, p in enumerate(fn.params) if p.type.dtype.kind == "f"]
    outs = [k for k, r in enumerate(fn.results) if r.type.dtype.kind == "f"]
    n = len(fn.results)
    tangents = [rng.uniform(-1, 1, fn.params[k].type.shape) for k in wrt]
    seeds = [rng.uniform(-1, 1, fn.results[k].type.shape) for k in outs]

    forward = interpret(verify(jvp(fn, wrt)), [*args, *tangents])[n:]
    reverse = interpret(verify(vjp(fn, wrt, outs)), [*args, *seeds])[n:]
    by_jvp = sum(np.sum(s * t) for s, t in zip(seeds, forward, strict=True))
    by_vjp = sum(np.sum(ct * t) for ct, t in zip(reverse, tangents, strict=True))
    close(by_vjp, by_jvp, 1e-12)

    h = 1e-5
    moved = [list(args), list(args)]
    for k, t in zip(wrt, tangents):
        moved[0][k], moved[1][k] = args[k] + h * t, args[k] - h * t
    up, down = (interpret(fn, m) for m in moved)
    for k, t in zip(outs, forward, strict=True):
        close(t, (up[k] - down[k]) / (2 * h), tol)


@pytest.mark.parametrize(("name", "types", "attrs"), SMOOTH)
def test_first_derivatives(name: str, types: Any, attrs: Any) -> None:
    fn = build(name, types, attrs)
    check_derivatives(fn, draw(fn, np.random.default_rng(4)))


@pytest.mark.parametrize(("name", "types", "attrs"), SMOOTH)
@pytest.mark.parametrize("mode", ["vjp", "jvp"])
def test_second_derivatives(name: str, types: Any, attrs: Any, mode: str) -> None:
    """The vjp (jvp) of the op is a function whose derivatives are checked in turn."""
    fn = build(name, types, attrs)
    rng = np.random.default_rng(5)
    args = draw(fn, rng)
    once = (vjp if mode == "vjp" else jvp)(fn)
    args += [rng.uniform(-1, 1, p.type.shape) for p in once.params[len(args) :]]
    check_derivatives(once, args)


def reduction(kind: str, n: int) -> Function:
    b = Builder()
    x = b.param(Type(F64, (n,)), "x")
    return b.function(kind, [b.reduce(kind, x, [0])])


def gradient(fn: Function, *args: Any) -> np.ndarray:
    return interpret(vjp(fn, [0], seeds=False), list(args))[1]


def hessian(fn: Function, x: np.ndarray) -> np.ndarray:
    """Rows by reverse over reverse."""
    g = vjp(fn, [0], seeds=False)
    gg = vjp(g, [0], [1])
    return np.array([interpret(gg, [x, row])[2] for row in np.eye(len(x))])


@pytest.mark.parametrize(
    ("x", "want"),
    [
        ([0.0, 2.0, 3.0], [6.0, 0.0, 0.0]),
        ([0.0, 2.0, 0.0], [0.0, 0.0, 0.0]),
        ([1.0, 2.0, 3.0, 4.0, 5.0], [120.0, 60.0, 40.0, 30.0, 24.0]),
        ([5.0], [1.0]),
        ([np.inf, 0.5], [0.5, np.inf]),
    ],
)
def test_gradient_of_a_product(x: list[float], want: list[float]) -> None:
    np.testing.assert_array_equal(gradient(reduction("prod", len(x)), x), want)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8])
def test_hessian_of_a_product_with_zeros(n: int) -> None:
    x = np.arange(n, dtype=float)  # one zero
    want = np.array(
        [[0.0 if i == j else np.prod(np.delete(x, [i, j])) for j in range(n)] for i in range(n)]
    )
    np.testing.assert_array_equal(hessian(reduction("prod", n), x), want)


def test_third_derivative_of_a_product_of_zeros() -> None:
    fn = reduction("prod", 3)
    for order in range(3):  # ∂³/∂x0∂x1∂x2 of x0 x1 x2 is 1, also where all are 0
        pullback = vjp(fn, [0])
        b = Builder()
        x = b.param(fn.params[0].type)
        seed = b.constant(np.eye(3)[order - 1] if order else 1.0, fn.results[0].type)
        fn = b.function("d", [b.inline(pullback, [x, seed])[-1]])
    np.testing.assert_array_equal(interpret(fn, [np.zeros(3)])[0], [0.0, 0.0, 1.0])


def test_gradient_size_of_a_product_is_logarithmic() -> None:
    sizes = [len(vjp(reduction("prod", 2**k), seeds=False).ops) for k in (4, 8, 12)]
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0]


@pytest.mark.parametrize(
    ("kind", "x", "want"),
    [
        ("max", [1.0, 3.0, 2.0], [0.0, 1.0, 0.0]),
        ("max", [1.0, 1.0, 0.0], [0.5, 0.5, 0.0]),
        ("max", [2.0, 2.0, 2.0, 2.0], [0.25] * 4),
        ("min", [0.0, -0.0, 1.0], [0.5, 0.5, 0.0]),
        ("max", [np.inf, 1.0], [1.0, 0.0]),
        ("max", [-np.inf, -np.inf], [0.5, 0.5]),
    ],
)
def test_ties_share_evenly(kind: str, x: list[float], want: list[float]) -> None:
    np.testing.assert_array_equal(gradient(reduction(kind, len(x)), x), want)


def test_maximum_of_copies_has_the_derivatives_of_the_original() -> None:
    b = Builder()
    x = b.param(Type(F64), "x")
    cube = b.mul(b.mul(x, x), x)
    z = b.reduce("max", b.broadcast(cube, [3], []), [0])
    fn = b.function("f", [z])
    values = []
    for _ in range(3):
        fn = vjp(fn, [0], [len(fn.results) - 1], seeds=False)
        values.append(float(interpret(fn, [2.0])[-1]))
    assert values == [12.0, 12.0, 6.0]


def test_maximum_propagates_nan_and_argmax_finds_it() -> None:
    b = Builder()
    x = b.param(Type(F64, (4,)), "x")
    results = [b.reduce("max", x, [0]), b.reduce("min", x, [0]), b.argmax(x, 0), b.argmin(x, 0)]
    fn = b.function("f", results)
    top, bottom, first, least = interpret(fn, [[1.0, np.nan, 5.0, np.nan]])
    assert np.isnan(top) and np.isnan(bottom)
    assert (first, least) == (1, 1)


def test_masked_product_is_not_poisoned() -> None:
    """where(c, prod(x), 0) with an infinite factor and c False: the gradient is 0."""
    b = Builder()
    x, c = b.param(Type(F64, (3,)), "x"), b.param(Type(BOOL), "c")
    z = b.select(c, b.reduce("prod", x, [0]), b.zeros(Type(F64)))
    got = gradient(b.function("f", [z]), [np.inf, 0.0, 2.0], False)
    np.testing.assert_array_equal(got, [0.0, 0.0, 0.0])


def test_concatenation_keeps_the_sign_of_zero() -> None:
    b = Builder()
    x = b.param(Type(F64, (1,)), "x")
    fn = b.function("f", [b.concat([x, x], 0), b.pad(x, [1], [0])])
    both, padded = interpret(fn, [[-0.0]])
    assert np.signbit(both).tolist() == [True, True]
    assert np.signbit(padded).tolist() == [False, True]


def test_gather_refuses_negative_indices() -> None:
    b = Builder()
    x, i = b.param(Type(F64, (3,)), "x"), b.param(Type(I64, (1,)), "i")
    fn = b.function("f", [b.gather(x, [i], [0])])
    for index in (-1, 3):
        with pytest.raises(IndexError, match="out of range for axis 0 with size 3"):
            interpret(fn, [[1.0, 2.0, 3.0], [index]])


def test_elements_read_one_by_one_become_one_place() -> None:
    sizes = []
    for n in (10, 20, 40):
        b = Builder()
        x = b.param(Type(F64, (n,)), "x")
        parts = [b.reshape(b.slice(x, [k], [1]), []) for k in range(n)]
        total = parts[0]
        for p in parts[1:]:
            total = b.mul(total, p)
        grad = vjp(b.function("f", [total]), seeds=False)
        assert sum(op.name == "place" for op in grad.ops) == 1
        sizes.append(len(grad.ops))
    assert sizes[2] - sizes[1] == 2 * (sizes[1] - sizes[0])


# -- refused types ------------------------------------------------------------------------

DOT = {"contract": ((1,), (0,)), "batch": ((), ())}
REFUSED: list[tuple[str, tuple[str, ...], dict[str, Any], type[Exception], str]] = [
    ("constant", (), {"type": Type(F64), "value": 1},
     TypeError, r"must be a float or Dense, got 1 \(int\)"),
    ("constant", (), {"type": Type(I64), "value": 2**63}, ValueError, "does not fit"),
    ("constant", (), {"type": Type(F64)}, TypeError, "attribute 'value' is missing"),
    ("iota", (), {"type": Type(BOOL, (2,)), "axis": 0}, TypeError, "number dtype"),
    ("iota", (), {"type": Type(I64, (2,)), "axis": 1}, ValueError, "axis 1 is out of bounds"),
    ("reshape", ("f64[2,3]",), {"shape": (4,)},
     ValueError, "cannot reshape array of size 6 into shape"),
    ("reshape", ("f64[0]",), {"shape": (-1, 0)}, ValueError, "negative dimensions"),
    ("reshape", ("f64[6]",), {"shape": [6]}, TypeError, "must be a tuple of ints"),
    ("transpose", ("f64[2,3]",), {"perm": (0, 0)}, ValueError, "not a permutation"),
    ("broadcast", ("f64[2]",), {"shape": (3, 2), "dims": (0,)}, ValueError, "does not fit axes"),
    ("broadcast", ("f64[2,2]",), {"shape": (2, 2), "dims": (1, 0)}, ValueError, "increasing"),
    ("slice", ("f64[3]",), {"start": (1,), "size": (3,), "step": (1,)},
     ValueError, "elements 1, …, 3 are out of bounds"),
    ("slice", ("f64[3]",), {"start": (0,), "size": (2,), "step": (0,)},
     ValueError, "step of axis 0 is zero"),
    ("slice", ("f64[3]",), {"start": (), "size": (), "step": ()},
     ValueError, "must have 1 entries"),
    ("place", ("f64[3]",), {"shape": (3,), "at": (((1,), (1,)),)}, ValueError, "out of bounds"),
    ("place", ("f64[1]", "f32[1]"), {"shape": (3,), "at": (((1,), (1,)),) * 2},
     TypeError, "one dtype"),
    ("place", ("f64[1]",), {"shape": (3,), "at": ()}, TypeError, "one \\(start, step\\) for each"),
    ("reduce_sum", ("f64[3]",), {"axes": ()}, ValueError, "is empty"),
    ("reduce_sum", ("f64[3]",), {"axes": (1,)}, ValueError, "axes must be increasing"),
    ("reduce_sum", ("bool[3]",), {"axes": (0,)}, TypeError, "kind integer or real or complex"),
    ("reduce_any", ("f64[3]",), {"axes": (0,)}, TypeError, "kind bool"),
    ("reduce_max", ("f64[0]",), {"axes": (0,)},
     ValueError, "^zero-size array to reduction operation maximum which has no identity$"),
    ("reduce_min", ("f64[0,2]",), {"axes": (0,)}, ValueError, "minimum which has no identity"),
    ("reduce_max", ("c128[2]",), {"axes": (0,)}, TypeError, "integer or real"),
    ("argmax", ("f64[0]",), {"axis": 0},
     ValueError, "^attempt to get argmax of an empty sequence$"),
    ("argmin", ("f64[2]",), {"axis": -1},
     ValueError, "axis -1 is out of bounds for array of dimension 1"),
    ("fft", ("f64[4]",), {"axis": 0, "inverse": False}, ValueError, "real and imaginary parts"),
    ("fft", ("f64[4,2]",), {"axis": 1, "inverse": False}, ValueError, "out of bounds"),
    ("rfft", ("i64[4]",), {"axis": 0}, TypeError, "kind real"),
    ("rfft", ("f64[0]",), {"axis": 0}, ValueError, "is empty"),
    ("irfft", ("f64[3,2]",), {"axis": 0, "n": 6}, ValueError, "3 terms along axis 0"),
    ("cumsum", ("f64[]",), {"axis": 0, "reverse": False}, ValueError, "out of bounds"),
    ("sort", ("f64[3]",), {"axis": 1}, ValueError, "out of bounds"),
    ("custom", ("f64[]",), {"mode": "none", "n_args": 1, "name": "f"}, TypeError, "no regions"),
    ("searchsorted", ("f64[3]", "i64[2]"), {"right": False}, TypeError, "one dtype"),
    ("searchsorted", ("f64[3,2]", "f64[2]"), {"right": False}, ValueError, "1-d"),
    ("gather", ("f64[3]", "f64[2]"), {"axes": (0,)},
     TypeError, "index: needs an operand of kind integer"),
    ("gather", ("f64[3]", "i64[2]"), {"axes": (0, 1)}, ValueError, "axes must be"),
    ("gather", ("f64[3,3]", "i64[2]", "i64[3]"), {"axes": (0, 1)}, ValueError, "one shape"),
    ("scatter_add", ("f64[3]", "f64[3]", "i64[2]"), {"axes": (0,)},
     TypeError, r"expected f64\[2\]"),
    ("dot", ("f64[2,3]", "f64[4]"), DOT, ValueError, "size 3 is different from 4"),
    ("dot", ("f64[2,3]", "f32[3]"), DOT, TypeError, "one dtype"),
    ("dot", ("f64[3]", "f64[3]"), DOT, ValueError, "not distinct axes"),
    ("guard", ("bool[2]",), {"expected": True, "message": ""}, ValueError, "0-d"),
    ("guard", ("bool[]",), {"expected": 1, "message": ""}, TypeError, "does not fit"),
    ("call", ("f64[]",), {"name": "f"}, TypeError, "one region"),
    ("cond", ("bool[]",), {}, TypeError, "no regions"),
    ("scan", (), {"length": 1, "n_carry": 0, "n_xs": 0, "reverse": False}, TypeError, "no regions"),
    ("while", (), {"n_carry": (0,), "reads": ((),), "reverse": (False,)}, TypeError, "no regions"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "types", "attrs", "error", "message"), REFUSED)
def test_refused(name: str, types: Any, attrs: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        OPS[name].infer(tuple(map(parse_type, types)), attrs)


def test_every_op_that_is_not_elementwise_refuses_something() -> None:
    assert {row[0] for row in REFUSED} | {"reduce_prod", "reduce_all"} == {e.name for e in ENTRIES}


def test_call_checks_its_arguments_against_the_region() -> None:
    inner = Builder()
    p = inner.param(Type(F64, (2,)), "p")
    fn = inner.function("inner", [inner.reduce_sum(p, [0])])
    b = Builder()
    with pytest.raises(TypeError, match=r"inner takes"):
        b.call(fn, [b.param(Type(F64, (3,)))])
    x = b.param(Type(F64, (2,)))
    (z,) = b.call(fn, [x])
    outer = Function("f", [x], b.ops, [z])
    assert z.type is Type(F64)
    np.testing.assert_array_equal(gradient(outer, [1.0, 2.0]), [1.0, 1.0])
