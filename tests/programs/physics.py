"""Particles, structures, circuits, fields, populations."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.integrate
import scipy.linalg

from programs import program
from tapec.scipy.linalg import expm, solve_banded

rng = np.random.default_rng(5)

GRID = np.array([[i, j, k] for i in (0, 1.2) for j in (0, 1.1) for k in (0, 1.3)])
ATOMS = (GRID + 0.05 * rng.normal(size=(8, 3))).ravel()


def _pairs(x: Any) -> Any:
    r = x.reshape(-1, 3)
    total = 0.0
    for i in range(len(r)):
        for j in range(i):
            d = np.linalg.norm(r[i] - r[j])
            total += 4 * (d**-12 - d**-6)
    return total


@program(ATOMS, _pairs)
def lennard_jones(x: Any) -> Any:
    r = x.reshape(-1, 3)
    i, j = np.triu_indices(len(r), k=1)
    inverse = 1.0 / np.sum((r[i] - r[j]) ** 2, axis=1)
    return np.sum(4 * (inverse**6 - inverse**3))


@program(ATOMS, _pairs)
def lennard_jones_full_matrix(x: Any) -> Any:
    r = x.reshape(-1, 3)
    d = np.linalg.norm(r[:, None] - r[None, :], axis=-1) + np.eye(len(r)) * 1e9
    return 0.5 * np.sum(4 * (d**-12 - d**-6))


NODES = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [0.5, 0.9], [1.5, 0.9]])
BARS = [(0, 1), (1, 2), (0, 3), (1, 3), (1, 4), (2, 4), (3, 4)]


@program(np.full(7, 0.3) + 0.05 * np.arange(7))
def truss_compliance(areas: Any) -> Any:
    stiffness = np.zeros((10, 10))
    for area, (a, b) in zip(areas, BARS):
        d = NODES[b] - NODES[a]
        length = np.hypot(*d)
        v = np.zeros(10)
        v[2 * a : 2 * a + 2], v[2 * b : 2 * b + 2] = -d / length, d / length
        stiffness = stiffness + area / length * np.outer(v, v)
    free = [2, 3, 4, 6, 7, 8, 9]
    load = np.zeros(7)
    load[1] = -1.0
    return load @ np.linalg.solve(stiffness[np.ix_(free, free)], load)


@program(NODES[3:].ravel())
def spring_network(x: Any) -> Any:
    nodes = np.concatenate([NODES[:3], x.reshape(2, 2)])
    i, j = np.array(BARS).T
    lengths = np.sqrt(((nodes[i] - nodes[j]) ** 2).sum(-1))
    return 0.5 * np.sum((lengths - 0.8) ** 2) + 0.1 * nodes[:, 1].sum()


def _circuit_phasor(p: Any) -> Any:
    r, l, c = np.exp(p)
    omega = 1.3
    z = r + 1j * omega * l + 1 / (1j * omega * c)
    return abs(1 / z)


@program([0.1, 0.4, -0.3], _circuit_phasor)
def resonant_circuit(p: Any) -> Any:
    """Nodal analysis in real arithmetic."""
    r, l, c = np.exp(p)
    omega = 1.3
    reactance = omega * l - 1 / (omega * c)
    system = np.array([[r, -reactance], [reactance, r]])
    current = np.linalg.solve(system, np.array([1.0, 0.0]))
    return np.hypot(current[0], current[1])


@program([0.2, -0.1])
def diode_circuit(p: Any) -> Any:
    """Newton's method for the voltage of a diode in series with a resistor."""
    resistance, saturation = np.exp(p[0]), 1e-3 * np.exp(p[1])
    v = 0.3
    for _ in range(12):
        f = saturation * np.expm1(v / 0.2) - (1.0 - v) / resistance
        v = v - f / (saturation / 0.2 * np.exp(v / 0.2) + 1 / resistance)
    return v


def _heat_spectral(p: Any) -> Any:
    n, dx = 8, 1 / 9
    lap = (np.diag(np.ones(7), 1) + np.diag(np.ones(7), -1) - 2 * np.eye(n)) / dx**2
    step = np.linalg.inv(np.eye(n) - 0.01 * np.exp(p[0]) * lap)
    u = np.linalg.matrix_power(step, 6) @ p[1:]
    return u @ u


HEAT = np.concatenate([[-1.0], np.sin(np.arange(8))])


@program(HEAT, _heat_spectral)
def heat_equation_tridiagonal(p: Any) -> Any:
    """Implicit steps by the Thomas algorithm, written in place."""
    u, k = p[1:], 0.01 * np.exp(p[0]) * 81
    for _ in range(6):
        diag, rhs = [1 + 2 * k], [u[0]]
        for i in range(1, 8):
            w = -k / diag[i - 1]
            diag.append(1 + 2 * k + w * k)
            rhs.append(u[i] - w * rhs[i - 1])
        new = [rhs[7] / diag[7]]
        for i in range(6, -1, -1):
            new.append((rhs[i] + k * new[-1]) / diag[i])
        u = np.stack(new[::-1])
    return np.dot(u, u)


@program(HEAT, _heat_spectral)
def heat_equation_banded(p: Any) -> Any:
    k = 0.01 * np.exp(p[0]) * 81
    bands = np.array([[-1.0], [2.0], [-1.0]]) * k * np.ones(8) + np.array([[0.0], [1.0], [0.0]])
    u = p[1:]
    for _ in range(6):
        u = solve_banded((1, 1), bands, u)
    return np.sum(u**2)


@program(0.5 + 0.1 * rng.normal(size=12))
def wave_equation_stencil(u0: Any) -> Any:
    u, before = u0, u0
    for _ in range(10):
        after = np.copy(u)
        after[1:-1] = 2 * u[1:-1] - before[1:-1] + 0.3 * (u[2:] - 2 * u[1:-1] + u[:-2])
        after[0] = 0.0
        after[-1] = after[-2]
        before, u = u, after
    return np.sum(u**2)


DAYS = np.array([2.0, 5.0, 9.0, 14.0, 20.0, 25.0, 18.0, 12.0])


def _sir_scipy(p: Any) -> Any:
    beta, gamma = np.exp(p)

    def rhs(t: Any, y: Any) -> Any:
        return [-beta * y[0] * y[1], beta * y[0] * y[1] - gamma * y[1]]

    out = scipy.integrate.solve_ivp(
        rhs, (0, 8), [0.98, 0.02], t_eval=np.arange(1, 9), rtol=1e-11, atol=1e-13
    )
    return np.sum((100 * out.y[1] - DAYS) ** 2)


@program([0.0, -1.2], _sir_scipy, 1e-5)
def epidemic_fit(p: Any) -> Any:
    """Runge-Kutta steps of a day's tenth."""
    beta, gamma = np.exp(p)

    def rhs(y: Any) -> Any:
        infections = beta * y[0] * y[1]
        return np.array([-infections, infections - gamma * y[1]])

    y, loss, h = np.array([0.98, 0.02]), 0.0, 0.1
    for day in range(8):
        for _ in range(10):
            k1 = rhs(y)
            k2 = rhs(y + h / 2 * k1)
            k3 = rhs(y + h / 2 * k2)
            k4 = rhs(y + h * k3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        loss += (100 * y[1] - DAYS[day]) ** 2
    return loss


@program(0.5 * rng.normal(size=3 * 4 + 4 + 4 * 3))
def neural_ode(p: Any) -> Any:
    w1, b1, w2 = p[:12].reshape(4, 3), p[12:16], p[16:].reshape(3, 4)
    y = np.array([0.5, -0.2, 0.1])
    for _ in range(8):
        mid = y + 0.05 * (w2 @ np.tanh(w1 @ y + b1))
        y = y + 0.1 * (w2 @ np.tanh(w1 @ mid + b1))
    return np.sum((y - np.array([1.0, 0.0, -1.0])) ** 2)


def _regulator_are(k: Any) -> Any:
    a, b = np.array([[1.0, 0.1], [0.0, 1.0]]), np.array([[0.0], [0.1]])
    closed = a - b @ k.reshape(1, 2)
    weight = np.eye(2) + k.reshape(2, 1) @ k.reshape(1, 2)
    start, total = np.array([1.0, 0.0]), 0.0
    for t in range(30):
        x = np.linalg.matrix_power(closed, t) @ start
        total += x @ weight @ x
    return total


@program([1.2, 1.9], _regulator_are)
def lqr_rollout(k: Any) -> Any:
    x, v, cost = 1.0, 0.0, 0.0
    for _ in range(30):
        force = -(k[0] * x + k[1] * v)
        cost += x**2 + v**2 + force**2
        x, v = x + 0.1 * v, v + 0.1 * force
    return cost


def _two_species(p: Any) -> Any:
    """Closed form of a chain A → B → C."""
    a, b = np.exp(p)
    return a / (b - a) * (np.exp(-a * 2.0) - np.exp(-b * 2.0))


@program([-0.3, 0.4], _two_species)
def reaction_chain_by_expm(p: Any) -> Any:
    a, b = np.exp(p)
    rates = np.array([[-a, 0.0, 0.0], [a, -b, 0.0], [0.0, b, 0.0]])
    return (expm(2.0 * rates) @ np.array([1.0, 0.0, 0.0]))[1]


SITES = rng.integers(0, 4, size=(10, 3))


def _jukes_cantor(p: Any) -> Any:
    same = 0.25 + 0.75 * np.exp(-4 / 3 * np.exp(p))
    total = 0.0
    for site in SITES:
        total += np.log(
            sum(0.25 * np.prod(np.where(site == root, same, (1 - same) / 3)) for root in range(4))
        )
    return total


@program([-1.0, -0.5, -1.5], _jukes_cantor)
def phylogenetic_likelihood(p: Any) -> Any:
    """Three leaves at a root; transition chances by the exponential of the rates."""
    rates = np.full((4, 4), 1 / 3) - 4 / 3 * np.eye(4)
    chances = expm(np.exp(p)[:, None, None] * rates)
    partial = np.ones((10, 4))
    for leaf in range(3):
        partial = partial * chances[leaf][:, SITES[:, leaf]].T
    return np.sum(np.log(partial @ np.full(4, 0.25)))


DEPTHS = np.array([0.3, 0.5, 0.8, 0.4])


def _layers_closed(p: Any) -> Any:
    source, tau = np.exp(p), np.cumsum(DEPTHS[::-1])[::-1]
    after = np.append(tau[1:], 0.0)
    return np.sum(source * (np.exp(-after) - np.exp(-tau))) + 2.0 * np.exp(-tau[0])


@program([0.1, 0.3, -0.2, 0.4], _layers_closed)
def radiative_transfer(p: Any) -> Any:
    intensity = 2.0
    for source, depth in zip(np.exp(p), DEPTHS):
        intensity = intensity * np.exp(-depth) + source * (1 - np.exp(-depth))
    return intensity


@program(0.1 * rng.normal(size=6) + np.arange(6) * 0.2)
def coupled_pendulum_energy_drift(q: Any) -> Any:
    """Leapfrog, with forces of a chain."""
    x, v = q[:3], q[3:]
    stiffness = 2 * np.eye(3) - np.eye(3, k=1) - np.eye(3, k=-1)
    for _ in range(15):
        v = v - 0.05 * (np.sin(x) + stiffness @ x)
        x = x + 0.1 * v
        v = v - 0.05 * (np.sin(x) + stiffness @ x)
    return 0.5 * v @ v + np.sum(1 - np.cos(x)) + 0.5 * x @ stiffness @ x
