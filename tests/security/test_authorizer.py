"""The authorizer's decisions, by example and beside those of Kafka's own class."""

import timeit
from collections.abc import Iterable
from typing import Any

import pytest

from smq.security import authorizer as module
from smq.security.acls import (
    AccessControlEntry,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from smq.security.authorizer import Authorizer
from smq.security.principals import Peer, Principal
from smq.security.rules import Rules
from tests.security.record_authorizer import RECORDED
from tests.security.worlds import Ask, World, worlds

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
ALICE, BOB = (Peer(Principal("User", name), "10.0.0.1") for name in ("alice", "bob"))
SUPER_USERS = frozenset({Principal("User", "root"), Principal("User", "a:b")})


def rule(
    name: str,
    operation: Operation,
    permission: Permission = Permission.ALLOW,
    *,
    principal: str = "User:alice",
    how: PatternType = PatternType.LITERAL,
) -> AclBinding:
    entry = AccessControlEntry(principal, "*", operation, permission)
    return AclBinding(ResourcePattern(TOPIC, name, how), entry)


def answered(authorizer: Authorizer, ask: Ask) -> str:
    peer, operation, kind, name = ask
    if name is None:
        return str(int(authorizer.may_to_any(peer, operation, kind)))
    return str(int(authorizer.decide(peer, operation, kind, name).allowed))


@pytest.mark.parametrize(
    ("world", "said"), list(zip(worlds(), RECORDED.read_text().splitlines(), strict=True))
)
def test_decisions_are_those_of_kafkas_authorizer(world: World, said: str) -> None:
    authorizer = Authorizer(
        Rules(world.rules), SUPER_USERS, allow_if_no_rule=world.allow_if_no_rule
    )
    assert "".join(answered(authorizer, each) for each in world.questions) == said


@pytest.mark.parametrize("rules_a_decision", [0, 10, 1000])
@pytest.mark.parametrize("allow_if_no_rule", [False, True])
@pytest.mark.parametrize("world", worlds())
def test_many_names_are_decided_as_one_by_one(
    world: World, monkeypatch: pytest.MonkeyPatch, rules_a_decision: int, *, allow_if_no_rule: bool
) -> None:
    monkeypatch.setattr(module, "RULES_A_DECISION", rules_a_decision)
    authorizer = Authorizer(Rules(world.rules), SUPER_USERS, allow_if_no_rule=allow_if_no_rule)
    names = sorted({name for *_, name in world.questions if name is not None} | {"*", "*a", ""})
    asked = {(peer, operation, kind) for peer, operation, kind, _ in world.questions}
    for each in sorted(asked):
        one_by_one = [authorizer.decide(*each, name).allowed for name in names]
        assert authorizer.those_allowed(*each, names) == one_by_one
        assert authorizer.choice(*each)(names) == one_by_one


def test_few_names_are_decided_without_a_look_at_each_of_very_many_rules() -> None:
    """A step of a fetch session looked at a hundred thousand rules for two hundred topics."""

    class Watched(Rules):
        def of_type(self, resource_type: ResourceType, principals: Iterable[str]) -> list[Any]:
            raise AssertionError((resource_type, principals))

    rules = Watched(rule(f"t{n}", READ) for n in range(100))
    authorizer = Authorizer(rules)
    assert authorizer.those_allowed(ALICE, READ, TOPIC, ["t7", "u"]) == [True, False]
    with pytest.raises(AssertionError, match="User:alice"):
        authorizer.those_allowed(ALICE, READ, TOPIC, [f"t{n}" for n in range(20)])


def test_names_are_not_decided_one_by_one_if_prefixes_of_others_have_very_many_lengths() -> None:
    """Each decision looked for 249 beginnings of a name, which took longer than all rules."""

    class Watched(Rules):
        def about(self, resource_type: ResourceType, name: str) -> Any:
            raise AssertionError((resource_type, name))

    rules = Watched(rule(f"t{n}", READ) for n in range(100))
    for length in range(1, 250):
        rules.add(rule("z" * length, READ, principal="User:x", how=PatternType.PREFIXED))
    assert Authorizer(rules).those_allowed(ALICE, READ, TOPIC, ["t7", "u"]) == [True, False]


@pytest.mark.parametrize("allow_if_no_rule", [False, True])
def test_a_choice_is_by_the_rules_of_its_moment(*, allow_if_no_rule: bool) -> None:
    rules = Rules([rule("a", READ), rule("c", WRITE)])
    authorizer = Authorizer(rules, allow_if_no_rule=allow_if_no_rule)
    choose = authorizer.choice(ALICE, READ, TOPIC)
    choose_all = authorizer.choice_of_all(ALICE, READ, TOPIC)
    for each in (rule("b", READ), rule("d", WRITE)):
        rules.add(each)
    rules.remove(rule("a", READ))
    assert choose(["a", "b", "c", "d"]) == [True, allow_if_no_rule, False, allow_if_no_rule]
    assert [choose_all(each) for each in "bcd"] == [allow_if_no_rule, False, allow_if_no_rule]
    assert authorizer.choice(ALICE, READ, TOPIC)(["a", "b"]) == [allow_if_no_rule, True]


@pytest.mark.parametrize("allow_if_no_rule", [False, True])
@pytest.mark.parametrize("world", worlds())
def test_a_right_to_all_that_begin_so_is_a_right_to_each_of_them(
    world: World, *, allow_if_no_rule: bool
) -> None:
    authorizer = Authorizer(Rules(world.rules), SUPER_USERS, allow_if_no_rule=allow_if_no_rule)
    words = {pattern.name for pattern, _ in world.rules}
    for peer, operation, kind, _ in world.questions:
        for prefix in ("", "ab", "b", "x"):
            starts = [prefix, *(each for each in words if each.startswith(prefix))]
            names = [name for each in starts for name in (each, f"{each}-new")]
            each_one = [authorizer.decide(peer, operation, kind, name).allowed for name in names]
            may = authorizer.choice_of_all(peer, operation, kind)(prefix)
            assert may <= all(each_one)
            assert allow_if_no_rule or may == all(each_one)


def test_without_rules_for_it_all_may_be_for_everyone() -> None:
    authorizer = Authorizer(Rules([rule("a/x", READ)]), allow_if_no_rule=True)
    may = authorizer.choice_of_all(BOB, READ, TOPIC)
    assert [may(prefix) for prefix in ("b/", "a/", "")] == [True, False, False]


def test_a_decision_names_the_rule_that_made_it() -> None:
    allow, deny = rule("a", READ), rule("a", READ, Permission.DENY, principal="User:*")
    assert Authorizer(Rules([allow])).decide(ALICE, DESCRIBE, TOPIC, "a").rule == allow
    assert Authorizer(Rules([allow, deny])).decide(ALICE, READ, TOPIC, "a") == (
        False,
        deny,
        "a rule denies it",
    )


def test_the_wildcard_names_resources_that_begin_with_an_asterisk_too() -> None:
    deny = rule("*", READ, Permission.DENY)
    assert (
        not Authorizer(Rules([deny]), allow_if_no_rule=True)
        .decide(ALICE, READ, TOPIC, "*a")
        .allowed
    )


def test_a_rule_that_is_removed_decides_no_more() -> None:
    rules = Rules([rule("a", READ), rule("b", READ)])
    authorizer = Authorizer(rules)
    rules.remove(rule("a", READ))
    assert not authorizer.decide(ALICE, READ, TOPIC, "a").allowed
    assert authorizer.decide(ALICE, READ, TOPIC, "b").allowed


def test_ten_thousand_rules_cost_a_decision_no_more_than_a_hundred() -> None:
    def cost(count: int) -> float:
        principals = [f"User:u{each}" for each in range(100)]
        prefixes = PatternType.PREFIXED
        rules = Rules(
            rule(f"t{each // 2:04}", READ, principal=principals[each % 100], how=prefixes)
            for each in range(count - 100)
        )
        for principal in principals:
            rules.add(rule("*", WRITE, principal=principal))
        authorizer = Authorizer(rules)
        peer = Peer(Principal("User", "u7"), "10.0.0.1")
        assert authorizer.decide(peer, READ, TOPIC, "t0003-more").allowed
        return min(
            timeit.repeat(
                lambda: authorizer.decide(peer, READ, TOPIC, "t0003-more").allowed, number=200
            )
        )

    assert cost(10_000) < 3 * cost(200)


def test_rules_for_other_hosts_and_principals_are_not_looked_at() -> None:
    """Ten thousand hosts with a rule of their own took a millisecond for each decision."""
    others = [rule("*", READ)._replace(entry=_at(f"10.0.1.{n}")) for n in range(1000)]
    authorizer = Authorizer(Rules(others))
    [(_, entries)] = Rules(others).about(TOPIC, "flights")
    assert all(len(each) == 1 for each in entries.values())
    assert not authorizer.decide(ALICE, READ, TOPIC, "flights").allowed
    here = ALICE._replace(host="10.0.1.7")
    assert authorizer.decide(here, READ, TOPIC, "flights").allowed


def _at(host: str) -> AccessControlEntry:
    return AccessControlEntry("User:*", host, READ, Permission.ALLOW)
