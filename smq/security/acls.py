"""Kafka's access rules: what they say, and the filters that find them.

    resource pattern         literal (`*` matches every name) or prefixed
    access control entry     principal, host (`*`: any), operation, allow or deny
    binding                  the two together: a rule

Names and codes: org.apache.kafka.common.acl and .resource (Kafka 4.3).
"""

from enum import IntEnum
from typing import NamedTuple

WILDCARD = "*"
CLUSTER_NAME = "kafka-cluster"
"""The name of the only resource of the type CLUSTER."""


class ResourceType(IntEnum):
    """What a rule protects. ANY: of filters only."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a rule names resources. ANY and MATCH: of filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What a principal does with a resource. ANY: of filters only."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """What a rule decides. ANY: of filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_O = Operation
OPERATIONS_OF: dict[ResourceType, frozenset[Operation]] = {
    ResourceType.TOPIC: frozenset(
        {
            _O.READ,
            _O.WRITE,
            _O.CREATE,
            _O.DELETE,
            _O.ALTER,
            _O.DESCRIBE,
            _O.DESCRIBE_CONFIGS,
            _O.ALTER_CONFIGS,
        }
    ),
    ResourceType.GROUP: frozenset(
        {_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS}
    ),
    ResourceType.CLUSTER: frozenset(
        {
            _O.CREATE,
            _O.ALTER,
            _O.DESCRIBE,
            _O.CLUSTER_ACTION,
            _O.DESCRIBE_CONFIGS,
            _O.ALTER_CONFIGS,
            _O.IDEMPOTENT_WRITE,
        }
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset({_O.WRITE, _O.DESCRIBE, _O.TWO_PHASE_COMMIT}),
    ResourceType.DELEGATION_TOKEN: frozenset({_O.DESCRIBE}),
    ResourceType.USER: frozenset({_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS}),
}
"""The operations that a type of resources has: AclEntry.supportedOperations of Kafka."""


class ResourcePattern(NamedTuple):
    """The resources of one type that a rule names."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL


class AccessControlEntry(NamedTuple):
    """What a rule decides, about whom. `principal`: as it is written."""

    principal: str
    host: str
    operation: Operation
    permission: Permission


class AclBinding(NamedTuple):
    """A rule."""

    pattern: ResourcePattern
    entry: AccessControlEntry


def described(binding: AclBinding) -> str:
    """A rule in a line: `ALLOW User:alice from * READ on TOPIC flights (PREFIXED)`."""
    (resource_type, name, pattern_type), (principal, host, operation, permission) = binding
    about = f"{resource_type.name} {name} ({pattern_type.name})"
    return f"{permission.name} {principal} from {host} {operation.name} on {about}"


class ResourcePatternFilter(NamedTuple):
    """Which resource patterns are asked for. The name None matches every name.

    MATCH finds what applies to a resource of this name: its literal, the wildcard, prefixes.
    """

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY

    def matches(self, pattern: ResourcePattern) -> bool:
        """Whether it finds a pattern."""
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        exact = pattern.pattern_type
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, exact):
            return False
        if self.name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return pattern.name == self.name
        if exact is PatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name in (self.name, WILDCARD)


class AccessControlEntryFilter(NamedTuple):
    """Which entries are asked for. None matches every principal, or every host."""

    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, entry: AccessControlEntry) -> bool:
        """Whether it finds an entry."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )


class AclBindingFilter(NamedTuple):
    """Which rules are asked for."""

    pattern: ResourcePatternFilter = ResourcePatternFilter()
    entry: AccessControlEntryFilter = AccessControlEntryFilter()

    def matches(self, binding: AclBinding) -> bool:
        """Whether it finds a rule."""
        return self.pattern.matches(binding.pattern) and self.entry.matches(binding.entry)
