"""Values and gradients by hand in C; the calling convention; compilation and calls.

Every function is ``void NAME(const double **in, double **out, const long *n)``: the arguments, the
results (value first, then the gradients), and the sizes of the case.  ``NAME_value`` computes the
value alone.  Compiled by ``gcc -O3 -march=native -ffast-math`` (vectorised libm through libmvec),
called through ctypes with pointers that are set once.

``-ffast-math`` merges the sine and cosine of one argument into a scalar sincos call, hence the
loops over blocks that keep them apart.
"""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy

__all__ = ["FLAGS", "Native", "compiler", "library"]

FLAGS = ("-O3", "-march=native", "-ffast-math", "-fPIC")

HEADER = """
#include <math.h>
#include <stdlib.h>
#include <string.h>
#define CASE(name) void name(const double *const *restrict in, double *const *restrict out, \\
                             const long *restrict n)
#define BLOCK 512
#define NEW(count) malloc((count) * sizeof(double))
"""

BASIC = r"""
CASE(rosenbrock_value) {
    const double *restrict x = in[0];
    double value = 0;
    for (long i = 0; i < n[0] - 1; i++) {
        double a = x[i + 1] - x[i] * x[i], b = 1 - x[i];
        value += 100 * a * a + b * b;
    }
    out[0][0] = value;
}

CASE(rosenbrock) {
    const double *restrict x = in[0];
    double *restrict g = out[1];
    long m = n[0];
    double value = 0, a = x[1] - x[0] * x[0], b = 1 - x[0];
    value = 100 * a * a + b * b;
    g[0] = -400 * a * x[0] - 2 * b;
    for (long i = 1; i < m - 1; i++) {
        double before = x[i] - x[i - 1] * x[i - 1];
        double a = x[i + 1] - x[i] * x[i], b = 1 - x[i];
        value += 100 * a * a + b * b;
        g[i] = 200 * before - 400 * a * x[i] - 2 * b;
    }
    g[m - 1] = 200 * (x[m - 1] - x[m - 2] * x[m - 2]);
    out[0][0] = value;
}

CASE(rosenbrock_hvp) {
    const double *restrict x = in[0], *restrict v = in[1];
    double *restrict h = out[0];
    long m = n[0];
    h[0] = (1200 * x[0] * x[0] - 400 * x[1] + 2) * v[0] - 400 * x[0] * v[1];
    for (long i = 1; i < m - 1; i++)
        h[i] = (1200 * x[i] * x[i] - 400 * x[i + 1] + 202) * v[i]
             - 400 * (x[i] * v[i + 1] + x[i - 1] * v[i - 1]);
    h[m - 1] = 200 * v[m - 1] - 400 * x[m - 2] * v[m - 2];
}

CASE(speelpenning_value) {
    double p = 1;
    for (long i = 0; i < n[0]; i++) p *= in[0][i];
    out[0][0] = p;
}

CASE(speelpenning) {
    const double *restrict x = in[0];
    double *restrict g = out[1];
    double p = 1;
    for (long i = 0; i < n[0]; i++) { g[i] = p; p *= x[i]; }
    out[0][0] = p;
    p = 1;
    for (long i = n[0] - 1; i >= 0; i--) { g[i] *= p; p *= x[i]; }
}

static double logistic_block(const double *restrict w, const double *restrict x,
                             const double *restrict y, double *restrict d, long m, long c) {
    double z[BLOCK], value = 0;
    for (long i = 0; i < m; i++) {
        double s = 0;
        for (long j = 0; j < c; j++) s += x[i * c + j] * w[j];
        z[i] = s;
    }
    for (long i = 0; i < m; i++) {
        double a = fabs(z[i]), e = exp(-a);
        value += log1p(e) + 0.5 * (a + z[i]) - y[i] * z[i];
        double p = 1 / (1 + e);
        d[i] = (z[i] > 0 ? p : 1 - p) - y[i];
    }
    return value;
}

CASE(logistic_value) {
    double value = 0, d[BLOCK];
    for (long i = 0; i < n[0]; i += BLOCK) {
        long m = n[0] - i < BLOCK ? n[0] - i : BLOCK;
        value += logistic_block(in[0], in[1] + i * n[1], in[2] + i, d, m, n[1]);
    }
    out[0][0] = value / n[0];
}

CASE(logistic) {
    double value = 0, d[BLOCK];
    double *restrict g = out[1];
    long c = n[1];
    for (long j = 0; j < c; j++) g[j] = 0;
    for (long i = 0; i < n[0]; i += 64) {  /* a block of rows stays in the L1 cache */
        long m = n[0] - i < 64 ? n[0] - i : 64;
        const double *restrict x = in[1] + i * c;
        value += logistic_block(in[0], x, in[2] + i, d, m, c);
        long r = 0;
        for (; r + 4 <= m; r += 4)
            for (long j = 0; j < c; j++)
                g[j] += d[r] * x[r * c + j] + d[r + 1] * x[(r + 1) * c + j]
                      + d[r + 2] * x[(r + 2) * c + j] + d[r + 3] * x[(r + 3) * c + j];
        for (; r < m; r++)
            for (long j = 0; j < c; j++) g[j] += d[r] * x[r * c + j];
    }
    for (long j = 0; j < c; j++) g[j] /= n[0];
    out[0][0] = value / n[0];
}

#define ROOT_HALF 0.70710678118654752440
CASE(black_scholes_value) {
    const double *restrict S = in[0], *restrict K = in[1], *restrict T = in[2];
    const double *restrict R = in[3], *restrict V = in[4];
    double value = 0;
    for (long i = 0; i < n[0]; i++) {
        double width = V[i] * sqrt(T[i]);
        double d1 = (log(S[i] / K[i]) + (R[i] + 0.5 * V[i] * V[i]) * T[i]) / width;
        double n1 = 0.5 + 0.5 * erf(d1 * ROOT_HALF), n2 = 0.5 + 0.5 * erf((d1 - width) * ROOT_HALF);
        value += S[i] * n1 - K[i] * exp(-R[i] * T[i]) * n2;
    }
    out[0][0] = value;
}

CASE(black_scholes) {
    const double *restrict S = in[0], *restrict K = in[1], *restrict T = in[2];
    const double *restrict R = in[3], *restrict V = in[4];
    double *restrict gs = out[1], *restrict gk = out[2], *restrict gt = out[3];
    double *restrict gr = out[4], *restrict gv = out[5];
    double value = 0;
    for (long i = 0; i < n[0]; i++) {
        double root = sqrt(T[i]), width = V[i] * root;
        double d1 = (log(S[i] / K[i]) + (R[i] + 0.5 * V[i] * V[i]) * T[i]) / width;
        double n1 = 0.5 + 0.5 * erf(d1 * ROOT_HALF), n2 = 0.5 + 0.5 * erf((d1 - width) * ROOT_HALF);
        double density = 0.39894228040143267794 * exp(-0.5 * d1 * d1);
        double discount = exp(-R[i] * T[i]), strike = K[i] * discount * n2, s = S[i] * density;
        value += S[i] * n1 - strike;
        gs[i] = n1;
        gk[i] = -discount * n2;
        gv[i] = s * root;
        gr[i] = T[i] * strike;
        gt[i] = s * V[i] * 0.5 / root + R[i] * strike;
    }
    out[0][0] = value;
}

CASE(chain_poly_value) {
    const double *restrict x = in[0];
    double value = 0;
    for (long i = 0; i < n[0]; i++) {
        double y = x[i];
        for (int k = 0; k < 10; k++) y = y * (1 - 0.1 * y * y) + 0.05 * x[i];
        value += y * y;
    }
    out[0][0] = value;
}

CASE(chain_poly) {
    const double *restrict x = in[0];
    double *restrict g = out[1];
    double value = 0;
    for (long i = 0; i < n[0]; i++) {
        double y = x[i], d = 1;  /* forward: one derivative */
        for (int k = 0; k < 10; k++) {
            double s = 0.1 * y * y;
            d = d * (1 - 3 * s) + 0.05;
            y = y * (1 - s) + 0.05 * x[i];
        }
        value += y * y;
        g[i] = 2 * y * d;
    }
    out[0][0] = value;
}

CASE(chain_trans_value) {
    const double *restrict x = in[0];
    double value = 0;
    for (long i = 0; i < n[0]; i++) {
        double s = sin(x[i]), t = tanh(exp(-s * s) * x[i] + 0.5 * x[i]), l = log1p(t * t);
        value += l * l;
    }
    out[0][0] = value;
}

CASE(chain_trans) {
    double value = 0, sine[BLOCK];
    for (long start = 0; start < n[0]; start += BLOCK) {
        long m = n[0] - start < BLOCK ? n[0] - start : BLOCK;
        const double *restrict x = in[0] + start;
        double *restrict g = out[1] + start;
        for (long i = 0; i < m; i++) sine[i] = sin(x[i]);
        for (long i = 0; i < m; i++) {
            double s = sine[i], c = cos(x[i]), e = exp(-s * s);
            double t = tanh(e * x[i] + 0.5 * x[i]), square = t * t, l = log1p(square);
            value += l * l;
            double d = 4 * l * t / (1 + square) * (1 - square);
            g[i] = d * (e - 2 * s * c * e * x[i] + 0.5);
        }
    }
    out[0][0] = value;
}

#define SLOPE(a, b, c, x, y, z) \
    double a = sigma * (y - x), b = x * (rho - z) - y, c = x * y - beta * z
#define STAGES \
    SLOPE(a1, b1, c1, x, y, z); \
    double x2 = x + 0.5 * h * a1, y2 = y + 0.5 * h * b1, z2 = z + 0.5 * h * c1; \
    SLOPE(a2, b2, c2, x2, y2, z2); \
    double x3 = x + 0.5 * h * a2, y3 = y + 0.5 * h * b2, z3 = z + 0.5 * h * c2; \
    SLOPE(a3, b3, c3, x3, y3, z3); \
    double x4 = x + h * a3, y4 = y + h * b3, z4 = z + h * c3; \
    SLOPE(a4, b4, c4, x4, y4, z4)
#define ADVANCE(X, Y, Z) \
    X = x + h / 6 * (a1 + 2 * a2 + 2 * a3 + a4); \
    Y = y + h / 6 * (b1 + 2 * b2 + 2 * b3 + b4); \
    Z = z + h / 6 * (c1 + 2 * c2 + 2 * c3 + c4)

CASE(lorenz_value) {
    const double h = 0.005, sigma = in[0][3], rho = in[0][4], beta = in[0][5];
    double x = in[0][0], y = in[0][1], z = in[0][2];
    for (long i = 0; i < n[0]; i++) {
        STAGES;
        double X, Y, Z;
        ADVANCE(X, Y, Z);
        x = X, y = Y, z = Z;
    }
    out[0][0] = x * x + y * y + z * z;
}

/* The adjoints u, v, w of a slope's results give those of its operands. */
#define SLOPE_BACK(x, y, z, u, v, w) \
    ds += u * (y - x); dr += v * x; db -= w * z; \
    double u##x = -sigma * u + v * (rho - z) + w * y; \
    double u##y = sigma * u - v + w * x; \
    double u##z = -v * x - beta * w

CASE(lorenz) {
    const double h = 0.005, sigma = in[0][3], rho = in[0][4], beta = in[0][5];
    double *restrict path = malloc(3 * n[0] * sizeof(double));
    double X = in[0][0], Y = in[0][1], Z = in[0][2];
    for (long i = 0; i < n[0]; i++) {
        double x = X, y = Y, z = Z;
        path[3 * i] = x; path[3 * i + 1] = y; path[3 * i + 2] = z;
        STAGES;
        ADVANCE(X, Y, Z);
    }
    out[0][0] = X * X + Y * Y + Z * Z;
    double p = 2 * X, q = 2 * Y, r = 2 * Z, ds = 0, dr = 0, db = 0;
    for (long i = n[0] - 1; i >= 0; i--) {
        double x = path[3 * i], y = path[3 * i + 1], z = path[3 * i + 2];
        STAGES;
        (void)a4; (void)b4; (void)c4;
        double k4 = h / 6 * p, l4 = h / 6 * q, m4 = h / 6 * r;
        SLOPE_BACK(x4, y4, z4, k4, l4, m4);
        double k3 = h / 3 * p + h * k4x4, l3 = h / 3 * q + h * k4y4, m3 = h / 3 * r + h * k4z4;
        SLOPE_BACK(x3, y3, z3, k3, l3, m3);
        double k2 = h / 3 * p + 0.5 * h * k3x3, l2 = h / 3 * q + 0.5 * h * k3y3;
        double m2 = h / 3 * r + 0.5 * h * k3z3;
        SLOPE_BACK(x2, y2, z2, k2, l2, m2);
        double k1 = h / 6 * p + 0.5 * h * k2x2, l1 = h / 6 * q + 0.5 * h * k2y2;
        double m1 = h / 6 * r + 0.5 * h * k2z2;
        SLOPE_BACK(x, y, z, k1, l1, m1);
        p += k1x + k2x2 + k3x3 + k4x4;
        q += k1y + k2y2 + k3y3 + k4y4;
        r += k1z + k2z2 + k3z3 + k4z4;
    }
    double *g = out[1];
    g[0] = p; g[1] = q; g[2] = r; g[3] = ds; g[4] = dr; g[5] = db;
    free(path);
}
"""


def compiler() -> str | None:
    return shutil.which("gcc")


def library(source: str, flags: Sequence[str] = FLAGS) -> ctypes.CDLL:
    """Compile C source; a shared library by content in the directory for temporary files."""
    gcc = compiler()
    if gcc is None:
        raise RuntimeError("gcc is not installed")
    key = hashlib.sha256("\0".join((source, *flags)).encode()).hexdigest()[:16]
    folder = Path(tempfile.mkdtemp(prefix="suite-"))
    code, compiled, made = (folder / f"{key}{end}" for end in (".c", ".o", ".so"))
    code.write_text(source)
    subprocess.run([gcc, *flags, "-c", str(code), "-o", str(compiled)], check=True)
    # Linked without -ffast-math: with it, loading the library would flush subnormal numbers to
    # zero in the whole process.
    subprocess.run([gcc, "-shared", str(compiled), "-o", str(made), "-lmvec", "-lm"], check=True)
    loaded = ctypes.CDLL(str(made))
    shutil.rmtree(folder)
    return loaded


class Native:
    """One C function bound to arrays: ``call(*pointers)`` runs it, ``results`` it fills."""

    def __init__(self, function: Any, inputs: Sequence[Any], shapes: Any, sizes: Any) -> None:
        function.argtypes = [ctypes.c_void_p] * 3
        function.restype = None
        self.call: Callable[..., Any] = function
        self.inputs = [numpy.ascontiguousarray(a) for a in inputs]
        self.results = [numpy.zeros(shape) for shape in shapes]
        self.tables: list[Any] = [
            (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
            for arrays in (self.inputs, self.results)
        ]
        self.sizes = (ctypes.c_long * max(1, len(sizes)))(*sizes)
        self.pointers = tuple(
            ctypes.c_void_p(ctypes.addressof(table)) for table in (*self.tables, self.sizes)
        )
