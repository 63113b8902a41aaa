"""From a request's bytes to its answer's pieces. No IO.

A request that breaks the protocol raises PeerError. The connection is then closed without an
answer, as Kafka does for an unknown key, an unsupported version (except of ApiVersions) or an
unreadable body.
"""

from typing import NamedTuple

from gateway.apis.api_versions import advertised, answer as versions_answer
from gateway.apis.table import API_BY_KEY, APIS, Api, Where
from gateway.context import Message, Relay, Result, ShardContext
from gateway.parts import Parts, saying, taken
from smq.model.errors import ErrorCode, PeerError
from smq.model.now import Now
from smq.security.caller import Caller
from smq.shard.loans import Loan
from smq.shard.shard import Shard
from smq.wire.codec import READ_ERRORS, Lent, Writer, skip_tags
from smq.wire.generated.apis import API_VERSIONS
from smq.wire.headers import RequestHeader, read_request_header, write_response_header


class Dispatched(NamedTuple):
    """A request and its handler's result."""

    api: Api
    header: RequestHeader
    result: Result | Parts


def dispatch(
    request: memoryview,
    shard: Shard,
    now: Now,
    caller: Caller | None = None,
    loan: Loan | None = None,
) -> Dispatched:
    """Handle one request (without its size), whose answer owns the loan. Raises PeerError."""
    header, at = read_request_header(request, 0)
    api = API_BY_KEY.get(header.api_key)
    if api is None:
        raise PeerError(f"API key {header.api_key} is not known")
    if header.api_version not in api.versions:
        if header.api_key == API_VERSIONS.key:
            rows = advertised(APIS, shard)
            return _other_version(api, header, (request, at), rows)
        raise PeerError(f"{api.name} has no version {header.api_version}")
    if len(request) > api.bounds.bytes_max:
        raise PeerError(f"{api.name}: a request of {len(request)} bytes")
    if api.where is Where.COORDINATOR:
        return Dispatched(api, header, Relay())
    if api.handle is None:
        raise PeerError(f"{api.name} is malformed")  # The kernel would have taken a good one.
    context = ShardContext(header, shard, now, caller or Caller(), loan or Loan())
    return Dispatched(api, header, taken(api, header, (request, at), api.handle, context))


def _other_version(
    api: Api, header: RequestHeader, body: tuple[memoryview, int], rows: list[tuple[int, int, int]]
) -> Dispatched:
    """Answer an ApiVersions request of an unsupported version in version 0 (KIP-511).

    The header of a future version has tagged fields.
    """
    try:
        if header.api_version >= api.versions.stop:
            skip_tags(*body)
    except READ_ERRORS as reason:
        raise PeerError(f"a request header that is cut: {reason}") from reason
    result = versions_answer(rows, ErrorCode.UNSUPPORTED_VERSION)
    return Dispatched(api, header._replace(api_version=0), result)


def encode(api: Api, header: RequestHeader, response: Message) -> list[bytes | Lent]:
    """The answer as it goes out, size first; lent batches stand between the bytes.

    Raises PeerError if this version cannot express it: a name from a flexible version may be longer
    than older versions can write.
    """
    writer = Writer()
    write_response_header(header.correlation_id, header.api_key, header.api_version, writer)
    with saying(api):
        api.write_response(response, header.api_version, writer)
    return writer.framed()
