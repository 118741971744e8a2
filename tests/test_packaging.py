"""What an editable install hides: packages that pyproject.toml forgot, and stale links."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import resources
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def test_every_package_is_listed() -> None:
    """``packages`` is written by hand: automatic discovery cannot rename ir and codegen."""
    found = set()
    for top in ("tapec", "ir", "codegen"):
        for init in (ROOT / top).rglob("__init__.py"):
            parts = init.parent.relative_to(ROOT).parts
            if top == "tapec" and parts[1:2] and parts[1] in ("ir", "codegen"):
                continue  # seen through the links
            found.add(".".join(parts if top == "tapec" else ("tapec", *parts)))
    assert found == set(PROJECT["tool"]["setuptools"]["packages"])


@pytest.mark.parametrize("name", ["ir", "codegen"])
def test_links(name: str) -> None:
    link = ROOT / "tapec" / name
    assert link.resolve() == ROOT / name, (
        "tapec/ir and tapec/codegen are links to ../ir, ../codegen"
    )


def test_one_copy_of_the_ir() -> None:
    import tapec.ir.core

    assert Path(tapec.ir.core.__file__).resolve() == ROOT / "ir" / "core.py"


def test_typed_and_with_data() -> None:
    package = resources.files("tapec")
    assert package.joinpath("py.typed").is_file()
    assert package.joinpath("data", "old_faithful.csv").is_file()
    data = PROJECT["tool"]["setuptools"]["package-data"]
    assert data == {"tapec": ["py.typed"], "tapec.data": ["*.csv"]}


def test_version() -> None:
    import tapec

    assert tapec.__version__ == PROJECT["project"]["version"]


def test_command_line_from_anywhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tapec", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for word in ("demo", "bench", "dump", "opt"):
        assert word in done.stdout
