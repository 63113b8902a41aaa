"""Answers that others know: the coordinator, and the sealer with its files."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from smq.model.errors import ErrorCode
from smq.wire.generated.find_coordinator import FindCoordinatorRequest
from tests.app.fake_peers import turn_until
from tests.app.shard_client import (
    ServerBench,
    benches,
    fetch,
    fetched,
    request,
    settle,
    versions,
)
from tests.shard.shard_bench import batch, produce_request, topic

Make = Callable[..., ServerBench]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with benches(tmp_path, ServerBench) as make:
        yield make


def test_what_the_coordinator_says_goes_out_as_it_is_and_once(make: Make) -> None:
    bench = make()
    client = bench.client()
    client.send(request("FindCoordinator", 3, FindCoordinatorRequest(key="g"), 7))
    settle(bench, client)
    [(asked, answered)] = bench.peers.relayed
    assert asked[4:8] == (7).to_bytes(4)
    assert client.frames() == []
    answered((7).to_bytes(4) + b"found")
    assert client.wait(1) == [(7).to_bytes(4) + b"found"]


def test_an_answer_to_someone_who_has_gone_is_dropped(make: Make) -> None:
    bench = make()
    client, neighbour = bench.client(), bench.client()
    client.send(request("FindCoordinator", 3, FindCoordinatorRequest(key="g"), 7))
    settle(bench, client)
    client.socket.close()
    turn_until(bench.loop, lambda: bench.server.connection_count() == 1)
    bench.peers.relayed[0][1]((7).to_bytes(4) + b"found")
    neighbour.send(versions())
    assert len(neighbour.wait(1)) == 1


def test_a_coordinator_that_dies_closes_who_waits_for_it(make: Make) -> None:
    bench = make()
    client, neighbour = bench.client(), bench.client()
    client.send(request("FindCoordinator", 3, FindCoordinatorRequest(key="g"), 1))
    settle(bench)
    bench.peers.relayed[0][1](b"")
    client.wait_closed()
    neighbour.send(versions())
    assert len(neighbour.wait(1)) == 1


def test_cold_records_come_from_the_sealer_s_file_and_its_silence_is_an_error(
    make: Make, tmp_path: Path
) -> None:
    bench = make(topic("one"))
    client = bench.client()
    client.send(produce_request({"one": {0: batch(b"x" * 30_000)}}))
    client.wait(1)
    log = bench.shard.logs[0]
    for _ in range(12):
        client.send(produce_request({"one": {0: batch(b"y" * 30_000)}}))
    client.wait(13)
    log.sealed(1, 13, 0)
    log.checkpoint()
    (tmp_path / "cache").write_bytes(b"cold batches")
    client.send(fetch("one", correlation=20) + fetch("one", correlation=21))
    turn_until(bench.loop, lambda: len(bench.peers.asked) == 2)
    (command, found), (_, silent) = bench.peers.asked
    assert (command["do"], command["number"], command["offset"]) == ("cold", 1, 0)
    found({"ok": {"path": str(tmp_path / "cache"), "at": 5, "length": 7}})
    silent(None)
    first, second = client.wait(15)[13:]
    assert bytes(fetched(first).records) == b"batches"
    assert fetched(second).error_code == ErrorCode.KAFKA_STORAGE_ERROR
