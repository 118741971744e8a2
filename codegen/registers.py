"""Values in registers: what names they have, where, and how one gets at them from elsewhere.

A register value is a list of SSA names, one per element, or packed in one SSA vector (see
``packing``).  A kernel is cut into several LLVM functions; a value that another one defined comes
through a frame in the workspace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tapec.codegen.packing import lanes_for
from tapec.codegen.scalars import Emitter, constant, llvm_type
from tapec.codegen.straight import load_element
from tapec.codegen.vectors import load_vector, memory_type, splat, store_vector
from tapec.ir.core import BOOL, Value

if TYPE_CHECKING:
    from tapec.codegen.kernel import KernelEmitter
    from tapec.codegen.memory import Layout
    from tapec.codegen.program import Program

__all__ = ["Chunk", "Registers"]


class Chunk:
    """One LLVM function: its prologue (pointers, allocas), lines, and values for the frame."""

    __slots__ = ("em", "frame_stores", "prologue")

    def __init__(self, em: Emitter) -> None:
        self.em = em
        self.prologue: list[str] = []
        self.frame_stores: list[str] = []


class Registers:
    """The part of a ``KernelEmitter`` that knows where values are."""

    program: Program
    layout: Layout
    name: str
    em: Emitter
    chunks: list[Chunk]

    def __init__(self) -> None:
        #: names in the current function, and in the function that defined them
        self.regs: dict[Value, list[str]] = {}
        self.names: dict[Value, list[str]] = {}
        self.home: dict[Value, int] = {}
        #: packed values, and those that were packed where they were needed
        self.vectors: dict[Value, str] = {}
        self._packed: dict[Value, str] = {}
        #: constants, which are the same in all functions
        self._everywhere: dict[Value, list[str]] = {}
        #: elements that were loaded or extracted in the current function
        self._loaded: dict[Value, dict[int, str]] = {}
        self._pointers: dict[str, str] = {}
        self._frame: dict[Value, int] = {}
        self.frame_bytes = 0

    @property
    def _kernel(self) -> KernelEmitter:
        return cast("KernelEmitter", self)

    def forget_function(self) -> None:
        """A new LLVM function begins."""
        self._pointers = {}
        self._loaded = {}
        self.regs = {}
        self._packed = {}

    def set_regs(self, v: Value, names: list[str]) -> None:
        """Define a register value in the current function."""
        self.regs[v] = self.names[v] = names
        if names and names[0][0] == "%":
            self.home[v] = len(self.chunks) - 1
        elif any(n[0] == "%" for n in names):
            self.home[v] = len(self.chunks) - 1
        else:
            self._everywhere[v] = names
        if v in self.program.spilled:
            dtype, em = v.type.dtype, self.em
            pointer, mt = self.pointer(v), memory_type(v.type.dtype)
            for i, name in enumerate(names):
                q = em.let(f"getelementptr {mt}, ptr {pointer}, i64 {i}") if i else pointer
                x = em.let(f"zext i1 {name} to i8") if dtype is BOOL else name
                em.line(f"store {mt} {x}, ptr {q}")

    def set_vector(self, v: Value, name: str) -> None:
        """Define a packed value in the current function."""
        self.vectors[v] = name
        self.home[v] = len(self.chunks) - 1
        if v in self.program.spilled:
            t, w = v.type, lanes_for(v)
            store_vector(self._kernel, t.dtype, name, self.pointer(v), "0", 1, w, t.size)

    def is_packed(self, v: Value) -> bool:
        """Whether a value is packed, or can be loaded so."""
        if v in self.vectors:
            return True
        ready = self.program.kind.get(v) == "mem" or v in self._everywhere
        return ready and lanes_for(v) > 0

    def vector(self, v: Value) -> str:
        """A value packed in the current function."""
        here = self.home.get(v) == len(self.chunks) - 1
        if v in self.vectors and here:
            return self.vectors[v]
        found = self._packed.get(v)
        if found is None:
            found = self._packed[v] = self._pack(v)
        return found

    def _pack(self, v: Value) -> str:
        t, w = v.type, lanes_for(v)
        in_frame = v in self.vectors and t.dtype.itemsize == 8
        if self.program.kind.get(v) == "mem" or in_frame:
            pointer = self._frame_of(v) if in_frame else self.pointer(v)
            return load_vector(self._kernel, t.dtype, pointer, "0", 1, w, t.size)
        names = [self.element(v, i) for i in range(t.size)]
        if len(set(names)) == 1:
            if names[0][0] != "%":
                return f"splat ({llvm_type(t.dtype)} {names[0]})"
            return splat(self._kernel, t.dtype, names[0], w)
        if v in self._everywhere:
            names += [constant(0, t.dtype)] * (w - t.size)
            return f"<{', '.join(f'{llvm_type(t.dtype)} {x}' for x in names)}>"
        vt, x = llvm_type(t.dtype, w), "zeroinitializer"
        for i, name in enumerate(names):
            x = self.em.let(f"insertelement {vt} {x}, {llvm_type(t.dtype)} {name}, i64 {i}")
        return x

    def element(self, v: Value, i: int) -> str:
        """Element ``i`` (C order) of a register or stored value, as a scalar."""
        names = self.regs.get(v)
        if names is not None:
            return names[i]
        names = self._everywhere.get(v)
        if names is not None:
            return names[i]
        loaded = self._loaded.setdefault(v, {})
        name = loaded.get(i)
        if name is None:
            if v in self.vectors and self.home[v] == len(self.chunks) - 1:
                vt = llvm_type(v.type.dtype, lanes_for(v))
                name = self.em.let(f"extractelement {vt} {self.vectors[v]}, i64 {i}")
            elif self.program.kind[v] == "reg":
                name = self._from_frame(v, i)
            else:
                name = load_element(self._kernel, v.type.dtype, self.pointer(v), str(i))
            loaded[i] = name
        return name

    def _from_frame(self, v: Value, i: int) -> str:
        """Element of a value that an earlier function defined."""
        mt = memory_type(v.type.dtype)
        q = self._frame_of(v, 8 * i)
        x = self.em.let(f"load {mt}, ptr {q}")
        return self.em.let(f"icmp ne i8 {x}, 0") if v.type.dtype is BOOL else x

    def _frame_of(self, v: Value, within: int = 0) -> str:
        """The address of a value that an earlier function defined; its elements are 8 bytes
        apart.  That function stores it at its end."""
        chunk, dtype = self.chunks[self.home[v]], v.type.dtype
        mt = memory_type(dtype)
        offset = self._frame.get(v)
        if offset is None:
            offset = self._frame[v] = self.frame_bytes
            self.frame_bytes += 8 * v.type.size
            for j in range(v.type.size):
                q = f"%frame.{offset + 8 * j}"
                at = self.layout.workspace + offset + 8 * j
                chunk.frame_stores.append(f"  {q} = getelementptr i8, ptr %ws, i64 {at}")
                if v in self.vectors:
                    name = f"{q}.e"
                    vt = llvm_type(dtype, lanes_for(v))
                    source = f"extractelement {vt} {self.vectors[v]}, i64 {j}"
                    chunk.frame_stores.append(f"  {name} = {source}")
                else:
                    name = self.names[v][j]
                if dtype is BOOL:
                    chunk.frame_stores.append(f"  {q}.b = zext i1 {name} to i8")
                    name = f"{q}.b"
                chunk.frame_stores.append(f"  store {mt} {name}, ptr {q}")
        at = self.layout.workspace + offset + within
        return self.em.let(f"getelementptr i8, ptr %ws, i64 {at}")

    def pointer(self, v: Value) -> str:
        """The address of a stored value's first element."""
        place, k = self.layout.place[self.program.root(v)]
        key = f"{place}.{k}"
        offset = self.program.bytes_before(v)
        if offset:
            return self._offset_pointer(v, offset, key)
        found = self._pointers.get(key)
        if found is None:
            prologue = self.chunks[-1].prologue
            found = f"%{key}"
            if place == "ws":
                prologue.append(f"  {found} = getelementptr i8, ptr %ws, i64 {k}")
            elif place == "const":
                found = f"@{self.name}.const.{k}"
            else:
                prologue.append(f"  {found}.at = getelementptr ptr, ptr %{place}, i64 {k}")
                prologue.append(f"  {found} = load ptr, ptr {found}.at")
            self._pointers[key] = found
        return found

    def _offset_pointer(self, v: Value, offset: int, key: str) -> str:
        key = f"{key}.{offset}"
        found = self._pointers.get(key)
        if found is None:
            base = self.pointer(self.program.root(v))
            found = self._pointers[key] = f"%{key}" if base[0] == "%" else f"%const.{key}"
            self.chunks[-1].prologue.append(
                f"  {found} = getelementptr i8, ptr {base}, i64 {offset}"
            )
        return found
