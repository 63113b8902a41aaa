"""Takes whole requests from a connection's received bytes.

take     all of a buffer's Produce requests in one kernel call, then what follows them
answer   one request of another kind: a fetch of records in the ring by a kernel, all else by
         its handler
"""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gateway.apis.table import API_BY_KEY
from gateway.context import Relay
from gateway.dispatch import Dispatched, dispatch
from gateway.quick_fetch import QuickFetch
from shm.kernels.base.wire import SIZE_BYTES
from shm.kernels.base.words import (
    STOP_FETCH_LEFT,
    STOP_MALFORMED,
    STOP_NEED_MORE,
    STOP_OTHER_API,
    STOP_PLAN_FULL,
)
from shm.kernels.request.fetch import FETCH_KEY
from shm.kernels.request.produce import VERSION_MAX, VERSION_MIN
from smq.app.process import clock
from smq.app.process.clock import monotonic_ms, monotonic_ns
from smq.app.shard.connections.connection import SHARE, Connection, Slot
from smq.app.shard.connections.limited import charge_time, identify, identify_by
from smq.app.shard.connections.receive import Buffer
from smq.app.shard.connections.request_times import PRODUCE_KEY, RequestTimes
from smq.app.shard.door.session import Session
from smq.app.shard.requests.replies import Replies
from smq.app.shard.requests.unfinished import UnfinishedRequests
from smq.app.shard.waiting.parked_fetches import Parked
from smq.model.errors import PeerError
from smq.shard.produce import Charge, Left, Produced, Producing, Refuse
from smq.shard.refusals import refuse_topics
from smq.shard.shard import Shard
from smq.wire.generated import apis
from smq.wire.headers import KEY_AND_VERSION, read_request_header

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_FOR_MEMBERS = {11, 14}  # JoinGroup and SyncGroup, which the coordinator answers.
_FETCH = FETCH_KEY.to_bytes(2)
_OTHERS = {STOP_OTHER_API, STOP_FETCH_LEFT}
_WRONG = {STOP_OTHER_API: "a request is no Produce of a version that we know"}


class Requests:
    """The requests of one shard's clients.

    renews  whether a SaslHandshake begins a login, which is taken elsewhere (Logins)
    """

    def __init__(  # noqa: PLR0913, PLR0917  (each is a part of the server)
        self,
        shard: Shard,
        producing: Producing,
        quick_fetch: QuickFetch,
        replies: Replies,
        unfinished: UnfinishedRequests,
        times: RequestTimes,
    ) -> None:
        self._shard, self._producing, self._quick_fetch = shard, producing, quick_fetch
        self._replies, self._unfinished, self._times = replies, unfinished, times
        self.renews: Callable[[Connection], bool] = lambda _: False

    def take(self, connection: Connection, buffer: Buffer) -> None:
        """Handle every whole request in a buffer, until the connection is full."""
        directory, now, connection.spent = self._shard.directory, clock.now(), 0
        while buffer.start < buffer.end and not (
            connection.closed or connection.is_closing or connection.is_full or connection.login
        ):
            begun_ns = 0
            if connection.is_limited:
                identify_by(connection, buffer, self._shard.quotas)
                begun_ns = monotonic_ns()
            start = buffer.start
            charge = self._charging(connection, start)
            self._producing.listener = connection.caller.rights.peer.listener
            produced = self._producing.run(
                buffer.array, start, buffer.end, directory, now, charge, self._refusing(connection)
            )
            self.go_on(connection, buffer, produced, now.monotonic_ms)
            if begun_ns and buffer.start > start:  # Nothing is charged before a request is whole.
                charge_time(connection, monotonic_ns() - begun_ns, now.monotonic_ms)
            if produced.stop == STOP_NEED_MORE:
                break
            if produced.stop == STOP_PLAN_FULL:
                connection.spent = SHARE  # A plan takes milliseconds.
            connection.end_share()

    def go_on(
        self, connection: Connection, buffer: Buffer, produced: Produced, now_ms: int
    ) -> None:
        """Handle a kernel's results for a buffer's Produce requests, and what stopped it."""
        if produced.answers:
            self._replies.acks.queue(connection, bytes(produced.answers), produced.marks)
        left, buffer.start = produced.left, produced.consumed_to
        if left is not None and not produced.close:
            self._unfinished.go_on(connection, buffer.give(left.start, left.end), left)
        is_flood = produced.refused and connection.patience.ends(produced.refused, now_ms)
        if produced.close or produced.stop == STOP_MALFORMED or is_flood:
            connection.close_after_answers()
        elif produced.stop in _OTHERS:
            self.take_other(connection, buffer, is_left=produced.stop == STOP_FETCH_LEFT)

    def take_other(self, connection: Connection, buffer: Buffer, *, is_left: bool = False) -> None:
        """Handle the next request, which the kernels leave: a transactional Produce, or one of
        another API. `is_left`: a Fetch that its kernel has looked at."""
        start = buffer.start + SIZE_BYTES
        key, version = KEY_AND_VERSION.unpack_from(buffer.array.data, start)
        if key == PRODUCE_KEY and VERSION_MIN <= version <= VERSION_MAX:
            self._take_transactional(connection, buffer)
        elif key == apis.SASL_HANDSHAKE.key and self.renews(connection):
            return
        elif connection.acks_due:
            connection.is_held = True  # It must see records acknowledged before it.
        else:
            buffer.start = end = buffer.start + buffer.wanted_bytes()
            self.answer(connection, buffer.array, start, end, is_left=is_left)
            connection.charge(end - start)

    def _take_transactional(self, connection: Connection, buffer: Buffer) -> None:
        start, end = buffer.start, buffer.start + buffer.wanted_bytes()
        buffer.start = end
        throttle_ms = self._charge(connection, end - start)
        try:
            self._unfinished.take_transactional(connection, buffer.array[start:end], throttle_ms)
        except PeerError:
            connection.close_after_answers()
            return
        connection.charge(end - start)

    def _refusing(self, connection: Connection) -> Refuse | None:
        """What marks the batches that a client may not append; None: it may append all."""
        rights = connection.caller.rights
        if rights.is_unlimited:
            return None
        return partial(refuse_topics, shard=self._shard, rights=rights)

    def _charging(self, client: Connection | Session, start: int) -> Charge | None:
        """What charges a client for its Produce requests from `start` on; None: they are free."""
        has_quota = isinstance(client, Connection) and client.limits is not None
        if not has_quota and not self._shard.throttle.is_on:
            return None
        return lambda end: self._charge(client, end - start)

    def _charge(
        self, client: Connection | Session, size: int, appended_bytes: int | None = None
    ) -> int:
        """Charge a client for Produce requests of this many bytes: its quota, and WAL space while
        that is short. It is throttled for as long as this returns, in ms.

        `appended_bytes` is what goes to the WAL of converted requests.
        """
        now_ms, delay_ms, throttle = monotonic_ms(), 0, self._shard.throttle
        space = size if appended_bytes is None else appended_bytes
        if size and isinstance(client, Connection) and client.limits is not None:
            delay_ms = client.limits.produced(size, now_ms)
        if space and throttle.is_on:
            delay_ms = max(delay_ms, throttle.charge(space, now_ms))
        client.throttle(delay_ms)
        return delay_ms

    def answer(
        self,
        connection: Connection,
        data: np.ndarray,
        start: int,
        end: int,
        *,
        is_left: bool = False,
    ) -> None:
        """Handle the request (without its size) in data[start:end].

        `is_left`: it is a Fetch that its kernel has left.
        """
        request, slot, began_ns = data.data[start:end], Slot(is_open=False), monotonic_ns()
        try:
            caller, found = connection.caller, None
            if not is_left and request[:2] == _FETCH:
                found = self._quick_fetch.run(data, start, end, caller, slot.loan)
            if found is None:
                now = clock.now()
                dispatched = dispatch(request, self._shard, now, caller, slot.loan)
            else:
                header, _ = read_request_header(request, 0)
                dispatched = Dispatched(API_BY_KEY[FETCH_KEY], header, found)
        except PeerError:
            connection.close_after_answers()
            return
        self.carry(connection, slot, request, dispatched, began_ns)

    def take_over(self, connection: Connection, parked: Parked) -> None:
        """Have a fetch wait here that has waited in the kernel's table."""
        try:
            header, _ = read_request_header(parked.request.data, 0)
        except PeerError:  # The kernel does not look at the client's name.
            connection.close_after_answers()
            return
        slot = Slot(is_open=False)
        wait = self._quick_fetch.resume(
            parked.request, parked.slots, parked.due_ns, connection.caller, slot.loan
        )
        dispatched = Dispatched(API_BY_KEY[FETCH_KEY], header, wait)
        self.carry(connection, slot, parked.request.data, dispatched, monotonic_ns())

    def carry(
        self,
        connection: Connection,
        slot: Slot,
        request: memoryview,
        dispatched: Dispatched,
        began_ns: int,
    ) -> None:
        """Carry the result of a request to its slot."""
        header, result = dispatched.header, dispatched.result
        identify(connection, header.client_id, self._shard.quotas)
        connection.slots.append(slot)
        client = f"{connection.caller.host} {header.client_id or ''}".rstrip()
        slot.timing = self._times.begin(
            header.api_key, header.api_version, began_ns, len(request) + SIZE_BYTES, client
        )
        slot.timing.handled()
        if isinstance(result, Relay):
            slot.timing.is_patient = header.api_key in WAIT_FOR_MEMBERS
            self._replies.answering.relay(connection, slot, request)
        else:
            self._replies.answering.settle(connection, slot, dispatched, result)

    def produce(
        self, session: Session, data: np.ndarray, end: int, first: Produced | None = None
    ) -> str:
        """Take the whole requests in data[:end]; returns "" or their error.

        `first` is their result so far.
        """
        shard, now = self._shard, clock.now()
        self._producing.listener = ""
        produced = first or self._producing.run(
            data, 0, end, shard.directory, now, self._charging(session, 0)
        )
        while not (wrong := self._produced(session, produced, now.monotonic_ms)):
            start = produced.consumed_to
            if produced.left is not None:
                self._leave(session, data[produced.left.start : end].copy(), produced.left)
                end = start  # The rest is taken later.
            if start == end:
                break
            if produced.stop != STOP_PLAN_FULL:
                return _WRONG.get(produced.stop, "a request is malformed")
            produced = self._producing.run(
                data, start, end, shard.directory, now, self._charging(session, start)
            )
        return wrong

    def _produced(self, session: Session, produced: Produced, now_ms: int) -> str:
        """Queue a session's answers; returns "" or why it is to be dropped."""
        if produced.answers:
            self._replies.acks.queue(session, bytes(produced.answers), produced.marks)
            self._replies.touch(session)
        if produced.close:
            return "a request that wants no answer has failed"
        if produced.refused and session.patience.ends(produced.refused, now_ms):
            return "it floods the broker with handles to missing payloads"
        return ""

    def _leave(self, session: Session, data: np.ndarray, left: Left) -> None:
        """Finish a request in steps, then take the whole ones behind it."""
        size = left.end - left.start
        rest = data[size:]

        def go_on() -> None:
            wrong = self.produce(session, rest, len(rest)) if len(rest) else ""
            if wrong and not session.closed:
                session.drop(wrong)

        self._unfinished.go_on(session, data[:size], left, go_on)
