"""Sparse derivatives: time per call in evaluations of the function, beside CasADi's compiled code.

python benchmarks/sparse.py            # CasADi (with gcc) is compared with where it is found
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np

import tapec

N = 100_000
SIDE = 100
CAMERAS, POINTS, OBSERVATIONS = 20, 500, 4000


def rosenbrock(x: Any) -> Any:
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def laplace(u: Any) -> Any:
    """Five points on a square grid, with a non-linear source."""
    v = np.pad(u.reshape(SIDE, SIDE), 1)
    inner = v[1:-1, 1:-1]
    near = v[:-2, 1:-1] + v[2:, 1:-1] + v[1:-1, :-2] + v[1:-1, 2:]
    return (4 * inner - near + np.exp(inner)).reshape(-1)


def arrow(x: Any) -> Any:
    """One full row and one full column: columns and rows coloured together."""
    return np.concatenate([np.array([np.sum(x**2)]), x[1:] * x[0] + x[1:] ** 3])


def bundle(p: Any, camera: Any, point: Any) -> Any:
    """Two residuals per observation, of one camera (12 numbers) and one point (3)."""
    cameras, points = p[: 12 * CAMERAS].reshape(CAMERAS, 12), p[12 * CAMERAS :].reshape(-1, 3)
    c, x = cameras[camera], points[point]
    q = np.einsum("nij,nj->ni", c[:, :9].reshape(-1, 3, 3), x) + c[:, 9:]
    return (q[:, :2] / q[:, 2:]).reshape(-1)


def collocation(z: Any) -> Any:
    """Defects of the trapezoidal rule for a controlled pendulum."""
    n = z.shape[0] // 3
    a, w, u = z[:n], z[n : 2 * n], z[2 * n :]
    rate = -np.sin(a) + u
    return np.concatenate(
        [a[1:] - a[:-1] - 0.05 * (w[1:] + w[:-1]), w[1:] - w[:-1] - 0.05 * (rate[1:] + rate[:-1])]
    )


def best(call: Callable[[], Any], repeat: int = 60, inner: int = 5) -> float:
    call()
    found = np.inf
    for _ in range(repeat):
        start = time.perf_counter()
        for _ in range(inner):
            call()
        found = min(found, (time.perf_counter() - start) / inner)
    return float(found)


def casadi_rosenbrock(x: np.ndarray, kind: str) -> Callable[[], Any] | None:
    """CasADi's Hessian, as C code compiled by gcc: arrays in, non-zeros out, no copies.

    ``kind``: MX (operations on vectors) or SX (scalars, unrolled)."""
    try:
        import casadi as ca
    except ImportError:
        return None
    if shutil.which("gcc") is None:
        return None
    s = getattr(ca, kind).sym("x", x.size)
    f = ca.sum1(100 * (s[1:] - s[:-1] ** 2) ** 2 + (1 - s[:-1]) ** 2)
    h, _ = ca.hessian(f, s)
    options = {"jit": True, "compiler": "shell", "jit_options": {"flags": ["-O3", "-march=native"]}}
    fn = ca.Function("h", [s], [h], options)
    buffer, run = fn.buffer()
    out = np.empty(fn.sparsity_out(0).nnz())
    buffer.set_arg(0, memoryview(x))
    buffer.set_res(0, memoryview(out))
    alive = fn, buffer  # their memory is used by calls

    def call() -> Any:
        assert alive
        run()
        return out

    return call


def report(name: str, fn: Callable[..., Any], derive: Any, *args: np.ndarray) -> None:
    primal = tapec.jit(fn)
    once, whole = best(lambda: primal(*args)), best(lambda: derive(*args))
    values = best(lambda: derive.values(*args))
    print(
        f"{name}: {derive.pattern.nnz:,} entries, {derive.colors} colours; function "
        f"{once * 1e6:.0f} µs, matrix {whole * 1e6:.0f} µs = {whole / once:.1f} evaluations, "
        f"values alone {values / once:.1f}"
    )


def main() -> None:
    rng = np.random.default_rng(0)
    for n, kind in ((1000, "SX"), (N, "MX")):
        x = rng.normal(size=n)
        hessian = tapec.sparse_hessian(rosenbrock)
        report(f"Rosenbrock Hessian, n = {n:,}", rosenbrock, hessian, x)
        size = hessian.pattern.nnz
        filled, value = np.empty(size), 1.0
        print(f"  writing {size:,} numbers (fill): {best(lambda: filled.fill(value)) * 1e6:.1f} µs")
        casadi = casadi_rosenbrock(x, kind)
        if casadi is None:
            print("  CasADi: not found")
            continue
        same = np.allclose(casadi(), hessian(x).data)
        theirs, ours = best(casadi), best(lambda: hessian.values(x))
        print(f"  CasADi ({kind}): {theirs * 1e6:.1f} µs, {theirs / ours:.1f} times our values; "
              f"equal: {same}")  # fmt: skip
    grid = rng.normal(size=SIDE * SIDE)
    report(f"grid, {SIDE}×{SIDE}", laplace, tapec.sparse_jacobian(laplace), grid)
    x = rng.normal(size=2000)
    report("arrow, n = 2,000", arrow, tapec.sparse_jacobian(arrow), x)
    x = rng.normal(size=1998)
    report("collocation, 1,998 variables", collocation, tapec.sparse_jacobian(collocation), x)
    seen = rng.integers(0, CAMERAS, OBSERVATIONS), rng.integers(0, POINTS, OBSERVATIONS)
    x = rng.uniform(1, 2, 12 * CAMERAS + 3 * POINTS)
    report(
        f"bundle adjustment, {OBSERVATIONS:,} observations", bundle, tapec.sparse_jacobian(bundle),
        x, *seen,
    )  # fmt: skip


if __name__ == "__main__":
    main()
