"""Compiles kernels: the only call of numba.njit in the repository.

Numba's own cache looks only at the file of the function it compiles and would serve a stale kernel
after a helper in another file has changed. So the cache directory is named by a hash of all kernel
sources and of numba's version; it lies in the user's cache directory, which also works when the
installation is read-only. NUMBA_CACHE_DIR, when set, is respected. A wheel brings compiled kernels
for the usual processors (`shipped.py`).
"""

import hashlib
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from shm.interrupts import without_interrupts
from shm.private import private_cache, set_by_default

P = ParamSpec("P")
R = TypeVar("R")

SOURCES = next(each for each in Path(__file__).resolve().parents if each.name == "shm")
# No kernel is called through a C pointer, and compiling wrappers for that slowed the first start.
_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "_nrt": False,
    "no_cfunc_wrapper": True,
}


def sources_digest() -> str:
    """A digest of all kernel sources and of numba's version."""
    digest = hashlib.sha256(version("numba").encode())
    for source in sorted(SOURCES.rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def cache_directory() -> Path:
    """The directory of compiled kernels; it exists, and only this user and root can write it.

    Numba unpickles the files in it. Raises OSError if no such directory can be made.
    """
    return private_cache(Path("kernels") / sources_digest()[:16])


set_by_default("NUMBA_CACHE_DIR", str(cache_directory()))

import numba  # noqa: E402  (It reads NUMBA_CACHE_DIR when it is imported.)

# Numba imports numpy.ma at the first call of a kernel. If another thread forks during that import,
# the child inherits the import lock but not the thread that holds it, and waits forever.
import numpy.ma  # noqa: E402, F401
from numba.core.compiler_lock import global_compiler_lock  # noqa: E402

from shm.kernels.base.parts import PartCompiler  # noqa: E402
from shm.kernels.base.shipped import KernelCache, features_here, find_shipped  # noqa: E402
from shm.system import at_fork  # noqa: E402

SHIPPED = find_shipped(SOURCES, sources_digest(), features_here())

_PART_OPTIONS = _OPTIONS | {"no_cpython_wrapper": True, "pipeline_class": PartCompiler}

numba.config.reload_config()  # Numba may have been imported before.

# The first call of a kernel loads it under Numba's compiler lock. A fork takes that lock first:
# otherwise the child could inherit it locked, without the thread that would release it.
at_fork(
    before=global_compiler_lock.acquire,
    after_in_parent=global_compiler_lock.release,
    after_in_child=global_compiler_lock.release,
)


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile with the options every kernel shares: cached, without the GIL, never raising.

    Kernels do not allocate: without Numba's run time (`_nrt`) they do not count references to
    arrays, whose locked instructions took two thirds of a small request's time. The interpreted
    function stays available as the attribute `py_func`.
    """
    compiled: Any = numba.njit(**_OPTIONS)(function)
    # Instead of `cache=True`, whose cache holds only kernels compiled on this machine.
    compiled._cache = KernelCache(function, SOURCES, SHIPPED)  # noqa: SLF001
    # The dispatcher (in C) calls this when it has no version for the arguments yet. An interrupt
    # during the call could leave Numba's lock held, or a function half built in LLVM.
    compile_for_args = without_interrupts(compiled._compile_for_args)  # noqa: SLF001
    compiled._compile_for_args = compile_for_args  # noqa: SLF001
    _have_kernels_call_a_part(compiled, function)
    return cast("Callable[P, R]", compiled)


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
