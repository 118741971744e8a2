"""Loops: Lorenz in plain Python and with ``scan``, recurrences against Numba and JAX's scan.

    python benchmarks/loops.py [--quick]

Lorenz: the first gradient of 1,000 steps of RK4 (trace, differentiate, compile), a call
afterwards, and the workspace of 100,000 steps with checkpoints.  Branches: a function with
2^12 paths against one without branches.  Recurrences: the time of the
value (and of value and gradient), in units of a loop by hand compiled with Numba, and JAX's
``lax.scan`` in units of ours.  Best of many calls, one thread.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tapec

SIGMA, RHO, BETA, STEP = 10.0, 28.0, 8.0 / 3.0, 0.01


def best(call: Callable[[], Any], seconds: float) -> float:
    """The least time of one call."""
    found, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        found = min(found, time.perf_counter() - start)
    return found


# -- Lorenz -----------------------------------------------------------------------------------


def slope(v: Any) -> Any:
    x, y, z = v[0], v[1], v[2]
    return np.array([SIGMA * (y - x), x * (RHO - z) - y, x * y - BETA * z])


def rk4(v: Any) -> Any:
    a = slope(v)
    b = slope(v + 0.5 * STEP * a)
    c = slope(v + 0.5 * STEP * b)
    d = slope(v + STEP * c)
    return v + STEP / 6.0 * (a + 2.0 * b + 2.0 * c + d)


def lorenz(v: Any, steps: int = 1000) -> Any:
    for _ in range(steps):
        v = rk4(v)
    return np.sum(v * v)


def lorenz_scan(v: Any, steps: int = 1000, **options: Any) -> Any:
    v, _ = tapec.scan(lambda v, _: (rk4(v), None), v, length=steps, **options)
    return np.sum(v * v)


def run_lorenz(seconds: float) -> None:
    v = np.array([1.0, 1.0, 1.0])
    print("Lorenz, RK4, value and gradient")
    for name, f in (
        ("plain Python, 1,000 steps", lorenz),
        ("tapec.scan, 1,000 steps", lorenz_scan),
    ):
        tapec.clear_caches()
        g = tapec.value_and_grad(f)
        start = time.perf_counter()
        g(v)
        first = time.perf_counter() - start
        steady = best(lambda: g(v), seconds)
        print(f"  {name:<28} first {1e3 * first:6.0f} ms   steady {1e6 * steady:6.1f} µs")
    for checkpoint in ("sqrt", "16 kB"):
        long = tapec.value_and_grad(lambda v, c=checkpoint: lorenz_scan(v, 100_000, checkpoint=c))
        long(v)
        steady = best(lambda: long(v), seconds)
        workspace = long.stats().workspace_bytes
        print(
            f"  100,000 steps, checkpoint={checkpoint!r:<8} workspace {workspace / 1e3:6.1f} kB"
            f"   steady {1e3 * steady:.2f} ms ({1e9 * steady / 1e5:.0f} ns a step)"
        )


# -- branches ---------------------------------------------------------------------------------


def branches(x: Any) -> Any:
    s = 0.0
    for k in range(12):
        if x[k] > 0:
            s = s + x[k] ** 2
        else:
            s = s - 3 * x[k]
    return s


def branch_free(x: Any) -> Any:
    s = 0.0
    for k in range(12):
        s = s + x[k] ** 2 - 3 * x[k]
    return s


def run_branches() -> None:
    points = np.random.default_rng(0).normal(size=(10_000, 12))

    def all_points(g: Any) -> float:
        start = time.perf_counter()
        for x in points:
            g(x)
        return (time.perf_counter() - start) / len(points)

    g, free = tapec.value_and_grad(branches), tapec.value_and_grad(branch_free)
    first, first_free = all_points(g), all_points(free)
    steady = min(all_points(g) for _ in range(5))
    steady_free = min(all_points(free) for _ in range(5))
    print("12 independent sign branches, 10,000 random points, value and gradient")
    print(
        f"  {g.stats().compiles} compilations; per call {1e6 * first:.2f} µs compilations included "
        f"(branch-free {1e6 * first_free:.2f}), afterwards {1e9 * steady:.0f} ns = "
        f"{steady / steady_free:.2f} branch-free"
    )


# -- recurrences ------------------------------------------------------------------------------


def reward_to_go(x: Any) -> Any:
    return tapec.scan(lambda y, v: (v + 0.99 * y,) * 2, 0.0, x, reverse=True)[1]


def tridiagonal(a: Any, b: Any, c: Any, d: Any) -> Any:
    """Thomas' algorithm: a below, b on and c above the diagonal."""

    def down(state: Any, row: Any) -> Any:
        p, q = state
        ai, bi, ci, di = row
        m = 1.0 / (bi - ai * p)
        p, q = ci * m, (di - ai * q) * m
        return (p, q), (p, q)

    _, (p, q) = tapec.scan(down, (0.0, 0.0), (a, b, c, d))

    def up(x: Any, row: Any) -> Any:
        x = row[1] - row[0] * x
        return x, x

    return tapec.scan(up, 0.0, (p, q), reverse=True)[1]


def moving_average(x: Any) -> Any:
    return tapec.scan(lambda s, v: (0.9 * s + 0.1 * v,) * 2, 0.0, x)[1]


def hmm_forward(pi: Any, A: Any, B: Any) -> Any:
    """Log likelihood of observations with likelihoods ``B`` (one row each)."""

    def step(state: Any, row: Any) -> Any:
        alpha, total = state
        alpha = (alpha @ A) * row
        scale = np.sum(alpha)
        return (alpha / scale, total + np.log(scale)), None

    first = pi * B[0]
    scale = np.sum(first)
    (_, total), _ = tapec.scan(step, (first / scale, np.log(scale)), B[1:])
    return total


def numba_versions() -> dict[str, Any]:
    from numba import njit

    @njit
    def reward_to_go(x: Any) -> Any:
        out = np.empty_like(x)
        y = 0.0
        for t in range(len(x) - 1, -1, -1):
            y = x[t] + 0.99 * y
            out[t] = y
        return out

    @njit
    def tridiagonal(a: Any, b: Any, c: Any, d: Any) -> Any:
        n = len(a)
        p, q, out = np.empty(n), np.empty(n), np.empty(n)
        u = v = 0.0
        for i in range(n):
            m = 1.0 / (b[i] - a[i] * u)
            u, v = c[i] * m, (d[i] - a[i] * v) * m
            p[i] = u
            q[i] = v
        x = 0.0
        for i in range(n - 1, -1, -1):
            x = q[i] - p[i] * x
            out[i] = x
        return out

    @njit
    def moving_average(x: Any) -> Any:
        out = np.empty_like(x)
        s = 0.0
        for t in range(len(x)):
            s = 0.9 * s + 0.1 * x[t]
            out[t] = s
        return out

    @njit
    def hmm_forward(pi: Any, A: Any, B: Any) -> Any:
        n, k = B.shape
        alpha, new, total = np.empty(k), np.empty(k), 0.0
        for t in range(n):
            scale = 0.0
            for j in range(k):
                if t == 0:
                    s = pi[j]
                else:
                    s = 0.0
                    for i in range(k):
                        s += alpha[i] * A[i, j]
                s *= B[t, j]
                new[j] = s
                scale += s
            for j in range(k):
                alpha[j] = new[j] / scale
            total += np.log(scale)
        return total

    return dict(locals())


def jax_versions() -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    from jax import lax

    jax.config.update("jax_enable_x64", True)

    def reward_to_go(x: Any) -> Any:
        return lax.scan(lambda y, v: (v + 0.99 * y,) * 2, 0.0, x, reverse=True)[1]

    def tridiagonal(a: Any, b: Any, c: Any, d: Any) -> Any:
        def down(state: Any, row: Any) -> Any:
            p, q = state
            ai, bi, ci, di = row
            m = 1.0 / (bi - ai * p)
            p, q = ci * m, (di - ai * q) * m
            return (p, q), (p, q)

        _, (p, q) = lax.scan(down, (0.0, 0.0), (a, b, c, d))

        def up(x: Any, row: Any) -> Any:
            x = row[1] - row[0] * x
            return x, x

        return lax.scan(up, 0.0, (p, q), reverse=True)[1]

    def moving_average(x: Any) -> Any:
        return lax.scan(lambda s, v: (0.9 * s + 0.1 * v,) * 2, 0.0, x)[1]

    def hmm_forward(pi: Any, A: Any, B: Any) -> Any:
        def step(state: Any, row: Any) -> Any:
            alpha, total = state
            alpha = (alpha @ A) * row
            scale = jnp.sum(alpha)
            return (alpha / scale, total + jnp.log(scale)), None

        first = pi * B[0]
        scale = jnp.sum(first)
        (_, total), _ = lax.scan(step, (first / scale, jnp.log(scale)), B[1:])
        return total

    made = dict(locals())
    out = {}
    for name in CASES:
        f = made[name]
        out[name] = jax.jit(f)
        out["grad " + name] = jax.jit(jax.value_and_grad(lambda *args, f=f: jnp.sum(f(*args))))
    return out


CASES = {
    "reward_to_go": (reward_to_go, 100_000),
    "tridiagonal": (tridiagonal, 10_000),
    "moving_average": (moving_average, 100_000),
    "hmm_forward": (hmm_forward, 5_000),
}


def arguments(name: str, n: int) -> list[Any]:
    rng = np.random.default_rng(0)
    if name == "tridiagonal":
        a, c = rng.uniform(-1, 0, (2, n))
        return [a, rng.uniform(2, 3, n), c, rng.normal(size=n)]
    if name == "hmm_forward":
        A = rng.uniform(0.1, 1, (8, 8))
        return [np.full(8, 1 / 8), A / A.sum(1, keepdims=True), rng.uniform(0.1, 1, (n, 8))]
    return [rng.normal(size=n)]


def run_recurrences(seconds: float) -> None:
    hand, peer = numba_versions(), None
    try:
        peer = jax_versions()
    except ImportError:
        print("JAX is not installed")
    print("Recurrences: times, and ours in units of Numba, JAX in units of ours")
    for name, (f, n) in CASES.items():
        args = arguments(name, n)
        ours = tapec.jit(f)
        both = tapec.value_and_grad(lambda *args, f=f: np.sum(f(*args)))
        right = hand[name](*args)
        np.testing.assert_allclose(ours(*args), right, rtol=1e-10)
        both(*args)
        # in turns, so that a change of the machine's speed meets all of them
        times: dict[str, float] = {}
        for _ in range(3):
            runs = {"numba": lambda: hand[name](*args), "value": lambda: ours(*args),
                    "grad": lambda: both(*args)}  # fmt: skip
            if peer is not None:
                import jax

                jargs = [jax.numpy.asarray(a) for a in args]
                np.testing.assert_allclose(peer[name](*jargs), right, rtol=1e-10)
                runs["jax"] = lambda: jax.block_until_ready(peer[name](*jargs))
                runs["jax grad"] = lambda: jax.block_until_ready(peer["grad " + name](*jargs))
                runs["jax grad"]()
            for key, call in runs.items():
                times[key] = min(times.get(key, 1e9), best(call, seconds / 3))
        line = (
            f"  {name:<15} n={n:<7} value {1e6 * times['value']:8.1f} µs"
            f" = {times['value'] / times['numba']:.2f} Numba"
            f"   with gradient {1e6 * times['grad']:8.1f} µs"
        )
        if peer is not None:
            line += (
                f"   JAX {times['jax'] / times['value']:.1f} ×, with gradient "
                f"{times['jax grad'] / times['grad']:.1f} ×"
            )
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the time")
    seconds = 0.1 if parser.parse_args().quick else 1.0
    tapec.grad(lambda x: x * x)(1.0)  # loads the compiler
    run_lorenz(seconds)
    run_branches()
    run_recurrences(seconds)


if __name__ == "__main__":
    main()
