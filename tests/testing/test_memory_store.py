"""The conformance suite on the store in memory."""

import pytest

from smq.testing.memory_store import MemoryStore
from smq.testing.store_suite import StoreTests


class TestMemoryStore(StoreTests):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()


def test_objects_are_stamped_with_the_time_given() -> None:
    times = iter([7, 9])
    store = MemoryStore(lambda: next(times))
    assert [store.put(key, b"").modified_ms for key in ("a", "b")] == [7, 9]
