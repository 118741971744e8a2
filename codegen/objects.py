"""From a function to object code, through the cache on disk.

``kernel_object(fn)`` is ``compile_kernel`` and ``engine.object_code``, unless the same was compiled
before.  The key is a digest of the function's structure (operations, types, attributes by bits; no
names, no source lines), so a function that is found needs no planning, no LLVM text and no LLVM;
and if it is deferred, the digest is of the function it is made from, and it is not even made.

A kernel that is so long that it is compiled at level 0 counts its calls; ``promoted`` makes the
better object when there have been enough.

Invariant: the key covers whatever the object code may depend on: the structure, the level, the
sources of ``tapec.ir`` and ``tapec.codegen``, the versions, and the CPU with its features.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import struct
import sys
import time
from array import array
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from tapec.codegen import disk, engine
from tapec.codegen.kernel import KernelSource, compile_kernel
from tapec.codegen.plan import all_nests
from tapec.codegen.target import host
from tapec.ir.core import NO_ATTRS, Block, Dense, Function, Type, Value
from tapec.ir.deferred import origin

__all__ = [
    "COUNTDOWN", "Facts", "KernelObject", "calls_until_hot", "exported", "function_key",
    "kernel_object", "promoted", "text_object",
]  # fmt: skip

#: Sources that are newer than this may not be what runs here.
_STARTED = time.time()


@dataclass(slots=True)
class Facts:
    """What is known of a kernel besides its code; kept with it on disk."""

    workspace_bytes: int
    #: external functions, to be resolved when it is linked
    symbols: list[str]
    #: estimated run time
    work_ns: float
    #: lines of LLVM text
    instructions: int
    opt: int
    guards: int
    nests: int


@dataclass(slots=True)
class KernelObject:
    """Object code that exports ``kernel``."""

    code: bytes
    facts: Facts
    #: its name on disk; None: not kept
    key: str | None
    #: whether it was found on disk
    cached: bool
    #: seconds per stage
    seconds: dict[str, float]
    #: LLVM text of a kernel that counts its calls
    text: str | None = None


#: Longer kernels stay at level 0: a process could not end for seconds while one is compiled.
PROMOTE_LIMIT = 30_000
#: Longer ones are promoted to level 1, which takes a third of the time for nearly the same code.
_LEVEL_2_LIMIT = 4000
#: Nanoseconds of LLVM's per line at level 2, and the part of that which calls must have taken.
_PROMOTE_NS, _PROMOTE_PART = 60_000.0, 0.1
#: The counter of a kernel that counts its calls.
COUNTDOWN = "tapec.countdown"

# Counts down, and once at 1 asks for Python's attention by looking like a failed guard; after
# that, if nothing has happened, every 1024th time.
_COUNTING = f"""
@{COUNTDOWN} = external global i64

define i32 @kernel(ptr noalias %in, ptr noalias %out, ptr noalias %ws) {{
  %left = atomicrmw sub ptr @{COUNTDOWN}, i64 1 monotonic
  %over = icmp sle i64 %left, 1
  %low = and i64 %left, 1023
  %turn = icmp eq i64 %low, 1
  %stop = and i1 %over, %turn
  br i1 %stop, label %hot, label %run
hot:
  ret i32 -2
run:
  %code = call i32 @kernel.counted(ptr %in, ptr %out, ptr %ws)
  ret i32 %code
}}
"""


def counted(text: str) -> str:
    """The text of a kernel with ``@kernel`` visible, and counting its calls."""
    renamed = text.replace("define internal i32 @kernel(", "define internal i32 @kernel.counted(")
    return renamed + _COUNTING


def calls_until_hot(facts: Facts) -> int:
    """After how many calls a kernel at level 0 deserves to be compiled better."""
    level_2 = _PROMOTE_NS * _PROMOTE_PART * facts.instructions
    call = max(facts.work_ns, 0.3 * facts.instructions, 1.0)
    return max(20, int(level_2 / call))


def exported(text: str) -> str:
    """The text of a kernel with ``@kernel`` visible to the entry, another object."""
    return text.replace("define internal i32 @kernel(", "define i32 @kernel(", 1)


def kernel_object(fn: Function, opt: int | None = None, *, cache: bool = True) -> KernelObject:
    """Compile ``fn``, or find it on disk.  ``opt`` None: the level that suits its length."""
    start = time.perf_counter()
    key = function_key(fn, opt) if cache and disk.directory() is not None else None
    found = _found(key) if key is not None else None
    looked = time.perf_counter()
    if found is not None:
        code, facts = found
        return KernelObject(code, facts, key, True, {"cache": looked - start})
    source = compile_kernel(fn)
    written = time.perf_counter()
    level = source.opt if opt is None else opt
    counts = opt is None and level == 0 and source.instructions <= PROMOTE_LIMIT
    text = counted(source.text) if counts else exported(source.text)
    code = engine.object_code(text, level)
    seconds = {
        "cache": looked - start,
        "loops and text": written - looked,
        "llvm": time.perf_counter() - written,
    }
    facts = _facts(source, level, [COUNTDOWN] if counts else [])
    if key is not None:
        disk.store(key, code, asdict(facts))
    made = KernelObject(code, facts, key, False, seconds)
    if counts:
        made.text = source.text
    return made


def _facts(source: KernelSource, level: int, symbols: list[str]) -> Facts:
    return Facts(
        source.workspace_bytes,
        sorted([*source.symbols, *symbols]),
        source.work_ns,
        source.instructions,
        level,
        len(source.guards),
        sum(1 for _ in all_nests(source.program)),
    )


def promoted(made: KernelObject, fn: Function) -> KernelObject:
    """The object of ``fn`` compiled better than ``made``; it replaces that on disk."""
    start = time.perf_counter()
    facts = made.facts
    level = 2 if facts.instructions <= _LEVEL_2_LIMIT else 1
    if made.text is not None:
        text = made.text
        facts = replace(facts, opt=level, symbols=[s for s in facts.symbols if s != COUNTDOWN])
    else:  # the object came from disk
        source = compile_kernel(fn)
        text, facts = source.text, _facts(source, level, [])
    code = engine.object_code(exported(text), level)
    if made.key is not None:
        disk.store(made.key, code, asdict(facts))
    seconds = {**made.seconds, "promotion": time.perf_counter() - start}
    return KernelObject(code, facts, made.key, False, seconds)


_NAMES = tuple(f.name for f in fields(Facts))


def _found(key: str) -> tuple[bytes, Facts] | None:
    found = disk.load(key)
    if found is None:
        return None
    try:
        return found.code, Facts(*[found.facts[name] for name in _NAMES])
    except KeyError:
        disk.discard(key)
        return None


def text_object(text: str, opt: int) -> bytes:
    """``engine.object_code``, through the cache on disk."""
    environment = _environment() if disk.directory() is not None else None
    if environment is None:
        return engine.object_code(text, opt)
    key = hashlib.sha256(f"{environment} text {opt} {text}".encode()).hexdigest()
    found = disk.load(key)
    if found is not None:
        return found.code
    code = engine.object_code(text, opt)
    disk.store(key, code, {})
    return code


# -- keys -------------------------------------------------------------------------------


@functools.cache
def _environment() -> str | None:
    """A digest of all that object code depends on besides the function; None if that cannot be
    known, because a source file is missing or was changed after it was loaded.

    Sources are told apart by place, size and time of modification, as Python's own byte code is.
    """
    tapec = sys.modules["tapec"]
    facts: list[Any] = [
        getattr(tapec, "__version__", ""), sys.implementation.cache_tag, sys.version_info[:2],
        np.__version__, object.__basicsize__, platform.machine(), sys.platform, host().key,
        engine.cache_key(""),
    ]  # fmt: skip
    try:
        for package in ("tapec.ir", "tapec.codegen"):
            folder = sys.modules[package].__path__[0]
            facts.append(os.path.realpath(folder))
            with os.scandir(folder) as entries:
                sources = sorted((e for e in entries if e.name.endswith(".py")), key=_name)
            for entry in sources:
                found = entry.stat()
                if found.st_mtime > _STARTED:
                    return None
                facts.append((entry.name, found.st_size, int(found.st_mtime)))
    except OSError:
        return None
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name


def function_key(fn: Function, opt: int | None) -> str | None:
    """The name of ``kernel_object(fn, opt)`` on disk; None if there can be none.

    Equal for functions that differ only in names and source lines.
    """
    environment = _environment()
    if environment is None:
        return None
    base, recipe = origin(fn)
    shape = _Shape()
    try:
        shape.block(base.block)
    except (KeyError, TypeError):  # malformed, or an attribute that this does not know
        return None
    digest = hashlib.sha256(f"{environment} function {opt} {recipe} ".encode())
    digest.update(array("q", shape.words).tobytes())
    for kind in shape.kinds:
        digest.update(repr(kind).encode())
    return digest.hexdigest()


class _Shape:
    """A function as numbers: ``words`` refers to values by their order and to entries of
    ``kinds``, which are distinct (name, type, attributes)."""

    def __init__(self) -> None:
        self.words: list[int] = []
        self.kinds: dict[Any, int] = {}
        self.values: dict[Value, int] = {}

    def block(self, block: Block) -> None:
        words, kinds, values = self.words, self.kinds, self.values
        words.append(len(block.params))
        for p in block.params:
            words.append(kinds.setdefault(p.type, len(kinds)))
            values[p] = len(values)
        words.append(len(block.ops))
        append, known, number = words.append, kinds.get, len(values)
        for op in block.ops:
            results, operands, attrs = op.results, op.operands, op.attrs
            n = len(operands)
            type_ = results[0].type if len(results) == 1 else tuple([r.type for r in results])
            key = (op.name, n, type_) if attrs is NO_ATTRS else (op.name, n, type_, _plain(attrs))
            kind = known(key)
            if kind is None:
                kind = kinds[key] = len(kinds)
            append(kind)
            if n == 2:
                append(values[operands[0]])
                append(values[operands[1]])
            else:
                for v in operands:
                    append(values[v])
            for r in results:
                values[r] = number
                number += 1
            if op.regions:
                words.append(-len(op.regions))
                for region in op.regions:
                    self.block(region)
                number = len(values)
        words.append(len(block.results))
        words += [values[v] for v in block.results]


def _plain(value: Any) -> Any:
    """A hashable value that is equal, and has the same ``repr``, only for the same bits."""
    kind = type(value)
    if kind is int or kind is str or kind is bool or value is None:
        return (kind.__name__, value) if kind is bool else value
    if kind is float:
        return "float", struct.pack("<d", value)
    if kind is tuple:
        # Most are of ints, and 1 == True.
        return value if set(map(type, value)) <= {int} else tuple(map(_plain, value))
    if isinstance(value, Type):
        return value
    if isinstance(value, Dense):
        a = value.array
        return "dense", a.dtype.str, a.shape, hashlib.sha256(a.tobytes()).digest()
    if kind is complex:
        return "complex", struct.pack("<dd", value.real, value.imag)
    if isinstance(value, np.generic):
        return "scalar", value.dtype.str, value.tobytes()
    if hasattr(value, "items"):
        return tuple([(k, _plain(v)) for k, v in sorted(value.items())])
    raise TypeError(f"attribute {value!r}")
