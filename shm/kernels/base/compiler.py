"""Compiles kernels: the only call of numba.njit in the repository.

Numba's own cache looks only at the file of the function it compiles and would serve a stale kernel
after a helper in another file has changed. So the cache directory is named by a hash of all kernel
sources and of numba's version; it lies in the user's cache directory, which also works when the
installation is read-only. NUMBA_CACHE_DIR, when set, is respected.

A cache that cannot be written, on a full disk for one, stops nobody: a process says so once, and
from then on saves no kernel that it compiles.

Who has linked kernels (`library.py`) imports this only for a kernel that the library lacks.
"""

import hashlib
import logging
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from shm.interrupts import without_interrupts
from shm.kernels.base.library import sources_digest
from shm.private import private_version, set_by_default
from shm.system import at_fork

# No kernel is called through a C pointer, and compiling wrappers for that slowed the first start.
_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "_nrt": False,
    "no_cfunc_wrapper": True,
}


def cache_directory() -> Path:
    """The directory of compiled kernels; it exists, and only this user and root can write it.

    Numba unpickles the files in it. Raises OSError if no such directory can be made.
    """
    digest = hashlib.sha256((sources_digest() + version("numba")).encode())
    return private_version("kernels", digest.hexdigest()[:16])


UNKEPT: list[str] = []  # Why this process saves no kernels any more; one reason at the most.


def keep_no_more(reason: object) -> None:
    """Save no kernel from now on, and say so once; a child that is forked later does not repeat it.

    There may be space for the next kernel, but a line for each would help nobody.
    """
    if not UNKEPT:
        UNKEPT.append(str(reason))
        logging.getLogger(__name__).warning(
            "compiled kernels are not kept, so other processes compile them again: %s", reason
        )


_no_directory = "NUMBA_CACHE_DIR is empty"
try:
    set_by_default("NUMBA_CACHE_DIR", str(cache_directory()))
except OSError as reason:
    _no_directory = str(reason)

import numba  # noqa: E402  (It reads NUMBA_CACHE_DIR when it is imported.)

# Numba imports numpy.ma at the first call of a kernel. If another thread forks during that import,
# the child inherits the import lock but not the thread that holds it, and waits forever.
import numpy.ma  # noqa: E402, F401
from numba.core.caching import CompileResultCacheImpl, FunctionCache  # noqa: E402
from numba.core.compiler_lock import global_compiler_lock  # noqa: E402

from shm.kernels.base.parts import PartCompiler  # noqa: E402

_PART_OPTIONS = _OPTIONS | {"no_cpython_wrapper": True, "pipeline_class": PartCompiler}

numba.config.reload_config()  # Numba may have been imported before.

# The first call of a kernel loads it under Numba's compiler lock. A fork takes that lock first:
# otherwise the child could inherit it locked, without the thread that would release it.
at_fork(
    before=global_compiler_lock.acquire,
    after_in_parent=global_compiler_lock.release,
    after_in_child=global_compiler_lock.release,
)


_UserProvided: Any = CompileResultCacheImpl._locator_classes[0]  # noqa: SLF001  (Its name varies.)
_CACHE_DIRECTORY: str = vars(numba.config)["CACHE_DIR"]


class _Place(_UserProvided):  # type: ignore[misc]
    """A file's folder in NUMBA_CACHE_DIR, whether or not it can be written.

    Where it cannot, Numba would go on to `__pycache__`, and there serve kernels of older sources.
    """

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> Any:
        return cls(function, file)


class _Impl(CompileResultCacheImpl):
    _locator_classes: Any = (_Place,)


class _Cache(FunctionCache):
    """Numba's cache of a kernel's versions. What cannot be read or kept raises nothing here."""

    _impl_class: Any = _Impl

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Load a version; None if it must be compiled."""
        try:
            return super().load_overload(signature, context)
        except OSError as reason:
            keep_no_more(reason)
        except Exception:  # noqa: BLE001  (Of unpickling, any.) A power cut may leave half a file.
            self._forget_index()
        return None

    def _forget_index(self) -> None:
        try:
            Path(self._cache_file._index_path).unlink(missing_ok=True)  # noqa: SLF001
        except OSError as reason:
            keep_no_more(reason)  # Numba would read it again to save a version.

    def save_overload(self, signature: Any, version: Any) -> None:
        """Save a compiled version, unless an earlier one could not be saved."""
        if UNKEPT:
            return
        try:
            super().save_overload(signature, version)
        except OSError as reason:
            keep_no_more(reason)
            # Numba writes the index first: it may name a file that has another version's code.
            self._forget_index()


if not _CACHE_DIRECTORY:
    keep_no_more(_no_directory)

COMPILED: dict[str, Any] = {}  # The dispatcher of each kernel that this process has made.


def name_of(function: Callable[..., Any]) -> str:
    """A kernel's name in a library."""
    return f"{function.__module__}:{function.__qualname__}"


def compiled(function: Callable[..., Any]) -> Any:
    """Compile with the options every kernel shares: cached, without the GIL, never raising.

    Kernels do not allocate: without Numba's run time (`_nrt`) they do not count references to
    arrays, whose locked instructions took two thirds of a small request's time.
    """
    dispatcher: Any = numba.njit(**_OPTIONS)(function)
    if _CACHE_DIRECTORY:
        dispatcher._cache = _Cache(function)  # noqa: SLF001  (As `cache=True` does.)
    # The dispatcher (in C) calls this when it has no version for the arguments yet. An interrupt
    # during the call could leave Numba's lock held, or a function half built in LLVM.
    compile_for_args = without_interrupts(dispatcher._compile_for_args)  # noqa: SLF001
    dispatcher._compile_for_args = compile_for_args  # noqa: SLF001
    _have_kernels_call_a_part(dispatcher, function)
    COMPILED[name_of(function)] = dispatcher
    return dispatcher


def _have_kernels_call_a_part(compiled: Any, function: Callable[..., Any]) -> None:
    """Make callers of `compiled` link it as a part (see shm.kernels.base.parts).

    They share one version for all constant arguments: Numba would compile `get_word(memory, 7)` and
    `get_word(memory, 8)` separately, though LLVM inlines them into the caller anyway.
    """

    @cache  # Created on demand: a process that loads every kernel from the cache needs no parts.
    def part() -> Any:
        return numba.njit(**_PART_OPTIONS)(function)

    def get_call_template(args: list[Any], keywords: dict[str, Any]) -> Any:
        assert not keywords, "kernels take no keywords"
        return part().get_call_template([numba.types.unliteral(each) for each in args], keywords)

    compiled.get_call_template = get_call_template
    compiled.get_overload = lambda signature: part().get_overload(signature)
