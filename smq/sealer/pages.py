"""Lists a filer in pages, so that other work runs between pages.

A page ends with a key, and the next begins after it, in this process or in another. Within one
process the list continues without a restart, so a large folder is read once.
"""

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from smq.filer.store import Facts, Store

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE_FILES = 500  # To look up and delete: some ms on a disk, half a minute at worst on S3.


class ListPage(NamedTuple):
    """Files sorted by key. `following` is where the next page begins; None: at the end."""

    files: list[Facts]
    following: str | None


class Pages:
    """The list below a prefix."""

    def __init__(self, store: Store, prefix: str, page_files: int = PAGE_FILES) -> None:
        self._store, self._prefix, self._page_files = store, prefix, page_files
        self._list: Iterator[Facts] = iter(())
        self._at: str | None = None  # The last key listed.

    def take(self, after: str) -> ListPage:
        """A page of files with keys after this one. Raises StoreError."""
        if after != self._at:
            self._list = self._store.list(self._prefix, after)
        self._at = None  # A list that failed cannot continue.
        files = list(islice(self._list, self._page_files))
        assert all(facts.key > after for facts in files[:1]), "the list is in order"
        if len(files) == self._page_files:
            self._at = files[-1].key
        return ListPage(files, self._at)
