"""A ticket: an answer that comes later finds its way."""

from gateway.coordinator_context import CoordinatorContext
from smq.wire.headers import RequestHeader
from tests.gateway.coordinator_bench import NODES, CoordinatorBench


def test_a_ticket_remembers_who_asked_and_how_to_answer(bench: CoordinatorBench) -> None:
    header = RequestHeader(11, 9, 77, "client")
    context = CoordinatorContext(
        header, "10.0.0.9", 1, NODES, bench.coordinator, bench.now, "somebody"
    )
    ticket = context.ticket(str.upper)
    assert context.version == 9
    assert (ticket.origin, ticket.respond("joined")) == ("somebody", "JOINED")
