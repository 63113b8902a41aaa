"""Producers of a fake Kafka, and who closes them."""

from collections.abc import Callable, Iterator

import pytest

from smq.client.producing.parts import Options
from smq.client.producing.producer import Producer
from smq.client.reach import Reach
from smq.wire.compression import Codec
from tests.client.fake_kafka import FakeKafka

WAIT_S = 10
OPTIONS = Options("test", Codec.NONE, 0, 64 * 1024, 1024 * 1024, 5, 20)
Open = Callable[..., Producer]


@pytest.fixture
def open_producer(kafka: FakeKafka) -> Iterator[Open]:
    opened: list[Producer] = []

    def open_one(**options: object) -> Producer:
        reach = Reach(kafka.bootstrap, None, 5)
        opened.append(Producer(reach, OPTIONS._replace(**options)))  # type: ignore[arg-type]
        return opened[-1]

    yield open_one
    kafka.takes_records.set()
    for each in opened:
        each.close(WAIT_S)
