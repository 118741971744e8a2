"""From a traced function to the IR program of a transform: ``build(traced, transform)``.

Every transform is a plain rewriting of IR functions (``vjp``, ``jvp``, ``simplify``) plus a
description of where the results go.  Nothing here runs anything: a ``Program`` is either
compiled and called (``dispatch``) or inlined into an outer tape, with the same meaning.

Parameters of ``Program.fn``: the traced leaves, the captures, then ``seeds`` (tangents or
cotangents that the caller supplies).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tapec import trees
from tapec.errors import TapecTypeError, TapecValueError
from tapec.holomorphic import by_complex, check_complex, joined, real_outputs, real_parts
from tapec.ir.core import BOOL, F64, I64, Function, Type
from tapec.ir.deferred import factored, jvp, param_types, result_types, select, simplify, vjp
from tapec.jacobians import Blocks, Sweep, blocks_of, select_results
from tapec.signature import Spec
from tapec.trace import Constant, Output, Traced, where_defined

if TYPE_CHECKING:
    from optree import PyTreeSpec

__all__ = [
    "KINDS",
    "Program",
    "Result",
    "Sweep",
    "Transform",
    "build",
    "lifted_leaves",
    "linear_map",
    "pullback",
]

KINDS = (
    "jit", "grad", "value_and_grad", "jacobian", "jacfwd", "jacrev", "hessian", "hvp", "jvp", "vjp",
    "linearize",
)  # fmt: skip


class Transform(NamedTuple):
    """Which transform, of which arguments.  ``argnums`` None: all of them.

    ``single``: argnums was an int, so the result is not wrapped in a tuple.
    ``holomorphic``: arguments and result are complex, and the derivative is the complex one.  By
    the Cauchy-Riemann equations it is the conjugate of the gradient of the real part.
    """

    kind: str
    argnums: tuple[int, ...] | None = None
    single: bool = True
    has_aux: bool = False
    holomorphic: bool = False

    @property
    def title(self) -> str:
        return self.kind

    @property
    def differentiates(self) -> bool:
        return self.kind != "jit"


class Result(NamedTuple):
    """Place of kernel result ``slot`` in what the user gets, and how it is boxed:
    ``float``, ``int``, ``bool``, ``scalar`` (NumPy scalar) or ``array``."""

    slot: int
    box: str


class Program(NamedTuple):
    """An IR function and the shape of what it returns.

    ``leaves``/``treedef``: the returned structure.  ``seeds``: types of the extra parameters.
    ``raw``: the function before the last simplification, for dumps.
    """

    fn: Function
    leaves: tuple[Result | Constant, ...]
    treedef: PyTreeSpec
    seeds: tuple[Type, ...] = ()
    sweep: Sweep | None = None
    raw: Function | None = None
    #: the seeds are a vector argument that follows the differentiated one (``hvp``)
    vector: bool = False

    def rebuild(self, values: Sequence[Any]) -> Any:
        """The user's structure from one (already boxed) value per kernel result."""
        return self.treedef.unflatten(
            [values[x.slot] if isinstance(x, Result) else x.value for x in self.leaves]
        )


_BOXES = {F64: "float", I64: "int", BOOL: "bool"}


def _box(type: Type) -> str:
    return "array" if type.shape else _BOXES.get(type.dtype, "scalar")


def _gradient_box(spec: Spec) -> str:
    """Gradients come back as the kind of thing that the argument was."""
    return "array" if spec.kind == "array" else _box(spec.type)


def _program(
    fn: Function,
    tree: Any,
    seeds: Sequence[Type] = (),
    sweep: Sweep | None = None,
    primal: Function | None = None,
) -> Program:
    """Finish: ``tree`` holds a ``_Leaf`` or ``Constant`` at each leaf.  ``primal``: what ``fn`` is
    the derivative of."""
    wrapped, treedef = trees.flatten(tree)
    leaves = tuple([w.content for w in wrapped])
    simple = simplify(fn)
    if primal is not None:
        simple = factored(simple, primal)
    return Program(simple, leaves, treedef, tuple(seeds), sweep, fn)


class _Leaf:
    """Keeps ``Result``/``Constant`` (named tuples, hence containers) from being flattened."""

    __slots__ = ("content",)

    def __init__(self, content: Result | Constant) -> None:
        self.content = content


# -- what must be computed ------------------------------------------------------------


def lifted_leaves(transform: Transform) -> Any:
    """For ``trace``: which result leaves must be computed even if constant."""
    if not transform.differentiates:
        return None

    def lift(treedef: PyTreeSpec) -> Sequence[bool]:
        if not transform.has_aux:
            return [True] * treedef.num_leaves
        if trees.is_leaf(treedef):
            return [True]
        first, *_ = trees.children(treedef) or [treedef]
        return [k < first.num_leaves for k in range(treedef.num_leaves)]

    return lift


# -- the transforms ----------------------------------------------------------------------


def build(traced: Traced, transform: Transform, *, inline: bool = False) -> Program:
    """The program of ``transform`` applied to ``traced``.

    ``inline``: it will be inlined in an outer tape, so Jacobians must not be swept; and as it
    may be differentiated there, like terms are collected, which keeps high orders short.
    """
    program = _BUILDERS[transform.kind](traced, transform, inline)
    if inline and transform.kind != "jit":
        from tapec.ir.collect import collect

        return program._replace(fn=simplify(collect(program.fn)))
    return program


def _wrt(traced: Traced) -> list[int]:
    """Parameter positions of the differentiated leaves."""
    mask = traced.flat.layout.differentiated
    return [p for p, leaf in enumerate(traced.flat.traced) if mask[leaf]]


def _output_tree(traced: Traced, base: int = 0) -> Any:
    return traced.treedef.unflatten(
        [
            _Leaf(Result(base + x.slot, _box(x.type)) if isinstance(x, Output) else x)
            for x in traced.leaves
        ]
    )


def _argument_trees(traced: Traced, transform: Transform, leaves: Sequence[Any]) -> Any:
    """``leaves`` (one per differentiated leaf, in leaf order) in the structure of the
    differentiated arguments: one structure if ``single``, else a tuple in argnums' order."""
    layout = traced.flat.layout
    at = dict(zip([i for i, d in enumerate(layout.differentiated) if d], leaves, strict=True))
    parts = tuple(layout.args[k].unflatten([at[i] for i in layout.ranges[k]]) for k in layout.wrt)
    if transform.holomorphic:
        parts = trees.map_pairs(lambda p: trees.Conjugate(p.re, p.im), parts)
    return parts[0] if transform.single else parts


def _specs(traced: Traced) -> list[Spec]:
    keys = traced.flat.keys
    mask = traced.flat.layout.differentiated
    return [k for k, d in zip(keys, mask, strict=True) if d and isinstance(k, Spec)]


def _split_aux(
    traced: Traced, transform: Transform, subject: Any
) -> tuple[Output, Output | None, Any]:
    """The scalar output that is differentiated, its imaginary part if it is the real part of a
    complex one, and the tree of the auxiliary outputs (None without)."""
    if transform.holomorphic:
        check_complex(traced, transform.title)
    leaves, treedef = traced.leaves, traced.treedef
    what = transform.title
    at = where_defined(subject)
    aux = None
    if transform.has_aux:
        kids = [] if trees.is_leaf(treedef) else trees.children(treedef)
        if treedef.type is not tuple or len(kids) != 2:
            raise TapecTypeError(
                f"{what}(has_aux=True) expects the function to return (value, aux), a tuple of "
                f"two; {at} returned {treedef}"
            )
        n = kids[0].num_leaves
        aux = traced.treedef.unflatten(
            [_Leaf(Result(x.slot, _box(x.type)) if isinstance(x, Output) else x) for x in leaves]
        )[1]
        leaves, treedef = leaves[:n], kids[0]
    imaginary: Any = None
    if treedef.type is trees.Pair:
        if not transform.holomorphic:
            raise TapecTypeError(
                f"{what} needs a function that returns a real scalar; {at} returned a complex "
                "value. Differentiate its .real, .imag or np.abs, or the complex derivative of a "
                "complex differentiable function with holomorphic=True"
            )
        leaves, imaginary = leaves[:1], leaves[1]
    elif not trees.is_leaf(treedef):
        kind = getattr(treedef.type, "__name__", None) or "None"
        raise TapecTypeError(
            f"{what} needs a function that returns one scalar; {at} returned a {kind} of "
            f"{treedef.num_leaves} values. Return the scalar alone, or (scalar, aux) with "
            "has_aux=True to carry further values"
        )
    (value,) = leaves
    if isinstance(value, Constant):
        raise TapecTypeError(
            f"{what} needs a function that returns one real scalar; {at} returned "
            f"{value.value!r}, a {type(value.value).__qualname__}"
        )
    if transform.holomorphic and imaginary is None:
        raise TapecTypeError(f"{what}(holomorphic=True): the result of {at} is not complex")
    if value.type.shape != ():
        raise _non_scalar(what, at, value.type)
    if value.type.dtype.kind != "f":
        raise TapecTypeError(
            f"{what} needs a function that returns a real floating-point scalar; "
            f"{at} returned {value.type.dtype.np} (use .real, np.abs or .astype(float))"
        )
    return value, imaginary, aux


def _non_scalar(what: str, at: str, type: Type) -> TapecValueError:
    return TapecValueError(
        f"{what} needs a function that returns a scalar; {at} returned an array of shape "
        f"{type.shape}. Reduce it (for example with .sum()), or use tapec.jacobian for all "
        "its derivatives"
    )


def _jit(traced: Traced, transform: Transform, inline: bool) -> Program:
    return _program(traced.fn, _output_tree(traced))


def _reverse(traced: Traced, value: int) -> tuple[Function, int, Function]:
    """Results of ``traced.fn``, then the gradients; where those start; and what was
    differentiated."""
    fn = simplify(traced.fn)
    return vjp(fn, _wrt(traced), [value], seeds=False), len(result_types(fn)), fn


def _grad(traced: Traced, transform: Transform, inline: bool) -> Program:
    value, imaginary, aux = _split_aux(traced, transform, traced.subject)
    fn, base, primal = _reverse(traced, value.slot)
    keep: list[int] = []
    if transform.kind == "value_and_grad" or transform.has_aux:
        keep = list(range(base))
    grads = list(range(base, len(result_types(fn))))
    fn = select(fn, keep + grads)
    start = len(keep)
    leaves = [
        _Leaf(Result(start + k, _gradient_box(spec))) for k, spec in enumerate(_specs(traced))
    ]
    tree = _argument_trees(traced, transform, leaves)
    if transform.kind == "value_and_grad":
        first: Any = _Leaf(Result(value.slot, _box(value.type)))
        if imaginary is not None:
            first = trees.Pair(first, _Leaf(Result(imaginary.slot, _box(imaginary.type))))
        if transform.has_aux:
            first = (first, aux)
        return _program(fn, (first, tree), primal=primal)
    return _program(fn, (tree, aux) if transform.has_aux else tree, primal=primal)


def _jvp(traced: Traced, transform: Transform, inline: bool) -> Program:
    fn = simplify(traced.fn)
    wrt = _wrt(traced)
    forward = jvp(fn, wrt)
    tangents = _tangent_indices(fn)
    n = len(result_types(fn))
    out = _output_tree(traced)
    dot = traced.treedef.unflatten(
        [
            _Leaf(
                Result(n + tangents[x.slot], _box(x.type))
                if isinstance(x, Output) and x.slot in tangents
                else Constant(None)
            )
            for x in traced.leaves
        ]
    )
    seeds = [param_types(fn)[p] for p in wrt]
    return _program(forward, (out, dot), seeds)


def _tangent_indices(fn: Function) -> dict[int, int]:
    """Result index → index among the results that have a tangent (inexact dtype)."""
    inexact = [i for i, t in enumerate(result_types(fn)) if t.dtype.is_inexact]
    return {i: k for k, i in enumerate(inexact)}


def _linearized(traced: Traced) -> tuple[Function, Function]:
    """Arguments to value and residuals; residuals and tangents to tangents."""
    from tapec.ir.partial import split

    fn = simplify(traced.fn)
    wrt = _wrt(traced)
    forward = simplify(jvp(fn, wrt))
    first = len(param_types(fn))
    return split(forward, range(first, first + len(wrt)), len(result_types(fn)))


def _linearize(traced: Traced, transform: Transform, inline: bool) -> Program:
    """The value, and the residuals of ``linear_map`` as a tuple of arrays."""
    early, _ = _linearized(traced)
    n = len(result_types(traced.fn))
    residuals = [_Leaf(Result(k, "array")) for k in range(n, len(early.results))]
    return _program(early, (_output_tree(traced), tuple(residuals)))


def linear_map(traced: Traced) -> Program:
    """Residuals to the derivative in the direction of the seeds, in the structure of the value."""
    _, rest = _linearized(traced)
    tangents = _tangent_indices(traced.fn)
    tree = traced.treedef.unflatten(
        [
            _Leaf(
                Result(tangents[x.slot], _box(x.type))
                if isinstance(x, Output) and x.slot in tangents
                else Constant(None)
            )
            for x in traced.leaves
        ]
    )
    return _program(rest, tree, [traced.fn.params[p].type for p in _wrt(traced)])


def _vjp(traced: Traced, transform: Transform, inline: bool) -> Program:
    return _program(traced.fn, _output_tree(traced))


def pullback(traced: Traced) -> Program:
    """Cotangents of the outputs (seeds, for the inexact results) → those of the arguments."""
    fn = simplify(traced.fn)
    outputs = list(_tangent_indices(fn))
    reverse = vjp(fn, _wrt(traced), outputs)
    base = len(result_types(fn))
    reverse = select(reverse, range(base, len(result_types(reverse))))
    leaves = [_Leaf(Result(k, _gradient_box(s))) for k, s in enumerate(_specs(traced))]
    tree = _argument_trees(traced, Transform("vjp", None, False), leaves)
    return _program(reverse, tree, [result_types(fn)[i] for i in outputs])


def _jacobian(traced: Traced, transform: Transform, inline: bool) -> Program:
    fn = simplify(traced.fn)
    what = transform.title
    for x in traced.leaves:
        if isinstance(x, Output) and not x.type.dtype.is_inexact:
            raise TapecTypeError(
                f"{what}: {where_defined(traced.subject)} returned an array of dtype "
                f"{x.type.dtype.np}, which has no derivative"
            )
        if isinstance(x, Constant):
            raise TapecTypeError(
                f"{what}: {where_defined(traced.subject)} returned {x.value!r}, "
                "which has no derivative"
            )
    outputs = [x.slot for x in traced.leaves if isinstance(x, Output)]
    outputs, treedef = real_outputs(traced, what, outputs, transform.holomorphic)
    rows = sum(fn.results[i].type.size for i in outputs)
    columns = sum(fn.params[p].type.size for p in _wrt(traced))
    forward = what == "jacfwd" or (what == "jacobian" and columns <= rows)
    blocks = blocks_of(fn, _wrt(traced), outputs, forward, inline)
    return _jacobian_program(traced, transform, blocks, outputs, treedef)


def _hessian(traced: Traced, transform: Transform, inline: bool) -> Program:
    value, *_ = _split_aux(traced, transform, traced.subject)
    if not transform.holomorphic and by_complex(traced):
        raise TapecTypeError(
            f"hessian: {where_defined(traced.subject)} is differentiated by complex arguments; "
            "use hvp, real and imaginary parts as arguments, or holomorphic=True"
        )
    fn, base, _ = _reverse(traced, value.slot)
    fn = simplify(select_results(fn, range(base, len(fn.results))))
    outputs = list(range(len(fn.results)))
    holders = [_Position(k) for k in outputs]
    _, treedef = trees.flatten(_argument_trees(traced, transform, holders))
    if transform.holomorphic:
        outputs = outputs[::2]
        real = transform._replace(holomorphic=False)
        treedef = real_parts(_argument_trees(traced, real, holders))
    symmetric = not transform.holomorphic
    blocks = blocks_of(fn, _wrt(traced), outputs, True, inline, symmetric)
    return _jacobian_program(traced, transform, blocks, outputs, treedef)


class _Position:
    """A leaf that stands for result number ``slot``."""

    def __init__(self, slot: int) -> None:
        self.slot = slot


def _jacobian_program(
    traced: Traced,
    transform: Transform,
    blocks: Blocks,
    outputs: Sequence[int],
    out_treedef: PyTreeSpec,
) -> Program:
    n = len(blocks.in_types)
    specs = _specs(traced)
    parts = []
    for o, out in enumerate(blocks.out_types):
        leaves = []
        for a, spec in enumerate(specs):
            zero_d = out.shape == () and spec.type.shape == ()
            box = _gradient_box(spec) if zero_d else "array"
            leaves.append(_Leaf(Result(o * n + a, box)))
        parts.append(_argument_trees(traced, transform, leaves))
    tree = joined(out_treedef, parts)
    return _program(blocks.fn, tree, blocks.seeds, blocks.sweep)


def _hvp(traced: Traced, transform: Transform, inline: bool) -> Program:
    value, *_ = _split_aux(traced, transform, traced.subject)
    fn, base, _ = _reverse(traced, value.slot)
    fn = simplify(select(fn, range(base, len(result_types(fn)))))
    wrt = _wrt(traced)
    n = len(result_types(fn))
    both = jvp(fn, wrt)
    fn = select(both, range(n, len(result_types(both))))
    leaves = [_Leaf(Result(k, _gradient_box(s))) for k, s in enumerate(_specs(traced))]
    tree = _argument_trees(traced, transform, leaves)
    program = _program(fn, tree, [param_types(both)[p] for p in wrt])
    return program._replace(vector=True)


_BUILDERS = {
    "jit": _jit,
    "grad": _grad,
    "value_and_grad": _grad,
    "jacobian": _jacobian,
    "jacfwd": _jacobian,
    "jacrev": _jacobian,
    "linearize": _linearize,
    "hessian": _hessian,
    "hvp": _hvp,
    "jvp": _jvp,
    "vjp": _vjp,
}
