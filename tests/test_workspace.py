"""The workspace of a native call: aligned, private to the call, freed; with and without the GIL."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from typing import Any

import pytest

from tapec.codegen.abi import (
    Arg,
    EntrySpec,
    Result,
    Variant,
    build_variant,
    link_chain,
    new_callable,
)
from tapec.ir.core import F64, Type


def linked(variant: Variant) -> Any:
    f = new_callable(lambda *args: "slow")
    link_chain(f, [variant])
    return f


# Fills the workspace with the argument and returns the sum, so that sharing one would show.
FILL = """define internal i32 @kernel(ptr %in, ptr %out, ptr %ws) noinline {{
start:
  %misplaced = ptrtoint ptr %ws to i64
  %rest = and i64 %misplaced, 63
  %bad = icmp ne i64 %rest, 0
  br i1 %bad, label %fail, label %enter
fail:
  ret i32 1
enter:
  %p = load ptr, ptr %in
  %x = load double, ptr %p
  br label %fill
fill:
  %i = phi i64 [ 0, %enter ], [ %i1, %fill ]
  %a = getelementptr double, ptr %ws, i64 %i
  store double %x, ptr %a
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, {n}
  br i1 %more, label %fill, label %next
next:
  br label %add
add:
  %j = phi i64 [ 0, %next ], [ %j1, %add ]
  %s = phi double [ 0.0, %next ], [ %s1, %add ]
  %b = getelementptr double, ptr %ws, i64 %j
  %y = load double, ptr %b
  %s1 = fadd double %s, %y
  %j1 = add i64 %j, 1
  %again = icmp ult i64 %j1, {n}
  br i1 %again, label %add, label %done
done:
  %q = load ptr, ptr %out
  store double %s1, ptr %q
  ret i32 0
}}"""


def spec_for(workspace: int, release_gil: bool = False) -> EntrySpec:
    scalar = Type(F64)
    return EntrySpec(
        (Arg("float", scalar),), (Result("float", scalar),), 0, 0, workspace, release_gil
    )


@pytest.mark.parametrize("release", [False, True])
@pytest.mark.parametrize("n", [1, 1000, 50_000, 9_000_000])
def test_workspace_is_private_to_a_call(n: int, release: bool) -> None:
    spec = spec_for(8 * n, release)
    f = linked(build_variant(FILL.format(n=n), spec, (), 1))
    wrong: list[Any] = []

    def work(i: float) -> None:
        for _ in range(10):
            got = f(i)
            if got != i * n:
                wrong.append(got)

    work(1.0)
    if n < 1_000_000:
        threads = [threading.Thread(target=work, args=(float(i),)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not wrong


def test_kept_workspace_is_freed_with_the_variant() -> None:
    def use() -> None:
        spec = spec_for(8_000_000)
        assert linked(build_variant(FILL.format(n=1_000_000), spec, (), 1))(1.0) == 1e6

    tracemalloc.start()
    use()
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    use()
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert after - before < 1_000_000
