import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.apis.table import APIS, Where
from gateway.coordinator_dispatch import dispatch
from smq.model.errors import ErrorCode, PeerError
from smq.wire.generated.api_versions import ApiVersionsRequest
from smq.wire.generated.heartbeat import HeartbeatRequest
from smq.wire.generated.metadata import MetadataRequest, MetadataRequestTopic
from smq.wire.internal import Relayed
from tests.gateway.coordinator_bench import NODES, CoordinatorBench, relayed

COORDINATED = [api for api in APIS if api.where is Where.COORDINATOR]


def test_metadata_makes_the_topics_it_names_and_tells_them(bench: CoordinatorBench) -> None:
    topics = [MetadataRequestTopic(name="new"), MetadataRequestTopic(name="bad name")]
    answer = bench.ask("Metadata", 8, MetadataRequest(topics=topics))
    assert [(each.name, each.error_code) for each in answer.topics] == [
        ("new", ErrorCode.NONE),
        ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]
    assert set(bench.coordinator.topics.catalog.by_name) == {"new"}


def test_what_a_shard_answers_itself_is_refused(bench: CoordinatorBench) -> None:
    with pytest.raises(PeerError, match="not for the coordinator"):
        bench.ask("ApiVersions", 0, ApiVersionsRequest())


def test_a_version_that_is_not_is_refused(bench: CoordinatorBench) -> None:
    question = relayed("Heartbeat", 4, HeartbeatRequest(group_id="g"))
    garbled = bytearray(question.request)
    garbled[3] = 5
    with pytest.raises(PeerError, match="no version 5"):
        dispatch(
            question._replace(request=memoryview(bytes(garbled))),
            bench.coordinator,
            NODES,
            bench.now,
            1,
        )


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), rest=st.binary(max_size=200))
def test_garbage_is_answered_or_refused_and_nothing_else(
    bench: CoordinatorBench, data: st.DataObject, rest: bytes
) -> None:
    api = data.draw(st.sampled_from(COORDINATED))
    version = data.draw(st.integers(api.versions.start, api.versions.stop - 1))
    head = api.key.to_bytes(2) + version.to_bytes(2) + b"\0\0\0\1\xff\xff"
    question = Relayed(1, "10.0.0.9", memoryview(head + rest))
    try:
        asked = dispatch(question, bench.coordinator, NODES, bench.now, 1)
    except PeerError:
        return
    if asked.response is not None:
        asked.origin.encode(asked.response)
    bench.answers()
