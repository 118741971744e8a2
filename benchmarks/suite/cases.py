"""All cases: the rows of the Targets table at the stated sizes, and the same at tiny sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from suite import adbench, basic
from suite.case import Case

__all__ = ["cases", "tiny"]

PYTHON = ("tapec", "jax", "torch", "autograd")
TAPENADE = "Tapenade's generated code is not available here: our own C by hand stands in for it"
ADBENCH = "ADBench's C++ modules are not available here: our own C by hand stands in for them"


def _rosenbrock(n: int) -> Case:
    small = n <= 100
    tools = (*PYTHON, "numpy", "numba", "c", *(("casadi", "casadi-c") if small else ()))
    return Case(
        f"rosenbrock n={n}",
        basic.rosenbrock,
        lambda: (basic.uniform(1, -1.5, 1.5, n),),
        hand="rosenbrock",
        sizes=(n,),
        tools=tools,
        peer=("numba",),
        limit=1.0 if small else 1.2,
        quick=n in (100, 10_000),
        ratio_limit=None if small else 2.5,
    )


def _hvp(n: int) -> Case:
    return Case(
        f"rosenbrock hvp n={n}",
        basic.rosenbrock,
        lambda: (basic.uniform(1, -1.5, 1.5, n), basic.uniform(2, -1, 1, n)),
        kind="hvp",
        hand="rosenbrock_hvp",
        sizes=(n,),
        tools=("tapec", "jax", "torch", "autograd", "numpy", "numba", "c"),
        peer=("c",),
        ratio_limit=None,
    )


def _speelpenning(n: int) -> Case:
    return Case(
        f"product of variables n={n}",
        basic.speelpenning,
        lambda: (basic.uniform(2, 0.99, 1.01, n),),
        hand="speelpenning",
        sizes=(n,),
        tools=(*PYTHON, "numpy", "numba", "c"),
        peer=("c",),
        quick=n == 1000,
        ratio_limit=None,
        note="value alone is one product without a chain of dependences",
    )


def _logistic(rows: int, columns: int) -> Case:
    return Case(
        f"logistic regression {rows}x{columns}",
        basic.logistic,
        lambda: basic.logistic_data(rows, columns),
        hand="logistic",
        sizes=(rows, columns),
        tools=(*PYTHON, "numpy", "c"),
        peer=("c",),
        quick=True,
    )


def _network(batch: int, widths: tuple[int, ...]) -> Case:
    return Case(
        f"network {'-'.join(map(str, widths))} batch {batch}",
        basic.network,
        lambda: basic.network_data(batch, widths),
        wrt=6,
        hand="network",
        tools=(*PYTHON, "numpy"),
        peer=("numpy",),
        limit=0.9,
        quick=True,
        ratio_limit=3.0,
    )


def _arm(kind: str) -> Case:
    return Case(
        "robot arm 7 joints" + (" hessian" if kind == "hessian" else ""),
        basic.robot_arm,
        lambda: (basic.uniform(6, -1, 1, 7),),
        kind=kind,
        hand="robot_arm" if kind == "gradient" else "",
        tools=(*PYTHON, "casadi", "casadi-c") + (("numpy",) if kind == "gradient" else ()),
        reference="numpy" if kind == "gradient" else "casadi",
        peer=("casadi-c",),
        limit=1.2,
        quick=True,
        ratio_limit=2.5 if kind == "gradient" else None,
    )


def _gmm(n: int, d: int, k: int) -> Case:
    return Case(
        f"gmm n={n} d={d} K={k}",
        adbench.gmm,
        lambda: adbench.gmm_data(n, d, k),
        wrt=3,
        hand="gmm",
        sizes=(n, d, k),
        tools=(*PYTHON, "c"),
        reference="c",
        peer=("jax", "torch", "c"),
        limit=0.6,
        note=ADBENCH,
        quick=n * d * k <= 250_000,
    )


def _lstm(layers: int, characters: int) -> Case:
    return Case(
        f"lstm l={layers} c={characters}",
        adbench.lstm,
        lambda: adbench.lstm_data(layers, characters),
        wrt=2,
        hand="lstm",
        sizes=(layers, characters, 14),
        tools=("tapec", "jax", "torch", "c"),
        reference="c",
        tolerance=1e-9,
        peer=("c",),
        note=TAPENADE,
        quick=layers == 2,
    )


def _ba(cameras: int, points: int, observations: int) -> Case:
    return Case(
        f"bundle adjustment p={observations}",
        adbench.project,
        lambda: adbench.ba_data(cameras, points, observations),
        kind="blocks",
        wrt=3,
        hand="ba",
        sizes=(observations,),
        tools=(*PYTHON, "c"),
        reference="c",
        peer=("c",),
        note=ADBENCH,
        quick=True,
        ratio_limit=None,
    )


def _hand(vertices: int, points: int) -> Case:
    return Case(
        f"hand tracking {vertices} vertices {points} points",
        adbench.hand,
        lambda: adbench.hand_data(vertices, points),
        kind="jacobian",
        hand="hand",
        sizes=(vertices, points),
        tools=("tapec", "jax", "c"),
        reference="c",
        peer=("c",),
        note=ADBENCH + "; like them it poses all vertices",
        quick=True,
        ratio_limit=None,
    )


def _black_scholes(n: int) -> Case:
    return Case(
        f"black-scholes n={n}",
        basic.black_scholes,
        lambda: basic.black_scholes_data(n),
        wrt=5,
        hand="black_scholes",
        sizes=(n,),
        tools=(*PYTHON, "numpy", "c"),
        peer=("c",),
    )


def _chain(kind: str, n: int) -> Case:
    make = basic.chain_poly if kind == "poly" else basic.chain_trans
    return Case(
        f"chain {kind} n={n}",
        make,
        lambda: (basic.uniform(11, -1, 1, n),),
        hand=f"chain_{kind}",
        sizes=(n,),
        tools=("tapec", "jax", "torch", "numpy", "c", *(("numba",) if kind == "poly" else ())),
        peer=("c",),
    )


def _lorenz(steps: int, loop: bool = False) -> Case:
    return Case(
        f"lorenz rk4 steps={steps}" + (" Python loop" if loop else ""),
        (basic.lorenz_loop if loop else basic.lorenz)(steps),
        basic.lorenz_data,
        hand="lorenz",
        sizes=(steps,),
        tools=("tapec", "c") if loop else ("tapec", "jax", "c"),
        reference="c",
        tolerance=1e-9,
        peer=("c",),
        note="not in the table of targets",
        quick=not loop,
    )


def _straight(count: int) -> Case:
    c = ("casadi-c",) if count <= 10_000 else ()
    jax = ("jax",) if count <= 1000 else ()
    return Case(
        f"straight line {count} operations",
        basic.straight(count),
        basic.straight_data,
        wrt=10,
        hand=f"straight {count}",
        tools=("tapec", "numpy", "casadi", *c, *jax),
        tolerance=1e-12,
        peer=("casadi-c",) if c else ("casadi",),
        limit=1.2 if c else 1.0,
        note="" if c else "CasADi's C does not compile within minutes: its interpreter stands in",
        quick=count == 1000,
        ratio_limit=None,
    )


#: Figures of an earlier survey of these tools: one core of a machine with AVX-512.  Orders of
#: magnitude for the reader; the ratios of the tables come from one run on one machine.
FIGURES = {
    "rosenbrock n=2": "Numba by hand 170 ns",
    "rosenbrock n=100": "Numba by hand 186 ns",
    "rosenbrock n=10000": "Numba by hand 1.43 µs",
    "rosenbrock n=1000000": "Numba by hand 175 µs",
    "rosenbrock hvp n=1000000": "C by hand 669 µs",
    "product of variables n=1000": "C by hand 1.65 µs",
    "product of variables n=100000": "C by hand 151 µs",
    "logistic regression 10000x50": "C by hand 108 µs",
    "network 784-128-64-10 batch 64": "NumPy by hand 394 µs",
    "robot arm 7 joints": "CasADi + gcc 170 ns",
    "robot arm 7 joints hessian": "CasADi + gcc 591 ns",
    "gmm n=1000 d=2 K=5": "C++ by hand 0.10 ms",
    "gmm n=1000 d=10 K=25": "JAX 1.0 ms",
    "gmm n=1000 d=20 K=50": "JAX 5.8 ms",
    "gmm n=1000 d=64 K=25": "C++ by hand 26.5 ms",
    "gmm n=1000 d=128 K=10": "JAX 16.2 ms",
    "gmm n=10000 d=10 K=25": "C++ by hand 19.7 ms",
    "gmm n=10000 d=32 K=25": "C++ by hand 67.4 ms",
    "lstm l=2 c=1024": "Tapenade + gcc 1.89 ms",
    "lstm l=4 c=1024": "Tapenade + gcc 3.74 ms",
    "bundle adjustment p=31843": "C++ by hand 3.44 ms",
    "hand tracking 544 vertices 100 points": "C++ by hand 165 µs",
    "black-scholes n=1000000": "C by hand 6.3 ms",
    "chain poly n=10000000": "C by hand 3.7 ms (another chain)",
    "chain trans n=10000000": "C by hand 39.7 ms (another chain)",
    "lorenz rk4 steps=1000": "Numba by hand 28 µs",
    "straight line 1000 operations": "CasADi + gcc 4.0 µs",
    "straight line 10000 operations": "CasADi + gcc 41 µs",
    "straight line 50000 operations": "CasADi's interpreter 976 µs",
}


def cases() -> dict[str, Case]:
    """Name → case, in the order of the table."""
    found = [_rosenbrock(n) for n in (2, 100, 10_000, 1_000_000)]
    found.append(_hvp(1_000_000))
    found += [_speelpenning(n) for n in (1000, 100_000)]
    found += [_logistic(10_000, 50), _network(64, (784, 128, 64, 10))]
    found += [_arm("gradient"), _arm("hessian")]
    found += [
        _gmm(1000, d, k) for d, k in ((2, 5), (10, 25), (20, 50), (64, 25), (128, 10))
    ]  # fmt: skip
    found += [_gmm(10_000, d, 25) for d in (10, 32)]
    found += [_lstm(layers, 1024) for layers in (2, 4)]
    found += [_ba(49, 7776, 31_843), _hand(544, 100), _black_scholes(1_000_000)]
    found += [_chain(kind, 10_000_000) for kind in ("poly", "trans")]
    found += [_lorenz(1000), _lorenz(1000, loop=True)]
    found += [_straight(count) for count in (1000, 10_000, 50_000)]
    return {case.name: replace(case, figure=FIGURES.get(case.name, "")) for case in found}


def tiny() -> dict[str, Case]:
    """The same objectives at sizes for tests."""
    found = [_rosenbrock(n) for n in (2, 37)]
    found += [_hvp(37), _speelpenning(19), _logistic(70, 5), _network(8, (12, 7, 6, 4))]
    found += [_arm("gradient"), _arm("hessian"), _gmm(30, 3, 4), _gmm(17, 1, 2), _lstm(2, 9)]
    found += [_ba(3, 5, 21), _hand(20, 7), _black_scholes(33), _chain("poly", 33)]
    found += [_chain("trans", 33), _lorenz(20), _lorenz(20, loop=True), _straight(100)]
    return {case.name: case for case in found}


def find(name: str) -> Any:
    """A case by name, of either set."""
    return (cases() | tiny())[name]
