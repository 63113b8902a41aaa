"""What is published of users and rules is what is read."""

from smq.security.credentials import ScramCredential, ScramMechanism
from smq.security.published import UserCredential, decode, encode, entries_of, line_of
from tests.security.worlds import worlds

ALICE = UserCredential(
    "al\nice", ScramMechanism.SCRAM_SHA_512, ScramCredential(b"salt", b"\x00\xff", b"", 4096)
)


def test_a_credential_is_read_as_it_was_published() -> None:
    assert entries_of([line_of(ALICE)]) == [ALICE]


def test_rules_are_read_as_they_were_published() -> None:
    rules = [rule for world in worlds() for rule in world.rules]
    lines = decode(encode(map(line_of, rules)))
    assert entries_of(lines) == rules


def test_no_name_breaks_a_line() -> None:
    assert len(decode(encode([line_of(ALICE)]))) == 1
    assert decode(encode([])) == []
