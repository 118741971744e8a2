"""Whether a value is computed again in each nest that needs it, or once and stored.

``repeated`` answers before anything is planned, in one pass each way.  A reduction ends a *level*:
what needs its result is computed in a later nest.  A value that is needed in its own level and at
once in a later one is computed twice, and stored if that clearly costs too much.  Planning decides
the other cases by counting what the nests compute; but that takes quadratic time where every nest
computes everything again from the start.

>>> from tapec.ir.parser import parse
>>> fn = parse('''func @f(%x: f64[100]) -> (f64[100]) {
...   %t = tanh %x : f64[100]
...   %u = tan %t : f64[100]
...   %e = sinh %u : f64[100]
...   %s = reduce_sum %e {axes=(0)} : f64[]
...   %b = broadcast %s {dims=(), shape=(100)} : f64[100]
...   %y = div %e, %b : f64[100]
...   return %y
... }''')
>>> kind = {fn.params[0]: "mem"} | {op.results[0]: "inline" for op in fn.ops}
>>> repeated(fn, kind | {fn.ops[3].results[0]: "reg"}) == {fn.ops[2].results[0]}
True
"""

from __future__ import annotations

from collections.abc import Mapping

from tapec.ir.core import Function, Value
from tapec.ir.opdef import OPS

__all__ = ["INDEX_OPS", "REDUCTIONS", "SOURCES", "cost", "heavy", "repeated"]

INDEX_OPS = frozenset({"broadcast", "transpose", "slice", "reshape", "place", "gather"})
SOURCES = frozenset({"constant", "iota"})
REDUCTIONS = frozenset(f"reduce_{kind}" for kind in ("sum", "prod", "max", "min", "any", "all"))

#: Recomputing more than this (in multiplications per element) twice costs more than a
#: store and a load.
RECOMPUTE_LIMIT = 8
#: The same where the array does not fit into the cache (bytes).
RECOMPUTE_LIMIT_MEMORY = 30
IN_CACHE = 1 << 22
#: What is decided before planning is clear by this factor.
CLEARLY = 3


def heavy(v: Value, cost: float) -> bool:
    """Whether storing ``v`` beats computing it twice at this cost per element."""
    return cost > (RECOMPUTE_LIMIT if v.type.nbytes <= IN_CACHE else RECOMPUTE_LIMIT_MEMORY)


def cost(v: Value, kind: Mapping[Value, str]) -> float:
    """Multiplications per element to compute an inline value from what is stored."""
    total, seen, stack = 0.0, {v}, [v]
    while stack and total <= RECOMPUTE_LIMIT_MEMORY:
        op = stack.pop().op
        if op is None:
            continue
        if op.name not in INDEX_OPS and op.name not in SOURCES:
            total += OPS[op.name].cost
        for x in op.operands:
            if x not in seen and kind[x] == "inline":
                seen.add(x)
                stack.append(x)
    return total


def repeated(fn: Function, kind: Mapping[Value, str]) -> set[Value]:
    """Inline values that would be computed in several levels at too high a cost."""
    if "inline" not in kind.values():
        return set()
    level: dict[Value, int] = {}
    crossing: set[Value] = set()  # inline values with a user in a later level
    for op in fn.ops:
        at = max([level.get(v, 0) for v in op.operands], default=0)
        for v in op.operands:
            if level.get(v, 0) < at and kind[v] == "inline":
                crossing.add(v)
        at += op.name in REDUCTIONS or bool(op.regions)
        for r in op.results:
            level[r] = at
    if not crossing:
        return crossing
    here: set[Value] = set()  # inline values that their own level needs
    for op in reversed(fn.ops):
        for v in op.operands:
            if kind[v] != "inline":
                continue
            if op.name in REDUCTIONS or not op.results:
                here.add(v)
                continue
            r = op.results[0]
            if level[v] == level[r] and (kind[r] != "inline" or r in here):
                here.add(v)
    found: set[Value] = set()
    least: dict[Value, float] = {}  # costs, bounded from below: no tree is walked
    for op in fn.ops:
        if not op.results or kind[op.results[0]] != "inline":
            continue
        r = op.results[0]
        own = 0.0 if op.name in INDEX_OPS or op.name in SOURCES else OPS[op.name].cost
        least[r] = own + max([least.get(v, 0.0) for v in op.operands], default=0.0)
        if r in crossing and r in here and heavy(r, least[r] / CLEARLY):
            found.add(r)
            least[r] = 0.0
    return found
