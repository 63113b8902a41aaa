"""A ticket: an answer that comes later finds its way."""

from gateway.coordinator_context import CoordinatorContext
from smq.security.principals import Peer
from smq.security.rights import Rights
from smq.wire.headers import RequestHeader
from tests.gateway.coordinator_bench import NODES, CoordinatorBench

PEER = Peer(host="10.0.0.9")


def test_a_ticket_remembers_who_asked_and_how_to_answer(bench: CoordinatorBench) -> None:
    header = RequestHeader(11, 9, 77, "client")
    context = CoordinatorContext(
        header, Rights(None, PEER), 1, NODES, bench.coordinator, bench.now, "somebody"
    )
    ticket = context.ticket(str.upper)
    assert context.version == 9
    assert context.client_host == "10.0.0.9"
    assert (ticket.origin, ticket.respond("joined")) == ("somebody", "JOINED")
