"""What a consumer lends is given back; loops lose and duplicate nothing, however they end."""

import asyncio
from itertools import islice
from typing import Any

import pytest

import smq
from smq.client.consuming.batch.batch import Batch
from smq.testing.smq_broker import SmqBroker
from tests.client.both import client, running, topic
from tests.client.numbered import RECORDS, fill

__all__ = ["client", "running", "topic"]  # Fixtures.


@pytest.fixture
def filled(client: smq.Client, topic: str) -> str:
    """A topic with so many numbered records in three partitions, in batches of all lengths."""
    with client.producer() as producer:
        for number in range(RECORDS):
            producer.send(topic, b"%d" % number, partition=number % 3)
    return topic


def value(record: smq.Record) -> int:
    return int(record.value or b"")


def rest(consumer: smq.Consumer, count: int) -> list[int]:
    """So many more, and there is nothing behind them."""
    found = [value(record) for record in islice(consumer, count)]
    assert not consumer.poll(0.05)
    return found


@pytest.mark.parametrize("taken", [0, 1, 7, 20, 21, 59, 60])
def test_a_loop_that_ends_early_continues_with_the_next_record(
    client: smq.Client, filled: str, taken: int
) -> None:
    with client.consumer(filled, start="earliest") as consumer:
        found = [value(record) for record in islice(consumer, taken)]
        positions = {each: consumer.position(filled, each) for each in range(3)}
        assert positions == {each: sum(n % 3 == each for n in found) for each in range(3)}
        assert sorted(found + rest(consumer, RECORDS - taken)) == [*range(RECORDS)]


def test_a_commit_in_a_loop_is_of_what_came_before_it(client: smq.Client, filled: str) -> None:
    found = []
    for _ in range(6):
        with client.consumer(filled, group=filled, start="earliest") as consumer:
            for record in islice(consumer, 10):
                found.append(value(record))
                consumer.commit()
    assert sorted(found) == [*range(RECORDS)]


def test_leaving_a_block_from_a_loop_commits_what_was_had(client: smq.Client, filled: str) -> None:
    found = []
    settings: dict[str, Any] = {"group": filled, "start": "earliest", "auto_commit_s": 60}
    for _ in range(6):
        with client.consumer(filled, **settings) as consumer:
            for record in consumer:
                found.append(value(record))
                if len(found) % 10 == 0:
                    break
    assert sorted(found) == [*range(RECORDS)]


def test_records_stay_when_the_loop_has_gone_on(client: smq.Client, filled: str) -> None:
    with client.consumer(filled, start="earliest") as consumer:
        records = list(islice(consumer, RECORDS))
    assert sorted(map(value, records)) == [*range(RECORDS)]


def test_a_partition_that_is_moved_in_a_loop_goes_on_there(client: smq.Client, filled: str) -> None:
    found: list[tuple[int, int]] = []
    seen = 0
    with client.consumer(filled, start="earliest") as consumer:
        for record in consumer:
            found.append((record.partition, record.offset))
            if len(found) == 5:
                moved = record.partition
                seen = record.offset + 1
                consumer.seek(filled, moved, 0)
            if len(found) == RECORDS + seen:
                break
        assert not consumer.poll(0.05)
    assert len(set(found)) == RECORDS
    assert [offset for each, offset in found if each == moved] == [*range(seen), *range(20)]


def test_a_poll_in_a_loop_gives_what_comes_behind(client: smq.Client, filled: str) -> None:
    with client.consumer(filled, start="earliest") as consumer:
        found = []
        for record in consumer:
            found.append(value(record))
            while len(found) < RECORDS:
                with consumer.poll(1) as batch:
                    found += map(value, batch)
            break
        assert sorted(found) == [*range(RECORDS)]


def test_a_paused_partition_is_not_read_on_behind_a_loop(client: smq.Client, filled: str) -> None:
    with client.consumer(filled, start="earliest") as consumer:
        first = next(iter(consumer))
        consumer.pause(filled, first.partition)
        others = rest(consumer, RECORDS * 2 // 3)
        assert first.partition not in {each % 3 for each in others}
        consumer.resume(filled, first.partition)
        assert len(rest(consumer, RECORDS // 3 - 1)) == RECORDS // 3 - 1


def test_a_partition_that_is_paused_in_a_loop_gives_nothing_until_it_is_resumed(
    client: smq.Client, filled: str
) -> None:
    with client.consumer(filled, start="earliest") as consumer:
        records = iter(consumer)
        found = [value(record) for record in islice(records, 5)]
        paused = found[-1] % 3
        seen = sum(each % 3 == paused for each in found)
        consumer.pause(filled, paused)
        others = [value(record) for record in islice(records, RECORDS * 2 // 3 - (5 - seen))]
        assert paused not in {each % 3 for each in others}
        assert consumer.position(filled, paused) == seen
        consumer.resume(filled, paused)
        behind = [value(record) for record in islice(records, RECORDS // 3 - seen)]
        assert sorted(found + others + behind) == [*range(RECORDS)]


def test_pausing_and_resuming_at_each_record_doubles_nothing(
    client: smq.Client, filled: str
) -> None:
    found = []
    with client.consumer(filled, start="earliest") as consumer:
        for record in islice(consumer, RECORDS):
            found.append(value(record))
            consumer.pause(filled, record.partition)
            consumer.resume(filled, record.partition)
        assert not consumer.poll(0.05)
    assert sorted(found) == [*range(RECORDS)]


def test_a_batch_overtaken_during_its_copy_is_read_again(
    client: smq.Client, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy, times = Batch.copy, iter([True, False])

    def overtaken(batch: Batch) -> Batch:
        if next(times, False):
            monkeypatch.setattr(batch, "_checks", [lambda: False])
        return copy(batch)

    monkeypatch.setattr(Batch, "copy", overtaken)
    with client.consumer(filled, start="earliest") as consumer:
        assert sorted(rest(consumer, RECORDS)) == [*range(RECORDS)]
        assert consumer.statistics().overruns == 1


def test_tasks_leave_loops_too(client: smq.Client, filled: str, running: SmqBroker) -> None:
    async def read() -> list[int]:
        found: list[int] = []
        async with (
            smq.connect_async(running.bootstrap, transport=client.transport) as connected,
            connected.consumer(filled, start="earliest") as consumer,
        ):
            while len(found) < RECORDS:
                async for record in consumer:
                    found.append(value(record))
                    if len(found) % 6 == 0:
                        break
        return found

    assert sorted(asyncio.run(asyncio.wait_for(read(), 30))) == [*range(RECORDS)]


def test_a_batch_is_of_its_block(client: smq.Client, topic: str) -> None:
    fill(client, topic, 3)
    with client.consumer(topic, start="earliest") as consumer:
        with consumer.poll() as batch:
            record = next(iter(batch))
            kept, key = batch.copy(), record.key
        for use in (batch.to_arrow, batch.copy, batch.records, batch.tables, batch.arrays):
            with pytest.raises(smq.BatchReleased):
                use()
        for field in ("key", "value", "headers"):
            with pytest.raises(smq.BatchReleased):
                getattr(record, field)
        assert len(batch) == len(kept)
        assert next(iter(kept)).key == key
        kept.release()


def test_the_next_poll_gives_the_last_batch_back(client: smq.Client, topic: str) -> None:
    fill(client, topic, 1)
    with client.consumer(topic, start="earliest") as consumer:
        batch = consumer.poll()
        assert len(batch) == 1
        assert not consumer.poll(0)
        with pytest.raises(smq.BatchReleased):
            batch.to_arrow()
