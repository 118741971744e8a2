"""Python's branches as calls: a copy of a user's function in which ``if`` can be recorded.

A branch on a traced value takes one side, and the other side needs another trace.  ``rewritten``
gives a copy of a function whose branches ask a helper (``joining.Joiner``) which side to run, so
that it can run both and record one ``cond``:

    if x > 0:                        def t(x, s): s = s + x; return (s,)
        s = s + x                    def f(x, s): s = s - x; return (s,)
    else:                       →    (s,) = tapec.branch(0, x > 0, t, f, (x, s), ...)
        s = s - x

Both sides may run at one trace, so only sides that do nothing but assign local names are taken
out; what they call is checked when it is called.  Every other branch stays as it is: a guard.
The same holds for ``a if c else b``, ``and``, ``or``, ``not``, chained comparisons, and for
``if c: return a`` with what follows it.  Calls go through the helper too, which rewrites the
user's functions that are called.

Invariant: the copy means what the original means, for whatever the helper decides.  The source
is that of the running code: it must compile to an equal code object.
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterable, Sequence
from types import CellType, CodeType, FunctionType
from typing import Any, NamedTuple

from tapec.syntax import (
    COMPREHENSIONS,
    SUSPEND,
    assigned_names,
    contains,
    inner_names,
    leaves,
    loaded_names,
    plain_expressions,
    plain_statements,
    stored_names,
)

__all__ = ["HELPER", "Rewritten", "rewritten", "with_code"]

#: The name of the helper in the copies.
HELPER = "_tapec"
#: Names that see or change the frame they are called in.
_FRAME = frozenset(("locals", "globals", "vars", "dir", "eval", "exec", "super", "__class__"))
Function = ast.FunctionDef | ast.Lambda


class Rewritten(NamedTuple):
    """The code of a copy, with ``HELPER`` as a further free variable; ``pure``: a call does
    nothing but compute its result, as far as the function itself goes."""

    code: CodeType
    pure: bool


def rewritten(code: CodeType) -> Rewritten | None:
    """The copy of the function that ``code`` belongs to; None if there is none."""
    return _rewritten(code, code.co_filename)  # which equal code objects need not share


@functools.lru_cache(1024)
def _rewritten(code: CodeType, file: str) -> Rewritten | None:
    node = _source(code)
    if node is None:
        return None
    names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
    hidden = [n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)]
    if not _FRAME.isdisjoint(names) or HELPER in names:
        return None
    if any(n.startswith("__") and not n.endswith("__") for n in (*names, *hidden)):
        return None  # means another name inside of a class
    if any(isinstance(n, (ast.Try, ast.TryStar)) for n in ast.walk(node)):
        return None  # it could catch what the helper has to say
    pure = isinstance(node, ast.Lambda) or plain_statements(
        node.body, frozenset(("return", "raise"))
    )
    free = list(code.co_freevars)
    if isinstance(node, ast.FunctionDef):
        node.decorator_list, node.returns = [], None
        for argument in ast.walk(node.args):
            if isinstance(argument, ast.arg):
                argument.annotation = None
    none = ast.Constant(None)
    node.args.defaults = [none for _ in node.args.defaults]
    node.args.kw_defaults = [d and none for d in node.args.kw_defaults]
    _Function(node, set(free)).rewrite()
    body: ast.stmt = node if isinstance(node, ast.FunctionDef) else ast.Expr(node)
    outer = ast.parse(f"def outer({', '.join([HELPER, *free])}): pass").body[0]
    assert isinstance(outer, ast.FunctionDef)
    outer.body = [body]
    module = ast.Module([outer], [])
    ast.fix_missing_locations(module)
    made = compile(module, code.co_filename, "exec", dont_inherit=True)
    (inner,) = _codes_in(made.co_consts)
    found = [c for c in _codes_in(inner.co_consts) if c.co_name == code.co_name]
    if (
        len(found) != 1
        or found[0].co_varnames[: _arguments(code)] != code.co_varnames[: _arguments(code)]
    ):
        return None
    return Rewritten(found[0], pure)


def _arguments(code: CodeType) -> int:
    return code.co_argcount + code.co_kwonlyargcount


def _codes_in(consts: Iterable[Any]) -> list[CodeType]:
    return [c for c in consts if isinstance(c, CodeType)]


# -- source -----------------------------------------------------------------------------


@functools.lru_cache(64)
def _module(file: str, text: str) -> tuple[ast.Module, list[CodeType]] | None:
    try:
        tree = ast.parse(text, file)
        todo, codes = [compile(tree, file, "exec", dont_inherit=True)], []
    except (SyntaxError, ValueError, RecursionError):
        return None
    while todo:
        code = todo.pop()
        codes.append(code)
        todo += _codes_in(code.co_consts)
    return tree, codes


def _source(code: CodeType) -> Function | None:
    """A fresh tree of the function whose code this is."""
    found = _module(code.co_filename, "".join(linecache.getlines(code.co_filename)))
    if found is None or code not in found[1]:
        return None
    spots = [
        (line, column)
        for line, _, column, last in code.co_positions()
        if line is not None and column is not None and (column, last) != (0, 0)
    ]
    if not spots:
        return None
    best: Function | None = None
    for node in ast.walk(found[0]):
        if not isinstance(node, (ast.FunctionDef, ast.Lambda)):
            continue
        if (node.name if isinstance(node, ast.FunctionDef) else "<lambda>") != code.co_name:
            continue
        first = node.body[0] if isinstance(node, ast.FunctionDef) else node.body
        last_node = node.body[-1] if isinstance(node, ast.FunctionDef) else node.body
        start = (first.lineno, first.col_offset)
        end = (last_node.end_lineno or 0, last_node.end_col_offset or 0)
        if isinstance(node, ast.FunctionDef):
            starts = [node.lineno, *[d.lineno for d in node.decorator_list]]
            inside = min(starts) == code.co_firstlineno
        else:
            inside = all(start <= spot < end for spot in spots)
        if inside:
            best = node  # of nested lambdas the innermost, which comes last
    if best is None:
        return None
    found_node: Function = _copied(best)
    return found_node


def _copied(node: Any) -> Any:
    """A deep copy of a tree."""
    if isinstance(node, list):
        return [_copied(x) for x in node]
    if not isinstance(node, ast.AST):
        return node
    new = type(node)(**{k: _copied(v) for k, v in ast.iter_fields(node)})
    return ast.copy_location(new, node)


# -- the rewriting ------------------------------------------------------------------------


def _name(id: str, store: bool = False) -> ast.Name:
    return ast.Name(id, ast.Store() if store else ast.Load())


def _helper(method: str, *args: ast.expr) -> ast.expr:
    return ast.Call(ast.Attribute(_name(HELPER), method, ast.Load()), list(args), [])


def _tuple(items: Sequence[ast.expr], store: bool = False) -> ast.Tuple:
    return ast.Tuple(list(items), ast.Store() if store else ast.Load())


def _parameters(names: Sequence[str]) -> ast.arguments:
    return ast.arguments([], [ast.arg(n) for n in names], None, [], [], None, [])


class _Function:
    """One function being rewritten, in place.  ``around``: names of enclosing functions."""

    def __init__(self, node: Function, around: set[str]) -> None:
        self.node = node
        self.count = 0
        args = node.args
        own = {a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)}
        own |= {a.arg for a in (args.vararg, args.kwarg) if a is not None}
        self.certain = set(own)
        body = node.body if isinstance(node, ast.FunctionDef) else [ast.Expr(node.body)]
        own |= stored_names(body)
        shared: set[str] = set()
        self.deletes = False
        for n in ast.walk(node):
            if isinstance(n, (ast.Global, ast.Nonlocal)):
                shared.update(n.names)
            elif isinstance(n, ast.Delete):
                self.deletes = True
                self.certain.clear()
        #: names that another function may read or assign while a side runs
        self.shared = shared | inner_names(body)
        self.names = (own - shared) | around
        self.own = own - shared
        self.reads = loaded_names(body)

    def rewrite(self) -> None:
        node = self.node
        if isinstance(node, ast.Lambda):
            node.body = self.expression(node.body)
        else:
            node.body = self.block(node.body, True)

    # -- statements -----------------------------------------------------------------

    def block(self, stmts: Sequence[ast.stmt], tail: bool) -> list[ast.stmt]:
        """``tail``: control that comes out at the end leaves the function."""
        certain = self.certain
        out = self._block(stmts, tail)
        self.certain = certain
        return out

    def _block(self, stmts: Sequence[ast.stmt], tail: bool) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        assigned: set[str] = set()
        for k, s in enumerate(stmts):
            if not self.deletes:
                self.certain = self.certain | assigned
            assigned = assigned_names(s)
            if isinstance(s, ast.If):
                rest = stmts[k + 1 :]
                if contains([s], ast.Return):
                    made = self.returning(s, rest) if tail else None
                    if made is not None:
                        return [*out, made]
                else:
                    joined = self.joining(s)
                    if joined is not None:
                        out += joined
                        continue
                s.test = self.expression(s.test)
                last = tail and not rest
                s.body = self.block(s.body, last)
                s.orelse = self.block(s.orelse, last)
            elif isinstance(s, ast.While):
                looped = self.looping(s)
                if looped is not None:
                    out += looped
                    continue
                self.other(s)
            elif isinstance(s, ast.For) and not self.deletes:
                certain = self.certain
                self.certain = certain | stored_names([s.target])
                self.other(s)
                self.certain = certain
            else:
                self.other(s)
            out.append(s)
        return out

    def other(self, s: ast.stmt) -> None:
        """Any other statement: what is inside of it."""
        if isinstance(s, ast.FunctionDef):
            s.decorator_list = [self.expression(d) for d in s.decorator_list]
            s.args.defaults = [self.expression(d) for d in s.args.defaults]
            s.args.kw_defaults = [d and self.expression(d) for d in s.args.kw_defaults]
            _Function(s, self.names).rewrite()
            return
        if isinstance(s, (ast.ClassDef, ast.AsyncFunctionDef)):
            return
        for field, value in ast.iter_fields(s):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(s, field, self.block(value, False))
            elif isinstance(value, ast.expr):
                setattr(s, field, self.expression(value))
            elif isinstance(value, list):
                setattr(s, field, [self.inside(v) for v in value])

    def inside(self, node: Any) -> Any:
        if isinstance(node, ast.expr):
            return self.expression(node)
        if isinstance(node, ast.AST):  # with items, match cases: left alone but for their code
            for field, value in ast.iter_fields(node):
                if isinstance(value, ast.expr):
                    setattr(node, field, self.expression(value))
        return node

    def joining(self, s: ast.If) -> list[ast.stmt] | None:
        """An ``if`` whose sides assign local names."""
        none: frozenset[str] = frozenset()
        if not plain_statements(s.body, none) or not plain_statements(s.orelse, none):
            return None
        stored = sorted(stored_names([*s.body, *s.orelse]))
        if not stored or not self.shared.isdisjoint(stored):
            return None
        here = loaded_names([*s.body, *s.orelse])
        # A name that only the sides read need not be good for both of them.
        strict = [self.reads[n] > here[n] for n in stored]
        names = self.passed([*s.body, *s.orelse], stored)
        result = ast.Return(_tuple([self.value(n) for n in stored]))
        test = self.expression(s.test)
        sides = [self.side(names, stored, stmts, result) for stmts in (s.body, s.orelse)]
        call = _helper(
            "branch", *self.site(s), test, *[_name(f.name) for f in sides], self.values(names),
            _tuple([ast.Constant(k) for k in strict]),
        )  # fmt: skip
        out: list[ast.stmt] = [*sides]
        out.append(ast.Assign([_tuple([_name(n, True) for n in stored], True)], call))
        out += [self.unbound(n) for n, k in zip(stored, strict) if k and n not in self.certain]
        return [ast.copy_location(x, s) for x in out]

    def looping(self, s: ast.While) -> list[ast.stmt] | None:
        """A ``while`` whose body assigns local names."""
        none: frozenset[str] = frozenset()
        if s.orelse or not plain_statements(s.body, none) or not plain_expressions(s.test):
            return None
        if contains([s.test], ast.NamedExpr):
            return None
        stored = sorted(stored_names(s.body))
        if not stored or not self.shared.isdisjoint(stored):
            return None
        inside = loaded_names(s.body)
        strict = [self.reads[n] > inside[n] for n in stored]
        names = self.passed([*s.body, s.test], stored)
        result = ast.Return(_tuple([self.value(n) for n in stored]))
        asked = ast.Return(_copied(s.test))
        sides = [
            self.side(names, stored, [ast.copy_location(asked, s.test)], None, True),
            self.side(names, stored, s.body, result, True),
        ]
        places = _tuple([ast.Constant(names.index(n)) for n in stored])
        call = _helper(
            "loop", *self.site(s), *[_name(f.name) for f in sides], self.values(names), places,
            _tuple([ast.Constant(k) for k in strict]),
        )  # fmt: skip
        out: list[ast.stmt] = [*sides]
        out.append(ast.Assign([_tuple([_name(n, True) for n in stored], True)], call))
        out += [self.unbound(n) for n, k in zip(stored, strict) if k and n not in self.certain]
        return [ast.copy_location(x, s) for x in out]

    def returning(self, s: ast.If, rest: Sequence[ast.stmt]) -> ast.stmt | None:
        """An ``if`` of which a side returns, with the statements after it."""
        body, orelse = list(s.body), list(s.orelse)
        if leaves(body):
            orelse = orelse if leaves(orelse) else [*orelse, *rest]
        elif leaves(orelse):
            body = [*body, *rest]
        else:
            return None
        leave = frozenset(("return",))
        both = [*body, *orelse]
        if not plain_statements(body, leave) or not plain_statements(orelse, leave):
            return None
        if not self.shared.isdisjoint(stored_names(both)):
            return None
        stored = sorted(stored_names(both))
        names = self.passed(both, stored)
        test = self.expression(s.test)
        sides = [self.side(names, stored, stmts, None) for stmts in (body, orelse)]
        call = _helper(
            "value", *self.site(s), test, *[_name(f.name) for f in sides], self.values(names)
        )
        made: list[ast.stmt] = [*sides, ast.Return(call)]
        wrapped = ast.If(ast.Constant(True), made, [])
        ast.copy_location(wrapped, s)
        return wrapped

    def side(
        self,
        names: Sequence[str],
        stored: Sequence[str],
        stmts: Sequence[ast.stmt],
        result: ast.Return | None,
        unsure: bool = False,
    ) -> ast.FunctionDef:
        """``unsure``: names that are assigned may have no value yet, as in a loop."""
        inner = _copied(list(stmts))
        kept = self.certain
        body: list[ast.stmt] = [self.unbound(n) for n in names if n not in kept or unsure]
        self.certain = kept - set(stored) if unsure else kept
        body += self.numbers(self.block(inner, result is None))
        self.certain = kept
        if result is not None:
            body.append(_copied(result))
        self.count += 1
        name = f"{HELPER}_{self.count}"
        return ast.FunctionDef(name, _parameters(names), body or [ast.Pass()], [], None, None)

    def numbers(self, stmts: list[ast.stmt]) -> list[ast.stmt]:
        """``s += e`` in a side asks the helper, for in place an array changes for others too."""
        for k, s in enumerate(stmts):
            if isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Name):
                op = ast.Constant(type(s.op).__name__)
                call = _helper("in_place", op, _name(s.target.id), s.value)
                stmts[k] = ast.copy_location(ast.Assign([s.target], call), s)
            elif isinstance(s, (ast.For, ast.If)):
                if isinstance(s, ast.For) and not isinstance(s.iter, (ast.Call, ast.Tuple)):
                    s.iter = ast.copy_location(_helper("items", s.iter), s.iter)
                s.body, s.orelse = self.numbers(s.body), self.numbers(s.orelse)
        return stmts

    def passed(self, nodes: Sequence[ast.AST], stored: Sequence[str]) -> list[str]:
        """The names that sides are given: what they read and assign."""
        return sorted(set(stored) | (loaded_names(nodes).keys() & self.names))

    def certainly(self, nodes: Sequence[ast.AST]) -> list[str]:
        """Names with a value that expressions read: what is given to those."""
        return [n for n in self.passed(nodes, []) if n in self.certain]

    def value(self, name: str) -> ast.expr:
        """What a name stands for, which may be nothing."""
        if name in self.certain:
            return _name(name)
        return _helper("get", ast.Lambda(_parameters([]), _name(name)))

    def values(self, names: Sequence[str]) -> ast.Tuple:
        return _tuple([self.value(n) for n in names])

    def unbound(self, name: str) -> ast.stmt:
        """``if name is UNBOUND: del name``"""
        test = _helper("is_unbound", _name(name))
        return ast.If(test, [ast.Delete([ast.Name(name, ast.Del())])], [])

    def site(self, node: Any) -> list[ast.expr]:
        return [_tuple([ast.Constant(node.lineno), ast.Constant(node.col_offset)])]

    # -- expressions ----------------------------------------------------------------

    def expression(self, node: ast.expr) -> ast.expr:
        made: ast.expr = self._expression(node)
        return ast.copy_location(made, node) if made is not node else node

    def _expression(self, node: Any) -> Any:
        if isinstance(node, ast.Lambda):
            node.args.defaults = [self.expression(d) for d in node.args.defaults]
            node.args.kw_defaults = [d and self.expression(d) for d in node.args.kw_defaults]
            _Function(node, self.names).rewrite()
            return node
        movable = not contains([node], (*SUSPEND, ast.NamedExpr)) and plain_expressions(node)
        if isinstance(node, COMPREHENSIONS):
            bound = {
                n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)
            }
            kept, certain = self.names, self.certain
            self.names, self.certain = self.names | bound, certain | bound
            self._children(node)
            self.names, self.certain = kept, certain
            return node
        if isinstance(node, ast.IfExp) and movable:
            names = self.certainly([node.body, node.orelse])
            both = node.body, node.orelse
            arms = [ast.Lambda(_parameters(names), self.expression(x)) for x in both]
            return _helper("value", *self.site(node), self.expression(node.test), *arms,
                           self.values(names))  # fmt: skip
        if isinstance(node, ast.Compare) and len(node.ops) > 1 and movable:
            inner = node.comparators[:-1]
            if all(isinstance(x, (ast.Name, ast.Constant)) for x in inner):
                items = [node.left, *node.comparators]
                parts: list[ast.expr] = [
                    ast.copy_location(ast.Compare(_copied(a), [op], [_copied(b)]), node)
                    for a, op, b in zip(items, node.ops, items[1:])
                ]
                node = ast.copy_location(ast.BoolOp(ast.And(), parts), node)
        if isinstance(node, ast.BoolOp) and movable:
            method = "both" if isinstance(node.op, ast.And) else "either"
            return self._logical(node, method, node.values)
        self._children(node)
        if isinstance(node, ast.Compare) and any(
            isinstance(o, (ast.Is, ast.IsNot)) for o in node.ops
        ):
            node.left = ast.copy_location(_helper("asked", node.left), node.left)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return _helper("negated", node.operand)
        if isinstance(node, ast.Call):
            node.func = ast.copy_location(_helper("call", node.func), node.func)
        return node

    def _logical(self, node: ast.BoolOp, method: str, values: Sequence[ast.expr]) -> ast.expr:
        first, *rest = values
        if not rest:
            return self.expression(first)
        names = self.certainly(rest)
        other = ast.Lambda(_parameters(names), self._logical(node, method, rest))
        site = _tuple([ast.Constant(node.lineno), ast.Constant(first.col_offset)])
        return _helper(method, site, self.expression(first), other, self.values(names))

    def _children(self, node: ast.AST) -> None:
        for field, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                setattr(node, field, self.expression(value))
            elif isinstance(value, list):
                for k, v in enumerate(value):
                    if isinstance(v, ast.expr):
                        value[k] = self.expression(v)
                    elif isinstance(v, ast.AST):
                        self._children(v)
            elif isinstance(value, ast.AST) and not isinstance(
                value, (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)
            ):
                self._children(value)


def with_code(fn: FunctionType, code: CodeType, helper: Any) -> FunctionType:
    """A copy of ``fn`` that runs ``code``."""
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or ()))
    cells[HELPER] = CellType(helper)
    closure = tuple([cells[n] for n in code.co_freevars])
    copy = FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, closure)
    copy.__kwdefaults__ = fn.__kwdefaults__
    copy.__dict__.update(fn.__dict__)
    copy.__qualname__ = fn.__qualname__
    return copy
