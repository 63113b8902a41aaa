"""The door to a shard, against a real broker: requests, answers, watching, and the ends of both."""

import os
import select
import signal
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Thread
from time import monotonic, monotonic_ns
from typing import TYPE_CHECKING

import numpy as np
import pytest

from smq.client.door import door as door_file
from smq.client.door.door import Door, DoorUnavailable, InboxFull
from smq.client.errors import ChannelGone
from smq.client.kafka.admin import create_topic
from smq.client.kafka.cluster import Cluster
from smq.client.producing.encode.columns import one_of
from smq.testing import broker
from smq.testing.smq_broker import SmqBroker
from smq.wire.attach import ANSWER_BYTES
from tests.shard.shard_bench import batch, produce_request, responses
from tests.shm.forks import forked

if TYPE_CHECKING:
    from smq.client.producing.channel.channel import Channel

TOPIC = "one"
SECOND_NS = 1_000_000_000
DEADLINE_S = 20.0
NODE = 1


@pytest.fixture(scope="module")
def running() -> Iterator[SmqBroker]:
    with broker(shards=1) as started:
        with Cluster(started.bootstrap) as cluster:
            create_topic(cluster, TOPIC, 3)
        yield started


@pytest.fixture
def door(running: SmqBroker) -> Iterator[Door]:
    with opened(running) as door:
        yield door


@contextmanager
def opened(running: SmqBroker) -> Iterator[Door]:
    door = Door.open(running.runtime_dir.parent, NODE, running.status().cluster_id)
    yield door
    door.close()


def send(door: Door, partition: int = 0, value: bytes = b"x", correlation: int = 1) -> None:
    request = produce_request({TOPIC: {partition: batch(value)}}, correlation=correlation)
    room = door.reserve_until(len(request) + 100, monotonic_ns() + 10 * SECOND_NS)
    room[: len(request)] = np.frombuffer(request, np.uint8)
    door.commit(len(request))


def answered(door: Door, count: int) -> list[int]:
    """So many answers' correlations, in the order they came."""
    found: list[bytes] = []
    while len(found) < count:
        assert door.wait(DEADLINE_S)
        found += door.answers()
    stream = b"".join(len(each).to_bytes(4) + each for each in found)
    answers = responses(stream)
    assert all(a.responses[0].partition_responses[0].error_code == 0 for _, a in answers)
    return [correlation for correlation, _ in answers]


def test_requests_are_answered_in_order(door: Door) -> None:
    for number in range(300):
        send(door, number % 3, correlation=number)
    assert answered(door, 300) == list(range(300))
    assert not door.wait(0.01)
    assert door.answers() == []


def test_answers_taken_while_the_shard_leaves_are_not_lost(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(door)
    assert door.wait(DEADLINE_S)
    monkeypatch.setattr(door_file, "must_ring_for_room", lambda *_: True)
    door._socket.shutdown(socket.SHUT_RDWR)
    assert len(door.answers()) == 1
    with pytest.raises(ChannelGone):
        door.answers()


def test_an_acknowledged_record_is_visible_in_the_log(door: Door) -> None:
    topic = door.catalog().by_name[TOPIC]
    number, reader = topic.partition_numbers[0], door.readers[topic.logs[0]]
    before = reader.high_watermarks().get(number, 0)
    send(door, value=b"to be seen")
    answered(door, 1)
    assert reader.high_watermarks()[number] == before + 1
    *_, last = reader.visible(reader.snapshot(), number)
    assert b"to be seen" in last.data.tobytes()


def test_a_reader_is_woken_by_what_another_program_sends(running: SmqBroker, door: Door) -> None:
    topic = door.catalog().by_name[TOPIC]
    with opened(running) as writer:
        door.watch([topic.partition_numbers[0]])
        while door.wait(0.2):
            pass
        send(writer, partition=1)
        answered(writer, 1)
        assert not door.wait(0.05)
        sender = Thread(target=send, args=(writer, 0))
        sender.start()
        assert door.wait(DEADLINE_S)
        sender.join()
        assert not door.wait(0.01)


def test_spinning_sees_news_too(door: Door) -> None:
    send(door)
    assert door.wait(DEADLINE_S, spin_us=100)
    assert len(door.answers()) == 1


def test_one_thread_sends_while_another_takes_answers(door: Door) -> None:
    def send_many() -> None:
        for _ in range(5000):
            send(door, value=b"v" * 5000)

    sender = Thread(target=send_many)
    sender.start()
    assert len(answered(door, 5000)) == 5000
    sender.join()


def test_the_catalog_is_the_newest(running: SmqBroker, door: Door) -> None:
    assert door.catalog() is door.catalog()
    with Cluster(running.bootstrap) as cluster:
        create_topic(cluster, "newer", 1)
    assert {TOPIC, "newer"} <= door.catalog().by_name.keys()
    assert [node.id for node in door.nodes()] == [NODE]


def test_a_door_is_a_channel_that_keeps_nothing_back(door: Door) -> None:
    channel: Channel = door
    send(door)
    channel.push()
    assert (channel.is_quiet, channel.events()) == (True, select.POLLIN)
    poller = select.poll()
    poller.register(channel.fileno(), channel.events())
    assert not channel.arm() or poller.poll(1000 * DEADLINE_S)
    assert channel.disarm()
    assert len(channel.answers()) == 1


def test_arguments_out_of_bounds_are_named(door: Door) -> None:
    for size in (0, -1, door.request_bytes_max + 1):
        with pytest.raises(ValueError, match=f"is {size}; .* 1 to {door.request_bytes_max}"):
            door.reserve(size)
    door.reserve(100)
    for used in (0, 4, 101):
        with pytest.raises(ValueError, match=f"used_bytes is {used}"):
            door.commit(used)


# --- no way in ------------------------------------------------------------------------------------


def test_where_no_broker_is_there_is_no_door(running: SmqBroker, tmp_path: Path) -> None:
    cluster_id = running.status().cluster_id
    for place, node, cluster in (
        (tmp_path, 1, cluster_id),
        (running.runtime_dir.parent, 2, cluster_id),
    ):
        with pytest.raises(DoorUnavailable, match="attach-"):
            Door.open(place, node, cluster)


@contextmanager
def pretender(tmp_path: Path, answer: bytes) -> Iterator[None]:
    """Somebody who listens where a broker would and says this."""
    (tmp_path / "c").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "c" / "attach-1.sock"))
        listener.listen()

        def answer_once() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.recv(1000)
                sock.send(answer)

        thread = Thread(target=answer_once)
        thread.start()
        yield
        thread.join()


@pytest.mark.parametrize("answer", [b"hello", bytes(ANSWER_BYTES)])
def test_a_wrong_hello_answer_raises_door_unavailable(tmp_path: Path, answer: bytes) -> None:
    with (
        pretender(tmp_path, answer),
        pytest.raises(DoorUnavailable, match="attach handshake"),
    ):
        Door.open(tmp_path, 1, "c")


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
def test_a_socket_of_another_user_is_not_spoken_to(tmp_path: Path) -> None:
    for directory in (tmp_path, *tmp_path.parents):
        mode = stat.S_IMODE(directory.stat().st_mode)
        if mode & 0o011 != 0o011:  # He passes through; nothing else changes for other tests.
            directory.chmod(mode | 0o011)
    (tmp_path / "c").mkdir(mode=0o777)
    (tmp_path / "c").chmod(0o777)
    ready, tell = os.pipe()

    def listen_as_another() -> None:
        os.setuid(65534)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / "c" / "attach-1.sock"))
        listener.listen()
        os.write(tell, b"1")
        listener.accept()[0].recv(1)

    with forked(listen_as_another):
        os.read(ready, 1)
        with pytest.raises(DoorUnavailable, match="belongs to user 65534"):
            Door.open(tmp_path, 1, "c")
    os.close(ready)
    os.close(tell)


# --- ends -----------------------------------------------------------------------------------------


@contextmanager
def stopped(running: SmqBroker) -> Iterator[int]:
    """The shard hangs."""
    pid = running.status().processes["shard-1"].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGCONT)


def fill(door: Door) -> int:
    """Send until there is no room; how many requests that were."""
    request = np.frombuffer(produce_request({TOPIC: {0: batch(b"v" * 100_000)}}), np.uint8)
    count = 0
    while True:
        if (room := door.reserve(len(request))) is None:
            return count
        room[:] = request
        door.commit(len(request))
        count += 1


def test_a_full_inbox_says_so_at_the_deadline_and_goes_on_later(
    running: SmqBroker, door: Door
) -> None:
    with stopped(running):
        count = fill(door)
        assert count > 20
        start = monotonic()
        with pytest.raises(InboxFull, match="not made room in time"):
            door.reserve_until(100_000, monotonic_ns() + SECOND_NS // 5)
        assert 0.2 <= monotonic() - start < 5
    door.reserve_until(100_000, monotonic_ns() + int(DEADLINE_S) * SECOND_NS)
    assert len(answered(door, count)) == count


def test_a_wait_for_room_ends_when_the_shard_is_killed() -> None:
    with broker(shards=1) as running, opened(running) as door:
        with Cluster(running.bootstrap) as cluster:
            create_topic(cluster, TOPIC, 1)
        pid = running.status().processes["shard-1"].pid
        os.kill(pid, signal.SIGSTOP)
        fill(door)
        killer = Thread(target=running.kill, args=("shard-1",))
        killer.start()
        with pytest.raises(ChannelGone):
            door.reserve_until(100_000, monotonic_ns() + int(DEADLINE_S) * SECOND_NS)
        killer.join()


def test_a_door_ends_with_its_shard_and_a_new_one_can_be_opened() -> None:
    with broker(shards=1) as running:
        with Cluster(running.bootstrap) as cluster:
            create_topic(cluster, TOPIC, 1)
        with opened(running) as door, opened(running) as waiting:
            send(door)
            assert door.wait(DEADLINE_S)
            head = np.zeros(1, np.uint8)
            assert door.reserve(100) is not None  # To be committed too late.
            killer = Thread(target=running.kill, args=("shard-1",))
            killer.start()
            with pytest.raises(ChannelGone):
                waiting.wait(DEADLINE_S)
            killer.join()
            assert len(door.answers()) == 1  # Of before: it is not lost.
            calls: list[Callable[[], object]] = [partial(door.wait, 0), door.answers]
            calls += [partial(send, door), partial(door.watch, []), door.disarm]
            calls += [partial(door.reserve, 10), partial(door.commit, 10)]
            calls += [lambda: door.send_one(100, head, 1, one_of(b"v", None, (), 0), (1, 0, 0))]
            for call in calls:
                with pytest.raises(ChannelGone):
                    call()
            assert door.catalog().by_name  # What was mapped is there still.
        with opened(running) as again:  # Waits in line until the shard is back.
            send(again)
            assert len(answered(again, 1)) == 1
            assert again.nodes()[0].generation > 0


def test_a_fork_has_no_door_and_its_parent_s_goes_on(door: Door) -> None:
    def act() -> None:
        for call in (partial(door.wait, 0), door.answers, partial(door.reserve, 10)):
            with pytest.raises(ChannelGone):
                call()

    send(door)
    with forked(act):
        pass
    assert len(answered(door, 1)) == 1


def test_closing_wakes_who_waits_in_another_thread(door: Door) -> None:
    ended: list[Exception] = []

    def wait() -> None:
        try:
            door.wait(DEADLINE_S)
        except ChannelGone as reason:
            ended.append(reason)

    waiter = Thread(target=wait)
    waiter.start()
    while door._side[6] % 2 == 0:  # Until it sleeps.
        pass
    door.close()
    waiter.join(DEADLINE_S)
    assert len(ended) == 1
