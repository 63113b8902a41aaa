"""Kernels where no library of them can be used: Numba loads or compiles them, then they are linked.

Apart from the composition root, since few starts need what this imports.
"""

import fcntl
import gc
import hashlib
import logging
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from shm.kernels.base.compiler import UNKEPT, cache_directory, keep_no_more
from shm.kernels.base.library import SOURCES, may_use_library
from shm.private import open_lock
from shm.warm.client import warm_client
from shm.warm.link import why_not_linked, why_unlinkable
from shm.warm.reader import warm_reader
from shm.warm.shard import warm, warm_rest, warm_turns
from smq.app.process.clock import monotonic_ms
from smq.app.process.program import command, importing
from smq.app.supervisor.serve import say


def complete_mark() -> Path:
    """The file that marks a complete cache of this installation's kernels.

    Numba stores a kernel under its source's path, and treats it as stale if the source's time has
    changed: another environment, or the same version reinstalled, compiles again.
    """
    digest = hashlib.sha256()
    for source in sorted(SOURCES.rglob("*.py")):
        digest.update(f"{source} {source.stat().st_mtime_ns}\n".encode())
    return cache_directory() / f"complete-{digest.hexdigest()[:16]}"


def warm_kernels() -> None:
    """Load the kernels, or compile and announce them if this machine never has.

    The next start finds them linked. The garbage collector is off: loading and compiling create
    very many objects and keep most of them.
    """
    gc.disable()
    started_ms = monotonic_ms()
    if _are_complete():
        warm()
    else:
        say("compiling the kernels, once on this machine …")
        with _alone():
            if not (_are_complete() or UNKEPT):  # Another process may have compiled meanwhile.
                _compile_by_two()
            warm()
            _mark_complete()
        say(f"the kernels are compiled, in {(monotonic_ms() - started_ms) / 1000:.1f} s")
    gc.enable()
    if may_use_library():
        _link_meanwhile()


def _are_complete() -> bool:
    with suppress(OSError):
        return complete_mark().exists()
    return False


def _mark_complete() -> None:
    """Nothing is marked where a kernel could not be saved: the next start compiles, and says so."""
    try:
        if not UNKEPT:
            complete_mark().touch()
    except OSError as reason:
        keep_no_more(reason)


@contextmanager
def _alone() -> Iterator[None]:
    """A lock between compiling processes: Numba may give two versions of a kernel one file.

    Who cannot lock saves nothing.
    """
    with ExitStack() as held:
        try:
            fd = open_lock(cache_directory())
            held.callback(os.close, fd)
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError as reason:
            keep_no_more(reason)
        yield


def _compile_by_two() -> None:
    """Fill the cache with two processes. Loading compiles what they could not."""
    helper = os.fork()
    if not helper:
        logging.disable()  # Of a cache that cannot be written, the parent says so.
        try:
            warm_rest()
            warm_client()
            warm_reader()
        finally:
            os._exit(0)
    warm_turns()
    os.waitpid(helper, 0)


def _link_meanwhile() -> None:
    """Have a process of its own link the kernels for the next start. Nobody waits for it."""
    if why := why_unlinkable():
        say(f"kernels cannot be linked, so each start loads them, which takes a second: {why}")
        return
    if why := why_not_linked():
        say(f"kernels could not be linked when this was last tried, and it is tried again: {why}")
    parent = os.fork()
    if not parent:
        nothing: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        try:
            subprocess.Popen(command("shm.warm.link"), env=importing(), **nothing)  # noqa: S603
        finally:
            os._exit(0)
    os.waitpid(parent, 0)
