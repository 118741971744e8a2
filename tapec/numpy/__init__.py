"""NumPy on traced values."""

from tapec.numpy import ufuncs  # noqa: F401
