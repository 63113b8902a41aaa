"""The kernels' directory: every topic is found, and nothing that is none."""

import numpy as np
from hypothesis import given, settings, strategies as st

from shm.kernels.log.directory import LED_ELSEWHERE, find_topic
from smq.model.catalog import Catalog, Topic
from smq.shard.directory import build_directory
from tests.shard.shard_bench import SECRET, catalog, topic

FIRST_SLOT, PARTITION_COUNT = 3, 4  # Words of a topic's row.


def codes(directory: np.ndarray, key: bytes, *, is_id: bool = False) -> list[int] | None:
    """What a kernel finds for a topic's name or id: the codes of its partitions."""
    row = int(find_topic(directory, np.frombuffer(key, np.uint8), 0, len(key), is_id))
    if row < 0:
        return None
    first, count = (int(directory[row + word]) for word in (FIRST_SLOT, PARTITION_COUNT))
    slots_at = int(directory[2])
    return [int(code) for code in directory[slots_at + first : slots_at + first + count]]


def test_an_empty_catalog_has_nothing() -> None:
    assert codes(build_directory(Catalog("", 0, {}), lambda _: None, SECRET), b"any") is None


def test_partitions_led_elsewhere_are_told_apart_from_ours() -> None:
    directory = build_directory(
        catalog(topic("three", range(5, 8))), {5: 1 << 32 | 9, 7: 4}.get, SECRET
    )
    expected = [1 << 32 | 9, LED_ELSEWHERE, 4]
    assert codes(directory, b"three") == expected
    assert codes(directory, (5).to_bytes(16), is_id=True) == expected


def test_a_name_is_no_id_and_an_id_is_no_name() -> None:
    directory = build_directory(catalog(topic("x" * 16, range(5, 6))), {5: 1}.get, SECRET)
    assert codes(directory, b"x" * 16, is_id=True) is None
    assert codes(directory, (5).to_bytes(16)) is None


names = st.sets(st.text("ab.-_", min_size=1, max_size=20), max_size=40)


@settings(deadline=None)
@given(known=names, others=names)
def test_every_topic_is_found_and_no_other(known: set[str], others: set[str]) -> None:
    topics: list[Topic] = []
    for i, name in enumerate(sorted(known)):
        topics.append(topic(name, range(100 * i + 1, 100 * i + 1 + i % 3 + 1)))
    directory = build_directory(catalog(*topics), lambda number: number, SECRET)
    for each in topics:
        assert codes(directory, each.name.encode()) == list(each.partition_numbers)
        assert codes(directory, each.id.bytes, is_id=True) == list(each.partition_numbers)
    for name in others - known:
        assert codes(directory, name.encode()) is None
