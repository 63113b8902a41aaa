"""Who plays the matrix."""

from smq.security.acls import CLUSTER_NAME, OPERATIONS_OF, WILDCARD, Operation, ResourceType
from tests.oracle.rights.principals import NAMED, PRINCIPALS, lasting_rules, rules_of_dialogue

KINDS = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)


def test_some_principal_has_each_right_and_no_other() -> None:
    alone = {
        (kind, operation)
        for rules in PRINCIPALS.values()
        for kind, operation in {(each.kind, each.operation) for each in rules}
        if len({(each.kind, each.operation) for each in rules}) == 1
    }
    wanted = {(kind, each) for kind in KINDS for each in (*OPERATIONS_OF[kind], Operation.ALL)}
    assert wanted <= alone


def test_rules_of_a_dialogue_are_about_its_own_resources() -> None:
    assert all(each.resource_name.startswith("d-v1-") for each in rules_of_dialogue("d-v1"))


def test_rules_that_last_are_about_all_or_the_cluster() -> None:
    assert {each.resource_name for each in lasting_rules()} == {WILDCARD, CLUSTER_NAME}


def test_rules_never_name_the_denied_and_the_unknown() -> None:
    names = {each.name for rules in PRINCIPALS.values() for each in rules}
    assert names.isdisjoint({"denied", "unknown"})
    assert names >= set(NAMED)


def test_every_rule_is_set_once() -> None:
    rules = [*lasting_rules(), *rules_of_dialogue("d-v1")]
    assert len(rules) == len({repr(each) for each in rules})
