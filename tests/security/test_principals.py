"""How principals are written and read."""

import pytest

from smq.security.principals import ANONYMOUS, Peer, Principal, parse_super_users


def test_a_principal_is_read_as_it_is_written() -> None:
    for text in "User:alice", "User:CN=a:b,O=c", "Group:", ":", "User:unix/alice":
        assert str(Principal.parse(text)) == text


def test_a_principal_without_a_colon_is_refused() -> None:
    with pytest.raises(ValueError, match="principalType:principalName but got alice"):
        Principal.parse("alice")


def test_super_users_are_separated_by_semicolons() -> None:
    alice, other = Principal("User", "alice"), Principal("User", "CN=x,O=y")
    assert parse_super_users(" User:alice ;User:CN=x,O=y;; ") == {alice, other}
    assert parse_super_users("") == frozenset()
    with pytest.raises(ValueError, match="bob"):
        parse_super_users("User:alice;bob")


def test_a_peer_that_has_not_logged_in_is_anonymous() -> None:
    assert Peer().principal is ANONYMOUS
    assert str(ANONYMOUS) == "User:ANONYMOUS"
