"""The principals of the matrix, and the rules that each has in one dialogue.

A rule names a resource by its last word: `allowed` is `<dialogue>-v<version>-allowed`. Rules about
`*` and about the cluster are the same in every dialogue.
"""

from collections.abc import Iterable
from typing import NamedTuple

from smq.security.acls import (
    CLUSTER_NAME,
    OPERATIONS_OF,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from smq.wire.generated.create_acls import AclCreation

ADMIN = "admin"  # A super user: sets everything up.
NAMED = ("allowed", "new")  # What a rule about one resource is about: one that exists, one not.
PREFIX = "a"  # Begins `allowed`, and none of the others.
HERE, ELSEWHERE = "127.0.0.1", "127.0.0.9"

_T = ResourceType
_O = Operation
_WITH_NAMES = (_T.TOPIC, _T.GROUP, _T.TRANSACTIONAL_ID)
_WORD = {_T.TOPIC: "topic", _T.GROUP: "group", _T.CLUSTER: "cluster", _T.TRANSACTIONAL_ID: "txn"}


class Rule(NamedTuple):
    """One rule. `name`: the last word of the resource's name."""

    kind: ResourceType
    operation: Operation
    name: str
    permission: Permission = Permission.ALLOW
    pattern: PatternType = PatternType.LITERAL
    host: str = WILDCARD

    @property
    def lasts(self) -> bool:
        """Whether it is the same in all dialogues."""
        return self.name in {WILDCARD, CLUSTER_NAME}


def _named(kind: ResourceType, *operations: Operation, host: str = WILDCARD) -> list[Rule]:
    names = (CLUSTER_NAME,) if kind is _T.CLUSTER else NAMED
    return [Rule(kind, each, name, host=host) for each in operations for name in names]


def _everything(host: str = WILDCARD) -> list[Rule]:
    return [rule for kind in _WITH_NAMES for rule in _named(kind, _O.ALL, host=host)]


def _denied(
    operation: Operation, name: str = "allowed", pattern: PatternType = PatternType.LITERAL
) -> list[Rule]:
    return [Rule(kind, operation, name, Permission.DENY, pattern) for kind in _WITH_NAMES]


def _single() -> dict[str, list[Rule]]:
    """One right each: every operation that a type of resources has, and ALL of them."""
    return {
        f"{word}-{operation.name.lower().replace('_', '-')}": _named(kind, operation)
        for kind, word in _WORD.items()
        for operation in (_O.ALL, *sorted(OPERATIONS_OF[kind]))
    }


_OF_ALL = [Rule(kind, _O.ALL, WILDCARD) for kind in _WITH_NAMES]
_HOST_DENIED = [Rule(kind, _O.ALL, "allowed", Permission.DENY, host=HERE) for kind in _WITH_NAMES]
_OTHER_DENIED = [each._replace(host=ELSEWHERE) for each in _HOST_DENIED]

PRINCIPALS: dict[str, list[Rule]] = {
    "none": [],
    "super": [],
    **_single(),
    "cluster-delete": _named(_T.CLUSTER, _O.DELETE),  # DeleteTopics asks for it all the same.
    "of-all": _OF_ALL,
    "prefixed": [Rule(kind, _O.ALL, PREFIX, pattern=PatternType.PREFIXED) for kind in _WITH_NAMES],
    "of-all-but-describe": _OF_ALL + _denied(_O.DESCRIBE),
    "of-all-but-read": _OF_ALL + _denied(_O.READ),
    "of-all-but-write": _OF_ALL + _denied(_O.WRITE),
    "of-all-but-prefixed": _OF_ALL + _denied(_O.ALL, PREFIX, PatternType.PREFIXED),
    "all-denied": _everything() + _denied(_O.ALL, WILDCARD),
    "from-here": _everything(HERE),
    "from-elsewhere": _everything(ELSEWHERE),
    "of-all-not-from-here": _OF_ALL + _HOST_DENIED,
    "of-all-not-from-elsewhere": _OF_ALL + _OTHER_DENIED,
    "topic-write-create": _named(_T.TOPIC, _O.WRITE, _O.CREATE),
    "topic-create-describe-configs": _named(_T.TOPIC, _O.CREATE, _O.DESCRIBE_CONFIGS),
    "topic-read-group-read": _named(_T.TOPIC, _O.READ) + _named(_T.GROUP, _O.READ),
    "topic-describe-group-read": _named(_T.TOPIC, _O.DESCRIBE) + _named(_T.GROUP, _O.READ),
    "topic-read-group-delete": _named(_T.TOPIC, _O.READ) + _named(_T.GROUP, _O.DELETE),
    "topic-write-txn-write": _named(_T.TOPIC, _O.WRITE) + _named(_T.TRANSACTIONAL_ID, _O.WRITE),
    "group-read-txn-write": _named(_T.GROUP, _O.READ) + _named(_T.TRANSACTIONAL_ID, _O.WRITE),
    "topic-read-group-read-txn-write": _named(_T.TOPIC, _O.READ)
    + _named(_T.GROUP, _O.READ)
    + _named(_T.TRANSACTIONAL_ID, _O.WRITE),
    "topic-describe-txn-describe": _named(_T.TOPIC, _O.DESCRIBE)
    + _named(_T.TRANSACTIONAL_ID, _O.DESCRIBE),
    "cluster-create-topic-describe": _named(_T.CLUSTER, _O.CREATE) + _named(_T.TOPIC, _O.DESCRIBE),
}


def lasting_rules() -> list[AclCreation]:
    return [
        _creation(name, rule, rule.name)
        for name, rules in PRINCIPALS.items()
        for rule in _once(rules)
        if rule.lasts
    ]


def rules_of_dialogue(own: str) -> list[AclCreation]:
    """The rules about resources of one dialogue, whose names begin with `own`."""
    return [
        _creation(name, rule, f"{own}-{rule.name}")
        for name, rules in PRINCIPALS.items()
        for rule in _once(rules)
        if not rule.lasts
    ]


def _once(rules: Iterable[Rule]) -> list[Rule]:
    return list(dict.fromkeys(rules))


def _creation(principal: str, rule: Rule, name: str) -> AclCreation:
    return AclCreation(
        resource_type=rule.kind,
        resource_name=name,
        resource_pattern_type=rule.pattern,
        principal=f"User:{principal}",
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )
