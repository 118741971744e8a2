"""Compiling hot programs better, in a background thread.

Large programs are first compiled without LLVM's optimisations of code generation, which would
take longer than everything else.  Such a kernel counts its calls; after enough of them, one call
arrives in Python, and ``request`` puts the program in a queue.  A thread compiles what is in the
queue and exchanges the native code, while calls go on.

There is no thread unless something is in the queue.  A program that is dropped meanwhile is not
compiled.  The process does not end within LLVM: at exit the queue is emptied and the thread is
awaited.  After a fork the child has an empty queue; its programs ask again.

``TAPEC_PROMOTE=0`` turns all of it off.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tapec.backend import NativeProgram

__all__ = ["request", "wait"]

_lock = threading.Lock()
_queue: deque[weakref.ref[NativeProgram]] = deque()
_known: weakref.WeakSet[NativeProgram] = weakref.WeakSet()
_worker: threading.Thread | None = None
_ending = False


def request(program: NativeProgram) -> None:
    """Let ``program`` be compiled better soon, unless it has asked before."""
    global _worker
    with _lock:
        if _ending or program in _known:
            return
        _known.add(program)
        _queue.append(weakref.ref(program))
        if _worker is None:
            worker = threading.Thread(target=_work, name="tapec promotion", daemon=True)
            try:
                worker.start()
            except RuntimeError:  # no threads any more: the interpreter is shutting down
                _queue.clear()
            else:
                _worker = worker


def wait(seconds: float | None = None) -> None:
    """Until nothing is in the queue, for tests."""
    worker = _worker
    if worker is not None:
        worker.join(seconds)


def _work() -> None:
    global _worker
    while True:
        with _lock:
            if _ending or not _queue:
                _worker = None
                return
            program = _queue.popleft()()
        if program is None:
            continue
        try:
            program.promote()
        except Exception:
            program.settle()  # what runs now is right, only slower
        del program


@atexit.register
def _end() -> None:
    global _ending
    with _lock:
        _ending = True
        _queue.clear()
    wait()


def _after_fork() -> None:
    global _lock, _worker
    _lock = threading.Lock()
    _worker = None
    _queue.clear()
    _known.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
