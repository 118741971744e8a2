"""Numerical calculus: differences, integrals, interpolation, convolution, polynomials,
covariances."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapec import primitives as p
from tapec.errors import TapecValueError, UnsupportedError, fail
from tapec.ir.core import F64
from tapec.kinds import common_dtype
from tapec.numpy.reductions import reduced
from tapec.numpy.registry import axes_of, axis_of, implements, int_argument
from tapec.numpy.sorting import searchsorted, sorted_with_order
from tapec.numpy.ufuncs import inexact, real_float
from tapec.primitives import as_array, binary, cast, operands, reshape, select
from tapec.tape import is_traced
from tapec.tracer import FUNCTIONS, UFUNCS, Tracer

__all__: list[str] = []

# -- differences and integrals ------------------------------------------------------------------


def _spacing(f: Tracer, axis: int, given: Any) -> tuple[Any, Any]:
    """The step (a number), or the distances between samples along an axis."""
    n = f.type.shape[axis]
    if np.ndim(given) == 0:
        return given, None
    x = operands(f, given)[1]
    if x.type.shape != (n,):
        raise fail(
            TapecValueError,
            "when 1d, distances must match the length of the corresponding dimension",
        )
    steps = binary("sub", x[1:], x[:-1])
    return None, reshape(steps, [n - 1 if d == axis else 1 for d in range(f.type.ndim)])


@implements(np.gradient)
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Central differences inside, one-sided ones of order ``edge_order`` at the ends."""
    x = inexact(operands(f, *varargs)[0])
    axes = axes_of(axis, x.type.ndim)
    if not varargs:
        spacings: list[Any] = [1.0] * len(axes)
    elif len(varargs) == 1 and np.ndim(varargs[0]) == 0:
        spacings = [varargs[0]] * len(axes)
    elif len(varargs) == len(axes):
        spacings = list(varargs)
    else:
        raise fail(TapecValueError, "invalid number of arguments")
    results = [_gradient_along(x, k, h, edge_order) for k, h in zip(axes, spacings)]
    return results[0] if len(results) == 1 else tuple(results)


def _gradient_along(f: Tracer, axis: int, given: Any, edge_order: int) -> Tracer:
    n = f.type.shape[axis]
    if n < edge_order + 1:
        raise fail(
            TapecValueError,
            "Shape of array too small to calculate a numerical gradient, at least "
            "(edge_order + 1) elements are required.",
        )

    def part(a: int, b: int | None, of: Any = f) -> Any:
        return of[(slice(None),) * axis + (slice(a, b),)]

    h, steps = _spacing(f, axis, given)
    pieces: list[Any] = []
    if steps is None:
        inner = (part(2, None) - part(0, -2)) / (2.0 * h)
        if edge_order == 1:
            first, last = (part(1, 2) - part(0, 1)) / h, (part(n - 1, n) - part(n - 2, n - 1)) / h
        else:
            a, b, c = part(0, 1), part(1, 2), part(2, 3)
            first = (-1.5 * a + 2.0 * b - 0.5 * c) / h
            a, b, c = part(n - 3, n - 2), part(n - 2, n - 1), part(n - 1, n)
            last = (0.5 * a - 2.0 * b + 1.5 * c) / h
    else:
        d1, d2 = part(0, -1, steps), part(1, None, steps)
        inner = (
            -d2 / (d1 * (d1 + d2)) * part(0, -2)
            + (d2 - d1) / (d1 * d2) * part(1, -1)
            + d1 / (d2 * (d1 + d2)) * part(2, None)
        )
        u, v = part(0, 1, steps), part(n - 2, n - 1, steps)
        if edge_order == 1:
            first = (part(1, 2) - part(0, 1)) / u
            last = (part(n - 1, n) - part(n - 2, n - 1)) / v
        else:
            w = part(1, 2, steps)
            first = (
                -(2.0 * u + w) / (u * (u + w)) * part(0, 1)
                + (u + w) / (u * w) * part(1, 2)
                - u / (w * (u + w)) * part(2, 3)
            )
            w = part(n - 3, n - 2, steps)
            last = (
                v / (w * (w + v)) * part(n - 3, n - 2)
                - (v + w) / (w * v) * part(n - 2, n - 1)
                + (2.0 * v + w) / (v * (w + v)) * part(n - 1, n)
            )
    pieces = [first, inner, last] if n > 2 else [first, last]
    return FUNCTIONS[np.concatenate](pieces, axis=axis)  # type: ignore[no-any-return]


@implements("trapezoid", "trapz")
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: Any = -1) -> Tracer:
    ys = operands(y, *([] if x is None else [x]), *([dx] if is_traced(dx) else []))[0]
    k = axis_of(axis, ys.type.ndim)
    if x is None:
        width = dx
    else:
        width = np.diff(x, axis=-1 if np.ndim(x) == 1 else k)
        if np.ndim(width) == 1:
            width = np.reshape(width, [-1 if d == k else 1 for d in range(ys.type.ndim)])
    lead = (slice(None),) * k
    middle = (ys[(*lead, slice(1, None))] + ys[(*lead, slice(None, -1))]) / 2.0
    return reduced("sum", width * middle, k, False)


@implements(np.unwrap)
def unwrap(p_: Any, discont: Any = None, axis: Any = -1, *, period: Any = 2 * math.pi) -> Tracer:
    """Jumps of more than half a period are taken back; the corrections are constant steps."""
    x = real_float(as_array(p_))
    k = axis_of(axis, x.type.ndim)
    steps = FUNCTIONS[np.diff](x, axis=k)
    limit = period / 2 if discont is None else discont
    half = period / 2
    wrapped = binary("sub", binary("mod", binary("add", steps, half), period), half)
    at_edge = binary("and", binary("eq", wrapped, -half), binary("gt", steps, 0))
    wrapped = select(at_edge, half, wrapped)
    correction = binary("sub", wrapped, steps)
    correction = select(binary("lt", abs(steps), limit), 0.0, correction)
    total = FUNCTIONS[np.cumsum](correction, axis=k)
    one = [1 if d == k else n for d, n in enumerate(x.type.shape)]
    zero = p.full(x.tape, one, 0.0, total.type.dtype)
    return binary("add", x, p.concat([zero, total], k))


# -- interpolation ------------------------------------------------------------------------------


@implements(np.interp)
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None,
           period: Any = None) -> Tracer:  # fmt: skip
    x, xp, fp = (cast(real_float(v), F64) for v in operands(x, xp, fp))
    n = xp.type.size
    if xp.type.shape != fp.type.shape or xp.type.ndim != 1 or not n:
        raise fail(TapecValueError, "fp and xp are not of the same length.")
    if period is not None:
        if not isinstance(period, Tracer) and period == 0:
            raise fail(TapecValueError, "period must be a non-zero value")
        period = abs(period)
        x, xp = binary("mod", x, period), binary("mod", xp, period)
        xp, order = sorted_with_order(xp, 0)
        fp = p.gather(fp, [order], [0])
        xp = p.concat([xp[-1:] - period, xp, xp[:1] + period], 0)
        fp = p.concat([fp[-1:], fp, fp[:1]], 0)
        n += 2
        left = right = None
    first, last = fp[0], fp[n - 1]
    if n == 1:
        inside: Any = first
    else:
        index = binary("sub", searchsorted(xp, x, "right"), 1)
        index = binary("min", binary("max", index, 0), n - 2)
        after = binary("add", index, 1)
        x0, f0, x1, f1 = (p.gather(table, [at], [0]) for at in (index, after) for table in (xp, fp))
        inside = f0 + (f1 - f0) / (x1 - x0) * (x - x0)
    result = select(x < xp[0], first if left is None else left, inside)
    result = select(x > xp[n - 1], last if right is None else right, result)
    return select(UFUNCS[np.isnan](x), x, result)


# -- convolution --------------------------------------------------------------------------------


def _windows(x: Tracer, n: int, m: int) -> Tracer:
    """All windows of length m of an array of n elements, as rows: n - m + 1 of them."""
    rows = n - m + 1
    line = np.arange(rows)[:, None] + np.arange(m)
    return p.gather(x, [x.tape.fixed(line.astype(np.int64))], [0])


def _correlate(a: Tracer, v: Tracer, mode: str) -> Tracer:
    """Σ_n a[n + k] v[n]; ``a`` is not shorter than ``v``."""
    n, m = a.type.size, v.type.size
    dtype = common_dtype([a.kind, v.kind])
    a, v = cast(a, dtype), cast(v, dtype)
    low, high = {"valid": (0, 0), "same": (m // 2, m - 1 - m // 2), "full": (m - 1, m - 1)}[mode]
    if low or high:
        a = p.place([a], (n + low + high,), [((low,), (1,))])
    if m <= 32:
        total: Any = None
        rows = n + low + high - m + 1
        for k in range(m):
            term = binary("mul", p.slice_(a, (k,), (rows,)), v[k])
            total = term if total is None else binary("add", total, term)
        return total  # type: ignore[no-any-return]
    return p.dot(_windows(a, n + low + high, m), v, ([1], [0]))


@implements(np.convolve)
def convolve(a: Any, v: Any, mode: str = "full") -> Tracer:
    x, y = (reshape(t, (1,)) if not t.type.ndim else t for t in operands(a, v))
    if x.type.ndim != 1 or y.type.ndim != 1:
        raise fail(TapecValueError, "object too deep for desired array")
    if not x.type.size or not y.type.size:
        raise fail(TapecValueError, "a cannot be empty" if not x.type.size else "v cannot be empty")
    if y.type.size > x.type.size:
        x, y = y, x
    return _correlate(x, y[::-1], _mode(mode))


def _mode(mode: Any) -> str:
    name = {0: "valid", 1: "same", 2: "full"}.get(mode, mode)
    if name not in ("valid", "same", "full"):
        raise fail(TapecValueError, f"mode must be 'valid', 'same' or 'full' (got {mode!r})")
    return str(name)


@implements(np.correlate)
def correlate(a: Any, v: Any, mode: str = "valid") -> Tracer:
    x, y = (reshape(t, (1,)) if not t.type.ndim else t for t in operands(a, v))
    if not x.type.size or not y.type.size:
        raise fail(TapecValueError, "first array argument cannot be empty")
    mode = _mode(mode)
    y = UFUNCS[np.conjugate](y)
    if y.type.size <= x.type.size:
        return _correlate(x, y, mode)
    swapped: Tracer = _correlate(y, x, mode)[::-1]
    return swapped


# -- covariances --------------------------------------------------------------------------------


@implements(np.cov)
def cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None,
        fweights: Any = None, aweights: Any = None, *, dtype: Any = None) -> Tracer:  # fmt: skip
    given = [m, y, fweights, aweights]
    tracers = iter(operands(*[v for v in given if v is not None]))
    x, other, f, a = (None if v is None else next(tracers) for v in given)
    if ddof is None:
        ddof = 0 if bias else 1
    rows = [_as_rows(inexact(v), rowvar) for v in (x, other) if v is not None]
    x = rows[0] if len(rows) == 1 else FUNCTIONS[np.concatenate](rows, axis=0)
    w: Any = None
    for weights in (f, a):
        if weights is not None:
            weights = real_float(weights)
            w = weights if w is None else binary("mul", w, weights)
    if w is None:
        total: Any = float(x.type.shape[1])
        norm: Any = max(total - ddof, 0.0)
        mean = reduced("sum", x, 1, True) / total
    else:
        total = reduced("sum", w, None, False)
        mean = reduced("sum", x * w, 1, True) / total
        if ddof == 0:
            norm = total
        elif a is None:
            norm = total - ddof
        else:
            norm = total - ddof * reduced("sum", w * real_float(a), None, False) / total
    centred = x - mean
    weighted = centred if w is None else centred * w
    product = p.dot(centred, UFUNCS[np.conjugate](weighted), ([1], [1]))
    return FUNCTIONS[np.squeeze](product / norm)  # type: ignore[no-any-return]


def _as_rows(x: Tracer, rowvar: bool) -> Tracer:
    if x.type.ndim > 2:
        raise fail(TapecValueError, "m has more than 2 dimensions")
    if x.type.ndim < 2:
        return reshape(x, (1, x.type.size))
    return x if rowvar or x.type.shape[0] == 1 else p.transpose(x, (1, 0))


@implements(np.corrcoef)
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, **kwargs: Any) -> Tracer:
    c = cov(x, y, rowvar)
    if not c.type.ndim:
        return c / c  # type: ignore[no-any-return]
    d = UFUNCS[np.sqrt](FUNCTIONS[np.diagonal](c).real)
    result = c / d[:, None] / d[None, :]
    return FUNCTIONS[np.clip](result, -1, 1)  # type: ignore[no-any-return]


# -- polynomials --------------------------------------------------------------------------------


@implements(np.polyval)
def polyval(p_: Any, x: Any) -> Any:
    result: Any = None
    for coefficient in p_:
        result = coefficient + 0 * x if result is None else result * x + coefficient
    return result


def _coefficients(*polys: Any) -> list[Tracer]:
    return [reshape(t, (t.type.size,)) if t.type.ndim != 1 else t for t in operands(*polys)]


def _sum_of(a: Tracer, b: Tracer, op: str) -> Tracer:
    n = max(a.type.size, b.type.size)
    dtype = common_dtype([a.kind, b.kind])
    wide = [
        p.place([cast(t, dtype)], (n,), [((n - t.type.size,), (1,))]) if t.type.size < n else t
        for t in (a, b)
    ]
    return binary(op, *wide)


@implements(np.polyadd)
def polyadd(a1: Any, a2: Any) -> Tracer:
    a, b = _coefficients(a1, a2)
    return _sum_of(a, b, "add")


@implements(np.polysub)
def polysub(a1: Any, a2: Any) -> Tracer:
    a, b = _coefficients(a1, a2)
    return _sum_of(a, b, "sub")


@implements(np.polymul)
def polymul(a1: Any, a2: Any) -> Tracer:
    a, b = _coefficients(a1, a2)
    return convolve(a, b)


@implements(np.polyder)
def polyder(p_: Any, m: Any = 1) -> Tracer:
    (a,) = _coefficients(p_)
    for _ in range(int_argument(m, "m")):
        n = a.type.size - 1
        if n < 1:
            return p.full(a.tape, (0,), 0, a.type.dtype)
        a = binary("mul", a[:-1], a.tape.fixed(np.arange(n, 0, -1).astype(a.type.dtype.np)))
    return a


@implements(np.polyint)
def polyint(p_: Any, m: Any = 1, k: Any = None) -> Tracer:
    (a,) = (inexact(t) for t in _coefficients(p_))
    m = int_argument(m, "m")
    constants = [0.0] * m if k is None else list(np.atleast_1d(k))
    if len(constants) == 1 and m > 1:
        constants = constants * m
    for c in constants:
        n = a.type.size
        a = binary("div", a, a.tape.fixed(np.arange(n, 0, -1).astype(float)))
        a = FUNCTIONS[np.concatenate]([a, reshape(operands(a, c)[1], (1,))])
    return a


@implements(np.poly)
def poly(seq_of_zeros: Any) -> Tracer:
    """The polynomial with these roots."""
    roots = as_array(seq_of_zeros)
    if roots.type.ndim == 2:
        raise fail(UnsupportedError, "poly of a matrix is not supported", "use its eigenvalues")
    a = p.full(roots.tape, (1,), 1.0, inexact(roots).type.dtype)
    for k in range(roots.type.size):
        a = binary("sub", p.place([a], (k + 2,), [((0,), (1,))]), p.place(
            [a * roots[k]], (k + 2,), [((1,), (1,))]))  # fmt: skip
    return a


@implements(np.roots)
def roots(p: Any) -> Any:
    """Eigenvalues of the companion matrix; zeros at the ends are decided by the values now.

    Zeros at the end of ``p`` are roots 0, last in the result.  A single one stays in the matrix:
    all roots move with this coefficient, too."""
    c = inexact(as_array(p))
    if c.type.ndim != 1:
        raise fail(TapecValueError, "Input must be a rank-1 array.")
    hits = FUNCTIONS[np.nonzero](c)[0]
    if not hits.size:
        return np.array([])
    zeros, c = c.type.size - int(hits[-1]) - 1, c[int(hits[0]) :]
    n = c.type.size - 1
    if not n:
        return np.zeros(n)
    from tapec.custom import stop_gradient
    from tapec.host import host_call

    if zeros > 1:  # a multiple root: no derivative by these coefficients, asking is an error
        none = host_call(np.zeros_like, c[n + 1 - zeros :], c[n + 1 - zeros :],
                         name="numpy.roots, at a multiple root 0")  # fmt: skip
        return none if zeros == n else np.concatenate([_eigenvalues(c[: n + 1 - zeros]), none])
    found = _eigenvalues(c)
    if not zeros or n == 1:
        return found
    wanted = np.concatenate([_eigenvalues(c[:-1]), np.zeros(1)])
    order = host_call(
        _matched, np.zeros(n, int), stop_gradient(wanted), stop_gradient(found),
        name="tapec.roots",
    )  # fmt: skip
    return found[order]


def _eigenvalues(c: Tracer) -> Any:
    n = c.type.size - 1
    top = -c[1:] / c[0]
    return np.linalg.eigvals(
        np.concatenate([top[None], np.eye(n)[: n - 1]]) if n > 1 else top[None]
    )


def _matched(wanted: Any, found: Any) -> Any:
    """Where each of the wanted numbers is among those found, which are the same but for rounding:
    the zero is exact in both."""
    from scipy.optimize import linear_sum_assignment

    return linear_sum_assignment(np.abs(wanted[:, None] - found))[1]


@implements(np.polyfit)
def polyfit(x: Any, y: Any, deg: Any, rcond: Any = None, full: bool = False, w: Any = None,
            cov: Any = False) -> Tracer:  # fmt: skip
    """Least squares through the pseudo-inverse of the scaled Vandermonde matrix."""
    if full or cov:
        raise fail(UnsupportedError, "polyfit: full= and cov= are not supported on traced values")
    given = [x, y] + ([] if w is None else [w])
    tracers = [real_float(t) for t in operands(*given)]
    a, b = tracers[0], tracers[1]
    matrix = vander(a, int_argument(deg, "deg") + 1)
    if w is not None:
        matrix = matrix * tracers[2][:, None]
        b = b * (tracers[2] if b.type.ndim == 1 else tracers[2][:, None])
    scale = UFUNCS[np.sqrt](reduced("sum", matrix * matrix, 0, False))
    scaled = matrix / scale
    solve: Any = np.linalg.solve
    normal = p.dot(scaled, scaled, ([0], [0]))
    right = p.dot(scaled, b, ([0], [0]))
    # one step of refinement brings back what squaring the condition number lost
    first = solve(normal, right)
    rest = b - UFUNCS[np.matmul](scaled, first)
    result = first + solve(normal, p.dot(scaled, rest, ([0], [0])))
    return result / (scale if b.type.ndim == 1 else scale[:, None])  # type: ignore[no-any-return]


@implements(np.polydiv)
def polydiv(u: Any, v: Any) -> tuple[Tracer, Tracer]:
    """Long division."""
    a, b = (inexact(t) for t in _coefficients(u, v))
    m, n = a.type.size - 1, b.type.size - 1
    scale = 1.0 / b[0]
    steps: list[Any] = []
    for _ in range(max(m - n + 1, 0)):
        d = scale * a[len(steps)]
        steps.append(d)
        shift = (len(steps) - 1,)
        a = binary("sub", a, p.place([d * b], (m + 1,), [(shift, (1,))]))
    quotient = FUNCTIONS[np.stack](steps) if steps else p.full(a.tape, (1,), 0.0, a.type.dtype)
    rest = a[max(m - n + 1, 0) :] if n else a[-1:] * 0
    return quotient, rest


@implements(np.vander)
def vander(x: Any, N: Any = None, increasing: bool = False) -> Tracer:
    a = as_array(x)
    if a.type.ndim != 1:
        raise fail(TapecValueError, "x must be a one-dimensional array or sequence.")
    n = a.type.size if N is None else int_argument(N, "N")
    columns: list[Any] = []
    for k in range(n):
        one = p.full(a.tape, a.type.shape, 1, a.type.dtype)
        columns.append(one if k == 0 else columns[-1] * a)
    if not columns:
        return p.full(a.tape, (a.type.size, 0), 0, a.type.dtype)
    if not increasing:
        columns.reverse()
    return FUNCTIONS[np.stack](columns, axis=1)  # type: ignore[no-any-return]
