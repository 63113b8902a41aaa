"""Every topic is found by its name and by its id, and nothing else is."""

from uuid import UUID

import numpy as np
from hypothesis import given, settings, strategies as st

from shm.kernels.log.directory import LED_ELSEWHERE, find_topic, hash_key
from shm.kernels.twin.produce import sip_hash
from smq.model.catalog import Catalog, Topic
from tests.shard.directories import build_directory

SECRET = b"a secret of ours"
names = st.lists(st.text(max_size=17), max_size=40, unique=True)


def directory_of(topics: list[Topic], secret: bytes = SECRET) -> np.ndarray:
    catalog = Catalog("c", 1, {topic.name: topic for topic in topics})
    return build_directory(catalog, lambda number: number if number % 2 else None, secret)


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


def test_a_hash_is_keyed_and_an_ids_is_an_inverse() -> None:
    directory, data = directory_of([]), np.frombuffer(b"-name-", np.uint8)
    wanted = sip_hash(SECRET, b"name") >> 1
    assert hash_key(directory, data, 1, 4, False) == wanted
    assert hash_key(directory, data, 1, 4, True) == wanted ^ 0xFFFFFFFF


def test_names_that_meet_under_one_secret_are_spread_under_another() -> None:
    """data fault 17: chosen names met in one bucket, and a change of the catalog was quadratic."""
    names, bits = [f"name-{i}" for i in range(40_000)], 2**12 - 1
    met = [name for name in names if sip_hash(SECRET, name.encode()) >> 1 & bits == 7]
    assert len(met) >= 5
    other = {sip_hash(bytes(16), name.encode()) >> 1 & bits for name in met}
    assert len(other) > 1
    for secret in (SECRET, bytes(16)):
        directory = directory_of(topics_named(met), secret)
        data = np.frombuffer(met[0].encode(), np.uint8)
        assert (
            hash_key(directory, data, 0, len(data), False) == sip_hash(secret, met[0].encode()) >> 1
        )
