"""Headers of requests and responses."""

import pytest
from hypothesis import given, strategies as st

from smq.wire.codec import Malformed, Writer
from smq.wire.generated.apis import API_BY_KEY
from smq.wire.headers import (
    RequestHeader,
    read_request_header,
    read_response_header,
    write_request_header,
    write_response_header,
)

EVERY_VERSION = [
    (facts.key, version)
    for facts in API_BY_KEY.values()
    for version in range(facts.first_version, facts.last_version + 1)
]


def request_header(header: RequestHeader) -> bytes:
    writer = Writer()
    write_request_header(header, writer)
    return writer.to_bytes()


def response_header(correlation_id: int, key: int, version: int) -> bytes:
    writer = Writer()
    write_response_header(correlation_id, key, version, writer)
    return writer.to_bytes()


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
def test_headers_are_read_as_written(key: int, version: int) -> None:
    for client_id in (None, "", "rdkafka"):
        header = RequestHeader(key, version, 7, client_id)
        data = request_header(header)
        assert read_request_header(data, 0) == (header, len(data))
    data = response_header(7, key, version)
    assert read_response_header(data, 0, key, version) == (7, len(data))


def test_only_flexible_versions_have_tagged_fields() -> None:
    assert request_header(RequestHeader(1, 11, 1, "c"))[-1:] == b"c"
    assert request_header(RequestHeader(1, 12, 1, "c"))[-2:] == b"c\0"
    assert response_header(1, 1, 11) == b"\0\0\0\1"
    assert response_header(1, 1, 12) == b"\0\0\0\1\0"


def test_the_response_header_of_api_versions_never_has_tagged_fields() -> None:
    assert response_header(1, 18, 4) == b"\0\0\0\1"
    assert request_header(RequestHeader(18, 4, 1, None))[-1:] == b"\0"


def test_the_header_of_an_unknown_api_or_version_can_be_read() -> None:
    for header in (RequestHeader(18, 99, 5, "new"), RequestHeader(1234, 0, 5, None)):
        data = request_header(header)
        assert read_request_header(data + b"\xff\xff", 0) == (header, len(data))


def test_tagged_fields_of_a_request_are_skipped() -> None:
    data = request_header(RequestHeader(1, 12, 1, "c"))[:-1] + b"\x01\x05\x02hi"
    assert read_request_header(data, 0)[1] == len(data)


@given(st.binary(max_size=40))
def test_garbage_gives_a_header_or_malformed(garbage: bytes) -> None:
    try:
        read_request_header(garbage, 0)
        read_response_header(garbage, 0, 1, 12)
    except Malformed:
        return


@pytest.mark.parametrize("length", range(11))
def test_a_header_that_is_cut_is_malformed(length: int) -> None:
    with pytest.raises(Malformed):
        read_request_header(request_header(RequestHeader(1, 12, 1, "c"))[:length], 0)
