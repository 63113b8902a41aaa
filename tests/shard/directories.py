"""The directory of one catalog, for tests of what uses it."""

from collections.abc import Callable

import numpy as np

from smq.model.catalog import Catalog
from smq.shard.directory import Directory


def build_directory(
    catalog: Catalog, code_of: Callable[[int], int | None], secret: bytes
) -> np.ndarray:
    """The words of the directory of a catalog."""
    directory = Directory(secret)
    directory.take((), catalog.by_name.values(), code_of)
    directory.invariants()
    return directory.words
