"""The command line: dump and opt; one clear line and exit code 2 for mistakes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tapec.cli import main

FILE = """\
import numpy as np
import tapec

SCALE = 2.0

def loss(x, k=1.0):
    z = np.sin(x) * SCALE
    return z * x + k

@tapec.grad
def decorated(x):
    return x ** 3

def broken(x):
    raise ValueError("no luck\\ntoday")

class Space:
    @staticmethod
    def inside(x):
        return x * x

not_a_function = 3
"""

IR = """\
func @f(%x: f64[]) -> (f64[]) {
  %a = mul %x, %x : f64[]
  %b = mul %x, %x : f64[]
  %dead = exp %x : f64[]
  %c = add %a, %b : f64[]
  return %c
}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "subject.py"
    path.write_text(FILE)
    yield str(path)
    sys.modules.pop("subject", None)
    if str(tmp_path) in sys.path:
        sys.path.remove(str(tmp_path))


@pytest.fixture
def ir(tmp_path):
    path = tmp_path / "f.ir"
    path.write_text(IR)
    return str(path)


def run(capsys, *argv):
    code = main(argv)
    out = capsys.readouterr()
    return code, out.out, out.err


@pytest.mark.parametrize("stage", ["tape", "ir", "grad", "opt"])
def test_dump_stages(capsys, file, stage):
    code, out, err = run(capsys, "dump", f"{file}:loss", "--args", "0.5", "--stage", stage)
    assert code == 0 and not err
    assert "sin" in out and "subject.py:7" in out
    if stage != "tape":
        assert "z = np.sin(x) * SCALE" in out
        assert "func @loss" in out
        assert ("cos" in out) == (stage in ("grad", "opt"))


@pytest.mark.parametrize("stage", ["loops", "llvm", "asm"])
def test_dump_of_native_stages(capsys, file, stage):
    code, out, err = run(capsys, "dump", f"{file}:loss", "--args", "0.5", "--stage", stage)
    assert code == 0 and not err and out.strip()


def test_dump_orders(capsys, file):
    args = ("dump", f"{file}:decorated", "--args", "np.float64(2)")
    sizes = []
    for order in range(4):
        code, out, _ = run(capsys, *args, "--order", str(order))
        assert code == 0
        sizes.append(out)
    assert "@decorated" in sizes[0] and "-> (f64[])" in sizes[0]
    code, out, _ = run(capsys, *args)
    assert code == 0 and "-> (f64[])" in out  # decorated with grad: as it stands


def test_dump_of_nested_names_and_keywords(capsys, file):
    assert run(capsys, "dump", f"{file}:Space.inside", "--args", "1.0")[0] == 0
    code, out, _ = run(capsys, "dump", f"{file}:loss", "--args", "SCALE, k=2.0")
    assert code == 0 and "%k" in out


def test_dump_colour(capsys, file):
    args = ("dump", f"{file}:loss", "--args", "1.0", "--color")
    assert "\x1b[" in run(capsys, *args, "always")[1]
    assert "\x1b[" not in run(capsys, *args, "never")[1]
    assert "\x1b[" not in run(capsys, *args, "auto")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dump", "nofile.py:f"], "no file 'nofile.py'"),
        (["dump", "justtext"], "FILE.py:FUNCTION"),
        (["dump", "FILE:absent", "--args", "1.0"], "no 'absent'; it has Space, broken, decorated"),
        (["dump", "FILE:not_a_function", "--args", "1.0"], "is not a function"),
        (["dump", "FILE:loss", "--args", "1 +"], "SyntaxError"),
        (["dump", "FILE:loss", "--args", "undefined"], "NameError"),
        (["dump", "FILE:loss"], "loss() missing a required argument: 'x'"),
        (["dump", "FILE:loss", "--args", "np.ones(3)"], "jacobian"),
        (["dump", "FILE:broken", "--args", "1.0"], "ValueError: no luck today"),
        (["dump", "FILE:loss", "--args", "1.0", "--stage", "poetry"], "poetry"),
        (["dump", "FILE:loss", "--args", "1.0", "--order", "-1"], "--order -1"),
        (["opt", "nofile.ir"], "No such file"),
        (["opt", "IR", "--passes", "magic"], "no pass 'magic'; passes are "),
        (["opt"], "FILE.ir"),
        (["frobnicate"], "frobnicate"),
        ([], "COMMAND"),
    ],
)
def test_mistakes(capsys, file, ir, arguments, message):
    argv = [a.replace("FILE", file) if a != "IR" else ir for a in arguments]
    code, out, err = run(capsys, *argv)
    assert code == 2 and not out
    assert message in err and err.count("\n") == 1, err


def test_import_errors_are_one_line(capsys, tmp_path):
    path = tmp_path / "bad.py"
    path.write_text("def f(x:\n")
    code, _, err = run(capsys, "dump", f"{path}:f", "--args", "1.0")
    assert code == 2 and "SyntaxError" in err and err.count("\n") == 1


def test_opt_passes(capsys, ir):
    code, out, _ = run(capsys, "opt", ir, "--passes", "cse,dce")
    assert code == 0 and out.count("mul") == 1 and "exp" not in out
    code, out, _ = run(capsys, "opt", ir, "--passes", "simplify, vjp, simplify")
    assert code == 0 and "@f.vjp" in out


def test_opt_round_trip(capsys, ir, tmp_path):
    _, out, _ = run(capsys, "opt", ir, "--passes", "vjp")
    again = tmp_path / "again.ir"
    again.write_text(out)
    assert run(capsys, "opt", str(again), "--passes", "")[1] == out


def test_opt_of_malformed_text(capsys, tmp_path):
    path = tmp_path / "bad.ir"
    path.write_text(IR.replace("exp %x", "exp %y"))
    code, _, err = run(capsys, "opt", str(path))
    assert code == 2 and f"{path}:4:" in err and err.count("\n") == 1
    path.write_text("")
    assert run(capsys, "opt", str(path))[0] == 2


def test_help_and_version(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0 and "dump" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.startswith("tapec 0.")


def test_as_a_module(ir):
    command = [sys.executable, "-m", "tapec", "opt", "-", "--passes", "dce"]
    done = subprocess.run(command, input=IR, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "func @f" in done.stdout and not done.stderr
    done = subprocess.run(command[:4], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
