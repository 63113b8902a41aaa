"""Users and rules, as the coordinator changes, keeps and publishes them."""

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from shm.catalog import CatalogBlock
from smq.coordinator import access as module
from smq.coordinator.access import TOLD_BYTES_MAX, TOLD_MAX, AccessControl
from smq.model.errors import BrokerError
from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.security.access import PUBLISHED_BYTES_MAX, AccessView
from smq.security.acls import AclBinding, AclBindingFilter, ResourcePatternFilter, ResourceType
from smq.security.credentials import ScramCredential, ScramMechanism
from smq.security.published import UserCredential, changes_of, decode, entries_of
from smq.store.store import Store
from tests.model.configs import config_of
from tests.security.worlds import worlds

RULES = sorted({rule for world in worlds() for rule in world.rules})
CONFIG = config_of()
ON = replace(CONFIG, authorizer_class_name=STANDARD_AUTHORIZER)
SHA_256 = ScramMechanism.SCRAM_SHA_256
ALICE = UserCredential("alice", SHA_256, ScramCredential(b"s", b"k", b"k", 4096))


EVERY = AclBindingFilter()


def found(access: AccessControl, wanted: AclBindingFilter = EVERY) -> list[AclBinding]:
    return [rule for some in access.find(wanted) for rule in some]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "store.sqlite")
    yield store
    store.close()


def test_a_rollback_leaves_the_users_and_rules_that_were_committed(store: Store) -> None:
    access = AccessControl(store, CONFIG)
    access.create(RULES)
    access.put_credential(ALICE)
    access.delete(RULES[::2])
    access.invariants()
    store.commit()
    access.delete(RULES)
    access.delete_credential("alice", SHA_256)
    access.invariants()
    store.rollback()
    again = AccessControl(store, CONFIG)
    again.invariants()
    assert sorted(found(again)) == RULES[1::2]
    assert again.credentials() == {"alice": {SHA_256: ALICE.credential}}


def test_the_published_bytes_have_every_user_and_rule(store: Store) -> None:
    access = AccessControl(store, CONFIG)
    access.create(RULES)
    access.put_credential(ALICE)
    entries = entries_of(decode(access.publication()))
    assert entries == [*RULES, ALICE]


def test_a_change_is_counted_and_no_change_is_not(store: Store) -> None:
    access = AccessControl(store, CONFIG)
    access.create(RULES[:2])
    before = access.changes
    access.create(RULES[:2])
    access.delete(RULES[5:])
    assert access.changes == before
    access.delete(RULES[:2])
    assert access.changes > before


def test_a_filter_finds_rules(store: Store) -> None:
    access = AccessControl(store, CONFIG)
    access.create(RULES)
    wanted = AclBindingFilter(ResourcePatternFilter(ResourceType.GROUP, "a"))
    assert found(access, wanted) == [rule for rule in RULES if wanted.matches(rule)]


def test_a_view_that_follows_now_and_then_has_the_lines_published_last(store: Store) -> None:
    chance = random.Random(27)
    access = AccessControl(store, CONFIG)
    block = CatalogBlock.create(PUBLISHED_BYTES_MAX)
    views = [AccessView(block, ON) for _ in range(3)]
    users = [ALICE._replace(user=user) for user in "abc"]
    is_known = [0, 0]
    for step in range(400):
        if step % 150 == 149:  # Another coordinator does not know what was published before.
            access = AccessControl(store, CONFIG)
        for _ in range(chance.randrange(4)):
            some = chance.sample(RULES, 3)
            user = chance.choice(users)
            chance.choice(
                [
                    partial(access.create, some),
                    partial(access.delete, some),
                    partial(access.put_credential, changed(user, chance)),
                    partial(forget, access, user),
                ]
            )()
        value = access.publication()
        block.publish(value)
        for gap, view in zip((1, 3, TOLD_MAX + 2), views, strict=True):
            if step % gap == 0:
                is_known[changes_of(value, block.version() - view.version) is not None] += 1
                view.refresh()
                view.invariants()
                assert set(view._entries) == set(decode(value))
    assert min(is_known) > 5
    access.invariants()


def changed(user: UserCredential, chance: random.Random) -> UserCredential:
    return user._replace(credential=user.credential._replace(salt=chance.choice([b"1", b"2"])))


def forget(access: AccessControl, user: UserCredential) -> None:
    if access.has_credential(user.user, user.mechanism):
        access.delete_credential(user.user, user.mechanism)


def test_a_publication_tells_earlier_changes_within_bounds(store: Store) -> None:
    access = AccessControl(store, CONFIG)
    access.publication()
    for user in map(str, range(TOLD_MAX + 2)):
        access.put_credential(ALICE._replace(user=user))
        value = access.publication()
    assert changes_of(value, TOLD_MAX) is not None
    assert changes_of(value, TOLD_MAX + 1) is None
    access.put_credential(ALICE._replace(user="x" * TOLD_BYTES_MAX))
    assert changes_of(access.publication(), 1) is None
    access.delete_credential("1", SHA_256)
    assert changes_of(access.publication(), 1) is not None


def test_rules_beyond_the_room_are_refused_and_change_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = AccessControl(store, CONFIG)
    access.create(RULES[:5])
    room = len(access.publication()) + 5
    monkeypatch.setattr(module, "ACCESS_BYTES_MAX", room)
    with pytest.raises(BrokerError, match="no room"):
        access.create(RULES[5:9])
    with pytest.raises(BrokerError, match="no room"):
        access.put_credential(ALICE)
    access.invariants()
    assert found(access) == RULES[:5]
    assert store.access.rules() == RULES[:5]


def test_the_setting_turns_the_authorizer_on(store: Store) -> None:
    assert AccessControl(store, CONFIG).authorizer is None
    on = replace(CONFIG, authorizer_class_name=STANDARD_AUTHORIZER)
    assert AccessControl(store, on).authorizer is not None
