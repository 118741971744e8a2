"""Colourings of sparse patterns: which columns (rows) may share one derivative product.

``columns``: two columns of one colour have no row in common (distance-2 colouring).
``star``: for symmetric patterns; neighbours differ, and every path of four vertices has three
colours, so that each entry can be read from a product by itself.  All are greedy, in the
order of decreasing degree or the natural one, whichever needs fewer colours.

>>> import numpy as np
>>> columns(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 2]), (2, 3)).tolist()
[0, 1, 0]
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["bidirectional", "columns", "star"]

Array = np.ndarray[Any, Any]


def _lists(major: Array, minor: Array, n: int) -> list[list[int]]:
    """Per major index its minor indices, in order."""
    order = np.lexsort((minor, major))
    ends = np.cumsum(np.bincount(major, minlength=n))
    flat = minor[order].tolist()
    return [flat[a:b] for a, b in zip([0, *ends[:-1].tolist()], ends.tolist())]


def _orders(degree: Array) -> list[list[int]]:
    natural = list(range(degree.size))
    if degree.size == 0 or degree.min() == degree.max():
        return [natural]
    return [natural, np.argsort(-degree, kind="stable").tolist()]


def columns(rows: Array, cols: Array, shape: tuple[int, int]) -> Array:
    """A colour for each column; columns without entries have colour 0."""
    m, n = shape
    by_col, by_row = _lists(cols, rows, n), _lists(rows, cols, m)
    best: list[int] | None = None
    for order in _orders(np.bincount(cols, minlength=n)):
        color = [-1] * n
        mark = [-1] * (n + 1)
        for j in order:
            for i in by_col[j]:
                for k in by_row[i]:
                    if color[k] >= 0:
                        mark[color[k]] = j
            c = 0
            while mark[c] == j:
                c += 1
            color[j] = c
        if best is None or max(color, default=0) < max(best, default=0):
            best = color
    return np.array(best, np.int64)


def star(rows: Array, cols: Array, n: int) -> Array:
    """A star colouring of a symmetric pattern; the diagonal may or may not be in it."""
    off = rows != cols
    near = _lists(rows[off], cols[off], n)
    best: list[int] | None = None
    for order in _orders(np.bincount(rows[off], minlength=n)):
        color = [-1] * n
        mark = [-1] * (n + 1)
        for v in order:
            for w in near[v]:
                cw = color[w]
                if cw >= 0:
                    mark[cw] = v
                    for x in near[w]:
                        cx = color[x]
                        if cx >= 0 and mark[cx] != v:
                            for y in near[x]:
                                if y != w and color[y] == cw:
                                    mark[cx] = v
                                    break
                else:
                    for x in near[w]:
                        if color[x] >= 0:
                            mark[color[x]] = v
            c = 0
            while mark[c] == v:
                c += 1
            color[v] = c
        if best is None or max(color, default=0) < max(best, default=0):
            best = color
    return np.array(best, np.int64)


def bidirectional(rows: Array, cols: Array, shape: tuple[int, int]) -> tuple[Array, Array, Array]:
    """Colours of columns and of rows, and which entries are read from row products; rows that
    are not read so have colour -1.

    The densest rows are taken by reverse mode, the rest by forward mode; the number of such
    rows is chosen so that the colours are fewest.
    """
    m, n = shape
    degree = np.bincount(rows, minlength=m)
    by_rows = columns(cols, rows, (n, m))
    best: tuple[int, Array, Array, Array] | None = None
    limits = sorted(set(degree.tolist()), reverse=True)
    tried = [np.iinfo(np.int64).max, *[d - 1 for d in limits[:4]], -1]
    for limit in dict.fromkeys(tried):
        dense = degree[rows] > limit
        if limit == -1:
            row_color, dense = by_rows, np.ones(rows.size, bool)
        else:
            row_color = columns(cols[dense], rows[dense], (n, m))
            row_color[np.bincount(rows[dense], minlength=m) == 0] = -1
        col_color = columns(rows[~dense], cols[~dense], (m, n))
        total = _count(row_color[rows[dense]]) + _count(col_color[cols[~dense]])
        if best is None or total < best[0]:
            best = total, col_color, row_color, dense
    assert best is not None
    return best[1], best[2], best[3]


def _count(colors: Array) -> int:
    return int(colors.max()) + 1 if colors.size else 0
