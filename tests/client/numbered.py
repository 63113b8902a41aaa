"""Numbered records, which tests of consumers send and look for."""

import time

import smq

RECORDS = 60
DAY_MS = 86_400_000


def fill(client: smq.Client, topic: str, count: int = RECORDS, first: int = 0) -> None:
    """Numbered records in three partitions, a day apart."""
    with client.producer() as producer:
        for number in range(first, first + count):
            producer.send(
                topic,
                b"%d" % number,
                key=b"k%d" % number,
                headers=[("n", b"%d" % number), ("none", None)],
                partition=number % 3,
                timestamp_ms=number // 3 * DAY_MS,
            )


def numbers(consumer: smq.Consumer, count: int) -> list[int]:
    """So many records, as the numbers in them; each partition's are checked to be in order."""
    found: list[int] = []
    by_partition: dict[int, int] = {}
    deadline = time.monotonic() + 20
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
        with consumer.poll(1) as batch:
            for record in batch:
                assert record.value is not None
                found.append(int(record.value))
                assert by_partition.get(record.partition, -1) < record.offset
                by_partition[record.partition] = record.offset
    assert len(found) == count
    return sorted(found)
