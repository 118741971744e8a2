"""What ``rewriting`` asks of syntax trees: which statements only assign local names, which names
they read and assign, whether control comes out at their end.

>>> import ast
>>> plain_statements(ast.parse("y = f(x) + 1").body, frozenset())
True
>>> plain_statements(ast.parse("x.y = 1").body, frozenset())
False
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = [
    "COMPREHENSIONS", "SUSPEND", "assigned_names", "contains", "inner_names", "leaves",
    "loaded_names", "plain_expressions", "plain_statements", "stored_names",
]  # fmt: skip

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
SUSPEND = (ast.Yield, ast.YieldFrom, ast.Await)


# -- what may be taken out ----------------------------------------------------------------


def plain_statements(
    stmts: Sequence[ast.stmt], leave: frozenset[str], looping: bool = False
) -> bool:
    """Whether statements do nothing but assign local names (calls apart), and leave only in the
    ways named: ``return``, ``raise``."""
    return all(_pure_statement(s, leave, looping) for s in stmts)


def _pure_statement(s: ast.stmt, leave: frozenset[str], looping: bool) -> bool:
    if isinstance(s, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
        targets = s.targets if isinstance(s, ast.Assign) else [s.target]
        return all(map(_names_only, targets)) and plain_expressions(s)
    if isinstance(s, ast.Expr):
        return plain_expressions(s)
    if isinstance(s, ast.Pass):
        return True
    if isinstance(s, ast.Return):
        return "return" in leave and plain_expressions(s)
    if isinstance(s, (ast.Raise, ast.Assert)):
        return "raise" in leave and plain_expressions(s)
    if isinstance(s, (ast.Break, ast.Continue)):
        return looping
    if isinstance(s, ast.If):
        return (
            plain_expressions(s.test)
            and plain_statements(s.body, leave, looping)
            and plain_statements(s.orelse, leave, looping)
        )
    if isinstance(s, ast.For):
        return (
            _names_only(s.target)
            and plain_expressions(s.iter)
            and plain_statements(s.body, leave, True)
            and plain_statements(s.orelse, leave, looping)
        )
    return False


def _names_only(target: ast.expr) -> bool:
    if isinstance(target, (ast.Tuple, ast.List)):
        return all(map(_names_only, target.elts))
    return isinstance(target, ast.Name)


def plain_expressions(node: ast.AST) -> bool:
    for n in ast.walk(node):
        if isinstance(n, (*SUSPEND, ast.Lambda)):
            return False
        if isinstance(n, ast.Call) and any(k.arg in ("copy", "out") for k in n.keywords):
            return False
    return True


def contains(stmts: Sequence[ast.AST], kinds: Any) -> bool:
    """Whether these statements contain such a node, functions inside apart."""
    todo = list(stmts)
    while todo:
        node = todo.pop()
        if isinstance(node, kinds):
            return True
        if not isinstance(node, _SCOPES):
            todo += ast.iter_child_nodes(node)
    return False


def leaves(stmts: Sequence[ast.stmt]) -> bool:
    """Whether control never comes out at the end."""
    if not stmts:
        return False
    last = stmts[-1]
    if isinstance(last, ast.If):
        return leaves(last.body) and leaves(last.orelse)
    return isinstance(last, (ast.Return, ast.Raise))


# -- names --------------------------------------------------------------------------------


def stored_names(nodes: Iterable[ast.AST]) -> set[str]:
    """Local names that are assigned."""
    found: set[str] = set()
    todo = list(nodes)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
            continue
        elif isinstance(node, ast.Lambda):
            continue
        elif isinstance(node, COMPREHENSIONS):
            walrus = [n.target for n in ast.walk(node) if isinstance(n, ast.NamedExpr)]
            found.update(n.id for n in walrus)
            continue
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found.update((a.asname or a.name).partition(".")[0] for a in node.names)
        todo += ast.iter_child_nodes(node)
    return found


def loaded_names(nodes: Iterable[ast.AST]) -> Counter[str]:
    """How often names are read, functions inside included."""
    found: Counter[str] = Counter()
    for root in nodes:
        for node in ast.walk(root):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
                found[node.id] += 1
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                found[node.target.id] += 1
    return found


def assigned_names(s: ast.stmt) -> set[str]:
    """Names that certainly have a value once control has come out of a statement."""
    if isinstance(s, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
        if isinstance(s, ast.AnnAssign) and s.value is None:
            return set()
        targets = s.targets if isinstance(s, ast.Assign) else [s.target]
        return {
            n.id
            for t in targets
            for n in ast.walk(t)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
    if isinstance(s, ast.If):
        sides = [set().union(*map(assigned_names, side)) for side in (s.body, s.orelse)]
        return sides[0] & sides[1]
    return set()


def inner_names(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that functions defined inside read or assign."""
    return {
        n.id
        for root in nodes
        for scope in ast.walk(root)
        if isinstance(scope, _SCOPES)
        for n in ast.walk(scope)
        if isinstance(n, ast.Name)
    }
