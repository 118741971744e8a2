"""Products over many rows, and what stands between them, done for a block of rows at a time.

``in_row_blocks`` looks for an axis, the *rows*, that large intermediate values have in common, and
rewrites what is parallel along it as one ``scan`` over blocks of rows: its temporaries are as long
as a block and stay in the cache, where the whole arrays would be written to memory and read back
by each step.  Sums over the rows are carried.

    %z = dot %X, %w          : f64[10000]          for each block of 40 rows
    %e = tanh %z             : f64[10000]             z = dot(X[block], w), e = tanh(z)
    %g = dot %X, %e (rows)   : f64[50]       ->       g += dot(X[block], e)

In the loop are the operations with a row axis along which they are parallel (``operand_axes``),
as long as they do not depend on a sum over all rows; the sums are what ends it.  A value with rows
that something else needs as a whole, or that was computed before, must have the rows first: blocks
of it are then contiguous.  Where anything does not fit, the function stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tapec.ir.builder import Builder
from tapec.ir.core import Attrs, Dense, Function, Op, Type, Value
from tapec.ir.dce import dce, has_effect
from tapec.ir.loops import emit_scan
from tapec.ir.opdef import OPS

__all__ = ["in_row_blocks", "operand_axes", "with_axis"]

#: Fewer bytes of operands and results of products than this are in the cache anyway.
LARGE = 3 << 19
#: Temporaries of a block: as a rule, and at most, where large sums are carried.
BLOCK_BYTES, MOST_BYTES = 5 << 17, 1 << 21
#: Rows of a block: at least, and at most.
FEW_ROWS, MANY_ROWS = 16, 1024
#: Bytes of the other operand of a product, which the library copies for each block: with more,
#: blocks have at least ``FEWER_COPIES`` rows.
COPIED, FEWER_COPIES = 1 << 16, 192

_COMBINE = {
    "dot": "add",
    "reduce_sum": "add",
    "reduce_prod": "mul",
    "reduce_max": "max",
    "reduce_min": "min",
}


def _kept(ndim: int, axes: Sequence[int]) -> list[int]:
    return [j for j in range(ndim) if j not in axes]


def _dot_axes(op: Op) -> list[tuple[int | None, int | None]]:
    """For each axis of a product: the axes of its operands that it is."""
    x, y = op.operands
    (xc, yc), (xb, yb) = op.attrs["contract"], op.attrs["batch"]
    out: list[tuple[int | None, int | None]] = list(zip(xb, yb))
    out += [(j, None) for j in _kept(x.type.ndim, (*xc, *xb))]
    return out + [(None, j) for j in _kept(y.type.ndim, (*yc, *yb))]


def operand_axes(op: Op, axis: int) -> list[int | None] | None:
    """The axis of each operand that ``axis`` of the result is, None for an operand that is the
    same for all rows; None for an operation that is not parallel along it."""
    name, n = op.name, len(op.operands)
    if OPS[name].elementwise:
        return [axis] * n
    if name == "constant":
        return None if isinstance(op.attrs["value"], Dense) else []
    if name == "dot":
        return list(_dot_axes(op)[axis])
    if name == "place":
        whole = all(
            start[axis] == 0 and step[axis] == 1 and v.type.shape[axis] == op.attrs["shape"][axis]
            for v, (start, step) in zip(op.operands, op.attrs["at"])
        )
        return [axis] * n if whole else None
    if n != 1:
        return None
    shape, result = op.operands[0].type.shape, op.results[0].type.shape
    if name == "broadcast":
        dims = op.attrs["dims"]
        inner = dims.index(axis) if axis in dims else None
        return [None if inner is None or shape[inner] != result[axis] else inner]
    if name == "transpose":
        return [op.attrs["perm"][axis]]
    if name in _COMBINE:
        return [_kept(len(shape), op.attrs["axes"])[axis]]
    if name == "slice":
        return [axis] if shape[axis] == result[axis] and op.attrs["step"][axis] == 1 else None
    if name == "reshape":
        before = 1
        for n in result[:axis]:
            before *= n
        inner = 0
        while inner < len(shape) and before % max(shape[inner], 1) == 0 and before > 1:
            before //= shape[inner]
            inner += 1
        while inner < len(shape) and shape[inner] == 1 != result[axis]:
            inner += 1
        same = before == 1 and inner < len(shape) and shape[inner] == result[axis]
        return [inner] if same else None
    return None


class _Classes:
    """Which axes of which values are the same: sets of axes, merged by the operations."""

    def __init__(self, fn: Function) -> None:
        self.parent: list[int] = []
        self.of: dict[Value, list[int]] = {}
        for v in (*fn.params, *(r for op in fn.ops for r in op.results)):
            self.of[v] = list(range(len(self.parent), len(self.parent) + v.type.ndim))
            self.parent.extend(self.of[v])
        for op in fn.ops:
            if op.regions or len(op.results) != 1:
                continue
            if op.name == "dot":
                for i, j in zip(*op.attrs["contract"]):
                    if not any(map(_splat, op.operands)):
                        self._merge(op.operands[0], i, op.operands[1], j)
            for axis in range(op.results[0].type.ndim):
                for v, inner in zip(op.operands, operand_axes(op, axis) or ()):
                    if inner is not None and not _splat(v):
                        self._merge(op.results[0], axis, v, inner)

    def find(self, k: int) -> int:
        parent = self.parent
        while parent[k] != k:
            parent[k] = parent[parent[k]]
            k = parent[k]
        return k

    def _merge(self, x: Value, i: int, y: Value, j: int) -> None:
        self.parent[self.find(self.of[x][i])] = self.find(self.of[y][j])

    def axis(self, v: Value, rows: int) -> int | None:
        """The only axis of ``v`` that is in the class ``rows``."""
        found = [j for j, k in enumerate(self.of[v]) if self.find(k) == rows]
        if len(found) > 1:
            raise _NotBlocked
        return found[0] if found else None


class _NotBlocked(Exception):
    """The rows cannot be cut into blocks."""


def _splat(v: Value) -> bool:
    return (
        v.op is not None and v.op.name == "constant" and not isinstance(v.op.attrs["value"], Dense)
    )


def in_row_blocks(fn: Function) -> Function:
    """See the module docstring."""
    products = [op for op in fn.ops if op.name == "dot"]
    if sum(v.type.nbytes for op in products for v in (*op.operands, *op.results)) < LARGE:
        return fn
    classes = _Classes(fn)
    weight: dict[int, int] = {}
    for op in products:
        for v in {*op.operands, *op.results}:
            for k in {classes.find(k) for k in classes.of[v]}:
                weight[k] = weight.get(k, 0) + v.type.nbytes
    for rows in sorted(weight, key=lambda k: -weight[k]):
        if weight[rows] < LARGE:
            break
        try:
            return dce(_Blocks(fn, classes, rows).rewritten())
        except _NotBlocked:
            continue
    return fn


class _Blocks:
    """The rewriting for one choice of rows."""

    def __init__(self, fn: Function, classes: _Classes, rows: int) -> None:
        self.fn = fn
        #: values with rows → which axis they are
        self.axis: dict[Value, int] = {}
        for v in classes.of:
            axis = classes.axis(v, rows)
            if axis is not None:
                self.axis[v] = axis
        self.n = next(v.type.shape[a] for v, a in self.axis.items())
        self.before: list[Op] = []
        self.inside: list[Op] = []
        self.sums: list[Op] = []
        self.after: list[Op] = []
        self._sort()
        self.results = {r for op in self.inside for r in op.results}
        self.whole = self._needed_whole()
        self.rows = self._block_rows()

    def _sort(self) -> None:
        """Which operations are in the loop, before it and after it."""
        inside: set[Value] = set()
        late: set[Value] = set()
        for op in self.fn.ops:
            if op.name == "constant":
                self.before.append(op)
                continue
            r = op.results[0] if len(op.results) == 1 else None
            if not late.isdisjoint(op.operands):
                self.after.append(op)
                late.update(op.results)
            elif r is not None and r in self.axis and self._parallel(op):
                self.inside.append(op)
                inside.add(r)
            elif inside.isdisjoint(op.operands):
                self.before.append(op)
            elif r is not None and self._summed(op) is not None:
                self.sums.append(op)
                late.add(r)
            else:
                self.after.append(op)
                late.update(op.results)

    def _parallel(self, op: Op) -> bool:
        if op.regions or has_effect(op):
            return False
        axes = operand_axes(op, self.axis[op.results[0]])
        if axes is None:
            return False
        return all(self.axis.get(v) == a or _splat(v) for v, a in zip(op.operands, axes))

    def _summed(self, op: Op) -> list[int | None] | None:
        """The row axis of each operand of an operation that sums over the rows, else None."""
        if op.name not in _COMBINE or op.results[0].type.dtype.kind != "f":
            return None
        if op.results[0] in self.axis:
            return None
        x = op.operands[0]
        if op.name != "dot":
            return [self.axis[x]] if self.axis.get(x) in op.attrs["axes"] else None
        y = op.operands[1]
        for i, j in zip(*op.attrs["contract"]):
            if all(self.axis.get(v) == k or _splat(v) for v, k in ((x, i), (y, j))):
                if x in self.axis or y in self.axis:
                    return [i, j]
        return None

    def _needed_whole(self) -> list[Value]:
        """What the loop computes and something after it needs."""
        needed = set(self.fn.results)
        for op in self.after:
            needed.update(op.operands)
        return [r for op in self.inside for r in op.results if r in needed]

    def _block_rows(self) -> int:
        stored: dict[Value, None] = {}
        copied = touched = 0
        loop = {*self.inside, *self.sums}
        params = set(self.fn.params)
        for op in loop:
            if op.name != "dot":
                continue
            for v in (*op.operands, *op.results):
                if v in self.axis:
                    touched += v.type.nbytes
                    stored[v] = None
            if op in self.inside:
                batch = 1
                for j in op.attrs["batch"][0]:
                    batch *= op.operands[0].type.shape[j]
                other = [v.type.nbytes // batch for v in op.operands if v not in self.axis]
                copied = max(copied, *other, 0)
        temporaries = [v for v in stored if v not in params]
        once = sum(op.name == "dot" for op in loop) < 2
        if (sum(v.type.nbytes for v in temporaries) if once else touched) < LARGE:
            raise _NotBlocked
        row = sum(v.type.nbytes for v in stored) // self.n
        least = FEWER_COPIES if copied > COPIED else FEW_ROWS
        # what is carried is read and written for each block
        carried = sum(op.results[0].type.nbytes for op in self.sums)
        budget = min(max(BLOCK_BYTES, 2 * carried), MOST_BYTES)
        rows = min(max(budget // max(row, 1), least), MANY_ROWS)
        fitting = [
            b
            for b in range(max(rows // 2, least), min(2 * rows, self.n // 3) + 1)
            if self.n % b == 0
        ]
        if fitting:
            return min(fitting, key=lambda b: (b % 8 != 0, abs(b - rows)))
        rows -= rows % 8
        if rows < FEW_ROWS or self.n < 3 * rows or self.whole or not temporaries:
            raise _NotBlocked
        return rows

    # -- rewriting ------------------------------------------------------------------

    def rewritten(self) -> Function:
        fn, rows = self.fn, self.rows
        count, rest = divmod(self.n, rows)
        loop = [*self.inside, *self.sums]
        made = {r for op in loop for r in op.results}
        given = dict.fromkeys(v for op in loop for v in op.operands if v not in made)
        given = {v: None for v in given if not _splat(v)}
        xs = [v for v in given if v in self.axis]
        consts = [v for v in given if v not in self.axis]
        if any(self.axis[v] for v in (*xs, *self.whole)) or not self.sums:
            raise _NotBlocked
        b = Builder()
        b.params.extend(fn.params)
        env: dict[Value, Value] = {p: p for p in fn.params}
        _emit(b, self.before, env)

        def blocks(v: Value) -> Value:
            v = env[v]
            head = b.slice(v, [0] * v.type.ndim, (count * rows, *v.type.shape[1:])) if rest else v
            return b.reshape(head, (count, rows, *v.type.shape[1:]))

        start = [b.constant(_NEUTRAL[_COMBINE[op.name]], op.results[0].type) for op in self.sums]
        inner = Builder()
        carried = [inner.param(op.results[0].type, op.results[0].hint) for op in self.sums]
        names: dict[Value, Value] = {}
        for v in xs:
            names[v] = inner.param(_short(v.type, self.axis[v], rows), v.hint)
        for v in consts:
            names[v] = inner.param(v.type, v.hint)
        self._rows(inner, loop, names, rows)
        totals = [
            inner.emit(_COMBINE[op.name], (c, names[op.results[0]]))
            for op, c in zip(self.sums, carried)
        ]
        body = inner.block([*totals, *(names[v] for v in self.whole)])
        scan = emit_scan(b, start, [blocks(v) for v in xs], [env[v] for v in consts], body, count)
        sums = list(scan.results[: len(totals)])
        if rest:
            names = {v: env[v] for v in consts}
            for v in xs:
                at = [count * rows] + [0] * (v.type.ndim - 1)
                names[v] = b.slice(env[v], at, (rest, *v.type.shape[1:]))
            self._rows(b, loop, names, rest)
            sums = [
                b.emit(_COMBINE[op.name], (s, names[op.results[0]]))
                for op, s in zip(self.sums, sums)
            ]
        env.update(zip([op.results[0] for op in self.sums], sums))
        for v, stack in zip(self.whole, scan.results[len(totals) :]):
            env[v] = b.reshape(stack, v.type.shape)
        _emit(b, self.after, env)
        return b.function(fn.name, [env[r] for r in fn.results])

    def _rows(self, b: Builder, ops: Iterable[Op], names: dict[Value, Value], rows: int) -> None:
        """The operations of the loop for ``rows`` rows."""
        for op in ops:
            b.loc = op.loc
            r = op.results[0]
            operands = []
            axes = operand_axes(op, self.axis[r]) if r in self.axis else self._summed(op)
            for k, v in enumerate(op.operands):
                if v.op is None or not _splat(v):
                    operands.append(names[v])
                    continue
                axis = axes[k] if axes is not None else None
                like = v.type if axis is None else _short(v.type, axis, rows)
                operands.append(b.constant(v.op.attrs["value"], like))
            attrs = with_axis(op, self.axis[r], rows) if r in self.axis else op.attrs
            names[r] = b.emit(op.name, tuple(operands), attrs, r.hint)


def with_axis(op: Op, axis: int, n: int) -> Attrs:
    """The attributes of an operation whose result has ``n`` elements along ``axis``, along which
    it is parallel."""
    for key in ("shape", "size"):
        if key in op.attrs:
            shape = op.attrs[key]
            return {**op.attrs, key: (*shape[:axis], n, *shape[axis + 1 :])}
    return op.attrs


def _short(t: Type, axis: int, rows: int) -> Type:
    return t.with_shape((*t.shape[:axis], rows, *t.shape[axis + 1 :]))


_NEUTRAL = {"add": 0.0, "mul": 1.0, "max": float("-inf"), "min": float("inf")}


def _emit(b: Builder, ops: Iterable[Op], env: dict[Value, Value]) -> None:
    for op in ops:
        new = b.append(op, tuple([env[v] for v in op.operands]))
        env.update(zip(op.results, new.results))
