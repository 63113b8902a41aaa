"""The program at the other end of a connection."""

import pytest

from smq.security.caller import SOFTWARE_MAX, Caller, certified
from smq.security.distinguished_names import MappingRules
from smq.security.principals import ANONYMOUS, Principal
from tests.security.test_distinguished_names import certificate, cn, name

SHORT = MappingRules("RULE:^CN=([^A-Z]+)$/$1/")


def test_it_names_its_software_and_no_name_is_kept_that_is_too_long() -> None:
    caller = Caller("10.0.0.9", 4711)
    assert (caller.software_name, caller.software_version) == ("", "")
    caller.name_software("a" * 1000, "1.0")
    assert (caller.software_name, caller.software_version) == ("a" * SOFTWARE_MAX, "1.0")


def test_a_certificate_names_a_principal_by_the_rules() -> None:
    shown = certificate(name(cn("alice")))
    assert certified(shown, SHORT) == Principal("User", "alice")
    assert certified(shown, MappingRules("DEFAULT")) == Principal("User", "CN=alice")
    assert certified(None, SHORT) == ANONYMOUS


@pytest.mark.parametrize(
    "shown",
    [certificate(name(cn("Alice"))), certificate(name(cn("unix/root"))), b""],
    ids=["no rule", "reserved", "garbage"],
)
def test_a_certificate_without_a_name_or_with_a_reserved_one_names_no_principal(
    shown: bytes,
) -> None:
    assert certified(shown, SHORT) is None
