"""The type of native callables as a Python object: attributes, binding, limits, collection."""

from __future__ import annotations

import functools
import gc
import inspect
import weakref
from typing import Any

import pytest

from tapec.codegen import abi
from tapec.codegen.abi import new_callable


def slow(*args: Any, **kwargs: Any) -> Any:
    return "slow", args, kwargs


def test_attributes_weakrefs_and_referents() -> None:
    f = new_callable(slow)
    f.label = "x"
    assert vars(f) == {"label": "x"} and weakref.ref(f)() is f
    assert slow in gc.get_referents(f) and gc.is_tracked(f)
    assert abi.slow_of(f) is slow and callable(f)


def test_bound_as_a_method() -> None:
    class Model:
        @new_callable
        def both(*args: object, **kwargs: object) -> Any:
            return args, kwargs

    model = Model()
    assert model.both(1, a=2) == ((model, 1), {"a": 2})
    bound = model.both
    assert bound(1) == ((model, 1), {}) and bound.__self__ is model
    assert Model.both is Model.__dict__["both"]
    assert Model.both(model) == ((model,), {})


def test_type_takes_methods_later(monkeypatch: pytest.MonkeyPatch) -> None:
    type_, f = abi.callable_type(), new_callable(slow)
    monkeypatch.setattr(type_, "__repr__", lambda self: "<compiled>")
    monkeypatch.setattr(type_, "describe", lambda self, x: (self, x), raising=False)
    assert repr(f) == "<compiled>" and f.describe(3) == (f, 3)


def test_type_cannot_be_instantiated_or_subclassed() -> None:
    with pytest.raises(TypeError):
        abi.callable_type()()
    with pytest.raises(TypeError):
        type("Sub", (abi.callable_type(),), {})


def test_internal_fields_are_not_reachable() -> None:
    f = new_callable(slow)
    assert not hasattr(f, "_slow") and not hasattr(f, "_keep")
    with pytest.raises(TypeError, match="expected a NativeCallable"):
        abi.install(slow, 0, None)


def test_forwards_every_call() -> None:
    f = new_callable(slow)
    assert f() == ("slow", (), {})
    assert f(1, *(2, 3), a=4, b=5) == ("slow", (1, 2, 3), {"a": 4, "b": 5})
    assert list(map(f, [1])) == [("slow", (1,), {})]
    assert functools.partial(f, 1)(2, a=3) == ("slow", (1, 2), {"a": 3})


def test_wrapped_function_shows_its_name_and_signature() -> None:
    def model(x: float, y: int = 2) -> None:
        """Docstring."""

    f = functools.update_wrapper(new_callable(slow), model)
    assert (f.__name__, f.__doc__, f.__module__) == ("model", "Docstring.", __name__)
    assert str(inspect.signature(f)) == str(inspect.signature(model))


def test_cycle_through_the_slow_function_is_collected() -> None:
    def make() -> weakref.ref[Any]:
        def slow() -> Any:
            return f

        f = new_callable(slow)
        assert f() is f
        return weakref.ref(f)

    ref = make()
    gc.collect()
    assert ref() is None
