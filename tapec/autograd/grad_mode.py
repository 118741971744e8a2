"""``no_grad`` and its relatives: context managers and decorators, per thread, restored on exit."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from tapec.tensors.graph import modes, switch

__all__ = [
    "enable_grad", "inference_mode", "is_grad_enabled", "is_inference_mode_enabled", "no_grad",
    "set_grad_enabled",
]  # fmt: skip

_F = TypeVar("_F", bound=Callable[..., Any])


class _Mode:
    """A context manager that is also a decorator."""

    def __init__(self) -> None:
        self._saved: list[Any] = []

    def _clone(self) -> _Mode:
        return type(self)()

    def _switch(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> None:
        self._saved.append((modes.grad, modes.inference))
        self._switch()

    def __exit__(self, *exc: object) -> None:
        switch(*self._saved.pop())

    def __call__(self, function: _F) -> _F:
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def generator(*args: Any, **kwargs: Any) -> Any:
                iterator = function(*args, **kwargs)
                while True:
                    with self._clone():
                        try:
                            value = next(iterator)
                        except StopIteration as stop:
                            return stop.value
                    yield value

            return generator  # type: ignore[return-value]

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self._clone():
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


class _Bare(_Mode):
    """May also decorate without parentheses."""

    def __new__(cls, function: Any = None) -> Any:
        if function is None:
            return super().__new__(cls)
        return cls()(function)

    def __init__(self, function: Any = None) -> None:
        super().__init__()


class no_grad(_Bare):
    """Results do not require grad here.

    >>> import tapec
    >>> x = tapec.tensor(1.0, requires_grad=True)
    >>> with tapec.no_grad():
    ...     (x * 2).requires_grad
    False
    """

    def _switch(self) -> None:
        switch(False, modes.inference)


class enable_grad(_Bare):
    """Recording is on here, also inside ``no_grad``."""

    def _switch(self) -> None:
        switch(True, modes.inference)


class set_grad_enabled(_Mode):
    """Recording on or off: at once, or for a ``with`` block."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self._mode = mode
        self._before: Any = (modes.grad, modes.inference)
        switch(mode, modes.inference)

    def _clone(self) -> _Mode:
        again = set_grad_enabled.__new__(set_grad_enabled)
        again._saved, again._mode, again._before = [], self._mode, None
        return again

    def _switch(self) -> None:
        switch(self._mode, modes.inference)

    def __enter__(self) -> None:
        self._saved.append(self._before or (modes.grad, modes.inference))
        self._before = None
        self._switch()

    def __call__(self, function: _F) -> _F:
        if self._before is not None:  # as a decorator it changes nothing by itself
            switch(*self._before)
            self._before = None
        return super().__call__(function)


class inference_mode(_Mode):
    """As ``no_grad``, and results can never take part in differentiation."""

    def __new__(cls, mode: Any = True) -> Any:
        if callable(mode):
            return cls()(mode)
        return super().__new__(cls)

    def __init__(self, mode: Any = True) -> None:
        super().__init__()
        self._mode = bool(mode)

    def _clone(self) -> _Mode:
        return inference_mode(self._mode)

    def _switch(self) -> None:
        switch(not self._mode, self._mode)


def is_grad_enabled() -> bool:
    """Whether operations are recorded for differentiation in this thread."""
    return modes.grad


def is_inference_mode_enabled() -> bool:
    """Whether ``inference_mode`` is active in this thread."""
    return modes.inference
