"""Neural-network functions: ``functional`` and ``utils``."""

from tapec.nn import functional, utils

__all__ = ["Parameter", "functional", "utils"]


def Parameter(data: object, requires_grad: bool = True) -> object:
    """A leaf that requires grad."""
    from tapec.tensors.tensor import Tensor, tensor

    t = data.detach().clone() if isinstance(data, Tensor) else tensor(data)
    return t.requires_grad_(requires_grad)
