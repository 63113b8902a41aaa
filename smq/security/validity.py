"""When certificates end (RFC 5280, 4.1.2.5). Performs no IO, and reads no clock."""

import base64
import binascii
import re
from calendar import timegm

from smq.security.der import SEQUENCE, VALIDITY, UnreadableDer, elements, fields_of

_UTC_TIME, _GENERAL_TIME = 23, 24
_CENTURY_TURNS = 50  # A year of two digits below it is of this century.
_TIME = re.compile(rb"(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)Z")
_PEM = re.compile(rb"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----([^-]*)-----END")


def end_ms(certificate: bytes) -> int:
    """The wall time at which a certificate in DER is no longer valid. Raises UnreadableDer."""
    fields = fields_of(certificate)
    if len(fields) <= VALIDITY or fields[VALIDITY].tag != SEQUENCE:
        raise UnreadableDer("there is no validity")
    times = [*elements(fields[VALIDITY].content)]
    if len(times) != 2 or times[1].tag not in {_UTC_TIME, _GENERAL_TIME}:
        raise UnreadableDer("the validity is no pair of times")
    text = times[1].content
    if times[1].tag == _UTC_TIME:
        text = (b"20" if text[:2] < b"%d" % _CENTURY_TURNS else b"19") + text
    found = _TIME.fullmatch(text)
    if found is None:
        raise UnreadableDer(f"{text!r} is no time")
    return 1000 * timegm(tuple(map(int, found.groups())))


def first_end_ms(chain: bytes) -> int:
    """When the first of some certificates in PEM ends; 0: there is none. Raises UnreadableDer."""
    try:
        found = [end_ms(base64.b64decode(each)) for each in _PEM.findall(chain)]
    except binascii.Error as reason:
        raise UnreadableDer(f"a certificate is no base64: {reason}") from reason
    return min(found, default=0)
