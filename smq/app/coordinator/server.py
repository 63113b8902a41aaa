"""The coordinator's loop: links in, one commit a turn, then catalog and answers out.

    a turn      links bring requests and commands -> state and the store's transaction change
    its end     due work -> commit -> catalog published -> orders to shards, then answers sent

This order ensures that a client with an answer sees its effect, and that a death at any moment
loses nothing that was answered. An order to write markers goes before the answer to its EndTxn,
over the same link (`errands`); what comes too early for the next transaction is handled later
(smq.coordinator.transactions.waiting). A write to a link never blocks (smq.app.process.link): the
server drops a hanging process that falls too far behind.

If the store fails (a full disk), nothing of the turn has been answered: the server closes every
link, so that clients retry, and rebuilds the state from the last commit. If only the sync failed,
that commit is visible and not durable: nothing is published or answered until a later one succeeds.
"""

import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

from gateway.coordinator_context import Message, Ticket
from gateway.coordinator_dispatch import Origin, awaited_end, dispatch
from gateway.error_codes import error_codes
from gateway.parts import Parts
from shm.timings import Errors
from smq.app.coordinator.errands import Errands, report, report_move
from smq.app.coordinator.outlet import Outlet
from smq.app.process.audit_files import NOWHERE, AuditLog
from smq.app.process.epochs import EpochDraws
from smq.app.process.link import Link
from smq.app.process.loop import Loop, Timer
from smq.app.process.steps import Steps
from smq.coordinator.cleaning import Cleaning
from smq.coordinator.commands import execute
from smq.coordinator.coordinator import Coordinator
from smq.coordinator.groups import Groups
from smq.coordinator.moves import DrawOrder, Moves
from smq.coordinator.offsets import CommittedOffsets
from smq.coordinator.transactions.transactions import Transactions
from smq.coordinator.transactions.waiting import EarlyRequests, StillEnding
from smq.model.catalog import Node
from smq.model.errors import PeerError, StoreError
from smq.model.now import Now
from smq.model.printable import say_error
from smq.security.audit import Event, line_of
from smq.wire.internal.form import encode_answer
from smq.wire.internal.frames import (
    ACCEPTOR_IDS_FROM,
    KIND_KAFKA,
    InternalFrame,
    decode_relay,
    frame_pieces,
)
from smq.wire.internal.messages import FollowRights

A = TypeVar("A")
MiB = 1024 * 1024
# Answers to members after a group's decision. Each costs some microseconds to write and send: a
# group of thousands is answered over several turns, with other requests in between.
GROUP_ANSWERS_A_TURN = 250
# A larger answer would not fit a frame, and costs its client the connection, as it would the shard.
ANSWER_BYTES_MAX = 100 * MiB
RETRY_MS = 1000  # After a failed commit: what it left is published once it is durable.
CLOSE_CONNECTION = b""  # The answer that makes a shard close its client's connection.


class Around(NamedTuple):
    """A coordinator's surroundings: nodes, where the catalog and users with their rules are
    published, time, shards' sockets, where errors are counted, the audit log, and where epochs are
    drawn."""

    nodes: Callable[[str], list[Node]]
    publish: Callable[[bytes], object]
    publish_access: Callable[[bytes], object]
    clock: Callable[[], Now]
    shard_path: Callable[[int], Path]
    errors: Errors
    audit_log: AuditLog = NOWHERE
    epochs: socket.socket | None = None


class _Place(NamedTuple):
    """Where an answer goes: to a process, for one of its frames."""

    outlet: Outlet
    frame_id: int


class CoordinatorServer:
    """Serves links with one coordinator, which `build` creates from the committed state."""

    def __init__(self, loop: Loop, build: Callable[[], Coordinator], around: Around) -> None:
        self._loop, self._build = loop, build
        self._nodes, self._clock = around.nodes, around.clock
        self._publish, self._publish_access = around.publish, around.publish_access
        self._errands, self._errors = Errands(loop, around.shard_path), around.errors
        self._audit_log, self._epochs = around.audit_log, EpochDraws(loop, around.epochs)
        self._outlets: dict[Link, Outlet] = {}
        self._steps, self._waiting = Steps(loop), EarlyRequests()
        self._told_acts_count = 0  # In this turn.
        self._alarm: Timer | None = None
        self._alarm_ms = 0
        self._coordinator = self._build()
        self._audit = self._coordinator.access.audit
        for problem in self._coordinator.problems:
            say_error(f"coordinator: {problem}")
        self._published_changes = self._published_access = -1
        loop.turn_ends.append(self._end_turn)

    def invariants(self) -> None:
        """Assert the invariants between any two turns."""
        self._waiting.invariants()

    def accepted(self, sock: socket.socket, _address: str, *, may_relay: bool = True) -> None:
        """Serve a connection from one of our processes: which also relays requests of clients, and
        says whose they are, or only asks for itself."""
        link = Link(self._loop, sock, self._frame, self._closed)
        self._outlets[link] = Outlet(link, may_relay=may_relay)

    def _closed(self, link: Link) -> None:
        self._outlets.pop(link).drop()
        self._errands.gone(link)

    def close(self) -> None:
        """Close every link: waiting shards learn that no answer will come."""
        self._errands.close()
        for link, outlet in self._outlets.items():
            link.close()
            outlet.drop()
        self._outlets.clear()

    def _frame(self, link: Link, frame: InternalFrame) -> None:
        outlet = self._outlets[link]
        if frame.id >= ACCEPTOR_IDS_FROM:
            self._errands.answered(link, frame)
            return
        outlet.do(partial(self._handle, outlet, frame, may_wait=True))

    def _handle(self, outlet: Outlet, frame: InternalFrame, *, may_wait: bool) -> None:
        try:
            if frame.kind == KIND_KAFKA:
                self._kafka(outlet, frame, may_wait=may_wait)
            else:
                self._command(outlet, frame, may_wait=may_wait)
        except StoreError as reason:
            self._start_over(reason)

    def _wait(self, outlet: Outlet, frame: InternalFrame, ending: StillEnding) -> bool:
        """Handle a frame once a transaction has ended, or later without waiting. False: now."""
        work = partial(self._handle, outlet, frame, may_wait=False)
        size = len(frame.first) + sum(map(len, frame.rest))
        return self._waiting.add(ending, partial(outlet.do, work), size, self._clock())

    def _release(self, now: Now) -> None:
        """Handle frames that have waited for what is complete now, or for long enough."""
        for transactional_id in self._coordinator.transactions.take_completed():
            self._waiting.ended(transactional_id)
        for again in self._waiting.take(now):
            again()

    def _kafka(self, outlet: Outlet, frame: InternalFrame, *, may_wait: bool) -> None:
        place = _Place(outlet, frame.id)
        if not outlet.may_relay:
            self._answer(place, CLOSE_CONNECTION)
            return
        try:
            relayed, now = decode_relay(frame.body), self._clock()
            self._errands.came(relayed.node_id, outlet)
            ending = awaited_end(relayed, self._coordinator) if may_wait else None
            if ending is not None and self._wait(outlet, frame, ending):
                return
            nodes = self._nodes(relayed.asker.listener)
            asked = dispatch(relayed, self._coordinator, nodes, now, place)
        except PeerError:
            self._answer(place, CLOSE_CONNECTION)
            return
        if isinstance(asked.response, Parts):
            self._steps.add(partial(self._step, place, asked.response))
        elif asked.response is not None:
            self._answer(place, self._encoded(asked.origin, asked.response))

    def _step(self, place: _Place, parts: Parts) -> bool:
        """A step of an answer in parts; returns whether more parts follow."""
        outlet, step = place.outlet, partial(self._step, place, parts)
        if outlet.link.closed:
            return False
        if not outlet.may_grow(parts):
            outlet.hold(parts, partial(self._steps.add, step))
            return False
        try:
            is_whole = parts.step()
            outlet.grown(parts)
            if not is_whole and parts.size <= ANSWER_BYTES_MAX:
                assert parts.pending is None, "the coordinator asks nobody"
                return True
            outlet.ended(parts)
            if parts.size > ANSWER_BYTES_MAX:
                self._answer(place, CLOSE_CONNECTION)
                return False
            pieces = cast("list[bytes]", parts.written().pieces())  # It lends nothing.
            self._answer(place, *pieces)
            self._errors.add(parts.api.key, parts.errors)
        except PeerError:
            outlet.ended(parts)
            self._answer(place, CLOSE_CONNECTION)
        except StoreError as reason:
            self._start_over(reason)
        return False

    def _command(self, outlet: Outlet, frame: InternalFrame, *, may_wait: bool) -> None:
        now = self._clock()
        answer = execute(frame.body, self._coordinator, now, may_wait=may_wait)
        if isinstance(answer, StillEnding):
            if self._wait(outlet, frame, answer):
                return
            answer = execute(frame.body, self._coordinator, now)
        outlet.put(encode_answer(frame.id, answer))

    @staticmethod
    def _answer(place: _Place, *body: bytes) -> None:
        place.outlet.put(*frame_pieces(place.frame_id, KIND_KAFKA, body))

    def _end_turn(self) -> None:
        for outlet in list(self._outlets.values()):
            outlet.go_on()
        now = self._clock()
        try:
            for each in self._with_work():
                if each.next_wake_ms() <= now.monotonic_ms:
                    each.tick(now)
            self._release(now)
            self._tell_acts()  # A death from here on leaves no act without its line.
            self._coordinator.store.commit()
        except StoreError as reason:
            self._start_over(reason)
            self._loop.call_later(RETRY_MS, lambda: None)
            return
        self._told_acts_count = 0
        if accesses := self._audit.take_accesses(now):
            self._audit_log.tell_accesses(accesses)
        self._publish_changes()
        self._give_orders()
        self._collect_answers()
        for outlet in list(self._outlets.values()):
            outlet.send()
        self._set_alarm(now)

    def _tell_acts(self) -> None:
        if acts := self._audit.take_acts():
            self._told_acts_count += len(acts)
            self._audit_log.tell_acts(acts)

    def _tell_unsure(self) -> None:
        """Acts of a turn that failed had no line yet, or one that says more than is known."""
        self._audit.take_acts()
        if self._told_acts_count:
            event = Event(
                "unsure", detail="these last acts may have had no effect: the store failed"
            )
            line = line_of(event, self._clock().wall_ms, self._told_acts_count)
            self._told_acts_count = 0
            self._audit_log.tell_acts([line])

    def _give_orders(self) -> None:
        """Give the orders whose grounds are durable and published."""
        endings, moves = self._coordinator.transactions.endings, self._coordinator.moves
        for order in self._coordinator.transactions.take_orders():
            self._errands.send(order, self._reporting(partial(report, endings, order)))
        for step in moves.take_orders():
            if isinstance(step, DrawOrder):
                self._epochs.draw(self._reporting(partial(moves.drawn, step)))
            else:
                reported = self._reporting(partial(report_move, moves, step))
                self._errands.ask(step.node, step.question, reported)

    def _reporting(self, report_to: Callable[[A, Now], object]) -> Callable[[A], None]:
        """What handles the answer to an order."""

        def handle(answer: A) -> None:
            try:
                report_to(answer, self._clock())
            except StoreError as reason:
                self._start_over(reason)

        return handle

    def _collect_answers(self) -> None:
        """Send the answers of groups and transactions as responses to the waiting requests."""
        for of_group in self._coordinator.groups.take_answers(GROUP_ANSWERS_A_TURN):
            respond = partial(self._respond, of_group.ticket, of_group.answer)
            _place_of(of_group.ticket).outlet.do(respond)
        for ended in self._coordinator.transactions.take_answers():
            self._respond(ended.ticket, ended.answer)

    def _has_answers(self) -> bool:
        """Whether the next turn has answers to send; a link that takes some begins one too."""
        has_work = any(outlet.has_work for outlet in self._outlets.values())
        coordinator = self._coordinator
        return has_work or coordinator.groups.has_answers or coordinator.transactions.has_answers

    def _respond(self, ticket: object, answer: object) -> None:
        """Answer a waiting request."""
        assert isinstance(ticket, Ticket)
        origin = ticket.origin
        assert isinstance(origin, Origin)
        self._answer(_place_of(ticket), self._encoded(origin, ticket.respond(answer)))

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
        access, topics = self._coordinator.access, self._coordinator.topics
        if access.changes != self._published_access:  # First: a shard serves once it has a catalog.
            # A coordinator before this one may have committed a change, and told nobody.
            is_news = self._published_access >= 0 or not access.is_empty
            self._published_access = access.changes
            self._publish_access(access.publication())
            for node in self._coordinator.config.node_ids if is_news else ():
                self._errands.ask(node, FollowRights(), lambda _: None)
        if topics.changes != self._published_changes:
            self._coordinator.take_freed_room()
            self._published_changes = topics.changes
            self._publish(topics.catalog.encode())

    def _with_work(self) -> tuple[Groups, CommittedOffsets, Transactions, Moves, Cleaning]:
        """Those that have work of their own."""
        of = self._coordinator
        return of.groups, of.offsets, of.transactions, of.moves, of.cleaning

    def _set_alarm(self, now: Now) -> None:
        """Schedule a turn for the next due work of groups, transactions and moves."""
        wake_ms = min(each.next_wake_ms() for each in (*self._with_work(), self._waiting))
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
        self._steps.clear()  # They refer to discarded state.
        self._epochs.forget()
        self._waiting = EarlyRequests()
        self._coordinator.store.rollback()
        self._tell_unsure()
        self._coordinator = self._build()
        self._coordinator.access.audit = self._audit
        self._published_changes = self._published_access = -1


def _place_of(ticket: object) -> _Place:
    assert isinstance(ticket, Ticket)
    assert isinstance(ticket.origin, Origin)
    assert isinstance(ticket.origin.place, _Place)
    return ticket.origin.place
