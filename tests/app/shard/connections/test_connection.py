"""A client's connection: answers keep their order, whatever the socket takes and whenever."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from shm.kernels.turn.words import LIMITED, LOOPS
from smq.app.shard.connections import connection as module
from smq.app.shard.connections.connection import (
    COPIED_BYTES_MAX,
    PROGRESS_BYTES,
    SLOTS_MAX,
    TURN_BYTES,
    Connection,
    Slot,
)
from smq.log.files.background import InlineBackground
from smq.log.reading import DamagedFrame
from smq.security.authorizer import Authorizer
from smq.security.caller import Caller
from smq.security.principals import ANONYMOUS, Peer
from smq.security.rights import Rights
from smq.security.rules import Rules
from smq.shard.loans import FileRange
from tests.app.fake_peers import TidyLoop, turn_until

MiB = 1024 * 1024
LARGE_BYTES = 4 * MiB  # More than a socket takes at once.


class FakeOwner:
    """Counts what it is told."""

    def __init__(self) -> None:
        self.readable_count = self.resumable_count = self.gone_count = 0

    def readable(self, connection: Connection) -> None:
        self.readable_count += 1
        assert isinstance(connection.socket, socket.socket)
        try:
            if not connection.socket.recv(1 << 16):
                connection.close()
        except ConnectionError:
            connection.close()

    def resumable(self, _connection: Connection) -> None:
        self.resumable_count += 1

    def gone(self, _connection: Connection) -> None:
        self.gone_count += 1


class FakeLent:
    """Bytes that are lent, a chunk at a time."""

    def __init__(self, data: bytes) -> None:
        self._data, self.length = data, len(data)
        self.at = self.holds = self.pauses = 0
        self.is_held = False

    def next_buffers(self) -> list[memoryview]:
        return [memoryview(self._data)[self.at : self.at + 100_000]]

    def advance(self, sent: int) -> bool:
        self.at += sent
        return self.at == self.length

    def load(self, ready: Callable[[], None]) -> None:
        raise AssertionError("all of it is in memory")

    def wait(self) -> None:
        self.is_held = True

    def hold(self) -> None:
        self.holds += 1
        self.is_held = True

    def pause(self) -> None:
        self.pauses += 1

    def release(self) -> None:
        self.is_held = False


class DamagedLent(FakeLent):
    """What cannot be read again."""

    def next_buffers(self) -> list[memoryview]:
        raise DamagedFrame("its checksum is another")


class Bench(NamedTuple):
    loop: TidyLoop
    owner: FakeOwner
    connection: Connection
    client: socket.socket

    def slot(self, *pieces: bytes | FakeLent | FileRange, is_open: bool = True) -> Slot:
        slot = Slot(is_open=False)
        slot.fill(pieces)
        slot.is_open = is_open
        self.connection.slots.append(slot)
        return slot

    def is_watched(self) -> bool:
        """Whether its progress is."""
        return self.connection._progress is not None

    def is_full(self) -> bool:
        return self.connection.is_full

    def receive(self, size: int) -> bytes:
        """So many bytes, turning the loop meanwhile."""
        received = bytearray()

        def arrived() -> bool:
            received.extend(self.received())
            return len(received) >= size

        turn_until(self.loop, arrived)
        return bytes(received)

    def received(self) -> bytes:
        """What is there by now."""
        try:
            return self.client.recv(1 << 20)
        except BlockingIOError:
            return b""


@pytest.fixture
def bench() -> Iterator[Bench]:
    ours, client = socket.socketpair()
    ours.setblocking(False)
    client.setblocking(False)
    loop, owner = TidyLoop(), FakeOwner()
    connection = Connection(loop, ours, Caller("a-host"), owner)
    yield Bench(loop, owner, connection, client)
    connection.close()
    client.close()
    loop.close()


def test_a_large_answer_keeps_its_pieces_however_many_they_are(bench: Bench) -> None:
    """They were joined: 100 MB in 70 ms. A sendmsg takes 1024 buffers."""
    pieces = [bytes([i % 256]) * 70_000 for i in range(1500)]
    slot = bench.slot(b"head", *pieces)
    assert all(kept is piece for kept, piece in zip(list(slot.pieces)[1:], pieces, strict=True))
    bench.connection.flush()
    assert bench.receive(4 + 1500 * 70_000) == b"head" + b"".join(pieces)


def test_a_kernel_serves_a_client_that_may_not_do_everything_by_its_bitmaps(bench: Bench) -> None:
    connection = bench.connection
    connection.last_used_ns = 7
    assert connection.standing == 7
    authorizer = Authorizer(Rules(), frozenset({ANONYMOUS}))
    connection.caller.rights = Rights(authorizer, Peer())
    assert connection.standing == 7, "a super user"
    connection.caller.rights = Rights(Authorizer(Rules()), Peer())
    assert connection.standing == LIMITED
    connection.needs_loop = True
    assert connection.standing == LOOPS


def test_nothing_behind_a_closed_slot_is_sent(bench: Bench) -> None:
    bench.slot(b"one ")
    acks = bench.slot(b"two ", is_open=False)
    bench.slot(b"three")
    bench.connection.flush()
    assert bench.received() == b"one "
    acks.is_open = True
    bench.connection.flush()
    assert bench.received() == b"two three"
    assert not bench.connection.slots


def test_a_small_part_is_copied_and_no_longer_held(bench: Bench) -> None:
    small, large = FakeLent(b"s" * COPIED_BYTES_MAX), FakeLent(b"l" * (COPIED_BYTES_MAX + 1))
    slot = bench.slot(is_open=False)
    slot.loan.hold(small)  # While the answer was made.
    slot.fill([b"head", small, b"middle", large, b"tail"])
    assert (small.is_held, large.is_held, small.at) == (False, True, 0)
    assert slot.lent() == [large]
    bench.connection.flush()
    sent = b"head" + b"s" * small.length + b"middle" + b"l" * large.length + b"tail"
    assert bench.receive(len(sent)) == sent
    assert (large.holds, large.pauses) == (0, 0)  # It went at once.


def test_a_socket_that_takes_a_part_gets_the_rest_later(bench: Bench) -> None:
    plain, lent = bytes(range(256)) * (LARGE_BYTES // 256), FakeLent(b"lent" * (LARGE_BYTES // 4))
    bench.slot(b"first ", plain, lent)
    bench.slot(b"last")
    bench.connection.flush()
    assert bench.connection.is_full
    assert (lent.is_held, lent.holds) == (True, 1)
    bench.connection.invariants()
    whole = b"first " + plain + b"lent" * (LARGE_BYTES // 4) + b"last"
    assert bench.receive(len(whole)) == whole
    assert (lent.is_held, lent.holds) == (False, 1)
    bench.connection.invariants()
    assert not bench.connection.is_full


def test_a_client_that_reads_as_fast_as_we_send_leaves_turns_to_others(bench: Bench) -> None:
    class ReadAtOnce(FakeLent):
        def advance(self, sent: int) -> bool:
            bench.received()
            return super().advance(sent)

    lent = ReadAtOnce(bytes(LARGE_BYTES))
    bench.slot(lent)
    bench.connection.flush()
    assert TURN_BYTES <= lent.at < 2 * TURN_BYTES
    bench.connection.invariants()
    bench.loop.run_once(0)
    assert lent.at < 4 * TURN_BYTES  # Of each turn the last piece is sent whole.
    turn_until(bench.loop, lambda: not bench.connection.slots)
    assert (lent.at, lent.is_held) == (LARGE_BYTES, False)


def test_requests_are_not_read_while_answers_are_stuck(bench: Bench) -> None:
    bench.slot(bytes(LARGE_BYTES))
    bench.connection.flush()
    bench.client.send(b"a request")
    bench.loop.run_once(0)
    assert (bench.owner.readable_count, bench.owner.resumable_count) == (0, 0)
    bench.receive(LARGE_BYTES)
    turn_until(bench.loop, lambda: bench.owner.readable_count > 0)
    assert bench.owner.resumable_count == 1


def test_too_many_answers_due_pause_reading_until_they_are_sent(bench: Bench) -> None:
    slots = [bench.slot(b"x", is_open=False) for _ in range(SLOTS_MAX)]
    bench.connection.pause_if_full()
    bench.client.send(b"a request")
    bench.loop.run_once(0)
    assert bench.owner.readable_count == 0
    for slot in slots:
        slot.is_open = True
    bench.connection.flush()
    turn_until(bench.loop, lambda: bench.owner.readable_count > 0)
    assert bench.received() == b"x" * SLOTS_MAX


def pass_interval(bench: Bench) -> None:
    """As if PROGRESS_MS were over."""
    timer = bench.connection._progress
    assert timer is not None
    assert timer.action is not None
    action, timer.action = timer.action, None
    action()


def test_a_shorter_wait_does_not_end_a_longer_one(bench: Bench) -> None:
    connection = bench.connection
    connection.throttle(60_000)
    connection.throttle(5)
    connection.mute(0)
    bench.loop.run_once(0.01)
    assert connection.is_full
    assert 59_000 < connection.owed_ms() <= 60_000
    connection.throttle(90_000)
    assert connection.owed_ms() > 89_000


def test_a_client_that_takes_too_little_in_an_interval_is_closed(bench: Bench) -> None:
    lent = FakeLent(bytes(LARGE_BYTES))
    bench.slot(lent)
    bench.connection.flush()
    bench.receive(PROGRESS_BYTES)
    bench.loop.run_once(0)  # It is filled again.
    pass_interval(bench)
    assert not bench.connection.closed
    bench.client.recv(1)  # A byte a second, or so.
    pass_interval(bench)
    assert (lent.is_held, bench.owner.gone_count) == (False, 1)


def test_its_deadline_does_not_depend_on_how_much_it_has_asked_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays: list[float] = []
    call_later = bench.loop.call_later

    def noted(delay_ms: float, action: object) -> object:
        delays.append(delay_ms)
        return call_later(delay_ms, action)  # type: ignore[arg-type]

    monkeypatch.setattr(bench.loop, "call_later", noted)
    for _ in range(20):
        bench.slot(FakeLent(bytes(LARGE_BYTES)))
    bench.connection.flush()
    assert delays == [module.PROGRESS_MS]


def test_bytes_in_the_sockets_buffer_do_not_count_as_taken(bench: Bench) -> None:
    bench.slot(bytes(LARGE_BYTES))
    bench.connection.flush()
    assert bench.connection._sent_bytes > 0
    assert bench.connection.taken_bytes() <= 0  # It counts what a buffer costs, which is more.


def test_a_client_that_took_all_in_time_is_not_closed(bench: Bench) -> None:
    bench.slot(FakeLent(bytes(LARGE_BYTES)))
    bench.connection.flush()
    assert bench.is_watched()
    bench.receive(LARGE_BYTES)
    assert not bench.is_watched()
    assert not bench.connection.closed


def test_only_the_answer_that_is_being_sent_holds_what_is_lent(bench: Bench) -> None:
    lent = [FakeLent(bytes(LARGE_BYTES)) for _ in range(5)]
    for each in lent:
        bench.slot(each)
    bench.connection.flush()
    assert [each.is_held for each in lent] == [True, False, False, False, False]
    bench.receive(LARGE_BYTES + 1)
    turn_until(bench.loop, lambda: lent[1].is_held)
    assert [each.is_held for each in lent] == [False, True, False, False, False]
    bench.connection.invariants()


def test_a_loan_is_held_behind_an_open_answer_and_not_while_the_socket_is_full(
    bench: Bench,
) -> None:
    waiting, stuck, later = (FakeLent(bytes(LARGE_BYTES)) for _ in range(3))
    unknown = bench.slot(is_open=False)
    bench.slot(waiting)
    bench.connection.flush()
    assert waiting.is_held
    unknown.fill([stuck])
    bench.connection.flush()
    assert (stuck.is_held, waiting.is_held) == (True, False)
    bench.slot(later)
    bench.connection.flush()
    assert not later.is_held
    bench.connection.invariants()
    assert len(bench.receive(3 * LARGE_BYTES)) == 3 * LARGE_BYTES


def test_blocking_again_and_again_looks_at_what_is_lent_once(bench: Bench) -> None:
    parts = [FakeLent(bytes(100_000)) for _ in range(100)]
    bench.slot(*parts)
    bench.connection.flush()
    bench.receive(100 * 100_000)
    assert sum(each.pauses for each in parts) > 1
    assert max(each.holds for each in parts) == 1
    assert sum(each.pauses for each in parts) <= len(parts)
    assert not any(each.is_held for each in parts)


def test_no_more_requests_are_taken_while_large_answers_are_due(bench: Bench) -> None:
    acks = bench.slot(b"acks", is_open=False)
    bench.slot(bytes(2 * MiB))
    assert not bench.is_full()
    bench.slot(bytes(2 * MiB))
    assert bench.is_full()
    acks.is_open = True
    bench.connection.flush()
    bench.receive(4 + 4 * MiB)
    assert not bench.is_full()
    bench.connection.invariants()


def test_the_copied_bytes_of_one_answer_are_bounded(bench: Bench) -> None:
    parts = [FakeLent(bytes(COPIED_BYTES_MAX)) for _ in range(100)]
    slot = bench.slot(*parts)
    copied = sum(len(piece) for piece in slot.pieces if isinstance(piece, bytes))
    assert copied <= 256 * 1024
    bench.connection.flush()
    assert len(bench.receive(100 * COPIED_BYTES_MAX)) == 100 * COPIED_BYTES_MAX


def test_close_releases_all_loans_and_notifies_the_owner_once(bench: Bench) -> None:
    waiting, stuck = FakeLent(bytes(LARGE_BYTES)), FakeLent(bytes(LARGE_BYTES))
    bench.slot(stuck)
    bench.slot(waiting, is_open=False)
    bench.connection.flush()
    assert (stuck.is_held, waiting.is_held) == (True, False)
    bench.connection.close()
    bench.connection.close()
    assert (stuck.is_held, waiting.is_held, bench.owner.gone_count) == (False, False, 1)
    assert not bench.connection.slots


def test_a_client_that_leaves_while_its_answers_are_stuck_is_gone(bench: Bench) -> None:
    lent = FakeLent(bytes(LARGE_BYTES))
    bench.slot(lent)
    bench.connection.flush()
    bench.client.close()
    turn_until(bench.loop, lambda: bench.connection.closed)
    assert (lent.is_held, bench.owner.gone_count) == (False, 1)


def test_a_damaged_loan_closes_the_connection(bench: Bench) -> None:
    lent = DamagedLent(bytes(LARGE_BYTES))
    bench.slot(lent)
    bench.connection.flush()
    assert bench.connection.closed
    assert not lent.is_held


def test_it_closes_after_the_answers_that_are_due(bench: Bench) -> None:
    acks = bench.slot(b"acks", is_open=False)
    bench.connection.close_after_answers()
    bench.connection.flush()
    assert bench.owner.gone_count == 0
    acks.is_open = True
    bench.connection.flush()
    assert bench.owner.gone_count == 1
    assert (bench.received(), bench.received()) == (b"acks", b"")


def test_with_no_answer_due_it_closes_at_once(bench: Bench) -> None:
    bench.connection.close_after_answers()
    assert bench.connection.closed


def open_files(path: Path) -> int:
    """How many descriptors of this process are of a file."""
    links = Path("/proc/self/fd").iterdir()
    return sum(link.is_symlink() and link.readlink() == path for link in links)


def test_an_answer_behind_a_blocked_one_keeps_no_file_open_once_it_is_sent(
    bench: Bench, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    cache.write_bytes(bytes(20_000))
    for _ in range(3):
        bench.slot(bytes(LARGE_BYTES))
        bench.connection.flush()
        bench.slot(b"head", FileRange(str(cache), 0, 20_000, InlineBackground()))
        bench.connection.flush()
        bench.receive(LARGE_BYTES + 4 + 20_000)
        assert not bench.connection.slots
    assert open_files(cache) == 0


def test_a_part_that_is_sent_is_held_no_longer(bench: Bench) -> None:
    sent, left = FakeLent(bytes(100_000)), FakeLent(bytes(LARGE_BYTES))
    bench.slot(sent, left)
    bench.connection.flush()
    assert left.at < LARGE_BYTES
    assert (sent.is_held, left.is_held) == (False, True)
