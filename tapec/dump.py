"""Each stage of a compilation as text: what ``fn.dump(stage, ...)`` and the tool print.

===========  ==================================================================
stage        text
===========  ==================================================================
``tape``     the records, as the user's function made them
``ir``       the lifted IR function
``grad``     the transformed function, before its last simplification
``opt``      the simplified function: what is compiled
``loops``    the loop nests
``llvm``     the LLVM text
``asm``      the machine code
===========  ==================================================================

IR lines carry the user's source line at the right.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tapec.errors import TapecValueError

if TYPE_CHECKING:
    from tapec.dispatch import Dispatcher
    from tapec.ir.core import Function, Loc
    from tapec.trace import Traced
    from tapec.transforms import Program

__all__ = ["STAGES", "compiled_form", "dump", "format_ir"]

STAGES = ("tape", "ir", "grad", "opt", "loops", "llvm", "asm")
#: Columns: where the source starts, at most; how much of it is shown.
_COMMENT_COLUMN = 72
_SOURCE_WIDTH = 60


def dump(
    dispatcher: Dispatcher,
    subject: Callable[..., Any],
    stage: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    color: bool = False,
) -> str:
    """The program that a call with these arguments would run, at ``stage``."""
    from tapec.transforms import build

    if stage not in STAGES:
        raise TapecValueError(f"there is no stage {stage!r}; stages are {', '.join(STAGES)}")
    call = dispatcher.flatten(subject, args, kwargs)
    if stage == "tape":
        traced = dispatcher.trace(subject, call.flat, keep_text=True, color=color)
        assert traced.tape_text is not None
        return traced.tape_text
    traced = dispatcher.trace(subject, call.flat)
    if stage == "ir":
        text = format_ir(traced.fn, color)
        return "\n".join([*[f"# not rolled into a loop: {note}" for note in traced.notes], text])
    program = build(traced, dispatcher.transform)
    if stage == "grad":
        return format_ir(program.raw or program.fn, color)
    if stage == "opt":
        return format_ir(program.fn, color)
    return _native(compiled_form(program, traced), stage)


def compiled_form(program: Program, traced: Traced) -> Function:
    """The function of ``program`` as it is compiled: the bodies of functions with custom rules in
    place, complex arrays in one piece."""
    from tapec.ir.core import walk
    from tapec.ir.custom import expand
    from tapec.ir.passes import simplify
    from tapec.packing import pack

    if any(op.name == "custom" for op in walk(program.fn.block)):
        program = program._replace(fn=simplify(expand(program.fn)))
    packed = pack(program, traced)
    return packed.program.fn if packed is not None else program.fn


def _native(fn: Function, stage: str) -> str:
    """The stages of code generation."""
    from tapec.codegen.kernel import compile_kernel
    from tapec.codegen.memory import lay_out
    from tapec.codegen.show import format_program

    source = compile_kernel(fn)
    if stage == "loops":
        return format_program(source.program, lay_out(source.program))
    if stage == "llvm":
        return source.text
    from tapec.codegen.engine import assemble

    return assemble(source.text, source.opt)


def format_ir(fn: Function, color: bool = False) -> str:
    """The text of a function with the user's source at the right of each line."""
    from tapec.ir.printer import format_lines, highlight

    lines = format_lines(fn)
    width = min(max(len(line.text) for line in lines), _COMMENT_COLUMN)
    out = []
    last: Loc | None = None
    for line in lines:
        text = line.text
        if line.loc is not None:
            comment = f"# {line.loc}"
            source = linecache.getline(line.loc.file, line.loc.line).strip()
            if source and line.loc != last:  # the text once for a run of operations
                if len(source) > _SOURCE_WIDTH:
                    source = source[: _SOURCE_WIDTH - 1] + "…"
                comment += f"  {source}"
            text = f"{text:<{width}}    {comment}"
        last = line.loc
        out.append(highlight(text) if color else text)
    return "\n".join(out)
