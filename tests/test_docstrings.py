"""Every example in a docstring runs and prints what it says."""

from __future__ import annotations

import doctest
import importlib
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted(
    ".".join(
        (() if folder == "tapec" else ("tapec",)) + path.relative_to(ROOT).with_suffix("").parts
    ).removesuffix(".__init__")
    for folder in ("tapec", "ir", "codegen")
    for path in (ROOT / folder).rglob("*.py")
    if ">>>" in path.read_text("utf-8")
    and path.parts[-2:-1] != ("__pycache__",)
    and not path.relative_to(ROOT).as_posix().startswith(("tapec/ir/", "tapec/codegen/"))
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    module = importlib.import_module(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        failed, tried = doctest.testmod(
            module, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
        )
    assert not failed and tried
