"""Users and rules, as the coordinator changes, keeps and publishes them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from smq.coordinator import access as module
from smq.coordinator.access import AccessControl
from smq.model.errors import BrokerError
from smq.model.security_settings import STANDARD_AUTHORIZER
from smq.security.acls import AclBinding, AclBindingFilter, ResourcePatternFilter, ResourceType
from smq.security.credentials import ScramCredential, ScramMechanism
from smq.security.published import UserCredential, decode, entries_of
from smq.store.store import Store
from tests.model.configs import config_of
from tests.security.worlds import worlds

RULES = sorted({rule for world in worlds() for rule in world.rules})
CONFIG = config_of()
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
    entries = entries_of(decode(access.published))
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


def test_rules_beyond_the_room_are_refused_and_change_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = AccessControl(store, CONFIG)
    access.create(RULES[:5])
    room = len(access.published) + 5
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
