"""A fetch is authorised at each attempt: while it waits, and in a session."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.context import Wait
from gateway.fetch.session import LIMITED_ANSWERED_MAX
from smq.model.config import Config
from smq.model.errors import ErrorCode
from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.security.access import AccessView
from smq.security.acls import Operation
from smq.security.caller import Caller
from smq.security.principals import Peer, Principal
from smq.shard import fetch_sessions
from smq.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.gateway.shard_api_bench import ShardBench
from tests.security.test_access import FakeBlock
from tests.security.test_authorizer import rule
from tests.shard.shard_bench import batch, catalog, topic

VERSION = 12
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
MAY_READ = rule("wide", Operation.READ)
HOME, AWAY = "10.0.0.9", "10.0.0.10"
COUNT = 20  # More than are read without a session.


class LimitedBench(ShardBench):
    """A shard with a topic that alice may read, as long as `block` says so."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, topic("wide", range(1, COUNT + 1)))
        self.block = FakeBlock()
        config = replace(Config(), authorizer_class_name=STANDARD_AUTHORIZER)
        self.shard.access = AccessView(self.block, config)
        self.block.publish(MAY_READ)
        self.log_in("alice")

    def log_in(self, name: str, host: str = HOME) -> None:
        peer = Peer(Principal("User", name), host)
        self.caller = Caller(host, rights=self.shard.access.rights_of(peer))

    def fetch(self, *indexes: int, **fields: Any) -> Any:
        partitions = [FetchPartition(partition=i, partition_max_bytes=1000) for i in indexes]
        topics = [FetchTopic(topic="wide", partitions=partitions)] if indexes else []
        settings = {"max_wait_ms": 0, "max_bytes": 10_000, "min_bytes": 1, "session_epoch": -1}
        return self.ask("Fetch", VERSION, FetchRequest(**{**settings, "topics": topics, **fields}))


@pytest.fixture
def bench(tmp_path: Path) -> LimitedBench:
    return LimitedBench(tmp_path)


def codes(answer: Any) -> list[int]:
    return [each.error_code for row in answer.responses for each in row.partitions]


def test_a_parked_fetch_is_answered_with_the_refusal(bench: LimitedBench) -> None:
    wait = bench.fetch(0, max_wait_ms=500)
    assert isinstance(wait, Wait)
    assert wait.attempt(is_last=False) is None
    bench.block.publish()
    assert codes(bench.read(wait.attempt(is_last=False))) == [DENIED]


def test_a_parked_fetch_gets_no_record_that_came_after_the_revocation(bench: LimitedBench) -> None:
    wait = bench.fetch(0, max_wait_ms=500)
    assert isinstance(wait, Wait)
    [code] = wait.find_codes()
    bench.block.publish()
    bench.appender.append("wide", 0, batch(b"secret"))
    answer = bench.read(wait.look([code]))
    assert codes(answer) == [DENIED]
    assert not answer.responses[0].partitions[0].records


def test_a_session_tells_of_a_revocation_once_and_again(bench: LimitedBench) -> None:
    begun = bench.fetch(*range(COUNT), session_epoch=0)
    assert begun.session_id > 0
    wait = bench.fetch(session_id=begun.session_id, session_epoch=1, max_wait_ms=500)
    assert isinstance(wait, Wait)
    bench.block.publish()
    answer = bench.read(wait.attempt(is_last=False))
    assert codes(answer) == [DENIED] * COUNT
    again = bench.fetch(session_id=begun.session_id, session_epoch=2)
    assert codes(again) == [DENIED] * COUNT
    bench.block.publish(MAY_READ)
    assert codes(bench.fetch(session_id=begun.session_id, session_epoch=3)) == [0] * COUNT


def test_a_session_of_many_topics_follows_its_rights_in_steps(
    bench: LimitedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine thousand topics held the loop for 0.1 s, and with ten thousand rules for 0.5 s, at the
    first fetch of a session and after each change of a rule."""
    monkeypatch.setattr(fetch_sessions, "FOLLOWED_MAX", 10)
    unknown = [
        FetchTopic(topic=f"unknown-{n}", partitions=[FetchPartition(partition=0)])
        for n in range(25)
    ]
    wide = FetchTopic(topic="wide", partitions=[FetchPartition(partition=i) for i in range(COUNT)])
    begun = bench.fetch(session_epoch=0, topics=[*unknown, wide])
    session = {"session_id": begun.session_id}
    assert codes(bench.fetch(**session, session_epoch=1)) == [DENIED] * len(unknown)
    assert bench.later_count == 0
    bench.block.publish()
    refused = codes(bench.fetch(**session, session_epoch=2))
    assert refused == [DENIED] * (len(unknown) + COUNT)
    assert bench.later_count == 2
    assert codes(bench.fetch(**session, session_epoch=3)) == refused
    assert bench.later_count == 2


def test_a_parked_session_of_many_topics_is_answered_with_the_refusal(
    bench: LimitedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sessions, "FOLLOWED_MAX", 1)
    others = topic("aside", range(100, 101))
    bench.shard.take_catalog(catalog(topic("wide", range(1, COUNT + 1)), others), 2)
    may_aside = rule("aside", Operation.READ)
    bench.block.publish(MAY_READ, may_aside)
    asked = [
        FetchTopic(topic=name, partitions=[FetchPartition(partition=i) for i in range(count)])
        for name, count in (("aside", 1), ("wide", COUNT))
    ]
    begun = bench.fetch(session_epoch=0, topics=asked)
    wait = bench.fetch(session_id=begun.session_id, session_epoch=1, max_wait_ms=500)
    assert isinstance(wait, Wait)
    bench.block.publish(may_aside)
    assert codes(bench.read(wait.attempt(is_last=False))) == [DENIED] * COUNT


def test_a_limited_client_hears_of_many_topics_in_turn(bench: LimitedBench) -> None:
    """Five hundred at once held the loop for thirty milliseconds."""
    names = [f"unknown-{n}" for n in range(LIMITED_ANSWERED_MAX + 10)]
    asked = [FetchTopic(topic=each, partitions=[FetchPartition(partition=0)]) for each in names]
    begun = bench.fetch(session_epoch=0, topics=asked)
    told = [bench.fetch(session_id=begun.session_id, session_epoch=each) for each in (1, 2)]
    assert [len(codes(each)) for each in told] == [LIMITED_ANSWERED_MAX] * 2
    assert {row.topic for each in told for row in each.responses} == set(names)


def test_a_session_is_refused_what_may_not_be_read_from_where_its_client_is(
    bench: LimitedBench,
) -> None:
    bench.block.publish(MAY_READ._replace(entry=MAY_READ.entry._replace(host=HOME)))
    begun = bench.fetch(*range(COUNT), session_epoch=0)
    session = {"session_id": begun.session_id}
    bench.log_in("alice", AWAY)
    assert codes(bench.fetch(**session, session_epoch=1)) == [DENIED] * COUNT
    bench.log_in("alice")
    assert codes(bench.fetch(**session, session_epoch=2)) == [0] * COUNT
    wait = bench.fetch(**session, session_epoch=3, max_wait_ms=500)
    assert isinstance(wait, Wait), "there is nothing to tell"


def test_a_session_of_another_principal_is_unknown_and_stays(bench: LimitedBench) -> None:
    begun = bench.fetch(*range(COUNT), session_epoch=0)
    bench.log_in("mallory")
    stolen = bench.fetch(session_id=begun.session_id, session_epoch=1)
    assert stolen.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    bench.fetch(0, session_id=begun.session_id, session_epoch=-1)
    bench.log_in("alice")
    assert bench.fetch(session_id=begun.session_id, session_epoch=1).error_code == 0
