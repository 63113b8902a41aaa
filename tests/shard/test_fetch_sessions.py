"""A shard's fetch sessions: their content and their lifetime."""

from pathlib import Path

import pytest

from smq.model.errors import ErrorCode
from smq.shard import fetch_sessions
from smq.shard.fetch_sessions import EVICTION_MS, Asked, FetchSession, FetchSessions, Told
from smq.shard.shard import Shard
from tests.gateway.shard_api_bench import ShardBench
from tests.shard.shard_bench import batch, catalog, topic


def asked(index: int, offset: int = 0, name: str = "a") -> Asked:
    return Asked(name, index, -1, offset, -1, 1000)


def session_of(*asks: Asked) -> FetchSession:
    session = FetchSession(has_ids=False)
    session.update(asks)
    session.invariants()
    return session


def tell_all(session: FetchSession, shard: Shard) -> list[Asked]:
    """Tell the client what is new, as a fetch without records does."""
    news = session.news(shard, is_committed=False)
    session.told([Told(each.topic, each.partition, 0, 0) for each in news])
    session.invariants()
    return news


@pytest.fixture
def bench(tmp_path: Path) -> ShardBench:
    return ShardBench(tmp_path, topic("a", range(1, 9)), topic("b", range(9, 17)))


def test_news_lists_partitions_that_changed_since_their_answer(bench: ShardBench) -> None:
    session = session_of(*(asked(index) for index in (3, 1, 2)))
    assert [each.partition for each in tell_all(session, bench.shard)] == [3, 1, 2]
    assert tell_all(session, bench.shard) == []
    bench.appender.append("a", 2, batch(b"x"))
    assert session.news(bench.shard, is_committed=False) == [asked(2)]
    assert session.news(bench.shard, is_committed=True) == [asked(2)]
    session.update([asked(2, 1)])
    session.told([Told("a", 2, 1, 0)])
    assert session.news(bench.shard, is_committed=False) == []


@pytest.mark.parametrize("offset", [-1, 1, 2**62])
def test_a_position_that_cannot_be_read_is_news(bench: ShardBench, offset: int) -> None:
    session = session_of(asked(1), asked(2))
    tell_all(session, bench.shard)
    session.update([asked(1, offset)])
    assert session.news(bench.shard, is_committed=False) == [asked(1, offset)]


def test_an_epoch_that_is_not_ours_is_news(bench: ShardBench) -> None:
    session = session_of(asked(1), asked(2))
    tell_all(session, bench.shard)
    session.update([asked(2)._replace(leader_epoch=77)])
    assert [each.partition for each in session.news(bench.shard, is_committed=False)] == [2]


def test_an_unknown_partition_is_news_until_it_exists(bench: ShardBench) -> None:
    session = session_of(asked(0), asked(0, name="c"), asked(-1))
    tell_all(session, bench.shard)
    assert tell_all(session, bench.shard) == [asked(0, name="c"), asked(-1)]
    session.forget([("a", [-1]), ("unknown", [1])])
    topics = topic("a", range(1, 9)), topic("b", range(9, 17)), topic("c", range(17, 18))
    bench.shard.take_catalog(catalog(*topics), 2)
    session.told([Told("c", 0, -1, -1)])
    assert tell_all(session, bench.shard) == [asked(0, name="c")]
    assert tell_all(session, bench.shard) == []


def test_an_answered_partition_moves_to_the_end(
    bench: ShardBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sessions, "ANSWERED_MAX", 3)
    session = session_of(*(asked(index) for index in range(8)))
    for index in range(8):
        bench.appender.append("a", index, batch(b"x"))
    found = [[each.partition for each in tell_all(session, bench.shard)] for _ in range(3)]
    assert found == [[0, 1, 2], [3, 4, 5], [6, 7, 0]]


def test_forgotten_topics_are_forgotten(bench: ShardBench) -> None:
    session = session_of(asked(0))
    for number in range(50):
        session.update([asked(0, name=f"t{number}")])
        session.forget([(f"t{number}", [0])])
        session.invariants()
    assert tell_all(session, bench.shard) == [asked(0)]


def test_a_session_goes_from_epoch_to_epoch() -> None:
    sessions = FetchSessions()
    id_ = sessions.add(session_of(asked(1)), 0)
    assert id_ > 0
    assert sessions.enter(id_ + 1, 1, 0, has_ids=False) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.enter(id_, 2, 0, has_ids=False) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert sessions.enter(id_, 1, 0, has_ids=True) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    found = sessions.enter(id_, 1, 0, has_ids=False)
    assert isinstance(found, FetchSession)
    found.epoch = fetch_sessions.EPOCH_MAX
    sessions.enter(id_, found.epoch, 0, has_ids=False)
    assert found.epoch == 1


def test_a_later_shard_gives_other_ids() -> None:
    ids = {FetchSessions().add(session_of(asked(1)), now_ms) for now_ms in range(1000)}
    assert len(ids) == 1000


def test_the_one_that_is_not_used_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "SLOTS_MAX", 2)
    sessions = FetchSessions()
    one, two = (sessions.add(session_of(asked(1)), 0) for _ in range(2))
    assert sessions.add(session_of(asked(1), asked(2)), EVICTION_MS) == 0
    assert isinstance(sessions.enter(one, 1, 5, has_ids=False), FetchSession)
    assert sessions.add(session_of(asked(1)), EVICTION_MS + 1) > 0
    assert sessions.enter(two, 1, 0, has_ids=False) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    sessions.invariants()


def test_a_larger_one_comes_instead_of_a_smaller_that_is_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_sessions, "SLOTS_MAX", 2)
    sessions, later = FetchSessions(), EVICTION_MS + 1
    small = sessions.add(session_of(asked(1)), 0)
    large = sessions.add(session_of(asked(1), asked(2), asked(3)), 0)
    for id_ in (small, large):
        sessions.enter(id_, 1, later, has_ids=False)
    assert sessions.add(session_of(asked(1)), later) == 0
    assert sessions.add(session_of(asked(1), asked(2)), later) > 0
    assert sessions.enter(small, 2, later, has_ids=False) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert isinstance(sessions.enter(large, 2, later, has_ids=False), FetchSession)


def test_all_of_them_have_so_many_partitions_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "ROWS_MAX", 5)
    monkeypatch.setattr(fetch_sessions, "SESSION_ROWS_MAX", 4)
    sessions = FetchSessions()
    assert sessions.add(session_of(*map(asked, range(3))), 0) > 0
    assert sessions.add(session_of(*map(asked, range(3))), 0) == 0
    assert sessions.add(session_of(*map(asked, range(4))), EVICTION_MS + 1) > 0
    assert len(sessions) == 1
    sessions.invariants()
    grown = session_of(*map(asked, range(4)))
    assert sessions.has_room(grown)
    monkeypatch.setattr(fetch_sessions, "SESSION_ROWS_MAX", 3)
    assert not sessions.has_room(grown)
