"""Traces that failed in code which takes no traced values, run once more on counterparts of it.

Two kinds of failure are meant.  NumPy asks a traced value for a ``float`` where it is written into
an array of plain ``np.zeros(n)``; and functions of SciPy that are no ufuncs convert their arguments
before they compute.  The trace is run again with copies of the user's functions that see
``tapec.numpy`` where they name ``numpy`` (arrays made there are traced, and can be written to), and
``tapec.scipy`` where they name ``scipy``, a module of it or a function of such a module.  Only
the copies are affected: the user's modules, other callers, NumPy and SciPy stay as they are.

What is copied: the traced function, the functions of the user's own modules that it can reach by
name, in globals, closures and defaults, and imports inside of them.  Methods of classes, functions
of installed packages and functions that assign globals are left alone.
"""

from __future__ import annotations

import builtins
import dis
import functools
import importlib
import operator
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from tapec.depends import is_library
from tapec.errors import ConversionError, TapecError, UnsupportedError
from tapec.source import describe_site, site_of
from tapec.tape import is_traced

__all__ = ["failed_in", "unsupported", "with_counterparts"]

#: SciPy's modules some of whose functions have counterparts.
_SCIPY = ("interpolate", "linalg", "signal", "spatial.distance", "special", "stats")
#: Objects of SciPy's are looked for in containers of so many items.
_MAX_ITEMS = 64
#: What stands in for the rest.
_WAYS = {
    "integrate": "use tapec.odeint, or np.trapezoid over points",
    "optimize": "use tapec.root, tapec.fixed_point or tapec.argmin",
    "sparse": "use A @ x, tapec.linear_solve",
}


def failed_in(error: BaseException) -> str | None:
    """The library that an error comes from: "numpy" if a traced value was to be written into a
    plain array, "scipy" if a function of SciPy was given traced values."""
    if _called(error) is not None:
        return "scipy"
    return "numpy" if isinstance(error, ConversionError) and error.into_plain_array else None


def _called(error: BaseException) -> tuple[Any, str] | None:
    """The user's frame and the function of SciPy that was called with traced values."""
    user, trace = None, error.__traceback__
    name = ""
    sure = isinstance(error, ConversionError) or isinstance(error.__cause__, TapecError)
    while trace is not None:
        frame = trace.tb_frame
        module = frame.f_globals.get("__name__", "")
        if module.startswith("scipy."):
            name = name or _named(frame)
            sure = sure or any(_holds_traced(v) for v in frame.f_locals.values())
        elif not name and not module.startswith(("numpy", "tapec")):
            user = trace
        trace = trace.tb_next
    return (user, name) if name and sure else None


def _named(frame: types.FrameType) -> str:
    """``scipy.stats.norm.logpdf`` for a frame of ``scipy.stats._distn_infrastructure``."""
    module, name = frame.f_globals["__name__"], frame.f_code.co_qualname
    if module.startswith("scipy._lib.") or "<locals>" in name:  # a wrapper of a function
        found = [frame.f_locals.get(k) for k in ("f", "hypotest_fun_in")]
        function = next((f for f in found if isinstance(f, types.FunctionType)), None)
        if function is None:
            return ""
        module, name = function.__module__, function.__qualname__
    owner, _, method = name.rpartition(".")
    known = getattr(frame.f_locals.get("self"), "name", None)  # of a distribution
    owner = known if isinstance(known, str) else owner.removesuffix("_gen")
    parts = ["scipy", module.split(".")[1], owner, "" if method == "__init__" else method]
    return ".".join(filter(None, parts))


def _holds_traced(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(is_traced(v) for v in value)
    if isinstance(value, dict):
        return any(is_traced(v) for v in value.values())
    if isinstance(value, types.FunctionType):
        return any(is_traced(c.cell_contents) for c in value.__closure__ or () if _set(c))
    return is_traced(value)


def _set(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def unsupported(error: BaseException) -> BaseException:
    """What to raise when a function of SciPy has no counterpart, or cannot be reached."""
    found = _called(error)
    if found is None or (isinstance(error, TapecError) and "tapec.scipy" in str(error)):
        return error
    user, name = found
    place = "" if user is None else f"{describe_site(site_of(user.tb_frame, user.tb_lasti))}: "
    return UnsupportedError(f"{place}{name} does not take traced values; instead: {_way(name)}")


def _way(name: str) -> str:
    """What to write instead of a function of SciPy."""
    _, module, *rest = name.split(".")
    for ours in _SCIPY:
        if ours.partition(".")[0] == module and rest and rest[0] in _ours(ours).__all__:
            return f"use tapec.scipy.{ours}.{rest[0]}"
    plain = "call it on plain arrays, write it with NumPy, or wrap it in tapec.host_call"
    return f"{_WAYS[module]}, or {plain}" if module in _WAYS else plain


def _ours(module: str) -> Any:
    return importlib.import_module(f"tapec.scipy.{module}")


def with_counterparts(
    subject: Callable[..., Any], libraries: frozenset[str]
) -> Callable[..., Any] | None:
    """A copy of ``subject`` that sees counterparts of the libraries ("numpy", "scipy"); None if it
    is not a function that names them."""
    copier = _Copier(_counterparts(libraries), "scipy" in libraries)
    made = copier.function(subject)
    return made if copier.named else None


def _counterparts(libraries: frozenset[str]) -> dict[int, tuple[Any, Any]]:
    """By identity: what is replaced, and by what."""
    import tapec.numpy

    found: list[tuple[Any, Any]] = []
    if "numpy" in libraries:
        found.append((np, tapec.numpy))
        found += [
            (getattr(np, name), ours)
            for name, ours in vars(tapec.numpy).items()
            if isinstance(ours, types.FunctionType) and hasattr(np, name)
        ]
    if "scipy" in libraries:
        for name in _SCIPY:
            theirs = sys.modules.get(f"scipy.{name}")
            if theirs is not None:
                ours = _ours(name)
                found.append((theirs, ours))
                found += [(getattr(theirs, k, None), getattr(ours, k)) for k in ours.__all__]
    return {id(x): (x, y) for x, y in found if x is not None and x is not y}


class _Copier:
    def __init__(self, known: dict[int, tuple[Any, Any]], scipy: bool) -> None:
        self._known = known
        self._scipy = scipy
        #: id of a module's globals → its copy
        self._globals: dict[int, dict[str, Any]] = {}
        self._copies: dict[int, Any] = {}
        #: whether something of a library was met by name
        self.named = False

    def function(self, f: Any) -> Any:
        """A copy of a function, method or partial; anything else as it is."""
        if isinstance(f, functools.partial):
            return functools.partial(self.function(f.func), *f.args, **f.keywords)
        if isinstance(f, types.MethodType):
            return types.MethodType(self.function(f.__func__), f.__self__)
        if not isinstance(f, types.FunctionType) or not _of_the_user(f):
            return f
        known = self._copies.get(id(f))
        if known is not None:
            return known
        instructions = list(dis.get_instructions(f))
        if any(i.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") for i in instructions):
            return f
        cells = tuple([types.CellType() for _ in f.__closure__ or ()])
        copy = types.FunctionType(f.__code__, self._module(f.__globals__), f.__name__, None, cells)
        copy.__dict__.update(f.__dict__)
        copy.__qualname__, copy.__doc__ = f.__qualname__, f.__doc__
        self._copies[id(f)] = copy
        copy.__defaults__ = f.__defaults__ and tuple([self.value(x) for x in f.__defaults__])
        copy.__kwdefaults__ = f.__kwdefaults__ and {
            k: self.value(x) for k, x in f.__kwdefaults__.items()
        }
        self.named = self.named or any(i.opname == "IMPORT_NAME" for i in instructions)
        for mine, theirs in zip(cells, f.__closure__ or ()):
            try:
                mine.cell_contents = self.value(theirs.cell_contents)
            except ValueError:  # not assigned yet
                continue
        return copy

    def value(self, x: Any) -> Any:
        known = self._known.get(id(x))
        if known is not None and known[0] is x:
            self.named = True
            return known[1]
        if isinstance(x, types.FunctionType):
            return self.function(x)
        if self._scipy and type(x).__module__.startswith("scipy."):
            made = _object(x)
            self.named = self.named or made is not x
            return made
        if type(x) in (list, tuple, dict) and 0 < len(x) <= _MAX_ITEMS:
            return self._container(x)
        if isinstance(x, types.ModuleType):
            named = x.__name__.partition(".")[0] == "scipy"
            self.named = self.named or named
            if named or _users(x.__name__, getattr(x, "__file__", None)):
                return _View(x, self)
        return x

    def _container(self, x: Any) -> Any:
        """A list, tuple or dict; a copy of it if an object of SciPy's in it has a counterpart."""
        items = list(x.values() if type(x) is dict else x)
        if not any(type(v).__module__.startswith("scipy.") for v in items):
            return x
        made = [self.value(v) for v in items]
        if all(map(operator.is_, made, items)):
            return x
        return dict(zip(x, made)) if type(x) is dict else type(x)(made)

    def _module(self, names: dict[str, Any]) -> dict[str, Any]:
        """A copy of a module's globals in which libraries and functions are replaced."""
        made = self._globals.get(id(names))
        if made is None:
            made = self._globals[id(names)] = dict(names)
            for name, x in names.items():
                made[name] = self.value(x)
            made["__builtins__"] = {**vars(builtins), "__import__": self._import}
        return made

    def _import(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return self.value(builtins.__import__(name, *args, **kwargs))


def _object(x: Any) -> Any:
    """The counterpart of an object of SciPy's that was made outside of the trace, or itself."""
    for module in _SCIPY:
        if f"scipy.{module}" in sys.modules:
            made = getattr(_ours(module), "counterpart", lambda x: None)(x)
            if made is not None:
                return made
    return x


class _View(types.ModuleType):
    """A module of the user's with copies of its functions; SciPy with counterparts."""

    def __init__(self, module: types.ModuleType, copier: _Copier) -> None:
        object.__setattr__(self, "_of", (module, copier))

    def __getattr__(self, name: str) -> Any:
        module, copier = self._of
        return copier.value(getattr(module, name))

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._of[0], name, value)


def _of_the_user(f: types.FunctionType) -> bool:
    names = f.__globals__
    return bool(names.get("TAPEC_USER_CODE")) or _users(
        names.get("__name__", ""), f.__code__.co_filename
    )


def _users(module: str, file: str | None) -> bool:
    """Whether a module is the user's own, and not part of an installed package."""
    known = module.partition(".")[0] in ("numpy", "scipy", "tapec")
    return file is not None and not known and not is_library(file)
