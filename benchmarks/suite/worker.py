"""One measurement in a process of its own.

    python benchmarks/suite/worker.py '{"case": "chain poly n=10000000", "tool": "tapec"}'

prints one JSON line.  The keys of the request: ``case``, ``tool``, ``budget`` (seconds of timing
for each of the two calls), ``reference`` (a file: compared with if it exists, written by the tool
of ``Case.reference``), ``only_first`` (no timing), ``trace`` (tapec: only the time that Python
needs to run the function on tracers).
"""

from __future__ import annotations

import gc
import json
import math
import os
import resource
import statistics
import sys
import time
from itertools import repeat
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
sys.path.append(str(Path(__file__).resolve().parents[2]))

import numpy

from suite import peers
from suite.case import Case
from suite.cases import find
from suite.namespaces import namespace

#: A batch takes at least this long, so that the clock costs nothing.
BATCH_SECONDS = 20e-6


def runner(call: peers.Call) -> Any:
    """``run(count)`` repeats a call without anything between."""
    fn, args = call
    names = ", ".join(f"a{i}" for i in range(len(args)))
    source = f"def run(count):\n    for _ in repeat(None, count):\n        fn({names})\n"
    scope = {"fn": fn, "repeat": repeat, **{f"a{i}": a for i, a in enumerate(args)}}
    exec(source, scope)
    return scope["run"]


def timed(call: peers.Call, budget: float) -> tuple[float, float]:
    """Minimum and median of the seconds per call."""
    run, clock = runner(call), time.perf_counter
    run(1)
    start = clock()
    run(1)
    once = max(clock() - start, 1e-9)
    count = max(1, math.ceil(BATCH_SECONDS / once))
    start = clock()
    run(count)
    count = max(1, math.ceil(count * BATCH_SECONDS / max(clock() - start, 1e-9)))
    found: list[float] = []
    end = clock() + budget
    while clock() < end or len(found) < 3:
        start = clock()
        run(count)
        found.append((clock() - start) / count)
        if len(found) >= 3 and clock() > end:
            break
    return min(found), statistics.median(found)


def warm_up(tool: str) -> None:
    """Let the tool do its imports and its once-per-process work on a tiny function."""
    if tool == "c":
        peers.c_library()
        return
    if tool == "numba":
        import numba

        numba.njit(lambda x: (x.sum(), x))(numpy.ones(3))
    if tool in ("numpy", "numba"):
        namespace("numpy")
        return
    case = Case("", lambda np: lambda x: np.sum(np.sin(x)), lambda: (numpy.ones(3),))
    fn, args = (ready := peers.TOOLS[tool](case, case.data())).both
    ready.collect(fn(*args))
    if ready.value:
        ready.value[0](*ready.value[1])


def error(found: list[Any], reference: list[Any], kind: str) -> float:
    """The largest difference relative to the largest entry: of value and gradients each."""
    if kind == "gradient":
        found, reference = ([x[0], numpy.concatenate([numpy.ravel(g) for g in x[1:]])]
                            for x in (found, reference))  # fmt: skip
    worst = 0.0
    for ours, theirs in zip(found, reference, strict=True):
        difference = numpy.max(numpy.abs(numpy.ravel(ours) - numpy.ravel(theirs)))
        worst = max(worst, float(difference / max(numpy.max(numpy.abs(theirs)), 1e-300)))
    return worst if all(numpy.all(numpy.isfinite(x)) for x in found) else math.inf


def compared(found: list[Any], request: dict[str, Any], case: Case) -> float | None:
    file = request.get("reference")
    if not file:
        return None
    if not os.path.exists(file):
        if request["tool"] != case.reference:
            return None
        numpy.savez(file, *found)
    with numpy.load(file) as saved:
        return error(found, [saved[key] for key in saved.files], case.kind)


def memory() -> float:
    """Peak resident memory in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(request: dict[str, Any]) -> dict[str, Any]:
    case, tool = find(request["case"]), request["tool"]
    args = case.data()
    warm_up(tool)
    gc.collect()
    before = memory()
    if request.get("trace"):
        return trace_seconds(case, args)
    start = time.perf_counter()
    ready = peers.TOOLS[tool](case, args)
    fn, inputs = ready.both
    result = fn(*inputs)
    first = time.perf_counter() - start
    row: dict[str, Any] = {"case": case.name, "tool": tool, "first": first}
    row["error"] = compared(ready.collect(result), request, case)
    del result
    if tool == "tapec":
        row.update(compilation(ready.handle, inputs))
    if request.get("only_first"):
        return row
    budget = request.get("budget", 0.3)
    row["min"], row["median"] = timed(ready.both, budget)
    if ready.value:
        row["value_min"], row["value_median"] = timed(ready.value, budget / 2)
    row["memory"] = memory() - before
    return row


def trace_seconds(case: Case, args: tuple[Any, ...]) -> dict[str, Any]:
    from tapec.codegen.callable_type import slow_of

    ready = peers.tapec_tool(case, args)
    slow: Any = slow_of(ready.handle)
    start = time.perf_counter()
    call = slow.dispatcher.flatten(slow.subject, ready.both[1], {})
    slow.dispatcher.trace(slow.subject, call.flat)
    return {"trace": time.perf_counter() - start}


def compilation(handle: Any, inputs: tuple[Any, ...]) -> dict[str, Any]:
    """What tapec's first call spent on compiling, and whether the object code came from disk."""
    stats = handle.stats()
    return {
        "compile": stats.compile_seconds,
        "from_disk": all(v.from_disk for v in stats.variants),
    }


def versions(tool: str) -> str:
    module = sys.modules.get(peers.MODULES[tool])
    return str(getattr(module, "__version__", ""))


def main() -> None:
    request = json.loads(sys.argv[1])
    if not peers.available(request["tool"]):
        print(json.dumps({"skipped": f"{request['tool']} is not installed"}))
        return
    try:
        row = measure(request)
    except Exception as problem:
        row = {"failed": f"{type(problem).__name__}: {problem}"[:500]}
    row["version"] = versions(request["tool"])
    print(json.dumps(row))


if __name__ == "__main__":
    main()
