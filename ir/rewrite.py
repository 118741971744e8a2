"""The rewriter: one forward walk that does CSE, folding and the algebraic rules at once.

Input: any function.  Output: an equivalent one, with equal operations computed once
and every rule of the chosen set applied until none fires.  Dead operations are dropped
before the walk (so that they cost nothing) and after it.

    %0 = mul %x, %y : f64[]               %0 = mul %x, %y : f64[]
    %1 = mul %y, %x : f64[]        ->     %1 = add %0, %0 : f64[]
    %2 = neg %1     : f64[]               return %1
    %3 = sub %0, %2 : f64[]
    return %3

The walk never edits an operation.  One whose operands stay the same is reused as it is
(functions may share operations, as values are immutable); otherwise it is rebuilt with
the new operands.  A rule gets the rebuilt operation and a ``Rewriter``, which is a
``Builder`` that simplifies what it emits, and answers with the value that replaces the
result, or None.  So a rule may combine builder calls freely: whatever they emit is
value-numbered and simplified in turn, and one walk suffices.

Which rules are tried for an operation is decided by two dictionary look-ups, of its name
and of the names of the operations that define its operands (``Rule.given``), because most
operations match no rule and must cost well under a microsecond to find that out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tapec.ir.builder import Builder, _infer_cache
from tapec.ir.core import NO_ATTRS, Attrs, Block, Dense, Function, Op, Type, Value
from tapec.ir.dce import live_ops, rebuilt
from tapec.ir.opdef import OPS

__all__ = ["RULES", "Rewriter", "Rule", "Ruleset", "rewrite", "rule", "splat"]

Apply = Callable[["Rewriter", Op], "Value | None"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A named rewriting of one operation.

    ``on``      names of operations it looks at; ``"elementwise"``: all elementwise ones;
                ``"pure"``: all without effects and regions.
    ``given``   it is tried only if some operand is defined by an operation of one of these
                names; empty: always.
    ``exact``   the result is bit for bit the same for all inputs (the payload and sign of
                NaNs aside); if not, ``up_to`` says what may differ.
    ``group``   ``"fold"``, ``"algebra"`` or ``"shape"``.
    """

    name: str
    on: tuple[str, ...]
    given: tuple[str, ...]
    apply: Apply
    exact: bool
    up_to: str
    group: str
    doc: str


#: name → rule, in the order in which they are tried.  Filled by ``rules`` and ``rules_shape``.
RULES: dict[str, Rule] = {}


def rule(
    *on: str, given: str | tuple[str, ...] = (), up_to: str = "", group: str = "algebra"
) -> Callable[[Apply], Apply]:
    """Declare the decorated function, under its own name, as a rule."""

    def declare(fn: Apply) -> Apply:
        name = fn.__name__
        if name in RULES:
            raise ValueError(f"rule {name!r} is declared twice")
        needs = (given,) if isinstance(given, str) else given
        RULES[name] = Rule(name, on, needs, fn, not up_to, up_to, group, fn.__doc__ or "")
        return fn

    return declare


def splat(value: Value) -> Any:
    """The Python scalar that ``value`` repeats, or None if it is no such constant.

    Beware of ``if splat(x)``: zero is a splat too.
    """
    op = value.op
    if op is None or op.name != "constant":
        return None
    content = op.attrs["value"]
    return None if type(content) is Dense else content


#: How the walk treats an operation name: (operands commute, may be merged,
#: rules always tried, rules tried by the name of an operand's operation).
Kind = tuple[bool, bool, tuple[Rule, ...], dict[str, tuple[Rule, ...]]]


class Ruleset(dict[str, Kind]):
    """A set of rules, indexed for the walk: operation name → ``Kind``, made on first use."""

    __slots__ = ("rules",)

    def __init__(self, rules: Iterable[Rule]) -> None:
        super().__init__()
        self.rules = tuple(rules)

    def __missing__(self, name: str) -> Kind:
        definition = OPS[name]
        pure = not definition.effect
        names = {name}
        if pure:
            names.add("pure")
        if definition.elementwise:
            names.add("elementwise")
        always: list[Rule] = []
        by_operand: dict[str, list[Rule]] = {}
        for r in self.rules:
            if names.isdisjoint(r.on):
                continue
            if not r.given:
                always.append(r)
            for g in r.given:
                by_operand.setdefault(g, []).append(r)
        table = {g: tuple(rs) for g, rs in by_operand.items()}
        kind = self[name] = (definition.commutative, pure, tuple(always), table)
        return kind


class Rewriter(Builder):
    """A builder that value-numbers and simplifies what it emits.

    ``memo`` is for rules that keep an index of an operation during one walk (see
    ``slice_of_place``); ``fired`` counts applications by rule name.
    """

    __slots__ = ("cse", "fired", "kinds", "memo", "replaced", "table")

    def __init__(
        self,
        kinds: Ruleset,
        cse: bool = True,
        replaced: dict[Value, Value] | None = None,
        memo: dict[Any, Any] | None = None,
        fired: Counter[str] | None = None,
    ) -> None:
        super().__init__()
        self.kinds = kinds
        self.cse = cse
        #: value of the old function → value that stands for it now
        self.replaced: dict[Value, Value] = {} if replaced is None else replaced
        self.memo: dict[Any, Any] = {} if memo is None else memo
        self.fired: Counter[str] = Counter() if fired is None else fired
        #: value number → result, for operations with one result
        self.table: dict[tuple[Any, ...], Value] = {}

    # -- what rules use -------------------------------------------------------------

    def emit(
        self,
        name: str,
        operands: tuple[Value, ...],
        attrs: Attrs = NO_ATTRS,
        hint: str | None = None,
    ) -> Value:
        if name == "constant":  # shares its numbers with ``Builder.constant``
            key = _constant_key(attrs["value"], attrs["type"])
            value = self._constants.get(key)
            if value is None:
                self.ops.append(Op(name, (), (attrs["type"],), attrs, (), None, hint))
                value = self._constants[key] = self.ops[-1].results[0]
            return value
        kind = self.kinds[name]
        key = _key(name, operands, attrs, kind[0])
        if self.cse:
            found = self.table.get(key)
            if found is not None and (not attrs or _same_bits(attrs, found)):
                return found
        types = _infer_cache.get((name, *[v.type for v in operands])) if not attrs else None
        if types is None:
            types = OPS[name].infer(tuple([v.type for v in operands]), attrs)
        value = self._settle(Op(name, operands, types, attrs, (), self.loc, hint), kind)
        if self.cse:
            self.table.setdefault(key, value)
        return value

    def known(self, name: str, operands: tuple[Value, ...]) -> Value | None:
        """The value of an operation without attributes if it has been computed already."""
        return self.table.get(_key(name, operands, NO_ATTRS, self.kinds[name][0]))

    # -- the walk -------------------------------------------------------------------

    def _settle(self, op: Op, kind: Kind) -> Value:
        """Simplify ``op``, or append it if no rule fires; the value of its only result."""
        for r in kind[2]:
            value = r.apply(self, op)
            if value is not None:
                return self._fire(r, op, value)
        by_operand = kind[3]
        if by_operand:
            operands = op.operands
            if len(operands) == 1:
                made = operands[0].op
                if made is not None:
                    for r in by_operand.get(made.name, ()):
                        value = r.apply(self, op)
                        if value is not None:
                            return self._fire(r, op, value)
            else:
                for maker in _makers(operands):
                    for r in by_operand.get(maker, ()):
                        value = r.apply(self, op)
                        if value is not None:
                            return self._fire(r, op, value)
        self.ops.append(op)
        return op.results[0]

    def _fire(self, r: Rule, op: Op, value: Value) -> Value:
        self.fired[r.name] += 1
        new = value.op
        if new is not None and self.ops and new is self.ops[-1] and value.hint is None:
            value.hint = op.results[0].hint  # a value of this walk: nobody else has seen it
        return value

    def walk(self, ops: Iterable[Op]) -> None:
        """Rewrite ``ops`` into ``self.ops`` and ``self.replaced``.

        The common cases are written out: this loop is most of the cost of a pass.
        """
        kinds, replaced, table, cse = self.kinds, self.replaced, self.table, self.cse
        constants = self._constants
        out = self.ops
        append = out.append
        get = table.get
        key: Any
        for op in ops:
            name = op.name
            xs = op.operands
            attrs = op.attrs
            kind = kinds[name]
            commutes, mergeable, always, by_operand = kind
            # 1. the operands, as they are now
            changed = False
            if replaced:
                for x in xs:
                    if x in replaced:
                        xs = tuple([replaced.get(v, v) for v in xs])
                        changed = True
                        break
            results = op.results
            if len(results) != 1 or op.regions or not mergeable:
                self._odd(op, xs, changed, mergeable)
                continue
            # 2. computed already?
            if cse:
                if attrs:
                    if name == "constant":
                        type_ = results[0].type
                        content = attrs["value"]
                        if type(content) is float:
                            key = (content.hex(), type_)
                        else:
                            key = _constant_key(content, type_)
                        found = constants.get(key)
                        if found is not None:
                            replaced[results[0]] = found
                        else:
                            constants[key] = results[0]
                            append(op)
                        continue
                    key = _key(name, xs, attrs, commutes)
                    found = get(key)
                    if found is not None and not _same_bits(attrs, found):
                        found = None
                else:
                    if commutes and len(xs) == 2 and id(xs[0]) > id(xs[1]):
                        key = (name, xs[1], xs[0])
                    else:
                        key = (name, *xs)
                    found = get(key)
                if found is not None:
                    replaced[results[0]] = found
                    continue
            if changed:
                old = results[0]
                op = Op(name, xs, (old.type,), attrs, (), op.loc, old.hint)
                results_now = op.results
            else:
                results_now = results
            # 3. is there a rule that might match?
            candidate = bool(always)
            if not candidate and by_operand:
                for x in xs:
                    maker = x.op
                    if maker is not None and maker.name in by_operand:
                        candidate = True
                        break
            if candidate:
                self.loc = op.loc
                value = self._settle(op, kind)
            else:
                append(op)
                value = results_now[0]
            if value is not results[0]:
                replaced[results[0]] = value
            if cse:
                table[key] = value

    def _odd(self, op: Op, xs: tuple[Value, ...], changed: bool, mergeable: bool) -> None:
        """Operations with effects, regions, or other than one result: no rules.

        Only the last kind may be merged.
        """
        key: Any = None
        if mergeable and not op.regions and op.results and self.cse:
            key = ("results", _key(op.name, xs, op.attrs, False))
            found = self.memo.get(key)
            if found is not None and _same_bits(op.attrs, found[0]):
                self.replaced.update(zip(op.results, found, strict=True))
                return
        regions = op.regions
        if regions:
            regions = tuple([self._region(r) for r in regions])
            changed = changed or any(a is not b for a, b in zip(regions, op.regions))
        if changed:
            new = rebuilt(op, xs, regions)
            self.replaced.update(zip(op.results, new.results, strict=True))
            op = new
        self.ops.append(op)
        if key is not None:
            self.memo[key] = op.results

    def _region(self, block: Block) -> Block:
        """A region is its own scope: nothing in it is merged with what is outside.

        Several operations may share one region (a function that is called twice).
        """
        done: Block | None = self.memo.get(block)
        if done is not None:
            return done
        inner = Rewriter(self.kinds, self.cse, self.replaced, {}, self.fired)
        ops = live_ops(block.ops, block.results)
        inner.walk(ops)
        results = tuple([self.replaced.get(v, v) for v in block.results])
        new = live_ops(inner.ops, results)
        if len(new) == len(block.ops) and all(a is b for a, b in zip(new, block.ops)):
            done = block
        else:
            done = Block(block.params, new, results)
        for op in ops:
            for r in op.results:
                self.replaced.pop(r, None)
        self.memo[block] = done
        return done


def rewrite(
    fn: Function, rules: Ruleset, cse: bool = True, fired: Counter[str] | None = None
) -> Function:
    """``fn`` rewritten by ``rules`` (and CSE), without dead code; ``fn`` itself if unchanged."""
    ops = live_ops(fn.ops, fn.results)
    rewriter = Rewriter(rules, cse, fired=fired)
    rewriter.walk(ops)
    replaced = rewriter.replaced
    if replaced:
        results = tuple([replaced.get(v, v) for v in fn.results])
        return Function(fn.name, fn.params, live_ops(rewriter.ops, results), results)
    if len(ops) == len(fn.ops):
        return fn
    return Function(fn.name, fn.params, ops, fn.results)


# -- value numbers ----------------------------------------------------------------------


def _key(name: str, operands: tuple[Value, ...], attrs: Attrs, commutes: bool) -> tuple[Any, ...]:
    """The value number of an operation: equal for operations that compute the same.

    Values are their own identity; operands of commutative operations are ordered by
    ``id``, which only decides which of two equal orders is looked up.
    """
    if attrs:
        if len(attrs) == 1:
            (attr,) = attrs.values()
            return (name, *operands, attr)
        return (name, *operands, frozenset(attrs.items()))
    if commutes and len(operands) == 2 and id(operands[0]) > id(operands[1]):
        return (name, operands[1], operands[0])
    return (name, *operands)


def _same_bits(attrs: Attrs, found: Value) -> bool:
    """Whether attributes that compared equal are so by bits: 0.0 is not -0.0."""
    op = found.op
    if op is None or op.attrs is attrs:
        return True
    return not any(_has_float(v) for v in attrs.values()) or repr(attrs) == repr(op.attrs)


def _has_float(v: Any) -> bool:
    kind = type(v)
    if kind is tuple:
        return any(_has_float(w) for w in v)
    return kind is float or kind is complex


def _constant_key(content: Any, type_: Type) -> Any:
    """As ``Builder.constant`` numbers its constants."""
    if type(content) is Dense:
        return (content, type_)
    kind = type_.dtype.kind
    if kind == "f":
        return (float(content).hex(), type_)
    if kind == "c":
        content = complex(content)
        return (content.real.hex(), content.imag.hex(), type_)
    return (content, type_)


def _makers(operands: tuple[Value, ...]) -> Iterable[str]:
    """The distinct names of the operations that define ``operands``, in order."""
    return dict.fromkeys([v.op.name for v in operands if v.op is not None])
