"""Parts of the graph that a user may meet."""

from tapec.autograd.nodes import Handle, Node
from tapec.autograd.saved import saved_tensors_hooks

__all__ = ["Handle", "Node", "saved_tensors_hooks"]
