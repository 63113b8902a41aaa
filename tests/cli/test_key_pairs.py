from cryptography import x509

from smq.cli.key_pairs import make_pair

NOW_MS = 1_790_000_000_000


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
    assert signed.not_valid_after_utc.timestamp() * 1000 == NOW_MS + 24 * 60 * 60_000


def _is_authority(certificate: x509.Certificate) -> bool:
    return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
