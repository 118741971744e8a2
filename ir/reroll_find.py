"""Where a sequence repeats itself: candidate periods, and the stretches that have them.

Works on one integer per operation (equal for operations of the same kind from the same place
in the source), with whole-array NumPy operations: linear but for one sort.

>>> keys = np.array([7, 1, 2, 3, 1, 2, 3, 1, 2, 3, 9])
>>> periods(keys, 3, 6)
[3]
>>> stretches(keys, 3, 3)
[(1, 10)]
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["periods", "stretches"]

Ints = np.ndarray[Any, np.dtype[np.int64]]

#: Candidate periods of one level, the most promising ones.
MAX_PERIODS = 24


def periods(keys: Ints, min_trips: int, min_length: int) -> list[int]:
    """Distances at which keys recur often, increasing.

    In a loop some operation occurs once in each iteration, so that its distance to its
    previous occurrence is the period.
    """
    if len(keys) < 2:
        return []
    order = np.argsort(keys, kind="stable")
    ranked = keys[order]
    distance = (order[1:] - order[:-1])[ranked[1:] == ranked[:-1]]
    if not len(distance):
        return []
    counts = np.bincount(distance)
    found = np.flatnonzero(counts >= min_trips - 1)
    covered = found * (counts[found] + 1)
    found, covered = found[covered >= min_length], covered[covered >= min_length]
    best = np.argsort(-covered, kind="stable")[:MAX_PERIODS]
    return sorted(int(p) for p in found[best])


def stretches(keys: Ints, period: int, min_trips: int) -> list[tuple[int, int]]:
    """Maximal ``(start, end)`` with ``keys[i] == keys[i + period]`` inside, of at least
    ``min_trips`` periods."""
    equal = keys[period:] == keys[:-period]
    edges = np.flatnonzero(np.diff(np.concatenate(([False], equal, [False])).astype(np.int8)))
    starts, ends = edges[::2], edges[1::2]
    long = ends - starts >= (min_trips - 1) * period
    return [(int(a), int(b) + period) for a, b in zip(starts[long], ends[long], strict=True)]
