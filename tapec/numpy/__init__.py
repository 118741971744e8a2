"""NumPy's namespace for traced code: ``import tapec.numpy as np``.

Plain ``import numpy as np`` works in traced functions, too; the one thing that it cannot do
is to make arrays that traced values may be written into.  Here the creation functions
(``zeros``, ``ones``, ``full``, ``empty``, ``array``, …) do.  Every other name is NumPy's own.

    import tapec.numpy as np

    def f(x):
        a = np.zeros(3)
        a[0] = x          # rebinds ``a`` to a new value
        a += 1
        return a.sum()
"""

from __future__ import annotations

from typing import Any

import numpy as _numpy

from tapec.numpy import (  # noqa: F401
    assigning,
    calculus,
    choosing,
    complex_linalg,
    complex_rules,
    fourier,
    histograms,
    linalg,
    methods,
    norms,
    padding,
    products,
    reductions,
    shapes,
    sorting,
    spectra,
    ufuncs,
)
from tapec.numpy.creation import (
    arange,
    array,
    asanyarray,
    asarray,
    ascontiguousarray,
    asfortranarray,
    copy,
    empty,
    empty_like,
    eye,
    full,
    identity,
    isscalar,
    linspace,
    ones,
    ones_like,
    tri,
    zeros,
    zeros_like,
)
from tapec.numpy.creation import full_like_ as full_like

__all__ = [
    "arange", "array", "asanyarray", "asarray", "ascontiguousarray", "asfortranarray", "copy",
    "empty", "empty_like", "eye", "full", "full_like", "identity", "isscalar", "linspace", "ones",
    "ones_like", "supported", "tri", "zeros", "zeros_like",
]  # fmt: skip

#: NumPy's, not the module of rules that has the same name
linalg: Any = _numpy.linalg  # type: ignore[no-redef]  # noqa: F811


def supported() -> list[str]:
    """The names of NumPy functions and ufuncs that work on traced values."""
    from tapec.tracer import FUNCTIONS, UFUNCS

    names = {u.__name__ for u in UFUNCS}
    for function in FUNCTIONS:
        module = "linalg." if "linalg" in function.__module__ else ""
        names.add(module + function.__name__)
    return sorted(names)


def __getattr__(name: str) -> Any:
    return getattr(_numpy, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(_numpy)})
