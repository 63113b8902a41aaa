import pytest

from smq.app.process.clock import wall_ms
from smq.cli.key_pairs import make_pair
from smq.security.pkcs12 import opened
from tests.app.process.test_key_stores import pkcs12_of, trust_store


def test_a_store_has_a_key_and_its_certificates_first() -> None:
    authority = make_pair("authority", 1, wall_ms())
    pair = make_pair("broker", 1, wall_ms(), authority)
    key, chain = opened(pkcs12_of(pair, b"p", authority.certificate), "p")
    assert (key, chain) == (pair.key, pair.certificate + authority.certificate)


def test_a_trust_store_has_certificates_alone() -> None:
    key, chain = opened(trust_store(b"p"), "p")
    assert key == b""
    assert chain.startswith(b"-----BEGIN CERTIFICATE")


def test_a_wrong_password_and_garbage_are_refused() -> None:
    for data, password in ((trust_store(b"p"), "q"), (b"garbage", "p"), (b"", "")):
        with pytest.raises(ValueError, match="PKCS12"):
            opened(data, password)
