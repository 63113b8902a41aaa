"""From a relayed request's bytes to its response message, in the coordinator. No IO.

A shard relays the table's COORDINATOR APIs, and Metadata requests that create topics.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from gateway.apis import metadata
from gateway.apis.acts import ACTS
from gateway.apis.table import API_BY_KEY, Api, Where
from gateway.context import Step
from gateway.coordinator_context import CoordinatorContext, Message
from gateway.parts import Parts, saying, taken
from smq.coordinator.coordinator import Coordinator
from smq.coordinator.transactions.waiting import StillEnding
from smq.model.catalog import Node
from smq.model.errors import PeerError
from smq.model.now import Now
from smq.security.acls import Operation, ResourceType
from smq.security.audit import AdminAct
from smq.security.principals import Peer, Principal
from smq.security.rights import Rights
from smq.wire.codec import READ_ERRORS, Writer, read_compact_string, read_string
from smq.wire.generated import apis, metadata as metadata_codec
from smq.wire.generated.metadata import MetadataRequest, MetadataResponse
from smq.wire.headers import (
    RequestHeader,
    is_flexible,
    read_request_header,
    write_response_header,
)
from smq.wire.internal.frames import Relayed

# Requests of a transaction, which begin with its transactional id, up to these versions.
KEY_BYTES = 2
_OF_NEXT_TRANSACTION = {
    apis.ADD_PARTITIONS_TO_TXN.key: 3,
    apis.ADD_OFFSETS_TO_TXN.key: apis.ADD_OFFSETS_TO_TXN.last_version,
    apis.TXN_OFFSET_COMMIT.key: apis.TXN_OFFSET_COMMIT.last_version,
}


class Origin(NamedTuple):
    """Where an answer goes: an opaque destination, and what determines the response's format."""

    place: object
    api: Api
    header: RequestHeader

    def encode(self, response: Message) -> bytes:
        """The response as it goes to the shard: correlation id first, no size.

        Raises PeerError if this version cannot express it.
        """
        writer = Writer()
        header = self.header
        write_response_header(header.correlation_id, header.api_key, header.api_version, writer)
        with saying(self.api):
            self.api.write_response(response, header.api_version, writer)
        return writer.to_bytes()


class HandledRequest(NamedTuple):
    """A handled request; `response` is None if a ticket brings the answer, and Parts if it is made
    in steps."""

    origin: Origin
    response: Message | Parts | None


def awaited_end(relayed: Relayed, coordinator: Coordinator) -> StillEnding | None:
    """What a request must wait for: the end of its producer's former transaction. Raises PeerError.

    AddPartitionsToTxn of brokers (from 4) concerns several transactions, and waits for none. A
    client that may not use the transactional id is refused at once: its wait would tell that
    somebody else's transaction ends.
    """
    request = relayed.request
    last_version = _OF_NEXT_TRANSACTION.get(int.from_bytes(request[:KEY_BYTES]))
    if last_version is None:
        return None
    header, at = read_request_header(request, 0)
    if header.api_version > last_version:
        return None
    flexible = is_flexible(header.api_key, header.api_version)
    try:
        name, _ = (read_compact_string if flexible else read_string)(request, at)
    except READ_ERRORS as reason:
        raise PeerError(f"a transactional id that is cut: {reason}") from reason
    if not coordinator.transactions.is_ending(name):
        return None
    rights = _rights_of(relayed, coordinator)
    rights.api = API_BY_KEY[header.api_key].name
    is_refused = rights.error(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)
    return None if is_refused else StillEnding(name)


def _rights_of(relayed: Relayed, coordinator: Coordinator) -> Rights:
    principal, host, listener = relayed.asker
    return coordinator.access.rights_of(Peer(Principal.parse(principal), host, listener))


def dispatch(
    relayed: Relayed, coordinator: Coordinator, nodes: list[Node], now: Now, place: object
) -> HandledRequest:
    """Handle one request. Raises PeerError."""
    header, at = read_request_header(relayed.request, 0)
    api = API_BY_KEY.get(header.api_key)
    if api is None or header.api_version not in api.versions:
        raise PeerError(f"API key {header.api_key} has no version {header.api_version}")
    if len(relayed.request) > api.bounds.bytes_max:
        raise PeerError(f"{api.name}: a request of {len(relayed.request)} bytes")
    origin = Origin(place, api, header)
    rights = _rights_of(relayed, coordinator)
    context = CoordinatorContext(header, rights, relayed.node_id, nodes, coordinator, now, origin)
    handle = _make_topics if api.codec is metadata_codec else api.handle
    if handle is None or (api.where is not Where.COORDINATOR and handle is not _make_topics):
        raise PeerError(f"{api.name} is not for the coordinator")
    response = taken(api, header, (relayed.request, at), _audited(api, handle), context)
    return HandledRequest(origin, response)


def _audited(api: Api, handle: Callable[..., Any]) -> Callable[..., Any]:
    """The handler, which tells the audit log what its answer tells, before the change is durable.

    A part is told before it is answered, in the turn that commits it.
    """
    acts_of = ACTS.get(api.key)
    if acts_of is None:
        return handle

    def handled(request: Message, context: CoordinatorContext) -> Message:
        result, acts, rights = handle(request, context), acts_of(request), context.rights

        def tell(part: Message | Step) -> Message | Step:
            response = part.result if isinstance(part, Step) else part
            for act in acts(response):
                rights.audit.act(rights.peer, api.name, act, context.now)
            return part

        return map(tell, result) if isinstance(result, Iterator) else tell(result)

    return handled


def _make_topics(
    request: MetadataRequest, context: CoordinatorContext
) -> Iterator[MetadataResponse]:
    topics, rights = context.coordinator.topics, context.rights
    names = metadata.names_to_create(request, topics.catalog, rights)
    for name, why in topics.ensure(names, context.now).items():
        if why is None:
            act = AdminAct(Operation.CREATE.name, ResourceType.TOPIC.name, name)
            rights.audit.act(rights.peer, apis.METADATA.name, act, context.now)
    terms = metadata.AnswerTerms(context.version, rights, context.described, creates=True)
    return metadata.answer(request, topics.catalog, context.nodes, terms)
