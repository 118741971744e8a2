"""tapec: a tape-based symbolic autograd compiler for NumPy code."""

__version__ = "0.1.0"
