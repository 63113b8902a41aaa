import base64

import pytest

from smq.app.process.clock import wall_ms
from smq.cli.key_pairs import make_pair
from smq.security.pkcs12 import opened
from tests.app.process.test_key_stores import pkcs12_of, trust_store

_X448 = base64.b64decode(  # `openssl genpkey -algorithm X448`, `openssl pkcs12 -export -nocerts`.
    "MIIBNQIBAzCB7AYJKoZIhvcNAQcBoIHeBIHbMIHYMIHVBgkqhkiG9w0BBwGggccEgcQwgcEwgb4GCyqGSIb3DQEM"
    "CgECoIGuMIGrMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAjhFbMLUGBYoQICCAAwDAYIKoZIhvcNAgkF"
    "ADAdBglghkgBZQMEASoEEMcQ9ZVezsuJubDIRTCkqwIEUN0TAUV0m71ZjBIqYVTWMAE2S6GVH03ThRY2qsqp7Pkf"
    "7TlxbpGR5iv6xwLYXsFCkHbzdqWC4w010wxo38WbAmcE2wQk359ZelnsbqbCLoGLMEEwMTANBglghkgBZQMEAgEF"
    "AAQgd7LUug67IddsdIzEXIr2l1xnJ3vFyn/fD5/qb5RfCe8ECCC8rlEeYb3hAgIIAA=="
)


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


def test_a_key_that_is_none_for_tls_is_refused() -> None:
    with pytest.raises(ValueError, match="Key must be"):
        opened(_X448, "p")
