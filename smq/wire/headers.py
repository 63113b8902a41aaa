"""The headers of requests and responses.

    request header v1    api key, api version, correlation id, client id
    request header v2    the same and tagged fields: for the flexible versions of an API
    response header v0   correlation id
    response header v1   the same and tagged fields: for the flexible versions, except those of
                         ApiVersions: its client may not know flexible versions yet

Both request headers have the client id in the old form, so every version's header can be read. For
an unknown version the tagged fields are not read: nothing after them could be read anyway.
"""

from struct import Struct
from typing import NamedTuple

from smq.wire.codec import (
    READ_ERRORS,
    Buffer,
    Malformed,
    Writer,
    read_nullable_string,
    skip_tags,
    write_nullable_string,
)
from smq.wire.generated.apis import API_BY_KEY, API_VERSIONS

KEY_AND_VERSION = Struct(">hh")  # What a request begins with.
_REQUEST = Struct(">hhi")
_RESPONSE = Struct(">i")


class RequestHeader(NamedTuple):
    """A request's API, version, correlation id and client id."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def is_flexible(api_key: int, api_version: int) -> bool:
    """Whether this version of an API is flexible: compact types and tagged fields."""
    facts = API_BY_KEY.get(api_key)
    return facts is not None and facts.flexible_from <= api_version <= facts.last_version


def read_request_header(buffer: Buffer, at: int) -> tuple[RequestHeader, int]:
    """The header, and the start of the request's body. Raises Malformed."""
    try:
        api_key, api_version, correlation_id = _REQUEST.unpack_from(buffer, at)
        client_id, at = read_nullable_string(buffer, at + _REQUEST.size)
        if is_flexible(api_key, api_version):
            at = skip_tags(buffer, at)
    except READ_ERRORS as error:
        raise Malformed(f"a truncated request header: {error}") from error
    return RequestHeader(api_key, api_version, correlation_id, client_id), at


def write_request_header(header: RequestHeader, writer: Writer) -> None:
    """Write the header of a request."""
    writer.append(_REQUEST.pack(header.api_key, header.api_version, header.correlation_id))
    write_nullable_string(writer.append, header.client_id)
    if is_flexible(header.api_key, header.api_version):
        writer.append(b"\0")


def read_response_header(
    buffer: Buffer, at: int, api_key: int, api_version: int
) -> tuple[int, int]:
    """The correlation id of a response, and the start of its body. Raises Malformed."""
    try:
        (correlation_id,) = _RESPONSE.unpack_from(buffer, at)
        at += _RESPONSE.size
        if api_key != API_VERSIONS.key and is_flexible(api_key, api_version):
            at = skip_tags(buffer, at)
    except READ_ERRORS as error:
        raise Malformed(f"a truncated response header: {error}") from error
    return correlation_id, at


def write_response_header(
    correlation_id: int, api_key: int, api_version: int, writer: Writer
) -> None:
    """Write the header of a response."""
    writer.append(_RESPONSE.pack(correlation_id))
    if api_key != API_VERSIONS.key and is_flexible(api_key, api_version):
        writer.append(b"\0")
