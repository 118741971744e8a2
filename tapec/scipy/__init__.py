"""SciPy's names for traced values: ``tapec.scipy.linalg``, ``signal``, ``special`` and ``stats``.

Functions of ``scipy.special`` that are ufuncs work on traced values as they are; these modules add
those that are Python functions, and log-densities.  On plain arrays all are SciPy's own.

A traced function may name SciPy itself: where that cannot take traced values, the trace is
made again with these modules in its place (``tapec.retry``).
"""

from tapec import api as _api  # noqa: F401  (imports the front end in order)
