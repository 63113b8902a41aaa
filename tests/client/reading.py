"""Records of a topic, read by a consumer to the end and copied: what tests look at."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from smq.client.consuming.batch.headers import Headers
from smq.client.consuming.consumer import Consumer
from smq.client.consuming.consumer_settings import ConsumerSettings
from smq.client.door.door import Door
from smq.client.kafka.offsets import Start
from smq.client.reach import Reach


class Read(NamedTuple):
    """A record that was copied out of its batch."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def read(
    bootstrap: str,
    topic: str,
    ends: Mapping[int, int],
    *,
    start: Start = "earliest",
    open_door: Callable[[int], Door] | None = None,
) -> list[Read]:
    """The records of some partitions, up to these offsets."""
    with Consumer(Reach(bootstrap, open_door), [], ConsumerSettings(start=start)) as consumer:
        consumer.assign((topic, each) for each in ends)
        return [
            Read(
                record.partition,
                record.offset,
                record.timestamp_ms,
                record.key,
                None if record.value is None else bytes(record.value),
                record.headers,
            )
            for record in consumer.read_until({(topic, each): end for each, end in ends.items()})
        ]
