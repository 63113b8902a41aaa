"""A transaction's records become visible together or never, however it ends."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NoReturn

import pytest

import smq
from smq.client.producing.transactions.coordinator import TransactionCoordinator
from smq.testing.smq_broker import SmqBroker
from tests.app.fake_broker import eventually
from tests.client.both import running  # noqa: F401  (a fixture)

SECONDS_MAX = 20.0
_names = count()


@pytest.fixture
def client(running: SmqBroker) -> Iterator[smq.Client]:  # noqa: F811
    with smq.connect(running.bootstrap, timeout_s=10) as connected:
        yield connected


@pytest.fixture
def topic(client: smq.Client) -> str:
    name = f"of-transactions-{next(_names)}"
    client.create_topic(name, 3)
    return name


def number(record: smq.Record) -> int:
    return int(bytes(record.value or b""))


def values(client: smq.Client, topic: str, isolation_level: str = "read_committed") -> list[int]:
    """All that is to be seen up to the end, in order."""
    with client.consumer(topic, start="earliest", isolation_level=isolation_level) as consumer:
        return sorted(map(number, consumer.read_until(consumer.find("latest"))))


class Stop(Exception):
    """Ends a block."""


def test_committed_records_are_visible_and_aborted_ones_never(
    client: smq.Client, topic: str
) -> None:
    wanted: list[int] = []

    def write(first: int, *, stops: bool) -> None:
        with producer.transaction():
            for each in range(first, first + 10):
                producer.send(topic, b"%d" % each, partition=each % 3)
            if stops:
                producer.flush()
                assert values(client, topic) == wanted, "nothing is seen before it is decided"
                raise Stop

    with client.producer(transactional_id=topic) as producer:
        for first in range(0, 60, 20):
            write(first, stops=False)
            wanted += range(first, first + 10)
            assert values(client, topic) == wanted
            with pytest.raises(Stop):
                write(first + 10, stops=True)
            assert values(client, topic) == wanted
    assert values(client, topic, "read_uncommitted") == list(range(60))


def test_a_producer_that_begins_fences_the_one_before(client: smq.Client, topic: str) -> None:
    def be_overtaken() -> None:
        with former.transaction():
            former.send(topic, b"1")
            former.flush()
            with client.producer(transactional_id=topic) as latter, latter.transaction():
                latter.send(topic, b"2")

    def begin() -> None:
        with former.transaction():
            former.send(topic, b"3")

    with client.producer(transactional_id=topic) as former:
        for each in (be_overtaken, begin, begin):
            with pytest.raises(smq.ProducerFenced, match=topic):
                each()
    assert values(client, topic) == [2]


def test_a_record_that_fails_aborts_the_transaction(client: smq.Client, topic: str) -> None:
    def fail() -> None:
        with producer.transaction():
            producer.send(topic, b"1")
            producer.send(topic, bytes(2 << 20)).add_done_callback(lambda sent: sent.exception())

    with client.producer(transactional_id=topic) as producer:
        with pytest.raises(smq.TransactionAborted, match=r"max\.message\.bytes") as raised:
            fail()
        assert isinstance(raised.value.__cause__, smq.RecordTooLarge)
        with producer.transaction():
            producer.send(topic, b"2")
    assert values(client, topic) == [2]


def test_offsets_are_committed_with_the_records(client: smq.Client, topic: str) -> None:
    copied = f"{topic}-copied"
    client.create_topic(copied, 2)
    with client.producer() as filling:
        filling.send_batch(topic, {"value": [b"%d" % each for each in range(30)]})

    def copy(*, stops: bool) -> None:
        read = 0
        with producer.transaction() as transaction:
            while read < 30:
                with consumer.poll(SECONDS_MAX) as batch:
                    for record in batch:
                        producer.send(copied, bytes(record.value or b""))
                    read += len(batch)
            transaction.commit_offsets(consumer)
            if stops:
                raise Stop

    with (
        client.producer(transactional_id=topic) as producer,
        client.consumer(topic, group=topic, start="earliest") as consumer,
    ):
        with pytest.raises(Stop):
            copy(stops=True)
        assert consumer.committed() == {}
        for name in consumer.assignment():
            consumer.seek(*name, "earliest")
        copy(stops=False)
        assert sum(consumer.committed().values()) == 30
        with producer.transaction() as transaction:
            transaction.commit_offsets("another", {(topic, 0): 7})
    assert values(client, copied) == list(range(30))
    with client.consumer(group="another") as consumer:
        consumer.assign([(topic, 0)])
        assert consumer.committed() == {(topic, 0): 7}


def test_misuse_of_transactions_is_refused(client: smq.Client, topic: str) -> None:
    with client.producer() as producer, pytest.raises(ValueError, match="transactional_id"):
        producer.transaction()
    with client.producer(transactional_id=topic) as producer:
        with pytest.raises(RuntimeError, match="with producer"):
            producer.send(topic, b"1")
        with producer.transaction() as transaction:
            with pytest.raises(RuntimeError, match="one is open"), producer.transaction():
                pass
            with pytest.raises(ValueError, match="give them"):
                transaction.commit_offsets("group")
            with client.consumer(topic) as consumer, pytest.raises(ValueError, match="group="):
                transaction.commit_offsets(consumer)
        with pytest.raises(RuntimeError, match="is over"):
            transaction.commit_offsets("group", {(topic, 0): 1})
    with pytest.raises(ValueError, match="transactional_id"):
        client.producer(transactional_id="")


def test_a_commit_that_a_refused_login_has_kept_back_is_never_made(
    client: smq.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next transaction has the records again."""

    def refuse(*_: object) -> NoReturn:
        raise smq.AuthenticationFailed("no login at b: invalid credentials")

    def write(value: bytes) -> None:
        with producer.transaction():
            producer.send(topic, value)
            producer.flush()
            if value == b"1":
                monkeypatch.setattr(TransactionCoordinator, "_connection", refuse)

    with client.producer(transactional_id=topic) as producer:
        for _ in range(2):
            with pytest.raises(smq.AuthenticationFailed):
                write(b"1")
        monkeypatch.undo()
        write(b"2")
    assert values(client, topic) == [2]


def test_a_transaction_open_at_close_is_aborted(client: smq.Client, topic: str) -> None:
    producer = client.producer(transactional_id=topic)
    transaction = producer.transaction()
    transaction.__enter__()
    producer.send(topic, b"1")
    producer.flush()
    producer.close()
    assert values(client, topic) == []
    assert values(client, topic, "read_uncommitted") == [1]


def test_asyncio_has_the_same(running: SmqBroker, client: smq.Client, topic: str) -> None:  # noqa: F811
    async def write() -> None:
        async with (
            smq.connect_async(running.bootstrap, timeout_s=10) as connected,
            connected.producer(transactional_id=topic) as producer,
            connected.consumer(topic, group=topic, start="earliest") as consumer,
        ):
            async with producer.transaction():
                await producer.send(topic, b"1")
            with suppress(Stop):
                async with producer.transaction():
                    await producer.send(topic, b"2")
                    raise Stop
            async with producer.transaction() as transaction, await consumer.poll(SECONDS_MAX):
                await transaction.commit_offsets(consumer)
                await transaction.commit_offsets("another", {(topic, 1): 3})
            assert max((await consumer.committed()).values()) > 0

    asyncio.run(write())
    assert values(client, topic) == [1]


def both(client: smq.Client) -> list[list[int]]:
    return [values(client, topic) for topic in ("kept", "other")]


@pytest.mark.parametrize("level", ["memory", "disk"])
def test_a_commit_of_which_the_broker_may_have_lost_records_aborts_and_says_so(
    tmp_path: Path, level: str
) -> None:
    """Data fault 21: half of a transaction over two levels was committed after a failure."""
    with SmqBroker(tmp_path) as broker, broker.connect(timeout_s=20) as client:
        client.create_topic("kept", 1, {"smq.durability": "disk"})
        client.create_topic("other", 1, {"smq.durability": level})
        with client.producer(transactional_id="t") as producer:
            transaction = producer.transaction()
            with suppress(smq.TransactionAborted), transaction:
                for topic in ("kept", "other"):
                    producer.send(topic, b"1")
                producer.flush()
                broker.kill("supervisor")
                broker.restart()
            kept = [1] if level == "disk" else []
            eventually(lambda: both(client) == [kept, kept], "what was committed is shown")
            with producer.transaction():
                for topic in ("kept", "other"):
                    producer.send(topic, b"2")
            kept = [*kept, 2]
            eventually(lambda: both(client) == [kept, kept], "what is synced is shown")
