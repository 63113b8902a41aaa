"""Credentials and access rules outlive the process that was told them."""

from pathlib import Path

from smq.security.credentials import ScramCredential, ScramMechanism
from smq.security.published import UserCredential
from smq.store.store import Store
from tests.security.worlds import worlds


def credential(user: str, mechanism: ScramMechanism, salt: bytes = b"\x00salt") -> UserCredential:
    return UserCredential(user, mechanism, ScramCredential(salt, b"stored", b"server", 4096))


def test_credentials_are_kept_one_for_each_mechanism(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    store = Store.open(path)
    both = [credential("alice", mechanism) for mechanism in ScramMechanism]
    for each in (*both, credential("bob", ScramMechanism.SCRAM_SHA_256)):
        store.access.put_credential(each)
    other = credential("alice", ScramMechanism.SCRAM_SHA_512, b"other")
    store.access.put_credential(other)
    store.access.delete_credential("bob", ScramMechanism.SCRAM_SHA_256)
    store.commit()
    store.close()
    store = Store.open(path)
    assert store.access.credentials() == [both[0], other]
    store.close()


def test_rules_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    rules = {rule for world in worlds() for rule in world.rules}
    gone = set(sorted(rules)[::3])
    store = Store.open(path)
    store.access.add_rules(rules)
    store.access.delete_rules(gone)
    store.commit()
    store.access.delete_rules(rules)
    store.close()  # Without a commit.
    store = Store.open(path)
    found = store.access.rules()
    assert set(found) == rules - gone
    assert len(found) == len(set(found))
    store.close()
