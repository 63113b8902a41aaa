"""The coordinator's loop: links in, one commit a turn, then catalog and answers out.

    a turn      links bring requests and commands -> state and the store's transaction change
    its end     due work -> commit -> catalog published -> answers and orders to shards sent

This order ensures that a client with an answer sees its effect, and that a death at any moment
loses nothing that was answered. A write to a link never blocks (smq.app.process.link): the server
drops a hanging process that falls too far behind.

If the store fails (a full disk), nothing of the turn has been answered: the server closes every
link, so that clients retry, and rebuilds the state from the last commit. If only the sync failed,
that commit is visible and not durable: nothing is published or answered until a later one succeeds.
"""

import socket
from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gateway.coordinator_context import Message, Ticket
from gateway.coordinator_dispatch import Origin, dispatch
from gateway.error_codes import error_codes
from gateway.parts import Parts
from shm.timings import Errors
from smq.app.coordinator.errands import Errands, Sent, report
from smq.app.process.link import Link
from smq.app.process.loop import Loop, Timer
from smq.app.process.steps import Steps
from smq.coordinator.cleaning import Cleaning
from smq.coordinator.commands import execute
from smq.coordinator.coordinator import Coordinator
from smq.coordinator.groups import Groups
from smq.coordinator.transactions.orders import Order
from smq.coordinator.transactions.transactions import Transactions
from smq.model.catalog import Node
from smq.model.errors import PeerError, StoreError
from smq.model.now import Now
from smq.model.printable import say_error
from smq.wire.internal.form import encode_answer
from smq.wire.internal.frames import KIND_KAFKA, InternalFrame, decode_relay, encode_frame

if TYPE_CHECKING:
    from smq.coordinator.group_events import Answer

MiB = 1024 * 1024
# Answers to members after a group's decision. Each costs some microseconds to write and send: a
# group of thousands is answered over several turns, with other requests in between.
GROUP_ANSWERS_A_TURN = 250
# The list of members that a leader gets has up to 4 MiB. So many bytes of groups' answers are
# written in a turn, and none to a shard that has not taken so many: they wait unwritten.
GROUP_BYTES_A_TURN, UNSENT_BYTES_MAX = 4 * MiB, 4 * MiB
# A larger answer would not fit a frame, and costs its client the connection, as it would the shard.
ANSWER_BYTES_MAX = 100 * MiB
RETRY_MS = 1000  # After a failed commit: what it left is published once it is durable.
CLOSE_CONNECTION = b""  # The answer that makes a shard close its client's connection.


class Around(NamedTuple):
    """A coordinator's surroundings: nodes, the catalog's destination, time, shards' sockets, and
    where errors are counted."""

    nodes: Callable[[], list[Node]]
    publish: Callable[[bytes], object]
    clock: Callable[[], Now]
    shard_path: Callable[[int], Path]
    errors: Errors


class _Place(NamedTuple):
    """Where an answer goes: to a link, for one of its frames."""

    link: Link
    frame_id: int


class CoordinatorServer:
    """Serves links with one coordinator, which `build` creates from the committed state."""

    def __init__(self, loop: Loop, build: Callable[[], Coordinator], around: Around) -> None:
        self._loop, self._build = loop, build
        self._nodes, self._publish, self._clock = around.nodes, around.publish, around.clock
        self._errands, self._errors = Errands(loop, around.shard_path), around.errors
        self._links: set[Link] = set()
        self._answers: list[tuple[Link, bytes]] = []
        self._waiting: defaultdict[Link, deque[Answer]] = defaultdict(deque)  # Of groups.
        self._steps = Steps(loop)
        self._alarm: Timer | None = None
        self._alarm_ms = 0
        self._coordinator = self._build()
        for problem in self._coordinator.settings.problems:
            say_error(f"coordinator: {problem}")
        self._published_changes = -1
        loop.turn_ends.append(self._end_turn)

    def accepted(self, sock: socket.socket, _address: str) -> None:
        """Serve a connection from one of our processes."""
        self._links.add(Link(self._loop, sock, self._frame, self._links.discard))

    def close(self) -> None:
        """Close every link: waiting shards learn that no answer will come."""
        self._errands.close()
        for link in self._links:
            link.close()
        self._links.clear()

    def _frame(self, link: Link, frame: InternalFrame) -> None:
        try:
            if frame.kind == KIND_KAFKA:
                self._kafka(link, frame)
            else:
                self._command(link, frame)
        except StoreError as reason:
            self._start_over(reason)

    def _kafka(self, link: Link, frame: InternalFrame) -> None:
        place = _Place(link, frame.id)
        try:
            relayed, now = decode_relay(frame.body), self._clock()
            asked = dispatch(relayed, self._coordinator, self._nodes(), now, place)
        except PeerError:
            self._answer(place, CLOSE_CONNECTION)
            return
        if isinstance(asked.response, Parts):
            self._steps.add(partial(self._step, place, asked.response))
        elif asked.response is not None:
            self._answer(place, self._encoded(asked.origin, asked.response))

    def _step(self, place: _Place, parts: Parts) -> bool:
        """A step of an answer in parts; returns whether more parts follow."""
        if place.link.closed:
            return False
        try:
            is_whole = parts.step()
            if parts.size > ANSWER_BYTES_MAX:
                self._answer(place, CLOSE_CONNECTION)
                return False
            if not is_whole:
                assert parts.pending is None, "the coordinator asks nobody"
                return True
            self._answer(place, parts.written().to_bytes())
            self._errors.add(parts.api.key, parts.errors)
        except PeerError:
            self._answer(place, CLOSE_CONNECTION)
        except StoreError as reason:
            self._start_over(reason)
        return False

    def _command(self, link: Link, frame: InternalFrame) -> None:
        answer = execute(frame.body, self._coordinator, self._clock())
        self._answers.append((link, encode_answer(frame.id, answer)))

    def _answer(self, place: _Place, body: bytes) -> None:
        self._answers.append((place.link, encode_frame(place.frame_id, KIND_KAFKA, body)))

    def _end_turn(self) -> None:
        now = self._clock()
        try:
            for each in self._with_work():
                if each.next_wake_ms() <= now.monotonic_ms:
                    each.tick(now)
            self._coordinator.store.commit()
        except StoreError as reason:
            self._start_over(reason)
            self._loop.call_later(RETRY_MS, lambda: None)
            return
        self._collect_answers()
        self._publish_changes()
        answers, self._answers = self._answers, []
        for link, frame in answers:
            link.send(frame)
        for order in self._coordinator.transactions.take_orders():
            self._errands.send(order, partial(self._ordered, order))
        self._set_alarm(now)

    def _ordered(self, order: Order, sent: Sent) -> None:
        """Handle a shard's answer to an order."""
        try:
            report(self._coordinator.transactions.endings, order, sent, self._clock())
        except StoreError as reason:
            self._start_over(reason)

    def _collect_answers(self) -> None:
        """Send the answers of groups and transactions as responses to the waiting requests."""
        for of_group in self._coordinator.groups.take_answers(GROUP_ANSWERS_A_TURN):
            self._waiting[_place_of(of_group.ticket).link].append(of_group)
        room = GROUP_BYTES_A_TURN
        for link, waiting in list(self._waiting.items()):
            while waiting and room > 0 and link.unsent_bytes < UNSENT_BYTES_MAX and not link.closed:
                of_group = waiting.popleft()
                room -= self._respond(of_group.ticket, of_group.answer)
            if not waiting or link.closed:
                del self._waiting[link]
        for ended in self._coordinator.transactions.take_answers():
            self._respond(ended.ticket, ended.answer)

    def _has_answers(self) -> bool:
        """Whether the next turn has answers to send; a link that takes some begins one too."""
        of_groups = any(link.unsent_bytes < UNSENT_BYTES_MAX for link in self._waiting)
        coordinator = self._coordinator
        return of_groups or coordinator.groups.has_answers or coordinator.transactions.has_answers

    def _respond(self, ticket: object, answer: object) -> int:
        """Answer a waiting request; returns with how many bytes."""
        assert isinstance(ticket, Ticket)
        origin = ticket.origin
        assert isinstance(origin, Origin)
        body = self._encoded(origin, ticket.respond(answer))
        self._answer(_place_of(ticket), body)
        return len(body)

    def _encoded(self, origin: Origin, response: Message) -> bytes:
        """Encode a response and count its errors."""
        key, version = origin.header.api_key, origin.header.api_version
        try:
            encoded = origin.encode(response)
        except PeerError:
            return CLOSE_CONNECTION
        self._errors.add(key, error_codes(key, version, response))
        return encoded

    def _publish_changes(self) -> None:
        topics = self._coordinator.topics
        if topics.changes != self._published_changes:
            self._published_changes = topics.changes
            self._publish(topics.catalog.encode())

    def _with_work(self) -> tuple[Groups, Transactions, Cleaning]:
        """Those that have work of their own."""
        coordinator = self._coordinator
        return coordinator.groups, coordinator.transactions, coordinator.cleaning

    def _set_alarm(self, now: Now) -> None:
        """Schedule a turn for the next due work of groups and transactions."""
        wake_ms = min(each.next_wake_ms() for each in self._with_work())
        if self._has_answers():
            wake_ms = now.monotonic_ms
        if self._alarm is not None and now.monotonic_ms < self._alarm_ms <= wake_ms:
            return  # It fires early enough, and then recomputes the due time.
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_ms = wake_ms
        self._alarm = self._loop.call_later(wake_ms - now.monotonic_ms, lambda: None)

    def _start_over(self, reason: StoreError) -> None:
        say_error(f"coordinator: {reason}; clients are asked to try again")
        self.close()
        self._answers.clear()
        self._waiting.clear()
        self._steps.clear()  # They refer to discarded state.
        self._coordinator.store.rollback()
        self._coordinator = self._build()
        self._published_changes = -1


def _place_of(ticket: object) -> _Place:
    assert isinstance(ticket, Ticket)
    assert isinstance(ticket.origin, Origin)
    assert isinstance(ticket.origin.place, _Place)
    return ticket.origin.place
