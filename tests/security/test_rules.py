"""The index of rules is a set of them, whatever is added and removed."""

from random import Random

from smq.security.acls import AclBinding, PatternType, ResourcePattern, ResourceType
from smq.security.rules import Rules
from tests.security.worlds import NAMES, worlds


def _matching(bindings: set[AclBinding], name: str) -> set[AclBinding]:
    return {
        each
        for each in bindings
        if each.pattern.resource_type is ResourceType.TOPIC
        and (
            name.startswith(each.pattern.name)
            if each.pattern.pattern_type is PatternType.PREFIXED
            else each.pattern.name in (name, "*")
        )
    }


def test_rules_are_the_set_of_what_was_added_and_not_removed() -> None:
    random, plain, rules = Random(1), set[AclBinding](), Rules()
    for binding in (each for world in worlds() for each in world.rules):
        if random.random() < 0.4 and plain:
            gone = random.choice(sorted(plain))
            plain.remove(gone)
            rules.remove(gone)
        plain.add(binding)
        rules.add(binding)
        rules.invariants()
        assert len(rules) == len(plain)
    assert set(rules) == plain
    assert sorted(rules.patterns()) == sorted({each.pattern for each in plain})
    for name in NAMES:
        found = {
            AclBinding(pattern, entry)
            for pattern, entries in rules.about(ResourceType.TOPIC, name)
            for of_principal in entries.values()
            for entry in of_principal
        }
        assert found == _matching(plain, name)
    for binding in plain:
        rules.remove(binding)
    rules.invariants()
    assert len(rules) == 0


def test_a_rule_is_added_once() -> None:
    [binding, *_] = next(world.rules for world in worlds() if world.rules)
    rules = Rules([binding, binding])
    assert list(rules) == [binding]
    assert binding in rules


def test_rules_of_a_type_are_found_by_principal() -> None:
    bindings = {each for world in worlds() for each in world.rules}
    names = "User:alice", "User:*"
    rules = Rules(bindings)
    found = set(rules.of_type(ResourceType.GROUP, names))
    assert rules.count_of_type(ResourceType.GROUP, names) == len(found)
    assert found == {
        each
        for each in bindings
        if each.entry.principal in names and each.pattern.resource_type is ResourceType.GROUP
    }


def test_lengths_of_prefixes_are_counted_while_a_rule_has_them() -> None:
    found = [each for world in worlds() for each in world.rules]
    pattern = ResourcePattern(ResourceType.TOPIC, "ab", PatternType.PREFIXED)
    some = [AclBinding(pattern._replace(name=name), found[0].entry) for name in ("ab", "cd", "e")]
    rules = Rules(some)
    assert rules.count_of_lengths(ResourceType.TOPIC) == 2
    assert rules.count_of_lengths(ResourceType.GROUP) == 0
    rules.remove(some[2])
    assert rules.count_of_lengths(ResourceType.TOPIC) == 1


def test_a_literal_asterisk_is_the_wildcard() -> None:
    wildcard = ResourcePattern(ResourceType.TOPIC, "*")
    bindings = [each for world in worlds() for each in world.rules if each.pattern == wildcard]
    [(pattern, _)] = Rules(bindings).about(ResourceType.TOPIC, "anything")
    assert pattern == wildcard
