import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from smq.cli.key_pairs import ends_at, is_signed_by, make_pair

NOW_MS = 1_790_000_000_000
DAY_MS = 24 * 60 * 60_000


def test_a_certificate_is_of_its_authority_and_names_its_hosts() -> None:
    authority = make_pair("authority", 2, NOW_MS)
    pair = make_pair("broker", 1, NOW_MS, authority, ["queue.example", "127.0.0.1"])
    signed, signer = map(x509.load_pem_x509_certificate, (pair.certificate, authority.certificate))
    signed.verify_directly_issued_by(signer)
    names = signed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["queue.example"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert [_is_authority(each) for each in (signer, signed)] == [True, False]
    assert signed.not_valid_before_utc.timestamp() * 1000 < NOW_MS
    assert signed.not_valid_after_utc.timestamp() * 1000 == NOW_MS + DAY_MS


def test_an_authority_that_has_expired_signs_nothing() -> None:
    authority = make_pair("authority", 2, NOW_MS)
    make_pair("broker", 1, NOW_MS + 2 * DAY_MS, authority)
    with pytest.raises(ValueError, match="the authority has expired"):
        make_pair("broker", 1, NOW_MS + 2 * DAY_MS + 1000, authority)


def test_a_certificate_ends_no_later_than_its_authority() -> None:
    authority = make_pair("authority", 2, NOW_MS)
    pair = make_pair("broker", 30, NOW_MS + DAY_MS, authority)
    assert ends_at(pair.certificate) == ends_at(authority.certificate)
    assert ends_at(pair.certificate).timestamp() * 1000 == NOW_MS + 2 * DAY_MS


def test_an_authority_knows_what_it_has_signed() -> None:
    authority, other = (make_pair("authority", 2, NOW_MS) for _ in range(2))
    pair = make_pair("broker", 2, NOW_MS, authority)
    assert is_signed_by(pair.key + pair.certificate, authority.certificate)
    assert not is_signed_by(pair.certificate, other.certificate)
    assert not is_signed_by(pair.certificate, pair.certificate)
    with pytest.raises(ValueError, match="PEM"):
        is_signed_by(b"", authority.certificate)
    with pytest.raises(ValueError, match="do not belong together"):
        make_pair("broker", 2, NOW_MS, authority._replace(key=other.key))


HOSTS = ["a", "a.example", "*.example", "A-1.Example", "_a", "1a", "10.0.0.1", "::1", "xn--a.b"]
NO_HOSTS = [
    "a:9092", "127.0.0.1:9092", "[::1]", "[::1]:1", "10.0.0.0/8", "300.1.1.1", "a b", "a..b", "a.",
    ".a", "-a", "a-", "a.*", "*", "*.", "é", "http://a", "a\n", "x" * 64,
]  # fmt: skip


def test_a_host_is_a_name_or_an_address() -> None:
    authority = make_pair("authority", 2, NOW_MS)
    make_pair("broker", 1, NOW_MS, authority, HOSTS)
    for host in NO_HOSTS:
        with pytest.raises(ValueError, match="is no name and no address of a host"):
            make_pair("broker", 1, NOW_MS, authority, [host])


def test_an_authoritys_key_of_another_kind_or_with_a_password_is_refused() -> None:
    authority = make_pair("authority", 2, NOW_MS)
    form = Encoding.PEM, PrivateFormat.PKCS8
    other = rsa.generate_private_key(65537, 2048).private_bytes(*form, NoEncryption())
    with pytest.raises(ValueError, match="not on an elliptic curve"):
        make_pair("broker", 1, NOW_MS, authority._replace(key=other))
    locked = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        *form, BestAvailableEncryption(b"secret")
    )
    with pytest.raises(ValueError, match="has a password"):
        make_pair("broker", 1, NOW_MS, authority._replace(key=locked))


def _is_authority(certificate: x509.Certificate) -> bool:
    return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
