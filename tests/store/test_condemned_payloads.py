"""Payloads that are being deleted."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from smq.store.condemned_payloads import CONDEMNED_MAX
from smq.store.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "store.sqlite")
    yield store
    store.close()


def test_a_payload_is_settled_some_time_after_it_was_condemned(
    store: Store, tmp_path: Path
) -> None:
    """Data fault 8: also by a coordinator that was killed in between."""
    manifest = store.manifest
    assert manifest.condemn_payloads(["a", "b"], 100, 50) == []
    assert manifest.condemned_payloads(["a", "c"]) == {"a"}
    store.commit()
    store.close()
    again = Store.open(tmp_path / "store.sqlite")
    assert again.manifest.condemn_payloads(["b", "c"], 149, 50) == []
    assert again.manifest.condemn_payloads(["b", "c"], 150, 50) == ["b"]
    again.manifest.forget_payloads(["b"])
    assert again.manifest.condemned_payloads(["a", "b", "c"]) == {"a", "c"}
    again.close()


def test_a_time_of_the_future_counts_as_now(store: Store) -> None:
    """Data fault 2: a restored snapshot's time line may be behind."""
    manifest = store.manifest
    manifest.condemn_payloads(["a"], 10**12, 50)
    assert manifest.condemn_payloads(["a"], 100, 50) == []
    assert manifest.condemn_payloads(["a"], 150, 50) == ["a"]


def test_the_newest_are_kept(store: Store) -> None:
    manifest = store.manifest
    manifest.condemn_payloads(["first"], 0, 0)
    manifest.condemn_payloads([str(number) for number in range(CONDEMNED_MAX)], 0, 1)
    assert manifest.condemned_payloads(["first", "0"]) == {"0"}
