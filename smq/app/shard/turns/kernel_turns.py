"""Decides when a kernel takes whole turns, and handles what the kernel leaves to the loop."""

import select
from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np

from gateway.context import LogSlot
from gateway.quick_fetch import Answer
from smq.app.process.clock import monotonic_ns
from smq.app.process.loop import Loop
from smq.app.shard.connections.clients import Clients
from smq.app.shard.connections.connection import Connection, Slot
from smq.app.shard.connections.receive import Buffer, BufferPool, Rest
from smq.app.shard.door.session import Session
from smq.app.shard.requests.replies import Replies
from smq.app.shard.turns.quick_turns import QuickTurns
from smq.app.shard.waiting.parked_fetches import ParkedFetches
from smq.model.config import Config
from smq.security.rights import EVERYTHING
from smq.shard.produce import Produced, Producing


class LocalDoor(Protocol):
    """The local door of the shard (smq.app.shard.door.sessions)."""

    @property
    def is_watching(self) -> bool:
        """Whether a request is waiting that the kernel does not know."""

    def moved(self, places: Iterable[LogSlot]) -> None:
        """The HWM of these places has moved."""

    def take_settings(self, config: Config) -> None:
        """Use other settings from now on."""

    def hand_over(self) -> None:
        """The kernel is about to run: hand over the awake sessions."""

    def take_back(self) -> None:
        """The kernel has run: take the sessions back."""

    def produced(self, session: Session, data: np.ndarray, end: int, first: Produced) -> None:
        """The kernel left a session's requests in data[:end]; `first` is their result so far."""


class KernelTurns:
    """The kernel turns of one shard. `resume` handles requests that the kernel left."""

    def __init__(  # noqa: PLR0913, PLR0917  (each is a part of the server)
        self,
        loop: Loop,
        quick_turns: QuickTurns,
        producing: Producing,
        buffers: BufferPool,
        replies: Replies,
        parked: ParkedFetches,
        clients: Clients,
        resume: Callable[[Connection, Buffer, Produced], None],
    ) -> None:
        self._loop, self._quick_turns = loop, quick_turns
        self._producing, self._buffers = producing, buffers
        self._replies, self._parked = replies, parked
        self._by_fd, self._resume = clients.by_fd, resume
        self.door: LocalDoor | None = None
        loop.quick, loop.sleep = self._take_turns, self._sleep

    def take_awake(self) -> bool:
        """Have a kernel check the awake sessions; False: it found nothing."""
        return self._quick_turns.may_run() and self._run_turns()

    def _take_turns(self, events: list[tuple[int, int]]) -> bool:
        """Have a kernel take these events, and following turns; False: it took nothing."""
        quick = self._quick_turns
        if not quick.may_run() or self._loop.is_late:  # A login may be over.
            return False
        if not all(mask == select.EPOLLIN and quick.takes(fd) for fd, mask in events):
            return False
        return self._run_turns()

    def _sleep(self, due_ns: int) -> bool:
        """Have a kernel sleep and take what arrives; False: the loop must sleep itself."""
        if not self._quick_turns.may_run():
            return False
        self._run_turns(due_ns)
        return True

    def _run_turns(self, due_ns: int = 0) -> bool:
        quick, door = self._quick_turns, self.door
        self._replies.note_all()
        buffer = self._buffers.take(Rest())
        if door is not None:
            door.hand_over()
        is_watched = door is not None and door.is_watching
        has_taken = quick.run(buffer.array, self._loop.spin, due_ns, is_watched=is_watched)
        if has_taken:
            self._take_left(buffer)
            self._parked.watch()
            self._replies.note_all()
        else:
            self._buffers.put_back(buffer, Rest())
        if door is not None:
            door.take_back()
        return has_taken

    def _take_left(self, buffer: Buffer) -> None:
        """Handle what the kernel's turns have left."""
        quick = self._quick_turns
        for fd, answers, marks in quick.unsent():
            client = self._client(fd)
            quick.held.release(fd)
            self._replies.acks.queue(client, answers, marks)
            self._replies.touch(client)
        if (unsent := quick.unsent_fetch()) is not None:
            self._send_left(*unsent)
        if (rung := quick.rung()) is not None:
            session, bells = rung
            session.rung(bells)
        left = quick.left()
        if left is None:
            self._buffers.put_back(buffer, Rest())
            return
        fd, stop, end = left
        quick.held.release(fd)
        client = self._client(fd)
        rights = EVERYTHING if isinstance(client, Session) else client.caller.rights
        self._producing.listener = rights.peer.listener
        produced = self._producing.resume(buffer.array, stop)
        if isinstance(client, Session):
            assert self.door is not None
            self.door.produced(client, buffer.array, end, produced)
            self._buffers.put_back(buffer, Rest())
            return
        buffer.end = end
        self._resume(client, buffer, produced)

    def _client(self, fd: int) -> Connection | Session:
        """Whose input or answer a kernel has left: it uses its connection now."""
        connection = self._by_fd.get(fd)
        if connection is None:
            return self._quick_turns.sessions.at(fd)
        connection.last_used_ns = monotonic_ns()
        return connection

    def _send_left(self, fd: int, answer: Answer) -> None:
        """Send the rest of a Fetch's answer when the socket takes it."""
        connection = self._by_fd[fd]
        connection.last_used_ns = monotonic_ns()
        connection.slots.append(Slot(answer, is_open=True))
        self._replies.change(connection)
