"""The transforms: ``grad``, ``value_and_grad``, ``jit``, ``jacobian``, ``hessian``, ``hvp``, and
``fuse``.

Each takes a function written in plain NumPy and returns a function.  They can be used as
decorators, with or without options, and applied to each other's results to any order.
The returned callable traces and compiles at the first call with a new signature (types,
shapes, static values) and runs native code afterwards.

>>> import numpy as np, tapec
>>> @tapec.value_and_grad
... def loss(w, x):
...     return np.sum((w * x) ** 2)
>>> loss(3.0, np.array([1.0, 2.0]))
(45.0, 30.0)
"""

from __future__ import annotations

import functools
import sys
import types
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

import numpy as np

from tapec.codegen.abi import new_callable
from tapec.codegen.callable_type import callable_type, slow_of
from tapec.dispatch import Dispatcher
from tapec.errors import TapecTypeError
from tapec.tensors.transforms import has_tensors
from tapec.transforms import Transform

if TYPE_CHECKING:
    from tapec.report import Report, Stats

__all__ = [
    "fuse",
    "grad",
    "hessian",
    "hvp",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jit",
    "value_and_grad",
]

F = TypeVar("F", bound=Callable[..., Any])


class Transformed(Protocol):
    """What the transforms return: a native callable with the function's name and docstring."""

    __name__: str
    __wrapped__: Callable[..., Any]

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any: ...

    def dump(self, stage: str, /, *args: Any, **kwargs: Any) -> str:
        """One stage of the program of a call, as text; see ``tapec.dump``."""

    def report(self, /, *args: Any, **kwargs: Any) -> Report:
        """What the program of a call does, and what it costs; see ``tapec.report``."""

    def stats(self, /) -> Stats:
        """What has been compiled so far; see ``tapec.report``."""


Decorator = Callable[[Callable[..., Any]], Transformed]


# -- the callable -----------------------------------------------------------------------


class _Slow:
    """Serves every call that native code declines.  It knows its callable only weakly, so
    that a dropped callable is freed at once, with all that it captured."""

    __slots__ = ("bound", "cls", "dispatcher", "subject", "transform")

    def __init__(
        self, subject: Callable[..., Any], transform: Transform, dispatcher: Dispatcher
    ) -> None:
        self.subject = subject
        self.transform = transform
        self.dispatcher = dispatcher
        #: the class whose attribute the callable is, set when the class is created
        self.cls: type | None = None
        self.bound: dict[int, tuple[weakref.ref[Any], Dispatcher]] = {}

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if self.cls is not None and args and isinstance(args[0], self.cls):
            return self._method(args[0], args, kwargs)
        if has_tensors(args, kwargs):
            from tapec.tensors import transforms

            def run(args: Any, kwargs: Any) -> Any:
                return self.dispatcher.call(self.subject, args, kwargs)

            return transforms.call(self.subject, self.transform, args, kwargs, run)
        return self.dispatcher.call(self.subject, args, kwargs)

    def _method(self, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call as a method: the instance is part of the function, and argnums count the
        arguments after it."""
        entry = self.bound.get(id(instance))
        if entry is None or entry[0]() is not instance:
            bound = self.bound
            key = id(instance)
            try:
                ref = weakref.ref(instance, lambda _: bound.pop(key, None))
            except TypeError:  # no weak references: an argument like any other
                return self._unbound(args, kwargs)
            entry = bound[key] = ref, Dispatcher(self.transform, self.dispatcher.name)
        return entry[1].call(types.MethodType(self.subject, instance), args[1:], kwargs)

    def _unbound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        transform = self.transform
        if transform.argnums is not None:
            shifted = tuple(k + 1 if k >= 0 else k for k in transform.argnums)
            transform = transform._replace(argnums=shifted)
        entry = self.bound.get(0)
        if entry is None:
            entry = self.bound[0] = weakref.ref(type), Dispatcher(transform, self.dispatcher.name)
        return entry[1].call(self.subject, args, kwargs)


def name_of(subject: Any) -> str:
    name = getattr(subject, "__name__", None) or type(subject).__name__
    return "".join(c if c.isalnum() or c == "_" else "_" for c in name).strip("_") or "lambda"


def make(subject: Callable[..., Any], transform: Transform) -> Any:
    if not callable(subject):
        raise TapecTypeError(
            f"{transform.kind} expects a function, not a {type(subject).__qualname__}"
        )
    _prepare_type()
    dispatcher = _orphan(subject, transform) or Dispatcher(transform, name_of(subject))
    made = new_callable(_Slow(subject, transform, dispatcher))
    dispatcher.adopt(made)
    fn, key = _origin(subject)
    if type(fn) is types.FunctionType:
        weakref.finalize(made, _leave, weakref.ref(fn), (transform, key), dispatcher).atexit = False
    for name in ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__"):
        value = getattr(subject, name, None)
        if value is not None:
            setattr(made, name, value)
    if not hasattr(made, "__name__"):
        made.__name__ = made.__qualname__ = name_of(subject)
    made.__wrapped__ = subject
    return made


#: Variants of callables that are gone, while the function still lives: ``grad(f)(x)`` in a
#: loop makes a callable per iteration and must not compile each time.
_orphans: weakref.WeakKeyDictionary[Any, dict[Any, Dispatcher]] = weakref.WeakKeyDictionary()


def _origin(subject: Any) -> tuple[Any, Any]:
    """The user's function behind ``subject``, and what else tells ``subject`` apart."""
    found: tuple[Any, Any] = getattr(subject, "origin", (subject, None))
    return found


def _orphan(subject: Any, transform: Transform) -> Dispatcher | None:
    fn, key = _origin(subject)
    if type(fn) is not types.FunctionType:
        return None
    return _orphans.get(fn, {}).pop((transform, key), None)


def _leave(subject: weakref.ref[Any], key: Any, dispatcher: Dispatcher) -> None:
    """A callable is gone: keep its variants for the next one of the same function."""
    fn = subject()
    if fn is not None and not dispatcher.mentions(fn):
        _orphans.setdefault(fn, {})[key] = dispatcher


@functools.cache
def _prepare_type() -> None:
    """Give the native type what users expect of a function."""
    cls = callable_type()
    cls.__repr__ = _repr
    cls.__reduce__ = _reduce
    cls.__set_name__ = _set_name
    cls.dump = _dump
    cls.report = _report
    cls.stats = _stats


def _repr(self: Any) -> str:
    transform = slow_of(self).transform  # type: ignore[attr-defined]
    name = getattr(self, "__qualname__", "?")
    options = ""
    if transform.argnums not in (None, (0,)):
        shown = transform.argnums[0] if transform.single else transform.argnums
        options += f", argnums={shown}"
    if transform.has_aux:
        options += ", has_aux=True"
    if transform.holomorphic:
        options += ", holomorphic=True"
    return f"<tapec.{transform.kind}({name}{options})>"


def _reduce(self: Any) -> Any:
    slow: Any = slow_of(self)
    module, name = getattr(self, "__module__", None), getattr(self, "__qualname__", "")
    found: Any = sys.modules.get(module or "")
    try:
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError:
        found = None
    if found is self:  # a decorated function: pickled by its name, like any function
        return name
    return _restore, (slow.subject, tuple(slow.transform))


def _restore(subject: Callable[..., Any], transform: tuple[Any, ...]) -> Any:
    """Unpickling: the transform of a function."""
    return make(subject, Transform(*transform))


def _set_name(self: Any, owner: type, name: str) -> None:
    slow_of(self).cls = owner  # type: ignore[attr-defined]


def _dump(self: Any, stage: str, /, *args: Any, **kwargs: Any) -> str:
    """The program of one call as text.

    ``stage``: ``tape``, ``ir`` (as traced), ``grad`` (transformed), ``opt`` (simplified),
    ``loops``, ``llvm`` or ``asm``.  The arguments are those of a call.
    """
    from tapec.dump import dump

    return dump(slow_of(self).dispatcher, slow_of(self).subject, stage, args, kwargs)  # type: ignore[attr-defined]


def _report(self: Any, /, *args: Any, **kwargs: Any) -> Any:
    """What the program of one call does, and what it costs: see ``tapec.report``."""
    from tapec.report import report

    slow: Any = slow_of(self)
    return report(slow.dispatcher, slow.subject, lambda: self(*args, **kwargs), args, kwargs)


def _stats(self: Any, /) -> Any:
    """What has been compiled for this function so far: see ``tapec.report``."""
    from tapec.report import stats

    return stats(slow_of(self).dispatcher)  # type: ignore[attr-defined]


def _is_position(k: Any) -> bool:
    return isinstance(k, (int, np.integer)) and not isinstance(k, bool)


def _argnums(argnums: Any, kind: str) -> tuple[tuple[int, ...], bool]:
    """Normalised argnums, and whether it was one number."""
    if _is_position(argnums):
        return (int(argnums),), True
    many = isinstance(argnums, Sequence) and not isinstance(argnums, (str, bytes))
    if many and argnums and all(_is_position(k) for k in argnums):
        return tuple(int(k) for k in argnums), False
    raise TapecTypeError(
        f"{kind}: argnums is a position or a tuple of positions of arguments, not {argnums!r}"
    )


def _transform(
    fn: Any, kind: str, argnums: Any, has_aux: bool = False, holomorphic: bool = False
) -> Any:
    positions, single = _argnums(argnums, kind)
    transform = Transform(kind, positions, single, bool(has_aux), bool(holomorphic))
    if fn is None:
        return lambda fn: make(fn, transform)
    return make(fn, transform)


# -- public -----------------------------------------------------------------------------


@overload
def grad(
    fn: None = None,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Decorator: ...
@overload
def grad(
    fn: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Transformed: ...
def grad(fn: Any = None, argnums: Any = 0, has_aux: bool = False, holomorphic: bool = False) -> Any:
    """The gradient of a scalar function.

    ``fn`` returns one real floating-point scalar (shape ``()``); with ``has_aux`` a pair
    ``(scalar, aux)``.  ``argnums`` says which positional arguments to differentiate: a
    position, or a tuple of positions for a tuple of gradients.  Arguments may be containers
    (tuples, lists, dicts, anything registered with optree); the gradient has the structure,
    shapes and dtypes of the argument.  Python ints are taken as floats.

    The result takes the same arguments as ``fn`` and returns the gradient, with
    ``has_aux`` the pair ``(gradient, aux)``.

    The gradient with respect to a complex argument z is dL/d(re z) + i dL/d(im z), the
    direction of steepest ascent (PyTorch's convention).  For a function that is complex
    differentiable, ``holomorphic=True`` gives its derivative: arguments and result are complex.

    Raises ``TypeError`` for integer arrays, for functions that return containers or complex
    values and for argnums that do not exist, ``ValueError`` for a result that is not a scalar.

    >>> import numpy as np, tapec
    >>> tapec.grad(np.abs)(3 + 4j)
    (0.6+0.8j)
    >>> tapec.grad(lambda z: z * z, holomorphic=True)(1 + 2j)
    (2+4j)
    >>> tapec.grad(lambda x: np.sum(x ** 2))(np.array([1.0, 2.0]))
    array([2., 4.])
    >>> tapec.grad(lambda a, b: a * b, argnums=(0, 1))(2.0, 5.0)
    (5.0, 2.0)
    """
    return _transform(fn, "grad", argnums, has_aux, holomorphic)


@overload
def value_and_grad(
    fn: None = None,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Decorator: ...
@overload
def value_and_grad(
    fn: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Transformed: ...
def value_and_grad(
    fn: Any = None, argnums: Any = 0, has_aux: bool = False, holomorphic: bool = False
) -> Any:
    """The value and the gradient of a scalar function, computed together.

    As ``grad``, but the result returns ``(value, gradient)``; with ``has_aux``
    ``((value, aux), gradient)``.

    >>> import numpy as np, tapec
    >>> tapec.value_and_grad(lambda x: np.sin(x) * x)(0.0)
    (0.0, 0.0)
    """
    return _transform(fn, "value_and_grad", argnums, has_aux, holomorphic)


def jit(fn: F) -> F:
    """``fn`` compiled to native code.

    Arrays, Python floats and NumPy scalars are traced, whatever else is hashable is part of
    the signature.  Results that do not depend on traced arguments (strings, ints, ``None``)
    are returned as they were at the trace.  A result of shape ``()`` is a Python float
    (float64), int (int64) or bool, otherwise a NumPy scalar.

    >>> import numpy as np, tapec
    >>> tapec.jit(lambda x, n: np.sum(x ** n))(np.array([1.0, 2.0]), 3)
    9.0
    """
    made: F = make(fn, Transform("jit"))
    return made


@overload
def jacobian(
    fn: None = None, argnums: int | Sequence[int] = 0, holomorphic: bool = False
) -> Decorator: ...
@overload
def jacobian(
    fn: Callable[..., Any], argnums: int | Sequence[int] = 0, holomorphic: bool = False
) -> Transformed: ...
def jacobian(fn: Any = None, argnums: Any = 0, holomorphic: bool = False) -> Any:
    """The Jacobian of an array function, dense.

    For a result of shape ``s`` and an argument of shape ``t`` the Jacobian has shape
    ``s + t``.  A container as the result or argument gives a container of blocks (the
    result's structure outside).  Forward or reverse mode is chosen by the numbers of
    inputs and outputs.  A function that ignores its argument has zeros.

    A complex result of real arguments has a complex Jacobian; a row of the Jacobian of a
    real result by complex arguments is its gradient.  For complex results of complex arguments
    there is one only if the function is complex differentiable, which ``holomorphic=True``
    says.

    Raises ``TypeError`` for integer arguments or results.

    >>> import numpy as np, tapec
    >>> tapec.jacobian(lambda x: x ** 2)(np.array([1.0, 2.0]))
    array([[2., 0.],
           [0., 4.]])
    """
    return _transform(fn, "jacobian", argnums, False, holomorphic)


@overload
def jacfwd(
    fn: None = None, argnums: int | Sequence[int] = 0, holomorphic: bool = False
) -> Decorator: ...
@overload
def jacfwd(
    fn: Callable[..., Any], argnums: int | Sequence[int] = 0, holomorphic: bool = False
) -> Transformed: ...
def jacfwd(fn: Any = None, argnums: Any = 0, holomorphic: bool = False) -> Any:
    """``jacobian`` in forward mode: column by column, whatever the numbers of rows and columns.

    >>> import numpy as np, tapec
    >>> tapec.jacfwd(lambda x: np.stack([x, x ** 2, x ** 3]))(2.0)
    array([ 1.,  4., 12.])
    """
    return _transform(fn, "jacfwd", argnums, False, holomorphic)


@overload
def jacrev(
    fn: None = None, argnums: int | Sequence[int] = 0, holomorphic: bool = False
) -> Decorator: ...
@overload
def jacrev(
    fn: Callable[..., Any], argnums: int | Sequence[int] = 0, holomorphic: bool = False
) -> Transformed: ...
def jacrev(fn: Any = None, argnums: Any = 0, holomorphic: bool = False) -> Any:
    """``jacobian`` in reverse mode: row by row, whatever the numbers of rows and columns.

    >>> import numpy as np, tapec
    >>> tapec.jacrev(lambda x: np.sum(x ** 2))(np.array([1.0, 2.0]))
    array([2., 4.])
    """
    return _transform(fn, "jacrev", argnums, False, holomorphic)


@overload
def hessian(
    fn: None = None, argnums: int | Sequence[int] = 0, holomorphic: bool = False
) -> Decorator: ...
@overload
def hessian(
    fn: Callable[..., Any], argnums: int | Sequence[int] = 0, holomorphic: bool = False
) -> Transformed: ...
def hessian(fn: Any = None, argnums: Any = 0, holomorphic: bool = False) -> Any:
    """The Hessian of a scalar function, dense: forward mode over reverse mode.

    For an argument of shape ``t`` it has shape ``t + t``; containers (and a tuple of
    argnums) give containers of containers of blocks.  Of complex arguments there is one for
    complex differentiable functions, by ``holomorphic=True``; for others see ``hvp``.

    >>> import numpy as np, tapec
    >>> tapec.hessian(lambda x: x[0] ** 2 * x[1])(np.array([1.0, 2.0]))
    array([[4., 2.],
           [2., 0.]])
    """
    return _transform(fn, "hessian", argnums, False, holomorphic)


@overload
def hvp(fn: None = None, argnums: int = 0) -> Decorator: ...
@overload
def hvp(fn: Callable[..., Any], argnums: int = 0) -> Transformed: ...
def hvp(fn: Any = None, argnums: int = 0) -> Any:
    """Hessian times vector, without the Hessian: ``hvp(fn)(x, v, *rest)``.

    The vector follows the argument that is differentiated (one position) and has its
    structure and shapes.  This is the call that ``scipy.optimize.minimize(hessp=...)``
    expects.

    >>> import numpy as np, tapec
    >>> tapec.hvp(lambda x: np.sum(x ** 3))(np.array([1.0, 2.0]), np.array([1.0, 0.5]))
    array([6., 6.])
    """
    if not _is_position(argnums) or argnums < 0:
        raise TapecTypeError(f"hvp: argnums is one non-negative position, not {argnums!r}")
    return _transform(fn, "hvp", argnums)


def fuse(**functions: Callable[..., Any]) -> Any:
    """Several functions of the same arguments as one native function that computes what they share
    once.

    ``functions``: any of NumPy functions and transforms, which are called with the same arguments.
    The result is called with those and returns a tuple of their results, in the order in which they
    were given; the names are for you (and ``__name__``).

    Raises ``TypeError`` for what is not a function.

    >>> import numpy as np, tapec
    >>> def f(x): return np.sum(np.exp(x) * x)
    >>> newton = tapec.fuse(value=f, grad=tapec.grad(f), hess=tapec.hessian(f))
    >>> value, g, h = newton(np.zeros(2))
    >>> value, g, h
    (0.0, array([1., 1.]), array([[2., 0.],
           [0., 2.]]))
    """
    for name, fn in functions.items():
        if not callable(fn):
            raise TapecTypeError(f"fuse: {name} is a {type(fn).__qualname__}, not a function")
    if not functions:
        raise TapecTypeError("fuse expects functions, as in fuse(value=f, grad=tapec.grad(f))")
    parts = tuple(functions.values())

    def fused(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        return tuple([fn(*args, **kwargs) for fn in parts])

    fused.__name__ = fused.__qualname__ = "_".join(functions)
    return jit(fused)


def forget() -> None:
    """Drop the variants that no callable holds."""
    _orphans.clear()
    from tapec import points

    points.forget()
