"""The benchmark suite: every row of the table of targets beside the peers that are installed.

    python benchmarks/suite                          # everything (an hour); writes RESULTS.md
    python benchmarks/suite --quick                  # the small cases, short timings; prints
    python benchmarks/suite --only gmm --tools tapec,c,jax --rounds 2
    python benchmarks/suite --python torch=/path/to/python   # an interpreter that has torch
    python benchmarks/suite --resume --minutes 11   # a part: goes on where the last run stopped
    python benchmarks/suite --report                 # the tables again, from results.jsonl

Measurements are appended to ``benchmarks/results.jsonl``; a run without ``--append``
or ``--resume`` starts it anew.
"""

from __future__ import annotations

import argparse
import functools
import math
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
sys.path.append(str(Path(__file__).resolve().parents[2]))

from suite.cases import cases
from suite.peers import TOOLS
from suite.report import render
from suite.runner import Runner, read

FOLDER = Path(__file__).resolve().parents[1]
#: Cases whose second process is timed.
CACHED = (
    "robot arm 7 joints",
    "gmm n=1000 d=10 K=25",
    "lstm l=2 c=1024",
    "straight line 1000 operations",
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python benchmarks/suite",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="small cases, one round")
    parser.add_argument(
        "--only", default="", metavar="A,B", help="cases whose name has one of these"
    )
    parser.add_argument("--tools", default="", metavar="A,B", help=f"of {', '.join(TOOLS)}")
    parser.add_argument("--rounds", type=int, help="default 3, with --quick 1")
    parser.add_argument("--budget", type=float, help="seconds of timing per measurement")
    parser.add_argument("--cpu", type=int, help="the core to pin to (default: the last)")
    parser.add_argument("--python", action="append", default=[], metavar="TOOL=PATH")
    parser.add_argument("--output", type=Path, default=FOLDER / "results.jsonl")
    parser.add_argument("--append", action="store_true", help="keep earlier measurements")
    parser.add_argument("--resume", action="store_true", help="measure only what is missing")
    parser.add_argument("--minutes", type=float, default=math.inf, help="then stop and report")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    parser.add_argument("--results", type=Path, help="where the tables go (default: RESULTS.md)")
    options = parser.parse_args()
    unknown = [t for t in options.tools.split(",") if t and t not in TOOLS]
    if unknown:
        parser.error(f"unknown tool {unknown[0]!r}; there are {', '.join(TOOLS)}")
    return options


def main() -> int:
    options = arguments()
    everything = cases()
    wanted = options.only.split(",")
    chosen = {
        name: case
        for name, case in everything.items()
        if any(text in name for text in wanted) and (case.quick or not options.quick)
    }
    tools = options.tools.split(",") if options.tools else list(TOOLS)
    if not options.report:
        if not (options.append or options.resume):
            options.output.unlink(missing_ok=True)
        pythons = dict(pair.split("=", 1) for pair in options.python)
        done = read([options.output]) if options.resume and options.output.exists() else []
        end = time.monotonic() + 60 * options.minutes
        say = functools.partial(print, flush=True)
        runner = Runner(options.output, pythons, options.cpu, say, done, end)
        rounds = options.rounds or (1 if options.quick else 3)
        budget = options.budget or (0.1 if options.quick else 0.4)
        for case in chosen.values():
            runner.case(case, tools, rounds, budget)
        if "tapec" in tools:
            for name in CACHED:
                if name in chosen:
                    runner.disk_cache(chosen[name], rounds)
        if runner.stopped:
            print("stopped before the end; --resume goes on")
        for tool, reason in runner.missing.items():
            print(f"{tool} was left out: {reason}")
    notes = FOLDER / "NOTES.md"
    text = render(chosen, read([options.output]), notes.read_text() if notes.exists() else "")
    whole = not (options.quick or options.only or options.tools)
    target = options.results or (FOLDER / "RESULTS.md" if whole or options.report else None)
    if target is None:
        print(text)
    else:
        target.write_text(text)
        print(f"wrote {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
