"""Functions with derivative rules of their own: ``custom_vjp``, ``custom_jvp``, ``primitive``,
``stop_gradient``.

A call on traced values records one operation, ``custom``, whose regions are the traced body
and the traced rule.  One rule serves forward and reverse mode, batching and all orders:
the derivative of a rule is what differentiating the rule's own operations gives.  Inside a
rule the results of the function stand for themselves: a call of the function on the
arguments that the rule was given, and what ``fwd`` returns as its first result, are the results
of the operation, with the rule again.

Invariant: a derivative that no rule gives is an error, never zero.

>>> import numpy as np, tapec
>>> @tapec.custom_jvp
... def cube(x):
...     return x * x * x
>>> @cube.defjvp
... def cube_jvp(primals, tangents):
...     (x,), (t,) = primals, tangents
...     return cube(x), 3 * x * x * t
>>> tapec.grad(tapec.grad(cube))(2.0)
12.0
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tapec import api as _api  # noqa: F401  (imports the front end in order)
from tapec import trees
from tapec.errors import TapecTypeError, TapecValueError
from tapec.ir.core import Block, Type, Value
from tapec.ir.opdef import OPS
from tapec.kinds import weak_kind
from tapec.lift import lift
from tapec.primitives import broadcast_to
from tapec.tape import Handle, Tape, as_tracer, current_tape, is_traced
from tapec.trace import parameter_names, where_defined

if TYPE_CHECKING:
    from optree import PyTreeSpec

    from tapec.tracer import Tracer

__all__ = ["custom_jvp", "custom_vjp", "primitive", "stop_gradient"]

F = TypeVar("F", bound=Callable[..., Any])

#: Rules that call functions with rules are followed so deep; beyond, a derivative is an error.
DEPTH = 4
_NUMBERS = (np.ndarray, np.generic, float, complex)


class _Input:
    """An input of a region: its type, the caller's value if known, and a name."""

    __slots__ = ("concrete", "hint", "type", "weak")

    def __init__(self, type: Type, concrete: Any, hint: str | None, weak: bool = False) -> None:
        self.type = type
        self.concrete = concrete
        self.hint = hint
        self.weak = weak


class _Region:
    """A traced region: its function (inputs, then captures) and what it captured."""

    __slots__ = ("captures", "fn")

    def __init__(
        self, name: str, inputs: Sequence[_Input], run: Callable[[Tape, list[Any]], list[Any]]
    ) -> None:
        with Tape(name) as tape:
            given = [tape.input(i.type, i.concrete, i.hint, weak=i.weak) for i in inputs]
            self.fn = lift(tape, run(tape, given), name)
        self.captures = [c.obj for c in tape.captures]

    def block(self, at: int, captures: Sequence[Any], types: Sequence[Type]) -> Block:
        """The body with all of ``captures`` as parameters, after the first ``at``."""
        n = len(self.fn.params) - len(self.captures)
        own = {_key(c): p for c, p in zip(self.captures, self.fn.params[n:])}
        hidden = [own.get(_key(c)) or Value(t) for c, t in zip(captures, types)]
        params = [*self.fn.params[:at], *hidden, *self.fn.params[at:n]]
        return Block(params, self.fn.ops, self.fn.results)


def _key(obj: Any) -> Any:
    return (id(obj.tape), obj.id) if isinstance(obj, Handle) else id(obj)


class _Nesting(threading.local):
    """The rules that are being traced: (function, its arguments' ids, its results)."""

    def __init__(self) -> None:
        self.rules: list[tuple[Any, Any, Any]] = []


_nesting = _Nesting()


class _Custom:
    """What ``custom_vjp`` and ``custom_jvp`` share: the call."""

    mode = ""

    def __init__(self, fn: Callable[..., Any]) -> None:
        if not callable(fn):
            raise TapecTypeError(f"{type(self).__name__} expects a function, not {fn!r}")
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.name = getattr(fn, "__name__", type(fn).__name__)

    def __repr__(self) -> str:
        return f"<tapec.{type(self).__name__}({self.name})>"

    #: what else is called, for those who look for what a trace depended on
    __rules__: tuple[Any, ...] = ()

    def has_rule(self) -> bool:
        raise NotImplementedError

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        tape = current_tape()
        leaves, treedef = trees.flatten((args, kwargs))
        if tape is None or not any(is_traced(x) for x in leaves):
            return self.fn(*args, **kwargs)
        if not self.has_rule():
            raise TapecTypeError(
                f"'{self.name}' ({where_defined(self.fn)}) has no rule yet; define it with "
                f"{self.name}.{'defvjp(fwd, bwd)' if self.mode == 'vjp' else 'defjvp(rule)'}"
            )
        values = [as_tracer(tape, x) if _is_number(x) else x for x in leaves]
        return _Call(self, tape, values, treedef).record()

    def rule(self, call: _Call, tape: Tape, given: list[Any]) -> list[Any]:
        raise NotImplementedError


def _is_number(x: Any) -> bool:
    return is_traced(x) or isinstance(x, _NUMBERS)


class _Call:
    """One recorded call: its arguments, and what its body returned."""

    def __init__(self, custom: _Custom, tape: Tape, values: list[Any], treedef: PyTreeSpec) -> None:
        self.custom = custom
        self.tape = tape
        self.values = values
        self.treedef = treedef
        self.at = [k for k, v in enumerate(values) if isinstance(v, Handle)]
        self.operands: list[Any] = [values[k] for k in self.at]
        self.out_treedef: PyTreeSpec
        self.out_leaves: list[Any] = []  # index of a result, or the constant itself

    def arguments(self, given: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The user's arguments with other values for the operands."""
        leaves = list(self.values)
        for k, v in zip(self.at, given):
            leaves[k] = v
        args, kwargs = trees.unflatten(self.treedef, leaves)
        return args, kwargs

    def results(self, values: Sequence[Any]) -> Any:
        return trees.unflatten(
            self.out_treedef,
            [values[x.index] if isinstance(x, _Index) else x for x in self.out_leaves],
        )

    def record(self) -> Any:
        custom, tape = self.custom, self.tape
        same = self._known()
        if same is not None:
            return same
        inputs = [_Input(v.type, v, None, v.weak) for v in self.operands]
        body = _Region(custom.name, inputs, self._body)
        regions = [body]
        mode = custom.mode if len(_nesting.rules) < DEPTH else "missing"
        if mode != "missing":
            outs = [_Input(r.type, None, r.hint) for r in body.fn.results]
            args = [_Input(v.type, v, None) for v in self.operands]
            seeds = [i for i in (outs if mode == "vjp" else args) if i.type.dtype.is_inexact]
            seeds = [_Input(i.type, None, "ct" if mode == "vjp" else "t") for i in seeds]
            regions.append(_Region(f"{custom.name}_rule", [*args, *outs, *seeds], self._rule))
        captures = list({_key(c): c for r in regions for c in r.captures}.values())
        hidden = [as_tracer(tape, c) for c in captures]
        types = [h.type for h in hidden]
        n = len(self.operands)
        blocks = tuple([r.block(n, captures, types) for r in regions])
        attrs = {"mode": mode, "n_args": n, "name": custom.name}
        operands = (*self.operands, *hidden)
        made = OPS["custom"].infer_regions
        assert made is not None
        found = made(tuple([v.type for v in operands]), attrs, blocks)
        if not found:
            return self.results([])
        at = tape.push(
            "custom", tuple([v.id for v in operands]), {**attrs, "regions": blocks}, found
        )
        return self.results([tape.handle(at + k) for k in range(len(found))])

    def _known(self) -> Any:
        """The results that the rule being traced was given, if this is the call it is about."""
        for custom, ids, results in reversed(_nesting.rules):
            if custom is self.custom and ids == self._identity(self.values):
                return results
        return None

    @staticmethod
    def _identity(values: Sequence[Any]) -> list[Any]:
        return [(id(v.tape), v.id) if isinstance(v, Handle) else (type(v), repr(v)) for v in values]

    def _body(self, tape: Tape, given: list[Any]) -> list[Any]:
        args, kwargs = self.arguments(given)
        leaves, self.out_treedef = trees.flatten(self.custom.fn(*args, **kwargs))
        results: list[Any] = []
        self.out_leaves = []
        for leaf in leaves:
            if _is_number(leaf):
                self.out_leaves.append(_Index(len(results)))
                results.append(leaf)
            else:
                self.out_leaves.append(leaf)
        return results

    def _rule(self, tape: Tape, given: list[Any]) -> list[Any]:
        n = len(self.operands)
        count = sum(isinstance(x, _Index) for x in self.out_leaves)
        args, outs, seeds = given[:n], given[n : n + count], given[n + count :]
        leaves = list(self.values)
        for k, v in zip(self.at, args):
            leaves[k] = v
        _nesting.rules.append((self.custom, self._identity(leaves), self.results(outs)))
        try:
            return self.custom.rule(self, tape, [args, outs, seeds])
        finally:
            _nesting.rules.pop()

    def checked(self, tape: Tape, value: Any, type: Type, what: str) -> Tracer:
        """A derivative that the user's rule gave, as a value of exactly ``type``."""
        if value is None:
            value = np.zeros(type.shape, type.dtype.np)[()]
        try:
            found = as_tracer(tape, value)
        except (TypeError, ValueError) as error:
            raise TapecTypeError(
                f"the rule of '{self.custom.name}' gives {what}: {error}"
            ) from None
        if found.type.shape != type.shape:
            raise TapecValueError(
                f"the rule of '{self.custom.name}' gives {what} of shape {found.type.shape}, "
                f"expected {type.shape}"
            )
        return found if found.type is type else found.astype(type.dtype.np)


class _Index:
    """Place of a result leaf among the operation's results."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


class custom_vjp(_Custom):
    """A function whose reverse-mode derivative is given: ``f.defvjp(fwd, bwd)``.

    ``fwd`` takes the arguments of ``f`` and returns ``(f(...), residuals)``; ``bwd`` takes
    ``(residuals, ct)``, where ``ct`` has the structure of the result, and returns a tuple with
    one cotangent per positional argument (None: zero).  Forward mode, batching and higher
    derivatives follow: ``bwd`` must be linear in ``ct``.

    >>> import numpy as np, tapec
    >>> @tapec.custom_vjp
    ... def clipped(x):
    ...     return x * 2
    >>> clipped.defvjp(lambda x: (clipped(x), x), lambda x, ct: (np.clip(ct, -1, 1) * 0 + ct,))
    >>> tapec.grad(clipped)(3.0)
    1.0
    """

    mode = "vjp"

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__(fn)
        self.fwd: Callable[..., Any] | None = None
        self.bwd: Callable[..., Any] | None = None

    def has_rule(self) -> bool:
        return self.bwd is not None

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        if not callable(fwd) or not callable(bwd):
            raise TapecTypeError("defvjp expects two functions, fwd and bwd")
        self.fwd, self.bwd = fwd, bwd
        self.__rules__ = (fwd, bwd)

    def rule(self, call: _Call, tape: Tape, given: list[Any]) -> list[Any]:
        args, outs, seeds = given
        assert self.fwd is not None and self.bwd is not None
        positional, keywords = call.arguments(args)
        pair = self.fwd(*positional, **keywords)
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TapecTypeError(
                f"fwd of '{self.name}' returns (result, residuals), a tuple of two; it returned "
                f"{type(pair).__qualname__}"
            )
        result, residuals = pair
        leaves, treedef = trees.flatten(result)
        if treedef != call.out_treedef:
            raise TapecTypeError(
                f"fwd of '{self.name}' returned a result of structure {treedef}, the function "
                f"itself {call.out_treedef}"
            )
        # Residuals that are results stand for the operation's own.
        own = {
            leaf.id: outs[x.index]
            for leaf, x in zip(leaves, call.out_leaves)
            if isinstance(x, _Index) and isinstance(leaf, Handle) and leaf.tape is tape
        }
        kept, kept_def = trees.flatten(residuals)
        kept = [own.get(x.id, x) if isinstance(x, Handle) and x.tape is tape else x for x in kept]
        rest = iter(seeds)
        cts = [next(rest) if o.type.dtype.is_inexact else np.zeros(o.type.shape) for o in outs]
        found = self.bwd(
            trees.unflatten(kept_def, kept),
            trees.unflatten(
                call.out_treedef,
                [cts[x.index] if isinstance(x, _Index) else 0.0 for x in call.out_leaves],
            ),
        )
        if not isinstance(found, (tuple, list)) or len(found) != len(positional):
            n = len(found) if isinstance(found, (tuple, list)) else type(found).__qualname__
            raise TapecTypeError(
                f"bwd of '{self.name}' returns one cotangent per positional argument, a tuple of "
                f"{len(positional)}; it returned {n}"
            )
        return _leaves_like(call, tape, args, found)


def _leaves_like(call: _Call, tape: Tape, args: Sequence[Any], found: Sequence[Any]) -> list[Any]:
    """Cotangents per argument → one per inexact operand."""
    positional, keywords = trees.children(call.treedef)
    flat: list[Any] = []
    for k, (ct, tree) in enumerate(zip(found, trees.children(positional))):
        if ct is None:
            flat += [None] * tree.num_leaves
            continue
        leaves, treedef = trees.flatten(ct)
        if len(leaves) != tree.num_leaves or (treedef != tree and not trees.is_leaf(tree)):
            raise TapecTypeError(
                f"the cotangent of argument {k} that bwd of '{call.custom.name}' gives has the "
                f"structure {treedef}, the argument {tree}"
            )
        flat += leaves
    flat += [None] * keywords.num_leaves
    out = []
    for at, arg in zip(call.at, args):
        if arg.type.dtype.is_inexact:
            out.append(call.checked(tape, flat[at], arg.type, f"a cotangent of argument leaf {at}"))
    return out


class custom_jvp(_Custom):
    """A function whose forward-mode derivative is given: ``f.defjvp(rule)``.

    ``rule(primals, tangents)`` takes two tuples with one entry per positional argument and
    returns ``(result, tangent of the result)``.  It must be linear in the tangents.  The
    tangent of an argument that carries no derivative (an integer, a string) is None.
    """

    mode = "jvp"

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__(fn)
        self.jvp: Callable[..., Any] | None = None

    def has_rule(self) -> bool:
        return self.jvp is not None

    def defjvp(self, rule: F) -> F:
        if not callable(rule):
            raise TapecTypeError("defjvp expects a function of (primals, tangents)")
        self.jvp = rule
        self.__rules__ = (rule,)
        return rule

    def rule(self, call: _Call, tape: Tape, given: list[Any]) -> list[Any]:
        args, outs, seeds = given
        assert self.jvp is not None
        positional, keywords = call.arguments(args)
        rest = iter(seeds)
        leaves: list[Any] = [None] * len(call.values)
        for at, arg in zip(call.at, args):
            leaves[at] = next(rest) if arg.type.dtype.is_inexact else None
        if keywords:
            raise TapecTypeError(
                f"'{self.name}' has a rule for positional arguments only; it was called with "
                f"keyword arguments {', '.join(keywords)}"
            )
        tangents, _ = trees.unflatten(call.treedef, leaves)
        pair = self.jvp(positional, tangents)
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TapecTypeError(
                f"the rule of '{self.name}' returns (result, tangent), a tuple of two; it returned "
                f"{type(pair).__qualname__}"
            )
        tangent_leaves, treedef = trees.flatten(pair[1])
        if len(tangent_leaves) != len(call.out_leaves):
            raise TapecTypeError(
                f"the rule of '{self.name}' gives a tangent of structure {treedef}, the result "
                f"has {call.out_treedef}"
            )
        out = []
        for k, (t, x) in enumerate(zip(tangent_leaves, call.out_leaves)):
            if isinstance(x, _Index) and outs[x.index].type.dtype.is_inexact:
                type_ = outs[x.index].type
                out.append(call.checked(tape, t, type_, f"a tangent of result leaf {k}"))
        return out


# -- stop_gradient ------------------------------------------------------------------------


def stop_gradient(x: Any) -> Any:
    """``x``, taken as a constant by derivatives of any order; containers too.

    >>> import tapec
    >>> tapec.grad(lambda x: x * tapec.stop_gradient(x))(3.0)
    3.0
    """
    leaves, treedef = trees.flatten(x)
    return trees.unflatten(
        treedef, [_stopped(leaf) if is_traced(leaf) else leaf for leaf in leaves]
    )


def _stopped(x: Any) -> Any:
    tape = x.tape if isinstance(x, Handle) else current_tape()
    assert tape is not None
    tracer = as_tracer(tape, x)
    p = Value(tracer.type)
    attrs = {
        "mode": "none", "n_args": 1, "name": "stop_gradient", "regions": (Block([p], [], [p]),)
    }  # fmt: skip
    out = tape.handle(tape.push("custom", (tracer.id,), attrs, (tracer.type,)))
    if tracer.weak:
        out.kind = weak_kind(tracer.type)
    return out


# -- primitive ----------------------------------------------------------------------------


def primitive(fn: Any, args: Any = None, *, partials: Any = None) -> Any:
    """An elementwise function with one rule, for both modes, batching and all orders.

    ``primitive(f, partials=g)``: ``g(result, *args)`` returns the partial derivatives of ``f``,
    one per argument, as a tuple (None: zero).
    ``primitive(f, partials=[expr, ...])``: as SymPy expressions (or their text) in symbols
    named like the parameters of ``f``.
    ``primitive(expr, symbols)``: the function that a SymPy expression describes, with the
    derivatives that SymPy finds.

    >>> import sympy as sp, tapec
    >>> x = sp.Symbol("x")
    >>> f = tapec.primitive(sp.sin(x) ** 2, [x])
    >>> tapec.grad(f)(0.0)
    0.0
    """
    if hasattr(fn, "free_symbols"):
        return _from_expression(fn, args)
    if not callable(fn):
        raise TapecTypeError(f"primitive expects a function or a SymPy expression, not {fn!r}")
    if partials is None:
        raise TapecTypeError(
            "primitive expects the partial derivatives of the function (partials=...), or a "
            "SymPy expression in place of the function"
        )
    rule = partials if callable(partials) else _lambdified(parameter_names(fn), partials)
    made = custom_jvp(fn)

    def jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
        z = made(*primals)
        found = rule(z, *primals)
        if not isinstance(found, (tuple, list)) or len(found) != len(primals):
            raise TapecTypeError(
                f"the partials of '{made.name}' are a tuple with one entry per argument "
                f"({len(primals)}), not {found!r}"
            )
        terms = [t * p for t, p in zip(tangents, found) if t is not None and p is not None]
        total: Any = sum(terms[1:], terms[0]) if terms else 0.0
        shape = z.shape
        return z, broadcast_to(total, shape) if is_traced(total) and total.shape != shape else total

    made.defjvp(jvp)
    return made


def _lambdified(names: Sequence[str], partials: Sequence[Any]) -> Callable[..., Any]:
    import sympy as sp

    symbols = [sp.Symbol(n) for n in names]
    free = {s.name: s for s in symbols}
    found = [sp.sympify(p, locals=free) if isinstance(p, str) else p for p in partials]
    if len(found) != len(names):
        raise TapecTypeError(
            f"there are {len(found)} partials for the arguments {', '.join(names)}"
        )
    by_name = [p.subs({s: free[s.name] for s in p.free_symbols if s.name in free}) for p in found]
    unknown = {s.name for p in by_name for s in p.free_symbols} - free.keys()
    if unknown:
        raise TapecValueError(
            f"the partials use {', '.join(sorted(unknown))}, not among the arguments "
            f"{', '.join(names)}"
        )
    compute = sp.lambdify(symbols, by_name, modules="numpy", cse=True)
    return lambda z, *args: tuple(compute(*args))


def _from_expression(expr: Any, args: Any) -> Any:
    import sympy as sp

    if args is None:
        args = sorted(expr.free_symbols, key=lambda s: s.name)
    symbols = list(args) if isinstance(args, (tuple, list)) else [args]
    unknown = expr.free_symbols - set(symbols)
    if unknown:
        raise TapecValueError(
            f"the expression uses {sorted(map(str, unknown))}, not among {symbols}"
        )
    body = sp.lambdify(symbols, expr, modules="numpy", cse=True)
    compute = sp.lambdify(symbols, [sp.diff(expr, s) for s in symbols], modules="numpy", cse=True)

    def fn(*values: Any) -> Any:
        return body(*values)

    fn.__name__ = "expression"
    fn.__doc__ = str(expr)
    return primitive(fn, partials=lambda z, *values: tuple(compute(*values)))
