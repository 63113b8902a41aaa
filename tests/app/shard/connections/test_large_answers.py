"""What large answers hold together is bounded, whatever clients take, and the slowest pays."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from smq.app.shard.connections import large_answers as module
from smq.wire.generated.list_groups import ListGroupsRequest
from tests.app.fake_peers import turn_until
from tests.app.shard_client import Client, ServerBench, benches, request, versions

Make = Callable[..., ServerBench]
ANSWER_BYTES = 8 * 1024 * 1024


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with benches(tmp_path, ServerBench) as make:
        yield make


def asking(bench: ServerBench, correlation: int, receive_bytes: int | None = 4096) -> Client:
    """A client whose request waits for a large answer."""
    client = bench.client(receive_bytes)
    before = len(bench.peers.relayed)
    client.send(request("ListGroups", 4, ListGroupsRequest(), correlation))
    turn_until(bench.loop, lambda: len(bench.peers.relayed) > before)
    return client


def answer(bench: ServerBench) -> None:
    """The coordinator's answer to who has asked last."""
    _, answered = bench.peers.relayed[-1]
    answered(bytes(64), *[bytes(1 << 16)] * (ANSWER_BYTES >> 16))
    bench.turn(2)


def held_bytes(bench: ServerBench) -> int:
    return sum(each.held_bytes for each in bench.server.clients.by_fd.values())


def test_clients_that_read_nothing_hold_no_more_together_than_the_bound(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixteen requests of 30 bytes cost a shard 1.2 GB for half a minute."""
    monkeypatch.setattr(module, "HELD_BYTES_MAX", 20_000_000)
    bench = make()
    for number in range(10):
        asking(bench, number)
        answer(bench)
        assert held_bytes(bench) <= 20_000_000 + ANSWER_BYTES
    assert 2 <= len(bench.server.clients) <= 4


def test_a_reading_client_is_not_disconnected_for_large_answers_of_others(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HELD_BYTES_MAX", 20_000_000)
    bench = make()
    reader = asking(bench, 7, None)
    answer(bench)
    for number in range(10):
        reader.pull()
        asking(bench, number)
        answer(bench)
    assert len(reader.wait(1)[0]) == ANSWER_BYTES + 64
    reader.send(versions(8))
    assert len(reader.wait(2)) == 2


def test_answers_that_were_taken_do_not_count(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HELD_BYTES_MAX", 20_000_000)
    bench = make()
    clients = []
    for number in range(5):
        clients.append(asking(bench, number, None))
        answer(bench)
        clients[-1].wait(1)
    assert len(bench.server.clients) == 5
    assert held_bytes(bench) == 0
