"""Answers that a kernel has held, and what makes them the loop's."""

import os
import select
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from shm.kernels.base.words import WORD_SYNCED
from shm.kernels.log.sync import (
    BOX_DONE,
    BOX_ERRNO,
    BOX_REQUESTED,
    BOX_REQUESTS,
    BOX_REQUESTS_AT,
    BOX_WORDS,
    post_sync,
)
from shm.kernels.turn.held import HELD_SLOW_NS
from shm.segment import LogMemory
from smq.log.files.disk import OsDisk
from smq.log.sync import InlineSyncer
from smq.model.catalog import Topic
from smq.shard.shard import Shard
from tests.app.fake_peers import turn_until
from tests.app.quick import DISK, Quick, one
from tests.app.shard.turns.test_quick_turns import TOPICS, Step, outcome, produces, steps_of
from tests.app.shard_client import Client, ServerBench, benches, fetch, fetched, settle, versions
from tests.shard.shard_bench import batch, catalog, new_shard, produce_request, topic

pytestmark = pytest.mark.usefixtures("always_quick")


class BoxSyncer(InlineSyncer):
    """A sync thread's mailbox, which is served when the test says so."""

    def __init__(self, memory: LogMemory) -> None:
        super().__init__(memory, OsDisk())
        self.words, self.told = np.zeros(BOX_WORDS, np.int64), os.eventfd(0, os.EFD_NONBLOCK)

    @property
    def box(self) -> np.ndarray:  # type: ignore[override]
        return self.words

    def post(self, fd: int, upto: int) -> bool:
        return bool(post_sync(self.words, fd, upto))

    def busy(self) -> bool:
        return bool(self.words[BOX_DONE] != self.words[BOX_REQUESTED])

    def failed(self) -> bool:
        return bool(self.words[BOX_ERRNO] != 0)

    def reset(self) -> None:
        self.words[BOX_DONE] = self.words[BOX_REQUESTED]
        self.words[BOX_ERRNO] = 0

    def sync(self) -> None:
        """Serve everything that is posted."""
        while self.busy():
            at = BOX_REQUESTS_AT + 2 * (self.words[BOX_DONE] % BOX_REQUESTS)
            super().post(int(self.words[at]), int(self.words[at + 1]))
            self.words[BOX_DONE] += 1
        os.eventfd_write(self.told, 1)

    def fail(self) -> None:
        self.words[BOX_ERRNO] = 5
        os.eventfd_write(self.told, 1)


class DiskBench(ServerBench):
    """A server with an `os` topic, one, and a `disk` topic, safe, whose disk is the test's."""

    def __init__(self, directory: Path, *topics: Topic) -> None:
        self.syncs_itself = bool(topics)
        two = topic("one"), topic("safe", range(2, 3), DISK)
        super().__init__(directory, *(topics or two))
        self.quick = Quick(self)
        self.serve()

    def make_shard(self, directory: Path, *topics: Topic, **config: Any) -> Shard:
        shard = new_shard(directory, *topics, **config)
        log = shard.logs[0]
        self.syncer = log.syncs.syncer = BoxSyncer(log.memory)
        return shard

    def serve(self) -> None:
        told = self.syncer.told

        def swallow(_events: int) -> None:
            with suppress(BlockingIOError):
                os.eventfd_read(told)

        self.loop.register(told, select.EPOLLIN, swallow)
        self.server.serve_syncs(told)
        if self.syncs_itself:
            self.loop.turn_starts.append(lambda: self.syncer.sync() if self.syncer.busy() else None)

    def close(self) -> None:
        self.syncer.sync()
        super().close()
        os.close(self.syncer.told)

    @property
    def held(self) -> int:
        return len(self.server._held)

    def hold(self, client: Client, correlation: int = 1) -> None:
        """Have the answer to a client's request held."""
        before = self.held
        client.send(safe(correlation))
        turn_until(self.loop, lambda: self.held > before)
        self.server.invariants()


def safe(correlation: int = 1, acks: int = -1) -> bytes:
    return produce_request({"safe": {0: batch(b"s")}}, acks, correlation)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[DiskBench]:
    with benches(tmp_path, DiskBench) as make:
        yield make()


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(script=steps_of(produces))
def test_held_answers_have_the_bytes_that_the_loop_sends(
    tmp_path_factory: pytest.TempPathFactory, script: list[Step]
) -> None:
    directory = tmp_path_factory.mktemp("pair")
    with benches(directory / "a", DiskBench) as make, benches(directory / "b", ServerBench) as too:
        quick, sleeping, slow = make(*TOPICS), make(*TOPICS), too(*TOPICS)
        sleeping.let_kernel_sleep()
        Quick(slow, is_allowed=False)
        expected = outcome(slow, script)
        for each in (quick, sleeping):
            assert outcome(each, script) == expected
            each.shard.invariants()
            each.server.invariants()


def test_a_kernel_answers_when_the_records_are_on_disk(bench: DiskBench) -> None:
    clients = [bench.client() for _ in range(3)]
    for client in clients:
        bench.hold(client)
    settle(bench, clients[0])
    assert [client.frames() for client in clients] == [[], [], []]
    bench.syncer.sync()
    turn_until(bench.loop, lambda: bench.held == 2)
    bench.syncer.sync()
    for client in clients:
        client.wait(1)
    assert bench.quick.taken >= 4
    assert bench.held == 0
    reader = bench.client()
    reader.send(fetch("safe"))
    assert fetched(reader.wait(1)[0]).high_watermark == 3
    bench.server.invariants()


def test_a_client_that_asks_something_else_meanwhile_is_answered_in_order(bench: DiskBench) -> None:
    client, other = bench.client(), bench.client()
    bench.hold(client, correlation=1)
    bench.hold(other)
    client.send(safe(2) + versions(3) + one(correlation=4))
    settle(bench, client)
    assert client.frames() == []
    bench.server.invariants()
    for _ in range(3):
        bench.syncer.sync()
        settle(bench, client)
    assert client.correlations() == [1, 2, 3, 4]
    assert len(other.wait(1)) == 1


def test_the_loop_gets_the_word_of_a_sync_that_it_waits_for_itself(bench: DiskBench) -> None:
    client, other = bench.client(), bench.client()
    bench.hold(client)
    other.send(versions(1) + safe(2))  # The loop takes both.
    other.wait(1)
    settle(bench, other)
    for _ in range(2):
        bench.syncer.sync()
        settle(bench, other)
    assert other.correlations() == [1, 2]
    assert len(client.wait(1)) == 1
    bench.server.invariants()


def test_the_loop_gets_the_word_of_a_sync_that_ends_after_its_turn(bench: DiskBench) -> None:
    client = bench.client()
    client.send(versions(1) + safe(2))  # The loop takes both.
    client.wait(1)
    settle(bench, client)
    bench.syncer.sync()  # The loop's turn is over, and a kernel sleeps next.
    assert not bench.server._quick_turns.takes(bench.syncer.told)
    settle(bench, client)
    assert client.correlations() == [1, 2]
    assert bench.server._quick_turns.takes(bench.syncer.told)


def test_a_client_that_hangs_up_leaves_nothing_behind(bench: DiskBench) -> None:
    client, other = bench.client(), bench.client()
    bench.hold(client)
    bench.hold(other)
    client.socket.close()
    turn_until(bench.loop, lambda: len(bench.server.clients) == 1)
    bench.server.invariants()
    newcomer = bench.client()  # It gets the same descriptor.
    for _ in range(2):
        bench.syncer.sync()
        settle(bench, other)
    assert other.correlations() == [1]
    assert newcomer.frames() == []
    assert bench.held == 0


def test_a_failed_sync_is_repaired_before_any_answer(bench: DiskBench) -> None:
    client, log = bench.client(), bench.shard.logs[0]
    bench.hold(client)
    synced = log.words[WORD_SYNCED]
    bench.syncer.fail()
    turn_until(bench.loop, lambda: bool(log.notices) and log.failed is None)
    assert "writing the WAL failed" not in log.notices[0]
    settle(bench, client)
    assert client.correlations() == [1]
    assert log.words[WORD_SYNCED] > synced
    bench.server.invariants()


def test_answers_to_a_topic_that_goes_still_go_out(bench: DiskBench) -> None:
    client = bench.client()
    bench.hold(client)
    bench.publish(catalog(topic("one")))
    settle(bench, client)
    assert bench.held == 0
    bench.syncer.sync()
    assert len(client.wait(1)) == 1


def test_a_server_that_stops_answers_first(bench: DiskBench) -> None:
    client = bench.client()
    bench.hold(client)
    bench.server.stop()
    assert len(bench.server.clients) == 1
    bench.syncer.sync()
    assert len(client.wait(1)) == 1
    client.wait_closed()


def test_a_server_of_several_logs_holds_none_and_stops(tmp_path: Path) -> None:
    with benches(tmp_path, ServerBench) as make:
        bench = make(topic("one"), topic("safe", range(2, 3), DISK), logs=2)
        client = bench.client()
        client.send(safe())
        assert len(client.wait(1)) == 1
        bench.server.invariants()
        bench.server.stop()
        client.wait_closed()


def test_a_turn_that_the_loop_takes_sends_them_too(bench: DiskBench) -> None:
    client = bench.client()
    bench.hold(client)
    bench.server._quick_turns.may_run = lambda: False  # type: ignore[method-assign]
    bench.syncer.sync()
    assert len(client.wait(1)) == 1
    assert bench.held == 0


def test_a_client_whose_answer_the_loop_takes_over_is_not_closed_as_idle(bench: DiskBench) -> None:
    client = bench.client()
    bench.hold(client)
    [connection] = bench.server.clients.by_fd.values()
    connection.last_used_ns = 0  # Since then a kernel has taken all requests.
    bench.server._held.release_all()
    bench.syncer.sync()
    client.wait(1)
    bench.turn()
    bench.server.clients.close_idle()
    assert len(bench.server.clients) == 1


def test_an_answer_that_took_long_is_a_slow_request(bench: DiskBench) -> None:
    client = bench.client()
    bench.server._held.arrays[0][HELD_SLOW_NS] = 1
    bench.server._times.slow_ns = 1
    bench.hold(client)
    bench.syncer.sync()
    client.wait(1)
    [slow] = bench.server._times.node.slow()
    assert (slow.api_key, slow.client) == (0, "127.0.0.1")
