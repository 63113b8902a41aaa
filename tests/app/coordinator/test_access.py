"""The coordinator publishes users and rules once they are durable, before it answers."""

import socket
from pathlib import Path

from smq.security.acls import Operation
from smq.security.published import decode, line_of
from smq.wire.generated.list_groups import ListGroupsRequest, write_list_groups_request
from smq.wire.internal.form import decode_question
from smq.wire.internal.frames import InternalReader
from smq.wire.internal.messages import FOR_SHARD, FollowRights
from tests.app.coordinator.server_bench import Bench, Peer
from tests.security.test_authorizer import rule


def test_a_rule_is_committed_and_published_when_its_answer_comes(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "store.sqlite")
    assert bench.published_access == [b""]
    bench.server._coordinator.access.create([rule("a", Operation.READ)])
    bench.turn()
    assert decode(bench.published_access[-1]) == [line_of(rule("a", Operation.READ))]
    bench.store.rollback()
    assert bench.store.access.rules() == [rule("a", Operation.READ)]
    assert len(bench.published) == 1, "the catalog has not changed"
    bench.server.close()
    bench.store.close()


def test_shards_are_woken_when_rights_change_and_before_it_is_answered(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "store.sqlite")
    shard = Peer(bench)
    first = shard.kafka("ListGroups", 4, ListGroupsRequest(), write_list_groups_request)
    assert first in shard.answers()
    bench.server._coordinator.access.create([rule("a", Operation.READ)])
    told = [decode_question(body, FOR_SHARD) for body in shard.answers().values()]
    assert told == [FollowRights()]
    bench.server.close()
    shard.sock.close()
    bench.store.close()


def test_shards_are_woken_by_a_coordinator_that_starts_with_rights(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "store.sqlite")
    bench.server._coordinator.access.create([rule("a", Operation.READ)])
    bench.store.commit()  # It dies before it tells anybody.
    bench.server.close()
    bench.store.close()
    path = tmp_path / "shard.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(10)
        again = Bench(tmp_path / "store.sqlite", path)
        shard, _ = listener.accept()
        with shard:
            shard.settimeout(10)
            [frame] = InternalReader().receive(shard.recv(1 << 16))
        assert decode_question(frame.body, FOR_SHARD) == FollowRights()
        again.server.close()
        again.store.close()
