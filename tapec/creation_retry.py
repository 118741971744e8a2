"""Plain ``np.zeros(n)`` that traced values are written into.

NumPy asks a traced value for a ``float`` then, and the trace fails.  It is run once more with
copies of the user's functions that see ``tapec.numpy`` where they name ``numpy``: arrays made
there are traced, and can be written to.  Only the copies are affected: the user's module, other
callers and NumPy itself stay as they are.

What is copied: the traced function and the plain functions of the same module that it can
reach by name, in globals, closures and defaults.  Functions of other modules, and functions
that assign globals, are left alone; if the trace still fails, the first error stands.
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["with_traced_creation"]


def with_traced_creation(subject: Callable[..., Any]) -> Callable[..., Any] | None:
    """A copy of ``subject`` for which ``np.zeros`` and its kin make traced arrays; None if it is
    not a function that names NumPy."""
    copier = _Copier()
    made = copier.function(subject)
    return made if copier.named else None


class _Copier:
    def __init__(self) -> None:
        #: id of a module's globals → its copy
        self._globals: dict[int, dict[str, Any]] = {}
        self._copies: dict[int, Any] = {}
        #: whether NumPy was met by name
        self.named = False

    def function(self, f: Any) -> Any:
        """A copy of a function, method or partial; anything else as it is."""
        if isinstance(f, functools.partial):
            return functools.partial(self.function(f.func), *f.args, **f.keywords)
        if isinstance(f, types.MethodType):
            return types.MethodType(self.function(f.__func__), f.__self__)
        if not isinstance(f, types.FunctionType) or f.__globals__.get("__name__", "").startswith(
            ("numpy", "tapec", "scipy")
        ):
            return f
        known = self._copies.get(id(f))
        if known is not None:
            return known
        if any(i.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") for i in dis.get_instructions(f)):
            return f
        cells = tuple([types.CellType() for _ in f.__closure__ or ()])
        copy = types.FunctionType(
            f.__code__, self._module(f.__globals__), f.__name__, f.__defaults__, cells
        )
        copy.__kwdefaults__ = f.__kwdefaults__
        copy.__dict__.update(f.__dict__)
        copy.__qualname__, copy.__doc__ = f.__qualname__, f.__doc__
        self._copies[id(f)] = copy
        for mine, theirs in zip(cells, f.__closure__ or ()):
            try:
                mine.cell_contents = self.value(theirs.cell_contents)
            except ValueError:  # not assigned yet
                continue
        return copy

    def value(self, x: Any) -> Any:
        if x is np:
            import tapec.numpy

            self.named = True
            return tapec.numpy
        return self.function(x) if isinstance(x, types.FunctionType) else x

    def _module(self, names: dict[str, Any]) -> dict[str, Any]:
        """A copy of a module's globals in which NumPy and the module's functions are replaced."""
        made = self._globals.get(id(names))
        if made is None:
            made = self._globals[id(names)] = dict(names)
            for name, x in names.items():
                if x is np or (isinstance(x, types.FunctionType) and x.__globals__ is names):
                    made[name] = self.value(x)
        return made
