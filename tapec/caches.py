"""``clear_caches``: give back memory and disk space that is kept to be fast later."""

from __future__ import annotations

__all__ = ["clear_caches"]


def clear_caches() -> None:
    """Remove object code from the cache on disk, and free what is kept for later calls: the
    workspaces of compiled functions, and variants of transforms that are gone.

    What is compiled stays compiled and may be called at any time, also now.

    >>> import tapec
    >>> tapec.clear_caches()
    """
    from tapec import api
    from tapec.codegen import abi, disk

    api.forget()
    abi.forget_entries()
    abi.release_memory()
    disk.clear()
