"""Taylor mode: ``taylor``, ``jet`` and ``derivative``, in O(order²) operations.

>>> import numpy as np, tapec
>>> tapec.taylor(np.exp, 0.0, 4)
array([1.        , 1.        , 0.5       , 0.16666667, 0.04166667])
>>> tapec.derivative(np.sin, 3)(0.0)
-1.0
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapec import trees
from tapec.api import jit
from tapec.errors import TapecTypeError, TapecValueError, UnsupportedError
from tapec.ir.taylor import taylor as _taylor
from tapec.signature import Flat, Layout, Spec, Static
from tapec.tape import as_tracer, current_tape, is_traced
from tapec.trace import Constant, trace, where_defined

__all__ = ["derivative", "jet", "taylor"]


class Expansion:
    """The series of ``fn(x + t v, *rest)`` in t; called with a tape active.

    ``kind``: ``taylor`` (coefficients), ``jet`` (derivatives), ``last`` (the last of those).
    """

    def __init__(
        self, fn: Callable[..., Any], order: int, kind: str, holomorphic: bool = False
    ) -> None:
        functools.update_wrapper(self, fn, updated=())
        self.order = order
        self.kind = kind
        self.holomorphic = holomorphic

    @property
    def origin(self) -> tuple[Any, Any]:
        return self.__wrapped__, ("taylor", self.order, self.kind, self.holomorphic)  # type: ignore[attr-defined]

    def __call__(self, direction: Any, /, x: Any, *rest: Any) -> Any:
        tape = current_tape()
        if tape is None:
            raise RuntimeError("an expansion runs only while it is traced")
        fn: Any = self.__wrapped__  # type: ignore[attr-defined]
        leaves, treedef = trees.flatten(((x, *rest), {}))
        moving, x_def = trees.flatten(x)
        n = len(moving)
        if direction is None:
            names = trees.part_names(x_def)
            self._check_complex(names)
            directions: list[Any] = [
                np.full(np.shape(leaf), 0.0 if name == "imag" else 1.0)
                for leaf, name in zip(moving, names)
            ]
        else:
            directions, v_def = trees.flatten(direction)
            fitted = trees.fit(directions, v_def, x_def)
            if fitted is None:
                raise TapecTypeError(
                    f"{self.kind}: the direction has the structure {v_def}, the point {x_def}"
                )
        keys: list[Spec | Static] = []
        given, operands, seeds = [], [], []
        for k, leaf in enumerate(leaves):
            if k < n and type(leaf) is int:
                leaf = float(leaf)
            number = (np.ndarray, np.generic, float, complex)
            if not (is_traced(leaf) or isinstance(leaf, number)):
                keys.append(Static(type(leaf), leaf))
                given.append(leaf)
                continue
            tracer = as_tracer(tape, leaf)
            if k < n:
                if not tracer.type.dtype.is_inexact:
                    raise TapecTypeError(
                        f"{self.kind}: the point has dtype {tracer.type.dtype.np}; convert it "
                        "with .astype(float)"
                    )
                seed = as_tracer(tape, directions[k])
                if seed.type.shape != tracer.type.shape:
                    raise TapecValueError(
                        f"{self.kind}: the direction has shape {seed.type.shape}, the point "
                        f"{tracer.type.shape}"
                    )
                seeds.append(seed.astype(tracer.type.dtype.np))
            weak = tracer.weak and tracer.type.dtype.kind == "f"
            keys.append(Spec("float" if weak else "array", tracer.type))
            operands.append(tracer)
            given.append(tracer)
        if len(seeds) < n:
            raise TapecTypeError(f"{self.kind}: the point holds values that are no numbers")
        flat = Flat(given, tuple(keys), Layout(treedef, None, self.kind))
        traced = trace(fn, flat, getattr(fn, "__name__", "series").strip("<>"))
        operands += [as_tracer(tape, c) for c in traced.captures]
        try:
            expanded = _taylor(traced.fn, self.order, range(n))
        except NotImplementedError as error:
            raise UnsupportedError(f"{where_defined(fn)}: {error}") from None
        values = tape.inline(expanded, [*operands, *seeds])
        results = []
        for leaf in traced.leaves:
            if isinstance(leaf, Constant):
                if not isinstance(leaf.value, (int, float, np.number)):
                    raise TapecTypeError(
                        f"{self.kind}: {where_defined(fn)} returned {leaf.value!r}, which has no "
                        "derivative"
                    )
                series = as_tracer(tape, np.array([leaf.value] + [0.0] * self.order))
            elif not leaf.type.dtype.is_inexact:
                raise TapecTypeError(
                    f"{self.kind}: {where_defined(fn)} returned an array of dtype "
                    f"{leaf.type.dtype.np}, which has no derivative"
                )
            else:
                series = values[leaf.slot]
            results.append(self._scaled(series))
        return trees.unflatten(traced.treedef, results)

    def _check_complex(self, names: Sequence[str]) -> None:
        if any(names) and not self.holomorphic:
            hint = "give the direction"
            if self.kind == "last":
                hint = "use holomorphic=True if the function is complex differentiable"
            what = "derivative" if self.kind == "last" else self.kind
            raise TapecTypeError(f"{what}: the point is complex; {hint}")

    def _scaled(self, series: Any) -> Any:
        if self.kind == "taylor":
            return series
        if self.kind == "last":
            return series[self.order] * float(math.factorial(self.order))
        factorials = [float(math.factorial(k)) for k in range(self.order + 1)]
        shape = (self.order + 1, *[1] * (series.ndim - 1))
        return series * np.array(factorials).reshape(shape).astype(series.dtype)


def _order(order: Any, what: str) -> int:
    try:
        n = operator.index(order)
    except TypeError:
        raise TapecTypeError(f"{what}: the order is an int, not {order!r}") from None
    if not 0 <= n <= 170:
        raise TapecValueError(f"{what}: the order is between 0 and 170, not {n}")
    return n


def _expanded(fn: Any, order: Any, kind: str, what: str, holomorphic: bool = False) -> Any:
    if not callable(fn):
        raise TapecTypeError(f"{what} expects a function, not a {type(fn).__qualname__}")
    return jit(Expansion(fn, _order(order, what), kind, holomorphic))


def taylor(fn: Callable[..., Any], x: Any, order: int, direction: Any = None) -> Any:
    """Taylor coefficients of ``fn(x + t v)`` in t: entry k is the k-th derivative over k!.

    ``direction`` is v, like ``x``; by default ones, so that an elementwise function of an
    array gives the coefficients at each element.  The coefficients stand along a new first
    axis of each result.

    >>> import tapec
    >>> tapec.taylor(lambda x: 1 / (1 - x), 0.0, 3)
    array([1., 1., 1., 1.])
    """
    return _expanded(fn, order, "taylor", "taylor")(direction, x)


def jet(fn: Callable[..., Any], x: Any, order: int, direction: Any = None) -> Any:
    """The derivatives of ``fn(x + t v)`` by t at 0, of orders 0 to ``order``; as ``taylor``.

    >>> import tapec
    >>> tapec.jet(lambda x: x ** 3, 2.0, 3)
    array([ 8., 12., 12.,  6.])
    """
    return _expanded(fn, order, "jet", "jet")(direction, x)


def derivative(fn: Callable[..., Any], n: int = 1, holomorphic: bool = False) -> Callable[..., Any]:
    """The ``n``-th derivative of a function of one number (elementwise for arrays).

    Further arguments are passed on.  A complex argument needs ``holomorphic=True``, which says
    that the function is complex differentiable.  Costs O(n²) operations, not 2^n.

    >>> import numpy as np, tapec
    >>> tapec.derivative(lambda x: x ** 4, 2)(np.array([1.0, 2.0]))
    array([12., 48.])
    """
    return functools.partial(_expanded(fn, n, "last", "derivative", bool(holomorphic)), None)
