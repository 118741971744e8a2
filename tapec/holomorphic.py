"""Complex arguments and results of the transforms: checks, and how results are put together.

To the transforms a complex value is two real leaves.  The derivative of a real function by them,
joined again, is the gradient; for complex differentiable functions the derivative is the
conjugate of the gradient of the real part (Cauchy-Riemann), which needs an explicit
``holomorphic=True``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tapec import trees
from tapec.errors import TapecTypeError
from tapec.trace import Traced, where_defined

if TYPE_CHECKING:
    from optree import PyTreeSpec

__all__ = ["by_complex", "check_complex", "joined", "real_outputs", "real_parts"]


def by_complex(traced: Traced) -> bool:
    """Whether an argument that is differentiated is complex."""
    layout = traced.flat.layout
    return any(trees.has_pairs(layout.args[k]) for k in layout.wrt)


def check_complex(traced: Traced, what: str) -> None:
    """All arguments that are differentiated are complex, or a ``TypeError``."""
    layout = traced.flat.layout
    for k in layout.wrt:
        if not all(trees.part_names(layout.args[k])):
            raise TapecTypeError(
                f"{what}(holomorphic=True): argument {k} of {where_defined(traced.subject)} is "
                "not complex; convert it with .astype(complex)"
            )


def real_outputs(
    traced: Traced, what: str, outputs: list[int], holomorphic: bool
) -> tuple[list[int], PyTreeSpec]:
    """The outputs of which a Jacobian is taken, and their structure; a ``TypeError`` where
    there is no Jacobian."""
    parts = trees.part_names(traced.treedef)
    if holomorphic:
        check_complex(traced, what)
        if not all(parts):
            raise TapecTypeError(
                f"{what}(holomorphic=True): {where_defined(traced.subject)} returned real values"
            )
        marks = [_Box(None) for _ in parts]
        return outputs[::2], real_parts(traced.treedef.unflatten(marks))
    if any(parts) and by_complex(traced):
        raise TapecTypeError(
            f"{what}: {where_defined(traced.subject)} returned complex values of complex "
            "arguments; use holomorphic=True if it is complex differentiable, else take the "
            "Jacobians of its .real and .imag"
        )
    return outputs, traced.treedef


class _Box:
    """A leaf that holds anything."""

    __slots__ = ("content",)

    def __init__(self, content: Any) -> None:
        self.content = content


def real_parts(tree: Any) -> PyTreeSpec:
    """The structure of ``tree`` with a leaf in place of each pair."""
    return trees.flatten(trees.map_pairs(lambda p: p.re, tree))[1]


def joined(treedef: PyTreeSpec, parts: Sequence[Any]) -> Any:
    """The trees ``parts``, one for each leaf of ``treedef``, in that structure; of complex leaves
    the two trees are one, with a pair at each leaf."""

    def pair(both: trees.Pair) -> Any:
        first, inner = trees.flatten(both.re.content)
        second, _ = trees.flatten(both.im.content)
        return _Box(inner.unflatten([trees.Pair(a, b) for a, b in zip(first, second)]))

    if not trees.has_pairs(treedef):
        return treedef.unflatten(parts)
    tree = trees.map_pairs(pair, treedef.unflatten([_Box(part) for part in parts]))
    boxes, outer = trees.flatten(tree)
    return outer.unflatten([box.content for box in boxes])
