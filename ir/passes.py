"""The table of passes, their order with its reasons, and the runner.

A pass is a pure function ``Function -> Function``.  ``run_passes`` is the only place that
verifies between passes, times them, dumps their results, and tells an exception which pass
ran on which function.

>>> from tapec.ir import parse
>>> fn = parse('''func @f(%x: f64[]) -> (f64[]) {
...   %y = mul %x, %x : f64[]
...   return %y
... }''')
>>> [op.name for op in run_passes(fn, ["simplify", "vjp", "simplify"]).ops]
['mul', 'add']
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter

from tapec.ir import rules, rules_place, rules_shape, rules_shift, spectral_rules
from tapec.ir.core import Function
from tapec.ir.dce import dce
from tapec.ir.loop_rules import prune
from tapec.ir.rewrite import RULES, Ruleset, paused_gc, rewrite

__all__ = [
    "GRADIENT", "ORDER", "PASSES", "Pass", "algebra", "checking", "cse", "fold",
    "order_errors", "run_passes", "simplify",
]  # fmt: skip

assert (
    rules and rules_shape and rules_place and rules_shift and spectral_rules
)  # imported to fill RULES

_ALL = Ruleset(RULES.values())
_NONE = Ruleset(())
_FOLD = Ruleset(r for r in RULES.values() if r.group == "fold")
_ALGEBRA = Ruleset(r for r in RULES.values() if r.group != "fold")


def simplify(fn: Function) -> Function:
    """CSE, folding, all rules and DCE, in one walk: what compilation uses."""
    return prune(rewrite(fn, _ALL))


def cse(fn: Function) -> Function:
    """Equal operations are computed once; the first keeps its name and location."""
    return rewrite(fn, _NONE)


def fold(fn: Function) -> Function:
    """Operations on constants become constants."""
    return rewrite(fn, _FOLD, cse=False)


def algebra(fn: Function) -> Function:
    """The algebraic and the shape rules."""
    return rewrite(fn, _ALGEBRA, cse=False)


def _reroll(fn: Function) -> Function:
    from tapec.ir.reroll import reroll

    return reroll(fn)


def _vjp(fn: Function) -> Function:
    from tapec.ir.vjp import vjp

    wrt = [k for k, p in enumerate(fn.params) if p.type.dtype.is_inexact]
    scalar = all(r.type.shape == () and r.type.dtype.kind == "f" for r in fn.results)
    return vjp(fn, wrt, seeds=not scalar)


def _jvp(fn: Function) -> Function:
    from tapec.ir.jvp import jvp

    return jvp(fn, [k for k, p in enumerate(fn.params) if p.type.dtype.is_inexact])


@dataclass(frozen=True, slots=True)
class Pass:
    name: str
    run: Callable[[Function], Function]
    doc: str


#: In the order in which they are useful (``ORDER`` says why).
PASSES: dict[str, Pass] = {
    p.name: p
    for p in (
        Pass("reroll", _reroll, "repeated stretches become loops"),
        Pass("dce", dce, "drop operations that nothing needs"),
        Pass("cse", cse, "compute equal operations once"),
        Pass("fold", fold, "evaluate operations on constants"),
        Pass("algebra", algebra, "algebraic and shape rules"),
        Pass("simplify", simplify, "dce, cse, fold and algebra in one walk"),
        Pass("jvp", _jvp, "add the tangents of all real parameters (forward mode)"),
        Pass("vjp", _vjp, "add the cotangents of all real parameters (reverse mode)"),
    )
}

#: (earlier, later, why).  A later pass may be followed by an earlier one again; what
#: counts is that the later one is not the first of the two to run.
ORDER: tuple[tuple[str, str, str], ...] = (
    ("dce", "cse", "a dead operation costs as much to number as a live one"),
    ("cse", "algebra", "rules such as sqrt(x*x) and select(c, x, x) compare operands by identity"),
    ("fold", "algebra", "rules recognise constant operands, not constant expressions"),
    ("reroll", "simplify", "iterations are alike only as they were written"),
    ("reroll", "cse", "a value shared by two iterations looks like the work of the first"),
    ("reroll", "vjp", "the derivative of a loop is a loop"),
    ("simplify", "vjp", "sqrt(x*x) is |x| and pow(x, 2) is x*x: differentiable at 0"),
    ("simplify", "jvp", "as for vjp"),
)

#: The pipeline from a traced function to what codegen gets.
GRADIENT: tuple[str, ...] = ("simplify", "vjp", "simplify")


def order_errors(names: Sequence[str]) -> list[str]:
    """What is wrong with running passes in this order, with reasons."""
    first: dict[str, int] = {}
    for k, name in enumerate(names):
        first.setdefault(name, k)
    return [
        f"{later!r} runs before {earlier!r}: {why}"
        for earlier, later, why in ORDER
        if earlier in first and later in first and first[later] < first[earlier]
    ]


def checking() -> bool:
    """Whether functions are verified after each pass: under pytest, or with TAPEC_CHECK=1."""
    flag = os.environ.get("TAPEC_CHECK")
    return "PYTEST_CURRENT_TEST" in os.environ if flag is None else flag not in ("", "0")


def run_passes(
    fn: Function,
    names: Iterable[str],
    *,
    check: bool | None = None,
    times: dict[str, float] | None = None,
    dump: Callable[[str, Function], None] | None = None,
) -> Function:
    """``fn`` after the passes ``names``, in that order.

    ``check``: verify before the first and after each pass (None: see ``checking``).
    ``times``: seconds by pass name are added to it.
    ``dump``: called with the name and the result of each pass.
    """
    names = list(names)
    for name in names:
        if name not in PASSES:
            raise ValueError(f"there is no pass {name!r}; passes are {', '.join(PASSES)}")
    if check is None:
        check = checking()
    if check:
        _verify(fn, "as given")
    for name in names:
        start = perf_counter()
        try:
            with paused_gc():
                fn = PASSES[name].run(fn)
        except Exception as error:
            error.add_note(f"while running {name} on @{fn.name}")
            raise
        if times is not None:
            times[name] = times.get(name, 0.0) + perf_counter() - start
        if check:
            _verify(fn, f"after {name}")
        if dump is not None:
            dump(name, fn)
    return fn


def _verify(fn: Function, when: str) -> None:
    from tapec.ir.verify import verify

    try:
        verify(fn)
    except Exception as error:
        error.add_note(f"while verifying @{fn.name} {when}")
        raise
