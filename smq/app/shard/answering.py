"""How the results of requests come to the slots of those who asked: now, or when they are known."""

from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.apis.fetch import lent_of
from gateway.context import Ask, Later, Message, Result, Wait
from gateway.dispatch import Dispatched, encode
from shm.kernels.base.wire import SIZE_BYTES
from smq.app.process.peers import Peers
from smq.app.shard.connection import Connection, Slot
from smq.app.shard.long_polls import LongPolls
from smq.log.reading import DamagedFrame
from smq.model.errors import PeerError

if TYPE_CHECKING:
    from smq.app.shard.session import Session


class Answering:
    """Of one shard. `peers` reaches coordinator and sealer; `polls` are the requests that wait.

    dirty   whose slots have changed in this turn, in the order they are sent to
    """

    def __init__(self, peers: Peers, polls: LongPolls) -> None:
        self._peers, self._polls = peers, polls
        self.dirty: dict[Connection | Session, None] = {}

    def settle(
        self, connection: Connection, slot: Slot, dispatched: Dispatched, result: Result
    ) -> None:
        """Carry a handler's result to the slot, now or when it is known."""
        while isinstance(result, Ask):  # One may lead to the next, many times.
            answers = self._ask(connection, slot, dispatched, result)
            if answers is None:
                return
            result = result.then(answers)
        if isinstance(result, Wait):
            self.wait(connection, slot, dispatched, result)
        else:
            self._answer(connection, slot, dispatched, result)

    def _answer(
        self, connection: Connection, slot: Slot, dispatched: Dispatched, response: Message
    ) -> None:
        if isinstance(response, list):
            if not connection.closed:
                slot.fill(response)
                self.dirty[connection] = None
            return
        if connection.closed:
            _let_go(dispatched, response)
            return
        try:
            slot.fill(encode(dispatched.api, dispatched.header, response))  # type: ignore[arg-type]
        except (PeerError, DamagedFrame, OSError):
            _let_go(dispatched, response)
            connection.close()
            return
        self.dirty[connection] = None

    def relay(self, connection: Connection, slot: Slot, request: memoryview) -> None:
        """Have the coordinator answer."""

        def answered(response: bytes) -> None:
            if connection.closed:
                return
            if not response:
                connection.close()
                return
            slot.fill([len(response).to_bytes(SIZE_BYTES), response])
            self.dirty[connection] = None

        self._peers.relay(connection.host, request, answered)

    def _ask(
        self, connection: Connection, slot: Slot, dispatched: Dispatched, ask: Ask
    ) -> list[Any] | None:
        """The answers, if all of them came at once; else the slot is settled with the last one."""
        answers: list[Any] = [None] * len(ask.commands)
        missing, is_asking = len(ask.commands), True
        assert missing, "who asks for nothing is answered by nobody"

        def answered(index: int, answer: Any) -> None:  # noqa: ANN401  (JSON)
            nonlocal missing
            answers[index] = answer
            missing -= 1
            assert missing >= 0, "each is answered once"
            if not missing and not is_asking:
                self.settle(connection, slot, dispatched, ask.then(answers))

        for index, command in enumerate(ask.commands):
            if isinstance(command, Later):
                command.begin(partial(answered, index))
            else:
                self._peers.ask_sealer(command, partial(answered, index))
        is_asking = False
        return None if missing else answers

    def wait(self, connection: Connection, slot: Slot, dispatched: Dispatched, wait: Wait) -> None:
        """Answer when there is enough to read."""

        def settle(result: Message | Ask) -> None:
            connection.polls.discard(poll)
            self.settle(connection, slot, dispatched, result)

        poll = self._polls.add(wait, settle)
        connection.polls.add(poll)


def _let_go(dispatched: Dispatched, response: Message) -> None:
    """Nobody gets the response: what it lends may be recycled."""
    if dispatched.api.name == "Fetch":
        for lent in lent_of(response):
            lent.release()
