"""Running a ``Program``: ``compile_program`` → a ``Compiled`` that turns a call into a result.

Two ways, one interface.  ``NativeProgram`` compiles the IR function together with a native
entry; ``InterpretedProgram`` (``TAPEC_BACKEND=interpret``) evaluates the same IR with NumPy:
slow, and the first thing to try when a result looks wrong.

Kernel inputs are C-contiguous, aligned, native arrays of exactly the parameter types.
``GuardFailed`` means that the recorded path does not hold for these arguments; nothing was
computed then.  Captured arrays are passed by reference where their memory can be used as it
is, and are converted anew at every call where it cannot, so that later writes are seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CellType, FunctionType
from typing import Any

import numpy as np

from tapec import options, promotion
from tapec.codegen import disk
from tapec.codegen.abi import MISS, NEVER, Arg, EntrySpec, Structure, Variant, load_variant
from tapec.codegen.abi import Read as NativeRead
from tapec.codegen.abi import Result as Boxed
from tapec.codegen.engine import CompileError
from tapec.codegen.host import take_error
from tapec.codegen.objects import KernelObject, calls_until_hot, kernel_object, promoted
from tapec.depends import MISSING, SIZE, Read
from tapec.errors import InternalError
from tapec.ir.core import Function, Type, Value, walk
from tapec.ir.custom import expand
from tapec.ir.deferred import origin, param_types, reorder, result_types, simplify
from tapec.ir.interp import GuardFailed, interpret
from tapec.packing import pack, unpacked
from tapec.signature import Flat, Spec, native_array
from tapec.trace import Traced
from tapec.transforms import Program, Result

__all__ = ["Compiled", "InterpretedProgram", "NativeProgram", "compile_program", "seed_array"]

Array = np.ndarray[Any, Any]

#: Kernels that take longer than this (estimated) let other threads run.
RELEASE_GIL_NS = 20_000.0
#: Native code looks up this many names per call at most (10 ns each).
MAX_NATIVE_READS = 40


def compile_program(program: Program, traced: Traced, reads: Sequence[Read] = ()) -> Compiled:
    """Compile, as the options say.  ``reads``: what native calls must find unchanged."""
    base, _ = origin(program.fn)
    if any(op.name == "custom" for op in walk(base.block)):
        # bodies of functions with custom rules are in place only now
        program = program._replace(fn=simplify(expand(program.fn)))
    if options.backend() == "interpret":
        return InterpretedProgram(program, traced)
    return NativeProgram(program, traced, reads)


def seed_array(seed: Any, type: Type, k: int) -> Array:
    """Tangent or cotangent number ``k`` as a native array of exactly ``type``."""
    from tapec.errors import TapecTypeError, TapecValueError

    array = np.asarray(seed)
    if array.dtype.kind not in "bifuc":
        raise TapecTypeError(f"tangent or cotangent {k} is a {seed.__class__.__qualname__}")
    if array.dtype.kind == "c" and type.dtype.kind == "f":
        raise TapecTypeError(f"tangent or cotangent {k} is complex, but the value is real")
    if array.shape != type.shape:
        raise TapecValueError(
            f"tangent or cotangent {k} has shape {array.shape}, expected {type.shape}"
        )
    return native_array(array, Spec("array", type))


def _usable(array: Array, type: Type) -> bool:
    """Whether a kernel can read the array's memory as it is."""
    flags = array.flags
    return (
        flags.c_contiguous
        and flags.aligned
        and array.dtype == type.dtype.np
        and array.dtype.isnative
    )


def _boxed(value: Array, box: str) -> Any:
    if box == "array":
        return value
    if box == "scalar":
        return value[()]
    return value.item()


class Compiled:
    """A program and the arrays it captured."""

    #: Whether the native entry takes the user's arguments and returns the user's structure.
    direct: bool = False
    #: Whether native code can tell that what the function reads elsewhere is unchanged.
    linkable: bool = False
    #: For ``fn.stats``: calls through Python, how many of them failed a guard, time to compile.
    calls = 0
    failures = 0
    seconds = 0.0

    def __init__(self, program: Program, traced: Traced) -> None:
        self.program = program._replace(raw=None)
        self.captures: list[Array] = list(traced.captures)
        self.leaves = len(traced.flat.traced)
        params = param_types(program.fn)
        self.capture_types = params[self.leaves : self.leaves + len(self.captures)]
        self.boxes = ["array"] * len(result_types(program.fn))
        if program.sweep is None:
            for leaf in program.leaves:
                if isinstance(leaf, Result):
                    self.boxes[leaf.slot] = leaf.box

    def run(self, flat: Flat, seeds: Sequence[Any] | None) -> Any:
        """The user's result for one call; raises ``GuardFailed``."""
        raise NotImplementedError

    def run_reference(self, flat: Flat, seeds: Sequence[Any] | None) -> Any:
        """The same by the reference interpreter."""
        return InterpretedProgram.run(self, flat, seeds)  # type: ignore[arg-type]

    def _seed_arrays(self, seeds: Sequence[Any] | None) -> list[Array]:
        return [
            seed_array(seed, type, k)
            for k, (seed, type) in enumerate(zip(seeds or (), self.program.seeds, strict=True))
        ]

    def _sweep(self, product: Any) -> Any:
        """Assemble a Jacobian from ``product(seed arrays) -> arrays``, one seed at a time."""
        sweep = self.program.sweep
        assert sweep is not None
        seeds = [np.zeros(t.shape, t.dtype.np) for t in sweep.seeds]
        results = result_types(self.program.fn)
        n = len(seeds) if sweep.forward else len(results)
        blocks: list[Any] = [None] * (len(seeds) * len(results))
        for s, seed in enumerate(seeds):
            grid: list[Array] = []
            for r, t in enumerate(results):
                shape = (*t.shape, seed.size) if sweep.forward else (seed.size, *t.shape)
                block = np.empty(shape, t.dtype.np)
                grid.append(block)
                full = t.shape + seed.shape if sweep.forward else seed.shape + t.shape
                blocks[r * n + s if sweep.forward else s * n + r] = block.reshape(full)
            flat = seed.reshape(-1)
            for k in range(flat.size):
                flat[k] = 1
                for block, column in zip(grid, product(seeds)):
                    if sweep.forward:
                        block[..., k] = column
                    else:
                        block[k] = column
                flat[k] = 0
        boxed = list(blocks)
        for leaf in self.program.leaves:
            if isinstance(leaf, Result):
                boxed[leaf.slot] = _boxed(blocks[leaf.slot], leaf.box)
        return self.program.rebuild(boxed)


class InterpretedProgram(Compiled):
    """Evaluates the IR with NumPy."""

    def run(self, flat: Flat, seeds: Sequence[Any] | None) -> Any:
        inputs = flat.arrays() + [
            native_array(c, Spec("array", t)) for c, t in zip(self.captures, self.capture_types)
        ]
        program = self.program
        if program.sweep is not None:
            return self._sweep(lambda seeds: interpret(program.fn, [*inputs, *seeds]))
        inputs += self._seed_arrays(seeds)
        values = interpret(program.fn, inputs)
        # The interpreter may return an argument or a view of one; results are the caller's own.
        return program.rebuild([_boxed(np.array(v), b) for v, b in zip(values, self.boxes)])


class NativeProgram(Compiled):
    """Machine code behind a native entry.

    The entry's arguments are the user's own if they are positional leaves (``direct``), else
    the traced leaves; then seeds, then captures that have to be converted at each call.  It
    returns the user's structure if that is made of tuples and lists (and the call is direct),
    else a flat tuple of boxed results.
    """

    def __init__(self, program: Program, traced: Traced, reads: Sequence[Read] = ()) -> None:
        super().__init__(program, traced)
        #: the program and its calls as native code has them: complex arrays in one piece
        self.packed = packed = pack(program, traced) or unpacked(program, traced)
        program = packed.program
        flat = packed.flat(traced.flat)
        fn, captures = program.fn, packed.captures
        # The function itself is computed only if its machine code is not on disk.
        params = [Value(t) for t in param_types(fn)]
        n = len(flat.traced)
        leaves, captured = params[:n], params[n : n + len(captures)]
        seeds = params[n + len(captures) :]
        types = [p.type for p in captured]
        fixed = [_usable(a, t) for a, t in zip(captures, types)]
        self.stable = [a for a, ok in zip(captures, fixed) if ok]
        self.copied = [(a, Spec("array", t)) for a, t, ok in zip(captures, types, fixed) if not ok]
        self.native_boxes = ["array"] * len(packed.results)
        if program.sweep is None:
            for leaf in program.leaves:
                if isinstance(leaf, Result):
                    self.native_boxes[leaf.slot] = leaf.box
        structure = None if self.copied or program.sweep else _structure(program)
        args, order = _direct_arguments(flat, program, leaves, seeds)
        self.direct = structure is not None and args is not None
        if args is None or not self.direct:
            args, order = _leaf_arguments(flat, leaves, seeds)
        args = [*args, *(_array_arg(spec.type) for _, spec in self.copied)]
        order = [
            *order,
            *(p for p, ok in zip(captured, fixed) if not ok),
            *(p for p, ok in zip(captured, fixed) if ok),
        ]
        if self.direct:
            assert structure is not None
            shape: Structure = structure[0]
        else:
            shape = tuple(range(len(result_types(fn))))
        self.args = args
        place = {p: k for k, p in enumerate(params)}
        native_fn = reorder(fn, [place[p] for p in order])
        checked = _native_reads(reads) if self.direct else None
        self.linkable = checked is not None
        #: for a program that may be compiled better later: what, how to load it, and a weak
        #: reference to the method that lets calls arrive there
        self.native_fn: Function | None = native_fn
        results = [
            Boxed(box, t)  # type: ignore[arg-type]
            for box, t in zip(self.native_boxes, packed.results)
        ]
        load = _loader(native_fn, args, results, shape, self.stable, checked or ())
        self.load: Callable[[KernelObject], Variant] | None = load
        self.relink: Any = None
        self.variant, self.made = _build(native_fn, load)
        if self.variant.countdown is None:
            self.settle()
        self.guarded = self.made.facts.guards > 0

    def run(self, flat: Flat, seeds: Sequence[Any] | None) -> Any:
        program = self.packed.program
        flat = self.packed.flat(flat)
        if program.sweep is not None:
            inputs = self._leaf_inputs(flat)
            extra = [native_array(a, spec) for a, spec in self.copied]
            return self._sweep(lambda seeds: self._native([*inputs, *seeds, *extra]))
        if self.direct:
            return self._native(self._direct_inputs(flat, seeds))
        inputs = self._leaf_inputs(flat)
        inputs += self._seed_arrays(seeds)
        inputs += [native_array(a, spec) for a, spec in self.copied]
        values = list(self._native(inputs))
        return program.rebuild(values)

    def settle(self) -> None:
        """This is as good as it gets: forget what was kept to do better."""
        if self.variant.countdown is not None:
            self.variant.countdown.value = NEVER
        self.native_fn = self.load = None
        self.made.text = None

    def promote(self) -> None:
        """Compile better, and let calls arrive there.  Takes long: for another thread."""
        fn, load = self.native_fn, self.load
        if fn is None or load is None:
            return
        made = promoted(self.made, fn)
        self.variant, self.made = load(made), made
        self.settle()
        relink = self.relink and self.relink()
        if relink is not None:
            relink()

    def _native(self, inputs: Sequence[Any]) -> Any:
        self.calls += 1
        variant = self.variant
        result = variant.call(*inputs)
        if variant.countdown is not None and variant.countdown.value <= 0:
            promotion.request(self)
            if result is MISS:
                result = variant.call(*inputs)
        if result is MISS:
            error = take_error()
            if error is not None:
                raise error
            self.failures += 1
            if not self.guarded:
                raise InternalError(
                    f"the native entry of '{self.program.fn.name}' declined arguments of its own "
                    "signature; TAPEC_BACKEND=interpret avoids it. Please report this"
                )
            raise GuardFailed(0)
        return result

    def _leaf_inputs(self, flat: Flat) -> list[Any]:
        return [_native_leaf(x, k) for x, k in zip(flat.leaves, flat.keys) if type(k) is Spec]

    def _direct_inputs(self, flat: Flat, seeds: Sequence[Any] | None) -> list[Any]:
        leaves, keys = flat.leaves, flat.keys
        if seeds:
            # hvp: the vector stands after the argument that is differentiated
            k = flat.layout.wrt[0]
            vector = self._seed_arrays(seeds)
            leaves = [*leaves[: k + 1], *vector, *leaves[k + 1 :]]
            keys = (*keys[: k + 1], keys[k], *keys[k + 1 :])
        # A static argument is recognised by identity, so the entry gets the object it knows.
        return [
            _native_leaf(leaf, key) if type(key) is Spec else arg.value
            for arg, leaf, key in zip(self.args, leaves, keys)
        ]


def _native_leaf(leaf: Any, spec: Spec) -> Any:
    return float(leaf) if spec.kind == "float" else native_array(leaf, spec)


def _array_arg(type: Type) -> Arg:
    return Arg("array", type)


def _arg(spec: Spec) -> Arg:
    return Arg("float" if spec.kind == "float" else "array", spec.type)


def _leaf_arguments(
    flat: Flat, leaves: Sequence[Any], seeds: Sequence[Any]
) -> tuple[list[Arg], list[Any]]:
    """Entry arguments: the traced leaves, then the seeds as arrays; and the parameters."""
    args = [_arg(k) for k in flat.keys if isinstance(k, Spec)]
    args += [_array_arg(s.type) for s in seeds]
    return args, [*leaves, *seeds]


def _direct_arguments(
    flat: Flat, program: Program, leaves: Sequence[Any], seeds: Sequence[Any]
) -> tuple[list[Arg] | None, list[Any]]:
    """Entry arguments that are the user's own; None if some are containers or keywords."""
    layout = flat.layout
    if layout.keywords.num_leaves or any(len(r) != 1 for r in layout.ranges):
        return None, []
    if not all(child.is_leaf() for child in layout.args):
        return None, []
    if any(isinstance(k, Spec) and k.kind not in ("float", "array") for k in flat.keys):
        return None, []
    if seeds and (len(seeds) != 1 or not program.vector):
        return None, []
    params = iter(leaves)
    args: list[Arg] = []
    order: list[Any] = []
    for k, key in enumerate(flat.keys):
        if isinstance(key, Spec):
            args.append(_arg(key))
            order.append(next(params))
        else:
            args.append(Arg("static", None, key.value))
        if seeds and layout.wrt == (k,):
            assert isinstance(key, Spec)
            args.append(_arg(key))
            order.append(seeds[0])
    return args, order


def _structure(program: Program) -> tuple[Any] | None:
    """The result as nested tuples and lists of result indices (in a 1-tuple); None if it has
    other containers or constants."""
    results = [x for x in program.leaves if isinstance(x, Result)]
    if len(results) < len(program.leaves):
        return None
    tree = program.treedef.unflatten([_Index(x.slot) for x in results])

    def convert(node: Any) -> Any:
        if type(node) is _Index:
            return node.slot
        if node is None:
            return None
        if type(node) in (tuple, list):
            return type(node)([convert(child) for child in node])
        raise LookupError

    try:
        return (convert(tree),)
    except LookupError:
        return None


class _Index:
    def __init__(self, slot: int) -> None:
        self.slot = slot


def _native_reads(reads: Sequence[Read]) -> list[NativeRead] | None:
    """The reads in a form that native code can compare; None if some have none."""
    found = []
    for owner, name, value in reads:
        if name is SIZE:
            found.append(NativeRead("size", owner, None, value))
        elif type(owner) is CellType:
            found.append(NativeRead("cell", owner, None, value))
        elif type(owner) is dict and type(name) is str:
            found.append(NativeRead("dict", owner, name, value, value is MISSING))
        elif type(owner) is np.ndarray and owner.flags.c_contiguous:
            found.append(NativeRead("bytes", owner, None, value))
        elif name != "__defaults__" or type(owner) is not FunctionType:
            return None
    return found if len(found) <= MAX_NATIVE_READS else None


def _loader(
    fn: Function,
    args: Sequence[Arg],
    results: Sequence[Boxed],
    structure: Any,
    stable: Sequence[Array],
    reads: Sequence[NativeRead],
) -> Callable[[KernelObject], Variant]:
    """How to load a kernel of ``fn``, once it is compiled."""

    def load(made: KernelObject) -> Variant:
        facts = made.facts
        spec = EntrySpec(
            tuple(args),
            tuple(results),
            structure,
            len(stable),
            facts.workspace_bytes,
            facts.work_ns > RELEASE_GIL_NS,
            tuple([r.kind for r in reads]),
        )
        calls = calls_until_hot(facts) if options.promote() else NEVER
        variant = load_variant(made.code, spec, facts.symbols, stable, reads, calls)
        made.code = b""  # there is another copy now
        return variant

    return load


def _build(fn: Function, load: Callable[[KernelObject], Variant]) -> tuple[Variant, KernelObject]:
    made = kernel_object(fn, options.opt_level())
    try:
        return load(made), made
    except CompileError:
        if made.key is None or not made.cached:
            raise
        disk.discard(made.key)  # whole, but the linker does not take it
        made = kernel_object(fn, options.opt_level())
        return load(made), made
