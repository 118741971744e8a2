"""``numpy.linalg`` on traced arrays: values, derivatives, exceptions; the seeds by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapec
from tapec.errors import TapecLinAlgError, TapecValueError

Array = np.ndarray[Any, Any]
LinAlgError = np.linalg.LinAlgError
ANY: Any = np.linalg  # for calls that NumPy's types do not allow


def slopes(f: Callable[..., Any], args: tuple[Any, ...], k: int) -> Array:
    """Central differences of a scalar function in argument ``k``, extrapolated once."""
    x = np.asarray(args[k], float)
    out = np.zeros(x.shape)
    for i in np.ndindex(x.shape):
        found = []
        for h in (2e-3, 1e-3):
            moved = []
            for sign in (1, -1):
                y = x.copy()
                y[i] += sign * h
                moved.append(f(*args[:k], y, *args[k + 1 :]))
            found.append((moved[0] - moved[1]) / (2 * h))
        out[i] = (4 * found[1] - found[0]) / 3
    return out


def check(f: Callable[..., Any], *args: Any, tolerance: float = 1e-7) -> None:
    """Value as NumPy's; gradients as differences; both modes; second derivatives agree."""
    want = f(*args)
    argnums = tuple(range(len(args)))
    value, grads = tapec.value_and_grad(f, argnums=argnums)(*args)
    np.testing.assert_allclose(value, want, rtol=1e-11, atol=1e-12)
    directions = [np.cos(np.arange(np.size(a))).reshape(np.shape(a)) for a in args]
    along = 0.0
    for k, g in enumerate(grads):
        expected = slopes(f, args, k)
        np.testing.assert_allclose(g, expected, rtol=tolerance, atol=tolerance)
        along += float(np.sum(g * directions[k]))
    _, tangent = tapec.jvp(f, args, tuple(directions))
    np.testing.assert_allclose(tangent, along, rtol=1e-9, atol=1e-10)

    def moving(*xs: Any) -> Any:
        return tapec.jvp(f, xs, tuple(directions))[1]

    def turning(*xs: Any) -> Any:
        found = tapec.grad(f, argnums=argnums)(*xs)
        return sum(np.sum(g * d) for g, d in zip(found, directions))

    one = tapec.grad(moving, argnums=argnums)(*args)
    two = tapec.grad(turning, argnums=argnums)(*args)
    for a, b in zip(one, two):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8)


RNG = np.random.default_rng(11)
M3 = RNG.normal(size=(3, 3)) + 2 * np.eye(3)
M5 = RNG.normal(size=(5, 5)) + 4 * np.eye(5)[::-1]
STACK = RNG.normal(size=(2, 4, 4)) + 3 * np.eye(4)
TALL, WIDE = RNG.normal(size=(5, 3)), RNG.normal(size=(2, 4))
V5 = RNG.normal(size=5)


def gram(a: Any) -> Any:
    return a @ np.swapaxes(a, -1, -2) + np.eye(a.shape[-1])


def projector(a: Any) -> Any:
    w, v = np.linalg.eigh(gram(a))
    return np.sum(np.sin((v * np.log(w)) @ v.T))


def upper_side(a: Any) -> Any:
    w, v = np.linalg.eigh(gram(a), UPLO="U")
    return np.sum(w[:2] ** 2) + np.sum(v[:, 0] ** 4)


def rebuilt(a: Any) -> Any:
    u, s, vt = np.linalg.svd(a, full_matrices=False)
    return np.sum(np.sin(u * s @ vt)) + np.sum(s**3)


def full_svd(a: Any) -> Any:
    u, s, vt = np.linalg.svd(a)
    n = u[:, len(s) :]
    m = vt[len(s) :].T
    return np.sum(s) + np.sum((n @ n.T) ** 3) + np.sum((m @ m.T) ** 3)


def factored(a: Any) -> Any:
    q, r = np.linalg.qr(a)
    return np.sum(np.sin(q @ np.abs(r))) + np.sum(np.diag(r) ** 2)


def least(a: Any, b: Any) -> Any:
    x, rest, _, s = np.linalg.lstsq(a, b, rcond=None)
    return np.sum(np.sin(x)) + np.sum(rest) + np.sum(s)


def whitened(a: Any, b: Any) -> Any:
    low = np.linalg.cholesky(gram(a))
    half = np.linalg.solve(low, b)
    return half @ half + np.sum(np.linalg.inv(low.T)) + np.sum(np.log(np.diag(low)))


PROGRAMS: dict[str, tuple[Any, ...]] = {
    "solve": (lambda a, b: np.sum(np.sin(np.linalg.solve(a, b))), M5, V5),
    "solve-3": (lambda a, b: np.sum(np.sin(np.linalg.solve(a, b))), M3, V5[:3]),
    "solve-matrix": (lambda a, b: np.sum(np.sin(np.linalg.solve(a, b))), M5, M5[:, :2] + 1),
    "solve-stack": (lambda a, b: np.sum(np.sin(np.linalg.solve(a, b))), STACK, STACK[0] * 2),
    "solve-vector-of-stack": (lambda a, b: np.sum(np.linalg.solve(a, b) ** 2), STACK, V5[:4]),
    "inv": (lambda a: np.sum(np.sin(np.linalg.inv(a))), M5),
    "inv-stack": (lambda a: np.sum(np.sin(np.linalg.inv(a))), STACK),
    "det-3": (lambda a: np.sin(np.linalg.det(a)), M3),
    "det-5": (lambda a: np.sin(np.linalg.det(a) / 500), M5),
    "det-stack": (lambda a: np.sum(np.sin(np.linalg.det(a) / 50)), STACK),
    "slogdet": (lambda a: np.linalg.slogdet(a)[1] ** 2, M5),
    "slogdet-stack": (lambda a: np.sum(np.linalg.slogdet(a).logabsdet ** 2), STACK),
    "cholesky": (lambda a: np.sum(np.sin(np.linalg.cholesky(gram(a)))), M5),
    "cholesky-stack": (lambda a: np.sum(np.sin(np.linalg.cholesky(gram(a)))), STACK),
    "cholesky-solve": (whitened, M5, V5),
    "eigh": (projector, M3),
    "eigh-upper": (upper_side, M5),
    "eigvalsh": (lambda a: np.sum(np.sin(np.linalg.eigvalsh(gram(a)))), M5),
    "svd": (rebuilt, M3),
    "svd-tall": (rebuilt, TALL),
    "svd-wide": (rebuilt, WIDE),
    "svd-full-tall": (full_svd, TALL),
    "svd-full-wide": (full_svd, WIDE),
    "svd-values": (lambda a: np.sum(np.linalg.svd(a, compute_uv=False) ** 3), WIDE),
    "qr": (factored, M3),
    "qr-tall": (factored, TALL),
    "qr-wide": (lambda a: np.sum(np.sin(np.linalg.qr(a)[1])), WIDE),
    "qr-r": (lambda a: np.sum(np.sin(np.linalg.qr(a, mode="r"))), TALL),
    "pinv": (lambda a: np.sum(np.sin(np.linalg.pinv(a))), TALL),
    "lstsq": (least, TALL, V5),
    "lstsq-wide": (least, WIDE, V5[:2]),
    "norm-nuclear": (lambda a: np.linalg.norm(a, "nuc"), TALL),
    "norm-2": (lambda a: np.linalg.norm(a, 2), TALL),
    "norm-minus-2": (lambda a: np.linalg.norm(a, -2), M3),
    "norm-1": (lambda a: np.linalg.norm(a, 1), M3),
    "norm-inf": (lambda a: np.linalg.norm(a, np.inf), M3),
    "norm-stack": (lambda a: np.sum(np.linalg.norm(a, 2, axis=(0, 2))), STACK),
    "cond": (np.linalg.cond, M3),
    "cond-1": (lambda a: np.linalg.cond(a, 1), M3),
    "cond-minus-2": (lambda a: np.linalg.cond(a, -2), TALL),
    "power": (lambda a: np.sum(np.linalg.matrix_power(a, 3)), M3),
    "power-negative": (lambda a: np.sum(np.linalg.matrix_power(a, -2)), M3),
    "multi_dot": (lambda a, b, c: np.sum(np.linalg.multi_dot([a, b, c])), TALL, M3, TALL.T),
    "tensorsolve": (
        lambda a, b: np.sum(np.sin(np.linalg.tensorsolve(a, b))),
        np.eye(6).reshape(2, 3, 6) + 0.3 * RNG.normal(size=(2, 3, 6)),
        RNG.normal(size=(2, 3)),
    ),
    "tensorinv": (
        lambda a: np.sum(np.sin(np.linalg.tensorinv(a, ind=1))),
        np.eye(6).reshape(6, 2, 3) + 0.3 * RNG.normal(size=(6, 2, 3)),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    f, *args = PROGRAMS[name]
    check(f, *args)


def test_values_only() -> None:
    assert tapec.jit(np.linalg.matrix_rank)(np.diag([1.0, 2.0, 0.0])) == 2
    rank = tapec.jit(lambda a: np.linalg.matrix_rank(a, tol=1.5))(np.diag([1.0, 2.0, 3.0]))
    assert rank == 2


def test_single_precision() -> None:
    a = gram(M5).astype(np.float32)
    functions: list[Callable[[Any], Any]] = [
        lambda a: np.sum(np.linalg.inv(a)),
        lambda a: np.sum(np.linalg.cholesky(a)),
        lambda a: np.sum(np.linalg.eigvalsh(a) ** 2),
    ]
    for f in functions:
        value, gradient = tapec.value_and_grad(f)(a)
        assert gradient.dtype == np.float32
        assert np.isclose(value, f(a.astype(float)), rtol=1e-4)
        wide = tapec.grad(f)(a.astype(float))
        np.testing.assert_allclose(gradient, wide, rtol=1e-3, atol=1e-3)


def test_named_results() -> None:
    def f(a: Any) -> Any:
        sign, logdet = np.linalg.slogdet(a)
        eigen, qr = np.linalg.eigh(gram(a)), np.linalg.qr(a)
        return sign * logdet + np.sum(eigen.eigenvalues) + np.sum(qr.R**2)

    assert np.isfinite(tapec.grad(f)(M3)).all()


# -- seeds --------------------------------------------------------------------------------


def test_determinant_singular() -> None:
    for a, want in (
        ([[1.0, 2.0], [2.0, 4.0]], [[4, -2], [-2, 1]]),
        ([[0.0, 1.0], [0.0, 1.0]], [[1, 0], [-1, 0]]),
    ):
        np.testing.assert_allclose(tapec.grad(np.linalg.det)(np.array(a)), want, atol=1e-14)


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_determinant_singular_beyond_polynomials(lost: int) -> None:
    """Cofactors by minors, and their derivative, at matrices of rank n - 1, n - 2, n - 3."""
    n = 6
    u, s, vt = np.linalg.svd(RNG.normal(size=(n, n)))
    s[n - lost :] = 0
    a = u * s @ vt
    minors = [
        [(-1) ** (i + j) * np.linalg.det(np.delete(np.delete(a, i, 0), j, 1)) for j in range(n)]
        for i in range(n)
    ]
    np.testing.assert_allclose(tapec.grad(np.linalg.det)(a), minors, atol=1e-10)
    e = RNG.normal(size=(n, n))
    moved = tapec.jvp(tapec.grad(np.linalg.det), (a,), (e,))[1]
    h = 1e-3
    up, down = (tapec.grad(np.linalg.det)(a + t * e) for t in (h, -h))
    np.testing.assert_allclose(moved, (up - down) / (2 * h), atol=1e-4)


def test_log_determinant_sign_output() -> None:
    m = np.array([[1.0, 2.0], [3.0, 4.0]])
    want = np.array([[-2, 1.5], [1, -0.5]])
    np.testing.assert_allclose(tapec.grad(lambda m: np.linalg.slogdet(m)[1])(m), want)

    def signed(m: Any) -> Any:
        s, logdet = np.linalg.slogdet(m)
        return s * logdet

    np.testing.assert_allclose(tapec.grad(signed)(m), -want)


def test_svd_degenerate_rebuild() -> None:
    def f(a: Any) -> Any:
        u, s, vh = np.linalg.svd(a)
        return np.linalg.norm((u * s) @ vh)

    d = np.diag([1.0, 1.0, 2.0, 3.0])
    np.testing.assert_allclose(tapec.grad(f)(d), d / np.sqrt(15), atol=1e-14)
    _, forward = tapec.jvp(f, (d,), (np.eye(4),))
    np.testing.assert_allclose(forward, 7 / np.sqrt(15))


def test_symmetric_eigen_off_diagonal() -> None:
    def largest(a: Any, b: Any, c: Any) -> Any:
        return np.linalg.eigvalsh(np.array([[a, b], [b, c]]))[-1]

    value, found = tapec.value_and_grad(largest, argnums=(0, 1, 2))(2.0, 1.0, 2.0)
    np.testing.assert_allclose(value, 3)
    np.testing.assert_allclose(found, [0.5, 1, 0.5])


def test_solve_both_arguments() -> None:
    def f(t: Any) -> Any:
        a = np.array([[2.0, t], [0.0, 1.0]])
        return np.array([1.0, 1.0]) @ np.linalg.solve(a, np.array([1.0, -1.0]))

    assert np.isclose(tapec.grad(f)(-7.0), 0.5)
    assert np.isclose(tapec.jvp(f, (-7.0,), (1.0,))[1], 0.5)


def test_degenerate_eigenvectors_projector() -> None:
    def f(t: Any) -> Any:
        w, v = np.linalg.eigh(np.array([[t, 1.0], [1.0, t]]))
        return np.sum((v * np.exp(w)) @ v.T)

    assert np.isclose(tapec.grad(f)(0.5), 2 * np.exp(1.5))
    assert np.isclose(tapec.grad(tapec.grad(f))(0.5), 2 * np.exp(1.5))


def test_matrix_power_and_chain() -> None:
    def f(m: Any) -> Any:
        return np.trace(np.linalg.matrix_power(m, 3))

    m = np.array([[1.0, 1.0], [0.0, 2.0]])
    np.testing.assert_allclose(tapec.grad(f)(m), [[3, 0], [9, 12]])


def test_sum_of_eigenvalues_at_identity() -> None:
    def f(a: Any) -> Any:
        return np.sum(np.linalg.eigvalsh(a))

    np.testing.assert_allclose(tapec.grad(f)(np.eye(3)), np.eye(3))
    np.testing.assert_allclose(tapec.grad(lambda a: f(a) ** 2)(np.eye(3)), 6 * np.eye(3))


def test_function_returning_tuple() -> None:
    def f(m: Any) -> Any:
        return np.linalg.eigh(m)[0][0]

    np.testing.assert_allclose(tapec.grad(f)(np.diag([2.0, 5.0])), [[1, 0], [0, 0]])


def test_undetermined_derivative_is_nan() -> None:
    """exp of a matrix at the identity, written so that nothing recognises it: not 0."""

    def f(a: Any) -> Any:
        w, v = np.linalg.eigh(a)
        y = v.T @ np.array([1.0, 2.0])
        return np.sum(y * y * np.exp(w))

    found = tapec.grad(f)(np.eye(2))
    e = np.exp(1)
    assert np.isnan(found[0, 1]) or np.isclose(found[0, 1], 2 * e)


# -- exceptions ---------------------------------------------------------------------------


def test_singular_matrix_names_the_line() -> None:
    f = tapec.grad(lambda a: np.sum(np.linalg.inv(a)))
    singular = np.array([[1.0, 2.0], [2.0, 4.0]])
    for _ in range(2):
        with pytest.raises(TapecLinAlgError, match=r"test_linalg.py:\d+: Singular matrix"):
            f(singular)
        assert np.isfinite(f(np.eye(2))).all()
    assert isinstance(TapecLinAlgError("x"), LinAlgError)


def test_not_positive_definite_may_be_caught() -> None:
    def f(k: Any) -> Any:
        try:
            low = np.linalg.cholesky(k)
        except LinAlgError:
            low = np.linalg.cholesky(k + 3 * np.eye(2))
        return np.sum(np.log(np.diag(low)))

    g = tapec.value_and_grad(f)
    for k in (np.eye(2), -np.eye(2), 2 * np.eye(2), -0.5 * np.eye(2)):
        value, gradient = g(k)
        inner = k if k[0, 0] > 0 else k + 3 * np.eye(2)
        np.testing.assert_allclose(value, np.log(inner[0, 0]))
        np.testing.assert_allclose(gradient, np.eye(2) / (2 * inner[0, 0]))


def test_failure_in_a_structured_loop() -> None:
    def f(k: Any) -> Any:
        return tapec.fori_loop(0, 3, lambda i, x: np.linalg.inv(x) + np.eye(2), k)[0, 0]

    assert np.isfinite(tapec.grad(f)(np.eye(2))).all()
    with pytest.raises(LinAlgError, match="Singular"):
        tapec.grad(f)(np.ones((2, 2)))


def test_shapes_that_do_not_fit() -> None:
    cases: list[tuple[Any, type[Exception], str]] = [
        (lambda x: np.linalg.inv(x), LinAlgError, "square"),
        (lambda x: np.linalg.det(x), LinAlgError, "square"),
        (lambda x: np.linalg.cholesky(x[0]), LinAlgError, "two-dim"),
        (lambda x: np.linalg.solve(x[:, :2], np.ones(3)), ValueError, "do not fit"),
        (lambda x: np.linalg.norm(x, 3), ValueError, "norm order"),
        (lambda x: ANY.eigh(x[:, :2], UPLO="X"), ValueError, "UPLO"),
        (lambda x: ANY.qr(x, mode="odd"), ValueError, "mode"),
    ]
    for f, error, text in cases:
        with pytest.raises(error, match=text):
            tapec.jit(f)(np.ones((2, 3)))
    assert issubclass(TapecValueError, ValueError)


def test_numpy_is_left_alone() -> None:
    """The attributes of np.linalg are NumPy's own again after a trace, also after an error."""
    before = np.linalg.det, np.linalg.eigvalsh
    seen = []

    def f(a: Any) -> Any:
        seen.append(np.linalg.det(np.eye(2)))
        raise KeyError

    with pytest.raises(KeyError):
        tapec.grad(f)(1.0)
    assert seen == [1.0]
    assert (np.linalg.det, np.linalg.eigvalsh) == before


def test_factorised_once() -> None:
    """solve, det and inv of one matrix share its factors; a Cholesky factor has none."""

    def f(a: Any, b: Any) -> Any:
        return b @ np.linalg.solve(a, b) + np.linalg.slogdet(a)[1] + np.sum(np.linalg.inv(a))

    text = str(tapec.grad(f).dump("opt", M5, V5))
    assert text.count("= lu ") == 1 or text.count(" lu %") == 1
    assert " lu %" not in str(tapec.grad(whitened).dump("opt", M5, V5))
