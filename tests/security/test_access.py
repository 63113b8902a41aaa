"""A process follows what the coordinator publishes of users and rules."""

from dataclasses import replace

import numpy as np

from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.security.access import AccessView
from smq.security.acls import AclBinding, Operation, Permission, ResourceType
from smq.security.credentials import Hashing, ScramCredential, ScramMechanism
from smq.security.principals import Peer, Principal
from smq.security.published import Change, UserCredential, encode, line_of, line_of_change
from smq.security.salts import form_of
from tests.model.configs import config_of
from tests.security.test_authorizer import rule

CONFIG = config_of()
ON = replace(CONFIG, authorizer_class_name=STANDARD_AUTHORIZER, super_users="User:root")
ALICE = Peer(Principal("User", "alice"), "10.0.0.1")
SHA_256 = ScramMechanism.SCRAM_SHA_256


class FakeBlock:
    """What shm.catalog's block does."""

    def __init__(self) -> None:
        self.version, self.value = 0, b""
        self.words = np.zeros(1, np.int64)

    def publish(self, *entries: UserCredential | AclBinding) -> None:
        self.version, self.value = self.version + 1, encode(map(line_of, entries))
        self.words[0] = self.version

    def tell(self, lines: list[str], *changes: Change, behind: int = 1) -> None:
        self.version += behind
        self.value = encode(lines, map(line_of_change, changes))

    def has_moved(self, version: int) -> bool:
        return self.version != version

    def read(self) -> tuple[int, bytes]:
        return self.version, self.value


def credential(user: str, salt: bytes = b"s") -> UserCredential:
    return UserCredential(user, SHA_256, ScramCredential(salt, b"k", b"k", 4096))


def test_a_rule_decides_from_the_moment_it_is_published() -> None:
    block = FakeBlock()
    access = AccessView(block, ON)
    rights = access.rights_of(ALICE)
    assert not rights.topic(Operation.READ, "a")
    block.publish(rule("a", Operation.READ))
    assert rights.topic(Operation.READ, "a")
    block.publish(rule("a", Operation.READ), rule("a", Operation.READ, Permission.DENY))
    assert not rights.topic(Operation.READ, "a")
    block.publish()
    assert not rights.topic(Operation.READ, "a")
    access.invariants()


def test_a_view_that_has_followed_so_far_reads_only_the_changes() -> None:
    """With a hundred thousand rules a look at all took 60 ms for each that came."""
    block = FakeBlock()
    access = AccessView(block, ON)
    rights = access.rights_of(ALICE)
    block.publish(rule("a", Operation.READ), rule("b", Operation.READ), credential("carol"))
    assert rights.topic(Operation.READ, "a")
    others = ["lines that nobody reads"]
    a, b, c = (line_of(rule(name, Operation.READ)) for name in "abc")
    block.tell(others, Change([a], [c]))
    assert not rights.topic(Operation.READ, "a")
    assert rights.topic(Operation.READ, "b")
    assert rights.topic(Operation.READ, "c")
    changed_users = set[str]()
    access.when_user_changes = changed_users.add
    carol, changed = line_of(credential("carol")), line_of(credential("carol", b"other"))
    block.tell(others, Change([c], []), Change([carol], [changed]), Change([b], []), behind=3)
    assert not rights.topic(Operation.READ, "c")
    assert access.find("carol", SHA_256) == credential("carol", b"other").credential
    assert changed_users == {"carol"}
    assert access.version == block.version
    access.invariants()


def test_users_whose_credentials_come_or_go_are_named() -> None:
    block, changed_users = FakeBlock(), set[str]()
    access = AccessView(block, ON)
    access.when_user_changes = changed_users.add
    block.publish(credential("alice"), credential("bob"), credential("carol"))
    found = access.find("alice", SHA_256)
    assert found == credential("alice").credential
    assert access.find("alice", ScramMechanism.SCRAM_SHA_512) is None
    assert changed_users == {"alice", "bob", "carol"}
    changed_users.clear()
    block.publish(credential("alice"), credential("bob", b"other"), rule("a", Operation.READ))
    assert access.find("bob", SHA_256) == credential("bob", b"other").credential
    assert access.find("carol", SHA_256) is None
    assert changed_users == {"bob", "carol"}
    access.invariants()


def test_profiles_are_those_of_the_users_of_now() -> None:
    block = FakeBlock()
    access = AccessView(block, ON)
    assert access.profiles() == {}
    alice, bob = credential("alice"), credential("bob")
    stronger = bob._replace(
        mechanism=ScramMechanism.SCRAM_SHA_512,
        credential=bob.credential._replace(iterations=8192),
    )
    form = form_of(bob.credential.salt)
    both = ((SHA_256, Hashing(4096, form)), (ScramMechanism.SCRAM_SHA_512, Hashing(8192, form)))
    block.publish(alice, bob, stronger)
    assert access.profiles() == {both[:1]: 1, both: 1}
    access.invariants()
    block.publish(credential("alice", b"o"), stronger)
    assert access.profiles() == {both[:1]: 1, both[1:]: 1}
    access.invariants()
    block.publish(stronger)
    assert access.profiles() == {both[1:]: 1}
    access.invariants()


def test_without_an_authorizer_everybody_may_do_everything() -> None:
    access = AccessView(FakeBlock(), CONFIG)
    rights = access.rights_of(ALICE)
    assert rights.is_unlimited
    assert rights.topic(Operation.DELETE, "a")
    assert (
        rights.operations(ResourceType.GROUP, "g") == 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
    )
