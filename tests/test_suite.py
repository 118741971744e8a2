"""The benchmark suite at tiny sizes: every objective and gradient against a second tool."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tapec.errors import UnsupportedError

ROOT = Path(__file__).resolve().parents[1]
SUITE = ROOT / "benchmarks" / "suite"
if not SUITE.is_dir():
    pytest.skip("no benchmarks beside the tests", allow_module_level=True)
sys.path.insert(0, str(SUITE.parent))
try:
    from suite import peers, worker
    from suite.case import Case
    from suite.cases import cases, tiny
    from suite.report import render, summaries
    from suite.runner import Runner, read
finally:
    sys.path.remove(str(SUITE.parent))

#: Peers that trace quickly at these sizes; JAX and Numba need seconds to compile.
QUICK = ("autograd", "c", "casadi", "numpy", "tapec")
TINY = tiny()


def results(case: Case, tool: str, args: tuple[Any, ...]) -> list[Any]:
    ready = peers.TOOLS[tool](case, args)
    fn, inputs = ready.both
    found = ready.collect(fn(*inputs))
    if ready.value is not None:
        value, inputs = ready.value
        value(*inputs)
    return found


@pytest.mark.parametrize("name", TINY)
def test_gradients_equal_the_reference(name: str) -> None:
    case = TINY[name]
    if not peers.available(case.reference):
        pytest.skip(f"{case.reference} is not installed")
    args = case.data()
    reference = results(case, case.reference, args)
    compared = 0
    for tool in case.tools:
        if tool not in QUICK or tool == case.reference or not peers.available(tool):
            continue
        try:
            found = results(case, tool, args)
        except UnsupportedError as problem:
            if "erf is not supported" not in str(problem):
                raise
            pytest.skip("scipy.special.erf is not traced yet")
        assert worker.error(found, reference, case.kind) <= case.tolerance, tool
        compared += 1
    assert compared


def test_every_row_of_the_table_has_a_case() -> None:
    names = cases()
    for case in names.values():
        assert case.peer
        assert set(case.tools) <= set(peers.TOOLS)
        assert case.reference in case.tools or case.reference in ("casadi",)
    assert len(names) >= 28


def test_worker_prints_a_measurement(tmp_path: Path) -> None:
    request = {"case": "rosenbrock n=37", "tool": "numpy", "budget": 0.01}
    request["reference"] = str(tmp_path / "reference.npz")
    done = subprocess.run(
        [sys.executable, "-P", str(SUITE / "worker.py"), json.dumps(request)],
        capture_output=True,
        text=True,
        check=True,
    )
    row = json.loads(done.stdout)
    assert row["error"] == 0.0
    assert 0 < row["min"] <= row["median"]


def test_report_shows_what_is_there_and_what_is_missing() -> None:
    chosen = {name: case for name, case in cases().items() if name.startswith("rosenbrock n=2")}
    base = {"case": "rosenbrock n=2", "round": 0, "first": 0.1, "error": 0.0, "memory": 1.0}
    rows = [
        {**base, "tool": "tapec", "min": 2e-7, "median": 3e-7, "value_min": 1e-7},
        {**base, "tool": "numba", "min": 1e-7, "median": 2e-7, "value_min": 1e-7},
        {"case": "rosenbrock n=2", "round": 0, "tool": "jax", "failed": "no"},
    ]
    assert summaries(rows)["rosenbrock n=2"]["tapec"].best == 2e-7
    text = render(chosen, rows)
    assert "no: 2.00 × too slow" in text
    assert "0 of 1 met" in text


def test_a_run_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "results.jsonl"
    case = tiny()["rosenbrock n=37"]
    asked: list[str] = []

    def run(
        self: Runner, request: dict[str, object], cache: str | None = None
    ) -> dict[str, object]:
        asked.append(str(request["tool"]))
        return {"min": 1e-6, "first": 1e-3, "error": None}

    monkeypatch.setattr(Runner, "run", run)
    tools = ["numpy", "tapec", "c"]
    Runner(output, {}, None, str).case(case, tools, 1, 0.0)
    assert asked == ["numpy", "tapec", "c"]
    asked.clear()
    Runner(output, {}, None, str, read([output])).case(case, tools, 2, 0.0)
    assert asked == ["numpy", "tapec", "c"]
    assert [row["round"] for row in read([output])] == [0, 0, 0, 1, 1, 1]
    asked.clear()
    late = Runner(output, {}, None, str, read([output]), deadline=0.0)
    late.case(case, tools, 3, 0.0)
    assert late.stopped and not asked
