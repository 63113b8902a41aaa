"""Fills the slots of requests with handlers' results, at once or when these are known."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.context import Ask, Later, Message, Relay, Result, Step, Wait
from gateway.dispatch import Dispatched, encode
from gateway.error_codes import error_codes
from gateway.parts import Parts
from shm.kernels.base.wire import SIZE_BYTES
from shm.timings import Errors
from smq.app.process.clock import monotonic_ms, monotonic_ns
from smq.app.process.peers import Peers
from smq.app.process.steps import Steps
from smq.app.shard.connections.connection import RELAYED_BYTES_MAX, Connection, Slot
from smq.app.shard.connections.large_answers import LargeAnswers
from smq.app.shard.connections.limited import obey, settled
from smq.app.shard.waiting.long_polls import LongPolls
from smq.log.reading import DamagedFrame
from smq.model.errors import PeerError
from smq.wire.codec import Buffer
from smq.wire.generated import apis
from smq.wire.headers import KEY_AND_VERSION
from smq.wire.internal.frames import WrittenPeer

if TYPE_CHECKING:
    from smq.app.shard.door.session import Session

# The coordinator's answers to these are about as large as the requests. Any other answer may have
# megabytes, held in memory while the client does not read, or waits for a transaction's end, and
# later requests must not overtake it: a connection waits for one at a time.
SMALL_ANSWERS = {
    each.key
    for each in (
        apis.OFFSET_COMMIT,
        apis.FIND_COORDINATOR,
        apis.HEARTBEAT,
        apis.LEAVE_GROUP,
        apis.INIT_PRODUCER_ID,
        apis.END_TXN,
    )
}


class Answering:
    """The answers of one shard.

    peers    asks the coordinator and the sealer
    polls    the requests that wait for records
    errors   counts the error codes in answers of this shard, not in relayed ones
    dirty    clients whose slots have changed in this turn, in the order of sending
    """

    def __init__(self, peers: Peers, polls: LongPolls, steps: Steps, errors: Errors) -> None:
        self._peers, self._polls, self._steps, self.errors = peers, polls, steps, errors
        self._large = LargeAnswers()
        self.dirty: dict[Connection | Session, None] = {}

    def settle(
        self, connection: Connection, slot: Slot, dispatched: Dispatched, result: Result | Parts
    ) -> None:
        """Fill the slot with a handler's result, at once or when it is known."""
        result = self._found_out(result, partial(self.settle, connection, slot, dispatched))
        if result is None:
            return
        if isinstance(result, Wait):
            self._wait(connection, slot, result, partial(self.settle, connection, slot, dispatched))
        elif isinstance(result, Parts):
            connection.working += 1
            self._steps.add(partial(self._step, connection, slot, result))
        else:
            self._answer(connection, slot, dispatched, result)

    def _answer(
        self, connection: Connection, slot: Slot, dispatched: Dispatched, response: Message
    ) -> None:
        header = dispatched.header
        if isinstance(response, list):
            if not connection.closed:
                slot.fill(settled(connection, header, response, monotonic_ms()))
                self.dirty[connection] = None
            return
        if connection.closed:
            slot.release()
            return
        owed_ms = connection.owed_ms() if connection.limits is not None else 0
        if owed_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = max(response.throttle_time_ms, owed_ms)
        try:
            pieces: Any = encode(dispatched.api, header, response)
            slot.fill(settled(connection, header, pieces, monotonic_ms()))
        except (PeerError, DamagedFrame, OSError):
            connection.close()
            return
        key, version = header.api_key, header.api_version
        self.errors.add(key, error_codes(key, version, response))
        self.dirty[connection] = None

    def relay(self, connection: Connection, slot: Slot, request: Buffer) -> None:
        """Have the coordinator answer."""
        key, version = KEY_AND_VERSION.unpack_from(request)
        size = len(request) if key in SMALL_ANSWERS else max(len(request), RELAYED_BYTES_MAX)
        connection.relayed_count += 1
        connection.relayed_bytes += size

        def answered(first: bytes, *rest: bytes) -> None:
            connection.relayed_count -= 1
            connection.relayed_bytes -= size
            assert connection.relayed_count >= 0
            assert connection.relayed_bytes >= 0
            if connection.closed:
                return
            if not first:
                connection.close()
                return
            obey(connection, key, version, first)
            length = len(first) + sum(map(len, rest))
            slot.fill([length.to_bytes(SIZE_BYTES), first, *rest])
            self._large.note(connection, length)
            self.dirty[connection] = None

        peer = connection.caller.rights.peer
        asker = WrittenPeer(str(peer.principal), connection.caller.host, peer.listener)
        self._peers.relay(asker, request, answered)

    def _step(self, connection: Connection, slot: Slot, parts: Parts) -> bool:
        """Take one step of an answer in parts; returns whether to take another at once."""
        if connection.closed:
            self._give_up(connection, slot)
            return False
        try:
            if parts.step():
                pieces: Any = parts.written().framed()
                slot.fill(settled(connection, parts.header, pieces, monotonic_ms()))
                connection.working -= 1
                self._large.note(connection, slot.length)
                self.errors.add(parts.api.key, parts.errors)
                self.dirty[connection] = None
                return False
        except (PeerError, DamagedFrame, OSError):
            self._give_up(connection, slot)
            return False
        if parts.pending is None:
            return True
        if isinstance(parts.pending, Relay):
            connection.working -= 1
            self.relay(connection, slot, parts.request)
        elif isinstance(parts.pending, Wait):
            self._pause(connection, slot, parts, parts.pending)
        else:
            self._add(connection, slot, parts, parts.pending)
        return False  # It continues when the pending work is done.

    def _pause(self, connection: Connection, slot: Slot, parts: Parts, wait: Wait) -> None:
        """Continue when there may be enough records."""
        connection.working -= 1  # Keep reading: otherwise a disconnect would go unnoticed.
        connection.relayed_bytes += len(parts.request)
        self.dirty[connection] = None

        def go_on(result: Message | Ask | Step) -> None:
            connection.working += 1
            connection.relayed_bytes -= len(parts.request)
            self._add(connection, slot, parts, result)

        self._wait(connection, slot, wait, go_on)

    def _add(
        self, connection: Connection, slot: Slot, parts: Parts, result: Message | Ask | Step
    ) -> None:
        """Add what has arrived, or request the next."""
        result = self._found_out(result, partial(self._add, connection, slot, parts))
        if result is None:
            return
        if connection.closed:
            self._give_up(connection, slot)
            return
        try:
            parts.add(result)
        except PeerError:
            self._give_up(connection, slot)
            return
        self._steps.add(partial(self._step, connection, slot, parts))

    def _give_up(self, connection: Connection, slot: Slot) -> None:
        """Make no answer; close once earlier requests are answered."""
        slot.release()
        if connection.closed:
            return
        connection.working -= 1
        if connection.slots[-1] is not slot:  # More requests arrived while this one waited.
            connection.close()
            return
        connection.slots.pop()
        connection.close_after_answers()
        self.dirty[connection] = None

    def _found_out(self, result: Result | Parts, settle: Callable[[Any], None]) -> Any:  # noqa: ANN401
        """The final result; None: questions are open, and `settle` will get the result."""
        while isinstance(result, Ask):  # One may lead to the next, many times.
            answers = self._ask(result, settle)
            if answers is None:
                return None
            result = result.then(answers)
        return result

    def _ask(self, ask: Ask, settle: Callable[[Any], None]) -> list[Any] | None:
        """Ask; returns the answers if all came at once. Otherwise `settle` is called with the
        result when the last one comes."""
        answers: list[Any] = [None] * len(ask.questions)
        missing, is_asking = len(ask.questions), True
        assert missing, "an Ask has at least one question"

        def answered(index: int, answer: Any) -> None:  # noqa: ANN401  (as asked)
            nonlocal missing
            answers[index] = answer
            missing -= 1
            assert missing >= 0, "a question is answered once"
            if not missing and not is_asking:
                settle(ask.then(answers))

        for index, question in enumerate(ask.questions):
            if isinstance(question, Later):
                question.begin(partial(answered, index))
            else:
                self._peers.ask_sealer(question, partial(answered, index))
        is_asking = False
        return None if missing else answers

    def _wait(
        self,
        connection: Connection,
        slot: Slot,
        wait: Wait,
        settle: Callable[[Message | Ask | Step], None],
    ) -> None:
        """Settle when there are enough records or the deadline has passed, which may be now."""
        if slot.timing is not None:
            slot.timing.is_patient = True  # At the client's wish: it does not count as slow.
        now_ns = monotonic_ns()
        wait.due_ns = wait.due_ns or now_ns + wait.timeout_ms * 1_000_000
        if wait.has_moved or now_ns >= wait.due_ns:
            found = wait.attempt(is_last=now_ns >= wait.due_ns)
            assert found is not None, "the last attempt always has a result"
            settle(found)
            return

        def done(result: Message | Ask | Step) -> None:
            connection.polls.discard(poll)
            settle(result)

        poll = self._polls.add(wait, done)
        connection.polls.add(poll)
