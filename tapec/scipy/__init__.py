"""SciPy's names for traced values: ``tapec.scipy.linalg``, ``special`` and ``stats``.

Functions of ``scipy.special`` that are ufuncs work on traced values as they are; these modules add
those that are Python functions, and log-densities.  On plain arrays all are SciPy's own.
"""

from tapec import api as _api  # noqa: F401  (imports the front end in order)
