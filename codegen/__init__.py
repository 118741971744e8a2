"""Native code from ``tapec.ir`` functions: loop nests, LLVM text, engine, native entry.

LLVM is loaded when the first kernel is compiled.
"""

from __future__ import annotations

from tapec.codegen.kernel import KernelSource, compile_kernel, make_program
from tapec.ir.core import Function

__all__ = ["KernelSource", "compile_kernel", "count_nests", "dump"]


def dump(fn: Function, stage: str, color: bool = False) -> str:
    """The text of a code generation stage: ``loops``, ``llvm`` or ``asm``.

    Raises ``ValueError`` for another stage.
    """
    if stage == "loops":
        from tapec.codegen.memory import lay_out
        from tapec.codegen.show import format_program

        program = make_program(fn)
        return format_program(program, lay_out(program))
    source = compile_kernel(fn)
    if stage == "llvm":
        return source.text
    if stage == "asm":
        from tapec.codegen import engine

        # an internal function that nobody calls has no machine code
        text = source.text.replace("define internal i32 @kernel(", "define i32 @kernel(")
        return engine.assemble(text, source.opt)
    raise ValueError(f"no code generation stage {stage!r}; there are loops, llvm and asm")


def count_nests(fn: Function) -> int:
    """How many loop nests the native code of ``fn`` has."""
    from tapec.codegen.plan import all_nests

    return sum(1 for _ in all_nests(make_program(fn)))
