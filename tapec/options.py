"""Every ``TAPEC_*`` environment variable, in one table.

The variables are read when they are needed, so a test (or a user in a notebook) may set
``os.environ`` at any time; what has already been compiled stays as it is.

========================  =========  ==========================================================
variable                  default    meaning
========================  =========  ==========================================================
``TAPEC_BACKEND``         native     ``interpret`` runs the NumPy reference interpreter instead
``TAPEC_OPT``             (by size)  LLVM optimisation level of kernels, 0 to 3
``TAPEC_CHECK``           0          1 verifies the IR after every pass (on under pytest)
``TAPEC_MAX_VARIANTS``    64         guarded variants of one signature before an error
``TAPEC_JOIN``            3          from this variant on, both sides of branches are traced (0: no)
``TAPEC_REROLL``          1          0 leaves Python loops unrolled
``TAPEC_TAPE_LIMIT``      2000000    operations that one trace may record before an error
``TAPEC_CACHE``           1          0: no object code is kept on disk (``codegen.disk``)
``TAPEC_CACHE_DIR``       (XDG)      where it is kept
``TAPEC_CACHE_SIZE``      256        megabytes kept at most
``TAPEC_PROMOTE``         1          0: large programs that are hot are not compiled again
========================  =========  ==========================================================

>>> from tapec import options
>>> options.max_variants()
64
"""

from __future__ import annotations

import os

__all__ = ["backend", "join_at", "max_variants", "opt_level", "promote", "reroll", "tape_limit"]


def backend() -> str:
    """``'native'`` or ``'interpret'``; ``ValueError`` for anything else."""
    value = os.environ.get("TAPEC_BACKEND", "native").strip().lower() or "native"
    if value not in ("native", "interpret"):
        raise ValueError(f"TAPEC_BACKEND={value!r}: use 'native' or 'interpret'")
    return value


def opt_level() -> int | None:
    """The LLVM optimisation level that is forced on kernels; None: chosen by size."""
    value = os.environ.get("TAPEC_OPT", "").strip()
    if not value:
        return None
    if value not in ("0", "1", "2", "3"):
        raise ValueError(f"TAPEC_OPT={value!r}: use 0, 1, 2 or 3")
    return int(value)


def max_variants() -> int:
    """How many guarded variants one signature may have."""
    value = os.environ.get("TAPEC_MAX_VARIANTS", "64").strip()
    if not value.isdigit() or int(value) < 1:
        raise ValueError(f"TAPEC_MAX_VARIANTS={value!r}: use a positive integer")
    return int(value)


def join_at() -> int | None:
    """The number of variants of one signature from which on branches are joined; None: never."""
    value = os.environ.get("TAPEC_JOIN", "3").strip()
    if not value.isdigit():
        raise ValueError(f"TAPEC_JOIN={value!r}: use a number, 0 for never")
    return int(value) or None


def promote() -> bool:
    """Whether large programs are compiled better once they are hot (``promotion``)."""
    return os.environ.get("TAPEC_PROMOTE", "1").strip() != "0"


def reroll() -> bool:
    """Whether repeated stretches of a tape become loops."""
    return os.environ.get("TAPEC_REROLL", "1").strip() not in ("", "0")


def tape_limit() -> int:
    """How many records a tape may have."""
    value = os.environ.get("TAPEC_TAPE_LIMIT", "2000000").strip().replace("_", "")
    if not value.isdigit() or int(value) < 1:
        raise ValueError(f"TAPEC_TAPE_LIMIT={value!r}: use a positive integer")
    return int(value)
