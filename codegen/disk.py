"""The object cache on disk: object code that an earlier process compiled.

``load(key)`` and ``store(key, code, facts)`` keep one file per object in a private directory:

=====================  =========================================================================
``TAPEC_CACHE``        ``0`` turns the cache off
``TAPEC_CACHE_DIR``    where it is; default ``$XDG_CACHE_HOME/tapec``, else ``~/.cache/tapec``
``TAPEC_CACHE_SIZE``   its size in megabytes (default 256); the files used least recently go first
=====================  =========================================================================

What is loaded is executed, so a directory that anybody else could have written to is refused:
it must belong to this user and be writable by nobody else, its parent must belong to this user
or root, and so must each file.  The directory is checked through the descriptor that is then used.

Invariants
- Nothing here raises for a reason outside of the program: a full disk, missing permissions or a
  damaged file mean at worst a compilation, and one warning per process.
- A file appears under its name complete (written aside, then renamed) and is used only if its
  checksum and the key inside fit, so processes may race and crash.
- No locks and no state but "has warned", hence safe with threads and forks.

The layout of a file: a magic line; SHA-256 of the rest; length of the header; the header, JSON
with the key and ``facts``; the object code.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import json
import os
import stat
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["Object", "clear", "directory", "discard", "load", "store", "usage"]

_MAGIC = b"tapec object 1\n"
_SUM = hashlib.sha256().digest_size
_SUFFIX = ".o.tapec"
_TEMPORARY = ".tmp.tapec"
#: Files kept at most, whatever their size: more would make trimming slow.
MAX_FILES = 16384
#: A file larger than this is not ours.
MAX_BYTES = 1 << 30
#: Times of last use are kept to this many seconds.
_USE_SECONDS = 300.0
#: Left behind by a process that was killed while it wrote.
_STALE_SECONDS = 3600.0

_serial = itertools.count()
_warned = False


class Object(NamedTuple):
    """Object code and what was stored beside it."""

    code: bytes
    facts: dict[str, Any]


class _Refused(Exception):
    """The directory must not be used."""


# -- where ------------------------------------------------------------------------------


def directory() -> str | None:
    """The path of the cache; None if it is turned off or has no place."""
    if os.environ.get("TAPEC_CACHE", "1").strip().lower() in ("0", "off", "no", "false"):
        return None
    if hasattr(os, "getuid") and os.getuid() != os.geteuid():
        return None  # the environment of another user chooses no directory for this one
    given = os.environ.get("TAPEC_CACHE_DIR", "")
    if given:
        return os.path.abspath(os.path.expanduser(given))
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        if sys.platform == "win32":
            base = os.environ.get("LOCALAPPDATA", "")
        else:
            base = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "tapec") if os.path.isabs(base) else None


def limit() -> int:
    """The size that the cache is kept below, in bytes."""
    text = os.environ.get("TAPEC_CACHE_SIZE", "").strip()
    try:
        return int(float(text) * 1e6) if text else 256_000_000
    except (ValueError, OverflowError):
        return 256_000_000


class _Directory:
    """The open and checked directory.  Where the platform can, files in it are reached through
    its descriptor, so that nobody can exchange it between the check and the use."""

    def __init__(self, path: str, create: bool) -> None:
        self.path = path
        self.fd: int | None = None
        if create and not os.path.isdir(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
        if os.open in os.supports_dir_fd and hasattr(os, "O_DIRECTORY"):
            self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.check()
        except BaseException:
            self.close()
            raise

    def check(self) -> None:
        if not hasattr(os, "geteuid"):
            return
        user = os.geteuid()
        here = os.fstat(self.fd) if self.fd is not None else os.stat(self.path)
        if here.st_uid != user:
            raise _Refused(f"{self.path} belongs to another user")
        if here.st_mode & 0o022:
            raise _Refused(f"{self.path} can be written to by other users")
        # Through the descriptor, "..": of where a symbolic link leads, too.
        above = os.stat("..", dir_fd=self.fd) if self.fd is not None else os.stat(self.path + "/..")
        if above.st_uid not in (user, 0):
            raise _Refused(f"the directory that contains {self.path} belongs to another user")
        if above.st_mode & 0o002 and not above.st_mode & stat.S_ISVTX:
            raise _Refused(f"anybody can write to the directory that contains {self.path}")

    def open(self, name: str, flags: int) -> int:
        flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        flags |= getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
        if self.fd is not None:
            return os.open(name, flags, 0o600, dir_fd=self.fd)
        return os.open(os.path.join(self.path, name), flags, 0o600)

    def unlink(self, name: str) -> None:
        with contextlib.suppress(OSError):
            if self.fd is not None:
                os.unlink(name, dir_fd=self.fd)
            else:
                os.unlink(os.path.join(self.path, name))

    def rename(self, old: str, new: str) -> None:
        if self.fd is not None:
            os.replace(old, new, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        else:
            os.replace(os.path.join(self.path, old), os.path.join(self.path, new))

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        """Ours, also unfinished ones."""
        with os.scandir(self.fd if self.fd is not None else self.path) as entries:
            for entry in entries:
                if entry.name.endswith((_SUFFIX, _TEMPORARY)):
                    with contextlib.suppress(OSError):  # another process removed it
                        yield entry.name, entry.stat(follow_symlinks=False)

    def close(self) -> None:
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


@contextlib.contextmanager
def _opened(create: bool = False) -> Iterator[_Directory | None]:
    """The directory, or None; errors of the operating system in the block end it."""
    path = directory()
    if path is None:
        yield None
        return
    opened: _Directory | None = None
    try:
        opened = _Directory(path, create)
        yield opened
    except FileNotFoundError:
        if opened is None:
            if create:
                _cannot_use(path, "it cannot be created")
            yield None
    except _Refused as error:
        _warn(f"{error}; nothing is kept there")
        yield None
    except OSError as error:
        _cannot_use(path, error.strerror or str(error), error.errno)
        if opened is None:
            yield None
    finally:
        if opened is not None:
            opened.close()


# -- reading and writing ----------------------------------------------------------------


def load(key: str) -> Object | None:
    """What was stored under ``key``, if it is there and whole."""
    with _opened() as where:
        return None if where is None else _read(where, key)
    return None


def _read(where: _Directory, key: str) -> Object | None:
    name = key + _SUFFIX
    try:
        fd = where.open(name, os.O_RDONLY)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:  # a symbolic link, which we never make
            _damaged(where, name)
            return None
        raise
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        if not _ours(found):
            _damaged(where, name)
            return None
        data = file.read()
    parsed = _parsed(data, key)
    if parsed is None:
        _damaged(where, name)
        return None
    if time.time() - found.st_mtime > _USE_SECONDS:
        _touch(where, name)
    return parsed


def _ours(found: os.stat_result) -> bool:
    if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
        return False
    if not hasattr(os, "geteuid"):
        return True
    return found.st_uid == os.geteuid() and not found.st_mode & 0o022


def _touch(where: _Directory, name: str) -> None:
    with contextlib.suppress(OSError, NotImplementedError):
        if where.fd is not None:
            os.utime(name, dir_fd=where.fd, follow_symlinks=False)
        else:
            os.utime(os.path.join(where.path, name))


def _packed(key: str, code: bytes, facts: dict[str, Any]) -> bytes:
    header = json.dumps({"key": key, "facts": facts}).encode()
    rest = len(header).to_bytes(4, "little") + header + code
    return _MAGIC + hashlib.sha256(rest).digest() + rest


def _parsed(data: bytes, key: str) -> Object | None:
    """The content of a file; None unless it is exactly what ``_packed`` made for ``key``."""
    start = len(_MAGIC) + _SUM
    if len(data) < start + 4 or not data.startswith(_MAGIC):
        return None
    rest = data[start:]
    if hashlib.sha256(rest).digest() != data[len(_MAGIC) : start]:
        return None
    end = 4 + int.from_bytes(rest[:4], "little")
    try:
        header = json.loads(rest[4:end])
    except ValueError:
        return None
    if header.get("key") != key or not isinstance(header.get("facts"), dict):
        return None
    return Object(rest[end:], header["facts"])


def store(key: str, code: bytes, facts: dict[str, Any]) -> None:
    """Keep ``code`` under ``key``.  ``facts`` must be representable as JSON."""
    data = _packed(key, code, facts)
    with _opened(create=True) as where:
        if where is None:
            return
        aside = f"{key[:16]}.{os.getpid()}.{next(_serial)}.{time.monotonic_ns()}{_TEMPORARY}"
        try:
            fd = where.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with open(fd, "wb") as file:
                file.write(data)
            where.rename(aside, key + _SUFFIX)
        except BaseException:
            where.unlink(aside)
            raise
        # Keys are random: about every sixteenth object has its process look at the size.
        if key.startswith("0") or len(data) > limit() // 64:
            _trim(where, limit())


def discard(key: str) -> None:
    """Forget ``key``: what was loaded turned out to be unusable."""
    with _opened() as where:
        if where is not None:
            where.unlink(key + _SUFFIX)


def _trim(where: _Directory, bound: int) -> None:
    """Remove what was used least recently until there is some room again."""
    now = time.time()
    files = []
    for name, found in where.files():
        if name.endswith(_SUFFIX):
            files.append((found.st_mtime, found.st_size, name))
        elif now - found.st_mtime > _STALE_SECONDS:
            where.unlink(name)
    total = sum(size for _, size, _ in files)
    count = len(files)
    if total <= bound and count <= MAX_FILES:
        return
    for _, size, name in sorted(files):
        if total <= 0.9 * bound and count <= 0.9 * MAX_FILES:
            break
        where.unlink(name)
        total -= size
        count -= 1


def clear() -> None:
    """Remove every object of the cache."""
    with _opened() as where:
        if where is not None:
            for name, _ in list(where.files()):
                where.unlink(name)


def usage() -> tuple[int, int]:
    """How many objects there are, and their bytes."""
    with _opened() as where:
        if where is not None:
            sizes = [f.st_size for name, f in where.files() if name.endswith(_SUFFIX)]
            return len(sizes), sum(sizes)
    return 0, 0


# -- complaints -------------------------------------------------------------------------


def _damaged(where: _Directory, name: str) -> None:
    where.unlink(name)
    _warn(f"{os.path.join(where.path, name)} is damaged; it is compiled again")


#: A place for the cache that nobody chose may be missing without a word.
_QUIET = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.ENOTSUP)


def _cannot_use(path: str, reason: str, code: int | None = errno.ENOENT) -> None:
    if "TAPEC_CACHE_DIR" in os.environ or code not in _QUIET:
        _warn(f"{path}: {reason}")


def _warn(message: str) -> None:
    """Say it once per process.  Never an exception, also where warnings are errors: a program
    must not fail because of its cache."""
    global _warned
    if _warned:
        return
    _warned = True
    with contextlib.suppress(Warning):
        warnings.warn(
            f"tapec's object cache: {message} (TAPEC_CACHE=0 turns it off, TAPEC_CACHE_DIR "
            "moves it)",
            RuntimeWarning,
            stacklevel=2,
        )
