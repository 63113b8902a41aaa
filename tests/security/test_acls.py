"""The words of access rules are Kafka's, and filters find what Kafka's find."""

from smq.security.acls import (
    OPERATIONS_OF,
    AccessControlEntry,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED, MATCH = PatternType.LITERAL, PatternType.PREFIXED, PatternType.MATCH
PATTERNS = [
    ResourcePattern(TOPIC, "ab"),
    ResourcePattern(TOPIC, "*"),
    ResourcePattern(TOPIC, "a", PREFIXED),
    ResourcePattern(GROUP, "ab"),
]


def found(pattern: ResourcePatternFilter) -> list[ResourcePattern]:
    return [each for each in PATTERNS if pattern.matches(each)]


def test_a_filter_by_type_and_name_finds_patterns_of_that_name() -> None:
    assert found(ResourcePatternFilter()) == PATTERNS
    assert found(ResourcePatternFilter(GROUP)) == PATTERNS[3:]
    assert found(ResourcePatternFilter(ResourceType.ANY, "ab")) == [PATTERNS[0], PATTERNS[3]]
    assert found(ResourcePatternFilter(TOPIC, "a", LITERAL)) == []
    assert found(ResourcePatternFilter(TOPIC, "a", PREFIXED)) == [PATTERNS[2]]
    assert found(ResourcePatternFilter(TOPIC, None, LITERAL)) == PATTERNS[:2]


def test_a_filter_that_matches_finds_what_applies_to_a_resource() -> None:
    assert found(ResourcePatternFilter(TOPIC, "ab", MATCH)) == PATTERNS[:3]
    assert found(ResourcePatternFilter(TOPIC, "b", MATCH)) == [PATTERNS[1]]
    assert found(ResourcePatternFilter(TOPIC, None, MATCH)) == PATTERNS[:3]


def test_a_filter_by_entry_compares_each_field_that_it_names() -> None:
    entry = AccessControlEntry("User:alice", "*", Operation.READ, Permission.ALLOW)
    binding = AclBinding(PATTERNS[0], entry)
    for agreeing in (
        AccessControlEntryFilter(),
        AccessControlEntryFilter("User:alice", "*", Operation.READ, Permission.ALLOW),
    ):
        assert AclBindingFilter(entry=agreeing).matches(binding)
    for other in (
        AccessControlEntryFilter("User:*"),
        AccessControlEntryFilter(host="10.0.0.1"),
        AccessControlEntryFilter(operation=Operation.ALL),
        AccessControlEntryFilter(permission=Permission.DENY),
    ):
        assert not AclBindingFilter(entry=other).matches(binding)


def test_every_type_of_resources_has_its_operations() -> None:
    kinds = {each for each in ResourceType if each > ResourceType.ANY}
    assert OPERATIONS_OF.keys() == kinds
    every = {operation for of_type in OPERATIONS_OF.values() for operation in of_type}
    assert every == {each for each in Operation if each > Operation.ALL}
