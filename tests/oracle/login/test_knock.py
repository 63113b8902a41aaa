"""The bytes of a knock, read by decoders that are not its own."""

from typing import Any

import pytest
import scramp

from smq.wire.headers import read_request_header
from tests.oracle.login.knock import authentication, client_final, client_first
from tests.oracle.rights.login import password


def test_a_request_has_the_header_of_its_version() -> None:
    for version in (0, 1):
        header, _ = read_request_header(authentication(b"token", version), 0)
        assert (header.api_key, header.api_version, header.client_id) == (36, version, "c")


def server() -> Any:
    mechanism = scramp.ScramMechanism("SCRAM-SHA-256")
    known = mechanism.make_auth_info(password("alice"), iteration_count=4096)
    server = mechanism.make_server(lambda _: known)
    server.set_client_first(client_first("alice").decode())
    return server


def test_another_server_accepts_the_proof() -> None:
    one = server()
    one.set_client_final(client_final(one.get_server_first().encode(), "alice").decode())
    assert one.get_server_final()


@pytest.mark.parametrize("wrong", [{"secret": "x"}, {"nonce": "x"}, {"header": "y,,"}])
def test_another_server_refuses_what_is_wrong_on_purpose(wrong: dict[str, str]) -> None:
    one = server()
    final = client_final(one.get_server_first().encode(), "alice", **wrong)
    with pytest.raises(scramp.ScramException):
        one.set_client_final(final.decode())
