"""The conformance suite in bad weather."""

from random import Random

import pytest

from smq.filer.store import Store
from smq.model.errors import NotFound, Unavailable
from smq.testing.faulty_store import Flaky, Patient, Slow, Torn
from smq.testing.memory_store import MemoryStore
from smq.testing.store_suite import StoreTests


class TestSlow(StoreTests):
    @pytest.fixture
    def store(self) -> Store:
        return Slow(MemoryStore(), lambda: None)


class TestPatientAroundFlaky(StoreTests):
    @pytest.fixture
    def store(self) -> Store:
        return Patient(Flaky(MemoryStore(), Random(1)))


class TestPatientAroundTorn(StoreTests):
    @pytest.fixture
    def store(self) -> Store:
        return Patient(Torn(MemoryStore(), Random(1)))


def test_a_slow_store_waits_before_each_call() -> None:
    waits: list[None] = []
    store = Slow(MemoryStore(), lambda: waits.append(None))
    store.put("a", b"x")
    store.get("a")
    with store.writing("b") as sink:
        sink.write(b"x")
    assert len(waits) == 3


def test_a_flaky_store_fails_before_it_does_anything() -> None:
    inner = MemoryStore()
    store = Flaky(inner, Random(1), probability=1)
    with pytest.raises(Unavailable):
        store.put("a", b"x")
    with pytest.raises(Unavailable), store.writing("a"):
        pass
    with pytest.raises(NotFound):
        inner.get("a")


def test_a_torn_write_leaves_nothing() -> None:
    inner = MemoryStore()
    with pytest.raises(Unavailable):
        Torn(inner, Random(1), probability=1).put("a", b"hello")
    assert list(inner.list()) == []


def test_patience_has_an_end() -> None:
    store = Patient(Flaky(MemoryStore(), Random(1), probability=1))
    with pytest.raises(Unavailable, match="attempts"):
        store.get("a")
