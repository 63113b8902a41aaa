"""What handlers ask about a peer."""

from smq.security.acls import Operation, ResourceType
from smq.security.authorizer import Authorizer
from smq.security.principals import Peer, Principal
from smq.security.rights import EVERYTHING, Rights
from smq.security.rules import Rules
from tests.security.test_authorizer import ALICE, SUPER_USERS, rule

AUTHORIZER = Authorizer(
    Rules([rule("a", Operation.WRITE), rule("b", Operation.ALTER_CONFIGS)]), SUPER_USERS
)
RIGHTS = Rights(AUTHORIZER, ALICE)


def test_a_peer_has_the_rights_that_rules_give_it() -> None:
    assert RIGHTS.topic(Operation.WRITE, "a")
    assert RIGHTS.topic(Operation.DESCRIBE, "a")
    assert not RIGHTS.topic(Operation.READ, "a")
    assert not RIGHTS.group(Operation.READ, "a")
    assert not RIGHTS.transactional_id(Operation.WRITE, "a")
    assert not RIGHTS.cluster(Operation.ALTER)
    assert RIGHTS.any_topic(Operation.WRITE)
    assert not RIGHTS.any_topic(Operation.READ)
    assert not RIGHTS.all_topics(Operation.WRITE)("a")
    assert RIGHTS.choice(Operation.WRITE, ResourceType.TOPIC)(["a", "b"]) == [True, False]
    assert RIGHTS.choice(Operation.WRITE, ResourceType.GROUP)(["a"]) == [False]


def test_a_super_user_is_not_limited() -> None:
    rights = Rights(AUTHORIZER, Peer(Principal("User", "root"), "10.0.0.1"))
    assert rights.is_unlimited
    assert not RIGHTS.is_unlimited
    for each in rights, EVERYTHING:
        assert each.topic(Operation.READ, "a")
        assert each.group(Operation.DELETE, "g")
        assert each.transactional_id(Operation.WRITE, "t")
        assert each.cluster(Operation.ALTER)
        assert each.any_topic(Operation.READ)
        assert each.all_topics(Operation.READ)("")
        assert each.choice(Operation.READ, ResourceType.GROUP)(["g", "h"]) == [True, True]


def test_the_operations_of_a_resource_are_a_bit_each() -> None:
    described = 1 << Operation.WRITE | 1 << Operation.DESCRIBE
    assert RIGHTS.operations(ResourceType.TOPIC, "a") == described
    configs = 1 << Operation.DESCRIBE_CONFIGS | 1 << Operation.ALTER_CONFIGS
    assert RIGHTS.operations(ResourceType.TOPIC, "b") == configs
    assert RIGHTS.operations(ResourceType.CLUSTER, "kafka-cluster") == 0
