import re

from smq.security.credentials import ScramMechanism, look_up
from smq.security.decoys import Decoys, base36, credential_or_decoy
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
    assert credential_or_decoy(eve, decoys) == decoys.of("eve", SHA_256)


def test_base36_writes_numbers_as_int_reads_them() -> None:
    for number in (0, 1, 35, 36, 12345678901234567890):
        assert int(base36(number), 36) == number
