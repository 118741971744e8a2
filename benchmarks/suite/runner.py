"""Runs the workers: rounds in which the tools take turns, each in its own pinned process.

Threads of BLAS and OpenMP are one, ``OPENBLAS_CORETYPE`` and ``OPENBLAS_L2_SIZE`` are unset.  Every
measurement is appended to the results file as one JSON line as soon as it is there.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from suite.case import Case

__all__ = ["Runner"]

WORKER = Path(__file__).with_name("worker.py")
#: Seconds until a measurement is given up.
TIMEOUT = 300.0
#: A tool whose process takes longer than this runs once, not in every round.
SLOW = 40.0


class Runner:
    """Runs requests; ``pythons`` maps tools to interpreters other than this one.

    What ``done`` holds is not measured again; after ``deadline`` nothing is started any more.
    """

    def __init__(
        self,
        output: Path,
        pythons: dict[str, str],
        cpu: int | None,
        log: Callable[[str], None] = print,
        done: Iterable[dict[str, Any]] = (),
        deadline: float = math.inf,
    ) -> None:
        self.output = output
        self.pythons = pythons
        self.log = log
        if cpu is None and hasattr(os, "sched_getaffinity"):
            cpu = max(os.sched_getaffinity(0))
        pinned = cpu is not None and shutil.which("taskset") is not None
        self.prefix = ["taskset", "-c", str(cpu)] if pinned else []
        self.missing: dict[str, str] = {}
        #: Measurements that are there already; when to stop (``time.monotonic``).
        self.done = list(done)
        self.deadline = deadline
        self.stopped = False

    def environment(self, cache: str | None) -> dict[str, str]:
        dropped = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "XLA_FLAGS")
        found = {k: v for k, v in os.environ.items() if k not in dropped}
        found.update(
            dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        )
        found["TAPEC_CACHE"] = "1" if cache else "0"
        if cache:
            found["TAPEC_CACHE_DIR"] = cache
        return found

    def run(self, request: dict[str, Any], cache: str | None = None) -> dict[str, Any]:
        """One worker; its line, or a line that says what went wrong."""
        python = self.pythons.get(request["tool"], sys.executable)
        command = [*self.prefix, python, "-P", str(WORKER), json.dumps(request)]
        try:
            done = subprocess.run(
                command,
                env=self.environment(cache),
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
            )
        except subprocess.TimeoutExpired:
            return {"failed": f"no result within {TIMEOUT:.0f} s"}
        except OSError as problem:
            return {"skipped": str(problem)}
        try:
            row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        except (IndexError, ValueError):
            last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
            return {"failed": last[0][:300]}
        return row

    def save(self, row: dict[str, Any]) -> None:
        with self.output.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def case(self, case: Case, tools: Iterable[str], rounds: int, budget: float) -> None:
        """All rounds of a case."""
        order = sorted((t for t in case.tools if t in tools), key=lambda t: t != case.reference)
        if case.reference not in order:
            order.insert(0, case.reference)
        had = [row for row in self.done if row["case"] == case.name and "round" in row]
        done = {(row["round"], row["tool"]) for row in had}
        given_up = {row["tool"] for row in had if "failed" in row or row.get("first", 0.0) > SLOW}
        left = [
            (turn, tool)
            for turn in range(rounds)
            for tool in order
            if (turn, tool) not in done and tool not in given_up
        ]
        with tempfile.TemporaryDirectory(prefix="suite-") as folder:
            request = {"case": case.name, "budget": budget, "reference": f"{folder}/reference.npz"}
            if left and time.monotonic() < self.deadline and left[0][1] != case.reference:
                self.run({**request, "tool": case.reference})  # for the others' errors
            for turn, tool in left:
                if tool in given_up or tool in self.missing:
                    continue
                if time.monotonic() > self.deadline:
                    self.stopped = True
                    return
                row = self.run({**request, "tool": tool})
                if "skipped" in row:
                    self.missing[tool] = row["skipped"]
                    continue
                row.update(case=case.name, tool=tool, round=turn)
                self.save(row)
                self.log(line(row))
                if "failed" in row or row.get("first", 0.0) > SLOW:
                    given_up.add(tool)

    def disk_cache(self, case: Case, rounds: int) -> None:
        """The first gradient of a second process, against what the trace alone takes."""
        if any(row["case"] == case.name and "disk_cache" in row for row in self.done):
            return
        if time.monotonic() > self.deadline:
            self.stopped = True
            return
        best: dict[str, float] = {}
        for _ in range(rounds):
            with tempfile.TemporaryDirectory(prefix="suite-") as cache:
                os.chmod(cache, 0o700)
                request = {"case": case.name, "tool": "tapec", "only_first": True}
                cold, warm = self.run(request, cache), self.run(request, cache)
                trace = self.run({**request, "trace": True}, cache)
            if "failed" in cold or "failed" in warm or "failed" in trace:
                self.log(f"{case.name}: disk cache: {cold} {warm} {trace}")
                return
            if not warm["from_disk"]:
                self.log(f"{case.name}: the second process did not find the object code")
            for name, value in (
                ("cold", cold["first"]),
                ("warm", warm["first"]),
                ("trace", trace["trace"]),
            ):
                best[name] = min(value, best.get(name, value))
        row = {"case": case.name, "tool": "tapec", "disk_cache": best}
        self.save(row)
        self.log(f"{case.name}: disk cache: {best}")


def line(row: dict[str, Any]) -> str:
    """A line of progress."""
    head = f"{row['case']:40} {row['tool']:9} {row['round']}"
    if "failed" in row:
        return f"{head} failed: {row['failed']}"
    error = "" if row["error"] is None else f" error {row['error']:.0e}"
    return f"{head} {row['min'] * 1e6:12.3f} µs, first {row['first'] * 1e3:9.1f} ms{error}"


def read(files: Sequence[Path]) -> list[dict[str, Any]]:
    """The measurements in results files."""
    return [json.loads(text) for file in files for text in file.read_text().splitlines() if text]
