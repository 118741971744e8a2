"""Distribution functions inverted for a parameter: differences of SciPy's own, all modes; and
that steps in whole parameters are steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special as sp
from surface import check, check_value

import tapec

CASES: list[tuple[str, tuple[Any, ...]]] = [
    ("btdtria", (0.4, 1.5, 0.3)), ("btdtria", (0.9, 2.0, 0.8)), ("btdtrib", (1.5, 0.4, 0.3)),
    ("bdtrik", (0.6, 7.0, 0.4)), ("bdtrin", (2.0, 0.4, 0.4)), ("nbdtrik", (0.6, 3.0, 0.4)),
    ("nbdtrin", (2.0, 0.4, 0.4)), ("gdtria", (0.4, 1.5, 2.0)), ("gdtrib", (1.2, 0.4, 2.0)),
    ("chdtriv", (0.4, 3.0)), ("pdtrik", (0.7, 3.0)), ("stdtridf", (0.81, 1.05)),
    ("nrdtrimn", (0.3, 1.2, 0.5)), ("nrdtrisd", (0.3, 0.7, 0.9)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args"), CASES)
def test_inverses(name: str, args: tuple[Any, ...]) -> None:
    f = getattr(sp, name)
    arrays = [np.array([a, a * 1.01]) for a in args]
    check_value(lambda *xs: f(*xs), *arrays, rtol=1e-9)
    forward = {
        "btdtria": (0, lambda z, p, b, x: sp.betainc(z, b, x)),
        "btdtrib": (1, lambda z, a, p, x: sp.betainc(a, z, x)),
        "bdtrik": (0, lambda z, y, n, p: sp.betainc(n - z, z + 1, 1 - p)),
        "bdtrin": (1, lambda z, k, y, p: sp.betainc(z - k, k + 1, 1 - p)),
        "nbdtrik": (0, lambda z, y, n, p: sp.betainc(n, z + 1, p)),
        "nbdtrin": (1, lambda z, k, y, p: sp.betainc(z, k + 1, p)),
        "gdtria": (0, lambda z, p, b, x: sp.gammainc(b, z * x)),
        "gdtrib": (1, lambda z, a, p, x: sp.gammainc(z, a * x)),
        "chdtriv": (0, lambda z, p, x: sp.gammainc(z / 2, x / 2)),
        "pdtrik": (0, lambda z, p, m: sp.gammaincc(z + 1, m)),
        "stdtridf": (0, lambda z, p, t: sp.stdtr(z, t)),
        "nrdtrimn": (0, lambda z, p, s, x: sp.ndtr((x - z) / s)),
        "nrdtrisd": (1, lambda z, m, p, x: sp.ndtr((x - m) / z)),
    }[name]
    place, inverted = forward
    wrt = tuple(range(len(args)))
    level = tapec.grad(lambda *xs: inverted(f(*xs), *xs), argnums=wrt)(*args)
    # the function of its inverse is the level: derivative 1 by it, 0 by the rest
    want = [float(k == place) for k in wrt]
    scale = 1 + max(abs(v) for v in tapec.grad(lambda *xs: f(*xs), argnums=wrt)(*args))
    np.testing.assert_allclose(level, want, atol=1e-9 * scale)
    assert inverted(f(*args), *args) == pytest.approx(args[place], rel=1e-8)


def test_quantiles_of_tukey_and_wright() -> None:
    check(lambda x: sp.tklmbda(x, 0.7), np.array([-0.3, 0.2, 0.9]), rtol=1e-9, tol=1e-6)
    x = np.array([0.3, 1.2, 2.5])
    check(lambda x: sp.log_wright_bessel(0.5, 1.5, x), x, rtol=1e-9, tol=1e-6)
    with pytest.raises(NotImplementedError, match="not known"):
        tapec.grad(lambda a: sp.tklmbda(0.3, a))(0.7)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "args"),
    [("nbdtr", (2.5, 5.5, 0.3)), ("nbdtrc", (2.5, 5.5, 0.3)), ("bdtri", (2.5, 5.5, 0.3)),
     ("nbdtri", (2.5, 5.5, 0.3)), ("pdtri", (2.5, 0.3)), ("bdtr", (2.5, 5.5, 0.3)),
     ("bdtrc", (2.5, 5.5, 0.3)), ("bdtr", (2.0, 5.0, 0.3)), ("pdtr", (2.5, 0.3))],
)  # fmt: skip
def test_whole_parameters(name: str, args: tuple[float, ...]) -> None:
    """SciPy takes the whole part; between whole numbers nothing changes."""
    f = getattr(sp, name)
    assert tapec.jit(lambda *xs: f(*xs))(*args) == pytest.approx(f(*args), rel=1e-12)
    wrt = tuple(range(len(args) - 1))
    assert tapec.grad(lambda *xs: f(*xs), argnums=wrt)(*args) == (0.0,) * len(wrt)
