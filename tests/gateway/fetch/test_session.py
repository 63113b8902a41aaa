"""Fetches within sessions. What Apache Kafka answers is in tests/oracle/dialogues/fetch.py."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gateway.context import Ask, Wait
from gateway.dispatch import dispatch
from gateway.parts import Parts
from shm.kernels.request.fetch import PLACES_MAX
from smq.shard import fetch_sessions
from smq.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from tests.gateway.coordinator_bench import decoded, relayed
from tests.gateway.shard_api_bench import ShardBench, joined
from tests.shard.shard_bench import NOW, batch, catalog, topic

PARTITIONS, VERSION = 1000, 12
SMALL = PLACES_MAX + 4


@pytest.fixture
def bench(tmp_path: Path) -> ShardBench:
    return ShardBench(tmp_path, topic("wide", range(1, PARTITIONS + 1)))


def request(*places: tuple[int, int], **fields: Any) -> FetchRequest:
    """Ask for (partition, offset) each."""
    partitions = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1000)
        for index, offset in places
    ]
    values: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "session_epoch": 0}
    topics = [FetchTopic(topic="wide", partitions=partitions)] if partitions else []
    return FetchRequest(topics=topics, **(values | fields))


def begin(bench: ShardBench, count: int = SMALL, **fields: Any) -> int:
    """The id of a session that was told everything."""
    answer = ask(bench, request(*((index, 0) for index in range(count)), **fields))
    assert answer.error_code == 0
    assert sum(len(each.partitions) for each in answer.responses) == count
    return int(answer.session_id)


def ask(bench: ShardBench, asked: FetchRequest) -> Any:
    result = dispatch(relayed("Fetch", VERSION, asked).request, bench.shard, NOW).result
    if not isinstance(result, Parts):
        return bench.ask("Fetch", VERSION, asked) if result is None else read(bench, result, asked)
    while not result.step():
        assert result.pending is None
    return decoded("Fetch", VERSION, joined(result.written().framed())[4:])


def read(bench: ShardBench, result: Any, asked: FetchRequest) -> Any:
    assert not isinstance(result, (Ask, Wait))
    bench.asked = dispatch(
        relayed("Fetch", VERSION, request(session_epoch=-1)).request, bench.shard, NOW
    )
    return bench.read(result)


def news(answer: Any) -> dict[int, int]:
    """The bytes of records of the partitions that are in an answer."""
    assert answer.error_code == 0
    return {
        each.partition_index: len(each.records)
        for topic in answer.responses
        for each in topic.partitions
    }


@pytest.mark.parametrize(("count", "has_session"), [(PLACES_MAX, False), (PLACES_MAX + 1, True)])
def test_few_partitions_have_no_session(
    bench: ShardBench, count: int, *, has_session: bool
) -> None:
    assert (begin(bench, count) > 0) == has_session
    assert begin(bench, PARTITIONS) > 0
    assert len(bench.shard.fetch_sessions) == 1 + has_session


@pytest.mark.parametrize("count", [SMALL, PARTITIONS])
def test_an_answer_holds_what_is_new(bench: ShardBench, count: int) -> None:
    id_ = begin(bench, count)
    assert news(ask(bench, request(session_id=id_, session_epoch=1))) == {}
    size = len(batch(b"x"))
    bench.appender.append("wide", 5, batch(b"x"))
    bench.appender.append("wide", count - 1, batch(b"y"))
    found = news(ask(bench, request(session_id=id_, session_epoch=2)))
    assert found == {5: size, count - 1: size}
    found = news(ask(bench, request((5, 1), session_id=id_, session_epoch=3)))
    assert found == {count - 1: size}


def test_it_waits_for_all_of_its_partitions_and_only_one_moves(bench: ShardBench) -> None:
    id_ = begin(bench)
    asked = request(session_id=id_, session_epoch=1, max_wait_ms=700)
    wait = dispatch(relayed("Fetch", VERSION, asked).request, bench.shard, NOW).result
    assert isinstance(wait, Wait)
    assert (wait.timeout_ms, len(wait.find_codes())) == (700, SMALL)
    assert wait.attempt(is_last=False) is None
    bench.appender.append("wide", 9, batch(b"x"))
    answer: Any = wait.attempt(is_last=False)
    assert [each.partition_index for each in answer.responses[0].partitions] == [9]
    assert answer.session_id == id_


def test_a_wait_that_the_client_has_left_for_another_request_is_refused(bench: ShardBench) -> None:
    id_ = begin(bench)
    asked = request(session_id=id_, session_epoch=1, max_wait_ms=700)
    wait = dispatch(relayed("Fetch", VERSION, asked).request, bench.shard, NOW).result
    assert isinstance(wait, Wait)
    assert news(ask(bench, request(session_id=id_, session_epoch=2))) == {}
    refusal: Any = wait.attempt(is_last=True)
    assert refusal.error_code == 71


@pytest.mark.slow
def test_many_changes_at_once_are_taken_in_portions(bench: ShardBench) -> None:
    id_ = begin(bench, PARTITIONS)
    for index in range(PARTITIONS):
        bench.appender.append("wide", index, batch(b"x"))
    everything = [(index, 1) for index in range(PARTITIONS)]
    told: dict[int, int] = news(ask(bench, request(*everything, session_id=id_, session_epoch=1)))
    told |= news(ask(bench, request(session_id=id_, session_epoch=2)))
    assert told == dict.fromkeys(range(PARTITIONS), 0), "the high watermarks, and no records"
    asked = request(*everything, session_id=id_, session_epoch=3, max_wait_ms=500)
    parts = dispatch(relayed("Fetch", VERSION, asked).request, bench.shard, NOW).result
    assert isinstance(parts, Parts)
    while not parts.step() and parts.pending is None:
        pass
    wait = parts.pending
    assert isinstance(wait, Wait)
    assert np.array_equal(wait.find_codes(), np.arange(PARTITIONS))
    bench.appender.append("wide", 77, batch(b"x"))
    parts.add(wait.look([77]))
    while not parts.step():
        assert parts.pending is None
    found = decoded("Fetch", VERSION, joined(parts.written().framed())[4:])
    assert news(found) == {77: len(batch(b"x"))}


def test_a_topic_created_again_is_answered_again(bench: ShardBench) -> None:
    id_ = begin(bench)
    bench.shard.take_catalog(catalog(), 2)
    gone = ask(bench, request(session_id=id_, session_epoch=1))
    assert {each.error_code for each in gone.responses[0].partitions} == {3}
    bench.shard.take_catalog(catalog(topic("wide", range(2001, 2001 + SMALL))), 3)
    told = news(ask(bench, request(session_id=id_, session_epoch=2)))
    assert told == dict.fromkeys(range(SMALL), 0)
    assert news(ask(bench, request(session_id=id_, session_epoch=3))) == {}


def test_names_that_no_topic_has_are_not_kept(bench: ShardBench) -> None:
    id_ = begin(bench)
    strange = [FetchTopic(topic="n" * 250, partitions=[FetchPartition(partition=0)])]
    asked = request(session_id=id_, session_epoch=1)
    asked.topics = strange
    assert ask(bench, asked).error_code == 70
    assert len(bench.shard.fetch_sessions) == 0
    asked = request(*((index, 0) for index in range(SMALL)))
    asked.topics = [*asked.topics, *strange]
    assert ask(bench, asked).session_id == 0


def test_a_session_that_grows_too_large_is_refused(
    bench: ShardBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sessions, "SESSION_ROWS_MAX", SMALL)
    id_ = begin(bench)
    asked = request((SMALL + 1, 0), session_id=id_, session_epoch=1)
    assert ask(bench, asked).error_code == 70
    assert begin(bench, SMALL + 1) == 0


def test_a_session_of_nothing_is_over(bench: ShardBench) -> None:
    id_ = begin(bench)
    gone = [ForgottenTopic(topic="wide", partitions=list(range(SMALL)))]
    asked = request(session_id=id_, session_epoch=1, forgotten_topics_data=gone)
    answer = ask(bench, asked)
    assert (answer.session_id, answer.error_code, list(answer.responses)) == (0, 0, [])
    assert len(bench.shard.fetch_sessions) == 0


def test_a_full_fetch_ends_the_session_it_names(bench: ShardBench) -> None:
    first = begin(bench)
    second = begin(bench, session_id=first)
    assert second not in {0, first}
    assert begin(bench, 1, session_id=second, session_epoch=-1) == 0
    assert len(bench.shard.fetch_sessions) == 0


def test_an_internal_topic_is_no_news(bench: ShardBench) -> None:
    led = range(0, 50, 2)  # The other node leads the rest.
    partitions = [FetchPartition(partition=index, partition_max_bytes=1000) for index in led]
    begins = request(session_epoch=0)
    begins.topics = [FetchTopic(topic="__consumer_offsets", partitions=partitions)]
    first = ask(bench, begins)
    assert first.session_id != 0
    assert news(first) == dict.fromkeys(led, 0)
    later = ask(bench, request(session_id=first.session_id, session_epoch=1))
    assert news(later) == {}
