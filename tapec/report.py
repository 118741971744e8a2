"""``fn.report(*args)`` and ``fn.stats()``: what a compiled function does and what it cost.

``report`` compiles the program of one call afresh, stage by stage, counts what the kernel does
(``codegen.counters``), and compares the time of a call with the time that this machine needs
for that much arithmetic and that much memory traffic (a roofline estimate).  ``stats`` tells what
has been compiled for a function so far, and compiles nothing.

>>> import numpy as np, tapec
>>> f = tapec.value_and_grad(lambda x: np.sum(np.sin(x) ** 2))
>>> report = f.report(np.ones(1000))
>>> len(report.counters.nests), report.counters.workspace_bytes
(1, 0)
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tapec.codegen.counters import Counters
    from tapec.dispatch import Dispatcher, Variant

__all__ = ["Machine", "Report", "Stats", "VariantStats", "machine", "report", "stats"]

#: Memory traffic that fits below this stays in the cache.
_CACHE_BYTES = 1 << 19


# -- the machine ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Machine:
    """What one core reaches, measured once per process (some 50 ms)."""

    #: floating-point operations per second: fused multiply-adds of vectors, in registers
    flops: float
    #: bytes per second, read and written by copying in the cache, and in memory
    cache: float
    memory: float

    def seconds(self, cost: float, moved: float, footprint: float) -> float:
        """The roofline: the time for this much arithmetic (in multiplications; a transcendental
        function is some ten) or for so many bytes of that much memory, whichever is longer."""
        rate = self.cache if footprint <= _CACHE_BYTES else self.memory
        return max(cost / self.flops, moved / rate)


#: Enough to hide the latency, few enough for the registers of AVX2.
_CHAINS = 7
_PEAK = """define void @peak(i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
{phis}
{steps}
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %n
  br i1 %more, label %loop, label %done
done:
{sums}
  store volatile <8 x double> %t{last}, ptr @sink
  ret void
}}
@sink = internal global <8 x double> zeroinitializer
{declare}
"""


def _peak_text(fused: bool, chains: int = _CHAINS) -> str:
    v = "<8 x double>"
    some = f"{v} splat (double 0.5)"
    phis = [
        f"  %x{k} = phi {v} [ splat (double 0.{k + 1}), %entry ], [ %y{k}, %loop ]"
        for k in range(chains)
    ]
    steps, sums = [], []
    for k in range(chains):
        if fused:
            steps.append(f"  %y{k} = call {v} @llvm.fma.v8f64({v} %x{k}, {some}, {some})")
        else:
            steps.append(f"  %m{k} = fmul {v} %x{k}, splat (double 0.5)")
            steps.append(f"  %y{k} = fadd {v} %m{k}, splat (double 0.5)")
        sums.append(f"  %t{k} = fadd {v} %y{k}, " + (f"%t{k - 1}" if k else "zeroinitializer"))
    declare = f"declare {v} @llvm.fma.v8f64({v}, {v}, {v})" if fused else ""
    lines = {"phis": "\n".join(phis), "steps": "\n".join(steps), "sums": "\n".join(sums)}
    return _PEAK.format(**lines, last=chains - 1, declare=declare)


def _best(run: Callable[[], Any], repeats: int = 5) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


@functools.cache
def machine() -> Machine:
    """Measure this machine, once."""
    from tapec.codegen import engine
    from tapec.codegen.target import host

    text = _peak_text(host().has_fma)
    library = engine.compile_module(text, {}, opt=2, exports=["peak"])
    peak = ctypes.CFUNCTYPE(None, ctypes.c_int64)(library.address("peak"))
    trips = 20_000
    flops = _CHAINS * 8 * 2 * trips / _best(lambda: peak(trips))

    def copying(nbytes: int, times: int) -> float:
        source, target = np.ones(nbytes // 8), np.zeros(nbytes // 8)

        def run() -> None:
            for _ in range(times):
                np.copyto(target, source)

        return 2 * nbytes * times / _best(run)

    return Machine(flops, copying(1 << 17, 20), copying(1 << 25, 1))


# -- report -----------------------------------------------------------------------------


@dataclass(slots=True)
class Report:
    """What one compiled program does; ``str`` shows it."""

    name: str
    counters: Counters
    #: the same of the function alone, without its derivative; None for ``jit``
    primal: Counters | None
    machine: Machine
    #: estimate of the least time for the kernel's arithmetic and traffic
    roofline_seconds: float
    #: best time of a call
    call_seconds: float
    #: of each stage of the compilation
    compile_seconds: dict[str, float]
    instructions: int
    object_bytes: int

    @property
    def intensity(self) -> float:
        """Operations per byte moved."""
        moved = self.counters.bytes_moved
        return self.counters.operations / moved if moved else float("inf")

    @property
    def ratio(self) -> float | None:
        """Cost of the whole in units of the cost of the function alone."""
        if self.primal is None or not self.primal.cost:
            return None
        return self.counters.cost / self.primal.cost

    @property
    def efficiency(self) -> float:
        """How much of the time of a call the machine needs at least."""
        return min(1.0, self.roofline_seconds / self.call_seconds) if self.call_seconds else 0.0

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def report(
    dispatcher: Dispatcher,
    subject: Callable[..., Any],
    call: Callable[[], Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Report:
    """Report on the program that ``call()``, a call with these arguments, runs."""
    from tapec.codegen import engine
    from tapec.codegen.counters import count, count_program
    from tapec.codegen.kernel import compile_kernel
    from tapec.codegen.objects import exported
    from tapec.dump import compiled_form
    from tapec.ir.deferred import simplify
    from tapec.transforms import build

    call()
    seconds: dict[str, float] = {}
    last = time.perf_counter()

    def done(stage: str) -> None:
        nonlocal last
        now = time.perf_counter()
        seconds[stage] = now - last
        last = now

    flattened = dispatcher.flatten(subject, args, kwargs)
    traced = dispatcher.trace(subject, flattened.flat)
    done("trace")
    program = build(traced, dispatcher.transform)
    _ = program.fn.ops  # deferred until now
    done("transform")
    source = compile_kernel(compiled_form(program, traced))
    done("loops and text")
    code = engine.object_code(exported(source.text), source.opt)
    done("machine code")
    counters = count_program(source.program)
    primal = None
    if dispatcher.transform.differentiates:
        primal = count(simplify(traced.fn))
    here = machine()
    footprint = counters.bytes_needed + counters.workspace_bytes
    least = here.seconds(counters.cost, counters.bytes_moved, footprint)
    return Report(
        dispatcher.name,
        counters,
        primal,
        here,
        least,
        _call_seconds(call),
        seconds,
        source.instructions,
        len(code),
    )


def _call_seconds(call: Callable[[], Any]) -> float:
    """The best time of a call, in at most some 50 ms."""
    times, best = 1, float("inf")
    end = time.perf_counter() + 0.05
    while True:
        start = time.perf_counter()
        for _ in range(times):
            call()
        now = time.perf_counter()
        best = min(best, (now - start) / times)
        if now > end:
            return best
        if now - start < 1e-3:
            times *= 4


def _lines(r: Report) -> list[str]:
    c = r.counters
    out = [
        f"{r.name}: {_count(c.operations)} operations, {_bytes(c.bytes_moved)} moved "
        f"({c.passes:.1f} × arguments and results), {r.intensity:.2g} operations a byte",
        f"  call      {_time(r.call_seconds)}; at least {_time(r.roofline_seconds)} by "
        f"{r.machine.flops / 1e9:.0f} GFlop/s, {r.machine.cache / 1e9:.0f} GB/s in cache, "
        f"{r.machine.memory / 1e9:.0f} GB/s in memory ({100 * r.efficiency:.0f} %)",
    ]
    if r.ratio is not None:
        out.append(f"  cost      {r.ratio:.2f} × the function alone")
    out.append(
        f"  kernel    {len(c.nests)} loop nests, {len(c.library)} library calls"
        + (f" ({', '.join(sorted(set(c.library)))})" if c.library else "")
        + f", {c.scalars} scalar operations, {c.guards} guards"
    )
    for nest in c.nests:
        space = " × ".join(map(str, nest.space)) or "1"
        parts = f" in {nest.parts} parts" if nest.parts > 1 else ""
        where = ", ".join(dict.fromkeys(map(str, nest.lines[:4])))
        out.append(
            f"    nest {space}{parts}: {_count(nest.operations)} operations, "
            f"{nest.loads} arrays read ({_bytes(nest.bytes_read)}), "
            f"{nest.stores} written ({_bytes(nest.bytes_written)}), "
            f"{nest.reductions} reductions" + (f"    # {where}" if where else "")
        )
    stored = ", ".join(f"{name} {_bytes(n)}" for name, n in c.stored[:6])
    more = ", …" if len(c.stored) > 6 else ""
    out.append(
        f"  workspace {_bytes(c.workspace_bytes)} for {len(c.stored)} stored values"
        + (f" ({stored}{more})" if stored else "")
    )
    again = f" ({', '.join(sorted(set(c.recomputed)))})" if c.recomputed else ""
    out.append(
        f"  again     {len(c.recomputed)} values computed in more than one nest{again}, "
        f"{_count(c.recomputed_elements)} elements"
    )
    stages = ", ".join(f"{name} {_time(s)}" for name, s in r.compile_seconds.items())
    out.append(
        f"  compiled  in {_time(sum(r.compile_seconds.values()))}: {stages}; "
        f"{r.instructions} lines of LLVM, {_bytes(r.object_bytes)} of code"
    )
    return out


def _count(n: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if n >= 10 * size:
            return f"{n / size:.1f} {unit}"
    return f"{n:.0f}"


def _bytes(n: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= size:
            return f"{n / size:.1f} {unit}"
    return f"{n:.0f} B"


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


# -- stats ------------------------------------------------------------------------------


@dataclass(slots=True)
class VariantStats:
    """One compiled variant."""

    signature: str
    #: calls that reached it through Python; those in native code are not counted
    python_calls: int
    #: of those, how often its guards failed
    guard_failures: int
    guards: int
    compile_seconds: float
    workspace_bytes: int
    nests: int
    #: level of LLVM's code generation
    opt: int
    #: whether the object code came from disk
    from_disk: bool
    #: whether calls can reach it without Python
    native: bool
    #: whether branches were recorded with both of their sides
    joins: bool


@dataclass(slots=True)
class Stats:
    """What has been compiled for a function."""

    name: str
    #: those in use
    variants: list[VariantStats]
    #: how often something was compiled, variants included that others have replaced; and the time
    compiles: int
    compile_seconds: float
    #: calls of which no variant's guards held, so that another was compiled
    misses: int

    @property
    def guard_failures(self) -> int:
        return sum(v.guard_failures for v in self.variants)

    @property
    def workspace_bytes(self) -> int:
        return sum(v.workspace_bytes for v in self.variants)

    def __str__(self) -> str:
        out = [
            f"{self.name}: {len(self.variants)} variants after {self.compiles} compilations in "
            f"{_time(self.compile_seconds)}; {self.misses} calls took a new path, "
            f"{self.guard_failures} guard failures"
        ]
        out += [
            f"  ({v.signature}): {v.nests} nests, {v.guards} guards, "
            f"{_bytes(v.workspace_bytes)} workspace, {_time(v.compile_seconds)} at level {v.opt}"
            + (", from disk" if v.from_disk else "")
            + f"; {v.python_calls} calls through Python, {v.guard_failures} guard failures"
            + ("; both sides of its branches" if v.joins else "")
            + ("" if v.native else "; never called natively")
            for v in self.variants
        ]
        return "\n".join(out)


def stats(dispatcher: Dispatcher) -> Stats:
    """What ``dispatcher`` has compiled."""
    found = [
        _variant_stats(variant)
        for variants in list(dispatcher.signatures.values())
        for variant in list(variants)
    ]
    counts = dispatcher.counts
    return Stats(dispatcher.name, found, counts.compiles, counts.seconds, counts.misses)


def _variant_stats(variant: Variant) -> VariantStats:
    from tapec.backend import NativeProgram
    from tapec.ir.deferred import param_types

    compiled = variant.compiled
    params = ", ".join(str(t) for t in param_types(variant.program.fn)[: compiled.leaves])
    made = compiled.made if isinstance(compiled, NativeProgram) else None
    return VariantStats(
        params,
        compiled.calls,
        compiled.failures,
        made.facts.guards if made else 0,
        compiled.seconds,
        made.facts.workspace_bytes if made else 0,
        made.facts.nests if made else 0,
        made.facts.opt if made else 0,
        made.cached if made else False,
        compiled.linkable,
        variant.joins,
    )
