"""Emission of the operations that LAPACK computes, one call per matrix of a batch.

LAPACK's matrices are column-major: a row-major matrix is its transpose there, a lower triangle
an upper one.  ``matrices`` arranges operands so that nothing else is needed here: factors
come and go transposed where that is what LAPACK has.

Every operation writes only its results; operands that LAPACK overwrites are copied first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tapec.codegen.scalars import constant, llvm_type
from tapec.ir.core import DType, Op, Value

if TYPE_CHECKING:
    from tapec.codegen.kernel import KernelEmitter

__all__ = ["EMIT_LAPACK", "work_of"]


class _Calls:
    """Calls for one operation: pointers to the current matrix of each value."""

    def __init__(self, k: KernelEmitter, op: Op) -> None:
        self.k, self.op, self.em = k, op, k.em
        self.dtype: DType = next(
            v.type.dtype for v in (*op.operands, *op.results) if v.type.dtype.kind in "fi"
        )
        self.letter = "d" if self.dtype.bits == 64 else "s"
        self.type = llvm_type(self.dtype)
        self.index: str | None = None

    # -- batch ----------------------------------------------------------------------

    def begin(self, batch: int) -> None:
        if batch > 1:
            self.index = self.k.open_loop(batch)

    def end(self) -> None:
        if self.index is not None:
            self.k.close_loop()

    def at(self, v: Value, size: int) -> str:
        """The address of this turn's ``size`` elements of ``v``."""
        pointer = self.k.pointer(v)
        if self.index is None:
            return pointer
        offset = self.em.let(f"mul i64 {self.index}, {size}")
        t = "i8" if v.type.dtype.kind == "b" else llvm_type(v.type.dtype)
        return self.em.let(f"getelementptr {t}, ptr {pointer}, i64 {offset}")

    def part(self, pointer: str, offset: int) -> str:
        if not offset:
            return pointer
        return self.em.let(f"getelementptr {self.type}, ptr {pointer}, i64 {offset}")

    # -- calls ----------------------------------------------------------------------

    def call(self, family: str, routine: str, *args: str | int | float) -> None:
        """A routine without its precision letter.  Numbers are passed as constants, one-letter
        strings as characters, other strings are pointers."""
        k = self.k
        values = []
        for a in args:
            if isinstance(a, float):
                values.append(k.blas_real(a, self.dtype))
            elif isinstance(a, int):
                values.append(k.blas_int(a))
            else:
                values.append(k.blas_char(a) if len(a) == 1 else a)
        symbol = f"tapec.{family}.{self.letter}{routine}"
        k.symbols.add(symbol)
        k.declares.add(f"declare void @{symbol}({', '.join(['ptr'] * len(values))})")
        self.em.line(f"call void @{symbol}({', '.join('ptr ' + v for v in values)})")

    def lapack(self, routine: str, *args: str | int | float) -> str:
        """A LAPACK routine, whose last argument is ``info``; whether it is 0 (an i1)."""
        info = self.k.alloca("i32")
        self.call("lapack", routine, *args, info)
        return self.em.let(f"icmp eq i32 {self.em.let(f'load i32, ptr {info}')}, 0")

    def set_flag(self, v: Value, ok: str) -> None:
        self.em.line(f"store i8 {self.em.let(f'zext i1 {ok} to i8')}, ptr {self.at(v, 1)}")

    def copy(self, target: str, source: str, size: int) -> None:
        self.k.copy(target, source, size * self.dtype.itemsize)

    def zero_above(self, pointer: str, n: int, ld: int) -> None:
        """Zeros above the diagonal of a row-major matrix."""
        if n < 2:
            return
        em, bytes_ = self.em, self.dtype.itemsize
        i = self.k.open_loop(n - 1)
        first = em.let(f"add i64 {em.let(f'mul i64 {i}, {ld + 1}')}, 1")
        q = em.let(f"getelementptr {self.type}, ptr {pointer}, i64 {first}")
        size = em.let(f"mul i64 {em.let(f'sub i64 {n - 1}, {i}')}, {bytes_}")
        em.declares.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        em.line(f"call void @llvm.memset.p0.i64(ptr {q}, i8 0, i64 {size}, i1 false)")
        self.k.close_loop()

    def gemm(
        self, trans_a: bool, trans_b: bool, shape: tuple[int, int, int], alpha: float,
        a: str, lda: int, b: str, ldb: int, beta: float, c: str, ldc: int,
    ) -> None:  # fmt: skip
        """Row-major C (m × n) = alpha op(A) op(B) + beta C; the inner length is shape[2]."""
        m, n, inner = shape
        if 0 in shape:
            return
        self.call(
            "blas", "gemm", "NT"[trans_b], "NT"[trans_a], n, m, inner, alpha, b, ldb, a, lda, beta,
            c, ldc,
        )  # fmt: skip


def _batch(v: Value, inner: int = 2) -> int:
    n = 1
    for extent in v.type.shape[: v.type.ndim - inner]:
        n *= extent
    return n


def _cholesky(k: KernelEmitter, op: Op) -> None:
    c = _Calls(k, op)
    (a,), (low, ok) = op.operands, op.results
    n = a.type.shape[-1]
    c.begin(_batch(a))
    target = c.at(low, n * n)
    c.copy(target, c.at(a, n * n), n * n)
    fine = c.lapack("potrf", "U", n, target, n)
    c.zero_above(target, n, n)
    c.set_flag(ok, fine)
    c.end()


def _triangular_solve(k: KernelEmitter, op: Op) -> None:
    c = _Calls(k, op)
    (a, y), (x,) = op.operands, op.results
    n, m = y.type.shape[-2:]
    c.begin(_batch(a))
    matrix, target = c.at(a, n * n), c.at(x, n * m)
    c.copy(target, c.at(y, n * m), n * m)
    uplo = "U" if op.attrs["lower"] else "L"
    trans, diag = op.attrs["trans"], "NU"[op.attrs["unit"]]
    if m == 1:
        c.call("blas", "trsv", uplo, "TN"[trans], diag, n, matrix, n, target, 1)
    else:
        c.call("blas", "trsm", "R", uplo, "NT"[trans], diag, m, n, 1.0, matrix, n, target, m)
    c.end()


def _cholesky_vjp(k: KernelEmitter, op: Op) -> None:
    """Twice the symmetric cotangent, in place of that of the factor."""
    c = _Calls(k, op)
    (low, ct), (out, work) = op.operands, op.results
    n = low.type.shape[-1]
    c.begin(_batch(low))
    factor, g = c.at(low, n * n), c.at(out, n * n)
    c.copy(g, c.at(ct, n * n), n * n)
    _reverse_cholesky(c, factor, g, k.pointer(work), n, n, op.attrs["blocks"])
    c.end()


def _reverse_cholesky(
    c: _Calls, factor: str, g: str, work: str, n: int, ld: int, blocks: tuple[int, ...]
) -> None:
    """Murray's blocked algorithm on the lower triangle: from the last block row to the first,
    with D the diagonal block, C below it, R before it and B below R.  ``g`` is zero above its
    diagonal at first, and a symmetric matrix in the end."""
    block = blocks[0]
    if n <= block:
        if len(blocks) > 1:
            _reverse_cholesky(c, factor, g, work, n, ld, blocks[1:])
        else:
            _reverse_small(c, factor, g, work, n, ld)
        return
    for start in range((n - 1) // block * block, -1, -block):
        stop = min(start + block, n)
        s, below = stop - start, n - stop
        d, r = c.part(factor, start * (ld + 1)), c.part(factor, start * ld)
        gd, gr = c.part(g, start * (ld + 1)), c.part(g, start * ld)
        cc, bb = c.part(factor, stop * ld + start), c.part(factor, stop * ld)
        gc, gb = c.part(g, stop * ld + start), c.part(g, stop * ld)
        if below:
            c.call("blas", "trsm", "L", "U", "N", "N", s, below, 1.0, d, ld, gc, ld)
            c.gemm(False, False, (below, start, s), -1.0, gc, ld, r, ld, 1.0, gb, ld)
            c.gemm(True, False, (s, s, below), -1.0, gc, ld, cc, ld, 1.0, gd, ld)
            c.zero_above(gd, s, ld)
        _reverse_cholesky(c, d, gd, work, s, ld, blocks)
        if start:
            c.gemm(True, False, (s, start, below), -1.0, gc, ld, bb, ld, 1.0, gr, ld)
            c.gemm(False, False, (s, start, s), -1.0, gd, ld, r, ld, 1.0, gr, ld)
    for start in range(block, n, block):
        _mirror(c, c.part(g, start * ld), c.part(g, start), min(block, n - start), start, ld)


def _reverse_small(c: _Calls, d: str, g: str, t: str, n: int, ld: int) -> None:
    """The closed form D⁻ᵀ Φ(Dᵀ g) D⁻¹, plus its transpose."""
    c.gemm(True, False, (n, n, n), 1.0, d, ld, g, ld, 0.0, t, n)
    c.zero_above(t, n, n)
    _halve_diagonal(c, t, n)
    c.call("blas", "trsm", "R", "U", "T", "N", n, n, 1.0, d, ld, t, n)
    c.call("blas", "trsm", "L", "U", "N", "N", n, n, 1.0, d, ld, t, n)
    _add_transposed(c, g, ld, t, n)


def _mirror(c: _Calls, source: str, target: str, rows: int, columns: int, ld: int) -> None:
    """target = sourceᵀ, a block of ``rows`` × ``columns`` of one matrix to another place of it."""
    em, t = c.em, c.type
    j = c.k.open_loop(columns)
    i = c.k.open_loop(rows)
    at = em.let(f"add i64 {em.let(f'mul i64 {i}, {ld}')}, {j}")
    x = em.let(f"load {t}, ptr {em.let(f'getelementptr {t}, ptr {source}, i64 {at}')}")
    at = em.let(f"add i64 {em.let(f'mul i64 {j}, {ld}')}, {i}")
    em.line(f"store {t} {x}, ptr {em.let(f'getelementptr {t}, ptr {target}, i64 {at}')}")
    c.k.close_loop()
    c.k.close_loop()


def _halve_diagonal(c: _Calls, pointer: str, n: int) -> None:
    em, t = c.em, c.type
    i = c.k.open_loop(n)
    q = em.let(f"getelementptr {t}, ptr {pointer}, i64 {em.let(f'mul i64 {i}, {n + 1}')}")
    half = em.let(f"fmul {t} {em.let(f'load {t}, ptr {q}')}, {constant(0.5, c.dtype)}")
    em.line(f"store {t} {half}, ptr {q}")
    c.k.close_loop()


def _add_transposed(c: _Calls, target: str, ld: int, source: str, n: int) -> None:
    """target = source + sourceᵀ; the source is contiguous."""
    em, t = c.em, c.type
    i = c.k.open_loop(n)
    j = c.k.open_loop(n)
    values = []
    for row, column in ((i, j), (j, i)):
        at = em.let(f"add i64 {em.let(f'mul i64 {row}, {n}')}, {column}")
        q = em.let(f"getelementptr {t}, ptr {source}, i64 {at}")
        values.append(em.let(f"load {t}, ptr {q}"))
    at = em.let(f"add i64 {em.let(f'mul i64 {i}, {ld}')}, {j}")
    q = em.let(f"getelementptr {t}, ptr {target}, i64 {at}")
    em.line(f"store {t} {em.let(f'fadd {t} {values[0]}, {values[1]}')}, ptr {q}")
    c.k.close_loop()
    c.k.close_loop()


def _lu(k: KernelEmitter, op: Op) -> None:
    c = _Calls(k, op)
    (at,), (lut, pivots, ok) = op.operands, op.results
    n = at.type.shape[-1]
    c.begin(_batch(at))
    target = c.at(lut, n * n)
    c.copy(target, c.at(at, n * n), n * n)
    c.set_flag(ok, c.lapack("getrf", n, n, target, n, c.at(pivots, n)))
    c.end()


def _pivot(c: _Calls, pivots: str, i: str) -> str:
    """The number of the row, from 0, that row i is exchanged with."""
    em = c.em
    q = em.let(f"getelementptr i32, ptr {pivots}, i64 {i}")
    row = em.let(f"load i32, ptr {q}")
    return em.let(f"sub i64 {em.let(f'sext i32 {row} to i64')}, 1")


def _exchange_rows(c: _Calls, matrix: str, pivots: str, n: int, width: int, back: bool) -> None:
    em = c.em
    i = c.k.open_loop(n)
    if back:
        i = em.let(f"sub i64 {n - 1}, {i}")
    other = _pivot(c, pivots, i)
    ends = [
        em.let(f"getelementptr {c.type}, ptr {matrix}, i64 {em.let(f'mul i64 {row}, {width}')}")
        for row in (i, other)
    ]
    c.call("blas", "swap", width, ends[0], 1, ends[1], 1)
    c.k.close_loop()


def _lu_solve(k: KernelEmitter, op: Op) -> None:
    c = _Calls(k, op)
    (lut, pivots, y), (x,) = op.operands, op.results
    n, m = y.type.shape[-2:]
    trans = op.attrs["trans"]
    c.begin(_batch(lut))
    matrix, piv, target = c.at(lut, n * n), c.at(pivots, n), c.at(x, n * m)
    c.copy(target, c.at(y, n * m), n * m)
    if m == 1:
        c.lapack("getrs", "NT"[trans], n, 1, matrix, n, piv, target, n)
    elif trans:
        c.call("blas", "trsm", "R", "U", "N", "N", m, n, 1.0, matrix, n, target, m)
        c.call("blas", "trsm", "R", "L", "N", "U", m, n, 1.0, matrix, n, target, m)
        _exchange_rows(c, target, piv, n, m, True)
    else:
        _exchange_rows(c, target, piv, n, m, False)
        c.call("blas", "trsm", "R", "L", "T", "U", m, n, 1.0, matrix, n, target, m)
        c.call("blas", "trsm", "R", "U", "T", "N", m, n, 1.0, matrix, n, target, m)
    c.end()


def _lu_inverse(k: KernelEmitter, op: Op) -> None:
    c = _Calls(k, op)
    (lut, pivots), (z, work) = op.operands, op.results
    n = lut.type.shape[-1]
    c.begin(_batch(lut))
    target = c.at(z, n * n)
    c.copy(target, c.at(lut, n * n), n * n)
    c.lapack("getri", n, target, n, c.at(pivots, n), k.pointer(work), work.type.size)
    c.end()


def _pivots_to_perm(k: KernelEmitter, op: Op) -> None:
    """Apply the exchanges, in order or backwards, to 0, 1, 2, …"""
    c = _Calls(k, op)
    em = k.em
    (pivots,), (perm,) = op.operands, op.results
    n = pivots.type.shape[-1]
    c.begin(_batch(pivots, 1))
    piv, target = c.at(pivots, n), c.at(perm, n)
    i = k.open_loop(n)
    em.line(f"store i64 {i}, ptr {em.let(f'getelementptr i64, ptr {target}, i64 {i}')}")
    k.close_loop()
    i = k.open_loop(n)
    if op.attrs["inverse"]:
        i = em.let(f"sub i64 {n - 1}, {i}")
    other = _pivot(c, piv, i)
    first = em.let(f"getelementptr i64, ptr {target}, i64 {i}")
    second = em.let(f"getelementptr i64, ptr {target}, i64 {other}")
    x, y = em.let(f"load i64, ptr {first}"), em.let(f"load i64, ptr {second}")
    em.line(f"store i64 {y}, ptr {first}")
    em.line(f"store i64 {x}, ptr {second}")
    k.close_loop()
    c.end()


def _eigh(k: KernelEmitter, op: Op) -> None:
    c = _Calls(k, op)
    (a,), (w, vt, ok, work, integers) = op.operands, op.results
    n = a.type.shape[-1]
    c.begin(_batch(a))
    target = c.at(vt, n * n)
    c.copy(target, c.at(a, n * n), n * n)
    job = "V" if op.attrs["vectors"] else "N"
    fine = c.lapack(
        "syevd", job, "L", n, target, n, c.at(w, n), k.pointer(work), work.type.size,
        k.pointer(integers), integers.type.size,
    )  # fmt: skip
    c.set_flag(ok, fine)
    c.end()


def _svd(k: KernelEmitter, op: Op) -> None:
    """The operand is overwritten, so LAPACK gets a copy of it (``spare``)."""
    c = _Calls(k, op)
    (at,), (ut, s, v, ok, work, integers, spare) = op.operands, op.results
    n, m = at.type.shape[-2:]
    size = s.type.shape[-1]
    c.begin(_batch(at))
    matrix = k.pointer(spare)
    c.copy(matrix, c.at(at, n * m), n * m)
    job, u_at, v_at, ld_v = "N", k.pointer(ut), k.pointer(v), 1
    if op.attrs["vectors"]:
        job, ld_v = "SA"[op.attrs["full"]], v.type.shape[-1]
        u_at, v_at = c.at(ut, ut.type.shape[-2] * m), c.at(v, n * ld_v)
    fine = c.lapack(
        "gesdd", job, m, n, matrix, m, c.at(s, size), u_at, m, v_at, ld_v, k.pointer(work),
        work.type.size, k.pointer(integers),
    )  # fmt: skip
    c.set_flag(ok, fine)
    c.end()


def _qr(k: KernelEmitter, op: Op) -> None:
    c = _Calls(k, op)
    em = k.em
    (at,), (qt, rt, work) = op.operands, op.results
    n, m = at.type.shape[-2:]
    c.begin(_batch(at))
    q, r = c.at(qt, n * m), c.at(rt, n * n)
    c.copy(q, c.at(at, n * m), n * m)
    tau = k.pointer(work)
    panel, size = c.part(tau, n), work.type.size - n
    c.lapack("geqrf", m, n, q, m, tau, panel, size)
    # row j of the stored transpose holds column j of r in its first j + 1 elements
    j = k.open_loop(n)
    source = em.let(f"getelementptr {c.type}, ptr {q}, i64 {em.let(f'mul i64 {j}, {m}')}")
    target = em.let(f"getelementptr {c.type}, ptr {r}, i64 {em.let(f'mul i64 {j}, {n}')}")
    em.declares.add("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
    em.line(
        f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, "
        f"i64 {n * c.dtype.itemsize}, i1 false)"
    )
    k.close_loop()
    c.zero_above(r, n, n)
    c.lapack("orgqr", m, n, n, q, m, tau, panel, size)
    c.end()


def work_of(op: Op) -> float:
    """Rough multiplications of an operation marked ``lapack``."""
    t = op.operands[0].type
    m, n = (t.shape[-2], t.shape[-1]) if t.ndim > 1 else (1, t.shape[-1])
    size = max(t.size // max(m * n, 1), 1)
    if op.name in ("triangular_solve", "lu_solve"):
        return float(size * n * n * op.results[0].type.shape[-1])
    factor = {"cholesky": 0.4, "eigh": 8.0, "svd": 20.0, "pivots_to_perm": 0.0}.get(op.name, 1.0)
    return size * m * n * min(m, n) * factor


EMIT_LAPACK: dict[str, Callable[[KernelEmitter, Op], None]] = {
    "cholesky": _cholesky,
    "cholesky_vjp": _cholesky_vjp,
    "eigh": _eigh,
    "lu": _lu,
    "lu_inverse": _lu_inverse,
    "lu_solve": _lu_solve,
    "pivots_to_perm": _pivots_to_perm,
    "qr": _qr,
    "svd": _svd,
    "triangular_solve": _triangular_solve,
}
