"""Shape methods of tensors; those that PyTorch makes views of are views here."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from tapec.source import describe_site, user_site
from tapec.tensors.graph import TensorError, TensorIndexError, TensorValueError
from tapec.tensors.record import apply

__all__ = ["Shapes", "Size", "dim_of", "dims_of", "sizes_of"]


class Size(tuple[int, ...]):
    """A shape: a tuple that prints as PyTorch's."""

    __slots__ = ()

    def numel(self) -> int:
        """The number of elements."""
        n = 1
        for k in self:
            n *= k
        return n

    def __repr__(self) -> str:
        return f"tapec.Size([{', '.join(map(str, self))}])"


def dim_of(dim: Any, ndim: int) -> int:
    """One dimension, negative ones counted from the end."""
    k = operator.index(dim)
    n = max(ndim, 1)
    if not -n <= k < n:
        site = user_site(2)
        here = f"{describe_site(site)}: " if site.loc is not None else ""
        raise TensorIndexError(
            f"{here}Dimension out of range (expected to be in range of [{-n}, {n - 1}], "
            f"but got {k})"
        )
    return k + n if k < 0 else k


def dims_of(dim: Any, ndim: int) -> tuple[int, ...]:
    """Dimensions given as None (all), one, or several."""
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return tuple(range(ndim))
    if not isinstance(dim, (tuple, list)):
        k = dim_of(dim, ndim)
        return (k,) if ndim else ()
    found = tuple(sorted([dim_of(k, ndim) for k in dim]))
    if len(set(found)) < len(found):
        raise TensorError(f"dim {found[0]} appears multiple times in the list of dims")
    return found


def sizes_of(args: Sequence[Any]) -> tuple[int, ...]:
    """Sizes given as separate integers or as one sequence."""
    if len(args) == 1 and isinstance(args[0], (tuple, list)):
        args = args[0]
    return tuple([operator.index(n) for n in args])


def _resolved(shape: tuple[int, ...], total: int, old: tuple[int, ...]) -> tuple[int, ...]:
    if -1 in shape:
        known = 1
        for n in shape:
            if n != -1:
                known *= n
        if shape.count(-1) > 1:
            raise TensorError("only one dimension can be inferred")
        if known == 0 or total % known:
            raise TensorValueError(
                f"shape '{list(shape)}' is invalid for input of size {total} (shape {list(old)})"
            )
        shape = tuple([total // known if n == -1 else n for n in shape])
    n = 1
    for k in shape:
        n *= k
    if n != total:
        raise TensorValueError(
            f"shape '{list(shape)}' is invalid for input of size {total} (shape {list(old)})"
        )
    return shape


def _view(t: Any, op: str, attrs: Any) -> Any:
    from tapec.tensors.inplace import view

    return view(t, op, attrs)


class Shapes:
    """Views and rearrangements."""

    __slots__ = ()
    _type: Any

    def view(self, *shape: Any) -> Any:
        """The same elements in another shape, sharing storage.

        >>> import tapec
        >>> tapec.arange(6).view(2, -1).shape
        tapec.Size([2, 3])
        """
        old = self._type
        return _view(self, "view", _resolved(sizes_of(shape), old.size, old.shape))

    def reshape(self, *shape: Any) -> Any:
        """As ``view``."""
        return self.view(*shape)

    def view_as(self, other: Any) -> Any:
        """A view in the shape of ``other``."""
        return self.view(*other.shape)

    reshape_as = view_as

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Any:
        """Join dimensions ``start_dim`` to ``end_dim``."""
        shape = self._type.shape
        a, b = dim_of(start_dim, len(shape)), dim_of(end_dim, len(shape))
        if not shape:
            return self.view(1)
        n = 1
        for k in shape[a : b + 1]:
            n *= k
        return self.view(*shape[:a], n, *shape[b + 1 :])

    def ravel(self) -> Any:
        """One dimension."""
        return self.view(-1) if self._type.size else self.view(0)

    def unflatten(self, dim: int, sizes: Sequence[int]) -> Any:
        """Split a dimension."""
        shape = self._type.shape
        k = dim_of(dim, len(shape))
        new = _resolved(tuple(sizes), shape[k], (shape[k],))
        return self.view(*shape[:k], *new, *shape[k + 1 :])

    def squeeze(self, dim: Any = None) -> Any:
        """Without dimensions of length 1."""
        shape = self._type.shape
        dims = dims_of(dim, len(shape))
        return self.view(tuple([n for k, n in enumerate(shape) if n != 1 or k not in dims]))

    def unsqueeze(self, dim: int) -> Any:
        """With a dimension of length 1 at ``dim``."""
        shape = list(self._type.shape)
        shape.insert(dim_of(dim, len(shape) + 1), 1)
        return self.view(tuple(shape))

    def permute(self, *dims: Any) -> Any:
        """Dimensions in another order."""
        n = self._type.ndim
        perm = tuple([dim_of(k, n) for k in sizes_of(dims)])
        if sorted(perm) != list(range(n)):
            raise TensorError(f"permute: {perm} is not an order of {n} dimensions")
        return _view(self, "permute", perm)

    def transpose(self, dim0: int, dim1: int) -> Any:
        """Two dimensions exchanged."""
        n = self._type.ndim
        perm = list(range(n))
        a, b = dim_of(dim0, n), dim_of(dim1, n)
        if not n:
            return self.view(())
        perm[a], perm[b] = perm[b], perm[a]
        return _view(self, "permute", tuple(perm))

    swapaxes = transpose

    def t(self) -> Any:
        """The transpose of a matrix."""
        if self._type.ndim > 2:
            raise TensorError(f"t() expects at most 2 dimensions, got {self._type.ndim}")
        return self.transpose(0, 1) if self._type.ndim == 2 else self.view(self._type.shape)

    @property
    def T(self) -> Any:
        """Dimensions in reverse order."""
        return _view(self, "permute", tuple(reversed(range(self._type.ndim))))

    @property
    def mT(self) -> Any:
        """Matrices transposed."""
        return self.transpose(-2, -1)

    def movedim(self, source: int, destination: int) -> Any:
        """One dimension moved."""
        n = self._type.ndim
        perm = list(range(n))
        perm.insert(dim_of(destination, n), perm.pop(dim_of(source, n)))
        return _view(self, "permute", tuple(perm))

    def expand(self, *sizes: Any) -> Any:
        """Dimensions of length 1 repeated without copying."""
        new = list(sizes_of(sizes))
        old = self._type.shape
        lead = len(new) - len(old)
        if lead < 0:
            raise TensorError(f"expand: {len(new)} sizes for a tensor of {len(old)} dimensions")
        for k in range(len(new)):
            if new[k] == -1 and k >= lead:
                new[k] = old[k - lead]
            if k >= lead and old[k - lead] not in (1, new[k]):
                raise TensorValueError(
                    f"expand: the size {new[k]} must match the existing size {old[k - lead]} at "
                    f"dimension {k}"
                )
        if tuple(new) == old:
            return _view(self, "alias", None)
        return _view(self, "expand", tuple(new))

    def expand_as(self, other: Any) -> Any:
        """Expanded to the shape of ``other``."""
        return self.expand(*other.shape)

    def repeat(self, *sizes: Any) -> Any:
        """Copies along each dimension."""
        return apply("repeat", (self,), (sizes_of(sizes),))

    def tile(self, *sizes: Any) -> Any:
        """Copies along each dimension, as NumPy's."""
        return apply("repeat", (self,), (sizes_of(sizes),))

    def repeat_interleave(self, repeats: int, dim: int | None = None) -> Any:
        """Each element repeated."""
        axis = None if dim is None else dim_of(dim, self._type.ndim)
        return apply("repeat_interleave", (self,), (repeats, axis))

    def narrow(self, dim: int, start: int, length: int) -> Any:
        """``length`` elements of a dimension from ``start``."""
        k = dim_of(dim, self._type.ndim)
        if start < 0 or start + length > self._type.shape[k]:
            raise TensorError(
                f"start ({start}) + length ({length}) exceeds dimension size "
                f"({self._type.shape[k]})"
            )
        return self[(*[slice(None)] * k, slice(start, start + length))]  # type: ignore[index]

    def select(self, dim: int, index: int) -> Any:
        """One element of a dimension."""
        k = dim_of(dim, self._type.ndim)
        return self[(*[slice(None)] * k, index)]  # type: ignore[index]

    def split(self, size: Any, dim: int = 0) -> tuple[Any, ...]:
        """Pieces of the given size or sizes along a dimension."""
        k = dim_of(dim, self._type.ndim)
        n = self._type.shape[k]
        if isinstance(size, int):
            sizes = [size] * (n // size) + ([n % size] if n % size else [])
            sizes = sizes or [0]
        else:
            sizes = list(size)
            if sum(sizes) != n:
                raise TensorError(
                    f"split sizes {sizes} must add up to {n}, the length of dimension {k}"
                )
        out, at = [], 0
        for m in sizes:
            out.append(self.narrow(k, at, m))
            at += m
        return tuple(out)

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Any, ...]:
        """About equal pieces."""
        n = self._type.shape[dim_of(dim, self._type.ndim)]
        return self.split(max(-(-n // chunks), 1), dim)

    def unbind(self, dim: int = 0) -> tuple[Any, ...]:
        """All elements of a dimension."""
        k = dim_of(dim, self._type.ndim)
        return tuple([self.select(k, i) for i in range(self._type.shape[k])])

    def flip(self, *dims: Any) -> Any:
        """Dimensions reversed."""
        n = self._type.ndim
        return apply("flip", (self,), tuple([dim_of(k, n) for k in sizes_of(dims)]))

    def roll(self, shifts: Any, dims: Any = None) -> Any:
        """Elements moved around."""
        tup = tuple(shifts) if isinstance(shifts, (tuple, list)) else shifts
        axes = tuple(dims) if isinstance(dims, (tuple, list)) else dims
        return apply("roll", (self,), (tup, axes))

    def tril(self, diagonal: int = 0) -> Any:
        """The lower triangle."""
        return apply("tril", (self,), (diagonal,))

    def triu(self, diagonal: int = 0) -> Any:
        """The upper triangle."""
        return apply("triu", (self,), (diagonal,))

    def diag(self, diagonal: int = 0) -> Any:
        """The diagonal of a matrix, or a diagonal matrix."""
        return apply("diag", (self,), (diagonal,))

    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
        """Diagonals (a copy)."""
        return apply("diagonal", (self,), (offset, dim1, dim2))

    def trace(self) -> Any:
        """The sum of the diagonal."""
        return self.diagonal().sum()

    def contiguous(self) -> Any:
        return self
