"""Links: frames arrive whole, nothing blocks, and each break is reported once."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from smq.app.process import link as module
from smq.app.process.acceptor import Acceptor
from smq.app.process.link import Link
from smq.app.process.loop import Loop
from smq.wire.internal.frames import KIND_COMMAND, InternalFrame, encode_frame

TURNS_MAX = 10_000
SIDES: list["Side"] = []


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    yield
    while SIDES:
        SIDES.pop().link.close()


class Side:
    """What one end of a link was told."""

    def __init__(self, loop: Loop, sock: socket.socket) -> None:
        self.frames: list[InternalFrame] = []
        self.closes = 0
        self.link = Link(loop, sock, lambda _link, frame: self.frames.append(frame), self._closed)
        SIDES.append(self)

    def _closed(self, _link: Link) -> None:
        self.closes += 1


def turn_until(loop: Loop, true: Callable[[], object]) -> None:
    for _ in range(TURNS_MAX):
        if true():
            return
        loop.run_once(0.1)
    raise AssertionError("it never comes true")


def pair(loop: Loop) -> tuple[Side, Side]:
    left, right = socket.socketpair()
    return Side(loop, left), Side(loop, right)


def test_frames_go_both_ways_whole_and_in_order() -> None:
    loop = Loop()
    left, right = pair(loop)
    large = bytes(range(256)) * 8192  # More than a socket takes at once.
    for number, body in enumerate((b"", b"small", large, b"last")):
        left.link.send(encode_frame(number, KIND_COMMAND, body))
    right.link.send(encode_frame(9, KIND_COMMAND, b"back"))
    turn_until(loop, lambda: len(right.frames) == 4 and left.frames)
    assert [frame.id for frame in right.frames] == [0, 1, 2, 3]
    assert right.frames[2].body == large
    assert left.frames == [InternalFrame(9, KIND_COMMAND, b"back")]
    left.link.close()
    turn_until(loop, lambda: right.closes)


class Greedy(socket.socket):
    """Takes whatever is sent, as a process does that reads meanwhile."""

    taken = 0

    def send(self, data: Any, /, *_: Any) -> int:
        self.taken += len(data)
        return len(data)


def test_a_turn_sends_its_share_of_what_is_large() -> None:
    loop = Loop()
    ours, theirs = socket.socketpair()
    greedy = Greedy(fileno=ours.detach())
    side = Side(loop, greedy)
    body = bytes(5 * module.TURN_BYTES)
    side.link.send(body)
    taken = [greedy.taken]
    while side.link.unsent_bytes:
        loop.run_once(1.0)
        taken.append(greedy.taken)
    assert taken == [module.TURN_BYTES * turn for turn in range(1, 6)]
    side.link.send(b"small")
    assert (greedy.taken, side.link.unsent_bytes) == (len(body) + 5, 0)
    theirs.close()


def test_a_turn_sends_its_share_of_a_frame_of_many_pieces() -> None:
    loop = Loop()
    ours, theirs = socket.socketpair()
    greedy = Greedy(fileno=ours.detach())
    side = Side(loop, greedy)
    side.link.send(b"head", *[bytes(module.TURN_BYTES // 8) for _ in range(16)])
    assert module.TURN_BYTES <= greedy.taken < 1.2 * module.TURN_BYTES
    turn_until(loop, lambda: not side.link.unsent_bytes)
    assert greedy.taken == 4 + 2 * module.TURN_BYTES
    theirs.close()


def test_a_link_sends_large_and_small_frames_in_order() -> None:
    loop = Loop()
    left, right = pair(loop)
    sizes = [3 << 20, 5, 70_000, 1, 2, 1 << 20, 200_000, 0, 9]
    for number, size in enumerate(sizes):
        left.link.send(encode_frame(number, KIND_COMMAND, bytes([number]) * size))
    turn_until(loop, lambda: len(right.frames) == len(sizes))
    assert [frame.body for frame in right.frames] == [bytes([n]) * s for n, s in enumerate(sizes)]
    assert left.link.unsent_bytes == 0


def test_a_link_reports_the_peers_close_once_and_its_own_never() -> None:
    loop = Loop()
    left, right = pair(loop)
    left.link.close()
    left.link.close()
    turn_until(loop, lambda: right.closes)
    right.link.send(encode_frame(1, KIND_COMMAND, b""))  # Into the void, without harm.
    loop.run_once(0)
    assert (left.closes, right.closes) == (0, 1)
    assert right.link.closed


def test_a_side_that_takes_nothing_is_dropped_when_it_is_too_far_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "UNSENT_BYTES_MAX", 1 << 20)
    loop = Loop()
    ours, hung = socket.socketpair()
    side = Side(loop, ours)
    for _ in range(1000):
        side.link.send(encode_frame(1, KIND_COMMAND, bytes(1 << 16)))
    assert side.closes == 1
    assert side.link.closed
    hung.close()


def test_garbage_drops_the_link() -> None:
    loop = Loop()
    ours, theirs = socket.socketpair()
    side = Side(loop, ours)
    theirs.sendall(b"\xff" * 64)
    turn_until(loop, lambda: side.closes)
    theirs.close()


def test_a_link_closed_by_a_frame_hands_out_no_more_of_them() -> None:
    loop = Loop()
    ours, theirs = socket.socketpair()
    seen: list[int] = []

    def on_frame(link: Link, frame: InternalFrame) -> None:
        seen.append(frame.id)
        link.close()

    Link(loop, ours, on_frame, lambda _link: None)
    theirs.sendall(b"".join(encode_frame(number, KIND_COMMAND, b"") for number in range(3)))
    turn_until(loop, lambda: seen)
    loop.run_once(0)
    assert seen == [0]
    theirs.close()


def test_connecting_and_accepting_meet_at_a_path(tmp_path: Path) -> None:
    loop, accepted = Loop(), list[Side]()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "socket"))
    listener.listen()
    Acceptor(loop, listener, lambda sock, _address: accepted.append(Side(loop, sock)))
    told: list[InternalFrame] = []
    link = Link.connect(
        loop, tmp_path / "socket", lambda _link, frame: told.append(frame), lambda _link: None
    )
    turn_until(loop, lambda: accepted)
    accepted[0].link.send(encode_frame(5, KIND_COMMAND, b"hello"))
    turn_until(loop, lambda: told)
    assert told[0].body == b"hello"
    link.close()
    turn_until(loop, lambda: accepted[0].closes)
    listener.close()


def test_connecting_to_an_absent_socket_raises_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Link.connect(Loop(), tmp_path / "nobody", lambda _link, _frame: None, lambda _link: None)
