"""``scipy.stats`` for traced values: ``from tapec.scipy import stats``.

    stats.norm.logpdf(x, loc=mu, scale=sigma)
    stats.gamma(a, scale=b).logsf(x)            # parameters bound first

Distributions with SciPy's names, methods and arguments.  A method has derivatives by ``x`` (or
``q``) and by all parameters, unless the special function it needs has none (of the degrees of
freedom in ``t.cdf``, say), which is an error when it is differentiated; methods without a
formula raise ``UnsupportedError``.  With plain arguments every method is SciPy's own, and so is
every other name.

The mechanism is in ``_distribution``, the formulas in ``_line``, ``_bounded``, ``_discrete`` and
``_multivariate``.
"""

from __future__ import annotations

from typing import Any

from tapec.scipy.stats._bounded import (
    arcsine,
    beta,
    betaprime,
    bradford,
    burr,
    burr12,
    chi,
    chi2,
    erlang,
    expon,
    exponweib,
    f,
    fisk,
    foldnorm,
    gamma,
    gibrat,
    gompertz,
    halfcauchy,
    halflogistic,
    halfnorm,
    invgamma,
    invgauss,
    invweibull,
    levy,
    loglaplace,
    lognorm,
    loguniform,
    lomax,
    maxwell,
    nakagami,
    pareto,
    powerlaw,
    rayleigh,
    reciprocal,
    rice,
    triang,
    truncexpon,
    uniform,
    weibull_max,
    weibull_min,
    wrapcauchy,
)
from tapec.scipy.stats._discrete import (
    bernoulli,
    betabinom,
    binom,
    dlaplace,
    geom,
    hypergeom,
    logser,
    nbinom,
    planck,
    poisson,
    skellam,
    zipf,
)
from tapec.scipy.stats._distribution import Frozen
from tapec.scipy.stats._line import (
    cauchy,
    dgamma,
    dweibull,
    exponnorm,
    genextreme,
    genlogistic,
    gennorm,
    genpareto,
    gumbel_l,
    gumbel_r,
    hypsecant,
    johnsonsu,
    laplace,
    laplace_asymmetric,
    loggamma,
    logistic,
    moyal,
    norm,
    skewnorm,
    t,
    truncnorm,
    vonmises,
)
from tapec.scipy.stats._multivariate import (
    dirichlet,
    dirichlet_multinomial,
    invwishart,
    matrix_normal,
    multinomial,
    multivariate_normal,
    multivariate_t,
    wishart,
)

__all__ = [
    "arcsine", "bernoulli", "beta", "betabinom", "betaprime", "binom", "bradford", "burr",
    "burr12", "cauchy", "chi", "chi2", "dgamma", "dirichlet", "dirichlet_multinomial", "dlaplace",
    "dweibull", "erlang", "expon", "exponnorm", "exponweib", "f", "fisk", "foldnorm", "gamma",
    "genextreme", "genlogistic", "gennorm", "genpareto", "geom", "gibrat", "gompertz", "gumbel_l",
    "gumbel_r", "halfcauchy", "halflogistic", "halfnorm", "hypergeom", "hypsecant", "invgamma",
    "invgauss", "invweibull", "invwishart", "johnsonsu", "laplace", "laplace_asymmetric", "levy",
    "loggamma", "logistic", "loglaplace", "lognorm", "logser", "loguniform", "lomax",
    "matrix_normal", "maxwell", "moyal", "multinomial", "multivariate_normal", "multivariate_t",
    "nakagami", "nbinom", "norm", "pareto", "planck", "poisson", "powerlaw", "rayleigh",
    "reciprocal", "rice", "skellam", "skewnorm", "t", "triang", "truncexpon", "truncnorm",
    "uniform", "vonmises", "weibull_max", "weibull_min", "wishart", "wrapcauchy", "zipf",
]  # fmt: skip


def counterpart(x: Any) -> Frozen | None:
    """A frozen distribution of SciPy's as one that takes traced values too; None for anything else.

    What it does with plain arguments is still done by ``x``, whose random numbers go on.
    """
    kind = type(x).__name__
    if kind in ("rv_continuous_frozen", "rv_discrete_frozen"):
        ours, args, kwds = globals().get(x.dist.name), x.args, x.kwds
    elif kind == "multivariate_normal_frozen":
        ours, args, kwds = multivariate_normal, (x.mean, x.cov_object), {}
    else:
        return None
    made = None if ours is None else Frozen(ours, args, kwds)
    if made is not None:
        made.__dict__["_plain"] = x
    return made


def __getattr__(name: str) -> Any:
    import scipy.stats

    return getattr(scipy.stats, name)
