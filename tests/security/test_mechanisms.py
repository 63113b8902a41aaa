import pytest

from smq.security.decoys import Decoys
from smq.security.mechanisms import MECHANISMS, LoginServers, enabled_mechanisms
from smq.security.oauthbearer import OAuthBearerServer
from smq.security.plain import PlainServer
from smq.security.scram import ScramServer
from smq.testing.credentials import UsersInMemory
from tests.security.issuer import tokens_at


def test_mechanisms_are_enabled_in_the_order_in_which_they_are_named() -> None:
    assert enabled_mechanisms(" PLAIN , SCRAM-SHA-512,PLAIN") == ("PLAIN", "SCRAM-SHA-512")


@pytest.mark.parametrize("text", ["", " , ", "plain", "GSSAPI", "oauthbearer"])
def test_other_mechanisms_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"):
        enabled_mechanisms(text)


def test_each_mechanism_has_a_server() -> None:
    servers = LoginServers(UsersInMemory({}), Decoys(b"secret"), lambda: "nonce")
    made = [type(servers.begin(each, tokens_at(lambda: 0))) for each in MECHANISMS]
    assert made == [PlainServer, ScramServer, ScramServer, OAuthBearerServer]
