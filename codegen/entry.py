"""The text of a native entry: arguments checked, outputs allocated, kernel run, results boxed.

``entry_text`` writes a module with two vectorcall functions around an external kernel: ``@entry``,
which hands what it does not accept to the next variant, and everything while a trace is in
progress; and ``@direct``, which knows neither traces nor other variants.  ``abi`` compiles it and
links it to a kernel and a callable.

Invariants
- No reference count is changed inline and every result of an API call is checked.
- The object layout is only read where ``check_layout`` has verified it.
- The text holds no addresses: objects and captured pointers are in the variant's data block.

>>> from tapec.ir.core import F64, Type
>>> spec = EntrySpec((Arg("float", Type(F64)),), (Result("float", Type(F64)),), 0)
>>> sorted(entry_text(spec).symbols)[:2]
['PyErr_NoMemory', 'PyFloat_FromDouble']
"""

from __future__ import annotations

import ctypes
import math
from typing import Literal, NamedTuple

from tapec.codegen import results
from tapec.codegen.layout import DESCR, DIMS, FLAGS, ITEMS, ND, PAYLOAD, TYPE, WORD
from tapec.ir.core import Type

__all__ = [
    "Arg", "EntrySpec", "EntryText", "FIRST_WORD", "KEPT_BYTES", "NEXT_WORD",
    "READ_WORDS", "ReadKind", "Result", "STACK_BYTES", "Structure", "WORKSPACE_WORD",
    "entry_text",
]  # fmt: skip

# Leaves are result indices or None.
Structure = int | None | tuple["Structure", ...] | list["Structure"]


class Arg(NamedTuple):
    """One positional argument: what the entry accepts.

    ``float``: exactly a Python float; ``array``: exactly an ``ndarray`` of this dtype and shape,
    C-contiguous, aligned, native byte order; ``static``: the object ``value`` itself, which is no
    kernel parameter.
    """

    kind: Literal["float", "array", "static"]
    type: Type | None = None
    value: object = None


class Result(NamedTuple):
    """One kernel result: ``float``, ``int`` and ``bool`` become Python objects, ``scalar`` a NumPy
    scalar, ``array`` a new ``ndarray``."""

    kind: Literal["float", "int", "bool", "scalar", "array"]
    type: Type


#: ``cell``: the object in a cell; ``dict``: in a dict under a key; ``size``: the number of a dict's
#: items; ``bytes``: the memory of an array.
ReadKind = Literal["cell", "dict", "size", "bytes"]


class EntrySpec(NamedTuple):
    """What the entry accepts, what the kernel needs, and what a call returns."""

    args: tuple[Arg, ...]
    results: tuple[Result, ...]
    structure: Structure
    captures: int = 0
    workspace_bytes: int = 0
    release_gil: bool = False
    #: what the user's code read elsewhere: see ``abi.Read``
    reads: tuple[ReadKind, ...] = ()


class EntryText(NamedTuple):
    """LLVM text of the entry, the symbols it needs besides ``kernel``, the size of the variant's
    data block, and where that holds what is kept (see ``results.release``)."""

    text: str
    symbols: frozenset[str]
    data_words: int
    kept: dict[int, int | None]


# Words of a variant's data block: the next entry, a free workspace, then the static objects, then
# the captured pointers, then the reads, then the slots of kept results.
NEXT_WORD, WORKSPACE_WORD, FIRST_WORD = 0, 1, 2
# After those, per read: the cell, the dict and the key, or the address and the size; then what is
# expected: an object, a number, or the address of a copy.
READ_WORDS = {"cell": 2, "dict": 3, "size": 2, "bytes": 3}
# A workspace on the C stack costs nothing; a larger one is kept by the variant between calls,
# unless it is so large that idle memory would matter more than an allocation.
STACK_BYTES, KEPT_BYTES = 16 << 10, 64 << 20
_ALIGN = 64
_C_CONTIGUOUS, _ALIGNED = 0x1, 0x100

_DECLARATIONS = {
    "PyArray_Scalar": "declare ptr @PyArray_Scalar(ptr, ptr, ptr)",
    "PyBool_FromLong": f"declare ptr @PyBool_FromLong(i{8 * ctypes.sizeof(ctypes.c_long)})",
    "PyDict_GetItem": "declare ptr @PyDict_GetItem(ptr, ptr)",
    "PyDict_Size": "declare i64 @PyDict_Size(ptr)",
    "PyErr_NoMemory": "declare ptr @PyErr_NoMemory()",
    "PyEval_RestoreThread": "declare void @PyEval_RestoreThread(ptr)",
    "PyEval_SaveThread": "declare ptr @PyEval_SaveThread()",
    "PyFloat_FromDouble": "declare ptr @PyFloat_FromDouble(double)",
    "PyList_New": "declare ptr @PyList_New(i64)",
    "PyList_SetItem": "declare i32 @PyList_SetItem(ptr, i64, ptr)",
    "PyLong_FromLongLong": "declare ptr @PyLong_FromLongLong(i64)",
    "PyMem_RawFree": "declare void @PyMem_RawFree(ptr)",
    "PyMem_RawMalloc": "declare ptr @PyMem_RawMalloc(i64)",
    "PyTuple_New": "declare ptr @PyTuple_New(i64)",
    "Py_DecRef": "declare void @Py_DecRef(ptr)",
    "Py_IncRef": "declare void @Py_IncRef(ptr)",
    "memcmp": "declare i32 @memcmp(ptr, ptr, i64)",
    **results.SYMBOLS,
}


# Without branches, because at level 0 a branch sends all arguments through the stack.
_PASSED = "(ptr %self, ptr %args, i64 %nargsf, ptr {})"
_FUNCTIONS = f"""@tapec.data = external global i8
@tapec.trace_depth = external global i32
declare ptr @tapec.slow(ptr, ptr, i64, ptr)
declare i32 @kernel(ptr, ptr, ptr)

define ptr @entry{_PASSED.format("%kwnames")} nounwind {{
  %next = load ptr, ptr @tapec.data
  %depth = load i32, ptr @tapec.trace_depth
  %tracing = icmp ne i32 %depth, 0
  %keywords = icmp ne ptr %kwnames, null
  %odd = or i1 %tracing, %keywords
  %function = select i1 %odd, ptr %next, ptr @{{checked}}
  %last = select i1 %odd, ptr %kwnames, ptr %next
  %result = musttail call ptr %function{_PASSED.format("%last")}
  ret ptr %result
}}

define ptr @direct{_PASSED.format("%kwnames")} nounwind {{
  %keywords = icmp ne ptr %kwnames, null
  %function = select i1 %keywords, ptr @tapec.slow, ptr @body
  %last = select i1 %keywords, ptr %kwnames, ptr @tapec.slow
  %result = musttail call ptr %function{_PASSED.format("%last")}
  ret ptr %result
}}
"""


def entry_text(spec: EntrySpec) -> EntryText:
    """A module with the vectorcall functions ``@entry`` and ``@direct`` around ``@kernel``.

    Both have looked at the keywords; ``@body``, which they share, gets the function to call on a
    miss in that place.
    """
    return _EntryWriter(spec).write()


class _EntryWriter:
    """Writes the shared body in order: checks, outputs, workspace, kernel, boxes, structure.

    Basic blocks cost most of the compile time, so conditions are collected and tested together
    wherever evaluating all of them is safe.
    """

    def __init__(self, spec: EntrySpec) -> None:
        self.spec = spec
        self.lines: list[str] = []
        self.globals: list[str] = []
        self.symbols: set[str] = {"tapec.data", "tapec.slow", "tapec.trace_depth"}
        self.serial = 0
        self.differences: list[str] = []
        # References to give up on failure, and how many are known not to be NULL.
        self.owned: list[str] = []
        self.valid = 0
        self.undo: set[int] = set()
        statics = sum(a.kind == "static" for a in spec.args)
        self.first_capture = FIRST_WORD + statics
        self.first_read = self.first_capture + spec.captures
        self.words = self.first_read + sum(READ_WORDS[k] for k in spec.reads)
        self.kept: dict[int, int | None] = {}

    def let(self, expression: str) -> str:
        self.serial += 1
        self.lines.append(f"  %t{self.serial} = {expression}")
        return f"%t{self.serial}"

    def do(self, line: str) -> None:
        self.lines.append("  " + line)

    def label(self, hint: str) -> str:
        self.serial += 1
        return f"{hint}{self.serial}"

    def at(self, label: str) -> None:
        self.lines.append(f"{label}:")

    def field(self, type_: str, base: str, offset: int) -> str:
        return self.let(f"load {type_}, ptr {self.address(base, offset)}")

    def address(self, base: str, offset: int) -> str:
        return self.let(f"getelementptr i8, ptr {base}, i64 {offset}") if offset else base

    def data_word(self, word: int) -> str:
        return self.address("@tapec.data", word * WORD)

    def data(self, name: str, type_: str = "i8") -> str:
        """An external object."""
        if name not in self.symbols:
            self.symbols.add(name)
            self.globals.append(f"@{name} = external global {type_}")
        return f"@{name}"

    def api(self, result: str, name: str, arguments: str) -> str:
        """A call of a declared API function: an expression for ``let`` or ``do``."""
        if name not in self.symbols:
            self.symbols.add(name)
            self.globals.append(_DECLARATIONS[name])
        return f"call {result} @{name}({arguments})"

    def require(self, type_: str, found: str, want: object) -> None:
        """The call is a miss unless these are equal; tested at the next ``check``.

        The differences are or-ed: at level 0 that is half the code of comparing.
        """
        if type_ == "ptr":
            found = self.let(f"ptrtoint ptr {found} to i64")
            want = self.let(f"ptrtoint ptr {want} to i64")
        difference = self.let(f"xor {'i32' if type_ == 'i32' else 'i64'} {found}, {want}")
        if type_ == "i32":
            difference = self.let(f"zext i32 {difference} to i64")
        self.differences.append(difference)

    def check(self) -> None:
        """Miss unless all requirements hold; nothing is owned yet."""
        if self.differences:
            whole = self.combined("or i64", self.differences)
            self.branch(self.let(f"icmp eq i64 {whole}, 0"), self.label("ok"), "miss")
            self.differences.clear()

    def combined(self, operator: str, values: list[str]) -> str:
        whole = values[0]
        for value in values[1:]:
            whole = self.let(f"{operator} {whole}, {value}")
        return whole

    def branch(self, condition: str, then: str, otherwise: str) -> None:
        """Go on in a new block ``then`` if the condition holds."""
        self.do(f"br i1 {condition}, label %{then}, label %{otherwise}")
        self.at(then)

    def new(self, expression: str) -> str:
        """An owned reference, or NULL until the next ``check_new``."""
        result = self.let(expression)
        self.owned.append(result)
        return result

    def check_new(self) -> None:
        """Return NULL, an exception is set, if anything new is NULL."""
        if self.valid < len(self.owned):
            good = [self.let(f"icmp ne ptr {new}, null") for new in self.owned[self.valid :]]
            self.branch(self.combined("and i1", good), self.label("made"), self.failure())
            self.valid = len(self.owned)

    def failure(self) -> str:
        """Label of the block that gives up all references owned now and returns NULL."""
        self.undo.add(len(self.owned))
        return f"undo{len(self.owned)}"

    def drop(self, count: int) -> None:
        """Give up the first ``count`` owned references; Py_DecRef accepts NULL."""
        for owned in self.owned[:count]:
            self.do(self.api("void", "Py_DecRef", f"ptr {owned}"))

    def write(self) -> EntryText:
        spec = self.spec
        inputs = sum(a.kind != "static" for a in spec.args) + spec.captures
        self.do(f"%in = alloca [{max(inputs, 1)} x ptr]")
        self.do(f"%out = alloca [{max(len(spec.results), 1)} x ptr]")
        self.check_arguments()
        for i in range(spec.captures):
            pointer = self.let(f"load ptr, ptr {self.data_word(self.first_capture + i)}")
            slot = self.address("%in", (inputs - spec.captures + i) * WORD)
            self.do(f"store ptr {pointer}, ptr {slot}")
        boxes = self.allocate_outputs()
        self.run_kernel()
        if self.all_floats():
            slot = self.data_word(self.keep(1, None))
            arguments = f"ptr {slot}, i64 {len(boxes)}, ptr {boxes[0]}"
            whole = self.let(self.api("ptr", "tapec.floats", arguments))
        else:
            objects = [
                self.box(result, slot) if result.kind != "array" else slot
                for result, slot in zip(spec.results, boxes)
            ]
            whole = self.assemble(objects)
        self.do(f"ret ptr {whole}")
        for count in sorted(self.undo):
            self.at(f"undo{count}")
            self.drop(count)
            self.do("ret ptr null")
        self.at("miss")
        self.do(f"%missed = musttail call ptr %next{_PASSED.format('null')}")
        self.do("ret ptr %missed")
        body, self.lines = self.lines, []
        current = self.current(self.first_read)
        text = "\n".join(
            [
                _FUNCTIONS.replace("{checked}", "current" if spec.reads else "body"),
                *self.globals,
                *current,
                f"define internal ptr @body{_PASSED.format('%next')} noinline nounwind {{",
                *body,
                "}\n",
            ]
        )
        return EntryText(text, frozenset(self.symbols), self.words, self.kept)

    def all_floats(self) -> bool:
        """Whether the whole is a tuple of all results in order, which are double floats."""
        found, structure = self.spec.results, self.spec.structure
        return (
            isinstance(structure, tuple)
            and len(found) > 0
            and structure == tuple(range(len(found)))
            and all(r.kind == "float" and r.type.dtype.bits == 64 for r in found)
        )

    def keep(self, words: int, size: int | None) -> int:
        """Reserve slots for a kept result: the first of so many words."""
        self.kept[self.words] = size
        self.words += words
        return self.words - words

    def current(self, word: int) -> list[str]:
        """The function ``@current``: ``@body`` if every read gives the object it gave, else a
        miss.  ``@direct`` does without; its caller has compared the values."""
        if not self.spec.reads:
            return []
        for kind in self.spec.reads:
            types = ("ptr", "i64", "ptr") if kind == "bytes" else ("ptr", "ptr", "ptr")
            *where, want = [
                self.let(f"load {types[k]}, ptr {self.data_word(word + k)}")
                for k in range(READ_WORDS[kind])
            ]
            if kind == "cell":
                self.require("ptr", self.field("ptr", where[0], PAYLOAD), want)
            elif kind == "dict":
                arguments = f"ptr {where[0]}, ptr {where[1]}"
                self.require("ptr", self.let(self.api("ptr", "PyDict_GetItem", arguments)), want)
            elif kind == "size":
                number = self.let(f"ptrtoint ptr {want} to i64")
                found = self.let(self.api("i64", "PyDict_Size", f"ptr {where[0]}"))
                self.require("i64", found, number)
            else:
                arguments = f"ptr {where[0]}, ptr {want}, i64 {where[1]}"
                self.require("i32", self.let(self.api("i32", "memcmp", arguments)), 0)
            word += READ_WORDS[kind]
        changed = self.let(f"icmp ne i64 {self.combined('or i64', self.differences)}, 0")
        function = self.let(f"select i1 {changed}, ptr %next, ptr @body")
        last = self.let(f"select i1 {changed}, ptr null, ptr %next")
        self.do(f"%result = musttail call ptr {function}{_PASSED.format(last)}")
        self.do("ret ptr %result")
        self.differences.clear()
        lines, self.lines = self.lines, []
        head = f"define internal ptr @current{_PASSED.format('%next')} noinline nounwind {{"
        return [head, *lines, "}\n"]

    def check_arguments(self) -> None:
        args = self.spec.args
        # The top bit only says that the caller lends args[-1].
        count = self.let("shl i64 %nargsf, 1")
        self.require("i64", count, 2 * len(args))
        self.check()
        statics = 0
        inputs: list[tuple[str, Arg]] = []
        for i, arg in enumerate(args):
            obj = self.field("ptr", "%args", i * WORD)
            if arg.kind == "static":
                want = self.let(f"load ptr, ptr {self.data_word(FIRST_WORD + statics)}")
                self.require("ptr", obj, want)
                statics += 1
            else:
                class_ = self.data("PyFloat_Type" if arg.kind == "float" else "PyArray_Type")
                self.require("ptr", self.field("ptr", obj, TYPE), class_)
                inputs.append((obj, arg))
        self.check()
        arrays = [(obj, arg.type) for obj, arg in inputs if arg.kind == "array" and arg.type]
        for obj, type_ in arrays:
            self.require_layout(obj, type_)
        self.check()
        for obj, type_ in arrays:
            if type_.ndim:
                dims = self.field("ptr", obj, DIMS)
                for axis, n in enumerate(type_.shape):
                    self.require("i64", self.field("i64", dims, axis * WORD), n)
        self.check()
        for i, (obj, arg) in enumerate(inputs):
            is_float = arg.kind == "float"
            data = self.address(obj, PAYLOAD) if is_float else self.field("ptr", obj, PAYLOAD)
            self.do(f"store ptr {data}, ptr {self.address('%in', i * WORD)}")

    def require_layout(self, obj: str, type_: Type) -> None:
        dtype = self.data(f"tapec.dtype.{type_.dtype.np.name}")
        self.require("ptr", self.field("ptr", obj, DESCR), dtype)
        self.require("i32", self.field("i32", obj, ND), type_.ndim)
        needed = _C_CONTIGUOUS | _ALIGNED
        flags = self.let(f"and i32 {self.field('i32', obj, FLAGS)}, {needed}")
        self.require("i32", flags, needed)

    def allocate_outputs(self) -> list[str]:
        """Arrays, and stack slots for scalars; their addresses go to %out."""
        places = []
        together = self.all_floats()
        if together:
            # Allocas belong in the entry block, or they would be dynamic.
            self.lines.insert(0, f"  %floats = alloca [{len(self.spec.results)} x double]")
        for i, (kind, type_) in enumerate(self.spec.results):
            if kind == "array":
                place = self.new(self.array(i, type_))
            else:
                if type_.ndim:
                    raise ValueError(f"result {i} of kind {kind!r} has shape {type_.shape}")
                if together:
                    place = self.address("%floats", i * WORD)
                else:
                    place = f"%slot{i}"
                    self.lines.insert(0, f"  {place} = alloca [2 x i64], align 16")
            places.append(place)
        self.check_new()
        for i, place in enumerate(places):
            is_array = self.spec.results[i].kind == "array"
            pointer = self.field("ptr", place, PAYLOAD) if is_array else place
            self.do(f"store ptr {pointer}, ptr {self.address('%out', i * WORD)}")
        return places

    def array(self, i: int, type_: Type) -> str:
        """The call that gives an array for result ``i``."""
        bytes_ = type_.dtype.np.itemsize * math.prod(type_.shape)
        words = ", ".join(f"i64 {n}" for n in (type_.ndim, bytes_, *type_.shape))
        form = f"@tapec.form{i}"
        self.globals.append(f"{form} = private constant [{2 + type_.ndim} x i64] [{words}]")
        slots = self.data_word(self.keep(results.ARRAY_WORDS, bytes_))
        descr = self.data(f"tapec.dtype.{type_.dtype.np.name}")
        return self.api("ptr", "tapec.array", f"ptr {slots}, ptr {form}, ptr {descr}")

    def run_kernel(self) -> None:
        size = self.spec.workspace_bytes
        block = None
        workspace = "null"
        if 0 < size <= STACK_BYTES:
            self.lines.insert(0, f"  %workspace = alloca [{size} x i8], align {_ALIGN}")
            workspace = "%workspace"
        elif size:
            block = self.take_workspace(size)
            raw = self.let(f"ptrtoint ptr {block} to i64")
            rounded = self.let(f"and i64 {self.let(f'add i64 {raw}, {_ALIGN - 1}')}, {-_ALIGN}")
            workspace = self.let(f"inttoptr i64 {rounded} to ptr")
        if self.spec.release_gil:
            state = self.let(self.api("ptr", "PyEval_SaveThread", ""))
        code = self.let(f"call i32 @kernel(ptr %in, ptr %out, ptr {workspace})")
        if self.spec.release_gil:
            self.do(self.api("void", "PyEval_RestoreThread", f"ptr {state}"))
        if block is not None:
            self.return_workspace(block, size)
        failed = self.let(f"icmp ne i32 {code}, 0")
        ran = self.label("ran")
        self.branch(failed, self.label("guard"), ran)
        memory, miss = self.label("memory"), self.label("dropped")
        self.branch(self.let(f"icmp eq i32 {code}, -1"), memory, miss)
        self.let(self.api("ptr", "PyErr_NoMemory", ""))
        self.do(f"br label %{self.failure()}")
        self.at(miss)
        self.drop(len(self.owned))
        self.do("br label %miss")
        self.at(ran)

    def take_workspace(self, size: int) -> str:
        """The block the variant keeps, unless another call has it; otherwise a new one."""
        have, make, fail = self.label("have"), self.label("make"), self.label("fail")
        before = self.label("kept")
        self.do(f"br label %{before}")
        self.at(before)
        kept = "null"
        if size <= KEPT_BYTES:
            kept = self.let(
                f"atomicrmw xchg ptr {self.data_word(WORKSPACE_WORD)}, ptr null acq_rel"
            )
        none = self.let(f"icmp eq ptr {kept}, null")
        self.do(f"br i1 {none}, label %{make}, label %{have}")
        self.at(make)
        fresh = self.let(self.api("ptr", "PyMem_RawMalloc", f"i64 {size + _ALIGN}"))
        null = self.let(f"icmp eq ptr {fresh}, null")
        self.do(f"br i1 {null}, label %{fail}, label %{have}")
        self.at(fail)
        self.let(self.api("ptr", "PyErr_NoMemory", ""))
        self.do(f"br label %{self.failure()}")
        self.at(have)
        return self.let(f"phi ptr [ {kept}, %{before} ], [ {fresh}, %{make} ]")

    def return_workspace(self, block: str, size: int) -> None:
        if size <= KEPT_BYTES:
            block = self.let(
                f"atomicrmw xchg ptr {self.data_word(WORKSPACE_WORD)}, ptr {block} acq_rel"
            )
        self.do(self.api("void", "PyMem_RawFree", f"ptr {block}"))

    def box(self, result: Result, slot: str) -> str:
        kind, type_ = result
        dtype = type_.dtype
        if kind == "scalar":
            descr = self.data(f"tapec.dtype.{dtype.np.name}")
            return self.new(self.api("ptr", "PyArray_Scalar", f"ptr {slot}, ptr {descr}, ptr null"))
        if kind == "float" and dtype.kind == "f":
            value = self.let(f"load {'double' if dtype.bits == 64 else 'float'}, ptr {slot}")
            if dtype.bits == 32:
                value = self.let(f"fpext float {value} to double")
            return self.new(self.api("ptr", "PyFloat_FromDouble", f"double {value}"))
        if kind == "int" and dtype.kind == "i":
            value = self.let(f"load i{dtype.bits}, ptr {slot}")
            if dtype.bits < 64:
                value = self.let(f"sext i{dtype.bits} {value} to i64")
            return self.new(self.api("ptr", "PyLong_FromLongLong", f"i64 {value}"))
        if kind == "bool" and dtype.kind == "b":
            long = f"i{8 * ctypes.sizeof(ctypes.c_long)}"
            value = self.let(f"zext i8 {self.let(f'load i8, ptr {slot}')} to {long}")
            return self.new(self.api("ptr", "PyBool_FromLong", f"{long} {value}"))
        raise ValueError(f"a result of type {type_} cannot be returned as {kind!r}")

    def assemble(self, objects: list[str]) -> str:
        """The object to return.  Everything that can fail comes before anything is handed over."""
        uses = [0] * len(objects)
        containers: list[tuple[str, str, list[str]]] = []

        def build(node: Structure) -> str:
            if node is None:
                return self.data("_Py_NoneStruct")
            if isinstance(node, int):
                uses[node] += 1
                return objects[node]
            class_ = "PyList" if isinstance(node, list) else "PyTuple"
            made = self.new(self.api("ptr", f"{class_}_New", f"i64 {len(node)}"))
            items: list[str] = []
            containers.append((class_, made, items))
            items.extend(build(child) for child in node)
            return made

        whole = build(self.spec.structure)
        self.check_new()
        none = "@_Py_NoneStruct"
        for class_, made, items in containers:
            for i, item in enumerate(items):
                if item == none:
                    self.do(self.api("void", "Py_IncRef", f"ptr {none}"))
                if class_ == "PyTuple":
                    # What PyTuple_SET_ITEM does: nobody else has seen this tuple yet.
                    self.do(f"store ptr {item}, ptr {self.address(made, ITEMS + i * WORD)}")
                else:
                    item = self.api("i32", "PyList_SetItem", f"ptr {made}, i64 {i}, ptr {item}")
                    self.let(item)
        if whole == none:
            self.do(self.api("void", "Py_IncRef", f"ptr {none}"))
        # A use takes one reference over; we own one of each result.
        for obj, count in zip(objects, uses):
            for _ in range(count - 1):
                self.do(self.api("void", "Py_IncRef", f"ptr {obj}"))
            if count == 0:
                self.do(self.api("void", "Py_DecRef", f"ptr {obj}"))
        return whole
