"""The tables of ``RESULTS.md``, from the measurements.

``summaries`` merges the rounds: least time, median of the medians, least first call, largest
error.
"""

from __future__ import annotations

import math
import os
import platform
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite.case import Case
from suite.hand_c import FLAGS, compiler

__all__ = ["Summary", "render", "summaries"]

NAMES = {
    "tapec": "tapec",
    "jax": "JAX",
    "torch": "PyTorch (eager)",
    "autograd": "autograd",
    "casadi": "CasADi",
    "casadi-c": "CasADi + gcc -O3",
    "numpy": "NumPy by hand",
    "numba": "Numba by hand",
    "c": "C by hand",
}
#: The first gradient may take this long, and this part of JAX's time.
FIRST_SECONDS, FIRST_OF_JAX = 0.150, 0.1
STRAIGHT_FIRST = {"1000": 0.05, "10000": 0.5, "50000": 3.0}
WARM_EXTRA = 0.005


@dataclass
class Summary:
    """One tool on one case; seconds, megabytes."""

    best: float = math.inf
    median: float = math.nan
    value: float | None = None
    first: float = math.inf
    error: float | None = None
    memory: float = 0.0
    failed: str = ""


def summaries(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Summary]]:
    """case → tool → summary."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        if "min" in row or "failed" in row:
            groups.setdefault((row["case"], row["tool"]), []).append(row)
    found: dict[str, dict[str, Summary]] = {}
    for (case, tool), group in groups.items():
        good = [row for row in group if "min" in row]
        summary = found.setdefault(case, {})[tool] = Summary()
        if not good:
            summary.failed = group[-1]["failed"]
            continue
        summary.best = min(row["min"] for row in good)
        summary.median = statistics.median(row["median"] for row in good)
        summary.first = min(row["first"] for row in good)
        summary.memory = max(row["memory"] for row in good)
        summary.value = min((row["value_min"] for row in good if "value_min" in row), default=None)
        errors = [row["error"] for row in good if row["error"] is not None]
        summary.error = max(errors, default=None)
    return found


def seconds(value: float | None) -> str:
    """Three digits and a unit."""
    if value is None or not math.isfinite(value):
        return ""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(heading)} |", "|" + "---|" * len(heading)]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def verdict(ratio: float, limit: float) -> str:
    return "yes" if ratio <= limit else f"no: {ratio / limit:.2f} × too slow"


def named_peer(case: Case, found: dict[str, Summary]) -> str | None:
    """The peer to compare with: the fastest of those named that ran."""
    ran = [tool for tool in case.peer if tool in found and math.isfinite(found[tool].best)]
    return min(ran, key=lambda tool: found[tool].best, default=None)


def targets(cases: dict[str, Case], all_found: dict[str, dict[str, Summary]]) -> str:
    rows, met, counted = [], 0, 0
    for name, case in cases.items():
        found = all_found.get(name, {})
        ours, peer = found.get("tapec"), named_peer(case, found)
        limit = f"{case.limit:g} ×"
        if ours is None or not math.isfinite(ours.best):
            reason = "not run" if ours is None else ours.failed
            rows.append([name, reason, "", "", limit, "no", case.figure])
            counted += 1
            continue
        if peer is None:
            rows.append([name, seconds(ours.best), "not run", "", limit, "?", case.figure])
            continue
        ratio = ours.best / found[peer].best
        counted += 1
        met += ratio <= case.limit
        against = f"{NAMES[peer]} {seconds(found[peer].best)}"
        rows.append(
            [
                name,
                seconds(ours.best),
                against,
                f"{ratio:.2f}",
                limit,
                verdict(ratio, case.limit),
                case.figure,
            ]
        )
    heading = ("problem", "tapec", "named peer", "ratio", "at most", "met", "earlier survey")
    return f"{met} of {counted} met.\n\n" + table(heading, rows)


def firsts(cases: dict[str, Case], all_found: dict[str, dict[str, Summary]]) -> str:
    rows = []
    for name in cases:
        found = all_found.get(name, {})
        ours, jax = found.get("tapec"), found.get("jax")
        if ours is None or not math.isfinite(ours.first):
            continue
        limit = (
            STRAIGHT_FIRST.get(name.split()[2], FIRST_SECONDS)
            if "straight" in name
            else FIRST_SECONDS
        )
        part = ours.first / jax.first if jax and math.isfinite(jax.first) else None
        good = ours.first <= limit and (part is None or part <= FIRST_OF_JAX)
        casadi = found.get("casadi-c")
        rows.append(
            [
                name,
                seconds(ours.first),
                seconds(limit),
                seconds(jax.first if jax else None),
                "" if part is None else f"{part:.2f}",
                seconds(casadi.first if casadi else None),
                "yes" if good else "no",
            ]
        )
    heading = (
        "problem",
        "tapec",
        "at most",
        "JAX",
        "of JAX (at most 0.1)",
        "CasADi + gcc -O3",
        "met",
    )
    return table(heading, rows)


def ratios(cases: dict[str, Case], all_found: dict[str, dict[str, Summary]]) -> str:
    rows = []
    for name, case in cases.items():
        found = all_found.get(name, {})
        ours = found.get("tapec")
        if ours is None or not ours.value or case.kind != "gradient":
            continue
        ratio, limit = ours.best / ours.value, case.ratio_limit
        by_hand = found.get("c") or found.get("numpy")
        hand = "" if by_hand is None or not by_hand.value else f"{by_hand.best / by_hand.value:.2f}"
        met = "" if limit is None else "yes" if ratio <= limit else "no"
        bound = "" if limit is None else f"{limit:g}"
        rows.append(
            [name, seconds(ours.value), seconds(ours.best), f"{ratio:.2f}", bound, met, hand]
        )
    return table(
        ("problem", "value", "value and gradient", "ratio", "at most", "met", "by hand"), rows
    )


def per_case(case: Case, found: dict[str, Summary]) -> str:
    rows = []
    ours = found.get("tapec", Summary()).best
    for tool, s in sorted(found.items(), key=lambda item: item[1].best):
        if s.failed:
            rows.append(
                [NAMES[tool], s.failed.replace("|", "/").replace("\n", " ")[:120], *[""] * 7]
            )
            continue
        error = "" if s.error is None else f"{s.error:.0e}"
        if s.error is not None and s.error > case.tolerance:
            error = f"**{error}**"
        rows.append(
            [
                NAMES[tool],
                seconds(s.best),
                seconds(s.median),
                f"{s.best / ours:.2f}" if math.isfinite(ours) else "",
                seconds(s.value),
                f"{s.best / s.value:.2f}" if s.value else "",
                seconds(s.first),
                f"{s.memory:.0f}",
                error,
            ]
        )
    heading = ("tool", "min", "median", "/ tapec", "value", "ratio", "first", "MB", "error")
    text = f"### {case.name}\n\n" + table(heading, rows)
    return text + (f"\n{case.note[0].upper()}{case.note[1:]}.\n" if case.note else "")


def disk(rows: Sequence[dict[str, Any]]) -> str:
    last = {row["case"]: row["disk_cache"] for row in rows if "disk_cache" in row}
    lines = []
    for name, best in last.items():
        good = best["warm"] <= best["trace"] + WARM_EXTRA
        times = (seconds(best[key]) for key in ("cold", "warm", "trace"))
        lines.append([name, *times, "yes" if good else "no"])
    heading = ("problem", "first process", "second process", "trace alone", "trace + 5 ms")
    return table(heading, lines)


def machine() -> str:
    model, caches = platform.machine(), ""
    info = Path("/proc/cpuinfo")
    if info.exists():
        fields: dict[str, str] = {}
        for text in info.read_text().splitlines():
            key, _, rest = text.partition(":")
            fields[key.strip()] = rest.strip()
        model = fields.get("model name", model)
        flags = fields.get("flags", "").split()
        caches = ", ".join(x for x in ("avx2", "fma", "avx512f") if x in flags)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    gcc = ""
    if compiler():
        done = subprocess.run(["gcc", "--version"], capture_output=True, text=True)
        gcc = f"; {done.stdout.splitlines()[0]}, {' '.join(FLAGS[:3])}"
    return f"{model} ({caches}), {cores} cores, Python {platform.python_version()}{gcc}"


def render(cases: dict[str, Case], rows: Sequence[dict[str, Any]], notes: str = "") -> str:
    """The whole of ``RESULTS.md``."""
    found = summaries(rows)
    versions = {row["tool"]: row["version"] for row in rows if row.get("version")}
    listed = ", ".join(f"{NAMES[t]} {v}" for t, v in versions.items() if t not in ("c", "casadi-c"))
    rounds = 1 + max((row.get("round", 0) for row in rows), default=0)
    parts = [
        "# Results of the benchmark suite\n",
        "Generated by `python benchmarks/suite`; not edited by hand.\n",
        f"Machine: {machine()}.  Versions: {listed}.\n",
        f"One thread, f64.  {rounds} rounds; in each, the tools take turns, every measurement in a "
        "process of its own, pinned to one core.  min: the least time of all; median: of the "
        "medians of the rounds; first: trace, differentiation, compilation and the first call, "
        "without imports and with tapec's disk cache off; MB: growth of the peak resident memory; "
        "error: largest difference from the reference relative to the largest entry.  C, Numba and "
        "CasADi write into standing arrays; all others return new ones.\n",
        "## Targets\n",
        targets(cases, found),
        "## Gradient against value, our own\n",
        ratios(cases, found),
        "## First gradient\n",
        firsts(cases, found),
        "## Second process, warm disk cache\n",
        disk(rows),
    ]
    if notes:
        parts += ["## Targets missed: why, and what was tried\n", notes]
    parts += ["## All tools\n", *(per_case(c, found[n]) for n, c in cases.items() if n in found)]
    return "\n".join(parts)
