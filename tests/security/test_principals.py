from smq.security.principals import ANONYMOUS, Principal


def test_a_principal_is_written_as_rules_name_it() -> None:
    assert str(Principal("User", "alice")) == "User:alice"
    assert str(ANONYMOUS) == "User:ANONYMOUS"
