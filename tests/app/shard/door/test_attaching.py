"""Attaching to a shard: who may, what it gets, and how many may try at once."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shm.peer import PeerIdentity
from smq.app.process.clock import monotonic_ms
from smq.app.shard.door.attaching import ATTACHING_MAX, HELLO_MS_MAX, INBOX_BYTES_MIN, inbox_bytes
from smq.client.producing.encode.batch_writer import BatchWriter
from smq.model.config import Config
from smq.wire.attach import HELLO_BYTES, VERSION, AttachReply, Hello
from smq.wire.compression import Codec
from tests.app.door_bench import IDENTITY, DoorBench, Make
from tests.app.fake_peers import turn_until
from tests.app.shard_client import benches
from tests.shard.shard_bench import topic

MiB = 1 << 20


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with benches(tmp_path, DoorBench) as make:
        yield make


def test_a_valid_hello_gets_memory_and_descriptors(make: Make) -> None:
    bench = make(topic("one"))
    sock, answer, descriptors = bench.greet(IDENTITY.encode())
    assert answer == AttachReply(4)
    assert len(descriptors) == 4
    assert bench.sessions.count() == 1
    sock.close()
    turn_until(bench.loop, lambda: bench.sessions.count() == 0)
    for fd in descriptors:
        os.close(fd)


@pytest.mark.parametrize("is_trusted", [False, True])
def test_another_user_may_attach_if_it_is_trusted(
    make: Make, monkeypatch: pytest.MonkeyPatch, *, is_trusted: bool
) -> None:
    bench, another = make(), PeerIdentity(1, os.getuid() + 1)
    bench.sessions.attaching.listen([], {another.uid} if is_trusted else ())
    monkeypatch.setattr("smq.app.shard.door.attaching.peer_of", lambda _: another)
    _, answer, descriptors = bench.greet(IDENTITY.encode())
    refused = AttachReply(0, "this broker belongs to another user")
    assert answer == (AttachReply(len(descriptors)) if is_trusted else refused)
    for fd in descriptors:
        os.close(fd)


@pytest.mark.parametrize("hello", [Hello(2, "a-cluster"), Hello(1, "another")])
def test_a_program_of_another_broker_is_refused_with_a_reason(make: Make, hello: Hello) -> None:
    bench = make()
    _, answer, descriptors = bench.greet(hello.encode())
    assert answer == AttachReply(0, "this is another broker or node")
    assert (descriptors, bench.sessions.count()) == ([], 0)


@pytest.mark.parametrize(
    "hello", [b"GET / HTTP/1.1\r\n", bytes(HELLO_BYTES), IDENTITY.encode()[:-1], b"\0"]
)
def test_an_invalid_hello_gets_no_answer(make: Make, hello: bytes) -> None:
    bench = make()
    _, answer, descriptors = bench.greet(hello)
    assert (answer, descriptors, bench.sessions.count()) == (None, [], 0)
    assert ["not an attach handshake" in notice for notice in bench.sessions.notices] == [True]


def test_a_hello_of_another_version_gets_no_answer(make: Make) -> None:
    bench = make()
    hello = bytearray(IDENTITY.encode())
    hello[4:6] = (VERSION + 1).to_bytes(2, "little")
    assert bench.greet(bytes(hello))[1:] == (None, [])
    (notice,) = bench.sessions.notices
    versions = f"attach version {VERSION + 1}, this one {VERSION}"
    assert notice.endswith(f"may not attach: the other side speaks {versions}")


def test_a_program_that_hangs_up_without_a_hello_causes_no_notice(make: Make) -> None:
    bench = make()
    bench.connect().close()
    turn_until(bench.loop, lambda: not bench.sessions.attaching.waiting)
    bench.turn(3)
    assert bench.sessions.notices == []


def test_a_program_that_sends_no_hello_is_disconnected(make: Make) -> None:
    bench = make()
    started_ms = monotonic_ms()
    _, answer, _ = bench.greet(b"")
    assert answer is None
    assert monotonic_ms() - started_ms >= HELLO_MS_MAX
    assert ["has said nothing" in notice for notice in bench.sessions.notices] == [True]


def test_a_program_beyond_max_sessions_is_refused_with_a_reason(make: Make) -> None:
    bench = make(topic("one"), max_sessions=3)
    inside = [bench.attach() for _ in range(3)]
    _, answer, _ = bench.greet(IDENTITY.encode())
    refusal = "3 programs are attached already, as many as max.sessions allows"
    assert answer == AttachReply(0, refusal)
    assert [refusal in notice for notice in bench.sessions.notices] == [True]
    inside[0].socket.close()
    turn_until(bench.loop, lambda: bench.sessions.count() < 3)
    bench.attach()


def test_those_who_say_nothing_do_not_use_up_the_descriptors(make: Make) -> None:
    bench = make(topic("one"))
    for _ in range(ATTACHING_MAX + 10):
        bench.connect()
        bench.turn(1)
    assert len(bench.sessions.attaching.waiting) == ATTACHING_MAX
    turn_until(bench.loop, lambda: not bench.sessions.attaching.waiting)
    bench.attach()


def test_an_inbox_holds_two_requests_with_the_largest_batch() -> None:
    assert inbox_bytes(Config()) == INBOX_BYTES_MIN
    large = inbox_bytes(Config(message_max_bytes=20 * MiB))
    assert large == 64 * MiB
    compressed = inbox_bytes(Config(message_max_bytes=15 * MiB))
    assert compressed // 2 > BatchWriter(Codec.SNAPPY).room(15 * MiB, 0, 15 * MiB)


def test_a_stopping_shard_lets_no_program_attach(make: Make) -> None:
    bench = make(topic("one"))
    sock = bench.connect()
    bench.sessions.stop()
    sock.send(IDENTITY.encode())
    bench.turn(3)
    assert bench.sessions.count() == 0
