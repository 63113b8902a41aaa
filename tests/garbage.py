"""What only the garbage collector would free, of our objects: other tests leave garbage too."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def garbage() -> Iterator[list[object]]:
    """The collector is off within the block; then the list has what the block left to it."""
    ours: list[object] = []
    gc.collect()
    gc.disable()
    try:
        yield ours
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        ours += [each for each in gc.garbage if _is_ours(each)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def _is_ours(thing: object) -> bool:
    """Whether it is a function of smq's, or an object of one of its classes."""
    module = getattr(thing, "__module__", None)
    return isinstance(module, str) and module.startswith("smq.")
