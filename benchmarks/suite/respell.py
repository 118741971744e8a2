"""The same objectives spelled otherwise: operands swapped, sums and products re-associated.

    >>> respelled("f = lambda x, y: x - 0.1 * y * y", seed=1)     # one of many
    'f = lambda x, y: x + -(y * 0.1 * y)'

What a user may write in one order or another must cost the same.  ``respelled`` rewrites source
text; ``objectives`` loads the modules of objectives from such text.
"""

from __future__ import annotations

import ast
import random
from pathlib import Path
from types import ModuleType

__all__ = ["objectives", "respelled"]

HERE = Path(__file__).resolve().parent


class _Respell(ast.NodeTransformer):
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        left, op, right = node.left, node.op, node.right
        if isinstance(op, ast.Pow) and isinstance(left, ast.Name) and _is_two(right):
            return ast.BinOp(left, ast.Mult(), left) if self.rng.random() < 0.5 else node
        if isinstance(op, ast.Sub) and self.rng.random() < 0.3:
            left, op, right = ast.UnaryOp(ast.USub(), right), ast.Add(), left
        elif not isinstance(op, ast.Add | ast.Mult) or _is_list(left) or _is_list(right):
            return node
        same = isinstance(left, ast.BinOp) and type(left.op) is type(op)
        if same and self.rng.random() < 0.4:
            assert isinstance(left, ast.BinOp)
            left, right = left.left, ast.BinOp(left.right, op, right)
        if self.rng.random() < 0.5:
            left, right = right, left
        return ast.BinOp(left, op, right)


def _is_two(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 2


def _is_list(node: ast.expr) -> bool:
    return isinstance(node, ast.List | ast.Tuple | ast.JoinedStr)


def respelled(source: str, seed: int) -> str:
    return ast.unparse(ast.fix_missing_locations(_Respell(seed).visit(ast.parse(source))))


def objectives(name: str, seed: int) -> ModuleType:
    """The module ``suite.NAME`` of objectives in another spelling."""
    module = ModuleType(f"suite.{name}")
    module.__file__ = f"{name}.py, spelling {seed}"
    exec(compile(respelled((HERE / f"{name}.py").read_text(), seed), module.__file__, "exec"),
         module.__dict__)  # fmt: skip
    return module
