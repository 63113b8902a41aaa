"""Metadata, ApiVersions, DescribeCluster, InitProducerId: what a client asks first."""

from typing import Any
from uuid import UUID

from smq.wire.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from smq.wire.generated.apis import API_BY_KEY
from smq.wire.generated.describe_cluster import DescribeClusterRequest
from smq.wire.generated.init_producer_id import InitProducerIdRequest
from smq.wire.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.oracle.dialogues import dialogue
from tests.oracle.dialogues.produce import UNKNOWN_ID
from tests.oracle.plain import own
from tests.oracle.talk import Talk, encode

ALL_IS_NULL, HAS_IDS, ID_ALONE = 1, 10, 12


def metadata(*names: str | None, create: bool = False, **fields: Any) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create, **fields)


def sort(answer: MetadataResponse) -> None:
    """Partitions come from a hash table. A few topics that are asked for do not."""
    for topic in answer.topics:
        topic.partitions = sorted(topic.partitions, key=lambda each: each.partition_index)


@dialogue("Metadata", also=(1, 2, 4, 5, 7, 8, 10, 11, 12))
def of_topics(talk: Talk) -> None:
    def mine(answer: MetadataResponse) -> None:
        answer.topics = own(answer.topics, "name", talk.own())
        sort(answer)

    def ask(step: str, request: MetadataRequest) -> None:
        talk.ask(step, request, trim=sort)

    one, three = talk.make_topic("one"), talk.make_topic("three", 3)
    ask("one", metadata(one))
    ask("two", metadata(three, one))
    ask("one twice", metadata(one, one))
    everything = MetadataRequest(topics=[] if talk.version < ALL_IS_NULL else None)
    talk.ask("all", everything, trim=mine)
    if talk.version >= ALL_IS_NULL:
        talk.ask("none", metadata())
    if talk.version >= 4:  # Before that a question creates what it names.
        ask("an unknown one", metadata(talk.own("unknown")))
        ask("a known and an unknown one", metadata(talk.own("unknown"), one))
        talk.ask("a bad name", metadata("a b"))
        talk.ask("no name", metadata(""))
    if talk.version >= 8:
        ask("what I may do", metadata(one, include_topic_authorized_operations=True))
    if 8 <= talk.version <= 10:
        ask("what I may do here", metadata(one, include_cluster_authorized_operations=True))


@dialogue("Metadata", since=10)
def by_id(talk: Talk) -> None:
    def ask(step: str, name: str | None, topic_id: UUID) -> None:
        topic = MetadataRequestTopic(name=name, topic_id=topic_id)
        talk.ask(step, MetadataRequest(topics=[topic], allow_auto_topic_creation=False))

    name = talk.make_topic()
    known = talk.topic_id(name)
    ask("its id", None, known)
    ask("an unknown id", None, UNKNOWN_ID)
    ask("name and id", name, known)
    ask("neither", None, UUID(int=0))


@dialogue("Metadata", also=(4,))
def creates(talk: Talk) -> None:
    """Until the topic is there an answer may be 3 or 5: so only what comes in the end is noted."""
    name = talk.own("new")
    talk.until(metadata(name, create=True), lambda answer: not answer.topics[0].error_code, 12)
    talk.ask("a topic that was asked for", metadata(name, create=True))
    talk.ask("a bad name", metadata("a b", create=True))


@dialogue("ApiVersions", also=(1, 2))
def versions(talk: Talk) -> None:
    # Those of client metrics are listed by neither: Kafka has no plugin here, SMQ no subscription.
    listed = API_BY_KEY.keys()

    def ours(answer: ApiVersionsResponse) -> None:
        answer.api_keys = sorted(
            (each for each in answer.api_keys if each.api_key in listed),
            key=lambda each: each.api_key,
        )
        answer.supported_features = answer.finalized_features = ()

    good = {"client_software_name": "some-client", "client_software_version": "1.0"}
    talk.ask("all", ApiVersionsRequest(**good), trim=ours)
    talk.ask("once more", ApiVersionsRequest(**good), trim=ours)
    if talk.version >= 3:
        for name, version in (("", "1"), ("-x", "1"), ("a b", "1"), ("x", ""), ("x", "?")):
            bad = {"client_software_name": name, "client_software_version": version}
            talk.ask(f"software {name!r} {version!r}", ApiVersionsRequest(**bad), trim=ours)


@dialogue("ApiVersions", until=0)
def versions_to_come(talk: Talk) -> None:
    """A version that we do not have is answered in version 0, with error 35."""

    def only_itself(form: str, frame: bytes, version: int) -> None:
        asked = frame[:2] + version.to_bytes(2, signed=True) + frame[4:]
        talk.ask_raw(f"{form} version {version}", asked, trim=keep_api_versions)

    def keep_api_versions(answer: ApiVersionsResponse) -> None:
        answer.api_keys = [each for each in answer.api_keys if each.api_key == 18]

    plain = encode(ApiVersionsRequest(), 0)
    for version in (5, 99, 32767, -1):
        only_itself("plain", plain, version)
    flexible = encode(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
    only_itself("flexible", flexible, 5)


@dialogue("DescribeCluster", also=(1,))
def described(talk: Talk) -> None:
    talk.ask("the brokers", DescribeClusterRequest())
    talk.ask("what I may do", DescribeClusterRequest(include_cluster_authorized_operations=True))
    if talk.version >= 1:
        talk.ask("the controllers", DescribeClusterRequest(endpoint_type=2))
        talk.ask("a type that is none", DescribeClusterRequest(endpoint_type=9))
    if talk.version >= 2:
        talk.ask("fenced ones too", DescribeClusterRequest(include_fenced_brokers=True))


@dialogue("InitProducerId", also=(3, 4))
def producer_ids(talk: Talk) -> None:
    def ask(step: str, **fields: Any) -> None:
        asked: dict[str, Any] = {"transactional_id": None, "transaction_timeout_ms": 60_000}
        talk.ask(step, InitProducerIdRequest(**(asked | fields)))

    ask("one")
    ask("another")
    ask("with no timeout", transaction_timeout_ms=0)
    ask("with a negative timeout", transaction_timeout_ms=-1)
    ask("with an empty transactional id", transactional_id="")
    if talk.version >= 3:
        known = talk.quietly(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 3
        )
        ask("who has one", producer_id=known.producer_id, producer_epoch=0)
        ask("an id without an epoch", producer_id=known.producer_id)
        ask("an epoch without an id", producer_epoch=3)
