"""Complex numbers: values as NumPy's, derivatives as mpmath's, conventions, transforms."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest

import tapec
from tapec.errors import UnsupportedError

ANY: Any = np
Z = np.array([0.3 + 0.4j, 1j, 2.0, -0.7 - 1.1j])
X = np.array([0.5, 1.5, -2.0, 3.0])
#: where a formula may lose digits or take the wrong branch
HARD = np.array(
    [1 + 1j, 1j, -1j, -2 + 0j, complex(-2, -0.0), 2 + 0j, complex(2, -0.0), 0.5 + 0j, -0.5 + 0j,
     0.6 + 0.8j, -0.6 + 0.8j, 1e5 + 1e5j, 0.5 + 30j, 30 + 0.5j, 1e-3 - 1e-3j, -1 + 1j, 3 - 4j]
)  # fmt: skip

ELEMENTARY: dict[str, Any] = {
    "exp": mp.exp, "log": mp.log, "sqrt": mp.sqrt, "sin": mp.sin, "cos": mp.cos, "tan": mp.tan,
    "sinh": mp.sinh, "cosh": mp.cosh, "tanh": mp.tanh, "arcsin": mp.asin, "arccos": mp.acos,
    "arctan": mp.atan, "arcsinh": mp.asinh, "arccosh": mp.acosh, "arctanh": mp.atanh,
    "log1p": lambda z: mp.log(1 + z), "expm1": lambda z: mp.exp(z) - 1,
    "log2": lambda z: mp.log(z) / mp.log(2), "log10": lambda z: mp.log(z) / mp.log(10),
    "exp2": lambda z: mp.mpf(2) ** z, "square": lambda z: z * z, "reciprocal": lambda z: 1 / z,
}  # fmt: skip


@pytest.mark.parametrize("name", ELEMENTARY)
def test_elementary_functions_are_numpys(name: str) -> None:
    f = getattr(np, name)
    points = np.concatenate([Z, HARD])
    with np.errstate(all="ignore"):
        want = f(points)
    got = tapec.jit(lambda z: f(z))(points)
    assert got.dtype == np.complex128
    there = np.isfinite(want)
    assert np.array_equal(there, np.isfinite(got)) or name in ("arctan", "arctanh")
    np.testing.assert_allclose(got[there], want[there], rtol=2e-13)
    # the sign of a part that is zero tells the side of a cut
    near = tapec.jit(lambda z: f(z))(points.astype(np.complex64))
    assert near.dtype == np.complex64


@pytest.mark.parametrize("name", ELEMENTARY)
def test_elementary_functions_have_the_derivatives_of_mpmath(name: str) -> None:
    f, exact = getattr(np, name), ELEMENTARY[name]
    points = [0.3 + 0.4j, -0.7 - 1.1j, 1.2 - 0.5j, 1 + 1j, -1 + 1j]
    first = tapec.grad(lambda z: f(z), holomorphic=True)
    second = tapec.grad(first, holomorphic=True)
    with mp.workdps(30):
        for z in points:
            for g, n in ((first, 1), (second, 2)):
                want = complex(mp.diff(exact, mp.mpc(z), n))
                assert abs(g(z) - want) <= 1e-11 * (1 + abs(want)), (z, n)
    value, tangent = tapec.jvp(lambda z: f(z), (points[1],), (1j,))
    assert abs(tangent - 1j * first(points[1])) < 1e-12 * (1 + abs(tangent))
    assert abs(value - complex(exact(mp.mpc(points[1])))) < 1e-13 * (1 + abs(value))


def test_on_a_cut_the_sign_of_zero_tells_the_side() -> None:
    root = tapec.value_and_grad(np.sqrt, holomorphic=True)
    for z in (complex(-4.0, 0.0), complex(-4.0, -0.0)):
        value, slope = root(z)
        assert value == np.sqrt(z)
        assert abs(slope - 0.5 / np.sqrt(z)) < 1e-15
    log = tapec.value_and_grad(np.log, holomorphic=True)
    value, slope = log(complex(-1.0, -0.0))
    assert value == complex(0, -np.pi) and slope == -1


def test_signs_of_zeros_on_cuts_are_numpys() -> None:
    """Arithmetic with real operands, then a function that looks at the sign of the zero."""
    z = np.array([3 + 0j, 0.25 + 0j, complex(-3, 0.0), complex(-3, -0.0)])
    x = np.array([2.0, -1.5, 4.0, 1.0])
    forms: list[Callable[..., Any]] = [
        lambda z, x: 1 - z**2, lambda z, x: -2.0 * z, lambda z, x: z * -0.5, lambda z, x: -z,
        lambda z, x: 3.0 * z, lambda z, x: x - z, lambda z, x: z - x, lambda z, x: x * z,
        lambda z, x: -5 + z, lambda z, x: z + x, lambda z, x: 1 / z, lambda z, x: -1.0 / z,
        lambda z, x: (1 + 0j) - z, lambda z, x: z / -2, lambda z, x: z * (-1 + 0j),
        lambda z, x: x.astype(complex) - 5,
    ]  # fmt: skip
    for f in forms:
        want = np.sqrt(f(z, x))
        np.testing.assert_allclose(
            tapec.jit(lambda z, x, f=f: np.sqrt(f(z, x)))(z, x), want, rtol=1e-15, atol=1e-300
        )
        cut = (f(z, x).real < 0) & (f(z, x).imag == 0)
        got = tapec.jit(lambda z, x, f=f: f(z, x))(z, x)
        np.testing.assert_array_equal(np.signbit(got.imag[cut]), np.signbit(f(z, x).imag[cut]))
    slope = tapec.grad(lambda z: np.sqrt(1 - z**2), holomorphic=True)
    assert abs(slope(2 + 0j) - (-2 / np.sqrt(1 - (2 + 0j) ** 2))) < 1e-15


# -- the convention ---------------------------------------------------------------------------


def test_gradient_is_the_direction_of_steepest_ascent() -> None:
    assert abs(tapec.grad(np.abs)(3 + 4j) - (0.6 + 0.8j)) < 1e-15
    w = np.array([1 + 2j, 0.5 - 1j])
    z = np.array([0.3 + 0.1j, -1 + 1j])
    # L = Re Σ w z: dL/dx + i dL/dy = conj w
    np.testing.assert_allclose(tapec.grad(lambda z: np.sum(w * z).real)(z), np.conj(w), rtol=1e-15)


def test_modulus_two_ways() -> None:
    z = 1 + 0.5j
    one = tapec.grad(lambda z: np.abs(z))(z)
    other = tapec.grad(lambda z: np.sqrt(z.real**2 + z.imag**2))(z)
    np.testing.assert_allclose([one, other], [z / abs(z)] * 2, rtol=1e-15)


def test_modulus_at_the_origin() -> None:
    g = tapec.grad(lambda z: np.sum(np.abs(z)))(np.array([0j, 3 + 4j]))
    np.testing.assert_allclose(g, [0, 0.6 + 0.8j], rtol=1e-15)
    # |z|² is a polynomial: its Hessian at 0 is 2
    got = tapec.hvp(lambda z: np.sum(np.abs(z) ** 2))(np.zeros(2, complex), np.array([1, 1j]))
    np.testing.assert_array_equal(got, [2, 2j])


def test_real_parameter_complex_middle() -> None:
    g = tapec.grad(lambda t: np.abs(t + 1j * t**2) ** 2)(2.0)
    assert type(g) is float and g == 36.0


def test_phase_has_real_derivatives_of_every_order() -> None:
    f: Any = lambda x: np.exp(1j * x).real  # noqa: E731
    for want in (0.0, -1.0, 0.0, 1.0):
        f = tapec.grad(f)
        assert f(0.0) == want


def test_pullback_takes_complex_cotangents() -> None:
    z, ct = 0.3 + 0.4j, 1 + 2j
    value, pull = tapec.vjp(lambda z: z * z, z)
    assert value == z * z
    np.testing.assert_allclose(pull(ct)[0], np.conj(2 * z) * ct, rtol=1e-15)
    np.testing.assert_allclose(pull(1.0)[0], np.conj(2 * z), rtol=1e-15)
    with pytest.raises(TypeError, match="complex, but the value is real"):
        tapec.vjp(lambda x: x * x, 2.0)[1](1j)


def test_tangents_may_be_real() -> None:
    z = np.array([1 + 1j, 2.0])
    _, along = tapec.jvp(lambda z: z**3, (z,), (np.array([1.0, 0.0]),))
    np.testing.assert_allclose(along, [3 * z[0] ** 2, 0], rtol=1e-15)


# -- holomorphic functions --------------------------------------------------------------------


def rational(z: Any) -> Any:
    return np.exp(z) * np.sin(z) / (1 + z**3)


def test_holomorphic_derivatives() -> None:
    z = 0.3 + 0.4j
    exact = lambda z: mp.exp(z) * mp.sin(z) / (1 + z**3)  # noqa: E731
    f: Any = rational
    with mp.workdps(30):
        for n in (1, 2, 3):
            f = tapec.grad(f, holomorphic=True)
            want = complex(mp.diff(exact, mp.mpc(z), n))
            assert abs(f(z) - want) < 1e-12 * abs(want)
            assert abs(tapec.derivative(rational, n, holomorphic=True)(z) - want) < 1e-12 * abs(
                want
            )
    value, slope = tapec.value_and_grad(rational, holomorphic=True)(z)
    assert abs(value - complex(exact(mp.mpc(z)))) < 1e-15
    assert slope == tapec.grad(rational, holomorphic=True)(z)


def test_holomorphic_jacobian_and_hessian() -> None:
    z = Z[:3]
    jac = tapec.jacobian(lambda z: z**2 * z[0], holomorphic=True)(z)
    want = np.diag(2 * z * z[0])
    want[:, 0] += z**2
    np.testing.assert_allclose(jac, want, rtol=1e-14)
    hess = tapec.hessian(lambda z: np.sum(z**2) * z[0], holomorphic=True)(z)
    want = np.diag([2 * z[0]] * 3)
    want[0, :] += 2 * z
    want[:, 0] += 2 * z
    np.testing.assert_allclose(hess, want, rtol=1e-14)


def test_jacobians_of_real_arguments_or_results() -> None:
    x = np.array([0.0, 1.0])
    np.testing.assert_allclose(
        tapec.jacobian(lambda x: np.exp(1j * x))(x), np.diag(1j * np.exp(1j * x)), rtol=1e-15
    )
    got = tapec.jacobian(lambda d: {"a": np.exp(1j * d["x"]), "b": d["y"] * d["x"]})(
        {"x": x, "y": 2.0}
    )
    np.testing.assert_allclose(got["a"]["x"], np.diag(1j * np.exp(1j * x)), rtol=1e-15)
    np.testing.assert_array_equal(got["b"]["y"], x)
    rows = tapec.jacobian(lambda z: np.abs(z))(Z[:2])
    np.testing.assert_allclose(rows, np.diag(Z[:2] / abs(Z[:2])), rtol=1e-15)


MISTAKES: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: tapec.grad(rational)(0.3j), TypeError, "holomorphic=True"),
    (lambda: tapec.grad(lambda x: x * x, holomorphic=True)(2.0), TypeError, "is not complex"),
    (lambda: tapec.grad(lambda z: z.real, holomorphic=True)(2j), TypeError, "is not complex"),
    (lambda: tapec.jacobian(lambda z: z * z)(Z), TypeError, "holomorphic=True"),
    (lambda: tapec.jacobian(lambda z: abs(z), holomorphic=True)(Z), TypeError, "real values"),
    (lambda: tapec.hessian(lambda z: np.sum(np.abs(z)))(Z), TypeError, "use hvp"),
    (lambda: tapec.derivative(rational)(1j), TypeError, "holomorphic=True"),
    (lambda: tapec.taylor(rational, 1j, 2), TypeError, "give the direction"),
    (lambda: tapec.jit(lambda z: np.floor(z))(Z), TypeError, "floor"),
    (lambda: tapec.jit(lambda z: np.arctan2(z, 1.0))(Z), TypeError, "arctan2"),
    (lambda: tapec.jit(lambda z: np.logaddexp(z, 1.0))(Z), TypeError, "complex"),
    (lambda: tapec.jit(lambda z: np.sort(z))(Z), UnsupportedError, "complex"),
    (lambda: tapec.jit(lambda z: np.max(z))(Z), UnsupportedError, "complex"),
    (lambda: tapec.jit(lambda z: float(z[0]))(Z), TypeError, "real"),
    (lambda: tapec.jit(lambda z: X[z])(Z), IndexError, "indices"),
    (lambda: tapec.jit(lambda z, x: _written(x, z))(Z, X), TypeError, "complex"),
]


def _written(x: Any, z: Any) -> Any:
    x[0] = z[0]
    return x


@pytest.mark.parametrize("case", range(len(MISTAKES)))
def test_mistakes_are_named(case: int) -> None:
    f, error, text = MISTAKES[case]
    with pytest.raises(error, match=text):
        f()


def test_astype_float_warns_as_numpy_does() -> None:
    with pytest.warns(np.exceptions.ComplexWarning):
        got = tapec.jit(lambda z: z.astype(float))(Z)
    np.testing.assert_array_equal(got, Z.real)


# -- NumPy's functions --------------------------------------------------------------------------

W = np.array([[1 + 2j, 0.5, -1j], [2.0, 1 - 1j, 0.3 + 0.1j], [0.2j, 1.5, -2 + 0.5j]])

FUNCTIONS: list[Callable[..., Any]] = [
    lambda z: z + 1, lambda z: 2 - z, lambda z: z * (1 + 1j), lambda z: z / (2 - 1j),
    lambda z: 1j / z, lambda z: z / z.real[2], lambda z: -z, lambda z: z**3, lambda z: z**-2,
    lambda z: z**2.5, lambda z: (1 + z.real**2) ** (1j), lambda z: 2.0**z, lambda z: z**z,
    lambda z: z**0.5, lambda z: np.float_power(z, 2),
    lambda z: z * X, lambda z: X - z, lambda z: z == z[0], lambda z: z != 1j,
    lambda z: z > 0.3 + 0.1j, lambda z: z <= z[0], lambda z: np.maximum(z, 0.5 + 0j),
    np.conj, np.real, np.imag, np.angle, np.abs, np.sign, np.iscomplex, np.isreal, np.isfinite,
    lambda z: np.angle(z, deg=True), np.sinc, lambda z: np.round(z, 1), np.nan_to_num,
    np.real_if_close, lambda z: np.isclose(z, z), lambda z: np.logical_and(z, 1),
    np.sum, np.prod, np.mean, np.var, np.std, np.cumsum, np.cumprod, np.diff, np.nansum,
    lambda z: np.mean(z, where=[True, False, True, True]), np.gradient, np.cov, np.count_nonzero,
    lambda z: np.average(z, weights=[1, 2, 3, 4]), lambda z: np.add.reduce(z), np.trapezoid,
    lambda z: np.where(z.real > 0.1, z, 0), lambda z: np.where(z.real > 0.1, z, X), lambda z: z[::-1],
    lambda z: z[[0, 2]], lambda z: z[z.real > 0.1], lambda z: z.reshape(2, 2).T, lambda z: z[1],
    lambda z: np.concatenate([z, [1.0]]), lambda z: np.stack([z, z.real]), lambda z: np.roll(z, 1),
    lambda z: np.tile(z, 2), lambda z: np.pad(z, 1), lambda z: np.array([z[0], 1.0, 2j * z[1]]),
    lambda z: z @ z, lambda z: z @ X, lambda z: np.vdot(z, 1j * z), lambda z: np.outer(z, z),
    lambda z: np.inner(z, z), lambda z: np.kron(z[:2], z), lambda z: np.tensordot(z, z, 1),
    lambda z: np.einsum("i,j,i->j", z, z, z), lambda z: np.trace(np.outer(z, z)),
    lambda z: W @ z[:3], lambda z: np.linalg.norm(z), lambda z: np.linalg.norm(z, 1),
    lambda z: np.linalg.norm(z, np.inf), lambda z: np.linalg.norm(W * z[0], 2),
    lambda z: np.linalg.norm(W * z[0], "nuc"), lambda z: np.linalg.matrix_power(W * z[0], 3),
    lambda z: np.polyval([1, 2j, 3], z), np.vander, lambda z: np.convolve(z, z[:2]),
    lambda z: np.correlate(z, z[:2] * 1j, "full"), lambda z: np.correlate(z[:2] * 1j, z, "full"),
    lambda z: np.cross(z[:3], z[1:]), np.poly, lambda z: np.full_like(z, 1j), np.diag,
    lambda z: np.tril(np.outer(z, z)), lambda z: np.linspace(z[0], z[1], 3),
    lambda z: np.insert(z, 1, 5j), lambda z: z.real.astype(complex) * 1j,
    lambda z: np.multiply(z, 2, where=[True, False, True, True], out=np.zeros(4, complex)),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(FUNCTIONS)))
def test_functions_of_complex_arrays(case: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Value, type, both modes, second order, by the reference interpreter."""
    monkeypatch.setenv("TAPEC_BACKEND", "interpret")
    f = FUNCTIONS[case]
    want = np.asarray(f(Z.copy()))
    got = np.asarray(tapec.jit(lambda z: f(z))(Z))
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)
    if want.dtype.kind in "fc" and not np.array_equal(want, f(Z + 0.1)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            z = np.array([0.3 + 0.4j, 0.2 + 1j, 2.0 + 0.1j, -0.7 - 1.1j])
            tapec.check_grads(lambda z: f(z), (z,), order=2)


def test_single_precision_and_promotion() -> None:
    z = Z.astype(np.complex64)
    assert tapec.jit(lambda z: z * 2.0)(z).dtype == np.complex64
    assert tapec.jit(lambda z: z * 2j)(z).dtype == np.complex64
    assert tapec.jit(lambda z, s: z * s)(z, 2.0).dtype == np.complex64
    assert tapec.jit(lambda z, s: z * s)(z, 2j).dtype == np.complex64
    assert tapec.jit(lambda z, x: z * x)(z, X).dtype == np.complex128
    assert tapec.jit(np.abs)(z).dtype == np.float32
    assert type(tapec.jit(lambda z: z)(np.complex64(1 + 2j))) is np.complex64
    assert type(tapec.jit(lambda z: z * 1j)(1 + 2j)) is complex
    assert type(tapec.jit(np.sum)(z)) is np.complex64
    g = tapec.grad(lambda z: np.sum(np.abs(z) ** 2))(z)
    assert g.dtype == np.complex64
    np.testing.assert_allclose(g, 2 * z, rtol=1e-6)


def test_division_does_not_overflow() -> None:
    big = np.array([1e300 + 1e300j, 1e-300 + 1e-300j])
    got = tapec.jit(lambda z: (1 + 0j) / z)(big)
    np.testing.assert_array_equal(got, (1 + 0j) / big)
    assert tapec.jit(np.abs)(1e300 + 1e300j) == abs(1e300 + 1e300j)


# -- in place, captured, containers ---------------------------------------------------------------


def test_writing_in_place() -> None:
    def f(z: Any) -> Any:
        a = np.zeros(3, complex)
        a[0] = z[1]
        a[1:] = z[:2] * 1j
        b = a[1:]
        b[1] += 1
        a.real[0] = 7
        a.imag += z.real[:3]
        a *= 2
        np.add.at(a, [0, 0], z[2])
        return a

    np.testing.assert_allclose(tapec.jit(f)(Z), f(Z), rtol=1e-15)
    tapec.check_grads(f, (Z,), order=1)


def test_a_result_shares_nothing_with_its_operand() -> None:
    def f(z: Any) -> Any:
        w = z + 1.0  # the imaginary part is that of z
        w *= 2
        c = np.conj(z)
        c[:] = 0
        return z + w

    np.testing.assert_allclose(tapec.jit(f)(Z), f(Z.copy()), rtol=1e-15)


def test_captured_arrays_are_seen_when_they_change() -> None:
    w = np.array([1 + 1j, 2, 3, 4])
    f = tapec.grad(lambda z: np.sum(np.abs(w * z) ** 2))
    np.testing.assert_allclose(f(Z), 2 * abs(w) ** 2 * Z, rtol=1e-15)
    w[0] = 5j
    np.testing.assert_allclose(f(Z), 2 * abs(w) ** 2 * Z, rtol=1e-15)


def test_arrays_made_inside_are_constants() -> None:
    f = tapec.jit(lambda x: np.exp(-2j * np.pi * np.arange(4) / 4) @ x)
    np.testing.assert_allclose(f(X), np.fft.fft(X)[1], atol=1e-14)
    assert "capture" not in f.dump("tape", X) or "dense" in f.dump("opt", X)


def test_containers_and_control_flow() -> None:
    def f(p: Any) -> Any:
        z = tapec.fori_loop(0, 5, lambda i, c: c * c + p["z"], p["z"])
        return np.abs(z) * p["x"]

    def plain(z: Any) -> Any:
        c = z
        for _ in range(5):
            c = c * c + z
        return np.abs(c) * 2.0

    z = 0.1 + 0.2j
    got = tapec.grad(f)({"z": z, "x": 2.0})
    assert abs(got["z"] - tapec.grad(plain)(z)) < 1e-15
    assert type(got["x"]) is float
    chosen = tapec.jit(lambda z: tapec.cond(z.real > 0, lambda z: z * 1j, lambda z: -z, z))
    assert chosen(1 + 1j) == -1 + 1j and chosen(-1 + 1j) == 1 - 1j
    mapped = tapec.vmap(lambda z: np.sum(z * z))(np.ones((3, 2)) * 1j)
    np.testing.assert_array_equal(mapped, [-2, -2, -2])


# -- the boundary of compiled code ---------------------------------------------------------------


def test_arrays_pass_in_and_out_in_native_code() -> None:
    """No Python and no copy: the compiled function reads and returns the complex array."""
    w = np.array([1 + 1j, 2, 3, 4])
    f = tapec.value_and_grad(lambda z, x: np.sum(np.abs(w * z + x) ** 2))
    for _ in range(20):
        value, g = f(Z, X)
    np.testing.assert_allclose(value, np.sum(np.abs(w * Z + X) ** 2), rtol=1e-14)
    np.testing.assert_allclose(g, 2 * np.conj(w) * (w * Z + X), rtol=1e-14)
    w[1] = -5j  # captured by reference
    np.testing.assert_allclose(f(Z, X)[1], 2 * np.conj(w) * (w * Z + X), rtol=1e-14)
    (variant,) = f.stats().variants
    assert variant.python_calls <= 2
    text = tapec.jit(lambda z: np.exp(z) * 2).dump("loops", Z)
    assert sum(line.startswith(("nest", "scalars")) for line in text.splitlines()) == 1


def test_arrays_of_any_layout() -> None:
    grid = np.arange(12.0).reshape(3, 4) * (1 + 2j)
    f = tapec.jit(lambda z: z * 1j + z[0, 0])
    for z in (grid, grid.T.copy().T, np.asfortranarray(grid), grid.astype(">c16"), grid[::1]):
        np.testing.assert_array_equal(f(z), z * 1j + z[0, 0])
    for z in (grid[:, ::2], grid[::-1], grid.T, np.repeat(grid, 2, axis=1)[:, ::2]):
        np.testing.assert_array_equal(f(z), z * 1j + z[0, 0])
    strided = np.repeat(grid, 2, axis=1)[:, ::2]
    g = tapec.jit(lambda x: x * strided)
    np.testing.assert_array_equal(g(np.ones(4)), strided)
    strided[0] = 7
    np.testing.assert_array_equal(g(np.ones(4)), strided)


def test_complex_results_of_every_kind() -> None:
    """Arrays and numbers, conjugates, constants, containers, an argument returned as it is."""

    def f(z: Any, s: Any) -> Any:
        return {"z": z, "c": np.conj(z), "s": s * 1j, "k": 2j, "t": (z[0], s.real, np.abs(z))}

    got, want = tapec.jit(f)(Z, 1 + 2j), f(Z, 1 + 2j)
    for _ in range(2):
        np.testing.assert_array_equal(got["z"], want["z"])
        np.testing.assert_array_equal(got["c"], want["c"])
        assert got["s"] == want["s"] and got["k"] == 2j and got["t"][:2] == want["t"][:2]
        np.testing.assert_allclose(got["t"][2], want["t"][2], rtol=1e-15)
        got["z"][0] = 99  # the caller's own
        got = tapec.jit(f)(Z, 1 + 2j)
    holomorphic = tapec.grad(lambda z: np.sum(z**3), holomorphic=True)
    for _ in range(3):
        np.testing.assert_allclose(holomorphic(Z), 3 * Z**2, rtol=1e-14)
    empty = tapec.jit(lambda z: z * 2)(np.zeros((0, 3), complex))
    assert empty.shape == (0, 3) and empty.dtype == complex


def test_python_branches_on_complex_values() -> None:
    f = tapec.grad(lambda z: np.abs(z) if z == 1 + 1j else np.abs(z) ** 2)
    assert abs(f(1 + 1j) - (1 + 1j) / abs(1 + 1j)) < 1e-15
    assert f(3 + 4j) == 6 + 8j
