"""What a benchmark case is.

A ``Case`` is one objective at one size.  ``make(np)`` gives the objective written against the
namespace ``np`` (``namespaces``), so that tapec and every peer run the same text; ``data()`` makes
its arguments from a fixed seed.  ``kind`` says what is measured:

- ``gradient``: value and gradient in the first ``wrt`` arguments;
- ``hvp``: Hessian times vector, the vector being the last argument;
- ``hessian``, ``jacobian``: dense, of the first argument;
- ``blocks``: residuals of many observations and their small Jacobians (bundle adjustment).

``hand`` names the references in ``hand_c``, ``hand_c_models`` and ``hand_python``, which get
``sizes`` beside the arguments.  This file and all problems import neither tapec nor a peer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Case", "Make"]

Make = Callable[[Any], Callable[..., Any]]


@dataclass(frozen=True)
class Case:
    """One row of the tables; see the module."""

    name: str
    make: Make
    data: Callable[[], tuple[Any, ...]]
    kind: str = "gradient"
    wrt: int = 1
    hand: str = ""
    sizes: tuple[int, ...] = ()
    #: The tools that run this case; others lack the operations or need minutes.
    tools: tuple[str, ...] = ("tapec", "jax", "torch", "autograd")
    #: Objectives of single tools where the common text does not serve.
    variants: dict[str, Make] = field(default_factory=dict)
    #: The tool whose result is the reference.
    reference: str = "numpy"
    #: The largest relative error.
    tolerance: float = 1e-12
    #: The row of the Targets table: the tools of which the best is compared with, and the ratio.
    peer: tuple[str, ...] = ()
    limit: float = 1.0
    #: What was measured elsewhere, on other hardware, before tapec existed (see the report).
    figure: str = ""
    #: What the reader should know about the comparison.
    note: str = ""
    #: Runs with ``--quick``.
    quick: bool = False
    #: Largest ratio of gradient to primal; None: none is set.
    ratio_limit: float | None = 2.5
