"""The kernels' directory: every topic is found, and nothing that is none."""

import numpy as np
from hypothesis import given, settings, strategies as st

from shm.kernels.log.directory import INTERNAL, LED_ELSEWHERE, find_topic
from smq.model.catalog import INTERNAL_PARTITIONS, INTERNAL_TOPICS, Catalog, Topic
from smq.shard.directory import Directory
from tests.shard.directories import build_directory
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


def test_partitions_led_elsewhere_have_a_code_of_their_own() -> None:
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


def of(*topics: Topic) -> dict[str, Topic]:
    return {each.name: each for each in topics}


@st.composite
def catalogs(draw: st.DrawFn) -> dict[str, Topic]:
    """Some topics, one perhaps named as an internal one is."""
    chosen = draw(st.sets(st.sampled_from([*"abcdef", "x" * 300, "__consumer_offsets"])))
    topics = []
    for place, name in enumerate(sorted(chosen)):
        first = 1000 * (place + 1) + 100 * draw(st.integers(0, 1))
        topics.append(topic(name, range(first, first + draw(st.integers(1, 90)))))
    return of(*topics)


@settings(deadline=None)
@given(st.lists(catalogs(), max_size=8))
def test_the_directory_follows_every_change_of_the_catalog(
    versions: list[dict[str, Topic]],
) -> None:
    directory, before = Directory(SECRET), Catalog("c", 0, {})
    for version, topics in enumerate(versions, 1):
        after = Catalog("c", version, topics)
        directory.take(before.without(after), after.without(before), lambda number: number)
        directory.invariants()
        for each in after.by_name.values():
            for key, is_id in ((each.name.encode(), False), (each.id.bytes, True)):
                assert codes(directory.words, key, is_id=is_id) == list(each.partition_numbers)
        for name, gone in before.by_name.items():
            if name not in topics:
                is_internal = name in INTERNAL_TOPICS
                expected = [INTERNAL] * INTERNAL_PARTITIONS if is_internal else None
                assert codes(directory.words, name.encode()) == expected
            if gone.id not in after.by_id:
                assert codes(directory.words, gone.id.bytes, is_id=True) is None
        before = after


def test_a_change_asks_for_the_codes_of_what_has_changed() -> None:
    directory, asked = Directory(SECRET), list[int]()

    def code_of(number: int) -> int:
        asked.append(number)
        return number

    kept = [topic(f"kept{i}", range(10 * i + 1, 10 * i + 9)) for i in range(500)]
    directory.take((), kept, code_of)
    asked.clear()
    new = topic("new", range(9001, 9004))
    directory.take((), [new], code_of)
    directory.take([new], (), code_of)
    assert asked == [9001, 9002, 9003]


def test_topics_created_and_deleted_take_no_more_room() -> None:
    directory = Directory(SECRET)
    directory.take((), [topic(f"kept{i}", range(10 * i + 1, 10 * i + 9)) for i in range(50)], int)
    sizes, moves, words = set[int](), 0, directory.words
    for i in range(2000):
        new = topic("new", range(9001 + i, 9004 + i))
        directory.take((), [new], int)
        directory.take([new], (), int)
        moves += directory.words is not words
        words = directory.words
        sizes.add(len(words))
    directory.invariants()
    assert max(sizes) <= 2 * min(sizes)
    assert moves < 50
