r"""Text → IR.

Grammar (``[x]`` optional, ``{x}`` repeated; blanks separate; a line end ends an operation)::

    text     = function {function}
    function = "func" "@"name "(" params ")" "->" "(" [types] ")" block
    params   = [value ":" type {"," value ":" type}]
    block    = "{" {op} "return" [values] "}"
    op       = [values "="] name [values] [attrs] {"(" params ")" block} [":" types]
    values   = value {"," value}
    types    = type {"," type}
    attrs    = "{" name "=" attr {"," name "=" attr} "}"
    attr     = number | "true" | "false" | "none" | string | type | "(" [attr {"," attr}] ")"
             | "complex(" number "," number ")" | "nan(" hexadecimal ")"
             | "dense(" (string | [attr {"," attr}]) ")"
    value    = "%" followed by letters, digits, "_" and "."
    name     = a letter or "_", then letters, digits, "_" and "."; after "@" also a string
    type     = dtype "[" [int {"," int}] "]"
    number   = Python's int or float; inf, nan, with an optional "-"
    string   = JSON's

``(1)`` is a tuple of one element.  ``dense`` holds the elements of a constant in C order, or
their bytes (little endian) as hexadecimal digits.  The attribute ``type`` of ``constant`` and
``iota`` is the result type.  A comment ``# file:line`` after an operation is its location;
other comments after ``#`` or ``//`` are skipped.  A region of ``call`` sees only its own
parameters; other regions see the values around them.

>>> fn = parse('''
... func @double(%x: f64[3]) -> (f64[]) {
...   %s = reduce_sum %x {axes=(0)} : f64[]    # fit.py:7
...   return %s
... }''')
>>> fn.ops[0].loc
Loc(file='fit.py', line=7, function='')
"""

from __future__ import annotations

import difflib
import json
import re
import struct
from typing import Any, NamedTuple, NoReturn

import numpy as np

from tapec.ir.control import ISOLATED
from tapec.ir.core import DTYPES, NO_ATTRS, Attrs, Block, Dense, Function, Loc, Op, Type, Value
from tapec.ir.opdef import OPS

__all__ = ["ParseError", "parse", "parse_all", "parse_type"]


class ParseError(ValueError):
    """Malformed text: ``message`` at ``line`` and ``column`` (both from 1)."""

    def __init__(self, message: str, line: int, column: int, source: str) -> None:
        super().__init__(
            f"line {line}, column {column}: {message}\n    {source}\n    {' ' * (column - 1)}^"
        )
        self.message = message
        self.line = line
        self.column = column


def parse(text: str, *, check: bool = True) -> Function:
    """The one function of ``text``.

    With ``check``, operations must be in the op table and have the types that it infers;
    without, the text is believed (``verify`` tells).
    """
    parser = _Parser(text, check)
    functions = parser.functions()
    if len(functions) != 1:
        parser.fail("expected one function, found more", parser.starts[1])
    return functions[0]


def parse_all(text: str, *, check: bool = True) -> list[Function]:
    """All functions of ``text``, at least one."""
    return _Parser(text, check).functions()


def parse_type(text: str) -> Type:
    """``"f64[3,4]"`` → its Type."""
    match = _TYPE.fullmatch(text.strip())
    dtype = DTYPES.get(match[1]) if match else None
    if match is None or dtype is None:
        raise ParseError(f"expected a type, found {text!r}", 1, 1, text)
    return Type(dtype, tuple([int(n) for n in match[2].split(",") if n.strip()]))


# -- tokens -----------------------------------------------------------------------------

_TYPE = re.compile(r"([A-Za-z]\w*)\[((?:\s*\d+\s*(?:,\s*\d+\s*)*)?)\]")
_TOKEN = re.compile(
    r"""[ \t\r]*(?:
      (?P<value>%[\w.]+)
    | (?P<type>[A-Za-z]\w*\[[\d,\ ]*\])
    | (?P<number>-?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|(?:inf|nan)(?![\w.])))
    | (?P<name>[A-Za-z_][\w.]*)
    | (?P<mark>->|[{}(),:=])
    | (?P<line>\n)
    | (?P<loc>\#.*)
    | (?P<function>@(?:[A-Za-z_][\w.]*|"(?:[^"\\\n]|\\.)*"))
    | (?P<string>"(?:[^"\\\n]|\\.)*")
    | (?P<comment>//.*)
    | (?P<end>\Z)
    | (?P<bad>.)
    )""",
    re.VERBOSE | re.ASCII,
)
_LOC = re.compile(r"#\s*(.*?):(\d+)\s*$")
_WORDS = {"true": True, "false": False, "none": None}


class Token(NamedTuple):
    kind: str
    text: str
    at: int


class _Dense(NamedTuple):
    """A ``dense(...)`` before its type is known."""

    content: Any
    token: Token


def _tokens(text: str) -> list[Token]:
    out = []
    for m in _TOKEN.finditer(text):
        kind = m.lastgroup
        if kind == "comment" or kind is None:
            continue
        out.append(Token(kind, m[kind], m.start(kind)))
        if kind == "end":
            break
    return out


# -- the parser ---------------------------------------------------------------------------


class _Parser:
    def __init__(self, text: str, check: bool) -> None:
        self.text = text
        self.check = check
        self.tokens = _tokens(text)
        self.at = 0
        self.types: dict[str, Type] = {}
        self.locs: dict[str, Loc | None] = {}
        self.starts: list[Token] = []

    # -- small pieces

    def fail(self, message: str, token: Token) -> NoReturn:
        line = self.text.count("\n", 0, token.at) + 1
        start = self.text.rfind("\n", 0, token.at) + 1
        end = self.text.find("\n", token.at)
        source = self.text[start : end if end >= 0 else len(self.text)]
        # The caret stands under the token when tabs are shown as one blank.
        raise ParseError(message, line, token.at - start + 1, source.replace("\t", " "))

    def unexpected(self, wanted: str, token: Token) -> NoReturn:
        found = {"line": "the end of the line", "end": "the end of the text"}.get(
            token.kind, repr(token.text)
        )
        self.fail(f"expected {wanted}, found {found}", token)

    def skip_lines(self) -> Token:
        """Past line ends and comments: the next token, not taken."""
        while self.tokens[self.at].kind in ("line", "loc"):
            self.at += 1
        return self.tokens[self.at]

    def take(self, kind: str, wanted: str) -> Token:
        token = self.tokens[self.at]
        if token.kind != kind:
            self.unexpected(wanted, token)
        self.at += 1
        return token

    def mark(self, text: str) -> None:
        token = self.tokens[self.at]
        if token.text != text or token.kind != "mark":
            self.unexpected(repr(text), token)
        self.at += 1

    def found(self, text: str) -> bool:
        """Takes the mark if it is next."""
        token = self.tokens[self.at]
        if token.text == text and token.kind == "mark":
            self.at += 1
            return True
        return False

    def type(self) -> Type:
        token = self.take("type", "a type")
        return self.types.get(token.text) or self.new_type(token)

    def new_type(self, token: Token) -> Type:
        match = _TYPE.fullmatch(token.text)
        if match is None:
            self.fail(f"malformed type {token.text!r}", token)
        dtype = DTYPES.get(match[1])
        if dtype is None:
            self.fail(f"unknown dtype {match[1]!r}; known are {', '.join(DTYPES)}", token)
        shape = tuple([int(n) for n in match[2].split(",") if n.strip()])
        self.types[token.text] = type_ = Type(dtype, shape)
        return type_

    # -- functions and blocks

    def functions(self) -> list[Function]:
        out = []
        while True:
            self.starts.append(self.skip_lines())
            out.append(self.function())
            if self.skip_lines().kind == "end":
                return out

    def function(self) -> Function:
        token = self.tokens[self.at]
        if token.text != "func":
            self.unexpected("'func'", token)
        self.at += 1
        token = self.take("function", "a function name (@name)")
        name = json.loads(token.text[1:]) if token.text[1] == '"' else token.text[1:]
        env: dict[str, Value] = {}
        params = self.params(env)
        self.mark("->")
        where = self.tokens[self.at]
        self.mark("(")
        declared: list[Type] = []
        while not self.found(")"):
            if declared:
                self.mark(",")
            declared.append(self.type())
        ops, results = self.block(env)
        if [r.type for r in results] != declared:
            found = ", ".join([str(r.type) for r in results])
            self.fail(f"the function returns ({found})", where)
        return Function(name, params, ops, results)

    def params(self, env: dict[str, Value]) -> list[Value]:
        params: list[Value] = []
        self.mark("(")
        while not self.found(")"):
            if params:
                self.mark(",")
            token = self.take("value", "a parameter (%name)")
            self.mark(":")
            params.append(self.bind(env, token, Value(self.type())))
        return params

    def bind(self, env: dict[str, Value], token: Token, value: Value) -> Value:
        name = token.text
        if name in env:
            self.fail(f"value {name} is defined twice", token)
        env[name] = value
        hint = name[1:]
        value.hint = None if hint.isdecimal() else hint
        return value

    def block(self, env: dict[str, Value]) -> tuple[list[Op], list[Value]]:
        self.mark("{")
        ops: list[Op] = []
        while True:
            token = self.skip_lines()
            if token.text == "return":
                break
            ops.append(self.op(env, token))
        self.at += 1
        results = self.operands(env) if self.tokens[self.at].kind == "value" else ()
        self.skip_lines()
        self.mark("}")
        return ops, list(results)

    def operands(self, env: dict[str, Value]) -> tuple[Value, ...]:
        values = []
        tokens = self.tokens
        while True:
            token = tokens[self.at]
            value = env.get(token.text)
            if value is None:
                if token.kind != "value":
                    self.unexpected("a value (%name)", token)
                self.fail(f"value {token.text} is not defined before", token)
            values.append(value)
            self.at += 1
            if tokens[self.at].text != ",":
                return tuple(values)
            self.at += 1

    # -- operations

    def op(self, env: dict[str, Value], token: Token) -> Op:
        tokens = self.tokens
        targets: list[Token] = []
        if token.kind == "value":
            while True:
                targets.append(self.take("value", "a result (%name)"))
                if not self.found(","):
                    break
            self.mark("=")
        where = self.take("name", "an operation or 'return'")
        name = where.text
        operands = self.operands(env) if tokens[self.at].kind == "value" else ()
        attrs: Attrs = self.attrs() if tokens[self.at].text == "{" else NO_ATTRS
        regions: tuple[Block, ...] = ()
        if tokens[self.at].text == "(":
            regions = self.regions(name, env)
        at_types = tokens[self.at]
        types: tuple[Type, ...] = ()
        if self.found(":"):
            at_types = tokens[self.at]
            listed = [self.type()]
            while self.found(","):
                listed.append(self.type())
            types = tuple(listed)
        if len(types) != len(targets):
            self.fail(f"{len(targets)} results, but {len(types)} types", at_types)
        attrs = self.with_type(name, attrs, types, where)
        if self.check:
            self.check_types(where, operands, attrs, regions, types, at_types)
        op = Op(name, operands, types, attrs, regions, self.end_of_op())
        for target, result in zip(targets, op.results):
            self.bind(env, target, result)
        return op

    def end_of_op(self) -> Loc | None:
        """The line end after an operation, and the location before it."""
        token = self.tokens[self.at]
        loc = None
        if token.kind == "loc":
            self.at += 1
            if token.text in self.locs:
                loc = self.locs[token.text]
            else:
                match = _LOC.match(token.text)
                loc = Loc(match[1], int(match[2])) if match else None
                self.locs[token.text] = loc
            token = self.tokens[self.at]
        if token.kind == "line":
            self.at += 1
        elif token.text != "}":
            self.unexpected("the end of the line", token)
        return loc

    def regions(self, name: str, env: dict[str, Value]) -> tuple[Block, ...]:
        regions = []
        while self.tokens[self.at].text == "(":
            inner = {} if name in ISOLATED else dict(env)
            params = self.params(inner)
            ops, results = self.block(inner)
            regions.append(Block(params, ops, results))
        return tuple(regions)

    def check_types(
        self,
        where: Token,
        operands: tuple[Value, ...],
        attrs: Attrs,
        regions: tuple[Block, ...],
        types: tuple[Type, ...],
        at_types: Token,
    ) -> None:
        entry = OPS.get(where.text)
        if entry is None:
            close = difflib.get_close_matches(where.text, OPS, 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            self.fail(f"unknown operation {where.text!r}{hint}", where)
        given = tuple([v.type for v in operands])
        try:
            if regions and entry.infer_regions is not None:
                inferred = entry.infer_regions(given, attrs, regions)
            else:
                inferred = entry.infer(given, attrs)
        except (TypeError, ValueError, KeyError) as error:
            text = f"missing attribute {error}" if isinstance(error, KeyError) else str(error)
            self.fail(text, where)
        if inferred != types:
            wanted = ", ".join(map(str, inferred)) or "nothing"
            self.fail(f"{where.text} gives {wanted} here", at_types)

    # -- attributes

    def attrs(self) -> dict[str, Any]:
        self.mark("{")
        out: dict[str, Any] = {}
        while True:
            token = self.take("name", "an attribute name")
            if token.text in out:
                self.fail(f"attribute {token.text!r} is given twice", token)
            self.mark("=")
            out[token.text] = self.attr()
            if not self.found(","):
                self.mark("}")
                return out

    def attr(self) -> Any:
        token = self.tokens[self.at]
        kind, text = token.kind, token.text
        if text == "(":
            return tuple(self.attr_list())
        self.at += 1
        if kind == "number":
            if text == "nan" and self.tokens[self.at].text == "(":
                return self.nan_bits()
            return int(text) if text.lstrip("-").isdecimal() else float(text)
        if kind == "string":
            return self.string(token)
        if kind == "type":
            return self.types.get(text) or self.new_type(token)
        if kind == "name":
            if text in _WORDS:
                return _WORDS[text]
            if text == "dense":
                return _Dense(self.attr_list(), token)
            if text == "complex":
                parts = self.attr_list()
                if len(parts) == 2 and all(type(p) is float for p in parts):
                    return complex(*parts)
                self.fail("complex takes two floats", token)
        return self.unexpected("an attribute value", token)

    def attr_list(self) -> list[Any]:
        self.mark("(")
        items: list[Any] = []
        while not self.found(")"):
            if items:
                self.mark(",")
            items.append(self.attr())
        return items

    def string(self, token: Token) -> str:
        try:
            return str(json.loads(token.text))
        except ValueError as error:
            self.fail(f"malformed string: {error}", token)

    def nan_bits(self) -> float:
        # The digits after "0x" are a name or a number, followed by more of either.
        self.mark("(")
        start = self.tokens[self.at]
        digits = ""
        while not self.found(")"):
            token = self.tokens[self.at]
            if token.kind not in ("number", "name"):
                self.unexpected("hexadecimal digits", token)
            digits += token.text
            self.at += 1
        try:
            value = struct.unpack("<d", struct.pack("<Q", int(digits, 16)))[0]
        except (ValueError, struct.error):
            self.fail(f"malformed bits {digits!r} of a nan", start)
        if value == value:
            self.fail(f"the bits {digits} are not a nan", start)
        return float(value)

    def with_type(self, name: str, attrs: Attrs, types: tuple[Type, ...], where: Token) -> Attrs:
        """What the text leaves to the result type: the attribute ``type``, the dtype and
        shape of an array constant, the precision of a scalar one."""
        if name not in ("constant", "iota") or len(types) != 1:
            for value in attrs.values():
                if type(value) is _Dense:
                    self.fail("dense(...) is for constants", value.token)
            return attrs
        type_ = types[0]
        out = {**attrs, "type": type_}
        value = attrs.get("value")
        if type(value) is _Dense:
            out["value"] = self.dense(value, type_)
        elif (
            type(value) is not bool and isinstance(value, (int, float)) and type_.dtype.kind == "f"
        ):
            with np.errstate(over="ignore"):
                exact = np.array([value], np.float64).astype(type_.dtype.np)
            out["value"] = exact.tolist()[0] if type_.dtype.bits == 32 else float(value)
        return out

    def dense(self, raw: _Dense, type_: Type) -> Dense:
        items, dtype = raw.content, type_.dtype.np
        try:
            if len(items) == 1 and type(items[0]) is str:
                flat = np.frombuffer(bytes.fromhex(items[0]), dtype.newbyteorder("<"))
            else:
                flat = np.array(items, dtype)
            return Dense(flat.astype(dtype, copy=False).reshape(type_.shape))
        except (ValueError, TypeError, OverflowError) as error:
            self.fail(f"elements do not fit {type_}: {error}", raw.token)
