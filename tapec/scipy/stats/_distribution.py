"""Distributions as tables of formulas, with the methods and arguments of ``scipy.stats``.

A ``Continuous`` or ``Discrete`` distribution holds formulas of its standard form (location 0,
scale 1), functions of the standardized variable and the shape parameters.  Its methods put them
together:

- where no argument is traced, a method is SciPy's own;
- parameters that SciPy calls invalid (a scale ≤ 0) give nan;
- outside of the support a density is 0 and a distribution function 0 or 1, with derivative 0; the
  formulas are computed at a point inside instead, so that no derivative becomes nan;
- a method without a formula is an ``UnsupportedError``.

From one of ``logcdf`` and ``logsf``, ``cdf`` and ``sf``, or ``cdf`` of a symmetric distribution,
the others follow without loss of digits in the tails.

>>> expon = Continuous("expon", lambda y: -y, support=(0.0, np.inf), logsf=lambda y: -y)
>>> bool(expon.sf(2.0, scale=2.0) == np.exp(-1))
True
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from tapec.errors import TapecTypeError, UnsupportedError, fail
from tapec.numpy.ufuncs import real_float
from tapec.scipy.stats._functions import log1mexp
from tapec.tape import is_traced

__all__ = [
    "REAL", "Continuous", "Discrete", "Distribution", "on_traced",
    "poisoned", "real",
]  # fmt: skip

Formula = Callable[..., Any]
_Method = TypeVar("_Method", bound=Callable[..., Any])
REAL = (-math.inf, math.inf)


def real(x: Any) -> Any:
    """An argument as real numbers: traced, a ``float``, or an array of them."""
    if is_traced(x):
        return real_float(x)
    a = np.asarray(x)
    if a.dtype.kind != "f":
        a = a.astype(float)
    return a if a.ndim else float(a)


def _certain(condition: Any) -> bool:
    """Whether a condition is known, and true everywhere."""
    return not is_traced(condition) and bool(np.all(condition))


def poisoned(valid: Any, value: Any) -> Any:
    """nan where the parameters are not valid."""
    return value if _certain(valid) else np.where(valid, value, np.nan)


def on_traced(method: _Method) -> _Method:
    """The method where an argument is traced, SciPy's elsewhere."""
    name = method.__name__

    @functools.wraps(method)
    def either(self: Distribution, *args: Any, **kwargs: Any) -> Any:
        if not is_traced(args) and not is_traced(list(kwargs.values())):
            return getattr(self.scipys(), name)(*args, **kwargs)
        with np.errstate(all="ignore"):  # branches that are not taken, of plain arguments
            return method(self, *args, **kwargs)

    return either  # type: ignore[return-value]


class Distribution:
    """What all have: a name, what SciPy has besides, and freezing."""

    def __init__(self, name: str) -> None:
        self.name = name

    def scipys(self) -> Any:
        import scipy.stats

        return getattr(scipy.stats, self.name)

    def __call__(self, *args: Any, **kwargs: Any) -> Frozen:
        """The distribution with these parameters: ``norm(mu, sigma).logpdf(x)``."""
        return Frozen(self, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "name":
            raise AttributeError(name)
        found = getattr(self.scipys(), name)
        if not callable(found):
            return found

        @functools.wraps(found)
        def plain(*args: Any, **kwargs: Any) -> Any:
            if is_traced(args) or is_traced(list(kwargs.values())):
                raise self.unsupported(name)
            return found(*args, **kwargs)

        return plain

    def __repr__(self) -> str:
        return f"<tapec.scipy.stats.{self.name}>"

    def unsupported(self, method: str) -> Exception:
        return fail(
            UnsupportedError,
            f"scipy.stats.{self.name}.{method} has no derivative here",
            "call it on plain arrays, or write its formula with NumPy and scipy.special",
        )


class Frozen:
    """A distribution with its parameters, as SciPy's frozen distributions."""

    def __init__(self, dist: Distribution, args: tuple[Any, ...], kwds: Mapping[str, Any]) -> None:
        self.dist, self.args, self.kwds = dist, args, dict(kwds)

    @functools.cached_property
    def _plain(self) -> Any:
        """SciPy's frozen distribution: its generator of random numbers has a state."""
        return self.dist.scipys()(*self.args, **self.kwds)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("dist", "args", "kwds"):
            raise AttributeError(name)
        method = getattr(type(self.dist), name, None)
        if method is not None and not name.startswith("_"):
            return functools.partial(self._call, name)
        if is_traced(self.args) or is_traced(list(self.kwds.values())):
            raise self.dist.unsupported(name)
        return getattr(self._plain, name)

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        everything = [self.args, list(self.kwds.values()), args, list(kwargs.values())]
        if not is_traced(everything):
            return getattr(self._plain, name)(*args, **kwargs)
        return getattr(self.dist, name)(*args, *self.args, **kwargs, **self.kwds)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "random_state":
            self._plain.random_state = value
        else:
            object.__setattr__(self, name, value)


def _bind(
    name: str, known: tuple[str, ...], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Parameters by name."""
    twice = [k for k in kwargs if k in known[: len(args)] or k not in known]
    if len(args) > len(known) or twice:
        raise fail(
            TapecTypeError,
            f"scipy.stats.{name} takes {', '.join(known)}; unexpected arguments: "
            f"{[*args[len(known) :], *twice]}",
        )
    found = {**dict(zip(known, args)), **kwargs}
    missing = [k for k in known if k not in found and k not in ("loc", "scale")]
    if missing:
        raise fail(TapecTypeError, f"scipy.stats.{name}: missing parameters {', '.join(missing)}")
    return {k: real(v) for k, v in found.items()}


def _names(formula: Formula) -> tuple[str, ...]:
    """The shape parameters, by the names that a formula gives them."""
    code = formula.__code__
    return code.co_varnames[1 : code.co_argcount]


def _positive(*shape: Any) -> Any:
    return functools.reduce(lambda a, b: a & b, [s > 0 for s in shape], np.True_)


def _middle(low: float, high: float) -> float:
    if math.isinf(low):
        return 0.0 if math.isinf(high) else high - 1
    return low + 1 if math.isinf(high) else (low + high) / 2


def _tails(f: dict[str, Formula | None], symmetric: bool) -> dict[str, Formula | None]:
    """``cdf``, ``sf``, ``logcdf`` and ``logsf`` from those that are given."""
    given = dict(f)
    if symmetric:
        for one, other in (("sf", "cdf"), ("logsf", "logcdf")):
            mirrored = f[other]
            if f[one] is None and mirrored is not None:
                given[one] = functools.partial(_mirror, mirrored)
    log_cdf, log_sf = given["logcdf"], given["logsf"]
    for k, same, opposite in (("cdf", log_cdf, log_sf), ("sf", log_sf, log_cdf)):
        if given[k] is None and same is not None:
            given[k] = functools.partial(_apply, np.exp, same)
        elif given[k] is None and opposite is not None:
            given[k] = functools.partial(_apply, lambda v: -np.expm1(v), opposite)
    for k, own, other in (("logcdf", "cdf", "sf"), ("logsf", "sf", "cdf")):
        here, there = given[own], given[other]
        log_there = log_sf if k == "logcdf" else log_cdf
        direct = f[own] is not None and f[other] is not None
        if given[k] is None and log_there is not None and not direct:
            given[k] = functools.partial(_apply, log1mexp, log_there)
        elif given[k] is None and here is not None and there is not None:
            given[k] = functools.partial(_log, here, there)
    return given


def _mirror(f: Formula, y: Any, *shape: Any) -> Any:
    return f(-y, *shape)


def _apply(outer: Formula, inner: Formula, y: Any, *shape: Any) -> Any:
    return outer(inner(y, *shape))


def _log(f: Formula, complement: Formula, y: Any, *shape: Any) -> Any:
    """log f, where f is near 1 through 1 - f."""
    value, rest = f(y, *shape), complement(y, *shape)
    small = value < 0.5
    near = np.log1p(-np.where(small, 0.5, rest))
    return np.where(small, np.log(np.where(small, value, 0.5)), near)


class Continuous(Distribution):
    """A continuous distribution by its formulas.

    ``log``: the log-density; its arguments name the shape parameters.  ``support``: two numbers,
    or a function of the shape; ``inside``: a point of it (a number or function).  ``open``: the
    density at the lower end is 0 though its formula is none.  ``valid``: which shapes are (those
    > 0).  ``quantile``: the inverse of ``cdf``, a function of log q and log(1 - q).  ``folded``:
    whether to take logarithms of ``cdf`` and ``sf`` (not if these lose digits by cancellation).
    """

    def __init__(
        self, name: str, log: Formula, *, support: Any = REAL, inside: Any = None,
        open: bool = False, valid: Formula = _positive, symmetric: bool = False,
        folded: bool = True, cdf: Formula | None = None, sf: Formula | None = None,
        logcdf: Formula | None = None, logsf: Formula | None = None,
        quantile: Formula | None = None, ppf: Formula | None = None, isf: Formula | None = None,
        mean: Formula | None = None, var: Formula | None = None, entropy: Formula | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name)
        self._log, self._shapes = log, _names(log)
        self._support, self._open, self._valid = support, open, valid
        self._point = _middle(*support) if inside is None else inside
        given = {"cdf": cdf, "sf": sf, "logcdf": logcdf, "logsf": logsf}
        derived = _tails(given, symmetric)
        for k in ("logcdf", "logsf"):
            if not folded and given[k] is None:
                derived[k] = None
        if symmetric and ppf is not None:
            isf = functools.partial(_apply, np.negative, ppf)
        self._formulas: dict[str, Formula | None] = {
            **derived, "quantile": quantile, "ppf": ppf, "isf": isf, "mean": mean, "var": var,
            "entropy": entropy,
        }  # fmt: skip

    # -- what the methods share

    def _parameters(self, args: Any, kwargs: Any) -> tuple[list[Any], Any, Any]:
        """Shape parameters, location, and the scale, which is nan if one of them is invalid."""
        found = _bind(self.name, (*self._shapes, "loc", "scale"), args, kwargs)
        shape = [found[k] for k in self._shapes]
        scale = found.get("scale", 1.0)
        valid = self._valid(*shape) & (scale > 0)
        return shape, found.get("loc", 0.0), poisoned(valid, scale)

    def _formula(self, name: str) -> Formula:
        found = self._formulas[name]
        if found is None:
            raise self.unsupported(name)
        return found

    def _ends(self, shape: list[Any]) -> tuple[Any, Any]:
        low, high = self._support(*shape) if callable(self._support) else self._support
        return low, high

    def _masked(
        self, f: Formula, x: Any, args: Any, kwargs: Any, below: float, above: float, open: bool
    ) -> tuple[Any, Any]:
        """``f`` of the standardized variable inside of the support; and the scale."""
        shape, loc, scale = self._parameters(args, kwargs)
        y = real(x)
        y = y if loc.__class__ is float and loc == 0 else y - loc
        y = y if scale.__class__ is float and scale == 1 else y / scale
        low, high = self._ends(shape)
        left = None if _certain(low == -np.inf) else (y <= low if open or self._open else y < low)
        right = None if _certain(high == np.inf) else (y >= high if open else y > high)
        if left is None and right is None:
            return f(y, *shape), scale
        out: Any = right if left is None else left
        if left is not None and right is not None:
            out = left | right
        point = self._point(*shape) if callable(self._point) else self._point
        value = f(np.where(out, point, y), *shape)
        if right is not None:
            value = np.where(right, above, value)
        return (value if left is None else np.where(left, below, value)), scale

    # -- densities and distribution functions

    @on_traced
    def logpdf(self, x: Any, *args: Any, **kwds: Any) -> Any:
        value, scale = self._masked(self._log, x, args, kwds, -np.inf, -np.inf, False)
        return value if scale.__class__ is float and scale == 1 else value - np.log(scale)

    @on_traced
    def pdf(self, x: Any, *args: Any, **kwds: Any) -> Any:
        return np.exp(self.logpdf(x, *args, **kwds))

    @on_traced
    def cdf(self, x: Any, *args: Any, **kwds: Any) -> Any:
        return self._masked(self._formula("cdf"), x, args, kwds, 0.0, 1.0, True)[0]

    @on_traced
    def sf(self, x: Any, *args: Any, **kwds: Any) -> Any:
        return self._masked(self._formula("sf"), x, args, kwds, 1.0, 0.0, True)[0]

    @on_traced
    def logcdf(self, x: Any, *args: Any, **kwds: Any) -> Any:
        return self._masked(self._formula("logcdf"), x, args, kwds, -np.inf, 0.0, True)[0]

    @on_traced
    def logsf(self, x: Any, *args: Any, **kwds: Any) -> Any:
        return self._masked(self._formula("logsf"), x, args, kwds, 0.0, -np.inf, True)[0]

    # -- quantiles

    def _inverse(self, name: str, q: Any, args: Any, kwds: Any) -> Any:
        shape, loc, scale = self._parameters(args, kwds)
        q = real(q)
        quantile = self._formulas["quantile"]
        if self._formulas[name] is None and quantile is not None:
            logs = np.log(q), np.log1p(-q)
            value = quantile(*(logs if name == "ppf" else logs[::-1]), *shape)
        else:
            value = self._formula(name)(q, *shape)
        return poisoned((q >= 0) & (q <= 1), value) * scale + loc

    @on_traced
    def ppf(self, q: Any, *args: Any, **kwds: Any) -> Any:
        return self._inverse("ppf", q, args, kwds)

    @on_traced
    def isf(self, q: Any, *args: Any, **kwds: Any) -> Any:
        return self._inverse("isf", q, args, kwds)

    @on_traced
    def median(self, *args: Any, **kwds: Any) -> Any:
        return self._inverse("ppf", 0.5, args, kwds)

    @on_traced
    def interval(self, confidence: Any, *args: Any, **kwds: Any) -> tuple[Any, Any]:
        rest = (1 - real(confidence)) / 2
        return self._inverse("ppf", rest, args, kwds), self._inverse("isf", rest, args, kwds)

    # -- moments

    @on_traced
    def mean(self, *args: Any, **kwds: Any) -> Any:
        shape, loc, scale = self._parameters(args, kwds)
        return self._formula("mean")(*shape) * scale + loc

    @on_traced
    def var(self, *args: Any, **kwds: Any) -> Any:
        shape, _, scale = self._parameters(args, kwds)
        return self._formula("var")(*shape) * scale * scale

    @on_traced
    def std(self, *args: Any, **kwds: Any) -> Any:
        return np.sqrt(self.var(*args, **kwds))

    @on_traced
    def entropy(self, *args: Any, **kwds: Any) -> Any:
        shape, _, scale = self._parameters(args, kwds)
        return self._formula("entropy")(*shape) + np.log(scale)

    @on_traced
    def support(self, *args: Any, **kwds: Any) -> tuple[Any, Any]:
        shape, loc, scale = self._parameters(args, kwds)
        low, high = [v if _certain(np.isinf(v)) else v * scale + loc for v in self._ends(shape)]
        return low, high


class Discrete(Distribution):
    """A discrete distribution by its formulas; the derivative by the count is 0."""

    def __init__(
        self, name: str, log: Formula, *, support: Any = (0.0, math.inf), inside: Any = None,
        valid: Formula = _positive, cdf: Formula | None = None, sf: Formula | None = None,
        logsf: Formula | None = None, mean: Formula | None = None, var: Formula | None = None,
        entropy: Formula | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name)
        self._log, self._shapes, self._support, self._valid = log, _names(log), support, valid
        self._point = inside
        derived = _tails({"cdf": cdf, "sf": sf, "logcdf": None, "logsf": logsf}, False)
        self._formulas: dict[str, Formula | None] = {
            **derived, "mean": mean, "var": var, "entropy": entropy
        }  # fmt: skip

    def _parameters(self, args: Any, kwargs: Any) -> tuple[list[Any], Any, Any]:
        found = _bind(self.name, (*self._shapes, "loc"), args, kwargs)
        shape = [found[k] for k in self._shapes]
        return shape, found.get("loc", 0.0), self._valid(*shape)

    def _masked(
        self, f: Formula | None, k: Any, args: Any, kwargs: Any, below: float, above: float, of: str
    ) -> Any:
        if f is None:
            raise self.unsupported(of)
        shape, loc, valid = self._parameters(args, kwargs)
        given = real(k)
        given = given if loc.__class__ is float and loc == 0 else given - loc
        count = np.floor(given)
        low, high = self._support(*shape) if callable(self._support) else self._support
        density = f is self._log
        left = count < low
        right = (count > high) | (given != count) if density else count >= high
        out = left | right
        if _certain(~out):
            return poisoned(valid, f(count, *shape))
        if self._point is not None:
            point = self._point(*shape)
        else:
            point = high if low == -np.inf else low
        value = np.where(right, above, f(np.where(out, point, count), *shape))
        return poisoned(valid, np.where(left, below, value))

    @on_traced
    def logpmf(self, k: Any, *args: Any, **kwds: Any) -> Any:
        return self._masked(self._log, k, args, kwds, -np.inf, -np.inf, "logpmf")

    @on_traced
    def pmf(self, k: Any, *args: Any, **kwds: Any) -> Any:
        return np.exp(self.logpmf(k, *args, **kwds))

    @on_traced
    def cdf(self, k: Any, *args: Any, **kwds: Any) -> Any:
        return self._masked(self._formulas["cdf"], k, args, kwds, 0.0, 1.0, "cdf")

    @on_traced
    def sf(self, k: Any, *args: Any, **kwds: Any) -> Any:
        return self._masked(self._formulas["sf"], k, args, kwds, 1.0, 0.0, "sf")

    @on_traced
    def logcdf(self, k: Any, *args: Any, **kwds: Any) -> Any:
        return self._masked(self._formulas["logcdf"], k, args, kwds, -np.inf, 0.0, "logcdf")

    @on_traced
    def logsf(self, k: Any, *args: Any, **kwds: Any) -> Any:
        return self._masked(self._formulas["logsf"], k, args, kwds, 0.0, -np.inf, "logsf")

    def _moment(self, name: str, args: Any, kwds: Any) -> tuple[Any, Any]:
        formula = self._formulas[name]
        if formula is None:
            raise self.unsupported(name)
        shape, loc, valid = self._parameters(args, kwds)
        return poisoned(valid, formula(*shape)), loc

    @on_traced
    def mean(self, *args: Any, **kwds: Any) -> Any:
        value, loc = self._moment("mean", args, kwds)
        return value + loc

    @on_traced
    def var(self, *args: Any, **kwds: Any) -> Any:
        return self._moment("var", args, kwds)[0]

    @on_traced
    def std(self, *args: Any, **kwds: Any) -> Any:
        return np.sqrt(self.var(*args, **kwds))

    @on_traced
    def entropy(self, *args: Any, **kwds: Any) -> Any:
        return self._moment("entropy", args, kwds)[0]

    def _none(self, name: str, *args: Any) -> Any:
        raise self.unsupported(name)

    @on_traced
    def ppf(self, q: Any, *args: Any, **kwds: Any) -> Any:
        self._none("ppf")

    @on_traced
    def isf(self, q: Any, *args: Any, **kwds: Any) -> Any:
        self._none("isf")

    @on_traced
    def median(self, *args: Any, **kwds: Any) -> Any:
        self._none("median")

    @on_traced
    def interval(self, confidence: Any, *args: Any, **kwds: Any) -> Any:
        self._none("interval")
