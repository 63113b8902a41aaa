"""A shard's links to the coordinator and the sealer: questions out, answers back, in any order.

When a link breaks, what was asked over it is answered with nothing: a relayed request closes its
client's connection, as the death of any broker would; a question to the sealer, which only reads,
is asked once more, of the next sealer, and waits no longer than SEALER_WAIT_MS for a filer that
hangs. The next question connects again; the listening sockets are the supervisor's and take it at
once.
"""

from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import TypeVar

from smq.app.process.link import UNSENT_BYTES_MAX as LINK_UNSENT_BYTES_MAX, Link
from smq.app.process.loop import Loop
from smq.wire.codec import Buffer
from smq.wire.internal.form import Failed, Question, decode_answer, encode_question
from smq.wire.internal.frames import KIND_KAFKA, InternalFrame, encode_frame, encode_relay

A = TypeVar("A")

# What the other side has not taken: a client that asks beyond it is refused, and nobody else. The
# link itself is dropped at four times that.
UNSENT_BYTES_MAX = 64 * 1024 * 1024
SEALER_WAIT_MS = 10_000  # Clients wait 30 s for an answer, by default, and then hang up.


class Peer:
    """One other process: connects when first asked, and again after a break."""

    def __init__(self, loop: Loop, path: Path) -> None:
        self._loop, self._path = loop, path
        self._link: Link | None = None
        self._ids = count(1)
        self._waiting: dict[int, Callable[[bytes], None]] = {}

    def ask(self, encode: Callable[[int], bytes], answered: Callable[[bytes], None]) -> None:
        """Send the frame `encode(id)`; `answered(body)` gets the answer, b"" if there is none."""
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

    def _frame(self, _link: Link, frame: InternalFrame) -> None:
        answered = self._waiting.pop(frame.id, None)
        if answered is not None:
            answered(frame.body)

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
        self._coordinator, self._sealer = Peer(loop, coordinator), Peer(loop, sealer)

    def relay(self, client_host: str, request: Buffer, answered: Callable[[bytes], None]) -> None:
        """Have the coordinator answer a client's request; b"" when it cannot."""
        body = encode_relay(self._node_id, client_host, request)
        self._coordinator.ask(lambda i: encode_frame(i, KIND_KAFKA, body), answered)

    def ask_sealer(self, question: Question[A], answered: Callable[[A | Failed], None]) -> None:
        """Ask the sealer; `answered` gets Failed when there is no answer in time."""
        late = Failed("the sealer takes too long")
        deadline = self._loop.call_later(self._sealer_wait_ms, partial(answered, late))
        encode = partial(encode_question, question=question)

        def parsed(body: bytes) -> None:
            if deadline.action is not None:  # Else it has been said that it takes too long.
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
