"""The coordinator's APIs without a process: requests and answers as bytes, a clock to turn."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from gateway.coordinator_context import Ticket
from gateway.coordinator_dispatch import Origin, dispatch
from gateway.parts import Parts
from smq.coordinator.transactions.orders import SyncOrder
from smq.model.catalog import Node
from smq.wire.codec import Writer
from smq.wire.generated.apis import API_BY_NAME
from smq.wire.headers import RequestHeader, read_response_header, write_request_header
from smq.wire.internal.frames import Relayed, WrittenPeer
from tests.coordinator.coordinator_driver import CoordinatorDriver

ASKER = WrittenPeer("User:ANONYMOUS", "10.0.0.9", "PLAINTEXT")
NODES = [Node(1, "one", 9092, 7), Node(2, "two", 9093, 8)]


def relayed(
    name: str, version: int, request: Any, node_id: int = 1, asker: WrittenPeer = ASKER
) -> Relayed:
    """A request as a shard relays it."""
    api = API_BY_NAME[name]
    writer = Writer()
    write_request_header(RequestHeader(api.key, version, 77, "client"), writer)
    api.write_request(request, version, writer)
    return Relayed(node_id, asker, memoryview(writer.to_bytes()))


def decoded(name: str, version: int, body: bytes) -> Any:
    """A response as a client reads it."""
    api = API_BY_NAME[name]
    correlation_id, at = read_response_header(body, 0, api.key, version)
    assert correlation_id == 77
    return api.read_response(body, at, version)


def finished(parts: Parts, known: Callable[[Any], Any] | None = None) -> Writer:
    """The answer that is made in parts; `known` finds out what one waits for."""
    while not parts.step():
        if parts.pending is not None:
            assert known is not None, "nobody is asked"
            parts.add(known(parts.pending))
    return parts.written()


class CoordinatorBench(CoordinatorDriver):
    """Asks, and collects the answers that come later by the number `ask` returned for them."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_deaf, self.asker = False, ASKER
        self.lost: set[int] = set()  # Partitions that may have lost records.
        self._places = count(1)
        self._answered: dict[int, Any] = {}

    def ask(self, name: str, version: int, request: Any, node_id: int = 1) -> Any:
        """The response; or a number, where the answer is to come later."""
        place = next(self._places)
        question = relayed(name, version, request, node_id, self.asker)
        asked = dispatch(question, self.coordinator, NODES, self.now, place)
        if isinstance(asked.response, Parts):
            return decoded(name, version, finished(asked.response).to_bytes())
        if asked.response is not None:
            return decoded(name, version, asked.origin.encode(asked.response))
        self._collect()
        return self._answered.pop(place, place)

    def answers(self) -> dict[int, Any]:
        """What has been answered since."""
        self._collect()
        answered, self._answered = self._answered, {}
        return answered

    def _collect(self) -> None:
        for of_group in self.coordinator.groups.take_answers():
            self._answer(of_group.ticket, of_group.answer)
        self._do_orders()
        for ended in self.coordinator.transactions.take_answers():
            self._answer(ended.ticket, ended.answer)

    def _do_orders(self) -> None:
        """The shards write what markers they are told to, unless they are deaf."""
        while not self.is_deaf and (orders := self.coordinator.transactions.take_orders()):
            for order in orders:
                endings = self.coordinator.transactions.endings
                if isinstance(order, SyncOrder):
                    endings.synced(order, self.lost, self.now)
                else:
                    endings.marked(order, order.numbers, self.now)

    def _answer(self, ticket: object, answer: object) -> None:
        assert isinstance(ticket, Ticket)
        origin = ticket.origin
        assert isinstance(origin, Origin)
        assert isinstance(origin.place, int)
        body = origin.encode(ticket.respond(answer))
        response = decoded(origin.api.name, origin.header.api_version, body)
        self._answered[origin.place] = response
