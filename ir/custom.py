"""Op entry ``custom``: a computation with a derivative rule of its own.

``custom(*args) {mode, n_args, name}`` has the body as its first region, ``args → results``.
Its derivative is given by a second region, in terms of the arguments, the results (so that a
rule that uses them is right at every order) and

* ``mode="vjp"``: cotangents of the inexact results → cotangents of the arguments;
* ``mode="jvp"``: tangents of the arguments → tangents of the inexact results;
* ``mode="none"``: there is no second region, the results are constants to derivatives;
* ``mode="missing"``: none either, and taking a derivative is an error that names ``name``.

Arguments means the inexact ones among the first ``n_args``; the others are values that the
user's function took from around it.  The rule says nothing about them: a derivative with
respect to them is an error.  A rule is linear in what it maps, so each mode serves the
other by transposition.

Transforms keep the operation; ``expand`` puts the bodies in place before compilation.

    %y = custom %x {mode="jvp", n_args=1, name="f"} (%x: f64[]) {
      %0 = exp %x : f64[]
      return %0
    } (%x: f64[], %y: f64[], %t: f64[]) {
      %0 = mul %t, %y : f64[]
      return %0
    } : f64[]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tapec.ir.adjoint import AdjointBuilder, inline_calls
from tapec.ir.builder import Builder
from tapec.ir.checks import attr
from tapec.ir.core import Attrs, Block, Function, Op, Type, Value, walk
from tapec.ir.dce import rebuilt
from tapec.ir.opdef import define

if TYPE_CHECKING:
    from tapec.ir.batch import BatchBuilder

__all__ = ["RuleError", "expand"]

Types = tuple[Type, ...]
Cts = Sequence[Value | None]
MODES = ("vjp", "jvp", "none", "missing")


class RuleError(TypeError):
    """A derivative that a custom rule does not give."""


def _inexact(types: Sequence[Type]) -> list[Type]:
    return [t for t in types if t.dtype.is_inexact]


def _infer(types: Types, attrs: Attrs) -> Types:
    raise TypeError("custom: has no regions")


def _infer_regions(types: Types, attrs: Attrs, regions: tuple[Block, ...]) -> Types:
    mode, n = attr("custom", attrs, "mode"), attr("custom", attrs, "n_args")
    if mode not in MODES or type(n) is not int or not 0 <= n <= len(types):
        raise TypeError(f"custom: mode {mode!r} with {n} of {len(types)} arguments")
    if len(regions) != (2 if mode in ("vjp", "jvp") else 1):
        raise TypeError(f"custom: {len(regions)} regions in mode {mode!r}")
    if tuple([p.type for p in regions[0].params]) != types:
        raise TypeError(f"custom: the body takes {regions[0].params}, got {list(types)}")
    results = tuple([r.type for r in regions[0].results])
    if len(regions) == 2:
        args, outs = _inexact(types[:n]), _inexact(results)
        given, found = (outs, args) if mode == "vjp" else (args, outs)
        rule = regions[1]
        if [p.type for p in rule.params] != [*types, *results, *given]:
            raise TypeError(
                f"custom: the rule takes {[p.type for p in rule.params]}, "
                f"expected {[*types, *results, *given]}"
            )
        if [r.type for r in rule.results] != found:
            raise TypeError(
                f"custom: the rule gives {[r.type for r in rule.results]}, expected {found}"
            )
    return results


def _numpy(arrays: Sequence[Any], attrs: Attrs) -> Any:
    raise TypeError("custom: the meaning is the first region's, which the interpreter evaluates")


# -- derivatives ------------------------------------------------------------------------


def _check(op: Op, wanted: Sequence[bool]) -> None:
    """``wanted``: which operands a derivative is asked for."""
    name = op.attrs["name"]
    if op.attrs["mode"] == "missing":
        raise RuleError(
            f"the derivative of '{name}' of this order is not available: its rule uses "
            "functions with custom rules, which are followed to a limited depth"
        )
    if any(wanted[op.attrs["n_args"] :]):
        k = next(k for k in range(op.attrs["n_args"], len(wanted)) if wanted[k])
        hint = op.operands[k].hint
        raise RuleError(
            f"the custom rule of '{name}' does not say how it depends on a value that it takes "
            f"from around it{f' ({hint!r})' if hint else ''}; instead: pass the value as an "
            "argument, or wrap it in tapec.stop_gradient"
        )


def _rule(op: Op) -> Function:
    r = op.regions[1]
    return Function(f"{op.attrs['name']}.rule", r.params, r.ops, r.results)


def _apply(b: Builder, op: Op, given: Sequence[Value]) -> list[Value]:
    """The rule in its own direction."""
    return b.inline(_rule(op), [*op.operands, *op.results, *given])


def _transposed(b: Builder, op: Op, given: Sequence[Value]) -> list[Value]:
    """The rule, which is linear, in the other direction."""
    from tapec.ir.passes import simplify
    from tapec.ir.vjp import vjp

    rule = _rule(op)
    base = len(op.operands) + len(op.results)
    linear = list(range(base, len(rule.params)))
    both = vjp(rule, linear, list(range(len(rule.results))))
    back = simplify(Function(both.name, both.params, both.ops, both.results[len(rule.results) :]))
    seeds = rule.params[base:]
    moving = set(seeds)
    for inner in back.ops:
        if not moving.isdisjoint(inner.operands):
            moving.update(inner.results)
    if not moving.isdisjoint(back.results):
        what = "cotangents" if op.attrs["mode"] == "vjp" else "tangents"
        raise RuleError(f"the custom rule of '{op.attrs['name']}' is not linear in its {what}")
    zeros = [b.zeros(s.type) for s in seeds]
    return b.inline(back, [*op.operands, *op.results, *zeros, *given])


def _by_position(found: Sequence[Value], values: Sequence[Value], count: int) -> list[Value | None]:
    """One entry per value: what was found for the inexact ones among the first ``count``."""
    rest = iter(found)
    return [
        next(rest) if k < count and v.type.dtype.is_inexact else None for k, v in enumerate(values)
    ]


def _filled(b: Builder, values: Sequence[Value], given: Cts, count: int) -> list[Value]:
    """Cotangents or tangents of the inexact ones among the first ``count`` values."""
    return [
        b.zeros(v.type) if g is None else g
        for v, g in list(zip(values, given, strict=True))[:count]
        if v.type.dtype.is_inexact
    ]


def _vjp(b: AdjointBuilder, op: Op, cts: Cts) -> Cts:
    if op.attrs["mode"] == "none":
        return [None] * len(op.operands)
    _check(op, [x in b.active for x in op.operands])
    given = _filled(b, op.results, cts, len(op.results))
    masked = any(ct is not None and b.is_masked(ct) for ct in cts)
    found = (_apply if op.attrs["mode"] == "vjp" else _transposed)(b, op, given)
    if masked:
        found = _strong(b, given, found)
    return _by_position(found, op.operands, op.attrs["n_args"])


def _jvp(b: AdjointBuilder, op: Op, tangents: Cts) -> Cts:
    if op.attrs["mode"] == "none":
        return [None] * len(op.results)
    _check(op, [t is not None for t in tangents])
    given = _filled(b, op.operands, tangents, op.attrs["n_args"])
    masked = any(t is not None and b.is_masked(t) for t in tangents)
    found = (_apply if op.attrs["mode"] == "jvp" else _transposed)(b, op, given)
    if masked:
        found = _strong(b, given, found)
    return _by_position(found, op.results, len(op.results))


def _strong(b: Builder, given: Sequence[Value], found: Sequence[Value]) -> list[Value]:
    """``found``, but 0 where all that it is linear in is 0, whatever the rule computes."""
    some: Value | None = None
    for g in given:
        nonzero = b.ne(g, b.like(0, g))
        nonzero = b.reduce("any", nonzero, range(g.type.ndim))
        some = nonzero if some is None else b.logical_or(some, nonzero)
    if some is None:
        return list(found)
    return [b.select(b.broadcast(some, f.type.shape, ()), f, b.like(0, f)) for f in found]


# -- batching ---------------------------------------------------------------------------


def _batch(b: BatchBuilder, op: Op, xs: Sequence[Value]) -> Sequence[Value]:
    """All arguments get the axis: what a rule gives for each of them has it too."""
    from tapec.ir.batch import batch_block

    regions = []
    for region in op.regions:
        block, _ = batch_block(
            region, [True] * len(region.params), b.n, [True] * len(region.results)
        )
        regions.append(block)
    return b.emit_op("custom", tuple([b.spread(x) for x in xs]), op.attrs, tuple(regions)).results


define(
    "custom",
    infer=_infer,
    infer_regions=_infer_regions,
    numpy=_numpy,
    vjp=_vjp,
    jvp=_jvp,
    batch=_batch,
    doc="The results of the first region; the second says what their derivatives are.",
)


# -- before compilation -------------------------------------------------------------------


def expand(fn: Function) -> Function:
    """``fn`` with the body of every ``custom`` in its place; ``fn`` itself if there is none."""
    if not any(op.name == "custom" for op in walk(fn.block)):
        return fn
    block = _expanded(fn.block)
    return inline_calls(Function(fn.name, block.params, block.ops, block.results))


def _expanded(block: Block) -> Block:
    """``custom`` operations become ``call``, at any depth."""
    env: dict[Value, Value] = {}
    out: list[Op] = []
    for op in block.ops:
        operands = tuple([env.get(v, v) for v in op.operands])
        if op.name == "custom":
            types = tuple([r.type for r in op.results])
            body = (_expanded(op.regions[0]),)
            new = Op("call", operands, types, {"name": op.attrs["name"]}, body, op.loc)
        elif op.regions:
            new = rebuilt(op, operands, tuple([_expanded(r) for r in op.regions]))
        elif operands != op.operands:
            new = rebuilt(op, operands, ())
        else:
            out.append(op)
            continue
        env.update(zip(op.results, new.results, strict=True))
        out.append(new)
    return Block(block.params, out, [env.get(r, r) for r in block.results])
