"""IR → text.  The grammar is at the top of ``parser.py``; ``parse`` reads exactly what is
printed here, and printing that again gives the same text.

One operation a line: results, name, operands, attributes, regions, result types, and the
user's source line as a comment.  A value is named by its hint (``%p``; ``%p_1`` if the name
is taken), the others are numbered.

>>> from tapec.ir import F64, Builder, Type
>>> b = Builder()
>>> x = b.param(Type(F64, (3,)), "x")
>>> print(format_function(b.function("double", [b.reduce_sum(x, [0])])))
func @double(%x: f64[3]) -> (f64[]) {
  %0 = reduce_sum %x {axes=(0)} : f64[]
  return %0
}
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tapec.ir.core import Block, Dense, Function, Loc, Op, Type, Value

__all__ = ["Line", "format_attr", "format_function", "format_lines"]

#: Comments start in one column, that of the longest line but not beyond this one.
_COMMENT_COLUMN = 72
#: Array constants of more elements are printed as their bytes.
_DENSE_ELEMENTS = 256

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_NOT_NAME = re.compile(r"[^A-Za-z0-9_.]+")
#: Ops whose attribute ``type`` is the result type, and therefore not printed.
_TYPE_IS_RESULT = frozenset(("constant", "iota"))


class Line(NamedTuple):
    """A line of text and the operation that it shows (None: braces and ``return``)."""

    text: str
    op: Op | None
    loc: Loc | None


def format_function(fn: Function, color: bool = False) -> str:
    """The text of a function; with ANSI colours if ``color``."""
    lines = format_lines(fn)
    width = min(max([len(line.text) for line in lines]), _COMMENT_COLUMN)
    out = [
        line.text if line.loc is None else f"{line.text:<{width}}    # {line.loc}" for line in lines
    ]
    return "\n".join(map(highlight, out) if color else out)


def format_lines(fn: Function) -> list[Line]:
    """The lines of a function's text, without comments.

    Works for malformed functions as well: a value that is used but not defined before
    prints as ``%<undefined>``, which does not parse.
    """
    return _Printer().function(fn)


# -- attribute values -----------------------------------------------------------------


def format_attr(value: Any) -> str:
    """An attribute value; see the grammar in ``parser.py``."""
    kind = type(value)
    if kind is int:
        return str(value)
    if kind is float:
        return _format_float(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is tuple:
        return f"({','.join([format_attr(v) for v in value])})"
    if kind is str:
        return json.dumps(value)
    if value is None:
        return "none"
    return _format_rare(value)


def _format_rare(value: Any) -> str:
    if isinstance(value, Dense):
        return _format_dense(value.array)
    if isinstance(value, Type):
        return repr(value)
    if isinstance(value, np.generic):
        return format_attr(value.item())
    if isinstance(value, complex):
        return f"complex({_format_float(value.real)},{_format_float(value.imag)})"
    raise TypeError(f"attribute value {value!r} has no textual form")


def _format_float(value: float) -> str:
    if value == value:
        return float.__repr__(value)
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    if bits == 0x7FF8000000000000:
        return "nan"
    if bits == 0xFFF8000000000000:
        return "-nan"
    return f"nan(0x{bits:016x})"


def _format_dense(array: np.ndarray[Any, Any]) -> str:
    """The elements in C order; in hexadecimal if they are many, or if a NaN among them has
    other bits than ``nan`` reads back as."""
    flat = array.reshape(-1)
    if array.size > _DENSE_ELEMENTS or not _plain_nans(flat):
        little = flat.astype(flat.dtype.newbyteorder("<"), copy=False)
        return f'dense("{little.tobytes().hex()}")'
    return f"dense({','.join([format_attr(v) for v in flat.tolist()])})"


def _plain_nans(flat: np.ndarray[Any, Any]) -> bool:
    if flat.dtype.kind not in "fc":
        return True
    parts = flat.view(flat.real.dtype)
    nans = parts[np.isnan(parts)]
    return bool(nans.tobytes() == np.full(nans.shape, np.nan, parts.dtype).tobytes())


# -- functions ------------------------------------------------------------------------


class _Names(dict[Value, str]):
    """Value → printed name."""

    def __missing__(self, value: Value) -> str:
        return "%<undefined>"


class _Printer:
    def __init__(self) -> None:
        self.names = _Names()
        self.used: set[str] = set()
        self.copies: dict[str, int] = {}
        self.number = 0
        self.types: dict[Type, str] = {}
        self.lines: list[Line] = []

    def define(self, value: Value) -> str:
        """A new name for ``value``, that no other value of the function has."""
        hint = value.hint
        if hint and not _NAME.fullmatch(hint):
            hint = _NOT_NAME.sub("_", hint).strip("_")
            if hint and not _NAME.fullmatch(hint):
                hint = "_" + hint if hint.strip("0123456789") else None
        if not hint:
            name = f"%{self.number}"
            self.number += 1
        else:
            name = "%" + hint
            while name in self.used:
                self.copies[hint] = k = self.copies.get(hint, 0) + 1
                name = f"%{hint}_{k}"
            self.used.add(name)
        self.names[value] = name
        return name

    def type(self, type: Type) -> str:
        text = self.types.get(type)
        if text is None:
            text = self.types[type] = repr(type)
        return text

    def params(self, params: Sequence[Value]) -> str:
        return ", ".join([f"{self.define(p)}: {self.type(p.type)}" for p in params])

    def function(self, fn: Function) -> list[Line]:
        name = fn.name if _NAME.fullmatch(fn.name) else json.dumps(fn.name)
        results = ", ".join([self.type(r.type) for r in fn.results])
        self.lines.append(
            Line(f"func @{name}({self.params(fn.params)}) -> ({results}) {{", None, None)
        )
        self.block(fn.block, "  ")
        self.lines.append(Line("}", None, None))
        return self.lines

    def block(self, block: Block, indent: str) -> None:
        names, types, lines, define = self.names, self.types, self.lines, self.define
        for op in block.ops:
            text = op.name
            operands = op.operands
            if operands:
                text += " " + ", ".join([names[v] for v in operands])
            if op.attrs:
                text += self.attrs(op)
            results = op.results
            if op.regions:
                self.regions(op, indent, text)
                continue
            if len(results) == 1:
                (r,) = results
                t = types.get(r.type) or self.type(r.type)
                text = f"{indent}{define(r)} = {text} : {t}"
            else:
                text = f"{indent}{self.left(op)}{text}{self.right(op)}"
            lines.append(Line(text, op, op.loc))
        values = ", ".join([names[v] for v in block.results])
        lines.append(Line(f"{indent}return {values}".rstrip(), None, None))

    def attrs(self, op: Op) -> str:
        attrs = op.attrs
        keys = sorted(attrs)
        if op.name in _TYPE_IS_RESULT:
            keys = [k for k in keys if k != "type"]
        items = [f"{k}={format_attr(attrs[k])}" for k in keys]
        return f" {{{', '.join(items)}}}" if items else ""

    def left(self, op: Op) -> str:
        return f"{', '.join([self.define(r) for r in op.results])} = " if op.results else ""

    def right(self, op: Op) -> str:
        return f" : {', '.join([self.type(r.type) for r in op.results])}" if op.results else ""

    def regions(self, op: Op, indent: str, text: str) -> None:
        head = f"{indent}{self.left(op)}{text}"
        for region in op.regions:
            self.lines.append(Line(f"{head} ({self.params(region.params)}) {{", op, None))
            self.block(region, indent + "  ")
            head = indent + "}"
        self.lines.append(Line(head + self.right(op), op, op.loc))


# -- colours ----------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""(?P<string>"(?:[^"\\]|\\.)*")|(?P<comment>\#\ .*$)|(?P<value>%[\w.]+)|(?P<function>@[\w.]+)
    |(?P<type>\b(?:bool|i32|i64|f32|f64|c64|c128)\[[\d,]*\])
    |(?P<op>(?<==\ )[a-z]\w*|^\s*[a-z]\w*)""",
    re.VERBOSE,
)
_STYLE = {
    "string": "\033[32m",
    "comment": "\033[2m",
    "value": "\033[36m",
    "function": "\033[1;36m",
    "type": "\033[33m",
    "op": "\033[1;34m",
}


def highlight(line: str) -> str:
    return _TOKEN.sub(lambda m: f"{_STYLE[m.lastgroup or 'op']}{m[0]}\033[0m", line)
