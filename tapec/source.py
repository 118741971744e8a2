"""Where the user's code is: the first frame outside tapec and NumPy, as an interned ``Site``.

A tape asks for its site once per recorded operation, so the answer is looked up by code
object and instruction and computed once.  ``frame.f_lineno`` is avoided: it decodes the
line table from its start, which is quadratic over a long straight-line function.

A ``Site`` also carries the name that the user gives to the value, when the instruction
after the call is a store: ``z = X @ w`` yields ``Site(loc, "z")``.

A module of ours that plays the user's part (the demo, say) sets ``TAPEC_USER_CODE = True``.
"""

from __future__ import annotations

import bisect
import os
import sys
from opcode import opmap
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from tapec.ir.core import Loc

__all__ = ["NOWHERE", "Site", "describe_site", "site_of", "user_site"]


class Site(NamedTuple):
    """A source location and the name of the variable that receives the value, if known."""

    loc: Loc | None
    hint: str | None = None


NOWHERE = Site(None)

_HERE = os.path.dirname(os.path.abspath(__file__))
_NUMPY = os.path.dirname(os.path.abspath(np.__file__))
_INTERNAL = tuple(
    path + os.sep
    for path in (
        _HERE,
        os.path.realpath(os.path.join(_HERE, "ir")),
        os.path.realpath(os.path.join(_HERE, "codegen")),
        _NUMPY,
        os.path.join(os.path.dirname(_NUMPY), "scipy"),
    )
)
#: Forget everything beyond this many code objects, and bytes of bytecode (programs that
#: ``exec`` all the time); what is known of a code object takes some ten times its bytecode.
_MAX_CODES, _MAX_BYTECODE = 2_000, 4_000_000

_CACHE = opmap.get("CACHE", 0)
_STORES: dict[int, str] = {
    opmap[name]: table
    for name, table in (
        ("STORE_FAST", "locals"),
        ("STORE_NAME", "names"),
        ("STORE_GLOBAL", "names"),
        ("STORE_DEREF", "locals"),
    )
    if name in opmap
}


class _Code:
    """What is known of one code object of the user's."""

    __slots__ = ("_bytes", "_lines", "_starts", "_tables", "code", "sites")

    def __init__(self, code: CodeType) -> None:
        self.code = code  # keeps it alive, so that its id stays its own
        self.sites: dict[int, Site] = {}
        self._bytes: bytes | None = None
        self._starts: list[int] = []
        self._lines: list[int] = []
        self._tables: dict[str, tuple[str, ...]] = {}

    def find(self, lasti: int) -> Site:
        """The site of the instruction at ``lasti``; remembered."""
        code = self.code
        if self._bytes is None:
            self._bytes = code.co_code
            # ``co_varnames`` and the like build a new tuple at each access
            slots = code.co_varnames
            cells = tuple(n for n in code.co_cellvars if n not in set(slots))
            self._tables = {"names": code.co_names, "locals": slots + cells + code.co_freevars}
            for start, _, line in code.co_lines():
                self._starts.append(start)
                self._lines.append(line or code.co_firstlineno)
        at = bisect.bisect_right(self._starts, lasti) - 1
        line = self._lines[at] if at >= 0 else code.co_firstlineno
        site = Site(Loc(code.co_filename, line, code.co_name), self._stored_name(lasti))
        self.sites[lasti] = site
        return site

    def _stored_name(self, lasti: int) -> str | None:
        text = self._bytes
        assert text is not None
        at = lasti + 2
        while at + 1 < len(text) and text[at] == _CACHE:
            at += 2
        if at + 1 >= len(text):
            return None
        table = _STORES.get(text[at])
        if table is None:
            return None
        names = self._tables[table]
        argument = text[at + 1]
        return names[argument] if argument < len(names) else None


#: id(code) → what is known of it, or None for a frame to skip.
_codes: dict[int, tuple[CodeType, _Code | None]] = {}


_bytecode = 0


def _learn(frame: Any) -> tuple[CodeType, _Code | None]:
    global _bytecode
    code: CodeType = frame.f_code
    if len(_codes) >= _MAX_CODES or _bytecode > _MAX_BYTECODE:
        _codes.clear()
        _bytecode = 0
    _bytecode += len(code.co_code)
    internal = code.co_filename.startswith(_INTERNAL) or code.co_filename.startswith("<__array")
    if internal and frame.f_globals.get("TAPEC_USER_CODE"):
        internal = False
    entry = _codes[id(code)] = (code, None if internal else _Code(code))
    return entry


def user_site(depth: int = 1) -> Site:
    """The site of the innermost user frame; ``depth`` frames of ours are skipped unseen."""
    frame: Any = sys._getframe(depth)
    while frame is not None:
        entry = _codes.get(id(frame.f_code))
        if entry is None:
            entry = _learn(frame)
        known = entry[1]
        if known is None:
            frame = frame.f_back
            continue
        lasti = frame.f_lasti
        site = known.sites.get(lasti)
        return known.find(lasti) if site is None else site
    return NOWHERE


def site_of(frame: Any, lasti: int) -> Site:
    """The site of an instruction of a frame that may have ended."""
    known = (_codes.get(id(frame.f_code)) or _learn(frame))[1]
    return NOWHERE if known is None else known.find(lasti)


def describe_site(site: Site) -> str:
    """``file:line`` with the path as the interpreter knows it (clickable in most terminals)."""
    loc = site.loc
    return f"{loc.file}:{loc.line}" if loc is not None else "<unknown place>"
