"""`kernel`: has a function compiled. It is linked already, or Numba compiles it when it is called.

A process whose library (`library.py`) has the kernel calls that, and imports Numba only for
arguments or kernels that the library lacks. Others import Numba at once (`compiler.py`).
"""

from collections.abc import Callable
from functools import cache, update_wrapper
from typing import Any, ParamSpec, TypeVar, cast

from shm.kernels.base.library import SOURCES, find_library
from shm.system import at_fork, new_lock

P = ParamSpec("P")
R = TypeVar("R")

LIBRARY, PROBLEMS = find_library()

_IMPORTING = new_lock()
_compiler: list[Any] = []  # The module, once it is imported.


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function; the interpreted one stays available as the attribute `py_func`."""
    if LIBRARY is None or not function.__module__.startswith(f"{SOURCES.name}."):
        return cast("Callable[P, R]", _compiled(function))

    @cache
    def compile_() -> Any:
        return _compiled(function)

    linked = LIBRARY.kernel(f"{function.__module__}:{function.__qualname__}", compile_)
    linked.py_func = function
    return cast("Callable[P, R]", update_wrapper(linked, function))


def _compiled(function: Callable[..., Any]) -> Any:
    if not _compiler:
        with _IMPORTING:
            from shm.kernels.base import compiler  # noqa: PLC0415  (It imports Numba.)

            _compiler[:] = [compiler]
    return _compiler[0].compiled(function)


def _wait_for_import() -> None:
    """A child that is forked while another thread imports Numba would wait for that thread for
    ever, once it needs Numba itself: so a fork waits for the import.

    By then the compiler has registered what a fork does: only the part behind the fork is called.
    """
    _IMPORTING.acquire()
    if _compiler and not _compiler[0].global_compiler_lock.is_locked():
        _compiler[0].global_compiler_lock.acquire()


at_fork(
    before=_wait_for_import,
    after_in_parent=_IMPORTING.release,
    after_in_child=_IMPORTING.release,
)
