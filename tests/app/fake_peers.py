"""Other processes of ours, played by the test's own event loop or by a thread."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from smq.app.process.acceptor import Acceptor
from smq.app.process.clock import monotonic_ms
from smq.app.process.link import Link
from smq.app.process.loop import Loop
from smq.wire.internal.form import encode_answer
from smq.wire.internal.frames import InternalFrame, InternalReader, encode_frame

Answers = Callable[[InternalFrame], bytes]
DEADLINE_MS = 20_000


class TidyLoop(Loop):
    """A loop that closes what was opened for it."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[socket.socket | Link] = []

    def close(self) -> None:
        for each in self.opened:
            each.close()
        self._epoll.close()


def listen(path: Path) -> socket.socket:
    """A listening unix socket."""
    path.parent.mkdir(parents=True, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()
    return listener


def answer_in(loop: TidyLoop, path: Path, answers: Answers) -> None:
    """Have the loop answer each frame that comes to `path`."""

    def frame(link: Link, frame: InternalFrame) -> None:
        link.send(encode_frame(frame.id, frame.kind, answers(frame)))

    def accepted(sock: socket.socket, _address: str) -> None:
        loop.opened.append(Link(loop, sock, frame, lambda _: None))

    listener = listen(path)
    loop.opened.append(listener)
    Acceptor(loop, listener, accepted)


def answer_body(answer: object, data: bytes | None = None) -> bytes:
    """An answer as the body of a frame."""
    [frame] = InternalReader().receive(encode_answer(0, answer, data))
    return frame.body


@contextmanager
def answered_by_a_thread(path: Path, answers: Answers) -> Iterator[None]:
    """While the block lasts, a thread answers frames, one connection after the other.

    An empty answer breaks the connection.
    """
    with listen(path) as listener:
        thread = Thread(target=_serve, args=(listener, answers), daemon=True)
        thread.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def _serve(listener: socket.socket, answers: Answers) -> None:
    while True:
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        with sock:
            _converse(sock, answers)


def _converse(sock: socket.socket, answers: Answers) -> None:
    reader = InternalReader()
    while received := sock.recv(1 << 16):
        for frame in reader.receive(received):
            body = answers(frame)
            if not body:
                return
            sock.sendall(encode_frame(frame.id, frame.kind, body))


def turn_until(loop: Loop, condition: Callable[[], bool]) -> None:
    """Turn the loop until something holds; fail if it does not in time."""
    deadline = monotonic_ms() + DEADLINE_MS
    while not condition():
        assert monotonic_ms() < deadline, "it never came true"
        loop.run_once(0.05)
