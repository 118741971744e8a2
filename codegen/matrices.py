"""Lowering of dense linear algebra: what becomes plain array code, and what LAPACK computes.

- Matrices of at most ``UNROLLED`` rows become elementwise code on the batch: register code for a
  single matrix, vector loops over many.
- ``det``, ``slogdet``, the cofactor matrix and the like become the operations they consist of.
- The others stay, marked ``lapack``, with operands in the layout that the library wants and with
  further results for its work space.  ``lapack`` emits them.

>>> from tapec.ir import parse
>>> fn = parse('''func @f(%a: f64[9,9], %b: f64[9,9], %c: i32[9]) -> (f64[]) {
...   %d = det %a, %b, %c : f64[]
...   return %d
... }''')
>>> "reduce_prod" in [op.name for op in expand_matrices(fn).ops]
True
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tapec.ir.builder import Builder
from tapec.ir.core import BOOL, I32, Function, Op, Type, Value
from tapec.ir.dce import dce
from tapec.ir.lu import closed_cofactor, closed_cofactor_jvp
from tapec.ir.matrix import columns, diagonal, eye, rows, transposed, triangle
from tapec.ir.matrix_functions import closed_eigh_function, closed_svd_function
from tapec.ir.pseudo import closed_pinv
from tapec.ir.triangular import closed_cholesky_vjp

__all__ = ["LIBRARY", "UNROLLED", "expand_matrices"]

#: Operations that are not loops over elements.
LIBRARY = frozenset(
    (
        "cholesky", "cholesky_vjp", "cofactor", "cofactor_jvp", "det", "eigh", "eigh_function",
        "lu", "lu_inverse", "lu_solve", "pinv", "pivots_to_perm", "qr", "slogdet", "svd",
        "svd_function", "triangular_solve",
    )
)  # fmt: skip
#: Rows up to which elimination is written out.
UNROLLED = 3
#: Rows of the blocks of the blocked algorithm for the derivative of cholesky, and of their blocks.
_BLOCKS = (64, 16)
#: What LAPACK's blocked routines want per row of work space.
_PANEL = 64

Expand = Callable[[Builder, Op, Sequence[Value], "set[Value]"], Sequence[Value]]


def expand_matrices(fn: Function) -> Function:
    """See the module docstring."""
    for op in fn.ops:
        if op.name in LIBRARY:
            break
    else:
        return fn
    used = set(fn.results)
    for op in fn.ops:
        used.update(op.operands)
    b = Builder()
    env: dict[Value, Value] = {}
    for p in fn.params:
        env[p] = b.param(p.type, p.hint)
    for op in fn.ops:
        _expand(b, op, env, used)
    # the slopes that only derivatives of matrix functions need go
    return dce(b.function(fn.name, [env[r] for r in fn.results]))


def _expand(b: Builder, op: Op, env: dict[Value, Value], used: set[Value]) -> None:
    operands = [env.get(v, v) for v in op.operands]
    if op.name not in LIBRARY or "lapack" in op.attrs:
        env.update(zip(op.results, _copied(b, op, operands)))
        return
    inner = Builder(op.loc)
    if any(v.type.size == 0 for v in op.results if v.type.dtype.is_inexact):
        found: Sequence[Value] = [inner.constant(r.type.dtype is BOOL, r.type) for r in op.results]
    else:
        found = _EXPAND[op.name](inner, op, operands, used)
    within = set(found)
    for made in inner.ops:
        within.update(made.operands)
    for made in inner.ops:
        _expand(b, made, env, within)
    env.update(zip(op.results, [env.get(v, v) for v in found], strict=True))


def _copied(b: Builder, op: Op, operands: Sequence[Value]) -> Sequence[Value]:
    hint = op.results[0].hint if op.results else None
    types = tuple([r.type for r in op.results])
    new = Op(op.name, tuple(operands), types, op.attrs, op.regions, op.loc, hint)
    b.ops.append(new)
    return new.results


def _library(
    b: Builder, op: Op, operands: Sequence[Value], types: Sequence[Type], **attrs: object
) -> tuple[Value, ...]:
    """The operation as LAPACK computes it."""
    hint = op.results[0].hint
    new = Op(
        op.name,
        tuple(operands),
        tuple(types),
        {**op.attrs, **attrs, "lapack": True},
        (),
        op.loc,
        hint,
    )
    b.ops.append(new)
    return new.results


def _types(op: Op) -> list[Type]:
    return [r.type for r in op.results]


# -- elements of small matrices ---------------------------------------------------------------


def _elements(b: Builder, x: Value) -> list[list[Value]]:
    """The elements of a matrix, each with the shape of the batch."""
    *lead, m, n = x.type.shape
    zeros, out = [0] * len(lead), []
    for i in range(m):
        row = []
        for j in range(n):
            piece = b.slice(x, [*zeros, i, j], [*lead, 1, 1])
            row.append(b.reshape(piece, lead))
        out.append(row)
    return out


def _vector(b: Builder, x: Value) -> list[Value]:
    *lead, n = x.type.shape
    return [b.reshape(b.slice(x, [0] * len(lead) + [i], [*lead, 1]), lead) for i in range(n)]


def _joined(b: Builder, parts: Sequence[Value | None], t: Type) -> Value:
    """The array of type ``t`` whose elements, in C order behind the batch, are ``parts``
    (None: 0)."""
    lead = next(p.type.ndim for p in parts if p is not None)
    inner = t.shape[lead:]
    pieces, at = [], []
    ones = (1,) * t.ndim
    for k, part in enumerate(parts):
        if part is None:
            continue
        index, rest = [], k
        for n in reversed(inner):
            index.append(rest % n)
            rest //= n
        pieces.append(b.reshape(part, (*t.shape[:lead], *[1] * len(inner))))
        at.append(((0,) * lead + tuple(reversed(index)), ones))
    return b.place(pieces, t.shape, at)


def _matrix(b: Builder, parts: Sequence[Sequence[Value | None]], t: Type) -> Value:
    return _joined(b, [x for row in parts for x in row], t)


def _small_cholesky(b: Builder, op: Op, xs: Sequence[Value]) -> Sequence[Value]:
    a = _elements(b, xs[0])
    n = len(a)
    low: list[list[Value | None]] = [[None] * n for _ in range(n)]
    ok: Value | None = None
    for j in range(n):
        pivot = a[j][j]
        for k in range(j):
            x = low[j][k]
            assert x is not None
            pivot = b.sub(pivot, b.mul(x, x))
        positive = b.gt(pivot, b.like(0, pivot))
        ok = positive if ok is None else b.logical_and(ok, positive)
        root = low[j][j] = b.sqrt(pivot)
        for i in range(j + 1, n):
            rest = a[i][j]
            for k in range(j):
                x, y = low[i][k], low[j][k]
                assert x is not None and y is not None
                rest = b.sub(rest, b.mul(x, y))
            low[i][j] = b.div(rest, root)
    assert ok is not None
    return _matrix(b, low, op.results[0].type), ok


def _substitute(
    b: Builder, t: list[list[Value]], y: list[list[Value]], lower: bool, unit: bool
) -> list[list[Value]]:
    """Solve with a triangle given by elements; ``t[i][j]`` is read on its side only."""
    n = len(t)
    x = [list(row) for row in y]
    for i in range(n) if lower else range(n - 1, -1, -1):
        for c in range(len(x[i])):
            rest = x[i][c]
            for j in range(i) if lower else range(i + 1, n):
                rest = b.sub(rest, b.mul(t[i][j], x[j][c]))
            x[i][c] = rest if unit else b.div(rest, t[i][i])
    return x


def _flipped(t: list[list[Value]]) -> list[list[Value]]:
    return [list(row) for row in zip(*t)]


def _small_lu(b: Builder, op: Op, xs: Sequence[Value]) -> Sequence[Value]:
    a = _elements(b, xs[0])
    n = len(a)
    pivots = []
    ok: Value | None = None
    for k in range(n):
        best, where = b.abs(a[k][k]), b.constant(k + 1, Type(I32, a[k][k].type.shape))
        for i in range(k + 1, n):
            size = b.abs(a[i][k])
            better = b.gt(size, best)
            best = b.select(better, size, best)
            where = b.select(better, b.like(i + 1, where), where)
        pivots.append(where)
        _exchange(b, a, k, where)
        pivot = a[k][k]
        fine = b.ne(pivot, b.like(0, pivot))
        ok = fine if ok is None else b.logical_and(ok, fine)
        safe = b.select(fine, pivot, b.like(1, pivot))
        for i in range(k + 1, n):
            a[i][k] = b.div(a[i][k], safe)
            for j in range(k + 1, n):
                a[i][j] = b.sub(a[i][j], b.mul(a[i][k], a[k][j]))
    assert ok is not None
    lut, piv, _ = op.results
    return _matrix(b, _flipped(a), lut.type), _joined(b, pivots, piv.type), ok


def _exchange(b: Builder, x: list[list[Value]], k: int, where: Value) -> None:
    """Exchange row k and the row that ``where`` (from 1) says; it is not above k."""
    for i in range(k + 1, len(x)):
        here = b.eq(where, b.like(i + 1, where))
        for c in range(len(x[k])):
            x[k][c], x[i][c] = (
                b.select(here, x[i][c], x[k][c]),
                b.select(here, x[k][c], x[i][c]),
            )


def _small_lu_solve(b: Builder, lut: Value, pivots: Value, y: Value, trans: bool) -> Value:
    packed, piv, x = _elements(b, lut), _vector(b, pivots), _elements(b, y)
    n = len(packed)
    if trans:
        x = _substitute(b, packed, x, True, False)
        x = _substitute(b, packed, x, False, True)
        for k in reversed(range(n)):
            _exchange(b, x, k, piv[k])
    else:
        for k in range(n):
            _exchange(b, x, k, piv[k])
        flipped = _flipped(packed)
        x = _substitute(b, flipped, x, True, True)
        x = _substitute(b, flipped, x, False, False)
    return _matrix(b, x, y.type)


# -- the operations -----------------------------------------------------------------------------


def _small(op: Op) -> bool:
    return op.operands[0].type.shape[-1] <= UNROLLED


def _cholesky(b: Builder, op: Op, xs: Sequence[Value], used: set[Value]) -> Sequence[Value]:
    return _small_cholesky(b, op, xs) if _small(op) else _library(b, op, xs, _types(op))


def _cholesky_vjp(b: Builder, op: Op, xs: Sequence[Value], used: set[Value]) -> Sequence[Value]:
    low, ct = xs
    if _small(op):
        return closed_cholesky_vjp(b, op, low, ct)
    t = low.type
    types = t, t.with_shape((_BLOCKS[-1] ** 2,))
    twice, _ = _library(b, op, (low, triangle(b, ct, True)), types, blocks=_BLOCKS)
    return (b.mul(twice, b.like(0.5, twice)),)


def _triangular_solve(b: Builder, op: Op, xs: Sequence[Value], used: set[Value]) -> Sequence[Value]:
    a, y = xs
    if not _small(op):
        return _library(b, op, xs, _types(op))
    lower, trans, unit = op.attrs["lower"], op.attrs["trans"], op.attrs["unit"]
    t = _elements(b, a)
    if trans:
        t = _flipped(t)
    x = _substitute(b, t, _elements(b, y), lower != trans, unit)
    return (_matrix(b, x, y.type),)


def _lu(b: Builder, op: Op, xs: Sequence[Value], used: set[Value]) -> Sequence[Value]:
    if _small(op):
        return _small_lu(b, op, xs)
    return _library(b, op, (transposed(b, xs[0]),), _types(op))


def _lu_solve(b: Builder, op: Op, xs: Sequence[Value], used: set[Value]) -> Sequence[Value]:
    _, lut, pivots, y = xs
    if _small(op):
        return (_small_lu_solve(b, lut, pivots, y, op.attrs["trans"]),)
    return _library(b, op, (lut, pivots, y), _types(op))


def _lu_inverse(b: Builder, op: Op, xs: Sequence[Value], used: set[Value]) -> Sequence[Value]:
    _, lut, pivots = xs
    if _small(op):
        return (_small_lu_solve(b, lut, pivots, eye(b, lut.type), True),)
    work = lut.type.with_shape((lut.type.shape[-1] * _PANEL,))
    return _library(b, op, (lut, pivots), [lut.type, work])[:1]


def _parity(b: Builder, pivots: Value) -> Value:
    """Whether the number of exchanges is odd."""
    axis = pivots.type.ndim - 1
    stay = b.add(b.iota(pivots.type.shape, axis, I32), b.constant(1, pivots.type))
    moved = b.convert(b.ne(pivots, stay), I32)
    total = b.reduce_sum(moved, (axis,))
    return b.eq(b.emit("and", (total, b.like(1, total))), b.like(1, total))


def _signed(b: Builder, odd: Value, x: Value) -> Value:
    return b.select(odd, b.neg(x), x)


def _det(b: Builder, op: Op, xs: Sequence[Value], used: set[Value]) -> Sequence[Value]:
    _, lut, pivots = xs
    diag = diagonal(b, lut)
    return (_signed(b, _parity(b, pivots), b.reduce("prod", diag, (diag.type.ndim - 1,))),)


def _slogdet(b: Builder, op: Op, xs: Sequence[Value], used: set[Value]) -> Sequence[Value]:
    _, lut, pivots = xs
    diag = diagonal(b, lut)
    axes = (diag.type.ndim - 1,)
    sign = _signed(b, _parity(b, pivots), b.reduce("prod", b.sign(diag), axes))
    return sign, b.reduce_sum(b.log(b.abs(diag)), axes)


def _cofactor(b: Builder, op: Op, xs: Sequence[Value], used: set[Value]) -> Sequence[Value]:
    return closed_cofactor(b, op, xs[0])


def _cofactor_jvp(b: Builder, op: Op, xs: Sequence[Value], used: set[Value]) -> Sequence[Value]:
    return closed_cofactor_jvp(b, op, xs[0], xs[1])


def _pinv(b: Builder, op: Op, xs: Sequence[Value], used: set[Value]) -> Sequence[Value]:
    return closed_pinv(b, op, xs[0])


def _pivots_to_perm(b: Builder, op: Op, xs: Sequence[Value], used: set[Value]) -> Sequence[Value]:
    return _library(b, op, xs, _types(op))


def _eigh(b: Builder, op: Op, xs: Sequence[Value], used: set[Value]) -> Sequence[Value]:
    (a,) = xs
    n = a.type.shape[-1]
    vectors = op.results[1] in used
    size = max(1 + 6 * n + 2 * n * n if vectors else 2 * n + 1, (2 + _PANEL) * n)
    integers = Type(I32, (3 + 5 * n if vectors else 1,))
    whole = b.select(b.ge(rows(b, a), columns(b, a)), a, transposed(b, a))
    types = [*_types(op), a.type.with_shape((size,)), integers]
    return _library(b, op, (whole,), types, vectors=vectors)[:3]


def _svd(b: Builder, op: Op, xs: Sequence[Value], used: set[Value]) -> Sequence[Value]:
    (a,) = xs
    m, n = a.type.shape[-2:]
    k, big = min(m, n), max(m, n)
    vectors = op.results[0] in used or op.results[2] in used
    size = 5 * k * k + 8 * k + 2 * big + _PANEL * (big + k)
    u, s, vt, ok = _types(op)
    *lead, _, i = u.shape
    j = vt.shape[-2]
    types = [
        u.with_shape((*lead, i, m)), s, vt.with_shape((*lead, n, j)), ok,
        a.type.with_shape((size,)), Type(I32, (8 * k,)), a.type.with_shape((m * n,)),
    ]  # fmt: skip
    if not vectors:  # not written
        types[0], types[2] = u.with_shape((1,)), u.with_shape((1,))
    ut, values, v, converged, *_ = _library(b, op, (transposed(b, a),), types, vectors=vectors)
    if not vectors:
        return b.zeros(u), values, b.zeros(vt), converged
    return transposed(b, ut), values, transposed(b, v), converged


def _qr(b: Builder, op: Op, xs: Sequence[Value], used: set[Value]) -> Sequence[Value]:
    at = transposed(b, xs[0])
    n = at.type.shape[-2]
    work = at.type.with_shape((n + n * _PANEL,))
    qt, rt, _ = _library(b, op, (at,), [at.type, op.results[1].type, work])
    return transposed(b, qt), transposed(b, rt)


def _eigh_function(b: Builder, op: Op, xs: Sequence[Value], used: set[Value]) -> Sequence[Value]:
    return closed_eigh_function(b, op, xs)


def _svd_function(b: Builder, op: Op, xs: Sequence[Value], used: set[Value]) -> Sequence[Value]:
    return closed_svd_function(b, op, xs)


_EXPAND: dict[str, Expand] = {
    "cholesky": _cholesky,
    "cholesky_vjp": _cholesky_vjp,
    "cofactor": _cofactor,
    "cofactor_jvp": _cofactor_jvp,
    "det": _det,
    "eigh": _eigh,
    "eigh_function": _eigh_function,
    "lu": _lu,
    "lu_inverse": _lu_inverse,
    "lu_solve": _lu_solve,
    "pinv": _pinv,
    "pivots_to_perm": _pivots_to_perm,
    "qr": _qr,
    "slogdet": _slogdet,
    "svd": _svd,
    "svd_function": _svd_function,
    "triangular_solve": _triangular_solve,
}
