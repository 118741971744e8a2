"""``Pattern``: where the structural non-zeros of a matrix are.

>>> import numpy as np
>>> p = Pattern(np.array([0, 1, 1]), np.array([0, 0, 1]), (2, 2))
>>> p.nnz, p.indptr.tolist()
(3, [0, 1, 3])
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from tapec.errors import TapecValueError
from tapec.ir.sparsity import distinct

__all__ = ["Pattern"]

Array = np.ndarray[Any, Any]


class Pattern(NamedTuple):
    """The structural non-zeros of a matrix: ``rows`` and ``cols``, sorted by rows."""

    rows: Array
    cols: Array
    shape: tuple[int, int]

    @property
    def nnz(self) -> int:
        return int(self.rows.size)

    @property
    def indptr(self) -> Array:
        """Where each row starts, as in CSR."""
        counts = np.bincount(self.rows, minlength=self.shape[0])
        return np.concatenate([[0], np.cumsum(counts)])

    def keys(self) -> Array:
        keys: Array = self.rows * self.shape[1] + self.cols
        return keys

    def contains(self, other: Pattern) -> bool:
        return self.shape == other.shape and bool(np.isin(other.keys(), self.keys()).all())

    def union(self, other: Pattern) -> Pattern:
        return from_keys(distinct(np.concatenate([self.keys(), other.keys()])), self.shape)

    def matrix(self, data: Any = None) -> Any:
        """A ``scipy.sparse`` CSR matrix with this structure (ones without ``data``)."""
        from scipy.sparse import csr_matrix

        data = np.ones(self.nnz) if data is None else data
        return csr_matrix((data, self.cols, self.indptr), shape=self.shape)

    def lower(self) -> Pattern:
        keep = self.cols <= self.rows
        return Pattern(self.rows[keep], self.cols[keep], self.shape)

    def spy(self, width: int = 64) -> str:
        """A picture in text: one character for a block of rows and columns."""
        m, n = self.shape
        step = max(1, -(-max(n, 2 * m) // width)) if max(m, n) else 1
        high, wide = -(-m // (2 * step)) if step > 1 else m, -(-n // step)
        grid = np.zeros((max(high, 0), max(wide, 0)), int)
        per_row = 2 * step if step > 1 else 1
        np.add.at(grid, (self.rows // per_row, self.cols // step), 1)
        full = per_row * step
        lines = []
        for row in grid:
            cells = "".join("·" if not k else "█" if k >= full / 2 else "▒" for k in row)
            lines.append(cells)
        lines.append(f"{m}×{n}, {self.nnz} non-zeros")
        return "\n".join(lines)

    def plot(self, path: str | os.PathLike[str]) -> None:
        """The picture as an image file, with matplotlib."""
        try:
            from matplotlib.figure import Figure  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            raise ImportError("Pattern.plot needs matplotlib; Pattern.spy() does not") from None
        figure = Figure(figsize=(6, 6))
        axes = figure.subplots()
        axes.spy(self.matrix(), markersize=max(0.5, 200 / max(*self.shape, 1)))
        axes.set_title(f"{self.nnz} non-zeros")
        figure.savefig(path)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a ``.npz`` file."""
        np.savez_compressed(path, rows=self.rows, cols=self.cols, shape=np.array(self.shape))

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Pattern:
        """Read what ``save`` wrote."""
        with np.load(path, allow_pickle=False) as file:
            if set(file.files) != {"rows", "cols", "shape"}:
                raise TapecValueError(f"{os.fspath(path)} does not hold a sparsity pattern")
            m, n = (int(k) for k in file["shape"])
            found = Pattern(file["rows"], file["cols"], (m, n))
        inside = (found.rows >= 0) & (found.rows < m) & (found.cols >= 0) & (found.cols < n)
        if not inside.all():
            raise TapecValueError(f"{os.fspath(path)}: entries outside of its shape {(m, n)}")
        return found


def from_keys(keys: Array, shape: tuple[int, int]) -> Pattern:
    n = max(shape[1], 1)
    return Pattern(keys // n, keys % n, shape)
