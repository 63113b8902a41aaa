"""The table by which kernels find a partition: built from the catalog, laid out as
shm.kernels.directory says."""

from collections.abc import Callable

import numpy as np

from shm.kernels.directory import (
    DIRECTORY_HEADER_WORDS,
    LED_ELSEWHERE,
    TOPIC_WORDS,
    hash_key,
)
from smq.model.catalog import Catalog


def build_directory(catalog: Catalog, code_of: Callable[[int], int | None]) -> np.ndarray:
    """The directory of a catalog: int64, one dimension.

    `code_of(number)` gives log << 32 | slot for a partition led here, None for the others.
    """
    topics = list(catalog.by_name.values())
    keys = [(topic.name.encode(), False) for topic in topics]
    keys += [(topic.id.bytes, True) for topic in topics]
    names = b"".join(key for key, _ in keys)
    buckets = 2
    while buckets < 2 * len(keys):
        buckets *= 2
    slot_count = sum(topic.partition_count for topic in topics)
    topics_at = DIRECTORY_HEADER_WORDS + buckets
    slots_at = topics_at + TOPIC_WORDS * len(keys)
    names_at = slots_at + slot_count
    directory = np.zeros(names_at + len(names) // 8 + 1, np.int64)
    directory[:4] = buckets, topics_at, slots_at, names_at
    directory[names_at:].view(np.uint8)[: len(names)] = np.frombuffer(names, np.uint8)
    first_slots: list[int] = []
    slots: list[int] = []
    for topic in topics:
        first_slots.append(len(slots))
        for number in topic.partition_numbers:
            code = code_of(number)
            slots.append(LED_ELSEWHERE if code is None else code)
    directory[slots_at:names_at] = slots
    key_at = 0
    for row, (key, is_id) in enumerate(keys):
        key_hash = int(hash_key(np.frombuffer(key, np.uint8), 0, len(key), is_id))
        topic_index = row % len(topics)
        at = topics_at + TOPIC_WORDS * row
        directory[at : at + TOPIC_WORDS] = (
            key_hash,
            key_at,
            len(key),
            first_slots[topic_index],
            topics[topic_index].partition_count,
        )
        key_at += len(key)
        _enter(directory, key_hash, buckets, row)
    return directory


def _enter(directory: np.ndarray, key_hash: int, buckets: int, row: int) -> None:
    bucket = key_hash & (buckets - 1)
    while directory[DIRECTORY_HEADER_WORDS + bucket]:
        bucket = (bucket + 1) & (buckets - 1)
    directory[DIRECTORY_HEADER_WORDS + bucket] = row + 1
