"""`kernel`: has a function compiled. It is linked already, or Numba compiles it when it is called.

A process whose library (`library.py`) has the kernel calls that, and imports Numba only for
arguments or kernels that the library lacks. Others import Numba at once (`compiler.py`).
"""

from collections.abc import Callable
from functools import cache, update_wrapper
from typing import Any, ParamSpec, TypeVar, cast

from shm.kernels.base.library import SOURCES, find_library
from shm.system import lock_for_forks

P = ParamSpec("P")
R = TypeVar("R")

LIBRARY, PROBLEMS = find_library()

# A child that is forked while another thread imports Numba would wait for that thread for ever,
# once it needs Numba itself: so a fork waits for the import.
_IMPORTING = lock_for_forks()


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
    with _IMPORTING:
        from shm.kernels.base.compiler import compiled  # noqa: PLC0415  (It imports Numba.)

    return compiled(function)
