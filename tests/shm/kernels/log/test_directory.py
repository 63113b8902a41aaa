"""Every topic is found by its name and by its id, and nothing else is."""

from uuid import UUID

import numpy as np
from hypothesis import given, settings, strategies as st

from shm.kernels.log.directory import LED_ELSEWHERE, find_topic, hash_key
from shm.kernels.twin.log import crc32c
from smq.model.catalog import Catalog, Topic
from smq.shard.directory import build_directory

names = st.lists(st.text(max_size=17), max_size=40, unique=True)


def directory_of(topics: list[Topic]) -> np.ndarray:
    catalog = Catalog("c", 1, {topic.name: topic for topic in topics})
    return build_directory(catalog, lambda number: number if number % 2 else None)


def topics_named(names: list[str]) -> list[Topic]:
    return [
        Topic(name, UUID(int=i + 1), (2 * i + 1, 2 * i + 2), (0, 1)) for i, name in enumerate(names)
    ]


def find(directory: np.ndarray, key: bytes, *, is_id: bool) -> list[int] | None:
    """The codes of a topic's partitions, None: there is no such topic."""
    data = np.frombuffer(b"before" + key + b"after", np.uint8)
    topic = int(find_topic(directory, data, 6, len(key), is_id))
    if topic < 0:
        return None
    first = int(directory[2] + directory[topic + 3])
    codes: list[int] = directory[first : first + int(directory[topic + 4])].tolist()
    return codes


@settings(deadline=None)
@given(names, st.binary(max_size=17))
def test_topics_are_found_by_name_and_by_id_and_no_others(names: list[str], other: bytes) -> None:
    topics = topics_named(names)
    directory = directory_of(topics)
    by_name = {topic.name.encode(): topic for topic in topics}
    by_id = {topic.id.bytes: topic for topic in topics}
    for topic in topics:
        codes = [topic.partition_numbers[0], LED_ELSEWHERE]
        assert find(directory, topic.name.encode(), is_id=False) == codes
        assert find(directory, topic.id.bytes, is_id=True) == codes
    assert (find(directory, other, is_id=False) is None) == (other not in by_name)
    assert (find(directory, other, is_id=True) is None) == (other not in by_id)


def test_an_empty_directory_holds_nothing() -> None:
    assert find(directory_of([]), b"", is_id=False) is None
    assert find(directory_of([]), bytes(16), is_id=True) is None


def test_a_name_of_sixteen_bytes_is_not_taken_for_an_id() -> None:
    directory = directory_of([Topic("sixteen bytes ok", UUID(int=1), (1,), (0,))])
    assert find(directory, b"sixteen bytes ok", is_id=False) == [1]
    assert find(directory, b"sixteen bytes ok", is_id=True) is None


def test_a_hash_is_the_check_of_the_key_and_an_ids_is_its_inverse() -> None:
    data = np.frombuffer(b"-name-", np.uint8)
    assert hash_key(data, 1, 4, False) == crc32c(b"name")
    assert hash_key(data, 1, 4, True) == crc32c(b"name") ^ 0xFFFFFFFF
