"""Copies of the user's functions that see other objects where they name given ones.

Copied are a function, the functions and classes of the user's own modules that it can reach by
name, in globals, closures, defaults and the attributes of modules and objects, and imports inside
of them.  An object of such a class is seen through a view that shares its attributes.  Functions
of installed packages, and functions that assign to globals or to variables of an enclosing
function, are left alone.  The originals stay as they are.
"""

from __future__ import annotations

import builtins
import dis
import functools
import operator
import sys
import types
from collections.abc import Callable
from typing import Any

from tapec.depends import is_library

__all__ = ["Copier"]

#: Objects are looked for in containers of so many items.
_MAX_ITEMS = 64


class Copier:
    """``known``: by identity, what is replaced, and by what; ``convert``: what to put in the place
    of another object of SciPy's (or itself)."""

    def __init__(
        self, known: dict[int, tuple[Any, Any]], convert: Callable[[Any], Any] | None
    ) -> None:
        self._known = known
        self._convert = convert
        #: id of a module's globals → its copy
        self._globals: dict[int, dict[str, Any]] = {}
        self._copies: dict[int, Any] = {}
        self._kept: list[Any] = []
        #: whether something of a library was met by name
        self.named = False

    def function(self, f: Any) -> Any:
        """A copy of a function, method or partial; anything else as it is."""
        if isinstance(f, functools.partial):
            return functools.partial(self.function(f.func), *f.args, **f.keywords)
        if isinstance(f, types.MethodType):
            return types.MethodType(self.function(f.__func__), self.value(f.__self__))
        if not isinstance(f, types.FunctionType) or not _of_the_user(f):
            return f
        known = self._copies.get(id(f))
        if known is not None:
            return known
        instructions = list(dis.get_instructions(f))
        if any(i.opname in _ASSIGNING or _outer(i, f.__code__) for i in instructions):
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
        for name, mine, theirs in zip(f.__code__.co_freevars, cells, f.__closure__ or ()):
            try:
                x = theirs.cell_contents
            except ValueError:  # not assigned yet
                continue
            mine.cell_contents = x if name == "__class__" else self.value(x)  # ``super()`` needs it
        return copy

    def value(self, x: Any) -> Any:
        known = self._known.get(id(x))
        if known is not None and known[0] is x:
            self.named = True
            return known[1]
        if isinstance(x, types.FunctionType):
            return self.function(x)
        if isinstance(x, type):
            return self._class(x) if _plain_class(x) else x
        if self._convert is not None and type(x).__module__.startswith("scipy."):
            made = self._convert(x)
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
        return self._instance(x) if _plain_class(type(x)) else x

    def _class(self, cls: type) -> type:
        """A subclass with copies of the methods; the objects of the class are objects of it."""
        known: type | None = self._copies.get(id(cls))
        if known is not None:
            return known
        # ``super()`` in a method of ``cls`` goes on to the copy of its base
        bases = [self._class(b) for b in cls.__bases__ if _plain_class(b)]
        made: Any = _Copied(cls.__name__, (cls, *bases), {})
        made.original = cls
        made.__module__, made.__qualname__ = cls.__module__, cls.__qualname__
        self._copies[id(cls)] = made  # before its methods, which may name it

        def attribute(this: Any, name: str) -> Any:
            x = super(made, this).__getattribute__(name)
            return self.value(x) if name in object.__getattribute__(this, "__dict__") else x

        made.__getattribute__ = attribute
        for name, x in list(vars(cls).items()):
            copy = self._method(x)
            if copy is not x:
                setattr(made, name, copy)
        return made  # type: ignore[no-any-return]

    def _method(self, x: Any) -> Any:
        if isinstance(x, (staticmethod, classmethod)):
            copy = self.function(x.__func__)
            return x if copy is x.__func__ else type(x)(copy)
        if isinstance(x, property) and x.fget is not None:
            copy = self.function(x.fget)
            return x if copy is x.fget else property(copy, x.fset, x.fdel, x.__doc__)
        return self.function(x) if isinstance(x, types.FunctionType) else x

    def _instance(self, x: Any) -> Any:
        made = self._copies.get(id(x))
        if made is None:
            made = self._copies[id(x)] = object.__new__(self._class(type(x)))
            object.__setattr__(made, "__dict__", x.__dict__)
            self._kept.append(x)  # so that its id stays its own
        return made

    def _container(self, x: Any) -> Any:
        """A list, tuple or dict; a copy of it if an object in it is replaced."""
        items = list(x.values() if type(x) is dict else x)
        if not any(_plain_class(type(v)) or type(v).__module__[:6] == "scipy." for v in items):
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


class _Copied(type):
    """The type of copied classes: objects of the original are objects of the copy."""

    original: type

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, cls.original)


class _View(types.ModuleType):
    """A module of the user's with copies of its functions; SciPy with counterparts."""

    def __init__(self, module: types.ModuleType, copier: Copier) -> None:
        object.__setattr__(self, "_of", (module, copier))

    def __getattr__(self, name: str) -> Any:
        module, copier = self._of
        return copier.value(getattr(module, name))

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._of[0], name, value)


#: Instructions that change what a copy would not share.
_ASSIGNING = ("STORE_GLOBAL", "DELETE_GLOBAL")


def _outer(instruction: dis.Instruction, code: types.CodeType) -> bool:
    """Whether it assigns to a variable of an enclosing function."""
    deref = instruction.opname in ("STORE_DEREF", "DELETE_DEREF")
    return deref and instruction.argval in code.co_freevars


def _plain_class(cls: type) -> bool:
    """A class of the user's whose objects are nothing but their attributes."""
    if type(cls) is not type or cls.__dictoffset__ == 0 or issubclass(cls, BaseException):
        return False
    module = sys.modules.get(cls.__module__)
    if module is None or not _users(cls.__module__, getattr(module, "__file__", None)):
        return False
    return all(b is object or (type(b) is type and _heap(b)) for b in cls.__mro__)


def _heap(cls: type) -> bool:
    """Whether it was defined in Python, without slots."""
    return bool(cls.__flags__ & 1 << 9) and "__slots__" not in vars(cls)


def _of_the_user(f: types.FunctionType) -> bool:
    names = f.__globals__
    return bool(names.get("TAPEC_USER_CODE")) or _users(
        names.get("__name__", ""), f.__code__.co_filename
    )


def _users(module: str, file: str | None) -> bool:
    """Whether a module is the user's own, and not part of an installed package."""
    known = module.partition(".")[0] in ("numpy", "scipy", "tapec")
    return file is not None and not known and not is_library(file)
