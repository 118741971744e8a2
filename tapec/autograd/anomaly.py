"""``detect_anomaly``: name the operation whose derivative is NaN."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np

from tapec.tensors.graph import Graph, TensorError, modes
from tapec.tensors.rules import RULES

__all__ = ["check_backward", "detect_anomaly", "set_detect_anomaly"]


class detect_anomaly:
    """Check every operation of backward for NaN; slow, for finding mistakes.

    >>> import tapec
    >>> with tapec.autograd.detect_anomaly(check_nan=True):  # doctest: +SKIP
    ...     loss.backward()
    """

    def __init__(self, check_nan: bool = True) -> None:
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should "
            "only be enabled for debugging.",
            stacklevel=2,
        )
        self._check = check_nan
        self._saved: Any = None

    def __enter__(self) -> None:
        self._saved = (modes.anomaly, modes.check_nan)
        modes.anomaly, modes.check_nan = True, self._check

    def __exit__(self, *exc: object) -> None:
        modes.anomaly, modes.check_nan = self._saved


class set_detect_anomaly:
    """Anomaly detection on or off, at once or for a ``with`` block."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._saved = (modes.anomaly, modes.check_nan)
        modes.anomaly, modes.check_nan = mode, check_nan

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        modes.anomaly, modes.check_nan = self._saved


def check_backward(g: Graph, cts: dict[int, Any]) -> None:
    """Run the reverse sweep of ``g`` one operation at a time and look for NaN."""
    if not modes.check_nan:
        return
    from tapec.tensors.plans import backward_plan

    states = g.states
    waiting = dict(cts)
    g.evaluate([k for k in range(max(cts) + 1) if states[k].requires])
    for k in range(max(cts), -1, -1):
        ct = waiting.pop(k, None)
        state = states[k]
        if ct is None or state.op == "input":
            continue
        operands = tuple(sorted({j for j in state.operands if j.__class__ is int}))
        cuts = tuple(j for j in operands if states[j].requires)
        key = ("anomaly", k)
        plan = state.plan(key, partial(backward_plan, states, (k,), True, cuts))
        results = plan.run(g, [ct])
        for n, ((_, where), r) in enumerate(zip(plan.grads, results[1:])):
            if np.isnan(r).any():
                place = g.site(k)
                warnings.warn(
                    f"Error detected in {RULES[state.op].name}. The forward call that caused the "
                    f"error was at {place}",
                    stacklevel=5,
                )
                raise TensorError(
                    f"Function '{RULES[state.op].name}' returned nan values in its {n}th output; "
                    f"the operation was recorded at {place}"
                )
            waiting[where] = waiting[where] + r if where in waiting else r
