"""``python -m tapec bench``: kernels against hand-written NumPy and other tools.

For each kernel of ``tapec.bench_problems`` and each tool that is installed: the time to the
first value and gradient (trace, compile and call; imports and one warm-up of the tool on a
tiny function excluded), the best time per call, and how many times longer value and gradient
take than the value alone.  Every gradient is compared with the one written by hand; a wrong
one is printed as such.

Each tool is a small adapter: ``Tool(problem) -> (value, value_and_grad)``, two callables
without arguments that run the problem at its point.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import math
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any

import numpy
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tapec.bench_problems import Problem, problems

__all__ = ["TOOLS", "Row", "main", "measure", "run", "show"]

Thunk = Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """One tool on one problem; seconds.  ``error`` is relative to the largest entry."""

    problem: str
    tool: str
    first: float
    value: float
    gradient: float
    ratio: float
    error: float


# The adapters.  Each imports its tool when it is first used.


def numpy_tool(problem: Problem) -> tuple[Thunk, Thunk]:
    fn, args = problem.make(math if problem.scalar else numpy), problem.args
    return (lambda: fn(*args)), (lambda: problem.by_hand(*args))


def tapec_tool(problem: Problem) -> tuple[Thunk, Thunk]:
    import tapec

    fn, args = problem.make(numpy), problem.args
    value = tapec.jit(fn)
    both = tapec.value_and_grad(fn, argnums=tuple(range(problem.wrt)))
    return (lambda: value(*args)), (lambda: both(*args))


def jax_tool(problem: Problem) -> tuple[Thunk, Thunk]:
    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    fn = problem.make(importlib.import_module("jax.numpy"))
    args = tuple(jax.numpy.asarray(a) for a in problem.args)
    value = jax.jit(fn)
    both = jax.jit(jax.value_and_grad(fn, argnums=tuple(range(problem.wrt))))
    return (
        lambda: jax.block_until_ready(value(*args)),
        lambda: jax.block_until_ready(both(*args)),
    )


def torch_tool(problem: Problem) -> tuple[Thunk, Thunk]:
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    fn = problem.make(torch)
    args = tuple(torch.tensor(a, dtype=torch.float64) for a in problem.args)
    leaves = tuple(a.requires_grad_() for a in args[: problem.wrt])

    def value() -> Any:
        with torch.no_grad():
            return fn(*args)

    def both() -> Any:
        result = fn(*args)
        return result.detach(), torch.autograd.grad(result, leaves, materialize_grads=True)

    return value, both


def autograd_tool(problem: Problem) -> tuple[Thunk, Thunk]:
    autograd = importlib.import_module("autograd")
    fn, args = problem.make(importlib.import_module("autograd.numpy")), problem.args
    both = autograd.value_and_grad(fn, tuple(range(problem.wrt)))
    return (lambda: fn(*args)), (lambda: both(*args))


def casadi_tool(problem: Problem, options: dict[str, Any] | None = None) -> tuple[Thunk, Thunk]:
    """CasADi's SX graphs, called through its buffer interface (pointers set once)."""
    ca = importlib.import_module("casadi")
    np = SimpleNamespace(sum=ca.sum1, exp=ca.exp, sin=ca.sin, cos=ca.cos, tanh=ca.tanh)
    symbols = [ca.SX.sym(f"a{i}", numpy.size(a)) for i, a in enumerate(problem.args)]
    output = problem.make(np)(*symbols)
    gradients = [ca.gradient(output, s) for s in symbols[: problem.wrt]]

    def thunk(outputs: list[Any]) -> Thunk:
        compiled = ca.Function("f", symbols, outputs, options or {})
        buffer, evaluate = compiled.buffer()
        inputs: list[Any] = [
            numpy.atleast_1d(numpy.asarray(a, numpy.float64)) for a in problem.args
        ]
        # CasADi's gradients may be structurally sparse; a dense output has a slot for each.
        results: list[Any] = [numpy.zeros(compiled.nnz_out(i)) for i in range(len(outputs))]
        for i, array in enumerate(inputs):
            buffer.set_arg(i, memoryview(array))
        for i, array in enumerate(results):
            buffer.set_res(i, memoryview(array))

        def call(keep: Any = (buffer, inputs)) -> Any:
            evaluate()
            return results[0], results[1:]

        return call

    return thunk([output]), thunk([output, *(ca.densify(g) for g in gradients)])


def casadi_c_tool(problem: Problem) -> tuple[Thunk, Thunk]:
    """The same through CasADi's C generator and the C compiler."""
    flags = {"flags": ["-O3", "-march=native"], "compiler": "gcc"}
    return casadi_tool(problem, {"jit": True, "compiler": "shell", "jit_options": flags})


def numba_tool(problem: Problem) -> tuple[Thunk, Thunk]:
    """Numba has no derivatives: the hand-written gradient, compiled."""
    numba = importlib.import_module("numba")
    value = numba.njit(problem.make(numpy))
    both = numba.njit(problem.loops or problem.by_hand)
    args = problem.args
    return (lambda: value(*args)), (lambda: both(*args))


Tool = Callable[[Problem], tuple[Thunk, Thunk]]
#: name → (module that must be installed, adapter).
TOOLS: dict[str, tuple[str, Tool]] = {
    "by hand": ("numpy", numpy_tool),
    "tapec": ("tapec", tapec_tool),
    "jax": ("jax", jax_tool),
    "torch": ("torch", torch_tool),
    "autograd": ("autograd", autograd_tool),
    "casadi": ("casadi", casadi_tool),
    "casadi-c": ("casadi", casadi_c_tool),
    "numba": ("numba", numba_tool),
}


def installed() -> list[str]:
    """The tools that can run here."""
    names = [name for name, (module, _) in TOOLS.items() if importlib.util.find_spec(module)]
    return [name for name in names if name != "casadi-c" or shutil.which("gcc")]


# Measuring.


def best_time(fn: Thunk, budget: float) -> float:
    """Seconds per call: the best of ten batches that fill ``budget`` seconds together."""
    start = time.perf_counter()
    fn()
    once = max(time.perf_counter() - start, 1e-8)
    if once > budget:
        return once
    batch = max(1, int(budget / 10 / once))
    best = float("inf")
    for _ in range(10):
        start = time.perf_counter()
        for _ in range(batch):
            fn()
        best = min(best, (time.perf_counter() - start) / batch)
    return best


def flat(gradients: Any) -> Any:
    """All gradients as one vector (Numba's loops return a bare array)."""
    parts = gradients if isinstance(gradients, (tuple, list)) else (gradients,)
    return numpy.concatenate([numpy.ravel(numpy.asarray(part)) for part in parts])


def measure(problem: Problem, name: str, budget: float) -> Row:
    tool = TOOLS[name][1]
    start = time.perf_counter()
    value, both = tool(problem)
    _, got = both()
    first = time.perf_counter() - start
    want = flat(problem.by_hand(*problem.args)[1])
    error = float(numpy.max(numpy.abs(flat(got) - want)) / numpy.max(numpy.abs(want)))
    value()
    value_time = best_time(value, budget)
    gradient_time = best_time(both, budget)
    return Row(
        problem.name, name, first, value_time, gradient_time, gradient_time / value_time, error
    )


def warm_up(names: Iterable[str]) -> None:
    """Import every tool and let it do its once-per-process work."""
    tiny = Problem(
        "warm up",
        lambda np: lambda x: np.sum(np.sin(x)),
        (numpy.ones(3),),
        lambda x: (numpy.sin(x).sum(), (numpy.cos(x),)),
    )
    for name in names:
        TOOLS[name][1](tiny)[1]()


def run(
    todo: Sequence[Problem], names: Sequence[str], budget: float, console: Console
) -> list[Row]:
    """Measure every tool on every problem, with a line of progress on ``console``."""
    warm_up(names)
    rows = []
    with console.status("") as status:
        for problem in todo:
            for name in names:
                if name in problem.skip:
                    continue
                status.update(escape(f"{problem.name}: {name}"))
                try:
                    rows.append(measure(problem, name, budget))
                except Exception as error:
                    if name == "tapec":
                        raise
                    reason = f"{type(error).__name__}: {error}"
                    console.print(f"{problem.name}: {name} failed: {reason}", markup=False)
    return rows


# Showing.


def seconds(value: float) -> str:
    """Three digits and a unit: 1.23 ms."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def show(rows: Sequence[Row], console: Console) -> None:
    """One table, a section per problem; ratios to tapec and to the value alone."""
    table = Table(title="value and gradient")
    for heading in ("kernel", "tool"):
        table.add_column(heading)
    for heading in ("first", "per call", "/ tapec", "gradient / value", "error"):
        table.add_column(heading, justify="right")
    ours = {row.problem: row.gradient for row in rows if row.tool == "tapec"}
    last = None
    for row in rows:
        if row.problem != last and last is not None:
            table.add_section()
        base = ours.get(row.problem)
        table.add_row(
            "" if row.problem == last else escape(row.problem),
            row.tool,
            seconds(row.first),
            seconds(row.gradient),
            f"{row.gradient / base:.2f}" if base else "",
            f"{row.ratio:.2f}",
            f"{row.error:.0e}" if row.error < 1e-9 else f"WRONG {row.error:.0e}",
        )
        last = row.problem
    console.print(table)


def machine() -> dict[str, str]:
    """What a reader of the numbers needs to know."""
    versions = {"python": platform.python_version(), "machine": platform.machine()}
    for module in dict.fromkeys(module for module, _ in TOOLS.values()):
        if module in sys.modules:
            versions[module] = str(getattr(sys.modules[module], "__version__", "?"))
    return versions


def main(argv: Sequence[str] | None = None, todo: Sequence[Problem] | None = None) -> int:
    """Measure and print; ``todo`` replaces the kernels (``benchmarks/`` uses it)."""
    parser = argparse.ArgumentParser(
        prog="python -m tapec bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--quick", action="store_true", help="small sizes, short timings")
    parser.add_argument("--only", default="", metavar="TEXT", help="kernels whose name has TEXT")
    parser.add_argument("--tools", metavar="A,B", help=f"of {', '.join(TOOLS)} (default: all)")
    options = parser.parse_args(argv)
    names = installed()
    if options.tools:
        wanted = options.tools.split(",")
        for name in wanted:
            if name not in TOOLS:
                parser.error(f"unknown tool {name!r}; there are {', '.join(TOOLS)}")
        names = [name for name in names if name in wanted]
    console = Console(stderr=options.json, highlight=False)
    chosen = [p for p in (todo or problems(options.quick)) if options.only in p.name]
    if not chosen:
        parser.error(f"no kernel has {options.only!r} in its name")
    rows = run(chosen, names, 0.05 if options.quick else 0.3, console)
    if options.json:
        print(json.dumps({"machine": machine(), "rows": [asdict(row) for row in rows]}, indent=1))
    else:
        show(rows, console)
    return 0 if all(row.error < 1e-9 for row in rows if row.tool == "tapec") else 1
