"""The quotas of a shard's connections (KIP-219): what each is charged, and how long it waits.

    request ─▶ charged ─▶ answered at once, with how long its connection is not read

A connection without quotas has no overhead, and kernels may serve it. One with quotas, or whose
client is not known yet, is served by the loop. Programs attached through shared memory have no
quotas.
"""

from collections.abc import Iterable
from struct import Struct

from shm.kernels.base.wire import SIZE_BYTES
from shm.kernels.request.fetch import FETCH_KEY
from smq.app.shard.connections.connection import Connection
from smq.app.shard.connections.receive import Buffer
from smq.shard.loans import Sendable
from smq.shard.quotas import ClientQuotas
from smq.wire.codec import Malformed
from smq.wire.headers import RequestHeader, is_flexible, read_request_header

MUTATION_KEYS = {19, 20, 37}  # CreateTopics, DeleteTopics, CreatePartitions.
CLIENT_ID_CHARACTERS_MAX = 255
CORRELATION_ID_BYTES = 4
_INT32 = Struct(">i")


def look(connection: Connection, quotas: ClientQuotas) -> None:
    """Update a connection's quotas, which may have changed."""
    client_id, user = connection.client_id, connection.caller.rights.peer.principal.name
    connection.limits = None
    if quotas.is_on and client_id is not None:
        connection.limits = quotas.of(user, client_id)
    connection.is_limited = quotas.is_on and (client_id is None or connection.limits is not None)


def identify(connection: Connection, client_id: str | None, quotas: ClientQuotas) -> None:
    """The client has named itself."""
    if connection.client_id is None:
        connection.client_id = (client_id or "")[:CLIENT_ID_CHARACTERS_MAX]
        look(connection, quotas)


def identify_by(connection: Connection, buffer: Buffer, quotas: ClientQuotas) -> None:
    """Identify the sender before a kernel takes its first request."""
    if connection.client_id is None and buffer.end - buffer.start > SIZE_BYTES:
        try:
            received = buffer.array.data[buffer.start + SIZE_BYTES : buffer.end]
            header, _ = read_request_header(received, 0)
        except Malformed:  # Not all of it is here, or the request will be refused.
            return
        identify(connection, header.client_id, quotas)


def charge_time(connection: Connection, spent_ns: int, now_ms: int) -> None:
    """Charge the time that requests have taken."""
    if connection.limits is not None:
        connection.throttle(connection.limits.worked(spent_ns, now_ms))


def settled(
    connection: Connection,
    header: RequestHeader,
    pieces: Iterable[bytes | Sendable],
    now_ms: int,
) -> Iterable[bytes | Sendable]:
    """Charge an answer: a Fetch's bytes. A Fetch's answer carries the throttle time."""
    if connection.limits is None or header.api_key != FETCH_KEY:
        return pieces
    whole = list(pieces)
    size = sum(len(each) if isinstance(each, bytes) else each.length for each in whole)
    connection.throttle(connection.limits.fetched(size, now_ms))
    first = whole[0]
    assert isinstance(first, bytes)
    at = SIZE_BYTES + _throttle_at(header.api_key, header.api_version)
    owed = _INT32.pack(connection.owed_ms())
    return [first[:at] + owed + first[at + _INT32.size :], *whole[1:]]


def obey(connection: Connection, key: int, version: int, response: bytes) -> None:
    """Throttle the connection as the coordinator's answer to a topic change says."""
    if key in MUTATION_KEYS:
        [throttle_ms] = _INT32.unpack_from(response, _throttle_at(key, version))
        connection.throttle(throttle_ms)


def _throttle_at(api_key: int, version: int) -> int:
    """Where an answer has its throttle time, if that is its first field."""
    return CORRELATION_ID_BYTES + int(is_flexible(api_key, version))
