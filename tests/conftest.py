"""Golden files: ``tests/golden/*.ir``, one test each.

A golden file says what to run, on what, and what must come out::

    // passes: vjp simplify
    func @f(%x: f64[]) -> (f64[]) { ... }
    // ----
    func @f.vjp(%x: f64[]) -> (f64[], f64[]) { ... }
    // run: (2.0) == (4.0, 12.0)

Functions are compared by structure, so that other names of values do not matter.  A file may
hold any number of ``// run:`` lines: the arguments of the last function and its results, as
Python literals, which the interpreter must reproduce.  ``pytest --update-golden`` rewrites
what follows ``// ----``.

A file without passes holds malformed text; ``// error: TEXT`` ends the line that the parser
must reject, with a message that contains TEXT.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tapec.ir import ParseError, diff, equal, format_function, interpret, parse, verify
from tapec.ir.passes import run_passes

RULE = "// ----"

# Tests neither read nor fill the user's object cache; those about the cache have directories of
# their own.
os.environ["TAPEC_CACHE"] = "0"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the expected part of golden files"
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix == ".ir" and file_path.parent.name == "golden":
        return GoldenFile.from_parent(parent, path=file_path)
    return None


class GoldenFile(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        yield GoldenItem.from_parent(self, name=self.path.stem)


class GoldenMismatch(Exception):
    """What to show when a golden file does not match."""


class GoldenItem(pytest.Item):
    def runtest(self) -> None:
        text = self.path.read_text()
        source, _, expected = text.partition(RULE + "\n")
        passes = [line for line in source.splitlines() if line.startswith("// passes:")]
        if not passes:
            self.check_error(text)
            return
        fn = verify(parse(source))
        got = verify(run_passes(fn, passes[0].removeprefix("// passes:").split()))
        runs = [line for line in expected.splitlines() if line.startswith("// run:")]
        try:
            want = parse(expected)
        except ParseError as error:  # a mismatch, or --update-golden could not repair it
            problem = str(error)
        else:
            problem = diff(want, got)
            assert bool(problem) is not equal(want, got)
        if problem and self.config.getoption("--update-golden"):
            tail = "".join(f"{line}\n" for line in runs)
            self.path.write_text(f"{source}{RULE}\n{format_function(got)}\n{tail}")
        elif problem:
            raise GoldenMismatch(f"expected on the left, got on the right\n{problem}")
        for line in runs:
            self.check_run(got, line.removeprefix("// run:"))

    def check_error(self, text: str) -> None:
        lines = text.splitlines()
        ((number, message),) = [
            (k, line.split("// error:")[1].strip())
            for k, line in enumerate(lines, 1)
            if "// error:" in line
        ]
        with pytest.raises(ParseError) as caught:
            parse(text)
        assert message in str(caught.value)
        assert caught.value.line == number

    def check_run(self, fn: Any, line: str) -> None:
        given, results = (_tuple(part) for part in line.split("=="))
        found = interpret(fn, [np.array(a) for a in given])
        assert len(found) == len(results), line
        for a, b in zip(found, results):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-300, err_msg=line)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, GoldenMismatch):
            return f"{self.path}: {excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"golden {self.name}"


def _tuple(text: str) -> tuple[Any, ...]:
    value = ast.literal_eval(text.strip())
    return value if isinstance(value, tuple) else (value,)
