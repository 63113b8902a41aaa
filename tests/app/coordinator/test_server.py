"""A turn of the coordinator: nothing is answered or published that was not committed."""

import errno
import os
import socket
import time
from pathlib import Path

import pytest

from shm.timings import Errors
from smq.app.coordinator import server as server_module
from smq.app.coordinator.server import (
    GROUP_ANSWERS_A_TURN,
    RETRY_MS,
)
from smq.model.catalog import QUOTA
from smq.model.errors import ErrorCode
from smq.store.config_changes import Changer
from smq.wire.generated.create_topics import (
    read_create_topics_response,
)
from smq.wire.generated.describe_groups import (
    DescribeGroupsRequest,
    write_describe_groups_request,
)
from smq.wire.generated.heartbeat import (
    HeartbeatRequest,
    read_heartbeat_response,
    write_heartbeat_request,
)
from smq.wire.generated.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    read_join_group_response,
    write_join_group_request,
)
from smq.wire.generated.list_groups import ListGroupsRequest, write_list_groups_request
from smq.wire.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    read_metadata_response,
    write_metadata_request,
)
from smq.wire.generated.sync_group import SyncGroupRequest, write_sync_group_request
from smq.wire.headers import read_response_header
from smq.wire.internal.form import decode_answer
from smq.wire.internal.manifest import SetLogStart
from tests.app.coordinator.server_bench import Bench, MiB, Peer, create


def join(peer: Peer, member_id: str = "", metadata: bytes = b"x") -> int:
    request = JoinGroupRequest(
        group_id="g",
        member_id=member_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )
    return peer.kafka("JoinGroup", 3, request, write_join_group_request)


def test_the_catalog_is_published_before_anybody_asks(bench: Bench) -> None:
    assert [catalog.cluster_id for catalog in bench.published] == ["cluster"]


def test_a_topic_is_committed_and_published_when_its_answer_comes(
    bench: Bench, peer: Peer, tmp_path: Path
) -> None:
    asked = create(peer, "a")
    body = peer.answers()[asked]
    correlation_id, at = read_response_header(body, 0, 19, 7)
    response = read_create_topics_response(body, at, 7)
    assert correlation_id == 77
    assert response.topics[0].error_code == ErrorCode.NONE
    assert "a" in bench.published[-1].by_name
    assert bench.published[-1].by_name["a"].id == response.topics[0].topic_id
    bench.store.rollback()
    assert [topic.name for topic in bench.store.manifest.topics()] == ["a"]


def test_settings_that_topics_left_no_room_for_are_published_once_there_is_some(
    bench: Bench, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They came into force only when somebody changed another setting."""
    coordinator, rate = bench.server._coordinator, {"producer_byte_rate": "1.0"}
    coordinator.settings.configure(QUOTA, "client", rate, Changer("c", "h", 1))
    coordinator.settings._room.count(1 << 30)  # As an earlier version let it grow.
    coordinator.take_settings()
    create(peer, "a")
    bench.turn(3)
    assert bench.published[-1].settings == {}
    coordinator.settings._room.count(-(1 << 30))
    create(peer, "b")
    bench.turn(3)
    assert bench.published[-1].settings == {QUOTA: {"client": rate}}


def test_nothing_is_published_when_nothing_has_changed(bench: Bench, peer: Peer) -> None:
    assert decode_answer(SetLogStart, peer.command(SetLogStart(number=1, offset=5))) is True
    bench.turn(3)
    assert len(bench.published) == 1


def test_a_metadata_request_makes_the_topics_it_names(bench: Bench, peer: Peer) -> None:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="new"), MetadataRequestTopic(name="bad name")],
        allow_auto_topic_creation=True,
    )
    asked = peer.kafka("Metadata", 12, request, write_metadata_request)
    body = peer.answers()[asked]
    _, at = read_response_header(body, 0, 3, 12)
    response = read_metadata_response(body, at, 12)
    assert [(t.name, t.error_code) for t in response.topics] == [
        ("new", ErrorCode.NONE),
        ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]
    assert "new" in bench.published[-1].by_name


def test_an_answer_that_must_wait_comes_when_its_time_has_come(bench: Bench, peer: Peer) -> None:
    asked = join(peer)
    assert peer.answers() == {}
    bench.now = bench.now._replace(monotonic_ms=bench.now.monotonic_ms + 3000)
    body = peer.answers()[asked]
    _, at = read_response_header(body, 0, 11, 3)
    response = read_join_group_response(body, at, 3)
    assert (response.error_code, response.generation_id) == (ErrorCode.NONE, 1)
    assert response.member_id.startswith("client-")
    assert [member.metadata for member in response.members] == [b"x"]


def test_the_loop_wakes_by_itself_when_a_group_has_something_to_do(
    bench: Bench, peer: Peer
) -> None:
    asked = join(peer)
    bench.turn(3)
    bench.now = bench.now._replace(monotonic_ms=bench.now.monotonic_ms + 2999)
    bench.turn()
    waited = bench.loop._timers[0][2]
    assert waited.action is not None
    bench.now = bench.now._replace(monotonic_ms=bench.now.monotonic_ms + 1)
    assert asked in peer.answers(1)


def test_two_processes_are_answered_each_for_its_own(bench: Bench, peer: Peer) -> None:
    other = Peer(bench)
    first, second = create(peer, "a"), create(other, "b")
    assert first in peer.answers()
    assert second in other.answers()
    other.sock.close()
    bench.turn(2)
    assert create(peer, "c") in peer.answers()


@pytest.mark.parametrize(
    "request_bytes",
    [b"", b"\x00\x0b\x00\x63\x00\x00\x00\x01\xff\xff", b"\x7f\xff\x00\x00\x00\x00\x00\x01\xff\xff"],
    ids=["nothing", "a version that is not", "a key that is not"],
)
def test_an_invalid_relayed_request_closes_only_its_clients_connection(
    bench: Bench, peer: Peer, request_bytes: bytes
) -> None:
    asked = peer.relay(request_bytes)
    assert peer.answers() == {asked: b""}
    assert create(peer, "a") in peer.answers()


def test_a_request_that_is_not_for_the_coordinator_closes_the_connection(peer: Peer) -> None:
    asked = peer.relay(b"\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff")  # ApiVersions
    assert peer.answers() == {asked: b""}


def test_a_link_that_may_not_relay_closes_a_clients_request(bench: Bench) -> None:
    """It would name any client: who has inherited no socket of the supervisor's."""
    stranger = Peer(bench, may_relay=False)
    asked = create(stranger, "a")
    assert stranger.answers() == {asked: b""}
    assert bench.published[-1].by_name == {}
    assert stranger.command(SetLogStart(number=1, offset=5))


def test_a_full_disk_costs_the_turn_and_nothing_else(
    bench: Bench, peer: Peer, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = create(peer, "kept")
    assert kept in peer.answers()
    bench.store.fails = True
    create(peer, "lost")
    bench.turn(3)
    assert peer.is_closed()
    assert "the disk is full" in capsys.readouterr().err
    assert set(bench.published[-1].by_name) == {"kept"}
    again = Peer(bench)
    asked = create(again, "lost")
    body = again.answers()[asked]
    _, at = read_response_header(body, 0, 19, 7)
    assert read_create_topics_response(body, at, 7).topics[0].error_code == ErrorCode.NONE


def test_nothing_is_published_while_syncs_of_the_store_fail(
    bench: Bench, peer: Peer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Data fault 8, its kind: the rows of a commit show though its sync failed. The state built
    from them was published, and shards acknowledged records of a topic that a power loss took."""
    kept = create(peer, "kept")
    assert kept in peer.answers()
    bench.store._database.sync_file = _fail
    create(peer, "new")
    bench.turn(3)
    assert peer.is_closed()
    again = Peer(bench)
    again.kafka("Metadata", 8, MetadataRequest(), write_metadata_request)
    assert again.answers() == {}
    assert set(bench.published[-1].by_name) == {"kept"}
    bench.store._database.sync_file = os.fdatasync
    deadline = time.monotonic() + 10
    while set(bench.published[-1].by_name) == {"kept"}:
        assert time.monotonic() < deadline
        bench.loop.run_once(RETRY_MS / 1000)
    assert set(bench.published[-1].by_name) == {"kept", "new"}
    assert not bench.store.may_lose
    assert "Input/output error" in capsys.readouterr().err


def _fail(_fd: int) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_process_that_reads_no_answers_does_not_delay_others(bench: Bench, peer: Peer) -> None:
    hung = Peer(bench)
    hung.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    for number in range(200):
        create(hung, f"topic-{number}")
        bench.turn()
    assert create(peer, "mine") in peer.answers()


def test_a_heartbeat_is_answered_at_once_and_its_error_counted(bench: Bench, peer: Peer) -> None:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    asked = peer.kafka("Heartbeat", 4, request, write_heartbeat_request)
    body = peer.answers()[asked]
    _, at = read_response_header(body, 0, 12, 4)
    assert read_heartbeat_response(body, at, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    wanted = Errors.private()
    wanted.add(12, {ErrorCode.UNKNOWN_MEMBER_ID: 1})
    assert (bench.errors.table == wanted.table).all()


def test_errors_of_an_answer_that_waited_or_came_in_parts_are_counted(
    bench: Bench, peer: Peer
) -> None:
    asked = join(peer)
    assert asked not in peer.answers()
    for passed_ms in (600_000, 1000):  # After a stall members are heard first.
        bench.now = bench.now._replace(monotonic_ms=bench.now.monotonic_ms + passed_ms)
        bench.turn()
    assert asked in peer.answers()
    topics = [MetadataRequestTopic(name=f"bad name {number}") for number in range(400)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=True)
    asked = peer.kafka("Metadata", 12, request, write_metadata_request)
    assert asked in peer.answers(turns=50)
    wanted = Errors.private()
    wanted.add(11, {ErrorCode.UNKNOWN_MEMBER_ID: 1})  # Its session is over.
    wanted.add(3, {ErrorCode.INVALID_TOPIC_EXCEPTION: 400})
    assert (bench.errors.table == wanted.table).all()


def test_a_large_group_is_answered_over_several_turns(bench: Bench, peer: Peer) -> None:
    asked = []
    for _ in range(5 * GROUP_ANSWERS_A_TURN // 2):
        asked.append(join(peer))
        bench.turn()
    bench.now = bench.now._replace(monotonic_ms=bench.now.monotonic_ms + 3000)
    bench.turn(2)
    bench.now = bench.now._replace(monotonic_ms=bench.now.monotonic_ms + 3000)
    wait_for = bench.server._coordinator.groups._answers
    left: list[int] = []
    answered: list[int] = []
    for _ in range(20):
        answered += peer.answers(turns=1)
        left.append(len(wait_for))
    assert left[:3] == [3 * GROUP_ANSWERS_A_TURN // 2, GROUP_ANSWERS_A_TURN // 2, 0]
    assert answered == asked


def leader_of_a_large_group(bench: Bench, peer: Peer) -> str:
    """The id of the leader of a group that waits for its assignments; another has much to say."""
    asked = join(peer)
    bench.turn(2)
    bench.now = bench.now._replace(monotonic_ms=bench.now.monotonic_ms + 3000)
    body = peer.answers()[asked]
    leader = read_join_group_response(body, read_response_header(body, 0, 11, 3)[1], 3).leader
    join(peer, metadata=bytes(150_000))
    bench.turn(10)
    join(peer, leader)
    return leader


def read_all(peer: Peer, asked: set[int]) -> dict[int, bytes]:
    """Read until all of these have been answered."""
    found, deadline = dict[int, bytes](), time.monotonic() + 60
    while asked - found.keys():
        assert time.monotonic() < deadline
        found |= peer.answers(turns=1)
    return found


def test_large_join_answers_wait_until_the_shard_reads_them(bench: Bench, peer: Peer) -> None:
    """Data fault 12, its kind: a turn counted answers. Requests of 100 bytes, of which nobody read
    the answers, had the coordinator hold all these, and close the link of their shard."""
    leader = leader_of_a_large_group(bench, peer)
    asked = set()
    for _ in range(300):
        asked.add(join(peer, leader))
        bench.turn()
    [link] = bench.server._outlets
    assert link.unsent_bytes <= 6 * MiB
    read_all(peer, asked)


def test_small_requests_with_large_answers_are_answered_as_their_shard_takes_them(
    bench: Bench, peer: Peer
) -> None:
    """Data fault 12, its kind: only groups' answers waited for room. 100 DescribeGroups of 28 bytes
    were answered with 400 MB in the turn in which they came, which closed the shard's link."""
    asked = join(peer, metadata=bytes(900_000))
    bench.turn(10)
    bench.now = bench.now._replace(monotonic_ms=bench.now.monotonic_ms + 3000)
    body = read_all(peer, {asked})[asked]
    leader = read_join_group_response(body, read_response_header(body, 0, 11, 3)[1], 3).leader
    sync = SyncGroupRequest(group_id="g", generation_id=1, member_id=leader)
    read_all(peer, {peer.kafka("SyncGroup", 3, sync, write_sync_group_request)})
    describe = DescribeGroupsRequest(groups=["g"])
    asked_all = {
        peer.kafka("DescribeGroups", 5, describe, write_describe_groups_request) for _ in range(100)
    }
    bench.turn(200)
    [link] = bench.server._outlets
    assert link.unsent_bytes <= 6 * MiB
    read_all(peer, asked_all)


def test_of_many_large_answers_in_parts_only_some_megabytes_are_made_at_once(
    bench: Bench, peer: Peer
) -> None:
    """Data fault 12, its kind: each of many listings grew to its end before the first was taken."""
    for number in range(300):
        request = JoinGroupRequest(
            group_id=f"{number:05d}" + "n" * 30_000,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        peer.kafka("JoinGroup", 3, request, write_join_group_request)
        bench.turn(3)
    asked = {
        peer.kafka("ListGroups", 4, ListGroupsRequest(), write_list_groups_request)
        for _ in range(20)
    }
    most = 0
    for _ in range(1000):
        bench.turn()
        [(link, outlet)] = bench.server._outlets.items()
        most = max(most, link.unsent_bytes + sum(parts.size for parts in outlet._making))
    assert most <= 32 * MiB
    read_all(peer, asked)


def test_an_answer_without_end_costs_its_client_the_connection(
    bench: Bench, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data fault 12, its kind: one that does not fit a frame closed the link of its shard."""
    monkeypatch.setattr(server_module, "ANSWER_BYTES_MAX", 10_000)
    topics = [MetadataRequestTopic(name=f"bad name {number}") for number in range(900)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=True)
    asked = peer.kafka("Metadata", 12, request, write_metadata_request)
    assert peer.answers(turns=50) == {asked: b""}
    assert create(peer, "a") in peer.answers()
