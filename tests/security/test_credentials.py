import pytest
import scramp

from smq.security.credentials import (
    PROFILES_MAX,
    Hashing,
    Profile,
    ScramMechanism,
    credential_of,
    look_up,
    salted,
    some_of,
)
from smq.security.salts import USUAL_SALT
from smq.testing.credentials import UsersInMemory

SALT, ITERATIONS = b"sixteen bytes...", 4096


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_credential_has_the_keys_that_another_implementation_derives(
    mechanism: ScramMechanism,
) -> None:
    other = scramp.ScramMechanism(mechanism.sasl_name)
    _, stored_key, server_key, _ = other.make_auth_info("pencil", ITERATIONS, SALT)
    password = salted(mechanism, "pencil", SALT, ITERATIONS)
    ours = credential_of(mechanism, password, SALT, ITERATIONS)
    assert (ours.stored_key, ours.server_key) == (stored_key, server_key)
    assert (ours.salt, ours.iterations) == (SALT, ITERATIONS)


def test_a_login_is_checked_with_a_credential_that_is_current_until_it_changes() -> None:
    users = UsersInMemory({"alice": "pencil"})
    sha_256, sha_512 = ScramMechanism
    checked, nobody = look_up(users, "alice", sha_512), look_up(users, "eve", sha_512)
    assert checked.found == users.find("alice", sha_512)
    users.add("alice", "other", sha_256)
    assert checked.is_current()
    users.add("alice", "other", sha_512)
    assert not checked.is_current()
    assert nobody.is_current(), "there was none, and is none"
    users.add("eve", "stylus", sha_512)
    assert not nobody.is_current()


def test_the_order_of_users_does_not_choose_among_many_profiles() -> None:
    profiles = [
        ((each, Hashing(4096 + count, USUAL_SALT)),)
        for count in range(40)
        for each in ScramMechanism
    ]
    some = some_of(dict.fromkeys(profiles, 1))
    assert len(some) == PROFILES_MAX
    assert some_of(dict.fromkeys(reversed(profiles), 1)) == some
    assert some_of({profiles[0]: 1}) == {profiles[0]: 1}


def test_profiles_of_most_users_are_chosen_from_and_counted_in_powers_of_two() -> None:
    profiles: list[Profile] = [
        ((ScramMechanism.SCRAM_SHA_256, Hashing(4096 + number, USUAL_SALT)),)
        for number in range(80)
    ]
    some = some_of({each: number for number, each in enumerate(profiles, 1)})
    assert some == dict.fromkeys(profiles[63:], 64) | dict.fromkeys(profiles[31:46], 32)
