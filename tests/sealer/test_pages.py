"""A list by pages: every file once, and the folder is not read anew for each page."""

from collections.abc import Iterator

import pytest

from smq.filer.store import Facts
from smq.model.errors import Unavailable
from smq.sealer.pages import Pages
from smq.testing.memory_store import MemoryStore

KEYS = [f"topics/kafka/t/partition=0/{i:03d}.parquet" for i in range(10)]


class CountedStore(MemoryStore):
    """A store that counts what its lists yield, and whose list may fail."""

    def __init__(self) -> None:
        super().__init__()
        self.listed = self.begun = 0
        self.fails_at = -1

    def list(self, prefix: str = "", after: str = "") -> Iterator[Facts]:
        self.begun += 1
        for facts in super().list(prefix, after):
            if self.listed == self.fails_at:
                self.fails_at = -1
                raise Unavailable(facts.key, "the filer is away")
            self.listed += 1
            yield facts


@pytest.fixture
def store() -> CountedStore:
    store = CountedStore()
    for key in [*KEYS, "payloads/kafka/t/1"]:
        store.put(key, b"x")
    return store


def walk(pages: Pages) -> list[list[str]]:
    found, after = [], ""
    while True:
        page = pages.take(after)
        found.append([facts.key for facts in page.files])
        if page.following is None:
            return found
        after = page.following


@pytest.mark.parametrize(("size", "counts"), [(4, [4, 4, 2]), (5, [5, 5, 0]), (99, [10])])
def test_every_file_comes_once_and_in_order(
    store: CountedStore, size: int, counts: list[int]
) -> None:
    found = walk(Pages(store, "topics/", size))
    assert [len(page) for page in found] == counts
    assert [key for page in found for key in page] == KEYS


def test_a_walk_reads_the_list_once_and_a_page_no_more_than_it_has(store: CountedStore) -> None:
    pages = Pages(store, "topics/", 4)
    pages.take("")
    assert store.listed == 4
    pages.take(KEYS[3])
    pages.take(KEYS[7])
    assert (store.begun, store.listed) == (1, 10)


def test_another_process_goes_on_where_the_last_one_ended(store: CountedStore) -> None:
    following = Pages(store, "topics/", 4).take("").following
    assert following == KEYS[3]
    page = Pages(store, "topics/", 4).take(following)
    assert [facts.key for facts in page.files] == KEYS[4:8]


def test_after_a_failure_the_page_is_listed_anew(store: CountedStore) -> None:
    pages = Pages(store, "topics/", 4)
    pages.take("")
    store.fails_at = 6
    with pytest.raises(Unavailable):
        pages.take(KEYS[3])
    assert [facts.key for facts in pages.take(KEYS[3]).files] == KEYS[4:8]
