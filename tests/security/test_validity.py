"""The end of certificates, beside what `cryptography` reads."""

from contextlib import suppress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given, strategies as st

from smq.cli.key_pairs import make_pair
from smq.security.der import UnreadableDer
from smq.security.validity import end_ms, first_end_ms

MADE_MS = 1_790_000_000_000
DAY_MS = 24 * 3600 * 1000


@pytest.mark.parametrize("days", [0, 1, 400, 3650, 20_000])
def test_the_end_is_that_of_cryptography(days: int) -> None:
    certificate = x509.load_pem_x509_certificate(make_pair("a", days, MADE_MS).certificate)
    found = end_ms(certificate.public_bytes(Encoding.DER))
    assert found == int(certificate.not_valid_after_utc.timestamp()) * 1000
    assert found == MADE_MS + days * DAY_MS


def test_the_first_end_of_a_chain_counts() -> None:
    short, long = make_pair("a", 3, MADE_MS), make_pair("b", 9, MADE_MS)
    chain = long.key + long.certificate + b"some text\n" + short.certificate
    assert first_end_ms(chain) == MADE_MS + 3 * DAY_MS
    assert first_end_ms(long.key) == 0


def certificate(validity: bytes) -> bytes:
    def der(tag: int, content: bytes) -> bytes:
        return bytes((tag, len(content))) + content

    fields = der(2, b"\1") + der(0x30, b"") + der(0x30, b"") + der(0x30, validity)
    return der(0x30, der(0x30, fields))


BEGINS = b"\x17\x0d200101000000Z"


@pytest.mark.parametrize(
    ("ends", "found"),
    [
        (b"\x17\x0d491231235959Z", 2_524_607_999_000),
        (b"\x17\x0d500101000000Z", -631_152_000_000),
        (b"\x18\x0f20500101000000Z", 2_524_608_000_000),
    ],
)
def test_years_of_two_digits_belong_to_the_century_of_the_standard(ends: bytes, found: int) -> None:
    assert end_ms(certificate(BEGINS + ends)) == found


@pytest.mark.parametrize(
    "validity", [b"", BEGINS, BEGINS + b"\x04\x0d200101000000Z", BEGINS + b"\x17\x0b2001010000Z"]
)
def test_a_validity_that_is_none_is_malformed(validity: bytes) -> None:
    with pytest.raises(UnreadableDer):
        end_ms(certificate(validity))


@given(st.binary(max_size=80))
def test_garbage_is_malformed_or_some_time(data: bytes) -> None:
    with suppress(UnreadableDer):
        end_ms(data)
    with suppress(UnreadableDer):
        first_end_ms(b"-----BEGIN CERTIFICATE-----" + data + b"-----END CERTIFICATE-----")
