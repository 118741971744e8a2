"""README.md: its Python blocks run and print what it says; its commands and links exist."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = ("README.md", "CONTRIBUTING.md")


def blocks(text: str) -> list[tuple[str, str]]:
    """Fenced blocks as (language, content), in order."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def test_python_blocks() -> None:
    """A ``text`` block is what the Python block before it prints."""
    found = blocks((ROOT / "README.md").read_text("utf-8"))
    programs = [i for i, (language, _) in enumerate(found) if language == "python"]
    assert programs
    for i in programs:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(found[i][1], "README.md", "exec"), {"__name__": "readme"})
        if found[i + 1 : i + 2] and found[i + 1][0] == "text":
            assert printed.getvalue() == found[i + 1][1]


def test_commands_for_installing_and_testing() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert "pip install . && python -m tapec demo" in text
    assert "pip install -e '.[test]' && pytest" in text


def test_dump_command(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    (arguments,) = re.findall(
        r"^python -m tapec dump (\S+) --args '(.*)' --stage (\w+)$", text, re.M
    )
    target, args, stage = arguments
    command = [sys.executable, "-m", "tapec", "dump", target, "--args", args, "--stage", stage]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "func @" in done.stdout and "rosenbrock.py:" in done.stdout


@pytest.mark.parametrize("document", DOCUMENTS)
def test_named_files_exist(document: str) -> None:
    text = (ROOT / document).read_text("utf-8")
    named = re.findall(r"\]\(([^)#:]+)\)", text)
    named += re.findall(r"(?:python|pytest) ((?:benchmarks|examples|tests)/\w+\.py)", text)
    named += re.findall(r"`((?:ir|tapec|codegen|tests)/\w+\.py)`", text)
    assert named
    missing = [name for name in named if not (ROOT / name).exists()]
    assert not missing
