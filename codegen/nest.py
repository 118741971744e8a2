"""Loop nests as LLVM text: explicit vectors, static trip counts, masked tails.

The vector axis stands innermost.  Nodes are emitted at the outermost loop level on which
they depend: what is uniform over the vector axis is computed as a scalar before the inner
loop and repeated over the lanes there.  Trip counts are static, so the remainder of the
vector loop is one straight masked step with a constant mask.

How reductions accumulate is in ``reducer``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tapec.codegen.body import Node, affine, strides_of
from tapec.codegen.multiply_add import fused_products
from tapec.codegen.order import (
    accesses as all_accesses,
)
from tapec.codegen.order import (
    collapse,
    sine_pairs,
    vector_axis,
    width,
)
from tapec.codegen.places import interleaved
from tapec.codegen.program import Nest, Store
from tapec.codegen.reducer import Reducer, fill_identity
from tapec.codegen.scalars import (
    constant,
    convert,
    emit_op,
    llvm_type,
    multiply_add,
    reduce_step,
)
from tapec.codegen.target import host
from tapec.codegen.vectors import (
    load_vector,
    memory_type,
    plus,
    splat,
    store_interleaved,
    store_vector,
    times,
)
from tapec.ir.core import BOOL, I64, DType, Value
from tapec.ir.opdef import OPS

if TYPE_CHECKING:
    from tapec.codegen.kernel import KernelEmitter

__all__ = ["emit_nest"]

#: Below this cost a pure reduction is unrolled, to hide the latency of its additions.
UNROLL_COST = 16
#: Rows of at most this many vectors are summed in registers, in bodies of this many nodes.
HELD_VECTORS, HELD_NODES = 16, 160
#: A nest of more parts than this has its edges (parts of less than 1/EDGE of the largest)
#: done by scalar loops.
MANY_PARTS, EDGE = 4, 16


class _Loop:
    """One loop of a nest after collapsing: a group of adjacent axes, ``axes`` their bits."""

    __slots__ = ("axes", "hi", "last", "lo")

    def __init__(self, axes: int, last: int, lo: int, hi: int) -> None:
        self.axes = axes
        self.last = last  # the innermost axis of the group: its strides are the loop's
        self.lo = lo
        self.hi = hi

    @property
    def extent(self) -> int:
        return self.hi - self.lo


# -- emission ---------------------------------------------------------------------------


def emit_nest(k: KernelEmitter, nest: Nest) -> None:
    """Emit one nest at the current place of the kernel."""
    if not nest.parts:
        for r in nest.reduces:
            fill_identity(k, r)
        return
    everything = [n for _, nodes, _ in nest.parts for n in nodes]
    found = all_accesses(nest, everything)
    groups = collapse(nest, found, everything)
    if groups:
        best = vector_axis(nest, found)
        vector = next((g for g in groups if best in g), groups[-1])
        groups = [g for g in groups if g is not vector] + [vector]
    w = width(nest)
    reducers = [Reducer(k, nest, r, groups, w) for r in nest.reduces]
    for reducer in reducers:
        reducer.start()
    for segment, nodes, roots in nest.parts:
        _Part(k, nest, segment, nodes, roots, groups, w, reducers).emit()
    for reducer in reducers:
        reducer.finish()


class _Part:
    """Emission of one segment of a nest."""

    def __init__(
        self,
        k: KernelEmitter,
        nest: Nest,
        segment: tuple[tuple[int, int], ...],
        nodes: list[Node],
        roots: list[Node | None],
        groups: list[list[int]],
        w: int,
        reducers: list[Reducer],
    ) -> None:
        self.k, self.nest, self.nodes, self.w = k, nest, nodes, w
        self.rank = len(nest.space)
        self.store_roots = [(s, n) for s, n in zip(nest.stores, roots) if n is not None]
        found = zip(reducers, roots[len(nest.stores) :])
        self.reduce_roots = [(r, n) for r, n in found if n is not None]
        self.reducers = [r for r, _ in self.reduce_roots]
        self.pairs = sine_pairs(nodes)
        self.joint: dict[Node, str] = {}
        self.segment = segment
        self.loops: list[_Loop] = []
        for g in groups:
            lo, hi = segment[g[0]]
            if len(g) > 1:
                hi = 1
                for j in g:
                    hi *= nest.space[j]
            self.loops.append(_Loop(sum(1 << j for j in g), g[-1], lo, hi))
        self.index: list[str] = [str(loop.lo) for loop in self.loops]
        #: node → text, per level; vector-level entries are rebuilt for each copy of the body
        self.scalar: dict[Node, str] = {}
        self.lanes: dict[Node, str] = {}
        self.splats: dict[Node, str] = {}
        self.pointers: dict[Any, str] = {}
        self.level: dict[Node, int] = {}
        #: the sums of a row that are in registers, by vectors; the vector that is being computed
        self.held: dict[Reducer, list[str]] = {}
        self.piece = 0
        for node in nodes:
            level = -1
            for p, loop in enumerate(self.loops):
                if node.axes & loop.axes and loop.extent > 1:
                    level = p
            self.level[node] = level
        #: products that are part of an addition, see ``multiply_add``
        self.fused: dict[Node, Node] = {}
        if host().has_fma:
            last = len(self.loops) - 1
            summed = [
                n
                for r, n in self.reduce_roots
                if r.kind == "sum" and last >= 0 and self.level[n] == last
            ]
            stored = [n for _, n in self.store_roots]
            stored += [n for _, n in self.reduce_roots if n not in summed]
            self.fused = fused_products(nodes, stored, summed, self.level)

    # -- addresses ------------------------------------------------------------------

    def _offset(self, constant_part: int, strides: Sequence[int], upto: int) -> str:
        """``constant + Σ stride·index`` over the loops before position ``upto``."""
        em = self.k.em
        text = str(constant_part)
        for p in range(upto):
            loop = self.loops[p]
            s = strides[loop.last]
            if not s:
                continue
            if loop.extent == 1:
                text = plus(em, text, str(s * loop.lo))
                continue
            term = self.index[p] if s == 1 else em.let(f"mul i64 {self.index[p]}, {s}")
            text = plus(em, text, term)
        return text

    def _pointer(self, value: Value, offset: int, strides: Sequence[int], dtype: DType) -> str:
        """The address at the current outer iteration, without the vector index."""
        key = (value, offset, tuple(strides))
        found = self.pointers.get(key)
        if found is None:
            last = len(self.loops) - 1
            if last >= 0 and self.loops[last].extent == 1:
                offset += strides[self.loops[last].last] * self.loops[last].lo
            at = self._offset(offset, strides, max(last, 0))
            base = self.k.pointer(value)
            mt = memory_type(dtype)
            found = (
                base if at == "0" else self.k.em.let(f"getelementptr {mt}, ptr {base}, i64 {at}")
            )
            self.pointers[key] = found
        return found

    # -- loops ----------------------------------------------------------------------

    def emit(self) -> None:
        self._scalars(-1)
        self._outer(0)

    def _scalars(self, level: int) -> None:
        last = len(self.loops) - 1
        if level == last and last >= 0 and self.loops[last].extent > 1:
            return
        for node in self.nodes:
            if self.level[node] == level and node not in self.fused:
                self.scalar[node] = self._node(node, 1, "0", 1)

    def _outer(self, p: int) -> None:
        last = len(self.loops) - 1
        if p >= last:
            self._inner()
            return
        loop, k = self.loops[p], self.k
        saved = None
        held = self._held(p)
        if loop.extent > 1:
            before = {r: self._row(r) for r in held}
            self.index[p] = k.open_loop(loop.extent, loop.lo)
            phis = {
                r: [k.phi(llvm_type(r.dtype, self.w), x) for x in row] for r, row in before.items()
            }
            self.held = {r: list(row) for r, row in phis.items()}
            saved = (dict(self.scalar), dict(self.pointers), dict(self.splats))
        for r in self.reducers:
            if r.lanes and r.level == p:
                r.reset()
        if loop.extent > 1:
            self._scalars(p)
        self._outer(p + 1)
        for r in self.reducers:
            if r.lanes and r.level == p:
                r.flush(self._offset(0, r.strides, p + 1))
        if saved is not None:
            self.scalar, self.pointers, self.splats = saved
            sums, self.held = self.held, {}
            for r in held:
                for phi, name in zip(phis[r], sums[r]):
                    k.set_phi(phi, name)
            k.close_loop()
            for r in held:
                self._row(r, sums[r])

    def _held(self, p: int) -> list[Reducer]:
        """The reductions over loop ``p`` whose results are short rows along the vector axis: they
        are summed in registers."""
        last = len(self.loops) - 1
        row = self.loops[last].extent
        pieces = -(-row // self.w)
        if p != last - 1 or len(self.nest.parts) > 1 or not row > 1 or pieces > HELD_VECTORS:
            return []
        if pieces * len(self.nodes) > HELD_NODES:
            return []
        axis = self.loops[p].last
        return [r for r in self.reducers if not r.lanes and axis in r.op.attrs["axes"]]

    def _row(self, r: Reducer, values: Sequence[str] = ()) -> list[str]:
        """The vectors of a reduction's row in memory; ``values`` are written to it."""
        k, w, loop = self.k, self.w, self.loops[-1]
        pointer = self._pointer(r.result, 0, r.strides, r.dtype)
        stride = r.strides[loop.last]
        out = []
        for i, at in enumerate(range(loop.lo, loop.hi, w)):
            lanes = min(w, loop.hi - at)
            if values:
                store_vector(k, r.dtype, values[i], pointer, str(at), stride, w, lanes)
            else:
                out.append(load_vector(k, r.dtype, pointer, str(at), stride, w, lanes))
        return out

    def _inner(self) -> None:
        k, w = self.k, self.w
        if not self.loops:
            self._body("0", 1, 1, [[] for _ in self.reducers], single=True)
            return
        loop = self.loops[-1]
        n = loop.extent
        if n == 1:
            self._body("0", 1, 1, [[] for _ in self.reducers], single=True)
            return
        if self._is_edge():
            self._prepare(1)
            self.index[-1] = index = k.open_loop(n, loop.lo)
            self._body(index, 1, 1, [[] for _ in self.reducers])
            k.close_loop()
            self.lanes = {}
            return
        unroll = 4 if self._cheap_reduction() and n >= 8 * w else 1
        # prepare pointers and splats before the loop, where they belong
        self._prepare(w)
        accs = [r.begin() for r in self.reducers]
        at = loop.lo
        if self.held:  # all of a row at once
            unroll = 1
            for self.piece, at in enumerate(range(loop.lo, loop.hi, w)):
                new = self._body(str(at), w, min(w, loop.hi - at), [a[:1] for a in accs])
                for acc, names in zip(accs, new):
                    acc[: len(names)] = names
            at = loop.hi
        for u in (unroll, 1) if unroll > 1 else (1,):
            trips = (loop.hi - at) // (w * u)
            if trips > 1:
                phis = []
                open_at = k.open_vector_loop(at, at + trips * w * u, w * u)
                for r, acc in zip(self.reducers, accs):
                    vt = llvm_type(r.dtype, w)
                    phis.append([k.phi(vt, a) for a in acc[:u]])
                new = self._copies(open_at, u, w, phis)
                for names, ph in zip(new, phis):
                    for name, phi in zip(names, ph):
                        k.set_phi(phi, name)
                k.close_loop()
                for acc, names in zip(accs, new):
                    acc[: len(names)] = names
            elif trips == 1:
                new = self._copies(str(at), u, w, [a[:u] for a in accs])
                for acc, names in zip(accs, new):
                    acc[: len(names)] = names
            at += trips * w * u
        if at < loop.hi:
            new = self._body(str(at), w, loop.hi - at, [a[:1] for a in accs])
            for acc, names in zip(accs, new):
                acc[: len(names)] = names
        for r, acc in zip(self.reducers, accs):
            r.end(acc)

    def _copies(self, index: str, u: int, w: int, accs: list[list[str]]) -> list[list[str]]:
        out: list[list[str]] = [[] for _ in accs]
        for c in range(u):
            at = index if c == 0 else plus(self.k.em, index, str(c * w))
            new = self._body(at, w, w, [[a[c]] if a else [] for a in accs])
            for o, names in zip(out, new):
                o.extend(names)
        return out

    def _cheap_reduction(self) -> bool:
        if self.store_roots or not self.reducers or not all(r.lanes for r in self.reducers):
            return False
        last = len(self.loops) - 1
        cost = 0.0
        for node in self.nodes:
            if self.level[node] == last:
                cost += OPS[node.op.name].cost if node.kind == "op" and node.op else 1
        return cost <= UNROLL_COST

    def _is_edge(self) -> bool:
        """A small part among many: a scalar loop keeps its code short."""
        if len(self.nest.parts) <= MANY_PARTS:
            return False
        return EDGE * self._size(self.segment) < max(self._size(p[0]) for p in self.nest.parts)

    @staticmethod
    def _size(segment: Sequence[tuple[int, int]]) -> int:
        n = 1
        for lo, hi in segment:
            n *= hi - lo
        return n

    def _prepare(self, w: int) -> None:
        last = len(self.loops) - 1
        for node in self.nodes:
            if self.level[node] != last:
                continue
            if node.kind == "load":
                offset, strides = affine(node.map, node.value.type.shape, self.rank)
                self._pointer(node.value, offset, strides, node.dtype)
            for a in node.args:
                if self.level[a] < last and node.kind != "gather":
                    self._lanes(a, w)
        for s, root in self.store_roots:
            self._pointer(s.target, s.offset, s.strides, s.target.type.dtype)
            if self.level[root] < last:
                self._lanes(root, w)
        for r, root in self.reduce_roots:
            if not r.lanes and r not in self.held:
                self._pointer(r.result, 0, r.strides, r.dtype)
            if self.level[root] < last:
                self._lanes(root, w)

    def _lanes(self, node: Node, w: int) -> str:
        """A node's value over the lanes (repeated if it is uniform)."""
        last = len(self.loops) - 1
        if last >= 0 and self.level[node] == last and self.loops[last].extent > 1:
            return self.lanes[node]
        if node.kind == "const":
            return constant(node.text, node.dtype, w)
        if w == 1:
            return self.scalar[node]
        found = self.splats.get(node)
        if found is None:
            found = self.splats[node] = splat(self.k, node.dtype, self.scalar[node], w)
        return found

    def _body(
        self, index: str, w: int, lanes: int, accs: list[list[str]], single: bool = False
    ) -> list[list[str]]:
        """One copy of the vector body; the new accumulators."""
        k, em = self.k, self.k.em
        last = len(self.loops) - 1
        if not single:
            self.lanes = {}
            for node in self.nodes:
                if self.level[node] == last and node not in self.fused:
                    self.lanes[node] = self._node(node, w, index, lanes)
        joined: list[list[tuple[Store, Node]]] = []
        if 1 < w == lanes and not single:
            joined = interleaved(self.store_roots, self.loops[-1].last)
        for group in joined:
            s = group[0][0]
            pointer = self._pointer(s.target, s.offset, s.strides, s.target.type.dtype)
            values = [self._lanes(root, w) for _, root in group]
            store_interleaved(k, s.target.type.dtype, values, pointer, index, w)
        done = {id(s) for group in joined for s, _ in group}
        for s, root in self.store_roots:
            if id(s) in done:
                continue
            dtype = s.target.type.dtype
            value = self._lanes(root, w)
            pointer = self._pointer(s.target, s.offset, s.strides, dtype)
            stride = 1 if single else s.strides[self.loops[-1].last]
            if s.accumulate:
                old = load_vector(k, dtype, pointer, index, stride, w, lanes)
                value = reduce_step(em, "sum", dtype, w, old, value)
            store_vector(k, dtype, value, pointer, index, stride, w, lanes)
        out: list[list[str]] = []
        for (r, root), acc in zip(self.reduce_roots, accs):
            out.append([])
            if r in self.held:
                sums = self.held[r]
                sums[self.piece] = self._reduced(r, root, w, sums[self.piece])
            elif not r.lanes:
                pointer = self._pointer(r.result, 0, r.strides, r.dtype)
                stride = 1 if single else r.strides[self.loops[-1].last]
                old = load_vector(k, r.dtype, pointer, index, stride, w, lanes)
                value = self._reduced(r, root, w, old)
                store_vector(k, r.dtype, value, pointer, index, stride, w, lanes)
            elif w == 1:
                # no lanes here: fold into lane 0
                vt, t = llvm_type(r.dtype, self.w), llvm_type(r.dtype)
                old = em.let(f"load {vt}, ptr {r.slots[0]}")
                lane = em.let(f"extractelement {vt} {old}, i64 0")
                value = self._reduced(r, root, 1, lane)
                new = em.let(f"insertelement {vt} {old}, {t} {value}, i64 0")
                em.line(f"store {vt} {new}, ptr {r.slots[0]}")
            else:
                value = self._reduced(r, root, w, acc[0])
                if lanes < w:
                    vt, mask = llvm_type(r.dtype, w), f"{llvm_type(BOOL, w)} {k.mask(w, lanes)}"
                    value = em.let(f"select {mask}, {vt} {value}, {vt} {acc[0]}")
                out[-1].append(value)
        return out

    def _reduced(self, r: Reducer, root: Node, w: int, before: str) -> str:
        """One more term of a reduction."""
        if self.fused.get(root) is root:
            x, y = (self._arg(a, w) for a in root.args)
            return multiply_add(self.k.em, r.dtype, w, x, y, before)
        return reduce_step(self.k.em, r.kind, r.dtype, w, before, self._lanes(root, w))

    # -- nodes ----------------------------------------------------------------------

    def _arg(self, node: Node, w: int) -> str:
        if w == 1 and node not in self.lanes:
            if node.kind == "const":
                return constant(node.text, node.dtype)
            return self.scalar[node]
        return self._lanes(node, w)

    def _node(self, node: Node, w: int, index: str, lanes: int) -> str:
        k, em, kind = self.k, self.k.em, node.kind
        if kind == "op":
            assert node.op is not None
            if node in self.pairs:
                return self._sine_or_cosine(node, w)
            if node.op.name in ("add", "sub"):
                for side, p in enumerate(node.args):
                    if self.fused.get(p) is node:
                        return self._multiply_add(node, p, side, w)
            return emit_op(em, node.op, w, [self._arg(a, w) for a in node.args])
        if kind == "add":
            x, y = (self._arg(a, w) for a in node.args)
            return reduce_step(em, "sum", node.dtype, w, x, y)
        if kind == "const":
            return constant(node.text, node.dtype, w)
        if kind == "reg":
            return k.element(node.value, node.text)
        if kind == "load":
            offset, strides = affine(node.map, node.value.type.shape, self.rank)
            if w > 1:
                pointer = self._pointer(node.value, offset, strides, node.dtype)
                stride = strides[self.loops[-1].last]
                return load_vector(k, node.dtype, pointer, index, stride, w, lanes)
            at = self._offset(offset, strides, self.level[node] + 1)
            return load_vector(k, node.dtype, k.pointer(node.value), at, 1, 1, 1)
        if kind == "iota":
            return self._iota(node, w, index)
        return self._gather(node, w, index, lanes)

    def _multiply_add(self, node: Node, product: Node, side: int, w: int) -> str:
        """An addition or subtraction of which operand ``side`` is a product."""
        em, dtype = self.k.em, node.dtype
        x, y = (self._arg(a, w) for a in product.args)
        z = self._arg(node.args[1 - side], w)
        if node.op is not None and node.op.name == "sub":
            minus = f"fneg {llvm_type(dtype, w)}"
            if side == 0:
                z = em.let(f"{minus} {z}")
            else:
                x = em.let(f"{minus} {x}")
        return multiply_add(em, dtype, w, x, y, z)

    def _sine_or_cosine(self, node: Node, w: int) -> str:
        """One call for a sine and a cosine of the same operand."""
        known = self.joint.pop(node, None)
        if known is not None:
            return known
        em, t = self.k.em, llvm_type(node.dtype, w)
        symbol = em.math.call("sincos", node.dtype, w)
        pair = em.let(f"call {{{t}, {t}}} {symbol}({t} {self._arg(node.args[0], w)})")
        sine = em.let(f"extractvalue {{{t}, {t}}} {pair}, 0")
        cosine = em.let(f"extractvalue {{{t}, {t}}} {pair}, 1")
        if node.op is not None and node.op.name == "cos":
            sine, cosine = cosine, sine
        self.joint[self.pairs[node]] = cosine
        return sine

    def _affine_index(self, t: tuple[int, int, int], index: str, level: int) -> str:
        """``offset + coefficient·i`` of one map entry as a scalar i64."""
        em = self.k.em
        axis, coef, off = t
        if axis < 0:
            return str(off)
        p = next(q for q, loop in enumerate(self.loops) if loop.axes >> axis & 1)
        i = index if p == len(self.loops) - 1 else self.index[p]
        term = i if coef == 1 else em.let(f"mul i64 {i}, {coef}")
        return plus(em, str(off), term)

    def _iota(self, node: Node, w: int, index: str) -> str:
        em = self.k.em
        t = node.map[0]
        x = self._affine_index(t, index, 0)
        if w > 1:
            x = splat(self.k, I64, x, w)
            steps = ", ".join(f"i64 {lane * t[1]}" for lane in range(w))
            x = em.let(f"add <{w} x i64> {x}, <{steps}>")
        return convert(em, x, I64, node.dtype, w)

    def _gather(self, node: Node, w: int, index: str, lanes: int) -> str:
        """``x[i0, i1, …]``: addresses from the index nodes and the map of the other axes."""
        k, em = self.k, self.k.em
        op = node.op
        assert op is not None
        source = op.operands[0]
        axes = op.attrs["axes"]
        n_index = op.operands[1].type.ndim
        strides = strides_of(source.type.shape)
        rest = [j for j in range(source.type.ndim) if j not in axes]
        last = len(self.loops) - 1
        vector_bits = self.loops[-1].axes if self.loops and self.loops[-1].extent > 1 else 0
        base = "0"
        lane_stride = 0
        for t, j in zip(node.map[n_index:], rest):
            axis, coef, off = t
            if w > 1 and axis >= 0 and vector_bits >> axis & 1:
                lane_stride += coef * strides[j]
                i = plus(em, str(off * strides[j]), times(em, index, coef * strides[j]))
                base = plus(em, base, i)
            else:
                base = plus(em, base, times(em, self._affine_index(t, index, last), strides[j]))
        varying = []
        for a, j in zip(node.args, axes):
            wide = w > 1 and self.level[a] == last
            if wide:
                varying.append((self._lanes(a, w), a.dtype, strides[j]))
            else:
                x = self._arg(a, 1) if a.kind != "const" else str(a.text)
                x = convert(em, x, a.dtype, I64, 1) if a.kind != "const" else x
                base = plus(em, base, times(em, x, strides[j]))
        mt = memory_type(node.dtype)
        pointer = em.let(f"getelementptr {mt}, ptr {k.pointer(source)}, i64 {base}")
        if not varying:
            return load_vector(k, node.dtype, pointer, "0", lane_stride or 1, w, lanes)
        vt = f"<{w} x {mt}>"
        x = "zeroinitializer"
        for lane in range(lanes):
            at = str(lane * lane_stride)
            for vec, dt, s in varying:
                e = em.let(f"extractelement {llvm_type(dt, w)} {vec}, i64 {lane}")
                at = plus(em, at, times(em, convert(em, e, dt, I64, 1), s))
            q = em.let(f"getelementptr {mt}, ptr {pointer}, i64 {at}")
            e = em.let(f"load {mt}, ptr {q}")
            x = em.let(f"insertelement {vt} {x}, {mt} {e}, i64 {lane}")
        return em.let(f"icmp ne {vt} {x}, zeroinitializer") if node.dtype is BOOL else x
