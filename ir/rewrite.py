"""The rewriter: one forward walk that does CSE, folding and the algebraic rules at once.

Input: any function.  Output: an equivalent one, with equal operations computed once
and every rule of the chosen set applied until none fires; dead operations are dropped
after the walk.  (Not before it: traced functions and gradients have few of them, fewer
than would pay for a scan.)

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

import gc
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import is_not
from typing import Any

from tapec.ir.builder import Builder
from tapec.ir.core import NO_ATTRS, Attrs, Block, Dense, Function, Op, Type, Value
from tapec.ir.dce import live_ops, rebuilt
from tapec.ir.loops import REGION_OPS
from tapec.ir.opdef import OPS

__all__ = ["RULES", "Rewriter", "Rule", "Ruleset", "paused_gc", "rewrite", "rule", "splat"]

Apply = Callable[["Rewriter", Op], "Value | None"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A named rewriting of one operation.

    ``on``      names of operations it looks at; ``"elementwise"``: all elementwise ones;
                ``"pure"``: all without effects and regions.
    ``given``   it is tried only if some operand is defined by an operation of one of these
                names, or (``"itself"``) if both operands are one value; empty: always.
    ``at``      which operand that must be: ``"first"``, ``"rest"`` or ``"any"``.
    ``exact``   the result is bit for bit the same for all inputs (the payload and sign of
                NaNs aside); if not, ``up_to`` says what may differ.
    ``group``   ``"fold"``, ``"algebra"`` or ``"shape"``.
    """

    name: str
    on: tuple[str, ...]
    given: tuple[str, ...]
    at: str
    apply: Apply
    exact: bool
    up_to: str
    group: str
    doc: str


#: name → rule, in the order in which they are tried.  Filled by ``rules`` and ``rules_shape``.
RULES: dict[str, Rule] = {}


def rule(
    *on: str,
    given: str | tuple[str, ...] = (),
    at: str = "any",
    up_to: str = "",
    group: str = "algebra",
) -> Callable[[Apply], Apply]:
    """Declare the decorated function, under its own name, as a rule."""

    def declare(fn: Apply) -> Apply:
        name = fn.__name__
        if name in RULES:
            raise ValueError(f"rule {name!r} is declared twice")
        needs = (given,) if isinstance(given, str) else given
        RULES[name] = Rule(name, on, needs, at, fn, not up_to, up_to, group, fn.__doc__ or "")
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


#: How the walk treats an operation name: (operands commute, may be merged, rules always
#: tried, rules by the name of the first operand's operation, and by that of another one's).
_Index = dict[str, tuple[Rule, ...]]
Kind = tuple[bool, bool, tuple[Rule, ...], _Index, _Index]


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
        rules = [r for r in self.rules if not names.isdisjoint(r.on)]
        kind = self[name] = (
            definition.commutative,
            pure,
            tuple([r for r in rules if not r.given]),
            _index([r for r in rules if r.at != "rest"]),
            _index([r for r in rules if r.at != "first"]),
        )
        return kind


def _index(rules: list[Rule]) -> _Index:
    makers = dict.fromkeys([g for r in rules for g in r.given])
    index = {g: tuple([r for r in rules if g in r.given]) for g in makers}
    return {g: _shared_tuples.setdefault(rs, rs) for g, rs in index.items()}


#: Equal tuples of rules are one object, so that the walk need not try them twice.
_shared_tuples: dict[tuple[Rule, ...], tuple[Rule, ...]] = {}


class Rewriter(Builder):
    """A builder that value-numbers and simplifies what it emits.

    ``memo`` is for rules that keep an index of an operation during one walk (see
    ``slice_of_place``); ``fired`` counts applications by rule name.
    """

    __slots__ = ("cse", "fired", "kinds", "made", "memo", "replaced", "tables")

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
        #: the result of the operation that a rule emitted last
        self.made: Value | None = None
        #: operation name → value number → result, for operations with one result
        self.tables: defaultdict[str, dict[Any, Value]] = defaultdict(dict)

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
        key = _key(operands, attrs, kind[0])
        table = self.tables[name]
        if self.cse:
            found = table.get(key)
            if found is not None and (not attrs or _same_bits(attrs, found)):
                return found
        signature = tuple([v.type for v in operands])
        types = None if attrs else _inferred.get((name, signature))
        if types is None:
            types = OPS[name].infer(signature, attrs)
            if not attrs:
                _inferred[name, signature] = types
        op = Op(name, operands, types, attrs, (), self.loc, hint)
        value = self._settle(op, kind)
        if value is op.results[0]:
            self.made = value
        if self.cse:
            table.setdefault(key, value)
        return value

    def known(self, name: str, operands: tuple[Value, ...]) -> Value | None:
        """The value of an operation without attributes if it has been computed already."""
        return self.tables[name].get(_key(operands, NO_ATTRS, self.kinds[name][0]))

    # -- the walk -------------------------------------------------------------------

    def _settle(self, op: Op, kind: Kind) -> Value:
        """Simplify ``op``, or append it if no rule fires; the value of its only result."""
        for r in _candidates(kind, op.operands):
            value = r.apply(self, op)
            if value is not None:
                return self._fire(r, op, value)
        self.ops.append(op)
        return op.results[0]

    def _fire(self, r: Rule, op: Op, value: Value) -> Value:
        self.fired[r.name] += 1
        if value is self.made and value.hint is None:
            value.hint = op.results[0].hint  # just made here: no other function has it
        return value

    def walk(self, ops: Iterable[Op]) -> None:
        """Rewrite ``ops`` into ``self.ops`` and ``self.replaced``.

        The common cases are written out, and operations are made without their constructors:
        this loop is most of the cost of a pass.
        """
        kinds, replaced, tables, cse = self.kinds, self.replaced, self.tables, self.cse
        append = self.ops.append
        new_op, new_value = Op.__new__, Value.__new__
        key: Any = None
        for op in ops:
            results = op.results
            name = op.name
            kind = kinds[name]
            if len(results) != 1 or not kind[1] or op.regions:
                self._odd(op, kind[1])
                continue
            result = results[0]
            attrs = op.attrs
            xs = op.operands
            # 1. the operands, as they are now, and 2. the value number
            changed = False
            if len(xs) == 2:
                x, y = xs
                if x in replaced:
                    x = replaced[x]
                    changed = True
                if y in replaced:
                    y = replaced[y]
                    changed = True
                if changed:
                    xs = (x, y)
                key = (y, x) if kind[0] and id(x) > id(y) else xs
            elif len(xs) == 1:
                x = xs[0]
                if x in replaced:
                    xs = (replaced[x],)
                    changed = True
                key = xs
            elif xs:
                if not replaced.keys().isdisjoint(xs):
                    xs = tuple([replaced.get(v, v) for v in xs])
                    changed = True
                key = xs
            elif name == "constant":
                if not self._constant(op):
                    append(op)
                continue
            if cse:
                if attrs:
                    key = _key(xs, attrs, kind[0])
                table = tables[name]
                found = table.get(key)
                if found is not None and (not attrs or _same_bits(attrs, found)):
                    replaced[result] = found
                    continue
            if changed:
                new = new_op(Op)
                new.name = name
                new.operands = xs
                new.attrs = attrs
                new.regions = ()
                new.loc = op.loc
                value = new_value(Value)
                value.type = result.type
                value.op = op = new
                value.hint = result.hint
                new.results = (value,)
            else:
                value = result
            # 3. is there a rule that might match?
            _, _, rules, first, rest = kind
            if rules or len(xs) > 2:
                self.loc = op.loc
                value = self._settle(op, kind)
            else:
                maker = xs[0].op if xs else None
                if maker is not None and maker.name in first:
                    rules = first[maker.name]
                if rest and len(xs) == 2:
                    maker = xs[1].op
                    if maker is not None and maker.name in rest:
                        more = rest[maker.name]
                        rules = rules + more if rules and rules is not more else more
                    if xs[0] is xs[1] and "itself" in rest:
                        rules = rules + rest["itself"]
                if rules:
                    self.loc = op.loc
                for r in rules:
                    got = r.apply(self, op)
                    if got is not None:
                        value = self._fire(r, op, got)
                        break
                else:
                    append(op)
            if value is not result:
                replaced[result] = value
            if cse:
                table[key] = value

    def _constant(self, op: Op) -> bool:
        """Whether the constant ``op`` is there already; if not, take note of it."""
        key = _constant_key(op.attrs["value"], op.results[0].type)
        found = self._constants.setdefault(key, op.results[0])
        if found is op.results[0]:
            return False
        self.replaced[op.results[0]] = found
        return True

    def _odd(self, op: Op, mergeable: bool) -> None:
        """Operations with effects, regions, or other than one result: no rules.

        Only the last kind may be merged.
        """
        xs = tuple([self.replaced.get(v, v) for v in op.operands])
        changed = xs != op.operands
        key: Any = None
        if mergeable and not op.regions and op.results and self.cse:
            key = (op.name, _key(xs, op.attrs, False))
            found = self.memo.get(key)
            if found is not None and _same_bits(op.attrs, found[0]):
                self.replaced.update(zip(op.results, found, strict=True))
                return
        if op.name in REGION_OPS and self.cse:
            self._loop(op, xs)
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

    def _loop(self, op: Op, xs: tuple[Value, ...]) -> None:
        """``cond``, ``scan``, ``while``; see ``loop_rules``.  A result may turn out to be
        another value; the operation's own results then are the others, in order."""
        from tapec.ir.loop_index import read_by_index
        from tapec.ir.loop_rules import hoist, specialise

        left = list(op.results)

        def settle(known: dict[int, Value]) -> None:
            for k, v in known.items():
                self.replaced[left[k]] = v
            left[:] = [r for k, r in enumerate(left) if k not in known]

        new, known = specialise(op, xs)
        settle(known)
        regions = tuple([self._region(r) for r in new.regions])
        if new is not op or xs != op.operands or any(map(is_not, regions, new.regions)):
            new = rebuilt(new, xs if new is op else new.operands, regions)
        self.loc = op.loc
        if new.name == "scan":
            new = read_by_index(new, self)
        new, known = hoist(new, self._again, self)
        settle(known)
        if new is not op:
            for old, made in zip(left, new.results, strict=True):
                made.hint = old.hint
                self.replaced[old] = made
        if self.cse:
            key = (op.name, _key(new.operands, new.attrs, False), new.regions)
            found = self.memo.get(key)
            if found is not None:
                self.replaced.update(zip(left, found, strict=True))
                return
            self.memo[key] = new.results
        self.ops.append(new)

    def _again(self, op: Op, operands: tuple[Value, ...]) -> Value:
        """An operation of a region, in this block."""
        return self.emit(op.name, operands, op.attrs, op.results[0].hint)

    def _region(self, block: Block) -> Block:
        """A region is its own scope: nothing in it is merged with what is outside.

        Several operations may share one region (a function that is called twice).
        """
        done: Block | None = self.memo.get(block)
        if done is not None:
            return done
        inner = Rewriter(self.kinds, self.cse, self.replaced, {}, self.fired)
        inner.walk(block.ops)
        results = tuple([self.replaced.get(v, v) for v in block.results])
        new = live_ops(inner.ops, results)
        if len(new) == len(block.ops) and all(a is b for a, b in zip(new, block.ops)):
            done = block
        else:
            done = Block(block.params, new, results)
        for op in block.ops:
            for r in op.results:
                self.replaced.pop(r, None)
        self.memo[block] = done
        return done


def rewrite(
    fn: Function, rules: Ruleset, cse: bool = True, fired: Counter[str] | None = None
) -> Function:
    """``fn`` rewritten by ``rules`` (and CSE), without dead code; ``fn`` itself if unchanged."""
    with paused_gc():
        rewriter = Rewriter(rules, cse, fired=fired)
        rewriter.walk(fn.ops)
        replaced = rewriter.replaced
        results = tuple([replaced.get(v, v) for v in fn.results]) if replaced else fn.results
        ops = live_ops(rewriter.ops, results)
        if not replaced and len(ops) == len(fn.ops):
            return fn
        return Function(fn.name, fn.params, ops, results)


@contextmanager
def paused_gc() -> Iterator[None]:
    """No cyclic garbage collection inside.

    Passes make many objects that all live on: with the collector scanning them again and
    again, a walk over 40,000 operations takes three times as long.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


# -- value numbers ----------------------------------------------------------------------


def _key(operands: tuple[Value, ...], attrs: Attrs, commutes: bool) -> tuple[Any, ...]:
    """The value number of an operation: equal for operations of one name that compute the same.

    Values are their own identity; operands of commutative operations are ordered by
    ``id``, which only decides which of two equal orders is looked up.
    """
    if attrs:
        if len(attrs) == 1:
            (attr,) = attrs.values()
            return (operands, attr)
        return (operands, frozenset(attrs.items()))
    if commutes and len(operands) == 2 and id(operands[0]) > id(operands[1]):
        return (operands[1], operands[0])
    return operands


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
    if type(content) is float:
        return (content.hex(), type_)
    if type(content) is Dense:
        return (content, type_)
    kind = type_.dtype.kind
    if kind == "f":
        return (float(content).hex(), type_)
    if kind == "c":
        content = complex(content)
        return (content.real.hex(), content.imag.hex(), type_)
    return (content, type_)


def _candidates(kind: Kind, operands: tuple[Value, ...]) -> tuple[Rule, ...]:
    """The rules that might match an operation, in the order in which they are tried."""
    _, _, rules, first, rest = kind
    if not operands:
        return rules
    made = operands[0].op
    if made is not None and made.name in first:
        rules = rules + first[made.name]
    if rest and len(operands) > 1:
        for maker in dict.fromkeys([v.op.name for v in operands[1:] if v.op is not None]):
            more = rest.get(maker)
            if more is not None and more is not rules:
                rules = rules + more
        if len(operands) == 2 and operands[0] is operands[1]:
            rules = rules + rest.get("itself", ())
    return rules


#: (operation, operand types) → result types, for operations without attributes
_inferred: dict[tuple[str, tuple[Type, ...]], tuple[Type, ...]] = {}
