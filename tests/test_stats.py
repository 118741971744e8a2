"""``tapec.scipy.stats``: discrete and multivariate distributions, edges, errors, frozen
distributions, and programs that use them.  The table of continuous ones: ``test_stats_table``."""

from __future__ import annotations

import warnings
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import scipy.stats
from surface import check, traced

import tapec
from tapec.ir import interpret
from tapec.scipy import stats

rng = np.random.default_rng(11)
A = rng.normal(size=(3, 3))
COV = A @ A.T + np.eye(3)
OTHER = COV + np.diag([1.0, 2.0, 0.5])
SMALL = np.array([[2.0, 0.3], [0.3, 1.0]])
X = rng.normal(size=(4, 3))
MEAN = rng.normal(size=3)
ALPHA, P, COUNTS = np.array([0.7, 1.5, 2.2]), np.array([0.2, 0.3, 0.5]), np.array([1, 2, 3])
K = np.array([-3.0, -1, 0, 1, 2, 5, 7, 2.5])

DISCRETE: list[tuple[str, tuple[float, ...]]] = [
    ("poisson", (2.3,)), ("binom", (5, 0.3)), ("bernoulli", (0.3,)), ("geom", (0.3,)),
    ("nbinom", (4.0, 0.4)), ("betabinom", (5, 2.3, 1.2)), ("skellam", (1.5, 2.2)), ("logser", (0.6,)), ("planck", (0.7,)), ("dlaplace", (0.8,)), ("zipf", (2.3,)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shape"), DISCRETE, ids=[d[0] for d in DISCRETE])
def test_discrete(name: str, shape: tuple[Any, ...]) -> None:
    """Values, by both modes and differences; counts outside of the support, and no integers."""
    mine = getattr(stats, name)
    for method in (
        "logpmf",
        "pmf",
        "cdf",
        "sf",
        "logcdf",
        "logsf",
        "mean",
        "var",
        "std",
        "entropy",
    ):
        key = {"std": "var"}.get(method, method)
        if mine._formulas.get(key, mine._log) is None:
            continue
        first = 1 if isinstance(shape[0], int) else 0  # counts
        fixed, free = shape[:first], shape[first:]
        data = () if method in ("mean", "var", "std", "entropy") else (K,)

        def f(*p: Any, m: str = method, before: Any = (*data, *fixed)) -> Any:
            with np.errstate(all="ignore"):
                return np.exp(getattr(mine, m)(*before, *p))  # finite for differences

        def g(*p: Any, m: str = method, before: Any = (*data, *fixed)) -> Any:
            return getattr(mine, m)(*before, *p)

        first_order = first or (name == "nbinom" and method not in ("logpmf", "pmf"))
        check(f, *free, tol=1e-8, second=not first_order)
        got = interpret(*traced(g, *free))[0]
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(got, g(*free), rtol=1e-12, atol=1e-15, err_msg=method)


def test_derivative_of_zeta() -> None:
    mp.mp.dps = 30
    for a in (1.001, 1.5, 4.0, 30.0):
        want = -mp.log(3) - mp.diff(mp.zeta, a) / mp.zeta(a)
        assert tapec.grad(lambda a: stats.zipf.logpmf(3, a))(a) == pytest.approx(
            float(want), rel=1e-11
        )


def test_counts_are_data() -> None:
    """The derivative by a count is 0, as by the argument of ``floor``."""
    for f in (lambda k: stats.poisson.logpmf(k, 2.3), lambda k: stats.hypergeom.pmf(k, 20, 7, 12)):
        value, slope = tapec.value_and_grad(f)(3.0)
        assert slope == 0 and value == pytest.approx(f(3.0), rel=1e-12)
    with pytest.raises(NotImplementedError, match=r"test_stats.py:\d+: .*hypergeom.logpmf by M"):
        tapec.grad(lambda m: stats.hypergeom.logpmf(3, m, 7, 12))(20.0)


MULTIVARIATE: list[tuple[str, str, tuple[Any, ...]]] = [
    ("multivariate_normal", "logpdf", (X, MEAN, COV)), ("multivariate_normal", "logpdf", (X, MEAN, 2.0)),
    ("multivariate_normal", "logpdf", (MEAN, None, 2.0)), ("multivariate_normal", "logpdf", (X[0], MEAN, COV)),
    ("multivariate_normal", "pdf", (X[:, None], MEAN, ALPHA)), ("multivariate_normal", "logpdf", (0.3, 0.2, 1.5)),
    ("multivariate_normal", "entropy", (MEAN, COV)), ("multivariate_t", "logpdf", (X, MEAN, COV, 3.5)),
    ("multivariate_t", "pdf", (X[0], MEAN, COV, 3.5)), ("dirichlet", "entropy", (ALPHA,)),
    ("dirichlet", "mean", (ALPHA,)), ("dirichlet", "var", (ALPHA,)),
    ("wishart", "logpdf", (COV, 4.5, OTHER)), ("wishart", "logpdf", (np.stack([COV, OTHER], -1), 4.5, COV)),
    ("invwishart", "logpdf", (np.stack([COV, OTHER], -1), 4.5, COV)), ("invwishart", "pdf", (COV, 4.5, OTHER)),
    ("wishart", "logpdf", (1.3, 4.5, 0.7)), ("invwishart", "logpdf", (np.array([1.3, 2.0]), 4.5, 0.7)),
    ("matrix_normal", "logpdf", (X[:, :2].T @ np.ones((4, 3)), np.ones((2, 3)), SMALL, COV)),
    ("matrix_normal", "logpdf", (rng.normal(size=(5, 3, 2)), np.zeros((3, 2)), COV, SMALL)),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(MULTIVARIATE)))
def test_multivariate(case: int) -> None:
    name, method, args = MULTIVARIATE[case]
    where = [k for k, a in enumerate(args) if a is not None]

    def f(*given: Any) -> Any:
        """Matrices are kept symmetric under differences."""
        full = list(args)
        for k, v in zip(where, given):
            square = np.ndim(v) >= 2 and v.shape[0] == v.shape[1] and v is not given[0]
            full[k] = 0.5 * (v + np.swapaxes(v, 0, 1)) if square else v
        if name.endswith("wishart") and np.ndim(full[0]) >= 2:
            full[0] = 0.5 * (full[0] + np.swapaxes(full[0], 0, 1))
        return getattr(getattr(stats, name), method)(*full)

    check(f, *[args[k] for k in where], tol=1e-7, second=case in (0, 7, 12))


def test_compositions() -> None:
    """Probabilities that sum to 1: derivatives along the simplex."""

    def softmax(z: Any) -> Any:
        e = np.exp(z)
        return e / np.sum(e)

    z = np.log(P)
    check(lambda z, a: stats.dirichlet.logpdf(softmax(z), a), z, ALPHA, tol=1e-8)
    check(lambda z, a: stats.dirichlet.pdf(softmax(z)[:2], a), z, ALPHA, tol=1e-8)
    check(lambda z: stats.multinomial.logpmf(COUNTS, 6, softmax(z)), z, tol=1e-8)
    check(lambda z: stats.multinomial.pmf(COUNTS[::-1], 6, softmax(z)), z, tol=1e-8)
    check(lambda a: stats.dirichlet_multinomial.logpmf(COUNTS, a, 6), ALPHA, tol=1e-8)
    assert tapec.jit(lambda p: stats.multinomial.logpmf(COUNTS, 7, p))(P) == -np.inf
    assert np.isnan(tapec.jit(lambda p: stats.multinomial.logpmf(COUNTS, 6, p))(0.9 * P))


# -- edges ----------------------------------------------------------------------------------------

BOUNDED = [
    ("gamma", (2.3,)), ("gamma", (1.0,)), ("beta", (2.5, 1.7)), ("beta", (1.0, 1.0)), ("expon", ()),
    ("uniform", ()), ("lognorm", (0.8,)), ("weibull_min", (1.0,)), ("invgauss", (0.8,)), ("pareto", (2.6,)),
    ("genpareto", (-0.4,)), ("genextreme", (0.3,)), ("triang", (0.0,)), ("triang", (1.0,)), ("truncnorm", (-1.0, 3.0)),
    ("loguniform", (0.5, 3.0)), ("fisk", (2.3,)), ("levy", ()), ("powerlaw", (1.7,)), ("wrapcauchy", (0.4,)),
    ("weibull_max", (1.7,)), ("maxwell", ()), ("betaprime", (2.5, 3.7)), ("f", (3.5, 5.5)), ("halfnorm", ()),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shape"), BOUNDED)
def test_support(name: str, shape: tuple[float, ...]) -> None:
    """Outside: the value is SciPy's and every derivative 0.  At its ends: SciPy's value."""
    mine, theirs = getattr(stats, name), getattr(scipy.stats, name)
    low, high = theirs.support(*shape, 0.25, 1.5)
    ends = [v for v in (low, high) if np.isfinite(v)]
    out = np.array([v + s for v, s in zip((low, high), (-0.7, 0.7)) if np.isfinite(v)])
    for method in ("logpdf", "pdf", "cdf", "sf", "logcdf", "logsf"):
        if method[-3:] != "pdf" and mine._formulas[method] is None:
            continue

        def f(x: Any, *p: Any, m: str = method) -> Any:
            return getattr(mine, m)(x, *p)

        made, values = traced(f, out, *shape, 0.25, 1.5)
        want = getattr(theirs, method)(out, *shape, 0.25, 1.5)
        np.testing.assert_array_equal(interpret(made, values)[0], want)
        by = range(len(shape) + 3)
        if method in ("pdf", "cdf"):
            jacobians = tapec.jacfwd(f, argnums=tuple(by))(out, *shape, 0.25, 1.5)
            for j in jacobians:
                np.testing.assert_array_equal(j, 0.0)
        with np.errstate(all="ignore"):
            at_ends = getattr(theirs, method)(np.array(ends), *shape, 0.25, 1.5)
        got = interpret(*traced(f, np.array(ends), *shape, 0.25, 1.5))[0]
        known = ~np.isnan(at_ends)
        np.testing.assert_allclose(got[known], at_ends[known], rtol=1e-9, err_msg=method)


def test_invalid_parameters_are_nan() -> None:
    for name, p in (
        ("norm", (0.0, -1.0)), ("norm", (0.0, 0.0)), ("gamma", (-0.5,)), ("beta", (2.0, -1.0)), ("uniform", (0.0, -2.0)),
        ("truncnorm", (2.0, 1.0)), ("triang", (1.5,)), ("t", (0.0,)), ("genpareto", (np.inf,)), ("vonmises", (-1.0,)),
    ):  # fmt: skip
        for method in ("logpdf", "cdf", "mean"):
            x = () if method == "mean" else (0.5,)
            mine = getattr(stats, name)
            if method != "logpdf" and mine._formulas[method] is None:
                continue
            f = getattr(mine, method)
            got = interpret(*traced(lambda *p, f=f, x=x: f(*x, *p), *p))[0]
            assert np.isnan(got), (name, method)
            with np.errstate(all="ignore"):
                assert np.isnan(f(*x, *p)), (name, method)
    for name, q in (
        ("poisson", (-1.0,)),
        ("binom", (2.5, 0.3)),
        ("geom", (0.0,)),
        ("nbinom", (-1.0, 0.3)),
    ):
        mine = getattr(stats, name)
        assert np.isnan(interpret(*traced(lambda *p, f=mine.logpmf: f(2, *p), *q))[0]), name
    got = interpret(*traced(lambda q: stats.expon.ppf(q), np.array([-0.1, 0.0, 1.0, 1.1])))[0]
    np.testing.assert_array_equal(got, [np.nan, 0.0, np.inf, np.nan])
    assert np.isnan(interpret(*traced(lambda x: stats.expon.logpdf(x), np.nan))[0])


def test_tails_that_underflow() -> None:
    """Logarithms far beyond the smallest number, and their derivatives by the shape."""
    mp.mp.dps = 30
    for a, x in ((2.3, 45.0), (0.4, 1e3), (30.0, 2e3)):
        log = lambda s, x=x: mp.log(mp.gammainc(s, x, mp.inf, regularized=True))  # noqa: E731
        value, slope = tapec.value_and_grad(lambda a, x=x: stats.gamma.logsf(x, a))(a)
        assert value == pytest.approx(float(log(mp.mpf(a))), rel=1e-13)
        assert slope == pytest.approx(float(mp.diff(log, a)), rel=1e-10)
    for name, b, x in (("gennorm", 1.6, 9.0), ("gennorm", 1.6, 30.0), ("dgamma", 1.6, 30.0)):
        d = getattr(stats, name)
        value, slope = tapec.value_and_grad(lambda b, x=x, d=d: d.logsf(x, b))(b)

        def exact(b: Any, x: float = x, name: str = name) -> Any:
            a, y = (1 / b, mp.mpf(x) ** b) if name == "gennorm" else (b, x)
            return mp.log(mp.gammainc(a, y, regularized=True) / 2)

        assert value == pytest.approx(float(exact(mp.mpf(b))), rel=1e-13)
        assert slope == pytest.approx(float(mp.diff(exact, b)), rel=1e-10)
    for f, want in (
        (lambda x: stats.norm.logsf(x), float(-mp.npdf(50) / mp.ncdf(-50))), (lambda x: stats.expon.logsf(40 * x), -40.0),
        (lambda x: stats.gumbel_r.logcdf(-x / 2), -0.5 * np.exp(25.0)),
        (lambda x: stats.logistic.logsf(40 * x), -40.0),
    ):  # fmt: skip
        assert tapec.grad(f)(50.0) == pytest.approx(want, rel=1e-13)


def test_parameters_as_scipy_takes_them() -> None:
    x = np.array([0.3, 1.2])
    forms: list[Any] = [
        lambda a: stats.gamma.logpdf(x, a, 0.1, 2.0), lambda a: stats.gamma.logpdf(x, a=a, scale=2.0, loc=0.1),
        lambda a: stats.gamma(a, scale=2.0, loc=0.1).logpdf(x), lambda a: stats.gamma.logpdf(x, a, scale=2, loc=0.1),
        lambda a: stats.gamma(a=a, loc=0.1, scale=2.0).logpdf(x=x), lambda a: stats.gamma.logpdf([0.3, 1.2], a, 0.1, 2),
    ]  # fmt: skip
    for f in forms:
        np.testing.assert_allclose(interpret(*traced(f, 1.7))[0], f(1.7), rtol=1e-14)
    shapes = np.array([[1.5], [2.5], [3.5]])
    check(lambda a, s: stats.gamma.logpdf(x, a, scale=s), shapes, np.array([0.7, 1.3]), tol=1e-8)
    for wrong in (
        lambda a: stats.gamma.logpdf(a), lambda a: stats.gamma.logpdf(x, a, b=1.0),
        lambda a: stats.gamma.logpdf(x, a, 0.0, 1.0, 2.0), lambda a: stats.gamma.logpdf(x, a, a=1.0),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="gamma"):
            tapec.grad(lambda a, f=wrong: np.sum(f(a)))(1.0)
    low, high = tapec.jit(lambda s: stats.norm(1.0, s).interval(0.9))(2.0)
    np.testing.assert_allclose([low, high], scipy.stats.norm.interval(0.9, 1.0, 2.0), rtol=1e-14)
    low, high = tapec.jacfwd(lambda a, s: stats.uniform.support(a, s), argnums=1)(1.0, 2.0)
    assert (low, high) == (0.0, 1.0)


def test_errors_name_line_and_method() -> None:
    for f in (
        lambda a: stats.gompertz.mean(a), lambda a: stats.skewnorm.logcdf(a, 1.0), lambda a: stats.vonmises(a).cdf(1.0),
        lambda a: stats.gamma.rvs(a), lambda a: stats.gamma(a).rvs(), lambda a: stats.poisson.ppf(0.3, a), lambda a: stats.norm.fit(a * np.ones(3)),
    ):  # fmt: skip
        name = r"scipy.stats.\w+.(mean|logcdf|cdf|rvs|ppf|fit) has no derivative"
        with pytest.raises(NotImplementedError, match=rf"test_stats.py:\d+: {name}"):
            tapec.grad(f)(1.3)
    with pytest.raises(NotImplementedError, match="not known"):
        tapec.hessian(lambda a: stats.gamma.cdf(0.3, a))(3.0)


def test_frozen_on_plain_arguments_is_scipys() -> None:
    mine, theirs = stats.gamma(2.3, scale=1.7), scipy.stats.gamma(2.3, scale=1.7)
    assert mine.logpdf(1.2) == theirs.logpdf(1.2) and mine.stats("mvsk") == theirs.stats("mvsk")
    mine.random_state, theirs.random_state = 5, 5
    for _ in range(2):
        np.testing.assert_array_equal(mine.rvs(3), theirs.rvs(3))
    assert mine.args == (2.3,) and mine.kwds == {"scale": 1.7} and mine.dist is stats.gamma
    assert stats.norm.fit(np.array([1.0, 2.0, 4.0])) == scipy.stats.norm.fit([1.0, 2.0, 4.0])
    frozen = stats.multivariate_normal(MEAN, COV)
    np.testing.assert_array_equal(
        frozen.logpdf(X), scipy.stats.multivariate_normal(MEAN, COV).logpdf(X)
    )
    check(lambda x: frozen.logpdf(x), X, tol=1e-8, second=False)
    assert tapec.grad(lambda x: stats.norm(0.5, 2.0).logcdf(x))(0.5) == pytest.approx(
        np.sqrt(2 / np.pi) / 2
    )


# -- programs -------------------------------------------------------------------------------------


def test_maximum_likelihood() -> None:
    """Newton's method on a gamma likelihood finds what SciPy fits."""
    data = scipy.stats.gamma.rvs(2.5, scale=1.3, size=60, random_state=3)

    def loss(p: Any) -> Any:
        return -np.sum(stats.gamma(np.exp(p[0]), scale=np.exp(p[1])).logpdf(data))

    gradient, hessian = tapec.grad(loss), tapec.hessian(loss)
    p = np.array([0.5, 0.5])
    for _ in range(12):
        p = p - np.linalg.solve(hessian(p), gradient(p))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shape, _, scale = scipy.stats.gamma.fit(data, floc=0)
    np.testing.assert_allclose(np.exp(p), [shape, scale], rtol=1e-4)
    np.testing.assert_allclose(gradient(p), 0, atol=1e-9)


def test_a_model_of_frozen_distributions() -> None:
    """Censored regression: densities and survival functions in one program."""
    t = np.array([0.5, 1.2, 2.0, 3.1, 0.9])
    z = np.array([0.1, -0.4, 0.8, 0.3, -1.0])
    seen = np.array([True, True, False, True, False])

    def loss(w: Any) -> Any:
        life = stats.weibull_min(np.exp(w[2]), scale=np.exp(w[0] + w[1] * z))
        prior = stats.multivariate_normal(np.zeros(3), 4 * np.eye(3)).logpdf(w)
        return -np.sum(np.where(seen, life.logpdf(t), life.logsf(t))) - prior

    check(loss, np.array([0.3, 0.5, 0.2]), tol=1e-9)
    w = np.array([0.3, 0.5, 0.2])
    assert tapec.jit(loss)(w) == pytest.approx(loss(w), rel=1e-13)


BELL, COUNT = scipy.stats.norm(0.2, scale=2.0), scipy.stats.poisson(2.3)
CLOUD, CUSTOM = scipy.stats.multivariate_normal(MEAN, COV), scipy.stats.argus(1.3)


def test_frozen_distributions_made_by_scipy() -> None:
    """Objects of ``scipy.stats`` itself that were made outside of the traced function."""
    shifted = X + 0.1
    cases: list[tuple[Any, float]] = [
        (lambda m: np.sum(BELL.logpdf(shifted * m)), 0.7),
        (lambda m: BELL.cdf(m) * BELL.mean() + COUNT.pmf(3), 0.7),
        (lambda m: np.sum(CLOUD.logpdf(shifted * m)), 0.7),
        (lambda m: np.sum(scipy.stats.gamma(m, scale=m * m).logsf([0.3, 1.2])), 1.3),
        (lambda m: scipy.stats.multivariate_normal(m * MEAN, COV).logpdf(X[0]), 1.3),
    ]
    for f, at in cases:
        want = (f(at + 1e-5) - f(at - 1e-5)) / 2e-5
        assert tapec.grad(f)(at) == pytest.approx(want, rel=1e-8)
    with pytest.raises(NotImplementedError, match=r"test_stats.py:\d+: scipy.stats"):
        tapec.grad(lambda m: CUSTOM.logpdf(m))(0.7)
