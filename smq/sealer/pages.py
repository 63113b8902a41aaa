"""A filer's list by pages: whoever walks over all files lets others do something in between.

A page ends with a key, and the next begins after it, in this process or in another one. Where it is
the same one the list is not begun anew: a folder of very many files is read once.
"""

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from smq.filer.store import Facts, Store

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE_FILES = 500  # To look up and to delete: some ms on a disk, half a minute at the worst on S3.


class Page(NamedTuple):
    """Files in the order of their keys. `following` is what to take next; None: nothing."""

    files: list[Facts]
    following: str | None


class Pages:
    """The list below a prefix."""

    def __init__(self, store: Store, prefix: str, page_files: int = PAGE_FILES) -> None:
        self._store, self._prefix, self._page_files = store, prefix, page_files
        self._list: Iterator[Facts] = iter(())
        self._at: str | None = None  # Where the list stands.

    def take(self, after: str) -> Page:
        """The files with keys behind this one, as many as a page has. Raises StoreError."""
        if after != self._at:
            self._list = self._store.list(self._prefix, after)
        self._at = None  # A list that fails does not go on.
        files = list(islice(self._list, self._page_files))
        assert all(facts.key > after for facts in files[:1]), "the list is in order"
        if len(files) == self._page_files:
            self._at = files[-1].key
        return Page(files, self._at)
