"""Time to the first value and gradient: by stage, by program size, and with a warm cache.

    python benchmarks/compile_time.py                 # all of it, to 100,000 operations
    python benchmarks/compile_time.py --max 10000
    python benchmarks/compile_time.py --part profile  # or: growth, warm, import

``profile``: a straight-line program of scalar operations, each stage of its compilation (without
what a stage calls of the others), and how it grows from one size to the next: the exponent of a
power law, 1 for linear.  ``growth``: the same for other kinds of program.  ``warm``: the first
call in a second process, with its object code on disk.  ``import``: what importing tapec adds.

Every measurement has a process of its own, after one warm-up of the compiler.  Times are CPU
seconds of that process, which other work on the machine disturbs less than the clock.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from itertools import pairwise

import numpy as np

import tapec
from tapec.bench import seconds
from tapec.bench_problems import define, robot_arm, straight_line_source

#: (module, attribute, stage); what is not here counts to the stage that calls it.
STAGES = (
    ("tapec.dispatch", "collect", "dispatch"),
    ("tapec.dispatch", "trace", "trace: run the function"),
    ("tapec.lift", "lift", "trace: lift to IR"),
    ("tapec.ir.passes", "run_passes", "simplify"),
    ("tapec.ir.vjp", "vjp", "differentiate"),
    ("tapec.codegen.objects", "function_key", "cache key"),
    ("tapec.codegen.kernel", "lower", "lower"),
    ("tapec.codegen.plan", "plan", "plan"),
    ("tapec.codegen.kernel", "lay_out", "memory layout"),
    ("tapec.codegen.kernel:KernelEmitter", "run", "emit"),
    ("tapec.codegen.kernel:KernelEmitter", "text", "join text"),
    ("llvmlite.binding", "parse_assembly", "LLVM: parse"),
    ("llvmlite.binding:ModuleRef", "verify", "LLVM: verify"),
    ("llvmlite.binding:ModulePassManager", "run", "LLVM: inline"),
    ("llvmlite.binding:TargetMachine", "emit_object", "LLVM: machine code"),
    ("tapec.codegen.engine", "link", "link"),
    ("tapec.codegen.abi", "entry_text", "entry"),
    ("tapec.codegen.disk", "load", "cache: read"),
    ("tapec.codegen.disk", "store", "cache: write"),
)


class Stages:
    """Exclusive CPU seconds per stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.running: list[list[float]] = []
        for where, name, stage in STAGES:
            module, _, cls = where.partition(":")
            try:
                owner = importlib.import_module(module)
                owner = getattr(owner, cls) if cls else owner
                setattr(owner, name, self.timed(getattr(owner, name), stage))
            except (ImportError, AttributeError):
                print(f"no stage {where} {name}", file=sys.stderr)

    def timed(self, fn, stage):
        @functools.wraps(fn)
        def wrapped(*args, **kwargs):
            inner = [0.0]
            self.running.append(inner)
            start = time.process_time()
            try:
                return fn(*args, **kwargs)
            finally:
                taken = time.process_time() - start
                self.running.pop()
                self.seconds[stage] = self.seconds.get(stage, 0.0) + taken - inner[0]
                if self.running:
                    self.running[-1][0] += taken

        return wrapped


# -- programs -----------------------------------------------------------------------------


def straight_line(count):
    """Scalar operations; every second one is kept by the gradient."""
    program, _ = straight_line_source(count)
    return define(program, "fn", np), tuple(0.1 * (i + 1) for i in range(10)), tuple(range(10))


def vector_chain(count):
    """Elementwise operations on one array: a single nest with a long body."""

    def fn(x):
        for k in range(count // 4):
            x = x * (0.99 - 0.01 * x) + 0.001 * (k % 7)
        return np.sum(x)

    return fn, (np.linspace(0.1, 0.9, 100),), (0,)


def reductions(count):
    """Nests that depend on each other by a scalar."""

    def fn(x):
        for _ in range(count // 3):
            x = x / np.sum(x) * 1.5
        return np.sum(x * x)

    return fn, (np.linspace(0.1, 0.9, 100),), (0,)


def recurrent(count):
    """A recurrent network, unrolled: products, slices, concatenations."""

    def fn(w, x):
        h = x[0]
        for t in range(count // 12):
            z = w @ np.concatenate([x[t % 4], h])
            h = np.tanh(z[:20]) * (1 / (1 + np.exp(-z[20:])))
        return np.sum(h * h)

    rng = np.random.default_rng(0)
    return fn, (rng.normal(size=(40, 40)) * 0.1, rng.normal(size=(4, 20))), (0,)


def elements(count):
    """Elements of a vector one by one."""

    def fn(x):
        total = 0.0
        for k in range(count // 4):
            total = total + (x[k + 1] - x[k] ** 2) ** 2
        return total

    return fn, (np.linspace(0.1, 0.9, count // 4 + 1),), (0,)


KINDS = {f.__name__: f for f in (straight_line, vector_chain, reductions, recurrent, elements)}


# -- one measurement, in a process of its own -----------------------------------------------


def measure(kind: str, count: int) -> dict[str, object]:
    tapec.value_and_grad(lambda x: np.sin(x) * x)(1.0)
    stages = Stages()
    fn, args, wrt = KINDS[kind](count)
    transformed = tapec.value_and_grad(fn, argnums=wrt)
    cpu, clock = time.process_time(), time.perf_counter()
    transformed(*args)
    total = time.process_time() - cpu
    return {
        "total": total,
        "clock": time.perf_counter() - clock,
        "stages": stages.seconds | {"other": total - sum(stages.seconds.values())},
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }


def measured(kind: str, count: int, repeats: int, **env: str) -> dict[str, object]:
    """The best of several processes."""
    best = None
    for _ in range(repeats):
        command = [sys.executable, __file__, "--measure", kind, str(count)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, env={**os.environ, **env}
        )
        found = json.loads(done.stdout)
        if best is None or found["total"] < best["total"]:
            best = found
    return best


def exponent(first: float, second: float, ratio: float) -> str:
    if first < 2e-4 or second < 2e-4:  # too short to tell
        return ""
    return f"{math.log(second / first) / math.log(ratio):.2f}"


def profile(limit: int) -> None:
    counts = [c for c in (1000, 10_000, 100_000) if c <= limit]
    found = [measured("straight_line", c, 3 if c <= 10_000 else 1, TAPEC_CACHE="0") for c in counts]
    head = "".join(f" {c:,} ops |" for c in counts)
    steps = list(pairwise(counts))
    print(f"| stage |{head}" + "".join(f" {a:,} → {b:,} |" for a, b in steps))
    print("| --- |" + " ---: |" * (len(counts) + len(steps)))

    def row(name: str, values: list[float]) -> None:
        cells = "".join(f" {1e3 * v:.1f} ms |" for v in values)
        grown = "".join(
            f" {exponent(x, y, b / a)} |" for (x, y), (a, b) in zip(pairwise(values), steps)
        )
        print(f"| {name} |{cells}{grown}")

    names = dict.fromkeys(stage for _, _, stage in STAGES) | {"other": None}
    for name in names:
        values = [f["stages"].get(name, 0.0) for f in found]
        if max(values) >= 5e-5:
            row(name, values)
    row("**all**", [f["total"] for f in found])
    print("| peak memory |" + "".join(f" {f['megabytes']:.0f} MB |" for f in found))


def growth(limit: int) -> None:
    counts = [c for c in (250, 1000, 4000) if c <= limit]
    print(
        "| program |" + "".join(f" {c:,} ops |" for c in counts) + " exponents | largest stages |"
    )
    print("| --- |" + " ---: |" * len(counts) + " --- | --- |")
    for kind in KINDS:
        found = [measured(kind, c, 2, TAPEC_CACHE="0") for c in counts]
        cells = "".join(f" {1e3 * f['total']:.0f} ms |" for f in found)
        totals = [f["total"] for f in found]
        powers = [
            exponent(x, y, b / a) for (x, y), (a, b) in zip(pairwise(totals), pairwise(counts))
        ]
        last = sorted(found[-1]["stages"].items(), key=lambda item: -item[1])[:3]
        shown = ", ".join(f"{name} {1e3 * s:.0f} ms" for name, s in last)
        print(f"| {kind} |{cells} {', '.join(powers)} | {shown} |")


def warm(limit: int) -> None:
    print("| program | compiled | second process | of that, trace | the rest |")
    print("| --- | ---: | ---: | ---: | ---: |")
    cases = [("straight_line", 100), ("straight_line", 1000), ("straight_line", 10_000)]
    cases += [("vector_chain", 100), ("recurrent", 120)]
    with tempfile.TemporaryDirectory() as folder:
        env = {"TAPEC_CACHE": "1", "TAPEC_CACHE_DIR": os.path.join(folder, "cache")}
        for kind, count in cases:
            if count > limit:
                continue
            cold = measured(kind, count, 1, **env)
            second = measured(kind, count, 5, **env)
            traced = sum(s for n, s in second["stages"].items() if n.startswith("trace"))
            rest = second["total"] - traced
            cells = " | ".join(
                f"{1e3 * s:.1f} ms" for s in (cold["total"], second["total"], traced, rest)
            )
            print(f"| {kind}, {count:,} ops | {cells} |")


def check(limit: int) -> None:
    """The first gradient by the clock in this process, and that it is right."""
    tapec.value_and_grad(lambda x: np.sin(x) * x)(1.0)
    start = time.perf_counter()
    tapec.value_and_grad(robot_arm(np))(np.linspace(0.1, 0.7, 7))
    print(f"robot arm, 7 joints: first gradient {seconds(time.perf_counter() - start)}")
    args = tuple(0.1 * (i + 1) for i in range(10))
    for count in (100, 1000, 10_000, 50_000):
        if count > limit:
            break
        program, by_hand = straight_line_source(count)
        fn = define(program, "fn", np)
        start = time.perf_counter()
        transformed = tapec.value_and_grad(fn, argnums=tuple(range(10)))
        got = transformed(*args)
        taken = time.perf_counter() - start
        value, gradient = define(by_hand, "by_hand", math)(*args)
        np.testing.assert_allclose(got[0], value, rtol=1e-9)
        np.testing.assert_allclose(
            got[1], gradient, rtol=1e-7, atol=1e-9 * np.max(np.abs(gradient))
        )
        print(f"straight line, {count:6d} ops: {seconds(taken)}, {seconds(taken / count)} an op")


def import_seconds(*statements: str) -> list[float]:
    """The best of nine fresh interpreters for each, taken in turns."""
    best = [float("inf")] * len(statements)
    for _ in range(9):
        for k, statement in enumerate(statements):
            code = (
                f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
            )
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
            best[k] = min(best[k], float(done.stdout))
    return best


def imports(limit: int) -> None:
    base, whole = import_seconds(
        "import numpy, llvmlite.binding", "import numpy, llvmlite.binding, tapec"
    )
    print(
        f"import numpy, llvmlite.binding: {seconds(base)}; tapec adds {1e3 * (whole - base):.1f} ms"
    )


PARTS = {"check": check, "profile": profile, "growth": growth, "warm": warm, "import": imports}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--max", type=int, default=100_000, help="largest program")
    parser.add_argument("--part", choices=PARTS, help="one part only")
    parser.add_argument("--measure", nargs=2, metavar=("KIND", "OPS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure[0], int(options.measure[1]))))
        return
    for name, part in PARTS.items():
        if options.part in (None, name):
            part(options.max)
            print()


if __name__ == "__main__":
    main()
