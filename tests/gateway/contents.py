"""What a request of each API may say that is worst: about the most there is, compressed, repeated.

Each API has contents or a reason why tests/gateway/largest.py says all; a new one needs either.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from smq.testing.messages import codec_module
from smq.wire.codec import Writer
from smq.wire.compression import Codec, compress
from smq.wire.headers import RequestHeader, write_request_header
from smq.wire.messages.notation import Field
from smq.wire.messages.tables import APIS
from smq.wire.structure_code import is_structure, snake

KiB, MiB = 1024, 1024 * 1024
WIRE = {api.name: api for api in APIS if f"{api.name}Request" in api.messages}
LONG = "x" * (32 * KiB - 1)
Content = tuple[str, dict[str, Any]]


class World(NamedTuple):
    """What there is: a topic with many partitions, and who is at work in it."""

    topic: str
    topic_id: UUID
    partitions: range
    groups: tuple[str, ...] = ()
    transactional_id: str = ""
    instance_id: UUID = UUID(int=0)
    subscription_id: int = 0


def request_of(name: str, version: int, said: Mapping[str, Any]) -> bytes:
    """A request of these fields; arrays are lists, structures dicts."""
    api = WIRE[name]
    module, field = codec_module(api), api.messages[f"{name}Request"]
    writer = Writer()
    write_request_header(RequestHeader(api.key, version, 77, "client"), writer)
    getattr(module, f"write_{snake(field.type)}")(_made(module, field, said), version, writer)
    return writer.to_bytes()


def _made(module: Any, field: Field, said: Mapping[str, Any]) -> Any:
    message, fields = getattr(module, field.type)(), {each.name: each for each in field.fields}
    for name, value in said.items():
        each = fields[name]
        if value is not None and is_structure(each):
            one = [_made(module, each, row) for row in (value if each.is_array else [value])]
            setattr(message, name, one if each.is_array else one[0])
        else:
            setattr(message, name, value)
    return message


def _fetch(world: World) -> Iterator[Content]:
    partitions = [{"partition": p, "partition_max_bytes": MiB} for p in world.partitions]
    for isolation in (0, 1):
        topics = [{"topic_id": world.topic_id, "partitions": partitions}]
        said = {"isolation_level": isolation, "max_bytes": 50 * MiB, "topics": topics}
        yield f"all partitions, isolation {isolation}", said
        yield (
            f"the first, isolation {isolation}",
            said | {"topics": [{"topic_id": world.topic_id, "partitions": partitions[:1]}]},
        )


def _list_offsets(world: World) -> Iterator[Content]:
    for timestamp in (-1, -3, 0):
        rows = [{"partition_index": p, "timestamp": timestamp} for p in world.partitions]
        topic = {"name": world.topic, "partitions": rows}
        yield f"all at {timestamp}", {"isolation_level": 1, "topics": [topic]}
        again = {"name": world.topic, "partitions": rows[:1] * 1000}
        yield f"one again at {timestamp}", {"topics": [again]}


def _epochs(world: World) -> Iterator[Content]:
    rows = [{"partition": p, "leader_epoch": 3} for p in world.partitions]
    yield "all", {"topics": [{"topic": world.topic, "partitions": rows}]}
    yield "one again", {"topics": [{"topic": world.topic, "partitions": rows[:1] * 1000}]}


def _delete_records(world: World) -> Iterator[Content]:
    rows = [{"partition_index": p, "offset": -1} for p in world.partitions]
    yield "one again", {"topics": [{"name": world.topic, "partitions": rows[:1] * 1000}]}
    yield "all", {"topics": [{"name": world.topic, "partitions": rows}]}


def _numbers(field: str, inner: str) -> Callable[[World], Iterator[Content]]:
    """All partitions of the topic, and one of them again and again, in an array of topics."""

    def contents(world: World) -> Iterator[Content]:
        for what, rows in (("all", [*world.partitions]), ("one again", [0] * 900)):
            yield what, {field: [{"name": world.topic, inner: rows}]}

    return contents


def _push(world: World) -> Iterator[Content]:
    known = {
        "client_instance_id": world.instance_id,
        "subscription_id": world.subscription_id,
        "terminating": False,
    }
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        zeros = compress(codec, bytes(2 * MiB))
        yield f"zeros: {codec.name}", known | {"compression_type": codec, "metrics": zeros}
        bomb = compress(codec, bytes(8 * MiB))
        yield f"bomb: {codec.name}", known | {"compression_type": codec, "metrics": bomb}
        frames = compress(codec, b"")
        frames *= MiB // len(frames)
        yield f"frames: {codec.name}", known | {"compression_type": codec, "metrics": frames}
    blocks = b"\x82SNAPPY\0" + bytes([0, 0, 0, 1] * 2) + b"\0\0\0\1\0" * 200_000
    yield "blocks", known | {"compression_type": Codec.SNAPPY, "metrics": blocks}


def _offset_commit(world: World) -> Iterator[Content]:
    rows = [
        {"partition_index": p, "committed_offset": 7, "committed_metadata": "m" * 40}
        for p in world.partitions
    ]
    for what, each in (("all", rows), ("one again", rows[:1] * 1000)):
        topics = [{"topic_id": world.topic_id, "partitions": each}]
        group = {"group_id": "alone", "generation_id_or_member_epoch": -1, "member_id": ""}
        yield what, group | {"topics": topics}


def _txn_offset_commit(world: World) -> Iterator[Content]:
    rows = [{"partition_index": p, "committed_offset": 7} for p in world.partitions]
    said = {
        "transactional_id": world.transactional_id,
        "group_id": "alone",
        "generation_id": -1,
        "producer_id": 0,
        "producer_epoch": 0,
    }
    for what, each in (("all", rows), ("one again", rows[:1] * 1000)):
        yield what, said | {"topics": [{"name": world.topic, "partitions": each}]}


def _offset_fetch(world: World) -> Iterator[Content]:
    for stable in (False, True):
        groups = [{"group_id": "committed", "topics": None}]
        yield f"all of a group, {stable}", {"groups": groups, "require_stable": stable}
    one = [{"topic_id": world.topic_id, "partition_indexes": [0]}]
    named = [{"group_id": "committed", "topics": one}] * 1000
    yield "a partition again", {"groups": named, "require_stable": True}
    groups = [{"group_id": "committed", "topics": None}] * 1000
    yield "a group again", {"groups": groups, "require_stable": True}


def _join(world: World) -> Iterator[Content]:
    fields = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000}
    said = {"group_id": "joined", "protocol_type": "consumer", **fields}
    protocols = [{"name": "range", "metadata": bytes(1_000_000)}]
    yield "large metadata", said | {"protocols": protocols}
    # A subscription of a version, and as many topics as there is room for.
    topics = b"\0\0" + (100_000).to_bytes(4) + b"\0\1t" * 100_000 + b"\xff\xff\xff\xff"
    yield "many topics", said | {"protocols": [{"name": "range", "metadata": topics}]}
    many = [{"name": f"p{i}", "metadata": topics[:900]} for i in range(900)]
    yield "many protocols", said | {"protocols": many}


def _sync(world: World) -> Iterator[Content]:
    rows = [{"member_id": f"m{i}", "assignment": bytes(900)} for i in range(900)]
    yield "assignments", {"group_id": world.groups[0], "generation_id": 1, "assignments": rows}


def _create_topics(world: World) -> Iterator[Content]:
    long = "0:1," * 8000 + "0:1"
    key = "leader.replication.throttled.replicas"
    wanted = {"num_partitions": 1, "replication_factor": 1}
    said = {"validate_only": True, "timeout_ms": 1000}
    lists = [{"name": key, "value": long}]
    topics = [{"name": f"new-{i}", **wanted, "configs": lists} for i in range(30)]
    yield "long lists", said | {"topics": topics}
    again = [{"name": "cleanup.policy", "value": "compact," * 4000 + "delete"}]
    policies = [{"name": f"new-{i}", **wanted, "configs": again} for i in range(30)]
    yield "long policies", said | {"topics": policies}
    rows = [{"partition_index": p, "broker_ids": [1]} for p in range(900)]
    assigned = {"name": "new", "num_partitions": -1, "replication_factor": -1, "assignments": rows}
    yield "assignments", said | {"topics": [assigned]}
    partitions = [{"name": f"new-{i}", **wanted, "num_partitions": 5} for i in range(900)]
    yield "many", said | {"topics": partitions}
    yield "in earnest", {"timeout_ms": 1000, "topics": [
        {"name": f"made-{i}", **wanted, "num_partitions": 2} for i in range(900)]}  # fmt: skip


def _create_partitions(world: World) -> Iterator[Content]:
    count = len(world.partitions) + 900
    rows = [{"broker_ids": [1]} for _ in range(900)]
    topic = {"name": world.topic, "count": count, "assignments": rows}
    yield "assigned", {"topics": [topic], "validate_only": True}
    yield "one again", {"topics": [topic | {"assignments": None}] * 1000, "validate_only": True}


def _configs(*, incremental: bool) -> Callable[[World], Iterator[Content]]:
    def contents(world: World) -> Iterator[Content]:
        key, long = "leader.replication.throttled.replicas", "0:1," * 8000 + "0:1"
        for operation in (0, 2, 3) if incremental else (None,):
            kind = {} if operation is None else {"config_operation": operation}
            for name, value in ((key, long), ("cleanup.policy", "compact," * 4000 + "delete")):
                row = {"name": name, "value": value, **kind}
                resource = {"resource_type": 2, "resource_name": world.topic, "configs": [row]}
                yield f"long list of {name}, {operation}", {"resources": [resource] * 25}
                once = resource | {"configs": [row] * 30}
                yield f"{name} again, {operation}", {"resources": [once]}
            rows = [{"name": "retention.ms", "value": "1", **kind}] * 900
            resource = {"resource_type": 2, "resource_name": world.topic, "configs": rows}
            yield f"many rows, {operation}", {"resources": [resource]}
            resource = {"resource_type": 2, "resource_name": world.topic, "configs": rows[:1]}
            yield f"many resources, {operation}", {"resources": [resource] * 900}

    return contents


def _describe_configs(world: World) -> Iterator[Content]:
    said = {"include_synonyms": True, "include_documentation": True}
    for kind, name in ((2, world.topic), (4, "1")):
        row = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        yield f"one again, {kind}", said | {"resources": [row] * 1000}
    row = {"resource_type": 2, "resource_name": world.topic}
    keys = [row | {"configuration_keys": ["retention.ms"] * 1900}]
    yield "a key again", said | {"resources": keys}


def _alter_quotas(world: World) -> Iterator[Content]:
    names = [[{"entity_type": "user", "entity_name": f"u{i}"}] for i in range(300)]
    ops = [{"key": "producer_byte_rate", "value": 1e6, "remove": False}]
    entries = [{"entity": name, "ops": ops} for name in names]
    yield "many", {"entries": entries}
    yield "one again", {"entries": entries[:1] * 300}


def _describe_quotas(world: World) -> Iterator[Content]:
    yield "all", {"components": [{"entity_type": "user", "match_type": 2, "match": None}]}


def _add_partitions(world: World) -> Iterator[Content]:
    producer = {
        "transactional_id": world.transactional_id,
        "producer_id": 0,
        "producer_epoch": 0,
    }
    for verify in (False, True):
        rows = [{"name": world.topic, "partitions": [*world.partitions]}]
        one = producer | {"verify_only": verify, "topics": rows}
        yield f"all, {verify}", {"transactions": [one]}
        again = one | {"topics": [{"name": world.topic, "partitions": [0] * 1000}]}
        yield f"one again, {verify}", {"transactions": [again]}


def _transactions(world: World) -> Iterator[Content]:
    pattern = {"transactional_id_pattern": "(.*a){20}.*"}
    yield "a pattern", pattern | {"duration_filter": -1}
    yield "all", {"duration_filter": -1}


def _names(field: str, *said: str) -> Callable[[World], Iterator[Content]]:
    def contents(world: World) -> Iterator[Content]:
        for each in said:
            yield f"{each} again", {field: [each] * 1000}
        if world.groups:
            yield "all", {field: [*world.groups]}

    return contents


def _metadata(world: World) -> Iterator[Content]:
    yield "all", {"topics": None}
    yield "one again", {"topics": [{"topic_id": UUID(int=0), "name": world.topic}] * 1000}


def _find_coordinator(world: World) -> Iterator[Content]:
    for kind in (0, 1):
        yield f"a key again, {kind}", {"key_type": kind, "coordinator_keys": ["committed"] * 1000}
        yield f"long keys, {kind}", {"key_type": kind, "coordinator_keys": [LONG] * 30}


def _leave(world: World) -> Iterator[Content]:
    rows = [{"member_id": f"m{i}", "group_instance_id": None} for i in range(900)]
    yield "strangers", {"group_id": world.groups[0], "members": rows}
    static = [{"member_id": "", "group_instance_id": "i" * 900}] * 900
    yield "one again", {"group_id": world.groups[0], "members": static}
    yield "no group", {"group_id": "nobody", "members": rows}


def _markers(world: World) -> Iterator[Content]:
    said = {"producer_epoch": 0, "transaction_result": False, "coordinator_epoch": 1}
    topic = {"name": world.topic, "partition_indexes": [*world.partitions[:250]]}
    yield "all", {"markers": [said | {"producer_id": 5000, "topics": [topic]}]}
    one = {"name": world.topic, "partition_indexes": [0]}
    many = [said | {"producer_id": 6000 + i, "topics": [one]} for i in range(100)]
    yield "many producers", {"markers": many}


def _acls(field: str, suffix: str) -> Callable[[World], Iterator[Content]]:
    def contents(_world: World) -> Iterator[Content]:
        kinds = {"operation": 2, "permission_type": 3}
        pattern = "pattern_type_filter" if suffix else "resource_pattern_type"
        row = {f"resource_type{suffix}": 2, pattern: 3, f"host{suffix}": "*", **kinds}
        for what, text, count in (("many", "x", 900), ("long", LONG, 15)):
            names = {f"resource_name{suffix}": text, f"principal{suffix}": f"User:{text}"[:32_000]}
            yield what, {field: [row | names] * count}

    return contents


def _partitions_of(
    field: str, inner: str, name: str, of: Callable[[int], Any]
) -> Callable[[World], Iterator[Content]]:
    """Many partitions of the topic, and one of them again and again, in rows of any form."""

    def contents(world: World) -> Iterator[Content]:
        for what, numbers in (("many", [*world.partitions[:450]]), ("one again", [0] * 450)):
            yield what, {field: [{name: world.topic, inner: [of(each) for each in numbers]}]}

    return contents


def _replica_dirs(world: World) -> Iterator[Content]:
    for path in ("/nowhere", LONG):
        topics = [{"name": world.topic, "partitions": [*world.partitions]}]
        yield f"all to a path of {len(path)}", {"dirs": [{"path": path, "topics": topics}]}


def _features(_world: World) -> Iterator[Content]:
    known = {"max_version_level": 1, "upgrade_type": 1}
    for what, rows in (
        ("many", [known | {"feature": f"f{i}"} for i in range(900)]),
        ("one again", [known | {"feature": "metadata.version"}] * 900),
        ("long", [known | {"feature": LONG}] * 30),
    ):
        yield what, {"timeout_ms": 1000, "feature_updates": rows}


def _users(_world: World) -> Iterator[Content]:
    for what, names in (
        ("many", [f"u{i}" for i in range(900)]),
        ("one again", ["u"] * 900),
        ("long", [LONG] * 30),
    ):
        yield what, {"users": [{"name": name} for name in names]}


def _alter_users(_world: World) -> Iterator[Content]:
    for what, names in (("many", [f"u{i}" for i in range(300)]), ("one again", ["u"] * 300)):
        rows = [{"name": name, "mechanism": 1} for name in names]
        given = {"iterations": 4096, "salt": b"salt", "salted_password": bytes(32)}
        yield f"{what}, given", {"deletions": [], "upsertions": [row | given for row in rows]}
        yield f"{what}, taken", {"deletions": rows, "upsertions": []}


def _all_of(world: World) -> list[Content]:
    rows = [{"topic": world.topic, "partitions": [*world.partitions]}]
    return [("all of a topic", {"topics": rows})]


def _all_offsets(world: World) -> dict[str, Any]:
    rows = [{"partition_index": p} for p in world.partitions]
    return {"group_id": "committed", "topics": [{"name": world.topic, "partitions": rows}]}


NO_ARRAYS = "a few strings: the largest say all"

CONTENTS: dict[str, Callable[[World], Iterator[Content]] | str] = {
    "Produce": "tests.gateway.largest.worst_contents",
    "Fetch": _fetch,
    "ListOffsets": _list_offsets,
    "Metadata": _metadata,
    "OffsetCommit": _offset_commit,
    "OffsetFetch": _offset_fetch,
    "FindCoordinator": _find_coordinator,
    "JoinGroup": _join,
    "Heartbeat": NO_ARRAYS,
    "LeaveGroup": _leave,
    "SyncGroup": _sync,
    "SaslHandshake": NO_ARRAYS,
    "SaslAuthenticate": NO_ARRAYS,
    "DescribeGroups": _names("groups", "committed"),
    "ListGroups": lambda _: iter([("all", {"states_filter": ["Empty", "Stable"] * 400})]),
    "ApiVersions": NO_ARRAYS,
    "CreateTopics": _create_topics,
    "DeleteTopics": "tests.gateway.test_coordinator_bounds",
    "DeleteRecords": _delete_records,
    "InitProducerId": NO_ARRAYS,
    "OffsetForLeaderEpoch": _epochs,
    "AddPartitionsToTxn": _add_partitions,
    "AddOffsetsToTxn": NO_ARRAYS,
    "EndTxn": "tests.gateway.test_coordinator_bounds",
    "WriteTxnMarkers": _markers,
    "TxnOffsetCommit": _txn_offset_commit,
    "DescribeAcls": NO_ARRAYS,
    "CreateAcls": _acls("creations", ""),
    "DeleteAcls": _acls("filters", "_filter"),
    "DescribeConfigs": _describe_configs,
    "AlterConfigs": _configs(incremental=False),
    "AlterReplicaLogDirs": _replica_dirs,
    "DescribeLogDirs": lambda world: iter([("all", {"topics": None}), *_all_of(world)]),
    "CreatePartitions": _create_partitions,
    "DeleteGroups": "tests.gateway.test_coordinator_bounds",
    "ElectLeaders": lambda _: iter([("all", {"topic_partitions": None})]),
    "IncrementalAlterConfigs": _configs(incremental=True),
    "AlterPartitionReassignments": _partitions_of(
        "topics", "partitions", "name", lambda p: {"partition_index": p, "replicas": [1]}
    ),
    "ListPartitionReassignments": _numbers("topics", "partition_indexes"),
    "OffsetDelete": lambda world: iter([("all", _all_offsets(world))]),
    "DescribeClientQuotas": _describe_quotas,
    "AlterClientQuotas": _alter_quotas,
    "DescribeUserScramCredentials": _users,
    "AlterUserScramCredentials": _alter_users,
    "DescribeQuorum": _partitions_of(
        "topics", "partitions", "topic_name", lambda p: {"partition_index": p}
    ),
    "UpdateFeatures": _features,
    "DescribeCluster": NO_ARRAYS,
    "DescribeProducers": _numbers("topics", "partition_indexes"),
    "DescribeTransactions": _names("transactional_ids", "wide"),
    "ListTransactions": _transactions,
    "GetTelemetrySubscriptions": NO_ARRAYS,
    "PushTelemetry": _push,
    "ListConfigResources": lambda _: iter([("again", {"resource_types": [2, 4, 8, 16] * 200})]),
    "DescribeTopicPartitions": lambda world: iter(
        [("again", {"topics": [{"name": world.topic}] * 900, "response_partition_limit": 2000})]
    ),
}
