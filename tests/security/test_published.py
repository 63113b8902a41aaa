"""What is published of users and rules is what is read."""

from smq.security.credentials import ScramCredential, ScramMechanism
from smq.security.published import (
    Change,
    UserCredential,
    changes_of,
    decode,
    encode,
    entries_of,
    line_of,
    line_of_change,
)
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


def test_a_publication_tells_the_last_changes_one_by_one() -> None:
    changes = [Change([], ["a"]), Change(["a"], ["b", "c"]), Change(["b"], [])]
    published = encode(["c"], map(line_of_change, changes))
    assert decode(published) == ["c"]
    assert [changes_of(published, count) for count in range(5)] == [
        [], changes[2:], changes[1:], changes, None,
    ]  # fmt: skip
    nothing_left = encode([], [line_of_change(Change(["a"], []))])
    assert decode(nothing_left) == []
    assert changes_of(nothing_left, 1) == [Change(["a"], [])]
    assert changes_of(encode([]), 1) is None
