"""ApiVersions names the whole table; unknown versions are answered in version 0."""

from pathlib import Path

import pytest

from gateway.apis.api_versions import answer
from gateway.apis.table import APIS
from gateway.dispatch import dispatch
from smq.model.errors import ErrorCode
from smq.security.caller import Caller
from smq.wire.codec import Writer
from smq.wire.generated.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    write_api_versions_response,
)
from tests.gateway.coordinator_bench import relayed
from tests.gateway.shard_api_bench import ShardBench, sent
from tests.shard.shard_bench import NOW, new_shard

KEY = (18).to_bytes(2)
TELEMETRY = {71, 72}
EVERY_ONE = [api.advertised for api in APIS if api.key not in TELEMETRY]


def named(software: str = "client", version: str = "1.0") -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=software, client_software_version=version)


def pairs(response: ApiVersionsResponse) -> list[tuple[int, int, int]]:
    return [(each.api_key, each.min_version, each.max_version) for each in response.api_keys]


@pytest.mark.parametrize("version", range(5))
def test_every_api_of_the_table_is_named_with_its_versions(tmp_path: Path, version: int) -> None:
    response = ShardBench(tmp_path).ask("ApiVersions", version, named())
    assert response.error_code == ErrorCode.NONE
    assert pairs(response) == EVERY_ONE


def test_produce_is_advertised_from_0(tmp_path: Path) -> None:
    response = ShardBench(tmp_path).ask("ApiVersions", 4, named())
    assert (response.api_keys[0].api_key, response.api_keys[0].min_version) == (0, 0)


@pytest.mark.parametrize("version", [5, 99, -1])
def test_another_version_is_answered_in_version_0_with_the_whole_list(
    tmp_path: Path, version: int
) -> None:
    bench = ShardBench(tmp_path)
    request = KEY + version.to_bytes(2, signed=True) + (77).to_bytes(4) + b"\xff\xff\0"
    bench.asked = dispatch(memoryview(request), bench.shard, NOW)
    assert bench.asked.header.api_version == 0
    response = bench.read(bench.asked.result)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert pairs(response) == EVERY_ONE


@pytest.mark.parametrize("version", [4, 99])
def test_client_metrics_are_named_only_while_a_subscription_exists(
    tmp_path: Path, version: int
) -> None:
    """Data fault 35: librdkafka prints a line where they are named and none is wanted."""
    bench = ShardBench(tmp_path)

    def named_keys() -> set[int]:
        request = KEY + version.to_bytes(2) + (77).to_bytes(4) + b"\0\0\0\2x\2x\0"
        bench.asked = dispatch(memoryview(request), bench.shard, NOW)
        return {each.api_key for each in bench.read(bench.asked.result).api_keys}

    assert named_keys().isdisjoint(TELEMETRY)
    bench.shard.client_metrics.take({"all": {"metrics": "*"}})
    assert named_keys() >= TELEMETRY
    bench.shard.client_metrics.take({})
    assert named_keys().isdisjoint(TELEMETRY)


def test_the_response_header_is_version_0_in_flexible_versions_too(tmp_path: Path) -> None:
    shard = new_shard(tmp_path)
    data = sent(dispatch(relayed("ApiVersions", 3, named()).request, shard, NOW))
    # Size, correlation id; with a header of version 1 tagged fields would stand before the error.
    assert data[4:10] == (77).to_bytes(4) + b"\0\0"
    assert data[10] == len(EVERY_ONE) + 1


@pytest.mark.parametrize("version", [3, 4])
def test_transactions_of_version_2_are_a_feature(tmp_path: Path, version: int) -> None:
    answer = ShardBench(tmp_path).ask("ApiVersions", version, named())
    [finalized] = answer.finalized_features
    assert finalized.name == "transaction.version"
    assert (finalized.min_version_level, finalized.max_version_level) == (2, 2)
    supported = [
        (each.name, each.min_version, each.max_version) for each in answer.supported_features
    ]
    assert supported == ([("transaction.version", 0, 2)] if version >= 4 else [])


def test_no_tagged_field_is_written_with_its_default() -> None:
    writer = Writer()
    write_api_versions_response(answer([(0, 0, 9)], ErrorCode.NONE, says_all=False), 3, writer)
    no_tags = b"\0"
    row = b"\0\0\0\0\0\x09" + no_tags
    features = b"\x01\x08" + bytes(8) + b"\x02" + bytes([1 + 1 + 19 + 2 + 2 + 1])
    features += b"\x02\x14transaction.version\0\x02\0\x02" + no_tags
    assert writer.to_bytes() == b"\0\0" + b"\x02" + row + b"\0\0\0\0" + b"\x02" + features


@pytest.mark.parametrize(
    ("software", "version"),
    [("", "1"), ("a", ""), ("-a", "1"), ("a", "1."), ("a b", "1"), ("a\n", "1"), ("ä", "1")],
)
def test_a_software_name_that_is_none_is_refused_from_3_on(
    tmp_path: Path, software: str, version: str
) -> None:
    bench = ShardBench(tmp_path)
    response = bench.ask("ApiVersions", 3, named(software, version))
    assert (response.error_code, response.api_keys) == (ErrorCode.INVALID_REQUEST, [])
    response = bench.ask("ApiVersions", 2, named(software, version))
    assert response.error_code == ErrorCode.NONE


def test_names_of_one_letter_and_with_dots_and_dashes_are_fine(tmp_path: Path) -> None:
    bench = ShardBench(tmp_path)
    caller = Caller("host")
    request = relayed("ApiVersions", 3, named("apache-kafka-java", "4.3.1")).request
    dispatch(request, bench.shard, NOW, caller)
    assert (caller.software_name, caller.software_version) == ("apache-kafka-java", "4.3.1")
    for software, version in (("a", "1"), ("apache-kafka-java", "4.1.0-SNAPSHOT")):
        response = bench.ask("ApiVersions", 3, named(software, version))
        assert response.error_code == ErrorCode.NONE
