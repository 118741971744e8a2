"""NIST's certified nonlinear regressions (StRD) with Jacobians from tapec.

The 27 data files are NIST's own (public domain).  Each model is the formula printed in its
file, in plain NumPy; the fit starts from NIST's second starting point and has to reproduce the
certified parameters to 6 significant digits.  All fits share one set of solver settings.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from scipy.optimize import least_squares

import tapec

DATA = Path(__file__).parent / "data" / "nist"
Model = Callable[..., np.ndarray]


def saturation(b, x):
    return b[0] * (1 - np.exp(-b[1] * x))


def misra1b(b, x):
    return b[0] * (1 - (1 + b[1] * x / 2) ** -2)


def misra1c(b, x):
    return b[0] * (1 - (1 + 2 * b[1] * x) ** -0.5)


def misra1d(b, x):
    return b[0] * b[1] * x * (1 + b[1] * x) ** -1


def chwirut(b, x):
    return np.exp(-b[0] * x) / (b[1] + b[2] * x)


def danwood(b, x):
    return b[0] * x ** b[1]


def bennett(b, x):
    return b[0] * (b[1] + x) ** (-1 / b[2])


def eckerle(b, x):
    return (b[0] / b[1]) * np.exp(-0.5 * ((x - b[2]) / b[1]) ** 2)


def enso(b, x):
    def wave(cosine, sine, period):
        angle = 2 * np.pi * x / period
        return cosine * np.cos(angle) + sine * np.sin(angle)

    return b[0] + wave(b[1], b[2], 12) + wave(b[4], b[5], b[3]) + wave(b[7], b[8], b[6])


def gauss(b, x):
    def peak(height, centre, width):
        return height * np.exp(-((x - centre) ** 2) / width**2)

    return b[0] * np.exp(-b[1] * x) + peak(*b[2:5]) + peak(*b[5:8])


def hahn_thurber(b, x):
    return (b[0] + b[1] * x + b[2] * x**2 + b[3] * x**3) / (
        1 + b[4] * x + b[5] * x**2 + b[6] * x**3
    )


def kirby(b, x):
    return (b[0] + b[1] * x + b[2] * x**2) / (1 + b[3] * x + b[4] * x**2)


def lanczos(b, x):
    return b[0] * np.exp(-b[1] * x) + b[2] * np.exp(-b[3] * x) + b[4] * np.exp(-b[5] * x)


def mgh09(b, x):
    return b[0] * (x**2 + x * b[1]) / (x**2 + x * b[2] + b[3])


def mgh10(b, x):
    return b[0] * np.exp(b[1] / (x + b[2]))


def mgh17(b, x):
    return b[0] + b[1] * np.exp(-x * b[3]) + b[2] * np.exp(-x * b[4])


def nelson(b, x):
    return b[0] - b[1] * x[:, 0] * np.exp(-b[2] * x[:, 1])


def rat42(b, x):
    return b[0] / (1 + np.exp(b[1] - b[2] * x))


def rat43(b, x):
    return b[0] / (1 + np.exp(b[1] - b[2] * x)) ** (1 / b[3])


def roszman(b, x):
    return b[0] - b[1] * x - np.arctan(b[2] / (x - b[3])) / np.pi


MODELS: dict[str, Model] = {
    "Bennett5": bennett,
    "BoxBOD": saturation,
    "Chwirut1": chwirut,
    "Chwirut2": chwirut,
    "DanWood": danwood,
    "ENSO": enso,
    "Eckerle4": eckerle,
    "Gauss1": gauss,
    "Gauss2": gauss,
    "Gauss3": gauss,
    "Hahn1": hahn_thurber,
    "Kirby2": kirby,
    "Lanczos1": lanczos,
    "Lanczos2": lanczos,
    "Lanczos3": lanczos,
    "MGH09": mgh09,
    "MGH10": mgh10,
    "MGH17": mgh17,
    "Misra1a": saturation,
    "Misra1b": misra1b,
    "Misra1c": misra1c,
    "Misra1d": misra1d,
    "Nelson": nelson,
    "Rat42": rat42,
    "Rat43": rat43,
    "Roszman1": roszman,
    "Thurber": hahn_thurber,
}


class Problem(NamedTuple):
    x: np.ndarray
    y: np.ndarray
    start: np.ndarray
    certified: np.ndarray
    rss: float


def load(name: str) -> Problem:
    """Read one StRD file: its header says on which lines the parameters and the data stand."""
    lines = (DATA / f"{name}.dat").read_text().splitlines()
    spans = dict(re.findall(r"(\w+) (?:Values )? *\(lines (\d+ to +\d+)\)", "\n".join(lines[:10])))

    def span(key: str) -> list[str]:
        first, last = (int(word) for word in spans[key].split(" to "))
        return lines[first - 1 : last]

    rows = np.array(
        [[float(word) for word in line.split("=")[1].split()] for line in span("Starting")]
    )
    data = np.array([[float(word) for word in line.split()] for line in span("Data")])
    (rss,) = re.findall(r"Residual Sum of Squares: +(\S+)", "\n".join(lines))
    y = np.log(data[:, 0]) if name == "Nelson" else data[:, 0]
    x = data[:, 1] if data.shape[1] == 2 else data[:, 1:]
    return Problem(np.ascontiguousarray(x), y.copy(), rows[:, 1], rows[:, 2], float(rss))


def fit(name: str) -> tuple[float, str]:
    """Digits of agreement of the worst parameter, and what the solver said."""
    problem = load(name)
    model = MODELS[name]

    def residual(b, x, y):
        return model(b, x) - y

    result = least_squares(
        residual,
        problem.start,
        jac=tapec.jacobian(residual),
        args=(problem.x, problem.y),
        method="lm",
        x_scale="jac",
        xtol=1e-15,
        ftol=1e-15,
        gtol=1e-15,
        max_nfev=20_000,
    )
    error = np.max(np.abs(result.x - problem.certified) / np.abs(problem.certified))
    digits = float(-np.log10(max(error, 1e-16)))
    return digits, f"{name}: {digits:.1f} digits, {result.nfev} evaluations, {result.message}"


@pytest.mark.parametrize("name", sorted(MODELS))
def test_file_is_read_as_nist_wrote_it(name: str) -> None:
    """The certified parameters reproduce the certified residual sum of squares."""
    problem = load(name)
    residual = MODELS[name](problem.certified, problem.x) - problem.y
    # Lanczos1 is exact data: its residuals (1e-25) are below the printed digits.
    assert np.sum(residual**2) == pytest.approx(problem.rss, rel=1e-7, abs=1e-20)


def test_27_data_sets() -> None:
    assert len(MODELS) == 27
    assert set(MODELS) == {path.stem for path in DATA.glob("*.dat")}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # trial steps overflow; the solver backs off
@pytest.mark.parametrize("name", sorted(MODELS))
def test_certified_parameters(name: str) -> None:
    digits, report = fit(name)
    print(report)
    # The worst are ENSO and Lanczos3 (6.5 and 6.4 digits): there the sum of squares is flat to
    # its last bit well before the parameters are known to more.
    assert digits >= 6, report
