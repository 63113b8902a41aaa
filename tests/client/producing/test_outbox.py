"""When a record leaves: at once, with others, or after it has lingered."""

import pytest

from smq.client.clock import SystemClock
from smq.client.producing import open_parcels as open_parcels_file
from smq.client.producing.producer import Producer
from smq.client.reach import Reach
from tests.client.fake_kafka import FakeKafka
from tests.client.producers import OPTIONS, WAIT_S, Open, open_producer

__all__ = ["open_producer"]  # A fixture.


def values(kafka: FakeKafka) -> list[list[int]]:
    return [[int(each.value or b"") for each in there.records()] for there in kafka.topics["t"]]


def test_a_record_leaves_at_once_and_those_behind_it_share_a_batch(
    kafka: FakeKafka, open_producer: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_parcels_file, "HOLD_MS", 60_000)
    (partition,) = kafka.add_topic("t")
    producer = open_producer()
    producer.send("t", b"0").result(WAIT_S)
    kafka.takes_records.clear()
    sent = [producer.send("t", b"%d" % number) for number in range(1, 101)]
    kafka.takes_records.set()
    assert [each.result(WAIT_S).offset for each in sent] == list(range(1, 101))
    assert len(partition.batches) == 3


def test_records_linger_for_company(kafka: FakeKafka, open_producer: Open) -> None:
    (partition,) = kafka.add_topic("t")
    producer = open_producer(linger_ms=100)
    sent = [producer.send("t", b"%d" % number) for number in range(10)]
    assert not sent[0].done()
    assert sent[-1].result(WAIT_S).offset == 9
    assert len(partition.batches) == 1
    producer.send("t", b"10")
    producer.flush(WAIT_S)  # Whoever flushes does not linger.
    assert values(kafka) == [[*range(11)]]


def test_a_full_batch_does_not_linger(kafka: FakeKafka, open_producer: Open) -> None:
    kafka.add_topic("t")
    producer = open_producer(linger_ms=60_000)
    assert producer.send("t", bytes(OPTIONS.batch_bytes)).result(WAIT_S).offset == 0


class SetBack(SystemClock):
    """A clock whose wall time is set back all the time."""

    def __init__(self) -> None:
        self._wall_ms = iter(range(10**9, 0, -1000))

    def wall_ms(self) -> int:
        return next(self._wall_ms)


def test_records_linger_by_a_clock_that_only_grows(kafka: FakeKafka) -> None:
    kafka.add_topic("t")
    reach = Reach(kafka.bootstrap, None, 5, clock=SetBack())
    producer = Producer(reach, OPTIONS._replace(linger_ms=1))
    assert producer.send("t", b"0").result(WAIT_S).offset == 0
    producer.close(WAIT_S)
