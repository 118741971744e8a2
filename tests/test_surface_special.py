"""``scipy.special`` and log-densities on traced values: values, derivatives, edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import scipy.special as sp
import scipy.stats
from surface import check

import tapec
from tapec.scipy import special as ts
from tapec.scipy import stats

rng = np.random.default_rng(3)
X = np.array([0.3, 1.2, 2.5])
U = np.array([0.2, 0.5, 0.7])
R = rng.normal(size=6)
Case = tuple[Callable[..., Any], tuple[Any, ...]]

POSITIVE = (
    "gammaln psi gamma rgamma erf erfc erfcx erfi dawsn ndtr log_ndtr expit log_expit entr j0 j1 y0 y1 i0 i1 i0e i1e k0 k1 k0e k1e "
    "expi exp1 ber bei ker kei berp exprel cosm1 exp10 sindg cosdg tandg cotdg cbrt exp2 expm1 log1p spence wrightomega loggamma"
)
UNIT = "erfinv erfcinv ndtri logit ellipk ellipe ellipkm1"
ORDERS = "iv jv yv kv ive kve"
PAIRS = "beta betaln xlogy xlog1py rel_entr kl_div poch boxcox boxcox1p inv_boxcox huber pseudo_huber powm1"
POLYNOMIALS = "legendre chebyt chebyu hermite hermitenorm laguerre sh_legendre chebyc"

CASES: list[Case] = [
    *[(getattr(sp, n), (X,)) for n in POSITIVE.split()], *[(getattr(sp, n), (U,)) for n in UNIT.split()],
    *[(lambda x, n=n: getattr(sp, n)(2.0, x), (X,)) for n in ORDERS.split()], *[(getattr(sp, n), (X, X[::-1] + 0.05)) for n in PAIRS.split()],
    *[(lambda x, n=n: getattr(sp, f"eval_{n}")(3, x), (X,)) for n in POLYNOMIALS.split()],
    *[(lambda x, n=n: getattr(sp, n)(x)[0] * getattr(sp, n)(x)[1], (X,)) for n in ("airy", "fresnel", "sici", "shichi")],
    (lambda a: ts.logsumexp(a, axis=1), (R.reshape(2, 3),)), (lambda a: ts.logsumexp(a, b=np.array([1.0, 2.0, 0, 1, 1, 3])), (R,)), (lambda a: ts.logsumexp(a, axis=0, keepdims=True), (R.reshape(2, 3),)),
    (lambda a, b: ts.logsumexp(a, b=b), (R, np.abs(R) + 0.1)), (lambda a: ts.softmax(a, axis=0), (R.reshape(2, 3),)), (lambda a: ts.log_softmax(a, axis=1), (R.reshape(2, 3),)),
    (lambda x: ts.polygamma(2, x), (X,)), (lambda x: ts.zeta(2.5, x), (X,)), (lambda x: ts.multigammaln(x, 2), (X + 1,)), (lambda x: ts.comb(7.5, x), (X,)), (lambda x: ts.factorial(x), (X,)), (lambda x: ts.softplus(x), (X,)),
    (lambda x: sp.chdtr(3.0, x), (X,)), (lambda x: sp.pdtr(3, x), (X,)), (lambda x: sp.fdtr(3.0, 4.0, x), (X,)), (lambda x: sp.gammaincinv(3.0, x), (U,)), (lambda x: sp.betainc(3.0, 2.0, x), (U,)), (lambda x: sp.bdtr(2.0, 5, x), (U,)),
    (lambda u: sp.ellipj(u, 0.4)[0] * sp.ellipj(u, 0.4)[2] + sp.ellipj(u, 0.4)[3], (X,)), (lambda x: sp.pbdv(1.2, x)[0] * sp.pbvv(0.7, x)[0], (X,)), (lambda x: sp.lpmv(1, 2.0, x), (U,)),
    (lambda x: sp.betainccinv(2.0, 3.0, x), (U,)), (lambda x: sp.wright_bessel(0.5, 1.5, x), (X,)), (lambda x: ts.jvp(2.0, x, 2) * ts.kvp(1.0, x), (X,)), (lambda x: ts.ivp(1.0, x), (X,)), (lambda x: ts.perm(7.5, x), (X,)),
    (lambda x: sp.bdtri(2.0, 5, x), (U,)), (lambda x: sp.fdtri(3.0, 4.0, x), (U,)), (lambda x: sp.pdtri(2.0, x), (U,)), (lambda x: sp.nbdtri(2, 5, x), (U,)), (lambda x: sp.eval_sh_jacobi(2, 3.0, 1.5, x), (U,)),
    (lambda x: sp.stdtr(4.0, x), (X,)), (lambda x: sp.hyp1f1(1.5, 2.5, x), (X,)), (lambda x: sp.hyp2f1(0.5, 1.5, 2.5, x), (U,)), (lambda x: np.i0(x), (X,)),
]  # fmt: skip


CASES += [
    *[(lambda x, n=n, d=d: getattr(ts, n)(2, x, derivative=d), (X,)) for n in ("spherical_jn", "spherical_yn", "spherical_in", "spherical_kn") for d in (False, True)],
    (lambda x: ts.riccati_jn(2, x)[1], (1.3,)), (lambda x: ts.riccati_yn(2, x)[1], (1.3,)), (lambda x: ts.lmbda(2, x)[1], (1.3,)), (lambda x: ts.assoc_laguerre(x, 3, 1.5), (X,)),
    (lambda x: ts.diric(x, 4), (np.array([0.0, 1.2, 2.5]),)), (lambda x: np.real(ts.lambertw(x)), (X,)), (lambda x: np.real(ts.lambertw(-x / 10, -1)), (X,)),
    (lambda x, y: sp.agm(x, y), (X, X[::-1] + 0.05)), (lambda x: sp.kolmogorov(x), (X,)), (lambda x: sp.kolmogorov(x), (np.array([0.1, 0.99, 1.01]),)),
]  # fmt: skip


def test_carlson_rc() -> None:
    check(lambda x, y: sp.elliprc(x, y), X, X[::-1] + 0.05, rtol=1e-11, tol=1e-6, second=False)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_special(case: int) -> None:
    fn, args = CASES[case]
    check(fn, *args, rtol=1e-11, tol=1e-6)


DENSITIES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("norm", (), {"loc": 0.3, "scale": 1.4}), ("t", (3.5,), {"loc": 0.1, "scale": 2.0}), ("gamma", (2.3,), {"scale": 1.7}), ("invgamma", (2.3,), {}), ("chi2", (3.0,), {}),
    ("beta", (2.5, 1.7), {"scale": 4.0}), ("expon", (), {"scale": 2.0}), ("uniform", (), {"scale": 5.0}), ("laplace", (0.4, 1.5), {}), ("cauchy", (), {"scale": 0.7}), ("logistic", (), {"loc": 0.5}),
    ("lognorm", (0.8,), {"scale": 1.3}), ("halfnorm", (), {}), ("weibull_min", (1.7,), {}), ("pareto", (1.5,), {"scale": 0.2}), ("gumbel_r", (), {}), ("rayleigh", (), {"scale": 1.1}), ("vonmises", (1.3,), {}), ("truncnorm", (-1.0, 3.0), {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shape", "keywords"), DENSITIES, ids=[d[0] for d in DENSITIES])
def test_log_density(name: str, shape: Any, keywords: Any) -> None:
    mine, theirs = getattr(stats, name), getattr(scipy.stats, name)
    values = [*shape, *keywords.values()]

    def density(x: Any, *parameters: Any) -> Any:
        n = len(shape)
        which = theirs if isinstance(x, np.ndarray) else mine
        return which.logpdf(x, *parameters[:n], **dict(zip(keywords, parameters[n:])))

    check(density, X, *values, rtol=1e-11, tol=1e-6)
    assert mine.logpdf(np.array([-50.0]), *shape, **keywords) == pytest.approx(
        theirs.logpdf(-50.0, *shape, **keywords), rel=1e-10
    )


def test_discrete_and_multivariate() -> None:
    k = np.array([0, 3, 1])
    for name, parameters in (
        ("poisson", (2.3,)), ("binom", (5, 0.3)), ("geom", (0.3,)), ("nbinom", (4.0, 0.4)),
    ):  # fmt: skip
        counts = k + (name == "geom")
        want = getattr(scipy.stats, name).logpmf(counts, *parameters)
        value, slope = tapec.value_and_grad(
            lambda p, n=name, c=counts, q=parameters: np.sum(
                getattr(stats, n).logpmf(c, *q[:-1], p)
            )
        )(parameters[-1])
        assert value == pytest.approx(want.sum(), rel=1e-12)
        h = 1e-6
        up, down = (
            getattr(scipy.stats, name).logpmf(counts, *parameters[:-1], parameters[-1] + s).sum()
            for s in (h, -h)
        )
        assert slope == pytest.approx((up - down) / (2 * h), rel=1e-7)
    a = rng.normal(size=(3, 3))
    cov, mean, x = a @ a.T + np.eye(3), rng.normal(size=3), rng.normal(size=(4, 3))
    f = tapec.value_and_grad(
        lambda m, c: np.sum(stats.multivariate_normal.logpdf(x, m, c)), argnums=(0, 1)
    )
    value, (by_mean, by_cov) = f(mean, cov)
    assert value == pytest.approx(scipy.stats.multivariate_normal.logpdf(x, mean, cov).sum())
    inverse, r = np.linalg.inv(cov), x - mean
    np.testing.assert_allclose(by_mean, inverse @ r.sum(0), rtol=1e-10)
    np.testing.assert_allclose(
        0.5 * (by_cov + by_cov.T), 0.5 * (inverse @ r.T @ r @ inverse - 4 * inverse), rtol=1e-8
    )


# -- edges ------------------------------------------------------------------------------------


def orders(f: Callable[..., Any], x: float, n: int) -> list[float]:
    out = []
    for _ in range(n):
        f = tapec.grad(f)
        out.append(float(f(x)))
    return out


def test_removable_singularities() -> None:
    assert orders(lambda x: np.i0(x), 0.0, 4) == pytest.approx([0, 0.5, 0, 0.375], abs=1e-14)
    assert orders(lambda x: np.i0(2 * x - 1), 0.5, 2) == pytest.approx([0, 2], abs=1e-14)
    assert tapec.grad(lambda x: np.i0(x))(1.0) == pytest.approx(float(mp.besseli(1, 1)), rel=1e-14)
    assert orders(lambda x: np.sinc(x), 0.0, 4) == pytest.approx(
        [0, -(np.pi**2) / 3, 0, np.pi**4 / 5]
    )
    assert orders(lambda x: sp.j1(x), 0.0, 3) == pytest.approx([0.5, 0, -0.375], abs=1e-14)
    assert orders(lambda x: sp.exprel(x), 0.0, 3) == pytest.approx([1 / 2, 1 / 3, 1 / 4])
    assert orders(lambda x: sp.spence(x), 1.0, 3) == pytest.approx([-1, 0.5, -2 / 3])
    assert orders(lambda x: sp.ellipk(x), 0.0, 2) == pytest.approx([np.pi / 8, np.pi * 9 / 64])
    assert orders(lambda lam: sp.boxcox(2.0, lam), 0.0, 2) == pytest.approx(
        [np.log(2) ** 2 / 2, np.log(2) ** 3 / 3]
    )
    assert orders(lambda x: sp.rgamma(x), -2.0, 1) == pytest.approx([2.0])


def test_digamma_left_of_zero() -> None:
    g = tapec.grad(lambda x: sp.psi(x))
    assert g(-16.5) == pytest.approx(9.81079781299358, rel=1e-13)
    for x in (-0.5, 2.5):
        assert g(x) == pytest.approx(float(mp.polygamma(1, x)), rel=1e-13)
    a = np.array([1e-8, 2.0])
    got = tapec.grad(lambda a: np.sum(sp.gammaln(a)) - sp.gammaln(np.sum(a)))(a)
    mp.mp.dps = 30
    want = [
        float(mp.digamma(v) - mp.digamma(mp.mpf(2) + mp.mpf(1e-8)))
        for v in (mp.mpf(1e-8), mp.mpf(2))
    ]
    assert got[0] == pytest.approx(want[0], rel=1e-12) and got[1] == pytest.approx(
        want[1], rel=1e-6
    )


def test_entropy_terms_at_zero() -> None:
    g = tapec.grad(lambda p: sp.entr(p))
    assert g(0.0) == np.inf and g(1.0) == -1.0
    assert tapec.grad(lambda x: sp.xlogy(x, 2.0))(0.0) == pytest.approx(np.log(2))
    assert tapec.grad(lambda y: sp.xlogy(0.0, y))(0.0) == 0.0
    mixed = tapec.grad(lambda x: tapec.grad(lambda y: sp.xlogy(x, y))(2.0))
    assert mixed(0.0) == 0.5


def test_logsumexp_masked_axis() -> None:
    a = np.array([[0.0, 0.0], [1000.0, -np.inf]])
    f = tapec.value_and_grad(lambda a: np.sum(ts.logsumexp(a, axis=1)))
    value, gradient = f(a)
    assert value == pytest.approx(np.log(2) + 1000)
    np.testing.assert_array_equal(gradient, [[0.5, 0.5], [1, 0]])
    low = np.array([-np.inf, -np.inf])
    value, gradient = tapec.value_and_grad(lambda a: ts.logsumexp(a))(low)
    assert value == -np.inf
    np.testing.assert_array_equal(gradient, [0, 0])


def test_far_tails() -> None:
    mp.mp.dps = 40
    for x in (-1e5, -40.0, -5.0, 0.3, 6.0, 30.0):
        hazard = mp.npdf(mp.mpf(x)) / (mp.erfc(-mp.mpf(x) / mp.sqrt(2)) / 2) if x > -1e4 else None
        want = float(hazard) if hazard is not None else -x + 1 / -x
        assert tapec.grad(lambda x: sp.log_ndtr(x))(x) == pytest.approx(want, rel=1e-12)
    for x in (0.5, 5.0, 12.0, 1e4):
        z = mp.mpf(x)
        want = (
            float(2 * z * mp.exp(z * z) * mp.erfc(z) - 2 / mp.sqrt(mp.pi))
            if x < 50
            else float(-1 / (mp.sqrt(mp.pi) * z * z))
        )
        assert tapec.grad(lambda x: sp.erfcx(x))(x) == pytest.approx(
            want, rel=1e-7 if x > 50 else 1e-12
        )


def test_incomplete_gamma_by_its_parameter() -> None:
    for a, x in ((0.4, 0.1), (1.5, 2.0), (3.0, 20.0), (30.0, 25.0)):
        want = float(mp.diff(lambda s, x=x: mp.gammainc(s, 0, x, regularized=True), a))
        assert tapec.grad(lambda a, x=x: sp.gammainc(a, x))(a) == pytest.approx(
            want, rel=1e-9, abs=1e-13
        )


def test_unknown_derivative_is_an_error() -> None:
    assert tapec.grad(lambda v, x: sp.jv(v, x), argnums=1)(2.0, 1.5) == pytest.approx(
        sp.jvp(2, 1.5)
    )
    with pytest.raises(NotImplementedError, match="not known"):
        tapec.grad(lambda v: sp.jv(v, 1.5))(2.0)
    with pytest.raises(NotImplementedError, match="not known"):
        tapec.jvp(lambda v: sp.jv(v, 1.5), (2.0,), (1.0,))


def test_float32_stays() -> None:
    x = X.astype(np.float32)
    got = tapec.grad(lambda x: np.sum(sp.gammaln(x)))(x)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, sp.psi(X), rtol=1e-5)


def test_coverage_table_is_current() -> None:
    """``docs/coverage.md`` lists what the tables hold; nothing of NumPy that has a derivative is
    missing but what needs complex numbers."""
    import importlib.util
    from pathlib import Path

    path = Path(__file__).parent.parent / "docs" / "make_coverage.py"
    spec = importlib.util.spec_from_file_location("make_coverage", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    missing = {n for n, kind in module.table("numpy").items() if kind == module.MISSING}
    assert missing - module._VALUE_ONLY <= {"roots", "row_stack"}
    assert "| `numpy` |" in module.text()
