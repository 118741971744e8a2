"""Functions that name SciPy itself: traced again on the counterparts, or an error with a way out."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import scipy.integrate
import scipy.linalg
import scipy.linalg as sl
import scipy.ndimage
import scipy.optimize
import scipy.signal
import scipy.sparse as sparse
import scipy.special
import scipy.stats as st
from scipy import stats
from scipy.interpolate import CubicSpline
from scipy.linalg import expm, solve_triangular
from scipy.special import logsumexp
from scipy.stats import norm

import tapec

X = np.array([0.3, 0.5, 1.2])
L = np.array([[2.0, 0, 0], [0.5, 1, 0], [0.1, -0.3, 3]])


def by_alias(m: Any) -> Any:
    return np.sum(st.norm.logpdf(X, m, 2.0))


def by_module(m: Any) -> Any:
    return np.sum(stats.norm.logpdf(X, loc=m, scale=2.0))


def by_name(m: Any) -> Any:
    return np.sum(norm.logpdf(X, m, 2.0))


def by_package(m: Any) -> Any:
    return np.sum(scipy.stats.norm.logpdf(X, m, 2.0))


def by_import(m: Any) -> Any:
    from scipy.stats import norm as bell

    return np.sum(bell.logpdf(X, m, 2.0))


def by_helper(m: Any) -> Any:
    return by_name(m) + 0 * m


def by_default(m: Any, density: Any = by_alias) -> Any:
    return density(m)


@pytest.mark.parametrize(
    "fn",
    [
        by_alias,
        by_module,
        by_name,
        by_package,
        by_import,
        by_helper,
        by_default,
        functools.partial(by_name),
    ],
)
def test_names_are_found(fn: Any) -> None:
    m = 0.4
    assert tapec.grad(fn)(m) == pytest.approx(np.sum(X - m) / 4, rel=1e-14)
    assert tapec.grad(tapec.grad(fn))(m) == pytest.approx(-len(X) / 4, rel=1e-14)
    assert fn(m) == pytest.approx(tapec.jit(fn)(m), rel=1e-14)
    assert st.norm.logpdf is not None and sys.modules["scipy.stats"] is st


def test_module_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions of other modules are reached, through the module and by name."""
    (tmp_path / "density_for_test.py").write_text(
        "import scipy.stats\ncalls = 0\ndef log(x, m):\n    return scipy.stats.norm.logpdf(x, m)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import density_for_test  # type: ignore[import-not-found]
    from density_for_test import log

    for fn in (lambda m: density_for_test.log(1.0, m), lambda m: log(1.0, m)):
        assert tapec.grad(fn)(0.25) == pytest.approx(0.75, rel=1e-14)

    def counting(m: Any) -> Any:
        density_for_test.calls += 1
        return density_for_test.log(1.0, m)

    assert tapec.grad(counting)(0.25) == pytest.approx(0.75, rel=1e-14)
    assert density_for_test.calls == 2  # both runs of the trace


def test_linear_algebra() -> None:
    b = np.array([1.0, 2, 3])
    got = tapec.grad(lambda a: np.sum(solve_triangular(a, b, lower=True)))(L)
    want = -np.outer(np.linalg.solve(L.T, np.ones(3)), np.linalg.solve(L, b))
    np.testing.assert_allclose(np.tril(got), np.tril(want), rtol=1e-12)
    got = tapec.grad(lambda t: np.trace(expm(t * L)))(0.5)
    assert got == pytest.approx(np.trace(L @ sl.expm(0.5 * L)), rel=1e-12)
    got = tapec.grad(lambda a: 2 * np.sum(np.log(np.diag(sl.cholesky(a, lower=True)))))(L @ L.T)
    np.testing.assert_allclose(got, np.linalg.inv(L @ L.T), rtol=1e-10)


def test_special_functions_in_python() -> None:
    got = tapec.grad(lambda x: logsumexp(x))(X)
    np.testing.assert_allclose(got, scipy.special.softmax(X), rtol=1e-14)
    got = tapec.grad(lambda x: scipy.special.log_softmax(x)[0])(X)
    np.testing.assert_allclose(got, np.array([1, 0, 0]) - scipy.special.softmax(X), rtol=1e-14)
    got = tapec.grad(lambda x: scipy.special.polygamma(1, x))(1.7)
    assert got == pytest.approx(float(mp.polygamma(2, mp.mpf(1.7))), rel=1e-12)


class Base:
    scale = 2.0

    def log(self, m: Any) -> Any:
        return np.sum(st.norm.logpdf(X, m, self.scale))

    @property
    def spread(self) -> Any:
        return logsumexp(np.array([self.scale, 0.0]))


class Model(Base):
    """Attributes, ``super``, a property, a static method, and state that a method changes."""

    def __init__(self, at: Any) -> None:
        self.calls = 0
        self.spline = CubicSpline(np.arange(4.0), np.arange(4.0) ** 3)
        self.at = at

    def log(self, m: Any) -> Any:
        self.calls += 1
        assert isinstance(self, Model) and type(self).__name__ == "Model"
        return super().log(m) + self.spline(m * self.at) + self.twice(m) * self.spread

    @staticmethod
    def twice(m: Any) -> Any:
        return norm.logpdf(m) * 2


@dataclass(frozen=True)
class Prior:
    mean: Any
    scale: Any = 1.0

    def log(self, x: Any) -> Any:
        return st.norm.logpdf(x, self.mean, self.scale)


class Slotted:
    __slots__ = ()

    def log(self, m: Any) -> Any:
        return np.sum(st.norm.logpdf(X, m))


MODEL = Model(2.0)
SPREAD = float(scipy.special.logsumexp([2.0, 0]))


def test_methods_of_classes() -> None:
    want = np.sum(X - 0.4) / 4 + 3 * (0.8**2) * 2 - 2 * 0.4 * SPREAD
    before = MODEL.calls
    for fn in (lambda m: MODEL.log(m), MODEL.log, lambda m: Model(2.0).log(m)):
        assert tapec.grad(fn)(0.4) == pytest.approx(want, rel=1e-12)
    assert MODEL.calls == before + 4  # of two functions, each traced twice
    assert MODEL.log(0.4) == pytest.approx(tapec.jit(lambda m: MODEL.log(m))(0.4), rel=1e-12)
    assert type(MODEL) is Model and type(MODEL.spline) is CubicSpline


def test_dataclasses_and_containers_of_them() -> None:
    assert tapec.grad(lambda m: Prior(m).log(1.0))(0.25) == pytest.approx(0.75)
    priors = [Prior(0.5), Prior(1.0, 2.0)]
    named = {"a": Prior(0.5)}
    got = tapec.grad(lambda x: sum(p.log(x) for p in priors) + named["a"].log(x))(0.25)
    assert got == pytest.approx(0.25 + 0.75 / 4 + 0.25)


def test_what_is_not_copied_names_the_way() -> None:
    slotted, seen = Slotted(), 0

    def counts(m: Any) -> Any:
        nonlocal seen
        seen += 1
        return norm.logpdf(m)

    way = r"plain_scipy.py:\d+: scipy.stats.norm.*tapec.scipy.stats.norm"
    with pytest.raises(NotImplementedError, match=way):
        tapec.grad(lambda m: slotted.log(m))(0.1)
    with pytest.raises(NotImplementedError, match=way):
        tapec.grad(lambda m: counts(m))(0.1)
    assert seen >= 1


@pytest.mark.parametrize(
    ("fn", "name", "way"),
    [
        (lambda a: scipy.integrate.quad(lambda s: np.exp(-a * s), 0, 1)[0], "integrate.quad", "fixed_quad"),
        (lambda a: scipy.optimize.minimize_scalar(lambda s: (s - a) ** 2).x, "optimize.minimize_scalar", "tapec.root"),
        (lambda a: np.sum(scipy.ndimage.gaussian_filter(X * a, 1.0)), "ndimage.gaussian_filter", "host_call"),
        (lambda a: scipy.linalg.schur(L * a)[0][0, 0], "linalg.schur", "plain arrays"),
    ],
)  # fmt: skip
def test_no_counterpart(fn: Any, name: str, way: str) -> None:
    with pytest.raises(NotImplementedError, match=rf"plain_scipy.py:\d+: scipy.{name} .*{way}"):
        tapec.grad(fn)(0.7)


def test_errors_of_the_users_own_come_through() -> None:
    """SciPy's complaints about plain arrays, and those of a counterpart."""
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        tapec.grad(lambda a: a * sl.cholesky(-np.eye(2))[0, 0])(1.0)
    with pytest.raises(np.linalg.LinAlgError):
        tapec.grad(lambda a: sl.cholesky(-a * np.eye(2))[0, 0])(1.0)
    with pytest.raises(ZeroDivisionError):
        tapec.grad(lambda a: norm.logpdf(a) * (1 / 0))(1.0)


def test_compiled_code_is_given_no_objects() -> None:
    """SciPy's squareform reads an array of objects as numbers, which ends the interpreter."""
    from scipy.spatial.distance import pdist, squareform

    class Hidden:
        __slots__ = ()

        def value(self, v: Any) -> Any:
            return np.sum(squareform(v))

    model = Hidden()
    with pytest.raises(NotImplementedError, match="squareform does not take traced values"):
        tapec.grad(lambda v: model.value(v))(np.arange(6.0))
    points = np.array([[0.0, 0], [3, 4], [6, 8]])
    got = tapec.grad(lambda x: np.sum(squareform(pdist(x)) ** 2))(points)
    want = 4 * (3 * points - points.sum(0))
    np.testing.assert_allclose(got, want, rtol=1e-12)
    np.testing.assert_allclose(
        tapec.grad(lambda y: scipy.integrate.simpson(y, dx=0.5))(np.ones(5)),
        np.array([1, 4, 2, 4, 1]) / 6,
        rtol=1e-14,
    )


@pytest.mark.parametrize("way", ["odeint", "tfirst", "solve_ivp", "args"])
def test_initial_value_problems(way: str) -> None:
    """y' = -k y: the derivative of y(2) = y0 e^(-2k) by k and y0."""
    t = np.array([0.0, 1.0, 2.0])

    def end(k: Any, y0: Any) -> Any:
        if way == "odeint":
            return scipy.integrate.odeint(lambda y, t: -k * y, y0, t)[-1, 0]
        if way == "tfirst":
            return scipy.integrate.odeint(lambda t, y: [-k * y[0]], [y0], t, tfirst=True)[-1, 0]
        if way == "solve_ivp":
            return scipy.integrate.solve_ivp(
                lambda t, y: [-k * y[0]], (0, 2), [y0], t_eval=t[1:]
            ).y[0, -1]
        found = scipy.integrate.solve_ivp(
            lambda t, y, k: -k * y, (0, 2), [y0], args=(k,), t_eval=[2.0]
        )
        return found.y[0, 0] if found.success else np.nan

    k, y0 = 0.3, 1.7
    got = tapec.value_and_grad(end, argnums=(0, 1))(k, y0)
    e = np.exp(-2 * k)
    assert got[0] == pytest.approx(y0 * e, rel=1e-7) and end(k, y0) == pytest.approx(
        y0 * e, rel=1e-3
    )
    assert got[1] == pytest.approx((-2 * y0 * e, e), rel=1e-6)
    assert tapec.grad(tapec.grad(end))(k, y0) == pytest.approx(4 * y0 * e, rel=1e-5)


def test_initial_value_problems_that_are_not_solved() -> None:
    ivp = scipy.integrate.solve_ivp
    with pytest.raises(NotImplementedError, match="t_eval"):
        tapec.grad(lambda k: ivp(lambda t, y: -k * y, (0, 2), [1.0]).y[0, -1])(0.3)
    with pytest.raises(NotImplementedError, match="method='BDF'"):
        tapec.grad(lambda k: ivp(lambda t, y: -k * y, (0, 2), [1.0], "BDF", t_eval=[2.0]).y[0, 0])(
            0.3
        )


def test_zeros_and_densities() -> None:
    """Both kinds of code that takes no traced values in one function."""

    def fn(m: Any) -> Any:
        found = np.zeros(3)
        for k in range(3):
            found[k] = st.norm.logpdf(X[k], m)
        return np.sum(found)

    assert tapec.grad(fn)(0.4) == pytest.approx(np.sum(X - 0.4), rel=1e-14)


# -- sparse matrices --------------------------------------------------------------------------

DENSE = np.array([[1.0, 0, 2, 0], [0, 3, 0, 0], [0, 0, 0, 0], [4, 0, 0, -1], [0, 0.5, 0, 0]])


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dia", "bsr"])
@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix])
def test_products_with_sparse_matrices(form: str, kind: Any) -> None:
    a = kind(DENSE).asformat(form)
    x, y = np.arange(1.0, 5), np.arange(5.0) - 2
    both = np.stack([x, x[::-1] ** 2], 1)
    cases: list[tuple[Any, Any, Any]] = [
        (lambda x: a @ x, lambda x: DENSE @ x, x),
        (lambda x: a.T @ x, lambda x: DENSE.T @ x, y),
        (lambda x: x @ a, lambda x: x @ DENSE, y),
        (lambda x: a @ x, lambda x: DENSE @ x, both),
        (lambda x: x.T @ a.T, lambda x: x.T @ DENSE.T, both),
        (lambda x: a @ (x + 1j * x**2), lambda x: DENSE @ (x + 1j * x**2), x),
    ]
    if form != "coo":
        cases.append((lambda x: a.dot(x), lambda x: DENSE @ x, x))
    if kind is sparse.csr_matrix:
        cases.append((lambda x: a * x, lambda x: DENSE @ x, x))
    for fn, dense, at in cases:
        np.testing.assert_allclose(tapec.jit(fn)(at), dense(at), rtol=1e-14)
        loss = lambda g: lambda x: np.sum(np.abs(g(x)) ** 2)  # noqa: E731
        np.testing.assert_allclose(
            tapec.grad(loss(fn))(at), tapec.grad(loss(dense))(at), rtol=1e-13
        )


def test_sparse_entries_are_read_at_each_call() -> None:
    a = sparse.csr_array(DENSE)
    fn = tapec.grad(lambda x: np.sum(a @ x))
    x = np.ones(4)
    np.testing.assert_allclose(fn(x), DENSE.sum(0))
    a.data[:] = 2 * a.data  # in place
    np.testing.assert_allclose(fn(x), 2 * DENSE.sum(0))
    with pytest.warns(sparse.SparseEfficiencyWarning):
        a[2, 2] = 7.0  # another structure
    np.testing.assert_allclose(fn(x), 2 * DENSE.sum(0) + [0, 0, 7, 0])
    with pytest.raises(ValueError, match=r"plain_scipy.py:\d+: matmul: a sparse.*\(5, 4\).*\(3,\)"):
        tapec.grad(lambda x: np.sum(a @ x))(np.ones(3))


@pytest.mark.parametrize("form", ["lil", "dok"])
def test_formats_whose_changes_are_not_seen(form: str) -> None:
    a = sparse.csr_array(DENSE).asformat(form)
    with pytest.raises(NotImplementedError, match=r"plain_scipy.py:\d+: .*tocsr"):
        tapec.grad(lambda x: np.sum(a @ x))(np.ones(4))


def test_a_diffusion_step_is_sparse_in_its_jacobian() -> None:
    n = 6
    step = sparse.diags_array([np.ones(n - 1), -2 * np.ones(n), np.ones(n - 1)], offsets=[-1, 0, 1])
    jacobian = tapec.sparse_jacobian(lambda u: u + 0.1 * (step @ u) + u**2)
    found = jacobian(np.arange(n, dtype=float))
    want = np.eye(n) + 0.1 * step.toarray() + np.diag(2 * np.arange(n))
    np.testing.assert_allclose(found.toarray(), want, rtol=1e-14)
    assert found.nnz == 3 * n - 2


def test_traced_values_are_seen_in_wrapped_callbacks() -> None:
    """SciPy wraps a callback before compiled code calls it, which may raise an error of its own."""
    from tapec.retry import _holds_traced

    def fn(a: Any) -> Any:
        def callback(x: Any) -> Any:
            return x - a

        def wrapped(x: Any) -> Any:
            return callback(x)

        def again(x: Any) -> Any:
            return wrapped(x)

        assert _holds_traced(again) and not _holds_traced(by_alias)
        return callback(1.0)

    assert tapec.grad(fn)(2.0) == -1
