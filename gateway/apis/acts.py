"""What an answer tells the audit log: each change that it confirms or refuses.

An act without an error is a change, and has a line of its own. What fails beside it is told
as another act, with the error.

One function for each API that changes what others rely on. It is given the request, and returns a
function of the answer, or of one part of it after the other. What is only checked (validate_only)
is no act. Names of configs are told and no values: some are secret, and `smq config history` has
the others.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gateway.apis.configs.kinds import Resource
from smq.security.acls import Operation, PatternType, Permission, ResourceType
from smq.security.audit import AdminAct
from smq.wire.codec import ZERO_UUID
from smq.wire.generated import apis

Acts = Callable[[Any], Iterable[AdminAct]]
"""The acts that a part of an answer tells of."""
NAMES_MAX = 20  # Of configs, topics or partitions in one line; it is cut anyway.


def _none(_response: object) -> Iterable[AdminAct]:
    return ()


def create_topics(request: Any) -> Acts:  # noqa: ANN401  (a request, as below)
    """CreateTopics."""
    if request.validate_only:
        return _none
    return lambda response: (
        AdminAct("CREATE", "TOPIC", row.name, row.error_code) for row in response.topics
    )


def delete_topics(_request: object) -> Acts:
    """DeleteTopics: a topic that is not found has its id for a name."""
    return lambda response: (
        AdminAct(
            "DELETE", "TOPIC", row.name or str(row.topic_id), row.error_code, _id(row.topic_id)
        )
        for row in response.responses
    )


def _id(topic_id: object) -> str:
    return "" if topic_id == ZERO_UUID else f"id {topic_id}"


def create_partitions(request: Any) -> Acts:  # noqa: ANN401
    """CreatePartitions."""
    if request.validate_only:
        return _none
    counts = {each.name: each.count for each in request.topics}
    return lambda response: (
        AdminAct("ALTER", "TOPIC", row.name, row.error_code, f"partitions {counts.get(row.name)}")
        for row in response.results
    )


def alter_configs(request: Any) -> Acts:  # noqa: ANN401
    """AlterConfigs and IncrementalAlterConfigs."""
    if request.validate_only:
        return _none
    named = {
        (each.resource_type, each.resource_name): [config.name for config in each.configs]
        for each in request.resources
    }

    def of(response: Any) -> Iterator[AdminAct]:  # noqa: ANN401
        for row in response.responses:
            kind, name = row.resource_type, row.resource_name
            detail = listed(named.get((kind, name), ()))
            yield AdminAct("ALTER_CONFIGS", _word(Resource, kind), name, row.error_code, detail)

    return of


def create_acls(request: Any) -> Acts:  # noqa: ANN401
    """CreateAcls: its answer has a row for each rule, and names none."""
    asked = iter(request.creations)

    def of(response: Any) -> Iterator[AdminAct]:  # noqa: ANN401
        for row in response.results:
            rule = next(asked)
            detail = _rule(rule, rule.resource_pattern_type)
            kind = _word(ResourceType, rule.resource_type)
            yield AdminAct("CREATE_ACL", kind, rule.resource_name, row.error_code, detail)

    return of


def delete_acls(_request: object) -> Acts:
    """DeleteAcls: each rule that is deleted, and each filter that is refused."""

    def of(response: Any) -> Iterator[AdminAct]:  # noqa: ANN401
        for row in response.filter_results:
            if row.error_code:
                yield AdminAct("DELETE_ACL", "ACL", "", row.error_code)
            for rule in row.matching_acls:
                kind = _word(ResourceType, rule.resource_type)
                detail = _rule(rule, rule.pattern_type)
                yield AdminAct("DELETE_ACL", kind, rule.resource_name, rule.error_code, detail)

    return of


def _rule(rule: Any, pattern_type: int) -> str:  # noqa: ANN401
    """A rule in words: ALLOW User:alice READ from *, LITERAL."""
    may, does = _word(Permission, rule.permission_type), _word(Operation, rule.operation)
    pattern = _word(PatternType, pattern_type)
    return f"{may} {rule.principal} {does} from {rule.host}, {pattern}"


def alter_client_quotas(request: Any) -> Acts:  # noqa: ANN401
    """AlterClientQuotas: an entity as `user=alice, client-id=default`."""
    if request.validate_only:
        return _none
    asked = iter(request.entries)

    def of(response: Any) -> Iterator[AdminAct]:  # noqa: ANN401
        for row in response.entries:
            entity = listed(f"{e.entity_type}={e.entity_name or 'default'}" for e in row.entity)
            changes = (f"{op.key}={'' if op.remove else op.value}" for op in next(asked).ops)
            yield AdminAct("ALTER_CONFIGS", "CLIENT_QUOTA", entity, row.error_code, listed(changes))

    return of


def alter_users(request: Any) -> Acts:  # noqa: ANN401
    """AlterUserScramCredentials."""
    deleted = {each.name for each in request.deletions}
    return lambda response: (
        AdminAct("DELETE" if row.user in deleted else "ALTER", "USER", row.user, row.error_code)
        for row in response.results
    )


def delete_groups(_request: object) -> Acts:
    """DeleteGroups."""
    return lambda response: (
        AdminAct("DELETE", "GROUP", row.group_id, row.error_code) for row in response.results
    )


def delete_offsets(request: Any) -> Acts:  # noqa: ANN401
    """OffsetDelete: for each topic of the group what is deleted, and what failed by its error."""

    def of(response: Any) -> Iterator[AdminAct]:  # noqa: ANN401
        if response.error_code:
            yield AdminAct("DELETE_OFFSETS", "GROUP", request.group_id, response.error_code)
        places: dict[tuple[str, int], dict[int, None]] = {}
        for row in response.topics:
            for each in row.partitions:
                places.setdefault((row.name, each.error_code), {})[each.partition_index] = None
        for (name, code), indexes in places.items():
            detail = f"{name}: {listed(map(str, indexes))}"
            yield AdminAct("DELETE_OFFSETS", "GROUP", request.group_id, code, detail)

    return of


def listed(words: Iterable[str]) -> str:
    """Some words, the first ones of many."""
    first: Sequence[str] = list(words)
    more = f" and {len(first) - NAMES_MAX} more" if len(first) > NAMES_MAX else ""
    return ", ".join(first[:NAMES_MAX]) + more


def _word(kinds: Any, code: int) -> str:  # noqa: ANN401  (an IntEnum)
    """A code in Kafka's words; one that Kafka does not have stays a number."""
    return kinds(code).name if code in kinds._value2member_map_ else str(code)


ACTS: Mapping[int, Callable[[Any], Acts]] = {
    apis.CREATE_TOPICS.key: create_topics,
    apis.DELETE_TOPICS.key: delete_topics,
    apis.CREATE_PARTITIONS.key: create_partitions,
    apis.ALTER_CONFIGS.key: alter_configs,
    apis.INCREMENTAL_ALTER_CONFIGS.key: alter_configs,
    apis.CREATE_ACLS.key: create_acls,
    apis.DELETE_ACLS.key: delete_acls,
    apis.ALTER_CLIENT_QUOTAS.key: alter_client_quotas,
    apis.ALTER_USER_SCRAM_CREDENTIALS.key: alter_users,
    apis.DELETE_GROUPS.key: delete_groups,
    apis.OFFSET_DELETE.key: delete_offsets,
}
"""By the API's key, of those that the coordinator answers. A shard tells of DeleteRecords and
WriteTxnMarkers itself."""
