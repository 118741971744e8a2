"""The JIT: LLVM text in, addresses of native functions out.

One ORC LLJIT (one after the other) and one target machine per optimisation level serve the whole
process.  Nothing is created at import; the first compilation pays for it.  Making an object file
(``object_code``) and loading one (``link``) are separate steps, because an object file may also
come from a disk cache.

Invariants
- The text holds symbols, never addresses, so an object file is valid in any process on this CPU.
- LLVM only inlines ``alwaysinline`` functions and selects instructions; our own IR passes optimise.
- Thread-safe (llvmlite serialises LLVM; state of this module has its own lock), and fork-safe: a
  fork waits until no thread is inside LLVM, so parent and child both find it in a usable state.
- A ``Library`` owns its code: keep it as long as anything may call into it.

>>> text = "define double @twice(double %x) {\\n %y = fadd double %x, %x\\n ret double %y\\n}"
>>> library = compile_module(text, {}, exports=["twice"])
>>> import ctypes
>>> ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(library.address("twice"))(3.0)
6.0
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import os
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import llvmlite
import llvmlite.binding as llvm

__all__ = [
    "CompileError", "Library", "assemble", "cache_key", "compile_module", "host_cpu",
    "host_features", "link", "object_code", "optimised_text",
]  # fmt: skip

#: Libraries per JIT.
LIBRARIES = 256
# Part of every cache key: raise it when the same text would give different object code.
FORMAT = 1


class CompileError(RuntimeError):
    """LLVM refused text that this package generated: a bug in the compiler, not in user code."""


class _Host:
    """What the process compiles for; created once, never disposed of."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.cpu: str = llvm.get_host_cpu_name()
        self.features: dict[str, bool] = dict(llvm.get_host_cpu_features())
        # Sorted, so that the string can be part of a cache key.
        self.feature_text: str = llvm.get_host_cpu_features().flatten()
        self.target = llvm.Target.from_default_triple()
        self.machines: dict[int, _Machine] = {}
        self.jit: Any = None
        self.room = 0

    def new_machine(self, opt: int) -> Any:
        return self.target.create_target_machine(
            cpu=self.cpu,
            features=self.feature_text,
            opt=opt,
            jit=True,
            reloc="pic",
            codemodel="small",
        )

    def next_jit(self) -> Any:
        """The JIT for one more library.  It keeps 10 kB of each even after the code is unloaded,
        so after some it is replaced; the old one goes with the last of its libraries."""
        with _lock:
            if self.room == 0:
                # The JIT takes over the machine it is given, so that one is not shared.
                self.jit = llvm.create_lljit_compiler(self.new_machine(2), use_jit_link=True)
                self.room = LIBRARIES
            self.room -= 1
            return self.jit

    def machine(self, opt: int) -> _Machine:
        found = self.machines.get(opt)
        if found is None:
            with _lock:
                found = self.machines.setdefault(opt, _Machine(self, opt))
        return found


class _Machine:
    """A target machine with the pass builder that belongs to it."""

    def __init__(self, host: _Host, opt: int) -> None:
        if opt not in (0, 1, 2, 3):
            raise ValueError(f"optimisation level must be 0, 1, 2 or 3, not {opt!r}")
        self.machine = host.new_machine(opt)
        self.triple: str = self.machine.triple
        self.layout = str(self.machine.target_data)
        self.builder = llvm.create_pass_builder(
            self.machine, llvm.create_pipeline_tuning_options(speed_level=0)
        )


_lock = threading.RLock()
_host: _Host | None = None
_serial = itertools.count()


def _get_host() -> _Host:
    global _host
    if _host is None:
        with _lock:
            if _host is None:
                _host = _Host()
    return _host


def host_cpu() -> str:
    """LLVM's name of this CPU, such as ``znver3``."""
    return _get_host().cpu


def host_features() -> Mapping[str, bool]:
    """LLVM's feature flags of this CPU, such as ``{'fma': True, 'avx512f': False, ...}``."""
    return _get_host().features


class Library:
    """Loaded native code with exported symbols; unloads when closed or collected."""

    __slots__ = ("__weakref__", "_addresses", "_jit", "_tracker", "name")

    def __init__(self, name: str, tracker: Any, jit: Any, addresses: dict[str, int]) -> None:
        self.name = name
        self._jit = jit  # also of the last library, while the interpreter shuts down
        self._tracker = tracker
        self._addresses = addresses

    def address(self, name: str) -> int:
        """The address of an exported symbol."""
        if self._tracker is None:
            raise ValueError(f"library {self.name} is closed")
        return self._addresses[name]

    def close(self) -> None:
        """Unload the code now.  Nothing may be running in it or call it later."""
        tracker, self._tracker = self._tracker, None
        if tracker is not None:
            tracker.close()
        self._jit = None

    def keep_forever(self) -> Library:
        """Make the code immortal: also during interpreter shutdown nothing unloads it."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        return self

    def __repr__(self) -> str:
        return f"<Library {self.name} {', '.join(self._addresses)}>"


def _parsed(text: str, machine: _Machine) -> Any:
    """A verified module, in a context of its own so that freeing it frees its constants too."""
    try:
        module = llvm.parse_assembly(text, context=llvm.create_context())
        module.triple = machine.triple
        module.data_layout = machine.layout
        module.verify()
    except RuntimeError as error:
        raise CompileError(_explained(str(error), text)) from None
    return module


def _explained(message: str, text: str) -> str:
    """LLVM's message, with the line of our text that it points at."""
    found = re.search(r"<string>:(\d+):", message)
    if found is None:
        return f"internal compiler error, invalid LLVM text: {message.strip()}"
    lines = text.splitlines()
    number = int(found.group(1))
    near = range(max(1, number - 3), min(len(lines), number + 1) + 1)
    shown = "\n".join(f"{'>' if i == number else ' '} {i:5} {lines[i - 1]}" for i in near)
    return f"internal compiler error, invalid LLVM text: {message.strip()}\n{shown}"


def _inlined(text: str, machine: _Machine) -> Any:
    module = _parsed(text, machine)
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.run(module, machine.builder)
    return module


def object_code(text: str, opt: int = 2) -> bytes:
    """Compile ``text`` to an object file; nothing is loaded."""
    machine = _get_host().machine(opt)
    try:
        return bytes(machine.machine.emit_object(_inlined(text, machine)))
    except RuntimeError as error:
        if isinstance(error, CompileError):
            raise
        raise CompileError(f"internal compiler error in code generation: {error}") from None


def link(
    code: bytes | Sequence[bytes], symbols: Mapping[str, int], exports: Sequence[str]
) -> Library:
    """Load one or several object files as a library, giving ``symbols`` their addresses.

    Calls that LLVM itself introduces (``memcpy``, ``fmod``, ...) are found in the process.
    """
    jit = _get_host().next_jit()
    builder = llvm.JITLibraryBuilder()
    for image in (code,) if isinstance(code, bytes) else code:
        builder.add_object_img(image)
    builder.add_current_process()
    for name, address in symbols.items():
        builder.import_symbol(name, address)
    for name in exports:
        builder.export_symbol(name)
    name = f"tapec.{next(_serial)}"
    try:
        tracker = builder.link(jit, name)
    except RuntimeError as error:
        raise CompileError(f"internal compiler error in linking: {error}") from None
    return Library(name, tracker, jit, {symbol: tracker[symbol] for symbol in exports})


def compile_module(
    text: str, symbols: Mapping[str, int], *, opt: int = 2, exports: Sequence[str]
) -> Library:
    """Compile and load ``text``; see ``object_code`` and ``link``."""
    return link(object_code(text, opt), symbols, exports)


def optimised_text(text: str) -> str:
    """The text after inlining: what instruction selection gets to see."""
    return str(_inlined(text, _get_host().machine(2)))


def assemble(text: str, opt: int = 2) -> str:
    """The assembly that ``object_code`` would encode."""
    machine = _get_host().machine(opt)
    module = _inlined(text, machine)
    return str(machine.machine.emit_assembly(module))


def cache_key(text: str, opt: int = 2) -> str:
    """A name for ``object_code(text, opt)``, different whenever the code might be."""
    host = _get_host()
    versions = (
        FORMAT, opt, llvmlite.__version__, llvm.llvm_version_info, host.target.triple, host.cpu,
        host.feature_text, object.__basicsize__,
    )  # fmt: skip
    digest = hashlib.sha256(repr(versions).encode())
    digest.update(text.encode())
    return digest.hexdigest()


# A fork while another thread is inside LLVM would leave the child with locks nobody releases.  So
# the forking thread first takes both locks.  llvmlite's is not public API: without it a fork that
# meets a compilation in another thread is unsafe, as with any other llvmlite user.
_llvm_lock: Any = getattr(llvm.ffi.lib, "_lock", None)


def _before_fork() -> None:
    _lock.acquire()
    if _llvm_lock is not None:
        _llvm_lock.__enter__()


def _after_fork() -> None:
    if _llvm_lock is not None:
        _llvm_lock.__exit__(None, None, None)
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )
