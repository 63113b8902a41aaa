"""Blocking requests to another SMQ process, one at a time.

For programs and workers that do one thing at a time. A process with an event loop uses a Link.
"""

import socket
from pathlib import Path
from typing import TypeVar

from shm.peer import check_ours
from smq.model.errors import PeerError, StoreError, Unavailable
from smq.wire.internal.form import Failed, Question, decode_answer, encode_question, name_of
from smq.wire.internal.frames import InternalReader

ANSWER_WAIT_S = 10.0  # A shard answers in milliseconds; a stopped one must not block the caller.
RECEIVE_BYTES = 1 << 20

A = TypeVar("A")


class QuestionRefused(StoreError):
    """The other process refused the request, with a sentence."""


class Asker:
    """Connects with the first request, and again after a failure."""

    def __init__(self, path: Path, wait_s: float = ANSWER_WAIT_S) -> None:
        self._path, self._wait_s = path, wait_s
        self._socket: socket.socket | None = None

    def ask(self, question: Question[A]) -> tuple[A, bytes]:
        """The answer, and the bytes after it.

        Raises QuestionRefused; Unavailable without an answer, which leaves the outcome unknown.
        """
        name, asked = self._path.stem, name_of(type(question))
        try:
            body = self._answer(question)
        except (OSError, PeerError) as reason:
            self.close()
            raise Unavailable(name, f"{asked}: no answer: {reason}") from reason
        line, _, data = body.partition(b"\n")
        answer = decode_answer(type(question), line)
        if isinstance(answer, Failed):
            raise QuestionRefused(name, f"{asked}: {answer.error}")
        return answer, data

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _answer(self, question: Question[A]) -> bytes:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            self._socket.settimeout(self._wait_s)
            self._socket.connect(str(self._path))
            check_ours(self._socket)
        self._socket.sendall(encode_question(0, question))
        reader = InternalReader()
        while True:
            received = self._socket.recv(RECEIVE_BYTES)
            if not received:
                raise ConnectionResetError("the connection was closed")
            for frame in reader.receive(received):
                return frame.body
