import re

import pytest

from smq.security.credentials import Hashing, ScramMechanism, look_up
from smq.security.decoys import ITERATIONS, USUAL, Decoys, credential_or_decoy
from smq.security.salts import USUAL_SALT, form_of
from smq.testing.credentials import UsersInMemory

SHA_256, SHA_512 = ScramMechanism


def test_a_decoy_is_the_same_each_time() -> None:
    assert Decoys(b"secret").of("eve", SHA_256) == Decoys(b"secret").of("eve", SHA_256)


def test_decoys_of_two_users_mechanisms_or_secrets_differ() -> None:
    decoys = Decoys(b"secret")
    made = [
        decoys.of("eve", SHA_256),
        decoys.of("eva", SHA_256),
        decoys.of("eve", SHA_512),
        Decoys(b"another").of("eve", SHA_256),
    ]
    assert len({each.salt for each in made}) == len({each.stored_key for each in made}) == 4


def test_the_salt_of_a_decoy_looks_like_one_of_kafkas_tools() -> None:
    for user in "abcdefgh":
        assert re.fullmatch(rb"[0-9a-z]{20,26}", Decoys(b"secret").of(user, SHA_256).salt)


def test_keys_of_a_decoy_have_the_length_of_the_mechanism() -> None:
    for mechanism, length in ((SHA_256, 32), (SHA_512, 64)):
        decoy = Decoys(b"secret").of("eve", mechanism)
        assert (len(decoy.stored_key), len(decoy.server_key)) == (length, length)


def test_a_user_who_exists_gets_no_decoy() -> None:
    users, decoys = UsersInMemory({"alice": "pencil"}), Decoys(b"secret")
    alice, eve = (look_up(users, name, SHA_256) for name in ("alice", "eve"))
    assert credential_or_decoy(alice, decoys) == users.find("alice", SHA_256)
    assert credential_or_decoy(eve, decoys) == decoys.of("eve", SHA_256, users.profiles())
    users.add("bob", "p", SHA_256, iterations=8192)
    del users.found["alice", SHA_256], users.found["alice", SHA_512]
    assert credential_or_decoy(eve, decoys).iterations == 8192


def test_a_user_who_lacks_a_mechanism_is_asked_with_the_iterations_of_one_profile() -> None:
    users = UsersInMemory({})
    users.add("ann", "p", SHA_256, 8192)
    users.add("bob", "p", SHA_512, 16384)
    for number in range(50):
        decoys = Decoys(b"%d" % number)

        def asked(user: str, decoys: Decoys = decoys) -> tuple[int, ...]:
            checked = (look_up(users, user, each) for each in ScramMechanism)
            return tuple(credential_or_decoy(each, decoys).iterations for each in checked)

        nobody = {asked(f"nobody {each}") for each in range(50)}
        assert nobody == {asked("ann"), asked("bob")} == {(8192, ITERATIONS), (ITERATIONS, 16384)}


def usual(iterations: int) -> Hashing:
    return Hashing(iterations, USUAL_SALT)


PROFILES = {
    ((SHA_512, usual(8192)),): 1,
    ((SHA_256, usual(4096)), (SHA_512, usual(16384))): 1,
}


@pytest.mark.parametrize("salt", [bytes(range(64)), b"0123456789abcdef" * 2, b"1" * 26])
def test_a_decoys_salt_has_the_form_of_a_users(salt: bytes) -> None:
    """Users that librdkafka had made were known by their 64 bytes."""
    users = UsersInMemory({"alice": "pencil"})
    for mechanism in ScramMechanism:
        alice = users.found["alice", mechanism]._replace(salt=salt)
        users.found["alice", mechanism] = alice
    decoys = Decoys(b"secret")
    for mechanism in ScramMechanism:
        salts = {
            credential_or_decoy(look_up(users, f"nobody {number}", mechanism), decoys).salt
            for number in range(20)
        }
        assert len(salts) == 20
        assert {form_of(each) for each in salts} == {form_of(salt)}


def test_a_user_who_lacks_a_mechanism_is_asked_with_the_salt_of_one_profile() -> None:
    users = UsersInMemory({})
    users.add("ann", "p", SHA_256)
    of = {
        name: form_of(credential_or_decoy(look_up(users, name, SHA_512), Decoys(b"s")).salt)
        for name in ("ann", "nobody")
    }
    assert of == {"ann": USUAL_SALT, "nobody": USUAL_SALT}


def test_a_decoy_has_the_iterations_of_a_user_who_exists() -> None:
    decoys, names = Decoys(b"secret"), [f"user {number}" for number in range(50)]
    chosen = {decoys.profile(name, PROFILES) for name in names}
    assert chosen == {*PROFILES}
    for name in names:
        its = dict(decoys.profile(name, PROFILES))
        assert decoys.of(name, SHA_512, PROFILES).iterations == its[SHA_512].iterations
        weak = decoys.of(name, SHA_256, PROFILES)
        assert weak.iterations == its.get(SHA_256, usual(ITERATIONS)).iterations
        turned = dict(reversed(PROFILES.items()))
        assert decoys.profile(name, turned) == decoys.profile(name, PROFILES)
    assert decoys.profile("eve", {}) == USUAL


def test_a_decoy_stays_where_others_come_and_go() -> None:
    decoys, names = Decoys(b"secret"), [f"user {number}" for number in range(50)]
    new = ((SHA_256, usual(4096)),)
    more = PROFILES | {new: 1}
    for name in names:
        before, after = (decoys.profile(name, each) for each in (PROFILES, more))
        assert after in {before, new}


def test_a_decoy_has_what_few_users_have_as_seldom_as_they() -> None:
    """Of a hundred users of Kafka's tools two have shorter salts, as each second decoy had."""
    decoys, (rare, often) = Decoys(b"secret"), PROFILES
    chosen = [decoys.profile(f"user {number}", {rare: 1, often: 64}) for number in range(2000)]
    assert 10 <= chosen.count(rare) <= 60  # 31 of 2,000.
