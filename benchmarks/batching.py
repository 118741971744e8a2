"""Functions of one point, mapped over many: option prices with Greeks, Hessians of a robot arm.

    python benchmarks/batching.py            # JAX and gcc are compared with where they are found

Black-Scholes: value and five Greeks of many options by ``vmap(value_and_grad(price))``, beside
JAX's own and a C loop of the closed forms on glibc's vector functions.  Robot arm: Hessians of
10,000 configurations by ``vmap(hessian(reach))``, beside a call per point.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import numpy as np

import tapec
from tapec.scipy.special import ndtr

OPTIONS = (10_000, 1_000_000)
POINTS = 10_000

HAND = """
#include <math.h>
void run(long n, const double *restrict s, const double *restrict k, const double *restrict r,
         const double *restrict v, const double *restrict t, double *restrict price,
         double *restrict ds, double *restrict dk, double *restrict dr, double *restrict dv,
         double *restrict dt) {
  for (long i = 0; i < n; i++) {
    double q = sqrt(t[i]), spread = v[i] * q;
    double d1 = (log(s[i] / k[i]) + (r[i] + 0.5 * v[i] * v[i]) * t[i]) / spread, d2 = d1 - spread;
    double n1 = 0.5 * erfc(-d1 * M_SQRT1_2), n2 = 0.5 * erfc(-d2 * M_SQRT1_2);
    double density = exp(-0.5 * d1 * d1) * 0.3989422804014327, discount = exp(-r[i] * t[i]);
    price[i] = s[i] * n1 - k[i] * discount * n2;
    ds[i] = n1;
    dk[i] = -discount * n2;
    dr[i] = k[i] * t[i] * discount * n2;
    dv[i] = s[i] * density * q;
    dt[i] = s[i] * density * v[i] / (2 * q) + r[i] * k[i] * discount * n2;
  }
}
"""


def price(s: Any, k: Any, r: Any, v: Any, t: Any) -> Any:
    """A European call by Black and Scholes."""
    spread = v * np.sqrt(t)
    d1 = (np.log(s / k) + (r + v * v / 2) * t) / spread
    return s * ndtr(d1) - k * np.exp(-r * t) * ndtr(d1 - spread)


LENGTHS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4)


def reach(q: Any) -> Any:
    """Squared distance of an arm's hand (seven joints in space) from a point."""
    x, y, z, turn, lift = 0.0, 0.0, 0.0, 0.0, 0.0
    for i, length in enumerate(LENGTHS):
        if i % 2:
            lift = lift + q[i]
        else:
            turn = turn + q[i]
        x = x + length * np.cos(lift) * np.cos(turn)
        y = y + length * np.cos(lift) * np.sin(turn)
        z = z + length * np.sin(lift)
    return (x - 1.0) ** 2 + (y - 0.5) ** 2 + (z - 2.0) ** 2


def best(*calls: Callable[[], Any], rounds: int = 25) -> list[float]:
    """The shortest time of each of some calls, which take turns."""
    found = [np.inf] * len(calls)
    for _ in range(rounds):
        for k, call in enumerate(calls):
            call()  # what the call before left in the cache is not for this one
            start = time.perf_counter()
            call()
            found[k] = min(found[k], time.perf_counter() - start)
    return found


def by_hand(args: list[Any], n: int) -> Callable[[], Any] | None:
    """The C loop, compiled with vector functions."""
    if shutil.which("gcc") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "hand.c"), Path(folder, "hand.so")
        source.write_text(HAND)
        flags = ["-O3", "-march=native", "-ffast-math", "-mprefer-vector-width=512"]
        done = subprocess.run(
            ["gcc", *flags, "-shared", "-fPIC", source, "-o", library, "-lmvec", "-lm"],
            check=False, capture_output=True,
        )  # fmt: skip
        if done.returncode:
            return None
        run = ctypes.CDLL(str(library)).run
    out = [np.empty(n) for _ in range(6)]
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in [*args, *out]]

    def call() -> Any:
        run(ctypes.c_long(n), *pointers)
        return out[0], tuple(out[1:])

    return call


def by_jax(args: list[Any]) -> Callable[[], Any] | None:
    try:
        import jax
    except ImportError:
        return None
    jax.config.update("jax_enable_x64", True)
    np_, cdf = jax.numpy, jax.scipy.special.ndtr

    def theirs(s: Any, k: Any, r: Any, v: Any, t: Any) -> Any:
        spread = v * np_.sqrt(t)
        d1 = (np_.log(s / k) + (r + v * v / 2) * t) / spread
        return s * cdf(d1) - k * np_.exp(-r * t) * cdf(d1 - spread)

    fn = jax.jit(jax.vmap(jax.value_and_grad(theirs, (0, 1, 2, 3, 4))))
    ready = [np_.asarray(a) for a in args]
    return lambda: jax.block_until_ready(fn(*ready))


def _flat(found: Any) -> list[Any]:
    value, greeks = found
    return [value, *greeks]


def black_scholes(n: int) -> None:
    rng = np.random.default_rng(0)
    bounds = ((80, 120), (80, 120), (0.01, 0.05), (0.1, 0.5), (0.2, 2))
    args = [rng.uniform(a, b, n) for a, b in bounds]
    fn = tapec.vmap(tapec.value_and_grad(price, argnums=(0, 1, 2, 3, 4)))
    others = {"C loop": by_hand(args, n), "JAX": by_jax(args)}
    for name, other in others.items():
        if other is None:
            print(f"  {name}: not found")
            continue
        pairs = zip(_flat(other()), _flat(fn(*args)))
        error = max(np.abs(np.asarray(a) - b).max() for a, b in pairs)
        print(f"  {name}: largest difference {error:.0e}")
    found = {name: call for name, call in others.items() if call is not None}
    ours, *theirs = best(lambda: fn(*args), *found.values(), rounds=25 if n > 100_000 else 300)
    print(f"Black-Scholes, {n:,} options, value and five Greeks: {ours * 1e3:.3g} ms")
    for name, seconds in zip(found, theirs):
        print(f"  {name}: {seconds * 1e3:.3g} ms; tapec / it {ours / seconds:.2f}")


def robot_arm() -> None:
    points = np.random.default_rng(1).uniform(-1, 1, (POINTS, len(LENGTHS)))
    hessian = tapec.hessian(reach)
    mapped = tapec.vmap(hessian)
    one = points[0].copy()
    mapped(points), hessian(one)
    many, few = best(lambda: mapped(points), lambda: [hessian(one) for _ in range(100)], rounds=200)
    each, scalar = many / POINTS, few / 100
    same = np.allclose(mapped(points)[17], hessian(points[17]), rtol=1e-12, atol=1e-12)
    print(f"robot arm, Hessians of {POINTS:,} configurations: {each * 1e9:.0f} ns a point, "
          f"one call {scalar * 1e9:.0f} ns; ratio {each / scalar:.2f}, equal: {same}")  # fmt: skip


if __name__ == "__main__":
    for count in OPTIONS:
        black_scholes(count)
    robot_arm()
