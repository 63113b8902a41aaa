"""A shard's links to the coordinator and the sealer: questions out, answers back, in any order.

A broken link answers its open questions with nothing. For a relayed request that closes the
client's connection, like the death of any broker. A question to the sealer only reads, so it is
retried once, with the next sealer, within SEALER_WAIT_MS in all. The next question reconnects: the
supervisor owns the listening sockets, which accept at once.
"""

from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Protocol, TypeVar

from smq.app.process.link import UNSENT_BYTES_MAX as LINK_UNSENT_BYTES_MAX, Link
from smq.app.process.loop import Loop
from smq.wire.codec import Buffer
from smq.wire.internal.form import Failed, Question, decode_answer, encode_question
from smq.wire.internal.frames import (
    ACCEPTOR_IDS_FROM,
    KIND_KAFKA,
    InternalFrame,
    WrittenPeer,
    encode_frame,
    encode_relay,
)

A = TypeVar("A")

# The limit of unsent bytes. Above it, clients' requests are refused; at four times the limit the
# link is closed.
UNSENT_BYTES_MAX = 64 * 1024 * 1024
SEALER_WAIT_MS = 10_000  # By default, clients disconnect after 30 s without an answer.


class Answered(Protocol):
    """What is called with an answer: b"" without one. A large one has several pieces."""

    def __call__(self, first: bytes, /, *rest: bytes) -> None: ...


class Neighbour:
    """Another of our processes: connects with the first question, and again after a failure.

    `on_question` gets what it asks over our link.
    """

    def __init__(self, loop: Loop, path: Path) -> None:
        self._loop, self._path = loop, path
        self.on_question: Callable[[Link, InternalFrame], None] | None = None
        self._link: Link | None = None
        self._ids = count(1)
        self._waiting: dict[int, Answered] = {}

    def ask(self, encode: Callable[[int], bytes], answered: Callable[[bytes], None]) -> None:
        """Send the frame `encode(id)`; `answered(body)` gets the answer, or b"" without one."""

        def joined(first: bytes, *rest: bytes) -> None:
            answered(b"".join((first, *rest)) if rest else first)

        self.ask_for_pieces(encode, joined)

    def ask_for_pieces(self, encode: Callable[[int], bytes], answered: Answered) -> None:
        """As ask(), but a large answer comes in pieces."""
        if self._link is None or self._link.closed:
            try:
                self._link = Link.connect(self._loop, self._path, self._frame, self._broken)
            except OSError:
                answered(b"")
                return
        assert 4 * UNSENT_BYTES_MAX <= LINK_UNSENT_BYTES_MAX
        if self._link.unsent_bytes > UNSENT_BYTES_MAX:
            answered(b"")
            return
        frame_id = next(self._ids)
        self._waiting[frame_id] = answered
        self._link.send(encode(frame_id))

    def _frame(self, link: Link, frame: InternalFrame) -> None:
        if frame.id >= ACCEPTOR_IDS_FROM and self.on_question is not None:
            self.on_question(link, frame)
            return
        answered = self._waiting.pop(frame.id, None)
        if answered is not None:
            answered(frame.first, *frame.rest)

    def _broken(self, _link: Link) -> None:
        waiting, self._waiting = self._waiting, {}
        for answered in waiting.values():
            answered(b"")

    def close(self) -> None:
        """Close the link."""
        if self._link is not None:
            self._link.close()


class Peers:
    """The coordinator and the sealer, as a shard sees them."""

    def __init__(
        self,
        loop: Loop,
        node_id: int,
        coordinator: Path,
        sealer: Path,
        *,
        sealer_wait_ms: int = SEALER_WAIT_MS,
    ) -> None:
        self._loop, self._node_id, self._sealer_wait_ms = loop, node_id, sealer_wait_ms
        self._coordinator, self._sealer = Neighbour(loop, coordinator), Neighbour(loop, sealer)

    def take_orders(self, take: Callable[[Link, InternalFrame], None]) -> None:
        """Have the coordinator's orders executed: those that it sends over our link are taken
        before its later answers."""
        self._coordinator.on_question = take

    def relay(self, asker: WrittenPeer, request: Buffer, answered: Answered) -> None:
        """Relay a client's request to the coordinator; the answer is b"" if that fails."""
        body = encode_relay(self._node_id, asker, request)
        self._coordinator.ask_for_pieces(lambda i: encode_frame(i, KIND_KAFKA, body), answered)

    def ask_coordinator(
        self, question: Question[A], answered: Callable[[A | Failed], None]
    ) -> None:
        """Ask the coordinator; `answered` gets Failed when the link breaks first."""

        def parsed(body: bytes) -> None:
            gone = Failed("the coordinator is gone")
            answered(decode_answer(type(question), body) if body else gone)

        self._coordinator.ask(partial(encode_question, question=question), parsed)

    def ask_sealer(self, question: Question[A], answered: Callable[[A | Failed], None]) -> None:
        """Ask the sealer; `answered` gets Failed when there is no answer in time."""
        late = Failed("the sealer takes too long")
        deadline = self._loop.call_later(self._sealer_wait_ms, partial(answered, late))
        encode = partial(encode_question, question=question)

        def parsed(body: bytes) -> None:
            if deadline.action is not None:  # Otherwise the timeout has answered already.
                deadline.cancel()
                gone = Failed("the sealer is gone")
                answered(decode_answer(type(question), body) if body else gone)

        def or_again(body: bytes) -> None:
            if body:
                parsed(body)
            else:
                self._sealer.ask(encode, parsed)

        self._sealer.ask(encode, or_again)

    def close(self) -> None:
        """Close both links."""
        self._coordinator.close()
        self._sealer.close()
