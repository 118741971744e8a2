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


def rosenbrock(x: Any) -> Any:
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def laplace(u: Any) -> Any:
    """Five points on a square grid, with a non-linear source."""
    v = np.pad(u.reshape(SIDE, SIDE), 1)
    inner = v[1:-1, 1:-1]
    near = v[:-2, 1:-1] + v[2:, 1:-1] + v[1:-1, :-2] + v[1:-1, 2:]
    return (4 * inner - near + np.exp(inner)).reshape(-1)


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


def report(name: str, fn: Callable[..., Any], derive: Any, x: np.ndarray) -> None:
    primal = tapec.jit(fn)
    once, whole = best(lambda: primal(x)), best(lambda: derive(x))
    values = best(lambda: derive.values(x))
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
    report(
        f"grid Jacobian, {SIDE}×{SIDE}", laplace, tapec.sparse_jacobian(laplace),
        rng.normal(size=SIDE * SIDE),
    )  # fmt: skip


if __name__ == "__main__":
    main()
