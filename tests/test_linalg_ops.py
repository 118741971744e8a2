"""Decompositions in the IR: native code, the reference and NumPy agree; derivatives to order 2.

Operands are drawn per operation: well-conditioned, positive definite, triangular, or the
factors of another operand.  Derivatives are checked against central differences through
functions that are what they claim to be for any operand (``a`` enters cholesky and eigh
symmetrised, since both read one triangle).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tapec.codegen import compile_kernel, engine, libraries
from tapec.codegen.objects import exported
from tapec.ir import F32, F64, OPS, Builder, Function, Type, Value, interpret, jvp, verify, vjp
from tapec.ir.matrix import product, symmetrized, transposed
from tapec.ir.passes import simplify

Array = np.ndarray[Any, Any]
Emit = Callable[[Builder, Sequence[Value]], Sequence[Value]]


def op(name: str, **attrs: Any) -> Emit:
    return lambda b, xs: [
        r for r in b.emit_op(name, tuple(xs), attrs).results if r.type.dtype.is_inexact
    ]


def of_symmetric(name: str) -> Emit:
    def emit(b: Builder, xs: Sequence[Value]) -> Sequence[Value]:
        results = b.emit_op(name, (symmetrized(b, xs[0]),)).results
        return [r for r in results if r.type.dtype.is_inexact]

    return emit


def eigen(b: Builder, xs: Sequence[Value]) -> Sequence[Value]:
    """Values, and the squares of the vectors' elements: those have no sign to choose."""
    w, vt, _ = b.emit_op("eigh", (symmetrized(b, xs[0]),)).results
    return [w, b.mul(vt, vt)]


def singular(full: bool) -> Emit:
    def emit(b: Builder, xs: Sequence[Value]) -> Sequence[Value]:
        u, s, vt, _ = b.emit_op("svd", (xs[0],), {"full": full}).results
        k = s.type.shape[-1]
        lead = s.type.ndim - 1
        out = [s]
        for x in (u, transposed(b, vt)):
            n = x.type.shape[-1]
            start, size = [0] * (lead + 2), list(x.type.shape)
            size[-1] = k
            first = b.slice(x, start, size)
            out.append(b.mul(first, first))
            if n > k:  # the projector on the other columns
                start[-1], size[-1] = k, n - k
                rest = b.slice(x, start, size)
                out.append(product(b, rest, rest, ty=True))
        return out

    return emit


def matrix_function(name: str) -> Emit:
    """sin of the spectrum, and a function of a vector beside it."""

    def emit(b: Builder, xs: Sequence[Value]) -> Sequence[Value]:
        a = symmetrized(b, xs[0]) if name == "eigh" else xs[0]
        attrs = {} if name == "eigh" else {"full": False}
        *parts, _ = b.emit_op(name, (a,), attrs).results
        w = parts[0 if name == "eigh" else 1]
        y, slope = b.sin(w), b.cos(w)
        return [
            b.emit(
                f"{name}_function", (a, *parts, b.mul(y, y), b.mul(b.like(2, y), b.mul(y, slope)))
            )
        ]

    return emit


def from_factors(name: str, **attrs: Any) -> Emit:
    def emit(b: Builder, xs: Sequence[Value]) -> Sequence[Value]:
        lut, pivots, _ = b.emit_op("lu", (xs[0],)).results
        return b.emit_op(name, (xs[0], lut, pivots, *xs[1:]), attrs).results

    return emit


def general(*shape: int) -> Callable[[np.random.Generator], Array]:
    def draw(rng: np.random.Generator) -> Array:
        a = rng.uniform(-1, 1, shape)
        if shape[-1] == shape[-2]:
            a += 2 * np.eye(shape[-1])[:, ::-1]  # rows have to be exchanged
        return a

    return draw


def definite(*shape: int) -> Callable[[np.random.Generator], Array]:
    def draw(rng: np.random.Generator) -> Array:
        a = rng.uniform(-1, 1, shape)
        return np.asarray(a @ np.swapaxes(a, -1, -2) + np.diag(np.arange(1.0, shape[-1] + 1)))

    return draw


def triangular(*shape: int) -> Callable[[np.random.Generator], Array]:
    return lambda rng: rng.uniform(-1, 1, shape) + 2 * np.eye(shape[-1])


CASES: dict[str, tuple[Emit, list[Any]]] = {}
for _n in (1, 2, 3, 4, 6):
    CASES[f"cholesky-{_n}"] = of_symmetric("cholesky"), [definite(_n, _n)]
    CASES[f"lu-{_n}"] = op("lu"), [general(_n, _n)]
    CASES[f"solve-{_n}"] = from_factors("lu_solve", trans=False), [general(_n, _n), general(_n, 1)]
    CASES[f"det-{_n}"] = from_factors("det"), [general(_n, _n)]
    CASES[f"inverse-{_n}"] = from_factors("lu_inverse"), [general(_n, _n)]
    CASES[f"eigh-{_n}"] = eigen, [definite(_n, _n)]
    CASES[f"qr-{_n}"] = op("qr"), [general(_n, _n)]
    CASES[f"svd-{_n}"] = singular(False), [general(_n, _n)]
CASES |= {
    "cholesky-batch": (of_symmetric("cholesky"), [definite(2, 3, 3)]),
    "cholesky-2-batch": (of_symmetric("cholesky"), [definite(3, 2, 2)]),
    "cholesky_vjp": (op("cholesky_vjp"), [lambda r: np.tril(triangular(5, 5)(r)), general(5, 5)]),
    "lu-batch": (op("lu"), [general(2, 2, 4, 4)]),
    "solve-many": (from_factors("lu_solve", trans=False), [general(4, 4), general(4, 3)]),
    "solve-trans": (from_factors("lu_solve", trans=True), [general(4, 4), general(4, 1)]),
    "solve-trans-many": (from_factors("lu_solve", trans=True), [general(5, 5), general(5, 2)]),
    "solve-batch": (from_factors("lu_solve", trans=False), [general(2, 3, 3), general(2, 3, 2)]),
    "solve-batch-5": (from_factors("lu_solve", trans=True), [general(2, 5, 5), general(2, 5, 2)]),
    "det-batch": (from_factors("det"), [general(3, 5, 5)]),
    "slogdet": (from_factors("slogdet"), [general(5, 5)]),
    "slogdet-batch": (from_factors("slogdet"), [general(2, 3, 3)]),
    "inverse-batch": (from_factors("lu_inverse"), [general(2, 5, 5)]),
    "cofactor": (op("cofactor"), [general(4, 4)]),
    "cofactor_jvp": (op("cofactor_jvp"), [general(4, 4), general(4, 4)]),
    "eigh-batch": (eigen, [definite(2, 3, 3)]),
    "svd-tall": (singular(False), [general(5, 3)]),
    "svd-wide": (singular(False), [general(2, 4)]),
    "svd-full-tall": (singular(True), [general(5, 3)]),
    "svd-full-wide": (singular(True), [general(2, 4)]),
    "svd-batch": (singular(False), [general(2, 3, 3)]),
    "pinv": (op("pinv", rcond=1e-15), [general(3, 3)]),
    "pinv-tall": (op("pinv", rcond=1e-15), [general(5, 3)]),
    "pinv-wide": (op("pinv", rcond=1e-15), [general(2, 4)]),
    "pinv-batch": (op("pinv", rcond=1e-15), [general(2, 4, 3)]),
    "eigh_function": (matrix_function("eigh"), [definite(4, 4)]),
    "eigh_function-batch": (matrix_function("eigh"), [definite(2, 3, 3)]),
    "svd_function": (matrix_function("svd"), [general(4, 4)]),
    "svd_function-tall": (matrix_function("svd"), [general(5, 3)]),
    "svd_function-wide": (matrix_function("svd"), [general(2, 4)]),
    "svd_function-batch": (matrix_function("svd"), [general(2, 3, 3)]),
    "qr-tall": (op("qr"), [general(5, 3)]),
    "qr-batch": (op("qr"), [general(2, 4, 3)]),
}
for _lower in (True, False):
    for _trans in (True, False):
        for _unit in (True, False):
            for _shape in ((), (2,)):
                for _k in (1, 3):
                    _name = f"triangular-{_lower:d}{_trans:d}{_unit:d}-{len(_shape)}-{_k}"
                    CASES[_name] = (
                        op("triangular_solve", lower=_lower, trans=_trans, unit=_unit),
                        [triangular(*_shape, 4, 4), general(*_shape, 4, _k)],
                    )


def build(name: str, dtype: Any = F64) -> tuple[Function, list[Array]]:
    emit, draws = CASES[name]
    rng = np.random.default_rng(7)
    arrays: list[Array] = [draw(rng).astype(dtype.np) for draw in draws]
    b = Builder()
    xs = [b.param(Type(dtype, a.shape), "abc"[k]) for k, a in enumerate(arrays)]
    return verify(b.function("f", emit(b, xs))), arrays


def close(got: Sequence[Any], want: Sequence[Any], tolerance: float) -> None:
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape
        np.testing.assert_allclose(g, w, rtol=tolerance, atol=tolerance)


def native(fn: Function) -> Callable[[Sequence[Any]], list[Array]]:
    """``fn`` compiled, called with plain pointers; the workspace starts as garbage."""
    source = compile_kernel(fn)
    library = engine.compile_module(
        exported(source.text), libraries.resolve(source.symbols), opt=0, exports=["kernel"]
    )
    pointer = ctypes.c_void_p
    entry = ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer, pointer)(library.address("kernel"))

    def call(arrays: Sequence[Any]) -> list[Array]:
        ins = [np.ascontiguousarray(a) for a in arrays]
        outs = [np.full(r.type.shape, 77, r.type.dtype.np) for r in fn.results]
        work = np.full(source.workspace_bytes + 128, 0xFF, np.uint8)
        p_in = (pointer * (len(ins) + 1))(*[a.ctypes.data for a in ins])
        p_out = (pointer * (len(outs) + 1))(*[a.ctypes.data for a in outs])
        at = (work.ctypes.data + 63) // 64 * 64
        code = entry(ctypes.addressof(p_in), ctypes.addressof(p_out), at)
        assert not code, f"guard {code} failed"
        return outs

    call.library = library  # type: ignore[attr-defined]
    return call


# -- values -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [F64, F32], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_native(name: str, dtype: Any) -> None:
    """The value and its gradient, native against interpreted."""
    fn, arrays = build(name, dtype)
    derived = simplify(vjp(fn))
    rng = np.random.default_rng(3)
    seeds = [rng.uniform(-1, 1, r.type.shape).astype(r.type.dtype.np) for r in fn.results]
    tolerance = 1e-10 if dtype is F64 else 2e-3
    close(native(fn)(arrays), interpret(fn, arrays), tolerance)
    close(native(derived)([*arrays, *seeds]), interpret(derived, [*arrays, *seeds]), tolerance)


# -- derivatives --------------------------------------------------------------------------


def weighted(fn: Function, outputs: int) -> Function:
    """A scalar of all results: their products with the last parameters."""
    b = Builder()
    params = [b.param(p.type) for p in fn.params]
    results = b.inline(fn, params)[:outputs]
    total: Value | None = None
    for r in results:
        weights = b.param(r.type)
        axes = tuple(range(r.type.ndim))
        term = b.reduce_sum(b.mul(r, weights), axes)
        total = term if total is None else b.add(total, term)
    assert total is not None
    return b.function("scalar", [total])


def differences(fn: Function, arrays: list[Array], k: int) -> Array:
    """Central differences of a scalar function, extrapolated once."""
    out = np.zeros(arrays[k].shape)
    for i in np.ndindex(out.shape):
        slopes = []
        for h in (2e-3, 1e-3):
            moved = [[a.copy() for a in arrays] for _ in range(2)]
            moved[0][k][i] += h
            moved[1][k][i] -= h
            up, down = (interpret(fn, m)[0] for m in moved)
            slopes.append((up - down) / (2 * h))
        out[i] = (4 * slopes[1] - slopes[0]) / 3
    return out


def scalar_of(name: str) -> tuple[Function, list[Array], int]:
    fn, arrays = build(name)
    scalar = weighted(fn, len(fn.results))
    rng = np.random.default_rng(5)
    weights = [rng.uniform(-1, 1, p.type.shape) for p in scalar.params[len(arrays) :]]
    return scalar, [*arrays, *weights], len(arrays)


@pytest.mark.parametrize("name", CASES)
def test_first_derivative(name: str) -> None:
    fn, arrays, n = scalar_of(name)
    wrt = list(range(n))
    gradient = verify(vjp(fn, wrt, seeds=False))
    found = interpret(gradient, arrays)[1:]
    for k in wrt:
        close([found[k]], [differences(fn, arrays, k)], 1e-7)
    rng = np.random.default_rng(9)
    directions = [rng.uniform(-1, 1, a.shape) for a in arrays[:n]]
    forward = interpret(verify(jvp(fn, wrt)), [*arrays, *directions])[1]
    close([forward], [np.asarray(sum(np.sum(g * d) for g, d in zip(found, directions)))], 1e-9)


SECOND = [n for n in CASES if not n.endswith(("-1", "-6")) or "triangular" not in n]


@pytest.mark.parametrize("name", SECOND)
def test_second_derivative(name: str) -> None:
    """Forward over reverse and reverse over reverse against differences of the gradient."""
    fn, arrays, n = scalar_of(name)
    wrt = list(range(n))
    gradient = simplify(vjp(fn, wrt, seeds=False))
    b = Builder()
    params = [b.param(p.type) for p in fn.params]
    directions = [b.param(fn.params[k].type) for k in wrt]
    total = None
    for g, d in zip(b.inline(gradient, params)[1:], directions):
        term = b.reduce_sum(b.mul(g, d), tuple(range(g.type.ndim)))
        total = term if total is None else b.add(total, term)
    along = b.function("along", [total])  # type: ignore[list-item]
    rng = np.random.default_rng(9)
    given: list[Array] = [*arrays, *[rng.uniform(-1, 1, a.shape) for a in arrays[:n]]]
    reverse = interpret(simplify(vjp(along, wrt, seeds=False)), given)[1:]
    forward = interpret(simplify(jvp(gradient, wrt)), given)[-n:]
    close(forward, reverse, 1e-8)
    for k in wrt:
        close([reverse[k]], [differences(along, given, k)], 2e-6)


# -- batching -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in CASES if "batch" not in n])
def test_batch(name: str) -> None:
    from tapec.ir.batch import batch

    fn, arrays = build(name)
    derived = vjp(fn)
    rng = np.random.default_rng(3)
    given = arrays + [rng.uniform(-1, 1, p.type.shape) for p in derived.params[len(arrays) :]]
    stacked = [np.stack([a, a * 1.25, a]) for a in given]
    got = interpret(verify(batch(derived, [0] * len(given), 3)), stacked)
    for lane in range(3):
        want = interpret(derived, [a[lane] for a in stacked])
        close([g[lane] for g in got], want, 1e-10)


# -- what is refused, and singular cases -------------------------------------------------------


def test_ok_flags() -> None:
    singular = np.array([[1.0, 2.0], [2.0, 4.0]])
    for name, bad in (("cholesky", -singular), ("lu", singular)):
        b = Builder()
        fn = b.function("f", [b.emit_op(name, (b.param(Type(F64, (2, 2))),)).results[-1]])
        assert not interpret(fn, [bad])[0]
        assert interpret(fn, [np.eye(2)])[0]


def test_refused_types() -> None:
    f = Type(F64, (3, 3))
    for name, types, text in (
        ("cholesky", (Type(F64, (2, 3)),), "square"),
        ("cholesky", (Type(F64, (3,)),), "2 dimensions"),
        ("qr", (Type(F64, (2, 3)),), "rows"),
        ("lu_solve", (f, f, f, f), "factors"),
    ):
        with pytest.raises((TypeError, ValueError), match=text):
            OPS[name].infer(types, {"trans": False})


@pytest.mark.parametrize("shape", [(7, 7), (5, 8), (8, 5), (3, 6, 6)])
def test_diagonal_written_in_a_nest(shape: tuple[int, ...]) -> None:
    """The derivative of taking a diagonal, in native code: no array of zeros is filled."""
    from tapec.codegen import make_program
    from tapec.ir.matrix import diagonal

    b = Builder()
    x = b.param(Type(F64, shape))
    diag = diagonal(b, x)
    fn = simplify(vjp(b.function("f", [b.mul(diag, diag)])))
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=p.type.shape) for p in fn.params]
    close(native(fn)(arrays), interpret(fn, arrays), 1e-14)
    assert not any(o.name == "place" for o in make_program(fn).fn.ops)
