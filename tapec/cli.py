"""The command line: ``python -m tapec dump|opt|demo|bench``.

    python -m tapec dump fit.py:loss --args 'np.ones(3), 2.0' --stage opt --order 2
    python -m tapec opt program.ir --passes simplify,vjp,dce
    python -m tapec demo
    python -m tapec bench --json

A mistake in the arguments is one clear line on standard error and exit code 2.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

__all__ = ["main"]

_STAGES = ("tape", "ir", "grad", "opt", "loops", "llvm", "asm")


class _Mistake(Exception):
    """Something the user typed is wrong; the message is one line."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Mistake(f"{message} (see {self.prog} --help)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        if args[:1] == ["demo"]:
            from tapec import demo

            return demo.main(args[1:])
        if args[:1] == ["bench"]:
            from tapec import bench

            return bench.main(args[1:])
        return _run(args)
    except _Mistake as mistake:
        print(f"tapec: {mistake}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of a pipe has left: not our mistake
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(argv: list[str]) -> int:
    parser = _Parser(
        prog="python -m tapec",
        description="Look into the compiler: dump the stages of a function, run passes on IR text.",
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    show = commands.add_parser("dump", help="print one stage of the compilation of a function")
    show.add_argument("function", metavar="FILE.py:FUNCTION")
    show.add_argument(
        "--args",
        default="",
        metavar="EXPR",
        help="the arguments of the call, as Python source; np is NumPy and the names of the file "
        "are known",
    )
    show.add_argument("--stage", choices=_STAGES, default="opt", help="default: opt")
    show.add_argument(
        "--order",
        type=int,
        metavar="N",
        help="differentiate N times with respect to the first argument: 0 is the function, 1 its "
        "value and gradient (the default for a plain function), 2 the gradient of the gradient's "
        "sum, ...",
    )
    show.add_argument("--color", choices=("auto", "always", "never"), default="auto")

    opt = commands.add_parser("opt", help="run passes on the text of an IR function")
    opt.add_argument("file", metavar="FILE.ir", help="- for standard input")
    opt.add_argument("--passes", default="simplify", metavar="A,B,...", help="default: simplify")
    opt.add_argument("--color", choices=("auto", "always", "never"), default="auto")

    commands.add_parser("demo", help="fit the Old Faithful mixture and check everything")
    commands.add_parser("bench", help="time compiled kernels against peers")

    options = parser.parse_args(argv)
    color = options.color == "always" or (
        options.color == "auto" and sys.stdout.isatty() and "NO_COLOR" not in os.environ
    )
    text = _dump(options, color) if options.command == "dump" else _opt(options, color)
    print(text)
    return 0


def _version() -> str:
    import tapec

    return f"tapec {tapec.__version__}"


# -- dump -------------------------------------------------------------------------------


def _dump(options: argparse.Namespace, color: bool) -> str:
    import numpy as np

    from tapec.dump import dump

    file, _, name = options.function.rpartition(":")
    if not file:
        raise _Mistake(f"expected FILE.py:FUNCTION, got {options.function!r}")
    namespace = _load(file)
    found: Any = namespace
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            known = sorted(
                n for n, v in vars(namespace).items() if callable(v) and not n.startswith("_")
            )
            raise _Mistake(f"{file} has no {name!r}; it has {', '.join(known) or 'no functions'}")
    if not callable(found):
        raise _Mistake(f"{name!r} in {file} is not a function")
    values = {"np": np, **vars(namespace)}
    try:
        args, kwargs = eval(f"(lambda *a, **k: (a, k))({options.args})", values)
    except Exception as error:
        raise _Mistake(f"--args {options.args!r}: {_one_line(error)}") from None
    slow = _ordered(found, options.order)
    try:
        return dump(slow.dispatcher, slow.subject, options.stage, args, kwargs, color=color)
    except Exception as error:
        raise _Mistake(f"{name}: {_one_line(error)}") from None


def _ordered(found: Any, order: int | None) -> Any:
    """What serves calls of ``found`` differentiated ``order`` times."""
    import tapec
    from tapec.codegen.callable_type import callable_type, slow_of

    if order is not None and order < 0:
        raise _Mistake(f"--order {order}: use 0 or more")
    if order is None:
        if type(found) is callable_type():
            return slow_of(found)
        order = 1
    if type(found) is callable_type() and order:
        found = found.__wrapped__
    for _ in range(order - 1):
        found = _gradient_sum(found)
    return slow_of(tapec.value_and_grad(found) if order else tapec.jit(found))


def _gradient_sum(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A scalar function whose gradient is the next derivative: the sum of fn's gradient."""
    import functools

    import numpy as np

    import tapec
    from tapec import trees

    gradient = tapec.grad(fn)

    @functools.wraps(fn)
    def total(*args: Any, **kwargs: Any) -> Any:
        return sum(np.sum(leaf) for leaf in trees.flatten(gradient(*args, **kwargs))[0])

    return total


def _load(file: str) -> Any:
    """Import a file by path, with its folder on the path as ``python FILE`` would."""
    if not os.path.isfile(file):
        raise _Mistake(f"there is no file {file!r}")
    folder = os.path.dirname(os.path.abspath(file))
    name = os.path.splitext(os.path.basename(file))[0]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise _Mistake(f"{file!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, folder)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SystemExit as stop:
        raise _Mistake(f"{file} exits when it is imported (code {stop.code})") from None
    except Exception as error:
        raise _Mistake(f"importing {file}: {_one_line(error)}") from None
    return module


# -- opt --------------------------------------------------------------------------------


def _opt(options: argparse.Namespace, color: bool) -> str:
    from tapec.ir.parser import ParseError, parse_all
    from tapec.ir.passes import PASSES, run_passes
    from tapec.ir.printer import format_function

    passes = [p for p in options.passes.replace(" ", "").split(",") if p]
    for name in passes:
        if name not in PASSES:
            raise _Mistake(f"there is no pass {name!r}; passes are {', '.join(PASSES)}")
    try:
        if options.file == "-":
            text = sys.stdin.read()
        else:
            with open(options.file, encoding="utf-8") as f:
                text = f.read()
    except (OSError, UnicodeDecodeError) as error:
        raise _Mistake(f"{options.file}: {_one_line(error)}") from None
    try:
        functions = parse_all(text)
    except ParseError as error:
        raise _Mistake(f"{options.file}:{error.line}:{error.column}: {error.message}") from None
    if not functions:
        raise _Mistake(f"{options.file}: there is no function")
    out = []
    for fn in functions:
        try:
            out.append(format_function(run_passes(fn, passes, check=True), color))
        except (ValueError, TypeError, NotImplementedError) as error:
            raise _Mistake(f"{options.file}: @{fn.name}: {_one_line(error)}") from None
    return "\n\n".join(out)


def _one_line(error: BaseException) -> str:
    """An exception as one line, with its kind."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
