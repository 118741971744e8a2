"""Deferred functions: types at once, operations later, the same as without deferring."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tapec
from tapec.codegen import objects
from tapec.ir import deferred, equal, interpret, jvp, parse, vjp
from tapec.ir.core import Function
from tapec.ir.passes import run_passes

TEXT = """func @f(%x: f64[3], %n: i64[], %y: f64[]) -> (f64[3], i64[], f64[]) {
  %a = sin %x : f64[3]
  %s = reduce_sum %a {axes=(0)} : f64[]
  %m = add %n, %n : i64[]
  %p = mul %s, %y : f64[]
  return %a, %m, %p
}"""


def source() -> Function:
    fn = parse(TEXT)
    assert isinstance(fn, Function)
    return fn


def types(fn: Function) -> tuple[list[str], list[str]]:
    return [str(p.type) for p in fn.params], [str(r.type) for r in fn.results]


STEPS = {
    "simplify": (deferred.simplify, lambda f: run_passes(f, ("simplify",))),
    "vjp": (lambda f: deferred.vjp(f, [0, 2], [0, 2]), lambda f: vjp(f, [0, 2], [0, 2])),
    "vjp without seeds": (
        lambda f: deferred.vjp(f, [2], [2], seeds=False),
        lambda f: vjp(f, [2], [2], seeds=False),
    ),
    "jvp": (lambda f: deferred.jvp(f, [0, 2]), lambda f: jvp(f, [0, 2])),
    "select": (
        lambda f: deferred.select(f, [2, 0]),
        lambda f: Function(f.name, f.params, f.ops, [f.results[2], f.results[0]]),
    ),
    "reorder": (
        lambda f: deferred.reorder(f, [2, 0, 1]),
        lambda f: Function(f.name, [f.params[k] for k in (2, 0, 1)], f.ops, f.results),
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_is_what_it_defers(name: str) -> None:
    later, now = STEPS[name]
    found = later(source())
    assert isinstance(found, deferred.Deferred) and not found.ready
    known = [list(map(str, t)) for t in (found.param_types, found.result_types)]
    assert equal(found, now(source()))
    assert found.ready
    assert list(types(found)) == known


def test_steps_follow_each_other() -> None:
    made = deferred.simplify(deferred.select(deferred.vjp(source(), [0], [2], seeds=False), [3]))
    assert isinstance(made, deferred.Deferred) and not made.ready
    x = np.array([0.1, 0.2, 0.3])
    (gradient,) = interpret(made, [x, np.array(2), np.array(3.0)])
    np.testing.assert_allclose(gradient, 3 * np.cos(x))
    assert "@f" in repr(made)


def test_the_block_is_made_once_for_all_threads() -> None:
    made = deferred.simplify(source())
    blocks: list[Any] = []
    threads = [threading.Thread(target=lambda: blocks.append(made.block)) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(b is blocks[0] for b in blocks)


def test_keys_tell_recipes_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_STARTED", float("inf"))
    objects._environment.cache_clear()
    recipes = [later(source()) for later, _ in STEPS.values()]
    recipes += [deferred.select(r, [0]) for r in recipes]
    keys = [objects.function_key(r, None) for r in [source(), *recipes]]
    assert None not in keys and len(set(keys)) == len(keys)
    assert objects.function_key(STEPS["vjp"][0](source()), None) == keys[2]
    assert not any(r.ready for r in recipes if isinstance(r, deferred.Deferred))


def test_a_warm_start_makes_no_derivative(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("TAPEC_CACHE", "1")
    monkeypatch.setenv("TAPEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(objects, "_STARTED", float("inf"))
    objects._environment.cache_clear()

    def make() -> Any:
        return lambda x, y: np.sum(np.sin(x) * y)

    x = np.linspace(0, 1, 7)
    transforms: list[Any] = [
        tapec.grad,
        tapec.value_and_grad,
        tapec.jit,
        lambda f: lambda x, y: tapec.jvp(f, (x, y), (x, y)),
        lambda f: lambda x, y: tapec.hvp(f)(x, x, y),
        lambda f: lambda x, y: tapec.vjp(f, x, y)[1](1.0),
    ]
    want = [t(make())(x, 2.0) for t in transforms]
    monkeypatch.setattr(deferred.Deferred, "block", property(lambda self: 1 / 0))
    for transform, wanted in zip(transforms, want):
        got = transform(make())(x, 2.0)
        for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (got, wanted))):
            np.testing.assert_array_equal(a, b)
