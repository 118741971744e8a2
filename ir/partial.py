"""Split a function into what can be computed before some parameters are known, and the rest.

``split(fn, late, n)`` gives ``(early, rest)``.  ``early`` takes the other parameters and gives the
first ``n`` results, which must not depend on the late ones, then the residuals: the values that
``rest`` needs.  ``rest`` takes the residuals, then the late parameters, and returns the other
results.  Applied to a forward derivative with its tangents late, this separates the value from the
linear map.

>>> from tapec.ir.parser import parse
>>> f = parse('''func @f(%x: f64[], %t: f64[]) -> (f64[], f64[]) {
...   %y = sin %x : f64[]
...   %c = cos %x : f64[]
...   %d = mul %c, %t : f64[]
...   return %y, %d
... }''')
>>> early, rest = split(f, [1], 1)
>>> [op.name for op in early.ops], [op.name for op in rest.ops]
(['sin', 'cos'], ['mul'])
"""

from __future__ import annotations

from collections.abc import Sequence

from tapec.ir.builder import Builder
from tapec.ir.core import Function

__all__ = ["split"]


def split(fn: Function, late: Sequence[int], n: int) -> tuple[Function, Function]:
    """See the module docstring.  Constants are made where they are used."""
    after = {fn.params[k] for k in late}
    for op in fn.ops:
        if not after.isdisjoint(op.operands):
            after.update(op.results)
    if not after.isdisjoint(fn.results[:n]):
        raise ValueError(f"the first {n} results of @{fn.name} depend on late parameters")
    later = [op for op in fn.ops if not after.isdisjoint(op.results)]
    later_ids = set(map(id, later))
    early = [op for op in fn.ops if id(op) not in later_ids]
    used = [v for op in later for v in op.operands] + list(fn.results[n:])
    needed = dict.fromkeys([v for v in used if v not in after])
    constant = {op.results[0]: op for op in early if op.name in ("constant", "iota")}
    residuals = [v for v in needed if v not in constant]

    others = [p for k, p in enumerate(fn.params) if k not in set(late)]
    first = Function(fn.name, others, early, [*fn.results[:n], *residuals])
    late_params = [fn.params[k] for k in late]
    own = [constant[v] for v in needed if v in constant]
    inner = Function(fn.name, [*residuals, *late_params], [*own, *later], fn.results[n:])
    b = Builder()
    params = [b.param(v.type, v.hint) for v in inner.params]
    return first, b.function(fn.name, b.inline(inner, params))
