import pytest

from smq.app.shard.connections.entrance import OPEN, Entrance
from smq.security.distinguished_names import MappingRules
from smq.security.principals import ANONYMOUS, Principal
from tests.security.test_distinguished_names import certificate, cn, name

SHORT = Entrance("TLS", naming=MappingRules("RULE:^CN=([^A-Z]+)$/$1/"))


def test_an_entrance_without_tls_and_logins_is_open() -> None:
    assert OPEN.is_open
    assert not Entrance(context=lambda: None).is_open  # type: ignore[arg-type, return-value]


def test_a_client_is_named_by_its_certificate() -> None:
    assert OPEN.principal_of(None) == ANONYMOUS
    shown = certificate(name(cn("alice")))
    assert OPEN.principal_of(shown) == Principal("User", "CN=alice")
    assert SHORT.principal_of(shown) == Principal("User", "alice")


@pytest.mark.parametrize(
    "shown", [certificate(name(cn("Alice"))), certificate(name(cn("unix/root"))), b"garbage"]
)
def test_a_client_without_a_name_or_with_a_reserved_one_does_not_come_in(shown: bytes) -> None:
    assert SHORT.principal_of(shown) is None
