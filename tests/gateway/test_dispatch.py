"""A shard's requests: answered, relayed or refused; whatever they are."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from gateway.apis.table import API_BY_KEY, APIS, Api, Where
from gateway.context import Ask, Relay, Wait
from gateway.dispatch import dispatch, encode
from smq.model.errors import PeerError
from smq.testing.messages import random_message
from smq.wire.codec import Writer
from smq.wire.generated.api_versions import ApiVersionsRequest
from smq.wire.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from smq.wire.headers import RequestHeader, write_request_header
from smq.wire.messages.tables import APIS as WIRE_APIS
from tests.gateway.coordinator_bench import relayed
from tests.gateway.shard_api_bench import ShardBench, sent
from tests.shard.shard_bench import NOW, batch, topic

RELAYED = [api for api in APIS if api.where is Where.COORDINATOR]


@pytest.fixture
def bench(tmp_path: Path) -> ShardBench:
    bench = ShardBench(tmp_path, topic("topic-1", range(1, 4)))
    bench.appender.append("topic-1", 0, batch(b"a", b"b"))
    return bench


def header(key: int, version: int) -> bytes:
    """A request's header, of the version's form."""
    writer = Writer()
    write_request_header(RequestHeader(key, version, 77, "client"), writer)
    return writer.to_bytes()


def answered(bench: ShardBench, request: bytes) -> None:
    """Dispatch; an answer goes out as bytes. Raises PeerError."""
    asked = dispatch(memoryview(request), bench.shard, NOW)
    result = asked.result
    if isinstance(result, Wait):
        result = result.attempt(is_last=True)
    if not isinstance(result, (Relay, Ask)):
        sent(asked._replace(result=result))


def test_an_answer_has_its_size_and_correlation_id_in_front(bench: ShardBench) -> None:
    data = sent(dispatch(relayed("ApiVersions", 0, ApiVersionsRequest()).request, bench.shard, NOW))
    assert data[:8] == (len(data) - 4).to_bytes(4) + (77).to_bytes(4)


@pytest.mark.parametrize("key", [-1, 4, 38, 67, 32767])
def test_an_unknown_key_is_refused(bench: ShardBench, key: int) -> None:
    request = key.to_bytes(2, signed=True) + b"\0\0\0\0\0\1\xff\xff"
    with pytest.raises(PeerError, match=f"API key {key} is not known"):
        dispatch(memoryview(request), bench.shard, NOW)


def other_versions() -> Iterator[tuple[Api, int]]:
    for api in APIS:
        if api.name != "ApiVersions":
            yield from ((api, version) for version in (api.versions.start - 1, api.versions.stop))


@pytest.mark.parametrize(("api", "version"), list(other_versions()))
def test_a_version_that_is_not_is_refused(bench: ShardBench, api: Api, version: int) -> None:
    request = api.key.to_bytes(2) + version.to_bytes(2, signed=True) + b"\0\0\0\1\xff\xff\0"
    with pytest.raises(PeerError, match=f"{api.name} has no version {version}"):
        dispatch(memoryview(request), bench.shard, NOW)


def test_a_request_for_the_coordinator_is_relayed_unread(bench: ShardBench) -> None:
    for api in RELAYED:
        request = header(api.key, api.versions.start) + b"unreadable"
        assert dispatch(memoryview(request), bench.shard, NOW).result == Relay()


def test_a_produce_request_that_the_kernel_did_not_take_is_malformed(bench: ShardBench) -> None:
    with pytest.raises(PeerError, match="Produce is malformed"):
        dispatch(memoryview(header(0, 9)), bench.shard, NOW)


def test_an_api_versions_request_of_a_version_to_come_that_is_cut_is_refused(
    bench: ShardBench,
) -> None:
    request = (18).to_bytes(2) + (99).to_bytes(2) + b"\0\0\0\1\xff\xff"
    with pytest.raises(PeerError, match="cut"):
        dispatch(memoryview(request + b"\1"), bench.shard, NOW)


def test_an_answer_that_does_not_fit_an_old_version_is_refused(bench: ShardBench) -> None:
    topics = [MetadataRequestTopic(name="x")]
    asked = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    found = dispatch(relayed("Metadata", 8, asked).request, bench.shard, NOW)
    answer = MetadataResponse(topics=[MetadataResponseTopic(name="x" * 40_000)])
    with pytest.raises(PeerError, match="does not fit"):
        encode(found.api, found.header, answer)


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_bytes_are_answered_relayed_or_refused(bench: ShardBench, data: st.DataObject) -> None:
    api = data.draw(st.sampled_from(APIS))
    version = data.draw(st.integers(-1, api.versions.stop))
    body = data.draw(st.binary(max_size=200))
    try:
        answered(bench, api.key.to_bytes(2) + version.to_bytes(2, signed=True) + b"\0\0\0\1" + body)
    except PeerError:
        return


def requests(random: Random) -> Iterator[bytes]:
    """A good request of every version of every API but Produce."""
    for facts in WIRE_APIS:
        api = API_BY_KEY[facts.key]
        for version in api.versions if api.where is not Where.KERNEL else ():
            message: Any = random_message(random, facts, f"{api.name}Request", version)
            yield bytes(relayed(api.name, version, message).request)


@pytest.mark.parametrize("seed", range(4))
def test_good_requests_cut_and_garbled_are_answered_relayed_or_refused(
    bench: ShardBench, seed: int
) -> None:
    random = Random(seed)
    refused = 0
    for request in requests(random):
        answered(bench, request)
        garbled = bytearray(request)
        for _ in range(3):
            garbled[random.randrange(8, len(garbled))] = random.randrange(256)
        for wrong in (request[: random.randrange(len(request))], bytes(garbled)):
            try:
                answered(bench, wrong)
            except PeerError:
                refused += 1
    assert refused
    bench.shard.invariants()
