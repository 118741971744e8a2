"""The layers: which package may import what, and what a module may not do at import.

    tapec → codegen → ir,  tapec → ir.

``ir`` knows neither the front end, nor codegen, nor LLVM or SymPy; ``codegen`` knows no front
end.  SciPy and SymPy cost too much to import with tapec itself.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = [
    path
    for package in ("tapec", "ir", "codegen")
    for path in sorted((ROOT / package).rglob("*.py"))
    if not {"ir", "codegen"} & set(path.relative_to(ROOT).parts[1:])  # the links in tapec/
]
LONGEST = 600


def module_name(path: Path) -> str:
    """``ir/core.py`` is tapec.ir.core, ``tapec/api.py`` is tapec.api."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    if parts[0] != "tapec":
        parts.insert(0, "tapec")
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def imported(node: ast.AST, package: str) -> Iterator[str]:
    """Full names of the modules that an import statement names."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            parents = package.split(".")
            base = ".".join(parents[: len(parents) - node.level + 1] + ([base] if base else []))
        # `from tapec import ir` names the module tapec.ir.
        yield from (f"{base}.{alias.name}" for alias in node.names)


def imports(path: Path, *, at_import: bool = False) -> set[str]:
    """Modules that a file imports; with ``at_import`` only those that importing it needs."""
    name = module_name(path)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if at_import:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                return
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                for child in node.orelse:
                    visit(child)
                return
        found.update(imported(node, package))
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text("utf-8")))
    return found


def inside(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def of_layer(layer: str) -> list[Path]:
    return [path for path in SOURCES if path.relative_to(ROOT).parts[0] == layer]


def test_the_walk_finds_the_files() -> None:
    names = {module_name(path) for path in SOURCES}
    assert {"tapec", "tapec.ir.core", "tapec.codegen", "tapec.demo"} <= names


@pytest.mark.parametrize("path", of_layer("ir"), ids=module_name)
def test_ir_imports_the_standard_library_numpy_and_itself(path: Path) -> None:
    for module in imports(path):
        top = module.split(".")[0]
        # SciPy: the reference semantics of the special functions, imported late (see below)
        plain = {*sys.stdlib_module_names, "numpy", "scipy"}
        allowed = top in plain or inside(module, "tapec.ir")
        assert allowed, f"{path.relative_to(ROOT)} imports {module}"


@pytest.mark.parametrize("path", of_layer("codegen"), ids=module_name)
def test_codegen_imports_no_front_end(path: Path) -> None:
    for module in imports(path):
        if inside(module, "tapec"):
            allowed = inside(module, "tapec.ir") or inside(module, "tapec.codegen")
            assert allowed, f"{path.relative_to(ROOT)} imports {module}"
        assert not inside(module, "sympy"), f"{path.relative_to(ROOT)} imports {module}"


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_scipy_and_sympy_are_imported_late(path: Path) -> None:
    if module_name(path).startswith("tapec.scipy."):
        pytest.skip("SciPy's own names: imported when they are asked for")
    late = {"scipy", "sympy"}
    early = {m for m in imports(path, at_import=True) if m.split(".")[0] in late}
    assert not early, f"{path.relative_to(ROOT)} imports {early} when it is imported"


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_no_bare_ir_or_codegen(path: Path) -> None:
    """``import ir`` in a checkout would be a second copy of every class."""
    bare = {m for m in imports(path) if inside(m, "ir") or inside(m, "codegen")}
    assert not bare


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_one_job_a_file(path: Path) -> None:
    lines = len(path.read_text("utf-8").splitlines())
    assert lines <= LONGEST, f"{path.relative_to(ROOT)} has {lines} lines; split it"


def test_import_is_quiet() -> None:
    """Importing tapec starts no thread, prints nothing, and leaves SciPy and SymPy alone."""
    code = (
        "import sys, threading, tapec\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
        "late = {'scipy', 'sympy', 'jax', 'torch'} & set(sys.modules)\n"
        "assert not late, late\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_any_name_may_be_the_first() -> None:
    """Public names are imported at their first use, in whatever order."""
    import tapec

    for module in sorted(set(tapec._FROM.values())):
        name = next(n for n, m in tapec._FROM.items() if m == module)
        code = f"import tapec; tapec.{name}"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), name
