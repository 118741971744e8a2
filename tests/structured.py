"""Random functions with loops and branches, their unrolled twins, and native runs of IR."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapec.codegen import compile_kernel, engine, libraries
from tapec.ir import F64, I64, OPS, Block, Builder, Function, Op, Type, Value
from tapec.ir.interp import run_block
from tapec.ir.loops import emit_cond, emit_scan, emit_while, phases, scan_parts

SCALAR, SMALL, LARGE = Type(F64), Type(F64, (3,)), Type(F64, (20,))
Array = np.ndarray[Any, Any]


def native(fn: Function, arrays: Sequence[Any]) -> list[Array]:
    """The results of the compiled function."""
    source = compile_kernel(fn)
    text = source.text.replace("define internal i32 @kernel(", "define i32 @kernel(", 1)
    library = engine.compile_module(
        text, libraries.resolve(source.symbols), exports=["kernel"], opt=source.opt
    )
    kernel = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3)(library.address("kernel"))
    ins = [
        np.array(a, p.type.dtype.np, order="C", ndmin=p.type.ndim)
        for a, p in zip(arrays, fn.params, strict=True)
    ]
    outs = [np.full(r.type.shape, 77, r.type.dtype.np) for r in fn.results]
    pointers = [
        (ctypes.c_void_p * max(len(group), 1))(*[a.ctypes.data for a in group])
        for group in (ins, outs)
    ]
    workspace = np.full(source.workspace_bytes + 64, 255, np.uint8)
    code = kernel(*pointers, (workspace.ctypes.data + 63) // 64 * 64)
    assert code == 0, f"kernel returned {code}"
    return outs


# -- unrolling --------------------------------------------------------------------------


def unrolled(fn: Function, arrays: Sequence[Any]) -> Function:
    """``fn`` without regions, as it runs on ``arrays``."""
    b = Builder()
    env: dict[Value, Value] = {}
    seen: dict[Value, Array] = {}
    for p, a in zip(fn.params, arrays, strict=True):
        env[p] = b.param(p.type, p.hint)
        seen[env[p]] = np.asarray(a, p.type.dtype.np)
    with np.errstate(all="ignore"):
        results = _block(b, fn.block, [env[p] for p in fn.params], seen)
    return b.function(fn.name, results)


def _emit(
    b: Builder, seen: dict[Value, Array], name: str, xs: Sequence[Value], attrs: Any
) -> tuple[Value, ...]:
    op = b.emit_op(name, tuple(xs), attrs)
    found = OPS[name].numpy([seen[v] for v in xs], attrs)
    for r, a in zip(op.results, found if isinstance(found, tuple) else (found,), strict=True):
        seen[r] = np.asarray(a, r.type.dtype.np)
    return op.results


def _block(
    b: Builder, block: Block, args: Sequence[Value], seen: dict[Value, Array]
) -> list[Value]:
    env = dict(zip(block.params, args, strict=True))
    for op in block.ops:
        xs = [env[v] for v in op.operands]
        if op.name == "cond":
            k = min(max(int(seen[xs[0]]), 0), len(op.regions) - 1)
            results: Sequence[Value] = _block(b, op.regions[k], xs[1:], seen)
        elif op.name == "scan":
            results = _scan(b, op, xs, seen)
        elif op.name == "while":
            (phase,) = phases(op)
            n = phase.n_carry
            state, consts = xs[:n], xs[n:]
            test = op.regions[0]
            while run_block(test, [seen[v] for v in (*state, *consts)], {}, [0])[0]:
                state = _block(b, phase.body, [*state, *consts], seen)
            results = state
        else:
            results = _emit(b, seen, op.name, xs, op.attrs)
        env.update(zip(op.results, results, strict=True))
    return [env[v] for v in block.results]


def _scan(b: Builder, op: Op, xs: list[Value], seen: dict[Value, Array]) -> list[Value]:
    (body,) = op.regions
    state, scanned, consts = scan_parts(op, xs)
    c, n = len(state), op.attrs["length"]
    ys: dict[int, list[Value]] = {}
    for t in reversed(range(n)) if op.attrs["reverse"] else range(n):
        now = []
        for v in scanned:
            rest = v.type.shape[1:]
            zeros = (0,) * len(rest)
            attrs = {"start": (t, *zeros), "size": (1, *rest), "step": (1,) * (1 + len(rest))}
            (piece,) = _emit(b, seen, "slice", [v], attrs)
            now += _emit(b, seen, "reshape", [piece], {"shape": rest})
        out = _block(b, body, [*state, *now, *consts], seen)
        state, ys[t] = out[:c], out[c:]
    stacked: list[Value] = []
    for j, r in enumerate(op.results[c:]):
        pieces, at = [], []
        for t in range(n):
            shape = (1, *r.type.shape[1:])
            pieces += _emit(b, seen, "reshape", [ys[t][j]], {"shape": shape})
            at.append(((t, *[0] * (len(shape) - 1)), (1,) * len(shape)))
        attrs = {"shape": r.type.shape, "at": tuple(at)}
        stacked += _emit(b, seen, "place", pieces, attrs)
    return [*state, *stacked]


# -- random programs --------------------------------------------------------------------


class Generator:
    """Makes functions (x: f64[], v: f64[3], w: f64[20]) → f64[] whose values stay moderate."""

    def __init__(self, seed: int, large: bool = True) -> None:
        self.rng = np.random.default_rng(seed)
        self.types = [SCALAR, SMALL, LARGE] if large else [SCALAR, SMALL]

    def pick(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def function(self, depth: int = 2) -> Function:
        b = Builder()
        pool = [b.param(t, n) for t, n in zip((SCALAR, SMALL, LARGE), "xvw")]
        for _ in range(int(self.rng.integers(1, 3))):
            pool += self.region(b, pool, depth)
            self.straight(b, pool, 1)
        total = b.constant(0.0, SCALAR)
        for v in pool[-4:]:
            total = b.add(total, self.convert(b, b.unary("sin", v), SCALAR))
        return b.function("random", [total])

    def arguments(self) -> list[Array]:
        return [np.asarray(self.rng.uniform(-2, 2, t.shape)) for t in (SCALAR, SMALL, LARGE)]

    def convert(self, b: Builder, v: Value, t: Type) -> Value:
        if v.type is t:
            return v
        if v.type.shape:
            v = b.mul(b.reduce_sum(v, [0]), b.constant(1.0 / v.type.size, SCALAR))
        return v if not t.shape else b.broadcast(v, t.shape, ())

    def of(self, b: Builder, pool: list[Value], t: Type) -> Value:
        """A value of the pool as a value of type ``t``, the later ones being likelier."""
        recent = pool[-5:] if self.rng.random() < 0.7 else pool
        return self.convert(b, self.pick(recent), t)

    def straight(self, b: Builder, pool: list[Value], n: int) -> None:
        for _ in range(n):
            t = self.pick(self.types)
            x, y = self.of(b, pool, t), self.of(b, pool, t)
            kind = int(self.rng.integers(8))
            if kind == 0:
                z = b.add(x, y)
            elif kind == 1:
                z = b.mul(b.unary("tanh", x), y)
            elif kind == 2:
                z = b.unary(self.pick(("sin", "cos", "tanh")), x)
            elif kind == 3:
                z = b.unary("sqrt", b.add(b.mul(x, x), b.constant(0.5, t)))
            elif kind == 4:
                # the offset keeps equal numbers apart, which rounding would decide about
                above = b.gt(b.add(x, b.constant(0.1237, t)), y)
                z = b.select(above, b.mul(x, y), b.sub(x, y))
            elif kind == 5:
                z = b.div(x, b.add(b.mul(y, y), b.constant(1.0, t)))
            elif kind == 6 and t.shape:
                z = b.reverse(x, [0])
            else:
                z = b.mul(x, b.constant(float(self.rng.normal()), t))
            pool.append(b.unary("tanh", z) if self.rng.random() < 0.3 else z)

    def region(self, b: Builder, pool: list[Value], depth: int) -> list[Value]:
        make = self.pick((self.cond, self.scan, self.loop))
        return list(make(b, pool, depth))

    def body(
        self, params: Sequence[Type], results: Sequence[Type], depth: int, carried: int = 0
    ) -> Block:
        b = Builder()
        pool = [b.param(t) for t in params]
        floats = [v for v in pool if v.type.dtype is F64]
        self.straight(b, floats, int(self.rng.integers(1, 4)))
        if depth > 1 and self.rng.random() < 0.4:
            floats += self.region(b, floats, depth - 1)
            self.straight(b, floats, 1)
        out = []
        for k, t in enumerate(results):
            if k < carried and self.rng.random() < 0.15:
                out.append(pool[k])  # handed on unchanged
            else:
                out.append(b.unary("tanh", self.of(b, floats, t)))
        return b.block(out)

    def operands(self, b: Builder, pool: list[Value], least: int) -> list[Value]:
        n = int(self.rng.integers(least, least + 3))
        return [self.of(b, pool, self.pick(self.types)) for _ in range(n)]

    def cond(self, b: Builder, pool: list[Value], depth: int) -> Sequence[Value]:
        args = self.operands(b, pool, 1)
        types = [v.type for v in args]
        results = [self.pick(self.types) for _ in range(int(self.rng.integers(1, 3)))]
        x = self.of(b, pool, SCALAR)
        if self.rng.random() < 0.7:
            index, n = b.gt(x, b.constant(0.0123, SCALAR)), 2
        else:
            index, n = b.convert(b.unary("floor", b.mul(x, b.constant(3.0, SCALAR))), I64), 3
        regions = [self.body(types, results, depth) for _ in range(n)]
        return emit_cond(b, index, args, regions).results

    def scan(self, b: Builder, pool: list[Value], depth: int) -> Sequence[Value]:
        carry, consts = self.operands(b, pool, 1), self.operands(b, pool, 0)
        n = int(self.rng.integers(1, 5))
        xs = []
        for _ in range(int(self.rng.integers(0, 3))):
            v = self.of(b, pool, self.pick(self.types))
            wide = b.broadcast(v, (n, *v.type.shape), range(1, 1 + v.type.ndim))
            steps = b.convert(b.iota(wide.type.shape, 0), F64)
            xs.append(b.add(wide, b.unary("cos", steps)))
        slices = [v.type.with_shape(v.type.shape[1:]) for v in xs]
        c_types = [v.type for v in carry]
        y_types = [self.pick(self.types) for _ in range(int(self.rng.integers(0, 2)))]
        params = [*c_types, *slices, *[v.type for v in consts]]
        block = self.body(params, [*c_types, *y_types], depth, len(carry))
        reverse = bool(self.rng.integers(2))
        op = emit_scan(b, carry, xs, consts, block, n, reverse)
        ys = [b.reduce_sum(y, [0]) for y in op.results[len(carry) :]]
        return [*op.results[: len(carry)], *ys]

    def loop(self, b: Builder, pool: list[Value], depth: int) -> Sequence[Value]:
        """As many iterations as a value says, up to five."""
        carry, consts = self.operands(b, pool, 1), self.operands(b, pool, 0)
        limit = b.add(b.abs(self.of(b, pool, SCALAR)), b.constant(1.5, SCALAR))
        limit = b.min(limit, b.constant(4.5, SCALAR))
        start = b.constant(0.0, SCALAR)
        state, given = [start, *carry], [limit, *consts]
        types = [v.type for v in (*state, *given)]
        t = Builder()
        params = [t.param(k) for k in types]
        test = t.block([t.lt(params[0], params[len(state)])])
        one = Builder()
        params = [one.param(k) for k in types]
        inner = Builder.inline(
            one,
            _as_function(self.body(types[1:], [v.type for v in carry], depth, len(carry))),
            params[1:],
        )
        count = one.add(params[0], one.constant(1.0, SCALAR))
        block = one.block([count, *inner])
        return emit_while(b, test, [block], [state], given).results[1:]


def _as_function(block: Block) -> Function:
    return Function("body", block.params, block.ops, block.results)
