"""The table by which kernels find a partition: built from the catalog, laid out as
shm.kernels.log.directory says."""

from collections.abc import Callable

import numpy as np

from shm.kernels.log.directory import (
    DIRECTORY_HEADER_WORDS,
    INTERNAL,
    LED_ELSEWHERE,
    SECRET,
    TOPIC_WORDS,
    enter_topics,
)
from smq.model.catalog import Catalog


def build_directory(
    catalog: Catalog, code_of: Callable[[int], int | None], secret: bytes
) -> np.ndarray:
    """The directory of a catalog: int64, one dimension.

    `code_of(number)` gives log << 32 | slot for a partition led here, None for the others. `secret`
    has 16 bytes that no client knows.
    """
    topics = list(catalog.all())
    keys = [topic.name.encode() for topic in topics] + [topic.id.bytes for topic in topics]
    names = np.frombuffer(b"".join(keys), np.uint8)
    buckets = 2
    while buckets < 2 * len(keys):
        buckets *= 2
    counts = np.fromiter((topic.partition_count for topic in topics), np.int64, len(topics))
    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    topics_at = DIRECTORY_HEADER_WORDS + buckets
    slots_at = topics_at + TOPIC_WORDS * len(keys)
    names_at = slots_at + int(counts.sum())
    directory = np.zeros(names_at + len(names) // 8 + 1, np.int64)
    directory[:4] = buckets, topics_at, slots_at, names_at
    directory[SECRET : SECRET + 2] = np.frombuffer(secret, np.int64)
    directory[names_at:].view(np.uint8)[: len(names)] = names
    numbers = (number for topic in topics for number in topic.partition_numbers)
    codes = (INTERNAL if number < 0 else code_of(number) for number in numbers)
    directory[slots_at:names_at] = [LED_ELSEWHERE if code is None else code for code in codes]
    rows = directory[topics_at:slots_at].reshape(-1, TOPIC_WORDS)
    rows[:, 1], rows[:, 2] = np.cumsum(lengths) - lengths, lengths
    rows[:, 3], rows[:, 4] = np.tile(np.cumsum(counts) - counts, 2), np.tile(counts, 2)
    enter_topics(directory, names)
    return directory
